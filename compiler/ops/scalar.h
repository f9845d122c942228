/* The scalar language of ops.def: what a pointwise operator computes for one element.
 *
 * Grammar, lowest precedence first; comparisons do not chain:
 *   expr    = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
 *   sum     = product {("+" | "-") product}
 *   product = unary {("*" | "/") unary}
 *   unary   = "-" unary | primary
 *   primary = number | "a" | "b" | "c" | "g" | "y" | NAME "(" expr {"," expr} ")" | "(" expr ")"
 * NAME is the name of a pointwise row; operators stand for the rows neg, add, sub, mul, div, lt,
 * le, gt, ge, eq, ne. `cast(x)` converts to the element type of the operand whose cotangent it is.
 */
#ifndef DTM_OPS_SCALAR_H
#define DTM_OPS_SCALAR_H

#include "ops/ops.h"

typedef enum ScalarKind { SCALAR_NONE = 0, SCALAR_CONST, SCALAR_ARG, SCALAR_CALL } ScalarKind;

/* What a SCALAR_ARG stands for: operands, then (in gradients) the cotangent and the result. */
typedef enum ScalarArg {
  SCALAR_A = 0,
  SCALAR_B,
  SCALAR_C,
  SCALAR_G,
  SCALAR_Y,
  SCALAR_ARG_COUNT
} ScalarArg;

typedef struct Scalar Scalar;
struct Scalar {
  ScalarKind kind;
  double value;         /* CONST */
  ScalarArg which;      /* ARG */
  Op op;                /* CALL: a pointwise operator */
  uint32_t nargs;       /* CALL */
  const Scalar *arg[3]; /* CALL */
};

/* Parses one expression. On a fault returns NULL and says why in *error (text in `arena`). */
const Scalar *scalar_parse(Arena *arena, const char *text, const char **error);

/* The meaning of a pointwise operator over a, b, c; NULL for a primitive of the language. */
const Scalar *scalar_of(Arena *arena, Op op);

/* The cotangents of a pointwise operator over a, b, c, g, y. Entry i is NULL where no gradient
 * flows to operand i (written "0" or left empty). False when the row has no gradient at all. */
bool scalar_gradients(Arena *arena, Op op, const Scalar *grads[3]);

#endif
