/* Interned strings, maps, string builder: see str.h. */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One step of splitmix64: a bijection that spreads every bit of its input. */
static uint64_t mix(uint64_t h) {
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9u;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

/* Eight bytes at a time: keys are mostly small structs, and this is the hottest loop of a compile.
 */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t h = 0x9e3779b97f4a7c15u * (seed + n + 1), word = 0;
  for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
    memcpy(&word, p, sizeof word);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  word = 0;
  if (n) memcpy(&word, p, n); /* nothing may be at NULL */
  return mix(h ^ word);
}

uint64_t hash_stable(const void *data, size_t n, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t h = 0xcbf29ce484222325u ^ seed;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
  return mix(h);
}

/* Of a key that is one word: carries mix its bits into the upper half of the product. */
static uint32_t hash_word(uint64_t key) {
  return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32);
}

static uint32_t *find_slot(const NameMap *map, const char *key) {
  uint32_t mask = map->nslots - 1;
  for (uint32_t i = hash_word((uintptr_t)key) & mask;; i = (i + 1) & mask) {
    uint32_t e = map->slots[i];
    if (!e || map->entries[e - 1].key == key) return &map->slots[i];
  }
}

bool name_map_has(const NameMap *map, const char *key) {
  return map->nslots && *find_slot(map, key);
}

void *name_map_get(const NameMap *map, const char *key) {
  if (!map->nslots) return NULL;
  uint32_t e = *find_slot(map, key);
  return e ? map->entries[e - 1].value : NULL;
}

void *name_map_put(Arena *arena, NameMap *map, const char *key, void *value) {
  if ((map->len + 1) * 2 > map->nslots) {
    map->nslots = map->nslots ? map->nslots * 2 : 16;
    map->slots = ARENA_ARRAY(arena, uint32_t, map->nslots);
    for (uint32_t e = 0; e < map->len; e++) *find_slot(map, map->entries[e].key) = e + 1;
  }
  uint32_t *slot = find_slot(map, key);
  if (*slot) {
    void *old = map->entries[*slot - 1].value;
    map->entries[*slot - 1].value = value;
    return old;
  }
  if (map->len == map->cap) {
    uint32_t cap = map->cap ? map->cap * 2 : 8;
    map->entries = arena_grow(arena, map->entries, map->cap * sizeof *map->entries,
                              cap * sizeof *map->entries);
    map->cap = cap;
  }
  map->entries[map->len++] = (struct NameMapEntry){key, value};
  *slot = map->len;
  return NULL;
}

static uint32_t id_slot(const IdMap *map, uint64_t key) {
  uint32_t mask = map->cap - 1, i = hash_word(key) & mask;
  while (map->values[i] && map->keys[i] != key) i = (i + 1) & mask;
  return i;
}

bool id_map_get(const IdMap *map, uint64_t key, uint32_t *value) {
  if (!map->cap) return false;
  uint32_t i = id_slot(map, key);
  if (!map->values[i]) return false;
  *value = map->values[i] - 1;
  return true;
}

void id_map_put(Arena *arena, IdMap *map, uint64_t key, uint32_t value) {
  if ((map->len + 1) * 2 > map->cap) {
    IdMap old = *map;
    map->cap = old.cap ? old.cap * 2 : 16;
    map->keys = ARENA_ARRAY(arena, uint64_t, map->cap);
    map->values = ARENA_ARRAY(arena, uint32_t, map->cap);
    for (uint32_t i = 0; i < old.cap; i++) {
      if (!old.values[i]) continue;
      uint32_t s = id_slot(map, old.keys[i]);
      map->keys[s] = old.keys[i];
      map->values[s] = old.values[i];
    }
  }
  uint32_t s = id_slot(map, key);
  if (!map->values[s]) map->len++;
  map->keys[s] = key;
  map->values[s] = value + 1;
}

void interner_init(Interner *in, Arena *arena) {
  *in = (Interner){.arena = arena};
}

const char *intern_n(Interner *in, const char *s, size_t n) {
  if ((in->len + 1) * 2 > in->cap) {
    uint32_t cap = in->cap ? in->cap * 2 : 256;
    const char **table = ARENA_ARRAY(in->arena, const char *, cap);
    for (uint32_t i = 0; i < in->cap; i++) {
      if (!in->table[i]) continue;
      uint32_t j = (uint32_t)hash_bytes(in->table[i], strlen(in->table[i]), 2) & (cap - 1);
      while (table[j]) j = (j + 1) & (cap - 1);
      table[j] = in->table[i];
    }
    in->table = table;
    in->cap = cap;
  }
  uint32_t i = (uint32_t)hash_bytes(s, n, 2) & (in->cap - 1);
  for (; in->table[i]; i = (i + 1) & (in->cap - 1))
    if (strncmp(in->table[i], s, n) == 0 && in->table[i][n] == 0) return in->table[i];
  in->len++;
  return in->table[i] = arena_strndup(in->arena, s, n);
}

const char *intern(Interner *in, const char *s) {
  return intern_n(in, s, strlen(s));
}

void strbuf_init(StrBuf *sb, Arena *arena) {
  *sb = (StrBuf){.arena = arena, .cap = 64};
  sb->text = arena_alloc(arena, sb->cap);
}

void strbuf_put_n(StrBuf *sb, const char *s, size_t n) {
  if (sb->len + n + 1 > sb->cap) {
    size_t cap = sb->cap;
    while (sb->len + n + 1 > cap) cap *= 2;
    sb->text = arena_grow(sb->arena, sb->text, sb->cap, cap);
    sb->cap = cap;
  }
  memcpy(sb->text + sb->len, s, n);
  sb->len += n;
  sb->text[sb->len] = 0;
}

void strbuf_putc(StrBuf *sb, char c) {
  strbuf_put_n(sb, &c, 1);
}
void strbuf_puts(StrBuf *sb, const char *s) {
  strbuf_put_n(sb, s, strlen(s));
}

void strbuf_printf(StrBuf *sb, const char *fmt, ...) {
  char small[256];
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if ((size_t)n < sizeof small)
    strbuf_put_n(sb, small, (size_t)n);
  else
    strbuf_puts(sb, arena_vprintf(sb->arena, fmt, again));
  va_end(again);
}

void strbuf_put_xml(StrBuf *sb, const char *s) {
  for (; *s; s++) {
    if (*s == '<')
      strbuf_puts(sb, "&lt;");
    else if (*s == '&')
      strbuf_puts(sb, "&amp;");
    else if (*s == '"')
      strbuf_puts(sb, "&quot;");
    else
      strbuf_putc(sb, *s);
  }
}

void strbuf_svg_text(StrBuf *sb, double x, double y, const char *class, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = arena_vprintf(sb->arena, fmt, args);
  va_end(args);
  strbuf_printf(sb, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
  if (*class) strbuf_printf(sb, " class=\"%s\"", class);
  strbuf_putc(sb, '>');
  strbuf_put_xml(sb, text);
  strbuf_puts(sb, "</text>\n");
}

unsigned edit_distance(const char *a, const char *b, unsigned limit) {
  enum { LONGEST = 64 };
  size_t la = strlen(a), lb = strlen(b);
  if (la > LONGEST || lb > LONGEST) return limit + 1;
  unsigned row[LONGEST + 1];
  for (size_t j = 0; j <= lb; j++) row[j] = (unsigned)j;
  for (size_t i = 1; i <= la; i++) {
    unsigned diagonal = row[0], best = row[0] = (unsigned)i;
    for (size_t j = 1; j <= lb; j++) {
      unsigned up = row[j], d = diagonal + (a[i - 1] != b[j - 1]);
      if (up + 1 < d) d = up + 1;
      if (row[j - 1] + 1 < d) d = row[j - 1] + 1;
      diagonal = up;
      row[j] = d;
      if (d < best) best = d;
    }
    if (best > limit) return limit + 1;
  }
  return row[lb] <= limit ? row[lb] : limit + 1;
}

const char *bytes_print(Arena *arena, int64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return arena_printf(arena, "%lld B", (long long)bytes);
  double n = (double)bytes / 1024;
  size_t u = 0;
  /* 1023.95 and more would print as 1024.0 of the smaller unit. */
  for (; n >= 1023.95 && u + 1 < sizeof units / sizeof *units; u++) n /= 1024;
  return arena_printf(arena, "%.1f %s", n, units[u]);
}
