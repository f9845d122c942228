/* The code of one rank, node by node, as that of all: see region.h. */
#include <string.h>

#include "sema/batch.h"

State region_outside(Sema *s, const Region *r) {
  State inside = s->at;
  uint32_t depth = s->at.depth;
  s->at = r->outside;
  s->at.depth = depth;
  s->at.auto_block = NULL;
  return inside;
}

void region_inside(Sema *s, const State *inside) {
  s->at = *inside;
}

int region_lead(const Region *r, uint32_t axis) {
  for (uint32_t k = 0; k < r->nlead; k++)
    if (r->axis[k] == axis) return (int)k;
  return -1;
}

/* Every value of a region is whole on the rank that has it. */
static bool has_placement(const Region *r, const Node *n) {
  for (uint32_t i = 0; i < n->nresults; i++)
    if (!layout_is_replicate(&value_type(r->inner, node_result(n, i))->layout)) return true;
  return n->op == OP_REDISTRIBUTE;
}

static void transcribe(Sema *s, Region *r, NodeId id) {
  Move *m = ARENA_NEW(s->arena, Move);
  *m = (Move){.s = s, .r = r, .n = *graph_node(r->inner, id)};
  bool known = true;
  for (uint32_t i = 0; i < m->n.nresults; i++)
    known &= !graph_value(r->inner, node_result(&m->n, i))->poisoned;
  for (uint32_t i = 0; i < m->n.noperands && i < INFER_MAX_OPERANDS; i++) {
    m->x[i] = r->stack.data[m->n.operands[i]];
    known &= m->x[i] != 0;
  }
  while (r->stack.len < m->n.first_result + m->n.nresults) VEC_PUSH(s->arena, &r->stack, 0);
  if (!known) return;
  if (has_placement(r, &m->n)) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, m->n.span, "code for one rank has no placements");
    diag_reason(s->sink, d,
                "its code is that of one rank; ranks talk by all_reduce, all_gather, "
                "reduce_scatter and all_to_all");
    return;
  }
  m->nattrs = m->n.nattrs;
  if (m->nattrs) memcpy(m->attrs, m->n.attrs, m->nattrs * sizeof *m->attrs);
  ValueId y = batch_move(m);
  for (uint32_t i = 0; y && i < m->n.nresults; i++) {
    r->stack.data[m->n.first_result + i] = y + i;
    Value *v = graph_value(s->at.graph, y + i);
    const Value *inner = graph_value(r->inner, m->n.first_result + i);
    if (v->name) continue;
    v->name = inner->name;
    v->name_scope = inner->name_scope;
  }
}

ValueId region_leaf(Sema *s, Region *r, ValueId stack, Span span) {
  TensorType t = *value_type(r->outside.graph, stack), block = {.dtype = t.dtype, .mesh = r->mesh};
  block.rank = t.rank - r->nlead;
  memcpy(block.shape, t.shape + r->nlead, block.rank * sizeof *block.shape);
  NodeId id =
      graph_add(r->inner, OP_INPUT, NULL, 0, (Attr[]){ATTR_T(TYPE, &block)}, 1, &block, 1, span, 0);
  ValueId leaf = node_result(graph_node(r->inner, id), 0);
  /* nodes before it are transcribed by whoever comes next; the list grows in order */
  id_map_put(s->arena, &r->leaves, leaf, stack);
  return leaf;
}

ValueId region_stack(Sema *s, Region *r, ValueId inner, Span span) {
  State inside = region_outside(s, r);
  for (; r->done < r->inner->nodes.len; r->done++) {
    const Node *n = graph_node(r->inner, r->done);
    uint32_t stack;
    if (n->op == OP_INPUT && id_map_get(&r->leaves, n->first_result, &stack)) {
      while (r->stack.len <= n->first_result) VEC_PUSH(s->arena, &r->stack, 0);
      r->stack.data[n->first_result] = stack;
      continue;
    }
    transcribe(s, r, r->done);
  }
  ValueId x = inner < r->stack.len ? r->stack.data[inner] : 0;
  x = stack_of(s, r, x, span);
  region_inside(s, &inside);
  return x;
}
