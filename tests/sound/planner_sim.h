/* Brute force for the planner's tests: every device holds its part of every element, and a step is
 * carried out as its types say. Shares no code with the planner, not even the chunk rule. */
#ifndef DTM_TESTS_PLANNER_SIM_H
#define DTM_TESTS_PLANNER_SIM_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "place/place.h"

/* Check records every assertion; these stand in inner loops and speak only when they fail. */
#define EXPECT_MSG(condition, ...)                                                                 \
  do {                                                                                             \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                   \
  } while (0)
#define EXPECT(condition) EXPECT_MSG(condition, "%s is false", #condition)

enum { SIM_DEVICES = 16, SIM_ELEMENTS = 512 };

/* One value on all devices: v[device][element] where has[device][element]. */
typedef struct SimValue {
  bool has[SIM_DEVICES][SIM_ELEMENTS];
  double v[SIM_DEVICES][SIM_ELEMENTS];
} SimValue;

static inline int64_t sim_elements(const TensorType *t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
  return n;
}

static inline int64_t sim_coord(const Mesh *m, int64_t device, uint32_t axis) {
  int64_t stride = 1;
  for (uint32_t a = m->naxes - 1; a > axis; a--) stride *= m->size[a];
  return device / stride % m->size[axis];
}

/* Whether the device holds the element: cuts index ranges like torch.chunk, outer axes first. */
static inline bool sim_holds(const TensorType *t, int64_t device, int64_t element) {
  for (uint32_t d = t->rank; d-- > 0;) {
    int64_t index = element % t->shape[d], lo = 0, n = t->shape[d];
    element /= t->shape[d];
    for (uint32_t order = 0; order < t->mesh->naxes; order++)
      for (uint32_t a = 0; a < t->mesh->naxes; a++) {
        Place p = t->layout.at[a];
        if (p.kind != PLACE_SHARD || p.dim != d || p.order != order) continue;
        int64_t piece = n / t->mesh->size[a] + (n % t->mesh->size[a] != 0);
        int64_t start = piece * sim_coord(t->mesh, device, a);
        if (start > n) start = n;
        lo += start;
        n = n - start < piece ? n - start : piece;
      }
    if (index < lo || index >= lo + n) return false;
  }
  return true;
}

/* Who holds what under one layout: [device][element]. */
typedef struct SimMap {
  TensorType type;
  bool known;
  bool holds[SIM_DEVICES][SIM_ELEMENTS];
} SimMap;
enum { SIM_MAPS = 1024 };
static SimMap sim_maps[SIM_MAPS];

/* Forgets all maps; call it before types of another mesh or shape are looked at. */
static inline void sim_reset(void) {
  for (int i = 0; i < SIM_MAPS; i++) sim_maps[i].known = false;
}

/* The map of a type, filled once. */
static inline const bool (*sim_map(const TensorType *t))[SIM_ELEMENTS] {
  TensorType key = *t;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (key.layout.at[a].kind == PLACE_PARTIAL) key.layout.at[a] = (Place){0};
  uint64_t at = hash_bytes(&key.layout, sizeof key.layout, 0);
  SimMap *m = &sim_maps[at % SIM_MAPS];
  while (m->known && !type_equal(&m->type, &key)) m = &sim_maps[++at % SIM_MAPS];
  if (!m->known) {
    m->known = true;
    m->type = key;
    for (int64_t d = 0; d < key.mesh->nranks; d++)
      for (int64_t e = 0; e < sim_elements(&key); e++) m->holds[d][e] = sim_holds(&key, d, e);
  }
  return (const bool(*)[SIM_ELEMENTS])m->holds;
}

static inline bool sim_same_outside(const Mesh *m, int64_t a, int64_t b, uint32_t axes) {
  for (uint32_t x = 0; x < m->naxes; x++)
    if (!(axes >> x & 1) && sim_coord(m, a, x) != sim_coord(m, b, x)) return false;
  return true;
}

static inline double sim_fold(ReduceOp op, double a, double b) {
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_AVG:
    return a + b;
  case REDUCE_PRODUCT:
    return a * b;
  case REDUCE_MAX:
    return a > b ? a : b;
  case REDUCE_MIN:
    return a < b ? a : b;
  case REDUCE_AND:
    return (double)((int64_t)a & (int64_t)b);
  case REDUCE_OR:
    return (double)((int64_t)a | (int64_t)b);
  case REDUCE_XOR:
    return (double)((int64_t)a ^ (int64_t)b);
  case REDUCE_NONE:
  case REDUCE_COUNT:
    break;
  }
  ck_abort_msg("no reduction");
  return 0;
}

static inline ReduceOp sim_op(const TensorType *t, uint32_t axes) {
  ReduceOp op = REDUCE_NONE;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    if (!(axes >> a & 1)) continue;
    EXPECT(t->layout.at[a].kind == PLACE_PARTIAL);
    EXPECT(op == REDUCE_NONE || op == t->layout.at[a].op);
    op = (ReduceOp)t->layout.at[a].op;
  }
  EXPECT(op != REDUCE_NONE);
  return op;
}

/* The reduction over the devices that differ from `device` in `axes`. */
static inline double sim_reduce(const TensorType *t, const SimValue *x, int64_t device, int64_t e,
                                uint32_t axes, ReduceOp op) {
  double r = 0;
  int64_t n = 0;
  for (int64_t i = 0; i < t->mesh->nranks; i++) {
    if (!sim_same_outside(t->mesh, i, device, axes)) continue;
    EXPECT_MSG(x->has[i][e], "an addend is missing");
    r = n++ ? sim_fold(op, r, x->v[i][e]) : x->v[i][e];
  }
  return op == REDUCE_AVG ? r / (double)n : r;
}

/* What the whole tensor is: folds the Partial axes of a device's group (sum and avg may mix). */
static inline double sim_meaning(const TensorType *t, const SimValue *x, int64_t device,
                                 int64_t e) {
  uint32_t axes = 0;
  ReduceOp op = REDUCE_SUM;
  double divide = 1;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    axes |= 1u << a;
    op = p.op == REDUCE_AVG ? REDUCE_SUM : (ReduceOp)p.op;
    if (p.op == REDUCE_AVG) divide *= (double)t->mesh->size[a];
  }
  return axes ? sim_reduce(t, x, device, e, axes, op) / divide : x->v[device][e];
}

/* Number of the device among those that differ from it in Partial axes, and how many there are. */
static inline int64_t sim_addend(const TensorType *t, int64_t device, int64_t *count) {
  int64_t index = 0;
  *count = 1;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    if (t->layout.at[a].kind != PLACE_PARTIAL) continue;
    index = index * t->mesh->size[a] + sim_coord(t->mesh, device, a);
    *count *= t->mesh->size[a];
  }
  return index;
}

static inline int64_t sim_noise(int64_t a, int64_t b, int64_t below) {
  uint64_t h = (uint64_t)(a * 1000003 + b) * 0x9e3779b97f4a7c15ull;
  return (int64_t)((h ^ h >> 29) * 0xbf58476d1ce4e5b9ull >> 33) % below;
}

/* Spreads a global value over the devices; Partial as unequal addends of both signs. */
static inline void sim_distribute(const TensorType *t, const double *global, SimValue *x) {
  ReduceOp op = REDUCE_NONE;
  double times = 1;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    op = p.op == REDUCE_AVG ? REDUCE_SUM : (ReduceOp)p.op;
    if (p.op == REDUCE_AVG) times *= (double)t->mesh->size[a];
  }
  const bool(*holds)[SIM_ELEMENTS] = sim_map(t);
  for (int64_t d = 0; d < t->mesh->nranks; d++) {
    int64_t count, index = sim_addend(t, d, &count);
    for (int64_t e = 0; e < sim_elements(t); e++) {
      x->has[d][e] = holds[d][e];
      double g = global[e], v = g;
      int64_t last = sim_noise(e, 7, count); /* this addend makes the total right */
      switch (op) {
      case REDUCE_NONE:
        break;
      case REDUCE_SUM:
      case REDUCE_AVG:
        v = g * times;
        for (int64_t i = 0; i < count; i++)
          if (i != last) v -= (double)(sim_noise(i, e, 41) - 20);
        if (index != last) v = (double)(sim_noise(index, e, 41) - 20);
        break;
      case REDUCE_PRODUCT:
        for (int64_t i = 0; i < count; i++)
          if (i != last) v /= (double)(i % 2 ? -2 : 4);
        if (index != last) v = (double)(index % 2 ? -2 : 4);
        break;
      case REDUCE_MAX:
      case REDUCE_MIN:
        if (index != last)
          v = g + (double)(op == REDUCE_MAX ? -sim_noise(index, e, 9) : sim_noise(index, e, 9));
        break;
      case REDUCE_AND:
        if (index != last) v = (double)((int64_t)g | sim_noise(index, e, 64));
        break;
      case REDUCE_OR:
        if (index != last) v = (double)((int64_t)g & sim_noise(index, e, 64));
        break;
      case REDUCE_XOR:
        for (int64_t i = 0; i < count; i++)
          if (i != last) v = (double)((int64_t)v ^ sim_noise(i, e, 64));
        if (index != last) v = (double)sim_noise(index, e, 64);
        break;
      case REDUCE_COUNT:
        break;
      }
      x->v[d][e] = v;
    }
  }
}

/* Only `axes` changed, from this kind to that. */
static inline void sim_expect_change(const TensorType *from, const PlanStep *s, PlaceKind was,
                                     PlaceKind is) {
  for (uint32_t a = 0; a < from->mesh->naxes; a++) {
    Place f = from->layout.at[a], t = s->to.layout.at[a];
    if (s->axes >> a & 1) {
      EXPECT(f.kind == was);
      EXPECT(t.kind == is);
    } else {
      EXPECT(f.kind == t.kind);
      EXPECT(f.dim == t.dim);
      EXPECT(f.op == t.op);
    }
  }
}

/* The value a device has in a fresh Partial: what its part adds to the fold. */
static inline bool sim_fill(const TensorType *from, const PlanStep *s, const SimValue *x,
                            int64_t device, int64_t e, double *v) {
  bool first = true; /* coordinate 0 on every axis that was Replicate */
  ReduceOp op = sim_op(&s->to, s->axes);
  for (uint32_t a = 0; a < from->mesh->naxes; a++) {
    if (!(s->axes >> a & 1)) continue;
    EXPECT(from->layout.at[a].kind == PLACE_REPLICATE ||
           (from->layout.at[a].kind == PLACE_SHARD && op == REDUCE_SUM));
    if (from->layout.at[a].kind == PLACE_REPLICATE && sim_coord(from->mesh, device, a))
      first = false;
  }
  if (!x->has[device][e]) { /* a shard of a dim that others hold */
    *v = 0;
    return op == REDUCE_SUM;
  }
  bool once = op == REDUCE_SUM || op == REDUCE_XOR || op == REDUCE_PRODUCT;
  *v = once && !first ? (op == REDUCE_PRODUCT) : x->v[device][e];
  return true;
}

/* Carries out one step, checking what its name promises; *received = elements the worst device got
 * from others (moves only). */
static inline void sim_step(const TensorType *from, const PlanStep *s, const SimValue *x,
                            SimValue *y, int64_t *received) {
  const TensorType *to = &s->to;
  const Mesh *m = from->mesh;
  bool moves = s->op == OP_ALL_GATHER || s->op == OP_ALL_TO_ALL || s->op == OP_EXCHANGE;
  if (s->op == OP_ALL_GATHER) sim_expect_change(from, s, PLACE_SHARD, PLACE_REPLICATE);
  if (s->op == OP_ALL_TO_ALL) sim_expect_change(from, s, PLACE_SHARD, PLACE_SHARD);
  if (s->op == OP_REDUCE_SCATTER) sim_expect_change(from, s, PLACE_PARTIAL, PLACE_SHARD);
  if (s->op == OP_ALL_REDUCE) sim_expect_change(from, s, PLACE_PARTIAL, PLACE_REPLICATE);
  *received = 0;
  const bool(*holds)[SIM_ELEMENTS] = sim_map(to);
  for (int64_t d = 0; d < m->nranks; d++) {
    int64_t got = 0;
    for (int64_t e = 0; e < sim_elements(from); e++) {
      y->has[d][e] = holds[d][e];
      y->v[d][e] = 0;
      if (!y->has[d][e]) continue;
      if (s->op == OP_SHARD_SLICE) {
        EXPECT_MSG(x->has[d][e], "a slice is not local");
        y->v[d][e] = x->v[d][e];
      } else if (moves) {
        if (!x->has[d][e]) got++;
        bool found = x->has[d][e];
        double v = x->v[d][e];
        for (int64_t i = 0; i < m->nranks; i++) {
          if (!sim_same_outside(m, i, d, s->axes) || !x->has[i][e]) continue;
          EXPECT(!found || v == x->v[i][e]);
          found = true;
          v = x->v[i][e];
        }
        EXPECT_MSG(found, "nobody in the group holds an element");
        y->v[d][e] = v;
      } else if (s->op == OP_PARTIAL_FILL) {
        EXPECT(sim_fill(from, s, x, d, e, &y->v[d][e]));
      } else {
        EXPECT(s->op == OP_REDUCE_SCATTER || s->op == OP_ALL_REDUCE);
        y->v[d][e] = sim_reduce(from, x, d, e, s->axes, sim_op(from, s->axes));
      }
    }
    if (got > *received) *received = got;
  }
}

#endif
