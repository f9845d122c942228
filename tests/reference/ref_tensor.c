/* Tensors, indices and dispatch of the reference interpreter. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"

int64_t ref_count(const RefTensor *t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
  return n;
}

RefTensor ref_new(Arena *arena, uint32_t rank, const int64_t *shape) {
  RefTensor t = {.rank = rank};
  for (uint32_t d = 0; d < rank; d++) t.shape[d] = shape[d];
  t.data = ARENA_ARRAY(arena, double, ref_count(&t));
  return t;
}

Block ref_block(const TensorType *type, const int64_t *coord) {
  if (coord && type->mesh) return type_block(type, coord);
  Block b = {{0}, {0}};
  memcpy(b.extent, type->shape, sizeof b.extent);
  return b;
}

bool ref_next(uint32_t rank, const int64_t *shape, int64_t *index) {
  for (uint32_t d = rank; d-- > 0;) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

int64_t ref_offset(const RefTensor *t, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t d = 0; d < t->rank; d++) at = at * t->shape[d] + index[d];
  return at;
}

int64_t ref_place(const TensorType *type, uint32_t dim, int64_t place) {
  /* Counted out: the order is that of the numbers 0 .. n - 1 after they are dealt to the ranks. */
  int64_t ranks = type->balanced[dim], n = type->shape[dim];
  if (ranks == 0) return place;
  for (int64_t r = 0; r < ranks; r++)
    for (int64_t i = 0; i < n; i++) {
      int64_t piece = i / (n / (2 * ranks));
      if ((piece == r || piece == 2 * ranks - 1 - r) && place-- == 0) return i;
    }
  return -1;
}

int64_t ref_global_index(const TensorType *type, const Block *block, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t d = 0; d < type->rank; d++)
    at = at * type->shape[d] + ref_place(type, d, block->offset[d] + index[d]);
  return at;
}

RefLanes ref_lanes(const RefTensor *t, uint32_t dim) {
  RefLanes l = {1, t->shape[dim], 1};
  for (uint32_t d = 0; d < t->rank; d++) {
    if (d < dim) l.outer *= t->shape[d];
    if (d > dim) l.inner *= t->shape[d];
  }
  return l;
}

const Attr *ref_attr(const RefEval *e, AttrKey key) {
  return attrs_find(e->node->attrs, e->node->nattrs, key);
}
int64_t ref_int(const RefEval *e, AttrKey key, int64_t otherwise) {
  return attrs_int(e->node->attrs, e->node->nattrs, key, otherwise);
}
double ref_float(const RefEval *e, AttrKey key, double otherwise) {
  return attrs_float(e->node->attrs, e->node->nattrs, key, otherwise);
}

uint32_t ref_dim(const RefEval *e, int64_t otherwise) {
  int64_t d = ref_int(e, ATTR_DIM, otherwise);
  return (uint32_t)(d < 0 ? d + e->in[0].rank : d);
}

uint32_t ref_dims(const RefEval *e) {
  const Attr *a = ref_attr(e, ATTR_DIMS);
  if (!a || a->as.ints.len == 0) return (1u << e->in[0].rank) - 1;
  uint32_t set = 0;
  for (uint32_t i = 0; i < a->as.ints.len; i++) {
    int64_t d = a->as.ints.data[i];
    set |= 1u << (d < 0 ? d + e->in[0].rank : d);
  }
  return set;
}

double ref_reduce(ReduceOp op, double a, double b) {
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_AVG:
    return a + b;
  case REDUCE_PRODUCT:
    return a * b;
  case REDUCE_MAX:
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
  case REDUCE_MIN:
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
  case REDUCE_AND:
    return (double)((int64_t)a & (int64_t)b);
  case REDUCE_OR:
    return (double)((int64_t)a | (int64_t)b);
  case REDUCE_XOR:
    return (double)((int64_t)a ^ (int64_t)b);
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return NAN;
}

double ref_neutral(ReduceOp op) {
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_AVG:
  case REDUCE_OR:
  case REDUCE_XOR:
    return 0;
  case REDUCE_PRODUCT:
    return 1;
  case REDUCE_MAX:
    return -INFINITY;
  case REDUCE_MIN:
    return INFINITY;
  case REDUCE_AND:
    return -1;
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return NAN;
}

RefTensor ref_used_rows(Arena *arena, const RefTensor *x, const RefTensor *used) {
  RefTensor y = ref_new(arena, x->rank, x->shape);
  int64_t n = ref_count(x), groups = ref_count(used), each = groups ? n / groups : 0;
  for (int64_t i = 0; i < n; i++)
    if (i % each / (each / x->shape[2]) < (int64_t)used->data[i / each]) y.data[i] = x->data[i];
  return y;
}

static bool ref_comm(RefEval *e) {
  RefTensor from = e->in[0];
  if (e->node->op == OP_REDISTRIBUTE_ROWS) from = ref_used_rows(e->arena, &e->in[0], &e->in[1]);
  memcpy(e->out[0].data, from.data, sizeof(double) * (size_t)ref_count(&from));
  return true;
}

static bool ref_identity(RefEval *e) {
  memcpy(e->out[0].data, e->in[0].data, sizeof(double) * (size_t)ref_count(&e->in[0]));
  return true;
}

/* replica: the mean of the entries along its dim (one for a rank, which holds one). */
static bool ref_structure(RefEval *e) {
  if (e->node->op != OP_REPLICA) return ref_identity(e);
  uint32_t dim = ref_dim(e, 0);
  int64_t at[DTM_MAX_DIMS] = {0}, i = 0, entries = e->in[0].shape[dim];
  if (ref_count(&e->in[0]) == 0) return true;
  do {
    int64_t to[DTM_MAX_DIMS];
    memcpy(to, at, sizeof to);
    to[dim] = 0;
    e->out[0].data[ref_offset(&e->out[0], to)] += e->in[0].data[i++] / (double)entries;
  } while (ref_next(e->in[0].rank, e->in[0].shape, at));
  return true;
}

bool ref_eval_node(RefContext *ctx, Arena *arena, const RefNode *node, const RefTensor *operands,
                   RefTensor *results) {
  static RefFn *const classes[] = {
      [CLASS_POINTWISE] = ref_pointwise, [CLASS_CONTRACTION] = ref_contraction,
      [CLASS_REDUCTION] = ref_reduction, [CLASS_WHOLE_DIM] = ref_whole_dim,
      [CLASS_MOVEMENT] = ref_movement,   [CLASS_INDEXING] = ref_indexing,
      [CLASS_FUSED] = ref_fused,         [CLASS_RANDOM] = ref_random,
      [CLASS_FACTORY] = ref_factory,     [CLASS_COMM] = ref_comm,
      [CLASS_STRUCTURE] = ref_structure,
  };
  RefEval e = {.ctx = ctx, .arena = arena, .node = node, .in = operands, .out = results};
  for (uint32_t k = 0; k < node->nresults; k++) {
    Block b = ref_block(&node->result_types[k], node->coord);
    results[k] = ref_new(arena, node->result_types[k].rank, b.extent);
  }
  if (node->op == OP_STEP) {
    results[0].data[0] = (double)ctx->step;
    return true;
  }
  return classes[op_info(node->op)->cls](&e);
}
