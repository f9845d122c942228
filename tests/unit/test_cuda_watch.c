/* The watchdog on a driver whose stream goes as far as the test lets it: whatever operation never
 * ends, among however many that were enqueued, is reported at the deadline, and none that ends. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/comm.h"
#include "support/suite.h"

enum { MANY = 200 };

/* Check runs a test in a process of its own. */
static struct {
  pthread_mutex_t lock;
  uint64_t recorded, reached; /* places of the stream; those that it has come to */
  int failed;
  char message[2048];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- a driver of one stream ----------------------------------------------------------------------
 */

static CUresult event_create(CUevent *event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof(uint64_t));
  return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_destroy(CUevent event) {
  free(event);
  return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream) {
  (void)stream;
  pthread_mutex_lock(&seen.lock);
  *(uint64_t *)(void *)event = ++seen.recorded;
  pthread_mutex_unlock(&seen.lock);
  return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
  pthread_mutex_lock(&seen.lock);
  bool over = *(uint64_t *)(void *)event <= seen.reached;
  pthread_mutex_unlock(&seen.lock);
  return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult memory_alloc(CUdeviceptr *address, size_t bytes) {
  *address = (CUdeviceptr)(uintptr_t)malloc(bytes);
  return CUDA_SUCCESS;
}

static CUresult memory_free(CUdeviceptr address) {
  free((void *)(uintptr_t)address);
  return CUDA_SUCCESS;
}

static CUresult host_alloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  *address = calloc(1, bytes);
  return CUDA_SUCCESS;
}

static CUresult host_free(void *address) {
  free(address);
  return CUDA_SUCCESS;
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  (void)stream;
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

static CUresult stream_sync(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}

static CUresult context_use(CUcontext context) {
  (void)context;
  return CUDA_SUCCESS;
}

/* --- a job ---------------------------------------------------------------------------------------
 */

static int look(RtComm *c, bool moved, double *silent) {
  (void)c, (void)moved;
  *silent = 1e9;
  pthread_mutex_lock(&seen.lock);
  int failed = seen.failed;
  pthread_mutex_unlock(&seen.lock);
  return failed;
}

static void latest(RtComm *c, char *text, size_t size) {
  (void)c;
  if (size) text[0] = 0;
}

static int report(RtComm *c, int code, const char *message) {
  (void)c;
  pthread_mutex_lock(&seen.lock);
  seen.failed = code;
  snprintf(seen.message, sizeof seen.message, "%s", message);
  pthread_mutex_unlock(&seen.lock);
  return code;
}

static const char strings[] = "\0all_reduce\0here.dtm:1:2";

typedef struct Job {
  AbiAction action[1];
  Image image;
  RtCommOps ops;
  RtComm comm;
  CudaComm collectives;
  CudaDevice d;
} Job;

static void open_job(Job *j) {
  *j = (Job){.action = {{.name = 1, .source = 12}},
             .image = {.string = strings, .action_count = 1},
             .ops = {.look = look, .latest = latest, .fail = report},
             .comm = {.world = 2, .deadline = 0.2},
             .d = {.driver = {.event_create = event_create,
                              .event_destroy = event_destroy,
                              .event_record = event_record,
                              .event_query = event_query,
                              .memory_alloc = memory_alloc,
                              .memory_free = memory_free,
                              .host_alloc = host_alloc,
                              .host_free = host_free,
                              .to_device_async = to_device,
                              .stream_sync = stream_sync,
                              .context_use = context_use}}};
  pthread_mutex_init(&j->collectives.lock, NULL);
  j->image.action = j->action;
  j->comm.ops = &j->ops;
  j->d.cu = &j->d.driver;
  j->d.base = (RtDevice){.image = &j->image, .comm = &j->comm, .step = &j->d.step};
  j->d.collectives = &j->collectives;
  ck_assert_int_eq(dtm_cuda_watch_open(&j->d), 0);
}

static void enqueue(Job *j, int n) {
  for (int i = 0; i < n; i++) {
    ck_assert_int_eq(dtm_cuda_watch_begin(&j->d, CUDA_LINE_COMM, NULL, 0), 0);
    ck_assert_int_eq(dtm_cuda_watch_end(&j->d, CUDA_LINE_COMM, NULL), 0);
  }
}

static void nap(long milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&t, NULL);
}

static void reach(uint64_t place) {
  pthread_mutex_lock(&seen.lock);
  seen.reached = place;
  pthread_mutex_unlock(&seen.lock);
}

/* Whichever does not end: the first, one in the middle, the last of more than the watchdog lists.
 */
START_TEST(the_one_that_hangs_is_told) {
  static const int hangs[] = {0, 70, MANY - 1};
  Job j;
  open_job(&j);
  enqueue(&j, MANY);
  reach(2 * (uint64_t)hangs[_i] + 1); /* it began */
  for (int i = 0; i < 1000 && !look(NULL, false, &(double){0}); i++) nap(20);
  ck_assert_int_eq(look(NULL, false, &(double){0}), 4);
  ck_assert_msg(strstr(seen.message, "all_reduce (here.dtm:1:2)") != NULL, "%s", seen.message);
  dtm_cuda_watch_close(&j.d);
}
END_TEST

/* All of them end, some long after the host went on. */
START_TEST(what_ends_is_not_told) {
  Job j;
  open_job(&j);
  enqueue(&j, MANY);
  reach(2 * MANY);
  nap(600);
  enqueue(&j, 1);
  reach(2 * MANY + 2);
  nap(600);
  ck_assert_int_eq(look(NULL, false, &(double){0}), 0);
  dtm_cuda_watch_close(&j.d);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_watch");
  TCase *cases = tcase_create("watch");
  tcase_add_loop_test(cases, the_one_that_hangs_is_told, 0, 3);
  tcase_add_test(cases, what_ends_is_not_told);
  suite_add_tcase(suite, cases);
  return suite_run(suite);
}
