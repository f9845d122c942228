/* The planner on single cases: known points, what users read, topologies, other meshes, big meshes.
 * That plans are right and cheapest is proved in tests/sound/test_planner.c. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "place/place.h"
#include "support/suite.h"

static Arena arena;
static PlanCache *cache;

static void setup(void) {
  arena_init(&arena);
  cache = plan_cache_new(&arena);
}
static void teardown(void) {
  arena_free(&arena);
}

static Mesh mesh2(int64_t x, int64_t y) {
  return (Mesh){.name = "m", .naxes = 2, .axis = {"x", "y"}, .size = {x, y}, .nranks = x * y};
}

/* A layout of two dims as text: the axes of each dim, outer first, such as "xy" and "". */
static TensorType type2(const Mesh *m, int64_t rows, int64_t columns, const char *d0,
                        const char *d1) {
  TensorType t = {.dtype = DT_F32, .rank = 2, .shape = {rows, columns}, .mesh = m};
  const char *const lists[] = {d0, d1};
  for (uint32_t d = 0; d < 2; d++)
    for (const char *c = lists[d]; *c; c++)
      layout_set(&t.layout, m, (uint32_t)(*c - 'x'), PLACE_SHARD, d, REDUCE_NONE);
  return t;
}

static TensorType partial(TensorType t, uint32_t axis, ReduceOp op) {
  layout_set(&t.layout, t.mesh, axis, PLACE_PARTIAL, 0, op);
  return t;
}

/* Fractions of the tensor that the worst device receives, one collective each, on (4, 2). */
START_TEST(known_points) {
  static const struct {
    const char *from[2], *to[2];
    double fraction;
    Op op;
  } cases[] = {
      {{"x", ""}, {"", "x"}, 0.1875, OP_ALL_TO_ALL},
      {{"xy", ""}, {"", "xy"}, 0.109375, OP_ALL_TO_ALL},
      {{"x", "y"}, {"y", "x"}, 0.125, OP_ALL_TO_ALL},
      {{"x", ""}, {"y", ""}, 0.5, OP_EXCHANGE},
      {{"xy", ""}, {"yx", ""}, 0.125, OP_EXCHANGE},
      {{"xy", ""}, {"", ""}, 0.875, OP_ALL_GATHER},
      {{"", "yx"}, {"", "y"}, 0.375, OP_ALL_GATHER},
  };
  Mesh m = mesh2(4, 2);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    TensorType from = type2(&m, 64, 64, cases[i].from[0], cases[i].from[1]);
    TensorType to = type2(&m, 64, 64, cases[i].to[0], cases[i].to[1]);
    const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
    ck_assert_uint_eq(plan->nsteps, 1);
    ck_assert_int_eq(plan->steps[0].op, cases[i].op);
    ck_assert(plan->bytes_received == (int64_t)(cases[i].fraction * 64 * 64 * 4));
    ck_assert_int_le(plan->bytes_sent, plan->bytes_received);
    ck_assert_int_eq(plan->bytes_received, place_bound(&from, &to));
  }
}
END_TEST

START_TEST(one_all_to_all) { /* (S1, S1) -> (S1, S2): only y moves */
  Mesh m = mesh2(2, 2);
  TensorType from = type2(&m, 8, 8, "xy", ""), to = type2(&m, 8, 8, "x", "y");
  const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
  ck_assert_uint_eq(plan->nsteps, 1);
  ck_assert_int_eq(plan->steps[0].op, OP_ALL_TO_ALL);
  ck_assert_uint_eq(plan->steps[0].axes, 2);
}
END_TEST

START_TEST(order_moves_data) {
  Mesh m = mesh2(2, 2);
  TensorType from = type2(&m, 8, 1, "xy", ""), to = type2(&m, 8, 1, "yx", "");
  const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
  ck_assert_uint_eq(plan->nsteps, 1);
  ck_assert_int_gt(plan->bytes_received, 0);
}
END_TEST

START_TEST(reductions) {
  Mesh m = mesh2(4, 2);
  TensorType p = partial(type2(&m, 2048, 2048, "", ""), 0, REDUCE_SUM);
  TensorType rows = type2(&m, 2048, 2048, "x", "");
  /* The replicas on y share the work: each reduces half. */
  const RedistributePlan *scatter = place_plan(cache, &p, &rows, NULL);
  ck_assert_str_eq(place_describe(&arena, scatter), "reduce-scatter 6.0 MiB + all-gather 2.0 MiB");
  TensorType both = partial(type2(&m, 2048, 2048, "y", ""), 0, REDUCE_SUM);
  TensorType cut = type2(&m, 2048, 2048, "y", ""), nested = type2(&m, 2048, 2048, "yx", "");
  ck_assert_str_eq(place_describe(&arena, place_plan(cache, &both, &cut, NULL)),
                   "all-reduce 12.0 MiB");
  ck_assert_str_eq(place_describe(&arena, place_plan(cache, &both, &nested, NULL)),
                   "reduce-scatter 6.0 MiB");
  TensorType whole = type2(&m, 2048, 2048, "", "");
  ck_assert_str_eq(place_describe(&arena, place_plan(cache, &whole, &nested, NULL)), "none");
  ck_assert_str_eq(place_describe(&arena, place_plan(cache, &whole, &whole, NULL)), "none");
  /* An addend of the sum on x holds a part that no other does: a quarter is gathered. */
  ck_assert_str_eq(place_describe(&arena, place_plan(cache, &cut, &p, NULL)), "all-gather 2.0 MiB");
}
END_TEST

START_TEST(other_reduction) {
  Mesh m = mesh2(4, 2);
  for (ReduceOp a = REDUCE_SUM; a < REDUCE_COUNT; a++)
    for (ReduceOp b = REDUCE_SUM; b < REDUCE_COUNT; b++) {
      TensorType from = partial(type2(&m, 8, 8, "", ""), 1, a);
      TensorType to = partial(type2(&m, 8, 8, "", ""), 1, b);
      const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
      ck_assert_int_eq(plan->error != NULL, a != b);
      if (a != b) ck_assert_ptr_nonnull(strstr(place_describe(&arena, plan), "mesh dim y"));
    }
  TensorType from = type2(&m, 8, 8, "", "");
  TensorType mixed = partial(partial(from, 0, REDUCE_SUM), 1, REDUCE_MAX);
  ck_assert_ptr_nonnull(place_plan(cache, &from, &mixed, NULL)->error);
}
END_TEST

/* Seven rows on (2, 3), five on (2, 2) and the like: local rows as the rule says. */
START_TEST(uneven) {
  Mesh m = mesh2(2, 2);
  TensorType t = type2(&m, 5, 3, "xy", ""), whole = type2(&m, 5, 3, "", "");
  const RedistributePlan *plan = place_plan(cache, &t, &whole, NULL);
  ck_assert_uint_eq(plan->nsteps, 1);
  ck_assert_int_eq(plan->bytes_received, 4 * 3 * 4); /* rows 2, 1, 1, 1: the worst lacks four */
  Mesh four = mesh2(4, 1);
  t = type2(&four, 5, 10, "x", "");
  whole = type2(&four, 5, 10, "", "");
  plan = place_plan(cache, &t, &whole, NULL);
  ck_assert_int_eq(plan->bytes_received, 5 * 10 * 4); /* rows 2, 2, 1, 0 */
  /* Empty shards: one owner for each element, and each gets what it needs. */
  Mesh wide = mesh2(4, 2);
  t = type2(&wide, 2, 1, "xy", "");
  whole = type2(&wide, 2, 1, "", "");
  TransferList list = {0};
  place_transfers(&arena, &t, &whole, &list);
  ck_assert_uint_eq(list.len, 16);
  for (uint32_t i = 0; i < list.len; i++) {
    /* one row per x, of which y = 0 holds all */
    ck_assert_int_eq(list.data[i].sender, list.data[i].block.offset[0] * 2);
    ck_assert_int_eq(list.data[i].block.extent[0], 1);
  }
}
END_TEST

START_TEST(sizes_in_words) {
  static const struct {
    int64_t n;
    const char *text;
  } cases[] = {{0, "0 B"},
               {1023, "1023 B"},
               {1024, "1.0 KiB"},
               {1048524, "1023.9 KiB"},
               {1048575, "1.0 MiB"},
               {16 << 20, "16.0 MiB"},
               {(int64_t)3 << 39, "1.5 TiB"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_str_eq(bytes_print(&arena, cases[i].n), cases[i].text);
}
END_TEST

START_TEST(topologies) {
  Mesh m = mesh2(4, 2);
  Topology t;
  const char *error;
  ck_assert(topology_parse(&arena,
                           "# cluster\n* alpha=5us bandwidth=100GB/s\n\ny alpha=1ms # slow\n"
                           "tp bandwidth=1B/s",
                           &m, &t, &error));
  ck_assert(fabs(t.alpha[0] - 5e-6) < 1e-15 && fabs(t.alpha[1] - 1e-3) < 1e-12);
  ck_assert(fabs(t.beta[0] * 100e9 - 1) < 1e-12 && t.beta[0] == t.beta[1]);
  static const char *const bad[] = {
      "x",          "x alpha",         "x alpha=5",       "x alpha=-5us", "x speed=3us",
      "x alpha=us", "x bandwidth=3us", "\n\nx alpha=0us", "x alpha=nanus"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ck_assert_msg(!topology_parse(&arena, bad[i], &m, &t, &error), "%s", bad[i]);
    ck_assert_ptr_nonnull(strstr(error, i == 7 ? "line 3:" : "line 1:"));
  }
  static const struct {
    const char *text, *wrong;
  } twice[] = {{"x alpha=1us\n\nx bandwidth=1GB/s", "line 3: x has a line already, line 1"},
               {"* alpha=1us\n* alpha=2us", "line 2: * has a line already, line 1"},
               {"tp alpha=1us\ntp alpha=1us", "line 2: tp has a line already, line 1"},
               {"y alpha=1us\n* alpha=2us", "line 2: * would change what line 1 says of y"},
               {"x alpha=1us alpha=2us", "line 1: mesh dim x has two values of alpha"}};
  for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
    ck_assert_msg(!topology_parse(&arena, twice[i].text, &m, &t, &error), "%s", twice[i].text);
    ck_assert_msg(strstr(error, twice[i].wrong) == error, "%s", error);
  }
  /* A slow outer axis: the gather goes over it first, while there is least to send. */
  ck_assert(topology_parse(&arena, "x bandwidth=1GB/s", &m, &t, &error));
  TensorType from = type2(&m, 4096, 4096, "xy", ""), to = type2(&m, 4096, 4096, "", "");
  const RedistributePlan *slow = place_plan(cache, &from, &to, &t);
  ck_assert_uint_gt(slow->nsteps, 1);
  ck_assert_uint_eq(place_plan(cache, &from, &to, NULL)->nsteps, 1);
}
END_TEST

START_TEST(other_mesh) {
  int64_t ranks[] = {4, 5, 6, 7};
  Mesh a = mesh2(2, 2), b = mesh2(2, 2);
  b.ranks = ranks;
  TensorType from = type2(&a, 8, 6, "x", "y"), to = type2(&b, 8, 6, "x", "y");
  const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
  ck_assert_uint_eq(plan->nsteps, 1);
  ck_assert_int_eq(plan->steps[0].op, OP_SEND_MESH);
  ck_assert_int_eq(plan->bytes_received, 4 * 3 * 4);
  TransferList list = {0};
  place_transfers(&arena, &from, &to, &list);
  ck_assert_uint_eq(list.len, 4);
  for (uint32_t i = 0; i < 4; i++) ck_assert_int_eq(list.data[i].sender, list.data[i].receiver);
  /* Replicas send to their like; other layouts are cut to fit. */
  from = type2(&a, 8, 6, "x", "");
  to = type2(&b, 8, 6, "", "y");
  list.len = 0;
  place_transfers(&arena, &from, &to, &list);
  int64_t sent[4] = {0}, got[4] = {0};
  for (uint32_t i = 0; i < list.len; i++) {
    int64_t n = list.data[i].block.extent[0] * list.data[i].block.extent[1];
    sent[list.data[i].sender] += n;
    got[list.data[i].receiver] += n;
  }
  for (int i = 0; i < 4; i++) ck_assert(sent[i] == 24 && got[i] == 24);
  /* Partial stays where the other mesh has the axis. */
  from = partial(type2(&a, 8, 6, "x", ""), 1, REDUCE_SUM);
  to = partial(type2(&b, 8, 6, "", ""), 1, REDUCE_SUM);
  plan = place_plan(cache, &from, &to, NULL);
  ck_assert(!plan->error && plan->steps[plan->nsteps - 1].op == OP_SEND_MESH);
  list.len = 0;
  place_transfers(&arena, &from, &to, &list);
  for (uint32_t i = 0; i < list.len; i++)
    ck_assert_int_eq(list.data[i].sender % 2, list.data[i].receiver % 2);
  to = type2(&b, 8, 6, "", "");
  plan = place_plan(cache, &from, &to, NULL);
  ck_assert_uint_eq(plan->nsteps, 2);
}
END_TEST

/* On 8192 devices one rank's list still holds exactly what it needs. */
START_TEST(big_mesh) {
  Mesh m = mesh2(1024, 8);
  TensorType from = type2(&m, 16384, 16384, "x", ""), to = type2(&m, 16384, 16384, "y", "x");
  const RedistributePlan *plan = place_plan(cache, &from, &to, NULL);
  ck_assert_int_eq(plan->bytes_received, place_bound(&from, &to));
  ck_assert_int_le(plan->bytes_sent, plan->bytes_received);
  static const int64_t receivers[] = {0, 1, 4097, 8191};
  for (int i = 0; i < 4; i++) {
    TransferList list = {0};
    place_transfers_for(&arena, &from, &to, receivers[i], &list);
    int64_t n = 0;
    for (uint32_t k = 0; k < list.len; k++)
      n += list.data[k].block.extent[0] * list.data[k].block.extent[1];
    ck_assert_int_eq(n, 16384 / 8 * 16);
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("place");
  TCase *c = tcase_create("place");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, known_points);
  tcase_add_test(c, one_all_to_all);
  tcase_add_test(c, order_moves_data);
  tcase_add_test(c, reductions);
  tcase_add_test(c, other_reduction);
  tcase_add_test(c, uneven);
  tcase_add_test(c, sizes_in_words);
  tcase_add_test(c, topologies);
  tcase_add_test(c, other_mesh);
  tcase_add_test(c, big_mesh);
  suite_add_tcase(s, c);
  return suite_run(s);
}
