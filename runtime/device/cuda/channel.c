/* Messages between the stages of a pipeline, on GPUs.
 *
 * A channel has a communicator and, at either end, a stream of its own, on which its messages go in
 * the order of their numbers. A post copies the message into its slot of the outbox, or packs it,
 * on the stream of computations, and that stream waits for nothing but the end of the message that
 * was last in this slot; the message itself leaves on the channel's stream. A take waits, on the
 * stream of computations, for its message.
 *
 * Why a schedule that the compiler has proved to run (spmd/proof.c) cannot hang here. The proof's
 * model is: a rank does its list in order, a take waits for the message, a post for a free slot,
 * nothing else waits. Here a message leaves when its taker has come to the take, which is when the
 * model frees the slot; until then the sending rank goes on, as in the model, because only the
 * channel's own stream waits. Collectives within a stage are on the stream of collectives in the
 * order of the list, the same on all its ranks. So whatever the model can do next, the streams can
 * do, provided that what is enqueued on different streams does not wait for each other for other
 * reasons. There are two such: places on the GPU (an operation of NCCL occupies some of its
 * multiprocessors while it waits; those of all channels of a rank are few enough to fit beside
 * collectives, see dtm_cuda_cuts_ctas, and computations end and give theirs back) and the
 * hardware's queues, which are shared when there are more streams than queues:
 * CUDA_DEVICE_MAX_CONNECTIONS is set to 32, their largest number, unless the user has set it
 * (driver.c). NCCL asks for one order of launches among communicators that share ranks only where
 * an operation of one may keep another from its place; see above. */
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/comm.h"

typedef struct Channel {
  CudaMovePlan plan;
  uint32_t first, number; /* of its boxes in the table; of the channel */
  uint32_t slots;
  uint64_t count; /* messages so far */
  CUstream stream;
  CUevent ready;
  CUevent *over; /* per slot: its last message is */
  ncclComm_t comm;
  CUdeviceptr scratch; /* per slot */
  size_t scratch_bytes;
  uint32_t line;
} Channel;

int dtm_cuda_channel_prepare(CudaDevice *d, uint32_t action, void **state) {
  const AbiAction *a = dtm_cuda_action(d, action);
  Channel *c = calloc(1, sizeof *c);
  *state = c;
  if (c) {
    c->number = a->code;
    c->slots = a->kind == ABI_POST ? d->base.image->channel[a->code].slots : 1;
    c->over = calloc(c->slots, sizeof *c->over);
  }
  if (!c || !c->over || dtm_cuda_channel_plan(d->base.image, action, d->base.comm->rank, &c->plan))
    return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory while preparing %s",
                       abi_text(d->base.image, a->name));
  int status = dtm_cuda_comm_add(d, &c->plan, &c->first);
  c->scratch_bytes = c->plan.scratch;
  if (!status)
    status = dtm_cuda_alloc(d, c->scratch_bytes * c->slots, "messages of a channel", &c->scratch);
  if (status) return status;
  CUresult error =
      d->cu->stream_create_priority(&c->stream, CU_STREAM_NON_BLOCKING, CUDA_HIGHEST_PRIORITY);
  if (!error) error = d->cu->event_create(&c->ready, CU_EVENT_DISABLE_TIMING);
  for (uint32_t i = 0; i < c->slots && !error; i++)
    error = d->cu->event_create(&c->over[i], CU_EVENT_DISABLE_TIMING);
  return error ? dtm_cuda_failed(d, error, "make a stream for a channel") : 0;
}

int dtm_cuda_channel_connect(CudaDevice *d, uint32_t action, CUdeviceptr room) {
  const Channel *c = d->states[action];
  return dtm_cuda_comm_connect(d, &c->plan, dtm_cuda_comm_of(d, &c->plan, c->number), room);
}

/* What comes first: copies into the slot, on `before`; then the calls; then copies out. */
static int run_steps(CudaDevice *d, Channel *c, uint32_t action, const CudaBases *bases,
                     CUstream before) {
  int status = 0, called = 0;
  for (uint32_t i = 0; i < c->plan.nsteps && !status; i++) {
    const CudaStep *s = &c->plan.steps[i];
    if (s->kind == CUDA_STEP_COPY) {
      status =
          dtm_cuda_comm_copy(d, &c->plan, s, c->first, bases, called ? c->stream : before, action);
      continue;
    }
    called = 1;
    status = dtm_cuda_comm_wait(d, c->ready, d->compute, c->stream);
    if (!status) status = dtm_cuda_watch_begin(d, c->line, c->stream, action);
    if (!status) status = dtm_cuda_comm_group(d, &c->plan, s, c->comm, bases, c->stream);
    if (!status) status = dtm_cuda_watch_end(d, c->line, c->stream);
  }
  return status;
}

static int wait_over(CudaDevice *d, const Channel *c, uint32_t slot) {
  CUresult error = d->cu->stream_wait(d->compute, c->over[slot], 0);
  return error ? dtm_cuda_failed(d, error, "wait for a message") : 0;
}

int dtm_cuda_channel_join(CudaDevice *d, uint32_t action) {
  const Channel *c = d->states[action];
  int status = 0;
  for (uint32_t slot = 0; slot < c->slots && slot < c->count && !status; slot++)
    status = wait_over(d, c, slot);
  return status;
}

int dtm_cuda_channel_run(CudaDevice *d, uint32_t action, void *state) {
  Channel *c = state;
  const AbiAction *a = dtm_cuda_action(d, action);
  const AbiBuffer *b = &d->base.image->buffer[a->buffers];
  const AbiChannel *record = &d->base.image->channel[a->code];
  uint32_t slot = (uint32_t)(c->count % c->slots);
  int posts = a->kind == ABI_POST, status = 0;
  if (c->plan.ncalls == 0) return 0; /* nobody needs this rank's part, or it needs nobody's */
  if (!c->comm) {
    c->comm = dtm_cuda_comm_of(d, &c->plan, c->number);
    status = dtm_cuda_watch_line(d, &c->line);
    if (status) return status;
  }
  CudaBases bases = {{[CUDA_AT_SRC] = dtm_cuda_address(d, &b[0]),
                      [CUDA_AT_DST] = dtm_cuda_address(d, &b[1]),
                      [CUDA_AT_SCRATCH] = c->scratch + slot * c->scratch_bytes}};
  if (posts) {
    bases.at[CUDA_AT_DST] = d->arena + record->offset + slot * record->stride;
    if (c->count >= c->slots) status = wait_over(d, c, slot);
  }
  if (!status) status = run_steps(d, c, action, &bases, d->compute);
  CUresult error = status ? CUDA_SUCCESS : d->cu->event_record(c->over[slot], c->stream);
  if (error) status = dtm_cuda_failed(d, error, "record an event");
  c->count++;
  return status || posts ? status : wait_over(d, c, slot);
}

void dtm_cuda_channel_free(CudaDevice *d, void *state) {
  Channel *c = state;
  if (c->stream) d->cu->stream_destroy(c->stream);
  if (c->ready) d->cu->event_destroy(c->ready);
  for (uint32_t i = 0; i < c->slots && c->over; i++)
    if (c->over[i]) d->cu->event_destroy(c->over[i]);
  if (c->scratch) d->cu->memory_free(c->scratch);
  dtm_cuda_move_plan_free(&c->plan);
  free(c->over);
  free(c);
}
