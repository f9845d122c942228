/* sort and topk along a dim: stable, NaN the largest of all, zeros of both signs equal.
 *
 * ELEMENT: of x; INDEX: of the indices. A line has n elements, `inner` apart; `keep` of the sorted
 * ones are results. Short lines are sorted in shared memory (sort_short); of long ones sort_keys
 * makes keys whose order as unsigned integers is that of the elements, radix.cu sorts these, and
 * sort_finish takes the elements.
 */
#include "element.cuh"

typedef ELEMENT T;

template <int BYTES> struct KeyOf {
  typedef uint32_t type;
};
template <> struct KeyOf<8> {
  typedef uint64_t type;
};
typedef KeyOf<sizeof(T)>::type Key;

enum { THREADS = LIBRARY_THREADS, SHORT = SORT_SHORT };

template <class N> DTM_DEVICE Key key_of(N v) {
  if constexpr (dtm_same<N, double>::value) {
    uint64_t u = (uint64_t)__double_as_longlong(v == 0 ? 0.0 : v);
    return v != v ? ~0ull : u >> 63 ? ~u : u | 1ull << 63;
  } else if constexpr (dtm_same<N, float>::value) {
    uint32_t u = __float_as_uint(v == 0 ? 0.0f : v);
    return v != v ? ~0u : u >> 31 ? ~u : u | 1u << 31;
  } else
    return (Key)v ^ (Key)1 << (8 * sizeof(Key) - 1);
}

DTM_DEVICE int64_t line_start(int64_t line, int64_t n, int64_t inner) {
  return line / inner * n * inner + line % inner;
}

/* `width` is the power of two from n on, at most SHORT; a block has SHORT / width lines. Places
 * behind the n elements hold what comes last. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(sort_short)(const T *x, T *values, INDEX *indices, int64_t lines, int64_t n,
                          int64_t inner, int64_t keep, int32_t width, int32_t descending) {
  __shared__ Key key[SHORT];
  __shared__ uint16_t number[SHORT];
  int64_t first = (int64_t)blockIdx.x * (SHORT / width);
  for (uint32_t e = threadIdx.x; e < SHORT; e += THREADS) {
    int64_t line = first + e / width, i = e % width;
    bool there = i < n && line < lines;
    Key k = there ? key_of(get(x[line_start(line, n, inner) + i * inner])) : 0;
    key[e] = !there ? (Key) ~(Key)0 : descending ? (Key)~k : k;
    number[e] = (uint16_t)i;
  }
  __syncthreads();
  for (uint32_t size = 2; size <= width; size *= 2)
    for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
      for (uint32_t p = threadIdx.x; p < SHORT / 2; p += THREADS) {
        uint32_t i = 2 * p - (p & (apart - 1)), j = i + apart;
        bool upward = (i & (width - 1) & size) == 0;
        bool less = key[i] < key[j] || (key[i] == key[j] && number[i] < number[j]);
        if (less == upward) continue;
        Key k = key[i];
        uint16_t m = number[i];
        key[i] = key[j];
        number[i] = number[j];
        key[j] = k;
        number[j] = m;
      }
      __syncthreads();
    }
  for (uint32_t e = threadIdx.x; e < SHORT; e += THREADS) {
    int64_t line = first + e / width, i = e % width;
    if (i >= keep || line >= lines) continue;
    int64_t to = line_start(line, keep, inner) + i * inner;
    values[to] = x[line_start(line, n, inner) + number[e] * inner];
    put(&indices[to], (int64_t)number[e]);
  }
}

/* keys[line][i]. A thread for each. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(sort_keys)(const T *x, Key *keys, int64_t lines, int64_t n, int64_t inner,
                         int32_t descending) {
  int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, line = at / n, i = at % n;
  if (line >= lines) return;
  Key k = key_of(get(x[line_start(line, n, inner) + i * inner]));
  keys[at] = descending ? (Key)~k : k;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(sort_finish)(const T *x, const uint32_t *numbers, T *values, INDEX *indices,
                           int64_t lines, int64_t n, int64_t inner, int64_t keep) {
  int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, line = at / keep, i = at % keep;
  if (line >= lines) return;
  int64_t number = numbers[line * n + i], to = line_start(line, keep, inner) + i * inner;
  values[to] = x[line_start(line, n, inner) + number * inner];
  put(&indices[to], number);
}
