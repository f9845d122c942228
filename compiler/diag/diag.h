/* Diagnostics: collected, never printed where they arise, rendered by the driver.
 *
 * Every code is a row of diag_codes.def. Faults are collected so that all errors of a file show in
 * one run; a fault that repeats (same code and place, as in a module instantiated 126 times) is
 * kept once.
 */
#ifndef DTM_DIAG_DIAG_H
#define DTM_DIAG_DIAG_H

#include <stdio.h>

#include "base/str.h"
#include "base/vec.h"

/* A range of bytes of one source file. file 0 = no place (command line, whole program). */
typedef struct Span {
  uint32_t file;
  uint32_t start, end;
} Span;

typedef struct SourceFile {
  const char *path; /* as the user would write it */
  const char *text; /* NUL-terminated */
  uint32_t size;
  uint32_t *line_starts, nlines;
} SourceFile;

typedef struct Sources {
  Arena *arena;
  VEC(SourceFile *) files; /* data[id - 1] */
} Sources;

void sources_init(Sources *sources, Arena *arena);
/* Id of a new file with this text (copied). */
uint32_t sources_add(Sources *sources, const char *path, const char *text, uint32_t size);
/* Reads a file; 0 with errno set when it cannot be read. */
uint32_t sources_read(Sources *sources, const char *path);
const SourceFile *sources_get(const Sources *sources, uint32_t id);
/* 1-based line and column (in characters, UTF-8 aware) of a byte offset. */
void sources_line_col(const Sources *sources, uint32_t id, uint32_t offset, uint32_t *line,
                      uint32_t *col);
/* "mlp.dtm:14:13" */
const char *span_print(Arena *arena, const Sources *sources, Span span);

/* A note tells what the compiler did where the program allowed it; it is no fault. */
typedef enum Severity { SEV_ERROR = 1, SEV_WARNING, SEV_NOTE } Severity;

typedef enum DiagCode {
  DIAG_NONE = 0,
#define X(code, id, severity, title, explanation) DIAG_##id,
#include "diag/diag_codes.def"
#undef X
  DIAG_COUNT
} DiagCode;

typedef struct DiagInfo {
  const char *code; /* "DTM2004" */
  const char *id;   /* "PARTIAL_OPERAND" */
  Severity severity;
  const char *title;
  const char *explanation; /* text of `dtmc explain`, several paragraphs with an example */
} DiagInfo;

const DiagInfo *diag_info(DiagCode code);
DiagCode diag_by_code(const char *code); /* "DTM2004" or "2004"; DIAG_NONE when unknown */

/* The text of `dtmc explain CODE`: code, title, explanation. */
void diag_explain(DiagCode code, StrBuf *out);
/* One line per code, `DTM2004  error    operator cannot take a Partial operand`. */
void diag_list(StrBuf *out);

typedef enum DiagLineKind {
  DIAG_REASON = 1, /* "   = gelu is not linear: ..." */
  DIAG_NOTE,       /* "note: partial since mlp.dtm:14:18: ..." */
  DIAG_HELP        /* "help: linear(x, w2).redistribute(tp: Replicate)   forward ..." */
} DiagLineKind;

typedef struct DiagLine {
  DiagLineKind kind;
  Span span; /* NOTE: where; HELP: what the replacement replaces; file 0 = none */
  const char *text;
  const char *replacement; /* HELP: text to paste in place of span, or NULL */
  const char *cost;        /* HELP: "forward all-reduce 16.0 MiB, backward none", or NULL */
} DiagLine;

/* A change of one operand's layout that may cure an error; the driver verifies it by elaborating
 * the program again with it applied, prices it, and turns the survivors into DIAG_HELP lines. */
typedef struct FixCandidate FixCandidate; /* defined in ir/fix.h */

typedef struct Diag {
  DiagCode code;
  Severity severity; /* normally that of the code; --strict and --werror raise it */
  Span span;
  const char *message; /* first line */
  const char *label;   /* beside the caret, or NULL */
  VEC(DiagLine) lines;
  VEC(FixCandidate *) fixes;
} Diag;

typedef struct DiagSink {
  Arena *arena;
  const Sources *sources;
  VEC(Diag *) diags;
  uint32_t errors, warnings;
  IdMap seen; /* (code, span) -> present */
} DiagSink;

void diag_init(DiagSink *sink, Arena *arena, const Sources *sources);
/* Records a diagnostic. A repeated (code, span) returns a diagnostic that is not kept, so callers
 * may always add lines to what they get. */
Diag *diag_emit(DiagSink *sink, DiagCode code, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void diag_label(DiagSink *sink, Diag *d, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void diag_reason(DiagSink *sink, Diag *d, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void diag_note(DiagSink *sink, Diag *d, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* `replacement` may be NULL when the help is prose. */
void diag_help(DiagSink *sink, Diag *d, Span span, const char *replacement, const char *cost,
               const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Renders all diagnostics in source order, then "N errors, M warnings" for text. */
typedef enum DiagFormat { DIAG_TEXT = 1, DIAG_JSON, DIAG_SARIF, DIAG_GITHUB } DiagFormat;
void diag_render(const DiagSink *sink, FILE *out, DiagFormat format, bool color);

#endif
