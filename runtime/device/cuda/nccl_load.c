/* Loading NCCL: see nccl.h. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/load.h"
#include "device/cuda/nccl.h"

static const CudaEntry entries[] = {
#define X(member, name, result, parameters) {#name, offsetof(CudaNccl, member)},
    CUDA_NCCL(X)
#undef X
};

enum { MIN_VERSION = 21800 };

static const char get_it[] =
    "NCCL 2.18 or later is needed: package libnccl2, or \"pip install nvidia-nccl-cu12\" (-cu13; "
    "then DTM_NCCL=.../nvidia/nccl/lib/libnccl.so.2)";

const char *dtm_cuda_nccl_load(CudaNccl *nccl, char *message, size_t message_size) {
  static const char *const names[] = {"libnccl.so.2", NULL};
  char text[1024];
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  const char *error = dtm_cuda_load_library(
      "DTM_NCCL", names, entries, sizeof entries / sizeof *entries, nccl, text, sizeof text);
  if (error) {
    snprintf(message, message_size,
             "this program runs on several GPUs, and NCCL could not be loaded: %s\n  %s", error,
             get_it);
    return message;
  }
  ncclResult_t status = nccl->get_version(&nccl->version);
  if (status != ncclSuccess) {
    snprintf(message, message_size, "NCCL does not start: %s", nccl->error_string(status));
    return message;
  }
  if (nccl->version >= MIN_VERSION) return NULL;
  snprintf(message, message_size, "this NCCL is version %d.%d.%d\n  %s", nccl->version / 10000,
           nccl->version / 100 % 100, nccl->version % 100, get_it);
  return message;
}
