/* `dtmc fmt` of one file: parse, print, and make sure that nothing but layout changed. */
#include <string.h>

#include "syntax/ast.h"

/* Parses `text` as one more source; its errors go to a sink of their own. */
static File *reparse(Arena *arena, const char *text, size_t size, Sources *sources,
                     uint32_t *errors) {
  Interner names;
  DiagSink sink;
  sources_init(sources, arena);
  interner_init(&names, arena);
  diag_init(&sink, arena, sources);
  uint32_t id = sources_add(sources, "formatted", text, (uint32_t)size);
  File *file = ast_parse(arena, &names, &sink, id);
  *errors = sink.errors;
  return file;
}

bool ast_format(Arena *arena, Interner *names, DiagSink *sink, uint32_t source, StrBuf *out) {
  uint32_t before = sink->errors, errors;
  File *file = ast_parse(arena, names, sink, source);
  if (sink->errors != before) return false;
  strbuf_init(out, arena);
  ast_print(sink->sources, file, out);
  /* The printer is trusted as far as it can be checked: same tree, all comments, stable. */
  Sources sources;
  File *again = reparse(arena, out->text, out->len, &sources, &errors);
  StrBuf plain, plain_again, stable;
  strbuf_init(&plain, arena);
  strbuf_init(&plain_again, arena);
  strbuf_init(&stable, arena);
  ast_print(NULL, file, &plain);
  ast_print(NULL, again, &plain_again);
  ast_print(&sources, again, &stable);
  bool good = errors == 0 && again->comments.len == file->comments.len &&
              strcmp(plain.text, plain_again.text) == 0 && strcmp(stable.text, out->text) == 0;
  if (good) return true;
  Diag *d = diag_emit(sink, DIAG_FORMAT, (Span){source, 0, 0},
                      "the file cannot be formatted without changing it");
  diag_reason(sink, d, "it is left as it is; this is a fault of dtmc");
  return false;
}
