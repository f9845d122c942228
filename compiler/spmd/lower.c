/* The walk over a graph: see spmd.h. Nodes that are primitives already are copied. */
#include "spmd/lower.h"

#include <string.h>

ValueId spmd_redistribute(Lowering *l, ValueId v, const TensorType *to) {
  TensorType from = *spmd_type(l, v);
  if (!from.mesh) from.mesh = to->mesh; /* a scalar that every rank has */
  if (type_equal(&from, to)) return v;
  const RedistributePlan *plan = place_plan(l->plans, &from, to, NULL);
  if (plan->error) {
    if (!l->error)
      l->error = arena_printf(l->arena, "no way from %s to %s: %s", type_print(l->arena, &from),
                              type_print(l->arena, to), plan->error);
    return v;
  }
  for (uint32_t i = 0; i < plan->nsteps; i++) {
    const PlanStep *s = &plan->steps[i];
    int64_t axes[DTM_MAX_AXES];
    uint32_t n = 0;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (s->axes >> a & 1) axes[n++] = a;
    Attr attrs[3] = {ATTR_T(TYPE, &s->to)};
    uint32_t nattrs = 1;
    const Attr *bucket = node_attr(l->serving, ATTR_BUCKET);
    if (op_info(s->op)->attrs & ATTR_BIT(AXES)) attrs[nattrs++] = ATTR_INTS(AXES, axes, n);
    if (bucket && op_info(s->op)->attrs & ATTR_BIT(BUCKET)) attrs[nattrs++] = *bucket;
    v = spmd_emit(l, s->op, &v, 1, attrs, nattrs, &s->to);
  }
  return v;
}

/* redistribute, in the element type the user asked to move. */
static ValueId lower_redistribute(Lowering *l) {
  const Node *n = l->serving;
  ValueId v = l->map[n->operands[0]];
  TensorType to = *value_type(l->in, n->first_result);
  const DType own = to.dtype;
  to.dtype = (DType)node_int(n, ATTR_FORWARD_DTYPE, own);
  return spmd_cast(l, spmd_redistribute(l, spmd_cast(l, v, to.dtype), &to), own);
}

/* The rows of x that are used, zeros for the others: what moving them does where nothing moves. */
static ValueId used_rows(Lowering *l, ValueId x, ValueId used, const TensorType *type) {
  TensorType index = spmd_with_dtype(*type, spmd_type(l, used)->dtype);
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (index.layout.at[a].kind == PLACE_PARTIAL) index.layout.at[a] = (Place){0};
  const Attr attrs[] = {ATTR_T(TYPE, &index), ATTR_I(DIM, 2)};
  ValueId row = spmd_emit(l, OP_IOTA, NULL, 0, attrs, 2, &index);
  for (uint32_t d = 2; d < type->rank; d++) {
    TensorType t = *spmd_type(l, used);
    t.shape[t.rank++] = 1;
    const Attr dim = ATTR_I(DIM, d);
    used = spmd_emit(l, OP_UNSQUEEZE, &used, 1, &dim, 1, &t);
  }
  TensorType on = spmd_with_dtype(index, DT_BOOL);
  ValueId taken = spmd_binary(l, OP_LT, &on, row, used);
  return spmd_where(l, type, taken, x, spmd_const(l, type->dtype, type->mesh, 0));
}

static ValueId lower_rows(Lowering *l) {
  const Node *n = l->serving;
  const TensorType to = *value_type(l->in, n->first_result);
  ValueId operands[3];
  for (uint32_t i = 0; i < 3; i++) operands[i] = l->map[n->operands[i]];
  const TensorType *from = spmd_type(l, operands[0]);
  if (type_equal(from, &to)) return used_rows(l, operands[0], operands[1], &to);
  int64_t axes[DTM_MAX_AXES];
  uint32_t count = 0;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (memcmp(&from->layout.at[a], &to.layout.at[a], sizeof(Place)) != 0) axes[count++] = a;
  const Attr attrs[] = {ATTR_T(TYPE, &to), ATTR_INTS(AXES, axes, count)};
  return spmd_emit(l, n->op, operands, 3, attrs, 2, &to);
}

/* The entry that the rank has, under the type that says all have it. */
static ValueId lower_replica(Lowering *l) {
  const TensorType to = *value_type(l->in, l->serving->first_result);
  ValueId v = l->map[l->serving->operands[0]];
  return spmd_emit(l, OP_RESHAPE, &v, 1, (Attr[]){ATTR_INTS(SHAPE, to.shape, to.rank)}, 1, &to);
}

static void lower_output(Lowering *l) {
  const Node *n = l->serving;
  TensorType t = *value_type(l->in, n->operands[0]);
  t.layout = (Layout){0};
  /* the log is rank 0's, the decision to stop everybody's; parts of prints are handed on later */
  if (l->world && !output_in_parts(n)) t.mesh = l->world;
  ValueId v = spmd_redistribute(l, l->map[n->operands[0]], &t);
  NodeId id = graph_add(l->out, OP_OUTPUT, &v, 1, n->attrs, n->nattrs, NULL, 0, n->span, n->scope);
  graph_node(l->out, id)->phase = n->phase;
}

/* Where the operand is this element type widened, the value before that; else 0. Narrowing undoes
 * widening exactly: a parameter that travels in bf16 is used as it came. */
static ValueId lower_cast(const Lowering *l) {
  ValueId v = l->map[l->serving->operands[0]];
  const Node *of = value_node(l->out, v);
  DType to = value_type(l->in, l->serving->first_result)->dtype;
  if (of->op != OP_CAST || value_type(l->out, of->operands[0])->dtype != to) return 0;
  return dtype_widens(to, value_type(l->out, v)->dtype) ? of->operands[0] : 0;
}

static bool assigned(const Graph *g, int64_t var) {
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op == OP_ASSIGN && node_int(n, ATTR_VAR, 0) == var) return true;
  }
  return false;
}

/* All assignments of a block happen at once. A value that is only another view of a variable which
 * is assigned too (a = b, b = a) is copied first: it would change under the reader. */
static void lower_assign(Lowering *l) {
  const Node *n = l->serving;
  ValueId v = l->map[n->operands[0]];
  const Node *of = value_node(l->out, v);
  while (op_info(of->op)->cls == CLASS_MOVEMENT && of->noperands == 1)
    of = value_node(l->out, of->operands[0]);
  bool itself =
      of == value_node(l->out, v) && node_int(of, ATTR_VAR, -1) == node_int(n, ATTR_VAR, 0);
  if (of->op == OP_READ && !itself && assigned(l->in, node_int(of, ATTR_VAR, 0))) {
    const TensorType t = *spmd_type(l, v);
    v = spmd_where(l, &t, spmd_const(l, DT_BOOL, t.mesh, 1), v, v);
  }
  NodeId id = graph_add(l->out, OP_ASSIGN, &v, 1, n->attrs, n->nattrs, NULL, 0, n->span, n->scope);
  graph_node(l->out, id)->phase = n->phase;
}

static void lower_node(Lowering *l, NodeId id) {
  const Node *n = l->serving;
  ValueId v = 0;
  if (n->op == OP_OUTPUT) {
    lower_output(l);
    return;
  }
  if (n->op == OP_ASSIGN) {
    lower_assign(l);
    return;
  }
  if (spmd_ring(l)) return;
  if (n->op == OP_CAST && (v = lower_cast(l)))
    ;
  else if (n->op == OP_DETACH)
    v = l->map[n->operands[0]];
  else if (n->op == OP_REPLICA)
    v = lower_replica(l);
  else if (n->op == OP_REDISTRIBUTE)
    v = lower_redistribute(l);
  else if (n->op == OP_REDISTRIBUTE_ROWS)
    v = lower_rows(l);
  else if (op_info(n->op)->cls == CLASS_CONTRACTION)
    v = spmd_contraction(l);
  else if (!spmd_composite(l, &v)) {
    graph_map_copy(&l->nodes, id);
    return;
  }
  l->map[n->first_result] = v;
  const char *name = graph_value(l->in, n->first_result)->name;
  if (name && !graph_value(l->out, v)->name) graph_value(l->out, v)->name = name;
}

/* As spmd_lower; outputs go to all ranks of `world` (or NULL); `map` (old value -> new) is kept for
 * the caller. */
static Graph *lower(Arena *arena, const Graph *g, const Mesh *world, MeshList *meshes,
                    PlanCache *plans, ValueId **map, const char **error) {
  Lowering l = {.arena = arena,
                .in = g,
                .world = world,
                .meshes = meshes,
                .nodes = graph_map_begin(arena, arena, g),
                .plans = plans};
  l.out = l.nodes.to;
  l.map = l.nodes.value;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    l.serving = graph_node(g, id);
    lower_node(&l, id);
  }
  *map = l.map;
  *error = l.error;
  return l.error ? NULL : l.out;
}

Graph *spmd_lower(Arena *arena, const Graph *g, PlanCache *plans, const char **error) {
  ValueId *map;
  MeshList meshes = {0};
  return lower(arena, g, NULL, &meshes, plans, &map, error);
}

/* A scalar made of constants alone is on no mesh in particular; from here on every value has ranks
 * that hold it. */
static void settle_scalars(Graph *g, const Mesh *world) {
  for (ValueId v = 1; v < g->values.len; v++)
    if (!graph_value(g, v)->type.mesh) graph_value(g, v)->type.mesh = world;
}

const char *spmd_run(Program *program, PlanCache *plans) {
  for (BlockKind k = BLOCK_INIT; k < BLOCK_COUNT; k++) {
    ProgramBlock *b = &program->block[k];
    if (!b->graph) continue;
    ValueId *map;
    const char *error;
    Graph *g =
        lower(program->arena, b->graph, program->world, &program->meshes, plans, &map, &error);
    if (!g) return error;
    settle_scalars(g, program->world);
    b->graph = g;
    b->loss = map[b->loss];
    b->optimizer.lr = map[b->optimizer.lr];
  }
  return NULL;
}
