/* The types of PTX. */
#ifndef DTM_TESTS_GPUSIM_PTX_TYPES_H
#define DTM_TESTS_GPUSIM_PTX_TYPES_H

#include <stdint.h>

#define PTX_TYPES(X)                                                                               \
  X(U8, "u8", 1, 'u')                                                                              \
  X(U16, "u16", 2, 'u')                                                                            \
  X(U32, "u32", 4, 'u')                                                                            \
  X(U64, "u64", 8, 'u')                                                                            \
  X(S8, "s8", 1, 's')                                                                              \
  X(S16, "s16", 2, 's')                                                                            \
  X(S32, "s32", 4, 's')                                                                            \
  X(S64, "s64", 8, 's')                                                                            \
  X(B8, "b8", 1, 'b')                                                                              \
  X(B16, "b16", 2, 'b')                                                                            \
  X(B32, "b32", 4, 'b')                                                                            \
  X(B64, "b64", 8, 'b')                                                                            \
  X(F16, "f16", 2, 'f')                                                                            \
  X(BF16, "bf16", 2, 'f')                                                                          \
  X(F32, "f32", 4, 'f')                                                                            \
  X(TF32, "tf32", 4, 'f')                                                                          \
  X(F64, "f64", 8, 'f')                                                                            \
  X(F16X2, "f16x2", 4, 'h')                                                                        \
  X(BF16X2, "bf16x2", 4, 'h')                                                                      \
  X(E4M3X2, "e4m3x2", 2, 'h')                                                                      \
  X(E5M2X2, "e5m2x2", 2, 'h')                                                                      \
  X(PRED, "pred", 0, 'p')

typedef enum PtxType {
#define X(id, name, bytes, kind) TYPE_##id,
  PTX_TYPES(X)
#undef X
      TYPE_COUNT,
} PtxType;

/* kind: unsigned, signed, bits, floating, half pairs, predicate. */
typedef struct PtxTypeInfo {
  const char *name;
  uint8_t bytes;
  char kind;
} PtxTypeInfo;

extern const PtxTypeInfo PTX_TYPE_INFO[TYPE_COUNT];

#endif
