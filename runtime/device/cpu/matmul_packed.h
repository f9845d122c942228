/* Matrix products of f32, bf16 and f16 in packed panels: the way of Goto and of BLIS.
 *
 * A block of the left operand's rows and a strip of the right operand's columns are copied as f32
 * into panels that are read in order; a tile of sums stays in registers. Narrow floats are widened
 * while they are packed and rounded once when stored, so they take hardly longer than f32.
 *
 * Every element is a chain of fused sums over k in ascending order, begun anew every PACKED_DEPTH
 * of k: how a product is cut into tasks, by extents or threads, changes no bit.
 */
#ifndef DTM_RT_MATMUL_PACKED_H
#define DTM_RT_MATMUL_PACKED_H

#include <stdbool.h>

#include "device/cpu/matmul.h"

enum { PACKED_DEPTH = 384, PACKED_HEIGHT = 264 }; /* of a block of the left operand, at most */

/* What happens to a strip of tiles: [rows, columns] sums of one block of k. */
typedef struct PackedStrip {
  int64_t rows, columns, depth;
  const float *a, *b;  /* panels of the block, the panel of the strip */
  const float *before; /* sums of the blocks before, or NULL */
  int64_t before_row;  /* elements from row to row */
  void *out;           /* sum + before, then bias, relu, addend */
  int64_t out_row;
  uint32_t dtype;                              /* of out, bias, addend */
  const void *row_bias, *column_bias, *addend; /* of the first element; NULL = there is none */
  bool relu;
  const char *next; /* the strip after this one as it lies: lines to fetch meanwhile */
  int64_t next_lines, next_line, next_row; /* lines a row has, bytes from line to line, to row */
  int64_t next_rows;
} PackedStrip;

/* The loops of an instruction set. */
typedef struct PackedLoops {
  int64_t rows, columns; /* of a tile */
  /* Elements [i, k] of `from`, i < count, k < depth, into panels [ceil(count / rows)][depth][rows],
   * `apart` elements from each other, the last filled up with zeros. Up to 16 elements behind a
   * panel are written. */
  void (*pack_rows)(uint32_t dtype, const void *from, int64_t count, int64_t depth, int64_t i_step,
                    int64_t k_step, float *to, int64_t apart);
  /* At most `columns` columns into one panel [depth][columns]. */
  void (*pack_columns)(uint32_t dtype, const void *from, int64_t count, int64_t depth,
                       int64_t j_step, int64_t k_step, float *to);
  void (*multiply)(const PackedStrip *s, int64_t apart);
} PackedLoops;

/* Those of an instruction set; the higher, the faster. NULL when this machine lacks it; set 0 every
 * machine has. */
enum { PACKED_BASE, PACKED_AVX2, PACKED_AVX512, PACKED_SETS };
const PackedLoops *dtm_rt_packed_loops(int set);

/* Whether these loops can compute it: f32, bf16, f16, no activation or relu, an output whose rows
 * or columns are consecutive elements; nothing is empty. */
bool dtm_rt_packed_fits(const MatmulShape *s);
/* Bytes of scratch memory for each of `threads` threads. */
size_t dtm_rt_packed_scratch(const PackedLoops *loops, const MatmulShape *s, int threads);
void dtm_rt_packed_run(const PackedLoops *loops, const MatmulShape *s, const void *a, const void *b,
                       const void *bias, const void *addend, void *out, void *scratch, int threads);

#endif
