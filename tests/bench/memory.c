/* The memory of a training step: peak resident memory of a compiled program beside the tensors it
 * cannot do without.
 *
 *   bench_memory [DTMC] [HIDDEN] [BATCH]
 *
 * The program (mlp.dtm) is compiled by dtmc and trained for ten steps in a process of its own,
 * whose peak the kernel reports: code, libraries, and the data file, which is one batch.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

extern char **environ;

static _Noreturn void fail(const char *what) {
  perror(what);
  exit(1);
}

/* Peak resident bytes of a program run to its end. */
static uint64_t peak_of(char *const *argv) {
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child;
  errno = posix_spawn(&child, argv[0], &quiet, NULL, argv, environ);
  if (errno) fail(argv[0]);
  posix_spawn_file_actions_destroy(&quiet);
  int status;
  struct rusage usage;
  if (wait4(child, &status, 0, &usage) < 0) fail("wait");
  if (status != 0) {
    fprintf(stderr, "%s: failed with status %d\n", argv[0], status);
    exit(1);
  }
  return (uint64_t)usage.ru_maxrss * 1024;
}

/* A .npy file of rows x columns elements, all zero but every seventh. */
static void write_npy(const char *path, const char *type, size_t bytes, int64_t rows,
                      int64_t columns) {
  char header[128];
  int n = snprintf(header + 10, sizeof header - 10,
                   "{'descr': '%s', 'fortran_order': False, "
                   "'shape': (%lld, ",
                   type, (long long)rows);
  if (columns)
    n += snprintf(header + 10 + n, sizeof header - 10 - (size_t)n, "%lld", (long long)columns);
  n += snprintf(header + 10 + n, sizeof header - 10 - (size_t)n, ")}");
  memcpy(header, "\x93NUMPY\1\0", 8);
  memset(header + 10 + n, ' ', sizeof header - 11 - (size_t)n);
  header[127] = '\n';
  header[8] = 118;
  header[9] = 0;
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(header, 1, sizeof header, f) != sizeof header) fail(path);
  static const unsigned char zero[8], one[8] = {0, 0, 0x80, 0x3f}, label[8] = {1};
  for (int64_t i = 0; i < rows * (columns ? columns : 1); i++)
    fwrite(i % 7 ? zero : columns ? one : label, 1, bytes, f);
  if (fclose(f) != 0) fail(path);
}

static void row(const char *dtmc, const char *folder, const ConfigOverride *defines, uint32_t n) {
  Session s;
  Compilation c;
  if (!bench_compile(&s, &c, DTM_BENCH "/mlp.dtm", defines, n, STAGE_PLAN)) exit(1);
  char *program = arena_printf(&s.arena, "%s/train", folder);
  char *argv[16];
  uint32_t argc = 0;
  argv[argc++] = (char *)(uintptr_t)dtmc;
  argv[argc++] = DTM_BENCH "/mlp.dtm";
  argv[argc++] = "-o";
  argv[argc++] = program;
  for (uint32_t i = 0; i < n; i++)
    argv[argc++] = arena_printf(&s.arena, "-D%s=%s", defines[i].name, defines[i].value);
  argv[argc] = NULL;
  peak_of(argv);
  char *x = arena_printf(&s.arena, "x=%s/x.npy", folder);
  char *y = arena_printf(&s.arena, "y=%s/y.npy", folder);
  uint64_t peak = peak_of((char *[]){program, "--data", x, "--data", y, "--threads", "1", NULL});
  unlink(program);
  const Plan *p = c.plan;
  const double mib = 1048576;
  uint64_t params = p->variables[VAR_PARAM], state = p->variables[VAR_OPTIMIZER];
  uint64_t live = p->blocks[BLOCK_TRAIN].live_bound, arena = p->arena_size;
  uint64_t sum = 2 * params + state + live;
  printf("| %-5s | %6.1f | %5.1f | %5.1f | %5.1f | %5.1f | %5.3f | %5.1f | %5.3f |\n",
         strcmp(defines[0].value, "true") == 0 ? "adamw" : "sgd", (double)params / mib,
         (double)state / mib, (double)live / mib, (double)sum / mib, (double)peak / mib,
         (double)peak / (double)sum, (double)arena / mib, (double)peak / (double)arena);
  arena_free(&s.arena);
}

int main(int argc, char **argv) {
  const char *dtmc = argc > 1 ? argv[1] : DTM_DTMC;
  const char *hidden = argc > 2 ? argv[2] : "2048", *batch = argc > 3 ? argv[3] : "512";
  char folder[] = "/tmp/dtm-bench-XXXXXX", x[64], y[64];
  if (!mkdtemp(folder)) fail(folder);
  snprintf(x, sizeof x, "%s/x.npy", folder);
  snprintf(y, sizeof y, "%s/y.npy", folder);
  write_npy(x, "<f4", 4, atoll(batch), 784);
  write_npy(y, "<i8", 8, atoll(batch), 0);
  printf("MLP 784-%s-%s-10, batch %s, f32, one rank, one thread; MiB\n\n", hidden, hidden, batch);
  table_head("| %-5s | %6s | %5s | %5s | %5s | %5s | %5s | %5s | %5s |", "", "params", "state",
             "live", "sum", "peak", "ratio", "arena", "ratio");
  for (int adam = 0; adam < 2; adam++) {
    const ConfigOverride defines[] = {
        {"adam", adam ? "true" : "false"}, {"hidden", hidden}, {"batch", batch}};
    row(dtmc, folder, defines, 3);
  }
  unlink(x);
  unlink(y);
  rmdir(folder);
  return 0;
}
