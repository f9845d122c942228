/* Diagnostics as one JSON object for tools; places carry lines, columns and byte offsets. */
#include "base/json.h"
#include "diag/render.h"

static void put_place(JsonWriter *j, const Sources *sources, Span span) {
  const SourceFile *file = sources_get(sources, span.file);
  if (!file) return;
  uint32_t line, col, end_line, end_col;
  sources_line_col(sources, span.file, span.start, &line, &col);
  sources_line_col(sources, span.file, span.end, &end_line, &end_col);
  json_begin_object(j, "place");
  json_text(j, "file", file->path);
  json_int(j, "line", line);
  json_int(j, "column", col);
  json_int(j, "end_line", end_line);
  json_int(j, "end_column", end_col);
  json_int(j, "offset", span.start);
  json_int(j, "end_offset", span.end);
  json_end(j);
}

static void put_lines(JsonWriter *j, const DiagSink *sink, const Diag *d, const char *key,
                      DiagLineKind kind) {
  json_begin_array(j, key);
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    if (line->kind != kind) continue;
    json_begin_object(j, NULL);
    json_text(j, "text", line->text);
    put_place(j, sink->sources, line->span);
    if (line->replacement) json_text(j, "replacement", line->replacement);
    if (line->cost) json_text(j, "cost", line->cost);
    json_end(j);
  }
  json_end(j);
}

void diag_render_json(const DiagSink *sink, StrBuf *out) {
  JsonWriter j;
  json_init(&j, out, false);
  const Diag **order = diag_in_source_order(sink, out->arena);
  json_begin_object(&j, NULL);
  json_begin_array(&j, "diagnostics");
  for (uint32_t i = 0; i < sink->diags.len; i++) {
    const Diag *d = order[i];
    json_begin_object(&j, NULL);
    json_text(&j, "code", diag_info(d->code)->code);
    json_text(&j, "severity", diag_severity_name(d->severity));
    json_text(&j, "message", d->message);
    if (d->label) json_text(&j, "label", d->label);
    put_place(&j, sink->sources, d->span);
    put_lines(&j, sink, d, "reasons", DIAG_REASON);
    put_lines(&j, sink, d, "notes", DIAG_NOTE);
    put_lines(&j, sink, d, "fixes", DIAG_HELP);
    json_end(&j);
  }
  json_end(&j);
  json_int(&j, "errors", sink->errors);
  json_int(&j, "warnings", sink->warnings);
  json_end(&j);
}
