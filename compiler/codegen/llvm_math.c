/* Elementary functions as straight-line vector code.
 *
 * Bounds hold against the exact result over the whole range, for targets with FMA (checked by
 * tests/unit/test_math.c):
 *            exp exp2  expm1  log  log1p  tanh  sin cos  atan2  erf   erfc  pow
 *   f32 ulp      1      2     1     2     3     3        3      2   (libm)   1
 *   f64 ulp      1      2     1     2     3     3        3   (libm) (libm) (libm)
 * Sources: range reductions and coefficients of exp, log, log1p, tanh, sin, cos follow Sun's fdlibm
 * and Moshier's Cephes; erf of f32 is the two-interval form by N. Juffa. Arguments of sin and cos
 * beyond 2^28 go to libm one by one. f32 pow, sin and cos work in f64 inside.
 */
#include "codegen/llvm_emit.h"

#include <string.h>

typedef LLVMValueRef V;

static V add(Emitter *e, V a, V b) {
  return LLVMBuildFAdd(e->builder, a, b, "");
}
static V sub(Emitter *e, V a, V b) {
  return LLVMBuildFSub(e->builder, a, b, "");
}
static V mul(Emitter *e, V a, V b) {
  return LLVMBuildFMul(e->builder, a, b, "");
}
static V divide(Emitter *e, V a, V b) {
  return LLVMBuildFDiv(e->builder, a, b, "");
}
static V cf(V like, double c) {
  return ll_const_f(LLVMTypeOf(like), c);
}
static V ci(V like, int64_t c) {
  return ll_const_i(LLVMTypeOf(like), c);
}
static V fcmp(Emitter *e, LLVMRealPredicate p, V a, V b) {
  return LLVMBuildFCmp(e->builder, p, a, b, "");
}
static V bin(Emitter *e, LLVMOpcode op, V a, V b) {
  return LLVMBuildBinOp(e->builder, op, a, b, "");
}
static V fabs_of(Emitter *e, V x) {
  return ll_intrinsic(e, "llvm.fabs", &x, 1);
}
static V copysign_of(Emitter *e, V x, V sign) {
  return ll_intrinsic(e, "llvm.copysign", (V[]){x, sign}, 2);
}
static V widen(Emitter *e, V x) {
  return LLVMBuildFPExt(e->builder, x, ll_type(e, DT_F64, ll_lanes(x)), "");
}
static V narrow(Emitter *e, V x) {
  return LLVMBuildFPTrunc(e->builder, x, ll_type(e, DT_F32, ll_lanes(x)), "");
}

/* c[0] + x * (c[1] + x * (...)) */
static V poly(Emitter *e, V x, const double *c, int n) {
  V r = cf(x, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) r = ll_fma(e, r, x, cf(x, c[i]));
  return r;
}

/* x limited to [lo, hi]; NaN stays. */
static V limit(Emitter *e, V x, double lo, double hi) {
  x = ll_select(e, fcmp(e, LLVMRealOLT, x, cf(x, lo)), cf(x, lo), x);
  return ll_select(e, fcmp(e, LLVMRealOGT, x, cf(x, hi)), cf(x, hi), x);
}

/* Nearest integer as a float, and as an integer of the same width. */
static V nearest(Emitter *e, V x, V *as_int) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  /* Adding 1.5 * 2^(mantissa bits) leaves the integer in the low bits. */
  V magic = cf(x, wide ? 0x1.8p52 : 0x1.8p23);
  V shifted = add(e, x, magic);
  V bits = ll_bits(e, shifted);
  *as_int = bin(e, LLVMSub, bits, ll_bits(e, magic));
  return sub(e, shifted, magic);
}

/* x * 2^n for |n| up to twice the exponent range: in two steps, so that denormals and overflow
 * round and saturate as they should. */
static V scale(Emitter *e, V x, V n) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  int shift = wide ? 52 : 23, bias = wide ? 1023 : 127;
  V half = bin(e, LLVMAShr, n, ci(n, 1)), rest = bin(e, LLVMSub, n, half);
  V a = bin(e, LLVMShl, bin(e, LLVMAdd, half, ci(n, bias)), ci(n, shift));
  V b = bin(e, LLVMShl, bin(e, LLVMAdd, rest, ci(n, bias)), ci(n, shift));
  V first = mul(e, x, ll_float_of(e, a));
  return mul(e, first, ll_float_of(e, b));
}

/* exp(r) - 1 for |r| <= ln 2 / 2. */
static V exp_poly(Emitter *e, V r) {
  static const double c32[] = {
      0.5, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4};
  static const double c64[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  V q = ll_is_f64(LLVMTypeOf(r)) ? poly(e, r, c64, 12) : poly(e, r, c32, 6);
  return ll_fma(e, mul(e, r, r), q, r);
}

/* exp(x - n ln 2) - 1 for the n that makes it small. */
static V exp_core(Emitter *e, V x, V *n) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  V k = nearest(e, mul(e, x, cf(x, 1.44269504088896340736)), n);
  V minus = LLVMBuildFNeg(e->builder, k, "");
  V r = ll_fma(e, minus, cf(x, wide ? 6.93147180369123816490e-1 : 0.693359375), x);
  r = ll_fma(e, minus, cf(x, wide ? 1.90821492927058770002e-10 : -2.12194440054690583e-4), r);
  return exp_poly(e, r);
}

static V emit_exp(Emitter *e, V x) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  x = limit(e, x, wide ? -750 : -105, wide ? 710 : 89);
  V n, p = exp_core(e, x, &n);
  return scale(e, add(e, p, cf(x, 1)), n);
}

static V emit_exp2(Emitter *e, V x) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  x = limit(e, x, wide ? -1080 : -152, wide ? 1025 : 129);
  V n, k = nearest(e, x, &n), r = mul(e, sub(e, x, k), cf(x, 6.93147180559945309417e-1));
  return scale(e, add(e, exp_poly(e, r), cf(x, 1)), n);
}

static V emit_expm1(Emitter *e, V x) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  V t = limit(e, x, wide ? -100 : -50, wide ? 710 : 89);
  V n, p = exp_core(e, t, &n);
  V two_n = scale(e, cf(x, 1), n);
  V near = ll_fma(e, two_n, p, sub(e, two_n, cf(x, 1)));
  V far = scale(e, add(e, p, cf(x, 1)), n);
  V r = ll_select(e, fcmp(e, LLVMRealOGT, t, cf(x, wide ? 60 : 30)), far, near);
  V tiny = fcmp(e, LLVMRealOLT, fabs_of(e, x), cf(x, wide ? 0x1p-54 : 0x1p-25));
  return ll_select(e, tiny, x, r);
}

/* log(x) + c for positive x; c is small beside x. fdlibm's e_log.c, e_logf.c. */
static V log_core(Emitter *e, V x, V c) {
  static const double odd32[] = {0.66666662693, 0.28498786688},
                      even32[] = {0.40000972152, 0.24279078841};
  static const double odd64[] = {6.666666666666735130e-01, 2.857142874366239149e-01,
                                 1.818357216161805012e-01, 1.479819860511658591e-01};
  static const double even64[] = {3.999999999940941908e-01, 2.222219843214978396e-01,
                                  1.531383769920937332e-01};
  bool wide = ll_is_f64(LLVMTypeOf(x));
  int shift = wide ? 52 : 23;
  V least = cf(x, wide ? 0x1p-1022 : 0x1p-126);
  V small = fcmp(e, LLVMRealOLT, x, least);
  V bits = ll_bits(e, ll_select(e, small, mul(e, x, cf(x, wide ? 0x1p54 : 0x1p25)), x));
  /* Mantissa in [sqrt(1/2), sqrt(2)): subtract the bits of sqrt(1/2), take the exponent. */
  int64_t root = wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
  V from_root = bin(e, LLVMSub, bits, ci(bits, root));
  V k = bin(e, LLVMAShr, from_root, ci(bits, shift));
  V m = ll_float_of(e, bin(e, LLVMSub, bits, bin(e, LLVMShl, k, ci(bits, shift))));
  k = bin(e, LLVMAdd, k, ll_select(e, small, ci(bits, wide ? -54 : -25), ci(bits, 0)));
  V kf;
  if (wide) { /* AVX2 has no i64 -> f64: through the magic number */
    V magic = ll_bits(e, cf(x, 0x1.8p52));
    kf = sub(e, ll_float_of(e, bin(e, LLVMAdd, k, magic)), cf(x, 0x1.8p52));
  } else {
    kf = LLVMBuildSIToFP(e->builder, k, LLVMTypeOf(x), "");
  }
  V f = sub(e, m, cf(x, 1)), s = divide(e, f, add(e, f, cf(x, 2)));
  V z = mul(e, s, s), w = mul(e, z, z);
  V t1 = wide ? poly(e, w, even64, 3) : poly(e, w, even32, 2);
  V t2 = wide ? poly(e, w, odd64, 4) : poly(e, w, odd32, 2);
  V r = ll_fma(e, w, t1, mul(e, z, t2));
  V half = mul(e, mul(e, f, f), cf(x, 0.5));
  V low = mul(e, kf, cf(x, wide ? 1.90821492927058770002e-10 : 9.0580006145e-06));
  if (c) low = add(e, low, c);
  V tail = ll_fma(e, s, add(e, half, r), low);
  V head = mul(e, kf, cf(x, wide ? 6.93147180369123816490e-01 : 6.9313812256e-01));
  return sub(e, head, sub(e, sub(e, half, tail), f));
}

static V infinity(V like) {
  return cf(like, __builtin_inf());
}

static V not_a_number(V like) {
  return cf(like, __builtin_nan(""));
}

/* What log and log1p give outside of the positive finite numbers; `x` is the number whose log it
 * is. */
static V log_special(Emitter *e, V x, V result) {
  result = ll_select(e, fcmp(e, LLVMRealOEQ, x, infinity(x)), x, result);
  result = ll_select(e, fcmp(e, LLVMRealOEQ, x, cf(x, 0)), cf(x, -__builtin_inf()), result);
  return ll_select(e, fcmp(e, LLVMRealULT, x, cf(x, 0)), not_a_number(x), result);
}

static V emit_log(Emitter *e, V x) {
  return log_special(e, x, log_core(e, x, NULL));
}

static V emit_log1p(Emitter *e, V x) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  V one = cf(x, 1), u = add(e, x, one);
  /* What the addition lost, of either operand. */
  V lost_x = sub(e, x, sub(e, u, one)), lost_one = sub(e, one, sub(e, u, x));
  V lost = ll_select(e, fcmp(e, LLVMRealOGT, x, one), lost_one, lost_x);
  V r = log_special(e, u, log_core(e, u, divide(e, lost, u)));
  V tiny = fcmp(e, LLVMRealOLT, fabs_of(e, x), cf(x, wide ? 0x1p-54 : 0x1p-25));
  return ll_select(e, tiny, x, r);
}

static V emit_tanh(Emitter *e, V x) {
  V a = limit(e, fabs_of(e, x), 0, 30);
  V big = fcmp(e, LLVMRealOGE, a, cf(x, 1));
  V two = cf(x, 2), twice = mul(e, a, two);
  V t = emit_expm1(e, ll_select(e, big, twice, LLVMBuildFNeg(e->builder, twice, "")));
  V num = ll_select(e, big, two, t), q = divide(e, num, add(e, t, two));
  V rest = sub(e, cf(x, 1), q), minus = LLVMBuildFNeg(e->builder, q, "");
  return copysign_of(e, ll_select(e, big, rest, minus), x);
}

/* Kernels on |r| <= pi / 4, of fdlibm's k_sin.c and k_cos.c and their f32 forms in Cephes. */
static V sin_poly(Emitter *e, V r, V z) {
  static const double c32[] = {-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4};
  static const double c64[] = {-1.66666666666666324348e-01, 8.33333333332248946124e-03,
                               -1.98412698298579493134e-04, 2.75573137070700676789e-06,
                               -2.50507602534068634195e-08, 1.58969099521155010221e-10};
  bool wide = ll_is_f64(LLVMTypeOf(r));
  V p = wide ? poly(e, z, c64, 6) : poly(e, z, c32, 3);
  return ll_fma(e, mul(e, z, r), p, r);
}

static V cos_poly(Emitter *e, V z) {
  static const double c32[] = {4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5};
  static const double c64[] = {4.16666666666666019037e-02, -1.38888888888741095749e-03,
                               2.48015872894767294178e-05, -2.75573143513906633035e-07,
                               2.08757232129817482790e-09, -1.13596475577881948265e-11};
  bool wide = ll_is_f64(LLVMTypeOf(z));
  V q = wide ? poly(e, z, c64, 6) : poly(e, z, c32, 3);
  V p = mul(e, mul(e, z, z), q);
  V half = mul(e, z, cf(z, 0.5)), w = sub(e, cf(z, 1), half);
  V lost = sub(e, sub(e, cf(z, 1), w), half);
  return add(e, w, add(e, lost, p));
}

/* x - n pi / 2 in f64 by three parts of 33 bits, exact products for |n| < 2^20, good to 2^28. */
static V reduce_half_pi(Emitter *e, V x, V *n) {
  V k = nearest(e, mul(e, x, cf(x, 6.36619772367581382433e-01)), n);
  V m = LLVMBuildFNeg(e->builder, k, "");
  V r = ll_fma(e, m, cf(x, 1.57079632673412561417e+00), x);
  r = ll_fma(e, m, cf(x, 6.07710050630396597660e-11), r);
  return ll_fma(e, m, cf(x, 2.02226624879595063154e-21), r);
}

/* Replaces lanes whose magnitude exceeds 2^28 (2^20 for f64) by libm's result. */
static V patch_huge(Emitter *e, V x, V result, const char *name) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  uint32_t lanes = ll_lanes(x);
  V huge = fcmp(e, LLVMRealOGT, fabs_of(e, x), cf(x, wide ? 0x1p20 : 0x1p28));
  V any = huge;
  if (lanes > 1) any = ll_intrinsic(e, "llvm.vector.reduce.or", &huge, 1);
  LLVMBuilderRef b = e->builder;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b);
  V function = LLVMGetBasicBlockParent(here);
  LLVMBasicBlockRef slow = LLVMAppendBasicBlockInContext(e->context, function, "huge");
  LLVMBasicBlockRef join = LLVMAppendBasicBlockInContext(e->context, function, "joined");
  LLVMBuildCondBr(b, any, slow, join);
  LLVMPositionBuilderAtEnd(b, slow);
  V exact = ll_libm(e, name, &x, 1);
  exact = ll_select(e, huge, exact, result);
  slow = LLVMGetInsertBlock(b);
  LLVMBuildBr(b, join);
  LLVMPositionBuilderAtEnd(b, join);
  V phi = LLVMBuildPhi(b, LLVMTypeOf(x), "");
  LLVMAddIncoming(phi, (V[]){result, exact}, (LLVMBasicBlockRef[]){here, slow}, 2);
  return phi;
}

static V emit_sin_cos(Emitter *e, V x, bool cosine) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  V n, r = reduce_half_pi(e, wide ? x : widen(e, x), &n);
  if (!wide) {
    r = narrow(e, r);
    n = LLVMBuildTrunc(e->builder, n, ll_int(e, 32, ll_lanes(x)), "");
  }
  if (cosine) n = bin(e, LLVMAdd, n, ci(n, 1));
  V z = mul(e, r, r);
  V odd = LLVMBuildICmp(e->builder, LLVMIntNE, bin(e, LLVMAnd, n, ci(n, 1)), ci(n, 0), "");
  V negative = LLVMBuildICmp(e->builder, LLVMIntNE, bin(e, LLVMAnd, n, ci(n, 2)), ci(n, 0), "");
  V c = cos_poly(e, z), s = sin_poly(e, r, z);
  V v = ll_select(e, odd, c, s);
  v = ll_select(e, negative, LLVMBuildFNeg(e->builder, v, ""), v);
  if (!cosine) { /* -0 stays */
    V zero = fcmp(e, LLVMRealOEQ, x, cf(x, 0));
    v = ll_select(e, zero, x, v);
  }
  return patch_huge(e, x, v, cosine ? "cos" : "sin");
}

/* atan(num / den) for 0 <= num <= den, den > 0; Cephes' atan.c and atanf.c. */
static V atan_unit(Emitter *e, V t) {
  static const double p32[] = {-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1,
                               8.05374449538e-2};
  static const double p64[] = {-6.485021904942025371773e1, -1.228866684490136173410e2,
                               -7.500855792314704667340e1, -1.615753718733365076637e1,
                               -8.750608600031904122785e-1};
  static const double q64[] = {1.945506571482613964425e2, 4.853903996359136964868e2,
                               4.328810604912902668951e2, 1.650270098316988542046e2,
                               2.485846490142306297962e1, 1.0};
  bool wide = ll_is_f64(LLVMTypeOf(t));
  V one = cf(t, 1);
  V upper = fcmp(e, LLVMRealOGT, t, cf(t, wide ? 0.66 : 0.41421356237));
  V num = sub(e, t, one), den = add(e, t, one);
  V r = ll_select(e, upper, divide(e, num, den), t);
  V z = mul(e, r, r);
  V p = wide ? poly(e, z, p64, 5) : poly(e, z, p32, 4);
  if (wide) p = divide(e, p, poly(e, z, q64, 6));
  V low = ll_select(e, upper, cf(t, wide ? 3.061616997868382943e-17 : -2.18556941e-8), cf(t, 0));
  V cube = mul(e, r, z);
  V v = ll_fma(e, cube, p, add(e, r, low));
  return add(e, v, ll_select(e, upper, cf(t, 0.78539816339744830962), cf(t, 0)));
}

static V emit_atan2(Emitter *e, V y, V x) {
  bool wide = ll_is_f64(LLVMTypeOf(x));
  V a = fabs_of(e, y), b = fabs_of(e, x);
  V steep = fcmp(e, LLVMRealOGT, a, b);
  V small = ll_select(e, steep, b, a), large = ll_select(e, steep, a, b);
  V t = divide(e, small, large);
  t = ll_select(e, fcmp(e, LLVMRealOEQ, large, cf(x, 0)), cf(x, 0), t);
  t = ll_select(e, fcmp(e, LLVMRealOEQ, small, infinity(x)), cf(x, 1), t);
  V r = atan_unit(e, t);
  /* pi / 2 - r and pi - r, with the part of the constant that its type cannot hold. */
  V low = cf(x, wide ? 6.123233995736765886e-17 : -4.37113883e-8);
  V half_pi = cf(x, 1.57079632679489661923), pi = cf(x, 3.14159265358979323846);
  r = ll_select(e, steep, sub(e, half_pi, sub(e, r, low)), r);
  V bits = ll_bits(e, x);
  V left = LLVMBuildICmp(e->builder, LLVMIntSLT, bits, ci(bits, 0), "");
  r = ll_select(e, left, sub(e, pi, sub(e, r, add(e, low, low))), r);
  r = copysign_of(e, r, y);
  return ll_select(e, fcmp(e, LLVMRealUNO, x, y), not_a_number(x), r);
}

static V emit_atan(Emitter *e, V x) {
  return emit_atan2(e, x, cf(x, 1));
}

static V emit_erf32(Emitter *e, V x) {
  static const double inner[] = {1.28379166e-1,  -3.76125336e-1, 1.12819925e-1,
                                 -2.67681349e-2, 4.99119423e-3,  -5.96761703e-4};
  V t = limit(e, fabs_of(e, x), 0, 10), s = mul(e, t, t);
  V r = ll_fma(e, cf(x, -1.72853470e-5), t, cf(x, 3.83197126e-4));
  V u = ll_fma(e, cf(x, -3.88396438e-3), t, cf(x, 2.42546219e-2));
  r = ll_fma(e, r, s, u);
  r = ll_fma(e, r, t, cf(x, -1.06777877e-1));
  r = ll_fma(e, r, t, cf(x, -6.34846687e-1));
  r = ll_fma(e, r, t, cf(x, -1.28717512e-1));
  r = ll_fma(e, r, t, LLVMBuildFNeg(e->builder, t, ""));
  V far = copysign_of(e, sub(e, cf(x, 1), emit_exp(e, r)), x);
  V near = ll_fma(e, poly(e, s, inner, 6), x, x);
  return ll_select(e, fcmp(e, LLVMRealOGT, t, cf(x, 0.927734375)), far, near);
}

static V emit_erf(Emitter *e, V x) {
  return ll_is_f64(LLVMTypeOf(x)) ? ll_libm(e, "erf", &x, 1) : emit_erf32(e, x);
}

static V emit_erfc(Emitter *e, V x) {
  return ll_libm(e, "erfc", &x, 1);
}

static V emit_pow(Emitter *e, V x, V y) {
  if (ll_is_f64(LLVMTypeOf(x))) return ll_libm(e, "pow", (V[]){x, y}, 2);
  V a = widen(e, x), b = widen(e, y), one = cf(a, 1);
  V size = fabs_of(e, a);
  V r = emit_exp(e, mul(e, b, emit_log(e, size)));
  /* A negative base has a result where b is whole: with the sign of the base where b is odd. */
  V whole = ll_intrinsic(e, "llvm.trunc", &b, 1);
  V is_whole = fcmp(e, LLVMRealOEQ, whole, b);
  V half = mul(e, b, cf(b, 0.5));
  V odd = fcmp(e, LLVMRealONE, ll_intrinsic(e, "llvm.trunc", &half, 1), half);
  odd = bin(e, LLVMAnd, odd, is_whole);
  r = ll_select(e, odd, copysign_of(e, r, a), r);
  V negative = fcmp(e, LLVMRealOLT, a, cf(a, 0));
  V bad = bin(e, LLVMAnd, negative, LLVMBuildNot(e->builder, is_whole, ""));
  /* -inf and -0 have results for every b. */
  bad = bin(e, LLVMAnd, bad, fcmp(e, LLVMRealONE, size, infinity(a)));
  r = ll_select(e, bad, not_a_number(a), r);
  V b_inf = fcmp(e, LLVMRealOEQ, fabs_of(e, b), infinity(b));
  V unit = bin(e, LLVMAnd, fcmp(e, LLVMRealOEQ, size, one), b_inf);
  unit = bin(e, LLVMOr, unit, fcmp(e, LLVMRealOEQ, a, one));
  unit = bin(e, LLVMOr, unit, fcmp(e, LLVMRealOEQ, b, cf(b, 0)));
  return narrow(e, ll_select(e, unit, one, r));
}

V ll_libm(Emitter *e, const char *name, V *args, uint32_t n) {
  LLVMTypeRef t = LLVMTypeOf(args[0]);
  uint32_t lanes = ll_lanes(args[0]);
  LLVMTypeRef element = lanes > 1 ? LLVMGetElementType(t) : t;
  char symbol[16];
  size_t len = strlen(name);
  memcpy(symbol, name, len + 1);
  if (!ll_is_f64(t)) memcpy(symbol + len, "f", 2);
  LLVMTypeRef ft = LLVMFunctionType(element, (LLVMTypeRef[]){element, element}, n, 0);
  V f = LLVMGetNamedFunction(e->module, symbol);
  if (!f) f = LLVMAddFunction(e->module, symbol, ft);
  if (lanes == 1) return LLVMBuildCall2(e->builder, ft, f, args, n, "");
  V out = LLVMGetPoison(t);
  for (uint32_t i = 0; i < lanes; i++) {
    V one[2];
    for (uint32_t j = 0; j < n; j++)
      one[j] = LLVMBuildExtractElement(e->builder, args[j], ll_i64(e, i), "");
    V r = LLVMBuildCall2(e->builder, ft, f, one, n, "");
    out = LLVMBuildInsertElement(e->builder, out, r, ll_i64(e, i), "");
  }
  return out;
}

bool ll_is_elementary(Op op) {
  static const Op ops[] = {OP_EXP,  OP_EXPM1, OP_LOG, OP_LOG1P, OP_TANH, OP_SIN, OP_COS,
                           OP_ATAN, OP_ATAN2, OP_ERF, OP_POW,   OP_EXP2, OP_ERFC};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (ops[i] == op) return true;
  return false;
}

V ll_math(Emitter *e, Op op, V x, V y) {
  if (op == OP_EXP) return emit_exp(e, x);
  if (op == OP_EXP2) return emit_exp2(e, x);
  if (op == OP_EXPM1) return emit_expm1(e, x);
  if (op == OP_LOG) return emit_log(e, x);
  if (op == OP_LOG1P) return emit_log1p(e, x);
  if (op == OP_TANH) return emit_tanh(e, x);
  if (op == OP_SIN || op == OP_COS) return emit_sin_cos(e, x, op == OP_COS);
  if (op == OP_ATAN) return emit_atan(e, x);
  if (op == OP_ATAN2) return emit_atan2(e, x, y);
  if (op == OP_ERF) return emit_erf(e, x);
  if (op == OP_ERFC) return emit_erfc(e, x);
  if (op == OP_POW) return emit_pow(e, x, y);
  return NULL;
}
