/* Products of matrices as cuBLASLt has them: see standin_cublaslt.c. */
#ifndef DTM_TESTS_GPUSIM_BLAS_PRODUCT_H
#define DTM_TESTS_GPUSIM_BLAS_PRODUCT_H

#include "gpusim/sim_memory.h"
#include "runtime/device/cuda/cublaslt.h"

/* Statuses that programs need no name for. */
enum { BLAS_NOT_INITIALIZED = 1, BLAS_EXECUTION_FAILED = 13 };

/* Column-major, `ld` elements from one column to the next. */
typedef struct BlasMatrix {
  LtType type;
  int32_t batch;
  uint64_t rows, cols;
  int64_t ld, stride;
} BlasMatrix;

/* D = epilogue(alpha op(A) op(B) + beta C + bias). A dot product adds its terms in the order of k,
 * in f32, or f64 when the elements are f64, each product rounded; D is rounded once. */
typedef struct BlasProduct {
  int32_t transpose[2];
  uint32_t epilogue;
  BlasMatrix a, b, c, d;
  const void *at_a, *at_b, *at_c, *bias;
  void *at_d;
  double alpha, beta;
} BlasProduct;

/* Of an element; 0: the type is not known. */
size_t blas_type_bytes(LtType type);
bool blas_epilogue_known(uint32_t epilogue);
/* NULL, or why there is no such product. */
const char *blas_product_check(const BlasProduct *p, bool doubles);
/* NULL, or what is wrong with its pointers. */
const char *blas_product_check_memory(const BlasProduct *p, const SimDevice *device);
/* Sets all that is not its shape to 0. */
void blas_product_forget(BlasProduct *p);

/* The product as an operation; what was in its workspace is lost. */
SimOp *blas_op_new(const BlasProduct *p, void *workspace, size_t bytes);

#endif
