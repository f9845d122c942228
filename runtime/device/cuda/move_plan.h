/* What a move is on GPUs: copies of boxes by a kernel, calls of NCCL, folds by a kernel, one after
 * the other. Found once from the image, without a GPU; moves.c and channel.c carry it out.
 *
 * Stage in: an action and a world rank. Stage out: a list of steps over three spaces of memory, of
 * which nothing depends on the step of training. All ranks that take part make lists whose calls
 * match: each is a function of the image, and what two ranks exchange is found by one rule from the
 * boxes of the receiving one, which both know.
 *
 * Forms of a gather. Where the blocks of all ranks are equal contiguous chunks of the result, one
 * call moves them in place. Equal blocks elsewhere are gathered into scratch memory and put in
 * their places. Others are padded to the largest and go the same way, all of a bucket by one call;
 * unless padding would add more than a quarter to at least 1 MiB: then every rank sends its block
 * as it is to each of the others, which costs more messages but no byte and no copy too many.
 * Reduce-scatters have the same four forms, the last with one reduction per receiving rank.
 * Everything else is exchanged by messages. */
#ifndef DTM_RT_DEVICE_CUDA_MOVE_PLAN_H
#define DTM_RT_DEVICE_CUDA_MOVE_PLAN_H

#include "comm/comm.h"
#include "device/cuda/kernels/moves_args.h"
#include "device/cuda/nccl.h"
#include "runtime/abi/image.h"

/* Where an offset counts from: the first source and the first destination of the action (the block
 * of the micro-batch at hand), or memory of the runtime. */
typedef enum CudaSpace { CUDA_AT_SRC, CUDA_AT_DST, CUDA_AT_SCRATCH, CUDA_SPACES } CudaSpace;

typedef enum CudaCallKind {
  CUDA_CALL_ALL_REDUCE,
  CUDA_CALL_ALL_GATHER,
  CUDA_CALL_REDUCE_SCATTER,
  CUDA_CALL_REDUCE, /* to rank `peer` */
  CUDA_CALL_SEND,   /* to rank `peer` */
  CUDA_CALL_RECV    /* from rank `peer` */
} CudaCallKind;

typedef struct CudaCall {
  CudaCallKind kind;
  CudaSpace from, to; /* SEND: no `to`; RECV: no `from` */
  int64_t src, dst;   /* bytes */
  size_t count;       /* elements of `type`, as NCCL counts them */
  ncclDataType_t type;
  ncclRedOp_t op;
  int32_t peer; /* in the communicator */
} CudaCall;

typedef enum CudaStepKind {
  CUDA_STEP_COPY,  /* n boxes from `first` on, between two spaces */
  CUDA_STEP_CALLS, /* n calls from `first` on, as one group */
  CUDA_STEP_FOLD,  /* dst[i] = scratch[i] op scratch[i + stride] op ... */
  CUDA_STEP_FILL,  /* n bytes at dst */
  CUDA_STEP_ROWS   /* zero for the rows of dst that are not used */
} CudaStepKind;

typedef struct CudaStep {
  CudaStepKind kind;
  CudaSpace from, to;
  uint32_t first, n;
  int64_t tiles;             /* COPY */
  int64_t src, dst;          /* FOLD: bytes in scratch, in dst */
  int64_t parts, stride;     /* FOLD: bytes from part to part */
  int64_t count;             /* FOLD: elements; FILL: bytes */
  uint64_t pattern;          /* FILL: 8 bytes of it */
  uint32_t dtype, op;        /* FOLD: AbiDType, AbiReduce; ROWS: AbiDType of the numbers */
  int64_t groups, rows, row; /* ROWS: of dst; bytes of a row */
} CudaStep;

typedef enum CudaCommKind {
  CUDA_COMM_NONE,
  CUDA_COMM_GROUP,  /* the ranks of a mesh that differ in some axes only; ranks by position */
  CUDA_COMM_WORLD,  /* ranks as in the world */
  CUDA_COMM_CHANNEL /* the ranks of both ends, ascending */
} CudaCommKind;

typedef struct CudaMovePlan {
  CudaCommKind comm;
  uint32_t mesh, axes; /* of a group */
  CudaStep *steps;
  uint32_t nsteps;
  CudaBox *boxes;
  uint32_t nboxes;
  CudaCall *calls;
  uint32_t ncalls;
  size_t scratch; /* bytes */
} CudaMovePlan;

/* For an action of kind START (plans what it begins), PULL, PULL_ROWS, ALL_REDUCE, REDUCE_SCATTER,
 * SLICE, FILL or COPY in which `rank` (of the world) takes part. 0, or -1 when memory is short. */
int dtm_cuda_move_plan(const Image *image, uint32_t action, int32_t rank, CudaMovePlan *plan);

/* For an action of kind POST or TAKE. The destination space of POST is its slot of the outbox;
 * scratch memory is the channel's own, for POST as much for each slot. */
int dtm_cuda_channel_plan(const Image *image, uint32_t action, int32_t rank, CudaMovePlan *plan);

void dtm_cuda_move_plan_free(CudaMovePlan *plan);

/* Where an action of kind PULL, ALL_REDUCE, REDUCE_SCATTER or START needs the groups of its axes.
 */
int dtm_cuda_move_has_group(const Image *image, const AbiAction *action);

/* The world ranks of the two ends of a channel, ascending, in `ranks` (room for the world); their
 * number. */
int32_t dtm_cuda_channel_ranks(const Image *image, uint32_t channel, int32_t *ranks);

#endif
