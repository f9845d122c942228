/* Attention on a GPU: which kernels an action launches, with which sizes. Pure: launching them is
 * attention.c, the kernels are kernels/attention.cu and kernels/attention_mma.cu.
 *
 * Their results differ from those of the CPU by rounding. On tensor cores what a second product
 * takes is rounded to the element type, which the CPU does not do: exp(score - largest so far)
 * before it multiplies v; exp(score - lse) and the cotangents of the scores before they multiply g,
 * q and k. That is at most u = 2^-9 of each term in bf16 (2^-12 in f16), as is the rounding of the
 * results that both have: out is within 2u of the largest |v|, dv within 2u of sum p |g|, dq and dk
 * within 2u of the sums of their terms' sizes. Tests hold them to 2.5 times that. lse is summed
 * from weights that are not rounded.
 */
#ifndef DTM_CUDA_ATTENTION_PLAN_H
#define DTM_CUDA_ATTENTION_PLAN_H

#include "device/cuda/kernels/attention_args.h"
#include "device/operands.h"
#include "runtime/abi/cuda.h"

enum { ATTENTION_MAX_LAUNCHES = 4, ATTENTION_MAX_TENSORS = 11 };

typedef struct AttentionLaunch {
  const char *kernel; /* its name without the suffix of the instance */
  uint32_t grid, block;
  uint32_t shared; /* bytes, dynamic */
} AttentionLaunch;

typedef struct AttentionPlan {
  AbiCudaAttention which;
  int positions;      /* are given */
  AttentionArgs args; /* all but the addresses */
  AttentionLaunch launch[ATTENTION_MAX_LAUNCHES];
  uint32_t nlaunches;
  size_t delta, q_ranges, k_ranges, scratch; /* offsets in the scratch memory; its bytes */
} AttentionPlan;

/* Of ABI_LIB_ATTENTION or _BACKWARD: its operands, then its results, and its args (abi.h; the last
 * two, of micro-batches, -1 and 1 where nothing is cut). `which`: abi_cuda_attention. */
AttentionPlan dtm_cuda_attention_plan(const AbiCudaAttention *which, const LibTensor *t,
                                      uint32_t ntensors, const int64_t args[6]);
/* The args of its launches, with the addresses of the tensors, of plan->scratch bytes and of the
 * step block. */
AttentionArgs dtm_cuda_attention_args(const AttentionPlan *plan, void *const *tensors,
                                      void *scratch, const void *step);

#endif
