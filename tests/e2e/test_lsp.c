/* `dtmc lsp` as an editor talks to it: errors and their fixes, placements on hover, formatting,
 * documents that are not saved, and what makes no sense. */
#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/suite.h"

typedef struct Editor {
  FILE *to, *from;
  pid_t server;
  int asked; /* number of the last request */
} Editor;

static Editor e;

static void start(void) {
  int in[2], out[2];
  ck_assert(pipe(in) == 0 && pipe(out) == 0);
  e = (Editor){.server = fork()};
  ck_assert_int_ge(e.server, 0);
  if (e.server == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
      close(in[i]);
      close(out[i]);
    }
    execl(getenv("DTMC"), "dtmc", "lsp", (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  e.to = fdopen(in[1], "w");
  e.from = fdopen(out[0], "r");
}

static int end(void) {
  int status;
  fclose(e.to);
  waitpid(e.server, &status, 0);
  fclose(e.from);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void send_text(const char *text) {
  fprintf(e.to, "Content-Length: %zu\r\n\r\n%s", strlen(text), text);
  fflush(e.to);
}

static void send_json(json_t *message) {
  char *text = json_dumps(message, 0);
  send_text(text);
  free(text);
  json_decref(message);
}

/* The next message, which the caller gives back. */
static json_t *receive(void) {
  char line[256];
  size_t n = 0;
  while (fgets(line, sizeof line, e.from) && strcmp(line, "\r\n") != 0)
    sscanf(line, "Content-Length: %zu", &n);
  ck_assert_msg(n > 0 && n < 1 << 20, "the server sends nothing");
  char *text = calloc(n + 1, 1);
  ck_assert_uint_eq(fread(text, 1, n, e.from), n);
  json_error_t fault;
  json_t *message = json_loads(text, 0, &fault);
  ck_assert_msg(message != NULL, "%s: %s", fault.text, text);
  ck_assert_str_eq(json_string_value(json_object_get(message, "jsonrpc")), "2.0");
  free(text);
  return message;
}

static json_t *ask(const char *method, json_t *params) {
  send_json(json_pack("{s:s, s:i, s:s, s:o}", "jsonrpc", "2.0", "id", ++e.asked, "method", method,
                      "params", params));
  json_t *answer = receive();
  while (!json_object_get(answer, "id")) { /* diagnostics, which nobody asked for */
    json_decref(answer);
    answer = receive();
  }
  ck_assert_int_eq(json_integer_value(json_object_get(answer, "id")), e.asked);
  return answer;
}

static void tell(const char *method, json_t *params) {
  send_json(json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

static json_t *document(const char *uri) {
  return json_pack("{s:{s:s}}", "textDocument", "uri", uri);
}

static void open_text(const char *uri, const char *text) {
  tell("textDocument/didOpen", json_pack("{s:{s:s, s:s, s:i, s:s}}", "textDocument", "uri", uri,
                                         "languageId", "dtm", "version", 1, "text", text));
}

static void change(const char *uri, const char *text) {
  tell("textDocument/didChange", json_pack("{s:{s:s, s:i}, s:[{s:s}]}", "textDocument", "uri", uri,
                                           "version", 2, "contentChanges", "text", text));
}

/* How many diagnostics the next message has for a document; the first one's code, and a copy of
 * all.
 */
static size_t diagnostics(const char *uri, const char **code, json_t **all) {
  static char first[16];
  json_t *m = receive(), *params = json_object_get(m, "params");
  ck_assert_str_eq(json_string_value(json_object_get(m, "method")),
                   "textDocument/publishDiagnostics");
  ck_assert_str_eq(json_string_value(json_object_get(params, "uri")), uri);
  json_t *list = json_object_get(params, "diagnostics");
  size_t n = json_array_size(list);
  if (n && code) {
    snprintf(first, sizeof first, "%s",
             json_string_value(json_object_get(json_array_get(list, 0), "code")));
    *code = first;
  }
  if (all) *all = json_deep_copy(list);
  json_decref(m);
  return n;
}

static void check_range(const json_t *of, int l0, int c0, int l1, int c1) {
  json_int_t a, b, c, d;
  ck_assert_int_eq(json_unpack((json_t *)of, "{s:{s:{s:I, s:I}, s:{s:I, s:I}}}", "range", "start",
                               "line", &a, "character", &b, "end", "line", &c, "character", &d),
                   0);
  ck_assert_msg(a == l0 && b == c0 && c == l1 && d == c1, "%d:%d to %d:%d", (int)a, (int)b, (int)c,
                (int)d);
}

static json_t *at(const char *uri, int line, int character) {
  return json_pack("{s:{s:s}, s:{s:i, s:i}}", "textDocument", "uri", uri, "position", "line", line,
                   "character", character);
}

static void check_hover(const char *uri, int line, int character, const char *types, int c0,
                        int c1) {
  char want[512];
  json_t *answer = ask("textDocument/hover", at(uri, line, character));
  json_t *result = json_object_get(answer, "result");
  ck_assert_msg(json_is_object(result), "nothing at %d:%d", line, character);
  snprintf(want, sizeof want, "```dtm\n%s\n```", types);
  ck_assert_str_eq(json_string_value(json_object_get(json_object_get(result, "contents"), "value")),
                   want);
  check_range(result, line, c0, line, c1);
  json_decref(answer);
}

static void initialize(void) {
  start();
  json_t *answer = ask("initialize", json_object()), *result = json_object_get(answer, "result");
  json_t *can = json_object_get(result, "capabilities");
  ck_assert_int_eq(json_integer_value(json_object_get(can, "textDocumentSync")), 1);
  ck_assert(json_object_get(can, "hoverProvider") && json_object_get(can, "codeActionProvider"));
  json_decref(answer);
  tell("initialized", json_object());
}

static void finish(void) {
  json_t *answer = ask("shutdown", json_null());
  ck_assert(json_is_null(json_object_get(answer, "result")));
  json_decref(answer);
  tell("exit", json_null());
  ck_assert_int_eq(end(), 0);
}

#define PROGRAM "file:///nowhere/a%20program.dtm" /* no file: it is as the editor has it */
#define HEAD                                                                                       \
  "mesh world(dp = 2, tp = 2)\n"                                                                   \
  "fn mlp(name: string, x: f32[B@dp, D], up: f32[H@tp, D], down: f32[D, H@tp]) -> f32[B@dp, D] "   \
  "{\n"                                                                                            \
  "  let h = gelu(linear(x, up))\n"
#define TAIL                                                                                       \
  "}\n"                                                                                            \
  "infer {\n"                                                                                      \
  "  let up = rand(f32[512@tp, 128])\n"                                                            \
  "  print(mlp(\"\xF0\x9F\x98\x80\xC3\xA4\", rand(f32[64@dp, 128]), up, rand(f32[128, "            \
  "512@tp])))\n"                                                                                   \
  "}\n"
#define WRONG HEAD "  return gelu(linear(h, down))\n" TAIL
#define RIGHT HEAD "  return gelu(linear(h, down).redistribute(tp: Replicate))\n" TAIL

START_TEST(a_fault_and_its_fix) {
  const char *code;
  json_t *all;
  initialize();
  open_text(PROGRAM, WRONG);
  ck_assert_uint_eq(diagnostics(PROGRAM, &code, &all), 1);
  ck_assert_str_eq(code, "DTM2004");
  const json_t *d = json_array_get(all, 0);
  check_range(d, 3, 9, 3, 30);
  ck_assert_int_eq(json_integer_value(json_object_get(d, "severity")), 1);
  const char *text = json_string_value(json_object_get(d, "message"));
  ck_assert_msg(strstr(text, "= gelu is not linear") && strstr(text, "all-reduce 16.0 KiB"), "%s",
                text);
  ck_assert_uint_eq(json_array_size(json_object_get(d, "relatedInformation")), 2);
  json_decref(all);

  json_t *where = json_pack("{s:{s:s}, s:{s:{s:i, s:i}, s:{s:i, s:i}}, s:{}}", "textDocument",
                            "uri", PROGRAM, "range", "start", "line", 3, "character", 12, "end",
                            "line", 3, "character", 12, "context");
  json_t *answer = ask("textDocument/codeAction", where),
         *fixes = json_object_get(answer, "result");
  ck_assert_uint_eq(json_array_size(fixes), 1);
  const json_t *edits, *fix = json_array_get(fixes, 0);
  ck_assert_int_eq(json_unpack((json_t *)fix, "{s:{s:{s:o}}}", "edit", "changes", PROGRAM, &edits),
                   0);
  const json_t *edit = json_array_get(edits, 0);
  check_range(edit, 3, 14, 3, 29);
  ck_assert_str_eq(json_string_value(json_object_get(edit, "newText")),
                   "linear(h, down).redistribute(tp: Replicate)");
  json_decref(answer);

  change(PROGRAM, RIGHT); /* which is what the edit makes */
  ck_assert_uint_eq(diagnostics(PROGRAM, NULL, NULL), 0);
  finish();
}
END_TEST

START_TEST(placements_on_hover) {
  initialize();
  open_text(PROGRAM, RIGHT);
  check_hover(PROGRAM, 2, 6, "f32[64@dp, 512@tp]", 6, 7);             /* let h */
  check_hover(PROGRAM, 2, 11, "f32[64@dp, 512@tp]", 10, 29);          /* gelu(...) */
  check_hover(PROGRAM, 3, 15, "f32[64@dp, 128] partial(tp)", 14, 29); /* linear(...) */
  check_hover(PROGRAM, 3, 21, "f32[64@dp, 512@tp]", 21, 22);          /* h where it is used */
  check_hover(PROGRAM, 3, 31, "f32[64@dp, 128]", 14, 57);             /* redistribute */
  check_hover(PROGRAM, 6, 7, "f32[512@tp, 128]", 6, 8);               /* let up */
  check_hover(PROGRAM, 7, 20, "f32[64@dp, 128]", 19, 40); /* behind an emoji and an umlaut */
  json_t *answer = ask("textDocument/hover", at(PROGRAM, 4, 0));
  ck_assert(json_is_null(json_object_get(answer, "result")));
  json_decref(answer);
  answer = ask("textDocument/hover", at(PROGRAM, 999, 999));
  ck_assert(json_is_null(json_object_get(answer, "result")));
  json_decref(answer);
  finish();
}
END_TEST

/* A module is seen in the program that imports it, both as the editor has them. */
START_TEST(documents_that_import) {
#define BLOCKS "file:///nowhere/blocks.dtm"
  static const char program[] = "import \"blocks.dtm\" as blocks\nmesh world(tp = 2)\n"
                                "infer {\n  print(blocks.twice(rand(f32[8@tp, 4])))\n"
                                "  print(blocks.twice(rand(f32[2, 4])))\n}\n";
  const char *code;
  initialize();
  open_text(BLOCKS, "fn twice(x) { return x + x }\n");
  ck_assert_uint_eq(diagnostics(BLOCKS, &code, NULL), 1); /* a note: nothing uses it */
  open_text(PROGRAM, program);
  while (diagnostics(BLOCKS, &code, NULL) > 1) {
  }
  check_hover(BLOCKS, 0, 24, "f32[8@tp, 4]\nf32[2, 4]", 21, 26);
  change(BLOCKS, "fn twice(x) { return x + }\n");
  ck_assert_uint_ge(diagnostics(BLOCKS, &code, NULL), 1);
  ck_assert_str_eq(code, "DTM1001");
  tell("textDocument/didClose", document(BLOCKS));
  ck_assert_uint_ge(diagnostics(PROGRAM, &code, NULL), 1); /* there is no such file */
  ck_assert_uint_eq(diagnostics(BLOCKS, NULL, NULL), 0);
  finish();
}
END_TEST

START_TEST(formatting) {
  initialize();
  open_text(PROGRAM, "mesh world( tp=2 )\ninfer { print( 1 ) }\n");
  json_t *answer = ask("textDocument/formatting", document(PROGRAM)), *edit;
  edit = json_array_get(json_object_get(answer, "result"), 0);
  check_range(edit, 0, 0, 2, 0);
  ck_assert_str_eq(json_string_value(json_object_get(edit, "newText")),
                   "mesh world(tp = 2)\ninfer { print(1) }\n");
  json_decref(answer);
  finish();
}
END_TEST

START_TEST(what_makes_no_sense) {
  initialize();
  send_text("{ this is no JSON");
  json_t *m = receive();
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(m, "error"), "code")),
                   -32700);
  json_decref(m);
  static const struct {
    const char *method;
    int code;
  } rows[] = {{"textDocument/hover", -32602}, {"workspace/symbol", -32601}, {"", -32601}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    m = ask(rows[i].method, at("file:///nowhere/else.dtm", 0, 0));
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(m, "error"), "code")),
                     rows[i].code);
    json_decref(m);
  }
  tell("$/whatever", json_object()); /* may be ignored */
  tell("textDocument/didOpen", json_object());
  tell("textDocument/didChange", at(PROGRAM, 1, 1));
  tell("textDocument/didOpen",
       json_pack("{s:{s:s, s:s}}", "textDocument", "uri", "untitled:1", "text", "mesh"));
  finish();

  start(); /* an editor that goes without a word, or ends before shutdown */
  ck_assert_int_eq(end(), 1);
  start();
  tell("exit", json_null());
  ck_assert_int_eq(end(), 1);
  start();
  fputs("Content-Length: 99999999999\r\n\r\n{}", e.to);
  ck_assert_int_eq(end(), 1);
  start();
  fputs("Content-Length: 100\r\n\r\n{}", e.to);
  ck_assert_int_eq(end(), 1);
}
END_TEST

int main(void) {
  Suite *s = suite_create("lsp");
  TCase *c = tcase_create("lsp");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, a_fault_and_its_fix);
  tcase_add_test(c, placements_on_hover);
  tcase_add_test(c, documents_that_import);
  tcase_add_test(c, formatting);
  tcase_add_test(c, what_makes_no_sense);
  suite_add_tcase(s, c);
  return suite_run(s);
}
