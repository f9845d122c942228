/* The simulated devices of one process: memory, streams, events and graphs, on which the stand-ins
 * for the driver, cuBLASLt and NCCL are built (standin_*.c). See README.md.
 *
 * What is enqueued does not run then. A stream is a queue of operations; they run when something
 * needs them, in the thread that does, under the one lock of the process, and in an order that
 * GPUSIM_ASYNC chooses among those that events allow:
 *
 *   - late: what is needed runs, and of other streams only what an event asks for, at the last
 *     moment;
 *   - early: every stream runs as far as events let it, the youngest first, before older ones;
 *   - eager: everything runs when it is enqueued.
 *
 * A wait that was forgotten gives wrong numbers, or a read of what nobody wrote, in one of the
 * first two. Results of transfers to the host are spoilt until the transfer ran.
 *
 * All functions expect the lock to be held (sim_enter), unless they say otherwise. */
#ifndef DTM_TESTS_GPUSIM_SIM_H
#define DTM_TESTS_GPUSIM_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpusim/ptx.h"
#include "runtime/device/cuda/driver.h"

/* Results of the driver that programs need no name for. */
enum {
  SIM_ERROR_CAPTURE_MERGE = 902,
  SIM_ERROR_CAPTURE_UNMATCHED = 903,
  SIM_ERROR_CAPTURE_UNJOINED = 904,
  SIM_ERROR_CAPTURE_ISOLATION = 905,
  SIM_ERROR_CAPTURED_EVENT = 907
};

typedef enum SimAsync { SIM_LATE, SIM_EARLY, SIM_EAGER } SimAsync;

/* What came of a try to run an operation. */
typedef enum SimPoll {
  SIM_DONE,
  SIM_BLOCKED, /* on a peer: to be tried again */
  SIM_FAILED   /* told; the device is unusable from now on */
} SimPoll;

typedef struct SimDevice SimDevice;
typedef struct SimStream SimStream;
typedef struct SimEvent SimEvent;
typedef struct SimGraph SimGraph;
typedef struct SimExec SimExec;
typedef struct SimOp SimOp;

/* Kinds of operations. A kind's struct begins with a SimOp. */
typedef struct SimKind {
  const char *name;
  /* Runs it, or as much of it as is possible now. */
  SimPoll (*step)(SimOp *op);
  /* Called when it enters the queue of a stream, not when it is captured; may be NULL. */
  void (*enter)(SimOp *op);
  SimOp *(*clone)(const SimOp *op);
  void (*free)(SimOp *op);
  bool meets; /* its operations wait for peers */
} SimKind;

struct SimOp {
  const SimKind *kind;
  SimOp *next;
  SimStream *stream;
};

/* A place in a queue: reached when so many operations of the stream have run. */
typedef struct SimMark {
  SimStream *stream; /* NULL: reached */
  uint64_t position;
} SimMark;

struct SimStream {
  SimDevice *device;
  SimStream *next; /* of all, the youngest first; streams are never freed */
  int id;          /* 0: the device's NULL stream */
  bool blocking;   /* ordered with the NULL stream */
  bool running;    /* its first operation is being tried */
  SimOp *first, **last;
  uint64_t entered, ran;
  uint64_t asked;  /* position that a query was told is not reached */
  SimGraph *graph; /* being captured, */
  unsigned lane;   /* as this lane of it */
};

struct SimEvent {
  bool timed, recorded;
  bool asked; /* a query was told it is not reached */
  pthread_t recorder;
  double asked_at;
  SimMark mark;
  double time;     /* seconds, when it was reached */
  SimGraph *graph; /* recorded while being captured */
  unsigned lane;
  uint64_t position;
};

enum { SIM_DEVICES = 64, SIM_LANES = 32 };

struct SimDevice {
  int ordinal;
  bool used; /* its context was retained */
  int retained;
  PtxMemory *memory;
  SimStream *streams;
  int nstreams;
  size_t allocated;
  CUresult sticky; /* once set, every call returns it */
};

/* Handles of a kind are told from others, and from freed ones. */
typedef enum SimHandle {
  SIM_NO_HANDLE,
  SIM_CONTEXT,
  SIM_STREAM,
  SIM_EVENT,
  SIM_MODULE,
  SIM_FUNCTION,
  SIM_GRAPH,
  SIM_EXEC,
  SIM_BLAS,
  SIM_BLAS_OPERATION,
  SIM_BLAS_LAYOUT,
  SIM_BLAS_PREFERENCE,
  SIM_COMM
} SimHandle;

typedef struct SimBlock SimBlock; /* of device or pinned memory */

typedef struct SimProcess {
  pthread_mutex_t lock;
  int ndevices, capability; /* 90 is 9.0 */
  size_t memory;            /* bytes of each device */
  SimAsync async;
  double deadline; /* seconds without progress after which waiting for peers is a fault */
  bool all_races;  /* also launches that are as an earlier one are looked at for races */
  bool started;
  bool misused; /* a setting in the environment is none; said */
  SimDevice device[SIM_DEVICES];
  SimBlock *blocks;
  int trace, report; /* file descriptors; trace -1: none */
  int captures;      /* streams that capture in global mode */
  SimGraph *capturing;
  void **handles;
  uint8_t *kinds;
  size_t nhandles, room;
  /* What the last operation that was blocked waits for: the word changes. */
  uint32_t *awaited, seen;
  uint64_t progress; /* operations that ran */
  int waiting;       /* threads in sim_wait */
  uint64_t calls;    /* that were entered */
} SimProcess;

/* The one state that there is, as the libraries stood in for have it; set up on first use. */
SimProcess *sim_process(void);

/* --- calls ---------------------------------------------------------------------------------- */

/* Takes the lock and traces a call ("cuMemFree_v2", then details by format, which may be NULL). */
void sim_enter(const char *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_leave(void);
/* Without hiding device memory from the host, which is at most to ask again. */
void sim_leave_shown(void);
/* The device of the thread's current context, or NULL. */
SimDevice *sim_current(void);
void sim_set_current(SimDevice *device);
/* Another line in the trace. */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says once what is wrong, on stderr or in the file GPUSIM_REPORT. */
void sim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a fault; the device is unusable afterwards. Returns SIM_FAILED. */
SimPoll sim_fail(SimDevice *device, CUresult error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Of a fault that the interpreter found, in what `doing` names. */
SimPoll sim_fault(SimDevice *device, const PtxFault *fault, const char *doing);

void sim_handle_add(void *handle, SimHandle kind);
bool sim_handle_is(const void *handle, SimHandle kind);
void sim_handle_remove(void *handle);

double sim_seconds(void);

/* --- memory --------------------------------------------------------------------------------- */

/* NULL when the device, or the host (device NULL: pinned memory), has no more. */
void *sim_memory_alloc(SimDevice *device, size_t bytes);
/* False when nothing begins there. */
bool sim_memory_free(SimDevice *device, void *address);
/* All that is left of a device. */
void sim_memory_free_all(SimDevice *device);
/* Whether all of it is in one block of pinned memory. */
bool sim_memory_pinned(const void *address, size_t bytes);
/* Whether all of it is in one block of the device. */
bool sim_memory_on(const SimDevice *device, const void *address, size_t bytes);

/* --- streams -------------------------------------------------------------------------------- */

SimStream *sim_stream_new(SimDevice *device, bool blocking);
/* The stream of a handle, NULL being that of the current device; NULL, with its error, when there
 * is none. */
SimStream *sim_stream(CUstream handle, CUresult *error);
/* Puts an operation, which it owns from then on, at the end of a stream, or in what it captures. */
void sim_enqueue(SimStream *stream, SimOp *op);
/* The end of a stream now. */
SimMark sim_mark(SimStream *stream);
/* What comes next in a stream waits until a mark is reached. */
void sim_enqueue_wait(SimStream *stream, SimMark mark);
/* The parts of it, for graphs: the NULL stream waits for all blocking streams, and they for it; an
 * operation takes one place; some were appended, which may run now. */
void sim_join(SimStream *stream);
SimOp *sim_wait_new(SimMark mark);
void sim_append(SimStream *stream, SimOp *op);
void sim_appended(SimDevice *device);
/* Runs what a mark needs. The lock is given up while peers are waited for. */
CUresult sim_wait(SimMark mark);
CUresult sim_wait_device(SimDevice *device);
/* Runs what a mark needs as far as that waits for no peer. */
SimPoll sim_try(SimMark mark);
/* The same, but what waits for a peer has some milliseconds; the lock is given up meanwhile. */
SimPoll sim_try_awhile(SimMark mark);
/* Everything of all devices, as far as that waits for no peer: true when something ran. */
bool sim_try_all(void);
bool sim_reached(SimMark mark);
/* Whether all that was enqueued on a device ran. */
bool sim_is_idle(const SimDevice *device);

/* --- capture -------------------------------------------------------------------------------- */

/* Operations of streams that are captured together. */
struct SimGraph {
  bool invalid;
  unsigned mode;
  SimStream *stream[SIM_LANES]; /* while it is captured */
  unsigned nlanes;
  SimOp *first[SIM_LANES], **last[SIM_LANES];
  uint64_t count[SIM_LANES];
};

/* Before a call that may not be made while something is captured. */
CUresult sim_capture_forbids(void);
CUresult sim_capture_begin(SimStream *stream, unsigned mode);
CUresult sim_capture_end(SimStream *stream, SimGraph **graph);
void sim_capture_enqueue(SimStream *stream, SimOp *op);
/* cuStreamWaitEvent where stream or event is in a capture. */
CUresult sim_capture_wait(SimStream *stream, const SimEvent *event);
/* Whether of any two of its operations one comes after the other. */
bool sim_graph_is_chain(const SimGraph *graph);
void sim_graph_free(SimGraph *graph);
SimExec *sim_exec_new(const SimGraph *graph, SimDevice *device);
void sim_exec_launch(SimExec *exec, SimStream *stream);
void sim_exec_free(SimExec *exec);

#endif
