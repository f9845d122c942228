/* Diagnostics as text for people:
 *
 *     error[DTM2004]: gelu cannot take a Partial operand on mesh dim tp
 *       --> mlp.dtm:14:13
 *        |
 *     14 |     let h = gelu(linear(x, w2))
 *        |             ^^^^ operand is f32[B@dp, S, D] partial(tp)
 *        = gelu is not linear: gelu of a sum is not the sum of gelus
 *     note: partial since mlp.dtm:14:18: linear contracts F, ...
 *     help: linear(x, w2).redistribute(tp: Replicate)    forward all-reduce 16.0 MiB, backward none
 */
#include <string.h>

#include "base/utf8.h"
#include "diag/render.h"

/* Longer lines are shown as a window around the caret. */
enum { LINE_WINDOW = 160, WINDOW_LEAD = 60, COST_GAP = 4 };

typedef struct Style {
  const char *error, *warning, *code, *gutter, *note, *help, *bold, *off;
} Style;

static const Style plain = {"", "", "", "", "", "", "", ""};
static const Style ansi = {"\033[1;31m", "\033[1;33m", "\033[1m", "\033[1;34m",
                           "\033[1;36m", "\033[1;32m", "\033[1m", "\033[0m"};

typedef struct TextRenderer {
  const DiagSink *sink;
  StrBuf *out;
  const Style *style;
} TextRenderer;

/* Terminal cells of a character: East Asian wide forms take two. */
static uint32_t cells(uint32_t c) {
  bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
              (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
              (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
              (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
              (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

/* Appends the characters of [begin, end), what a terminal could not show replaced. */
static void put_source(StrBuf *out, const SourceFile *file, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin, bytes; i < end; i += bytes) {
    uint32_t c = utf8_decode(file->text + i, end - i, &bytes);
    if (c == UTF8_BAD || (c < 0x20 && c != '\t') || c == 0x7F)
      strbuf_puts(out, "\xEF\xBF\xBD");
    else
      strbuf_put_n(out, file->text + i, bytes);
  }
}

/* Appends `mark` once per cell of [begin, end); as padding (' ') tabs stay tabs. Returns cells. */
static uint32_t put_cells(StrBuf *out, const SourceFile *file, uint32_t begin, uint32_t end,
                          char mark) {
  uint32_t n = 0;
  for (uint32_t i = begin, bytes; i < end; i += bytes) {
    uint32_t c = utf8_decode(file->text + i, end - i, &bytes);
    for (uint32_t k = cells(c); k > 0; k--, n++)
      strbuf_putc(out, c == '\t' && mark == ' ' ? '\t' : mark);
  }
  return n;
}

/* Moves an offset forward to the start of a character. */
static uint32_t char_start(const SourceFile *file, uint32_t offset) {
  while (offset < file->size && ((unsigned char)file->text[offset] & 0xC0) == 0x80) offset++;
  return offset;
}

/* One line of source and, below it, carets under the part of `span` that lies on it. */
static void put_excerpt(TextRenderer *r, const SourceFile *file, Span span, uint32_t line,
                        unsigned width, const char *label, const char *tint) {
  StrBuf *out = r->out;
  uint32_t begin = file->line_starts[line - 1];
  uint32_t end = line < file->nlines ? file->line_starts[line] - 1 : file->size;
  if (end > begin && file->text[end - 1] == '\r') end--;
  uint32_t start = span.start < end ? span.start : end;
  bool cut_front = end - begin > LINE_WINDOW && start - begin > WINDOW_LEAD;
  if (cut_front) begin = char_start(file, start - WINDOW_LEAD);
  bool cut_back = end - begin > LINE_WINDOW;
  if (cut_back) end = char_start(file, begin + LINE_WINDOW);
  uint32_t stop = span.end < end ? span.end : end;

  strbuf_printf(out, "%s%*u |%s %s", r->style->gutter, (int)width, line, r->style->off,
                cut_front ? "..." : "");
  put_source(out, file, begin, end);
  strbuf_printf(out, "%s\n%s%*s |%s %s", cut_back ? "..." : "", r->style->gutter, (int)width, "",
                r->style->off, cut_front ? "   " : "");
  put_cells(out, file, begin, start, ' ');
  strbuf_puts(out, tint);
  if (put_cells(out, file, start, stop, '^') == 0) strbuf_putc(out, '^');
  strbuf_printf(out, "%s%s%s\n", label ? " " : "", label ? label : "", r->style->off);
}

static unsigned digits(uint32_t n) {
  unsigned d = 1;
  for (; n >= 10; n /= 10) d++;
  return d;
}

static void put_lines(TextRenderer *r, const Diag *d, unsigned width) {
  const Style *st = r->style;
  size_t widest = 0; /* of the helps with a cost: costs form a column */
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    if (line->kind == DIAG_HELP && line->cost && strlen(line->text) > widest)
      widest = strlen(line->text);
  }
  for (DiagLineKind kind = DIAG_REASON; kind <= DIAG_HELP; kind++) {
    for (uint32_t i = 0; i < d->lines.len; i++) {
      const DiagLine *line = &d->lines.data[i];
      if (line->kind != kind) continue;
      switch (kind) {
      case DIAG_REASON:
        strbuf_printf(r->out, "%s%*s =%s %s\n", st->gutter, (int)width, "", st->off, line->text);
        break;
      case DIAG_NOTE: {
        const char *place = span_print(r->out->arena, r->sink->sources, line->span);
        bool add_place = line->span.file && !strstr(line->text, place);
        strbuf_printf(r->out, "%snote:%s %s%s%s\n", st->note, st->off, add_place ? place : "",
                      add_place ? ": " : "", line->text);
        break;
      }
      case DIAG_HELP:
        strbuf_printf(r->out, "%shelp:%s %s", st->help, st->off, line->text);
        if (line->cost)
          strbuf_printf(r->out, "%*s%s", (int)(widest - strlen(line->text) + COST_GAP), "",
                        line->cost);
        strbuf_putc(r->out, '\n');
        break;
      }
    }
  }
}

static void put_diag(TextRenderer *r, const Diag *d) {
  const Style *st = r->style;
  const char *tint = d->severity == SEV_ERROR ? st->error : st->warning;
  strbuf_printf(r->out, "%s%s[%s]%s%s: %s%s\n", tint, diag_severity_name(d->severity),
                diag_info(d->code)->code, st->off, st->bold, d->message, st->off);
  const SourceFile *file = sources_get(r->sink->sources, d->span.file);
  unsigned width = 2;
  if (file) {
    uint32_t line, col;
    sources_line_col(r->sink->sources, d->span.file, d->span.start, &line, &col);
    width = digits(line);
    strbuf_printf(r->out, "%s%*s-->%s %s:%u:%u\n", st->gutter, (int)width, "", st->off, file->path,
                  line, col);
    strbuf_printf(r->out, "%s%*s |%s\n", st->gutter, (int)width, "", st->off);
    put_excerpt(r, file, d->span, line, width, d->label, tint);
  } else if (d->label) {
    strbuf_printf(r->out, "%s%*s =%s %s\n", st->gutter, (int)width, "", st->off, d->label);
  }
  put_lines(r, d, width);
}

void diag_render_text(const DiagSink *sink, StrBuf *out, bool color) {
  TextRenderer r = {sink, out, color ? &ansi : &plain};
  const Diag **order = diag_in_source_order(sink, out->arena);
  uint32_t faults = sink->errors + sink->warnings;
  for (uint32_t i = 0, shown = 0; i < sink->diags.len; i++) {
    if (order[i]->severity == SEV_NOTE) continue;
    if (shown++) strbuf_putc(out, '\n');
    put_diag(&r, order[i]);
  }
  if (faults && sink->diags.len > faults) strbuf_putc(out, '\n');
  for (uint32_t i = 0; i < sink->diags.len; i++)
    if (order[i]->severity == SEV_NOTE)
      strbuf_printf(out, "%snote:%s %s\n", r.style->note, r.style->off, order[i]->message);
  if (!faults) return;
  strbuf_printf(out, "\n%u error%s, %u warning%s\n", sink->errors, sink->errors == 1 ? "" : "s",
                sink->warnings, sink->warnings == 1 ? "" : "s");
}
