/* Ranks that die, hang, fail or do not match: the job ends with the right exit code and one message
 * that names rank, step, operation and source line, and no process is left. Here ranks that the
 * program forks; test_launch_joined.c has those that others start. */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "comm/errors.h"
#include "comm/local.h"
#include "fault/job.h"
#include "support/suite.h"

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
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, job_everyone, c->world);
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
  return c->ops->barrier(c, job_everyone, c->world);
}

static int rank_1_exits(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "softmax", "test.dtm:8:1"});
  if (c->rank == 1) {
    _exit(0);
  }
  return c->ops->barrier(c, job_everyone, c->world);
}

static int rank_1_differs(RtComm *c) {
  dtm_rt_comm_place(c, (RtPlace){3, "exchange", "test.dtm:8:1"});
  int32_t right = (c->rank + 1) % c->world, pair[2] = {c->rank, right};
  return c->ops->barrier(c, pair, 2); /* each waits for another: a circle */
}

/* --- Forked ranks ------------------------------------------------------------------------------
 */

START_TEST(killed) {
  Job job;
  int shm = count_entries("/dev/shm"), tmp = count_entries("/tmp");
  job_start(&job, &job_of_four);
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
  job_has_once(&job, "error:");
  ck_assert_int_eq(count_entries("/dev/shm"), shm);
  ck_assert_int_eq(count_entries("/tmp"), tmp);
}
END_TEST

START_TEST(killed_while_computing) {
  JobSetup setup = job_of_four;
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
  JobSetup setup = job_of_four;
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
  job_has_once(&job, "error:");
}
END_TEST

START_TEST(hangs) {
  JobSetup setup = job_of_four;
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
  JobSetup setup = job_of_four;
  setup.body = job_rank_0_saves;
  setup.deadline = 2;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 15);
  ck_assert_msg(job.status == 0 && !job.message[0], "%d: %s", job.status, job.message);
}
END_TEST

START_TEST(circle_of_waits) {
  JobSetup setup = job_of_four;
  setup.body = rank_1_differs;
  setup.deadline = 1.5;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 15);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "different operations");
  job_has_once(&job, "error:");
}
END_TEST

START_TEST(fails_by_itself) {
  JobSetup setup = job_of_four;
  setup.body = rank_2_fails;
  Job job;
  job_start(&job, &setup);
  job_up(&job, 4);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, RT_BAD_DATA);
  HAS(&job, "error: rank 2: images.gz is damaged\n  at step 3, read images (test.dtm:40:3)\n");
  job_has_once(&job, "error:");
}
END_TEST

START_TEST(exits_early) {
  JobSetup setup = job_of_four;
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
  job_start(&job, &job_of_four);
  job_up(&job, 4);
  kill(job.rank[0], SIGPIPE);
  job_end(&job, 10);
  ck_assert_int_eq(job.status, 128 + SIGPIPE);
  ck_assert_str_eq(job.message, "");
}
END_TEST

START_TEST(supervisor_killed) {
  Job job;
  job_start(&job, &job_of_four);
  job_up(&job, 4);
  kill(job.main, SIGKILL);
  job_end(&job, 5); /* checks that no rank is left */
  ck_assert_int_eq(job.status, -SIGKILL);
}
END_TEST

START_TEST(asked_to_stop) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTERM};
  JobSetup setup = job_of_four;
  setup.body = job_until_stopped;
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
  JobSetup setup = job_of_four;
  setup.body = job_until_stopped;
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
  JobSetup setup = job_of_four;
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
  JobSetup setup = {.world = 1, .deadline = 5, .body = job_until_stopped, .as_rank = -1};
  Job job;
  job_start(&job, &setup);
  job_up(&job, 1);
  ck_assert_int_eq(job.rank[0], job.main);
  kill(job.main, SIGTERM);
  job_end(&job, 5);
  ck_assert_int_eq(job.status, 128 + SIGTERM);
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
  return suite_run(suite);
}
