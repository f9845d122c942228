/* Communicators of NCCL, and what moves and channels enqueue: see comm.h. */
#include "device/cuda/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/errors.h"

static int out_of_memory(CudaDevice *d) {
  return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
}

/* --- what plans need ----------------------------------------------------------------------------
 */

static CudaComm *comm_of(CudaDevice *d) {
  if (d->collectives) return d->collectives;
  d->collectives = calloc(1, sizeof *d->collectives);
  if (d->collectives) pthread_mutex_init(&d->collectives->lock, NULL);
  return d->collectives;
}

/* An entry of moves.cu. */
static int find_entry(CudaDevice *d, const char *entry, CUfunction *function) {
  if (*function) return 0;
  char name[96];
  const AbiCudaInstance i = abi_cuda_move_instance();
  snprintf(name, sizeof name, "%s%s", entry, i.suffix);
  return dtm_cuda_function(d, name, function);
}

int dtm_cuda_comm_add(CudaDevice *d, const CudaMovePlan *plan, uint32_t *first) {
  CudaComm *c = comm_of(d);
  if (!c) return out_of_memory(d);
  int status = 0;
  for (uint32_t i = 0; i < plan->nsteps && !status; i++) {
    const CudaStep *s = &plan->steps[i];
    if (s->kind == CUDA_STEP_COPY) status = find_entry(d, "move_boxes", &c->copy);
    if (s->kind == CUDA_STEP_FILL) status = find_entry(d, "move_fill", &c->fill);
    if (s->kind == CUDA_STEP_ROWS) status = find_entry(d, "move_rows", &c->rows);
  }
  *first = c->nboxes;
  if (status || !plan->nboxes) return status;
  CudaBox *more = realloc(c->boxes, sizeof *more * ((size_t)c->nboxes + plan->nboxes));
  if (!more) return out_of_memory(d);
  c->boxes = more;
  memcpy(more + c->nboxes, plan->boxes, sizeof *more * plan->nboxes);
  c->nboxes += plan->nboxes;
  return 0;
}

static int upload_boxes(CudaDevice *d) {
  CudaComm *c = d->collectives;
  size_t bytes = sizeof *c->boxes * c->nboxes;
  int status = dtm_cuda_alloc(d, bytes, "tables of moves", &c->table);
  if (status || !bytes) return status;
  status = dtm_cuda_write(d, c->table, c->boxes, bytes);
  free(c->boxes);
  c->boxes = NULL;
  return status;
}

/* --- failures -----------------------------------------------------------------------------------
 */

int dtm_cuda_comm_told(CudaDevice *d) {
  enum { GIVE_MS = 2000, EVERY_MS = 20 };
  RtComm *host = d->base.comm;
  double silent;
  int code = host->ops->look(host, true, &silent);
  for (int ms = 0; ms < GIVE_MS && !code; ms += EVERY_MS) {
    struct timespec pause = {0, EVERY_MS * 1000000L};
    nanosleep(&pause, NULL);
    code = host->ops->look(host, false, &silent);
  }
  return code;
}

static int nccl_failed(CudaDevice *d, ncclComm_t comm, ncclResult_t error, const char *what) {
  const CudaNccl *n = &d->collectives->nccl;
  const char *last = n->last_error(comm);
  double silent;
  int code = error == ncclRemoteError || error == ncclSystemError
                 ? dtm_cuda_comm_told(d)
                 : d->base.comm->ops->look(d->base.comm, true, &silent);
  if (code) return code; /* of the job, and told */
  return dtm_rt_fail(d->base.comm,
                     error == ncclRemoteError ? RT_LOST
                     : error == ncclSystemError || error == ncclUnhandledCudaError ||
                             error == ncclInvalidUsage
                         ? RT_DEVICE
                         : RT_INTERNAL,
                     "NCCL %d.%d.%d cannot %s: %s%s%s\n  NCCL_DEBUG=WARN in the environment says "
                     "more",
                     n->version / 10000, n->version / 100 % 100, n->version % 100, what,
                     n->error_string(error), last && *last ? ": " : "", last ? last : "");
}

double dtm_cuda_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int too_late(CudaDevice *d, const char *what) {
  RtComm *host = d->base.comm;
  char who[512];
  host->ops->latest(host, who, sizeof who);
  return dtm_rt_fail(host, RT_LOST,
                     "cannot %s: not all ranks came within %g s (see --deadline)%s%s", what,
                     host->deadline, *who ? "\n  " : "", who);
}

/* Until what was begun on a communicator is over. `result`: of the call that began it. */
static int settle(CudaDevice *d, ncclComm_t comm, ncclResult_t result, const char *what) {
  CudaComm *c = d->collectives;
  RtComm *host = d->base.comm;
  double since = dtm_cuda_now(), silent;
  for (unsigned polls = 0; result == ncclInProgress; polls++) {
    ncclResult_t state = ncclSuccess;
    pthread_mutex_lock(&c->lock);
    int failed = c->failed;
    if (!failed) result = c->nccl.async_error(comm, &state);
    pthread_mutex_unlock(&c->lock);
    if (failed) return failed;
    if (result == ncclSuccess) result = state;
    if (result != ncclInProgress || polls < 64) continue;
    struct timespec pause = {0, polls < 1024 ? 20000 : 1000000};
    nanosleep(&pause, NULL);
    failed = host->ops->look(host, false, &silent);
    if (failed) return failed;
    if (dtm_cuda_now() - since < host->deadline || silent < host->deadline) continue;
    return too_late(d, what);
  }
  return result == ncclSuccess ? 0 : nccl_failed(d, comm, result, what);
}

/* --- making communicators -----------------------------------------------------------------------
 */

static int add_comm(CudaDevice *d, ncclComm_t comm) {
  CudaComm *c = d->collectives;
  ncclComm_t *more = realloc(c->comms, sizeof *more * (c->ncomms + 1));
  if (!more) return out_of_memory(d);
  c->comms = more;
  more[c->ncomms++] = comm;
  return 0;
}

static int make_world(CudaDevice *d) {
  CudaComm *c = d->collectives;
  RtComm *host = d->base.comm;
  ncclUniqueId id = {{0}};
  ncclConfig_t config = CUDA_NCCL_CONFIG;
  ncclComm_t comm = NULL;
  ncclResult_t result = ncclSuccess;
  if (host->rank == 0) result = c->nccl.unique_id(&id);
  if (result != ncclSuccess) return nccl_failed(d, NULL, result, "begin");
  int status = host->ops->broadcast_host(host, &id, sizeof id, 0);
  if (status) return status;
  result = c->nccl.init(&comm, host->world, id, host->rank, &config);
  status = comm ? add_comm(d, comm) : 0;
  return status ? status : settle(d, comm, result, "connect all ranks");
}

/* The part of the world that this rank has in a round; NULL when it has none. A part is known when
 * the splitting of the whole is over, and may still be in progress then; should we give up before,
 * NCCL may still write it. `ctas`: as many blocks of threads its operations may take; 0: NCCL's
 * choice. */
static int split_world(CudaDevice *d, int32_t color, int32_t key, int ctas, ncclComm_t *part) {
  CudaComm *c = d->collectives;
  ncclConfig_t config = CUDA_NCCL_CONFIG;
  if (ctas) config.minCTAs = 1, config.maxCTAs = ctas;
  *part = NULL;
  ncclResult_t result =
      c->nccl.split(c->comms[0], color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, part, &config);
  int status = settle(d, c->comms[0], result, "split the world into groups");
  if (!status && *part) status = add_comm(d, *part);
  if (status || !*part) return status;
  return settle(d, *part, ncclInProgress, "connect the ranks of a group");
}

/* One communicator per cut, round by round. */
static int split_rounds(CudaDevice *d, const CudaCuts *cuts) {
  ncclComm_t *parts = d->collectives->parts;
  int32_t me = d->base.comm->rank;
  int status = 0;
  for (uint32_t round = 0; round < cuts->nrounds && !status; round++) {
    const CudaCut *cut = dtm_cuda_cuts_of(cuts, round, me);
    status = split_world(d, cut ? cut->color[me] : -1, cut ? cut->key[me] : 0,
                         cut && cut->channel ? dtm_cuda_cuts_ctas(cuts) : 0,
                         &parts[cut ? (uint32_t)(cut - cuts->at) : cuts->n]);
  }
  return status;
}

static int make_groups(CudaDevice *d) {
  CudaComm *c = d->collectives;
  int status = 0;
  if (dtm_cuda_cuts_find(d->base.image, d->base.comm->world, &c->cuts)) status = out_of_memory(d);
  if (!status) c->parts = calloc(c->cuts.n + 1, sizeof *c->parts);
  if (!status) c->of_key = calloc(c->cuts.nkeys + 1, sizeof *c->of_key);
  if (!status && (!c->parts || !c->of_key)) status = out_of_memory(d);
  if (!status) status = split_rounds(d, &c->cuts);
  for (uint32_t i = 0; i < c->cuts.nkeys && !status; i++)
    c->of_key[i] = c->cuts.keys[i].cut ? c->parts[c->cuts.keys[i].cut - 1] : c->comms[0];
  return status;
}

ncclComm_t dtm_cuda_comm_of(const CudaDevice *d, const CudaMovePlan *p, uint32_t channel) {
  const CudaComm *c = d->collectives;
  if (p->comm == CUDA_COMM_WORLD) return c->comms[0];
  for (uint32_t i = 0; i < c->cuts.nkeys && p->comm != CUDA_COMM_NONE; i++) {
    const CudaCutKey *k = &c->cuts.keys[i];
    if (k->kind != p->comm) continue;
    if (p->comm == CUDA_COMM_CHANNEL ? k->channel == channel
                                     : k->mesh == p->mesh && k->axes == p->axes)
      return c->of_key[i];
  }
  return NULL;
}

/* --- channels -----------------------------------------------------------------------------------
 */

/* Until all that was enqueued on the stream of collectives is over. */
static int finish_stream(CudaDevice *d) {
  RtComm *host = d->base.comm;
  double since = dtm_cuda_now(), silent;
  for (;;) {
    CUresult error = d->cu->stream_query(d->comm);
    if (error != CUDA_ERROR_NOT_READY)
      return error ? dtm_cuda_failed(d, error, "connect the stages of a pipeline") : 0;
    struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
    int failed = host->ops->look(host, false, &silent);
    if (failed) return failed;
    if (dtm_cuda_now() - since >= host->deadline && silent >= host->deadline)
      return too_late(d, "connect the stages of a pipeline");
  }
}

static int is_among(const CudaCall *calls, uint32_t n, const CudaCall *call) {
  for (uint32_t i = 0; i < n; i++)
    if (calls[i].kind == call->kind && calls[i].peer == call->peer) return 1;
  return 0;
}

int dtm_cuda_comm_connect(CudaDevice *d, const CudaMovePlan *plan, ncclComm_t comm,
                          CUdeviceptr room) {
  CudaMovePlan hello = {.calls = calloc((size_t)plan->ncalls + 1, sizeof *hello.calls)};
  CudaStep step = {.kind = CUDA_STEP_CALLS};
  const CudaBases bases = {{room, room, room}};
  if (!hello.calls) return out_of_memory(d);
  for (uint32_t i = 0; i < plan->ncalls; i++) {
    CudaCall call = plan->calls[i];
    if (call.kind != CUDA_CALL_SEND && call.kind != CUDA_CALL_RECV) continue;
    if (is_among(hello.calls, step.n, &call)) continue;
    call.type = ncclInt8;
    call.count = 1;
    call.src = 0;
    call.dst = 1 + call.peer;
    hello.calls[step.n++] = call;
  }
  int status = step.n ? dtm_cuda_comm_group(d, &hello, &step, comm, &bases, d->comm) : 0;
  free(hello.calls);
  return status;
}

/* NCCL connects two ranks when they first exchange something, and their hosts wait for each other
 * then, perhaps also for all that the GPU does. In a pipeline those would be waits that the
 * schedule knows nothing of: a post waits for its taker. So messages of channels, and of moves that
 * are made of some, are tried at start with a byte each, one after the other in the same order on
 * all ranks. Collectives NCCL connects when communicators are made (NCCL_RUNTIME_CONNECT). */
static int connect_all(CudaDevice *d) {
  const Image *image = d->base.image;
  CUdeviceptr room = 0;
  int status = 0;
  if (!image->channel_count) return 0;
  status = dtm_cuda_alloc(d, 1 + (size_t)d->base.comm->world, "a few bytes", &room);
  for (uint32_t c = 0; c < image->channel_count && !status; c++)
    for (uint64_t i = 0; i < image->action_count && !status; i++) {
      const AbiAction *a = &image->action[i];
      if ((a->kind == ABI_POST || a->kind == ABI_TAKE) && a->code == c && !d->base.skip[i])
        status = dtm_cuda_channel_connect(d, (uint32_t)i, room);
    }
  for (uint64_t i = 0; i < image->action_count && !status; i++)
    if (dtm_device_is_move(image->action[i].kind) && !d->base.skip[i])
      status = dtm_cuda_move_connect(d, (uint32_t)i, room);
  if (!status) status = finish_stream(d);
  if (room) d->cu->memory_free(room);
  return status;
}

int dtm_cuda_comm_ready(CudaDevice *d) {
  char message[2048];
  if (!comm_of(d)) return out_of_memory(d);
  CudaComm *c = d->collectives;
  int status = upload_boxes(d);
  if (status || d->base.comm->world == 1) return status;
  if (d->base.image->channel_count) setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  const char *error = dtm_cuda_nccl_load(&c->nccl, message, sizeof message);
  if (error) return dtm_rt_fail(d->base.comm, RT_DEVICE, "%s", error);
  c->loaded = 1;
  status = make_world(d);
  if (!status) status = make_groups(d);
  if (!status) status = connect_all(d);
  return status ? status : dtm_cuda_watch_open(d);
}

/* --- the end ------------------------------------------------------------------------------------
 */

typedef struct CudaAbort {
  const CudaNccl *nccl;
  ncclComm_t comm;
  pthread_t thread;
  bool runs;
} CudaAbort;

static void *run_abort(void *context) {
  const CudaAbort *a = context;
  a->nccl->abort(a->comm);
  return NULL;
}

static void begin_aborts(CudaComm *c) {
  c->aborts = calloc((size_t)c->ncomms + 1, sizeof *c->aborts);
  for (; c->aborts && c->naborts < c->ncomms; c->naborts++) {
    CudaAbort *a = &c->aborts[c->naborts];
    *a = (CudaAbort){.nccl = &c->nccl, .comm = c->comms[c->naborts]};
    a->runs = pthread_create(&a->thread, NULL, run_abort, a) == 0;
  }
}

static void join_aborts(CudaComm *c) {
  for (; c->naborts; c->naborts--)
    if (c->aborts[c->naborts - 1].runs) pthread_join(c->aborts[c->naborts - 1].thread, NULL);
}

bool dtm_cuda_comm_abort(CudaDevice *d, int code, int patience) {
  CudaComm *c = d->collectives;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience;
  if (pthread_mutex_timedlock(&c->lock, &until) != 0) return false;
  if (!c->failed) {
    c->failed = code;
    begin_aborts(c);
  }
  pthread_mutex_unlock(&c->lock);
  return true;
}

/* Peers may still be at their last operations: a communicator is finalized before it goes. */
static void end_comm(CudaDevice *d, ncclComm_t comm) {
  CudaComm *c = d->collectives;
  if (settle(d, comm, c->nccl.finalize(comm), "end a communicator") == 0)
    c->nccl.destroy(comm);
  else
    c->nccl.abort(comm);
}

void dtm_cuda_comm_close(CudaDevice *d) {
  enum { PATIENCE_S = 10 };
  CudaComm *c = d->collectives;
  double silent;
  if (!c) return;
  int code = c->loaded ? d->base.comm->ops->look(d->base.comm, true, &silent) : 0;
  /* while the watchdog is still there, which ends the process should this not end */
  if (code && dtm_cuda_comm_abort(d, code, PATIENCE_S)) join_aborts(c);
  dtm_cuda_watch_close(d);
  join_aborts(c); /* what it began meanwhile */
  while (c->ncomms && !c->failed) end_comm(d, c->comms[--c->ncomms]);
  free(c->aborts);
  if (c->table) d->cu->memory_free(c->table);
  pthread_mutex_destroy(&c->lock);
  free(c->comms);
  free(c->parts);
  free(c->of_key);
  dtm_cuda_cuts_free(&c->cuts);
  free(c->boxes);
  free(c);
  d->collectives = NULL;
}

/* --- enqueueing ---------------------------------------------------------------------------------
 */

int dtm_cuda_comm_wait(CudaDevice *d, CUevent event, CUstream first, CUstream second) {
  CUresult error = d->cu->event_record(event, first);
  if (!error) error = d->cu->stream_wait(second, event, 0);
  return error ? dtm_cuda_failed(d, error, "order work on streams") : 0;
}

int dtm_cuda_comm_copy(CudaDevice *d, const CudaMovePlan *plan, const CudaStep *s, uint32_t first,
                       const CudaBases *bases, CUstream stream, uint32_t action) {
  const CudaBox *box = &plan->boxes[s->first];
  CUdeviceptr to = bases->at[s->to], from = bases->at[s->from];
  if (s->n == 1 && box->ndims == 0) {
    CUresult error = d->cu->copy_async(to + (CUdeviceptr)box->dst, from + (CUdeviceptr)box->src,
                                       (size_t)box->units << box->log_unit, stream);
    return error ? dtm_cuda_failed(d, error, "copy memory") : 0;
  }
  CUdeviceptr table = d->collectives->table + sizeof *box * ((size_t)first + s->first);
  int64_t n = s->n;
  void *params[] = {&table, &n, &to, &from};
  return dtm_cuda_launch(d, stream, d->collectives->copy, (unsigned)s->tiles, MOVES_THREADS, 0,
                         params, action);
}

static ncclResult_t call(const CudaNccl *n, const CudaCall *c, ncclComm_t comm,
                         const CudaBases *bases, CUstream stream) {
  void *from = (void *)(uintptr_t)(bases->at[c->from] + (CUdeviceptr)c->src);
  void *to = (void *)(uintptr_t)(bases->at[c->to] + (CUdeviceptr)c->dst);
  switch (c->kind) {
  case CUDA_CALL_ALL_REDUCE:
    return n->all_reduce(from, to, c->count, c->type, c->op, comm, stream);
  case CUDA_CALL_ALL_GATHER:
    return n->all_gather(from, to, c->count, c->type, comm, stream);
  case CUDA_CALL_REDUCE_SCATTER:
    return n->reduce_scatter(from, to, c->count, c->type, c->op, comm, stream);
  case CUDA_CALL_REDUCE:
    return n->reduce(from, to, c->count, c->type, c->op, c->peer, comm, stream);
  case CUDA_CALL_SEND:
    return n->send(from, c->count, c->type, c->peer, comm, stream);
  case CUDA_CALL_RECV:
    return n->recv(to, c->count, c->type, c->peer, comm, stream);
  }
  return ncclInternalError;
}

int dtm_cuda_comm_group(CudaDevice *d, const CudaMovePlan *plan, const CudaStep *s, ncclComm_t comm,
                        const CudaBases *bases, CUstream stream) {
  CudaComm *c = d->collectives;
  pthread_mutex_lock(&c->lock);
  int failed = c->failed;
  ncclResult_t result = failed ? ncclSuccess : c->nccl.group_start();
  for (uint32_t i = 0; i < s->n && !failed && (!result || result == ncclInProgress); i++)
    result = call(&c->nccl, &plan->calls[s->first + i], comm, bases, stream);
  if (!failed) {
    ncclResult_t end = c->nccl.group_end();
    if (result == ncclSuccess || result == ncclInProgress) result = end;
  }
  pthread_mutex_unlock(&c->lock);
  return failed ? failed : settle(d, comm, result, "begin an operation");
}
