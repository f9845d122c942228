/* Packing buffers with lifetimes: see pack.h.
 *
 * Best fit in several orders, then a search over orders. Placing the items in a given order, each
 * at the lowest offset that is free during its life, is one pass over those placed before (kept
 * sorted by offset). Greedy orders alone leave 20 to 40 % on hard instances; what makes training
 * programs easy is to begin at the fullest moment: the items alive there stack without a gap, and
 * those around it in time come next. If no order comes within 2 % of the bound, items that stick
 * out at the top move forward in the best order until it does or the budget (counted in steps, so
 * that results do not depend on the machine) is used up.
 */
#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

enum {
  BUDGET = 12000000, /* items looked at: some twenty milliseconds */
  ROUNDS = 100       /* of the search between its strictest and laxest */
};

/* An item that has its place. */
typedef struct Placed {
  uint64_t begin, end;
  uint32_t first, last;
} Placed;

typedef struct Search {
  const PackItem *items;
  uint32_t n;
  uint64_t bound, good;    /* good enough: stop there */
  Placed *placed;          /* scratch: in the order of their offsets */
  uint64_t *offset, *best; /* per item */
  uint32_t *order, *best_order;
  uint64_t best_height;
  int64_t budget;
  bool first_fit; /* the lowest gap that is large enough, not the tightest */
} Search;

/* Places items in s->order; returns the height, or more than `limit` as soon as it passes it. */
static uint64_t place(Search *s, uint64_t limit) {
  uint64_t height = 0;
  uint32_t nplaced = 0;
  for (uint32_t k = 0; k < s->n; k++) {
    const PackItem *item = &s->items[s->order[k]];
    uint64_t at = 0, best_gap = UINT64_MAX, best_at = 0;
    bool first_fit = s->first_fit;
    for (const Placed *q = s->placed; q < s->placed + nplaced; q++) {
      if (q->first > item->last || q->last < item->first) continue;
      if (q->begin >= at + item->size && q->begin - at < best_gap) {
        best_gap = q->begin - at;
        best_at = at;
        if (first_fit || best_gap == item->size) break;
      }
      if (q->end > at) at = q->end;
    }
    s->budget -= nplaced + 1;
    if (best_gap == UINT64_MAX) best_at = at;
    s->offset[s->order[k]] = best_at;
    if (best_at + item->size > height) height = best_at + item->size;
    if (height >= limit) return height;
    uint32_t lo = 0, hi = nplaced;
    while (lo < hi) {
      uint32_t mid = (lo + hi) / 2;
      if (s->placed[mid].begin <= best_at)
        lo = mid + 1;
      else
        hi = mid;
    }
    memmove(s->placed + lo + 1, s->placed + lo, (nplaced - lo) * sizeof *s->placed);
    s->placed[lo] = (Placed){best_at, best_at + item->size, item->first, item->last};
    nplaced++;
  }
  return height;
}

static void keep_best(Search *s, uint64_t height) {
  s->best_height = height;
  memcpy(s->best, s->offset, s->n * sizeof *s->best);
  memcpy(s->best_order, s->order, s->n * sizeof *s->order);
}

/* Tries s->order; keeps it when it is the best so far. */
static bool try_order(Search *s) {
  uint64_t height = place(s, s->best_height);
  if (height >= s->best_height) return false;
  keep_best(s, height);
  return true;
}

typedef struct Key {
  double major, minor;
  uint32_t item;
} Key;

static int compare_keys(const void *pa, const void *pb) {
  const Key *a = pa, *b = pb;
  if (a->major != b->major) return a->major < b->major ? -1 : 1;
  if (a->minor != b->minor) return a->minor < b->minor ? -1 : 1;
  return a->item < b->item ? -1 : a->item > b->item;
}

typedef enum OrderKind {
  ORDER_PEAK = 0,  /* distance from the fullest step, long lives first */
  ORDER_PEAK_SIZE, /* distance from the fullest step, large first */
  ORDER_SIZE,      /* large first */
  ORDER_LIFE,      /* long first */
  ORDER_AREA,      /* size times life */
  ORDER_FIRST,     /* in time, long lives first */
  ORDER_LAST,      /* backwards in time */
  ORDER_COUNT
} OrderKind;

static void make_order(Search *s, Key *keys, OrderKind kind, uint32_t peak) {
  for (uint32_t i = 0; i < s->n; i++) {
    const PackItem *t = &s->items[i];
    double life = (double)(t->last - t->first) + 1, size = (double)t->size;
    double away = t->first > peak ? t->first - peak : t->last < peak ? peak - t->last : 0;
    Key k = {0, 0, i};
    switch (kind) {
    case ORDER_PEAK:
      k.major = away, k.minor = -life;
      break;
    case ORDER_PEAK_SIZE:
      k.major = away, k.minor = -size;
      break;
    case ORDER_SIZE:
      k.major = -size, k.minor = -life;
      break;
    case ORDER_LIFE:
      k.major = -life, k.minor = -size;
      break;
    case ORDER_AREA:
      k.major = -life * size, k.minor = -size;
      break;
    case ORDER_FIRST:
      k.major = t->first, k.minor = -(double)t->last;
      break;
    case ORDER_LAST:
      k.major = -(double)t->last, k.minor = t->first;
      break;
    case ORDER_COUNT:
      break;
    }
    keys[i] = k;
  }
  qsort(keys, s->n, sizeof *keys, compare_keys);
  for (uint32_t i = 0; i < s->n; i++) s->order[i] = keys[i].item;
}

static void move_to(uint32_t *order, uint32_t from, uint32_t to) {
  uint32_t item = order[from];
  if (from > to)
    memmove(order + to + 1, order + to, (from - to) * sizeof *order);
  else
    memmove(order + from, order + from + 1, (to - from) * sizeof *order);
  order[to] = item;
}

static uint64_t next_random(uint64_t *state) { /* xorshift64* */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545F4914F6CDD1Dull;
}

static bool together(const PackItem *a, const PackItem *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* Of the positions [0, end) of the order, a random one whose item is alive together with `item`;
 * `end` when there is none. */
static uint32_t pick_neighbour(const Search *s, const uint32_t *order, uint32_t end,
                               const PackItem *item, uint64_t *state) {
  uint32_t found = end, seen = 0;
  for (uint32_t k = 0; k < end; k++)
    if (together(&s->items[order[k]], item) && next_random(state) % ++seen == 0) found = k;
  return found;
}

/* Threshold accepting (Dueck and Scheuer, 1990): puts an item that reaches the top before one that
 * is in its way, now and then also another pair of neighbours, and goes on from what is not much
 * worse than the best. */
static void improve(Arena *arena, Search *s) {
  uint64_t state = 0x9E3779B97F4A7C15ull, current = s->best_height;
  uint32_t *base = ARENA_ARRAY(arena, uint32_t, s->n);
  uint64_t *offset = ARENA_ARRAY(arena, uint64_t, s->n);
  memcpy(base, s->best_order, s->n * sizeof *base);
  memcpy(offset, s->best, s->n * sizeof *offset);
  for (uint64_t round = 0; s->best_height > s->good && s->budget > 0; round++) {
    memcpy(s->order, base, s->n * sizeof *s->order);
    uint32_t top = 0, seen = 0;
    for (uint32_t k = 0; k < s->n; k++) {
      if (offset[base[k]] + s->items[base[k]].size != current) continue;
      if (next_random(&state) % ++seen == 0) top = k;
    }
    move_to(s->order, top, pick_neighbour(s, base, top, &s->items[base[top]], &state));
    for (uint64_t more = next_random(&state) % 4; more > 1; more--) {
      uint32_t from = (uint32_t)(next_random(&state) % s->n);
      move_to(s->order, from, pick_neighbour(s, s->order, from, &s->items[s->order[from]], &state));
    }
    s->budget -= s->n;
    /* The threshold goes down from 3 % to nothing, again and again. */
    uint64_t slack = s->bound / 100 * 3 * (ROUNDS - round % ROUNDS) / ROUNDS;
    uint64_t height = place(s, s->best_height + slack + 1);
    if (height > s->best_height + slack) continue;
    current = height;
    memcpy(base, s->order, s->n * sizeof *base);
    memcpy(offset, s->offset, s->n * sizeof *offset);
    if (height < s->best_height) keep_best(s, height);
  }
}

/* Largest sum of sizes alive at one step, and the step. */
static uint64_t live_bound(Arena *arena, const PackItem *items, uint32_t n, uint32_t *peak) {
  uint32_t steps = 0;
  for (uint32_t i = 0; i < n; i++)
    if (items[i].last >= steps) steps = items[i].last + 1;
  int64_t *change = ARENA_ARRAY(arena, int64_t, steps + 1);
  for (uint32_t i = 0; i < n; i++) {
    change[items[i].first] += (int64_t)items[i].size;
    change[items[i].last + 1] -= (int64_t)items[i].size;
  }
  int64_t live = 0, most = 0;
  *peak = 0;
  for (uint32_t t = 0; t < steps; t++) {
    live += change[t];
    if (live > most) {
      most = live;
      *peak = t;
    }
  }
  return (uint64_t)most;
}

uint64_t pack_items(Arena *arena, PackItem *items, uint32_t n, uint64_t *bound) {
  uint32_t peak;
  *bound = live_bound(arena, items, n, &peak);
  Search s = {.items = items,
              .bound = *bound,
              .good = *bound + *bound / 100,
              .placed = ARENA_ARRAY(arena, Placed, n),
              .offset = ARENA_ARRAY(arena, uint64_t, n),
              .best = ARENA_ARRAY(arena, uint64_t, n),
              .order = ARENA_ARRAY(arena, uint32_t, n),
              .best_order = ARENA_ARRAY(arena, uint32_t, n),
              .best_height = UINT64_MAX,
              .budget = BUDGET};
  /* Empty items overlap nothing. */
  uint32_t *real = ARENA_ARRAY(arena, uint32_t, n);
  PackItem *dense = ARENA_ARRAY(arena, PackItem, n);
  for (uint32_t i = 0; i < n; i++) {
    items[i].offset = 0;
    if (items[i].size == 0) continue;
    dense[s.n] = items[i];
    real[s.n++] = i;
  }
  if (s.n == 0) return 0;
  s.items = dense;
  bool first_fit = false;
  Key *keys = ARENA_ARRAY(arena, Key, s.n);
  for (int kind = 0; kind < ORDER_COUNT; kind++) {
    if (s.best_height <= s.good || (kind > 0 && s.budget <= 0)) break;
    make_order(&s, keys, (OrderKind)kind, peak);
    s.first_fit = false;
    bool tight = try_order(&s);
    s.first_fit = true;
    bool loose = try_order(&s);
    if (tight || loose) first_fit = loose;
  }
  s.first_fit = first_fit;
  improve(arena, &s);
  for (uint32_t i = 0; i < s.n; i++) items[real[i]].offset = s.best[i];
  return s.best_height;
}
