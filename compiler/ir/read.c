/* Words, numbers, places, types and attributes of program text: see read.h. */
#include "ir/read.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void read_fail(Reader *p, const char *what) {
  uint32_t line = 1;
  for (const char *s = p->text; s < p->at; s++) line += *s == '\n';
  int shown = (int)strcspn(p->at, "\n");
  p->error = arena_printf(p->arena, "line %" PRIu32 ": %s at \"%.*s\"", line, what,
                          shown < 40 ? shown : 40, p->at);
  longjmp(p->fail, 1);
}

void read_blank(Reader *p) {
  while (*p->at == ' ') p->at++;
}

static void skip_lines(Reader *p) {
  while (*p->at == ' ' || *p->at == '\n') p->at++;
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.';
}

bool read_accept(Reader *p, const char *word) {
  read_blank(p);
  size_t n = strlen(word);
  if (strncmp(p->at, word, n) != 0) return false;
  if (is_word(word[n - 1]) && is_word(p->at[n])) return false;
  p->at += n;
  return true;
}

void read_expect(Reader *p, const char *word) {
  if (!read_accept(p, word)) read_fail(p, arena_printf(p->arena, "expected '%s'", word));
}

const char *read_word(Reader *p) {
  read_blank(p);
  const char *start = p->at;
  while (is_word(*p->at)) p->at++;
  if (p->at == start) read_fail(p, "expected a word");
  return intern_n(p->names, start, (size_t)(p->at - start));
}

int64_t read_integer(Reader *p) {
  read_blank(p);
  char *end;
  errno = 0;
  int64_t v = strtoll(p->at, &end, 10);
  if (end == p->at || errno) read_fail(p, "expected an integer");
  p->at = end;
  return v;
}

uint64_t read_natural(Reader *p) {
  read_blank(p);
  char *end;
  errno = 0;
  uint64_t v = strtoull(p->at, &end, 10);
  if (!isdigit((unsigned char)*p->at) || errno) read_fail(p, "expected a number");
  p->at = end;
  return v;
}

uint32_t read_index(Reader *p) {
  uint64_t v = read_natural(p);
  if (v > UINT32_MAX) read_fail(p, "number too large");
  return (uint32_t)v;
}

double read_real(Reader *p) {
  read_blank(p);
  char *end;
  double v = strtod(p->at, &end);
  if (end == p->at) read_fail(p, "expected a number");
  p->at = end;
  return v;
}

const char *read_quoted(Reader *p) {
  read_blank(p);
  if (*p->at != '"') read_fail(p, "expected a string");
  StrBuf sb;
  strbuf_init(&sb, p->arena);
  for (p->at++; *p->at != '"'; p->at++) {
    if (!*p->at || *p->at == '\n') read_fail(p, "string without an end");
    if (*p->at == '\\') {
      if (!*++p->at) read_fail(p, "string without an end");
      strbuf_putc(&sb, *p->at == 'n' ? '\n' : *p->at);
    } else
      strbuf_putc(&sb, *p->at);
  }
  p->at++;
  return intern(p->names, sb.text);
}

void read_end_line(Reader *p) {
  read_blank(p);
  if (*p->at != '\n') read_fail(p, "unexpected text");
  skip_lines(p);
}

/* --- places ------------------------------------------------------------------------------------
 */

static uint32_t file_named(Reader *p, const char *path) {
  for (uint32_t i = 0; i < p->sources->files.len; i++)
    if (strcmp(p->sources->files.data[i]->path, path) == 0) return i + 1;
  return 0;
}

/* "path:line:column" up to the scope or the end of the line; false when there is none. */
static bool read_place_parts(Reader *p, const char **path, uint32_t *line, uint32_t *column) {
  read_blank(p);
  const char *end = p->at;
  while (*end && *end != '\n' && strncmp(end, "  #", 3) != 0) end++;
  const char *second = end;
  while (second > p->at && second[-1] != ':') second--;
  const char *first = second > p->at ? second - 1 : p->at;
  while (first > p->at && first[-1] != ':') first--;
  if (first <= p->at) return false;
  *path = intern_n(p->names, p->at, (size_t)(first - 1 - p->at));
  *line = (uint32_t)strtoul(first, NULL, 10);
  *column = (uint32_t)strtoul(second, NULL, 10);
  p->at = end;
  return true;
}

Span read_place(Reader *p) {
  const char *path;
  uint32_t line, column;
  if (!read_place_parts(p, &path, &line, &column)) return (Span){0};
  uint32_t id = file_named(p, path);
  if (!id) read_fail(p, "no such place in a source file");
  const SourceFile *file = sources_get(p->sources, id);
  if (line < 1 || line > file->nlines || column < 1)
    read_fail(p, "no such line in the source file");
  uint32_t at = file->line_starts[line - 1];
  for (uint32_t c = 1; c < column; c++) {
    if (at >= file->size) read_fail(p, "no such column in the source file");
    do at++;
    while (at < file->size && ((unsigned char)file->text[at] & 0xc0) == 0x80);
  }
  return (Span){id, at, at};
}

Span read_place_after_slashes(Reader *p) {
  return read_accept(p, "//") ? read_place(p) : (Span){0};
}

void read_enter_files(Reader *p) {
  typedef struct Size {
    const char *path;
    uint32_t lines, columns;
  } Size;
  VEC(Size) sizes = {0};
  for (const char *line = p->text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    const char *end = strchr(line, '\n'), *slashes = NULL;
    for (const char *s = line; (s = strstr(s, "// ")) && (!end || s < end); s += 3) slashes = s;
    if (!slashes) continue;
    p->at = slashes + 3;
    Size size;
    if (!read_place_parts(p, &size.path, &size.lines, &size.columns)) continue;
    if (file_named(p, size.path)) continue;
    uint32_t i = 0;
    while (i < sizes.len && sizes.data[i].path != size.path) i++;
    if (i == sizes.len) VEC_PUSH(p->arena, &sizes, size);
    Size *known = &sizes.data[i];
    if (known->lines < size.lines) known->lines = size.lines;
    if (known->columns < size.columns) known->columns = size.columns;
  }
  for (uint32_t i = 0; i < sizes.len; i++) {
    enum { LONGEST = 64 << 20 };
    uint64_t wanted = (uint64_t)sizes.data[i].lines * ((uint64_t)sizes.data[i].columns + 1);
    if (wanted > LONGEST) continue; /* no program has such a place: read_place says so */
    uint32_t width = sizes.data[i].columns + 1, n = (uint32_t)wanted;
    char *blank = arena_alloc(p->arena, n + 1);
    memset(blank, ' ', n);
    for (uint32_t l = 1; l <= sizes.data[i].lines; l++) blank[l * width - 1] = '\n';
    sources_add(p->sources, sizes.data[i].path, blank, n);
  }
  p->at = p->text;
}

/* --- types and attributes ----------------------------------------------------------------------
 */

static const Mesh *mesh_named(Reader *p, const char *name) {
  for (uint32_t i = 0; i < p->program->meshes.len; i++)
    if (p->program->meshes.data[i]->name == name) return p->program->meshes.data[i];
  read_fail(p, arena_printf(p->arena, "unknown mesh '%s'", name));
}

DType read_dtype(Reader *p) {
  DType t = dtype_by_name(read_word(p));
  if (!t) read_fail(p, "unknown element type");
  return t;
}

/* The mesh stands after the layout, so axis names are collected first. */
TensorType read_type(Reader *p) {
  TensorType t = {.dtype = read_dtype(p)};
  const char *axes[DTM_MAX_DIMS][DTM_MAX_AXES];
  uint32_t naxes[DTM_MAX_DIMS] = {0}, npartial = 0;
  const char *partial[DTM_MAX_AXES];
  ReduceOp ops[DTM_MAX_AXES];
  read_expect(p, "[");
  while (!read_accept(p, "]")) {
    if (t.rank) read_expect(p, ",");
    if (t.rank == DTM_MAX_DIMS) read_fail(p, "too many dims");
    uint32_t d = t.rank++;
    t.shape[d] = read_integer(p);
    if (!read_accept(p, "@")) continue;
    if (!read_accept(p, "(")) {
      axes[d][naxes[d]++] = read_word(p);
      continue;
    }
    do {
      if (naxes[d] == DTM_MAX_AXES) read_fail(p, "too many axes");
      axes[d][naxes[d]++] = read_word(p);
    } while (read_accept(p, ","));
    read_expect(p, ")");
  }
  if (read_accept(p, "balanced(")) {
    do {
      int64_t d = read_integer(p);
      read_expect(p, ":");
      int64_t ways = read_integer(p);
      if (d < 0 || d >= t.rank || ways < 2 || ways > UINT16_MAX || t.shape[d] % (2 * ways))
        read_fail(p, "no such order of a dim");
      t.balanced[d] = (uint16_t)ways;
    } while (read_accept(p, ","));
    read_expect(p, ")");
  }
  if (read_accept(p, "partial(")) {
    do {
      if (npartial == DTM_MAX_AXES) read_fail(p, "too many axes");
      partial[npartial] = read_word(p);
      ops[npartial] = read_accept(p, ":") ? reduce_op_by_name(read_word(p)) : REDUCE_SUM;
      if (!ops[npartial++]) read_fail(p, "unknown reduction");
    } while (read_accept(p, ","));
    read_expect(p, ")");
  }
  t.mesh = p->program->world;
  if (read_accept(p, "on")) t.mesh = read_accept(p, "none") ? NULL : mesh_named(p, read_quoted(p));
  for (uint32_t d = 0; d < t.rank; d++) {
    for (uint32_t i = 0; i < naxes[d]; i++) {
      int axis = t.mesh ? mesh_axis(t.mesh, axes[d][i]) : -1;
      if (axis < 0) read_fail(p, "unknown mesh dim");
      layout_set(&t.layout, t.mesh, (uint32_t)axis, PLACE_SHARD, d, REDUCE_NONE);
    }
  }
  for (uint32_t i = 0; i < npartial; i++) {
    int axis = t.mesh ? mesh_axis(t.mesh, partial[i]) : -1;
    if (axis < 0) read_fail(p, "unknown mesh dim");
    layout_set(&t.layout, t.mesh, (uint32_t)axis, PLACE_PARTIAL, 0, ops[i]);
  }
  return t;
}

Attr read_attribute(Reader *p) {
  Attr a = {.key = attr_by_name(read_word(p))};
  if (!a.key) read_fail(p, "unknown attribute");
  read_expect(p, "=");
  switch (attr_kind(a.key)) {
  case ATTR_KIND_NONE:
    break;
  case ATTR_KIND_INT:
    a.as.i = read_integer(p);
    read_blank(p);
    if (a.key == ATTR_VAR && *p->at == '"') read_quoted(p);
    break;
  case ATTR_KIND_BOOL:
    a.as.i = read_accept(p, "true");
    if (!a.as.i) read_expect(p, "false");
    break;
  case ATTR_KIND_DTYPE:
    a.as.i = read_dtype(p);
    break;
  case ATTR_KIND_FLOAT:
    a.as.f = read_real(p);
    break;
  case ATTR_KIND_STRING:
    a.as.s = read_quoted(p);
    break;
  case ATTR_KIND_TYPE: {
    TensorType *t = ARENA_NEW(p->arena, TensorType);
    *t = read_type(p);
    a.as.type = t;
    break;
  }
  case ATTR_KIND_INTS: {
    VEC(int64_t) ints = {0};
    read_expect(p, "[");
    while (!read_accept(p, "]")) {
      if (ints.len) read_expect(p, ",");
      VEC_PUSH(p->arena, &ints, read_integer(p));
    }
    a.as.ints.data = ints.data;
    a.as.ints.len = ints.len;
    break;
  }
  }
  return a;
}
