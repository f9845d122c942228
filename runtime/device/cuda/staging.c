/* Between host and GPU while a step runs: see staging.h. */
#include "device/cuda/staging.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/errors.h"

enum {
  STEP_SLOTS = 1024,
  FAULT_SLOTS = 2, /* outputs under way may be looked at while others are enqueued */
  SLOT_ALIGN = 64
};

/* The pinned memory of an INPUT or OUTPUT action. */
typedef struct Window {
  size_t offset, bytes, stride;
  int64_t slots, next;
  uint64_t *used; /* per slot: the number of the copy that last used it */
} Window;

/* An output under way. */
typedef struct Pending {
  uint32_t action;
  AbiStep step;
  const void *value;
} Pending;

struct CudaStaging {
  unsigned char *pinned;
  size_t pinned_bytes;
  Window step, fault;
  Window **windows; /* per action, or NULL */
  AbiStep uploaded;
  int has_uploaded;
  uint64_t number, seen; /* copies enqueued; those that are over */
  CUevent end;           /* behind all that was enqueued when somebody waited for that */
  CUevent event;         /* behind the last output's copy */
  int marked;            /* ... which was recorded */
  uint64_t event_number;
  size_t event_fault; /* offset of the fault word that was copied before it */
  Pending *pending;
  size_t npending, room;
};

/* --- slots --------------------------------------------------------------------------------------
 */

static int place_window(CudaDevice *d, Window *w, size_t bytes, int64_t slots) {
  CudaStaging *s = d->staging;
  w->bytes = bytes;
  w->stride = (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
  w->slots = slots;
  w->offset = s->pinned_bytes;
  w->used = calloc((size_t)slots, sizeof *w->used);
  s->pinned_bytes += w->stride * (size_t)slots;
  return w->used ? 0 : dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
}

/* Among several ranks a wait may be for a peer that will never come: failures of others are looked
 * for. Signs of life are the watchdog's to give: it knows what the GPU waits for. */
static int wait_watching(CudaDevice *d, CUevent event, CUresult *error) {
  enum { SPINS = 100, NAP_US = 100 };
  for (uint64_t tries = 0;; tries++) {
    *error = d->cu->event_query(event);
    if (*error != CUDA_ERROR_NOT_READY) return 0;
    int status = dtm_cuda_comm_watch(d);
    if (status) return status;
    if (tries < SPINS)
      sched_yield();
    else
      usleep(NAP_US);
  }
}

/* Until the event, which copy number `number` stands before. */
static int wait_for(CudaDevice *d, CUevent event, uint64_t number) {
  CudaStaging *s = d->staging;
  CUresult error = CUDA_SUCCESS;
  int status = 0;
  if (d->base.comm->world > 1)
    status = wait_watching(d, event, &error);
  else
    error = d->cu->event_sync(event);
  if (status || error) return status ? status : dtm_cuda_failed(d, error, "finish a step");
  if (number > s->seen) s->seen = number;
  return 0;
}

static int wait_for_all(CudaDevice *d) {
  CudaStaging *s = d->staging;
  CUresult error = d->cu->event_record(s->end, d->compute);
  return error ? dtm_cuda_failed(d, error, "record an event") : wait_for(d, s->end, s->number);
}

/* The next slot of a window, whose last copy is over. */
static int take_slot(CudaDevice *d, Window *w, unsigned char **slot) {
  CudaStaging *s = d->staging;
  int64_t i = w->next;
  if (w->used[i] > s->seen) {
    int status = wait_for_all(d);
    if (status) return status;
  }
  w->next = (i + 1) % w->slots;
  w->used[i] = ++s->number;
  *slot = s->pinned + w->offset + (size_t)i * w->stride;
  return 0;
}

int dtm_cuda_staging_open(CudaDevice *d) {
  CudaStaging *s = d->staging = calloc(1, sizeof *s);
  if (s) s->windows = calloc(d->base.image->action_count + 1, sizeof *s->windows);
  if (!s || !s->windows) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  int status = place_window(d, &s->step, sizeof(AbiStep), STEP_SLOTS);
  return status ? status : place_window(d, &s->fault, sizeof(CudaFault), FAULT_SLOTS);
}

int dtm_cuda_staging_prepare(CudaDevice *d, uint32_t action, int64_t slots) {
  const AbiBuffer *b = &d->base.image->buffer[dtm_cuda_action(d, action)->buffers];
  const LibTensor t = dtm_device_tensor(&d->base, b, NULL);
  Window *w = d->staging->windows[action] = calloc(1, sizeof *w);
  if (!w) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  return place_window(d, w, dtm_device_bytes(&t), slots);
}

int dtm_cuda_staging_ready(CudaDevice *d) {
  CudaStaging *s = d->staging;
  void *pinned;
  CUresult error = d->cu->host_alloc(&pinned, s->pinned_bytes, 0);
  if (error) return dtm_cuda_failed(d, error, "reserve host memory for inputs and outputs");
  s->pinned = pinned;
  error = d->cu->event_create(&s->event, CU_EVENT_DISABLE_TIMING);
  if (!error) error = d->cu->event_create(&s->end, CU_EVENT_DISABLE_TIMING);
  return error ? dtm_cuda_failed(d, error, "make an event") : 0;
}

static void free_window(Window *w) {
  if (w) free(w->used);
}

void dtm_cuda_staging_close(CudaDevice *d) {
  CudaStaging *s = d->staging;
  if (!s) return;
  for (uint64_t i = 0; s->windows && i < d->base.image->action_count; i++) {
    free_window(s->windows[i]);
    free(s->windows[i]);
  }
  free_window(&s->step);
  free_window(&s->fault);
  if (s->event) d->cu->event_destroy(s->event);
  if (s->end) d->cu->event_destroy(s->end);
  if (s->pinned) d->cu->host_free(s->pinned);
  free(s->windows);
  free(s->pending);
  free(s);
  d->staging = NULL;
}

/* --- to the GPU ---------------------------------------------------------------------------------
 */

int dtm_cuda_staging_step(CudaDevice *d) {
  CudaStaging *s = d->staging;
  unsigned char *slot;
  if (s->has_uploaded && memcmp(&s->uploaded, d->base.step, sizeof s->uploaded) == 0) return 0;
  int status = take_slot(d, &s->step, &slot);
  if (status) return status;
  memcpy(slot, d->base.step, sizeof(AbiStep));
  s->uploaded = *d->base.step;
  s->has_uploaded = 1;
  CUresult error =
      d->cu->to_device_async(d->arena + ABI_STEP_OFFSET, slot, sizeof(AbiStep), d->compute);
  return error ? dtm_cuda_failed(d, error, "copy the step's numbers") : 0;
}

int dtm_cuda_staging_input(CudaDevice *d, uint32_t action, const RtHooks *hooks) {
  const AbiAction *a = dtm_cuda_action(d, action);
  Window *w = d->staging->windows[action];
  unsigned char *slot;
  int status = take_slot(d, w, &slot);
  if (!status) status = hooks->input(hooks->context, a->code, slot);
  if (status || w->bytes == 0) return status;
  CUdeviceptr to = dtm_cuda_address(d, &d->base.image->buffer[a->buffers]);
  CUresult error = d->cu->to_device_async(to, slot, w->bytes, d->compute);
  return error ? dtm_cuda_failed(d, error, "copy an input") : 0;
}

/* --- from the GPU -------------------------------------------------------------------------------
 */

static int copy_back(CudaDevice *d, CUdeviceptr from, Window *w, unsigned char **slot) {
  int status = take_slot(d, w, slot);
  if (status || w->bytes == 0) return status;
  CUresult error = d->cu->to_host_async(*slot, from, w->bytes, d->compute);
  return error ? dtm_cuda_failed(d, error, "copy an output") : 0;
}

/* What kernels have found wrong up to here comes with the output. */
static int mark(CudaDevice *d) {
  CudaStaging *s = d->staging;
  unsigned char *slot;
  int status = copy_back(d, d->fault, &s->fault, &slot);
  if (status) return status;
  s->event_fault = (size_t)(slot - s->pinned);
  s->event_number = s->number;
  s->marked = 1;
  CUresult error = d->cu->event_record(s->event, d->compute);
  return error ? dtm_cuda_failed(d, error, "record an event") : 0;
}

/* Whether the event is recorded later: behind the next output of the same program, or, in a
 * pipeline, when outputs of all micro-batches are looked at. */
static int mark_later(const CudaDevice *d, uint32_t action) {
  const Image *image = d->base.image;
  const AbiAction *a = &image->action[action], *next = a + 1;
  const AbiProgram *p = &image->program[image->output[a->code].program];
  return p->nstages || (action + 1 < p->actions + p->nactions && next->kind == ABI_OUTPUT &&
                        next->phase == a->phase && !d->base.skip[action + 1]);
}

int dtm_cuda_staging_output(CudaDevice *d, uint32_t action, const RtHooks *hooks) {
  CudaStaging *s = d->staging;
  const AbiAction *a = dtm_cuda_action(d, action);
  Window *w = s->windows[action];
  unsigned char *slot;
  if (w->used[w->next] > s->seen && s->npending) { /* its value may not have been handed out */
    int status = dtm_cuda_staging_look(d, hooks);
    if (status) return status;
  }
  if (s->npending == s->room) {
    size_t room = s->room ? 2 * s->room : 16;
    Pending *more = realloc(s->pending, room * sizeof *more);
    if (!more) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
    s->pending = more;
    s->room = room;
  }
  int status = copy_back(d, dtm_cuda_address(d, &d->base.image->buffer[a->buffers]), w, &slot);
  if (status) return status;
  s->pending[s->npending++] = (Pending){action, *d->base.step, slot};
  s->marked = 0;
  return mark_later(d, action) ? 0 : mark(d);
}

int dtm_cuda_staging_pending(const CudaDevice *d) {
  return d->staging->npending != 0;
}

static int check_fault(CudaDevice *d, const CudaFault *f) {
  if (!f->action) return 0;
  const LibFault fault = {f->index, f->extent, f->mine, f->first};
  dtm_device_place_at(&d->base, f->action - 1, f->step);
  return dtm_device_report(&d->base, dtm_cuda_action(d, f->action - 1), &fault);
}

int dtm_cuda_staging_look(CudaDevice *d, const RtHooks *hooks) {
  CudaStaging *s = d->staging;
  int status = s->marked ? 0 : mark(d);
  if (status) return status;
  status = wait_for(d, s->event, s->event_number);
  if (status) return status;
  size_t n = s->npending;
  s->npending = 0;
  status = check_fault(d, (const CudaFault *)(const void *)(s->pinned + s->event_fault));
  for (size_t i = 0; i < n && !status; i++) {
    const Pending *p = &s->pending[i];
    dtm_device_place_at(&d->base, p->action, p->step.step);
    status = hooks->output(hooks->context, dtm_cuda_action(d, p->action)->code, &p->step, p->value);
  }
  return status;
}

int dtm_cuda_staging_sync(CudaDevice *d) {
  CudaStaging *s = d->staging;
  unsigned char *slot;
  int status = copy_back(d, d->fault, &s->fault, &slot);
  if (!status) status = wait_for_all(d);
  return status ? status : check_fault(d, (const CudaFault *)(const void *)slot);
}
