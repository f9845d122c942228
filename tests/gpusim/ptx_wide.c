/* Loads and stores for any host, and the choice. */
#define WIDE PTX_WIDE_BASE
#include "ptx_wide.inc"

#include "ptx_lanes.h"

const PtxWide *ptx_wide(void) {
#ifdef PTX_HAVE_V3
  if (ptx_lanes_wide()) return &PTX_WIDE_V3;
#endif
  return &PTX_WIDE_BASE;
}
