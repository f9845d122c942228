/* Operations that are no rows of ptx_ops.def: what the decoder puts into PtxOp.run. */
#ifndef DTM_TESTS_GPUSIM_PTX_RUN_H
#define DTM_TESTS_GPUSIM_PTX_RUN_H

#include "ptx_code.h"
#include "ptx_types.h"

/* ptx_registers.c */
PtxRun ptx_run_logic;  /* predicates arg[0] = arg[1] op arg[2]; mode a o x n */
PtxRun ptx_run_pack;   /* arg[0] = {arg[1], ...}: `target` elements of `mode` bytes */
PtxRun ptx_run_unpack; /* the other way */
PtxRun ptx_run_clock;  /* arg[0]: steps so far, in `mode` bytes */
/* compare of arg[2] and arg[3], combined with predicate arg[4] by mode (a o x, 0 for none). setp:
 * to predicates arg[0] and, of its opposite, arg[1]; set: to arg[1] bytes of arg[0], arg[5] where
 * it holds */
PtxRun ptx_run_setp, ptx_run_setp_halves, ptx_run_set, ptx_run_set_halves;
PtxRun ptx_run_testp; /* predicate arg[0] of arg[1]; mode the test; flags 1 for f64 */
/* arg[0] = arg[1] op arg[2], or arg[1] * arg[2] + arg[3]; mode a s l h; target: signed */
PtxRun ptx_run_carry32, ptx_run_carry64;
PtxRun ptx_run_trap; /* mode 1: an assertion failed */

/* ptx_convert.c: arg[0] of type arg[2] in arg[4] bytes, from arg[1] of type arg[3] in arg[5] bytes
 */
PtxRun ptx_run_convert;
PtxRun
    ptx_run_convert_pair; /* arg[0] of type arg[3] from arg[1] (high) and arg[2] of type arg[4] */
bool ptx_convert_known(PtxType to, PtxType from);

/* ptx_warp.c */
PtxRun ptx_run_shuffle; /* arg: result, predicate or NO_ROW, value, index, clamp, members; mode u d
                           b i */
PtxRun ptx_run_vote;    /* arg: result, predicate, members; mode a(ll) o(r: any) u(ni) b(allot) */
PtxRun ptx_run_match;   /* arg: result, predicate or NO_ROW, value, members; mode bytes, flags 1 for
                           all */
PtxRun ptx_run_active;  /* arg: result */
PtxRun ptx_run_redux;   /* arg: result, value, members; mode + n x & | ^; flags 1: signed */
PtxRun ptx_run_barrier; /* arg: result, predicate, number, threads or NO_ROW; mode 0 & | +; flags 1:
                         * all must be at the same instruction */
PtxRun ptx_run_arrive;  /* arg: -, -, number, threads */
PtxRun ptx_run_warp_sync; /* arg: members */
PtxRun ptx_run_fence;     /* of memory that other blocks see */

/* ptx_atomic.c: memory, arg: result or NO_ROW, operand, second operand; mode PtxAtomic; flags
 * PtxType */
PtxRun ptx_run_atomic;

/* ptx_mma.c */
PtxRun ptx_run_ldmatrix; /* memory: data rows; mode 1: transposed */
PtxRun ptx_run_stmatrix;
PtxRun ptx_run_mma; /* imm: PtxMma */

typedef enum PtxAtomic {
  ATOMIC_ADD,
  ATOMIC_CAS,
  ATOMIC_EXCH,
  ATOMIC_MIN,
  ATOMIC_MAX,
  ATOMIC_AND,
  ATOMIC_OR,
  ATOMIC_XOR,
  ATOMIC_INC,
  ATOMIC_DEC,
} PtxAtomic;

/* mma.sync.aligned.m16n8kK: what its operands are and where. */
typedef struct PtxMma {
  uint32_t k;
  PtxType a, b, c, d;
  bool saturate;
  uint32_t rows_a[4], rows_b[2], rows_c[4], rows_d[4];
} PtxMma;

#endif
