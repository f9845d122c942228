/* The products of experts: the rows of one expert, from all entries of the batch, times its weight,
 * and the gradient of the weight. How many rows there are, the device alone knows.
 *
 * ELEMENT: of all; COUNT: of counts. Rows stand in x [B, R, P, I] as ops.def says. grouped_plan
 * lists the rows of every expert, one expert after the other; then tiles of TILE_M rows of one
 * expert go to blocks, of which there are as many as there can be tiles.
 */
#include "element.cuh"
#include "fault.cuh"
#include "product.cuh"

typedef ELEMENT T;

typedef Number<T>::type N;

/* Counts that do not fit into their block are told, and cut. start[b][e]: its first row;
 * count[b][e] how many; used[b][r]: places that hold a row. One thread for each entry of the batch.
 */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_count)(const COUNT *counts, int64_t *start, int64_t *count, int64_t *used,
                             GroupedDims d, Fault *fault, uint32_t action) {
  int64_t b = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x;
  if (b >= d.batch) return;
  for (int64_t r = 0; r < d.blocks; r++) used[b * d.blocks + r] = 0;
  for (int64_t e = 0; e < d.experts; e++) {
    int64_t block = (d.first_expert + e) / d.each - d.first_block, room = 0;
    int64_t n = get(counts[b * d.experts + e]);
    bool here = block >= 0 && block < d.blocks;
    int64_t before = here ? used[b * d.blocks + block] : 0;
    if (here) room = d.places - before;
    if (n < 0 || n > room) {
      tell(fault, action, n, room + 1);
      n = n < 0 ? 0 : room;
    }
    start[b * d.experts + e] = n ? (b * d.blocks + block) * d.places + before : 0;
    count[b * d.experts + e] = n;
    if (here) used[b * d.blocks + block] = before + n;
  }
}

/* first[e]: rows of the experts before, tiles[e]: their tiles, both with a last one for all;
 * count[b][e] becomes the number in the list of the first row of (b, e). One block: a thread takes
 * experts, then one adds up. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_plan)(int64_t *count, int64_t *first, int64_t *tiles, GroupedDims d) {
  for (int64_t e = threadIdx.x; e < d.experts; e += LIBRARY_THREADS) {
    int64_t total = 0;
    for (int64_t b = 0; b < d.batch; b++) {
      int64_t n = count[b * d.experts + e];
      count[b * d.experts + e] = total;
      total += n;
    }
    first[e] = total;
  }
  __syncthreads();
  if (threadIdx.x) return;
  int64_t rows = 0, all = 0;
  for (int64_t e = 0; e <= d.experts; e++) {
    int64_t n = e < d.experts ? first[e] : 0;
    first[e] = rows;
    tiles[e] = all;
    rows += n;
    all += (n + TILE_M - 1) / TILE_M;
  }
}

/* list[first[e] + i]: row i of expert e. A block for each (b, e). */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_list)(const int64_t *start, const int64_t *count, const int64_t *first,
                            uint32_t *list, GroupedDims d) {
  int64_t b = blockIdx.x / d.experts, e = blockIdx.x % d.experts, at = count[blockIdx.x];
  int64_t after = b + 1 < d.batch ? count[blockIdx.x + d.experts] : first[e + 1] - first[e];
  for (int64_t i = threadIdx.x; i < after - at; i += LIBRARY_THREADS)
    list[first[e] + at + i] = (uint32_t)(start[blockIdx.x] + i);
}

/* Places that hold no row. A block for each. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_clear)(const int64_t *used, T *y, GroupedDims d) {
  int64_t row = blockIdx.x;
  if (row % d.places < used[row / d.places]) return;
  for (int64_t i = threadIdx.x; i < d.out; i += LIBRARY_THREADS) put(&y[row * d.out + i], (N)0);
}

/* Which expert has this tile. */
DTM_DEVICE int64_t expert_of(const int64_t *tiles, int64_t experts, int64_t tile) {
  int64_t low = 0, high = experts; /* tiles[low] <= tile < tiles[high] */
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (tiles[middle] <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* y of a tile of rows and a tile of columns; `most` tiles of rows are as many as there can be. */
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    DTM_ENTRY(grouped_linear)(const T *x, const T *weight, T *y, const int64_t *first,
                              const int64_t *tiles, const uint32_t *list, GroupedDims d,
                              uint32_t most, int32_t reverse) {
  __shared__ TileMemory<N> memory;
  int64_t tile = blockIdx.x % most, column = (int64_t)(blockIdx.x / most) * TILE_N;
  if (tile >= tiles[d.experts]) return;
  int64_t e = expert_of(tiles, d.experts, tile), from = (tile - tiles[e]) * TILE_M;
  int64_t rows = first[e + 1] - first[e] - from;
  const uint32_t *mine = list + first[e] + from;
  const T *w = weight + e * d.in * d.out;
  multiply_tile(
      &memory, d.in, false, reverse != 0,
      [&](uint32_t r, int64_t q) { return r < rows ? get(x[mine[r] * d.in + q]) : (N)0; },
      [&](int64_t q, uint32_t c) {
        if (column + c >= d.out) return (N)0;
        return get(w[reverse ? q * d.out + column + c : (column + c) * d.in + q]);
      });
  store_tile(&memory, [&](uint32_t r, uint32_t c, N v) {
    if (r < rows && column + c < d.out) put(&y[mine[r] * d.out + column + c], v);
  });
}

/* dweight[e][o][i] = sum over the rows of e of g[row][o] x[row][i]: a block for each tile of each
 * e.
 */
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    DTM_ENTRY(grouped_weight)(const T *g, const T *x, T *dweight, const int64_t *first,
                              const uint32_t *list, GroupedDims d) {
  __shared__ TileMemory<N> memory;
  int64_t columns = dtm_ceil_div(d.in, TILE_N), rows = dtm_ceil_div(d.out, TILE_M);
  int64_t column = blockIdx.x % columns * TILE_N, row = blockIdx.x / columns % rows * TILE_M;
  int64_t e = blockIdx.x / columns / rows;
  const uint32_t *mine = list + first[e];
  multiply_tile(
      &memory, first[e + 1] - first[e], true, true,
      [&](uint32_t r, int64_t q) {
        return row + r < d.out ? get(g[mine[q] * d.out + row + r]) : (N)0;
      },
      [&](int64_t q, uint32_t c) {
        return column + c < d.in ? get(x[mine[q] * d.in + column + c]) : (N)0;
      });
  store_tile(&memory, [&](uint32_t r, uint32_t c, N v) {
    if (row + r < d.out && column + c < d.in)
      put(&dweight[(e * d.out + row + r) * d.in + column + c], v);
  });
}
