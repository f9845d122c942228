/* Rows of the products of experts (see ops.def): contractions in which the expert of a row follows
 * from its place. The experts may be cut by one mesh dim, whose ranks then hold a block of places
 * each, together with the experts of it.
 */
#include "infer/rules.h"

typedef struct Grouped {
  int8_t batch, block, place, in, out;
} Grouped;

static bool want(Rule *r, uint32_t i, uint32_t rank, const char *what) {
  if (rule_type(r, i)->rank == rank) return true;
  return rule_fail_shape(r, i, rule_text(r, "%s must be %s", rule_operand_name(r, i), what));
}

/* Rows [B, R, P, *] of operand i, whose last dim has the letter `last`. */
static bool rows(Rule *r, const Grouped *g, uint32_t i, int8_t last) {
  const int8_t letters[] = {g->batch, g->block, g->place, last};
  if (!want(r, i, 4, "[B, R, P, features]")) return false;
  for (uint32_t d = 0; d < 4; d++) r->letters.of[i][d] = letters[d];
  return true;
}

/* counts [B, E] beside rows of operand 0. */
static bool counts(Rule *r, const Grouped *g) {
  if (!rule_want_integer(r, 2, "counts") || !want(r, 2, 2, "[B, experts]")) return false;
  r->letters.of[2][0] = g->batch;
  r->letters.of[2][1] = g->block;
  if (rule_type(r, 2)->shape[0] == rule_type(r, 0)->shape[0]) return true;
  return rule_fail_shape(r, 2, "counts have one line for each entry of dim 0 of the rows");
}

/* A rank has all places of the experts it has. */
static bool check_blocks(Rule *r) {
  const TensorType *x = rule_type(r, 0);
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&x->layout, 1, axes);
  if (!r->mesh || n == 0 || (n == 1 && r->mesh->size[axes[0]] == x->shape[1])) return true;
  return rule_fail(
      r, DIAG_SHARD_MISMATCH, 0, axes[0],
      rule_text(r, "%s: blocks of places are cut on mesh dim %s", r->info->name,
                rule_axis_name(r, axes[0])),
      rule_text(r,
                "there are %lld blocks; experts may be cut by one mesh dim, with a block for each "
                "of its ranks",
                (long long)x->shape[1]));
}

/* Linear in the first two operands; a pending count says where no row is. */
static ReduceOp partial_rows(Rule *r, uint32_t axis) {
  if (!rule_is_partial(r, 2, axis)) return partial_contraction(r, axis);
  rule_fail_partial(r, 2, axis, "counts must be known, not pending");
  return REDUCE_NONE;
}

static void letters(Rule *r, Grouped *g, LetterRule batch, LetterRule in) {
  g->batch = rule_new_letter(r, batch);
  g->block = rule_new_letter(r, LETTER_FREE);
  g->place = rule_new_letter(r, LETTER_WHOLE);
  g->in = rule_new_letter(r, in);
  g->out = rule_new_letter(r, LETTER_FREE);
  r->letters.reduce = REDUCE_SUM;
}

static bool same_float(Rule *r) {
  const TensorType *a = rule_type(r, 0), *b = rule_type(r, 1);
  if (!rule_want_float(r, 0)) return false;
  if (a->dtype == b->dtype) return true;
  return rule_fail(r, DIAG_OPERAND_DTYPE, 1, -1,
                   rule_text(r, "%s: operands of different element types", r->info->name),
                   rule_text(r, "they are %s and %s", dtype_name(a->dtype), dtype_name(b->dtype)));
}

bool rule_grouped_linear(Rule *r) {
  const TensorType *x = rule_type(r, 0), *w = rule_type(r, 1);
  bool reverse = rule_int(r, ATTR_REVERSE, 0) != 0;
  Grouped g;
  letters(r, &g, LETTER_FREE, LETTER_REDUCED);
  if (!same_float(r) || !rows(r, &g, 0, g.in) || !want(r, 1, 3, "[experts, out, in]") ||
      !counts(r, &g))
    return false;
  uint32_t in = reverse ? 1 : 2, out = reverse ? 2 : 1;
  r->letters.of[1][0] = g.block;
  r->letters.of[1][in] = g.in;
  r->letters.of[1][out] = g.out;
  if (w->shape[in] != x->shape[3])
    return rule_fail_shape(r, 1,
                           rule_text(r, "the rows are %lld wide, the weight takes %lld",
                                     (long long)x->shape[3], (long long)w->shape[in]));
  if (w->shape[0] != rule_type(r, 2)->shape[1])
    return rule_fail_shape(r, 2, "counts have one entry for each expert of the weight");
  rule_result(r, 0, x->dtype);
  for (uint32_t d = 0; d < 3; d++)
    if (!rule_result_dim(r, 0, x->shape[d], r->letters.of[0][d])) return false;
  return rule_result_dim(r, 0, w->shape[out], g.out) && rule_derive(r, partial_rows) &&
         check_blocks(r);
}

bool rule_grouped_linear_weight(Rule *r) {
  const TensorType *y = rule_type(r, 0), *x = rule_type(r, 1);
  Grouped g;
  letters(r, &g, LETTER_REDUCED, LETTER_FREE);
  if (!same_float(r) || !rows(r, &g, 0, g.out) || !rows(r, &g, 1, g.in) || !counts(r, &g))
    return false;
  for (uint32_t d = 0; d < 3; d++)
    if (y->shape[d] != x->shape[d]) return rule_fail_shape(r, 1, "both must have the same rows");
  rule_result(r, 0, x->dtype);
  return rule_result_dim(r, 0, rule_type(r, 2)->shape[1], g.block) &&
         rule_result_dim(r, 0, y->shape[3], g.out) && rule_result_dim(r, 0, x->shape[3], g.in) &&
         rule_derive(r, partial_rows) && check_blocks(r);
}
