/* Elaborated programs, run by the reference interpreter: schedules, initial values, masked metrics,
 * and the layers of stdlib/nn.dtm on meshes against one rank. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/compile.h"
#include "reference/reference.h"
#include "support/suite.h"

static Compiled c;
static RefContext ctx;

static void begin(void) {
  ctx = (RefContext){.arena = &c.arena, .seed = 3};
}
static void teardown(void) {
  compile_free(&c);
}

/* --- schedules ---------------------------------------------------------------------------------
 */

static double rate_at(const char *schedule, int64_t step) {
  char source[512];
  snprintf(source, sizeof source,
           "module Net() { param w: f32[2]\n forward(x) { return x * w } }\n"
           "train {\n  data x = npy(\"x\", f32[4, 2])\n  model m = Net()\n  loss mean(m(x))\n"
           "  optimizer sgd(lr = %s)\n  steps 100\n}\n",
           schedule);
  compile_clean(&c, source, NULL);
  begin();
  ctx.step = step;
  const ProgramBlock *train = &c.program->block[BLOCK_TRAIN];
  RefTensor *values = ref_eval_graph(&ctx, &c.arena, train->graph, &(RefIO){0});
  double rate = values[train->optimizer.lr].data[0];
  compile_free(&c);
  return rate;
}

START_TEST(schedules) {
  const double pi = 3.14159265358979323846;
  static const int64_t steps[] = {0, 1, 9, 10, 11, 50, 99, 100, 250};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    double t = (double)steps[i];
    double warm = fmin((t + 1) / 10, 1), part = fmin(fmax((t - 10) / 90, 0), 1);
    double tol = 1e-12;
    ck_assert_double_eq_tol(rate_at("0.5", steps[i]), 0.5, tol);
    ck_assert_double_eq_tol(rate_at("constant(0.5)", steps[i]), 0.5, tol);
    ck_assert_double_eq_tol(rate_at("warmup(0.5, 10)", steps[i]), 0.5 * warm, tol);
    ck_assert_double_eq_tol(rate_at("cosine(0.5, warmup = 10, min = 0.1)", steps[i]),
                            warm * (0.1 + 0.4 * 0.5 * (1 + cos(pi * part))), tol);
    ck_assert_double_eq_tol(rate_at("linear(0.5, warmup = 10)", steps[i]),
                            warm * (0.5 - 0.5 * part), tol);
    ck_assert_double_eq_tol(rate_at("cosine(0.5, total = 50)", steps[i]),
                            0.25 * (1 + cos(pi * fmin(t / 50, 1))), tol);
    ck_assert_double_eq_tol(rate_at("step_decay(0.5, 20, gamma = 0.5)", steps[i]),
                            0.5 * pow(0.5, floor(t / 20)), 1e-9);
    ck_assert_double_eq_tol(rate_at("0.1 / (1 + step())", steps[i]), 0.1 / (1 + t), tol);
  }
  compile_clean(&c, "fn f() {}", NULL);
}
END_TEST

/* --- evaluation --------------------------------------------------------------------------------
 */

typedef struct Batch {
  int64_t valid; /* samples that are real */
  const double *x, *labels;
  double sum[4], count[4]; /* outputs, in the order of their roles */
  uint32_t nsum, ncount;
} Batch;

static RefTensor give(void *user, uint32_t source, const TensorType *type) {
  const Batch *b = user;
  RefTensor t = ref_new(&c.arena, type->rank, type->shape);
  const DataSource *data = &c.program->block[BLOCK_EVAL].data.data[source];
  for (int64_t i = 0; i < ref_count(&t); i++) {
    if (strcmp(data->reader, "valid") == 0)
      t.data[i] = i / (type->shape[0] / 4) < b->valid;
    else
      t.data[i] = (strcmp(data->name, "x") == 0 ? b->x : b->labels)[i];
  }
  return t;
}

static void take(void *user, const Node *node, const RefTensor *value) {
  Batch *b = user;
  if (strcmp(node_string(node, ATTR_ROLE), "sum") == 0)
    b->sum[b->nsum++] = value->data[0];
  else
    b->count[b->ncount++] = value->data[0];
}

/* Four samples of three tokens over five classes; a padded sample is garbage and must not count. */
START_TEST(padding_does_not_count) {
  static const char source[] = "mesh world(dp = 2)\n"
                               "eval {\n"
                               "  data x = npy(\"x\", f32[4@dp, 3, 5])\n"
                               "  data y = npy(\"y\", i64[4@dp, 3])\n"
                               "  metric average = mean(x)\n"
                               "  metric right = mean(argmax(x, -1) == y)\n"
                               "  metric total = sum(x)\n"
                               "  loss cross_entropy(x, y, ignore_index = 0)\n"
                               "}\n";
  compile_clean(&c, source, NULL);
  begin();
  double x[60], labels[12];
  for (int i = 0; i < 60; i++) x[i] = sin(i * 1.7) * 2;
  for (int i = 0; i < 12; i++) labels[i] = (double)(i * 7 % 5);
  for (int64_t valid = 1; valid <= 4; valid++) {
    double garbage_x[60], garbage_y[12];
    memcpy(garbage_x, x, sizeof x);
    memcpy(garbage_y, labels, sizeof labels);
    for (int64_t i = valid * 15; i < 60; i++) garbage_x[i] = 1e6 * (double)i;
    Batch b = {.valid = valid, .x = garbage_x, .labels = garbage_y};
    ref_eval_graph(&ctx, &c.arena, c.program->block[BLOCK_EVAL].graph,
                   &(RefIO){.user = &b, .input = give, .output = take});
    double total = 0, right = 0, loss = 0, counted = 0;
    for (int64_t i = 0; i < valid * 15; i++) total += x[i];
    for (int64_t t = 0; t < valid * 3; t++) {
      int best = 0;
      double z = 0;
      for (int k = 0; k < 5; k++) {
        if (x[t * 5 + k] > x[t * 5 + best]) best = k;
        z += exp(x[t * 5 + k]);
      }
      right += best == labels[t];
      if (labels[t] == 0) continue;
      loss += log(z) - x[t * 5 + (int)labels[t]];
      counted++;
    }
    double want_sum[] = {total, right, total, loss};
    double want_count[] = {(double)valid * 15, (double)valid * 3, counted};
    ck_assert_uint_eq(b.nsum, 4);
    ck_assert_uint_eq(b.ncount, 3);
    for (int i = 0; i < 4; i++) ck_assert_double_eq_tol(b.sum[i], want_sum[i], 1e-9);
    for (int i = 0; i < 3; i++) ck_assert_double_eq_tol(b.count[i], want_count[i], 1e-12);
  }
}
END_TEST

/* --- layers on a mesh ---------------------------------------------------------------------------
 */

typedef struct Store {
  RefTensor *vars;
} Store;

static void store_var(void *user, uint32_t var, const RefTensor *value) {
  ((Store *)user)->vars[var] = *value;
}
static RefTensor read_var(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Store *)user)->vars[var];
}

/* The one output of infer, with parameters from the program's own initialisers. */
static RefTensor run_infer(const char *source, const char *mesh, bool ranks) {
  compile_clean(&c, source, mesh);
  begin();
  Store store = {ARENA_ARRAY(&c.arena, RefTensor, c.program->vars.len + 1)};
  ref_eval_graph(&ctx, &c.arena, c.program->block[BLOCK_INIT].graph,
                 &(RefIO){.user = &store, .assign = store_var});
  const Graph *g = c.program->block[BLOCK_INFER].graph;
  RefIO io = {.user = &store, .read = read_var};
  ValueId result = 0;
  for (NodeId id = 1; id < g->nodes.len; id++)
    if (graph_node(g, id)->op == OP_OUTPUT) result = graph_node(g, id)->operands[0];
  if (!ranks) return ref_eval_graph(&ctx, &c.arena, g, &io)[result];
  bool disagree = false;
  RefTensor **values = ref_eval_mesh(&ctx, &c.arena, g, &io, &disagree);
  ck_assert_msg(!disagree, "replicas differ: %s", source);
  return ref_assemble(&c.arena, value_type(g, result), values[result], &disagree);
}

/* A module and how forward calls it. */
static const char *const layers[][2] = {
    {"nn.ColumnParallelLinearWithReplicateOutput(6, 10)", "layer(x)"},
    {"nn.RowParallelLinearWithReplicateOutput(6, 10)", "layer(x.redistribute(tp: Shard(2)))"},
    {"nn.RowParallelLinear(6, 10)", "full(layer(x.redistribute(tp: Shard(2))))"},
    {"nn.ReplicateParallelLinear(6, 10)", "layer(x)"},
    {"nn.ColumnParallelLinearWithReplicateInputOutput(6, 10)",
     "layer(x.redistribute(tp: Shard(1)))"},
    {"nn.EmbeddingWithReplicateOutput(7, 10)", "layer(ids)"},
    {"nn.VocabParallelEmbeddingWithReplicateOutput(7, 10)", "layer(ids)"},
    {"nn.MLP(6, 9)", "layer(x)"},
    {"nn.GatedMLP(6, 8)", "layer(norm(norm2(x)))"},
    {"nn.VocabParallelHead(6, 10)", "layer(x).redistribute(tp: Replicate)"},
    {"nn.Linear(6, 10, tp_shard = \"col\", tp_dim = \"absent\")", "layer(x)"},
    {"nn.Linear(6, 10, bias = false, tp_shard = \"col\", tp_dim = 1)",
     "layer(x).redistribute(tp: Replicate)"},
};

START_TEST(layers_are_the_same_on_any_mesh) {
  static const char *const meshes[] = {"tp=2", "tp=3", "dp=2,tp=2", "dp=3,tp=4"};
  char source[1024];
  snprintf(source, sizeof source,
           "import nn\nmesh world(dp = 1, tp = 1)\n"
           "module Net() {\n"
           "  layer = %s\n  norm = nn.RMSNorm(6)\n  norm2 = nn.LayerNorm(6)\n"
           "  forward(x, ids) { return %s }\n}\n"
           "infer {\n"
           "  model m = Net()\n"
           "  let x = randn(f32[4@dp, 5, 6])\n"
           "  let ids = (arange(i64[4]) * 3 %% 7).redistribute(dp: Shard(0))\n"
           "  print(m(x, ids))\n}\n",
           layers[_i][0], layers[_i][1]);
  RefTensor one = run_infer(source, NULL, false);
  int64_t n = ref_count(&one);
  double *want = malloc((size_t)n * sizeof *want);
  memcpy(want, one.data, (size_t)n * sizeof *want);
  double norm = 0;
  for (int64_t i = 0; i < n; i++) norm += want[i] * want[i];
  ck_assert_double_gt(norm, 0);
  for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
    compile_free(&c);
    RefTensor got = run_infer(source, meshes[m], true);
    ck_assert_int_eq(ref_count(&got), n);
    for (int64_t i = 0; i < n; i++)
      ck_assert_msg(fabs(got.data[i] - want[i]) < 1e-12 * (1 + fabs(want[i])),
                    "%s on %s: element %lld", layers[_i][0], meshes[m], (long long)i);
  }
  free(want);
}
END_TEST

/* Initial values as PyTorch's nn.Linear has them: both uniform within 1 / sqrt(in). */
START_TEST(initial_values) {
  compile_clean(&c,
                "module Net() {\n"
                "  param a: f32[200, 100] = normal(1.0, 0.5)\n"
                "  param b: f32[200, 100] = uniform(-0.25, 0.75)\n"
                "  param d: f32[200, 100] = xavier_uniform()\n"
                "  param e: f32[200, 100] = kaiming_normal()\n"
                "  param f: f32[200, 100] = constant(3)\n"
                "  param g: f32[200, 100]\n"
                "  param h: bf16[200, 100] = kaiming_uniform(sqrt(5.0))\n"
                "}\n"
                "infer { model m = Net() }\n",
                NULL);
  begin();
  Store store = {ARENA_ARRAY(&c.arena, RefTensor, 8)};
  ref_eval_graph(&ctx, &c.arena, c.program->block[BLOCK_INIT].graph,
                 &(RefIO){.user = &store, .assign = store_var});
  double xavier = sqrt(6.0 / 300), kaiming = sqrt(2.0 / 100), linear = 1 / sqrt(100.0);
  const struct {
    double mean, std, low, high;
  } want[] = {{1, 0.5, -4, 6},
              {0.25, 1 / sqrt(12.0), -0.25, 0.75},
              {0, xavier / sqrt(3.0), -xavier, xavier},
              {0, kaiming, -10 * kaiming, 10 * kaiming},
              {3, 0, 3, 3},
              {0, 0, 0, 0},
              {0, linear / sqrt(3.0), -linear, linear}};
  for (int v = 0; v < 7; v++) {
    const RefTensor *t = &store.vars[v];
    double n = (double)ref_count(t), sum = 0, squares = 0;
    ck_assert_double_eq(n, 20000);
    for (int64_t i = 0; i < 20000; i++) {
      sum += t->data[i];
      squares += t->data[i] * t->data[i];
      ck_assert(t->data[i] >= want[v].low - 1e-9 && t->data[i] <= want[v].high + 1e-9);
    }
    double mean = sum / n, std = sqrt(fmax(squares / n - mean * mean, 0));
    ck_assert_double_eq_tol(mean, want[v].mean, 0.02);
    ck_assert_double_eq_tol(std, want[v].std, 0.01 + 0.01 * want[v].std);
  }
}
END_TEST

int main(void) {
  TCase *t = tcase_create("programs");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, NULL, teardown);
  tcase_add_test(t, schedules);
  tcase_add_test(t, padding_does_not_count);
  tcase_add_loop_test(t, layers_are_the_same_on_any_mesh, 0, sizeof layers / sizeof *layers);
  tcase_add_test(t, initial_values);
  Suite *suite = suite_create("programs");
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
