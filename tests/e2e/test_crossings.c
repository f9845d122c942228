/* Parameters in pieces together with everything else that moves data or computes twice: recomputed
 * calls, pipelines and micro-batches, rings, exchanged heads, tensor parallelism, a table tied over
 * stages, a norm that stays whole, clipping, accumulation, bf16, and runs that go on elsewhere.
 * Each against one rank; extents that no mesh dim divides.
 */
#include <check.h>
#include <stdint.h>
#include <stdio.h>

#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"
#include "training.h"

enum { STEPS = 6, ROWS = 36, COLUMNS = 8, VOCAB = 31 };

static const char program[] =
    "import nn\n"
    "mesh world(dp = 1, pp = 1, ulysses_cp = 1, ring_cp = 1, tp = 1)\n"
    "config {\n  layers = 3 level = 0 again = false half = false clip = 0.0 acc = 1 parts = 1\n"
    "  schedule = \"1f1b\" chunks = 1\n}\n"
    "let seq = 7\nlet dim = 12\nlet heads = 6\n"
    "let ring = world.unbind(\"pp\")\n"
    "let stages = [ring[i % len(ring)] for i in range(chunks * len(ring))]\n"
    "let at = assign_layers_to_stages(layers, len(stages))\n"
    "let last = stages[-1]\n"
    "module Attention() {\n"
    "  q = nn.ColumnParallelLinear(dim, dim)\n  k = nn.ColumnParallelLinear(dim, dim)\n"
    "  v = nn.ColumnParallelLinear(dim, dim)\n"
    "  out = nn.RowParallelLinearWithReplicateOutput(dim, dim)\n"
    "  fn split(x: f32[B@dp, S@(ring_cp, ulysses_cp), D@tp]) {\n"
    "    return x.reshape([B, S, heads, div(dim, heads)]).transpose(1, 2)\n  }\n"
    "  forward(x: f32[B@dp, S@(ring_cp, ulysses_cp), dim]) {\n"
    "    let y = scaled_dot_product_attention(split(q(x)), split(k(x)), split(v(x)), "
    "causal = true)\n"
    "    return out(y.transpose(1, 2).reshape([B, S, dim]))\n  }\n}\n"
    "module Block() {\n"
    "  store @none { norm1 = nn.RMSNorm(dim) }\n  attention = Attention()\n"
    "  norm2 = nn.LayerNorm(dim)\n  mlp = nn.MLP(dim, 22)\n"
    "  forward(x) {\n    let h = x + attention(norm1(x))\n    return h + mlp(norm2(h))\n  }\n}\n"
    "module Net() {\n"
    "  embed = nn.Embedding(31, dim) on stages[0]\n"
    "  blocks = [Block() on stages[at[i]] for i in range(layers)]\n"
    "  norm = nn.LayerNorm(dim) on last\n"
    "  forward(ids) {\n    let h = embed(ids)\n    for i in range(layers) {\n"
    "      h = h.redistribute(mesh = stages[at[i]])\n"
    "      if again { h = recompute blocks[i](h) } else { h = blocks[i](h) }\n    }\n"
    "    return linear(norm(h.redistribute(mesh = last)), embed.weight.redistribute(mesh = last))\n"
    "  }\n}\n"
    "fn cut(ids, stage) {\n"
    "  return ids.redistribute(ring_cp: Shard(1), ulysses_cp: Shard(1), mesh = stage)\n}\n"
    "train {\n"
    "  if level == 1 { store optimizer @dp }\n  if level == 2 { store gradients @dp }\n"
    "  if level == 3 { store @dp }\n  if level == 4 { store @(dp, ring_cp, ulysses_cp) }\n"
    "  data tokens = npy(\"tokens.npy\", i64[12@dp, seq + 1])\n  model m = Net()\n"
    "  loss cross_entropy(m(cut(tokens[:, 0:seq], stages[0])), cut(tokens[:, 1:seq + 1], last))\n"
    "  optimizer adamw(lr = 0.01, weight_decay = 0.1)\n"
    "  if clip > 0 { clip_grad_norm clip }\n  if half { compute bf16 }\n"
    "  accumulate acc\n  microbatches parts\n  schedule schedule\n  steps 6\n}\n";

/* Simulated, a layer less is time saved. */
static const char *small(void) {
  return target_gpus() ? "-D layers=2" : "";
}

static int losses_of(const char *options, const char *run, double *loss) {
  return training_losses("crossings.dtm", options, run, loss, STEPS);
}

static const struct {
  const char *base, *options[8];
} crossings[] = {
    {"",
     {"--mesh dp=2,ring_cp=2,tp=2 -D level=4 -D again=true",
      "--mesh dp=2,ulysses_cp=2,ring_cp=2 -D level=4", "--mesh dp=5 -D level=3 -D again=true",
      "--mesh dp=2,pp=2,tp=2 -D level=3 -D again=true -D parts=3",
      "--mesh pp=2,ring_cp=3 -D level=4 -D again=true -D parts=6",
      "--mesh dp=2,pp=2,ulysses_cp=2 -D level=2 -D parts=2 -D schedule=zero_bubble",
      "--mesh dp=2 -D level=3 -D again=true -D parts=4"}},
    {"-D layers=4",
     {"--mesh dp=2,pp=2 -D level=3 -D again=true -D parts=2 -D chunks=2 -D schedule=interleaved"}},
    {"-D acc=2 -D clip=0.1",
     {"--mesh dp=2,pp=2,ring_cp=2 -D level=1 -D again=true -D parts=3",
      "--mesh dp=3,pp=2 -D level=3 -D parts=2", "--mesh dp=2,ring_cp=3 -D level=4 -D again=true",
      "--mesh dp=2,tp=3 -D level=3 -D again=true"}}};

START_TEST(equal_one_rank) {
  double want[STEPS], got[STEPS];
  const int n = target_steps(STEPS);
  char options[256], all[128];
  snprintf(all, sizeof all, "%s %s %s", training_widened(), small(), crossings[_i].base);
  ck_assert_int_eq(losses_of(all, "", want), n);
  for (int i = 0; crossings[_i].options[i]; i++) {
    snprintf(options, sizeof options, "%s %s", all, crossings[_i].options[i]);
    ck_assert_int_eq(losses_of(options, "", got), n);
    training_near(got, want, n, training_bound(), options);
  }
}
END_TEST

/* bf16 keeps 8 bits. */
START_TEST(half_precision_stays_near) {
  static const char *const options[] = {
      "--mesh dp=2,pp=2 -D level=3 -D again=true -D parts=3 -D half=true",
      "--mesh dp=2,ring_cp=2,tp=2 -D level=4 -D again=true -D half=true"};
  double want[STEPS], got[STEPS];
  const int n = target_steps(STEPS);
  ck_assert_int_eq(losses_of("", "", want), n);
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    ck_assert_int_eq(losses_of(options[i], "", got), n);
    training_near(got, want, n, 2.0 / 256, options[i]);
  }
}
END_TEST

START_TEST(a_run_goes_on_elsewhere) {
  double want[STEPS], got[STEPS];
  const int n = target_steps(STEPS);
  char from[128], to[128];
  snprintf(from, sizeof from, "%s --mesh dp=2,pp=2 -D level=3 -D again=true -D parts=3",
           training_widened());
  snprintf(to, sizeof to, "%s --mesh dp=2,ring_cp=2 -D level=4 -D again=true", training_widened());
  ck_assert_int_eq(losses_of(training_widened(), "", want), n);
  ck_assert_int_eq(losses_of(from, "--steps 3 --save half.safetensors", got), 3);
  ck_assert_int_eq(losses_of(to, "--resume half.safetensors", got), n - 3);
  training_near(got, want + 3, n - 3, training_bound(), to);
}
END_TEST

static int64_t token(int i) {
  return (int64_t)(((uint64_t)i * 6364136223846793005u + 1442695040888963407u) >> 33) % VOCAB;
}

int main(void) {
  if (!work_begin()) return 2;
  work_write("crossings.dtm", program);
  training_write_npy("tokens.npy", ROWS, COLUMNS, token);
  TCase *t = tcase_create("crossings");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, equal_one_rank, 0, sizeof crossings / sizeof *crossings);
  tcase_add_test(t, half_precision_stays_near);
  tcase_add_test(t, a_run_goes_on_elsewhere);
  Suite *s = suite_create("crossings");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
