/* Loads and stores for hosts with AVX2; compiled with it. */
#define WIDE PTX_WIDE_V3
#include "ptx_wide.inc"
