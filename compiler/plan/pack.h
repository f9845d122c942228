/* Packing buffers with lifetimes into one arena ("dynamic storage allocation"). Pure. */
#ifndef DTM_PLAN_PACK_H
#define DTM_PLAN_PACK_H

#include "base/arena.h"

/* A buffer that is alive from step `first` to step `last`, both included. */
typedef struct PackItem {
  uint64_t size;        /* bytes, a multiple of the alignment; 0 = takes no space */
  uint32_t first, last; /* first <= last */
  uint64_t where;       /* bit set of the groups of ranks that have it; 0 = all ranks */
  uint64_t offset;      /* result */
} PackItem;

/* Gives every item an offset so that no two that are alive at once on one rank overlap. Returns the
 * height. *bound = the largest sum of sizes alive at one step on one rank, which no packing can
 * beat. */
uint64_t pack_items(Arena *arena, PackItem *items, uint32_t n, uint64_t *bound);

/* The same bound alone. */
uint64_t pack_bound(Arena *arena, const PackItem *items, uint32_t n);

#endif
