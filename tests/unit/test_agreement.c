/* Comparing two runs: what is rounding and what is not; reading logs and checkpoints. */
#include <check.h>
#include <math.h>

#include "driver/agreement.h"
#include "support/suite.h"

static Arena arena;

static Agreement begin(void) {
  return (Agreement){.arena = &arena, .tolerance = {1e-10, 1e-10, 0x1p-48}};
}

static uint32_t differences(const char *want, const char *got) {
  Agreement a = begin();
  ck_assert_ptr_null(agreement_logs(&a, want, got));
  return a.found.len;
}

START_TEST(test_steps) {
  const char *one = "{\"step\":1,\"loss\":2,\"mae\":1,\"seconds\":0.1}\n"
                    "{\"step\":2,\"loss\":1e-3,\"mae\":\"nan\",\"seconds\":0.2}\n";
  ck_assert_uint_eq(differences(one, one), 0);
  ck_assert_uint_eq(differences(one,
                                "{\"step\":1,\"loss\":2.0000000001,\"mae\":1,\"seconds\":7}\n"
                                "{\"step\":2,\"loss\":0.001,\"mae\":\"nan\",\"seconds\":0.2}\n"),
                    0);
  ck_assert_uint_eq(
      differences(one, "{\"step\":1,\"loss\":2.000000001,\"mae\":1,\"seconds\":7}\n"
                       "{\"step\":2,\"loss\":0.0010001,\"mae\":\"inf\",\"seconds\":0.2}\n"),
      3);
  ck_assert_uint_eq(differences(one, "{\"step\":1,\"loss\":2,\"mae\":1,\"seconds\":0.1}\n"), 1);
  ck_assert_uint_eq(differences("{\"step\":1,\"loss\":\"inf\"}", "{\"step\":1,\"loss\":\"-inf\"}"),
                    1);
}
END_TEST

START_TEST(test_table) {
  Agreement a = begin();
  StrBuf out;
  strbuf_init(&out, &arena);
  ck_assert_ptr_null(agreement_logs(&a, "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n",
                                    "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":4}\n"));
  agreement_print(&a, "dp=2", &out);
  ck_assert_str_eq(out.text, "  step  what  element  one rank  dp=2  difference  allowed\n"
                             "  1     loss           2         3     1.0e+00     2.0e-10\n");
}
END_TEST

/* Printed values have six digits; what is saved and where is no result. */
START_TEST(test_printed) {
  const char *one = "{\"event\":\"y f32[2] = [1.23456, -2e-07]\"}\n"
                    "{\"event\":\"saved /tmp/a\"}\n{\"text\":\"a\\\"b\"}\n";
  ck_assert_uint_eq(differences(one, "{\"event\":\"y f32[2] = [1.23457, -2e-07]\"}\n"
                                     "{\"event\":\"saved /tmp/b\"}\n{\"text\":\"a\\\"b\"}\n"),
                    0);
  ck_assert_uint_eq(differences(one, "{\"event\":\"y f32[2] = [1.23460, 2e-07]\"}\n"
                                     "{\"text\":\"a'b\"}\n"),
                    2);
  ck_assert_uint_eq(
      differences("{\"event\":\"y i64[1] = [1000000]\"}", "{\"event\":\"y i64[1] = [1000001]\"}"),
      1);
  ck_assert_uint_eq(differences("{\"event\":\"y f32[] = nan\"}", "{\"event\":\"y f32[] = nan\"}"),
                    0);
  ck_assert_uint_eq(differences("{\"event\":\"y f32[] = 0\"}", "{\"event\":\"y f32[] = nan\"}"), 1);
  ck_assert_uint_eq(
      differences("{\"event\":\"y f32[2] = [1, 2]\"}", "{\"event\":\"y f32[3] = [1, 2, 3]\"}"), 1);
}
END_TEST

static SavedTensor tensor(const char *name, bool optimizer, const double *data, double largest) {
  SavedTensor t = {.name = name, .type = DT_F64, .optimizer = optimizer, .count = 2};
  VEC_PUSH(&arena, &t.shape, 2);
  t.data = data;
  t.largest = largest;
  return t;
}

/* Parameter w with a gradient in w.m, and b whose gradient is rounding and nothing else. */
static uint32_t compare(const double w[2], const double m[2], const double b[2],
                        const double noise[2]) {
  static const double one[4][2] = {{1, 2}, {0.5, 1e-9}, {0.01, -0.01}, {1e-18, -2e-18}};
  const double *got[] = {w, m, b, noise};
  const char *names[] = {"w", "w.m", "b", "b.m"};
  const double largest[] = {2, 0.5, 0.01, 2e-18};
  SavedTensors wanted = {0}, had = {0};
  for (int i = 0; i < 4; i++) {
    VEC_PUSH(&arena, &wanted, tensor(names[i], i % 2, one[i], largest[i]));
    VEC_PUSH(&arena, &had, tensor(names[i], i % 2, got[i] ? got[i] : one[i], largest[i]));
  }
  Agreement a = begin();
  agreement_tensors(&a, &wanted, &had, 1);
  ck_assert_uint_eq(a.tensors, 4);
  return a.found.len;
}

START_TEST(test_tensors) {
  ck_assert_uint_eq(compare(NULL, NULL, NULL, NULL), 0);
  ck_assert_uint_eq(compare((double[]){1 + 1e-11, 2}, NULL, NULL, NULL), 0);
  ck_assert_uint_eq(compare((double[]){1 + 1e-8, 2}, NULL, NULL, NULL), 1);
  /* where the gradient is small the new value is as inexact as it is */
  ck_assert_uint_eq(compare((double[]){1, 2 + 1e-3}, NULL, NULL, NULL), 0);
  ck_assert_uint_eq(compare((double[]){1, 2 + 1}, NULL, NULL, NULL), 1);
  ck_assert_uint_eq(compare(NULL, (double[]){0.5 + 1e-9, 1e-9}, NULL, NULL), 1);
  /* rounding alone: another sign, and a step the other way */
  ck_assert_uint_eq(compare(NULL, NULL, (double[]){-0.01, 0.01}, (double[]){-1e-18, 1e-18}), 0);
  ck_assert_uint_eq(compare(NULL, NULL, NULL, (double[]){1e-9, 1e-9}), 1);
  ck_assert_uint_eq(compare((double[]){NAN, 2}, NULL, NULL, NULL), 1);
}
END_TEST

START_TEST(test_missing) {
  static const double data[2] = {1, 2};
  SavedTensors one = {0}, more = {0};
  Agreement a = begin(), b = begin();
  VEC_PUSH(&arena, &one, tensor("w", false, data, 2));
  VEC_PUSH(&arena, &more, tensor("w", false, data, 2));
  VEC_PUSH(&arena, &more, tensor("v", false, data, 2));
  agreement_tensors(&a, &one, &more, 1);
  agreement_tensors(&b, &more, &one, 1);
  ck_assert_uint_eq(a.found.len, 1);
  ck_assert_uint_eq(b.found.len, 1);
  ck_assert_str_eq(a.found.data[0].got, "f64[2]");
  ck_assert_str_eq(b.found.data[0].got, "none");
}
END_TEST

/* Half a line, a number that is none, what never ends: no crash, and it is said. */
START_TEST(test_damaged) {
  static const char *const lines[] = {"{",
                                      "{\"step\":1",
                                      "{\"step\":x}",
                                      "[]",
                                      "{\"loss\":\"",
                                      "{\"loss\":\"a\"}",
                                      "{\"step\":-1}",
                                      "{\"a\"",
                                      "{\"event\":\"\\u00"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    Agreement a = begin();
    ck_assert_msg(agreement_logs(&a, lines[i], lines[i]) != NULL, "%s is read", lines[i]);
  }
}
END_TEST

int main(void) {
  arena_init(&arena);
  Suite *suite = suite_create("agreement");
  TCase *t = tcase_create("agreement");
  tcase_add_test(t, test_steps);
  tcase_add_test(t, test_table);
  tcase_add_test(t, test_printed);
  tcase_add_test(t, test_tensors);
  tcase_add_test(t, test_missing);
  tcase_add_test(t, test_damaged);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
