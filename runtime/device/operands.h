/* Operands of matrix products and of library operators, with their integers evaluated for a rank:
 * what every device needs to run them. */
#ifndef DTM_RT_DEVICE_OPERANDS_H
#define DTM_RT_DEVICE_OPERANDS_H

#include "device/device.h"

/* This rank's block of a tensor, dense and row-major. */
typedef struct LibTensor {
  void *data; /* an address of the device */
  uint32_t dtype, rank;
  int64_t extent[ABI_MAX_DIMS]; /* of the block */
  int64_t offset[ABI_MAX_DIMS]; /* of its first element in the whole tensor */
  int64_t shape[ABI_MAX_DIMS];  /* of the whole tensor */
} LibTensor;

/* An index that is outside the tensor; products of experts: a count, and 1 + the places that are
 * left; same_as: the element of the block that differs, its value here and on the first rank, and
 * how many elements there are. */
typedef struct LibFault {
  int64_t index, extent;
  double mine, first;
} LibFault;

/* AbiMatmul with its integers evaluated. Extents may be 0: M or N = 0 does nothing, K = 0 gives
 * act(bias) + addend of zeros. */
typedef struct MatmulShape {
  uint32_t dtype; /* AbiDType of all buffers */
  uint32_t nbatch;
  int64_t batch[ABI_MATMUL_BATCH];
  int64_t a_batch[ABI_MATMUL_BATCH], b_batch[ABI_MATMUL_BATCH], out_batch[ABI_MATMUL_BATCH];
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, out_m, out_n;
  uint32_t bias, addend; /* 1 = present */
  uint32_t in_place;     /* the addend is the output's memory */
  uint32_t activation;   /* AbiActivation */
} MatmulShape;

/* The block of a buffer on this rank, which is in the mesh of its type. */
LibTensor dtm_device_tensor(const RtDevice *d, const AbiBuffer *b, void *data);
/* Of the block: elements, bytes. */
int64_t dtm_device_elements(const LibTensor *t);
size_t dtm_device_bytes(const LibTensor *t);
/* Of an action of kind MATMUL. */
MatmulShape dtm_device_matmul_shape(const RtDevice *d, const AbiAction *a);
/* The same product with as few batch dims as can be: unit ones go, those that continue each other,
 * or the rows, merge. The stride of a single row or column becomes one that looks dense. */
void dtm_device_matmul_simplify(MatmulShape *s);
/* Reports the fault of an action of kind LIBRARY or PULL_ROWS (index: a number of rows; extent: how
 * many there are); returns the code to exit with. */
int dtm_device_report(const RtDevice *d, const AbiAction *a, const LibFault *fault);

#endif
