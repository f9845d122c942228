/* The entries of the CUDA driver that programs use: types, constants and signatures as the driver's
 * own header has them, and the loader. The project builds without a CUDA toolkit; where one is
 * found a test compiles these declarations beside the toolkit's header
 * (tests/unit/test_cuda_driver_header.c), which is also why what that header defines is left out
 * when it was included before.
 *
 * Names of types and constants are NVIDIA's. Exported names carry the version of an entry (_v2);
 * all of them are those of a driver for CUDA 12.0 and later. */
#ifndef DTM_RT_DEVICE_CUDA_DRIVER_H
#define DTM_RT_DEVICE_CUDA_DRIVER_H

#include <stddef.h>

/* X(name, value) */
#define CUDA_RESULTS(X)                                                                            \
  X(CUDA_SUCCESS, 0)                                                                               \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                   \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                   \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                 \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                   \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                             \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                     \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                                                \
  X(CUDA_ERROR_DEVICE_NOT_LICENSED, 102)                                                           \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                               \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                             \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                             \
  X(CUDA_ERROR_INVALID_PTX, 218)                                                                   \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                          \
  X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)                                                        \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                       \
  X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223)                                                      \
  X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303)                                                     \
  X(CUDA_ERROR_OPERATING_SYSTEM, 304)                                                              \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                                     \
  X(CUDA_ERROR_NOT_READY, 600)                                                                     \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                               \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                       \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                \
  X(CUDA_ERROR_ASSERT, 710)                                                                        \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                          \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                           \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                            \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                         \
  X(CUDA_ERROR_INVALID_PC, 718)                                                                    \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                 \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                 \
  X(CUDA_ERROR_SYSTEM_NOT_READY, 802)                                                              \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                        \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                                                \
  X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805)                                                         \
  X(CUDA_ERROR_MPS_RPC_FAILURE, 806)                                                               \
  X(CUDA_ERROR_MPS_SERVER_NOT_READY, 807)                                                          \
  X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808)                                                       \
  X(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, 809)                                                   \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                    \
  X(CUDA_ERROR_UNKNOWN, 999)

#define CUDA_DEVICE_ATTRIBUTES(X)                                                                  \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                  \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                              \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                              \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)

#define CUDA_FUNCTION_ATTRIBUTES(X) X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)

/* Flags of streams, events and host memory, and modes of capture. */
#define CUDA_FLAGS(X)                                                                              \
  X(CU_STREAM_DEFAULT, 0)                                                                          \
  X(CU_STREAM_NON_BLOCKING, 1)                                                                     \
  X(CU_EVENT_DEFAULT, 0)                                                                           \
  X(CU_EVENT_BLOCKING_SYNC, 1)                                                                     \
  X(CU_EVENT_DISABLE_TIMING, 2)                                                                    \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                   \
  X(CU_JIT_INFO_LOG_BUFFER, 3)                                                                     \
  X(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 4)                                                          \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)                                                                    \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                                                         \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                              \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                        \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)

#ifndef CUDA_VERSION /* the toolkit's header is not there */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
#define X(name, value) name = value,
typedef enum cudaError_enum { CUDA_RESULTS(X) } CUresult;
typedef enum CUdevice_attribute_enum { CUDA_DEVICE_ATTRIBUTES(X) } CUdevice_attribute;
typedef enum CUfunction_attribute_enum { CUDA_FUNCTION_ATTRIBUTES(X) } CUfunction_attribute;
enum { CUDA_FLAGS(X) };
#undef X
typedef unsigned int CUjit_option;
typedef unsigned int CUstreamCaptureMode;
#endif

/* The one list of entries, X(member, exported name, parameters); all return CUresult.
 * cuMemcpyHtoD is not among them: it may return while its bytes are still on their way, which
 * streams that are not ordered with the default one do not wait for (dtm_cuda_write). */
#define CUDA_DRIVER(X)                                                                             \
  X(init, cuInit, (unsigned flags))                                                                \
  X(driver_version, cuDriverGetVersion, (int *version))                                            \
  X(error_name, cuGetErrorName, (CUresult error, const char **name))                               \
  X(error_string, cuGetErrorString, (CUresult error, const char **text))                           \
  X(device_count, cuDeviceGetCount, (int *count))                                                  \
  X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                     \
  X(device_name, cuDeviceGetName, (char *name, int size, CUdevice device))                         \
  X(device_attribute, cuDeviceGetAttribute,                                                        \
    (int *value, CUdevice_attribute attribute, CUdevice device))                                   \
  X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))              \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                              \
  X(context_use, cuCtxSetCurrent, (CUcontext context))                                             \
  X(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                 \
  X(memory_alloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                            \
  X(memory_free, cuMemFree_v2, (CUdeviceptr address))                                              \
  X(host_alloc, cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                    \
  X(host_free, cuMemFreeHost, (void *address))                                                     \
  X(to_host, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                          \
  X(to_device_async, cuMemcpyHtoDAsync_v2,                                                         \
    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                             \
  X(to_host_async, cuMemcpyDtoHAsync_v2,                                                           \
    (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                   \
  X(copy_async, cuMemcpyDtoDAsync_v2,                                                              \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                             \
  X(set8_async, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream stream)) \
  X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                            \
  X(stream_create_priority, cuStreamCreateWithPriority,                                            \
    (CUstream * stream, unsigned flags, int priority))                                             \
  X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                         \
  X(stream_sync, cuStreamSynchronize, (CUstream stream))                                           \
  X(stream_query, cuStreamQuery, (CUstream stream))                                                \
  X(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))              \
  X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                                \
  X(event_record, cuEventRecord, (CUevent event, CUstream stream))                                 \
  X(event_query, cuEventQuery, (CUevent event))                                                    \
  X(event_sync, cuEventSynchronize, (CUevent event))                                               \
  X(event_elapsed, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))          \
  X(event_destroy, cuEventDestroy_v2, (CUevent event))                                             \
  X(module_load, cuModuleLoadDataEx,                                                               \
    (CUmodule * module, const void *image, unsigned noptions, CUjit_option *options,               \
     void **values))                                                                               \
  X(module_unload, cuModuleUnload, (CUmodule module))                                              \
  X(module_function, cuModuleGetFunction,                                                          \
    (CUfunction * function, CUmodule module, const char *name))                                    \
  X(function_set, cuFuncSetAttribute,                                                              \
    (CUfunction function, CUfunction_attribute attribute, int value))                              \
  X(launch, cuLaunchKernel,                                                                        \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **params,          \
     void **extra))                                                                                \
  X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))           \
  X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                           \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                                \
    (CUgraphExec * instance, CUgraph graph, unsigned long long flags))                             \
  X(graph_upload, cuGraphUpload, (CUgraphExec instance, CUstream stream))                          \
  X(graph_launch, cuGraphLaunch, (CUgraphExec instance, CUstream stream))                          \
  X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec instance))                                \
  X(graph_destroy, cuGraphDestroy, (CUgraph graph))

typedef struct CudaDriver {
#define X(member, name, parameters) CUresult(*member) parameters;
  CUDA_DRIVER(X)
#undef X
  int version; /* 12080: CUDA 12.8 */
} CudaDriver;

enum { CUDA_DRIVER_MIN_VERSION = 12000 };

/* Finds the driver (the file DTM_CUDA_DRIVER in the environment, else libcuda.so.1), its entries
 * and its version, and starts it. NULL, or a message of one or more lines that says what is missing
 * and how to get it, written to `message`. */
const char *dtm_cuda_driver_load(CudaDriver *driver, char *message, size_t message_size);

/* "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered". */
void dtm_cuda_error_text(const CudaDriver *driver, CUresult error, char *text, size_t size);

/* Whether the machine lacks something, as against what the program does wrong. */
int dtm_cuda_error_is_machine(CUresult error);
/* What helps, as a line to put behind the text: "\n  ..."; "" where nothing is known. */
const char *dtm_cuda_error_remedy(CUresult error);

#endif
