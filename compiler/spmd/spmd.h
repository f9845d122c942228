/* spmd: from the differentiated graph to what one rank computes.
 *
 * The local graph has the same types (global shape and layout), but a node computes on the rank's
 * block: redistribute becomes collectives and local conversions by the planner's sequence, and
 * composites (softmax, norms, mean, argmax, ...) become primitives the fuser makes single kernels
 * of. Half-precision composites compute in f32.
 */
#ifndef DTM_SPMD_SPMD_H
#define DTM_SPMD_SPMD_H

#include "place/place.h"

/* The local form of every graph of the program, in place; `loss` and `lr` are renumbered. NULL, or
 * what is wrong: a redistribute without a plan, which inference refuses beforehand (so this is an
 * internal error). */
const char *spmd_run(Program *program, PlanCache *plans);

/* One graph, for tests. NULL with *error when it fails. */
Graph *spmd_lower(Arena *arena, const Graph *g, PlanCache *plans, const char **error);

/* --- contractions as matrix products -------------------------------------------------------- */

/* One contraction of two operands seen as out[batch.., m, n] = sum_k a[batch.., m, k]
 * b[batch.., k, n]. m, n and k are runs of letters that stand side by side, in this order, in every
 * operand that has them; each other letter is a batch dim, which one operand may lack. `a` is the
 * operand without the output's last letter where there is a choice, so that n is innermost there.
 */
enum { MATMUL_MAX_BATCH = 6 };
typedef struct MatmulForm {
  uint8_t a, b; /* which operand plays which part: 0 and 1, or 1 and 0 */
  uint8_t nbatch, nm, nn, nk;
  int8_t batch[MATMUL_MAX_BATCH];
  int8_t m[DTM_MAX_DIMS], n[DTM_MAX_DIMS], k[DTM_MAX_DIMS];
} MatmulForm;

struct Contraction;
/* False when the order of dims must be changed first (spmd does: in a local graph it holds for
 * every matmul, linear and einsum). */
bool matmul_form(const struct Contraction *c, MatmulForm *out);

#endif
