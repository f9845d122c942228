/* Inside autodiff/: the engine, the placement of cotangents, and one gradient per operator.
 *
 * Cotangents are taken with respect to the *global* value, so the placement of a value's cotangent
 * follows from the value's: S(d) -> S(d), Partial -> R, R -> R or P(sum). An addend of a P(avg)
 * value never has a cotangent of its own, so no 1/n appears anywhere.
 *
 * A cotangent may be *broadcast*: of the value's rank, with extent 1 where it is constant along a
 * dim (and then R on the axes that cut the dim). Pointwise gradients use it as it is.
 */
#ifndef DTM_AUTODIFF_GRAD_H
#define DTM_AUTODIFF_GRAD_H

#include "autodiff/autodiff.h"

/* Contributions to one value's cotangent, each with the forward node whose gradient made it. */
typedef struct CotPart {
  ValueId value;
  NodeId from;
} CotPart;
typedef VEC(CotPart) CotList;

typedef struct CotPlan CotPlan;

typedef struct Grad {
  Graph *g;
  Arena *scratch; /* freed when the backward pass is built */
  PlanCache *plans;
  DiagSink *sink;
  DiagSink inner; /* of infer_add: a fault here is one of ours, told in our words */
  int64_t accumulate;
  NodeId end; /* nodes and values of the forward pass are below */
  ValueId end_value;
  bool *active;  /* per forward value: lies between a parameter and the loss */
  CotList *cots; /* per forward value */
  uint8_t
      *born; /* per forward value: axes on which a cotangent is given that is Partial; or NULL */
  CotPlan *plan;
  NodeId node; /* forward node that is being differentiated: span and scope of what is added */
  bool failed; /* a fault at this node was reported */
} Grad;

/* Cotangent of operand `i` of forward node `n`, given that of its result; 0 = none flows. The
 * result has the operand's shape (or is broadcast); the engine makes its placement conform. */
typedef ValueId Vjp(Grad *d, Node n, uint32_t i, ValueId g);

typedef struct VjpRow {
  Vjp *run;          /* NULL: there is no gradient, because ... */
  const char *why;   /* ... of this; NULL = no value of it is ever differentiated */
  bool broadcast_ok; /* takes a broadcast cotangent as it is */
} VjpRow;

const VjpRow *vjp_row(Op op);

/* --- the engine (backward.c) -------------------------------------------------------------------
 */

/* Fills d->active: the values that depend on `wrt` and that the outputs (the loss) depend on. */
void grad_mark_active(Grad *d, const ValueId *outputs, uint32_t noutputs, const ValueId *wrt,
                      uint32_t nwrt);
/* The gradients of node `id` to its active operands, given the cotangent of its result `y`. */
void grad_differentiate(Grad *d, NodeId id, ValueId y, ValueId g);

/* --- building (build.c) ------------------------------------------------------------------------
 */

/* Appends a node through inference; the result is poisoned (and the fault reported) when there is
 * no row. */
ValueId grad_add(Grad *d, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                 uint32_t nattrs);
ValueId grad_unary(Grad *d, Op op, ValueId a);
ValueId grad_binary(Grad *d, Op op, ValueId a, ValueId b);
/* A scalar of the element type of `like`, on no mesh in particular. */
ValueId grad_const(Grad *d, ValueId like, double value);
/* a * value; a itself for 1. */
ValueId grad_scale(Grad *d, ValueId a, double value);
ValueId grad_cast(Grad *d, ValueId a, DType dtype);
ValueId grad_reshape(Grad *d, ValueId a, const int64_t *shape, uint32_t rank);
/* With dims of extent 1 at the places of `set`, `rank` dims in all. */
ValueId grad_insert_dims(Grad *d, ValueId a, uint32_t set, uint32_t rank);
/* Without the dims of `set`, which have extent 1. */
ValueId grad_drop_dims(Grad *d, ValueId a, uint32_t set);
ValueId grad_permute(Grad *d, ValueId a, const int64_t *dims, uint32_t rank);
ValueId grad_slice(Grad *d, ValueId a, int64_t dim, int64_t start, int64_t stop, int64_t step);
/* Sum over a set of dims (bit set), which stay with extent 1 or go. */
ValueId grad_sum(Grad *d, ValueId a, uint32_t dims, bool keepdim);
/* Every element `value`, of this type. */
ValueId grad_full(Grad *d, const TensorType *type, double value);
/* Another layout of the same value; the value itself when it has it. `like` (or NULL) is a forward
 * redistribute whose options (async, bucket, backward_dtype) hold for this one. */
ValueId grad_redistribute(Grad *d, ValueId a, const TensorType *to, const Node *like);
/* A cotangent that is broadcast, as one of the shape and the shards of `type`. */
ValueId grad_materialise(Grad *d, ValueId g, const TensorType *type);
/* From the shape of a result (broadcast over operands) to that of one operand. `full` is the type
 * of the result: where g has extent 1 and the result more, the sum is a product. */
ValueId grad_unbroadcast(Grad *d, ValueId g, const TensorType *full, const TensorType *operand);
/* Shape of `x` with the reduced dims (bit set) as 1. */
ValueId grad_keep_dims(Grad *d, ValueId g, const TensorType *x, uint32_t dims);
/* DIMS of a reduction as a bit set; none given = all. */
uint32_t reduced_dims(const Node *n, uint32_t rank);
/* DIM with negative values counted from the end. */
uint32_t node_dim(const Node *n, uint32_t rank);
/* Reports at the node that is being differentiated, once. Returns 0. */
ValueId grad_fail(Grad *d, DiagCode code, const char *reason);

static inline const TensorType *grad_type(const Grad *d, ValueId v) {
  return value_type(d->g, v);
}

/* --- placement of cotangents (cut.c) -----------------------------------------------------------
 */

/* Decides, for every active value and every mesh axis on which it is R, whether its cotangent may
 * stay Partial. Fills d->plan. */
void cot_plan(Grad *d, const ValueId *wrt, uint32_t nwrt);
/* The cotangent of this value is to be R on the axis whatever its contributions bring. */
bool cot_wants_replicate(const Grad *d, ValueId v, uint32_t axis);
/* What the gradient of node `n` to operand `i` wants of its cotangent: true = R on this axis. */
bool cot_use_wants_replicate(const Grad *d, const Node *n, uint32_t i, uint32_t axis);

#endif
