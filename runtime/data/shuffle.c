/* The order of an epoch: see shuffle.h. */
#include "data/shuffle.h"

enum { ROUNDS = 6 };

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

int64_t dtm_rt_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t at) {
  if (n <= 1) return at;
  unsigned half = 1; /* bits of one side */
  while (half < 31 && ((uint64_t)n - 1) >> 2 * half) half++;
  uint64_t mask = (1ull << half) - 1, key = mix(seed ^ mix((uint64_t)epoch)), x = (uint64_t)at;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
      uint64_t next = left ^ (mix(key + (round << 56) + right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= (uint64_t)n);
  return (int64_t)x;
}
