/* SGD and AdamW as pointwise nodes over (parameter, gradient, state, a few scalars), so that the
 * fuser makes one kernel per parameter.
 *
 * A Partial parameter (the bias of a row-parallel linear) holds its value on rank 0 of that axis
 * and exactly 0 elsewhere. Its gradient is Replicate; what is subtracted is filled to Partial
 * first, so that rank 0's addend moves once and the zeros stay zero. 16-bit parameters are updated
 * in f32. */
#include "autodiff/step.h"

#include <string.h>

/* Element type of the state and of the arithmetic. */
static DType state_dtype(DType param) {
  return param == DT_F64 ? DT_F64 : DT_F32;
}

static ValueId f64_const(Grad *d, double v) {
  Attr attrs[] = {ATTR_I(DTYPE, DT_F64), ATTR_F(VALUE, v)};
  return grad_add(d, OP_CONST, NULL, 0, attrs, 2);
}

static ValueId mul(Grad *d, ValueId a, ValueId b) {
  return grad_binary(d, OP_MUL, a, b);
}

/* a * x + b * y for numbers a and b. Here and below one of two operands that are built is named
 * first: C leaves the order of arguments open, and nodes are to have the same numbers whoever
 * compiled the compiler. */
static ValueId blend(Grad *d, double a, ValueId x, double b, ValueId y) {
  ValueId by = grad_scale(d, y, b), ax = grad_scale(d, x, a);
  return grad_binary(d, OP_ADD, ax, by);
}

/* 1 - beta^t for t = step + 1, in f64: in f32 the first steps lose four digits. */
static ValueId bias_correction(Step *s, double beta) {
  Grad *d = &s->d;
  /* On every mesh; of steps whose gradients could not be used the optimizer knows nothing. */
  ValueId step = s->usable ? step_read(s, s->usable) : grad_add(d, OP_STEP, NULL, 0, NULL, 0);
  ValueId one = f64_const(d, 1), t = grad_binary(d, OP_ADD, grad_cast(d, step, DT_F64), one);
  ValueId power = grad_binary(d, OP_POW, f64_const(d, beta), t);
  return grad_binary(d, OP_SUB, f64_const(d, 1), power);
}

/* Scalars that all parameters share, in f64; cast once per element type. */
typedef struct Scalars {
  ValueId rate;  /* adamw: lr / (1 - beta1^t); sgd: lr */
  ValueId root;  /* adamw: 1 / sqrt(1 - beta2^t) */
  ValueId decay; /* adamw: 1 - lr * weight_decay */
} Scalars;

static Scalars adamw_scalars(Step *s, const OptimizerSpec *spec, ValueId lr) {
  Grad *d = &s->d;
  double number;
  ValueId rate = value_const(d->g, lr, &number) ? f64_const(d, number) : grad_cast(d, lr, DT_F64);
  Scalars c = {.rate = grad_binary(d, OP_DIV, rate, bias_correction(s, spec->beta1))};
  c.root = grad_unary(d, OP_RSQRT, bias_correction(s, spec->beta2));
  if (spec->weight_decay != 0) {
    ValueId lost = mul(d, rate, f64_const(d, spec->weight_decay));
    c.decay = grad_binary(d, OP_SUB, f64_const(d, 1), lost);
  }
  return c;
}

/* A shared scalar in the element type of a parameter's state; a number stays a number. */
static ValueId scalar(Grad *d, ValueId v, DType dtype) {
  double number;
  if (!value_const(d->g, v, &number)) return grad_cast(d, v, dtype);
  Attr attrs[] = {ATTR_I(DTYPE, dtype), ATTR_F(VALUE, number)};
  return grad_add(d, OP_CONST, NULL, 0, attrs, 2);
}

/* The same of AdamW's, beside `like`. What came of the number of the step is on every mesh, the
 * count of usable steps on the world. */
static ValueId scalar_beside(Step *s, ValueId v, const TensorType *like) {
  ValueId own = scalar(&s->d, v, like->dtype);
  return s->usable ? step_on_mesh(s, own, like->mesh) : own;
}

/* `v` under the layout of what is updated: R -> Partial where the parameter is Partial. */
static ValueId like_param(Grad *d, ValueId v, const TensorType *param) {
  TensorType to = *param;
  to.dtype = grad_type(d, v)->dtype;
  return grad_redistribute(d, v, &to, NULL);
}

/* Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2. */
static ValueId adamw(Step *s, const OptimizerSpec *spec, const Scalars *c, const Trained *p,
                     ValueId value, ValueId g) {
  Grad *d = &s->d;
  TensorType state = *grad_type(d, g);
  uint32_t m_var = step_new_var(s, VAR_OPTIMIZER, p, "m", &state);
  uint32_t v_var = step_new_var(s, VAR_OPTIMIZER, p, "v", &state);
  double b1 = spec->beta1, b2 = spec->beta2;
  ValueId old_m = step_read(s, m_var), old_v = step_read(s, v_var);
  ValueId m = blend(d, b1, old_m, 1 - b1, g);
  ValueId square = mul(d, g, g);
  ValueId v = blend(d, b2, old_v, 1 - b2, square);
  ValueId correction = scalar_beside(s, c->root, &state);
  ValueId root = mul(d, grad_unary(d, OP_SQRT, v), correction);
  ValueId slope =
      grad_binary(d, OP_DIV, m, grad_binary(d, OP_ADD, root, grad_const(d, g, spec->eps)));
  ValueId move = mul(d, slope, scalar_beside(s, c->rate, &state));
  if (c->decay) value = mul(d, value, scalar(d, c->decay, state.dtype));
  step_assign(s, m_var, step_if_finite(s, m, old_m));
  step_assign(s, v_var, step_if_finite(s, v, old_v));
  return grad_binary(d, OP_SUB, value, like_param(d, move, &p->kept));
}

/* As torch.optim.SGD without dampening: decay joins the gradient, momentum buffers start at 0. All
 * of it is linear, so for a Partial parameter everything is Partial. */
static ValueId sgd(Step *s, const OptimizerSpec *spec, const Scalars *c, const Trained *p,
                   ValueId value, ValueId g) {
  Grad *d = &s->d;
  g = like_param(d, g, &p->kept);
  if (spec->weight_decay != 0) g = blend(d, 1, g, spec->weight_decay, value);
  if (spec->momentum != 0) {
    TensorType state = *grad_type(d, g);
    uint32_t var = step_new_var(s, VAR_OPTIMIZER, p, "momentum", &state);
    ValueId old = step_read(s, var), buffer = blend(d, spec->momentum, old, 1, g);
    step_assign(s, var, step_if_finite(s, buffer, old));
    g = spec->nesterov ? blend(d, 1, g, spec->momentum, buffer) : buffer;
  }
  return grad_binary(d, OP_SUB, value, mul(d, g, scalar(d, c->rate, grad_type(d, g)->dtype)));
}

/* The new value of the parameter from that of its piece. */
static ValueId whole(Grad *d, const Trained *p, ValueId piece) {
  TensorType to = *grad_type(d, p->value);
  if (type_equal(grad_type(d, piece), &to)) return piece;
  Attr attrs[] = {ATTR_T(TYPE, &to), ATTR_I(BUCKET, p->bucket)};
  return grad_add(d, OP_REDISTRIBUTE, &piece, 1, attrs, p->bucket ? 2 : 1);
}

void step_optimize(Step *s, const OptimizerSpec *spec, ValueId lr) {
  Grad *d = &s->d;
  bool is_adamw = strcmp(spec->kind, "adamw") == 0;
  step_phase(s, PHASE_OPTIMIZER);
  if (s->nparams) step_serve(s, &s->params[0]);
  Scalars c = {.rate = lr};
  if (is_adamw && s->nparams) c = adamw_scalars(s, spec, lr);
  for (uint32_t i = 0; i < s->nparams; i++) {
    const Trained *p = &s->params[i];
    DType own = grad_type(d, p->value)->dtype, dtype = state_dtype(own);
    step_serve(s, p);
    if (dtype != own && layout_has_partial(&grad_type(d, p->value)->layout)) {
      Diag *diag = diag_emit(d->sink, DIAG_UNSUPPORTED_TRAINING, s->program->vars.data[p->var].span,
                             "a Partial parameter of type %s cannot be trained", dtype_name(own));
      diag_reason(d->sink, diag,
                  "its new value is computed in %s, and converting addends back is not converting "
                  "their sum; declare it f32",
                  dtype_name(dtype));
      continue;
    }
    /* With `store optimizer` each rank updates its piece, and the pieces are gathered. */
    ValueId value = grad_cast(d, grad_redistribute(d, p->value, &p->kept, NULL), dtype);
    ValueId g = grad_cast(d, p->grad, dtype), old = value;
    value = is_adamw ? adamw(s, spec, &c, p, value, g) : sgd(s, spec, &c, p, value, g);
    step_assign(s, p->var, whole(d, p, grad_cast(d, step_if_finite(s, value, old), own)));
  }
}
