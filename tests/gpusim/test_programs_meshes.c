/* Programs of e2e/programs, on simulated GPUs. */
#include "gpusim/programs.h"

int main(void) {
  return programs_run_meshes("programs_meshes");
}
