/* Inside attention: one block of queries of one head, and the scratch memory of a thread.
 *
 * Keys go by in blocks too, so that scores exist for ATTENTION_QUERIES x ATTENTION_KEYS elements
 * at a time, in the caches, and never as a whole.
 */
#ifndef DTM_RT_ATTENTION_BLOCK_H
#define DTM_RT_ATTENTION_BLOCK_H

#include "device/cpu/attention.h"

enum { ATTENTION_QUERIES = 64, ATTENTION_KEYS = 64 };

/* One query head: where its rows begin, in rows. */
typedef struct AttentionHead {
  const Attention *a;
  const AttentionTensors *t;
  int64_t query_row, key_row;
  uint64_t number; /* of (batch, head) in the whole tensor */
} AttentionHead;

/* Scratch of one thread, arrays of the element type that is computed in. A *panel* is as many
 * queries as two vectors hold; panels hold rows of a tensor with queries side by side. */
typedef struct AttentionWork {
  void *q_panels, *g_panels, *out_panels; /* [panels][width, features][panel] */
  void *scores, *cotangents;              /* [keys][queries] */
  void *k, *v, *q, *g, *dq;               /* rows, padded to whole panels */
  void *max, *sum, *delta;                /* of each query */
  void *keep;                             /* [keys][panel]: what dropout multiplies by */
  void *q_at, *k_at;                      /* positions, as integers of that size */
} AttentionWork;

/* The loops of an instruction set for one element type. */
struct AttentionLoops {
  size_t size;   /* of an element */
  int64_t panel; /* queries of a panel; features of sums are padded to multiples */
  /* Queries [first, first + count), at most ATTENTION_QUERIES, with all keys. */
  void (*forward)(const AttentionHead *h, int64_t first, int64_t count, const AttentionWork *w);
  /* ... and their cotangents added to dk [keys, padded width] and dv [keys, padded features]. */
  void (*backward)(const AttentionHead *h, int64_t first, int64_t count, const AttentionWork *w,
                   void *dk, void *dv);
  /* Rows of `width` elements into a tensor from `row` on: the sum of `parts` arrays of [rows,
   * padded width], `apart` elements from each other. */
  void (*write)(uint32_t dtype, void *to, int64_t row, int64_t rows, int64_t width,
                const void *sums, int64_t parts, int64_t apart);
};

/* Those of an instruction set, in f64 if wide; the higher, the faster. NULL when this machine lacks
 * it; set 0 every machine has. */
enum { ATTENTION_SETS = 3 };
const AttentionLoops *dtm_rt_attention_loops(int set, int wide);

static inline int64_t attention_query_at(const Attention *a, int64_t i) {
  return a->q_positions ? a->q_positions[i] : a->first_query + i;
}
static inline int64_t attention_key_at(const Attention *a, int64_t j) {
  return a->k_positions ? a->k_positions[j] : a->first_key + j;
}

/* What causality leaves of queries [i, i + ni) with keys [j, j + nj). */
typedef enum AttentionSight { SIGHT_NONE, SIGHT_SOME, SIGHT_ALL } AttentionSight;
AttentionSight dtm_rt_attention_sight(const Attention *a, int64_t i, int64_t ni, int64_t j,
                                      int64_t nj);

#endif
