/* What a job on simulated GPUs says and does when one of its ranks stops, dies or is asked to stop
 * while the others wait for it on the GPU. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/suite.h"
#include "support/work.h"

enum { RANKS = 3, PIPE_RANKS = 4, PATIENCE_S = 60 };

static const char program[] =
    "import nn\n"
    "mesh world(dp = 3)\n"
    "module Net() {\n"
    "  layer = nn.Linear(4, 4)\n"
    "  forward(x) { return mean(square(layer(x))).redistribute(dp: Replicate) }\n"
    "}\n"
    "train {\n"
    "  data x = npy(\"x.npy\", f32[6@dp, 4])\n"
    "  model m = Net()\n"
    "  loss m(x)\n"
    "  optimizer sgd(lr = 0.01)\n"
    "  steps 1000000\n"
    "}\n";

/* Two stages of two ranks; collectives within a stage are in graphs, messages are not. */
static const char pipeline[] =
    "mesh world(pp = 2, tp = 2)\n"
    "module Half() {\n"
    "  param up: f32[4@tp, 4] = normal(std = 0.4)\n"
    "  param down: f32[4, 4@tp] = normal(std = 0.4)\n"
    "  forward(x) { return x + linear(relu(linear(x, up)), down).redistribute(tp: Replicate) }\n"
    "}\n"
    "module Net() {\n"
    "  let stages = world.unbind(\"pp\")\n"
    "  halves = [Half() on stages[i] for i in range(2)]\n"
    "  forward(x) {\n"
    "    let h = halves[0](x.redistribute(mesh = stages[0]))\n"
    "    return halves[1](h.redistribute(mesh = stages[1]))\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  data x = npy(\"x.npy\", f32[6, 4])\n"
    "  model m = Net()\n"
    "  loss mean(square(m(x)))\n"
    "  optimizer sgd(lr = 0.001)\n"
    "  microbatches 3  schedule \"1f1b\"  steps 1000000\n"
    "}\n";

static char output[1 << 16];

static void nap(void) {
  struct timespec t = {0, 20000000};
  nanosleep(&t, NULL);
}

static void read_output(void) {
  FILE *f = fopen("out.txt", "r");
  size_t n = f ? fread(output, 1, sizeof output - 1, f) : 0;
  output[n] = 0;
  if (f) fclose(f);
}

static void use_simulator(void) {
  const char *gpusim = getenv("GPUSIM");
  int out = open("out.txt", O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  setenv("DTM_CUDA_DRIVER", gpusim, 1);
  setenv("DTM_CUBLASLT", gpusim, 1);
  setenv("DTM_NCCL", gpusim, 1);
  setenv("TMPDIR", ".", 1);
}

static void set_number(const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

/* A rank as a launcher starts it. */
static pid_t launch(const char *program_file, int world, int rank, const char *deadline) {
  pid_t parent = getpid(), pid = fork();
  if (pid) return pid;
  use_simulator();
  set_number("WORLD_SIZE", world);
  set_number("LOCAL_WORLD_SIZE", world);
  set_number("RANK", rank);
  set_number("LOCAL_RANK", rank);
  set_number("MASTER_PORT", 29533);
  set_number("TORCHELASTIC_RUN_ID", (int)parent);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  execl(program_file, program_file, "--log=json", "--deadline", deadline, (char *)NULL);
  _exit(127);
}

static void wait_for_steps(void) {
  for (int i = 0; i < PATIENCE_S * 50; i++) {
    nap();
    read_output();
    if (strstr(output, "\"step\":3,") || strstr(output, "error:")) break;
  }
  ck_assert_msg(strstr(output, "\"step\":3,") != NULL, "%s", output);
}

/* A job that has done some steps; its ranks' processes, in their order. */
static pid_t start(pid_t ranks[RANKS]) {
  unlink("out.txt");
  pid_t job = fork();
  if (job == 0) {
    use_simulator();
    execl("./p", "./p", "--log=json", "--deadline", "2", (char *)NULL);
    _exit(127);
  }
  wait_for_steps();
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)job, (int)job);
  FILE *f = fopen(path, "r");
  int n = 0, pid;
  while (f && n < RANKS && fscanf(f, "%d", &pid) == 1) ranks[n++] = pid;
  if (f) fclose(f);
  ck_assert_int_eq(n, RANKS);
  return job;
}

static int finish(pid_t job) {
  int status = 0;
  for (int i = 0; i < PATIENCE_S * 50; i++) {
    if (waitpid(job, &status, WNOHANG) == job) {
      read_output();
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    nap();
  }
  kill(job, SIGKILL);
  waitpid(job, &status, 0);
  read_output();
  ck_abort_msg("the job did not end:\n%s", output);
  return -1;
}

static void expect(const char *text) {
  ck_assert_msg(strstr(output, text) != NULL, "'%s' is missing in:\n%s", text, output);
}

/* Most of the time ranks wait for each other on the GPU, else at the end of a step, on the host. */
START_TEST(stopped) {
  pid_t ranks[RANKS], job = start(ranks);
  char text[64];
  kill(ranks[1], SIGSTOP);
  ck_assert_msg(finish(job) == 4, "%s", output);
  if (strstr(output, ": an operation between ranks did not end within 2 s")) {
    snprintf(text, sizeof text, "\n  rank 1: its process %d is stopped, at step ", (int)ranks[1]);
    expect("\n  at step ");
  } else {
    snprintf(text, sizeof text, "rank 1 gave no sign of life for 2 s: its process %d is stopped",
             (int)ranks[1]);
  }
  expect(text);
  expect("error: rank ");
  ck_assert_msg(!strstr(strstr(output, "error:") + 1, "error:"), "two errors:\n%s", output);
}
END_TEST

START_TEST(killed) {
  pid_t ranks[RANKS], job = start(ranks);
  kill(ranks[2], SIGKILL);
  ck_assert_msg(finish(job) == 4, "%s", output);
  expect("error: rank 2 was killed by signal 9");
  ck_assert_msg(!strstr(strstr(output, "error:") + 1, "error:"), "two errors:\n%s", output);
}
END_TEST

/* Who starts ranks learns late of one that died, and its peers' NCCL early. */
START_TEST(killed_and_told_late) {
  pid_t ranks[RANKS], job = start(ranks);
  kill(job, SIGSTOP);
  kill(ranks[1], SIGKILL);
  for (int i = 0; i < 30; i++) nap();
  kill(job, SIGCONT);
  ck_assert_msg(finish(job) == 4, "%s", output);
  ck_assert_msg(strstr(output, "rank 1 was killed by signal 9") != NULL, "%s", output);
  ck_assert_msg(strstr(output, "cannot") == NULL, "%s", output);
}
END_TEST

/* Ranks of a launcher that does not look after them: graphs hold collectives that wait for the rank
 * that is stopped, and communicators end for all that. */
START_TEST(nobody_ends_ranks) {
  pid_t ranks[RANKS];
  unlink("out.txt");
  for (int r = 0; r < RANKS; r++) ranks[r] = launch("./p", RANKS, r, "2");
  wait_for_steps();
  kill(ranks[1], SIGSTOP);
  int first = finish(ranks[0]), last = finish(ranks[2]), status;
  kill(ranks[1], SIGKILL);
  waitpid(ranks[1], &status, 0);
  ck_assert_msg(first == 4 && last == 4, "%d %d: %s", first, last, output);
  ck_assert_msg(!strstr(output, "gpusim:"), "%s", output);
}
END_TEST

/* Rank 0 does not wait as long as the others, so it is the one that reports: the graph that waits
 * for rank 1, a message that does by way of the other stage, or the host's wait for it. */
START_TEST(stopped_in_a_pipeline) {
  pid_t ranks[PIPE_RANKS];
  int codes[PIPE_RANKS] = {0}, status;
  unlink("out.txt");
  for (int r = 0; r < PIPE_RANKS; r++) ranks[r] = launch("./pipe", PIPE_RANKS, r, r ? "30" : "2");
  wait_for_steps();
  kill(ranks[1], SIGSTOP);
  for (int r = 0; r < PIPE_RANKS; r++)
    if (r != 1) codes[r] = finish(ranks[r]);
  kill(ranks[1], SIGKILL);
  waitpid(ranks[1], &status, 0);
  for (int r = 0; r < PIPE_RANKS; r++)
    ck_assert_msg(codes[r] == (r == 1 ? 0 : 4), "rank %d: %d: %s", r, codes[r], output);
  expect("error: rank ");
  if (strstr(output, "rank 0: an operation between ranks did not end within 2 s")) {
    expect("\n  at step ");
    expect(" (pipe.dtm:");
  } else {
    expect("rank 1 gave no sign of life for 2 s");
  }
  ck_assert_msg(!strstr(output, "gpusim:"), "%s", output);
}
END_TEST

/* All ranks agree on the step after which they stop. */
START_TEST(asked_to_stop) {
  pid_t ranks[RANKS], job = start(ranks);
  kill(job, SIGINT);
  ck_assert_msg(finish(job) == 128 + SIGINT, "%s", output);
  ck_assert_msg(!strstr(output, "error:") && !strstr(output, "gpusim:"), "%s", output);
}
END_TEST

/* 0 when the program is there; 1: there is no NVRTC; else 2. */
static int compile(void) {
  FILE *x = work_npy("x.npy", "<f4", "(60, 4)");
  for (int i = 0; x && i < 240; i++) fwrite(&(float){(float)(i % 7)}, sizeof(float), 1, x);
  if (x) fclose(x);
  work_write("p.dtm", program);
  work_write("pipe.dtm", pipeline);
  int code = work_run(output, sizeof output,
                      "$DTMC p.dtm --target=cuda:compute_80 -o p && "
                      "$DTMC pipe.dtm --target=cuda:compute_80 -o pipe");
  if (code) fprintf(stderr, "%s\n", output);
  return code == 0 ? 0 : strstr(output, "NVRTC") ? 1 : 2;
}

int main(void) {
  if (!getenv("GPUSIM")) return suite_skip("GPUSIM does not name the simulator");
  if (!work_begin()) return 2;
  int status = compile();
  if (status) {
    work_end();
    return status == 1 ? suite_skip(output) : status;
  }
  if (chdir(work_folder()) != 0) return 2;
  Suite *suite = suite_create("watchdog");
  TCase *t = tcase_create("ranks");
  tcase_set_timeout(t, 3 * PATIENCE_S);
  tcase_add_test(t, stopped);
  tcase_add_test(t, killed);
  tcase_add_test(t, killed_and_told_late);
  tcase_add_test(t, nobody_ends_ranks);
  tcase_add_test(t, stopped_in_a_pipeline);
  tcase_add_test(t, asked_to_stop);
  suite_add_tcase(suite, t);
  status = suite_run(suite);
  return work_end() ? status : 2;
}
