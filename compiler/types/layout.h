/* Layouts: one placement per mesh axis, with the order of axes that cut the same tensor dim.
 *
 * This is the value half of the placement algebra: what a layout *is*, which block of a tensor each
 * rank holds, and how a layout prints. Which operators accept which layouts is `infer/`; how to get
 * from one to another is `place/`.
 *
 * Local extents follow torch.chunk: extent n over P ranks, c = ceil(n/P), rank r holds
 * [min(c*r, n), min(c*(r+1), n)). Nested axes chunk hierarchically, outer first.
 */
#ifndef DTM_TYPES_LAYOUT_H
#define DTM_TYPES_LAYOUT_H

#include "types/dtype.h"
#include "types/mesh.h"

typedef enum ReduceOp {
  REDUCE_NONE = 0,
#define X(id, name) REDUCE_##id,
  ABI_REDUCES(X)
#undef X
      REDUCE_COUNT
} ReduceOp;

const char *reduce_op_name(ReduceOp op); /* "sum", "avg", ... as written in source */
ReduceOp reduce_op_by_name(const char *name);

typedef enum PlaceKind {
#define X(id) PLACE_##id,
  ABI_PLACE_KINDS(X)
#undef X
} PlaceKind;

/* Placement on one mesh axis. Unused fields are zero, so that memcmp decides equality. */
typedef struct Place {
  uint8_t kind;  /* PlaceKind */
  uint8_t dim;   /* SHARD: the tensor dim it cuts */
  uint8_t order; /* SHARD: position among the axes that cut this dim, 0 = outermost, dense */
  uint8_t op;    /* PARTIAL: ReduceOp */
} Place;

/* A zeroed layout is Replicate on every axis. Axes of size 1 are Replicate (layout_set).
 * Entries at and beyond mesh->naxes are zero. */
typedef struct Layout {
  Place at[DTM_MAX_AXES];
} Layout;

typedef struct TensorType {
  DType dtype;
  uint32_t rank;
  int64_t shape[DTM_MAX_DIMS]; /* global extents; zero beyond rank */
  const Mesh *mesh;            /* never NULL once a program is elaborated */
  Layout layout;
  /* n > 0: the elements of this dim stand in head-tail order for n ranks (runtime/abi/balance.h),
   * which gives every rank of a causal ring equal work; a multiple of 2n of them. 0: as they are.
   */
  uint16_t balanced[DTM_MAX_DIMS];
} TensorType;

/* The block of a tensor that one rank holds. An empty block along a cut dim has offset = the global
 * extent of that dim, also where the nested formula gives less. */
typedef struct Block {
  int64_t offset[DTM_MAX_DIMS];
  int64_t extent[DTM_MAX_DIMS];
} Block;

bool layout_equal(const Layout *a, const Layout *b);
bool layout_has_partial(const Layout *l);
bool layout_is_replicate(const Layout *l);
/* The ordered list (outer first) of axes that cut `dim`; returns its length. */
uint32_t layout_dim_axes(const Layout *l, uint32_t dim, uint8_t axes[DTM_MAX_AXES]);
/* Number of ranks that cut `dim`: product of the sizes of its axes. */
int64_t layout_dim_ways(const Layout *l, const Mesh *mesh, uint32_t dim);
/* Changes one axis; keeps `order` dense in the dim it leaves, appends innermost where it arrives.
 * An axis of size 1 is left Replicate. */
void layout_set(Layout *l, const Mesh *mesh, uint32_t axis, PlaceKind kind, uint32_t dim,
                ReduceOp op);
/* Replaces the whole list of axes of `dim` (which must hold axes that are Replicate otherwise). */
void layout_set_dim(Layout *l, const Mesh *mesh, uint32_t dim, const uint8_t *axes, uint32_t n);
/* Puts `t` on `mesh`: every placement goes to the axis of the same name, with its order. -1, or the
 * first axis of the old mesh with a placement whose name `mesh` lacks; `t` is then unchanged. */
int type_to_mesh(TensorType *t, const Mesh *mesh);
/* A Partial on several axes has one op (sum and avg may mix). False when it does not. */
bool layout_partial_consistent(const Layout *l);

bool type_equal(const TensorType *a, const TensorType *b);
/* Both have the same shape, and the same order of elements in every dim. */
bool type_same_elements(const TensorType *a, const TensorType *b);
int64_t type_elements(const TensorType *t); /* global count */
/* The value is at most 2^60 bytes, so that no product of its extents and sizes overflows. */
bool type_is_addressable(const TensorType *t);
/* The block held at these mesh coordinates. */
Block type_block(const TensorType *t, const int64_t coord[DTM_MAX_AXES]);
/* The largest local extents over all ranks (those of coordinate 0); every buffer has this size. */
void type_local_max(const TensorType *t, int64_t extent[DTM_MAX_DIMS]);
int64_t type_local_bytes(const TensorType *t); /* of the largest shard */
/* [begin, begin + length) of part r of `parts` of an extent: the rule of torch.chunk. */
void chunk(int64_t extent, int64_t parts, int64_t r, int64_t *begin, int64_t *length);

/* Source form: "f32[8@dp, 64, 32@(cp,tp)] partial(tp: max)", and `on NAME` where the mesh is not
 * the world. A dim in another order says so: "f32[8, 64@cp] balanced(1: 2)", dim 1 for 2 ranks. */
const char *type_print(Arena *arena, const TensorType *t);
/* The same without the mesh. */
void type_put(StrBuf *out, const TensorType *t);
/* Only the layout: "[0@dp, 2@tp] partial(cp)" is never shown to users; this prints per axis as in
 * "dp: Shard(0), tp: Replicate" for notes that speak of one axis. */
const char *place_print(Arena *arena, Place p);

#endif
