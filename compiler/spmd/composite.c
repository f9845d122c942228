/* Composites as primitives. In: nodes of the grad graph. Out: pointwise operators and plain
 * reductions over local blocks, which the fuser turns into single kernels.
 *
 * A reduced dim of a whole-dim operator is never cut, so its reductions are local and complete. A
 * plain reduction over a cut dim leaves a Partial, whose addends these nodes are. Counts are
 * global.
 */
#include <string.h>

#include "spmd/lower.h"

/* The dims a reduction node names; none given: all. */
static uint32_t reduced_dims(const Node *n, const TensorType *x, int64_t dims[DTM_MAX_DIMS]) {
  const Attr *a = node_attr(n, ATTR_DIMS);
  if (a && a->as.ints.len) {
    memcpy(dims, a->as.ints.data, a->as.ints.len * sizeof *dims);
    return a->as.ints.len;
  }
  for (uint32_t d = 0; d < x->rank; d++) dims[d] = d;
  return x->rank;
}

static double reduced_count(const TensorType *x, const int64_t *dims, uint32_t n) {
  double count = 1;
  for (uint32_t i = 0; i < n; i++) count *= (double)x->shape[dims[i]];
  return count;
}

static ValueId divide_const(Lowering *l, ValueId v, double by) {
  const TensorType t = *spmd_type(l, v);
  return spmd_binary(l, OP_DIV, &t, v, spmd_const(l, t.dtype, t.mesh, by));
}

/* Operand i in the element type the composite computes in. */
static ValueId operand(Lowering *l, uint32_t i) {
  ValueId v = l->map[l->serving->operands[i]];
  return spmd_cast(l, v, spmd_work_dtype(spmd_type(l, v)->dtype));
}

static TensorType result_type(const Lowering *l) {
  return *value_type(l->in, l->serving->first_result);
}

static ValueId finish(Lowering *l, ValueId v) {
  return spmd_cast(l, v, result_type(l).dtype);
}

/* --- reductions ------------------------------------------------------------------------------ */

/* Mean, L1, L2, max norm, sums and products that change the element type. */
static ValueId reduction(Lowering *l) {
  const Node *n = l->serving;
  TensorType r = result_type(l);
  ValueId x = operand(l, 0);
  int64_t dims[DTM_MAX_DIMS];
  const TensorType in = *spmd_type(l, x);
  uint32_t ndims = reduced_dims(n, &in, dims);
  bool keep = node_int(n, ATTR_KEEPDIM, 0) != 0;
  DType work = spmd_work_dtype(r.dtype);
  if (in.dtype != work) x = spmd_cast(l, x, work);
  const TensorType t = *spmd_type(l, x);
  r.dtype = work;
  ValueId y = 0;
  if (n->op == OP_MEAN) {
    y = divide_const(l, spmd_reduce(l, OP_SUM, x, dims, ndims, keep, &r),
                     reduced_count(&t, dims, ndims));
  } else if (n->op == OP_SUM || n->op == OP_PROD) {
    y = spmd_reduce(l, n->op, x, dims, ndims, keep, &r);
  } else if (n->op == OP_NORM_L1) {
    y = spmd_reduce(l, OP_SUM, spmd_unary(l, OP_ABS, &t, x), dims, ndims, keep, &r);
  } else if (n->op == OP_NORM_INF) {
    /* An empty block counts as 0, not as the neutral element of max. */
    y = spmd_reduce(l, OP_MAX, spmd_unary(l, OP_ABS, &t, x), dims, ndims, keep, &r);
    y = spmd_binary(l, OP_MAXIMUM, &r, y, spmd_const(l, r.dtype, r.mesh, 0));
  } else {
    y = spmd_reduce(l, OP_SUM, spmd_binary(l, OP_MUL, &t, x, x), dims, ndims, keep, &r);
    y = spmd_unary(l, OP_SQRT, &r, y);
  }
  return finish(l, y);
}

static ValueId logsumexp(Lowering *l) {
  ValueId x = operand(l, 0);
  const TensorType t = *spmd_type(l, x);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t n = reduced_dims(l->serving, &t, dims);
  bool keep = node_int(l->serving, ATTR_KEEPDIM, 0) != 0;
  TensorType r = spmd_with_dtype(result_type(l), t.dtype);
  /* An infinite maximum is not subtracted: -inf stays -inf, +inf stays +inf, never NaN. */
  ValueId m = spmd_reduce_keep(l, OP_MAX, x, dims, n);
  TensorType mt = *spmd_type(l, m);
  ValueId zero = spmd_const(l, t.dtype, t.mesh, 0);
  ValueId shift = spmd_where(l, &mt, spmd_unary(l, OP_ISFINITE, &mt, m), m, zero);
  ValueId e = spmd_unary(l, OP_EXP, &t, spmd_binary(l, OP_SUB, &t, x, shift));
  ValueId s = spmd_reduce_keep(l, OP_SUM, e, dims, n);
  ValueId y = spmd_binary(l, OP_ADD, &mt, spmd_unary(l, OP_LOG, &mt, s), shift);
  if (!keep) {
    const Attr shape = ATTR_INTS(SHAPE, r.shape, r.rank);
    y = spmd_emit(l, OP_RESHAPE, &y, 1, &shape, 1, &r);
  }
  return finish(l, y);
}

/* x - mean over dims. */
static ValueId centred(Lowering *l, ValueId x, const int64_t *dims, uint32_t n) {
  const TensorType t = *spmd_type(l, x);
  ValueId s = spmd_reduce_keep(l, OP_SUM, x, dims, n);
  return spmd_binary(l, OP_SUB, &t, x, divide_const(l, s, reduced_count(&t, dims, n)));
}

static ValueId variance(Lowering *l) {
  ValueId x = operand(l, 0);
  const TensorType t = *spmd_type(l, x);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t n = reduced_dims(l->serving, &t, dims);
  TensorType r = spmd_with_dtype(result_type(l), t.dtype);
  ValueId c = centred(l, x, dims, n);
  ValueId sq = spmd_binary(l, OP_MUL, &t, c, c);
  double count = reduced_count(&t, dims, n) -
                 (double)node_int(l->serving, ATTR_CORRECTION, DEFAULT_CORRECTION);
  ValueId y = spmd_reduce(l, OP_SUM, sq, dims, n, node_int(l->serving, ATTR_KEEPDIM, 0) != 0, &r);
  y = divide_const(l, y, count > 0 ? count : 0);
  if (l->serving->op == OP_STD) y = spmd_unary(l, OP_SQRT, &r, y);
  return finish(l, y);
}

/* The gradient of max and min: the cotangent shared evenly between ties. */
static ValueId extremum_backward(Lowering *l) {
  ValueId g = operand(l, 0), x = operand(l, 1), y = operand(l, 2);
  const TensorType t = *spmd_type(l, x);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t n = reduced_dims(l->serving, &t, dims);
  TensorType r = spmd_with_dtype(result_type(l), t.dtype);
  ValueId hit = spmd_cast(l, spmd_binary(l, OP_EQ, &t, x, y), t.dtype);
  ValueId count = spmd_reduce_keep(l, OP_SUM, hit, dims, n);
  TensorType gt = *spmd_type(l, g);
  ValueId share = spmd_binary(l, OP_DIV, &gt, g, count);
  return finish(l, spmd_binary(l, OP_MUL, &r, hit, share));
}

/* Index of the first extremum; a NaN counts as the extremum, as max and min propagate it. */
static ValueId arg_extremum(Lowering *l) {
  ValueId x = l->map[l->serving->operands[0]];
  const TensorType t = *spmd_type(l, x);
  TensorType index = spmd_with_dtype(t, DT_I64), mask = spmd_with_dtype(t, DT_BOOL);
  TensorType r = result_type(l);
  int64_t dim = node_int(l->serving, ATTR_DIM, 0);
  ValueId m = spmd_reduce_keep(l, l->serving->op == OP_ARGMAX ? OP_MAX : OP_MIN, x, &dim, 1);
  ValueId hit = spmd_binary(l, OP_EQ, &t, x, m);
  if (dtype_is_float(t.dtype))
    hit = spmd_binary(l, OP_LOGICAL_OR, &mask, hit, spmd_unary(l, OP_ISNAN, &t, x));
  const Attr attrs[] = {ATTR_T(TYPE, &index), ATTR_I(DIM, dim)};
  ValueId at = spmd_emit(l, OP_IOTA, NULL, 0, attrs, 2, &index);
  ValueId none = spmd_const(l, DT_I64, t.mesh, (double)t.shape[dim]);
  return spmd_reduce(l, OP_MIN, spmd_where(l, &index, hit, at, none), &dim, 1,
                     node_int(l->serving, ATTR_KEEPDIM, 0) != 0, &r);
}

/* --- movement -----------------------------------------------------------------------------------
 */

/* balance: the elements of a dim by number, those of abi_balanced_from or abi_balanced_to. */
static ValueId balance(Lowering *l) {
  const Node *n = l->serving;
  ValueId x = l->map[n->operands[0]];
  TensorType r = result_type(l);
  int64_t dim = node_int(n, ATTR_DIM, 0), ranks = node_int(n, ATTR_K, 1);
  bool back = node_int(n, ATTR_REVERSE, 0) != 0;
  TensorType t = {.dtype = DT_I64, .rank = 1, .shape = {r.shape[dim]}, .mesh = r.mesh};
  const Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_I(DIM, 0)};
  ValueId place = spmd_emit(l, OP_IOTA, NULL, 0, attrs, 2, &t);
  /* Where two nodes are made, one is named first: C leaves the order of arguments open. */
  ValueId piece = spmd_const(l, DT_I64, t.mesh, (double)(t.shape[0] / (2 * ranks)));
  ValueId one = spmd_const(l, DT_I64, t.mesh, 1), two = spmd_const(l, DT_I64, t.mesh, 2);
  ValueId last = spmd_const(l, DT_I64, t.mesh, (double)(2 * ranks - 1));
  ValueId at = spmd_binary(l, OP_FLOOR_DIV, &t, place, piece);
  ValueId off = spmd_binary(l, OP_REMAINDER, &t, place, piece), is_tail, head, tail;
  if (back) {
    ValueId middle = spmd_const(l, DT_I64, t.mesh, (double)ranks);
    is_tail = spmd_binary(l, OP_GE, &t, at, middle);
    head = spmd_binary(l, OP_MUL, &t, two, at);
    tail = spmd_binary(l, OP_MUL, &t, two, spmd_binary(l, OP_SUB, &t, last, at));
    tail = spmd_binary(l, OP_ADD, &t, tail, one);
  } else {
    is_tail = spmd_binary(l, OP_EQ, &t, spmd_binary(l, OP_REMAINDER, &t, at, two), one);
    head = spmd_binary(l, OP_FLOOR_DIV, &t, at, two);
    tail = spmd_binary(l, OP_SUB, &t, last, head);
  }
  ValueId other = spmd_where(l, &t, is_tail, tail, head);
  ValueId index = spmd_binary(l, OP_ADD, &t, spmd_binary(l, OP_MUL, &t, other, piece), off);
  return spmd_emit(l, OP_INDEX_SELECT, (const ValueId[]){x, index}, 2, (Attr[]){ATTR_I(DIM, dim)},
                   1, &r);
}

/* --- softmax ---------------------------------------------------------------------------------- */

static ValueId softmax(Lowering *l) {
  ValueId x = operand(l, 0);
  const TensorType t = *spmd_type(l, x);
  int64_t dim = node_int(l->serving, ATTR_DIM, 0);
  ValueId shifted = spmd_binary(l, OP_SUB, &t, x, spmd_reduce_keep(l, OP_MAX, x, &dim, 1));
  ValueId e = spmd_unary(l, OP_EXP, &t, shifted);
  ValueId s = spmd_reduce_keep(l, OP_SUM, e, &dim, 1);
  if (l->serving->op == OP_SOFTMAX) return finish(l, spmd_binary(l, OP_DIV, &t, e, s));
  TensorType st = *spmd_type(l, s);
  return finish(l, spmd_binary(l, OP_SUB, &t, shifted, spmd_unary(l, OP_LOG, &st, s)));
}

static ValueId softmax_backward(Lowering *l) {
  ValueId g = operand(l, 0), y = operand(l, 1);
  const TensorType t = *spmd_type(l, g);
  int64_t dim = node_int(l->serving, ATTR_DIM, 0);
  if (l->serving->op == OP_LOG_SOFTMAX_BACKWARD) {
    ValueId s = spmd_reduce_keep(l, OP_SUM, g, &dim, 1);
    const TensorType yt = *spmd_type(l, y);
    ValueId p = spmd_unary(l, OP_EXP, &yt, y);
    return finish(l, spmd_binary(l, OP_SUB, &t, g, spmd_binary(l, OP_MUL, &t, p, s)));
  }
  ValueId gy = spmd_binary(l, OP_MUL, &t, g, y);
  ValueId s = spmd_reduce_keep(l, OP_SUM, gy, &dim, 1);
  return finish(l, spmd_binary(l, OP_MUL, &t, y, spmd_binary(l, OP_SUB, &t, g, s)));
}

/* --- norms -------------------------------------------------------------------------------------
 */

static uint32_t norm_dims(const Lowering *l, const TensorType *t, int64_t dims[DTM_MAX_DIMS]) {
  uint32_t n = (uint32_t)node_int(l->serving, ATTR_NDIMS, DEFAULT_NDIMS);
  for (uint32_t i = 0; i < n; i++) dims[i] = t->rank - n + i;
  return n;
}

/* 1 / sqrt(mean of squares of x over dims + eps). */
static ValueId inverse_rms(Lowering *l, ValueId x, const int64_t *dims, uint32_t n) {
  const TensorType t = *spmd_type(l, x);
  ValueId s = spmd_reduce_keep(l, OP_SUM, spmd_binary(l, OP_MUL, &t, x, x), dims, n);
  const TensorType st = *spmd_type(l, s);
  ValueId eps = spmd_const(l, t.dtype, t.mesh, node_float(l->serving, ATTR_EPS, DEFAULT_EPS));
  ValueId m = spmd_binary(l, OP_ADD, &st, divide_const(l, s, reduced_count(&t, dims, n)), eps);
  return spmd_unary(l, OP_RSQRT, &st, m);
}

/* layer_norm, normalize, rms_norm, rms_normalize: [weight] [bias]. */
static ValueId norm(Lowering *l) {
  const Node *n = l->serving;
  bool layer = n->op == OP_LAYER_NORM || n->op == OP_NORMALIZE;
  ValueId x = operand(l, 0);
  const TensorType t = *spmd_type(l, x);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t nd = norm_dims(l, &t, dims);
  if (layer) x = centred(l, x, dims, nd);
  ValueId y = spmd_binary(l, OP_MUL, &t, x, inverse_rms(l, x, dims, nd));
  if (n->noperands > 1) y = spmd_binary(l, OP_MUL, &t, y, operand(l, 1));
  if (n->noperands > 2) y = spmd_binary(l, OP_ADD, &t, y, operand(l, 2));
  return finish(l, y);
}

/* With h = g * weight and n = x / rms (centred first for layer_norm), over the normalised dims:
 * dx = (h - [mean(h)] - n * mean(h * n)) / rms. */
static ValueId norm_backward(Lowering *l) {
  const Node *n = l->serving;
  ValueId h = operand(l, 0), x = operand(l, 1);
  const TensorType ht = *spmd_type(l, h), t = *spmd_type(l, x);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t nd = norm_dims(l, &t, dims);
  double count = reduced_count(&t, dims, nd);
  if (n->noperands > 2) h = spmd_binary(l, OP_MUL, &ht, h, operand(l, 2));
  if (n->op == OP_LAYER_NORM_BACKWARD) x = centred(l, x, dims, nd);
  ValueId r = inverse_rms(l, x, dims, nd);
  ValueId unit = spmd_binary(l, OP_MUL, &t, x, r);
  ValueId hn = spmd_binary(l, OP_MUL, &ht, h, unit);
  ValueId along = divide_const(l, spmd_reduce_keep(l, OP_SUM, hn, dims, nd), count);
  ValueId d = spmd_binary(l, OP_SUB, &ht, h, spmd_binary(l, OP_MUL, &ht, unit, along));
  if (n->op == OP_LAYER_NORM_BACKWARD) {
    ValueId mean = divide_const(l, spmd_reduce_keep(l, OP_SUM, h, dims, nd), count);
    d = spmd_binary(l, OP_SUB, &ht, d, mean);
  }
  return finish(l, spmd_binary(l, OP_MUL, &ht, d, r));
}

/* Which primitives every composite has. One without a line here does not compile. */
#define COMPOSITE_MEAN reduction
#define COMPOSITE_NORM_L1 reduction
#define COMPOSITE_NORM_L2 reduction
#define COMPOSITE_NORM_INF reduction
#define COMPOSITE_LOGSUMEXP logsumexp
#define COMPOSITE_VAR variance
#define COMPOSITE_STD variance
#define COMPOSITE_EXTREMUM_BACKWARD extremum_backward
#define COMPOSITE_ARGMAX arg_extremum
#define COMPOSITE_ARGMIN arg_extremum
#define COMPOSITE_BALANCE balance
#define COMPOSITE_SOFTMAX softmax
#define COMPOSITE_SOFTMAX_BACKWARD softmax_backward
#define COMPOSITE_LOG_SOFTMAX softmax
#define COMPOSITE_LOG_SOFTMAX_BACKWARD softmax_backward
#define COMPOSITE_LAYER_NORM norm
#define COMPOSITE_LAYER_NORM_BACKWARD norm_backward
#define COMPOSITE_NORMALIZE norm
#define COMPOSITE_RMS_NORM norm
#define COMPOSITE_RMS_NORM_BACKWARD norm_backward
#define COMPOSITE_RMS_NORMALIZE norm

bool spmd_composite(Lowering *l, ValueId *result) {
  static ValueId (*const rows[OP_COUNT])(Lowering *) = {
#define ROW_COMPOSITE(ID) 0, COMPOSITE_##ID
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc)
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc)                              \
  [OP_##ID] = OPS_PICK(ROW_##lower(ID), NULL),
#include "ops/ops.def"
#undef ROW_COMPOSITE
  };
  const Node *n = l->serving;
  ValueId (*lower)(Lowering *) = rows[n->op];
  if ((n->op == OP_SUM || n->op == OP_PROD) &&
      value_type(l->in, n->operands[0])->dtype != result_type(l).dtype)
    lower = reduction;
  if (!lower) return false;
  *result = lower(l);
  return true;
}
