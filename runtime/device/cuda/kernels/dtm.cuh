/* What every kernel of dtm starts with: element types, conversions, arithmetic as the CPU's kernels
 * do it, vectors, reductions of a group of threads, random numbers.
 *
 * For NVRTC: needs no header. A block has 256 threads, cut in groups of 1, 2, ... 32 or of all 256;
 * a group works on one task.
 *
 * bf16, f16 and f8 are storage: they are loaded into f32 and rounded (to nearest even) when stored.
 * f8_e4m3 is the "fn" kind (no infinity; what overflows is NaN). Integers wrap. Division by zero
 * gives 0. max and min propagate NaN. */
#ifndef DTM_CUH
#define DTM_CUH

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

#define DTM_BLOCK 256
#define DTM_DEVICE static __device__ __forceinline__

/* Entries of library files carry the suffix of their instance. */
#ifdef DTM_SUFFIX
#define DTM_JOIN_(a, b) a##b
#define DTM_JOIN(a, b) DTM_JOIN_(a, b)
#define DTM_ENTRY(name) DTM_JOIN(name, DTM_SUFFIX)
#endif

/* --- storage types ---- */

struct dtm_bf16 {
  uint16_t bits;
};
struct dtm_f16 {
  uint16_t bits;
};
struct dtm_f8_e4m3 {
  uint8_t bits;
};
struct dtm_f8_e5m2 {
  uint8_t bits;
};
struct dtm_bool {
  uint8_t bits;
};

#define DTM_INF __int_as_float(0x7f800000)
#define DTM_NAN __int_as_float(0x7fc00000)
#define DTM_INF64 __longlong_as_double(0x7ff0000000000000ll)
#define DTM_NAN64 __longlong_as_double(0x7ff8000000000000ll)

template <class T> struct dtm_type {
  static constexpr bool is_float = false, is_signed = T(-1) < T(0);
};
template <> struct dtm_type<float> {
  static constexpr bool is_float = true, is_signed = true;
};
template <> struct dtm_type<double> {
  static constexpr bool is_float = true, is_signed = true;
};
template <class A, class B> struct dtm_same {
  static constexpr bool value = false;
};
template <class A> struct dtm_same<A, A> {
  static constexpr bool value = true;
};

/* The least and the greatest number; infinite for floats. */
template <class T> DTM_DEVICE T dtm_lowest() {
  if constexpr (dtm_same<T, float>::value)
    return -DTM_INF;
  else if constexpr (dtm_same<T, double>::value)
    return -DTM_INF64;
  else if constexpr (dtm_type<T>::is_signed)
    return (T)(1ull << (8 * sizeof(T) - 1));
  else
    return (T)0;
}
template <class T> DTM_DEVICE T dtm_highest() {
  if constexpr (dtm_type<T>::is_float)
    return -dtm_lowest<T>();
  else if constexpr (dtm_same<T, bool>::value)
    return true;
  else
    return (T)~dtm_lowest<T>();
}

/* --- what is stored as a number ---- */

DTM_DEVICE float dtm_value(float x) { return x; }
DTM_DEVICE double dtm_value(double x) { return x; }
DTM_DEVICE int64_t dtm_value(int64_t x) { return x; }
DTM_DEVICE int32_t dtm_value(int32_t x) { return x; }
DTM_DEVICE int16_t dtm_value(int16_t x) { return x; }
DTM_DEVICE int8_t dtm_value(int8_t x) { return x; }
DTM_DEVICE uint8_t dtm_value(uint8_t x) { return x; }
DTM_DEVICE bool dtm_value(dtm_bool x) { return x.bits != 0; }
DTM_DEVICE float dtm_value(dtm_bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
DTM_DEVICE float dtm_value(dtm_f16 x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
  return f;
}
DTM_DEVICE float dtm_value(dtm_f8_e5m2 x) { /* the upper half of an f16 */
  return dtm_value(dtm_f16{(uint16_t)(x.bits << 8)});
}
DTM_DEVICE float dtm_value(dtm_f8_e4m3 x) {
  uint32_t size = x.bits & 0x7fu, sign = (x.bits & 0x80u) << 24;
  float f = __uint_as_float(size << 20) * 0x1p120f;
  return __uint_as_float(sign | (size == 0x7f ? 0x7fc00000u : __float_as_uint(f)));
}

/* f64 as f32 rounded to odd: exact, or the neighbour whose last bit is 1. Rounding that to a
 * narrower type is rounding once. */
DTM_DEVICE float dtm_round_to_odd(double x) {
  float f = (float)x;
  double back = (double)f;
  uint32_t bits = __float_as_uint(f);
  if (x == x && back != x && !(bits & 1)) bits += fabs(x) > fabs(back) ? 1 : -1;
  return __uint_as_float(bits);
}

/* f32 as 8 bits with `MANTISSA` bits and exponent bias `BIAS`; magnitudes from LIMIT (f32 bits) on
 * become OVER. Below the least normal number the addition of a power of two rounds. */
template <int MANTISSA, int BIAS, uint32_t LIMIT, uint32_t OVER> DTM_DEVICE uint8_t dtm_f8(float x) {
  constexpr int drop = 23 - MANTISSA;
  constexpr uint32_t magic = (uint32_t)(127 - BIAS + 1 + drop) << 23;
  uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80, size = u & 0x7fffffffu;
  uint32_t r = size + ((uint32_t)(BIAS - 127) << 23) + ((1u << (drop - 1)) - 1) + (size >> drop & 1);
  r >>= drop;
  if (size < (uint32_t)(127 - BIAS + 1) << 23)
    r = __float_as_uint(__uint_as_float(size) + __uint_as_float(magic)) - magic;
  if (size >= LIMIT) r = OVER;
  if (size > 0x7f800000u) r = 0x7f;
  return (uint8_t)(r | sign);
}

/* A number as it is stored in S. */
template <class S> struct dtm_store_as {
  template <class V> static __device__ __forceinline__ S of(V x) { return x; }
};
template <> struct dtm_store_as<dtm_bool> {
  static __device__ __forceinline__ dtm_bool of(bool x) { return {(uint8_t)x}; }
};
template <> struct dtm_store_as<dtm_bf16> {
  static __device__ __forceinline__ dtm_bf16 of(float x) {
    uint32_t u = __float_as_uint(x), rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return {(uint16_t)(x != x ? u >> 16 | 0x40 : rounded)};
  }
  static __device__ __forceinline__ dtm_bf16 of(double x) { return of(dtm_round_to_odd(x)); }
};
template <> struct dtm_store_as<dtm_f16> {
  static __device__ __forceinline__ dtm_f16 of(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
  }
  static __device__ __forceinline__ dtm_f16 of(double x) { return of(dtm_round_to_odd(x)); }
};
template <> struct dtm_store_as<dtm_f8_e4m3> { /* 464, half way to the missing 480, becomes 448 */
  static __device__ __forceinline__ dtm_f8_e4m3 of(float x) {
    return {dtm_f8<3, 7, 0x43e80001u, 0x7fu>(x)};
  }
  static __device__ __forceinline__ dtm_f8_e4m3 of(double x) { return of(dtm_round_to_odd(x)); }
};
template <> struct dtm_store_as<dtm_f8_e5m2> { /* 61440, half way to 65536, becomes infinite */
  static __device__ __forceinline__ dtm_f8_e5m2 of(float x) {
    return {dtm_f8<2, 15, 0x47700000u, 0x7cu>(x)};
  }
  static __device__ __forceinline__ dtm_f8_e5m2 of(double x) { return of(dtm_round_to_odd(x)); }
};
template <class S, class V> DTM_DEVICE S dtm_as(V x) { return dtm_store_as<S>::of(x); }

/* --- conversions of numbers ---- */

/* Floats become integers by rounding to zero and saturating; NaN becomes 0. */
template <class T, class X> DTM_DEVICE T dtm_cast(X x) {
  if constexpr (dtm_same<T, bool>::value)
    return x != X(0);
  else if constexpr (dtm_type<X>::is_float && !dtm_type<T>::is_float) {
    if (x != x) return 0;
    if (x <= (X)dtm_lowest<T>()) return dtm_lowest<T>();
    if (x >= (X)dtm_highest<T>()) return dtm_highest<T>();
    return (T)x;
  } else
    return (T)x;
}
/* Rounded to what S holds. */
template <class S, class X> DTM_DEVICE float dtm_round(X x) {
  if constexpr (dtm_same<X, double>::value)
    return dtm_value(dtm_as<S>(x));
  else
    return dtm_value(dtm_as<S>((float)x));
}

/* --- arithmetic ---- */

template <class T> DTM_DEVICE T dtm_add(T a, T b) {
  if constexpr (dtm_same<T, bool>::value)
    return a != b;
  else if constexpr (dtm_type<T>::is_float)
    return a + b;
  else
    return (T)((uint64_t)a + (uint64_t)b);
}
template <class T> DTM_DEVICE T dtm_sub(T a, T b) {
  if constexpr (dtm_same<T, bool>::value)
    return a != b;
  else
    return (T)((uint64_t)a - (uint64_t)b);
}
template <class T> DTM_DEVICE T dtm_mul(T a, T b) {
  if constexpr (dtm_same<T, bool>::value)
    return a && b;
  else if constexpr (dtm_type<T>::is_float)
    return a * b;
  else
    return (T)((uint64_t)a * (uint64_t)b);
}
template <class T> DTM_DEVICE T dtm_neg(T a) {
  if constexpr (dtm_same<T, bool>::value)
    return a;
  else
    return (T)(0 - (uint64_t)a);
}
DTM_DEVICE float dtm_abs(float x) { return fabsf(x); }
DTM_DEVICE double dtm_abs(double x) { return fabs(x); }
template <class T> DTM_DEVICE T dtm_abs(T x) { return x < T(0) ? dtm_neg(x) : x; }

/* The larger, the smaller; NaN if either is NaN. */
template <class T> DTM_DEVICE T dtm_maximum(T x, T y) {
  if constexpr (dtm_type<T>::is_float) {
    T r = x <= y ? y : x;
    return y != y ? y : r;
  } else
    return x > y ? x : y;
}
template <class T> DTM_DEVICE T dtm_minimum(T x, T y) {
  if constexpr (dtm_type<T>::is_float) {
    T r = x >= y ? y : x;
    return y != y ? y : r;
  } else
    return x < y ? x : y;
}

/* Quotients rounded down and to zero. */
/* The number of whole y in x: x / y may round up to a whole number that is not reached. */
template <class F> DTM_DEVICE F dtm_whole_in(F x, F y) {
  F r = fmod(x, y), q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (y == 0) return x / y;
  return q == 0 ? copysign(F(0), x / y) : rint(q);
}
DTM_DEVICE float dtm_floor_div(float x, float y) { return dtm_whole_in(x, y); }
DTM_DEVICE double dtm_floor_div(double x, double y) { return dtm_whole_in(x, y); }
DTM_DEVICE float dtm_trunc_div(float x, float y) { return truncf(x / y); }
DTM_DEVICE double dtm_trunc_div(double x, double y) { return trunc(x / y); }
template <class T> DTM_DEVICE T dtm_trunc_div(T x, T y) {
  if (y == T(0)) return 0;
  if (dtm_type<T>::is_signed && y == T(-1)) return dtm_neg(x);
  return x / y;
}
template <class T> DTM_DEVICE T dtm_floor_div(T x, T y) {
  T q = dtm_trunc_div(x, y);
  if constexpr (dtm_type<T>::is_signed) {
    if (y == T(0) || y == T(-1)) return q;
    T r = x - q * y;
    if (r != T(0) && (r ^ y) < T(0)) q = q - 1;
  }
  return q;
}
/* Remainders with the dividend's sign, and, as Python has it, with the divisor's. */
DTM_DEVICE float dtm_fmod(float x, float y) { return fmodf(x, y); }
DTM_DEVICE double dtm_fmod(double x, double y) { return fmod(x, y); }
template <class T> DTM_DEVICE T dtm_fmod(T x, T y) {
  return y == T(0) ? T(0) : dtm_sub(x, dtm_mul(dtm_trunc_div(x, y), y));
}
DTM_DEVICE float dtm_remainder(float x, float y) {
  float r = fmodf(x, y);
  bool differ = (__float_as_int(r) ^ __float_as_int(y)) < 0;
  return differ && r != 0 ? r + y : r;
}
DTM_DEVICE double dtm_remainder(double x, double y) {
  double r = fmod(x, y);
  bool differ = (__double_as_longlong(r) ^ __double_as_longlong(y)) < 0;
  return differ && r != 0 ? r + y : r;
}
template <class T> DTM_DEVICE T dtm_remainder(T x, T y) {
  return y == T(0) ? T(0) : dtm_sub(x, dtm_mul(dtm_floor_div(x, y), y));
}

/* By the width or more: 0, or the sign. */
template <class T> DTM_DEVICE T dtm_shift_left(T x, T y) {
  bool inside = y >= T(0) && (uint64_t)y < 8 * sizeof(T);
  return inside ? (T)((uint64_t)x << (int)y) : T(0);
}
template <class T> DTM_DEVICE T dtm_shift_right(T x, T y) {
  bool inside = y >= T(0) && (uint64_t)y < 8 * sizeof(T);
  if (inside) return (T)(x >> (int)y);
  return x < T(0) ? T(-1) : T(0);
}

DTM_DEVICE bool dtm_isinf(float x) { return fabsf(x) == DTM_INF; }
DTM_DEVICE bool dtm_isinf(double x) { return fabs(x) == DTM_INF64; }
DTM_DEVICE bool dtm_isfinite(float x) { return fabsf(x) < DTM_INF; }
DTM_DEVICE bool dtm_isfinite(double x) { return fabs(x) < DTM_INF64; }

/* --- vectors of W elements ---- */

template <int BYTES> struct dtm_word;
template <> struct dtm_word<16> {
  typedef uint4 type;
};
template <> struct dtm_word<8> {
  typedef uint2 type;
};
template <> struct dtm_word<4> {
  typedef uint32_t type;
};
template <> struct dtm_word<2> {
  typedef uint16_t type;
};
template <> struct dtm_word<1> {
  typedef uint8_t type;
};
template <int W, class S> struct dtm_words {
  static constexpr int bytes = W * (int)sizeof(S), each = bytes < 16 ? bytes : 16;
  static constexpr int count = bytes / each;
  typedef typename dtm_word<each>::type word;
};

/* May W elements at a time be moved at once from all of these places on? */
template <int W, class... S> DTM_DEVICE bool dtm_aligned(const S *...p) {
  return ((((uint64_t)p & (dtm_words<W, S>::each - 1)) == 0) && ...);
}

/* W elements at p, which is aligned. */
template <int W, class S, class V> DTM_DEVICE void dtm_load(V (&to)[W], const S *p) {
  typedef dtm_words<W, S> words;
  union {
    typename words::word word[words::count];
    S element[W];
  } all;
#pragma unroll
  for (int i = 0; i < words::count; i++) all.word[i] = ((const typename words::word *)p)[i];
#pragma unroll
  for (int e = 0; e < W; e++) to[e] = dtm_value(all.element[e]);
}
template <int W, class S, class V> DTM_DEVICE void dtm_store(S *p, const V (&from)[W]) {
  typedef dtm_words<W, S> words;
  union {
    typename words::word word[words::count];
    S element[W];
  } all;
#pragma unroll
  for (int e = 0; e < W; e++) all.element[e] = dtm_as<S>(from[e]);
#pragma unroll
  for (int i = 0; i < words::count; i++) ((typename words::word *)p)[i] = all.word[i];
}

/* The first `m` of W elements at p, the others 0. `wide`: p is aligned. */
template <int W, class S, class V>
DTM_DEVICE void dtm_load(V (&to)[W], const S *p, int m, bool wide) {
  if (wide && m == W)
    dtm_load(to, p);
  else {
#pragma unroll
    for (int e = 0; e < W; e++) to[e] = e < m ? dtm_value(p[e]) : V(0);
  }
}
template <int W, class S, class V>
DTM_DEVICE void dtm_store(S *p, const V (&from)[W], int m, bool wide) {
  if (wide && m == W)
    dtm_store(p, from);
  else {
#pragma unroll
    for (int e = 0; e < W; e++)
      if (e < m) p[e] = dtm_as<S>(from[e]);
  }
}

/* --- groups of threads ---- */

/* The lanes of this warp that are in the thread's group. */
DTM_DEVICE uint32_t dtm_mask(int group) {
  return group >= 32 ? ~0u : ((1u << group) - 1) << (threadIdx.x & 31 & -group);
}

/* All threads of the group are here, and see what the others wrote. */
DTM_DEVICE void dtm_sync(int group) {
  if (group > 32)
    __syncthreads();
  else
    __syncwarp(dtm_mask(group));
}

template <class T> DTM_DEVICE T dtm_shuffle_xor(uint32_t mask, T x, int by) {
  if constexpr (sizeof(T) < 4)
    return (T)__shfl_xor_sync(mask, (int)x, by);
  else
    return __shfl_xor_sync(mask, x, by);
}
template <class T> DTM_DEVICE T dtm_shuffle(uint32_t mask, T x, int lane) {
  if constexpr (sizeof(T) < 4)
    return (T)__shfl_sync(mask, (int)x, lane);
  else
    return __shfl_sync(mask, x, lane);
}

struct dtm_sum {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const {
    return dtm_add(a, b);
  }
};
struct dtm_product {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const {
    return dtm_mul(a, b);
  }
};
struct dtm_max {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const {
    return dtm_maximum(a, b);
  }
};
struct dtm_min {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const {
    return dtm_minimum(a, b);
  }
};
struct dtm_and {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a & b; }
};
struct dtm_or {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a | b; }
};
struct dtm_xor {
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a ^ b; }
};

/* Combines the values of all threads of the group, in a fixed tree; all of them come here and get
 * the same bits. */
template <class Op, class T> DTM_DEVICE T dtm_reduce(Op op, T x, int group) {
  __shared__ T warps[DTM_BLOCK / 32];
  uint32_t mask = dtm_mask(group), lane = threadIdx.x & 31;
  for (int by = (group < 32 ? group : 32) / 2; by > 0; by /= 2)
    x = op(x, dtm_shuffle_xor(mask, x, by));
  if constexpr (dtm_type<T>::is_float) x = dtm_shuffle(mask, x, lane & -group); /* NaNs, zeros */
  if (group > 32) {
    if (lane == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[0];
#pragma unroll
    for (int i = 1; i < DTM_BLOCK / 32; i++) x = op(x, warps[i]);
    __syncthreads();
  }
  return x;
}

/* --- indices ---- */

/* The index along an inner dim of extent n; `rest` becomes the number of what is around it. */
DTM_DEVICE int64_t dtm_take(int64_t &rest, int64_t n) {
  if (((rest | n) >> 32) == 0) {
    uint32_t r = (uint32_t)rest, m = (uint32_t)n, q = r / m;
    rest = q;
    return r - q * m;
  }
  int64_t q = rest / n, i = rest - q * n;
  rest = q;
  return i;
}
DTM_DEVICE int64_t dtm_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
DTM_DEVICE int64_t dtm_least(int64_t a, int64_t b) { return a < b ? a : b; }
/* Which of the calls, ascending by their first block, has this block of the grid. */
template <class Call> DTM_DEVICE int32_t dtm_find_call(const Call *calls, int32_t n, int64_t block) {
  int32_t low = 0, high = n;
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (calls[middle].block <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}
/* Of W elements those that are there. */
template <int W> DTM_DEVICE int dtm_count(int64_t rest) { return rest < W ? (int)rest : W; }

/* --- random numbers: the bits of runtime/abi/philox.h ---- */

/* Words 0 and 1 of Philox4x32-10 for one element. */
DTM_DEVICE uint2 dtm_philox(uint64_t seed, uint64_t instance, uint64_t step, uint64_t index) {
  uint32_t key0 = (uint32_t)seed ^ (uint32_t)(seed >> 32) ^ (uint32_t)(instance >> 32);
  uint32_t key1 = (uint32_t)instance;
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
  uint32_t c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    uint32_t low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
    uint32_t low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return make_uint2(c0, c1);
}

/* `block` is the step block: seed, step, micro-batch. */
DTM_DEVICE float dtm_uniform(const int64_t *block, int64_t instance, int64_t index) {
  uint2 w = dtm_philox((uint64_t)block[0], (uint64_t)instance, (uint64_t)block[1], (uint64_t)index);
  return (float)(w.x >> 8) * 0x1p-24f;
}
DTM_DEVICE double dtm_normal(const int64_t *block, int64_t instance, int64_t index) {
  uint2 w = dtm_philox((uint64_t)block[0], (uint64_t)instance, (uint64_t)block[1], (uint64_t)index);
  double u = 1.0 - (double)(w.x >> 8) * 0x1p-24, angle = (double)(w.y >> 8) * 0x1p-24;
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * angle);
}

#endif
