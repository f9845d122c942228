/* Numbers of PTX in C: half precision, rounding, and elementary functions in f64 whose error of
 * about 2^-50 lets one rounding to f32 be the correct one. Written so that loops over them
 * vectorise. */
#ifndef DTM_TESTS_GPUSIM_PTX_NUMBER_H
#define DTM_TESTS_GPUSIM_PTX_NUMBER_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef float f32;
typedef double f64;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

static inline u32 bits_of_f32(f32 x) {
  u32 b;
  memcpy(&b, &x, sizeof b);
  return b;
}
static inline f32 f32_of_bits(u32 b) {
  f32 x;
  memcpy(&x, &b, sizeof x);
  return x;
}
static inline u64 bits_of_f64(f64 x) {
  u64 b;
  memcpy(&b, &x, sizeof b);
  return b;
}
static inline f64 f64_of_bits(u64 b) {
  f64 x;
  memcpy(&x, &b, sizeof x);
  return x;
}

/* f32 has one NaN. */
static inline f32 nan_f32(f32 x) {
  return x == x ? x : f32_of_bits(0x7fffffff);
}
static inline f64 nan_f64(f64 x) {
  return x;
}

static inline f32 flush_f32(f32 x) {
  return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}
static inline f64 flush_f64(f64 x) {
  return fabs(x) < DBL_MIN ? copysign(0, x) : x;
}

/* --- half precision ------------------------------------------------------------------------------
 */

static inline f32 f32_of_bf16(u16 h) {
  return f32_of_bits((u32)h << 16);
}
static inline u16 bf16_of_f32(f32 x) {
  u32 b = bits_of_f32(x);
  u32 rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
  return (u16)((b & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

static inline f32 f32_of_f16(u16 h) {
  u32 a = h & 0x7fffu, sign = (u32)(h & 0x8000u) << 16;
  u32 normal = (a << 13) + (a >= 0x7c00 ? 0x70000000u : 0x38000000u);
  u32 small = bits_of_f32((f32)(s32)a * 0x1p-24f);
  return f32_of_bits((a < 0x400 ? small : normal) | sign);
}
static inline u16 f16_of_f32(f32 x) {
  u32 b = bits_of_f32(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
  u32 normal = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  u32 small = bits_of_f32(f32_of_bits(a) + 0.5f) - 0x3f000000u;
  u32 r = a < 0x38800000u ? small : a >= 0x47800000u ? 0x7c00u : normal;
  return (u16)(a > 0x7f800000u ? 0x7fffu : r | sign);
}

/* Rounded to odd: what is rounded again to fewer digits is then rounded right. */
static inline f32 odd_f32(f64 x) {
  f32 r = (f32)x;
  f64 error = x - (f64)r;
  u32 b = bits_of_f32(r);
  bool away = (error > 0) == (r < 0); /* r is beyond x, seen from 0 */
  bool inexact = error != 0 && error == error && fabs(x) <= FLT_MAX;
  return f32_of_bits(inexact && !(b & 1) ? (away ? b - 1 : b + 1) : b);
}
static inline f32 fma_odd(f32 x, f32 y, f32 z) {
  f64 p = (f64)x * y, s = p + z; /* p is exact: the operands are half precision */
  f64 back = s - p, error = (p - (s - back)) + (z - back);
  u64 b = bits_of_f64(s);
  bool away = (error > 0) == (s < 0);
  bool inexact = error != 0 && error == error;
  return odd_f32(f64_of_bits(inexact && !(b & 1) ? (away ? b - 1 : b + 1) : b));
}

/* --- minimum and maximum: a NaN loses, -0 is below +0 ----------------------------------------- */

static inline f32 min_f32(f32 x, f32 y) {
  f32 zero = f32_of_bits(bits_of_f32(x) | bits_of_f32(y)); /* when x == y */
  f32 r = x < y ? x : x > y ? y : zero;
  return x != x ? y : y != y ? x : r;
}
static inline f32 max_f32(f32 x, f32 y) {
  f32 zero = f32_of_bits(bits_of_f32(x) & bits_of_f32(y));
  f32 r = x > y ? x : x < y ? y : zero;
  return x != x ? y : y != y ? x : r;
}
static inline f64 min_f64(f64 x, f64 y) {
  f64 zero = f64_of_bits(bits_of_f64(x) | bits_of_f64(y));
  f64 r = x < y ? x : x > y ? y : zero;
  return x != x ? y : y != y ? x : r;
}
static inline f64 max_f64(f64 x, f64 y) {
  f64 zero = f64_of_bits(bits_of_f64(x) & bits_of_f64(y));
  f64 r = x > y ? x : x < y ? y : zero;
  return x != x ? y : y != y ? x : r;
}

/* --- elementary functions --------------------------------------------------------------------- */

/* 2^x for x of f32: Taylor's series of 2^f, |f| <= 1/2, to the 13th term. */
static inline f64 exp2_f64(f64 x) {
  f64 in = x < -1000 ? -1000 : x > 1000 ? 1000 : x;
  f64 shifted = in + 0x1.8p52, n = shifted - 0x1.8p52;
  f64 t = (in - n) * 0x1.62e42fefa39efp-1;
  f64 p = 1.0 / 6227020800.0;
  p = p * t + 1.0 / 479001600.0;
  p = p * t + 1.0 / 39916800.0;
  p = p * t + 1.0 / 3628800.0;
  p = p * t + 1.0 / 362880.0;
  p = p * t + 1.0 / 40320.0;
  p = p * t + 1.0 / 5040.0;
  p = p * t + 1.0 / 720.0;
  p = p * t + 1.0 / 120.0;
  p = p * t + 1.0 / 24.0;
  p = p * t + 1.0 / 6.0;
  p = p * t + 0.5;
  p = p * t + 1.0;
  p = p * t + 1.0;
  u64 scale = (bits_of_f64(shifted) + 1023) << 52;
  return p * f64_of_bits(scale);
}

/* Logarithm of base 2 for x of f32: 2 artanh((m - 1) / (m + 1)) / ln 2, m in [sqrt 1/2, sqrt 2). */
static inline f64 log2_f64(f64 x) {
  u64 b = bits_of_f64(x);
  u64 shifted = b - 0x3fe6a09e667f3bcdull; /* sqrt 1/2 */
  s64 e = (s64)shifted >> 52;
  f64 m = f64_of_bits(b - ((u64)e << 52));
  f64 t = (m - 1) / (m + 1), s = t * t;
  f64 p = 1.0 / 21;
  p = p * s + 1.0 / 19;
  p = p * s + 1.0 / 17;
  p = p * s + 1.0 / 15;
  p = p * s + 1.0 / 13;
  p = p * s + 1.0 / 11;
  p = p * s + 1.0 / 9;
  p = p * s + 1.0 / 7;
  p = p * s + 1.0 / 5;
  p = p * s + 1.0 / 3;
  p = p * s + 1.0;
  f64 r = (f64)(s32)e + p * t * 0x1.71547652b82fep1;
  r = x == 0 ? -INFINITY : r;
  r = x < 0 ? NAN : r;
  return x <= DBL_MAX ? r : x; /* infinity, NaN */
}

static inline f64 tanh_f64(f64 x) {
  f64 in = x < -20 ? -20 : x > 20 ? 20 : x;
  f64 e = exp2_f64(in * 0x1.71547652b82fep1);
  f64 s = in * in; /* small arguments by their series, as e - 1 cancels */
  f64 small = in + in * s * (-1.0 / 3 + s * (2.0 / 15 + s * (-17.0 / 315 + s * (62.0 / 2835))));
  return fabs(in) < 0.02 ? small : (e - 1) / (e + 1);
}

#endif
