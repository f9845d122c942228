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
#include <stdlib.h>

#include "reference/proof.h"
#include "reference/type_text.h"

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
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed != 0;
}
