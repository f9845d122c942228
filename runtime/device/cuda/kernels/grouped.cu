/* The products of experts: the rows of one expert, from all entries of the batch, times its weight,
 * and the gradient of the weight. grouped_mma.cu does the same with tensor cores.
 *
 * ELEMENT: of all; COUNT: of counts. Rows stand in x [B, R, P, I] as ops.def says; a tile has
 * PRODUCT_TILE of them.
 */
#include "grouped.cuh"
#include "product.cuh"

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
