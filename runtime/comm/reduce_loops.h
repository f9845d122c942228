/* The innermost loops of reductions, included once per instruction set with
 *   LOOPS_NAME(x)  a name of this instruction set
 *   LOOPS_TARGET   the attribute that selects it
 *   LOOPS_STREAM(dst, src)  copies a line of 64 bytes past the caches
 * Plain loops that gcc and clang vectorise; the functions they call are inlined. */

#define FOLD(T, name, expr)                                                                        \
  LOOPS_TARGET static void LOOPS_NAME(name##_##T)(void *acc, const void *lhs, const void *rhs,     \
                                                  size_t n) {                                      \
    T *out = acc;                                                                                  \
    const T *left = lhs, *right = rhs;                                                             \
    LOOP_INDEPENDENT                                                                               \
    for (size_t i = 0; i < n; i++) {                                                               \
      T a = left[i], b = right[i];                                                                 \
      out[i] = (T)(expr);                                                                          \
    }                                                                                              \
  }
#define FOLD_FLOAT(T)                                                                              \
  FOLD(T, sum, a + b)                                                                              \
  FOLD(T, product, a *b)                                                                           \
  FOLD(T, max, ((b > a) | (b != b)) ? b : a)                                                       \
  FOLD(T, min, ((b < a) | (b != b)) ? b : a)
#define FOLD_ORDER(T)                                                                              \
  FOLD(T, max, b > a ? b : a)                                                                      \
  FOLD(T, min, b < a ? b : a)
/* Sums and products wrap; unsigned, so that this is defined. */
#define FOLD_BITS(T)                                                                               \
  FOLD(T, sum, a + b)                                                                              \
  FOLD(T, product, 1u * a * b)                                                                     \
  FOLD(T, and, a &b)                                                                               \
  FOLD(T, or, a | b)                                                                               \
  FOLD(T, xor, a ^ b)

FOLD_FLOAT(double)
FOLD_FLOAT(float)
FOLD_ORDER(int64_t)
FOLD_ORDER(int32_t)
FOLD_ORDER(int16_t)
FOLD_ORDER(int8_t)
FOLD_ORDER(uint8_t)
FOLD_BITS(uint64_t)
FOLD_BITS(uint32_t)
FOLD_BITS(uint16_t)
FOLD_BITS(uint8_t)

LOOPS_TARGET static void LOOPS_NAME(widen_bf16)(float *out, const uint16_t *in, size_t n) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    out[i] = abi_from_bf16(in[i]);
  }
}

LOOPS_TARGET static void LOOPS_NAME(narrow_bf16)(uint16_t *out, const float *in, size_t n) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    out[i] = abi_to_bf16(in[i]);
  }
}

LOOPS_TARGET static void LOOPS_NAME(widen_f16)(float *out, const uint16_t *in, size_t n) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    out[i] = abi_from_f16(in[i]);
  }
}

LOOPS_TARGET static void LOOPS_NAME(narrow_f16)(uint16_t *out, const float *in, size_t n) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    out[i] = abi_to_f16(in[i]);
  }
}

LOOPS_TARGET static void LOOPS_NAME(divide_float)(float *x, size_t n, float by) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    x[i] = x[i] / by;
  }
}

LOOPS_TARGET static void LOOPS_NAME(divide_double)(double *x, size_t n, double by) {
  LOOP_INDEPENDENT
  for (size_t i = 0; i < n; i++) {
    x[i] = x[i] / by;
  }
}

/* Copies past the caches, and fetches as many bytes at each address of `ahead`. dst is 64-byte
 * aligned, bytes a multiple of 64. */
LOOPS_TARGET ALWAYS_INLINE void LOOPS_NAME(stream_with)(unsigned char *dst,
                                                        const unsigned char *src, size_t bytes,
                                                        const unsigned char *const *ahead,
                                                        int nahead) {
  for (size_t i = 0; i < bytes; i += 64) {
    for (int a = 0; a < nahead; a++) {
      __builtin_prefetch(ahead[a] + i);
    }
    LOOPS_STREAM(dst + i, src + i);
  }
}

/* Constant counts keep the addresses in registers. */
LOOPS_TARGET static void LOOPS_NAME(stream)(unsigned char *dst, const unsigned char *src,
                                            size_t bytes, const unsigned char *const *ahead,
                                            int nahead) {
  if (nahead == 1) {
    const unsigned char *const one[] = {ahead[0]};
    LOOPS_NAME(stream_with)(dst, src, bytes, one, 1);
  } else if (nahead == 2) {
    const unsigned char *const two[] = {ahead[0], ahead[1]};
    LOOPS_NAME(stream_with)(dst, src, bytes, two, 2);
  } else {
    LOOPS_NAME(stream_with)(dst, src, bytes, ahead, nahead);
  }
}

#define INTEGER_ROW(S, U)                                                                          \
  {                                                                                                \
    [ABI_SUM] = LOOPS_NAME(sum_##U), [ABI_PRODUCT] = LOOPS_NAME(product_##U),                      \
    [ABI_MAX] = LOOPS_NAME(max_##S), [ABI_MIN] = LOOPS_NAME(min_##S),                              \
    [ABI_AND] = LOOPS_NAME(and_##U), [ABI_OR] = LOOPS_NAME(or_##U),                                \
    [ABI_XOR] = LOOPS_NAME(xor_##U)                                                                \
  }
#define FLOAT_ROW(T)                                                                               \
  {                                                                                                \
    [ABI_SUM] = LOOPS_NAME(sum_##T), [ABI_AVG] = LOOPS_NAME(sum_##T),                              \
    [ABI_PRODUCT] = LOOPS_NAME(product_##T), [ABI_MAX] = LOOPS_NAME(max_##T),                      \
    [ABI_MIN] = LOOPS_NAME(min_##T)                                                                \
  }

static const ReduceLoops LOOPS_NAME(loops) = {
    .fold =
        {
            [ABI_F64] = FLOAT_ROW(double),
            [ABI_F32] = FLOAT_ROW(float),
            [ABI_BF16] = FLOAT_ROW(float),
            [ABI_F16] = FLOAT_ROW(float),
            [ABI_I64] = INTEGER_ROW(int64_t, uint64_t),
            [ABI_I32] = INTEGER_ROW(int32_t, uint32_t),
            [ABI_I16] = INTEGER_ROW(int16_t, uint16_t),
            [ABI_I8] = INTEGER_ROW(int8_t, uint8_t),
            [ABI_U8] = INTEGER_ROW(uint8_t, uint8_t),
            [ABI_BOOL] = {[ABI_SUM] = LOOPS_NAME(or_uint8_t),
                          [ABI_PRODUCT] = LOOPS_NAME(and_uint8_t),
                          [ABI_MAX] = LOOPS_NAME(or_uint8_t),
                          [ABI_MIN] = LOOPS_NAME(and_uint8_t),
                          [ABI_AND] = LOOPS_NAME(and_uint8_t),
                          [ABI_OR] = LOOPS_NAME(or_uint8_t),
                          [ABI_XOR] = LOOPS_NAME(xor_uint8_t)},
        },
    .widen = {[ABI_BF16] = LOOPS_NAME(widen_bf16), [ABI_F16] = LOOPS_NAME(widen_f16)},
    .narrow = {[ABI_BF16] = LOOPS_NAME(narrow_bf16), [ABI_F16] = LOOPS_NAME(narrow_f16)},
    .divide_float = LOOPS_NAME(divide_float),
    .divide_double = LOOPS_NAME(divide_double),
    .stream = LOOPS_NAME(stream),
};

#undef FOLD
#undef FOLD_FLOAT
#undef FOLD_ORDER
#undef FOLD_BITS
#undef INTEGER_ROW
#undef FLOAT_ROW
#undef LOOPS_NAME
#undef LOOPS_TARGET
#undef LOOPS_STREAM
