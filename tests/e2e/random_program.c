/* Whole random programs: see random_program.h. */
#include "random_program.h"

#include <string.h>

#include "random_draft.h"

static void operators(Draft *d, int count) {
  static const struct {
    void (*make)(Draft *);
    int weight;
  } ops[] = {{random_unary, 14},     {random_scale, 4},        {random_binary, 18},
             {random_pending, 5},    {random_contract, 18},    {random_reduce, 9},
             {random_whole_dim, 14}, {random_attention, 6},    {random_balanced, 2},
             {random_shape, 11},     {random_move, 12},        {random_index, 12},
             {random_noise, 4},      {random_redistribute, 4}, {random_loss, 3},
             {random_local, 4},      {random_experts, 3},      {random_composed, 5}};
  int total = 0;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) total += ops[i].weight;
  for (int k = 0; k < count; k++) {
    int n = draft_below(d, total);
    size_t i = 0;
    while (n >= ops[i].weight) n -= ops[i++].weight;
    d->auto_now = d->wild && d->nmeshes == 1 && draft_chance(d, 40);
    d->raw_now = d->wild && !d->auto_now && draft_chance(d, 10);
    ops[i].make(d);
    d->auto_now = d->raw_now = false;
  }
}

/* A scalar, whole on the mesh at hand, that depends on several values. */
static const char *summary(Draft *d, int terms) {
  StrBuf s;
  strbuf_init(&s, d->arena);
  int last = d->npool - 1;
  bool any = false;
  while (d->pool[last].bound) last--; /* this one at least */
  for (int i = d->npool; i-- > d->first_local && terms > 0;) {
    Value v = d->pool[i];
    if (v.bound || (d->used[v.id] && i != last)) continue;
    Cut cut[MAX_RANK];
    draft_random_cuts(d, v.rank, 0, cut);
    Value x = draft_lay_as(d, &v, cut);
    strbuf_printf(
        &s, "%sfull(%s)", any ? " + " : "",
        draft_apply(d, draft_chance(d, 50) ? "mean(square(%s))" : "mean(sin(%s))", x.name));
    any = true;
    terms--;
  }
  return s.text;
}

/* module BlockN, whose forward keeps shape and layout. */
static void block(Draft *d, StrBuf *file, int number, const Value *like, int mesh, bool full_body) {
  StrBuf params, body, *outer_params = d->params, *outer_body = d->body;
  strbuf_init(&params, d->arena);
  strbuf_init(&body, d->arena);
  int first = d->first_local, n = d->npool, at = d->at;
  d->params = &params;
  d->body = &body;
  d->first_local = n;
  d->fixed_mesh = true;
  d->at = mesh;
  Value x = *like;
  x.name = "x";
  d->pool[d->npool++] = x;
  operators(d, full_body ? 3 + draft_below(d, 6) : 2);
  const char *more = "";
  for (int i = d->npool; i-- > n + 1 && !*more;) {
    Value v = d->pool[i];
    if (v.bound || v.rank != x.rank ||
        memcmp(v.extent, x.extent, sizeof(int) * (size_t)x.rank) != 0)
      continue;
    more = draft_text(d, " + tanh(%s)", draft_lay_as(d, &v, x.cut).name);
  }
  const char *scale = summary(d, 8);
  strbuf_printf(file,
                "module Block%d() {\n%s  forward(x) {\n%s    return x * (0.5 + 0.1 * (%s))%s\n"
                "  }\n}\n\n",
                number, params.text, body.text, scale, more);
  d->npool = n;
  d->first_local = first;
  d->params = outer_params;
  d->body = outer_body;
  d->fixed_mesh = false;
  d->at = at;
}

static void draw_meshes(Draft *d, StrBuf *lets, RandomProgram *p) {
  int n = 1 + draft_below(d, 3), kind = draft_below(d, 10);
  unsigned all = (1u << n) - 1;
  static const char *const names[2][MAX_AXES] = {{"a", "b", "c", "p", "f"},
                                                 {"a", "ring_cp", "ulysses_cp", "p", "f"}};
  d->context = n > 1 && kind > 3 && draft_chance(d, 40);
  memcpy(d->axis_name, names[d->context], sizeof names[d->context]);
  d->mesh[d->nmeshes++] = (Mesh){"world", all};
  memcpy(p->axes, d->axis_name, (size_t)n * sizeof *p->axes);
  if (kind < 2) {
    p->axes[n++] = d->axis_name[AXIS_STAGES];
    d->mesh[0].axes |= 1u << AXIS_STAGES;
    d->mesh[d->nmeshes++] = (Mesh){"first", all};
    d->mesh[d->nmeshes++] = (Mesh){"last", all};
    strbuf_puts(lets, "let stages = world.unbind(\"p\")\nlet first = stages[0]\n"
                      "let last = stages[len(stages) - 1]\n");
  } else if (kind == 2) {
    d->mesh[d->nmeshes++] = (Mesh){"some", 1};
    strbuf_puts(lets, "let some = world[\"a\"]\n");
  } else if (kind == 3 && n > 1) {
    d->mesh[d->nmeshes++] = (Mesh){"joined", (all & ~3u) | 1u << AXIS_FLAT};
    d->mesh[d->nmeshes++] = (Mesh){"turned", 3};
    strbuf_puts(lets, "let joined = world.flatten(\"b\", \"a\" as \"f\")\n"
                      "let turned = concatenate(world[\"b\"], world[\"a\"])\n");
  }
  p->naxes = n;
}

/* The forward of Net, and modules that it uses; its result, and what makes that a loss. */
static const char *mixed_program(Draft *d, StrBuf *file, StrBuf *members, const char **reduced) {
  int blocks = draft_below(d, 3);
  operators(d, 4 + draft_below(d, 10));
  for (int b = 0; b < blocks; b++) {
    Value v = draft_pick(d, 1, MAX_RANK);
    Cut cut[MAX_RANK];
    draft_random_cuts(d, v.rank, 0, cut);
    Value like = draft_lay_as(d, &v, cut);
    int copies = 1 + draft_below(d, 3), at = d->at;
    block(d, file, b, &like, at, true);
    strbuf_printf(members, "  blocks%d = [Block%d()%s for i in range(%d)]\n", b, b, draft_on(d, at),
                  copies);
    d->at = at;
    for (int i = 0; i < copies; i++)
      like = draft_define(d, like, "%sblocks%d[%d](%s)", draft_chance(d, 30) ? "recompute " : "", b,
                          i, like.name);
    operators(d, 2 + draft_below(d, 6));
  }
  d->at = 0;
  bool tensor = draft_chance(d, 40);
  const char *result = summary(d, 20);
  if (tensor) {
    Value v = {.rank = -1};
    for (int i = d->npool; i-- > 0 && v.rank < 0;)
      if (!d->pool[i].bound && d->pool[i].rank > 0) v = d->pool[i];
    d->at = 0;
    Cut cut[MAX_RANK];
    draft_random_cuts(d, v.rank, 0, cut);
    v = draft_lay_as(d, &v, cut);
    result = draft_text(d, "tanh(%s) + (%s)", v.name, result);
    *reduced = draft_chance(d, 50) ? "mean" : "0.1 * sum";
  }
  return result;
}

/* A number of micro-batches that divides the batch. */
static const char *parts_of(Draft *d, int batch) {
  int n = 1 + draft_below(d, batch);
  while (batch % n) n++;
  return draft_text(d, "microbatches %d", n);
}

RandomProgram random_program(Arena *arena, uint64_t seed, uint64_t number, RandomOptions options) {
  Draft draft = {.arena = arena, .options = options}, *d = &draft;
  d->state = (seed + 1) * 0x9E3779B97F4A7C15ull ^ (number + 1) * 0xD1B54A32D192ED03ull;
  for (int i = 0; i < 8; i++) draft_below(d, 2); /* away from the seed */
  StrBuf file, lets, params, body, members;
  strbuf_init(&file, arena);
  strbuf_init(&lets, arena);
  strbuf_init(&params, arena);
  strbuf_init(&body, arena);
  strbuf_init(&members, arena);
  d->params = &params;
  d->body = &body;
  RandomProgram p = {0};
  draw_meshes(d, &lets, &p);
  d->wild = draft_chance(d, 12);
  bool by_rows = draft_chance(d, 10) && options.descent == 0;
  if (by_rows) d->nmeshes = 1;
  p.batch = 2 + draft_below(d, 8);
  p.features = 2 + draft_below(d, 6);
  p.narrow = draft_chance(d, 5) && options.descent == 0;

  Value x = {.name = "x", .rank = 2, .extent = {p.batch, p.features}, .known = true}, t = x;
  draft_random_cuts(d, 2, 2, x.cut); /* the rows of data only */
  t.name = "t";
  t.extent[1] = 5;
  t.bound = RANDOM_IDS;
  memcpy(t.cut, x.cut, sizeof x.cut);
  d->pool[d->npool++] = x;
  bool ids = by_rows || draft_chance(d, 60);
  if (ids && !by_rows) d->pool[d->npool++] = t;
  const char *result = NULL, *reduced = "", *type = "";
  if (by_rows) {
    Value rows = x;
    rows.rows = true;
    type = draft_text(d, ": f32%s", draft_dims(d, &rows));
    result = random_rows(d, &rows);
  } else {
    result = mixed_program(d, &file, &members, &reduced);
  }
  const char *arguments = ids && !by_rows ? ", t" : "";
  StrBuf s;
  strbuf_init(&s, arena);
  strbuf_puts(&s, "mesh world(");
  for (int i = 0; i < p.naxes; i++) strbuf_printf(&s, "%s%s = 1", i ? ", " : "", p.axes[i]);
  strbuf_printf(&s, ")\n%s\n%smodule Net() {\n%s%s  forward(x%s%s) {\n%s    return %s\n  }\n}\n\n",
                lets.text, file.text, params.text, members.text, type, arguments, body.text,
                result);
  strbuf_printf(&s, "train {\n  data x = npy(\"x.npy\", f32%s)\n", draft_dims(d, &x));
  if (ids) strbuf_printf(&s, "  data t = npy(\"t.npy\", i32%s)\n", draft_dims(d, &t));
  if (draft_chance(d, 40)) { /* parameters in pieces */
    const char *level = draft_word(d, "|optimizer |gradients |parameters |");
    strbuf_printf(&s, "  store %s@%s\n", level, p.axes[draft_below(d, p.naxes)]);
  }
  strbuf_puts(&s, "  model m = Net()\n");
  strbuf_printf(&s, "  let y = m(x%s)\n", arguments);
  if (by_rows)
    strbuf_printf(&s, "  loss %s\n  %s\n",
                  draft_chance(d, 60) ? "cross_entropy(y, t[:, 0])" : "mean(square(y))",
                  draft_chance(d, 50) ? "drop_last false" : parts_of(d, p.batch));
  else
    strbuf_printf(&s, "  loss %s(y)\n", reduced);
  static const char optimizers[] =
      "sgd(lr = 0.05)|sgd(lr = 0.02, momentum = 0.9)|"
      "sgd(lr = 0.03, momentum = 0.8, weight_decay = 0.1)|adamw(lr = 0.01, eps = 1e-4)|"
      "adamw(lr = 0.02, weight_decay = 0.1, eps = 1e-4)";
  const char *optimizer = draft_word(d, optimizers);
  bool clip = draft_chance(d, 35);
  int accumulate = 1 + draft_below(d, 6);
  if (options.descent != 0) {
    strbuf_printf(&s, "  optimizer sgd(lr = %.17g)\n  shuffle false\n", options.descent);
  } else {
    strbuf_printf(&s, "  optimizer %s\n", optimizer);
    if (clip) strbuf_puts(&s, "  clip_grad_norm 0.3\n");
    if (accumulate < 4 && accumulate > 1) strbuf_printf(&s, "  accumulate %d\n", accumulate);
    if (p.narrow) strbuf_puts(&s, "  compute bf16\n");
    if (draft_chance(d, 40)) strbuf_puts(&s, "  metric size = mean(square(y))\n");
    if (draft_chance(d, 40) && !by_rows) strbuf_puts(&s, "  metric most = max(abs(y))\n");
  }
  strbuf_puts(&s, "  save \"out.safetensors\"\n  steps 4\n}\n");
  p.text = s.text;
  return p;
}
