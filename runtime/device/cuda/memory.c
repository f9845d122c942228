/* Device memory of a rank, and whether there is enough: see cuda.h. */
#include "comm/errors.h"
#include "device/cuda/cuda.h"

int dtm_cuda_alloc(CudaDevice *d, size_t bytes, const char *what, CUdeviceptr *address) {
  const double gib = 1 << 30;
  size_t free = 0, total = 0;
  CUresult error = d->cu->memory_alloc(address, bytes);
  if (!error) return 0;
  *address = 0;
  if (error != CUDA_ERROR_OUT_OF_MEMORY) return dtm_cuda_failed(d, error, "allocate memory");
  d->cu->memory_info(&free, &total);
  return dtm_rt_fail(
      d->base.comm, RT_DEVICE,
      "GPU %d, %s, has no memory for %s: %.3f GiB are needed, and %.3f of %.3f GiB are "
      "free\n  use a smaller batch or model, or more GPUs",
      (int)d->device, d->name, what, (double)bytes / gib, (double)free / gib, (double)total / gib);
}
