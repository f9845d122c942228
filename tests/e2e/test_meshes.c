/* The same program on every mesh gives the losses of mesh 1.
 *
 * For each program of programs/: compile and train on every mesh of the list with --log=json,
 * compare the losses with those of mesh 1. The first line of a program says how far rounding lets
 * f32 go:
 * "// smooth" 20 steps, "// kinked" (relu, max) 5 steps, within 1e-5 relative; with --widen every
 * program must stay within 1e-10 for 100 steps. A second line "// meshes: pp=2; pp=2,tp=2" names
 * other meshes than those of the list. On GPUs (support/target.h) the first 5 steps are compared,
 * in f32.
 */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/log.h"
#include "support/suite.h"
#include "support/target.h"
#include "support/work.h"

enum { STEPS = 100, MAX_PROGRAMS = 64 };

static const char *const usual_meshes[] = {"dp=2",      "tp=2",      "dp=3",          "tp=3",
                                           "dp=4",      "dp=2,tp=2", "dp=2,sp=2",     "dp=3,tp=2",
                                           "dp=2,tp=3", "tp=4",      "dp=2,sp=2,tp=2"};
enum { NUSUAL = sizeof usual_meshes / sizeof *usual_meshes, MAX_MESHES = 16 };

static char programs[MAX_PROGRAMS][128];
static int nprograms;

static uint64_t random_state = 7;
static uint32_t next_random(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33);
}

/* x.npy f32 [203, 12], y.npy i64 [203] in 0..4, tokens.npy i32 [60, 8] in 0..30. */
static void write_data(void) {
  FILE *f = work_npy("x.npy", "<f4", "(203, 12)");
  for (int i = 0; i < 203 * 12; i++) {
    float v = (float)((int)(next_random() % 4001) - 2000) / 1000.0f;
    fwrite(&v, 4, 1, f);
  }
  fclose(f);
  f = work_npy("y.npy", "<i8", "(203,)");
  for (int i = 0; i < 203; i++) {
    int64_t v = next_random() % 5;
    fwrite(&v, 8, 1, f);
  }
  fclose(f);
  f = work_npy("tokens.npy", "<i4", "(60, 8)");
  for (int i = 0; i < 60 * 8; i++) {
    int32_t v = (int32_t)(next_random() % 31);
    fwrite(&v, 4, 1, f);
  }
  fclose(f);
}

/* Trains on a mesh ("" = all dims 1, on this machine) and returns the number of losses read. */
static int losses_of(const char *program, const char *mesh, const char *flags, int steps,
                     double *loss) {
  static char text[1 << 20];
  int code = work_run(text, sizeof text,
                      "cp %s/tests/e2e/programs/%s . && %s %s %s %s%s -o train && "
                      "./train --threads=1 --log=json --steps=%d",
                      work_root(), program, target_dtmc(mesh), program, flags,
                      *mesh ? "--mesh " : "", mesh, steps);
  ck_assert_msg(code == 0, "%s on mesh '%s' %s: exit %d\n%s", program, mesh, flags, code, text);
  return log_steps(text, "loss", loss, STEPS);
}

typedef struct Header {
  bool smooth;
  int nmeshes;
  char meshes[MAX_MESHES][64];
} Header;

static void read_header(const char *program, Header *h) {
  char path[1024], line[512] = "";
  snprintf(path, sizeof path, "%s/tests/e2e/programs/%s", work_root(), program);
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
  h->smooth = strcmp(line, "// smooth\n") == 0;
  ck_assert_msg(h->smooth || strcmp(line, "// kinked\n") == 0, "%s: first line must say", program);
  h->nmeshes = 0;
  static const char mark[] = "// meshes: ";
  bool own = fgets(line, sizeof line, f) && strncmp(line, mark, strlen(mark)) == 0;
  fclose(f);
  for (int i = 0; !own && i < NUSUAL; i++)
    snprintf(h->meshes[h->nmeshes++], sizeof *h->meshes, "%s", usual_meshes[i]);
  for (char *m = own ? strtok(line + strlen(mark), "; \n") : NULL; m && h->nmeshes < MAX_MESHES;
       m = strtok(NULL, "; \n"))
    snprintf(h->meshes[h->nmeshes++], sizeof *h->meshes, "%s", m);
}

/* The first `steps` of `all` losses. */
static void compare(int at, const Header *h, const char *flags, int steps, int all,
                    double tolerance) {
  static double want[STEPS], got[STEPS];
  const char *program = programs[at];
  ck_assert_int_eq(losses_of(program, "", flags, all, want), all);
  ck_assert_msg(all < STEPS || want[all - 1] < want[0], "%s does not learn: %g -> %g", program,
                want[0], want[all - 1]);
  for (int m = 0; m < h->nmeshes; m++) {
    ck_assert_int_eq(losses_of(program, h->meshes[m], flags, all, got), all);
    for (int s = 0; s < steps; s++)
      ck_assert_msg(fabs(got[s] - want[s]) <= tolerance * fabs(want[s]),
                    "%s %s on %s, step %d: loss %.17g, mesh 1 has %.17g (relative %g)", program,
                    flags, h->meshes[m], s, got[s], want[s], fabs(got[s] / want[s] - 1));
  }
}

START_TEST(f32_first_steps) {
  Header h;
  read_header(programs[_i], &h);
  int steps = target_steps(h.smooth ? 20 : 5);
  compare(_i, &h, "", steps, target_gpus() ? steps : STEPS, 1e-5);
}
END_TEST

START_TEST(widened_hundred_steps) {
  Header h;
  read_header(programs[_i], &h);
  compare(_i, &h, "--widen", STEPS, STEPS, 1e-10);
}
END_TEST

static int by_name(const void *a, const void *b) {
  return strcmp(a, b);
}

int main(void) {
  if (!work_begin()) return 2;
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/e2e/programs", work_root());
  DIR *dir = opendir(path);
  for (struct dirent *e; dir && (e = readdir(dir)) && nprograms < MAX_PROGRAMS;) {
    size_t n = strlen(e->d_name);
    if (n > 4 && n < 128 && strcmp(e->d_name + n - 4, ".dtm") == 0)
      memcpy(programs[nprograms++], e->d_name, n + 1);
  }
  if (dir) closedir(dir);
  qsort(programs, (size_t)nprograms, sizeof *programs, by_name);
  write_data();

  Suite *s = suite_create("meshes");
  TCase *c = tcase_create("against mesh 1");
  tcase_set_timeout(c, 300);
  tcase_add_loop_test(c, f32_first_steps, 0, nprograms);
  if (!target_gpus()) tcase_add_loop_test(c, widened_hundred_steps, 0, nprograms);
  suite_add_tcase(s, c);
  int failed = suite_run(s);
  return !work_end() || failed || nprograms == 0;
}
