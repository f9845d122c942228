/* Matrix products that cuBLASLt does not take (integers, 8 bit floats, strides without a unit), and
 * what it does not do on the way out: bias, activation, addend. ELEMENT: its type.
 */
#include "product.cuh"

typedef ELEMENT T;

typedef Number<T>::type N;

template <class F> DTM_DEVICE F activate(int32_t activation, F x) {
  if (activation == ACTIVATION_RELU) return x > 0 || x != x ? x : 0;
  if constexpr (dtm_type<F>::is_float) {
    if (activation == ACTIVATION_GELU)
      return (F)0.5 * x * (1 + erf(x * (F)0.70710678118654752440));
    if (activation == ACTIVATION_GELU_TANH)
      return (F)0.5 * x * (1 + tanh((F)0.79788456080286535588 * (x + (F)0.044715 * x * x * x)));
    if (activation == ACTIVATION_SILU) return x / (1 + exp(-x));
    if (activation == ACTIVATION_TANH) return tanh(x);
  }
  return x;
}

/* The way out of one element of [row, column] that lies at `at`. */
DTM_DEVICE N finish(const MatmulDims &d, N v, const T *bias, const T *addend, int64_t row,
                    int64_t column, int64_t at) {
  if (bias) v += get(bias[d.bias_rows ? row : column]);
  v = activate(d.activation, v);
  return addend ? v + get(addend[at]) : v;
}

/* A block for each tile of each entry of the batch, of which there are `count`. */
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    DTM_ENTRY(matmul)(const T *a, const T *b, const T *bias, const T *addend, T *out,
                      MatmulDims d) {
  __shared__ TileMemory<N> memory;
  int64_t rows = dtm_ceil_div(d.m, TILE_M), columns = dtm_ceil_div(d.n, TILE_N);
  for (int64_t tile = blockIdx.x; tile < rows * columns * d.count; tile += gridDim.x) {
    int64_t column = tile % columns * TILE_N, row = tile / columns % rows * TILE_M;
    int64_t at_a = 0, at_b = 0, at_out = 0, rest = tile / columns / rows;
    for (int32_t i = d.nbatch; i-- > 0;) {
      int64_t c = rest % d.batch[i];
      rest /= d.batch[i];
      at_a += c * d.a_batch[i];
      at_b += c * d.b_batch[i];
      at_out += c * d.out_batch[i];
    }
    multiply_tile(
        &memory, d.k, d.a_m == 1, d.b_n == 1,
        [&](uint32_t r, int64_t q) {
          return row + r < d.m ? get(a[at_a + (row + r) * d.a_m + q * d.a_k]) : (N)0;
        },
        [&](int64_t q, uint32_t c) {
          return column + c < d.n ? get(b[at_b + q * d.b_k + (column + c) * d.b_n]) : (N)0;
        });
    store_tile(&memory, [&](uint32_t i, uint32_t j, N v) {
      int64_t r = row + i, c = column + j, at = at_out + r * d.out_m + c * d.out_n;
      if (r < d.m && c < d.n) put(&out[at], finish(d, v, bias, addend, r, c, at));
    });
  }
}

/* W consecutive columns at a time. */
template <int W>
DTM_DEVICE void finish_all(const T *product, const T *bias, const T *addend, T *out,
                           const MatmulDims &d) {
  int64_t stride = (int64_t)gridDim.x * LIBRARY_THREADS, all = d.m * d.n / W * d.count;
  for (int64_t v = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x; v < all; v += stride) {
    int64_t rest = v, column = dtm_take(rest, d.n / W) * W, row = dtm_take(rest, d.m);
    int64_t at = row * d.out_m + column * d.out_n;
    for (int32_t i = d.nbatch; i-- > 0;) at += dtm_take(rest, d.batch[i]) * d.out_batch[i];
    N x[W], y[W];
    dtm_load<W>(x, product + at, W, true);
    if (bias && d.bias_rows) {
      N one = get(bias[row]);
#pragma unroll
      for (int e = 0; e < W; e++) x[e] += one;
    } else if (bias) {
      dtm_load<W>(y, bias + column, W, true);
#pragma unroll
      for (int e = 0; e < W; e++) x[e] += y[e];
    }
#pragma unroll
    for (int e = 0; e < W; e++) x[e] = activate(d.activation, x[e]);
    if (addend) {
      dtm_load<W>(y, addend + at, W, true);
#pragma unroll
      for (int e = 0; e < W; e++) x[e] += y[e];
    }
    dtm_store<W>(out + at, x, W, true);
  }
}

/* out = act(product + bias) + addend; an element of the product lies where that of out does. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(matmul_finish)(const T *product, const T *bias, const T *addend, T *out,
                             MatmulDims d) {
  if (d.wide)
    finish_all<16 / sizeof(T)>(product, bias, addend, out, d);
  else
    finish_all<1>(product, bias, addend, out, d);
}
