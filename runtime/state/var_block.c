/* Blocks of variables: see var_block.h. */
#include "state/var_block.h"

#include <string.h>

#include "runtime/abi/blocks.h"

void dtm_rt_var_block(const Image *image, uint32_t var, int32_t rank, VarBlock *b) {
  memset(b, 0, sizeof *b);
  b->var = &image->var[var];
  b->type = &image->type[b->var->type];
  b->mesh = abi_type_mesh(image, b->type);
  b->position = abi_mesh_position(image, b->mesh, rank);
  b->present = b->position >= 0;
  if (!b->present) return;
  abi_coords(b->mesh, b->position, b->coord);
  b->first = b->owner = true;
  for (uint32_t a = 0; a < b->mesh->naxes; a++) {
    if (b->coord[a] == 0) continue;
    if (b->type->at[a].kind != ABI_SHARD) b->owner = false;
    if (b->type->at[a].kind == ABI_PARTIAL) b->first = false;
  }
  abi_block(b->type, b->mesh, b->coord, b->offset, b->extent);
}

/* The variable's dims in the order in which the file has them. */
static void file_order(const AbiVar *var, const AbiType *type, uint32_t order[ABI_MAX_DIMS]) {
  bool turned = var->transposed && type->rank > 1;
  for (uint32_t k = 0; k < type->rank; k++)
    order[k] = !turned ? k : k == 0 ? type->rank - 1 : k - 1;
}

uint32_t dtm_rt_var_file_shape(const AbiVar *var, const AbiType *type,
                               int64_t shape[ABI_MAX_DIMS]) {
  uint32_t order[ABI_MAX_DIMS], n = 0;
  bool merge = var->chunks > 1 && type->rank > 1;
  file_order(var, type, order);
  for (uint32_t k = 0; k < type->rank; k++) {
    int64_t extent = type->shape[order[k]];
    if (merge && order[k] == 1 && k > 0 && order[k - 1] == 0)
      shape[n - 1] *= extent;
    else
      shape[n++] = extent;
  }
  return n;
}

int64_t dtm_rt_var_count(const VarBlock *b) {
  int64_t n = 1;
  for (uint32_t d = 0; d < b->type->rank; d++) n *= b->extent[d];
  return n;
}

/* One dim of a walk through a block in the order of the file. */
typedef struct Walk {
  int64_t index, extent, local, global; /* strides in elements */
} Walk;

int dtm_rt_var_runs(const VarBlock *b, int (*each)(void *context, VarRun run), void *context) {
  uint32_t rank = b->type->rank, order[ABI_MAX_DIMS];
  Walk walk[ABI_MAX_DIMS];
  int64_t local_stride[ABI_MAX_DIMS], inner = 1, first = 0;
  if (dtm_rt_var_count(b) == 0) return 0;
  for (uint32_t d = rank; d-- > 0; inner *= b->extent[d]) local_stride[d] = inner;
  file_order(b->var, b->type, order);
  inner = 1;
  for (uint32_t k = rank; k-- > 0; inner *= b->type->shape[order[k]]) {
    uint32_t d = order[k];
    walk[k] = (Walk){0, b->extent[d], local_stride[d], inner};
    first += b->offset[d] * inner;
  }
  /* The innermost dims are one run as long as they are one in the file and in the block. */
  uint32_t outer = rank ? rank - 1 : 0;
  VarRun run = {.count = rank ? walk[outer].extent : 1, .step = rank ? walk[outer].local : 1};
  while (outer > 0 && walk[outer - 1].global == run.count &&
         walk[outer - 1].local == run.count * run.step)
    run.count *= walk[--outer].extent;
  for (;;) {
    run.global = first;
    run.local = 0;
    for (uint32_t k = 0; k < outer; k++) {
      run.global += walk[k].index * walk[k].global;
      run.local += walk[k].index * walk[k].local;
    }
    int status = each(context, run);
    if (status) return status;
    int64_t k = (int64_t)outer - 1; /* the dims before the run count like an odometer */
    while (k >= 0 && ++walk[k].index == walk[k].extent) walk[k--].index = 0;
    if (k < 0) return 0;
  }
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
