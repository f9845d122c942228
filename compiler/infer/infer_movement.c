/* Movement: elements change place, never value. Dims carry their placement along; an operator whose
 * result would be cut at other boundaries has no row. Partial passes, where constants that are
 * written in (pad, triangles) survive the reduction.
 */
#include "infer/rules.h"

/* Result dim = operand dim d, cut alike. */
static bool keep_dim(Rule *r, uint32_t d) {
  int8_t l = r->letters.of[0][d] = rule_new_letter(r, LETTER_FREE);
  return rule_result_dim(r, 0, rule_type(r, 0)->shape[d], l);
}

/* Result dim of `extent` whose boundaries differ from those of operand dim d. */
static bool cut_dim(Rule *r, uint32_t d, int64_t extent) {
  int8_t l = r->letters.of[0][d] = rule_new_letter(r, LETTER_WHOLE);
  return rule_result_dim(r, 0, extent, l);
}

static bool derive(Rule *r, PartialRule *partial) {
  if (rule_derive(r, partial)) return true;
  if (r->out->code == DIAG_SHARDED_DIM) {
    r->out->code = DIAG_SHARD_BOUNDARY;
    r->out->reason = "the result would be cut at other places than the blocks the ranks hold";
  }
  return false;
}

bool rule_permute(Rule *r) {
  const Attr *dims = rule_attr(r, ATTR_DIMS);
  const TensorType *t = rule_type(r, 0);
  uint32_t seen;
  if (!rule_dims(r, false, &seen)) return false;
  if (seen != (1u << t->rank) - 1)
    return rule_fail_argument(r, rule_text(r, "dims must name each of the %u dims once", t->rank));
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; dims && d < t->rank; d++) {
    int64_t from = dims->as.ints.data[d];
    if (!keep_dim(r, (uint32_t)(from < 0 ? from + t->rank : from))) return false;
  }
  return derive(r, partial_movement);
}

bool rule_unsqueeze(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  int64_t at = rule_int(r, ATTR_DIM, 0);
  if (at < 0) at += t->rank + 1;
  if (at < 0 || at > t->rank)
    return rule_fail_argument(r, rule_text(r, "dim is outside 0 .. %u", t->rank));
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d <= t->rank; d++) {
    if (d == at && !rule_result_dim(r, 0, 1, LETTER_NONE)) return false;
    if (d < t->rank && !keep_dim(r, d)) return false;
  }
  return derive(r, partial_movement);
}

bool rule_squeeze(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  if (t->shape[dim] != 1)
    return rule_fail_argument(
        r, rule_text(r, "dim %u has extent %lld, not 1", dim, (long long)t->shape[dim]));
  rule_result(r, 0, t->dtype);
  r->letters.of[0][dim] = LETTER_NONE;
  for (uint32_t d = 0; d < t->rank; d++)
    if (d != dim && !keep_dim(r, d)) return false;
  return derive(r, partial_movement);
}

bool rule_expand(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  const Attr *shape = rule_attr(r, ATTR_SHAPE);
  uint32_t rank = shape ? shape->as.ints.len : 0;
  if (rank < t->rank)
    return rule_fail_argument(
        r, rule_text(r, "the shape has fewer dims than the operand's %u", t->rank));
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < rank; d++) {
    int64_t extent = shape->as.ints.data[d];
    uint32_t own = d + t->rank - rank; /* meaningful where d is not a new leading dim */
    bool is_new = d + t->rank < rank;
    if (!is_new && extent == -1) extent = t->shape[own];
    if (extent < 0)
      return rule_fail_argument(
          r, rule_text(r, "extent %lld of the shape is negative", (long long)extent));
    if (!is_new && t->shape[own] == extent) {
      if (!keep_dim(r, own)) return false;
      continue;
    }
    if (!is_new && t->shape[own] != 1)
      return rule_fail_argument(r, rule_text(r,
                                             "dim %u has extent %lld and cannot become %lld: "
                                             "only extent 1 is repeated",
                                             own, (long long)t->shape[own], (long long)extent));
    if (!is_new) r->letters.of[0][own] = LETTER_NONE;
    if (!rule_result_dim(r, 0, extent, LETTER_NONE)) return false;
  }
  return derive(r, partial_movement);
}

/* The result has the operand's dims, but dim `dim` has `extent`; `same` when nothing moves. */
static bool one_dim_changed(Rule *r, uint32_t dim, int64_t extent, bool same) {
  const TensorType *t = rule_type(r, 0);
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!(d == dim && !same ? cut_dim(r, d, extent) : keep_dim(r, d))) return false;
  return derive(r, partial_movement);
}

bool rule_slice(Rule *r) {
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  int64_t extent = rule_type(r, 0)->shape[dim], start = rule_int(r, ATTR_START, 0),
          stop = rule_int(r, ATTR_STOP, extent), step = rule_int(r, ATTR_STEP, DEFAULT_STEP);
  if (step < 1) return rule_fail_argument(r, "step must be at least 1");
  if (start < 0 || start > stop || stop > extent)
    return rule_fail_argument(r, rule_text(r, "[%lld, %lld) is not a range within extent %lld",
                                           (long long)start, (long long)stop, (long long)extent));
  bool same = start == 0 && stop == extent && step == 1;
  return one_dim_changed(r, dim, (stop - start + step - 1) / step, same);
}

bool rule_unslice(Rule *r) {
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  int64_t n = rule_type(r, 0)->shape[dim], start = rule_int(r, ATTR_START, 0),
          step = rule_int(r, ATTR_STEP, DEFAULT_STEP), extent = rule_int(r, ATTR_EXTENT, -1);
  int64_t last = n ? start + (n - 1) * step : start - 1;
  if (step < 1 || start < 0 || extent < 0 || last >= extent)
    return rule_fail_argument(r, rule_text(r,
                                           "%lld elements from %lld in steps of %lld do not fit "
                                           "extent %lld",
                                           (long long)n, (long long)start, (long long)step,
                                           (long long)extent));
  return one_dim_changed(r, dim, extent, n == extent && start == 0 && step == 1);
}

static ReduceOp partial_pad(Rule *r, uint32_t axis) {
  ReduceOp op = rule_partial_op(r, 0, axis);
  double v = rule_float(r, ATTR_VALUE, 0);
  if (reduce_keeps(op, v)) return op;
  rule_fail_partial(r, 0, axis,
                    rule_text(r, "the padding %g would become the %s of %lld copies of itself", v,
                              reduce_noun(op), (long long)r->mesh->size[axis]));
  return REDUCE_NONE;
}

bool rule_pad(Rule *r) {
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  int64_t before = rule_int(r, ATTR_BEFORE, 0), after = rule_int(r, ATTR_AFTER, 0);
  if (before < 0 || after < 0)
    return rule_fail_argument(r, "before and after must not be negative");
  const TensorType *t = rule_type(r, 0);
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!(d == dim && before + after ? cut_dim(r, d, t->shape[d] + before + after)
                                     : keep_dim(r, d)))
      return false;
  return derive(r, before + after ? partial_pad : partial_movement);
}

static ReduceOp partial_concat(Rule *r, uint32_t axis) {
  ReduceOp op = rule_partial_op(r, 0, axis);
  for (uint32_t i = 1; i < r->n; i++)
    if (rule_partial_op(r, i, axis) != op) {
      uint32_t bad = op ? i : 0;
      rule_fail_partial(r, bad, axis,
                        rule_text(r,
                                  "%s and %s are not Partial of one op: no single reduction "
                                  "finishes the result",
                                  rule_operand_name(r, 0), rule_operand_name(r, i)));
      return REDUCE_NONE;
    }
  return op;
}

bool rule_concat(Rule *r) {
  uint32_t dim;
  const TensorType *t = rule_type(r, 0);
  if (!rule_same_dtype(r) || !rule_dim(r, 0, &dim)) return false;
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t extent = 0;
    int8_t l = rule_new_letter(r, d == dim && r->n > 1 ? LETTER_WHOLE : LETTER_FREE);
    for (uint32_t i = 0; i < r->n; i++) {
      const TensorType *u = rule_type(r, i);
      if (u->rank != t->rank || (d != dim && u->shape[d] != t->shape[d]))
        return rule_fail_shape(r, i,
                               rule_text(r,
                                         "%s does not match the first operand outside dim "
                                         "%u",
                                         rule_operand_name(r, i), dim));
      r->letters.of[i][d] = l;
      extent += u->shape[d];
    }
    if (!rule_result_dim(r, 0, d == dim ? extent : t->shape[d], l)) return false;
  }
  return derive(r, partial_concat);
}

bool rule_flip(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  uint32_t dims;
  if (!rule_dims(r, false, &dims)) return false;
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!(dims >> d & 1 ? cut_dim(r, d, t->shape[d]) : keep_dim(r, d))) return false;
  return derive(r, partial_movement);
}

bool rule_roll(Rule *r) {
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  int64_t extent = rule_type(r, 0)->shape[dim], shift = rule_int(r, ATTR_SHIFT, 0);
  return one_dim_changed(r, dim, extent, extent == 0 || shift % extent == 0);
}

/* Zeros written by global offsets: the zero of any reduction of zeros is zero. */
bool rule_triangle(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  if (t->rank < 2) return rule_fail_argument(r, "the operand needs at least two dims");
  for (uint32_t d = t->rank - 2; d < t->rank; d++)
    if (t->balanced[d])
      return rule_fail(r, DIAG_SEQUENCE_ORDER, 0, -1,
                       rule_text(r, "%s: dim %u is in balanced order", r->info->name, d),
                       "a triangle is one of places; compare positions(x, dim) instead");
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!keep_dim(r, d)) return false;
  return derive(r, partial_movement);
}

/* A dim into head-tail order, or back. Its elements change place between the blocks of ranks, so it
 * is whole; the others keep theirs. */
bool rule_balance(Rule *r) {
  uint32_t dim;
  if (!rule_dim(r, 0, &dim)) return false;
  const TensorType *t = rule_type(r, 0);
  int64_t ranks = rule_int(r, ATTR_K, 0);
  bool back = rule_int(r, ATTR_REVERSE, 0) != 0;
  if (ranks < 2 || ranks > UINT16_MAX)
    return rule_fail_argument(r, "an order is one for two ranks or more");
  if (t->shape[dim] % (2 * ranks))
    return rule_fail_argument(
        r, rule_text(r,
                     "dim %u of extent %lld cannot be cut into %lld pieces, two for each of %lld "
                     "ranks: pad it to a multiple, or leave it as it is, which is exact but gives "
                     "the ranks unequal work",
                     dim, (long long)t->shape[dim], (long long)(2 * ranks), (long long)ranks));
  if (t->balanced[dim] != (back ? ranks : 0))
    return rule_fail(r, DIAG_SEQUENCE_ORDER, 0, -1,
                     rule_text(r, "%s: dim %u is %s", r->info->name, dim,
                               t->balanced[dim] ? "in balanced order already" : "as it is"),
                     "an order is made from the natural one, and undone once");
  if (!one_dim_changed(r, dim, t->shape[dim], false)) return false;
  r->out->results[0].balanced[dim] = back ? 0 : (uint16_t)ranks;
  return true;
}
