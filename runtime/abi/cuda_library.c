/* Which instances of library kernels an action needs: see cuda.h. */
#include "runtime/abi/cuda.h"

uint32_t abi_cuda_instances(const Image *image, const AbiAction *action,
                            AbiCudaInstance out[ABI_CUDA_MAX_INSTANCES]) {
  (void)image;
  (void)action;
  (void)out;
  return 0;
}
