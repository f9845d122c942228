/* `dtmc lsp`: a server of the language server protocol (3.17) on standard input and output.
 *
 * Every request elaborates the program anew: that takes milliseconds, and nothing of an earlier one
 * is left to be wrong. Open documents are read as the editor has them, imported ones too. */
#ifndef DTM_DRIVER_LSP_H
#define DTM_DRIVER_LSP_H

#include "base/json.h"
#include "driver/session.h"

typedef struct LspDocument {
  char *uri, *path, *text;
} LspDocument;

typedef struct Lsp {
  const Session *given; /* its options: --mesh, -D, -I */
  LspDocument *documents;
  uint32_t ndocuments;
  char **reported; /* uris of files that have diagnostics */
  uint32_t nreported;
  bool stopping; /* shutdown was asked for */
} Lsp;

/* A place as the protocol has it: lines from 0, characters in units of UTF-16. */
typedef struct LspPlace {
  uint32_t line, character;
} LspPlace;

/* --- lsp_text.c ---- */
LspPlace lsp_place(const char *text, size_t offset);
/* The byte at a place; the end of the line, or of the text, where there is no such place. */
size_t lsp_offset(const char *text, LspPlace place);
/* "range" or another key: { start, end } of bytes of a text. */
void lsp_put_range(JsonWriter *j, const char *key, const char *text, size_t start, size_t end);

/* --- lsp_answer.c: the value of `result`, or of `params` ---- */
/* A session in which the open documents are sources. */
bool lsp_begin(const Lsp *l, Session *s);
/* textDocument/publishDiagnostics, for file `id` of a session that was checked. */
void lsp_put_diagnostics(JsonWriter *j, const Session *s, uint32_t id, const char *uri);
/* The fixes that errors offer where [start, end) of the document is. */
void lsp_put_fixes(JsonWriter *j, const Session *s, const LspDocument *d, size_t start, size_t end);
/* The placements of what is at a byte of the document. */
void lsp_put_hover(JsonWriter *j, const Lsp *l, const LspDocument *d, size_t offset);
/* The edit that makes the document canonical. */
void lsp_put_formatting(JsonWriter *j, const Lsp *l, const LspDocument *d);

#endif
