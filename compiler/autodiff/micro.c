/* A batch in micro-batches: what is per micro-batch and what is per step.
 *
 * Values that depend on no data are the same for all micro-batches of a step: parameters, casts of
 * them, a table on its way to another stage. They are computed once. Where the rest uses them is
 * the frontier: the gradient with respect to a frontier value is added up over the micro-batches as
 * it is (Partial where it is Partial), and taken back from there to the parameters once per step,
 * so that nothing is reduced or moved per micro-batch that could wait. A cast next to the frontier
 * counts as per micro-batch here: sums are kept in f32.
 *
 * Numbers that are handed out (losses, metrics) are added up where they lie and handed out once.
 */
#include <string.h>

#include "autodiff/step.h"
#include "ir/rewrite.h"

static DType sum_dtype(DType t) {
  return t == DT_F64 ? DT_F64 : DT_F32;
}

/* --- numbers that are handed out ---------------------------------------------------------------
 */

/* v is added to a variable of its own, which starts every step at zero. */
static uint32_t add_up(Step *s, ValueId v, const char *name, TensorType *type) {
  *type = *grad_type(&s->d, v);
  if (!type->mesh) type->mesh = s->program->world;
  type->dtype = sum_dtype(type->dtype);
  uint32_t var =
      step_add_var(s, VAR_ACCUMULATOR, name, 0, type, graph_node(s->d.g, s->d.node)->span);
  VEC_PUSH(s->d.scratch, &s->cleared, var);
  step_assign(s, var,
              grad_binary(&s->d, OP_ADD, step_read(s, var), grad_cast(&s->d, v, type->dtype)));
  return var;
}

/* What is handed out once per step, though it differs between micro-batches. */
static bool adds_up(const Node *output) {
  static const char *const roles[] = {"loss", "metric", "sum", "count"};
  const char *role = output->op == OP_OUTPUT ? node_string(output, ATTR_ROLE) : NULL;
  for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
    if (strcmp(role, roles[i]) == 0) return true;
  return false;
}

static void defer(Step *s, const GraphMap *map, const Node *output) {
  Deferred d = {.output = *output};
  ValueId v = output->operands[0];
  while (value_node(map->from, v)->op == OP_REDISTRIBUTE) v = value_node(map->from, v)->operands[0];
  const char *name = arena_printf(s->d.scratch, "%s.sum", node_string(output, ATTR_NAME));
  d.type = *value_type(map->from, output->operands[0]);
  TensorType type;
  v = graph_map_get(map, v);
  s->d.node = graph_value(s->d.g, v)->node;
  s->d.failed = false;
  d.accumulator = add_up(s, v, name, &type);
  VEC_PUSH(s->d.scratch, &s->deferred, d);
}

/* The count of a whole batch is one of each step, and a variable has room for it. */
static void keep_count(Step *s, GraphMap *map, NodeId old) {
  const Node *n = graph_node(map->from, old);
  TensorType type = *value_type(map->from, n->first_result);
  NodeId id = graph_map_copy(map, old);
  if (!type.mesh) type.mesh = s->program->world;
  const char *name = arena_printf(s->d.scratch, "__count.%u", id);
  uint32_t var = step_add_var(s, VAR_ACCUMULATOR, name, 0, &type, n->span);
  Node *copy = graph_node(map->to, id);
  copy->attrs = ARENA_ARRAY(map->to->arena, Attr, 1);
  copy->attrs[0] = ATTR_I(VAR, var);
  copy->nattrs = 1;
}

void step_cut(Step *s, ValueId *keep, uint32_t nkeep) {
  const Graph *from = s->d.g;
  const bool *varies = graph_varying(s->d.scratch, from);
  GraphMap map = graph_map_begin(s->d.scratch, s->program->arena, from);
  s->d.g = map.to;
  for (NodeId id = 1; id < from->nodes.len; id++) {
    const Node *n = graph_node(from, id);
    if (adds_up(n) && varies[n->operands[0]])
      defer(s, &map, n);
    else if (n->op == OP_MICRO_SUM)
      keep_count(s, &map, id);
    else
      graph_map_copy(&map, id);
  }
  for (uint32_t i = 0; i < nkeep; i++) keep[i] = graph_map_get(&map, keep[i]);
  s->varies = graph_varying(s->d.scratch, s->d.g);
}

void step_hand_out(Step *s, int64_t batches) {
  Grad *d = &s->d;
  step_phase(s, PHASE_REDUCE);
  for (uint32_t i = 0; i < s->deferred.len; i++) {
    const Deferred *o = &s->deferred.data[i];
    /* parts of a metric are added up, by what runs the program too; all else is a mean */
    const char *role = node_string(&o->output, ATTR_ROLE);
    bool adds = role && (strcmp(role, "sum") == 0 || strcmp(role, "count") == 0);
    ValueId v = step_read(s, o->accumulator);
    if (!adds) v = grad_scale(d, v, 1 / (double)batches);
    if (o->type.mesh) {
      TensorType to = o->type;
      to.dtype = grad_type(d, v)->dtype;
      v = grad_redistribute(d, v, &to, NULL);
    }
    v = grad_cast(d, v, o->type.dtype);
    graph_add(d->g, OP_OUTPUT, &v, 1, o->output.attrs, o->output.nattrs, NULL, 0, o->output.span,
              o->output.scope);
  }
}

/* --- gradients ----------------------------------------------------------------------------------
 */

/* Which values depend on a parameter and not on data. */
static bool *find_prepared(Step *s) {
  const Graph *g = s->d.g;
  bool *prepared = ARENA_ARRAY(s->d.scratch, bool, g->values.len);
  for (uint32_t i = 0; i < s->nparams; i++) prepared[s->params[i].value] = true;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    bool any = false;
    for (uint32_t i = 0; i < n->noperands; i++) any |= prepared[n->operands[i]];
    for (uint32_t i = 0; any && n->op != OP_DETACH && i < n->nresults; i++) {
      ValueId v = node_result(n, i);
      prepared[v] = !s->varies[v] && dtype_is_float(value_type(g, v)->dtype);
    }
  }
  return prepared;
}

static void add_use(Step *s, const bool *prepared, bool *used, ValueId v) {
  const Node *n = value_node(s->d.g, v);
  while (n->op == OP_CAST && prepared[n->operands[0]]) {
    v = n->operands[0];
    n = value_node(s->d.g, v);
  }
  if (used[v]) return;
  used[v] = true;
  VEC_PUSH(s->d.scratch, &s->uses, (Use){.value = v});
}

/* The frontier: what the loss or a node that differs between micro-batches uses. */
static void find_uses(Step *s, ValueId loss) {
  const Graph *g = s->d.g;
  const bool *prepared = find_prepared(s);
  bool *used = ARENA_ARRAY(s->d.scratch, bool, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (!n->nresults || !s->varies[n->first_result]) continue;
    for (uint32_t i = 0; i < n->noperands; i++)
      if (prepared[n->operands[i]]) add_use(s, prepared, used, n->operands[i]);
  }
  if (prepared[loss]) add_use(s, prepared, used, loss);
}

bool step_use_gradients(Step *s, ValueId loss, int64_t batches) {
  find_uses(s, loss);
  uint32_t n = s->uses.len;
  ValueId *wrt = ARENA_ARRAY(s->d.scratch, ValueId, n + 1);
  ValueId *grads = ARENA_ARRAY(s->d.scratch, ValueId, n + 1);
  for (uint32_t i = 0; i < n; i++) wrt[i] = s->uses.data[i].value;
  if (!autodiff_gradients(s->d.g, loss, wrt, n, grads, batches, s->d.plans, s->d.sink))
    return false;
  for (uint32_t i = 0; i < n; i++) s->uses.data[i].grad = grads[i];
  return true;
}

static const Trained *param_of(const Step *s, ValueId value) {
  for (uint32_t i = 0; i < s->nparams; i++)
    if (s->params[i].value == value) return &s->params[i];
  return NULL;
}

/* Per micro-batch: the gradient, a share of that of the step, onto the sum. */
static void accumulate(Step *s, Use *u, uint32_t index, int64_t batches) {
  Grad *d = &s->d;
  const Trained *p = param_of(s, u->value);
  d->node = graph_value(d->g, u->value)->node;
  d->failed = false;
  TensorType type = *grad_type(d, u->grad);
  type.dtype = sum_dtype(type.dtype);
  const char *name = p ? arena_printf(d->scratch, "%s.grad", s->program->vars.data[p->var].name)
                       : arena_printf(d->scratch, "__use.%u.grad", index);
  u->accumulator = step_add_var(s, VAR_ACCUMULATOR, name, p ? p->var : 0, &type,
                                graph_node(d->g, d->node)->span);
  VEC_PUSH(d->scratch, &s->cleared, u->accumulator);
  ValueId share = grad_scale(d, grad_cast(d, u->grad, type.dtype), 1 / (double)batches);
  step_assign(s, u->accumulator, grad_binary(d, OP_ADD, step_read(s, u->accumulator), share));
}

/* The sum as a cotangent of the value. Addends of a sum that is pending may not fit a narrower type
 * although the sum does: it is reduced first. */
static ValueId as_cotangent(Grad *d, ValueId sum, ValueId value) {
  DType dtype = grad_type(d, value)->dtype;
  TensorType whole = *grad_type(d, sum);
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (whole.layout.at[a].kind == PLACE_PARTIAL) whole.layout.at[a] = (Place){0};
  if (dtype != whole.dtype) sum = grad_redistribute(d, sum, &whole, NULL);
  return grad_cast(d, sum, dtype);
}

bool step_gather_uses(Step *s, int64_t batches) {
  Grad *d = &s->d;
  uint32_t n = 0;
  ValueId *outputs = ARENA_ARRAY(d->scratch, ValueId, s->uses.len + 1);
  ValueId *seeds = ARENA_ARRAY(d->scratch, ValueId, s->uses.len + 1);
  ValueId *wrt = ARENA_ARRAY(d->scratch, ValueId, s->nparams);
  ValueId *grads = ARENA_ARRAY(d->scratch, ValueId, s->nparams);
  step_phase(s, PHASE_BACKWARD);
  for (uint32_t i = 0; i < s->uses.len; i++)
    if (s->uses.data[i].grad) accumulate(s, &s->uses.data[i], i, batches);
  step_phase(s, PHASE_REDUCE);
  for (uint32_t i = 0; i < s->uses.len; i++) {
    const Use *u = &s->uses.data[i];
    if (!u->grad) continue;
    d->node = graph_value(d->g, u->value)->node;
    outputs[n] = u->value;
    seeds[n++] = as_cotangent(d, step_read(s, u->accumulator), u->value);
  }
  for (uint32_t i = 0; i < s->nparams; i++) wrt[i] = s->params[i].value;
  if (!autodiff_pull_back(d->g, outputs, seeds, n, wrt, s->nparams, grads, d->plans, d->sink))
    return false;
  for (uint32_t i = 0; i < s->nparams; i++) s->params[i].grad = grads[i];
  return true;
}
