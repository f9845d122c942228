/* Attention: see attention.h. */
#include "core/attention.h"

#include <math.h>
#include <omp.h>

#include "runtime/abi/number.h"
#include "runtime/abi/philox.h"

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

static int64_t query_position(const Attention *a, int64_t i) {
  return a->q_positions ? a->q_positions[i] : a->first_query + i;
}
static int64_t key_position(const Attention *a, int64_t j) {
  return a->k_positions ? a->k_positions[j] : a->first_key + j;
}

/* Key head of the block that query head `h` of the block sees. */
static int64_t group_of(const Attention *a, int64_t h) {
  return (a->first_head + h) / a->group_size - a->first_group;
}

static double mask(const Attention *a, uint64_t row, int64_t i, int64_t j) {
  if (a->dropout == 0) return 1;
  uint64_t query = row * (uint64_t)a->all_queries + (uint64_t)query_position(a, i),
           index = query * (uint64_t)a->all_keys + (uint64_t)key_position(a, j);
  return philox_keeps(a->seed, a->instance, a->step, index, a->dropout) ? 1 / (1 - a->dropout) : 0;
}

static uint32_t sums_dtype(const Attention *a) {
  return a->dtype == ABI_F64 ? ABI_F64 : ABI_F32;
}

/* One query head: rows of its tensors. */
typedef struct Head {
  const Attention *a;
  const AttentionTensors *t;
  int64_t queries, keys; /* first row of q and out; of k and v */
  uint64_t number;       /* global number of (batch, head) */
} Head;

static Head head_of(const Attention *a, const AttentionTensors *t, int64_t n, int64_t h) {
  return (Head){.a = a,
                .t = t,
                .queries = (n * a->heads + h) * a->queries,
                .keys = (n * a->groups + group_of(a, h)) * a->keys,
                .number =
                    global_batch(a, n) * (uint64_t)a->all_heads + (uint64_t)(a->first_head + h)};
}

static double dot(const void *x, int64_t i, const void *y, int64_t j, uint32_t dtype, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; c++)
    sum += abi_load(x, dtype, i * n + c) * abi_load(y, dtype, j * n + c);
  return sum;
}

static double score(const Head *h, int64_t i, int64_t j) {
  const Attention *a = h->a;
  if (a->causal && key_position(a, j) > query_position(a, i)) return -INFINITY;
  return a->scale * dot(h->t->q, h->queries + i, h->t->k, h->keys + j, a->dtype, a->width);
}

static void forward_query(const Head *h, int64_t i) {
  const Attention *a = h->a;
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < a->keys; j++) max = fmax(max, score(h, i, j));
  for (int64_t j = 0; j < a->keys; j++) sum += max == -INFINITY ? 0 : exp(score(h, i, j) - max);
  abi_store(h->t->lse, sums_dtype(a), h->queries + i, max + log(sum));
  for (int64_t c = 0; c < a->features; c++) {
    double out = 0;
    for (int64_t j = 0; j < a->keys && sum > 0; j++)
      out += mask(a, h->number, i, j) * exp(score(h, i, j) - max) / sum *
             abi_load(h->t->v, a->dtype, (h->keys + j) * a->features + c);
    abi_store(h->t->out, a->dtype, (h->queries + i) * a->features + c, out);
  }
}

void dtm_rt_attention_forward(const Attention *a, const AttentionTensors *t, void *scratch) {
  (void)scratch;
  int64_t heads = batches(a) * a->heads;
#pragma omp parallel for schedule(static) num_threads(a->threads) collapse(2)
  for (int64_t b = 0; b < heads; b++)
    for (int64_t i = 0; i < a->queries; i++) {
      Head h = head_of(a, t, b / a->heads, b % a->heads);
      forward_query(&h, i);
    }
}

static double delta(const Head *h, int64_t i) {
  const Attention *a = h->a;
  if (h->t->delta) return abi_load(h->t->delta, sums_dtype(a), h->queries + i);
  return dot(h->t->g, h->queries + i, h->t->out, h->queries + i, a->dtype, a->features);
}

/* Probability of (i, j), its mask, and the cotangent of its score. */
static double weigh(const Head *h, int64_t i, int64_t j, double *keep, double *cotangent) {
  const Attention *a = h->a;
  double lse = abi_load(h->t->lse, sums_dtype(a), h->queries + i), s = score(h, i, j);
  *keep = mask(a, h->number, i, j);
  *cotangent = 0;
  if (s == -INFINITY) return 0;
  double p = exp(s - lse),
         g = dot(h->t->g, h->queries + i, h->t->v, h->keys + j, a->dtype, a->features);
  *cotangent = a->scale * p * (*keep * g - delta(h, i));
  return p;
}

static void backward_queries(const Head *h) {
  const Attention *a = h->a;
  for (int64_t i = 0; i < a->queries; i++)
    for (int64_t c = 0; c < a->width; c++) {
      double sum = 0, keep, ds;
      for (int64_t j = 0; j < a->keys; j++) {
        weigh(h, i, j, &keep, &ds);
        sum += ds * abi_load(h->t->k, a->dtype, (h->keys + j) * a->width + c);
      }
      abi_store(h->t->dq, a->dtype, (h->queries + i) * a->width + c, sum);
    }
}

/* One row of dk and dv: from all query heads that see it. */
static void backward_key(const Attention *a, const AttentionTensors *t, int64_t n, int64_t group,
                         int64_t j) {
  int64_t key = (n * a->groups + group) * a->keys + j;
  for (int64_t c = 0; c < a->width || c < a->features; c++) {
    double dk = 0, dv = 0, keep, ds;
    for (int64_t head = 0; head < a->heads; head++) {
      if (group_of(a, head) != group) continue;
      Head h = head_of(a, t, n, head);
      for (int64_t i = 0; i < a->queries; i++) {
        double p = weigh(&h, i, j, &keep, &ds);
        if (c < a->width) dk += ds * abi_load(t->q, a->dtype, (h.queries + i) * a->width + c);
        if (c < a->features)
          dv += keep * p * abi_load(t->g, a->dtype, (h.queries + i) * a->features + c);
      }
    }
    if (c < a->width) abi_store(t->dk, a->dtype, key * a->width + c, dk);
    if (c < a->features) abi_store(t->dv, a->dtype, key * a->features + c, dv);
  }
}

void dtm_rt_attention_backward(const Attention *a, const AttentionTensors *t, void *scratch) {
  (void)scratch;
  int64_t heads = batches(a) * a->heads, keys = batches(a) * a->groups * a->keys;
#pragma omp parallel for schedule(static) num_threads(a->threads)
  for (int64_t b = 0; b < heads; b++) {
    Head h = head_of(a, t, b / a->heads, b % a->heads);
    backward_queries(&h);
  }
#pragma omp parallel for schedule(static) num_threads(a->threads)
  for (int64_t b = 0; b < keys; b++)
    backward_key(a, t, b / a->keys / a->groups, b / a->keys % a->groups, b % a->keys);
}

size_t dtm_rt_attention_scratch(const Attention *a) {
  (void)a;
  return 0;
}
