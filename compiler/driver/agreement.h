/* Comparing two runs of one program: what they logged and what they saved. */
#ifndef DTM_DRIVER_AGREEMENT_H
#define DTM_DRIVER_AGREEMENT_H

#include "base/str.h"
#include "driver/tensors.h"

/* How far rounding lets two meshes be apart, relative: `value` of a loss, a metric or what is
 * printed; `tensor` of the largest element of a tensor. What cancels to nothing but rounding is
 * `floor` of the largest element of all tensors of its kind. */
typedef struct Tolerance {
  double value, tensor, floor;
} Tolerance;

typedef struct Difference {
  int64_t step; /* 0 = of none */
  const char *what, *element, *want, *got;
  double by, allowed; /* NaN: not by rounding */
} Difference;

typedef struct Agreement {
  Arena *arena;
  Tolerance tolerance;
  VEC(Difference) found;    /* in the order in which the runs came to it */
  uint32_t values, numbers; /* logged, and those of them that are numbers */
  uint32_t tensors;         /* of one step */
  double largest;           /* difference of numbers, relative to what it is compared with */
} Agreement;

/* Logs as --log=json writes them. NULL, or what is wrong with one of them. */
const char *agreement_logs(Agreement *a, const char *want, const char *got);
/* What was saved at the end of this step: states of the optimizer, which the gradients are in, then
 * parameters and buffers. */
void agreement_tensors(Agreement *a, const SavedTensors *want, const SavedTensors *got,
                       int64_t step);
/* What was found in the first step that differs, as a table whose last column of values has the
 * name `mesh`. */
void agreement_print(const Agreement *a, const char *mesh, StrBuf *out);

#endif
