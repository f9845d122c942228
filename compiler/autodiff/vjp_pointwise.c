/* Gradients of pointwise operators, from the expressions of ops.def.
 *
 * The expression of operand i over (g, a, b, c, y) becomes nodes. It holds the cotangent as a
 * linear factor, so every node is legal for a Partial cotangent beside Replicate operands. Where
 * operands were broadcast, the cotangent is summed back. */
#include "autodiff/vjp.h"

static ValueId expand(Grad *d, const Scalar *e, const ValueId args[SCALAR_ARG_COUNT],
                      DType operand) {
  switch (e->kind) {
  case SCALAR_NONE:
    break;
  case SCALAR_CONST:
    return grad_const(d, args[SCALAR_Y], e->value);
  case SCALAR_ARG:
    return args[e->which];
  case SCALAR_CALL: {
    ValueId operands[3];
    for (uint32_t i = 0; i < e->nargs; i++) operands[i] = expand(d, e->arg[i], args, operand);
    if (e->op == OP_CAST) return grad_cast(d, operands[0], operand);
    if (e->nargs == 2) return grad_binary(d, e->op, operands[0], operands[1]);
    return grad_add(d, e->op, operands, e->nargs, NULL, 0);
  }
  }
  return 0;
}

ValueId vjp_pointwise(Grad *d, Node n, uint32_t i, ValueId g) {
  const Scalar *grads[3] = {0};
  if (!scalar_gradients(d->scratch, n.op, grads))
    return grad_fail(d, DIAG_NO_GRADIENT, "the operator is not differentiable");
  if (!grads[i]) return 0;
  ValueId args[SCALAR_ARG_COUNT] = {0};
  for (uint32_t k = 0; k < n.noperands; k++) args[SCALAR_A + k] = n.operands[k];
  args[SCALAR_G] = g;
  args[SCALAR_Y] = n.first_result;
  TensorType full = *grad_type(d, n.first_result), operand = *grad_type(d, n.operands[i]);
  return grad_unbroadcast(d, expand(d, grads[i], args, operand.dtype), &full, &operand);
}
