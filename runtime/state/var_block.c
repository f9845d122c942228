/* Blocks of variables: see var_block.h. */
#include "state/var_block.h"

#include <string.h>

#include "runtime/abi/blocks.h"

bool dtm_rt_var_block(const Image *image, uint32_t var, int32_t rank, VarBlock *b) {
  memset(b, 0, sizeof *b);
  b->var = &image->var[var];
  b->type = &image->type[b->var->type];
  b->mesh = abi_type_mesh(image, b->type);
  b->chunks = b->type->rank && b->var->chunks > 1 ? b->var->chunks : 1;
  b->chunk_extent = b->type->rank ? b->type->shape[0] / b->chunks : 1;
  b->position = abi_mesh_position(image, b->mesh, rank);
  b->present = b->position >= 0;
  if (!b->present) return true;
  abi_coords(b->mesh, b->position, b->coord);
  b->first = b->owner = true;
  for (uint32_t a = 0; a < b->mesh->naxes; a++) {
    if (b->coord[a] == 0) continue;
    if (b->type->at[a].kind != ABI_SHARD) b->owner = false;
    if (b->type->at[a].kind == ABI_PARTIAL) b->first = false;
  }
  AbiType chunk = *b->type;
  if (chunk.rank) chunk.shape[0] = b->chunk_extent;
  abi_block(&chunk, b->mesh, b->coord, b->offset, b->extent);
  if (b->chunks == 1) return true;
  int64_t offset, local;
  abi_block_dim(b->type->shape[0], 0, b->type->at, b->mesh->size, b->coord, &offset, &local);
  return b->chunk_extent * b->chunks == b->type->shape[0] && local == b->extent[0] * b->chunks;
}

int dtm_rt_var_runs(const VarBlock *b, int (*each)(void *context, VarRun run), void *context) {
  uint32_t rank = b->type->rank;
  const int64_t *shape = b->type->shape;
  for (uint32_t d = 0; d < rank; d++)
    if (b->extent[d] == 0) return 0;
  /* Dims from `whole` on are held in full; the one before them makes the run longer. */
  uint32_t whole = rank;
  int64_t inner = 1;
  while (whole > 1 && b->extent[whole - 1] == shape[whole - 1]) inner *= shape[--whole];
  int64_t count = whole > 0 ? inner * b->extent[whole - 1] : 1, local = 0;
  for (int64_t c = 0; c < b->chunks; c++) {
    int64_t index[ABI_MAX_DIMS] = {0};
    for (;;) {
      int64_t global = 0;
      for (uint32_t d = 0; d < rank; d++)
        global = global * shape[d] + (d == 0 ? c * b->chunk_extent : 0) + b->offset[d] + index[d];
      int status = each(context, (VarRun){global, local, count});
      if (status) return status;
      local += count;
      int64_t d = (int64_t)whole - 2; /* the dims before the run count like an odometer */
      while (d >= 0 && ++index[d] == b->extent[d]) index[d--] = 0;
      if (d < 0) break;
    }
  }
  return 0;
}

bool dtm_rt_var_keeps(const VarBlock *b, int64_t *neutral) {
  *neutral = 0;
  for (uint32_t a = 0; a < b->mesh->naxes; a++) {
    if (b->type->at[a].kind != ABI_PARTIAL || b->coord[a] == 0) continue;
    uint8_t op = b->type->at[a].op;
    if (op == ABI_PRODUCT) *neutral = 1;
    if (op == ABI_SUM || op == ABI_XOR || op == ABI_PRODUCT) return false;
  }
  return true;
}
