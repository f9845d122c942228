/* Elaboration: what graphs programs become. Diagnostics are tested by golden/check. */
#include <check.h>
#include <string.h>

#include "reference/compile.h"
#include "support/suite.h"

static Compiled c;

static void teardown(void) {
  compile_free(&c);
}

#define MLP                                                                                        \
  "import nn\n"                                                                                    \
  "config { batch = 8  dim = 12  hidden = 16 }\n"                                                  \
  "mesh world(dp = 2, tp = 2)\n"                                                                   \
  "module Net() {\n"                                                                               \
  "  up = nn.ColumnParallelLinear(dim, hidden)\n"                                                  \
  "  down = nn.RowParallelLinearWithReplicateOutput(hidden, 10)\n"                                 \
  "  drop = nn.Dropout(0.5)\n"                                                                     \
  "  forward(x: f32[B@dp, dim]) -> f32[B@dp, 10] { return down(drop(relu(up(x)))) }\n"             \
  "}\n"                                                                                            \
  "train {\n"                                                                                      \
  "  data x = npy(\"x.npy\", f32[batch@dp, dim])\n"                                                \
  "  data y = npy(\"y.npy\", i64[batch@dp], below = 10)\n"                                         \
  "  model m = Net()\n"                                                                            \
  "  let unused = exp(x)\n"                                                                        \
  "  let logits = m(x)\n"                                                                          \
  "  loss cross_entropy(logits, y)\n"                                                              \
  "  optimizer adamw(lr = cosine(1e-3, warmup = 5), betas = (0.8, 0.95), weight_decay = 0.1)\n"    \
  "  clip_grad_norm 2\n"                                                                           \
  "  steps 50  seed 7  accumulate 2  save \"m.safetensors\" every 10  eval every end\n"            \
  "}\n"                                                                                            \
  "eval {\n"                                                                                       \
  "  data x = npy(\"t.npy\", f32[batch@dp, dim])\n"                                                \
  "  data y = npy(\"ty.npy\", i64[batch@dp], below = 10)\n"                                        \
  "  let logits = m(x)\n"                                                                          \
  "  metric accuracy = mean(argmax(logits, -1) == y)\n"                                            \
  "  loss cross_entropy(logits, y)\n"                                                              \
  "}\n"

START_TEST(train_and_eval) {
  compile_clean(&c, MLP, NULL);
  const Program *p = c.program;
  const Graph *train = p->block[BLOCK_TRAIN].graph, *eval = p->block[BLOCK_EVAL].graph;
  ck_assert_uint_eq(p->vars.len, 4);
  static const char *const vars[][2] = {{"up.weight", "f32[16@tp, 12]"},
                                        {"up.bias", "f32[16@tp]"},
                                        {"down.weight", "f32[10, 16@tp]"},
                                        {"down.bias", "f32[10] partial(tp)"}};
  for (int i = 0; i < 4; i++) {
    ck_assert_str_eq(p->vars.data[i].name, vars[i][0]);
    ck_assert_str_eq(type_print(&c.arena, &p->vars.data[i].type), vars[i][1]);
  }
  ck_assert_str_eq(type_of_name(&c, train, "logits"), "f32[8@dp, 10]");
  ck_assert_str_eq(type_of_name(&c, train, "loss"), "f32[] partial(dp)");
  ck_assert_uint_eq(count_nodes(train, OP_LINEAR), 2);
  ck_assert_uint_eq(count_nodes(train, OP_READ), 4);
  ck_assert_uint_eq(count_nodes(train, OP_INPUT), 2);
  ck_assert_uint_eq(count_nodes(train, OP_DROPOUT), 1);
  ck_assert_uint_eq(count_nodes(train, OP_REDISTRIBUTE), 2); /* after down; of the loss */
  ck_assert_uint_eq(count_nodes(train, OP_OUTPUT), 1);
  ck_assert_uint_eq(count_nodes(train, OP_EXP), 0); /* nothing needs `unused` */
  ck_assert_uint_eq(count_nodes(p->block[BLOCK_INIT].graph, OP_ASSIGN), 4);
  ck_assert_uint_eq(count_nodes(eval, OP_DROPOUT), 0);
  ck_assert_uint_eq(count_nodes(eval, OP_READ), 4);

  const RunSettings *s = &p->block[BLOCK_TRAIN].settings;
  ck_assert_int_eq(s->steps, 50);
  ck_assert_int_eq(s->accumulate, 2);
  ck_assert_int_eq(s->save_every, 10);
  ck_assert_int_eq(s->eval_every, 0);
  ck_assert_str_eq(s->save, "m.safetensors");
  ck_assert(s->shuffle && s->drop_last && s->seed == 7 && p->seed == 7);
  const OptimizerSpec *o = &p->block[BLOCK_TRAIN].optimizer;
  ck_assert_str_eq(o->kind, "adamw");
  ck_assert(o->beta1 == 0.8 && o->beta2 == 0.95 && o->eps == 1e-8 && o->weight_decay == 0.1);
  ck_assert(o->clip_norm == 2);
  ck_assert_str_eq(type_print(&c.arena, value_type(train, o->lr)), "f32[]");
  ck_assert_int_eq(p->block[BLOCK_TRAIN].data.data[1].below, 10);
}
END_TEST

START_TEST(eval_outputs) {
  compile_clean(&c, MLP, NULL);
  const ProgramBlock *eval = &c.program->block[BLOCK_EVAL];
  static const char *const roles[][2] = {
      {"accuracy", "sum"}, {"accuracy", "count"}, {"loss", "sum"}, {"loss", "count"}};
  uint32_t n = 0;
  for (NodeId id = 1; id < eval->graph->nodes.len; id++) {
    const Node *node = graph_node(eval->graph, id);
    if (node->op != OP_OUTPUT) continue;
    ck_assert_str_eq(node_string(node, ATTR_NAME), roles[n][0]);
    ck_assert_str_eq(node_string(node, ATTR_ROLE), roles[n][1]);
    const TensorType *t = value_type(eval->graph, node->operands[0]);
    ck_assert(t->rank == 0 && layout_is_replicate(&t->layout));
    n++;
  }
  ck_assert_uint_eq(n, 4);
  ck_assert_uint_eq(eval->data.len, 3);
  ck_assert_str_eq(eval->data.data[2].reader, "valid");
  ck_assert_str_eq(type_print(&c.arena, &eval->data.data[2].type), "bool[8@dp]");
  ck_assert_uint_eq(count_nodes(eval->graph, OP_MEAN), 0);
}
END_TEST

START_TEST(mesh_option) {
  static const struct {
    const char *mesh;
    int64_t ranks, dp, tp;
  } cases[] = {{NULL, 0, 2, 2},        {"", 0, 2, 2},        {"tp=4", 0, 1, 4},
               {"dp=3,tp=2", 0, 3, 2}, {"dp=auto", 6, 6, 1}, {"tp=2,dp=auto", 8, 4, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SemaOptions o = {.ranks = cases[i].ranks};
    compile_text(&c, MLP, cases[i].mesh, &o);
    ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
    ck_assert_int_eq(c.program->world->size[0], cases[i].dp);
    ck_assert_int_eq(c.program->world->size[1], cases[i].tp);
    ck_assert_int_eq(c.program->world->nranks, cases[i].dp * cases[i].tp);
    compile_free(&c);
  }
  static const char *const wrong[] = {"pp=2", "dp", "dp=0", "dp=auto,tp=auto", "dp=x", "dp=auto"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    compile_text(&c, MLP, wrong[i], NULL);
    ck_assert_msg(c.sink.errors == 1, "--mesh %s: %s", wrong[i], compile_messages(&c));
    compile_free(&c);
  }
  compile_clean(&c, "fn f() {}", NULL); /* no mesh: one rank */
  ck_assert_int_eq(c.program->world->nranks, 1);
}
END_TEST

START_TEST(config_option) {
  ConfigOverride defines[] = {{"hidden", "1_6"}, {"dim", "20"}, {"dim", "24"}};
  SemaOptions o = {.defines = defines, .ndefines = 3};
  compile_text(&c, MLP, NULL, &o);
  ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
  ck_assert_int_eq(c.program->vars.data[0].type.shape[1], 24); /* the last one counts */
  StrBuf sb;
  strbuf_init(&sb, &c.arena);
  sema_print_config(&c.config, &sb);
  ck_assert_str_eq(sb.text, "batch: int = 8\ndim: int = 24    // -D\nhidden: int = 16    // -D\n");
}
END_TEST

/* Instance numbers of random nodes, in order. */
static uint32_t instances(const Graph *g, int64_t *out) {
  uint32_t n = 0;
  for (NodeId id = 1; id < g->nodes.len; id++)
    if (node_attr(graph_node(g, id), ATTR_INSTANCE))
      out[n++] = node_int(graph_node(g, id), ATTR_INSTANCE, -1);
  return n;
}

START_TEST(random_numbers_do_not_depend_on_the_mesh) {
  static const char *const meshes[] = {"dp=2,tp=2", "dp=1", "tp=4", "dp=3,tp=2"};
  int64_t first[16], now[16];
  uint32_t n = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    compile_clean(&c, MLP, meshes[i]);
    uint32_t k = instances(c.program->block[BLOCK_INIT].graph, now);
    k += instances(c.program->block[BLOCK_TRAIN].graph, now + k);
    if (i == 0) {
      n = k;
      memcpy(first, now, sizeof first);
      ck_assert_uint_eq(n, 5); /* four parameters, one dropout */
      for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < a; b++) ck_assert_int_ne(now[a], now[b]);
    }
    ck_assert_uint_eq(k, n);
    ck_assert_mem_eq(first, now, n * sizeof *first);
    compile_free(&c);
  }
  compile_clean(&c, "fn f() {}", NULL);
}
END_TEST

START_TEST(two_draws_differ) {
  compile_clean(&c,
                "infer {\n  let a = randn(f32[4])\n  let b = randn(f32[4])\n"
                "  print(dropout(a, 0.5) + b)\n}\n",
                NULL);
  int64_t n[4];
  ck_assert_uint_eq(instances(c.program->block[BLOCK_INFER].graph, n),
                    2); /* dropout acts in training only */
  ck_assert_int_ne(n[0], n[1]);
}
END_TEST

/* Each `let` of the infer block by its name, against the type it must have. */
static void check_types(const char *source, const char *const expected[][2], size_t n) {
  compile_text(&c, source, NULL, NULL);
  ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
  for (size_t i = 0; i < n; i++)
    ck_assert_str_eq(type_of_name(&c, c.program->block[BLOCK_INFER].graph, expected[i][0]),
                     expected[i][1]);
}

START_TEST(redistribute_forms) {
  static const char *const expected[][2] = {
      {"by_name", "f32[8@(dp,tp), 4, 6]"},   {"in_order", "f32[8@(tp,dp), 4, 6]"},
      {"moved", "f32[8, 4@dp, 6]"},          {"full_layout", "f32[8@tp, 4, 6@dp]"},
      {"like", "f32[8, 4@dp, 6]"},           {"of_type", "f32[8, 4, 6@(dp,tp)]"},
      {"by_variable", "f32[8@dp, 4, 6@tp]"}, {"partial_form", "f32[8@dp, 4, 6] partial(tp)"},
      {"negative", "f32[8@dp, 4, 6@tp]"},    {"whole", "f32[8, 4, 6]"},
  };
  check_types(
      "mesh world(dp = 2, tp = 2)\n"
      "fn gather_over(x, a: axis?) { return x.redistribute(a: Shard(2)) }\n"
      "infer {\n"
      "  let x = randn(f32[8@dp, 4, 6])\n"
      "  let by_name = x.redistribute(tp: Shard(0))\n"
      "  let in_order = x.redistribute(dp: Replicate, tp: Shard(0), dp: Shard(0))\n"
      "  let moved = x.redistribute(dp: Shard(1))\n"
      "  let full_layout = x.redistribute([8@tp, 4, 6@dp])\n"
      "  let like = x.redistribute(layout(moved))\n"
      "  let of_type = x.redistribute(f32[8, 4, 6@(dp, tp)])\n"
      "  let by_variable = gather_over(x, tp)\n"
      "  let none_is_nothing = gather_over(by_variable, \"cp\")\n"
      "  let partial_form = x.redistribute(tp: Partial(sum))\n"
      "  let negative = x.redistribute(tp: Shard(-1), async = true)\n"
      "  let whole = full(negative)\n"
      "  print(by_name)\n  print(in_order)\n  print(moved)\n  print(like)\n  print(full_layout)\n"
      "  print(of_type)\n  print(none_is_nothing)\n  print(partial_form)\n"
      "  print(whole)\n"
      "}\n",
      expected, sizeof expected / sizeof *expected);
}
END_TEST

START_TEST(redistribute_to_the_same_is_nothing) {
  compile_clean(&c,
                "mesh world(dp = 2, tp = 1)\n"
                "infer {\n"
                "  let x = randn(f32[8@dp, 4])\n"
                "  let y = x.redistribute(tp: Shard(0)).redistribute(dp: Shard(0))\n"
                "  print(y.redistribute(tp: Replicate, dp: Replicate))\n"
                "}\n",
                NULL);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_INFER].graph, OP_REDISTRIBUTE), 1);
}
END_TEST

START_TEST(alias_and_place_forms_are_one) {
  static const char *const expected[][2] = {{"a", "f32[8@dp, 4@tp]"},
                                            {"d", "f32[8@dp, 4] partial(tp: max)"}};
  check_types("mesh world(dp = 2, tp = 2)\n"
              "infer {\n"
              "  let a = zeros(f32[8@dp, 4@tp])\n"
              "  let b: f32[8, 4] place {tp: Shard(1), dp: Shard(0)} = a\n"
              "  let d = full(f32[8, 4] place {dp: Shard(0), tp: Partial(max)}, 2)\n"
              "  print(b)\n  print(d)\n"
              "}\n",
              expected, 2);
}
END_TEST

/* Only the operators of one line each, by their name and the type of the result. */
START_TEST(calls_of_operators) {
  static const struct {
    const char *call, *op, *type;
  } cases[] = {
      {"x.sum(1)", "sum", "f32[8@dp, 6]"},
      {"sum(x, dims = [1, 2], keepdim = true)", "sum", "f32[8@dp, 1, 1]"},
      {"sum(x, dim = -1)", "sum", "f32[8@dp, 4]"},
      {"softmax(x, -1)", "softmax", "f32[8@dp, 4, 6]"},
      {"permute(x, 0, 2, 1)", "permute", "f32[8@dp, 6, 4]"},
      {"permute(x, [0, 2, 1])", "permute", "f32[8@dp, 6, 4]"},
      {"transpose(x, 1, 2)", "permute", "f32[8@dp, 6, 4]"},
      {"x.T", "permute", "f32[6, 4, 8@dp]"},
      {"x.mT", "permute", "f32[8@dp, 6, 4]"},
      {"view(x, 8, -1)", "reshape", "f32[8@dp, 24]"},
      {"flatten(x, 1)", "reshape", "f32[8@dp, 24]"},
      {"unsqueeze(x, -1)", "unsqueeze", "f32[8@dp, 4, 6, 1]"},
      {"expand(x[:, :, 0:1], 8, 4, 6)", "expand", "f32[8@dp, 4, 6]"},
      {"cat([x, x], 1)", "concat", "f32[8@dp, 8, 6]"},
      {"stack([x, x], dim = 1)", "concat", "f32[8@dp, 2, 4, 6]"},
      {"chunk(x, 4, dim = 2)[2]", "slice", "f32[8@dp, 4, 2]"},
      {"split(x, [1, 5], 2)[1]", "slice", "f32[8@dp, 4, 5]"},
      {"select(x, 1, 3)", "squeeze", "f32[8@dp, 6]"},
      {"x[:, 1]", "squeeze", "f32[8@dp, 6]"},
      {"x[:, 1:3]", "slice", "f32[8@dp, 2, 6]"},
      {"x[:, ::2]", "slice", "f32[8@dp, 2, 6]"},
      {"x.to(bf16)", "cast", "bf16[8@dp, 4, 6]"},
      {"x ** 2", "square", "f32[8@dp, 4, 6]"},
      {"2 - x", "sub", "f32[8@dp, 4, 6]"},
      {"x % 3", "remainder", "f32[8@dp, 4, 6]"},
      {"x == 0", "eq", "bool[8@dp, 4, 6]"},
      {"!(x > 0)", "logical_not", "bool[8@dp, 4, 6]"},
      {"where(x > 0, x, 0)", "where", "f32[8@dp, 4, 6]"},
      {"where(x > 0, 1, 2)", "where", "i64[8@dp, 4, 6]"},
      {"clamp(x, -1, 1)", "clamp", "f32[8@dp, 4, 6]"},
      {"clip(x, max = 1)", "minimum", "f32[8@dp, 4, 6]"},
      {"max(x, 1)", "max", "f32[8@dp, 6]"},
      {"max(x, x)", "maximum", "f32[8@dp, 4, 6]"},
      {"amax(x, 1)", "max", "f32[8@dp, 6]"},
      {"norm(x, 1, dims = 2)", "norm_l1", "f32[8@dp, 4]"},
      {"norm(x, p = inf)", "norm_inf", "f32[] partial(dp: max)"},
      {"bmm(x, x.mT)", "matmul", "f32[8@dp, 4, 4]"},
      {"einsum(\"bij,bkj->bik\", x, x)", "einsum", "f32[8@dp, 4, 4]"},
      {"linear(x, zeros(f32[3, 6]), bias = ones(f32[3]))", "linear", "f32[8@dp, 4, 3]"},
      {"addmm(zeros(f32[4]), x, ones(f32[6, 4]))", "add", "f32[8@dp, 4, 4]"},
      {"layer_norm(x, ones(f32[6]), eps = 1e-3)", "layer_norm", "f32[8@dp, 4, 6]"},
      {"argmax(x, -1)", "argmax", "i64[8@dp, 4]"},
      {"topk(x, k = 2)[1]", "topk", "i64[8@dp, 4, 2]"},
      {"gather(x, 2, zeros(i64[8@dp, 4, 1]))", "gather", "f32[8@dp, 4, 1]"},
      {"one_hot(argmax(x, 2), num_classes = 6)", "one_hot", "i64[8@dp, 4, 6]"},
      {"embedding(argmax(x, 2), zeros(f32[6, 5]))", "embedding", "f32[8@dp, 4, 5]"},
      {"gelu(x, approximate = \"tanh\")", "gelu_tanh", "f32[8@dp, 4, 6]"},
      {"leaky_relu(x)", "leaky_relu", "f32[8@dp, 4, 6]"},
      {"masked_fill(x, x < 0, -inf)", "where", "f32[8@dp, 4, 6]"},
      {"take(ones(f32[6, 4]), argmax(x, 2))", "squeeze", "f32[8@dp, 4]"},
      {"diagonal(x, -1, dim1 = 2, dim2 = 1)", "slice", "f32[8@dp, 4]"},
      {"diagonal(x, 6, 1, 2)", "slice", "f32[8@dp, 0]"},
      {"trace(ones(f32[3, 5]))", "sum", "f32[]"},
      {"bucketize(x, arange(f32[3]), right = true)", "sum", "i64[8@dp, 4, 6]"},
      {"bucketize(x.redistribute(dp: Replicate), ones(f32[3@dp]))", "sum",
       "i64[8, 4, 6] partial(dp)"},
      {"group_norm(x, 2, bias = ones(f32[4]))", "add", "f32[8@dp, 4, 6]"},
      {"group_norm(x.redistribute(tp: Shard(1)), 2, ones(f32[4]))", "mul", "f32[8@dp, 4@tp, 6]"},
      {"bernoulli(sigmoid(x))", "cast", "f32[8@dp, 4, 6]"},
      {"bernoulli(argmax(x, 2), p = 0.3)", "cast", "i64[8@dp, 4]"},
      {"bernoulli(sum(x, 0), 0.5)", "cast", "f32[4, 6]"},
      {"bernoulli(step() * 0.0)", "cast", "f32[]"},
      {"zeros_like(x)", "full", "f32[8@dp, 4, 6]"},
      {"zeros_like(step())", "full", "f32[]"},
      {"arange(f32[5], 1, 0.5)", "arange", "f32[5]"},
      {"logspace(f32[3], 0, 2)", "logspace", "f32[3]"},
      {"rand(f32[8@dp, 4])", "rand", "f32[8@dp, 4]"},
      {"normal(f32[4], 1.0, 0.5)", "add", "f32[4]"},
      {"repeat(x, [1, 2, 1])", "concat", "f32[8@dp, 8, 6]"},
      {"detach(x)", "detach", "f32[8@dp, 4, 6]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char source[512];
    snprintf(source, sizeof source,
             "mesh world(dp = 2, tp = 2)\n"
             "infer {\n  let x = randn(f32[8@dp, 4, 6])\n  let y = %s\n  print(y)\n}\n",
             cases[i].call);
    compile_text(&c, source, NULL, NULL);
    ck_assert_msg(c.sink.errors == 0, "%s: %s", cases[i].call, compile_messages(&c));
    const Graph *g = c.program->block[BLOCK_INFER].graph;
    ck_assert_msg(strcmp(type_of_name(&c, g, "y"), cases[i].type) == 0, "%s is %s", cases[i].call,
                  type_of_name(&c, g, "y"));
    ValueId v = 1;
    while (!graph_value(g, v)->name || strcmp(graph_value(g, v)->name, "y") != 0) v++;
    ck_assert_str_eq(op_name(value_node(g, v)->op), cases[i].op);
    compile_free(&c);
  }
  compile_clean(&c, "fn f() {}", NULL);
}
END_TEST

START_TEST(derivation) {
  static const char source[] =
      "mesh world(dp = 2, tp = 2)\n"
      "module Base(in: int, out: int, tp_dim: axis? = \"tp\", gain: float = 1.0) {\n"
      "  param weight: f32[out@tp_dim, in] = constant(gain)\n"
      "  step_one(x) { return relu(x) }\n"
      "  redistribute_input(x) { return x.redistribute(dp: Replicate) }\n"
      "  forward(x) { return linear(step_one(x), weight) }\n"
      "}\n"
      "module Derived(in: int) : Base(in * 2, 6) {\n"
      "  let doubled = in * 2\n"
      "  step_one(x) { return gelu(x) }\n"
      "  redistribute_output(y, x) { return y.redistribute(tp_dim: Replicate, dp: Shard(0)) + "
      "sum(x) }\n"
      "}\n"
      "infer {\n"
      "  model m = Derived(4, gain = 3.0)\n"
      "  let x = randn(f32[8, 8]).redistribute(dp: Shard(0))\n"
      "  let y = m(full(x))\n"
      "  let n = m.in + m.doubled\n"
      "  print(y * n)\n"
      "}\n";
  compile_clean(&c, source, NULL);
  const Graph *g = c.program->block[BLOCK_INFER].graph;
  ck_assert_str_eq(type_print(&c.arena, &c.program->vars.data[0].type), "f32[6@tp, 8]");
  ck_assert_str_eq(type_of_name(&c, g, "y"), "f32[8@dp, 6]");
  ck_assert_uint_eq(count_nodes(g, OP_GELU), 1); /* overridden, also where the base calls it */
  ck_assert_uint_eq(count_nodes(g, OP_RELU), 0);
  bool twelve = false; /* `in` of Derived is 4, doubled 8 */
  for (ValueId v = 1; v < g->values.len; v++) {
    double value;
    twelve |= value_const(g, v, &value) && value == 12;
  }
  ck_assert(twelve);
}
END_TEST

START_TEST(names_in_checkpoints) {
  compile_clean(
      &c,
      "import nn\n"
      "module Block(i: int) {\n"
      "  norm = nn.RMSNorm(4)\n"
      "  param q: f32[4, 4] transposed\n"
      "  param qkv: f32[3, 4, 4] chunks(3)\n"
      "  buffer count: f32[]\n"
      "  forward(x) { return norm(x) }\n"
      "}\n"
      "module Net() {\n"
      "  layers = [Block(i) for i in range(2)]\n"
      "  tail = nn.Sequential([nn.Linear(4, 4), nn.Dropout(0.1), nn.Linear(4, 4, bias = false)])\n"
      "  if true { extra = nn.RMSNorm(4) }\n"
      "  for i in range(1) { more = nn.RMSNorm(4) }\n"
      "  rename { \"layers.{i}.norm.weight\" = \"model.layers.{i}.ln.w\" }\n"
      "  param scale: f32[4] name \"wq\"\n"
      "  forward(x) { return layers[0](x) }\n"
      "}\n"
      "infer {\n  model m = Net()\n  print(m(zeros(f32[2, 4])))\n}\n",
      NULL);
  static const char *const names[] = {
      "layers.0.norm.weight", "layers.0.q", "layers.0.qkv", "layers.0.count",
      "layers.1.norm.weight", "layers.1.q", "layers.1.qkv", "layers.1.count"};
  const Program *p = c.program;
  for (int i = 0; i < 8; i++) ck_assert_str_eq(p->vars.data[i].name, names[i]);
  ck_assert_str_eq(p->vars.data[4].foreign_name, "model.layers.1.ln.w");
  ck_assert_str_eq(p->vars.data[find_var(&c, "scale")].foreign_name, "wq");
  ck_assert(p->vars.data[1].transposed && p->vars.data[2].chunks == 3);
  ck_assert_int_eq(p->vars.data[3].kind, VAR_BUFFER);
  find_var(&c, "tail.0.weight");
  find_var(&c, "tail.2.weight");
  find_var(&c, "extra.weight");
  find_var(&c, "more.weight");
}
END_TEST

START_TEST(two_models_have_prefixes_and_ties_are_one) {
  compile_clean(&c,
                "import nn\n"
                "module Head(weight) { forward(x) { return linear(x, weight) } }\n"
                "module Net() {\n"
                "  embed = nn.Embedding(10, 4)\n"
                "  head = Head(embed.weight)\n"
                "  forward(ids) { return head(embed(ids)) }\n"
                "}\n"
                "infer {\n"
                "  model a = Net()\n  model b = Net()\n"
                "  let ids = zeros(i64[3])\n"
                "  print(a(ids) + b(ids))\n"
                "}\n",
                NULL);
  ck_assert_uint_eq(c.program->vars.len, 2);
  ck_assert_str_eq(c.program->vars.data[0].name, "a.embed.weight");
  ck_assert_str_eq(c.program->vars.data[1].name, "b.embed.weight");
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_INFER].graph, OP_READ), 2);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_INFER].graph, OP_LINEAR), 2);
}
END_TEST

START_TEST(eval_may_build_the_model_again) {
  compile_clean(&c,
                "import nn\n"
                "train {\n"
                "  data x = npy(\"x\", f32[4, 8])\n  model m = nn.Linear(8, 2)\n"
                "  loss mean(square(m(x)))\n  optimizer sgd(lr = 0.1)\n"
                "}\n"
                "eval {\n"
                "  data x = npy(\"t\", f32[6, 8])\n  model net = nn.Linear(8, 2)\n"
                "  metric error = mean(square(net(x)))\n"
                "}\n",
                NULL);
  ck_assert_uint_eq(c.program->vars.len, 2);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_INIT].graph, OP_ASSIGN), 2);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_EVAL].graph, OP_READ), 2);
}
END_TEST

START_TEST(widened) {
  SemaOptions o = {.widen = true};
  compile_text(&c, MLP, NULL, &o);
  ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
  const Graph *graphs[] = {c.program->block[BLOCK_INIT].graph, c.program->block[BLOCK_TRAIN].graph,
                           c.program->block[BLOCK_EVAL].graph};
  for (int k = 0; k < 3; k++)
    for (ValueId v = 1; v < graphs[k]->values.len; v++)
      ck_assert_int_ne(value_type(graphs[k], v)->dtype, DT_F32);
  ck_assert_int_eq(c.program->vars.data[0].type.dtype, DT_F64);
}
END_TEST

START_TEST(graph_grows_with_layers_alone) {
  uint32_t size[3];
  static const char *const layers[] = {"2", "3", "126"};
  for (int i = 0; i < 3; i++) {
    ConfigOverride define = {"layers", layers[i]};
    SemaOptions o = {.defines = &define, .ndefines = 1};
    compile_text(&c,
                 "import nn\nconfig { layers = 1 }\nmesh world(dp = 2, tp = 2)\n"
                 "module Net() {\n"
                 "  layers_ = [nn.MLP(16, 32) for i in range(layers)]\n"
                 "  forward(x) {\n    let h = x\n    for l in layers_ { h = h + l(h) }\n"
                 "    return h\n  }\n}\n"
                 "infer {\n  model m = Net()\n  print(m(zeros(f32[4@dp, 16])))\n}\n",
                 NULL, &o);
    ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
    size[i] = c.program->block[BLOCK_INFER].graph->nodes.len;
    if (i < 2) compile_free(&c);
  }
  uint32_t each = size[1] - size[0];
  ck_assert_uint_eq(each, 9); /* 4 reads, 2 linear, gelu, redistribute, add */
  ck_assert_uint_eq(size[2], size[0] + 124 * each);
}
END_TEST

static const FixCandidate *first_fix(const Compiled *from) {
  for (uint32_t i = 0; i < from->sink.diags.len; i++)
    if (from->sink.diags.data[i]->fixes.len) return from->sink.diags.data[i]->fixes.data[0];
  return NULL;
}

START_TEST(overlay_applies_a_fix) {
  static const char *const sources[] = {
      /* of an operand */
      "mesh world(dp = 2, tp = 2)\n"
      "fn f(x: f32[8@dp, 4@tp], w: f32[6, 4@tp]) { return gelu(linear(x, w)) }\n",
      /* of a returned value */
      "mesh world(dp = 2, tp = 2)\n"
      "fn f(x: f32[8@dp, 4@tp], w: f32[6, 4@tp]) -> f32[8@dp, 6] { return linear(x, w) }\n",
      "mesh world(dp = 2, tp = 2)\n"
      "fn f(x: f32[8@dp, 4@tp], w: f32[6, 4@tp]) { return linear(x, w) }\n",
      /* of an argument */
      "mesh world(dp = 2, tp = 2)\n"
      "fn g(x: f32[N@dp, D]) { return relu(x) }\n"
      "fn f(x: f32[8@tp, 4]) { return g(x) }\n",
  };
  for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
    Compiled broken;
    compile_text(&broken, sources[i], NULL, NULL);
    ck_assert_uint_eq(broken.sink.errors, 1);
    const FixCandidate *fix = first_fix(&broken);
    ck_assert_ptr_nonnull(fix);
    SemaOptions o = {.overlay = fix};
    compile_text(&c, sources[i], NULL, &o);
    ck_assert_msg(c.sink.errors == 0, "%s", compile_messages(&c));
    compile_free(&broken);
    compile_free(&c);
  }
  compile_clean(&c, "fn f() {}", NULL);
}
END_TEST

START_TEST(one_error_silences_what_follows) {
  compile_text(&c,
               "mesh world(dp = 2, tp = 2)\n"
               "fn bad(x) { return gelu(x.redistribute(tp: Partial)) }\n"
               "fn outer(x) { let y = bad(x)\n  let z = y + 1\n  return softmax(z, 99) }\n"
               "fn f(x: f32[8, 4]) { let a = outer(x)\n  return a.sum().nothing }\n",
               NULL, NULL);
  ck_assert_msg(c.sink.errors == 1, "%s", compile_messages(&c));
  /* the chain of calls, innermost first */
  const char *text = compile_messages(&c);
  const char *a = strstr(text, "in fn bad"), *b = strstr(text, "in fn outer");
  ck_assert_msg(a && b && a < b, "%s", text);
}
END_TEST

START_TEST(assume_two_finds_what_ones_hide) {
  static const char source[] = "mesh world(dp = 1, tp = 1)\n"
                               "fn f(x: f32[8@dp, 4@tp], w: f32[6, 4@tp]) {\n"
                               "  return gelu(linear(x, w))\n}\n";
  compile_clean(&c, source, NULL);
  compile_free(&c);
  SemaOptions o = {.assume_two = true};
  compile_text(&c, source, NULL, &o);
  ck_assert_uint_eq(c.sink.errors, 1);
  ck_assert_int_eq(c.program->world->nranks, 4);
}
END_TEST

START_TEST(buffers_change_in_training_only) {
  compile_clean(&c,
                "module Net() {\n"
                "  param w: f32[4] = ones()\n"
                "  buffer seen: f32[4]\n"
                "  forward(x) { seen = seen * 0.9 + detach(mean(x, 0)) * 0.1\n    return x * w }\n"
                "}\n"
                "train {\n  data x = npy(\"x\", f32[8, 4])\n  model m = Net()\n"
                "  loss mean(m(x))\n  optimizer sgd(lr = 0.1)\n}\n"
                "eval {\n  data x = npy(\"x\", f32[8, 4])\n  metric a = mean(m(x))\n}\n",
                NULL);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_TRAIN].graph, OP_ASSIGN), 1);
  ck_assert_uint_eq(count_nodes(c.program->block[BLOCK_EVAL].graph, OP_ASSIGN), 0);
}
END_TEST

int main(void) {
  TCase *t = tcase_create("sema");
  tcase_set_timeout(t, 30);
  tcase_add_checked_fixture(t, NULL, teardown);
  tcase_add_test(t, train_and_eval);
  tcase_add_test(t, eval_outputs);
  tcase_add_test(t, mesh_option);
  tcase_add_test(t, config_option);
  tcase_add_test(t, random_numbers_do_not_depend_on_the_mesh);
  tcase_add_test(t, two_draws_differ);
  tcase_add_test(t, redistribute_forms);
  tcase_add_test(t, redistribute_to_the_same_is_nothing);
  tcase_add_test(t, alias_and_place_forms_are_one);
  tcase_add_test(t, calls_of_operators);
  tcase_add_test(t, derivation);
  tcase_add_test(t, names_in_checkpoints);
  tcase_add_test(t, two_models_have_prefixes_and_ties_are_one);
  tcase_add_test(t, eval_may_build_the_model_again);
  tcase_add_test(t, widened);
  tcase_add_test(t, graph_grows_with_layers_alone);
  tcase_add_test(t, overlay_applies_a_fix);
  tcase_add_test(t, one_error_silences_what_follows);
  tcase_add_test(t, assume_two_finds_what_ones_hide);
  tcase_add_test(t, buffers_change_in_training_only);
  Suite *suite = suite_create("sema");
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
