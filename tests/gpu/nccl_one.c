/* Everything that programs call of NCCL, on one rank and one GPU: the library takes the entries as
 * they are declared here, its non-blocking ways are those that the runtime expects, and every
 * collective of one rank gives what went in. A program of dtmc has no groups of one rank, so it
 * would call none of it.
 *
 *   gpu_nccl_one [ELEMENTS]
 *
 * In this order: a communicator and one split from it; reductions of every type and kind, gathers,
 * scattered reductions, messages to itself, all in a second place and in place; the same in a CUDA
 * graph that is launched twice; the end of one communicator and the abortion of the other.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "device/cuda/nccl.h"
#include "gpu/gpu.h"

typedef struct Nccl {
  Gpu gpu;
  CudaNccl nccl;
  ncclComm_t world, part;
  CUdeviceptr from, to;
  unsigned char *sent, *got; /* room for `elements` of 8 bytes */
  size_t elements;
  int calls;
} Nccl;

static void failed(Nccl *n, ncclResult_t result, const char *what) {
  const char *last = n->nccl.last_error(NULL);
  fprintf(stderr, "error: NCCL cannot %s: %s%s%s\n", what, n->nccl.error_string(result),
          last && *last ? ": " : "", last ? last : "");
  exit(1);
}

/* Until what was begun on a communicator is over; half a minute at most. */
static void settle(Nccl *n, ncclComm_t comm, ncclResult_t result, const char *what) {
  static const struct timespec pause = {0, 1000000};
  for (int i = 0; result == ncclInProgress && i < 30000; i++) {
    ncclResult_t state = ncclSuccess;
    result = n->nccl.async_error(comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclInProgress) nanosleep(&pause, NULL);
  }
  if (result != ncclSuccess) failed(n, result, what);
}

static void make_communicators(Nccl *n) {
  ncclUniqueId id;
  ncclConfig_t config = CUDA_NCCL_CONFIG;
  ncclResult_t result = n->nccl.unique_id(&id);
  if (result != ncclSuccess) failed(n, result, "begin");
  result = n->nccl.init(&n->world, 1, id, 0, &config);
  settle(n, n->world, result, "make a communicator");
  config = (ncclConfig_t)CUDA_NCCL_CONFIG;
  config.minCTAs = config.maxCTAs = 1;
  result = n->nccl.split(n->world, 0, 0, &n->part, &config);
  settle(n, n->world, result, "split a communicator");
  settle(n, n->part, ncclInProgress, "connect the part");
}

/* --- calls ---------------------------------------------------------------------------------------
 */

typedef enum Call { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, MESSAGE, CALLS } Call;

static const char *const call_names[CALLS] = {
    [ALL_REDUCE] = "reduce among all",
    [REDUCE] = "reduce to one",
    [REDUCE_SCATTER] = "reduce and scatter",
    [ALL_GATHER] = "gather",
    [MESSAGE] = "send to itself",
};

static void enqueue(Nccl *n, ncclComm_t comm, Call call, ncclDataType_t type, ncclRedOp_t op,
                    bool in_place) {
  const void *from = (const void *)(uintptr_t)(in_place ? n->to : n->from);
  void *to = (void *)(uintptr_t)n->to;
  size_t count = n->elements;
  CUstream stream = n->gpu.stream;
  ncclResult_t result = ncclSuccess;
  switch (call) {
  case ALL_REDUCE:
    result = n->nccl.all_reduce(from, to, count, type, op, comm, stream);
    break;
  case REDUCE:
    result = n->nccl.reduce(from, to, count, type, op, 0, comm, stream);
    break;
  case REDUCE_SCATTER:
    result = n->nccl.reduce_scatter(from, to, count, type, op, comm, stream);
    break;
  case ALL_GATHER:
    result = n->nccl.all_gather(from, to, count, type, comm, stream);
    break;
  case MESSAGE: /* from another place than to */
    result = n->nccl.group_start();
    if (result == ncclSuccess)
      result = n->nccl.send((const void *)(uintptr_t)n->from, count, type, 0, comm, stream);
    if (result == ncclSuccess || result == ncclInProgress)
      result = n->nccl.recv(to, count, type, 0, comm, stream);
    if (result == ncclSuccess || result == ncclInProgress) result = n->nccl.group_end();
    break;
  case CALLS:
    break;
  }
  settle(n, comm, result, call_names[call]);
  n->calls++;
}

static size_t bytes_of(ncclDataType_t type) {
  static const size_t bytes[] = {
      [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclInt64] = 8,
      [ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};
  return bytes[type];
}

/* Puts numbers (no NaN: top bits are those of small positive floats) into one place and other bytes
 * into the second. */
static void fill(Nccl *n, bool in_place) {
  const Gpu *g = &n->gpu;
  size_t bytes = n->elements * 8;
  gpu_write(g, in_place ? n->to : n->from, n->sent, bytes);
  if (!in_place) gpu_check(g, g->cu.set8_async(n->to, 0xee, bytes, g->stream), "fill memory");
}

static void compare(Nccl *n, Call call, ncclDataType_t type, ncclRedOp_t op) {
  const Gpu *g = &n->gpu;
  size_t bytes = n->elements * bytes_of(type);
  gpu_check(g, g->cu.stream_sync(g->stream), "run a collective");
  gpu_check(g, g->cu.to_host(n->got, n->to, bytes), "read memory");
  if (memcmp(n->got, n->sent, bytes) == 0) return;
  fprintf(stderr, "error: NCCL gives other values: %s, type %d, operation %d\n", call_names[call],
          (int)type, (int)op);
  exit(1);
}

static void try(Nccl *n, ncclComm_t comm, Call call, ncclDataType_t type, ncclRedOp_t op) {
  for (int in_place = 0; in_place < (call == MESSAGE ? 1 : 2); in_place++) {
    fill(n, in_place);
    enqueue(n, comm, call, type, op, in_place);
    compare(n, call, type, op);
  }
}

static void try_all(Nccl *n, ncclComm_t comm) {
  static const ncclDataType_t types[] = {
#define X(name, value) name,
      CUDA_NCCL_TYPES(X)
#undef X
  };
  static const ncclRedOp_t operations[] = {
#define X(name, value) name,
      CUDA_NCCL_REDUCTIONS(X)
#undef X
  };
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
      for (Call call = ALL_REDUCE; call <= REDUCE_SCATTER; call++)
        try(n, comm, call, types[t], operations[o]);
    try(n, comm, ALL_GATHER, types[t], ncclSum);
    try(n, comm, MESSAGE, types[t], ncclSum);
  }
}

/* A reduction of each communicator, in a graph. */
static void try_graph(Nccl *n) {
  const Gpu *g = &n->gpu;
  CUgraph graph;
  CUgraphExec runs;
  gpu_check(g, g->cu.capture_begin(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
  enqueue(n, n->world, ALL_REDUCE, ncclFloat32, ncclSum, false);
  enqueue(n, n->part, ALL_REDUCE, ncclFloat32, ncclSum, true);
  gpu_check(g, g->cu.capture_end(g->stream, &graph), "capture collectives");
  gpu_check(g, g->cu.graph_instantiate(&runs, graph, 0), "make a graph");
  for (int i = 0; i < 2; i++) {
    fill(n, false);
    gpu_check(g, g->cu.graph_launch(runs, g->stream), "run a graph");
    compare(n, ALL_REDUCE, ncclFloat32, ncclSum);
  }
  gpu_check(g, g->cu.graph_exec_destroy(runs), "end a graph");
  gpu_check(g, g->cu.graph_destroy(graph), "end a graph");
}

int main(int argc, char **argv) {
  Nccl n = {.elements = argc > 1 && atol(argv[1]) > 0 ? (size_t)atol(argv[1]) : 1 << 20};
  char message[1024];
  gpu_open(&n.gpu);
  const char *error = dtm_cuda_nccl_load(&n.nccl, message, sizeof message);
  if (error) gpu_lacks(error);
  n.from = gpu_alloc(&n.gpu, n.elements * 8);
  n.to = gpu_alloc(&n.gpu, n.elements * 8);
  n.sent = malloc(n.elements * 8);
  n.got = malloc(n.elements * 8);
  if (!n.sent || !n.got) gpu_lacks("out of memory");
  for (size_t i = 0; i < n.elements * 8; i++) n.sent[i] = (unsigned char)(0x30 + i % 11);
  make_communicators(&n);
  try_all(&n, n.world);
  try_all(&n, n.part);
  try_graph(&n);
  settle(&n, n.part, n.nccl.finalize(n.part), "end a communicator");
  ncclResult_t result = n.nccl.destroy(n.part);
  if (result == ncclSuccess || result == ncclInProgress) result = n.nccl.abort(n.world);
  if (result != ncclSuccess && result != ncclInProgress) failed(&n, result, "end");
  gpu_check(&n.gpu, n.gpu.cu.memory_free(n.from), "free memory");
  gpu_check(&n.gpu, n.gpu.cu.memory_free(n.to), "free memory");
  free(n.sent);
  free(n.got);
  gpu_close(&n.gpu);
  printf("NCCL %d.%d.%d, %d calls\n", n.nccl.version / 10000, n.nccl.version / 100 % 100,
         n.nccl.version % 100, n.calls);
  return 0;
}
