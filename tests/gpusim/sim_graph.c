/* Capture of streams, and graphs of what was captured: see sim.h.
 *
 * A graph is lanes of operations, one per captured stream, with waits for places in other lanes. A
 * launch puts copies of all of them in streams: lane 0 in that of the launch, the others in streams
 * that belong to the graph. */
#include <stdlib.h>

#include "gpusim/sim.h"

/* In a lane: what comes next waits for the first `position` operations of another. Never runs: a
 * launch makes a wait for a mark of it. */
typedef struct LaneWait {
  SimOp op;
  unsigned lane;
  uint64_t position;
} LaneWait;

static SimPoll lane_wait_step(SimOp *op) {
  (void)op;
  abort();
}

static void lane_wait_free(SimOp *op) {
  free(op);
}

static SimOp *lane_wait_clone(const SimOp *op);

static const SimKind lane_wait = {"wait in a graph", lane_wait_step, NULL,
                                  lane_wait_clone,   lane_wait_free, false};

static SimOp *lane_wait_new(unsigned lane, uint64_t position) {
  LaneWait *w = calloc(1, sizeof *w);
  if (!w) abort();
  *w = (LaneWait){{.kind = &lane_wait}, lane, position};
  return &w->op;
}

static SimOp *lane_wait_clone(const SimOp *op) {
  const LaneWait *w = (const LaneWait *)op;
  return lane_wait_new(w->lane, w->position);
}

/* --- capture ---------------------------------------------------------------------------------- */

static void invalidate(SimGraph *g) {
  if (g) g->invalid = true;
}

CUresult sim_capture_forbids(void) {
  SimProcess *p = sim_process();
  if (!p->captures) return CUDA_SUCCESS;
  sim_report("a call that may synchronise is made while a stream is captured");
  invalidate(p->capturing);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void add_lane(SimGraph *g, SimStream *stream) {
  if (g->nlanes == SIM_LANES) abort();
  unsigned lane = g->nlanes++;
  g->stream[lane] = stream;
  g->last[lane] = &g->first[lane];
  stream->graph = g;
  stream->lane = lane;
}

void sim_capture_enqueue(SimStream *stream, SimOp *op) {
  SimGraph *g = stream->graph;
  op->stream = stream;
  op->next = NULL;
  *g->last[stream->lane] = op;
  g->last[stream->lane] = &op->next;
  g->count[stream->lane]++;
}

CUresult sim_capture_begin(SimStream *stream, unsigned mode) {
  SimProcess *p = sim_process();
  if (stream->graph || stream->id == 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  SimGraph *g = calloc(1, sizeof *g);
  if (!g) abort();
  g->mode = mode;
  add_lane(g, stream);
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
    p->captures++;
    p->capturing = g;
  }
  return CUDA_SUCCESS;
}

CUresult sim_capture_wait(SimStream *stream, const SimEvent *event) {
  SimGraph *g = event->graph;
  if (!g) {
    sim_report("a captured stream waits for an event that was recorded outside of the capture");
    invalidate(stream->graph);
    return (CUresult)SIM_ERROR_CAPTURE_ISOLATION;
  }
  if (stream->graph && stream->graph != g) {
    invalidate(stream->graph);
    invalidate(g);
    return (CUresult)SIM_ERROR_CAPTURE_MERGE;
  }
  if (!stream->graph) add_lane(g, stream);
  if (stream->lane != event->lane)
    sim_capture_enqueue(stream, lane_wait_new(event->lane, event->position));
  return CUDA_SUCCESS;
}

/* How much of every lane comes before what of each is `known`; adds it. */
static void close_over(const SimGraph *g, uint64_t known[SIM_LANES]) {
  for (bool more = true; more;) {
    more = false;
    for (unsigned lane = 0; lane < g->nlanes; lane++) {
      const SimOp *op = g->first[lane];
      for (uint64_t i = 0; i < known[lane]; i++, op = op->next) {
        const LaneWait *w = (const LaneWait *)op;
        if (op->kind != &lane_wait || known[w->lane] >= w->position) continue;
        known[w->lane] = w->position;
        more = true;
      }
    }
  }
}

/* Whether the end of lane 0 comes after everything in all lanes. */
static bool joined(const SimGraph *g) {
  uint64_t known[SIM_LANES] = {g->count[0]};
  close_over(g, known);
  for (unsigned lane = 0; lane < g->nlanes; lane++)
    if (known[lane] != g->count[lane]) return false;
  return true;
}

/* Waits do nothing of their own. */
static bool counts(const SimOp *op, bool meeting) {
  return op->kind != &lane_wait && (!meeting || op->kind->meets);
}

static unsigned lanes_with(const SimGraph *g, bool meeting) {
  unsigned n = 0;
  for (unsigned lane = 0; lane < g->nlanes; lane++) {
    const SimOp *op = g->first[lane];
    while (op && !counts(op, meeting)) op = op->next;
    n += op != NULL;
  }
  return n;
}

/* Whether operations, or those that wait for peers, all come one after the other. Of two lanes that
 * holds when every operation of one either comes before or after each of the other. */
static bool ordered(const SimGraph *g, bool meeting) {
  typedef struct Place {
    unsigned lane;
    uint64_t position, known[SIM_LANES];
  } Place;
  Place *places = NULL;
  size_t n = 0;
  bool is = true;
  if (lanes_with(g, meeting) < 2) return true;
  for (unsigned lane = 0; lane < g->nlanes; lane++) {
    uint64_t position = 0;
    for (const SimOp *op = g->first[lane]; op; op = op->next) {
      position++;
      if (!counts(op, meeting)) continue;
      places = realloc(places, (n + 1) * sizeof *places);
      if (!places) abort();
      places[n] = (Place){.lane = lane, .position = position};
      places[n].known[lane] = position;
      close_over(g, places[n++].known);
    }
  }
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < i; k++)
      is = is && (places[i].known[places[k].lane] >= places[k].position ||
                  places[k].known[places[i].lane] >= places[i].position);
  free(places);
  return is;
}

bool sim_graph_is_chain(const SimGraph *graph) {
  return ordered(graph, false);
}

CUresult sim_capture_end(SimStream *stream, SimGraph **graph) {
  SimProcess *p = sim_process();
  SimGraph *g = stream->graph;
  *graph = NULL;
  if (!g || stream->lane) return (CUresult)SIM_ERROR_CAPTURE_UNMATCHED;
  for (unsigned lane = 0; lane < g->nlanes; lane++) g->stream[lane]->graph = NULL;
  if (g->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) p->captures--;
  CUresult error = CUDA_SUCCESS;
  if (g->invalid)
    error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!joined(g)) {
    sim_report("work of a captured stream was not joined to the one whose capture ends");
    error = (CUresult)SIM_ERROR_CAPTURE_UNJOINED;
  } else if (!ordered(g, true)) {
    sim_report(
        "operations that wait for peers are in branches of a graph that do not wait for each "
        "other: CUDA need not run one beside the other");
    error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (error)
    sim_graph_free(g);
  else
    *graph = g;
  return error;
}

void sim_graph_free(SimGraph *graph) {
  for (unsigned lane = 0; lane < graph->nlanes; lane++)
    for (SimOp *op = graph->first[lane], *next; op; op = next) {
      next = op->next;
      op->kind->free(op);
    }
  free(graph);
}

/* --- launches --------------------------------------------------------------------------------- */

struct SimExec {
  SimDevice *device;
  SimGraph graph; /* its own copies */
  SimStream *stream[SIM_LANES];
};

SimExec *sim_exec_new(const SimGraph *graph, SimDevice *device) {
  SimExec *e = calloc(1, sizeof *e);
  if (!e) abort();
  e->device = device;
  e->graph.nlanes = graph->nlanes;
  for (unsigned lane = 0; lane < graph->nlanes; lane++) {
    e->graph.last[lane] = &e->graph.first[lane];
    if (lane) e->stream[lane] = sim_stream_new(device, false);
    for (const SimOp *op = graph->first[lane]; op; op = op->next) {
      SimStream as = {.graph = &e->graph, .lane = lane};
      sim_capture_enqueue(&as, op->kind->clone(op));
    }
  }
  return e;
}

void sim_exec_launch(SimExec *exec, SimStream *stream) {
  SimGraph *g = &exec->graph;
  sim_join(stream);
  SimMark begin = sim_mark(stream);
  uint64_t base[SIM_LANES]; /* place of the first operation of a lane; each takes one place */
  exec->stream[0] = stream;
  for (unsigned lane = 0; lane < g->nlanes; lane++) {
    if (lane) sim_enqueue_wait(exec->stream[lane], begin);
    base[lane] = exec->stream[lane]->entered;
  }
  for (unsigned lane = 0; lane < g->nlanes; lane++)
    for (const SimOp *op = g->first[lane]; op; op = op->next) {
      const LaneWait *w = (const LaneWait *)op;
      SimOp *copy =
          op->kind == &lane_wait
              ? sim_wait_new((SimMark){exec->stream[w->lane], base[w->lane] + w->position})
              : op->kind->clone(op);
      sim_append(exec->stream[lane], copy);
    }
  sim_appended(exec->device);
}

void sim_exec_free(SimExec *exec) {
  for (unsigned lane = 0; lane < exec->graph.nlanes; lane++)
    for (SimOp *op = exec->graph.first[lane], *next; op; op = next) {
      next = op->next;
      op->kind->free(op);
    }
  free(exec);
}
