/* Attention on a GPU: which kernels an action launches, with which sizes. Pure: launching them is
 * attention.c, the kernels are kernels/attention.cu and kernels/attention_mma.cu.
 *
 * Their results differ from those of the CPU by rounding. On tensor cores the weights (forward:
 * exp(score - largest so far); backward: exp(score - lse) and the cotangents of the scores) are
 * rounded to the element type before they multiply v, g, q and k, as the CPU does not: one unit of
 * bf16 is 2^-8 of the weight, so an output is within (2^-9 + 2^-9) of the largest v, half of it
 * the rounding of the result itself that both have. lse does not depend on it: it is summed from
 * unrounded weights.
 */
#ifndef DTM_CUDA_ATTENTION_PLAN_H
#define DTM_CUDA_ATTENTION_PLAN_H

#include "device/cuda/kernels/attention_args.h"
#include "device/operands.h"

enum { ATTENTION_MAX_LAUNCHES = 4, ATTENTION_MAX_TENSORS = 11 };

typedef struct AttentionLaunch {
  const char *kernel; /* its name without the suffix of the instance */
  uint32_t grid, block;
  uint32_t shared; /* bytes, dynamic */
} AttentionLaunch;

typedef struct AttentionPlan {
  int backward, positions; /* positions: given */
  AttentionArgs args;      /* all but the addresses */
  AttentionLaunch launch[ATTENTION_MAX_LAUNCHES];
  uint32_t nlaunches;
  size_t delta, q_ranges, k_ranges, scratch; /* offsets in the scratch memory; its bytes */
} AttentionPlan;

/* Of ABI_LIB_ATTENTION or _BACKWARD: its operands, then its results, and its args (abi.h; the last
 * two, of micro-batches, -1 and 1 where nothing is cut). `head`: abi_cuda_attention_head. */
AttentionPlan dtm_cuda_attention_plan(uint32_t code, uint32_t head, const LibTensor *t,
                                      uint32_t ntensors, const int64_t args[6]);
/* The args of its launches, with the addresses of the tensors, of plan->scratch bytes and of the
 * step block. */
AttentionArgs dtm_cuda_attention_args(const AttentionPlan *plan, void *const *tensors,
                                      void *scratch, const void *step);

#endif
