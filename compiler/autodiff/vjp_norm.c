/* Gradients of operators that look at whole dims: softmax, norms, running sums. */
#include "autodiff/vjp.h"

ValueId vjp_softmax(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Attr dim = ATTR_I(DIM, node_int(&n, ATTR_DIM, -1));
  return grad_add(d, OP_SOFTMAX_BACKWARD, (ValueId[]){g, n.first_result}, 2, &dim, 1);
}

ValueId vjp_log_softmax(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Attr dim = ATTR_I(DIM, node_int(&n, ATTR_DIM, -1));
  return grad_add(d, OP_LOG_SOFTMAX_BACKWARD, (ValueId[]){g, n.first_result}, 2, &dim, 1);
}

/* Cotangents of x, weight and bias of a norm over the last `ndims` dims. `normal` is the norm
 * without weight and bias: the weight's cotangent is the sum of g * normal(x) over the rows. */
static ValueId vjp_norm(Grad *d, const Node *n, uint32_t i, ValueId g, Op backward, Op normal) {
  TensorType x = *grad_type(d, n->operands[0]);
  int64_t ndims = node_int(n, ATTR_NDIMS, DEFAULT_NDIMS);
  Attr attrs[] = {ATTR_I(NDIMS, ndims), ATTR_F(EPS, node_float(n, ATTR_EPS, DEFAULT_EPS))};
  if (i == 0) {
    ValueId operands[] = {g, n->operands[0], n->noperands > 1 ? n->operands[1] : 0};
    return grad_add(d, backward, operands, n->noperands > 1 ? 3 : 2, attrs, 2);
  }
  if (i == 1) g = grad_binary(d, OP_MUL, g, grad_add(d, normal, n->operands, 1, attrs, 2));
  return grad_sum(d, g, (1u << (x.rank - (uint32_t)ndims)) - 1, false);
}

ValueId vjp_layer_norm(Grad *d, Node n, uint32_t i, ValueId g) {
  return vjp_norm(d, &n, i, g, OP_LAYER_NORM_BACKWARD, OP_NORMALIZE);
}

ValueId vjp_normalize(Grad *d, Node n, uint32_t i, ValueId g) {
  return vjp_norm(d, &n, i, g, OP_LAYER_NORM_BACKWARD, OP_NORMALIZE);
}

ValueId vjp_rms_norm(Grad *d, Node n, uint32_t i, ValueId g) {
  return vjp_norm(d, &n, i, g, OP_RMS_NORM_BACKWARD, OP_RMS_NORMALIZE);
}

ValueId vjp_rms_normalize(Grad *d, Node n, uint32_t i, ValueId g) {
  return vjp_norm(d, &n, i, g, OP_RMS_NORM_BACKWARD, OP_RMS_NORMALIZE);
}

/* Element j adds to all later sums, so it collects their cotangents. */
ValueId vjp_cumsum(Grad *d, Node n, uint32_t i, ValueId g) {
  (void)i;
  Attr attrs[] = {ATTR_I(DIM, node_int(&n, ATTR_DIM, -1)),
                  ATTR_I(REVERSE, !node_int(&n, ATTR_REVERSE, 0))};
  if (!layout_has_partial(&grad_type(d, g)->layout)) return grad_add(d, OP_CUMSUM, &g, 1, attrs, 2);
  /* cumsum has no row for Partial: reduce first. */
  TensorType whole = *grad_type(d, n.first_result);
  return grad_add(d, OP_CUMSUM, (ValueId[]){grad_redistribute(d, g, &whole, NULL)}, 1, attrs, 2);
}
