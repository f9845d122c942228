/* Canonical attributes: every later pass reads complete, non-negative ones. */
#include "infer/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Canon {
  Arena *arena;
  const OpInfo *info;
  Attr *attrs;
  uint32_t n;
} Canon;

static Attr *find(Canon *c, AttrKey key) {
  for (uint32_t i = 0; i < c->n; i++)
    if (c->attrs[i].key == key) return &c->attrs[i];
  return NULL;
}

static void add_default(Canon *c, Attr attr) {
  if ((c->info->attrs >> attr.key & 1) && !find(c, attr.key)) c->attrs[c->n++] = attr;
}

static int compare_int(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Dims from 0, in order; an absent or empty list of a reduction means all. */
static void canon_dims(Canon *c, Op op, uint32_t rank) {
  Attr *dims = find(c, ATTR_DIMS);
  uint32_t n = dims ? dims->as.ints.len : 0;
  bool all = n == 0 && (c->info->cls == CLASS_REDUCTION || op == OP_EXTREMUM_BACKWARD);
  if (!all && !dims) return;
  int64_t *data = ARENA_ARRAY(c->arena, int64_t, all ? rank : n);
  for (uint32_t i = 0; i < (all ? rank : n); i++) {
    data[i] = all ? (int64_t)i : dims->as.ints.data[i];
    if (data[i] < 0) data[i] += rank;
  }
  n = all ? rank : n;
  if (op != OP_PERMUTE && n > 1) qsort(data, n, sizeof *data, compare_int);
  Attr canon = ATTR_INTS(DIMS, data, n);
  if (dims)
    *dims = canon;
  else
    add_default(c, canon);
}

/* -1 in the shapes of reshape and expand, from what inference found. */
static void canon_shape(Canon *c, const TensorType *result) {
  Attr *shape = find(c, ATTR_SHAPE);
  if (!shape) return;
  int64_t *data = ARENA_ARRAY(c->arena, int64_t, result->rank);
  memcpy(data, result->shape, result->rank * sizeof *data);
  *shape = ATTR_INTS(SHAPE, data, result->rank);
}

uint32_t infer_canonical_attrs(Arena *arena, Op op, const TensorType *operand,
                               const TensorType *result, const Attr *attrs, uint32_t nattrs,
                               Attr canonical[ATTR_COUNT]) {
  Canon c = {.arena = arena, .info = op_info(op), .n = nattrs};
  c.attrs = canonical;
  if (nattrs) memcpy(c.attrs, attrs, nattrs * sizeof *attrs);
  if (!operand) return c.n;
  int64_t rank = operand->rank;
  bool along = c.info->cls == CLASS_WHOLE_DIM;
  if (op != OP_IOTA) add_default(&c, ATTR_I(DIM, along ? -1 : 0));
  Attr *dim = find(&c, ATTR_DIM);
  if (dim && dim->as.i < 0) dim->as.i += op == OP_UNSQUEEZE ? rank + 1 : rank;
  if (c.info->attrs & ATTR_BIT(DIMS)) canon_dims(&c, op, operand->rank);
  canon_shape(&c, result);
  add_default(&c, ATTR_I(KEEPDIM, 0));
  add_default(&c, ATTR_I(NDIMS, DEFAULT_NDIMS));
  add_default(&c, ATTR_F(EPS, DEFAULT_EPS));
  add_default(&c, ATTR_I(CORRECTION, DEFAULT_CORRECTION));
  add_default(&c, ATTR_I(DESCENDING, 0));
  add_default(&c, ATTR_I(REVERSE, 0));
  add_default(&c, ATTR_I(DIAGONAL, 0));
  if (op == OP_SLICE || op == OP_UNSLICE) {
    add_default(&c, ATTR_I(START, 0));
    add_default(&c, ATTR_I(STEP, DEFAULT_STEP));
    if (op == OP_SLICE) add_default(&c, ATTR_I(STOP, operand->shape[find(&c, ATTR_DIM)->as.i]));
  }
  if (op == OP_PAD) {
    add_default(&c, ATTR_I(BEFORE, 0));
    add_default(&c, ATTR_I(AFTER, 0));
    add_default(&c, ATTR_F(VALUE, 0));
  }
  if (op == OP_CROSS_ENTROPY) {
    add_default(&c, ATTR_I(IGNORE_INDEX, DEFAULT_IGNORE_INDEX));
    add_default(&c, ATTR_F(LABEL_SMOOTHING, 0));
    add_default(&c, ATTR_S(REDUCTION, "mean"));
  }
  if (op == OP_ATTENTION || op == OP_ATTENTION_BACKWARD) {
    int64_t width = operand->shape[operand->rank - 1];
    add_default(&c, ATTR_I(CAUSAL, 0));
    if (op == OP_ATTENTION) add_default(&c, ATTR_F(SCALE, width ? 1 / sqrt((double)width) : 1));
    add_default(&c, ATTR_F(P, 0));
  }
  if (op == OP_ONE_HOT) add_default(&c, ATTR_I(DTYPE, DT_I64));
  if (op == OP_DROPOUT || op == OP_DROPOUT_BACKWARD) add_default(&c, ATTR_F(P, DEFAULT_P));
  return c.n;
}
