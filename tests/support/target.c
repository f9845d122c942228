/* The place where programs run: see target.h. */
#include "support/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, GPU_STEPS = 5, GPU_HALVES = 1, SKIPPED = 77 };

static char here[1024], report[1024];

bool target_gpus(void) {
  return *report != 0;
}

const char *target_here(void) {
  return target_gpus() ? here : getenv("DTMC");
}

const char *target_dtmc(const char *mesh) {
  return mesh && *mesh ? getenv("DTMC") : target_here();
}

int target_steps(int steps) {
  return target_gpus() && steps > GPU_STEPS ? GPU_STEPS : steps;
}

int target_halves(int n) {
  return target_gpus() && n > GPU_HALVES ? GPU_HALVES : n;
}

bool target_has(const char *mesh) {
  int ranks = 1;
  for (const char *at = mesh; (at = strchr(at, '=')) != NULL; at++) ranks *= atoi(at + 1);
  return !target_gpus() || ranks <= DEVICES;
}

/* Compiles a program of one kernel: 0, or what the test is to end with after a message, which is
 * SKIPPED where there is no NVRTC. */
static int try_compiler(const char *folder) {
  char command[4096], text[4096];
  snprintf(command, sizeof command,
           "cd %s && printf 'infer {\\n  print(sum(arange(f32[4])))\\n}\\n' >probe.dtm && "
           "$DTMC probe.dtm -o probe 2>&1 && rm probe probe.dtm",
           folder);
  FILE *p = popen(command, "r");
  size_t n = p ? fread(text, 1, sizeof text - 1, p) : 0;
  text[n] = 0;
  if (p && pclose(p) == 0) return 0;
  bool none = strstr(text, "NVRTC") != NULL;
  printf("%s: %s\n", none ? "skipped" : "cannot compile for GPUs", text);
  return none ? SKIPPED : 2;
}

bool target_begin(const char *folder) {
  const char *gpusim = getenv("GPUSIM_TARGET"), *dtmc = getenv("DTMC");
  char compiler[1100];
  if (!gpusim || !*gpusim) return true;
  snprintf(here, sizeof here, "%s", dtmc);
  snprintf(compiler, sizeof compiler, "%s --target=cuda:compute_80", dtmc);
  snprintf(report, sizeof report, "%s/gpusim.report", folder);
  const char *const variables[][2] = {
      {"DTMC", compiler},   {"DTM_CUDA_DRIVER", gpusim}, {"DTM_CUBLASLT", gpusim},
      {"DTM_NCCL", gpusim}, {"GPUSIM_REPORT", report},   {"TMPDIR", folder},
  };
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (setenv(variables[i][0], variables[i][1], 1)) return false;
  int code = try_compiler(folder);
  if (code == 0) return true;
  snprintf(compiler, sizeof compiler, "rm -rf %s", folder);
  exit(system(compiler) == 0 ? code : 2);
}

/* The same command has the same turn in every run of a test. */
void target_before(const char *command) {
  if (!target_gpus()) return;
  unsigned sum = 0;
  for (const char *c = command; *c; c++) sum += (unsigned char)*c;
  setenv("GPUSIM_ASYNC", sum & 1 ? "early" : "late", 1);
}

bool target_complains(void) {
  char text[4096];
  FILE *f = target_gpus() ? fopen(report, "r") : NULL;
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  if (n) fprintf(stderr, "%s", text);
  return n > 0;
}
