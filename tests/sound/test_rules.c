/* The proof of the placement rows: every operator x every combination of placements.
 *
 * Random global inputs are split according to their types (Partial as unequal addends of varying
 * sign), the per-rank operator runs on every rank of the mesh, its results are put together by the
 * inferred output placement and compared with the operator on whole tensors; replicated outputs
 * must be bit-equal. Meshes of 1 to 4 ranks, (2,2) and (2,3); even, uneven, size-1 and zero
 * extents; constants 2, 0, -3. One and two mesh dims are covered exhaustively for up to two
 * operands; three operands on two mesh dims exhaustively at even extents.
 */
#include <check.h>
#include <string.h>

#include "reference/proof.h"
#include "reference/type_text.h"
#include "support/suite.h"

static void prove_all(const int64_t *sizes, uint32_t naxes) {
  Mesh mesh;
  Proof p;
  mesh_of(&mesh, naxes, sizes);
  proof_init(&p, proof_real_row, NULL);
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (proof_covers((Op)op)) prove_op(&p, (Op)op, &mesh);
  printf("mesh of %lld: %llu combinations, %llu rows proved\n", (long long)mesh.nranks,
         (unsigned long long)p.inferred, (unsigned long long)p.accepted);
  ck_assert_msg(p.failures == 0, "%llu unsound rows, first: %s", (unsigned long long)p.failures,
                p.first_failure);
  proof_free(&p);
}

START_TEST(one_mesh_dim) {
  prove_all(&(int64_t){_i}, 1);
}
END_TEST
START_TEST(two_by_two) {
  prove_all((int64_t[]){2, 2}, 2);
}
END_TEST
START_TEST(two_by_three) {
  prove_all((int64_t[]){2, 3}, 2);
}
END_TEST

/* --- every reshape of one number of elements ----------------------------------------------------
 */

typedef struct Shapes {
  uint32_t n;
  struct {
    uint32_t rank;
    int64_t extent[4];
  } of[256];
} Shapes;

/* All ordered factorisations into at most four factors; one of them may be 1. */
static void factorise(Shapes *s, int64_t rest, uint32_t rank, int64_t *extent, bool ones) {
  if (rest == 1 && rank > 0 && s->n < 256) {
    s->of[s->n].rank = rank;
    memcpy(s->of[s->n++].extent, extent, rank * sizeof *extent);
  }
  for (int64_t f = ones ? 1 : 2; rank < 4 && f <= rest; f++) {
    if (rest % f) continue;
    extent[rank] = f;
    factorise(s, rest / f, rank + 1, extent, ones && f > 1);
  }
}

/* Error or exact values, never wrong ones. */
static void prove_reshapes(int64_t elements, uint32_t naxes, const int64_t *sizes) {
  Shapes s = {.n = 0};
  Mesh mesh;
  Proof p;
  int64_t extent[4];
  uint64_t proved = 0;
  mesh_of(&mesh, naxes, sizes);
  proof_init(&p, proof_real_row, NULL);
  factorise(&s, elements, 0, extent, true);
  for (uint32_t from = 0; from < s.n; from++)
    for (uint32_t to = 0; to < s.n; to++) {
      Arena arena;
      ExampleNode node = {.op = OP_RESHAPE, .noperands = 1, .nattrs = 1};
      TensorType *t = &node.operands[0].type;
      *t = (TensorType){.dtype = DT_F32, .rank = s.of[from].rank, .mesh = &mesh};
      memcpy(t->shape, s.of[from].extent, t->rank * sizeof *extent);
      node.attrs[0] = ATTR_INTS(SHAPE, s.of[to].extent, s.of[to].rank);
      arena_init(&arena);
      ProofSlots slots = proof_slots(&arena, &node);
      for (uint64_t k = 0; k < slots.total; k++) {
        InferResult out;
        proof_set(&slots, k);
        if (layout_has_partial(&t->layout) || layout_is_replicate(&t->layout)) continue;
        if (!proof_real_row(NULL, &p.scratch, &node, &out)) continue;
        proved++;
        ck_assert_msg(proof_run(&p, &node, &out) == PROOF_HOLDS, "%s -> %s", type_print(&arena, t),
                      type_print(&arena, &out.results[0]));
      }
      arena_free(&arena);
      arena_free(&p.scratch);
      arena_init(&p.scratch);
    }
  ck_assert(proved > 0);
  printf("reshape of %lld elements on %lld ranks: %u shapes, %llu rows proved\n",
         (long long)elements, (long long)mesh.nranks, s.n, (unsigned long long)proved);
  proof_free(&p);
}

START_TEST(every_reshape) {
  prove_reshapes(96, 1, (int64_t[]){4});
  prove_reshapes(24, 1, (int64_t[]){3});
  prove_reshapes(24, 2, (int64_t[]){2, 2});
  prove_reshapes(24, 2, (int64_t[]){2, 3});
}
END_TEST

START_TEST(every_operator_has_an_example) {
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (proof_covers((Op)op))
      ck_assert_msg(example_count((Op)op) > 0, "%s has no example", op_name((Op)op));
}
END_TEST

int main(void) {
  Suite *s = suite_create("rules");
  TCase *c = tcase_create("proof");
  tcase_set_timeout(c, 240);
  tcase_add_test(c, every_operator_has_an_example);
  tcase_add_loop_test(c, one_mesh_dim, 1, 5);
  tcase_add_test(c, two_by_two);
  tcase_add_test(c, two_by_three);
  tcase_add_test(c, every_reshape);
  suite_add_tcase(s, c);
  return suite_run(s);
}
