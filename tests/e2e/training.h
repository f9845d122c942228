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

/* The compiler for these options: without a mesh the program is what others are compared with, and
 * runs on this machine (support/target.h). */
const char *training_dtmc(const char *options);
/* How programs are compared that may be compiled for f64: on GPUs in f32, as they run there. */
const char *training_widened(void);
double training_bound(void);

/* Compiles `program`, a file of the folder, with these options and runs it with those of `run`: the
 * losses of its steps, `most` at most (the first of them on GPUs); their number. */
int training_losses(const char *program, const char *options, const char *run, double *loss,
                    int most);

/* Reads a log of JSON lines. */
void training_read(Training *t, const char *log);

/* n numbers agree to `bound`, relatively; `what` is said where they do not. */
void training_near(const double *got, const double *want, int n, double bound, const char *what);
/* The same of all that was read. */
void training_compare(const Training *got, const Training *want, double bound, const char *what);

#endif
