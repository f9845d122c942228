/* Single steps of a plan: what a change of layout is called, what it costs. */
#include "place/search.h"

/* Costs that differ by less are equal: they are sums of few products. */
static const double COST_TOLERANCE = 1e-9;

static uint32_t count_exchanges(const RedistributePlan *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nsteps; i++) n += p->steps[i].op == OP_EXCHANGE;
  return n;
}

bool path_better(const Path *a, const Path *b) {
  double d = a->plan.cost - b->plan.cost, scale = a->plan.cost + b->plan.cost;
  if (d < -COST_TOLERANCE * scale || d > COST_TOLERANCE * scale) return d < 0;
  if (a->plan.peak_bytes != b->plan.peak_bytes) return a->plan.peak_bytes < b->plan.peak_bytes;
  if (a->plan.nsteps != b->plan.nsteps) return a->plan.nsteps < b->plan.nsteps;
  return count_exchanges(&a->plan) < count_exchanges(&b->plan);
}

/* Appends a step. `axes` 0 prices it by the slowest axis of the mesh. */
static void push(Path *path, Op op, uint32_t axes, const TensorType *to, Traffic t) {
  RedistributePlan *p = &path->plan;
  int64_t size = (int64_t)dtype_bytes(to->dtype);
  PlanStep *step = &p->steps[p->nsteps++];
  *step = (PlanStep){.op = op,
                     .axes = axes,
                     .to = *to,
                     .bytes_received = t.received * size,
                     .bytes_sent = t.sent * size};
  p->bytes_received += step->bytes_received;
  p->bytes_sent += step->bytes_sent;
  int64_t held = type_local_bytes(&path->at) + type_local_bytes(to);
  if (held > p->peak_bytes) p->peak_bytes = held;
  bool local = op == OP_SEND_MESH && t.received == 0 && t.sent == 0;
  if (op != OP_SHARD_SLICE && op != OP_PARTIAL_FILL && !local) {
    double alpha = 0, beta = 0;
    if (path->at.mesh->naxes == 0) { /* a mesh of one rank that sends to another */
      alpha = path->topology->alpha[0];
      beta = path->topology->beta[0];
    }
    for (uint32_t a = 0; a < path->at.mesh->naxes; a++) {
      if (axes && !(axes >> a & 1)) continue;
      if (path->topology->alpha[a] > alpha) alpha = path->topology->alpha[a];
      if (path->topology->beta[a] > beta) beta = path->topology->beta[a];
    }
    int64_t most = t.received > t.sent ? t.received : t.sent;
    p->cost += alpha + beta * (double)(most * size);
  }
  path->at = *to;
}

/* The name of an exchange. */
static Op exchange_op(const TensorType *from, const TensorType *to) {
  bool gather = true, all_to_all = true;
  uint32_t left = 0, arrived = 0;
  for (uint32_t d = 0; d < from->rank; d++) {
    uint8_t f[DTM_MAX_AXES], t[DTM_MAX_AXES];
    uint32_t nf = layout_dim_axes(&from->layout, d, f), nt = layout_dim_axes(&to->layout, d, t);
    uint32_t n = 0, out = 0, in = 0;
    while (n < nf && n < nt && f[n] == t[n]) n++;
    for (uint32_t i = n; i < nf; i++) out |= 1u << f[i];
    for (uint32_t i = n; i < nt; i++) in |= 1u << t[i];
    if (in) gather = false;
    if (in & out) all_to_all = false; /* an axis that changes its order within a dim */
    left |= out;
    arrived |= in;
  }
  if (gather) return OP_ALL_GATHER;
  return all_to_all && left == arrived ? OP_ALL_TO_ALL : OP_EXCHANGE;
}

Traffic path_measure(const Path *path, const TensorType *to) {
  Memo *m = path->memo;
  const TensorType *at = &path->at;
  uint64_t key = hash_bytes(&to->layout, sizeof to->layout,
                            hash_bytes(&at->layout, sizeof at->layout, (uintptr_t)at->mesh));
  uint32_t i;
  if (id_map_get(&m->known, key, &i) && m->entries.data[i].mesh == at->mesh &&
      layout_equal(&m->entries.data[i].from, &at->layout) &&
      layout_equal(&m->entries.data[i].to, &to->layout))
    return m->entries.data[i].traffic;
  Measured now = {at->mesh, at->layout, to->layout, measure_exchange(at, to)};
  id_map_put(&m->arena, &m->known, key, m->entries.len);
  VEC_PUSH(&m->arena, &m->entries, now);
  return now.traffic;
}

void path_exchange(Path *path, const TensorType *to) {
  if (layout_equal(&path->at.layout, &to->layout)) return;
  Traffic t = path_measure(path, to);
  Op op = t.received == 0 ? OP_SHARD_SLICE : exchange_op(&path->at, to);
  if (op == OP_ALL_GATHER) t.sent = t.received; /* each block travels on from rank to rank */
  push(path, op, measure_axes(&path->at, to), to, t);
}

void path_reduce_scatter(Path *path, uint32_t axes, const TensorType *to) {
  push(path, OP_REDUCE_SCATTER, axes, to, measure_reduce_scatter(&path->at, to));
}

void path_all_reduce(Path *path, uint32_t axes) {
  TensorType to = path->at;
  for (uint32_t a = 0; a < to.mesh->naxes; a++)
    if (axes >> a & 1) to.layout.at[a] = (Place){0};
  push(path, OP_ALL_REDUCE, axes, &to, measure_all_reduce(&path->at, axes));
}

void path_fill(Path *path, uint32_t axes, const TensorType *to) {
  push(path, OP_PARTIAL_FILL, axes, to, (Traffic){0, 0});
}

void path_send(Path *path, const TensorType *to) {
  push(path, OP_SEND_MESH, 0, to, measure_send(&path->at, to));
}
