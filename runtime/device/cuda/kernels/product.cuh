/* One tile of a matrix product, for all element types: operands come through functions that the
 * caller gives, sums are kept in registers in the type that arithmetic is done in. Each element
 * adds its products in ascending order of k.
 */
#ifndef DTM_CUDA_PRODUCT_CUH
#define DTM_CUDA_PRODUCT_CUH

#include "element.cuh"

enum {
  TILE_M = PRODUCT_TILE,
  TILE_N = PRODUCT_TILE,
  TILE_K = 16,
  TILE_THREADS = LIBRARY_THREADS,
  EACH_M = TILE_M / 16,
  EACH_N = TILE_N / 16
};

/* Rows in shared memory begin at multiples of 16 bytes. */
template <class N> union alignas(16) TileMemory {
  struct {
    N a[TILE_K][TILE_M + 4], b[TILE_K][TILE_N + 4];
  };
  N out[TILE_M][TILE_N + 1];
};

/* What a thread takes at once of a row. */
template <class N> struct alignas(16) Quad { N v[4]; };
static_assert(EACH_M == 4 && EACH_N == 4, "a Quad");

/* memory->out becomes the product; all threads of the block call it, and are together at its end.
 * a(row, k) and b(k, column) give numbers, also beyond the operands' ends. `a_rows`: consecutive
 * threads ask for consecutive rows of a, otherwise for consecutive k; `b_columns` likewise. */
template <class N, class A, class B>
DTM_DEVICE void multiply_tile(TileMemory<N> *memory, int64_t k, bool a_rows, bool b_columns, A a,
                              B b) {
  uint32_t t = threadIdx.x, row = t / 16 * EACH_M, column = t % 16 * EACH_N;
  N sum[EACH_M][EACH_N];
#pragma unroll
  for (uint32_t i = 0; i < EACH_M; i++)
#pragma unroll
    for (uint32_t j = 0; j < EACH_N; j++) sum[i][j] = 0;
  for (int64_t from = 0; from < k; from += TILE_K) {
    for (uint32_t e = t; e < TILE_M * TILE_K; e += TILE_THREADS) {
      uint32_t r = a_rows ? e % TILE_M : e / TILE_K, q = a_rows ? e / TILE_M : e % TILE_K;
      memory->a[q][r] = from + q < k ? a(r, from + q) : (N)0;
    }
    for (uint32_t e = t; e < TILE_N * TILE_K; e += TILE_THREADS) {
      uint32_t c = b_columns ? e % TILE_N : e / TILE_K, q = b_columns ? e / TILE_N : e % TILE_K;
      memory->b[q][c] = from + q < k ? b(from + q, c) : (N)0;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t q = 0; q < TILE_K; q++) {
      const Quad<N> x = *(const Quad<N> *)&memory->a[q][row];
      const Quad<N> y = *(const Quad<N> *)&memory->b[q][column];
#pragma unroll
      for (uint32_t i = 0; i < EACH_M; i++)
#pragma unroll
        for (uint32_t j = 0; j < EACH_N; j++) sum[i][j] += x.v[i] * y.v[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (uint32_t i = 0; i < EACH_M; i++)
#pragma unroll
    for (uint32_t j = 0; j < EACH_N; j++) memory->out[row + i][column + j] = sum[i][j];
  __syncthreads();
}

/* store(row, column, number) for all of memory->out, threads that follow each other taking columns
 * that do; all of them are together at its end. */
template <class N, class S> DTM_DEVICE void store_tile(TileMemory<N> *memory, S store) {
#pragma unroll 1
  for (uint32_t e = threadIdx.x; e < TILE_M * TILE_N; e += TILE_THREADS)
    store(e / TILE_N, e % TILE_N, memory->out[e / TILE_N][e % TILE_N]);
  __syncthreads();
}

#endif
