/* Ring attention: attention and its derivative where ring_cp cuts queries and keys, as one step per
 * rank of the ring. In: nodes of the grad graph. Out: attention over one block of keys a step,
 * sends between them, merges.
 *
 * In step s a rank with queries of block i has keys and values of block i - s (mod n), which it got
 * from its neighbour: the same value on the mesh turned by s, so that every block keeps the
 * extents, the offset and hence the positions that the chunk rule gives it, uneven or empty. The
 * send for the next step stands before the step's attention, which does not wait for it.
 *
 * Forward, the results of two steps with logs of sums a and b are merged as
 *
 *     l = log(exp a + exp b),    out = exp(a - l) out_a + exp(b - l) out_b
 *
 * where a query that saw nothing has l = -inf and out = 0. Backward, a step takes the log of the
 * whole sum, so that its probabilities are final; the cotangents of k and v travel on with their
 * blocks, each rank adding its part, and after n sends are home. All sums are f32 or wider.
 *
 * Source: Liu, Zaharia, Abbeel, "Ring attention with blockwise transformers for near-infinite
 * context".
 */
#include <string.h>

#include "spmd/lower.h"

enum { MAX_PARTS = 8 };

typedef struct Ring {
  Lowering *l;
  const Node *n;
  int axis;
  int64_t ways;
  ValueId operand[MAX_PARTS]; /* of the step at hand */
  uint32_t k;                 /* index of k; v follows */
  uint32_t positions;         /* index of those of keys; 0 = not given */
} Ring;

/* The mesh on which blocks have gone `step` ranks on. One name is one mesh. */
static const Mesh *turned(const Ring *r, const Mesh *mesh, int64_t step) {
  if (step == 0) return mesh;
  const char *name = mesh_turn_name(r->l->arena, mesh, r->axis, step);
  MeshList *known = r->l->meshes;
  for (uint32_t i = 0; i < known->len; i++)
    if (strcmp(known->data[i]->name, name) == 0) return known->data[i];
  const Mesh *m = mesh_turn(r->l->arena, mesh, r->axis, step);
  VEC_PUSH(r->l->arena, known, m);
  return m;
}

/* `v` with its blocks at another step of the ring; `home` is the mesh of step 0. */
static ValueId send(const Ring *r, ValueId v, const Mesh *home, int64_t step) {
  TensorType t = *spmd_type(r->l, v);
  t.mesh = turned(r, home, step);
  int64_t axis = r->axis;
  const Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_INTS(AXES, &axis, 1)};
  return spmd_emit(r->l, OP_SEND_MESH, &v, 1, attrs, 2, &t);
}

/* One step over the operands at hand: its first result. `mesh`: of the keys. */
static ValueId attend(const Ring *r, const Mesh *mesh) {
  Lowering *l = r->l;
  TensorType types[INFER_MAX_RESULTS];
  for (uint32_t i = 0; i < r->n->nresults; i++) {
    types[i] = *value_type(l->in, node_result(r->n, i));
    if (r->n->op == OP_ATTENTION_BACKWARD && i > 0) types[i].mesh = mesh;
  }
  NodeId id = graph_add(l->out, r->n->op, r->operand, r->n->noperands, r->n->attrs, r->n->nattrs,
                        types, r->n->nresults, r->n->span, r->n->scope);
  graph_node(l->out, id)->phase = r->n->phase;
  return node_result(graph_node(l->out, id), 0);
}

/* [*] -> [*, 1] */
static ValueId column(Lowering *l, ValueId v) {
  TensorType t = *spmd_type(l, v);
  int64_t dim = t.rank;
  t.shape[t.rank++] = 1;
  return spmd_emit(l, OP_UNSQUEEZE, &v, 1, (Attr[]){ATTR_I(DIM, dim)}, 1, &t);
}

/* Where two nodes are made, one is named first: C leaves the order of arguments open. */

/* `v`, and 0 in place of what is not finite. */
static ValueId finite(Lowering *l, ValueId v) {
  const TensorType t = *spmd_type(l, v);
  ValueId is = spmd_unary(l, OP_ISFINITE, &t, v), zero = spmd_const(l, t.dtype, t.mesh, 0);
  return spmd_where(l, &t, is, v, zero);
}

/* exp(a - b) */
static ValueId exp_of(Lowering *l, ValueId a, ValueId b) {
  const TensorType t = *spmd_type(l, a);
  return spmd_unary(l, OP_EXP, &t, spmd_binary(l, OP_SUB, &t, a, b));
}

/* exp(a - l), and 0 where l is -inf. */
static ValueId share(Lowering *l, ValueId a, ValueId log_sum) {
  return column(l, exp_of(l, a, finite(l, log_sum)));
}

static ValueId log_of_both(Lowering *l, ValueId a, ValueId b) {
  const TensorType t = *spmd_type(l, a);
  ValueId shift = finite(l, spmd_binary(l, OP_MAXIMUM, &t, a, b));
  ValueId x = exp_of(l, a, shift), y = exp_of(l, b, shift);
  ValueId sum = spmd_unary(l, OP_LOG, &t, spmd_binary(l, OP_ADD, &t, x, y));
  return spmd_binary(l, OP_ADD, &t, sum, shift);
}

/* The operands of the next step: k, v and positions of keys sent on. */
static void pass_on(Ring *r, const Mesh *home, int64_t step, ValueId next[MAX_PARTS]) {
  memcpy(next, r->operand, sizeof r->operand);
  for (uint32_t i = r->k; i < r->k + 2; i++) next[i] = send(r, r->operand[i], home, step);
  if (r->positions) next[r->positions] = send(r, r->operand[r->positions], home, step);
}

static void forward(Ring *r) {
  Lowering *l = r->l;
  const Mesh *home = spmd_type(l, r->operand[r->k])->mesh;
  ValueId out = 0, log_sum = 0;
  for (int64_t s = 0; s < r->ways; s++) {
    ValueId next[MAX_PARTS];
    if (s + 1 < r->ways) pass_on(r, home, s + 1, next);
    ValueId o = attend(r, turned(r, home, s)), lse = o + 1;
    if (s + 1 < r->ways) memcpy(r->operand, next, sizeof next);
    o = spmd_cast(l, o, spmd_work_dtype(spmd_type(l, o)->dtype));
    if (s == 0) {
      out = o;
      log_sum = lse;
      continue;
    }
    const TensorType t = *spmd_type(l, out);
    ValueId both = log_of_both(l, log_sum, lse);
    ValueId a = spmd_binary(l, OP_MUL, &t, out, share(l, log_sum, both));
    ValueId b = spmd_binary(l, OP_MUL, &t, o, share(l, lse, both));
    out = spmd_binary(l, OP_ADD, &t, a, b);
    log_sum = both;
  }
  l->map[r->n->first_result] = spmd_cast(l, out, value_type(l->in, r->n->first_result)->dtype);
  l->map[node_result(r->n, 1)] = log_sum;
}

static ValueId plus(Lowering *l, ValueId sum, ValueId v) {
  v = spmd_cast(l, v, spmd_work_dtype(spmd_type(l, v)->dtype));
  const TensorType t = *spmd_type(l, v);
  return sum ? spmd_binary(l, OP_ADD, &t, sum, v) : v;
}

static void backward(Ring *r) {
  Lowering *l = r->l;
  const Mesh *home = spmd_type(l, r->operand[r->k])->mesh;
  ValueId sum[3] = {0};
  for (int64_t s = 0; s < r->ways; s++) {
    ValueId next[MAX_PARTS];
    if (s + 1 < r->ways) pass_on(r, home, s + 1, next);
    ValueId d = attend(r, turned(r, home, s));
    if (s + 1 < r->ways) memcpy(r->operand, next, sizeof next);
    for (uint32_t i = 0; i < 3; i++) sum[i] = plus(l, sum[i], d + i);
    for (uint32_t i = 1; i < 3; i++) sum[i] = send(r, sum[i], home, (s + 1) % r->ways);
  }
  for (uint32_t i = 0; i < 3; i++)
    l->map[node_result(r->n, i)] =
        spmd_cast(l, sum[i], value_type(l->in, node_result(r->n, i))->dtype);
}

bool spmd_ring(Lowering *l) {
  const Node *n = l->serving;
  if (n->op != OP_ATTENTION && n->op != OP_ATTENTION_BACKWARD) return false;
  Ring r = {.l = l, .n = n};
  r.k = n->op == OP_ATTENTION ? 1 : 2;
  if (n->noperands == (n->op == OP_ATTENTION ? 5 : 8)) r.positions = n->noperands - 1;
  const TensorType *k = value_type(l->in, n->operands[r.k]);
  uint32_t axes = context_axes(k, k->rank - 2, CONTEXT_RING);
  if (!axes) return false;
  while (!(axes >> r.axis & 1)) r.axis++;
  r.ways = k->mesh->size[r.axis];
  for (uint32_t i = 0; i < n->noperands; i++) r.operand[i] = l->map[n->operands[i]];
  if (n->op == OP_ATTENTION)
    forward(&r);
  else
    backward(&r);
  return true;
}
