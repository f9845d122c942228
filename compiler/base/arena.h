/* Arenas: memory by lifetime. Nothing is freed alone; an arena is freed whole.
 *
 * Three lifetimes exist in the compiler: the session, one compiled program, one pass. A debug mode
 * (environment DTMC_ARENA_DEBUG=1) makes one malloc per object so that AddressSanitizer sees each.
 */
#ifndef DTM_BASE_ARENA_H
#define DTM_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;

typedef struct Arena {
  ArenaBlock *head; /* block that is being filled; older blocks behind it */
  size_t used;      /* bytes handed out in `head` */
  size_t total;     /* bytes obtained from the system, for reports */
  bool one_by_one;  /* debug mode: every object its own block */
} Arena;

void arena_init(Arena *arena);
void arena_free(Arena *arena);
/* As arena_free, but the next use takes the largest block again: cheaper than new memory. */
void arena_reset(Arena *arena);

/* Zeroed memory, aligned for any object. Never returns NULL: out of memory ends the process with a
 * message (a compiler has nothing better to do). */
void *arena_alloc(Arena *arena, size_t size);
/* Grows an object to `new_size`, in place when it was the last one; the added bytes are zero. */
void *arena_grow(Arena *arena, void *old, size_t old_size, size_t new_size);
char *arena_strdup(Arena *arena, const char *s);
char *arena_strndup(Arena *arena, const char *s, size_t n);
char *arena_printf(Arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The texts one behind the other, the last argument is NULL: what printf does in a tenth of the
 * time.
 */
char *arena_concat(Arena *arena, const char *first, ...) __attribute__((sentinel));
char *arena_vprintf(Arena *arena, const char *fmt, va_list ap);

#define ARENA_NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

#endif
