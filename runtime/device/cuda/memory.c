/* Device memory of a rank, whether there is enough, and its variables as the host sees them: see
 * cuda.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/errors.h"
#include "device/cuda/cuda.h"

static const double gib = 1 << 30;

int dtm_cuda_alloc(CudaDevice *d, size_t bytes, const char *what, CUdeviceptr *address) {
  size_t free = 0, total = 0;
  *address = 0;
  if (bytes == 0) return 0;
  CUresult error = d->cu->memory_alloc(address, bytes);
  if (!error) return 0;
  *address = 0;
  if (error != CUDA_ERROR_OUT_OF_MEMORY) return dtm_cuda_failed(d, error, "allocate memory");
  d->cu->memory_info(&free, &total);
  return dtm_rt_fail(d->base.comm, RT_DEVICE,
                     "GPU %d, %s, has no memory for %s: %.3f GiB are needed, and %.3f of %.3f GiB "
                     "are free\n  use a smaller batch or model, or more GPUs",
                     (int)d->device, d->name, what, (double)bytes / gib, (double)free / gib,
                     (double)total / gib);
}

/* Bytes of the arena that hold variables of some kinds on this rank. */
static uint64_t bytes_of(const CudaDevice *d, uint32_t kinds) {
  const Image *image = d->base.image;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < image->var_count; i++) {
    const AbiVar *v = &image->var[i];
    const AbiMesh *mesh = abi_type_mesh(image, &image->type[v->type]);
    if (!(kinds >> v->kind & 1) || abi_mesh_position(image, mesh, d->base.comm->rank) < 0) continue;
    const AbiBuffer b = {.type = v->type};
    const LibTensor t = dtm_device_tensor(&d->base, &b, NULL);
    uint64_t bytes = abi_dtype_bytes(t.dtype);
    for (uint32_t k = 0; k < t.rank; k++) bytes *= (uint64_t)t.extent[k];
    sum += bytes;
  }
  return sum;
}

void dtm_cuda_memory_text(const CudaDevice *d, char *text, size_t size) {
  const AbiHeader *h = d->base.image->header;
  uint64_t params = bytes_of(d, 1u << ABI_VAR_PARAM | 1u << ABI_VAR_BUFFER),
           optimizer = bytes_of(d, 1u << ABI_VAR_OPTIMIZER),
           other = h->persistent_size > params + optimizer ? h->persistent_size - params - optimizer
                                                           : 0;
  snprintf(text, size,
           "%.3f GiB (parameters %.3f, optimizer %.3f, accumulated gradients and other state %.3f, "
           "activations and gradients %.3f)",
           (double)h->arena_size / gib, (double)params / gib, (double)optimizer / gib,
           (double)other / gib, (double)(h->arena_size - h->persistent_size) / gib);
}

int dtm_cuda_memory_open(CudaDevice *d) {
  const AbiHeader *h = d->base.image->header;
  size_t free = 0, total = 0;
  CUresult error = d->cu->memory_info(&free, &total);
  if (error) return dtm_cuda_failed(d, error, "ask for the free memory");
  if (h->arena_size > free) {
    char text[256];
    dtm_cuda_memory_text(d, text, sizeof text);
    return dtm_rt_fail(d->base.comm, RT_DEVICE,
                       "this program does not fit GPU %d, %s: of its %.3f GiB %.3f are free, and a "
                       "rank needs %s\n  use a smaller batch or model, more GPUs, or a placement "
                       "that shards more",
                       (int)d->device, d->name, (double)total / gib, (double)free / gib, text);
  }
  int status = dtm_cuda_alloc(d, h->arena_size, "the program", &d->arena);
  if (!status) status = dtm_cuda_alloc(d, sizeof(CudaFault), "a word", &d->fault);
  if (status) return status;
  /* As on the processor, variables are zero at first. */
  error = d->cu->set8_async(d->arena, 0, h->persistent_size, d->compute);
  if (!error) error = d->cu->set8_async(d->fault, 0, sizeof(CudaFault), d->compute);
  return error ? dtm_cuda_failed(d, error, "clear memory") : 0;
}

void dtm_cuda_memory_close(CudaDevice *d) {
  const CUdeviceptr all[] = {d->arena, d->fault, d->scratch, d->comm_scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i]) d->cu->memory_free(all[i]);
}
