/* Factories and initialisers: values from nothing but a type.
 *
 * The type is an argument, `zeros(f32[B@dp, D])`, or, in the initialiser of a parameter, that of
 * the parameter. Random numbers depend on (seed, instance, global element index) only, so a value
 * is the same on every mesh. Where the type is Partial the value is made Replicate and
 * redistributed: rank 0 of the mesh dim keeps it.
 *
 * A type whose extents are of a micro-batch makes its part of what the whole batch would have:
 * which part says MICRO.
 */
#include <math.h>
#include <string.h>

#include "sema/builtin.h"

/* Type of the result without Partial; *wanted is the type asked for. */
static bool factory_type(Sema *s, Val v, Span span, const char *what, TensorType *made,
                         TensorType *wanted) {
  if (v.kind == VAL_UNSET && s->at.expected)
    *wanted = *s->at.expected;
  else if (v.kind == VAL_TYPE)
    *wanted = *v.as.type;
  else if (v.kind == VAL_UNSET) {
    sema_error(s, DIAG_ARGUMENTS, span, "%s needs a type, as in %s(f32[8, 16])", what, what);
    return false;
  } else {
    sema_error(s, DIAG_VALUE_KIND, span, "%s takes a type such as f32[8, 16], not %s", what,
               val_kind_name(v));
    return false;
  }
  *made = *wanted;
  for (uint32_t a = 0; a < made->mesh->naxes; a++)
    if (made->layout.at[a].kind == PLACE_PARTIAL) made->layout.at[a] = (Place){0};
  return true;
}

/* MICRO of what a type makes that is made of the rows of a micro-batch. */
static bool add_micro(Sema *s, Val type, Span span, Attr *attrs, uint32_t *nattrs) {
  if (!type.in_parts) return true;
  const TensorType *t = type.as.type;
  int64_t parts = s->block->out->settings.microbatches, *micro = ARENA_ARRAY(s->arena, int64_t, 2);
  uint32_t cut = 0;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (type.whole.shape[d] == t->shape[d]) continue;
    micro[0] = d;
    cut += type.whole.shape[d] == parts * t->shape[d] ? 1 : 2;
  }
  micro[1] = parts;
  attrs[(*nattrs)++] = ATTR_INTS(MICRO, micro, 2);
  if (cut == 1) return true;
  Diag *d = sema_error(s, DIAG_PIPELINE, span, "micro-batches have no parts of this");
  diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
  diag_reason(
      s->sink, d,
      "its extents follow the rows of a batch, but not one of them alone and in proportion: "
      "the micro-batches together would not have what the whole batch has");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "make it with the batch as one dim, or of extents that do not depend on the batch");
  return false;
}

static Val finish(Sema *s, Val v, const TensorType *wanted, Span span) {
  if (v.kind == VAL_POISON) return v;
  v = emit_cast(s, v.as.tensor, wanted->dtype, span);
  return v.kind == VAL_POISON ? v : emit_redistribute(s, v.as.tensor, wanted, span);
}

/* `type`: what was asked for, or VAL_UNSET. */
static Val fill(Sema *s, Val type, const TensorType *t, double value, Span span) {
  Attr attrs[3] = {ATTR_T(TYPE, t), ATTR_F(VALUE, value)};
  uint32_t nattrs = 2;
  if (!add_micro(s, type, span, attrs, &nattrs)) return POISON;
  return emit(s, OP_FULL, NULL, 0, attrs, nattrs, span, NULL);
}

static Val filled(Sema *s, const Call *call, double value) {
  Val v[1];
  Span at[1];
  TensorType made, wanted;
  if (!bind_words(s, call, "type?", v, at) ||
      !factory_type(s, v[0], at[0], call->name, &made, &wanted))
    return POISON;
  return finish(s, fill(s, v[0], &made, value, call->span), &wanted, call->span);
}
Val builtin_zeros(Sema *s, const Call *call) {
  return filled(s, call, 0);
}
Val builtin_ones(Sema *s, const Call *call) {
  return filled(s, call, 1);
}
/* Zeros: memory with arbitrary contents would make runs differ. */
Val builtin_empty(Sema *s, const Call *call) {
  return filled(s, call, 0);
}

/* full(type, value); full(x): the whole of a value on every rank. */
Val builtin_full(Sema *s, const Call *call) {
  if (call->nargs == 1 && val_is_tensor(call->args[0].value))
    return redistribute_full(s, call->args[0].value, call->span);
  Val v[2];
  Span at[2];
  TensorType made, wanted;
  if (!bind_words(s, call, op_words(OP_FULL), v, at) ||
      !factory_type(s, v[0], at[0], call->name, &made, &wanted))
    return POISON;
  if (!val_is_number(v[1])) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "the value must be a number, not %s",
               val_kind_name(v[1]));
    return POISON;
  }
  return finish(s, fill(s, v[0], &made, val_as_double(val_whole(v[1])), call->span), &wanted,
                call->span);
}

/* constant(value): an initialiser. */
Val builtin_constant(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  double value;
  TensorType made, wanted;
  if (!bind_words(s, call, "value type?", v, at) ||
      !want_float(s, v[0], at[0], "the value", &value) ||
      !factory_type(s, v[1], call->span, call->name, &made, &wanted))
    return POISON;
  return finish(s, fill(s, v[1], &made, value, call->span), &wanted, call->span);
}

/* Random numbers in the widest type that the element type rounds from, so that narrow types round
 * once. */
static Val random_numbers(Sema *s, Op op, Val type, TensorType t, double scale, double shift,
                          Span span) {
  if (t.dtype != DT_F64) t.dtype = DT_F32;
  Attr attrs[3] = {ATTR_T(TYPE, &t), ATTR_I(INSTANCE, next_instance(s))};
  uint32_t nattrs = 2;
  if (!add_micro(s, type, span, attrs, &nattrs)) return POISON;
  Val v = emit(s, op, NULL, 0, attrs, nattrs, span, NULL);
  if (v.kind != VAL_POISON && scale != 1)
    v = emit2(s, OP_MUL, v.as.tensor, emit_const(s, t.dtype, scale, t.mesh, span), span);
  if (v.kind != VAL_POISON && shift != 0)
    v = emit2(s, OP_ADD, v.as.tensor, emit_const(s, t.dtype, shift, t.mesh, span), span);
  return v;
}

static bool float_type(Sema *s, const TensorType *t, const Call *call) {
  if (dtype_is_float(t->dtype)) return true;
  sema_error(s, DIAG_OPERAND_DTYPE, call->span, "%s makes floating-point numbers, not %s",
             call->name, dtype_name(t->dtype));
  return false;
}

static Val random_filled(Sema *s, const Call *call, Op op) {
  Val v[1];
  Span at[1];
  TensorType made, wanted;
  if (!bind_words(s, call, op_words(op), v, at) ||
      !factory_type(s, v[0], at[0], call->name, &made, &wanted) || !float_type(s, &wanted, call))
    return POISON;
  return finish(s, random_numbers(s, op, v[0], made, 1, 0, call->span), &wanted, call->span);
}
Val builtin_rand(Sema *s, const Call *call) {
  return random_filled(s, call, OP_RAND);
}
Val builtin_randn(Sema *s, const Call *call) {
  return random_filled(s, call, OP_RANDN);
}

/* A type first, then two numbers: normal(type?, mean, std), uniform(type?, low, high). In an
 * initialiser the numbers may come first. */
static bool bind_two(Sema *s, const Call *call, const char *with_type, const char *without,
                     double number_of[2], Val *type, TensorType *made, TensorType *wanted) {
  Val v[3];
  Span at[3];
  bool typed = false;
  for (uint32_t i = 0; i < call->nargs; i++) typed |= call->args[i].value.kind == VAL_TYPE;
  if (!bind_words(s, call, typed ? with_type : without, v + !typed, at + !typed)) return false;
  if (!typed) v[0] = (Val){0};
  for (int i = 0; i < 2; i++)
    if (v[i + 1].kind != VAL_UNSET &&
        !want_float(s, v[i + 1], at[i + 1], "the argument", &number_of[i]))
      return false;
  *type = v[0];
  return factory_type(s, v[0], call->span, call->name, made, wanted) && float_type(s, wanted, call);
}

Val builtin_normal(Sema *s, const Call *call) {
  double n[2] = {0, 1};
  Val type;
  TensorType made, wanted;
  if (!bind_two(s, call, "type mean? std?", "mean? std?", n, &type, &made, &wanted)) return POISON;
  return finish(s, random_numbers(s, OP_RANDN, type, made, n[1], n[0], call->span), &wanted,
                call->span);
}

Val builtin_uniform(Sema *s, const Call *call) {
  double n[2] = {0, 1};
  Val type;
  TensorType made, wanted;
  if (!bind_two(s, call, "type low? high?", "low? high?", n, &type, &made, &wanted)) return POISON;
  return finish(s, random_numbers(s, OP_RAND, type, made, n[1] - n[0], n[0], call->span), &wanted,
                call->span);
}

/* Fans of a weight [out, in, ...]: what PyTorch's initialisers count. */
static bool fans(Sema *s, const TensorType *t, const Call *call, double *in, double *out) {
  if (t->rank < 2) {
    sema_error(s, DIAG_ARGUMENTS, call->span, "%s needs a weight of at least two dims", call->name);
    return false;
  }
  double window = 1;
  for (uint32_t d = 2; d < t->rank; d++) window *= (double)t->shape[d];
  *out = (double)t->shape[0] * window;
  *in = (double)t->shape[1] * window;
  return true;
}

/* Glorot and Bengio 2010 (xavier), He et al. 2015 (kaiming, with the slope `a` of leaky relu). */
static Val scaled(Sema *s, const Call *call, bool xavier, bool is_uniform) {
  Val v[2];
  Span at[2];
  double given = xavier ? 1 : 0, in, out;
  TensorType made, wanted;
  if (!bind_words(s, call, xavier ? "gain? type?" : "a? type?", v, at)) return POISON;
  if (v[0].kind != VAL_UNSET && !want_float(s, v[0], at[0], xavier ? "gain" : "a", &given))
    return POISON;
  if (!factory_type(s, v[1], call->span, call->name, &made, &wanted) ||
      !float_type(s, &wanted, call) || !fans(s, &wanted, call, &in, &out))
    return POISON;
  double variance = xavier ? given * given * 2 / (in + out) : 2 / ((1 + given * given) * in);
  double std = isfinite(variance) ? sqrt(variance) : 0; /* no element: any value does */
  double bound = sqrt(3.0) * std;
  Val r = is_uniform ? random_numbers(s, OP_RAND, v[1], made, 2 * bound, -bound, call->span)
                     : random_numbers(s, OP_RANDN, v[1], made, std, 0, call->span);
  return finish(s, r, &wanted, call->span);
}
Val builtin_xavier_uniform(Sema *s, const Call *call) {
  return scaled(s, call, true, true);
}
Val builtin_xavier_normal(Sema *s, const Call *call) {
  return scaled(s, call, true, false);
}
Val builtin_kaiming_uniform(Sema *s, const Call *call) {
  return scaled(s, call, false, true);
}
Val builtin_kaiming_normal(Sema *s, const Call *call) {
  return scaled(s, call, false, false);
}
Val builtin_xavier(Sema *s, const Call *call) {
  return scaled(s, call, true, true);
}
Val builtin_kaiming(Sema *s, const Call *call) {
  return scaled(s, call, false, true);
}

/* --- ranges ------------------------------------------------------------------------------------
 */

/* A call NAME(type, numbers...), whatever the order its arguments are written in. */
typedef struct Ramp {
  Val type;
  TensorType made, wanted;
  double n[3];
} Ramp;

static bool bind_ramp(Sema *s, const Call *call, const char *words, uint32_t n, Ramp *out) {
  Val v[4];
  Span at[4];
  if (!bind_words(s, call, words, v, at)) return false;
  for (uint32_t i = 1; i < n; i++)
    if (v[i].kind != VAL_UNSET && !want_float(s, v[i], at[i], "the bound", &out->n[i - 1]))
      return false;
  out->type = v[0];
  return factory_type(s, v[0], at[0], call->name, &out->made, &out->wanted);
}

static Val ramp(Sema *s, const Call *call, const Ramp *r, Op op, double step) {
  Attr attrs[5] = {ATTR_T(TYPE, &r->made), ATTR_F(START_VALUE, r->n[0]), ATTR_F(STEP_VALUE, step)};
  uint32_t nattrs = 3;
  if (op == OP_LOGSPACE) attrs[nattrs++] = ATTR_F(BASE, r->n[2]);
  if (!add_micro(s, r->type, call->span, attrs, &nattrs)) return POISON;
  Val y = emit(s, op, NULL, 0, attrs, nattrs, call->span, NULL);
  return finish(s, y, &r->wanted, call->span);
}

/* arange(i64[n], start, step): start + i * step along the only dim. */
Val builtin_arange(Sema *s, const Call *call) {
  Ramp r = {.n = {0, 1}};
  if (!bind_ramp(s, call, op_words(OP_ARANGE), 3, &r)) return POISON;
  return ramp(s, call, &r, OP_ARANGE, r.n[1]);
}

/* Spacing of n points from first to last, both included. */
static double spacing(const Ramp *r) {
  int64_t n = r->made.rank ? r->made.shape[0] : 0;
  if (r->type.in_parts) n = r->type.whole.shape[0];
  return n > 1 ? (r->n[1] - r->n[0]) / (double)(n - 1) : 0;
}

Val builtin_linspace(Sema *s, const Call *call) {
  Ramp r = {.n = {0, 1}};
  if (!bind_ramp(s, call, "type start end", 3, &r)) return POISON;
  return ramp(s, call, &r, OP_ARANGE, spacing(&r));
}

Val builtin_logspace(Sema *s, const Call *call) {
  Ramp r = {.n = {0, 1, 10}};
  if (!bind_ramp(s, call, op_words(OP_LOGSPACE), 4, &r)) return POISON;
  return ramp(s, call, &r, OP_LOGSPACE, spacing(&r));
}

/* --- like another value ------------------------------------------------------------------------
 */

/* The type of a tensor, of another element type if one is given. Partial is not taken over: the new
 * value is whole. */
static Val type_like(Sema *s, Val x, DType dtype) {
  TensorType t = *tensor_type(s, x);
  int64_t whole[DTM_MAX_DIMS];
  for (uint32_t d = 0; d < t.rank; d++)
    whole[d] = (int64_t)val_as_double(val_whole(val_extent(s, x, d)));
  if (!t.mesh) t.mesh = s->at.mesh; /* a number that is on every mesh */
  for (uint32_t a = 0; a < t.mesh->naxes; a++)
    if (t.layout.at[a].kind == PLACE_PARTIAL) t.layout.at[a] = (Place){0};
  if (dtype) t.dtype = dtype;
  return val_type_in_parts(s, val_type(s, VAL_TYPE, &t), whole);
}

/* The call with the tensor replaced by its type. */
static Val like(Sema *s, const Call *call, Val (*make)(Sema *, const Call *)) {
  if (!call->nargs || !val_is_tensor(call->args[0].value)) {
    sema_error(s, DIAG_VALUE_KIND, call->span, "%s takes a tensor", call->name);
    return POISON;
  }
  Call typed = *call;
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, call->nargs);
  memcpy(args, call->args, call->nargs * sizeof *args);
  args[0].value = type_like(s, call->args[0].value, DT_NONE);
  args[0].name = NULL;
  typed.args = args;
  return make(s, &typed);
}
Val builtin_zeros_like(Sema *s, const Call *call) {
  return like(s, call, builtin_zeros);
}
Val builtin_ones_like(Sema *s, const Call *call) {
  return like(s, call, builtin_ones);
}
Val builtin_empty_like(Sema *s, const Call *call) {
  return like(s, call, builtin_empty);
}
Val builtin_full_like(Sema *s, const Call *call) {
  return like(s, call, builtin_full);
}
Val builtin_rand_like(Sema *s, const Call *call) {
  return like(s, call, builtin_rand);
}
Val builtin_randn_like(Sema *s, const Call *call) {
  return like(s, call, builtin_randn);
}

/* bernoulli(x): 1 with the probability that x has there, else 0; bernoulli(x, p): with probability
 * p, x giving no more than the type. */
Val builtin_bernoulli(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  double p = 0;
  if (!bind_tensor(s, call, "x|input p?", v, at, &x)) return POISON;
  const bool given = v[1].kind != VAL_UNSET && v[1].kind != VAL_NONE;
  const DType dtype = value_type(s->at.graph, x)->dtype;
  if (given && !want_float(s, v[1], at[1], "p", &p)) return POISON;
  if (!(p >= 0 && p <= 1)) {
    sema_error(s, DIAG_VALUE_KIND, at[1], "the probability of bernoulli must be in [0, 1]");
    return POISON;
  }
  if (!given && !dtype_is_float(dtype)) {
    sema_error(s, DIAG_OPERAND_DTYPE, at[0],
               "the probabilities of bernoulli are floating-point numbers, not %s",
               dtype_name(dtype));
    return POISON;
  }
  /* compared in the element type that random numbers are made in */
  const DType wide = dtype == DT_F64 ? DT_F64 : dtype_map(s, DT_F32);
  Val type = type_like(s, val_tensor(x), wide);
  const Mesh *mesh = type.as.type->mesh;
  Val limit = given ? val_tensor(emit_const(s, wide, p, mesh, call->span))
                    : emit_cast(s, x, wide, call->span);
  if (limit.kind == VAL_POISON) return limit;
  Val draw = random_numbers(s, OP_RAND, type, *type.as.type, 1, 0, call->span);
  if (draw.kind == VAL_POISON) return draw;
  Val hit = emit(s, OP_LT, (ValueId[]){draw.as.tensor, limit.as.tensor}, 2, NULL, 0, call->span,
                 (Span[]){at[0], at[0]});
  return hit.kind == VAL_POISON ? hit : emit_cast(s, hit.as.tensor, dtype, call->span);
}
