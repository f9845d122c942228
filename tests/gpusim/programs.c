/* Models on simulated GPUs: see programs.h. Rows take turns in the order in which streams run; the
 * files that ranks share lie in the folder of the test. What the simulator reports is a failure,
 * also where the program went on. */
#include "gpusim/programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e/meshes.h"

/* Whether there is an NVRTC; prints why not. */
static bool can_compile(void) {
  char text[4096];
  FILE *p = popen("d=$(mktemp -d) && $DTMC ../e2e/programs/mlp_relu.dtm --target=cuda:compute_80 "
                  "-o $d/out 2>&1; rm -rf $d",
                  "r");
  size_t n = p ? fread(text, 1, sizeof text - 1, p) : 0;
  text[n] = 0;
  if (p) pclose(p);
  if (!strstr(text, "NVRTC")) return true;
  printf("skipped: %s\n", text);
  return false;
}

/* Fills `target`; 0, or what the program is to return at once. */
static int prepare(LayoutsTarget *target) {
  static char environment[2][4096];
  static const char *const orders[] = {"late", "early"};
  const char *gpusim = getenv("GPUSIM");
  if (!gpusim) {
    fprintf(stderr, "GPUSIM must name the simulator\n");
    return 2;
  }
  if (!can_compile()) return PROGRAMS_SKIPPED;
  for (int i = 0; i < 2; i++)
    snprintf(environment[i], sizeof *environment,
             "TMPDIR=. GPUSIM_ASYNC=%s DTM_CUDA_DRIVER=%s DTM_CUBLASLT=%s DTM_NCCL=%s", orders[i],
             gpusim, gpusim, gpusim);
  *target = (LayoutsTarget){.flags = "--target=cuda:compute_80",
                            .environment = {environment[0], environment[1]},
                            .complaint = "gpusim:",
                            .steps = 5,
                            .gpu = true};
  return 0;
}

int programs_run(const char *suite, const LayoutsModel *models) {
  LayoutsTarget target;
  int code = prepare(&target);
  return code ? code : layouts_run_on(&target, suite, models);
}

int programs_run_meshes(const char *suite) {
  LayoutsTarget target;
  int code = prepare(&target);
  return code ? code : meshes_run(suite, &target);
}
