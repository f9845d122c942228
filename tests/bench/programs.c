/* Generated training programs: see programs.h. Each family has a shape of memory of its own: how
 * long activations live, how unequal they are, and what is alive beside them. */
#include "programs.h"

#include "base/str.h"

/* A program under construction: the model's parameters and the lines of its forward. */
typedef struct Draft {
  Arena *arena;
  uint64_t state; /* of the random numbers */
  StrBuf params, body, about;
  uint32_t nparams;
  bool has_sums;     /* pending over tp, which must not be narrowed */
  uint32_t declared; /* bit set of the letters that are names in the body */
  uint32_t dp, tp, batch;
} Draft;

static uint32_t below(Draft *d, uint32_t n) {
  d->state ^= d->state << 13;
  d->state ^= d->state >> 7;
  d->state ^= d->state << 17;
  return (uint32_t)(d->state >> 33) % n;
}

static uint32_t between(Draft *d, uint32_t lo, uint32_t hi) {
  return lo + below(d, hi - lo + 1);
}

static bool chance(Draft *d, uint32_t percent) {
  return below(d, 100) < percent;
}

/* Every doubling of [lo, hi) is as likely as another; seldom a round number. */
static uint32_t width(Draft *d, uint32_t lo, uint32_t hi) {
  uint32_t doublings = 1;
  while (lo << (doublings + 1) <= hi) doublings++;
  uint32_t from = lo << below(d, doublings);
  return from + below(d, from);
}

/* A line of the body that gives a one-letter name a value. */
__attribute__((format(printf, 3, 4))) static void set(Draft *d, char name, const char *format,
                                                      ...) {
  uint32_t bit = 1u << (name - 'a');
  va_list args;
  va_start(args, format);
  strbuf_printf(&d->body, "    %s%c = %s\n", d->declared & bit ? "" : "let ", name,
                arena_vprintf(d->arena, format, args));
  va_end(args);
  d->declared |= bit;
}

/* --- layers
 * --------------------------------------------------------------------------------------- */

/* Which dim of a weight [out, in] is cut over tp. */
typedef enum Cut { CUT_NONE, CUT_OUT, CUT_IN } Cut;

static void linear(Draft *d, char from, char to, uint32_t in, uint32_t out, Cut cut) {
  uint32_t p = d->nparams++;
  d->has_sums |= cut == CUT_IN;
  strbuf_printf(&d->params, "  param w%u: f32[%u%s, %u%s] = normal(std = 0.02)\n", p, out,
                cut == CUT_OUT ? "@tp" : "", in, cut == CUT_IN ? "@tp" : "");
  strbuf_printf(&d->params, "  param b%u: f32[%u%s]%s\n", p, out, cut == CUT_OUT ? "@tp" : "",
                cut == CUT_IN ? " partial(tp)" : "");
  set(d, to, "linear(%c, w%u, b%u)", from, p, p);
}

static void norm(Draft *d, char from, char to, uint32_t width_of_it) {
  uint32_t p = d->nparams++;
  bool centred = chance(d, 50);
  strbuf_printf(&d->params, "  param w%u: f32[%u] = ones()\n", p, width_of_it);
  if (centred) strbuf_printf(&d->params, "  param b%u: f32[%u]\n", p, width_of_it);
  if (centred)
    set(d, to, "layer_norm(%c, w%u, b%u)", from, p, p);
  else
    set(d, to, "rms_norm(%c, w%u)", from, p);
}

static const char *activation(Draft *d) {
  static const char *const names[] = {"relu", "gelu", "tanh", "silu", "sigmoid", "gelu_tanh"};
  return names[below(d, 6)];
}

/* h = activation(h), with a norm before it or a dropout behind it now and then. */
static void bend(Draft *d, uint32_t width_of_it) {
  if (chance(d, 35)) norm(d, 'h', 'h', width_of_it);
  set(d, 'h', "%s(h)", activation(d));
  if (chance(d, 30)) set(d, 'h', "dropout(h, 0.1)");
}

/* --- the whole program
 * -------------------------------------------------------------------------------- */

static void draw_mesh(Draft *d) {
  d->dp = between(d, 1, 5);
  d->tp = between(d, 1, 4);
  d->batch = width(d, 16, 1024);
}

/* `input` and `result` are the types of forward, `data` the lines that read it. */
static GeneratedProgram finish(Draft *d, const char *family, const char *input, const char *data,
                               const char *loss) {
  static const char *const optimizers[] = {"sgd(lr = 0.01)", "sgd(lr = 0.01, momentum = 0.9)",
                                           "adamw(lr = 0.001, weight_decay = 0.1)"};
  uint32_t optimizer = below(d, 3);
  uint32_t accumulate = chance(d, 35) ? between(d, 2, 5) : 1;
  bool clip = chance(d, 40), narrow = !d->has_sums && chance(d, 35);
  StrBuf text;
  strbuf_init(&text, d->arena);
  strbuf_printf(&text, "mesh world(dp = %u, tp = %u)\n\nmodule Model() {\n%s\n", d->dp, d->tp,
                d->params.text);
  strbuf_printf(&text, "  forward(%s) {\n%s    return h\n  }\n}\n\n", input, d->body.text);
  strbuf_printf(&text, "train {\n%s  model m = Model()\n  loss %s\n  optimizer %s\n", data, loss,
                optimizers[optimizer]);
  if (clip) strbuf_puts(&text, "  clip_grad_norm 1.0\n");
  if (accumulate > 1) strbuf_printf(&text, "  accumulate %u\n", accumulate);
  if (narrow) strbuf_puts(&text, "  compute bf16\n");
  strbuf_puts(&text, "  steps 100\n}\n");
  strbuf_printf(&d->about, ", batch %u, mesh %u x %u%s%s%s%s", d->batch, d->dp, d->tp,
                optimizer == 2 ? ", adamw" : ", sgd", clip ? ", clip" : "",
                accumulate > 1 ? ", accumulate" : "", narrow ? ", bf16" : "");
  return (GeneratedProgram){.family = family, .text = text.text, .about = d->about.text};
}

static GeneratedProgram classify(Draft *d, const char *family, uint32_t in) {
  const char *cut = "@(dp, tp)";
  return finish(d, family, arena_printf(d->arena, "i: f32[B%s, %u]", cut, in),
                arena_printf(d->arena,
                             "  data x = npy(\"x.npy\", f32[%u%s, %u])\n"
                             "  data y = npy(\"y.npy\", i64[%u%s])\n",
                             d->batch, cut, in, d->batch, cut),
                "cross_entropy(m(x), y)");
}

/* Widths without any order: the largest activation may be anywhere. Data parallel on all ranks. */
static GeneratedProgram mlp(Draft *d) {
  uint32_t depth = between(d, 3, 14), in = width(d, 8, 2048), w = in;
  strbuf_printf(&d->about, "%u layers", depth);
  set(d, 'h', "i");
  for (uint32_t l = 0; l < depth; l++) {
    uint32_t next = l + 1 == depth ? between(d, 2, 40) : width(d, 8, 4096);
    linear(d, 'h', 'h', w, next, CUT_NONE);
    if (l + 1 < depth) bend(d, next);
    w = next;
  }
  return classify(d, "mlp", in);
}

/* Narrower and narrower, then wide again, with sums across: activations of the first half live
 * until the second, and the first layers' until the very end. */
static GeneratedProgram hourglass(Draft *d) {
  uint32_t levels = between(d, 2, 6), in = width(d, 256, 4096), w[8] = {in};
  strbuf_printf(&d->about, "%u levels", levels);
  set(d, 'h', "i");
  for (uint32_t l = 0; l < levels; l++) {
    w[l + 1] = w[l] / between(d, 1, 3) + between(d, 1, 9);
    strbuf_printf(&d->body, "    let s%u = h\n", l);
    linear(d, 'h', 'h', w[l], w[l + 1], CUT_NONE);
    bend(d, w[l + 1]);
  }
  for (uint32_t l = levels; l-- > 0;) {
    linear(d, 'h', 'h', w[l + 1], w[l], CUT_NONE);
    if (l > 0) bend(d, w[l]);
    set(d, 'h', "h + s%u", l);
  }
  linear(d, 'h', 'h', in, between(d, 2, 100), CUT_NONE);
  return classify(d, "hourglass", in);
}

/* Branches of unequal depth and width from one input, added or multiplied with each other. */
static GeneratedProgram branches(Draft *d) {
  uint32_t n = between(d, 2, 6), in = width(d, 32, 1024), out = width(d, 16, 1024);
  strbuf_printf(&d->about, "%u branches", n);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t depth = between(d, 1, 5), w = in;
    set(d, 'h', "i");
    for (uint32_t l = 0; l < depth; l++) {
      uint32_t next = l + 1 == depth ? out : width(d, 8, 2048);
      linear(d, 'h', 'h', w, next, CUT_NONE);
      bend(d, next);
      w = next;
    }
    if (k == 0)
      set(d, 's', "h");
    else
      set(d, 's', "%s", chance(d, 60) ? "s + h" : "s * h + h");
  }
  linear(d, 's', 'h', out, between(d, 2, 100), CUT_NONE);
  return classify(d, "branches", in);
}

/* Every layer sees the results of all before it: activations that grow and all live long. */
static GeneratedProgram dense(Draft *d) {
  uint32_t depth = between(d, 3, 9), in = width(d, 16, 512), w = in;
  strbuf_printf(&d->about, "%u layers", depth);
  set(d, 'a', "i");
  for (uint32_t l = 0; l < depth; l++) {
    uint32_t more = width(d, 16, 512);
    linear(d, 'a', 'h', w, more, CUT_NONE);
    bend(d, more);
    set(d, 'a', "concat([a, h], 1)");
    w += more;
  }
  linear(d, 'a', 'h', w, between(d, 2, 100), CUT_NONE);
  return classify(d, "dense", in);
}

/* x = x + down(bend(up(norm(x)))), tensor parallel over tp; with `sequence`, x is cut along its
 * second dim between the blocks. */
static void blocks(Draft *d, uint32_t layers, uint32_t dim, bool sequence) {
  bool gated = chance(d, 40), drop = chance(d, 40), even = chance(d, 60);
  uint32_t hidden = width(d, dim, 4 * dim);
  strbuf_printf(&d->about, "%u%s%s blocks of %u", layers, gated ? " gated" : "",
                sequence ? " sequence parallel" : "", dim);
  for (uint32_t l = 0; l < layers; l++) {
    if (!even) hidden = width(d, dim / 2 + 1, 4 * dim);
    norm(d, 'x', 'n', dim);
    if (sequence) set(d, 'n', "n.redistribute(tp: Replicate)");
    linear(d, 'n', 'h', dim, hidden, CUT_OUT);
    set(d, 'h', "%s(h)", activation(d));
    if (gated) {
      linear(d, 'n', 'g', dim, hidden, CUT_OUT);
      set(d, 'h', "h * g");
    }
    linear(d, 'h', 'h', hidden, dim, CUT_IN);
    set(d, 'h', "h.redistribute(tp: %s)", sequence ? "Shard(1)" : "Replicate");
    if (drop) set(d, 'h', "dropout(h, 0.1)");
    set(d, 'x', "x + h");
  }
}

static GeneratedProgram residual(Draft *d) {
  uint32_t dim = width(d, 32, 1024);
  set(d, 'x', "i");
  blocks(d, between(d, 2, 30), dim, false);
  linear(d, 'x', 'h', dim, between(d, 2, 1000), CUT_NONE);
  return finish(d, "residual", arena_printf(d->arena, "i: f32[B@dp, %u]", dim),
                arena_printf(d->arena,
                             "  data x = npy(\"x.npy\", f32[%u@dp, %u])\n"
                             "  data y = npy(\"y.npy\", i64[%u@dp])\n",
                             d->batch, dim, d->batch),
                "cross_entropy(m(x), y)");
}

/* A language model without attention: the vocabulary is cut over tp. */
static GeneratedProgram lm(Draft *d) {
  uint32_t dim = width(d, 32, 512), vocab = width(d, 100, 30000), seq = width(d, 8, 128);
  bool sequence = chance(d, 60);
  d->batch = between(d, 2, 30);
  uint32_t table = d->nparams++;
  strbuf_printf(&d->params, "  param w%u: f32[%u@tp, %u] = normal(std = 0.02)\n", table, vocab,
                dim);
  set(d, 'x', "embedding(ids, w%u).redistribute(tp: %s)", table,
      sequence ? "Shard(1)" : "Replicate");
  blocks(d, between(d, 1, 12), dim, sequence);
  strbuf_printf(&d->about, ", vocabulary %u, sequence %u", vocab, seq);
  norm(d, 'x', 'x', dim);
  if (sequence) set(d, 'x', "x.redistribute(tp: Replicate)");
  linear(d, 'x', 'h', dim, vocab, CUT_OUT);
  return finish(
      d, "lm", "ids: i32[B@dp, S]",
      arena_printf(d->arena, "  data ids = npy(\"ids.npy\", i32[%u@dp, %u])\n", d->batch, seq + 1),
      arena_printf(d->arena, "cross_entropy(m(ids[:, 0:%u]), ids[:, 1:%u], label_smoothing = %s)",
                   seq, seq + 1, chance(d, 30) ? "0.1" : "0.0"));
}

GeneratedProgram generate_program(Arena *arena, uint64_t seed, uint32_t number) {
  static GeneratedProgram (*const families[])(Draft *) = {mlp,       residual, lm,
                                                          hourglass, branches, dense};
  Draft d = {.arena = arena, .state = seed + 0x9E3779B97F4A7C15ull * (number + 1)};
  strbuf_init(&d.params, arena);
  strbuf_init(&d.body, arena);
  strbuf_init(&d.about, arena);
  for (int i = 0; i < 8; i++) below(&d, 2); /* away from the seed */
  draw_mesh(&d);
  return families[number % (sizeof families / sizeof *families)](&d);
}
