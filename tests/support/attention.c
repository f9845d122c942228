/* Attention by plain loops in f64: see attention.h. */
#include "support/attention.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "runtime/abi/number.h"
#include "runtime/abi/philox.h"

static uint64_t state = 1;
static double draw(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 40) * 0x1p-23 - 1;
}

static double *numbers(int64_t n, uint32_t dtype) {
  double *x = calloc((size_t)n + 1, sizeof *x);
  unsigned char one[8];
  for (int64_t i = 0; i < n; i++) {
    abi_store(one, dtype, 0, draw());
    x[i] = abi_load(one, dtype, 0);
  }
  return x;
}

static int64_t batches(const Attention *a) {
  int64_t n = 1;
  for (uint32_t d = 0; d < a->nbatch; d++) n *= a->batch_extent[d];
  return n;
}

AttentionWhole attention_begin(Attention a) {
  AttentionWhole w = {.a = a, .rows = batches(&a) * a.heads * a.queries};
  w.keys = batches(&a) * a.groups * a.keys;
  w.q = numbers(w.rows * a.width, a.dtype);
  w.k = numbers(w.keys * a.width, a.dtype);
  w.v = numbers(w.keys * a.features, a.dtype);
  w.g = numbers(w.rows * a.features, a.dtype);
  w.out = calloc((size_t)(w.rows * a.features) + 1, sizeof(double));
  w.lse = calloc((size_t)w.rows + 1, sizeof(double));
  w.dq = calloc((size_t)(w.rows * a.width) + 1, sizeof(double));
  w.dk = calloc((size_t)(w.keys * a.width) + 1, sizeof(double));
  w.dv = calloc((size_t)(w.keys * a.features) + 1, sizeof(double));
  return w;
}

void attention_end(AttentionWhole *w) {
  double *all[] = {w->q, w->k, w->v, w->g, w->out, w->lse, w->dq, w->dk, w->dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

double attention_inner(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; c++) sum += x[c] * y[c];
  return sum;
}

static double keeps(const Attention *a, uint64_t batch, int64_t head, int64_t query, int64_t key) {
  uint64_t index = batch * (uint64_t)a->all_heads + (uint64_t)(head + a->first_head);
  index = (index * (uint64_t)a->all_queries + (uint64_t)query) * (uint64_t)a->all_keys;
  bool keep = philox_keeps(a->seed, a->instance, a->step, index + (uint64_t)key, a->dropout);
  return a->dropout == 0 ? 1 : keep ? 1 / (1 - a->dropout) : 0;
}

/* The definition, for one query. Batch dims: at most one. */
static void define_query(AttentionWhole *w, int64_t b, int64_t h, int64_t i) {
  const Attention *a = &w->a;
  int64_t row = (b * a->heads + h) * a->queries + i;
  int64_t first = (b * a->groups + (h + a->first_head) / a->group_size - a->first_group) * a->keys;
  int64_t at = a->q_positions ? a->q_positions[i] : a->first_query + i;
  double *p = calloc((size_t)a->keys + 1, sizeof *p), max = -INFINITY, sum = 0;
  const double *q = w->q + row * a->width, *g = w->g + row * a->features;
  double *out = w->out + row * a->features;
  for (int64_t j = 0; j < a->keys; j++) {
    int64_t key = a->k_positions ? a->k_positions[j] : a->first_key + j;
    bool seen = !a->causal || key <= at;
    p[j] =
        seen ? a->scale * attention_inner(q, w->k + (first + j) * a->width, a->width) : -INFINITY;
    max = fmax(max, p[j]);
  }
  for (int64_t j = 0; j < a->keys; j++) sum += p[j] = max == -INFINITY ? 0 : exp(p[j] - max);
  w->lse[row] = max + log(sum);
  for (int64_t j = 0; j < a->keys && sum > 0; j++) {
    int64_t key = a->k_positions ? a->k_positions[j] : a->first_key + j;
    double keep = keeps(a, (uint64_t)(b + a->batch_offset[0]), h, at, key);
    for (int64_t c = 0; c < a->features; c++) {
      out[c] += keep * p[j] / sum * w->v[(first + j) * a->features + c];
      w->dv[(first + j) * a->features + c] += keep * p[j] / sum * g[c];
    }
  }
  double delta = attention_inner(g, out, a->features);
  for (int64_t j = 0; j < a->keys && sum > 0; j++) {
    int64_t key = a->k_positions ? a->k_positions[j] : a->first_key + j;
    double keep = keeps(a, (uint64_t)(b + a->batch_offset[0]), h, at, key);
    double dp = attention_inner(g, w->v + (first + j) * a->features, a->features);
    double ds = a->scale * p[j] / sum * (keep * dp - delta);
    for (int64_t c = 0; c < a->width; c++) {
      w->dq[row * a->width + c] += ds * w->k[(first + j) * a->width + c];
      w->dk[(first + j) * a->width + c] += ds * q[c];
    }
  }
  free(p);
}

void attention_define(AttentionWhole *w) {
  for (int64_t b = 0; b < batches(&w->a); b++)
    for (int64_t h = 0; h < w->a.heads; h++)
      for (int64_t i = 0; i < w->a.queries; i++) define_query(w, b, h, i);
}

static void *stored(const double *x, int64_t n, uint32_t dtype) {
  void *p = malloc((size_t)(n + 1) * abi_dtype_bytes(dtype));
  for (int64_t i = 0; i < n; i++) abi_store(p, dtype, i, x[i]);
  return p;
}

/* Room for n elements that begins as NaN: all is to be written. */
static void *unwritten(int64_t n, uint32_t dtype) {
  void *p = malloc((size_t)(n + 1) * abi_dtype_bytes(dtype));
  for (int64_t i = 0; i < n; i++) abi_store(p, dtype, i, NAN);
  return p;
}

uint32_t attention_sums_dtype(uint32_t dtype) {
  return dtype == ABI_F64 ? ABI_F64 : ABI_F32;
}

void attention_compare(const char *what, const void *got, uint32_t dtype, const double *want,
                       int64_t n, double tolerance) {
  double scale = 1;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(want[i])) scale = fmax(scale, fabs(want[i]));
  for (int64_t i = 0; i < n; i++) {
    double x = abi_load(got, dtype, i);
    bool same = isinf(want[i]) ? x == want[i] : fabs(x - want[i]) <= tolerance * scale;
    ck_assert_msg(same, "%s[%lld] is %.9g, want %.9g", what, (long long)i, x, want[i]);
  }
}

AttentionRun attention_allocate(const AttentionWhole *w) {
  const Attention *a = &w->a;
  uint32_t d = a->dtype, s = attention_sums_dtype(d);
  return (AttentionRun){.t = {.q = stored(w->q, w->rows * a->width, d),
                              .k = stored(w->k, w->keys * a->width, d),
                              .v = stored(w->v, w->keys * a->features, d),
                              .g = stored(w->g, w->rows * a->features, d),
                              .out = unwritten(w->rows * a->features, d),
                              .lse = unwritten(w->rows, s),
                              .dq = unwritten(w->rows * a->width, d),
                              .dk = unwritten(w->keys * a->width, d),
                              .dv = unwritten(w->keys * a->features, d)},
                        .scratch = malloc(dtm_rt_attention_scratch(a))};
}

void attention_release(AttentionRun *r) {
  void *all[] = {(void *)r->t.q, (void *)r->t.k, (void *)r->t.v, (void *)r->t.g, r->t.out,
                 r->t.lse,       r->t.dq,        r->t.dk,        r->t.dv,        r->scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

Attention attention_shape(uint32_t dtype, int64_t batch, int64_t heads, int64_t groups,
                          int64_t queries, int64_t keys, int64_t width, int64_t features) {
  return (Attention){.dtype = dtype,
                     .scale = 0.7,
                     .nbatch = 1,
                     .batch_extent = {batch},
                     .batch_shape = {batch},
                     .heads = heads,
                     .all_heads = heads,
                     .groups = groups,
                     .group_size = groups ? heads / groups : 1,
                     .queries = queries,
                     .keys = keys,
                     .width = width,
                     .features = features,
                     .all_queries = queries,
                     .all_keys = keys,
                     .threads = 2};
}

Attention attention_dropped(uint32_t dtype, int64_t queries, int64_t keys) {
  Attention a = attention_shape(dtype, 2, 2, 1, queries, keys, 8, 8);
  a.dropout = 0.4;
  a.seed = 5;
  a.instance = 77;
  a.step = 3;
  a.batch_offset[0] = 3;
  a.batch_shape[0] = 9;
  a.first_query = 11;
  a.all_queries = 100;
  a.first_key = 20;
  a.all_keys = 200;
  a.causal = 1;
  return a;
}

Attention attention_cut_heads(uint32_t dtype) {
  Attention a = attention_shape(dtype, 1, 5, 3, 40, 30, 8, 8);
  a.first_head = 3;
  a.all_heads = 12;
  a.first_group = 1;
  a.group_size = 3;
  return a;
}
