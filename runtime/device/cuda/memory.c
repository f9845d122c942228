/* Device memory of a rank, whether there is enough, and its variables as the host sees them: see
 * cuda.h. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/cuda.h"

/* "1.25 GiB" */
typedef struct Size {
  char text[32];
} Size;

static Size size_of(uint64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
  double value = (double)bytes;
  int unit = 0;
  while (value >= 1024 && unit < 3) value /= 1024, unit++;
  Size s;
  snprintf(s.text, sizeof s.text, "%.*f %s", unit ? 2 : 0, value, units[unit]);
  return s;
}

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
                     "GPU %d, %s, has no memory for %s: %s are needed, and %s of %s are free\n"
                     "  use a smaller batch or model, or more GPUs",
                     (int)d->device, d->name, what, size_of(bytes).text, size_of(free).text,
                     size_of(total).text);
}

int dtm_cuda_write(CudaDevice *d, CUdeviceptr to, const void *from, size_t bytes) {
  if (bytes == 0) return 0;
  CUresult error = d->cu->to_device_async(to, from, bytes, d->compute);
  if (!error) error = d->cu->stream_sync(d->compute);
  return error ? dtm_cuda_failed(d, error, "write memory") : 0;
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
    sum += dtm_device_bytes(&t);
  }
  return sum;
}

void dtm_cuda_memory_text(const CudaDevice *d, char *text, size_t size) {
  const AbiHeader *h = d->base.image->header;
  size_t scratch = d->scratch_bytes + d->comm_scratch_bytes;
  uint64_t params = bytes_of(d, 1u << ABI_VAR_PARAM | 1u << ABI_VAR_BUFFER),
           optimizer = bytes_of(d, 1u << ABI_VAR_OPTIMIZER),
           other = h->persistent_size > params + optimizer ? h->persistent_size - params - optimizer
                                                           : 0;
  snprintf(text, size,
           "%s (parameters %s, optimizer %s, other state %s, activations and gradients %s",
           size_of(h->arena_size + scratch).text, size_of(params).text, size_of(optimizer).text,
           size_of(other).text, size_of(h->arena_size - h->persistent_size).text);
  size_t n = strlen(text);
  if (scratch && n < size)
    n += (size_t)snprintf(text + n, size - n, ", scratch %s", size_of(scratch).text);
  if (n < size) snprintf(text + n, size - n, ")");
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
                       "this program does not fit GPU %d, %s: of its %s %s are free, and a rank "
                       "needs %s\n  use a smaller batch or model, more GPUs, or a placement that "
                       "shards more",
                       (int)d->device, d->name, size_of(total).text, size_of(free).text, text);
  }
  int status = dtm_cuda_alloc(d, h->arena_size, "the program", &d->arena);
  if (!status) status = dtm_cuda_alloc(d, sizeof(CudaFault), "a word", &d->fault);
  const CudaFault none = {.now = d->arena + ABI_STEP_OFFSET + offsetof(AbiStep, step)};
  if (!status) status = dtm_cuda_write(d, d->fault, &none, sizeof none);
  if (status) return status;
  /* As on the processor, variables are zero at first. */
  error = d->cu->set8_async(d->arena, 0, h->persistent_size, d->compute);
  return error ? dtm_cuda_failed(d, error, "clear memory") : 0;
}

void dtm_cuda_memory_close(CudaDevice *d) {
  const CUdeviceptr all[] = {d->arena, d->fault, d->scratch, d->comm_scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i]) d->cu->memory_free(all[i]);
}
