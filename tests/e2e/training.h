/* Programs that train: their data, and the numbers that their runs log. */
#ifndef DTM_TESTS_TRAINING_H
#define DTM_TESTS_TRAINING_H

#include <stdint.h>

enum { TRAINING_MOST = 32 };

/* Losses of all steps, then the metrics named "size". */
typedef struct Training {
  int n;
  double value[2 * TRAINING_MOST];
} Training;

/* A file i64[rows, width] of value(0), value(1), ... */
void training_write_npy(const char *name, int rows, int width, int64_t (*value)(int i));

/* Reads a log of JSON lines. */
void training_read(Training *t, const char *log);

/* The numbers agree to `bound`, relatively; `what` is said where they do not. */
void training_compare(const Training *got, const Training *want, double bound, const char *what);

#endif
