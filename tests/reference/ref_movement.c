/* Movement and indexing of the reference interpreter: where each result element comes from. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"

/* Fills the result from one operand: `from` gives the operand index of a result index, or false
 * where the result has `otherwise`. */
typedef bool IndexFn(const RefEval *e, const int64_t *to, int64_t *from);

static bool map_each(RefEval *e, IndexFn *f, double otherwise) {
  RefTensor *y = &e->out[0];
  int64_t to[DTM_MAX_DIMS] = {0}, at = 0;
  if (ref_count(y) == 0) return true;
  do {
    int64_t from[DTM_MAX_DIMS] = {0};
    y->data[at++] = f(e, to, from) ? e->in[0].data[ref_offset(&e->in[0], from)] : otherwise;
  } while (ref_next(y->rank, y->shape, to));
  return true;
}

static bool index_permute(const RefEval *e, const int64_t *to, int64_t *from) {
  const Attr *dims = ref_attr(e, ATTR_DIMS);
  for (uint32_t d = 0; d < e->out[0].rank; d++) {
    int64_t source = dims->as.ints.data[d];
    from[source < 0 ? source + e->out[0].rank : source] = to[d];
  }
  return true;
}

static bool index_expand(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t lead = e->out[0].rank - e->in[0].rank;
  for (uint32_t d = 0; d < e->in[0].rank; d++) from[d] = e->in[0].shape[d] == 1 ? 0 : to[d + lead];
  return true;
}

static bool index_slice(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t dim = ref_dim(e, 0);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] = ref_int(e, ATTR_START, 0) + to[dim] * ref_int(e, ATTR_STEP, 1);
  return true;
}

static bool index_unslice(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t dim = ref_dim(e, 0);
  int64_t step = ref_int(e, ATTR_STEP, 1), past = to[dim] - ref_int(e, ATTR_START, 0);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] = past / step;
  return past >= 0 && past % step == 0 && from[dim] < e->in[0].shape[dim];
}

static bool index_pad(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t dim = ref_dim(e, 0);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] -= ref_int(e, ATTR_BEFORE, 0);
  return from[dim] >= 0 && from[dim] < e->in[0].shape[dim];
}

static bool index_flip(const RefEval *e, const int64_t *to, int64_t *from) {
  const Attr *dims = ref_attr(e, ATTR_DIMS);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  for (uint32_t i = 0; i < dims->as.ints.len; i++) {
    int64_t d = dims->as.ints.data[i];
    if (d < 0) d += e->in[0].rank;
    from[d] = e->in[0].shape[d] - 1 - to[d];
  }
  return true;
}

/* A shard is rolled only by multiples of the global extent, that is, not at all. */
static bool index_roll(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t dim = ref_dim(e, 0);
  int64_t global = e->node->operand_types[0].shape[dim], n = e->in[0].shape[dim];
  int64_t shift = ref_int(e, ATTR_SHIFT, 0) % global;
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] = ((to[dim] - shift) % n + n) % n;
  return true;
}

/* The order is in the types: each place of the result is one of the operand with the same natural
 * place. */
static bool index_balance(const RefEval *e, const int64_t *to, int64_t *from) {
  const TensorType *x = &e->node->operand_types[0], *y = &e->node->result_types[0];
  uint32_t dim = ref_dim(e, 0);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] = 0;
  while (ref_place(x, dim, from[dim]) != ref_place(y, dim, to[dim])) from[dim]++;
  return true;
}

static bool index_triangle(const RefEval *e, const int64_t *to, int64_t *from) {
  Block b = ref_block(&e->node->result_types[0], e->node->coord);
  uint32_t rank = e->out[0].rank;
  int64_t row = to[rank - 2] + b.offset[rank - 2], col = to[rank - 1] + b.offset[rank - 1];
  int64_t diagonal = ref_int(e, ATTR_DIAGONAL, 0);
  memcpy(from, to, sizeof(int64_t) * rank);
  return e->node->op == OP_TRIL ? col - row <= diagonal : col - row >= diagonal;
}

static bool ref_concat(RefEval *e) {
  RefLanes y = ref_lanes(&e->out[0], ref_dim(e, 0));
  int64_t start = 0;
  for (uint32_t i = 0; i < e->node->noperands; i++) {
    int64_t n = e->in[i].shape[ref_dim(e, 0)];
    for (int64_t o = 0; o < y.outer; o++)
      memcpy(e->out[0].data + (o * y.extent + start) * y.inner, e->in[i].data + o * n * y.inner,
             sizeof(double) * (size_t)(n * y.inner));
    start += n;
  }
  return true;
}

bool ref_movement(RefEval *e) {
  static IndexFn *const index[OP_COUNT] = {
      [OP_PERMUTE] = index_permute, [OP_EXPAND] = index_expand, [OP_SLICE] = index_slice,
      [OP_UNSLICE] = index_unslice, [OP_PAD] = index_pad,       [OP_FLIP] = index_flip,
      [OP_ROLL] = index_roll,       [OP_TRIL] = index_triangle, [OP_TRIU] = index_triangle,
      [OP_BALANCE] = index_balance,
  };
  if (e->node->op == OP_CONCAT) return ref_concat(e);
  if (index[e->node->op])
    return map_each(e, index[e->node->op], e->node->op == OP_PAD ? ref_float(e, ATTR_VALUE, 0) : 0);
  /* reshape, unsqueeze, squeeze: the same elements in the same order */
  memcpy(e->out[0].data, e->in[0].data, sizeof(double) * (size_t)ref_count(&e->out[0]));
  return true;
}

/* --- indexing: an id out of range gives NaN, or is dropped --- */

/* Rows of other ranks contribute zeros. */
static bool ref_embedding(RefEval *e) {
  Block rows = ref_block(&e->node->operand_types[1], e->node->coord);
  int64_t width = e->in[1].shape[1];
  for (int64_t i = 0, n = ref_count(&e->in[0]); i < n; i++) {
    int64_t row = (int64_t)e->in[0].data[i] - rows.offset[0];
    if (row < 0 || row >= rows.extent[0]) continue;
    memcpy(e->out[0].data + i * width, e->in[1].data + row * width, sizeof(double) * (size_t)width);
  }
  return true;
}

static bool ref_embedding_backward(RefEval *e) {
  Block rows = ref_block(&e->node->result_types[0], e->node->coord);
  int64_t width = e->out[0].shape[1];
  for (int64_t i = 0, n = ref_count(&e->in[1]); i < n; i++) {
    int64_t row = (int64_t)e->in[1].data[i] - rows.offset[0];
    if (row < 0 || row >= rows.extent[0]) continue;
    for (int64_t k = 0; k < width; k++)
      e->out[0].data[row * width + k] += e->in[0].data[i * width + k];
  }
  return true;
}

static bool index_gather(const RefEval *e, const int64_t *to, int64_t *from) {
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  int64_t id = (int64_t)e->in[1].data[ref_offset(&e->in[1], to)];
  from[ref_dim(e, 0)] = id;
  return id >= 0 && id < e->in[0].shape[ref_dim(e, 0)];
}

static bool index_select(const RefEval *e, const int64_t *to, int64_t *from) {
  uint32_t dim = ref_dim(e, 0);
  memcpy(from, to, sizeof(int64_t) * e->out[0].rank);
  from[dim] = (int64_t)e->in[1].data[to[dim]];
  return from[dim] >= 0 && from[dim] < e->in[0].shape[dim];
}

static bool ref_scatter_add(RefEval *e) {
  const RefTensor *index = &e->in[1];
  memcpy(e->out[0].data, e->in[0].data, sizeof(double) * (size_t)ref_count(&e->in[0]));
  int64_t at[DTM_MAX_DIMS] = {0}, i = 0;
  if (ref_count(index) == 0) return true;
  do {
    int64_t to[DTM_MAX_DIMS];
    memcpy(to, at, sizeof to);
    to[ref_dim(e, 0)] = (int64_t)index->data[i];
    int64_t id = to[ref_dim(e, 0)];
    if (id >= 0 && id < e->out[0].shape[ref_dim(e, 0)])
      e->out[0].data[ref_offset(&e->out[0], to)] += e->in[2].data[i];
    i++;
  } while (ref_next(index->rank, index->shape, at));
  return true;
}

static bool ref_one_hot(RefEval *e) {
  int64_t classes = e->out[0].shape[e->in[0].rank];
  for (int64_t i = 0, n = ref_count(&e->in[0]); i < n; i++) {
    int64_t c = (int64_t)e->in[0].data[i];
    if (c >= 0 && c < classes) e->out[0].data[i * classes + c] = 1;
  }
  return true;
}

bool ref_indexing(RefEval *e) {
  static RefFn *const ops[OP_COUNT] = {
      [OP_EMBEDDING] = ref_embedding,
      [OP_EMBEDDING_BACKWARD] = ref_embedding_backward,
      [OP_SCATTER_ADD] = ref_scatter_add,
      [OP_ONE_HOT] = ref_one_hot,
  };
  if (e->node->op == OP_GATHER) return map_each(e, index_gather, NAN);
  if (e->node->op == OP_INDEX_SELECT) return map_each(e, index_select, NAN);
  return ops[e->node->op](e);
}
