/* What a process has of simulated devices: settings, lock, trace, reports, handles. See sim.h. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpusim/sim.h"
#include "gpusim/sim_memory.h"

double sim_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static SimProcess process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A setting that is none: the driver will not start. */
static void misuse(const char *name, const char *wanted) {
  fprintf(stderr, "gpusim: %s is %s, not %s\n", name, wanted, getenv(name));
  process.misused = true;
}

static double number(const char *name, double otherwise) {
  const double most = 1e15; /* fits whatever it becomes */
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  if (!*end && !errno && value >= 0 && value <= most) return value;
  misuse(name, "a number");
  return otherwise;
}

/* The number of a word of an environment variable among `words`, up to NULL; 0 where it is not set.
 */
static int choice(const char *name, const char *const *words, const char *wanted) {
  const char *text = getenv(name);
  if (!text || !*text) return 0;
  for (int i = 0; words[i]; i++)
    if (strcmp(text, words[i]) == 0) return i;
  misuse(name, wanted);
  return 0;
}

static SimAsync order(void) {
  static const char *const words[] = {
      [SIM_LATE] = "late", [SIM_EARLY] = "early", [SIM_EAGER] = "eager", NULL};
  return (SimAsync)choice("GPUSIM_ASYNC", words, "late, early or eager");
}

/* Only that it is one: each search of cuBLASLt reads it anew, so that a test may change it. */
static void check_blas(void) {
  static const char *const words[] = {"plain", "none", NULL};
  choice("GPUSIM_BLAS", words, "plain or none");
}

static int file(const char *name, int otherwise) {
  const char *path = getenv(name);
  if (!path || !*path) return otherwise;
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  misuse(name, "a file that can be written");
  return otherwise;
}

static void set_up(void) {
  SimProcess *p = &process;
  /* Every launch takes some memory and gives it back: not to the system, which would clear it. */
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 28);
  double devices = number("GPUSIM_DEVICES", 8);
  p->ndevices = devices < SIM_DEVICES ? (int)devices : SIM_DEVICES;
  p->memory = (size_t)number("GPUSIM_MEMORY", 2147483648.0);
  double capability = number("GPUSIM_CAPABILITY", 99.0);
  bool chip = capability >= 1 && capability < 30; /* 80 was meant as 8.0 */
  if (!chip && capability != 99) {
    misuse("GPUSIM_CAPABILITY", "a version such as 9.0");
    capability = 99;
  }
  p->capability = (int)(capability * 10 + 0.5);
  p->deadline = number("GPUSIM_DEADLINE", 60);
  p->all_races = number("GPUSIM_RACES", 0) > 0;
  p->async = order();
  check_blas();
  p->trace = file("GPUSIM_TRACE", -1);
  p->report = file("GPUSIM_REPORT", 2);
  for (int i = 0; i < SIM_DEVICES; i++) p->device[i].ordinal = i;
}

SimProcess *sim_process(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, set_up);
  return &process;
}

/* --- calls ---------------------------------------------------------------------------------- */

static _Thread_local SimDevice *current;

SimDevice *sim_current(void) {
  return current;
}

void sim_set_current(SimDevice *device) {
  current = device;
}

/* One write, so that lines of several processes do not mix. */
static void line(int fd, const char *text, int n, size_t room) {
  if (n < 0) return;
  if ((size_t)n >= room) n = (int)room - 1;
  while (write(fd, text, (size_t)n) < 0 && errno == EINTR) continue;
}

static void trace(const char *call, const char *format, va_list ap) {
  char text[512];
  if (process.trace < 0) return;
  int n = snprintf(text, sizeof text, "%d %s", (int)getpid(), call);
  if (format) {
    text[n++] = ' ';
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
    if (n > (int)sizeof text - 2) n = (int)sizeof text - 2;
  }
  text[n++] = '\n';
  line(process.trace, text, n, sizeof text);
}

void sim_trace(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  trace("-", format, ap);
  va_end(ap);
}

void sim_enter(const char *call, const char *format, ...) {
  pthread_mutex_lock(&sim_process()->lock);
  process.calls++;
  va_list ap;
  va_start(ap, format);
  trace(call, format, ap);
  va_end(ap);
}

void sim_leave(void) {
  sim_memory_hide();
  pthread_mutex_unlock(&process.lock);
}

void sim_leave_shown(void) {
  pthread_mutex_unlock(&process.lock);
}

static void report(const char *format, va_list ap) {
  char text[2048];
  int n = snprintf(text, sizeof text, "gpusim: ");
  n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
  if (n > (int)sizeof text - 2) n = (int)sizeof text - 2;
  text[n++] = '\n';
  line(sim_process()->report, text, n, sizeof text);
}

void sim_report(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  report(format, ap);
  va_end(ap);
}

SimPoll sim_fail(SimDevice *device, CUresult error, const char *format, ...) {
  if (device->sticky) return SIM_FAILED;
  device->sticky = error;
  va_list ap;
  va_start(ap, format);
  report(format, ap);
  va_end(ap);
  return SIM_FAILED;
}

static CUresult error_of(PtxFaultKind kind) {
  switch (kind) {
  case PTX_FAULT_OUTSIDE:
  case PTX_FAULT_READ_ONLY:
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  case PTX_FAULT_MISALIGNED:
    return CUDA_ERROR_MISALIGNED_ADDRESS;
  case PTX_FAULT_LAUNCH:
    return CUDA_ERROR_INVALID_VALUE;
  case PTX_FAULT_NONE:
  case PTX_FAULT_UNWRITTEN:
  case PTX_FAULT_BARRIER:
  case PTX_FAULT_RACE:
  case PTX_FAULT_STEPS:
  case PTX_FAULT_TRAP:
    return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_UNKNOWN;
}

static int put_line(char *out, size_t size, const char *name, uint32_t at, char *text) {
  text[strcspn(text, "\n")] = 0;
  int n = snprintf(out, size, "\n  %s:%u: %s", name, at, text);
  return n < (int)size ? n : (int)size - 1;
}

/* The line of a source, where the file is found as named or in the folder GPUSIM_SOURCES; before it
 * the last one that names a place in a program, where it names none itself. The length. */
static int source_line(char *out, size_t size, const char *name, uint32_t at) {
  char path[1024], named[256] = "";
  uint32_t named_at = 0;
  int n = 0;
  *out = 0;
  FILE *f = *name ? fopen(name, "r") : NULL;
  const char *folder = getenv("GPUSIM_SOURCES"), *base = strrchr(name, '/');
  if (!f && *name && folder) {
    snprintf(path, sizeof path, "%s/%s", folder, base ? base + 1 : name);
    f = fopen(path, "r");
  }
  if (!f) return 0;
  char *text = NULL;
  size_t room = 0;
  for (uint32_t i = 1; i <= at && getline(&text, &room, f) > 0; i++) {
    bool names = strstr(text, " // ") && strstr(text, ".dtm:");
    if (names) snprintf(named, sizeof named, "%s", text);
    if (names) named_at = i;
    if (i < at) continue;
    if (named_at && named_at < at) n = put_line(out, size, name, named_at, named);
    n += put_line(out + n, size - (size_t)n, name, at, text);
  }
  free(text);
  fclose(f);
  return n;
}

SimPoll sim_fault(SimDevice *device, const PtxFault *fault, const char *doing) {
  char text[1024];
  int n = source_line(text, sizeof text, fault->file, fault->line);
  if (fault->outer_line)
    source_line(text + n, sizeof text - (size_t)n, fault->outer_file, fault->outer_line);
  return sim_fail(device, error_of(fault->kind), "%s: %s%s", doing, fault->text, text);
}

/* --- handles: a hash table with linear probing ----------------------------------------------- */

static size_t slot(const void *handle) {
  uint64_t h = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
  return (size_t)(h >> 20) & (process.room - 1);
}

static size_t find(const void *handle) {
  size_t i = slot(handle);
  while (process.handles[i] && process.handles[i] != handle) i = (i + 1) & (process.room - 1);
  return i;
}

static void grow(void) {
  void **old = process.handles;
  uint8_t *kinds = process.kinds;
  size_t n = process.room;
  process.room = n ? 2 * n : 256;
  process.handles = calloc(process.room, sizeof *process.handles);
  process.kinds = calloc(process.room, 1);
  if (!process.handles || !process.kinds) abort();
  for (size_t i = 0; i < n; i++)
    if (old[i]) {
      size_t at = find(old[i]);
      process.handles[at] = old[i];
      process.kinds[at] = kinds[i];
    }
  free(old);
  free(kinds);
}

void sim_handle_add(void *handle, SimHandle kind) {
  if (2 * (process.nhandles + 1) > process.room) grow();
  size_t at = find(handle);
  if (!process.handles[at]) process.nhandles++;
  process.handles[at] = handle;
  process.kinds[at] = (uint8_t)kind;
}

bool sim_handle_is(const void *handle, SimHandle kind) {
  if (!handle || !process.room) return false;
  return process.kinds[find(handle)] == (uint8_t)kind;
}

void sim_handle_remove(void *handle) {
  process.kinds[find(handle)] = SIM_NO_HANDLE; /* the slot stays: others were put behind it */
}
