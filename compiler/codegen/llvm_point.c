/* Pointwise primitives and reductions as LLVM IR.
 *
 * Integers wrap. Division by zero gives 0 and the least integer divided by -1 wraps, as a vector
 * may hold such lanes without anyone asking for them. Shifts by the width or more give 0 (or the
 * sign). floor_div and remainder of floats are Python's: the remainder has the divisor's sign.
 */
#include "codegen/llvm_emit.h"

typedef LLVMValueRef V;

static V bin(Emitter *e, LLVMOpcode op, V a, V b) {
  return LLVMBuildBinOp(e->builder, op, a, b, "");
}

static V icmp(Emitter *e, LLVMIntPredicate p, V a, V b) {
  return LLVMBuildICmp(e->builder, p, a, b, "");
}

static V fcmp(Emitter *e, LLVMRealPredicate p, V a, V b) {
  return LLVMBuildFCmp(e->builder, p, a, b, "");
}

static V ci(V like, int64_t v) {
  return ll_const_i(LLVMTypeOf(like), v);
}

static V zero(V like) {
  return LLVMConstNull(LLVMTypeOf(like));
}

/* Lanes that must not reach the divider are divided by 1. */
static V safe_divisor(Emitter *e, V y, bool is_signed) {
  V bad = icmp(e, LLVMIntEQ, y, zero(y));
  if (is_signed) bad = bin(e, LLVMOr, bad, icmp(e, LLVMIntEQ, y, ci(y, -1)));
  return ll_select(e, bad, ci(y, 1), y);
}

static V int_quotient(Emitter *e, V x, V y, bool is_signed, bool floored) {
  V q = bin(e, is_signed ? LLVMSDiv : LLVMUDiv, x, safe_divisor(e, y, is_signed));
  if (is_signed) {
    if (floored) {
      V r = bin(e, LLVMSub, x, bin(e, LLVMMul, q, y));
      V inexact = icmp(e, LLVMIntNE, r, zero(r));
      V differ = icmp(e, LLVMIntSLT, bin(e, LLVMXor, r, y), zero(r));
      V adjust = bin(e, LLVMAnd, inexact, differ);
      q = ll_select(e, adjust, bin(e, LLVMSub, q, ci(q, 1)), q);
    }
    V negates = icmp(e, LLVMIntEQ, y, ci(y, -1));
    q = ll_select(e, negates, LLVMBuildNeg(e->builder, x, ""), q);
  }
  return ll_select(e, icmp(e, LLVMIntEQ, y, zero(y)), zero(q), q);
}

static V int_remainder(Emitter *e, V x, V y, bool is_signed, bool floored) {
  V q = int_quotient(e, x, y, is_signed, floored);
  V r = bin(e, LLVMSub, x, bin(e, LLVMMul, q, y));
  return ll_select(e, icmp(e, LLVMIntEQ, y, zero(y)), zero(r), r);
}

/* A remainder with the dividend's sign that the divisor's is not: one more of it is taken. */
static V is_below(Emitter *e, V r, V y) {
  V bits = bin(e, LLVMXor, ll_bits(e, r), ll_bits(e, y));
  V differ = icmp(e, LLVMIntSLT, bits, zero(bits));
  return bin(e, LLVMAnd, differ, fcmp(e, LLVMRealUNE, r, zero(r)));
}

static V float_remainder(Emitter *e, V x, V y, bool floored) {
  V r = ll_libm(e, "fmod", (V[]){x, y}, 2);
  if (!floored) return r;
  return ll_select(e, is_below(e, r, y), bin(e, LLVMFAdd, r, y), r);
}

/* The number of whole y in x, as Python and PyTorch have it: x / y may round up to a whole number
 * that is not reached (1 and 0.1 in f32). Without the remainder it is one but for rounding. */
static V float_floor_div(Emitter *e, V x, V y) {
  V r = ll_libm(e, "fmod", (V[]){x, y}, 2), ratio = bin(e, LLVMFDiv, x, y);
  V q = bin(e, LLVMFDiv, bin(e, LLVMFSub, x, r), y);
  V one = ll_const_f(LLVMTypeOf(x), 1);
  q = ll_select(e, is_below(e, r, y), bin(e, LLVMFSub, q, one), q);
  q = ll_intrinsic(e, "llvm.roundeven", &q, 1);
  V signed_zero = ll_intrinsic(e, "llvm.copysign", (V[]){zero(x), ratio}, 2);
  q = ll_select(e, fcmp(e, LLVMRealOEQ, q, zero(q)), signed_zero, q);
  return ll_select(e, fcmp(e, LLVMRealOEQ, y, zero(y)), ratio, q);
}

static V float_trunc_div(Emitter *e, V x, V y) {
  V q = bin(e, LLVMFDiv, x, y);
  return ll_intrinsic(e, "llvm.trunc", &q, 1);
}

/* The larger (or smaller); NaN if either is NaN. The comparison is true for a NaN x: an ordered one
 * with a test of x behind it is folded wrongly by LLVM 19 where x is fabs and y is 0. */
static V float_extremum(Emitter *e, V x, V y, bool larger) {
  V first = fcmp(e, larger ? LLVMRealUGT : LLVMRealULT, x, y);
  V r = ll_select(e, first, x, y);
  return ll_select(e, fcmp(e, LLVMRealUNO, y, y), y, r);
}

static V int_extremum(Emitter *e, V x, V y, bool larger, bool is_signed) {
  LLVMIntPredicate p =
      larger ? (is_signed ? LLVMIntSGT : LLVMIntUGT) : (is_signed ? LLVMIntSLT : LLVMIntULT);
  return ll_select(e, icmp(e, p, x, y), x, y);
}

static V shift(Emitter *e, V x, V y, bool left, bool is_signed) {
  LLVMTypeRef t = LLVMTypeOf(x);
  if (ll_lanes(x) > 1) t = LLVMGetElementType(t);
  V width = ci(y, LLVMGetIntTypeWidth(t));
  V in_range = icmp(e, LLVMIntULT, y, width);
  V last = bin(e, LLVMSub, width, ci(y, 1));
  V by = ll_select(e, in_range, y, last);
  if (left) return ll_select(e, in_range, bin(e, LLVMShl, x, by), zero(x));
  if (is_signed) return bin(e, LLVMAShr, x, by);
  return ll_select(e, in_range, bin(e, LLVMLShr, x, by), zero(x));
}

static V compare(Emitter *e, Op op, DType type, V x, V y) {
  static const struct {
    Op op;
    LLVMRealPredicate f;
    LLVMIntPredicate s, u;
  } table[] = {
      {OP_EQ, LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ},   {OP_NE, LLVMRealUNE, LLVMIntNE, LLVMIntNE},
      {OP_LT, LLVMRealOLT, LLVMIntSLT, LLVMIntULT}, {OP_LE, LLVMRealOLE, LLVMIntSLE, LLVMIntULE},
      {OP_GT, LLVMRealOGT, LLVMIntSGT, LLVMIntUGT}, {OP_GE, LLVMRealOGE, LLVMIntSGE, LLVMIntUGE}};
  bool is_unsigned = type == DT_U8 || type == DT_BOOL;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (table[i].op != op) continue;
    return dtype_is_float(type) ? fcmp(e, table[i].f, x, y)
                                : icmp(e, is_unsigned ? table[i].u : table[i].s, x, y);
  }
  return NULL;
}

static V point_float(Emitter *e, Op op, V x, V y) {
  if (op == OP_NEG) return LLVMBuildFNeg(e->builder, x, "");
  if (op == OP_ADD) return bin(e, LLVMFAdd, x, y);
  if (op == OP_SUB) return bin(e, LLVMFSub, x, y);
  if (op == OP_MUL) return bin(e, LLVMFMul, x, y);
  if (op == OP_DIV) return bin(e, LLVMFDiv, x, y);
  if (op == OP_ABS) return ll_intrinsic(e, "llvm.fabs", &x, 1);
  if (op == OP_SQRT) return ll_intrinsic(e, "llvm.sqrt", &x, 1);
  if (op == OP_FLOOR) return ll_intrinsic(e, "llvm.floor", &x, 1);
  if (op == OP_CEIL) return ll_intrinsic(e, "llvm.ceil", &x, 1);
  if (op == OP_TRUNC) return ll_intrinsic(e, "llvm.trunc", &x, 1);
  if (op == OP_ROUND) return ll_intrinsic(e, "llvm.roundeven", &x, 1);
  if (op == OP_MAXIMUM || op == OP_MINIMUM) return float_extremum(e, x, y, op == OP_MAXIMUM);
  if (op == OP_FLOOR_DIV) return float_floor_div(e, x, y);
  if (op == OP_TRUNC_DIV) return float_trunc_div(e, x, y);
  if (op == OP_REMAINDER || op == OP_FMOD) return float_remainder(e, x, y, op == OP_REMAINDER);
  if (op == OP_ISINF || op == OP_ISFINITE) {
    V a = ll_intrinsic(e, "llvm.fabs", &x, 1), inf = ll_const_f(LLVMTypeOf(x), __builtin_inf());
    return fcmp(e, op == OP_ISINF ? LLVMRealOEQ : LLVMRealOLT, a, inf);
  }
  return ll_math(e, op, x, y);
}

static V point_int(Emitter *e, Op op, DType type, V x, V y) {
  bool is_signed = type != DT_U8 && type != DT_BOOL;
  if (op == OP_NEG) return LLVMBuildNeg(e->builder, x, "");
  if (op == OP_ADD) return bin(e, LLVMAdd, x, y);
  if (op == OP_SUB) return bin(e, LLVMSub, x, y);
  if (op == OP_MUL) return bin(e, LLVMMul, x, y);
  if (op == OP_FLOOR_DIV || op == OP_TRUNC_DIV)
    return int_quotient(e, x, y, is_signed, op == OP_FLOOR_DIV);
  if (op == OP_REMAINDER || op == OP_FMOD)
    return int_remainder(e, x, y, is_signed, op == OP_REMAINDER);
  if (op == OP_MAXIMUM || op == OP_MINIMUM)
    return int_extremum(e, x, y, op == OP_MAXIMUM, is_signed);
  if (op == OP_ABS && is_signed) {
    V negative = icmp(e, LLVMIntSLT, x, zero(x));
    return ll_select(e, negative, LLVMBuildNeg(e->builder, x, ""), x);
  }
  if (op == OP_ABS) return x;
  if (op == OP_BITWISE_AND || op == OP_LOGICAL_AND) return bin(e, LLVMAnd, x, y);
  if (op == OP_BITWISE_OR || op == OP_LOGICAL_OR) return bin(e, LLVMOr, x, y);
  if (op == OP_BITWISE_XOR || op == OP_LOGICAL_XOR) return bin(e, LLVMXor, x, y);
  if (op == OP_BITWISE_NOT || op == OP_LOGICAL_NOT) return LLVMBuildNot(e->builder, x, "");
  if (op == OP_SHIFT_LEFT || op == OP_SHIFT_RIGHT)
    return shift(e, x, y, op == OP_SHIFT_LEFT, is_signed);
  return NULL;
}

V ll_point(Emitter *e, const KInstr *in, DType operand, V x, V y, V z) {
  if (in->op == OP_WHERE) return ll_select(e, x, y, z);
  V r = compare(e, in->op, operand, x, y);
  if (r) return r;
  return dtype_is_float(operand) ? point_float(e, in->op, x, y)
                                 : point_int(e, in->op, operand, x, y);
}

V ll_combine(Emitter *e, ReduceOp op, DType type, V a, V b) {
  bool f = dtype_is_float(type), is_signed = type != DT_U8 && type != DT_BOOL;
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_AVG:
    return bin(e, f ? LLVMFAdd : LLVMAdd, a, b);
  case REDUCE_PRODUCT:
    return bin(e, f ? LLVMFMul : LLVMMul, a, b);
  case REDUCE_MAX:
  case REDUCE_MIN:
    return f ? float_extremum(e, a, b, op == REDUCE_MAX)
             : int_extremum(e, a, b, op == REDUCE_MAX, is_signed);
  case REDUCE_AND:
    return bin(e, LLVMAnd, a, b);
  case REDUCE_OR:
    return bin(e, LLVMOr, a, b);
  case REDUCE_XOR:
    return bin(e, LLVMXor, a, b);
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return a;
}

V ll_neutral(Emitter *e, ReduceOp op, DType type, uint32_t lanes) {
  LLVMTypeRef t = ll_type(e, type, lanes);
  bool is_unsigned = type == DT_U8 || type == DT_BOOL;
  uint32_t bits = dtype_is_float(type) ? 0 : LLVMGetIntTypeWidth(ll_element(e, type));
  int64_t lowest = is_unsigned ? 0 : (int64_t)(~0ull << (bits ? bits - 1 : 0));
  switch (op) {
  case REDUCE_PRODUCT:
    return bits ? ll_const_i(t, 1) : ll_const_f(t, 1);
  case REDUCE_MAX:
    return bits ? ll_const_i(t, lowest) : ll_const_f(t, -__builtin_inf());
  case REDUCE_MIN:
    return bits ? ll_const_i(t, ~lowest) : ll_const_f(t, __builtin_inf());
  case REDUCE_AND:
    return ll_const_i(t, -1);
  case REDUCE_SUM: /* -0 would keep a sum of -0; 0 is what an empty sum is */
  case REDUCE_AVG:
  case REDUCE_OR:
  case REDUCE_XOR:
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  return LLVMConstNull(t);
}

V ll_fold(Emitter *e, ReduceOp op, DType type, V v) {
  LLVMTypeRef i32 = ll_int(e, 32, 1);
  for (uint32_t n = ll_lanes(v) / 2; n; n /= 2) {
    V low[32], high[32];
    for (uint32_t i = 0; i < n; i++) {
      low[i] = LLVMConstInt(i32, i, 0);
      high[i] = LLVMConstInt(i32, n + i, 0);
    }
    V a = LLVMBuildShuffleVector(e->builder, v, v, LLVMConstVector(low, n), "");
    V b = LLVMBuildShuffleVector(e->builder, v, v, LLVMConstVector(high, n), "");
    v = ll_combine(e, op, type, a, b);
  }
  return LLVMBuildExtractElement(e->builder, v, ll_i64(e, 0), "");
}
