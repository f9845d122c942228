/* Reductions of the stand-in for NCCL: see nccl_comm.h. */
#include <math.h>

#include "gpusim/nccl_comm.h"
#include "runtime/abi/number.h"

static double fold(double x, double y, int op) {
  switch (op) {
  case ncclProd:
    return x * y;
  case ncclMax:
    return fmax(x, y);
  case ncclMin:
    return fmin(x, y);
  default:
    return x + y;
  }
}

static float fold_float(float x, float y, int op) {
  switch (op) {
  case ncclProd:
    return x * y;
  case ncclMax:
    return fmaxf(x, y);
  case ncclMin:
    return fminf(x, y);
  default:
    return x + y;
  }
}

static int64_t fold_int(int64_t x, int64_t y, int op) {
  switch (op) {
  case ncclProd:
    return (int64_t)((uint64_t)x * (uint64_t)y);
  case ncclMax:
    return x > y ? x : y;
  case ncclMin:
    return x < y ? x : y;
  default:
    return (int64_t)((uint64_t)x + (uint64_t)y);
  }
}

static float get_float(const void *at, size_t i, int type) {
  if (type == ncclFloat32) return ((const float *)at)[i];
  uint16_t bits = ((const uint16_t *)at)[i];
  return type == ncclBfloat16 ? abi_from_bf16(bits) : abi_from_f16(bits);
}

static void put_float(void *at, size_t i, int type, float value) {
  if (type == ncclFloat32)
    ((float *)at)[i] = value;
  else
    ((uint16_t *)at)[i] = type == ncclBfloat16 ? abi_to_bf16(value) : abi_to_f16(value);
}

static int64_t get_int(const void *at, size_t i, int type) {
  switch (type) {
  case ncclInt8:
    return ((const int8_t *)at)[i];
  case ncclUint8:
    return ((const uint8_t *)at)[i];
  case ncclInt32:
    return ((const int32_t *)at)[i];
  default:
    return ((const int64_t *)at)[i];
  }
}

static void put_int(void *at, size_t i, int type, int64_t value) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    ((uint8_t *)at)[i] = (uint8_t)value;
    break;
  case ncclInt32:
    ((uint32_t *)at)[i] = (uint32_t)value;
    break;
  default:
    ((int64_t *)at)[i] = value;
    break;
  }
}

static void reduce_double(double *to, const void *const *from, int nranks, size_t n, int op) {
  for (size_t i = 0; i < n; i++) {
    double x = ((const double *)from[0])[i];
    for (int r = 1; r < nranks; r++) x = fold(x, ((const double *)from[r])[i], op);
    to[i] = op == ncclAvg ? x / nranks : x;
  }
}

static void reduce_float(void *to, const void *const *from, int nranks, size_t n, int type,
                         int op) {
  for (size_t i = 0; i < n; i++) {
    float x = get_float(from[0], i, type);
    for (int r = 1; r < nranks; r++) x = fold_float(x, get_float(from[r], i, type), op);
    put_float(to, i, type, op == ncclAvg ? x / (float)nranks : x);
  }
}

void comm_reduce(void *to, const void *const *from, int nranks, size_t n, int type, int op) {
  if (type == ncclFloat64) {
    reduce_double(to, from, nranks, n, op);
  } else if (type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16) {
    reduce_float(to, from, nranks, n, type, op);
  } else {
    for (size_t i = 0; i < n; i++) {
      int64_t x = get_int(from[0], i, type);
      for (int r = 1; r < nranks; r++) x = fold_int(x, get_int(from[r], i, type), op);
      put_int(to, i, type, op == ncclAvg ? x / nranks : x);
    }
  }
}
