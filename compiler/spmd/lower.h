/* Shared by the files of spmd/: the state of one lowering and the node builders. */
#ifndef DTM_SPMD_LOWER_H
#define DTM_SPMD_LOWER_H

#include "infer/infer.h"
#include "ir/rewrite.h"
#include "spmd/spmd.h"

typedef struct Lowering {
  Arena *arena;
  const Graph *in;
  Graph *out;
  GraphMap nodes; /* of `in` to `out` */
  ValueId *map;   /* nodes.value: value of `in` -> value of `out` */
  PlanCache *plans;
  const Mesh *world;   /* where outputs go; NULL = where they are */
  MeshList *meshes;    /* of the program: turned ones are added */
  const char *error;   /* the first thing that went wrong, or NULL */
  const Node *serving; /* node of `in` that is being lowered: new nodes take its place and phase */
} Lowering;

/* Appends a node for `serving` with one result. */
ValueId spmd_emit(Lowering *l, Op op, const ValueId *operands, uint32_t noperands,
                  const Attr *attrs, uint32_t nattrs, const TensorType *type);
ValueId spmd_const(Lowering *l, DType dtype, const Mesh *mesh, double value);
/* Pointwise; the result has type *t (operands broadcast to it), except for its element type where
 * the operator says so (comparisons: bool). */
ValueId spmd_unary(Lowering *l, Op op, const TensorType *t, ValueId a);
ValueId spmd_binary(Lowering *l, Op op, const TensorType *t, ValueId a, ValueId b);
ValueId spmd_where(Lowering *l, const TensorType *t, ValueId c, ValueId a, ValueId b);
/* Same value in another element type; nothing when it has it. */
ValueId spmd_cast(Lowering *l, ValueId v, DType dtype);
/* Local reduction over dims, to exactly this type. */
ValueId spmd_reduce(Lowering *l, Op op, ValueId x, const int64_t *dims, uint32_t ndims, bool keep,
                    const TensorType *type);
/* Reduction that keeps its dims with extent 1; they are not cut. */
ValueId spmd_reduce_keep(Lowering *l, Op op, ValueId x, const int64_t *dims, uint32_t ndims);
static inline const TensorType *spmd_type(const Lowering *l, ValueId v) {
  return value_type(l->out, v);
}
static inline TensorType spmd_with_dtype(TensorType t, DType dtype) {
  t.dtype = dtype;
  return t;
}
/* The element type composites compute in: f32 for the half types, else the same. */
DType spmd_work_dtype(DType dtype);

/* Lowers l->serving to primitives; false when it is none of the composites. */
bool spmd_composite(Lowering *l, ValueId *result);
/* Lowers l->serving to the steps of a ring; false when it is no attention over a ring. */
bool spmd_ring(Lowering *l);
/* Contractions: into a form with contiguous parts. */
ValueId spmd_contraction(Lowering *l);
/* `v` under type `to`, by the planner's steps. */
ValueId spmd_redistribute(Lowering *l, ValueId v, const TensorType *to);

#endif
