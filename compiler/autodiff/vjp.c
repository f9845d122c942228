/* Which gradient every operator has. An operator without a line here does not compile. */
#include "autodiff/vjp.h"

/* Takes a broadcast cotangent as it is. */
#define BROADCAST(f)                                                                               \
  { f, NULL, true }
#define FULL(f)                                                                                    \
  { f, NULL, false }
/* Results are integers or booleans, there are no operands, or there is no result. */
#define NEVER                                                                                      \
  { NULL, NULL, false }
#define WHY(text)                                                                                  \
  { NULL, text, false }
#define SECOND WHY("it is itself a gradient, and second derivatives are not supported")
#define LOWERED WHY("it belongs to the per-rank program, which is made after differentiation")

/* contraction */
#define VJP_MATMUL FULL(vjp_contraction)
#define VJP_LINEAR FULL(vjp_contraction)
#define VJP_EINSUM FULL(vjp_contraction)
/* reduction */
#define VJP_SUM BROADCAST(vjp_sum)
#define VJP_MEAN BROADCAST(vjp_mean)
#define VJP_PROD BROADCAST(vjp_prod)
#define VJP_MAX FULL(vjp_extremum)
#define VJP_MIN FULL(vjp_extremum)
#define VJP_ANY NEVER
#define VJP_ALL NEVER
#define VJP_NORM_L1 BROADCAST(vjp_norm_l1)
#define VJP_NORM_L2 BROADCAST(vjp_norm_l2)
#define VJP_NORM_INF FULL(vjp_norm_inf)
#define VJP_LOGSUMEXP BROADCAST(vjp_logsumexp)
#define VJP_VAR BROADCAST(vjp_var)
#define VJP_STD BROADCAST(vjp_std)
#define VJP_EXTREMUM_BACKWARD SECOND
/* whole-dim */
#define VJP_SOFTMAX FULL(vjp_softmax)
#define VJP_SOFTMAX_BACKWARD SECOND
#define VJP_LOG_SOFTMAX FULL(vjp_log_softmax)
#define VJP_LOG_SOFTMAX_BACKWARD SECOND
#define VJP_LAYER_NORM FULL(vjp_layer_norm)
#define VJP_LAYER_NORM_BACKWARD SECOND
#define VJP_NORMALIZE FULL(vjp_normalize)
#define VJP_RMS_NORM FULL(vjp_rms_norm)
#define VJP_RMS_NORM_BACKWARD SECOND
#define VJP_RMS_NORMALIZE FULL(vjp_rms_normalize)
#define VJP_ARGMAX NEVER
#define VJP_ARGMIN NEVER
#define VJP_CUMSUM FULL(vjp_cumsum)
#define VJP_SORT FULL(vjp_sort)
#define VJP_TOPK FULL(vjp_sort)
/* movement */
#define VJP_PERMUTE BROADCAST(vjp_permute)
#define VJP_RESHAPE FULL(vjp_reshape)
#define VJP_UNSQUEEZE FULL(vjp_reshape)
#define VJP_SQUEEZE FULL(vjp_reshape)
#define VJP_EXPAND BROADCAST(vjp_expand)
#define VJP_SLICE FULL(vjp_slice)
#define VJP_PAD FULL(vjp_pad)
#define VJP_UNSLICE FULL(vjp_unslice)
#define VJP_CONCAT FULL(vjp_concat)
#define VJP_FLIP FULL(vjp_flip)
#define VJP_ROLL FULL(vjp_roll)
#define VJP_BALANCE FULL(vjp_balance)
#define VJP_TRIL FULL(vjp_triangle)
#define VJP_TRIU FULL(vjp_triangle)
/* indexing */
#define VJP_EMBEDDING FULL(vjp_embedding)
#define VJP_EMBEDDING_BACKWARD SECOND
#define VJP_GATHER FULL(vjp_gather)
#define VJP_SCATTER_ADD FULL(vjp_scatter_add)
#define VJP_INDEX_SELECT FULL(vjp_index_select)
#define VJP_ONE_HOT NEVER
/* fused, random, factories */
#define VJP_GROUPED_LINEAR FULL(vjp_grouped_linear)
#define VJP_GROUPED_LINEAR_WEIGHT SECOND
#define VJP_CROSS_ENTROPY WHY("it should have been opened into primitives")
#define VJP_ATTENTION FULL(vjp_attention)
#define VJP_ATTENTION_BACKWARD SECOND
#define VJP_DROPOUT FULL(vjp_dropout)
#define VJP_DROPOUT_BACKWARD SECOND
#define VJP_RAND NEVER
#define VJP_RANDN NEVER
#define VJP_CONST NEVER
#define VJP_FULL NEVER
#define VJP_ARANGE NEVER
#define VJP_LOGSPACE NEVER
#define VJP_IOTA NEVER
/* communication and structure */
#define VJP_REDISTRIBUTE FULL(vjp_redistribute)
#define VJP_REDISTRIBUTE_ROWS FULL(vjp_redistribute_rows)
#define VJP_DETACH NEVER
#define VJP_REPLICA FULL(vjp_replica)
#define VJP_SAME_AS FULL(vjp_same_as)
#define VJP_ALL_GATHER LOWERED
#define VJP_REDUCE_SCATTER LOWERED
#define VJP_ALL_REDUCE LOWERED
#define VJP_ALL_TO_ALL LOWERED
#define VJP_EXCHANGE LOWERED
#define VJP_SHARD_SLICE LOWERED
#define VJP_PARTIAL_FILL LOWERED
#define VJP_SEND_MESH LOWERED
#define VJP_POST LOWERED
#define VJP_READ NEVER
#define VJP_ASSIGN NEVER
#define VJP_INPUT NEVER
#define VJP_STEP NEVER
#define VJP_MICRO_SUM NEVER
#define VJP_OUTPUT NEVER

static const VjpRow rows[OP_COUNT] = {
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc)                                 \
  [OP_##ID] = BROADCAST(vjp_pointwise),
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc) [OP_##ID] = VJP_##ID,
#include "ops/ops.def"
};

const VjpRow *vjp_row(Op op) {
  return &rows[op];
}
