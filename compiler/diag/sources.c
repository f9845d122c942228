/* Source files of a run: their texts, and the way from a byte offset to line and column.
 *
 * Ids are 1-based and stable. Texts are copied and end in a NUL byte that `size` does not count;
 * they may contain any bytes, also NUL: the lexer reports those.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "diag/diag.h"

/* Offsets are 32-bit; a hand-written file is far below this. */
#define SOURCE_MAX_BYTES (64u << 20)

void sources_init(Sources *sources, Arena *arena) {
  *sources = (Sources){.arena = arena};
}

static void index_lines(Arena *arena, SourceFile *file) {
  uint32_t n = 1;
  for (uint32_t i = 0; i < file->size; i++) n += file->text[i] == '\n';
  file->line_starts = ARENA_ARRAY(arena, uint32_t, n);
  file->nlines = 1;
  for (uint32_t i = 0; i < file->size; i++)
    if (file->text[i] == '\n') file->line_starts[file->nlines++] = i + 1;
}

uint32_t sources_add(Sources *sources, const char *path, const char *text, uint32_t size) {
  SourceFile *file = ARENA_NEW(sources->arena, SourceFile);
  char *copy = arena_alloc(sources->arena, (size_t)size + 1);
  if (size) memcpy(copy, text, size);
  *file = (SourceFile){.path = arena_strdup(sources->arena, path), .text = copy, .size = size};
  index_lines(sources->arena, file);
  VEC_PUSH(sources->arena, &sources->files, file);
  return sources->files.len;
}

uint32_t sources_read(Sources *sources, const char *path) {
  FILE *in = fopen(path, "rb");
  if (!in) return 0;
  int error = 0;
  StrBuf text;
  strbuf_init(&text, sources->arena);
  struct stat st;
  if (fstat(fileno(in), &st) == 0 && S_ISDIR(st.st_mode)) error = EISDIR;
  char block[16384];
  size_t n;
  while (!error && (n = fread(block, 1, sizeof block, in)) > 0) {
    strbuf_put_n(&text, block, n);
    if (text.len > SOURCE_MAX_BYTES) error = EFBIG;
  }
  if (!error && ferror(in)) error = errno ? errno : EIO;
  fclose(in);
  if (error) {
    errno = error;
    return 0;
  }
  return sources_add(sources, path, text.text, (uint32_t)text.len);
}

const SourceFile *sources_get(const Sources *sources, uint32_t id) {
  return id >= 1 && id <= sources->files.len ? sources->files.data[id - 1] : NULL;
}

void sources_line_col(const Sources *sources, uint32_t id, uint32_t offset, uint32_t *line,
                      uint32_t *col) {
  *line = *col = 0;
  const SourceFile *file = sources_get(sources, id);
  if (!file) return;
  if (offset > file->size) offset = file->size;
  uint32_t low = 0, high = file->nlines; /* line_starts[low] <= offset < line_starts[high] */
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (file->line_starts[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  *line = low + 1;
  *col = 1;
  for (uint32_t i = file->line_starts[low]; i < offset; i++)
    *col += ((unsigned char)file->text[i] & 0xC0) != 0x80; /* continuation bytes do not count */
}

const char *span_print(Arena *arena, const Sources *sources, Span span) {
  const SourceFile *file = sources_get(sources, span.file);
  if (!file) return "(no place)";
  uint32_t line, col;
  sources_line_col(sources, span.file, span.start, &line, &col);
  return arena_printf(arena, "%s:%u:%u", file->path, line, col);
}
