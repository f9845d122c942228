/* Stage grad -> grad: what the backward pass computes again. See again.h.
 *
 * In a recomputed scope every value is dropped after the forward pass, but those that the forward
 * pass uses outside of it (its results), and what was read or gathered once there or came from
 * another mesh. With micro-batches it also keeps what is the same for all of them. The clones of
 * one scope stand together, in their order, before the first backward node that needs one; only
 * what some backward node needs is cloned. Random operators keep their instance, so a mask is the
 * same again.
 *
 * A repeated gather is dropped wherever it is used, with its conversions and views, and so is, by
 * what needs it, gathered together with the others of its bucket.
 *
 * A clone has a phase of its own: equal nodes of different phases stay apart (graph_simplify), and
 * the fuser keeps the clones of a scope among themselves. */
#include "autodiff/again.h"

#include "ir/rewrite.h"
#include "place/store.h"

typedef enum Fate {
  FATE_KEPT = 0,
  FATE_SCOPE,  /* dropped with its scope */
  FATE_GATHER, /* a repeated gather */
  FATE_IMAGE   /* conversions and views of one */
} Fate;

typedef struct Again {
  const Program *program;
  GraphMap map;
  const bool *varies;    /* per value: it differs between micro-batches; NULL = there are none */
  const uint32_t *scope; /* recomputed scope of a scope */
  uint8_t *fate;         /* Fate, per node */
  bool *needed;          /* per node: to be cloned */
  NodeId *cloned;        /* per node: its clone */
  bool *emitted;         /* per scope */
  NodeId *first, *next;  /* needed nodes that are cloned together: per scope or bucket, per node */
  uint32_t nscopes;      /* in `first` the buckets stand behind the scopes */
  uint32_t *stack, depth;
} Again;

static uint32_t scope_of(const Again *a, const Node *n) {
  return a->scope[n->scope];
}

static const Node *maker(const Again *a, ValueId v, NodeId *id) {
  *id = graph_value(a->map.from, v)->node;
  return graph_node(a->map.from, *id);
}

static Fate fate_of(const Again *a, const Node *n) {
  NodeId of;
  if (n->phase != PHASE_FORWARD || n->nresults == 0 || n->op == OP_READ || n->op == OP_INPUT)
    return FATE_KEPT;
  if (a->varies && !a->varies[n->first_result]) return FATE_KEPT;
  if (n->noperands == 1 && value_type(a->map.from, n->operands[0])->mesh !=
                               value_type(a->map.from, n->first_result)->mesh)
    return FATE_KEPT;
  StoreLevel gathered = store_gathered(a->program, a->map.from, n);
  if (gathered) return gathered == STORE_PARAMETERS ? FATE_GATHER : FATE_KEPT;
  if (n->noperands == 1 && (n->op == OP_CAST || op_info(n->op)->cls == CLASS_MOVEMENT)) {
    maker(a, n->operands[0], &of);
    if (a->fate[of] >= FATE_GATHER) return FATE_IMAGE;
  }
  return scope_of(a, n) ? FATE_SCOPE : FATE_KEPT;
}

/* Keeps what leaves its scope. */
static void keep_results(Again *a, const Node *user) {
  NodeId of;
  for (uint32_t i = 0; i < user->noperands; i++) {
    const Node *n = maker(a, user->operands[i], &of);
    if (a->fate[of] == FATE_KEPT) continue;
    bool later = user->phase > PHASE_BACKWARD;
    bool inside =
        user->phase == PHASE_FORWARD && user->nresults && scope_of(a, user) == scope_of(a, n);
    bool backward = user->phase == PHASE_BACKWARD;
    if (later || (a->fate[of] == FATE_SCOPE && !inside && !backward)) a->fate[of] = FATE_KEPT;
  }
}

/* Marks what a backward node needs again, and what that needs. */
static void need(Again *a, const Node *user) {
  NodeId of;
  for (uint32_t i = 0; i < user->noperands; i++) {
    maker(a, user->operands[i], &of);
    if (a->fate[of] == FATE_KEPT || a->needed[of]) continue;
    a->needed[of] = true;
    a->stack[a->depth++] = of;
  }
}

static ValueId again_value(const Again *a, ValueId v) {
  NodeId of;
  maker(a, v, &of);
  if (!a->cloned[of]) return graph_map_get(&a->map, v);
  return node_result(graph_node(a->map.to, a->cloned[of]), graph_value(a->map.from, v)->index);
}

static void copy_node(Again *a, NodeId id, Phase phase) {
  const Graph *from = a->map.from;
  const Node *n = graph_node(from, id);
  ValueId *operands = ARENA_ARRAY(a->map.to->arena, ValueId, n->noperands);
  TensorType *types = ARENA_ARRAY(a->map.to->arena, TensorType, n->nresults);
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = again_value(a, n->operands[i]);
  for (uint32_t i = 0; i < n->nresults; i++) types[i] = *value_type(from, node_result(n, i));
  NodeId copy = graph_add(a->map.to, n->op, operands, n->noperands, n->attrs, n->nattrs, types,
                          n->nresults, n->span, n->scope);
  graph_node(a->map.to, copy)->phase = (uint8_t)phase;
  for (uint32_t i = 0; i < n->nresults; i++) {
    ValueId old = node_result(n, i), v = node_result(graph_node(a->map.to, copy), i);
    graph_value(a->map.to, v)->name = graph_value(from, old)->name;
    if (phase != PHASE_RECOMPUTE) graph_map_set(&a->map, old, v);
  }
  if (phase == PHASE_RECOMPUTE) a->cloned[id] = copy;
}

/* Where `first` has what is cloned together with a node. */
static uint32_t together(const Again *a, NodeId id) {
  const Node *n = graph_node(a->map.from, id);
  if (a->fate[id] == FATE_SCOPE) return scope_of(a, n);
  return a->nscopes + (uint32_t)node_int(n, ATTR_BUCKET, 0);
}

static void list_needed(Again *a, Arena *scratch) {
  const Graph *g = a->map.from;
  uint32_t n = 0;
  a->nscopes = g->scopes.len;
  for (NodeId id = 1; id < g->nodes.len; id++)
    if (a->fate[id] == FATE_GATHER && together(a, id) >= n) n = together(a, id) + 1;
  if (n < a->nscopes) n = a->nscopes;
  a->first = ARENA_ARRAY(scratch, NodeId, n);
  for (NodeId id = g->nodes.len; id-- > 1;) {
    if (!a->needed[id] || (a->fate[id] != FATE_SCOPE && a->fate[id] != FATE_GATHER)) continue;
    NodeId *head = &a->first[together(a, id)];
    a->next[id] = *head;
    *head = id;
  }
}

static void clone(Again *a, NodeId id);

static void clone_operands(Again *a, const Node *n) {
  NodeId of;
  for (uint32_t i = 0; i < n->noperands; i++) {
    maker(a, n->operands[i], &of);
    if (a->needed[of] && a->fate[of] != FATE_KEPT) clone(a, of);
  }
}

/* The clone of a node, with those that are made together with it. */
static void clone(Again *a, NodeId id) {
  const Graph *g = a->map.from;
  const Node *n = graph_node(g, id);
  Fate fate = (Fate)a->fate[id];
  uint32_t scope = scope_of(a, n);
  if (a->cloned[id] || (fate == FATE_SCOPE && a->emitted[scope])) return;
  if (fate == FATE_IMAGE) {
    clone_operands(a, n);
    copy_node(a, id, PHASE_RECOMPUTE);
    return;
  }
  if (fate == FATE_SCOPE) a->emitted[scope] = true;
  for (NodeId k = a->first[together(a, id)]; k; k = a->next[k]) {
    if (a->cloned[k]) continue;
    clone_operands(a, graph_node(g, k));
    copy_node(a, k, PHASE_RECOMPUTE);
  }
}

static bool decide(Again *a, Arena *scratch) {
  const Graph *g = a->map.from;
  bool any = false;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    a->fate[id] = (uint8_t)fate_of(a, graph_node(g, id));
    any |= a->fate[id] != FATE_KEPT;
  }
  if (!any) return false;
  for (NodeId id = 1; id < g->nodes.len; id++) keep_results(a, graph_node(g, id));
  for (NodeId id = 1; id < g->nodes.len; id++) {
    if (graph_node(g, id)->phase != PHASE_BACKWARD) continue;
    need(a, graph_node(g, id));
    while (a->depth) need(a, graph_node(g, a->stack[--a->depth]));
  }
  list_needed(a, scratch);
  return true;
}

Graph *again_run(Arena *scratch, const Program *program, const Graph *g, bool micro, ValueId *keep,
                 uint32_t nkeep) {
  Again a = {.program = program,
             .map = graph_map_begin(scratch, program->arena, g),
             .varies = micro ? graph_varying(scratch, g) : NULL,
             .scope = graph_recomputed_scopes(scratch, g),
             .fate = ARENA_ARRAY(scratch, uint8_t, g->nodes.len),
             .needed = ARENA_ARRAY(scratch, bool, g->nodes.len),
             .cloned = ARENA_ARRAY(scratch, NodeId, g->nodes.len),
             .next = ARENA_ARRAY(scratch, NodeId, g->nodes.len),
             .emitted = ARENA_ARRAY(scratch, bool, g->scopes.len),
             .stack = ARENA_ARRAY(scratch, uint32_t, g->nodes.len)};
  if (!decide(&a, scratch)) return (Graph *)g;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->phase == PHASE_BACKWARD) clone_operands(&a, n);
    if (n->phase == PHASE_BACKWARD)
      copy_node(&a, id, PHASE_BACKWARD);
    else
      graph_map_copy(&a.map, id);
  }
  for (uint32_t i = 0; i < nkeep; i++) keep[i] = graph_map_get(&a.map, keep[i]);
  return a.map.to;
}
