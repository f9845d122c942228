/* Contractions: matmul, linear, einsum as one thing, an einsum over letters.
 *
 * For one mesh dim one letter may be sharded, in every operand that has it; the result is sharded
 * on it, or Partial(sum) when it lacks it. Or exactly one operand is Partial and the others
 * Replicate: a contraction is multilinear. The bias of linear is an additive operand: Partial iff
 * the product is.
 */
#include "infer/rules.h"

#include <ctype.h>
#include <string.h>

static int8_t new_letter(Contraction *c, int64_t extent) {
  c->extent[c->nletters] = extent;
  return (int8_t)c->nletters++;
}

/* [.., M, K] x [.., K, N]; a rank-1 operand has only K, as in numpy. */
static bool letters_matmul(Arena *arena, const TensorType *t, Contraction *c, const char **why) {
  const TensorType *a = &t[0], *b = &t[1];
  if (a->rank == 0 || b->rank == 0) {
    *why = "matmul takes operands with at least one dim";
    return false;
  }
  uint32_t ka = a->rank - 1, kb = b->rank > 1 ? b->rank - 2 : 0;
  if (a->shape[ka] != b->shape[kb]) {
    *why = arena_printf(arena,
                        "the contracted extents differ: %lld in the last dim of the left operand, "
                        "%lld in dim %u of the right",
                        (long long)a->shape[ka], (long long)b->shape[kb], kb);
    return false;
  }
  uint32_t batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
  uint32_t batch = batch_a > batch_b ? batch_a : batch_b;
  for (uint32_t d = 0; d < batch; d++) {
    bool in_a = d + batch_a >= batch, in_b = d + batch_b >= batch;
    uint32_t da = d + batch_a - batch, db = d + batch_b - batch;
    int64_t ea = in_a ? a->shape[da] : 1, eb = in_b ? b->shape[db] : 1;
    if (ea != eb && ea != 1 && eb != 1) {
      *why = arena_printf(arena, "batch extents %lld and %lld do not match", (long long)ea,
                          (long long)eb);
      return false;
    }
    int64_t extent = ea == 1 ? eb : ea;
    int8_t l = new_letter(c, extent);
    if (in_a) c->letter[0][da] = ea == extent ? l : -1;
    if (in_b) c->letter[1][db] = eb == extent ? l : -1;
    c->out[c->out_rank++] = l;
  }
  int8_t k = new_letter(c, a->shape[ka]);
  c->letter[0][ka] = k;
  c->letter[1][kb] = k;
  if (a->rank > 1) c->out[c->out_rank++] = c->letter[0][ka - 1] = new_letter(c, a->shape[ka - 1]);
  if (b->rank > 1) c->out[c->out_rank++] = c->letter[1][kb + 1] = new_letter(c, b->shape[kb + 1]);
  return true;
}

/* x [.., I], weight [O, I], bias [O] */
static bool letters_linear(Arena *arena, const TensorType *t, uint32_t n, Contraction *c,
                           const char **why) {
  const TensorType *x = &t[0], *w = &t[1];
  if (x->rank == 0 || x->rank > DTM_MAX_DIMS || w->rank != 2) {
    *why = arena_printf(arena,
                        "linear takes an input with at least one dim and a weight [O, I], "
                        "not a weight with %u dims",
                        w->rank);
    return false;
  }
  if (x->shape[x->rank - 1] != w->shape[1]) {
    *why =
        arena_printf(arena, "the last dim of the input has extent %lld, dim 1 of the weight %lld",
                     (long long)x->shape[x->rank - 1], (long long)w->shape[1]);
    return false;
  }
  if (n == 3 && (t[2].rank != 1 || t[2].shape[0] != w->shape[0])) {
    *why = arena_printf(arena, "the bias must be [%lld], one number per row of the weight",
                        (long long)w->shape[0]);
    return false;
  }
  for (uint32_t d = 0; d + 1 < x->rank; d++)
    c->out[c->out_rank++] = c->letter[0][d] = new_letter(c, x->shape[d]);
  c->letter[0][x->rank - 1] = c->letter[1][1] = new_letter(c, w->shape[1]);
  c->out[c->out_rank++] = c->letter[1][0] = new_letter(c, w->shape[0]);
  if (n == 3) c->letter[2][0] = c->letter[1][0];
  return true;
}

/* One term of a spec: letters up to ',' or '-' or the end. */
static bool letters_term(Arena *arena, const char **at, const TensorType *t, uint32_t operand,
                         int8_t index[26], Contraction *c, const char **why) {
  uint32_t d = 0;
  for (; **at && **at != ',' && **at != '-'; (*at)++) {
    if (**at == ' ') continue;
    if (!islower((unsigned char)**at)) {
      *why = arena_printf(arena, "'%c' in the spec is not a lower-case letter", **at);
      return false;
    }
    if (d == t->rank) {
      d++;
      break;
    }
    int8_t *l = &index[**at - 'a'];
    if (*l < 0) *l = new_letter(c, t->shape[d]);
    if (c->extent[*l] != t->shape[d]) {
      *why = arena_printf(arena, "letter '%c' has extents %lld and %lld", **at,
                          (long long)c->extent[*l], (long long)t->shape[d]);
      return false;
    }
    c->letter[operand][d++] = *l;
  }
  if (d == t->rank) return true;
  *why =
      arena_printf(arena, "the spec does not name the %u dims of operand %u", t->rank, operand + 1);
  return false;
}

static bool letters_einsum(Arena *arena, const char *spec, const TensorType *t, uint32_t n,
                           Contraction *c, const char **why) {
  int8_t index[26];
  memset(index, -1, sizeof index);
  const char *at = spec;
  for (uint32_t i = 0; i < n; i++) {
    if (!letters_term(arena, &at, &t[i], i, index, c, why)) return false;
    bool last = i + 1 == n;
    if (last ? strncmp(at, "->", 2) != 0 : *at != ',') {
      *why = arena_printf(arena, "the spec \"%s\" does not have %u terms before ->", spec, n);
      return false;
    }
    at += last ? 2 : 1;
  }
  uint32_t used = 0;
  for (; *at; at++) {
    if (*at == ' ') continue;
    int8_t l = islower((unsigned char)*at) ? index[*at - 'a'] : -1;
    if (l < 0 || used >> l & 1 || c->out_rank == DTM_MAX_DIMS) {
      *why = arena_printf(
          arena, l < 0 ? "'%c' after -> is no letter of an operand" : "'%c' stands twice after ->",
          *at);
      return false;
    }
    used |= 1u << l;
    c->out[c->out_rank++] = l;
  }
  return true;
}

bool contraction_of(Arena *arena, Op op, const TensorType *operands, uint32_t noperands,
                    const char *spec, Contraction *out, const char **why) {
  memset(out, 0, sizeof *out);
  memset(out->letter, -1, sizeof out->letter);
  memset(out->out, -1, sizeof out->out);
  for (uint32_t i = 0; i < noperands; i++) out->rank[i] = operands[i].rank;
  if (op == OP_MATMUL) return letters_matmul(arena, operands, out, why);
  if (op == OP_LINEAR) return letters_linear(arena, operands, noperands, out, why);
  if (spec) return letters_einsum(arena, spec, operands, noperands, out, why);
  *why = "einsum needs a spec such as \"ik,kj->ij\"";
  return false;
}

/* Of the factors: the bias is looked at afterwards. */
ReduceOp partial_contraction(Rule *r, uint32_t axis) {
  uint32_t count = 0, which = 0;
  for (uint32_t i = 0; i < r->n; i++)
    if (rule_is_partial(r, i, axis)) {
      count++;
      which = i;
    }
  ReduceOp op = rule_partial_op(r, which, axis);
  if (count == 2) {
    rule_fail(r, DIAG_PARTIAL_PAIR, 1, (int)axis,
              rule_text(r, "%s cannot take two Partial operands on mesh dim %s", r->info->name,
                        rule_axis_name(r, axis)),
              "the product of two sums has cross terms that no rank would compute");
    return REDUCE_NONE;
  }
  if (reduce_is_linear(op)) return op;
  rule_fail_partial(r, which, axis,
                    rule_text(r, "%s is linear: it passes a pending sum or mean, not %s",
                              r->info->name, reduce_article(op)));
  return REDUCE_NONE;
}

static bool fail_bias_partial(Rule *r, uint32_t axis, bool product_is_partial) {
  const char *name = rule_axis_name(r, axis);
  if (product_is_partial)
    return rule_fail(
        r, DIAG_PARTIAL_ADDEND, 2, (int)axis,
        rule_text(r, "linear: the product is Partial on mesh dim %s, the bias is not", name),
        rule_text(r,
                  "a bias that every rank has would be added once per rank, %lld times: add it "
                  "after the reduction, or declare it Partial",
                  (long long)r->mesh->size[axis]));
  return rule_fail(
      r, DIAG_PARTIAL_ADDEND, 2, (int)axis,
      rule_text(r, "linear: the bias is Partial on mesh dim %s, the product is not", name),
      rule_text(r,
                "every rank has the whole product: it would be added once per "
                "rank, %lld times",
                (long long)r->mesh->size[axis]));
}

/* The bias against the product: Partial iff it is, cut like its last dim, else Replicate. */
static bool check_bias(Rule *r) {
  const TensorType *product = &r->out->results[0], *bias = rule_type(r, 2);
  TensorType want = *bias;
  want.layout = (Layout){0};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&product->layout, product->rank - 1, axes);
  for (uint32_t a = 0; r->mesh && a < r->mesh->naxes; a++) {
    Place p = product->layout.at[a], b = bias->layout.at[a];
    bool pending = p.kind == PLACE_PARTIAL;
    if (pending != (b.kind == PLACE_PARTIAL) || (pending && p.op != b.op))
      return fail_bias_partial(r, a, pending);
    if (pending) want.layout.at[a] = p;
  }
  layout_set_dim(&want.layout, r->mesh, 0, axes, n);
  if (layout_equal(&want.layout, &bias->layout)) return true;
  uint32_t a = 0;
  while (memcmp(&want.layout.at[a], &bias->layout.at[a], sizeof(Place)) == 0) a++;
  return rule_fail(
      r, DIAG_SHARD_MISMATCH, 2, (int)a,
      rule_text(r, "linear: operands are sharded differently on mesh dim %s", rule_axis_name(r, a)),
      rule_text(r, "the bias must be cut like dim 0 of the weight: %s, not %s",
                type_print(r->arena, &want), type_print(r->arena, bias)));
}

bool rule_contraction(Rule *r) {
  TensorType types[3];
  const Attr *spec = rule_attr(r, ATTR_SPEC);
  Contraction c;
  const char *why;
  for (uint32_t i = 0; i < r->n; i++) types[i] = *rule_type(r, i);
  if (!rule_same_dtype(r) || !rule_want_number(r, 0)) return false;
  if (!contraction_of(r->arena, r->op, types, r->n, spec ? spec->as.s : NULL, &c, &why))
    return rule_fail_shape(r, 0, why);
  uint32_t in_out = 0;
  for (uint32_t d = 0; d < c.out_rank; d++) in_out |= 1u << c.out[d];
  for (uint32_t l = 0; l < c.nletters; l++)
    rule_new_letter(r, in_out >> l & 1 ? LETTER_FREE : LETTER_REDUCED);
  for (uint32_t i = 0; i < r->n; i++)
    for (uint32_t d = 0; d < c.rank[i]; d++) {
      int8_t l = r->letters.of[i][d] = c.letter[i][d];
      for (uint32_t e = 0; e < d; e++)
        if (l >= 0 && c.letter[i][e] == l) r->letters.rule[l] = LETTER_WHOLE;
    }
  r->letters.reduce = REDUCE_SUM;
  rule_result(r, 0, types[0].dtype);
  for (uint32_t d = 0; d < c.out_rank; d++)
    if (!rule_result_dim(r, 0, c.extent[c.out[d]], c.out[d])) return false;
  uint32_t n = r->n;
  if (r->op == OP_LINEAR) r->n = 2;
  bool ok = rule_derive(r, partial_contraction);
  r->n = n;
  return ok && (r->op != OP_LINEAR || n == 2 || !r->mesh || check_bias(r));
}
