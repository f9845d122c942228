/* infer_check: whether a node that stands in a graph says what inference says of it. The graph
 * verifier asks it of every node between passes. */
#include "infer/rules.h"

const char *infer_check(Arena *arena, const Graph *g, NodeId id) {
  const Node *n = graph_node(g, id);
  /* Their types come from a variable or a source, unless stated. */
  if ((n->op == OP_READ || n->op == OP_INPUT) && !node_attr(n, ATTR_TYPE)) return NULL;
  if (n->noperands > INFER_MAX_OPERANDS) return "too many operands";
  Operand few[8] = {{.is_const = false}}, *operands = few;
  if (n->noperands > 8) operands = ARENA_ARRAY(arena, Operand, n->noperands);
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i].type = *value_type(g, n->operands[i]);
    operands[i].is_const = value_const(g, n->operands[i], &operands[i].const_value);
  }
  InferResult out;
  if (!infer_rules(arena, n->op, operands, n->noperands, n->attrs, n->nattrs, false, &out)) {
    infer_node(arena, n->op, operands, n->noperands, n->attrs, n->nattrs, &out);
    return arena_printf(arena, "%s: %s", out.message, out.reason ? out.reason : "");
  }
  for (uint32_t i = 0; i < n->noperands; i++)
    if (out.slice[i]) return arena_printf(arena, "operand %u is not sliced to the others", i);
  for (uint32_t i = 0; i < n->nresults; i++) {
    const TensorType *have = value_type(g, node_result(n, i));
    if (!out.results[i].mesh) out.results[i].mesh = have->mesh; /* a scalar is on any mesh */
    if (!type_equal(have, &out.results[i]))
      return arena_printf(arena, "inference says %s", type_print(arena, &out.results[i]));
  }
  return NULL;
}
