/* Calls of alike modules are copied (compiler/sema/replay.h): the program is the one that comes out
 * when each is elaborated, to the last id, name and scope. Each program here differs between its
 * layers, or holds on to something, in one way that a copy could get wrong; how many calls may be
 * copied is counted, so that neither copying too much nor nothing passes.
 *
 * The samples and all programs of the tests are compared in the same way on several meshes.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "reference/compile.h"
#include "support/suite.h"

typedef struct Both {
  Compiled copied, each;
  SemaCopies copies;
} Both;

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_attr(const Attr *a, const Attr *b) {
  if (a->key != b->key) return false;
  if (attr_kind(a->key) == ATTR_KIND_STRING) return strcmp(a->as.s, b->as.s) == 0;
  if (attr_kind(a->key) != ATTR_KIND_TYPE) return attr_equal(a, b);
  const TensorType *t = a->as.type, *u = b->as.type;
  return t->dtype == u->dtype && type_same_elements(t, u) && layout_equal(&t->layout, &u->layout);
}

/* NULL, or what differs. Types are compared as text: their meshes are those of two programs. */
static const char *graph_difference(Arena *arena, const Graph *a, const Graph *b) {
  if (a->nodes.len != b->nodes.len) return "nodes";
  if (a->values.len != b->values.len) return "values";
  if (a->scopes.len != b->scopes.len) return "scopes";
  for (uint32_t i = 0; i < a->scopes.len; i++) {
    const Scope *x = &a->scopes.data[i], *y = &b->scopes.data[i];
    if (x->parent != y->parent || strcmp(x->path, y->path) != 0 || strcmp(x->what, y->what) != 0 ||
        memcmp(&x->call, &y->call, sizeof x->call) != 0 || x->recompute != y->recompute)
      return arena_printf(arena, "scope %u", i);
  }
  for (NodeId id = 1; id < a->nodes.len; id++) {
    const Node *n = graph_node(a, id), *m = graph_node(b, id);
    bool same = n->op == m->op && n->scope == m->scope && n->noperands == m->noperands &&
                n->nresults == m->nresults && n->nattrs == m->nattrs &&
                n->first_result == m->first_result &&
                memcmp(&n->span, &m->span, sizeof n->span) == 0;
    for (uint32_t i = 0; same && i < n->noperands; i++) same = n->operands[i] == m->operands[i];
    for (uint32_t i = 0; same && i < n->nattrs; i++) same = same_attr(&n->attrs[i], &m->attrs[i]);
    if (!same) return arena_printf(arena, "node %u, %s", id, op_name(m->op));
  }
  for (ValueId v = 1; v < a->values.len; v++) {
    const Value *x = graph_value(a, v), *y = graph_value(b, v);
    if (x->node != y->node || x->index != y->index || x->poisoned != y->poisoned ||
        !same_text(x->name, y->name) || (x->name && x->name_scope != y->name_scope) ||
        strcmp(type_print(arena, &x->type), type_print(arena, &y->type)) != 0)
      return arena_printf(arena, "value %u, %s", v, y->name ? y->name : "");
  }
  return NULL;
}

static void compile_both(Both *b, const char *text, const char *mesh, bool two, const char *what) {
  SemaOptions o = {.copied = &b->copies, .assume_two = two};
  b->copies = (SemaCopies){0};
  compile_text(&b->copied, text, mesh, &o);
  SemaOptions each = {.each_call = true, .assume_two = two};
  compile_text(&b->each, text, mesh, &each);
  Arena *arena = &b->each.arena;
  ck_assert_str_eq(compile_messages(&b->copied), compile_messages(&b->each));
  const Program *p = b->copied.program, *q = b->each.program;
  StrBuf texts[2]; /* with settings, data and meshes */
  for (int i = 0; i < 2; i++) {
    strbuf_init(&texts[i], arena);
    program_print(&texts[i], i ? q : p);
  }
  ck_assert_str_eq(texts[0].text, texts[1].text);
  ck_assert_uint_eq(p->vars.len, q->vars.len);
  for (uint32_t i = 0; i < p->vars.len; i++) {
    ck_assert_str_eq(p->vars.data[i].name, q->vars.data[i].name);
    const Var *v = &p->vars.data[i], *u = &q->vars.data[i];
    ck_assert_int_eq(v->kind, u->kind);
    ck_assert_str_eq(v->foreign_name ? v->foreign_name : "",
                     u->foreign_name ? u->foreign_name : "");
    ck_assert_str_eq(type_print(arena, &v->type), type_print(arena, &u->type));
    ck_assert(v->transposed == u->transposed && v->chunks == u->chunks && v->store == u->store &&
              layout_equal(&v->stored, &u->stored));
  }
  for (BlockKind k = 0; k < BLOCK_COUNT; k++) {
    const Graph *g = p->block[k].graph, *h = q->block[k].graph;
    ck_assert(!g == !h);
    const char *difference = g ? graph_difference(arena, g, h) : NULL;
    ck_assert_msg(!difference, "%s on '%s', %s: %s differs", what, mesh ? mesh : "", block_name(k),
                  difference);
  }
}

static void free_both(Both *b) {
  compile_free(&b->copied);
  compile_free(&b->each);
}

/* --- layers that are alike in all but one thing -------------------------------------------------
 */

#define HEAD                                                                                       \
  "import nn\n"                                                                                    \
  "config { layers = 4  dim = 8  batch = 16 }\n"                                                   \
  "mesh world(dp = 2, pp = 2, tp = 2)\n"                                                           \
  "let stages = world.unbind(\"pp\")\n"

#define TRAIN                                                                                      \
  "train {\n"                                                                                      \
  "  data x = npy(\"x.npy\", f32[batch@dp, dim] on stages[0])\n"                                   \
  "  model m = Net()\n"                                                                            \
  "  loss mean(square(m(x)))\n"                                                                    \
  "  optimizer sgd(lr = 0.1)\n"                                                                    \
  "  steps 2\n"                                                                                    \
  "}\n"

/* Net of `layers` modules Layer, made as told. */
#define NET(make)                                                                                  \
  "module Net() {\n"                                                                               \
  "  layer = [" make " on stages[0] for i in range(layers)]\n"                                     \
  "  forward(x) { let h = x\n"                                                                     \
  "    for i in range(layers) { h = layer[i](h) }\n"                                               \
  "    return h }\n"                                                                               \
  "}\n"

#define WEIGHT "  param w: f32[dim, dim] = normal(std = 0.1)\n"

typedef struct Case {
  const char *what;
  uint32_t copied;
  const char *text;
} Case;

static const Case cases[] = {
    {"alike", 3,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT
                               "  forward(x) { let y = linear(x, w)\n return relu(y) }\n}\n"},
    /* what a module is given */
    {"its index", 0,
     HEAD NET("Layer(i)") TRAIN "module Layer(index: int) {\n" WEIGHT
                                "  forward(x) { return linear(x, w) * (1.0 / (index + 1)) }\n}\n"},
    {"its index, and no use of it", 0,
     HEAD NET("Layer(i)") TRAIN "module Layer(index: int) {\n" WEIGHT
                                "  forward(x) { return linear(x, w) }\n}\n"},
    {"every second one acts otherwise", 2,
     HEAD NET("Layer(i % 2 == 0)") TRAIN
     "module Layer(even: bool) {\n" WEIGHT
     "  forward(x) { return if even then relu(linear(x, w)) else linear(x, w) }\n}\n"},
    {"probabilities", 2,
     HEAD NET("Layer(if i < 2 then 0.1 else 0.2)") TRAIN
     "module Layer(p: float) {\n" WEIGHT "  drop = nn.Dropout(p)\n"
     "  forward(x) { return drop(linear(x, w)) }\n}\n"},
    {"parameters that only some have", 2,
     HEAD NET("Layer(i < 2)") TRAIN
     "module Layer(has: bool) {\n" WEIGHT "  if has { param b: f32[dim] = zeros }\n"
     "  forward(x) { return if has then linear(x, w, b) else linear(x, w) }\n}\n"},
    {"parameters of other layouts", 2,
     HEAD NET("Layer(if i < 2 then \"tp\" else none)") TRAIN
     "module Layer(cut: axis?) {\n  param w: f32[dim@cut, dim] = zeros\n"
     "  forward(x) { return linear(x, w).redistribute(tp: Replicate) }\n}\n"},
    {"two modules of one interface", 2,
     HEAD NET("(if i < 2 then One else Two)()") TRAIN
     "module One() {\n" WEIGHT "  forward(x) { return relu(linear(x, w)) }\n}\n"
     "module Two() {\n" WEIGHT "  forward(x) { return tanh(linear(x, w)) }\n}\n"},
    {"a function", 2,
     HEAD NET("Layer(if i < 2 then one else two)") TRAIN
     "fn one(x) { return relu(x) }\nfn two(x) { return tanh(x) }\n"
     "module Layer(act: module) {\n" WEIGHT "  forward(x) { return act(linear(x, w)) }\n}\n"},
    {"sub-modules in a list", 5,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n  parts = [Part(), Part(), Part()]\n"
     "  forward(x) { let y = x\n    for p in parts { y = p(y) }\n    return y }\n}\n"
     "module Part() {\n" WEIGHT "  forward(x) { return linear(x, w) }\n}\n"},
    {"a base and its hooks", 3,
     HEAD NET("Layer()") TRAIN
     "module Base(n: int) {\n  param w: f32[n@tp, dim] = zeros\n"
     "  forward(x) { return linear(x, w) }\n}\n"
     "module Layer() : Base(dim) {\n"
     "  redistribute_input(x) { return relu(x) }\n"
     "  redistribute_output(y, x) { return y.redistribute(tp: Replicate) + x }\n}\n"},
    /* variables that are one, or are not */
    {"tied with one of all layers", 3,
     HEAD "module Net() {\n"
          "  on stages[0] { param w: f32[dim, dim] = zeros }\n"
          "  layer = [Layer(w) on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(shared: any) {\n  param own: f32[dim, dim] = zeros\n"
          "  forward(x) { return linear(linear(x, shared), own) }\n}\n"},
    {"tied with itself, in some", 2,
     HEAD "module Net() {\n  on stages[0] {\n"
          "    param a: f32[dim, dim] = zeros\n    param b: f32[dim, dim] = zeros\n  }\n"
          "  layer = [Layer(a, if i < 2 then a else b) on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(one: any, two: any) {\n"
          "  forward(x) { return linear(x, one) + linear(x, two) }\n}\n"},
    {"the weight of the layer before", 2,
     HEAD "module Net() {\n  first = Layer(none) on stages[0]\n"
          "  second = Layer(first.w) on stages[0]\n  third = Layer(second.w) on stages[0]\n"
          "  fourth = Layer(third.w) on stages[0]\n"
          "  forward(x) { let h = x\n"
          "    for l in [first, second, third, fourth] { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(before: any) {\n" WEIGHT "  forward(x) { let y = linear(x, w)\n"
          "    return if before == none then y else linear(y, before) }\n}\n"},
    {"read before by some", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = linear(linear(x, layer[0].w), layer[3].w)\n"
          "    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(relu(x), w) }\n}\n"},
    {"of other layouts in their place", 2,
     HEAD "module Net() {\n"
          "  held = [Held(if i < 2 then \"tp\" else none) on stages[0] for i in range(layers)]\n"
          "  layer = [Layer(h.w) on stages[0] for h in held]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Held(cut: axis?) { param w: f32[dim@cut, dim] = zeros }\n"
          "module Layer(w: any) {\n"
          "  forward(x) { return linear(x, w).redistribute(tp: Replicate) }\n}\n"},
    {"a module of the file, beside what the layers are given", 0,
     HEAD "let pool = [Held() on stages[0] for i in range(layers)]\n"
          "module Held() {\n" WEIGHT "}\n"
          "module Net() {\n  layer = [Layer(p.w) on stages[0] for p in pool]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(own: any) {\n"
          "  forward(x) { return linear(linear(x, own), pool[0].w) }\n}\n"},
    /* where it stands */
    {"stages", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[div(i, 2)] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h.redistribute(mesh = stages[div(i, 2)])) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
    {"stages in turn", 1,
     HEAD "module Net() {\n  layer = [Layer() on stages[i % 2] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h.redistribute(mesh = stages[i % 2])) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
    {"each is called twice", 7,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { for k in range(2) { h = l(h) } }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT "  drop = nn.Dropout(0.5)\n"
          "  forward(x) { return drop(linear(x, w)) }\n}\n"},
    {"another call of the same", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = layer[1](layer[0](x))\n"
          "    for i in [2, 3] { h = layer[i](h) }\n    for i in [0, 1] { h = layer[i](h) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
    /* what a call is given */
    {"numbers", 2,
     HEAD
     "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
     "  forward(x) { let h = x\n"
     "    for i in range(layers) { h = layer[i](h, div(i, 2) + 0.5) }\n    return h }\n}\n" TRAIN
     "module Layer() {\n" WEIGHT "  forward(x, by) { return linear(x, w) * by }\n}\n"},
    {"one tensor twice, or two", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = relu(x)\n    let g = tanh(x)\n"
          "    for i in range(layers) { h = layer[i](h, if i < 2 then h else g) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x, y) { return linear(x + y, w) }\n}\n"},
    {"two tensors, or one twice", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = relu(x)\n    let g = tanh(x)\n"
          "    for i in range(layers) { h = layer[i](h, if i < 2 then g else h) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x, y) { return linear(x + y, w) }\n}\n"},
    {"other layouts", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) {\n"
          "      if i == 2 { h = h.redistribute(dp: Replicate) }\n      h = layer[i](h)\n    }\n"
          "    return h.redistribute(dp: Shard(0)) }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
    {"a tensor, a variable", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let c = [relu(layer[0].w), tanh(layer[1].w)]\n    let h = x\n"
          "    for i in range(2) { h = layer[i](h, c[i]) }\n"
          "    for i in [2, 3] { h = layer[i](h, layer[i].w) }\n    return h }\n}\n" TRAIN
          "module Layer() {\n" WEIGHT "  forward(x, c) { return linear(x, w) + c.sum() }\n}\n"},
    {"another layer of its own", 3,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  side = [Side() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h, side[i]) }\n    return h }\n}\n" TRAIN
          "module Side() {\n" WEIGHT "  drop = nn.Dropout(0.5)\n"
          "  forward(x) { return drop(linear(x, w)) }\n}\n"
          "module Layer() {\n" WEIGHT "  forward(x, side) { return linear(side(x), w) }\n}\n"},
    {"itself, or the layer before", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h, layer[if i < 2 then i else i - 1]) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x, other) { return linear(linear(x, w), other.w) }\n}\n"},
    {"its weight, or that of the layer before", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h, layer[if i < 2 then i else i - 1].w) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x, other) { return linear(linear(x, w), other) }\n}\n"},
    {"one side layer for some", 4,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  side = [Side() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n"
          "    for i in range(layers) { h = layer[i](h, side[i], side[if i < 2 then i else 0]) }\n"
          "    return h }\n}\n" TRAIN "module Side() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"
          "module Layer() {\n" WEIGHT "  forward(x, a, b) { return linear(a(x) + b(x), w) }\n}\n"},
    /* names, random numbers and what else a call leaves behind */
    {"names of arguments and results", 3,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT
                               "  forward(x) { let seen = x\n    let y = linear(seen, w)\n"
                               "    let z = y\n    return z }\n}\n"},
    {"an unnamed argument is named within", 3,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = relu(x)\n"
          "    for i in range(layers) { h = layer[i](tanh(h)) + h }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { let seen = x\n    return linear(seen, w) }\n}\n"},
    {"several results", 3,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    let all = x\n"
          "    for l in layer { let both = l(h)\n      h = both[0]\n      all = all + both[1] }\n"
          "    return all }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { let y = linear(x, w)\n    return [x, y] }\n}\n"},
    {"its weight as result", 3,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = linear(h, l(h)) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT "  forward(x) { return w }\n}\n"},
    {"random numbers", 3,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT "  drop = nn.Dropout(0.5)\n"
                               "  forward(x) { let noise = rand_like(x)\n"
                               "    return drop(drop(linear(x, w)) + noise) + rand_like(x) }\n}\n"},
    {"recomputed", 3,
     HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = recompute l(h) }\n"
          "    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return recompute relu(linear(x, w)) }\n}\n"},
    {"buffers that are assigned", 3,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n" WEIGHT "  buffer mean_of: f32[dim] = zeros\n"
     "  forward(x) { let m = mean(x, 0).redistribute(dp: Replicate)\n"
     "    mean_of = mean_of * 0.9 + m * 0.1\n    return linear(x, w) - mean_of }\n}\n"},
    {"a local region", 3,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n" WEIGHT "  forward(x) { let y = linear(x, w)\n"
     "    let z = local(y) -> f32[batch@dp, dim] on stages[0] { return relu(y) }\n"
     "    return z }\n}\n"},
    {"an escape that is counted", 0,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n  param w: f32[dim@tp, dim] = zeros\n"
     "  forward(x) { let y = auto(out = [batch@dp, dim]) { return linear(x, w) }\n"
     "    return y }\n}\n"},
    {"more work than there may be", 2,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n" WEIGHT
     "  forward(x) { let many = range(1048576)\n    return linear(x, w) }\n}\n"},
    {"a warning", 3,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT
                               "  forward(x: f32[B@dp, dims]) { return linear(x, w) }\n}\n"},
    {"an error", 0,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT
                               "  forward(x) { return linear(x, w.reshape([3])) }\n}\n"},
    {"an error in the last one", 0,
     HEAD "module Net() {\n  layer = [Layer(i) on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(i: int) {\n  param w: f32[if i < 3 then dim else 5, dim] = zeros\n"
          "  forward(x) { return linear(x, w) + x }\n}\n"},
};

START_TEST(one_thing_differs) {
  const Case *c = &cases[_i];
  Both b;
  compile_both(&b, c->text, NULL, false, c->what);
  ck_assert_msg(b.copies.calls == c->copied, "%s: %u calls are copied, not %u\n%s", c->what,
                b.copies.calls, c->copied, compile_messages(&b.copied));
  free_both(&b);
}
END_TEST

/* --- instances that are made alike in all but one thing -----------------------------------------
 */

/* How many instances are copies, the others within a copy not counted. */
static const Case makings[] = {
    {"alike", 3,
     HEAD NET("Layer()") TRAIN "module Layer() {\n" WEIGHT
                               "  forward(x) { return linear(x, w) }\n}\n"},
    {"their index", 0,
     HEAD NET("Layer(i)") TRAIN "module Layer(i: int) {\n" WEIGHT
                                "  forward(x) { return linear(x, w) }\n}\n"},
    {"stages", 2,
     HEAD "module Net() {\n  layer = [Layer() on stages[div(i, 2)] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for i in range(layers) { h = layer[i](h.redistribute("
          "mesh = stages[div(i, 2)])) }\n    return h }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
    {"a variable that is given", 2,
     HEAD "module Net() {\n  on stages[0] {\n    param a: f32[dim, dim] = zeros\n"
          "    param b: f32[dim, dim] = zeros\n  }\n"
          "  layer = [Layer(if i < 2 then a else b) on stages[0] for i in range(layers)]\n"
          "  forward(x) { let h = x\n    for l in layer { h = l(h) }\n    return h }\n}\n" TRAIN
          "module Layer(given: any) {\n" WEIGHT
          "  forward(x) { return linear(linear(x, w), given) }\n}\n"},
    {"the layer before", 0,
     HEAD "module Net() {\n  side = [Layer(none) on stages[0] for i in range(1)]\n"
          "  layer = [Layer(side[i - i]) on stages[0] for i in range(1)]\n"
          "  more = [Layer(if i == 0 then layer[0] else side[0]) on stages[0] for i in range(2)]\n"
          "  forward(x) { return more[1](more[0](x)) }\n}\n" TRAIN
          "module Layer(before: any) {\n" WEIGHT "  forward(x) { let y = linear(x, w)\n"
          "    return if before == none then y else linear(y, before.w) }\n}\n"},
    {"all that an instance has, asked for one by one", 4,
     HEAD
     "module Net() {\n  layer = [Layer(relu) on stages[0] for i in range(layers)]\n"
     "  forward(x) {\n"
     "    let a = layer[0](x)\n    let b = layer[1](a)\n    let c = layer[2].twice(b)\n"
     "    let d = layer[3].parts[1](c)\n    let e = linear(d, layer[3].parts[0].w)\n"
     "    return e * layer[2].scale + layer[1].late(e) }\n}\n" TRAIN
     "module Base(act: any) {\n  let scale = 0.5\n  let self_act = act\n  parts = [Part(self_act), "
     "Part(act)]\n"
     "  " WEIGHT "  last(x) { return act(x) }\n"
     "  twice(x) { return last(last(linear(x, w))) }\n"
     "  late(x) { return parts[0](x) }\n"
     "  forward(x) { let y = x\n    for p in parts { y = p(y) }\n    return twice(y) * scale }\n}\n"
     "module Layer(act: any) : Base(act) {\n  last(x) { return tanh(act(x)) }\n"
     "  redistribute_output(y, x) { return y + x }\n}\n"
     "module Part(act: any) {\n" WEIGHT "  drop = nn.Dropout(0.5)\n"
     "  forward(x) { return drop(act(linear(x, w))) }\n}\n"},
    {"storage, buffers, names in files", 3,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n  store @dp\n  param a: f32[dim, dim] = normal(std = 0.1) name \"x\"\n"
     "  param b: f32[dim, dim] = normal(std = 0.1) transposed\n"
     "  buffer c: f32[dim] = ones\n  rename { \"b\" = \"beta\" }\n"
     "  forward(x) { return linear(linear(x, a), b) + c }\n}\n"},
    {"named otherwise in files, later or not at all", 3,
     HEAD "module Net(named: bool) {\n  layer = [Layer() on stages[0] for i in range(2)]\n"
          "  if named { rename { \"layer.{i}.w\" = \"block.{i}.w\" } }\n"
          "  forward(x) { return layer[1](layer[0](x)) }\n}\n"
          "module Layer() {\n" WEIGHT "  forward(x) { return linear(x, w) }\n}\n"
          "train {\n  data x = npy(\"x.npy\", f32[batch@dp, dim] on stages[0])\n"
          "  model a = Net(true)\n  model b = Net(false)\n"
          "  loss mean(square(b(a(x))))\n  optimizer sgd(lr = 0.1)\n  steps 2\n}\n"},
    {"initial values that lean on others", 3,
     HEAD NET("Layer()") TRAIN "fn shrink(x) { let y = x * 0.5\n  return y + rand_like(x) }\n"
                               "module Layer() {\n  param a: f32[dim, dim] = normal(std = 0.1)\n"
                               "  param b: f32[dim, dim] = shrink(randn(f32[dim, dim]))\n"
                               "  forward(x) { return linear(linear(x, a), b) }\n}\n"},
    {"the same lines in another block", 3,
     HEAD NET("Layer()") TRAIN
     "module Layer() {\n" WEIGHT "  forward(x) { return linear(x, w) }\n}\n"
     "infer {\n  data x = npy(\"y.npy\", f32[batch@dp, dim] on stages[0])\n"
     "  model m = Net()\n  print(m(x))\n}\n"},
    {"one name twice", 0,
     HEAD "module Net() {\n  for i in range(2) { layer = Layer() on stages[0] }\n"
          "  forward(x) { return layer(x) }\n}\n" TRAIN "module Layer() {\n" WEIGHT
          "  forward(x) { return linear(x, w) }\n}\n"},
};

START_TEST(one_thing_is_made_otherwise) {
  const Case *c = &makings[_i];
  Both b;
  compile_both(&b, c->text, NULL, false, c->what);
  ck_assert_msg(b.copies.instances == c->copied, "%s: %u instances are copied, not %u\n%s", c->what,
                b.copies.instances, c->copied, compile_messages(&b.copied));
  free_both(&b);
}
END_TEST

/* Micro-batches: of two values of one type the rows of one are samples, the columns of the other.
 */
START_TEST(samples_decide) {
  static const char *const text =
      HEAD "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
           "  forward(x) { let h = x\n"
           "    for i in range(layers) {\n"
           "      if i == 2 { h = h.transpose(0, 1) }\n      h = layer[i](h)\n    }\n"
           "    return h.transpose(0, 1) }\n}\n"
           "module Layer() {\n" WEIGHT "  forward(x) { return relu(x) * (1.0 / x.shape[0]) }\n}\n"
           "train {\n  data x = npy(\"x.npy\", f32[batch, dim] on stages[0])\n  model m = Net()\n"
           "  loss mean(square(m(x)))\n  optimizer sgd(lr = 0.1)\n  microbatches 2\n}\n";
  Both b;
  compile_both(&b, text, NULL, false, "samples");
  ck_assert_str_eq(compile_messages(&b.copied), "");
  ck_assert_uint_eq(b.copies.calls, 2);
  free_both(&b);
}
END_TEST

/* State that the steps of infer leave for each other: variables of another kind than parameters. */
START_TEST(state_of_infer) {
  static const char *const text = HEAD
      "module Memory() {\n  buffer past: f32[batch, dim] = zeros\n"
      "  turn(x) { past = x\n    return past + x }\n}\n"
      "module Net() {\n  layer = [Layer() on stages[0] for i in range(layers)]\n"
      "  forward(x, memory) { let h = x\n"
      "    for i in range(layers) { h = layer[i](h, memory[i]) }\n    return h }\n}\n"
      "module Layer() {\n" WEIGHT "  forward(x, memory) { return memory.turn(linear(x, w)) }\n}\n"
      "infer {\n  data x = npy(\"x.npy\", f32[batch, dim] on stages[0])\n  model m = Net()\n"
      "  model memory = [Memory() on stages[0] for i in range(layers)]\n"
      "  print(m(x, memory))\n}\n";
  Both b;
  compile_both(&b, text, NULL, false, "state");
  ck_assert_str_eq(compile_messages(&b.copied), "");
  ck_assert_uint_eq(b.copies.calls, 3);
  uint32_t states = 0;
  for (uint32_t i = 0; i < b.copied.program->vars.len; i++)
    states += b.copied.program->vars.data[i].kind == VAR_STATE;
  ck_assert_uint_eq(states, 4);
  free_both(&b);
}
END_TEST

/* A copy of an instance whose buffer has become state by then: its own is a buffer still. */
START_TEST(copy_of_state) {
  static const char *const text = HEAD
      "module Memory() {\n  buffer past: f32[batch, dim] = zeros\n"
      "  turn(x) { past = x\n    return past + x }\n}\n"
      "module Outer() {\n  on stages[0] { inner = Memory() }\n"
      "  forward(x) { return inner.turn(x) }\n}\n"
      "infer {\n  data x = npy(\"x.npy\", f32[batch, dim] on stages[0])\n"
      "  model one = Outer()\n  let y = one(x)\n  model two = Outer()\n  model three = Outer()\n"
      "  print(two(y))\n}\n";
  Both b;
  compile_both(&b, text, NULL, false, "state");
  ck_assert_str_eq(compile_messages(&b.copied), "");
  ck_assert_uint_eq(b.copies.instances, 2);
  ck_assert_int_eq(b.copied.program->vars.data[find_var(&b.copied, "two.inner.past")].kind,
                   VAR_STATE);
  ck_assert_int_eq(b.copied.program->vars.data[find_var(&b.copied, "three.inner.past")].kind,
                   VAR_BUFFER);
  free_both(&b);
}
END_TEST

/* --- all programs there are ---------------------------------------------------------------------
 */

enum { MAX_FILES = 128 };

static char *files[MAX_FILES];
static int nfiles;

static void find_files(const char *folder) {
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    const char *dot = strrchr(e->d_name, '.');
    if (!dot || strcmp(dot, ".dtm") != 0 || nfiles == MAX_FILES) continue;
    size_t size = strlen(folder) + strlen(e->d_name) + 2;
    files[nfiles] = malloc(size);
    snprintf(files[nfiles++], size, "%s/%s", folder, e->d_name);
  }
  if (dir) closedir(dir);
}

START_TEST(there_are_programs) {
  ck_assert_int_gt(nfiles, 40);
}
END_TEST

START_TEST(all_programs) {
  static const char *const meshes[] = {NULL, "dp=2,pp=2,tp=2", "dp=2,tp=2", "dp=2", "tp=4"};
  FILE *in = fopen(files[_i], "rb");
  static char text[1 << 16];
  text[fread(text, 1, sizeof text - 1, in)] = 0;
  fclose(in);
  for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
    for (int two = 0; two < 2; two++) {
      Both b;
      compile_both(&b, text, meshes[m], two, files[_i]);
      free_both(&b);
    }
}
END_TEST

int main(void) {
  static const char *const folders[] = {
      "../golden/check",           "../e2e/programs",    "../bench",
      "../../samples/fashion_mlp", "../../samples/gpt2", "../../samples/llama",
      "../../samples/mixtral",     "../../stdlib"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) find_files(folders[i]);
  TCase *t = tcase_create("replay");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, one_thing_differs, 0, (int)(sizeof cases / sizeof *cases));
  tcase_add_loop_test(t, one_thing_is_made_otherwise, 0, (int)(sizeof makings / sizeof *makings));
  tcase_add_test(t, samples_decide);
  tcase_add_test(t, state_of_infer);
  tcase_add_test(t, copy_of_state);
  tcase_add_test(t, there_are_programs);
  tcase_add_loop_test(t, all_programs, 0, nfiles);
  Suite *suite = suite_create("replay");
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
