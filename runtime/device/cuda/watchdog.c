/* The watchdog: NCCL waits for a peer without end, on the GPU, while the host waits for the GPU. A
 * thread per process follows what was enqueued: around every operation that waits for peers there
 * are two events in its stream. Operations of a line come one after the other, so the first whose
 * second event has not come is the one at hand, and it waits since its first event came.
 *
 * The thread ends the job's communicators when that lasts for the deadline and no other rank gives
 * a sign of life meanwhile (one that saves does), when NCCL reports an error, and when the job has
 * failed elsewhere. It reports with step, operation and source line of the operation at hand,
 * aborts all communicators, whose kernels then end, and what waits for the GPU returns to find the
 * failure (dtm_cuda_comm_watch). A process that does not come to an end by itself is ended.
 *
 * A host that waits for its GPU gives no sign of life by itself; the thread gives it, unless the
 * GPU waits for peers and has come no further since the last look.
 *
 * What was captured in a graph has no events of its own: the graph is watched as one operation, in
 * which every collective leaves its number in a word of the host when it is over. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "comm/errors.h"
#include "device/cuda/comm.h"

enum {
  ENTRIES = 64, /* of a line at first */
  PERIOD_MS = 20,
  GRACE_S = 10 /* for this process to end after the communicators were aborted */
};

typedef struct Entry {
  CUevent begun, over;
  uint32_t action;
  int64_t step; /* from 1, as people count */
  int graph;    /* the first of those in a graph */
} Entry;

/* Entries are made by the host's thread at `head` and dropped by the watchdog at `tail`. Number i
 * lies at i modulo `room`; there is room for all that the host has enqueued ahead. */
typedef struct Line {
  Entry *entry;
  uint64_t room, head, tail;
  int open;     /* the entry at head has begun */
  double since; /* the entry at tail waits for peers; 0: it has not begun, or nobody looked yet */
} Line;

struct CudaWatch {
  CudaDevice *device;
  pthread_t thread;
  int running;
  pthread_mutex_t lock; /* of what follows */
  pthread_cond_t stops;
  int stop;
  Line *lines;
  uint32_t nlines;
  double asked; /* when NCCL was asked for errors */
  /* The number of the last collective that was over in a graph, 1 + that of its action; 0: none. */
  volatile uint32_t *last;
  uint32_t last_seen;
  CUdeviceptr numbers; /* 0, 1, 2, .. on the GPU, to be copied there */
  CUevent joined;
  double host_waits; /* when the host last said that it waits for the GPU */
};

/* --- what is enqueued ---------------------------------------------------------------------------
 */

int dtm_cuda_watch_line(CudaDevice *d, uint32_t *line) {
  CudaWatch *w = d->collectives->watch;
  if (!w) return 0;
  pthread_mutex_lock(&w->lock);
  Line *more = realloc(w->lines, sizeof *more * (w->nlines + 1));
  if (more) {
    w->lines = more;
    *line = w->nlines++;
    more[*line] = (Line){.since = 0};
  }
  pthread_mutex_unlock(&w->lock);
  return more ? 0 : dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
}

static Entry *entry_at(const Line *l, uint64_t number) {
  return &l->entry[number % l->room];
}

/* Room for one more. */
static bool make_room(Line *l) {
  if (l->head - l->tail < l->room) return true;
  Line more = *l;
  more.room = l->room ? 2 * l->room : ENTRIES;
  more.entry = calloc(more.room, sizeof *more.entry);
  if (!more.entry) return false;
  for (uint64_t i = l->tail; i < l->head; i++) *entry_at(&more, i) = *entry_at(l, i);
  free(l->entry);
  *l = more;
  return true;
}

static int record(CudaDevice *d, CUevent *event, CUstream stream) {
  CUresult error = *event ? CUDA_SUCCESS : d->cu->event_create(event, CU_EVENT_DISABLE_TIMING);
  if (!error) error = d->cu->event_record(*event, stream);
  return error ? dtm_cuda_failed(d, error, "record an event") : 0;
}

int dtm_cuda_watch_begin(CudaDevice *d, uint32_t line, CUstream stream, uint32_t action) {
  CudaWatch *w = d->collectives->watch;
  if (!w || d->capturing) return 0;
  pthread_mutex_lock(&w->lock);
  Line *l = &w->lines[line];
  int status = make_room(l) ? 0 : dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  if (!status) {
    Entry *e = entry_at(l, l->head);
    e->action = action;
    e->step = d->base.step->step + 1;
    e->graph = line == CUDA_LINE_GRAPH;
    status = record(d, &e->begun, stream);
  }
  l->open = !status;
  pthread_mutex_unlock(&w->lock);
  return status;
}

int dtm_cuda_watch_end(CudaDevice *d, uint32_t line, CUstream stream) {
  CudaWatch *w = d->collectives->watch;
  if (!w || d->capturing) return 0;
  pthread_mutex_lock(&w->lock);
  Line *l = &w->lines[line];
  int status = l->open ? record(d, &entry_at(l, l->head)->over, stream) : 0;
  if (l->open && !status) l->head++;
  l->open = 0;
  pthread_mutex_unlock(&w->lock);
  return status;
}

static int mark(CudaDevice *d, uint32_t number, CUstream stream) {
  CudaWatch *w = d->collectives->watch;
  CUresult error = d->cu->to_host_async((void *)(uintptr_t)w->last,
                                        w->numbers + number * sizeof number, sizeof number, stream);
  return error ? dtm_cuda_failed(d, error, "say how far a graph is") : 0;
}

int dtm_cuda_watch_capture(CudaDevice *d) {
  return mark(d, 0, d->compute);
}

int dtm_cuda_watch_captured(CudaDevice *d, uint32_t action) {
  return mark(d, action + 1, d->comm);
}

int dtm_cuda_watch_join(CudaDevice *d) {
  return dtm_cuda_comm_wait(d, d->collectives->watch->joined, d->comm, d->compute);
}

int dtm_cuda_comm_watch(CudaDevice *d) {
  CudaComm *c = d->collectives;
  if (!c || !c->watch) return 0;
  pthread_mutex_lock(&c->watch->lock);
  c->watch->host_waits = dtm_cuda_now();
  pthread_mutex_unlock(&c->watch->lock);
  pthread_mutex_lock(&c->lock);
  int failed = c->failed;
  pthread_mutex_unlock(&c->lock);
  return failed;
}

/* --- the thread ---------------------------------------------------------------------------------
 */

/* Drops what is over. True when something was. */
static bool drop_finished(const CudaDevice *d, Line *l, double time) {
  bool moved = false;
  while (l->tail < l->head) {
    const Entry *e = entry_at(l, l->tail);
    if (d->cu->event_query(e->over) != CUDA_SUCCESS) break;
    l->tail++;
    l->since = 0;
    moved = true;
  }
  if (l->tail < l->head && !l->since &&
      d->cu->event_query(entry_at(l, l->tail)->begun) == CUDA_SUCCESS)
    l->since = time;
  return moved;
}

/* The entry that has waited longest; NULL when none waits. */
static const Entry *longest(const CudaWatch *w, double *since) {
  const Entry *found = NULL;
  for (uint32_t i = 0; i < w->nlines; i++) {
    const Line *l = &w->lines[i];
    if (l->tail == l->head || !l->since || (found && l->since >= *since)) continue;
    found = entry_at(l, l->tail);
    *since = l->since;
  }
  return found;
}

/* Of a graph: the first collective behind the last that was over; *known: whether that is so. */
static uint32_t at_hand(const CudaWatch *w, const Entry *e, bool *known) {
  uint64_t n = w->device->base.image->action_count;
  uint32_t last = *w->last;
  *known = !e->graph || last == 0;
  if (!e->graph || last <= e->action || last > n) return e->action;
  for (uint32_t i = last; i < n; i++) {
    if (w->device->base.skip[i] || !dtm_cuda_move_meets(w->device, i)) continue;
    *known = true;
    return i;
  }
  return e->action;
}

static void describe(const CudaWatch *w, const Entry *e, char *text, size_t size) {
  const Image *image = w->device->base.image;
  bool known;
  text[0] = 0;
  if (!e) return;
  const AbiAction *a = &image->action[at_hand(w, e, &known)];
  snprintf(text, size, "\n  at step %lld, %s (%s)%s", (long long)e->step, abi_text(image, a->name),
           abi_text(image, a->source),
           known ? "" : " or one behind it, whichever of a CUDA graph is at hand");
}

static int report(const CudaWatch *w, const Entry *e, const char *what) {
  RtComm *c = w->device->base.comm;
  char place[512], late[512], message[2048];
  describe(w, e, place, sizeof place);
  c->ops->latest(c, late, sizeof late);
  snprintf(message, sizeof message, "rank %d: %s%s%s%s", (int)c->rank, what, place,
           *late ? "\n  " : "", late);
  return c->ops->fail(c, RT_LOST, message);
}

/* Errors that NCCL has met behind the calls, such as a connection that broke: text in `what`. */
static int nccl_error(const CudaDevice *d, char *what, size_t size) {
  CudaComm *c = d->collectives;
  for (uint32_t i = 0; i < c->ncomms; i++) {
    ncclResult_t error = ncclSuccess;
    if (c->nccl.async_error(c->comms[i], &error) != ncclSuccess || error == ncclSuccess ||
        error == ncclInProgress)
      continue;
    const char *last = c->nccl.last_error(c->comms[i]);
    snprintf(what, size, "NCCL failed: %s%s%s", c->nccl.error_string(error),
             last && *last ? ": " : "", last ? last : "");
    return 1;
  }
  return 0;
}

static int ask_nccl(CudaWatch *w, double time, const Entry *e) {
  enum { EVERY_MS = 200 };
  CudaDevice *d = w->device;
  char what[1024];
  if ((time - w->asked) * 1000 < EVERY_MS) return 0;
  w->asked = time;
  /* a call of NCCL that does not return keeps nobody from seeing that the job has failed */
  if (pthread_mutex_trylock(&d->collectives->lock) != 0) return 0;
  int bad = nccl_error(d, what, sizeof what);
  pthread_mutex_unlock(&d->collectives->lock);
  if (!bad) return 0;
  int failed = dtm_cuda_comm_told(d);
  return failed ? failed : report(w, e, what);
}

/* One look at everything: 0, or the code of the failure. */
static int look(CudaWatch *w) {
  CudaDevice *d = w->device;
  RtComm *host = d->base.comm;
  const double time = dtm_cuda_now(), lately = 1;
  double since = 0, silent;
  bool moved = false;
  for (uint32_t i = 0; i < w->nlines; i++) moved |= drop_finished(d, &w->lines[i], time);
  if (*w->last != w->last_seen) { /* a graph goes on */
    w->last_seen = *w->last;
    if (w->lines[CUDA_LINE_GRAPH].since) w->lines[CUDA_LINE_GRAPH].since = time;
    moved = true;
  }
  const Entry *e = longest(w, &since);
  moved |= !e && time - w->host_waits < lately;
  int failed = host->ops->look(host, moved, &silent);
  if (!failed) failed = ask_nccl(w, time, e);
  if (failed || !e || time - since < host->deadline || silent < host->deadline) return failed;
  char what[256];
  snprintf(what, sizeof what,
           "an operation between ranks did not end within %g s, and no other rank gave a sign of "
           "life (see --deadline)",
           host->deadline);
  return report(w, e, what);
}

/* True when the thread is to stop. */
static bool pause_for(CudaWatch *w, double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += (time_t)seconds;
  until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (until.tv_nsec >= 1000000000L) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000L;
  }
  if (!w->stop) pthread_cond_timedwait(&w->stops, &w->lock, &until);
  return w->stop;
}

static void *run(void *context) {
  CudaWatch *w = context;
  CudaDevice *d = w->device;
  int failed = 0;
  d->cu->context_use(d->context);
  pthread_mutex_lock(&w->lock);
  while (!failed && !pause_for(w, PERIOD_MS * 1e-3)) failed = look(w);
  if (failed) {
    double until = dtm_cuda_now() + GRACE_S;
    bool aborts = dtm_cuda_comm_abort(d, failed, GRACE_S);
    while (aborts && !w->stop && dtm_cuda_now() < until) pause_for(w, until - dtm_cuda_now());
    if (!w->stop) _exit(failed); /* the GPU, or a call, does not come back */
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

/* --- opening and closing ------------------------------------------------------------------------
 */

static int open_numbers(CudaDevice *d) {
  CudaWatch *w = d->collectives->watch;
  size_t n = d->base.image->action_count + 1, bytes = n * sizeof(uint32_t);
  uint32_t *numbers = malloc(bytes);
  void *last = NULL;
  if (!numbers) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  for (size_t i = 0; i < n; i++) numbers[i] = (uint32_t)i;
  int status = dtm_cuda_alloc(d, bytes, "numbers of actions", &w->numbers);
  if (!status) status = dtm_cuda_write(d, w->numbers, numbers, bytes);
  CUresult error = CUDA_SUCCESS;
  if (!status) error = d->cu->host_alloc(&last, sizeof *w->last, 0);
  if (!status && !error) error = d->cu->event_create(&w->joined, CU_EVENT_DISABLE_TIMING);
  if (last) {
    w->last = last;
    *w->last = 0;
  }
  free(numbers);
  return error ? dtm_cuda_failed(d, error, "prepare the watch over graphs") : status;
}

int dtm_cuda_watch_open(CudaDevice *d) {
  CudaWatch *w = calloc(1, sizeof *w);
  pthread_condattr_t monotonic;
  if (!w) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  w->device = d;
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&w->stops, &monotonic);
  pthread_condattr_destroy(&monotonic);
  d->collectives->watch = w;
  w->lines = calloc(CUDA_LINES, sizeof *w->lines);
  if (!w->lines) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  w->nlines = CUDA_LINES;
  int status = open_numbers(d);
  if (status) return status;
  w->running = pthread_create(&w->thread, NULL, run, w) == 0;
  return w->running ? 0
                    : dtm_rt_fail(d->base.comm, RT_DEVICE, "cannot start a thread: out of memory");
}

void dtm_cuda_watch_close(CudaDevice *d) {
  CudaWatch *w = d->collectives->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = 1;
  pthread_cond_signal(&w->stops);
  pthread_mutex_unlock(&w->lock);
  if (w->running) pthread_join(w->thread, NULL);
  for (uint32_t i = 0; i < w->nlines; i++) {
    for (uint64_t k = 0; k < w->lines[i].room; k++) {
      const Entry *e = &w->lines[i].entry[k];
      if (e->begun) d->cu->event_destroy(e->begun);
      if (e->over) d->cu->event_destroy(e->over);
    }
    free(w->lines[i].entry);
  }
  if (w->numbers) d->cu->memory_free(w->numbers);
  if (w->last) d->cu->host_free((void *)(uintptr_t)w->last);
  if (w->joined) d->cu->event_destroy(w->joined);
  pthread_cond_destroy(&w->stops);
  pthread_mutex_destroy(&w->lock);
  free(w->lines);
  free(w);
  d->collectives->watch = NULL;
}
