/* Streams: queues, and in which order their operations run. See sim.h. */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpusim/sim_memory.h"

SimStream *sim_stream_new(SimDevice *device, bool blocking) {
  SimStream *s = calloc(1, sizeof *s);
  if (!s) abort();
  *s = (SimStream){.device = device, .next = device->streams, .id = device->nstreams++};
  s->blocking = blocking;
  s->last = &s->first;
  device->streams = s;
  return s;
}

static SimStream *null_stream(SimDevice *device) {
  SimStream *s = device->streams;
  while (s->next) s = s->next;
  return s;
}

SimStream *sim_stream(CUstream handle, CUresult *error) {
  if (!handle) {
    if (sim_current()) return null_stream(sim_current());
    *error = CUDA_ERROR_INVALID_CONTEXT;
    return NULL;
  }
  if (sim_handle_is(handle, SIM_STREAM)) return (SimStream *)handle;
  sim_report("a stream that was never made, or destroyed, is used");
  *error = CUDA_ERROR_INVALID_HANDLE;
  return NULL;
}

SimMark sim_mark(SimStream *stream) {
  return (SimMark){stream, stream->entered};
}

bool sim_reached(SimMark mark) {
  return !mark.stream || mark.stream->ran >= mark.position;
}

bool sim_is_idle(const SimDevice *device) {
  for (const SimStream *s = device->streams; s; s = s->next)
    if (s->first) return false;
  return true;
}

/* --- what runs -------------------------------------------------------------------------------- */

/* Of a device that is unusable nothing runs any more. */
static void drop(SimDevice *device) {
  for (SimStream *s = device->streams; s; s = s->next) {
    if (s->running) continue; /* whoever runs it goes on with this */
    for (SimOp *op = s->first, *next; op; op = next) {
      next = op->next;
      op->kind->free(op);
    }
    s->first = NULL;
    s->last = &s->first;
    s->ran = s->entered;
  }
}

/* Tries the first operation of a stream. */
static SimPoll step(SimStream *s) {
  if (s->running) return SIM_BLOCKED;
  if (s->device->sticky) {
    drop(s->device);
    return SIM_FAILED;
  }
  SimOp *op = s->first;
  s->running = true;
  SimPoll poll = op->kind->step(op);
  s->running = false;
  if (poll == SIM_FAILED) drop(s->device);
  if (poll != SIM_DONE) return poll;
  s->first = op->next;
  if (!s->first) s->last = &s->first;
  s->ran++;
  sim_process()->progress++;
  op->kind->free(op);
  return SIM_DONE;
}

static SimPoll run_until(SimMark mark) {
  SimPoll poll = SIM_DONE;
  while (poll == SIM_DONE && !sim_reached(mark)) poll = step(mark.stream);
  return poll;
}

/* One operation of the youngest stream that can do one: false when none can. */
static bool run_youngest(SimDevice *device) {
  for (SimStream *s = device->streams; s; s = s->next)
    if (s->first && step(s) == SIM_DONE) return true;
  return false;
}

SimPoll sim_try(SimMark mark) {
  if (!mark.stream) return SIM_DONE;
  SimDevice *device = mark.stream->device;
  if (sim_process()->async == SIM_LATE) {
    SimPoll poll = run_until(mark);
    return device->sticky ? SIM_FAILED : poll;
  }
  while (!sim_reached(mark) && run_youngest(device)) continue;
  if (device->sticky) return SIM_FAILED;
  return sim_reached(mark) ? SIM_DONE : SIM_BLOCKED;
}

bool sim_try_all(void) {
  SimProcess *p = sim_process();
  uint64_t before = p->progress;
  for (int i = 0; i < p->ndevices; i++)
    while (run_youngest(&p->device[i])) continue;
  return p->progress != before;
}

/* Without the lock, until the word that an operation waits for changes, or some milliseconds. */
static void sleep_until_awaited(SimProcess *p) {
  uint32_t *word = p->awaited, seen = p->seen;
  struct timespec time = {0, word ? 4000000 : 500000};
  sim_leave_shown();
  if (word)
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
  else
    nanosleep(&time, NULL);
  pthread_mutex_lock(&p->lock);
}

SimPoll sim_try_awhile(SimMark mark) {
  SimProcess *p = sim_process();
  p->awaited = NULL;
  SimPoll poll = sim_try(mark);
  if (poll != SIM_BLOCKED || !p->awaited) return poll;
  sleep_until_awaited(p);
  return sim_try(mark);
}

CUresult sim_wait(SimMark mark) {
  SimProcess *p = sim_process();
  SimPoll poll;
  p->waiting++;
  for (;;) {
    p->awaited = NULL;
    poll = sim_try(mark);
    if (poll != SIM_BLOCKED) break;
    sleep_until_awaited(p);
  }
  p->waiting--;
  return poll == SIM_DONE ? CUDA_SUCCESS : mark.stream->device->sticky;
}

CUresult sim_wait_device(SimDevice *device) {
  CUresult error = device->sticky;
  for (SimStream *s = device->streams; s && !error; s = s->next) error = sim_wait(sim_mark(s));
  return error;
}

/* --- waits ------------------------------------------------------------------------------------ */

typedef struct Wait {
  SimOp op;
  SimMark mark;
} Wait;

/* Late: now it is needed. Otherwise the streams take turns. */
static SimPoll wait_step(SimOp *op) {
  const Wait *w = (const Wait *)op;
  if (sim_reached(w->mark)) return SIM_DONE;
  return sim_process()->async == SIM_LATE ? run_until(w->mark) : SIM_BLOCKED;
}

static SimOp *wait_clone(const SimOp *op) {
  (void)op;
  abort(); /* never captured: see sim_capture_wait */
}

static void wait_free(SimOp *op) {
  free(op);
}

static const SimKind waiting = {"wait", wait_step, NULL, wait_clone, wait_free, false};

void sim_append(SimStream *s, SimOp *op) {
  op->stream = s;
  op->next = NULL;
  if (op->kind->enter) op->kind->enter(op);
  *s->last = op;
  s->last = &op->next;
  s->entered++;
}

SimOp *sim_wait_new(SimMark mark) {
  Wait *w = calloc(1, sizeof *w);
  if (!w) abort();
  *w = (Wait){{.kind = &waiting}, mark};
  return &w->op;
}

void sim_enqueue_wait(SimStream *stream, SimMark mark) {
  if (!sim_reached(mark) && mark.stream != stream) sim_append(stream, sim_wait_new(mark));
}

void sim_join(SimStream *s) {
  if (s->id) {
    if (s->blocking) sim_enqueue_wait(s, sim_mark(null_stream(s->device)));
    return;
  }
  for (SimStream *other = s->device->streams; other; other = other->next)
    if (other->blocking && other != s) sim_enqueue_wait(s, sim_mark(other));
}

void sim_enqueue(SimStream *stream, SimOp *op) {
  if (stream->graph) {
    sim_capture_enqueue(stream, op);
    return;
  }
  sim_join(stream);
  sim_append(stream, op);
  sim_appended(stream->device);
}

void sim_appended(SimDevice *device) {
  if (sim_process()->async == SIM_EAGER)
    while (run_youngest(device)) continue;
}
