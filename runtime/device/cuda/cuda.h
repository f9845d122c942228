/* Inside runtime/device/cuda: a GPU as a device (device.h).
 *
 * A rank has one GPU, one allocation for its arena (the address of a buffer is dtm_cuda_address)
 * and two streams: `compute` for everything but collectives, which run on `comm` between two
 * events. Nothing waits for the GPU within a step but where the outputs of a step are looked at
 * (staging.c).
 *
 * Each kind of action has three functions, in a file of its own: prepare once per action at start
 * (may allocate, synchronise, load), run (enqueues, and never waits), free.
 */
#ifndef DTM_RT_DEVICE_CUDA_H
#define DTM_RT_DEVICE_CUDA_H

#include "device/cuda/driver.h"
#include "device/operands.h"
#include "runtime/abi/cuda.h"

/* Of streams whose work others wait for; the driver takes the highest that it has. */
enum { CUDA_HIGHEST_PRIORITY = -5 };

struct CudaBlasLt;
struct CudaProducts; /* matmul.c: what all products share */
struct CudaComm;     /* comm.c: communicators, NCCL */

/* What a kernel leaves when it meets data that cannot be: it sets `action` by atomicCAS from 0 and,
 * where it was the first, the rest. Looked at with the outputs of a step. The same as in
 * kernels/fault.cuh. */
typedef struct CudaFault {
  uint32_t action; /* number + 1; 0 = none */
  uint32_t zero;
  int64_t index, extent; /* as LibFault */
  double mine, first;
  CUdeviceptr now; /* the step of the block of integers, never changed */
  int64_t step;    /* as it was then: a fault is seen when the host may be a step further */
} CudaFault;

typedef enum CudaCaptures {
  CUDA_CAPTURES_NOT,
  CUDA_CAPTURES,
  CUDA_CAPTURES_CHAIN /* a graph in which everything follows on another: graph.h */
} CudaCaptures;

typedef struct CudaStaging CudaStaging; /* staging.c: pinned memory, inputs and outputs under way */
typedef struct CudaGraphs CudaGraphs;   /* graph.c */
struct CudaTimes;                       /* times.c */

typedef struct CudaDevice {
  RtDevice base;
  CudaDriver driver;
  const CudaDriver *cu; /* &driver */
  CUcontext context;
  CUdevice device;
  int capability; /* 90 */
  int sms;
  char name[128];    /* "NVIDIA H200" */
  AbiCuda code;      /* the blob */
  CUmodule *modules; /* of the blob; NULL = not loaded yet */
  CUfunction *functions;
  CUstream compute, comm;
  CUdeviceptr arena;
  CUdeviceptr fault; /* CudaFault */
  /* Scratch of one action at a time per stream: prepare raises the sizes, the memory is there after
   * all actions were prepared. */
  CUdeviceptr scratch, comm_scratch;
  size_t scratch_bytes, comm_scratch_bytes;
  void **states; /* per action: what its prepare made */
  CudaStaging *staging;
  CudaGraphs *graphs;
  CudaCaptures capturing;      /* whether what is enqueued goes into a graph */
  struct CudaBundles *bundles; /* bundle.c */
  struct CudaTimes *times;     /* NULL: nobody asks */
  int waits;                   /* every action is waited for (DTM_CUDA_WAIT) */
  AbiStep step;                /* base.step */
  RtMirror mirror;
  void *view; /* what cuda_view handed out */
  size_t view_bytes;
  struct CudaProducts *products;
  struct CudaComm *collectives;
} CudaDevice;

static inline CudaDevice *dtm_cuda_of(RtDevice *d) {
  return (CudaDevice *)(void *)d;
}
/* The block of the micro-batch at hand. */
static inline CUdeviceptr dtm_cuda_address(const CudaDevice *d, const AbiBuffer *b) {
  return d->arena + b->offset + dtm_device_slot(&d->base, b);
}
static inline int64_t dtm_cuda_ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
static inline const AbiAction *dtm_cuda_action(const CudaDevice *d, uint32_t action) {
  return &d->base.image->action[action];
}

/* --- kernels.c: code of the blob */
/* A function of the blob, its module loaded. 0 or the code to exit with, the function NULL. */
int dtm_cuda_function(CudaDevice *d, const char *name, CUfunction *function);
/* Blocks of `block` threads in a grid of one dim; grid 0 is nothing. `params`: addresses of the
 * arguments. 0 or the code to exit with. */
int dtm_cuda_launch(CudaDevice *d, CUstream stream, CUfunction function, unsigned grid,
                    unsigned block, unsigned shared, void **params, uint32_t action);
/* Reports that a call of the driver failed: "cannot WHAT: CUDA_ERROR_...", with place and what to
 * do about it. Returns the code to exit with. */
int dtm_cuda_failed(CudaDevice *d, CUresult error, const char *what);

/* --- memory.c */
/* Device memory; `what` it is for, in messages: "the scratch of products". Give it
 * back with memory_free. */
int dtm_cuda_alloc(CudaDevice *d, size_t bytes, const char *what, CUdeviceptr *address);

/* Copies host memory of any kind to the GPU, in the order of `compute`, and waits until it is
 * there: for start-up and for variables of files. 0 or the code to exit with. */
int dtm_cuda_write(CudaDevice *d, CUdeviceptr to, const void *from, size_t bytes);

/* Checks that the program fits, reserves its memory and clears it. */
int dtm_cuda_memory_open(CudaDevice *d);
void dtm_cuda_memory_close(CudaDevice *d);
/* "1.234 GiB (parameters 0.5, ...)": what this rank needs. */
void dtm_cuda_memory_text(const CudaDevice *d, char *text, size_t size);

/* --- open.c: enqueues one action */
int dtm_cuda_run(CudaDevice *d, uint32_t action, const RtHooks *hooks);
/* Around what enqueues an action outside of a graph: takes its time and waits for it, where that
 * was asked for. `status`: of the action. */
int dtm_cuda_run_begin(CudaDevice *d, uint32_t action);
int dtm_cuda_run_end(CudaDevice *d, int status);

/* --- the kinds of actions. prepare: *state may stay NULL, and there is nothing to free then. 0 or
 * the code to exit with. */
#define CUDA_KIND(kind)                                                                            \
  int dtm_cuda_##kind##_prepare(CudaDevice *d, uint32_t action, void **state);                     \
  int dtm_cuda_##kind##_run(CudaDevice *d, uint32_t action, void *state);                          \
  void dtm_cuda_##kind##_free(CudaDevice *d, void *state);
CUDA_KIND(kernel)    /* kernels.c: KERNEL */
CUDA_KIND(matmul)    /* matmul.c: MATMUL */
CUDA_KIND(library)   /* library.c: LIBRARY */
CUDA_KIND(attention) /* attention.c: those of them that are attention */
CUDA_KIND(move)      /* moves.c: what dtm_device_is_move says */
CUDA_KIND(channel)   /* channel.c: POST, TAKE */
#undef CUDA_KIND

/* --- after all actions were prepared, and at the end (also of a device half opened) */
void dtm_cuda_matmul_close(CudaDevice *d);
int dtm_cuda_comm_ready(CudaDevice *d);
/* Called again and again while the host waits for the GPU: 0, or the code to exit with when a peer
 * failed or NCCL reports an error, all communicators being aborted, so that the wait ends. Gives
 * the sign of life of a rank whose GPU goes on (watchdog.c). */
int dtm_cuda_comm_watch(CudaDevice *d);
void dtm_cuda_comm_close(CudaDevice *d);

#endif
