/* Loading the CUDA driver: see driver.h. */
#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/load.h"

static const CudaEntry entries[] = {
#define X(member, name, parameters) {#name, offsetof(CudaDriver, member)},
    CUDA_DRIVER(X)
#undef X
};

static const char get_driver[] =
    "an NVIDIA driver for CUDA 12.0 or later is needed: https://www.nvidia.com/drivers (nvidia-smi "
    "shows the one installed; a container needs --gpus all)";

void dtm_cuda_error_text(const CudaDriver *driver, CUresult error, char *text, size_t size) {
  const char *name = NULL, *meaning = NULL;
  driver->error_name(error, &name);
  driver->error_string(error, &meaning);
  if (name)
    snprintf(text, size, "%s: %s", name, meaning ? meaning : "-");
  else
    snprintf(text, size, "error %d of the CUDA driver", (int)error);
}

const char *dtm_cuda_driver_load(CudaDriver *driver, char *message, size_t message_size) {
  static const char *const names[] = {"libcuda.so.1", NULL};
  char text[1024];
  /* A queue of its own for each stream, as far as there are: streams that share one wait for each
   * other for no reason, which between stages of a pipeline may be for ever (channel.c). */
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const char *error =
      dtm_cuda_load_library("DTM_CUDA_DRIVER", names, entries, sizeof entries / sizeof *entries,
                            driver, text, sizeof text);
  if (error) {
    snprintf(message, message_size,
             "this program runs on NVIDIA GPUs, and the CUDA driver could "
             "not be loaded: %s\n  %s",
             error, get_driver);
    return message;
  }
  CUresult status = driver->driver_version(&driver->version);
  if (status == CUDA_SUCCESS && driver->version < CUDA_DRIVER_MIN_VERSION) {
    snprintf(message, message_size, "the CUDA driver is too old: it is for CUDA %d.%d\n  %s",
             driver->version / 1000, driver->version % 1000 / 10, get_driver);
    return message;
  }
  if (status == CUDA_SUCCESS) status = driver->init(0);
  if (status == CUDA_ERROR_NO_DEVICE) {
    snprintf(message, message_size,
             "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES in the environment hides those "
             "it does not name)");
    return message;
  }
  if (status == CUDA_SUCCESS) return NULL;
  dtm_cuda_error_text(driver, status, text, sizeof text);
  snprintf(message, message_size, "the CUDA driver does not start: %s\n  %s", text, get_driver);
  return message;
}
