/* The loops of packed products for each instruction set: see matmul_packed_loops.h. */
#include "device/cpu/matmul_packed.h"
#include "runtime/abi/number.h"

#define LOOPS_NAME(x) base_packed_##x
#define LOOPS_TARGET
#define LANES 4
#define ROWS 4
#include "device/cpu/matmul_packed_loops.h"

#if defined(__x86_64__)
#define LOOPS_NAME(x) avx2_packed_##x
#define LOOPS_TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define ROWS 6
#include "device/cpu/matmul_packed_loops.h"

#define LOOPS_NAME(x) avx512_packed_##x
#if defined(__clang__)
#define LOOPS_TARGET                                                                               \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)))
#else
#define LOOPS_TARGET                                                                               \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#endif
#define LANES 16
#define ROWS 12
#include "device/cpu/matmul_packed_loops.h"
#endif

const PackedLoops *dtm_rt_packed_loops(int set) {
  switch (set) {
  case PACKED_BASE:
    return &base_packed_loops;
#if defined(__x86_64__)
  case PACKED_AVX2:
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return NULL;
    return &avx2_packed_loops;
  case PACKED_AVX512:
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
      return NULL;
    return &avx512_packed_loops;
#endif
  }
  return NULL;
}
