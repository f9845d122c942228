/* Which kernel a node belongs to.
 *
 * A group has one mesh: its kernel runs on the ranks of that mesh and on no others.
 *
 * A group has a domain: the dims its kernel iterates over. Every node of it iterates over the whole
 * domain, over all but the inner dims (a value per row), or is a reduction between these. Nodes are
 * taken in order; each joins the group that made or read the largest of its operands, when dims and
 * reductions (fit.c) and what waits for what (waits.c) allow, and pulls in the groups of its other
 * operands (merge.c). Greedy: what is saved is the traffic of the shared operand, and a join never
 * adds traffic.
 */
#include "fuse/internal.h"

enum { READER_WINDOW = 400 };

static void add_node(Fuser *f, NodeId id, uint32_t group, const Join *j) {
  KGroup *k = &f->groups.data[group];
  const Node *n = graph_node(f->g, id);
  VEC_PUSH(f->arena, &k->nodes, id);
  k->inner = j->inner;
  k->rows = j->rows;
  f->group[id] = group;
  f->map[id] = j->map;
  f->level[id] = (uint8_t)j->level;
  for (uint32_t i = 0; i < n->noperands; i++) {
    ReadMap read;
    Root root;
    read.value = f->root[n->operands[i]].value;
    NodeId def = graph_value(f->g, read.value)->node;
    if (fuse_find(f, f->group[def]) == group || f->kind[def] == NODE_FREE) continue;
    if (fuse_find_read(k, read.value)) continue;
    if (!fuse_operand_map(f, id, i, &j->map, &root, &read.map)) continue;
    VEC_PUSH(f->arena, &k->reads, read);
    f->reader[read.value] = group;
  }
}

static uint32_t new_group(Fuser *f, NodeId id, Join *j) {
  ValueId it = fuse_iterated(f, id);
  const TensorType *t = value_type(f->g, it);
  const Node *n = graph_node(f->g, id);
  KGroup k = {.mesh = t->mesh, .vertex = id, .part = fuse_part(n), .again = fuse_again(f, n)};
  int64_t most[DTM_MAX_DIMS];
  type_local_max(t, most);
  for (uint32_t d = 0; d < t->rank; d++) {
    SymId extent = fuse_extent(f, it, d);
    j->map.at[d] = DIM_UNIT;
    if (extent == SYM_ONE) continue;
    k.extent[k.ndims] = extent;
    k.max_extent[k.ndims] = most[d];
    j->map.at[d] = (int8_t)k.ndims++;
  }
  j->inner = j->rows = 0;
  fuse_fit_level(f, id, &k, j);
  VEC_PUSH(f->arena, &f->groups, k);
  return f->groups.len - 1;
}

/* The best group for a node, by the bytes of the operand it shares; 0 = none. */
static uint32_t choose(Fuser *f, NodeId id, Join *best) {
  const Node *n = graph_node(f->g, id);
  uint32_t chosen = 0;
  int64_t most = -1;
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId r = f->root[n->operands[i]].value;
    NodeId def = graph_value(f->g, r)->node;
    if (f->kind[def] == NODE_FREE) continue;
    uint32_t candidates[2] = {fuse_find(f, f->group[def]), fuse_find(f, f->reader[r])};
    for (int c = 0; c < 2; c++) {
      uint32_t group = candidates[c];
      int64_t bytes = 2 * fuse_bytes(f, r) + (c == 0);
      if (!group || group == chosen || bytes <= most) continue;
      const KGroup *k = &f->groups.data[group];
      if (c == 1 && (id - k->nodes.data[k->nodes.len - 1] > READER_WINDOW ||
                     fuse_bytes(f, r) < fuse_bytes(f, n->first_result)))
        continue;
      Join j;
      if (!fuse_fits(f, id, group, &j) || !fuse_waits_allows(f, id, group)) continue;
      chosen = group;
      most = bytes;
      *best = j;
    }
  }
  return chosen;
}

/* A kernel's node joins the best group, or begins one. */
static void group_node(Fuser *f, NodeId id) {
  Join j;
  uint32_t group = f->options->enabled ? choose(f, id, &j) : 0;
  if (group) {
    fuse_waits_join(f, id, group);
  } else {
    group = new_group(f, id, &j);
    fuse_waits_add(f, id);
  }
  if (f->round[id]) f->groups.data[group].round = f->round[id];
  add_node(f, id, group, &j);
  if (f->options->enabled) fuse_pull_in(f, id, group);
}

/* A step around a ring has keys of another mesh than queries; the first of each has not. */
static bool is_round(const Graph *g, const Node *n) {
  if (n->op != OP_ATTENTION && n->op != OP_ATTENTION_BACKWARD) return false;
  uint32_t k = n->op == OP_ATTENTION ? 1 : 2;
  return value_type(g, n->operands[k])->mesh != value_type(g, n->operands[0])->mesh;
}

static void find_rounds(Fuser *f) {
  uint32_t rounds = 0;
  for (NodeId id = 1; id < f->g->nodes.len; id++) {
    const Node *n = graph_node(f->g, id);
    if (is_round(f->g, n)) {
      f->round[id] = ++rounds;
      continue;
    }
    for (uint32_t i = 0; i < n->noperands && rounds; i++) {
      uint32_t round = f->round[graph_value(f->g, n->operands[i])->node];
      if (round > f->round[id]) f->round[id] = round;
    }
  }
}

void fuse_group(Fuser *f) {
  find_rounds(f);
  VEC_PUSH(f->arena, &f->groups, (KGroup){0});
  for (NodeId id = 1; id < f->g->nodes.len; id++) {
    switch ((NodeKind)f->kind[id]) {
    case NODE_KERNEL:
      group_node(f, id);
      break;
    case NODE_VIEW:
    case NODE_CONTRACT:
    case NODE_COLLECTIVE:
    case NODE_LIBRARY:
    case NODE_STRUCTURE:
      fuse_waits_add(f, id);
      break;
    case NODE_ABSORBED:
      fuse_waits_absorbed(f, id);
      break;
    case NODE_NONE:
    case NODE_FREE:
    case NODE_ALIAS:
    case NODE_TURN:
      break;
    }
  }
}
