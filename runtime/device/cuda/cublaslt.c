/* Loading cuBLASLt: see cublaslt.h. */
#include "device/cuda/cublaslt.h"

#include <stdio.h>

#include "device/cuda/load.h"

static const CudaEntry entries[] = {
#define X(member, entry, result, parameters) {#entry, offsetof(CudaBlasLt, member)},
    CUDA_BLASLT(X)
#undef X
};

static const char get_it[] =
    "cuBLASLt of CUDA 12 or 13 is needed: the CUDA toolkit, its package libcublas, or \"pip "
    "install "
    "nvidia-cublas-cu12\" (then DTM_CUBLASLT=.../nvidia/cublas/lib/libcublasLt.so.12)";

const char *dtm_cuda_blaslt_load(CudaBlasLt *lt, char *message, size_t message_size) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
  char text[1024];
  const char *error = dtm_cuda_load_library(
      "DTM_CUBLASLT", names, entries, sizeof entries / sizeof *entries, lt, text, sizeof text);
  if (error) {
    snprintf(message, message_size,
             "this program multiplies matrices, and cuBLASLt could not be loaded: %s\n  %s", error,
             get_it);
    return message;
  }
  lt->version = lt->get_version();
  size_t major = lt->version / 10000;
  if (major == 12 || major == 13) return NULL;
  snprintf(message, message_size, "this cuBLASLt is of CUDA %zu.%zu\n  %s", major,
           lt->version / 100 % 100, get_it);
  return message;
}
