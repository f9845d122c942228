/* Where the programs of a test run: on this machine, or on simulated GPUs where GPUSIM_TARGET in
 * the environment names the simulator (tests/gpusim). There $DTMC, for every command of the test,
 * is the compiler with what makes it compile for GPUs; work_run (work.h) fails when the simulator
 * reports anything, and its commands take turns in the order in which streams run. */
#ifndef DTM_TESTS_TARGET_H
#define DTM_TESTS_TARGET_H

#include <stdbool.h>

/* Of work_begin: sets the environment of all commands; `folder` is the test's own. Where GPUs are
 * asked for and there is no NVRTC, says so and ends the program as one that was skipped. */
bool target_begin(const char *folder);
bool target_gpus(void);

/* The compiler for one rank on this machine, which others are compared with. */
const char *target_here(void);
/* The compiler of mesh `mesh`: of one rank ("" or NULL) on this machine. */
const char *target_dtmc(const char *mesh);
/* How many steps of a program that trains for `steps` are compared: the first 5 on GPUs. */
int target_steps(int steps);
/* How many of n meshes are compared in halves: on GPUs, whose kernels of halves are others and dear
 * to compile, the first. */
int target_halves(int n);
/* Whether the target has a rank for each of a mesh: "dp=2,tp=3". GPUs are 8. */
bool target_has(const char *mesh);

/* Of work_run: before a command, and whether the simulator found something to complain of, which is
 * printed. */
void target_before(const char *command);
bool target_complains(void);

#endif
