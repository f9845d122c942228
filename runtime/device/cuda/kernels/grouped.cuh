/* Which rows belong to which expert: the part of grouped.cu and grouped_mma.cu that is the same.
 *
 * How many rows there are, the device alone knows. grouped_plan lists the rows of every expert, one
 * expert after the other; then tiles of d.tile rows of one expert go to blocks, of which there
 * are as many as there can be tiles.
 */
#ifndef DTM_CUDA_GROUPED_CUH
#define DTM_CUDA_GROUPED_CUH

#include "element.cuh"
#include "fault.cuh"

typedef ELEMENT T;
typedef Number<T>::type N;

/* Counts that do not fit into their block are told, and cut. start[b][e]: its first row;
 * count[b][e] how many; used[b][r]: places that hold a row. One thread for each entry of the batch.
 */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_count)(const COUNT *counts, int64_t *start, int64_t *count, int64_t *used,
                             GroupedDims d, Fault *fault, uint32_t action) {
  int64_t b = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x;
  if (b >= d.batch) return;
  for (int64_t r = 0; r < d.blocks; r++) used[b * d.blocks + r] = 0;
  for (int64_t e = 0; e < d.experts; e++) {
    int64_t block = (d.first_expert + e) / d.each - d.first_block, room = 0;
    int64_t n = get(counts[b * d.experts + e]);
    bool here = block >= 0 && block < d.blocks;
    int64_t before = here ? used[b * d.blocks + block] : 0;
    if (here) room = d.places - before;
    if (n < 0 || n > room) {
      tell(fault, action, n, room + 1);
      n = n < 0 ? 0 : room;
    }
    start[b * d.experts + e] = n ? (b * d.blocks + block) * d.places + before : 0;
    count[b * d.experts + e] = n;
    if (here) used[b * d.blocks + block] = before + n;
  }
}

/* first[e]: rows of the experts before, tiles[e]: their tiles, both with a last one for all;
 * count[b][e] becomes the number in the list of the first row of (b, e). One block: a thread takes
 * experts, then one adds up. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_plan)(int64_t *count, int64_t *first, int64_t *tiles, GroupedDims d) {
  for (int64_t e = threadIdx.x; e < d.experts; e += LIBRARY_THREADS) {
    int64_t total = 0;
    for (int64_t b = 0; b < d.batch; b++) {
      int64_t n = count[b * d.experts + e];
      count[b * d.experts + e] = total;
      total += n;
    }
    first[e] = total;
  }
  __syncthreads();
  if (threadIdx.x) return;
  int64_t rows = 0, all = 0;
  for (int64_t e = 0; e <= d.experts; e++) {
    int64_t n = e < d.experts ? first[e] : 0;
    first[e] = rows;
    tiles[e] = all;
    rows += n;
    all += dtm_ceil_div(n, d.tile);
  }
}

/* list[first[e] + i]: row i of expert e. A block for each (b, e). */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_list)(const int64_t *start, const int64_t *count, const int64_t *first,
                            uint32_t *list, GroupedDims d) {
  int64_t b = blockIdx.x / d.experts, e = blockIdx.x % d.experts, at = count[blockIdx.x];
  int64_t after = b + 1 < d.batch ? count[blockIdx.x + d.experts] : first[e + 1] - first[e];
  for (int64_t i = threadIdx.x; i < after - at; i += LIBRARY_THREADS)
    list[first[e] + at + i] = (uint32_t)(start[blockIdx.x] + i);
}

/* Places that hold no row. A block for each. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_clear)(const int64_t *used, T *y, GroupedDims d) {
  int64_t row = blockIdx.x;
  if (row % d.places < used[row / d.places]) return;
  for (int64_t i = threadIdx.x; i < d.out; i += LIBRARY_THREADS) put(&y[row * d.out + i], (N)0);
}

/* Which expert has this tile. */
DTM_DEVICE int64_t expert_of(const int64_t *tiles, int64_t experts, int64_t tile) {
  int64_t low = 0, high = experts; /* tiles[low] <= tile < tiles[high] */
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (tiles[middle] <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

#endif
