/* Pointwise operators: primitives by libm, the others by the expressions of ops.def. */
#include <math.h>
#include <string.h>

#include "reference/ref_internal.h"

/* As Python has it. */
static double floor_div(double x, double y) {
  if (y == 0) return x / y;
  double r = fmod(x, y);
  return rint((x - r) / y) - (r != 0 && (r < 0) != (y < 0));
}

/* Mantissa bits (with the implicit one), smallest normal exponent, largest finite value. */
static bool float_format(DType t, int *mantissa, int *low, double *top) {
  switch ((int)t) {
  case DT_F32:
    *mantissa = 24, *low = -126, *top = 0x1.fffffep127;
    return true;
  case DT_BF16:
    *mantissa = 8, *low = -126, *top = 0x1.fep127;
    return true;
  case DT_F16:
    *mantissa = 11, *low = -14, *top = 65504;
    return true;
  case DT_F8_E4M3:
    *mantissa = 4, *low = -6, *top = 448;
    return true;
  case DT_F8_E5M2:
    *mantissa = 3, *low = -14, *top = 57344;
    return true;
  }
  return false;
}

double ref_round(DType t, double v) {
  int mantissa, low, exponent;
  double top;
  if (t == DT_BOOL) return v != 0;
  if (dtype_is_integer(t)) {
    double r = trunc(v);
    return t == DT_U8 ? r - 256 * floor(r / 256) : r;
  }
  if (!isfinite(v) || v == 0 || !float_format(t, &mantissa, &low, &top)) return v;
  frexp(v, &exponent);
  int drop = (exponent - 1 < low ? low : exponent - 1) - (mantissa - 1);
  double r = ldexp(nearbyint(ldexp(v, -drop)), drop);
  return fabs(r) > top ? copysign(INFINITY, v) : r;
}

double ref_primitive(Op op, DType dtype, const double *x) {
  int64_t a = (int64_t)(isfinite(x[0]) ? x[0] : 0);
  switch ((int)op) {
  case OP_NEG:
    return -x[0];
  case OP_ADD:
    return x[0] + x[1];
  case OP_SUB:
    return x[0] - x[1];
  case OP_MUL:
    return x[0] * x[1];
  case OP_DIV:
    return x[0] / x[1];
  case OP_FLOOR_DIV:
    return floor_div(x[0], x[1]);
  case OP_TRUNC_DIV:
    return trunc(x[0] / x[1]);
  case OP_REMAINDER:
    return x[0] - x[1] * floor(x[0] / x[1]);
  case OP_FMOD:
    return fmod(x[0], x[1]);
  case OP_MAXIMUM:
    return ref_reduce(REDUCE_MAX, x[0], x[1]);
  case OP_MINIMUM:
    return ref_reduce(REDUCE_MIN, x[0], x[1]);
  case OP_ABS:
    return fabs(x[0]);
  case OP_POW:
    return pow(x[0], x[1]);
  case OP_SQRT:
    return sqrt(x[0]);
  case OP_EXP:
    return exp(x[0]);
  case OP_EXPM1:
    return expm1(x[0]);
  case OP_LOG:
    return log(x[0]);
  case OP_LOG1P:
    return log1p(x[0]);
  case OP_SIN:
    return sin(x[0]);
  case OP_COS:
    return cos(x[0]);
  case OP_ATAN:
    return atan(x[0]);
  case OP_ATAN2:
    return atan2(x[0], x[1]);
  case OP_TANH:
    return tanh(x[0]);
  case OP_ERF:
    return erf(x[0]);
  case OP_ERFC:
    return erfc(x[0]);
  case OP_EXP2:
    return exp2(x[0]);
  case OP_FLOOR:
    return floor(x[0]);
  case OP_CEIL:
    return ceil(x[0]);
  case OP_TRUNC:
    return trunc(x[0]);
  case OP_ROUND:
    return nearbyint(x[0]);
  case OP_EQ:
    return x[0] == x[1];
  case OP_NE:
    return x[0] != x[1];
  case OP_LT:
    return x[0] < x[1];
  case OP_LE:
    return x[0] <= x[1];
  case OP_GT:
    return x[0] > x[1];
  case OP_GE:
    return x[0] >= x[1];
  case OP_ISINF:
    return isinf(x[0]) != 0;
  case OP_ISFINITE:
    return isfinite(x[0]) != 0;
  case OP_LOGICAL_AND:
    return x[0] != 0 && x[1] != 0;
  case OP_LOGICAL_OR:
    return x[0] != 0 || x[1] != 0;
  case OP_LOGICAL_XOR:
    return (x[0] != 0) != (x[1] != 0);
  case OP_LOGICAL_NOT:
    return x[0] == 0;
  case OP_BITWISE_AND:
    return (double)(a & (int64_t)x[1]);
  case OP_BITWISE_OR:
    return (double)(a | (int64_t)x[1]);
  case OP_BITWISE_XOR:
    return (double)(a ^ (int64_t)x[1]);
  case OP_BITWISE_NOT:
    return dtype == DT_BOOL ? x[0] == 0 : dtype == DT_U8 ? 255 - x[0] : (double)~a;
  case OP_SHIFT_LEFT:
    return ref_round(dtype, x[0] * exp2(x[1]));
  case OP_SHIFT_RIGHT:
    return floor(x[0] / exp2(x[1]));
  case OP_WHERE:
    return x[0] != 0 ? x[1] : x[2];
  }
  return NAN;
}

double ref_scalar(RefContext *ctx, const Scalar *s, DType dtype, const double *args) {
  double x[3] = {0, 0, 0};
  switch (s->kind) {
  case SCALAR_NONE:
    break;
  case SCALAR_CONST:
    return s->value;
  case SCALAR_ARG:
    return args[s->which];
  case SCALAR_CALL:
    for (uint32_t i = 0; i < s->nargs; i++) x[i] = ref_scalar(ctx, s->arg[i], dtype, args);
    if (s->op == OP_CAST) return ctx->round_casts ? ref_round(dtype, x[0]) : x[0];
    if (!*op_info(s->op)->expr) return ref_primitive(s->op, dtype, x);
    if (!ctx->scalars[s->op]) ctx->scalars[s->op] = scalar_of(ctx->arena, s->op);
    return ref_scalar(ctx, ctx->scalars[s->op], dtype, x);
  }
  return NAN;
}

static double cast(const RefEval *e, double v) {
  DType to = (DType)ref_int(e, ATTR_DTYPE, DT_F64);
  return dtype_is_float(to) && !e->ctx->round_casts ? v : ref_round(to, v);
}

bool ref_pointwise(RefEval *e) {
  const RefNode *n = e->node;
  RefTensor *y = &e->out[0];
  DType dtype = n->operand_types[0].dtype;
  int64_t index[DTM_MAX_DIMS] = {0}, at = 0;
  Scalar call = {.kind = SCALAR_CALL, .op = n->op, .nargs = n->noperands};
  static const Scalar args[3] = {{.kind = SCALAR_ARG, .which = SCALAR_A},
                                 {.kind = SCALAR_ARG, .which = SCALAR_B},
                                 {.kind = SCALAR_ARG, .which = SCALAR_C}};
  for (int i = 0; i < 3; i++) call.arg[i] = &args[i];
  if (ref_count(y) == 0) return true;
  do {
    double x[3] = {0, 0, 0};
    for (uint32_t i = 0; i < n->noperands; i++) {
      const RefTensor *t = &e->in[i];
      int64_t from = 0;
      for (uint32_t d = 0; d < t->rank; d++)
        from = from * t->shape[d] + (t->shape[d] == 1 ? 0 : index[d + y->rank - t->rank]);
      x[i] = t->data[from];
    }
    y->data[at++] = n->op == OP_CAST ? cast(e, x[0]) : ref_scalar(e->ctx, &call, dtype, x);
  } while (ref_next(y->rank, y->shape, index));
  return true;
}
