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

enum { AHEAD = 8 }; /* numbers that are on their way at once */

/* Counts that do not fit into their block are told, and cut. start[b][e]: its first row;
 * count[b][e] how many; used[b][r]: places that hold a row. One thread for each entry of the batch.
 */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_count)(const COUNT *counts, int64_t *start, int64_t *count, int64_t *used,
                             GroupedDims d, Fault *fault, uint32_t action) {
  int64_t b = (int64_t)blockIdx.x * LIBRARY_THREADS + threadIdx.x;
  if (b >= d.batch) return;
  counts += b * d.experts;
  used += b * d.blocks;
  for (int64_t r = 0; r < d.blocks; r++) used[r] = 0;
  int64_t last = -1, before = 0; /* the block of the expert before, and its rows so far */
  for (int64_t from = 0; from < d.experts; from += AHEAD) {
    int64_t n[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) n[a] = from + a < d.experts ? get(counts[from + a]) : 0;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      int64_t e = from + a, block = (d.first_expert + e) / d.each - d.first_block;
      if (e >= d.experts) break;
      bool here = block >= 0 && block < d.blocks;
      if (block != last) before = 0;
      last = block;
      int64_t room = here ? d.places - before : 0;
      if (n[a] < 0 || n[a] > room) {
        tell(fault, action, n[a], room + 1);
        n[a] = n[a] < 0 ? 0 : room;
      }
      start[b * d.experts + e] = n[a] ? (b * d.blocks + block) * d.places + before : 0;
      count[b * d.experts + e] = n[a];
      before += n[a];
      if (here) used[block] = before;
    }
  }
}

/* The rows of one expert, entry after entry of the batch: how many come before; all of them. */
DTM_DEVICE int64_t number_rows(int64_t *count, const GroupedDims &d) {
  int64_t before = 0;
  for (int64_t from = 0; from < d.batch; from += AHEAD) {
    int64_t n[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) n[a] = from + a < d.batch ? count[(from + a) * d.experts] : 0;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (from + a < d.batch) count[(from + a) * d.experts] = before;
      before += n[a];
    }
  }
  return before;
}

/* first[e]: rows of the experts before, tiles[e]: their tiles, both with a last one for all;
 * count[b][e] becomes the number in the list of the first row of (b, e). One block: threads take
 * experts, then one adds up. */
extern "C" __global__ void __launch_bounds__(LIBRARY_THREADS)
    DTM_ENTRY(grouped_plan)(int64_t *count, int64_t *first, int64_t *tiles, GroupedDims d) {
  __shared__ int64_t total[LIBRARY_THREADS];
  int64_t rows = 0, all = 0;
  for (int64_t from = 0; from < d.experts; from += LIBRARY_THREADS) {
    int64_t e = from + threadIdx.x;
    if (e < d.experts) total[threadIdx.x] = number_rows(count + e, d);
    __syncthreads();
    for (int64_t i = 0; threadIdx.x == 0 && i < LIBRARY_THREADS && from + i < d.experts; i++) {
      first[from + i] = rows;
      tiles[from + i] = all;
      rows += total[i];
      all += dtm_ceil_div(total[i], d.tile);
    }
    __syncthreads();
  }
  if (threadIdx.x) return;
  first[d.experts] = rows;
  tiles[d.experts] = all;
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
