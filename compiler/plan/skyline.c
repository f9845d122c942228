/* Packing from the ground up: see skyline.h.
 *
 * The skyline is the height up to which memory is taken at every step: a row of segments of equal
 * height. Again and again the lowest segment takes the first item in the order that is alive only
 * within it; where there is none it is raised to its lower neighbour, and what lay between is lost.
 * (Best fit after Burke, Kendall and Whitwell, "A new placement heuristic for the orthogonal
 * stock-cutting problem", Operations Research 52, 2004; items here cannot move sideways.) A gap
 * arises only where nothing that is left fits, which is rare while most items are left; programs
 * that fill the arena one item at a time, each as low as it can, leave theirs early.
 *
 * Groups of ranks with buffers of their own have a row each. An item of several groups is placed
 * when the lowest segments of all its rows are level.
 */
#include "plan/skyline.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX };

struct Segment {
  uint32_t end, before, after; /* last column; neighbours in the row or NONE */
  bool here;                   /* a segment begins at this column */
  bool stuck;                  /* a whole row that waits for others */
  uint64_t height;
};

static int ascending(const void *pa, const void *pb) {
  uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
  return (a > b) - (a < b);
}

/* A row for every bit of `where`, but one for bits that no item tells apart. */
static void find_groups(Skyline *s) {
  uint64_t alike[64], used = 0;
  memset(alike, 0xff, sizeof alike);
  for (uint32_t i = 0; i < s->n; i++) {
    uint64_t where = s->items[i].where;
    if (!where) continue;
    used |= where;
    for (int bit = 0; bit < 64; bit++) alike[bit] &= where >> bit & 1 ? where : ~where;
  }
  for (int bit = 0; bit < 64; bit++) {
    if (!(used >> bit & 1)) continue;
    s->group[s->ngroups++] = 1ull << bit;
    used &= ~alike[bit];
  }
  if (s->ngroups == 0) s->group[s->ngroups++] = 1;
}

static void find_columns(Skyline *s, Arena *arena) {
  uint32_t *steps = ARENA_ARRAY(arena, uint32_t, s->n);
  for (uint32_t i = 0; i < s->n; i++) steps[i] = s->items[i].first;
  qsort(steps, s->n, sizeof *steps, ascending);
  for (uint32_t i = 0; i < s->n; i++)
    if (i == 0 || steps[i] != steps[s->nsteps - 1]) steps[s->nsteps++] = steps[i];
  uint32_t past = steps[s->nsteps - 1] + 1;
  uint32_t *column = ARENA_ARRAY(arena, uint32_t, past); /* the last that begins by this step */
  for (uint32_t t = steps[0], c = 0; t < past; t++) {
    if (c + 1 < s->nsteps && steps[c + 1] == t) c++;
    column[t] = c;
  }
  for (uint32_t i = 0; i < s->n; i++) {
    s->begin[i] = column[s->items[i].first];
    s->end[i] = s->items[i].last < past ? column[s->items[i].last] : s->nsteps - 1;
  }
}

void skyline_init(Skyline *s, Arena *arena, const PackItem *items, uint32_t n) {
  *s = (Skyline){.items = items,
                 .n = n,
                 .begin = ARENA_ARRAY(arena, uint32_t, n),
                 .end = ARENA_ARRAY(arena, uint32_t, n),
                 .rank = ARENA_ARRAY(arena, uint32_t, n),
                 .after = ARENA_ARRAY(arena, uint32_t, n + 1),
                 .before = ARENA_ARRAY(arena, uint32_t, n + 1)};
  find_groups(s);
  find_columns(s, arena);
  s->starting = ARENA_ARRAY(arena, uint32_t, n);
  s->starts = ARENA_ARRAY(arena, uint32_t, s->nsteps + 2);
  for (uint32_t i = 0; i < n; i++) s->starts[s->begin[i] + 2]++;
  for (uint32_t c = 0; c < s->nsteps; c++) s->starts[c + 2] += s->starts[c + 1];
  for (uint32_t i = 0; i < n; i++) s->starting[s->starts[s->begin[i] + 1]++] = i;
  s->segment = ARENA_ARRAY(arena, Segment, s->nsteps * s->ngroups);
  s->nleaves = 1;
  while (s->nleaves < s->nsteps * s->ngroups) s->nleaves *= 2;
  s->lowest = ARENA_ARRAY(arena, uint64_t, 2 * s->nleaves);
}

/* --- the row of segments
 * --------------------------------------------------------------------------- */

/* Sets what the tree knows of a column: how high it is, UINT64_MAX = no segment begins there. */
static void set_leaf(Skyline *s, uint32_t column, uint64_t height) {
  uint32_t node = s->nleaves + column;
  s->lowest[node] = height;
  while (node > 1) {
    uint64_t a = s->lowest[node & ~1u], b = s->lowest[node | 1], least = a < b ? a : b;
    node /= 2;
    if (s->lowest[node] == least) return;
    s->lowest[node] = least;
  }
}

/* First column of the lowest segment. */
static uint32_t lowest_segment(const Skyline *s) {
  uint32_t node = 1;
  while (node < s->nleaves) node = s->lowest[2 * node] == s->lowest[1] ? 2 * node : 2 * node + 1;
  return node - s->nleaves;
}

static void set_segment(Skyline *s, uint32_t column, uint32_t end, uint64_t height) {
  Segment *g = &s->segment[column];
  g->here = true;
  g->stuck = false;
  g->end = end;
  g->height = height;
  set_leaf(s, column, height);
}

/* Makes a segment out of two neighbours of equal height. */
static void join(Skyline *s, uint32_t left, uint32_t right) {
  Segment *l = &s->segment[left], *r = &s->segment[right];
  l->end = r->end;
  l->after = r->after;
  if (r->after != NONE) s->segment[r->after].before = left;
  r->here = false;
  set_leaf(s, right, UINT64_MAX);
}

/* Joins a segment whose height is new with neighbours that are level with it. */
static void settle(Skyline *s, uint32_t column) {
  const Segment *g = &s->segment[column];
  uint32_t before = g->before;
  if (g->after != NONE && s->segment[g->after].height == g->height) join(s, column, g->after);
  if (before != NONE && s->segment[before].height == g->height) join(s, before, column);
}

/* Cuts a segment in two, at `column`. */
static void split(Skyline *s, uint32_t segment, uint32_t column) {
  Segment *l = &s->segment[segment], *r = &s->segment[column];
  r->before = segment;
  r->after = l->after;
  if (r->after != NONE) s->segment[r->after].before = column;
  set_segment(s, column, l->end, l->height);
  l->after = column;
  l->end = column - 1;
}

/* The segment that a column lies in. */
static uint32_t segment_of(const Skyline *s, uint32_t column) {
  while (!s->segment[column].here) column--;
  return column;
}

/* Nothing fits on this segment. A whole row first lets the others that are as low come to its
 * height, then goes up to the next of them; the odd height of one that waits puts it behind its
 * equals (heights are even). */
static void raise(Skyline *s, uint32_t column) {
  Segment *g = &s->segment[column];
  uint64_t height = UINT64_MAX;
  if (g->before != NONE) height = s->segment[g->before].height;
  if (g->after != NONE && s->segment[g->after].height < height)
    height = s->segment[g->after].height;
  if (height == UINT64_MAX && !g->stuck) {
    g->stuck = true;
    set_leaf(s, column, g->height + 1);
    return;
  }
  for (uint32_t c = 0; height == UINT64_MAX && c < s->nsteps * s->ngroups; c++)
    if (s->segment[c].here && s->segment[c].height > g->height && s->segment[c].height < height)
      height = s->segment[c].height;
  g->stuck = false;
  set_leaf(s, column, height);
  g->height = height;
  settle(s, column);
}

/* --- packing
 * --------------------------------------------------------------------------------------- */

static bool in_group(const Skyline *s, uint32_t item, uint32_t group) {
  uint64_t where = s->items[item].where;
  return !where || (where & s->group[group]);
}

/* Whether an item that fits a segment of row `home` can lie at that height in its other rows. */
static bool fits_elsewhere(const Skyline *s, uint32_t item, uint32_t home, uint64_t height) {
  for (uint32_t g = 0; g < s->ngroups; g++) {
    if (g == home || !in_group(s, item, g)) continue;
    uint32_t row = g * s->nsteps;
    const Segment *there = &s->segment[segment_of(s, row + s->begin[item])];
    if (there->height != height || there->end < row + s->end[item]) return false;
  }
  return true;
}

/* The first item in the order that fits a segment; NONE when no item does. Few items begin within
 * a narrow segment; in a wide one many fit. */
static uint32_t choose(Skyline *s, uint32_t segment, const uint32_t *order) {
  const Segment *g = &s->segment[segment];
  uint32_t home = segment / s->nsteps, row = home * s->nsteps;
  uint32_t first = segment - row, last = g->end - row, best = NONE;
  uint32_t from = s->starts[first], to = s->starts[last + 1];
  if ((to - from) * 8 < s->n) {
    for (uint32_t k = from; k < to; k++) {
      uint32_t item = s->starting[k];
      if (s->rank[item] < best && s->end[item] <= last && in_group(s, item, home) &&
          fits_elsewhere(s, item, home, g->height))
        best = s->rank[item];
    }
    s->work += to - from;
    return best == NONE ? NONE : order[best];
  }
  for (uint32_t k = s->after[s->n]; k != s->n; k = s->after[k]) {
    uint32_t item = order[k];
    s->work++;
    if (s->begin[item] >= first && s->end[item] <= last && in_group(s, item, home) &&
        fits_elsewhere(s, item, home, g->height))
      return item;
  }
  return NONE;
}

static void place(Skyline *s, uint32_t item, uint64_t top) {
  for (uint32_t g = 0; g < s->ngroups; g++) {
    if (!in_group(s, item, g)) continue;
    uint32_t begin = g * s->nsteps + s->begin[item], end = g * s->nsteps + s->end[item];
    uint32_t segment = segment_of(s, begin);
    if (segment < begin) split(s, segment, begin);
    if (s->segment[begin].end > end) split(s, begin, end + 1);
    set_segment(s, begin, end, top);
    settle(s, begin);
  }
  uint32_t k = s->rank[item];
  s->after[s->before[k]] = s->after[k];
  s->before[s->after[k]] = s->before[k];
  s->rank[item] = NONE;
}

static void start(Skyline *s, const uint32_t *order) {
  uint32_t ncolumns = s->nsteps * s->ngroups;
  for (uint32_t c = 0; c < ncolumns; c++) s->segment[c].here = false;
  memset(s->lowest, 0xff, 2 * s->nleaves * sizeof *s->lowest);
  for (uint32_t g = 0; g < s->ngroups; g++) {
    uint32_t column = g * s->nsteps;
    s->segment[column] = (Segment){.before = NONE, .after = NONE};
    set_segment(s, column, column + s->nsteps - 1, 0);
  }
  for (uint32_t k = 0; k < s->n; k++) {
    s->rank[order[k]] = k;
    s->after[k] = k + 1;
    s->before[k] = k ? k - 1 : s->n;
  }
  s->after[s->n] = 0;
  s->before[s->n] = s->n - 1;
  s->work += s->n + ncolumns;
}

uint64_t skyline_pack(Skyline *s, const uint32_t *order, uint64_t limit, uint64_t *offset) {
  uint64_t height = 0;
  start(s, order);
  for (uint32_t left = s->n; left;) {
    uint32_t segment = lowest_segment(s), item = choose(s, segment, order);
    s->work += 8;
    if (item == NONE) {
      raise(s, segment);
      continue;
    }
    offset[item] = s->segment[segment].height;
    uint64_t top = offset[item] + s->items[item].size;
    if (top >= limit) return UINT64_MAX;
    if (top > height) height = top;
    place(s, item, top);
    left--;
  }
  return height;
}
