/* What both sides of the collectives bench share: the table of cases and how many times each runs.
 */
#ifndef DTM_BENCH_COLLECTIVES_H
#define DTM_BENCH_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, COLLECTIVES, SIZES = 4 };

static const char *const collective_name[COLLECTIVES] = {"all-reduce", "reduce-scatter",
                                                         "all-gather", "all-to-all"};
static const size_t collective_bytes[SIZES] = {64 << 10, 1 << 20, 16 << 20, 256 << 20};
/* Repetitions inside one timing, so that it takes milliseconds. */
static const int collective_repeats[SIZES] = {100, 20, 4, 1};
/* Timings; the least counts. */
static const int collective_timings[SIZES] = {12, 12, 8, 3};

/* What a rank puts at index i of its source. Sums of 16 such values are exact. */
static inline float source_value(int rank, size_t i) {
  return (float)((i * 7 + (size_t)rank * 13) % 61);
}

static inline void fill_source(float *src, size_t count, int rank) {
  for (size_t i = 0; i < count; i++) src[i] = source_value(rank, i);
}

/* Whether rank `rank` of `ranks` has the right result in dst; a sample of a large one. */
static inline bool right_result(int which, size_t bytes, const float *dst, int rank, int ranks) {
  size_t count = bytes / 4, part = count / (size_t)ranks;
  size_t last = which == ALL_REDUCE ? count : which == REDUCE_SCATTER ? part : part * (size_t)ranks;
  for (size_t i = 0; i<last; i += count> 100000 ? 97 : 1) {
    float want = 0;
    size_t mine = part * (size_t)rank;
    if (which == ALL_GATHER)
      want = source_value((int)(i / part), i % part);
    else if (which == ALL_TO_ALL)
      want = source_value((int)(i / part), mine + i % part);
    else
      for (int r = 0; r < ranks; r++)
        want += source_value(r, which == REDUCE_SCATTER ? mine + i : i);
    if (dst[i] != want) return false;
  }
  return true;
}

#endif
