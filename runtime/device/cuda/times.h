/* Inside runtime/device/cuda: how long actions take by the GPU's own clock, for --trace.
 *
 * Every action is enqueued between two events of the stream `compute`, and nothing is waited for
 * until the end of a walk. So the host runs ahead as without a trace, and no time holds the launch
 * of a kernel unless the GPU is done sooner than the host has enqueued the next. Of a collective
 * begun ahead the part that is not hidden shows, at the action that finishes it. An update of many
 * parameters in one launch is the time of the first of them. Stretches are no graphs meanwhile:
 * within a graph, events have no times. */
#ifndef DTM_RT_DEVICE_CUDA_TIMES_H
#define DTM_RT_DEVICE_CUDA_TIMES_H

#include "device/cuda/cuda.h"

/* From now on d->times is there, and actions are timed. */
int dtm_cuda_times_open(CudaDevice *d);
void dtm_cuda_times_close(CudaDevice *d);
/* Around what enqueues an action; nothing without d->times. */
int dtm_cuda_times_begin(CudaDevice *d, uint32_t action);
int dtm_cuda_times_end(CudaDevice *d);
/* Waits for all that was enqueued, and hands out what was timed since the last call. */
int dtm_cuda_times_give(CudaDevice *d, RtTimed *give, void *context);

#endif
