/* CUDA graphs of stretches of actions: see graph.h. */
#include "device/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/comm.h"
#include "device/cuda/bundle.h"

typedef struct Stretch {
  uint32_t count; /* actions; 0: none begins here */
  uint32_t runs;  /* so far */
  CUgraphExec graph;
} Stretch;

struct CudaGraphs {
  Stretch *at; /* per action */
};

static int can_capture(const CudaDevice *d, uint32_t action) {
  const AbiAction *a = dtm_cuda_action(d, action);
  return d->base.skip[action] || !(a->kind == ABI_INPUT || a->kind == ABI_OUTPUT ||
                                   a->kind == ABI_POST || a->kind == ABI_TAKE || d->plain[action]);
}

/* What was begun ahead and is finished outside [first, end) cannot be part of a graph: the streams
 * of a capture must have come together at its end. */
static int is_closed(const CudaDevice *d, uint32_t first, uint32_t end) {
  const Image *image = d->base.image;
  for (uint32_t i = 0; i < image->action_count; i++) {
    uint32_t started = image->action[i].started;
    if (!started || d->base.skip[i]) continue;
    int inside = i >= first && i < end, begins = started - 1 >= first && started - 1 < end;
    if (inside != begins) return 0;
  }
  return 1;
}

/* Whether the host looks at outputs before this action: it is the optimizer's first behind them. */
static int looks(const CudaDevice *d, uint32_t action, int *outputs) {
  const AbiAction *a = dtm_cuda_action(d, action);
  if (a->kind == ABI_OUTPUT) *outputs = 1;
  if (a->phase != ABI_OPTIMIZER || !*outputs) return 0;
  *outputs = 0;
  return 1;
}

static void find_stretches(CudaDevice *d, uint32_t first, uint32_t end) {
  enum { SHORTEST = 2 };
  int outputs = 0;
  for (uint32_t i = first, n; i < end; i += n) {
    looks(d, i, &outputs);
    n = 1;
    if (!can_capture(d, i)) continue;
    while (i + n < end && can_capture(d, i + n) && !looks(d, i + n, &outputs)) n++;
    if (n >= SHORTEST && is_closed(d, i, i + n)) d->graphs->at[i].count = n;
  }
}

int dtm_cuda_graph_open(CudaDevice *d) {
  const Image *image = d->base.image;
  const char *wanted = getenv("DTM_CUDA_GRAPHS");
  CudaGraphs *g = d->graphs = calloc(1, sizeof *g);
  if (g) g->at = calloc(image->action_count + 1, sizeof *g->at);
  if (!g || !g->at) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  if (wanted && strcmp(wanted, "0") == 0) return 0;
  for (uint32_t k = 0; k < ABI_PROGRAM_COUNT; k++) {
    const AbiProgram *p = &image->program[k];
    if (p->nstages) continue;
    find_stretches(d, p->actions, p->actions + p->looped);
    find_stretches(d, p->actions + p->looped, p->actions + p->nactions);
  }
  return 0;
}

void dtm_cuda_graph_close(CudaDevice *d) {
  CudaGraphs *g = d->graphs;
  if (!g) return;
  for (uint64_t i = 0; g->at && i < d->base.image->action_count; i++)
    if (g->at[i].graph) d->cu->graph_exec_destroy(g->at[i].graph);
  free(g->at);
  free(g);
  d->graphs = NULL;
}

int dtm_cuda_graph_begins(CudaDevice *d, uint32_t first, uint32_t count) {
  Stretch *s = &d->graphs->at[first];
  return s->count && s->count <= count && s->runs++ > 0;
}

/* The first action of a stretch that waits for peers, to be watched for all that do. */
static int meeting(const CudaDevice *d, uint32_t first, uint32_t count, uint32_t *action) {
  for (*action = first; *action < first + count; ++*action)
    if (!d->base.skip[*action] && dtm_cuda_move_meets(d, *action)) return 1;
  return 0;
}

/* Enqueued into a graph instead of the stream. */
static int capture(CudaDevice *d, uint32_t first, Stretch *s, int meets) {
  CUgraph graph = NULL;
  CUresult error = d->cu->capture_begin(d->compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  int status =
      error ? dtm_cuda_failed(d, error,
                              "begin a graph (DTM_CUDA_GRAPHS=0 in the environment goes without)")
            : 0;
  d->capturing = 1;
  if (meets && !status) status = dtm_cuda_watch_capture(d);
  for (uint32_t i = first, n; i < first + s->count && !status; i += n) {
    uint32_t size = dtm_cuda_bundle_size(d, i);
    n = size ? size : 1;
    if (!size && d->base.skip[i]) continue;
    dtm_device_place(&d->base, i);
    status = size ? dtm_cuda_bundle_run(d, i) : dtm_cuda_run(d, i, NULL);
  }
  if (meets && !status) status = dtm_cuda_watch_join(d);
  d->capturing = 0;
  if (!status) {
    error = d->cu->capture_end(d->compute, &graph);
    if (!error) error = d->cu->graph_instantiate(&s->graph, graph, 0);
    if (error)
      status = dtm_cuda_failed(d, error,
                               "make a graph (DTM_CUDA_GRAPHS=0 in the environment goes without)");
  }
  if (graph) d->cu->graph_destroy(graph);
  return status;
}

int dtm_cuda_graph_run(CudaDevice *d, uint32_t first, uint32_t *done) {
  Stretch *s = &d->graphs->at[first];
  uint32_t action;
  int meets = meeting(d, first, s->count, &action);
  int status = s->graph ? 0 : capture(d, first, s, meets);
  if (status) return status;
  *done = s->count;
  dtm_device_place(&d->base, first);
  if (meets) status = dtm_cuda_watch_begin(d, CUDA_LINE_GRAPH, d->compute, action);
  CUresult error = status ? CUDA_SUCCESS : d->cu->graph_launch(s->graph, d->compute);
  if (error) status = dtm_cuda_failed(d, error, "run a graph");
  return status || !meets ? status : dtm_cuda_watch_end(d, CUDA_LINE_GRAPH, d->compute);
}
