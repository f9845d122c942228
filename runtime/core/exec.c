/* The executor: see exec.h. */
#include "core/exec.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "core/library.h"
#include "core/matmul.h"
#include "core/moves.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"

enum {
  MIN_WORK = 16384,     /* elements a kernel touches before threads pay off */
  PIECES_PER_THREAD = 4 /* for balance; kernels do not depend on how tasks are split */
};

/* An action prepared for this rank. */
typedef struct Prepared {
  int skip; /* this rank is not in its mesh */
  void **buffers;
  int64_t *ints;
  int64_t tasks, work;
  Matmul *matmul;
  Moves moves;
  RtPull pull; /* START: until what it begins is over */
  LibCall *library;
  RtChannel *channel;
  int slotted; /* some buffer has a block per micro-batch under way */
} Prepared;

struct Exec {
  const Image *image;
  AbiKernelFn *const *kernels;
  RtComm *comm;
  RtTrace *trace;
  MatmulContext *matmul;
  int64_t *syms;
  Prepared *actions;
  void **pointers;   /* all actions' buffers, as the image's `buffer` table */
  int64_t *arg_ints; /* all actions' args evaluated */
  void *scratch;     /* of library operators */
  int64_t micro;     /* the micro-batch whose blocks actions use */
};

/* --- preparation
 * ---------------------------------------------------------------------------------- */

static int find_integers(Exec *x) {
  const Image *im = x->image;
  int64_t(*coord)[ABI_MAX_AXES] = calloc(im->mesh_count, sizeof *coord);
  x->syms = calloc(im->sym_count, sizeof *x->syms);
  x->arg_ints = calloc(im->arg_count + 1, sizeof *x->arg_ints);
  if (coord && x->syms && x->arg_ints) {
    for (uint64_t m = 1; m < im->mesh_count; m++) {
      int64_t position = abi_mesh_position(im, &im->mesh[m], x->comm->rank);
      if (position >= 0) abi_coords(&im->mesh[m], position, coord[m]);
    }
    for (uint64_t i = 0; i < im->sym_count; i++) {
      const RtSym *s = &im->sym[i];
      x->syms[i] = rt_sym_eval(s, x->syms, s->op == RT_SYM_COORD ? coord[s->a] : NULL);
    }
    for (uint64_t i = 0; i < im->arg_count; i++) x->arg_ints[i] = x->syms[im->arg[i]];
  }
  int ok = coord && x->syms && x->arg_ints;
  free(coord);
  return ok ? 0 : dtm_rt_fail(x->comm, RT_DEVICE, "out of memory");
}

static LibTensor library_tensor(const Exec *x, const AbiBuffer *b, void *data) {
  const AbiType *type = &x->image->type[b->type];
  const AbiMesh *mesh = abi_type_mesh(x->image, type);
  LibTensor t = {.data = data, .dtype = type->dtype, .rank = type->rank};
  int64_t coord[ABI_MAX_AXES];
  abi_coords(mesh, abi_mesh_position(x->image, mesh, x->comm->rank), coord);
  abi_block(type, mesh, coord, t.offset, t.extent);
  memcpy(t.shape, type->shape, sizeof t.shape);
  return t;
}

static int prepare_library(Exec *x, const AbiAction *a, Prepared *p, size_t *scratch) {
  LibCall *c = p->library = calloc(1, sizeof *c);
  if (!c || a->nbuffers > LIB_MAX_TENSORS || a->nargs > LIB_MAX_ARGS) return -1;
  c->code = a->code;
  c->threads = x->comm->threads;
  c->ntensors = a->nbuffers;
  c->step = dtm_rt_exec_step(x);
  for (uint32_t i = 0; i < a->nbuffers; i++)
    c->t[i] = library_tensor(x, &x->image->buffer[a->buffers + i], p->buffers[i]);
  for (uint32_t i = 0; i < a->nargs; i++) c->args[i] = p->ints[i];
  size_t need = dtm_rt_library_scratch(c);
  if (need > *scratch) *scratch = need;
  return 0;
}

static int prepare_matmul(Exec *x, const AbiAction *a, Prepared *p) {
  const AbiMatmul *m = &x->image->matmul[a->code];
  const AbiBuffer *b = &x->image->buffer[a->buffers];
  const int64_t *v = x->syms;
  MatmulShape s = {.dtype = x->image->type[b[a->nbuffers - 1].type].dtype,
                   .nbatch = m->nbatch,
                   .m = v[m->m],
                   .n = v[m->n],
                   .k = v[m->k],
                   .a_m = v[m->a_m],
                   .a_k = v[m->a_k],
                   .b_k = v[m->b_k],
                   .b_n = v[m->b_n],
                   .out_m = v[m->out_m],
                   .out_n = v[m->out_n],
                   .bias = m->bias,
                   .addend = m->addend,
                   .activation = m->activation};
  for (uint32_t i = 0; i < m->nbatch; i++) {
    s.batch[i] = v[m->batch[i]];
    s.a_batch[i] = v[m->a_batch[i]];
    s.b_batch[i] = v[m->b_batch[i]];
    s.out_batch[i] = v[m->out_batch[i]];
  }
  void *bias = m->bias ? p->buffers[2] : NULL;
  void *addend = m->addend ? p->buffers[2 + m->bias] : NULL, *out = p->buffers[a->nbuffers - 1];
  s.in_place = m->addend && addend == out;
  const char *error = NULL;
  p->matmul =
      dtm_rt_matmul_new(x->matmul, &s, p->buffers[0], p->buffers[1], bias, addend, out, &error);
  if (p->matmul) return 0;
  return dtm_rt_fail(x->comm, RT_DEVICE, "cannot prepare %s: %s", abi_text(x->image, a->name),
                     error);
}

static int is_move(uint32_t kind) {
  return kind == ABI_START || kind == ABI_PULL || kind == ABI_PULL_ROWS || kind == ABI_ALL_REDUCE ||
         kind == ABI_REDUCE_SCATTER || kind == ABI_SLICE || kind == ABI_FILL || kind == ABI_COPY;
}

static int in_mesh(const Exec *x, uint32_t mesh) {
  return mesh == 0 || abi_mesh_position(x->image, &x->image->mesh[mesh], x->comm->rank) >= 0;
}

/* A transfer between meshes concerns the ranks of both; all else those of one. */
static int takes_part(const Exec *x, const AbiAction *a) {
  if (in_mesh(x, a->mesh)) return 1;
  if (a->kind != ABI_PULL && a->kind != ABI_START) return 0;
  const AbiBuffer *b = &x->image->buffer[a->buffers];
  return in_mesh(x, x->image->type[b[0].type].mesh) || in_mesh(x, x->image->type[b[1].type].mesh);
}

static int prepare_channel(const Exec *x, const AbiAction *a, Prepared *p) {
  p->channel = calloc(1, sizeof *p->channel);
  return p->channel ? dtm_rt_channel_find(x->image, a, x->comm->rank, p->channel) : -1;
}

static int prepare(Exec *x, uint32_t i, size_t *scratch) {
  const AbiAction *a = &x->image->action[i];
  Prepared *p = &x->actions[i];
  p->skip = !takes_part(x, a);
  p->buffers = x->pointers + a->buffers;
  p->ints = x->arg_ints + a->args;
  if (p->skip) return 0;
  for (uint32_t k = 0; k < a->nbuffers; k++)
    p->slotted |= x->image->buffer[a->buffers + k].slots > 1;
  if (a->kind == ABI_MATMUL) return prepare_matmul(x, a, p);
  if (a->kind == ABI_KERNEL) {
    p->tasks = p->ints[0];
    p->work = p->ints[1];
    p->ints += 2;
  }
  if ((is_move(a->kind) && dtm_rt_moves_find(x->image, a, x->comm->rank, &p->moves)) ||
      (a->kind == ABI_LIBRARY && prepare_library(x, a, p, scratch)) ||
      ((a->kind == ABI_POST || a->kind == ABI_TAKE) && prepare_channel(x, a, p)))
    return dtm_rt_fail(x->comm, RT_DEVICE, "out of memory while preparing %s",
                       abi_text(x->image, a->name));
  return 0;
}

int dtm_rt_exec_open(const Image *image, AbiKernelFn *const *kernels, RtComm *comm, RtTrace *trace,
                     Exec **exec) {
  Exec *x = calloc(1, sizeof *x);
  *exec = x;
  if (!x) return dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  *x = (Exec){.image = image, .kernels = kernels, .comm = comm, .trace = trace};
  x->matmul = dtm_rt_matmul_open(comm->threads);
  x->actions = calloc(image->action_count + 1, sizeof *x->actions);
  x->pointers = calloc(image->buffer_count + 1, sizeof *x->pointers);
  if (!x->matmul || !x->actions || !x->pointers)
    return dtm_rt_fail(comm, RT_DEVICE, "out of memory, or oneDNN does not start");
  int status = find_integers(x);
  if (status) return status;
  for (uint64_t i = 0; i < image->buffer_count; i++)
    x->pointers[i] = comm->arena + image->buffer[i].offset;
  size_t scratch = 0;
  for (uint32_t i = 0; i < image->action_count; i++) {
    status = prepare(x, i, &scratch);
    if (status) return status;
  }
  x->scratch = malloc(scratch + 1);
  return x->scratch ? 0 : dtm_rt_fail(comm, RT_DEVICE, "out of memory");
}

void dtm_rt_exec_close(Exec *x) {
  if (!x) return;
  for (uint64_t i = 0; x->actions && i < x->image->action_count; i++) {
    dtm_rt_matmul_free(x->actions[i].matmul);
    dtm_rt_moves_free(&x->actions[i].moves);
    dtm_rt_pull_free(&x->actions[i].pull);
    free(x->actions[i].library);
    if (x->actions[i].channel) dtm_rt_channel_free(x->actions[i].channel);
    free(x->actions[i].channel);
  }
  dtm_rt_matmul_close(x->matmul);
  free(x->actions);
  free(x->pointers);
  free(x->arg_ints);
  free(x->syms);
  free(x->scratch);
  free(x);
}

AbiStep *dtm_rt_exec_step(Exec *x) {
  return (AbiStep *)(void *)(x->comm->arena + ABI_STEP_OFFSET);
}

/* --- running -------------------------------------------------------------------------------------
 */

static void run_kernel(const Exec *x, const AbiAction *a, const Prepared *p) {
  AbiKernelFn *kernel = x->kernels[a->code];
  int threads = p->work >= MIN_WORK ? x->comm->threads : 1;
  if (threads > p->tasks) threads = (int)p->tasks;
  if (threads <= 1) {
    kernel(p->buffers, p->ints, 0, p->tasks);
    return;
  }
  int64_t pieces = (int64_t)threads * PIECES_PER_THREAD;
  if (pieces > p->tasks) pieces = p->tasks;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < pieces; i++)
    kernel(p->buffers, p->ints, p->tasks * i / pieces, p->tasks * (i + 1) / pieces);
}

static int run_library(const Exec *x, const Prepared *p) {
  LibFault fault;
  if (!dtm_rt_library_run(p->library, x->scratch, &fault)) return 0;
  if (p->library->code == ABI_LIB_SAME_AS)
    return dtm_rt_fail(x->comm, RT_BAD_DATA,
                       "ranks that should hold the same differ: element %lld of %lld is %.9g here "
                       "and %.9g on the first rank of the mesh dim",
                       (long long)fault.index, (long long)fault.extent, fault.mine, fault.first);
  if (p->library->code == ABI_LIB_GROUPED_LINEAR ||
      p->library->code == ABI_LIB_GROUPED_LINEAR_WEIGHT)
    return dtm_rt_fail(x->comm, RT_BAD_DATA,
                       "counts say %lld rows for an expert whose block has room for %lld",
                       (long long)fault.index, (long long)fault.extent - 1);
  return dtm_rt_fail(x->comm, RT_BAD_DATA, "index %lld is outside [0, %lld)",
                     (long long)fault.index, (long long)fault.extent);
}

/* Bytes from the first block of a buffer to that of the micro-batch at hand. */
static size_t slot_offset(const Exec *x, const AbiBuffer *b) {
  return b->slots > 1 ? (size_t)(x->micro % b->slots) * b->stride : 0;
}

/* Buffers with a block per micro-batch: those of the one at hand. */
static void use_slots(const Exec *x, const AbiAction *a, Prepared *p) {
  for (uint32_t i = 0; i < a->nbuffers; i++) {
    const AbiBuffer *b = &x->image->buffer[a->buffers + i];
    p->buffers[i] = x->comm->arena + b->offset + slot_offset(x, b);
    if (p->library) p->library->t[i].data = p->buffers[i];
  }
  if (!p->matmul) return;
  const AbiMatmul *m = &x->image->matmul[a->code];
  dtm_rt_matmul_move(p->matmul, p->buffers[0], p->buffers[1], m->bias ? p->buffers[2] : NULL,
                     m->addend ? p->buffers[2 + m->bias] : NULL, p->buffers[a->nbuffers - 1]);
}

/* A bucket has no slots: its ranges may span several buffers. */
static int all_reduce(const Exec *x, const AbiAction *a, const Moves *m) {
  RtComm *c = x->comm;
  const AbiBuffer *b = &x->image->buffer[a->buffers];
  for (size_t i = 0; i < m->nranges; i++) {
    const RtRange *r = &m->ranges[i];
    int status =
        c->ops->all_reduce(c, r->src + slot_offset(x, &b[0]), r->dst + slot_offset(x, &b[1]),
                           r->count, (int)m->dtype, (int)a->code, m->group, m->ngroup);
    if (status) return status;
  }
  return 0;
}

static int pull_rows(const Exec *x, const AbiBuffer *b, const Prepared *p) {
  const Moves *m = &p->moves;
  RtComm *c = x->comm;
  int64_t bad;
  int64_t n =
      dtm_rt_moves_rows(m, p->buffers[1], p->buffers[2], x->image->type[b[2].type].dtype, &bad);
  if (n < 0)
    return dtm_rt_fail(c, RT_BAD_DATA, "used says %lld rows where there are %lld", (long long)bad,
                       (long long)m->rows);
  return c->ops->pull(c, b[0].offset + slot_offset(x, &b[0]), b[1].offset + slot_offset(x, &b[1]),
                      (int)m->dtype, m->trimmed, (size_t)n, m->group, m->ngroup);
}

static int post(const Exec *x, const AbiBuffer *b, const Prepared *p) {
  return x->comm->ops->post(x->comm, p->channel, b->offset + slot_offset(x, b), p->channel->stride);
}

/* What is begun ahead has one block, whatever the micro-batch. */
static int start(const Exec *x, const AbiAction *a, Prepared *p) {
  RtComm *c = x->comm;
  const Moves *m = &p->moves;
  size_t src = x->image->buffer[a->buffers].offset;
  return a->code == ABI_PULL ? c->ops->pull_start(c, src, (int)m->dtype, m->boxes, m->nboxes,
                                                  m->group, m->ngroup, &p->pull)
                             : c->ops->scatter_start(c, src, (int)m->dtype, m->boxes, m->nboxes,
                                                     m->group, m->ngroup, &p->pull);
}

static int run_action(const Exec *x, uint32_t i, const ExecHooks *hooks) {
  const AbiAction *a = &x->image->action[i];
  const AbiBuffer *b = &x->image->buffer[a->buffers];
  Prepared *p = &x->actions[i];
  const Moves *m = &p->moves;
  RtComm *c = x->comm;
  const char *error = NULL;
  if (p->slotted) use_slots(x, a, p);
  switch ((AbiActionKind)a->kind) {
  case ABI_KERNEL:
    if (p->tasks > 0) run_kernel(x, a, p);
    return 0;
  case ABI_MATMUL:
    if (dtm_rt_matmul_run(p->matmul, &error)) return dtm_rt_fail(c, RT_INTERNAL, "%s", error);
    return 0;
  case ABI_START:
    return start(x, a, p);
  case ABI_PULL:
    if (a->started)
      return c->ops->pull_finish(c, b[0].offset, b[1].offset, (int)m->dtype, m->boxes, m->nboxes,
                                 m->group, m->ngroup, &x->actions[a->started - 1].pull);
    return c->ops->pull(c, b[0].offset + slot_offset(x, &b[0]), b[1].offset + slot_offset(x, &b[1]),
                        (int)m->dtype, m->boxes, m->nboxes, m->group, m->ngroup);
  case ABI_PULL_ROWS:
    return pull_rows(x, b, p);
  case ABI_ALL_REDUCE:
    return all_reduce(x, a, m);
  case ABI_REDUCE_SCATTER:
    if (a->started)
      return c->ops->scatter_finish(c, b[0].offset, b[1].offset, (int)m->dtype, (int)a->code,
                                    m->boxes, m->nboxes, m->group, m->ngroup,
                                    &x->actions[a->started - 1].pull);
    return c->ops->reduce_scatter(c, b[0].offset + slot_offset(x, &b[0]),
                                  b[1].offset + slot_offset(x, &b[1]), (int)m->dtype, (int)a->code,
                                  m->boxes, m->nboxes, m->group, m->ngroup);
  case ABI_POST:
    return post(x, &b[0], p);
  case ABI_TAKE:
    return c->ops->take(c, p->channel, b[1].offset + slot_offset(x, &b[1]));
  case ABI_SLICE:
  case ABI_FILL:
  case ABI_COPY:
    dtm_rt_moves_local(m, a, p->buffers[1], p->buffers[0], c->threads);
    return 0;
  case ABI_LIBRARY:
    return run_library(x, p);
  case ABI_INPUT:
    return hooks->input(hooks->context, a->code, p->buffers[0]);
  case ABI_OUTPUT:
    return hooks->output(hooks->context, a->code, p->buffers[0]);
  case ABI_ACTION_NONE:
  case ABI_ACTION_COUNT:
    break;
  }
  return 0;
}

static const char *category(uint32_t kind) {
  if (kind == ABI_MATMUL) return "matmul";
  if (is_move(kind) && kind != ABI_SLICE && kind != ABI_FILL && kind != ABI_COPY)
    return "collective";
  if (kind == ABI_POST || kind == ABI_TAKE) return "message";
  return kind == ABI_INPUT ? "data" : "kernel";
}

static int run_one(Exec *x, uint32_t i, const ExecHooks *hooks) {
  const AbiAction *a = &x->image->action[i];
  if (x->actions[i].skip) return 0;
  int64_t step = dtm_rt_exec_step(x)->step + 1; /* people count from 1, as the log does */
  const char *name = abi_text(x->image, a->name), *source = abi_text(x->image, a->source);
  dtm_rt_comm_place(x->comm, (RtPlace){.step = step, .operation = name, .source = source});
  uint64_t begin = x->trace ? dtm_rt_trace_now() : 0;
  int status = run_action(x, i, hooks);
  if (x->trace)
    dtm_rt_trace_event(x->trace, name, category(a->kind), source, step, begin, dtm_rt_trace_now());
  return status;
}

int dtm_rt_exec_run(Exec *x, uint32_t first, uint32_t count, const ExecHooks *hooks) {
  for (uint32_t i = first; i < first + count; i++) {
    int status = run_one(x, i, hooks);
    if (status) return status;
  }
  return 0;
}

/* The list of this rank's stage; NULL when it is in none. */
static const AbiStage *stage_of(const Exec *x, const AbiProgram *p) {
  for (uint32_t s = 0; s < p->nstages; s++)
    if (in_mesh(x, x->image->stage[p->stages + s].mesh)) return &x->image->stage[p->stages + s];
  return NULL;
}

static void begin_micro(Exec *x, int64_t micro) {
  x->micro = dtm_rt_exec_step(x)->micro = micro;
}

/* `visit` each action of the micro-batches of one batch on this rank. */
typedef int Visit(Exec *x, uint32_t action, const ExecHooks *hooks, void *context);

static int walk(Exec *x, const AbiProgram *p, const ExecHooks *hooks, Visit *visit, void *context) {
  const AbiStage *stage = stage_of(x, p);
  uint32_t first = p->actions + p->prologue;
  int status = 0;
  for (int64_t m = 0; m < p->microbatches && p->counted && !status; m++) {
    begin_micro(x, m);
    for (uint32_t i = 0; i < p->counted && !status; i++)
      status = visit(x, first + i, hooks, context);
  }
  for (uint32_t e = 0; stage && e < stage->nentries && !status; e++) {
    const AbiEntry *entry = &x->image->entry[stage->entries + e];
    const AbiSegment *s = &x->image->segment[entry->segment];
    begin_micro(x, entry->micro);
    for (uint32_t i = 0; i < s->nactions && !status; i++)
      status = visit(x, s->actions + i, hooks, context);
  }
  begin_micro(x, 0);
  return status;
}

static int visit_run(Exec *x, uint32_t action, const ExecHooks *hooks, void *context) {
  (void)context;
  return run_one(x, action, hooks);
}

int dtm_rt_exec_run_stages(Exec *x, const AbiProgram *p, const ExecHooks *hooks) {
  int status = dtm_rt_exec_run(x, p->actions, p->prologue, hooks);
  return status ? status : walk(x, p, hooks, visit_run, NULL);
}

/* --- looking for the first value that is not finite
 * -------------------------------------------------- */

static int all_finite(const Exec *x, const AbiBuffer *b, const void *data) {
  if (!b->type || !abi_is_float(x->image->type[b->type].dtype)) return 1;
  if (!in_mesh(x, x->image->type[b->type].mesh)) return 1; /* a transfer from here to others */
  LibTensor t = library_tensor(x, b, (void *)data);
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; d++) n *= t.extent[d];
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(abi_load(data, t.dtype, i))) return 0;
  return 1;
}

/* The action writes a value that is not finite, here. */
static int writes_bad(const Exec *x, uint32_t i) {
  const AbiAction *a = &x->image->action[i];
  const Prepared *p = &x->actions[i];
  for (uint32_t k = 0; !p->skip && k < a->nbuffers; k++) {
    const AbiBuffer *b = &x->image->buffer[a->buffers + k];
    if (b->written && a->kind != ABI_POST && !all_finite(x, b, p->buffers[k])) return 1;
  }
  return 0;
}

static int visit_check(Exec *x, uint32_t action, const ExecHooks *hooks, void *context) {
  uint64_t *first = context, key = (uint64_t)x->micro << 32 | action;
  int status = run_one(x, action, hooks);
  if (!status && key < *first && writes_bad(x, action)) *first = key;
  return status;
}

/* Actions stand in an order in which one micro-batch could be computed, so the first bad one of the
 * lowest micro-batch that has any is where it began, for that micro-batch. */
int dtm_rt_exec_find_nonfinite_stages(Exec *x, const AbiProgram *p, const ExecHooks *hooks,
                                      uint32_t *action) {
  uint64_t first = UINT64_MAX;
  *action = 0;
  int status = dtm_rt_exec_run(x, p->actions, p->prologue, hooks);
  if (!status) status = walk(x, p, hooks, visit_check, &first);
  for (int32_t r = 0; r < x->comm->world && !status; r++) {
    uint64_t theirs = first;
    status = x->comm->ops->broadcast_host(x->comm, &theirs, sizeof theirs, r);
    if (!status && theirs < first) first = theirs;
  }
  if (!status && first != UINT64_MAX) *action = (uint32_t)first + 1;
  return status;
}

int dtm_rt_exec_find_nonfinite(Exec *x, uint32_t first, uint32_t count, const ExecHooks *hooks,
                               uint32_t *action) {
  *action = 0;
  for (uint32_t i = first; i < first + count; i++) {
    int status = run_one(x, i, hooks);
    uint32_t bad = !status && writes_bad(x, i), any = 0;
    if (!status) status = x->comm->ops->agree(x->comm, bad, &any);
    if (status) return status;
    if (!any) continue;
    *action = i + 1;
    return 0;
  }
  return 0;
}
