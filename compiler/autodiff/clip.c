/* Clipping by the global norm: every scalar of every parameter counts once.
 *
 * A gradient that is sharded gives a Partial sum of squares, one that is Replicate a Replicate one.
 * Sums of one kind are added up; each kind is then filled to Partial on all axes that any of them
 * uses (rank 0 keeps, zero bytes), so that one all-reduce of one scalar finishes the norm. Where
 * parameters lie on several meshes, the scalar of each goes to the world and they are added there;
 * the factor is then on every rank already. */
#include "autodiff/step.h"

/* A square may overflow 16-bit floats. */
static DType norm_dtype(DType t) {
  return t == DT_F64 ? DT_F64 : DT_F32;
}

static uint32_t partial_axes(const TensorType *t) {
  uint32_t set = 0;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (t->layout.at[a].kind == PLACE_PARTIAL) set |= 1u << a;
  return set;
}

/* Of the gradients on one mesh: a Replicate scalar there, 0 when there is none. */
static ValueId squares_on(Step *s, const Mesh *mesh, DType dtype) {
  Grad *d = &s->d;
  ValueId sums[1u << DTM_MAX_AXES] = {0};
  uint32_t used = 0;
  for (uint32_t i = 0; i < s->nparams; i++) {
    ValueId g = s->params[i].grad;
    if (grad_type(d, g)->mesh != mesh) continue;
    step_serve(s, &s->params[i]);
    g = grad_cast(d, g, norm_dtype(grad_type(d, g)->dtype));
    uint32_t dims = (1u << grad_type(d, g)->rank) - 1;
    ValueId sum = grad_cast(d, grad_sum(d, grad_unary(d, OP_SQUARE, g), dims, false), dtype);
    uint32_t axes = partial_axes(grad_type(d, sum));
    sums[axes] = sums[axes] ? grad_binary(d, OP_ADD, sums[axes], sum) : sum;
    used |= axes;
  }
  ValueId total = 0;
  for (uint32_t axes = 0; axes < 1u << DTM_MAX_AXES; axes++) {
    if (!sums[axes]) continue;
    TensorType to = *grad_type(d, sums[axes]);
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      if (used >> a & 1) to.layout.at[a] = (Place){.kind = PLACE_PARTIAL, .op = REDUCE_SUM};
    ValueId part = grad_redistribute(d, sums[axes], &to, NULL);
    total = total ? grad_binary(d, OP_ADD, total, part) : part;
  }
  if (!total) return 0;
  TensorType whole = *grad_type(d, total);
  whole.layout = (Layout){0};
  return grad_redistribute(d, total, &whole, NULL);
}

ValueId step_on_mesh(Step *s, ValueId scalar, const Mesh *mesh) {
  Grad *d = &s->d;
  TensorType to = *grad_type(d, scalar);
  to.mesh = mesh;
  return grad_redistribute(d, scalar, &to, NULL);
}

/* Over all meshes: on the one mesh there is, or on the world. */
ValueId step_sum_of_squares(Step *s) {
  Grad *d = &s->d;
  const Mesh *first = grad_type(d, s->params[0].grad)->mesh, *where = first;
  DType dtype = DT_F32;
  for (uint32_t i = 0; i < s->nparams; i++) {
    if (grad_type(d, s->params[i].grad)->dtype == DT_F64) dtype = DT_F64;
    if (grad_type(d, s->params[i].grad)->mesh != first) where = s->program->world;
  }
  ValueId total = 0;
  for (uint32_t m = 0; m < s->program->meshes.len; m++) {
    ValueId part = squares_on(s, s->program->meshes.data[m], dtype);
    if (!part) continue;
    part = step_on_mesh(s, part, where);
    total = total ? grad_binary(d, OP_ADD, total, part) : part;
  }
  return total;
}

void step_clip(Step *s, double limit) {
  Grad *d = &s->d;
  if (s->nparams == 0) return;
  step_phase(s, PHASE_OPTIMIZER);
  ValueId norm = grad_unary(d, OP_SQRT, step_sum_of_squares(s));
  /* The small addend keeps a norm of zero from dividing by zero. */
  ValueId safe = grad_binary(d, OP_ADD, norm, grad_const(d, norm, 1e-6));
  ValueId ratio = grad_binary(d, OP_DIV, grad_const(d, norm, limit), safe);
  ValueId factor = grad_binary(d, OP_MINIMUM, ratio, grad_const(d, norm, 1));
  for (uint32_t i = 0; i < s->nparams; i++) {
    Trained *p = &s->params[i];
    step_serve(s, p);
    const TensorType *g = grad_type(d, p->grad);
    DType dtype = g->dtype;
    ValueId own = grad_cast(d, step_on_mesh(s, factor, g->mesh), dtype);
    p->grad = grad_binary(d, OP_MUL, p->grad, own);
  }
}
