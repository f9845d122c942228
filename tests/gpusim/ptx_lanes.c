/* Operations of lanes for any host, and the choice among the tables. */
#define TABLE PTX_LANES_BASE
#include "ptx_lanes.inc"

#include <stdlib.h>

bool ptx_lanes_wide(void) {
#ifdef PTX_HAVE_V3
  if (getenv("PTX_PORTABLE")) return false;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

const PtxRow *ptx_lanes_table(void) {
#ifdef PTX_HAVE_V3
  if (ptx_lanes_wide()) return PTX_LANES_V3;
#endif
  return PTX_LANES_BASE;
}
