/* The report of escapes: one note per place and effect. See escape.h. */
#include "sema/escape.h"

#include <string.h>

void escape_count(Sema *s, DiagCode code, const char *what, Span span, const char *did) {
  s->unrepeatable++;
  for (uint32_t i = 0; i < s->escapes.len; i++) {
    EscapeUse *u = &s->escapes.data[i];
    if (memcmp(&u->span, &span, sizeof span) != 0 || strcmp(u->did, did) != 0) continue;
    u->times++;
    return;
  }
  EscapeUse use = {.code = code, .span = span, .what = what, .did = did, .times = 1};
  VEC_PUSH(s->arena, &s->escapes, use);
}

void escape_report(Sema *s) {
  for (uint32_t i = 0; i < s->escapes.len; i++) {
    const EscapeUse *first = &s->escapes.data[i];
    StrBuf text;
    strbuf_init(&text, s->arena);
    /* all uses of the place are one note: a sink keeps one per code and place */
    for (uint32_t j = i; j < s->escapes.len; j++) {
      const EscapeUse *u = &s->escapes.data[j];
      if (memcmp(&u->span, &first->span, sizeof u->span) != 0) continue;
      strbuf_printf(&text, "%s%s", text.len ? "; " : "", u->did);
      if (u->times > 1) strbuf_printf(&text, ", %u times", u->times);
    }
    const char *path = sources_get(s->sources, first->span.file)->path;
    uint32_t line, col;
    sources_line_col(s->sources, first->span.file, first->span.start, &line, &col);
    diag_emit(s->sink, first->code, first->span, "%s at %s:%u: %s", first->what, path, line,
              text.text);
  }
}
