/* The processor as a device (device.h): compiled kernels cut over threads, oneDNN and loops of our
 * own, collectives of the transport. Everything that depends on the rank (boxes, groups, oneDNN
 * primitives) is found when an action is prepared; running a step allocates nothing but messages
 * over MPI. */
#include <omp.h>
#include <stdlib.h>

#include "comm/errors.h"
#include "device/cpu/library.h"
#include "device/cpu/matmul.h"
#include "device/cpu/moves_local.h"

enum {
  MIN_WORK = 16384,     /* elements a kernel touches before threads pay off */
  PIECES_PER_THREAD = 4 /* for balance; kernels do not depend on how tasks are split */
};

/* An action prepared for this rank. */
typedef struct Prepared {
  void **buffers;
  const int64_t *ints;
  int64_t tasks, work;
  Matmul *matmul;
  Moves moves;
  RtPull pull; /* START: until what it begins is over */
  LibCall *library;
  RtChannel *channel;
  int slotted; /* some buffer has a block per micro-batch under way */
} Prepared;

typedef struct CpuDevice {
  RtDevice base;
  AbiKernelFn *const *kernels;
  MatmulContext *matmul;
  Prepared *actions;
  void **pointers; /* all actions' buffers, as the image's `buffer` table */
  void *scratch;   /* of library operators */
  size_t scratch_bytes;
} CpuDevice;

static CpuDevice *cpu_of(RtDevice *d) {
  return (CpuDevice *)(void *)d;
}

/* --- preparation
 * ---------------------------------------------------------------------------------- */

static int prepare_library(CpuDevice *x, const AbiAction *a, Prepared *p) {
  const Image *image = x->base.image;
  LibCall *c = p->library = calloc(1, sizeof *c);
  if (!c || a->nbuffers > LIB_MAX_TENSORS || a->nargs > LIB_MAX_ARGS) return -1;
  c->code = a->code;
  c->threads = x->base.comm->threads;
  c->ntensors = a->nbuffers;
  c->step = x->base.step;
  for (uint32_t i = 0; i < a->nbuffers; i++)
    c->t[i] = dtm_device_tensor(&x->base, &image->buffer[a->buffers + i], p->buffers[i]);
  for (uint32_t i = 0; i < a->nargs; i++) c->args[i] = p->ints[i];
  size_t need = dtm_rt_library_scratch(c);
  if (need > x->scratch_bytes) x->scratch_bytes = need;
  return 0;
}

static int prepare_matmul(CpuDevice *x, const AbiAction *a, Prepared *p) {
  const AbiMatmul *m = &x->base.image->matmul[a->code];
  const MatmulShape s = dtm_device_matmul_shape(&x->base, a);
  void *bias = m->bias ? p->buffers[2] : NULL;
  void *addend = m->addend ? p->buffers[2 + m->bias] : NULL, *out = p->buffers[a->nbuffers - 1];
  const char *error = NULL;
  p->matmul =
      dtm_rt_matmul_new(x->matmul, &s, p->buffers[0], p->buffers[1], bias, addend, out, &error);
  if (p->matmul) return 0;
  return dtm_rt_fail(x->base.comm, RT_DEVICE, "cannot prepare %s: %s",
                     abi_text(x->base.image, a->name), error);
}

static int prepare_channel(const CpuDevice *x, const AbiAction *a, Prepared *p) {
  p->channel = calloc(1, sizeof *p->channel);
  return p->channel ? dtm_rt_channel_find(x->base.image, a, x->base.comm->rank, p->channel) : -1;
}

static int cpu_prepare(RtDevice *d, uint32_t action) {
  CpuDevice *x = cpu_of(d);
  const AbiAction *a = &d->image->action[action];
  Prepared *p = &x->actions[action];
  p->buffers = x->pointers + a->buffers;
  p->ints = d->arg_ints + a->args;
  for (uint32_t k = 0; k < a->nbuffers; k++)
    p->slotted |= d->image->buffer[a->buffers + k].slots > 1;
  if (a->kind == ABI_MATMUL) return prepare_matmul(x, a, p);
  if (a->kind == ABI_KERNEL) {
    p->tasks = p->ints[0];
    p->work = p->ints[1];
    p->ints += 2;
  }
  if ((dtm_device_is_move(a->kind) && dtm_rt_moves_find(d->image, a, d->comm->rank, &p->moves)) ||
      (a->kind == ABI_LIBRARY && prepare_library(x, a, p)) ||
      ((a->kind == ABI_POST || a->kind == ABI_TAKE) && prepare_channel(x, a, p)))
    return dtm_rt_fail(d->comm, RT_DEVICE, "out of memory while preparing %s",
                       abi_text(d->image, a->name));
  return 0;
}

static int cpu_ready(RtDevice *d) {
  CpuDevice *x = cpu_of(d);
  x->scratch = malloc(x->scratch_bytes + 1);
  return x->scratch ? 0 : dtm_rt_fail(d->comm, RT_DEVICE, "out of memory");
}

static void cpu_close(RtDevice *d) {
  CpuDevice *x = cpu_of(d);
  for (uint64_t i = 0; x->actions && i < d->image->action_count; i++) {
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
  free(x->scratch);
  free(x);
}

/* --- running -------------------------------------------------------------------------------------
 */

static void run_kernel(const CpuDevice *x, const AbiAction *a, const Prepared *p) {
  AbiKernelFn *kernel = x->kernels[a->code];
  int threads = p->work >= MIN_WORK ? x->base.comm->threads : 1;
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

static int run_library(const CpuDevice *x, const AbiAction *a, const Prepared *p) {
  LibFault fault;
  if (!dtm_rt_library_run(p->library, x->scratch, &fault)) return 0;
  return dtm_device_report(&x->base, a, &fault);
}

/* Buffers with a block per micro-batch: those of the one at hand. */
static void use_slots(const CpuDevice *x, const AbiAction *a, Prepared *p) {
  const Image *image = x->base.image;
  for (uint32_t i = 0; i < a->nbuffers; i++) {
    const AbiBuffer *b = &image->buffer[a->buffers + i];
    p->buffers[i] = x->base.comm->arena + b->offset + dtm_device_slot(&x->base, b);
    if (p->library) p->library->t[i].data = p->buffers[i];
  }
  if (!p->matmul) return;
  const AbiMatmul *m = &image->matmul[a->code];
  dtm_rt_matmul_move(p->matmul, p->buffers[0], p->buffers[1], m->bias ? p->buffers[2] : NULL,
                     m->addend ? p->buffers[2 + m->bias] : NULL, p->buffers[a->nbuffers - 1]);
}

/* A bucket has no slots: its ranges may span several buffers. */
static int all_reduce(const RtDevice *d, const AbiAction *a, const Moves *m) {
  RtComm *c = d->comm;
  const AbiBuffer *b = &d->image->buffer[a->buffers];
  for (size_t i = 0; i < m->nranges; i++) {
    const RtRange *r = &m->ranges[i];
    int status = c->ops->all_reduce(c, r->src + dtm_device_slot(d, &b[0]),
                                    r->dst + dtm_device_slot(d, &b[1]), r->count, (int)m->dtype,
                                    (int)a->code, m->group, m->ngroup);
    if (status) return status;
  }
  return 0;
}

static int pull_rows(const RtDevice *d, const AbiAction *a, const Prepared *p) {
  const AbiBuffer *b = &d->image->buffer[a->buffers];
  const Moves *m = &p->moves;
  RtComm *c = d->comm;
  LibFault fault = {.extent = m->rows};
  int64_t n = dtm_rt_moves_rows(m, p->buffers[1], p->buffers[2], d->image->type[b[2].type].dtype,
                                &fault.index);
  if (n < 0) return dtm_device_report(d, a, &fault);
  return c->ops->pull(c, b[0].offset + dtm_device_slot(d, &b[0]),
                      b[1].offset + dtm_device_slot(d, &b[1]), (int)m->dtype, m->trimmed, (size_t)n,
                      m->group, m->ngroup);
}

static int post(const RtDevice *d, const AbiBuffer *b, const Prepared *p) {
  return d->comm->ops->post(d->comm, p->channel, b->offset + dtm_device_slot(d, b),
                            p->channel->stride);
}

/* What is begun ahead has one block, whatever the micro-batch. */
static int start(const RtDevice *d, const AbiAction *a, Prepared *p) {
  RtComm *c = d->comm;
  const Moves *m = &p->moves;
  size_t src = d->image->buffer[a->buffers].offset;
  return a->code == ABI_PULL ? c->ops->pull_start(c, src, (int)m->dtype, m->boxes, m->nboxes,
                                                  m->group, m->ngroup, &p->pull)
                             : c->ops->scatter_start(c, src, (int)m->dtype, m->boxes, m->nboxes,
                                                     m->group, m->ngroup, &p->pull);
}

static int cpu_run(RtDevice *d, uint32_t action, const RtHooks *hooks) {
  CpuDevice *x = cpu_of(d);
  const AbiAction *a = &d->image->action[action];
  const AbiBuffer *b = &d->image->buffer[a->buffers];
  Prepared *p = &x->actions[action];
  const Moves *m = &p->moves;
  RtComm *c = d->comm;
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
    return start(d, a, p);
  case ABI_PULL:
    if (a->started)
      return c->ops->pull_finish(c, b[0].offset, b[1].offset, (int)m->dtype, m->boxes, m->nboxes,
                                 m->group, m->ngroup, &x->actions[a->started - 1].pull);
    return c->ops->pull(c, b[0].offset + dtm_device_slot(d, &b[0]),
                        b[1].offset + dtm_device_slot(d, &b[1]), (int)m->dtype, m->boxes, m->nboxes,
                        m->group, m->ngroup);
  case ABI_PULL_ROWS:
    return pull_rows(d, a, p);
  case ABI_ALL_REDUCE:
    return all_reduce(d, a, m);
  case ABI_REDUCE_SCATTER:
    if (a->started)
      return c->ops->scatter_finish(c, b[0].offset, b[1].offset, (int)m->dtype, (int)a->code,
                                    m->boxes, m->nboxes, m->group, m->ngroup,
                                    &x->actions[a->started - 1].pull);
    return c->ops->reduce_scatter(c, b[0].offset + dtm_device_slot(d, &b[0]),
                                  b[1].offset + dtm_device_slot(d, &b[1]), (int)m->dtype,
                                  (int)a->code, m->boxes, m->nboxes, m->group, m->ngroup);
  case ABI_POST:
    return post(d, &b[0], p);
  case ABI_TAKE:
    return c->ops->take(c, p->channel, b[1].offset + dtm_device_slot(d, &b[1]));
  case ABI_SLICE:
  case ABI_FILL:
  case ABI_COPY:
    dtm_rt_moves_local(m, a, p->buffers[1], p->buffers[0], c->threads);
    return 0;
  case ABI_LIBRARY:
    return run_library(x, a, p);
  case ABI_INPUT:
    return hooks->input(hooks->context, a->code, p->buffers[0]);
  case ABI_OUTPUT:
    return hooks->output(hooks->context, a->code, d->step, p->buffers[0]);
  case ABI_ACTION_NONE:
  case ABI_ACTION_COUNT:
    break;
  }
  return 0;
}

/* Kernels read the block of integers where it lies, and outputs are handed out as they come. */
static int cpu_set_step(RtDevice *d) {
  (void)d;
  return 0;
}

static int cpu_finish(RtDevice *d, const RtHooks *hooks) {
  (void)d;
  (void)hooks;
  return 0;
}

static int cpu_sync(RtDevice *d) {
  (void)d;
  return 0;
}

static int cpu_view(RtDevice *d, uint64_t offset, size_t bytes, const void **data) {
  (void)bytes;
  *data = d->comm->arena + offset;
  return 0;
}

static const RtDeviceOps cpu_ops = {.name = "cpu",
                                    .prepare = cpu_prepare,
                                    .ready = cpu_ready,
                                    .set_step = cpu_set_step,
                                    .run = cpu_run,
                                    .finish = cpu_finish,
                                    .sync = cpu_sync,
                                    .view = cpu_view,
                                    .close = cpu_close};

int dtm_cpu_open(const RtDevice *found, const RtCode *code, RtDevice **device) {
  CpuDevice *x = calloc(1, sizeof *x);
  *device = NULL;
  if (!x) return dtm_rt_fail(found->comm, RT_DEVICE, "out of memory");
  const Image *image = found->image;
  x->base = *found;
  x->base.ops = &cpu_ops;
  x->base.step = (AbiStep *)(void *)(found->comm->arena + ABI_STEP_OFFSET);
  *device = &x->base;
  x->kernels = code->kernels;
  x->matmul = dtm_rt_matmul_open(found->comm->threads);
  x->actions = calloc(image->action_count + 1, sizeof *x->actions);
  x->pointers = calloc(image->buffer_count + 1, sizeof *x->pointers);
  if (!x->matmul || !x->actions || !x->pointers)
    return dtm_rt_fail(found->comm, RT_DEVICE, "out of memory, or oneDNN does not start");
  for (uint64_t i = 0; i < image->buffer_count; i++)
    x->pointers[i] = found->comm->arena + image->buffer[i].offset;
  return 0;
}
