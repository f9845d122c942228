/* Fusion of generated graphs: groups never wait for each other in a circle, whatever reads what,
 * and kernels give the values of the reference interpreter with fusion and without.
 *
 * The graphs are dense in what makes grouping hard: values that are read again much later, chains
 * that meet, reductions over either dim, and nodes that cannot be part of a kernel in between.
 */
#include "kernel_bench.h"
#include "support/suite.h"

enum { ROWS = 6, COLS = 8, MANY_GRAPHS = 1500, RUN_GRAPHS = 20, MOST = 200 };

static Mesh one;

/* Values by shape: [ROWS, COLS], [COLS, ROWS], [COLS]. */
typedef struct Pool {
  ValueId of[3][MOST];
  uint32_t len[3];
} Pool;

static uint32_t draw(Bench *b, uint32_t below) {
  return (uint32_t)(bench_random(b) * below);
}

static void add(Pool *p, int shape, ValueId v) {
  p->of[shape][p->len[shape]++] = v;
}

/* Mostly something recent, sometimes anything. */
static ValueId pick(Bench *b, const Pool *p, int shape) {
  uint32_t n = p->len[shape], last = n < 5 ? n : 5;
  if (draw(b, 3) == 0) return p->of[shape][draw(b, n)];
  return p->of[shape][n - 1 - draw(b, last)];
}

static ValueId one_step(Bench *b, const Pool *p, int *shape) {
  static const Op unary[] = {OP_TANH, OP_NEG, OP_SIGMOID, OP_ABS, OP_RELU};
  static const Op binary[] = {OP_SUB, OP_MAXIMUM, OP_MINIMUM};
  *shape = (int)draw(b, 3);
  ValueId x = pick(b, p, *shape), m;
  switch (draw(b, 12)) {
  case 0:
  case 1:
    return bench_1(b, unary[draw(b, 5)], x);
  case 2: /* a mean over either dim */
    m = pick(b, p, (int)draw(b, 2));
    x = bench_reduce(b, OP_MEAN, m, DIMS(value_type(b->g, m)->shape[0] == COLS), false);
    *shape = 2;
    if (value_type(b->g, x)->shape[0] == COLS) return x;
    return bench_1(b, OP_TANH, pick(b, p, 2));
  case 3: { /* against a mean over the row or the column */
    if (*shape == 2) return bench_1(b, OP_NEG, x);
    int64_t dim = draw(b, 2);
    return bench_2(b, OP_SUB, x, bench_reduce(b, OP_MEAN, x, &dim, 1, true));
  }
  case 4:
    if (*shape == 2) return bench_1(b, OP_ABS, x);
    *shape = 1 - *shape;
    return bench_op(b, OP_PERMUTE, &x, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2)));
  case 5: { /* the same elements under another shape: not part of a kernel */
    if (*shape == 2) return bench_1(b, OP_SIGMOID, x);
    *shape = 1 - *shape;
    const int64_t to[2] = {*shape ? COLS : ROWS, *shape ? ROWS : COLS};
    return bench_op(b, OP_RESHAPE, &x, 1, ATTRS(ATTR_INTS(SHAPE, to, 2)));
  }
  case 6: /* a library call */
    return bench_1(b, OP_TANH, bench_op(b, OP_CUMSUM, &x, 1, ATTRS(ATTR_I(DIM, 0))));
  case 7: /* a contraction, with or without an epilogue */
    *shape = 0;
    m = bench_2(b, OP_MATMUL, pick(b, p, 0), pick(b, p, 1));
    m = bench_2(b, OP_MATMUL, m, pick(b, p, 0));
    return draw(b, 2) ? bench_1(b, OP_TANH, m)
                      : bench_1(b, OP_TANH, bench_2(b, OP_ADD, m, pick(b, p, 0)));
  case 8:
    if (*shape != 0) return bench_1(b, OP_NEG, x);
    return bench_2(b, OP_SUB, x, pick(b, p, 2)); /* broadcast over rows */
  default:
    return bench_2(b, binary[draw(b, 3)], x, pick(b, p, *shape));
  }
}

static void build(Bench *b, uint32_t steps) {
  static const char *const types[] = {"f32[6, 8]", "f32[8, 6]", "f32[8]"};
  Pool p = {.len = {0}};
  for (int s = 0; s < 3; s++)
    for (int i = 0; i < 2; i++) add(&p, s, bench_var(b, types[s], -1, 1));
  for (uint32_t i = 0; i < steps; i++) {
    int shape;
    ValueId v = one_step(b, &p, &shape);
    add(&p, shape, v);
    if (draw(b, 8) == 0) bench_keep(b, v);
  }
  for (int s = 0; s < 3; s++) bench_keep(b, p.of[s][p.len[s] - 1]);
}

static Bench *graph_of(Arena *arena, uint32_t seed, uint32_t steps) {
  Bench *b = bench_new(arena, arena_printf(arena, "graph %u of %u steps", seed, steps), &one);
  b->random = seed * 2654435761u + 1;
  bench_random(b);
  build(b, steps);
  return b;
}

START_TEST(test_order) {
  uint64_t nodes = 0, groups = 0;
  for (uint32_t seed = 0; seed < MANY_GRAPHS; seed++) {
    Arena arena;
    arena_init(&arena);
    Bench *b = graph_of(&arena, seed, 20 + seed % 130);
    const char *error;
    const Graph *local = spmd_lower(&arena, b->g, plan_cache_new(&arena), &error);
    ck_assert_msg(local != NULL, "%s: %s", b->name, error);
    KernelSet kernels = {0};
    FuseOptions options = {.enabled = true};
    const FusedProgram *p = fuse_run(&arena, local, &kernels, &options);
    const char *fault = fuse_verify(&arena, p);
    ck_assert_msg(fault == NULL, "%s: %s", b->name, fault);
    nodes += local->nodes.len;
    groups += p->groups.len;
    arena_free(&arena);
  }
  ck_assert_msg(groups * 10 < nodes * 9, "%d groups of %d nodes: nothing was fused", (int)groups,
                (int)nodes);
}
END_TEST

START_TEST(test_values) {
  Arena arena;
  arena_init(&arena);
  KernelSet kernels = {0};
  BenchRun fused[RUN_GRAPHS], plain[RUN_GRAPHS];
  for (uint32_t i = 0; i < RUN_GRAPHS; i++) {
    Bench *b = graph_of(&arena, 7000 + i, 30 + 1 * i);
    fused[i] = bench_prepare(b, &kernels, true, NULL);
    plain[i] = bench_prepare(b, &kernels, false, NULL);
    ck_assert_uint_lt(bench_kernels(&fused[i]), bench_kernels(&plain[i]));
  }
  Jit jit = jit_load(&arena, kernels.kernels.data, kernels.kernels.len, "native");
  for (uint32_t i = 0; i < RUN_GRAPHS; i++) {
    bench_run(&fused[i], &jit);
    bench_run(&plain[i], &jit);
  }
  arena_free(&arena);
}
END_TEST

int main(void) {
  mesh_of(&one, 1, (const int64_t[]){1});
  Suite *suite = suite_create("fusion");
  TCase *t = tcase_create("graphs");
  tcase_set_timeout(t, 300);
  tcase_add_test(t, test_order);
  tcase_add_test(t, test_values);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
