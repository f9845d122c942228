/* Where a kernel tells that what it was given cannot be: CudaFault in device/cuda/cuda.h. */
#ifndef DTM_CUDA_FAULT_CUH
#define DTM_CUDA_FAULT_CUH

#include "dtm.cuh"

struct Fault {
  uint32_t action; /* 1 + its number; 0: none so far */
  uint32_t zero;
  int64_t index, extent;
  double mine, first;
  const int64_t *now; /* where the number of the step is */
  int64_t step;
};

/* The first to come is the one that is told. */
DTM_DEVICE void tell(Fault *fault, uint32_t action, int64_t index, int64_t extent, double mine = 0,
                     double first = 0) {
  if (atomicCAS(&fault->action, 0u, action + 1) != 0) return;
  fault->index = index;
  fault->extent = extent;
  fault->mine = mine;
  fault->first = first;
  fault->step = *fault->now;
}

#endif
