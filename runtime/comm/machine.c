/* What this process may use of the machine: processors and memory, within its control group. */
#include "comm/local.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First line of a file of our control group (cgroup v2) in `text`; false when there is none. */
static bool cgroup_read(const char *file, char *text, size_t size) {
  char line[512], path[600] = "";
  FILE *f = fopen("/proc/self/cgroup", "r");
  if (!f) {
    return false;
  }
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, "0::", 3) == 0) {
      line[strcspn(line, "\n")] = 0;
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", line + 3, file);
    }
  }
  fclose(f);
  f = path[0] ? fopen(path, "r") : NULL;
  bool found = f && fgets(text, (int)size, f);
  if (f) {
    fclose(f);
  }
  return found;
}

int dtm_rt_cores(void) {
  int cores = omp_get_num_procs(); /* of the process, also when OpenMP has pinned this thread */
  char text[64];
  long quota, period;
  /* "max 100000" has no first number: no limit. */
  if (cgroup_read("cpu.max", text, sizeof text) && sscanf(text, "%ld %ld", &quota, &period) == 2 &&
      quota > 0 && period > 0 && (quota + period - 1) / period < cores) {
    cores = (int)((quota + period - 1) / period);
  }
  return cores > 0 ? cores : 1;
}

void dtm_rt_memory(uint64_t *total, uint64_t *available) {
  *total = *available = UINT64_MAX;
  FILE *f = fopen("/proc/meminfo", "r");
  char name[64], text[64];
  unsigned long long kib, swap = 0, all = 0, left = 0;
  while (f && fscanf(f, "%63s %llu%*[^\n]", name, &kib) == 2) {
    all = strcmp(name, "MemTotal:") == 0 ? kib : all;
    left = strcmp(name, "MemAvailable:") == 0 ? kib : left;
    swap = strcmp(name, "SwapFree:") == 0 ? kib : swap;
  }
  if (f) {
    fclose(f);
  }
  if (all) {
    *total = (all + swap) * 1024;
    *available = (left + swap) * 1024;
  }
  if (cgroup_read("memory.max", text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
    uint64_t limit = strtoull(text, NULL, 10);
    *total = limit < *total ? limit : *total;
    *available = limit < *available ? limit : *available;
  }
}
