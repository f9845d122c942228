/* Communicators of the stand-in for NCCL: standin_nccl.c has the entries, nccl_run.c what runs in
 * streams, nccl_reduce.c the arithmetic. */
#ifndef DTM_TESTS_GPUSIM_NCCL_COMM_H
#define DTM_TESTS_GPUSIM_NCCL_COMM_H

#include "gpusim/nccl_wire.h"
#include "gpusim/sim.h"
#include "runtime/device/cuda/nccl.h"

typedef enum CommStage {
  COMM_SPLITTING, /* the parent's ranks have not all asked yet */
  COMM_OPENING,   /* not all ranks are there */
  COMM_READY,
  COMM_CONNECTING, /* an operation needs connections first: it is enqueued when they are there */
  COMM_FINALIZING,
  COMM_FINALIZED
} CommStage;

typedef struct Comm Comm;
struct Comm {
  Comm *next; /* of all; communicators are never freed */
  SimDevice *device;
  Wire wire;
  CommStage stage;
  bool blocking, aborted, polled;
  uint64_t live;      /* its operations that streams, captures and graphs hold */
  ncclResult_t error; /* asynchronous, for good */
  char path[256], text[512];
  SimMark mark; /* behind its last operation */
  SimStream *captured;
  uint32_t captures, captures_to[WIRE_RANKS], captures_from[WIRE_RANKS]; /* so far */
  SimOp *waiting; /* COMM_CONNECTING: to be enqueued in */
  SimStream *waiting_in;
  bool connected, peers[WIRE_RANKS]; /* for collectives, for messages */
  uint64_t calls;
  uint32_t activity;    /* of the wire when it was blocked last */
  double blocked_since; /* nothing has happened; 0: it is not blocked */
  double wanted_at;
  /* COMM_SPLITTING */
  Comm *child; /* of the parent, which is in progress until then: it is put in *result when made */
  ncclComm_t *result;
  Comm *parent;
  uint64_t split;
  int color, key;
};

/* One call, as part of what a group runs at once. */
typedef struct CommPart {
  WireCall call; /* root: the peer of a message */
  const char *src;
  char *dst;
  /* progress */
  bool begun;
  uint64_t posted, taken; /* chunks */
  bool over;
} CommPart;

/* An operation that runs parts of one communicator. */
SimOp *comm_op_new(Comm *comm, const CommPart *parts, size_t nparts);

size_t comm_type_bytes(int type);
/* Bytes that one rank gives and gets. */
uint64_t comm_bytes_in(const Comm *comm, const WireCall *call);
uint64_t comm_bytes_out(const Comm *comm, const WireCall *call);
void comm_name(const WireCall *call, char *text, size_t size);

/* Records an error of the communicator and says it, once among its ranks. */
void comm_fail(Comm *comm, ncclResult_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* to[i] = reduction of from[0][i], from[1][i], ... of n elements. Sums fold in the order of ranks:
 * f64 in f64, other floats in f32 and rounded once, integers modulo their size; avg is the sum
 * divided by the number of ranks. Maximum and minimum ignore NaN where there is a number. */
void comm_reduce(void *to, const void *const *from, int nranks, size_t n, int type, int op);

#endif
