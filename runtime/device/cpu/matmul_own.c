/* Matrix products in loops of our own: see matmul.h.
 *
 * One batch entry at a time: both operands are packed into row-major arrays of the type the product
 * is computed in (f64 for f64, f32 for the narrow floats, i64 for integers and bool, which wrap
 * when stored), where they do not lie so already. Rows of the result go to threads in pieces; each
 * element adds its k products in ascending order, so results depend on neither threads nor pieces.
 */
#include <omp.h>
#include <stdlib.h>

#include "device/cpu/matmul.h"
#include "runtime/abi/number.h"

enum { ROWS = 4, COLS = 512 };

static size_t compute_bytes(uint32_t dtype) {
  return dtype == ABI_F64 || !abi_is_float(dtype) ? 8 : 4;
}

/* Whether the buffer is what the loops read: rows of consecutive elements of the computing type. */
static int direct(uint32_t dtype, int64_t column_stride) {
  return (dtype == ABI_F64 || dtype == ABI_F32 || dtype == ABI_I64) && column_stride == 1;
}

size_t dtm_rt_matmul_own_scratch(const MatmulShape *s) {
  return compute_bytes(s->dtype) * (size_t)(s->m * s->k + s->k * s->n + s->m * s->n);
}

static double activate(uint32_t activation, double x) {
  switch ((AbiActivation)activation) {
  case ABI_ACT_NONE:
    break;
  case ABI_ACT_RELU:
    return x > 0 || isnan(x) ? x : 0;
  case ABI_ACT_GELU:
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
  case ABI_ACT_GELU_TANH:
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  case ABI_ACT_SILU:
    return x / (1 + exp(-x));
  case ABI_ACT_TANH:
    return tanh(x);
  }
  return x;
}

/* out[i, j] += sum_k a[i, k] b[k, j] for rows [row, row + rows) and all columns. */
#define PRODUCT(NAME, T)                                                                           \
  static void NAME(const T *a, int64_t lda, const T *b, int64_t ldb, T *out, int64_t n, int64_t k, \
                   int64_t row, int64_t rows) {                                                    \
    for (int64_t i = row; i < row + rows; i += ROWS) {                                             \
      int64_t count = row + rows - i < ROWS ? row + rows - i : ROWS;                               \
      for (int64_t j0 = 0; j0 < n; j0 += COLS) {                                                   \
        int64_t cols = n - j0 < COLS ? n - j0 : COLS;                                              \
        for (int64_t p = 0; p < k; p++) {                                                          \
          const T *restrict from = b + p * ldb + j0;                                               \
          for (int64_t r = 0; r < count; r++) {                                                    \
            const T x = a[(i + r) * lda + p];                                                      \
            T *restrict to = out + (i + r) * n + j0;                                               \
            for (int64_t j = 0; j < cols; j++) to[j] += x * from[j];                               \
          }                                                                                        \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }
PRODUCT(product_f64, double)
PRODUCT(product_f32, float)
PRODUCT(product_i64, uint64_t)
#undef PRODUCT

/* A [rows, cols] view packed row-major into the computing type. */
static void pack(uint32_t dtype, const void *from, int64_t offset, int64_t rows, int64_t cols,
                 int64_t row_stride, int64_t col_stride, void *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      int64_t at = offset + i * row_stride + j * col_stride, put = i * cols + j;
      if (dtype == ABI_F64)
        ((double *)to)[put] = ((const double *)from)[at];
      else if (abi_is_float(dtype))
        ((float *)to)[put] = (float)abi_load(from, dtype, at);
      else
        ((int64_t *)to)[put] = abi_load_int(from, dtype, at);
    }
}

/* The finished rows: bias, activation, addend, and the store. */
static void finish(const MatmulShape *s, const void *sum, const void *bias, const void *addend,
                   int64_t offset, void *out, int64_t row, int64_t rows) {
  for (int64_t i = row; i < row + rows; i++)
    for (int64_t j = 0; j < s->n; j++) {
      int64_t at = offset + i * s->out_m + j * s->out_n, from = i * s->n + j;
      if (!abi_is_float(s->dtype)) {
        uint64_t v = ((const uint64_t *)sum)[from];
        if (s->bias) v += (uint64_t)abi_load_int(bias, s->dtype, j);
        if (s->activation == ABI_ACT_RELU && (int64_t)v < 0) v = 0;
        if (s->addend) v += (uint64_t)abi_load_int(addend, s->dtype, at);
        abi_store_int(out, s->dtype, at, (int64_t)v);
        continue;
      }
      double v =
          s->dtype == ABI_F64 ? ((const double *)sum)[from] : (double)((const float *)sum)[from];
      if (s->bias) v += abi_load(bias, s->dtype, j);
      v = activate(s->activation, v);
      if (s->addend) v += abi_load(addend, s->dtype, at);
      abi_store(out, s->dtype, at, v);
    }
}

typedef struct Operands {
  const void *a, *b;
  int64_t lda, ldb;
  void *sum;
} Operands;

/* One batch entry; operands at these element offsets. */
static void one_product(const MatmulShape *s, const Operands *o, const void *bias,
                        const void *addend, int64_t offset, void *out, int threads) {
  size_t width = compute_bytes(s->dtype);
  int64_t pieces = (s->m + ROWS - 1) / ROWS;
  int useful = (double)s->m * (double)s->n * (double)s->k > 1e5 ? threads : 1;
#pragma omp parallel for schedule(static) num_threads(useful)
  for (int64_t piece = 0; piece < pieces; piece++) {
    int64_t row = piece * ROWS, rows = s->m - row < ROWS ? s->m - row : ROWS;
    memset((char *)o->sum + (size_t)(row * s->n) * width, 0, (size_t)(rows * s->n) * width);
    if (s->dtype == ABI_F64)
      product_f64(o->a, o->lda, o->b, o->ldb, o->sum, s->n, s->k, row, rows);
    else if (abi_is_float(s->dtype))
      product_f32(o->a, o->lda, o->b, o->ldb, o->sum, s->n, s->k, row, rows);
    else
      product_i64(o->a, o->lda, o->b, o->ldb, o->sum, s->n, s->k, row, rows);
    finish(s, o->sum, bias, addend, offset, out, row, rows);
  }
}

void dtm_rt_matmul_own(const MatmulShape *s, const void *a, const void *b, const void *bias,
                       const void *addend, void *out, void *scratch, int threads) {
  size_t width = compute_bytes(s->dtype), element = abi_dtype_bytes(s->dtype);
  char *pa = scratch, *pb = pa + width * (size_t)(s->m * s->k);
  int64_t count = 1;
  for (uint32_t d = 0; d < s->nbatch; d++) count *= s->batch[d];
  for (int64_t i = 0; i < count; i++) {
    int64_t at_a = 0, at_b = 0, at_out = 0, rest = i;
    for (uint32_t d = s->nbatch; d-- > 0;) {
      int64_t c = rest % s->batch[d];
      rest /= s->batch[d];
      at_a += c * s->a_batch[d];
      at_b += c * s->b_batch[d];
      at_out += c * s->out_batch[d];
    }
    Operands o = {.a = (const char *)a + (size_t)at_a * element,
                  .b = (const char *)b + (size_t)at_b * element,
                  .lda = s->a_m,
                  .ldb = s->b_k,
                  .sum = pb + width * (size_t)(s->k * s->n)};
    if (!direct(s->dtype, s->a_k)) {
      pack(s->dtype, a, at_a, s->m, s->k, s->a_m, s->a_k, pa);
      o.a = pa;
      o.lda = s->k;
    }
    if (!direct(s->dtype, s->b_n)) {
      pack(s->dtype, b, at_b, s->k, s->n, s->b_k, s->b_n, pb);
      o.b = pb;
      o.ldb = s->n;
    }
    one_product(s, &o, bias, addend, at_out, out, threads);
  }
}
