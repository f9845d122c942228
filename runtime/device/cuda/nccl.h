/* The entries of NCCL that programs of several ranks use: types, constants and signatures as NCCL's
 * own header has them, and the loader. The project builds without NCCL; where its header is found a
 * test compiles these declarations beside it (tests/unit/test_cuda_nccl_header.c), which is also
 * why what that header defines is left out when it was included before.
 *
 * Names of types and constants are NVIDIA's. All entries are there from NCCL 2.18 on, the first
 * with ncclCommSplit. */
#ifndef DTM_RT_DEVICE_CUDA_NCCL_H
#define DTM_RT_DEVICE_CUDA_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "device/cuda/driver.h"

/* X(name, value) */
#define CUDA_NCCL_RESULTS(X)                                                                       \
  X(ncclSuccess, 0)                                                                                \
  X(ncclUnhandledCudaError, 1)                                                                     \
  X(ncclSystemError, 2)                                                                            \
  X(ncclInternalError, 3)                                                                          \
  X(ncclInvalidArgument, 4)                                                                        \
  X(ncclInvalidUsage, 5)                                                                           \
  X(ncclRemoteError, 6)                                                                            \
  X(ncclInProgress, 7)

#define CUDA_NCCL_REDUCTIONS(X)                                                                    \
  X(ncclSum, 0)                                                                                    \
  X(ncclProd, 1)                                                                                   \
  X(ncclMax, 2)                                                                                    \
  X(ncclMin, 3)                                                                                    \
  X(ncclAvg, 4)

#define CUDA_NCCL_TYPES(X)                                                                         \
  X(ncclInt8, 0)                                                                                   \
  X(ncclUint8, 1)                                                                                  \
  X(ncclInt32, 2)                                                                                  \
  X(ncclInt64, 4)                                                                                  \
  X(ncclFloat16, 6)                                                                                \
  X(ncclFloat32, 7)                                                                                \
  X(ncclFloat64, 8)                                                                                \
  X(ncclBfloat16, 9)

/* The configuration as it was in version 2.18. NCCL reads `size` bytes of it, takes `version` to
 * know which members mean something, and its own defaults for those that came later. */
typedef struct CudaNcclConfig {
  size_t size;
  unsigned magic, version;
  int blocking; /* 0: every call returns at once, ncclInProgress while it is under way */
  int cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
  int unused; /* up to the size */
} CudaNcclConfig;

enum { CUDA_NCCL_CONFIG_VERSION = 21800, CUDA_NCCL_CONFIG_UNSET = INT_MIN };
#define CUDA_NCCL_CONFIG_MAGIC 0xcafebeefu

/* As NCCL_CONFIG_INITIALIZER, and non-blocking. */
#define CUDA_NCCL_CONFIG                                                                           \
  {                                                                                                \
    .size = sizeof(CudaNcclConfig), .magic = CUDA_NCCL_CONFIG_MAGIC,                               \
    .version = CUDA_NCCL_CONFIG_VERSION, .blocking = 0, .cgaClusterSize = CUDA_NCCL_CONFIG_UNSET,  \
    .minCTAs = CUDA_NCCL_CONFIG_UNSET, .maxCTAs = CUDA_NCCL_CONFIG_UNSET,                          \
    .splitShare = CUDA_NCCL_CONFIG_UNSET, .unused = CUDA_NCCL_CONFIG_UNSET                         \
  }

#ifndef NCCL_H_ /* NCCL's header is not there */
enum { NCCL_UNIQUE_ID_BYTES = 128, NCCL_SPLIT_NOCOLOR = -1 };
typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef CudaNcclConfig ncclConfig_t;
#define X(name, value) name = value,
typedef enum ncclResult_t { CUDA_NCCL_RESULTS(X) } ncclResult_t;
typedef enum ncclRedOp_t { CUDA_NCCL_REDUCTIONS(X) } ncclRedOp_t;
typedef enum ncclDataType_t { CUDA_NCCL_TYPES(X) } ncclDataType_t;
#undef X
#endif

/* The one list of entries, X(member, exported name, result, parameters). */
#define CUDA_NCCL(X)                                                                               \
  X(get_version, ncclGetVersion, ncclResult_t, (int *version))                                     \
  X(unique_id, ncclGetUniqueId, ncclResult_t, (ncclUniqueId * id))                                 \
  X(init, ncclCommInitRankConfig, ncclResult_t,                                                    \
    (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))              \
  X(split, ncclCommSplit, ncclResult_t,                                                            \
    (ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config))                 \
  X(finalize, ncclCommFinalize, ncclResult_t, (ncclComm_t comm))                                   \
  X(destroy, ncclCommDestroy, ncclResult_t, (ncclComm_t comm))                                     \
  X(abort, ncclCommAbort, ncclResult_t, (ncclComm_t comm))                                         \
  X(async_error, ncclCommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t * error))     \
  X(error_string, ncclGetErrorString, const char *, (ncclResult_t result))                         \
  X(last_error, ncclGetLastError, const char *, (ncclComm_t comm))                                 \
  X(group_start, ncclGroupStart, ncclResult_t, (void))                                             \
  X(group_end, ncclGroupEnd, ncclResult_t, (void))                                                 \
  X(all_reduce, ncclAllReduce, ncclResult_t,                                                       \
    (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,                \
     ncclComm_t comm, CUstream stream))                                                            \
  X(reduce, ncclReduce, ncclResult_t,                                                              \
    (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,      \
     ncclComm_t comm, CUstream stream))                                                            \
  X(reduce_scatter, ncclReduceScatter, ncclResult_t,                                               \
    (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,                \
     ncclComm_t comm, CUstream stream))                                                            \
  X(all_gather, ncclAllGather, ncclResult_t,                                                       \
    (const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,               \
     CUstream stream))                                                                             \
  X(send, ncclSend, ncclResult_t,                                                                  \
    (const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                \
     CUstream stream))                                                                             \
  X(recv, ncclRecv, ncclResult_t,                                                                  \
    (void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream))

typedef struct CudaNccl {
#define X(member, name, result, parameters) result(*member) parameters;
  CUDA_NCCL(X)
#undef X
  int version; /* 22809: 2.28.9 */
} CudaNccl;

/* Finds NCCL (the file DTM_NCCL in the environment, else libnccl.so.2) and its entries. NULL, or a
 * message that says what is missing and how to get it, written to `message`.
 *
 * Sets NCCL_NVLS_ENABLE=0 unless the user set it: reductions inside the NVLink switch add in an
 * order that changes from run to run, and the same run twice should give the same bits. Hence no
 * other thread may read the environment meanwhile. */
const char *dtm_cuda_nccl_load(CudaNccl *nccl, char *message, size_t message_size);

#endif
