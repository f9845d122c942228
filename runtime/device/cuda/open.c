/* A GPU as a device (device.h): opening it, and which function runs an action. See cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/cuda.h"
#include "device/cuda/bundle.h"
#include "device/cuda/graph.h"
#include "device/cuda/staging.h"
#include "device/cuda/times.h"

/* --- running -------------------------------------------------------------------------------------
 */

int dtm_cuda_run(CudaDevice *d, uint32_t action, const RtHooks *hooks) {
  void *state = d->states[action];
  switch ((AbiActionKind)dtm_cuda_action(d, action)->kind) {
  case ABI_KERNEL:
    return dtm_cuda_kernel_run(d, action, state);
  case ABI_MATMUL:
    return dtm_cuda_matmul_run(d, action, state);
  case ABI_LIBRARY:
    return dtm_cuda_library_run(d, action, state);
  case ABI_START:
  case ABI_PULL:
  case ABI_PULL_ROWS:
  case ABI_ALL_REDUCE:
  case ABI_REDUCE_SCATTER:
  case ABI_SLICE:
  case ABI_FILL:
  case ABI_COPY:
    return dtm_cuda_move_run(d, action, state);
  case ABI_POST:
  case ABI_TAKE:
    return dtm_cuda_channel_run(d, action, state);
  case ABI_INPUT:
    return dtm_cuda_staging_input(d, action, hooks);
  case ABI_OUTPUT:
    return dtm_cuda_staging_output(d, action, hooks);
  case ABI_ACTION_NONE:
  case ABI_ACTION_COUNT:
    break;
  }
  return 0;
}

/* Whether the loss is good is known before parameters change: a loss that is not finite is looked
 * for with the parameters that gave it. */
static int before(CudaDevice *d, uint32_t action, const RtHooks *hooks) {
  int waits = dtm_cuda_action(d, action)->phase == ABI_OPTIMIZER && dtm_cuda_staging_pending(d);
  return waits ? dtm_cuda_staging_look(d, hooks) : 0;
}

int dtm_cuda_run_begin(CudaDevice *d, uint32_t action) {
  dtm_device_place(&d->base, action);
  return dtm_cuda_times_begin(d, action);
}

int dtm_cuda_run_end(CudaDevice *d, int status) {
  if (!status) status = dtm_cuda_times_end(d);
  return status || !d->waits ? status : dtm_cuda_staging_sync(d);
}

static int cuda_run(RtDevice *base, uint32_t action, const RtHooks *hooks) {
  CudaDevice *d = dtm_cuda_of(base);
  int status = before(d, action, hooks);
  if (!status) status = dtm_cuda_run_begin(d, action);
  return status ? status : dtm_cuda_run_end(d, dtm_cuda_run(d, action, hooks));
}

static int cuda_run_many(RtDevice *base, uint32_t first, uint32_t count, const RtHooks *hooks,
                         uint32_t *done) {
  CudaDevice *d = dtm_cuda_of(base);
  int graph = !d->times && dtm_cuda_graph_begins(d, first, count);
  uint32_t size = dtm_cuda_bundle_size(d, first);
  if (!graph && (!size || size > count)) return 0;
  int status = before(d, first, hooks);
  if (status || graph) return status ? status : dtm_cuda_graph_run(d, first, done);
  *done = size;
  return dtm_cuda_bundle_run(d, first);
}

static int cuda_set_step(RtDevice *base) {
  return dtm_cuda_staging_step(dtm_cuda_of(base));
}

static int cuda_finish(RtDevice *base, const RtHooks *hooks) {
  CudaDevice *d = dtm_cuda_of(base);
  int status = dtm_cuda_graph_finish(d); /* on all ranks, whatever outputs are */
  return status || !dtm_cuda_staging_pending(d) ? status : dtm_cuda_staging_look(d, hooks);
}

static int cuda_sync(RtDevice *base) {
  return dtm_cuda_staging_sync(dtm_cuda_of(base));
}

static int fetch(void *context, size_t offset, size_t bytes, void *address) {
  CudaDevice *d = context;
  int status = dtm_cuda_staging_sync(d);
  if (status || bytes == 0) return status;
  CUresult error = d->cu->to_host(address, d->arena + offset, bytes);
  return error ? dtm_cuda_failed(d, error, "read memory") : 0;
}

static int flush(void *context, size_t offset, size_t bytes, const void *address) {
  CudaDevice *d = context;
  int status = dtm_cuda_staging_sync(d);
  return status ? status : dtm_cuda_write(d, d->arena + offset, address, bytes);
}

static int cuda_view(RtDevice *base, uint64_t offset, size_t bytes, const void **data) {
  CudaDevice *d = dtm_cuda_of(base);
  if (bytes > d->view_bytes) {
    free(d->view);
    d->view = malloc(bytes);
    d->view_bytes = d->view ? bytes : 0;
  }
  *data = d->view;
  if (bytes > d->view_bytes) return dtm_rt_fail(base->comm, RT_DEVICE, "out of memory");
  return fetch(d, offset, bytes, d->view);
}

/* --- preparation ---------------------------------------------------------------------------------
 */

/* Copies of an input or output that may be under way: those of a batch in a pipeline, else those of
 * two batches. */
static int64_t slots_of(const CudaDevice *d, const AbiAction *a) {
  const Image *image = d->base.image;
  uint32_t program =
      a->kind == ABI_INPUT ? image->source[a->code].program : image->output[a->code].program;
  const AbiProgram *p = &image->program[program];
  return p->nstages ? 2 * p->microbatches : 2;
}

static int cuda_prepare(RtDevice *base, uint32_t action) {
  CudaDevice *d = dtm_cuda_of(base);
  const AbiAction *a = dtm_cuda_action(d, action);
  void **state = &d->states[action];
  if (dtm_device_is_move(a->kind)) return dtm_cuda_move_prepare(d, action, state);
  if (a->kind == ABI_POST || a->kind == ABI_TAKE) return dtm_cuda_channel_prepare(d, action, state);
  if (a->kind == ABI_KERNEL) return dtm_cuda_kernel_prepare(d, action, state);
  if (a->kind == ABI_MATMUL) return dtm_cuda_matmul_prepare(d, action, state);
  if (a->kind == ABI_LIBRARY) return dtm_cuda_library_prepare(d, action, state);
  return dtm_cuda_staging_prepare(d, action, slots_of(d, a));
}

static int cuda_ready(RtDevice *base) {
  CudaDevice *d = dtm_cuda_of(base);
  int status = dtm_cuda_comm_ready(d);
  if (!status) status = dtm_cuda_alloc(d, d->scratch_bytes, "scratch", &d->scratch);
  if (!status)
    status = dtm_cuda_alloc(d, d->comm_scratch_bytes, "scratch of collectives", &d->comm_scratch);
  if (!status) status = dtm_cuda_staging_ready(d);
  if (!status) status = dtm_cuda_bundle_open(d);
  return status ? status : dtm_cuda_graph_open(d);
}

static void free_state(CudaDevice *d, uint32_t action) {
  uint32_t kind = dtm_cuda_action(d, action)->kind;
  void *state = d->states[action];
  if (dtm_device_is_move(kind)) dtm_cuda_move_free(d, state);
  if (kind == ABI_POST || kind == ABI_TAKE) dtm_cuda_channel_free(d, state);
  if (kind == ABI_KERNEL) dtm_cuda_kernel_free(d, state);
  if (kind == ABI_MATMUL) dtm_cuda_matmul_free(d, state);
  if (kind == ABI_LIBRARY) dtm_cuda_library_free(d, state);
}

static void cuda_close(RtDevice *base) {
  CudaDevice *d = dtm_cuda_of(base);
  if (d->context) {
    dtm_cuda_times_close(d);
    dtm_cuda_graph_close(d); /* before communicators, which wait for that */
    dtm_cuda_bundle_close(d);
    dtm_cuda_comm_close(d); /* before states, which its watchdog reads */
    for (uint32_t i = 0; d->states && i < base->image->action_count; i++)
      if (d->states[i]) free_state(d, i);
    dtm_cuda_matmul_close(d);
    dtm_cuda_staging_close(d);
    for (uint32_t i = 0; d->modules && i < d->code.header->nmodules; i++)
      if (d->modules[i]) d->cu->module_unload(d->modules[i]);
    dtm_cuda_memory_close(d);
    if (d->compute) d->cu->stream_destroy(d->compute);
    if (d->comm) d->cu->stream_destroy(d->comm);
    d->cu->context_release(d->device);
  }
  free(d->states);
  free(d->modules);
  free(d->functions);
  base->comm->mirror = NULL;
  free(d->view);
  free(d);
}

static int cuda_clock(RtDevice *base) {
  return dtm_cuda_times_open(dtm_cuda_of(base));
}

static int cuda_times(RtDevice *base, RtTimed *give, void *context) {
  return dtm_cuda_times_give(dtm_cuda_of(base), give, context);
}

static void cuda_describe(RtDevice *base, char *text, size_t size) {
  CudaDevice *d = dtm_cuda_of(base);
  char memory[256];
  dtm_cuda_memory_text(d, memory, sizeof memory);
  snprintf(text, size, "GPU %d, %s (sm_%d): a rank takes %s", (int)d->device, d->name,
           d->capability, memory);
}

static const RtDeviceOps cuda_ops = {.name = "cuda",
                                     .prepare = cuda_prepare,
                                     .ready = cuda_ready,
                                     .set_step = cuda_set_step,
                                     .run = cuda_run,
                                     .run_many = cuda_run_many,
                                     .finish = cuda_finish,
                                     .sync = cuda_sync,
                                     .view = cuda_view,
                                     .describe = cuda_describe,
                                     .clock = cuda_clock,
                                     .times = cuda_times,
                                     .close = cuda_close};

/* --- opening -------------------------------------------------------------------------------------
 */

static int open_driver(CudaDevice *d) {
  char message[2048];
  /* Code that is loaded when it is first launched (cuBLASLt's is) may wait for the whole GPU, hence
   * for messages under way, which the schedule of a pipeline does not wait for there. */
  if (d->base.image->channel_count) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const char *error = dtm_cuda_driver_load(&d->driver, message, sizeof message);
  d->cu = &d->driver;
  return error ? dtm_rt_fail(d->base.comm, RT_DEVICE, "%s", error) : 0;
}

/* Launchers may show every process a GPU of its own, as its only one: then the ranks have different
 * lists in CUDA_VISIBLE_DEVICES. Collective over the world. */
static int shown_one_each(CudaDevice *d, int count, bool *each) {
  RtComm *host = d->base.comm;
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  uint32_t hash = 0, ones = 0, zeros = 0; /* bits that are so in the hash of any rank */
  for (; visible && *visible; visible++) hash = hash * 31 + (unsigned char)*visible;
  int status = host->ops->agree(host, hash, &ones);
  if (!status) status = host->ops->agree(host, ~hash, &zeros);
  *each = count == 1 && (ones & zeros) != 0;
  return status;
}

static int too_few(CudaDevice *d, int count) {
  const RtComm *c = d->base.comm;
  return dtm_rt_fail(d->base.comm, RT_DEVICE,
                     "this program needs a GPU for each of its %d rank%s on this machine, where "
                     "the driver shows %d\n  compile it with a smaller --mesh, start it on more "
                     "machines, or let every process see all GPUs (CUDA_VISIBLE_DEVICES)",
                     (int)c->local_world, c->local_world == 1 ? "" : "s", count);
}

/* A rank has the GPU of its number among the ranks of this machine. */
static int choose_gpu(CudaDevice *d) {
  const RtComm *c = d->base.comm;
  int count = 0, major = 0, minor = 0;
  bool each = false;
  CUresult error = d->cu->device_count(&count);
  int status = error ? dtm_cuda_failed(d, error, "count GPUs") : shown_one_each(d, count, &each);
  if (status) return status;
  if (!each && count < c->local_world) return too_few(d, count);
  error = d->cu->device_get(&d->device, each ? 0 : c->local_rank);
  if (!error) error = d->cu->device_name(d->name, sizeof d->name, d->device);
  if (!error)
    error =
        d->cu->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->device);
  if (!error)
    error =
        d->cu->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->device);
  if (!error)
    error = d->cu->device_attribute(&d->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device);
  d->capability = 10 * major + minor;
  return error ? dtm_cuda_failed(d, error, "ask what there is") : 0;
}

static int open_context(CudaDevice *d) {
  CUcontext context = NULL;
  CUresult error = d->cu->context_retain(&context, d->device);
  if (error) return dtm_cuda_failed(d, error, "start work");
  d->context = context;
  error = d->cu->context_use(context);
  if (!error) error = d->cu->stream_create(&d->compute, CU_STREAM_NON_BLOCKING);
  if (!error)
    error = d->cu->stream_create_priority(&d->comm, CU_STREAM_NON_BLOCKING, CUDA_HIGHEST_PRIORITY);
  return error ? dtm_cuda_failed(d, error, "start work") : 0;
}

static int open_code(CudaDevice *d, const RtCode *code) {
  const char *wrong = abi_cuda_open(code->cuda, code->cuda_size, &d->code);
  if (wrong) return dtm_rt_fail(d->base.comm, RT_INTERNAL, "%s", wrong);
  d->modules = calloc((size_t)d->code.header->nmodules + 1, sizeof *d->modules);
  d->functions = calloc((size_t)d->code.header->nfunctions + 1, sizeof *d->functions);
  d->states = calloc(d->base.image->action_count + 1, sizeof *d->states);
  if (d->modules && d->functions && d->states) return 0;
  return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
}

int dtm_cuda_open(const RtDevice *found, const RtCode *code, RtDevice **device) {
  CudaDevice *d = calloc(1, sizeof *d);
  *device = NULL;
  if (!d) return dtm_rt_fail(found->comm, RT_DEVICE, "out of memory");
  d->base = *found;
  d->base.ops = &cuda_ops;
  d->base.step = &d->step;
  const char *waits = getenv("DTM_CUDA_WAIT");
  d->waits = waits && strcmp(waits, "1") == 0;
  d->mirror = (RtMirror){.context = d, .fetch = fetch, .flush = flush};
  found->comm->mirror = &d->mirror;
  *device = &d->base;
  int status = open_driver(d);
  if (!status) status = choose_gpu(d);
  if (!status) status = open_code(d, code);
  if (!status) status = open_context(d);
  if (!status) status = dtm_cuda_memory_open(d);
  return status ? status : dtm_cuda_staging_open(d);
}
