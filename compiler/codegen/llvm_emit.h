/* Inside libdtm_llvm.so: emitting one kernel as LLVM IR.
 *
 * A value is either one element (lanes 1) or a vector of lanes elements; the same functions emit
 * both, so the scalar code of a row and the vector code of a loop have the same arithmetic.
 */
#ifndef DTM_CODEGEN_LLVM_EMIT_H
#define DTM_CODEGEN_LLVM_EMIT_H

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "kernel/kernel.h"

/* One module. */
typedef struct Emitter {
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  bool has_fma;     /* the target fuses; else a * b + c is rounded twice */
  const char *tune; /* CPU to schedule for */
} Emitter;

/* One kernel within it. */
typedef struct KernelEmitter {
  Emitter *e;
  const Kernel *k;
  LLVMValueRef function;
  LLVMBasicBlockRef entry; /* allocas go here */
  LLVMValueRef *bufs, *ints;
  LLVMValueRef *value;    /* per instruction: its value, where it is visible */
  LLVMValueRef *total;    /* per REDUCE: alloca of its scalar result */
  LLVMValueRef *lane_sum; /* per REDUCE: alloca of its vector of partial results. With lanes, per
                             value that later blocks use: alloca of its vectors of one strip */
  LLVMValueRef *place;    /* per plain access of the vector that is being emitted: its address */
  bool *uniform;          /* per instruction: the same for every element of the vector dim */
  LLVMValueRef index[KERNEL_MAX_DIMS]; /* loop indices; VEC: index of lane 0 */
  LLVMValueRef chunk, block; /* number of the chunk; of the block of the vector dim; or NULL */
  LLVMValueRef strip;        /* with lanes: where the strip of the vector dim begins */
  LLVMValueRef mask;         /* in a vector loop: lanes in range */
  LLVMValueRef rest;         /* elements from lane 0 to the end of the vector dim */
  uint32_t lanes;            /* of the code being emitted */
  uint32_t vec;              /* the VEC dim, or KERNEL_MAX_DIMS */
} KernelEmitter;

/* --- llvm_type.c: types, constants, vectors ---- */
LLVMTypeRef ll_element(Emitter *e, DType type);             /* i1 for bool */
LLVMTypeRef ll_vector(LLVMTypeRef element, uint32_t lanes); /* the element when lanes is 1 */
LLVMTypeRef ll_type(Emitter *e, DType type, uint32_t lanes);
LLVMTypeRef ll_int(Emitter *e, uint32_t bits, uint32_t lanes);
uint32_t ll_lanes(LLVMValueRef v);
LLVMValueRef ll_splat(Emitter *e, LLVMValueRef scalar, uint32_t lanes);
LLVMValueRef ll_const_f(LLVMTypeRef like, double value); /* splat when `like` is a vector */
LLVMValueRef ll_const_i(LLVMTypeRef like, int64_t value);
LLVMValueRef ll_i64(Emitter *e, int64_t value);
LLVMValueRef ll_lane_numbers(Emitter *e, LLVMTypeRef element, uint32_t lanes); /* 0, 1, 2, ... */
bool ll_is_f64(LLVMTypeRef type);
/* Calls an intrinsic overloaded on the type of its first argument. */
LLVMValueRef ll_intrinsic(Emitter *e, const char *name, LLVMValueRef *args, uint32_t n);
LLVMValueRef ll_fma(Emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef ll_select(Emitter *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef ll_bits(Emitter *e, LLVMValueRef x);            /* float -> integer of that width */
LLVMValueRef ll_float_of(Emitter *e, LLVMValueRef bits);     /* back */
LLVMValueRef ll_alloca(KernelEmitter *ke, LLVMTypeRef type); /* in the entry block */

/* --- llvm_math.c: elementary functions of f32 and f64, scalar or vector ---- */
LLVMValueRef ll_math(Emitter *e, Op op, LLVMValueRef x, LLVMValueRef y);
bool ll_is_elementary(Op op); /* ll_math has it */
/* Calls a libm function element by element; n arguments. */
LLVMValueRef ll_libm(Emitter *e, const char *name, LLVMValueRef *args, uint32_t n);

/* --- llvm_convert.c: element types ---- */
LLVMValueRef ll_cast(Emitter *e, LLVMValueRef x, DType from, DType to);
/* Storage bits (as integers for 8- and 16-bit floats) <-> values. */
LLVMTypeRef ll_storage(Emitter *e, DType storage, uint32_t lanes);
LLVMValueRef ll_decode(Emitter *e, LLVMValueRef bits, DType storage);
LLVMValueRef ll_encode(Emitter *e, LLVMValueRef value, DType storage);

/* --- llvm_point.c ---- */
LLVMValueRef ll_point(Emitter *e, const KInstr *in, DType operand, LLVMValueRef x, LLVMValueRef y,
                      LLVMValueRef z);
/* a (op) b, and the neutral element. */
LLVMValueRef ll_combine(Emitter *e, ReduceOp op, DType type, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef ll_neutral(Emitter *e, ReduceOp op, DType type, uint32_t lanes);
/* Combines the lanes of a vector in a fixed tree. */
LLVMValueRef ll_fold(Emitter *e, ReduceOp op, DType type, LLVMValueRef v);

/* --- llvm_random.c ---- */
LLVMValueRef ll_random(Emitter *e, KRandom kind, LLVMValueRef seed, LLVMValueRef instance,
                       LLVMValueRef step, LLVMValueRef index);

/* --- llvm_memory.c: run-time integers, loads, stores, accumulators ---- */
LLVMValueRef ll_kint(KernelEmitter *ke, KInt i); /* an extent, stride, offset or count, as i64 */
LLVMValueRef ll_load(KernelEmitter *ke, const KInstr *in, LLVMValueRef index, LLVMValueRef pred);
void ll_store(KernelEmitter *ke, const KAccess *a, DType storage, LLVMValueRef value,
              LLVMValueRef pred);
LLVMValueRef ll_indices(KernelEmitter *ke, const KAccess *a);
LLVMValueRef ll_lane_mask(KernelEmitter *ke);
/* Contiguous along the vector dim and without a predicate. */
bool ll_is_plain(const KernelEmitter *ke, const KInstr *in);
LLVMValueRef ll_plain_pointer(KernelEmitter *ke, const KAccess *a, LLVMValueRef index);
LLVMValueRef ll_plain_load(KernelEmitter *ke, LLVMValueRef p, DType storage, bool partial);
void ll_plain_store(KernelEmitter *ke, LLVMValueRef p, LLVMValueRef bits, DType storage,
                    bool partial);

/* --- llvm_block.c ---- */
typedef struct Loop {
  LLVMBasicBlockRef header, exit;
  LLVMValueRef index, step;
} Loop;
/* for index = lo; index < hi; index += step. Emission goes on in the body; then behind the loop. */
Loop ll_loop_begin(KernelEmitter *ke, LLVMValueRef lo, LLVMValueRef hi, LLVMValueRef step,
                   const char *name);
void ll_loop_end(KernelEmitter *ke, Loop *l);
LLVMBasicBlockRef ll_new_block(KernelEmitter *ke, const char *name);
LLVMValueRef ll_extent(KernelEmitter *ke, uint32_t dim);
/* Within an accumulator's address the first ROW dim counts chunks; `saved` gets the indices. */
void ll_rows_to_chunk(KernelEmitter *ke, LLVMValueRef saved[KERNEL_MAX_DIMS]);
/* All blocks in order, the vector dim from lo to hi. */
void ll_blocks(KernelEmitter *ke, LLVMValueRef lo, LLVMValueRef hi);

/* --- llvm_kernel.c ---- */
void ll_kernel(Emitter *e, const Kernel *k);
/* Gives a function the machine to schedule for and the width of vectors. */
void ll_tune(Emitter *e, LLVMValueRef function);
LLVMValueRef ll_declare_kernel(Emitter *e, const Kernel *k); /* defined in this module or another */

#endif
