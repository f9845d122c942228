#include "training.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/log.h"
#include "support/target.h"
#include "support/work.h"

void training_write_npy(const char *name, int rows, int width, int64_t (*value)(int i)) {
  char shape[48];
  snprintf(shape, sizeof shape, "(%d, %d)", rows, width);
  FILE *f = work_npy(name, "<i8", shape);
  for (int i = 0; i < rows * width; i++) {
    int64_t v = value(i);
    fwrite(&v, 8, 1, f);
  }
  fclose(f);
}

const char *training_dtmc(const char *options) {
  return target_dtmc(strstr(options, "--mesh"));
}

const char *training_widened(void) {
  return target_gpus() ? "" : "--widen";
}

double training_bound(void) {
  return target_gpus() ? 1e-5 : 1e-10;
}

int training_losses(const char *program, const char *options, const char *run, double *loss,
                    int most) {
  static char text[1 << 18];
  char steps[32] = "";
  if (target_steps(most) < most && !strstr(run, "--steps"))
    snprintf(steps, sizeof steps, "--steps=%d", target_steps(most));
  int code = work_run(text, sizeof text, "%s %s %s -o run && ./run --threads=1 --log=json %s %s",
                      training_dtmc(options), program, options, run, steps);
  ck_assert_msg(code == 0, "%s, %s: exit %d\n%s", options, run, code, text);
  return log_steps(text, "loss", loss, most);
}

void training_read(Training *t, const char *log) {
  t->n = log_steps(log, "loss", t->value, TRAINING_MOST);
  t->n += log_steps(log, "size", t->value + t->n, TRAINING_MOST);
}

void training_near(const double *got, const double *want, int n, double bound, const char *what) {
  for (int i = 0; i < n; i++)
    ck_assert_msg(fabs(got[i] - want[i]) <= bound * fabs(want[i]),
                  "%s: number %d is %.17g, not %.17g", what, i + 1, got[i], want[i]);
}

void training_compare(const Training *got, const Training *want, double bound, const char *what) {
  ck_assert_msg(got->n == want->n && want->n > 0, "%s: %d numbers, not %d", what, got->n, want->n);
  training_near(got->value, want->value, want->n, bound, what);
}
