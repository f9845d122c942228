/* Gradients of the products of experts, and of moving their rows. Counts have none. */
#include "autodiff/vjp.h"

ValueId vjp_grouped_linear(Grad *d, Node n, uint32_t i, ValueId g) {
  bool reverse = node_int(&n, ATTR_REVERSE, 0) != 0;
  ValueId x = n.operands[0], weight = n.operands[1], counts = n.operands[2];
  Attr back = ATTR_I(REVERSE, !reverse);
  if (i == 0) return grad_add(d, OP_GROUPED_LINEAR, (ValueId[]){g, weight, counts}, 3, &back, 1);
  if (i != 1) return 0;
  return grad_add(d, OP_GROUPED_LINEAR_WEIGHT,
                  (ValueId[]){reverse ? x : g, reverse ? g : x, counts}, 3, NULL, 0);
}

/* The way back; what is pending in the cotangent stays so. */
ValueId vjp_redistribute_rows(Grad *d, Node n, uint32_t i, ValueId g) {
  if (i != 0) return 0;
  TensorType to = *grad_type(d, n.operands[0]);
  const TensorType *have = grad_type(d, g);
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (to.layout.at[a].kind != PLACE_SHARD) to.layout.at[a] = have->layout.at[a];
  Attr type = ATTR_T(TYPE, &to);
  return grad_add(d, OP_REDISTRIBUTE_ROWS, (ValueId[]){g, n.operands[2], n.operands[1]}, 3, &type,
                  1);
}
