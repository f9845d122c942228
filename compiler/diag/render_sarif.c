/* Diagnostics as SARIF 2.1.0 (OASIS), with what GitHub code scanning needs: rules, relative URIs,
 * regions, related locations and a fingerprint that survives moved lines. */
#include <string.h>

#include "base/json.h"
#include "base/uri.h"
#include "diag/render.h"

#define SARIF_SCHEMA "https://json.schemastore.org/sarif-2.1.0.json"

static void put_physical(JsonWriter *j, const Sources *sources, Span span) {
  const SourceFile *file = sources_get(sources, span.file);
  uint32_t line, col, end_line, end_col;
  sources_line_col(sources, span.file, span.start, &line, &col);
  sources_line_col(sources, span.file, span.end, &end_line, &end_col);
  json_begin_object(j, "physicalLocation");
  json_begin_object(j, "artifactLocation");
  json_text(j, "uri", uri_of_path(j->out->arena, file->path));
  json_end(j);
  json_begin_object(j, "region");
  json_int(j, "startLine", line);
  json_int(j, "startColumn", col);
  json_int(j, "endLine", end_line);
  json_int(j, "endColumn", end_line == line && end_col <= col ? col + 1 : end_col);
  json_end(j);
  json_end(j);
}

/* Code, message and the text of the line without its margin: stable when other lines change. */
static const char *fingerprint(Arena *arena, const Sources *sources, const Diag *d) {
  const char *code = diag_info(d->code)->code;
  uint64_t h = hash_stable(code, strlen(code), 0);
  h = hash_stable(d->message, strlen(d->message), h);
  const SourceFile *file = sources_get(sources, d->span.file);
  if (file) {
    uint32_t line, col;
    sources_line_col(sources, d->span.file, d->span.start, &line, &col);
    uint32_t start = file->line_starts[line - 1];
    uint32_t end = line < file->nlines ? file->line_starts[line] - 1 : file->size;
    while (start < end && strchr(" \t", file->text[start])) start++;
    while (end > start && strchr(" \t\r", file->text[end - 1])) end--;
    h = hash_stable(file->text + start, end - start, h);
  }
  return arena_printf(arena, "%016llx", (unsigned long long)h);
}

static void put_rules(JsonWriter *j, const DiagSink *sink, int *rule_index) {
  int n = 0;
  json_begin_array(j, "rules");
  for (DiagCode c = DIAG_NONE + 1; c < DIAG_COUNT; c++) {
    bool used = false;
    for (uint32_t i = 0; i < sink->diags.len && !used; i++) used = sink->diags.data[i]->code == c;
    if (!used) continue;
    const DiagInfo *info = diag_info(c);
    rule_index[c] = n++;
    json_begin_object(j, NULL);
    json_text(j, "id", info->code);
    json_text(j, "name", info->id);
    json_begin_object(j, "shortDescription");
    json_text(j, "text", info->title);
    json_end(j);
    json_begin_object(j, "fullDescription");
    json_text(j, "text", info->explanation);
    json_end(j);
    json_begin_object(j, "defaultConfiguration");
    json_text(j, "level", diag_severity_name(info->severity));
    json_end(j);
    json_end(j);
  }
  json_end(j);
}

static void put_result(JsonWriter *j, const DiagSink *sink, const Diag *d, const int *rule_index) {
  Arena *arena = j->out->arena;
  json_begin_object(j, NULL);
  json_text(j, "ruleId", diag_info(d->code)->code);
  json_int(j, "ruleIndex", rule_index[d->code]);
  json_text(j, "level", diag_severity_name(d->severity));
  StrBuf text;
  strbuf_init(&text, arena);
  strbuf_puts(&text, d->message);
  if (d->label) strbuf_printf(&text, "\n%s", d->label);
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    switch (line->kind) {
    case DIAG_REASON:
      strbuf_printf(&text, "\n%s", line->text);
      break;
    case DIAG_NOTE:
      if (!line->span.file) strbuf_printf(&text, "\nnote: %s", line->text);
      break;
    case DIAG_HELP:
      strbuf_printf(&text, "\nhelp: %s%s%s", line->text, line->cost ? "    " : "",
                    line->cost ? line->cost : "");
      break;
    }
  }
  json_begin_object(j, "message");
  json_text(j, "text", text.text);
  json_end(j);
  json_begin_array(j, "locations");
  if (d->span.file) {
    json_begin_object(j, NULL);
    put_physical(j, sink->sources, d->span);
    json_end(j);
  }
  json_end(j);
  json_begin_array(j, "relatedLocations");
  for (uint32_t i = 0, id = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    if (line->kind != DIAG_NOTE || !line->span.file) continue;
    json_begin_object(j, NULL);
    json_int(j, "id", id++);
    put_physical(j, sink->sources, line->span);
    json_begin_object(j, "message");
    json_text(j, "text", line->text);
    json_end(j);
    json_end(j);
  }
  json_end(j);
  json_begin_object(j, "partialFingerprints");
  json_text(j, "dtmcMessage/v1", fingerprint(arena, sink->sources, d));
  json_end(j);
  json_end(j);
}

void diag_render_sarif(const DiagSink *sink, StrBuf *out) {
  JsonWriter j;
  json_init(&j, out, false);
  int rule_index[DIAG_COUNT] = {0};
  const Diag **order = diag_in_source_order(sink, out->arena);
  json_begin_object(&j, NULL);
  json_text(&j, "$schema", SARIF_SCHEMA);
  json_text(&j, "version", "2.1.0");
  json_begin_array(&j, "runs");
  json_begin_object(&j, NULL);
  json_begin_object(&j, "tool");
  json_begin_object(&j, "driver");
  json_text(&j, "name", "dtmc");
  json_text(&j, "version", DTM_VERSION);
  put_rules(&j, sink, rule_index);
  json_end(&j);
  json_end(&j);
  json_text(&j, "columnKind", "unicodeCodePoints");
  json_begin_array(&j, "results");
  for (uint32_t i = 0; i < sink->diags.len; i++) put_result(&j, sink, order[i], rule_index);
  json_end(&j);
  json_end(&j);
  json_end(&j);
  json_end(&j);
}
