/* Stands in for NCCL 2.28: each entry is that of the same name. What real NCCL leaves to hang or to
 * be undefined is an error with a report: calls that differ between ranks, buffers that are no
 * device memory or overlap, use of a communicator before an earlier call succeeded.
 *
 * Non-blocking communicators: making, splitting, finalizing, and the first collective and the first
 * message between two ranks return ncclInProgress; they are over when ncclCommGetAsyncError, asked
 * at least twice, says ncclSuccess, and only then is the operation in its stream. Two ranks on one
 * device are refused. Only a poll or a blocked operation sees that a peer died. */
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpusim/nccl_comm.h"

#define X(member, name, result, parameters) result name parameters;
CUDA_NCCL(X)
#undef X
ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t handle, CUstream stream);

enum { NCCL_VERSION = 22809, GROUP_PARTS = 4096 };

typedef struct Communicators {
  Comm *all;
  bool served; /* the thread runs */
} Communicators;

static Communicators comms;

/* Calls of this thread between ncclGroupStart and ncclGroupEnd. */
typedef struct Group {
  int depth;
  size_t n;
  ncclResult_t error;
  struct GroupPart {
    Comm *comm;
    SimStream *stream;
    CommPart part;
  } part[GROUP_PARTS];
} Group;

static _Thread_local Group *group;
static _Thread_local char last_error[512];

static ncclResult_t leave(ncclResult_t result) {
  sim_leave();
  return result;
}

static ncclResult_t refuse(ncclResult_t error, const char *text) {
  snprintf(last_error, sizeof last_error, "%s", text);
  sim_report("NCCL: %s", text);
  return error;
}

/* --- peers that wait for this process ----------------------------------------------------------
 */

static bool is_wanted(const Comm *c) {
  return c->wire.shared && c->wire.fd >= 0 && c->wire.wanted != c->wire.shared->wants;
}

static bool any_wanted(void) {
  for (const Comm *c = comms.all; c; c = c->next)
    if (is_wanted(c)) return true;
  return false;
}

static void run_wanted(void) {
  for (Comm *c = comms.all; c; c = c->next) {
    if (!is_wanted(c)) continue;
    c->wire.wanted = c->wire.shared->wants;
    if (!c->device->sticky) sim_try(c->mark);
  }
}

/* The word that a peer changes when it wants something: of the communicator of all. */
static uint32_t *bell(void) {
  for (const Comm *c = comms.all; c; c = c->next)
    if (!c->parent && c->wire.shared) return &c->wire.shared->bell;
  return NULL;
}

/* A rank whose host is busy elsewhere still owes its peers what it enqueued: devices work without
 * their hosts. Runs what a peer has waited for for long, unless a thread here is at it: waits, or
 * makes calls one after the other (for some time). */
static void *serve(void *unused) {
  (void)unused;
  SimProcess *p = sim_process();
  const double most = 0.05;
  double since = 0;
  uint64_t calls = 0;
  for (;;) {
    pthread_mutex_lock(&p->lock);
    uint32_t *word = bell(), seen = word ? __atomic_load_n(word, __ATOMIC_SEQ_CST) : 0;
    bool wanted = !p->waiting && any_wanted();
    if (!wanted) since = 0;
    if (wanted && !since) since = sim_seconds();
    if (wanted && (p->calls == calls || sim_seconds() - since > most)) {
      run_wanted();
      wanted = false;
    }
    calls = p->calls;
    sim_leave();
    struct timespec time = {0, wanted ? 2000000 : 20000000};
    if (word && !wanted)
      syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
    else
      nanosleep(&time, NULL);
  }
  return NULL;
}

static void begin_serving(void) {
  pthread_t thread;
  if (comms.served) return;
  comms.served = pthread_create(&thread, NULL, serve, NULL) == 0;
  if (comms.served) pthread_detach(thread);
}

/* --- communicators -----------------------------------------------------------------------------
 */

/* The GPU behind a number of this process: CUDA_VISIBLE_DEVICES lists them, all by default. */
static int physical(int ordinal) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (!list || !*list) return ordinal;
  for (int i = 0; i < ordinal && list; i++) list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
  return list ? atoi(list) : ordinal;
}

/* Whether communicators are connected when they are made; for collectives, not for messages. */
static bool connects_early(void) {
  const char *late = getenv("NCCL_RUNTIME_CONNECT");
  return late && strcmp(late, "0") == 0;
}

static Comm *comm_new(bool blocking) {
  Comm *c = calloc(1, sizeof *c);
  if (!c) abort();
  c->next = comms.all;
  c->device = sim_current();
  c->blocking = blocking;
  c->wire.fd = -1;
  c->connected = connects_early();
  comms.all = c;
  sim_handle_add(c, SIM_COMM);
  begin_serving();
  return c;
}

static void open_wire(Comm *c, int nranks, int rank) {
  const char *error = wire_open(&c->wire, c->path, nranks, rank, physical(c->device->ordinal));
  c->stage = COMM_OPENING;
  if (error) comm_fail(c, ncclInvalidUsage, "%s", error);
}

/* All ranks of the parent have asked: who is in this part, in the order of keys. */
static void split_open(Comm *c) {
  const Wire *w = &c->parent->wire;
  for (int r = 0; r < w->nranks; r++)
    if (w->shared->rank[r].splits < c->split) return;
  int rank = 0, nranks = 0;
  for (int r = 0; r < w->nranks; r++) {
    const WireRank *other = &w->shared->rank[r];
    if (other->color != c->color) continue;
    nranks++;
    if (other->key < c->key || (other->key == c->key && r < w->rank)) rank++;
  }
  w->shared->rank[w->rank].splits_seen++;
  wire_bump(w);
  snprintf(c->path, sizeof c->path, "%.200s-%llu.%d", c->parent->path, (unsigned long long)c->split,
           c->color);
  open_wire(c, nranks, rank);
}

static bool in_progress(const Comm *c) {
  return !c->error && (c->child || (c->stage != COMM_READY && c->stage != COMM_FINALIZED));
}

/* Goes on with what is in progress, as far as it can. */
static void advance(Comm *c) {
  if (c->child) {
    advance(c->child);
    if (c->child->error) comm_fail(c, c->child->error, "%s", c->child->text);
    if (in_progress(c->child)) return;
    *c->child->result = (ncclComm_t)c->child;
    c->child = NULL;
    return;
  }
  switch (c->stage) {
  case COMM_SPLITTING:
    split_open(c);
    break;
  case COMM_OPENING:
    if (wire_complete(&c->wire)) c->stage = COMM_READY;
    break;
  case COMM_CONNECTING: /* takes memory, which waits for all that the device does */
    sim_try_all();
    if (!sim_is_idle(c->device)) break;
    sim_enqueue(c->waiting_in, c->waiting);
    c->waiting = NULL;
    c->stage = COMM_READY;
    break;
  case COMM_FINALIZING:
    if (sim_reached(c->mark) || sim_try(c->mark) == SIM_DONE) c->stage = COMM_FINALIZED;
    break;
  case COMM_READY:
  case COMM_FINALIZED:
    break;
  }
}

/* Of a blocking communicator; the lock is given up meanwhile. */
static ncclResult_t finish(Comm *c) {
  double since = sim_seconds();
  while (in_progress(c)) {
    advance(c);
    if (!in_progress(c)) break;
    if (sim_seconds() - since > sim_process()->deadline)
      comm_fail(c, ncclSystemError, "not all ranks came");
    struct timespec time = {0, 1000000};
    sim_leave();
    nanosleep(&time, NULL);
    pthread_mutex_lock(&sim_process()->lock);
  }
  return c->error;
}

/* What a call that began something returns. */
static ncclResult_t begun(Comm *c) {
  c->polled = false;
  if (c->error) return c->error;
  return c->blocking ? finish(c) : ncclInProgress;
}

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  uint64_t bits;
  const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) return ncclSystemError;
  memset(id, 0, sizeof *id);
  int n = snprintf(id->internal, sizeof id->internal, "%s/gpusim-nccl-%016llx",
                   folder && *folder ? folder : "/tmp", (unsigned long long)bits);
  return n < (int)sizeof id->internal ? ncclSuccess : ncclSystemError;
}

static ncclResult_t config_check(const ncclConfig_t *config, bool *blocking) {
  *blocking = true;
  if (!config) return ncclSuccess;
  if (config->size < 24 || config->magic != CUDA_NCCL_CONFIG_MAGIC)
    return refuse(ncclInvalidArgument, "a configuration was not initialised");
  if (config->blocking != CUDA_NCCL_CONFIG_UNSET && config->blocking != 0 && config->blocking != 1)
    return refuse(ncclInvalidArgument, "blocking is neither 0 nor 1");
  *blocking = config->blocking != 0;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  bool blocking;
  sim_enter("ncclCommInitRankConfig", "%d of %d", rank, nranks);
  *handle = NULL;
  if (!sim_current()) return leave(refuse(ncclInvalidUsage, "there is no current context"));
  if (nranks < 1 || nranks > WIRE_RANKS || rank < 0 || rank >= nranks)
    return leave(refuse(ncclInvalidArgument, "number of ranks, or rank, out of range"));
  if (group && group->depth)
    return leave(refuse(ncclInvalidUsage, "making communicators in a group is not simulated"));
  ncclResult_t error = config_check(config, &blocking);
  if (error) return leave(error);
  Comm *c = comm_new(blocking);
  snprintf(c->path, sizeof c->path, "%.127s", id.internal);
  open_wire(c, nranks, rank);
  *handle = (ncclComm_t)c;
  return leave(begun(c));
}

/* The communicator of a handle that may be used now. */
static Comm *comm_of(ncclComm_t handle, ncclResult_t *error) {
  *error = ncclSuccess;
  if (!sim_handle_is(handle, SIM_COMM)) {
    *error = refuse(ncclInvalidArgument, "a communicator that was never made, or is gone, is used");
    return NULL;
  }
  Comm *c = (Comm *)handle;
  if (c->error)
    *error = c->error;
  else if (in_progress(c))
    *error = refuse(ncclInvalidArgument, "a communicator is used before the previous operation on "
                                         "it has returned ncclSuccess");
  else if (c->stage == COMM_FINALIZED)
    *error = refuse(ncclInvalidArgument, "a communicator is used after ncclCommFinalize");
  return c;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config) {
  ncclResult_t error;
  sim_enter("ncclCommSplit", "color %d key %d", color, key);
  *part = NULL;
  Comm *parent = comm_of(handle, &error);
  if (error) return leave(error);
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return leave(refuse(ncclInvalidArgument, "a color is below 0"));
  bool blocking = parent->blocking;
  if (config && (error = config_check(config, &blocking))) return leave(error);
  const Wire *w = &parent->wire;
  WireRank *mine = &w->shared->rank[w->rank];
  /* The last split's colors are read by all before they change: splits are collective. */
  double since = sim_seconds();
  for (int r = 0; r < w->nranks; r++)
    while (w->shared->rank[r].splits_seen < mine->splits) {
      if (sim_seconds() - since > sim_process()->deadline)
        return leave(refuse(ncclSystemError, "a rank is not done with the last split"));
      sim_leave();
      usleep(1000);
      pthread_mutex_lock(&sim_process()->lock);
    }
  mine->color = color;
  mine->key = key;
  uint64_t split = ++mine->splits;
  wire_bump(w);
  if (color == NCCL_SPLIT_NOCOLOR) {
    mine->splits_seen++;
    return leave(ncclSuccess);
  }
  Comm *c = comm_new(blocking);
  c->device = parent->device;
  c->parent = parent;
  c->split = split;
  c->color = color;
  c->key = key;
  c->stage = COMM_SPLITTING;
  c->result = part;
  parent->child = c;
  return leave(begun(parent));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *result) {
  sim_enter("ncclCommGetAsyncError", NULL);
  if (!sim_handle_is(handle, SIM_COMM))
    return leave(refuse(ncclInvalidArgument, "no communicator is asked for its error"));
  Comm *c = (Comm *)handle;
  if (c->wire.fd >= 0) {
    for (int r = 0; r < c->wire.nranks; r++)
      if (wire_dead(&c->wire, r))
        comm_fail(c, ncclRemoteError, "rank %d lost rank %d: its process is gone", c->wire.rank, r);
    if (c->wire.shared->failed && !c->error)
      comm_fail(c, ncclInvalidUsage, "%s", c->wire.shared->failure);
  }
  if (in_progress(c) && c->polled) advance(c);
  c->polled = true;
  *result = c->error ? c->error : in_progress(c) ? ncclInProgress : ncclSuccess;
  return leave(ncclSuccess);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ncclResult_t error;
  sim_enter("ncclCommFinalize", NULL);
  Comm *c = comm_of(handle, &error);
  if (error) return leave(error);
  c->stage = COMM_FINALIZING;
  return leave(begun(c));
}

static void release(Comm *c) {
  wire_close(&c->wire);
  sim_handle_remove(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  sim_enter("ncclCommDestroy", NULL);
  if (!handle) return leave(ncclSuccess);
  if (!sim_handle_is(handle, SIM_COMM))
    return leave(refuse(ncclInvalidArgument, "no communicator is destroyed"));
  Comm *c = (Comm *)handle;
  if (in_progress(c) && c->stage != COMM_FINALIZING)
    return leave(refuse(ncclInvalidUsage, "a communicator is destroyed while it is in progress"));
  CUresult failed = c->error ? CUDA_SUCCESS : sim_wait(c->mark);
  release(c);
  return leave(failed ? ncclUnhandledCudaError : ncclSuccess);
}

/* Until streams and graphs are done with it: what is enqueued ends when its turn comes, which it
 * does not behind an operation of another communicator that waits; graphs must be destroyed. */
static void wait_for_end(Comm *c) {
  double since = sim_seconds();
  if (c->waiting) c->waiting->kind->free(c->waiting);
  c->waiting = NULL;
  while (c->live) {
    if (sim_seconds() - since > sim_process()->deadline) {
      sim_report("NCCL: ncclCommAbort waits for a graph, or for what is enqueued before");
      return;
    }
    if (!c->device->sticky) sim_try(c->mark);
    struct timespec time = {0, 1000000};
    sim_leave();
    nanosleep(&time, NULL);
    pthread_mutex_lock(&sim_process()->lock);
  }
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  sim_enter("ncclCommAbort", NULL);
  if (!handle) return leave(ncclSuccess);
  if (!sim_handle_is(handle, SIM_COMM))
    return leave(refuse(ncclInvalidArgument, "no communicator is aborted"));
  Comm *c = (Comm *)handle;
  c->aborted = true;
  if (c->wire.shared) wire_bump(&c->wire);
  wait_for_end(c);
  release(c);
  return leave(ncclSuccess);
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t handle) {
  pthread_mutex_lock(&sim_process()->lock);
  const Comm *c = sim_handle_is(handle, SIM_COMM) ? (const Comm *)handle : NULL;
  pthread_mutex_unlock(&sim_process()->lock);
  return c && c->error ? c->text : last_error;
}

/* --- operations --------------------------------------------------------------------------------
 */

/* Whether everything that this operation needs is connected; what is not is from now on. */
static bool connect_peers(Comm *c, const CommPart *parts, size_t n) {
  bool all = true;
  for (size_t i = 0; i < n; i++) {
    bool message = parts[i].call.kind == WIRE_SEND || parts[i].call.kind == WIRE_RECV;
    bool *is = message ? &c->peers[parts[i].call.root] : &c->connected;
    all = all && *is;
    *is = true;
  }
  return all;
}

static void number_captured(Comm *c, CommPart *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    WireCall *call = &parts[i].call;
    call->captured = ++*(call->kind == WIRE_SEND   ? &c->captures_to[call->root]
                         : call->kind == WIRE_RECV ? &c->captures_from[call->root]
                                                   : &c->captures);
  }
}

static ncclResult_t submit(Comm *c, SimStream *stream, CommPart *parts, size_t n) {
  if (stream->graph) number_captured(c, parts, n);
  SimOp *op = comm_op_new(c, parts, n);
  bool connected = connect_peers(c, parts, n);
  if (stream->graph) {
    if (c->captured && c->captured != stream)
      return refuse(ncclInvalidUsage, "a communicator captured in two streams is not simulated");
    c->captured = stream;
  } else if (c->mark.stream && c->mark.stream != stream) {
    sim_enqueue_wait(stream, c->mark); /* its operations run one after the other */
  }
  if (connected || c->blocking) {
    sim_enqueue(stream, op);
    return ncclSuccess;
  }
  c->stage = COMM_CONNECTING;
  c->waiting = op;
  c->waiting_in = stream;
  return begun(c);
}

/* All calls of a group, those of each communicator as one operation. */
static ncclResult_t submit_group(Group *g) {
  static CommPart parts[GROUP_PARTS];
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < g->n; i++) {
    Comm *c = g->part[i].comm;
    if (!c) continue;
    SimStream *stream = g->part[i].stream;
    size_t n = 0;
    for (size_t k = i; k < g->n; k++) {
      if (g->part[k].comm != c) continue;
      if (g->part[k].stream != stream)
        return refuse(ncclInvalidUsage,
                      "a group with two streams for one communicator is not simulated");
      parts[n++] = g->part[k].part;
      g->part[k].comm = NULL;
    }
    ncclResult_t one = submit(c, stream, parts, n);
    if (one != ncclSuccess) result = one;
    if (one != ncclSuccess && one != ncclInProgress) return one;
  }
  return result;
}

ncclResult_t ncclGroupStart(void) {
  sim_enter("ncclGroupStart", NULL);
  if (!group) group = calloc(1, sizeof *group);
  if (!group) abort();
  if (!group->depth++) group->n = 0, group->error = ncclSuccess;
  return leave(ncclSuccess);
}

ncclResult_t ncclGroupEnd(void) {
  sim_enter("ncclGroupEnd", NULL);
  if (!group || !group->depth)
    return leave(refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"));
  if (--group->depth) return leave(ncclSuccess);
  return leave(group->error ? group->error : submit_group(group));
}

static bool overlaps(const char *a, uint64_t n, const char *b, uint64_t m) {
  return n && m && a < b + m && b < a + n;
}

/* Buffers are device memory; in place is where a collective's definition says, and only there. */
static ncclResult_t check_buffers(Comm *c, const CommPart *p) {
  uint64_t in = comm_bytes_in(c, &p->call), out = comm_bytes_out(c, &p->call);
  char text[256], name[160];
  const char *wrong = NULL, *at = p->src;
  uint64_t one = p->call.count * comm_type_bytes(p->call.type), mine = one * (uint64_t)c->wire.rank;
  if ((in && !sim_memory_on(c->device, p->src, in)) ||
      (out && !sim_memory_on(c->device, p->dst, out)))
    wrong = "a buffer is not inside one allocation of the device";
  bool placed = p->src == p->dst;
  if (p->call.kind == WIRE_ALL_GATHER) placed = p->src == p->dst + mine;
  if (p->call.kind == WIRE_REDUCE_SCATTER) placed = p->dst == at + mine;
  if (!wrong && !placed && overlaps(p->src, in, p->dst, out))
    wrong = "the buffers overlap, and are not in place";
  if ((uintptr_t)p->src % (in ? comm_type_bytes(p->call.type) : 1) ||
      (uintptr_t)p->dst % (out ? comm_type_bytes(p->call.type) : 1))
    wrong = "a buffer is not aligned to its elements";
  if (!wrong) return ncclSuccess;
  comm_name(&p->call, name, sizeof name);
  snprintf(text, sizeof text, "%s: %s", name, wrong);
  return refuse(ncclInvalidArgument, text);
}

static ncclResult_t call(WireKind kind, const void *src, void *dst, size_t count, int type, int op,
                         int root, ncclComm_t handle, CUstream stream_handle) {
  ncclResult_t error;
  Comm *c = comm_of(handle, &error);
  if (error) return error;
  CUresult failure = c->device->sticky;
  SimStream *stream = failure ? NULL : sim_stream(stream_handle, &failure);
  if (failure) return ncclUnhandledCudaError;
  if (stream->device != c->device)
    return refuse(ncclInvalidUsage, "a stream of another device than the communicator's");
  if (!comm_type_bytes(type) || op < -1 || op > ncclAvg)
    return refuse(ncclInvalidArgument, "a type or a reduction that is not known");
  if (root >= c->wire.nranks || root < -1)
    return refuse(ncclInvalidArgument, "a root or peer that is no rank");
  const WireCall wire = {.kind = kind, .type = type, .op = op, .root = root, .count = count};
  CommPart part = {.call = wire, .src = src, .dst = dst};
  error = check_buffers(c, &part);
  if (error) return error;
  if (!group || !group->depth) return submit(c, stream, &part, 1);
  if (group->n == GROUP_PARTS) return refuse(ncclInternalError, "a group of too many calls");
  group->part[group->n++] = (struct GroupPart){c, stream, part};
  return ncclSuccess;
}

/* An error in a group is the group's too. */
static ncclResult_t called(ncclResult_t result) {
  if (group && group->depth && result && result != ncclInProgress) group->error = result;
  return leave(result);
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  sim_enter("ncclAllReduce", "%zu", count);
  return called(call(WIRE_ALL_REDUCE, src, dst, count, type, op, -1, comm, stream));
}

ncclResult_t ncclReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  sim_enter("ncclReduce", "%zu", count);
  return called(call(WIRE_REDUCE, src, dst, count, type, op, root, comm, stream));
}

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  sim_enter("ncclReduceScatter", "%zu", count);
  return called(call(WIRE_REDUCE_SCATTER, src, dst, count, type, op, -1, comm, stream));
}

ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  sim_enter("ncclAllGather", "%zu", count);
  return called(call(WIRE_ALL_GATHER, src, dst, count, type, -1, -1, comm, stream));
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, CUstream stream) {
  sim_enter("ncclBroadcast", "%zu", count);
  return called(call(WIRE_BROADCAST, src, dst, count, type, -1, root, comm, stream));
}

ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  sim_enter("ncclSend", "%zu to %d", count, peer);
  return called(call(WIRE_SEND, src, NULL, count, type, -1, peer, comm, stream));
}

ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  sim_enter("ncclRecv", "%zu from %d", count, peer);
  return called(call(WIRE_RECV, NULL, dst, count, type, -1, peer, comm, stream));
}
