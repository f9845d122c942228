/* Library operators on a GPU. */
#include "comm/errors.h"
#include "device/cuda/cuda.h"

static int is_attention(const CudaDevice *d, uint32_t action) {
  uint32_t code = dtm_cuda_action(d, action)->code;
  return code == ABI_LIB_ATTENTION || code == ABI_LIB_ATTENTION_BACKWARD;
}

int dtm_cuda_library_prepare(CudaDevice *d, uint32_t action, void **state) {
  if (is_attention(d, action)) return dtm_cuda_attention_prepare(d, action, state);
  return dtm_rt_fail(d->base.comm, RT_INTERNAL, "%s does not run on GPUs yet",
                     abi_text(d->base.image, dtm_cuda_action(d, action)->name));
}

int dtm_cuda_library_run(CudaDevice *d, uint32_t action, void *state) {
  if (is_attention(d, action)) return dtm_cuda_attention_run(d, action, state);
  return 0;
}

void dtm_cuda_library_free(CudaDevice *d, void *state) {
  (void)d;
  (void)state;
}
