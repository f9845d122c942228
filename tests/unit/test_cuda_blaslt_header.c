/* Our own declarations of cuBLASLt against the header of a CUDA toolkit, where there is one: every
 * entry has the type that header gives it, every constant its value. */
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
  return 0;
}
#else
int main(void) {
  return suite_skip("there is no cublasLt.h of a CUDA toolkit in CUDA_HOME/include or "
                    "/usr/local/cuda/include");
}
#endif
