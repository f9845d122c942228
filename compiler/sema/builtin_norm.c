/* Calls of norms that are made of operators. See elab.h. */
#include <inttypes.h>

#include "sema/builtin.h"

/* What an error of a step says of a dim is about groups. */
static void explain_groups(Sema *s, uint32_t errors, int64_t groups, int64_t size, Span span) {
  if (s->sink->errors == errors) return;
  diag_note(s->sink, s->sink->diags.data[s->sink->diags.len - 1], span,
            "group_norm needs whole groups: here %" PRId64 " groups of %" PRId64
            " channels, with all dims behind them",
            groups, size);
}

/* A number for each channel, beside [N, C, *]. */
static bool per_channel(Sema *s, Val v, Span span, const char *what, const TensorType *t,
                        Span whole, ValueId *out) {
  if (!as_tensor(s, v, span, what, out)) return false;
  const TensorType *w = value_type(s->at.graph, *out);
  if (w->rank != 1 || w->shape[0] != t->shape[1]) {
    sema_error(s, DIAG_OPERAND_SHAPE, span,
               "%s must have one number for each of %" PRId64 " channels", what, t->shape[1]);
    return false;
  }
  for (uint32_t d = 2; d < t->rank; d++) {
    Val r = emit_dim_op(s, OP_UNSQUEEZE, *out, d - 1, whole);
    if (r.kind == VAL_POISON) return false;
    *out = r.as.tensor;
  }
  return true;
}

/* group_norm(x, num_groups, weight, bias, eps): x [N, C, *] with the channels of a group and all
 * that lies behind them normalised together. A layer_norm of [N, G, C / G, *], so channels may be
 * cut where groups are not. */
Val builtin_group_norm(Sema *s, const Call *call) {
  Val v[5];
  Span at[5];
  ValueId x, w;
  int64_t groups, shape[DTM_MAX_DIMS + 1];
  double eps = 1e-5;
  if (!bind_tensor(s, call, "x|input num_groups weight? bias? eps?", v, at, &x) ||
      !want_int(s, v[1], at[1], "num_groups", &groups) ||
      (v[4].kind != VAL_UNSET && !want_float(s, v[4], at[4], "eps", &eps)))
    return POISON;
  const TensorType t = *value_type(s->at.graph, x);
  if (t.rank < 2 || t.rank == DTM_MAX_DIMS) {
    sema_error(s, DIAG_ARGUMENTS, at[0], "group_norm takes [N, C, ...] of 2 to %d dims, not %u",
               DTM_MAX_DIMS - 1, t.rank);
    return POISON;
  }
  if (groups < 1 || t.shape[1] % groups) {
    sema_error(s, DIAG_ARGUMENTS, at[1], "%" PRId64 " channels do not make %" PRId64 " groups",
               t.shape[1], groups);
    return POISON;
  }
  shape[0] = t.shape[0];
  shape[1] = groups;
  shape[2] = t.shape[1] / groups;
  for (uint32_t d = 2; d < t.rank; d++) shape[d + 1] = t.shape[d];
  uint32_t errors = s->sink->errors;
  Val y = emit_reshape(s, x, shape, t.rank + 1, call->span);
  const Attr attrs[] = {ATTR_I(NDIMS, t.rank - 1), ATTR_F(EPS, eps)};
  if (y.kind != VAL_POISON) y = emit1(s, OP_LAYER_NORM, y.as.tensor, attrs, 2, call->span);
  if (y.kind == VAL_POISON) explain_groups(s, errors, groups, shape[2], at[0]);
  if (y.kind != VAL_POISON) y = emit_reshape(s, y.as.tensor, t.shape, t.rank, call->span);
  for (uint32_t i = 2; i < 4 && y.kind != VAL_POISON; i++) {
    if (v[i].kind == VAL_UNSET || v[i].kind == VAL_NONE) continue;
    const char *what = i == 2 ? "the weight of group_norm" : "the bias of group_norm";
    if (!per_channel(s, v[i], at[i], what, &t, call->span, &w)) return POISON;
    y = emit(s, i == 2 ? OP_MUL : OP_ADD, (ValueId[]){y.as.tensor, w}, 2, NULL, 0, call->span,
             (Span[]){at[0], at[i]});
  }
  return y;
}
