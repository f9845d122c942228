/* Which instances of library kernels an action needs: see cuda.h. */
#include "runtime/abi/cuda.h"

uint32_t abi_cuda_instances(const Image *image, const AbiAction *action,
                            AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]) {
  if (action->kind == ABI_LIBRARY &&
      (action->code == ABI_LIB_ATTENTION || action->code == ABI_LIB_ATTENTION_BACKWARD)) {
    out[0] = abi_cuda_attention_instance(image, action);
    return 1;
  }
  return 0;
}
