/* CUDA graphs of stretches of actions: see graph.h. */
#include "device/cuda/graph.h"

#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/bundle.h"
#include "device/cuda/comm.h"
#include "device/cuda/staging.h"

typedef struct Stretch {
  uint32_t count; /* actions; 0: none begins here */
  uint32_t runs;  /* so far */
  int chained;    /* within a pipeline's stages: its graphs have no branches */
  int made;       /* of one that is chained: dtm_cuda_graph_finish has made them */
  int spanned;    /* something begun ahead is under way all through it */
  /* Graphs: one for each set of blocks that its buffers have, by the number of the micro-batch. */
  uint32_t first, ngraphs;
} Stretch;

struct CudaGraphs {
  Stretch *at;        /* per action */
  CUgraphExec *execs; /* of all stretches; NULL: not captured yet */
  uint32_t nexecs;
  uint64_t nodes;       /* actions of those of which a stretch has several */
  int due;              /* a stretch of a pipeline ran for the first time */
  CUevent before;       /* on the stream of collectives, before a stretch that is spanned */
  unsigned char *ahead; /* per action: something begun ahead begins, is under way or ends here */
};

/* --- which stretches there are -------------------------------------------------------------------
 *
 * Found from the table alone, not from what this rank has no part in: whether an operation of NCCL
 * is captured, and in which graph, must be the same on all of its ranks. */

static int can_capture(const CudaDevice *d, uint32_t action, int chained) {
  const AbiAction *a = dtm_cuda_action(d, action);
  return !(a->kind == ABI_INPUT || a->kind == ABI_OUTPUT || a->kind == ABI_POST ||
           a->kind == ABI_TAKE || (chained && d->graphs->ahead[action]));
}

static void find_ahead(CudaDevice *d) {
  const Image *image = d->base.image;
  for (uint32_t i = 0; i < image->action_count; i++)
    for (uint32_t k = image->action[i].started; k && k - 1 <= i; k++) d->graphs->ahead[k - 1] = 1;
}

/* What was begun ahead and is finished outside [first, end) cannot be part of a graph: the streams
 * of a capture must have come together at its end. */
static int is_closed(const CudaDevice *d, uint32_t first, uint32_t end) {
  const Image *image = d->base.image;
  for (uint32_t i = 0; i < image->action_count; i++) {
    uint32_t started = image->action[i].started;
    if (!started) continue;
    int inside = i >= first && i < end, begins = started - 1 >= first && started - 1 < end;
    if (inside != begins) return 0;
  }
  return 1;
}

/* Whether something is begun before [first, end) and finished behind it. */
static int is_spanned(const CudaDevice *d, uint32_t first, uint32_t end) {
  const Image *image = d->base.image;
  for (uint32_t i = end; i < image->action_count; i++)
    if (image->action[i].started && image->action[i].started - 1 < first) return 1;
  return 0;
}

/* Whether the host looks at outputs before this action: it is the optimizer's first behind them. */
static int looks(const CudaDevice *d, uint32_t action, int *outputs) {
  const AbiAction *a = dtm_cuda_action(d, action);
  if (a->kind == ABI_OUTPUT) *outputs = 1;
  if (a->phase != ABI_OPTIMIZER || !*outputs) return 0;
  *outputs = 0;
  return 1;
}

/* The least common one. */
static uint32_t multiple(uint32_t a, uint32_t b) {
  uint32_t x = a, y = b;
  while (y) {
    uint32_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

/* Micro-batch m uses the blocks that m + this uses; at most `micros`, which stands for each its
 * own. */
static uint32_t block_sets(const CudaDevice *d, uint32_t first, uint32_t count, int64_t micros) {
  uint32_t sets = 1;
  for (uint32_t i = first; i < first + count; i++) {
    const AbiAction *a = dtm_cuda_action(d, i);
    for (uint32_t k = 0; k < a->nbuffers; k++) {
      uint32_t slots = d->base.image->buffer[a->buffers + k].slots;
      if (slots > 1) sets = multiple(sets, slots);
      if (sets >= micros) return (uint32_t)micros;
    }
  }
  return sets;
}

/* Graphs take memory of the GPU by the node. More than one for a stretch are made while all of
 * these together have no more than MOST actions. */
static void add_stretch(CudaDevice *d, uint32_t first, uint32_t count, int64_t micros,
                        int chained) {
  enum { SHORTEST = 2, MOST = 1 << 15 };
  CudaGraphs *g = d->graphs;
  if (count < SHORTEST || !is_closed(d, first, first + count)) return;
  uint32_t sets = block_sets(d, first, count, micros);
  uint64_t nodes = sets > 1 ? (uint64_t)sets * count : 0;
  if (g->nodes + nodes > MOST) return;
  g->nodes += nodes;
  g->at[first] = (Stretch){.count = count,
                           .chained = chained,
                           .spanned = is_spanned(d, first, first + count),
                           .first = g->nexecs,
                           .ngraphs = sets};
  g->nexecs += sets;
}

/* Those of [first, end), which a batch runs once for each of `micros` micro-batches. */
static void find_stretches(CudaDevice *d, uint32_t first, uint32_t end, int64_t micros,
                           int chained) {
  int outputs = 0;
  for (uint32_t i = first, n; i < end; i += n) {
    looks(d, i, &outputs);
    n = 1;
    if (!can_capture(d, i, chained)) continue;
    while (i + n < end && can_capture(d, i + n, chained) && !looks(d, i + n, &outputs)) n++;
    add_stretch(d, i, n, micros, chained);
  }
}

/* Whether no entry of the stage before `at` runs the same segment. */
static int is_first(const Image *image, const AbiStage *stage, uint32_t at) {
  const AbiEntry *entry = &image->entry[stage->entries];
  for (uint32_t e = 0; e < at; e++)
    if (entry[e].segment == entry[at].segment) return 0;
  return 1;
}

/* A pipeline: what all do for every micro-batch, and the lists of the stages. */
static void find_of_stages(CudaDevice *d, const AbiProgram *p) {
  const Image *image = d->base.image;
  uint32_t first = p->actions + p->prologue;
  find_stretches(d, p->actions, first, 1, 0);
  find_stretches(d, first, first + p->counted, p->microbatches, 1);
  for (uint32_t s = 0; s < p->nstages; s++) {
    const AbiStage *stage = &image->stage[p->stages + s];
    for (uint32_t e = 0; e < stage->nentries; e++) {
      const AbiSegment *g = &image->segment[image->entry[stage->entries + e].segment];
      if (is_first(image, stage, e))
        find_stretches(d, g->actions, g->actions + g->nactions, p->microbatches, 1);
    }
  }
}

static void find_all(CudaDevice *d) {
  const Image *image = d->base.image;
  find_ahead(d);
  for (uint32_t k = 0; k < ABI_PROGRAM_COUNT; k++) {
    const AbiProgram *p = &image->program[k];
    uint32_t looped = p->actions + p->looped;
    if (p->nstages)
      find_of_stages(d, p);
    else
      find_stretches(d, p->actions, looped, 1, 0);
    find_stretches(d, looped, p->actions + p->nactions, 1, 0);
  }
}

/* --- opening and closing -------------------------------------------------------------------------
 */

int dtm_cuda_graph_open(CudaDevice *d) {
  size_t n = (size_t)d->base.image->action_count + 1;
  const char *wanted = getenv("DTM_CUDA_GRAPHS");
  uint32_t off = d->waits || (wanted && strcmp(wanted, "0") == 0);
  CudaGraphs *g = d->graphs = calloc(1, sizeof *g);
  if (g) g->at = calloc(n, sizeof *g->at);
  if (g) g->ahead = calloc(n, 1);
  if (!g || !g->at || !g->ahead) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  int status = d->base.comm->ops->agree(d->base.comm, off, &off);
  if (status || off) return status;
  find_all(d);
  g->execs = calloc((size_t)g->nexecs + 1, sizeof(CUgraphExec));
  if (!g->execs) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  CUresult error = d->cu->event_create(&g->before, CU_EVENT_DISABLE_TIMING);
  return error ? dtm_cuda_failed(d, error, "make an event") : 0;
}

void dtm_cuda_graph_close(CudaDevice *d) {
  CudaGraphs *g = d->graphs;
  if (!g) return;
  for (uint32_t i = 0; g->execs && i < g->nexecs; i++)
    if (g->execs[i]) d->cu->graph_exec_destroy(g->execs[i]);
  if (g->before) d->cu->event_destroy(g->before);
  free(g->execs);
  free(g->ahead);
  free(g->at);
  free(g);
  d->graphs = NULL;
}

/* --- running -------------------------------------------------------------------------------------
 */

int dtm_cuda_graph_begins(CudaDevice *d, uint32_t first, uint32_t count) {
  Stretch *s = &d->graphs->at[first];
  if (!s->count || s->count > count) return 0;
  if (s->runs++ == 0) {
    d->graphs->due |= s->chained;
    return 0;
  }
  return !s->chained || s->made;
}

/* Whether this rank has a part in any of it. */
static int has_part(const CudaDevice *d, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; i++)
    if (!d->base.skip[i]) return 1;
  return 0;
}

/* The first action of a stretch that waits for peers, to be watched for all that do. */
static int meeting(const CudaDevice *d, uint32_t first, uint32_t count, uint32_t *action) {
  for (*action = first; *action < first + count; ++*action)
    if (!d->base.skip[*action] && dtm_cuda_move_meets(d, *action)) return 1;
  return 0;
}

/* Enqueued into a graph instead of the stream. */
static int capture(CudaDevice *d, uint32_t first, const Stretch *s, int meets, CUgraphExec *exec) {
  CUgraph graph = NULL;
  CUresult error = d->cu->capture_begin(d->compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  int status =
      error ? dtm_cuda_failed(d, error,
                              "begin a graph (DTM_CUDA_GRAPHS=0 in the environment goes without)")
            : 0;
  d->capturing = s->chained ? CUDA_CAPTURES_CHAIN : CUDA_CAPTURES;
  if (meets && !status) status = dtm_cuda_watch_capture(d);
  for (uint32_t i = first, n; i < first + s->count && !status; i += n) {
    uint32_t size = dtm_cuda_bundle_size(d, i);
    n = size ? size : 1;
    if (!size && d->base.skip[i]) continue;
    dtm_device_place(&d->base, i);
    status = size ? dtm_cuda_bundle_run(d, i) : dtm_cuda_run(d, i, NULL);
  }
  if (meets && !status) status = dtm_cuda_watch_join(d);
  d->capturing = CUDA_CAPTURES_NOT;
  if (!status) {
    error = d->cu->capture_end(d->compute, &graph);
    if (!error) error = d->cu->graph_instantiate(exec, graph, 0);
    if (error)
      status = dtm_cuda_failed(d, error,
                               "make a graph (DTM_CUDA_GRAPHS=0 in the environment goes without)");
  }
  if (graph) d->cu->graph_destroy(graph);
  return status;
}

int dtm_cuda_graph_run(CudaDevice *d, uint32_t first, uint32_t *done) {
  const Stretch *s = &d->graphs->at[first];
  CUgraphExec *exec = &d->graphs->execs[s->first + d->base.step->micro % s->ngraphs];
  uint32_t action;
  *done = s->count;
  if (!has_part(d, first, s->count)) return 0;
  int meets = meeting(d, first, s->count, &action);
  int status = *exec ? 0 : capture(d, first, s, meets, exec);
  if (status) return status;
  dtm_device_place(&d->base, first);
  /* The collectives of a graph are not on their stream: what was begun there comes first, on all
   * ranks, and has the scratch memory until then. */
  if (meets && s->spanned) status = dtm_cuda_comm_wait(d, d->graphs->before, d->comm, d->compute);
  if (meets && !status) status = dtm_cuda_watch_begin(d, CUDA_LINE_GRAPH, d->compute, action);
  CUresult error = status ? CUDA_SUCCESS : d->cu->graph_launch(*exec, d->compute);
  if (error) status = dtm_cuda_failed(d, error, "run a graph");
  return status || !meets ? status : dtm_cuda_watch_end(d, CUDA_LINE_GRAPH, d->compute);
}

/* --- graphs of pipelines -------------------------------------------------------------------------
 */

/* Until nothing runs, messages to others included. */
static int wait_for_messages(CudaDevice *d) {
  int status = 0;
  for (uint32_t i = 0; i < d->base.image->action_count && !status; i++)
    if (dtm_cuda_action(d, i)->kind == ABI_POST && !d->base.skip[i])
      status = dtm_cuda_channel_join(d, i);
  return status ? status : dtm_cuda_staging_sync(d);
}

static int make_graphs(CudaDevice *d, uint32_t first, Stretch *s) {
  uint32_t action;
  int status = 0, meets = meeting(d, first, s->count, &action);
  s->made = 1;
  for (uint32_t i = 0; i < s->ngraphs && has_part(d, first, s->count) && !status; i++) {
    CUgraphExec *exec = &d->graphs->execs[s->first + i];
    d->base.step->micro = i;
    status = capture(d, first, s, meets, exec);
    CUresult error = status ? CUDA_SUCCESS : d->cu->graph_upload(*exec, d->compute);
    if (error) status = dtm_cuda_failed(d, error, "place a graph on the GPU");
  }
  return status;
}

int dtm_cuda_graph_finish(CudaDevice *d) {
  CudaGraphs *g = d->graphs;
  int64_t micro = d->base.step->micro;
  if (!g->due) return 0;
  g->due = 0;
  int status = wait_for_messages(d);
  for (uint32_t i = 0; i < d->base.image->action_count && !status; i++)
    if (g->at[i].chained && g->at[i].runs && !g->at[i].made) status = make_graphs(d, i, &g->at[i]);
  d->base.step->micro = micro;
  return status;
}
