/* Scaled dot product attention and its derivative, of one block of queries with one block of keys.
 *
 *   s[i, j] = scale * q[i] . k[j],  seen where not causal or position of j <= position of i
 *   lse[i]  = log sum_j exp(s[i, j]),  out[i] = sum_j mask[i, j] exp(s[i, j] - lse[i]) v[j]
 *
 * A query that sees no key has out 0 and lse -inf. `mask` is 1 without dropout, else 0 or
 * 1 / (1 - p), drawn for the global element (batch, head, position of query, position of key): the
 * same on every mesh and in every order of the blocks.
 *
 * Blocks of keys can be taken one after the other, as a ring of ranks does: each gives its (out,
 * lse), and two are merged with lse = log(exp(lse1) + exp(lse2)) and out = out1 exp(lse1 - lse) +
 * out2 exp(lse2 - lse). The derivative of a block takes the lse of *all* keys and the `delta` of
 * the whole output (delta[i] = sum_c g[i, c] out[i, c]): dq is then to be added up over the blocks,
 * dk and dv are those of this block from these queries.
 *
 * Query head h of the whole tensor sees key head h / group_size; a block holds some of each.
 */
#ifndef DTM_RT_ATTENTION_H
#define DTM_RT_ATTENTION_H

#include "runtime/abi/abi.h"

typedef struct AttentionLoops AttentionLoops;

typedef struct Attention {
  uint32_t dtype; /* of q, k, v, out, g, dq, dk, dv: f64, f32, bf16 or f16 */
  int causal;
  double scale;
  /* Batch dims of the block, of which the offsets number the random draws. */
  uint32_t nbatch;
  int64_t batch_extent[ABI_MAX_DIMS], batch_offset[ABI_MAX_DIMS], batch_shape[ABI_MAX_DIMS];
  int64_t heads, first_head, all_heads; /* of queries: in the block, the first one's number, of the
                                           whole tensor */
  int64_t groups, first_group;          /* of keys and values */
  int64_t group_size;                   /* query heads that share a key head */
  int64_t queries, keys, width, features;
  int64_t all_queries, all_keys; /* of the whole tensor: they number the random draws */
  /* Positions: an array of [queries], [keys] elements, or NULL for first + index. */
  const int64_t *q_positions, *k_positions;
  int64_t first_query, first_key;
  double dropout; /* probability; 0 = none */
  uint64_t seed, instance, step;
  int threads;
  const AttentionLoops *loops; /* the instruction set to use; NULL = the fastest of this machine */
} Attention;

/* Tensors of a call, dense and row-major: q, g, out, dq [batch, heads, queries, *], k, v, dk, dv
 * [batch, groups, keys, *], lse and delta [batch, heads, queries] in f32 (f64 where dtype is f64).
 */
typedef struct AttentionTensors {
  const void *q, *k, *v;
  void *out, *lse;   /* written forward, read backward */
  const void *g;     /* backward only, as all below */
  const void *delta; /* NULL: computed from g and out */
  void *dq, *dk, *dv;
} AttentionTensors;

/* Bytes of scratch memory either call needs. */
size_t dtm_rt_attention_scratch(const Attention *a);
void dtm_rt_attention_forward(const Attention *a, const AttentionTensors *t, void *scratch);
void dtm_rt_attention_backward(const Attention *a, const AttentionTensors *t, void *scratch);

#endif
