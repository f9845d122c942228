/* What both families of attention kernels share: which queries see which keys, dropout.
 *
 * Positions are held as 32 bits, like on the CPU; random draws are numbered with 64.
 */
#ifndef DTM_CUDA_ATTENTION_CUH
#define DTM_CUDA_ATTENTION_CUH

#include "attention_args.h"
#include "dtm.cuh"

/* As AbiStep, which lies in device memory. */
struct AttentionStep {
  uint64_t seed;
  int64_t step, micro, valid;
};

/* Positions of a block of queries or keys: from the least to the greatest. */
struct Range {
  int least, most;
};

DTM_DEVICE int position(const void *given, int64_t first, int i) {
  return given ? (int)((const int64_t *)given)[i] : (int)first + i;
}

/* Of elements [begin, end) of `n`; begin is a multiple of the granule and below n. */
DTM_DEVICE Range range_of(const void *ranges, int64_t first, int begin, int end, int n) {
  int last = end < n ? end : n;
  if (!ranges) return Range{(int)first + begin, (int)first + last - 1};
  const Range *of = (const Range *)ranges;
  Range all = of[begin / ATTENTION_GRANULE];
  for (int i = begin / ATTENTION_GRANULE + 1; i * ATTENTION_GRANULE < last; i++) {
    Range r = of[i];
    all.least = min(all.least, r.least);
    all.most = max(all.most, r.most);
  }
  return all;
}

/* One warp per granule: first those of the queries, then those of the keys. */
DTM_DEVICE void find_ranges(const AttentionArgs &a) {
  int warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  int of_queries = (a.queries + ATTENTION_GRANULE - 1) / ATTENTION_GRANULE;
  int of_keys = (a.keys + ATTENTION_GRANULE - 1) / ATTENTION_GRANULE;
  if (warp >= of_queries + of_keys) return;
  bool query = warp < of_queries;
  int granule = query ? warp : warp - of_queries, n = query ? a.queries : a.keys;
  int at = min(granule * ATTENTION_GRANULE + lane % ATTENTION_GRANULE, n - 1);
  int least = position(query ? a.q_positions : a.k_positions, 0, at), most = least;
  for (int apart = ATTENTION_GRANULE / 2; apart > 0; apart /= 2) {
    least = min(least, __shfl_xor_sync(0xffffffffu, least, apart));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, apart));
  }
  if (lane == 0) ((Range *)(query ? a.q_ranges : a.k_ranges))[granule] = Range{least, most};
}

/* --- dropout ------------------------------------------------------------------------------------
 */

/* The number in the whole tensor of element `batch` and head `head` of the block; 0 where nothing
 * is drawn. */
DTM_DEVICE uint64_t head_number(const AttentionArgs &a, int batch, int head) {
  if (!a.threshold) return 0;
  const AttentionStep *step = (const AttentionStep *)a.step;
  int64_t micro = a.micro_dim >= 0 ? step->micro : 0;
  uint64_t number = 0, stride = 1;
#pragma unroll
  for (int d = ATTENTION_BATCH_DIMS - 1; d >= 0; d--) {
    if (d >= a.nbatch) continue;
    bool cut = d == a.micro_dim;
    int64_t at = batch % a.batch_extent[d] + a.batch_offset[d];
    if (cut) at += micro * a.batch_shape[d];
    number += (uint64_t)at * stride;
    stride *= (uint64_t)(cut ? a.batch_shape[d] * a.micros : a.batch_shape[d]);
    batch /= a.batch_extent[d];
  }
  bool cut = a.micro_dim == a.nbatch;
  int64_t all = (int64_t)a.all_heads * (cut ? a.micros : 1);
  int64_t at = a.first_head + head + (cut ? micro * a.all_heads : 0);
  return number * (uint64_t)all + (uint64_t)at;
}

/* What a launch draws with. */
struct Draw {
  uint64_t seed, step;
};

DTM_DEVICE Draw draw_of(const AttentionArgs &a) {
  const AttentionStep *s = (const AttentionStep *)a.step;
  return a.threshold ? Draw{s->seed, (uint64_t)s->step} : Draw{0, 0};
}

/* The number of the draw of a query with the key at position 0. */
DTM_DEVICE uint64_t draw_row(const AttentionArgs &a, uint64_t number, int query) {
  return (number * (uint64_t)a.all_queries + (uint64_t)query) * (uint64_t)a.all_keys;
}

/* Whether an element is kept: as runtime/abi/philox.h decides. */
DTM_DEVICE bool keeps(const AttentionArgs &a, const Draw &draw, uint64_t index) {
  return dtm_philox(draw.seed, a.instance, draw.step, index).x >> 8 >= a.threshold;
}

/* --- heads --------------------------------------------------------------------------------------
 */

DTM_DEVICE int group_of(const AttentionArgs &a, int head) {
  return (a.first_head + head) / a.group_size - a.first_group;
}

/* Query heads [begin, end) of the block that see a key head. */
struct Seers {
  int begin, end;
};

DTM_DEVICE Seers seers_of(const AttentionArgs &a, int group) {
  int begin = (a.first_group + group) * a.group_size - a.first_head;
  return Seers{max(begin, 0), min(begin + a.group_size, a.heads)};
}

DTM_DEVICE int blocks_of(int n, int size) {
  return (n + size - 1) / size;
}

/* The block of queries of one head that a thread block works on, and where its rows lie. */
struct Task {
  int batch, head, first, valid; /* rows [first, first + valid) */
  int64_t row, key_row;          /* of q, lse and delta; of k and v */
};

/* Task number `at`. Blocks of one head are neighbours, so that they find its keys in the L2 cache;
 * where causality makes the last ones the longest, those begin first. */
DTM_DEVICE Task task_of(const AttentionArgs &a, int size, int at) {
  int blocks = blocks_of(a.queries, size);
  int block = a.causal ? blocks - 1 - at % blocks : at % blocks;
  at /= blocks;
  Task t = {at / a.heads, at % a.heads, block * size, min(size, a.queries - block * size), 0, 0};
  t.row = (int64_t)at * a.queries + t.first;
  t.key_row = ((int64_t)t.batch * a.groups + group_of(a, t.head)) * a.keys;
  return t;
}

/* The first block of keys from `block` on of which one of `queries` sees a key. */
template <int SIZE> DTM_DEVICE int next_keys(const AttentionArgs &a, Range queries, int block) {
  if (!a.causal) return block;
  for (; block * SIZE < a.keys; block++) {
    Range keys = range_of(a.k_ranges, a.first_key, block * SIZE, (block + 1) * SIZE, a.keys);
    if (keys.least <= queries.most) break;
  }
  return block;
}

/* A block of queries of a head. */
struct Place {
  int head, block;
};

/* The first place from `at` on, head by head, where one of the queries sees one of `keys`; behind
 * the last of these heads where there is none. */
template <int SIZE>
DTM_DEVICE Place next_queries(const AttentionArgs &a, Range keys, Seers seers, Place at) {
  for (; at.head < seers.end; at = Place{at.head + 1, 0})
    for (; at.block * SIZE < a.queries; at.block++) {
      int first = at.block * SIZE;
      if (!a.causal) return at;
      Range queries = range_of(a.q_ranges, a.first_query, first, first + SIZE, a.queries);
      if (keys.least <= queries.most) return at;
    }
  return at;
}

#endif
