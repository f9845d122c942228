/* Interned strings (equal text = equal pointer), maps keyed by them, and a string builder. */
#ifndef DTM_BASE_STR_H
#define DTM_BASE_STR_H

#include "base/arena.h"

/* Interned strings are plain `const char *`: compare with ==, print with %s. Parameters that must
 * be interned are called `name` or `key`. */

/* Insertion-ordered map from an interned name to a pointer. Zero-initialised = empty. */
typedef struct NameMap {
  struct NameMapEntry {
    const char *key;
    void *value;
  } * entries;     /* in insertion order */
  uint32_t *slots; /* hash -> entry index + 1 */
  uint32_t len, cap, nslots;
} NameMap;

void *name_map_get(const NameMap *map, const char *key); /* NULL when absent */
bool name_map_has(const NameMap *map, const char *key);
/* Sets or replaces; returns the value that was there before, or NULL. */
void *name_map_put(Arena *arena, NameMap *map, const char *key, void *value);

/* Map from a 64-bit key to a 32-bit value (ids). Zero-initialised = empty. */
typedef struct IdMap {
  uint64_t *keys;
  uint32_t *values; /* value + 1; 0 = free slot */
  uint32_t len, cap;
} IdMap;

bool id_map_get(const IdMap *map, uint64_t key, uint32_t *value);
void id_map_put(Arena *arena, IdMap *map, uint64_t key, uint32_t value);

typedef struct Interner {
  Arena *arena;
  const char **table;
  uint32_t len, cap;
} Interner;

void interner_init(Interner *in, Arena *arena);
const char *intern(Interner *in, const char *s);
const char *intern_n(Interner *in, const char *s, size_t n);

/* String builder; the text is always NUL-terminated. Zero-initialise with the arena set. */
typedef struct StrBuf {
  Arena *arena;
  char *text;
  size_t len, cap;
} StrBuf;

void strbuf_init(StrBuf *sb, Arena *arena);
void strbuf_putc(StrBuf *sb, char c);
void strbuf_puts(StrBuf *sb, const char *s);
void strbuf_put_n(StrBuf *sb, const char *s, size_t n);
void strbuf_printf(StrBuf *sb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "512 B", "1.0 KiB": a size for people. */
const char *bytes_print(Arena *arena, int64_t bytes);

/* With the characters escaped that mean something in XML. */
void strbuf_put_xml(StrBuf *sb, const char *s);
/* A text of an SVG at (x, y), of the classes of its style. */
void strbuf_svg_text(StrBuf *sb, double x, double y, const char *class, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* For tables in memory; free to change. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);
/* For values that leave the process: random streams of parameters, SARIF fingerprints. Never
 * changes (FNV-1a, 64 bits, with a finaliser). */
uint64_t hash_stable(const void *data, size_t n, uint64_t seed);

/* Edit distance for "did you mean"; gives up (returns limit + 1) beyond `limit`. */
unsigned edit_distance(const char *a, const char *b, unsigned limit);

#endif
