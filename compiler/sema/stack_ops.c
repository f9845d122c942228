/* Operators on stacks, as nodes of the outer graph: see batch.h. */
#include <string.h>

#include "sema/batch.h"

/* Its first result, behind which any others stand. */
static ValueId made(Val v) {
  if (v.kind == VAL_LIST) v = v.as.list->data[0];
  return v.kind == VAL_TENSOR ? v.as.tensor : 0;
}

ValueId stack_op(Sema *s, Op op, const ValueId *x, uint32_t n, const Attr *attrs, uint32_t nattrs,
                 Span span) {
  for (uint32_t i = 0; i < n; i++)
    if (!x[i]) return 0;
  return made(emit(s, op, x, n, attrs, nattrs, span, NULL));
}

TensorType stack_type(const Sema *s, ValueId x) {
  return *value_type(s->at.graph, x);
}

ValueId stack_reshape(Sema *s, ValueId x, const int64_t *shape, uint32_t rank, Span span) {
  if (!x) return 0;
  if (rank > DTM_MAX_DIMS) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, span, "a block would need more than %d dims",
                         DTM_MAX_DIMS);
    diag_reason(s->sink, d,
                "the blocks of all ranks are kept as one value, with a dim more for each mesh dim");
    return 0;
  }
  TensorType t = stack_type(s, x);
  if (t.rank == rank && memcmp(t.shape, shape, rank * sizeof *shape) == 0) return x;
  return stack_op(s, OP_RESHAPE, &x, 1, (Attr[]){ATTR_INTS(SHAPE, shape, rank)}, 1, span);
}

ValueId stack_permute(Sema *s, ValueId x, const int64_t *dims, uint32_t rank, Span span) {
  bool same = true;
  for (uint32_t d = 0; d < rank; d++) same &= dims[d] == d;
  if (same) return x;
  return stack_op(s, OP_PERMUTE, &x, 1, (Attr[]){ATTR_INTS(DIMS, dims, rank)}, 1, span);
}

ValueId stack_reduce(Sema *s, Op op, ValueId x, const int64_t *dims, uint32_t n, bool keep,
                     Span span) {
  Attr attrs[] = {ATTR_INTS(DIMS, dims, n), ATTR_I(KEEPDIM, keep)};
  return stack_op(s, op, &x, 1, attrs, 2, span);
}

ValueId stack_spread(Sema *s, const Region *r, ValueId x, uint32_t k, Span span) {
  if (!x) return 0;
  TensorType ones = stack_type(s, x);
  if (ones.shape[k] > 1) return x;
  memset(&ones.layout, 0, sizeof ones.layout);
  for (uint32_t d = 0; d < ones.rank; d++) ones.shape[d] = 1;
  ones.shape[k] = r->mesh->size[r->axis[k]];
  layout_set(&ones.layout, ones.mesh, r->axis[k], PLACE_SHARD, k, REDUCE_NONE);
  Attr attrs[] = {ATTR_T(TYPE, &ones), ATTR_F(VALUE, 1)};
  ValueId one = stack_op(s, OP_FULL, NULL, 0, attrs, 2, span);
  return stack_op(s, ones.dtype == DT_BOOL ? OP_LOGICAL_AND : OP_MUL, (ValueId[]){x, one}, 2, NULL,
                  0, span);
}

void stack_spread_all(Sema *s, const Region *r, ValueId *x, uint32_t n, Span span) {
  for (uint32_t k = 0; k < r->nlead; k++) {
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any |= x[i] && stack_type(s, x[i]).shape[k] > 1;
    for (uint32_t i = 0; i < n && any; i++) x[i] = stack_spread(s, r, x[i], k, span);
  }
}

ValueId stack_of(Sema *s, const Region *r, ValueId x, Span span) {
  if (!x || stack_type(s, x).rank >= r->nlead) return x;
  TensorType ones = {.dtype = stack_type(s, x).dtype, .rank = r->nlead, .mesh = r->mesh};
  for (uint32_t k = 0; k < r->nlead; k++) ones.shape[k] = 1;
  double value;
  if (stack_type(s, x).mesh && !value_const(s->at.graph, x, &value))
    return stack_reshape(s, x, ones.shape, ones.rank, span);
  Attr attrs[] = {ATTR_T(TYPE, &ones), ATTR_F(VALUE, 1)};
  ValueId one = stack_op(s, OP_FULL, NULL, 0, attrs, 2, span);
  return stack_op(s, ones.dtype == DT_BOOL ? OP_LOGICAL_AND : OP_MUL, (ValueId[]){x, one}, 2, NULL,
                  0, span);
}

ValueId stack_align(Sema *s, const Region *r, ValueId x, uint32_t rank, Span span) {
  x = stack_of(s, r, x, span);
  if (!x) return 0;
  TensorType t = stack_type(s, x);
  int64_t shape[2 * DTM_MAX_DIMS];
  uint32_t n = 0, have = t.rank - r->nlead;
  for (uint32_t k = 0; k < r->nlead; k++) shape[n++] = t.shape[k];
  for (uint32_t d = have; d < rank; d++) shape[n++] = 1;
  for (uint32_t d = 0; d < have; d++) shape[n++] = t.shape[r->nlead + d];
  return stack_reshape(s, x, shape, n, span);
}

bool stack_varies(const Sema *s, const Region *r, ValueId x) {
  TensorType t = stack_type(s, x);
  for (uint32_t k = 0; k < r->nlead && t.rank >= r->nlead; k++)
    if (t.shape[k] > 1) return true;
  return false;
}

ValueId stack_block(Sema *s, const Region *r, ValueId x, Span span) {
  if (!x || stack_type(s, x).rank < r->nlead) return x;
  TensorType t = stack_type(s, x);
  return stack_reshape(s, x, t.shape + r->nlead, t.rank - r->nlead, span);
}
