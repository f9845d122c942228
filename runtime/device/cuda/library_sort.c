/* Sorting on a GPU: see library.h, kernels/sort.cu and kernels/radix.cu. */
#include "device/cuda/library.h"

/* --- radix sort ---------------------------------------------------------------------------------
 */

static size_t aligned(size_t bytes) {
  return (bytes + ABI_ALIGN - 1) / ABI_ALIGN * ABI_ALIGN;
}

static size_t key_bytes(const CudaRadix *r) {
  return aligned((size_t)(r->lines * r->n) * r->key_bytes);
}

static size_t number_bytes(const CudaRadix *r) {
  return aligned((size_t)(r->lines * r->n) * sizeof(uint32_t));
}

/* Keys and numbers twice, then the counts. */
size_t dtm_cuda_radix_bytes(const CudaRadix *r) {
  size_t tiles = (size_t)dtm_cuda_ceil_div(r->n, RADIX_TILE);
  return 2 * (key_bytes(r) + number_bytes(r)) +
         (size_t)r->lines * tiles * RADIX_DIGITS * sizeof(uint32_t);
}

int dtm_cuda_radix_prepare(CudaDevice *d, CudaLibCall *c, uint32_t instance) {
  static const char *const names[] = {"radix_count", "radix_scan", "radix_move", NULL};
  CUfunction found[3] = {NULL, NULL, NULL};
  int status = dtm_cuda_kernels(d, c, instance, names, found);
  c->radix.count = found[0];
  c->radix.scan = found[1];
  c->radix.move = found[2];
  c->radix.tiles = (uint32_t)dtm_cuda_ceil_div(c->radix.n, RADIX_TILE);
  return status;
}

int dtm_cuda_radix_run(CudaDevice *d, const CudaLibCall *c, CUdeviceptr scratch, CUdeviceptr *keys,
                       CUdeviceptr *numbers) {
  const CudaRadix *r = &c->radix;
  CUdeviceptr key[2] = {scratch, scratch + key_bytes(r)};
  CUdeviceptr number[2] = {key[1] + key_bytes(r), key[1] + key_bytes(r) + number_bytes(r)};
  CUdeviceptr counts = number[1] + number_bytes(r), none = 0;
  int64_t n = r->n, tiles = r->tiles, blocks = r->lines * tiles;
  uint32_t narrow = r->tiles;
  int at = 0, status = 0;
  for (int32_t bit = r->first_bit; bit < r->bits && !status; bit += 8, at = !at) {
    void *count[] = {&key[at], &counts, &n, &narrow, &bit};
    void *scan[] = {&counts, &tiles};
    void *move[] = {&key[at],  bit == r->first_bit ? &none : &number[at],
                    &key[!at], &number[!at],
                    &counts,   &n,
                    &narrow,   &bit};
    status = dtm_cuda_enqueue_blocks(d, c, r->count, blocks, count);
    if (!status) status = dtm_cuda_enqueue_blocks(d, c, r->scan, r->lines, scan);
    if (!status) status = dtm_cuda_enqueue_blocks(d, c, r->move, blocks, move);
  }
  *keys = key[at];
  *numbers = number[at];
  return status;
}

/* --- sort and topk ------------------------------------------------------------------------------
 */

static int64_t kept(const CudaLibCall *c) {
  return c->t[1].extent[c->args[0]];
}

/* Narrow floats are sorted as f32, whose last bits then tell nothing. */
static int first_bit(uint32_t dtype) {
  switch ((AbiDType)dtype) {
  case ABI_BF16:
  case ABI_F8_E4M3:
  case ABI_F8_E5M2:
    return 16;
  case ABI_F16:
    return 8;
  case ABI_F64:
  case ABI_F32:
  case ABI_I64:
  case ABI_I32:
  case ABI_I16:
  case ABI_I8:
  case ABI_U8:
  case ABI_BOOL:
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return 0;
}

int dtm_cuda_sort_prepare(CudaDevice *d, CudaLibCall *c) {
  static const char *const names[] = {"sort_short", "sort_keys", "sort_finish", NULL};
  CudaLines l = dtm_cuda_lines(&c->t[0], c->args[0]);
  size_t bytes = abi_dtype_bytes(c->t[0].dtype) == 8 ? 8 : 4;
  int status = dtm_cuda_kernels(d, c, 0, names, c->kernel);
  c->direct = l.n <= SORT_SHORT;
  if (c->direct || status) return status;
  c->radix = (CudaRadix){.lines = l.outer * l.inner,
                         .n = l.n,
                         .first_bit = first_bit(c->t[0].dtype),
                         .bits = (int)(8 * bytes),
                         .key_bytes = bytes};
  dtm_cuda_reserve(d, dtm_cuda_radix_bytes(&c->radix));
  return dtm_cuda_radix_prepare(d, c, 1);
}

static int sort_short(CudaDevice *d, CudaLibCall *c, CudaLines l, int32_t descending) {
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), values = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr indices = dtm_cuda_tensor(d, c, 2);
  int64_t lines = l.outer * l.inner, keep = kept(c);
  int32_t width = 1;
  while (width < l.n) width *= 2;
  void *params[] = {&x, &values, &indices, &lines, &l.n, &l.inner, &keep, &width, &descending};
  return dtm_cuda_enqueue_blocks(d, c, c->kernel[0], dtm_cuda_ceil_div(lines, SORT_SHORT / width),
                                 params);
}

static int sort_long(CudaDevice *d, CudaLibCall *c, CudaLines l, int32_t descending) {
  CUdeviceptr x = dtm_cuda_tensor(d, c, 0), values = dtm_cuda_tensor(d, c, 1);
  CUdeviceptr indices = dtm_cuda_tensor(d, c, 2), keys = d->scratch, numbers;
  int64_t lines = l.outer * l.inner, keep = kept(c);
  void *make[] = {&x, &keys, &lines, &l.n, &l.inner, &descending};
  void *take[] = {&x, &numbers, &values, &indices, &lines, &l.n, &l.inner, &keep};
  int status = dtm_cuda_enqueue(d, c, c->kernel[1], lines * l.n, make);
  if (!status) status = dtm_cuda_radix_run(d, c, d->scratch, &keys, &numbers);
  return status ? status : dtm_cuda_enqueue(d, c, c->kernel[2], lines * keep, take);
}

int dtm_cuda_sort_run(CudaDevice *d, CudaLibCall *c) {
  CudaLines l = dtm_cuda_lines(&c->t[0], c->args[0]);
  int32_t descending = c->code == ABI_LIB_TOPK || c->args[1] != 0;
  if (l.outer * l.inner == 0 || kept(c) == 0) return 0;
  return c->direct ? sort_short(d, c, l, descending) : sort_long(d, c, l, descending);
}
