/* Arenas: see arena.h. Blocks double from 64 KiB to 4 MiB. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_FIRST_BLOCK = 64 << 10, ARENA_LAST_BLOCK = 4 << 20 };

struct ArenaBlock {
  ArenaBlock *next;
  size_t size;
  _Alignas(16) unsigned char bytes[];
};

void arena_init(Arena *arena) {
  const char *debug = getenv("DTMC_ARENA_DEBUG");
  *arena = (Arena){.one_by_one = debug && *debug == '1'};
}

void arena_free(Arena *arena) {
  for (ArenaBlock *b = arena->head, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  arena->head = NULL;
  arena->used = arena->total = 0;
}

static size_t round_up(size_t n) {
  return (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

static void add_block(Arena *arena, size_t need) {
  size_t size = arena->head ? arena->head->size * 2 : ARENA_FIRST_BLOCK;
  if (size > ARENA_LAST_BLOCK) size = ARENA_LAST_BLOCK;
  if (size < need || arena->one_by_one) size = need;
  ArenaBlock *b = calloc(1, sizeof *b + size);
  if (!b) {
    fprintf(stderr, "dtmc: out of memory (%zu bytes)\n", size);
    abort();
  }
  b->next = arena->head;
  b->size = size;
  arena->head = b;
  arena->used = 0;
  arena->total += size;
}

void *arena_alloc(Arena *arena, size_t size) {
  size = round_up(size ? size : 1);
  if (arena->one_by_one || !arena->head || arena->used + size > arena->head->size)
    add_block(arena, size);
  void *p = arena->head->bytes + arena->used;
  arena->used += size;
  return p;
}

void *arena_grow(Arena *arena, void *old, size_t old_size, size_t new_size) {
  size_t had = round_up(old_size ? old_size : 1), want = round_up(new_size ? new_size : 1);
  if (old && want <= had) return old;
  if (old && arena->head && !arena->one_by_one) {
    unsigned char *end = arena->head->bytes + arena->used;
    bool last = (unsigned char *)old + had == end;
    if (last && arena->used - had + want <= arena->head->size) {
      arena->used += want - had;
      return old;
    }
  }
  void *p = arena_alloc(arena, new_size);
  if (old) memcpy(p, old, old_size);
  return p;
}

char *arena_strndup(Arena *arena, const char *s, size_t n) {
  char *p = arena_alloc(arena, n + 1);
  memcpy(p, s, n);
  return p;
}

char *arena_strdup(Arena *arena, const char *s) {
  return arena_strndup(arena, s, strlen(s));
}

char *arena_vprintf(Arena *arena, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, again);
  va_end(again);
  char *p = arena_alloc(arena, (size_t)n + 1);
  vsnprintf(p, (size_t)n + 1, fmt, ap);
  return p;
}

char *arena_printf(Arena *arena, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *p = arena_vprintf(arena, fmt, ap);
  va_end(ap);
  return p;
}
