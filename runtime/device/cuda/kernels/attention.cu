/* Attention on the ordinary cores: f64 and f32 in their own precision, and bf16 and f16, in f32,
 * with head dims that tensor cores do not take (attention_mma.cu). Any width and features.
 *
 *   ELEMENT   type of what is stored
 *   EACH      4, or 1 where there are few queries or keys
 *   BACKWARD  1: the kernels of backward, 0: those of forward
 *
 * A block of 16 x 16 threads makes scores of N * 16 x N * 16 elements, N x N per thread: thread (x,
 * y) has rows y, y + 16, .. and columns x, x + 16, .. . The two sides of a product come through
 * shared memory; with N = 4 a thread reads a number for 2 products. Columns of the results are cut
 * in parts of COLUMNS, for each of which scores are computed anew.
 *
 * Every sum is made by one thread in ascending order, so results depend on sizes alone.
 */
#include "attention.cuh"

typedef ELEMENT T;
typedef decltype(dtm_value(ELEMENT{})) Real;

enum {
  SIDE = ATTENTION_SIDE,
  THREADS = SIDE * SIDE,
  COLUMNS = ATTENTION_SUMS / sizeof(Real),
  PARTS = COLUMNS / SIDE
};

#define NOTHING ((Real)-DTM_INF)

extern __shared__ double shared[];

/* Shared memory: the left side of a product with its sums, or weights, and the right side. Rows are
 * odd numbers apart, so that a column lies in different banks. */
template <int N> struct Room { Real left[N * SIDE][N * SIDE + 1], right[N * SIDE][N * SIDE + 1]; };

template <int N> DTM_DEVICE Room<N> &room() {
  return *(Room<N> *)shared;
}

DTM_DEVICE int x_of() {
  return (int)threadIdx.x % SIDE;
}
DTM_DEVICE int y_of() {
  return (int)threadIdx.x / SIDE;
}

/* Whether this warp holds one of the first `rows` rows; where it does not, it has nothing to
 * compute. With several rows per thread nearly every warp has one, and asking costs registers. */
template <int N> DTM_DEVICE bool is_busy(int rows) {
  return N > 1 || (int)threadIdx.x / 32 * (32 / SIDE) < rows;
}

/* C * 16 columns from `first` of N * 16 rows; zeros where there is none. */
template <int N, int C>
DTM_DEVICE void stage(Real to[N * SIDE][N * SIDE + 1], const T *from, int rows, int width,
                      int first) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int c = 0; c < C; c++) {
      int row = y_of() + i * SIDE, at = x_of() + c * SIDE;
      bool there = row < rows && first + at < width;
      to[row][at] = there ? (Real)dtm_value(from[(int64_t)row * width + first + at]) : (Real)0;
    }
}

/* sums[i][j] = row y + 16 i of `left` times row x + 16 j of `right`. */
template <int N>
DTM_DEVICE void scores(Real sums[N][N], const T *left, int left_rows, const T *right,
                       int right_rows, int width) {
  Room<N> &r = room<N>();
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < N; j++) sums[i][j] = 0;
  for (int first = 0; first < width; first += SIDE) {
    __syncthreads(); /* the room is read */
    stage<N, 1>(r.left, left, left_rows, width, first);
    stage<N, 1>(r.right, right, right_rows, width, first);
    __syncthreads();
    const int columns = N > 1 ? SIDE : is_busy<N>(left_rows) ? min(SIDE, width - first) : 0;
#pragma unroll 2
    for (int c = 0; c < columns; c++) {
      Real b[N];
#pragma unroll
      for (int j = 0; j < N; j++) b[j] = r.right[x_of() + j * SIDE][c];
#pragma unroll
      for (int i = 0; i < N; i++) {
        Real a = r.left[y_of() + i * SIDE][c];
#pragma unroll
        for (int j = 0; j < N; j++) sums[i][j] += a * b[j];
      }
    }
  }
}

/* sums[i][c] += weights of row y + 16 i times column first + x + 16 c of `right`. The weights are
 * this thread's scores. */
template <int N>
DTM_DEVICE void weigh(Real sums[N][PARTS], const Real weights[N][N], int left_rows, const T *right,
                      int right_rows, int width, int first) {
  Room<N> &r = room<N>();
  const int rows = is_busy<N>(left_rows) ? right_rows : 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < N; j++) r.left[y_of() + i * SIDE][x_of() + j * SIDE] = weights[i][j];
#pragma unroll
  for (int c = 0; c < PARTS; c += N) {
    if (first + c * SIDE >= width) break;
    __syncthreads();
    stage<N, N>(r.right, right, right_rows, width, first + c * SIDE);
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < rows; k++) {
      Real b[N];
#pragma unroll
      for (int j = 0; j < N; j++) b[j] = r.right[k][x_of() + j * SIDE];
#pragma unroll
      for (int i = 0; i < N; i++) {
        Real a = r.left[y_of() + i * SIDE][k];
#pragma unroll
        for (int j = 0; j < N; j++) sums[i][c + j] += a * b[j];
      }
    }
  }
}

template <int N>
DTM_DEVICE void write_rows(T *to, int rows, int width, int first, const Real sums[N][PARTS],
                           const Real by[N]) {
#pragma unroll
  for (int c = 0; c < PARTS; c++) {
    int column = first + c * SIDE + x_of();
    if (first + c * SIDE >= width) break;
#pragma unroll
    for (int i = 0; i < N; i++) {
      int row = y_of() + i * SIDE;
      if (row < rows && column < width)
        to[(int64_t)row * width + column] = dtm_as<T>(sums[i][c] * by[i]);
    }
  }
}

template <int N> DTM_DEVICE void clear(Real sums[N][PARTS]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int c = 0; c < PARTS; c++) sums[i][c] = 0;
}

/* Of the N x N elements of this thread: a bit for each that a query sees, and for each of these
 * that dropout keeps; bit i * N + j. */
struct Sight {
  unsigned seen, kept;
};

/* Elements from `query` and `key` on; rows are queries, or keys. Not unrolled, for it is long. */
template <int N, bool KEYS>
DTM_DEVICE Sight sight_of(const AttentionArgs &a, const Draw &draw, uint64_t number, int query,
                          int key) {
  Sight s = {0, 0};
  query += KEYS ? x_of() : y_of();
  key += KEYS ? y_of() : x_of();
#pragma unroll 1
  for (int e = 0; e < N * N; e++) {
    int row = e / N * SIDE, column = e % N * SIDE;
    int i = query + (KEYS ? column : row), j = key + (KEYS ? row : column);
    if (i >= a.queries || j >= a.keys) continue;
    int i_at = position(a.q_positions, a.first_query, i);
    int j_at = position(a.k_positions, a.first_key, j);
    if (a.causal && j_at > i_at) continue;
    s.seen |= 1u << e;
    if (!a.threshold || keeps(a, draw, draw_row(a, number, i_at) + (uint64_t)j_at))
      s.kept |= 1u << e;
  }
  return s;
}

#if !BACKWARD
/* --- forward ------------------------------------------------------------------------------------
 */

/* Over the 16 threads that hold a row. */
DTM_DEVICE Real sum_of_row(Real x) {
  for (int apart = SIDE / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}
DTM_DEVICE Real most_of_row(Real x) {
  for (int apart = SIDE / 2; apart > 0; apart /= 2)
    x = fmax(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

/* Scores become weights: each row's exponentials against its greatest score so far, with which its
 * results and its sum are kept up. */
template <int N>
DTM_DEVICE void soften(const AttentionArgs &a, const Sight &sight, Real s[N][N], Real most[N],
                       Real sum[N], Real out[N][PARTS]) {
  const Real kept = (Real)a.kept;
#pragma unroll
  for (int i = 0; i < N; i++) {
    Real top = most[i];
#pragma unroll
    for (int j = 0; j < N; j++) {
      s[i][j] = sight.seen >> (i * N + j) & 1 ? s[i][j] * (Real)a.scale : NOTHING;
      top = fmax(top, s[i][j]);
    }
    top = most_of_row(top);
    Real shift = top == NOTHING ? 0 : top, factor = exp(most[i] - shift), more = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
      Real p = exp(s[i][j] - shift);
      more += p;
      s[i][j] = sight.kept >> (i * N + j) & 1 ? p * kept : 0;
    }
    most[i] = top;
    sum[i] = sum[i] * factor + sum_of_row(more);
#pragma unroll
    for (int c = 0; c < PARTS; c++) out[i][c] *= factor;
  }
}

template <int N> DTM_DEVICE void forward(const AttentionArgs &a) {
  enum { SIZE = N * SIDE };
  const int parts = max(blocks_of(a.features, COLUMNS), 1), part = (int)blockIdx.x % parts;
  const Task t = task_of(a, SIZE, (int)blockIdx.x / parts);
  const T *q = (const T *)a.q + t.row * a.width, *k = (const T *)a.k + t.key_row * a.width,
          *v = (const T *)a.v + t.key_row * a.features;
  const Range queries = range_of(a.q_ranges, a.first_query, t.first, t.first + SIZE, a.queries);
  const int first_column = part * COLUMNS;
  const Draw draw = draw_of(a);
  const uint64_t number = head_number(a, t.batch, t.head);
  Real out[N][PARTS], most[N], sum[N];
  clear<N>(out);
#pragma unroll
  for (int i = 0; i < N; i++) {
    most[i] = NOTHING;
    sum[i] = 0;
  }
  for (int block = 0; (block = next_keys<SIZE>(a, queries, block)) * SIZE < a.keys; block++) {
    int first = block * SIZE, keys = min(SIZE, a.keys - first);
    Real s[N][N];
    scores<N>(s, q, t.valid, k + (int64_t)first * a.width, keys, a.width);
    if (is_busy<N>(t.valid))
      soften<N>(a, sight_of<N, false>(a, draw, number, t.first, first), s, most, sum, out);
    weigh<N>(out, s, t.valid, v + (int64_t)first * a.features, keys, a.features, first_column);
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    int row = y_of() + i * SIDE;
    if (x_of() == 0 && row < t.valid && part == 0)
      ((Real *)a.lse)[t.row + row] = sum[i] == 0 ? NOTHING : most[i] + log(sum[i]);
    sum[i] = sum[i] == 0 ? 0 : 1 / sum[i];
  }
  write_rows<N>((T *)a.out + t.row * a.features, t.valid, a.features, first_column, out, sum);
}

#else
/* --- backward -----------------------------------------------------------------------------------
 */

/* delta[row] = sum over the features of g and out: a warp a row. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(attention_delta)(const __grid_constant__ AttentionArgs a) {
  int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
  if (row >= (int64_t)a.batches * a.heads * a.queries) return;
  const T *g = (const T *)a.g + row * a.features, *out = (const T *)a.out + row * a.features;
  Real sum = 0;
  for (int c = (int)threadIdx.x % 32; c < a.features; c += 32)
    sum += (Real)dtm_value(g[c]) * (Real)dtm_value(out[c]);
  for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  if (threadIdx.x % 32 == 0) ((Real *)a.delta)[row] = sum;
}

/* Scores and the cotangents of their weights become what v, and what q and k are weighed with. The
 * rows of the queries in lse and delta begin at `row`. */
template <int N, bool KEYS>
DTM_DEVICE void harden(const AttentionArgs &a, const Sight &sight, int64_t row, Real score[N][N],
                       Real cotangent[N][N]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < N; j++) {
      bool seen = sight.seen >> (i * N + j) & 1, kept = sight.kept >> (i * N + j) & 1;
      int64_t at = row + (KEYS ? x_of() + j * SIDE : y_of() + i * SIDE);
      Real lse = seen ? ((const Real *)a.lse)[at] : 0,
           delta = seen ? ((const Real *)a.delta)[at] : 0;
      Real p = exp(seen ? score[i][j] * (Real)a.scale - (lse == NOTHING ? 0 : lse) : NOTHING);
      Real keep = kept ? (Real)a.kept : 0;
      score[i][j] = p * keep;
      cotangent[i][j] = p * (cotangent[i][j] * keep - delta);
    }
}

template <int N> DTM_DEVICE void backward_queries(const AttentionArgs &a) {
  enum { SIZE = N * SIDE };
  const int parts = blocks_of(a.width, COLUMNS), part = (int)blockIdx.x % parts;
  const Task t = task_of(a, SIZE, (int)blockIdx.x / parts);
  const T *q = (const T *)a.q + t.row * a.width, *g = (const T *)a.g + t.row * a.features,
          *k = (const T *)a.k + t.key_row * a.width, *v = (const T *)a.v + t.key_row * a.features;
  const Range queries = range_of(a.q_ranges, a.first_query, t.first, t.first + SIZE, a.queries);
  const int first_column = part * COLUMNS;
  const Draw draw = draw_of(a);
  const uint64_t number = head_number(a, t.batch, t.head);
  Real dq[N][PARTS], by[N];
  clear<N>(dq);
  for (int block = 0; (block = next_keys<SIZE>(a, queries, block)) * SIZE < a.keys; block++) {
    int first = block * SIZE, keys = min(SIZE, a.keys - first);
    Real s[N][N], ds[N][N];
    scores<N>(s, q, t.valid, k + (int64_t)first * a.width, keys, a.width);
    scores<N>(ds, g, t.valid, v + (int64_t)first * a.features, keys, a.features);
    if (is_busy<N>(t.valid))
      harden<N, false>(a, sight_of<N, false>(a, draw, number, t.first, first), t.row, s, ds);
    weigh<N>(dq, ds, t.valid, k + (int64_t)first * a.width, keys, a.width, first_column);
  }
#pragma unroll
  for (int i = 0; i < N; i++) by[i] = (Real)a.scale;
  write_rows<N>((T *)a.dq + t.row * a.width, t.valid, a.width, first_column, dq, by);
}

template <int N> DTM_DEVICE void backward_keys(const AttentionArgs &a) {
  enum { SIZE = N * SIDE };
  const int parts = blocks_of(max(a.width, a.features), COLUMNS), part = (int)blockIdx.x % parts,
            at_block = (int)blockIdx.x / parts;
  const int key_blocks = blocks_of(a.keys, SIZE), head_at = at_block / key_blocks,
            first_key = at_block % key_blocks * SIZE, batch = head_at / a.groups,
            valid = min(SIZE, a.keys - first_key), first_column = part * COLUMNS;
  const int64_t key_row = (int64_t)head_at * a.keys + first_key;
  const T *k = (const T *)a.k + key_row * a.width, *v = (const T *)a.v + key_row * a.features;
  const Range keys = range_of(a.k_ranges, a.first_key, first_key, first_key + SIZE, a.keys);
  const Seers seers = seers_of(a, head_at % a.groups);
  const Draw draw = draw_of(a);
  Real dk[N][PARTS], dv[N][PARTS], by[N], one[N];
  clear<N>(dk);
  clear<N>(dv);
  Place at = {seers.begin, 0};
  for (; (at = next_queries<SIZE>(a, keys, seers, at)).head < seers.end; at.block++) {
    int head = at.head, first = at.block * SIZE, queries = min(SIZE, a.queries - first);
    int64_t row = ((int64_t)batch * a.heads + head) * a.queries + first;
    const T *q = (const T *)a.q + row * a.width, *g = (const T *)a.g + row * a.features;
    uint64_t number = head_number(a, batch, head);
    Real s[N][N], ds[N][N];
    scores<N>(s, k, valid, q, queries, a.width);
    scores<N>(ds, v, valid, g, queries, a.features);
    if (is_busy<N>(valid))
      harden<N, true>(a, sight_of<N, true>(a, draw, number, first, first_key), row, s, ds);
    weigh<N>(dv, s, valid, g, queries, a.features, first_column);
    weigh<N>(dk, ds, valid, q, queries, a.width, first_column);
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    by[i] = (Real)a.scale;
    one[i] = 1;
  }
  write_rows<N>((T *)a.dk + key_row * a.width, valid, a.width, first_column, dk, by);
  write_rows<N>((T *)a.dv + key_row * a.features, valid, a.features, first_column, dv, one);
}

#endif

/* --- entries ------------------------------------------------------------------------------------
 */

/* blocks: how many a multiprocessor shall hold, with as many registers as leaves each. */
#define ENTRY(name, function, blocks)                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, blocks)                                    \
      DTM_ENTRY(name)(const __grid_constant__ AttentionArgs a) {                                   \
    function(a);                                                                                   \
  }
#if BACKWARD
ENTRY(attention_keys, backward_keys<EACH>, 1)
ENTRY(attention_queries, backward_queries<EACH>, sizeof(Real) == 4 ? 2 : 1)
#else
ENTRY(attention_forward, forward<EACH>, EACH == 1 ? 4 : sizeof(Real) == 4 ? 2 : 1)
#endif
ENTRY(attention_ranges, find_ranges, 1)
