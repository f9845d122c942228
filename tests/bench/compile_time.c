/* Compile times of dtmc: whole processes, minimum and median of many runs, as a table.
 *
 *   bench_compile_time [DTMC] [RUNS]
 *
 * The rows are the goals of the project: checking the sample, compiling it, checking a stack of 126
 * blocks on an 8192-rank mesh, and compiling it against the same stack with 2 blocks.
 */
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
  for (int r = -1; r < runs; r++) { /* one run to warm the page cache */
    pid_t child;
    double begin = bench_now();
    if (posix_spawn(&child, argv[0], NULL, NULL, (char *const *)argv, environ) != 0) {
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
  qsort(seconds, (size_t)runs, sizeof *seconds, ascending);
  t.minimum = seconds[0];
  t.median = seconds[runs / 2];
  return t;
}

static Timing row(const char *what, const char *goal, const char *const *argv, int runs) {
  Timing t = measure(argv, runs);
  printf("| %-30s | %7.2f | %7.2f | %8.1f | %-14s |\n", what, 1e3 * t.minimum, 1e3 * t.median,
         (double)t.peak_kib / 1024, goal);
  fflush(stdout);
  return t;
}

int main(int argc, char **argv) {
  const char *dtmc = argc > 1 ? argv[1] : DTM_DTMC;
  int runs = argc > 2 ? atoi(argv[2]) : 21;
  if (runs < 1 || runs > MAX_RUNS) runs = 21;
  const char *sample = DTM_BENCH "/../../samples/fashion_mlp/fashion_mlp.dtm";
  const char *stack = DTM_BENCH "/stack.dtm";
  char out[] = "/tmp/dtm-bench-XXXXXX";
  if (mkstemp(out) < 0) return 1;

  table_head("| %-30s | %7s | %7s | %8s | %-14s |", "", "min ms", "median", "peak MiB", "goal");
  row("check fashion_mlp", "5 ms", (const char *[]){dtmc, "check", sample, NULL}, runs);
  row("compile fashion_mlp", "250 ms", (const char *[]){dtmc, sample, "-o", out, NULL}, runs);
  row("check 126 blocks, 8192 ranks", "50 ms",
      (const char *[]){dtmc, "check", stack, "-D", "layers=126", NULL}, runs);
  Timing two = row("compile 2 blocks, 8192 ranks", "",
                   (const char *[]){dtmc, stack, "-D", "layers=2", "-o", out, NULL}, runs);
  Timing all = row("compile 126 blocks, 8192 ranks", "1.5 x 2 blocks",
                   (const char *[]){dtmc, stack, "-D", "layers=126", "-o", out, NULL}, runs);
  printf("\n126 blocks over 2 blocks: minimum %.2f, median %.2f\n", all.minimum / two.minimum,
         all.median / two.median);
  unlink(out);
  return 0;
}
