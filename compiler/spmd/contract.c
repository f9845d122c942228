/* Contractions as matrix products: see spmd.h.
 *
 * In: matmul, linear, einsum of any spec. Out: contractions of two operands for which matmul_form
 * holds, so that a matrix product runs on the operands where they lie; and, where there is no
 * matrix product in it (outer and inner products, one operand), pointwise operators and sums.
 */
#include <string.h>

#include "spmd/lower.h"

/* --- analysis ------------------------------------------------------------------------------------
 */

static int find(const int8_t *letters, uint32_t n, int8_t letter) {
  for (uint32_t i = 0; i < n; i++)
    if (letters[i] == letter) return (int)i;
  return -1;
}

/* Position of `letter` in operand `o` (2 = the output), or -1. */
static int position(const Contraction *c, int o, int8_t letter) {
  return o == 2 ? find(c->out, c->out_rank, letter) : find(c->letter[o], c->rank[o], letter);
}

/* The longest run of letters that ends in `last`, whose letters lie in exactly the operands o and p
 * and stand side by side in both. Fills out; returns its length. */
static uint32_t run_ending(const Contraction *c, int o, int p, int8_t last, int8_t *out) {
  int third = 3 - o - p;
  int i = position(c, o, last), j = position(c, p, last);
  uint32_t n = 0;
  int8_t reversed[DTM_MAX_DIMS];
  for (; i >= 0 && j >= 0; i--, j--) {
    int8_t a = o == 2 ? c->out[i] : c->letter[o][i], b = p == 2 ? c->out[j] : c->letter[p][j];
    if (a < 0 || a != b || position(c, third, a) >= 0) break;
    reversed[n++] = a;
  }
  for (uint32_t r = 0; r < n; r++) out[r] = reversed[n - 1 - r];
  return n;
}

/* The last letter (in the order of operand o) that lies in o and p and not in the third. */
static int8_t last_shared(const Contraction *c, int o, int p) {
  int third = 3 - o - p;
  uint32_t rank = o == 2 ? c->out_rank : c->rank[o];
  for (uint32_t i = rank; i-- > 0;) {
    int8_t x = o == 2 ? c->out[i] : c->letter[o][i];
    if (x >= 0 && position(c, p, x) >= 0 && position(c, third, x) < 0) return x;
  }
  return -1;
}

static bool has_repeated(const int8_t *letters, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (letters[i] >= 0 && find(letters + i + 1, n - i - 1, letters[i]) >= 0) return true;
  return false;
}

bool matmul_form(const Contraction *c, MatmulForm *f) {
  memset(f, 0, sizeof *f);
  if (has_repeated(c->letter[0], c->rank[0]) || has_repeated(c->letter[1], c->rank[1]))
    return false;
  int8_t mine[2] = {last_shared(c, 2, 0), last_shared(c, 2, 1)};
  f->b = position(c, 2, mine[0]) > position(c, 2, mine[1]) ? 0 : 1;
  f->a = 1 - f->b;
  if (mine[f->a] >= 0) f->nm = (uint8_t)run_ending(c, 2, f->a, mine[f->a], f->m);
  if (mine[f->b] >= 0) f->nn = (uint8_t)run_ending(c, 2, f->b, mine[f->b], f->n);
  int8_t k = last_shared(c, f->a, f->b);
  if (k >= 0) f->nk = (uint8_t)run_ending(c, f->a, f->b, k, f->k);
  for (int8_t x = 0; x < (int8_t)c->nletters; x++) {
    if (find(f->m, f->nm, x) >= 0 || find(f->n, f->nn, x) >= 0 || find(f->k, f->nk, x) >= 0)
      continue;
    /* Any other letter must be a batch dim: in the output. A letter of one operand alone, or a
     * second run of contracted letters, is not. */
    if (position(c, 2, x) < 0 || f->nbatch == MATMUL_MAX_BATCH) return false;
    f->batch[f->nbatch++] = x;
  }
  return true;
}

/* --- lowering
 * --------------------------------------------------------------------------------------- */

typedef struct Side {
  ValueId v;
  uint32_t rank;
  int8_t letter[DTM_MAX_DIMS];
} Side;

/* Drops dims without a letter (extent 1). */
static void drop_ones(Lowering *l, Side *s) {
  for (uint32_t d = s->rank; d-- > 0;) {
    if (s->letter[d] >= 0) continue;
    TensorType t = *spmd_type(l, s->v);
    for (uint32_t i = d; i + 1 < t.rank; i++) {
      t.shape[i] = t.shape[i + 1];
      s->letter[i] = s->letter[i + 1];
    }
    t.shape[--t.rank] = 0;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (t.layout.at[a].kind == PLACE_SHARD && t.layout.at[a].dim > d) t.layout.at[a].dim--;
    s->rank--;
    const Attr dim = ATTR_I(DIM, d);
    s->v = spmd_emit(l, OP_SQUEEZE, &s->v, 1, &dim, 1, &t);
  }
}

/* A dim removed from a type by a local sum; its axes become Partial where it was cut. */
static TensorType without_dim(const TensorType *from, uint32_t d) {
  TensorType t = *from;
  for (uint32_t i = d; i + 1 < t.rank; i++) t.shape[i] = t.shape[i + 1];
  t.shape[--t.rank] = 0;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++) {
    Place *p = &t.layout.at[a];
    if (p->kind != PLACE_SHARD) continue;
    if (p->dim == d)
      *p = (Place){.kind = PLACE_PARTIAL, .op = REDUCE_SUM};
    else if (p->dim > d)
      p->dim--;
  }
  return t;
}

static void sum_dim(Lowering *l, Side *s, uint32_t d) {
  TensorType t = without_dim(spmd_type(l, s->v), d);
  const int64_t dim = d;
  s->v = spmd_reduce(l, OP_SUM, s->v, &dim, 1, false, &t);
  for (uint32_t i = d; i + 1 < s->rank; i++) s->letter[i] = s->letter[i + 1];
  s->rank--;
}

/* A letter that an operand has twice: its diagonal, as a masked sum. Those dims are not cut. */
static void take_diagonals(Lowering *l, Side *s) {
  for (uint32_t d = 0; d < s->rank; d++) {
    int again = find(s->letter + d + 1, s->rank - d - 1, s->letter[d]);
    if (s->letter[d] < 0 || again < 0) continue;
    uint32_t e = d + 1 + (uint32_t)again;
    const TensorType t = *spmd_type(l, s->v);
    TensorType index = spmd_with_dtype(t, DT_I64);
    const Attr rows[] = {ATTR_T(TYPE, &index), ATTR_I(DIM, d)};
    const Attr cols[] = {ATTR_T(TYPE, &index), ATTR_I(DIM, e)};
    ValueId row = spmd_emit(l, OP_IOTA, NULL, 0, rows, 2, &index);
    ValueId col = spmd_emit(l, OP_IOTA, NULL, 0, cols, 2, &index);
    ValueId on = spmd_binary(l, OP_EQ, &index, row, col);
    s->v = spmd_where(l, &t, on, s->v, spmd_const(l, t.dtype, t.mesh, 0));
    sum_dim(l, s, e);
    d--;
  }
}

/* Dims in the order of `letters`, which must be exactly those of the side. */
static void permute_to(Lowering *l, Side *s, const int8_t *letters) {
  int64_t order[DTM_MAX_DIMS];
  bool same = true;
  TensorType from = *spmd_type(l, s->v), t = from;
  for (uint32_t d = 0; d < s->rank; d++) {
    int p = find(s->letter, s->rank, letters[d]);
    order[d] = p;
    same = same && p == (int)d;
    t.shape[d] = from.shape[p];
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (from.layout.at[a].kind == PLACE_SHARD && from.layout.at[a].dim == p)
        t.layout.at[a].dim = (uint8_t)d;
  }
  if (same) return;
  const Attr dims = ATTR_INTS(DIMS, order, s->rank);
  s->v = spmd_emit(l, OP_PERMUTE, &s->v, 1, &dims, 1, &t);
  memcpy(s->letter, letters, s->rank);
}

/* Dims of extent 1 put in where `out` has letters that the side lacks; same order otherwise. */
static void spread_to(Lowering *l, Side *s, const int8_t *out, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    if (d < s->rank && s->letter[d] == out[d]) continue;
    TensorType t = *spmd_type(l, s->v);
    for (uint32_t i = t.rank; i > d; i--) {
      t.shape[i] = t.shape[i - 1];
      s->letter[i] = s->letter[i - 1];
    }
    t.shape[d] = 1;
    t.rank++;
    s->letter[d] = out[d];
    s->rank++;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (t.layout.at[a].kind == PLACE_SHARD && t.layout.at[a].dim >= d) t.layout.at[a].dim++;
    const Attr dim = ATTR_I(DIM, d);
    s->v = spmd_emit(l, OP_UNSQUEEZE, &s->v, 1, &dim, 1, &t);
  }
}

/* The product of two sides over the union of their letters, then the sums: for contractions that
 * have no matrix product in them. `out` letters come first, summed ones after. */
static ValueId product_form(Lowering *l, const Contraction *c, Side s[2], const TensorType *type) {
  int8_t all[2 * DTM_MAX_DIMS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->out_rank; i++)
    if (c->out[i] >= 0) all[n++] = c->out[i];
  uint32_t kept = n;
  for (uint32_t o = 0; o < 2; o++)
    for (uint32_t i = 0; i < s[o].rank; i++)
      if (find(all, n, s[o].letter[i]) < 0) all[n++] = s[o].letter[i];
  TensorType t = {.dtype = type->dtype, .rank = n, .mesh = type->mesh};
  for (uint32_t o = 0; o < 2; o++) {
    int8_t mine[DTM_MAX_DIMS];
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
      if (find(s[o].letter, s[o].rank, all[i]) >= 0) mine[m++] = all[i];
    permute_to(l, &s[o], mine);
    spread_to(l, &s[o], all, n);
    const TensorType *side = spmd_type(l, s[o].v);
    for (uint32_t d = 0; d < n; d++)
      if (side->shape[d] != 1 || t.shape[d] == 0) t.shape[d] = side->shape[d];
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (side->layout.at[a].kind != PLACE_REPLICATE) t.layout.at[a] = side->layout.at[a];
  }
  ValueId y = spmd_binary(l, OP_MUL, &t, s[0].v, s[1].v);
  Side sum = {.v = y, .rank = n};
  memcpy(sum.letter, all, n < DTM_MAX_DIMS ? n : DTM_MAX_DIMS);
  while (sum.rank > kept) sum_dim(l, &sum, sum.rank - 1);
  return sum.v;
}

static void append(char *text, size_t *n, const int8_t *letters, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) text[(*n)++] = (char)('a' + letters[i]);
}

/* Both sides and the output with dims in the order batch, m, k / batch, k, n / batch, m, n. */
static ValueId canonical_form(Lowering *l, const Contraction *c, Side s[2],
                              const TensorType *type) {
  int8_t part[4][2 * DTM_MAX_DIMS]; /* batch, m, n, k */
  uint32_t count[4] = {0};
  for (int8_t x = 0; x < (int8_t)c->nletters; x++) {
    bool a = find(s[0].letter, s[0].rank, x) >= 0, b = find(s[1].letter, s[1].rank, x) >= 0;
    if (!a && !b) continue;
    uint32_t p = position(c, 2, x) < 0 ? 3 : a && b ? 0 : a ? 1 : 2;
    part[p][count[p]++] = x;
  }
  static const uint8_t order[3][3] = {{0, 1, 3}, {0, 3, 2}, {0, 1, 2}};
  int8_t want[3][3 * DTM_MAX_DIMS];
  uint32_t rank[3] = {0};
  for (uint32_t o = 0; o < 3; o++)
    for (uint32_t p = 0; p < 3; p++)
      for (uint32_t i = 0; i < count[order[o][p]]; i++) want[o][rank[o]++] = part[order[o][p]][i];
  permute_to(l, &s[0], want[0]);
  permute_to(l, &s[1], want[1]);
  /* The type of the product: the output's, its dims in the new order, those of extent 1 dropped. */
  TensorType t = {.dtype = type->dtype, .rank = rank[2], .mesh = type->mesh};
  t.layout = type->layout;
  for (uint32_t d = 0; d < rank[2]; d++) {
    int p = position(c, 2, want[2][d]);
    t.shape[d] = type->shape[p];
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (type->layout.at[a].kind == PLACE_SHARD && type->layout.at[a].dim == p)
        t.layout.at[a].dim = (uint8_t)d;
  }
  char *spec = ARENA_ARRAY(l->out->arena, char, 6 * DTM_MAX_DIMS + 4);
  size_t n = 0;
  append(spec, &n, want[0], rank[0]);
  spec[n++] = ',';
  append(spec, &n, want[1], rank[1]);
  spec[n++] = '-';
  spec[n++] = '>';
  append(spec, &n, want[2], rank[2]);
  const Attr attr = ATTR_S(SPEC, spec);
  Side out = {.rank = rank[2]};
  out.v = spmd_emit(l, OP_EINSUM, (const ValueId[]){s[0].v, s[1].v}, 2, &attr, 1, &t);
  memcpy(out.letter, want[2], rank[2]);
  int8_t final[DTM_MAX_DIMS];
  uint32_t f = 0;
  for (uint32_t i = 0; i < c->out_rank; i++)
    if (c->out[i] >= 0) final[f++] = c->out[i];
  permute_to(l, &out, final);
  return out.v;
}

/* Back to the result's type: dims of extent 1 that have no letter. */
static ValueId reshape_to(Lowering *l, ValueId v, const TensorType *type) {
  if (spmd_type(l, v)->rank == type->rank) return v;
  const Attr shape = ATTR_INTS(SHAPE, type->shape, type->rank);
  return spmd_emit(l, OP_RESHAPE, &v, 1, &shape, 1, type);
}

ValueId spmd_contraction(Lowering *l) {
  const Node *n = l->serving;
  const TensorType type = *value_type(l->in, n->first_result);
  TensorType types[3];
  ValueId operands[3];
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i] = l->map[n->operands[i]];
    types[i] = *spmd_type(l, operands[i]);
  }
  Contraction c;
  MatmulForm form;
  const char *why;
  bool known =
      contraction_of(l->arena, n->op, types, n->noperands, node_string(n, ATTR_SPEC), &c, &why);
  if (known && n->noperands > 1 && matmul_form(&c, &form) && form.nk && (form.nm || form.nn))
    return spmd_emit(l, n->op, operands, n->noperands, n->attrs, n->nattrs, &type);

  Side s[2] = {{0}};
  uint32_t sides = n->noperands > 1 ? 2 : 1;
  for (uint32_t o = 0; o < sides; o++) {
    s[o].v = operands[o];
    s[o].rank = c.rank[o];
    memcpy(s[o].letter, c.letter[o], sizeof s[o].letter);
    drop_ones(l, &s[o]);
    take_diagonals(l, &s[o]);
    /* A letter of this operand alone that the output lacks is summed at once. */
    for (uint32_t d = s[o].rank; d-- > 0;)
      if (position(&c, 2, s[o].letter[d]) < 0 &&
          (sides == 1 || position(&c, 1 - (int)o, s[o].letter[d]) < 0))
        sum_dim(l, &s[o], d);
  }
  if (sides == 1) {
    int8_t final[DTM_MAX_DIMS];
    uint32_t f = 0;
    for (uint32_t i = 0; i < c.out_rank; i++)
      if (c.out[i] >= 0) final[f++] = c.out[i];
    permute_to(l, &s[0], final);
    return reshape_to(l, s[0].v, &type);
  }
  bool contracted = false, alone = false;
  for (int8_t x = 0; x < (int8_t)c.nletters; x++) {
    bool a = find(s[0].letter, s[0].rank, x) >= 0, b = find(s[1].letter, s[1].rank, x) >= 0;
    contracted = contracted || (a && b && position(&c, 2, x) < 0);
    alone = alone || a != b;
  }
  ValueId y = contracted && alone ? canonical_form(l, &c, s, &type) : product_form(l, &c, s, &type);
  if (n->noperands > 2) { /* a linear of this kind: the bias is added apart */
    const TensorType t = *spmd_type(l, y);
    y = spmd_binary(l, OP_ADD, &t, y, operands[2]);
  }
  return reshape_to(l, y, &type);
}
