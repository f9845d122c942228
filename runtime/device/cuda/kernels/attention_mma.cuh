/* What the kernels of attention on tensor cores are made of (attention_mma.cu): sizes,
 * instructions, rows in shared memory and products of them, what queries see, what dropout keeps.
 *
 * Fragments are those of mma.m16n8k16: of 16 x 8 sums a thread has elements e = 0 .. 3, in row
 * lane / 4 + e / 2 * 8 and column lane % 4 * 2 + e % 2. Rows in shared memory are HEAD elements and
 * 16 bytes apart: an odd number of 16-byte units, so that the 8 rows that ldmatrix reads at once
 * lie in different banks, without a swizzle.
 */
#ifndef DTM_CUDA_ATTENTION_MMA_CUH
#define DTM_CUDA_ATTENTION_MMA_CUH

#include "attention.cuh"

#if ATTENTION_F16
#define TYPE "f16"
#else
#define TYPE "bf16"
#endif

/* Sizes by class. Shared memory stays within the 99 KiB that every chip from sm_80 on has;
 * registers, of which a thread has at most 255, are what decides otherwise: the sums (per thread
 * MT * HEAD / 2 of O and dQ, MT * HEAD / SPLIT of dK and dV) and the scores. With 32 rows a warp
 * reads half as much shared memory per product as with 16. SPLIT 2: two warps have the same rows
 * and each half of the columns of dK and dV. */
template <int> struct Sizes;
#define SIZES(H, FM, FK, KM, KS, KQ, QM, QK)                                                       \
  template <> struct Sizes<H> {                                                                    \
    enum {                                                                                         \
      F_MT = FM,                                                                                   \
      F_KEYS = FK,                                                                                 \
      K_MT = KM,                                                                                   \
      K_SPLIT = KS,                                                                                \
      K_QUERIES = KQ,                                                                              \
      Q_MT = QM,                                                                                   \
      Q_KEYS = QK                                                                                  \
    };                                                                                             \
  };
ATTENTION_CLASSES(SIZES)

enum {
  F_MT = Sizes<HEAD>::F_MT,
  F_KEYS = Sizes<HEAD>::F_KEYS,
  K_MT = Sizes<HEAD>::K_MT,
  K_SPLIT = Sizes<HEAD>::K_SPLIT,
  K_QUERIES = Sizes<HEAD>::K_QUERIES,
  Q_MT = Sizes<HEAD>::Q_MT,
  Q_KEYS = Sizes<HEAD>::Q_KEYS,
  WARPS = ATTENTION_WARPS, /* side by side along the rows */
  F_QUERIES = WARPS * F_MT * 16,
  Q_QUERIES = WARPS * Q_MT * 16,
  K_KEYS = WARPS * K_MT * 16,
  THREADS = WARPS * 32,
  K_THREADS = THREADS * K_SPLIT,
  ROW = HEAD * 2 + 16, /* bytes between rows in shared memory */
  CHUNKS = HEAD / 8    /* of 16 bytes */
};

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
#define NOTHING (-__int_as_float(0x7f800000))

DTM_DEVICE unsigned lane() {
  return threadIdx.x % 32;
}

/* --- instructions -------------------------------------------------------------------------------
 */

DTM_DEVICE unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}

/* 16 bytes to shared memory; zeros where `there` is not set. */
DTM_DEVICE void copy_chunk(unsigned to, const void *from, bool there) {
  int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

DTM_DEVICE void copies_done() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

DTM_DEVICE void load_matrices(unsigned r[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

DTM_DEVICE void load_transposed(unsigned r[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

/* sums += a [16 x 16] b [16 x 8] */
DTM_DEVICE void multiply(float sums[4], const unsigned a[4], const unsigned b[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DTM_DEVICE unsigned pack(float low, float high) {
  unsigned both;
  asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/* 2 to the power x; what is below the normal numbers is 0. */
DTM_DEVICE float power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* --- rows in shared memory ----------------------------------------------------------------------
 */

/* Begins to copy `rows` rows, of which those from `valid` on are zeros, as are columns behind
 * `width`. What is not there is not read, wherever it would be. */
template <int rows, int threads>
DTM_DEVICE void copy_rows(unsigned to, const void *from, int valid, int width) {
  constexpr int step = threads / CHUNKS; /* rows at once, where a thread keeps to a column */
  if constexpr (threads % CHUNKS == 0 && rows % step == 0) {
    int row = (int)threadIdx.x / CHUNKS, column = (int)threadIdx.x % CHUNKS * 8;
    const char *at = (const char *)from + (row * width + column) * 2;
    valid = column < width ? valid - row : 0;
    to += row * ROW + column * 2;
#pragma unroll
    for (int i = 0; i < rows / step; i++) {
      copy_chunk(to + i * step * ROW, at, i * step < valid);
      at += step * width * 2;
    }
  } else {
#pragma unroll
    for (int i = 0; i < rows * CHUNKS; i += threads) {
      int chunk = i + (int)threadIdx.x, row = chunk / CHUNKS, column = chunk % CHUNKS * 8;
      if (rows * CHUNKS % threads != 0 && chunk >= rows * CHUNKS) break;
      const char *at = (const char *)from + (row * width + column) * 2;
      copy_chunk(to + row * ROW + column * 2, at, row < valid && column < width);
    }
  }
}

/* Where a lane's rows begin, of a left operand, of a right one whose rows are its columns, and of a
 * right one as it lies (read transposed): see the layout of fragments of m16n8k16. */
DTM_DEVICE unsigned left_at(unsigned rows) {
  return rows + lane() % 16 * ROW + lane() / 16 * 16;
}
DTM_DEVICE unsigned columns_at(unsigned rows) {
  return rows + (lane() % 8 + lane() / 16 * 8) * ROW + lane() / 8 % 2 * 16;
}
DTM_DEVICE unsigned right_at(unsigned rows) {
  return rows + lane() % 16 * ROW + lane() / 16 * 16;
}

/* sums[m][n] = rows of `left` times rows of `right`: [MT * 16, N * 8] over HEAD columns. */
template <int MT, int N>
DTM_DEVICE void scores(float sums[MT][N][4], unsigned left, unsigned right) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[m][n][e] = 0;
#pragma unroll
  for (int k = 0; k < HEAD / 16; k++) {
    unsigned a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++) load_matrices(a[m], left + m * 16 * ROW + k * 32);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      unsigned b[4];
      load_matrices(b, right + n * 8 * ROW + k * 32);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        multiply(sums[m][n], a[m], b);
        multiply(sums[m][n + 1], a[m], b + 2);
      }
    }
  }
}

/* sums[m][c] += weights [MT * 16, N * 8] times rows of `right`, C * 8 columns of it. */
template <int MT, int N, int C>
DTM_DEVICE void weigh(float sums[MT][C][4], const unsigned weights[MT][N][2], unsigned right) {
#pragma unroll
  for (int k = 0; k < N; k += 2)
#pragma unroll
    for (int c = 0; c < C; c += 2) {
      unsigned b[4];
      load_transposed(b, right + k * 8 * ROW + c * 16);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        unsigned a[4] = {weights[m][k][0], weights[m][k][1], weights[m][k + 1][0],
                         weights[m][k + 1][1]};
        multiply(sums[m][c], a, b);
        multiply(sums[m][c + 1], a, b + 2);
      }
    }
}

/* Writes the sums of 16 rows, those below `valid`, times two factors: of rows g and g + 8. */
template <int C>
DTM_DEVICE void write_rows(void *to, int valid, int width, int first_column, const float sums[C][4],
                           const float by[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = (int)lane() / 4 + half * 8;
    if (row >= valid) continue;
    unsigned *line = (unsigned *)((char *)to + (int64_t)row * width * 2);
#pragma unroll
    for (int c = 0; c < C; c++) {
      int column = first_column + c * 8;
      if (column < width)
        line[column / 2 + lane() % 4] =
            pack(sums[c][half * 2] * by[half], sums[c][half * 2 + 1] * by[half]);
    }
  }
}

/* Sums of a product as the left operand of the next. */
template <int N> DTM_DEVICE void pack_all(unsigned to[N][2], const float sums[N][4]) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int h = 0; h < 2; h++) to[n][h] = pack(sums[n][h * 2], sums[n][h * 2 + 1]);
}

template <int MT, int C> DTM_DEVICE void clear(float sums[MT][C][4]) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[m][c][e] = 0;
}

/* --- what queries see ---------------------------------------------------------------------------
 */

/* Element e of fragment n: its row (of 16) and its column (of n * 8 .. n * 8 + 8). */
DTM_DEVICE int row_of(int e) {
  return (int)lane() / 4 + e / 2 * 8;
}
DTM_DEVICE int column_of(int n, int e) {
  return n * 8 + (int)lane() % 4 * 2 + e % 2;
}

/* Weights or scores of keys that are not there, or not seen, become `value`. Rows are queries, at
 * these positions. */
template <int MT, int N>
DTM_DEVICE void mask_keys(float s[MT][N][4], const AttentionArgs &a, const int at[MT][2],
                          int first_key, float value) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      int j = first_key + column_of(n, c);
      int key = position(a.k_positions, a.first_key, min(j, a.keys - 1));
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (j >= a.keys || (a.causal && key > at[m][h])) s[m][n][h * 2 + c] = value;
    }
}

/* The same where rows are keys, at these positions, and columns queries. */
template <int MT, int N>
DTM_DEVICE void mask_queries(float s[MT][N][4], const AttentionArgs &a, const int at[MT][2],
                             int first_query) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      int j = first_query + column_of(n, c);
      int query = position(a.q_positions, a.first_query, min(j, a.queries - 1));
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          if (j >= a.queries || (a.causal && at[m][h] > query)) s[m][n][h * 2 + c] = 0;
    }
}

/* Which elements dropout keeps: of each 16 rows one bit per element of this thread. Drawn in a loop
 * that is not unrolled, for it is long. */
DTM_DEVICE int bit_of(int n, int e) {
  return e / 2 * 16 + n * 2 + e % 2;
}

template <int MT, int N>
DTM_DEVICE void draw_keys(unsigned kept[MT], const AttentionArgs &a, uint64_t number,
                          const int at[MT][2], int first_key) {
  const Draw draw = draw_of(a);
#pragma unroll
  for (int m = 0; m < MT; m++) kept[m] = 0;
#pragma unroll 1
  for (int i = 0; i < N * 2; i++) {
    int j = first_key + column_of(i / 2, i);
    uint64_t key = (uint64_t)position(a.k_positions, a.first_key, min(j, a.keys - 1));
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (keeps(a, draw, draw_row(a, number, at[m][h]) + key)) kept[m] |= 1u << (h * 16 + i);
  }
}

/* The same where rows are keys, at these positions, and columns queries. */
template <int MT, int N>
DTM_DEVICE void draw_queries(unsigned kept[MT], const AttentionArgs &a, uint64_t number,
                             const int at[MT][2], int first_query) {
  const Draw draw = draw_of(a);
#pragma unroll
  for (int m = 0; m < MT; m++) kept[m] = 0;
#pragma unroll 1
  for (int i = 0; i < N * 2; i++) {
    int j = first_query + column_of(i / 2, i);
    int query = position(a.q_positions, a.first_query, min(j, a.queries - 1));
    uint64_t row = draw_row(a, number, query);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (keeps(a, draw, row + (uint64_t)at[m][h])) kept[m] |= 1u << (h * 16 + i);
  }
}

template <int MT, int N>
DTM_DEVICE void drop(float x[MT][N][4], const unsigned kept[MT], float by) {
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) x[m][n][e] = kept[m] >> bit_of(n, e) & 1 ? x[m][n][e] * by : 0;
}

/* Whether all queries see all keys of a block that is whole. */
template <int SIZE> DTM_DEVICE bool sees_all(const AttentionArgs &a, Range queries, int block) {
  if ((block + 1) * SIZE > a.keys) return false;
  if (!a.causal) return true;
  return range_of(a.k_ranges, a.first_key, block * SIZE, (block + 1) * SIZE, a.keys).most <=
         queries.least;
}

template <int SIZE> DTM_DEVICE bool seen_by_all(const AttentionArgs &a, Range keys, int first) {
  if (first + SIZE > a.queries) return false;
  if (!a.causal) return true;
  return keys.most <= range_of(a.q_ranges, a.first_query, first, first + SIZE, a.queries).least;
}

#endif
