/* The random numbers of dtm: Philox4x32-10, one draw per (seed, instance, step, global index).
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11). Key = (seed folded
 * to 32 bits, operator instance), counter = (index low, index high, step low, step high), so a
 * value depends on the element's place in the *global* tensor only: the same on every mesh, equal
 * in replicated dims, different across shards. Plain C with fixed-width integers and no state,
 * shared by the reference interpreter, by kernel lowering (which emits the same operations) and by
 * the runtime.
 *
 * Uniform draws are 24-bit fractions held exactly by f32, so a program widened to f64 sees the same
 * values.
 */
#ifndef DTM_RT_ABI_PHILOX_H
#define DTM_RT_ABI_PHILOX_H

#include <math.h>
#include <stdint.h>

enum { PHILOX_ROUNDS = 10 };
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

typedef struct Philox {
  uint32_t v[4];
} Philox;

static inline Philox philox4x32(uint32_t key0, uint32_t key1, Philox c) {
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    uint64_t p0 = (uint64_t)PHILOX_M0 * c.v[0], p1 = (uint64_t)PHILOX_M1 * c.v[2];
    c = (Philox){{(uint32_t)(p1 >> 32) ^ c.v[1] ^ key0, (uint32_t)p1,
                  (uint32_t)(p0 >> 32) ^ c.v[3] ^ key1, (uint32_t)p0}};
    key0 += PHILOX_W0;
    key1 += PHILOX_W1;
  }
  return c;
}

/* The first word of the key; the second is the low half of `instance`. */
static inline uint32_t philox_key(uint64_t seed, uint64_t instance) {
  return (uint32_t)seed ^ (uint32_t)(seed >> 32) ^ (uint32_t)(instance >> 32);
}

/* The draw of one element: `index` is its row-major position in the global tensor. */
static inline Philox philox_draw(uint64_t seed, uint64_t instance, uint64_t step, uint64_t index) {
  Philox counter = {
      {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)step, (uint32_t)(step >> 32)}};
  return philox4x32(philox_key(seed, instance), (uint32_t)instance, counter);
}

/* Uniform in [0, 1): the top 24 bits of word 0, exact in f32. */
static inline float philox_uniform(uint64_t seed, uint64_t instance, uint64_t step,
                                   uint64_t index) {
  return (float)(philox_draw(seed, instance, step, index).v[0] >> 8) * 0x1p-24f;
}

/* Dropout keeps an element iff the top 24 bits of its word 0 are at least this threshold: the same
 * decision in every precision. */
static inline uint32_t philox_keep_threshold(double p) {
  return (uint32_t)ceil(p * 0x1p24);
}
static inline int philox_keeps(uint64_t seed, uint64_t instance, uint64_t step, uint64_t index,
                               double p) {
  return (philox_draw(seed, instance, step, index).v[0] >> 8) >= philox_keep_threshold(p);
}

/* Standard normal by Box-Muller over words 0 and 1. The radius uses 1 - u in (0, 1], whose log is
 * finite. Computed in f64: each target may round the result to its own type. */
static inline double philox_normal(uint64_t seed, uint64_t instance, uint64_t step,
                                   uint64_t index) {
  Philox d = philox_draw(seed, instance, step, index);
  double u = 1.0 - (double)(d.v[0] >> 8) * 0x1p-24, angle = (double)(d.v[1] >> 8) * 0x1p-24;
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * angle);
}

#endif
