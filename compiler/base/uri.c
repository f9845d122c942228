/* Paths of files as URIs: see uri.h. */
#include "base/uri.h"

#include <string.h>

const char *uri_of_path(Arena *arena, const char *path) {
  while (strncmp(path, "./", 2) == 0) path += 2;
  StrBuf uri;
  strbuf_init(&uri, arena);
  if (*path == '/') strbuf_puts(&uri, "file://");
  for (const unsigned char *s = (const unsigned char *)path; *s; s++) {
    bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
                 strchr("-._~/", *s);
    if (plain)
      strbuf_putc(&uri, (char)*s);
    else
      strbuf_printf(&uri, "%%%02X", *s);
  }
  return uri.text;
}

static int hex(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

const char *uri_path(Arena *arena, const char *uri) {
  static const char scheme[] = "file://";
  if (strncmp(uri, scheme, sizeof scheme - 1) != 0) return NULL;
  const char *from = strchr(uri + sizeof scheme - 1, '/'); /* behind the name of the host */
  if (!from) return NULL;
  StrBuf path;
  strbuf_init(&path, arena);
  for (; *from; from++) {
    bool escaped = *from == '%' && hex(from[1]) >= 0 && hex(from[2]) >= 0;
    strbuf_putc(&path, escaped ? (char)(hex(from[1]) * 16 + hex(from[2])) : *from);
    if (escaped) from += 2;
  }
  return path.text;
}
