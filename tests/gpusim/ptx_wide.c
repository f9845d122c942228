/* Loads and stores for any host, and the choice. */
#define WIDE PTX_WIDE_BASE
#include "ptx_wide.inc"

const PtxWide *ptx_wide(void) {
#ifdef PTX_HAVE_V3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return &PTX_WIDE_V3;
#endif
  return &PTX_WIDE_BASE;
}
