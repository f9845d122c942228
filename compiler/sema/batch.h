/* Inside the way from the code of one rank to that of all: stacks (stack_ops.c), and what every
 * operator becomes on them (batch.c, batch_table.c). See region.h.
 *
 * ValueIds are of the outer graph; 0 stands for what was reported already, and is given on.
 */
#ifndef DTM_SEMA_BATCH_H
#define DTM_SEMA_BATCH_H

#include "sema/region.h"

/* --- stacks (stack_ops.c) ----------------------------------------------------------------------
 */

/* Its first result, behind which any others stand. */
ValueId stack_op(Sema *s, Op op, const ValueId *x, uint32_t n, const Attr *attrs, uint32_t nattrs,
                 Span span);
TensorType stack_type(const Sema *s, ValueId x);
/* All operands get the leading dims that any of them has. */
void stack_spread_all(Sema *s, const Region *r, ValueId *x, uint32_t n, Span span);
/* A scalar that stands in the graph as itself becomes a stack; what is made of constants alone is
 * on no mesh yet, so it is multiplied into one. */
ValueId stack_of(Sema *s, const Region *r, ValueId x, Span span);
/* Dims of extent 1 behind the leading dims, up to `rank` dims of a block. */
ValueId stack_align(Sema *s, const Region *r, ValueId x, uint32_t rank, Span span);
/* May blocks differ between ranks? */
bool stack_varies(const Sema *s, const Region *r, ValueId x);
/* A stack that is the same everywhere, as the one block. */
ValueId stack_block(Sema *s, const Region *r, ValueId x, Span span);

/* --- operators (batch.c, batch_table.c) --------------------------------------------------------
 */

typedef enum How {
  HOW_NONE = 0, /* no per-rank meaning here */
  HOW_SAME,     /* dims are counted from the end or there are none */
  HOW_DIM,      /* the attribute dim moves */
  HOW_DIMS,     /* the attribute dims moves */
  HOW_ALIGNED,  /* dim moves, and all operands have one shape but for dim */
  HOW_SHAPE,    /* the attribute shape gets the leading dims */
  HOW_PERMUTE,
  HOW_REDUCE,
  HOW_CONTRACT,
  HOW_NORM,
  HOW_LOOKUP, /* operand 1 (embedding: the table) or the index is the same on every rank */
  HOW_LOSS,
  HOW_MADE /* no operand */
} How;

How batch_how(Op op);

/* One node on its way out. */
typedef struct Move {
  Sema *s;
  const Region *r;
  Node n;
  ValueId x[INFER_MAX_OPERANDS]; /* stacks of the operands */
  uint32_t nattrs;
  Attr attrs[ATTR_COUNT];
} Move;

/* The stack of its first result, behind which those of the others stand. */
ValueId batch_move(Move *m);

#endif
