/* Diagnostics as GitHub Actions workflow commands: `::error file=,line=,col=,title=::text`.
 *
 * GitHub shows ten annotations of a kind per step; what is beyond is summed up in the last one.
 * Columns are given only when the span lies on one line, which is what GitHub accepts.
 */
#include <string.h>

#include "diag/render.h"

enum { MAX_ANNOTATIONS = 10 };

/* Percent-encodes what would end the command or a property of it. */
static void put_escaped(StrBuf *out, const char *text, bool property) {
  for (; *text; text++) {
    if (*text == '%' || *text == '\n' || *text == '\r' || (property && strchr(":,", *text)))
      strbuf_printf(out, "%%%02X", (unsigned char)*text);
    else
      strbuf_putc(out, *text);
  }
}

static void put_body(StrBuf *out, const Diag *d) {
  StrBuf text;
  strbuf_init(&text, out->arena);
  strbuf_puts(&text, d->message);
  if (d->label) strbuf_printf(&text, "\n%s", d->label);
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    const char *lead = line->kind == DIAG_REASON ? ""
                       : line->kind == DIAG_NOTE ? "note: "
                                                 : "help: ";
    strbuf_printf(&text, "\n%s%s%s%s", lead, line->text, line->cost ? "    " : "",
                  line->cost ? line->cost : "");
  }
  put_escaped(out, text.text, false);
  strbuf_putc(out, '\n');
}

/* GitHub's word for a severity. */
static const char *command(Severity severity) {
  return severity == SEV_NOTE ? "notice" : diag_severity_name(severity);
}

static void put_annotation(StrBuf *out, const DiagSink *sink, const Diag *d) {
  strbuf_printf(out, "::%s ", command(d->severity));
  const SourceFile *file = sources_get(sink->sources, d->span.file);
  if (file) {
    uint32_t line, col, end_line, end_col;
    sources_line_col(sink->sources, d->span.file, d->span.start, &line, &col);
    sources_line_col(sink->sources, d->span.file, d->span.end, &end_line, &end_col);
    const char *path = file->path;
    while (strncmp(path, "./", 2) == 0) path += 2;
    strbuf_puts(out, "file=");
    put_escaped(out, path, true);
    strbuf_printf(out, ",line=%u,endLine=%u,", line, end_line);
    if (line == end_line)
      strbuf_printf(out, "col=%u,endColumn=%u,", col, end_col > col ? end_col : col + 1);
  }
  strbuf_puts(out, "title=");
  put_escaped(out, diag_info(d->code)->code, true);
  put_escaped(out, ": ", true);
  put_escaped(out, diag_info(d->code)->title, true);
  strbuf_puts(out, "::");
  put_body(out, d);
}

void diag_render_github(const DiagSink *sink, StrBuf *out) {
  const Diag **order = diag_in_source_order(sink, out->arena);
  uint32_t shown[SEV_NOTE + 1] = {0}, total[SEV_NOTE + 1] = {0};
  for (uint32_t i = 0; i < sink->diags.len; i++) total[order[i]->severity]++;
  for (uint32_t i = 0; i < sink->diags.len; i++) {
    Severity sev = order[i]->severity;
    bool last_place = shown[sev] == MAX_ANNOTATIONS - 1 && total[sev] > MAX_ANNOTATIONS;
    if (shown[sev] >= MAX_ANNOTATIONS) continue;
    if (last_place)
      strbuf_printf(out, "::%s title=dtmc::%u more %ss: run dtmc check without --format=github\n",
                    command(sev), total[sev] - shown[sev], diag_severity_name(sev));
    else
      put_annotation(out, sink, order[i]);
    shown[sev]++;
  }
}
