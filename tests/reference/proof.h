/* The engine of the rule proof: one node under one combination of placements, run on every rank of
 * a mesh and compared with the operator on whole tensors.
 */
#ifndef DTM_TESTS_PROOF_H
#define DTM_TESTS_PROOF_H

#include "infer/example.h"
#include "reference/placements.h"

/* The table under test: the real one, or one with a planted fault. Answers as infer_rules does. */
typedef bool RowFn(const void *state, Arena *arena, const ExampleNode *node, InferResult *out);
RowFn proof_real_row; /* needs no state */

typedef struct Proof {
  RowFn *row;
  const void *state;
  RefContext ctx;
  Arena keep, scratch; /* for the run; for one combination */
  uint64_t rng;
  bool coarse; /* whole numbers only: ties everywhere */
  uint64_t inferred, accepted, failures;
  char first_failure[512];
} Proof;

void proof_init(Proof *p, RowFn *row, const void *state);
void proof_free(Proof *p);

typedef enum ProofExtents { EXTENTS_EVEN, EXTENTS_UNEVEN, EXTENTS_ONE, EXTENTS_ZERO } ProofExtents;

/* Extents of the letters: multiples of the ranks, no multiples, or no multiples but for one letter
 * of extent 1 or 0. */
void proof_extents(ProofExtents kind, uint32_t special, int64_t nranks,
                   int64_t extent[EXAMPLE_LETTERS]);

/* With more operands than these, which derivatives have, of the Partials sum and avg alone. */
enum { PROOF_FEW = 3 };

/* What takes every layout in turn: operands that are no constants, and a stated type. */
typedef struct ProofSlots {
  TensorType *type[EXAMPLE_MAX_OPERANDS + 1];
  Layout *layouts[EXAMPLE_MAX_OPERANDS + 1];
  uint32_t count[EXAMPLE_MAX_OPERANDS + 1], n;
  uint64_t total; /* combinations */
} ProofSlots;
ProofSlots proof_slots(Arena *arena, ExampleNode *node);
void proof_set(ProofSlots *s, uint64_t combination);

/* Operands that only make sense together: y of extremum_backward(g, x, y) is the maximum of x,
 * which has ties; a shift is by a small count. */
void proof_relate(const ExampleNode *n, RefTensor *whole);

/* Copies `node` with its constants set; false when it has none. */
bool proof_set_constants(const ExampleNode *node, double value, ExampleNode *out);

typedef enum ProofVerdict {
  PROOF_HOLDS,
  PROOF_FAILS,
  PROOF_VACUOUS /* nothing to compare: no ids to draw, communicates inside, no finite element */
} ProofVerdict;

/* Runs the node under the layouts of its operands with the results that `row` claims. */
ProofVerdict proof_run(Proof *p, const ExampleNode *node, const InferResult *row);

/* Every example of an operator at every kind of extents and every combination on one mesh; counts
 * and the first failure are left in `p`. */
void prove_op(Proof *p, Op op, const Mesh *mesh);
/* Operators that compute on blocks: all but communication and the edges of a graph. */
bool proof_covers(Op op);

#endif
