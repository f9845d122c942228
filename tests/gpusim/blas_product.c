/* What a product of cuBLASLt computes: see blas_product.h. */
#include "gpusim/blas_product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/number.h"

/* Epilogues, as bits: RELU 2, BIAS 4, GELU 32, and BIAS with either. */
enum { RELU = 2 };

bool blas_epilogue_known(uint32_t epilogue) {
  uint32_t activation = epilogue & ~(uint32_t)LT_EPILOGUE_BIAS;
  if (epilogue == LT_EPILOGUE_DEFAULT) return true;
  return activation == 0 ? epilogue == LT_EPILOGUE_BIAS
                         : activation == RELU || activation == LT_EPILOGUE_GELU;
}

size_t blas_type_bytes(LtType type) {
  switch (type) {
  case LT_R_32F:
    return 4;
  case LT_R_64F:
    return 8;
  case LT_R_16F:
  case LT_R_16BF:
    return 2;
  }
  return 0;
}

const char *blas_product_check(const BlasProduct *p, bool doubles) {
  uint64_t m = p->transpose[0] ? p->a.cols : p->a.rows, k = p->transpose[0] ? p->a.rows : p->a.cols;
  uint64_t n = p->transpose[1] ? p->b.rows : p->b.cols, l = p->transpose[1] ? p->b.cols : p->b.rows;
  if (k != l || p->d.rows != m || p->d.cols != n) return "sizes of the matrices do not match";
  if (p->c.rows != m || p->c.cols != n || p->c.type != p->d.type) return "C is not as D";
  if (p->a.batch != p->d.batch || p->b.batch != p->d.batch || p->c.batch != p->d.batch)
    return "batches of different sizes";
  if (p->d.batch > 1 && p->d.stride >= 0 && (uint64_t)p->d.stride < p->d.rows &&
      p->d.stride < p->d.ld * (int64_t)p->d.cols)
    return "results of a batch overlap";
  if (p->a.type != p->b.type) return "A and B are of different types";
  if (doubles != (p->a.type == LT_R_64F)) return "elements and computation do not match";
  bool narrow = p->a.type == LT_R_16F || p->a.type == LT_R_16BF;
  bool typed = p->d.type == p->a.type || (narrow && p->d.type == LT_R_32F);
  return typed ? NULL : "no such type of D";
}

/* The bias is the same for all of a batch. */
static bool is_biased(const BlasProduct *p) {
  return p->epilogue & LT_EPILOGUE_BIAS;
}

/* Elements from the first to the last of a matrix of a batch, and all of them. */
static size_t span(const BlasMatrix *x) {
  size_t one = (size_t)x->ld * (x->cols - 1) + x->rows;
  return (one + (size_t)x->stride * (size_t)(x->batch - 1)) * blas_type_bytes(x->type);
}

const char *blas_product_check_memory(const BlasProduct *p, const SimDevice *device) {
  if (!sim_memory_on(device, p->at_a, span(&p->a))) return "A is not inside one allocation";
  if (!sim_memory_on(device, p->at_b, span(&p->b))) return "B is not inside one allocation";
  if (!sim_memory_on(device, p->at_d, span(&p->d))) return "D is not inside one allocation";
  if (p->beta != 0 && !sim_memory_on(device, p->at_c, span(&p->c)))
    return "C is not inside one allocation";
  if (is_biased(p) && !sim_memory_on(device, p->bias, p->d.rows * blas_type_bytes(p->d.type)))
    return "the bias is not inside one allocation";
  const char *d = p->at_d, *others[] = {p->at_a, p->at_b};
  size_t sizes[] = {span(&p->a), span(&p->b)};
  for (int i = 0; i < 2; i++)
    if (others[i] < d + span(&p->d) && d < others[i] + sizes[i] && p->d.batch == 1)
      return "D overlaps an operand";
  if (p->beta != 0 && p->at_c == p->at_d && (p->c.ld != p->d.ld || p->c.stride != p->d.stride))
    return "C is D, laid out differently";
  return NULL;
}

void blas_product_forget(BlasProduct *p) {
  p->at_a = p->at_b = p->at_c = p->bias = NULL;
  p->at_d = NULL;
  p->alpha = p->beta = 0;
}

/* --- elements ----------------------------------------------------------------------------------
 */

static double load(const void *at, LtType type, size_t i) {
  switch (type) {
  case LT_R_64F:
    return ((const double *)at)[i];
  case LT_R_32F:
    return ((const float *)at)[i];
  case LT_R_16F:
    return abi_from_f16(((const uint16_t *)at)[i]);
  case LT_R_16BF:
    return abi_from_bf16(((const uint16_t *)at)[i]);
  }
  return NAN;
}

static void store(void *at, LtType type, size_t i, double value) {
  switch (type) {
  case LT_R_64F:
    ((double *)at)[i] = value;
    break;
  case LT_R_32F:
    ((float *)at)[i] = (float)value;
    break;
  case LT_R_16F:
    ((uint16_t *)at)[i] = abi_to_f16((float)value);
    break;
  case LT_R_16BF:
    ((uint16_t *)at)[i] = abi_to_bf16((float)value);
    break;
  }
}

static double activate(double x, uint32_t epilogue) {
  if (epilogue & RELU) return x > 0 ? x : x < 0 ? 0 : x; /* keeps NaN */
  if (epilogue & LT_EPILOGUE_GELU)
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

/* --- one matrix of a batch ---------------------------------------------------------------------
 */

/* op(X) as numbers, `lines` of `length` one after the other: rows of op(A), columns of op(B). The
 * element of line i at j is at i * by_line + j * by_step. */
static void unpack(double *to, const void *from, LtType type, size_t lines, size_t length,
                   size_t by_line, size_t by_step) {
  for (size_t i = 0; i < lines; i++)
    for (size_t j = 0; j < length; j++)
      to[i * length + j] = load(from, type, i * by_line + j * by_step);
}

/* column[i] = sum over l of a[l][i] * b[l], in f32: adding whole columns lets the compiler use
 * vectors without changing the order of any sum. */
static void column_float(float *column, const float *a, const double *b, size_t m, size_t k) {
  memset(column, 0, m * sizeof *column);
  for (size_t l = 0; l < k; l++) {
    float x = (float)b[l];
    for (size_t i = 0; i < m; i++) column[i] += a[l * m + i] * x;
  }
}

static void column_double(double *column, const double *a, const double *b, size_t m, size_t k) {
  memset(column, 0, m * sizeof *column);
  for (size_t l = 0; l < k; l++)
    for (size_t i = 0; i < m; i++) column[i] += a[l * m + i] * b[l];
}

static void finish(const BlasProduct *p, const void *c, void *d, size_t j, size_t i, double sum) {
  bool doubles = p->a.type == LT_R_64F;
  double x = p->alpha * sum;
  if (p->beta != 0) x += p->beta * load(c, p->c.type, j * (size_t)p->c.ld + i);
  if (!doubles) x = (float)x;
  if (is_biased(p)) x += load(p->bias, p->d.type, i);
  if (!doubles) x = (float)x;
  store(d, p->d.type, j * (size_t)p->d.ld + i, activate(x, p->epilogue));
}

static void multiply(const BlasProduct *p, const void *a, const void *b, const void *c, void *d) {
  size_t m = p->d.rows, n = p->d.cols, k = p->transpose[0] ? p->a.rows : p->a.cols;
  size_t lda = (size_t)p->a.ld, ldb = (size_t)p->b.ld;
  bool doubles = p->a.type == LT_R_64F;
  double *left = malloc(m * k * sizeof *left), *right = malloc(n * k * sizeof *right);
  double *column = malloc(m * sizeof *column);
  float *narrow = malloc(m * k * sizeof *narrow), *sums = malloc(m * sizeof *sums);
  if (!left || !right || !column || !narrow || !sums) abort();
  /* left[l][i] = op(A)[i][l]; right[j][l] = op(B)[l][j] */
  unpack(left, a, p->a.type, k, m, p->transpose[0] ? 1 : lda, p->transpose[0] ? lda : 1);
  unpack(right, b, p->b.type, n, k, p->transpose[1] ? 1 : ldb, p->transpose[1] ? ldb : 1);
  for (size_t i = 0; i < m * k; i++) narrow[i] = (float)left[i];
  for (size_t j = 0; j < n; j++) {
    if (doubles)
      column_double(column, left, right + j * k, m, k);
    else
      column_float(sums, narrow, right + j * k, m, k);
    for (size_t i = 0; i < m; i++) finish(p, c, d, j, i, doubles ? column[i] : (double)sums[i]);
  }
  free(left);
  free(right);
  free(column);
  free(narrow);
  free(sums);
}

/* --- the operation -----------------------------------------------------------------------------
 */

typedef struct BlasOp {
  SimOp op;
  BlasProduct p;
  void *workspace;
  size_t bytes;
} BlasOp;

static const char *matrix(const void *at, const BlasMatrix *x, int32_t batch) {
  return (const char *)at + (size_t)(x->stride * batch) * blas_type_bytes(x->type);
}

typedef bool Check(PtxMemory *memory, const void *address, size_t bytes, PtxFault *fault);

static bool check_write(PtxMemory *memory, const void *address, size_t bytes, PtxFault *fault) {
  return ptx_memory_check_write(memory, (void *)(uintptr_t)address, bytes, fault);
}

/* Column by column: what lies between columns is nobody's business. */
static bool check_matrix(PtxMemory *memory, Check *check, const void *at, const BlasMatrix *x,
                         int32_t batch, PtxFault *fault) {
  const char *first = matrix(at, x, batch);
  size_t one = blas_type_bytes(x->type);
  if ((uint64_t)x->ld == x->rows) return check(memory, first, x->rows * x->cols * one, fault);
  for (uint64_t j = 0; j < x->cols; j++)
    if (!check(memory, first + j * (size_t)x->ld * one, x->rows * one, fault)) return false;
  return true;
}

static bool check_all(const BlasProduct *p, PtxMemory *memory, int32_t i, PtxFault *fault) {
  return check_matrix(memory, ptx_memory_check_read, p->at_a, &p->a, i, fault) &&
         check_matrix(memory, ptx_memory_check_read, p->at_b, &p->b, i, fault) &&
         (p->beta == 0 || check_matrix(memory, ptx_memory_check_read, p->at_c, &p->c, i, fault)) &&
         (!is_biased(p) ||
          ptx_memory_check_read(memory, p->bias, p->d.rows * blas_type_bytes(p->d.type), fault)) &&
         check_matrix(memory, check_write, p->at_d, &p->d, i, fault);
}

static SimPoll blas_step(SimOp *op) {
  const BlasOp *o = (const BlasOp *)op;
  const BlasProduct *p = &o->p;
  PtxMemory *memory = op->stream->device->memory;
  PtxFault fault = {0};
  sim_memory_show();
  if (o->workspace) ptx_memory_forget(memory, o->workspace, o->bytes);
  for (int32_t i = 0; i < p->d.batch; i++) {
    if (!check_all(p, memory, i, &fault)) return sim_fault(op->stream->device, &fault, "product");
    multiply(p, matrix(p->at_a, &p->a, i), matrix(p->at_b, &p->b, i),
             p->beta != 0 ? matrix(p->at_c, &p->c, i) : NULL,
             (void *)(uintptr_t)matrix(p->at_d, &p->d, i));
  }
  return SIM_DONE;
}

static SimOp *blas_clone(const SimOp *op) {
  const BlasOp *o = (const BlasOp *)op;
  return blas_op_new(&o->p, o->workspace, o->bytes);
}

static void blas_free(SimOp *op) {
  free(op);
}

static const SimKind kind = {"product", blas_step, NULL, blas_clone, blas_free, false};

SimOp *blas_op_new(const BlasProduct *p, void *workspace, size_t bytes) {
  BlasOp *o = calloc(1, sizeof *o);
  if (!o) abort();
  *o = (BlasOp){{.kind = &kind}, *p, workspace, bytes};
  return &o->op;
}
