/* Arenas: see arena.h. Blocks double from 64 KiB to 4 MiB. Large ones are mapped on their own, at
 * the size and alignment of huge pages: for a deep program the system's page by page work would
 * otherwise take as long as the compiler's. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  ARENA_ALIGN = 16,
  ARENA_FIRST_BLOCK = 16 << 10,
  ARENA_LAST_BLOCK = 4 << 20,
  HUGE_PAGE = 2 << 20
};

struct ArenaBlock {
  ArenaBlock *next;
  size_t size, mapped; /* mapped: bytes to unmap; 0 = from malloc */
  _Alignas(16) unsigned char bytes[];
};

void arena_init(Arena *arena) {
  const char *debug = getenv("DTMC_ARENA_DEBUG");
  *arena = (Arena){.one_by_one = debug && *debug == '1'};
}

void arena_free(Arena *arena) {
  for (ArenaBlock *b = arena->head, *next; b; b = next) {
    next = b->next;
    if (b->mapped)
      munmap(b, b->mapped);
    else
      free(b);
  }
  arena->head = NULL;
  arena->used = arena->total = 0;
}

void arena_reset(Arena *arena) {
  ArenaBlock *b = arena->head;
  if (!b || arena->one_by_one) {
    arena_free(arena);
    return;
  }
  Arena older = {.head = b->next};
  arena_free(&older);
  memset(b->bytes, 0, arena->used);
  b->next = NULL;
  arena->used = 0;
  arena->total = b->size;
}

static size_t round_up(size_t n) {
  return (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

/* Zeroed, in whole huge pages; NULL when there is no room. */
static ArenaBlock *map_block(size_t bytes) {
  size_t size = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, room = size + HUGE_PAGE;
  unsigned char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
  if (before) munmap(p, before);
  if (before < HUGE_PAGE) munmap(p + before + size, HUGE_PAGE - before);
  ArenaBlock *b = (ArenaBlock *)(void *)(p + before);
#ifdef MADV_HUGEPAGE
  madvise(b, size, MADV_HUGEPAGE); /* a wish: without it all works the same */
#endif
  b->mapped = size;
  b->size = size - sizeof *b;
  return b;
}

/* Apart, so that handing out memory saves no registers for it. */
static __attribute__((noinline)) void add_block(Arena *arena, size_t need) {
  size_t size = arena->head ? arena->head->size * 2 : ARENA_FIRST_BLOCK;
  if (size >= ARENA_LAST_BLOCK / 2) size = ARENA_LAST_BLOCK - sizeof(ArenaBlock);
  if (size < need || arena->one_by_one) size = need;
  bool large = size + sizeof(ArenaBlock) >= HUGE_PAGE && !arena->one_by_one;
  ArenaBlock *b = large ? map_block(sizeof *b + size) : calloc(1, sizeof *b + size);
  if (!b) {
    fprintf(stderr, "dtmc: out of memory (%zu bytes)\n", size);
    abort();
  }
  b->next = arena->head;
  if (!large) b->size = size;
  arena->head = b;
  arena->used = 0;
  arena->total += b->size;
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

char *arena_concat(Arena *arena, const char *first, ...) {
  va_list ap;
  size_t n = 0;
  va_start(ap, first);
  for (const char *s = first; s; s = va_arg(ap, const char *)) n += strlen(s);
  va_end(ap);
  char *text = arena_alloc(arena, n + 1), *to = text;
  va_start(ap, first);
  for (const char *s = first; s; s = va_arg(ap, const char *)) {
    size_t len = strlen(s);
    memcpy(to, s, len);
    to += len;
  }
  va_end(ap);
  return text;
}

char *arena_vprintf(Arena *arena, const char *fmt, va_list ap) {
  /* Most texts fit into what is left of the block: they are written where they will lie. */
  size_t room = arena->head && !arena->one_by_one ? arena->head->size - arena->used : 0;
  char *p = room ? (char *)arena->head->bytes + arena->used : NULL;
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(p, room, fmt, again);
  va_end(again);
  if (round_up((size_t)n + 1) <= room) return arena_alloc(arena, (size_t)n + 1);
  if (room) memset(p, 0, room); /* what is not handed out is zero */
  p = arena_alloc(arena, (size_t)n + 1);
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
