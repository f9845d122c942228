/* The stand-in for cuBLASLt: products against sums in f64, and what is refused. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/blas_product.h"
#include "gpusim/standin_driver.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

#define X(member, entry, result, parameters) result entry parameters;
CUDA_BLASLT(X)
#undef X

enum { M = 5, N = 3, K = 7, BATCH = 2, LD = 9, AREA = LD * LD };

static CUdeviceptr memory[4]; /* a, b, c and d, bias */
static LtContext *context;

static void begin(void) {
  CUcontext c;
  setenv("GPUSIM_REPORT", "/dev/null", 1);
  ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
  cuDevicePrimaryCtxRetain(&c, 0);
  cuCtxSetCurrent(c);
  for (int i = 0; i < 4; i++) {
    cuMemAlloc_v2(&memory[i], BATCH * AREA * 8);
    cuMemsetD8Async(memory[i], 0, BATCH * AREA * 8, NULL);
  }
  ck_assert_int_eq(cublasLtCreate(&context), LT_SUCCESS);
}

static double number(int which, int i) {
  return (double)((i * 7 + which * 3) % 11 - 5) / 4; /* exact in every type */
}

static size_t width(LtType type) {
  return type == LT_R_64F ? 8 : type == LT_R_32F ? 4 : 2;
}

static void put(unsigned char *at, LtType type, double x) {
  float f = (float)x;
  uint16_t h = type == LT_R_16F ? abi_to_f16(f) : abi_to_bf16(f);
  memcpy(at,
         type == LT_R_64F   ? (void *)&x
         : type == LT_R_32F ? (void *)&f
                            : (void *)&h,
         width(type));
}

static double get(const unsigned char *at, LtType type) {
  double x;
  float f;
  uint16_t h;
  memcpy(&x, at, type == LT_R_64F ? 8 : 0);
  memcpy(&f, at, type == LT_R_32F ? 4 : 0);
  memcpy(&h, at, 2);
  if (type == LT_R_64F) return x;
  if (type == LT_R_32F) return f;
  return type == LT_R_16F ? abi_from_f16(h) : abi_from_bf16(h);
}

static void upload(int which, LtType type) {
  static unsigned char bytes[BATCH * AREA * 8];
  for (int i = 0; i < BATCH * AREA; i++)
    put(bytes + (size_t)i * width(type), type, number(which, i));
  ck_assert_int_eq(cuMemcpyHtoD_v2(memory[which], bytes, sizeof bytes / 8 * width(type)),
                   CUDA_SUCCESS);
}

typedef struct Case {
  LtType type, result;
  int32_t ta, tb;
  uint32_t epilogue;
  float alpha, beta;
} Case;

static LtMatrixLayout *layout(LtType type, uint64_t rows, uint64_t cols) {
  LtMatrixLayout *l;
  int32_t count = BATCH;
  int64_t stride = AREA;
  ck_assert_int_eq(cublasLtMatrixLayoutCreate(&l, type, rows, cols, LD), LT_SUCCESS);
  ck_assert_int_eq(cublasLtMatrixLayoutSetAttribute(l, LT_LAYOUT_BATCH_COUNT, &count, 4),
                   LT_SUCCESS);
  ck_assert_int_eq(cublasLtMatrixLayoutSetAttribute(l, LT_LAYOUT_STRIDED_BATCH_OFFSET, &stride, 8),
                   LT_SUCCESS);
  return l;
}

static LtMatmulDesc *description(const Case *c) {
  LtMatmulDesc *d;
  bool doubles = c->type == LT_R_64F;
  ck_assert_int_eq(cublasLtMatmulDescCreate(&d, doubles ? LT_COMPUTE_64F : LT_COMPUTE_32F,
                                            doubles ? LT_R_64F : LT_R_32F),
                   LT_SUCCESS);
  void *bias = (void *)(uintptr_t)memory[3];
  cublasLtMatmulDescSetAttribute(d, LT_MATMUL_TRANSA, &c->ta, 4);
  cublasLtMatmulDescSetAttribute(d, LT_MATMUL_TRANSB, &c->tb, 4);
  cublasLtMatmulDescSetAttribute(d, LT_MATMUL_EPILOGUE, &c->epilogue, 4);
  ck_assert_int_eq(cublasLtMatmulDescSetAttribute(d, LT_MATMUL_BIAS_POINTER, &bias, sizeof bias),
                   LT_SUCCESS);
  return d;
}

static LtPreference *preference(uint32_t alignment) {
  LtPreference *p;
  uint64_t workspace = 0;
  ck_assert_int_eq(cublasLtMatmulPreferenceCreate(&p), LT_SUCCESS);
  cublasLtMatmulPreferenceSetAttribute(p, LT_PREF_MAX_WORKSPACE_BYTES, &workspace, 8);
  for (int i = LT_PREF_MIN_ALIGNMENT_A_BYTES; i <= LT_PREF_MIN_ALIGNMENT_D_BYTES; i++)
    ck_assert_int_eq(
        cublasLtMatmulPreferenceSetAttribute(p, (LtPreferenceAttribute)i, &alignment, 4),
        LT_SUCCESS);
  return p;
}

/* D over C, in place. */
static LtStatus run(const Case *c, const LtHeuristic *found, LtMatmulDesc *d, LtMatrixLayout *a,
                    LtMatrixLayout *b, LtMatrixLayout *out, size_t shift) {
  double alpha = c->alpha, beta = c->beta;
  bool doubles = c->type == LT_R_64F;
  char *at = (char *)(uintptr_t)memory[2];
  return cublasLtMatmul(context, d, doubles ? (void *)&alpha : (void *)&c->alpha,
                        (char *)(uintptr_t)memory[0] + shift, a, (void *)(uintptr_t)memory[1], b,
                        doubles ? (void *)&beta : (void *)&c->beta, at, out, at, out, &found->algo,
                        NULL, 0, NULL);
}

static double expected(const Case *c, int batch, int i, int j) {
  double sum = 0;
  int first = batch * AREA;
  for (int k = 0; k < K; k++)
    sum += number(0, first + (c->ta ? i * LD + k : k * LD + i)) *
           number(1, first + (c->tb ? k * LD + j : j * LD + k));
  double x = c->alpha * sum + c->beta * number(2, first + j * LD + i);
  if (c->epilogue == LT_EPILOGUE_DEFAULT) return x;
  if (c->epilogue & 4) x += number(3, i);
  if (c->epilogue & 2 && x < 0) x = 0;
  if (c->epilogue & 32) x = x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
  return x;
}

START_TEST(products_are_right) {
  static const Case cases[] = {
      {LT_R_32F, LT_R_32F, 0, 0, 1, 1, 0},  {LT_R_32F, LT_R_32F, 1, 0, 4, 0.5f, 1},
      {LT_R_32F, LT_R_32F, 0, 1, 36, 1, 0}, {LT_R_32F, LT_R_32F, 1, 1, 32, -1, 2},
      {LT_R_64F, LT_R_64F, 1, 0, 4, 1, 1},  {LT_R_16BF, LT_R_16BF, 0, 1, 6, 1, 1},
      {LT_R_16BF, LT_R_32F, 1, 1, 1, 1, 1}, {LT_R_16F, LT_R_16F, 0, 0, 2, 1, 0},
  };
  static const double bounds[] = {
      [LT_R_32F] = 1e-6, [LT_R_64F] = 1e-14, [LT_R_16F] = 1e-3, [LT_R_16BF] = 1.0 / 256};
  const Case *c = &cases[_i];
  begin();
  for (int i = 0; i < 4; i++) upload(i, i < 2 ? c->type : c->result);
  LtMatrixLayout *a = c->ta ? layout(c->type, K, M) : layout(c->type, M, K);
  LtMatrixLayout *b = c->tb ? layout(c->type, N, K) : layout(c->type, K, N);
  LtMatrixLayout *out = layout(c->result, M, N);
  LtMatmulDesc *d = description(c);
  LtHeuristic found;
  int count;
  ck_assert_int_eq(
      cublasLtMatmulAlgoGetHeuristic(context, d, a, b, out, out, preference(16), 1, &found, &count),
      LT_SUCCESS);
  ck_assert_int_eq(count, 1);
  ck_assert_int_eq(run(c, &found, d, a, b, out, 0), LT_SUCCESS);
  static unsigned char bytes[BATCH * AREA * 8];
  ck_assert_int_eq(cuMemcpyDtoH_v2(bytes, memory[2], sizeof bytes), CUDA_SUCCESS);
  for (int at = 0; at < BATCH * AREA; at++) {
    double x = get(bytes + (size_t)at * width(c->result), c->result);
    int batch = at / AREA, j = at % AREA / LD, i = at % LD;
    double want = i < M && j < N ? expected(c, batch, i, j) : number(2, at);
    ck_assert_msg(fabs(x - want) <= bounds[c->result] * (1 + fabs(want)), "%d: %g, not %g", at, x,
                  want);
  }
}
END_TEST

START_TEST(what_is_refused) {
  static const Case c = {LT_R_32F, LT_R_32F, 0, 0, 1, 1, 0};
  begin();
  LtMatrixLayout *a = layout(LT_R_32F, M, K), *b = layout(LT_R_32F, K, N);
  LtMatrixLayout *out = layout(LT_R_32F, M, N), *other = layout(LT_R_32F, M, M), *bad;
  LtMatmulDesc *d = description(&c);
  LtHeuristic found;
  int count;
  ck_assert_int_eq(cublasLtMatrixLayoutCreate(&bad, LT_R_32F, 8, 8, 7), LT_INVALID_VALUE);
  ck_assert_int_eq(cublasLtMatmulDescSetAttribute(d, (LtMatmulAttribute)9, &count, 4),
                   LT_INVALID_VALUE);
  ck_assert_int_eq(cublasLtMatmulDescSetAttribute(d, LT_MATMUL_TRANSA, &count, 8),
                   LT_INVALID_VALUE);
  ck_assert_int_eq(cublasLtMatmulAlgoGetHeuristic(context, d, a, b, other, other, preference(4), 1,
                                                  &found, &count),
                   LT_NOT_SUPPORTED);
  ck_assert_int_eq(count, 0);
  LtMatrixLayout *half = layout(LT_R_16BF, K, N);
  ck_assert_int_eq(cublasLtMatmulAlgoGetHeuristic(context, d, a, half, out, out, preference(4), 1,
                                                  &found, &count),
                   LT_NOT_SUPPORTED);
  ck_assert_int_eq(
      cublasLtMatmulAlgoGetHeuristic(context, d, a, b, out, out, preference(16), 1, &found, &count),
      LT_SUCCESS);
  ck_assert_int_eq(run(&c, &found, d, a, b, out, 4), LT_INVALID_VALUE); /* less aligned */
  int32_t yes = 1;
  cublasLtMatmulDescSetAttribute(d, LT_MATMUL_TRANSA, &yes, 4);
  LtMatrixLayout *turned = layout(LT_R_32F, K, M);
  ck_assert_int_eq(run(&c, &found, d, turned, b, out, 0), LT_INVALID_VALUE); /* of another */
  ck_assert_int_eq(cublasLtMatmulDescDestroy(d), LT_SUCCESS);
  ck_assert_int_eq(cublasLtMatmulDescDestroy(d), LT_INVALID_VALUE);
}
END_TEST

START_TEST(unwritten_operands_are_a_fault) {
  static const Case c = {LT_R_32F, LT_R_32F, 0, 0, 1, 1, 0};
  CUdeviceptr fresh;
  begin();
  cuMemAlloc_v2(&fresh, AREA * 8);
  memory[0] = fresh;
  LtMatrixLayout *a, *b, *out;
  cublasLtMatrixLayoutCreate(&a, LT_R_32F, M, K, LD);
  cublasLtMatrixLayoutCreate(&b, LT_R_32F, K, N, LD);
  cublasLtMatrixLayoutCreate(&out, LT_R_32F, M, N, LD);
  LtMatmulDesc *d = description(&c);
  LtHeuristic found;
  int count;
  cublasLtMatmulAlgoGetHeuristic(context, d, a, b, out, out, preference(16), 1, &found, &count);
  ck_assert_int_eq(run(&c, &found, d, a, b, out, 0), LT_SUCCESS);
  ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("standin_cublaslt");
  TCase *t = tcase_create("standin_cublaslt");
  tcase_add_loop_test(t, products_are_right, 0, 8);
  tcase_add_test(t, what_is_refused);
  tcase_add_test(t, unwritten_operands_are_a_fault);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
