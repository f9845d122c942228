/* Layout of documents: see doc.h. */
#include "syntax/doc.h"

typedef enum DocKind {
  DOC_TEXT = 1,
  DOC_LINE_TEXT,
  DOC_TRAILING,
  DOC_SPACE,
  DOC_SOFT,
  DOC_HARD,
  DOC_IF_BROKEN,
  DOC_NEST,
  DOC_GROUP,
  DOC_CONCAT
} DocKind;

struct Doc {
  DocKind kind;
  unsigned indent;
  bool breaks; /* holds a doc_hard or a doc_line_text */
  const char *text;
  VEC(Doc *) parts; /* CONCAT; NEST and GROUP have one */
};

static Doc *new_doc(Arena *arena, DocKind kind) {
  Doc *d = ARENA_NEW(arena, Doc);
  d->kind = kind;
  d->breaks = kind == DOC_HARD || kind == DOC_LINE_TEXT || kind == DOC_TRAILING;
  return d;
}

static void add_part(Arena *arena, Doc *d, Doc *part) {
  if (!part) return;
  d->breaks |= part->breaks;
  VEC_PUSH(arena, &d->parts, part);
}

Doc *doc_text(Arena *arena, const char *text) {
  Doc *d = new_doc(arena, DOC_TEXT);
  d->text = text;
  return d;
}

Doc *doc_line_text(Arena *arena, const char *text) {
  Doc *d = new_doc(arena, DOC_LINE_TEXT);
  d->text = text;
  return d;
}

Doc *doc_trailing(Arena *arena, const char *text) {
  Doc *d = new_doc(arena, DOC_TRAILING);
  d->text = text;
  return d;
}

Doc *doc_space(Arena *arena) {
  return new_doc(arena, DOC_SPACE);
}

Doc *doc_soft(Arena *arena) {
  return new_doc(arena, DOC_SOFT);
}

Doc *doc_hard(Arena *arena) {
  return new_doc(arena, DOC_HARD);
}

Doc *doc_if_broken(Arena *arena, const char *text) {
  Doc *d = new_doc(arena, DOC_IF_BROKEN);
  d->text = text;
  return d;
}

Doc *doc_nest(Arena *arena, unsigned indent, Doc *inner) {
  Doc *d = new_doc(arena, DOC_NEST);
  d->indent = indent;
  add_part(arena, d, inner);
  return d;
}

Doc *doc_group(Arena *arena, Doc *inner) {
  Doc *d = new_doc(arena, DOC_GROUP);
  add_part(arena, d, inner);
  return d;
}

Doc *doc_cat_(Arena *arena, ...) {
  Doc *d = new_doc(arena, DOC_CONCAT), *part;
  va_list ap;
  va_start(ap, arena);
  while ((part = va_arg(ap, Doc *)) != DOC_END) add_part(arena, d, part);
  va_end(ap);
  return d;
}

void doc_append(Arena *arena, Doc **to, Doc *more) {
  if (!*to || (*to)->kind != DOC_CONCAT) {
    Doc *list = new_doc(arena, DOC_CONCAT);
    add_part(arena, list, *to);
    *to = list;
  }
  add_part(arena, *to, more);
}

typedef struct Entry {
  const Doc *doc;
  unsigned indent;
  bool flat;
} Entry;

/* A trailing text: where it is in the output, and what stands before it on its line. */
typedef struct Trailing {
  size_t offset;
  unsigned line, column, width;
} Trailing;

typedef struct Layout {
  VEC(Entry) todo; /* last is next */
  VEC(Entry) trial;
  VEC(Trailing) trailing;
  StrBuf *out;
  unsigned width, column;
  bool line_start; /* the indentation of this line is not written yet */
  unsigned indent, line;
} Layout;

static unsigned text_width(const char *text) {
  unsigned n = 0;
  for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
  return n;
}

/* Whether `first` set flat, and what follows up to the next certain line end, fits. */
static bool fits(Layout *l, Entry first) {
  Arena *arena = l->out->arena;
  unsigned column = l->line_start ? l->indent : l->column;
  uint32_t rest = l->todo.len;
  l->trial.len = 0;
  VEC_PUSH(arena, &l->trial, first);
  while (column <= l->width) {
    if (!l->trial.len) {
      if (!rest) return true;
      VEC_PUSH(arena, &l->trial, l->todo.data[--rest]);
    }
    Entry e = l->trial.data[--l->trial.len];
    switch (e.doc->kind) {
    case DOC_TEXT:
      column += text_width(e.doc->text);
      break;
    case DOC_LINE_TEXT:
    case DOC_TRAILING:
    case DOC_HARD:
      return true; /* what stands before it fitted */
    case DOC_SPACE:
      if (!e.flat) return true;
      column++;
      break;
    case DOC_SOFT:
      if (!e.flat) return true;
      break;
    case DOC_IF_BROKEN:
      if (!e.flat) column += text_width(e.doc->text);
      break;
    case DOC_NEST:
    case DOC_GROUP:
    case DOC_CONCAT:
      for (uint32_t i = e.doc->parts.len; i > 0; i--)
        VEC_PUSH(arena, &l->trial,
                 (Entry){e.doc->parts.data[i - 1], e.indent, e.flat && !e.doc->breaks});
      break;
    }
  }
  return false;
}

static void put_text(Layout *l, const char *text) {
  if (!*text) return;
  if (l->line_start)
    for (l->column = 0; l->column < l->indent; l->column++) strbuf_putc(l->out, ' ');
  l->line_start = false;
  strbuf_puts(l->out, text);
  l->column += text_width(text);
}

static void put_line_end(Layout *l, unsigned indent) {
  while (l->out->len && l->out->text[l->out->len - 1] == ' ') l->out->text[--l->out->len] = 0;
  strbuf_putc(l->out, '\n');
  l->line++;
  l->line_start = true;
  l->indent = indent;
  l->column = indent;
}

static void put_trailing(Layout *l, const char *text) {
  put_text(l, "  ");
  VEC_PUSH(l->out->arena, &l->trailing,
           (Trailing){l->out->len, l->line, l->column, text_width(text)});
  put_text(l, text);
}

/* Blanks that bring each trailing text to the column of its run of lines. */
static void align_trailing(Layout *l) {
  Arena *arena = l->out->arena;
  StrBuf aligned;
  strbuf_init(&aligned, arena);
  size_t done = 0;
  for (uint32_t first = 0, last; first < l->trailing.len; first = last) {
    const Trailing *t = l->trailing.data;
    unsigned column = 0, widest = 0;
    for (last = first; last < l->trailing.len; last++) {
      if (last > first && t[last].line != t[last - 1].line + 1) break;
      if (t[last].column > column) column = t[last].column;
      if (t[last].width > widest) widest = t[last].width;
    }
    bool align = column + widest <= l->width;
    for (uint32_t i = first; i < last; i++) {
      strbuf_put_n(&aligned, l->out->text + done, t[i].offset - done);
      done = t[i].offset;
      for (unsigned c = t[i].column; align && c < column; c++) strbuf_putc(&aligned, ' ');
    }
  }
  strbuf_put_n(&aligned, l->out->text + done, l->out->len - done);
  *l->out = aligned;
}

void doc_layout(const Doc *doc, unsigned width, StrBuf *out) {
  Arena *arena = out->arena;
  Layout l = {.out = out, .width = width, .line_start = true};
  if (doc) VEC_PUSH(arena, &l.todo, (Entry){doc, 0, false});
  while (l.todo.len) {
    Entry e = l.todo.data[--l.todo.len];
    bool flat = e.flat;
    switch (e.doc->kind) {
    case DOC_TEXT:
    case DOC_LINE_TEXT:
      put_text(&l, e.doc->text);
      break;
    case DOC_TRAILING:
      put_trailing(&l, e.doc->text);
      break;
    case DOC_SPACE:
      if (flat)
        put_text(&l, " ");
      else
        put_line_end(&l, e.indent);
      break;
    case DOC_SOFT:
      if (!flat) put_line_end(&l, e.indent);
      break;
    case DOC_HARD:
      put_line_end(&l, e.indent);
      break;
    case DOC_IF_BROKEN:
      if (!flat) put_text(&l, e.doc->text);
      break;
    case DOC_GROUP:
      flat = flat || (!e.doc->breaks && fits(&l, (Entry){e.doc, e.indent, true}));
      /* fall through */
    case DOC_NEST:
    case DOC_CONCAT:
      for (uint32_t i = e.doc->parts.len; i > 0; i--)
        VEC_PUSH(arena, &l.todo,
                 (Entry){e.doc->parts.data[i - 1],
                         e.indent + (e.doc->kind == DOC_NEST ? e.doc->indent : 0), flat});
      break;
    }
  }
  align_trailing(&l);
}
