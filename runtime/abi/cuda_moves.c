/* Which kernels moves need: see cuda.h. */
#include <stdio.h>

#include "runtime/abi/cuda.h"

int abi_cuda_folds(uint32_t dtype, uint32_t op) {
  switch ((AbiReduce)op) {
  case ABI_SUM:
  case ABI_PRODUCT:
    return dtype == ABI_I16;
  case ABI_AVG:
    return dtype != ABI_F64 && dtype != ABI_F32;
  case ABI_MAX:
  case ABI_MIN:
    return dtype == ABI_I16 || dtype <= ABI_F16;
  case ABI_AND:
  case ABI_OR:
    return dtype != ABI_BOOL;
  case ABI_XOR:
  case ABI_REDUCE_NONE:
  case ABI_REDUCE_COUNT:
    break;
  }
  return 1;
}

AbiCudaInstance abi_cuda_fold_instance(uint32_t dtype) {
  AbiCudaInstance i = {.file = "fold"};
  snprintf(i.suffix, sizeof i.suffix, "_%s", abi_dtype_name(dtype));
  snprintf(i.defines, sizeof i.defines, "-DELEMENT=%s", abi_cuda_element(dtype));
  return i;
}

AbiCudaInstance abi_cuda_move_instance(void) {
  return (AbiCudaInstance){.file = "moves", .suffix = "_bytes"};
}

uint32_t abi_cuda_move_instances(const Image *image, const AbiAction *a,
                                 AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]) {
  uint32_t dtype = image->type[image->buffer[a->buffers].type].dtype, n = 0;
  int reduces = a->kind == ABI_ALL_REDUCE || a->kind == ABI_REDUCE_SCATTER;
  if (reduces && abi_cuda_folds(dtype, a->code)) out[n++] = abi_cuda_fold_instance(dtype);
  switch ((AbiActionKind)a->kind) {
  case ABI_ALL_REDUCE:
  case ABI_REDUCE_SCATTER:
  case ABI_PULL:
  case ABI_PULL_ROWS:
  case ABI_SLICE:
  case ABI_FILL:
  case ABI_COPY:
  case ABI_POST:
  case ABI_TAKE:
    out[n++] = abi_cuda_move_instance();
    return n;
  case ABI_START: /* has those of what it begins */
  case ABI_ACTION_NONE:
  case ABI_KERNEL:
  case ABI_MATMUL:
  case ABI_LIBRARY:
  case ABI_INPUT:
  case ABI_OUTPUT:
  case ABI_ACTION_COUNT:
    break;
  }
  return n;
}
