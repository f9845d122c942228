/* Gradients of movement: the transposed movement. */
#include "autodiff/vjp.h"

ValueId vjp_permute(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  const Attr *dims = node_attr(&n, ATTR_DIMS);
  int64_t inverse[DTM_MAX_DIMS];
  uint32_t rank = dims->as.ints.len;
  for (uint32_t k = 0; k < rank; k++) {
    int64_t from = dims->as.ints.data[k];
    inverse[from < 0 ? from + rank : from] = k;
  }
  return grad_permute(d, g, inverse, rank);
}

/* reshape, squeeze, unsqueeze */
ValueId vjp_reshape(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]), y = *grad_type(d, n.first_result);
  if (n.op == OP_SQUEEZE) return grad_insert_dims(d, g, 1u << node_dim(&n, x.rank), x.rank);
  if (n.op == OP_UNSQUEEZE) return grad_drop_dims(d, g, 1u << node_dim(&n, y.rank));
  return grad_reshape(d, g, x.shape, x.rank);
}

ValueId vjp_expand(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType y = *grad_type(d, n.first_result), x = *grad_type(d, n.operands[i]);
  return grad_unbroadcast(d, g, &y, &x);
}

ValueId vjp_slice(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]);
  uint32_t dim = node_dim(&n, x.rank);
  Attr attrs[] = {ATTR_I(DIM, dim), ATTR_I(START, node_int(&n, ATTR_START, 0)),
                  ATTR_I(STEP, node_int(&n, ATTR_STEP, DEFAULT_STEP)),
                  ATTR_I(EXTENT, x.shape[dim])};
  return grad_add(d, OP_UNSLICE, &g, 1, attrs, 4);
}

ValueId vjp_unslice(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]);
  uint32_t dim = node_dim(&n, x.rank);
  int64_t start = node_int(&n, ATTR_START, 0), step = node_int(&n, ATTR_STEP, DEFAULT_STEP);
  int64_t stop = x.shape[dim] ? start + (x.shape[dim] - 1) * step + 1 : start;
  return grad_slice(d, g, dim, start, stop, step);
}

ValueId vjp_pad(Grad *d, Node n, uint32_t i, ValueId g) {
  TensorType x = *grad_type(d, n.operands[i]);
  uint32_t dim = node_dim(&n, x.rank);
  int64_t before = node_int(&n, ATTR_BEFORE, 0);
  return grad_slice(d, g, dim, before, before + x.shape[dim], 1);
}

ValueId vjp_concat(Grad *d, Node n, uint32_t i, ValueId g) {
  uint32_t dim = node_dim(&n, grad_type(d, n.first_result)->rank);
  int64_t start = 0;
  for (uint32_t k = 0; k < i; k++) start += grad_type(d, n.operands[k])->shape[dim];
  return grad_slice(d, g, dim, start, start + grad_type(d, n.operands[i])->shape[dim], 1);
}

ValueId vjp_flip(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  return grad_add(d, OP_FLIP, &g, 1, n.attrs, n.nattrs);
}

ValueId vjp_roll(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Attr attrs[] = {ATTR_I(DIM, node_int(&n, ATTR_DIM, -1)),
                  ATTR_I(SHIFT, -node_int(&n, ATTR_SHIFT, 0))};
  return grad_add(d, OP_ROLL, &g, 1, attrs, 2);
}

/* tril, triu: a mask. */
ValueId vjp_triangle(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  return grad_add(d, n.op, &g, 1, n.attrs, n.nattrs);
}

/* The way back; the cotangent is whole there as the value is. */
ValueId vjp_balance(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Attr attrs[] = {ATTR_I(DIM, node_int(&n, ATTR_DIM, 0)), ATTR_I(K, node_int(&n, ATTR_K, 0)),
                  ATTR_I(REVERSE, !node_int(&n, ATTR_REVERSE, 0))};
  return grad_add(d, OP_BALANCE, &g, 1, attrs, 3);
}
