/* Diagnostics: places, the sink, the four renderers, the explanations. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "diag/diag.h"
#include "support/suite.h"

typedef struct World {
  Arena arena;
  Sources sources;
  DiagSink sink;
  uint32_t mlp;
} World;

static const char program[] = "module M() {\n"
                              "    let h = gelu(linear(x, w2))\n"
                              "\tlet \xC3\xA4 = 1\r\n"
                              "}\n";

static void setup(World *w) {
  memset(w, 0, sizeof *w);
  arena_init(&w->arena);
  sources_init(&w->sources, &w->arena);
  diag_init(&w->sink, &w->arena, &w->sources);
  w->mlp = sources_add(&w->sources, "./mlp.dtm", program, sizeof program - 1);
}

/* The span of the n-th occurrence of `what`. */
static Span span_of(const World *w, const char *what) {
  const char *at = strstr(program, what);
  ck_assert_ptr_nonnull(at);
  uint32_t start = (uint32_t)(at - program);
  return (Span){w->mlp, start, start + (uint32_t)strlen(what)};
}

static char *rendered(World *w, DiagFormat format, bool color) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  diag_render(&w->sink, out, format, color);
  fclose(out);
  char *copy = arena_strdup(&w->arena, text);
  free(text);
  return copy;
}

static void emit_example(World *w) {
  Diag *d = diag_emit(&w->sink, DIAG_PARTIAL_OPERAND, span_of(w, "gelu"),
                      "gelu cannot take a Partial operand on mesh dim %s", "tp");
  diag_label(&w->sink, d, "operand is f32[B@dp, S, D] partial(tp)");
  diag_reason(&w->sink, d, "gelu is not linear: gelu of a sum is not the sum of gelus");
  diag_help(&w->sink, d, span_of(w, "linear(x, w2)"), "linear(x, w2).redistribute(tp: Replicate)",
            "forward all-reduce 16.0 MiB, backward none", "%s",
            "linear(x, w2).redistribute(tp: Replicate)");
  diag_help(&w->sink, d, span_of(w, "linear(x, w2)"), "linear(x, w2).redistribute(tp: Shard(1))",
            "forward reduce-scatter 8.0 MiB, backward all-gather 8.0 MiB", "%s",
            "linear(x, w2).redistribute(tp: Shard(1))");
  diag_note(&w->sink, d, span_of(w, "linear"), "partial since %s: linear contracts F",
            span_print(&w->arena, &w->sources, span_of(w, "linear")));
}

START_TEST(places_count_characters) {
  World w;
  setup(&w);
  uint32_t line, col;
  sources_line_col(&w.sources, w.mlp, 0, &line, &col);
  ck_assert_uint_eq(line, 1);
  ck_assert_uint_eq(col, 1);
  sources_line_col(&w.sources, w.mlp, span_of(&w, " = 1").start, &line, &col);
  ck_assert_uint_eq(line, 3);
  ck_assert_uint_eq(col, 7); /* tab, l, e, t, blank, one two-byte letter */
  sources_line_col(&w.sources, w.mlp, 1000000, &line, &col); /* beyond the end: the end */
  ck_assert_uint_eq(line, 5);
  ck_assert_uint_eq(col, 1);
  sources_line_col(&w.sources, 7, 0, &line, &col); /* no such file */
  ck_assert_uint_eq(line, 0);
  ck_assert_uint_eq(sources_read(&w.sources, "/does/not/exist"), 0);
  ck_assert_uint_eq(sources_read(&w.sources, "/"), 0);
  arena_free(&w.arena);
}
END_TEST

START_TEST(repeated_are_kept_once) {
  World w;
  setup(&w);
  for (int i = 0; i < 126; i++) emit_example(&w);
  ck_assert_uint_eq(w.sink.diags.len, 1);
  ck_assert_uint_eq(w.sink.errors, 1);
  diag_emit(&w.sink, DIAG_SYNTAX, span_of(&w, "gelu"), "another code at the same place");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "no place, one text");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "no place, another text");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "no place, one text");
  ck_assert_uint_eq(w.sink.errors, 4);
  arena_free(&w.arena);
}
END_TEST

START_TEST(text_is_exact) {
  World w;
  setup(&w);
  emit_example(&w);
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "something without a place");
  char *text = rendered(&w, DIAG_TEXT, false);
  ck_assert_str_eq(
      text, "error[DTM1001]: something without a place\n"
            "\n"
            "error[DTM2004]: gelu cannot take a Partial operand on mesh dim tp\n"
            " --> ./mlp.dtm:2:13\n"
            "  |\n"
            "2 |     let h = gelu(linear(x, w2))\n"
            "  |             ^^^^ operand is f32[B@dp, S, D] partial(tp)\n"
            "  = gelu is not linear: gelu of a sum is not the sum of gelus\n"
            "note: partial since ./mlp.dtm:2:18: linear contracts F\n"
            "help: linear(x, w2).redistribute(tp: Replicate)    forward all-reduce 16.0 MiB, "
            "backward none\n"
            "help: linear(x, w2).redistribute(tp: Shard(1))     forward reduce-scatter 8.0 MiB, "
            "backward all-gather 8.0 MiB\n"
            "\n"
            "2 errors, 0 warnings\n");
  text = rendered(&w, DIAG_TEXT, true);
  ck_assert_ptr_nonnull(strstr(text, "\033[1;31m^^^^"));
  arena_free(&w.arena);
}
END_TEST

START_TEST(text_of_odd_places) {
  World w;
  setup(&w);
  diag_emit(&w.sink, DIAG_SYNTAX, span_of(&w, "\xC3\xA4"), "a letter behind a tab");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){w.mlp, 0, sizeof program - 1}, "the whole file");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){w.mlp, sizeof program - 1, sizeof program - 1}, "its end");
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){w.mlp, 12, 12}, "the end of a line");
  char *text = rendered(&w, DIAG_TEXT, false);
  ck_assert_ptr_nonnull(strstr(text, "3 | \tlet \xC3\xA4 = 1\n  | \t    ^\n"));
  ck_assert_ptr_nonnull(strstr(text, "1 | module M() {\n  | ^^^^^^^^^^^^\n"));
  ck_assert_ptr_nonnull(strstr(text, "5 | \n  | ^\n"));
  ck_assert_ptr_nonnull(strstr(text, "1 | module M() {\n  |             ^\n"));
  arena_free(&w.arena);
}
END_TEST

START_TEST(long_lines_are_cut) {
  World w;
  setup(&w);
  char *line = arena_alloc(&w.arena, 5001);
  memset(line, 'a', 5000);
  memcpy(line + 4000, "HERE", 4);
  uint32_t id = sources_add(&w.sources, "long.dtm", line, 5000);
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){id, 4000, 4004}, "far to the right");
  char *text = rendered(&w, DIAG_TEXT, false);
  ck_assert_ptr_nonnull(strstr(text, "1 | ...aaa"));
  ck_assert_uint_lt(strlen(text), 800);
  /* the caret stands under what it marks */
  size_t columns[2];
  static const char *const marks[] = {"HERE", "^^^^"};
  for (int i = 0; i < 2; i++) {
    size_t at = (size_t)(strstr(text, marks[i]) - text), start = at;
    while (start > 0 && text[start - 1] != '\n') start--;
    columns[i] = at - start;
  }
  ck_assert_uint_eq(columns[0], columns[1]);
  arena_free(&w.arena);
}
END_TEST

static json_t *parsed(World *w, DiagFormat format) {
  char *text = rendered(w, format, false);
  json_error_t error;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root, "line %d: %s\n%s", error.line, error.text, text);
  return root;
}

static const char *string_at(json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  ck_assert_msg(value, "no string \"%s\"", key);
  return value;
}

START_TEST(json_is_complete) {
  World w;
  setup(&w);
  emit_example(&w);
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "odd: \" \\ \n \x01 \xFF \xC3\xA4");
  json_t *root = parsed(&w, DIAG_JSON), *list = json_object_get(root, "diagnostics");
  ck_assert_int_eq(json_array_size(list), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "errors")), 2);
  ck_assert_str_eq(string_at(json_array_get(list, 0), "message"),
                   "odd: \" \\ \n \x01 \xEF\xBF\xBD \xC3\xA4");
  ck_assert_ptr_null(json_object_get(json_array_get(list, 0), "place"));
  json_t *d = json_array_get(list, 1), *place = json_object_get(d, "place");
  ck_assert_str_eq(string_at(d, "code"), "DTM2004");
  ck_assert_str_eq(string_at(d, "severity"), "error");
  ck_assert_str_eq(string_at(place, "file"), "./mlp.dtm");
  ck_assert_int_eq(json_integer_value(json_object_get(place, "line")), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(place, "column")), 13);
  ck_assert_int_eq(json_integer_value(json_object_get(place, "end_column")), 17);
  json_t *fixes = json_object_get(d, "fixes");
  ck_assert_int_eq(json_array_size(fixes), 2);
  ck_assert_str_eq(string_at(json_array_get(fixes, 1), "replacement"),
                   "linear(x, w2).redistribute(tp: Shard(1))");
  ck_assert_int_eq(json_array_size(json_object_get(d, "notes")), 1);
  json_decref(root);
  arena_free(&w.arena);
}
END_TEST

/* What the compiler tells without finding fault: one line, and no error or warning. */
START_TEST(notes_are_no_faults) {
  World w;
  setup(&w);
  diag_emit(&w.sink, DIAG_AUTO_INSERTED, (Span){0}, "auto at m.dtm:3: 2 redistributes inserted");
  ck_assert_int_eq(w.sink.errors + w.sink.warnings, 0);
  ck_assert_str_eq(rendered(&w, DIAG_TEXT, false),
                   "note: auto at m.dtm:3: 2 redistributes inserted\n");
  ck_assert_ptr_nonnull(strstr(rendered(&w, DIAG_SARIF, false), "\"level\": \"note\""));
  ck_assert_int_eq(strncmp(rendered(&w, DIAG_GITHUB, false), "::notice ", 9), 0);
  json_t *root = parsed(&w, DIAG_JSON), *list = json_object_get(root, "diagnostics");
  ck_assert_str_eq(string_at(json_array_get(list, 0), "severity"), "note");
  json_decref(root);
  emit_example(&w);
  char *text = rendered(&w, DIAG_TEXT, false);
  const char *error = strstr(text, "error["), *note = strstr(text, "\nnote: auto at");
  ck_assert(error && note && error < note && strstr(note, "\n1 error, 0 warnings\n"));
  arena_free(&w.arena);
}
END_TEST

START_TEST(empty_json_is_valid) {
  World w;
  setup(&w);
  json_t *root = parsed(&w, DIAG_JSON);
  ck_assert_int_eq(json_array_size(json_object_get(root, "diagnostics")), 0);
  json_decref(root);
  root = parsed(&w, DIAG_SARIF);
  ck_assert_int_eq(json_array_size(json_object_get(root, "runs")), 1);
  json_decref(root);
  char *text = rendered(&w, DIAG_TEXT, false);
  ck_assert_str_eq(text, "");
  arena_free(&w.arena);
}
END_TEST

/* What code scanning reads, by the names of the SARIF 2.1.0 standard. */
START_TEST(sarif_has_what_scanning_needs) {
  World w;
  setup(&w);
  emit_example(&w);
  diag_emit(&w.sink, DIAG_SYNTAX, span_of(&w, "module"), "first");
  json_t *root = parsed(&w, DIAG_SARIF);
  ck_assert_str_eq(string_at(root, "version"), "2.1.0");
  ck_assert_ptr_nonnull(strstr(string_at(root, "$schema"), "sarif-2.1.0"));
  json_t *run = json_array_get(json_object_get(root, "runs"), 0);
  json_t *driver = json_object_get(json_object_get(run, "tool"), "driver");
  ck_assert_str_eq(string_at(driver, "name"), "dtmc");
  json_t *rules = json_object_get(driver, "rules"), *results = json_object_get(run, "results");
  ck_assert_int_eq(json_array_size(rules), 2);
  ck_assert_int_eq(json_array_size(results), 2);
  size_t i;
  json_t *result;
  json_array_foreach(results, i, result) {
    json_t *rule =
        json_array_get(rules, (size_t)json_integer_value(json_object_get(result, "ruleIndex")));
    ck_assert_str_eq(string_at(rule, "id"), string_at(result, "ruleId"));
    ck_assert_str_eq(string_at(result, "level"), "error");
    string_at(json_object_get(result, "message"), "text");
    json_t *location = json_array_get(json_object_get(result, "locations"), 0);
    json_t *physical = json_object_get(location, "physicalLocation");
    ck_assert_str_eq(string_at(json_object_get(physical, "artifactLocation"), "uri"), "mlp.dtm");
    json_t *region = json_object_get(physical, "region");
    ck_assert_int_ge(json_integer_value(json_object_get(region, "startLine")), 1);
    ck_assert_int_gt(json_integer_value(json_object_get(region, "endColumn")),
                     json_integer_value(json_object_get(region, "startColumn")));
    ck_assert_int_eq(json_object_size(json_object_get(result, "partialFingerprints")), 1);
  }
  json_t *related = json_object_get(json_array_get(results, 1), "relatedLocations");
  ck_assert_int_eq(json_array_size(related), 1);
  json_decref(root);
  arena_free(&w.arena);
}
END_TEST

static const char *fingerprint_with(const char *before) {
  World w;
  setup(&w);
  char *moved = arena_printf(&w.arena, "%s%s", before, program);
  uint32_t id = sources_add(&w.sources, "moved.dtm", moved, (uint32_t)strlen(moved));
  uint32_t start = (uint32_t)(strstr(moved, "gelu") - moved);
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){id, start, start + 4}, "the same");
  json_t *root = parsed(&w, DIAG_SARIF);
  json_t *run = json_array_get(json_object_get(root, "runs"), 0);
  json_t *result = json_array_get(json_object_get(run, "results"), 0);
  char *print = strdup(string_at(json_object_get(result, "partialFingerprints"), "dtmcMessage/v1"));
  json_decref(root);
  arena_free(&w.arena);
  return print;
}

START_TEST(fingerprints_survive_moved_lines) {
  const char *here = fingerprint_with(""), *below = fingerprint_with("// one\n// two\n");
  ck_assert_str_eq(here, below);
  free((void *)here);
  free((void *)below);
}
END_TEST

START_TEST(github_is_escaped_and_bounded) {
  World w;
  setup(&w);
  emit_example(&w);
  char *text = rendered(&w, DIAG_GITHUB, false);
  const char *head = "::error file=mlp.dtm,line=2,endLine=2,col=13,endColumn=17,title=DTM2004%3A ";
  ck_assert_msg(strncmp(text, head, strlen(head)) == 0, "%s", text);
  ck_assert_ptr_nonnull(strstr(text, "::gelu cannot take"));
  ck_assert_ptr_nonnull(strstr(text, "%0Agelu is not linear"));
  ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
  diag_emit(&w.sink, DIAG_SYNTAX, (Span){w.mlp, 0, sizeof program - 1}, "100%% of the file");
  text = rendered(&w, DIAG_GITHUB, false);
  ck_assert_ptr_nonnull(strstr(text, "line=1,endLine=5,title="));
  ck_assert_ptr_nonnull(strstr(text, "::100%25 of the file\n"));
  for (int i = 0; i < 30; i++) diag_emit(&w.sink, DIAG_SYNTAX, (Span){0}, "number %d", i);
  text = rendered(&w, DIAG_GITHUB, false);
  int lines = 0;
  for (const char *s = text; *s; s++) lines += *s == '\n';
  ck_assert_int_eq(lines, 10);
  ck_assert_ptr_nonnull(strstr(text, "::23 more errors"));
  arena_free(&w.arena);
}
END_TEST

START_TEST(every_code_is_explained) {
  Arena arena;
  arena_init(&arena);
  for (DiagCode c = DIAG_NONE + 1; c < DIAG_COUNT; c++) {
    const DiagInfo *info = diag_info(c);
    ck_assert_int_eq(diag_by_code(info->code), c);
    ck_assert_int_eq(diag_by_code(info->code + 3), c);
    if (c > DIAG_NONE + 1)
      ck_assert_msg(strcmp(diag_info(c - 1)->code, info->code) < 0, "%s is out of order",
                    info->code);
    size_t n = strlen(info->explanation);
    ck_assert_msg(n > 80, "%s: explain what is wrong, why, and the remedy", info->code);
    ck_assert_msg(info->explanation[n - 1] == '\n', "%s: the last line does not end", info->code);
    ck_assert_msg(strstr(info->explanation, "\n    "), "%s: an example is missing", info->code);
    ck_assert_msg(info->title[strlen(info->title) - 1] != '.', "%s: title with full stop",
                  info->code);
    for (const char *s = info->explanation; *s;) {
      size_t width = strcspn(s, "\n");
      ck_assert_msg(width <= 106, "%s: line of %zu bytes: %.40s...", info->code, width, s);
      s += width + (s[width] == '\n');
    }
    StrBuf text;
    strbuf_init(&text, &arena);
    diag_explain(c, &text);
    ck_assert_ptr_nonnull(strstr(text.text, info->title));
  }
  ck_assert_int_eq(diag_by_code("dtm2004"), DIAG_PARTIAL_OPERAND);
  ck_assert_int_eq(diag_by_code("DTM9999"), DIAG_NONE);
  ck_assert_int_eq(diag_by_code(""), DIAG_NONE);
  arena_free(&arena);
}
END_TEST

int main(void) {
  TCase *tests = tcase_create("diag");
  tcase_add_test(tests, places_count_characters);
  tcase_add_test(tests, repeated_are_kept_once);
  tcase_add_test(tests, text_is_exact);
  tcase_add_test(tests, text_of_odd_places);
  tcase_add_test(tests, long_lines_are_cut);
  tcase_add_test(tests, json_is_complete);
  tcase_add_test(tests, notes_are_no_faults);
  tcase_add_test(tests, empty_json_is_valid);
  tcase_add_test(tests, sarif_has_what_scanning_needs);
  tcase_add_test(tests, fingerprints_survive_moved_lines);
  tcase_add_test(tests, github_is_escaped_and_bounded);
  tcase_add_test(tests, every_code_is_explained);
  Suite *suite = suite_create("diag");
  suite_add_tcase(suite, tests);
  return suite_run(suite);
}
