/* Small builders for gradient nodes: see grad.h. */
#include "autodiff/grad.h"

#include <string.h>

ValueId grad_fail(Grad *d, DiagCode code, const char *reason) {
  const Node *n = graph_node(d->g, d->node);
  if (d->failed) return 0;
  d->failed = true;
  Diag *diag = diag_emit(d->sink, code, n->span, "no gradient of %s", op_name(n->op));
  diag_reason(d->sink, diag, "%s", reason);
  return 0;
}

ValueId grad_add(Grad *d, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                 uint32_t nattrs) {
  Node at = *graph_node(d->g, d->node);
  uint32_t told = d->inner.diags.len;
  NodeId id = infer_add(d->g, &d->inner, op, operands, n, attrs, nattrs, at.span, NULL, at.scope);
  ValueId result = node_result(graph_node(d->g, id), 0);
  if (graph_value(d->g, result)->poisoned && !d->failed) {
    const Diag *fault = d->inner.diags.len > told ? d->inner.diags.data[told] : NULL;
    const char *reason = fault ? fault->message : "a derivative it needs has no placement rule";
    if (fault && fault->lines.len)
      reason = arena_printf(d->scratch, "%s: %s", reason, fault->lines.data[0].text);
    grad_fail(d, DIAG_GRADIENT_PLACEMENT, reason);
  }
  return result;
}

ValueId grad_unary(Grad *d, Op op, ValueId a) {
  return grad_add(d, op, &a, 1, NULL, 0);
}

static bool same_shape(const TensorType *t, const int64_t *shape, uint32_t rank) {
  return t->rank == rank && memcmp(t->shape, shape, rank * sizeof *shape) == 0;
}

/* The number that a value with extents 1 only is: what the seed of the loss becomes on its way. */
static bool one_number(const Grad *d, ValueId v, double *number) {
  const Node *n = value_node(d->g, v);
  *number = node_float(n, ATTR_VALUE, 0);
  return n->op == OP_FULL && type_elements(grad_type(d, v)) == 1 &&
         layout_is_replicate(&grad_type(d, v)->layout);
}

ValueId grad_binary(Grad *d, Op op, ValueId a, ValueId b) {
  double number;
  if (op == OP_MUL && one_number(d, a, &number) && grad_type(d, a)->rank <= grad_type(d, b)->rank &&
      value_node(d->g, b)->op != OP_CONST)
    return grad_scale(d, b, number);
  return grad_add(d, op, (ValueId[]){a, b}, 2, NULL, 0);
}

ValueId grad_const(Grad *d, ValueId like, double value) {
  Attr attrs[] = {ATTR_I(DTYPE, grad_type(d, like)->dtype), ATTR_F(VALUE, value)};
  return grad_add(d, OP_CONST, NULL, 0, attrs, 2);
}

ValueId grad_scale(Grad *d, ValueId a, double value) {
  if (value == 1) return a;
  const Node *n = value_node(d->g, a);
  if (n->op == OP_FULL) {
    TensorType type = *grad_type(d, a);
    return grad_full(d, &type, node_float(n, ATTR_VALUE, 0) * value);
  }
  return grad_binary(d, OP_MUL, a, grad_const(d, a, value));
}

ValueId grad_cast(Grad *d, ValueId a, DType dtype) {
  if (grad_type(d, a)->dtype == dtype) return a;
  return grad_add(d, OP_CAST, &a, 1, &ATTR_I(DTYPE, dtype), 1);
}

ValueId grad_reshape(Grad *d, ValueId a, const int64_t *shape, uint32_t rank) {
  if (same_shape(grad_type(d, a), shape, rank)) return a;
  double number;
  if (one_number(d, a, &number)) {
    TensorType to = *grad_type(d, a);
    to.rank = rank;
    memcpy(to.shape, shape, rank * sizeof *shape);
    memset(to.balanced, 0, sizeof to.balanced); /* equal elements have any order */
    return grad_full(d, &to, number);
  }
  return grad_add(d, OP_RESHAPE, &a, 1, &ATTR_INTS(SHAPE, shape, rank), 1);
}

/* Whether a dim of extent 1 is sharded: a reshape would not say which of several such dims it
 * becomes. */
static bool one_is_cut(const TensorType *t) {
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->shape[i] == 1 && layout_dim_ways(&t->layout, t->mesh, i) > 1) return true;
  return false;
}

ValueId grad_insert_dims(Grad *d, ValueId a, uint32_t set, uint32_t rank) {
  TensorType have = *grad_type(d, a);
  bool one_by_one = one_is_cut(&have);
  int64_t shape[DTM_MAX_DIMS];
  for (uint32_t i = 0, j = 0; i < rank; i++) {
    shape[i] = set >> i & 1 ? 1 : have.shape[j++];
    if (one_by_one && set >> i & 1) a = grad_add(d, OP_UNSQUEEZE, &a, 1, &ATTR_I(DIM, i), 1);
  }
  return one_by_one ? a : grad_reshape(d, a, shape, rank);
}

ValueId grad_drop_dims(Grad *d, ValueId a, uint32_t set) {
  TensorType have = *grad_type(d, a);
  bool one_by_one = one_is_cut(&have);
  int64_t shape[DTM_MAX_DIMS];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < have.rank; i++)
    if (!(set >> i & 1)) shape[rank++] = have.shape[i];
  for (uint32_t i = have.rank; one_by_one && i-- > 0;)
    if (set >> i & 1) a = grad_add(d, OP_SQUEEZE, &a, 1, &ATTR_I(DIM, i), 1);
  return one_by_one ? a : grad_reshape(d, a, shape, rank);
}

ValueId grad_permute(Grad *d, ValueId a, const int64_t *dims, uint32_t rank) {
  uint32_t i = 0;
  while (i < rank && dims[i] == i) i++;
  return i == rank ? a : grad_add(d, OP_PERMUTE, &a, 1, &ATTR_INTS(DIMS, dims, rank), 1);
}

ValueId grad_slice(Grad *d, ValueId a, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  Attr attrs[] = {ATTR_I(DIM, dim), ATTR_I(START, start), ATTR_I(STOP, stop), ATTR_I(STEP, step)};
  return grad_add(d, OP_SLICE, &a, 1, attrs, 4);
}

ValueId grad_sum(Grad *d, ValueId a, uint32_t set, bool keepdim) {
  int64_t dims[DTM_MAX_DIMS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < grad_type(d, a)->rank; i++)
    if (set >> i & 1) dims[n++] = i;
  if (n == 0) return a;
  Attr attrs[] = {ATTR_INTS(DIMS, dims, n), ATTR_I(KEEPDIM, keepdim)};
  return grad_add(d, OP_SUM, &a, 1, attrs, 2);
}

ValueId grad_full(Grad *d, const TensorType *type, double value) {
  Attr attrs[] = {ATTR_T(TYPE, type), ATTR_F(VALUE, value)};
  return grad_add(d, OP_FULL, NULL, 0, attrs, 2);
}

ValueId grad_redistribute(Grad *d, ValueId a, const TensorType *to, const Node *like) {
  if (type_equal(grad_type(d, a), to)) return a;
  Attr attrs[4] = {ATTR_T(TYPE, to)};
  uint32_t n = 1;
  const Attr *async = like ? node_attr(like, ATTR_ASYNC) : NULL;
  const Attr *bucket = like ? node_attr(like, ATTR_BUCKET) : NULL;
  const Attr *wire = like ? node_attr(like, ATTR_BACKWARD_DTYPE) : NULL;
  if (async) attrs[n++] = *async;
  if (bucket) attrs[n++] = *bucket;
  if (wire) attrs[n++] = ATTR_I(FORWARD_DTYPE, wire->as.i);
  return grad_add(d, OP_REDISTRIBUTE, &a, 1, attrs, n);
}

ValueId grad_materialise(Grad *d, ValueId g, const TensorType *type) {
  TensorType have = *grad_type(d, g);
  if (same_shape(&have, type->shape, type->rank)) return g;
  bool cut = false;
  for (uint32_t i = 0; i < type->rank; i++)
    cut |= have.shape[i] != type->shape[i] &&
           (type->balanced[i] || layout_dim_ways(&type->layout, type->mesh, i) > 1);
  if (!cut) return grad_add(d, OP_EXPAND, &g, 1, &ATTR_INTS(SHAPE, type->shape, type->rank), 1);
  /* An expanded dim that is cut or in another order: multiplying ones of the wanted layout never
   * makes the whole. */
  TensorType ones = *type;
  ones.dtype = have.dtype;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (ones.layout.at[a].kind == PLACE_PARTIAL) ones.layout.at[a] = (Place){0};
  return grad_binary(d, OP_MUL, g, grad_full(d, &ones, 1));
}

ValueId grad_unbroadcast(Grad *d, ValueId g, const TensorType *full, const TensorType *operand) {
  TensorType have = *grad_type(d, g);
  uint32_t lead = full->rank - operand->rank, sum = 0;
  double times = 1;
  for (uint32_t i = 0; i < full->rank; i++) {
    bool gone = i < lead;
    if (!gone && operand->shape[i - lead] == full->shape[i]) continue;
    if (have.shape[i] == 1 && full->shape[i] != 1) times *= (double)full->shape[i];
    if (gone || have.shape[i] != 1) sum |= 1u << i;
  }
  g = grad_sum(d, grad_scale(d, g, times), sum, false);
  return grad_insert_dims(d, g, sum >> lead, operand->rank);
}

ValueId grad_keep_dims(Grad *d, ValueId g, const TensorType *x, uint32_t dims) {
  TensorType have = *grad_type(d, g);
  if (have.rank == x->rank) return g;
  return grad_insert_dims(d, g, dims, x->rank);
}

uint32_t reduced_dims(const Node *n, uint32_t rank) {
  const Attr *a = node_attr(n, ATTR_DIMS);
  uint32_t all = (1u << rank) - 1, set = 0;
  if (!a || a->as.ints.len == 0) return all;
  for (uint32_t i = 0; i < a->as.ints.len; i++) {
    int64_t dim = a->as.ints.data[i];
    set |= 1u << (dim < 0 ? dim + rank : dim);
  }
  return set;
}

uint32_t node_dim(const Node *n, uint32_t rank) {
  int64_t dim = node_int(n, ATTR_DIM, -1);
  return (uint32_t)(dim < 0 ? dim + rank : dim);
}
