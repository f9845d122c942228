/* The stand-in for the driver: in which order streams run, what a forgotten wait does, graphs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/standin_driver.h"
#include "support/suite.h"

enum { BYTES = 64 };

/* Two streams, the first older, device memory that holds 0, pinned memory. */
typedef struct Fixture {
  CUstream older, younger;
  CUevent event;
  CUdeviceptr at, more;
  unsigned char *host;
} Fixture;

static Fixture begin(const char *async) {
  Fixture f;
  CUcontext context;
  setenv("GPUSIM_REPORT", "/dev/null", 1);
  setenv("GPUSIM_ASYNC", async, 1);
  ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuStreamCreate(&f.older, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&f.younger, CU_STREAM_NON_BLOCKING);
  cuEventCreate(&f.event, CU_EVENT_DISABLE_TIMING);
  cuMemAlloc_v2(&f.at, BYTES);
  cuMemAlloc_v2(&f.more, BYTES);
  void *host;
  cuMemHostAlloc(&host, BYTES, 0);
  f.host = host;
  cuMemsetD8Async(f.at, 0, BYTES, f.older);
  ck_assert_int_eq(cuStreamSynchronize(f.older), CUDA_SUCCESS);
  return f;
}

/* One stream writes 1, then the other reads, with or without an event between. */
static int write_read(const char *async, bool older_writes, bool event) {
  Fixture f = begin(async);
  CUstream writer = older_writes ? f.older : f.younger;
  CUstream reader = older_writes ? f.younger : f.older;
  cuMemsetD8Async(f.at, 1, BYTES, writer);
  if (event) {
    cuEventRecord(f.event, writer);
    cuStreamWaitEvent(reader, f.event, 0);
  }
  cuMemcpyDtoHAsync_v2(f.host, f.at, BYTES, reader);
  ck_assert_int_eq(cuStreamSynchronize(reader), CUDA_SUCCESS);
  return f.host[0];
}

START_TEST(a_missing_event_shows) {
  const struct {
    const char *async;
    bool older_writes, event;
    int value;
  } cases[] = {{"late", true, true, 1},   {"late", false, true, 1},   {"late", true, false, 0},
               {"late", false, false, 0}, {"early", true, true, 1},   {"early", false, true, 1},
               {"early", true, false, 0}, {"early", false, false, 1}, {"eager", true, false, 1}};
  ck_assert_int_eq(write_read(cases[_i].async, cases[_i].older_writes, cases[_i].event),
                   cases[_i].value);
}
END_TEST

/* The older reads, the younger writes behind that: only `early` turns them around. */
START_TEST(a_missing_event_before_a_write_shows) {
  bool event = _i;
  Fixture f = begin("early");
  cuMemcpyDtoHAsync_v2(f.host, f.at, BYTES, f.older);
  if (event) {
    cuEventRecord(f.event, f.older);
    cuStreamWaitEvent(f.younger, f.event, 0);
  }
  cuMemsetD8Async(f.at, 1, BYTES, f.younger);
  ck_assert_int_eq(cuCtxSynchronize(), CUDA_SUCCESS);
  ck_assert_int_eq(f.host[0], event ? 0 : 1);
}
END_TEST

START_TEST(host_memory_is_read_when_the_copy_runs) {
  Fixture f = begin("late");
  unsigned char pageable[BYTES];
  memset(f.host, 5, BYTES);
  memset(pageable, 6, BYTES);
  cuMemcpyHtoDAsync_v2(f.at, f.host, BYTES, f.older);
  cuMemcpyHtoDAsync_v2(f.more, pageable, BYTES, f.older);
  memset(f.host, 7, BYTES); /* too early */
  memset(pageable, 7, BYTES);
  ck_assert_int_eq(cuStreamSynchronize(f.older), CUDA_SUCCESS);
  ck_assert_int_eq(cuMemcpyDtoH_v2(pageable, f.at, BYTES), CUDA_SUCCESS);
  ck_assert_int_eq(pageable[0], 7);
  cuMemcpyDtoH_v2(pageable, f.more, BYTES);
  ck_assert_int_eq(pageable[0], 6);
}
END_TEST

START_TEST(results_are_spoilt_until_the_copy_runs) {
  Fixture f = begin("late");
  f.host[0] = 9;
  cuMemcpyDtoHAsync_v2(f.host, f.at, BYTES, f.older);
  ck_assert_int_eq(f.host[0], 0xff);
  cuEventRecord(f.event, f.older);
  ck_assert_int_eq(cuEventQuery(f.event), CUDA_ERROR_NOT_READY);
  ck_assert_int_eq(f.host[0], 0xff);
  ck_assert_int_eq(cuEventQuery(f.event), CUDA_SUCCESS);
  ck_assert_int_eq(f.host[0], 0);
}
END_TEST

START_TEST(the_null_stream_joins_blocking_ones) {
  Fixture f = begin("late");
  CUstream blocking;
  unsigned char out[BYTES];
  cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
  cuMemsetD8Async(f.at, 1, BYTES, blocking);
  cuMemcpyDtoH_v2(out, f.at, BYTES);
  ck_assert_int_eq(out[0], 1);
  cuMemsetD8Async(f.at, 2, BYTES, f.older); /* not blocking: nothing waits for it */
  cuMemcpyDtoH_v2(out, f.at, BYTES);
  ck_assert_int_eq(out[0], 1);
  cuMemsetD8Async(f.at, 3, BYTES, NULL);
  cuMemcpyDtoHAsync_v2(f.host, f.at, BYTES, blocking);
  cuStreamSynchronize(blocking);
  ck_assert_int_eq(f.host[0], 3);
}
END_TEST

START_TEST(elapsed_time) {
  float ms;
  CUevent from, to;
  Fixture f = begin("late");
  cuEventCreate(&from, CU_EVENT_DEFAULT);
  cuEventCreate(&to, CU_EVENT_DEFAULT);
  ck_assert_int_eq(cuEventElapsedTime(&ms, from, to), CUDA_ERROR_INVALID_HANDLE);
  cuEventRecord(from, f.older);
  cuMemsetD8Async(f.at, 1, BYTES, f.older);
  cuEventRecord(to, f.older);
  ck_assert_int_eq(cuEventElapsedTime(&ms, from, to), CUDA_ERROR_NOT_READY);
  ck_assert_int_eq(cuEventSynchronize(to), CUDA_SUCCESS);
  ck_assert_int_eq(cuEventElapsedTime(&ms, from, to), CUDA_SUCCESS);
  ck_assert(ms >= 0);
}
END_TEST

/* --- graphs ----------------------------------------------------------------------------------- */

/* host -> at, in the other stream at -> more, back in the first more -> host. */
static CUgraphExec capture(Fixture *f, CUevent back) {
  CUgraph graph;
  CUgraphExec exec;
  ck_assert_int_eq(cuStreamBeginCapture_v2(f->older, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  cuMemcpyHtoDAsync_v2(f->at, f->host, BYTES, f->older);
  cuEventRecord(f->event, f->older);
  ck_assert_int_eq(cuStreamWaitEvent(f->younger, f->event, 0), CUDA_SUCCESS);
  cuMemcpyDtoDAsync_v2(f->more, f->at, BYTES, f->younger);
  cuEventRecord(back, f->younger);
  ck_assert_int_eq(cuStreamWaitEvent(f->older, back, 0), CUDA_SUCCESS);
  cuMemcpyDtoHAsync_v2(f->host + BYTES / 2, f->more, BYTES / 2, f->older);
  ck_assert_int_eq(cuStreamEndCapture(f->older, &graph), CUDA_SUCCESS);
  ck_assert_int_eq(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ck_assert_int_eq(cuGraphDestroy(graph), CUDA_SUCCESS);
  return exec;
}

START_TEST(a_graph_runs_again) {
  CUevent back;
  static const char *const orders[] = {"late", "early", "eager"};
  Fixture f = begin(orders[_i]);
  cuEventCreate(&back, CU_EVENT_DISABLE_TIMING);
  memset(f.host, 1, BYTES);
  CUgraphExec exec = capture(&f, back);
  ck_assert_int_eq(f.host[BYTES - 1], 1); /* a capture runs nothing */
  for (unsigned char i = 1; i < 4; i++) {
    memset(f.host, i, BYTES / 2);
    ck_assert_int_eq(cuGraphLaunch(exec, f.older), CUDA_SUCCESS);
    ck_assert_int_eq(cuStreamSynchronize(f.older), CUDA_SUCCESS);
    ck_assert_int_eq(f.host[BYTES - 1], i);
  }
  ck_assert_int_eq(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ck_assert_int_eq(cuGraphLaunch(exec, f.older), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(captures_end_when_the_host_waits) {
  CUgraph graph;
  Fixture f = begin("late");
  CUdeviceptr another;
  cuStreamBeginCapture_v2(f.older, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuMemsetD8Async(f.at, 1, BYTES, f.older);
  CUresult error = CUDA_SUCCESS;
  switch (_i) {
  case 0:
    error = cuStreamSynchronize(f.older);
    break;
  case 1:
    error = cuStreamSynchronize(f.younger);
    break;
  case 2:
    error = cuMemAlloc_v2(&another, 8);
    break;
  case 3:
    error = cuMemcpyHtoD_v2(f.at, f.host, 8);
    break;
  case 4:
    error = cuCtxSynchronize();
    break;
  case 5:
    error = cuEventQuery(f.event);
    break;
  case 6:
    error = cuMemcpyHtoDAsync_v2(f.at, &f, 8, f.older);
    break;
  }
  ck_assert_int_eq(error, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ck_assert_int_eq(cuStreamEndCapture(f.older, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ck_assert_ptr_null(graph);
  ck_assert_int_eq(cuStreamSynchronize(f.older), CUDA_SUCCESS);
}
END_TEST

START_TEST(captures_that_are_not_joined) {
  CUgraph graph;
  Fixture f = begin("late");
  ck_assert_int_eq(cuStreamEndCapture(f.older, &graph), SIM_ERROR_CAPTURE_UNMATCHED);
  cuStreamBeginCapture_v2(f.older, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  cuEventRecord(f.event, f.older);
  cuStreamWaitEvent(f.younger, f.event, 0);
  cuMemsetD8Async(f.at, 1, BYTES, f.younger);
  ck_assert_int_eq(cuEventQuery(f.event), SIM_ERROR_CAPTURED_EVENT);
  ck_assert_int_eq(cuStreamEndCapture(f.older, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  cuStreamBeginCapture_v2(f.older, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  cuEventRecord(f.event, f.older);
  cuStreamWaitEvent(f.younger, f.event, 0);
  cuMemsetD8Async(f.at, 1, BYTES, f.younger);
  ck_assert_int_eq(cuStreamEndCapture(f.older, &graph), SIM_ERROR_CAPTURE_UNJOINED);
}
END_TEST

START_TEST(captures_wait_for_nothing_outside) {
  CUgraph graph;
  Fixture f = begin("late");
  cuEventRecord(f.event, f.younger);
  cuStreamBeginCapture_v2(f.older, CU_STREAM_CAPTURE_MODE_RELAXED);
  ck_assert_int_eq(cuStreamWaitEvent(f.older, f.event, 0), SIM_ERROR_CAPTURE_ISOLATION);
  ck_assert_int_eq(cuStreamEndCapture(f.older, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("standin_async");
  TCase *t = tcase_create("standin_async");
  tcase_add_loop_test(t, a_missing_event_shows, 0, 9);
  tcase_add_loop_test(t, a_missing_event_before_a_write_shows, 0, 2);
  tcase_add_test(t, host_memory_is_read_when_the_copy_runs);
  tcase_add_test(t, results_are_spoilt_until_the_copy_runs);
  tcase_add_test(t, the_null_stream_joins_blocking_ones);
  tcase_add_test(t, elapsed_time);
  tcase_add_loop_test(t, a_graph_runs_again, 0, 3);
  tcase_add_loop_test(t, captures_end_when_the_host_waits, 0, 7);
  tcase_add_test(t, captures_that_are_not_joined);
  tcase_add_test(t, captures_wait_for_nothing_outside);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
