/* The front end where golden files cannot show it: keyword table against lexer, bounds on nesting,
 * huge and odd input, shapes of the tree. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/parse.h"
#include "support/suite.h"

typedef struct Parsed {
  Arena arena;
  Interner names;
  Sources sources;
  DiagSink sink;
  File *file;
} Parsed;

static void parse_n(Parsed *p, const char *text, size_t size) {
  memset(p, 0, sizeof *p);
  arena_init(&p->arena);
  interner_init(&p->names, &p->arena);
  sources_init(&p->sources, &p->arena);
  diag_init(&p->sink, &p->arena, &p->sources);
  p->file = ast_parse(&p->arena, &p->names, &p->sink,
                      sources_add(&p->sources, "t.dtm", text, (uint32_t)size));
}

static void parse(Parsed *p, const char *text) {
  parse_n(p, text, strlen(text));
}

static bool accepts(const char *fmt, const char *word) {
  Parsed p;
  char text[256];
  snprintf(text, sizeof text, fmt, word);
  parse(&p, text);
  bool good = p.sink.errors == 0;
  arena_free(&p.arena);
  return good;
}

START_TEST(keywords_agree_with_lexer) {
  const char *word, *last = "";
  int token, n = 0;
  bool reserved;
  for (unsigned i = 0; (word = parser_keyword(i, &token, &reserved)); i++, n++) {
    ck_assert_msg(strcmp(last, word) < 0, "%s is out of order in keywords.def", word);
    last = word;
    ck_assert_int_eq(parser_word(word), token);
    ck_assert_msg(accepts("let %s = 1\n", word) == !reserved, "%s as a name", word);
    ck_assert_msg(accepts("let a = x.%s\n", word), "%s behind a dot", word);
    char longer[64];
    snprintf(longer, sizeof longer, "%sx", word);
    ck_assert_msg(accepts("let %s = 1\n", longer), "%s is a name", longer);
  }
  ck_assert_int_gt(n, 30);
  for (DType t = DT_NONE + 1; t < DT_COUNT; t++) {
    ck_assert_msg(!accepts("let %s = 1\n", dtype_name(t)), "dtype %s as a name", dtype_name(t));
    ck_assert(accepts("let a = x.to(%s)\n", dtype_name(t)));
  }
}
END_TEST

static char *repeat(const char *piece, int n, const char *before, const char *after) {
  size_t length = strlen(piece), total = strlen(before);
  char *text = malloc(total + length * (size_t)n + strlen(after) + 1);
  strcpy(text, before);
  for (int i = 0; i < n; i++, total += length) memcpy(text + total, piece, length);
  strcpy(text + total, after);
  return text;
}

/* 100,000 repetitions: one error of its own, no exhausted stack. */
START_TEST(deep_nesting_is_an_error) {
  static const char *const cases[][3] = {
      {"(", "let a = ", "1"},
      {"[", "let a = ", "1"},
      {"x[", "let a = ", "1"},
      {"f(", "let a = ", "1"},
      {"-", "let a = ", "1"},
      {"!", "let a = ", "1"},
      {"2 ** ", "let a = ", "1"},
      {"1 + ", "let a = ", "1"},
      {".x", "let a = b", ""},
      {"(1)", "let a = f", ""},
      {"[1]", "let a = f", ""},
      {"if a then b else ", "let a = ", "1"},
      {"if ", "let a = ", "1"},
      {"if a { ", "fn f() { ", ""},
      {"if a { } else ", "fn f() { ", "{ } }"},
      {"on m { ", "module M() { ", ""},
      {"local(x) -> f32[] { return ", "let a = ", ""},
      {"f32[", "let a = ", ""},
      {"{", "train ", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = repeat(cases[i][0], 100000, cases[i][1], cases[i][2]);
    Parsed p;
    parse(&p, text);
    ck_assert_msg(p.sink.errors >= 1, "no error: %s", cases[i][0]);
    bool found = false;
    for (uint32_t k = 0; k < p.sink.diags.len; k++)
      found |= p.sink.diags.data[k]->code == DIAG_TOO_DEEP;
    if (cases[i][0][0] != '{' || strcmp(cases[i][1], "train ") != 0)
      ck_assert_msg(found, "not DTM1006: %s: %s", cases[i][0], p.sink.diags.data[0]->message);
    StrBuf out; /* what is left of the tree can be walked */
    strbuf_init(&out, &p.arena);
    ast_print(&p.sources, p.file, &out);
    arena_free(&p.arena);
    free(text);
  }
}
END_TEST

START_TEST(long_names_are_cut) {
  static const struct {
    int length;
    bool right;
  } cases[] = {{255, true}, {256, false}, {1000000, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *text = repeat("n", cases[i].length, "fn f(x) { return x + ", " }");
    Parsed p;
    parse(&p, text);
    ck_assert_int_eq(p.sink.errors, cases[i].right ? 0 : 1);
    if (!cases[i].right) ck_assert_int_eq(p.sink.diags.data[0]->code, DIAG_LONG_NAME);
    StrBuf out;
    strbuf_init(&out, &p.arena);
    ast_print(&p.sources, p.file, &out);
    ck_assert_uint_le(out.len, 400);
    arena_free(&p.arena);
    free(text);
  }
}
END_TEST

START_TEST(long_lists_are_no_problem) {
  char *text = repeat("1, ", 100000, "let a = [", "1]\n");
  Parsed p;
  parse(&p, text);
  ck_assert_uint_eq(p.sink.errors, 0);
  ck_assert_uint_eq(p.file->items.data[0]->as.let->as.let.value->as.list.len, 100001);
  arena_free(&p.arena);
  free(text);
  text = repeat("let a = 1\n", 50000, "", "");
  parse(&p, text);
  ck_assert_uint_eq(p.sink.errors, 0);
  ck_assert_uint_eq(p.file->items.len, 50000);
  arena_free(&p.arena);
  free(text);
}
END_TEST

START_TEST(errors_are_bounded) {
  char *text = repeat("let = 1\n", 5000, "", "");
  Parsed p;
  parse(&p, text);
  ck_assert_uint_eq(p.sink.errors, AST_MAX_ERRORS);
  arena_free(&p.arena);
  free(text);
}
END_TEST

START_TEST(odd_files) {
  Parsed p;
  parse(&p, "");
  ck_assert_uint_eq(p.sink.errors, 0);
  ck_assert_uint_eq(p.file->items.len, 0);
  arena_free(&p.arena);
  parse(&p, "\n\n// only a comment");
  ck_assert_uint_eq(p.sink.errors, 0);
  ck_assert_uint_eq(p.file->comments.len, 1);
  arena_free(&p.arena);
  parse(&p, "\xEF\xBB\xBFlet a = 1\r\nlet b = 2\r\n"); /* byte order mark, CR LF */
  ck_assert_uint_eq(p.sink.errors, 0);
  ck_assert_uint_eq(p.file->items.len, 2);
  arena_free(&p.arena);
  parse_n(&p, "let a = 1\nlet b\0 = 2\n", 21);
  ck_assert_uint_eq(p.sink.errors, 1);
  ck_assert_int_eq(p.sink.diags.data[0]->code, DIAG_NOT_TEXT);
  ck_assert_uint_eq(p.sink.diags.data[0]->span.start, 15);
  arena_free(&p.arena);
}
END_TEST

static Expr *value_of(Parsed *p, const char *text) {
  parse(p, text);
  ck_assert_msg(p->sink.errors == 0, "%s: %s", text,
                p->sink.errors ? p->sink.diags.data[0]->message : "");
  return p->file->items.data[0]->as.let->as.let.value;
}

START_TEST(operators_bind_as_documented) {
  /* each pair is the same tree: the printer shows the parentheses of the second */
  static const char *const pairs[][2] = {
      {"a + b * c", "a + (b * c)"},
      {"a - b - c", "(a - b) - c"},
      {"a ** b ** c", "a ** (b ** c)"},
      {"-a ** b", "-(a ** b)"},
      {"a ** -b", "a ** (-b)"},
      {"!a && b", "(!a) && b"},
      {"a || b && c", "a || (b && c)"},
      {"a + b < c * d", "(a + b) < (c * d)"},
      {"a < b && c == d", "(a < b) && (c == d)"},
      {"-a.b[0](c)", "-(((a.b)[0])(c))"},
      {"if a then b else c + d", "if a then b else (c + d)"},
      {"if a then b else c on m", "if a then b else (c on m)"},
      {"a + b on m", "(a + b) on m"},
      {"a % b / c", "(a % b) / c"},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    Parsed p, q;
    char text[2][128];
    snprintf(text[0], sizeof text[0], "let x = %s\n", pairs[i][0]);
    snprintf(text[1], sizeof text[1], "let x = %s\n", pairs[i][1]);
    Expr *a = value_of(&p, text[0]), *b = value_of(&q, text[1]);
    /* compare by structure: kinds in preorder */
    Expr *stack[2][64] = {{a}, {b}};
    int n = 1;
    while (n > 0) {
      Expr *x = stack[0][--n], *y = stack[1][n];
      ck_assert_msg(x->kind == y->kind, "%s is not %s", pairs[i][0], pairs[i][1]);
      Expr *children[2][3] = {{NULL}};
      for (int s = 0; s < 2; s++) {
        Expr *e = s ? y : x;
        if (e->kind == EXPR_BINARY) {
          children[s][0] = e->as.binary.left;
          children[s][1] = e->as.binary.right;
        } else if (e->kind == EXPR_UNARY) {
          children[s][0] = e->as.unary.operand;
        } else if (e->kind == EXPR_CONDITIONAL) {
          children[s][0] = e->as.conditional.condition;
          children[s][1] = e->as.conditional.yes;
          children[s][2] = e->as.conditional.no;
        } else if (e->kind == EXPR_ON) {
          children[s][0] = e->as.on.value;
        } else if (e->kind == EXPR_CALL) {
          children[s][0] = e->as.call.callee;
        } else if (e->kind == EXPR_INDEX) {
          children[s][0] = e->as.index.base;
        } else if (e->kind == EXPR_MEMBER) {
          children[s][0] = e->as.member.base;
        }
      }
      if (x->kind == EXPR_BINARY) ck_assert_int_eq(x->as.binary.op, y->as.binary.op);
      for (int c = 0; c < 3; c++) {
        ck_assert_int_eq(!children[0][c], !children[1][c]);
        if (!children[0][c]) continue;
        stack[0][n] = children[0][c];
        stack[1][n++] = children[1][c];
      }
    }
    arena_free(&p.arena);
    arena_free(&q.arena);
  }
}
END_TEST

START_TEST(spans_cover_the_text) {
  static const char text[] = "let x = (a + f(b)).redistribute(tp: Shard(1)) ** -c[0:2]\n";
  Parsed p;
  Expr *e = value_of(&p, text);
  ck_assert_uint_eq(e->span.start, 8);
  ck_assert_uint_eq(e->span.end, sizeof text - 2);
  Expr *call = e->as.binary.left, *parens = call->as.call.callee->as.member.base;
  ck_assert_uint_eq(call->span.end, (uint32_t)(strstr(text, " **") - text));
  ck_assert(parens->parens);
  ck_assert_uint_eq(parens->span.start, 8);
  ck_assert_uint_eq(parens->span.end, 18);
  Arg *arg = &call->as.call.args.data[0];
  ck_assert(arg->is_key);
  ck_assert_str_eq(arg->name, "tp");
  ck_assert_uint_eq(arg->name_span.start, (uint32_t)(strstr(text, "tp") - text));
  arena_free(&p.arena);
}
END_TEST

START_TEST(literals_have_values) {
  Parsed p;
  ck_assert_int_eq(value_of(&p, "let a = 10_000\n")->as.i, 10000);
  arena_free(&p.arena);
  ck_assert_int_eq(value_of(&p, "let a = 9223372036854775807\n")->as.i, INT64_MAX);
  arena_free(&p.arena);
  ck_assert_double_eq(value_of(&p, "let a = 3e-4\n")->as.f, 3e-4);
  arena_free(&p.arena);
  ck_assert_double_eq(value_of(&p, "let a = 1_0.5_0e1\n")->as.f, 10.5e1);
  arena_free(&p.arena);
  ck_assert_str_eq(value_of(&p, "let a = \"x\\n\\\"\\\\\\u{e4}\\u{1F600}\"\n")->as.s,
                   "x\n\"\\\xC3\xA4\xF0\x9F\x98\x80");
  arena_free(&p.arena);
}
END_TEST

static const Stmt *line_of(Parsed *p, const char *text) {
  parse(p, text);
  ck_assert_msg(p->sink.errors == 0, "%s: %s", text,
                p->sink.errors ? p->sink.diags.data[0]->message : "");
  return p->file->items.data[0]->as.block.data[0];
}

START_TEST(settings_have_parts) {
  Parsed p;
  const Stmt *s = line_of(&p, "train { budget all_reduce over tp <= 4 per layer }\n");
  ck_assert_int_eq(s->kind, STMT_SETTING);
  ck_assert_uint_eq(s->as.setting.parts.len, 3);
  ck_assert_ptr_null(s->as.setting.parts.data[0].word);
  ck_assert_str_eq(s->as.setting.parts.data[1].word, "over");
  ck_assert_int_eq(s->as.setting.parts.data[1].value->kind, EXPR_BINARY);
  ck_assert_str_eq(s->as.setting.parts.data[2].word, "per");
  arena_free(&p.arena);
  s = line_of(&p, "train { eval every end }\n");
  ck_assert_uint_eq(s->as.setting.parts.len, 1);
  ck_assert_str_eq(s->as.setting.parts.data[0].word, "every");
  arena_free(&p.arena);
  s = line_of(&p, "train { loss (a + b) / n }\n"); /* not a call of loss */
  ck_assert_int_eq(s->kind, STMT_SETTING);
  ck_assert_int_eq(s->as.setting.parts.data[0].value->kind, EXPR_BINARY);
  ck_assert_int_eq(s->as.setting.parts.data[0].value->as.binary.op, BINARY_DIV);
  arena_free(&p.arena);
  s = line_of(&p, "train { seed -1 + 2 }\n");
  ck_assert_int_eq(s->kind, STMT_SETTING);
  ck_assert_int_eq(s->as.setting.parts.data[0].value->as.binary.left->kind, EXPR_UNARY);
  arena_free(&p.arena);
  s = line_of(&p, "train { print(x) }\n");
  ck_assert_int_eq(s->kind, STMT_EXPR);
  arena_free(&p.arena);
}
END_TEST

int main(void) {
  TCase *tests = tcase_create("parser");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, keywords_agree_with_lexer);
  tcase_add_test(tests, deep_nesting_is_an_error);
  tcase_add_test(tests, long_names_are_cut);
  tcase_add_test(tests, long_lists_are_no_problem);
  tcase_add_test(tests, errors_are_bounded);
  tcase_add_test(tests, odd_files);
  tcase_add_test(tests, operators_bind_as_documented);
  tcase_add_test(tests, spans_cover_the_text);
  tcase_add_test(tests, literals_have_values);
  tcase_add_test(tests, settings_have_parts);
  Suite *suite = suite_create("parser");
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
