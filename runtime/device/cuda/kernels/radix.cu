/* A stable radix sort of lines of keys, eight bits at a time, and what numbers the results: the
 * engine of sort, topk, scatter_add and embedding_backward.
 *
 * KEY: uint32_t or uint64_t. A line has n keys, a pass moves (key, number) of all lines to their
 * places by the digit at `shift`: radix_count, radix_scan, radix_move. In the first pass number i
 * is i
 * (`numbers` is NULL). Tiles are of fixed size and the ranks within them come of ballots, so that
 * equal keys keep their order whatever runs first.
 */
#include "element.cuh"

enum {
  THREADS = LIBRARY_THREADS,
  WARPS = THREADS / 32,
  DIGITS = RADIX_DIGITS,
  TILE = RADIX_TILE,
  ROUNDS = TILE / THREADS,
  EACH = 8 /* counts of a thread, in the scan */
};

/* How many keys of each tile have each digit: counts[line][digit][tile]. A block for each tile of
 * each line. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(radix_count)(const KEY *keys, uint32_t *counts, int64_t n, uint32_t tiles,
                           int32_t shift) {
  __shared__ uint32_t count[DIGITS];
  uint32_t t = threadIdx.x;
  int64_t line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  count[t] = 0;
  __syncthreads();
  keys += line * n;
  for (uint32_t r = 0; r < ROUNDS; r++) {
    int64_t i = tile * TILE + r * THREADS + t;
    if (i < n) atomicAdd(&count[(uint32_t)(keys[i] >> shift) & (DIGITS - 1)], 1u);
  }
  __syncthreads();
  counts[(line * DIGITS + t) * tiles + tile] = count[t];
}

/* Of all threads before this one, and of all. */
DTM_DEVICE uint32_t block_scan(uint32_t value, uint32_t *of_warp, uint32_t *all) {
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value;
  for (uint32_t apart = 1; apart < 32; apart *= 2) {
    uint32_t other = __shfl_up_sync(0xffffffffu, sum, apart);
    if (lane >= apart) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  uint32_t before = 0, total = 0;
  for (uint32_t w = 0; w < WARPS; w++) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  __syncthreads();
  *all = total;
  return before + sum - value;
}

/* counts become the places of the first key of each digit of each tile. A block for each line. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(radix_scan)(uint32_t *counts, int64_t tiles) {
  __shared__ uint32_t of_warp[WARPS];
  uint32_t *line = counts + (int64_t)blockIdx.x * DIGITS * tiles;
  int64_t n = DIGITS * tiles;
  uint32_t before = 0, all;
  for (int64_t from = 0; from < n; from += THREADS * EACH) {
    int64_t first = from + threadIdx.x * EACH;
    uint32_t value[EACH], sum = 0;
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
      value[e] = sum;
      if (first + e < n) sum += line[first + e];
    }
    uint32_t place = before + block_scan(sum, of_warp, &all);
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++)
      if (first + e < n) line[first + e] = place + value[e];
    before += all;
  }
}

/* Lanes of the warp whose digit is this one's, among those that have a key. */
DTM_DEVICE uint32_t same_digit(uint32_t digit, bool valid) {
  uint32_t peers = __ballot_sync(0xffffffffu, valid);
  for (uint32_t b = 0; b < 8; b++) {
    uint32_t ones = __ballot_sync(0xffffffffu, digit >> b & 1);
    peers &= digit >> b & 1 ? ones : ~ones;
  }
  return peers;
}

/* A block for each tile of each line; a warp has consecutive keys, 32 in each round. */
extern "C" __global__ void __launch_bounds__(THREADS)
    DTM_ENTRY(radix_move)(const KEY *keys, const uint32_t *numbers, KEY *to_keys,
                          uint32_t *to_numbers, const uint32_t *places, int64_t n, uint32_t tiles,
                          int32_t shift) {
  __shared__ uint32_t count[WARPS][DIGITS];
  uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
  for (uint32_t w = 0; w < WARPS; w++) count[w][t] = 0;
  __syncthreads();
  int64_t line = blockIdx.x / tiles, tile = blockIdx.x % tiles, start = line * n;
  int64_t first = tile * TILE + warp * (TILE / WARPS) + lane;
  KEY key[ROUNDS];
  uint32_t rank[ROUNDS];
#pragma unroll
  for (uint32_t r = 0; r < ROUNDS; r++) {
    int64_t i = first + r * 32;
    bool valid = i < n;
    key[r] = valid ? keys[start + i] : 0;
    uint32_t digit = (uint32_t)(key[r] >> shift) & (DIGITS - 1), peers = same_digit(digit, valid);
    uint32_t lower = peers & ((1u << lane) - 1), before = valid ? count[warp][digit] : 0;
    rank[r] = before + __popc(lower);
    __syncwarp();
    if (valid && lower == 0) count[warp][digit] = before + __popc(peers);
    __syncwarp();
  }
  __syncthreads();
  uint32_t at = places[(line * DIGITS + t) * tiles + tile];
  for (uint32_t w = 0; w < WARPS; w++) {
    uint32_t mine = count[w][t];
    count[w][t] = at;
    at += mine;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t r = 0; r < ROUNDS; r++) {
    int64_t i = first + r * 32;
    if (i >= n) continue;
    int64_t to = start + count[warp][(uint32_t)(key[r] >> shift) & (DIGITS - 1)] + rank[r];
    to_keys[to] = key[r];
    to_numbers[to] = numbers ? numbers[start + i] : (uint32_t)i;
  }
}
