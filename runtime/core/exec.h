/* The executor: walks the action table of a program on this rank.
 *
 * Integers that depend on the rank are found when it opens, and a device (device.h) prepares and
 * runs the actions; running a step allocates nothing.
 */
#ifndef DTM_RT_EXEC_H
#define DTM_RT_EXEC_H

#include "comm/comm.h"
#include "core/trace.h"
#include "device/device.h"
#include "runtime/abi/image.h"

typedef struct Exec Exec;

/* Opens the device that `code` is for. *exec is set, or NULL; 0 or the code to exit with. */
int dtm_rt_exec_open(const Image *image, const RtCode *code, RtComm *comm, RtTrace *trace,
                     Exec **exec);
void dtm_rt_exec_close(Exec *exec);

/* The block of integers that kernels read; set it before a run. */
AbiStep *dtm_rt_exec_step(Exec *exec);

/* Waits for all that was run, and reports what was wrong with it. */
int dtm_rt_exec_sync(Exec *exec);
/* What the device is and what the program takes of it, in one line; false: nothing to say. */
bool dtm_rt_exec_describe(Exec *exec, char *text, size_t size);

/* Actions [first, first + count) of the image's table. */
int dtm_rt_exec_run(Exec *exec, uint32_t first, uint32_t count, const RtHooks *hooks);

/* The looped actions of a program with stages, for all micro-batches of one batch: those that are
 * the same for all, then the list of this rank's stage. Input actions read micro-batch `micro` of
 * the block of integers. */
int dtm_rt_exec_run_stages(Exec *exec, const AbiProgram *program, const RtHooks *hooks);
/* Runs them again and looks, as dtm_rt_exec_find_nonfinite. */
int dtm_rt_exec_find_nonfinite_stages(Exec *exec, const AbiProgram *program, const RtHooks *hooks,
                                      uint32_t *action);

/* Runs them again, looking at every float they write. Returns the first action (index + 1) on any
 * rank whose result is not finite, 0 when there is none; then nothing is reported. Collective. */
int dtm_rt_exec_find_nonfinite(Exec *exec, uint32_t first, uint32_t count, const RtHooks *hooks,
                               uint32_t *action);

#endif
