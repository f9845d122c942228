/* What the files of the stand-in for the driver share. */
#ifndef DTM_TESTS_GPUSIM_STANDIN_DRIVER_H
#define DTM_TESTS_GPUSIM_STANDIN_DRIVER_H

#include "gpusim/sim.h"

#define X(member, name, parameters) CUresult name parameters;
CUDA_DRIVER(X)
#undef X
/* Tests of the stand-ins call these, programs do not (of the first see driver.h). */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuCtxSynchronize(void);

/* Dynamic and static shared memory of a block, at most. */
enum { STANDIN_SHARED = 232448 };

/* The end of every entry. */
static inline CUresult standin_leave(CUresult result) {
  sim_leave();
  return result;
}

/* Behind sim_enter, in an entry that needs the current context. */
static inline CUresult standin_check(void) {
  if (!sim_process()->started) return CUDA_ERROR_NOT_INITIALIZED;
  SimDevice *device = sim_current();
  if (!device || !device->used) return CUDA_ERROR_INVALID_CONTEXT;
  return device->sticky;
}

/* The stream of an entry that enqueues. */
static inline SimStream *standin_stream(CUstream handle, CUresult *error) {
  *error = standin_check();
  return *error ? NULL : sim_stream(handle, error);
}

#endif
