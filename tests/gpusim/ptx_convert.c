/* cvt: between all types, with every rounding and saturation. The common ones are rows of
 * ptx_ops.def. */
#include "ptx_number.h"
#include "ptx_run.h"

#include <fenv.h>

/* An integer of any type: its value when `negative` is false, minus it otherwise. */
typedef struct Whole {
  u64 value;
  bool negative;
} Whole;

static char kind_of(PtxType t) {
  return PTX_TYPE_INFO[t].kind;
}

static bool is_integer(PtxType t) {
  return kind_of(t) == 'u' || kind_of(t) == 's';
}

bool ptx_convert_known(PtxType to, PtxType from) {
  bool floats =
      (is_integer(to) || kind_of(to) == 'f') && (is_integer(from) || kind_of(from) == 'f');
  if (from == TYPE_TF32 || (to == TYPE_TF32 && from != TYPE_F32)) return false;
  return floats || (to == TYPE_F16X2 && (from == TYPE_E4M3X2 || from == TYPE_E5M2X2));
}

/* --- rounding --------------------------------------------------------------------------------- */

static f64 integral(f64 x, u32 flags) {
  return flags & PTX_RZ ? trunc(x) : flags & PTX_RM ? floor(x) : flags & PTX_RP ? ceil(x) : rint(x);
}

/* A format with `digits` binary digits whose least normal number is 2^least and whose largest is
 * `most`. */
typedef struct Format {
  int digits, least;
  f64 most;
} Format;

static const Format F16 = {11, -14, 65504}, BF16 = {8, -126, 0x1.fep127}, E4M3 = {4, -6, 448},
                    E5M2 = {3, -14, 57344};

/* Rounded as the flags say; beyond the largest: infinity, or `most` when rounded towards zero. */
static f64 round_to(f64 x, const Format *f, u32 flags) {
  int exponent;
  if (x == 0 || x != x || fabs(x) == INFINITY) return x;
  frexp(x, &exponent);
  int unit = (exponent - 1 < f->least ? f->least : exponent - 1) - f->digits + 1;
  f64 scaled = ldexp(x, -unit);
  f64 r = flags & PTX_RNA ? round(scaled) : integral(scaled, flags);
  r = ldexp(r, unit);
  if (fabs(r) <= f->most) return r;
  bool inwards = flags & PTX_RZ || (flags & PTX_RM && x > 0) || (flags & PTX_RP && x < 0);
  return copysign(inwards ? f->most : INFINITY, x);
}

/* As the modifiers relu and satfinite want it. */
static f64 finish(f64 x, f64 most, u32 flags) {
  if (flags & PTX_RELU) x = x > 0 || x != x ? x : 0;
  if (flags & PTX_SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if (flags & PTX_SATFINITE && fabs(x) > most) x = copysign(most, x);
  return x;
}

static f32 narrow(f64 x, u32 flags) {
  if (flags & PTX_RZ) fesetround(FE_TOWARDZERO);
  if (flags & PTX_RM) fesetround(FE_DOWNWARD);
  if (flags & PTX_RP) fesetround(FE_UPWARD);
  volatile f32 r = (f32)x; /* between the two changes of mode */
  if (flags & PTX_ROUNDINGS) fesetround(FE_TONEAREST);
  return r;
}

/* 19 bits of an f32; a NaN is the one of f32. */
static u32 tf32_of(f32 x, u32 flags) {
  u32 b = bits_of_f32(nan_f32(x));
  if ((b & 0x7f800000) == 0x7f800000) return b;
  if (flags & PTX_RZ) return b & ~0x1fffu;
  if (flags & PTX_RNA) return (b + 0x1000) & ~0x1fffu;
  return (b + 0xfff + (b >> 13 & 1)) & ~0x1fffu;
}

static u8 f8_of(f64 x, const Format *f, u32 flags) {
  bool e4 = f == &E4M3;
  if (x != x) return 0x7f;
  f64 r = finish(round_to(finish(x, f->most, flags), f, flags & PTX_ROUNDINGS), f->most, flags);
  u8 sign = signbit(r) ? 0x80 : 0;
  r = fabs(r);
  if (r == INFINITY) return sign | (e4 ? 0x7f : 0x7c);
  int mantissa = f->digits - 1, bias = 1 - f->least, exponent;
  if (r < ldexp(1, f->least)) return sign | (u8)ldexp(r, mantissa - f->least);
  frexp(r, &exponent);
  u32 digits = (u32)ldexp(r, mantissa - (exponent - 1));
  return sign | (u8)((u32)(exponent - 1 + bias) << mantissa | (digits & ((1u << mantissa) - 1)));
}

static f64 f8_value(u8 b, const Format *f) {
  int mantissa = f->digits - 1, bias = 1 - f->least, exponent = (b & 0x7f) >> mantissa;
  u32 digits = b & ((1u << mantissa) - 1);
  f64 r = exponent ? ldexp((f64)(digits + (1u << mantissa)), exponent - bias - mantissa)
                   : ldexp((f64)digits, f->least - mantissa);
  if (f == &E4M3 && (b & 0x7f) == 0x7f) r = NAN;
  if (f == &E5M2 && exponent == 31) r = digits ? NAN : INFINITY;
  return b & 0x80 ? -r : r;
}

static u16 f16_of(f64 x, u32 flags) {
  return f16_of_f32((f32)finish(round_to(x, &F16, flags), F16.most, flags));
}

static u16 bf16_of(f64 x, u32 flags) {
  return bf16_of_f32((f32)finish(round_to(x, &BF16, flags), BF16.most, flags));
}

/* --- one lane --------------------------------------------------------------------------------- */

static u64 load(const PtxWarp *w, u32 row, u32 bytes, u32 lane) {
  return bytes == 2   ? PTX_ROW(w, u16, row)[lane]
         : bytes == 4 ? PTX_ROW(w, u32, row)[lane]
                      : PTX_ROW(w, u64, row)[lane];
}

static void store(PtxWarp *w, u32 row, u32 bytes, u32 lane, u64 value) {
  if (bytes == 2)
    PTX_ROW(w, u16, row)[lane] = (u16)value;
  else if (bytes == 4)
    PTX_ROW(w, u32, row)[lane] = (u32)value;
  else
    PTX_ROW(w, u64, row)[lane] = value;
}

static Whole whole_of(u64 bits, PtxType t) {
  u32 width = 8u * PTX_TYPE_INFO[t].bytes;
  if (width < 64) bits &= ((u64)1 << width) - 1;
  bool negative = kind_of(t) == 's' && bits >> (width - 1) & 1;
  if (negative && width < 64) bits |= UINT64_MAX << width;
  return (Whole){negative ? 0 - bits : bits, negative};
}

static f64 float_of(u64 bits, PtxType t) {
  return t == TYPE_F16    ? (f64)f32_of_f16((u16)bits)
         : t == TYPE_BF16 ? (f64)f32_of_bf16((u16)bits)
         : t == TYPE_F32  ? (f64)f32_of_bits((u32)bits)
                          : f64_of_bits(bits);
}

/* Into an integer type, cut or clamped; sign-extended for a wider register. */
static u64 integer_to(Whole x, PtxType t, bool clamp) {
  u32 width = 8u * PTX_TYPE_INFO[t].bytes;
  bool is_signed = kind_of(t) == 's';
  u64 most = is_signed ? ((u64)1 << (width - 1)) - 1 : UINT64_MAX >> (64 - width);
  u64 least = is_signed ? (u64)1 << (width - 1) : 0; /* its magnitude */
  if (clamp && !x.negative && x.value > most) x.value = most;
  if (clamp && x.negative && x.value > least) x.value = least;
  u64 bits = x.negative ? 0 - x.value : x.value;
  if (width == 64) return bits;
  bool negative = is_signed && bits >> (width - 1) & 1;
  u64 low = ((u64)1 << width) - 1;
  return negative ? bits | ~low : bits & low;
}

static u64 float_to_integer(f64 x, PtxType to, PtxType from, u32 flags) {
  u32 width = 8u * PTX_TYPE_INFO[to].bytes;
  if (x != x)
    return from == TYPE_F64 || width == 64
               ? integer_to((Whole){(u64)1 << (width - 1), false}, to, false)
               : 0;
  f64 r = integral(x, flags);
  f64 a = fabs(r);
  return integer_to((Whole){a >= 0x1p64 ? UINT64_MAX : (u64)a, r < 0}, to, true);
}

/* An integer rounded once: digits far below those of halves become one that tells they were there.
 */
static u64 integer_to_float(Whole x, PtxType to, u32 flags) {
  if (to == TYPE_F64 || to == TYPE_F32) {
    if (flags & PTX_RZ) fesetround(FE_TOWARDZERO);
    if (flags & PTX_RM) fesetround(x.negative ? FE_UPWARD : FE_DOWNWARD);
    if (flags & PTX_RP) fesetround(x.negative ? FE_DOWNWARD : FE_UPWARD);
    volatile u64 value = x.value;
    volatile f64 wide = (f64)value;
    volatile f32 slim = (f32)value;
    if (flags & PTX_ROUNDINGS) fesetround(FE_TONEAREST);
    return to == TYPE_F64 ? bits_of_f64(x.negative ? -wide : wide)
                          : bits_of_f32(x.negative ? -slim : slim);
  }
  u64 v = x.value;
  if (v >> 53) v = (v & ~(u64)0x7ff) | (v & 0x7ff ? 0x800 : 0);
  f64 exact = x.negative ? -(f64)v : (f64)v;
  return to == TYPE_F16 ? f16_of(exact, flags) : bf16_of(exact, flags);
}

static u64 float_to_float(u64 bits, f64 x, PtxType to, PtxType from, u32 flags) {
  if (flags & PTX_FTZ && from == TYPE_F32) x = flush_f32((f32)x);
  if (flags & PTX_INTEGRAL) x = integral(x, flags);
  if (to == TYPE_F16) return f16_of(x, flags);
  if (to == TYPE_BF16) return bf16_of(x, flags);
  if (to == TYPE_TF32) return tf32_of((f32)finish(x, FLT_MAX, flags), flags);
  if (to == TYPE_F32) {
    f32 r = nan_f32(narrow(x, flags));
    if (flags & PTX_FTZ) r = flush_f32(r);
    return bits_of_f32((f32)finish(r, FLT_MAX, flags));
  }
  if (from == TYPE_F64 && x != x) return bits;
  return bits_of_f64(finish(x, DBL_MAX, flags));
}

static u64 convert(u64 bits, PtxType to, PtxType from, u32 flags) {
  if (is_integer(from)) {
    Whole x = whole_of(bits, from);
    return is_integer(to) ? integer_to(x, to, flags & PTX_SAT) : integer_to_float(x, to, flags);
  }
  f64 x = float_of(bits, from);
  if (flags & PTX_FTZ && from == TYPE_F32) x = flush_f32((f32)x);
  return is_integer(to) ? float_to_integer(x, to, from, flags)
                        : float_to_float(bits, x, to, from, flags);
}

void ptx_run_convert(PtxWarp *w, const PtxOp *op) {
  PtxType to = (PtxType)op->arg[2], from = (PtxType)op->arg[3];
  for (u32 left = w->mask; left; left &= left - 1) {
    u32 i = (u32)__builtin_ctz(left);
    u64 bits = load(w, op->arg[1], op->arg[5], i), r;
    if (kind_of(from) == 'h') {
      const Format *f = from == TYPE_E4M3X2 ? &E4M3 : &E5M2;
      u32 low = f16_of(f8_value((u8)bits, f), 0), high = f16_of(f8_value((u8)(bits >> 8), f), 0);
      r = high << 16 | low;
    } else {
      r = convert(bits, to, from, op->flags);
    }
    store(w, op->arg[0], op->arg[4], i, r);
  }
}

static u32 half_of(f64 x, PtxType to, u32 flags) {
  if (to == TYPE_F16X2) return f16_of(x, flags);
  if (to == TYPE_BF16X2) return bf16_of(x, flags);
  return f8_of(x, to == TYPE_E4M3X2 ? &E4M3 : &E5M2, flags);
}

void ptx_run_convert_pair(PtxWarp *w, const PtxOp *op) {
  PtxType to = (PtxType)op->arg[3];
  u32 bytes = PTX_TYPE_INFO[to].bytes;
  for (u32 left = w->mask; left; left &= left - 1) {
    u32 i = (u32)__builtin_ctz(left);
    u32 high = half_of(PTX_ROW(w, f32, op->arg[1])[i], to, op->flags);
    u32 low = half_of(PTX_ROW(w, f32, op->arg[2])[i], to, op->flags);
    store(w, op->arg[0], bytes, i, high << 4 * bytes | low);
  }
}
