/* Philox4x32-10 as vector code: the same bits as runtime/abi/philox.h. */
#include "codegen/llvm_emit.h"
#include "runtime/abi/philox.h"

typedef LLVMValueRef V;

static V bin(Emitter *e, LLVMOpcode op, V a, V b) {
  return LLVMBuildBinOp(e->builder, op, a, b, "");
}

static V low32(Emitter *e, V x) {
  return LLVMBuildTrunc(e->builder, x, ll_int(e, 32, ll_lanes(x)), "");
}

static V high32(Emitter *e, V x) {
  return low32(e, bin(e, LLVMLShr, x, ll_const_i(LLVMTypeOf(x), 32)));
}

static V product(Emitter *e, V x, uint32_t m) {
  V wide = LLVMBuildZExt(e->builder, x, ll_int(e, 64, ll_lanes(x)), "");
  return bin(e, LLVMMul, wide, ll_const_i(LLVMTypeOf(wide), m));
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
  return bin(e, LLVMFMul, ll_intrinsic(e, "llvm.sqrt", &square, 1), ll_math(e, OP_COS, turn, NULL));
}

V ll_random(Emitter *e, KRandom kind, V seed, int64_t instance, V step, V index) {
  uint32_t lanes = ll_lanes(index);
  V key0 = bin(e, LLVMXor, low32(e, seed), high32(e, seed));
  key0 = bin(e, LLVMXor, key0, ll_const_i(LLVMTypeOf(key0), (int64_t)((uint64_t)instance >> 32)));
  V key1 = LLVMConstInt(ll_int(e, 32, 1), (uint32_t)instance, 0);
  V c[4] = {low32(e, index), high32(e, index), ll_splat(e, low32(e, step), lanes),
            ll_splat(e, high32(e, step), lanes)};
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    V k0 = ll_splat(e, key0, lanes), k1 = ll_splat(e, key1, lanes);
    V p0 = product(e, c[0], PHILOX_M0), p1 = product(e, c[2], PHILOX_M1);
    c[0] = bin(e, LLVMXor, bin(e, LLVMXor, high32(e, p1), c[1]), k0);
    c[2] = bin(e, LLVMXor, bin(e, LLVMXor, high32(e, p0), c[3]), k1);
    c[1] = low32(e, p1);
    c[3] = low32(e, p0);
    key0 = bin(e, LLVMAdd, key0, ll_const_i(LLVMTypeOf(key0), (int64_t)PHILOX_W0));
    key1 = bin(e, LLVMAdd, key1, ll_const_i(LLVMTypeOf(key1), (int64_t)PHILOX_W1));
  }
  return kind == KRANDOM_NORMAL ? normal(e, c[0], c[1]) : fraction(e, c[0], DT_F32);
}
