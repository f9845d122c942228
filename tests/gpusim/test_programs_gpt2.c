/* Part of the table of e2e/layouts.h, on simulated GPUs. */
#include "gpusim/programs.h"

int main(void) {
  return programs_run("programs_gpt2", layouts_gpt2);
}
