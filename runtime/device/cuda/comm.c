/* Communicators of NCCL, and what moves and channels enqueue: see comm.h.
 *
 * Groups. A mesh and a set of its axes cut the ranks of the mesh into disjoint groups; two of them
 * that cut alike share a communicator. ncclCommSplit is called by all ranks of the world, those
 * outside of a group with no colour, so ways to cut whose ranks are disjoint (stages of a pipeline,
 * its channels) are made by one call: a round. A communicator per channel: its messages are under
 * way beside everything else, and NCCL runs the operations of one communicator one by one. */
#include "device/cuda/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/errors.h"
#include "runtime/abi/blocks.h"

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
  *function = dtm_cuda_function(d, name);
  return *function ? 0 : RT_DEVICE;
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
  CUresult error = d->cu->to_device(c->table, c->boxes, bytes);
  free(c->boxes);
  c->boxes = NULL;
  return error ? dtm_cuda_failed(d, error, "copy tables of moves") : 0;
}

/* --- failures -----------------------------------------------------------------------------------
 */

static int nccl_failed(CudaDevice *d, ncclComm_t comm, ncclResult_t error, const char *what) {
  const CudaNccl *n = &d->collectives->nccl;
  const char *last = n->last_error(comm);
  double silent;
  int code = d->base.comm->ops->look(d->base.comm, true, &silent);
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

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Until what was begun on a communicator is over. `result`: of the call that began it. */
static int settle(CudaDevice *d, ncclComm_t comm, ncclResult_t result, const char *what) {
  CudaComm *c = d->collectives;
  RtComm *host = d->base.comm;
  double since = now(), silent;
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
    if (now() - since < host->deadline || silent < host->deadline) continue;
    char who[512];
    host->ops->latest(host, who, sizeof who);
    return dtm_rt_fail(host, RT_LOST,
                       "cannot %s: not all ranks came within %g s (see --deadline)%s%s", what,
                       host->deadline, *who ? "\n  " : "", who);
  }
  return result == ncclSuccess ? 0 : nccl_failed(d, comm, result, what);
}

/* --- making communicators -----------------------------------------------------------------------
 */

/* A way to cut the world: per rank its group (named by the rank that is first in it; -1: it is in
 * none) and its place in there. */
typedef struct Cut {
  int32_t *color, *key;
  int alone; /* shares no communicator with another cut */
  uint32_t round;
} Cut;

typedef struct Cuts {
  Cut *at;
  uint32_t n, nrounds;
  int32_t world;
} Cuts;

static Cut *new_cut(Cuts *all) {
  Cut *more = realloc(all->at, sizeof *more * (all->n + 1));
  if (!more) return NULL;
  all->at = more;
  Cut *c = &more[all->n++];
  *c = (Cut){.color = malloc(sizeof *c->color * (size_t)all->world),
             .key = calloc((size_t)all->world, sizeof *c->key)};
  if (!c->color || !c->key) return NULL;
  for (int32_t r = 0; r < all->world; r++) c->color[r] = -1;
  return c;
}

static void drop_cut(Cuts *all) {
  Cut *c = &all->at[--all->n];
  free(c->color);
  free(c->key);
}

/* The groups of a mesh whose ranks differ in `axes` alone, ranks in the order of their positions.
 */
static int cut_mesh(const Image *image, uint32_t mesh, uint32_t axes, Cuts *all) {
  const AbiMesh *m = &image->mesh[mesh];
  Cut *c = new_cut(all);
  for (int64_t p = 0; c && p < m->nranks; p++) {
    int64_t coord[ABI_MAX_AXES], place = 0;
    abi_coords(m, p, coord);
    for (uint32_t a = 0; a < m->naxes; a++) {
      if (!(axes >> a & 1)) continue;
      place = place * m->size[a] + coord[a];
      coord[a] = 0;
    }
    int32_t rank = image->rank[m->ranks + (uint64_t)p];
    c->color[rank] = image->rank[m->ranks + (uint64_t)abi_position(m, coord)];
    c->key[rank] = (int32_t)place;
  }
  return c ? 0 : -1;
}

static int cut_channel(const Image *image, uint32_t channel, Cuts *all) {
  int32_t *ranks = malloc(sizeof *ranks * (size_t)all->world);
  Cut *c = ranks ? new_cut(all) : NULL;
  int32_t n = c ? dtm_cuda_channel_ranks(image, channel, ranks) : 0;
  for (int32_t i = 0; i < n; i++) {
    c->color[ranks[i]] = ranks[0];
    c->key[ranks[i]] = i;
  }
  if (c) c->alone = 1;
  free(ranks);
  return c ? 0 : -1;
}

static int same_cut(const Cuts *all, const Cut *a, const Cut *b) {
  size_t bytes = sizeof *a->color * (size_t)all->world;
  return !a->alone && !b->alone && !memcmp(a->color, b->color, bytes) &&
         !memcmp(a->key, b->key, bytes);
}

static int is_world(const Cuts *all, const Cut *c) {
  for (int32_t r = 0; r < all->world; r++)
    if (c->color[r] != 0 || c->key[r] != r) return 0;
  return !c->alone;
}

static int share_ranks(const Cuts *all, const Cut *a, const Cut *b) {
  for (int32_t r = 0; r < all->world; r++)
    if (a->color[r] >= 0 && b->color[r] >= 0) return 1;
  return 0;
}

/* The first round whose cuts have no rank of this one. */
static void choose_round(Cuts *all, uint32_t cut) {
  Cut *c = &all->at[cut];
  int taken = 1;
  for (c->round = 0; taken; c->round += (uint32_t)taken) {
    taken = 0;
    for (uint32_t i = 0; i < cut && !taken; i++)
      taken = all->at[i].round == c->round && share_ranks(all, c, &all->at[i]);
  }
  if (c->round >= all->nrounds) all->nrounds = c->round + 1;
}

/* Adds the last cut for a key, or finds an earlier one. *which: its number + 1; 0: the world. */
static void keep_cut(Cuts *all, uint32_t *which) {
  uint32_t last = all->n - 1;
  *which = 0;
  if (is_world(all, &all->at[last])) {
    drop_cut(all);
    return;
  }
  for (uint32_t i = 0; i < last; i++)
    if (same_cut(all, &all->at[i], &all->at[last])) {
      drop_cut(all);
      *which = i + 1;
      return;
    }
  choose_round(all, last);
  *which = all->n;
}

/* What an action asks for, unless it was asked for before. */
static int want(CudaComm *c, Cuts *all, const Image *image, CudaGroup key, uint32_t **which) {
  for (uint32_t i = 0; i < c->ngroups; i++)
    if (c->groups[i].kind == key.kind && c->groups[i].mesh == key.mesh &&
        c->groups[i].axes == key.axes)
      return 0;
  CudaGroup *groups = realloc(c->groups, sizeof *groups * (c->ngroups + 1));
  if (groups) c->groups = groups;
  uint32_t *more = realloc(*which, sizeof *more * (c->ngroups + 1));
  if (more) *which = more;
  if (!groups || !more) return -1;
  int status = key.kind == CUDA_COMM_GROUP ? cut_mesh(image, key.mesh, key.axes, all)
                                           : cut_channel(image, key.axes, all);
  if (status) return status;
  keep_cut(all, &more[c->ngroups]);
  groups[c->ngroups++] = key;
  return 0;
}

/* All that any rank asks for, in the order of the image. */
static int find_cuts(CudaComm *c, Cuts *all, const Image *image, uint32_t **which) {
  for (uint64_t i = 0; i < image->action_count; i++) {
    const AbiAction *a = &image->action[i];
    CudaGroup key = {.kind = CUDA_COMM_GROUP, .axes = a->axes};
    if (a->kind == ABI_POST)
      key = (CudaGroup){.kind = CUDA_COMM_CHANNEL, .axes = a->code};
    else if (dtm_cuda_move_has_group(image, a))
      key.mesh = image->type[image->buffer[a->buffers].type].mesh;
    else
      continue;
    if (want(c, all, image, key, which)) return -1;
  }
  return 0;
}

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
 * the splitting of the whole is over, and may still be in progress then. `ctas`: as many blocks of
 * threads its operations may take; 0: NCCL's choice. */
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

/* Blocks of threads for the messages of one channel: all that a rank may have under way must find
 * room on its GPU beside collectives (see channel.c). */
static int channel_ctas(const Cuts *all) {
  enum { ALL_CTAS = 64, MOST = 8 };
  int most = 1;
  for (int32_t r = 0; r < all->world; r++) {
    int n = 0;
    for (uint32_t i = 0; i < all->n; i++) n += all->at[i].alone && all->at[i].color[r] >= 0;
    if (n > most) most = n;
  }
  int ctas = ALL_CTAS / most;
  return ctas > MOST ? MOST : ctas < 1 ? 1 : ctas;
}

static int make_groups(CudaDevice *d) {
  CudaComm *c = d->collectives;
  int32_t me = d->base.comm->rank;
  Cuts all = {.world = d->base.comm->world};
  uint32_t *which = NULL;
  ncclComm_t *made = NULL;
  int status = find_cuts(c, &all, d->base.image, &which) ? out_of_memory(d) : 0;
  if (!status) made = calloc(all.n + 1, sizeof *made);
  if (!status && !made) status = out_of_memory(d);
  for (uint32_t round = 0; round < all.nrounds && !status; round++) {
    uint32_t mine = all.n;
    for (uint32_t i = 0; i < all.n; i++)
      if (all.at[i].round == round && all.at[i].color[me] >= 0) mine = i;
    const Cut *cut = mine < all.n ? &all.at[mine] : NULL;
    status = split_world(d, cut ? cut->color[me] : -1, cut ? cut->key[me] : 0,
                         cut && cut->alone ? channel_ctas(&all) : 0, &made[mine]);
  }
  for (uint32_t i = 0; i < c->ngroups && !status; i++)
    c->groups[i].comm = which[i] ? made[which[i] - 1] : c->comms[0];
  free(made);
  free(which);
  while (all.n) drop_cut(&all);
  free(all.at);
  return status;
}

ncclComm_t dtm_cuda_comm_of(const CudaDevice *d, const CudaMovePlan *p, uint32_t channel) {
  const CudaComm *c = d->collectives;
  if (p->comm == CUDA_COMM_WORLD) return c->comms[0];
  for (uint32_t i = 0; i < c->ngroups && p->comm != CUDA_COMM_NONE; i++) {
    const CudaGroup *g = &c->groups[i];
    if (g->kind != p->comm) continue;
    if (p->comm == CUDA_COMM_CHANNEL ? g->axes == channel
                                     : g->mesh == p->mesh && g->axes == p->axes)
      return g->comm;
  }
  return NULL;
}

int dtm_cuda_comm_ready(CudaDevice *d) {
  char message[2048];
  if (!comm_of(d)) return out_of_memory(d);
  CudaComm *c = d->collectives;
  int status = upload_boxes(d);
  if (status || d->base.comm->world == 1) return status;
  const char *error = dtm_cuda_nccl_load(&c->nccl, message, sizeof message);
  if (error) return dtm_rt_fail(d->base.comm, RT_DEVICE, "%s", error);
  c->loaded = 1;
  status = make_world(d);
  if (!status) status = make_groups(d);
  return status ? status : dtm_cuda_watch_open(d);
}

/* --- the end ------------------------------------------------------------------------------------
 */

/* Peers may still be at their last operations: a communicator is finalized before it goes, unless
 * the job has failed. */
static void end_comm(CudaDevice *d, ncclComm_t comm, int aborts) {
  CudaComm *c = d->collectives;
  if (!aborts && settle(d, comm, c->nccl.finalize(comm), "end a communicator") == 0)
    c->nccl.destroy(comm);
  else
    c->nccl.abort(comm);
}

void dtm_cuda_comm_close(CudaDevice *d) {
  CudaComm *c = d->collectives;
  double silent;
  if (!c) return;
  dtm_cuda_watch_close(d);
  int aborts = c->loaded && d->base.comm->ops->look(d->base.comm, true, &silent) != 0;
  while (c->ncomms && !c->failed) end_comm(d, c->comms[--c->ncomms], aborts);
  if (c->table) d->cu->memory_free(c->table);
  pthread_mutex_destroy(&c->lock);
  free(c->comms);
  free(c->groups);
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
