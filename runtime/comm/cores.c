/* How many processors this process may use. */
#include "comm/local.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Processors' worth of time the control group may use (cgroup v2), rounded up; 0 = unlimited or
 * unknown. */
static int cgroup_quota(void) {
  char line[512], path[600] = "";
  FILE *f = fopen("/proc/self/cgroup", "r");
  if (!f) {
    return 0;
  }
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, "0::", 3) == 0) {
      line[strcspn(line, "\n")] = 0;
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", line + 3);
    }
  }
  fclose(f);
  f = path[0] ? fopen(path, "r") : NULL;
  if (!f) {
    return 0;
  }
  long quota, period;
  int found = fscanf(f, "%ld %ld", &quota, &period); /* "max 100000" has no number */
  fclose(f);
  return found == 2 && quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int dtm_rt_cores(void) {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : (int)sysconf(_SC_NPROCESSORS_ONLN);
  int quota = cgroup_quota();
  cores = quota && quota < cores ? quota : cores;
  return cores > 0 ? cores : 1;
}
