/* Inside fuse/: lowering one group to the loop IR.
 *
 * Instructions are first made over all dims of the group's domain, with accesses whose integers
 * stand for table entries; dims.c then gives dims their roles, merges what is contiguous everywhere
 * and numbers the integers that are left.
 */
#ifndef DTM_FUSE_LOWER_H
#define DTM_FUSE_LOWER_H

#include "fuse/internal.h"

/* Index along one dim of a value: scale * (domain dim's index) + offset + dyn. */
typedef struct Ix {
  int8_t dim; /* DIM_UNIT: none */
  SymId scale, offset;
  KRef dyn; /* i64 value, 0 = none */
} Ix;

/* A value kept in the memory of an output until the output itself is computed. */
typedef struct Spill {
  ValueId value;
  KAccess access;
} Spill;

typedef struct Lower {
  Fuser *f;
  uint32_t group;
  KGroup *k;
  KBuilder b;
  bool loop;             /* in a LOOP block */
  bool vec;              /* the kernel has a vector dim */
  bool blocks;           /* totals of one long dim: each block of it reduces to one element */
  VEC(SymId) ints;       /* per integer of the kernel */
  VEC(FValueId) bufs;    /* per buffer */
  IdMap memo;            /* (block, root value) -> KRef of the value under the group's map */
  VEC(FValueId) written; /* stored in an earlier block, or this one */
  VEC(Spill) spills;
  uint32_t block; /* counts blocks from 1; 0 = values for all later blocks */
  SymId chunk_rows, nchunks;
} Lower;

/* --- eval.c ---- */
KRef fuse_eval(Lower *l, ValueId v, const Ix *ix, KRef pred);
/* The root value of a node of the group, under the group's map. */
KRef fuse_eval_node(Lower *l, NodeId id);
/* Notes the node with the instructions that follow; returns what was noted before. */
KNote fuse_note(Lower *l, NodeId id);
KInt fuse_slot(Lower *l, SymId s);
uint32_t fuse_buffer(Lower *l, FValueId v, DType dtype, bool written);
/* Domain strides of a dense value under an index map; *dyn gets the run-time part (or 0). */
KAccess fuse_access(Lower *l, uint32_t buf, const TensorType *t, const Ix *ix, KRef *dyn);
/* The index map of a node's result (or, for a reduction, operand) in the group. */
void fuse_node_ix(const Lower *l, NodeId id, Ix *ix);
void fuse_memo(Lower *l, ValueId root, KRef ref, bool for_all);
/* The instruction that holds a value in this block, or 0. */
KRef fuse_recall(const Lower *l, ValueId root);
const Spill *fuse_spilled(const Lower *l, ValueId root);

/* --- dims.c ---- */
/* Gives the finished instructions their dims; fills ints. */
Kernel *fuse_place_dims(Lower *l);
int fuse_vec_dim(const KGroup *k); /* -1 = none */

#endif
