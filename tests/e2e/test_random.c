/* Random programs (random_program.h): each is trained on one rank and on random meshes, in f64 and
 * every third in f32; losses, metrics and saved parameters must agree. Every second program changes
 * its mesh half-way, with what it saved. Results must not depend on fusion either, nor, to the bit,
 * on the number of threads or the reuse of memory. Of every second program the gradients are
 * compared, in f64, with what the loss does along them.
 *
 * Programs are cheap to write and cost seconds to run, so the test takes a few; with arguments it
 * is a tool that goes on for as long as it is let:
 *
 *     DTMC=bin/dtmc e2e_test_random SEED FROM COUNT
 *     e2e_test_random print SEED NUMBER                 the text of one
 *
 * VERBOSE in the environment also shows what is rejected. Where GPUSIM_TARGET names the simulator
 * meshes are of GPUs (support/target.h), one rank is not; what is said of threads and gradients is
 * not asked again. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random_program.h"
#include "support/suite.h"
#include "support/target.h"

enum {
  PROGRAMS = 6,
  GPU_PROGRAMS = 4,
  STEPS = 4,
  MESHES = 3,
  ROWS = 30,
  NUMBERS = 3, /* of a step: the loss and two metrics */
  SECONDS = 60
};

#define SINGLE_ROUNDING 1e-3

/* What one run leaves behind. */
typedef struct Outcome {
  int code; /* of the compiler, or of the run */
  bool compiled;
  int nsteps;
  double number[STEPS][NUMBERS];
  json_t *header; /* of the parameters; null when there are none */
  double *values; /* of all parameters, behind one another */
  size_t nvalues;
  char output[8192];
} Outcome;

typedef struct Tally {
  int programs, unusable, runs, rejected, gradients, faults;
} Tally;

typedef struct Trial {
  uint64_t seed, number;
  RandomProgram program;
  bool single; /* f32 is not widened to f64 */
  Tally *tally;
  char dir[64];
} Trial;

static void must(bool good, const char *what) {
  if (good) return;
  perror(what);
  exit(2);
}

static void write_npy(const char *dir, const char *name, const char *type, int rows, int columns,
                      uint64_t seed) {
  char path[300], header[118];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  must(f != NULL, "open");
  int n =
      snprintf(header, sizeof header,
               "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", type, rows, columns);
  memset(header + n, ' ', sizeof header - (size_t)n);
  header[117] = '\n';
  fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
  fwrite(header, 1, sizeof header, f);
  uint64_t state = seed * 2654435761u + 12345;
  for (int i = 0; i < rows * columns; i++) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    float x = (float)((int)(state >> 33) % 4001 - 2000) / 1500.0f;
    int32_t id = (int32_t)((state >> 33) % RANDOM_IDS);
    fwrite(strcmp(type, "<f4") == 0 ? (void *)&x : (void *)&id, 4, 1, f);
  }
  fclose(f);
}

/* --- running ------------------------------------------------------------------------------------
 */

/* The loss and the metrics of a line of the log; false: it is another line. */
static bool read_step(const json_t *line, double number[NUMBERS]) {
  static const char *const names[NUMBERS] = {"loss", "size", "most"};
  if (!json_object_get(line, "loss") || !json_object_get(line, "step")) return false;
  for (int i = 0; i < NUMBERS; i++) {
    const json_t *value = json_object_get(line, names[i]);
    number[i] = json_is_number(value) ? json_number_value(value) : value || i == 0 ? NAN : 0;
  }
  return true;
}

/* Output is appended; returns the exit code, 128 + signal, or 124 when time is over. */
static int run(Outcome *o, const char *command) {
  char line[4096];
  FILE *p = popen(command, "r");
  must(p != NULL, "open");
  while (fgets(line, sizeof line, p)) {
    json_t *json = json_loads(line, 0, NULL);
    if (json && o->nsteps < STEPS)
      o->nsteps += read_step(json, o->number[o->nsteps]);
    else if (!json)
      strncat(o->output, line, sizeof o->output - strlen(o->output) - 1);
    json_decref(json);
  }
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The parameters of a program are all of one type. */
static void read_parameters(Outcome *o, const char *path, bool single) {
  FILE *f = fopen(path, "rb");
  if (!f) return;
  uint64_t length = 0;
  if (fread(&length, 8, 1, f) != 1 || length > 1 << 20) {
    fclose(f);
    return;
  }
  char *text = malloc(length);
  if (fread(text, 1, length, f) == length) o->header = json_loadb(text, length, 0, NULL);
  free(text);
  long from = ftell(f);
  fseek(f, 0, SEEK_END);
  size_t size = single ? sizeof(float) : sizeof(double);
  o->nvalues = (size_t)(ftell(f) - from) / size;
  o->values = malloc(o->nvalues * sizeof *o->values + 1);
  fseek(f, from, SEEK_SET);
  for (size_t i = 0; i < o->nvalues; i++) {
    float narrow = 0;
    must(fread(single ? (void *)&narrow : (void *)&o->values[i], size, 1, f) == 1, path);
    if (single) o->values[i] = (double)narrow;
  }
  fclose(f);
  json_object_del(o->header, "__metadata__");
}

static void outcome_free(Outcome *o) {
  json_decref(o->header);
  free(o->values);
}

/* False: the compiler ends with o->code. */
static bool compile(const Trial *t, Outcome *o, const char *source, const char *flags) {
  char command[2048];
  snprintf(command, sizeof command, "cd %s && timeout %d %s %s %s --verify %s -o train 2>&1",
           t->dir, SECONDS, target_dtmc(strstr(flags, "--mesh")), source,
           t->single ? "" : "--widen", flags);
  o->code = run(o, command);
  o->compiled = o->code == 0;
  return o->compiled;
}

/* Up to `steps`, from the start or where the run before ended; false: with o->code. */
static bool run_steps(const Trial *t, Outcome *o, int threads, int steps, bool resume) {
  char command[2048];
  snprintf(command, sizeof command,
           "cd %s && %s timeout %d ./train --threads=%d --log=json --steps=%d %s 2>&1", t->dir,
           resume ? "" : "rm -rf *.safetensors* &&", SECONDS, threads, steps,
           resume ? "--resume out.safetensors" : "");
  target_before(command);
  o->code = run(o, command);
  if (target_complains()) o->code = 1;
  return o->code == 0;
}

static void read_result(const Trial *t, Outcome *o) {
  char path[128];
  snprintf(path, sizeof path, "%s/out.safetensors", t->dir);
  read_parameters(o, path, t->single);
}

/* Compiles (unless `flags` is NULL: what was compiled before) and trains. */
static Outcome train(const Trial *t, const char *source, const char *flags, int threads,
                     int steps) {
  Outcome o = {.compiled = !flags};
  if (flags && !compile(t, &o, source, flags)) return o;
  run_steps(t, &o, threads, steps, false);
  read_result(t, &o);
  return o;
}

/* Half of the steps with `first`, the others, from what that saved, with `second`. */
static Outcome train_in_turns(const Trial *t, const char *first, const char *second) {
  Outcome o = {0};
  if (compile(t, &o, "random.dtm", first) && run_steps(t, &o, 1, STEPS / 2, false) &&
      compile(t, &o, "random.dtm", second) && run_steps(t, &o, 1, STEPS, true))
    read_result(t, &o);
  return o;
}

/* --- judging ------------------------------------------------------------------------------------
 */

static void fault(const Trial *t, const char *what, const char *how, const char *output) {
  t->tally->faults++;
  printf("FAULT seed %llu number %llu [%s]: %s\n%.1500s\n", (unsigned long long)t->seed,
         (unsigned long long)t->number, how, what, output);
  fflush(stdout);
}

/* "" where equal within the tolerance; else what differs. */
static const char *difference(const Outcome *a, const Outcome *b, double tolerance, bool narrow) {
  static char text[300];
  if (a->nsteps != b->nsteps) {
    snprintf(text, sizeof text, "%d losses, not %d", b->nsteps, a->nsteps);
    return text;
  }
  for (int i = 0; i < a->nsteps * NUMBERS; i++) {
    double want = a->number[i / NUMBERS][i % NUMBERS], got = b->number[i / NUMBERS][i % NUMBERS];
    double allowed = (i % NUMBERS == 1 ? 2 : 1) * tolerance; /* a mean of squares */
    if (!(fabs(want - got) <= allowed * (fabs(want) + 1e-3))) {
      snprintf(text, sizeof text, "%s %d of step %d: %.17g, not %.17g",
               i % NUMBERS ? "metric" : "loss", i % NUMBERS, i / NUMBERS, got, want);
      return text;
    }
  }
  if (narrow) return "";
  if (!json_equal(a->header, b->header) || a->nvalues != b->nvalues) return "other parameters";
  const char *name;
  json_t *entry;
  json_object_foreach(a->header, name, entry) {
    json_t *offsets = json_object_get(entry, "data_offsets");
    size_t size = strcmp(json_string_value(json_object_get(entry, "dtype")), "F32") == 0 ? 4 : 8;
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0)) / size;
    size_t to = (size_t)json_integer_value(json_array_get(offsets, 1)) / size;
    double largest = 0;
    for (size_t i = from; i < to; i++) largest = fmax(largest, fabs(a->values[i]));
    for (size_t i = from; i < to; i++)
      if (!(fabs(a->values[i] - b->values[i]) <= tolerance * largest)) {
        snprintf(text, sizeof text, "parameter %s[%zu]: %.17g, not %.17g", name, i - from,
                 b->values[i], a->values[i]);
        return text;
      }
  }
  return "";
}

/* Errors that a program may meet on some mesh only: those of placement, a pending extremum, which
 * has no gradient, and per-rank code where the blocks are uneven. */
static bool is_rejection(const Outcome *o) {
  if (o->compiled || o->code != 1 || !strstr(o->output, "error[")) return false;
  for (const char *e = o->output; (e = strstr(e, "error[")); e++)
    if (strncmp(e, "error[DTM2", 10) != 0 && strncmp(e, "error[DTM4102", 13) != 0 &&
        strncmp(e, "error[DTM3041", 13) != 0)
      return false;
  return true;
}

static void expect(const Trial *t, const Outcome *want, const Outcome *got, double tolerance,
                   const char *how) {
  t->tally->runs++;
  if (got->code) {
    if (is_rejection(got)) {
      t->tally->rejected++;
      const char *code = strstr(got->output, "error[");
      if (getenv("VERBOSE"))
        printf("rejected %llu [%s] %.100s\n", (unsigned long long)t->number, how, code);
    } else {
      char what[64];
      snprintf(what, sizeof what, "%s ends with %d", got->compiled ? "the run" : "dtmc", got->code);
      fault(t, what, how, got->output);
    }
    return;
  }
  const char *differs = difference(want, got, t->program.narrow ? fmax(tolerance, 0.05) : tolerance,
                                   t->program.narrow && tolerance > 0);
  if (*differs) fault(t, differs, how, "");
}

static void draw_mesh(const Trial *t, uint64_t *state, char *text, size_t size) {
  int most = 8, n = 0;
  *text = 0;
  do {
    most = 8;
    n = 0;
    for (int a = 0; a < t->program.naxes; a++) {
      *state = *state * 6364136223846793005ull + 1442695040888963407ull;
      int extent = 1 + (int)((*state >> 33) % 4);
      if (extent > most) extent = 1;
      most /= extent;
      n +=
          snprintf(text + n, size - (size_t)n, "%s%s=%d", n ? "," : "", t->program.axes[a], extent);
    }
  } while (most == 8);
}

static void write_source(const Trial *t, const char *name, const char *source) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", t->dir, name);
  FILE *f = fopen(path, "w");
  must(f != NULL, "open");
  fputs(source, f);
  fclose(f);
}

/* What steps of a width say of a gradient. */
typedef struct Slope {
  bool usable;
  double loss, along, square;
} Slope;

/* With steps of +e and -e from one place, (L+ - L-) / -2e is the slope along the gradient that the
 * program computed, and (|p+ - p-| / 2e)^2 the square of that gradient: equal where it is right. */
static Slope measure_slope(const Trial *t, double e) {
  Slope s = {.usable = true};
  double loss[2] = {0};
  Outcome moved[2];
  for (int i = 0; i < 2; i++) {
    Arena arena;
    arena_init(&arena);
    RandomOptions options = {.descent = i ? -e : e};
    write_source(t, "descent.dtm", random_program(&arena, t->seed, t->number, options).text);
    arena_free(&arena);
    moved[i] = train(t, "descent.dtm", "", 1, 1);
    Outcome two = train(t, "descent.dtm", NULL, 1, 2);
    s.usable = s.usable && moved[i].code == 0 && two.code == 0 && two.nsteps == 2;
    loss[i] = two.number[1][0];
    outcome_free(&two);
  }
  for (size_t i = 0; s.usable && i < moved[0].nvalues && i < moved[1].nvalues; i++)
    s.square += pow((moved[0].values[i] - moved[1].values[i]) / (2 * e), 2);
  s.along = (loss[0] - loss[1]) / (-2 * e);
  s.loss = loss[0];
  s.usable = s.usable && isfinite(s.square) && isfinite(s.along);
  outcome_free(&moved[0]);
  outcome_free(&moved[1]);
  return s;
}

/* Where the loss is steep, a step of 1e-6 times the gradient is long enough for it to bend: a right
 * gradient then agrees at a shorter one, a wrong one at none. */
static void check_gradient(const Trial *t) {
  static const double widths[] = {1e-6, 1e-8};
  write_npy(t->dir, "x.npy", "<f4", t->program.batch, t->program.features, t->number);
  write_npy(t->dir, "t.npy", "<i4", t->program.batch, 5, t->number + 1);
  Slope s = {0};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    s = measure_slope(t, widths[i]);
    if (!s.usable) return;
    if (i == 0) t->tally->gradients++;
    double allowed = 1e-4 * (fabs(s.square) + 0.01 * fabs(s.loss) + 1e-6);
    if (fabs(s.along - s.square) <= allowed) return;
  }
  char what[200];
  snprintf(what, sizeof what, "slope along the gradient %.12g, its square %.12g", s.along,
           s.square);
  fault(t, what, "gradient", "");
}

/* What the order of sums may change, relative. In f32 AdamW's steps of elements whose gradients are
 * rounding alone are as long as others. */
static double rounding(const Trial *t) {
  return t->single ? SINGLE_ROUNDING : 1e-9;
}

/* Trains on one rank. What rounding to f32 changes too much is compared in f64. */
static Outcome train_base(Trial *t) {
  if (!t->single) return train(t, "random.dtm", "", 1, STEPS);
  t->single = false;
  Outcome wide = train(t, "random.dtm", "", 1, STEPS);
  t->single = true;
  Outcome base = train(t, "random.dtm", "", 1, STEPS);
  t->single = base.code || !*difference(&wide, &base, 0.1 * SINGLE_ROUNDING, true);
  outcome_free(&wide);
  if (t->single) return base;
  outcome_free(&base);
  return train(t, "random.dtm", "", 1, STEPS);
}

static void try_program(uint64_t seed, uint64_t number, const char *work, Tally *tally) {
  Arena arena;
  arena_init(&arena);
  Trial t = {.seed = seed, .number = number, .tally = tally};
  t.program = random_program(&arena, seed, number, (RandomOptions){0});
  t.single = number % 3 == 1;
  snprintf(t.dir, sizeof t.dir, "%s", work);
  write_source(&t, "random.dtm", t.program.text);
  write_npy(t.dir, "x.npy", "<f4", ROWS, t.program.features, number);
  write_npy(t.dir, "t.npy", "<i4", ROWS, 5, number + 1);
  tally->programs++;

  Outcome base = train_base(&t);
  bool finite = base.code == 0 && base.nsteps == STEPS;
  for (int i = 0; i < base.nsteps; i++) finite = finite && isfinite(base.number[i][0]);
  if (!finite) {
    tally->unusable++;
    bool nan = strstr(base.output, "not finite") || (base.code == 0 && base.nsteps == STEPS);
    if (!nan) fault(&t, "does not train on one rank", "one rank", base.output);
  } else {
    Outcome o;
    if (!target_gpus()) {
      o = train(&t, "random.dtm", NULL, 2, STEPS);
      expect(&t, &base, &o, 0, "two threads");
      outcome_free(&o);
    }
    if (number % 3 == 0 && !target_gpus()) {
      o = train(&t, "random.dtm", "--no-fuse", 1, STEPS);
      expect(&t, &base, &o, rounding(&t), "--no-fuse");
      outcome_free(&o);
    }
    uint64_t state = seed * 31 + number;
    char before[256] = "", flags[256] = "", turns[600];
    for (int m = 0; m < MESHES; m++) {
      char mesh[64];
      memcpy(before, flags, sizeof before);
      draw_mesh(&t, &state, mesh, sizeof mesh);
      snprintf(flags, sizeof flags, "--mesh %s%s", mesh, m == 2 && number % 3 ? " --no-fuse" : "");
      if (m == 1 && number % 2) { /* on one rank first, or on the mesh before */
        const char *from = number % 4 == 1 ? "" : before;
        o = train_in_turns(&t, from, flags);
        snprintf(turns, sizeof turns, "%s, then %s", *from ? from : "one rank", flags);
        expect(&t, &base, &o, rounding(&t), turns);
        outcome_free(&o);
        continue;
      }
      Outcome first = train(&t, "random.dtm", flags, 1, STEPS);
      expect(&t, &base, &first, rounding(&t), flags);
      if (m == 0 && first.code == 0 && !target_gpus()) {
        o = train(&t, "random.dtm", NULL, 2, STEPS);
        expect(&t, &first, &o, 0, flags);
        outcome_free(&o);
        if (number % 3 != 1) {
          outcome_free(&first);
          continue;
        }
        snprintf(flags, sizeof flags, "--mesh %s --no-reuse", mesh);
        o = train(&t, "random.dtm", flags, 1, STEPS);
        expect(&t, &first, &o, 0, flags);
        outcome_free(&o);
      }
      outcome_free(&first);
    }
    t.single = false;
    if (number % 2 == 0 && !target_gpus()) check_gradient(&t);
  }
  outcome_free(&base);
  arena_free(&arena);
}

static void report(const Tally *t) {
  printf("%d programs (%d not usable), %d other runs (%d rejected), %d gradients, %d faults\n",
         t->programs, t->unusable, t->runs, t->rejected, t->gradients, t->faults);
  fflush(stdout);
}

static char work[] = "/tmp/dtm-random-XXXXXX";

static Tally try_programs(uint64_t seed, uint64_t from, uint64_t count) {
  Tally tally = {0};
  for (uint64_t i = 0; i < count; i++) {
    try_program(seed, from + i, work, &tally);
    if (i % 10 == 9) report(&tally);
  }
  report(&tally);
  return tally;
}

START_TEST(programs_agree) {
  Tally tally = try_programs(1, 0, target_gpus() ? GPU_PROGRAMS : PROGRAMS);
  ck_assert_int_eq(tally.faults, 0);
  ck_assert_int_eq(tally.unusable, 0);
  ck_assert_int_le(tally.rejected, tally.runs / 3);
}
END_TEST

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "print") == 0) {
    Arena arena;
    arena_init(&arena);
    fputs(random_program(&arena, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                         (RandomOptions){0})
              .text,
          stdout);
    arena_free(&arena);
    return 0;
  }
  if (!getenv("DTMC")) {
    fprintf(stderr, "DTMC must name the compiler\n");
    return 2;
  }
  char clean[64];
  int failed;
  must(mkdtemp(work) && target_begin(work), "mkdtemp");
  if (argc == 4) {
    failed = try_programs(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                          strtoull(argv[3], NULL, 10))
                 .faults > 0;
  } else {
    Suite *s = suite_create("random");
    TCase *c = tcase_create("programs");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, programs_agree);
    suite_add_tcase(s, c);
    failed = suite_run(s);
  }
  snprintf(clean, sizeof clean, "rm -rf %s", work);
  must(system(clean) == 0, clean);
  return failed;
}
