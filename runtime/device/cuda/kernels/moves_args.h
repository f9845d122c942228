/* What kernels that move and fold share with the host code that plans and launches them. Included
 * by both: in CUDA C behind dtm.cuh. */
#ifndef DTM_CUDA_MOVES_ARGS_H
#define DTM_CUDA_MOVES_ARGS_H

#ifndef __CUDACC__
#include <stdint.h>
#endif

enum {
  MOVES_THREADS = 256,
  MOVES_TILE = 1024, /* units of a box that a block of threads copies */
  MOVES_DIMS = 8
};

/* A box: `units` pieces of 1 << log_unit bytes, `row` of them side by side at both ends, rows in
 * row-major order over ndims dims. Strides and offsets are in bytes, multiples of a unit; so are
 * the addresses that they count from. Tiles are counted over all boxes of a copy. */
typedef struct CudaBox {
  int64_t src, dst;
  int64_t units, row;
  int64_t first_tile;
  uint32_t ndims, log_unit;
  int64_t extent[MOVES_DIMS], src_stride[MOVES_DIMS], dst_stride[MOVES_DIMS];
} CudaBox;

/* How elements are reduced: the numbers of AbiReduce. */
enum FoldOp {
  FOLD_SUM = 1,
  FOLD_AVG,
  FOLD_PRODUCT,
  FOLD_MAX,
  FOLD_MIN,
  FOLD_AND,
  FOLD_OR,
  FOLD_XOR
};

#endif
