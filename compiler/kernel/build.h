/* Building a kernel: appends blocks and instructions, expands pointwise rows of ops.def into
 * primitives, shares equal pure instructions. */
#ifndef DTM_KERNEL_BUILD_H
#define DTM_KERNEL_BUILD_H

#include "kernel/kernel.h"

typedef struct KBuilder {
  Arena *arena;
  KDim dims[KERNEL_MAX_DIMS];
  uint32_t ndims;
  uint32_t nints;
  KInt chunk_rows, nchunks;
  uint32_t vec_block;
  bool lanes;
  KNote at; /* noted with instructions that are made */
  VEC(KBuf) bufs;
  VEC(const char *) buf_names; /* set by the caller, or NULL */
  VEC(KInstr) instrs;
  VEC(KNote) notes;
  VEC(KBlock) blocks;
} KBuilder;

void kb_init(KBuilder *b, Arena *arena);
void kb_dim(KBuilder *b, KDimRole role, KInt extent);
KInt kb_int(KBuilder *b); /* a new run-time integer */
uint32_t kb_buf(KBuilder *b, KBufKind kind, DType storage, bool written);
/* Starts a block; instructions that follow belong to it. An empty block is dropped by kb_finish. */
void kb_block(KBuilder *b, bool loop);

/* An access with all strides and the offset zero. */
KAccess kb_access(uint32_t buf);
DType kb_type(const KBuilder *b, KRef ref);

KRef kb_const(KBuilder *b, DType type, double value);
KRef kb_const_int(KBuilder *b, DType type, int64_t value);
/* The run-time integer as an i64 value. */
KRef kb_int_value(KBuilder *b, KInt which);
KRef kb_index(KBuilder *b, KAccess access);
KRef kb_load(KBuilder *b, KAccess access, KRef index, KRef predicate);
void kb_store(KBuilder *b, KAccess access, KRef value, KRef predicate);
void kb_accum(KBuilder *b, KAccess access, ReduceOp op, KRef value);
KRef kb_reduce(KBuilder *b, ReduceOp op, KRef value);
KRef kb_random(KBuilder *b, KRandom kind, KInt instance, KRef index, uint32_t step_buf);
/* Any pointwise operator but CAST; operands of the types ops.def asks for. */
KRef kb_point(KBuilder *b, Op op, KRef x, KRef y, KRef z);
/* Conversion to any element type, storage types included (rounded, then held in f32). */
KRef kb_cast(KBuilder *b, KRef value, DType to);
Kernel *kb_finish(KBuilder *b);

#endif
