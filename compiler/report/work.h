/* What the work of a program costs: bytes moved and arithmetic of every kernel and product of its
 * plan, against the least. What `dtmc --report` prints. */
#ifndef DTM_REPORT_WORK_H
#define DTM_REPORT_WORK_H

#include "kernel/kernel.h"

/* A count of one call, on the first rank of the call's mesh: no rank has larger blocks.
 *
 * Bytes are those that a processor without caches would move: each load and store of the kernel
 * counts the distinct elements that it goes over, a load at an index every one it asks for. The
 * least is every input once and every output once. Operations are additions, multiplications,
 * comparisons and elementary functions of floats, each one; a product of [m, k] and [k, n] has 2 m
 * n k.
 */
typedef struct Work {
  double least, moved; /* bytes */
  double flops;
} Work;

/* A generated kernel whose integers are `ints`. `passing[b]`: buffer b holds what another kernel of
 * the same fused group goes on with (parts of a sum), which the least knows nothing of; NULL =
 * none. */
Work work_of_kernel(const Kernel *k, const int64_t *ints, const bool *passing);

/* Table per program block, of the image of a plan and its kernels: what is called how often, from
 * where, and what it costs; most bytes first. Calls of one kernel, or of one product, with the same
 * cost are one line. */
void work_print(StrBuf *out, const void *image, const KernelSet *kernels);

/* The same per action, to be joined with a trace by its number in the image: lines of words with
 * tabs between them, the first of which names the columns. `moved` is - where it is not known. */
void work_print_actions(StrBuf *out, const void *image, const KernelSet *kernels);

/* What goes from rank to rank, for programs; each line says how often, and what the rank that
 * receives most receives in one call. The same program gives the same text, so that a difference
 * between two is one between their communication. */
void work_print_moves(StrBuf *out, const void *image, const KernelSet *kernels);

#endif
