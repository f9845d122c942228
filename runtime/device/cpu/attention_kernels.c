/* The loops of attention for each instruction set and element type: see attention_loops.h. */
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/cpu/attention_block.h"
#include "runtime/abi/number.h"
#include "runtime/abi/philox.h"

/* Products of the low halves of lanes of 64 bits: one instruction where there is one. */
#if defined(__x86_64__)
#define MULTIPLY_BASE(a, b) ((U)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
#define MULTIPLY_BASE(a, b) (((a)&0xffffffffu) * ((b)&0xffffffffu))
#endif

#define LOOPS_NAME(x) base_f32_##x
#define LOOPS_MULTIPLY(a, b) MULTIPLY_BASE(a, b)
#define LOOPS_TARGET
#define LOOPS_WIDE 0
#define LANES 4
#define ROWS 4
#include "device/cpu/attention_loops.h"

#define LOOPS_NAME(x) base_f64_##x
#define LOOPS_MULTIPLY(a, b) MULTIPLY_BASE(a, b)
#define LOOPS_TARGET
#define LOOPS_WIDE 1
#define LANES 2
#define ROWS 4
#include "device/cpu/attention_loops.h"

#if defined(__x86_64__)
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define TARGET_AVX512                                                                              \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)))
#else
#define TARGET_AVX512                                                                              \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#endif

#define LOOPS_NAME(x) avx2_f32_##x
#define LOOPS_MULTIPLY(a, b) ((U)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define LOOPS_TARGET TARGET_AVX2
#define LOOPS_WIDE 0
#define LANES 8
#define ROWS 6
#include "device/cpu/attention_loops.h"

#define LOOPS_NAME(x) avx2_f64_##x
#define LOOPS_MULTIPLY(a, b) ((U)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define LOOPS_TARGET TARGET_AVX2
#define LOOPS_WIDE 1
#define LANES 4
#define ROWS 6
#include "device/cpu/attention_loops.h"

#define LOOPS_NAME(x) avx512_f32_##x
#define LOOPS_MULTIPLY(a, b) ((U)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define LOOPS_TARGET TARGET_AVX512
#define LOOPS_WIDE 0
#define LANES 16
#define ROWS 8
#include "device/cpu/attention_loops.h"

#define LOOPS_NAME(x) avx512_f64_##x
#define LOOPS_MULTIPLY(a, b) ((U)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define LOOPS_TARGET TARGET_AVX512
#define LOOPS_WIDE 1
#define LANES 8
#define ROWS 8
#include "device/cpu/attention_loops.h"
#endif

const AttentionLoops *dtm_rt_attention_loops(int set, int wide) {
  switch (set) {
  case 0:
    return wide ? &base_f64_loops : &base_f32_loops;
#if defined(__x86_64__)
  case 1:
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return NULL;
    return wide ? &avx2_f64_loops : &avx2_f32_loops;
  case 2:
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
      return NULL;
    return wide ? &avx512_f64_loops : &avx512_f32_loops;
#endif
  }
  return NULL;
}
