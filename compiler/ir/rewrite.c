/* Copying graphs with replacement: see rewrite.h. Any stage in, the same stage out. */
#include "ir/rewrite.h"

#include <string.h>

GraphMap graph_map_begin(Arena *scratch, Arena *arena, const Graph *from) {
  GraphMap map = {.from = from, .to = graph_new(arena, from->name)};
  map.value = ARENA_ARRAY(scratch, ValueId, from->values.len);
  VEC_RESERVE(arena, &map.to->nodes, from->nodes.len);
  VEC_RESERVE(arena, &map.to->values, from->values.len);
  for (uint32_t s = 1; s < from->scopes.len; s++)
    VEC_PUSH(arena, &map.to->scopes, from->scopes.data[s]);
  return map;
}

ValueId graph_map_get(const GraphMap *map, ValueId old) {
  return map->value[old];
}

void graph_map_set(GraphMap *map, ValueId old, ValueId new_value) {
  map->value[old] = new_value;
  Value *v = graph_value(map->to, new_value);
  const Value *was = graph_value(map->from, old);
  if (!v->name) {
    v->name = was->name;
    v->name_scope = was->name_scope;
  }
  v->poisoned |= was->poisoned;
}

NodeId graph_map_copy(GraphMap *map, NodeId old) {
  enum { FEW = 8 };
  const Node *n = graph_node(map->from, old);
  ValueId few[FEW], *operands = few;
  if (n->noperands > FEW) operands = ARENA_ARRAY(map->to->arena, ValueId, n->noperands);
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = graph_map_get(map, n->operands[i]);
  NodeId id = graph_add_like(map->to, map->from, old, operands, n->span, n->scope);
  for (uint32_t i = 0; i < n->nresults; i++)
    graph_map_set(map, node_result(n, i), node_result(graph_node(map->to, id), i));
  return id;
}

/* Which nodes have an effect or feed one that has, or feed `keep`. */
static bool *find_live(Arena *scratch, const Graph *g, const ValueId *keep, uint32_t nkeep) {
  bool *live = ARENA_ARRAY(scratch, bool, g->nodes.len);
  for (uint32_t i = 0; i < nkeep; i++) live[graph_value(g, keep[i])->node] = true;
  live[0] = false;
  for (NodeId id = g->nodes.len - 1; id > 0; id--) {
    const Node *n = graph_node(g, id);
    live[id] |= n->nresults == 0;
    for (uint32_t i = 0; live[id] && i < n->noperands; i++)
      live[graph_value(g, n->operands[i])->node] = true;
  }
  return live;
}

static uint64_t hash_node(const Node *n) {
  uint64_t h = hash_bytes(&n->op, sizeof n->op, n->phase);
  h = hash_bytes(n->operands, n->noperands * sizeof(ValueId), h);
  return attrs_hash(n->attrs, n->nattrs, h);
}

static bool nodes_equal(const Graph *g, const Node *a, const Node *b) {
  if (a->op != b->op || a->phase != b->phase || a->noperands != b->noperands ||
      a->nattrs != b->nattrs || a->nresults != b->nresults)
    return false;
  for (uint32_t i = 0; i < a->noperands; i++)
    if (a->operands[i] != b->operands[i]) return false;
  for (uint32_t i = 0; i < a->nattrs; i++)
    if (!attr_equal(&a->attrs[i], &b->attrs[i])) return false;
  for (uint32_t i = 0; i < a->nresults; i++)
    if (!type_equal(value_type(g, node_result(a, i)), value_type(g, node_result(b, i))))
      return false;
  return true;
}

static bool may_merge(const Node *n) {
  if (n->nresults == 0 || op_info(n->op)->cls == CLASS_RANDOM) return false;
  return n->op != OP_RAND && n->op != OP_RANDN && n->op != OP_INPUT;
}

/* What a value that goes hands to the one that stays for it. */
static void hand_over(Graph *g, ValueId from, ValueId to) {
  const Value *was = graph_value(g, from);
  Value *v = graph_value(g, to);
  if (!v->name) {
    v->name = was->name;
    v->name_scope = was->name_scope;
  }
  v->poisoned |= was->poisoned;
}

void graph_simplify(Arena *scratch, Graph *g, ValueId *keep, uint32_t nkeep) {
  const bool *live = find_live(scratch, g, keep, nkeep);
  ValueId *moved = ARENA_ARRAY(scratch, ValueId, g->values.len), values = 1;
  NodeId nodes = 1;
  uint32_t nslots = 16;
  while (nslots < g->nodes.len * 2) nslots *= 2;
  NodeId *slots = ARENA_ARRAY(scratch, NodeId, nslots);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    if (!live[id]) continue;
    Node n = *graph_node(g, id);
    for (uint32_t i = 0; i < n.noperands; i++) n.operands[i] = moved[n.operands[i]];
    uint32_t slot = (uint32_t)hash_node(&n) & (nslots - 1);
    bool merges = may_merge(&n);
    while (merges && slots[slot] && !nodes_equal(g, graph_node(g, slots[slot]), &n))
      slot = (slot + 1) & (nslots - 1);
    ValueId first = n.first_result;
    if (merges && slots[slot]) {
      for (uint32_t r = 0; r < n.nresults; r++) {
        moved[first + r] = node_result(graph_node(g, slots[slot]), r);
        hand_over(g, first + r, moved[first + r]);
      }
      continue;
    }
    if (merges) slots[slot] = nodes;
    n.first_result = values;
    for (uint32_t r = 0; r < n.nresults; r++) {
      moved[first + r] = values;
      if (values != first + r) g->values.data[values] = g->values.data[first + r];
      g->values.data[values++].node = nodes;
    }
    g->nodes.data[nodes++] = n;
  }
  g->nodes.len = nodes;
  g->values.len = values;
  g->inferred = (IdMap){0}; /* it speaks of nodes by number */
  for (uint32_t i = 0; i < nkeep; i++) keep[i] = moved[keep[i]];
}
