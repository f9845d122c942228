/* What the attention kernels take: one struct, by value. Read by the host (C11) and by NVRTC.
 *
 * Tensors are the blocks of one rank, dense and row-major as device/cpu/attention.h has them: q,
 * g, out, dq [batch.., heads, queries, *], k, v, dk, dv [batch.., groups, keys, *], lse and delta
 * [batch.., heads, queries]. Sizes and offsets are arguments, so that one instance serves all of
 * one element type and class of head dims.
 */
#ifndef DTM_CUDA_ATTENTION_ARGS_H
#define DTM_CUDA_ATTENTION_ARGS_H

/* Kernels on tensor cores, by class of head dims: MT and SPLIT (see attention_mma.cu), and how many
 * keys or queries go by at once.
 *   X(HEAD, forward: MT, KEYS, keys: MT, SPLIT, QUERIES, queries: MT, KEYS) */
#define ATTENTION_CLASSES(X)                                                                       \
  X(32, 2, 64, 2, 1, 32, 2, 32)                                                                    \
  X(64, 2, 64, 2, 1, 32, 2, 32)                                                                    \
  X(96, 2, 32, 1, 1, 32, 1, 32)                                                                    \
  X(128, 2, 32, 1, 1, 32, 1, 32)                                                                   \
  X(192, 1, 32, 1, 2, 16, 1, 16)                                                                   \
  X(256, 1, 32, 1, 2, 16, 1, 16)

enum {
  ATTENTION_WARPS = 4,      /* of 16 * MT rows, on tensor cores */
  ATTENTION_SIDE = 16,      /* threads on either side of a block, elsewhere */
  ATTENTION_SUMS = 512,     /* bytes of a row of results that a block holds, elsewhere */
  ATTENTION_BATCH_DIMS = 5, /* of a tensor: its rank without heads, positions and features */
  ATTENTION_GRANULE = 16    /* positions of which the least and the greatest are kept */
};

typedef struct AttentionArgs {
  const void *q, *k, *v, *g;
  void *out, *lse, *delta;
  void *dq, *dk, *dv;
  /* Positions of queries and keys in the whole sequence, i64; both null for first + index. The
   * least and the greatest of each ATTENTION_GRANULE of them, as pairs; null like them. */
  const void *q_positions, *k_positions;
  void *q_ranges, *k_ranges;
  const void *step; /* AbiStep: seed and step of random numbers, micro-batch */
  long long first_query, first_key;
  long long all_queries, all_keys; /* of the whole tensor: they number the random draws */
  unsigned long long instance;     /* of the random draws */
  double scale;
  double kept;        /* what a kept element is multiplied by */
  unsigned threshold; /* of the draws that drop; 0 = no dropout */
  int causal;
  int batches, heads, groups;  /* of the block */
  int first_head, all_heads;   /* of queries: in the whole tensor */
  int first_group, group_size; /* of keys; query heads that share one */
  int queries, keys, width, features;
  /* Batch dims, which number the random draws too. Micro-batches are cut along dim `micro_dim` of
   * them, or along the heads where that is nbatch; -1 = not cut. */
  int nbatch, micro_dim, micros;
  int batch_extent[ATTENTION_BATCH_DIMS];
  long long batch_offset[ATTENTION_BATCH_DIMS], batch_shape[ATTENTION_BATCH_DIMS];
} AttentionArgs;

#endif
