/* First step of the fuser: what becomes of each node, and which values others than kernels read. */
#include "fuse/internal.h"

static NodeKind kind_of_op(Op op) {
  switch (op_info(op)->lower) {
  case LOWER_ELEMENT:
  case LOWER_REDUCE:
    return NODE_KERNEL;
  case LOWER_FREE:
    return NODE_FREE;
  case LOWER_ALIAS:
    return NODE_ALIAS;
  case LOWER_TURN:
    return NODE_TURN;
  case LOWER_VIEW:
    return NODE_VIEW;
  case LOWER_CONTRACT:
    return NODE_CONTRACT;
  case LOWER_LIBRARY:
    return NODE_LIBRARY;
  case LOWER_COLLECTIVE:
    return NODE_COLLECTIVE;
  case LOWER_STRUCTURE:
    return NODE_STRUCTURE;
  case LOWER_NONE:
  case LOWER_OPENED:
  case LOWER_COMPOSITE:
    break;
  }
  return NODE_NONE; /* refused in stage local */
}

/* Pairs the dims of two shapes that differ only in dims of extent 1. */
static bool match_units(const TensorType *outer, const TensorType *inner, DimMap *out) {
  uint32_t i = 0;
  for (uint32_t d = 0; d < outer->rank; d++) {
    out->at[d] = DIM_UNIT;
    if (outer->shape[d] == 1) continue;
    while (i < inner->rank && inner->shape[i] == 1) i++;
    if (i == inner->rank || inner->shape[i] != outer->shape[d]) return false;
    out->at[d] = (int8_t)i++;
  }
  while (i < inner->rank && inner->shape[i] == 1) i++;
  return i == inner->rank;
}

static Root own_root(const Fuser *f, ValueId v) {
  Root r = {.value = v};
  const TensorType *t = value_type(f->g, v);
  for (uint32_t d = 0; d < t->rank; d++) r.dim.at[d] = t->shape[d] == 1 ? DIM_UNIT : (int8_t)d;
  return r;
}

/* `step` maps dims of v to dims of its operand; goes on to the operand's root. */
static Root root_through(const Fuser *f, ValueId v, ValueId operand, const DimMap *step) {
  Root r = {.value = f->root[operand].value};
  for (uint32_t d = 0; d < value_type(f->g, v)->rank; d++)
    r.dim.at[d] = step->at[d] < 0 ? DIM_UNIT : f->root[operand].dim.at[step->at[d]];
  return r;
}

static void turn_map(const Fuser *f, const Node *n, DimMap *step) {
  const TensorType *out = value_type(f->g, n->first_result), *in = value_type(f->g, n->operands[0]);
  const Attr *dims = node_attr(n, ATTR_DIMS);
  for (uint32_t d = 0; d < out->rank; d++) {
    int64_t from =
        n->op == OP_PERMUTE ? dims->as.ints.data[d] : (int64_t)d - (int64_t)(out->rank - in->rank);
    step->at[d] = from < 0 || in->shape[from] == 1 ? DIM_UNIT : (int8_t)from;
  }
}

static void classify_node(Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  NodeKind kind = kind_of_op(n->op);
  DimMap step;
  for (uint32_t i = 0; i < n->nresults; i++)
    f->root[n->first_result + i] = own_root(f, n->first_result + i);
  if (kind == NODE_VIEW || kind == NODE_ALIAS) {
    bool units =
        match_units(value_type(f->g, n->first_result), value_type(f->g, n->operands[0]), &step);
    kind = units ? NODE_ALIAS : NODE_VIEW;
  }
  if (kind == NODE_TURN) turn_map(f, n, &step);
  if (kind == NODE_ALIAS || kind == NODE_TURN)
    f->root[n->first_result] = root_through(f, n->first_result, n->operands[0], &step);
  f->kind[id] = (uint8_t)kind;
}

ValueId fuse_storage(const Fuser *f, ValueId v) {
  while (f->kind[graph_value(f->g, v)->node] == NODE_ALIAS) v = value_node(f->g, v)->operands[0];
  return v;
}

void fuse_need(Fuser *f, ValueId v) {
  v = fuse_storage(f, v);
  NodeId n = graph_value(f->g, v)->node;
  f->needed[v] = true;
  /* What kernels would look through or compute in place becomes a kernel's result. */
  if (f->kind[n] == NODE_TURN || f->kind[n] == NODE_FREE) f->kind[n] = NODE_KERNEL;
}

bool fuse_in_memory(const Node *n, uint32_t i) {
  return (n->op == OP_EMBEDDING && i == 1) || (n->op == OP_GATHER && i == 0) ||
         (n->op == OP_INDEX_SELECT && i == 0);
}

ValueId fuse_source(const Fuser *f, const Node *n, uint32_t i) {
  return fuse_in_memory(n, i) ? fuse_storage(f, n->operands[i]) : f->root[n->operands[i]].value;
}

uint32_t fuse_part(const Node *n) {
  return n->segment ? n->segment + 1 : n->phase > PHASE_BACKWARD;
}

bool fuse_in_kernel(const Fuser *f, NodeId n) {
  return f->kind[n] == NODE_KERNEL;
}

void fuse_classify(Fuser *f) {
  for (NodeId id = 1; id < f->g->nodes.len; id++) classify_node(f, id);
  for (NodeId id = 1; id < f->g->nodes.len; id++) {
    const Node *n = graph_node(f->g, id);
    bool all = f->kind[id] >= NODE_CONTRACT || f->kind[id] == NODE_VIEW;
    for (uint32_t i = 0; i < n->noperands; i++)
      if (all || fuse_in_memory(n, i)) fuse_need(f, n->operands[i]);
  }
}

void fuse_find_users(Fuser *f) {
  const Graph *g = f->g;
  f->first_user = ARENA_ARRAY(f->arena, uint32_t, g->values.len + 2);
  uint32_t *count = f->first_user + 1;
  for (int fill = 0; fill < 2; fill++) {
    for (NodeId id = 1; id < g->nodes.len; id++) {
      const Node *n = graph_node(g, id);
      for (uint32_t i = 0; fuse_in_kernel(f, id) && i < n->noperands; i++) {
        ValueId r = f->root[n->operands[i]].value;
        if (fill)
          f->users[count[r]++] = id;
        else
          count[r + 1]++;
      }
    }
    if (fill) break;
    for (ValueId v = 0; v < g->values.len; v++) count[v + 1] += count[v];
    f->users = ARENA_ARRAY(f->arena, uint32_t, count[g->values.len] + 1);
  }
}
