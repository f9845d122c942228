/* Running sums along a dim, also from the end. Floats are added up in f64; the order of additions
 * follows from the length of a line.
 *
 * ELEMENT: of x; RESULT: of y. A line has n elements, `inner` apart. cumsum_lines has a thread for
 * each line, cumsum_line a block.
 */
#include "element.cuh"

typedef ELEMENT T;

enum { THREADS = LIBRARY_THREADS, WARPS = THREADS / 32, EACH = 4, TILE = THREADS * EACH };

template <bool FLOAT> struct Sum { typedef uint64_t type; };
template <> struct Sum<true> { typedef double type; };
typedef Sum<Number<RESULT>::is_float>::type Wide;

DTM_DEVICE void store(RESULT *to, Wide v) {
  put(to, (Number<RESULT>::type)v);
}

DTM_DEVICE int64_t line_start(int64_t line, int64_t n, int64_t inner) {
  return line / inner * n * inner + line % inner;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(cumsum_lines)(const T *x, RESULT *y, int64_t lines, int64_t n, int64_t inner,
                            int32_t reverse) {
  int64_t line = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (line >= lines) return;
  int64_t at = line_start(line, n, inner) + (reverse ? (n - 1) * inner : 0);
  int64_t step = reverse ? -inner : inner;
  Wide sum = 0;
  for (int64_t i = 0; i < n; i++, at += step) {
    sum += (Wide)get(x[at]);
    store(&y[at], sum);
  }
}

/* Tile after tile: four consecutive elements per thread, the threads of a warp by shuffles, the
 * warps in their order. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(cumsum_line)(const T *x, RESULT *y, int64_t lines, int64_t n, int64_t inner,
                           int32_t reverse) {
  __shared__ Wide of_warp[WARPS];
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t first = line_start(blockIdx.x, n, inner) + (reverse ? (n - 1) * inner : 0);
  int64_t step = reverse ? -inner : inner;
  Wide before = 0;
  for (int64_t from = 0; from < n; from += TILE) {
    int64_t i = from + threadIdx.x * EACH;
    Wide value[EACH], sum = 0;
    for (uint32_t e = 0; e < EACH; e++) {
      if (i + e < n) sum += (Wide)get(x[first + (i + e) * step]);
      value[e] = sum;
    }
    Wide upto = sum;
    for (uint32_t apart = 1; apart < 32; apart *= 2) {
      Wide other = __shfl_up_sync(0xffffffffu, upto, apart);
      if (lane >= apart) upto += other;
    }
    if (lane == 31) of_warp[warp] = upto;
    Wide own = __shfl_up_sync(0xffffffffu, upto, 1);
    __syncthreads();
    Wide start = before;
    for (uint32_t w = 0; w < WARPS; w++) {
      if (w < warp) start += of_warp[w];
      before += of_warp[w];
    }
    if (lane > 0) start += own;
    for (uint32_t e = 0; e < EACH; e++)
      if (i + e < n) store(&y[first + (i + e) * step], start + value[e]);
    __syncthreads();
  }
}
