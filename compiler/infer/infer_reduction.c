/* Reductions: over a sharded dim the result is Partial of the operator's own reduction, when it has
 * one; of a Partial operand only that same reduction commutes.
 */
#include "infer/rules.h"

typedef enum ReductionTypes {
  TYPES_FLOAT = 0,
  TYPES_NUMBER,
  TYPES_NUMBER_OR_BOOL,
  TYPES_BOOL
} ReductionTypes;

/* What a reduction over a sharded dim leaves pending, and which Partial operands it passes. A row
 * of zeros: floats only, dims whole, no Partial. */
typedef struct ReductionRule {
  ReductionTypes types;
  ReduceOp pending;  /* REDUCE_NONE: the dim must be whole */
  bool linear;       /* passes Partial(sum|avg) */
  ReduceOp passes;   /* one further op that passes */
  bool needs_values; /* no neutral element: a global extent of 0 has no result */
} ReductionRule;

static const ReductionRule rules[OP_COUNT] = {
    [OP_SUM] = {TYPES_NUMBER_OR_BOOL, REDUCE_SUM, true, REDUCE_NONE, false},
    [OP_MEAN] = {TYPES_FLOAT, REDUCE_SUM, true, REDUCE_NONE, false},
    [OP_PROD] = {TYPES_NUMBER, REDUCE_PRODUCT, false, REDUCE_PRODUCT, false},
    [OP_MAX] = {TYPES_NUMBER_OR_BOOL, REDUCE_MAX, false, REDUCE_MAX, true},
    [OP_MIN] = {TYPES_NUMBER_OR_BOOL, REDUCE_MIN, false, REDUCE_MIN, true},
    [OP_ANY] = {TYPES_BOOL, REDUCE_MAX, false, REDUCE_MAX, false},
    [OP_ALL] = {TYPES_BOOL, REDUCE_MIN, false, REDUCE_MIN, false},
    [OP_NORM_L1] = {TYPES_FLOAT, REDUCE_SUM, false, REDUCE_NONE, false},
    [OP_NORM_INF] = {TYPES_FLOAT, REDUCE_MAX, false, REDUCE_NONE, false},
};

static ReduceOp partial_reduction(Rule *r, uint32_t axis) {
  ReductionRule rule = rules[r->op];
  ReduceOp op = rule_partial_op(r, 0, axis);
  if ((rule.linear && reduce_is_linear(op)) || (op == rule.passes)) return op;
  return partial_nonlinear(r, axis);
}

/* The result's element type: sums of bool count in i64, means of bool are f32. */
static bool reduction_dtype(Rule *r, DType *dtype) {
  DType t = rule_type(r, 0)->dtype;
  bool is_bool = t == DT_BOOL;
  *dtype = !is_bool ? t : r->op == OP_SUM ? DT_I64 : r->op == OP_MEAN ? DT_F32 : DT_BOOL;
  switch (rules[r->op].types) {
  case TYPES_NUMBER:
    return rule_want_number(r, 0);
  case TYPES_NUMBER_OR_BOOL:
    return is_bool || rule_want_number(r, 0);
  case TYPES_BOOL:
    return is_bool || rule_want_bool(r, 0);
  case TYPES_FLOAT:
    return (is_bool && r->op == OP_MEAN) || rule_want_float(r, 0);
  }
  return false;
}

bool rule_reduction(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  ReductionRule rule = rules[r->op];
  DType dtype;
  uint32_t dims;
  if (!reduction_dtype(r, &dtype) || !rule_dims(r, true, &dims)) return false;
  bool keep = rule_int(r, ATTR_KEEPDIM, 0) != 0;
  rule_result(r, 0, dtype);
  r->letters.reduce = rule.pending;
  for (uint32_t d = 0; d < t->rank; d++) {
    bool reduced = dims >> d & 1;
    if (reduced && t->shape[d] == 0 && rule.needs_values)
      return rule_fail(r, DIAG_EMPTY_EXTREMUM, 0, -1,
                       rule_text(r, "%s over dim %u, which has extent 0", r->info->name, d),
                       "no element means no largest or smallest one");
    int8_t l = rule_new_letter(r, !reduced       ? LETTER_FREE
                                  : rule.pending ? LETTER_REDUCED
                                                 : LETTER_WHOLE);
    r->letters.of[0][d] = l;
    if (!reduced && !rule_result_dim(r, 0, t->shape[d], l)) return false;
    if (reduced && keep && !rule_result_dim(r, 0, 1, LETTER_NONE)) return false;
  }
  if (!rule_derive(r, partial_reduction)) {
    InferResult *out = r->out;
    if (out->code == DIAG_SHARDED_DIM &&
        (r->op == OP_NORM_L2 || r->op == OP_STD || r->op == OP_VAR))
      out->reason = rule_text(
          r, "%s; spelled as sqrt(sum(square(x))) the sum is a Partial to reduce", out->reason);
    return false;
  }
  return true;
}
