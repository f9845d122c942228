/* Inside runtime/device/cuda: updates of many parameters in few launches.
 *
 * Where the optimizer's kernels stand one behind the other and do not depend on each other, those
 * of one code are one launch of its entry NAME_many (abi/cuda.h), with a table of their arguments
 * in device memory. What they compute is the same: a block of the grid does what a block of the
 * single launch would. */
#ifndef DTM_RT_DEVICE_CUDA_BUNDLE_H
#define DTM_RT_DEVICE_CUDA_BUNDLE_H

#include "device/cuda/cuda.h"

/* After all actions were prepared. */
int dtm_cuda_bundle_open(CudaDevice *d);
void dtm_cuda_bundle_close(CudaDevice *d);
/* How many actions the bundle has that begins at this one; 0: there is none. */
uint32_t dtm_cuda_bundle_size(const CudaDevice *d, uint32_t first);
int dtm_cuda_bundle_run(CudaDevice *d, uint32_t first);

#endif
