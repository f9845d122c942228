/* What has no gradient, and what gets none, without differentiating the program: for `dtmc check`.
 *
 * In: a program of stage explicit. Out: the diagnostics that autodiff_run would give, at a cost
 * that grows with the distinct nodes between parameters and loss, not with their number. Each is
 * differentiated alone: its operands become variables, and its cotangent is whole where a cut might
 * leave it Partial, which no gradient refuses.
 */
#include <string.h>

#include "autodiff/step.h"

typedef struct Check {
  Grad d;         /* over the graph of the program: which values are active */
  uint64_t *type; /* per value: hash of its type and of the constant it is; 0 = not made yet */
  IdMap seen;     /* hash of a node and its types -> whether it has gradients */
} Check;

/* Of a mesh only its dims count. */
static uint64_t hash_type(PlanCache *plans, const TensorType *t, uint64_t h) {
  const Mesh *mesh = t->mesh ? plan_cache_alike(plans, t->mesh) : NULL;
  h = hash_bytes(&t->dtype, sizeof t->dtype, h + t->rank);
  h = hash_bytes(t->shape, t->rank * sizeof *t->shape, h);
  h = hash_bytes(&mesh, sizeof mesh, h);
  return hash_bytes(&t->layout, sizeof t->layout, h);
}

static uint64_t hash_value(const Check *c, ValueId v) {
  if (c->type[v]) return c->type[v];
  struct {
    double value;
    uint64_t constant, active;
  } about = {0, 0, c->d.active[v]};
  about.constant = value_const(c->d.g, v, &about.value);
  uint64_t h = hash_bytes(&about, sizeof about, 1);
  return c->type[v] = hash_type(c->d.plans, value_type(c->d.g, v), h) | 1;
}

/* Equal for nodes that have equal gradients: all random masks of one kind have. */
static uint64_t hash_node(const Check *c, const Node *n) {
  const Graph *g = c->d.g;
  uint64_t h = hash_bytes(&n->op, sizeof n->op, n->nattrs);
  for (uint32_t i = 0; i < n->nattrs; i++) {
    bool typed = attr_kind(n->attrs[i].key) == ATTR_KIND_TYPE;
    if (n->attrs[i].key == ATTR_INSTANCE) continue;
    h = typed ? hash_type(c->d.plans, n->attrs[i].as.type, h) : attrs_hash(&n->attrs[i], 1, h);
  }
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId v = n->operands[i];
    uint32_t same = 0; /* an operand that stands twice is one value */
    while (n->operands[same] != v) same++;
    struct {
      uint64_t value, before;
      uint32_t same, moves;
    } about = {hash_value(c, v), h, same, false};
    about.moves = n->nresults && value_type(g, v)->mesh != value_type(g, n->first_result)->mesh;
    h = hash_bytes(&about, sizeof about, i);
  }
  for (uint32_t r = 0; r < n->nresults; r++) {
    uint64_t pair[] = {hash_value(c, node_result(n, r)), h};
    h = hash_bytes(pair, sizeof pair, r);
  }
  return h;
}

/* The node alone, with a variable for each operand that is no constant; its id. */
static NodeId isolate(const Check *c, const Node *n, Graph *lab, bool *active) {
  const Graph *g = c->d.g;
  ValueId operands[INFER_MAX_OPERANDS];
  TensorType results[INFER_MAX_RESULTS];
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId v = n->operands[i];
    uint32_t same = 0;
    while (n->operands[same] != v) same++;
    if (same < i) {
      operands[i] = operands[same];
      continue;
    }
    const Node *made = value_node(g, v);
    bool constant = made->op == OP_CONST;
    Attr var = ATTR_I(VAR, 0);
    NodeId id =
        graph_add(lab, constant ? OP_CONST : OP_READ, NULL, 0, constant ? made->attrs : &var,
                  constant ? made->nattrs : 1, value_type(g, v), 1, n->span, n->scope);
    operands[i] = node_result(graph_node(lab, id), 0);
    active[operands[i]] = c->d.active[v];
  }
  for (uint32_t r = 0; r < n->nresults; r++) results[r] = *value_type(g, node_result(n, r));
  return graph_add(lab, n->op, operands, n->noperands, n->attrs, n->nattrs, results, n->nresults,
                   n->span, n->scope);
}

/* Differentiates one node; false when it has no gradient, which is reported. */
static bool has_gradient(Check *c, const Node *n) {
  enum { ROOM = INFER_MAX_OPERANDS + INFER_MAX_RESULTS + 4 };
  const Graph *g = c->d.g;
  uint32_t errors = c->d.sink->errors;
  Arena arena;
  arena_init(&arena);
  Graph *lab = graph_new(&arena, g->name);
  lab->scopes.data = g->scopes.data;
  lab->scopes.len = lab->scopes.cap = g->scopes.len;
  Grad d = {.g = lab, .scratch = &arena, .plans = c->d.plans, .sink = c->d.sink, .accumulate = 1};
  d.active = ARENA_ARRAY(&arena, bool, ROOM);
  d.cots = ARENA_ARRAY(&arena, CotList, ROOM);
  diag_init(&d.inner, &arena, c->d.sink->sources);
  NodeId id = isolate(c, n, lab, d.active);
  for (uint32_t r = 0; r < n->nresults; r++) {
    if (!c->d.active[node_result(n, r)]) continue;
    ValueId y = node_result(graph_node(lab, id), r);
    TensorType t = *value_type(lab, y);
    d.active[y] = true;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (t.layout.at[a].kind == PLACE_PARTIAL) t.layout.at[a] = (Place){0};
    Attr var = ATTR_I(VAR, 0);
    NodeId cot = graph_add(lab, OP_READ, NULL, 0, &var, 1, &t, 1, n->span, n->scope);
    d.end = lab->nodes.len;
    d.end_value = lab->values.len;
    cot_plan(&d, NULL, 0);
    grad_differentiate(&d, id, y, node_result(graph_node(lab, cot), 0));
  }
  arena_free(&arena);
  return c->d.sink->errors == errors;
}

bool autodiff_check(const Program *program, PlanCache *plans, DiagSink *sink) {
  const ProgramBlock *b = &program->block[BLOCK_TRAIN];
  if (!b->graph || !b->loss || !b->optimizer.kind) return true;
  uint32_t errors = sink->errors, nparams = 0;
  if (!training_supported(b, b->graph, sink)) return false;
  Arena scratch;
  arena_init(&scratch);
  Graph *g = b->graph;
  Check c = {0};
  c.d = (Grad){.g = g, .scratch = &scratch, .plans = plans, .sink = sink, .accumulate = 1};
  c.d.end = g->nodes.len;
  c.d.end_value = g->values.len;
  c.d.active = ARENA_ARRAY(&scratch, bool, c.d.end_value);
  c.type = ARENA_ARRAY(&scratch, uint64_t, c.d.end_value);
  ValueId *params = ARENA_ARRAY(&scratch, ValueId, c.d.end_value);
  for (NodeId id = 1; id < c.d.end; id++) {
    const Node *n = graph_node(g, id);
    if (n->op == OP_READ && program->vars.data[node_int(n, ATTR_VAR, 0)].kind == VAR_PARAM)
      params[nparams++] = n->first_result;
  }
  grad_mark_active(&c.d, &b->loss, 1, params, nparams);
  bool *reached = ARENA_ARRAY(&scratch, bool, program->vars.len);
  for (uint32_t i = 0; i < nparams; i++)
    if (c.d.active[params[i]]) reached[node_int(value_node(g, params[i]), ATTR_VAR, 0)] = true;
  for (NodeId id = c.d.end - 1; id > 0; id--) {
    const Node *n = graph_node(g, id);
    bool any = false;
    uint32_t fine = 1;
    for (uint32_t r = 0; r < n->nresults; r++) any |= c.d.active[node_result(n, r)];
    if (!any || n->op == OP_READ || n->noperands > INFER_MAX_OPERANDS) continue;
    uint64_t key = hash_node(&c, n);
    bool known = id_map_get(&c.seen, key, &fine);
    if (known && fine) continue; /* one without is told at every place */
    fine = has_gradient(&c, n);
    if (!known) id_map_put(&scratch, &c.seen, key, fine);
  }
  for (uint32_t var = 0; var < program->vars.len && sink->errors == errors; var++)
    if (program->vars.data[var].kind == VAR_PARAM && !reached[var])
      training_warn_unused(program, var, sink);
  arena_free(&scratch);
  return sink->errors == errors;
}
