/* Reductions that NCCL lacks (abi_cuda_folds): the parts of all ranks lie side by side and are
 * folded in their order, with the arithmetic of runtime/comm/reduce.h: f32 for bf16 and f16, which
 * are rounded once; a NaN stays; integers wrap; a bool's sum is or, its product is and.
 *
 * ELEMENT: of all. */
#include "dtm.cuh"
#include "moves_args.h"

typedef ELEMENT T;
typedef decltype(dtm_value(ELEMENT{})) Value;

template <int OP, class V> DTM_DEVICE V fold(V a, V b) {
  constexpr bool is_bool = dtm_same<V, bool>::value, is_float = dtm_type<V>::is_float;
  constexpr bool is_or = OP == FOLD_OR || (is_bool && (OP == FOLD_SUM || OP == FOLD_MAX));
  constexpr bool is_and = OP == FOLD_AND || (is_bool && (OP == FOLD_PRODUCT || OP == FOLD_MIN));
  if constexpr (is_float) {
    if constexpr (OP == FOLD_MAX) return b > a || b != b ? b : a;
    if constexpr (OP == FOLD_MIN) return b < a || b != b ? b : a;
    return OP == FOLD_PRODUCT ? a * b : a + b;
  } else {
    if constexpr (is_or) return (V)(a | b);
    if constexpr (is_and) return (V)(a & b);
    if constexpr (OP == FOLD_XOR) return (V)(a ^ b);
    if constexpr (OP == FOLD_MAX) return b > a ? b : a;
    if constexpr (OP == FOLD_MIN) return b < a ? b : a;
    return OP == FOLD_PRODUCT ? dtm_mul(a, b) : dtm_add(a, b);
  }
}

template <int OP>
DTM_DEVICE void fold_all(T *dst, const char *src, int64_t parts, int64_t stride, int64_t count) {
  int64_t step = (int64_t)gridDim.x * MOVES_THREADS;
  for (int64_t i = (int64_t)blockIdx.x * MOVES_THREADS + threadIdx.x; i < count; i += step) {
    Value sum = dtm_value(((const T *)src)[i]);
    for (int64_t p = 1; p < parts; p++)
      sum = fold<OP>(sum, dtm_value(((const T *)(src + p * stride))[i]));
    if constexpr (OP == FOLD_AVG) sum = sum / (Value)parts;
    dst[i] = dtm_as<T>(sum);
  }
}

/* dst[i] = src[i] op (src + stride)[i] op .. for i < count; stride in bytes. */
extern "C" __global__ void __launch_bounds__(MOVES_THREADS)
    DTM_ENTRY(fold)(T *dst, const char *src, int64_t parts, int64_t stride, int64_t count,
                    int32_t op) {
  constexpr bool is_float = dtm_type<Value>::is_float;
  switch (op) {
  case FOLD_SUM:
    return fold_all<FOLD_SUM>(dst, src, parts, stride, count);
  case FOLD_PRODUCT:
    return fold_all<FOLD_PRODUCT>(dst, src, parts, stride, count);
  case FOLD_MAX:
    return fold_all<FOLD_MAX>(dst, src, parts, stride, count);
  case FOLD_MIN:
    return fold_all<FOLD_MIN>(dst, src, parts, stride, count);
  }
  if constexpr (is_float) {
    if (op == FOLD_AVG) fold_all<FOLD_AVG>(dst, src, parts, stride, count);
  } else {
    if (op == FOLD_AND) fold_all<FOLD_AND>(dst, src, parts, stride, count);
    if (op == FOLD_OR) fold_all<FOLD_OR>(dst, src, parts, stride, count);
    if (op == FOLD_XOR) fold_all<FOLD_XOR>(dst, src, parts, stride, count);
  }
}
