/* Every .dtm file of the repository, and every ```dtm example of the documentation, is printed,
 * parsed and printed again: both texts are equal, and no comment is lost. Files with syntax errors
 * (golden tests) must only survive being printed. */
#include <check.h>
#include <string.h>

#include "golden.h"
#include "grammar/parse.h"
#include "support/suite.h"

static Arena arena;
static PathList programs, documents;

typedef struct Parsed {
  Interner names;
  Sources sources;
  DiagSink sink;
  File *file;
  StrBuf printed;
} Parsed;

static void parse(Parsed *p, const char *path, const char *text, size_t size) {
  interner_init(&p->names, &arena);
  sources_init(&p->sources, &arena);
  diag_init(&p->sink, &arena, &p->sources);
  uint32_t id = sources_add(&p->sources, path, text, (uint32_t)size);
  p->file = ast_parse(&arena, &p->names, &p->sink, id);
  strbuf_init(&p->printed, &arena);
  ast_print(&p->sources, p->file, &p->printed);
}

static const char *first_error(const Parsed *p) {
  const Diag *d = p->sink.diags.data[0];
  return arena_printf(&arena, "%s: %s", span_print(&arena, &p->sources, d->span), d->message);
}

/* The comments of a file as they are, in order. */
static char *comments_of(const Parsed *p) {
  StrBuf out;
  strbuf_init(&out, &arena);
  const char *text = sources_get(&p->sources, p->file->source)->text;
  for (uint32_t i = 0; i < p->file->comments.len; i++) {
    Span c = p->file->comments.data[i];
    uint32_t end = c.end;
    while (end > c.start && strchr(" \t\r", text[end - 1])) end--;
    strbuf_put_n(&out, text + c.start, end - c.start);
    strbuf_putc(&out, '\n');
  }
  return out.text;
}

static void check_round_trip(const char *path, const Parsed *first) {
  Parsed second, bare;
  parse(&second, path, first->printed.text, first->printed.len);
  ck_assert_msg(second.sink.errors == 0, "%s: printed text does not parse: %s\n%s", path,
                second.sink.errors ? first_error(&second) : "", first->printed.text);
  ck_assert_msg(strcmp(first->printed.text, second.printed.text) == 0,
                "%s: printing is not stable\n--- first\n%s\n--- second\n%s", path,
                first->printed.text, second.printed.text);
  ck_assert_str_eq(comments_of(first), comments_of(&second));
  /* Without the source text the tree alone must give the same program. */
  StrBuf plain, again;
  strbuf_init(&plain, &arena);
  strbuf_init(&again, &arena);
  ast_print(NULL, first->file, &plain);
  parse(&bare, path, plain.text, plain.len);
  ck_assert_msg(bare.sink.errors == 0, "%s: printed without source it does not parse: %s\n%s", path,
                bare.sink.errors ? first_error(&bare) : "", plain.text);
  ast_print(NULL, bare.file, &again);
  ck_assert_str_eq(plain.text, again.text);
}

START_TEST(program) {
  size_t size;
  const char *path = programs.data[_i];
  char *text = read_text(&arena, path, &size);
  Parsed first;
  parse(&first, path, text, size);
  bool may_be_wrong = strstr(path, "/tests/golden/") != NULL;
  ck_assert_msg(may_be_wrong || first.sink.errors == 0, "%s",
                first.sink.errors ? first_error(&first) : "");
  StrBuf formatted;
  DiagSink sink; /* of its own: an error said before would not count again */
  diag_init(&sink, &arena, &first.sources);
  bool good = ast_format(&arena, &first.names, &sink, first.file->source, &formatted);
  ck_assert_msg(good == (first.sink.errors == 0), "%s: dtmc fmt", path);
  if (!good) return;
  ck_assert_str_eq(formatted.text, first.printed.text);
  check_round_trip(path, &first);
}
END_TEST

/* The language reference names every word of the language. */
START_TEST(reference_has_every_word) {
  const char *text = read_text(&arena, "../../grammar/README.md", NULL), *word;
  int token;
  bool reserved;
  for (unsigned i = 0; (word = parser_keyword(i, &token, &reserved)); i++)
    ck_assert_msg(strstr(text, arena_printf(&arena, "\"%s\"", word)), "%s is not in the grammar",
                  word);
}
END_TEST

START_TEST(document) {
  const char *path = documents.data[_i];
  char *text = read_text(&arena, path, NULL);
  for (char *s = text; (s = strstr(s, "\n```dtm\n"));) {
    s += strlen("\n```dtm\n");
    char *end = strstr(s, "\n```");
    ck_assert_msg(end, "%s: an example is not closed", path);
    Parsed example;
    parse(&example, path, s, (size_t)(end + 1 - s));
    ck_assert_msg(example.sink.errors == 0, "%s: an example does not parse: %s\n%.*s", path,
                  example.sink.errors ? first_error(&example) : "", (int)(end - s), s);
    check_round_trip(path, &example);
    s = end + 1;
  }
}
END_TEST

int main(void) {
  arena_init(&arena);
  find_sources(&arena, "../..", ".dtm", &programs);
  find_sources(&arena, "../..", ".md", &documents);
  TCase *tests = tcase_create("roundtrip");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, program, 0, (int)programs.len);
  tcase_add_test(tests, reference_has_every_word);
  tcase_add_loop_test(tests, document, 0, (int)documents.len);
  Suite *suite = suite_create("roundtrip");
  suite_add_tcase(suite, tests);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
