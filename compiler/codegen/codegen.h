/* codegen: kernels (and constant bytes) to an object file, through LLVM.
 *
 * The only user of LLVM is libdtm_llvm.so, loaded on first use; this header is its door. */
#ifndef DTM_CODEGEN_CODEGEN_H
#define DTM_CODEGEN_CODEGEN_H

#include "kernel/kernel.h"

typedef struct CodegenOptions {
  const char *march; /* "native" or NULL: this machine; else a CPU name LLVM knows */
  bool verify;       /* run LLVM's verifier (tests, debug builds) */
} CodegenOptions;

typedef enum CodegenOutput { CODEGEN_OBJECT = 1, CODEGEN_LLVM, CODEGEN_ASM } CodegenOutput;

/* Constant bytes the object exports: `dtm_image` and its size `dtm_image_size` (u64), code for a
 * GPU (runtime/abi/cuda.h) as `dtm_cuda` and `dtm_cuda_size`, 0 when there is none;
 * `dtm_open_device` is the device it is for (runtime/device/device.h). */
typedef struct CodegenImage {
  const void *data;
  size_t size;
  const void *cuda;
  size_t cuda_size;
} CodegenImage;

/* What came out: objects to link together, or one text. */
typedef struct CodegenPiece {
  const void *bytes;
  size_t size;
} CodegenPiece;

enum { CODEGEN_MAX_PIECES = 8 };

typedef struct CodegenResult {
  CodegenPiece piece[CODEGEN_MAX_PIECES];
  uint32_t npieces;
} CodegenResult;

/* Emits every kernel as a hidden function of its name (no two are alike), `dtm_kernels` (table of
 * their addresses, in order), `dtm_kernels_count` (u64), `dtm_cpu_features` (NUL-terminated
 * "+avx2,..." that the code needs), and the image when not NULL. Objects are made by several
 * threads, into pieces that depend on the kernels only: the same input gives the same bytes on any
 * machine. Bytes live in `arena`. On failure returns false with *error (in `arena`): no such CPU,
 * LLVM cannot be loaded. An object of code for a GPU and no kernels is made without
 * LLVM, whatever the options, and needs no features. */
bool codegen_emit(Arena *arena, Kernel *const *kernels, uint32_t nkernels,
                  const CodegenImage *image, const CodegenOptions *options, CodegenOutput output,
                  CodegenResult *out, const char **error);

/* The kernel function type. */
typedef void KernelFn(void *const *bufs, const int64_t *ints, int64_t begin, int64_t end);

#endif
