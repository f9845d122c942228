/* Golden tests: programs beside what the compiler says about them.
 *
 * syntax/  parsed by the library. Diagnostics are expected by comments in the program; NAME.expect
 *          holds the rendered text, NAME.ast the canonical source, where such a file exists.
 * check/   checked by `dtmc check`; the first line may say `// flags: --mesh tp=2 -D n=3`.
 * Diagnostics by comments; NAME.expect holds the text output, where it exists. Without a dtmc (see
 *          DTMC below) elaboration is called directly, which finds all but fixes and warnings.
 * cli/     NAME.cli: lines `$ command`, each followed by its output and `exit N` when N is not 0.
 *
 * Every code of diag_codes.def is met by some file here, or stands in uncovered.txt with a reason;
 * a code there that is met is an error too, so the list can only shrink. DTM_UPDATE=1 rewrites the
 * stored files (not the comments). DTMC in the environment is the path of the compiler.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diag/render.h"
#include "golden.h"
#include "sema/sema.h"
#include "syntax/ast.h"
#include "support/suite.h"

static Arena arena; /* of this process; lists of files are made before the suite */
static PathList syntax_files, check_files, cli_files;

static char *with_suffix(const char *path, const char *suffix) {
  return arena_printf(&arena, "%.*s%s", (int)(strrchr(path, '.') - path), path, suffix);
}

static char *render(const DiagSink *sink, DiagFormat format) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  diag_render(sink, out, format, false);
  fclose(out);
  char *copy = arena_strdup(&arena, text);
  free(text);
  return copy;
}

static void find_in_sink(const DiagSink *sink, ExpectationList *found) {
  for (uint32_t i = 0; i < sink->diags.len; i++) {
    const Diag *d = sink->diags.data[i];
    Expectation e = {.severity = diag_severity_name(d->severity)[0], .text = d->message};
    uint32_t col;
    strcpy(e.code, diag_info(d->code)->code);
    sources_line_col(sink->sources, d->span.file, d->span.start, &e.line, &col);
    VEC_PUSH(&arena, found, e);
  }
}

START_TEST(syntax_file) {
  const char *path = syntax_files.data[_i];
  Interner names;
  Sources sources;
  DiagSink sink;
  interner_init(&names, &arena);
  sources_init(&sources, &arena);
  diag_init(&sink, &arena, &sources);
  uint32_t id = sources_read(&sources, path);
  ck_assert_msg(id, "cannot read %s", path);
  File *file = ast_parse(&arena, &names, &sink, id);

  ExpectationList expected = {0}, found = {0};
  find_expectations(&arena, sources_get(&sources, id)->text, &expected);
  find_in_sink(&sink, &found);
  match_expectations(path, &expected, &found);
  compare_with_file(&arena, with_suffix(path, ".expect"), render(&sink, DIAG_TEXT), false);

  StrBuf printed;
  strbuf_init(&printed, &arena);
  ast_print(&sources, file, &printed);
  compare_with_file(&arena, with_suffix(path, ".ast"), printed.text, false);
}
END_TEST

/* The flags a program asks for in its first line. */
static const char *flags_of(const char *text) {
  static const char lead[] = "// flags: ";
  if (strncmp(text, lead, sizeof lead - 1) != 0) return "";
  return arena_strndup(&arena, text + sizeof lead - 1, strcspn(text + sizeof lead - 1, "\r\n"));
}

static void find_in_json(const char *path, const char *output, ExpectationList *found) {
  json_error_t error;
  json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root, "%s: the output of dtmc is not JSON (%s):\n%s", path, error.text, output);
  size_t i;
  json_t *d;
  json_array_foreach(json_object_get(root, "diagnostics"), i, d) {
    json_t *place = json_object_get(d, "place");
    Expectation e = {.severity = json_string_value(json_object_get(d, "severity"))[0],
                     .line = (unsigned)json_integer_value(json_object_get(place, "line")),
                     .text =
                         arena_strdup(&arena, json_string_value(json_object_get(d, "message")))};
    snprintf(e.code, sizeof e.code, "%s", json_string_value(json_object_get(d, "code")));
    VEC_PUSH(&arena, found, e);
  }
  json_decref(root);
}

START_TEST(check_file) {
  const char *path = check_files.data[_i];
  char *text = read_text(&arena, path, NULL);
  const char *flags = flags_of(text), *slash = strrchr(path, '/');
  const char *command = arena_printf(&arena, "cd %.*s && \"$DTMC\" check %s --color=never",
                                     (int)(slash - path), path, flags);
  int status;
  char *output =
      run_command(&arena, arena_printf(&arena, "%s --format=json %s", command, slash + 1), &status);
  ExpectationList expected = {0}, found = {0};
  find_expectations(&arena, text, &expected);
  find_in_json(path, output, &found);
  match_expectations(path, &expected, &found);
  bool errors = false;
  for (uint32_t i = 0; i < expected.len; i++) errors |= expected.data[i].severity == 'e';
  ck_assert_msg(status == (errors ? 1 : 0), "%s: exit status %d", path, status);

  char *stored = with_suffix(path, ".expect");
  if (access(stored, F_OK) != 0) return;
  output = run_command(&arena, arena_printf(&arena, "%s %s", command, slash + 1), &status);
  compare_with_file(&arena, stored, output, false);
}
END_TEST

/* Splits "--mesh tp=2 -D n=3" into options of sema. */
static void read_flags(const char *flags, SemaOptions *options) {
  char *copy = arena_strdup(&arena, flags), *save = NULL;
  VEC(ConfigOverride) defines = {0};
  for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    char *value = strtok_r(NULL, " ", &save), *equals = value ? strchr(value, '=') : NULL;
    ck_assert_msg(value, "flag %s has no value", word);
    if (strcmp(word, "--mesh") == 0) {
      options->mesh = value;
    } else {
      ck_assert_msg(strcmp(word, "-D") == 0 && equals, "unknown flag %s %s", word, value);
      *equals = 0;
      VEC_PUSH(&arena, &defines, (ConfigOverride){value, equals + 1});
    }
  }
  options->defines = defines.data;
  options->ndefines = defines.len;
}

START_TEST(check_file_by_library) {
  const char *path = check_files.data[_i];
  char *text = read_text(&arena, path, NULL);
  SemaOptions options = {.main_path = path, .stdlib = "../../stdlib"};
  read_flags(flags_of(text), &options);
  Interner names;
  Sources sources;
  DiagSink sink;
  interner_init(&names, &arena);
  sources_init(&sources, &arena);
  diag_init(&sink, &arena, &sources);
  sema_run(&options, &arena, &names, &sources, &sink);
  ExpectationList expected = {0}, found = {0};
  find_expectations(&arena, text, &expected);
  find_in_sink(&sink, &found);
  match_expectations(path, &expected, &found);
}
END_TEST

START_TEST(cli_file) {
  const char *path = cli_files.data[_i];
  char *text = read_text(&arena, path, NULL);
  const char *slash = strrchr(path, '/');
  StrBuf actual;
  strbuf_init(&actual, &arena);
  for (char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    if (strncmp(line, "$ ", 2) == 0) {
      int status;
      char *output =
          run_command(&arena,
                      arena_printf(&arena, "cd %.*s && PATH=\"$(dirname \"$DTMC\"):$PATH\"; %.*s",
                                   (int)(slash - path), path, (int)(n - 2), line + 2),
                      &status);
      strbuf_printf(&actual, "%.*s\n%s", (int)n, line, output);
      if (status) strbuf_printf(&actual, "exit %d\n", status);
    }
    line += n + (line[n] == '\n');
  }
  compare_with_file(&arena, path, actual.text, true);
}
END_TEST

static void note_codes(const PathList *files, bool *met) {
  for (uint32_t i = 0; i < files->len; i++) {
    const char *text = read_text(&arena, files->data[i], NULL);
    for (const char *s = text; (s = strstr(s, "[DTM")); s += 4) {
      char code[8] = {0};
      if (strlen(s) < 9 || s[8] != ']') continue;
      memcpy(code, s + 1, 7);
      met[diag_by_code(code)] = true;
    }
  }
}

START_TEST(every_code_is_met) {
  bool met[DIAG_COUNT] = {false}, listed[DIAG_COUNT] = {false};
  note_codes(&syntax_files, met);
  note_codes(&check_files, met);
  note_codes(&cli_files, met);
  char *list = read_text(&arena, "uncovered.txt", NULL);
  ck_assert_msg(list, "uncovered.txt is missing");
  for (char *line = list; *line;) {
    size_t n = strcspn(line, "\n");
    char code[8] = {0};
    if (n > 8 && line[0] != '#') {
      memcpy(code, line, 7);
      DiagCode c = diag_by_code(code);
      ck_assert_msg(c, "uncovered.txt lists %s, which does not exist", code);
      ck_assert_msg(!met[c], "%s is met by a golden file: take it off uncovered.txt", code);
      listed[c] = true;
    }
    line += n + (line[n] == '\n');
  }
  StrBuf missing;
  strbuf_init(&missing, &arena);
  for (DiagCode c = DIAG_NONE + 1; c < DIAG_COUNT; c++)
    if (!met[c] && !listed[c])
      strbuf_printf(&missing, "  %s %s\n", diag_info(c)->code, diag_info(c)->title);
  ck_assert_msg(missing.len == 0,
                "no golden file meets these codes; write one (tests/golden/check/NAME.dtm with an "
                "expectation comment, or cli/NAME.cli), or list them with the reason in "
                "uncovered.txt:\n%s",
                missing.text);
}
END_TEST

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--update") == 0) setenv("DTM_UPDATE", "1", 1);
  arena_init(&arena);
  find_sources(&arena, "syntax", ".dtm", &syntax_files);
  find_sources(&arena, "check", ".dtm", &check_files);
  find_sources(&arena, "cli", ".cli", &cli_files);
  TCase *tests = tcase_create("golden");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, syntax_file, 0, (int)syntax_files.len);
  const char *dtmc = getenv("DTMC");
  if (dtmc && access(dtmc, X_OK) == 0) {
    tcase_add_loop_test(tests, check_file, 0, (int)check_files.len);
    tcase_add_loop_test(tests, cli_file, 0, (int)cli_files.len);
  } else {
    printf("DTMC does not name the compiler: its command line is not tested\n");
    tcase_add_loop_test(tests, check_file_by_library, 0, (int)check_files.len);
  }
  tcase_add_test(tests, every_code_is_met);
  Suite *suite = suite_create("golden");
  suite_add_tcase(suite, tests);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
