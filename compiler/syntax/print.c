/* The tree as canonical source: statements, items, comments and blank lines.
 *
 * What a writer chose and layout rules cannot know is kept: comments, single blank lines between
 * statements, parentheses, the spelling of literals, blocks and settings that share a line. All
 * else (indentation, spacing, where long lines break) is decided here, so printing what was printed
 * changes nothing.
 */
#include "syntax/print.h"

#include <string.h>

#define T(text) doc_text(p->arena, (text))
#define CAT(...) DOC_CAT(p->arena, __VA_ARGS__)
#define HARD doc_hard(p->arena)

/* Between entries that share a line: config values, settings. */
#define SAME_LINE_GAP "   "

/* --- what the source tells --- */

static const Span *peek_comment(const Printer *p) {
  return p->source && p->next_comment < p->file->comments.len
             ? &p->file->comments.data[p->next_comment]
             : NULL;
}

/* The text of the next comment, which is taken. */
static const char *take_comment(Printer *p) {
  Span span = p->file->comments.data[p->next_comment++];
  uint32_t end = span.end;
  while (end > span.start && strchr(" \t\r", p->source->text[end - 1])) end--;
  p->last_end = span.end;
  return arena_strndup(p->arena, p->source->text + span.start, end - span.start);
}

static Doc *take_own_line(Printer *p) {
  return doc_line_text(p->arena, take_comment(p));
}

Doc *print_comments_before(Printer *p, uint32_t offset) {
  Doc *d = NULL;
  for (const Span *c; (c = peek_comment(p)) && c->start < offset;)
    d = d ? CAT(d, HARD, take_own_line(p)) : take_own_line(p);
  return d;
}

/* A comment behind `offset` on its line, with only blanks and a comma between; else NULL. */
static Doc *take_trailing(Printer *p, uint32_t offset) {
  const Span *c = peek_comment(p);
  if (!c || c->start < offset) return NULL;
  for (uint32_t i = offset; i < c->start; i++)
    if (!strchr(" \t,", p->source->text[i])) return NULL;
  return doc_trailing(p->arena, take_comment(p));
}

/* A comment right behind the '{' of a block that starts before `offset`. */
static Doc *take_behind_brace(Printer *p, uint32_t offset) {
  const Span *c = peek_comment(p);
  if (!c || c->start >= offset) return NULL;
  uint32_t i = c->start;
  while (i > 0 && strchr(" \t", p->source->text[i - 1])) i--;
  return i > 0 && p->source->text[i - 1] == '{' ? doc_trailing(p->arena, take_comment(p)) : NULL;
}

static bool has_text(const Printer *p, Span span) {
  return p->source && span.file == p->file->source && span.end <= p->source->size;
}

static bool same_line(const Printer *p, uint32_t from, uint32_t to) {
  return p->source && from <= to && to <= p->source->size &&
         !memchr(p->source->text + from, '\n', to - from);
}

static bool blank_line_between(const Printer *p, uint32_t from, uint32_t to) {
  bool line_is_blank = false;
  for (uint32_t i = from; p->source && i < to && i < p->source->size; i++) {
    char c = p->source->text[i];
    if (c == '\n' && line_is_blank) return true;
    if (c == '\n')
      line_is_blank = true;
    else if (!strchr(" \t\r", c))
      line_is_blank = false;
  }
  return false;
}

/* Offset of the '}' behind `from`, with only blanks and comments between; else `otherwise`. */
static uint32_t closing_brace(const Printer *p, uint32_t from, uint32_t otherwise) {
  if (!p->source) return otherwise;
  const char *text = p->source->text;
  for (uint32_t i = from; i < p->source->size; i++) {
    if (text[i] == '}') return i;
    if (text[i] == '/' && text[i + 1] == '/')
      while (i < p->source->size && text[i] != '\n') i++;
    else if (!strchr(" \t\r\n", text[i]))
      break;
  }
  return otherwise;
}

/* --- sequences of lines --- */

typedef struct Lines {
  Doc *doc;
  bool started;
} Lines;

static void separate(Printer *p, Lines *lines, uint32_t start, bool blank) {
  if (!lines->started) return;
  if (blank || blank_line_between(p, p->last_end, start)) doc_append(p->arena, &lines->doc, HARD);
  doc_append(p->arena, &lines->doc, HARD);
}

static void add_line(Printer *p, Lines *lines, Doc *doc) {
  doc_append(p->arena, &lines->doc, doc);
  lines->started = true;
}

/* Comments of their own lines before `offset`. Returns whether there were any. */
static bool add_comments(Printer *p, Lines *lines, uint32_t offset, bool blank) {
  bool any = false;
  for (const Span *c; (c = peek_comment(p)) && c->start < offset; any = true) {
    separate(p, lines, c->start, blank && !any);
    add_line(p, lines, take_own_line(p));
  }
  return any;
}

/* Comments that a construct held where none can be printed go before it. */
static void add_construct(Printer *p, Lines *lines, Doc *doc, Span span) {
  Doc *stray = has_text(p, span) ? print_comments_before(p, span.end) : NULL;
  if (stray) add_line(p, lines, CAT(stray, HARD));
  add_line(p, lines, doc);
  p->last_end = span.end;
  Doc *trailing = has_text(p, span) ? take_trailing(p, span.end) : NULL;
  if (trailing) add_line(p, lines, trailing);
}

void print_element(Printer *p, Elements *list, Doc *comments, Doc *element, uint32_t end) {
  if (list->n++) {
    doc_append(p->arena, &list->inner, CAT(list->last, T(","), list->last_comment));
    doc_append(p->arena, &list->inner, doc_space(p->arena));
  }
  list->last = comments ? CAT(comments, HARD, element) : element;
  list->last_comment = take_trailing(p, end);
}

Doc *print_brackets(Printer *p, const char *open, Elements *list, const char *close, uint32_t end,
                    bool trailing_comma) {
  if (!list->n) return CAT(T(open), T(close));
  Doc *comma = trailing_comma ? doc_if_broken(p->arena, ",") : NULL;
  Doc *tail = print_comments_before(p, end);
  Doc *inner = CAT(doc_soft(p->arena), list->inner, list->last, comma, list->last_comment);
  if (tail) inner = CAT(inner, HARD, tail);
  return doc_group(p->arena, CAT(T(open), doc_nest(p->arena, PRINT_INDENT, inner),
                                 doc_soft(p->arena), T(close)));
}

/* --- statements --- */

static Doc *print_stmt(Printer *p, const Stmt *s);

static bool shares_line(const Printer *p, const StmtList *body, uint32_t i) {
  return i > 0 && body->data[i]->kind == STMT_SETTING && body->data[i - 1]->kind == STMT_SETTING &&
         same_line(p, body->data[i - 1]->span.end, body->data[i]->span.start);
}

/* Written `{ a }` on one line of the source. */
static bool is_one_line(const Printer *p, const StmtList *body) {
  if (!p->source || !body->len) return false;
  Span first = body->data[0]->span, last = body->data[body->len - 1]->span;
  if (!same_line(p, first.start, last.end)) return false;
  uint32_t before = first.start, after = last.end;
  while (before > 0 && p->source->text[before - 1] == ' ') before--;
  while (p->source->text[after] == ' ') after++;
  return before > 0 && p->source->text[before - 1] == '{' && p->source->text[after] == '}';
}

Doc *print_block(Printer *p, const StmtList *body, uint32_t end) {
  uint32_t first = body->len ? body->data[0]->span.start : end;
  if (body->len) end = closing_brace(p, body->data[body->len - 1]->span.end, end);
  bool one_line = is_one_line(p, body);
  Doc *behind_brace = take_behind_brace(p, first);
  Lines lines = {0};
  p->last_end = first;
  for (uint32_t i = 0; i < body->len; i++) {
    const Stmt *s = body->data[i];
    add_comments(p, &lines, s->span.start, false);
    if (shares_line(p, body, i))
      add_line(p, &lines, T(SAME_LINE_GAP));
    else
      separate(p, &lines, s->span.start, false);
    add_construct(p, &lines, print_stmt(p, s), s->span);
  }
  add_comments(p, &lines, end, false);
  if (!lines.doc) return CAT(T("{"), behind_brace, behind_brace ? HARD : NULL, T("}"));
  Doc *edge = one_line && !behind_brace ? doc_space(p->arena) : HARD;
  Doc *d = CAT(T("{"), behind_brace, doc_nest(p->arena, PRINT_INDENT, CAT(edge, lines.doc)), edge,
               T("}"));
  return doc_group(p->arena, d);
}

static Doc *print_let(Printer *p, const Stmt *s) {
  Doc *d = T("let ");
  for (uint32_t i = 0; i < s->as.let.names.len; i++)
    d = CAT(d, T(i ? ", " : ""), T(s->as.let.names.data[i].text));
  if (s->as.let.type) d = CAT(d, T(": "), print_type(p, s->as.let.type));
  return CAT(d, T(" = "), print_expr(p, s->as.let.value));
}

static Doc *print_if(Printer *p, const Stmt *s) {
  const StmtList *no = &s->as.if_.no;
  Doc *d = CAT(T("if "), print_expr(p, s->as.if_.condition), T(" "));
  d = CAT(d, print_block(p, &s->as.if_.yes, no->len ? 0 : s->span.end));
  if (!no->len) return d;
  bool chained = no->len == 1 && no->data[0]->kind == STMT_IF &&
                 (!p->source || no->data[0]->span.end == s->span.end);
  if (chained) return CAT(d, T(" else "), print_if(p, no->data[0]));
  return CAT(d, T(" else "), print_block(p, no, s->span.end));
}

static Doc *print_storage(Printer *p, const Storage *s) {
  Doc *d = T("store ");
  if (s->what.text) d = CAT(d, T(s->what.text), T(" "));
  return CAT(d, print_axes(p, &s->axes));
}

static Doc *print_param(Printer *p, const Stmt *s) {
  Doc *d = CAT(T(s->as.param.is_buffer ? "buffer " : "param "), T(s->as.param.name), T(": "));
  d = CAT(d, print_type(p, s->as.param.type));
  if (s->as.param.init) d = CAT(d, T(" = "), print_expr(p, s->as.param.init));
  if (s->as.param.foreign_name) d = CAT(d, T(" name "), print_postfix(p, s->as.param.foreign_name));
  if (s->as.param.transposed) d = CAT(d, T(" transposed"));
  if (s->as.param.chunks) d = CAT(d, T(" chunks("), print_expr(p, s->as.param.chunks), T(")"));
  if (s->as.param.storage.axes.len) d = CAT(d, T(" "), print_storage(p, &s->as.param.storage));
  return d;
}

static Doc *print_method(Printer *p, const Stmt *s) {
  Doc *d = CAT(T(s->as.method.is_fn ? "fn " : ""), T(s->as.method.name));
  d = CAT(d, print_params(p, &s->as.method.params));
  d = CAT(d, print_results(p, &s->as.method.results), T(" "));
  return CAT(d, print_block(p, &s->as.method.body, s->span.end));
}

static Doc *print_rename(Printer *p, const Stmt *s) {
  Lines lines = {0};
  p->last_end = s->span.start;
  for (uint32_t i = 0; i < s->as.rename.len; i++) {
    const RenameItem *item = &s->as.rename.data[i];
    add_comments(p, &lines, item->span.start, false);
    separate(p, &lines, item->span.start, false);
    Doc *d = CAT(print_string(p, item->ours), T(" = "), print_string(p, item->foreign));
    add_construct(p, &lines, d, item->span);
  }
  add_comments(p, &lines, s->span.end, false);
  if (!lines.doc) return T("rename {}");
  bool one_line = has_text(p, s->span) && same_line(p, s->span.start, s->span.end);
  Doc *edge = one_line ? doc_space(p->arena) : HARD;
  Doc *inner = doc_nest(p->arena, PRINT_INDENT, CAT(edge, lines.doc));
  return doc_group(p->arena, CAT(T("rename {"), inner, edge, T("}")));
}

static Doc *print_setting(Printer *p, const Stmt *s) {
  Doc *d = T(s->as.setting.keyword);
  if (s->as.setting.name) d = CAT(d, T(" "), T(s->as.setting.name), T(" ="));
  for (uint32_t i = 0; i < s->as.setting.parts.len; i++) {
    const SettingPart *part = &s->as.setting.parts.data[i];
    if (part->word) d = CAT(d, T(" "), T(part->word));
    d = CAT(d, T(" "), print_expr(p, part->value));
  }
  return d;
}

static Doc *print_return(Printer *p, const Stmt *s) {
  Doc *d = T("return ");
  for (uint32_t i = 0; i < s->as.ret.values.len; i++)
    d = CAT(d, T(i ? ", " : ""), print_expr(p, s->as.ret.values.data[i]));
  return d;
}

/* What could not be read, as it stands. */
static Doc *print_verbatim(Printer *p, Span span) {
  if (!has_text(p, span)) return T("<error>");
  print_comments_before(p, span.end); /* they are part of the text */
  return T(arena_strndup(p->arena, p->source->text + span.start, span.end - span.start));
}

static Doc *print_stmt(Printer *p, const Stmt *s) {
  Doc *d;
  switch (s->kind) {
  case STMT_ERROR:
    return print_verbatim(p, s->span);
  case STMT_LET:
    return print_let(p, s);
  case STMT_ASSIGN:
    return CAT(T(s->as.assign.name), T(" = "), print_expr(p, s->as.assign.value));
  case STMT_RETURN:
    return print_return(p, s);
  case STMT_EXPR:
    return print_expr(p, s->as.expr);
  case STMT_IF:
    return print_if(p, s);
  case STMT_FOR:
    d = CAT(T("for "), T(s->as.for_.var.text), T(" in "), print_expr(p, s->as.for_.list), T(" "));
    return CAT(d, print_block(p, &s->as.for_.body, s->span.end));
  case STMT_ASSERT: {
    d = CAT(T("assert "), print_expr(p, s->as.assert_.condition));
    if (!s->as.assert_.message) return d;
    Doc *message = print_expr(p, s->as.assert_.message);
    message = CAT(doc_space(p->arena), message);
    return doc_group(p->arena, CAT(d, T(","), doc_nest(p->arena, PRINT_INDENT, message)));
  }
  case STMT_ON:
    d = CAT(T("on "), print_postfix(p, s->as.on.mesh), T(" "));
    return CAT(d, print_block(p, &s->as.on.body, s->span.end));
  case STMT_STORE:
    d = print_storage(p, &s->as.store.storage);
    if (!s->as.store.has_body) return d;
    return CAT(d, T(" "), print_block(p, &s->as.store.body, s->span.end));
  case STMT_PARAM:
    return print_param(p, s);
  case STMT_METHOD:
    return print_method(p, s);
  case STMT_RENAME:
    return print_rename(p, s);
  case STMT_SETTING:
    return print_setting(p, s);
  }
  return NULL;
}

/* --- items --- */

static Doc *print_import(Printer *p, const Item *item) {
  Doc *path =
      item->as.import.quoted ? print_string(p, item->as.import.path) : T(item->as.import.path);
  Doc *d = CAT(T("import "), path);
  return item->name ? CAT(d, T(" as "), T(item->name)) : d;
}

static Doc *print_config(Printer *p, const Item *item) {
  Lines lines = {0};
  const ConfigItemList *entries = &item->as.config;
  Doc *behind_brace =
      take_behind_brace(p, entries->len ? entries->data[0].span.start : item->span.end);
  p->last_end = entries->len ? entries->data[0].span.start : item->span.start;
  for (uint32_t i = 0; i < entries->len; i++) {
    const ConfigItem *entry = &entries->data[i];
    add_comments(p, &lines, entry->span.start, false);
    if (i && same_line(p, entries->data[i - 1].span.end, entry->span.start))
      add_line(p, &lines, T(SAME_LINE_GAP));
    else
      separate(p, &lines, entry->span.start, false);
    Doc *d = T(entry->name);
    if (entry->type) d = CAT(d, T(": "), print_type(p, entry->type));
    add_construct(p, &lines, CAT(d, T(" = "), print_expr(p, entry->value)), entry->span);
  }
  add_comments(p, &lines, item->span.end, false);
  if (!lines.doc) return CAT(T("config {"), behind_brace, behind_brace ? HARD : NULL, T("}"));
  bool one_line = has_text(p, item->span) && same_line(p, item->span.start, item->span.end);
  Doc *edge = one_line ? doc_space(p->arena) : HARD;
  return doc_group(p->arena,
                   CAT(T("config {"), behind_brace,
                       doc_nest(p->arena, PRINT_INDENT, CAT(edge, lines.doc)), edge, T("}")));
}

static Doc *print_mesh(Printer *p, const Item *item) {
  Elements dims = {0};
  uint32_t end = 0;
  for (uint32_t i = 0; i < item->as.mesh.dims.len; i++) {
    const MeshDim *dim = &item->as.mesh.dims.data[i];
    Doc *lead = print_comments_before(p, dim->span.start);
    end = dim->span.end;
    print_element(p, &dims, lead, CAT(T(dim->name), T(" = "), print_expr(p, dim->size)), end);
  }
  Doc *d = CAT(T("mesh "), T(item->name), print_brackets(p, "(", &dims, ")", end, true));
  return item->as.mesh.ranks ? CAT(d, T(" ranks "), print_expr(p, item->as.mesh.ranks)) : d;
}

static Doc *print_fn(Printer *p, const Item *item) {
  Doc *d = CAT(T("fn "), T(item->name), print_params(p, &item->as.fn.params));
  d = CAT(d, print_results(p, &item->as.fn.results), T(" "));
  return CAT(d, print_block(p, &item->as.fn.body, item->span.end));
}

static Doc *print_module(Printer *p, const Item *item) {
  Doc *d = CAT(T("module "), T(item->name), print_params(p, &item->as.module.params));
  if (item->as.module.base) {
    Doc *base = CAT(doc_space(p->arena), T(": "), print_postfix(p, item->as.module.base));
    d = doc_group(p->arena, CAT(d, doc_nest(p->arena, 2 * PRINT_INDENT, base)));
  }
  return CAT(d, T(" "), print_block(p, &item->as.module.body, item->span.end));
}

static Doc *print_item(Printer *p, const Item *item) {
  switch (item->kind) {
  case ITEM_ERROR:
    return print_verbatim(p, item->span);
  case ITEM_IMPORT:
    return print_import(p, item);
  case ITEM_CONFIG:
    return print_config(p, item);
  case ITEM_MESH:
    return print_mesh(p, item);
  case ITEM_FN:
    return print_fn(p, item);
  case ITEM_MODULE:
    return print_module(p, item);
  case ITEM_LET:
    return print_let(p, item->as.let);
  case ITEM_BLOCK:
    return CAT(T(item->name), T(" "), print_block(p, &item->as.block, item->span.end));
  }
  return NULL;
}

/* Items of several lines are set off by a blank line: those that have several, and those of one
 * that are to be broken, or printing the result once more would not give the same. */
static bool is_tall(const Printer *p, const Item *item) {
  if (has_text(p, item->span)) {
    if (!same_line(p, item->span.start, item->span.end)) return true;
    Printer probe = *p;
    StrBuf text;
    strbuf_init(&text, p->arena);
    doc_layout(print_item(&probe, item), PRINT_WIDTH, &text);
    return strchr(text.text, '\n') != NULL;
  }
  return item->kind != ITEM_IMPORT && item->kind != ITEM_LET && item->kind != ITEM_MESH;
}

void ast_print(const Sources *sources, const File *file, StrBuf *out) {
  Printer printer = {.arena = out->arena,
                     .file = file,
                     .source = sources ? sources_get(sources, file->source) : NULL};
  Printer *p = &printer;
  Lines lines = {0};
  for (uint32_t i = 0; i < file->items.len; i++) {
    const Item *item = file->items.data[i];
    bool blank = i && (is_tall(p, item) || is_tall(p, file->items.data[i - 1]));
    bool comments = add_comments(p, &lines, item->span.start, blank);
    separate(p, &lines, item->span.start, blank && !comments);
    add_construct(p, &lines, print_item(p, item), item->span);
  }
  add_comments(p, &lines, UINT32_MAX, false);
  if (lines.started) add_line(p, &lines, HARD);
  doc_layout(lines.doc, PRINT_WIDTH, out);
}
