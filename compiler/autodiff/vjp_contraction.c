/* Gradients of matmul, linear and einsum: contractions again.
 *
 * With letters, out = sum a b. The cotangent of an operand is the contraction of the cotangent of
 * the result with the other operand onto the operand's letters. Letters of the operand that neither
 * has are dims along which the cotangent is constant: they come back with extent 1. */
#include "autodiff/vjp.h"

typedef struct Term {
  ValueId value;
  uint32_t rank;
  int8_t letter[DTM_MAX_DIMS];
} Term;

/* The operand without its extent-1 dims that broadcast. */
static Term term_of(Grad *d, ValueId v, const int8_t *letter, uint32_t rank) {
  Term t = {0};
  uint32_t ones = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (letter[i] < 0)
      ones |= 1u << i;
    else
      t.letter[t.rank++] = letter[i];
  }
  t.value = grad_drop_dims(d, v, ones);
  return t;
}

static bool has_letter(const Term *t, int8_t letter) {
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->letter[i] == letter) return true;
  return false;
}

static void spec_put(StrBuf *sb, const Term *t) {
  for (uint32_t i = 0; i < t->rank; i++) strbuf_putc(sb, (char)('a' + t->letter[i]));
}

static bool repeats(const int8_t *letter, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++)
    for (uint32_t j = 0; j < i; j++)
      if (letter[i] >= 0 && letter[i] == letter[j]) return true;
  return false;
}

ValueId vjp_contraction(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType types[3];
  for (uint32_t k = 0; k < n.noperands; k++) types[k] = *grad_type(d, n.operands[k]);
  Contraction c;
  const char *why = NULL;
  if (!contraction_of(d->scratch, n.op, types, n.noperands, node_string(&n, ATTR_SPEC), &c, &why))
    return grad_fail(d, DIAG_NO_GRADIENT, why);
  for (uint32_t k = 0; k < n.noperands; k++)
    if (repeats(c.letter[k], c.rank[k]))
      return grad_fail(d, DIAG_NO_GRADIENT, "a letter stands twice in one operand (a diagonal)");
  if (n.op == OP_LINEAR && i == 2) return grad_sum(d, g, (1u << (c.out_rank - 1)) - 1, false);

  Term cot = term_of(d, g, c.out, c.out_rank), other = {0}, out = {0};
  bool two = n.noperands > 1;
  if (two) other = term_of(d, n.operands[1 - i], c.letter[1 - i], c.rank[1 - i]);
  uint32_t ones = 0;
  for (uint32_t k = 0; k < c.rank[i]; k++) {
    int8_t letter = c.letter[i][k];
    bool bound = letter >= 0 && (has_letter(&cot, letter) || (two && has_letter(&other, letter)));
    if (bound)
      out.letter[out.rank++] = letter;
    else
      ones |= 1u << k;
  }
  StrBuf spec;
  strbuf_init(&spec, d->g->arena);
  spec_put(&spec, &cot);
  if (two) {
    strbuf_putc(&spec, ',');
    spec_put(&spec, &other);
  }
  strbuf_puts(&spec, "->");
  spec_put(&spec, &out);
  ValueId operands[] = {cot.value, other.value};
  ValueId r = grad_add(d, OP_EINSUM, operands, two ? 2 : 1, &ATTR_S(SPEC, spec.text), 1);
  return grad_insert_dims(d, r, ones, c.rank[i]);
}
