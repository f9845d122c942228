/* Node builders of spmd/: see lower.h. */
#include "spmd/lower.h"

ValueId spmd_emit(Lowering *l, Op op, const ValueId *operands, uint32_t noperands,
                  const Attr *attrs, uint32_t nattrs, const TensorType *type) {
  NodeId id = graph_add(l->out, op, operands, noperands, attrs, nattrs, type, 1, l->serving->span,
                        l->serving->scope);
  graph_node(l->out, id)->phase = l->serving->phase;
  return node_result(graph_node(l->out, id), 0);
}

ValueId spmd_const(Lowering *l, DType dtype, const Mesh *mesh, double value) {
  const TensorType t = {.dtype = dtype, .mesh = mesh};
  const Attr attrs[] = {ATTR_I(DTYPE, dtype), ATTR_F(VALUE, value)};
  return spmd_emit(l, OP_CONST, NULL, 0, attrs, 2, &t);
}

static DType pointwise_dtype(Op op, DType dtype) {
  switch (op_info(op)->types) {
  case TR_COMPARE:
  case TR_TEST:
  case TR_BOOL:
    return DT_BOOL;
  case TR_NONE:
  case TR_NUMBER:
  case TR_FLOAT:
  case TR_INTEGER:
  case TR_WHERE:
  case TR_CAST:
    break;
  }
  return dtype;
}

ValueId spmd_unary(Lowering *l, Op op, const TensorType *t, ValueId a) {
  TensorType r = spmd_with_dtype(*t, pointwise_dtype(op, t->dtype));
  return spmd_emit(l, op, &a, 1, NULL, 0, &r);
}

ValueId spmd_binary(Lowering *l, Op op, const TensorType *t, ValueId a, ValueId b) {
  TensorType r = spmd_with_dtype(*t, pointwise_dtype(op, t->dtype));
  return spmd_emit(l, op, (const ValueId[]){a, b}, 2, NULL, 0, &r);
}

ValueId spmd_where(Lowering *l, const TensorType *t, ValueId c, ValueId a, ValueId b) {
  return spmd_emit(l, OP_WHERE, (const ValueId[]){c, a, b}, 3, NULL, 0, t);
}

ValueId spmd_cast(Lowering *l, ValueId v, DType dtype) {
  TensorType t = *spmd_type(l, v);
  if (t.dtype == dtype) return v;
  t.dtype = dtype;
  return spmd_emit(l, OP_CAST, &v, 1, (const Attr[]){ATTR_I(DTYPE, dtype)}, 1, &t);
}

ValueId spmd_reduce(Lowering *l, Op op, ValueId x, const int64_t *dims, uint32_t ndims, bool keep,
                    const TensorType *type) {
  const Attr attrs[] = {ATTR_INTS(DIMS, dims, ndims), ATTR_I(KEEPDIM, keep)};
  return spmd_emit(l, op, &x, 1, attrs, 2, type);
}

ValueId spmd_reduce_keep(Lowering *l, Op op, ValueId x, const int64_t *dims, uint32_t ndims) {
  TensorType t = *spmd_type(l, x);
  for (uint32_t i = 0; i < ndims; i++) t.shape[dims[i]] = 1;
  return spmd_reduce(l, op, x, dims, ndims, true, &t);
}

DType spmd_work_dtype(DType dtype) {
  return dtype_is_float(dtype) && dtype_bytes(dtype) < 4 ? DT_F32 : dtype;
}
