/* Kernels as values: equality, the set of distinct ones, compute types. See kernel.h. */
#include "kernel/kernel.h"

#include <string.h>

DType kernel_compute_type(DType storage) {
  return dtype_is_float(storage) && storage != DT_F64 ? DT_F32 : storage;
}

uint32_t kernel_lanes(const Kernel *k) {
  for (uint32_t i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].type == DT_F64) return KERNEL_LANES / 2;
  return KERNEL_LANES;
}

/* Everything but pointers, names and notes. Instructions and dims are zeroed before they are filled
 * (build.c), so bytes decide. */
uint64_t kernel_hash(const Kernel *k) {
  const int64_t head[] = {k->ndims,      k->nbufs,   k->nints,     k->ninstrs, k->nblocks,
                          k->chunk_rows, k->nchunks, k->vec_block, k->lanes};
  uint64_t h = hash_bytes(head, sizeof head, 0);
  h = hash_bytes(k->dims, sizeof(KDim) * k->ndims, h);
  h = hash_bytes(k->bufs, sizeof(KBuf) * k->nbufs, h);
  h = hash_bytes(k->blocks, sizeof(KBlock) * k->nblocks, h);
  return hash_bytes(k->instrs, sizeof(KInstr) * k->ninstrs, h);
}

static bool same(const void *a, const void *b, size_t n) {
  return n == 0 || memcmp(a, b, n) == 0;
}

bool kernel_equal(const Kernel *a, const Kernel *b) {
  return a->ndims == b->ndims && a->nbufs == b->nbufs && a->nints == b->nints &&
         a->ninstrs == b->ninstrs && a->nblocks == b->nblocks && a->chunk_rows == b->chunk_rows &&
         a->nchunks == b->nchunks && a->vec_block == b->vec_block && a->lanes == b->lanes &&
         same(a->dims, b->dims, sizeof(KDim) * a->ndims) &&
         same(a->bufs, b->bufs, sizeof(KBuf) * a->nbufs) &&
         same(a->blocks, b->blocks, sizeof(KBlock) * a->nblocks) &&
         same(a->instrs, b->instrs, sizeof(KInstr) * a->ninstrs);
}

static void *copy(Arena *arena, const void *data, size_t n) {
  void *p = arena_alloc(arena, n);
  if (n) memcpy(p, data, n);
  return p;
}

uint32_t kernel_set_add(Arena *arena, KernelSet *set, const Kernel *k, const char *hint) {
  /* Kernels whose hashes collide are told apart by trying the next key. */
  uint64_t key = kernel_hash(k);
  for (uint32_t found; id_map_get(&set->by_hash, key, &found); key++)
    if (kernel_equal(set->kernels.data[found], k)) return found;
  Kernel *mine = ARENA_NEW(arena, Kernel);
  *mine = *k;
  mine->name = arena_printf(arena, "k%u_%s", set->kernels.len, hint);
  mine->bufs = copy(arena, k->bufs, sizeof(KBuf) * k->nbufs);
  mine->instrs = copy(arena, k->instrs, sizeof(KInstr) * k->ninstrs);
  mine->blocks = copy(arena, k->blocks, sizeof(KBlock) * k->nblocks);
  if (k->notes) mine->notes = copy(arena, k->notes, sizeof(KNote) * k->ninstrs);
  if (k->buf_names) mine->buf_names = copy(arena, k->buf_names, sizeof(char *) * k->nbufs);
  id_map_put(arena, &set->by_hash, key, set->kernels.len);
  VEC_PUSH(arena, &set->kernels, mine);
  return set->kernels.len - 1;
}
