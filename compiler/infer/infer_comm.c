/* redistribute and what the planner lowers it to: the target type is stated; this checks that it is
 * the same value and that the change exists.
 */
#include <string.h>

#include "infer/rules.h"

static bool fail_target(Rule *r, int axis, const char *reason) {
  return rule_fail(r, DIAG_REDISTRIBUTE_TARGET, 0, axis,
                   rule_text(r, "%s: there is no way to that layout", r->info->name), reason);
}

/* One axis of a redistribute on one mesh. */
static bool check_axis(Rule *r, uint32_t axis, Place from, Place to) {
  if (to.kind != PLACE_PARTIAL) return true;
  const char *name = rule_axis_name(r, axis);
  if (from.kind == PLACE_PARTIAL && from.op != to.op)
    return fail_target(r, (int)axis,
                       rule_text(r, "Partial(%s) on %s cannot become Partial(%s): reduce it first",
                                 reduce_op_name((ReduceOp)from.op), name,
                                 reduce_op_name((ReduceOp)to.op)));
  if (from.kind == PLACE_SHARD && to.op != REDUCE_SUM)
    return fail_target(r, (int)axis,
                       rule_text(r,
                                 "Shard(%u) on %s can be filled with zeros to Partial(sum), not "
                                 "to Partial(%s)",
                                 from.dim, name, reduce_op_name((ReduceOp)to.op)));
  return true;
}

/* A value that is Partial on a mesh dim where its target is not is added up, in the type it travels
 * in, which cannot be one that is only for storage. */
static bool check_sums(Rule *r, const TensorType *from, const TensorType *to) {
  const Attr *stated = rule_attr(r, ATTR_FORWARD_DTYPE);
  DType moved = stated ? (DType)stated->as.i : from->dtype;
  for (uint32_t b = 0; from->mesh && dtype_is_storage(moved) && b < from->mesh->naxes; b++) {
    bool stays = false;
    for (uint32_t a = 0; a < to->mesh->naxes; a++)
      stays |= to->mesh->axis[a] == from->mesh->axis[b] && to->layout.at[a].kind == PLACE_PARTIAL;
    if (from->layout.at[b].kind == PLACE_PARTIAL && !stays)
      return fail_target(r, (int)b,
                         rule_text(r,
                                   "%s is a storage type: a Partial value is not added up in it; "
                                   "state a wider forward_dtype",
                                   dtype_name(moved)));
  }
  return true;
}

bool rule_comm(Rule *r) {
  const Attr *stated = rule_attr(r, ATTR_TYPE);
  const TensorType *from = rule_type(r, 0);
  DiagCode code;
  int axis;
  if (!stated) return rule_fail_argument(r, "the target type is missing");
  const TensorType *to = stated->as.type;
  if (to->dtype != from->dtype || !type_same_elements(to, from))
    return rule_fail_shape(r, 0,
                           rule_text(r, "%s is not %s under another layout",
                                     type_print(r->arena, to), type_print(r->arena, from)));
  const char *fault = type_fault(r->arena, to, &code, &axis);
  if (fault)
    return rule_fail(r, code, 0, axis,
                     rule_text(r, "%s: the type %s does not make sense", r->info->name,
                               type_print(r->arena, to)),
                     fault);
  r->out->results[0] = *to;
  r->out->nresults = 1;
  if (!r->mesh) r->mesh = to->mesh; /* a scalar constant is on every mesh */
  if (r->op == OP_REDISTRIBUTE && !check_sums(r, from, to)) return false;
  for (uint32_t a = 0; a < to->mesh->naxes; a++) {
    Place was = {0};
    for (uint32_t b = 0; from->mesh && b < from->mesh->naxes; b++)
      if (from->mesh->axis[b] == to->mesh->axis[a]) was = from->layout.at[b];
    if (r->op == OP_REDISTRIBUTE && !check_axis(r, a, was, to->layout.at[a])) return false;
    if (r->explain && to->layout.at[a].kind == PLACE_PARTIAL && was.kind != PLACE_PARTIAL)
      r->out->why_partial[a] = rule_text(r, "the redistribute asks for it");
  }
  return true;
}

/* `used` of operand i counts rows of a value placed as `of`. */
static bool check_used(Rule *r, uint32_t i, const TensorType *of) {
  const TensorType *used = rule_type(r, i);
  uint8_t a[DTM_MAX_AXES], b[DTM_MAX_AXES];
  bool fits = used->rank == 2 && of->rank >= 3 && !layout_has_partial(&used->layout);
  for (uint32_t d = 0; d < 2 && fits; d++) {
    uint32_t n = layout_dim_axes(&used->layout, d, a);
    fits = used->shape[d] == of->shape[d] && layout_dim_axes(&of->layout, d, b) == n &&
           memcmp(a, b, n) == 0;
  }
  return fits || rule_fail_shape(r, i,
                                 rule_text(r,
                                           "the used rows of %s must be counted by a value of its "
                                           "first two dims, placed like them",
                                           type_print(r->arena, of)));
}

/* Only dims 0 and 1 are cut anew: whole groups of rows go from rank to rank. */
bool rule_redistribute_rows(Rule *r) {
  const TensorType *from = rule_type(r, 0);
  if (!rule_want_integer(r, 1, "used") || !rule_want_integer(r, 2, "used") || !rule_comm(r))
    return false;
  const TensorType *to = &r->out->results[0];
  for (uint32_t a = 0; a < to->mesh->naxes; a++) {
    Place p = from->layout.at[a], q = to->layout.at[a];
    bool same = p.kind == q.kind && p.dim == q.dim && p.op == q.op;
    bool moves = p.kind == PLACE_SHARD && q.kind == PLACE_SHARD && p.dim < 2 && q.dim < 2;
    if (same ? p.kind != PLACE_SHARD || p.dim != 2 : moves && from->mesh == to->mesh) continue;
    return fail_target(r, (int)a,
                       "with `used` the value goes from Shard(0) to Shard(1) or back, and its rows "
                       "are whole");
  }
  return check_used(r, 1, from) && check_used(r, 2, to);
}

/* dim has one entry for each rank of the one mesh dim that cuts it. */
bool rule_replica(Rule *r) {
  uint32_t dim;
  uint8_t axes[DTM_MAX_AXES];
  if (!rule_dim(r, 0, &dim)) return false;
  TensorType t = *rule_type(r, 0);
  if (layout_dim_axes(&t.layout, dim, axes) != 1 || t.mesh->size[axes[0]] != t.shape[dim])
    return rule_fail_shape(
        r, 0, rule_text(r, "dim %u must have one entry for each rank of one mesh dim", dim));
  layout_set(&t.layout, t.mesh, axes[0], PLACE_REPLICATE, 0, REDUCE_NONE);
  t.shape[dim] = 1;
  r->out->results[0] = t;
  r->out->nresults = 1;
  return true;
}

bool rule_same_as(Rule *r) {
  if (!type_equal(rule_type(r, 0), rule_type(r, 1)))
    return rule_fail_shape(r, 1, "both operands must have one type");
  r->out->results[0] = *rule_type(r, 0);
  r->out->nresults = 1;
  return true;
}
