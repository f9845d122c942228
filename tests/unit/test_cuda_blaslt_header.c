/* Our own declarations of cuBLASLt against the header of a CUDA toolkit, where there is one: every
 * entry has the type that header gives it, every constant its value. Where the library is there
 * too, it takes every attribute that products set, which needs no GPU. */
#include <stdio.h>

#include "device/cuda/cublaslt.h"
#include "support/suite.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(LT_R_32F, CUDA_R_32F);
SAME(LT_R_64F, CUDA_R_64F);
SAME(LT_R_16F, CUDA_R_16F);
SAME(LT_R_16BF, CUDA_R_16BF);
SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_COMPUTE_64F, CUBLAS_COMPUTE_64F);
SAME(LT_OP_N, CUBLAS_OP_N);
SAME(LT_OP_T, CUBLAS_OP_T);
SAME(LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
SAME(LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU);
SAME(LT_EPILOGUE_GELU | LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS);
SAME(LT_MATMUL_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_MATMUL_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LT_MATMUL_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(LT_MATMUL_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(LT_LAYOUT_STRIDED_BATCH_OFFSET, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(LT_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(LT_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(sizeof(LtAlgo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(LtHeuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(LtHeuristic, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(LtHeuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(offsetof(LtHeuristic, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

/* Names the first attribute that is refused. */
static const char *refused(const CudaBlasLt *lt) {
  const int32_t one = LT_OP_T;
  const int64_t stride = 64;
  const uint64_t bytes = 1 << 20;
  const uint32_t epilogue = LT_EPILOGUE_GELU | LT_EPILOGUE_BIAS,
                 reductions = LT_REDUCTION_COMPUTE_TYPE;
  const uint32_t alignment = 16;
  const void *bias = &one;
  LtMatmulDesc *d = NULL;
  LtMatrixLayout *l = NULL;
  LtPreference *p = NULL;
  if (lt->matmul_create(&d, LT_COMPUTE_64F, LT_R_64F)) return "compute type";
  if (lt->matmul_set(d, LT_MATMUL_TRANSA, &one, sizeof one)) return "transa";
  if (lt->matmul_set(d, LT_MATMUL_TRANSB, &one, sizeof one)) return "transb";
  if (lt->matmul_set(d, LT_MATMUL_EPILOGUE, &epilogue, sizeof epilogue)) return "epilogue";
  if (lt->matmul_set(d, LT_MATMUL_BIAS_POINTER, &bias, sizeof bias)) return "bias";
  if (lt->layout_create(&l, LT_R_16BF, 8, 8, 8)) return "layout";
  if (lt->layout_set(l, LT_LAYOUT_BATCH_COUNT, &one, sizeof one)) return "batch count";
  if (lt->layout_set(l, LT_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride)) return "stride";
  if (lt->preference_create(&p)) return "preference";
  if (lt->preference_set(p, LT_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes)) return "workspace";
  if (lt->preference_set(p, LT_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions))
    return "reductions";
  for (int i = LT_PREF_MIN_ALIGNMENT_A_BYTES; i <= LT_PREF_MIN_ALIGNMENT_D_BYTES; i++)
    if (lt->preference_set(p, (LtPreferenceAttribute)i, &alignment, sizeof alignment))
      return "alignment";
  lt->matmul_destroy(d);
  lt->layout_destroy(l);
  lt->preference_destroy(p);
  return NULL;
}

static int attributes(void) {
  CudaBlasLt lt;
  char message[2048];
  const char *error = dtm_cuda_blaslt_load(&lt, message, sizeof message);
  if (error) {
    printf("attributes are not tried: %s\n", error);
    return 0;
  }
  const char *lacks = refused(&lt);
  if (lacks) printf("cuBLASLt refuses: %s\n", lacks);
  return lacks != NULL;
}

/* The list, read with the header's types. */
#pragma GCC diagnostic ignored "-Wshadow"
int main(void) {
  typedef struct cublasLtContext LtContext;
  typedef cublasLtMatmulDescOpaque_t LtMatmulDesc;
  typedef cublasLtMatrixLayoutOpaque_t LtMatrixLayout;
  typedef cublasLtMatmulPreferenceOpaque_t LtPreference;
  typedef cublasLtMatmulAlgo_t LtAlgo;
  typedef cublasStatus_t LtStatus;
  typedef cublasLtMatmulHeuristicResult_t LtHeuristic;
  typedef cudaDataType_t LtType;
  typedef cublasComputeType_t LtCompute;
  typedef cublasLtMatmulDescAttributes_t LtMatmulAttribute;
  typedef cublasLtMatrixLayoutAttribute_t LtLayoutAttribute;
  typedef cublasLtMatmulPreferenceAttributes_t LtPreferenceAttribute;
#define SAME_TYPE(member, entry, result, parameters)                                               \
  _Static_assert(__builtin_types_compatible_p(result parameters, __typeof__(entry)), #entry);
  CUDA_BLASLT(SAME_TYPE)
  printf("the declarations are those of cublasLt.h of CUDA %d.%d\n", CUBLAS_VER_MAJOR,
         CUBLAS_VER_MINOR);
  return attributes();
}
#else
int main(void) {
  return suite_skip("there is no cublasLt.h of a CUDA toolkit in CUDA_HOME/include or "
                    "/usr/local/cuda/include");
}
#endif
