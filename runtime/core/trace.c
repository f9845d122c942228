/* A trace in Chrome's format: see trace.h. Events lie in a ring, so memory stays bounded; ranks
 * append to one file in turn, so no pieces are left behind. The file has another name until it is
 * complete: a full disk leaves the trace that was there. */
#include "core/trace.h"

#include "comm/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRACE_EVENTS = 1 << 20 };
#define TRACE_HEAD "{\"displayTimeUnit\":"

typedef struct TraceEvent {
  const char *name, *category, *source;
  uint32_t action;
  int64_t step;
  uint64_t begin, end;
} TraceEvent;

struct RtTrace {
  const char *path;
  char *partial; /* what is written; `path` itself where that is no regular file */
  int32_t rank;
  uint64_t count; /* events so far; the last TRACE_EVENTS of them are kept */
  TraceEvent *events;
};

uint64_t dtm_rt_trace_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int cannot_write(const char *path, RtComm *comm) {
  return dtm_rt_fail(comm, RT_BAD_DATA, "cannot write the trace %s: %s", path, strerror(errno));
}

/* A trace is not written over the program, its data or a checkpoint: what is there, if anything,
 * must begin like a trace. */
static bool replaceable(const char *path) {
  struct stat s;
  char head[sizeof TRACE_HEAD - 1];
  if (stat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size == 0) return true;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true; /* opening it for writing says why */
  ssize_t n = read(fd, head, sizeof head);
  close(fd);
  return n == (ssize_t)sizeof head && memcmp(head, TRACE_HEAD, sizeof head) == 0;
}

/* The file that the ranks of a machine write, or NULL. */
static char *partial_name(const char *path) {
  struct stat s;
  bool other = stat(path, &s) == 0 && !S_ISREG(s.st_mode); /* a pipe, /dev/stdout */
  size_t n = strlen(path);
  char *name = malloc(n + sizeof ".partial");
  if (name) {
    memcpy(name, path, n + 1);
    strcpy(name + n, other ? "" : ".partial");
  }
  return name;
}

static bool is_partial(const RtTrace *t) {
  return strcmp(t->path, t->partial) != 0;
}

/* Tried before the run rather than after it; leaves nothing. */
static bool can_write(const RtTrace *t) {
  if (access(t->path, F_OK) == 0 && access(t->path, W_OK) != 0) {
    return false;
  }
  int fd = open(t->partial, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  return fd >= 0 && close(fd) == 0 && (!is_partial(t) || unlink(t->partial) == 0);
}

static void trace_free(RtTrace *t) {
  free(t->events);
  free(t->partial);
  free(t);
}

int dtm_rt_trace_open(const char *path, RtComm *comm, RtTrace **trace) {
  *trace = NULL;
  if (!path) {
    return 0;
  }
  RtTrace *t = calloc(1, sizeof *t);
  TraceEvent *events = malloc(TRACE_EVENTS * sizeof *events); /* touched as it fills */
  char *partial = partial_name(path);
  if (!t || !events || !partial) {
    free(t);
    free(events);
    free(partial);
    return dtm_rt_fail(comm, RT_DEVICE, "out of memory for a trace");
  }
  *t = (RtTrace){.path = path, .partial = partial, .rank = comm->rank, .events = events};
  const char *taken = !replaceable(path) ? path : !replaceable(partial) ? partial : NULL;
  int error = 0;
  if (comm->rank == 0 && taken) {
    error = dtm_rt_fail(comm, RT_BAD_DATA,
                        "cannot write the trace %s: a file that is no trace is there; give another "
                        "name, or remove it first",
                        taken);
  } else if (comm->rank == 0 && !can_write(t)) {
    error = cannot_write(path, comm);
  }
  if (error) {
    trace_free(t);
    return error;
  }
  *trace = t;
  return 0;
}

void dtm_rt_trace_event(RtTrace *t, const char *name, const char *category, const char *source,
                        uint32_t action, int64_t step, uint64_t begin, uint64_t end) {
  if (t) {
    t->events[t->count++ % TRACE_EVENTS] =
        (TraceEvent){name, category, source, action, step, begin, end};
  }
}

static void put_string(FILE *f, const char *s) {
  fputc('"', f);
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') {
      fputc('\\', f);
    }
    fputc((unsigned char)*s < 0x20 ? ' ' : *s, f);
  }
  fputc('"', f);
}

static void put_event(FILE *f, const TraceEvent *e, int32_t rank) {
  fputs("{\"name\":", f);
  put_string(f, e->name);
  fputs(",\"cat\":", f);
  put_string(f, e->category);
  fprintf(f,
          ",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%lld,"
          "\"action\":%u",
          (int)rank, (double)e->begin / 1e3, (double)(e->end - e->begin) / 1e3, (long long)e->step,
          (unsigned)e->action);
  fputs(",\"source\":", f);
  put_string(f, e->source ? e->source : "");
  fputs("}},\n", f);
}

/* Rank r's part; the first opens the array, the last closes it. False with errno set. */
static bool write_part(const RtTrace *t, int32_t world) {
  int fd =
      open(t->partial, O_WRONLY | O_CREAT | O_CLOEXEC | (t->rank == 0 ? O_TRUNC : O_APPEND), 0666);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
  if (!f) {
    return false;
  }
  if (t->rank == 0) {
    fputs(TRACE_HEAD "\"ms\",\"traceEvents\":[\n", f);
  }
  uint64_t first = t->count > TRACE_EVENTS ? t->count - TRACE_EVENTS : 0;
  for (uint64_t i = first; i < t->count; i++) {
    put_event(f, &t->events[i % TRACE_EVENTS], t->rank);
  }
  fprintf(f,
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}%s\n",
          (int)t->rank, (int)t->rank, t->rank == world - 1 ? "\n]}" : ",");
  bool good = !ferror(f);
  return (fclose(f) == 0) & good;
}

int dtm_rt_trace_close(RtTrace *t, RtComm *comm) {
  if (!t) {
    return 0;
  }
  int error = 0;
  for (int32_t r = 0; r < comm->world && !error; r++) {
    if (r == comm->rank && !write_part(t, comm->world)) {
      error = cannot_write(t->path, comm);
    }
    uint32_t all;
    error = error ? error : comm->ops->agree(comm, 0, &all);
  }
  if (!error && comm->rank == 0 && is_partial(t) && rename(t->partial, t->path) != 0) {
    error = cannot_write(t->path, comm);
  }
  if (error && is_partial(t)) {
    unlink(t->partial);
  }
  trace_free(t);
  return error;
}
