/* Opening a library of NVIDIA's that is there or not: the driver, cuBLASLt, NCCL. Nothing of CUDA
 * is linked; a program that needs such a library finds it when it starts.
 *
 * stage in: a name; out: addresses of its entries in a struct of function pointers. */
#ifndef DTM_RT_DEVICE_CUDA_LOAD_H
#define DTM_RT_DEVICE_CUDA_LOAD_H

#include <stddef.h>

/* One entry: its exported name and where its address goes in the struct. */
typedef struct CudaEntry {
  const char *name;
  size_t at;
} CudaEntry;

/* Opens the file that `environment` names in the environment and nothing else when it is set, else
 * the first of `names` (ends with NULL) in the loader's path, in CUDA_HOME/lib64 and in
 * /usr/local/cuda/lib64. Then sets the n entries of `out`.
 * NULL, or what is wrong: "libcuda.so.1: cannot open shared object file ...". The text is written
 * to `message`. The library is never closed: its threads may outlive the last call. */
const char *dtm_cuda_load_library(const char *environment, const char *const *names,
                                  const CudaEntry *entries, size_t n, void *out, char *message,
                                  size_t message_size);

#endif
