/* Instructions as expressions of CUDA C; dtm.cuh has the functions that are called.
 *
 * Arithmetic of floats is written with operators, which round one by one: the text is compiled
 * without contraction (cuda_blob.c). Integers wrap, which C does not promise, and go through
 * functions. */
#include "codegen/cuda_text.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* --- integers and addresses ---- */

const char *cuda_int(const CudaText *t, KInt i) {
  if (i == KINT_ZERO) return "0";
  if (i == KINT_ONE) return "1";
  return arena_printf(t->arena, "n%d", i);
}

const char *cuda_extent(const CudaText *t, uint32_t dim) {
  return cuda_int(t, t->k->dims[dim].extent);
}

const char *cuda_address(const CudaText *t, const KAccess *a) {
  StrBuf sb;
  strbuf_init(&sb, t->arena);
  if (a->offset != KINT_ZERO) strbuf_puts(&sb, cuda_int(t, a->offset));
  for (uint32_t d = 0; d < t->k->ndims; d++) {
    if (a->stride[d] == KINT_ZERO || !t->index[d]) continue;
    if (sb.len) strbuf_puts(&sb, " + ");
    bool sum = a->stride[d] != KINT_ONE && strchr(t->index[d], ' ');
    strbuf_printf(&sb, sum ? "(%s)" : "%s", t->index[d]);
    if (a->stride[d] != KINT_ONE) strbuf_printf(&sb, " * %s", cuda_int(t, a->stride[d]));
  }
  return sb.len ? sb.text : "0";
}

/* --- constants and operands ---- */

static const char *number(Arena *arena, double v, bool wide) {
  if (isnan(v)) return wide ? "DTM_NAN64" : "DTM_NAN";
  if (isinf(v))
    return v > 0 ? (wide ? "DTM_INF64" : "DTM_INF") : (wide ? "-DTM_INF64" : "-DTM_INF");
  char digits[48];
  for (int precision = 1; precision <= 17; precision++) { /* the shortest that is this number */
    snprintf(digits, sizeof digits, "%.*g", precision, v);
    double back = wide ? strtod(digits, NULL) : (double)strtof(digits, NULL);
    if (back == v) break;
  }
  if (!strpbrk(digits, ".e")) strcat(digits, ".0");
  return arena_printf(arena, "%s%s", digits, wide ? "" : "f");
}

static const char *literal(Arena *arena, const KInstr *in) {
  DType type = (DType)in->type;
  if (type == DT_F64) return number(arena, in->imm.f, true);
  if (dtype_is_float(type)) return number(arena, (double)(float)in->imm.f, false);
  if (type == DT_BOOL) return in->imm.i & 1 ? "true" : "false";
  if (in->imm.i == INT64_MIN) return "dtm_lowest<int64_t>()";
  if (type == DT_I64) return arena_printf(arena, "%lldll", (long long)in->imm.i);
  return arena_printf(arena, "(%s)%lld", cuda_type(type), (long long)in->imm.i);
}

const char *cuda_operand(const CudaText *t, KRef ref) {
  const KInstr *def = &t->k->instrs[ref - 1];
  if (def->kind == K_CONST) return literal(t->arena, def);
  bool element = t->element && !t->single && t->form[ref - 1] == CUDA_FORM_ARRAY;
  return arena_printf(t->arena, element ? "v%u[e]" : "v%u", ref);
}

static DType type_of(const CudaText *t, KRef ref) {
  return ref ? (DType)t->k->instrs[ref - 1].type : DT_NONE;
}

/* --- pointwise ---- */

/* Rows of ops.def that are an operator of C for floats, or for every type. */
static const char *infix(Op op, bool is_float) {
  static const struct {
    Op op;
    const char *text;
    bool any;
  } rows[] = {
      {OP_ADD, "+", false},        {OP_SUB, "-", false},         {OP_MUL, "*", false},
      {OP_DIV, "/", false},        {OP_EQ, "==", true},          {OP_NE, "!=", true},
      {OP_LT, "<", true},          {OP_LE, "<=", true},          {OP_GT, ">", true},
      {OP_GE, ">=", true},         {OP_BITWISE_AND, "&", true},  {OP_BITWISE_OR, "|", true},
      {OP_BITWISE_XOR, "^", true}, {OP_LOGICAL_AND, "&&", true}, {OP_LOGICAL_OR, "||", true},
      {OP_LOGICAL_XOR, "!=", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].op == op && (rows[i].any || is_float)) return rows[i].text;
  return NULL;
}

/* Functions of dtm.cuh, for every type, and of CUDA's math library, for f64; those of f32 have an f
 * behind them. */
static const char *function(Op op, bool *math) {
  static const struct {
    Op op;
    const char *text;
    bool math;
  } rows[] = {{OP_NEG, "dtm_neg", false},
              {OP_ADD, "dtm_add", false},
              {OP_SUB, "dtm_sub", false},
              {OP_MUL, "dtm_mul", false},
              {OP_ABS, "dtm_abs", false},
              {OP_MAXIMUM, "dtm_maximum", false},
              {OP_MINIMUM, "dtm_minimum", false},
              {OP_FLOOR_DIV, "dtm_floor_div", false},
              {OP_TRUNC_DIV, "dtm_trunc_div", false},
              {OP_REMAINDER, "dtm_remainder", false},
              {OP_FMOD, "dtm_fmod", false},
              {OP_SHIFT_LEFT, "dtm_shift_left", false},
              {OP_SHIFT_RIGHT, "dtm_shift_right", false},
              {OP_ISINF, "dtm_isinf", false},
              {OP_ISFINITE, "dtm_isfinite", false},
              {OP_SQRT, "sqrt", true},
              {OP_FLOOR, "floor", true},
              {OP_CEIL, "ceil", true},
              {OP_TRUNC, "trunc", true},
              {OP_ROUND, "rint", true},
              {OP_EXP, "exp", true},
              {OP_EXP2, "exp2", true},
              {OP_EXPM1, "expm1", true},
              {OP_LOG, "log", true},
              {OP_LOG1P, "log1p", true},
              {OP_TANH, "tanh", true},
              {OP_SIN, "sin", true},
              {OP_COS, "cos", true},
              {OP_ATAN, "atan", true},
              {OP_ATAN2, "atan2", true},
              {OP_ERF, "erf", true},
              {OP_ERFC, "erfc", true},
              {OP_POW, "pow", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].op != op) continue;
    *math = rows[i].math;
    return rows[i].text;
  }
  return NULL;
}

static const char *point(const CudaText *t, const KInstr *in) {
  const char *x = cuda_operand(t, in->a), *y = in->b ? cuda_operand(t, in->b) : NULL;
  DType type = type_of(t, in->a);
  bool is_float = dtype_is_float(type), math = false;
  if (in->op == OP_WHERE)
    return arena_printf(t->arena, "%s ? %s : %s", x, y, cuda_operand(t, in->c));
  if (in->op == OP_LOGICAL_NOT) return arena_printf(t->arena, "!%s", x);
  if (in->op == OP_BITWISE_NOT)
    return type == DT_BOOL ? arena_printf(t->arena, "!%s", x)
                           : arena_printf(t->arena, "(%s)~%s", cuda_type(type), x);
  if (in->op == OP_NEG && is_float) return arena_printf(t->arena, "-(%s)", x);
  const char *sign = infix(in->op, is_float);
  if (sign) {
    bool narrow = !is_float && in->type != DT_BOOL && dtype_bytes(type) < 4; /* C widens these */
    return narrow ? arena_printf(t->arena, "(%s)(%s %s %s)", cuda_type(type), x, sign, y)
                  : arena_printf(t->arena, "%s %s %s", x, sign, y);
  }
  const char *call = function(in->op, &math);
  const char *single = math && type != DT_F64 ? "f" : "";
  return y ? arena_printf(t->arena, "%s%s(%s, %s)", call, single, x, y)
           : arena_printf(t->arena, "%s%s(%s)", call, single, x);
}

/* --- memory ---- */

static bool is_storage_only(DType storage) {
  return storage == DT_BOOL || kernel_compute_type(storage) != storage;
}

const char *cuda_loaded(const CudaText *t, DType storage, const char *place) {
  return is_storage_only(storage) ? arena_printf(t->arena, "dtm_value(%s)", place) : place;
}

const char *cuda_stored(const CudaText *t, DType storage, const char *value) {
  if (!is_storage_only(storage)) return value;
  return arena_printf(t->arena, "dtm_as<%s>(%s)", cuda_storage(storage), value);
}

static const char *zero(DType type) {
  return type == DT_BOOL ? "false" : type == DT_F64 ? "0.0" : dtype_is_float(type) ? "0.0f" : "0";
}

const char *cuda_place(const CudaText *t, uint32_t i) {
  const KInstr *in = &t->k->instrs[i];
  const char *tile = cuda_tile_place(t, i), *at = cuda_address(t, &in->access);
  if (tile) return tile;
  if (in->kind == K_LOAD && in->a)
    at = strcmp(at, "0") == 0 ? cuda_operand(t, in->a)
                              : arena_printf(t->arena, "%s + %s", at, cuda_operand(t, in->a));
  return arena_printf(t->arena, "%s[%s]", t->buf[in->access.buf], at);
}

static const char *load(const CudaText *t, uint32_t i, const char *guard) {
  const KInstr *in = &t->k->instrs[i];
  DType storage = (DType)t->k->bufs[in->access.buf].dtype;
  const char *value = cuda_loaded(t, storage, cuda_place(t, i));
  const char *pred = in->b ? cuda_operand(t, in->b) : NULL;
  if (guard && pred) guard = arena_printf(t->arena, "%s && %s", guard, pred);
  if (!guard) guard = pred;
  if (!guard) return value;
  return arena_printf(t->arena, "%s ? %s : %s", guard, value, zero((DType)in->type));
}

static const char *cast(const CudaText *t, const KInstr *in) {
  const char *x = cuda_operand(t, in->a);
  if (in->via) return arena_printf(t->arena, "dtm_round<%s>(%s)", cuda_storage((DType)in->via), x);
  return arena_printf(t->arena, "dtm_cast<%s>(%s)", cuda_type((DType)in->type), x);
}

const char *cuda_value(const CudaText *t, uint32_t i, const char *guard) {
  const KInstr *in = &t->k->instrs[i];
  switch ((KKind)in->kind) {
  case K_CONST:
    return literal(t->arena, in);
  case K_INDEX:
    return cuda_address(t, &in->access);
  case K_LOAD:
    return load(t, i, guard);
  case K_POINT:
    return point(t, in);
  case K_CAST:
    return cast(t, in);
  case K_RANDOM:
    return arena_printf(
        t->arena, "%s(%s, %s, %s)", in->random == KRANDOM_NORMAL ? "dtm_normal" : "dtm_uniform",
        t->buf[in->access.buf], cuda_int(t, in->access.offset), cuda_operand(t, in->a));
  case K_NONE:
  case K_REDUCE:
  case K_STORE:
  case K_ACCUM:
    break;
  }
  return "";
}

/* --- reductions ---- */

const char *cuda_functor(ReduceOp op) {
  switch (op) {
  case REDUCE_PRODUCT:
    return "dtm_product";
  case REDUCE_MAX:
    return "dtm_max";
  case REDUCE_MIN:
    return "dtm_min";
  case REDUCE_AND:
    return "dtm_and";
  case REDUCE_OR:
    return "dtm_or";
  case REDUCE_XOR:
    return "dtm_xor";
  case REDUCE_SUM:
  case REDUCE_AVG:
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return "dtm_sum";
}

const char *cuda_combine(const CudaText *t, ReduceOp op, DType type, const char *a, const char *b) {
  bool sum = op == REDUCE_SUM || op == REDUCE_AVG;
  if (dtype_is_float(type) && (sum || op == REDUCE_PRODUCT))
    return arena_printf(t->arena, "%s %s %s", a, sum ? "+" : "*", b);
  if (op == REDUCE_MAX || op == REDUCE_MIN)
    return arena_printf(t->arena, "dtm_m%simum(%s, %s)", op == REDUCE_MAX ? "ax" : "in", a, b);
  return arena_printf(t->arena, "%s()(%s, %s)", cuda_functor(op), a, b);
}

const char *cuda_neutral(ReduceOp op, DType type, Arena *arena) {
  const char *name = cuda_type(type);
  switch (op) {
  case REDUCE_PRODUCT:
    return arena_printf(arena, "(%s)1", name);
  case REDUCE_MAX:
    return arena_printf(arena, "dtm_lowest<%s>()", name);
  case REDUCE_MIN:
    return arena_printf(arena, "dtm_highest<%s>()", name);
  case REDUCE_AND:
    return arena_printf(arena, "(%s)-1", name);
  case REDUCE_SUM:
  case REDUCE_AVG:
  case REDUCE_OR:
  case REDUCE_XOR:
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return zero(type);
}
