/* Stage graph -> explicit: the all-to-alls of Ulysses; positions of sequences in balanced order,
 * and outputs in the natural one.
 *
 * Attention with q, k, v [*, H, L, E] cut along L by ulysses_cp computes each head over the whole
 * sequence: before it the mesh dim goes from L to H, innermost, and behind it back. What cuts L
 * beside it (ring_cp) stays. Heads are cut by the chunk rule, so a number of heads that the mesh
 * does not divide is exact. Query heads that share a key head need it on their rank: where the
 * chunks of key heads are not those of the query heads' groups, every rank of ulysses_cp gathers
 * the sequence of all its key heads instead.
 *
 * Source: Jacobs et al., "DeepSpeed Ulysses: system optimizations for enabling training of extreme
 * long sequence transformer models".
 */
#include "place/context.h"

#include <string.h>

#include "infer/infer.h"
#include "place/place.h"

typedef struct Opening {
  const Program *program;
  Graph *g;
  DiagSink sink; /* stays empty: every node is legal by construction */
  const Node *at;
  uint32_t axes; /* of ulysses_cp */
} Opening;

enum { MAX_OPERANDS = 5 };

static bool is_balanced(const TensorType *t) {
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->balanced[d]) return true;
  return false;
}

/* What attention does depends on positions that are not the places in its operands. */
static bool wants_positions(const Graph *g, const Node *n) {
  bool asks = node_int(n, ATTR_CAUSAL, 0) || node_float(n, ATTR_P, 0) > 0;
  return asks && n->noperands == 3 &&
         (is_balanced(value_type(g, n->operands[0])) || is_balanced(value_type(g, n->operands[1])));
}

bool context_opens(const Graph *g, NodeId id) {
  const Node *n = graph_node(g, id);
  if (n->op == OP_OUTPUT) return is_balanced(value_type(g, n->operands[0]));
  if (n->op != OP_ATTENTION) return false;
  const TensorType *k = value_type(g, n->operands[1]);
  return context_axes(k, k->rank - 2, CONTEXT_ULYSSES) || wants_positions(g, n) ||
         (context_axes(k, k->rank - 2, CONTEXT_RING) && !node_attr(n, ATTR_RING));
}

/* The mesh dim leaves the sequence; it goes to dim `to`, innermost, unless that is < 0. */
static TensorType moved(const Opening *o, TensorType t, int to) {
  for (uint32_t a = 0; a < t.mesh->naxes; a++) {
    if (!(o->axes >> a & 1)) continue;
    layout_set(&t.layout, t.mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
    if (to >= 0) layout_set(&t.layout, t.mesh, a, PLACE_SHARD, (uint32_t)to, REDUCE_NONE);
  }
  return t;
}

static ValueId redistribute(Opening *o, ValueId v, const TensorType *to) {
  if (type_equal(value_type(o->g, v), to)) return v;
  NodeId id = infer_add(o->g, &o->sink, OP_REDISTRIBUTE, &v, 1, &ATTR_T(TYPE, to), 1, o->at->span,
                        NULL, o->at->scope);
  return node_result(graph_node(o->g, id), 0);
}

/* Positions along the sequence of q or k, of type `t`: i64 [L] in its order and shards. */
static ValueId positions(Opening *o, const TensorType *t) {
  uint32_t dim = t->rank - 2;
  TensorType of = {.dtype = DT_I64, .rank = 1, .shape = {t->shape[dim]}, .mesh = t->mesh};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, dim, axes);
  layout_set_dim(&of.layout, of.mesh, 0, axes, n);
  of.balanced[0] = t->balanced[dim];
  const Attr attrs[] = {ATTR_T(TYPE, &of), ATTR_I(DIM, 0)};
  NodeId id =
      infer_add(o->g, &o->sink, OP_IOTA, NULL, 0, attrs, 2, o->at->span, NULL, o->at->scope);
  return node_result(graph_node(o->g, id), 0);
}

/* Whether attention has a row for k and v with their heads cut as well. */
static bool groups_together(Arena *scratch, const Node *n, const TensorType *types) {
  Operand operands[MAX_OPERANDS] = {{.is_const = false}};
  InferResult result;
  for (uint32_t i = 0; i < n->noperands; i++) operands[i].type = types[i];
  return infer_allows(scratch, OP_ATTENTION, operands, n->noperands, n->attrs, n->nattrs, &result);
}

/* What a reader of this stage wants to know of a ring: "ring_cp: k and v sent on 3 times, 1.5 MiB
 * received". NULL without one. */
static const char *ring_text(const Opening *o, const TensorType *k, const TensorType *v) {
  uint32_t axes = context_axes(k, k->rank - 2, CONTEXT_RING), a = 0;
  if (!axes) return NULL;
  while (!(axes >> a & 1)) a++;
  int64_t times = k->mesh->size[a] - 1, bytes = type_local_bytes(k) + type_local_bytes(v);
  const char *text = arena_printf(o->g->arena, "%s: k and v sent on %lld time%s, %s received",
                                  k->mesh->axis[a], (long long)times, times == 1 ? "" : "s",
                                  bytes_print(o->g->arena, times * bytes));
  return intern(o->program->names, text);
}

/* An output is the whole value in its natural order. */
static void open_output(Opening *o, GraphMap *map) {
  const Node *n = o->at;
  ValueId v = graph_map_get(map, n->operands[0]);
  TensorType t = *value_type(o->g, v);
  t.layout = (Layout){0};
  v = redistribute(o, v, &t);
  for (uint32_t d = 0; d < t.rank; d++) {
    if (!t.balanced[d]) continue;
    const Attr attrs[] = {ATTR_I(DIM, d), ATTR_I(K, t.balanced[d]), ATTR_I(REVERSE, 1)};
    NodeId id = infer_add(o->g, &o->sink, OP_BALANCE, &v, 1, attrs, 3, n->span, NULL, n->scope);
    v = node_result(graph_node(o->g, id), 0);
  }
  graph_add(o->g, OP_OUTPUT, &v, 1, n->attrs, n->nattrs, NULL, 0, n->span, n->scope);
}

static void open_attention(Opening *o, Arena *scratch, GraphMap *map) {
  const Node *n = o->at;
  TensorType types[MAX_OPERANDS];
  ValueId operands[MAX_OPERANDS];
  uint32_t heads = value_type(map->from, n->operands[0])->rank - 3, count = n->noperands;
  o->axes = context_axes(value_type(map->from, n->operands[1]), heads + 1, CONTEXT_ULYSSES);
  for (uint32_t i = 0; i < n->noperands; i++)
    types[i] = moved(o, *value_type(map->from, n->operands[i]), i < 3 ? (int)heads : -1);
  if (!groups_together(scratch, n, types))
    for (uint32_t i = 1; i < 3; i++) types[i] = moved(o, types[i], -1);
  for (uint32_t i = 0; i < n->noperands; i++)
    operands[i] = redistribute(o, graph_map_get(map, n->operands[i]), &types[i]);
  if (wants_positions(map->from, n)) {
    operands[count++] = positions(o, &types[0]);
    operands[count++] = positions(o, &types[1]);
  }
  Attr attrs[ATTR_COUNT];
  uint32_t nattrs = n->nattrs;
  const char *ring = ring_text(o, &types[1], &types[2]);
  memcpy(attrs, n->attrs, nattrs * sizeof *attrs);
  if (ring) attrs[nattrs++] = ATTR_S(RING, ring);
  NodeId inner = infer_add(o->g, &o->sink, OP_ATTENTION, operands, count, attrs, nattrs, n->span,
                           NULL, n->scope);
  for (uint32_t i = 0; i < n->nresults; i++) {
    ValueId v = node_result(graph_node(o->g, inner), i), old = node_result(n, i);
    const char *name = graph_value(map->from, old)->name;
    v = redistribute(o, v, value_type(map->from, old));
    if (name) graph_value(o->g, v)->name = name;
    graph_map_set(map, old, v);
  }
}

void context_open(Arena *scratch, const Program *program, GraphMap *map, NodeId id) {
  const Node n = *graph_node(map->from, id);
  Opening o = {.program = program, .g = map->to, .at = &n};
  diag_init(&o.sink, scratch, program->sources);
  if (n.op == OP_OUTPUT)
    open_output(&o, map);
  else
    open_attention(&o, scratch, map);
}
