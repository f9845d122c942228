/* The gradient of scaled dot product attention: one fused operator gives all three cotangents. */
#include "autodiff/vjp.h"

/* Asked for each operand in turn; equal nodes are merged later. */
ValueId vjp_attention(Grad *d, Node n, uint32_t i, ValueId g) {
  ValueId operands[8] = {
      g, n.operands[0], n.operands[1], n.operands[2], n.first_result, n.first_result + 1};
  uint32_t count = 6;
  if (i > 2) return 0;
  for (uint32_t k = 3; k < n.noperands; k++) operands[count++] = n.operands[k];
  Attr attrs[ATTR_COUNT];
  uint32_t nattrs = 0;
  for (uint32_t k = 0; k < n.nattrs; k++)
    if (op_info(OP_ATTENTION_BACKWARD)->attrs >> n.attrs[k].key & 1) attrs[nattrs++] = n.attrs[k];
  ValueId dq = grad_add(d, OP_ATTENTION_BACKWARD, operands, count, attrs, nattrs);
  return dq + i;
}
