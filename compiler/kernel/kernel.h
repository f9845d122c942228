/* Loop IR of one kernel: what one fused group computes, free of shapes and of any target.
 *
 * A kernel is a nest of loops and blocks of scalar code. Extents, strides and offsets are run-time
 * integers (`ints`), so one kernel serves every size and every rank, and kernels with equal content
 * are one kernel (kernel_hash, kernel_equal).
 *
 *   void k(void *const *bufs, const int64_t *ints, int64_t begin, int64_t end)
 *
 *   for task in [begin, end):                     task = (grid index, chunk or vector block)
 *     for row in the task's rows:                 ROW dims only; else once
 *       for each block in order:
 *         SCALAR  its instructions once
 *         LOOP    for INNER dims, for VEC dim in vectors: its instructions
 *
 * Loop dims, outer to inner, by role:
 *   GRID   parallel; linearised into the task number
 *   ROW    run one after another within a task, cut into chunks of ints[chunk_rows] rows; a task is
 *          one chunk. ACCUM instructions add up over the rows of a chunk
 *   INNER  sequential, around the vector dim, in every LOOP block
 *   VEC    the innermost, at most one, vectorised
 * A REDUCE over a vector dim that is cut in blocks reduces the block; what SCALAR code stores of it
 * has the number of the block for the index of that dim.
 *
 * With `lanes` a REDUCE keeps the vector dim: it reduces INNER dims, one result per element of the
 * vector dim, and SCALAR blocks run once for each of these elements. The nest is then
 *
 *   for task in [begin, end):                     task = (grid index, strip)
 *     for each block in order:
 *       SCALAR  for the VEC dim of the strip in vectors: its instructions
 *       LOOP    for INNER dims, for the VEC dim of the strip in vectors: its instructions
 *
 * where a strip is vec_block elements of the vector dim, and what later blocks use of an element is
 * kept beside it on the stack. Strips vary fastest: neighbours in memory are neighbours in time.
 * There are no ROW dims, and all that is stored depends on the vector dim. Softmax along a dim that
 * is not the innermost is such a kernel.
 *
 * Without ROW dims a task is one grid point; with `vec_block` it is one grid point and one block of
 * that many elements of the vector dim, and the blocks vary slowest: transposing copies then stay
 * within a cache. (GPUs take tiles instead: codegen/cuda_tile.c.)
 *
 * Results never depend on how [0, tasks) is split between calls: chunks are part of the kernel's
 * integers, and vectors have a fixed number of lanes (kernel_lanes).
 *
 * Arithmetic: bf16, f16 and f8 are storage; they are loaded into f32 and rounded (to nearest even)
 * when stored or cast. f32, f64, integers and bool compute in their own type. No fast-math; sums
 * and products over lanes are reassociated into a fixed tree. max and min propagate NaN.
 */
#ifndef DTM_KERNEL_KERNEL_H
#define DTM_KERNEL_KERNEL_H

#include "base/vec.h"
#include "diag/diag.h"
#include "ops/ops.h"

enum {
  KERNEL_MAX_DIMS = DTM_MAX_DIMS,
  KERNEL_LANES = 16,
  KERNEL_TURN_BLOCK = 32, /* where an operand is read across its rows */
  KERNEL_STRIP = 256      /* of the vector dim, per task of a kernel with lanes */
};

typedef enum KDimRole { KDIM_GRID = 1, KDIM_ROW, KDIM_INNER, KDIM_VEC } KDimRole;

/* Index into ints, or one of the two values that shape the code. */
typedef int32_t KInt;
enum { KINT_ZERO = -1, KINT_ONE = -2 };

typedef struct KDim {
  uint8_t role; /* KDimRole; roles are ascending over dims */
  KInt extent;
} KDim;

/* Element address: offset + sum over dims of stride * loop index. */
typedef struct KAccess {
  uint32_t buf;
  KInt offset;
  KInt stride[KERNEL_MAX_DIMS]; /* per kernel dim */
} KAccess;

typedef uint32_t KRef; /* instruction number + 1; 0 = none */

typedef enum KKind {
  K_NONE = 0,
  K_CONST,  /* imm (f for floats, i for integers and bool) */
  K_INDEX,  /* i64: ints[offset] + stride * loop index, through `access` (buf unused) */
  K_LOAD,   /* access; a = extra i64 element offset or 0; b = predicate or 0 (false reads as 0) */
  K_POINT,  /* pointwise primitive `op` (a row of ops.def without expr) of a, b, c */
  K_CAST,   /* a converted to `type`; through `via` when that is narrower storage (bf16 ...) */
  K_REDUCE, /* LOOP only: reduction of a over INNER and VEC dims; a scalar for later blocks. With
               lanes over INNER dims, one element after the other */
  K_STORE,  /* access, a = value, b = predicate or 0 */
  K_ACCUM,  /* access, a = value: memory at access = reduction over the rows of the chunk. In a LOOP
               block the VEC dim is kept; in a SCALAR block a is a scalar. Memory is initialised
               with the neutral element when the chunk starts. Buffer type = `type`. */
  K_RANDOM  /* Philox of key (seed, instance, step), instance = ints[access.offset], counter a (i64
               global element  index): `random` selects uniform or normal; runtime/abi/philox.h
               defines the bits */
} KKind;

/* The stride of an ACCUM along the first ROW dim applies to the number of the chunk; along other
 * ROW dims it is zero. A uniform RANDOM has type f32, a normal one f64. */

typedef enum KRandom { KRANDOM_NONE = 0, KRANDOM_UNIFORM, KRANDOM_NORMAL } KRandom;

typedef struct KInstr {
  uint8_t kind;   /* KKind */
  uint8_t type;   /* DType of the result: f32 f64 i64 i32 i16 i8 u8 bool (STORE, ACCUM: of a) */
  uint8_t via;    /* CAST: DType whose rounding applies first; DT_NONE = none */
  uint8_t reduce; /* REDUCE, ACCUM: ReduceOp: sum product max min (any = max, all = min on bool) */
  uint8_t random; /* RANDOM: KRandom */
  Op op;          /* POINT */
  KRef a, b, c;
  KAccess access; /* LOAD, STORE, ACCUM, INDEX */
  union {
    double f;
    int64_t i;
  } imm;
} KInstr;

typedef struct KBlock {
  bool loop;
  uint32_t first, count; /* instructions */
} KBlock;

/* Buffer contents other than tensors. */
typedef enum KBufKind {
  KBUF_TENSOR = 1,
  KBUF_STEP /* four i64 that the executor keeps: seed, step, micro-batch, 0 */
} KBufKind;

typedef struct KBuf {
  uint8_t kind;  /* KBufKind */
  uint8_t dtype; /* storage */
  bool written;
} KBuf;

/* Where an instruction comes from: for comments of emitted text, no part of the content. */
typedef struct KNote {
  Span span; /* file 0 = nowhere in particular */
  Op op;     /* the operator of the source, which may be many instructions */
} KNote;

typedef struct Kernel {
  const char *name; /* "k12_softmax": number and the main operator; not part of the content */
  uint32_t ndims, nbufs, nints, ninstrs, nblocks;
  KDim dims[KERNEL_MAX_DIMS];
  KBuf *bufs;
  KInstr *instrs;
  KBlock *blocks;
  const KNote *notes;           /* per instruction, or NULL; of the first program part with this
                                   content */
  const char *const *buf_names; /* per buffer, or NULL; an entry may be NULL */
  KInt chunk_rows, nchunks;     /* with ROW dims */
  uint32_t vec_block;           /* 0 = the vector dim is not cut */
  bool lanes;                   /* REDUCE keeps the vector dim; vec_block is the width of a strip */
} Kernel;

/* Content, without names and notes. */
uint64_t kernel_hash(const Kernel *k);
bool kernel_equal(const Kernel *a, const Kernel *b);
/* Distinct kernels of a program, in order of first use. */
typedef struct KernelSet {
  VEC(Kernel *) kernels;
  IdMap by_hash;
} KernelSet;
/* Index of a kernel with this content; copies it into `arena` when it is new and names it after
 * `hint`. */
uint32_t kernel_set_add(Arena *arena, KernelSet *set, const Kernel *k, const char *hint);

/* Text of --emit=kernel. */
void kernel_print(StrBuf *out, const Kernel *k);
/* NULL, or what is wrong: types, levels (a SCALAR block uses no vector value), order, ranges. */
const char *kernel_verify(Arena *arena, const Kernel *k);
/* Elements of one vector: KERNEL_LANES, or half of it where f64 values are computed. */
uint32_t kernel_lanes(const Kernel *k);
/* The type values of a storage type are computed in. */
DType kernel_compute_type(DType storage);

#endif
