/* Moves and collectives on a GPU: carries out what move_plan.h plans.
 *
 * What stays within the rank runs on the stream of computations. What waits for peers runs on the
 * stream of collectives: it begins behind what was computed so far, and what is computed later
 * waits for its end. With START the two halves of that lie apart: the first enqueues everything,
 * the action that it begins is the wait alone, so gathers and reduce-scatters run beside
 * computations. Scratch memory is one piece for all, since they run one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/comm.h"

#define SAME(name) _Static_assert((int)FOLD_##name == (int)ABI_##name, #name)
SAME(SUM);
SAME(AVG);
SAME(PRODUCT);
SAME(MAX);
SAME(MIN);
SAME(AND);
SAME(OR);
SAME(XOR);
#undef SAME

typedef struct Move {
  CudaMovePlan plan;
  uint32_t first;      /* of its boxes in the table */
  CUevent ready, done; /* where its stream and that of computations wait for each other */
  ncclComm_t comm;
  CUfunction fold;
} Move;

static Move *new_move(CudaDevice *d, uint32_t action, int *status) {
  Move *m = calloc(1, sizeof *m);
  *status = 0;
  if (m && dtm_cuda_move_plan(d->base.image, action, d->base.comm->rank, &m->plan) == 0) return m;
  *status = dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory while preparing %s",
                        abi_text(d->base.image, dtm_cuda_action(d, action)->name));
  return m;
}

static int find_fold(CudaDevice *d, Move *m) {
  for (uint32_t i = 0; i < m->plan.nsteps; i++) {
    if (m->plan.steps[i].kind != CUDA_STEP_FOLD || m->fold) continue;
    char name[96];
    const AbiCudaInstance f = abi_cuda_fold_instance(m->plan.steps[i].dtype);
    snprintf(name, sizeof name, "fold%s", f.suffix);
    int status = dtm_cuda_function(d, name, &m->fold);
    if (status) return status;
  }
  return 0;
}

/* The end of what was begun ahead has nothing of its own. */
int dtm_cuda_move_prepare(CudaDevice *d, uint32_t action, void **state) {
  int status;
  if (dtm_cuda_action(d, action)->started) return 0;
  Move *m = new_move(d, action, &status);
  *state = m;
  if (!status) status = find_fold(d, m);
  if (!status) status = dtm_cuda_comm_add(d, &m->plan, &m->first);
  if (status) return status;
  if (m->plan.comm == CUDA_COMM_NONE) return 0;
  if (m->plan.scratch > d->comm_scratch_bytes) d->comm_scratch_bytes = m->plan.scratch;
  CUresult error = d->cu->event_create(&m->ready, CU_EVENT_DISABLE_TIMING);
  if (!error) error = d->cu->event_create(&m->done, CU_EVENT_DISABLE_TIMING);
  return error ? dtm_cuda_failed(d, error, "make an event") : 0;
}

/* --- steps --------------------------------------------------------------------------------------
 */

/* Enough blocks of threads for `items`, and not more than keep the GPU busy. */
static unsigned grid_for(const CudaDevice *d, int64_t items) {
  enum { PER_SM = 8 };
  int64_t blocks = dtm_cuda_ceil_div(items, MOVES_THREADS), most = (int64_t)d->sms * PER_SM;
  return (unsigned)(blocks < most ? blocks : most);
}

static int fold(CudaDevice *d, const Move *m, const CudaStep *s, const CudaBases *bases,
                CUstream stream, uint32_t action) {
  CUdeviceptr to = bases->at[s->to] + (CUdeviceptr)s->dst,
              from = bases->at[s->from] + (CUdeviceptr)s->src;
  int64_t parts = s->parts, stride = s->stride, count = s->count;
  int32_t op = (int32_t)s->op;
  void *params[] = {&to, &from, &parts, &stride, &count, &op};
  return dtm_cuda_launch(d, stream, m->fold, grid_for(d, count), MOVES_THREADS, 0, params, action);
}

static int fill(CudaDevice *d, const CudaStep *s, const CudaBases *bases, CUstream stream,
                uint32_t action) {
  CUdeviceptr to = bases->at[s->to] + (CUdeviceptr)s->dst;
  int64_t bytes = s->count;
  uint64_t pattern = s->pattern;
  void *params[] = {&to, &bytes, &pattern};
  return dtm_cuda_launch(d, stream, d->collectives->fill, grid_for(d, dtm_cuda_ceil_div(bytes, 8)),
                         MOVES_THREADS, 0, params, action);
}

static int clear_rows(CudaDevice *d, const CudaStep *s, const CudaBases *bases, CUstream stream,
                      uint32_t action) {
  const AbiBuffer *used = &d->base.image->buffer[dtm_cuda_action(d, action)->buffers + 2];
  CUdeviceptr to = bases->at[s->to], from = dtm_cuda_address(d, used);
  int64_t bytes = s->dtype == ABI_U8 ? 0 : (int64_t)abi_dtype_bytes(s->dtype);
  int64_t groups = s->groups, rows = s->rows, row = s->row;
  void *params[] = {&to, &from, &bytes, &groups, &rows, &row, &d->fault, &action};
  return dtm_cuda_launch(d, stream, d->collectives->rows,
                         grid_for(d, groups * rows * MOVES_THREADS), MOVES_THREADS, 0, params,
                         action);
}

static int run_steps(CudaDevice *d, const Move *m, CUstream stream, uint32_t action) {
  const AbiBuffer *b = &d->base.image->buffer[dtm_cuda_action(d, action)->buffers];
  const CudaBases bases = {{[CUDA_AT_SRC] = dtm_cuda_address(d, &b[0]),
                            [CUDA_AT_DST] = dtm_cuda_address(d, &b[1]),
                            [CUDA_AT_SCRATCH] = d->comm_scratch}};
  int status = 0;
  for (uint32_t i = 0; i < m->plan.nsteps && !status; i++) {
    const CudaStep *s = &m->plan.steps[i];
    switch (s->kind) {
    case CUDA_STEP_COPY:
      status = dtm_cuda_comm_copy(d, &m->plan, s, m->first, &bases, stream, action);
      break;
    case CUDA_STEP_CALLS:
      status = dtm_cuda_comm_group(d, &m->plan, s, m->comm, &bases, stream);
      break;
    case CUDA_STEP_FOLD:
      status = fold(d, m, s, &bases, stream, action);
      break;
    case CUDA_STEP_FILL:
      status = fill(d, s, &bases, stream, action);
      break;
    case CUDA_STEP_ROWS:
      status = clear_rows(d, s, &bases, stream, action);
      break;
    }
  }
  return status;
}

/* --- running -------------------------------------------------------------------------------------
 */

/* Everything, up to the event of its end. */
static int begin(CudaDevice *d, Move *m, uint32_t action) {
  if (m->plan.comm == CUDA_COMM_NONE) return run_steps(d, m, d->compute, action);
  if (!m->comm) m->comm = dtm_cuda_comm_of(d, &m->plan, 0);
  int status = dtm_cuda_comm_wait(d, m->ready, d->compute, d->comm);
  if (!status) status = dtm_cuda_watch_begin(d, CUDA_LINE_COMM, d->comm, action);
  if (!status) status = run_steps(d, m, d->comm, action);
  if (!status) status = dtm_cuda_watch_end(d, CUDA_LINE_COMM, d->comm);
  if (!status && d->capturing == CUDA_CAPTURES_CHAIN) status = dtm_cuda_watch_captured(d, action);
  CUresult error = status ? CUDA_SUCCESS : d->cu->event_record(m->done, d->comm);
  if (error) status = dtm_cuda_failed(d, error, "record an event");
  if (!status && d->capturing == CUDA_CAPTURES) status = dtm_cuda_watch_captured(d, action);
  return status;
}

static int end(CudaDevice *d, const Move *m) {
  if (m->plan.comm == CUDA_COMM_NONE) return 0;
  CUresult error = d->cu->stream_wait(d->compute, m->done, 0);
  return error ? dtm_cuda_failed(d, error, "wait for a collective") : 0;
}

int dtm_cuda_move_run(CudaDevice *d, uint32_t action, void *state) {
  const AbiAction *a = dtm_cuda_action(d, action);
  if (a->started) return end(d, d->states[a->started - 1]);
  int status = begin(d, state, action);
  return status || a->kind == ABI_START ? status : end(d, state);
}

void dtm_cuda_move_free(CudaDevice *d, void *state) {
  Move *m = state;
  if (m->ready) d->cu->event_destroy(m->ready);
  if (m->done) d->cu->event_destroy(m->done);
  dtm_cuda_move_plan_free(&m->plan);
  free(m);
}

int dtm_cuda_move_connect(CudaDevice *d, uint32_t action, CUdeviceptr room) {
  const Move *m = d->states[action];
  if (!m || m->plan.comm == CUDA_COMM_NONE) return 0;
  return dtm_cuda_comm_connect(d, &m->plan, dtm_cuda_comm_of(d, &m->plan, 0), room);
}

int dtm_cuda_move_meets(const CudaDevice *d, uint32_t action) {
  const Move *m = d->states[action];
  return dtm_device_is_move(dtm_cuda_action(d, action)->kind) && m &&
         m->plan.comm != CUDA_COMM_NONE;
}
