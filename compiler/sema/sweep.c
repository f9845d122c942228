/* Drops what nothing needs, at the end of elaboration: unused lets, metrics that were taken apart.
 */
#include "sema/elab.h"

static void mark(const Graph *g, ValueId v, bool *needed) {
  if (v) needed[g->values.data[v].node] = true;
}

void sweep_graph(Sema *s, Graph *g, ValueId *const *roots, uint32_t nroots) {
  bool *needed = ARENA_ARRAY(s->arena, bool, g->nodes.len);
  for (uint32_t r = 0; r < nroots; r++) mark(g, *roots[r], needed);
  /* operands come before their users, so one pass backward reaches all */
  for (NodeId id = g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(g, id);
    if (n->op == OP_OUTPUT || n->op == OP_ASSIGN) needed[id] = true;
    if (!needed[id]) continue;
    for (uint32_t i = 0; i < n->noperands; i++) mark(g, n->operands[i], needed);
  }
  ValueId *moved = ARENA_ARRAY(s->arena, ValueId, g->values.len);
  NodeId nodes = 1; /* what stands before the first that goes stays where it is */
  while (nodes < g->nodes.len && needed[nodes]) nodes++;
  ValueId values = nodes < g->nodes.len ? graph_node(g, nodes)->first_result : g->values.len;
  for (ValueId v = 1; v < values; v++) moved[v] = v;
  for (NodeId id = nodes; id < g->nodes.len; id++) {
    if (!needed[id]) continue;
    Node n = *graph_node(g, id);
    for (uint32_t i = 0; i < n.noperands; i++) n.operands[i] = moved[n.operands[i]];
    ValueId first = n.first_result;
    n.first_result = values;
    for (uint32_t i = 0; i < n.nresults; i++) {
      moved[first + i] = values;
      Value v = *graph_value(g, first + i);
      v.node = nodes;
      g->values.data[values++] = v;
    }
    g->nodes.data[nodes++] = n;
  }
  g->nodes.len = nodes;
  g->values.len = values;
  for (uint32_t r = 0; r < nroots; r++) *roots[r] = *roots[r] ? moved[*roots[r]] : 0;
}
