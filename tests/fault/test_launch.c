/* Ranks that die, hang, fail or do not match: the job ends with the right exit code and one message
 * that names rank, step, operation and source line, and no process is left. */
#include "comm/errors.h"
#include "comm/local.h"
#include "core/launch.h"
#include "support/suite.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

/* --- Jobs --------------------------------------------------------------------------------------
 */

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

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What main of a built binary does. `report` < 0: nobody listens. */
static void job_main(const JobSetup *s, int report, RtTransport transport) {
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

static void job_start(Job *job, const JobSetup *s) {
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

/* Waits until `count` ranks are up. */
static void job_up(Job *job, int count) {
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

/* Waits for the end, at most `seconds`; collects the message and the exit code. */
static void job_end(Job *job, int seconds) {
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

#define HAS(job, text)                                                                             \
  ck_assert_msg(strstr((job)->message, text), "no \"%s\" in: %s", text, (job)->message)

static void has_once(const Job *job, const char *text) {
  const char *first = strstr(job->message, text);
  ck_assert_msg(first && !strstr(first + 1, text), "not once \"%s\": %s", text, job->message);
}

/* Names of segments or files that a run could leave behind. */
static int count_entries(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    n += strstr(e->d_name, "dtm") != NULL;
  }
  if (d) {
    closedir(d);
  }
  return n;
}

/* --- What ranks do -----------------------------------------------------------------------------
 */

static const int32_t everyone[MAX_RANKS] = {0, 1, 2, 3};

/* All-reduces until something ends it. */
static int forever(RtComm *c) {
  int error = 0;
  for (int64_t step = 1; !error; step++) {
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 1000, ABI_F32, ABI_SUM, everyone, c->world);
  }
  return error;
}

/* Computes in step 7, for ever; only rank 1 gets there, the others wait for it. */
static int rank_1_computes(RtComm *c) {
  int error = 0;
  for (int64_t step = 1; !error; step++) {
    if (step == 7 && c->rank == 1) {
      dtm_rt_comm_place(c, (RtPlace){step, "matmul", "test.dtm:3:5"});
      for (;;) {
        pause();
      }
    }
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, everyone, c->world);
  }
  return error;
}

static int until_stopped(RtComm *c) {
  bool stop = false;
  int error = 0;
  for (int64_t step = 1; !error && !stop; step++) {
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, everyone, c->world);
    if (!error) {
      error = dtm_rt_stop_agreed(c, &stop);
    }
  }
  return error;
}

/* Never asks whether it should stop. */
static int deaf(RtComm *c) {
  (void)c;
  for (int i = 0; i < 100; i++) {
    sleep(1);
  }
  return 0;
}

static int rank_2_fails(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "read images", "test.dtm:40:3"});
  if (c->rank == 2) {
    return dtm_rt_fail(c, RT_BAD_DATA, "images.gz is damaged");
  }
  return c->ops->barrier(c, everyone, c->world);
}

static int rank_1_exits(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "softmax", "test.dtm:8:1"});
  if (c->rank == 1) {
    _exit(0);
  }
  return c->ops->barrier(c, everyone, c->world);
}

/* Saves for longer than the deadline, with signs of life. */
static int rank_0_saves(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "save", "test.dtm:50:1"});
  for (int i = 0; c->rank == 0 && i < 70; i++) {
    usleep(50000);
    dtm_rt_comm_tick(c);
  }
  return c->ops->barrier(c, everyone, c->world);
}

static int rank_1_differs(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "exchange", "test.dtm:8:1"});
  int32_t right = (c->rank + 1) % c->world, pair[2] = {c->rank, right};
  return c->ops->barrier(c, pair, 2); /* each waits for another: a circle */
}

/* --- Forked ranks ------------------------------------------------------------------------------
 */

static const JobSetup four = {.world = 4, .deadline = 20, .body = forever, .as_rank = -1};

START_TEST(killed) {
  Job job;
  int shm = count_entries("/dev/shm"), tmp = count_entries("/tmp");
  job_start(&job, &four);
  job_up(&job, 4);
  usleep(50000);
  kill(job.rank[_i], SIGKILL);
  job_end(&job, 10);
  char rank[16];
  snprintf(rank, sizeof rank, "rank %d was", _i);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, rank);
  HAS(&job, "killed by signal 9");
  HAS(&job, "at step ");
  HAS(&job, "all-reduce of grad w (test.dtm:14:13)");
  has_once(&job, "error:");
  ck_assert_int_eq(count_entries("/dev/shm"), shm);
  ck_assert_int_eq(count_entries("/tmp"), tmp);
}
END_TEST

START_TEST(killed_while_computing) {
  JobSetup setup = four;
  setup.body = rank_1_computes;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  usleep(200000);
  kill(job.rank[1], SIGABRT);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 was killed by signal 6");
  HAS(&job, "at step 7, matmul (test.dtm:3:5)");
}
END_TEST

START_TEST(stopped) {
  static const int rank_of_two[] = {0, 3};
  JobSetup setup = four;
  setup.deadline = 2;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  usleep(50000);
  kill(job.rank[rank_of_two[_i]], SIGSTOP);
  job_end(&job, 15);
  char rank[40];
  snprintf(rank, sizeof rank, "rank %d gave no sign of life", rank_of_two[_i]);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, rank);
  HAS(&job, "is stopped");
  HAS(&job, "all-reduce of grad w (test.dtm:14:13)");
  has_once(&job, "error:");
}
END_TEST

START_TEST(hangs) {
  JobSetup setup = four;
  setup.body = rank_1_computes;
  setup.deadline = 1.5;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 15);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 gave no sign of life for 1.5 s");
  HAS(&job, "rank 1 was at step 7 in matmul (test.dtm:3:5)");
}
END_TEST

START_TEST(slow_but_alive) {
  JobSetup setup = four;
  setup.body = rank_0_saves;
  setup.deadline = 2;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 15);
  ck_assert_msg(job.status == 0 && !job.message[0], "%d: %s", job.status, job.message);
}
END_TEST

START_TEST(circle_of_waits) {
  JobSetup setup = four;
  setup.body = rank_1_differs;
  setup.deadline = 1.5;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 15);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "different operations");
  has_once(&job, "error:");
}
END_TEST

START_TEST(fails_by_itself) {
  JobSetup setup = four;
  setup.body = rank_2_fails;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, RT_BAD_DATA);
  HAS(&job, "error: rank 2: images.gz is damaged\n  at step 3, read images (test.dtm:40:3)\n");
  has_once(&job, "error:");
}
END_TEST

START_TEST(exits_early) {
  JobSetup setup = four;
  setup.body = rank_1_exits;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 ended early");
  HAS(&job, "at step 3, softmax (test.dtm:8:1)");
}
END_TEST

/* `./train | head`: the end of the reader is not a failure to talk about. */
START_TEST(reader_gone) {
  Job job;
  job_start(&job, &four);
  job_up(&job, 4);
  kill(job.rank[0], SIGPIPE);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, 128 + SIGPIPE);
  ck_assert_str_eq(job.message, "");
}
END_TEST

START_TEST(supervisor_killed) {
  Job job;
  job_start(&job, &four);
  job_up(&job, 4);
  kill(job.main, SIGKILL);
  job_end(&job, 5); /* checks that no rank is left */
  ck_assert_int_eq(job.status, -SIGKILL);
}
END_TEST

START_TEST(asked_to_stop) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTERM};
  JobSetup setup = four;
  setup.body = until_stopped;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  usleep(50000);
  kill(_i == 3 ? job.rank[2] : job.main, signals[_i]);
  job_end(&job, 10);
  ck_assert_msg(job.status == 128 + signals[_i] && !job.message[0], "%d: %s", job.status,
                job.message);
}
END_TEST

/* `timeout` and shells signal every process of the group: still one request. */
START_TEST(group_asked_to_stop) {
  JobSetup setup = four;
  setup.body = until_stopped;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  usleep(50000);
  for (int r = 0; r < 4; r++) {
    kill(job.rank[r], SIGINT);
  }
  kill(job.main, SIGINT);
  kill(job.main, SIGINT);
  job_end(&job, 10);
  ck_assert_msg(job.status == 128 + SIGINT && !job.message[0], "%d: %s", job.status, job.message);
}
END_TEST

START_TEST(second_interrupt_kills) {
  JobSetup setup = four;
  setup.body = deaf;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  usleep(50000);
  kill(job.main, SIGINT);
  usleep(700000);
  ck_assert_int_eq(kill(job.rank[0], 0), 0);
  kill(job.main, SIGINT);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, 128 + SIGINT);
}
END_TEST

START_TEST(one_rank) {
  JobSetup setup = {.world = 1, .deadline = 5, .body = until_stopped, .as_rank = -1};
  Job job;
  job_start(&job, &setup);
  job_up(&job, 1);
  ck_assert_int_eq(job.rank[0], job.main);
  kill(job.main, SIGTERM);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, 128 + SIGTERM);
}
END_TEST

/* --- Separately started ranks ------------------------------------------------------------------
 */

static void start_separately(Job jobs[], int count, JobSetup setup, int odd_one) {
  char name[64];
  snprintf(name, sizeof name, "test %d", (int)getpid());
  for (int r = 0; r < count; r++) {
    JobSetup s = setup;
    s.as_rank = r;
    s.job = name;
    s.plan_hash += r == odd_one;
    job_start(&jobs[r], &s);
  }
}

START_TEST(joined_stop) {
  JobSetup setup = {.world = 3, .deadline = 20, .body = until_stopped};
  Job jobs[3];
  start_separately(jobs, 3, setup, -1);
  for (int r = 0; r < 3; r++) {
    job_up(&jobs[r], 1);
  }
  kill(jobs[1].main, SIGTERM); /* one is asked, all stop at the same step */
  for (int r = 0; r < 3; r++) {
    job_end(&jobs[r], 10);
    ck_assert_int_eq(jobs[r].status, 128 + SIGTERM);
  }
  HAS(&jobs[0], "started by --rank: 3 ranks over shared memory");
}
END_TEST

START_TEST(joined_killed) {
  JobSetup setup = {.world = 3, .deadline = 20, .body = forever};
  Job jobs[3];
  start_separately(jobs, 3, setup, -1);
  for (int r = 0; r < 3; r++) {
    job_up(&jobs[r], 1);
  }
  usleep(50000);
  kill(jobs[_i].main, SIGKILL);
  int told = 0;
  char rank[32];
  snprintf(rank, sizeof rank, "rank %d died", _i);
  for (int r = 0; r < 3; r++) {
    job_end(&jobs[r], 10);
    ck_assert_int_eq(jobs[r].status, r == _i ? -SIGKILL : RT_LOST);
    if (strstr(jobs[r].message, rank)) {
      told++;
      HAS(&jobs[r], "all-reduce of grad w (test.dtm:14:13)");
    }
  }
  ck_assert_int_eq(told, 1);
}
END_TEST

START_TEST(joined_other_program) {
  JobSetup setup = {.world = 3, .deadline = 5, .body = forever};
  Job jobs[3];
  start_separately(jobs, 3, setup, 2);
  for (int r = 0; r < 3; r++) {
    job_end(&jobs[r], 15);
    ck_assert_int_eq(jobs[r].status, RT_LOST);
  }
  HAS(&jobs[0], "rank 2 (process");
  HAS(&jobs[0], "runs another program");
}
END_TEST

START_TEST(joined_missing) {
  JobSetup setup = {.world = 4, .deadline = 0.5, .body = forever};
  Job jobs[2];
  start_separately(jobs, 2, setup, -1);
  for (int r = 0; r < 2; r++) {
    job_end(&jobs[r], 10);
    ck_assert_int_eq(jobs[r].status, RT_LOST);
  }
  HAS(&jobs[0], "2 of 4 ranks did not join within 0.5 s: 2, 3");
}
END_TEST

START_TEST(joined_without_first) {
  JobSetup setup = {.world = 2, .deadline = 0.5, .body = forever, .as_rank = 1, .job = "nobody"};
  Job job;
  job_start(&job, &setup);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 found no rank 0 on this machine within 0.5 s");
}
END_TEST

START_TEST(joined_twice) {
  JobSetup setup = {.world = 3, .deadline = 5, .body = forever, .job = "twice"};
  Job jobs[3];
  for (int i = 0; i < 3; i++) {
    setup.as_rank = i == 2 ? 1 : i;
    job_start(&jobs[i], &setup);
  }
  for (int i = 0; i < 3; i++) {
    job_end(&jobs[i], 15);
    ck_assert_int_eq(jobs[i].status, RT_LOST);
  }
  HAS(&jobs[0], "rank 1 was started twice");
}
END_TEST

/* --- Launchers' environments -------------------------------------------------------------------
 */

START_TEST(wrong_number_of_processes) {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "3", 1);
  Job job;
  job_start(&job, &four);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, RT_USAGE);
  HAS(&job, "torchrun started 3 processes, but this program was compiled for 4 ranks");
}
END_TEST

START_TEST(several_machines) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  Job job;
  job_start(&job, &four);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, RT_DEVICE);
  HAS(&job, "ranks on several machines need MPI");
}
END_TEST

/* --- Under mpirun ------------------------------------------------------------------------------
 */

/* Trains a few steps, then rank 1 asks to stop. */
static int stops_itself(RtComm *c) {
  bool stop = false;
  int error = 0;
  for (int64_t step = 1; !error && !stop; step++) {
    dtm_rt_comm_place(c, (RtPlace){step, "all-reduce of grad w", "test.dtm:14:13"});
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, everyone, c->world);
    if (step == 5 && c->rank == 1) {
      raise(SIGTERM);
    }
    if (!error) {
      error = dtm_rt_stop_agreed(c, &stop);
    }
    if (stop && step != 5) {
      error = dtm_rt_fail(c, RT_INTERNAL, "stopped after step %d", (int)step);
    }
  }
  return error;
}

static int stops_rank_1(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){7, "all-reduce of grad w", "test.dtm:14:13"});
  if (c->rank == 1) {
    raise(SIGSTOP);
  }
  return c->ops->barrier(c, everyone, c->world);
}

/* One process of mpirun: DTM_TEST_MPI names the case. */
static void mpi_process(const char *name) {
  JobSetup setup = {.world = 2, .deadline = 1.5, .as_rank = -1, .body = stops_itself};
  if (strcmp(name, "hang") == 0) {
    setup.body = stops_rank_1;
  } else if (strcmp(name, "differ") == 0) {
    setup.plan_hash = getenv("OMPI_COMM_WORLD_RANK")[0] == '1';
  } else if (strcmp(name, "slow") == 0) {
    setup.body = rank_0_saves;
    setup.deadline = 2;
  }
  job_main(&setup, -1, strcmp(name, "local") == 0 ? RT_TRANSPORT_AUTO : RT_TRANSPORT_MPI);
}

static const struct {
  const char *name;
  int status;
  const char *says;
} mpi_cases[] = {
    {"local", 128 + SIGTERM, "started by mpirun (OpenMPI): 2 ranks over shared memory"},
    {"stop", 128 + SIGTERM, "started by mpirun (OpenMPI): 2 ranks over MPI"},
    {"slow", 0, "2 ranks over MPI"},
    {"hang", RT_LOST, "rank 1 gave no sign of life for 1.5 s"},
    {"differ", RT_LOST, "rank 1 (process"},
};

START_TEST(under_mpirun) {
  char self[1024], command[1400], text[8192];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  ck_assert_int_gt(n, 0);
  self[n] = 0;
  snprintf(command, sizeof command, "%.*s/../lib/dtm/libdtm_rt_mpi.so",
           (int)(strrchr(self, '/') - self), self);
  if (access(command, R_OK) != 0 || system("mpirun --version >/dev/null 2>&1") != 0) {
    puts("skipped under_mpirun: no mpirun, or the MPI transport was not built");
    return;
  }
  snprintf(command, sizeof command,
           "DTM_TEST_MPI=%s mpirun --oversubscribe --allow-run-as-root -n 2 '%s' 2>&1",
           mpi_cases[_i].name, self);
  FILE *f = popen(command, "r");
  ck_assert(f != NULL);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  int status = pclose(f);
  ck_assert_msg(strstr(text, mpi_cases[_i].says), "%s: %s", mpi_cases[_i].name, text);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == mpi_cases[_i].status, "%s: %d, %s",
                mpi_cases[_i].name, status, text);
}
END_TEST

START_TEST(too_large) {
  JobSetup setup = four;
  setup.arena_size = (size_t)1 << (_i ? 62 : 45);
  Job job;
  job_start(&job, &setup);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, RT_DEVICE);
  HAS(&job, "GiB for each of 4 ranks on this machine, which has");
}
END_TEST

/* A program for a whole cluster, started by hand: it says what it needs. */
START_TEST(too_many_ranks) {
  JobSetup setup = four;
  setup.world = 4096 * 256;
  if (_i) setup.as_rank = 0;
  setup.job = "too many";
  Job job;
  job_start(&job, &setup);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, RT_DEVICE);
  HAS(&job, "compiled for 1048576 ranks");
  HAS(&job, "on one machine there can be 1024");
  HAS(&job, "mpirun -n 1048576 PROGRAM");
}
END_TEST

/* --- Processors --------------------------------------------------------------------------------
 */

/* Says how many processors a rank may run on. */
static int count_processors(RtComm *c) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  fprintf(stderr, "rank %d: %d of %d\n", (int)c->rank, CPU_COUNT(&set), dtm_rt_cores());
  return 0;
}

static void count_process(void) {
  JobSetup setup = {.world = 2, .deadline = 5, .as_rank = -1, .body = count_processors};
  job_main(&setup, -1, RT_TRANSPORT_AUTO);
}

/* OMP_PROC_BIND must not put all ranks on the first processors. */
START_TEST(not_pinned) {
  char self[1024], command[1200], text[512], rank[32];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  ck_assert_int_gt(n, 0);
  self[n] = 0;
  snprintf(command, sizeof command, "DTM_TEST_PROCESSORS=1 OMP_PROC_BIND=%s '%s' 2>&1",
           _i ? "spread" : "false", self);
  FILE *f = popen(command, "r");
  ck_assert(f != NULL);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  ck_assert_int_eq(pclose(f), 0);
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  for (int r = 0; r < 2; r++) {
    snprintf(rank, sizeof rank, "rank %d: %d of ", r, CPU_COUNT(&set));
    ck_assert_msg(strstr(text, rank), "no \"%s\" in %s", rank, text);
  }
}
END_TEST

int main(void) {
  if (getenv("DTM_TEST_PROCESSORS")) {
    count_process();
  }
  if (getenv("DTM_TEST_MPI")) {
    mpi_process(getenv("DTM_TEST_MPI"));
  }
  Suite *suite = suite_create("launch");
  TCase *tc = tcase_create("forked");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, killed, 0, 4);
  tcase_add_test(tc, killed_while_computing);
  tcase_add_loop_test(tc, stopped, 0, 2);
  tcase_add_test(tc, hangs);
  tcase_add_test(tc, slow_but_alive);
  tcase_add_test(tc, circle_of_waits);
  tcase_add_test(tc, fails_by_itself);
  tcase_add_test(tc, exits_early);
  tcase_add_test(tc, reader_gone);
  tcase_add_test(tc, supervisor_killed);
  tcase_add_loop_test(tc, asked_to_stop, 0, 4);
  tcase_add_test(tc, group_asked_to_stop);
  tcase_add_test(tc, second_interrupt_kills);
  tcase_add_test(tc, one_rank);
  tcase_add_loop_test(tc, not_pinned, 0, 2);
  suite_add_tcase(suite, tc);
  tc = tcase_create("joined");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, joined_stop);
  tcase_add_loop_test(tc, joined_killed, 0, 3);
  tcase_add_test(tc, joined_other_program);
  tcase_add_test(tc, joined_missing);
  tcase_add_test(tc, joined_without_first);
  tcase_add_test(tc, joined_twice);
  tcase_add_test(tc, wrong_number_of_processes);
  tcase_add_test(tc, several_machines);
  tcase_add_loop_test(tc, too_large, 0, 2);
  tcase_add_loop_test(tc, too_many_ranks, 0, 2);
  suite_add_tcase(suite, tc);
  tc = tcase_create("mpirun");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, under_mpirun, 0, sizeof mpi_cases / sizeof *mpi_cases);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
