/* The gradient of an embedding over a block of the vocabulary: rows of g are added up by the id
 * they belong to, in the order of the ids, without atomic operations.
 *
 * ELEMENT: of all; INDEX: of ids. embedding_keys turns ids into rows of the block, radix.cu sorts
 * their positions by row, and the warps that see the first position of a row add up all of them
 * (embedding_rows). dweight is zero before.
 */
#include "element.cuh"
#include "fault.cuh"

typedef ELEMENT T;
typedef Number<T>::type N;

enum {
  THREADS = LIBRARY_THREADS,
  WARPS = EMBEDDING_WARPS,
  COLUMNS = EMBEDDING_COLUMNS,
  EACH = COLUMNS / 32,
  AHEAD = 4 /* rows that are on their way at once */
};

/* `rows` of the block from row `first` on, of a vocabulary of `extent`. What is in none of them
 * comes last. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(embedding_keys)(const INDEX *ids, uint32_t *keys, int64_t n, int64_t rows,
                              int64_t first, int64_t extent, Fault *fault, uint32_t action) {
  int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  int64_t id = get(ids[i]), row = id - first;
  if (id < 0 || id >= extent) tell(fault, action, id, extent);
  keys[i] = id < 0 || id >= extent || row < 0 || row >= rows ? (uint32_t)rows : (uint32_t)row;
}

/* The thread's columns of a row. */
DTM_DEVICE void load_part(const T *row, int64_t column, int64_t width, N value[EACH]) {
#pragma unroll
  for (uint32_t e = 0; e < EACH; e++)
    value[e] = column + 32 * e < width ? get(row[column + 32 * e]) : (N)0;
}

/* A warp for each position and COLUMNS columns: `blocks` for the first columns, and so on. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(embedding_rows)(const uint32_t *keys, const uint32_t *numbers, const T *g, T *dweight,
                              int64_t n, int64_t rows, int64_t width, uint32_t blocks) {
  int64_t i = (int64_t)(blockIdx.x % blocks) * WARPS + threadIdx.x / 32;
  if (i >= n) return;
  uint32_t row = keys[i];
  if (row == (uint32_t)rows || (i > 0 && keys[i - 1] == row)) return;
  int64_t column = (int64_t)(blockIdx.x / blocks) * COLUMNS + threadIdx.x % 32;
  N sum[EACH] = {0};
  for (; i + AHEAD <= n && keys[i + AHEAD - 1] == row; i += AHEAD) {
    N value[AHEAD][EACH];
#pragma unroll
    for (uint32_t a = 0; a < AHEAD; a++)
      load_part(g + (int64_t)numbers[i + a] * width, column, width, value[a]);
#pragma unroll
    for (uint32_t a = 0; a < AHEAD; a++)
#pragma unroll
      for (uint32_t e = 0; e < EACH; e++) sum[e] += value[a][e];
  }
  for (; i < n && keys[i] == row; i++) {
    N value[EACH];
    load_part(g + (int64_t)numbers[i] * width, column, width, value);
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) sum[e] += value[e];
  }
#pragma unroll
  for (uint32_t e = 0; e < EACH; e++)
    if (column + 32 * e < width) put(&dweight[row * width + column + 32 * e], sum[e]);
}
