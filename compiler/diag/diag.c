/* The sink: diagnostics are collected, repeated ones dropped, and put in order for rendering. */
#include "diag/diag.h"

#include <stdlib.h>
#include <string.h>

#include "diag/render.h"

static const DiagInfo infos[DIAG_COUNT] = {
#define X(code, id, severity, title, explanation)                                                  \
  [DIAG_##id] = {code, #id, severity, title, explanation},
#include "diag/diag_codes.def"
#undef X
};

const DiagInfo *diag_info(DiagCode code) {
  return code > DIAG_NONE && code < DIAG_COUNT ? &infos[code] : NULL;
}

DiagCode diag_by_code(const char *code) {
  bool prefixed = strncasecmp(code, "DTM", 3) == 0;
  const char *digits = prefixed ? code + 3 : code;
  for (DiagCode c = DIAG_NONE + 1; c < DIAG_COUNT; c++)
    if (strcmp(infos[c].code + 3, digits) == 0) return c;
  return DIAG_NONE;
}

void diag_init(DiagSink *sink, Arena *arena, const Sources *sources) {
  *sink = (DiagSink){.arena = arena, .sources = sources};
}

/* What makes two diagnostics the same. Without a place the text has to decide. */
static uint64_t identity(const Diag *d) {
  uint32_t key[4] = {(uint32_t)d->code, d->span.file, d->span.start, d->span.end};
  uint64_t h = hash_bytes(key, sizeof key, 7);
  return d->span.file ? h : hash_bytes(d->message, strlen(d->message), h);
}

Diag *diag_emit(DiagSink *sink, DiagCode code, Span span, const char *fmt, ...) {
  Diag *d = ARENA_NEW(sink->arena, Diag);
  *d = (Diag){.code = code, .severity = infos[code].severity, .span = span};
  va_list ap;
  va_start(ap, fmt);
  d->message = arena_vprintf(sink->arena, fmt, ap);
  va_end(ap);
  uint64_t key = identity(d);
  if (id_map_get(&sink->seen, key, &(uint32_t){0})) return d;
  id_map_put(sink->arena, &sink->seen, key, sink->diags.len);
  VEC_PUSH(sink->arena, &sink->diags, d);
  if (d->severity == SEV_ERROR) sink->errors++;
  if (d->severity == SEV_WARNING) sink->warnings++;
  return d;
}

void diag_label(DiagSink *sink, Diag *d, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  d->label = arena_vprintf(sink->arena, fmt, ap);
  va_end(ap);
}

void diag_reason(DiagSink *sink, Diag *d, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  DiagLine line = {.kind = DIAG_REASON, .text = arena_vprintf(sink->arena, fmt, ap)};
  va_end(ap);
  VEC_PUSH(sink->arena, &d->lines, line);
}

void diag_note(DiagSink *sink, Diag *d, Span span, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  DiagLine line = {.kind = DIAG_NOTE, .span = span, .text = arena_vprintf(sink->arena, fmt, ap)};
  va_end(ap);
  VEC_PUSH(sink->arena, &d->lines, line);
}

void diag_help(DiagSink *sink, Diag *d, Span span, const char *replacement, const char *cost,
               const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  DiagLine line = {.kind = DIAG_HELP,
                   .span = span,
                   .text = arena_vprintf(sink->arena, fmt, ap),
                   .replacement = replacement ? arena_strdup(sink->arena, replacement) : NULL,
                   .cost = cost ? arena_strdup(sink->arena, cost) : NULL};
  va_end(ap);
  VEC_PUSH(sink->arena, &d->lines, line);
}

typedef struct Ranked {
  const Diag *diag;
  uint32_t index;
} Ranked;

static int compare_place(const void *a, const void *b) {
  const Ranked *x = a, *y = b;
  const Span s = x->diag->span, t = y->diag->span;
  if (s.file != t.file) return s.file < t.file ? -1 : 1;
  if (s.file && s.start != t.start) return s.start < t.start ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

const Diag **diag_in_source_order(const DiagSink *sink, Arena *scratch) {
  uint32_t n = sink->diags.len;
  Ranked *ranked = ARENA_ARRAY(scratch, Ranked, n + 1);
  for (uint32_t i = 0; i < n; i++) ranked[i] = (Ranked){sink->diags.data[i], i};
  qsort(ranked, n, sizeof *ranked, compare_place);
  const Diag **order = ARENA_ARRAY(scratch, const Diag *, n + 1);
  for (uint32_t i = 0; i < n; i++) order[i] = ranked[i].diag;
  return order;
}

const char *diag_severity_name(Severity severity) {
  switch (severity) {
  case SEV_ERROR:
    return "error";
  case SEV_WARNING:
    return "warning";
  case SEV_NOTE:
    return "note";
  }
  return "error";
}

void diag_render(const DiagSink *sink, FILE *out, DiagFormat format, bool color) {
  Arena scratch;
  arena_init(&scratch);
  StrBuf text;
  strbuf_init(&text, &scratch);
  switch (format) {
  case DIAG_TEXT:
    diag_render_text(sink, &text, color);
    break;
  case DIAG_JSON:
    diag_render_json(sink, &text);
    break;
  case DIAG_SARIF:
    diag_render_sarif(sink, &text);
    break;
  case DIAG_GITHUB:
    diag_render_github(sink, &text);
    break;
  }
  fwrite(text.text, 1, text.len, out);
  arena_free(&scratch);
}
