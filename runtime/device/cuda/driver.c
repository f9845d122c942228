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

static const struct {
  CUresult error;
  const char *remedy;
} of_the_machine[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, ""},
    {CUDA_ERROR_STUB_LIBRARY,
     "\n  the libcuda.so that was found is of the CUDA toolkit, for linking only: take its folder "
     "`stubs` out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE,
     "\n  another process has the GPU for itself (nvidia-smi shows the processes; nvidia-smi -q -d "
     "COMPUTE whether one at a time is allowed)"},
    {CUDA_ERROR_NO_DEVICE, ""},
    {CUDA_ERROR_DEVICE_NOT_LICENSED, ""},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, ""},
    {CUDA_ERROR_ECC_UNCORRECTABLE, ""},
    {CUDA_ERROR_INVALID_PTX, ""},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, ""},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
     "\n  the driver's libnvidia-ptxjitcompiler.so, which translates PTX, is missing; code for the "
     "chip itself needs no translation: compile with --target=cuda:sm_90 or what the chip is"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, ""},
    {CUDA_ERROR_JIT_COMPILATION_DISABLED,
     "\n  PTX is not translated here (CUDA_DISABLE_PTX_JIT in the environment); code for the chip "
     "itself needs no translation: compile with --target=cuda:sm_90 or what the chip is"},
    {CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, ""},
    {CUDA_ERROR_OPERATING_SYSTEM, ""},
    {CUDA_ERROR_NOT_SUPPORTED, ""},
    {CUDA_ERROR_SYSTEM_NOT_READY,
     "\n  a service of the driver does not run yet; where GPUs are joined by switches that is "
     "nvidia-fabricmanager (systemctl status nvidia-fabricmanager)"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
     "\n  the driver was changed without loading its kernel module anew: restart the machine"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "\n  the libcuda.so that was found is of a CUDA "
                                                "compatibility package, which this GPU does not "
                                                "take: have the driver's own found first"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, ""},
    {CUDA_ERROR_MPS_RPC_FAILURE, ""},
    {CUDA_ERROR_MPS_SERVER_NOT_READY, ""},
    {CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, ""},
    {CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, ""},
};

static const char *find_remedy(CUresult error) {
  for (size_t i = 0; i < sizeof of_the_machine / sizeof *of_the_machine; i++)
    if (of_the_machine[i].error == error) return of_the_machine[i].remedy;
  return NULL;
}

int dtm_cuda_error_is_machine(CUresult error) {
  return find_remedy(error) != NULL;
}

const char *dtm_cuda_error_remedy(CUresult error) {
  const char *remedy = find_remedy(error);
  return remedy ? remedy : "";
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
  const char *remedy = dtm_cuda_error_remedy(status);
  snprintf(message, message_size, "the CUDA driver does not start: %s%s%s", text,
           *remedy ? remedy : "\n  ", *remedy ? "" : get_driver);
  return message;
}
