/* Placements for the proofs: see placements.h. */
#include "reference/placements.h"

#include <math.h>
#include <string.h>

static bool partial_exists(DType t, ReduceOp op) {
  bool bitwise = op == REDUCE_AND || op == REDUCE_OR || op == REDUCE_XOR;
  if (t == DT_BOOL) return op == REDUCE_MAX || op == REDUCE_MIN;
  return dtype_is_float(t) ? !bitwise : op != REDUCE_AVG;
}

typedef struct LayoutList {
  Arena *arena;
  const TensorType *type;
  Place choice[DTM_MAX_AXES];
  VEC(Layout) all;
} LayoutList;

/* Adds the layout whose nested shards stand in the order of `axes`. */
static void add_layout(LayoutList *l, const uint8_t *axes) {
  const Mesh *m = l->type->mesh;
  Layout layout = {0};
  for (uint32_t i = 0; i < m->naxes; i++) {
    Place p = l->choice[axes[i]];
    layout_set(&layout, m, axes[i], (PlaceKind)p.kind, p.dim, (ReduceOp)p.op);
  }
  if (!layout_partial_consistent(&layout)) return;
  for (uint32_t i = 0; i < l->all.len; i++)
    if (layout_equal(&l->all.data[i], &layout)) return;
  VEC_PUSH(l->arena, &l->all, layout);
}

/* All orders of the axes, by choosing which comes next. */
static void permute_axes(LayoutList *l, uint8_t *axes, uint32_t done) {
  uint32_t n = l->type->mesh->naxes;
  if (done == n) {
    add_layout(l, axes);
    return;
  }
  for (uint32_t i = done; i < n; i++) {
    uint8_t t = axes[done];
    axes[done] = axes[i];
    axes[i] = t;
    permute_axes(l, axes, done + 1);
    axes[i] = axes[done];
    axes[done] = t;
  }
}

static void choose_places(LayoutList *l, uint32_t axis) {
  if (axis == l->type->mesh->naxes) {
    uint8_t axes[DTM_MAX_AXES];
    for (uint8_t a = 0; a < DTM_MAX_AXES; a++) axes[a] = a;
    permute_axes(l, axes, 0);
    return;
  }
  l->choice[axis] = (Place){.kind = PLACE_REPLICATE};
  choose_places(l, axis + 1);
  for (uint32_t d = 0; d < l->type->rank; d++) {
    l->choice[axis] = (Place){.kind = PLACE_SHARD, .dim = (uint8_t)d};
    choose_places(l, axis + 1);
  }
  for (int op = REDUCE_SUM; op < REDUCE_COUNT; op++) {
    if (!partial_exists(l->type->dtype, (ReduceOp)op)) continue;
    l->choice[axis] = (Place){.kind = PLACE_PARTIAL, .op = (uint8_t)op};
    choose_places(l, axis + 1);
  }
}

uint32_t layouts_of(Arena *arena, const TensorType *type, Layout **out) {
  LayoutList l = {.arena = arena, .type = type};
  choose_places(&l, 0);
  *out = l.all.data;
  return l.all.len;
}

uint64_t random_bits(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double random_in(uint64_t *state, double low, double high) {
  return low + (high - low) * ((double)(random_bits(state) >> 11) * 0x1p-53);
}

static double random_element(uint64_t *state, DType t, int64_t below) {
  if (below > 0) return (double)(random_bits(state) % (uint64_t)below);
  if (t == DT_BOOL) return (double)(random_bits(state) & 1);
  if (!dtype_is_float(t)) return (double)(int64_t)(random_bits(state) % 9) - 4;
  uint64_t kind = random_bits(state) % 12;
  if (kind == 0) return 0;
  if (kind == 1) return round(random_in(state, -3, 3));
  return random_in(state, -4, 4);
}

RefTensor random_value(Arena *arena, uint64_t *state, const TensorType *type, int64_t below) {
  RefTensor t = ref_new(arena, type->rank, type->shape);
  for (int64_t i = 0, n = ref_count(&t); i < n; i++)
    t.data[i] = random_element(state, type->dtype, below);
  return t;
}

/* A value another rank may hold under a pending maximum (sign -1) or minimum (sign 1). */
static double candidate(uint64_t *state, DType t, double v, double sign) {
  double u = fabs(random_in(state, -5, 5));
  if (t == DT_BOOL) return sign < 0 ? v != 0 && u > 2 : v != 0 || u > 2;
  return v + sign * (dtype_is_float(t) ? u : trunc(u));
}

static double factor(uint64_t *state, DType t, double rest) {
  double u = random_in(state, -5, 5);
  if (dtype_is_float(t)) return copysign(0.5 + fabs(u) / 4, u);
  if (rest == 0) return trunc(u);
  return copysign(fmod(rest, 2) == 0 && fabs(u) > 2 ? 2 : 1, u);
}

/* Masks over the ranks whose AND (or OR) is v, no rank holding v itself as a rule. */
static void split_bits(uint64_t *state, ReduceOp op, int64_t v, int64_t n, int64_t owner,
                       double *part) {
  int64_t all = op == REDUCE_AND ? -1 : 0;
  for (int64_t r = 0; r < n; r++) {
    int64_t noise = (int64_t)(random_bits(state) & 15), p;
    if (op == REDUCE_AND)
      all &= p = v | noise;
    else if (op == REDUCE_OR)
      all |= p = v & (noise | ~(int64_t)15);
    else
      all ^= p = noise;
    part[r] = (double)p;
  }
  int64_t own = (int64_t)part[owner];
  if (op == REDUCE_AND) own &= ~(all & ~v);
  if (op == REDUCE_OR) own |= v & ~all;
  if (op == REDUCE_XOR) own ^= all ^ v;
  part[owner] = (double)own;
}

/* Parts of one element over `n` ranks. */
static void split_element(uint64_t *state, ReduceOp op, DType t, double v, int64_t n,
                          double *part) {
  int64_t owner = (int64_t)(random_bits(state) % (uint64_t)n);
  double rest = op == REDUCE_AVG ? v * (double)n : v;
  if (op == REDUCE_AND || op == REDUCE_OR || op == REDUCE_XOR) {
    split_bits(state, op, (int64_t)v, n, owner, part);
    return;
  }
  for (int64_t r = 0; r < n; r++) {
    if (r == owner) continue;
    if (op == REDUCE_MAX || op == REDUCE_MIN) {
      part[r] = candidate(state, t, v, op == REDUCE_MAX ? -1 : 1);
    } else if (op == REDUCE_PRODUCT) {
      part[r] = factor(state, t, rest);
      rest = part[r] == 0 ? 0 : rest / part[r];
    } else {
      double u = random_in(state, -5, 5);
      part[r] = dtype_is_float(t) && random_bits(state) % 4 ? u : trunc(u);
      rest -= part[r];
    }
  }
  part[owner] = rest;
}

RefTensor *random_split(Arena *arena, uint64_t *state, const TensorType *type,
                        const RefTensor *whole) {
  const Mesh *m = type->mesh;
  int64_t n = ref_count(whole), parts = 1;
  double part[16];
  /* addends[p]: whole tensors, p counting row-major over the Partial axes so far */
  RefTensor *addends = ARENA_ARRAY(arena, RefTensor, 1);
  addends[0] = *whole;
  for (uint32_t a = 0; a < m->naxes; a++) {
    if (type->layout.at[a].kind != PLACE_PARTIAL) continue;
    RefTensor *finer = ARENA_ARRAY(arena, RefTensor, parts * m->size[a]);
    for (int64_t p = 0; p < parts; p++) {
      for (int64_t r = 0; r < m->size[a]; r++)
        finer[p * m->size[a] + r] = ref_new(arena, whole->rank, whole->shape);
      for (int64_t i = 0; i < n; i++) {
        split_element(state, (ReduceOp)type->layout.at[a].op, type->dtype, addends[p].data[i],
                      m->size[a], part);
        for (int64_t r = 0; r < m->size[a]; r++) finer[p * m->size[a] + r].data[i] = part[r];
      }
    }
    addends = finer;
    parts *= m->size[a];
  }
  TensorType cut = *type;
  for (uint32_t a = 0; a < m->naxes; a++)
    if (cut.layout.at[a].kind == PLACE_PARTIAL) cut.layout.at[a] = (Place){0};
  RefTensor *blocks = ARENA_ARRAY(arena, RefTensor, m->nranks);
  for (int64_t pos = 0; pos < m->nranks; pos++) {
    int64_t coord[DTM_MAX_AXES], p = 0;
    mesh_coords(m, pos, coord);
    for (uint32_t a = 0; a < m->naxes; a++)
      if (type->layout.at[a].kind == PLACE_PARTIAL) p = p * m->size[a] + coord[a];
    blocks[pos] = ref_split(arena, &cut, coord, &addends[p]);
  }
  return blocks;
}

bool ref_close(const RefTensor *got, const RefTensor *want, bool finite_only) {
  for (int64_t i = 0, n = ref_count(want); i < n; i++) {
    double x = got->data[i], y = want->data[i];
    if (x == y || (isnan(x) && isnan(y)) || (finite_only && !isfinite(y))) continue;
    if (!(fabs(x - y) <= 1e-9 * (1 + fabs(y)))) return false;
  }
  return true;
}
