/* Channels between stages on a GPU. */
#include "comm/errors.h"
#include "device/cuda/cuda.h"

int dtm_cuda_channel_prepare(CudaDevice *d, uint32_t action, void **state) {
  (void)state;
  return dtm_rt_fail(d->base.comm, RT_INTERNAL, "%s does not run on GPUs yet",
                     abi_text(d->base.image, dtm_cuda_action(d, action)->name));
}

int dtm_cuda_channel_run(CudaDevice *d, uint32_t action, void *state) {
  (void)d;
  (void)action;
  (void)state;
  return 0;
}

void dtm_cuda_channel_free(CudaDevice *d, void *state) {
  (void)d;
  (void)state;
}
