/* Attention as an operator: see library_attention.h. */
#include "device/cpu/library_attention.h"

#include <string.h>

#include "device/cpu/attention.h"

static double as_number(int64_t bits) {
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* The block is of micro-batch `micro`, of `micros` along batch dim `dim`, or along the heads. */
static void take_part(Attention *a, uint32_t dim, int64_t micros, int64_t micro) {
  if (dim < a->nbatch) {
    a->batch_offset[dim] += micro * a->batch_shape[dim];
    a->batch_shape[dim] *= micros;
    return;
  }
  a->first_head += micro * a->all_heads;
  a->first_group += micro * (a->all_heads / a->group_size);
  a->all_heads *= micros;
}

static Attention attention_of(const LibCall *c) {
  int backward = c->code == ABI_LIB_ATTENTION_BACKWARD;
  const LibTensor *q = &c->t[backward ? 1 : 0], *k = q + 1, *v = q + 2;
  const LibTensor *positions = backward ? q + 5 : q + 3;
  int given = c->ntensors > (backward ? 9u : 5u);
  uint32_t h = q->rank - 3;
  Attention a = {.dtype = q->dtype,
                 .causal = c->args[2] != 0,
                 .scale = as_number(c->args[3]),
                 .nbatch = h,
                 .heads = q->extent[h],
                 .first_head = q->offset[h],
                 .all_heads = q->shape[h],
                 .groups = k->extent[h],
                 .first_group = k->offset[h],
                 .group_size = k->shape[h] ? q->shape[h] / k->shape[h] : 1,
                 .queries = q->extent[h + 1],
                 .keys = k->extent[h + 1],
                 .width = q->extent[h + 2],
                 .features = v->extent[h + 2],
                 .all_queries = q->shape[h + 1],
                 .all_keys = k->shape[h + 1],
                 .q_positions = given ? positions[0].data : NULL,
                 .k_positions = given ? positions[1].data : NULL,
                 .first_query = q->offset[h + 1],
                 .first_key = k->offset[h + 1],
                 .dropout = as_number(c->args[0]),
                 .instance = (uint64_t)c->args[1],
                 .threads = c->threads};
  memcpy(a.batch_extent, q->extent, sizeof *q->extent * h);
  memcpy(a.batch_offset, q->offset, sizeof *q->offset * h);
  memcpy(a.batch_shape, q->shape, sizeof *q->shape * h);
  if (a.group_size == 0) a.group_size = 1;
  if (c->step && c->args[4] >= 0) take_part(&a, (uint32_t)c->args[4], c->args[5], c->step->micro);
  if (c->step) {
    a.seed = c->step->seed;
    a.step = (uint64_t)c->step->step;
  }
  return a;
}

size_t dtm_rt_library_attention_scratch(const LibCall *c) {
  Attention a = attention_of(c);
  return dtm_rt_attention_scratch(&a);
}

void dtm_rt_library_attention(const LibCall *c, void *scratch) {
  Attention a = attention_of(c);
  const LibTensor *t = c->t, *results = &c->t[c->ntensors];
  if (c->code == ABI_LIB_ATTENTION) {
    AttentionTensors x = {.q = t[0].data,
                          .k = t[1].data,
                          .v = t[2].data,
                          .out = results[-2].data,
                          .lse = results[-1].data};
    dtm_rt_attention_forward(&a, &x, scratch);
    return;
  }
  AttentionTensors x = {.g = t[0].data,
                        .q = t[1].data,
                        .k = t[2].data,
                        .v = t[3].data,
                        .out = t[4].data,
                        .lse = t[5].data,
                        .dq = results[-3].data,
                        .dk = results[-2].data,
                        .dv = results[-1].data};
  dtm_rt_attention_backward(&a, &x, scratch);
}
