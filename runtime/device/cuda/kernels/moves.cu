/* What moves do beside NCCL: boxes copied, packed and unpacked, buffers filled, rows cleared. */
#include "dtm.cuh"
#include "fault.cuh"
#include "moves_args.h"

/* One piece of 1 << log_unit bytes; the same for all threads of a block. */
DTM_DEVICE void copy_unit(char *dst, const char *src, uint32_t log_unit) {
  switch (log_unit) {
  case 0:
    *dst = *src;
    break;
  case 1:
    *(uint16_t *)dst = *(const uint16_t *)src;
    break;
  case 2:
    *(uint32_t *)dst = *(const uint32_t *)src;
    break;
  case 3:
    *(uint2 *)dst = *(const uint2 *)src;
    break;
  case 4:
    *(uint4 *)dst = *(const uint4 *)src;
    break;
  }
}

/* Units of one tile of a box; I holds the number of any unit. Where a unit lies costs more code than
 * its copy: it is there once for all sizes. */
template <class I>
DTM_DEVICE void copy_tile(const CudaBox &box, char *dst, const char *src, I tile) {
#pragma unroll 1
  for (int k = 0; k < MOVES_TILE / MOVES_THREADS; k++) {
    I unit = tile * MOVES_TILE + k * MOVES_THREADS + threadIdx.x;
    if (unit >= (I)box.units) return;
    I rest = unit / (I)box.row, column = unit % (I)box.row;
    int64_t from = box.src + ((int64_t)column << box.log_unit);
    int64_t to = box.dst + ((int64_t)column << box.log_unit);
#pragma unroll 1
    for (uint32_t d = box.ndims; d-- > 0;) {
      I at = rest % (I)box.extent[d];
      rest /= (I)box.extent[d];
      from += at * box.src_stride[d];
      to += at * box.dst_stride[d];
    }
    copy_unit(dst + to, src + from, box.log_unit);
  }
}

/* A block of threads per tile. */
extern "C" __global__ void __launch_bounds__(MOVES_THREADS)
    DTM_ENTRY(move_boxes)(const CudaBox *boxes, int64_t nboxes, char *dst, const char *src) {
  int64_t first = 0, last = nboxes - 1; /* the last box that begins at this tile or before */
  while (first < last) {
    int64_t middle = (first + last + 1) / 2;
    if (boxes[middle].first_tile <= blockIdx.x)
      first = middle;
    else
      last = middle - 1;
  }
  const CudaBox &box = boxes[first];
  int64_t tile = blockIdx.x - box.first_tile;
  if (box.units < 1ll << 31)
    copy_tile<uint32_t>(box, dst, src, (uint32_t)tile);
  else
    copy_tile<uint64_t>(box, dst, src, (uint64_t)tile);
}

/* Bytes of `pattern` over and over; whole words where dst is aligned to them. */
extern "C" __global__ void __launch_bounds__(MOVES_THREADS)
    DTM_ENTRY(move_fill)(char *dst, int64_t bytes, uint64_t pattern) {
  int64_t first = (int64_t)blockIdx.x * MOVES_THREADS + threadIdx.x;
  int64_t step = (int64_t)gridDim.x * MOVES_THREADS, words = 0;
  if ((uint64_t)dst % 8 == 0) words = bytes / 8;
  for (int64_t i = first; i < words; i += step) ((uint64_t *)dst)[i] = pattern;
  for (int64_t i = 8 * words + first; i < bytes; i += step) dst[i] = (char)(pattern >> i % 8 * 8);
}

DTM_DEVICE int64_t load_count(const char *used, int64_t bytes, int64_t group) {
  switch (bytes) {
  case 8:
    return ((const int64_t *)used)[group];
  case 4:
    return ((const int32_t *)used)[group];
  case 2:
    return ((const int16_t *)used)[group];
  case 1:
    return ((const int8_t *)used)[group];
  default: /* unsigned */
    return ((const uint8_t *)used)[group];
  }
}

/* dst [groups, rows] of `row` bytes: zeros for all but the first `used` rows of each group. bytes:
 * of a number of rows; 0 = unsigned ones of one byte. A block of threads per row, by turns. */
extern "C" __global__ void __launch_bounds__(MOVES_THREADS)
    DTM_ENTRY(move_rows)(char *dst, const char *used, int64_t bytes, int64_t groups, int64_t rows,
                         int64_t row, Fault *fault, uint32_t action) {
  bool wide = row % 16 == 0 && (uint64_t)dst % 16 == 0;
  for (int64_t r = blockIdx.x; r < groups * rows; r += gridDim.x) {
    int64_t n = load_count(used, bytes, r / rows);
    if ((n < 0 || n > rows) && threadIdx.x == 0) tell(fault, action, n, rows);
    if (r % rows < n) continue;
    char *to = dst + r * row;
    if (wide)
      for (int64_t i = threadIdx.x; i < row / 16; i += MOVES_THREADS)
        ((uint4 *)to)[i] = make_uint4(0, 0, 0, 0);
    else
      for (int64_t i = threadIdx.x; i < row; i += MOVES_THREADS) to[i] = 0;
  }
}
