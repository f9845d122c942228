/* Stands in for the driver: streams, events and graphs. See standin_driver.c. */
#include <stdlib.h>

#include "gpusim/standin_driver.h"

/* --- streams ---------------------------------------------------------------------------------- */

static CUresult create(CUstream *stream, unsigned flags) {
  CUresult error = standin_check();
  if (error) return error;
  if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  SimStream *s = sim_stream_new(sim_current(), !(flags & CU_STREAM_NON_BLOCKING));
  sim_handle_add(s, SIM_STREAM);
  *stream = (CUstream)s;
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  sim_enter("cuStreamCreate", NULL);
  return standin_leave(create(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  sim_enter("cuStreamCreateWithPriority", "%d", priority);
  return standin_leave(create(stream, flags));
}

/* What was enqueued still runs. */
CUresult cuStreamDestroy_v2(CUstream handle) {
  CUresult error;
  sim_enter("cuStreamDestroy_v2", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (error) return standin_leave(error);
  if (!handle) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  if (s->graph) return standin_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  sim_handle_remove(handle);
  return standin_leave(CUDA_SUCCESS);
}

/* A call that may not be made on a stream, or while a stream is captured, ends the capture. */
static CUresult forbidden(SimStream *s) {
  if (!s->graph) return sim_capture_forbids();
  sim_report("a stream that is captured is waited for by the host");
  s->graph->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamSynchronize(CUstream handle) {
  CUresult error;
  sim_enter("cuStreamSynchronize", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (!error) error = forbidden(s);
  return standin_leave(error ? error : sim_wait(sim_mark(s)));
}

/* The end of a query. A host that is told to wait asks again soon, and hiding device memory from it
 * meanwhile is dear. */
static CUresult leave_query(const SimDevice *device, SimMark mark) {
  if (device->sticky) return standin_leave(device->sticky);
  if (sim_reached(mark)) return standin_leave(CUDA_SUCCESS);
  sim_leave_shown();
  return CUDA_ERROR_NOT_READY;
}

/* The first query of a place in the queue says no; then what it needs runs, as far as it can. */
CUresult cuStreamQuery(CUstream handle) {
  CUresult error;
  sim_enter("cuStreamQuery", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (!error) error = forbidden(s);
  if (error) return standin_leave(error);
  SimMark mark = sim_mark(s);
  bool again = s->asked == mark.position;
  s->asked = mark.position;
  if (!sim_reached(mark) && again) sim_try(mark);
  return leave_query(s->device, mark);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  CUresult error;
  sim_enter("cuStreamWaitEvent", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (error) return standin_leave(error);
  if (flags) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  if (!sim_handle_is(event, SIM_EVENT)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  SimEvent *e = (SimEvent *)event;
  if (!e->recorded) return standin_leave(CUDA_SUCCESS);
  if (s->graph || e->graph) return standin_leave(sim_capture_wait(s, e));
  sim_enqueue_wait(s, e->mark);
  return standin_leave(CUDA_SUCCESS);
}

/* --- events ----------------------------------------------------------------------------------- */

typedef struct Record {
  SimOp op;
  SimEvent *event;
} Record;

static SimPoll record_step(SimOp *op) {
  SimEvent *e = ((Record *)op)->event;
  if (e->mark.stream == op->stream && e->mark.position == op->stream->ran + 1)
    e->time = sim_seconds();
  return SIM_DONE;
}

static SimOp *record_clone(const SimOp *op) {
  (void)op;
  abort(); /* never captured */
}

static void record_free(SimOp *op) {
  free(op);
}

static const SimKind record = {"record", record_step, NULL, record_clone, record_free, false};

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  sim_enter("cuEventCreate", NULL);
  CUresult error = standin_check();
  if (error) return standin_leave(error);
  if (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
    return standin_leave(CUDA_ERROR_INVALID_VALUE);
  SimEvent *e = calloc(1, sizeof *e);
  if (!e) abort();
  e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  sim_handle_add(e, SIM_EVENT);
  *event = (CUevent)e;
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  CUresult error;
  sim_enter("cuEventRecord", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (error) return standin_leave(error);
  if (!sim_handle_is(event, SIM_EVENT)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  SimEvent *e = (SimEvent *)event;
  e->recorded = true;
  e->asked = false;
  e->graph = s->graph;
  if (s->graph) {
    e->lane = s->lane;
    e->position = s->graph->count[s->lane];
    return standin_leave(CUDA_SUCCESS);
  }
  Record *r = calloc(1, sizeof *r);
  if (!r) abort();
  *r = (Record){{.kind = &record}, e};
  sim_join(s);
  e->recorder = pthread_self();
  e->mark = (SimMark){s, s->entered + 1};
  sim_append(s, &r->op);
  sim_appended(s->device);
  return standin_leave(CUDA_SUCCESS);
}

static CUresult event_check(CUevent event) {
  CUresult error = standin_check();
  if (error) return error;
  if (!sim_handle_is(event, SIM_EVENT)) return CUDA_ERROR_INVALID_HANDLE;
  if (((SimEvent *)event)->graph) {
    sim_report("an event recorded in a capture is asked for by the host");
    ((SimEvent *)event)->graph->invalid = true;
    return (CUresult)SIM_ERROR_CAPTURED_EVENT;
  }
  return sim_capture_forbids();
}

/* The first query says no. Later ones of the thread that recorded the event make it true where they
 * can, and wait a little for a peer, or thousands of them would take the processors from it; those
 * of another thread, which only watches, not before some time has passed. */
CUresult cuEventQuery(CUevent event) {
  sim_enter("cuEventQuery", NULL);
  CUresult error = event_check(event);
  if (error) return standin_leave(error);
  SimEvent *e = (SimEvent *)event;
  if (!e->recorded || sim_reached(e->mark)) return standin_leave(CUDA_SUCCESS);
  double now = sim_seconds();
  bool mine = pthread_equal(e->recorder, pthread_self());
  if (!e->asked)
    e->asked_at = now;
  else if (mine)
    sim_try_awhile(e->mark);
  else if (now - e->asked_at > 0.05)
    sim_try(e->mark);
  e->asked = true;
  return leave_query(e->mark.stream->device, e->mark);
}

CUresult cuEventSynchronize(CUevent event) {
  sim_enter("cuEventSynchronize", NULL);
  CUresult error = event_check(event);
  if (error) return standin_leave(error);
  SimEvent *e = (SimEvent *)event;
  return standin_leave(e->recorded ? sim_wait(e->mark) : CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  sim_enter("cuEventElapsedTime", NULL);
  CUresult error = event_check(start);
  if (!error) error = event_check(end);
  if (error) return standin_leave(error);
  const SimEvent *from = (const SimEvent *)start, *to = (const SimEvent *)end;
  if (!from->timed || !to->timed || !from->recorded || !to->recorded)
    return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  if (!sim_reached(from->mark) || !sim_reached(to->mark))
    return standin_leave(CUDA_ERROR_NOT_READY);
  *milliseconds = (float)((to->time - from->time) * 1e3);
  return standin_leave(CUDA_SUCCESS);
}

/* Its memory stays: an operation that records it may not have run yet. */
CUresult cuEventDestroy_v2(CUevent event) {
  sim_enter("cuEventDestroy_v2", NULL);
  if (!sim_handle_is(event, SIM_EVENT)) return standin_leave(CUDA_ERROR_INVALID_HANDLE);
  sim_handle_remove(event);
  return standin_leave(CUDA_SUCCESS);
}

/* --- graphs ----------------------------------------------------------------------------------- */

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  CUresult error;
  sim_enter("cuStreamBeginCapture_v2", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (!error && mode > CU_STREAM_CAPTURE_MODE_RELAXED) error = CUDA_ERROR_INVALID_VALUE;
  return standin_leave(error ? error : sim_capture_begin(s, mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  CUresult error;
  sim_enter("cuStreamEndCapture", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (error) return standin_leave(error);
  SimGraph *g;
  error = sim_capture_end(s, &g);
  if (g) sim_handle_add(g, SIM_GRAPH);
  *graph = (CUgraph)g;
  return standin_leave(error);
}

/* Takes memory, hence may wait for all that the device does: here it always does. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *instance, CUgraph graph,
                                     unsigned long long flags) {
  const SimGraph *g = (const SimGraph *)graph;
  sim_enter("cuGraphInstantiateWithFlags", NULL);
  CUresult error = standin_check();
  if (error) return standin_leave(error);
  if (!sim_handle_is(graph, SIM_GRAPH) || flags) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  if (sim_process()->trace >= 0)
    sim_trace("graph %s", sim_graph_is_chain(g) ? "without branches" : "with branches");
  error = sim_wait_device(sim_current());
  if (error) return standin_leave(error);
  SimExec *e = sim_exec_new(g, sim_current());
  sim_handle_add(e, SIM_EXEC);
  *instance = (CUgraphExec)e;
  return standin_leave(CUDA_SUCCESS);
}

/* The same. */
CUresult cuGraphUpload(CUgraphExec instance, CUstream handle) {
  CUresult error;
  sim_enter("cuGraphUpload", NULL);
  standin_stream(handle, &error);
  if (!error && !sim_handle_is(instance, SIM_EXEC)) error = CUDA_ERROR_INVALID_VALUE;
  return standin_leave(error ? error : sim_wait_device(sim_current()));
}

CUresult cuGraphLaunch(CUgraphExec instance, CUstream handle) {
  CUresult error;
  sim_enter("cuGraphLaunch", NULL);
  SimStream *s = standin_stream(handle, &error);
  if (error) return standin_leave(error);
  if (!sim_handle_is(instance, SIM_EXEC)) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  if (s->graph) {
    sim_report("a graph is launched in a stream that is captured");
    return standin_leave(CUDA_ERROR_NOT_SUPPORTED);
  }
  sim_exec_launch((SimExec *)instance, s);
  return standin_leave(CUDA_SUCCESS);
}

/* Launches are copies: they may still be under way. */
CUresult cuGraphExecDestroy(CUgraphExec instance) {
  sim_enter("cuGraphExecDestroy", NULL);
  if (!sim_handle_is(instance, SIM_EXEC)) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  sim_handle_remove(instance);
  sim_exec_free((SimExec *)instance);
  return standin_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph graph) {
  sim_enter("cuGraphDestroy", NULL);
  if (!sim_handle_is(graph, SIM_GRAPH)) return standin_leave(CUDA_ERROR_INVALID_VALUE);
  sim_handle_remove(graph);
  sim_graph_free((SimGraph *)graph);
  return standin_leave(CUDA_SUCCESS);
}
