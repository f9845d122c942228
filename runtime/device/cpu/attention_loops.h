/* The innermost loops of attention, included once per instruction set and element type with
 *   LOOPS_NAME(x)  a name of these two
 *   LOOPS_TARGET   the attribute that selects the instruction set
 *   LOOPS_WIDE     1: computed in f64, 0: in f32, as bf16 and f16 are too
 *   LANES          elements of a vector
 *   LOOPS_MULTIPLY(a, b)  products of the low halves of lanes of 64 bits
 *   ROWS           rows of a tile (at most 8), so that ROWS x 2 vectors of sums stay in registers
 *
 * Lanes are queries where scores are computed, so that softmax needs nothing across lanes and
 * neither k nor v is rearranged; they are features where cotangents are summed. Every sum is added
 * up in ascending order of its index by one thread.
 */

#include "device/cpu/zip.h"

#if LOOPS_WIDE
#define T double
#define INT int64_t
#define EXP_MAGIC 0x1.8p52
#define EXP_LN2_HIGH 6.93147180369123816490e-1
#define EXP_LN2_LOW 1.90821492927058770002e-10
#define EXP_BIAS 1023
#define EXP_SHIFT 52
#define EXP_LOWEST -708.396418532264
#define LOOPS_LOG log
static const T LOOPS_NAME(terms)[] = {
    1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
#else
#define T float
#define INT int32_t
#define EXP_MAGIC 0x1.8p23f
#define EXP_LN2_HIGH 0.693359375
#define EXP_LN2_LOW -2.12194440054690583e-4
#define EXP_BIAS 127
#define EXP_SHIFT 23
#define EXP_LOWEST -87.33654475
#define LOOPS_LOG logf
static const T LOOPS_NAME(terms)[] = {
    0.5f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f};
#endif
enum { LOOPS_NAME(NTERMS) = sizeof LOOPS_NAME(terms) / sizeof(T) };

typedef T LOOPS_NAME(V) __attribute__((vector_size(sizeof(T) * LANES)));
typedef INT LOOPS_NAME(VI) __attribute__((vector_size(sizeof(T) * LANES)));
typedef T LOOPS_NAME(VU)
    __attribute__((vector_size(sizeof(T) * LANES), aligned(sizeof(T)), may_alias));
#define V LOOPS_NAME(V)
#define VI LOOPS_NAME(VI)
typedef uint64_t LOOPS_NAME(U) __attribute__((vector_size(sizeof(T) * LANES)));
#define VU LOOPS_NAME(VU)
#define U LOOPS_NAME(U)
#define INLINE LOOPS_TARGET static inline __attribute__((always_inline))
enum { LOOPS_NAME(PANEL) = 2 * LANES };
#define PANEL LOOPS_NAME(PANEL)

INLINE V LOOPS_NAME(load)(const T *p) {
  return *(const VU *)p;
}
INLINE void LOOPS_NAME(store)(T *p, V x) {
  *(VU *)p = x;
}
INLINE V LOOPS_NAME(all)(T x) {
  return x - (V){0};
}
INLINE V LOOPS_NAME(pick)(VI mask, V yes, V no) {
  return (V)(((VI)yes & mask) | ((VI)no & ~mask));
}
/* NaN in the second operand stays. */
INLINE V LOOPS_NAME(larger)(V a, V b) {
  return LOOPS_NAME(pick)((VI)(a > b), a, b);
}

/* e to the power x for x <= 0, 0 where the result is below the normal numbers: within 1 ulp, by the
 * reduction and the polynomials of codegen/llvm_math.c. */
INLINE V LOOPS_NAME(exp)(V x) {
  const V magic = LOOPS_NAME(all)(EXP_MAGIC);
  V shifted = x * (T)1.44269504088896340736 + magic, n = shifted - magic;
  V r = x - n * (T)EXP_LN2_HIGH;
  r = r - n * (T)EXP_LN2_LOW;
  V q = LOOPS_NAME(all)(LOOPS_NAME(terms)[LOOPS_NAME(NTERMS) - 1]);
  for (int i = LOOPS_NAME(NTERMS) - 2; i >= 0; i--) q = q * r + LOOPS_NAME(terms)[i];
  V y = (r * r) * q + r + (T)1;
  VI power = ((VI)shifted - (VI)magic + EXP_BIAS) << EXP_SHIFT;
  return (V)((VI)(y * (V)power) & ~(VI)(x < (T)EXP_LOWEST));
}

/* --- products -----------------------------------------------------------------------------------
 */

/* sums[r][0..1] += sum over k of a[r * a_row + k * a_k] * b[k * b_k ..]. */
INLINE void LOOPS_NAME(tile)(int rows, const T *a, int64_t a_row, int64_t a_k, const T *b,
                             int64_t b_k, int64_t n, V (*sums)[2]) {
  for (int64_t k = 0; k < n; k++) {
    V b0 = LOOPS_NAME(load)(b + k * b_k), b1 = LOOPS_NAME(load)(b + k * b_k + LANES);
    for (int r = 0; r < rows; r++) {
      T x = a[r * a_row + k * a_k];
      sums[r][0] += x * b0;
      sums[r][1] += x * b1;
    }
  }
}

/* out[r, 0 .. PANEL) = (add ? out * factor : 0) + a b; factor NULL = 1. */
INLINE void LOOPS_NAME(rows)(int rows, const T *a, int64_t a_row, int64_t a_k, const T *b,
                             int64_t b_k, int64_t n, T *out, int64_t out_row, int add,
                             const T *factor) {
  V sums[ROWS][2];
  for (int r = 0; r < rows; r++) {
    sums[r][0] = add ? LOOPS_NAME(load)(out + r * out_row) : LOOPS_NAME(all)(0);
    sums[r][1] = add ? LOOPS_NAME(load)(out + r * out_row + LANES) : LOOPS_NAME(all)(0);
    if (factor) {
      sums[r][0] *= LOOPS_NAME(load)(factor);
      sums[r][1] *= LOOPS_NAME(load)(factor + LANES);
    }
  }
  LOOPS_NAME(tile)(rows, a, a_row, a_k, b, b_k, n, sums);
  for (int r = 0; r < rows; r++) {
    LOOPS_NAME(store)(out + r * out_row, sums[r][0]);
    LOOPS_NAME(store)(out + r * out_row + LANES, sums[r][1]);
  }
}

/* The product of `m` rows, ROWS at a time. */
INLINE void LOOPS_NAME(product)(int64_t m, const T *a, int64_t a_row, int64_t a_k, const T *b,
                                int64_t b_k, int64_t n, T *out, int64_t out_row, int add,
                                const T *factor) {
  int64_t i = 0;
  for (; i + ROWS <= m; i += ROWS) LOOPS_NAME(rows)
  (ROWS, a + i * a_row, a_row, a_k, b, b_k, n, out + i * out_row, out_row, add, factor);
#define LEFT(R)                                                                                    \
  case R:                                                                                          \
    if (R < ROWS) LOOPS_NAME(rows)                                                                 \
    (R < ROWS ? R : 1, a + i * a_row, a_row, a_k, b, b_k, n, out + i * out_row, out_row, add,      \
     factor);                                                                                      \
    break;
  switch (m - i) { LEFT(1) LEFT(2) LEFT(3) LEFT(4) LEFT(5) LEFT(6) LEFT(7) }
#undef LEFT
}

/* Rows are n apart in a: keys of scores, keys of cotangents. */
LOOPS_TARGET static void LOOPS_NAME(by_rows)(int64_t m, const T *a, int64_t a_row, const T *b,
                                             int64_t b_k, int64_t n, T *out, int64_t out_row,
                                             int add) {
  LOOPS_NAME(product)(m, a, a_row, 1, b, b_k, n, out, out_row, add, NULL);
}
/* Rows lie side by side in a: features of v, queries of dq. */
LOOPS_TARGET static void LOOPS_NAME(by_columns)(int64_t m, const T *a, int64_t a_k, const T *b,
                                                int64_t b_k, int64_t n, T *out, int64_t out_row,
                                                const T *factor) {
  if (factor)
    LOOPS_NAME(product)(m, a, 1, a_k, b, b_k, n, out, out_row, 1, factor);
  else
    LOOPS_NAME(product)(m, a, 1, a_k, b, b_k, n, out, out_row, 1, NULL);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

/* Elements `n` from `at` on as T. */
LOOPS_TARGET static void LOOPS_NAME(read)(uint32_t dtype, const void *from, int64_t at, int64_t n,
                                          T *to) {
  if (dtype == ABI_BF16) {
    const uint16_t *in = (const uint16_t *)from + at;
    for (int64_t c = 0; c < n; c++) to[c] = (T)abi_from_bf16(in[c]);
  } else if (dtype == ABI_F16) {
    const uint16_t *in = (const uint16_t *)from + at;
    for (int64_t c = 0; c < n; c++) to[c] = (T)abi_from_f16(in[c]);
  } else if (abi_dtype_bytes(dtype) == sizeof(T)) {
    memcpy(to, (const T *)from + at, (size_t)n * sizeof(T));
  } else {
    for (int64_t c = 0; c < n; c++) to[c] = (T)abi_load(from, dtype, at + c);
  }
}

LOOPS_TARGET static void LOOPS_NAME(put)(uint32_t dtype, void *to, int64_t at, int64_t n,
                                         const T *from) {
  if (dtype == ABI_BF16) {
    uint16_t *out = (uint16_t *)to + at;
    for (int64_t c = 0; c < n; c++) out[c] = abi_to_bf16((float)from[c]);
  } else if (dtype == ABI_F16) {
    uint16_t *out = (uint16_t *)to + at;
    for (int64_t c = 0; c < n; c++) out[c] = abi_to_f16((float)from[c]);
  } else if (abi_dtype_bytes(dtype) == sizeof(T)) {
    memcpy((T *)to + at, from, (size_t)n * sizeof(T));
  } else {
    for (int64_t c = 0; c < n; c++) abi_store(to, dtype, at + c, (double)from[c]);
  }
}

static int64_t LOOPS_NAME(padded)(int64_t width) {
  return (width + PANEL - 1) / PANEL * PANEL;
}

/* Rows [row, row + n) as T, *stride apart: the tensor's own memory where that will do, else a copy
 * in `room`. `whole_panels`: elements up to the padded width are read, and are 0. */
LOOPS_TARGET static const T *LOOPS_NAME(rows_of)(uint32_t dtype, const void *from, int64_t row,
                                                 int64_t n, int64_t width, int whole_panels,
                                                 T *room, int64_t *stride) {
  int64_t padded = LOOPS_NAME(padded)(width);
  *stride = width;
  if (abi_dtype_bytes(dtype) == sizeof(T) && (!whole_panels || padded == width))
    return (const T *)from + row * width;
  *stride = padded;
  for (int64_t i = 0; i < n; i++) {
    LOOPS_NAME(read)(dtype, from, (row + i) * width, width, room + i * padded);
    for (int64_t c = width; c < padded; c++) room[i * padded + c] = 0;
  }
  return room;
}

/* x[r][c] becomes x[c][r]. */
INLINE void LOOPS_NAME(turn)(V x[LANES]) {
  for (int step = 1; step < LANES; step *= 2) {
    V y[LANES];
    for (int r = 0; r < LANES / 2; r++) {
      y[2 * r] = __builtin_shufflevector(x[r], x[r + LANES / 2], ZIP_LOW(LANES));
      y[2 * r + 1] = __builtin_shufflevector(x[r], x[r + LANES / 2], ZIP_HIGH(LANES));
    }
    for (int r = 0; r < LANES; r++) x[r] = y[r];
  }
}

/* LANES rows of elements, or where `row` is NULL zeros, as columns `PANEL` apart. */
LOOPS_TARGET static void LOOPS_NAME(pack_rows)(const T *const row[LANES], int64_t width, T scale,
                                               T *to) {
  int64_t c = 0;
  for (; c + LANES <= width; c += LANES) {
    V x[LANES];
    for (int r = 0; r < LANES; r++)
      x[r] = row[r] ? LOOPS_NAME(load)(row[r] + c) * scale : LOOPS_NAME(all)(0);
    LOOPS_NAME(turn)(x);
    for (int r = 0; r < LANES; r++) LOOPS_NAME(store)(to + (c + r) * PANEL, x[r]);
  }
  for (; c < width; c++)
    for (int r = 0; r < LANES; r++) to[c * PANEL + r] = row[r] ? row[r][c] * scale : 0;
}

/* Rows [row, row + n) times `scale` as panels; queries that are not there are 0. `room` holds
 * LANES rows. */
LOOPS_TARGET static void LOOPS_NAME(pack)(uint32_t dtype, const void *from, int64_t row, int64_t n,
                                          int64_t width, T scale, T *room, T *panels) {
  for (int64_t i = 0; i < LOOPS_NAME(padded)(n); i += LANES) {
    const T *lines[LANES];
    for (int r = 0; r < LANES; r++) {
      lines[r] = i + r < n ? room + r * width : NULL;
      if (i + r >= n) continue;
      if (abi_dtype_bytes(dtype) == sizeof(T))
        lines[r] = (const T *)from + (row + i + r) * width;
      else
        LOOPS_NAME(read)(dtype, from, (row + i + r) * width, width, room + r * width);
    }
    LOOPS_NAME(pack_rows)(lines, width, scale, panels + i / PANEL * PANEL * width + i % PANEL);
  }
}

/* The other way: the first n of LANES queries of panels, times `by` of each, to rows. */
LOOPS_TARGET static void LOOPS_NAME(unpack)(const T *panels, const T *by, int64_t n, int64_t width,
                                            T *room, uint32_t dtype, void *to, int64_t row) {
  V factor = LOOPS_NAME(load)(by);
  int64_t c = 0;
  for (; c + LANES <= width; c += LANES) {
    V x[LANES];
    for (int r = 0; r < LANES; r++) x[r] = LOOPS_NAME(load)(panels + (c + r) * PANEL) * factor;
    LOOPS_NAME(turn)(x);
    for (int r = 0; r < LANES; r++) LOOPS_NAME(store)(room + r * width + c, x[r]);
  }
  for (; c < width; c++)
    for (int r = 0; r < LANES; r++) room[r * width + c] = panels[c * PANEL + r] * by[r];
  LOOPS_NAME(put)(dtype, to, row * width, n * width, room);
}

LOOPS_TARGET static T LOOPS_NAME(dot)(const T *a, const T *b, int64_t n) {
  V sums = LOOPS_NAME(all)(0);
  T sum = 0;
  int64_t c = 0;
  for (; c + LANES <= n; c += LANES) sums += LOOPS_NAME(load)(a + c) * LOOPS_NAME(load)(b + c);
  for (int l = 0; l < LANES; l++) sum += sums[l];
  for (; c < n; c++) sum += a[c] * b[c];
  return sum;
}

LOOPS_TARGET static void LOOPS_NAME(write)(uint32_t dtype, void *to, int64_t row, int64_t rows,
                                           int64_t width, const void *sums, int64_t parts,
                                           int64_t apart) {
  int64_t padded = LOOPS_NAME(padded)(width);
  T line[PANEL];
  for (int64_t i = 0; i < rows; i++)
    for (int64_t c = 0; c < width; c += PANEL) {
      const T *from = (const T *)sums + i * padded + c;
      V x0 = LOOPS_NAME(load)(from), x1 = LOOPS_NAME(load)(from + LANES);
      for (int64_t p = 1; p < parts; p++) {
        x0 += LOOPS_NAME(load)(from + p * apart);
        x1 += LOOPS_NAME(load)(from + p * apart + LANES);
      }
      LOOPS_NAME(store)(line, x0);
      LOOPS_NAME(store)(line + LANES, x1);
      LOOPS_NAME(put)
      (dtype, to, (row + i) * width + c, width - c < PANEL ? width - c : PANEL, line);
    }
}

/* --- what queries see ---------------------------------------------------------------------------
 */

LOOPS_TARGET static void LOOPS_NAME(place_queries)(const Attention *a, int64_t first, int64_t n,
                                                   INT *at) {
  for (int64_t i = 0; i < LOOPS_NAME(padded)(n); i++)
    at[i] = (INT)attention_query_at(a, first + (i < n ? i : 0));
}

/* Which of the panel's queries see the key at this position, two vectors. */
INLINE void LOOPS_NAME(sees)(const INT *queries, INT key, VI out[2]) {
  VI q0, q1;
  memcpy(&q0, queries, sizeof q0);
  memcpy(&q1, queries + LANES, sizeof q1);
  out[0] = q0 >= key;
  out[1] = q1 >= key;
}

/* How many of the first n keys the panel's queries need: none of them sees those behind. */
static int64_t LOOPS_NAME(needed)(const INT *q_at, const INT *k_at, int64_t n) {
  INT last = q_at[0];
  for (int i = 1; i < PANEL; i++)
    if (q_at[i] > last) last = q_at[i];
  while (n > 0 && k_at[n - 1] > last) n--;
  return n;
}

/* Word 0 of the draw of each index, in the low half of a lane; what the high halves hold is
 * nobody's.
 */
INLINE U LOOPS_NAME(philox)(U index, uint64_t step, const U (*keys)[2]) {
  U c0 = index, c1 = index >> 32, c2 = (U){0} + step, c3 = (U){0} + (step >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    U p0 = LOOPS_MULTIPLY(c0, (U){0} + PHILOX_M0), p1 = LOOPS_MULTIPLY(c2, (U){0} + PHILOX_M1);
    c0 = (p1 >> 32) ^ c1 ^ keys[round][0];
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ keys[round][1];
    c3 = p0;
  }
  return c0;
}

/* keep[j][query of the panel] of dropout. */
LOOPS_TARGET static void LOOPS_NAME(draw)(const AttentionHead *h, int64_t first, int64_t n,
                                          int64_t j, int64_t nj, T *keep) {
  const Attention *a = h->a;
  const V kept = LOOPS_NAME(all)((T)(1 / (1 - a->dropout)));
  const INT threshold = (INT)philox_keep_threshold(a->dropout);
  enum { HALF = sizeof(U) / sizeof(uint64_t) };
  U keys[PHILOX_ROUNDS][2], row[2 * LANES / HALF];
  for (uint32_t r = 0; r < PHILOX_ROUNDS; r++) {
    keys[r][0] = (U){0} + (philox_key(a->seed, a->instance) + r * PHILOX_W0);
    keys[r][1] = (U){0} + ((uint32_t)a->instance + r * PHILOX_W1);
  }
  /* Lanes are queries in order, or in f32 those at even places and those at odd ones. */
  for (int64_t i = 0; i < PANEL; i++) {
    int64_t at = attention_query_at(a, first + (i < n ? i : 0)), v = i / LANES, l = i % LANES;
    uint64_t from = (h->number * (uint64_t)a->all_queries + (uint64_t)at) * (uint64_t)a->all_keys;
    if (LOOPS_WIDE)
      row[v][l] = from;
    else
      row[2 * v + l % 2][l / 2] = from;
  }
  for (int64_t k = 0; k < nj; k++) {
    uint64_t key = (uint64_t)attention_key_at(a, j + k);
    for (int v = 0; v < 2; v++) {
#if LOOPS_WIDE
      U draw = LOOPS_NAME(philox)(row[v] + key, a->step, keys) << 32 >> 40;
#else
      U even = LOOPS_NAME(philox)(row[2 * v] + key, a->step, keys) << 32 >> 40;
      U odd = LOOPS_NAME(philox)(row[2 * v + 1] + key, a->step, keys) << 32 >> 40;
      U draw = even | odd << 32;
#endif
      LOOPS_NAME(store)(keep + k * PANEL + v * LANES, (V)((VI)kept & ((VI)draw >= threshold)));
    }
  }
}

/* --- forward ------------------------------------------------------------------------------------
 */

/* Scores [n][PANEL] to exp(score - max), with the maxima and sums so far; `factor` is what earlier
 * results are to be multiplied by. keep, k_at NULL = no dropout, all seen. */
LOOPS_TARGET static void LOOPS_NAME(soften)(T *scores, int64_t n, const INT *q_at, const INT *k_at,
                                            const T *keep, T *max, T *sum, T *factor) {
  const V lowest = LOOPS_NAME(all)(-INFINITY), zero = LOOPS_NAME(all)(0);
  V old[2], top[2], total[2];
  for (int v = 0; v < 2; v++) top[v] = old[v] = LOOPS_NAME(load)(max + v * LANES);
  for (int64_t j = 0; j < n; j++) {
    T *s = scores + j * PANEL;
    V s0 = LOOPS_NAME(load)(s), s1 = LOOPS_NAME(load)(s + LANES);
    if (k_at) {
      VI seen[2];
      LOOPS_NAME(sees)(q_at, k_at[j], seen);
      s0 = LOOPS_NAME(pick)(seen[0], s0, lowest);
      s1 = LOOPS_NAME(pick)(seen[1], s1, lowest);
      LOOPS_NAME(store)(s, s0);
      LOOPS_NAME(store)(s + LANES, s1);
    }
    top[0] = LOOPS_NAME(larger)(top[0], s0);
    top[1] = LOOPS_NAME(larger)(top[1], s1);
  }
  for (int v = 0; v < 2; v++) {
    LOOPS_NAME(store)(max + v * LANES, top[v]);
    top[v] = LOOPS_NAME(pick)(top[v] == lowest, zero, top[v]); /* nothing seen yet */
    V f = LOOPS_NAME(exp)(old[v] - top[v]);
    LOOPS_NAME(store)(factor + v * LANES, f);
    total[v] = LOOPS_NAME(load)(sum + v * LANES) * f;
  }
  for (int64_t j = 0; j < n; j++) {
    T *s = scores + j * PANEL;
    V p0 = LOOPS_NAME(exp)(LOOPS_NAME(load)(s) - top[0]),
      p1 = LOOPS_NAME(exp)(LOOPS_NAME(load)(s + LANES) - top[1]);
    total[0] += p0;
    total[1] += p1;
    if (keep) {
      p0 *= LOOPS_NAME(load)(keep + j * PANEL);
      p1 *= LOOPS_NAME(load)(keep + j * PANEL + LANES);
    }
    LOOPS_NAME(store)(s, p0);
    LOOPS_NAME(store)(s + LANES, p1);
  }
  LOOPS_NAME(store)(sum, total[0]);
  LOOPS_NAME(store)(sum + LANES, total[1]);
}

LOOPS_TARGET static void LOOPS_NAME(forward)(const AttentionHead *h, int64_t first, int64_t count,
                                             const AttentionWork *w) {
  const Attention *a = h->a;
  const AttentionTensors *t = h->t;
  T *max = w->max, *sum = w->sum, factor[PANEL];
  INT *q_at = w->q_at, *k_at = w->k_at;
  int64_t padded = LOOPS_NAME(padded)(count);
  LOOPS_NAME(pack)
  (a->dtype, t->q, h->query_row + first, count, a->width, (T)a->scale, w->scores, w->q_panels);
  LOOPS_NAME(place_queries)(a, first, count, q_at);
  for (int64_t i = 0; i < padded; i++) {
    max[i] = -INFINITY;
    sum[i] = 0;
  }
  memset(w->out_panels, 0, (size_t)(padded * a->features) * sizeof(T));
  for (int64_t j = 0; j < a->keys; j += ATTENTION_KEYS) {
    int64_t n = a->keys - j < ATTENTION_KEYS ? a->keys - j : ATTENTION_KEYS, k_row, v_row;
    AttentionSight sight = dtm_rt_attention_sight(a, first, count, j, n);
    if (sight == SIGHT_NONE) continue;
    const T *k = LOOPS_NAME(rows_of)(a->dtype, t->k, h->key_row + j, n, a->width, 0, w->k, &k_row),
            *v = LOOPS_NAME(rows_of)(a->dtype, t->v, h->key_row + j, n, a->features, 0, w->v,
                                     &v_row);
    for (int64_t i = 0; i < n; i++) k_at[i] = (INT)attention_key_at(a, j + i);
    for (int64_t i = 0; i < count; i += PANEL) {
      T *out = (T *)w->out_panels + i * a->features;
      int64_t need = sight == SIGHT_SOME ? LOOPS_NAME(needed)(q_at + i, k_at, n) : n;
      LOOPS_NAME(by_rows)
      (need, k, k_row, (const T *)w->q_panels + i * a->width, PANEL, a->width, w->scores, PANEL, 0);
      if (a->dropout > 0) LOOPS_NAME(draw)(h, first + i, count - i, j, need, w->keep);
      LOOPS_NAME(soften)
      (w->scores, need, q_at + i, sight == SIGHT_ALL ? NULL : k_at, a->dropout > 0 ? w->keep : NULL,
       max + i, sum + i, factor);
      LOOPS_NAME(by_columns)(a->features, v, v_row, w->scores, PANEL, need, out, PANEL, factor);
    }
  }
  for (int64_t i = 0; i < padded; i++) {
    T total = sum[i];
    if (i < count)
      ((T *)t->lse)[h->query_row + first + i] =
          total == 0 ? (T)-INFINITY : max[i] + (T)LOOPS_LOG(total);
    sum[i] = total == 0 ? 0 : 1 / total;
  }
  for (int64_t i = 0; i < count; i += LANES) LOOPS_NAME(unpack)
  ((const T *)w->out_panels + i / PANEL * PANEL * a->features + i % PANEL, sum + i,
   count - i < LANES ? count - i : LANES, a->features, w->scores, a->dtype, t->out,
   h->query_row + first + i);
}

/* --- backward -----------------------------------------------------------------------------------
 */

/* p [n][ATTENTION_QUERIES] holds scores, ds cotangents of exp(score - lse) after dropout: to what
 * dv and what dq and dk are summed from. */
LOOPS_TARGET static void LOOPS_NAME(harden)(T *p, T *ds, int64_t n, const INT *q_at,
                                            const INT *k_at, const T *keep, const T *lse,
                                            const T *delta, T scale) {
  const V lowest = LOOPS_NAME(all)(-INFINITY);
  for (int64_t j = 0; j < n; j++) {
    VI seen[2];
    if (k_at) LOOPS_NAME(sees)(q_at, k_at[j], seen);
    for (int v = 0; v < 2; v++) {
      T *at_p = p + j * ATTENTION_QUERIES + v * LANES,
        *at_ds = ds + j * ATTENTION_QUERIES + v * LANES;
      V s = LOOPS_NAME(load)(at_p);
      if (k_at) s = LOOPS_NAME(pick)(seen[v], s, lowest);
      V x = LOOPS_NAME(exp)(s - LOOPS_NAME(load)(lse + v * LANES)), g = LOOPS_NAME(load)(at_ds);
      V kept = x;
      if (keep) {
        V mask = LOOPS_NAME(load)(keep + j * PANEL + v * LANES);
        g *= mask;
        kept *= mask;
      }
      LOOPS_NAME(store)(at_ds, x * (g - LOOPS_NAME(load)(delta + v * LANES)) * scale);
      LOOPS_NAME(store)(at_p, kept);
    }
  }
}

/* lse and delta of the queries. Where no key is seen lse is -inf, and every exp 0; queries that are
 * not there have lse inf. */
LOOPS_TARGET static void LOOPS_NAME(weigh)(const AttentionHead *h, int64_t first, int64_t count,
                                           const T *g, int64_t g_row, const AttentionWork *w) {
  const Attention *a = h->a;
  const AttentionTensors *t = h->t;
  T *lse = w->max, *delta = w->delta;
  int64_t at = h->query_row + first;
  for (int64_t i = 0; i < LOOPS_NAME(padded)(count); i++) {
    T sum = i < count ? ((const T *)t->lse)[at + i] : INFINITY;
    lse[i] = sum == -INFINITY ? 0 : sum;
    delta[i] = 0;
    if (i < count && t->delta) {
      delta[i] = ((const T *)t->delta)[at + i];
    } else if (i < count) {
      LOOPS_NAME(read)(a->dtype, t->out, (at + i) * a->features, a->features, w->scores);
      delta[i] = LOOPS_NAME(dot)(g + i * g_row, w->scores, a->features);
    }
  }
}

LOOPS_TARGET static void LOOPS_NAME(backward)(const AttentionHead *h, int64_t first, int64_t count,
                                              const AttentionWork *w, void *dk, void *dv) {
  const Attention *a = h->a;
  const AttentionTensors *t = h->t;
  INT *q_at = w->q_at, *k_at = w->k_at;
  T *p = w->scores, *ds = w->cotangents, *dq = w->dq;
  int64_t at = h->query_row + first, q_row, g_row;
  int64_t width = LOOPS_NAME(padded)(a->width), features = LOOPS_NAME(padded)(a->features);
  LOOPS_NAME(pack)(a->dtype, t->q, at, count, a->width, (T)a->scale, p, w->q_panels);
  LOOPS_NAME(pack)(a->dtype, t->g, at, count, a->features, 1, p, w->g_panels);
  const T *q = LOOPS_NAME(rows_of)(a->dtype, t->q, at, count, a->width, 1, w->q, &q_row),
          *g = LOOPS_NAME(rows_of)(a->dtype, t->g, at, count, a->features, 1, w->g, &g_row);
  LOOPS_NAME(weigh)(h, first, count, g, g_row, w);
  LOOPS_NAME(place_queries)(a, first, count, q_at);
  memset(dq, 0, (size_t)(count * width) * sizeof(T));
  for (int64_t j = 0; j < a->keys; j += ATTENTION_KEYS) {
    int64_t n = a->keys - j < ATTENTION_KEYS ? a->keys - j : ATTENTION_KEYS, k_row, v_row;
    AttentionSight sight = dtm_rt_attention_sight(a, first, count, j, n);
    if (sight == SIGHT_NONE) continue;
    const T *k = LOOPS_NAME(rows_of)(a->dtype, t->k, h->key_row + j, n, a->width, 1, w->k, &k_row),
            *v = LOOPS_NAME(rows_of)(a->dtype, t->v, h->key_row + j, n, a->features, 0, w->v,
                                     &v_row);
    for (int64_t i = 0; i < n; i++) k_at[i] = (INT)attention_key_at(a, j + i);
    for (int64_t i = 0; i < count; i += PANEL) {
      int64_t need = sight == SIGHT_SOME ? LOOPS_NAME(needed)(q_at + i, k_at, n) : n;
      for (int64_t x = need; x < n; x++) {
        memset(p + x * ATTENTION_QUERIES + i, 0, PANEL * sizeof(T));
        memset(ds + x * ATTENTION_QUERIES + i, 0, PANEL * sizeof(T));
      }
      LOOPS_NAME(by_rows)
      (need, k, k_row, (const T *)w->q_panels + i * a->width, PANEL, a->width, p + i,
       ATTENTION_QUERIES, 0);
      LOOPS_NAME(by_rows)
      (need, v, v_row, (const T *)w->g_panels + i * a->features, PANEL, a->features, ds + i,
       ATTENTION_QUERIES, 0);
      if (a->dropout > 0) LOOPS_NAME(draw)(h, first + i, count - i, j, need, w->keep);
      LOOPS_NAME(harden)
      (p + i, ds + i, need, q_at + i, sight == SIGHT_ALL ? NULL : k_at,
       a->dropout > 0 ? w->keep : NULL, (const T *)w->max + i, (const T *)w->delta + i,
       (T)a->scale);
    }
    for (int64_t c = 0; c < features; c += PANEL) LOOPS_NAME(by_rows)
    (n, p, ATTENTION_QUERIES, g + c, g_row, count, (T *)dv + j * features + c, features, 1);
    for (int64_t c = 0; c < width; c += PANEL) {
      LOOPS_NAME(by_rows)
      (n, ds, ATTENTION_QUERIES, q + c, q_row, count, (T *)dk + j * width + c, width, 1);
      LOOPS_NAME(by_columns)(count, ds, ATTENTION_QUERIES, k + c, k_row, n, dq + c, width, NULL);
    }
  }
  LOOPS_NAME(write)(a->dtype, t->dq, at, count, a->width, dq, 1, 0);
}

static const AttentionLoops LOOPS_NAME(loops) = {.size = sizeof(T),
                                                 .panel = PANEL,
                                                 .forward = LOOPS_NAME(forward),
                                                 .backward = LOOPS_NAME(backward),
                                                 .write = LOOPS_NAME(write)};

#undef V
#undef VI
#undef VU
#undef U
#undef LOOPS_MULTIPLY
#undef INLINE
#undef PANEL
#undef LOOPS_NAME
#undef LOOPS_TARGET
#undef LANES
#undef ROWS
#undef LOOPS_WIDE
#undef T
#undef INT
#undef EXP_MAGIC
#undef EXP_LN2_HIGH
#undef EXP_LN2_LOW
#undef EXP_BIAS
#undef EXP_SHIFT
#undef EXP_LOWEST
#undef LOOPS_LOG
