/* What is used of cuBLASLt: types, values and entries, declared here so that nothing of CUDA is
 * needed to build. tests/unit/test_cuda_blaslt_header.c holds them against the real header.
 *
 * The library is column-major: its A [m, k] with leading dimension ld is a row-major [k, m] whose
 * rows are ld elements apart. Status 0 is success everywhere.
 */
#ifndef DTM_RT_CUBLASLT_H
#define DTM_RT_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* Opaque: made and freed by the library. */
typedef struct LtContext LtContext;
typedef struct LtMatmulDesc LtMatmulDesc;
typedef struct LtMatrixLayout LtMatrixLayout;
typedef struct LtPreference LtPreference;

typedef struct LtAlgo {
  uint64_t data[8];
} LtAlgo;

typedef enum LtStatus { LT_SUCCESS = 0, LT_INVALID_VALUE = 7, LT_NOT_SUPPORTED = 15 } LtStatus;

typedef struct LtHeuristic {
  LtAlgo algo;
  size_t workspace; /* bytes the algorithm needs */
  LtStatus state;   /* the other members hold only where this is LT_SUCCESS */
  float waves;
  int reserved[4];
} LtHeuristic;

typedef enum LtType { LT_R_32F = 0, LT_R_64F = 1, LT_R_16F = 2, LT_R_16BF = 14 } LtType;
typedef enum LtCompute { LT_COMPUTE_32F = 68, LT_COMPUTE_64F = 70 } LtCompute;
typedef enum LtOperation { LT_OP_N = 0, LT_OP_T = 1 } LtOperation;
enum { LT_EPILOGUE_DEFAULT = 1, LT_EPILOGUE_BIAS = 4, LT_EPILOGUE_GELU = 32 };

/* Of an operation. int32_t, but the epilogue uint32_t and the bias a device pointer. */
typedef enum LtMatmulAttribute {
  LT_MATMUL_TRANSA = 3,
  LT_MATMUL_TRANSB = 4,
  LT_MATMUL_EPILOGUE = 7,
  LT_MATMUL_BIAS_POINTER = 8
} LtMatmulAttribute;

/* Of a matrix: int32_t count, int64_t elements from one to the next. */
typedef enum LtLayoutAttribute {
  LT_LAYOUT_BATCH_COUNT = 5,
  LT_LAYOUT_STRIDED_BATCH_OFFSET = 6
} LtLayoutAttribute;

/* Of the search: uint64_t bytes of workspace, uint32_t all others. */
typedef enum LtPreferenceAttribute {
  LT_PREF_MAX_WORKSPACE_BYTES = 1,
  LT_PREF_REDUCTION_SCHEME_MASK = 3,
  LT_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  LT_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  LT_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  LT_PREF_MIN_ALIGNMENT_D_BYTES = 8
} LtPreferenceAttribute;

/* Parts of one dot product: held in the type that is computed in, and added by a pass of its own in
 * a fixed order. */
enum { LT_REDUCTION_COMPUTE_TYPE = 2 };

/* X(member, entry, result, parameters) */
#define CUDA_BLASLT(X)                                                                             \
  X(get_version, cublasLtGetVersion, size_t, (void))                                               \
  X(create, cublasLtCreate, LtStatus, (LtContext * *c))                                            \
  X(destroy, cublasLtDestroy, LtStatus, (LtContext * c))                                           \
  X(status_string, cublasLtGetStatusString, const char *, (LtStatus s))                            \
  X(matmul_create, cublasLtMatmulDescCreate, LtStatus,                                             \
    (LtMatmulDesc * *d, LtCompute compute, LtType scale))                                          \
  X(matmul_destroy, cublasLtMatmulDescDestroy, LtStatus, (LtMatmulDesc * d))                       \
  X(matmul_set, cublasLtMatmulDescSetAttribute, LtStatus,                                          \
    (LtMatmulDesc * d, LtMatmulAttribute a, const void *value, size_t bytes))                      \
  X(layout_create, cublasLtMatrixLayoutCreate, LtStatus,                                           \
    (LtMatrixLayout * *l, LtType type, uint64_t rows, uint64_t cols, int64_t ld))                  \
  X(layout_destroy, cublasLtMatrixLayoutDestroy, LtStatus, (LtMatrixLayout * l))                   \
  X(layout_set, cublasLtMatrixLayoutSetAttribute, LtStatus,                                        \
    (LtMatrixLayout * l, LtLayoutAttribute a, const void *value, size_t bytes))                    \
  X(preference_create, cublasLtMatmulPreferenceCreate, LtStatus, (LtPreference * *p))              \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy, LtStatus, (LtPreference * p))             \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute, LtStatus,                                \
    (LtPreference * p, LtPreferenceAttribute a, const void *value, size_t bytes))                  \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic, LtStatus,                                           \
    (LtContext * c, LtMatmulDesc * d, LtMatrixLayout * la, LtMatrixLayout * lb,                    \
     LtMatrixLayout * lc, LtMatrixLayout * ld, LtPreference * p, int asked, LtHeuristic *found,    \
     int *count))                                                                                  \
  X(matmul, cublasLtMatmul, LtStatus,                                                              \
    (LtContext * c, LtMatmulDesc * d, const void *alpha, const void *a, LtMatrixLayout *la,        \
     const void *b, LtMatrixLayout *lb, const void *beta, const void *addend, LtMatrixLayout *lc,  \
     void *out, LtMatrixLayout *ld, const LtAlgo *algo, void *workspace, size_t bytes,             \
     struct CUstream_st *stream))

typedef struct CudaBlasLt {
#define X(member, entry, result, parameters) result(*member) parameters;
  CUDA_BLASLT(X)
#undef X
  size_t version; /* 130100: 13.1 */
} CudaBlasLt;

/* Finds cuBLASLt of CUDA 12 or 13 (the file DTM_CUBLASLT in the environment, else libcublasLt.so.13
 * or .12) and its entries. NULL, or a message that says what is missing and how to get it, written
 * to `message`. */
const char *dtm_cuda_blaslt_load(CudaBlasLt *lt, char *message, size_t message_size);

#endif
