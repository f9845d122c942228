/* Models on simulated GPUs: see programs.h. Rows take turns in the order in which streams run; the
 * files that ranks share lie in the folder of the test. What the simulator reports is a failure,
 * also where the program went on. */
#include "gpusim/programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/work.h"

/* Whether there is an NVRTC; prints why not. */
static bool can_compile(void) {
  static char log[1 << 14];
  work_write("one.dtm", "");
  work_run(log, sizeof log, "%s one.dtm --target=cuda:compute_80 -o one", getenv("DTMC"));
  if (!strstr(log, "NVRTC")) return true;
  printf("skipped: %s\n", log);
  return false;
}

int programs_run(const char *suite, const LayoutsModel *models) {
  static char environment[2][4096];
  static const char *const orders[] = {"late", "early"};
  const char *gpusim = getenv("GPUSIM");
  if (!gpusim) {
    fprintf(stderr, "GPUSIM must name the simulator\n");
    return 2;
  }
  if (!work_begin()) return 2;
  bool can = can_compile();
  if (!work_end()) return 2;
  if (!can) return PROGRAMS_SKIPPED;
  for (int i = 0; i < 2; i++)
    snprintf(environment[i], sizeof *environment,
             "TMPDIR=. GPUSIM_ASYNC=%s DTM_CUDA_DRIVER=%s DTM_CUBLASLT=%s DTM_NCCL=%s", orders[i],
             gpusim, gpusim, gpusim);
  const LayoutsTarget target = {.flags = "--target=cuda:compute_80",
                                .environment = {environment[0], environment[1]},
                                .complaint = "gpusim:",
                                .steps = 5,
                                .gpu = true};
  return layouts_run_on(&target, suite, models);
}
