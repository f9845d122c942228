/* Which part of a variable a rank holds, and where that lies in the tensor of a file.
 *
 * A file may store a variable otherwise than the program declares it (AbiVar.transposed, .chunks):
 * dims 0 and 1 merged into one, [3, D, I] as [3 D, I], and then the last dim first, [I, 3 D]. The
 * elements of a file are those of the variable with its dims in another order, so both are an order
 * of dims and nothing else.
 */
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
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS];
  bool first; /* coordinate 0 on every Partial axis */
  bool owner; /* the one rank that writes this block: coordinate 0 where it is not sharded */
} VarBlock;

void dtm_rt_var_block(const Image *image, uint32_t var, int32_t rank, VarBlock *block);

/* The shape of the variable's tensor in a file; returns its rank. */
uint32_t dtm_rt_var_file_shape(const AbiVar *var, const AbiType *type, int64_t shape[ABI_MAX_DIMS]);

/* The elements of a block. */
int64_t dtm_rt_var_count(const VarBlock *block);

/* A run of elements that lie side by side in the file's tensor (row-major), and `step` elements
 * apart in the rank's block. */
typedef struct VarRun {
  int64_t global, local, step, count;
} VarRun;

/* Calls `each` for the runs of a block, in the order of the file, as long as it returns 0; returns
 * what it did. */
int dtm_rt_var_runs(const VarBlock *block, int (*each)(void *context, VarRun run), void *context);

/* Whether this rank keeps the value when a full tensor is cut (else it gets *neutral on all
 * elements): Partial(sum), xor keep it on coordinate 0 of the axis, product too, the others on
 * every rank. */
bool dtm_rt_var_keeps(const VarBlock *block, int64_t *neutral);

#endif
