/* The command line of built binaries: values, defaults, and what wrong input is told. */
#include "core/launcher.h"
#include "core/options.h"
#include "support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const RtDataDecl data[] = {{"images", "a.gz", "idx", "train", false},
                                  {"labels", "b.gz", "idx", "train", false},
                                  {"images", "c.gz", "idx", "eval", false}};
static const RtProgramInfo program = {.source = "mlp.dtm",
                                      .mesh = "dp=2,tp=2",
                                      .world = 4,
                                      .has_train = true,
                                      .has_eval = true,
                                      .epochs = 3,
                                      .seed = 7,
                                      .save = "model.safetensors",
                                      .data = data,
                                      .ndata = 3};

typedef struct Parsed {
  RtOptions o;
  int result;
  char out[8192], err[1024];
} Parsed;

/* `line` is cut at spaces. */
static Parsed parse_for(const RtProgramInfo *info, const char *line) {
  Parsed p = {0};
  static char words[512];
  char *argv[64] = {"./train"};
  int argc = 1;
  snprintf(words, sizeof words, "%s", line);
  for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) {
    argv[argc++] = w;
  }
  FILE *out = fmemopen(p.out, sizeof p.out, "w"), *err = fmemopen(p.err, sizeof p.err, "w");
  p.result = dtm_rt_options_parse(&p.o, info, argc, argv, out, err);
  fclose(out);
  fclose(err);
  return p;
}

static Parsed parse(const char *line) {
  return parse_for(&program, line);
}

START_TEST(defaults) {
  Parsed p = parse("");
  ck_assert_int_eq(p.result, -1);
  ck_assert_int_eq(p.o.command, RT_RUN_DEFAULT);
  ck_assert_int_eq(p.o.epochs, 3);
  ck_assert_int_eq(p.o.steps, 0);
  ck_assert_uint_eq(p.o.seed, 7);
  ck_assert_str_eq(p.o.save, "model.safetensors");
  ck_assert(p.o.check_finite && !p.o.no_eval && !p.o.load && !p.o.quiet);
  ck_assert(p.o.deadline == 60);
  ck_assert_str_eq(dtm_rt_options_data(&p.o, 2), "c.gz");
  dtm_rt_options_free(&p.o);
}
END_TEST

START_TEST(values) {
  Parsed p = parse("train --steps 20 --seed=18446744073709551615 --data images=x --data "
                   "eval.images=y=z --load a --save=b --log json --threads 3 --deadline 2.5 "
                   "--quiet --no-eval --allow-nan --rank 1 --world 4 --job j --comm mpi --trace t "
                   "--save-every 5");
  ck_assert_msg(p.result == -1, "%s", p.err);
  ck_assert_int_eq(p.o.command, RT_RUN_TRAIN);
  ck_assert_int_eq(p.o.steps, 20);
  ck_assert_uint_eq(p.o.seed, UINT64_MAX);
  ck_assert_str_eq(dtm_rt_options_data(&p.o, 0), "x");
  ck_assert_str_eq(dtm_rt_options_data(&p.o, 1), "b.gz");
  ck_assert_str_eq(dtm_rt_options_data(&p.o, 2), "y=z");
  ck_assert_str_eq(p.o.load, "a");
  ck_assert_str_eq(p.o.save, "b");
  ck_assert_str_eq(p.o.trace, "t");
  ck_assert_int_eq(p.o.log, RT_LOG_JSON);
  ck_assert_int_eq(p.o.threads, 3);
  ck_assert(p.o.deadline == 2.5 && p.o.quiet && p.o.no_eval && !p.o.check_finite);
  ck_assert(p.o.rank == 1 && p.o.world == 4 && p.o.transport == RT_TRANSPORT_MPI);
  ck_assert_int_eq(p.o.save_every, 5);
  dtm_rt_options_free(&p.o);
  p = parse("--epochs 2");
  ck_assert(p.result == -1 && p.o.steps == 0 && p.o.epochs == 2);
  dtm_rt_options_free(&p.o);
}
END_TEST

START_TEST(wrong) {
  static const struct {
    const char *line, *says;
  } cases[] = {
      {"--stesp 3", "unknown option --stesp; did you mean --steps?"},
      {"--dead 3", "did you mean --deadline?"},
      {"--zzzzzz", "unknown option --zzzzzz\n"},
      {"-z", "unknown option -z\n"},
      {"--save=", "--save needs FILE, not an empty word"},
      {"-steps 3", "two dashes: --steps"},
      {"--steps", "--steps needs N"},
      {"--steps 0", "at least 1, not '0'"},
      {"--steps 1e3", "not '1e3'"},
      {"--steps 99999999999999999999", "not '99999999999999999999'"},
      {"--threads 5000", "from 1 to 4096, not '5000'"},
      {"--seed -1", "not '-1'"},
      {"--deadline 0", "seconds above 0"},
      {"--deadline nan", "seconds above 0"},
      {"--quiet=1", "--quiet takes no value"},
      {"--log jsno", "one of auto, plain, bar, json, not 'jsno'; did you mean json?"},
      {"--data image=x", "no data 'image'; did you mean images? (it has: train.images, "},
      {"--data images", "takes NAME=PATH"},
      {"--data =x", "takes NAME=PATH"},
      {"tarin", "unknown command 'tarin'; did you mean train?"},
      {"infer", "mlp.dtm has no infer block"},
      {"train eval", "'eval' after a command"},
      {"--steps 1 --epochs 1", "not both"},
      {"--load a --resume b", "not both"},
      {"--rank 1", "go together"},
      {"--rank 4 --world 4", "not below"},
      {"eval --save x", "--save is for training, not for eval"},
      {"eval --log-every 3", "--log-every is for training, not for eval"},
      {"--eval-every 3 --no-eval", "give --eval-every or --no-eval, not both"},
      {"train --eval-every 3", "give --eval-every or train, not both"},
      {"--log json --log-every 3", "--log-every is for plain lines, not for --log json"},
      {"--job x", "--job goes with --rank and --world"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Parsed p = parse(cases[i].line);
    ck_assert_msg(p.result == 2, "%s: %d", cases[i].line, p.result);
    ck_assert_msg(strstr(p.err, cases[i].says), "%s: %s", cases[i].line, p.err);
    ck_assert_str_eq(p.out, "");
    dtm_rt_options_free(&p.o);
  }
}
END_TEST

/* An option that would change nothing is an error, not a silence. */
START_TEST(without_effect) {
  RtProgramInfo bare = program;
  bare.has_eval = false;
  bare.save = NULL;
  RtProgramInfo only_infer = bare;
  only_infer.has_train = false;
  only_infer.has_infer = true;
  const struct {
    const RtProgramInfo *info;
    const char *line, *says;
  } cases[] = {
      {&bare, "--eval-every 3", "--eval-every has no effect: mlp.dtm has no eval block"},
      {&bare, "--no-eval", "--no-eval has no effect"},
      {&bare, "--save-every 3", "--save-every needs --save FILE"},
      {&only_infer, "--steps 3", "--steps is for training, not for a program without a train"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Parsed p = parse_for(cases[i].info, cases[i].line);
    ck_assert_msg(p.result == 2 && strstr(p.err, cases[i].says), "%s: %d %s", cases[i].line,
                  p.result, p.err);
    dtm_rt_options_free(&p.o);
  }
  Parsed p = parse_for(&bare, "--save x --save-every 3");
  ck_assert_msg(p.result == -1, "%s", p.err);
  dtm_rt_options_free(&p.o);
}
END_TEST

/* Nothing else to do: a bare start infers. */
START_TEST(infer_alone) {
  RtProgramInfo bare = {.source = "mlp.dtm", .world = 1, .has_infer = true};
  Parsed p = parse_for(&bare, "");
  ck_assert_int_eq(p.result, -1);
  ck_assert_int_eq(p.o.command, RT_RUN_INFER);
  dtm_rt_options_free(&p.o);
  bare.has_eval = true;
  p = parse_for(&bare, "");
  ck_assert_int_eq(p.o.command, RT_RUN_DEFAULT);
  dtm_rt_options_free(&p.o);
  p = parse_for(&bare, "--help");
  ck_assert(strstr(p.out, "Without a command it evaluates."));
  dtm_rt_options_free(&p.o);
}
END_TEST

START_TEST(help) {
  Parsed p = parse("--steps 3 -h");
  ck_assert_int_eq(p.result, 0);
  static const char *const texts[] = {"--deadline SECONDS", "(default: 3)",   "eval.images",
                                      "train | eval",       "mesh dp=2,tp=2", "model.safetensors"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_assert_msg(strstr(p.out, texts[i]), "%s", texts[i]);
  }
  for (char *line = strtok(p.out, "\n"); line; line = strtok(NULL, "\n")) {
    ck_assert_msg(strlen(line) <= 80, "%s", line);
  }
  dtm_rt_options_free(&p.o);
}
END_TEST

/* --- Launchers ---------------------------------------------------------------------------------
 */

static void clear_launchers(void) {
  static const char *const names[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_WORLD_SIZE",
                                      "TORCHELASTIC_RUN_ID",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "MPI_LOCALNRANKS",
                                      "OMPI_COMM_WORLD_RANK",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_ID",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "PMIX_NAMESPACE",
                                      "SLURM_STEP_NUM_NODES"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    unsetenv(names[i]);
  }
}

START_TEST(launchers) {
  RtOptions o = {.rank = -1, .world = -1};
  Launcher l;
  clear_launchers();
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && !l.name && l.rank == 0 && l.world == 1);

  setenv("SLURM_PROCID", "0", 1); /* a batch script: nobody else was started */
  setenv("SLURM_NTASKS", "4", 1);
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && !l.name);
  setenv("SLURM_STEP_ID", "0", 1);
  setenv("SLURM_STEP_NUM_NODES", "1", 1);
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && l.world == 4 && l.local_world == 4 && !l.mpi);
  ck_assert_str_eq(l.name, "srun (Slurm)");

  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "2", 1);
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && l.rank == 1 && l.world == 2 && l.mpi);

  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  setenv("PMIX_NAMESPACE", "a job", 1);
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && l.rank == 2 && l.world == 3 && l.mpi);
  ck_assert(strstr(l.job, "a job") != NULL);

  setenv("RANK", "3", 1); /* torchrun wins */
  setenv("WORLD_SIZE", "8", 1);
  setenv("LOCAL_WORLD_SIZE", "4", 1);
  setenv("TORCHELASTIC_RUN_ID", "run 7", 1);
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && l.rank == 3 && l.world == 8);
  ck_assert(l.local_world == 4 && !l.mpi && strstr(l.job, "run 7") != NULL);

  o.rank = 5; /* flags win */
  o.world = 6;
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && l.rank == 5 && l.world == 6);

  o.rank = -1;
  setenv("WORLD_SIZE", "1", 1); /* one process only: the next launcher, or alone */
  setenv("RANK", "0", 1);
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("PMI_RANK");
  unsetenv("SLURM_STEP_ID");
  ck_assert(dtm_rt_launcher_find(&o, &l) == 0 && !l.name && l.world == 1);

  setenv("WORLD_SIZE", "x", 1);
  ck_assert_int_eq(dtm_rt_launcher_find(&o, &l), 2);
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "2", 1);
  ck_assert_int_eq(dtm_rt_launcher_find(&o, &l), 2);
  clear_launchers();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rt_options");
  TCase *tc = tcase_create("options");
  tcase_add_test(tc, defaults);
  tcase_add_test(tc, values);
  tcase_add_test(tc, wrong);
  tcase_add_test(tc, without_effect);
  tcase_add_test(tc, infer_alone);
  tcase_add_test(tc, help);
  tcase_add_test(tc, launchers);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
