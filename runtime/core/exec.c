/* The executor: see exec.h. */
#include "core/exec.h"

#include <stdlib.h>

#include "comm/errors.h"
#include "device/operands.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"

struct Exec {
  const Image *image;
  RtComm *comm;
  RtTrace *trace;
  bool clocked; /* the device times what is traced, else the host does and waits for each action */
  RtDevice *device;
  unsigned char *skip; /* per action: this rank has no part in it */
  int64_t *syms;
  int64_t *arg_ints; /* all actions' args evaluated */
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

int dtm_rt_exec_open(const Image *image, const RtCode *code, RtComm *comm, RtTrace *trace,
                     Exec **exec) {
  Exec *x = calloc(1, sizeof *x);
  *exec = x;
  if (!x) return dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  *x = (Exec){.image = image, .comm = comm, .trace = trace};
  x->skip = calloc(image->action_count + 1, sizeof *x->skip);
  if (!x->skip) return dtm_rt_fail(comm, RT_DEVICE, "out of memory");
  for (uint64_t i = 0; i < image->action_count; i++) x->skip[i] = !takes_part(x, &image->action[i]);
  int status = find_integers(x);
  const RtDevice found = {
      .image = image, .comm = comm, .syms = x->syms, .arg_ints = x->arg_ints, .skip = x->skip};
  if (!status) status = code->open(&found, code, &x->device);
  for (uint32_t i = 0; i < image->action_count && !status; i++)
    if (!x->skip[i]) status = x->device->ops->prepare(x->device, i);
  if (!status) status = x->device->ops->ready(x->device);
  x->clocked = trace && x->device->ops->clock;
  return status || !x->clocked ? status : x->device->ops->clock(x->device);
}

void dtm_rt_exec_close(Exec *x) {
  if (!x) return;
  if (x->device) x->device->ops->close(x->device);
  free(x->arg_ints);
  free(x->syms);
  free(x->skip);
  free(x);
}

AbiStep *dtm_rt_exec_step(Exec *x) {
  return x->device->step;
}

int dtm_rt_exec_sync(Exec *x) {
  return x->device->ops->sync(x->device);
}

bool dtm_rt_exec_describe(Exec *x, char *text, size_t size) {
  if (!x->device->ops->describe) return false;
  x->device->ops->describe(x->device, text, size);
  return true;
}

/* --- running -------------------------------------------------------------------------------------
 */

static const char *category(uint32_t kind) {
  if (kind == ABI_MATMUL) return "matmul";
  if (dtm_device_is_move(kind) && kind != ABI_SLICE && kind != ABI_FILL && kind != ABI_COPY)
    return "collective";
  if (kind == ABI_POST || kind == ABI_TAKE) return "message";
  return kind == ABI_INPUT ? "data" : "kernel";
}

static void add_event(void *context, uint32_t action, int64_t step, uint64_t begin, uint64_t end) {
  Exec *x = context;
  const AbiAction *a = &x->image->action[action];
  dtm_rt_trace_event(x->trace, abi_text(x->image, a->name), category(a->kind),
                     abi_text(x->image, a->source), action, step + 1, begin, end);
}

static int run_one(Exec *x, uint32_t i, const RtHooks *hooks) {
  RtDevice *d = x->device;
  if (x->skip[i]) return 0;
  dtm_device_place(d, i);
  if (!x->trace || x->clocked) return d->ops->run(d, i, hooks);
  uint64_t begin = dtm_rt_trace_now();
  int status = d->ops->run(d, i, hooks);
  if (!status) status = d->ops->sync(d);
  add_event(x, i, d->step->step, begin, dtm_rt_trace_now());
  return status;
}

/* After a walk. */
static int finish(Exec *x, const RtHooks *hooks) {
  int status = x->device->ops->finish(x->device, hooks);
  return status || !x->clocked ? status : x->device->ops->times(x->device, add_event, x);
}

/* With the integers that were set. */
static int run_all(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks) {
  RtDevice *d = x->device;
  int status = 0;
  for (uint32_t i = first; i < first + count && !status;) {
    uint32_t done = 0;
    if (d->ops->run_many && (!x->trace || x->clocked))
      status = d->ops->run_many(d, i, first + count - i, hooks, &done);
    if (!done && !status) status = run_one(x, i, hooks);
    i += done ? done : 1;
  }
  return status;
}

/* Without the end of a walk. */
static int run_range(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks) {
  int status = x->device->ops->set_step(x->device);
  return status ? status : run_all(x, first, count, hooks);
}

int dtm_rt_exec_run(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks) {
  int status = run_range(x, first, count, hooks);
  return status ? status : finish(x, hooks);
}

/* The list of this rank's stage; NULL when it is in none. */
static const AbiStage *stage_of(const Exec *x, const AbiProgram *p) {
  for (uint32_t s = 0; s < p->nstages; s++)
    if (in_mesh(x, x->image->stage[p->stages + s].mesh)) return &x->image->stage[p->stages + s];
  return NULL;
}

static int begin_micro(Exec *x, int64_t micro) {
  x->device->step->micro = micro;
  return x->device->ops->set_step(x->device);
}

/* `visit` what the micro-batches of one batch run on this rank, range by range. */
typedef int Visit(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks, void *context);

static int walk(Exec *x, const AbiProgram *p, const RtHooks *hooks, Visit *visit, void *context) {
  const AbiStage *stage = stage_of(x, p);
  int status = 0;
  for (int64_t m = 0; m < p->microbatches && p->counted && !status; m++) {
    status = begin_micro(x, m);
    if (!status) status = visit(x, p->actions + p->prologue, p->counted, hooks, context);
  }
  for (uint32_t e = 0; stage && e < stage->nentries && !status; e++) {
    const AbiEntry *entry = &x->image->entry[stage->entries + e];
    const AbiSegment *s = &x->image->segment[entry->segment];
    status = begin_micro(x, entry->micro);
    if (!status) status = visit(x, s->actions, s->nactions, hooks, context);
  }
  x->device->step->micro = 0;
  return status ? status : finish(x, hooks);
}

static int visit_run(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks, void *context) {
  (void)context;
  return run_all(x, first, count, hooks);
}

int dtm_rt_exec_run_stages(Exec *x, const AbiProgram *p, const RtHooks *hooks) {
  int status = run_range(x, p->actions, p->prologue, hooks);
  return status ? status : walk(x, p, hooks, visit_run, NULL);
}

/* --- looking for the first value that is not finite
 * -------------------------------------------------- */

/* *bad: a float of the buffer's block at hand is not. */
static int look(const Exec *x, const AbiBuffer *b, bool *bad) {
  RtDevice *d = x->device;
  if (!b->type || !abi_is_float(x->image->type[b->type].dtype)) return 0;
  if (!in_mesh(x, x->image->type[b->type].mesh)) return 0; /* a transfer from here to others */
  const LibTensor t = dtm_device_tensor(d, b, NULL);
  const void *data;
  int64_t n = dtm_device_elements(&t);
  int status = d->ops->view(d, b->offset + dtm_device_slot(d, b), dtm_device_bytes(&t), &data);
  for (int64_t i = 0; i < n && !status && !*bad; i++) *bad = !isfinite(abi_load(data, t.dtype, i));
  return status;
}

/* *bad: the action writes a value that is not finite, here. */
static int writes_bad(const Exec *x, uint32_t i, bool *bad) {
  const AbiAction *a = &x->image->action[i];
  int status = 0;
  *bad = false;
  for (uint32_t k = 0; !x->skip[i] && k < a->nbuffers && !status; k++) {
    const AbiBuffer *b = &x->image->buffer[a->buffers + k];
    if (b->written && a->kind != ABI_POST) status = look(x, b, bad);
  }
  return status;
}

static int visit_check(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks,
                       void *context) {
  uint64_t *found = context;
  int status = 0;
  for (uint32_t i = first; i < first + count && !status; i++) {
    uint64_t key = (uint64_t)x->device->step->micro << 32 | i;
    bool bad = false;
    status = run_one(x, i, hooks);
    if (!status && key < *found) status = writes_bad(x, i, &bad);
    if (bad) *found = key;
  }
  return status;
}

/* Actions stand in an order in which one micro-batch could be computed, so the first bad one of the
 * lowest micro-batch that has any is where it began, for that micro-batch. */
int dtm_rt_exec_find_nonfinite_stages(Exec *x, const AbiProgram *p, const RtHooks *hooks,
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

int dtm_rt_exec_find_nonfinite(Exec *x, uint32_t first, uint32_t count, const RtHooks *hooks,
                               uint32_t *action) {
  int status = x->device->ops->set_step(x->device);
  *action = 0;
  for (uint32_t i = first; i < first + count && !status && !*action; i++) {
    uint32_t any = 0;
    bool bad = false;
    status = run_one(x, i, hooks);
    if (!status) status = writes_bad(x, i, &bad);
    if (!status) status = x->comm->ops->agree(x->comm, bad, &any);
    if (any) *action = i + 1;
  }
  return status;
}
