/* Element types. */
#ifndef DTM_TYPES_DTYPE_H
#define DTM_TYPES_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum, source name, bytes, safetensors name). Ordered: floats, then integers, then bool. */
#define DTYPES(X)                                                                                  \
  X(F64, "f64", 8, "F64")                                                                          \
  X(F32, "f32", 4, "F32")                                                                          \
  X(BF16, "bf16", 2, "BF16")                                                                       \
  X(F16, "f16", 2, "F16")                                                                          \
  X(F8_E4M3, "f8_e4m3", 1, "F8_E4M3")                                                              \
  X(F8_E5M2, "f8_e5m2", 1, "F8_E5M2")                                                              \
  X(I64, "i64", 8, "I64")                                                                          \
  X(I32, "i32", 4, "I32")                                                                          \
  X(I16, "i16", 2, "I16")                                                                          \
  X(I8, "i8", 1, "I8")                                                                             \
  X(U8, "u8", 1, "U8")                                                                             \
  X(BOOL, "bool", 1, "BOOL")

typedef enum DType {
  DT_NONE = 0,
#define X(id, name, bytes, st) DT_##id,
  DTYPES(X)
#undef X
      DT_COUNT
} DType;

const char *dtype_name(DType t);
size_t dtype_bytes(DType t);
DType dtype_by_name(const char *name); /* DT_NONE when unknown */
bool dtype_is_float(DType t);
bool dtype_is_integer(DType t); /* signed and unsigned integers; not bool */
/* Widest exact conversion: every value of `from` is a value of `to`. */
bool dtype_widens(DType from, DType to);

#endif
