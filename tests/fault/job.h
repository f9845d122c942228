/* Jobs of a few ranks, started as a shell, a launcher or mpirun would, of which ranks do what a
 * test wants: what both files of launch tests start and wait for. */
#ifndef DTM_TESTS_FAULT_JOB_H
#define DTM_TESTS_FAULT_JOB_H

#include <check.h>
#include <string.h>
#include <sys/types.h>

#include "comm/comm.h"
#include "core/launch.h"

enum { MAX_RANKS = 4 };

/* What a rank does after the launch; returns its status. */
typedef int JobBody(RtComm *c);

typedef struct Job {
  pid_t main; /* what a shell would have started */
  int report; /* read end: "rank pid" lines of ranks that are up */
  int err;    /* read end of standard error */
  pid_t rank[MAX_RANKS];
  char message[4096];
  int status;
} Job;

typedef struct JobSetup {
  int world;
  double deadline;
  JobBody *body;
  uint64_t plan_hash;
  int as_rank;       /* >= 0: one separately started rank */
  size_t arena_size; /* 0 = 1 MiB */
  const char *job;
} JobSetup;

/* What main of a built binary does. `report` < 0: nobody listens. */
_Noreturn void job_main(const JobSetup *s, int report, RtTransport transport);
void job_start(Job *job, const JobSetup *s);
/* Waits until `count` ranks are up. */
void job_up(Job *job, int count);
/* Waits for the end, at most `seconds`; collects the message and the exit code. */
void job_end(Job *job, int seconds);
void job_has_once(const Job *job, const char *text);

#define HAS(job, text)                                                                             \
  ck_assert_msg(strstr((job)->message, text), "no \"%s\" in: %s", text, (job)->message)

/* --- what ranks do */
extern const int32_t job_everyone[MAX_RANKS];
/* All-reduces until something ends it. */
int job_forever(RtComm *c);
/* Likewise; stops when it is asked to. */
int job_until_stopped(RtComm *c);
/* Saves for longer than the deadline, with signs of life. */
int job_rank_0_saves(RtComm *c);

/* Four ranks that go on for ever. */
extern const JobSetup job_of_four;

#endif
