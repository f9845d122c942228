/* Head-tail order: how a sequence is laid out so that the ranks of a causal ring have equal work.
 *
 * For c ranks a sequence of extent n, a multiple of 2c, is cut into 2c pieces; rank r gets pieces r
 * and 2c - 1 - r, an early one and a late one, whose queries together see as many keys on every
 * rank. In this order the blocks of the ranks stand one after the other, so that the chunk rule
 * gives them out: 0..7 for 2 ranks is 0 1 6 7, 2 3 4 5. Includes nothing of the others.
 */
#ifndef DTM_RT_BALANCE_H
#define DTM_RT_BALANCE_H

#include <stdint.h>

/* The natural place of what stands at `place`. */
static inline int64_t abi_balanced_from(int64_t place, int64_t extent, int64_t ranks) {
  int64_t piece = extent / (2 * ranks), at = place / piece, off = place % piece;
  return (at % 2 == 0 ? at / 2 : 2 * ranks - 1 - at / 2) * piece + off;
}

/* Where what is naturally at `place` stands. */
static inline int64_t abi_balanced_to(int64_t place, int64_t extent, int64_t ranks) {
  int64_t piece = extent / (2 * ranks), at = place / piece, off = place % piece;
  return (at < ranks ? 2 * at : 2 * (2 * ranks - 1 - at) + 1) * piece + off;
}

#endif
