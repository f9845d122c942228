/* Contractions and reductions of the reference interpreter, by loops over all indices. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"

/* Letters of each operand's dims and of the result's, as text; upper case = batch of matmul. */
typedef struct Letters {
  char in[2][DTM_MAX_DIMS + 1], out[DTM_MAX_DIMS + 1];
} Letters;

static void letters_matmul(const RefTensor *a, const RefTensor *b, Letters *l) {
  uint32_t ba = a->rank > 2 ? a->rank - 2 : 0, bb = b->rank > 2 ? b->rank - 2 : 0;
  uint32_t batch = ba > bb ? ba : bb;
  memset(l, 0, sizeof *l);
  for (uint32_t d = 0; d < batch; d++) {
    char c = (char)('A' + d);
    l->out[d] = c;
    if (d + ba >= batch) l->in[0][d + ba - batch] = c;
    if (d + bb >= batch) l->in[1][d + bb - batch] = c;
  }
  strcat(l->in[0], a->rank > 1 ? "mk" : "k");
  strcat(l->in[1], b->rank > 1 ? "kn" : "k");
  if (a->rank > 1) strcat(l->out, "m");
  if (b->rank > 1) strcat(l->out, "n");
}

static void letters_linear(const RefTensor *x, Letters *l) {
  memset(l, 0, sizeof *l);
  for (uint32_t d = 0; d + 1 < x->rank; d++) l->out[d] = l->in[0][d] = (char)('A' + d);
  l->in[0][x->rank - 1] = 'k';
  l->out[x->rank - 1] = 'n';
  strcpy(l->in[1], "nk");
}

static void letters_einsum(const char *spec, Letters *l) {
  memset(l, 0, sizeof *l);
  char *to = l->in[0];
  for (; *spec; spec++) {
    if (*spec == ',') to = l->in[1];
    if (*spec == '>') to = l->out;
    if (*spec >= 'a' && *spec <= 'z') to[strlen(to)] = *spec;
  }
}

bool ref_contraction(RefEval *e) {
  Letters l;
  uint32_t factors = e->node->op == OP_LINEAR ? 2 : e->node->noperands;
  if (e->node->op == OP_MATMUL)
    letters_matmul(&e->in[0], &e->in[1], &l);
  else if (e->node->op == OP_LINEAR)
    letters_linear(&e->in[0], &l);
  else
    letters_einsum(ref_attr(e, ATTR_SPEC)->as.s, &l);
  char name[3 * DTM_MAX_DIMS];
  int64_t extent[3 * DTM_MAX_DIMS], index[3 * DTM_MAX_DIMS] = {0}, total = 1;
  uint32_t n = 0;
  for (uint32_t i = 0; i < factors; i++)
    for (uint32_t d = 0; d < e->in[i].rank; d++) {
      uint32_t k = 0;
      while (k < n && name[k] != l.in[i][d]) k++;
      if (k == n) {
        name[n] = l.in[i][d];
        extent[n++] = 1;
      }
      if (e->in[i].shape[d] != 1) extent[k] = e->in[i].shape[d];
    }
  for (uint32_t k = 0; k < n; k++) total *= extent[k];
  RefTensor *y = &e->out[0];
  for (int64_t t = 0; t < total; t++) {
    double product = 1;
    for (uint32_t i = 0; i < factors; i++) {
      int64_t at = 0;
      for (uint32_t d = 0; d < e->in[i].rank; d++) {
        uint32_t k = (uint32_t)((char *)memchr(name, l.in[i][d], n) - name);
        at = at * e->in[i].shape[d] + (e->in[i].shape[d] == 1 ? 0 : index[k]);
      }
      product *= e->in[i].data[at];
    }
    int64_t to = 0;
    for (uint32_t d = 0; d < y->rank; d++)
      to = to * y->shape[d] + index[(char *)memchr(name, l.out[d], n) - name];
    y->data[to] += product;
    ref_next(n, extent, index);
  }
  if (e->node->noperands > factors)
    for (int64_t i = 0, m = ref_count(y); i < m; i++)
      y->data[i] += e->in[2].data[i % e->in[2].shape[0]];
  return true;
}

/* --- reductions ----------------------------------------------------------------------------------
 */

typedef struct Moments {
  double sum, square, product, max, min, exp;
  int64_t count;
} Moments;

/* Values of one result element, gathered into `lane`. */
static double reduce_lane(const RefEval *e, const double *lane, int64_t n, double global_count) {
  Moments m = {.product = 1, .max = -INFINITY, .min = INFINITY};
  for (int64_t i = 0; i < n; i++) {
    m.sum += lane[i];
    m.product *= lane[i];
    m.max = ref_reduce(REDUCE_MAX, m.max, lane[i]);
    m.min = ref_reduce(REDUCE_MIN, m.min, lane[i]);
  }
  double mean = m.sum / (double)n, l1 = 0, inf = 0;
  for (int64_t i = 0; i < n; i++) {
    m.square += (lane[i] - mean) * (lane[i] - mean);
    l1 += fabs(lane[i]);
    inf = ref_reduce(REDUCE_MAX, inf, fabs(lane[i]));
    m.exp += exp(lane[i] - m.max);
  }
  int64_t divisor = n - ref_int(e, ATTR_CORRECTION, 1);
  double var = m.square / (double)(divisor > 0 ? divisor : 0), raw = 0;
  for (int64_t i = 0; i < n; i++) raw += lane[i] * lane[i];
  switch ((int)e->node->op) {
  case OP_SUM:
    return m.sum;
  case OP_MEAN:
    return m.sum / global_count;
  case OP_PROD:
    return m.product;
  case OP_MAX:
    return m.max;
  case OP_MIN:
    return m.min;
  case OP_ANY:
    return m.max > 0;
  case OP_ALL:
    return m.min > 0;
  case OP_NORM_L1:
    return l1;
  case OP_NORM_L2:
    return sqrt(raw);
  case OP_NORM_INF:
    return inf;
  case OP_LOGSUMEXP:
    return n == 0 ? -INFINITY : isinf(m.max) ? m.max : m.max + log(m.exp);
  case OP_VAR:
    return var;
  case OP_STD:
    return sqrt(var);
  }
  return NAN;
}

bool ref_reduction(RefEval *e) {
  const RefTensor *x = &e->in[0];
  uint32_t dims = ref_dims(e);
  int64_t outer[DTM_MAX_DIMS], inner[DTM_MAX_DIMS], lane = 1, results = 1;
  double global_count = 1;
  for (uint32_t d = 0; d < x->rank; d++) {
    bool reduced = dims >> d & 1;
    outer[d] = reduced ? 1 : x->shape[d];
    inner[d] = reduced ? x->shape[d] : 1;
    lane *= inner[d];
    results *= outer[d];
    if (reduced) global_count *= (double)e->node->operand_types[0].shape[d];
  }
  double *values = ARENA_ARRAY(e->arena, double, lane);
  int64_t at[DTM_MAX_DIMS] = {0};
  for (int64_t r = 0; r < results; r++) {
    int64_t in[DTM_MAX_DIMS] = {0};
    for (int64_t i = 0; i < lane; i++) {
      int64_t index[DTM_MAX_DIMS];
      for (uint32_t d = 0; d < x->rank; d++) index[d] = at[d] + in[d];
      values[i] = x->data[ref_offset(x, index)];
      ref_next(x->rank, inner, in);
    }
    e->out[0].data[r] = reduce_lane(e, values, lane, global_count);
    ref_next(x->rank, outer, at);
  }
  return true;
}
