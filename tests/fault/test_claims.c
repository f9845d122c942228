/* Claims that ranks hold the same, compared while the program runs: where they do not, the run ends
 * with the rank, the step, the element and the place; where they do, it goes on.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/work.h"

static char output[1 << 16];

/* From the third step on `tp` decides what a rank computes, and says so or not. */
static const char program[] =
    "mesh world(dp = 1, tp = 1)\n"
    "config { drift = 1.0 }\n"
    "module Net() {\n"
    "  param w: f32[4] = ones()\n"
    "  forward(x) {\n"
    "    let y = local(x, w, run_check = true) -> f32[4] {\n"
    "      let own = where(step() > 1, coordinate(tp).to(f32) * drift, 0.0)\n"
    "      return x * w + own * where(x == 2.0, 1.0, 0.0)\n"
    "    }\n"
    "    return mean(square(y))\n"
    "  }\n"
    "}\n"
    "train {\n"
    "  model m = Net()\n"
    "  loss m(arange(f32[4]))\n"
    "  optimizer sgd(lr = 0.1)\n"
    "  steps 5\n"
    "}\n";

static int run(void) {
  return work_run(output, sizeof output, "./p --log=json");
}

static void compile(const char *flags) {
  work_write("p.dtm", program);
  int code = work_run(output, sizeof output, "%s p.dtm %s -o p", getenv("DTMC"), flags);
  ck_assert_msg(code == 0, "%s", output);
}

static void expect(const char *text) {
  ck_assert_msg(strstr(output, text) != NULL, "'%s' is missing in:\n%s", text, output);
}

START_TEST(a_difference_ends_the_run) {
  compile("--mesh tp=2");
  ck_assert_int_eq(run(), 1);
  expect("rank 1: ranks that should hold the same differ: element 2 of 4 is ");
  expect("on the first rank of the mesh dim");
  expect("at step 3, same_as (p.dtm:8:14)");
  ck_assert_msg(strstr(output, "\"step\":2") && !strstr(output, "\"step\":3"), "%s", output);
}
END_TEST

START_TEST(the_other_mesh_dim_agrees) {
  compile("--mesh dp=2,tp=2");
  ck_assert_int_eq(run(), 1);
  ck_assert_msg(strstr(output, "rank 1: ") || strstr(output, "rank 3: "), "%s", output);
}
END_TEST

START_TEST(ranks_that_agree_go_on) {
  static const char *const meshes[] = {"--mesh dp=2", "--mesh tp=2 -D drift=0.0",
                                       "--mesh dp=2,tp=2 -D drift=0.0"};
  compile(meshes[_i]);
  ck_assert_msg(run() == 0, "%s", output);
  expect("\"step\":5");
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  TCase *t = tcase_create("claims");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, a_difference_ends_the_run);
  tcase_add_test(t, the_other_mesh_dim_agrees);
  tcase_add_loop_test(t, ranks_that_agree_go_on, 0, 3);
  Suite *s = suite_create("claims");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
