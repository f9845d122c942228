/* The chunk rule, shared by compiler and runtime: which block of a tensor a rank holds.
 *
 * Extent n over P ranks: c = ceil(n / P), rank r holds [min(c*r, n), min(c*(r+1), n))
 * (torch.chunk). Nested axes chunk hierarchically, outer first. An empty block along a cut dim
 * reports the global extent as its offset, also where the nested formula gives less: offsets are
 * not monotone over ranks, so displacements must never be derived from them.
 */
#ifndef DTM_RT_BLOCKS_H
#define DTM_RT_BLOCKS_H

#include "runtime/abi/abi.h"

/* [*begin, *begin + *length) of part r of `parts` of an extent. */
static inline void abi_chunk(int64_t extent, int64_t parts, int64_t r, int64_t *begin,
                             int64_t *length) {
  int64_t c = (extent + parts - 1) / parts;
  int64_t lo = c * r < extent ? c * r : extent, hi = c * (r + 1) < extent ? c * (r + 1) : extent;
  *begin = lo;
  *length = hi - lo;
}

/* The part of dim `dim` (global extent `extent`) held at mesh coordinates `coord` under placements
 * `at` on a mesh with these sizes. */
static inline void abi_block_dim(int64_t extent, uint32_t dim, const AbiPlace at[ABI_MAX_AXES],
                                 const int64_t size[ABI_MAX_AXES],
                                 const int64_t coord[ABI_MAX_AXES], int64_t *offset,
                                 int64_t *local) {
  int64_t first = 0, rest = extent;
  int cut = 0;
  for (uint32_t order = 0, found = 1; found; order++) {
    found = 0;
    for (uint32_t a = 0; a < ABI_MAX_AXES && !found; a++) {
      if (at[a].kind != ABI_SHARD || at[a].dim != dim || at[a].order != order) continue;
      int64_t begin;
      abi_chunk(rest, size[a], coord[a], &begin, &rest);
      first += begin;
      found = cut = 1;
    }
  }
  *offset = cut && rest == 0 ? extent : first;
  *local = rest;
}

/* Row-major coordinates of position `pos`. */
static inline void abi_coords(const AbiMesh *mesh, int64_t pos, int64_t coord[ABI_MAX_AXES]) {
  for (uint32_t a = ABI_MAX_AXES; a-- > 0;) {
    coord[a] = 0;
    if (a >= mesh->naxes) continue;
    coord[a] = pos % mesh->size[a];
    pos /= mesh->size[a];
  }
}

static inline int64_t abi_position(const AbiMesh *mesh, const int64_t coord[ABI_MAX_AXES]) {
  int64_t pos = 0;
  for (uint32_t a = 0; a < mesh->naxes; a++) pos = pos * mesh->size[a] + coord[a];
  return pos;
}

/* The block (global offsets, local extents) of a type at mesh coordinates. */
static inline void abi_block(const AbiType *type, const AbiMesh *mesh,
                             const int64_t coord[ABI_MAX_AXES], int64_t offset[ABI_MAX_DIMS],
                             int64_t extent[ABI_MAX_DIMS]) {
  for (uint32_t d = 0; d < type->rank; d++)
    abi_block_dim(type->shape[d], d, type->at, mesh->size, coord, &offset[d], &extent[d]);
}

#endif
