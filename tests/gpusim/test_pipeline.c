/* Pipelines on simulated GPUs: what lies between messages runs as CUDA graphs, one for each block
 * that a micro-batch may use. Graphs or none, streams in either order: the same bits; and what a
 * step calls of driver and NCCL. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/checkpoint.h"
#include "support/log.h"
#include "support/suite.h"
#include "support/work.h"

enum { MICRO = 4, OUT = 1 << 16 };

/* 20 samples: the third batch is half full. Evaluation cuts nothing. */
static const char program[] =
    "mesh world(pp = 1, dp = 1, tp = 1)\n"
    "config { rows = 8  dim = 6  layers = 4  m = 4  plan = \"1f1b\"  chunks = 1  sharded = false "
    "}\n"
    "module Block() {\n"
    "  param up: f32[8@tp, dim] = normal(std = 0.4)\n"
    "  param down: f32[dim, 8@tp] = normal(std = 0.4)\n"
    "  forward(x: f32[B@dp, dim]) -> f32[B@dp, dim] {\n"
    "    let h = dropout(gelu(linear(rms_norm(x), up)), 0.1)\n"
    "    return x + linear(h, down).redistribute(tp: Replicate)\n"
    "  }\n"
    "}\n"
    "module Model() {\n"
    "  let ring = world.unbind(\"pp\")\n"
    "  let stages = [ring[i % len(ring)] for i in range(chunks * len(ring))]\n"
    "  let at = assign_layers_to_stages(layers, len(stages))\n"
    "  blocks = [Block() on stages[at[i]] for i in range(layers)]\n"
    "  forward(x) {\n"
    "    let h = x.redistribute(mesh = stages[0])\n"
    "    for i in range(layers) { h = blocks[i](h.redistribute(mesh = stages[at[i]])) }\n"
    "    return h\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data x = npy(\"x.npy\", f32[rows@dp, dim])\n"
    "  model net = Model()\n"
    "  let y = net(x)\n"
    "  loss mean(y * y)\n"
    "  optimizer adamw(lr = 0.01)\n"
    "  if sharded { store @dp }\n"
    "  clip_grad_norm 1.0\n"
    "  microbatches m  schedule plan  steps 100\n"
    "}\n"
    "eval {\n"
    "  data x = npy(\"x.npy\", f32[rows@dp, dim])\n"
    "  model net = Model()\n"
    "  metric size = mean(net(x) * net(x))\n"
    "}\n";

static char out[OUT], other[OUT];

static int compile(const char *flags) {
  return work_run(out, sizeof out, "$DTMC p.dtm --target=cuda:compute_80 %s -o p", flags);
}

/* `how` goes before the program, `options` behind it. */
static void run_program(char *text, const char *how, const char *options) {
  int status = work_run(text, OUT,
                        "export TMPDIR=. DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM "
                        "DTM_NCCL=$GPUSIM; %s ./p --deadline 20 %s",
                        how, options);
  ck_assert_msg(status == 0 && !strstr(text, "gpusim:"), "%s: %d: %s", how, status, text);
}

static void same_stores(StStore *a, StStore *b, const char *what) {
  ck_assert_int_eq(a->ntensors, b->ntensors);
  for (size_t i = 0; i < b->ntensors; i++) {
    if (b->tensors[i].dtype != ABI_F32) continue;
    Apart apart = checkpoint_apart(a, b, &b->tensors[i]);
    ck_assert_msg(apart.difference == 0, "%s: %s: %g of %g", what, b->tensors[i].name,
                  apart.difference, apart.largest);
  }
  dtm_rt_st_close(a);
  dtm_rt_st_close(b);
}

static void same_bits(const char *what) {
  StStore a, b;
  checkpoint_open(&a, "1.st");
  checkpoint_open(&b, "0.st");
  same_stores(&a, &b, what);
  checkpoint_open_state(&a, "1.st");
  checkpoint_open_state(&b, "0.st");
  same_stores(&a, &b, what);
}

static const char *metric(const char *text) {
  const char *line = strstr(text, "\"metric\":\"size\"");
  ck_assert_msg(line != NULL, "%s", text);
  return line;
}

static const char *const schedules[] = {
    "--mesh pp=2,tp=2",
    "--mesh pp=2 -D chunks=2 -D 'plan=\"interleaved\"'",
    "--mesh pp=2,dp=2 -D sharded=true -D 'plan=\"zero_bubble\"'",
};

START_TEST(graphs_give_the_same_bits) {
  static const char *const ways[] = {"", "GPUSIM_ASYNC=early"};
  enum { STEPS = 4 };
  double want[STEPS], got[STEPS];
  ck_assert_msg(compile(schedules[_i]) == 0, "%s", out);
  run_program(other, "DTM_CUDA_GRAPHS=0", "--log json --steps 4 --save 0.st");
  ck_assert_int_eq(log_steps(other, "loss", want, STEPS), STEPS);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    run_program(out, ways[i], "--log json --steps 4 --save 1.st");
    ck_assert_int_eq(log_steps(out, "loss", got, STEPS), STEPS);
    for (int k = 0; k < STEPS; k++) ck_assert_double_eq(got[k], want[k]);
    ck_assert_str_eq(metric(out), metric(other));
    same_bits(ways[i]);
  }
}
END_TEST

/* How many calls of an entry a run of so many steps makes, on all ranks. */
static int calls(int steps, const char *entry) {
  char pattern[128], name[32];
  snprintf(pattern, sizeof pattern, "^[0-9]* %s", entry);
  snprintf(name, sizeof name, "calls.%d", steps);
  return work_count(pattern, name);
}

static int calls_of_step(const char *entry) {
  return calls(4, entry) - calls(3, entry);
}

/* Everything between messages is in graphs, one launch for each piece of a micro-batch's way. */
START_TEST(a_step_is_few_calls) {
  enum { RANKS = 4, TO_AND_BACK = 2 };
  ck_assert_msg(compile(schedules[0]) == 0, "%s", out);
  run_program(out, "GPUSIM_TRACE=calls.3", "--quiet --no-eval --steps 3");
  run_program(out, "GPUSIM_TRACE=calls.4", "--quiet --no-eval --steps 4");
  ck_assert_int_gt(calls(3, "cuLaunchKernel"), 0);
  ck_assert_int_gt(calls(3, "cuStreamBeginCapture"), 0);
  ck_assert_int_eq(calls_of_step("cuLaunchKernel"), 0);
  ck_assert_int_eq(calls_of_step("cublasLtMatmul"), 0);
  ck_assert_int_eq(calls_of_step("cuStreamBeginCapture"), 0);
  ck_assert_int_eq(calls_of_step("cu[A-Za-z]*Synchronize"), 0);
  ck_assert_int_eq(calls_of_step("nccl\\(AllReduce\\|AllGather\\|ReduceScatter\\)"), 0);
  ck_assert_int_eq(calls_of_step("ncclSend"), RANKS / 2 * MICRO * TO_AND_BACK);
  ck_assert_int_eq(calls_of_step("ncclRecv"), RANKS / 2 * MICRO * TO_AND_BACK);
  /* Of each micro-batch forward and backward, which the last stage's message to the first parts in
   * two; then the norm of the gradients, and the optimizer. */
  ck_assert_int_eq(calls_of_step("cuGraphLaunch"), RANKS / 2 * (2 * MICRO + 2 + 3 * MICRO + 2));
}
END_TEST

static int run(void) {
  Suite *suite = suite_create("pipeline");
  TCase *t = tcase_create("graphs");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, graphs_give_the_same_bits, 0, sizeof schedules / sizeof *schedules);
  tcase_add_test(t, a_step_is_few_calls);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}

int main(void) {
  if (!getenv("GPUSIM")) return suite_skip("GPUSIM does not name the simulator");
  if (!work_begin()) return 2;
  FILE *x = work_npy("x.npy", "<f4", "(20, 6)");
  for (int i = 0; i < 120; i++) fwrite(&(float){(float)(i * 7 % 11 - 5) / 4}, sizeof(float), 1, x);
  fclose(x);
  work_write("p.dtm", program);
  int status = compile("") == 0 ? run() : strstr(out, "NVRTC") ? suite_skip(out) : 2;
  if (status == 2) fprintf(stderr, "%s", out);
  return work_end() ? status : 2;
}
