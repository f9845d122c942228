/* Pointwise operators of compiled kernels, primitives and what is made of them, against libm in
 * higher precision: dense samples, special values, stated ulp bounds; f32 and f64. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "jit.h"
#include "kernel/build.h"
#include "support/suite.h"

/* Functions of CUDA's library are up to one unit worse; the interpreter rounds approximate
 * instructions, which chips may have wrong by one or two more. */
#ifdef DTM_TEST_CUDA
enum { SAMPLES = 4000, WORSE = 1 };
#else
enum { SAMPLES = 40000, WORSE = 0 };
#endif

static Arena arena;

/* out[i] = op(x[i], y[i]) over one vector dim. */
static Kernel *map_kernel(uint32_t number, Op op, DType storage, uint32_t arity) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  kb_block(&b, true);
  KRef x[3] = {0};
  for (uint32_t i = 0; i < arity; i++) {
    KAccess a = kb_access(kb_buf(&b, KBUF_TENSOR, storage, false));
    a.stride[0] = KINT_ONE;
    x[i] = kb_load(&b, a, 0, 0);
  }
  KRef r = kb_point(&b, op, x[0], x[1], x[2]);
  DType out = kb_type(&b, r) == DT_BOOL ? DT_BOOL : storage;
  KAccess a = kb_access(kb_buf(&b, KBUF_TENSOR, out, true));
  a.stride[0] = KINT_ONE;
  kb_store(&b, a, r, 0);
  Kernel *k = kb_finish(&b);
  k->name = arena_printf(&arena, "k%u_%s_%s", number, op_name(op), dtype_name(storage));
  return k;
}

typedef long double Ref(long double x, long double y);
#define UNARY(name, e)                                                                             \
  static long double name(long double x, long double y) {                                          \
    (void)y;                                                                                       \
    return e;                                                                                      \
  }
UNARY(ref_exp, expl(x))
UNARY(ref_expm1, expm1l(x))
UNARY(ref_log, logl(x))
UNARY(ref_log1p, log1pl(x))
UNARY(ref_tanh, tanhl(x))
UNARY(ref_sin, sinl(x))
UNARY(ref_cos, cosl(x))
UNARY(ref_atan, atanl(x))
UNARY(ref_erf, erfl(x))
UNARY(ref_erfc, erfcl(x))
UNARY(ref_exp2, exp2l(x))
UNARY(ref_log2, log2l(x))
UNARY(ref_log10, log10l(x))
UNARY(ref_tan, tanl(x))
UNARY(ref_asin, asinl(x))
UNARY(ref_acos, acosl(x))
UNARY(ref_sinh, sinhl(x))
UNARY(ref_cosh, coshl(x))
UNARY(ref_asinh, asinhl(x))
UNARY(ref_acosh, acoshl(x))
UNARY(ref_atanh, atanhl(x))
UNARY(ref_softplus, x > 40 ? x + log1pl(expl(-x)) : log1pl(expl(x)))
UNARY(ref_log_sigmoid, x > 12000 ? 0 : x < -40 ? x - log1pl(expl(x)) : -log1pl(expl(-x)))
UNARY(ref_rsqrt, 1 / sqrtl(x))
UNARY(ref_sqrt, sqrtl(x))
UNARY(ref_floor, floorl(x))
UNARY(ref_ceil, ceill(x))
UNARY(ref_trunc, truncl(x))
UNARY(ref_round, rintl(x))
UNARY(ref_abs, fabsl(x))
UNARY(ref_neg, -x)
static long double ref_atan2(long double x, long double y) {
  return atan2l(x, y);
}
static long double ref_pow(long double x, long double y) {
  return powl(x, y);
}
static long double ref_hypot(long double x, long double y) {
  return isnan(x) || isnan(y) ? NAN : hypotl(x, y);
}
static long double ref_add(long double x, long double y) {
  return x + y;
}
static long double ref_div(long double x, long double y) {
  return x / y;
}
static long double ref_fmod(long double x, long double y) {
  return fmodl(x, y);
}
static long double ref_floor_div(long double x, long double y) {
  long double r = fmodl(x, y), q = rintl((x - r) / y) - (r != 0 && signbit(r) != signbit(y));
  return y == 0 ? x / y : q == 0 ? copysignl(0, x / y) : q;
}
static long double ref_remainder(long double x, long double y) {
  long double r = fmodl(x, y);
  return r != 0 && signbit(r) != signbit(y) ? r + y : r;
}
static long double ref_trunc_div(long double x, long double y) {
  return truncl(x / y);
}
static long double ref_max(long double x, long double y) {
  return isnan(x) || isnan(y) ? NAN : x > y ? x : y;
}

typedef struct Case {
  Op op;
  uint32_t arity;
  Ref *ref;
  double lo, hi, ylo, yhi; /* samples */
  double ulp32, ulp64;
} Case;

static const Case cases[] = {
    {OP_EXP, 1, ref_exp, -110, 92, 0, 0, 1, 1},
    {OP_EXP, 1, ref_exp, -760, 712, 0, 0, 1, 1},
    {OP_EXP, 1, ref_exp, -1, 1, 0, 0, 1, 1},
    {OP_EXPM1, 1, ref_expm1, -60, 90, 0, 0, 2, 2},
    {OP_EXPM1, 1, ref_expm1, -1, 1, 0, 0, 2, 2},
    {OP_EXPM1, 1, ref_expm1, -1e-3, 1e-3, 0, 0, 2, 2},
    {OP_LOG, 1, ref_log, 0, 10, 0, 0, 1, 1},
    {OP_LOG, 1, ref_log, 0.9, 1.1, 0, 0, 1, 1},
    {OP_LOG, 1, ref_log, 0, 1e30, 0, 0, 1, 1},
    {OP_LOG, 1, ref_log, 0, 1e-39, 0, 0, 1, 1},
    {OP_LOG1P, 1, ref_log1p, -1, 4, 0, 0, 2, 2},
    {OP_LOG1P, 1, ref_log1p, -1e-3, 1e-3, 0, 0, 2, 2},
    {OP_LOG1P, 1, ref_log1p, 0, 1e20, 0, 0, 2, 2},
    {OP_TANH, 1, ref_tanh, -12, 12, 0, 0, 3, 3},
    {OP_TANH, 1, ref_tanh, -1e-2, 1e-2, 0, 0, 3, 3},
    {OP_SIN, 1, ref_sin, -10, 10, 0, 0, 3, 3},
    {OP_SIN, 1, ref_sin, -1e5, 1e5, 0, 0, 3, 3},
    {OP_SIN, 1, ref_sin, -1e30, 1e30, 0, 0, 3, 3},
    {OP_COS, 1, ref_cos, -10, 10, 0, 0, 3, 3},
    {OP_COS, 1, ref_cos, -1e6, 1e6, 0, 0, 3, 3},
    {OP_COS, 1, ref_cos, -1e9, 1e9, 0, 0, 3, 3},
    {OP_ATAN, 1, ref_atan, -20, 20, 0, 0, 3, 3},
    {OP_ATAN, 1, ref_atan, -1e5, 1e5, 0, 0, 3, 3},
    {OP_ATAN2, 2, ref_atan2, -3, 3, -3, 3, 3, 3},
    {OP_ERF, 1, ref_erf, -5, 5, 0, 0, 2, 1},
    {OP_ERF, 1, ref_erf, -1e-2, 1e-2, 0, 0, 2, 1},
    {OP_POW, 2, ref_pow, 0, 20, -30, 30, 1, 1},
    {OP_POW, 2, ref_pow, -20, 20, -30, 30, 1, 1},
    {OP_ERFC, 1, ref_erfc, -6, 30, 0, 0, 3, 3},
    {OP_ERFC, 1, ref_erfc, -1, 5, 0, 0, 3, 3},
    {OP_EXP2, 1, ref_exp2, -160, 130, 0, 0, 1, 1},
    {OP_EXP2, 1, ref_exp2, -1080, 1025, 0, 0, 1, 1},
    {OP_EXP2, 1, ref_exp2, -1, 1, 0, 0, 1, 1},
    {OP_LOG2, 1, ref_log2, 0, 10, 0, 0, 3, 3},
    {OP_LOG10, 1, ref_log10, 0, 10, 0, 0, 3, 3},
    {OP_TAN, 1, ref_tan, -10, 10, 0, 0, 3, 3},
    {OP_ASIN, 1, ref_asin, -1, 1, 0, 0, 3, 3},
    {OP_ACOS, 1, ref_acos, -1, 1, 0, 0, 3, 3},
    {OP_SINH, 1, ref_sinh, -91, 91, 0, 0, 3, 3},
    {OP_SINH, 1, ref_sinh, -1, 1, 0, 0, 3, 3},
    {OP_SINH, 1, ref_sinh, -712, 712, 0, 0, 3, 3},
    {OP_COSH, 1, ref_cosh, -91, 91, 0, 0, 3, 3},
    {OP_COSH, 1, ref_cosh, -712, 712, 0, 0, 3, 3},
    {OP_ASINH, 1, ref_asinh, -100, 100, 0, 0, 3, 3},
    {OP_ASINH, 1, ref_asinh, -1e30, 1e30, 0, 0, 3, 3},
    {OP_ASINH, 1, ref_asinh, -1, 1, 0, 0, 3, 3},
    {OP_ACOSH, 1, ref_acosh, 1, 1.1, 0, 0, 3, 3},
    {OP_ACOSH, 1, ref_acosh, 1, 100, 0, 0, 3, 3},
    {OP_ACOSH, 1, ref_acosh, 1, 1e30, 0, 0, 3, 3},
    {OP_ATANH, 1, ref_atanh, -1, 1, 0, 0, 3, 3},
    {OP_HYPOT, 2, ref_hypot, -3, 3, -3, 3, 3, 3},
    {OP_HYPOT, 2, ref_hypot, -1e30, 1e30, -1e30, 1e30, 3, 3},
    {OP_SOFTPLUS, 1, ref_softplus, -110, 40, 0, 0, 3, 3},
    {OP_LOG_SIGMOID, 1, ref_log_sigmoid, -40, 110, 0, 0, 3, 3},
    {OP_RSQRT, 1, ref_rsqrt, 0, 10, 0, 0, 3, 3},
    {OP_SQRT, 1, ref_sqrt, 0, 1e10, 0, 0, 0.5, 0.5},
    {OP_FLOOR, 1, ref_floor, -100, 100, 0, 0, 0, 0},
    {OP_CEIL, 1, ref_ceil, -100, 100, 0, 0, 0, 0},
    {OP_TRUNC, 1, ref_trunc, -100, 100, 0, 0, 0, 0},
    {OP_ROUND, 1, ref_round, -100, 100, 0, 0, 0, 0},
    {OP_ABS, 1, ref_abs, -100, 100, 0, 0, 0, 0},
    {OP_NEG, 1, ref_neg, -100, 100, 0, 0, 0, 0},
    {OP_ADD, 2, ref_add, -100, 100, -3, 3, 0.5, 0.5},
    {OP_DIV, 2, ref_div, -100, 100, -3, 3, 0.5, 0.5},
    {OP_FMOD, 2, ref_fmod, -100, 100, -3, 3, 0.5, 0.5},
    {OP_FLOOR_DIV, 2, ref_floor_div, -100, 100, -3, 3, 0.5, 0.5},
    {OP_FLOOR_DIV, 2, ref_floor_div, 1, 1, 0.1, 0.1, 0.5, 0.5},
    {OP_TRUNC_DIV, 2, ref_trunc_div, -100, 100, -3, 3, 0.5, 0.5},
    {OP_REMAINDER, 2, ref_remainder, -100, 100, -3, 3, 0.5, 0.5},
    {OP_MAXIMUM, 2, ref_max, -100, 100, -30, 30, 0, 0},
};
enum { NCASES = sizeof cases / sizeof *cases };

static double random_between(uint64_t *state, double lo, double hi) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return lo + (hi - lo) * ((double)(*state >> 11) * 0x1p-53);
}

/* Whole exponents too, so that pow sees integers. */
static void fill(double *x, double lo, double hi, uint64_t seed, bool whole) {
  static const double special[] = {0,        -0.0,
                                   INFINITY, -INFINITY,
                                   NAN,      1,
                                   -1,       2,
                                   -2,       0.5,
                                   -0.5,     3,
                                   -3,       1e-40,
                                   -1e-40,   1e-300,
                                   3e38,     -3e38,
                                   1e300,    88.72,
                                   89,       709.78,
                                   710,      -103.9,
                                   -745.1,   1.5707963267948966,
                                   1e15};
  uint64_t state = seed;
  enum { NS = sizeof special / sizeof *special };
  for (int i = 0; i < SAMPLES; i++) x[i] = random_between(&state, lo, hi);
  for (int i = 0; whole && i < SAMPLES; i += 3) x[i] = rint(x[i]);
  for (int i = 0; i < NS; i++) x[i] = special[i];
  /* every pair of special values, for two operands */
  for (int i = 0; i < NS * NS; i++) x[64 + i] = seed & 1 ? special[i / NS] : special[i % NS];
}

/* Distance in units of the last place of `want` in a format with this many mantissa bits. */
static double ulps(double got, long double want, int bits, int least) {
  if (isnan(got) && isnan(want)) return 0;
  if ((long double)got == want) return 0;
  if (isnan(got) || isnan(want)) return INFINITY;
  int e;
  frexpl(want, &e);
  if (isinf(got)) { /* right when the exact result rounds to infinity */
    e = bits == 24 ? 128 : 1024;
    if (fabsl(want) >= ldexpl(1, e) && !signbit(got) == !signbit(want)) return 0;
    got = copysign(1, got);
    return (double)(fabsl((long double)got * ldexpl(1, e) - want) / ldexpl(1, e - bits));
  }
  if (isinf(want)) return INFINITY;
  if (want == 0) e = least;
  if (e - bits < least) e = least + bits;
  return (double)(fabsl((long double)got - want) / ldexpl(1, e - bits));
}

static Jit jit32, jit64;

static void check_case(const Case *c, uint32_t index, bool wide) {
  static double x[SAMPLES], y[SAMPLES], out[SAMPLES];
  static float xf[SAMPLES], yf[SAMPLES], outf[SAMPLES];
  fill(x, c->lo, c->hi, 1, false);
  fill(y, c->ylo, c->yhi, 2, c->op == OP_POW);
  for (int i = 0; i < SAMPLES; i++) {
    xf[i] = (float)x[i];
    yf[i] = (float)y[i];
  }
  void *bufs[3];
  const size_t size = SAMPLES * (wide ? sizeof(double) : sizeof(float));
  uint32_t n = 0;
  bufs[n++] = wide ? (void *)x : xf;
  if (c->arity == 2) bufs[n++] = wide ? (void *)y : yf;
  bufs[n++] = wide ? (void *)out : outf;
  int64_t ints[1] = {SAMPLES};
  jit_call(wide ? &jit64 : &jit32, index, bufs, (size_t[]){size, size, size}, ints, 1, 1);
  double bound = wide ? c->ulp64 : c->ulp32, worst = 0;
  if (bound > 0.5) bound += WORSE; /* what is less is IEEE's */
  int at = 0;
  for (int i = 0; i < SAMPLES; i++) {
    long double want = wide ? c->ref(x[i], y[i]) : c->ref(xf[i], yf[i]);
    double got = wide ? out[i] : (double)outf[i];
    double u = ulps(got, want, wide ? 53 : 24, wide ? -1074 : -149);
    if (want == 0 && got == 0 && c->op != OP_FMOD && !signbit(want) != !signbit(got)) u = INFINITY;
    if (u <= worst) continue;
    worst = u;
    at = i;
  }
  if (getenv("DTM_TEST_VERBOSE"))
    printf("%-8s f%d [%g, %g] %.3f ulp at %.17g\n", op_name(c->op), wide ? 64 : 32, c->lo, c->hi,
           worst, wide ? x[at] : xf[at]);
  ck_assert_msg(worst <= bound, "%s f%d: %.3f ulp at (%.17g, %.17g): %.17g, should be %.17Lg",
                op_name(c->op), wide ? 64 : 32, worst, wide ? x[at] : xf[at], wide ? y[at] : yf[at],
                wide ? out[at] : outf[at], wide ? c->ref(x[at], y[at]) : c->ref(xf[at], yf[at]));
}

START_TEST(test_f32) {
  check_case(&cases[_i], (uint32_t)_i, false);
}
END_TEST

START_TEST(test_f64) {
  check_case(&cases[_i], (uint32_t)_i, true);
}
END_TEST

int main(void) {
  arena_init(&arena);
  Kernel *k32[NCASES], *k64[NCASES];
  for (int i = 0; i < NCASES; i++) {
    k32[i] = map_kernel(i, cases[i].op, DT_F32, cases[i].arity);
    k64[i] = map_kernel(i, cases[i].op, DT_F64, cases[i].arity);
  }
  jit32 = jit_load(&arena, k32, NCASES, "native");
  jit64 = jit_load(&arena, k64, NCASES, "native");
  Suite *suite = suite_create("math");
  TCase *t = tcase_create("pointwise");
  tcase_add_loop_test(t, test_f32, 0, NCASES);
  tcase_add_loop_test(t, test_f64, 0, NCASES);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
