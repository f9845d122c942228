/* What all rule classes share: faults and their sentences, attributes, Partial, element types.
 *
 * Invariant: every function that returns false has filled `out` through rule_fail.
 */
#include <string.h>

#include "infer/rules.h"

const char *rule_text(const Rule *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *text = arena_vprintf(r->arena, fmt, ap);
  va_end(ap);
  return text;
}

bool rule_fail(Rule *r, DiagCode code, uint32_t operand, int axis, const char *message,
               const char *reason) {
  r->out->status = INFER_ERROR;
  r->out->code = code;
  r->out->bad_operand = operand;
  r->out->bad_axis = axis;
  r->out->message = message;
  r->out->reason = reason;
  return false;
}

const char *rule_operand_name(const Rule *r, uint32_t i) {
  static const char *const linear[] = {"the input", "the weight", "the bias"};
  if (r->op == OP_LINEAR || r->op == OP_LAYER_NORM || r->op == OP_RMS_NORM) return linear[i];
  if (r->op == OP_EMBEDDING) return i ? "the weight" : "the ids";
  if (r->op == OP_CROSS_ENTROPY)
    return i == 0 ? "the logits" : i == 1 ? "the labels" : "the class weights";
  if (r->op == OP_ATTENTION || r->op == OP_ATTENTION_BACKWARD) {
    static const char *const attention[] = {
        "the cotangent",       "q",           "k",          "v", "the output",
        "the log of the sums", "q_positions", "k_positions"};
    uint32_t k = r->op == OP_ATTENTION_BACKWARD ? i : i < 3 ? i + 1 : i + 3;
    return attention[k];
  }
  if (r->op == OP_WHERE)
    return i == 0 ? "the condition" : i == 1 ? "the first value" : "the second value";
  if (r->n == 1) return "the operand";
  if (r->n == 2) return i ? "the right operand" : "the left operand";
  return rule_text(r, "operand %u", i + 1);
}

const char *rule_axis_name(const Rule *r, uint32_t axis) {
  return r->mesh->axis[axis];
}

const Attr *rule_attr(const Rule *r, AttrKey key) {
  return attrs_find(r->attrs, r->nattrs, key);
}

int64_t rule_int(const Rule *r, AttrKey key, int64_t otherwise) {
  return attrs_int(r->attrs, r->nattrs, key, otherwise);
}

double rule_float(const Rule *r, AttrKey key, double otherwise) {
  return attrs_float(r->attrs, r->nattrs, key, otherwise);
}

static bool dim_index(Rule *r, int64_t given, uint32_t *dim) {
  int64_t rank = rule_type(r, 0)->rank;
  if (given < -rank || given >= rank)
    return rule_fail_argument(r, rank == 0
                                     ? "the operand is a scalar and has no dims"
                                     : rule_text(r, "dim %lld is outside the operand's %lld dims",
                                                 (long long)given, (long long)rank));
  *dim = (uint32_t)(given < 0 ? given + rank : given);
  return true;
}

bool rule_dim(Rule *r, int64_t otherwise, uint32_t *dim) {
  return dim_index(r, rule_int(r, ATTR_DIM, otherwise), dim);
}

bool rule_dims(Rule *r, bool none_is_all, uint32_t *set) {
  const Attr *a = rule_attr(r, ATTR_DIMS);
  *set = 0;
  if ((!a || a->as.ints.len == 0) && none_is_all) {
    *set = (1u << rule_type(r, 0)->rank) - 1;
    return true;
  }
  for (uint32_t i = 0; a && i < a->as.ints.len; i++) {
    uint32_t d = 0;
    if (!dim_index(r, a->as.ints.data[i], &d)) return false;
    if (*set >> d & 1) return rule_fail_argument(r, rule_text(r, "dim %u is named twice", d));
    *set |= 1u << d;
  }
  return true;
}

/* --- Partial ------------------------------------------------------------------------------------
 */

bool rule_is_partial(const Rule *r, uint32_t i, uint32_t axis) {
  return rule_place_at(r, i, axis).kind == PLACE_PARTIAL;
}

ReduceOp rule_partial_op(const Rule *r, uint32_t i, uint32_t axis) {
  Place p = rule_place_at(r, i, axis);
  return p.kind == PLACE_PARTIAL ? (ReduceOp)p.op : REDUCE_NONE;
}

bool reduce_is_linear(ReduceOp op) {
  return op == REDUCE_SUM || op == REDUCE_AVG;
}

bool reduce_keeps(ReduceOp op, double v) {
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_XOR:
    return v == 0;
  case REDUCE_PRODUCT:
    return v == 0 || v == 1;
  case REDUCE_AVG:
  case REDUCE_MAX:
  case REDUCE_MIN:
  case REDUCE_AND:
  case REDUCE_OR:
    return true;
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return false;
}

const char *reduce_article(ReduceOp op) {
  static const char *const text[REDUCE_COUNT] = {"a value",   "a sum",     "a mean",
                                                 "a product", "a maximum", "a minimum",
                                                 "an AND",    "an OR",     "an XOR"};
  return text[op];
}

const char *reduce_noun(ReduceOp op) {
  static const char *const text[REDUCE_COUNT] = {"value",   "sum", "mean", "product", "maximum",
                                                 "minimum", "AND", "OR",   "XOR"};
  return text[op];
}

bool rule_fail_partial(Rule *r, uint32_t operand, uint32_t axis, const char *reason) {
  return rule_fail(r, DIAG_PARTIAL_OPERAND, operand, (int)axis,
                   rule_text(r, "%s cannot take a Partial operand on mesh dim %s", r->info->name,
                             rule_axis_name(r, axis)),
                   reason);
}

bool rule_fail_shape(Rule *r, uint32_t operand, const char *reason) {
  return rule_fail(r, DIAG_OPERAND_SHAPE, operand, -1,
                   rule_text(r, "%s: operand shapes do not fit", r->info->name), reason);
}

bool rule_fail_argument(Rule *r, const char *reason) {
  return rule_fail(r, DIAG_OPERATOR_ARGUMENT, 0, -1, rule_text(r, "%s: %s", r->info->name, reason),
                   NULL);
}

/* The first operand that is Partial on the axis; the caller knows there is one. */
static uint32_t first_partial(const Rule *r, uint32_t axis) {
  uint32_t i = 0;
  while (!rule_is_partial(r, i, axis)) i++;
  return i;
}

/* "gelus", "softmaxes" */
static const char *plural(const Rule *r, const char *name) {
  size_t n = strlen(name);
  bool hisses = n && strchr("sxzh", name[n - 1]);
  return rule_text(r, "%s%s", name, hisses ? "es" : "s");
}

ReduceOp partial_nonlinear(Rule *r, uint32_t axis) {
  uint32_t i = first_partial(r, axis);
  ReduceOp op = rule_partial_op(r, i, axis);
  const char *name = r->info->name, *reason;
  if (r->info->types == TR_COMPARE)
    reason = rule_text(r, "a comparison needs the value: its addends compare differently");
  else if (r->info->cls == CLASS_RANDOM || r->info->cls == CLASS_WHOLE_DIM)
    reason =
        rule_text(r, "%s works on the value, and this is pending %s", name, reduce_article(op));
  else
    reason = rule_text(r, "%s is not linear: %s of %s is not the %s of %s", name, name,
                       reduce_article(op), reduce_noun(op), plural(r, name));
  rule_fail_partial(r, i, axis, reason);
  return REDUCE_NONE;
}

ReduceOp partial_linear_first(Rule *r, uint32_t axis) {
  ReduceOp op = rule_partial_op(r, 0, axis);
  for (uint32_t i = 1; i < r->n; i++)
    if (rule_is_partial(r, i, axis)) {
      rule_fail_partial(r, i, axis,
                        rule_text(r, "%s is linear in its first operand only", r->info->name));
      return REDUCE_NONE;
    }
  if (reduce_is_linear(op)) return op;
  rule_fail_partial(r, 0, axis,
                    rule_text(r, "%s is linear: it passes a pending sum or mean, not %s",
                              r->info->name, reduce_article(op)));
  return REDUCE_NONE;
}

ReduceOp partial_movement(Rule *r, uint32_t axis) {
  return rule_partial_op(r, 0, axis);
}

/* --- element types ------------------------------------------------------------------------------
 */

static bool fail_dtype(Rule *r, uint32_t i, const char *reason) {
  return rule_fail(r, DIAG_OPERAND_DTYPE, i, -1,
                   rule_text(r, "%s: operand of the wrong element type", r->info->name), reason);
}

bool rule_same_dtype(Rule *r) {
  for (uint32_t i = 1; i < r->n; i++) {
    DType a = rule_type(r, 0)->dtype, b = rule_type(r, i)->dtype;
    if (a != b)
      return fail_dtype(r, i,
                        rule_text(r, "%s is %s but %s is %s, and there is no implicit promotion",
                                  rule_operand_name(r, 0), dtype_name(a), rule_operand_name(r, i),
                                  dtype_name(b)));
  }
  return true;
}

static bool want(Rule *r, uint32_t i, bool ok, const char *kinds) {
  DType t = rule_type(r, i)->dtype;
  if (dtype_is_storage(t))
    return fail_dtype(
        r, i,
        rule_text(r, "%s is a storage type: cast it before computing with it", dtype_name(t)));
  if (ok) return true;
  return fail_dtype(r, i, rule_text(r, "%s takes %s, not %s", r->info->name, kinds, dtype_name(t)));
}

bool rule_want_float(Rule *r, uint32_t i) {
  return want(r, i, dtype_is_float(rule_type(r, i)->dtype), "floating-point operands");
}
bool rule_want_number(Rule *r, uint32_t i) {
  return want(r, i, rule_type(r, i)->dtype != DT_BOOL, "numbers");
}
bool rule_want_bool(Rule *r, uint32_t i) {
  return want(r, i, rule_type(r, i)->dtype == DT_BOOL, "bool");
}
bool rule_want_integer(Rule *r, uint32_t i, const char *role) {
  return want(r, i, dtype_is_integer(rule_type(r, i)->dtype), rule_text(r, "integers as %s", role));
}
