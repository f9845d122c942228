/* Packing buffers with lifetimes: see pack.h.
 *
 * The items are packed in several orders of preference (skyline.c); most programs are done with
 * the first. If none comes close enough to the bound, a search goes on from orders with some
 * chance in them: an item that reaches the top moves forward, for as long as that does not make it
 * worse, then another start. The budget is counted in work, not in time, so that results do not
 * depend on the machine.
 */
#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

#include "plan/skyline.h"

enum {
  GOOD = 200,      /* within 1 / GOOD of the bound the search ends at once, */
  FAIR = 50,       /* within 1 / FAIR when WORK is done, */
  WORK = 1000000,  /* some four milliseconds, */
  MOST = 4 * WORK, /* and anyway when MOST is done */
  CLIMB = 24       /* tries from one start */
};

typedef struct Search {
  const PackItem *items;
  Skyline sky;
  uint32_t n;
  uint64_t bound;
  uint64_t *offset, *best; /* of the last packing; of the best one */
  uint64_t best_height;
  uint32_t *order;
  struct Key *keys;
  uint64_t state; /* of the random numbers */
} Search;

static uint64_t next_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545F4914F6CDD1Dull;
}

typedef struct Key {
  double weight;
  uint32_t item;
} Key;

static int heavy_first(const void *pa, const void *pb) {
  const Key *a = pa, *b = pb;
  if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
  return a->item < b->item ? -1 : a->item > b->item;
}

typedef enum OrderKind {
  ORDER_LIFE,
  ORDER_AREA,
  ORDER_LIFE_AREA,
  ORDER_SIZE,
  ORDER_COUNT
} OrderKind;

/* What goes to the ground first: what lives long, or takes much. `noise`: each weight is up to so
 * much larger, by chance. */
static void make_order(Search *s, OrderKind kind, double noise) {
  for (uint32_t i = 0; i < s->n; i++) {
    double life = (double)(s->items[i].last - s->items[i].first) + 1;
    double size = (double)s->items[i].size, weight = 0;
    switch (kind) {
    case ORDER_LIFE:
      weight = life + 1e-15 * size; /* equal lives: large first */
      break;
    case ORDER_AREA:
      weight = life * size;
      break;
    case ORDER_LIFE_AREA:
      weight = life * life * size;
      break;
    case ORDER_SIZE:
      weight = size;
      break;
    case ORDER_COUNT:
      break;
    }
    if (noise > 0) weight *= 1 + noise * (double)(next_random(&s->state) >> 11) * 0x1p-53;
    s->keys[i] = (Key){weight, i};
  }
  qsort(s->keys, s->n, sizeof *s->keys, heavy_first);
  for (uint32_t k = 0; k < s->n; k++) s->order[k] = s->keys[k].item;
}

/* Packs in s->order, keeps the best. Returns the height as skyline_pack does. */
static uint64_t try_order(Search *s, uint64_t limit) {
  uint64_t height = skyline_pack(&s->sky, s->order, limit, s->offset);
  if (height < s->best_height) {
    s->best_height = height;
    memcpy(s->best, s->offset, s->n * sizeof *s->best);
  }
  return height;
}

/* Height and work that are spent allow to stop. */
static bool done(const Search *s) {
  uint64_t above = s->best_height - s->bound;
  return above <= s->bound / GOOD || s->sky.work >= MOST ||
         (s->sky.work >= WORK && above <= s->bound / FAIR);
}

static void move_forward(uint32_t *order, uint32_t from, uint32_t to) {
  uint32_t item = order[from];
  memmove(order + to + 1, order + to, (from - to) * sizeof *order);
  order[to] = item;
}

static uint32_t below(Search *s, uint32_t n) {
  return (uint32_t)(next_random(&s->state) >> 32) % n;
}

/* Place in the order of an item that reaches `height`. */
static uint32_t pick_top(Search *s, const uint32_t *order, const uint64_t *offset,
                         uint64_t height) {
  uint32_t top = 0, seen = 0;
  for (uint32_t k = 0; k < s->n; k++)
    if (offset[order[k]] + s->items[order[k]].size == height && below(s, ++seen) == 0) top = k;
  return top;
}

/* From s->order, whose packing of `height` is in s->offset. */
static void climb(Search *s, uint64_t height, uint32_t *base, uint64_t *offset) {
  memcpy(base, s->order, s->n * sizeof *base);
  memcpy(offset, s->offset, s->n * sizeof *offset);
  for (int i = 0; i < CLIMB && !done(s); i++) {
    memcpy(s->order, base, s->n * sizeof *base);
    uint32_t from = pick_top(s, base, offset, height);
    if (from) move_forward(s->order, from, below(s, from));
    for (uint32_t more = below(s, 3); more > 0; more--) {
      from = 1 + below(s, s->n);
      if (from < s->n) move_forward(s->order, from, below(s, from));
    }
    s->sky.work += s->n;
    uint64_t now = try_order(s, height + 1);
    if (now > height) continue;
    if (now < height) i = -1;
    height = now;
    memcpy(base, s->order, s->n * sizeof *base);
    memcpy(offset, s->offset, s->n * sizeof *offset);
  }
}

static void search(Search *s, Arena *arena) {
  uint32_t *base = ARENA_ARRAY(arena, uint32_t, s->n);
  uint64_t *offset = ARENA_ARRAY(arena, uint64_t, s->n);
  for (int round = 0; !done(s); round++) {
    make_order(s, (OrderKind)(round % ORDER_SIZE), 0.5);
    uint64_t height = try_order(s, s->best_height + s->best_height / 50);
    if (height != UINT64_MAX) climb(s, height, base, offset);
  }
}

/* Largest sum of sizes alive at one step on the ranks of one group. */
static uint64_t live_bound(Arena *arena, const Skyline *s) {
  uint64_t most = 0;
  int64_t *change = ARENA_ARRAY(arena, int64_t, s->nsteps + 1);
  for (uint32_t g = 0; g < s->ngroups; g++) {
    memset(change, 0, sizeof *change * (s->nsteps + 1));
    for (uint32_t i = 0; i < s->n; i++) {
      if (s->items[i].where && !(s->items[i].where & s->group[g])) continue;
      change[s->begin[i]] += (int64_t)s->items[i].size;
      change[s->end[i] + 1] -= (int64_t)s->items[i].size;
    }
    int64_t live = 0;
    for (uint32_t c = 0; c < s->nsteps; c++) {
      live += change[c];
      if ((uint64_t)live > most) most = (uint64_t)live;
    }
  }
  return most;
}

uint64_t pack_bound(Arena *arena, const PackItem *items, uint32_t n) {
  if (n == 0) return 0;
  Skyline s;
  skyline_init(&s, arena, items, n);
  return live_bound(arena, &s);
}

uint64_t pack_items(Arena *arena, PackItem *items, uint32_t n, uint64_t *bound) {
  /* Empty items overlap nothing. */
  uint32_t *real = ARENA_ARRAY(arena, uint32_t, n), nreal = 0;
  PackItem *dense = ARENA_ARRAY(arena, PackItem, n);
  for (uint32_t i = 0; i < n; i++) {
    items[i].offset = 0;
    if (items[i].size == 0) continue;
    dense[nreal] = items[i];
    real[nreal++] = i;
  }
  *bound = 0;
  if (nreal == 0) return 0;
  Search s = {.items = dense,
              .n = nreal,
              .offset = ARENA_ARRAY(arena, uint64_t, nreal),
              .best = ARENA_ARRAY(arena, uint64_t, nreal),
              .best_height = UINT64_MAX,
              .order = ARENA_ARRAY(arena, uint32_t, nreal),
              .keys = ARENA_ARRAY(arena, Key, nreal),
              .state = 0x9E3779B97F4A7C15ull};
  skyline_init(&s.sky, arena, dense, nreal);
  *bound = live_bound(arena, &s.sky);
  s.bound = *bound;
  for (int kind = 0; kind < ORDER_COUNT && (kind == 0 || !done(&s)); kind++) {
    make_order(&s, (OrderKind)kind, 0);
    try_order(&s, s.best_height);
  }
  search(&s, arena);
  for (uint32_t i = 0; i < nreal; i++) items[real[i]].offset = s.best[i];
  return s.best_height;
}
