/* Calls of attention. See elab.h. */
#include "sema/builtin.h"

/* scaled_dot_product_attention(q, k, v, ...): the first result of the operator. Without a scale it
 * is 1 / sqrt of the width of q; dropout acts in training alone. */
Val builtin_scaled_dot_product_attention(Sema *s, const Call *call) {
  Val v[8];
  Span at[8];
  ValueId x[5];
  Attr attrs[4];
  uint32_t n = 3, nattrs = 0;
  bool causal = false;
  double p = 0, scale;
  if (!bind_words(s, call, op_words(OP_ATTENTION), v, at)) return POISON;
  for (uint32_t i = 0; i < 3; i++)
    if (!as_tensor(s, v[i], at[i], i == 0 ? "q" : i == 1 ? "k" : "v", &x[i])) return POISON;
  if (v[3].kind != VAL_UNSET && !want_bool(s, v[3], at[3], "causal", &causal)) return POISON;
  attrs[nattrs++] = ATTR_I(CAUSAL, causal);
  if (v[4].kind != VAL_UNSET && v[4].kind != VAL_NONE) {
    if (!want_float(s, v[4], at[4], "scale", &scale)) return POISON;
    attrs[nattrs++] = ATTR_F(SCALE, scale);
  }
  if (v[5].kind != VAL_UNSET && !want_float(s, v[5], at[5], "dropout", &p)) return POISON;
  if (!(p >= 0 && p < 1)) {
    sema_error(s, DIAG_VALUE_KIND, at[5], "the probability of dropout must be in [0, 1)");
    return POISON;
  }
  if (s->at.training && p > 0) {
    attrs[nattrs++] = ATTR_F(P, p);
    attrs[nattrs++] = ATTR_I(INSTANCE, next_instance(s));
  }
  for (uint32_t i = 6; i < 8; i++) {
    if (v[i].kind == VAL_UNSET || v[i].kind == VAL_NONE) continue;
    const char *what = i == 6 ? "q_positions" : "k_positions";
    if (!as_tensor(s, v[i], at[i], what, &x[n++])) return POISON;
  }
  const Span spans[] = {at[0], at[1], at[2], at[6], at[7]};
  Val out = emit(s, OP_ATTENTION, x, n, attrs, nattrs, call->span, spans);
  return out.kind == VAL_LIST ? out.as.list->data[0] : out;
}
