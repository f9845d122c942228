/* Compile times of dtmc: whole processes, minimum and median of many runs, as a table.
 *
 *   bench_compile_time [DTMC] [RUNS]
 *
 * The rows are the goals of the project: checking the sample, compiling it, checking a stack of 126
 * blocks on an 8192-rank mesh, and compiling it against the same stack with 2 blocks; the sample
 * Llama with the dims of Llama 3.1 405B on dp 64 x pp 16 x tp 8, checked, through all passes but
 * code generation (--emit=schedule prints behind the plan), and compiled.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "table.h"

extern char **environ;

enum { MAX_RUNS = 101 };

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct Timing {
  double minimum, median; /* seconds */
  long peak_kib;
} Timing;

static Timing measure(const char *const *argv, int runs) {
  static double seconds[MAX_RUNS];
  Timing t = {0};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  for (int r = -1; r < runs; r++) { /* one run to warm the page cache */
    pid_t child;
    double begin = bench_now();
    if (posix_spawn(&child, argv[0], &quiet, NULL, (char *const *)argv, environ) != 0) {
      perror(argv[0]);
      exit(1);
    }
    int status;
    struct rusage usage;
    wait4(child, &status, 0, &usage);
    if (status != 0) {
      fprintf(stderr, "%s %s: failed with status %d\n", argv[0], argv[1], status);
      exit(1);
    }
    if (r >= 0) seconds[r] = bench_now() - begin;
    if (usage.ru_maxrss > t.peak_kib) t.peak_kib = usage.ru_maxrss;
  }
  posix_spawn_file_actions_destroy(&quiet);
  qsort(seconds, (size_t)runs, sizeof *seconds, ascending);
  t.minimum = seconds[0];
  t.median = seconds[runs / 2];
  return t;
}

static Timing row(const char *what, const char *goal, const char *const *argv, int runs) {
  Timing t = measure(argv, runs);
  printf("| %-30s | %7.2f | %7.2f | %8.1f | %-15s |\n", what, 1e3 * t.minimum, 1e3 * t.median,
         (double)t.peak_kib / 1024, goal);
  fflush(stdout);
  return t;
}

/* `dtmc [check] llama.dtm ... [last ...]` with the published dims of Llama 3.1 405B. */
static const char *const *llama_405b(const char *dtmc, const char *command, const char *option,
                                     const char *value) {
  static const char sample[] = DTM_BENCH "/../../samples/llama/llama.dtm";
  static const char *const dims[] = {"vocab=128256",   "dim=16384",       "layers=126",
                                     "heads=128",      "kv_heads=8",      "ffn=53248",
                                     "theta=500000.0", "rope_factor=8.0", "trained=8192",
                                     "seq=8192",       "batch=1024",      "microbatches=16"};
  enum { NDIMS = sizeof dims / sizeof *dims };
  static const char *argv[2 * NDIMS + 8];
  int n = 0;
  argv[n++] = dtmc;
  if (command) argv[n++] = command;
  argv[n++] = sample;
  argv[n++] = "--mesh";
  argv[n++] = "dp=64,pp=16,tp=8";
  for (int i = 0; i < NDIMS; i++) {
    argv[n++] = "-D";
    argv[n++] = dims[i];
  }
  if (option) argv[n++] = option;
  if (value) argv[n++] = value;
  argv[n] = NULL;
  return argv;
}

int main(int argc, char **argv) {
  const char *dtmc = argc > 1 ? argv[1] : DTM_DTMC;
  int runs = argc > 2 ? atoi(argv[2]) : 21;
  if (runs < 1 || runs > MAX_RUNS) runs = 21;
  const char *sample = DTM_BENCH "/../../samples/fashion_mlp/fashion_mlp.dtm";
  const char *stack = DTM_BENCH "/stack.dtm";
  char out[] = "/tmp/dtm-bench-XXXXXX";
  if (mkstemp(out) < 0) return 1;

  table_head("| %-30s | %7s | %7s | %8s | %-15s |", "", "min ms", "median", "peak MiB", "goal");
  row("check fashion_mlp", "5 ms", (const char *[]){dtmc, "check", sample, NULL}, runs);
  row("compile fashion_mlp", "250 ms", (const char *[]){dtmc, sample, "-o", out, NULL}, runs);
  row("check 126 blocks, 8192 ranks", "50 ms",
      (const char *[]){dtmc, "check", stack, "-D", "layers=126", NULL}, runs);
  Timing two = row("compile 2 blocks, 8192 ranks", "",
                   (const char *[]){dtmc, stack, "-D", "layers=2", "-o", out, NULL}, runs);
  Timing all = row("compile 126 blocks, 8192 ranks", "1.5 x 2 blocks",
                   (const char *[]){dtmc, stack, "-D", "layers=126", "-o", out, NULL}, runs);
  row("check Llama 405B, 8192 ranks", "100 ms, 100 MiB", llama_405b(dtmc, "check", NULL, NULL),
      runs);
  row("... all passes but code", "1000 ms", llama_405b(dtmc, NULL, "--emit=schedule", NULL), runs);
  row("... compile", "", llama_405b(dtmc, NULL, "-o", out), runs < 3 ? runs : 3);
  printf("\n126 blocks over 2 blocks: minimum %.2f, median %.2f\n", all.minimum / two.minimum,
         all.median / two.median);
  unlink(out);
  return 0;
}
