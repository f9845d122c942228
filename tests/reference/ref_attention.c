/* Attention and its derivative in the reference interpreter, element by element. */
#include <math.h>

#include "reference/ref_internal.h"
#include "runtime/abi/philox.h"

/* One rank's call: operands by name; offsets and whole extents from the types. */
typedef struct Call {
  RefEval *e;
  const RefTensor *q, *k, *v, *q_positions, *k_positions;
  const TensorType *q_type, *k_type;
  Block q_block, k_block;
  uint32_t h; /* dim of heads */
  double scale, p;
  bool causal;
} Call;

static Call call_of(RefEval *e) {
  uint32_t first = e->node->op == OP_ATTENTION_BACKWARD ? 1 : 0, positions = first ? 6 : 3;
  const TensorType *types = e->node->operand_types;
  Call c = {.e = e,
            .q = &e->in[first],
            .k = &e->in[first + 1],
            .v = &e->in[first + 2],
            .q_type = &types[first],
            .k_type = &types[first + 1],
            .h = e->in[first].rank - 3,
            .p = ref_float(e, ATTR_P, 0),
            .causal = ref_int(e, ATTR_CAUSAL, 0) != 0};
  c.q_block = ref_block(c.q_type, e->node->coord);
  c.k_block = ref_block(c.k_type, e->node->coord);
  if (e->node->noperands > positions) {
    c.q_positions = &e->in[positions];
    c.k_positions = &e->in[positions + 1];
  }
  c.scale = ref_float(e, ATTR_SCALE, 1 / sqrt((double)c.q_type->shape[c.h + 2]));
  return c;
}

/* The row of k and v that a query's head sees, at key j. `at` indexes [batch.., head, query]. */
static int64_t key_row(const Call *c, const int64_t *at, int64_t j) {
  int64_t groups = c->k_type->shape[c->h], size = groups ? c->q_type->shape[c->h] / groups : 1;
  int64_t row = 0;
  for (uint32_t d = 0; d < c->h; d++) row = row * c->k->shape[d] + at[d];
  int64_t head = at[c->h] + c->q_block.offset[c->h];
  row = row * c->k->shape[c->h] + head / (size ? size : 1) - c->k_block.offset[c->h];
  return row * c->k->shape[c->h + 1] + j;
}

static int64_t query_row(const Call *c, const int64_t *at) {
  int64_t row = 0;
  for (uint32_t d = 0; d < c->h + 2; d++) row = row * c->q->shape[d] + at[d];
  return row;
}

static int64_t query_position(const Call *c, const int64_t *at) {
  int64_t i = at[c->h + 1];
  return c->q_positions ? (int64_t)c->q_positions->data[i] : c->q_block.offset[c->h + 1] + i;
}
static int64_t key_position(const Call *c, int64_t j) {
  return c->k_positions ? (int64_t)c->k_positions->data[j] : j;
}

static double dot(const RefTensor *a, int64_t i, const RefTensor *b, int64_t j) {
  int64_t n = a->shape[a->rank - 1];
  double sum = 0;
  for (int64_t c = 0; c < n; c++) sum += a->data[i * n + c] * b->data[j * n + c];
  return sum;
}

static double score(const Call *c, const int64_t *at, int64_t j) {
  if (c->causal && key_position(c, j) > query_position(c, at)) return -INFINITY;
  return c->scale * dot(c->q, query_row(c, at), c->k, key_row(c, at, j));
}

/* 0, or what the kept ones are multiplied by. */
static double keeps(const Call *c, const int64_t *at, int64_t j) {
  uint64_t index = 0;
  if (c->p == 0) return 1;
  for (uint32_t d = 0; d <= c->h; d++)
    index = index * (uint64_t)c->q_type->shape[d] + (uint64_t)(at[d] + c->q_block.offset[d]);
  index = index * (uint64_t)c->q_type->shape[c->h + 1] + (uint64_t)query_position(c, at);
  index = index * (uint64_t)c->k_type->shape[c->h + 1] + (uint64_t)key_position(c, j);
  return philox_keeps(c->e->ctx->seed, (uint64_t)ref_int(c->e, ATTR_INSTANCE, 0),
                      (uint64_t)c->e->ctx->step, index, c->p)
             ? 1 / (1 - c->p)
             : 0;
}

static double log_sum(const Call *c, const int64_t *at) {
  double max = -INFINITY, sum = 0;
  int64_t keys = c->k->shape[c->h + 1];
  for (int64_t j = 0; j < keys; j++) max = fmax(max, score(c, at, j));
  for (int64_t j = 0; j < keys && max > -INFINITY; j++) sum += exp(score(c, at, j) - max);
  return max > -INFINITY ? max + log(sum) : -INFINITY;
}

static bool no_queries(const Call *c) {
  for (uint32_t d = 0; d < c->h + 2; d++)
    if (c->q->shape[d] == 0) return true;
  return false;
}

/* [rows of `like`, last]; last < 0: without that dim. */
static bool has_shape(const Call *c, const RefTensor *t, const RefTensor *like, int64_t last) {
  if (t->rank != c->h + (last < 0 ? 2 : 3)) return false;
  for (uint32_t d = 0; d < c->h + 2; d++)
    if (t->shape[d] != like->shape[d]) return false;
  return last < 0 || t->shape[c->h + 2] == last;
}

/* The blocks of a rank fit together, and it has the key heads that its query heads see. */
static bool conforms(const Call *c) {
  const RefTensor *q = c->q, *k = c->k, *in = c->e->in, *out = c->e->out;
  int64_t width = q->shape[c->h + 2], features = c->v->shape[c->h + 2];
  int64_t groups = c->k_type->shape[c->h], size = groups ? c->q_type->shape[c->h] / groups : 1;
  bool ok = has_shape(c, k, k, width) && has_shape(c, c->v, k, features) &&
            k->shape[c->h + 1] == c->k_type->shape[c->h + 1];
  for (uint32_t d = 0; d < c->h; d++) ok = ok && k->shape[d] == q->shape[d];
  for (int64_t i = 0; i < q->shape[c->h]; i++) {
    int64_t at = (c->q_block.offset[c->h] + i) / (size ? size : 1) - c->k_block.offset[c->h];
    ok = ok && at >= 0 && at < k->shape[c->h];
  }
  if (c->q_positions)
    ok = ok && c->q_positions->shape[0] == q->shape[c->h + 1] &&
         c->k_positions->shape[0] == k->shape[c->h + 1];
  if (c->e->node->op == OP_ATTENTION)
    return ok && has_shape(c, &out[0], q, features) && has_shape(c, &out[1], q, -1);
  return ok && has_shape(c, &in[0], q, features) && has_shape(c, &in[4], q, features) &&
         has_shape(c, &in[5], q, -1) && has_shape(c, &out[0], q, width) &&
         has_shape(c, &out[1], k, width) && has_shape(c, &out[2], k, features);
}

bool ref_attention(RefEval *e) {
  Call c = call_of(e);
  if (!conforms(&c)) return false;
  int64_t at[DTM_MAX_DIMS] = {0}, keys = c.k->shape[c.h + 1], features = c.v->shape[c.h + 2];
  if (no_queries(&c)) return true;
  do {
    int64_t row = query_row(&c, at);
    double lse = e->out[1].data[row] = log_sum(&c, at);
    for (int64_t j = 0; j < keys && lse > -INFINITY; j++)
      for (int64_t f = 0; f < features; f++)
        e->out[0].data[row * features + f] += keeps(&c, at, j) * exp(score(&c, at, j) - lse) *
                                              c.v->data[key_row(&c, at, j) * features + f];
  } while (ref_next(c.h + 2, c.q->shape, at));
  return true;
}

bool ref_attention_backward(RefEval *e) {
  Call c = call_of(e);
  if (!conforms(&c)) return false;
  const RefTensor *g = &e->in[0], *out = &e->in[4], *lse = &e->in[5];
  int64_t at[DTM_MAX_DIMS] = {0}, keys = c.k->shape[c.h + 1], width = c.q->shape[c.h + 2],
          features = c.v->shape[c.h + 2];
  if (no_queries(&c)) return true;
  do {
    int64_t row = query_row(&c, at);
    for (int64_t j = 0; j < keys; j++) {
      double s = score(&c, at, j);
      if (s == -INFINITY) continue;
      int64_t key = key_row(&c, at, j);
      double p = exp(s - lse->data[row]), keep = keeps(&c, at, j);
      double ds = c.scale * p * (keep * dot(g, row, c.v, key) - dot(g, row, out, row));
      for (int64_t w = 0; w < width; w++) {
        e->out[0].data[row * width + w] += ds * c.k->data[key * width + w];
        e->out[1].data[key * width + w] += ds * c.q->data[row * width + w];
      }
      for (int64_t f = 0; f < features; f++)
        e->out[2].data[key * features + f] += keep * p * g->data[row * features + f];
    }
  } while (ref_next(c.h + 2, c.q->shape, at));
  return true;
}

void ref_attention_sums(RefEval *e, RefTensor *lse) {
  Call c = call_of(e);
  int64_t at[DTM_MAX_DIMS] = {0};
  if (no_queries(&c)) return;
  do {
    double sum = log_sum(&c, at);
    lse->data[query_row(&c, at)] = sum > -INFINITY ? sum : 0;
  } while (ref_next(c.h + 2, c.q->shape, at));
}
