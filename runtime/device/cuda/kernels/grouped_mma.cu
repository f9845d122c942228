/* The products of experts in 16 bits, on tensor cores: see grouped.cu.
 *
 * ELEMENT: dtm_bf16 or dtm_f16; COUNT: of counts. A block multiplies a tile of TENSOR_TILE rows and
 * columns, its 8 warps a piece of 64 x 32 each. Operands come into shared memory DEPTH of k at a
 * time, the next ones while tensor cores have the last (cp.async); they lie there as they lie in
 * memory, with k along a row or from row to row, and ldmatrix turns what has to be turned. Sums are
 * f32, in ascending order of k.
 */
#include "grouped.cuh"

enum {
  TILE = TENSOR_TILE,
  DEPTH = 32,
  CHUNK = 8, /* elements of 16 bytes */
  /* Elements between rows in shared memory: 16 bytes more than a row has, so that the eight rows of
   * a matrix lie in different banks. */
  ALONG = DEPTH + CHUNK, /* k along a row */
  ACROSS = TILE + CHUNK, /* k from row to row */
  ROOM = TILE * ALONG,   /* of a tile, however it lies */
  WARP_M = 64,
  WARP_N = 32,
  TILES_M = WARP_M / 16,
  TILES_N = WARP_N / 8
};

union Shared {
  struct {
    T a[2][ROOM], b[2][ROOM];
  };
  T out[TILE * ACROSS]; /* the result, before it is stored */
};

/* --- instructions -------------------------------------------------------------------------------
 */

DTM_DEVICE uint32_t shared_address(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes to shared memory; zeros where `there` is not set. */
DTM_DEVICE void copy_chunk(T *to, const T *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

DTM_DEVICE void load_matrices(uint32_t r[4], const T *at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at))
               : "memory");
}

DTM_DEVICE void load_transposed(uint32_t r[4], const T *at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at))
               : "memory");
}

/* sums += a [16 x 16] b [16 x 8] */
DTM_DEVICE void multiply(float sums[4], const uint32_t a[4], const uint32_t b[2]) {
  if constexpr (dtm_same<T, dtm_bf16>::value)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* --- tiles --------------------------------------------------------------------------------------
 */

/* LINES lines of WIDTH elements to shared memory, rows STRIDE apart: line(i) is the address of line
 * i, NULL where there is none; of a line elements [from, end) are there. `wide`: all addresses are
 * multiples of 16 bytes, from and end of CHUNK. */
template <int LINES, int WIDTH, int STRIDE, class Line>
DTM_DEVICE void load_lines(T *to, const T *any, int64_t from, int64_t end, bool wide, Line line) {
#pragma unroll 1
  for (uint32_t c = threadIdx.x; c < LINES * WIDTH / CHUNK; c += LIBRARY_THREADS) {
    uint32_t i = c / (WIDTH / CHUNK), part = c % (WIDTH / CHUNK) * CHUNK;
    const T *source = line(i);
    T *at = to + i * STRIDE + part;
    if (wide) {
      bool there = source && from + part < end;
      copy_chunk(at, there ? source + from + part : any, there);
    } else {
#pragma unroll 1
      for (uint32_t e = 0; e < CHUNK; e++)
        at[e] = source && from + part + e < end ? source[from + part + e] : dtm_as<T>(0.0f);
    }
  }
}

/* What a warp reads of a piece of `rows` x 16 of an operand, at k: 16 rows in one go. */
template <bool K_ALONG>
DTM_DEVICE const T *piece(const T *tile, uint32_t row, uint32_t k, uint32_t rows_first) {
  uint32_t lane = threadIdx.x % 32, r = lane % 8, low = lane / 8 % 2, high = lane / 16;
  uint32_t to_row = 8 * (rows_first ? low : high), to_k = 8 * (rows_first ? high : low);
  return K_ALONG ? tile + (row + to_row + r) * ALONG + k + to_k
                 : tile + (k + to_k + r) * ACROSS + row + to_row;
}

/* One step: the products of DEPTH of k, of this warp's piece. */
template <bool A_ALONG, bool B_ALONG>
DTM_DEVICE void step(float sums[TILES_M][TILES_N][4], const T *a, const T *b, uint32_t row,
                     uint32_t column) {
#pragma unroll
  for (uint32_t k = 0; k < DEPTH; k += 16) {
    uint32_t x[TILES_M][4], y[TILES_N / 2][4];
#pragma unroll
    for (uint32_t i = 0; i < TILES_M; i++) {
      const T *at = piece<A_ALONG>(a, row + 16 * i, k, 1);
      A_ALONG ? load_matrices(x[i], at) : load_transposed(x[i], at);
    }
#pragma unroll
    for (uint32_t j = 0; j < TILES_N / 2; j++) {
      const T *at = piece<B_ALONG>(b, column + 16 * j, k, 0);
      B_ALONG ? load_matrices(y[j], at) : load_transposed(y[j], at);
    }
#pragma unroll
    for (uint32_t i = 0; i < TILES_M; i++)
#pragma unroll
      for (uint32_t j = 0; j < TILES_N; j++) multiply(sums[i][j], x[i], &y[j / 2][j % 2 * 2]);
  }
}

DTM_DEVICE void put_pair(T *to, float x, float y) {
  *(uint32_t *)to = dtm_as<T>(x).bits | (uint32_t)dtm_as<T>(y).bits << 16;
}

/* The product of a tile of `rows` x `columns`, k elements deep: load(stage, k) brings operands to
 * shared memory, line(row) is where a row of the result goes. */
template <bool A_ALONG, bool B_ALONG, class Load, class Line>
DTM_DEVICE void multiply_tile(Shared *shared, int64_t rows, int64_t columns, int64_t k, bool wide,
                              Load load, Line line) {
  uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t row = warp % 2 * WARP_M, column = warp / 2 * WARP_N;
  bool idle = row >= rows || column >= columns;
  float sums[TILES_M][TILES_N][4];
#pragma unroll
  for (uint32_t i = 0; i < TILES_M; i++)
#pragma unroll
    for (uint32_t j = 0; j < TILES_N; j++)
#pragma unroll
      for (uint32_t e = 0; e < 4; e++) sums[i][j][e] = 0;
  uint32_t stage = 0;
  if (k > 0) load(0u, (int64_t)0);
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int64_t at = 0; at < k; at += DEPTH, stage ^= 1) {
    if (at + DEPTH < k) load(stage ^ 1, at + DEPTH);
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    if (!idle) step<A_ALONG, B_ALONG>(sums, shared->a[stage], shared->b[stage], row, column);
    __syncthreads();
  }
  if (!idle) {
#pragma unroll
    for (uint32_t i = 0; i < TILES_M; i++)
#pragma unroll
      for (uint32_t j = 0; j < TILES_N; j++) {
        T *to = shared->out + (row + 16 * i + lane / 4) * ACROSS + column + 8 * j + lane % 4 * 2;
        put_pair(to, sums[i][j][0], sums[i][j][1]);
        put_pair(to + 8 * ACROSS, sums[i][j][2], sums[i][j][3]);
      }
  }
  __syncthreads();
#pragma unroll 1
  for (uint32_t c = threadIdx.x; c < TILE * TILE / CHUNK; c += LIBRARY_THREADS) {
    uint32_t r = c / (TILE / CHUNK), part = c % (TILE / CHUNK) * CHUNK;
    const T *from = shared->out + r * ACROSS + part;
    if (r >= rows || part >= columns) continue;
    T *to = line(r) + part;
    if (wide)
      *(uint4 *)to = *(const uint4 *)from;
    else
      for (uint32_t e = 0; e < CHUNK && part + e < columns; e++) to[e] = from[e];
  }
}

/* --- entries ------------------------------------------------------------------------------------
 */

/* y of a tile of rows and a tile of columns; `most` tiles of rows are as many as there can be. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_linear)(const T *x, const T *weight, T *y, const int64_t *first,
                              const int64_t *tiles, const uint32_t *list, GroupedDims d,
                              uint32_t most, int32_t reverse) {
  __shared__ __align__(16) Shared shared;
  int64_t tile = blockIdx.x % most, column = (int64_t)(blockIdx.x / most) * TILE;
  if (tile >= tiles[d.experts]) return;
  int64_t e = expert_of(tiles, d.experts, tile), from = (tile - tiles[e]) * TILE;
  int64_t rows = first[e + 1] - first[e] - from;
  const uint32_t *mine = list + first[e] + from;
  const T *w = weight + e * d.in * d.out;
  bool wide = d.wide;
  auto load_x = [&](uint32_t stage, int64_t k) {
    load_lines<TILE, DEPTH, ALONG>(shared.a[stage], x, k, d.in, wide, [&](uint32_t r) {
      return r < rows ? x + mine[r] * d.in : (const T *)NULL;
    });
  };
  auto line = [&](uint32_t r) { return y + mine[r] * d.out + column; };
  if (reverse)
    multiply_tile<true, false>(
        &shared, rows, d.out - column, d.in, wide,
        [&](uint32_t stage, int64_t k) {
          load_x(stage, k);
          load_lines<DEPTH, TILE, ACROSS>(shared.b[stage], w, column, d.out, wide, [&](uint32_t q) {
            return k + q < d.in ? w + (k + q) * d.out : (const T *)NULL;
          });
        },
        line);
  else
    multiply_tile<true, true>(
        &shared, rows, d.out - column, d.in, wide,
        [&](uint32_t stage, int64_t k) {
          load_x(stage, k);
          load_lines<TILE, DEPTH, ALONG>(shared.b[stage], w, k, d.in, wide, [&](uint32_t c) {
            return column + c < d.out ? w + (column + c) * d.in : (const T *)NULL;
          });
        },
        line);
}

/* dweight[e][o][i] = sum over the rows of e of g[row][o] x[row][i]: a block for each tile of each
 * e. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_weight)(const T *g, const T *x, T *dweight, const int64_t *first,
                              const uint32_t *list, GroupedDims d) {
  __shared__ __align__(16) Shared shared;
  int64_t columns = dtm_ceil_div(d.in, TILE), rows = dtm_ceil_div(d.out, TILE);
  int64_t column = blockIdx.x % columns * TILE, row = blockIdx.x / columns % rows * TILE;
  int64_t e = blockIdx.x / columns / rows, count = first[e + 1] - first[e];
  const uint32_t *mine = list + first[e];
  multiply_tile<false, false>(
      &shared, d.out - row, d.in - column, count, d.wide,
      [&](uint32_t stage, int64_t k) {
        load_lines<DEPTH, TILE, ACROSS>(shared.a[stage], g, row, d.out, d.wide, [&](uint32_t q) {
          return k + q < count ? g + mine[k + q] * d.out : (const T *)NULL;
        });
        load_lines<DEPTH, TILE, ACROSS>(shared.b[stage], x, column, d.in, d.wide, [&](uint32_t q) {
          return k + q < count ? x + mine[k + q] * d.in : (const T *)NULL;
        });
      },
      [&](uint32_t r) { return dweight + (e * d.out + row + r) * d.in + column; });
}
