/* fuse: from the local graph to an ordered list of groups, each one kernel, library call,
 * collective, alias or structural step.
 *
 * Every value a group reads or writes is dense, row-major, in the local shape of the rank. Groups
 * stand in an order in which every input is ready. Integers that depend on the rank (extents,
 * strides, offsets, task counts) are entries of one table (runtime/abi/sym.h).
 */
#ifndef DTM_FUSE_FUSE_H
#define DTM_FUSE_FUSE_H

#include "ir/graph.h"
#include "kernel/kernel.h"
#include "runtime/abi/sym.h"

typedef uint32_t SymId;    /* index into FusedProgram.syms; 0 is the constant 0, 1 the constant 1 */
typedef uint32_t FValueId; /* index into FusedProgram.values; 0 = none */

/* A piece of storage: a graph value that is materialised, or a temporary of the fuser (partial
 * results of a reduction in two levels). */
typedef struct FValue {
  ValueId value; /* 0 = temporary */
  DType dtype;
  SymId elements;     /* on this rank */
  int64_t max_bytes;  /* on the rank with the most: size of the buffer */
  FValueId alias;     /* 0, or the value whose storage this one lies in (never itself an alias) */
  SymId alias_offset; /* elements */
} FValue;

typedef enum GroupKind {
  GROUP_KERNEL = 1,
  GROUP_CONTRACT,   /* matmul, linear, einsum by oneDNN, with epilogue */
  GROUP_COLLECTIVE, /* CLASS_COMM node that moves data between ranks */
  GROUP_VIEW,       /* outputs[0] is an alias of inputs[0]: nothing to run */
  GROUP_LIBRARY,    /* a C function of the runtime: sort, topk, cumsum, embedding_backward ... */
  GROUP_STRUCTURE   /* READ, ASSIGN, INPUT, OUTPUT */
} GroupKind;

/* out = activation(contraction + bias), then + addend; parts that are absent are 0. Only what
 * oneDNN fuses: activation relu gelu gelu_tanh silu sigmoid tanh. */
typedef struct Epilogue {
  FValueId bias;   /* [last dim of the output]; also the third operand of LINEAR */
  Op activation;   /* OP_NONE = none */
  FValueId addend; /* same type as the output; the output may take its place */
} Epilogue;

typedef struct Group {
  GroupKind kind;
  NodeId node;   /* the node that names it in messages, traces and reports */
  NodeId *nodes; /* all nodes it computes (a node may be recomputed in several groups) */
  uint32_t nnodes;
  FValueId *inputs, *outputs; /* distinct; for CONTRACT, COLLECTIVE, LIBRARY, STRUCTURE inputs[i] is
                                 operand i of `node`, followed by those of the epilogue */
  uint32_t ninputs, noutputs;
  /* in_place[o]: bit i set = output o may take the storage of input i when that dies here. */
  uint64_t *in_place;
  Epilogue epilogue; /* CONTRACT */
  /* KERNEL */
  uint32_t kernel; /* index into FusedProgram.kernels */
  FValueId *bufs;  /* per kernel buffer; 0 = the step block (KBUF_STEP) */
  SymId *ints;     /* per kernel integer */
  SymId tasks;     /* call with [begin, end) within [0, tasks) */
  SymId work;      /* elements touched by all tasks, to decide how many threads pay off */
} Group;

typedef struct FusedProgram {
  const Graph *graph;
  VEC(RtSym) syms;
  IdMap sym_ids;            /* by content */
  VEC(const Mesh *) meshes; /* that COORD entries name */
  VEC(FValue) values;
  VEC(Group) groups;
  FValueId *value_of; /* per ValueId; 0 = not materialised */
  KernelSet *kernels; /* shared by the blocks of one program */
} FusedProgram;

/* What suits that which runs the kernels: a few cores that each keep a piece in their cache, or
 * thousands of threads that all need one, beside a memory that arithmetic waits for. Sizes alone
 * decide, never the device at hand. */
typedef struct FuseTarget {
  uint32_t vec_block;  /* elements of one parallel piece of a long vector dim; a multiple of
                          KERNEL_LANES */
  int64_t chunk_bytes; /* of what one chunk of a reduction over rows reads, roughly */
  int64_t chunks_most;
  double arithmetic; /* its price beside memory traffic: 1 = that of a core, see recompute.c */
  bool spills;       /* a dear value of an earlier loop over the row is kept in memory for a later
                        one, rather than computed again */
  bool wide_columns; /* sums over rows, one per column, are f64 in kernels that reduce rows too */
} FuseTarget;

extern const FuseTarget fuse_target_cpu, fuse_target_cuda;

typedef struct FuseOptions {
  bool enabled; /* false: one kernel per node, for tests of fusion on = off */
  bool apart;   /* groups that are alike are lowered each by itself, for the test of reuse.c */
  const FuseTarget *target; /* NULL = fuse_target_cpu */
} FuseOptions;

/* Builds the fused form of `local`. Kernels go to `kernels`. Everything lives in `arena`. */
FusedProgram *fuse_run(Arena *arena, const Graph *local, KernelSet *kernels,
                       const FuseOptions *options);
/* Text of --emit=fused. */
void fuse_print(StrBuf *out, const FusedProgram *p);
/* NULL, or what is wrong: order, undefined inputs, aliases. */
const char *fuse_verify(Arena *arena, const FusedProgram *p);

/* Values of all syms on a rank: coords[mesh] are its coordinates on meshes.data[mesh]. */
void fuse_eval_syms(const FusedProgram *p, const int64_t (*coords)[DTM_MAX_AXES], int64_t *out);
/* Table entries, shared when equal; constants fold. */
SymId sym_const(Arena *arena, FusedProgram *p, int64_t value);
SymId sym_extent(Arena *arena, FusedProgram *p, const TensorType *t, uint32_t dim);
SymId sym_offset(Arena *arena, FusedProgram *p, const TensorType *t, uint32_t dim);
SymId sym_binary(Arena *arena, FusedProgram *p, RtSymOp op, SymId a, SymId b);

#endif
