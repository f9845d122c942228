/* What both sides of the collectives bench share: the table of cases and how many times each runs.
 */
#ifndef DTM_BENCH_COLLECTIVES_H
#define DTM_BENCH_COLLECTIVES_H

#include <stddef.h>
#include <time.h>

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, COLLECTIVES, SIZES = 4 };

static const char *const collective_name[COLLECTIVES] = {"all-reduce", "reduce-scatter",
                                                         "all-gather", "all-to-all"};
static const size_t collective_bytes[SIZES] = {64 << 10, 1 << 20, 16 << 20, 256 << 20};
/* Repetitions inside one timing, so that it takes milliseconds. */
static const int collective_repeats[SIZES] = {100, 20, 4, 1};
/* Timings; the least counts. */
static const int collective_timings[SIZES] = {12, 12, 8, 3};

static inline double bench_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
