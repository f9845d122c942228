/* Elements of every type as numbers, for library kernels: as runtime/abi/number.h is on the host.
 *
 * Number<T>::type is what arithmetic is done in (double, float, int64_t); get() and put() convert,
 * rounding to nearest even; integers wrap.
 */
#ifndef DTM_CUDA_ELEMENT_CUH
#define DTM_CUDA_ELEMENT_CUH

#include "dtm.cuh"

#include "library_args.h"

template <class T> struct Number {
  typedef int64_t type;
  static constexpr bool is_float = false;
};
template <> struct Number<double> {
  typedef double type;
  static constexpr bool is_float = true;
};
template <> struct Number<float> {
  typedef float type;
  static constexpr bool is_float = true;
};
template <> struct Number<dtm_bf16> : Number<float> {};
template <> struct Number<dtm_f16> : Number<float> {};
template <> struct Number<dtm_f8_e4m3> : Number<float> {};
template <> struct Number<dtm_f8_e5m2> : Number<float> {};

template <class T> DTM_DEVICE typename Number<T>::type get(T x) {
  return dtm_value(x);
}
template <class T> DTM_DEVICE void put(T *to, typename Number<T>::type v) {
  *to = dtm_as<T>(v);
}

#endif
