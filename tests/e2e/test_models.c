/* The models of samples/ against PyTorch: files of Hugging Face in, and on every mesh the logits,
 * the loss and the gradient of every parameter that tests/fixtures/make.py got from transformers in
 * f64.
 *
 * The model is the sample's source up to its train block. A step of plain SGD with a rate of 1000
 * leaves -1000 times the gradient in each parameter, which the program saves under the names that
 * it loaded; what is written is thereby tested against the names and the storage of the fixture.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/checkpoint.h"
#include "support/log.h"
#include "support/suite.h"
#include "support/work.h"

enum { MOST_MESHES = 24 };
static const struct {
  const char *fixture, *sample, *model, *prefix, *flags;
  const char *meshes[MOST_MESHES];
} models[] = {
    {"llama",
     "llama",
     "Llama",
     "",
     "-D heads=6 -D kv_heads=3",
     {"dp=1", "dp=2", "tp=3", "dp=2,tp=3", "ring_cp=2", "ring_cp=5", "ulysses_cp=2",
      "dp=2,ring_cp=2,ulysses_cp=2", "pp=2,ring_cp=2", "pp=4"}},
    {"llama3",
     "llama",
     "Llama",
     "",
     "-D heads=3 -D kv_heads=1 -D tied=true -D theta=500.0 -D rope_factor=8.0 -D trained=64",
     {"dp=1", "dp=4", "ulysses_cp=3", "ring_cp=3", "pp=2,dp=2"}},
    {"gpt2",
     "gpt2",
     "GPT2",
     "transformer.",
     "-D heads=6 -D kv_heads=6 -D context=24",
     {"dp=1", "tp=3", "dp=2,tp=2", "ring_cp=2,tp=2", "ulysses_cp=2", "pp=2", "pp=3,tp=2"}},
};
enum { NMODELS = sizeof models / sizeof *models };

/* The model of samples/NAME/NAME.dtm with a train block of our own, as NAME.dtm. */
static void write_program(const char *sample, const char *model, const char *fixture) {
  char path[64];
  snprintf(path, sizeof path, "samples/%s/%s.dtm", sample, sample);
  char *source = work_source(path);
  char *train = strstr(source, "\ntrain {");
  ck_assert_ptr_nonnull(train);
  *train = 0;
  FILE *out = work_create("probe.dtm");
  fprintf(out,
          "%s\n"
          "train {\n"
          "  data tokens = npy(\"%s/tests/fixtures/%s/tokens.npy\", i64[batch@dp, seq + 1])\n"
          "  data want = npy(\"%s/tests/fixtures/%s/logits.npy\", f32[batch@dp, seq, vocab@tp])\n"
          "  model m = %s()\n"
          "  let logits = m(cut(tokens[:, 0:seq], stages[0]))\n"
          "  metric difference = max(abs(logits - cut(want, last)))\n"
          "  metric largest = max(abs(want))\n"
          "  loss cross_entropy(logits, cut(tokens[:, 1:seq + 1], last))\n"
          "  optimizer sgd(lr = 1000.0)\n"
          "  shuffle false\n"
          "  steps 1\n"
          "}\n",
          source, work_root(), fixture, work_root(), fixture, model);
  fclose(out);
  free(source);
}

static double number(const char *log, const char *key) {
  double value;
  ck_assert_msg(log_steps(log, key, &value, 1) == 1, "no %s in: %s", key, log);
  return value;
}

/* Largest difference of (before - after) / 1000 from the gradient, relative to its largest element.
 */
static void compare_gradients(const char *what, const char *fixture, const char *prefix) {
  StStore before, after, want;
  char path[700];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s", work_root(), fixture);
  checkpoint_open(&before, path);
  strcat(path, "/gradients.safetensors");
  checkpoint_open(&want, path);
  checkpoint_open(&after, "after.safetensors");
  for (size_t i = 0; i < want.ntensors; i++) {
    const char *name = want.tensors[i].name;
    if (strcmp(name, "loss") == 0) continue;
    const StTensor *g = checkpoint_find(&want, name, ABI_F32);
    const StTensor *a = checkpoint_find(&after, name + strlen(prefix), ABI_F32);
    const float *gradient = dtm_rt_st_data(&want, g), *new = dtm_rt_st_data(&after, a);
    const float *old = dtm_rt_st_data(&before, checkpoint_find(&before, name, ABI_F32));
    ck_assert_msg(a->rank == g->rank && memcmp(a->shape, g->shape, sizeof a->shape) == 0,
                  "%s: %s has another shape", what, name);
    double largest = 0, difference = 0;
    for (uint64_t k = 0; k < (g->end - g->begin) / sizeof(float); k++) {
      double d = fabs(((double)old[k] - (double)new[k]) / 1000 - (double)gradient[k]);
      if (d > difference || isnan(d)) difference = d;
      largest = fmax(largest, fabs((double)gradient[k]));
    }
    ck_assert_msg(difference <= 1e-5 * largest, "%s: gradient of %s differs by %g, largest is %g",
                  what, name, difference, largest);
  }
  ck_assert_uint_eq(after.ntensors, want.ntensors - 1);
  dtm_rt_st_close(&before);
  dtm_rt_st_close(&after);
  dtm_rt_st_close(&want);
}

START_TEST(equals_pytorch) {
  static char log[1 << 16];
  const char *fixture = models[_i].fixture;
  write_program(models[_i].sample, models[_i].model, fixture);
  for (int m = 0; m < MOST_MESHES && models[_i].meshes[m]; m++) {
    const char *mesh = models[_i].meshes[m];
    char what[128];
    snprintf(what, sizeof what, "%s on %s", fixture, mesh);
    int status = work_run(log, sizeof log,
                          "$DTMC probe.dtm --mesh %s -D vocab=61 -D dim=24 -D ffn=40 -D layers=2 "
                          "-D batch=4 -D seq=12 %s -o probe && ./probe --load %s/tests/fixtures/%s "
                          "--save after.safetensors --log=json --threads 1",
                          mesh, models[_i].flags, work_root(), fixture);
    ck_assert_msg(status == 0, "%s: %s", what, log);
    double difference = number(log, "difference"), largest = number(log, "largest");
    ck_assert_msg(difference <= 1e-5 * largest, "%s: logits differ by %g, largest is %g", what,
                  difference, largest);
    StStore want;
    char path[700];
    snprintf(path, sizeof path, "%s/tests/fixtures/%s/gradients.safetensors", work_root(), fixture);
    checkpoint_open(&want, path);
    double loss =
        (double)*(const float *)dtm_rt_st_data(&want, checkpoint_find(&want, "loss", ABI_F32));
    dtm_rt_st_close(&want);
    ck_assert_msg(fabs(number(log, "loss") - loss) <= 1e-5 * loss, "%s: loss %.9g", what, loss);
    compare_gradients(what, fixture, models[_i].prefix);
    /* What GPT-2's files hold beside its parameters is listed, and nothing else is. */
    bool extra = strstr(log, "tensors are not used") != NULL;
    ck_assert_msg(extra == (*models[_i].prefix != 0), "%s: %s", what, log);
    if (extra)
      ck_assert_ptr_nonnull(strstr(log, "2 tensors are not used: transformer.h.0.attn.bias"));
  }
}
END_TEST

/* One token a step with keys and values kept: the text that follows is that of the whole sequence
 * taken anew for each byte, which is how the fixture was made. */
START_TEST(generates) {
  static char text[1 << 12], want[1 << 12];
  char path[700];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s/generated.txt", work_root(),
           models[_i].fixture);
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  want[fread(want, 1, sizeof want - 2, f)] = 0;
  fclose(f);
  strcat(want, "\n");
  for (int m = 0; m < MOST_MESHES && models[_i].meshes[m]; m++) {
    const char *mesh = models[_i].meshes[m];
    const char *dp = strstr(mesh, "dp=") ? strstr(mesh, "dp=") + 3 : "1";
    int status =
        work_run(text, sizeof text,
                 "$DTMC %s/samples/%s/%s.dtm --mesh %s -D vocab=61 -D dim=24 -D ffn=40 "
                 "-D layers=2 -D seq=24 %s -D temperature=0.0 -o write && ./write infer "
                 "--load %s/tests/fixtures/%s --data prompt='0123 45' --threads 1 2>/dev/null",
                 work_root(), models[_i].sample, models[_i].sample, mesh, models[_i].flags,
                 work_root(), models[_i].fixture);
    bool equal = strlen(text) == strlen(want) * (size_t)atoi(dp); /* a row for each rank of dp */
    for (const char *row = text; equal && *row; row += strlen(want))
      equal = strncmp(row, want, strlen(want)) == 0;
    ck_assert_msg(status == 0 && equal, "%s on %s: %d %s", models[_i].fixture, mesh, status, text);
  }
}
END_TEST

/* Draws follow the probabilities of the tokens that top_p keeps: of 0.5, 0.3, 0.15, 0.05 the first
 * two for 0.75, all four for 1. Four standard deviations of 20000 draws. */
START_TEST(draws_follow_probabilities) {
  static char log[1 << 12];
  work_write("draws.dtm",
             "import generate\n"
             "mesh world(dp = 1)\n"
             "infer {\n"
             "  let p = where(arange(i64[4]) == 0, 0.15, where(arange(i64[4]) == 1, 0.5,\n"
             "    where(arange(i64[4]) == 2, 0.05, 0.3)))\n"
             "  let logits = log(p).expand([20000, 4])\n"
             "  let few = generate.sample(logits, top_p = 0.75)\n"
             "  let all = generate.sample(logits)\n"
             "  let sharp = generate.sample(logits, temperature = 0.5)\n"
             "  metric few1 = mean(few == 1)\n"
             "  metric few3 = mean(few == 3)\n"
             "  metric all0 = mean(all == 0)\n"
             "  metric all1 = mean(all == 1)\n"
             "  metric all2 = mean(all == 2)\n"
             "  metric sharp1 = mean(sharp == 1)\n"
             "  metric best = mean(generate.sample(logits, temperature = 0.0) == 1)\n"
             "}\n");
  ck_assert_msg(work_run(log, sizeof log, "$DTMC draws.dtm -o draws && ./draws") == 0, "%s", log);
  static const struct {
    const char *name;
    double p;
  } want[] = {{"few1", 0.625}, {"few3", 0.375},          {"all0", 0.15}, {"all1", 0.5},
              {"all2", 0.05},  {"sharp1", 0.25 / 0.365}, {"best", 1}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const char *at = strstr(log, want[i].name);
    ck_assert_msg(at != NULL, "%s", log);
    double got = strtod(at + strlen(want[i].name), NULL), p = want[i].p;
    ck_assert_msg(fabs(got - p) <= 4 * sqrt(p * (1 - p) / 20000), "%s is %g, not %g", want[i].name,
                  got, p);
  }
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  Suite *suite = suite_create("models");
  TCase *t = tcase_create("models");
  tcase_set_timeout(t, 600);
  tcase_add_loop_test(t, equals_pytorch, 0, NMODELS);
  tcase_add_loop_test(t, generates, 0, NMODELS);
  tcase_add_test(t, draws_follow_probabilities);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  return work_end() ? failed : 2;
}
