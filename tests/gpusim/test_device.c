/* A program for GPUs as a user runs it, on a simulated GPU: against the same program on the
 * processor, step by step; checkpoints that go from one to the other; what a step calls of the
 * driver; and what is said where it cannot run. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/cuda.h"
#include "support/checkpoint.h"
#include "support/log.h"
#include "support/suite.h"
#include "support/work.h"

enum { STEPS = 5, OUT = 1 << 16 };

/* With two batches per step, and a norm that all gradients are needed for: the optimizer runs at
 * the end of the step, for all parameters at once. */
static const char model[] =
    "config { dim = 12  hidden = 20  classes = 5  batch = 10  batches = 2  lr = 0.01\n"
    "         clip = 1.0 }\n"
    "mesh world(dp = 1)\n"
    "module Model() {\n"
    "  param ln_w: f32[dim] = ones()\n"
    "  param ln_b: f32[dim]\n"
    "  param w1: f32[hidden, dim] = normal(std = 0.3)\n"
    "  param b1: f32[hidden]\n"
    "  param w2: f32[classes, hidden] = normal(std = 0.3)\n"
    "  param b2: f32[classes]\n"
    "  forward(x: f32[B@dp, dim]) -> f32[B@dp, classes] {\n"
    "    let h = gelu(linear(layer_norm(x, ln_w, ln_b), w1, b1))\n"
    "    return linear(dropout(h, 0.1), w2, b2)\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data x = npy(\"x.npy\", f32[batch@dp, dim])\n"
    "  data y = npy(\"y.npy\", i64[batch@dp])\n"
    "  model m = Model()\n"
    "  loss cross_entropy(m(x), y)\n"
    "  optimizer adamw(lr = lr, weight_decay = 0.1)\n"
    "  if clip > 0 { clip_grad_norm clip }\n"
    "  steps 100  accumulate batches\n"
    "}\n"
    "eval {\n"
    "  data x = npy(\"x.npy\", f32[batch@dp, dim])\n"
    "  data y = npy(\"y.npy\", i64[batch@dp])\n"
    "  model m = Model()\n"
    "  metric nll = cross_entropy(m(x), y)\n"
    "}\n";

/* An index out of a file, which may be none. */
static const char indexed[] = "config { batch = 4 }\n"
                              "module Model() {\n"
                              "  param w: f32[4] = ones()\n"
                              "  forward(x: i64[4]) -> f32[4] {\n"
                              "    return scatter_add(w * 0.0, 0, x, w)\n"
                              "  }\n"
                              "}\n"
                              "train {\n"
                              "  data x = npy(\"index.npy\", i64[batch])\n"
                              "  model m = Model()\n"
                              "  loss sum(m(x))\n"
                              "  optimizer sgd(lr = 0.1)\n"
                              "  steps 2\n"
                              "}\n";

/* Ids are computed, so that they are not checked as they are read. */
static const char looked_up[] = "module Model() {\n"
                                "  param w: f32[4, 3] = ones()\n"
                                "  forward(x: i64[2]) {\n"
                                "    return mean(embedding(x + 0, w))\n"
                                "  }\n"
                                "}\n"
                                "train {\n"
                                "  data x = npy(\"ids.npy\", i64[2])\n"
                                "  model m = Model()\n"
                                "  loss m(x)\n"
                                "  optimizer sgd(lr = 0.1)\n"
                                "  shuffle false\n"
                                "  steps 4\n"
                                "}\n";

/* Two stages that exchange messages. */
static const char staged[] = "mesh world(pp = 2)\n"
                             "module Model() {\n"
                             "  let stages = world.unbind(\"pp\")\n"
                             "  on stages[0] { param u: f32[12, 12] = normal(std = 0.3) }\n"
                             "  on stages[1] { param w: f32[1, 12] = normal(std = 0.3) }\n"
                             "  forward(x) {\n"
                             "    let h = linear(x.redistribute(mesh = stages[0]), u)\n"
                             "    return linear(h.redistribute(mesh = stages[1]), w)\n"
                             "  }\n"
                             "}\n"
                             "train {\n"
                             "  data x = npy(\"x.npy\", f32[4, 12])\n"
                             "  model m = Model()\n"
                             "  loss mean(square(m(x)))\n"
                             "  optimizer sgd(lr = 0.1)\n"
                             "  steps 2  microbatches 2  schedule \"1f1b\"\n"
                             "}\n";

static char out[OUT], other[OUT];

/* --- the folder: data, ./cpu, ./gpu ------------------------------------------------------------
 */

static void write_data(void) {
  FILE *x = work_npy("x.npy", "<f4", "(60, 12)"), *y = work_npy("y.npy", "<i8", "(60,)");
  uint32_t random = 1;
  for (int i = 0; i < 60; i++) {
    int64_t label = i * 7 % 5;
    fwrite(&label, sizeof label, 1, y);
    for (int k = 0; k < 12; k++) {
      random = random * 1664525u + 1013904223u;
      float value = (float)(random >> 8) / 8388608.f - 1.f + (k == label ? 1.f : 0.f);
      fwrite(&value, sizeof value, 1, x);
    }
  }
  fclose(x);
  fclose(y);
}

/* False with what dtmc says in `out`. */
static bool make(const char *program, const char *options, const char *name) {
  return work_run(out, sizeof out, "%s %s %s -o %s", getenv("DTMC"), program, options, name) == 0;
}

static void compile(const char *program, const char *options, const char *name) {
  ck_assert_msg(make(program, options, name), "%s", out);
}

#define GPU "--target=cuda:compute_80"

/* Runs programs of the folder, the first with this environment before it; what they print goes to
 * `text`. */
#define RUN(text, environment, command)                                                            \
  work_run(text, OUT,                                                                              \
           "export TMPDIR=. DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM "                         \
           "DTM_NCCL=$GPUSIM; " environment " " command)

#define GOOD(text, environment, command)                                                           \
  do {                                                                                             \
    int status_ = RUN(text, environment, command);                                                 \
    ck_assert_msg(status_ == 0 && !strstr(text, "gpusim:"), "%d: %s", status_, text);              \
  } while (0)

static void says(const char *text, const char *wanted) {
  ck_assert_msg(strstr(text, wanted) != NULL, "no \"%s\" in: %s", wanted, text);
}

/* One message, and this exit code. */
static void refuses(int status, int wanted, const char *text) {
  const char *first = strstr(out, "error: ");
  ck_assert_msg(status == wanted, "%d: %s", status, out);
  ck_assert_msg(first && !strstr(first + 1, "error: "), "%s", out);
  says(out, text);
}

/* --- the same numbers --------------------------------------------------------------------------
 */

static void near_losses(const char *got, const char *want, double bound) {
  double a[2 * STEPS], b[2 * STEPS];
  int n = log_steps(got, "loss", a, 2 * STEPS);
  ck_assert_int_eq(n, log_steps(want, "loss", b, 2 * STEPS));
  ck_assert_int_gt(n, 0);
  for (int i = 0; i < n; i++) ck_assert_double_eq_tol(a[i], b[i], bound * b[i]);
}

/* Parameters, and the state of the optimizer: its moments are the gradients. */
static void near_files(const char *got, const char *want, bool state, double bound) {
  StStore a, b;
  if (state) {
    checkpoint_open_state(&a, got);
    checkpoint_open_state(&b, want);
  } else {
    checkpoint_open(&a, got);
    checkpoint_open(&b, want);
  }
  ck_assert_int_eq(a.ntensors, b.ntensors);
  ck_assert_int_gt(b.ntensors, 5);
  for (size_t i = 0; i < b.ntensors; i++) {
    if (b.tensors[i].dtype != ABI_F32) continue;
    Apart apart = checkpoint_apart(&a, &b, &b.tensors[i]);
    ck_assert_msg(apart.difference <= bound * apart.largest, "%s: %g of %g", b.tensors[i].name,
                  apart.difference, apart.largest);
  }
  dtm_rt_st_close(&a);
  dtm_rt_st_close(&b);
}

START_TEST(losses_parameters_metrics) {
  GOOD(out, "", "./gpu --log json --steps 5 --save gpu.st");
  GOOD(other, "", "./cpu --log json --steps 5 --save cpu.st");
  near_losses(out, other, 1e-5);
  near_files("gpu.st", "cpu.st", false, 1e-5);
  near_files("gpu.st", "cpu.st", true, 1e-4);
  double metric[2] = {0};
  const char *texts[] = {out, other};
  for (int i = 0; i < 2; i++) {
    const char *line = strstr(texts[i], "\"metric\":\"nll\"");
    ck_assert_msg(line != NULL, "%s", texts[i]);
    metric[i] = strtod(strstr(line, "\"value\":") + 8, NULL);
  }
  ck_assert_double_eq_tol(metric[0], metric[1], 1e-5 * metric[1]);
}
END_TEST

/* Streams in another order, without graphs, waited for after every action: the same bits. */
START_TEST(orders_and_graphs) {
  static const char *const ways[] = {"GPUSIM_ASYNC=early", "DTM_CUDA_GRAPHS=0",
                                     "DTM_CUDA_GRAPHS=0 GPUSIM_ASYNC=early", "DTM_CUDA_WAIT=1"};
  GOOD(other, "", "./gpu --quiet --no-eval --steps 5 --save 0.st");
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    int status = work_run(out, sizeof out,
                          "export DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM; %s "
                          "./gpu --quiet --no-eval --steps 5 --save 1.st",
                          ways[i]);
    ck_assert_msg(status == 0 && !*out, "%s", out);
    near_files("1.st", "0.st", false, 0);
    near_files("1.st", "0.st", true, 0);
  }
  GOOD(out, "", "./gpu --quiet --no-eval --steps 5 --save 1.st --trace trace.json");
  near_files("1.st", "0.st", false, 0);
}
END_TEST

/* Numbers of actions of the training block that are at least `least`, sorted into file `to`. */
#define NUMBERS_OF_REPORT                                                                          \
  "$DTMC model.dtm " GPU                                                                           \
  " --report=actions | awk -F'\t' '$2 == \"train\" && $3 == \"model\" {print $1}' | sort > "

/* A trace has every action of every batch, by its number, at times of the GPU; with
 * bundles. */
START_TEST(trace_has_times_of_the_gpu) {
  GOOD(out, "GPUSIM_TRACE=calls.t",
       "./gpu --quiet --no-eval --steps 2 --save 1.st --trace trace.json");
  int status = work_run(
      out, sizeof out,
      NUMBERS_OF_REPORT
      "wanted && sed -n 's/.*\"step\":2,\"action\":\\([0-9]*\\).*/\\1/p' trace.json | sort | "
      "uniq -c | awk '$1 == 2 {print $2}' | sort > twice && comm -23 wanted twice; "
      "[ -s wanted ] && grep -c '_many' calls.t && "
      "grep -c '^[0-9]* cuEventElapsedTime' calls.t && grep -c '\"cat\"' trace.json");
  int launches, elapsed, events;
  ck_assert_msg(status == 0 && sscanf(out, "%d %d %d", &launches, &elapsed, &events) == 3, "%s",
                out);
  ck_assert_int_ge(launches, 2);
  ck_assert_int_eq(elapsed, 2 * events);
  work_run(out, sizeof out, "grep -c '\"ts\":-\\|\"dur\":-' trace.json");
  ck_assert_int_eq(atoi(out), 0);
}
END_TEST

START_TEST(checkpoints_go_both_ways) {
  GOOD(other, "", "./cpu --log json --steps 5 --no-eval");
  double want[STEPS], got[STEPS];
  ck_assert_int_eq(log_steps(other, "loss", want, STEPS), STEPS);
  GOOD(out, "", "./gpu --quiet --steps 3 --save a.st && ./cpu --log json --steps 5 --resume a.st");
  ck_assert_int_eq(log_steps(out, "loss", got, STEPS), 2);
  for (int i = 0; i < 2; i++) ck_assert_double_eq_tol(got[i], want[3 + i], 1e-5 * want[3 + i]);
  GOOD(out, "", "./cpu --quiet --steps 3 --save b.st && ./gpu --log json --steps 5 --resume b.st");
  ck_assert_int_eq(log_steps(out, "loss", got, STEPS), 2);
  for (int i = 0; i < 2; i++) ck_assert_double_eq_tol(got[i], want[3 + i], 1e-5 * want[3 + i]);
  GOOD(out, "", "./gpu --quiet --steps 3 --save c.st && ./gpu --log json --steps 5 --resume c.st");
  ck_assert_int_eq(log_steps(out, "loss", got, STEPS), 2);
  for (int i = 0; i < 2; i++) ck_assert_double_eq_tol(got[i], want[3 + i], 1e-5 * want[3 + i]);
}
END_TEST

/* Two ranks, forked by the program and started by a launcher. */
START_TEST(two_gpus) {
  compile("model.dtm", GPU " --mesh dp=2", "two");
  GOOD(other, "", "./cpu --log json --no-eval --steps 5 --save one.st");
  GOOD(out, "", "./two --log json --no-eval --steps 5 --save two.st");
  near_losses(out, other, 1e-5);
  near_files("two.st", "one.st", false, 1e-5);
  near_files("two.st", "one.st", true, 1e-4);
  GOOD(out, "",
       "true; export DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM DTM_NCCL=$GPUSIM TMPDIR=."
       " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531"
       " TORCHELASTIC_RUN_ID=$$;"
       " RANK=1 LOCAL_RANK=1 ./two --quiet --no-eval --steps 5 &"
       " RANK=0 LOCAL_RANK=0 ./two --log json --no-eval --steps 5 && wait");
  near_losses(out, other, 1e-5);
}
END_TEST

START_TEST(same_source_same_bits) {
  compile("model.dtm", GPU, "again");
  int status = work_run(out, sizeof out, "cmp gpu again");
  ck_assert_msg(status == 0, "%s", out);
}
END_TEST

/* --- what a step calls -------------------------------------------------------------------------
 */

/* The calls of a run of so many steps, in the file calls.N. */
static void trace_calls(const char *program, int steps) {
  int status = work_run(out, sizeof out,
                        "rm -f calls.%d; GPUSIM_TRACE=calls.%d DTM_CUDA_DRIVER=$GPUSIM "
                        "DTM_CUBLASLT=$GPUSIM "
                        "./%s --quiet --no-eval --steps %d",
                        steps, steps, program, steps);
  ck_assert_msg(status == 0, "%s", out);
}

/* How many of them are of this entry. */
static int calls(int steps, const char *entry) {
  char pattern[128], name[32];
  snprintf(pattern, sizeof pattern, "^[0-9]* %s", entry);
  snprintf(name, sizeof name, "calls.%d", steps);
  return work_count(pattern, name);
}

/* Between the sixth step and the fifth; all is warm by then. */
static int calls_of_step(const char *entry) {
  return calls(6, entry) - calls(5, entry);
}

START_TEST(a_step_waits_once_per_batch) {
  trace_calls("gpu", 5);
  trace_calls("gpu", 6);
  /* Two batches of a step: each is waited for where its loss is looked at, nothing else is. */
  ck_assert_int_eq(calls_of_step("cu[A-Za-z]*Synchronize"), 2);
  ck_assert_int_eq(calls_of_step("cuMemcpyHtoD_v2"), 0);
  ck_assert_int_eq(calls_of_step("cuMemcpyDtoH_v2"), 0);
  ck_assert_int_eq(calls_of_step("cuMem[A-Z][a-z]*Alloc"), 0);
  ck_assert_int_eq(calls_of_step("cuMemAlloc"), 0);
  ck_assert_int_eq(calls_of_step("cuModule"), 0);
  ck_assert_int_eq(calls_of_step("cuLaunchKernel"), 0); /* all are in graphs */
  ck_assert_int_eq(calls_of_step("cublasLtMatmul"), 0);
  ck_assert_int_eq(calls_of_step("cuStreamBeginCapture"), 0);
  /* Forward with the loss, backward, and after the batches the optimizer. */
  ck_assert_int_eq(calls_of_step("cuGraphLaunch"), 5);
  /* Per batch x and y; once per step its number. */
  ck_assert_int_eq(calls_of_step("cuMemcpyHtoDAsync"), 5);
  /* Per batch the loss and what kernels found wrong. */
  ck_assert_int_eq(calls_of_step("cuMemcpyDtoHAsync"), 4);
}
END_TEST

/* The first step runs plainly: squares of gradients are added up in two launches, those of vectors
 * and of matrices; parameters are updated in one, gradients that were added up cleared in one. */
START_TEST(parameters_in_one_launch) {
  trace_calls("gpu", 1);
  ck_assert_int_eq(calls(1, "cuLaunchKernel k_sum_many"), 2);
  ck_assert_int_eq(calls(1, "cuLaunchKernel k_sub_many"), 1);
  ck_assert_int_eq(calls(1, "cuLaunchKernel k_.*_many"), 4);
}
END_TEST

/* So they are where nothing is waited for, no norm and no further batch. */
START_TEST(parameters_in_one_launch_without_a_norm) {
  compile("model.dtm", "-D clip=0 -D batches=1", "plain_cpu");
  compile("model.dtm", GPU " -D clip=0 -D batches=1", "plain");
  GOOD(other, "", "./plain_cpu --log json --no-eval --steps 5 --save plain_cpu.st");
  GOOD(out, "", "./plain --log json --no-eval --steps 5 --save plain.st");
  near_losses(out, other, 1e-5);
  near_files("plain.st", "plain_cpu.st", false, 1e-5);
  near_files("plain.st", "plain_cpu.st", true, 1e-4);
  trace_calls("plain", 1);
  ck_assert_int_eq(calls(1, "cuLaunchKernel k_.*_many"), 1);
  /* The last launch of the step, and of a block for each of six small parameters. */
  work_run(out, sizeof out, "grep cuLaunchKernel calls.1 | tail -1");
  says(out, "k_sub_many grid 6 1 1");
}
END_TEST

/* Code that is loaded when it is launched waits for what the GPU does: in a pipeline for messages.
 */
START_TEST(a_pipeline_loads_code_before_it_runs) {
  compile("staged.dtm", GPU, "staged");
  GOOD(out, "GPUSIM_TRACE=calls.staged", "./staged --quiet && grep cuInit calls.staged");
  says(out, "code is loaded EAGER");
  GOOD(out, "CUDA_MODULE_LOADING=LAZY GPUSIM_TRACE=calls.lazy",
       "./staged --quiet && grep cuInit calls.lazy");
  says(out, "code is loaded LAZY");
}
END_TEST

/* --- what cannot run ---------------------------------------------------------------------------
 */

START_TEST(no_driver) {
  int status = work_run(out, sizeof out, "DTM_CUDA_DRIVER=./none.so ./gpu --steps 1");
  refuses(status, 3, "the CUDA driver could not be loaded: ./none.so");
}
END_TEST

START_TEST(no_gpu) {
  refuses(RUN(out, "GPUSIM_DEVICES=0", "./gpu --steps 1"), 3, "the CUDA driver finds no GPU");
}
END_TEST

START_TEST(settings_that_are_none) {
  static const char *const settings[] = {"GPUSIM_DEVICES=two",   "GPUSIM_MEMORY=inf",
                                         "GPUSIM_CAPABILITY=80", "GPUSIM_ASYNC=lately",
                                         "GPUSIM_BLAS=bare",     "GPUSIM_TRACE=/nowhere/calls"};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    int status =
        work_run(out, sizeof out, "DTM_CUDA_DRIVER=$GPUSIM %s ./gpu --steps 1", settings[i]);
    refuses(status, 3, "the CUDA driver");
    says(out, "gpusim: GPUSIM_");
  }
}
END_TEST

START_TEST(too_few_gpus) {
  compile("model.dtm", GPU " --mesh dp=2", "gpu2");
  refuses(RUN(out, "GPUSIM_DEVICES=1", "./gpu2 --steps 1"), 3,
          "needs a GPU for each of its 2 ranks on this machine, where the driver shows 1");
}
END_TEST

/* A launcher that shows every process one GPU, of its own or, by mistake, the same. */
START_TEST(one_gpu_shown_to_each) {
  static const char both[] =
      "export DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM DTM_NCCL=$GPUSIM TMPDIR=. "
      "GPUSIM_DEVICES=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29532 "
      "TORCHELASTIC_RUN_ID=$$; "
      "RANK=1 LOCAL_RANK=1 CUDA_VISIBLE_DEVICES=%s ./two --quiet --no-eval --steps 1 & "
      "RANK=0 LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=0 ./two --quiet --no-eval --steps 1";
  compile("model.dtm", GPU " --mesh dp=2", "two");
  int status = work_run(out, sizeof out, both, "1");
  ck_assert_msg(status == 0, "%s", out);
  status = work_run(out, sizeof out, both, "110"); /* like "0" in all but a few bits */
  ck_assert_msg(status == 0, "%s", out);
  refuses(work_run(out, sizeof out, both, "0"), 3, "where the driver shows 1");
}
END_TEST

START_TEST(no_code_for_the_chip) {
  refuses(RUN(out, "GPUSIM_CAPABILITY=7.5", "./gpu --steps 1"), 3, "has no code for GPU 0");
  says(out, "(sm_75): it was compiled for compute_80");
  says(out, "--target=cuda:sm_75");
}
END_TEST

START_TEST(too_little_memory) {
  refuses(RUN(out, "GPUSIM_MEMORY=4096", "./gpu --steps 1"), 3, "does not fit GPU 0");
  says(out, "of its 4.00 KiB 4.00 KiB are free");
  says(out, "parameters");
  refuses(RUN(out, "GPUSIM_MEMORY=65536", "./gpu --steps 1"), 3, "has no memory for");
}
END_TEST

/* What a rank takes is all that is listed. */
START_TEST(memory_of_a_rank) {
  GOOD(out, "", "./gpu --steps 1");
  says(out, "a rank takes 32.0"); /* MiB, most of it the scratch of products */
  says(out, ", scratch 32.0");
}
END_TEST

/* A kernel edited by hand that writes where nothing is. The GPU says so late, unless every action
 * is waited for. */
START_TEST(kernel_that_writes_elsewhere) {
  int status = work_run(out, sizeof out,
                        "$DTMC model.dtm " GPU " --emit=cuda -o edited/ && cd edited && "
                        "ls | grep -v dropout | xargs rm && "
                        "sed -i 's/dtm_store(p[0-9]*/& + (1ll << 40)/' *.cu && grep -c 1ll *.cu");
  ck_assert_msg(status == 0 && atoi(out) > 0, "%s", out);
  compile("model.dtm", GPU " --load-cuda=edited", "wild");
  status = RUN(out, "GPUSIM_REPORT=report", "./wild --steps 2");
  refuses(status, 101, "on GPU 0: CUDA_ERROR_");
  says(out, "with DTM_CUDA_WAIT=1 in the environment every operation is waited for");
  status =
      RUN(out, "GPUSIM_REPORT=named GPUSIM_SOURCES=edited DTM_CUDA_WAIT=1", "./wild --steps 2");
  refuses(status, 101, "at step 1, dropout (");
  says(out, "model.dtm:13:");
  ck_assert_int_gt(work_count("dtm\\.cuh:[0-9]* in .*dropout\\.cu:[0-9]*, PTX line", "named"), 0);
  ck_assert_int_gt(work_count("dropout\\.cu:.* // .*model\\.dtm:13:", "named"), 0);
  status = work_run(out, sizeof out,
                    "$DTMC model.dtm " GPU " --emit=cuda -o odd/ && cd odd && "
                    "ls | grep -v dropout | xargs rm && sed -i "
                    "'s/dtm_store(\\(p[0-9]*\\)/dtm_store((decltype(\\1))((char *)\\1 + 2)/' *.cu");
  ck_assert_msg(status == 0, "%s", out);
  compile("model.dtm", GPU " --load-cuda=odd", "odd_one");
  status = RUN(out, "GPUSIM_REPORT=report", "./odd_one --steps 2");
  refuses(status, 101, "on GPU 0: CUDA_ERROR_MISALIGNED_ADDRESS");
  says(out, "with DTM_CUDA_WAIT=1 in the environment every operation is waited for");
}
END_TEST

static FILE *open_in_folder(const char *name, const char *mode) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", work_folder(), name);
  return fopen(path, mode);
}

/* Changes a byte of ./gpu, `at` bytes behind the 8 of `magic` and the 4 of `version`, as ./broken;
 * from the end of what is there where `from_end`. */
static void damage(uint64_t magic, uint32_t version, size_t at, bool from_end) {
  enum { MOST = 64 << 20 };
  unsigned char *file = malloc(MOST);
  unsigned char head[12];
  memcpy(head, &magic, sizeof magic);
  memcpy(head + 8, &version, sizeof version);
  FILE *f = open_in_folder("gpu", "rb");
  size_t n = f && file ? fread(file, 1, MOST, f) : 0;
  if (f) fclose(f);
  ck_assert(n > 0 && n < MOST);
  unsigned char *found = memmem(file, n, head, sizeof head);
  ck_assert(found != NULL && !memmem(found + 1, n - (size_t)(found + 1 - file), head, sizeof head));
  uint64_t size;
  memcpy(&size, found + offsetof(AbiCudaHeader, size), sizeof size);
  found[from_end ? size - at : at] ^= 0x10;
  f = open_in_folder("broken", "wb");
  ck_assert(f && fwrite(file, 1, n, f) == n && fclose(f) == 0);
  free(file);
  ck_assert_int_eq(work_run(out, OUT, "chmod +x broken"), 0);
}

/* Not a fault of dtmc's: a copy that broke off, a disk. */
START_TEST(damaged_program) {
  damage(ABI_MAGIC, ABI_VERSION, offsetof(AbiHeader, size), false);
  refuses(RUN(out, "", "./broken --steps 1"), 1, "broken is damaged (");
  damage(ABI_CUDA_MAGIC, ABI_CUDA_VERSION, offsetof(AbiCudaHeader, size), false);
  refuses(RUN(out, "", "./broken --steps 1"), 1, "broken is damaged (");
  /* numbers in tables, which any value would suit: they would give wrong results, or a crash */
  damage(ABI_CUDA_MAGIC, ABI_CUDA_VERSION,
         sizeof(AbiCudaHeader) + offsetof(AbiCudaFunction, vec_block), false);
  refuses(RUN(out, "", "./broken --steps 1"), 1, "broken is damaged (the tables of its GPU code");
  damage(ABI_MAGIC, ABI_VERSION, offsetof(AbiHeader, seed), false);
  refuses(RUN(out, "", "./broken --steps 1"), 1, "broken is damaged (its plan is not");
  damage(ABI_CUDA_MAGIC, ABI_CUDA_VERSION, 100, true);
  int status = RUN(out, "", "./broken --steps 1");
  says(out, "the code for GPUs cannot be unpacked: this program is damaged");
  ck_assert_int_eq(status, 1);
}
END_TEST

START_TEST(loss_that_is_not_finite) {
  compile("model.dtm", "-D lr=1e30", "cpu_bad");
  compile("model.dtm", GPU " -D lr=1e30", "gpu_bad");
  ck_assert_int_eq(RUN(other, "", "./cpu_bad --steps 5 --quiet"), 1);
  int got = RUN(out, "", "./gpu_bad --steps 5 --quiet");
  refuses(got, 1, "the loss is not finite at step");
  says(out, strstr(other, "the loss is not finite"));
}
END_TEST

/* Behind the loss of a step: the host hears of it when it waits for that of the next one. */
START_TEST(index_out_of_range_behind_the_loss) {
  FILE *f = work_npy("ids.npy", "<i8", "(8,)");
  fwrite((const int64_t[]){0, 3, 2, 17, 1, 1, 0, 2}, 8, 8, f);
  fclose(f);
  compile("looked_up.dtm", GPU, "gpu_looked_up");
  refuses(RUN(out, "", "./gpu_looked_up"), 1, "index 17 is outside [0, 4)");
  says(out, "at step 2, embedding_backward (looked_up.dtm:4:");
  refuses(RUN(out, "", "./gpu_looked_up --steps 2"), 1, "at step 2, embedding_backward");
}
END_TEST

START_TEST(index_out_of_range) {
  FILE *f = work_npy("index.npy", "<i8", "(4,)");
  fwrite((const int64_t[]){0, 3, 17, 1}, 8, 4, f);
  fclose(f);
  compile("indexed.dtm", GPU, "gpu_indexed");
  refuses(RUN(out, "", "./gpu_indexed --steps 1"), 1, "index 17 is outside [0, 4)");
  says(out, "scatter_add (");
  says(out, "indexed.dtm:5:");
}
END_TEST

static int run(void) {
  Suite *suite = suite_create("device");
  TCase *runs = tcase_create("runs"), *faults = tcase_create("faults");
  tcase_set_timeout(runs, 120);
  tcase_add_test(runs, losses_parameters_metrics);
  tcase_add_test(runs, orders_and_graphs);
  tcase_add_test(runs, trace_has_times_of_the_gpu);
  tcase_add_test(runs, checkpoints_go_both_ways);
  tcase_add_test(runs, two_gpus);
  tcase_add_test(runs, same_source_same_bits);
  tcase_add_test(runs, a_step_waits_once_per_batch);
  tcase_add_test(runs, parameters_in_one_launch);
  tcase_add_test(runs, parameters_in_one_launch_without_a_norm);
  tcase_add_test(runs, a_pipeline_loads_code_before_it_runs);
  suite_add_tcase(suite, runs);
  tcase_set_timeout(faults, 120);
  tcase_add_test(faults, no_driver);
  tcase_add_test(faults, no_gpu);
  tcase_add_test(faults, settings_that_are_none);
  tcase_add_test(faults, too_few_gpus);
  tcase_add_test(faults, one_gpu_shown_to_each);
  tcase_add_test(faults, no_code_for_the_chip);
  tcase_add_test(faults, too_little_memory);
  tcase_add_test(faults, memory_of_a_rank);
  tcase_add_test(faults, kernel_that_writes_elsewhere);
  tcase_add_test(faults, damaged_program);
  tcase_add_test(faults, loss_that_is_not_finite);
  tcase_add_test(faults, index_out_of_range);
  tcase_add_test(faults, index_out_of_range_behind_the_loss);
  suite_add_tcase(suite, faults);
  return suite_run(suite);
}

int main(void) {
  if (!getenv("GPUSIM")) {
    fprintf(stderr, "GPUSIM must name the simulator\n");
    return 2;
  }
  if (!work_begin()) return 2;
  work_write("model.dtm", model);
  work_write("indexed.dtm", indexed);
  work_write("looked_up.dtm", looked_up);
  work_write("staged.dtm", staged);
  write_data();
  int status = 2;
  if (make("model.dtm", "", "cpu") && make("model.dtm", GPU, "gpu"))
    status = run();
  else if (strstr(out, "NVRTC"))
    status = suite_skip(out);
  else
    fprintf(stderr, "%s", out);
  return work_end() ? status : 2;
}
