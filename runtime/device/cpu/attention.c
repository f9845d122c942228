/* Attention: tasks and their scratch memory. See attention.h; the loops are in attention_loops.h.
 *
 * A task forward is a block of queries of one head. Backward it is a key head with the queries that
 * see it, in order, so that dk and dv are summed in one order; where there are few key heads, the
 * queries are cut into parts whose sums are added in the end. Both depend on sizes alone.
 */
#include "device/cpu/attention.h"

#include <omp.h>
#include <stddef.h>
#include <string.h>

#include "device/cpu/attention_block.h"
#include "runtime/abi/number.h"

enum {
  ALIGN = 64,
  MIN_WORK = 1 << 18, /* products below which threads do not pay off */
  BACKWARD_TASKS = 8  /* at least so many, if there are as many blocks of queries */
};

AttentionSight dtm_rt_attention_sight(const Attention *a, int64_t i, int64_t ni, int64_t j,
                                      int64_t nj) {
  if (!a->causal) return SIGHT_ALL;
  int64_t q_least = attention_query_at(a, i), q_most = q_least, k_least = attention_key_at(a, j),
          k_most = k_least;
  for (int64_t k = 1; k < ni; k++) {
    int64_t at = attention_query_at(a, i + k);
    if (at < q_least) q_least = at;
    if (at > q_most) q_most = at;
  }
  for (int64_t k = 1; k < nj; k++) {
    int64_t at = attention_key_at(a, j + k);
    if (at < k_least) k_least = at;
    if (at > k_most) k_most = at;
  }
  return k_least > q_most ? SIGHT_NONE : k_most <= q_least ? SIGHT_ALL : SIGHT_SOME;
}

static int64_t batches(const Attention *a) {
  int64_t n = 1;
  for (uint32_t d = 0; d < a->nbatch; d++) n *= a->batch_extent[d];
  return n;
}

/* Number in the whole tensor of a batch element of the block. */
static uint64_t global_batch(const Attention *a, int64_t n) {
  uint64_t at = 0, stride = 1;
  for (uint32_t d = a->nbatch; d-- > 0;) {
    at += (uint64_t)(n % a->batch_extent[d] + a->batch_offset[d]) * stride;
    stride *= (uint64_t)a->batch_shape[d];
    n /= a->batch_extent[d];
  }
  return at;
}

static AttentionHead head_of(const Attention *a, const AttentionTensors *t, int64_t n, int64_t h) {
  int64_t group = (a->first_head + h) / a->group_size - a->first_group;
  return (AttentionHead){.a = a,
                         .t = t,
                         .query_row = (n * a->heads + h) * a->queries,
                         .key_row = (n * a->groups + group) * a->keys,
                         .number = global_batch(a, n) * (uint64_t)a->all_heads +
                                   (uint64_t)(a->first_head + h)};
}

static const AttentionLoops *loops_of(const Attention *a) {
  const AttentionLoops *l = a->loops;
  for (int set = ATTENTION_SETS; !l && set-- > 0;)
    l = dtm_rt_attention_loops(set, a->dtype == ABI_F64);
  return l;
}

static int64_t query_blocks(const Attention *a) {
  return (a->queries + ATTENTION_QUERIES - 1) / ATTENTION_QUERIES;
}

static int64_t padded(const AttentionLoops *l, int64_t width) {
  return (width + l->panel - 1) / l->panel * l->panel;
}

/* Queries that see one key head: their heads times blocks. */
typedef struct Seers {
  int64_t first_head, blocks;
} Seers;

static Seers seers_of(const Attention *a, int64_t group) {
  int64_t begin = (a->first_group + group) * a->group_size - a->first_head,
          end = begin + a->group_size;
  if (begin < 0) begin = 0;
  if (end > a->heads) end = a->heads;
  return (Seers){begin, end > begin ? (end - begin) * query_blocks(a) : 0};
}

/* Into how many parts the queries of a key head are cut. */
static int64_t parts_of(const Attention *a) {
  int64_t tasks = batches(a) * a->groups, most = 1;
  for (int64_t g = 0; g < a->groups; g++) {
    int64_t blocks = seers_of(a, g).blocks;
    if (blocks > most) most = blocks;
  }
  int64_t parts = tasks ? (BACKWARD_TASKS + tasks - 1) / tasks : 1;
  return parts < most ? parts : most;
}

/* --- scratch ------------------------------------------------------------------------------------
 */

static void *take(unsigned char *base, size_t *at, int64_t elements, size_t size) {
  void *p = base ? base + *at : NULL;
  *at += ((size_t)elements * size + ALIGN - 1) / ALIGN * ALIGN;
  return p;
}

/* The memory of one thread at `base`; returns its bytes. */
static size_t lay_out(const Attention *a, const AttentionLoops *l, unsigned char *base,
                      AttentionWork *w) {
  int64_t width = padded(l, a->width), features = padded(l, a->features),
          most = width > features ? width : features, queries = ATTENTION_QUERIES,
          keys = ATTENTION_KEYS;
  size_t at = 0, s = l->size;
  w->q_panels = take(base, &at, queries * a->width, s);
  w->g_panels = take(base, &at, queries * a->features, s);
  w->out_panels = take(base, &at, queries * a->features, s);
  int64_t rows = l->panel * most; /* ... also room of rows as many as a vector has lanes */
  w->scores = take(base, &at, keys * queries > rows ? keys * queries : rows, s);
  w->cotangents = take(base, &at, keys * queries, s);
  w->k = take(base, &at, keys * width, s);
  w->v = take(base, &at, keys * features, s);
  w->q = take(base, &at, queries * width, s);
  w->g = take(base, &at, queries * features, s);
  w->dq = take(base, &at, queries * width, s);
  w->max = take(base, &at, queries, s);
  w->sum = take(base, &at, queries, s);
  w->delta = take(base, &at, queries, s);
  w->keep = take(base, &at, keys * l->panel, s);
  w->q_at = take(base, &at, queries, s);
  w->k_at = take(base, &at, keys, s);
  return at;
}

/* Elements of dk and dv of one task. */
static int64_t sums_elements(const Attention *a, const AttentionLoops *l) {
  int64_t n = a->keys * (padded(l, a->width) + padded(l, a->features));
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Tasks whose sums exist at the same time. */
static int64_t sums_kept(const Attention *a) {
  int64_t parts = parts_of(a);
  return parts == 1 ? a->threads : batches(a) * a->groups * parts;
}

size_t dtm_rt_attention_scratch(const Attention *a) {
  const AttentionLoops *l = loops_of(a);
  AttentionWork w;
  return ALIGN + (size_t)a->threads * lay_out(a, l, NULL, &w) +
         (size_t)(sums_kept(a) * sums_elements(a, l)) * l->size;
}

static unsigned char *aligned(void *scratch) {
  return (unsigned char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
}

static int threads_for(const Attention *a) {
  double work = (double)(batches(a) * a->heads * a->queries) * (double)a->keys *
                (double)(a->width + a->features);
  return work > MIN_WORK ? a->threads : 1;
}

/* --- tasks --------------------------------------------------------------------------------------
 */

void dtm_rt_attention_forward(const Attention *a, const AttentionTensors *t, void *scratch) {
  const AttentionLoops *l = loops_of(a);
  int64_t blocks = query_blocks(a), tasks = batches(a) * a->heads * blocks;
  unsigned char *base = aligned(scratch);
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(a))
  for (int64_t i = 0; i < tasks; i++) {
    AttentionWork w;
    size_t bytes = lay_out(a, l, NULL, &w);
    lay_out(a, l, base + bytes * (size_t)omp_get_thread_num(), &w);
    AttentionHead h = head_of(a, t, i / blocks / a->heads, i / blocks % a->heads);
    int64_t first = i % blocks * ATTENTION_QUERIES, left = a->queries - first;
    l->forward(&h, first, left < ATTENTION_QUERIES ? left : ATTENTION_QUERIES, &w);
  }
}

/* The sums of one key head, `parts` arrays, into dk and dv. */
static void write_sums(const Attention *a, const AttentionTensors *t, int64_t head,
                       const unsigned char *sums, int64_t parts) {
  const AttentionLoops *l = loops_of(a);
  int64_t apart = sums_elements(a, l), row = head * a->keys;
  l->write(a->dtype, t->dk, row, a->keys, a->width, sums, parts, apart);
  l->write(a->dtype, t->dv, row, a->keys, a->features,
           sums + (size_t)(a->keys * padded(l, a->width)) * l->size, parts, apart);
}

/* Part `part` of the queries that see key head `group` of batch element `n`. */
static void sum_part(const Attention *a, const AttentionTensors *t, int64_t n, int64_t group,
                     int64_t part, int64_t parts, const AttentionWork *w, unsigned char *sums) {
  const AttentionLoops *l = loops_of(a);
  Seers seers = seers_of(a, group);
  int64_t blocks = query_blocks(a);
  unsigned char *dv = sums + (size_t)(a->keys * padded(l, a->width)) * l->size;
  memset(sums, 0, (size_t)sums_elements(a, l) * l->size);
  for (int64_t i = seers.blocks * part / parts; i < seers.blocks * (part + 1) / parts; i++) {
    AttentionHead h = head_of(a, t, n, seers.first_head + i / blocks);
    int64_t first = i % blocks * ATTENTION_QUERIES, left = a->queries - first;
    l->backward(&h, first, left < ATTENTION_QUERIES ? left : ATTENTION_QUERIES, w, sums, dv);
  }
}

void dtm_rt_attention_backward(const Attention *a, const AttentionTensors *t, void *scratch) {
  const AttentionLoops *l = loops_of(a);
  AttentionWork any;
  int64_t parts = parts_of(a), heads = batches(a) * a->groups;
  size_t work = lay_out(a, l, NULL, &any), sums = (size_t)sums_elements(a, l) * l->size;
  unsigned char *base = aligned(scratch), *all_sums = base + work * (size_t)a->threads;
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(a))
  for (int64_t i = 0; i < heads * parts; i++) {
    AttentionWork w;
    int thread = omp_get_thread_num();
    lay_out(a, l, base + work * (size_t)thread, &w);
    int64_t head = i / parts, slot = parts == 1 ? thread : i;
    unsigned char *mine = all_sums + sums * (size_t)slot;
    sum_part(a, t, head / a->groups, head % a->groups, i % parts, parts, &w, mine);
    if (parts == 1) write_sums(a, t, head, mine, 1);
  }
#pragma omp parallel for schedule(static) num_threads(threads_for(a))
  for (int64_t head = 0; head < (parts > 1 ? heads : 0); head++)
    write_sums(a, t, head, all_sums + sums * (size_t)(head * parts), parts);
}
