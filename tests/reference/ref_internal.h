/* Inside the reference interpreter: one evaluation, and one function per rule class. */
#ifndef DTM_TESTS_REF_INTERNAL_H
#define DTM_TESTS_REF_INTERNAL_H

#include "reference/reference.h"

typedef struct RefEval {
  RefContext *ctx;
  Arena *arena;
  const RefNode *node;
  const RefTensor *in;
  RefTensor *out; /* allocated with the shapes of the results' blocks, zeros */
} RefEval;

typedef bool RefFn(RefEval *e);
RefFn ref_pointwise, ref_contraction, ref_reduction, ref_whole_dim, ref_movement, ref_indexing,
    ref_fused, ref_random, ref_factory, ref_attention, ref_attention_backward;
/* The log of the sums of a call of attention_backward, for the operand that holds them (0 where a
 * query sees no key). */
void ref_attention_sums(RefEval *e, RefTensor *lse);

/* x [A, R, P, *] with zeros for all but the first used[A, R] of the P rows. */
RefTensor ref_used_rows(Arena *arena, const RefTensor *x, const RefTensor *used);

const Attr *ref_attr(const RefEval *e, AttrKey key);
int64_t ref_int(const RefEval *e, AttrKey key, int64_t otherwise);
double ref_float(const RefEval *e, AttrKey key, double otherwise);
uint32_t ref_dim(const RefEval *e, int64_t otherwise); /* attribute DIM, from 0 */
uint32_t ref_dims(const RefEval *e);                   /* attribute DIMS as bits; none = all */

/* Steps `index` through a shape in row-major order; false after the last. Start at zeros and only
 * when the shape has elements. */
bool ref_next(uint32_t rank, const int64_t *shape, int64_t *index);
int64_t ref_offset(const RefTensor *t, const int64_t *index);
/* Row-major position in the global tensor of an index into a block. */
/* Where in the natural order of a dim the element stands that has this global place. */
int64_t ref_place(const TensorType *type, uint32_t dim, int64_t place);
/* Of dims in their natural order. */
int64_t ref_global_index(const TensorType *type, const Block *block, const int64_t *index);

/* A tensor seen as [outer, extent, inner] around one dim. */
typedef struct RefLanes {
  int64_t outer, extent, inner;
} RefLanes;
RefLanes ref_lanes(const RefTensor *t, uint32_t dim);

double ref_scalar(RefContext *ctx, const Scalar *s, DType dtype, const double *args);
double ref_primitive(Op op, DType dtype, const double *x);

#endif
