/* Files of parameters and of optimizer state that programs saved, and how far two are apart. */
#ifndef DTM_TESTS_CHECKPOINT_H
#define DTM_TESTS_CHECKPOINT_H

#include "state/safetensors.h"

/* Opens what a path names, or fails the test. A path that is not absolute is one in the folder of
 * work.h. */
void checkpoint_open(StStore *store, const char *path);
/* Opens the optimizer state that belongs to a file of parameters. */
void checkpoint_open_state(StStore *store, const char *path);
/* A tensor of this element type, or the test fails. */
const StTensor *checkpoint_find(const StStore *store, const char *name, uint32_t dtype);

/* Largest difference of two tensors of one name, f32 or f64, and the largest element of `want`. A
 * difference that is no number is NaN. */
typedef struct Apart {
  double difference, largest;
} Apart;
Apart checkpoint_apart(const StStore *got, const StStore *want, const StTensor *tensor);

#endif
