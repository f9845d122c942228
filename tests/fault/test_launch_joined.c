/* Ranks that others start, one by one, by a launcher or under mpirun, and programs that do not fit
 * the machine: as test_launch.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/errors.h"
#include "fault/job.h"
#include "support/suite.h"

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
  JobSetup setup = {.world = 3, .deadline = 20, .body = job_until_stopped};
  Job jobs[3];
  start_separately(jobs, 3, setup, -1);
  for (int r = 0; r < 3; r++) {
    job_up(&jobs[r], 1);
  }
  kill(jobs[1].main, SIGTERM); /* one is asked, all stop at the same step */
  for (int r = 0; r < 3; r++) {
    job_end(&jobs[r], 30);
    ck_assert_int_eq(jobs[r].status, 128 + SIGTERM);
  }
  HAS(&jobs[0], "started by --rank: 3 ranks over shared memory");
}
END_TEST

START_TEST(joined_killed) {
  JobSetup setup = {.world = 3, .deadline = 20, .body = job_forever};
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
    job_end(&jobs[r], 30);
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
  JobSetup setup = {.world = 3, .deadline = 20, .body = job_forever};
  Job jobs[3];
  start_separately(jobs, 3, setup, 2);
  for (int r = 0; r < 3; r++) {
    job_end(&jobs[r], 30);
    ck_assert_int_eq(jobs[r].status, RT_LOST);
  }
  HAS(&jobs[0], "rank 2 (process");
  HAS(&jobs[0], "runs another program");
}
END_TEST

START_TEST(joined_missing) {
  JobSetup setup = {.world = 4, .deadline = 2, .body = job_forever};
  Job jobs[2];
  start_separately(jobs, 2, setup, -1);
  for (int r = 0; r < 2; r++) {
    job_end(&jobs[r], 30);
    ck_assert_int_eq(jobs[r].status, RT_LOST);
  }
  HAS(&jobs[0], "2 of 4 ranks did not join within 2 s: 2, 3");
}
END_TEST

START_TEST(joined_without_first) {
  JobSetup setup = {
      .world = 2, .deadline = 0.5, .body = job_forever, .as_rank = 1, .job = "nobody"};
  Job job;
  job_start(&job, &setup);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 found no rank 0 on this machine within 0.5 s");
}
END_TEST

START_TEST(joined_twice) {
  JobSetup setup = {.world = 3, .deadline = 20, .body = job_forever, .job = "twice"};
  Job jobs[3];
  for (int i = 0; i < 3; i++) {
    setup.as_rank = i == 2 ? 1 : i;
    job_start(&jobs[i], &setup);
  }
  for (int i = 0; i < 3; i++) {
    job_end(&jobs[i], 30);
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
  job_start(&job, &job_of_four);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_USAGE);
  HAS(&job, "torchrun started 3 processes, but this program was compiled for 4 ranks");
}
END_TEST

/* Without a name of the job ranks meet by their parent: each with one of its own finds nobody. */
START_TEST(no_name_of_the_job) {
  static const char *const names[] = {"TORCHELASTIC_RUN_ID", "MASTER_PORT",
                                      "TORCHELASTIC_RESTART_COUNT"};
  for (int i = 0; i < 3; i++) unsetenv(names[i]);
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "4", 1);
  JobSetup setup = job_of_four;
  setup.deadline = 0.5;
  Job job;
  job_start(&job, &setup);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_LOST);
  HAS(&job, "rank 1 found no rank 0 on this machine within 0.5 s");
  HAS(&job, "nothing in the environment names the job");
}
END_TEST

/* Names of two launchers that cannot both have started a process, and one that contradicts itself.
 */
START_TEST(contradictions) {
  unsetenv("TORCHELASTIC_RUN_ID");
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  Job job;
  job_start(&job, &job_of_four);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_USAGE);
  HAS(&job, "RANK=0, WORLD_SIZE=4 as of torchrun and OMPI_COMM_WORLD_RANK=2");
  HAS(&job, "unset those");
  setenv("OMPI_COMM_WORLD_RANK", "0", 1); /* as an mpirun that starts torchrun, or the same */
  setenv("LOCAL_WORLD_SIZE", "8", 1);
  job_start(&job, &job_of_four);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_USAGE);
  HAS(&job, "LOCAL_WORLD_SIZE=8 is more than WORLD_SIZE=4");
}
END_TEST

START_TEST(several_machines) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  Job job;
  job_start(&job, &job_of_four);
  job_end(&job, 30);
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
    error = c->ops->all_reduce(c, 0, 0, 10, ABI_F32, ABI_SUM, job_everyone, c->world);
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
  return c->ops->barrier(c, job_everyone, c->world);
}

/* One process of mpirun: DTM_TEST_MPI names the case. */
static void mpi_process(const char *name) {
  JobSetup setup = {.world = 2, .deadline = 20, .as_rank = -1, .body = stops_itself};
  if (strcmp(name, "hang") == 0) {
    setup.body = stops_rank_1;
    setup.deadline = 1.5;
  } else if (strcmp(name, "differ") == 0) {
    setup.plan_hash = getenv("OMPI_COMM_WORLD_RANK")[0] == '1';
  } else if (strcmp(name, "slow") == 0) {
    setup.body = job_rank_0_saves;
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

/* --- Too much -----------------------------------------------------------------------------------
 */

START_TEST(too_large) {
  JobSetup setup = job_of_four;
  setup.arena_size = (size_t)1 << (_i ? 62 : 45);
  Job job;
  job_start(&job, &setup);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_DEVICE);
  HAS(&job, "GiB for each of 4 ranks on this machine, which has");
}
END_TEST

/* A program for a whole cluster, started by hand: it says what it needs. */
START_TEST(too_many_ranks) {
  JobSetup setup = job_of_four;
  setup.world = 4096 * 256;
  if (_i) setup.as_rank = 0;
  setup.job = "too many";
  Job job;
  job_start(&job, &setup);
  job_end(&job, 30);
  ck_assert_int_eq(job.status, RT_DEVICE);
  HAS(&job, "compiled for 1048576 ranks");
  HAS(&job, "on one machine there can be 1024");
  HAS(&job, "mpirun -n 1048576 PROGRAM");
}
END_TEST

int main(void) {
  if (getenv("DTM_TEST_MPI")) {
    mpi_process(getenv("DTM_TEST_MPI"));
  }
  Suite *suite = suite_create("launch_joined");
  TCase *tc = tcase_create("joined");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, joined_stop);
  tcase_add_loop_test(tc, joined_killed, 0, 3);
  tcase_add_test(tc, joined_other_program);
  tcase_add_test(tc, joined_missing);
  tcase_add_test(tc, joined_without_first);
  tcase_add_test(tc, joined_twice);
  tcase_add_test(tc, wrong_number_of_processes);
  tcase_add_test(tc, no_name_of_the_job);
  tcase_add_test(tc, contradictions);
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
