/* Times of actions by events: see times.h. */
#include "device/cuda/times.h"

#include <stdlib.h>
#include <time.h>

#include "comm/errors.h"
#include "device/cuda/staging.h"

typedef struct Timed {
  CUevent begin, end; /* used again and again */
  uint32_t action;
  int64_t step;
} Timed;

struct CudaTimes {
  Timed *at;
  size_t n, made, room; /* timed since the last hand-out; with events; allocated */
  CUevent zero;         /* recorded while the GPU had nothing to do, at `now` of the host */
  uint64_t now;
};

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int failed(CudaDevice *d, CUresult error) {
  return dtm_cuda_failed(d, error, "take the time of an operation");
}

int dtm_cuda_times_open(CudaDevice *d) {
  d->times = calloc(1, sizeof *d->times);
  if (!d->times) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  CUresult error = d->cu->event_create(&d->times->zero, CU_EVENT_DEFAULT);
  return error ? failed(d, error) : 0;
}

void dtm_cuda_times_close(CudaDevice *d) {
  struct CudaTimes *t = d->times;
  if (!t) return;
  for (size_t i = 0; i < t->made; i++) {
    d->cu->event_destroy(t->at[i].begin);
    d->cu->event_destroy(t->at[i].end);
  }
  if (t->zero) d->cu->event_destroy(t->zero);
  free(t->at);
  free(t);
  d->times = NULL;
}

/* One more with events. */
static int add(CudaDevice *d) {
  struct CudaTimes *t = d->times;
  if (t->made == t->room) {
    size_t room = t->room ? 2 * t->room : 256;
    Timed *more = realloc(t->at, room * sizeof *more);
    if (!more) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
    t->at = more;
    t->room = room;
  }
  Timed *one = &t->at[t->made];
  CUresult error = d->cu->event_create(&one->begin, CU_EVENT_DEFAULT);
  if (error) return failed(d, error);
  error = d->cu->event_create(&one->end, CU_EVENT_DEFAULT);
  if (error) d->cu->event_destroy(one->begin);
  if (error) return failed(d, error);
  t->made++;
  return 0;
}

int dtm_cuda_times_begin(CudaDevice *d, uint32_t action) {
  struct CudaTimes *t = d->times;
  if (!t) return 0;
  int status = t->n == t->made ? add(d) : 0;
  if (status) return status;
  Timed *one = &t->at[t->n];
  one->action = action;
  one->step = d->base.step->step;
  CUresult error = CUDA_SUCCESS;
  if (!t->n) {
    t->now = now();
    error = d->cu->event_record(t->zero, d->compute);
  }
  if (!error) error = d->cu->event_record(one->begin, d->compute);
  return error ? failed(d, error) : 0;
}

int dtm_cuda_times_end(CudaDevice *d) {
  struct CudaTimes *t = d->times;
  if (!t) return 0;
  CUresult error = d->cu->event_record(t->at[t->n].end, d->compute);
  if (error) return failed(d, error);
  t->n++;
  return 0;
}

int dtm_cuda_times_give(CudaDevice *d, RtTimed *give, void *context) {
  struct CudaTimes *t = d->times;
  size_t n = t->n;
  t->n = 0;
  if (!n) return 0;
  int status = dtm_cuda_staging_sync(d);
  for (size_t i = 0; i < n && !status; i++) {
    const Timed *one = &t->at[i];
    float since = 0, took = 0; /* milliseconds */
    CUresult error = d->cu->event_elapsed(&since, t->zero, one->begin);
    if (!error) error = d->cu->event_elapsed(&took, one->begin, one->end);
    if (error) return failed(d, error);
    uint64_t begin = t->now + (uint64_t)((double)since * 1e6);
    give(context, one->action, one->step, begin, begin + (uint64_t)((double)took * 1e6));
  }
  return status;
}
