/* A change of one operand's layout that may cure a placement error.
 *
 * infer/ proposes candidates when a node has no row; the driver elaborates the program again with
 * one applied (`Overlay`), keeps it when no new error arises, and prices it.
 */
#ifndef DTM_IR_FIX_H
#define DTM_IR_FIX_H

#include "ir/graph.h"

/* `operand` when the value of the expression itself is redistributed: a returned value or an
 * argument whose layout is not the declared one. */
enum { FIX_VALUE = 0x7fffffff };

struct FixCandidate {
  Span node;        /* span of the expression whose node failed */
  uint32_t operand; /* which operand is redistributed before the node, or FIX_VALUE */
  Span text;        /* span of the operand's expression, for the paste-able replacement */
  TensorType from, to;
};

#endif
