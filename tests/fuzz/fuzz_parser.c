/* libFuzzer target: any bytes through lexer, parser, printer and the renderers.
 *
 * Beyond "does not crash": what parses without error is printed, parses again, prints the same, and
 * keeps its comments; printed without its source it parses too. Build with clang and
 * -DDTM_FUZZ=ON; see README.md. */
#include <stdlib.h>
#include <string.h>

#include "syntax/ast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Parsed {
  Sources sources;
  Interner names;
  DiagSink sink;
  File *file;
} Parsed;

static void parse(Parsed *p, Arena *arena, const char *text, size_t size) {
  sources_init(&p->sources, arena);
  interner_init(&p->names, arena);
  diag_init(&p->sink, arena, &p->sources);
  uint32_t id = sources_add(&p->sources, "input.dtm", text, (uint32_t)size);
  p->file = ast_parse(arena, &p->names, &p->sink, id);
}

static void require(bool condition, const char *what, const char *text) {
  if (condition) return;
  fprintf(stderr, "%s\n%s\n", what, text);
  abort();
}

static void check_round_trip(Arena *arena, const Parsed *first, const char *printed, size_t size) {
  Parsed second, third;
  StrBuf again, plain;
  strbuf_init(&again, arena);
  strbuf_init(&plain, arena);
  parse(&second, arena, printed, size);
  require(second.sink.errors == 0, "printed text does not parse", printed);
  require(second.file->comments.len == first->file->comments.len, "comments are lost", printed);
  ast_print(&second.sources, second.file, &again);
  require(strcmp(again.text, printed) == 0, "printing is not stable", printed);
  ast_print(NULL, first->file, &plain);
  parse(&third, arena, plain.text, plain.len);
  require(third.sink.errors == 0, "printed without source it does not parse", plain.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena arena;
  arena_init(&arena);
  Parsed first;
  parse(&first, &arena, (const char *)data, size);
  StrBuf printed;
  strbuf_init(&printed, &arena);
  ast_print(&first.sources, first.file, &printed);
  if (first.sink.errors == 0) check_round_trip(&arena, &first, printed.text, printed.len);
  static const DiagFormat formats[] = {DIAG_TEXT, DIAG_JSON, DIAG_SARIF, DIAG_GITHUB};
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    diag_render(&first.sink, out, formats[i], i == 0);
  fclose(out);
  free(text);
  arena_free(&arena);
  return 0;
}
