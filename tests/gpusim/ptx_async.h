/* Copies that go on beside a warp: cp.async. A copy reads its source at once and writes its
 * destination when its lane waits for it; till then nobody may touch the destination. */
#ifndef DTM_TESTS_GPUSIM_PTX_ASYNC_H
#define DTM_TESTS_GPUSIM_PTX_ASYNC_H

#include "ptx_code.h"

/* cp.async: arg[0] the destination's address (shared), memory the source; imm bytes in arg[2],
 * those that are read in row arg[1] or PTX_NO_ROW for all. */
PtxRun ptx_run_async_copy;
PtxRun ptx_run_async_commit; /* cp.async.commit_group */
PtxRun ptx_run_async_wait;   /* cp.async.wait_group imm, or wait_all for imm < 0 */

/* What nobody waited for when the block ended arrives. */
void ptx_async_end(PtxWarp *warp);
void ptx_async_free(PtxWarp *warp);

#endif
