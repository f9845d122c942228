/* Ranks on one machine over shared memory.
 *
 * One memfd holds a control block and the arenas of all ranks; every rank maps all of it. A memfd
 * has no name, so nothing is left behind however a job ends, and it is not bounded by the size of
 * /dev/shm. Each rank holds a POSIX lock on one byte of it while it lives: the kernel drops the
 * lock when the process ends, which is how peers learn of a death without help from a launcher.
 */
#ifndef DTM_RT_COMM_LOCAL_H
#define DTM_RT_COMM_LOCAL_H

#include "comm/comm.h"

enum { LOCAL_MAX_WORLD = 1024 }; /* ranks on one machine */

typedef struct LocalSegment {
  int fd; /* -1: one rank, anonymous memory */
  unsigned char *base;
  size_t size;
} LocalSegment;

typedef struct LocalSetup {
  int32_t world;
  size_t arena_size; /* bytes per rank */
  bool supervised;   /* a supervisor reports deaths, so ranks need not look */
} LocalSetup;

/* Creates and maps the segment. 0, or an errno. */
int dtm_local_create(const LocalSetup *setup, LocalSegment *segment);
/* Maps a segment that another process created (its fd was inherited or received). 0 or an errno;
 * EPROTO when it is not such a segment. The fd must stay open: closing it drops locks. */
int dtm_local_map(int fd, LocalSegment *segment);
/* Joins as `rank`; NULL when out of memory. */
RtComm *dtm_local_join(const LocalSegment *segment, int32_t rank, int32_t threads, double deadline);

/* What the supervisor sees and does. */
typedef struct LocalView {
  int32_t pid;
  bool left; /* ended on purpose, with dtm_rt_finish */
  int64_t step;
  char operation[128], source[96];
} LocalView;

void dtm_local_view(const LocalSegment *segment, int32_t rank, LocalView *view);
/* The code of the failure that was reported, or 0. */
int dtm_local_failed(const LocalSegment *segment);
/* Claims the failure of the job, prints `message` (NULL: nothing) unless one was printed before,
 * and wakes all ranks, whose calls then return the code. Returns the code of the first failure. */
int dtm_local_fail(const LocalSegment *segment, int code, const char *message);

/* Processors this process may use: affinity, and the CPU quota of its control group. */
int dtm_rt_cores(void);
/* Bytes this machine (or control group) has at most, with swap, and what is free of them now;
 * UINT64_MAX when unknown. */
void dtm_rt_memory(uint64_t *total, uint64_t *available);

#endif
