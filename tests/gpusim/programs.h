/* Programs compiled for CUDA, run on simulated GPUs: rows of the table of e2e/layouts.h. */
#ifndef DTM_TESTS_GPUSIM_PROGRAMS_H
#define DTM_TESTS_GPUSIM_PROGRAMS_H

#include "e2e/layouts.h"

/* What a CTest program returns that was skipped. */
enum { PROGRAMS_SKIPPED = 77 };

/* The main of a program that runs these models on simulated GPUs: losses of the first steps and
 * gradients of the first are those of one rank on the CPU. Without NVRTC it says why and is
 * skipped. */
int programs_run(const char *suite, const LayoutsModel *models);
/* The same of the programs of e2e/programs. */
int programs_run_meshes(const char *suite);

#endif
