/* Generated training programs, for figures that must not come from a few programs written by hand.
 */
#ifndef DTM_BENCH_PROGRAMS_H
#define DTM_BENCH_PROGRAMS_H

#include "base/arena.h"

typedef struct GeneratedProgram {
  const char *family; /* "mlp", "residual", ... */
  const char *text;   /* .dtm source */
  const char *about;  /* what was drawn: "9 layers, mesh dp=3,tp=2" */
} GeneratedProgram;

/* The `number`-th program of a seed: families take turns, everything else (depth, widths, batch,
 * mesh, activations, norms, dropout, recomputation, optimizer, clipping, accumulation, precision)
 * is drawn. Equal arguments give equal programs. */
GeneratedProgram generate_program(Arena *arena, uint64_t seed, uint32_t number);

#endif
