/* What the language server says of a program: see lsp.h. */
#include <ctype.h>
#include <string.h>

#include "base/uri.h"
#include "driver/commands.h"
#include "driver/fixes.h"
#include "driver/lsp.h"
#include "syntax/ast.h"

bool lsp_begin(const Lsp *l, Session *s) {
  *s = (Session){.options = l->given->options};
  arena_init(&s->arena);
  if (!session_init(s)) return false;
  for (uint32_t i = 0; i < l->ndocuments; i++)
    sources_add(&s->sources, l->documents[i].path, l->documents[i].text,
                (uint32_t)strlen(l->documents[i].text));
  return true;
}

/* --- diagnostics ---- */

static const char *text_of(const Session *s, uint32_t file) {
  return sources_get(&s->sources, file)->text;
}

/* The message, what stands beside the caret, why, and what would help. */
static const char *whole_message(Arena *arena, const Diag *d) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, d->message);
  if (d->label) strbuf_printf(&sb, "\n%s", d->label);
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    if (line->kind == DIAG_REASON) strbuf_printf(&sb, "\n= %s", line->text);
    if (line->kind == DIAG_HELP)
      strbuf_printf(&sb, "\nhelp: %s%s%s", line->text, line->cost ? "    " : "",
                    line->cost ? line->cost : "");
  }
  return sb.text;
}

static void put_notes(JsonWriter *j, const Session *s, Arena *arena, const Diag *d) {
  json_begin_array(j, "relatedInformation");
  for (uint32_t i = 0; i < d->lines.len; i++) {
    const DiagLine *line = &d->lines.data[i];
    if (line->kind != DIAG_NOTE || !line->span.file) continue;
    json_begin_object(j, NULL);
    json_begin_object(j, "location");
    json_text(j, "uri", uri_of_path(arena, sources_get(&s->sources, line->span.file)->path));
    lsp_put_range(j, "range", text_of(s, line->span.file), line->span.start, line->span.end);
    json_end(j);
    json_text(j, "message", line->text);
    json_end(j);
  }
  json_end(j);
}

static void put_diagnostic(JsonWriter *j, const Session *s, const char *key, const Diag *d) {
  Arena arena;
  arena_init(&arena);
  json_begin_object(j, key);
  lsp_put_range(j, "range", d->span.file ? text_of(s, d->span.file) : "", d->span.start,
                d->span.end);
  json_int(j, "severity", d->severity); /* the protocol numbers them alike */
  json_text(j, "code", diag_info(d->code)->code);
  json_text(j, "source", "dtmc");
  json_text(j, "message", whole_message(&arena, d));
  put_notes(j, s, &arena, d);
  json_end(j);
  arena_free(&arena);
}

void lsp_put_diagnostics(JsonWriter *j, const Session *s, uint32_t id, const char *uri) {
  json_begin_object(j, "params");
  json_text(j, "uri", uri);
  json_begin_array(j, "diagnostics");
  for (uint32_t i = 0; i < s->sink.diags.len; i++) {
    const Diag *d = s->sink.diags.data[i];
    if (d->span.file == id) put_diagnostic(j, s, NULL, d);
  }
  json_end(j);
  json_end(j);
}

/* --- fixes ---- */

static uint32_t file_of(const Session *s, const LspDocument *d) {
  for (uint32_t i = 0; i < s->sources.files.len; i++)
    if (strcmp(s->sources.files.data[i]->path, d->path) == 0) return i + 1;
  return 0;
}

static void put_fix(JsonWriter *j, const Session *s, const LspDocument *d, const Diag *of,
                    const DiagLine *line) {
  json_begin_object(j, NULL);
  json_text(j, "title",
            arena_printf(j->out->arena, "%s%s%s", line->replacement, line->cost ? "    " : "",
                         line->cost ? line->cost : ""));
  json_text(j, "kind", "quickfix");
  json_begin_array(j, "diagnostics");
  put_diagnostic(j, s, NULL, of);
  json_end(j);
  json_begin_object(j, "edit");
  json_begin_object(j, "changes");
  json_begin_array(j, d->uri);
  json_begin_object(j, NULL);
  lsp_put_range(j, "range", d->text, line->span.start, line->span.end);
  json_text(j, "newText", line->replacement);
  json_end(j);
  json_end(j);
  json_end(j);
  json_end(j);
  json_end(j);
}

void lsp_put_fixes(JsonWriter *j, const Session *s, const LspDocument *d, size_t start,
                   size_t end) {
  uint32_t file = file_of(s, d);
  json_begin_array(j, "result");
  for (uint32_t i = 0; i < s->sink.diags.len; i++) {
    const Diag *of = s->sink.diags.data[i];
    if (of->span.file != file || of->span.start > end || of->span.end < start) continue;
    for (uint32_t k = 0; k < of->lines.len; k++) {
      const DiagLine *line = &of->lines.data[k];
      if (line->replacement && line->span.file == file) put_fix(j, s, d, of, line);
    }
  }
  json_end(j);
}

/* --- hover ---- */

/* The word at a byte, and what is known of it. */
typedef struct Hover {
  const char *text; /* of the document */
  uint32_t file;
  size_t offset;
  Span word;       /* of a name; empty where there is none */
  bool called;     /* a parenthesis follows it */
  Span at;         /* what is described */
  size_t distance; /* from the name to what was given that name */
  bool named;      /* it is what the name stands for, not what is computed here */
  VEC(const char *) types;
} Hover;

static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

static void find_word(Hover *h) {
  size_t start = h->offset, end = h->offset;
  while (start > 0 && in_word(h->text[start - 1])) start--;
  while (in_word(h->text[end])) end++;
  h->word = (Span){h->file, (uint32_t)start, (uint32_t)end};
  const char *behind = h->text + end + strspn(h->text + end, " ");
  h->called = end > start && *behind == '(';
}

static bool is_word(const Hover *h, const char *name) {
  size_t n = h->word.end - h->word.start;
  return n && strlen(name) == n && memcmp(h->text + h->word.start, name, n) == 0;
}

static void add_type(Arena *arena, Hover *h, const TensorType *type) {
  const char *text = type_print(arena, type);
  for (uint32_t i = 0; i < h->types.len; i++)
    if (strcmp(h->types.data[i], text) == 0) return;
  VEC_PUSH(arena, &h->types, text);
}

/* Something better than what was found so far begins the list anew. */
static void take(Arena *arena, Hover *h, Span span, size_t distance, bool named,
                 const TensorType *type) {
  if (distance < h->distance || named != h->named || !h->types.len) {
    h->types.len = 0;
    h->at = span;
    h->distance = distance;
    h->named = named;
  }
  add_type(arena, h, type);
}

/* A `let` of this name: the nearest one before the word, or behind it on its line. */
static void see_name(Arena *arena, Hover *h, const Value *v, Span span) {
  if (!v->name || h->called || span.file != h->file || !is_word(h, v->name)) return;
  bool before = span.start <= h->word.start;
  size_t lo = before ? span.start : h->word.start, hi = before ? h->word.start : span.start;
  if (!before && memchr(h->text + lo, '\n', hi - lo)) return;
  if (h->named && h->types.len && hi - lo > h->distance) return;
  take(arena, h, span, hi - lo, true, &v->type);
}

/* The smallest expression around the word. */
static void see_expression(Arena *arena, Hover *h, const Value *v, Span span) {
  if (h->named || span.file != h->file || h->offset < span.start || h->offset > span.end) return;
  size_t size = span.end - span.start;
  if (h->types.len && size > h->distance) return;
  take(arena, h, span, size, false, &v->type);
}

static void see_variables(Arena *arena, Hover *h, const Program *p) {
  for (uint32_t i = 0; i < p->vars.len; i++) {
    const Var *var = &p->vars.data[i];
    const char *dot = strrchr(var->name, '.');
    if (h->called || var->span.file != h->file || !is_word(h, dot ? dot + 1 : var->name)) continue;
    take(arena, h, var->span, 0, true, &var->type);
  }
}

static void see_program(Arena *arena, Hover *h, const Program *p) {
  for (int named = 1; named >= 0; named--)
    for (int b = 0; b < BLOCK_COUNT; b++) {
      const Graph *g = p->block[b].graph;
      for (ValueId id = 1; g && id < g->values.len; id++) {
        const Value *v = graph_value(g, id);
        (named ? see_name : see_expression)(arena, h, v, graph_node(g, v->node)->span);
      }
    }
  if (!h->named) see_variables(arena, h, p);
}

static void put_found(JsonWriter *j, Arena *arena, const Hover *h) {
  enum { SHOWN = 8 };
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_puts(&sb, "```dtm\n");
  for (uint32_t i = 0; i < h->types.len && i < SHOWN; i++)
    strbuf_printf(&sb, "%s\n", h->types.data[i]);
  if (h->types.len > SHOWN) strbuf_printf(&sb, "// and %u more\n", h->types.len - SHOWN);
  strbuf_puts(&sb, "```");
  Span shown = h->named ? h->word : h->at;
  json_begin_object(j, "result");
  json_begin_object(j, "contents");
  json_text(j, "kind", "markdown");
  json_text(j, "value", sb.text);
  json_end(j);
  lsp_put_range(j, "range", h->text, shown.start, shown.end);
  json_end(j);
}

void lsp_put_hover(JsonWriter *j, const Lsp *l, const LspDocument *d, size_t offset) {
  /* a module is seen in the programs that use it: the document itself, then the others */
  for (uint32_t i = 0; i <= l->ndocuments; i++) {
    const LspDocument *program = i ? &l->documents[i - 1] : d;
    Session s;
    SemaOptions sema;
    if (!lsp_begin(l, &s)) return;
    Hover h = {.text = d->text, .file = file_of(&s, d), .offset = offset};
    find_word(&h);
    const char *meshes = option_value(&s.options, OPT_MESH, "");
    const char *mesh = arena_strndup(&s.arena, meshes, strcspn(meshes, ";")); /* the first */
    if (session_sema_options(&s, program->path, mesh, &sema))
      see_program(&s.arena, &h, sema_run(&sema, &s.arena, &s.names, &s.sources, &s.sink));
    bool found = h.types.len;
    if (found) put_found(j, &s.arena, &h);
    arena_free(&s.arena);
    if (found) return;
  }
  json_text(j, "result", NULL);
}

/* --- formatting ---- */

void lsp_put_formatting(JsonWriter *j, const Lsp *l, const LspDocument *d) {
  Session s;
  StrBuf text;
  if (!lsp_begin(l, &s)) return;
  if (ast_format(&s.arena, &s.names, &s.sink, file_of(&s, d), &text)) {
    json_begin_array(j, "result");
    if (strcmp(text.text, d->text) != 0) {
      json_begin_object(j, NULL);
      lsp_put_range(j, "range", d->text, 0, strlen(d->text));
      json_text(j, "newText", text.text);
      json_end(j);
    }
    json_end(j);
  } else { /* faults of syntax stand beside the text already */
    json_text(j, "result", NULL);
  }
  arena_free(&s.arena);
}
