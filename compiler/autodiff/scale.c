/* Loss scaling for `compute f16`, whose smallest gradients are zero and whose largest infinite: the
 * backward pass starts from the loss times a factor, a power of two, and gradients are divided by
 * it when they are f32 and reduced. A step whose gradients are not finite changes nothing but the
 * factor. Micikevicius et al., "Mixed precision training"; constants of torch.amp.GradScaler.
 *
 * The state is three variables beside the optimizer's, so a resumed run goes on with it. */
#include "autodiff/step.h"

static const double SCALE_FIRST = 65536, SCALE_LEAST = 1, SCALE_MOST = 0x1p30, SCALE_EVERY = 2000;

static ValueId number(Step *s, ValueId like, double v) {
  return grad_const(&s->d, like, v);
}

static ValueId choose(Step *s, ValueId condition, ValueId a, ValueId b) {
  return grad_add(&s->d, OP_WHERE, (ValueId[]){condition, a, b}, 3, NULL, 0);
}

ValueId step_scale_loss(Step *s, ValueId loss, double share) {
  Grad *d = &s->d;
  d->node = graph_value(d->g, loss)->node;
  s->scale = step_new_scalar(s, "loss.scale", DT_F32, SCALE_FIRST);
  s->since = step_new_scalar(s, "loss.since", DT_F32, 0);
  s->usable = step_new_scalar(s, "loss.usable", DT_F32, 0);
  ValueId factor = step_on_mesh(s, step_read(s, s->scale), grad_type(d, loss)->mesh);
  factor = grad_scale(d, factor, share);
  return grad_binary(d, OP_MUL, loss, grad_cast(d, factor, grad_type(d, loss)->dtype));
}

void step_unscale(Step *s) {
  Grad *d = &s->d;
  step_phase(s, PHASE_OPTIMIZER);
  step_serve(s, &s->params[0]);
  ValueId scale = step_read(s, s->scale), one = number(s, scale, 1);
  ValueId inverse = grad_binary(d, OP_DIV, one, scale);
  for (uint32_t i = 0; i < s->nparams; i++) {
    Trained *p = &s->params[i];
    step_serve(s, p);
    const TensorType *g = grad_type(d, p->grad);
    DType dtype = g->dtype;
    ValueId own = grad_cast(d, step_on_mesh(s, inverse, g->mesh), dtype);
    p->grad = grad_binary(d, OP_MUL, p->grad, own);
  }
  step_serve(s, &s->params[0]);
  s->finite = grad_unary(d, OP_ISFINITE, step_sum_of_squares(s));
}

ValueId step_if_finite(Step *s, ValueId value, ValueId old) {
  if (!s->finite) return value;
  return choose(s, step_on_mesh(s, s->finite, grad_type(&s->d, value)->mesh), value, old);
}

/* The factor of a step is a metric: where the next one has half of it, the step changed nothing. A
 * metric of the program by this name stands in its place. */
static void hand_out(Step *s, ValueId scale) {
  const char *name = intern(s->program->names, "loss_scale");
  const char *role = intern(s->program->names, "metric");
  Graph *g = s->d.g;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_OUTPUT || node_string(n, ATTR_NAME) != name) continue;
    if (node_string(n, ATTR_ROLE) == role) return;
  }
  Attr attrs[] = {ATTR_S(NAME, name), ATTR_S(ROLE, role)};
  Node at = *value_node(g, scale);
  graph_add(g, OP_OUTPUT, &scale, 1, attrs, 2, NULL, 0, at.span, at.scope);
}

void step_rescale(Step *s) {
  Grad *d = &s->d;
  step_serve(s, &s->params[0]);
  ValueId finite = step_on_mesh(s, s->finite, s->program->world);
  ValueId scale = step_read(s, s->scale), since = step_read(s, s->since);
  ValueId usable = step_read(s, s->usable), one = number(s, since, 1), zero = number(s, since, 0);
  ValueId run = grad_binary(d, OP_ADD, since, one);
  ValueId long_enough = grad_binary(d, OP_GE, run, number(s, since, SCALE_EVERY));
  ValueId half = grad_binary(d, OP_MUL, scale, number(s, scale, 0.5));
  ValueId twice = grad_binary(d, OP_MUL, scale, number(s, scale, 2));
  ValueId less = grad_binary(d, OP_MAXIMUM, half, number(s, scale, SCALE_LEAST));
  ValueId more = grad_binary(d, OP_MINIMUM, twice, number(s, scale, SCALE_MOST));
  ValueId next = choose(s, long_enough, more, scale), rest = choose(s, long_enough, zero, run);
  ValueId counted = grad_binary(d, OP_ADD, usable, one);
  hand_out(s, scale);
  step_assign(s, s->scale, choose(s, finite, next, less));
  step_assign(s, s->since, choose(s, finite, rest, zero));
  step_assign(s, s->usable, choose(s, finite, counted, usable));
}
