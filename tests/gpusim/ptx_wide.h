/* Loads and stores of whole warps, once for each instruction set of the host: ptx_wide.inc. */
#ifndef DTM_TESTS_GPUSIM_PTX_WIDE_H
#define DTM_TESTS_GPUSIM_PTX_WIDE_H

#include "ptx_code.h"

/* What the decoder puts into PtxOp.run. */
typedef struct PtxWide {
  PtxRun *load, *store;
  PtxRun *load_param; /* a parameter of the kernel at a place known when it was decoded */
} PtxWide;

extern const PtxWide PTX_WIDE_BASE;
#ifdef PTX_HAVE_V3
extern const PtxWide PTX_WIDE_V3;
#endif

/* The fastest that this machine runs. */
const PtxWide *ptx_wide(void);

#endif
