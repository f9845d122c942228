/* Attention beside the bare products it consists of, on one thread in one run.
 *
 * Forward: q k^T and p v for all pairs of queries and keys, as two batched matrix products of the
 * runtime (oneDNN for f32 and bf16). Backward: five such. A causal call does half of that work; its
 * ratio counts half of the products. The least time of several passes counts, as time of the
 * processor: it is one thread, and others may run beside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/attention.h"
#include "device/cpu/matmul.h"
#include "runtime/abi/number.h"
#include "table.h"

enum { PASSES = 15 };

typedef struct Case {
  uint32_t dtype;
  int64_t batch, heads, groups, length, width;
  int causal, dropout;
} Case;

static const Case cases[] = {
    {ABI_F32, 1, 12, 12, 1024, 64, 0, 0},  {ABI_F32, 1, 12, 12, 1024, 64, 1, 0},
    {ABI_F32, 1, 12, 12, 1024, 64, 1, 1},  {ABI_F32, 4, 12, 12, 64, 64, 1, 0},
    {ABI_F32, 1, 16, 4, 1024, 128, 1, 0},  {ABI_BF16, 1, 12, 12, 1024, 64, 0, 0},
    {ABI_BF16, 1, 12, 12, 1024, 64, 1, 0}, {ABI_BF16, 4, 12, 12, 64, 64, 1, 0},
    {ABI_F64, 1, 12, 12, 256, 64, 0, 0},
};

static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(uint32_t dtype, int64_t n) {
  void *p = malloc((size_t)n * abi_dtype_bytes(dtype) + 64);
  if (!p) abort();
  for (int64_t i = 0; i < n; i++) abi_store(p, dtype, i, (double)(i * 7919 % 1000) * 1e-3 - 0.5);
  return p;
}

/* Seconds of one batched product [rows, inner] x [inner, columns]; b transposed: [columns, inner].
 */
static double product(MatmulContext *context, const Case *c, int64_t rows, int64_t columns,
                      int64_t inner, int transposed) {
  MatmulShape s = {.dtype = c->dtype,
                   .nbatch = 1,
                   .batch = {c->batch * c->heads},
                   .a_batch = {rows * inner},
                   .b_batch = {columns * inner},
                   .out_batch = {rows * columns},
                   .m = rows,
                   .n = columns,
                   .k = inner,
                   .a_m = inner,
                   .a_k = 1,
                   .b_k = transposed ? 1 : columns,
                   .b_n = transposed ? inner : 1,
                   .out_m = columns,
                   .out_n = 1};
  int64_t n = c->batch * c->heads;
  void *a = room(c->dtype, n * rows * inner), *b = room(c->dtype, n * columns * inner),
       *out = room(c->dtype, n * rows * columns);
  const char *error = NULL;
  Matmul *m = dtm_rt_matmul_new(context, &s, a, b, NULL, NULL, out, &error);
  double least = 0;
  if (!m) abort();
  for (int pass = 0; pass < PASSES; pass++) {
    double begin = cpu_now();
    if (dtm_rt_matmul_run(m, &error)) abort();
    double seconds = cpu_now() - begin;
    if (pass == 0 || seconds < least) least = seconds;
  }
  dtm_rt_matmul_free(m);
  free(a);
  free(b);
  free(out);
  return least;
}

static void measure(MatmulContext *context, const Case *c) {
  int64_t l = c->length, w = c->width, rows = c->batch * c->heads * l,
          keys = c->batch * c->groups * l;
  Attention a = {.dtype = c->dtype,
                 .causal = c->causal,
                 .scale = 0.125,
                 .dropout = c->dropout ? 0.1 : 0,
                 .nbatch = 1,
                 .batch_extent = {c->batch},
                 .batch_shape = {c->batch},
                 .heads = c->heads,
                 .all_heads = c->heads,
                 .groups = c->groups,
                 .group_size = c->heads / c->groups,
                 .queries = l,
                 .keys = l,
                 .width = w,
                 .features = w,
                 .all_queries = l,
                 .all_keys = l,
                 .threads = 1};
  uint32_t sums = c->dtype == ABI_F64 ? ABI_F64 : ABI_F32;
  void *q = room(c->dtype, rows * w), *k = room(c->dtype, keys * w), *v = room(c->dtype, keys * w),
       *out = room(c->dtype, rows * w), *g = room(c->dtype, rows * w), *lse = room(sums, rows),
       *dq = room(c->dtype, rows * w), *dk = room(c->dtype, keys * w),
       *dv = room(c->dtype, keys * w), *scratch = malloc(dtm_rt_attention_scratch(&a) + 1);
  AttentionTensors t = {q, k, v, out, lse, g, NULL, dq, dk, dv};
  double forward = 0, backward = 0;
  for (int pass = 0; pass < PASSES; pass++) {
    double begin = cpu_now();
    dtm_rt_attention_forward(&a, &t, scratch);
    double middle = cpu_now();
    dtm_rt_attention_backward(&a, &t, scratch);
    double end = cpu_now();
    if (pass == 0 || middle - begin < forward) forward = middle - begin;
    if (pass == 0 || end - middle < backward) backward = end - middle;
  }
  /* q k^T, g v^T; p v, ds k; p^T g, ds^T q */
  double score = product(context, c, l, l, w, 1), sum = product(context, c, l, w, l, 0),
         share = c->causal ? 0.5 : 1;
  double flops = 4.0 * (double)rows * (double)l * (double)w * share;
  char shape[64];
  snprintf(shape, sizeof shape, "%s [%lld, %lld/%lld, %lld, %lld]%s%s", abi_dtype_name(c->dtype),
           (long long)c->batch, (long long)c->heads, (long long)c->groups, (long long)l,
           (long long)w, c->causal ? " causal" : "", c->dropout ? " drop" : "");
  printf("| %-37s | %7.3f | %6.1f | %8.2f | %7.3f | %6.1f | %8.2f |\n", shape, forward * 1e3,
         flops / forward * 1e-9, forward / ((score + sum) * share), backward * 1e3,
         2.5 * flops / backward * 1e-9, backward / ((2 * score + 3 * sum) * share));
  void *all[] = {q, k, v, out, g, lse, dq, dk, dv, scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

int main(void) {
  MatmulContext *context = dtm_rt_matmul_open(1);
  if (!context) abort();
  table_head("| %-37s | %7s | %6s | %8s | %7s | %6s | %8s |", "attention", "fwd ms", "GF/s",
             "products", "bwd ms", "GF/s", "products");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) measure(context, &cases[i]);
  dtm_rt_matmul_close(context);
  return 0;
}
