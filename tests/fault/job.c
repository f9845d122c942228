/* See job.h. */
#include "fault/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/options.h"

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void job_main(const JobSetup *s, int report, RtTransport transport) {
  RtProgramInfo program = {
      .source = "test.dtm", .mesh = "a=2", .world = s->world, .has_train = true};
  RtOptions options;
  char *argv[] = {"test", NULL};
  if (dtm_rt_options_parse(&options, &program, 1, argv, stdout, stderr) != -1) {
    _exit(99);
  }
  options.deadline = s->deadline;
  options.threads = 1;
  options.transport = transport;
  if (s->as_rank >= 0) {
    options.rank = s->as_rank;
    options.world = s->world;
    options.job = s->job;
  }
  RtLaunch launch = {.world = s->world,
                     .arena_size = s->arena_size ? s->arena_size : 1 << 20,
                     .plan_hash = s->plan_hash,
                     .options = &options};
  RtComm *c;
  int status = dtm_rt_launch(&launch, &c);
  if (!c) {
    _exit(status);
  }
  char line[64];
  int n = snprintf(line, sizeof line, "%d %d\n", (int)c->rank, (int)getpid());
  if (report >= 0 && write(report, line, (size_t)n) != n) {
    _exit(98);
  }
  status = s->body(c);
  _exit(dtm_rt_finish(c, status));
}

void job_start(Job *job, const JobSetup *s) {
  int report[2], err[2];
  *job = (Job){0};
  ck_assert_int_eq(pipe2(report, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(err, O_CLOEXEC), 0);
  job->main = fork();
  ck_assert_int_ge(job->main, 0);
  if (job->main == 0) {
    dup2(err[1], STDERR_FILENO);
    close(report[0]);
    close(err[0]);
    job_main(s, report[1], RT_TRANSPORT_AUTO);
  }
  close(report[1]);
  close(err[1]);
  job->report = report[0];
  job->err = err[0];
}

void job_up(Job *job, int count) {
  char text[256];
  int n = 0, lines = 0;
  while (lines < count) {
    struct pollfd p = {job->report, POLLIN, 0};
    ck_assert_msg(poll(&p, 1, 20000) == 1, "ranks did not start");
    ssize_t got = read(job->report, text + n, 1);
    ck_assert_msg(got == 1, "ranks ended at start");
    if (text[n++] == '\n') {
      int rank, pid;
      text[n] = 0;
      ck_assert_int_eq(sscanf(text, "%d %d", &rank, &pid), 2);
      job->rank[rank] = pid;
      lines++;
      n = 0;
    }
  }
}

/* The process ended; whoever inherited it may not have collected it yet. */
static bool gone(pid_t pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  for (int tries = 0; tries < 100; tries++) {
    FILE *f = fopen(path, "r");
    if (!f) {
      return true;
    }
    int found = fscanf(f, "%*d (%*[^)]) %c", &state);
    fclose(f);
    if (found != 1 || state == 'Z' || state == 'X') {
      return true;
    }
    usleep(20000);
  }
  return false;
}

void job_end(Job *job, int seconds) {
  int64_t until = now_ms() + seconds * 1000;
  size_t n = 0;
  for (;;) {
    struct pollfd p = {job->err, POLLIN, 0};
    int64_t left = until - now_ms();
    ck_assert_msg(left > 0 && poll(&p, 1, (int)left) == 1, "the job hangs; so far: %s",
                  job->message);
    ssize_t got = read(job->err, job->message + n, sizeof job->message - 1 - n);
    if (got <= 0) {
      break; /* every process of the job has closed it */
    }
    n += (size_t)got;
    job->message[n] = 0;
  }
  int status;
  ck_assert_int_eq(waitpid(job->main, &status, 0), job->main);
  job->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  close(job->report);
  close(job->err);
  for (int r = 0; r < MAX_RANKS; r++) {
    if (job->rank[r] && job->rank[r] != job->main) {
      ck_assert_msg(gone(job->rank[r]), "rank %d is left", r);
    }
  }
}

void job_has_once(const Job *job, const char *text) {
  const char *first = strstr(job->message, text);
  ck_assert_msg(first && !strstr(first + 1, text), "not once \"%s\": %s", text, job->message);
}

/* --- what ranks do ------------------------------------------------------------------------------
 */

const int32_t job_everyone[MAX_RANKS] = {0, 1, 2, 3};

int job_forever(RtComm *c) {
  int error = 0;
  for (int64_t step = 1; !error; step++) {
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 1000, ABI_F32, ABI_SUM, job_everyone, c->world);
  }
  return error;
}

int job_until_stopped(RtComm *c) {
  bool stop = false;
  int error = 0;
  for (int64_t step = 1; !error && !stop; step++) {
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, job_everyone, c->world);
    if (!error) {
      error = dtm_rt_stop_agreed(c, &stop);
    }
  }
  return error;
}

int job_rank_0_saves(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "save", "test.dtm:50:1"});
  for (int i = 0; c->rank == 0 && i < 70; i++) {
    usleep(50000);
    dtm_rt_comm_tick(c);
  }
  return c->ops->barrier(c, job_everyone, c->world);
}

const JobSetup job_of_four = {.world = 4, .deadline = 20, .body = job_forever, .as_rank = -1};
