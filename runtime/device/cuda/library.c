/* Library operators on a GPU: see library.h. Running sums and the comparison of replicas are here.
 */
#include "device/cuda/library.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/errors.h"

/* --- what families share ------------------------------------------------------------------------
 */

CudaLines dtm_cuda_lines(const LibTensor *t, int64_t dim) {
  CudaLines l = {1, 1, 1};
  for (uint32_t d = 0; d < t->rank; d++) {
    if (d < dim)
      l.outer *= t->extent[d];
    else if (d == dim)
      l.n = t->extent[d];
    else
      l.inner *= t->extent[d];
  }
  return l;
}

CUdeviceptr dtm_cuda_tensor(const CudaDevice *d, const CudaLibCall *c, uint32_t i) {
  const AbiAction *a = dtm_cuda_action(d, c->action);
  return dtm_cuda_address(d, &d->base.image->buffer[a->buffers + i]);
}

int dtm_cuda_kernels(CudaDevice *d, const CudaLibCall *c, uint32_t instance,
                     const char *const *names, CUfunction *kernels) {
  AbiCudaInstance instances[ABI_CUDA_MAX_INSTANCES];
  const AbiAction *a = dtm_cuda_action(d, c->action);
  uint32_t n = abi_cuda_instances(d->base.image, a, instances);
  for (; n > instance && *names; names++, kernels++) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", *names, instances[instance].suffix);
    int status = dtm_cuda_function(d, name, kernels);
    if (status) return status;
  }
  return 0;
}

void dtm_cuda_reserve(CudaDevice *d, size_t bytes) {
  if (bytes > d->scratch_bytes) d->scratch_bytes = bytes;
}

int dtm_cuda_enqueue_blocks(CudaDevice *d, const CudaLibCall *c, CUfunction kernel, int64_t blocks,
                            void **params) {
  return dtm_cuda_launch(d, d->compute, kernel, (unsigned)blocks, LIBRARY_THREADS, 0, params,
                         c->action);
}

int dtm_cuda_enqueue(CudaDevice *d, const CudaLibCall *c, CUfunction kernel, int64_t threads,
                     void **params) {
  return dtm_cuda_enqueue_blocks(d, c, kernel, dtm_cuda_ceil_div(threads, LIBRARY_THREADS), params);
}

static int report(CudaDevice *d, const CudaLibCall *c, CUresult error, const char *what) {
  if (!error) return 0;
  dtm_device_place(&d->base, c->action);
  return dtm_cuda_failed(d, error, what);
}

int dtm_cuda_set_bytes(CudaDevice *d, const CudaLibCall *c, CUdeviceptr to, int value,
                       size_t bytes) {
  if (!bytes) return 0;
  return report(d, c, d->cu->set8_async(to, (unsigned char)value, bytes, d->compute), "set memory");
}

int dtm_cuda_copy_bytes(CudaDevice *d, const CudaLibCall *c, CUdeviceptr to, CUdeviceptr from,
                        size_t bytes) {
  if (!bytes || to == from) return 0;
  return report(d, c, d->cu->copy_async(to, from, bytes, d->compute), "copy memory");
}

/* --- running sums -------------------------------------------------------------------------------
 */

/* A thread for each line where lines are short, or many with neighbours side by side. */
int dtm_cuda_cumsum_prepare(CudaDevice *d, CudaLibCall *c) {
  static const char *const names[] = {"cumsum_lines", "cumsum_line", NULL};
  CudaLines l = dtm_cuda_lines(&c->t[0], c->args[0]);
  c->direct = l.n <= 128 || (l.inner >= 32 && l.outer * l.inner >= 8192);
  return dtm_cuda_kernels(d, c, 0, names, c->kernel);
}

int dtm_cuda_cumsum_run(CudaDevice *d, CudaLibCall *c) {
  CudaLines l = dtm_cuda_lines(&c->t[0], c->args[0]);
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), y = dtm_cuda_tensor(d, c, 1);
  int64_t lines = l.outer * l.inner;
  int32_t reverse = c->args[1] != 0;
  void *params[] = {&x, &y, &lines, &l.n, &l.inner, &reverse};
  if (l.n == 0) return 0;
  return c->direct ? dtm_cuda_enqueue(d, c, c->kernel[0], lines, params)
                   : dtm_cuda_enqueue_blocks(d, c, c->kernel[1], lines, params);
}

/* --- replicas -----------------------------------------------------------------------------------
 */

enum { COMPARE_BLOCKS = 1024 };

int dtm_cuda_same_as_prepare(CudaDevice *d, CudaLibCall *c) {
  static const char *const names[] = {"same_as_compare", "same_as_tell", NULL};
  dtm_cuda_reserve(d, sizeof(uint64_t));
  return dtm_cuda_kernels(d, c, 0, names, c->kernel);
}

int dtm_cuda_same_as_run(CudaDevice *d, CudaLibCall *c) {
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), first = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr y = dtm_cuda_tensor(d, c, 2), least = d->scratch;
  int64_t n = dtm_device_elements(&c->t[0]), blocks = dtm_cuda_ceil_div(n, LIBRARY_THREADS);
  int status = dtm_cuda_copy_bytes(d, c, y, x, dtm_device_bytes(&c->t[0]));
  if (n == 0 || status) return status;
  void *compare[] = {&x, &first, &least, &n};
  void *tell[] = {&x, &first, &least, &n, &d->fault, &c->action};
  status = dtm_cuda_set_bytes(d, c, least, 0xff, sizeof(uint64_t));
  if (!status)
    status = dtm_cuda_enqueue_blocks(d, c, c->kernel[0],
                                     blocks < COMPARE_BLOCKS ? blocks : COMPARE_BLOCKS, compare);
  return status ? status : dtm_cuda_launch(d, d->compute, c->kernel[1], 1, 1, 0, tell, c->action);
}

/* --- entry --------------------------------------------------------------------------------------
 */

static int prepare(CudaDevice *d, CudaLibCall *c) {
  switch ((AbiLibrary)c->code) {
  case ABI_LIB_SORT:
  case ABI_LIB_TOPK:
    return dtm_cuda_sort_prepare(d, c);
  case ABI_LIB_CUMSUM:
    return dtm_cuda_cumsum_prepare(d, c);
  case ABI_LIB_SCATTER_ADD:
    return dtm_cuda_scatter_prepare(d, c);
  case ABI_LIB_EMBEDDING_BACKWARD:
    return dtm_cuda_embedding_prepare(d, c);
  case ABI_LIB_SAME_AS:
    return dtm_cuda_same_as_prepare(d, c);
  case ABI_LIB_GROUPED_LINEAR:
  case ABI_LIB_GROUPED_LINEAR_WEIGHT:
    return dtm_cuda_grouped_prepare(d, c);
  case ABI_LIB_ATTENTION:
  case ABI_LIB_ATTENTION_BACKWARD:
    return dtm_cuda_attention_prepare(d, c->action, &c->own);
  case ABI_LIB_NONE:
  case ABI_LIB_COUNT:
    break;
  }
  return 0;
}

int dtm_cuda_library_prepare(CudaDevice *d, uint32_t action, void **state) {
  const AbiAction *a = dtm_cuda_action(d, action);
  CudaLibCall *c = calloc(1, sizeof *c);
  *state = c;
  if (!c) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  c->action = action;
  c->code = a->code;
  for (uint32_t i = 0; i < a->nbuffers && i < CUDA_LIBRARY_TENSORS; i++)
    c->t[i] = dtm_device_tensor(&d->base, &d->base.image->buffer[a->buffers + i], NULL);
  for (uint32_t i = 0; i < a->nargs && i < CUDA_LIBRARY_ARGS; i++)
    c->args[i] = d->base.arg_ints[a->args + i];
  return prepare(d, c);
}

int dtm_cuda_library_run(CudaDevice *d, uint32_t action, void *state) {
  CudaLibCall *c = state;
  switch ((AbiLibrary)c->code) {
  case ABI_LIB_SORT:
  case ABI_LIB_TOPK:
    return dtm_cuda_sort_run(d, c);
  case ABI_LIB_CUMSUM:
    return dtm_cuda_cumsum_run(d, c);
  case ABI_LIB_SCATTER_ADD:
    return dtm_cuda_scatter_run(d, c);
  case ABI_LIB_EMBEDDING_BACKWARD:
    return dtm_cuda_embedding_run(d, c);
  case ABI_LIB_SAME_AS:
    return dtm_cuda_same_as_run(d, c);
  case ABI_LIB_GROUPED_LINEAR:
  case ABI_LIB_GROUPED_LINEAR_WEIGHT:
    return dtm_cuda_grouped_run(d, c);
  case ABI_LIB_ATTENTION:
  case ABI_LIB_ATTENTION_BACKWARD:
    return dtm_cuda_attention_run(d, action, c->own);
  case ABI_LIB_NONE:
  case ABI_LIB_COUNT:
    break;
  }
  return 0;
}

void dtm_cuda_library_free(CudaDevice *d, void *state) {
  CudaLibCall *c = state;
  if (c->own) dtm_cuda_attention_free(d, c->own);
  free(c);
}
