/* Placements for the proofs: every layout of a tensor, and random splits of a value by its type. */
#ifndef DTM_TESTS_PLACEMENTS_H
#define DTM_TESTS_PLACEMENTS_H

#include "reference/reference.h"

/* Every layout that a tensor of this element type and rank can have on its mesh: Replicate, every
 * Shard, every Partial its element type has, all orders of nested shards. Returns the count. */
uint32_t layouts_of(Arena *arena, const TensorType *type, Layout **out);

/* A small deterministic generator (splitmix64), so that a failure repeats. */
uint64_t random_bits(uint64_t *state);
double random_in(uint64_t *state, double low, double high);

/* A random value of a type's shape and element type. `below` > 0: ids in [0, below). Floats are in
 * (-4, 4), with zeros and ties now and then. */
RefTensor random_value(Arena *arena, uint64_t *state, const TensorType *type, int64_t below);

/* Blocks by mesh position that stand for `whole`: Partial as unequal addends of varying sign (or
 * factors, candidates, masks). */
RefTensor *random_split(Arena *arena, uint64_t *state, const TensorType *type,
                        const RefTensor *whole);

/* Equal but for rounding; NaN equals NaN. With `finite_only` elements of `want` that are infinite
 * or NaN are not compared: addends of opposite infinities are nobody's promise. */
bool ref_close(const RefTensor *got, const RefTensor *want, bool finite_only);

#endif
