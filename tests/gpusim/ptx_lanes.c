/* Operations of lanes for any host, and the choice among the tables. */
#define TABLE PTX_LANES_BASE
#include "ptx_lanes.inc"

const PtxRow *ptx_lanes_table(void) {
#ifdef PTX_HAVE_V3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return PTX_LANES_V3;
#endif
  return PTX_LANES_BASE;
}
