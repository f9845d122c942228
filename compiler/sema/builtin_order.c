/* Calls about the order of a sequence: balance_causal, unbalance, positions. See elab.h. */
#include "sema/builtin.h"

/* The sequence of x: dim 1 of [B, S, ..], the only dim of [S]. */
static bool want_sequence(Sema *s, Val v, Span span, ValueId x, int64_t *dim) {
  uint32_t rank = value_type(s->at.graph, x)->rank;
  if (rank == 0) {
    sema_error(s, DIAG_INDEX, span, "a number has no sequence");
    return false;
  }
  return want_dim(s, v, span, rank, rank > 1 ? 1 : 0, dim);
}

/* The arguments (x, dim) of a call. */
static bool bind_sequence(Sema *s, const Call *call, ValueId *x, int64_t *dim) {
  Val v[2];
  Span at[2];
  return bind_tensor(s, call, "x|input dim?", v, at, x) && want_sequence(s, v[1], at[1], *x, dim);
}

/* balance_causal(x, axis, dim): head-tail order for the ranks of a mesh dim. x itself where the
 * mesh lacks it, or has one rank along it. */
Val builtin_balance_causal(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t dim;
  int axis;
  if (!bind_tensor(s, call, "x|input axis dim?", v, at, &x)) return POISON;
  const Mesh *mesh = value_type(s->at.graph, x)->mesh;
  if (!mesh) mesh = s->at.mesh;
  if (!want_sequence(s, v[2], at[2], x, &dim) || !want_axis(s, v[1], mesh, at[1], true, &axis))
    return POISON;
  if (axis < 0 || mesh->size[axis] == 1) return val_tensor(x);
  const Attr attrs[] = {ATTR_I(DIM, dim), ATTR_I(K, mesh->size[axis]), ATTR_I(REVERSE, 0)};
  return emit1(s, OP_BALANCE, x, attrs, 3, call->span);
}

/* unbalance(x, dim): as it was; x itself where its order is the natural one. */
Val builtin_unbalance(Sema *s, const Call *call) {
  ValueId x;
  int64_t dim;
  if (!bind_sequence(s, call, &x, &dim)) return POISON;
  int64_t ranks = value_type(s->at.graph, x)->balanced[dim];
  if (!ranks) return val_tensor(x);
  const Attr attrs[] = {ATTR_I(DIM, dim), ATTR_I(K, ranks), ATTR_I(REVERSE, 1)};
  return emit1(s, OP_BALANCE, x, attrs, 3, call->span);
}

/* balance_like(x, other, dim): x in the order that `other` has along the dim of that number. */
Val builtin_balance_like(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  int64_t dim;
  if (!bind_tensor(s, call, "x|input other dim?", v, at, &x) ||
      !want_sequence(s, v[2], at[2], x, &dim))
    return POISON;
  if (!val_is_tensor(v[1]) || tensor_type(s, v[1])->rank <= dim) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "balance_like takes a tensor that has dim %lld",
               (long long)dim);
    return POISON;
  }
  int64_t have = value_type(s->at.graph, x)->balanced[dim];
  int64_t want = tensor_type(s, v[1])->balanced[dim];
  const Attr back[] = {ATTR_I(DIM, dim), ATTR_I(K, have), ATTR_I(REVERSE, 1)};
  const Attr forth[] = {ATTR_I(DIM, dim), ATTR_I(K, want), ATTR_I(REVERSE, 0)};
  Val y = val_tensor(x);
  if (have && have != want) y = emit1(s, OP_BALANCE, x, back, 3, call->span);
  if (!want || have == want || !val_is_tensor(y)) return y;
  return emit1(s, OP_BALANCE, y.as.tensor, forth, 3, call->span);
}

/* positions(x, dim): where in the whole sequence the elements along dim stand, i64[L], in the order
 * and the shards of x. */
Val builtin_positions(Sema *s, const Call *call) {
  ValueId x;
  int64_t dim;
  if (!bind_sequence(s, call, &x, &dim)) return POISON;
  const TensorType *t = value_type(s->at.graph, x);
  TensorType of = {.dtype = DT_I64, .rank = 1, .shape = {t->shape[dim]}, .mesh = t->mesh};
  if (!of.mesh) of.mesh = s->at.mesh;
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, (uint32_t)dim, axes);
  layout_set_dim(&of.layout, of.mesh, 0, axes, n);
  of.balanced[0] = t->balanced[dim];
  const Attr attrs[] = {ATTR_T(TYPE, &of), ATTR_I(DIM, 0)};
  return emit(s, OP_IOTA, NULL, 0, attrs, 2, call->span, NULL);
}
