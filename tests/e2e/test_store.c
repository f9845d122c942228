/* Parameters kept in pieces (store) and activations computed again (recompute): the same numbers as
 * without, the collectives that FSDP needs and no more, less memory, checkpoints that fit any mesh.
 *
 * One program, whose `-D` say how it is kept: level 0 whole, 1 optimizer state in pieces, 2
 * gathered once, 3 gathered twice. programs/store.dtm compares a mixture of all with mesh 1.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/log.h"
#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"
#include "training.h"

enum { STEPS = 20 };

static const char program[] =
    "import nn\n"
    "mesh world(dp = 1, tp = 1)\n"
    "config { level = 0 layers = 3 again = false half = 0 clip = false acc = 1 }\n"
    "module Block(dim: int) {\n"
    "  norm = nn.LayerNorm(dim)\n  up = nn.ColumnParallelLinear(dim, 3 * dim)\n"
    "  down = nn.RowParallelLinearWithReplicateOutput(3 * dim, dim)\n  drop = nn.Dropout(0.1)\n"
    "  forward(x) { return x + drop(down(gelu(up(norm(x))))) }\n}\n"
    "module Net() {\n"
    "  embed = nn.EmbeddingWithReplicateOutput(31, 15)\n"
    "  blocks = [Block(15) for i in range(layers)]\n"
    "  norm = nn.LayerNorm(15)\n  head = nn.VocabParallelHead(15, 31)\n"
    "  forward(ids) {\n    let h = embed(ids)\n"
    "    for i in range(layers) {\n"
    "      if again { h = recompute blocks[i](h) } else { h = blocks[i](h) }\n    }\n"
    "    return head(norm(h))\n  }\n}\n"
    "train {\n"
    "  if level == 1 { store optimizer @dp }\n  if level == 2 { store gradients @dp }\n"
    "  if level == 3 { store @dp }\n"
    "  let t = (arange(i64[12]).reshape([12, 1]) * 7 + arange(i64[8]) * (step() * 3 + 5).to(i64)) "
    "% 31\n"
    "  let ids = t.redistribute(dp: Shard(0))\n"
    "  model m = Net()\n  loss cross_entropy(m(ids[:, 0:7]), ids[:, 1:8])\n"
    "  optimizer adamw(lr = 0.01)\n"
    "  if half == 1 { compute bf16 }\n  if half == 2 { compute f16 }\n  if clip { clip_grad_norm "
    "0.5 }\n"
    "  accumulate acc\n  steps 20\n}\n";

/* Steps that are compared. */
static int nsteps(void) {
  return target_steps(STEPS);
}

static int losses_of(const char *options, const char *run, double *loss) {
  return training_losses("store.dtm", options, run, loss, STEPS);
}

/* Exact where the sums of gradients have one order: over dp alone, without a norm over pieces. */
static const struct {
  const char *options;
  double tolerance;
} alike[] = {{"--mesh dp=2", 0},
             {"--mesh dp=3", 0},
             {"--mesh dp=1", 0},
             {"--mesh dp=2,tp=2", 1e-6},
             {"--mesh dp=4 -D acc=3 -D clip=true", 1e-6}};

START_TEST(numbers_do_not_change) {
  double want[STEPS], got[STEPS];
  char options[128];
  ck_assert_int_eq(losses_of(alike[_i].options, "", want), nsteps());
  ck_assert(want[nsteps() - 1] < want[0]);
  for (int level = 0; level <= 3; level++)
    for (int again = level == 0; again <= 1; again++) {
      snprintf(options, sizeof options, "%s -D level=%d -D again=%s", alike[_i].options, level,
               again ? "true" : "false");
      ck_assert_int_eq(losses_of(options, "", got), nsteps());
      training_near(got, want, nsteps(), alike[_i].tolerance, options);
    }
}
END_TEST

/* Labels that are short of a batch come while parameters are under way, and so do sums of the loss
 * and of a metric: work between inputs and outputs that is not begun ahead. */
static const char measured[] =
    "import nn\nmesh world(dp = 1)\n"
    "module Net() {\n  embed = nn.Embedding(256, 8)\n  up = nn.Linear(8, 8)\n"
    "  head = nn.Linear(8, 256)\n  forward(ids) { return head(tanh(up(embed(ids)))) }\n}\n"
    "train {\n  data t = text(\"measured.dtm\", i64[4@dp, 3])\n  store @dp\n  model m = Net()\n"
    "  let y = m(t[:, 0:2])\n  loss cross_entropy(y, t[:, 1:3])\n"
    "  metric size = mean(square(y))\n  optimizer sgd(lr = 0.1)\n  drop_last false\n  steps 5\n}\n";

START_TEST(sums_beside_what_is_under_way) {
  double want[STEPS], got[STEPS];
  work_write("measured.dtm", measured);
  int n = training_losses("measured.dtm", "--mesh dp=2 --no-prefetch", "", want, STEPS);
  for (int i = 0; i < 2; i++) { /* in both orders of simulated GPUs */
    const char *run = i ? "--deadline=61" : "--deadline=60";
    ck_assert_int_eq(training_losses("measured.dtm", "--mesh dp=2", run, got, STEPS), n);
    training_near(got, want, n, 0, run);
  }
}
END_TEST

/* Begun where it is used or ahead: the same bits. */
START_TEST(begun_ahead_is_the_same) {
  static const char all[] = "--mesh dp=3 -D level=3 -D acc=2";
  double want[STEPS], got[STEPS];
  char options[128];
  snprintf(options, sizeof options, "%s --no-prefetch", all);
  ck_assert_int_eq(losses_of(options, "", want), nsteps());
  ck_assert_int_eq(losses_of(all, "", got), nsteps());
  training_near(got, want, nsteps(), 0, all);
}
END_TEST

/* What docs promise: bf16 keeps 8 bits, f16 11, and meshes, levels and recomputation round at other
 * places. */
START_TEST(half_precision_stays_near) {
  static const char *const options[] = {"--mesh dp=2",
                                        "--mesh dp=2 -D level=3",
                                        "--mesh dp=3 -D level=2 -D again=true",
                                        "--mesh dp=2,tp=2 -D level=1",
                                        "--mesh tp=3",
                                        "--mesh dp=2,tp=2 -D level=3 -D again=true"};
  const double step = _i == 1 ? 1.0 / 256 : 1.0 / 2048;
  double exact[STEPS], want[STEPS], got[STEPS];
  char all[128];
  ck_assert_int_eq(losses_of("", "", exact), nsteps());
  snprintf(all, sizeof all, "-D half=%d", _i);
  ck_assert_int_eq(losses_of(all, "", want), nsteps());
  training_near(want, exact, nsteps(), 2 * step, all);
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (target_gpus() && i % 3 != 2) continue;
    snprintf(all, sizeof all, "%s -D half=%d", options[i], _i);
    ck_assert_int_eq(losses_of(all, "", got), nsteps());
    training_near(got, want, nsteps(), 2 * step, all);
  }
}
END_TEST

/* The gradient of each weight is 4. Times 65536, 32768 and 16384 it is no f16: these steps change
 * nothing, their factor is halved, and AdamW does not count them, on whichever ranks the weights
 * lie. */
START_TEST(a_step_that_overflows_is_skipped) {
  static const char *const optimizers[] = {"sgd(lr = 0.5, momentum = 0.5)", "adamw(lr = 0.5)"};
  char text[2048], out[3][4096];
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text,
             "mesh world(pp = 1)\n"
             "let stages = world.unbind(\"pp\")\nlet last = stages[len(stages) - 1]\n"
             "module Net() {\n  param w: f32[4, 8] = ones()\n"
             "  forward(x) { return linear(x, w) }\n}\n"
             "train {\n  model m = Net() on last\n  loss sum(m(ones(f32[16, 8] on last))) * 0.25\n"
             "  optimizer %s\n  %s\n  steps %d\n  save \"w.safetensors\"\n}\n"
             "infer {\n  print(m.w)\n}\n",
             optimizers[_i], i ? "compute f16" : "", i == 0 ? 3 : 6);
    work_write("skip.dtm", text);
    int code = work_run(out[i], sizeof out[i],
                        i < 2 ? "%s skip.dtm -o skip && ./skip --log=json && "
                                "./skip infer --load w.safetensors | grep m.w"
                              : "%s skip.dtm --mesh pp=2 -o skip && ./skip --log=json --steps 2 && "
                                "./skip --log=json --resume w.safetensors --steps 6 && "
                                "./skip infer --load w.safetensors | grep m.w",
                        getenv("DTMC"));
    ck_assert_msg(code == 0, "%s: exit %d\n%s", text, code, out[i]);
    static const double scales[6] = {65536, 32768, 16384, 8192, 8192, 8192};
    double scale[6];
    ck_assert_int_eq(log_steps(out[i], "loss_scale", scale, 6), i ? 6 : 0);
    for (int k = 0; i && k < 6; k++) ck_assert_double_eq(scale[k], scales[k]);
  }
  const char *weights[3];
  for (int i = 0; i < 3; i++) ck_assert_ptr_nonnull(weights[i] = strstr(out[i], "m.w"));
  ck_assert_str_eq(weights[1], weights[0]); /* three steps of f32 */
  ck_assert_str_eq(weights[2], weights[0]); /* resumed among those that are skipped */
}
END_TEST

typedef struct Planned {
  int gathers, scatters, reductions;
  long arena, variables, height;
} Planned;

static Planned planned(const char *options) {
  static char text[1 << 19];
  Planned p = {0};
  int code = work_run(text, sizeof text, "%s store.dtm %s --emit=plan", getenv("DTMC"), options);
  ck_assert_msg(code == 0, "%s: exit %d\n%s", options, code, text);
  ck_assert_int_eq(sscanf(text, "arena %ld bytes, variables %ld", &p.arena, &p.variables), 2);
  char *train = strstr(text, "block train:");
  ck_assert_ptr_nonnull(train);
  const char *height = strstr(train, "per batch; ");
  ck_assert_ptr_nonnull(height);
  p.height = atol(height + strlen("per batch; "));
  for (char *line = strtok(train, "\n"); line; line = strtok(NULL, "\n")) {
    if (!strstr(line, " over dp")) continue;
    p.gathers += strstr(line, " pull ") != NULL;
    p.scatters += strstr(line, " scatter ") != NULL;
    p.reductions += strstr(line, " reduce ") != NULL;
  }
  return p;
}

/* Two all-gathers and one reduce-scatter for each layer, whatever number of parameters it has. */
START_TEST(collectives_of_a_layer) {
  static const struct {
    int level, gathers, scatters;
  } want[] = {{0, 0, 0}, {1, 0, 0}, {2, 1, 1}, {3, 2, 1}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    for (int more = 0; more < 4; more++) {
      char few[128], many[128];
      const char *mesh = more & 1 ? "dp=2,tp=2" : "dp=3";
      const char *again = more & 2 ? "true" : "false";
      snprintf(few, sizeof few, "--mesh %s -D level=%d -D again=%s -D layers=3", mesh,
               want[i].level, again);
      snprintf(many, sizeof many, "--mesh %s -D level=%d -D again=%s -D layers=5", mesh,
               want[i].level, again);
      Planned a = planned(few), b = planned(many);
      ck_assert_msg(b.gathers - a.gathers == 2 * want[i].gathers &&
                        b.scatters - a.scatters == 2 * want[i].scatters &&
                        b.reductions == a.reductions,
                    "%s: %d gathers, %d scatters, %d reductions; with two layers more %d, %d, %d",
                    few, a.gathers, a.scatters, a.reductions, b.gathers, b.scatters, b.reductions);
    }
}
END_TEST

START_TEST(memory_falls) {
  Planned level[4], again[4];
  for (int i = 0; i <= 3; i++) {
    char options[128];
    snprintf(options, sizeof options, "--mesh dp=4 -D layers=12 -D level=%d", i);
    level[i] = planned(options);
    strcat(options, " -D again=true");
    again[i] = planned(options);
    ck_assert_int_eq(again[i].variables, level[i].variables);
  }
  /* of parameter, m and v: whole; the state in four; all in four, but for alignment of small ones
   */
  ck_assert(level[1].variables < level[0].variables * 0.55);
  ck_assert(level[2].variables < level[0].variables * 0.35);
  ck_assert_int_eq(level[3].variables, level[2].variables);
  ck_assert(level[3].height < level[2].height * 0.95); /* parameters between their uses */
  ck_assert(again[0].height < level[0].height * 0.7);  /* activations */
  ck_assert(again[3].height < level[3].height * 0.7);
  ck_assert(again[3].height < again[2].height * 0.8);
}
END_TEST

/* Saved in pieces, resumed by whoever: the steps that one run would have made. */
START_TEST(a_run_goes_on_elsewhere) {
  static const char *const to[] = {"--mesh dp=2 -D level=3", "--mesh dp=4 -D level=1",
                                   "--mesh dp=2,tp=2 -D level=2", "--mesh dp=1", "--mesh tp=3"};
  double whole[STEPS], part[STEPS];
  char first[64];
  int rest = nsteps() * 2 / 5, saved = nsteps() - rest;
  snprintf(first, sizeof first, "--steps %d --save half.safetensors", saved);
  ck_assert_int_eq(losses_of("--mesh dp=3 -D level=3", "", whole), nsteps());
  ck_assert_int_eq(losses_of("--mesh dp=3 -D level=3", first, part), saved);
  for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
    ck_assert_int_eq(losses_of(to[i], "--resume half.safetensors", part), rest);
    training_near(part, whole + saved, rest, 1e-5, to[i]);
  }
  ck_assert_int_eq(losses_of("--mesh dp=3 -D level=3", "--resume half.safetensors", part), rest);
  training_near(part, whole + saved, rest, 0, "where it was saved");
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  work_write("store.dtm", program);
  Suite *s = suite_create("store");
  TCase *c = tcase_create("store");
  tcase_set_timeout(c, 300);
  tcase_add_loop_test(c, numbers_do_not_change, 0, sizeof alike / sizeof *alike);
  tcase_add_loop_test(c, half_precision_stays_near, 1, 3);
  tcase_add_loop_test(c, a_step_that_overflows_is_skipped, 0, 2);
  tcase_add_test(c, begun_ahead_is_the_same);
  tcase_add_test(c, sums_beside_what_is_under_way);
  if (!target_gpus()) tcase_add_test(c, collectives_of_a_layer);
  if (!target_gpus()) tcase_add_test(c, memory_falls);
  tcase_add_test(c, a_run_goes_on_elsewhere);
  suite_add_tcase(s, c);
  int failed = suite_run(s);
  return !work_end() || failed;
}
