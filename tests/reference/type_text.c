/* Types from text: see type_text.h. */
#include "reference/type_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail(const char *text, const char *at) {
  fprintf(stderr, "bad type text \"%s\" at \"%s\"\n", text, at);
  abort();
}

static const char *spaces(const char *s) {
  while (*s == ' ') s++;
  return s;
}

/* Reads a word into `word`; returns what follows. */
static const char *read_word(const char *s, char word[32]) {
  size_t n = 0;
  for (s = spaces(s); isalnum((unsigned char)*s) || *s == '_'; s++)
    if (n < 31) word[n++] = *s;
  word[n] = 0;
  return spaces(s);
}

static uint8_t axis_named(const Mesh *mesh, const char *word, const char *text) {
  for (uint8_t a = 0; a < mesh->naxes; a++)
    if (strcmp(mesh->axis[a], word) == 0) return a;
  fail(text, word);
}

void mesh_of(Mesh *mesh, uint32_t naxes, const int64_t *sizes) {
  static const char *const names[] = {"x", "y", "z", "w"};
  *mesh = (Mesh){.name = "world", .naxes = naxes, .nranks = 1};
  for (uint32_t a = 0; a < naxes; a++) {
    mesh->axis[a] = names[a];
    mesh->size[a] = sizes[a];
    mesh->nranks *= sizes[a];
  }
}

TensorType type_from_text(const Mesh *mesh, const char *text) {
  char word[32];
  const char *s = read_word(text, word);
  TensorType t = {.dtype = dtype_by_name(word), .mesh = mesh};
  if (!t.dtype || *s++ != '[') fail(text, s);
  for (s = spaces(s); *s != ']';) {
    char *end;
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = 0;
    t.shape[t.rank] = strtoll(s, &end, 10);
    if (end == s) fail(text, s);
    s = spaces(end);
    if (*s == '@') {
      bool list = s[1] == '(';
      s += list ? 2 : 1;
      do {
        s = read_word(s, word);
        axes[n++] = axis_named(mesh, word, text);
      } while (list && *s == ',' && s++);
      if (list && *s++ != ')') fail(text, s);
    }
    layout_set_dim(&t.layout, mesh, t.rank++, axes, n);
    s = spaces(s);
    if (*s == ',') s = spaces(s + 1);
  }
  s = read_word(s + 1, word);
  if (!*word) return t;
  if (strcmp(word, "partial") != 0 || *s++ != '(') fail(text, s);
  do {
    s = read_word(s, word);
    uint32_t axis = axis_named(mesh, word, text);
    ReduceOp op = REDUCE_SUM;
    if (*s == ':') {
      s = read_word(s + 1, word);
      op = reduce_op_by_name(word);
    }
    layout_set(&t.layout, mesh, axis, PLACE_PARTIAL, 0, op);
  } while (*s == ',' && s++);
  if (*s != ')') fail(text, s);
  return t;
}
