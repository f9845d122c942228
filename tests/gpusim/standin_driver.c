/* Stands in for the driver: devices, contexts, memory, streams, events and graphs. Each entry is
 * that of the same name in the driver; misuse gives the driver's error where it has one, and is
 * said in the report where it has none. Modules and kernels: standin_module.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpusim/sim_memory.h"
#include "gpusim/standin_driver.h"

enum { DRIVER_VERSION = 13000, MULTIPROCESSORS = 4 };

/* As standin_check, in an entry that synchronises. */
static CUresult check_sync(void) {
  CUresult error = standin_check();
  return error ? error : sim_capture_forbids();
}

static void *pointer(CUdeviceptr address) {
  return (void *)(uintptr_t)address;
}

/* --- errors ----------------------------------------------------------------------------------- */

static const struct ErrorText {
  int value;
  const char *name, *text;
} more_errors[] = {
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {SIM_ERROR_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {SIM_ERROR_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not begun in this stream"},
    {SIM_ERROR_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {SIM_ERROR_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {SIM_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

CUresult cuGetErrorName(CUresult error, const char **name) {
  switch ((int)error) {
#define X(id, value)                                                                               \
  case value:                                                                                      \
    *name = #id;                                                                                   \
    return CUDA_SUCCESS;
    CUDA_RESULTS(X)
#undef X
  }
  for (size_t i = 0; i < sizeof more_errors / sizeof *more_errors; i++)
    if (more_errors[i].value == (int)error) {
      *name = more_errors[i].name;
      return CUDA_SUCCESS;
    }
  *name = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

/* The driver's texts, of the errors that programs print most; of others the name says it. */
CUresult cuGetErrorString(CUresult error, const char **text) {
  switch ((int)error) {
  case CUDA_SUCCESS:
    *text = "no error";
    return CUDA_SUCCESS;
  case CUDA_ERROR_INVALID_VALUE:
    *text = "invalid argument";
    return CUDA_SUCCESS;
  case CUDA_ERROR_OUT_OF_MEMORY:
    *text = "out of memory";
    return CUDA_SUCCESS;
  case CUDA_ERROR_ILLEGAL_ADDRESS:
    *text = "an illegal memory access was encountered";
    return CUDA_SUCCESS;
  case CUDA_ERROR_LAUNCH_FAILED:
    *text = "unspecified launch failure";
    return CUDA_SUCCESS;
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
    *text = "no kernel image is available for execution on the device";
    return CUDA_SUCCESS;
  case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    *text = "operation not permitted when stream is capturing";
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < sizeof more_errors / sizeof *more_errors; i++)
    if (more_errors[i].value == (int)error) {
      *text = more_errors[i].text;
      return CUDA_SUCCESS;
    }
  return cuGetErrorName(error, text);
}

/* --- devices and contexts --------------------------------------------------------------------- */

CUresult cuInit(unsigned flags) {
  SimProcess *p = sim_process();
  const char *loading = getenv("CUDA_MODULE_LOADING");
  sim_enter("cuInit", "code is loaded %s", loading ? loading : "LAZY");
  if (flags || p->misused) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  if (!p->ndevices) return standin_leave(CUDA_ERROR_NO_DEVICE);
  p->started = true;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version) {
  *version = DRIVER_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  if (!sim_process()->started) return CUDA_ERROR_NOT_INITIALIZED;
  *count = sim_process()->ndevices;
  return CUDA_SUCCESS;
}

static CUresult device_check(CUdevice device) {
  if (!sim_process()->started) return CUDA_ERROR_NOT_INITIALIZED;
  bool there = device >= 0 && device < sim_process()->ndevices;
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return device_check(ordinal);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  CUresult error = device_check(device);
  if (!error) snprintf(name, (size_t)size, "gpusim %d", device);
  return error;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CUresult error = device_check(device);
  if (error) return error;
  switch ((int)attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = MULTIPROCESSORS;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = sim_process()->capability / 10;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = sim_process()->capability % 10;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    *value = STANDIN_SHARED;
    break;
  default:
    sim_report("device attribute %d is not known here", (int)attribute);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  sim_enter("cuDevicePrimaryCtxRetain", "%d", device);
  CUresult error = device_check(device);
  if (error) return standin_leave(error);
  SimDevice *d = &sim_process()->device[device];
  if (!d->retained++) {
    d->memory = ptx_memory_new();
    d->used = true;
    if (!d->streams) sim_stream_new(d, true);
    sim_handle_add(d, SIM_CONTEXT);
  }
  *context = (CUcontext)d;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  sim_enter("cuDevicePrimaryCtxRelease_v2", "%d", device);
  CUresult error = device_check(device);
  if (error) return standin_leave(error);
  SimDevice *d = &sim_process()->device[device];
  if (!d->retained) return standin_leave(CUDA_ERROR_INVALID_CONTEXT);
  if (--d->retained) return standin_leave(CUDA_SUCCESS);
  error = sim_wait_device(d);
  sim_memory_free_all(d);
  sim_handle_remove(d);
  d->used = false;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context) {
  sim_enter("cuCtxSetCurrent", NULL);
  if (context && !sim_handle_is(context, SIM_CONTEXT))
    return standin_leave(CUDA_ERROR_INVALID_CONTEXT);
  sim_set_current((SimDevice *)context);
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void) {
  sim_enter("cuCtxSynchronize", NULL);
  CUresult error = check_sync();
  return standin_leave(error ? error : sim_wait_device(sim_current()));
}

/* --- memory ----------------------------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
  sim_enter("cuMemGetInfo_v2", NULL);
  CUresult error = standin_check();
  if (error) return standin_leave(error);
  *total = sim_process()->memory;
  *unused = *total - sim_current()->allocated;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  sim_enter("cuMemAlloc_v2", "%zu", bytes);
  CUresult error = check_sync();
  if (error) return standin_leave(error);
  if (!bytes) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  void *at = sim_memory_alloc(sim_current(), bytes);
  *address = (CUdeviceptr)(uintptr_t)at;
  return standin_leave(at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  sim_enter("cuMemFree_v2", NULL);
  CUresult error = check_sync();
  if (error || !address) return standin_leave(error);
  error = sim_wait_device(sim_current());
  if (error) return standin_leave(error);
  if (sim_memory_free(sim_current(), pointer(address))) return standin_leave(CUDA_SUCCESS);
  sim_report("cuMemFree of an address where no allocation begins");
  return standin_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  sim_enter("cuMemHostAlloc", "%zu", bytes);
  CUresult error = check_sync();
  if (error) return standin_leave(error);
  if (!bytes || flags & ~(unsigned)CU_MEMHOSTALLOC_PORTABLE)
    return standin_leave(CUDA_ERROR_INVALID_VALUE);
  *address = sim_memory_alloc(NULL, bytes);
  return standin_leave(*address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemFreeHost(void *address) {
  sim_enter("cuMemFreeHost", NULL);
  CUresult error = check_sync();
  if (error) return standin_leave(error);
  error = sim_wait_device(sim_current());
  if (error) return standin_leave(error);
  return standin_leave(sim_memory_free(NULL, address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* A host range of a transfer lies in pinned memory as a whole or not at all. */
static CUresult check_ranges(CUdeviceptr device, size_t bytes) {
  if (sim_memory_on(sim_current(), pointer(device), bytes)) return CUDA_SUCCESS;
  sim_report("a copy or memset of %zu bytes is not inside one allocation", bytes);
  return CUDA_ERROR_INVALID_VALUE;
}

/* A transfer that the host waits for: in the NULL stream, which does not wait for streams that are
 * not blocking. */
static CUresult transfer(SimCopy kind, void *to, const void *from, size_t bytes) {
  CUresult error = check_sync();
  if (!error)
    error = check_ranges((CUdeviceptr)(uintptr_t)(kind == SIM_TO_HOST ? from : to), bytes);
  if (error || !bytes) return error;
  SimStream *stream = sim_stream(NULL, &error);
  sim_enqueue(stream, sim_copy_new(kind, to, from, bytes));
  return sim_wait(sim_mark(stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  sim_enter("cuMemcpyHtoD_v2", "%zu", bytes);
  return standin_leave(transfer(SIM_TO_DEVICE, pointer(to), from, bytes));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  sim_enter("cuMemcpyDtoH_v2", "%zu", bytes);
  return standin_leave(transfer(SIM_TO_HOST, to, pointer(from), bytes));
}

/* Pageable memory: a transfer from it keeps what is there now, one to it is waited for. */
static CUresult transfer_async(SimCopy kind, void *to, const void *from, size_t bytes,
                               CUstream handle) {
  CUresult error;
  SimStream *stream = standin_stream(handle, &error);
  if (!error)
    error = check_ranges((CUdeviceptr)(uintptr_t)(kind == SIM_TO_HOST ? from : to), bytes);
  if (error || !bytes) return error;
  bool pinned = sim_memory_pinned(kind == SIM_TO_HOST ? to : from, bytes);
  if (!pinned) sim_trace("pageable memory");
  if (!pinned && stream->graph) {
    sim_report("a transfer of pageable memory is captured");
    stream->graph->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  sim_enqueue(stream, sim_copy_new(kind, to, from, bytes));
  return pinned || kind == SIM_TO_DEVICE ? CUDA_SUCCESS : sim_wait(sim_mark(stream));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  sim_enter("cuMemcpyHtoDAsync_v2", "%zu", bytes);
  return standin_leave(transfer_async(SIM_TO_DEVICE, pointer(to), from, bytes, stream));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  sim_enter("cuMemcpyDtoHAsync_v2", "%zu", bytes);
  return standin_leave(transfer_async(SIM_TO_HOST, to, pointer(from), bytes, stream));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  CUresult error;
  sim_enter("cuMemcpyDtoDAsync_v2", "%zu", bytes);
  SimStream *stream = standin_stream(handle, &error);
  if (!error) error = check_ranges(to, bytes);
  if (!error) error = check_ranges(from, bytes);
  if (!error && to < from + bytes && from < to + bytes && bytes) {
    sim_report("a copy of %zu bytes overlaps itself", bytes);
    error = CUDA_ERROR_INVALID_VALUE;
  }
  if (!error && bytes)
    sim_enqueue(stream, sim_copy_new(SIM_ON_DEVICE, pointer(to), pointer(from), bytes));
  return standin_leave(error);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream handle) {
  CUresult error;
  sim_enter("cuMemsetD8Async", "%zu", n);
  SimStream *stream = standin_stream(handle, &error);
  if (!error) error = check_ranges(to, n);
  if (!error && n) sim_enqueue(stream, sim_fill_new(pointer(to), value, n));
  return standin_leave(error);
}
