/* For the programs of this folder: the GPU through the loaders of the runtime, so that they need no
 * more than it does. What goes wrong ends the program with a message; 3 where the machine lacks
 * something, as programs of dtmc do. */
#ifndef DTM_TESTS_GPU_H
#define DTM_TESTS_GPU_H

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/driver.h"

typedef struct Gpu {
  CudaDriver cu;
  CUdevice device;
  CUstream stream;
  char name[128];
} Gpu;

static inline _Noreturn void gpu_lacks(const char *message) {
  fprintf(stderr, "error: %s\n", message);
  exit(3);
}

static inline void gpu_check(const Gpu *g, CUresult error, const char *what) {
  char text[512];
  if (!error) return;
  dtm_cuda_error_text(&g->cu, error, text, sizeof text);
  fprintf(stderr, "error: cannot %s: %s\n", what, text);
  exit(1);
}

static inline void gpu_open(Gpu *g) {
  char message[2048];
  CUcontext context;
  int count = 0;
  const char *error = dtm_cuda_driver_load(&g->cu, message, sizeof message);
  if (error) gpu_lacks(error);
  gpu_check(g, g->cu.device_count(&count), "count GPUs");
  if (!count) gpu_lacks("the driver shows no GPU");
  gpu_check(g, g->cu.device_get(&g->device, 0), "find the GPU");
  gpu_check(g, g->cu.device_name(g->name, sizeof g->name, g->device), "ask for its name");
  gpu_check(g, g->cu.context_retain(&context, g->device), "start work");
  gpu_check(g, g->cu.context_use(context), "start work");
  gpu_check(g, g->cu.stream_create(&g->stream, CU_STREAM_NON_BLOCKING), "start work");
}

static inline CUdeviceptr gpu_alloc(const Gpu *g, size_t bytes) {
  CUdeviceptr address = 0;
  gpu_check(g, g->cu.memory_alloc(&address, bytes), "get memory");
  return address;
}

/* On the stream, which is waited for. */
static inline void gpu_write(const Gpu *g, CUdeviceptr to, const void *from, size_t bytes) {
  gpu_check(g, g->cu.to_device_async(to, from, bytes, g->stream), "write memory");
  gpu_check(g, g->cu.stream_sync(g->stream), "write memory");
}

static inline void gpu_close(Gpu *g) {
  gpu_check(g, g->cu.stream_destroy(g->stream), "end work");
  gpu_check(g, g->cu.context_release(g->device), "end work");
}

#endif
