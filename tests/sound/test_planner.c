/* The planner, proved by brute force: for all pairs of layouts on small meshes every plan gives the
 * right blocks, costs what it says, and is not beaten by a detour. */
#include <math.h>

#include "planner_sim.h"
#include "reference/type_text.h"
#include "support/suite.h"

enum { MAX_LAYOUTS = 512 };

typedef struct LayoutList {
  Layout at[MAX_LAYOUTS];
  uint32_t n;
} LayoutList;

/* All layouts of a tensor of this rank; Partial(op) among them unless op is REDUCE_NONE. */
static void all_layouts(const Mesh *m, uint32_t rank, ReduceOp op, uint32_t axis, Layout l,
                        LayoutList *out) {
  if (axis >= m->naxes || axis >= DTM_MAX_AXES) {
    EXPECT(out->n < MAX_LAYOUTS);
    out->at[out->n++] = l;
    return;
  }
  all_layouts(m, rank, op, axis + 1, l, out);
  if (op != REDUCE_NONE) {
    Layout p = l;
    p.at[axis] = (Place){.kind = PLACE_PARTIAL, .op = (uint8_t)op};
    all_layouts(m, rank, op, axis + 1, p, out);
  }
  for (uint8_t d = 0; d < rank; d++) {
    uint8_t n = 0;
    for (uint32_t a = 0; a < axis; a++) n += l.at[a].kind == PLACE_SHARD && l.at[a].dim == d;
    for (uint8_t at = 0; at <= n; at++) {
      Layout s = l;
      for (uint32_t a = 0; a < axis; a++)
        if (s.at[a].kind == PLACE_SHARD && s.at[a].dim == d && s.at[a].order >= at) s.at[a].order++;
      s.at[axis] = (Place){.kind = PLACE_SHARD, .dim = d, .order = at};
      all_layouts(m, rank, op, axis + 1, s, out);
    }
  }
}

static TensorType make_type(const Mesh *m, uint32_t rank, const int64_t *shape) {
  TensorType t = {.dtype = DT_F32, .rank = rank, .mesh = m};
  for (uint32_t d = 0; d < rank; d++) t.shape[d] = shape[d];
  return t;
}

static const char *show(Arena *arena, const TensorType *from, const TensorType *to,
                        const RedistributePlan *plan) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  strbuf_printf(&sb, "%s on %s -> %s:", type_print(arena, from), mesh_print(arena, from->mesh),
                type_print(arena, to));
  for (uint32_t i = 0; i < plan->nsteps; i++)
    strbuf_printf(&sb, " %s -> %s (received %lld, sent %lld);", op_name(plan->steps[i].op),
                  type_print(arena, &plan->steps[i].to), (long long)plan->steps[i].bytes_received,
                  (long long)plan->steps[i].bytes_sent);
  return sb.text;
}

static bool is_even(const TensorType *t) {
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->shape[d] % layout_dim_ways(&t->layout, t->mesh, d)) return false;
  return true;
}

static bool same_partial(const TensorType *a, const TensorType *b) {
  for (uint32_t x = 0; x < a->mesh->naxes; x++)
    if ((a->layout.at[x].kind == PLACE_PARTIAL || b->layout.at[x].kind == PLACE_PARTIAL) &&
        memcmp(&a->layout.at[x], &b->layout.at[x], sizeof(Place)) != 0)
      return false;
  return true;
}

/* The worst device of |needed \ owned|, counted. */
static int64_t count_bound(const TensorType *from, const TensorType *to) {
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to), (*owns)[SIM_ELEMENTS] = sim_map(from);
  int64_t worst = 0;
  for (int64_t d = 0; d < from->mesh->nranks; d++) {
    int64_t n = 0;
    for (int64_t e = 0; e < sim_elements(from); e++) n += needs[d][e] && !owns[d][e];
    if (n > worst) worst = n;
  }
  return worst;
}

/* The list of an exchange: each device gets each element it needs once, from one that holds it; its
 * own from itself; the worst sender sends what the plan says. */
static void check_transfers(Arena *arena, const TensorType *from, const TensorType *to,
                            int64_t expect_sent) {
  static uint8_t got[SIM_DEVICES][SIM_ELEMENTS];
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to), (*owns)[SIM_ELEMENTS] = sim_map(from);
  int64_t sent[SIM_DEVICES] = {0}, worst = 0;
  memset(got, 0, sizeof got);
  TransferList list = {0};
  place_transfers(arena, from, to, &list);
  for (uint32_t i = 0; i < list.len; i++) {
    const Transfer *x = &list.data[i];
    int64_t n = 1;
    for (uint32_t d = 0; d < from->rank; d++) n *= x->block.extent[d];
    EXPECT(n > 0);
    for (int64_t k = 0; k < n; k++) {
      int64_t e = 0, stride = 1, rest = k;
      for (uint32_t d = from->rank; d-- > 0; stride *= from->shape[d]) {
        e += (x->block.offset[d] + rest % x->block.extent[d]) * stride;
        rest /= x->block.extent[d];
      }
      EXPECT(owns[x->sender][e] && needs[x->receiver][e]);
      EXPECT(x->sender == x->receiver || !owns[x->receiver][e]);
      EXPECT(got[x->receiver][e]++ == 0);
    }
    if (x->sender != x->receiver && (sent[x->sender] += n) > worst) worst = sent[x->sender];
  }
  for (int64_t d = 0; d < from->mesh->nranks; d++)
    for (int64_t e = 0; e < sim_elements(from); e++) EXPECT(got[d][e] == needs[d][e]);
  EXPECT(worst == expect_sent);
}

/* Carries the plan out and checks every promise. */
static void check_pair(Arena *arena, PlanCache *cache, const TensorType *from,
                       const TensorType *to) {
  static SimValue values[2];
  double global[SIM_ELEMENTS];
  const RedistributePlan *plan = place_plan(cache, from, to, NULL);
  EXPECT_MSG(!plan->error, "%s", plan->error);
  for (int64_t e = 0; e < sim_elements(from); e++) global[e] = (double)sim_noise(e, 3, 50) + 1;
  SimValue *x = &values[0], *y = &values[1];
  sim_distribute(from, global, x);
  TensorType at = *from;
  int64_t size = (int64_t)dtype_bytes(from->dtype), total = 0;
  for (uint32_t i = 0; i < plan->nsteps; i++) {
    const PlanStep *s = &plan->steps[i];
    int64_t received;
    sim_step(&at, s, x, y, &received);
    total += s->bytes_received;
    bool moves = s->op == OP_ALL_GATHER || s->op == OP_ALL_TO_ALL || s->op == OP_EXCHANGE;
    if (moves) {
      EXPECT_MSG(received * size == s->bytes_received, "%s", show(arena, from, to, plan));
      if (s->op != OP_ALL_GATHER) check_transfers(arena, &at, &s->to, s->bytes_sent / size);
    }
    if (s->op == OP_SHARD_SLICE) check_transfers(arena, &at, &s->to, 0);
    at = s->to;
    SimValue *swap = x;
    x = y;
    y = swap;
  }
  EXPECT(type_equal(&at, to));
  EXPECT(total == plan->bytes_received);
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to);
  for (int64_t d = 0; d < to->mesh->nranks; d++)
    for (int64_t e = 0; e < sim_elements(to); e++) {
      EXPECT(x->has[d][e] == needs[d][e]);
      if (x->has[d][e])
        EXPECT_MSG(fabs(sim_meaning(to, x, d, e) - global[e]) < 1e-9,
                   "device %lld element %lld of %s", (long long)d, (long long)e,
                   show(arena, from, to, plan));
    }
  if (!same_partial(from, to)) return;
  int64_t bound = count_bound(from, to) * size;
  EXPECT(place_bound(from, to) == bound);
  EXPECT_MSG(plan->bytes_received >= bound, "%s", show(arena, from, to, plan));
  if (is_even(from) && is_even(to))
    EXPECT_MSG(plan->bytes_received == bound && plan->bytes_sent <= bound, "bound %lld: %s",
               (long long)bound, show(arena, from, to, plan));
}

static void check_all(uint32_t naxes, const int64_t *size, uint32_t rank, const int64_t *shape,
                      ReduceOp op) {
  Mesh m;
  mesh_of(&m, naxes, size);
  LayoutList list = {.n = 0};
  all_layouts(&m, rank, op, 0, (Layout){0}, &list);
  sim_reset();
  TensorType from = make_type(&m, rank, shape), to = from;
  for (uint32_t i = 0; i < list.n; i++) {
    Arena arena;
    arena_init(&arena);
    PlanCache *cache = plan_cache_new(&arena);
    from.layout = list.at[i];
    for (uint32_t j = 0; j < list.n; j++) {
      to.layout = list.at[j];
      check_pair(&arena, cache, &from, &to);
    }
    arena_free(&arena);
  }
}

/* A Partial axis of the middle is in neither end, or one of both ends is not in the middle: the
 * planner makes no Partial that is not asked for. */
static bool makes_partial(const Mesh *m, const Layout *from, const Layout *middle,
                          const Layout *to) {
  for (uint32_t a = 0; a < m->naxes; a++) {
    bool f = from->at[a].kind == PLACE_PARTIAL, t = to->at[a].kind == PLACE_PARTIAL;
    bool has = middle->at[a].kind == PLACE_PARTIAL;
    if ((has && !f && !t) || (!has && f && t)) return true;
  }
  return false;
}

static bool fills(const Mesh *m, const Layout *from, const Layout *to) {
  for (uint32_t a = 0; a < m->naxes; a++)
    if (to->at[a].kind == PLACE_PARTIAL && from->at[a].kind != PLACE_PARTIAL) return true;
  return false;
}

/* No way through a third layout is cheaper. With a topology, and where Partial is to be made, only
 * ways of two single steps are held against a plan. With Partial and uneven sizes the order in
 * which axes are scattered matters a little, and not all orders are tried. */
static void check_detours(uint32_t naxes, const int64_t *size, uint32_t rank, const int64_t *shape,
                          ReduceOp op, const Topology *topology) {
  Arena arena;
  arena_init(&arena);
  PlanCache *cache = plan_cache_new(&arena);
  Mesh m;
  mesh_of(&m, naxes, size);
  LayoutList list = {.n = 0};
  all_layouts(&m, rank, op, 0, (Layout){0}, &list);
  TensorType t[3] = {make_type(&m, rank, shape)};
  t[1] = t[2] = t[0];
  static double cost[MAX_LAYOUTS][MAX_LAYOUTS];
  static uint32_t steps[MAX_LAYOUTS][MAX_LAYOUTS];
  for (uint32_t i = 0; i < list.n; i++)
    for (uint32_t j = 0; j < list.n; j++) {
      t[0].layout = list.at[i];
      t[1].layout = list.at[j];
      const RedistributePlan *plan = place_plan(cache, &t[0], &t[1], topology);
      cost[i][j] = plan->cost;
      steps[i][j] = plan->nsteps;
    }
  for (uint32_t i = 0; i < list.n; i++)
    for (uint32_t j = 0; j < list.n; j++)
      for (uint32_t k = 0; k < list.n; k++) {
        bool partial = layout_has_partial(&list.at[i]) || layout_has_partial(&list.at[j]);
        if (cost[i][j] <= (cost[i][k] + cost[k][j]) * (partial ? 1.01 : 1 + 1e-8)) continue;
        if (makes_partial(&m, &list.at[i], &list.at[k], &list.at[j])) continue;
        if ((topology || fills(&m, &list.at[i], &list.at[j])) &&
            (steps[i][k] > 1 || steps[k][j] > 1))
          continue;
        t[0].layout = list.at[i];
        t[1].layout = list.at[j];
        t[2].layout = list.at[k];
        ck_abort_msg("%s cost %g, but through %s %g",
                     show(&arena, &t[0], &t[1], place_plan(cache, &t[0], &t[1], topology)),
                     cost[i][j], type_print(&arena, &t[2]), cost[i][k] + cost[k][j]);
      }
  arena_free(&arena);
}

/* Meshes of the proof, and extents that are even on them, uneven, and partly empty. */
static const struct {
  uint32_t naxes;
  int64_t size[3];
} meshes[] = {{1, {2}}, {1, {3}}, {1, {4}}, {2, {2, 2}}, {2, {2, 3}}, {2, {4, 2}}, {3, {2, 2, 2}}};
enum { NMESHES = sizeof meshes / sizeof *meshes };

START_TEST(all_pairs) {
  static const int64_t even[] = {4, 6, 8, 4, 6, 8, 8},
                       shapes[][3] = {{5, 3, 4}, {2, 1, 3}, {0, 2, 5}};
  int64_t n = even[_i], cube[] = {n, n, n};
  for (uint32_t rank = 1; rank <= 3; rank++) {
    check_all(meshes[_i].naxes, meshes[_i].size, rank, cube, REDUCE_SUM);
    bool many = rank == 3 && meshes[_i].naxes == 3; /* 176 layouts: the first uneven shape only */
    for (int s = 0; s < (many ? 1 : 3); s++)
      check_all(meshes[_i].naxes, meshes[_i].size, rank, shapes[s], REDUCE_SUM);
  }
}
END_TEST

START_TEST(all_reductions) {
  static const int64_t shape[] = {5, 6};
  for (ReduceOp op = REDUCE_SUM; op < REDUCE_COUNT; op++)
    for (int m = 0; m < 6; m++) check_all(meshes[m].naxes, meshes[m].size, 2, shape, op);
}
END_TEST

START_TEST(no_better_detour) {
  /* Small tensors count steps, large ones bytes. */
  static const int64_t shapes[][3] = {{8, 12, 8}, {5, 7, 3}, {4096, 4096, 64}, {5003, 1201, 7}};
  uint32_t naxes = meshes[_i].naxes;
  Mesh m;
  mesh_of(&m, naxes, meshes[_i].size);
  Topology uneven = topology_default(&m);
  uneven.beta[0] *= 8;
  for (int s = 0; s < 4; s++) {
    check_detours(naxes, meshes[_i].size, naxes == 3 ? 2 : 3, shapes[s], REDUCE_SUM, NULL);
    check_detours(naxes, meshes[_i].size, 2, shapes[s], REDUCE_NONE, &uneven);
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("planner");
  TCase *c = tcase_create("proof");
  tcase_set_timeout(c, 300);
  tcase_add_loop_test(c, all_pairs, 0, NMESHES);
  tcase_add_test(c, all_reductions);
  tcase_add_loop_test(c, no_better_detour, 0, NMESHES);
  suite_add_tcase(s, c);
  return suite_run(s);
}
