/* Inside fuse/: what the two halves of evaluation share; eval_move.c has what changes indices. */
#ifndef DTM_FUSE_EVAL_H
#define DTM_FUSE_EVAL_H

#include <string.h>

#include "fuse/lower.h"

/* One value being computed at one index. */
typedef struct Eval {
  Lower *l;
  const Node *n;
  const TensorType *type; /* of the result */
  const Ix *ix;           /* of the result */
  KRef pred;
} Eval;

static inline const TensorType *operand_type(const Eval *e, uint32_t i) {
  return value_type(e->l->f->g, e->n->operands[i]);
}

static inline SymId mul(Fuser *f, SymId a, SymId b) {
  return sym_binary(f->arena, f->p, RT_SYM_MUL, a, b);
}

static inline SymId add(Fuser *f, SymId a, SymId b) {
  return sym_binary(f->arena, f->p, RT_SYM_ADD, a, b);
}

static inline SymId constant(Fuser *f, int64_t v) {
  return sym_const(f->arena, f->p, v);
}

static inline KRef point2(Lower *l, Op op, KRef a, KRef b) {
  return kb_point(&l->b, op, a, b, 0);
}

static inline KRef sum(Lower *l, KRef a, KRef b) {
  return !a ? b : !b ? a : point2(l, OP_ADD, a, b);
}

static inline KRef both(Lower *l, KRef a, KRef b) {
  return !a ? b : !b ? a : point2(l, OP_LOGICAL_AND, a, b);
}

static const Ix unit = {.dim = DIM_UNIT, .scale = SYM_ZERO, .offset = SYM_ZERO};

static inline int64_t wrap_dim(int64_t d, uint32_t rank) {
  return d < 0 ? d + rank : d;
}

/* A copy of the result's index, which the operator moves; returns the dim it names. */
static inline uint32_t copy_index(const Eval *e, Ix ix[DTM_MAX_DIMS]) {
  uint32_t r = e->type->rank;
  memcpy(ix, e->ix, sizeof(Ix) * r);
  return (uint32_t)wrap_dim(node_int(e->n, ATTR_DIM, 0), r ? r : 1);
}

/* --- eval.c ---- */
KRef fuse_scaled(Lower *l, KRef v, SymId by);
/* An index as an i64 value, moved by `shift`; in the whole tensor. */
KRef fuse_index_value(Lower *l, const Ix *ix, SymId shift);
KRef fuse_global_index(Lower *l, const TensorType *t, uint32_t d, const Ix *ix);
KRef fuse_in_range(Lower *l, KRef index, SymId extent); /* 0 <= index < extent */
KRef fuse_operand_at(const Eval *e, uint32_t i, const Ix *ix, KRef pred);
/* Operand i where `inside`, else `otherwise`; it is read under the predicate. */
KRef fuse_guarded(const Eval *e, uint32_t i, const Ix *ix, KRef inside, double otherwise);

/* --- eval_move.c ---- */
KRef fuse_eval_pad(const Eval *e);
KRef fuse_eval_unslice(const Eval *e);
KRef fuse_eval_roll(const Eval *e);
KRef fuse_eval_concat(const Eval *e);
KRef fuse_eval_triangle(const Eval *e);
KRef fuse_eval_flip(const Eval *e);
KRef fuse_eval_slice(const Eval *e);

#endif
