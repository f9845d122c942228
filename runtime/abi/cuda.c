/* Opening the blob of GPU code, choosing code for a chip, launch sizes: see cuda.h. */
#include "runtime/abi/cuda.h"

#include <stdio.h>
#include <string.h>

#include "runtime/abi/digest.h"

static int in_range(uint64_t offset, uint64_t count, uint64_t record, uint64_t size) {
  return offset <= size && offset % 8 == 0 && count <= (size - offset) / record;
}

static const char *check_records(const AbiCuda *c) {
  const AbiCudaHeader *h = c->header;
  for (uint32_t i = 0; i < h->nfunctions; i++) {
    const AbiCudaFunction *f = &c->functions[i];
    if (f->name >= h->string_bytes || f->entry >= h->string_bytes || f->module >= h->nmodules)
      return "a function is out of range";
    if (f->kind == ABI_CUDA_GENERATED &&
        (f->vec >= (int64_t)f->nints || f->across >= (int64_t)f->nints))
      return "a kernel has no such integer";
    if (f->kind == ABI_CUDA_GENERATED && !f->width) return "a kernel has no width";
  }
  for (uint32_t i = 0; i < h->nimages; i++) {
    const AbiCudaImage *m = &c->images[i];
    if (m->module >= h->nmodules || m->offset > h->size || m->bytes > h->size - m->offset)
      return "code is out of range";
  }
  return NULL;
}

const char *abi_cuda_open(const unsigned char *data, size_t size, AbiCuda *cuda) {
  const AbiCudaHeader *h = (const AbiCudaHeader *)(const void *)data;
  if (size < sizeof *h || h->magic != ABI_CUDA_MAGIC) return "no GPU code";
  if (h->version != ABI_CUDA_VERSION || h->signature != abi_cuda_signature())
    return "GPU code of another version of dtmc";
  if (h->size != size) return "GPU code is cut off";
  if (!in_range(h->functions, h->nfunctions, sizeof(AbiCudaFunction), size) ||
      !in_range(h->images, h->nimages, sizeof(AbiCudaImage), size) ||
      !in_range(h->strings, h->string_bytes, 1, size) || !h->string_bytes ||
      data[h->strings + h->string_bytes - 1])
    return "a table of the GPU code is out of range";
  *cuda = (AbiCuda){.header = h,
                    .functions = (const void *)(data + h->functions),
                    .images = (const void *)(data + h->images),
                    .strings = (const char *)(data + h->strings)};
  return check_records(cuda);
}

uint64_t abi_cuda_digest(const unsigned char *blob) {
  AbiCudaHeader h;
  memcpy(&h, blob, sizeof h);
  h.digest = 0;
  return abi_digest(abi_digest(0, &h, sizeof h), blob + sizeof h,
                    h.strings + h.string_bytes - sizeof h);
}

const AbiCudaImage *abi_cuda_image(const AbiCuda *cuda, uint32_t module, uint32_t capability) {
  const AbiCudaImage *best = NULL;
  for (uint32_t i = 0; i < cuda->header->nimages; i++) {
    const AbiCudaImage *m = &cuda->images[i];
    if (m->module != module || m->arch > capability) continue;
    int binary = m->format == ABI_CUDA_CUBIN;
    if (binary && m->arch / 10 != capability / 10) continue;
    int better = !best || (binary && best->format != ABI_CUDA_CUBIN) ||
                 (m->format == best->format && m->arch > best->arch);
    if (better) best = m;
  }
  return best;
}

void abi_cuda_list(const AbiCuda *cuda, uint32_t module, char *text, size_t size) {
  size_t n = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < cuda->header->nimages && n < size; i++) {
    const AbiCudaImage *m = &cuda->images[i];
    if (m->module != module) continue;
    n += (size_t)snprintf(text + n, size - n, "%s%s_%u", n ? ", " : "",
                          m->format == ABI_CUDA_PTX ? "compute" : "sm", (unsigned)m->arch);
  }
}

static int64_t int_of(const int64_t *ints, int32_t which) {
  return which == ABI_CUDA_INT_ZERO ? 0 : which == ABI_CUDA_INT_ONE ? 1 : ints[which];
}

static int64_t pieces(int64_t n, int64_t size) {
  return n / size + (n % size != 0);
}

/* Few threads for a short row: the smallest power of two that takes it at once, within a warp;
 * rows that would keep a warp busy for many rounds get a whole block. */
static int32_t group_of(const AbiCudaFunction *f, int64_t n) {
  enum { WARP = 32, ROUNDS = 8 };
  int64_t threads = pieces(n, f->width);
  if (f->flags & ABI_CUDA_COLUMNS && threads > WARP) return WARP;
  if (threads > (f->flags & ABI_CUDA_LANES ? WARP : WARP * ROUNDS)) return ABI_CUDA_BLOCK;
  int32_t group = 1;
  while (group < threads && group < WARP) group *= 2;
  return group;
}

/* Tiles in place of `tasks`; 0 where extents are so small that threads of one block read all of a
 * word of memory, one after the other, without them. */
static int64_t tiles_of(const AbiCudaFunction *f, const int64_t *ints, int64_t tasks) {
  enum { FEW = 8 };
  if (!f->side || int_of(ints, f->vec) <= FEW || int_of(ints, f->across) <= FEW) return 0;
  int64_t across = int_of(ints, f->across);
  return tasks / across * pieces(across, f->side);
}

AbiCudaLaunch abi_cuda_launch(const AbiCudaFunction *f, const int64_t *ints, int64_t tasks) {
  enum { MAX_GRID = 1 << 15 }; /* kernels go on from there in steps of the grid */
  int64_t n = int_of(ints, f->vec);
  if (tasks <= 0) return (AbiCudaLaunch){0, 1, 0};
  int64_t tiles = tiles_of(f, ints, tasks);
  if (f->vec_block && n > f->vec_block) n = f->vec_block;
  int32_t group = tiles ? ABI_CUDA_BLOCK : group_of(f, n);
  if (tiles) tasks = tiles;
  if (f->flags & ABI_CUDA_COLUMNS) tasks *= pieces(n, (int64_t)group * f->width);
  int64_t grid = pieces(tasks, ABI_CUDA_BLOCK / group);
  return (AbiCudaLaunch){(uint32_t)(grid < MAX_GRID ? grid : MAX_GRID), group, tasks};
}
