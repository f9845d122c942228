/* What the stand-in for NCCL runs in streams: an operation makes what progress it can and says that
 * it is blocked when a peer has to come first. Source of the rounds: nccl_wire.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/nccl_comm.h"
#include "gpusim/sim_memory.h"

/* Seconds: a peer that is waited for so long is asked to run what its host left in queues. */
static const double LONG = 0.003;

typedef struct CommOp {
  SimOp op;
  Comm *comm;
  bool entered;
  size_t nparts;
  CommPart part[];
} CommOp;

size_t comm_type_bytes(int type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclFloat32:
    return 4;
  case ncclInt64:
  case ncclFloat64:
    return 8;
  default:
    return 0;
  }
}

uint64_t comm_bytes_in(const Comm *comm, const WireCall *call) {
  uint64_t bytes = call->count * comm_type_bytes(call->type);
  switch ((WireKind)call->kind) {
  case WIRE_NOTHING:
  case WIRE_RECV:
    return 0;
  case WIRE_REDUCE_SCATTER:
    return bytes * (uint64_t)comm->wire.nranks;
  case WIRE_BROADCAST:
    return comm->wire.rank == call->root ? bytes : 0;
  case WIRE_ALL_REDUCE:
  case WIRE_REDUCE:
  case WIRE_ALL_GATHER:
  case WIRE_SEND:
    return bytes;
  }
  return 0;
}

uint64_t comm_bytes_out(const Comm *comm, const WireCall *call) {
  uint64_t bytes = call->count * comm_type_bytes(call->type);
  switch ((WireKind)call->kind) {
  case WIRE_NOTHING:
  case WIRE_SEND:
    return 0;
  case WIRE_ALL_GATHER:
    return bytes * (uint64_t)comm->wire.nranks;
  case WIRE_REDUCE:
    return comm->wire.rank == call->root ? bytes : 0;
  case WIRE_ALL_REDUCE:
  case WIRE_REDUCE_SCATTER:
  case WIRE_BROADCAST:
  case WIRE_RECV:
    return bytes;
  }
  return 0;
}

void comm_name(const WireCall *call, char *text, size_t size) {
  static const char *const kinds[] = {"nothing",    "all-reduce", "reduce", "reduce-scatter",
                                      "all-gather", "broadcast",  "send",   "recv"};
  static const char *const types[] = {"int8",   "uint8", "int32", "uint32", "int64",
                                      "uint64", "f16",   "f32",   "f64",    "bf16"};
  static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};
  int n = snprintf(text, size, "%s of %llu %s", kinds[call->kind], (unsigned long long)call->count,
                   types[call->type]);
  if (call->kind == WIRE_ALL_REDUCE || call->kind == WIRE_REDUCE ||
      call->kind == WIRE_REDUCE_SCATTER)
    n += snprintf(text + n, size - (size_t)n, " %s", ops[call->op]);
  if (call->root >= 0)
    n += snprintf(text + n, size - (size_t)n, "%s rank %d",
                  call->kind == WIRE_SEND   ? " to"
                  : call->kind == WIRE_RECV ? " from"
                                            : ", root",
                  call->root);
  if (call->captured)
    snprintf(text + n, size - (size_t)n, " as captured in place %u", call->captured);
}

void comm_fail(Comm *comm, ncclResult_t error, const char *format, ...) {
  if (comm->error) return;
  va_list ap;
  va_start(ap, format);
  vsnprintf(comm->text, sizeof comm->text, format, ap);
  va_end(ap);
  comm->error = error;
  if (comm->wire.fd < 0 || wire_fail(&comm->wire, comm->text)) sim_report("NCCL: %s", comm->text);
}

/* --- memory of the device to and from chunks ---------------------------------------------------
 */

static SimPoll faulty(CommOp *o, const PtxFault *fault, const WireCall *call) {
  char name[160];
  comm_name(call, name, sizeof name);
  return sim_fault(o->op.stream->device, fault, name);
}

/* Fills a slot; bytes that nobody wrote go along as holes. */
static SimPoll put(CommOp *o, const CommPart *p, WireSlot *slot, unsigned char *chunk,
                   const char *from, size_t bytes) {
  PtxMemory *memory = o->comm->device->memory;
  PtxFault fault = {0};
  slot->call = p->call;
  slot->bytes = (uint32_t)bytes;
  slot->holes = 0;
  if (!bytes) return SIM_DONE;
  sim_memory_show();
  memcpy(chunk, from, bytes);
  if (ptx_memory_check_read(memory, from, bytes, &fault)) return SIM_DONE;
  if (fault.kind != PTX_FAULT_UNWRITTEN) return faulty(o, &fault, &p->call);
  slot->holes = 1;
  for (size_t i = 0; i < bytes; i++)
    wire_holes(chunk)[i] = !ptx_memory_check_read(memory, from + i, 1, &fault);
  return SIM_DONE;
}

/* Bytes that came, or became of what came. `holes` is NULL, or says which of them are none. */
static SimPoll get(CommOp *o, const CommPart *p, char *to, const void *from, size_t bytes,
                   const unsigned char *holes) {
  PtxMemory *memory = o->comm->device->memory;
  PtxFault fault = {0};
  if (!bytes) return SIM_DONE;
  sim_memory_show();
  if (!ptx_memory_check_write(memory, to, bytes, &fault)) return faulty(o, &fault, &p->call);
  memcpy(to, from, bytes);
  for (size_t i = 0; holes && i < bytes; i++)
    if (holes[i]) ptx_memory_forget(memory, to + i, 1);
  return SIM_DONE;
}

/* --- messages ----------------------------------------------------------------------------------
 */

static uint64_t chunks(uint64_t bytes) {
  return bytes ? (bytes + WIRE_CHUNK - 1) / WIRE_CHUNK : 1;
}

static size_t chunk_bytes(uint64_t whole, uint64_t chunk) {
  uint64_t rest = whole - chunk * WIRE_CHUNK;
  return rest < WIRE_CHUNK ? (size_t)rest : WIRE_CHUNK;
}

/* Over when the peer has taken all of it. */
static SimPoll step_send(CommOp *o, CommPart *p) {
  const Wire *w = &o->comm->wire;
  WirePair *pair = &w->shared->pair[w->rank][p->call.root];
  uint64_t whole = comm_bytes_in(o->comm, &p->call);
  while (p->posted < chunks(whole) && pair->sent - pair->taken < 2) {
    unsigned slot = pair->sent & 1;
    pair->slot[slot].whole = whole;
    SimPoll poll = put(o, p, &pair->slot[slot], wire_message(w, w->rank, p->call.root, slot),
                       p->src + p->posted * WIRE_CHUNK, chunk_bytes(whole, p->posted));
    if (poll != SIM_DONE) return poll;
    p->posted++;
    pair->sent++;
    wire_bump(w);
  }
  p->over = p->posted == chunks(whole) && pair->taken == pair->sent;
  return p->over ? SIM_DONE : SIM_BLOCKED;
}

static SimPoll step_recv(CommOp *o, CommPart *p) {
  Comm *comm = o->comm;
  const Wire *w = &comm->wire;
  WirePair *pair = &w->shared->pair[p->call.root][w->rank];
  uint64_t whole = comm_bytes_out(comm, &p->call);
  while (p->taken < chunks(whole) && pair->sent > pair->taken) {
    unsigned slot = pair->taken & 1;
    WireSlot *s = &pair->slot[slot];
    unsigned char *chunk = wire_message(w, p->call.root, w->rank, slot);
    if (s->whole != whole || s->call.type != p->call.type || s->call.captured != p->call.captured) {
      char theirs[160], mine[160];
      comm_name(&s->call, theirs, sizeof theirs);
      comm_name(&p->call, mine, sizeof mine);
      comm_fail(comm, ncclInvalidUsage, "%s of rank %d meets %s of rank %d", theirs, p->call.root,
                mine, w->rank);
      return sim_fail(comm->device, CUDA_ERROR_LAUNCH_FAILED, "%s", comm->text);
    }
    SimPoll poll = get(o, p, p->dst + p->taken * WIRE_CHUNK, chunk, s->bytes,
                       s->holes ? wire_holes(chunk) : NULL);
    if (poll != SIM_DONE) return poll;
    p->taken++;
    pair->taken++;
    wire_bump(w);
  }
  p->over = p->taken == chunks(whole);
  return p->over ? SIM_DONE : SIM_BLOCKED;
}

/* --- collectives -------------------------------------------------------------------------------
 */

static bool all_taken(const Wire *w, uint64_t least) {
  for (int r = 0; r < w->nranks; r++)
    if (w->shared->rank[r].taken < least) return false;
  return true;
}

static bool all_posted(const Wire *w, uint64_t least) {
  for (int r = 0; r < w->nranks; r++)
    if (w->shared->rank[r].posted < least) return false;
  return true;
}

/* Every rank must have called the same. */
static bool agree(Comm *comm, const WireCall *call, unsigned slot) {
  const Wire *w = &comm->wire;
  for (int r = 0; r < w->nranks; r++) {
    const WireCall *other = &w->shared->rank[r].slot[slot].call;
    if (memcmp(other, call, sizeof *call) == 0) continue;
    char theirs[160], mine[160];
    comm_name(other, theirs, sizeof theirs);
    comm_name(call, mine, sizeof mine);
    comm_fail(comm, ncclInvalidUsage, "ranks do not call the same: rank %d %s, rank %d %s", w->rank,
              mine, r, theirs);
    return false;
  }
  return true;
}

/* The part of a chunk that lies in [from, from + bytes) of what is reduced. */
static SimPoll reduce_chunk(CommOp *o, CommPart *p, unsigned slot, uint64_t from, uint64_t bytes) {
  const Wire *w = &o->comm->wire;
  uint64_t at = p->taken * WIRE_CHUNK, end = at + w->shared->rank[w->rank].slot[slot].bytes;
  uint64_t begin = at > from ? at : from;
  if (end > from + bytes) end = from + bytes;
  if (begin >= end) return SIM_DONE;
  static unsigned char result[WIRE_CHUNK], holes[WIRE_CHUNK];
  const void *parts[WIRE_RANKS] = {NULL};
  bool any = false;
  size_t n = (size_t)(end - begin), width = comm_type_bytes(p->call.type);
  memset(holes, 0, n);
  for (int r = 0; r < w->nranks; r++) {
    unsigned char *chunk = wire_chunk(w, r, slot);
    parts[r] = chunk + (begin - at);
    if (!w->shared->rank[r].slot[slot].holes) continue;
    any = true;
    for (size_t i = 0; i < n; i++)
      if (wire_holes(chunk)[begin - at + i]) memset(holes + i / width * width, 1, width);
  }
  comm_reduce(result, parts, w->nranks, n / width, p->call.type, p->call.op);
  return get(o, p, p->dst + (begin - from), result, n, any ? holes : NULL);
}

static SimPoll take(CommOp *o, CommPart *p, unsigned slot) {
  const Wire *w = &o->comm->wire;
  uint64_t bytes = p->call.count * comm_type_bytes(p->call.type);
  SimPoll poll = SIM_DONE;
  switch ((WireKind)p->call.kind) {
  case WIRE_REDUCE:
    if (w->rank != p->call.root) break;
    return reduce_chunk(o, p, slot, 0, bytes);
  case WIRE_ALL_REDUCE:
    return reduce_chunk(o, p, slot, 0, bytes);
  case WIRE_REDUCE_SCATTER:
    return reduce_chunk(o, p, slot, (uint64_t)w->rank * bytes, bytes);
  case WIRE_ALL_GATHER:
  case WIRE_BROADCAST:
    for (int r = 0; r < w->nranks && poll == SIM_DONE; r++) {
      const WireSlot *s = &w->shared->rank[r].slot[slot];
      unsigned char *chunk = wire_chunk(w, r, slot);
      uint64_t before = p->call.kind == WIRE_ALL_GATHER ? (uint64_t)r * bytes : 0;
      poll = get(o, p, p->dst + before + p->taken * WIRE_CHUNK, chunk, s->bytes,
                 s->holes ? wire_holes(chunk) : NULL);
    }
    break;
  case WIRE_NOTHING:
  case WIRE_SEND:
  case WIRE_RECV:
    break;
  }
  return poll;
}

static SimPoll step_collective(CommOp *o, CommPart *p) {
  Comm *comm = o->comm;
  const Wire *w = &comm->wire;
  WireRank *mine = &w->shared->rank[w->rank];
  uint64_t in = comm_bytes_in(comm, &p->call);
  uint64_t rounds =
      chunks(p->call.kind == WIRE_BROADCAST ? p->call.count * comm_type_bytes(p->call.type) : in);
  while (p->taken < rounds) {
    if (p->posted == p->taken) {
      if (mine->posted >= 2 && !all_taken(w, mine->posted - 1)) return SIM_BLOCKED;
      unsigned slot = mine->posted & 1;
      SimPoll poll = put(o, p, &mine->slot[slot], wire_chunk(w, w->rank, slot),
                         p->src + p->posted * WIRE_CHUNK, in ? chunk_bytes(in, p->posted) : 0);
      if (poll != SIM_DONE) return poll;
      p->posted++;
      mine->posted++;
      if (all_posted(w, mine->posted)) wire_bump(w); /* the last one wakes the others */
    }
    if (!all_posted(w, mine->taken + 1)) return SIM_BLOCKED;
    unsigned slot = mine->taken & 1;
    if (!agree(comm, &p->call, slot))
      return sim_fail(comm->device, CUDA_ERROR_LAUNCH_FAILED, "%s", comm->text);
    SimPoll poll = take(o, p, slot);
    if (poll != SIM_DONE) return poll;
    p->taken++;
    mine->taken++;
    if (all_taken(w, mine->taken)) wire_bump(w);
  }
  p->over = true;
  return SIM_DONE;
}

/* --- the operation -----------------------------------------------------------------------------
 */

static bool is_message(const CommPart *p) {
  return p->call.kind == WIRE_SEND || p->call.kind == WIRE_RECV;
}

/* Messages of a group are under way at once, those between two ranks in one direction in order;
 * collectives come one after the other. */
static SimPoll step_parts(CommOp *o) {
  bool over = true, collective = false;
  bool sending[WIRE_RANKS] = {false}, receiving[WIRE_RANKS] = {false};
  for (size_t i = 0; i < o->nparts; i++) {
    CommPart *p = &o->part[i];
    if (p->over) continue;
    bool *busy = &collective;
    if (is_message(p)) busy = (p->call.kind == WIRE_SEND ? sending : receiving) + p->call.root;
    SimPoll poll = SIM_BLOCKED;
    if (!*busy)
      poll = !is_message(p)              ? step_collective(o, p)
             : p->call.kind == WIRE_SEND ? step_send(o, p)
                                         : step_recv(o, p);
    if (poll == SIM_FAILED) return poll;
    if (poll == SIM_BLOCKED) *busy = true, over = false;
  }
  return over ? SIM_DONE : SIM_BLOCKED;
}

static void describe(CommOp *o) {
  char *doing = o->comm->wire.shared->rank[o->comm->wire.rank].doing;
  size_t n = (size_t)snprintf(doing, WIRE_DOING, "call %llu: ", (unsigned long long)o->comm->calls);
  for (size_t i = 0; i < o->nparts && n + 24 < WIRE_DOING; i++) {
    if (i) n += (size_t)snprintf(doing + n, WIRE_DOING - n, " + ");
    comm_name(&o->part[i].call, doing + n, WIRE_DOING - n);
    n += strlen(doing + n);
  }
}

/* After a while peers are asked to run their queues; at the deadline it is a deadlock. */
static SimPoll blocked(CommOp *o) {
  Comm *comm = o->comm;
  double now = sim_seconds();
  if (!comm->blocked_since) comm->blocked_since = comm->wanted_at = now;
  if (now - comm->wanted_at > LONG) {
    comm->wanted_at = now;
    const Comm *all = comm;
    while (all->parent) all = all->parent;
    comm->wire.shared->wants++;
    wire_ring(&all->wire);
  }
  if (now - comm->blocked_since < sim_process()->deadline) return SIM_BLOCKED;
  char ranks[4096];
  wire_describe(&comm->wire, ranks, sizeof ranks);
  comm_fail(comm, ncclInternalError, "rank %d waited %g s for its peers", comm->wire.rank,
            sim_process()->deadline);
  return sim_fail(comm->device, CUDA_ERROR_LAUNCH_FAILED, "NCCL: %s, deadlock:%s", comm->text,
                  ranks);
}

/* An operation that is given up leaves anything in its results, and that counts as written: what
 * follows it in the stream of a program that is ending may read it. */
static SimPoll give_up(CommOp *o) {
  PtxFault fault = {0};
  for (size_t i = 0; i < o->nparts; i++) {
    const CommPart *p = &o->part[i];
    uint64_t bytes = comm_bytes_out(o->comm, &p->call);
    if (bytes && !p->over) ptx_memory_check_write(o->comm->device->memory, p->dst, bytes, &fault);
  }
  return SIM_DONE;
}

static SimPoll comm_step(SimOp *op) {
  CommOp *o = (CommOp *)op;
  Comm *comm = o->comm;
  SimProcess *process = sim_process();
  if (comm->aborted) return give_up(o);
  WireShared *shared = comm->wire.shared;
  process->awaited = &shared->activity;
  process->seen = __atomic_load_n(&shared->activity, __ATOMIC_SEQ_CST);
  if (!o->entered) {
    o->entered = true;
    comm->calls++;
    describe(o);
  }
  if (shared->failed && !comm->error) comm_fail(comm, ncclInvalidUsage, "%s", shared->failure);
  if (comm->error == ncclInvalidUsage || comm->error == ncclInternalError)
    return sim_fail(comm->device, CUDA_ERROR_LAUNCH_FAILED, "NCCL: %s", comm->text);
  SimPoll poll = step_parts(o);
  if (poll == SIM_BLOCKED) {
    uint32_t activity = __atomic_load_n(&shared->activity, __ATOMIC_SEQ_CST);
    if (activity != comm->activity) comm->blocked_since = 0;
    comm->activity = activity;
    return blocked(o);
  }
  comm->blocked_since = 0;
  if (poll == SIM_DONE)
    snprintf(shared->rank[comm->wire.rank].doing, WIRE_DOING, "nothing behind call %llu",
             (unsigned long long)comm->calls);
  return poll;
}

static SimOp *comm_clone(const SimOp *op) {
  const CommOp *o = (const CommOp *)op;
  return comm_op_new(o->comm, o->part, o->nparts);
}

static void comm_free(SimOp *op) {
  ((CommOp *)op)->comm->live--;
  free(op);
}

static void comm_enter(SimOp *op) {
  ((CommOp *)op)->comm->mark = (SimMark){op->stream, op->stream->entered + 1};
}

static const SimKind kind = {"NCCL", comm_step, comm_enter, comm_clone, comm_free, true};

SimOp *comm_op_new(Comm *comm, const CommPart *parts, size_t nparts) {
  CommOp *o = calloc(1, sizeof *o + nparts * sizeof *parts);
  if (!o) abort();
  o->op.kind = &kind;
  o->comm = comm;
  comm->live++;
  o->nparts = nparts;
  memcpy(o->part, parts, nparts * sizeof *parts);
  return &o->op;
}
