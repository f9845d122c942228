/* Undoing OMP_PROC_BIND for forked ranks: see affinity.h. */
#include "core/affinity.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The main thread is pinned already: its former mask is the union of all places. */
static void restore_mask(void) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); place++) {
    int n = omp_get_place_num_procs(place), *ids = malloc((size_t)(n > 0 ? n : 1) * sizeof *ids);
    if (ids) {
      omp_get_place_proc_ids(place, ids);
      for (int i = 0; i < n; i++) {
        if (ids[i] < CPU_SETSIZE) {
          CPU_SET(ids[i], &all);
        }
      }
    }
    free(ids);
  }
  if (CPU_COUNT(&all) > 0) {
    sched_setaffinity(0, sizeof all, &all);
  }
}

/* The words of our command line, as the kernel keeps them. NULL when they cannot be read. */
static char **command_line(void) {
  FILE *f = fopen("/proc/self/cmdline", "r");
  char *text = NULL;
  size_t room = 0;
  ssize_t n = f ? getdelim(&text, &room, EOF, f) : -1;
  if (f) {
    fclose(f);
  }
  char **argv = n > 0 ? calloc((size_t)n + 1, sizeof *argv) : NULL;
  for (size_t at = 0, i = 0; argv && at < (size_t)n; at += strlen(text + at) + 1) {
    argv[i++] = text + at;
  }
  return argv;
}

void dtm_rt_affinity_unbind(void) {
  static const char mark[] = "DTM_UNBOUND"; /* once is enough, whatever OpenMP thinks of it */
  if (omp_get_proc_bind() == omp_proc_bind_false || getenv(mark)) {
    return;
  }
  char **argv = command_line();
  if (!argv) {
    return;
  }
  restore_mask();
  setenv(mark, "1", 1);
  setenv("OMP_PROC_BIND", "false", 1);
  unsetenv("OMP_PLACES");
  unsetenv("GOMP_CPU_AFFINITY");
  fflush(NULL);
  execv("/proc/self/exe", argv); /* returns only when it failed: slower, but it works */
}
