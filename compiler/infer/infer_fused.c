/* Named fused operators and random ones: rows of their own.
 *
 * cross_entropy: the vocabulary may be sharded (the operator then communicates inside: max by MAX,
 * sums by SUM, and its result is Replicate there); the batch may be, and a mean divides by the
 * *global* weight of the valid targets, so that the addends add up to it.
 */
#include "infer/rules.h"

#include <string.h>

bool rule_cross_entropy(Rule *r) {
  const TensorType *x = rule_type(r, 0), *labels = rule_type(r, 1);
  const Attr *how = rule_attr(r, ATTR_REDUCTION);
  const char *reduction = how ? how->as.s : "mean";
  double smoothing = rule_float(r, ATTR_LABEL_SMOOTHING, 0);
  bool none = strcmp(reduction, "none") == 0;
  if (!none && strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0)
    return rule_fail_argument(
        r, rule_text(r, "reduction is \"mean\", \"sum\" or \"none\", not \"%s\"", reduction));
  if (!(smoothing >= 0 && smoothing <= 1))
    return rule_fail_argument(r, "label_smoothing is outside 0 .. 1");
  if (!rule_want_float(r, 0) || !rule_want_integer(r, 1, "labels")) return false;
  bool fits = x->rank == labels->rank + 1;
  for (uint32_t d = 0; fits && d < labels->rank; d++) {
    fits = x->shape[d] == labels->shape[d];
    r->letters.of[0][d] = r->letters.of[1][d] =
        rule_new_letter(r, none ? LETTER_FREE : LETTER_REDUCED);
  }
  if (!fits) return rule_fail_shape(r, 1, "labels must be [*] where the logits are [*, V]");
  int64_t vocab = x->shape[labels->rank];
  int8_t v = r->letters.of[0][labels->rank] = rule_new_letter(r, LETTER_INTERNAL);
  if (vocab == 0)
    return rule_fail(r, DIAG_EMPTY_EXTREMUM, 0, -1, "cross_entropy over an empty vocabulary",
                     "no class means no label and no largest logit");
  if (r->n == 3) {
    const TensorType *w = rule_type(r, 2);
    if (!rule_want_float(r, 2)) return false;
    if (w->rank != 1 || w->shape[0] != vocab)
      return rule_fail_shape(r, 2,
                             rule_text(r, "the class weights must be [%lld]", (long long)vocab));
    r->letters.of[2][0] = v;
  }
  r->letters.reduce = REDUCE_SUM;
  rule_result(r, 0, x->dtype == DT_F64 ? DT_F64 : DT_F32);
  for (uint32_t d = 0; none && d < labels->rank; d++)
    if (!rule_result_dim(r, 0, labels->shape[d], r->letters.of[1][d])) return false;
  return rule_derive(r, partial_nonlinear);
}

/* The mask is a function of the global index: any shard draws its own part of the same mask. */
bool rule_random(Rule *r) {
  const TensorType *t = rule_type(r, 0);
  double p = rule_float(r, ATTR_P, DEFAULT_P);
  if (!rule_want_float(r, 0)) return false;
  if (!(p >= 0 && p < 1)) return rule_fail_argument(r, "p is outside 0 .. 1 (1 excluded)");
  if (!rule_attr(r, ATTR_INSTANCE))
    return rule_fail_argument(r, "the instance that keys the random numbers is missing");
  rule_letter_each(r, 0, LETTER_FREE);
  rule_result(r, 0, t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    if (!rule_result_dim(r, 0, t->shape[d], r->letters.of[0][d])) return false;
  return rule_derive(r, r->op == OP_DROPOUT ? partial_nonlinear : partial_linear_first);
}
