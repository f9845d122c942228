/* Calls that look elements up, made of operators: take. See elab.h. */
#include "sema/builtin.h"

/* take(x, index): elements of x as if it had one dim; a negative index counts from the end.
 *
 * One column of an embedding, so x may be cut across its first dim: what a rank lacks it adds as 0,
 * and the result is a pending sum. */
Val builtin_take(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x, ids;
  if (!bind_tensor(s, call, "x|input index", v, at, &x) ||
      !as_tensor(s, v[1], at[1], "the index", &ids))
    return POISON;
  const TensorType *t = value_type(s->at.graph, x), *of = value_type(s->at.graph, ids);
  if (!dtype_is_integer(of->dtype)) {
    sema_error(s, DIAG_OPERAND_DTYPE, at[1], "the index of take must be of integers, not %s",
               dtype_name(of->dtype));
    return POISON;
  }
  int64_t n = type_elements(t);
  if (of->dtype != DT_U8) {
    DType dtype = of->dtype;
    const Mesh *mesh = of->mesh;
    ValueId zero, count;
    if (!literal_const(s, val_int(0), dtype, mesh, at[1], &zero) ||
        !literal_const(s, val_int(n), dtype, mesh, at[1], &count))
      return POISON;
    Val below = emit2(s, OP_LT, ids, zero, call->span);
    Val from_end = emit2(s, OP_ADD, ids, count, call->span);
    if (below.kind == VAL_POISON || from_end.kind == VAL_POISON) return POISON;
    Val wrapped = emit(s, OP_WHERE, (ValueId[]){below.as.tensor, from_end.as.tensor, ids}, 3, NULL,
                       0, call->span, NULL);
    if (wrapped.kind == VAL_POISON) return wrapped;
    ids = wrapped.as.tensor;
  }
  Val column = emit_reshape(s, x, (int64_t[]){n, 1}, 2, call->span);
  if (column.kind == VAL_POISON) return column;
  Val found = emit(s, OP_EMBEDDING, (ValueId[]){ids, column.as.tensor}, 2, NULL, 0, call->span,
                   (Span[]){at[1], at[0]});
  if (found.kind == VAL_POISON) return found;
  return emit_dim_op(s, OP_SQUEEZE, found.as.tensor,
                     value_type(s->at.graph, found.as.tensor)->rank - 1, call->span);
}
