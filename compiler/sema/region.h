/* Per-rank code: local regions and unchecked. See elab.h, escape.h.
 *
 * Inside a region a tensor is the block of one rank, and code is elaborated into a graph of its own
 * with the shapes of blocks, all Replicate. What that graph says for one rank is then written into
 * the outer graph for all of them at once: a value becomes the *stack* of the blocks of all ranks,
 * with one leading dim for each mesh dim of size > 1. Where ranks may differ along a mesh dim, its
 * leading dim has one entry per rank and is sharded on it; else it has extent 1. So per-rank code
 * is ordinary code over one more dim per mesh dim: no placement rule is waived, gradients follow
 * (what every rank has and each uses differently is broadcast along a sharded dim, whose gradient
 * is a pending sum, reduced once), and the meaning can be computed on whole tensors.
 *
 * An inner value is transcribed before a collective asks for it and at the end of the region.
 */
#ifndef DTM_SEMA_REGION_H
#define DTM_SEMA_REGION_H

#include "sema/escape.h"

typedef struct Region {
  const char *what; /* "local", "unchecked" */
  const Mesh *mesh;
  uint32_t nlead;
  uint8_t axis[DTM_MAX_AXES]; /* mesh dim of each leading dim */
  bool captures;              /* tensors from outside enter when they are used */
  Graph *inner;
  GraphCache cache;   /* of inner */
  State outside;      /* where the region stands */
  NodeId done;        /* nodes of inner before this one are transcribed */
  VEC(ValueId) stack; /* inner value -> outer stack; 0 = none */
  IdMap leaves;       /* inner value that entered -> its outer stack */
  IdMap entered;      /* outer value -> inner */
} Region;

/* --- transcription and stacks (transcribe.c, stack_ops.c) --------------------------------------
 * Outer values, elaborated outside; 0 after a report. */

/* Runs what follows in the outer graph; give the result to region_inside. */
State region_outside(Sema *s, const Region *r);
void region_inside(Sema *s, const State *inside);

/* A fresh inner value for an outer stack. */
ValueId region_leaf(Sema *s, Region *r, ValueId stack, Span span);
/* The outer stack of an inner value, all leading dims there. */
ValueId region_stack(Sema *s, Region *r, ValueId inner, Span span);
/* Leading dim k gets one entry per rank: x times ones, which have one. */
ValueId stack_spread(Sema *s, const Region *r, ValueId x, uint32_t k, Span span);
ValueId stack_reshape(Sema *s, ValueId x, const int64_t *shape, uint32_t rank, Span span);
ValueId stack_permute(Sema *s, ValueId x, const int64_t *dims, uint32_t rank, Span span);
ValueId stack_reduce(Sema *s, Op op, ValueId x, const int64_t *dims, uint32_t n, bool keep,
                     Span span);
/* The leading dim of a mesh dim; -1 where it has size 1. */
int region_lead(const Region *r, uint32_t axis);

/* --- between blocks and stacks (stack.c) -------------------------------------------------------
 */

/* The blocks of x as a stack with leading dims for the mesh dims of `r`; *block is the type of one.
 */
ValueId stack_enter(Sema *s, const Region *r, ValueId x, Span span, TensorType *block);
/* What is done about a block that the type says to be equal on all ranks of a mesh dim, and that
 * may differ. */
typedef enum Claim { CLAIM_REFUSED = 0, CLAIM_TRUSTED, CLAIM_CHECKED } Claim;
/* A stack as one value of type `to`. *claimed: some mesh dim was claimed. */
ValueId stack_leave(Sema *s, const Region *r, ValueId x, const TensorType *to, Claim claim,
                    Span span, bool *claimed);
/* A region without code: what to_local and from_local work with. Every mesh dim has a lead. */
Region region_of_mesh(const Mesh *mesh, const char *what);

Val eval_local(Sema *s, Env *env, const Expr *e);
Val eval_unchecked(Sema *s, Env *env, const Expr *e);

#endif
