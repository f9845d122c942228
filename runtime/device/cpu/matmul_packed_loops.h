/* The innermost loops of packed matrix products, included once per instruction set with
 *   LOOPS_NAME(x)  a name of this one
 *   LOOPS_TARGET   the attribute that selects the instruction set
 *   LANES          f32 elements of a vector
 *   ROWS           rows of a tile (at most LANES), so that ROWS x 2 vectors of sums stay in
 * registers
 */
#include "device/cpu/zip.h"

typedef float LOOPS_NAME(V) __attribute__((vector_size(4 * LANES)));
typedef int32_t LOOPS_NAME(VI) __attribute__((vector_size(4 * LANES)));
typedef uint16_t LOOPS_NAME(VH) __attribute__((vector_size(2 * LANES)));
typedef float LOOPS_NAME(VU) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t LOOPS_NAME(VHU) __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
#define V LOOPS_NAME(V)
#define VI LOOPS_NAME(VI)
#define VH LOOPS_NAME(VH)
#define VU LOOPS_NAME(VU)
#define VHU LOOPS_NAME(VHU)
#define INLINE LOOPS_TARGET static inline __attribute__((always_inline))
#define COLUMNS (2 * LANES)

INLINE V LOOPS_NAME(all)(float x) {
  return x - (V){0};
}
INLINE VI LOOPS_NAME(pick)(VI mask, VI yes, VI no) {
  return (yes & mask) | (no & ~mask);
}

/* --- elements as f32 and back: the conversions of abi/number.h, a vector at a time --------------
 */

INLINE V LOOPS_NAME(load)(uint32_t dtype, const void *from, int64_t at) {
  if (dtype == ABI_F32) return *(const VU *)((const float *)from + at);
  VI h = __builtin_convertvector(*(const VHU *)((const uint16_t *)from + at), VI);
  if (dtype == ABI_BF16) return (V)(h << 16);
  /* A number of f16 is 2^112 times what its bits mean in f32; exponent 31 is 255 there. */
  VI magnitude = (h & 0x7fff) << 13, special = (h & 0x7c00) == 0x7c00;
  VI bits = (VI)((V)magnitude * 0x1p112f) | (special & 0x7f800000);
  return (V)(bits | (h & 0x8000) << 16);
}

INLINE void LOOPS_NAME(store)(uint32_t dtype, void *to, int64_t at, V x) {
  if (dtype == ABI_F32) {
    *(VU *)((float *)to + at) = x;
    return;
  }
  VI u = (VI)x, magnitude = u & 0x7fffffff, nan = magnitude > 0x7f800000, h;
  if (dtype == ABI_BF16) {
    /* The shift is arithmetic: what it brings in goes when 16 bits are kept. */
    h = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    h = LOOPS_NAME(pick)(nan, u >> 16 | 0x40, h);
  } else {
    VI tiny = magnitude < 0x38800000, large = magnitude >= 0x47800000;
    VI subnormal = (VI)((V)magnitude + 0.5f) - 0x3f000000;
    h = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    h = LOOPS_NAME(pick)(tiny, subnormal, h);
    h = LOOPS_NAME(pick)(large, (VI){0} + 0x7c00, h);
    h = LOOPS_NAME(pick)(nan, (VI){0} + 0x7fff, h) | (u >> 16 & 0x8000);
  }
  *(VHU *)((uint16_t *)to + at) = __builtin_convertvector(h, VH);
}

/* --- packing ------------------------------------------------------------------------------------
 */

/* Elements [i, k], i < count, k < depth, to to[k * width + i]; those up to width are 0. */
INLINE void LOOPS_NAME(pack_any)(uint32_t dtype, const void *from, int64_t count, int64_t depth,
                                 int64_t i_step, int64_t k_step, int64_t width, float *to) {
  for (int64_t k = 0; k < depth; k++)
    for (int64_t i = 0; i < width; i++)
      to[k * width + i] = i < count ? (float)abi_load(from, dtype, i * i_step + k * k_step) : 0.0f;
}

/* LANES rows of LANES consecutive elements, turned over. */
INLINE void LOOPS_NAME(turn)(uint32_t dtype, const void *from, int64_t rows, int64_t i_step, V *x) {
  for (int i = 0; i < LANES; i++)
    x[i] = i < rows ? LOOPS_NAME(load)(dtype, from, i * i_step) : LOOPS_NAME(all)(0);
  for (int round = LANES; round > 1; round /= 2) {
    V y[LANES];
    for (int r = 0; r < LANES / 2; r++) {
      y[2 * r] = __builtin_shufflevector(x[r], x[r + LANES / 2], ZIP_LOW(LANES));
      y[2 * r + 1] = __builtin_shufflevector(x[r], x[r + LANES / 2], ZIP_HIGH(LANES));
    }
    for (int r = 0; r < LANES; r++) x[r] = y[r];
  }
}

/* Rows of consecutive k. */
INLINE void LOOPS_NAME(pack_turned)(uint32_t dtype, const void *from, int64_t count, int64_t depth,
                                    int64_t i_step, int64_t width, float *to) {
  int64_t k = 0;
  size_t size = abi_dtype_bytes(dtype);
  for (; k + LANES <= depth; k += LANES)
    for (int64_t i = 0; i < width; i += LANES) {
      V x[LANES];
      const char *at = (const char *)from + (size_t)(i * i_step + k) * size;
      if (count - i >= LANES)
        LOOPS_NAME(turn)(dtype, at, LANES, i_step, x);
      else if (count - i == ROWS)
        LOOPS_NAME(turn)(dtype, at, ROWS, i_step, x);
      else
        LOOPS_NAME(turn)(dtype, at, count - i, i_step, x);
      /* Where a row is narrower than the vector, the next store puts right what this one spoils. */
      for (int j = 0; j < LANES; j++) *(VU *)(to + (k + j) * width + i) = x[j];
    }
  LOOPS_NAME(pack_any)
  (dtype, (const char *)from + (size_t)k * size, count, depth - k, i_step, 1, width,
   to + k * width);
}

INLINE void LOOPS_NAME(pack_rows_of)(uint32_t dtype, const void *from, int64_t count, int64_t depth,
                                     int64_t i_step, int64_t k_step, float *to, int64_t apart) {
  size_t size = abi_dtype_bytes(dtype);
  int64_t whole = i_step == 1 && k_step != 1 ? (count - LANES + ROWS) / ROWS : 0;
  if (whole < 0) whole = 0;
  /* Vectors are wider than a row of a panel: the last panels of a block are read element by element
   * where one would reach behind the rows. */
  for (int64_t k = 0; k < depth && whole; k++) {
    const char *row = (const char *)from + (size_t)(k * k_step) * size;
    for (int64_t p = 0; p < whole; p++)
      *(VU *)(to + p * apart + k * ROWS) = LOOPS_NAME(load)(dtype, row, p * ROWS);
  }
  for (int64_t p = whole; p * ROWS < count; p++) {
    const char *at = (const char *)from + (size_t)(p * ROWS * i_step) * size;
    int64_t rows = count - p * ROWS < ROWS ? count - p * ROWS : ROWS;
    if (k_step == 1)
      LOOPS_NAME(pack_turned)(dtype, at, rows, depth, i_step, ROWS, to + p * apart);
    else
      LOOPS_NAME(pack_any)(dtype, at, rows, depth, i_step, k_step, ROWS, to + p * apart);
  }
}

INLINE void LOOPS_NAME(pack_columns_of)(uint32_t dtype, const void *from, int64_t count,
                                        int64_t depth, int64_t j_step, int64_t k_step, float *to) {
  if (k_step == 1) {
    LOOPS_NAME(pack_turned)(dtype, from, count, depth, j_step, COLUMNS, to);
  } else if (j_step == 1 && count == COLUMNS) {
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < COLUMNS; j += LANES)
        *(VU *)(to + k * COLUMNS + j) = LOOPS_NAME(load)(dtype, from, k * k_step + j);
  } else {
    LOOPS_NAME(pack_any)(dtype, from, count, depth, j_step, k_step, COLUMNS, to);
  }
}

LOOPS_TARGET static void LOOPS_NAME(pack_rows)(uint32_t dtype, const void *from, int64_t count,
                                               int64_t depth, int64_t i_step, int64_t k_step,
                                               float *to, int64_t apart) {
  if (dtype == ABI_F32)
    LOOPS_NAME(pack_rows_of)(ABI_F32, from, count, depth, i_step, k_step, to, apart);
  else if (dtype == ABI_BF16)
    LOOPS_NAME(pack_rows_of)(ABI_BF16, from, count, depth, i_step, k_step, to, apart);
  else
    LOOPS_NAME(pack_rows_of)(ABI_F16, from, count, depth, i_step, k_step, to, apart);
}

LOOPS_TARGET static void LOOPS_NAME(pack_columns)(uint32_t dtype, const void *from, int64_t count,
                                                  int64_t depth, int64_t j_step, int64_t k_step,
                                                  float *to) {
  if (dtype == ABI_F32)
    LOOPS_NAME(pack_columns_of)(ABI_F32, from, count, depth, j_step, k_step, to);
  else if (dtype == ABI_BF16)
    LOOPS_NAME(pack_columns_of)(ABI_BF16, from, count, depth, j_step, k_step, to);
  else
    LOOPS_NAME(pack_columns_of)(ABI_F16, from, count, depth, j_step, k_step, to);
}

/* --- tiles --------------------------------------------------------------------------------------
 */

INLINE V LOOPS_NAME(relu)(V x) {
  return (V)((VI)x & ~(VI)(x <= 0)); /* NaN stays */
}

/* Writes a tile: `out` [ROWS, COLUMNS] with everything that the strip asks for. */
INLINE void LOOPS_NAME(finish_as)(uint32_t dtype, const PackedStrip *s, int64_t row, V (*sums)[2]) {
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < 2; j++) {
      int64_t at = (row + r) * s->out_row + j * LANES;
      V x = sums[r][j];
      if (s->before)
        x = LOOPS_NAME(load)(ABI_F32, s->before, (row + r) * s->before_row + j * LANES) + x;
      if (s->column_bias) x += LOOPS_NAME(load)(dtype, s->column_bias, j * LANES);
      if (s->row_bias) x += (float)abi_load(s->row_bias, dtype, row + r);
      if (s->relu) x = LOOPS_NAME(relu)(x);
      if (s->addend) x += LOOPS_NAME(load)(dtype, s->addend, at);
      LOOPS_NAME(store)(dtype, s->out, at, x);
    }
}

INLINE void LOOPS_NAME(finish)(const PackedStrip *s, int64_t row, V (*sums)[2]) {
  if (s->dtype == ABI_F32 && !s->column_bias && !s->row_bias && !s->relu && !s->addend) {
    float *out = (float *)s->out + row * s->out_row;
    const float *before = s->before ? s->before + row * s->before_row : NULL;
    for (int r = 0; r < ROWS; r++)
      for (int j = 0; j < 2; j++) {
        V x = sums[r][j];
        if (before) x = *(const VU *)(before + r * s->before_row + j * LANES) + x;
        *(VU *)(out + r * s->out_row + j * LANES) = x;
      }
  } else if (s->dtype == ABI_F32) {
    LOOPS_NAME(finish_as)(ABI_F32, s, row, sums);
  } else if (s->dtype == ABI_BF16) {
    LOOPS_NAME(finish_as)(ABI_BF16, s, row, sums);
  } else {
    LOOPS_NAME(finish_as)(ABI_F16, s, row, sums);
  }
}

/* The same, of a tile at the edge. */
LOOPS_TARGET static void LOOPS_NAME(finish_some)(const PackedStrip *s, int64_t row, int64_t rows,
                                                 const float *sums) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < s->columns; j++) {
      int64_t at = (row + r) * s->out_row + j;
      float x = sums[r * COLUMNS + j];
      if (s->before) x = s->before[(row + r) * s->before_row + j] + x;
      if (s->column_bias) x += (float)abi_load(s->column_bias, s->dtype, j);
      if (s->row_bias) x += (float)abi_load(s->row_bias, s->dtype, row + r);
      if (s->relu) x = x <= 0 ? 0 : x;
      if (s->addend) x += (float)abi_load(s->addend, s->dtype, at);
      abi_store(s->out, s->dtype, at, (double)x);
    }
}

INLINE void LOOPS_NAME(sum)(int64_t depth, const float *a, const float *b, V (*sums)[2]) {
  for (int r = 0; r < ROWS; r++) sums[r][0] = sums[r][1] = LOOPS_NAME(all)(0);
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k++) {
    V b0 = *(const VU *)(b + k * COLUMNS), b1 = *(const VU *)(b + k * COLUMNS + LANES);
    for (int r = 0; r < ROWS; r++) {
      float x = a[k * ROWS + r];
      sums[r][0] += x * b0;
      sums[r][1] += x * b1;
    }
  }
}

LOOPS_TARGET static void LOOPS_NAME(multiply)(const PackedStrip *s, int64_t apart) {
  int64_t panels = (s->rows + ROWS - 1) / ROWS, line = 0, lines = s->next_lines * s->next_rows;
  for (int64_t p = 0; p < panels; p++) {
    V sums[ROWS][2];
    int64_t row = p * ROWS, rows = s->rows - row < ROWS ? s->rows - row : ROWS;
    for (int64_t until = lines * (p + 1) / panels; line < until; line++)
      __builtin_prefetch(
          s->next + line / s->next_lines * s->next_row + line % s->next_lines * s->next_line, 0, 2);
    const char *to = s->before ? (const char *)(s->before + row * s->before_row) : NULL;
    for (int r = 0; r < ROWS && to; r++) __builtin_prefetch(to + r * s->before_row * 4, 1);
    LOOPS_NAME(sum)(s->depth, s->a + p * apart, s->b, sums);
    if (rows == ROWS && s->columns == COLUMNS) {
      LOOPS_NAME(finish)(s, row, sums);
    } else {
      float edge[ROWS * COLUMNS];
      for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) *(VU *)(edge + r * COLUMNS + j * LANES) = sums[r][j];
      LOOPS_NAME(finish_some)(s, row, rows, edge);
    }
  }
}

static const PackedLoops LOOPS_NAME(loops) = {ROWS, COLUMNS, LOOPS_NAME(pack_rows),
                                              LOOPS_NAME(pack_columns), LOOPS_NAME(multiply)};

#undef V
#undef VI
#undef VH
#undef VU
#undef VHU
#undef INLINE
#undef COLUMNS
#undef LOOPS_NAME
#undef LOOPS_TARGET
#undef LANES
#undef ROWS
