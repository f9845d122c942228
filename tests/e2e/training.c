#include "training.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

#include "support/log.h"
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

void training_read(Training *t, const char *log) {
  t->n = log_steps(log, "loss", t->value, TRAINING_MOST);
  t->n += log_steps(log, "size", t->value + t->n, TRAINING_MOST);
}

void training_compare(const Training *got, const Training *want, double bound, const char *what) {
  ck_assert_msg(got->n == want->n && want->n > 0, "%s: %d numbers, not %d", what, got->n, want->n);
  for (int i = 0; i < want->n; i++)
    ck_assert_msg(fabs(got->value[i] - want->value[i]) <= bound * fabs(want->value[i]),
                  "%s: number %d is %.17g, not %.17g", what, i, got->value[i], want->value[i]);
}
