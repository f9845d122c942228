/* Small situations of which the placements and the communication matter, not only the values.
 * Their companions that only need values are in tests/e2e/test_cases.c; tests/README.md has the
 * list.
 */
#include <check.h>

#include "reference/lab.h"
#include "support/suite.h"

static int collectives(LabComm c) {
  return c.all_reduce + c.reduce_scatter + c.all_gather + c.all_to_all;
}

static bool partial_on(const Lab *lab, ValueId v, uint32_t axis) {
  return value_type(lab->g, v)->layout.at[axis].kind == PLACE_PARTIAL;
}

/* linear over a sharded sequence, even and uneven, and with the batch sharded too: nothing moves,
 * forward or backward; the weight's gradient is a pending sum over what cuts the rows. */
START_TEST(linear_over_a_sharded_sequence) {
  static const struct {
    int64_t mesh[2];
    const char *x, *y;
    bool pending[2];
  } cases[] = {
      {{4, 1}, "f32[2, 8@x, 4]", "f32[2, 8@x, 5]", {true, false}},
      {{4, 1}, "f32[2, 7@x, 4]", "f32[2, 7@x, 5]", {true, false}},
      {{2, 2}, "f32[2@x, 8@y, 4]", "f32[2@x, 8@y, 5]", {true, true}},
      {{2, 3}, "f32[3@x, 7@y, 4]", "f32[3@x, 7@y, 5]", {true, true}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Lab lab;
    lab_init(&lab, 2, cases[i].mesh);
    ValueId x = lab_param(&lab, cases[i].x, -1, 1), w = lab_param(&lab, "f32[5, 4]", -1, 1);
    ValueId y = lab_binary(&lab, OP_LINEAR, x, w), wrt[] = {x, w}, grad[2];
    ck_assert_str_eq(type_print(&lab.arena, value_type(lab.g, y)), cases[i].y);
    ValueId loss = lab_weigh(&lab, y);
    NodeId end = lab.g->nodes.len;
    ck_assert_msg(autodiff_gradients(lab.g, loss, wrt, 2, grad, 1, lab.plans, &lab.sink), "%s",
                  lab_errors(&lab));
    ck_assert_int_eq(collectives(lab_comm(&lab, lab.g, 1, end, PHASE_FORWARD)), 0);
    ck_assert_int_eq(collectives(lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD)), 0);
    ck_assert_str_eq(type_print(&lab.arena, value_type(lab.g, grad[0])), cases[i].x);
    for (uint32_t a = 0; a < 2; a++) ck_assert(partial_on(&lab, grad[1], a) == cases[i].pending[a]);

    bool disagree;
    RefTensor *whole = lab_eval(&lab), **mesh = lab_eval_mesh(&lab, &disagree);
    ck_assert(!disagree);
    for (int k = 0; k < 2; k++) {
      RefTensor g = ref_assemble(&lab.arena, value_type(lab.g, grad[k]), mesh[grad[k]], NULL);
      for (int64_t e = 0; e < ref_count(&g); e++)
        ck_assert_double_eq_tol(g.data[e], whole[grad[k]].data[e], 1e-12);
    }
    lab_free(&lab);
  }
}
END_TEST

/* A pending average of 22.5 whose addends differ: a constant may be added, a constant may be
 * reduced by it, it may be scaled; reduced to whole or to shards it is divided by the ranks once.
 */
START_TEST(average_of_unequal_addends) {
  static const double want[] = {32.5, -12.5, 225, 22.5, 22.5};
  for (int64_t ranks = 2; ranks <= 4; ranks++) {
    Lab lab;
    lab_init(&lab, 1, &ranks);
    ValueId v = lab_param(&lab, "f32[5] partial(x: avg)", 22.5, 22.5);
    Attr attrs[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 10)};
    ValueId ten = lab_op(&lab, OP_CONST, NULL, 0, attrs, 2);
    const ValueId y[] = {lab_binary(&lab, OP_ADD, v, ten), lab_binary(&lab, OP_SUB, ten, v),
                         lab_binary(&lab, OP_MUL, v, ten), lab_to(&lab, v, "f32[5]"),
                         lab_to(&lab, v, "f32[5@x]")};
    bool disagree;
    RefTensor **mesh = lab_eval_mesh(&lab, &disagree);
    ck_assert(!disagree);
    ck_assert_msg(mesh[v][0].data[0] != mesh[v][1].data[0], "the addends are equal");
    for (int k = 0; k < 5; k++) {
      ck_assert(partial_on(&lab, y[k], 0) == (k < 3));
      RefTensor got = ref_assemble(&lab.arena, value_type(lab.g, y[k]), mesh[y[k]], NULL);
      for (int64_t e = 0; e < 5; e++) ck_assert_double_eq_tol(got.data[e], want[k], 1e-12);
    }
    lab_free(&lab);
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("cases");
  TCase *c = tcase_create("cases");
  tcase_add_test(c, linear_over_a_sharded_sequence);
  tcase_add_test(c, average_of_unequal_addends);
  suite_add_tcase(s, c);
  return suite_run(s);
}
