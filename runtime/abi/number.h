/* Single elements of every type as numbers: conversions of the narrow floats, loads and stores.
 *
 * bf16, f16 and f8 round to nearest, ties to even. f8_e4m3 is the "fn" kind: no infinity, overflow
 * gives NaN; f8_e5m2 overflows to infinity.
 */
#ifndef DTM_RT_ABI_NUMBER_H
#define DTM_RT_ABI_NUMBER_H

#include <math.h>
#include <string.h>

#include "runtime/abi/abi.h"

static inline float abi_from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline uint16_t abi_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  uint32_t quiet = u >> 16 | 0x40, rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* A small float with `exponent` and `mantissa` bits, its bits to a number. `fn`: the largest
 * exponent holds numbers, only all ones are NaN. */
static inline float abi_from_small(uint32_t bits, int exponent, int mantissa, int fn) {
  uint32_t m = bits & ((1u << mantissa) - 1), e = bits >> mantissa & ((1u << exponent) - 1);
  uint32_t top = (1u << exponent) - 1;
  int bias = (int)(top >> 1);
  float sign = bits >> (exponent + mantissa) & 1 ? -1.0f : 1.0f;
  if (e == top && (!fn || m == (1u << mantissa) - 1)) return m == 0 && !fn ? sign * INFINITY : NAN;
  if (e == 0) return sign * ldexpf((float)m, 1 - bias - mantissa);
  return sign * ldexpf((float)(m | 1u << mantissa), (int)e - bias - mantissa);
}

static inline uint32_t abi_to_small(float f, int exponent, int mantissa, int fn) {
  uint32_t top = (1u << exponent) - 1, nan = top << mantissa | ((1u << mantissa) - 1);
  uint32_t sign = signbit(f) ? 1u << (exponent + mantissa) : 0;
  uint32_t overflow = sign | (fn ? nan : top << mantissa);
  int bias = (int)(top >> 1), e;
  if (isnan(f)) return sign | nan;
  if (isinf(f)) return overflow;
  if (f == 0) return sign;
  frexpf(f, &e); /* |f| in [2^(e-1), 2^e) */
  int unit = (e - 1 < 1 - bias ? 1 - bias : e - 1) - mantissa;
  uint32_t q = (uint32_t)nearbyintf(ldexpf(fabsf(f), -unit)); /* in units of the last place */
  if (q >= 1u << (mantissa + 1)) {                            /* rounded up to the next binade */
    q >>= 1;
    unit++;
  }
  if (q < 1u << mantissa) return sign | q; /* subnormal */
  uint32_t biased = (uint32_t)(unit + mantissa + bias);
  uint32_t bits = biased << mantissa | (q & ((1u << mantissa) - 1));
  if (biased > top || (fn ? bits >= nan : biased == top)) return overflow;
  return sign | bits;
}

/* f16 and bf16 have no branches, so that loops of them vectorise. The bits of an f16, read as those
 * of an f32, are 2^112 times too small; adding 0.5 rounds a subnormal where its last place is.
 * After F. Giesen, "half_to_float_fast5" and "float_to_half_fast3_rtne" (public domain). */
static inline float abi_from_f16(uint16_t h) {
  uint32_t u = (uint32_t)(h & 0x7fff) << 13;
  float f;
  memcpy(&f, &u, sizeof f);
  f *= 0x1p112f;
  memcpy(&u, &f, sizeof u);
  u |= ((h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0) | (uint32_t)(h & 0x8000) << 16;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline uint16_t abi_to_f16(float f) {
  uint32_t u, tiny, normal;
  memcpy(&u, &f, sizeof u);
  uint32_t sign = u >> 16 & 0x8000;
  u &= 0x7fffffffu;
  memcpy(&f, &u, sizeof f);
  f += 0.5f;
  memcpy(&tiny, &f, sizeof tiny);
  normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1)) >> 13;
  uint32_t bits = u < 0x38800000u ? tiny - 0x3f000000u : normal;
  bits = u >= 0x47800000u ? 0x7c00 : bits;
  return (uint16_t)(sign | (u > 0x7f800000u ? 0x7fff : bits));
}

/* Element i of an array. Integers beyond 2^53 lose digits: see abi_load_int. */
static inline double abi_load(const void *p, uint32_t dtype, int64_t i) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
    return ((const double *)p)[i];
  case ABI_F32:
    return (double)((const float *)p)[i];
  case ABI_BF16:
    return (double)abi_from_bf16(((const uint16_t *)p)[i]);
  case ABI_F16:
    return (double)abi_from_f16(((const uint16_t *)p)[i]);
  case ABI_F8_E4M3:
    return (double)abi_from_small(((const uint8_t *)p)[i], 4, 3, 1);
  case ABI_F8_E5M2:
    return (double)abi_from_small(((const uint8_t *)p)[i], 5, 2, 0);
  case ABI_I64:
    return (double)((const int64_t *)p)[i];
  case ABI_I32:
    return ((const int32_t *)p)[i];
  case ABI_I16:
    return ((const int16_t *)p)[i];
  case ABI_I8:
    return ((const int8_t *)p)[i];
  case ABI_U8:
    return ((const uint8_t *)p)[i];
  case ABI_BOOL:
    return ((const uint8_t *)p)[i] != 0;
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
  return 0;
}

/* Towards zero; NaN gives 0, and what is out of range the nearest there is: as compiled kernels do.
 */
static inline int64_t abi_to_int(double v, int64_t low, int64_t high) {
  if (v != v) return 0;
  return v <= (double)low ? low : v >= (double)high ? high : (int64_t)v;
}

static inline void abi_store(void *p, uint32_t dtype, int64_t i, double v) {
  switch ((AbiDType)dtype) {
  case ABI_F64:
    ((double *)p)[i] = v;
    break;
  case ABI_F32:
    ((float *)p)[i] = (float)v;
    break;
  case ABI_BF16:
    ((uint16_t *)p)[i] = abi_to_bf16((float)v);
    break;
  case ABI_F16:
    ((uint16_t *)p)[i] = abi_to_f16((float)v);
    break;
  case ABI_F8_E4M3:
    ((uint8_t *)p)[i] = (uint8_t)abi_to_small((float)v, 4, 3, 1);
    break;
  case ABI_F8_E5M2:
    ((uint8_t *)p)[i] = (uint8_t)abi_to_small((float)v, 5, 2, 0);
    break;
  case ABI_I64:
    ((int64_t *)p)[i] = abi_to_int(v, INT64_MIN, INT64_MAX);
    break;
  case ABI_I32:
    ((int32_t *)p)[i] = (int32_t)abi_to_int(v, INT32_MIN, INT32_MAX);
    break;
  case ABI_I16:
    ((int16_t *)p)[i] = (int16_t)abi_to_int(v, INT16_MIN, INT16_MAX);
    break;
  case ABI_I8:
    ((int8_t *)p)[i] = (int8_t)abi_to_int(v, INT8_MIN, INT8_MAX);
    break;
  case ABI_U8:
    ((uint8_t *)p)[i] = (uint8_t)abi_to_int(v, 0, UINT8_MAX);
    break;
  case ABI_BOOL:
    ((uint8_t *)p)[i] = v != 0;
    break;
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
}

static inline int abi_is_float(uint32_t dtype) {
  return dtype >= ABI_F64 && dtype <= ABI_F8_E5M2;
}

/* Integers and bool, exactly. */
static inline int64_t abi_load_int(const void *p, uint32_t dtype, int64_t i) {
  if (dtype == ABI_I64) return ((const int64_t *)p)[i];
  return (int64_t)abi_load(p, dtype, i);
}

static inline void abi_store_int(void *p, uint32_t dtype, int64_t i, int64_t v) {
  switch ((AbiDType)dtype) {
  case ABI_I64:
    ((int64_t *)p)[i] = v;
    break;
  case ABI_I32:
    ((int32_t *)p)[i] = (int32_t)(uint32_t)v;
    break;
  case ABI_I16:
    ((int16_t *)p)[i] = (int16_t)(uint16_t)v;
    break;
  case ABI_I8:
    ((int8_t *)p)[i] = (int8_t)(uint8_t)v;
    break;
  case ABI_U8:
    ((uint8_t *)p)[i] = (uint8_t)v;
    break;
  case ABI_BOOL:
    ((uint8_t *)p)[i] = v != 0;
    break;
  case ABI_F64:
  case ABI_F32:
  case ABI_BF16:
  case ABI_F16:
  case ABI_F8_E4M3:
  case ABI_F8_E5M2:
    abi_store(p, dtype, i, (double)v);
    break;
  case ABI_NONE:
  case ABI_DTYPE_COUNT:
    break;
  }
}

#endif
