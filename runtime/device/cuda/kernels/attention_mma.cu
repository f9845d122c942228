/* Attention of bf16 and f16 on tensor cores: forward, and backward without atomics.
 *
 *   ATTENTION_F16  1: f16, 0: bf16
 *   HEAD           class of head dims: width and features are padded to it with zeros
 *   BACKWARD       1: the kernels of backward, 0: those of forward
 * width and features are multiples of 8 (rows begin at multiples of 16 bytes) and at most HEAD.
 *
 * All products are mma.m16n8k16 with sums in f32. A warp owns MT x 16 rows of the output and holds
 * its sums in registers; what the other operand is made of goes by in shared memory, in two
 * buffers, so that cp.async fills one while the other is read. Scores never leave registers: the
 * sums of a product of 16 x 16 elements lie where the next product wants its left operand. Where
 * the sums run over queries (dk, dv) the *transposed* scores are computed, so that this holds there
 * too.
 *
 *   forward  block of queries; keys go by:      S = Q K', O = softmax(S) V
 *   keys     block of keys; queries go by:      S' = K Q', dP' = V G', dV += P' G, dK += dS' Q
 *   queries  block of queries; keys go by:      S = Q K', dP = G V', dQ += dS K
 *
 * Every sum is made by one thread in ascending order: results do not depend on the machine. That
 * is why S and dP are computed twice backward.
 *
 * Rows in shared memory are HEAD elements and 16 bytes apart: an odd number of 16-byte units, so
 * that the 8 rows that ldmatrix reads at once lie in different banks, without a swizzle.
 *
 * Source: Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning".
 */
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

extern __shared__ uint4 shared[];

#if !BACKWARD
/* --- forward ------------------------------------------------------------------------------------
 */

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    DTM_ENTRY(attention_forward)(const __grid_constant__ AttentionArgs a) {
  enum { MT = F_MT, N = F_KEYS / 8, C = HEAD / 8 };
  const Task t = task_of(a, F_QUERIES, (int)blockIdx.x);
  const int warp = (int)threadIdx.x / 32, first = warp * MT * 16; /* row of this warp */
  const unsigned q_rows = shared_address(shared), k_rows = q_rows + F_QUERIES * ROW,
                 v_rows = k_rows + 2 * F_KEYS * ROW;
  const char *k = (const char *)a.k + t.key_row * a.width * 2,
             *v = (const char *)a.v + t.key_row * a.features * 2;
  const Range queries =
      range_of(a.q_ranges, a.first_query, t.first, t.first + F_QUERIES, a.queries);
  const float scale = (float)(a.scale * 1.4426950408889634);

  int at[MT][2]; /* positions of this thread's rows */
  const uint64_t number = head_number(a, t.batch, t.head);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = min(first + m * 16 + row_of(h * 2), t.valid - 1);
      at[m][h] = position(a.q_positions, a.first_query, t.first + row);
    }

  float out[MT][C][4], most[MT][2], sum[MT][2];
  clear<MT, C>(out);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      most[m][h] = NOTHING;
      sum[m][h] = 0;
    }

  copy_rows<F_QUERIES, THREADS>(q_rows, (const char *)a.q + t.row * a.width * 2, t.valid, a.width);
  int block = next_keys<F_KEYS>(a, queries, 0), buffer = 0;
  if (block * F_KEYS < a.keys) {
    int64_t j = block * F_KEYS;
    copy_rows<F_KEYS, THREADS>(k_rows, k + j * a.width * 2, a.keys - (int)j, a.width);
    copy_rows<F_KEYS, THREADS>(v_rows, v + j * a.features * 2, a.keys - (int)j, a.features);
  }
  for (; block * F_KEYS < a.keys; buffer ^= 1) {
    const int next = next_keys<F_KEYS>(a, queries, block + 1), first_key = block * F_KEYS;
    const bool all = sees_all<F_KEYS>(a, queries, block);
    copies_done();
    __syncthreads(); /* this block is here, and the one before is read */
    if (next * F_KEYS < a.keys) {
      int64_t j = next * F_KEYS;
      unsigned to = (buffer ^ 1) * F_KEYS * ROW;
      copy_rows<F_KEYS, THREADS>(k_rows + to, k + j * a.width * 2, a.keys - (int)j, a.width);
      copy_rows<F_KEYS, THREADS>(v_rows + to, v + j * a.features * 2, a.keys - (int)j, a.features);
    }
    block = next;
    if (first >= t.valid) continue;

    float s[MT][N][4];
    scores<MT, N>(s, left_at(q_rows + first * ROW), columns_at(k_rows + buffer * F_KEYS * ROW));
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][n][e] *= scale;
    if (!all) mask_keys<MT, N>(s, a, at, first_key, NOTHING);

    unsigned p[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float top = most[m][h];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[m][n][h * 2], s[m][n][h * 2 + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float shift = top == NOTHING ? 0 : top; /* nothing seen yet */
        float factor = power(most[m][h] - shift);
        most[m][h] = top;
        sum[m][h] *= factor;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float x = power(s[m][n][h * 2 + e] - shift);
            s[m][n][h * 2 + e] = x;
            sum[m][h] += x;
          }
        if (__any_sync(0xffffffffu, factor != 1)) { /* seldom, once the largest have been */
#pragma unroll
          for (int c = 0; c < C; c++) {
            out[m][c][h * 2] *= factor;
            out[m][c][h * 2 + 1] *= factor;
          }
        }
      }
    if (a.threshold) {
      unsigned kept[MT];
      draw_keys<MT, N>(kept, a, number, at, first_key);
      drop<MT, N>(s, kept, (float)a.kept);
    }
#pragma unroll
    for (int m = 0; m < MT; m++) pack_all<N>(p[m], s[m]);
    weigh<MT, N, C>(out, p, right_at(v_rows + buffer * F_KEYS * ROW));
  }

#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    float by[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = sum[m][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      by[h] = total == 0 ? 0 : 1 / total;
      int r = row + row_of(h * 2);
      if (lane() % 4 == 0 && r < t.valid)
        ((float *)a.lse)[t.row + r] = total == 0 ? NOTHING : most[m][h] * LN2 + logf(total);
    }
    write_rows<C>((char *)a.out + (t.row + row) * a.features * 2, t.valid - row, a.features, 0,
                  out[m], by);
  }
}

#else
/* --- backward -----------------------------------------------------------------------------------
 */

/* What backward needs to know of a row: its lse in units of ln 2, and delta, the sum over the
 * features of g and out. Where no key is seen lse is -inf, and every weight is 0 by the mask. */
struct Pair {
  float shift, delta;
};

/* sum + the products of two pairs, as f32. */
DTM_DEVICE float inner(unsigned x, unsigned y, float sum) {
  float a, b, c, d;
#if ATTENTION_F16
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(a), "=f"(b)
      : "r"(x));
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(c), "=f"(d)
      : "r"(y));
#else
  a = __uint_as_float(x << 16);
  b = __uint_as_float(x & 0xffff0000u);
  c = __uint_as_float(y << 16);
  d = __uint_as_float(y & 0xffff0000u);
#endif
  return sum + a * c + b * d;
}

/* Fills a.delta with pairs: 8 lanes a row. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(attention_delta)(const __grid_constant__ AttentionArgs a) {
  int64_t rows = (int64_t)a.batches * a.heads * a.queries;
  int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 8;
  float sum = 0;
  if (row < rows) {
    const uint4 *g = (const uint4 *)((const char *)a.g + row * a.features * 2),
                *out = (const uint4 *)((const char *)a.out + row * a.features * 2);
    for (int c = (int)threadIdx.x % 8; c < a.features / 8; c += 8) {
      uint4 x = g[c], y = out[c];
      sum = inner(x.x, y.x, sum);
      sum = inner(x.y, y.y, sum);
      sum = inner(x.z, y.z, sum);
      sum = inner(x.w, y.w, sum);
    }
  }
  for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  if (row >= rows || threadIdx.x % 8 != 0) return;
  float lse = ((const float *)a.lse)[row];
  ((Pair *)a.delta)[row] = Pair{lse == NOTHING ? 0 : lse * LOG2E, sum};
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    DTM_ENTRY(attention_queries)(const __grid_constant__ AttentionArgs a) {
  enum { MT = Q_MT, N = Q_KEYS / 8, C = HEAD / 8 };
  const Task t = task_of(a, Q_QUERIES, (int)blockIdx.x);
  const int warp = (int)threadIdx.x / 32, first = warp * MT * 16;
  const unsigned q_rows = shared_address(shared), g_rows = q_rows + Q_QUERIES * ROW,
                 k_rows = g_rows + Q_QUERIES * ROW, v_rows = k_rows + 2 * Q_KEYS * ROW;
  const char *k = (const char *)a.k + t.key_row * a.width * 2,
             *v = (const char *)a.v + t.key_row * a.features * 2;
  const Range queries =
      range_of(a.q_ranges, a.first_query, t.first, t.first + Q_QUERIES, a.queries);
  const float scale = (float)(a.scale * 1.4426950408889634);

  int at[MT][2];
  Pair pair[MT][2];
  const uint64_t number = head_number(a, t.batch, t.head);
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int row = first + m * 16 + row_of(h * 2);
      int near = min(row, t.valid - 1);
      at[m][h] = position(a.q_positions, a.first_query, t.first + near);
      pair[m][h] = ((const Pair *)a.delta)[t.row + near];
    }

  float dq[MT][C][4];
  clear<MT, C>(dq);
  copy_rows<Q_QUERIES, THREADS>(q_rows, (const char *)a.q + t.row * a.width * 2, t.valid, a.width);
  copy_rows<Q_QUERIES, THREADS>(g_rows, (const char *)a.g + t.row * a.features * 2, t.valid,
                                a.features);
  int block = next_keys<Q_KEYS>(a, queries, 0), buffer = 0;
  if (block * Q_KEYS < a.keys) {
    int64_t j = block * Q_KEYS;
    copy_rows<Q_KEYS, THREADS>(k_rows, k + j * a.width * 2, a.keys - (int)j, a.width);
    copy_rows<Q_KEYS, THREADS>(v_rows, v + j * a.features * 2, a.keys - (int)j, a.features);
  }
  for (; block * Q_KEYS < a.keys; buffer ^= 1) {
    const int next = next_keys<Q_KEYS>(a, queries, block + 1), first_key = block * Q_KEYS;
    const bool all = sees_all<Q_KEYS>(a, queries, block);
    copies_done();
    __syncthreads();
    if (next * Q_KEYS < a.keys) {
      int64_t j = next * Q_KEYS;
      unsigned to = (buffer ^ 1) * Q_KEYS * ROW;
      copy_rows<Q_KEYS, THREADS>(k_rows + to, k + j * a.width * 2, a.keys - (int)j, a.width);
      copy_rows<Q_KEYS, THREADS>(v_rows + to, v + j * a.features * 2, a.keys - (int)j, a.features);
    }
    block = next;
    if (first >= t.valid) continue;

    float s[MT][N][4], ds[MT][N][4];
    scores<MT, N>(s, left_at(q_rows + first * ROW), columns_at(k_rows + buffer * Q_KEYS * ROW));
    scores<MT, N>(ds, left_at(g_rows + first * ROW), columns_at(v_rows + buffer * Q_KEYS * ROW));
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][n][e] = power(s[m][n][e] * scale - pair[m][e / 2].shift);
    if (!all) mask_keys<MT, N>(s, a, at, first_key, 0);
    if (a.threshold) {
      unsigned kept[MT];
      draw_keys<MT, N>(kept, a, number, at, first_key);
      drop<MT, N>(ds, kept, (float)a.kept);
    }
    unsigned p[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) ds[m][n][e] = s[m][n][e] * (ds[m][n][e] - pair[m][e / 2].delta);
      pack_all<N>(p[m], ds[m]);
    }
    weigh<MT, N, C>(dq, p, right_at(k_rows + buffer * Q_KEYS * ROW));
  }

  const float by[2] = {(float)a.scale, (float)a.scale};
#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    write_rows<C>((char *)a.dq + (t.row + row) * a.width * 2, t.valid - row, a.width, 0, dq[m], by);
  }
}

/* 8 bytes to shared memory; zeros where `there` is not set. */
DTM_DEVICE void copy_pair(unsigned to, const void *from, bool there) {
  int bytes = there ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/* Begins to copy a block of q and g of one head. The room between rows of q holds their pairs. */
DTM_DEVICE void copy_queries(const AttentionArgs &a, unsigned q, unsigned g, int batch, Place at) {
  int first = at.block * K_QUERIES, valid = a.queries - first;
  int64_t row = ((int64_t)batch * a.heads + at.head) * a.queries + first;
  copy_rows<K_QUERIES, K_THREADS>(q, (const char *)a.q + row * a.width * 2, valid, a.width);
  copy_rows<K_QUERIES, K_THREADS>(g, (const char *)a.g + row * a.features * 2, valid, a.features);
  if (threadIdx.x < K_QUERIES)
    copy_pair(q + threadIdx.x * ROW + HEAD * 2, (const Pair *)a.delta + row + threadIdx.x,
              (int)threadIdx.x < valid);
}

extern "C" __global__ void __launch_bounds__(K_THREADS, 2 / K_SPLIT)
    DTM_ENTRY(attention_keys)(const __grid_constant__ AttentionArgs a) {
  enum { MT = K_MT, N = K_QUERIES / 8, C = HEAD / 8 / K_SPLIT };
  const int key_blocks = blocks_of(a.keys, K_KEYS), head_at = (int)blockIdx.x / key_blocks,
            first_key = (int)blockIdx.x % key_blocks * K_KEYS, batch = head_at / a.groups;
  const int valid = min(K_KEYS, a.keys - first_key);
  const int64_t key_row = (int64_t)head_at * a.keys + first_key;
  const int warp = (int)threadIdx.x / 32, first = warp % WARPS * MT * 16,
            first_column = warp / WARPS * C * 8; /* of the sums of this warp */
  const unsigned k_rows = shared_address(shared), v_rows = k_rows + K_KEYS * ROW,
                 q_rows = v_rows + K_KEYS * ROW, g_rows = q_rows + 2 * K_QUERIES * ROW;
  const Range keys = range_of(a.k_ranges, a.first_key, first_key, first_key + K_KEYS, a.keys);
  const Seers seers = seers_of(a, head_at % a.groups);
  const float scale = (float)(a.scale * 1.4426950408889634);

  int at[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      at[m][h] = position(a.k_positions, a.first_key,
                          first_key + min(first + m * 16 + row_of(h * 2), valid - 1));

  float dk[MT][C][4], dv[MT][C][4];
  clear<MT, C>(dk);
  clear<MT, C>(dv);
  copy_rows<K_KEYS, K_THREADS>(k_rows, (const char *)a.k + key_row * a.width * 2, valid, a.width);
  copy_rows<K_KEYS, K_THREADS>(v_rows, (const char *)a.v + key_row * a.features * 2, valid,
                               a.features);
  Place next = next_queries<K_QUERIES>(a, keys, seers, Place{seers.begin, 0});
  if (next.head < seers.end) copy_queries(a, q_rows, g_rows, batch, next);
  for (int buffer = 0; next.head < seers.end; buffer ^= 1) {
    const int head = next.head, first_query = next.block * K_QUERIES;
    next.block++;
    next = next_queries<K_QUERIES>(a, keys, seers, next);
    copies_done();
    __syncthreads();
    if (next.head < seers.end) {
      unsigned to = (buffer ^ 1) * K_QUERIES * ROW;
      copy_queries(a, q_rows + to, g_rows + to, batch, next);
    }
    if (first >= valid) continue;

    const unsigned q_at = q_rows + buffer * K_QUERIES * ROW,
                   g_at = g_rows + buffer * K_QUERIES * ROW;
    float s[MT][N][4], ds[MT][N][4];
    scores<MT, N>(s, left_at(k_rows + first * ROW), columns_at(q_at));
    scores<MT, N>(ds, left_at(v_rows + first * ROW), columns_at(g_at));
    const Pair *pairs = (const Pair *)((const char *)shared + (q_at - k_rows) + HEAD * 2);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float shift = pairs[column_of(n, e) * (ROW / sizeof(Pair))].shift;
#pragma unroll
        for (int m = 0; m < MT; m++) s[m][n][e] = power(s[m][n][e] * scale - shift);
      }
    if (!seen_by_all<K_QUERIES>(a, keys, first_query)) mask_queries<MT, N>(s, a, at, first_query);
    unsigned kept[MT];
    if (a.threshold) {
      draw_queries<MT, N>(kept, a, head_number(a, batch, head), at, first_query);
      drop<MT, N>(ds, kept, (float)a.kept);
    }
    unsigned p[MT][N][2], pds[MT][N][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          ds[m][n][e] =
              s[m][n][e] * (ds[m][n][e] - pairs[column_of(n, e) * (ROW / sizeof(Pair))].delta);
      pack_all<N>(pds[m], ds[m]);
    }
    if (a.threshold) drop<MT, N>(s, kept, (float)a.kept);
#pragma unroll
    for (int m = 0; m < MT; m++) pack_all<N>(p[m], s[m]);
    weigh<MT, N, C>(dv, p, right_at(g_at + first_column * 2));
    weigh<MT, N, C>(dk, pds, right_at(q_at + first_column * 2));
  }

  const float by[2] = {(float)a.scale, (float)a.scale}, one[2] = {1, 1};
#pragma unroll
  for (int m = 0; m < MT; m++) {
    int row = first + m * 16;
    write_rows<C>((char *)a.dk + (key_row + row) * a.width * 2, valid - row, a.width, first_column,
                  dk[m], by);
    write_rows<C>((char *)a.dv + (key_row + row) * a.features * 2, valid - row, a.features,
                  first_column, dv[m], one);
  }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(attention_ranges)(const __grid_constant__ AttentionArgs a) {
  find_ranges(a);
}
