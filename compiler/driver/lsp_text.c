/* Places in a text as the language server protocol has them: see lsp.h. */
#include <string.h>

#include "base/utf8.h"
#include "driver/lsp.h"

/* The bytes of the character at `text`, and its units of UTF-16. */
static uint32_t character(const char *text, uint32_t *units) {
  uint32_t bytes, code = utf8_decode(text, strlen(text) < 4 ? strlen(text) : 4, &bytes);
  *units = code != UTF8_BAD && code >= 0x10000 ? 2 : 1;
  return bytes;
}

LspPlace lsp_place(const char *text, size_t offset) {
  LspPlace p = {0, 0};
  uint32_t units;
  for (size_t at = 0; at < offset && text[at];) {
    if (text[at] == '\n') {
      p = (LspPlace){p.line + 1, 0};
      at++;
      continue;
    }
    at += character(text + at, &units);
    p.character += units;
  }
  return p;
}

size_t lsp_offset(const char *text, LspPlace place) {
  size_t at = 0;
  for (uint32_t line = 0; line < place.line; line++) {
    const char *end = strchr(text + at, '\n');
    if (!end) return strlen(text);
    at = (size_t)(end - text) + 1;
  }
  uint32_t units;
  for (uint32_t seen = 0; seen < place.character && text[at] && text[at] != '\n'; seen += units)
    at += character(text + at, &units);
  return at;
}

static void put_place(JsonWriter *j, const char *key, LspPlace p) {
  json_begin_object(j, key);
  json_int(j, "line", p.line);
  json_int(j, "character", p.character);
  json_end(j);
}

void lsp_put_range(JsonWriter *j, const char *key, const char *text, size_t start, size_t end) {
  json_begin_object(j, key);
  put_place(j, "start", lsp_place(text, start));
  put_place(j, "end", lsp_place(text, end));
  json_end(j);
}
