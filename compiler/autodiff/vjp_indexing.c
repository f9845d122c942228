/* Gradients of indexing, sorting, dropout and redistribute. Indices never have a gradient. */
#include "autodiff/vjp.h"

ValueId vjp_embedding(Grad *d, Node n, uint32_t i, ValueId g) {
  if (i != 1) return 0;
  TensorType weight = *grad_type(d, n.operands[1]);
  Attr attrs[] = {ATTR_I(EXTENT, weight.shape[0]), ATTR_T(TYPE, &weight)};
  return grad_add(d, OP_EMBEDDING_BACKWARD, (ValueId[]){g, n.operands[0]}, 2, attrs, 2);
}

/* The same value with dim `dim` whole. */
static ValueId whole_dim(Grad *d, ValueId v, uint32_t dim) {
  TensorType to = *grad_type(d, v);
  layout_set_dim(&to.layout, to.mesh, dim, NULL, 0);
  return grad_redistribute(d, v, &to, NULL);
}

/* zeros of the shape of `x`, with `source` added at `index` along `dim`. scatter_add looks at all
 * of the dim, so a source that is cut along it is gathered; the zeros take the layout of the
 * source. */
static ValueId scatter(Grad *d, const TensorType *x, ValueId index, ValueId source, uint32_t dim) {
  TensorType zeros = *x;
  source = whole_dim(d, source, dim);
  index = whole_dim(d, index, dim);
  zeros.layout = grad_type(d, source)->layout;
  Attr at = ATTR_I(DIM, dim);
  return grad_add(d, OP_SCATTER_ADD, (ValueId[]){grad_full(d, &zeros, 0), index, source}, 3, &at,
                  1);
}

/* sort and topk: result 1 says where each value came from. */
ValueId vjp_sort(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]);
  return scatter(d, &x, n.first_result + 1, g, node_dim(&n, x.rank));
}

ValueId vjp_gather(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[0]);
  if (i != 0) return 0;
  return scatter(d, &x, n.operands[1], g, node_dim(&n, x.rank));
}

ValueId vjp_index_select(Grad *d, Node n, uint32_t i, ValueId g) {
  if (i != 0) return 0;
  TensorType x = *grad_type(d, n.operands[0]), to = *grad_type(d, g);
  uint32_t dim = node_dim(&n, x.rank);
  uint32_t others = ((1u << x.rank) - 1) & ~(1u << dim);
  ValueId index = grad_insert_dims(d, n.operands[1], others, x.rank);
  index = grad_add(d, OP_EXPAND, &index, 1, &ATTR_INTS(SHAPE, to.shape, to.rank), 1);
  to.dtype = grad_type(d, index)->dtype;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (to.layout.at[a].kind == PLACE_PARTIAL) to.layout.at[a] = (Place){0};
  return scatter(d, &x, grad_redistribute(d, index, &to, NULL), g, dim);
}

ValueId vjp_scatter_add(Grad *d, Node n, uint32_t i, ValueId g) {
  if (i == 0) return g;
  if (i == 1) return 0;
  Attr dim = ATTR_I(DIM, node_int(&n, ATTR_DIM, -1));
  return grad_add(d, OP_GATHER, (ValueId[]){g, n.operands[1]}, 2, &dim, 1);
}

ValueId vjp_dropout(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  return grad_add(d, OP_DROPOUT_BACKWARD, &g, 1, n.attrs, n.nattrs);
}

/* The mirror of a redistribute. Per axis, for x of the operand: S -> S(d); Partial -> R; R -> R or,
 * where the plan says so, Partial (a gather's zero-byte alternative is a fill). */
ValueId vjp_redistribute(Grad *d, Node n, uint32_t i, ValueId g) {
  ValueId x = n.operands[i];
  TensorType to = *grad_type(d, x), have = *grad_type(d, g);
  for (uint32_t a = 0; a < to.mesh->naxes; a++) {
    Place *p = &to.layout.at[a];
    if (p->kind == PLACE_PARTIAL) *p = (Place){0};
    if (p->kind != PLACE_REPLICATE || have.mesh != to.mesh || cot_wants_replicate(d, x, a))
      continue;
    if (have.layout.at[a].kind != PLACE_REPLICATE)
      *p = (Place){.kind = PLACE_PARTIAL, .op = REDUCE_SUM};
  }
  return grad_redistribute(d, g, &to, &n);
}

/* The value is the mean of the entries, which are equal: each gets its share of g. */
ValueId vjp_replica(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]), share = x;
  uint32_t dim = node_dim(&n, x.rank);
  uint8_t axes[DTM_MAX_AXES];
  layout_dim_axes(&x.layout, dim, axes);
  share.layout = (Layout){0};
  for (uint32_t k = 0; k < x.rank; k++) share.shape[k] = k == dim ? x.shape[k] : 1;
  layout_set(&share.layout, x.mesh, axes[0], PLACE_SHARD, dim, REDUCE_NONE);
  return grad_binary(d, OP_MUL, g, grad_full(d, &share, 1 / (double)x.shape[dim]));
}

/* The second operand is only compared with. */
ValueId vjp_same_as(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)d, (void)n;
  return i == 0 ? g : 0;
}
