/* Random training programs over most of the language, for comparisons of one mesh with another.
 *
 * A program knows the shape and, where it follows from a simple rule, the layout of each of its
 * values; what an operator needs it gets by a redistribute. So nearly every program is legal on
 * every mesh that its axes can form. The few that are not say so with a placement error. */
#ifndef DTM_RANDOM_PROGRAM_H
#define DTM_RANDOM_PROGRAM_H

#include "base/arena.h"

typedef struct RandomOptions {
  /* For finite differences: no random numbers and nothing that a gradient does not flow through,
   * plain descent with this learning rate, all samples in one batch. 0: an ordinary program. */
  double descent;
} RandomOptions;

typedef struct RandomProgram {
  const char *text;    /* .dtm source; reads x.npy, f32[rows, features], and t.npy, i32[rows, 5] */
  const char *axes[5]; /* names of the mesh dims */
  int naxes;
  int batch, features;
  bool narrow; /* computes in bf16 */
} RandomProgram;

enum { RANDOM_IDS = 7 }; /* the ids of t.npy are below */

/* Equal arguments give equal programs; other options change only what they say. */
RandomProgram random_program(Arena *arena, uint64_t seed, uint64_t number, RandomOptions options);

#endif
