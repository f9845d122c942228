/* Whole-dim operators of the reference interpreter. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/ref_internal.h"

/* Calls `f` with each lane of operand 0 along `dim` copied to contiguous arrays. */
typedef struct Lane {
  const RefEval *e;
  int64_t n;     /* extent of the operand's dim */
  double *in[3]; /* operands of the same shape, where present */
  double *out[2];
  int64_t nout; /* extent of the results' dim */
} Lane;
typedef void LaneFn(Lane *l);

static bool each_lane(RefEval *e, uint32_t dim, uint32_t operands, LaneFn *f) {
  RefLanes x = ref_lanes(&e->in[0], dim);
  bool same_rank = e->out[0].rank == e->in[0].rank;
  int64_t nout = same_rank ? e->out[0].shape[dim] : 1;
  Lane l = {.e = e, .n = x.extent, .nout = nout};
  for (uint32_t i = 0; i < operands; i++) l.in[i] = ARENA_ARRAY(e->arena, double, x.extent);
  for (uint32_t k = 0; k < e->node->nresults; k++) l.out[k] = ARENA_ARRAY(e->arena, double, nout);
  for (int64_t o = 0; o < x.outer; o++)
    for (int64_t i = 0; i < x.inner; i++) {
      for (uint32_t j = 0; j < operands; j++)
        for (int64_t k = 0; k < x.extent; k++)
          l.in[j][k] = e->in[j].data[(o * x.extent + k) * x.inner + i];
      f(&l);
      for (uint32_t r = 0; r < e->node->nresults; r++)
        for (int64_t k = 0; k < nout; k++)
          e->out[r].data[(o * nout + k) * x.inner + i] = l.out[r][k];
    }
  return true;
}

static double log_sum(const double *x, int64_t n) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) max = ref_reduce(REDUCE_MAX, max, x[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
  return max + log(sum);
}

static void lane_softmax(Lane *l) {
  double z = log_sum(l->in[0], l->n);
  bool log_form = l->e->node->op == OP_LOG_SOFTMAX;
  for (int64_t i = 0; i < l->n; i++)
    l->out[0][i] = log_form ? l->in[0][i] - z : exp(l->in[0][i] - z);
}

/* softmax: y (g - sum(g y)); log_softmax: g - exp(y) sum(g). */
static void lane_softmax_backward(Lane *l) {
  const double *g = l->in[0], *y = l->in[1];
  bool log_form = l->e->node->op == OP_LOG_SOFTMAX_BACKWARD;
  double dot = 0;
  for (int64_t i = 0; i < l->n; i++) dot += log_form ? g[i] : g[i] * y[i];
  for (int64_t i = 0; i < l->n; i++)
    l->out[0][i] = log_form ? g[i] - exp(y[i]) * dot : y[i] * (g[i] - dot);
}

static void lane_extremum(Lane *l) {
  double sign = l->e->node->op == OP_ARGMAX ? 1 : -1;
  int64_t best = 0;
  for (int64_t i = 1; i < l->n; i++)
    if (sign * l->in[0][i] > sign * l->in[0][best]) best = i;
  l->out[0][0] = (double)best;
}

static void lane_cumsum(Lane *l) {
  bool reverse = ref_int(l->e, ATTR_REVERSE, 0) != 0;
  double sum = 0;
  for (int64_t i = 0; i < l->n; i++) {
    int64_t k = reverse ? l->n - 1 - i : i;
    l->out[0][k] = sum += l->in[0][k];
  }
}

/* Stable insertion sort: lanes are short. */
static void lane_sort(Lane *l) {
  bool down = l->e->node->op == OP_TOPK || ref_int(l->e, ATTR_DESCENDING, 0) != 0;
  int64_t *order = ARENA_ARRAY(l->e->arena, int64_t, l->n);
  for (int64_t i = 0; i < l->n; i++) {
    int64_t k = i;
    for (; k > 0; k--) {
      double a = l->in[0][order[k - 1]], b = l->in[0][i];
      if (down ? a >= b : a <= b) break;
      order[k] = order[k - 1];
    }
    order[k] = i;
  }
  for (int64_t k = 0; k < l->nout; k++) {
    l->out[0][k] = l->in[0][order[k]];
    l->out[1][k] = (double)order[k];
  }
}

/* --- norms: rows of the last `ndims` dims --------------------------------------------------------
 */

static void normalise_row(const double *x, int64_t n, bool centred, double eps, double *xhat,
                          double *rstd) {
  double mean = 0, square = 0;
  for (int64_t i = 0; centred && i < n; i++) mean += x[i] / (double)n;
  for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
  *rstd = 1 / sqrt(square + eps);
  for (int64_t i = 0; i < n; i++) xhat[i] = (x[i] - mean) * *rstd;
}

static bool ref_norm(RefEval *e) {
  Op op = e->node->op;
  bool backward = op == OP_LAYER_NORM_BACKWARD || op == OP_RMS_NORM_BACKWARD;
  bool centred = op == OP_LAYER_NORM || op == OP_NORMALIZE || op == OP_LAYER_NORM_BACKWARD;
  const RefTensor *x = &e->in[backward ? 1 : 0];
  uint32_t affine = backward ? 2 : 1;
  const double *w = e->node->noperands > affine ? e->in[affine].data : NULL;
  const double *b = e->node->noperands > affine + 1 ? e->in[affine + 1].data : NULL;
  int64_t n = 1, ndims = ref_int(e, ATTR_NDIMS, 1);
  for (uint32_t d = x->rank - (uint32_t)ndims; d < x->rank; d++) n *= x->shape[d];
  double *xhat = ARENA_ARRAY(e->arena, double, n), rstd;
  for (int64_t at = 0, total = ref_count(x); at < total; at += n) {
    double *y = e->out[0].data + at;
    normalise_row(x->data + at, n, centred, ref_float(e, ATTR_EPS, 1e-5), xhat, &rstd);
    if (!backward) {
      for (int64_t i = 0; i < n; i++) y[i] = xhat[i] * (w ? w[i] : 1) + (b ? b[i] : 0);
      continue;
    }
    const double *g = e->in[0].data + at;
    double mean_g = 0, mean_gx = 0;
    for (int64_t i = 0; i < n; i++) {
      double gw = g[i] * (w ? w[i] : 1);
      if (centred) mean_g += gw / (double)n;
      mean_gx += gw * xhat[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
      y[i] = rstd * (g[i] * (w ? w[i] : 1) - mean_g - xhat[i] * mean_gx);
  }
  return true;
}

/* g shared evenly between the elements of x that equal y. */
static bool ref_extremum_backward(RefEval *e) {
  const RefTensor *g = &e->in[0], *x = &e->in[1], *y = &e->in[2];
  double *ties = ARENA_ARRAY(e->arena, double, ref_count(y));
  for (int pass = 0; pass < 2; pass++) {
    int64_t index[DTM_MAX_DIMS] = {0}, at = 0;
    if (ref_count(x) == 0) return true;
    do {
      int64_t to = 0;
      for (uint32_t d = 0; d < x->rank; d++)
        to = to * y->shape[d] + (y->shape[d] == 1 ? 0 : index[d]);
      bool tie = x->data[at] == y->data[to];
      if (pass == 0)
        ties[to] += tie;
      else
        e->out[0].data[at] = tie ? g->data[to] / ties[to] : 0;
      at++;
    } while (ref_next(x->rank, x->shape, index));
  }
  return true;
}

static bool ref_softmax(RefEval *e) {
  return each_lane(e, ref_dim(e, -1), 1, lane_softmax);
}
static bool ref_softmax_backward(RefEval *e) {
  return each_lane(e, ref_dim(e, -1), 2, lane_softmax_backward);
}
static bool ref_argument(RefEval *e) {
  return each_lane(e, ref_dim(e, -1), 1, lane_extremum);
}
static bool ref_cumsum(RefEval *e) {
  return each_lane(e, ref_dim(e, -1), 1, lane_cumsum);
}
static bool ref_sort(RefEval *e) {
  return each_lane(e, ref_dim(e, -1), 1, lane_sort);
}

bool ref_whole_dim(RefEval *e) {
  static RefFn *const ops[OP_COUNT] = {
      [OP_SOFTMAX] = ref_softmax,
      [OP_SOFTMAX_BACKWARD] = ref_softmax_backward,
      [OP_LOG_SOFTMAX] = ref_softmax,
      [OP_LOG_SOFTMAX_BACKWARD] = ref_softmax_backward,
      [OP_LAYER_NORM] = ref_norm,
      [OP_LAYER_NORM_BACKWARD] = ref_norm,
      [OP_NORMALIZE] = ref_norm,
      [OP_RMS_NORM] = ref_norm,
      [OP_RMS_NORM_BACKWARD] = ref_norm,
      [OP_RMS_NORMALIZE] = ref_norm,
      [OP_EXTREMUM_BACKWARD] = ref_extremum_backward,
      [OP_ARGMAX] = ref_argument,
      [OP_ARGMIN] = ref_argument,
      [OP_CUMSUM] = ref_cumsum,
      [OP_SORT] = ref_sort,
      [OP_TOPK] = ref_sort,
  };
  return ops[e->node->op](e);
}
