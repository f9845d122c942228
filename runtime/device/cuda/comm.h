/* Inside runtime/device/cuda: what moves, channels and the watchdog share.
 *
 * One communicator of the world; one per way in which an action cuts a mesh into groups, made by
 * splitting it, and one per channel. All are non-blocking: a call returns at once, and what it
 * began is in its stream when ncclCommGetAsyncError says so (dtm_cuda_comm_group). Every rank makes
 * them in one order, which follows from the image.
 *
 * Calls of NCCL are made by one thread under `lock`; the watchdog takes it to abort. */
#ifndef DTM_RT_DEVICE_CUDA_COMM_H
#define DTM_RT_DEVICE_CUDA_COMM_H

#include <pthread.h>
#include <stdbool.h>

#include "device/cuda/cuda.h"
#include "device/cuda/cuts.h"

typedef struct CudaWatch CudaWatch;

typedef struct CudaComm {
  CudaNccl nccl;
  int loaded;
  pthread_mutex_t lock;
  ncclComm_t *comms; /* each once; the first is that of the world */
  uint32_t ncomms;
  CudaCuts cuts;
  ncclComm_t *parts;  /* per cut, the last for none: where NCCL puts them once they are made */
  ncclComm_t *of_key; /* per key of `cuts`; NULL where this rank has no part */
  CudaBox *boxes;     /* of all plans; `table` is the same on the GPU */
  uint32_t nboxes;
  CUdeviceptr table;
  CUfunction copy, fill, rows; /* NULL until a plan has such a step */
  CudaWatch *watch;
  int failed; /* under the lock: all are being aborted; the code to exit with */
  struct CudaAbort *aborts;
  uint32_t naborts;
} CudaComm;

/* Ends all communicators, so that what waits for peers on the GPU ends too; nothing is called on
 * them afterwards. Returns before they are gone: NCCL waits in ncclCommAbort until graphs with
 * operations of the communicator are destroyed, and until what its operations stand behind in
 * their streams is over, so each is aborted by a thread of its own. False when a call of NCCL did
 * not return within `patience` seconds. Any thread, once or more. */
bool dtm_cuda_comm_abort(CudaDevice *d, int code, int patience);
/* NCCL says that a peer is gone: why is told by whoever sees its process end, who gets a moment for
 * it. The code of the failure of the job, or 0 when nobody said anything. */
int dtm_cuda_comm_told(CudaDevice *d);

/* What a plan needs on this rank, added up while actions are prepared: its boxes, its functions.
 * *first: of its boxes in the table. 0 or the code to exit with. */
int dtm_cuda_comm_add(CudaDevice *d, const CudaMovePlan *plan, uint32_t *first);
/* The communicator of a plan; of a channel its number too. After dtm_cuda_comm_ready. */
ncclComm_t dtm_cuda_comm_of(const CudaDevice *d, const CudaMovePlan *plan, uint32_t channel);

/* The addresses of the spaces of a plan for one run. */
typedef struct CudaBases {
  CUdeviceptr at[CUDA_SPACES];
} CudaBases;

/* Enqueues a COPY step; `first` as dtm_cuda_comm_add gave it. */
int dtm_cuda_comm_copy(CudaDevice *d, const CudaMovePlan *plan, const CudaStep *step,
                       uint32_t first, const CudaBases *bases, CUstream stream, uint32_t action);
/* Enqueues the calls of a CALLS step, as one group: returns when they are in the stream. */
int dtm_cuda_comm_group(CudaDevice *d, const CudaMovePlan *plan, const CudaStep *step,
                        ncclComm_t comm, const CudaBases *bases, CUstream stream);

/* Seconds, for deadlines. */
double dtm_cuda_now(void);

/* What comes next on `second` waits for what is enqueued on `first`. */
int dtm_cuda_comm_wait(CudaDevice *d, CUevent event, CUstream first, CUstream second);

/* A byte to, and one from, every rank that the plan exchanges messages with, on the stream of
 * collectives; `room`: a byte to send, and one to receive for each rank. */
int dtm_cuda_comm_connect(CudaDevice *d, const CudaMovePlan *plan, ncclComm_t comm,
                          CUdeviceptr room);
/* channel.c, moves.c: the same for the messages of an action, which may have none. */
int dtm_cuda_channel_connect(CudaDevice *d, uint32_t action, CUdeviceptr room);
int dtm_cuda_move_connect(CudaDevice *d, uint32_t action, CUdeviceptr room);
/* channel.c: what comes next waits for all messages of a POST or TAKE action so far. */
int dtm_cuda_channel_join(CudaDevice *d, uint32_t action);
/* moves.c: whether an action waits for peers. */
int dtm_cuda_move_meets(const CudaDevice *d, uint32_t action);

/* --- watchdog.c */
/* Lines of work that are watched, each in the order of a stream: collectives, graphs that hold
 * some, and one for each end of a channel. */
enum { CUDA_LINE_COMM, CUDA_LINE_GRAPH, CUDA_LINES };
int dtm_cuda_watch_open(CudaDevice *d);
/* Stops the thread, which until then ends a process that cannot end by itself. */
void dtm_cuda_watch_close(CudaDevice *d);
/* One more line; its number. 0 or the code to exit with. */
int dtm_cuda_watch_line(CudaDevice *d, uint32_t *line);
/* Around what `action` enqueues on a line's stream and waits for peers. */
int dtm_cuda_watch_begin(CudaDevice *d, uint32_t line, CUstream stream, uint32_t action);
int dtm_cuda_watch_end(CudaDevice *d, uint32_t line, CUstream stream);
/* In the capture of a graph that waits for peers: at its beginning; behind each action that does;
 * at its end, where the streams come together. */
int dtm_cuda_watch_capture(CudaDevice *d);
int dtm_cuda_watch_captured(CudaDevice *d, uint32_t action);
int dtm_cuda_watch_join(CudaDevice *d);

#endif
