/* Philox4x32-10 as vector code: the same bits as runtime/abi/philox.h. */
#include "codegen/llvm_emit.h"
#include "runtime/abi/philox.h"

#include <stdio.h>

typedef LLVMValueRef V;

static V bin(Emitter *e, LLVMOpcode op, V a, V b) {
  return LLVMBuildBinOp(e->builder, op, a, b, "");
}

static V low32(Emitter *e, V x) {
  return LLVMBuildTrunc(e->builder, x, ll_int(e, 32, ll_lanes(x)), "");
}

static V shift_down(Emitter *e, V x) {
  return bin(e, LLVMLShr, x, ll_const_i(LLVMTypeOf(x), 32));
}

/* A 32-bit scalar in every 64-bit lane. */
static V spread(Emitter *e, V x, uint32_t lanes) {
  return ll_splat(e, LLVMBuildZExt(e->builder, x, ll_int(e, 64, 1), ""), lanes);
}

/* Top 24 bits of a word as a fraction of `type`. */
static V fraction(Emitter *e, V word, DType type) {
  V top = bin(e, LLVMLShr, word, ll_const_i(LLVMTypeOf(word), 8));
  V f = LLVMBuildSIToFP(e->builder, top, ll_type(e, type, ll_lanes(word)), "");
  return bin(e, LLVMFMul, f, ll_const_f(LLVMTypeOf(f), 0x1p-24));
}

static V normal(Emitter *e, V word0, V word1) {
  V u = fraction(e, word0, DT_F64), angle = fraction(e, word1, DT_F64);
  V one = ll_const_f(LLVMTypeOf(u), 1);
  V log = ll_math(e, OP_LOG, bin(e, LLVMFSub, one, u), NULL);
  V square = bin(e, LLVMFMul, log, ll_const_f(LLVMTypeOf(u), -2));
  V turn = bin(e, LLVMFMul, angle, ll_const_f(LLVMTypeOf(u), 6.283185307179586476925));
  V radius = ll_intrinsic(e, "llvm.sqrt", &square, 1);
  return bin(e, LLVMFMul, radius, ll_math(e, OP_COS, turn, NULL));
}

/* All words live in 64-bit lanes whose upper half is zero: the widening multiplication needs them
 * so, and no lane is ever moved. */
static V draw(Emitter *e, KRandom kind, V seed, V instance, V step, V index) {
  uint32_t lanes = ll_lanes(index);
  V low = ll_const_i(LLVMTypeOf(index), 0xffffffff);
  V key0 = bin(e, LLVMXor, seed, shift_down(e, seed));
  key0 = low32(e, bin(e, LLVMXor, key0, shift_down(e, instance)));
  V key1 = low32(e, instance);
  step = ll_splat(e, step, lanes);
  V c[4] = {bin(e, LLVMAnd, index, low), shift_down(e, index), bin(e, LLVMAnd, step, low),
            shift_down(e, step)};
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    V k0 = spread(e, key0, lanes), k1 = spread(e, key1, lanes);
    V p0 = bin(e, LLVMMul, c[0], ll_const_i(LLVMTypeOf(index), PHILOX_M0));
    V p1 = bin(e, LLVMMul, c[2], ll_const_i(LLVMTypeOf(index), PHILOX_M1));
    c[0] = bin(e, LLVMXor, bin(e, LLVMXor, shift_down(e, p1), c[1]), k0);
    c[2] = bin(e, LLVMXor, bin(e, LLVMXor, shift_down(e, p0), c[3]), k1);
    c[1] = bin(e, LLVMAnd, p1, low);
    c[3] = bin(e, LLVMAnd, p0, low);
    key0 = bin(e, LLVMAdd, key0, ll_const_i(LLVMTypeOf(key0), (int64_t)PHILOX_W0));
    key1 = bin(e, LLVMAdd, key1, ll_const_i(LLVMTypeOf(key1), (int64_t)PHILOX_W1));
  }
  V w0 = low32(e, c[0]), w1 = low32(e, c[1]);
  return kind == KRANDOM_NORMAL ? normal(e, w0, w1) : fraction(e, w0, DT_F32);
}

/* Normal numbers are long code that mostly initialises variables: once per module, as a function.
 */
static V normal_function(Emitter *e, LLVMTypeRef index, LLVMTypeRef *type) {
  LLVMTypeRef i64 = ll_int(e, 64, 1);
  uint32_t lanes = LLVMGetTypeKind(index) == LLVMVectorTypeKind ? LLVMGetVectorSize(index) : 1;
  char name[32];
  snprintf(name, sizeof name, "normal_%u", lanes);
  *type = LLVMFunctionType(ll_type(e, DT_F64, lanes), (LLVMTypeRef[]){i64, i64, i64, index}, 4, 0);
  V f = LLVMGetNamedFunction(e->module, name);
  if (f) return f;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
  f = LLVMAddFunction(e->module, name, *type);
  LLVMSetLinkage(f, LLVMInternalLinkage);
  ll_tune(e, f);
  LLVMPositionBuilderAtEnd(e->builder, LLVMAppendBasicBlockInContext(e->context, f, "entry"));
  LLVMBuildRet(e->builder, draw(e, KRANDOM_NORMAL, LLVMGetParam(f, 0), LLVMGetParam(f, 1),
                                LLVMGetParam(f, 2), LLVMGetParam(f, 3)));
  LLVMPositionBuilderAtEnd(e->builder, here);
  return f;
}

V ll_random(Emitter *e, KRandom kind, V seed, V instance, V step, V index) {
  if (kind == KRANDOM_UNIFORM) return draw(e, kind, seed, instance, step, index);
  LLVMTypeRef type;
  V f = normal_function(e, LLVMTypeOf(index), &type);
  return LLVMBuildCall2(e->builder, type, f, (V[]){seed, instance, step, index}, 4, "");
}
