/* Operations of lanes for hosts with AVX2 and FMA; compiled with these. */
#define TABLE PTX_LANES_V3
#include "ptx_lanes.inc"
