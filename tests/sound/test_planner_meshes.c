/* Transfers between meshes against brute force: every pair of layouts on pairs of meshes of one
 * world, step by step on every device.
 *
 * What a send moves is read from place_transfers, the list that the runtime follows; whether it is
 * local is decided anew here, by who holds what. */
#include <check.h>
#include <math.h>

#include "sound/planner_sim.h"
#include "support/suite.h"

enum { WORLD = 8, SHAPES = 2 };
static const int64_t shapes[SHAPES][2] = {{5, 3}, {4, 4}};

static Arena arena;
static PlanCache *cache;
static long tried, local_sends, kept_partial;

/* Layout number `code` in base 4 per axis: R, S(0), S(1), P(sum); `reverse`: inner axes cut first.
 */
static bool layout_of(TensorType *t, uint32_t code, bool reverse) {
  static const ReduceOp op = REDUCE_SUM;
  t->layout = (Layout){0};
  uint32_t digit[DTM_MAX_AXES];
  for (uint32_t a = 0; a < t->mesh->naxes; a++, code /= 4) digit[a] = code % 4;
  for (uint32_t i = 0; i < t->mesh->naxes; i++) {
    uint32_t a = reverse ? t->mesh->naxes - 1 - i : i;
    if (digit[a] == 0) continue;
    if (digit[a] == 3)
      layout_set(&t->layout, t->mesh, a, PLACE_PARTIAL, 0, op);
    else
      layout_set(&t->layout, t->mesh, a, PLACE_SHARD, digit[a] - 1, REDUCE_NONE);
  }
  return code == 0;
}

/* Every device of the target has what it needs of the right addend in its own memory. */
static bool holds_all(const TensorType *from, const TensorType *to) {
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to), (*owns)[SIM_ELEMENTS] = sim_map(from);
  for (int64_t d = 0; d < to->mesh->nranks; d++) {
    int64_t own = mesh_find(from->mesh, mesh_rank(to->mesh, d));
    if (own < 0) return false;
    for (uint32_t a = 0; a < from->mesh->naxes; a++)
      if (from->layout.at[a].kind == PLACE_PARTIAL &&
          sim_coord(from->mesh, own, a) != sim_coord(to->mesh, d, a))
        return false;
    for (int64_t e = 0; e < sim_elements(to); e++)
      if (needs[d][e] && !owns[own][e]) return false;
  }
  return true;
}

static bool in_box(const TensorType *t, const Block *b, int64_t e) {
  for (uint32_t d = t->rank; d-- > 0; e /= t->shape[d]) {
    int64_t index = e % t->shape[d];
    if (index < b->offset[d] || index >= b->offset[d] + b->extent[d]) return false;
  }
  return true;
}

static void send(const TensorType *from, const TensorType *to, const SimValue *x, SimValue *y) {
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to);
  memset(y, 0, sizeof *y);
  bool local = place_send_is_local(from, to);
  EXPECT(local == holds_all(from, to));
  local_sends += local;
  for (int64_t d = 0; local && d < to->mesh->nranks; d++) {
    int64_t own = mesh_find(from->mesh, mesh_rank(to->mesh, d));
    for (int64_t e = 0; e < sim_elements(to); e++) {
      if (!needs[d][e]) continue;
      y->has[d][e] = x->has[own][e];
      y->v[d][e] = x->v[own][e];
    }
  }
  TransferList list = {0};
  if (!local) place_transfers(&arena, from, to, &list);
  for (uint32_t i = 0; i < list.len; i++) {
    const Transfer *t = &list.data[i];
    for (int64_t e = 0; e < sim_elements(to); e++) {
      if (!in_box(to, &t->block, e)) continue;
      EXPECT_MSG(needs[t->receiver][e], "it gets what it does not need");
      EXPECT_MSG(x->has[t->sender][e], "the sender has it not");
      EXPECT_MSG(!y->has[t->receiver][e], "it gets an element twice");
      y->has[t->receiver][e] = true;
      y->v[t->receiver][e] = x->v[t->sender][e];
    }
  }
  for (int64_t d = 0; d < to->mesh->nranks; d++)
    for (int64_t e = 0; e < sim_elements(to); e++) EXPECT(y->has[d][e] == needs[d][e]);
}

static void check_pair(const TensorType *from, const TensorType *to) {
  static SimValue a, b;
  static double global[SIM_ELEMENTS];
  const RedistributePlan *plan = place_plan(cache, from, to, NULL);
  EXPECT_MSG(!plan->error, "%s to %s: %s", type_print(&arena, from), type_print(&arena, to),
             plan->error);
  for (int64_t e = 0; e < sim_elements(from); e++) global[e] = (double)sim_noise(e, 3, 50) + 1;
  SimValue *x = &a, *y = &b;
  sim_distribute(from, global, x);
  TensorType at = *from;
  int64_t received, sends = 0;
  for (uint32_t i = 0; i < plan->nsteps; i++) {
    const PlanStep *s = &plan->steps[i];
    if (s->op == OP_SEND_MESH) {
      send(&at, &s->to, x, y);
      sends++;
      kept_partial += layout_has_partial(&s->to.layout);
      if (place_send_is_local(&at, &s->to)) EXPECT(s->bytes_received == 0 && s->bytes_sent == 0);
    } else {
      EXPECT(at.mesh == s->to.mesh);
      sim_step(&at, s, x, y, &received);
    }
    at = s->to;
    SimValue *t = x;
    x = y;
    y = t;
  }
  EXPECT(type_equal(&at, to));
  EXPECT(sends == 1);
  const bool(*needs)[SIM_ELEMENTS] = sim_map(to);
  for (int64_t d = 0; d < to->mesh->nranks; d++)
    for (int64_t e = 0; e < sim_elements(to); e++) {
      EXPECT(x->has[d][e] == needs[d][e]);
      EXPECT_MSG(!needs[d][e] || fabs(sim_meaning(to, x, d, e) - global[e]) < 1e-9,
                 "%s to %s: device %d has another value", type_print(&arena, from),
                 type_print(&arena, to), (int)d);
    }
  tried++;
}

static void check_meshes(const Mesh *a, const Mesh *b) {
  for (int s = 0; s < SHAPES; s++) {
    TensorType from = {.dtype = DT_F64, .rank = 2, .mesh = a}, to = from;
    memcpy(from.shape, shapes[s], sizeof shapes[s]);
    memcpy(to.shape, shapes[s], sizeof shapes[s]);
    to.mesh = b;
    sim_reset();
    for (uint32_t f = 0; layout_of(&from, f, false); f++)
      for (uint32_t t = 0; layout_of(&to, t, false); t++)
        for (int reverse = 0; reverse < 4; reverse++) {
          layout_of(&from, f, reverse & 1);
          layout_of(&to, t, reverse & 2);
          check_pair(&from, &to);
        }
  }
}

/* All sub-meshes of (x 2, y 2, z 2), and lists of ranks that overlap in part. */
START_TEST(all_layouts) {
  static const int64_t three[] = {6, 1, 3}, two[] = {3, 4}, back[] = {5, 4, 1, 0};
  arena_init(&arena);
  cache = plan_cache_new(&arena);
  const char *error;
  Mesh world = {
      .name = "world", .naxes = 3, .axis = {"x", "y", "z"}, .size = {2, 2, 2}, .nranks = WORLD};
  Mesh flat = {.name = "flat", .naxes = 2, .axis = {"x", "y"}, .size = {2, 4}, .nranks = WORLD};
  Mesh odd = {.name = "odd",
              .naxes = 1,
              .axis = {"x"},
              .size = {3},
              .nranks = 3,
              .ranks = three,
              .sub = true};
  Mesh pair = {.name = "pair",
               .naxes = 1,
               .axis = {"x"},
               .size = {2},
               .nranks = 2,
               .ranks = two,
               .sub = true};
  const Mesh *first = mesh_unbind(&arena, &world, 1, 0),
             *second = mesh_unbind(&arena, &world, 1, 1);
  Mesh backwards = *first; /* the ranks of `first`, the last one first */
  backwards.ranks = back;
  const Mesh *alone = mesh_unbind(&arena, &pair, 0, 1);
  const Mesh *kept = mesh_keep(&arena, &world, 1u << 2);
  const uint8_t xz[] = {2, 0};
  const Mesh *joined = mesh_flatten(&arena, &world, xz, 2, "w");
  const Mesh *both =
      mesh_concatenate(&arena, mesh_keep(&arena, &world, 4), mesh_keep(&arena, &world, 1), &error);
  ck_assert_ptr_nonnull(both);
  const struct {
    const Mesh *from, *to;
  } pairs[] = {{first, second}, {second, first},    {&flat, first}, {first, &flat},
               {first, &odd},   {&odd, first},      {&odd, &pair},  {&pair, &odd},
               {joined, first}, {second, joined},   {&flat, kept},  {kept, &flat},
               {alone, &pair},  {&pair, alone},     {alone, first}, {kept, joined},
               {joined, both},  {first, &backwards}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    check_meshes(pairs[i].from, pairs[i].to);
  ck_assert_int_gt(local_sends, 1000);
  ck_assert_int_gt(kept_partial, 500);
  ck_assert_int_gt(tried, 20000);
  arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *s = suite_create("planner across meshes");
  TCase *c = tcase_create("planner across meshes");
  tcase_set_timeout(c, 300);
  tcase_add_test(c, all_layouts);
  suite_add_tcase(s, c);
  return suite_run(s);
}
