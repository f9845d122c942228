/* Packing in a given order of preference: see skyline.c. Only pack.c uses it. */
#ifndef DTM_PLAN_SKYLINE_H
#define DTM_PLAN_SKYLINE_H

#include "plan/pack.h"

typedef struct Segment Segment;

/* What packings of the same items share. A column is a step at which an item begins (memory is
 * taken nowhere else), once per group of ranks; a row is the columns of one group. */
typedef struct Skyline {
  const PackItem *items; /* none of size 0 */
  uint32_t n;
  uint32_t nsteps, ngroups;    /* columns of a row, rows */
  uint64_t group[64];          /* of a row: a bit of PackItem.where */
  uint32_t *begin, *end;       /* of an item: its first and last column in a row */
  uint32_t *starting, *starts; /* items that begin at c: starting[starts[c] .. starts[c + 1]) */
  /* Scratch of one packing. */
  Segment *segment; /* by first column */
  uint64_t *lowest; /* a tree: the leaves are the columns, an inner node is the least below it */
  uint32_t nleaves;
  uint32_t *rank;           /* of an item: its place in the order, NONE when it has been placed */
  uint32_t *after, *before; /* the list of places whose items are left; n is before the first */
  uint64_t work;            /* items and columns looked at so far */
} Skyline;

void skyline_init(Skyline *s, Arena *arena, const PackItem *items, uint32_t n);

/* Packs the items, those early in `order` first wherever there is a choice. Writes offset[item] and
 * returns the height; gives up and returns UINT64_MAX when the height would reach `limit`. */
uint64_t skyline_pack(Skyline *s, const uint32_t *order, uint64_t limit, uint64_t *offset);

#endif
