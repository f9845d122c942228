/* The planner: candidates for every kind of change of layout, and the cache. See place.h.
 *
 * A plan has up to four parts: local slices; reductions, each Partial axis either scattered into
 * some dim or reduced to Replicate; a move that reduces nothing (move.c); local fills into Partial.
 * All choices of the first two parts are tried where there are few. Slicing an axis that the target
 * does not shard is among them: its replicas then share the work of a reduction.
 */
#include "place/search.h"

#include <string.h>

enum { MAX_CHOICES = 1024 /* combinations tried in full */, KEEP = -1 };

/* Plans one pair. */
typedef struct Planner {
  const TensorType *from, *to;
  Path start;            /* at `from` */
  uint32_t reduce, fill; /* Partial axes to remove; Partial axes to add */
  TensorType target;     /* `to` without the axes to fill; on its mesh */
  Path best;
  bool found;
} Planner;

/* What each axis does before the move: KEEP, or the dim it is sliced or scattered into. */
typedef struct Choices {
  int8_t dim[DTM_MAX_AXES];
} Choices;

static uint32_t axes_of_op(const TensorType *t, uint32_t axes, ReduceOp op) {
  uint32_t set = 0;
  for (uint32_t a = 0; a < t->mesh->naxes; a++)
    if (axes >> a & 1 && t->layout.at[a].kind == PLACE_PARTIAL && t->layout.at[a].op == op)
      set |= 1u << a;
  return set;
}

/* `t` with the chosen axes of `axes` appended as shards, outer ones of the target first. */
static TensorType shard_chosen(const Planner *p, const TensorType *t, uint32_t axes,
                               const Choices *c) {
  TensorType out = *t;
  for (uint32_t late = 0; late < 2; late++) /* those the target has in this dim come first */
    for (uint32_t order = 0; order < DTM_MAX_AXES; order++)
      for (uint32_t a = 0; a < t->mesh->naxes; a++) {
        if (!(axes >> a & 1) || c->dim[a] == KEEP) continue;
        Place want = p->target.layout.at[a];
        bool stays = want.kind == PLACE_SHARD && want.dim == c->dim[a];
        if (late ? stays || a != order : !stays || want.order != order) continue;
        layout_set(&out.layout, out.mesh, a, PLACE_SHARD, (uint32_t)c->dim[a], REDUCE_NONE);
      }
  return out;
}

/* Reduces all of p->reduce as chosen: scatters first, they make the rest smaller. */
static void reduce_chosen(const Planner *p, Path *path, const Choices *c) {
  for (ReduceOp op = REDUCE_SUM; op < REDUCE_COUNT; op++) {
    uint32_t axes = 0;
    for (uint32_t a = 0; a < path->at.mesh->naxes; a++)
      if (p->reduce >> a & 1 && c->dim[a] != KEEP) axes |= 1u << a;
    axes = axes_of_op(&path->at, axes, op);
    if (!axes) continue;
    TensorType to = shard_chosen(p, &path->at, axes, c);
    path_reduce_scatter(path, axes, &to);
  }
  for (ReduceOp op = REDUCE_SUM; op < REDUCE_COUNT; op++) {
    uint32_t axes = axes_of_op(&path->at, p->reduce, op);
    if (axes) path_all_reduce(path, axes);
  }
}

/* From p->target to p->to by local fills. */
static void fill_partial(const Planner *p, Path *path) {
  for (ReduceOp op = REDUCE_SUM; op < REDUCE_COUNT; op++) {
    uint32_t axes = axes_of_op(p->to, p->fill, op);
    if (!axes) continue;
    TensorType t = path->at;
    for (uint32_t a = 0; a < t.mesh->naxes; a++)
      if (axes >> a & 1) layout_set(&t.layout, t.mesh, a, PLACE_PARTIAL, 0, op);
    path_fill(path, axes, &t);
  }
}

/* Reduces, then moves to the target, fills and cuts. */
static void finish(Planner *p, Path path, const Choices *c) {
  reduce_chosen(p, &path, c);
  if (p->found && path.plan.cost > p->best.plan.cost) return;
  if (p->target.mesh != path.at.mesh)
    path_send(&path, &p->target);
  else
    path_move(&path, &p->target);
  fill_partial(p, &path);
  path_move(&path, p->to);
  if (!p->found || path_better(&path, &p->best)) p->best = path;
  p->found = true;
}

/* `from` with all that is not reduced where the target has it, and what the target lacks innermost:
 * sliced as chosen, or still cut. False when the slices chosen are part of the target anyway. */
static bool move_first(const Planner *p, const Choices *c, TensorType *moved) {
  const Mesh *mesh = p->from->mesh;
  *moved = p->target;
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (p->reduce >> a & 1) {
      layout_set(&moved->layout, mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
      moved->layout.at[a] = p->from->layout.at[a];
    }
  for (uint32_t order = 0; order < DTM_MAX_AXES; order++)
    for (uint32_t a = 0; a < mesh->naxes; a++) {
      Place was = p->from->layout.at[a], want = p->target.layout.at[a];
      if (p->reduce >> a & 1) continue;
      bool chosen = c->dim[a] != KEEP;
      if (chosen && want.kind == PLACE_SHARD) return false;
      if (want.kind == PLACE_SHARD || order != (chosen ? a : was.order)) continue;
      if (chosen || was.kind == PLACE_SHARD)
        layout_set(&moved->layout, mesh, a, PLACE_SHARD, chosen ? (uint32_t)c->dim[a] : was.dim,
                   REDUCE_NONE);
    }
  return true;
}

static void try_choices(Planner *p, const Choices *c) {
  Path path = p->start;
  TensorType sliced = shard_chosen(p, p->from, ~p->reduce, c), moved;
  path_exchange(&path, &sliced);
  finish(p, path, c);
  /* Uneven cuts can make it cheaper to move from dim to dim before the reduction. */
  if (!p->reduce || p->target.mesh != p->from->mesh || !move_first(p, c, &moved)) return;
  if (layout_equal(&moved.layout, &sliced.layout)) return;
  path = p->start;
  path_move(&path, &moved);
  if (path.plan.cost < p->best.plan.cost) finish(p, path, c);
}

/* The dim that is cut best: the largest part each device holds now. */
static int8_t largest_dim(const TensorType *t) {
  int64_t local[DTM_MAX_DIMS];
  type_local_max(t, local);
  int8_t best = 0;
  for (uint32_t d = 1; d < t->rank; d++)
    if (local[d] > local[best]) best = (int8_t)d;
  return best;
}

/* What every axis may do before the move. An axis that is not reduced is only sliced early to share
 * the work of a reduction. Not `full`: only the largest dim and the target's. Returns the number of
 * combinations. */
static int64_t list_options(const Planner *p, bool full,
                            int8_t options[DTM_MAX_AXES][DTM_MAX_DIMS + 2],
                            uint32_t noptions[DTM_MAX_AXES]) {
  const TensorType *from = p->from;
  bool one_mesh = p->target.mesh == from->mesh;
  int8_t largest = largest_dim(from);
  int64_t combinations = 1;
  for (uint32_t a = 0; a < from->mesh->naxes; a++) {
    Place was = from->layout.at[a], want = p->target.layout.at[a];
    bool reduces = p->reduce >> a & 1;
    bool slices = was.kind == PLACE_REPLICATE && p->reduce && one_mesh && from->mesh->size[a] > 1;
    noptions[a] = 0;
    options[a][noptions[a]++] = KEEP;
    for (uint32_t d = 0; d < from->rank && (reduces || slices); d++) {
      bool wanted = one_mesh && want.kind == PLACE_SHARD && want.dim == d;
      if (full || wanted || (int8_t)d == largest) options[a][noptions[a]++] = (int8_t)d;
    }
    combinations *= noptions[a];
  }
  return combinations;
}

static void try_all(Planner *p) {
  int8_t options[DTM_MAX_AXES][DTM_MAX_DIMS + 2];
  uint32_t noptions[DTM_MAX_AXES];
  int64_t combinations = list_options(p, true, options, noptions);
  if (combinations > MAX_CHOICES) combinations = list_options(p, false, options, noptions);
  for (int64_t k = 0; k < combinations; k++) {
    Choices c;
    int64_t rest = k;
    for (uint32_t a = 0; a < p->from->mesh->naxes; a++) {
      c.dim[a] = options[a][rest % noptions[a]];
      rest /= noptions[a];
    }
    try_choices(p, &c);
  }
}

/* A Partial keeps its axis in a transfer to a mesh with the same axis. */
static bool same_axis(const Mesh *a, const Mesh *b, uint32_t axis) {
  return axis < a->naxes && axis < b->naxes && a->axis[axis] == b->axis[axis] &&
         a->size[axis] == b->size[axis];
}

static const char *find_error(Arena *arena, const TensorType *from, const TensorType *to) {
  if (from->dtype != to->dtype || from->rank != to->rank ||
      memcmp(from->shape, to->shape, sizeof(int64_t) * from->rank) != 0)
    return "a redistribute changes neither element type nor shape";
  for (uint32_t a = 0; a < from->mesh->naxes; a++) {
    Place f = from->layout.at[a], t = to->layout.at[a];
    if (f.kind != PLACE_PARTIAL || t.kind != PLACE_PARTIAL || f.op == t.op) continue;
    if (from->mesh != to->mesh && !same_axis(from->mesh, to->mesh, a)) continue;
    const char *was = reduce_op_name((ReduceOp)f.op), *want = reduce_op_name((ReduceOp)t.op);
    return arena_printf(arena,
                        "Partial(%s) on mesh dim %s cannot become Partial(%s): the addends of one "
                        "reduction say nothing about another; reduce to Replicate or Shard first",
                        was, from->mesh->axis[a], want);
  }
  if (!layout_partial_consistent(&to->layout))
    return "the target is Partial on several mesh dims with different reductions, which do not "
           "commute";
  return NULL;
}

/* The axes to fill, those that cut something in the order they do, so that a shard can be filled
 * where it lies. */
static uint32_t fill_order(const Planner *p, uint8_t axes[DTM_MAX_AXES]) {
  uint32_t n = 0;
  for (uint32_t order = 0; order <= DTM_MAX_AXES; order++)
    for (uint8_t a = 0; a < DTM_MAX_AXES; a++) {
      Place was = p->from->layout.at[a];
      if (p->fill >> a & 1 && order == (was.kind == PLACE_SHARD ? was.order : DTM_MAX_AXES))
        axes[n++] = a;
    }
  return n;
}

/* The axes to fill may be filled from Replicate or, with sum, from a shard of any dim. */
static void try_fills(Planner *p, const uint8_t *axes, uint32_t n) {
  if (n == 0) {
    try_all(p);
    return;
  }
  try_fills(p, axes + 1, n - 1);
  if (p->from->mesh != p->to->mesh || p->to->layout.at[*axes].op != REDUCE_SUM) return;
  for (uint32_t d = 0; d < p->from->rank; d++) {
    TensorType saved = p->target;
    layout_set(&p->target.layout, p->target.mesh, *axes, PLACE_SHARD, d, REDUCE_NONE);
    try_fills(p, axes + 1, n - 1);
    p->target = saved;
  }
}

/* Tries all plans from p->from. */
static void try_pair(Planner *p) {
  const TensorType *from = p->from, *to = p->to;
  bool one_mesh = from->mesh == to->mesh;
  p->reduce = p->fill = 0;
  p->target = *to;
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++) {
    Place f = from->layout.at[a], t = to->layout.at[a];
    bool kept = f.kind == PLACE_PARTIAL && t.kind == PLACE_PARTIAL &&
                (one_mesh || same_axis(from->mesh, to->mesh, a));
    if (kept) continue;
    if (f.kind == PLACE_PARTIAL) p->reduce |= 1u << a;
    if (t.kind == PLACE_PARTIAL) {
      p->fill |= 1u << a;
      p->target.layout.at[a] = (Place){0};
    }
  }
  uint8_t fill[DTM_MAX_AXES], back[DTM_MAX_AXES];
  uint32_t nfill = fill_order(p, fill);
  try_fills(p, fill, nfill);
  if (!p->fill || !one_mesh) return;
  for (uint32_t i = 0; i < nfill; i++) back[i] = fill[nfill - 1 - i];
  if (nfill > 1) try_fills(p, back, nfill);
  /* What a fill makes whole can be cut afterwards without communication. */
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (p->target.layout.at[a].kind == PLACE_SHARD)
      layout_set(&p->target.layout, to->mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
  try_fills(p, fill, nfill);
}

/* `from` with all axes of p->fill filled at once, innermost first; false where one cannot be. */
static bool fill_first(const Planner *p, const TensorType *from, TensorType *filled) {
  *filled = *from;
  uint8_t axes[DTM_MAX_AXES], list[DTM_MAX_AXES];
  for (uint32_t n = fill_order(p, axes); n-- > 0;) {
    Place was = filled->layout.at[axes[n]], want = p->to->layout.at[axes[n]];
    if (was.kind == PLACE_PARTIAL || (was.kind == PLACE_SHARD && want.op != REDUCE_SUM))
      return false;
    if (was.kind == PLACE_SHARD &&
        was.order + 1u != layout_dim_axes(&filled->layout, was.dim, list))
      return false;
    layout_set(&filled->layout, filled->mesh, axes[n], PLACE_PARTIAL, 0, (ReduceOp)want.op);
  }
  return true;
}

static void plan_pair(Arena *arena, const TensorType *from, const TensorType *to,
                      const Topology *topology, RedistributePlan *out) {
  out->error = find_error(arena, from, to);
  if (out->error) return;
  Planner p = {.from = from, .to = to};
  Memo memo = {.known = {0}};
  arena_init(&memo.arena);
  p.start = (Path){.at = *from, .topology = topology, .memo = &memo};
  p.start.plan.peak_bytes = type_local_bytes(from);
  try_pair(&p);
  TensorType filled;
  if (p.fill && from->mesh == to->mesh && fill_first(&p, from, &filled) &&
      layout_partial_consistent(&filled.layout)) {
    fill_partial(&p, &p.start);
    p.from = &filled;
    try_pair(&p);
  }
  *out = p.best.plan;
  arena_free(&memo.arena);
}

/* The topology of one mesh. */
typedef struct MeshTopology {
  const Mesh *mesh;
  Topology topology;
} MeshTopology;

struct PlanCache {
  Arena *arena;
  const char *text; /* as topology_parse reads it; NULL = the default */
  VEC(MeshTopology *) topologies;
  VEC(const Mesh *) alike; /* of meshes with the same dims the first */
  IdMap first;             /* hash -> index of the newest entry with it */
  struct PlanEntry {
    TensorType from, to;
    Topology topology;
    uint32_t next; /* entry with the same hash + 1 */
    RedistributePlan plan;
  } * *entries;
  uint32_t len, cap;
};

PlanCache *plan_cache_new(Arena *arena) {
  PlanCache *cache = ARENA_NEW(arena, PlanCache);
  cache->arena = arena;
  return cache;
}

bool plan_cache_set_topology(PlanCache *cache, const char *text, const char **error) {
  static const Mesh none = {0};
  Topology ignored;
  if (!topology_parse(cache->arena, text, &none, &ignored, error)) return false;
  cache->text = text;
  cache->topologies.len = 0;
  return true;
}

const Topology *plan_cache_topology(PlanCache *cache, const Mesh *mesh) {
  for (uint32_t i = cache->topologies.len; i-- > 0;)
    if (cache->topologies.data[i]->mesh == mesh) return &cache->topologies.data[i]->topology;
  MeshTopology *t = ARENA_NEW(cache->arena, MeshTopology);
  const char *error;
  t->mesh = mesh;
  if (!cache->text || !topology_parse(cache->arena, cache->text, mesh, &t->topology, &error))
    t->topology = topology_default(mesh);
  VEC_PUSH(cache->arena, &cache->topologies, t);
  return &t->topology;
}

const Mesh *plan_cache_alike(PlanCache *cache, const Mesh *mesh) {
  for (uint32_t i = 0; i < cache->alike.len; i++)
    if (mesh_alike(cache->alike.data[i], mesh)) return cache->alike.data[i];
  VEC_PUSH(cache->arena, &cache->alike, mesh);
  return mesh;
}

/* What happens within a mesh depends on its dims, not on its ranks: stages of a pipeline share
 * their plans. */
static void plan_alike(PlanCache *cache, const TensorType *from, const TensorType *to,
                       const Topology *topology, RedistributePlan *out) {
  const Mesh *mesh = from->mesh == to->mesh ? plan_cache_alike(cache, from->mesh) : from->mesh;
  if (mesh == from->mesh) {
    plan_pair(cache->arena, from, to, topology, out);
    return;
  }
  TensorType there = *from, goal = *to;
  there.mesh = goal.mesh = mesh;
  *out = *place_plan(cache, &there, &goal, topology);
  for (uint32_t i = 0; i < out->nsteps; i++) out->steps[i].to.mesh = from->mesh;
}

static uint64_t hash_type(const TensorType *t, uint64_t seed) {
  seed = hash_bytes(&t->dtype, sizeof t->dtype, seed);
  seed = hash_bytes(t->shape, sizeof(int64_t) * t->rank, seed + t->rank);
  seed = hash_bytes(&t->mesh, sizeof t->mesh, seed);
  return hash_bytes(&t->layout, sizeof t->layout, seed);
}

const RedistributePlan *place_plan(PlanCache *cache, const TensorType *from, const TensorType *to,
                                   const Topology *topology) {
  if (!topology) topology = plan_cache_topology(cache, from->mesh);
  uint64_t hash = hash_type(to, hash_type(from, hash_bytes(topology, sizeof *topology, 0)));
  uint32_t found = 0, newest = 0;
  if (id_map_get(&cache->first, hash, &found)) newest = found + 1;
  for (uint32_t i = newest; i; i = cache->entries[i - 1]->next) {
    struct PlanEntry *e = cache->entries[i - 1];
    if (type_equal(&e->from, from) && type_equal(&e->to, to) &&
        memcmp(&e->topology, topology, sizeof *topology) == 0)
      return &e->plan;
  }
  struct PlanEntry *e = ARENA_NEW(cache->arena, struct PlanEntry);
  e->from = *from;
  e->to = *to;
  e->topology = *topology;
  e->next = newest;
  plan_alike(cache, from, to, topology, &e->plan);
  if (id_map_get(&cache->first, hash, &found)) e->next = found + 1; /* made on the way here */
  if (cache->len == cache->cap) {
    uint32_t cap = cache->cap ? 2 * cache->cap : 64;
    cache->entries = arena_grow(cache->arena, cache->entries, cache->cap * sizeof *cache->entries,
                                cap * sizeof *cache->entries);
    cache->cap = cap;
  }
  cache->entries[cache->len] = e;
  id_map_put(cache->arena, &cache->first, hash, cache->len++);
  return &e->plan;
}
