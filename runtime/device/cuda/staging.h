/* Inside runtime/device/cuda: what goes between host and GPU while a step runs, through pinned
 * memory and without waiting: the block of integers, inputs, outputs.
 *
 * Every copy has a number. `seen` is the last one that is known to be over; a slot of pinned memory
 * may be written again when the copy that last used it is. The one planned wait of a step is that
 * for its outputs (dtm_cuda_staging_look): for the event behind the copy of the last of them, while
 * the GPU goes on with what was enqueued since. */
#ifndef DTM_RT_DEVICE_CUDA_STAGING_H
#define DTM_RT_DEVICE_CUDA_STAGING_H

#include "device/cuda/cuda.h"

int dtm_cuda_staging_open(CudaDevice *d);
void dtm_cuda_staging_close(CudaDevice *d);
/* An action of kind INPUT or OUTPUT; `slots` of them may be under way. */
int dtm_cuda_staging_prepare(CudaDevice *d, uint32_t action, int64_t slots);
int dtm_cuda_staging_ready(CudaDevice *d);

/* d->base.step goes to the arena, when it is another than the last. */
int dtm_cuda_staging_step(CudaDevice *d);
int dtm_cuda_staging_input(CudaDevice *d, uint32_t action, const RtHooks *hooks);
int dtm_cuda_staging_output(CudaDevice *d, uint32_t action, const RtHooks *hooks);
/* Whether outputs are under way. */
int dtm_cuda_staging_pending(const CudaDevice *d);
/* Waits for the outputs under way, reports what kernels found wrong by then, and hands the outputs
 * out in order. 0, or the code to exit with, or what a hook returned. */
int dtm_cuda_staging_look(CudaDevice *d, const RtHooks *hooks);
/* Waits for all that was enqueued, and reports what kernels found wrong. */
int dtm_cuda_staging_sync(CudaDevice *d);

#endif
