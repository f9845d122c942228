/* How near the memory plan comes to its bound, and what planning costs.
 *
 *   bench_arena [--write=FOLDER] [--seed=N] [--count=N] [FILE.dtm ...]
 *
 * One row per program block with buffers: the height of the arena above the variables over the
 * largest sum of buffers that are alive at once, which no plan can beat. Programs: the samples or
 * the files given, then generated ones, which --write keeps as files. Everything is compiled in
 * this process, as dtmc does it; planning times are the minimum of several.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "programs.h"

enum { REPEATS = 5 };

typedef struct Totals {
  uint32_t rows, above;
  double sum, worst;
} Totals;

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  if (!f) return false;
  bool ok = fputs(text, f) >= 0;
  return fclose(f) == 0 && ok;
}

/* The rows of one program. `what` names it, `about` describes it. */
static bool rows(const char *path, const char *what, const char *about, Totals *totals) {

  Session s;
  Compilation c;
  if (!bench_compile(&s, &c, path, NULL, 0, STAGE_PLAN)) {
    arena_free(&s.arena);
    return false;
  }
  const PlanOptions options = {.path = path, .compiler = "bench", .reuse = true};
  double best = 1e9;
  for (int r = 0; r < REPEATS; r++) {
    Arena arena;
    arena_init(&arena);
    double begin = bench_now();
    plan_run(&arena, c.program, c.fused, c.kernels.kernels.len, &options);
    double t = bench_now() - begin;
    if (t < best) best = t;
    arena_free(&arena);
  }
  for (int b = 0; b < BLOCK_COUNT; b++) {
    const PlanReport *report = &c.plan->blocks[b];
    if (!report->present || report->live_bound == 0) continue;
    double ratio = (double)report->height / (double)report->live_bound;
    printf("| %-22s | %-5s | %7u | %10.1f | %10.1f | %6.4f | %7.2f | %s |\n", what,
           block_name((BlockKind)b), report->actions, (double)report->live_bound / 1024,
           (double)report->height / 1024, ratio, 1e3 * best, about);
    totals->rows++;
    totals->above += ratio > 1.02;
    totals->sum += ratio;
    if (ratio > totals->worst) totals->worst = ratio;
  }
  arena_free(&s.arena);
  return true;
}

int main(int argc, char **argv) {
  const char *folder = NULL;
  uint64_t seed = 1;
  uint32_t count = 20;
  Totals totals = {0};
  bool ok = true, given = false;
  table_head("| %-22s | %-5s | %7s | %10s | %10s | %6s | %7s | %-14s |", "program", "block",
             "actions", "live KiB", "height KiB", "ratio", "plan ms", "what was drawn");
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--write=", 8) == 0)
      folder = argv[i] + 8;
    else if (strncmp(argv[i], "--seed=", 7) == 0)
      seed = strtoull(argv[i] + 7, NULL, 10);
    else if (strncmp(argv[i], "--count=", 8) == 0)
      count = (uint32_t)strtoul(argv[i] + 8, NULL, 10);
    else {
      ok &= rows(argv[i], file_name(argv[i]), "", &totals);
      given = true;
    }
  }
  glob_t samples;
  if (!given && glob(DTM_BENCH "/../../samples/*/*.dtm", 0, NULL, &samples) == 0) {
    for (size_t i = 0; i < samples.gl_pathc; i++)
      ok &= rows(samples.gl_pathv[i], file_name(samples.gl_pathv[i]), "", &totals);
    globfree(&samples);
  }
  char made[] = "/tmp/dtm-bench-XXXXXX";
  if (!folder && !mkdtemp(made)) {
    perror(made);
    return 1;
  }
  for (uint32_t n = 0; n < count; n++) {
    Arena arena;
    arena_init(&arena);
    GeneratedProgram p = generate_program(&arena, seed, n);
    char *path = arena_printf(&arena, "%s/%s-%u.dtm", folder ? folder : made, p.family, n);
    if (!write_text(path, p.text)) {
      perror(path);
      return 1;
    }
    ok &= rows(path, file_name(path), p.about, &totals);
    if (!folder) unlink(path);
    arena_free(&arena);
  }
  if (!folder) rmdir(made);
  printf("\n%u blocks: mean %.4f, worst %.4f, %u above 1.02\n", totals.rows,
         totals.sum / totals.rows, totals.worst, totals.above);
  return ok ? 0 : 1;
}
