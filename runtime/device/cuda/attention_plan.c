/* Attention on a GPU: which kernels, with which sizes. See attention_plan.h. */
#include "device/cuda/attention_plan.h"

#include <string.h>

#include "runtime/abi/philox.h"

enum { WARP = 32, SCRATCH_ALIGN = 256, DELTA_THREADS = 256, MMA_DELTA_ROWS = 16 };

/* Of a class of head dims: ATTENTION_CLASSES. */
typedef struct Class {
  int head, f_mt, f_keys, k_mt, k_split, k_queries, q_mt, q_keys;
} Class;

static const Class classes[] = {
#define X(...) {__VA_ARGS__},
    ATTENTION_CLASSES(X)
#undef X
};

static double as_number(int64_t bits) {
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static uint32_t blocks_of(int64_t n, int64_t size) {
  return (uint32_t)((n + size - 1) / size);
}

static void add(AttentionPlan *p, const char *kernel, uint32_t blocks, uint32_t parts,
                uint32_t block, size_t shared) {
  if (blocks == 0 || parts == 0) return;
  p->launch[p->nlaunches++] = (AttentionLaunch){
      .kernel = kernel, .grid = blocks * parts, .block = block, .shared = (uint32_t)shared};
}

/* On tensor cores. */
static void plan_class(AttentionPlan *p, const Class *c) {
  const AttentionArgs *a = &p->args;
  uint32_t heads = (uint32_t)(a->batches * a->heads), groups = (uint32_t)(a->batches * a->groups);
  int rows = ATTENTION_WARPS * 16;
  size_t row = (size_t)c->head * 2 + 16;
  uint32_t threads = ATTENTION_WARPS * WARP;
  if (!p->which.backward) {
    int f = rows * c->f_mt;
    add(p, "attention_forward", blocks_of(a->queries, f) * heads, 1, threads,
        row * (size_t)(f + 4 * c->f_keys));
    return;
  }
  int k = rows * c->k_mt, q = rows * c->q_mt;
  add(p, "attention_delta", blocks_of((int64_t)heads * a->queries, MMA_DELTA_ROWS), 1, threads, 0);
  add(p, "attention_keys", blocks_of(a->keys, k) * groups, 1, threads * (uint32_t)c->k_split,
      row * (size_t)(2 * k + 4 * c->k_queries));
  add(p, "attention_queries", blocks_of(a->queries, q) * heads, 1, threads,
      row * (size_t)(2 * q + 4 * c->q_keys));
}

/* On the ordinary cores. */
static void plan_plain(AttentionPlan *p, size_t size) {
  const AttentionArgs *a = &p->args;
  uint32_t heads = (uint32_t)(a->batches * a->heads), groups = (uint32_t)(a->batches * a->groups);
  int side = p->which.few ? ATTENTION_SIDE : 4 * ATTENTION_SIDE;
  int columns = ATTENTION_SUMS / (int)size;
  size_t shared = size * 2 * (size_t)side * (size_t)(side + 1);
  uint32_t threads = ATTENTION_SIDE * ATTENTION_SIDE, of_queries = blocks_of(a->queries, side);
  uint32_t features = blocks_of(a->features, columns), width = blocks_of(a->width, columns);
  if (!p->which.backward) {
    add(p, "attention_forward", of_queries * heads, features ? features : 1, threads,
        shared); /* there is lse all the same */
    return;
  }
  add(p, "attention_delta", blocks_of((int64_t)heads * a->queries * WARP, DELTA_THREADS), 1,
      DELTA_THREADS, 0);
  add(p, "attention_keys", blocks_of(a->keys, side) * groups, width > features ? width : features,
      threads, shared);
  add(p, "attention_queries", of_queries * heads, width, threads, shared);
}

static size_t take(AttentionPlan *p, size_t bytes) {
  size_t at = p->scratch;
  p->scratch += (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
  return at;
}

static AttentionArgs args_of(const LibTensor *q, const LibTensor *k, const LibTensor *v,
                             const int64_t args[6]) {
  uint32_t h = q->rank - 3;
  double dropout = as_number(args[0]);
  AttentionArgs a = {.first_query = q->offset[h + 1],
                     .first_key = k->offset[h + 1],
                     .all_queries = q->shape[h + 1],
                     .all_keys = k->shape[h + 1],
                     .instance = (uint64_t)args[1],
                     .scale = as_number(args[3]),
                     .kept = dropout > 0 ? 1 / (1 - dropout) : 1,
                     .threshold = philox_keep_threshold(dropout),
                     .causal = args[2] != 0,
                     .batches = 1,
                     .heads = (int)q->extent[h],
                     .groups = (int)k->extent[h],
                     .first_head = (int)q->offset[h],
                     .all_heads = (int)q->shape[h],
                     .first_group = (int)k->offset[h],
                     .group_size = k->shape[h] ? (int)(q->shape[h] / k->shape[h]) : 1,
                     .queries = (int)q->extent[h + 1],
                     .keys = (int)k->extent[h + 1],
                     .width = (int)q->extent[h + 2],
                     .features = (int)v->extent[h + 2],
                     .nbatch = (int)h,
                     .micro_dim = (int)args[4],
                     .micros = (int)args[5]};
  if (a.group_size == 0) a.group_size = 1;
  for (uint32_t d = 0; d < h; d++) {
    a.batches *= (int)q->extent[d];
    a.batch_extent[d] = (int)q->extent[d];
    a.batch_offset[d] = q->offset[d];
    a.batch_shape[d] = q->shape[d];
  }
  return a;
}

AttentionPlan dtm_cuda_attention_plan(const AbiCudaAttention *which, const LibTensor *t,
                                      uint32_t ntensors, const int64_t args[6]) {
  int backward = which->backward;
  uint32_t head = which->head;
  const LibTensor *q = &t[backward ? 1 : 0], *k = q + 1, *v = q + 2;
  size_t size = which->dtype == ABI_F64 ? sizeof(double) : sizeof(float);
  AttentionPlan p = {.which = *which,
                     .positions = ntensors > (backward ? 9u : 5u),
                     .args = args_of(q, k, v, args)};
  const AttentionArgs *a = &p.args;
  size_t per_row = head ? 2 * sizeof(float) : size; /* on tensor cores: see Pair there */
  p.delta = take(&p, backward ? per_row * (size_t)(a->batches * a->heads) * (size_t)a->queries : 0);
  if (p.positions && a->causal) {
    uint32_t of_queries = blocks_of(a->queries, ATTENTION_GRANULE),
             of_keys = blocks_of(a->keys, ATTENTION_GRANULE);
    p.q_ranges = take(&p, of_queries * 2 * sizeof(int32_t));
    p.k_ranges = take(&p, of_keys * 2 * sizeof(int32_t));
    add(&p, "attention_ranges", blocks_of((int64_t)(of_queries + of_keys) * WARP, 128), 1, 128, 0);
  }
  if (head == 0) plan_plain(&p, size);
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if ((uint32_t)classes[i].head == head) plan_class(&p, &classes[i]);
  return p;
}

AttentionArgs dtm_cuda_attention_args(const AttentionPlan *p, void *const *t, void *scratch,
                                      const void *step) {
  AttentionArgs a = p->args;
  unsigned char *room = scratch;
  void *const *q = p->which.backward ? t + 1 : t, *const *positions =
                                                      p->which.backward ? t + 6 : t + 3;
  void *const *results = positions + (p->positions ? 2 : 0);
  a.q = q[0];
  a.k = q[1];
  a.v = q[2];
  a.step = step;
  if (p->positions) {
    a.q_positions = positions[0];
    a.k_positions = positions[1];
    a.q_ranges = a.causal ? room + p->q_ranges : NULL;
    a.k_ranges = a.causal ? room + p->k_ranges : NULL;
  }
  if (!p->which.backward) {
    a.out = results[0];
    a.lse = results[1];
    return a;
  }
  a.g = t[0];
  a.out = t[4];
  a.lse = t[5];
  a.delta = room + p->delta;
  a.dq = results[0];
  a.dk = results[1];
  a.dv = results[2];
  return a;
}
