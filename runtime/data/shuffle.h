/* The order of an epoch: a permutation computed element by element, the same on every rank. */
#ifndef DTM_RT_DATA_SHUFFLE_H
#define DTM_RT_DATA_SHUFFLE_H

#include <stdint.h>

/* Where position `at` (0 <= at < n) of epoch `epoch` goes: a bijection of [0, n) that depends on
 * (seed, epoch, n) alone. A balanced Feistel network over the next even power of two, walked until
 * it falls below n (Black and Rogaway, "Ciphers with arbitrary finite domains"); at most four steps
 * on average. */
int64_t dtm_rt_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t at);

#endif
