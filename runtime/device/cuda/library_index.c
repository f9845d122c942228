/* Adding at indices on a GPU: see library.h, kernels/scatter.cu and kernels/embedding.cu. */
#include "device/cuda/library.h"

#include "comm/errors.h"

/* Bits that tell the numbers 0 to `most` apart. */
static int bits_of(int64_t most) {
  int bits = 0;
  while (most >> bits) bits++;
  return bits;
}

/* Keys are 32 bits, as the numbers of positions. */
static int check_room(CudaDevice *d, const CudaLibCall *c, int64_t n) {
  if (n < UINT32_MAX) return 0;
  dtm_device_place(&d->base, c->action);
  return dtm_rt_fail(d->base.comm, RT_DEVICE,
                     "%lld rows or positions are more than 2^32 - 2, which is all that GPUs index",
                     (long long)n);
}

/* --- scatter_add --------------------------------------------------------------------------------
 */

enum { MANY_LINES = 1024, SHORT_LINE = 64 };
_Static_assert((int)SCATTER_DIMS >= ABI_MAX_DIMS - 1, "all dims but the one that is walked along");

static void row_major(const LibTensor *t, int64_t *strides) {
  int64_t stride = 1;
  for (uint32_t d = t->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= t->extent[d];
  }
}

static struct ScatterDims scatter_dims(const CudaLibCall *c) {
  const LibTensor *index = &c->t[1], *source = &c->t[2], *y = &c->t[3];
  int64_t dim = c->args[0], to[ABI_MAX_DIMS], from[ABI_MAX_DIMS];
  CudaLines l = dtm_cuda_lines(index, dim), ly = dtm_cuda_lines(y, dim);
  struct ScatterDims s = {.lines = l.outer * l.inner,
                          .n = l.n,
                          .inner = l.inner,
                          .n_y = ly.n,
                          .inner_y = ly.inner,
                          .inner_s = dtm_cuda_lines(source, dim).inner};
  row_major(y, to);
  row_major(source, from);
  for (uint32_t d = 0; d < index->rank; d++) {
    if (d == dim) continue;
    s.extent[s.dims] = index->extent[d];
    s.to[s.dims] = to[d];
    s.from[s.dims++] = from[d];
  }
  return s;
}

int dtm_cuda_scatter_prepare(CudaDevice *d, CudaLibCall *c) {
  static const char *const names[] = {"scatter_lines", "scatter_keys", "scatter_runs", NULL};
  struct ScatterDims *s = &c->dims.scatter;
  *s = scatter_dims(c);
  c->direct = s->lines >= MANY_LINES || s->n <= SHORT_LINE;
  int status = dtm_cuda_kernels(d, c, 0, names, c->kernel);
  if (c->direct || status) return status;
  c->radix = (CudaRadix){
      .lines = s->lines, .n = s->n, .bits = bits_of(s->n_y), .key_bytes = sizeof(uint32_t)};
  dtm_cuda_reserve(d, dtm_cuda_radix_bytes(&c->radix));
  status = check_room(d, c, s->n > s->n_y ? s->n : s->n_y);
  return status ? status : dtm_cuda_radix_prepare(d, c, 1);
}

int dtm_cuda_scatter_run(CudaDevice *d, CudaLibCall *c) {
  struct ScatterDims *s = &c->dims.scatter;
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), index = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr source = dtm_cuda_tensor(d, c, 2), y = dtm_cuda_tensor(d, c, 3);
  CUdeviceptr keys = d->scratch, numbers;
  int status = dtm_cuda_copy_bytes(d, c, y, x, dtm_device_bytes(&c->t[3]));
  if (status || s->lines * s->n == 0) return status;
  void *lines[] = {&index, &source, &y, s, &d->fault, &c->action};
  if (c->direct) return dtm_cuda_enqueue(d, c, c->kernel[0], s->lines, lines);
  void *make[] = {&index, &keys, s, &d->fault, &c->action};
  void *runs[] = {&keys, &numbers, &source, &y, s};
  status = dtm_cuda_enqueue(d, c, c->kernel[1], s->lines * s->n, make);
  if (!status) status = dtm_cuda_radix_run(d, c, d->scratch, &keys, &numbers);
  return status ? status : dtm_cuda_enqueue(d, c, c->kernel[2], s->lines * s->n, runs);
}

/* --- embedding ----------------------------------------------------------------------------------
 */

int dtm_cuda_embedding_prepare(CudaDevice *d, CudaLibCall *c) {
  static const char *const names[] = {"embedding_keys", "embedding_rows", NULL};
  int64_t n = dtm_device_elements(&c->t[1]), rows = c->t[2].extent[0];
  int status = check_room(d, c, n > rows ? n : rows);
  c->radix = (CudaRadix){.lines = 1, .n = n, .bits = bits_of(rows), .key_bytes = sizeof(uint32_t)};
  dtm_cuda_reserve(d, dtm_cuda_radix_bytes(&c->radix));
  if (!status) status = dtm_cuda_kernels(d, c, 0, names, c->kernel);
  return status ? status : dtm_cuda_radix_prepare(d, c, 1);
}

int dtm_cuda_embedding_run(CudaDevice *d, CudaLibCall *c) {
  const LibTensor *out = &c->t[2];
  CUdeviceptr g = dtm_cuda_tensor(d, c, 0), ids = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr dweight = dtm_cuda_tensor(d, c, 2), keys = d->scratch, numbers;
  int64_t n = c->radix.n, rows = out->extent[0], width = out->extent[1];
  int64_t first = out->offset[0], extent = out->shape[0];
  int64_t parts = dtm_cuda_ceil_div(width, EMBEDDING_COLUMNS);
  uint32_t blocks = (uint32_t)dtm_cuda_ceil_div(n, EMBEDDING_WARPS);
  size_t bytes = (size_t)(rows * width) * abi_dtype_bytes(out->dtype);
  int status = dtm_cuda_set_bytes(d, c, dweight, 0, bytes);
  void *make[] = {&ids, &keys, &n, &rows, &first, &extent, &d->fault, &c->action};
  void *add[] = {&keys, &numbers, &g, &dweight, &n, &rows, &width, &blocks};
  if (!status) status = dtm_cuda_enqueue(d, c, c->kernel[0], n, make);
  if (status || n == 0 || bytes == 0) return status;
  status = dtm_cuda_radix_run(d, c, d->scratch, &keys, &numbers);
  return status ? status : dtm_cuda_enqueue_blocks(d, c, c->kernel[1], blocks * parts, add);
}
