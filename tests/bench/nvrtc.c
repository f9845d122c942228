/* What NVRTC takes for the kernels of samples/llama: each distinct one by itself, and whole
 * compiles with an empty and a filled cache, as tables.
 *
 *   bench_nvrtc [DTMC] [RUNS]
 *
 * Kernels are compiled one after the other without a cache, in a process of its own each as dtmc
 * does, for one chip (sm_90); the least processor time of RUNS (3) counts. Whole compiles are dtmc
 * with that target.
 */
#include <ftw.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "codegen/nvrtc.h"

extern char **environ;

enum { CHIP = 90, SHOWN = 20 };
#define SAMPLE DTM_BENCH "/../../samples/llama/llama.dtm"

typedef struct Row {
  NvrtcJob job;
  const char *name;
  bool library;
  double seconds;
} Row;

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "bench_nvrtc: %s\n", what);
  exit(1);
}

/* --- kernels -------------------------------------------------------------------------------------
 */

static int slower(const void *pa, const void *pb) {
  const Row *a = pa, *b = pb;
  return a->seconds < b->seconds ? 1 : a->seconds > b->seconds ? -1 : strcmp(a->name, b->name);
}

static void print_row(const char *name, int count, double seconds, size_t lines, size_t ptx,
                      size_t cubin) {
  printf("| %-34s | %7d | %7.0f | %6zu | %8.1f | %9.1f |\n", name, count, 1e3 * seconds, lines,
         (double)ptx / 1024, (double)cubin / 1024);
}

static size_t lines_of(const char *text) {
  size_t n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

static void print_sum(const Row *rows, uint32_t n, int which, const char *name) {
  double seconds = 0;
  size_t lines = 0, ptx = 0, cubin = 0;
  int count = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (which >= 0 && rows[i].library != (which == 1)) continue;
    count++;
    seconds += rows[i].seconds;
    lines += lines_of(rows[i].job.text);
    ptx += rows[i].job.ptx_size;
    cubin += rows[i].job.cubin_size;
  }
  print_row(name, count, seconds, lines, ptx, cubin);
}

/* Processor time of the processes that ended, in seconds: other work on the machine changes it
 * little. */
static double spent(void) {
  struct rusage u;
  getrusage(RUSAGE_CHILDREN, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void measure(Arena *arena, Nvrtc *nvrtc, Row *r, int runs) {
  const char *error = NULL;
  r->seconds = INFINITY;
  for (int i = 0; i < runs; i++) {
    double begin = spent();
    if (!nvrtc_compile(nvrtc, arena, &r->job, 1, &error)) fail(error);
    if (spent() - begin < r->seconds) r->seconds = spent() - begin;
  }
}

static void kernels(Nvrtc *nvrtc, const char *library, int runs) {
  Session s;
  Compilation c;
  const char *error = NULL;
  if (!bench_compile(&s, &c, SAMPLE, NULL, 0, STAGE_PLAN)) exit(1);
  const CudaOptions options = {.sources = &s.sources, .library = library};
  CudaProgram *p = cuda_program(&s.arena, c.kernels.kernels.data, c.kernels.kernels.len,
                                c.plan->image, c.plan->image_size, &options, &error);
  if (!p) fail(error);
  uint32_t n = p->modules.len;
  Row *rows = ARENA_ARRAY(&s.arena, Row, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    const CudaModule *m = &p->modules.data[i];
    rows[i] = (Row){.name = m->name, .library = !m->kernel};
    rows[i].job = (NvrtcJob){.file = m->file,
                             .what = m->name,
                             .text = m->bare,
                             .headers = p->headers.data,
                             .nheaders = p->headers.len,
                             .arch = CHIP,
                             .binary = true,
                             .exact = m->kernel != NULL};
    measure(&s.arena, nvrtc, &rows[i], runs);
  }
  qsort(rows, n, sizeof *rows, slower);
  table_head("| %-34s | %7s | %7s | %6s | %8s | %9s |", "", "kernels", "cpu ms", "lines", "PTX KiB",
             "cubin KiB");
  for (uint32_t i = 0; i < n && i < SHOWN; i++)
    print_row(rows[i].name, 1, rows[i].seconds, lines_of(rows[i].job.text), rows[i].job.ptx_size,
              rows[i].job.cubin_size);
  if (n > SHOWN) print_sum(rows + SHOWN, n - SHOWN, -1, "the others");
  print_sum(rows, n, 0, "generated, in all");
  print_sum(rows, n, 1, "of the library, in all");
  print_row("median", 1, rows[n / 2].seconds, lines_of(rows[n / 2].job.text),
            rows[n / 2].job.ptx_size, rows[n / 2].job.cubin_size);
  arena_free(&s.arena);
}

/* --- whole compiles ------------------------------------------------------------------------------
 */

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at) {
  (void)s, (void)type, (void)at;
  return remove(path);
}

typedef struct Compile {
  double seconds, spent; /* by the clock, of processors */
} Compile;

static Compile compile(const char *dtmc, const char *out) {
  char *argv[] = {(char *)(uintptr_t)dtmc, SAMPLE, "--target=cuda:sm_90", "-o",
                  (char *)(uintptr_t)out,  NULL};
  pid_t child;
  int status;
  double begin = bench_now(), before = spent();
  if (posix_spawn(&child, dtmc, NULL, NULL, argv, environ) != 0) fail("dtmc cannot be started");
  waitpid(child, &status, 0);
  if (status) fail("dtmc fails");
  return (Compile){bench_now() - begin, spent() - before};
}

static void keep_least(Compile *least, Compile c) {
  if (c.seconds < least->seconds) least->seconds = c.seconds;
  if (c.spent < least->spent) least->spent = c.spent;
}

static void whole(const char *dtmc, int runs) {
  char folder[] = "/tmp/dtm-bench-XXXXXX", cache[64], out[64];
  Compile cold = {INFINITY, INFINITY}, warm = cold;
  if (!mkdtemp(folder)) fail("there is no folder");
  snprintf(cache, sizeof cache, "%s/cache", folder);
  snprintf(out, sizeof out, "%s/train", folder);
  setenv("DTM_CACHE", cache, 1);
  for (int i = 0; i < runs; i++) {
    nftw(cache, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    keep_least(&cold, compile(dtmc, out));
    for (int k = 0; k < 3; k++) keep_least(&warm, compile(dtmc, out));
  }
  nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  printf("\n");
  table_head("| %-35s | %7s | %11s | %-7s |", "", "s", "processor s", "goal");
  printf("| %-35s | %7.2f | %11.2f | %-7s |\n", "compile llama, nothing in the cache", cold.seconds,
         cold.spent, "8 s");
  printf("| %-35s | %7.2f | %11.2f | %-7s |\n", "compile llama, all in the cache", warm.seconds,
         warm.spent, "1.5 s");
}

int main(int argc, char **argv) {
  const char *dtmc = argc > 1 ? argv[1] : DTM_DTMC, *error = NULL;
  int runs = argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : 3;
  Arena arena;
  arena_init(&arena);
  setenv("DTM_CACHE", "", 1);
  Nvrtc *nvrtc = nvrtc_open(&arena, &error);
  if (!nvrtc) {
    printf("%s\n", error);
    return 0;
  }
  printf("NVRTC %s, one kernel at a time, sm_%d\n\n", nvrtc_version(nvrtc), CHIP);
  kernels(nvrtc, DTM_LIBRARY, runs);
  whole(dtmc, runs);
  arena_free(&arena);
  return 0;
}
