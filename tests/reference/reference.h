/* The reference interpreter: any node of ops.def on whole tensors, or on one rank's blocks, in f64.
 *
 * Written for plainness, not speed, and independent of autodiff, fusion, planning and the code
 * generators: it is what they are compared with. Integers and bools are held as doubles, exact up
 * to 2^53. A node is described by its *global* types and the coordinates of a rank; with Replicate
 * layouts (or no mesh) every block is the whole tensor, so whole-tensor evaluation is the special
 * case. A per-rank evaluation knows its blocks' offsets, as the compiled program does: vocabulary
 * blocks, triangles, random numbers and iota read them.
 */
#ifndef DTM_TESTS_REFERENCE_H
#define DTM_TESTS_REFERENCE_H

#include "ir/graph.h"
#include "ops/scalar.h"

typedef struct RefTensor {
  uint32_t rank;
  int64_t shape[DTM_MAX_DIMS];
  double *data; /* row-major */
} RefTensor;

/* State of evaluations: random key, rounding, parsed scalar expressions. Zero-initialise with an
 * arena that outlives it. */
typedef struct RefContext {
  Arena *arena;
  uint64_t seed;
  int64_t step;
  bool round_casts; /* casts to narrow floats round; otherwise all floats are f64 */
  const Scalar *scalars[OP_COUNT];
} RefContext;

/* One node as one rank sees it. */
typedef struct RefNode {
  Op op;
  const Attr *attrs;
  uint32_t nattrs, noperands, nresults;
  const TensorType *operand_types, *result_types; /* global shapes, layouts */
  const int64_t *coord;      /* of the rank on its mesh; NULL = whole tensors */
  const double *mean_weight; /* cross_entropy "mean": global weight of valid targets; NULL = own */
} RefNode;

RefTensor ref_new(Arena *arena, uint32_t rank, const int64_t *shape); /* zeros */
int64_t ref_count(const RefTensor *t);
/* The block of a type at the coordinates; the whole shape where coord is NULL. */
Block ref_block(const TensorType *type, const int64_t *coord);

/* Evaluates one node; results are allocated in `arena`. Communication is identity. False when the
 * operator cannot be evaluated locally (vocab-parallel cross_entropy: it communicates inside). */
bool ref_eval_node(RefContext *ctx, Arena *arena, const RefNode *node, const RefTensor *operands,
                   RefTensor *results);

/* Where a graph meets its surroundings. NULL entries: READ and INPUT give zeros, ASSIGN and OUTPUT
 * are dropped. */
typedef struct RefIO {
  void *user;
  RefTensor (*read)(void *user, uint32_t var, const TensorType *type);
  RefTensor (*input)(void *user, uint32_t source, const TensorType *type);
  void (*assign)(void *user, uint32_t var, const RefTensor *value);
  void (*output)(void *user, const Node *node, const RefTensor *value);
  /* ref_eval_mesh: the blocks of what is read; NULL = ref_split of each. */
  RefTensor *(*split)(void *user, const TensorType *type, const RefTensor *whole);
} RefIO;

/* Evaluates a graph on whole tensors; element i of the answer is value i. */
RefTensor *ref_eval_graph(RefContext *ctx, Arena *arena, const Graph *g, const RefIO *io);

/* --- a simulated mesh ------------------------------------------------------------------------ */

/* The block of `whole` at the coordinates, as a redistribute to `type` leaves it: Shard slices,
 * Replicate copies, Partial(sum|product|xor) is held by coordinate 0 and neutral elsewhere, the
 * other Partials by all. */
RefTensor ref_split(Arena *arena, const TensorType *type, const int64_t *coord,
                    const RefTensor *whole);
/* The value that the ranks' blocks (by mesh position) stand for. Replicas must be bit-equal: on a
 * difference *disagree is set (may be NULL). */
RefTensor ref_assemble(Arena *arena, const TensorType *type, const RefTensor *blocks,
                       bool *disagree);
/* Evaluates a graph rank by rank: every node on blocks, communication by assembling and splitting.
 * Answer[value][position]. Replicas that disagree set *disagree. */
RefTensor **ref_eval_mesh(RefContext *ctx, Arena *arena, const Graph *g, const RefIO *io,
                          bool *disagree);

/* a op b, for reductions of addends. */
double ref_reduce(ReduceOp op, double a, double b);
double ref_neutral(ReduceOp op);
/* v converted to an element type (rounded, truncated or wrapped as a cast does). */
double ref_round(DType dtype, double v);

#endif
