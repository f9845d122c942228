/* Inside runtime/device/cuda: a generated kernel with the arguments of one action. */
#ifndef DTM_RT_DEVICE_CUDA_KERNELS_H
#define DTM_RT_DEVICE_CUDA_KERNELS_H

#include "device/cuda/cuda.h"

/* The state of an action of kind KERNEL. */
typedef struct CudaKernel {
  CUfunction function;
  AbiCudaLaunch launch;
  uint32_t nbuffers, nints;
  int slotted;     /* some buffer has a block per micro-batch under way */
  uint64_t *words; /* the arguments: addresses of buffers, then integers */
  void **params;   /* addresses of the arguments, of tasks and group too */
} CudaKernel;

/* The entry NAME_many of a kernel that has one (ABI_CUDA_MANY). 0 or the code to exit with. */
int dtm_cuda_kernel_many(CudaDevice *d, uint32_t code, CUfunction *function);

#endif
