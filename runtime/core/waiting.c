/* How threads wait: see waiting.h. */
#include "core/waiting.h"

#include "comm/local.h"

#include <stdlib.h>
#include <unistd.h>

/* Iterations with a pause instruction, of 40 to 140 cycles by processor. */
#define SPINS "10000"

void dtm_rt_waiting_settle(int threads, int32_t ranks_here, char **argv) {
  if (!argv || threads < 2 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) {
    return;
  }
  bool crowded = (int64_t)threads * ranks_here > dtm_rt_cores();
  if (setenv(crowded ? "OMP_WAIT_POLICY" : "GOMP_SPINCOUNT", crowded ? "passive" : SPINS, 1) != 0) {
    return;
  }
  char path[4096]; /* not the link itself: `ps` shows the name of what is executed */
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n > 0) {
    path[n] = 0;
    execv(path, argv);
  }
  /* It cannot be started again, such as when its file is gone: it is only slower. */
}
