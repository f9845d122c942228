/* Factories: the type is stated; it must make sense, and a stated Partial must be one that every
 * rank can hold alike.
 */
#include "infer/rules.h"

/* A scalar on no mesh in particular, unless a type is stated for its mesh. */
static bool rule_scalar(Rule *r, DType dtype) {
  const Attr *stated = rule_attr(r, ATTR_TYPE);
  r->out->results[0] = (TensorType){.dtype = dtype};
  if (stated) r->out->results[0].mesh = stated->as.type->mesh;
  r->out->nresults = 1;
  return true;
}

bool rule_stated(Rule *r) {
  const Attr *stated = rule_attr(r, ATTR_TYPE);
  DiagCode code;
  int axis;
  if (!stated) return rule_fail_argument(r, "the type of the result is missing");
  const TensorType *t = stated->as.type;
  const char *fault = type_fault(r->arena, t, &code, &axis);
  if (fault)
    return rule_fail(
        r, code, 0, axis,
        rule_text(r, "%s: the type %s does not make sense", r->info->name, type_print(r->arena, t)),
        fault);
  r->out->results[0] = *t;
  r->out->nresults = 1;
  return true;
}

/* A value that every rank makes alike may be declared Partial only where that many copies of it
 * reduce to it. */
bool rule_made(Rule *r) {
  if (!rule_stated(r)) return false;
  const TensorType *t = &r->out->results[0];
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    if (r->op == OP_FULL && reduce_keeps((ReduceOp)p.op, rule_float(r, ATTR_VALUE, 0))) continue;
    r->mesh = t->mesh;
    return rule_fail(r, DIAG_PARTIAL_OPERAND, 0, (int)a,
                     rule_text(r, "%s cannot make a Partial value on mesh dim %s", r->info->name,
                               rule_axis_name(r, a)),
                     r->op == OP_FULL
                         ? "that many copies of the value do not reduce to the value"
                         : "every rank computes the whole value, so it is Replicate or Shard");
  }
  return true;
}

static bool want_result(Rule *r, bool ok, const char *kinds) {
  if (ok) return true;
  return rule_fail_argument(r, rule_text(r, "the result must be %s, not %s", kinds,
                                         dtype_name(r->out->results[0].dtype)));
}

bool rule_const(Rule *r) {
  int64_t dtype = rule_int(r, ATTR_DTYPE, DT_NONE);
  if (dtype <= DT_NONE || dtype >= DT_COUNT) return rule_fail_argument(r, "no such element type");
  return rule_scalar(r, (DType)dtype);
}

bool rule_random_numbers(Rule *r) {
  return rule_made(r) && want_result(r, dtype_is_float(r->out->results[0].dtype), "floating-point");
}

bool rule_range(Rule *r) {
  if (!rule_made(r)) return false;
  if (r->out->results[0].rank != 1) return rule_fail_argument(r, "the result must have one dim");
  return want_result(r, r->out->results[0].dtype != DT_BOOL, "a number type");
}

bool rule_iota(Rule *r) {
  if (!rule_made(r)) return false;
  int64_t dim = rule_int(r, ATTR_DIM, 0), rank = r->out->results[0].rank;
  if (dim < 0 || dim >= rank)
    return rule_fail_argument(r, rule_text(r, "dim %lld is outside the result's %lld dims",
                                           (long long)dim, (long long)rank));
  return want_result(r, r->out->results[0].dtype != DT_BOOL, "a number type");
}

bool rule_same(Rule *r) {
  r->out->results[0] = *rule_type(r, 0);
  r->out->nresults = 1;
  return true;
}
bool rule_sink(Rule *r) {
  r->out->nresults = 0;
  return true;
}
bool rule_step(Rule *r) {
  return rule_scalar(r, DT_I64);
}
