/* Types, constants and vectors of the LLVM IR that is emitted. */
#include "codegen/llvm_emit.h"

#include <string.h>

LLVMTypeRef ll_int(Emitter *e, uint32_t bits, uint32_t lanes) {
  return ll_vector(LLVMIntTypeInContext(e->context, bits), lanes);
}

LLVMTypeRef ll_element(Emitter *e, DType type) {
  switch (type) {
  case DT_F64:
    return LLVMDoubleTypeInContext(e->context);
  case DT_F32:
  case DT_BF16:
  case DT_F16:
  case DT_F8_E4M3:
  case DT_F8_E5M2:
    return LLVMFloatTypeInContext(e->context);
  case DT_I64:
    return ll_int(e, 64, 1);
  case DT_I32:
    return ll_int(e, 32, 1);
  case DT_I16:
    return ll_int(e, 16, 1);
  case DT_I8:
  case DT_U8:
    return ll_int(e, 8, 1);
  case DT_BOOL:
  case DT_NONE:
  case DT_COUNT:
    break;
  }
  return ll_int(e, 1, 1);
}

LLVMTypeRef ll_vector(LLVMTypeRef element, uint32_t lanes) {
  return lanes == 1 ? element : LLVMVectorType(element, lanes);
}

LLVMTypeRef ll_type(Emitter *e, DType type, uint32_t lanes) {
  return ll_vector(ll_element(e, type), lanes);
}

static bool is_vector(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind;
}

static LLVMTypeRef element_of(LLVMTypeRef t) {
  return is_vector(t) ? LLVMGetElementType(t) : t;
}

uint32_t ll_lanes(LLVMValueRef v) {
  LLVMTypeRef t = LLVMTypeOf(v);
  return is_vector(t) ? LLVMGetVectorSize(t) : 1;
}

bool ll_is_f64(LLVMTypeRef type) {
  return LLVMGetTypeKind(element_of(type)) == LLVMDoubleTypeKind;
}

LLVMValueRef ll_splat(Emitter *e, LLVMValueRef scalar, uint32_t lanes) {
  if (lanes == 1 || is_vector(LLVMTypeOf(scalar))) return scalar;
  LLVMTypeRef t = ll_vector(LLVMTypeOf(scalar), lanes);
  LLVMValueRef one = LLVMBuildInsertElement(e->builder, LLVMGetPoison(t), scalar, ll_i64(e, 0), "");
  return LLVMBuildShuffleVector(e->builder, one, LLVMGetPoison(t),
                                LLVMConstNull(ll_int(e, 32, lanes)), "");
}

static LLVMValueRef const_splat(LLVMTypeRef like, LLVMValueRef c) {
  if (!is_vector(like)) return c;
  LLVMValueRef all[64];
  uint32_t n = LLVMGetVectorSize(like);
  for (uint32_t i = 0; i < n; i++) all[i] = c;
  return LLVMConstVector(all, n);
}

LLVMValueRef ll_const_f(LLVMTypeRef like, double value) {
  return const_splat(like, LLVMConstReal(element_of(like), value));
}

LLVMValueRef ll_const_i(LLVMTypeRef like, int64_t value) {
  return const_splat(like, LLVMConstInt(element_of(like), (unsigned long long)value, 1));
}

LLVMValueRef ll_i64(Emitter *e, int64_t value) {
  return ll_const_i(ll_int(e, 64, 1), value);
}

LLVMValueRef ll_lane_numbers(Emitter *e, LLVMTypeRef element, uint32_t lanes) {
  (void)e;
  if (lanes == 1) return LLVMConstInt(element, 0, 0);
  LLVMValueRef all[64];
  for (uint32_t i = 0; i < lanes; i++) all[i] = LLVMConstInt(element, i, 0);
  return LLVMConstVector(all, lanes);
}

LLVMValueRef ll_intrinsic(Emitter *e, const char *name, LLVMValueRef *args, uint32_t n) {
  LLVMTypeRef t = LLVMTypeOf(args[0]);
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->module, id, &t, 1);
  LLVMTypeRef ft = LLVMIntrinsicGetType(e->context, id, &t, 1);
  return LLVMBuildCall2(e->builder, ft, f, args, n, "");
}

LLVMValueRef ll_fma(Emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  if (e->has_fma) return ll_intrinsic(e, "llvm.fma", (LLVMValueRef[]){a, b, c}, 3);
  return LLVMBuildFAdd(e->builder, LLVMBuildFMul(e->builder, a, b, ""), c, "");
}

LLVMValueRef ll_select(Emitter *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(e->builder, c, a, b, "");
}

LLVMValueRef ll_bits(Emitter *e, LLVMValueRef x) {
  uint32_t bits = ll_is_f64(LLVMTypeOf(x)) ? 64 : 32;
  return LLVMBuildBitCast(e->builder, x, ll_int(e, bits, ll_lanes(x)), "");
}

LLVMValueRef ll_float_of(Emitter *e, LLVMValueRef bits) {
  DType t = LLVMGetIntTypeWidth(element_of(LLVMTypeOf(bits))) == 64 ? DT_F64 : DT_F32;
  return LLVMBuildBitCast(e->builder, bits, ll_type(e, t, ll_lanes(bits)), "");
}

LLVMValueRef ll_alloca(KernelEmitter *ke, LLVMTypeRef type) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
  LLVMValueRef first = LLVMGetFirstInstruction(ke->entry);
  if (first)
    LLVMPositionBuilderBefore(b, first);
  else
    LLVMPositionBuilderAtEnd(b, ke->entry);
  LLVMValueRef slot = LLVMBuildAlloca(b, type, "");
  LLVMPositionBuilderAtEnd(b, here);
  return slot;
}
