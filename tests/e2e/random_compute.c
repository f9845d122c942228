/* Operators that compute: pointwise ones, contractions, reductions, those along a whole dim. */
#include <string.h>

#include "random_draft.h"

static unsigned last_dims(const Value *v, int n) {
  return ((1u << n) - 1) << (v->rank - n);
}

static const char smooth[] =
    "tanh(%s)|sigmoid(%s)|gelu(%s)|silu(%s)|sin(%s)|cos(%s)|exp(tanh(%s))|"
    "log(square(%s) + 0.5)|sqrt(square(%s) + 0.3)|rsqrt(square(%s) + 0.7)|erf(%s)|"
    "softplus(%s)|mish(%s)|log_sigmoid(%s)|gelu_tanh(%s)|atan(%s)|asinh(%s)|"
    "expm1(0.3 * tanh(%s))|log1p(square(%s))|softsign(%s)|reciprocal(2.0 + tanh(%s))|"
    "tan(0.5 * tanh(%s))|asin(0.9 * tanh(%s))|acos(0.9 * tanh(%s))|sinh(tanh(%s))|"
    "cosh(tanh(%s))|atanh(0.8 * tanh(%s))|acosh(1.5 + square(%s))|exp2(tanh(%s))|"
    "log2(1.2 + square(%s))|log10(1.1 + square(%s))|erfc(%s)|selu(%s)|elu(%s)|"
    "pow(sigmoid(%s), 2.5)";
static const char kinked[] =
    "relu(%s)|abs(%s)|leaky_relu(%s)|hardtanh(%s)|hardswish(%s)|hardsigmoid(%s)|relu6(%s)|"
    "clamp(%s, -0.4, 0.6)|0.1 * frac(3.0 * %s)";
static const char flat[] =
    "0.1 * floor(3.0 * %s)|0.1 * round(2.0 * %s)|sign(%s)|0.1 * trunc(2.0 * %s)|"
    "0.1 * ceil(2.0 * %s)|detach(%s)";

void random_unary(Draft *d) {
  Value v = draft_pick(d, 0, MAX_RANK), x = draft_lay(d, &v, 0, false);
  int kind = draft_below(d, 10);
  bool plain = d->options.descent != 0;
  const char *format = draft_word(d, kind < 6 ? smooth : kind < 9 || plain ? kinked : flat);
  draft_define(d, x, "%s", draft_apply(d, format, x.name));
}

/* What is linear may be done to a pending sum. */
void random_scale(Draft *d) {
  Value v = draft_pick(d, 0, MAX_RANK), x = draft_lay(d, &v, 0, true);
  switch (draft_below(d, 4)) {
  case 0:
    draft_define(d, x, "-%s", x.name);
    break;
  case 1:
    draft_define(d, x, "%s * %d.5", x.name, draft_below(d, 2));
    break;
  case 2:
    draft_define(d, x, "%s / 2.0", x.name);
    break;
  default:
    draft_define(d, x, "(%s) * full(f32[]%s, 0.7)", x.name,
                 d->fixed_mesh ? "" : draft_on(d, d->at));
    break;
  }
}

/* Another operand that broadcasts with x: of the same shape, of some of its last dims, or with
 * dims of 1; whole where x is cut now and then. */
static Value partner(Draft *d, const Value *x) {
  Value y = {.rank = -1};
  for (int tries = 0; tries < 12 && y.rank < 0; tries++) {
    const Value *v = &d->pool[d->first_local + draft_below(d, d->npool - d->first_local)];
    if (v->bound || v->rank > x->rank) continue;
    bool fits = true;
    for (int i = 0; i < v->rank; i++) {
      int e = x->extent[x->rank - v->rank + i];
      fits = fits && (v->extent[i] == e || v->extent[i] == 1);
    }
    if (fits) y = *v;
  }
  if (y.rank < 0) {
    int from = draft_below(d, x->rank + 1), extent[MAX_RANK];
    for (int i = from; i < x->rank; i++) extent[i - from] = draft_chance(d, 20) ? 1 : x->extent[i];
    y = draft_parameter(d, x->rank - from, extent);
  }
  Cut cut[MAX_RANK] = {{0}};
  for (int i = 0; i < y.rank; i++) {
    const Cut *c = &x->cut[x->rank - y.rank + i];
    if (y.extent[i] != 1 && (d->raw_now || d->auto_now || !draft_chance(d, 25))) cut[i] = *c;
  }
  return draft_lay_as(d, &y, cut);
}

void random_binary(Draft *d) {
  Value v = draft_pick(d, 0, MAX_RANK), x = draft_lay(d, &v, 0, false), y = partner(d, &x);
  static const char forms[] =
      "A + B|A - B|A * B|A * B + A|tanh(A * B)|A / (1.5 + square(B))|maximum(A, B)|"
      "minimum(A, B)|where(A > B, A, B * 0.5)|where(A > 0.1, B, A)|hypot(A, B + 2.0)|"
      "lerp(A, B, 0.3)|lerp(A, B, tanh(A))|addcmul(A, A, tanh(B))|"
      "addcdiv(A, B, square(A) + 1.0)|atan2(A, square(B) + 0.4)|"
      "pow(sigmoid(A) + 0.2, tanh(B))|leaky_relu(A, B)|where(A >= B, 1.0, 0.0) * A|"
      "remainder(A, square(B) + 1.0)|fmod(A, square(B) + 1.0)|clamp(A, B - 0.3, B + 0.4)";
  const char *form = draft_word(d, forms);
  StrBuf s;
  strbuf_init(&s, d->arena);
  for (const char *c = form; *c; c++) {
    if (*c == 'A')
      strbuf_puts(&s, x.name);
    else if (*c == 'B')
      strbuf_puts(&s, y.name);
    else
      strbuf_printf(&s, "%c", *c);
  }
  draft_define(d, x, "%s", s.text);
}

/* Two pending sums, or one and a factor that is whole. */
void random_pending(Draft *d) {
  Value v = draft_pick(d, 0, MAX_RANK), x = draft_lay(d, &v, 0, true);
  if (!x.partial) {
    int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
    for (int i = 0; i < n && !x.partial; i++) {
      bool used = !x.known;
      for (int k = 0; k < x.rank; k++)
        for (int m = 0; m < x.cut[k].n; m++) used |= x.cut[k].axis[m] == axis[i];
      if (used) continue;
      x.partial = 1u << axis[i];
      x = draft_define(d, x, "%s.redistribute(%s: Partial(sum))", x.name, d->axis_name[axis[i]]);
    }
  }
  for (int i = d->first_local; i < d->npool && draft_chance(d, 80); i++) {
    Value y = d->pool[i];
    bool same = !y.bound && y.known && y.partial == x.partial && y.mesh == d->at &&
                y.rank == x.rank && value_has_cuts(&y, x.cut) && y.name != x.name &&
                memcmp(y.extent, x.extent, sizeof(int) * (size_t)y.rank) == 0;
    if (same) {
      draft_define(d, x, "%s %s %s", x.name, draft_chance(d, 50) ? "+" : "-", y.name);
      return;
    }
  }
  int from = draft_below(d, x.rank + 1);
  Value y = draft_parameter(d, x.rank - from, x.extent + from);
  y = draft_lay_as(d, &y, x.cut + from);
  draft_define(d, x, "%s * %s", x.name, y.name);
}

/* Letters of operands and result, and which axes cut each: the same in all of them. */
void random_contract(Draft *d) {
  Value a = draft_pick(d, 1, MAX_RANK), b = {.rank = -1};
  int nletters = a.rank, extent[8], form = draft_below(d, 4);
  int la[MAX_RANK], lb[MAX_RANK], out[8], nout = 0;
  for (int i = 0; i < a.rank; i++) {
    la[i] = i;
    extent[i] = a.extent[i];
  }
  if (form == 0) { /* linear: [*, I] x [O, I] */
    extent[nletters] = 1 + draft_below(d, 7);
    lb[0] = nletters++;
    lb[1] = a.rank - 1;
    b.rank = 2;
    for (int i = 0; i + 1 < a.rank; i++) out[nout++] = i;
    out[nout++] = lb[0];
  } else if (form == 1 && a.rank >= 2) { /* matmul, with or without the leading dims */
    bool leading = draft_chance(d, 50);
    b.rank = 0;
    for (int i = 0; leading && i + 2 < a.rank; i++) lb[b.rank++] = i;
    lb[b.rank++] = a.rank - 1;
    extent[nletters] = 1 + draft_below(d, 6);
    lb[b.rank++] = nletters;
    for (int i = 0; i + 1 < a.rank; i++) out[nout++] = i;
    out[nout++] = nletters++;
  } else { /* einsum */
    form = 2;
    b.rank = 0;
    for (int i = 0; i < a.rank; i++)
      if (draft_chance(d, 55)) lb[b.rank++] = i;
    int fresh = draft_below(d, 3);
    while (b.rank < MAX_RANK && (fresh-- > 0 || b.rank == 0)) {
      extent[nletters] = 1 + draft_below(d, 5);
      lb[b.rank++] = nletters++;
    }
    for (int i = b.rank; i-- > 1;) {
      int k = draft_below(d, i + 1), keep = lb[i];
      lb[i] = lb[k];
      lb[k] = keep;
    }
    int size = 1;
    for (int i = 0; i < nletters; i++)
      if (draft_chance(d, 60) && nout < MAX_RANK && size * extent[i] <= MOST_ELEMENTS) {
        size *= extent[i];
        out[nout++] = i;
      }
    for (int i = nout; i-- > 1;) {
      int k = draft_below(d, i + 1), keep = out[i];
      out[i] = out[k];
      out[k] = keep;
    }
  }
  int be[MAX_RANK];
  for (int i = 0; i < b.rank; i++) be[i] = extent[lb[i]];
  for (int tries = 0; tries < 8; tries++) { /* a value that there is, a tied weight for one */
    const Value *v = &d->pool[d->first_local + draft_below(d, d->npool - d->first_local)];
    if (!v->bound && v->rank == b.rank &&
        memcmp(v->extent, be, sizeof(int) * (size_t)b.rank) == 0) {
      b = *v;
      break;
    }
  }
  if (!b.name) b = draft_parameter(d, b.rank, be);
  Cut cut[8] = {{0}};
  int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
  for (int i = 0; i < n; i++) {
    if (draft_chance(d, 30)) continue;
    Cut *c = &cut[draft_below(d, nletters)];
    c->axis[c->n++] = axis[i];
  }
  Cut ca[MAX_RANK] = {{0}}, cb[MAX_RANK] = {{0}};
  Value r = {.rank = nout, .known = true};
  unsigned pending = (1u << nletters) - 1;
  double count = 1;
  for (int i = 0; i < a.rank; i++) ca[i] = cut[la[i]];
  for (int i = 0; i < b.rank; i++) cb[i] = cut[lb[i]];
  for (int i = 0; i < nout; i++) {
    r.extent[i] = extent[out[i]];
    r.cut[i] = cut[out[i]];
    pending &= ~(1u << out[i]);
  }
  for (int i = 0; i < nletters; i++) {
    if (!(pending >> i & 1)) continue;
    count *= extent[i];
    for (int k = 0; k < cut[i].n; k++) r.partial |= 1u << cut[i].axis[k];
  }
  Value x = draft_lay_as(d, &a, ca), y = draft_lay_as(d, &b, cb);
  const char *call;
  if (form == 0) {
    const char *bias = "";
    if (!r.partial && draft_chance(d, 40)) {
      Value w = draft_parameter(d, 1, &r.extent[nout - 1]);
      w = draft_lay_as(d, &w, &r.cut[nout - 1]);
      bias = draft_text(d, ", %s", w.name);
    }
    call = draft_text(d, "linear(%s, %s%s)", x.name, y.name, bias);
  } else if (form == 1) {
    call = draft_text(d, "matmul(%s, %s)", x.name, y.name);
  } else {
    StrBuf s;
    strbuf_init(&s, d->arena);
    for (int i = 0; i < a.rank; i++) strbuf_printf(&s, "%c", 'i' + la[i]);
    strbuf_puts(&s, ",");
    for (int i = 0; i < b.rank; i++) strbuf_printf(&s, "%c", 'i' + lb[i]);
    strbuf_puts(&s, "->");
    for (int i = 0; i < nout; i++) strbuf_printf(&s, "%c", 'i' + out[i]);
    call = draft_text(d, "einsum(\"%s\", %s, %s)", s.text, x.name, y.name);
  }
  draft_define(d, r, "%s * %.3f", call, 1 / (0.5 + 0.3 * count));
}

void random_reduce(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK);
  unsigned dims = 0;
  for (int i = 0; i < v.rank; i++) dims |= (unsigned)draft_chance(d, 50) << i;
  if (!dims) dims = 1u << draft_below(d, v.rank);
  bool keep = draft_chance(d, 40);
  StrBuf list;
  strbuf_init(&list, d->arena);
  Value r = {.rank = 0};
  int count = 1;
  for (int i = 0; i < v.rank; i++) {
    if (dims >> i & 1) {
      strbuf_printf(&list, "%s%d", *list.text ? ", " : "", draft_chance(d, 50) ? i : i - v.rank);
      count *= v.extent[i];
      if (keep) r.extent[r.rank++] = 1;
    } else {
      r.extent[r.rank++] = v.extent[i];
    }
  }
  static const char anywhere[] = "sum|mean|max|min|prod|norm_l1";
  static const char whole[] = "logsumexp|var|std|norm_l2|norm_inf";
  bool free = draft_chance(d, 60);
  const char *name = draft_word(d, free ? anywhere : whole);
  /* which rank gives a pending extremum is not known: no gradient */
  if (strcmp(name, "max") == 0 || strcmp(name, "min") == 0 || strcmp(name, "prod") == 0)
    free = false;
  if (strcmp(name, "prod") == 0 && count > 40) name = "mean";
  bool spread = strcmp(name, "var") == 0 || strcmp(name, "std") == 0;
  if (spread && count < 3) name = "logsumexp";
  Value x = draft_lay(d, &v, free ? 0 : dims, false);
  const char *operand = strcmp(name, "norm_l2") == 0 || strcmp(name, "std") == 0
                            ? draft_text(d, "%s + 1.5 * sin(%s * 3.0)", x.name, x.name)
                        : strcmp(name, "prod") == 0 ? draft_text(d, "1.1 * tanh(%s)", x.name)
                                                    : x.name;
  draft_define(d, r, "%s(%s, [%s]%s)%s", name, operand, list.text, keep ? ", keepdim = true" : "",
               strcmp(name, "sum") == 0 || strcmp(name, "norm_l1") == 0
                   ? draft_text(d, " * %.3f", 1 / (0.5 + 0.3 * count))
                   : "");
}

void random_whole_dim(Draft *d) {
  Value v = draft_pick(d, 1, MAX_RANK);
  int dim = draft_below(d, v.rank), kind = draft_below(d, 9);
  if (kind == 4 || kind == 5) dim = v.rank - 1;
  int said = draft_chance(d, 50) ? dim : dim - v.rank;
  Value x = draft_lay(d, &v, 1u << dim, false);
  switch (kind) {
  case 0:
    draft_define(d, x, "softmax(%s, %d)", x.name, said);
    break;
  case 1:
    draft_define(d, x, "log_softmax(%s, %d)", x.name, said);
    break;
  case 2:
    draft_define(d, x, "cumsum(%s, %d%s) * 0.4", x.name, said,
                 draft_chance(d, 50) ? ", reverse = true" : "");
    break;
  case 3: {
    Value s = x;
    s.id = ++d->names;
    s.name = draft_text(d, "v%d", s.id);
    s.mesh = d->at;
    s.known &= !d->auto_now && !d->raw_now;
    bool sort = draft_chance(d, 50);
    int k = sort ? x.extent[dim] : 1 + draft_below(d, x.extent[dim]);
    s.extent[dim] = k;
    Value i = s;
    i.id = ++d->names;
    i.name = draft_text(d, "v%d", i.id);
    i.bound = x.extent[dim];
    strbuf_printf(d->body, "    let %s, %s = %s(%s, %s%d%s)\n", s.name, i.name,
                  sort ? "sort" : "topk", x.name, sort ? "" : draft_text(d, "%d, ", k), said,
                  sort && draft_chance(d, 50) ? ", descending = true" : "");
    if (d->npool + 2 < MAX_POOL) {
      d->pool[d->npool++] = i;
      d->pool[d->npool++] = s;
    }
    break;
  }
  case 4:
  case 5: {
    if (x.extent[dim] < 2) break;
    Value w = draft_parameter(d, 1, &x.extent[dim]);
    Cut none[MAX_RANK] = {{0}};
    w = draft_lay_as(d, &w, none);
    const char *bias = "";
    if (draft_chance(d, 50)) {
      Value b = draft_parameter(d, 1, &x.extent[dim]);
      bias = draft_text(d, ", %s", draft_lay_as(d, &b, none).name);
    }
    if (kind == 4)
      draft_define(d, x, "layer_norm(%s, %s%s, eps = 0.01)", x.name, w.name, bias);
    else
      draft_define(d, x, "rms_norm(%s, %s, eps = 0.01)", x.name, w.name);
    break;
  }
  case 6: {
    if (x.rank < 2) break;
    Value y = draft_lay(d, &v, last_dims(&v, 2), false);
    draft_define(d, y,
                 draft_chance(d, 50) ? "layer_norm(%s, ndims = 2, eps = 0.02)"
                                     : "rms_norm(%s, ndims = 2, eps = 0.02)",
                 y.name);
    break;
  }
  default: { /* ids */
    Value r = x;
    r.rank = 0;
    for (int i = 0; i < x.rank; i++) {
      if (i == dim) continue;
      r.extent[r.rank] = x.extent[i];
      r.cut[r.rank++] = x.cut[i];
    }
    r.bound = x.extent[dim];
    draft_define(d, r, "%s(%s, %d)", draft_chance(d, 50) ? "argmax" : "argmin", x.name, said);
    break;
  }
  }
}

/* The axes that attention runs around and that cut no other dim, in some order, cut this one too.
 */
static void cut_sequence(Draft *d, int rank, int dim, Cut *cut) {
  int axis[MAX_AXES], n = draft_shuffled_axes(d, axis);
  for (int i = 0; i < n; i++) {
    bool used = axis[i] != AXIS_RING && axis[i] != AXIS_ULYSSES;
    for (int k = 0; k < rank; k++)
      for (int j = 0; j < cut[k].n; j++) used |= cut[k].axis[j] == axis[i];
    if (!used) cut[dim].axis[cut[dim].n++] = axis[i];
  }
}

/* A sequence in head-tail order around a ring that attends to itself, as a scalar. 24 is a multiple
 * of twice every size of a mesh dim. */
void random_balanced(Draft *d) {
  if (!d->context || d->auto_now || d->raw_now || d->fixed_mesh) return;
  d->at = 0;
  Value w = draft_parameter(d, 3, (int[]){1 + draft_below(d, 3), 24, 1 + draft_below(d, 2)}), x = w;
  Cut cut[MAX_RANK] = {{0}};
  w = draft_lay_as(d, &w, cut);
  draft_random_cuts(d, 3, 1u << 2, cut);
  cut[1].n = 0;
  cut_sequence(d, 3, 1, cut);
  memcpy(x.cut, cut, sizeof x.cut);
  int id = ++d->names;
  strbuf_printf(d->body, "    let h%d = balance_causal(%s, ring_cp).redistribute(%s)\n", id, w.name,
                draft_dims(d, &x));
  Value s = {.known = true};
  draft_define(
      d, s,
      "mean(full(unbalance(full(sin(h%d * 0.3 + scaled_dot_product_attention(h%d, h%d, h%d, "
      "causal = true))), 1)[:, 3:20]))",
      id, id, id, id);
}

/* A value [B, P, I] as rows of experts, of which each has as many as fit at most. */
void random_experts(Draft *d) {
  Value v = draft_pick(d, 3, 3);
  int experts = 1 + draft_below(d, 3);
  Value x = draft_lay(d, &v, 1u << 1 | 1u << 2, false), y = x;
  y.extent[2] = 1 + draft_below(d, 4);
  if (value_elements(&y) > MOST_ELEMENTS) return;
  const int weights[] = {experts, y.extent[2], x.extent[2]}, lines[] = {x.extent[0], experts};
  Cut cut[MAX_RANK] = {{0}};
  Value w = draft_parameter(d, 3, weights);
  w = draft_lay_as(d, &w, cut);
  cut[0] = x.cut[0];
  Value counts = draft_ids(d, 2, lines, x.extent[1] / experts + 1);
  counts = draft_lay_as(d, &counts, cut);
  draft_define(d, y, "grouped_linear(%s.unsqueeze(1), %s, %s).squeeze(1)", x.name, w.name,
               counts.name);
}

/* A value as queries [*, heads, queries, width] with keys and values of their own, whose heads are
 * cut like those of the queries where there are as many, or whole. Around a ring and with heads
 * exchanged, keys and values are cut like the queries. */
void random_attention(Draft *d) {
  Value v = draft_pick(d, 3, MAX_RANK);
  int last = v.rank - 1, h = v.rank - 3, heads = v.extent[h];
  int groups = 1 + draft_below(d, heads > 1 ? heads : 1);
  while (heads % groups) groups--;
  Value x, y;
  if (d->context) {
    Cut laid[MAX_RANK];
    draft_random_cuts(d, v.rank, 1u << last | 1u << (h + 1), laid);
    cut_sequence(d, v.rank, h + 1, laid);
    x = draft_lay_as(d, &v, laid);
  } else {
    x = draft_lay(d, &v, 1u << last, false);
  }
  y = x;
  int extent[MAX_RANK] = {0};
  Cut cut[MAX_RANK] = {{0}};
  for (int i = 0; i < h; i++) {
    extent[i] = x.extent[i];
    cut[i] = x.cut[i];
  }
  extent[h] = groups;
  extent[h + 1] = 1 + draft_below(d, 6);
  extent[last] = x.extent[last];
  if (groups == heads && draft_chance(d, 60)) cut[h] = x.cut[h];
  if (d->context) {
    cut[h + 1] = x.cut[h + 1];
    extent[h + 1] = x.extent[h + 1];
  }
  y.extent[last] = 1 + draft_below(d, 4);
  if (value_elements(&y) > MOST_ELEMENTS) return;
  Value k = draft_parameter(d, v.rank, extent);
  extent[last] = y.extent[last];
  Value values = draft_parameter(d, v.rank, extent);
  k = draft_lay_as(d, &k, cut);
  values = draft_lay_as(d, &values, cut);
  draft_define(d, y, "scaled_dot_product_attention(%s, %s, %s%s%s)", x.name, k.name, values.name,
               draft_chance(d, 50) ? ", causal = true" : "",
               draft_chance(d, 50) ? ", scale = 0.7" : "");
}
