/* The stand-in for NCCL, by processes that are forked, one for each rank. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpusim/standin_driver.h"
#include "runtime/device/cuda/nccl.h"
#include "support/suite.h"

#define X(member, name, result, parameters) result name parameters;
CUDA_NCCL(X)
#undef X

enum { COUNT = 70001, MOST = 4 }; /* more than one chunk of the wire */

static char folder[] = "/tmp/gpusim-test-XXXXXX";

static void set_folder(void) {
  ck_assert_ptr_nonnull(mkdtemp(folder));
  setenv("TMPDIR", folder, 1);
  char report[64];
  snprintf(report, sizeof report, "%s/report", folder);
  setenv("GPUSIM_REPORT", report, 1);
  setenv("GPUSIM_DEADLINE", "20", 1);
}

static void remove_folder(void) {
  char clean[64];
  snprintf(clean, sizeof clean, "rm -rf %s", folder);
  ck_assert_int_eq(system(clean), 0);
}

/* What a rank needs; its checks end the process with a number that is a line. */
typedef struct Rank {
  int rank, nranks;
  ncclComm_t comm;
  CUstream stream;
  CUdeviceptr in, out;
} Rank;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "rank %d, line %d: %s\n", r->rank, __LINE__, #condition);                    \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

static ncclResult_t settle(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) {
    usleep(200);
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
  }
  return result;
}

static void open_rank(Rank *r, const ncclUniqueId *id) {
  CUcontext context;
  ncclConfig_t config = CUDA_NCCL_CONFIG;
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRetain(&context, r->rank) == CUDA_SUCCESS);
  CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CHECK(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuMemAlloc_v2(&r->in, MOST * COUNT * 8) == CUDA_SUCCESS);
  CHECK(cuMemAlloc_v2(&r->out, MOST * COUNT * 8) == CUDA_SUCCESS);
  ncclResult_t result = ncclCommInitRankConfig(&r->comm, r->nranks, *id, r->rank, &config);
  CHECK(result == ncclInProgress);
  CHECK(settle(r->comm, result) == ncclSuccess);
}

typedef void Body(Rank *r);

/* Runs `body` on every rank; the number of those that did not end well. */
static int ranks(int nranks, Body *body) {
  ncclUniqueId id;
  pid_t pid[MOST];
  int bad = 0, status;
  ck_assert_int_eq(ncclGetUniqueId(&id), ncclSuccess);
  for (int i = 0; i < nranks; i++) {
    pid[i] = fork();
    if (pid[i]) continue;
    Rank r = {.rank = i, .nranks = nranks};
    open_rank(&r, &id);
    body(&r);
    _exit(0);
  }
  for (int i = 0; i < nranks; i++) {
    waitpid(pid[i], &status, 0);
    bad += status != 0;
  }
  return bad;
}

static bool reported(const char *text) {
  char path[64], line[4096];
  bool found = false;
  snprintf(path, sizeof path, "%s/report", folder);
  FILE *f = fopen(path, "r");
  if (!f) return false;
  while (fgets(line, sizeof line, f)) found = found || strstr(line, text);
  fclose(f);
  return found;
}

static void *host(CUdeviceptr from, size_t bytes) {
  void *at = malloc(bytes);
  return cuMemcpyDtoH_v2(at, from, bytes) == CUDA_SUCCESS ? at : NULL;
}

static float value(int rank, size_t i) {
  return (float)(rank + 1) * 0.25f + (float)(i % 97);
}

static void fill(Rank *r, size_t n) {
  float *x = malloc(n * 4);
  for (size_t i = 0; i < n; i++) x[i] = value(r->rank, i);
  CHECK(cuMemcpyHtoD_v2(r->in, x, n * 4) == CUDA_SUCCESS);
  free(x);
}

static void finish(Rank *r) {
  CHECK(settle(r->comm, ncclCommFinalize(r->comm)) == ncclSuccess);
  CHECK(ncclCommDestroy(r->comm) == ncclSuccess);
}

static void connect_all(Rank *r) {
  void *in = (void *)(uintptr_t)r->in;
  fill(r, 4);
  CHECK(settle(r->comm, ncclAllReduce(in, in, 4, ncclFloat32, ncclMax, r->comm, r->stream)) ==
        ncclSuccess);
}

/* --- collectives -------------------------------------------------------------------------------
 */

static void collectives(Rank *r) {
  int n = r->nranks;
  fill(r, (size_t)n * COUNT);
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  CHECK(settle(r->comm, ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream)) ==
        ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  float *x = host(r->out, COUNT * 4);
  for (size_t i = 0; i < COUNT; i++) {
    float sum = value(0, i);
    for (int k = 1; k < n; k++) sum += value(k, i);
    CHECK(x[i] == sum);
  }
  CHECK(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclAvg, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  free(x);
  x = host(r->out, COUNT * 4);
  float sum = 0;
  for (int k = 0; k < n; k++) sum += value(k, 5);
  CHECK(x[5] == sum / (float)n);
  CHECK(ncclReduceScatter(in, out, COUNT, ncclFloat32, ncclMax, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  free(x);
  x = host(r->out, COUNT * 4);
  for (size_t i = 0; i < COUNT; i++) CHECK(x[i] == value(n - 1, (size_t)r->rank * COUNT + i));
  CHECK(ncclAllGather(in, out, COUNT, ncclFloat32, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  free(x);
  x = host(r->out, (size_t)n * COUNT * 4);
  for (size_t i = 0; i < (size_t)n * COUNT; i++) CHECK(x[i] == value((int)(i / COUNT), i % COUNT));
  CHECK(ncclReduce(in, out, 3, ncclFloat32, ncclMin, n - 1, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  free(x);
  x = host(r->out, 12);
  CHECK(x[2] == value(0, 2));
  free(x);
  finish(r);
}

START_TEST(collectives_are_right) {
  static const int n[] = {1, 2, 4};
  ck_assert_int_eq(ranks(n[_i], collectives), 0);
}
END_TEST

/* In place, in integers and in half precision. */
static void in_place(Rank *r) {
  uint16_t halves[4] = {0x3f80, 0x4000, 0x3f81, 0}; /* bf16 1, 2, 1 + 2^-7 */
  int64_t numbers[2] = {INT64_MAX, r->rank};
  CHECK(cuMemcpyHtoD_v2(r->in, halves, 8) == CUDA_SUCCESS);
  CHECK(cuMemcpyHtoD_v2(r->in + 16, numbers, 16) == CUDA_SUCCESS);
  char *in = (char *)(uintptr_t)r->in;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(in, in, 3, ncclBfloat16, ncclSum, r->comm, r->stream) == ncclSuccess);
  CHECK(ncclAllReduce(in + 16, in + 16, 2, ncclInt64, ncclSum, r->comm, r->stream) == ncclSuccess);
  CHECK(settle(r->comm, ncclGroupEnd()) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  uint16_t *h = host(r->in, 6);
  CHECK(h[0] == 0x4000 && h[1] == 0x4080 && h[2] == 0x4001);
  int64_t *x = host(r->in + 16, 16);
  CHECK(x[0] == -2 && x[1] == 1);
  finish(r);
}

START_TEST(in_place_and_narrow) {
  ck_assert_int_eq(ranks(2, in_place), 0);
}
END_TEST

/* What nobody wrote arrives as what nobody wrote. */
static void holes(Rank *r) {
  fill(r, 4);
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  CHECK(settle(r->comm, ncclAllGather(in, out, 5, ncclFloat32, r->comm, r->stream)) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  CHECK(host(r->out, 16) && host(r->out + 20, 16));
  CHECK(host(r->out, 20) == NULL);
}

START_TEST(holes_stay_holes) {
  ck_assert_int_eq(ranks(2, holes), 0);
}
END_TEST

/* --- messages ----------------------------------------------------------------------------------
 */

static void ring(Rank *r) {
  int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
  fill(r, COUNT);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend((void *)(uintptr_t)r->in, COUNT, ncclFloat32, next, r->comm, r->stream) ==
        ncclSuccess);
  CHECK(ncclRecv((void *)(uintptr_t)r->out, COUNT, ncclFloat32, before, r->comm, r->stream) ==
        ncclSuccess);
  CHECK(settle(r->comm, ncclGroupEnd()) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  float *x = host(r->out, COUNT * 4);
  for (size_t i = 0; i < COUNT; i++) CHECK(x[i] == value(before, i));
  finish(r);
}

START_TEST(a_ring_of_messages) {
  ck_assert_int_eq(ranks(1, ring), 0);
  ck_assert_int_eq(ranks(3, ring), 0);
}
END_TEST

/* Without a group both send first: nobody ever receives. */
static void deadlock(Rank *r) {
  fill(r, 4);
  int peer = 1 - r->rank;
  CHECK(settle(r->comm, ncclSend((void *)(uintptr_t)r->in, 4, ncclFloat32, peer, r->comm,
                                 r->stream)) == ncclSuccess);
  CHECK(ncclRecv((void *)(uintptr_t)r->out, 4, ncclFloat32, peer, r->comm, r->stream) ==
        ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_ERROR_LAUNCH_FAILED);
}

START_TEST(messages_that_wait_for_each_other) {
  setenv("GPUSIM_DEADLINE", "0.3", 1);
  ck_assert_int_eq(ranks(2, deadlock), 0);
  ck_assert(reported("deadlock"));
  ck_assert(reported("rank 1: call 1: send of 4 f32 to rank 0"));
}
END_TEST

/* --- what is wrong -----------------------------------------------------------------------------
 */

static void mismatch(Rank *r) {
  fill(r, 8);
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  CHECK(settle(r->comm, ncclAllReduce(in, out, 4 + (size_t)r->rank, ncclFloat32, ncclSum, r->comm,
                                      r->stream)) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_ERROR_LAUNCH_FAILED);
  ncclResult_t result;
  CHECK(ncclCommGetAsyncError(r->comm, &result) == ncclSuccess && result == ncclInvalidUsage);
}

START_TEST(ranks_that_call_something_else) {
  ck_assert_int_eq(ranks(2, mismatch), 0);
  ck_assert(reported("all-reduce of 5 f32 sum"));
}
END_TEST

static void misuse(Rank *r) {
  ncclComm_t none = (ncclComm_t)r;
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  fill(r, 8);
  CHECK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, none, r->stream) == ncclInvalidArgument);
  CHECK(ncclAllReduce(in, (char *)in + 4, 4, ncclFloat32, ncclSum, r->comm, r->stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(in, &none, 1, ncclFloat32, ncclSum, r->comm, r->stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(in, out, 4, (ncclDataType_t)77, ncclSum, r->comm, r->stream) ==
        ncclInvalidArgument);
  CHECK(ncclSend(in, 1, ncclFloat32, 2, r->comm, r->stream) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclRecv(&none, 1, ncclFloat32, 0, r->comm, r->stream) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInProgress);
  CHECK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
  CHECK(settle(r->comm, ncclInProgress) == ncclSuccess);
  finish(r);
  CHECK(ncclCommDestroy(r->comm) == ncclInvalidArgument);
}

START_TEST(misuse_is_refused) {
  ck_assert_int_eq(ranks(2, misuse), 0);
}
END_TEST

/* Rank 1 dies; rank 0 sees it by asking and gives up. */
static void death(Rank *r) {
  ncclResult_t result = ncclSuccess;
  fill(r, 8);
  /* both are there for sure once both have taken part in something */
  result = ncclAllReduce((void *)(uintptr_t)r->in, (void *)(uintptr_t)r->out, 4, ncclFloat32,
                         ncclSum, r->comm, r->stream);
  CHECK(settle(r->comm, result) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  if (r->rank == 1) raise(SIGKILL);
  ncclResult_t begun = ncclAllReduce((void *)(uintptr_t)r->in, (void *)(uintptr_t)r->out, 8,
                                     ncclFloat32, ncclSum, r->comm, r->stream);
  CHECK(settle(r->comm, begun) == ncclSuccess || begun == ncclInProgress);
  for (int i = 0; i < 5000 && (result == ncclSuccess || result == ncclInProgress); i++) {
    CHECK(cuStreamQuery(r->stream) != CUDA_ERROR_LAUNCH_FAILED);
    CHECK(ncclCommGetAsyncError(r->comm, &result) == ncclSuccess);
    usleep(1000);
  }
  CHECK(result == ncclRemoteError);
  CHECK(ncclCommAbort(r->comm) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  CHECK(host(r->out, 32)); /* anything, as what follows in the stream would read */
}

START_TEST(a_dead_rank_is_seen) {
  ck_assert_int_eq(ranks(2, death), 1);
}
END_TEST

static void duplicate(Rank *r) {
  (void)r;
}

START_TEST(two_ranks_of_one_device_are_refused) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  CUcontext context;
  ncclComm_t first, second;
  ncclConfig_t config = CUDA_NCCL_CONFIG;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  ck_assert_int_eq(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ck_assert_int_eq(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInvalidUsage);
  ck_assert_ptr_nonnull(strstr(ncclGetLastError(second), "Duplicate GPU"));
  ck_assert_int_eq(ranks(1, duplicate), 0);
  ck_assert_int_eq(ncclCommAbort(first), ncclSuccess);
  unlink(id.internal);
}
END_TEST

/* --- several communicators ----------------------------------------------------------------------
 */

/* Rows of a 2 x 2 mesh, in reversed order of ranks. */
static void split(Rank *r) {
  ncclComm_t row = NULL, none;
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  fill(r, 4);
  ncclResult_t result = ncclCommSplit(r->comm, r->rank / 2, -r->rank, &row, NULL);
  CHECK(result == ncclInProgress && !row); /* it is the whole that is in progress */
  CHECK(settle(r->comm, result) == ncclSuccess && row);
  CHECK(ncclCommSplit(r->comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL) == ncclSuccess && !none);
  CHECK(settle(row, ncclAllGather(in, out, 4, ncclFloat32, row, r->stream)) == ncclSuccess);
  CHECK(settle(r->comm, ncclAllReduce(in, in, 4, ncclFloat32, ncclSum, r->comm, r->stream)) ==
        ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  float *x = host(r->out, 32), *y = host(r->in, 16);
  CHECK(x[0] == value(r->rank / 2 * 2 + 1, 0) && x[4] == value(r->rank / 2 * 2, 0));
  CHECK(y[0] == value(0, 0) + value(1, 0) + value(2, 0) + value(3, 0));
  CHECK(settle(row, ncclCommFinalize(row)) == ncclSuccess);
  CHECK(ncclCommDestroy(row) == ncclSuccess);
  finish(r);
}

START_TEST(splits) {
  ck_assert_int_eq(ranks(4, split), 0);
}
END_TEST

/* A rank whose host sleeps still takes part: its device works. */
static void busy_host(Rank *r) {
  void *in = (void *)(uintptr_t)r->in;
  fill(r, 4);
  for (int i = 0; i < 3; i++)
    CHECK(settle(r->comm, ncclAllReduce(in, in, 4, ncclFloat32, ncclSum, r->comm, r->stream)) ==
          ncclSuccess);
  if (r->rank == 0) {
    CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
    _exit(0); /* before the other host looks */
  }
  sleep(1);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
}

START_TEST(devices_work_without_their_hosts) {
  ck_assert_int_eq(ranks(2, busy_host), 0);
}
END_TEST

/* An all-reduce, captured. */
static CUgraphExec capture(Rank *r) {
  void *in = (void *)(uintptr_t)r->in;
  CUgraph captured;
  CUgraphExec exec;
  CHECK(cuStreamBeginCapture_v2(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  CHECK(ncclAllReduce(in, in, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamEndCapture(r->stream, &captured) == CUDA_SUCCESS);
  CHECK(cuGraphInstantiateWithFlags(&exec, captured, 0) == CUDA_SUCCESS);
  CHECK(cuGraphUpload(exec, r->stream) == CUDA_SUCCESS);
  return exec;
}

/* A graph with a collective, launched twice. */
static void graph(Rank *r) {
  connect_all(r);
  CUgraphExec exec = capture(r);
  CHECK(cuGraphLaunch(exec, r->stream) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(exec, r->stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_SUCCESS);
  float *x = host(r->in, 16);
  CHECK(x[1] == 4 * value(1, 1));
  finish(r);
}

START_TEST(collectives_in_graphs) {
  ck_assert_int_eq(ranks(2, graph), 0);
}
END_TEST

/* Captured on one rank alone. */
static void half_captured(Rank *r) {
  void *in = (void *)(uintptr_t)r->in;
  connect_all(r);
  if (r->rank == 0)
    CHECK(cuGraphLaunch(capture(r), r->stream) == CUDA_SUCCESS);
  else
    CHECK(ncclAllReduce(in, in, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclSuccess);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_ERROR_LAUNCH_FAILED);
}

/* Graphs that do not belong together. */
static void graphs_in_another_order(Rank *r) {
  connect_all(r);
  CUgraphExec first = capture(r), second = capture(r);
  CHECK(cuGraphLaunch(r->rank ? first : second, r->stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(r->stream) == CUDA_ERROR_LAUNCH_FAILED);
}

/* A message that only its sender captured. */
static void half_captured_message(Rank *r) {
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  CUgraph captured;
  CUgraphExec exec;
  fill(r, 4);
  for (int i = 0; i < 2; i++) {
    if (i && !r->rank)
      CHECK(cuStreamBeginCapture_v2(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
            CUDA_SUCCESS);
    CHECK(settle(r->comm, r->rank ? ncclRecv(out, 4, ncclFloat32, 0, r->comm, r->stream)
                                  : ncclSend(in, 4, ncclFloat32, 1, r->comm, r->stream)) ==
          ncclSuccess);
  }
  if (!r->rank) {
    CHECK(cuStreamEndCapture(r->stream, &captured) == CUDA_SUCCESS);
    CHECK(cuGraphInstantiateWithFlags(&exec, captured, 0) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(exec, r->stream) == CUDA_SUCCESS);
  }
  CHECK(cuStreamSynchronize(r->stream) == CUDA_ERROR_LAUNCH_FAILED);
}

START_TEST(captured_on_all_ranks_or_none) {
  ck_assert_int_eq(ranks(2, half_captured), 0);
  ck_assert(reported("ranks do not call the same"));
  ck_assert(reported("all-reduce of 4 f32 sum as captured in place 1"));
  ck_assert_int_eq(ranks(2, graphs_in_another_order), 0);
  ck_assert(reported("as captured in place 2"));
  ck_assert_int_eq(ranks(2, half_captured_message), 0);
  ck_assert(reported("send of 4 f32 to rank 1 as captured in place 1 of rank 0 meets recv"));
}
END_TEST

/* Operations of two communicators, one beside the other. */
static void branches(Rank *r) {
  void *in = (void *)(uintptr_t)r->in, *out = (void *)(uintptr_t)r->out;
  CUstream other;
  CUevent forks, joins;
  CUgraph captured;
  ncclComm_t comm = NULL;
  connect_all(r);
  CHECK(settle(r->comm, ncclCommSplit(r->comm, 0, 0, &comm, NULL)) == ncclSuccess);
  CHECK(settle(comm, ncclAllReduce(in, out, 4, ncclFloat32, ncclMax, comm, r->stream)) ==
        ncclSuccess);
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&forks, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&joins, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  for (int in_order = 0; in_order < 2; in_order++) {
    CHECK(cuStreamBeginCapture_v2(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    CHECK(cuEventRecord(forks, r->stream) == CUDA_SUCCESS);
    CHECK(cuStreamWaitEvent(other, forks, 0) == CUDA_SUCCESS);
    CHECK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, other) == ncclSuccess);
    CHECK(cuEventRecord(joins, other) == CUDA_SUCCESS);
    if (in_order) CHECK(cuStreamWaitEvent(r->stream, joins, 0) == CUDA_SUCCESS);
    CHECK(ncclAllReduce(in, in, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclSuccess);
    CHECK(cuStreamWaitEvent(r->stream, joins, 0) == CUDA_SUCCESS);
    CHECK(cuStreamEndCapture(r->stream, &captured) ==
          (in_order ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  }
  CHECK(settle(comm, ncclCommFinalize(comm)) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  finish(r);
}

START_TEST(no_waiting_in_branches) {
  ck_assert_int_eq(ranks(2, branches), 0);
  ck_assert(reported("in branches of a graph that do not wait for each other"));
}
END_TEST

/* Nothing is left in the folder but the report. */
static void nothing_is_left(void) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; (e = readdir(d));)
    n += e->d_name[0] != '.' && strcmp(e->d_name, "report") != 0;
  closedir(d);
  ck_assert_int_eq(n, 0);
}

int main(void) {
  Suite *suite = suite_create("standin_nccl");
  TCase *t = tcase_create("standin_nccl");
  tcase_set_timeout(t, 60);
  tcase_add_unchecked_fixture(t, set_folder, remove_folder);
  tcase_add_checked_fixture(t, NULL, nothing_is_left);
  tcase_add_loop_test(t, collectives_are_right, 0, 3);
  tcase_add_test(t, in_place_and_narrow);
  tcase_add_test(t, holes_stay_holes);
  tcase_add_test(t, a_ring_of_messages);
  tcase_add_test(t, messages_that_wait_for_each_other);
  tcase_add_test(t, ranks_that_call_something_else);
  tcase_add_test(t, misuse_is_refused);
  tcase_add_test(t, a_dead_rank_is_seen);
  tcase_add_test(t, two_ranks_of_one_device_are_refused);
  tcase_add_test(t, splits);
  tcase_add_test(t, devices_work_without_their_hosts);
  tcase_add_test(t, collectives_in_graphs);
  tcase_add_test(t, captured_on_all_ranks_or_none);
  tcase_add_test(t, no_waiting_in_branches);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
