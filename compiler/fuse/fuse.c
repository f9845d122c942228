/* The pass: runs the steps, makes the groups and puts them in order. See fuse.h, internal.h.
 *
 * In: a local graph. Out: groups in which every input precedes its use; those of the forward and
 * backward phases come first, as they may run several times per step. */
#include "fuse/internal.h"

/* --- values ---- */

FValueId fuse_temporary(Fuser *f, DType dtype, SymId elements, int64_t max_elements) {
  VEC_PUSH(f->arena, &f->p->values,
           (FValue){.dtype = dtype,
                    .elements = elements,
                    .max_bytes = max_elements * (int64_t)dtype_bytes(dtype)});
  return f->p->values.len - 1;
}

FValueId fuse_value(Fuser *f, ValueId v) {
  if (f->p->value_of[v]) return f->p->value_of[v];
  const TensorType *t = value_type(f->g, v);
  NodeId id = graph_value(f->g, v)->node;
  bool alias = f->kind[id] == NODE_ALIAS || f->kind[id] == NODE_VIEW;
  FValueId base = alias ? fuse_value(f, graph_node(f->g, id)->operands[0]) : 0;
  FValueId out = fuse_temporary(f, t->dtype, fuse_local_count(f, v), fuse_elements(f, v));
  FValue *fv = &f->p->values.data[out];
  fv->value = v;
  if (base) fv->alias = f->p->values.data[base].alias ? f->p->values.data[base].alias : base;
  f->p->value_of[v] = out;
  return out;
}

/* --- groups that are one node ---- */

static GroupKind group_kind(NodeKind kind) {
  switch (kind) {
  case NODE_CONTRACT:
    return GROUP_CONTRACT;
  case NODE_COLLECTIVE:
    return GROUP_COLLECTIVE;
  case NODE_ALIAS:
  case NODE_VIEW:
    return GROUP_VIEW;
  case NODE_STRUCTURE:
    return GROUP_STRUCTURE;
  case NODE_NONE:
  case NODE_FREE:
  case NODE_TURN:
  case NODE_KERNEL:
  case NODE_LIBRARY:
  case NODE_ABSORBED:
    break;
  }
  return GROUP_LIBRARY;
}

static Group single_group(Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  Group g = {.kind = group_kind((NodeKind)f->kind[id]), .node = id, .nnodes = 1};
  g.nodes = ARENA_ARRAY(f->arena, NodeId, 3);
  g.nodes[0] = id;
  g.inputs = ARENA_ARRAY(f->arena, FValueId, n->noperands + 1);
  for (uint32_t i = 0; i < n->noperands; i++) g.inputs[g.ninputs++] = fuse_value(f, n->operands[i]);
  g.noutputs = n->nresults;
  g.outputs = ARENA_ARRAY(f->arena, FValueId, n->nresults);
  g.in_place = ARENA_ARRAY(f->arena, uint64_t, n->nresults);
  for (uint32_t i = 0; i < n->nresults; i++) g.outputs[i] = fuse_value(f, n->first_result + i);
  return g;
}

static Group contract_group(Fuser *f, NodeId id) {
  const Absorbed *a = &f->absorbed[id];
  const Node *n = graph_node(f->g, id);
  Group g = {.kind = GROUP_CONTRACT, .node = id, .nnodes = 1, .noutputs = 1};
  g.nodes = ARENA_ARRAY(f->arena, NodeId, 3);
  g.nodes[0] = id;
  g.inputs = ARENA_ARRAY(f->arena, FValueId, n->noperands + 1);
  g.outputs = ARENA_ARRAY(f->arena, FValueId, 1);
  g.in_place = ARENA_ARRAY(f->arena, uint64_t, 1);
  for (uint32_t i = 0; i < n->noperands; i++) g.inputs[g.ninputs++] = fuse_value(f, n->operands[i]);
  if (n->op == OP_LINEAR && n->noperands == 3) g.epilogue.bias = g.inputs[2];
  g.epilogue.activation = a->activation;
  if (a->activation) g.nodes[g.nnodes++] = graph_value(f->g, a->result)->node;
  if (a->addend) {
    g.in_place[0] = 1ull << g.ninputs;
    g.epilogue.addend = g.inputs[g.ninputs++] = fuse_value(f, a->addend);
    NodeId add = graph_value(f->g, a->result)->node;
    if (a->activation) {
      const Node *sum = graph_node(f->g, add);
      ValueId act = sum->operands[sum->operands[0] == a->addend];
      g.nodes[g.nnodes - 1] = graph_value(f->g, act)->node;
    }
    g.nodes[g.nnodes++] = add;
  }
  g.outputs[0] = fuse_value(f, a->result);
  return g;
}

/* --- order ---- */

typedef struct Order {
  Fuser *f;
  IdMap producer; /* FValueId -> index into made */
  VEC(Group) made;
  bool *placed; /* per made group */
} Order;

static void add_made(Order *o, Group g) {
  for (uint32_t i = 0; i < g.noutputs; i++)
    id_map_put(o->f->arena, &o->producer, g.outputs[i], o->made.len);
  VEC_PUSH(o->f->arena, &o->made, g);
}

/* Does anything need the alias itself? Kernels look through it. */
static void make_single(Order *o, NodeId id) {
  Fuser *f = o->f;
  const Node *n = graph_node(f->g, id);
  NodeKind kind = (NodeKind)f->kind[id];
  if (kind == NODE_CONTRACT)
    add_made(o, contract_group(f, id));
  else if (kind == NODE_ALIAS || kind == NODE_VIEW) {
    if (f->p->value_of[n->first_result]) add_made(o, single_group(f, id));
  } else if (kind == NODE_COLLECTIVE || kind == NODE_LIBRARY || kind == NODE_STRUCTURE)
    add_made(o, single_group(f, id));
}

static void place_group(Order *o, uint32_t index) {
  if (o->placed[index]) return;
  o->placed[index] = true; /* groups do not wait for each other: see waits.c */
  const Group *g = &o->made.data[index];
  for (uint32_t i = 0; i < g->ninputs; i++) {
    uint32_t from;
    if (id_map_get(&o->producer, g->inputs[i], &from)) place_group(o, from);
  }
  VEC_PUSH(o->f->arena, &o->f->p->groups, *g);
}

/* Forward and backward first; in each half, new values of variables last, so that all that reads
 * the old ones comes before. */
static int part_of(const Fuser *f, const Group *g) {
  const Node *n = graph_node(f->g, g->node);
  return 2 * (n->phase > PHASE_BACKWARD) + (n->op == OP_ASSIGN);
}

static void order_groups(Fuser *f) {
  Order o = {.f = f};
  const Graph *g = f->g;
  /* Values of all that is read first, so that only aliases somebody needs are made. */
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (f->kind[id] < NODE_CONTRACT || f->kind[id] == NODE_ABSORBED) continue;
    for (uint32_t i = 0; i < n->noperands; i++) fuse_value(f, n->operands[i]);
    if (f->absorbed[id].addend) fuse_value(f, f->absorbed[id].addend);
  }
  for (NodeId id = 1; id < g->nodes.len; id++) {
    uint32_t group = f->group[id];
    if (f->kind[id] != NODE_KERNEL) {
      make_single(&o, id);
      continue;
    }
    /* With its last node: what it reads has been made by then, as far as order can tell. */
    const KGroup *k = &f->groups.data[fuse_find(f, group)];
    if (k->nodes.data[k->nodes.len - 1] != id) continue;
    for (uint32_t i = 0; i < k->made.len; i++) add_made(&o, k->made.data[i]);
  }
  o.placed = ARENA_ARRAY(f->arena, bool, o.made.len);
  for (int part = 0; part < 4; part++)
    for (uint32_t i = 0; i < o.made.len; i++)
      if (part_of(f, &o.made.data[i]) == part) place_group(&o, i);
}

const FuseTarget fuse_target_cpu = {.vec_block = 16384,
                                    .chunk_bytes = 256 << 10,
                                    .chunks_most = 64,
                                    .arithmetic = 1,
                                    .spills = true,
                                    .wide_columns = true};
/* A block of 256 threads takes two or more 16-byte words each; a reduction over rows keeps hundreds
 * of blocks busy. Arithmetic is taken to cost a third of what it does on a core beside its share of
 * the memory; the price is an estimate from rated numbers of chips (about 5 TB/s). */
const FuseTarget fuse_target_cuda = {
    .vec_block = 4096, .chunk_bytes = 64 << 10, .chunks_most = 512, .arithmetic = 1.0 / 3};

FusedProgram *fuse_run(Arena *arena, const Graph *local, KernelSet *kernels,
                       const FuseOptions *options) {
  uint32_t nodes = local->nodes.len, values = local->values.len;
  FusedProgram *p = ARENA_NEW(arena, FusedProgram);
  p->graph = local;
  p->kernels = kernels;
  p->value_of = ARENA_ARRAY(arena, FValueId, values);
  VEC_PUSH(arena, &p->values, (FValue){0});
  sym_const(arena, p, 0);
  sym_const(arena, p, 1);
  Fuser f = {.arena = arena,
             .g = local,
             .p = p,
             .options = options,
             .target = options->target ? options->target : &fuse_target_cpu,
             .kind = ARENA_ARRAY(arena, uint8_t, nodes),
             .root = ARENA_ARRAY(arena, Root, values),
             .needed = ARENA_ARRAY(arena, bool, values),
             .stored = ARENA_ARRAY(arena, bool, values),
             .recompute = ARENA_ARRAY(arena, bool, values),
             .group = ARENA_ARRAY(arena, uint32_t, nodes),
             .level = ARENA_ARRAY(arena, uint8_t, nodes),
             .lanes = ARENA_ARRAY(arena, uint8_t, nodes),
             .map = ARENA_ARRAY(arena, DimMap, nodes),
             .reader = ARENA_ARRAY(arena, uint32_t, values),
             .absorbed = ARENA_ARRAY(arena, Absorbed, nodes),
             .vertex = ARENA_ARRAY(arena, Vertex, nodes),
             .mark = ARENA_ARRAY(arena, uint8_t, nodes),
             .round = ARENA_ARRAY(arena, uint32_t, nodes),
             .recomputed = graph_recomputed_scopes(arena, local)};
  fuse_number_types(&f);
  fuse_classify(&f);
  fuse_absorb(&f);
  fuse_find_users(&f);
  fuse_group(&f);
  fuse_recompute(&f);
  fuse_demand(&f);
  fuse_lower(&f);
  order_groups(&f);
  return p;
}
