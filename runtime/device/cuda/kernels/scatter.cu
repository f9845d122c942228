/* scatter_add along a dim: y += source at index, in the order of the index along its line. y holds
 * x already.
 *
 * ELEMENT: of all; INDEX: of index. A line of index has n elements, `inner` apart; the line of y
 * and of source that it goes with has `n_y` and at least n elements. Many lines: a thread for each
 * (scatter_lines). Few and long ones: scatter_keys gives positions to be sorted by radix.cu, and
 * the thread that sees the first of equal ones adds all of them (scatter_runs).
 */
#include "element.cuh"
#include "fault.cuh"

typedef ELEMENT T;

DTM_DEVICE void find_line(const ScatterDims &d, int64_t line, int64_t *at, int64_t *to,
                          int64_t *from) {
  *at = line / d.inner * d.n * d.inner + line % d.inner;
  *to = *from = 0;
  for (int32_t i = d.dims; i-- > 0;) {
    int64_t c = line % d.extent[i];
    line /= d.extent[i];
    *to += c * d.to[i];
    *from += c * d.from[i];
  }
}

DTM_DEVICE void add(T *y, T source) {
  put(y, get(*y) + get(source));
}

extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(scatter_lines)(const INDEX *index, const T *source, T *y, ScatterDims d, Fault *fault,
                             uint32_t action) {
  int64_t line = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x, at, to, from;
  if (line >= d.lines) return;
  find_line(d, line, &at, &to, &from);
  for (int64_t i = 0; i < d.n; i++, at += d.inner, from += d.inner_s) {
    int64_t k = get(index[at]);
    if (k < 0 || k >= d.n_y)
      tell(fault, action, k, d.n_y);
    else
      add(&y[to + k * d.inner_y], source[from]);
  }
}

/* keys[line][i]; what is out of range comes last. A thread for each. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(scatter_keys)(const INDEX *index, uint32_t *keys, ScatterDims d, Fault *fault,
                            uint32_t action) {
  int64_t place = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x, line = place / d.n, at, to,
          from;
  if (line >= d.lines) return;
  find_line(d, line, &at, &to, &from);
  int64_t i = place % d.n;
  int64_t k = get(index[at + i * d.inner]);
  bool bad = k < 0 || k >= d.n_y;
  if (bad) tell(fault, action, k, d.n_y);
  keys[place] = bad ? (uint32_t)d.n_y : (uint32_t)k;
}

extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(scatter_runs)(const uint32_t *keys, const uint32_t *numbers, const T *source, T *y,
                            ScatterDims d) {
  int64_t place = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x, line = place / d.n, at, to,
          from;
  if (line >= d.lines) return;
  keys += line * d.n;
  numbers += line * d.n;
  int64_t i = place % d.n;
  uint32_t k = keys[i];
  if (k == (uint32_t)d.n_y || (i > 0 && keys[i - 1] == k)) return;
  find_line(d, line, &at, &to, &from);
  T sum = y[to + k * d.inner_y];
  for (; i < d.n && keys[i] == k; i++) add(&sum, source[from + numbers[i] * d.inner_s]);
  y[to + k * d.inner_y] = sum;
}
