/* Calls that look elements up, made of operators: take, diagonal, trace, bucketize. See elab.h. */
#include <inttypes.h>

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

/* Elements of x where dim a is dim b less the offset, as a last dim in place of both. All of it is
 * movement: of the square that holds them, one below the other, every (side + 1)-th. */
static Val diagonal(Sema *s, ValueId x, int64_t offset, int64_t a, int64_t b, Span span) {
  const TensorType t = *value_type(s->at.graph, x);
  int64_t row = offset < 0 ? -offset : 0, column = offset > 0 ? offset : 0;
  int64_t rows = t.shape[a] - row, columns = t.shape[b] - column;
  int64_t side = rows < columns ? rows : columns;
  int64_t dims[DTM_MAX_DIMS], shape[DTM_MAX_DIMS];
  uint32_t n = 0;
  if (side <= 0) side = row = column = 0;
  Val v = emit_slice(s, x, a, row, row + side, span);
  if (v.kind == VAL_POISON) return v;
  v = emit_slice(s, v.as.tensor, b, column, column + side, span);
  if (v.kind == VAL_POISON) return v;
  for (uint32_t d = 0; d < t.rank; d++) {
    if (d == a || d == b) continue;
    shape[n] = t.shape[d];
    dims[n++] = d;
  }
  dims[n] = a;
  dims[n + 1] = b;
  shape[n] = side * side;
  v = emit1(s, OP_PERMUTE, v.as.tensor, (Attr[]){ATTR_INTS(DIMS, dims, t.rank)}, 1, span);
  if (v.kind == VAL_POISON) return v;
  v = emit_reshape(s, v.as.tensor, shape, n + 1, span);
  if (v.kind == VAL_POISON) return v;
  Attr every[] = {ATTR_I(DIM, n), ATTR_I(START, 0), ATTR_I(STOP, side * side),
                  ATTR_I(STEP, side + 1)};
  return emit1(s, OP_SLICE, v.as.tensor, every, 4, span);
}

Val builtin_diagonal(Sema *s, const Call *call) {
  Val v[4];
  Span at[4];
  ValueId x;
  int64_t offset = 0, a, b;
  if (!bind_tensor(s, call, "x|input offset? dim1? dim2?", v, at, &x) ||
      (v[1].kind != VAL_UNSET && !want_int(s, v[1], at[1], "offset", &offset)) ||
      !want_dim(s, v[2], at[2], value_type(s->at.graph, x)->rank, 0, &a) ||
      !want_dim(s, v[3], at[3], value_type(s->at.graph, x)->rank, 1, &b))
    return POISON;
  if (a != b) return diagonal(s, x, offset, a, b, call->span);
  sema_error(s, DIAG_INDEX, at[3], "a diagonal lies between two dims, not in dim %" PRId64 " alone",
             a);
  return POISON;
}

Val builtin_trace(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  ValueId x;
  if (!bind_tensor(s, call, "x|input", v, at, &x)) return POISON;
  uint32_t rank = value_type(s->at.graph, x)->rank;
  if (rank != 2) {
    sema_error(s, DIAG_ARGUMENTS, at[0], "trace takes a matrix, not a tensor of %u dims", rank);
    return POISON;
  }
  Val r = diagonal(s, x, 0, 0, 1, call->span);
  return r.kind == VAL_POISON ? r : emit1(s, OP_SUM, r.as.tensor, NULL, 0, call->span);
}

/* bucketize(x, boundaries, right = false): how many of the boundaries, which ascend, are below each
 * element, or with `right` not above it. Counted, so boundaries may be cut; NaN is above them all.
 */
Val builtin_bucketize(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x, ids[2];
  bool right = false;
  if (!bind_tensor(s, call, "x|input boundaries right?", v, at, &x) ||
      (v[2].kind != VAL_UNSET && !want_bool(s, v[2], at[2], "right", &right)))
    return POISON;
  Op stops = right ? OP_GT : OP_GE; /* the boundary is beyond x */
  if (!as_tensor(s, v[1], at[1], "the boundaries", &ids[0]) ||
      !unify_operands(s, stops, (Val[]){v[1], v[0]}, (Span[]){at[1], at[0]}, 2, ids, call->span))
    return POISON;
  if (value_type(s->at.graph, ids[0])->rank != 1) {
    sema_error(s, DIAG_ARGUMENTS, at[1], "the boundaries must be a tensor of one dim");
    return POISON;
  }
  int64_t last = value_type(s->at.graph, x)->rank;
  Val each = emit_dim_op(s, OP_UNSQUEEZE, x, last, call->span);
  if (each.kind == VAL_POISON) return each;
  Val r = emit(s, stops, (ValueId[]){ids[0], each.as.tensor}, 2, NULL, 0, call->span,
               (Span[]){at[1], at[0]});
  if (r.kind != VAL_POISON) r = emit1(s, OP_LOGICAL_NOT, r.as.tensor, NULL, 0, call->span);
  if (r.kind != VAL_POISON) r = emit_cast(s, r.as.tensor, DT_I64, call->span);
  if (r.kind == VAL_POISON) return r;
  return emit1(s, OP_SUM, r.as.tensor, (Attr[]){ATTR_INTS(DIMS, &last, 1)}, 1, call->span);
}
