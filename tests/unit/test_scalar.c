/* The scalar language: every row of ops.def parses, precedence is that of C, faults are named. */
#include <check.h>
#include <string.h>

#include "ops/scalar.h"
#include "support/suite.h"

static Arena arena;

static void setup(void) {
  arena_init(&arena);
}
static void teardown(void) {
  arena_free(&arena);
}

/* Fully bracketed form, written by row names. */
static const char *show(const Scalar *s) {
  switch (s->kind) {
  case SCALAR_NONE:
    return "?";
  case SCALAR_CONST:
    return arena_printf(&arena, "%g", s->value);
  case SCALAR_ARG:
    return arena_printf(&arena, "%c", "abcgy"[s->which]);
  case SCALAR_CALL: {
    StrBuf sb;
    strbuf_init(&sb, &arena);
    strbuf_puts(&sb, op_name(s->op));
    for (uint32_t i = 0; i < s->nargs; i++)
      strbuf_printf(&sb, "%s%s", i ? "," : "(", show(s->arg[i]));
    strbuf_putc(&sb, ')');
    return sb.text;
  }
  }
  return "?";
}

static bool uses_only(const Scalar *s, uint32_t arity, bool gradient) {
  if (s->kind == SCALAR_ARG) return s->which < SCALAR_G ? s->which < arity : gradient;
  for (uint32_t i = 0; i < s->nargs; i++)
    if (!uses_only(s->arg[i], arity, gradient)) return false;
  return true;
}

START_TEST(every_row_parses) {
  for (int o = OP_NONE + 1; o < OP_COUNT; o++) {
    const OpInfo *info = op_info((Op)o);
    if (info->cls != CLASS_POINTWISE) continue;
    const char *error = NULL;
    if (*info->expr) {
      const Scalar *s = scalar_parse(&arena, info->expr, &error);
      ck_assert_msg(s != NULL, "%s: %s", info->name, error);
      ck_assert_msg(uses_only(s, info->min_operands, false), "%s", info->name);
    }
    if (!*info->grads) continue;
    uint32_t items = 1;
    for (const char *c = info->grads; *c; c++) items += *c == ';';
    ck_assert_msg(items == info->min_operands, "%s: one cotangent per operand", info->name);
    const char *text = info->grads;
    for (uint32_t i = 0; i < items; i++) {
      while (*text == ' ') text++;
      size_t len = strcspn(text, ";");
      if (len) {
        const Scalar *s = scalar_parse(&arena, arena_strndup(&arena, text, len), &error);
        ck_assert_msg(s != NULL, "%s: %s", info->name, error);
        ck_assert_msg(uses_only(s, info->min_operands, true), "%s", info->name);
      }
      text += len + 1;
    }
  }
}
END_TEST

START_TEST(precedence) {
  static const char *const cases[][2] = {
      {"a - b - c", "sub(sub(a,b),c)"},
      {"-a * b + 1", "add(mul(neg(a),b),1)"},
      {"a / (1 + exp(-a))", "div(a,add(1,exp(neg(a))))"},
      {"where(a <= -3, 0, b)", "where(le(a,neg(3)),0,b)"},
      {"g / b / 2", "div(div(g,b),2)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *error;
    const Scalar *s = scalar_parse(&arena, cases[i][0], &error);
    ck_assert_msg(s != NULL, "%s", error);
    ck_assert_str_eq(show(s), cases[i][1]);
  }
}
END_TEST

START_TEST(faults_are_named) {
  static const char *const bad[] = {"",         "a +", "foo(a)", "exp(a, b)",  "where(a, b)",
                                    "(a + b",   "a b", "d",      "softmax(a)", "exp(a",
                                    "a < b < c"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *error = NULL;
    ck_assert_msg(scalar_parse(&arena, bad[i], &error) == NULL, "%s", bad[i]);
    ck_assert_ptr_nonnull(error);
  }
}
END_TEST

START_TEST(gradients_by_operand) {
  const Scalar *g[3] = {NULL};
  ck_assert(scalar_gradients(&arena, OP_WHERE, g));
  ck_assert_ptr_null(g[0]);
  ck_assert_str_eq(show(g[1]), "where(a,g,0)");
  ck_assert_str_eq(show(g[2]), "where(a,0,g)");
  ck_assert(!scalar_gradients(&arena, OP_EQ, g));
}
END_TEST

int main(void) {
  Suite *s = suite_create("scalar");
  TCase *c = tcase_create("parse");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, every_row_parses);
  tcase_add_test(c, precedence);
  tcase_add_test(c, faults_are_named);
  tcase_add_test(c, gradients_by_operand);
  suite_add_tcase(s, c);
  return suite_run(s);
}
