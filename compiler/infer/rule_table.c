/* Which rule every operator has. An operator without a line here does not compile. */
#include "infer/rules.h"

/* contraction */
#define RULE_MATMUL rule_contraction
#define RULE_LINEAR rule_contraction
#define RULE_EINSUM rule_contraction
/* reduction */
#define RULE_SUM rule_reduction
#define RULE_MEAN rule_reduction
#define RULE_PROD rule_reduction
#define RULE_MAX rule_reduction
#define RULE_MIN rule_reduction
#define RULE_ANY rule_reduction
#define RULE_ALL rule_reduction
#define RULE_NORM_L1 rule_reduction
#define RULE_NORM_L2 rule_reduction
#define RULE_NORM_INF rule_reduction
#define RULE_LOGSUMEXP rule_reduction
#define RULE_VAR rule_reduction
#define RULE_STD rule_reduction
/* whole-dim */
#define RULE_EXTREMUM_BACKWARD rule_extremum_backward
#define RULE_SOFTMAX rule_softmax
#define RULE_SOFTMAX_BACKWARD rule_softmax
#define RULE_LOG_SOFTMAX rule_softmax
#define RULE_LOG_SOFTMAX_BACKWARD rule_softmax
#define RULE_LAYER_NORM rule_norm_forward
#define RULE_LAYER_NORM_BACKWARD rule_norm_backward
#define RULE_NORMALIZE rule_norm_forward
#define RULE_RMS_NORM rule_norm_forward
#define RULE_RMS_NORM_BACKWARD rule_norm_backward
#define RULE_RMS_NORMALIZE rule_norm_forward
#define RULE_ARGMAX rule_argument
#define RULE_ARGMIN rule_argument
#define RULE_CUMSUM rule_scan_or_sort
#define RULE_SORT rule_scan_or_sort
#define RULE_TOPK rule_scan_or_sort
/* movement */
#define RULE_PERMUTE rule_permute
#define RULE_RESHAPE rule_reshape
#define RULE_UNSQUEEZE rule_unsqueeze
#define RULE_SQUEEZE rule_squeeze
#define RULE_EXPAND rule_expand
#define RULE_SLICE rule_slice
#define RULE_PAD rule_pad
#define RULE_UNSLICE rule_unslice
#define RULE_CONCAT rule_concat
#define RULE_FLIP rule_flip
#define RULE_ROLL rule_roll
#define RULE_BALANCE rule_balance
#define RULE_TRIL rule_triangle
#define RULE_TRIU rule_triangle
/* indexing */
#define RULE_EMBEDDING rule_embedding
#define RULE_EMBEDDING_BACKWARD rule_embedding_backward
#define RULE_GATHER rule_gather
#define RULE_SCATTER_ADD rule_scatter_add
#define RULE_INDEX_SELECT rule_index_select
#define RULE_ONE_HOT rule_one_hot
/* fused */
#define RULE_CROSS_ENTROPY rule_cross_entropy
#define RULE_ATTENTION rule_attention
#define RULE_ATTENTION_BACKWARD rule_attention
#define RULE_GROUPED_LINEAR rule_grouped_linear
#define RULE_GROUPED_LINEAR_WEIGHT rule_grouped_linear_weight
/* random */
#define RULE_DROPOUT rule_random
#define RULE_DROPOUT_BACKWARD rule_random
/* factories */
#define RULE_RAND rule_random_numbers
#define RULE_RANDN rule_random_numbers
#define RULE_CONST rule_const
#define RULE_FULL rule_made
#define RULE_ARANGE rule_range
#define RULE_LOGSPACE rule_range
#define RULE_IOTA rule_iota
/* communication */
#define RULE_REDISTRIBUTE rule_comm
#define RULE_REDISTRIBUTE_ROWS rule_redistribute_rows
/* structure */
#define RULE_DETACH rule_same
#define RULE_REPLICA rule_replica
#define RULE_SAME_AS rule_same_as
/* communication */
#define RULE_ALL_GATHER rule_comm
#define RULE_REDUCE_SCATTER rule_comm
#define RULE_ALL_REDUCE rule_comm
#define RULE_ALL_TO_ALL rule_comm
#define RULE_EXCHANGE rule_comm
#define RULE_SHARD_SLICE rule_comm
#define RULE_PARTIAL_FILL rule_comm
#define RULE_SEND_MESH rule_comm
#define RULE_POST rule_comm
/* structure */
#define RULE_READ rule_stated
#define RULE_ASSIGN rule_sink
#define RULE_INPUT rule_stated
#define RULE_STEP rule_step
#define RULE_MICRO_SUM rule_same
#define RULE_OUTPUT rule_sink

RuleFn *rule_of(Op op) {
  static RuleFn *const rules[OP_COUNT] = {
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc) [OP_##ID] = rule_pointwise,
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc) [OP_##ID] = RULE_##ID,
#include "ops/ops.def"
  };
  return rules[op];
}
