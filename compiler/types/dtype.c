/* Element types: see dtype.h. */
#include "types/dtype.h"

#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
} table[DT_COUNT] = {[DT_NONE] = {"?", 0},
#define X(id, name, bytes, st) [DT_##id] = {name, bytes},
                     ABI_DTYPES(X)
#undef X
};

const char *dtype_name(DType t) {
  return table[t].name;
}
size_t dtype_bytes(DType t) {
  return table[t].bytes;
}

DType dtype_by_name(const char *name) {
  for (int t = DT_NONE + 1; t < DT_COUNT; t++)
    if (strcmp(table[t].name, name) == 0) return (DType)t;
  return DT_NONE;
}

bool dtype_is_float(DType t) {
  return t >= DT_F64 && t <= DT_F8_E5M2;
}
bool dtype_is_storage(DType t) {
  return t == DT_F8_E4M3 || t == DT_F8_E5M2;
}
bool dtype_is_integer(DType t) {
  return t >= DT_I64 && t <= DT_U8;
}

/* Bits of mantissa (with the implicit one) and the largest exponent: what exactness depends on. */
static void float_range(DType t, int *mantissa, int *exponent) {
  static const signed char m[] = {53, 24, 8, 11, 4, 3};
  static const int top[] = {1024, 128, 128, 16, 9, 16};
  *mantissa = m[t - DT_F64];
  *exponent = top[t - DT_F64];
}

/* Bits of magnitude of an integer type. */
static int integer_bits(DType t) {
  return t == DT_BOOL ? 1 : t == DT_U8 ? 8 : (int)dtype_bytes(t) * 8 - 1;
}

bool dtype_widens(DType from, DType to) {
  if (from == to) return true;
  if (dtype_is_float(from) != dtype_is_float(to)) {
    if (dtype_is_float(from)) return false;
    int m, e;
    float_range(to, &m, &e);
    return integer_bits(from) <= m;
  }
  if (dtype_is_float(from)) {
    int m0, e0, m1, e1;
    float_range(from, &m0, &e0);
    float_range(to, &m1, &e1);
    return m0 <= m1 && e0 <= e1;
  }
  if (to == DT_BOOL || (to == DT_U8 && from != DT_BOOL)) return false;
  return integer_bits(from) <= integer_bits(to);
}
