/* Example nodes of every operator, written with letters for extents: what `explain op` prints rows
 * of, and what the proof test runs over every placement. One table, so that an operator without an
 * example is noticed by both.
 */
#ifndef DTM_INFER_EXAMPLE_H
#define DTM_INFER_EXAMPLE_H

#include "infer/infer.h"

enum { EXAMPLE_LETTERS = 26, EXAMPLE_MAX_OPERANDS = 8, EXAMPLE_MAX_ATTRS = 8 };

typedef struct ExampleNode {
  Op op;
  uint32_t noperands, nattrs;
  Operand operands[EXAMPLE_MAX_OPERANDS]; /* Replicate; a constant has the value 2 */
  int64_t below[EXAMPLE_MAX_OPERANDS];    /* ids: every element is in [0, below); 0 = free */
  Attr attrs[EXAMPLE_MAX_ATTRS];
  TensorType *stated; /* the type the attribute TYPE states, Replicate; or NULL */
  uint32_t letters;   /* bit set of the letters in use */
} ExampleNode;

uint32_t example_count(Op op);
/* Builds example `variant` with these extents of the letters a..z on `mesh`. */
void example_build(Arena *arena, Op op, uint32_t variant, const int64_t extent[EXAMPLE_LETTERS],
                   const Mesh *mesh, ExampleNode *out);

#endif
