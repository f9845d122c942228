/* Factories, random numbers and the loss of the reference interpreter. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"
#include "runtime/abi/philox.h"

static double make(const RefEval *e, int64_t global, const int64_t *index, const Block *b) {
  uint64_t seed = e->ctx->seed, step = (uint64_t)e->ctx->step,
           instance = (uint64_t)ref_int(e, ATTR_INSTANCE, 0);
  double from = ref_float(e, ATTR_START_VALUE, 0), by = ref_float(e, ATTR_STEP_VALUE, 1);
  uint32_t dim = (uint32_t)ref_int(e, ATTR_DIM, 0);
  switch ((int)e->node->op) {
  case OP_CONST:
  case OP_FULL:
    return ref_float(e, ATTR_VALUE, 0);
  case OP_RAND:
    return philox_uniform(seed, instance, step, (uint64_t)global);
  case OP_RANDN:
    return philox_normal(seed, instance, step, (uint64_t)global);
  case OP_ARANGE:
    return from + by * (double)global;
  case OP_LOGSPACE:
    return pow(ref_float(e, ATTR_BASE, 10), from + by * (double)global);
  case OP_IOTA:
    return (double)ref_place(&e->node->result_types[0], dim, b->offset[dim] + index[dim]);
  }
  return NAN;
}

bool ref_factory(RefEval *e) {
  RefTensor *y = &e->out[0];
  const TensorType *t = &e->node->result_types[0];
  Block b = ref_block(t, e->node->coord);
  int64_t index[DTM_MAX_DIMS] = {0}, at = 0;
  if (ref_count(y) == 0) return true;
  do {
    double v = make(e, ref_global_index(t, &b, index), index, &b);
    y->data[at++] = dtype_is_float(t->dtype) ? v : ref_round(t->dtype, v);
  } while (ref_next(y->rank, y->shape, index));
  return true;
}

/* dropout and its derivative: the same mask, drawn by global index. */
bool ref_random(RefEval *e) {
  RefTensor *y = &e->out[0];
  const TensorType *t = &e->node->result_types[0];
  Block b = ref_block(t, e->node->coord);
  double p = ref_float(e, ATTR_P, 0.5);
  int64_t index[DTM_MAX_DIMS] = {0}, at = 0;
  if (ref_count(y) == 0) return true;
  do {
    bool keep = philox_keeps(e->ctx->seed, (uint64_t)ref_int(e, ATTR_INSTANCE, 0),
                             (uint64_t)e->ctx->step, (uint64_t)ref_global_index(t, &b, index), p);
    y->data[at] = keep ? e->in[0].data[at] / (1 - p) : 0;
    at++;
  } while (ref_next(y->rank, y->shape, index));
  return true;
}

/* Loss of one row (NaN for a label out of range): (1 - s) w[y] nll(y) + s / V * sum over c of w[c]
 * nll(c). */
static double row_loss(const double *x, int64_t vocab, int64_t label, const double *w,
                       double smoothing) {
  double max = -INFINITY, sum = 0, all = 0;
  for (int64_t c = 0; c < vocab; c++) max = ref_reduce(REDUCE_MAX, max, x[c]);
  for (int64_t c = 0; c < vocab; c++) sum += exp(x[c] - max);
  double z = max + log(sum);
  if (label < 0 || label >= vocab) return NAN;
  for (int64_t c = 0; c < vocab; c++) all += (w ? w[c] : 1) * (z - x[c]);
  double own = (w ? w[label] : 1) * (z - x[label]);
  return (1 - smoothing) * own + (smoothing > 0 ? smoothing / (double)vocab * all : 0);
}

/* The products of experts: row after row, each by the weight of the expert that its place is of. */
static bool ref_grouped(RefEval *e) {
  const RefTensor *rows = &e->in[0], *counts = &e->in[2];
  const TensorType *type = &e->node->operand_types[0], *of = &e->node->operand_types[2];
  int64_t places = rows->shape[2], wide = rows->shape[3], experts = counts->shape[1];
  int64_t each = (of->shape[1] + type->shape[1] - 1) / (type->shape[1] ? type->shape[1] : 1);
  int64_t first = ref_block(of, e->node->coord).offset[1];
  int64_t block = ref_block(type, e->node->coord).offset[1];
  bool weight = e->node->op == OP_GROUPED_LINEAR_WEIGHT, reverse = ref_int(e, ATTR_REVERSE, 0) != 0;
  int64_t other = weight ? e->in[1].shape[3] : e->out[0].shape[3];
  for (int64_t b = 0; b < counts->shape[0]; b++)
    for (int64_t r = 0; r < rows->shape[1]; r++) {
      int64_t row = (b * rows->shape[1] + r) * places;
      for (int64_t k = 0; k < experts; k++) {
        if ((first + k) / each - block != r) continue;
        for (int64_t n = (int64_t)counts->data[b * experts + k]; n > 0; n--, row++)
          for (int64_t i = 0; i < wide; i++)
            for (int64_t o = 0; o < other; o++) {
              const double x = rows->data[row * wide + i];
              int64_t at = reverse ? (k * wide + i) * other + o : (k * other + o) * wide + i;
              if (weight)
                e->out[0].data[(k * wide + i) * other + o] += x * e->in[1].data[row * other + o];
              else
                e->out[0].data[row * other + o] += x * e->in[1].data[at];
            }
      }
    }
  return true;
}

bool ref_fused(RefEval *e) {
  if (e->node->op == OP_GROUPED_LINEAR || e->node->op == OP_GROUPED_LINEAR_WEIGHT)
    return ref_grouped(e);
  if (e->node->op == OP_ATTENTION) return ref_attention(e);
  if (e->node->op == OP_ATTENTION_BACKWARD) return ref_attention_backward(e);
  const RefTensor *x = &e->in[0], *labels = &e->in[1];
  const Attr *how = ref_attr(e, ATTR_REDUCTION);
  const char *reduction = how ? how->as.s : "mean";
  const double *w = e->node->noperands == 3 ? e->in[2].data : NULL;
  int64_t vocab = x->shape[labels->rank], ignore = ref_int(e, ATTR_IGNORE_INDEX, -100);
  if (vocab != e->node->operand_types[0].shape[labels->rank]) return false;
  double total = 0, weight = 0;
  for (int64_t i = 0, n = ref_count(labels); i < n; i++) {
    int64_t label = (int64_t)labels->data[i];
    bool valid = label != ignore;
    double loss = valid ? row_loss(x->data + i * vocab, vocab, label, w,
                                   ref_float(e, ATTR_LABEL_SMOOTHING, 0))
                        : 0;
    if (strcmp(reduction, "none") == 0) e->out[0].data[i] = loss;
    total += loss;
    if (valid) weight += !w ? 1 : label >= 0 && label < vocab ? w[label] : NAN;
  }
  if (strcmp(reduction, "sum") == 0) e->out[0].data[0] = total;
  if (strcmp(reduction, "mean") == 0)
    e->out[0].data[0] = total / (e->node->mean_weight ? *e->node->mean_weight : weight);
  return true;
}
