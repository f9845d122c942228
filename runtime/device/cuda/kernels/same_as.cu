/* x compared with what the first rank has: equal are also two NaN. ELEMENT: its type.
 *
 * `least`: the number of the first element that differs, all ones before.
 */
#include "element.cuh"
#include "fault.cuh"

typedef ELEMENT T;

template <class N> DTM_DEVICE bool same(N a, N b) {
  return a == b || (a != a && b != b);
}

extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(same_as_compare)(const T *x, const T *first, uint64_t *least, int64_t n) {
  int64_t stride = (int64_t)gridDim.x * LIBRARY_THREADS;
  for (int64_t i = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x; i < n; i += stride) {
    if (same(get(x[i]), get(first[i]))) continue;
    atomicMin(least, (uint64_t)i);
    return;
  }
}

extern "C" __global__ void DTM_ENTRY(same_as_tell)(const T *x, const T *first,
                                                   const uint64_t *least, int64_t n, Fault *fault,
                                                   uint32_t action) {
  if (*least == ~0ull) return;
  tell(fault, action, (int64_t)*least, n, (double)get(x[*least]), (double)get(first[*least]));
}
