/* The backward pass: reverse mode over the flat graph.
 *
 * In: a graph of stage explicit. Appends nodes of PHASE_BACKWARD: the cotangent of every value
 * between a parameter and the loss, in reverse order of the forward nodes. Contributions to one
 * value are added only when alike: an R one beside a Partial one is filled to Partial (rank 0
 * keeps, zero bytes), so it counts once. */
#include "autodiff/grad.h"

void grad_mark_active(Grad *d, const ValueId *outputs, uint32_t noutputs, const ValueId *wrt,
                      uint32_t nwrt) {
  bool *depends = ARENA_ARRAY(d->scratch, bool, d->end_value);
  for (uint32_t i = 0; i < nwrt; i++) depends[wrt[i]] = true;
  for (NodeId id = 1; id < d->end; id++) {
    const Node *n = graph_node(d->g, id);
    bool any = false;
    for (uint32_t i = 0; i < n->noperands; i++) any |= depends[n->operands[i]];
    if (!any || n->op == OP_DETACH) continue;
    for (uint32_t i = 0; i < n->nresults; i++)
      if (dtype_is_float(grad_type(d, node_result(n, i))->dtype)) depends[node_result(n, i)] = true;
  }
  bool *needed = d->active;
  for (uint32_t i = 0; i < noutputs; i++) needed[outputs[i]] = depends[outputs[i]];
  for (NodeId id = d->end - 1; id > 0; id--) {
    const Node *n = graph_node(d->g, id);
    bool any = false;
    for (uint32_t i = 0; i < n->nresults; i++) any |= needed[node_result(n, i)];
    for (uint32_t i = 0; any && i < n->noperands; i++)
      needed[n->operands[i]] |= depends[n->operands[i]];
  }
}

/* Changes the Partial(sum) axes of a value: to R where `to_replicate`, to P where `to_partial`. */
static ValueId change_axes(Grad *d, ValueId g, uint32_t to_replicate, uint32_t to_partial) {
  TensorType to = *grad_type(d, g);
  for (uint32_t a = 0; a < to.mesh->naxes; a++) {
    Place *p = &to.layout.at[a];
    if (to_replicate >> a & 1 && p->kind == PLACE_PARTIAL) *p = (Place){0};
    if (to_partial >> a & 1 && p->kind == PLACE_REPLICATE)
      *p = (Place){.kind = PLACE_PARTIAL, .op = REDUCE_SUM};
  }
  return grad_redistribute(d, g, &to, NULL);
}

static uint32_t partial_axes(const TensorType *t) {
  uint32_t set = 0;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (t->layout.at[a].kind == PLACE_PARTIAL) set |= 1u << a;
  return set;
}

/* Every element one number, whose dims have any order: in that of `x`. */
static ValueId conform_order(Grad *d, ValueId c, const TensorType *x) {
  TensorType to = *grad_type(d, c);
  bool same = true;
  for (uint32_t i = 0; i < to.rank; i++) {
    if (to.shape[i] != x->shape[i]) continue;
    same &= to.balanced[i] == x->balanced[i];
    to.balanced[i] = x->balanced[i];
  }
  const Node *n = value_node(d->g, c);
  return same || n->op != OP_FULL ? c : grad_full(d, &to, node_float(n, ATTR_VALUE, 0));
}

/* Brings a contribution to the placement that a cotangent of a value of type `x` has. Dims of
 * extent 1 that stand for more are left R. */
static ValueId conform(Grad *d, ValueId c, const TensorType *x) {
  c = conform_order(d, grad_cast(d, c, x->dtype), x);
  TensorType to = *grad_type(d, c);
  for (uint32_t a = 0; a < x->mesh->naxes; a++) {
    Place have = to.layout.at[a], want = x->layout.at[a];
    bool sum = have.kind == PLACE_PARTIAL && have.op == REDUCE_SUM;
    if (want.kind == PLACE_REPLICATE && sum) continue;
    if (want.kind != PLACE_SHARD || to.shape[want.dim] != x->shape[want.dim]) want = (Place){0};
    to.layout.at[a] = want;
  }
  return grad_redistribute(d, c, &to, NULL);
}

/* The cotangent of a value from its contributions; 0 when none flows. */
static ValueId collect(Grad *d, ValueId v) {
  CotList *parts = &d->cots[v];
  if (parts->len == 0) return 0;
  const TensorType *x = grad_type(d, v);
  uint32_t any = 0, reduce = 0;
  d->node = parts->data[parts->len - 1].from;
  d->failed = false;
  for (uint32_t i = 0; i < parts->len; i++) {
    uint32_t axes = partial_axes(grad_type(d, parts->data[i].value));
    if (axes & ~any) d->node = parts->data[i].from; /* its place is told for the reduction */
    any |= axes;
  }
  for (uint32_t a = 0; a < x->mesh->naxes; a++)
    if (any >> a & 1 && cot_wants_replicate(d, v, a)) reduce |= 1u << a;
  ValueId sum = 0;
  for (uint32_t i = 0; i < parts->len; i++) {
    ValueId part = change_axes(d, parts->data[i].value, 0, any);
    sum = sum ? grad_binary(d, OP_ADD, sum, part) : part;
  }
  return change_axes(d, sum, reduce, 0);
}

static bool differentiable_partial(Grad *d, const Node *n, ValueId y) {
  const TensorType *t = grad_type(d, y);
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL || p.op == REDUCE_SUM || p.op == REDUCE_AVG) continue;
    Diag *diag = diag_emit(d->sink, DIAG_GRADIENT_PARTIAL, n->span,
                           "no gradient through a value that is Partial(%s) on mesh dim %s",
                           reduce_op_name((ReduceOp)p.op), t->mesh->axis[a]);
    if (p.op == REDUCE_PRODUCT)
      diag_reason(
          d->sink, diag,
          "the gradient of one rank's factor is the product of those of all others, which no "
          "rank has");
    else
      diag_reason(d->sink, diag,
                  "which rank's addend decides the %s is known only after the reduction, so its "
                  "cotangent cannot be shared out",
                  reduce_op_name((ReduceOp)p.op));
    return false;
  }
  return true;
}

void grad_differentiate(Grad *d, NodeId id, ValueId y, ValueId g) {
  enum { FEW = 4 };
  Node n = *graph_node(d->g, id);
  const VjpRow *row = vjp_row(n.op);
  TensorType full = *grad_type(d, y);
  d->node = id;
  d->failed = false;
  if (!differentiable_partial(d, &n, y)) return;
  if (y != n.first_result) { /* rows do not ask which, and cut.c counts on one */
    grad_fail(d, DIAG_NO_GRADIENT, "the loss depends on its second result, which has no gradient");
    return;
  }
  if (!row->run) {
    if (row->why) grad_fail(d, DIAG_NO_GRADIENT, row->why);
    return;
  }
  uint32_t partial = partial_axes(grad_type(d, g));
  /* Versions of g by the set of axes that are reduced: few users differ. */
  struct {
    uint32_t reduced;
    ValueId value;
  } versions[FEW];
  uint32_t nversions = 0;
  for (uint32_t i = 0; i < n.noperands; i++) {
    ValueId w = n.operands[i];
    if (!d->active[w]) continue;
    uint32_t reduced = 0, k = 0;
    for (uint32_t a = 0; a < full.mesh->naxes; a++)
      if (partial >> a & 1 && cot_use_wants_replicate(d, &n, i, a)) reduced |= 1u << a;
    while (k < nversions && versions[k].reduced != reduced) k++;
    if (k == nversions) {
      ValueId version = change_axes(d, g, reduced, 0);
      if (!row->broadcast_ok) version = grad_materialise(d, version, &full);
      versions[k].reduced = reduced;
      versions[k].value = version;
      nversions += k + 1 < FEW;
    }
    ValueId part = row->run(d, n, i, versions[k].value);
    if (d->failed) return;
    if (!part) continue;
    TensorType x = *grad_type(d, w);
    part = conform(d, part, &x);
    VEC_PUSH(d->scratch, &d->cots[w], (CotPart){part, id});
  }
}

/* The cotangent that a result of the pass begins with. */
static ValueId seed_of(Grad *d, ValueId output, const ValueId *seed) {
  d->node = graph_value(d->g, output)->node;
  if (seed) return *seed;
  TensorType one = {.dtype = grad_type(d, output)->dtype, .mesh = grad_type(d, output)->mesh};
  return grad_full(d, &one, 1);
}

/* `seeds` (or NULL: 1 each) are cotangents of the outputs. */
static void run(Grad *d, const ValueId *outputs, const ValueId *seeds, uint32_t noutputs,
                const ValueId *wrt, uint32_t nwrt, ValueId *grads) {
  bool *is_wrt = ARENA_ARRAY(d->scratch, bool, d->end_value);
  for (uint32_t i = 0; i < nwrt; i++) is_wrt[wrt[i]] = true;
  grad_mark_active(d, outputs, noutputs, wrt, nwrt);
  cot_plan(d, wrt, nwrt);
  for (uint32_t i = 0; i < noutputs; i++) {
    ValueId y = outputs[i];
    if (!d->active[y]) continue;
    ValueId seed = seed_of(d, y, seeds ? &seeds[i] : NULL);
    VEC_PUSH(d->scratch, &d->cots[y], (CotPart){seed, d->node});
  }
  for (NodeId id = d->end - 1; id > 0; id--) {
    Node n = *graph_node(d->g, id);
    for (uint32_t r = 0; r < n.nresults; r++) {
      ValueId y = node_result(&n, r);
      if (!d->active[y] || is_wrt[y]) continue;
      ValueId g = collect(d, y);
      if (g && !graph_value(d->g, g)->poisoned) grad_differentiate(d, id, y, g);
    }
  }
  for (uint32_t i = 0; i < nwrt; i++) {
    grads[i] = collect(d, wrt[i]);
    TensorType x = *grad_type(d, wrt[i]);
    if (grads[i]) grads[i] = grad_materialise(d, grads[i], &x);
  }
}

static bool gradients(Graph *g, const ValueId *outputs, const ValueId *seeds, uint32_t noutputs,
                      const ValueId *wrt, uint32_t nwrt, ValueId *grads, int64_t accumulate,
                      PlanCache *plans, DiagSink *sink) {
  Arena scratch;
  arena_init(&scratch);
  Grad d = {.g = g, .scratch = &scratch, .plans = plans, .sink = sink, .accumulate = accumulate};
  d.end = g->nodes.len;
  d.end_value = g->values.len;
  d.active = ARENA_ARRAY(&scratch, bool, d.end_value);
  d.cots = ARENA_ARRAY(&scratch, CotList, d.end_value);
  diag_init(&d.inner, &scratch, sink->sources);
  uint32_t errors = sink->errors;
  if (seeds) d.born = ARENA_ARRAY(&scratch, uint8_t, d.end_value);
  for (uint32_t i = 0; seeds && i < noutputs; i++)
    d.born[outputs[i]] = (uint8_t)partial_axes(value_type(g, seeds[i]));
  run(&d, outputs, seeds, noutputs, wrt, nwrt, grads);
  for (NodeId id = d.end; id < g->nodes.len; id++) graph_node(g, id)->phase = PHASE_BACKWARD;
  arena_free(&scratch);
  return sink->errors == errors;
}

bool autodiff_gradients(Graph *g, ValueId loss, const ValueId *wrt, uint32_t nwrt, ValueId *grads,
                        int64_t accumulate, PlanCache *plans, DiagSink *sink) {
  return gradients(g, &loss, NULL, 1, wrt, nwrt, grads, accumulate, plans, sink);
}

bool autodiff_pull_back(Graph *g, const ValueId *outputs, const ValueId *seeds, uint32_t noutputs,
                        const ValueId *wrt, uint32_t nwrt, ValueId *grads, PlanCache *plans,
                        DiagSink *sink) {
  return gradients(g, outputs, seeds, noutputs, wrt, nwrt, grads, 1, plans, sink);
}
