/* Pipelines of micro-batches, as real ranks: every schedule on one to four stages and up to twice
 * as many micro-batches comes to its end and trains as one rank does that takes the batch as a
 * whole.
 *
 * The programs use a table on the first and the last stage, dropout, class weights, labels that are
 * ignored, clipping over parameters of all stages. They are compiled with --widen, and losses of
 * all steps must agree to 1e-10; on GPUs (support/target.h) in f32, to 1e-5.
 */
#include <check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/checkpoint.h"
#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"
#include "training.h"

enum { STEPS = 4, ROWS = 840 }; /* ROWS is a multiple of every number of micro-batches up to 8 */

static char text[1 << 18];

static const char program[] =
    "mesh world(dp = 1, pp = 1, tp = 1)\n"
    "config {\n"
    "  rows = 840   seq = 3   vocab = 11   dim = 6   layers = 4\n"
    "  m = 1   schedule_name = \"1f1b\"   chunks = 1   n = 1   lr = 0.3\n"
    "  tied = true   again = false   type = f32   pieces = false   opt = \"sgd\"\n"
    "}\n"
    "module Block(hidden: int) {\n"
    "  param up: f32[hidden@tp, dim] = normal(std = 0.4)\n"
    "  param down: f32[dim, hidden@tp] = normal(std = 0.4)\n"
    "  param bias: f32[dim] partial(tp) = zeros()\n"
    "  forward(x: f32[B@dp, S, dim]) -> f32[B@dp, S, dim] {\n"
    "    let h = dropout(gelu(linear(rms_norm(x), up)), 0.1)\n"
    "    return x + linear(h, down, bias).redistribute(tp: Replicate)\n"
    "  }\n"
    "}\n"
    "module Model() {\n"
    "  let ring = world.unbind(\"pp\")\n"
    "  let stages = [ring[i % len(ring)] for i in range(chunks * len(ring))]\n"
    "  let last = stages[len(stages) - 1]\n"
    "  let at = assign_layers_to_stages(layers, len(stages))\n"
    "  on stages[0] {\n    param table: f32[vocab@tp, dim] = normal(std = 0.5)\n  }\n"
    "  blocks = [Block(7 + i) on stages[at[i]] for i in range(layers)]\n"
    "  on last {\n    param gain: f32[dim] = ones()\n"
    "    if !tied { param head: f32[vocab@tp, dim] = normal(std = 0.5) }\n"
    "  }\n"
    "  forward(ids) {\n"
    "    let h = embedding(ids.redistribute(mesh = stages[0]), table).redistribute(tp: Replicate)\n"
    "    for i in range(layers) {\n"
    "      h = if again then recompute blocks[i](h.redistribute(mesh = stages[at[i]]))\n"
    "          else blocks[i](h.redistribute(mesh = stages[at[i]]))\n"
    "    }\n"
    "    return linear(rms_norm(h.redistribute(mesh = last), gain),\n"
    "                  (if tied then table.redistribute(mesh = last) else head)\n"
    "                    .redistribute(tp: Replicate))\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data tokens = npy(\"tokens.npy\", i64[rows@dp, seq])\n"
    "  data labels = npy(\"labels.npy\", i64[rows@dp, seq])\n"
    "  model net = Model()\n"
    "  let logits = net(tokens)\n"
    "  let weights = arange(f32[vocab] on logits.mesh) * 0.1 + 0.5\n"
    "  loss cross_entropy(logits, labels.redistribute(mesh = logits.mesh), weights) +\n"
    "       0.001 * mean(logits * logits) + 0.0001 * sum(logits)\n"
    "  metric size = mean(logits * logits)\n"
    "  if opt == \"sgd\" {\n    optimizer sgd(lr = lr)\n  } else {\n    optimizer adamw(lr = "
    "0.01)\n  }\n"
    "  if pieces {\n    store @dp\n  }\n"
    "  compute type\n"
    "  clip_grad_norm 0.5\n"
    "  microbatches m   schedule schedule_name   accumulate n   steps 4\n"
    "}\n";

static int64_t token(int i) {
  return (i * 7 + i / 5 + i % 13) % 11;
}
/* Long runs of ignored ones: some micro-batches have few labels that count. */
static int64_t label(int i) {
  return i / 40 % 3 == 1 || i % 17 == 0 ? -100 : (i * 5 + i / 7) % 11;
}

/* Simulated GPUs take fewer rows: 1, 3, 5 and 7 micro-batches divide them. */
static const char *small(void) {
  return target_gpus() ? "-D rows=105 " : "";
}

/* Compiles with these flags, and trains under `launcher` with more options. */
static void train_with(Training *t, const char *launcher, const char *flags, const char *options) {
  int code = work_run(text, sizeof text,
                      "%s p.dtm %s -o p && %s ./p --threads=1 --log=json --deadline=20 %s",
                      training_dtmc(flags), flags, launcher, options);
  training_read(t, text);
  ck_assert_msg(code == 0 && t->n == 2 * STEPS, "%s %s: exit %d, %d numbers\n%s", launcher, flags,
                code, t->n, text);
}

__attribute__((format(printf, 2, 3))) static void train(Training *t, const char *format, ...) {
  char flags[512];
  snprintf(flags, sizeof flags, "%s %s", training_widened(), small());
  va_list args;
  va_start(args, format);
  vsnprintf(flags + strlen(flags), sizeof flags - strlen(flags), format, args);
  va_end(args);
  train_with(t, "", flags, "");
}

static void equal(const Training *got, const Training *want, const char *what) {
  training_compare(got, want, training_bound(), what);
}

/* What one rank does that takes all rows as a whole; those of `others`. */
static Training whole, other_whole;

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

/* Whether `stages` are tried with m micro-batches: with 1 to 2 * stages; on GPUs with the first of
 * these and the last that is odd. */
static bool is_tried(int stages, int m) {
  return !target_gpus() || m == 1 || m == 2 * stages - 1;
}

/* All schedules, stages and micro-batches. */
START_TEST(every_schedule) {
  int stages = _i / 4 + 1;
  const char *schedule = schedules[_i % 4];
  Training got;
  for (int chunks = 1; chunks <= (stages > 1 && _i % 4 >= 2 ? 2 : 1); chunks++) {
    for (int m = 1; m <= 2 * stages; m++) {
      if (!is_tried(stages, m)) continue;
      char what[128];
      snprintf(what, sizeof what, "%s, %d stages, %d chunks, %d micro-batches", schedule, stages,
               chunks, m);
      train(&got, "--mesh pp=%d -D m=%d -D chunks=%d -D 'schedule_name=\"%s\"'", stages, m, chunks,
            schedule);
      equal(&got, &whole, what);
    }
  }
}
END_TEST

/* Stages that are meshes themselves; accumulated batches; micro-batches of one row. */
static const char *const others[] = {
    "--mesh pp=2,dp=2 -D m=4",
    "--mesh pp=2,tp=2 -D m=3",
    "--mesh pp=3,dp=2 -D m=6 -D 'schedule_name=\"zero_bubble\"'",
    "--mesh dp=3 -D m=7",
    "--mesh pp=2,dp=2,tp=2 -D m=2 -D chunks=2",
    "--mesh pp=3 -D m=4 -D again=true",
    "--mesh pp=2,dp=2 -D m=4 -D chunks=2 -D again=true -D 'schedule_name=\"interleaved\"'",
    "--mesh pp=2,tp=2 -D m=3 -D again=true -D 'schedule_name=\"zero_bubble\"'",
};

START_TEST(stages_with_ranks) {
  Training got;
  train(&got, "%s %s", target_gpus() ? "-D rows=84" : "", others[_i]);
  equal(&got, &other_whole, others[_i]);
}
END_TEST

/* What came from another stage is kept, not sent again: channels and lists are those without
 * recomputation. */
START_TEST(nothing_moves_again) {
  const char *look = "%s p.dtm --mesh pp=3 -D m=4 -D again=%s --emit=schedule | sed 's, "
                     "*//.*,,;s,; bytes.*arena,,'";
  static char plain[sizeof text];
  ck_assert_int_eq(work_run(plain, sizeof plain, look, getenv("DTMC"), "false"), 0);
  ck_assert_int_eq(work_run(text, sizeof text, look, getenv("DTMC"), "true"), 0);
  ck_assert_str_eq(text, plain);
}
END_TEST

START_TEST(accumulated_batches) {
  Training want, got;
  train(&want, "-D n=2 -D rows=420");
  train(&got, "-D n=2 -D rows=420 --mesh pp=2 -D m=4");
  equal(&got, &want, "two batches of four micro-batches");
}
END_TEST

START_TEST(single_rows) {
  Training want, got;
  train(&want, "-D rows=12");
  train(&got, "-D rows=12 -D m=12 --mesh pp=2,dp=2");
  equal(&got, &want, "micro-batches of one row");
}
END_TEST

/* The table is as large as what is looked up, so looking up again is no dearer than keeping it:
 * both passes read a variable, of which there is one however many micro-batches there are. */
START_TEST(lookups_again) {
  Training want, got;
  train(&want, "-D rows=48 -D vocab=36 -D tied=false");
  train(&got, "-D rows=48 -D vocab=36 -D tied=false -D m=4 --mesh pp=2");
  equal(&got, &want, "a large table");
}
END_TEST

/* On one mesh a batch in one part needs no schedule, and gets the program without one. */
START_TEST(one_part_on_one_mesh) {
  const char *dtmc = getenv("DTMC");
  ck_assert_int_eq(work_run(text, sizeof text, "%s p.dtm --emit=schedule", dtmc), 0);
  ck_assert_str_eq(
      text, "no pipeline: train has neither microbatches nor a schedule of several stages\n");
  ck_assert_int_eq(work_run(text, sizeof text, "%s p.dtm -D m=2 --emit=schedule", dtmc), 0);
  ck_assert_ptr_nonnull(strstr(text, "schedule 1f1b: 1 stage, 2 micro-batches"));
}
END_TEST

/* What the others are compared with learns. */
START_TEST(one_rank_learns) {
  ck_assert_int_eq(whole.n, 2 * STEPS);
  ck_assert_double_lt(whole.value[STEPS - 1], whole.value[0]);
}
END_TEST

/* Messages of MPI between stages, and collectives within them. */
START_TEST(stages_over_mpi) {
  static const char *const flags[] = {
      "--widen --mesh pp=3 -D m=4",
      "--widen --mesh pp=2,dp=2 -D m=4 -D 'schedule_name=\"zero_bubble\"'"};
  if (work_run(text, sizeof text,
               "mpirun --version && test -r $(dirname %s)/../lib/dtm/libdtm_rt_mpi.so",
               getenv("DTMC"))) {
    puts("skipped stages_over_mpi: no mpirun, or the MPI transport was not built");
    return;
  }
  for (int i = 0; i < 2; i++) {
    Training got;
    char mpirun[128];
    snprintf(mpirun, sizeof mpirun, "mpirun --oversubscribe --allow-run-as-root -n %d", i + 3);
    train_with(&got, mpirun, flags[i], "--comm=mpi");
    equal(&got, &whole, flags[i]);
  }
}
END_TEST

/* In 16 bits, with parameters in pieces and calls that are computed again, within the bound of one
 * rank. (f16 with few rows: which sums overflow in the first steps depends on their length.) */
static const char *const halves[] = {
    "-D type=bf16 --mesh pp=2,dp=2 -D pieces=true -D again=true",
    "-D type=f16 -D rows=60 --mesh pp=2,dp=2 -D pieces=true -D again=true",
    "-D type=bf16 --mesh pp=2",
    "-D type=f16 -D rows=60 --mesh pp=3",
    "-D type=bf16 --mesh pp=4",
};

START_TEST(half_precision) {
  Training want, got;
  char flags[256];
  bool bf16 = strstr(halves[_i], "bf16");
  const char *rows = bf16 ? small() : "";
  snprintf(flags, sizeof flags, "%s%s", rows, bf16 ? "-D type=bf16" : "-D type=f16 -D rows=60");
  train_with(&want, "", flags, "");
  int stages = strstr(halves[_i], "pp=")[3] - '0';
  for (int m = 1; m <= 2 * stages; m++) {
    const char *families[] = {m % 2 ? "1f1b" : "gpipe", "zero_bubble"};
    for (int k = 0; k < 2; k++) {
      if (target_gpus() && (m != 2 * stages - 1 || k != _i % 2)) continue;
      snprintf(flags, sizeof flags, "%s%s -D m=%d -D 'schedule_name=\"%s\"'", rows, halves[_i], m,
               families[k]);
      train_with(&got, "", flags, "");
      training_compare(&got, &want, bf16 ? 1.0 / 128 : 1.0 / 1024, flags);
    }
  }
}
END_TEST

static void expect_equal(const StStore *got, const StStore *want) {
  ck_assert_uint_gt(want->ntensors, 0);
  for (size_t i = 0; i < want->ntensors; i++)
    if (want->tensors[i].dtype == ABI_F32)
      ck_assert_msg(checkpoint_apart(got, want, &want->tensors[i]).difference == 0, "%s differs",
                    want->tensors[i].name);
}

/* What a run of four steps does, two runs of two do, to the last bit. */
START_TEST(a_run_goes_on) {
  StStore got, want;
  int code = work_run(text, sizeof text,
                      "%s p.dtm --mesh pp=2 -D m=4 -D n=2 -D rows=84 -D 'opt=\"adamw\"' -o p && "
                      "./p --threads=1 --quiet --save=four.safetensors && "
                      "./p --threads=1 --quiet --steps=2 --save=two.safetensors && "
                      "./p --threads=1 --quiet --resume=two.safetensors --save=two.safetensors",
                      getenv("DTMC"));
  ck_assert_msg(code == 0, "exit %d\n%s", code, text);
  checkpoint_open(&want, "four.safetensors");
  checkpoint_open(&got, "two.safetensors");
  expect_equal(&got, &want);
  dtm_rt_st_close(&got);
  dtm_rt_st_close(&want);
  checkpoint_open_state(&want, "four.safetensors");
  checkpoint_open_state(&got, "two.safetensors");
  expect_equal(&got, &want);
  dtm_rt_st_close(&got);
  dtm_rt_st_close(&want);
}
END_TEST

/* Ctrl-C lets the step come to its end, on all stages, and saves. */
START_TEST(an_interrupted_run_saves) {
  int code =
      work_run(text, sizeof text,
               "%s p.dtm --mesh pp=3 %s -D m=3 -o p && "
               "{ ./p --threads=1 --no-curve --steps=100000000 --save=stopped.safetensors & "
               "pid=$!; sleep 1; kill -INT $pid; wait $pid; } && test -s stopped.safetensors",
               getenv("DTMC"), small());
  ck_assert_msg(code == 130, "exit %d\n%s", code, text);
  ck_assert_msg(strstr(text, "stopped at step ") != NULL, "%s", text);
  ck_assert_msg(strstr(text, "saved stopped.safetensors at step ") != NULL, "%s", text);
}
END_TEST

/* A rank that is killed ends the run, wherever the others wait; who died, in which step, operation
 * and line is said. */
START_TEST(a_killed_rank_ends_the_run) {
  int code = work_run(text, sizeof text,
                      "%s p.dtm --mesh pp=3 %s -D m=3 -o p && "
                      "{ ./p --threads=1 --quiet --steps=100000000 & pid=$!; sleep 1; "
                      "set -- $(cat /proc/$pid/task/$pid/children); kill -9 $%d; wait $pid; }",
                      getenv("DTMC"), small(), _i + 1);
  char rank[32];
  snprintf(rank, sizeof rank, "rank %d", _i);
  ck_assert_msg(code == 4, "exit %d\n%s", code, text);
  ck_assert_msg(strstr(text, rank) && strstr(text, "step ") && strstr(text, "p.dtm:"), "%s", text);
}
END_TEST

static void compute_whole(void) {
  train(&whole, "-D m=1");
  train(&other_whole, "-D m=1 %s", target_gpus() ? "-D rows=84" : "");
}

int main(void) {
  if (!work_begin()) return 2;
  work_write("p.dtm", program);
  training_write_npy("tokens.npy", 2 * ROWS, 3, token);
  training_write_npy("labels.npy", 2 * ROWS, 3, label);
  TCase *t = tcase_create("pipeline");
  tcase_set_timeout(t, 240);
  tcase_add_unchecked_fixture(t, compute_whole, NULL);
  tcase_add_test(t, one_rank_learns);
  tcase_add_loop_test(t, every_schedule, 0, 16);
  tcase_add_loop_test(t, stages_with_ranks, 0, (int)(sizeof others / sizeof *others));
  if (!target_gpus()) tcase_add_test(t, nothing_moves_again);
  tcase_add_test(t, accumulated_batches);
  tcase_add_test(t, single_rows);
  tcase_add_test(t, lookups_again);
  if (!target_gpus()) tcase_add_test(t, one_part_on_one_mesh);
  TCase *r = tcase_create("runs");
  tcase_set_timeout(r, 240);
  tcase_add_unchecked_fixture(r, compute_whole, NULL);
  if (!target_gpus()) tcase_add_test(r, stages_over_mpi);
  tcase_add_loop_test(r, half_precision, 0, sizeof halves / sizeof *halves);
  tcase_add_test(r, a_run_goes_on);
  tcase_add_test(r, an_interrupted_run_saves);
  tcase_add_loop_test(r, a_killed_rank_ends_the_run, 0, 3);
  Suite *s = suite_create("pipeline");
  suite_add_tcase(s, t);
  suite_add_tcase(s, r);
  int failed = suite_run(s);
  return !work_end() || failed;
}
