/* Library operators on a GPU, inside: one file for each family, library.c calls them.
 *
 * An operator prepares its call (sizes, kernels, scratch memory) at start and only enqueues when it
 * runs. All results are those of the CPU's functions (device/cpu/library.h) but for the order of
 * additions, which sizes alone decide here too.
 */
#ifndef DTM_RT_DEVICE_CUDA_LIBRARY_H
#define DTM_RT_DEVICE_CUDA_LIBRARY_H

#include <stdbool.h>

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/library_args.h"

enum { CUDA_LIBRARY_TENSORS = 4, CUDA_LIBRARY_ARGS = 2, CUDA_LIBRARY_KERNELS = 6 };

/* Sorts lines of keys stably (kernels/radix.cu). */
typedef struct CudaRadix {
  CUfunction count, scan, move;
  int64_t lines, n;
  int first_bit, bits; /* of a key that tell keys apart: first_bit a multiple of 8 */
  size_t key_bytes;
  uint32_t tiles;
} CudaRadix;

typedef struct CudaLibCall {
  uint32_t action;
  uint32_t code; /* AbiLibrary */
  LibTensor t[CUDA_LIBRARY_TENSORS];
  int64_t args[CUDA_LIBRARY_ARGS];
  CUfunction kernel[CUDA_LIBRARY_KERNELS];
  CudaRadix radix;
  bool direct; /* which of two ways was chosen */
  void *own;   /* of attention */
  union {
    struct ScatterDims scatter;
    struct GroupedDims grouped;
  } dims;
} CudaLibCall;

/* --- what families share (library.c) */
/* A tensor as lines along `dim`: outer * inner of them, elements `inner` apart. */
typedef struct CudaLines {
  int64_t outer, n, inner;
} CudaLines;
CudaLines dtm_cuda_lines(const LibTensor *t, int64_t dim);
/* The address of tensor i for the micro-batch at hand. */
CUdeviceptr dtm_cuda_tensor(const CudaDevice *d, const CudaLibCall *c, uint32_t i);
/* Finds the kernels of these names, up to NULL, of instance `instance` of the action. */
int dtm_cuda_kernels(CudaDevice *d, const CudaLibCall *c, uint32_t instance,
                     const char *const *names, CUfunction *kernels);
/* Raises the scratch memory to that many bytes. */
void dtm_cuda_reserve(CudaDevice *d, size_t bytes);
/* A launch on `compute` of as many blocks as `threads` threads need. */
int dtm_cuda_enqueue(CudaDevice *d, const CudaLibCall *c, CUfunction kernel, int64_t threads,
                     void **params);
int dtm_cuda_enqueue_blocks(CudaDevice *d, const CudaLibCall *c, CUfunction kernel, int64_t blocks,
                            void **params);
/* Bytes set to `value`; bytes copied. On `compute`. */
int dtm_cuda_set_bytes(CudaDevice *d, const CudaLibCall *c, CUdeviceptr to, int value,
                       size_t bytes);
int dtm_cuda_copy_bytes(CudaDevice *d, const CudaLibCall *c, CUdeviceptr to, CUdeviceptr from,
                        size_t bytes);

/* --- library_sort.c */
/* c->radix but its kernels is set: finds them in instance `instance`. */
int dtm_cuda_radix_prepare(CudaDevice *d, CudaLibCall *c, uint32_t instance);
/* Scratch bytes of a radix sort, which begin with the keys [lines, n] to be sorted. */
size_t dtm_cuda_radix_bytes(const CudaRadix *r);
/* Sorts the keys at `scratch`; they and where they came from lie in scratch afterwards. */
int dtm_cuda_radix_run(CudaDevice *d, const CudaLibCall *c, CUdeviceptr scratch, CUdeviceptr *keys,
                       CUdeviceptr *numbers);

/* --- families: prepare is called with code, t, args set. */
#define CUDA_FAMILY(name)                                                                          \
  int dtm_cuda_##name##_prepare(CudaDevice *d, CudaLibCall *c);                                    \
  int dtm_cuda_##name##_run(CudaDevice *d, CudaLibCall *c);
CUDA_FAMILY(sort)      /* library_sort.c: SORT, TOPK */
CUDA_FAMILY(cumsum)    /* library.c */
CUDA_FAMILY(same_as)   /* library.c */
CUDA_FAMILY(scatter)   /* library_index.c */
CUDA_FAMILY(embedding) /* library_index.c */
CUDA_FAMILY(grouped)   /* library_grouped.c: GROUPED_LINEAR, GROUPED_LINEAR_WEIGHT */
#undef CUDA_FAMILY

#endif
