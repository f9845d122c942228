/* Pointwise operators: broadcasting, element types, and how Partial passes by trait.
 *
 * Operands are aligned after broadcasting; each aligned dim has one letter. A shorter list of axes
 * that is a prefix of the longer is sliced locally (the zero-byte exception of the engine).
 */
#include "infer/rules.h"

static bool result_dtype(Rule *r, DType *dtype) {
  DType t = rule_type(r, 0)->dtype;
  switch (r->info->types) {
  case TR_NUMBER:
    *dtype = t;
    return rule_same_dtype(r) && rule_want_number(r, 0);
  case TR_FLOAT:
    *dtype = t;
    return rule_same_dtype(r) && rule_want_float(r, 0);
  case TR_INTEGER:
    *dtype = t;
    if (!rule_same_dtype(r)) return false;
    if (t == DT_BOOL && r->op != OP_SHIFT_LEFT && r->op != OP_SHIFT_RIGHT) return true;
    return rule_want_integer(r, 0, "operands");
  case TR_BOOL:
    *dtype = DT_BOOL;
    return rule_same_dtype(r) && rule_want_bool(r, 0);
  case TR_COMPARE:
    *dtype = DT_BOOL;
    return rule_same_dtype(r) && (t == DT_BOOL || rule_want_number(r, 0));
  case TR_TEST:
    *dtype = DT_BOOL;
    return rule_want_float(r, 0);
  case TR_WHERE: {
    DType a = rule_type(r, 1)->dtype, b = rule_type(r, 2)->dtype;
    *dtype = a;
    if (t == DT_BOOL && a == b) return true;
    return rule_fail(
        r, DIAG_OPERAND_DTYPE, t == DT_BOOL ? 2 : 0, -1, "where: operand of the wrong element type",
        t == DT_BOOL ? rule_text(r,
                                 "the first value is %s but the second is %s, and there is no "
                                 "implicit promotion",
                                 dtype_name(a), dtype_name(b))
                     : rule_text(r, "the condition is %s, not bool", dtype_name(t)));
  }
  case TR_CAST:
    *dtype = (DType)rule_int(r, ATTR_DTYPE, DT_NONE);
    if (*dtype > DT_NONE && *dtype < DT_COUNT) return true;
    return rule_fail_argument(r, "cast needs the element type to convert to");
  case TR_NONE:
    break;
  }
  return rule_fail_argument(r, "no element type rule");
}

/* Aligns dims from the right; extent 1 broadcasts. Fills the result's shape and all letters. */
static bool broadcast(Rule *r, DType dtype) {
  uint32_t rank = 0;
  for (uint32_t i = 0; i < r->n; i++)
    if (rule_type(r, i)->rank > rank) rank = rule_type(r, i)->rank;
  rule_result(r, 0, dtype);
  for (uint32_t d = 0; d < rank; d++) {
    int64_t extent = 1;
    uint32_t giver = 0;
    for (uint32_t i = 0; i < r->n; i++) {
      const TensorType *t = rule_type(r, i);
      if (t->rank + d < rank) continue;
      int64_t e = t->shape[d + t->rank - rank];
      if (e == 1 || e == extent) continue;
      if (extent != 1)
        return rule_fail_shape(r, i,
                               rule_text(r, "extent %lld of %s does not match extent %lld of %s",
                                         (long long)e, rule_operand_name(r, i), (long long)extent,
                                         rule_operand_name(r, giver)));
      extent = e;
      giver = i;
    }
    int8_t letter = rule_new_letter(r, LETTER_FREE);
    for (uint32_t i = 0; i < r->n; i++) {
      const TensorType *t = rule_type(r, i);
      if (t->rank + d < rank) continue;
      uint32_t own = d + t->rank - rank;
      r->letters.of[i][own] = t->shape[own] == extent ? letter : LETTER_NONE;
    }
    if (!rule_result_dim(r, 0, extent, letter)) return false;
  }
  return true;
}

/* --- Partial by trait ---------------------------------------------------------------------------
 * Each function gets the ops of both operands on the axis (REDUCE_NONE = Replicate) and answers the
 * op of the result, or REDUCE_NONE when there is no row. */

static bool is_extremum(ReduceOp op) {
  return op == REDUCE_MAX || op == REDUCE_MIN;
}
static ReduceOp mirrored(ReduceOp op) {
  return op == REDUCE_MAX ? REDUCE_MIN : REDUCE_MAX;
}

static ReduceOp add_rule(ReduceOp a, ReduceOp b, bool subtract, bool wraps) {
  if (a == b && reduce_is_linear(a)) return a;
  if (a && b) return REDUCE_NONE;
  ReduceOp op = a ? a : b;
  if (op == REDUCE_AVG) return op;
  /* Order survives a common shift, unless unsigned numbers wrap around. */
  if (is_extremum(op) && !wraps) return subtract && b ? mirrored(op) : op;
  return REDUCE_NONE;
}

/* A factor that is the same on all ranks; `c` when it is a constant. */
static ReduceOp scale_rule(ReduceOp op, bool constant, double c, bool wraps) {
  if (reduce_is_linear(op)) return op;
  if (is_extremum(op) && constant && !wraps) {
    if (c >= 0) return op;
    if (c < 0) return mirrored(op);
  }
  return REDUCE_NONE;
}

static ReduceOp mul_rule(const Rule *r, ReduceOp a, ReduceOp b, bool wraps) {
  if (a == REDUCE_PRODUCT && b == REDUCE_PRODUCT) return a;
  if (a && b) return REDUCE_NONE;
  const Operand *factor = &r->operand[a ? 1 : 0];
  return scale_rule(a ? a : b, factor->is_const, factor->const_value, wraps);
}

static ReduceOp div_rule(const Rule *r, ReduceOp a, ReduceOp b) {
  if (a == REDUCE_PRODUCT && b == REDUCE_PRODUCT) return a;
  if (b) return REDUCE_NONE;
  const Operand *divisor = &r->operand[1];
  if (is_extremum(a) && divisor->const_value == 0) return REDUCE_NONE;
  return scale_rule(a, divisor->is_const, divisor->const_value, false);
}

/* An operation against its own Partial; beside Replicate where it is idempotent. */
static ReduceOp own_rule(ReduceOp own, ReduceOp a, ReduceOp b, bool idempotent) {
  if (a == own && b == own) return own;
  if (idempotent && ((a == own && !b) || (b == own && !a))) return own;
  return REDUCE_NONE;
}

static ReduceOp where_rule(const Rule *r, ReduceOp cond, ReduceOp a, ReduceOp b) {
  if (cond) return REDUCE_NONE;
  if (a == b) return a;
  if (a && b) return REDUCE_NONE;
  ReduceOp op = a ? a : b;
  const Operand *other = &r->operand[a ? 2 : 1];
  if (op == REDUCE_AVG || is_extremum(op)) return op;
  return other->is_const && reduce_keeps(op, other->const_value) ? op : REDUCE_NONE;
}

/* A conversion keeps order when it is monotone: not into bool, and not where negatives wrap. */
static bool cast_is_monotone(DType from, DType to) {
  if (dtype_widens(from, to)) return true;
  if (to == DT_BOOL || to == DT_U8) return false;
  return true;
}

/* Widening keeps sums when the arithmetic does not wrap before it. */
static ReduceOp cast_rule(const Rule *r, ReduceOp op) {
  DType from = rule_type(r, 0)->dtype, to = (DType)rule_int(r, ATTR_DTYPE, DT_NONE);
  if (from == to) return op;
  if (is_extremum(op)) return cast_is_monotone(from, to) ? op : REDUCE_NONE;
  /* Where one rank's addend is the whole sum and the others are 0, converting it is exact. */
  if (op == REDUCE_SUM && dtype_is_float(to) && rule_int(r, ATTR_SINGLE, 0)) return op;
  bool arithmetic = reduce_is_linear(op) || op == REDUCE_PRODUCT;
  return arithmetic && dtype_widens(from, to) && from != DT_U8 ? op : REDUCE_NONE;
}

static ReduceOp trait_rule(const Rule *r, const ReduceOp op[3]) {
  bool wraps = rule_type(r, 0)->dtype == DT_U8;
  switch (r->info->trait) {
  case PW_NEG:
    if (reduce_is_linear(op[0])) return op[0];
    return is_extremum(op[0]) && !wraps ? mirrored(op[0]) : REDUCE_NONE;
  case PW_ADD:
    return add_rule(op[0], op[1], false, wraps);
  case PW_SUB:
    return add_rule(op[0], op[1], true, wraps);
  case PW_MUL:
    return mul_rule(r, op[0], op[1], wraps);
  case PW_DIV:
    return div_rule(r, op[0], op[1]);
  case PW_MAX:
    return own_rule(REDUCE_MAX, op[0], op[1], true);
  case PW_MIN:
    return own_rule(REDUCE_MIN, op[0], op[1], true);
  case PW_ABS:
  case PW_SQUARE:
    return op[0] == REDUCE_PRODUCT ? op[0] : REDUCE_NONE;
  case PW_BIT_AND:
    return own_rule(REDUCE_AND, op[0], op[1], true);
  case PW_BIT_OR:
    return own_rule(REDUCE_OR, op[0], op[1], true);
  case PW_BIT_XOR:
    return own_rule(REDUCE_XOR, op[0], op[1], false);
  case PW_WHERE:
    return where_rule(r, op[0], op[1], op[2]);
  case PW_CAST:
    return cast_rule(r, op[0]);
  case PW_LINEAR_FIRST:
    return op[1] || !reduce_is_linear(op[0]) ? REDUCE_NONE : op[0];
  case PW_NONLINEAR:
  case PW_NONE:
    break;
  }
  return REDUCE_NONE;
}

/* --- why there is no row ------------------------------------------------------------------------
 */

static bool fail_addend(Rule *r, uint32_t pending, uint32_t other, uint32_t axis) {
  ReduceOp op = rule_partial_op(r, pending, axis);
  return rule_fail(
      r, DIAG_PARTIAL_ADDEND, pending, (int)axis,
      rule_text(r, "%s: a Partial beside a value that every rank has, on mesh dim %s",
                r->info->name, rule_axis_name(r, axis)),
      op == REDUCE_SUM
          ? rule_text(
                r, "%s is Partial(sum) and %s is not: it would be added once per rank, %lld times",
                rule_operand_name(r, pending), rule_operand_name(r, other),
                (long long)r->mesh->size[axis])
          : rule_text(r, "%s is Partial(%s) and %s is not: it would take part once per rank",
                      rule_operand_name(r, pending), reduce_op_name(op),
                      rule_operand_name(r, other)));
}

static bool fail_pair(Rule *r, ReduceOp a, ReduceOp b, uint32_t second, uint32_t axis) {
  const char *reason =
      a != b ? rule_text(r, "one is pending %s, the other %s: no single reduction finishes both",
                         reduce_article(a), reduce_article(b))
             : rule_text(r, "%s of the addends of two %ss is not %s of addends", r->info->name,
                         reduce_noun(a), reduce_article(a));
  return rule_fail(r, DIAG_PARTIAL_PAIR, second, (int)axis,
                   rule_text(r, "%s cannot take two Partial operands on mesh dim %s", r->info->name,
                             rule_axis_name(r, axis)),
                   reason);
}

static bool fail_trait(Rule *r, uint32_t axis, const ReduceOp op[3]) {
  uint32_t first = op[0] ? 0 : op[1] ? 1 : 2, second = first;
  for (uint32_t i = first + 1; i < r->n; i++)
    if (op[i]) second = i;
  PointwiseTrait trait = r->info->trait;
  if (trait == PW_CAST) {
    DType from = rule_type(r, 0)->dtype, to = (DType)rule_int(r, ATTR_DTYPE, DT_NONE);
    return rule_fail(r, DIAG_PARTIAL_CAST, 0, (int)axis,
                     rule_text(r, "cast from %s to %s of a Partial operand on mesh dim %s",
                               dtype_name(from), dtype_name(to), rule_axis_name(r, axis)),
                     dtype_widens(from, to)
                         ? rule_text(r, "%s of converted addends is not the converted %s",
                                     reduce_article(op[0]), reduce_noun(op[0]))
                         : rule_text(r,
                                     "an addend may not fit %s although the %s does: reduce "
                                     "first, or state forward_dtype in the redistribute",
                                     dtype_name(to), reduce_noun(op[0])));
  }
  if (trait == PW_WHERE && op[0])
    return rule_fail_partial(r, 0, axis, "a condition chooses: it must be known, not pending");
  bool additive = trait == PW_ADD || trait == PW_SUB || trait == PW_WHERE;
  if (second != first &&
      (trait == PW_MUL || trait == PW_DIV || additive || trait == PW_MAX || trait == PW_MIN))
    return fail_pair(r, op[first], op[second], second, axis);
  if (additive) {
    uint32_t other = trait == PW_WHERE ? 3 - first : 1 - first;
    return fail_addend(r, first, other, axis);
  }
  if (trait == PW_DIV && first == 1)
    return rule_fail_partial(r, 1, axis,
                             "division is linear in the dividend only: dividing by addends is not "
                             "dividing by their sum");
  if (trait == PW_MUL || trait == PW_DIV)
    return rule_fail_partial(
        r, first, axis,
        op[first] == REDUCE_PRODUCT
            ? "a factor beside a pending product would be multiplied in once per rank"
            : rule_text(r, "scaling keeps %s only where the sign of the factor is a known constant",
                        reduce_article(op[first])));
  if (trait == PW_LINEAR_FIRST && op[1])
    return rule_fail_partial(r, 1, axis,
                             rule_text(r, "%s is linear in its cotangent only", r->info->name));
  partial_nonlinear(r, axis);
  return false;
}

static ReduceOp partial_pointwise(Rule *r, uint32_t axis) {
  ReduceOp op[3] = {REDUCE_NONE};
  for (uint32_t i = 0; i < r->n; i++) op[i] = rule_partial_op(r, i, axis);
  ReduceOp result = trait_rule(r, op);
  if (!result) fail_trait(r, axis, op);
  return result;
}

bool rule_pointwise(Rule *r) {
  DType dtype = DT_NONE;
  r->letters.prefix = true;
  return result_dtype(r, &dtype) && broadcast(r, dtype) && rule_derive(r, partial_pointwise);
}
