/* Epilogues of contractions: an activation that alone uses the product, then an addition of a value
 * that lies in memory anyway (a residual, a gradient accumulator). The product's own pass over its
 * result then does their work. */
#include "fuse/internal.h"

/* What every backend of products computes, and NaN stays NaN in. (oneDNN's sigmoid makes numbers of
 * NaN: that stays a kernel.) */
static bool is_activation(Op op) {
  return op == OP_RELU || op == OP_GELU || op == OP_GELU_TANH || op == OP_SILU || op == OP_TANH;
}

/* Made by something other than a kernel: it is in memory whatever the fuser does. */
static bool lies_in_memory(const Fuser *f, ValueId v) {
  NodeId n = graph_value(f->g, fuse_storage(f, v))->node;
  return f->kind[n] >= NODE_CONTRACT || f->kind[n] == NODE_VIEW;
}

/* The only user of a value, or 0. */
static NodeId only_user(const NodeId *user, const uint32_t *uses, ValueId v) {
  return uses[v] == 1 ? user[v] : 0;
}

static bool same_type(const Fuser *f, ValueId a, ValueId b) {
  return type_equal(value_type(f->g, a), value_type(f->g, b));
}

static bool together(const Node *a, const Node *b) {
  return a->phase == b->phase && a->segment == b->segment;
}

static void absorb_node(Fuser *f, NodeId by, NodeId id) {
  f->kind[id] = NODE_ABSORBED;
  f->absorbed[id].by = by;
  f->absorbed[by].result = graph_node(f->g, id)->first_result;
  f->needed[f->absorbed[by].result] = true;
}

static void absorb(Fuser *f, NodeId id, const NodeId *user, const uint32_t *uses) {
  Absorbed *a = &f->absorbed[id];
  const Node *n = graph_node(f->g, id);
  NodeId u = only_user(user, uses, a->result);
  if (!u || !together(graph_node(f->g, u), n)) return;
  /* What is computed again is then computed by a kernel: so it is here, to the last bit. */
  bool again = n->phase == PHASE_FORWARD && f->recomputed[n->scope];
  if (is_activation(graph_node(f->g, u)->op) && f->kind[u] == NODE_KERNEL && !again) {
    a->activation = graph_node(f->g, u)->op;
    absorb_node(f, id, u);
    u = only_user(user, uses, a->result);
    if (!u || !together(graph_node(f->g, u), n)) return;
  }
  const Node *add = graph_node(f->g, u);
  if (add->op != OP_ADD || f->kind[u] != NODE_KERNEL || add->operands[0] == add->operands[1])
    return;
  ValueId other = add->operands[add->operands[0] == a->result];
  if (!same_type(f, other, a->result) || !lies_in_memory(f, other)) return;
  a->addend = other;
  fuse_need(f, other);
  absorb_node(f, id, u);
}

void fuse_absorb(Fuser *f) {
  const Graph *g = f->g;
  uint32_t *uses = graph_use_counts(f->arena, g);
  NodeId *user = ARENA_ARRAY(f->arena, NodeId, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++)
    for (uint32_t i = 0; i < graph_node(g, id)->noperands; i++)
      user[graph_node(g, id)->operands[i]] = id;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    if (f->kind[id] != NODE_CONTRACT) continue;
    f->absorbed[id].result = graph_node(g, id)->first_result;
    if (f->options->enabled) absorb(f, id, user, uses);
  }
}
