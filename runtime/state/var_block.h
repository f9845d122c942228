/* Which part of a variable a rank holds, and where that lies in a full tensor. */
#ifndef DTM_RT_VAR_BLOCK_H
#define DTM_RT_VAR_BLOCK_H

#include <stdbool.h>

#include "runtime/abi/image.h"

/* One rank's view of a variable. */
typedef struct VarBlock {
  const AbiVar *var;
  const AbiType *type;
  const AbiMesh *mesh;
  bool present; /* the rank is in the mesh */
  int64_t position, coord[ABI_MAX_AXES];
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS]; /* of chunk 0; dim 0 within the chunk */
  int64_t chunks, chunk_extent; /* dim 0 is `chunks` pieces of `chunk_extent` rows, each sharded */
  bool first;                   /* coordinate 0 on every Partial axis */
  bool owner; /* the one rank that writes this block: coordinate 0 where it is not sharded */
} VarBlock;

/* False when the rows of a chunk do not cut evenly (then blocks of the whole and of chunks
 * differ). */
bool dtm_rt_var_block(const Image *image, uint32_t var, int32_t rank, VarBlock *block);

/* A run of elements that lie side by side in the full tensor (row-major) and in the rank's block.
 */
typedef struct VarRun {
  int64_t global, local, count;
} VarRun;

/* Calls `each` for the runs of a block, in order, as long as it returns 0; returns what it did. */
int dtm_rt_var_runs(const VarBlock *block, int (*each)(void *context, VarRun run), void *context);

/* Whether this rank keeps the value when a full tensor is cut (else it gets *neutral on all
 * elements): Partial(sum), xor keep it on coordinate 0 of the axis, product too, the others on
 * every rank. */
bool dtm_rt_var_keeps(const VarBlock *block, int64_t *neutral);

#endif
