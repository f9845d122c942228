/* Moves between layouts that reduce nothing.
 *
 * One exchange receives exactly what each device lacks, so it can be beaten only where a device
 * must send more than any receives (uneven cuts), or where axes have links of different speed. Only
 * then are detours through a third layout looked at: all of them for up to three axes on meshes of
 * up to DETOUR_DEVICES devices, otherwise those in which each axis has the placement it comes from
 * or goes to or is Replicate.
 */
#include "place/search.h"

#include <string.h>

enum { DETOUR_AXES = 3, DETOUR_DEVICES = 1024 };

/* Cuts every Replicate axis that the target shards, as long as what it cuts then stays as it is:
 * the axis follows exactly the axes that precede it in the target. */
static void slice_early(const TensorType *from, const TensorType *to, TensorType *out) {
  *out = *from;
  for (uint32_t d = 0; d < from->rank; d++) {
    uint8_t f[DTM_MAX_AXES], t[DTM_MAX_AXES];
    uint32_t nf = layout_dim_axes(&from->layout, d, f), nt = layout_dim_axes(&to->layout, d, t);
    if (nf > nt || memcmp(f, t, nf) != 0) continue;
    for (uint32_t i = nf; i < nt && from->layout.at[t[i]].kind == PLACE_REPLICATE; i++)
      layout_set(&out->layout, out->mesh, t[i], PLACE_SHARD, d, REDUCE_NONE);
  }
}

/* Slices where the target's shards can already be cut, then one exchange; or the exchange alone. */
static void path_direct(Path *path, const TensorType *to) {
  TensorType sliced;
  slice_early(&path->at, to, &sliced);
  if (layout_equal(&sliced.layout, &path->at.layout) || layout_equal(&sliced.layout, &to->layout)) {
    path_exchange(path, to);
    return;
  }
  Path early = *path;
  path_exchange(&early, &sliced);
  path_exchange(&early, to);
  path_exchange(path, to);
  if (path_better(&early, path)) *path = early;
}

/* The search for a third layout. */
typedef struct Detour {
  const Path *start;
  const TensorType *to;
  Path *best;
  uint8_t axes[DTM_MAX_AXES];
  uint32_t naxes;
  bool all; /* every layout, or only those between the two */
} Detour;

static void try_detour(Detour *d, const TensorType *middle) {
  if (layout_equal(&middle->layout, &d->start->at.layout) ||
      layout_equal(&middle->layout, &d->to->layout))
    return;
  Path path = *d->start;
  path_direct(&path, middle);
  if (path.plan.cost >= d->best->plan.cost) return;
  path_direct(&path, d->to);
  if (path_better(&path, d->best)) *d->best = path;
}

/* Puts `axis` into position `at` of the list of `dim`. */
static void insert_axis(TensorType *t, uint32_t axis, uint32_t dim, uint32_t at) {
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, dim, axes);
  memmove(axes + at + 1, axes + at, n - at);
  axes[at] = (uint8_t)axis;
  layout_set_dim(&t->layout, t->mesh, dim, axes, n + 1);
}

/* All ways to place axis number `i` and the following. */
static void detour_all(Detour *d, uint32_t i, const TensorType *middle) {
  if (i == d->naxes) {
    try_detour(d, middle);
    return;
  }
  detour_all(d, i + 1, middle);
  for (uint32_t dim = 0; dim < middle->rank; dim++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(&middle->layout, dim, axes);
    for (uint32_t at = 0; at <= n; at++) {
      TensorType next = *middle;
      insert_axis(&next, d->axes[i], dim, at);
      detour_all(d, i + 1, &next);
    }
  }
}

/* Each axis as in the source, as in the target, or Replicate; outer axes first. */
static void detour_between(Detour *d, const TensorType *middle) {
  uint32_t combinations = 1;
  for (uint32_t i = 0; i < d->naxes; i++) combinations *= 3;
  for (uint32_t k = 0; k < combinations; k++) {
    TensorType t = *middle;
    for (uint32_t order = 0; order < DTM_MAX_AXES; order++) {
      uint32_t rest = k;
      for (uint32_t i = 0; i < d->naxes; i++, rest /= 3) {
        if (rest % 3 == 2) continue;
        Place p = (rest % 3 == 0 ? &d->start->at : d->to)->layout.at[d->axes[i]];
        if (p.kind == PLACE_SHARD && p.order == order)
          layout_set(&t.layout, t.mesh, d->axes[i], PLACE_SHARD, p.dim, REDUCE_NONE);
      }
    }
    try_detour(d, &t);
  }
}

void path_move(Path *path, const TensorType *to) {
  Path start = *path;
  path_direct(path, to);
  if (path->plan.nsteps == start.plan.nsteps) return;
  uint32_t axes = measure_axes(&start.at, to);
  const Topology *topology = path->topology;
  const Mesh *mesh = to->mesh;
  double alpha = topology->alpha[0], beta = topology->beta[0];
  bool uniform = true;
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    if (mesh->size[a] == 1) continue;
    if (topology->alpha[a] != topology->alpha[0] || topology->beta[a] != topology->beta[0])
      uniform = false;
    if (topology->alpha[a] < alpha) alpha = topology->alpha[a];
    if (topology->beta[a] < beta) beta = topology->beta[a];
  }
  double least = (double)path_measure(&start, to).received;
  if (least == 0) return;
  least = alpha + beta * least * (double)dtype_bytes(to->dtype);
  if (path->plan.cost - start.plan.cost <= least * (1 + 1e-9)) return;
  /* With unequal links an axis that keeps its Replicate may help too. */
  for (uint32_t a = 0; !uniform && a < mesh->naxes; a++)
    if (mesh->size[a] > 1 && start.at.layout.at[a].kind == PLACE_REPLICATE) axes |= 1u << a;
  Detour d = {.start = &start, .to = to, .best = path};
  TensorType middle = start.at;
  for (uint8_t a = 0; a < mesh->naxes; a++) {
    if (!(axes >> a & 1)) continue;
    d.axes[d.naxes++] = a;
    layout_set(&middle.layout, mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
  }
  if (d.naxes <= DETOUR_AXES && measure_ways(mesh, axes) <= DETOUR_DEVICES)
    detour_all(&d, 0, &middle);
  else if (d.naxes <= 5)
    detour_between(&d, &middle);
}
