/* The tensors of a checkpoint that a program saved: parameters, buffers, optimizer state. */
#ifndef DTM_DRIVER_TENSORS_H
#define DTM_DRIVER_TENSORS_H

#include "base/vec.h"
#include "types/dtype.h"

typedef struct SavedTensor {
  const char *name;
  DType type;
  bool optimizer; /* state of the optimizer: a parameter's name and a suffix */
  VEC(int64_t) shape;
  int64_t count; /* elements */
  const void *data;
  double largest; /* of its finite elements, without sign */
} SavedTensor;

typedef VEC(SavedTensor) SavedTensors;

/* Reads FILE, whose tensors come first in the order in which they are declared, and what lies in
 * FILE.state/. NULL, or what is wrong. The files stay mapped. */
const char *tensors_read(Arena *arena, const char *file, SavedTensors *out);
/* NULL when there is none. */
const SavedTensor *tensors_find(const SavedTensors *in, const char *name, bool optimizer);

#endif
