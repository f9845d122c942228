/* The tables of ptx_lanes.inc, one for each instruction set of the host; they end in a row without
 * name. */
#ifndef DTM_TESTS_GPUSIM_PTX_LANES_H
#define DTM_TESTS_GPUSIM_PTX_LANES_H

#include "ptx_code.h"

extern const PtxRow PTX_LANES_BASE[];
#ifdef PTX_HAVE_V3 /* x86-64-v3: AVX2, FMA, F16C */
extern const PtxRow PTX_LANES_V3[];
#endif

/* Whether this machine has them, and PTX_PORTABLE in the environment does not ask for the others.
 */
bool ptx_lanes_wide(void);
/* The fastest that this machine runs. */
const PtxRow *ptx_lanes_table(void);

#endif
