/* Operators that look at whole dims: softmax, norms, sorting, running sums, arg-reductions. Those
 * dims may not be sharded; Partial is an error, except in the cotangent of a derivative.
 */
#include "infer/rules.h"

/* softmax, cumsum, sort, ...: one dim is whole, results have the operand's shape. */
static bool along_one_dim(Rule *r, uint32_t *dim) {
  if (!rule_dim(r, -1, dim)) return false;
  rule_letter_each(r, 0, LETTER_FREE);
  r->letters.rule[r->letters.of[0][*dim]] = LETTER_WHOLE;
  return true;
}

/* Result i is shaped like operand 0, letters included. */
static bool result_like(Rule *r, uint32_t i, DType dtype) {
  const TensorType *t = rule_type(r, 0);
  rule_result(r, i, dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!rule_result_dim(r, i, t->shape[d], r->letters.of[0][d])) return false;
  return true;
}

/* Operand i has the shape of operand 0 and shares its letters. */
static bool operand_like(Rule *r, uint32_t i) {
  const TensorType *t = rule_type(r, 0), *u = rule_type(r, i);
  bool same = t->rank == u->rank;
  for (uint32_t d = 0; same && d < t->rank; d++) {
    same = t->shape[d] == u->shape[d];
    r->letters.of[i][d] = r->letters.of[0][d];
  }
  return same || rule_fail_shape(r, i,
                                 rule_text(r, "%s must have the shape of %s",
                                           rule_operand_name(r, i), rule_operand_name(r, 0)));
}

bool rule_softmax(Rule *r) {
  uint32_t dim;
  if (!rule_same_dtype(r) || !rule_want_float(r, 0) || !along_one_dim(r, &dim)) return false;
  if (r->n == 2 && !operand_like(r, 1)) return false;
  return result_like(r, 0, rule_type(r, 0)->dtype) &&
         rule_derive(r, r->n == 2 ? partial_linear_first : partial_nonlinear);
}

/* Norms over the last `ndims` dims; the affine operands have exactly these dims. */
static bool rule_norm(Rule *r, bool derivative) {
  const TensorType *t = rule_type(r, 0);
  int64_t ndims = rule_int(r, ATTR_NDIMS, DEFAULT_NDIMS);
  if (!rule_same_dtype(r) || !rule_want_float(r, 0)) return false;
  if (ndims < 1 || ndims > t->rank)
    return rule_fail_argument(
        r, rule_text(r, "ndims %lld is outside 1 .. %u", (long long)ndims, t->rank));
  if (!(rule_float(r, ATTR_EPS, DEFAULT_EPS) >= 0))
    return rule_fail_argument(r, "eps must not be negative");
  uint32_t first = t->rank - (uint32_t)ndims;
  rule_letter_each(r, 0, LETTER_FREE);
  for (uint32_t d = first; d < t->rank; d++) r->letters.rule[r->letters.of[0][d]] = LETTER_WHOLE;
  uint32_t affine = derivative ? 2 : 1;
  if (derivative && !operand_like(r, 1)) return false;
  for (uint32_t i = affine; i < r->n; i++) {
    const TensorType *w = rule_type(r, i);
    bool fits = w->rank == ndims;
    for (uint32_t d = 0; fits && d < w->rank; d++) {
      fits = w->shape[d] == t->shape[first + d];
      r->letters.of[i][d] = r->letters.of[0][first + d];
    }
    if (!fits)
      return rule_fail_shape(r, i,
                             rule_text(r, "%s must have the last %lld dims of %s",
                                       rule_operand_name(r, i), (long long)ndims,
                                       rule_operand_name(r, 0)));
  }
  return result_like(r, 0, t->dtype) &&
         rule_derive(r, derivative ? partial_linear_first : partial_nonlinear);
}

/* g, x, y of max or min with kept dims: g and y have extent 1 where x is reduced. */
bool rule_extremum_backward(Rule *r) {
  uint32_t dims;
  const TensorType *x;
  if (!rule_same_dtype(r) || !rule_want_float(r, 0) || !rule_dims(r, true, &dims)) return false;
  x = rule_type(r, 1);
  rule_letter_each(r, 1, LETTER_FREE);
  for (uint32_t i = 0; i < 3; i += 2) {
    const TensorType *t = rule_type(r, i);
    bool fits = t->rank == x->rank;
    for (uint32_t d = 0; fits && d < x->rank; d++) {
      bool reduced = dims >> d & 1;
      fits = t->shape[d] == (reduced ? 1 : x->shape[d]);
      r->letters.of[i][d] = reduced ? LETTER_NONE : r->letters.of[1][d];
    }
    if (!fits)
      return rule_fail_shape(r, i,
                             rule_text(r,
                                       "%s must have the shape of operand 2 with extent 1 in "
                                       "the reduced dims",
                                       rule_operand_name(r, i)));
  }
  rule_result(r, 0, x->dtype);
  for (uint32_t d = 0; d < x->rank; d++) {
    if (dims >> d & 1) r->letters.rule[r->letters.of[1][d]] = LETTER_WHOLE;
    if (!rule_result_dim(r, 0, x->shape[d], r->letters.of[1][d])) return false;
  }
  return rule_derive(r, partial_linear_first);
}

bool rule_argument(Rule *r) {
  uint32_t dim;
  const TensorType *t = rule_type(r, 0);
  if (!rule_want_number(r, 0) || !along_one_dim(r, &dim)) return false;
  if (t->shape[dim] == 0)
    return rule_fail(r, DIAG_EMPTY_EXTREMUM, 0, -1,
                     rule_text(r, "%s over dim %u, which has extent 0", r->info->name, dim),
                     "no element means no largest or smallest one");
  bool keep = rule_int(r, ATTR_KEEPDIM, 0) != 0;
  rule_result(r, 0, DT_I64);
  for (uint32_t d = 0; d < t->rank; d++) {
    if (d != dim && !rule_result_dim(r, 0, t->shape[d], r->letters.of[0][d])) return false;
    if (d == dim && keep && !rule_result_dim(r, 0, 1, LETTER_NONE)) return false;
  }
  return rule_derive(r, partial_nonlinear);
}

bool rule_scan_or_sort(Rule *r) {
  uint32_t dim;
  DType dtype = rule_type(r, 0)->dtype;
  if (!rule_want_number(r, 0) || !along_one_dim(r, &dim)) return false;
  if (!result_like(r, 0, dtype)) return false;
  if (r->info->results == 2 && !result_like(r, 1, DT_I64)) return false;
  if (r->op == OP_TOPK) {
    int64_t k = rule_int(r, ATTR_K, -1), extent = rule_type(r, 0)->shape[dim];
    if (k < 0 || k > extent)
      return rule_fail_argument(r,
                                rule_text(r, "k = %lld is outside 0 .. %lld, the extent of dim %u",
                                          (long long)k, (long long)extent, dim));
    r->out->results[0].shape[dim] = r->out->results[1].shape[dim] = k;
  }
  return rule_derive(r, partial_nonlinear);
}

bool rule_norm_forward(Rule *r) {
  return rule_norm(r, false);
}
bool rule_norm_backward(Rule *r) {
  return rule_norm(r, true);
}
