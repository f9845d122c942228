/* Which cotangents may stay Partial: a minimum cut per mesh axis.
 *
 * Where a value is R its cotangent may be R or P(sum). Partial is *born* where an operator uses an
 * R operand differently per rank (a column-parallel linear, a norm weight on sharded rows), and
 * must end at a parameter (reduced once per step) or at the mirror of a forward reduction. In
 * between a gradient is linear in its cotangent, so Partial may travel; turning R into P is free
 * (rank 0 keeps), turning P into R is an all-reduce, paid once per value whatever number of users
 * want R.
 *
 * With one vertex `raw` per value (is what arrives P?) and one `kept` (is it still P for its
 * users?) the cheapest choice is a minimum s-t cut over these edges:
 *
 * - s -> raw(w), infinite: Partial is born at w.
 * - s -> raw(w), all-gather: mirror of a slice R -> S; gather it, or fill it to P for nothing.
 * - raw(v) -> kept(v), all-reduce; infinite where v is a parameter in another element type, or
 *   gathered: its gradient is reduced where the parameter is, in the element type chosen for that.
 * - kept(v) -> raw(w), infinite: the gradient from v to w passes Partial on.
 * - kept(v) -> t, infinite: mirror of P -> R, or a gradient that cannot take Partial.
 * - kept(v) -> t, reduce-scatter: mirror of a gather S -> R.
 * - s -> raw(w), infinite, too: the cotangent of w is given, and is P.
 * - raw(p) -> t, all-reduce: p is a parameter; once per step, so 1 / accumulate of it.
 *
 * Vertices that are reachable from s in the residual graph stay Partial, so that among equal cuts
 * reductions come as early as possible. The cut is exact per axis; axes are taken one by one. Flow:
 * Dinic, "Algorithm for solution of a problem of maximum flow", 1970. Only values that a birth
 * reaches have vertices, so the network is small.
 */
#include "autodiff/grad.h"

#include <string.h>

struct CotPlan {
  uint8_t *raw;  /* per forward value, bit per axis: arrives Partial */
  uint8_t *kept; /* ... and no user wants it reduced */
};

typedef struct Edge {
  uint32_t to, next; /* next: index of the next edge of the same vertex; 0 = none */
  int64_t room;
} Edge;

typedef struct Net {
  Grad *d;
  uint32_t axis;
  uint32_t *vertex; /* per value: raw; kept = raw + 1; 0 = none */
  uint32_t nvertices;
  bool ends;       /* some Partial must end: without, nothing is cut, and costs do not matter */
  VEC(Edge) edges; /* edge e and e ^ 1 are each other's reverse; 0 and 1 unused */
  uint32_t *first;
} Net;

enum { VERTEX_S = 2, VERTEX_T = 3, VERTEX_FIRST = 4 };
static const int64_t UNBOUNDED = (int64_t)1 << 60;

static bool free_on(const Net *net, ValueId v) {
  const TensorType *t = grad_type(net->d, v);
  return net->axis < t->mesh->naxes && t->mesh->size[net->axis] > 1 &&
         t->layout.at[net->axis].kind == PLACE_REPLICATE;
}

static Place place_on(const Net *net, ValueId v) {
  return grad_type(net->d, v)->layout.at[net->axis];
}

static void add_edge(Net *net, uint32_t from, uint32_t to, int64_t room) {
  uint32_t e = net->edges.len;
  VEC_PUSH(net->d->scratch, &net->edges, (Edge){to, net->first[from], room});
  VEC_PUSH(net->d->scratch, &net->edges, (Edge){from, net->first[to], 0});
  net->first[from] = e;
  net->first[to] = e + 1;
}

/* Femtoseconds to bring the cotangent of `v` from one placement on the axis to another. */
static int64_t cost(Net *net, ValueId v, Place from, Place to, bool in_bucket) {
  if (!net->ends) return 1;
  TensorType a = *grad_type(net->d, v), b;
  const Topology *topology = plan_cache_topology(net->d->plans, a.mesh);
  for (uint32_t i = 0; i < DTM_MAX_AXES; i++)
    if (a.layout.at[i].kind == PLACE_PARTIAL) a.layout.at[i] = (Place){0};
  b = a;
  layout_set(&a.layout, a.mesh, net->axis, (PlaceKind)from.kind, from.dim, REDUCE_SUM);
  layout_set(&b.layout, b.mesh, net->axis, (PlaceKind)to.kind, to.dim, REDUCE_SUM);
  const RedistributePlan *plan = place_plan(net->d->plans, &a, &b, topology);
  double seconds = plan->cost;
  /* A collective of a bucket is shared by many parameters and comes once per step. */
  if (in_bucket)
    seconds = (seconds - 0.9 * topology->alpha[net->axis]) / (double)net->d->accumulate;
  double femto = seconds * 1e15;
  return femto < 1 ? 1 : (int64_t)femto;
}

static const Place partial = {.kind = PLACE_PARTIAL, .op = REDUCE_SUM}, replicate = {0};

/* Whether the gradient of this node to an operand must have its cotangent reduced first. */
static bool refuses_partial(const Grad *d, const Node *n) {
  if (n->op == OP_CUMSUM) return true;
  return n->op == OP_CAST &&
         !dtype_widens(grad_type(d, n->first_result)->dtype, grad_type(d, n->operands[0])->dtype);
}

/* The edges of "cotangent of result y gives one of operand w". Partial does not go from one mesh to
 * another, whose dims of the same number are others. */
static void connect(Net *net, const Node *n, ValueId y, ValueId w) {
  bool moved = grad_type(net->d, y)->mesh != grad_type(net->d, w)->mesh;
  uint32_t from = net->vertex[y], to = moved ? 0 : net->vertex[w];
  bool redistribute = n->op == OP_REDISTRIBUTE;
  if (from && to)
    add_edge(net, from + 1, refuses_partial(net->d, n) ? VERTEX_T : to, UNBOUNDED);
  else if (from && redistribute && !moved && place_on(net, w).kind == PLACE_SHARD)
    add_edge(net, from + 1, VERTEX_T, cost(net, w, partial, place_on(net, w), false));
  else if (from)
    add_edge(net, from + 1, VERTEX_T, UNBOUNDED);
  else if (to && !free_on(net, y) && redistribute && place_on(net, y).kind == PLACE_SHARD)
    add_edge(net, VERTEX_S, to, cost(net, w, place_on(net, y), replicate, false));
  else if (to && !free_on(net, y) && !redistribute)
    add_edge(net, VERTEX_S, to, UNBOUNDED);
}

/* Whether Partial can be born at `w` by the gradient of a node with result `y`. */
static bool births(const Net *net, const Node *n, ValueId y, ValueId w) {
  if (!free_on(net, w) || free_on(net, y)) return false;
  return n->op != OP_REDISTRIBUTE || place_on(net, y).kind == PLACE_SHARD;
}

/* The result of a node whose gradient is taken, or 0: the first, since no other has one. */
static ValueId active_result(const Grad *d, const Node *n) {
  return n->nresults && d->active[n->first_result] ? n->first_result : 0;
}

/* Gives a vertex to every value that Partial may reach; users come after what they use, so one pass
 * backwards does it. */
static bool find_vertices(Net *net) {
  Grad *d = net->d;
  net->nvertices = VERTEX_FIRST;
  for (ValueId v = 1; d->born && v < d->end_value; v++) {
    if (!d->active[v] || !(d->born[v] >> net->axis & 1)) continue;
    net->vertex[v] = net->nvertices;
    net->nvertices += 2;
  }
  for (NodeId id = d->end - 1; id > 0; id--) {
    const Node *n = graph_node(d->g, id);
    ValueId y = active_result(d, n);
    if (!y) continue;
    for (uint32_t i = 0; i < n->noperands; i++) {
      ValueId w = n->operands[i];
      if (!d->active[w] || net->vertex[w] || !free_on(net, w)) continue;
      if (!births(net, n, y, w) && !net->vertex[y]) continue;
      net->vertex[w] = net->nvertices;
      net->nvertices += 2;
    }
  }
  return net->nvertices > VERTEX_FIRST;
}

static bool levels(const Net *net, uint32_t *level, uint32_t *queue) {
  memset(level, 0, net->nvertices * sizeof *level);
  uint32_t head = 0, tail = 0;
  level[VERTEX_S] = 1;
  queue[tail++] = VERTEX_S;
  while (head < tail) {
    uint32_t v = queue[head++];
    for (uint32_t e = net->first[v]; e; e = net->edges.data[e].next) {
      const Edge *edge = &net->edges.data[e];
      if (edge->room <= 0 || level[edge->to]) continue;
      level[edge->to] = level[v] + 1;
      queue[tail++] = edge->to;
    }
  }
  return level[VERTEX_T] != 0;
}

/* Pushes a blocking flow along the levels: a walk with a stack of edges, `at[v]` being the next
 * edge of v worth trying. */
static void block_flow(Net *net, const uint32_t *level, uint32_t *at, uint32_t *stack) {
  memcpy(at, net->first, net->nvertices * sizeof *at);
  uint32_t depth = 0, v = VERTEX_S;
  for (;;) {
    if (v == VERTEX_T) {
      int64_t room = UNBOUNDED;
      for (uint32_t i = 0; i < depth; i++)
        if (net->edges.data[stack[i]].room < room) room = net->edges.data[stack[i]].room;
      uint32_t first_full = depth;
      for (uint32_t i = depth; i-- > 0;) {
        net->edges.data[stack[i]].room -= room;
        net->edges.data[stack[i] ^ 1].room += room;
        if (net->edges.data[stack[i]].room == 0) first_full = i;
      }
      if (first_full == depth) return; /* unbounded: births that nothing can end, not built here */
      depth = first_full;
      v = net->edges.data[stack[depth] ^ 1].to;
      continue;
    }
    uint32_t e = at[v];
    while (e && (net->edges.data[e].room <= 0 || level[net->edges.data[e].to] != level[v] + 1))
      e = net->edges.data[e].next;
    at[v] = e;
    if (e) {
      stack[depth++] = e;
      v = net->edges.data[e].to;
    } else if (depth == 0) {
      return;
    } else {
      v = net->edges.data[stack[--depth] ^ 1].to;
      at[v] = net->edges.data[at[v]].next;
    }
  }
}

/* The values that are `wrt` converted or gathered. */
static bool *find_images(const Grad *d, const bool *is_wrt) {
  bool *image = ARENA_ARRAY(d->scratch, bool, d->end_value);
  for (NodeId id = 1; id < d->end; id++) {
    const Node *n = graph_node(d->g, id);
    bool same = n->op == OP_CAST || (n->op == OP_REDISTRIBUTE && node_attr(n, ATTR_BUCKET));
    if (same && (is_wrt[n->operands[0]] || image[n->operands[0]])) image[n->first_result] = true;
  }
  return image;
}

/* Whether an edge may lead to t: from a parameter, or from the result of a node to its operands. */
static bool can_end(const Net *net, const bool *is_wrt) {
  for (ValueId v = 1; v < net->d->end_value; v++)
    if (net->vertex[v] && (is_wrt[v] || value_node(net->d->g, v)->noperands)) return true;
  return false;
}

static void solve(Net *net, const bool *is_wrt, const bool *is_image) {
  Grad *d = net->d;
  net->ends = can_end(net, is_wrt);
  for (ValueId v = 1; v < d->end_value; v++) {
    uint32_t raw = net->vertex[v];
    if (!raw) continue;
    bool param = is_wrt[v];
    if (d->born && d->born[v] >> net->axis & 1) add_edge(net, VERTEX_S, raw, UNBOUNDED);
    add_edge(net, raw, param ? VERTEX_T : raw + 1,
             is_image[v] && !param ? UNBOUNDED : cost(net, v, partial, replicate, param));
  }
  for (NodeId id = 1; id < d->end; id++) {
    const Node *n = graph_node(d->g, id);
    ValueId y = active_result(d, n);
    for (uint32_t i = 0; y && i < n->noperands; i++)
      if (d->active[n->operands[i]]) connect(net, n, y, n->operands[i]);
  }
  uint32_t *level = ARENA_ARRAY(d->scratch, uint32_t, net->nvertices);
  uint32_t *at = ARENA_ARRAY(d->scratch, uint32_t, net->nvertices);
  uint32_t *stack = ARENA_ARRAY(d->scratch, uint32_t, net->nvertices);
  while (levels(net, level, stack)) block_flow(net, level, at, stack);
  for (ValueId v = 1; v < d->end_value; v++) {
    uint32_t raw = net->vertex[v];
    if (raw && level[raw]) d->plan->raw[v] |= (uint8_t)(1u << net->axis);
    if (raw && level[raw + 1]) d->plan->kept[v] |= (uint8_t)(1u << net->axis);
  }
}

void cot_plan(Grad *d, const ValueId *wrt, uint32_t nwrt) {
  d->plan = ARENA_NEW(d->scratch, CotPlan);
  d->plan->raw = ARENA_ARRAY(d->scratch, uint8_t, d->end_value);
  d->plan->kept = ARENA_ARRAY(d->scratch, uint8_t, d->end_value);
  bool *is_wrt = ARENA_ARRAY(d->scratch, bool, d->end_value);
  for (uint32_t i = 0; i < nwrt; i++) is_wrt[wrt[i]] = true;
  const bool *is_image = find_images(d, is_wrt);
  for (uint32_t axis = 0; axis < DTM_MAX_AXES; axis++) {
    Net net = {.d = d, .axis = axis};
    net.vertex = ARENA_ARRAY(d->scratch, uint32_t, d->end_value);
    if (!find_vertices(&net)) continue;
    net.first = ARENA_ARRAY(d->scratch, uint32_t, net.nvertices);
    VEC_PUSH(d->scratch, &net.edges, (Edge){0});
    VEC_PUSH(d->scratch, &net.edges, (Edge){0});
    solve(&net, is_wrt, is_image);
  }
}

bool cot_wants_replicate(const Grad *d, ValueId v, uint32_t axis) {
  return !(d->plan->raw[v] >> axis & 1);
}

bool cot_use_wants_replicate(const Grad *d, const Node *n, uint32_t i, uint32_t axis) {
  ValueId w = n->operands[i], y = active_result(d, n);
  const TensorType *t = grad_type(d, w);
  if (refuses_partial(d, n) || t->mesh != grad_type(d, y)->mesh) return true;
  switch ((PlaceKind)t->layout.at[axis].kind) {
  case PLACE_REPLICATE:
    return cot_wants_replicate(d, w, axis);
  case PLACE_SHARD:
    return !(d->plan->kept[y] >> axis & 1);
  case PLACE_PARTIAL:
    return true;
  }
  return true;
}
