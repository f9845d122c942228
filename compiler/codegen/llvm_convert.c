/* Conversions between element types.
 *
 * Narrow floats round to nearest, ties to even. f8_e4m3 is the "fn" kind (no infinity; what
 * overflows is NaN), f8_e5m2 the IEEE kind. A float becomes an integer by rounding to zero and
 * saturating, NaN becomes 0. Through f32, f64 is first rounded to odd, so that rounding twice
 * equals rounding once.
 */
#include "codegen/llvm_emit.h"

static LLVMValueRef bin(Emitter *e, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildBinOp(e->builder, op, a, b, "");
}

static LLVMValueRef ci(LLVMValueRef like, int64_t v) {
  return ll_const_i(LLVMTypeOf(like), v);
}

static LLVMValueRef icmp(Emitter *e, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(e->builder, p, a, b, "");
}

static LLVMValueRef is_nan(Emitter *e, LLVMValueRef x) {
  return LLVMBuildFCmp(e->builder, LLVMRealUNO, x, x, "");
}

LLVMTypeRef ll_storage(Emitter *e, DType storage, uint32_t lanes) {
  bool narrow = dtype_is_float(storage) && dtype_bytes(storage) < 4;
  if (narrow || storage == DT_BOOL) return ll_int(e, (uint32_t)dtype_bytes(storage) * 8, lanes);
  return ll_type(e, storage, lanes);
}

/* f64 -> f32 rounded to odd: exact, or the neighbour whose last bit is 1. */
static LLVMValueRef round_to_odd(Emitter *e, LLVMValueRef x) {
  uint32_t lanes = ll_lanes(x);
  LLVMValueRef f = LLVMBuildFPTrunc(e->builder, x, ll_type(e, DT_F32, lanes), "");
  LLVMValueRef back = LLVMBuildFPExt(e->builder, f, LLVMTypeOf(x), "");
  LLVMValueRef bits = ll_bits(e, f);
  LLVMValueRef size = ll_intrinsic(e, "llvm.fabs", &x, 1);
  LLVMValueRef rounded = ll_intrinsic(e, "llvm.fabs", &back, 1);
  LLVMValueRef larger = LLVMBuildFCmp(e->builder, LLVMRealOGT, size, rounded, "");
  LLVMValueRef inexact = LLVMBuildFCmp(e->builder, LLVMRealONE, x, back, "");
  LLVMValueRef even = icmp(e, LLVMIntEQ, bin(e, LLVMAnd, bits, ci(bits, 1)), ci(bits, 0));
  LLVMValueRef moved = bin(e, LLVMAdd, bits, ll_select(e, larger, ci(bits, 1), ci(bits, -1)));
  LLVMValueRef move = bin(e, LLVMAnd, inexact, even);
  return ll_float_of(e, ll_select(e, move, moved, bits));
}

static LLVMValueRef to_bf16(Emitter *e, LLVMValueRef x) {
  LLVMValueRef u = ll_bits(e, x);
  LLVMValueRef odd = bin(e, LLVMAnd, bin(e, LLVMLShr, u, ci(u, 16)), ci(u, 1));
  LLVMValueRef r = bin(e, LLVMAdd, bin(e, LLVMAdd, u, ci(u, 0x7fff)), odd);
  r = bin(e, LLVMLShr, r, ci(u, 16));
  LLVMValueRef quiet = bin(e, LLVMOr, bin(e, LLVMLShr, u, ci(u, 16)), ci(u, 0x40));
  r = ll_select(e, is_nan(e, x), quiet, r);
  return LLVMBuildTrunc(e->builder, r, ll_int(e, 16, ll_lanes(x)), "");
}

/* f32 -> 8 bits with `mantissa` bits and exponent bias `bias`. Magnitudes at or above `limit` (f32
 * bits) become `over`; NaN becomes `nan`. Below the least normal number, adding a power of two
 * whose ulp is the least denormal makes the hardware round. */
static LLVMValueRef to_f8(Emitter *e, LLVMValueRef x, int mantissa, int bias, int64_t limit,
                          int64_t over, int64_t nan) {
  LLVMValueRef u = ll_bits(e, x);
  LLVMValueRef sign = bin(e, LLVMAnd, bin(e, LLVMLShr, u, ci(u, 24)), ci(u, 0x80));
  LLVMValueRef mag = bin(e, LLVMAnd, u, ci(u, 0x7fffffff));
  int drop = 23 - mantissa;
  int64_t magic = (int64_t)(127 - bias + 1 + drop) << 23;
  LLVMValueRef tiny =
      LLVMBuildFAdd(e->builder, ll_float_of(e, mag), ll_float_of(e, ci(u, magic)), "");
  tiny = bin(e, LLVMSub, ll_bits(e, tiny), ci(u, magic));
  LLVMValueRef odd = bin(e, LLVMAnd, bin(e, LLVMLShr, mag, ci(u, drop)), ci(u, 1));
  LLVMValueRef r = bin(e, LLVMAdd, mag,
                       ci(u, (int64_t)(bias - 127) * (1 << 23) + ((int64_t)1 << (drop - 1)) - 1));
  r = bin(e, LLVMLShr, bin(e, LLVMAdd, r, odd), ci(u, drop));
  r = ll_select(e, icmp(e, LLVMIntULT, mag, ci(u, (int64_t)(127 - bias + 1) << 23)), tiny, r);
  r = ll_select(e, icmp(e, LLVMIntUGE, mag, ci(u, limit)), ci(u, over), r);
  r = ll_select(e, icmp(e, LLVMIntUGT, mag, ci(u, 0x7f800000)), ci(u, nan), r);
  return LLVMBuildTrunc(e->builder, bin(e, LLVMOr, r, sign), ll_int(e, 8, ll_lanes(x)), "");
}

LLVMValueRef ll_encode(Emitter *e, LLVMValueRef value, DType storage) {
  uint32_t lanes = ll_lanes(value);
  switch (storage) {
  case DT_BF16:
    return to_bf16(e, value);
  case DT_F16: {
    LLVMTypeRef half = ll_vector(LLVMHalfTypeInContext(e->context), lanes);
    LLVMValueRef h = LLVMBuildFPTrunc(e->builder, value, half, "");
    return LLVMBuildBitCast(e->builder, h, ll_int(e, 16, lanes), "");
  }
  case DT_F8_E4M3: /* 464, half way to the missing 480, still rounds to 448 */
    return to_f8(e, value, 3, 7, 0x43e80001, 0x7f, 0x7f);
  case DT_F8_E5M2: /* 61440, half way to the missing 65536, rounds to infinity */
    return to_f8(e, value, 2, 15, 0x47700000, 0x7c, 0x7f);
  case DT_BOOL:
    return LLVMBuildZExt(e->builder, value, ll_int(e, 8, lanes), "");
  case DT_NONE:
  case DT_F64:
  case DT_F32:
  case DT_I64:
  case DT_I32:
  case DT_I16:
  case DT_I8:
  case DT_U8:
  case DT_COUNT:
    break;
  }
  return value;
}

LLVMValueRef ll_decode(Emitter *e, LLVMValueRef bits, DType storage) {
  uint32_t lanes = ll_lanes(bits);
  LLVMTypeRef i32 = ll_int(e, 32, lanes);
  switch (storage) {
  case DT_BF16: {
    LLVMValueRef u = LLVMBuildZExt(e->builder, bits, i32, "");
    return ll_float_of(e, bin(e, LLVMShl, u, ci(u, 16)));
  }
  case DT_F8_E5M2: /* the upper half of an f16 */
    bits = LLVMBuildZExt(e->builder, bits, ll_int(e, 16, lanes), "");
    bits = bin(e, LLVMShl, bits, ci(bits, 8));
    return ll_decode(e, bits, DT_F16);
  case DT_F16: {
    LLVMTypeRef half = ll_vector(LLVMHalfTypeInContext(e->context), lanes);
    LLVMValueRef h = LLVMBuildBitCast(e->builder, bits, half, "");
    return LLVMBuildFPExt(e->builder, h, ll_type(e, DT_F32, lanes), "");
  }
  case DT_F8_E4M3: {
    LLVMValueRef u = LLVMBuildZExt(e->builder, bits, i32, "");
    LLVMValueRef mag = bin(e, LLVMAnd, u, ci(u, 0x7f));
    LLVMValueRef v = ll_float_of(e, bin(e, LLVMShl, mag, ci(u, 20)));
    v = LLVMBuildFMul(e->builder, v, ll_const_f(LLVMTypeOf(v), 0x1p120), "");
    LLVMValueRef sign = bin(e, LLVMShl, bin(e, LLVMAnd, u, ci(u, 0x80)), ci(u, 24));
    LLVMValueRef out = bin(e, LLVMOr, ll_bits(e, v), sign);
    LLVMValueRef nan = icmp(e, LLVMIntEQ, mag, ci(u, 0x7f));
    return ll_float_of(e, ll_select(e, nan, bin(e, LLVMOr, sign, ci(u, 0x7fc00000)), out));
  }
  case DT_BOOL:
    return icmp(e, LLVMIntNE, bits, ci(bits, 0));
  case DT_NONE:
  case DT_F64:
  case DT_F32:
  case DT_I64:
  case DT_I32:
  case DT_I16:
  case DT_I8:
  case DT_U8:
  case DT_COUNT:
    break;
  }
  return bits;
}

static LLVMValueRef cast_from_float(Emitter *e, LLVMValueRef x, DType to, LLVMTypeRef type) {
  if (to == DT_BOOL)
    return LLVMBuildFCmp(e->builder, LLVMRealUNE, x, LLVMConstNull(LLVMTypeOf(x)), "");
  if (dtype_is_float(to))
    return to == DT_F64 ? LLVMBuildFPExt(e->builder, x, type, "")
                        : LLVMBuildFPTrunc(e->builder, x, type, "");
  const char *name = to == DT_U8 ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
  LLVMTypeRef types[2] = {type, LLVMTypeOf(x)};
  unsigned id = LLVMLookupIntrinsicID(name, 15);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->module, id, types, 2);
  return LLVMBuildCall2(e->builder, LLVMIntrinsicGetType(e->context, id, types, 2), f, &x, 1, "");
}

static LLVMValueRef cast_from_integer(Emitter *e, LLVMValueRef x, DType from, DType to,
                                      LLVMTypeRef type) {
  bool is_signed = from != DT_U8 && from != DT_BOOL;
  if (to == DT_BOOL) return icmp(e, LLVMIntNE, x, ci(x, 0));
  if (dtype_is_float(to))
    return is_signed ? LLVMBuildSIToFP(e->builder, x, type, "")
                     : LLVMBuildUIToFP(e->builder, x, type, "");
  return LLVMBuildIntCast2(e->builder, x, type, is_signed, "");
}

LLVMValueRef ll_cast(Emitter *e, LLVMValueRef x, DType from, DType to) {
  DType have = from, want = to;
  bool narrow = to >= DT_BF16 && to <= DT_F8_E5M2;
  if (narrow) want = DT_F32;
  LLVMTypeRef type = ll_type(e, want, ll_lanes(x));
  if (have == DT_F64 && narrow)
    x = round_to_odd(e, x);
  else if (have != want)
    x = dtype_is_float(have) ? cast_from_float(e, x, want, type)
                             : cast_from_integer(e, x, have, want, type);
  return narrow ? ll_decode(e, ll_encode(e, x, to), to) : x;
}
