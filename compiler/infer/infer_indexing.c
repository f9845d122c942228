/* Indexing: values are looked up by integer ids, which are global and never pending.
 *
 * A table may be cut across its rows only in embedding, whose per-rank operator skips foreign ids
 * and leaves a Partial(sum), and in its derivative, whose rows are cut as the result type asks.
 */
#include "infer/rules.h"

/* P(sum|avg) in the values, the ids Replicate: looking up is linear in what is looked up. */
static ReduceOp partial_values(Rule *r, uint32_t axis, uint32_t first, uint32_t second) {
  ReduceOp op = rule_partial_op(r, first, axis);
  for (uint32_t i = 0; i < r->n; i++) {
    ReduceOp own = rule_partial_op(r, i, axis);
    if (i != first && i != second && own) {
      rule_fail_partial(r, i, axis, "ids must be known, not pending");
      return REDUCE_NONE;
    }
    if ((i == first || i == second) && own != op) {
      rule_fail_partial(r, op ? first : second, axis,
                        "both values must be Partial of one op, or neither: the other would be "
                        "counted once per rank");
      return REDUCE_NONE;
    }
  }
  if (reduce_is_linear(op)) return op;
  rule_fail_partial(
      r, first, axis,
      rule_text(r, "%s passes a pending sum or mean, not %s", r->info->name, reduce_article(op)));
  return REDUCE_NONE;
}

static ReduceOp partial_first(Rule *r, uint32_t axis) {
  return partial_values(r, axis, 0, 0);
}
static ReduceOp partial_weight(Rule *r, uint32_t axis) {
  return partial_values(r, axis, 1, 1);
}
static ReduceOp partial_scatter(Rule *r, uint32_t axis) {
  return partial_values(r, axis, 0, 2);
}
static ReduceOp partial_ids(Rule *r, uint32_t axis) {
  uint32_t i = 0;
  while (!rule_is_partial(r, i, axis)) i++;
  rule_fail_partial(r, i, axis, "ids must be known, not pending");
  return REDUCE_NONE;
}

bool rule_embedding(Rule *r) {
  const TensorType *ids = rule_type(r, 0), *w = rule_type(r, 1);
  if (!rule_want_integer(r, 0, "ids")) return false;
  if (w->rank != 2)
    return rule_fail_shape(r, 1,
                           rule_text(r, "the weight must be [V, D], not of rank %u", w->rank));
  rule_letter_each(r, 0, LETTER_FREE);
  r->letters.of[1][0] = rule_new_letter(r, LETTER_REDUCED);
  r->letters.of[1][1] = rule_new_letter(r, LETTER_FREE);
  r->letters.reduce = REDUCE_SUM;
  rule_result(r, 0, w->dtype);
  for (uint32_t d = 0; d < ids->rank; d++)
    if (!rule_result_dim(r, 0, ids->shape[d], r->letters.of[0][d])) return false;
  return rule_result_dim(r, 0, w->shape[1], r->letters.of[1][1]) && rule_derive(r, partial_weight);
}

/* The rows of the result may be cut over axes on which both operands are Replicate: each rank then
 * adds up only the ids of its block. */
static bool cut_rows(Rule *r, const TensorType *wanted) {
  TensorType *t = &r->out->results[0];
  if (wanted->rank != 2 || wanted->shape[0] != t->shape[0] || wanted->shape[1] != t->shape[1])
    return rule_fail_argument(r, "the stated type does not have the shape [V, D]");
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&wanted->layout, 0, axes);
  for (uint32_t i = 0; i < n; i++)
    if (t->layout.at[axes[i]].kind != PLACE_REPLICATE)
      return rule_fail(r, DIAG_SHARD_MISMATCH, 0, axes[i],
                       rule_text(r, "%s: the rows of the result cannot be sharded on mesh dim %s",
                                 r->info->name, rule_axis_name(r, axes[i])),
                       "an operand is sharded or Partial on it");
  layout_set_dim(&t->layout, r->mesh, 0, axes, n);
  return true;
}

bool rule_embedding_backward(Rule *r) {
  const TensorType *g = rule_type(r, 0), *ids = rule_type(r, 1);
  const Attr *wanted = rule_attr(r, ATTR_TYPE);
  int64_t rows = rule_int(r, ATTR_EXTENT, -1);
  if (!rule_want_float(r, 0) || !rule_want_integer(r, 1, "ids")) return false;
  if (rows < 0) return rule_fail_argument(r, "extent, the number of rows, is missing");
  bool fits = g->rank == ids->rank + 1;
  for (uint32_t d = 0; fits && d < ids->rank; d++) {
    fits = g->shape[d] == ids->shape[d];
    r->letters.of[0][d] = r->letters.of[1][d] = rule_new_letter(r, LETTER_REDUCED);
  }
  if (!fits) return rule_fail_shape(r, 0, "the cotangent must be [*, D] where the ids are [*]");
  int8_t last = r->letters.of[0][ids->rank] = rule_new_letter(r, LETTER_FREE);
  r->letters.reduce = REDUCE_SUM;
  rule_result(r, 0, g->dtype);
  return rule_result_dim(r, 0, rows, LETTER_NONE) &&
         rule_result_dim(r, 0, g->shape[ids->rank], last) && rule_derive(r, partial_first) &&
         (!wanted || cut_rows(r, wanted->as.type));
}

/* x and index of one rank; outside `dim` an extent that both have may be sharded alike. */
static bool letters_along(Rule *r, uint32_t dim) {
  const TensorType *x = rule_type(r, 0), *index = rule_type(r, 1);
  if (x->rank != index->rank)
    return rule_fail_shape(
        r, 1, rule_text(r, "the index has rank %u, the operand %u", index->rank, x->rank));
  for (uint32_t d = 0; d < x->rank; d++) {
    bool shared = d != dim && x->shape[d] == index->shape[d];
    if (d != dim && index->shape[d] > x->shape[d])
      return rule_fail_shape(r, 1,
                             rule_text(r,
                                       "dim %u of the index has extent %lld, more than the "
                                       "operand's %lld",
                                       d, (long long)index->shape[d], (long long)x->shape[d]));
    r->letters.of[0][d] = rule_new_letter(r, shared ? LETTER_FREE : LETTER_WHOLE);
    r->letters.of[1][d] = shared ? r->letters.of[0][d] : rule_new_letter(r, LETTER_WHOLE);
  }
  return true;
}

/* out[i][j] = x[index[i][j]][j]: the index may be sharded along `dim`, x may not. */
bool rule_gather(Rule *r) {
  uint32_t dim;
  const TensorType *x = rule_type(r, 0), *index = rule_type(r, 1);
  if (!rule_want_integer(r, 1, "the index") || !rule_dim(r, 0, &dim) || !letters_along(r, dim))
    return false;
  r->letters.rule[r->letters.of[1][dim]] = LETTER_FREE;
  rule_result(r, 0, x->dtype);
  for (uint32_t d = 0; d < index->rank; d++)
    if (!rule_result_dim(r, 0, index->shape[d], r->letters.of[1][d])) return false;
  return rule_derive(r, partial_first);
}

bool rule_scatter_add(Rule *r) {
  uint32_t dim;
  const TensorType *x = rule_type(r, 0), *index = rule_type(r, 1), *source = rule_type(r, 2);
  if (!rule_want_number(r, 0) || !rule_want_integer(r, 1, "the index")) return false;
  if (source->dtype != x->dtype)
    return rule_fail(r, DIAG_OPERAND_DTYPE, 2, -1, "scatter_add: operand of the wrong element type",
                     rule_text(r, "the source is %s, the operand %s", dtype_name(source->dtype),
                               dtype_name(x->dtype)));
  if (!rule_dim(r, 0, &dim) || !letters_along(r, dim)) return false;
  bool fits = source->rank == index->rank;
  for (uint32_t d = 0; fits && d < index->rank; d++) {
    fits = source->shape[d] == index->shape[d];
    r->letters.of[2][d] = r->letters.of[1][d];
  }
  if (!fits) return rule_fail_shape(r, 2, "the source must have the shape of the index");
  rule_result(r, 0, x->dtype);
  for (uint32_t d = 0; d < x->rank; d++)
    if (!rule_result_dim(r, 0, x->shape[d], r->letters.of[0][d])) return false;
  return rule_derive(r, partial_scatter);
}

bool rule_index_select(Rule *r) {
  uint32_t dim;
  const TensorType *x = rule_type(r, 0), *index = rule_type(r, 1);
  if (!rule_want_integer(r, 1, "the index") || !rule_dim(r, 0, &dim)) return false;
  if (index->rank != 1) return rule_fail_shape(r, 1, "the index must have one dim");
  r->letters.of[1][0] = rule_new_letter(r, LETTER_FREE);
  rule_result(r, 0, x->dtype);
  for (uint32_t d = 0; d < x->rank; d++) {
    int8_t l = r->letters.of[0][d] = rule_new_letter(r, d == dim ? LETTER_WHOLE : LETTER_FREE);
    if (!rule_result_dim(r, 0, d == dim ? index->shape[0] : x->shape[d],
                         d == dim ? r->letters.of[1][0] : l))
      return false;
  }
  return rule_derive(r, partial_first);
}

bool rule_one_hot(Rule *r) {
  const TensorType *ids = rule_type(r, 0);
  int64_t extent = rule_int(r, ATTR_EXTENT, -1), dtype = rule_int(r, ATTR_DTYPE, DT_I64);
  if (!rule_want_integer(r, 0, "ids")) return false;
  if (extent < 0) return rule_fail_argument(r, "extent, the number of classes, is missing");
  if (dtype <= DT_NONE || dtype >= DT_COUNT) return rule_fail_argument(r, "no such element type");
  rule_letter_each(r, 0, LETTER_FREE);
  rule_result(r, 0, (DType)dtype);
  for (uint32_t d = 0; d < ids->rank; d++)
    if (!rule_result_dim(r, 0, ids->shape[d], r->letters.of[0][d])) return false;
  return rule_result_dim(r, 0, extent, LETTER_NONE) && rule_derive(r, partial_ids);
}
