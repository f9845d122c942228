/* codegen for CUDA: kernels to CUDA C, and that to machine code of GPUs (NVRTC).
 *
 * A kernel becomes one translation unit, with one entry:
 *
 *   extern "C" __global__ void k_sum(const float *x, float *y, int64_t n0, ..., int64_t tasks,
 *                                    int32_t group)
 *
 * Its buffers, its integers, and the two numbers of the launch rule (runtime/abi/cuda.h). Blocks of
 * 256 threads are cut in groups of `group`, each of which takes one task at a time. SCALAR code is
 * computed by every thread of the group and stored by the first; threads of the group share the
 * vector dim of LOOP code, W elements each, in words of 16 bytes where the addresses allow it. A
 * REDUCE is completed with shuffles and, across warps, through shared memory. With lanes a thread
 * has an element of the strip for itself. Maps that turn the innermost dim go through tiles in
 * shared memory, a block of threads per tile (cuda_tile.c). What a row adds to an ACCUM is added by
 * the thread that owns the column: in registers where a thread owns few, else in memory. */
#ifndef DTM_CODEGEN_CUDA_H
#define DTM_CODEGEN_CUDA_H

#include "kernel/kernel.h"
#include "runtime/abi/cuda.h"

typedef struct CudaTextOptions {
  /* Not NULL: the text is for people. Buffers have the names of the source, statements say which
   * line they come from. Else it depends on the content and the hint of the name only; lines are
   * the same. */
  const Sources *sources;
  const char *bare;  /* the text without sources: with them, no buffer has a name that means
                        something there */
  const char *about; /* for people: put at the end as a comment, or NULL */
  bool many;         /* with an entry for many calls (ABI_CUDA_MANY) */
} CudaTextOptions;

/* Appends the text of a kernel. */
void cuda_text(StrBuf *out, Arena *arena, const Kernel *k, const CudaTextOptions *options);
/* Name of the entry: "k_sum" of "k3_sum". */
const char *cuda_entry(Arena *arena, const Kernel *k);
/* What the launch rule needs to know; names and module are left to the caller. */
AbiCudaFunction cuda_function(const Kernel *k);

#endif
