/* Sizes and arguments that kernels of library operators and of matrix products share with the host
 * code that launches them. Included by both: in CUDA C behind dtm.cuh. All extents and strides are
 * in elements.
 */
#ifndef DTM_CUDA_LIBRARY_ARGS_H
#define DTM_CUDA_LIBRARY_ARGS_H

#ifndef __CUDACC__
#include <stdint.h>
#endif

enum {
  LIBRARY_THREADS = 256,
  SORT_SHORT = 2048, /* longest line that is sorted by one block */
  RADIX_DIGITS = 256,
  RADIX_TILE = 2048, /* keys of one block */
  EMBEDDING_WARPS = LIBRARY_THREADS / 32,
  EMBEDDING_COLUMNS = 128, /* of one warp */
  PRODUCT_TILE = 64,       /* rows, and columns, of one block */
  TENSOR_TILE = 128,       /* the same where tensor cores multiply */
  SCATTER_DIMS = 8,
  MATMUL_DIMS = 6
};

/* What is applied to a product: the numbers of AbiActivation. */
enum Activation {
  ACTIVATION_RELU = 1,
  ACTIVATION_GELU, /* exact */
  ACTIVATION_GELU_TANH,
  ACTIVATION_SILU,
  ACTIVATION_TANH
};

/* Extents of index, strides of y and source, of all dims but the one that is walked along. */
struct ScatterDims {
  int64_t extent[SCATTER_DIMS], to[SCATTER_DIMS], from[SCATTER_DIMS];
  int64_t lines, n, inner;       /* of index */
  int64_t n_y, inner_y, inner_s; /* of y and source */
  int32_t dims, zero;
};

struct GroupedDims {
  int64_t batch, blocks, places, experts;  /* B, R, P, E of this rank's block */
  int64_t each, first_expert, first_block; /* experts of a block; where this rank's begin */
  int64_t in, out;                         /* I, O */
  int64_t tile;                            /* rows of one expert that a block takes */
  int32_t wide, zero;                      /* I and O, and all addresses, are of whole 16 bytes */
};

/* As MatmulShape, the roles of a and b changed where that makes columns of out lie together; the
 * last dim of the batch goes fastest. */
struct MatmulDims {
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, out_m, out_n;
  int64_t batch[MATMUL_DIMS], a_batch[MATMUL_DIMS], b_batch[MATMUL_DIMS], out_batch[MATMUL_DIMS];
  int64_t count; /* entries of the batch */
  int32_t nbatch;
  int32_t activation; /* Activation; 0: none */
  int32_t bias_rows;  /* the bias has an element for each row, not column */
  int32_t wide;       /* columns of out may be taken 16 bytes at a time */
};

#endif
