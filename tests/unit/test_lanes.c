/* Reductions over another dim than the innermost whose results come back to what they reduce: one
 * kernel each, equal to the reference interpreter, whatever the dim, width, element type; and what
 * keeps the chunked way over rows. */
#include "kernel_bench.h"
#include "support/suite.h"

enum { MOST_RUNS = 400 };
#ifdef DTM_TEST_CUDA
#define TARGET fuse_target_cuda
enum { SPILLS = false };
#else
#define TARGET fuse_target_cpu
enum { SPILLS = true };
#endif

static Arena arena;
static Mesh one, six;
static KernelSet kernels;
static Jit jit;

typedef struct Prepared {
  BenchRun fused, plain;
  uint32_t kernels; /* how many when fused; 0 = not stated */
  bool lanes;       /* and they have lanes */
} Prepared;

static Prepared runs[MOST_RUNS];
static int nruns;

static void prepare(Bench *b, uint32_t count, bool lanes) {
  if (nruns == MOST_RUNS) abort();
  Prepared *p = &runs[nruns++];
  p->fused = bench_prepare(b, &kernels, true, &TARGET);
#ifndef DTM_TEST_CUDA
  p->plain = bench_prepare(b, &kernels, false, NULL);
#endif
  p->kernels = count;
  p->lanes = lanes;
}

static Bench *start(const char *name) {
  return bench_new(&arena, name, &one);
}

static const Op families[][2] = {{OP_SOFTMAX, OP_SOFTMAX_BACKWARD},
                                 {OP_LOG_SOFTMAX, OP_LOG_SOFTMAX_BACKWARD}};

/* Forward and backward apart, as a training step has them. */
static void add_softmax(const char *type, int64_t dim, int family, bool lanes) {
  for (int back = 0; back < 2; back++) {
    Op op = families[family][back];
    Bench *b = start(arena_printf(&arena, "%s of %s along %d", op_name(op), type, (int)dim));
    ValueId x[2] = {bench_var(b, type, -4, 4)};
    if (back) x[1] = bench_var(b, type, back && family ? -4 : 0, family ? 0 : 1);
    bench_keep(b, bench_op(b, op, x, back ? 2 : 1, ATTRS(ATTR_I(DIM, dim))));
    prepare(b, 1, lanes);
  }
}

static void add_every_dim(void) {
  static const char *const types[] = {"f32[6, 21]", "f32[3, 6, 21]", "f32[2, 3, 5, 19]"};
  for (int t = 0; t < 3; t++)
    for (int64_t dim = 0; dim < t + 2; dim++)
      for (int family = 0; family < 2; family++)
        add_softmax(types[t], dim, family, dim + 1 != t + 2);
}

static void add_every_width(void) {
  static const int wide[] = {31, 32, 33, 127, 128, 129, 257};
  for (int w = 1; w < 18 + 7; w++)
    add_softmax(arena_printf(&arena, "f32[7, %d]", w < 18 ? w : wide[w - 18]), 0, w % 2, w > 1);
  for (int w = 2; w < 18; w++)
    add_softmax(arena_printf(&arena, "bf16[3, 5, %d]", w), 1, w % 2, true);
}

static void add_empty(void) {
  static const char *const types[] = {"f32[0, 5]",    "f32[5, 0]",    "f32[3, 0, 4]",
                                      "f32[0, 3, 4]", "f32[3, 4, 0]", "f32[1, 4]"};
  for (int t = 0; t < 6; t++) {
    add_softmax(types[t], 0, t % 2, t != 5);
    if (t > 1 && t < 5) add_softmax(types[t], 1, t % 2, true);
  }
}

static void add_types(void) {
  static const char *const floats[] = {"f64", "bf16", "f16"};
  for (int t = 0; t < 3; t++)
    for (int family = 0; family < 2; family++)
      add_softmax(arena_printf(&arena, "%s[9, 37]", floats[t]), 0, family, true);
  for (int t = DT_F64; t < DT_COUNT; t++) {
    if (t == DT_BOOL || t == DT_F8_E4M3 || t == DT_F8_E5M2) continue;
    const char *name = dtype_name((DType)t);
    Bench *b = start(arena_printf(&arena, "%s distance from the largest of a column", name));
    ValueId x = bench_var(b, arena_printf(&arena, "%s[9, 37]", name), 0, 9);
    bench_keep(b, bench_2(b, OP_SUB, bench_reduce(b, OP_MAX, x, DIMS(0), true), x));
    prepare(b, 1, true);
  }
  static const Op tests[] = {OP_ANY, OP_ALL};
  for (int i = 0; i < 2; i++) {
    Bench *b = start(op_name(tests[i]));
    ValueId p = bench_2(b, OP_GT, bench_var(b, "f32[4, 50]", -1, 1), bench_const(b, DT_F32, -0.5));
    ValueId q = bench_reduce(b, tests[i], p, DIMS(0), true);
    bench_keep(b, bench_2(b, OP_BITWISE_XOR, p, q));
    prepare(b, 1, true);
  }
}

/* NaN and infinities: of a column, in the first and in the last row; others are untouched. */
static void add_specials(void) {
  static const double special[] = {NAN, INFINITY, -INFINITY};
  for (int s = 0; s < 3; s++)
    for (int64_t row = 0; row < 5; row += 4) {
      Bench *b = start(arena_printf(&arena, "%g in row %d", special[s], (int)row));
      ValueId x = bench_var(b, "f32[5, 21]", -4, 4), m;
      b->var[0].data[row * 21 + 2] = b->var[0].data[row * 21 + 20] = special[s];
      m = bench_reduce(b, OP_MAX, x, DIMS(0), true);
      bench_keep(b, bench_2(b, OP_SUB, m, x));
      m = bench_reduce(b, OP_MIN, x, DIMS(0), true);
      bench_keep(b, bench_2(b, OP_SUB, m, x));
      for (int family = 0; family < 2; family++)
        bench_keep(b, bench_op(b, families[family][0], &x, 1, ATTRS(ATTR_I(DIM, 0))));
      bench_keep(b, bench_op(b, OP_ARGMAX, &x, 1, ATTRS(ATTR_I(DIM, 0), ATTR_I(KEEPDIM, false))));
      prepare(b, 1, true);
    }
}

static ValueId standardised(Bench *b, ValueId x, const int64_t *dims, uint32_t n) {
  ValueId c = bench_2(b, OP_SUB, x, bench_reduce(b, OP_MEAN, x, dims, n, true));
  ValueId v = bench_reduce(b, OP_MEAN, bench_2(b, OP_MUL, c, c), dims, n, true);
  v = bench_1(b, OP_RSQRT, bench_2(b, OP_ADD, v, bench_const(b, DT_F32, 1e-5)));
  return bench_2(b, OP_MUL, c, v);
}

static void add_chains(void) {
  Bench *b = start("a standardised batch, its statistics kept");
  ValueId x = bench_var(b, "f32[30, 21]", -3, 5);
  ValueId y = bench_2(b, OP_MUL, standardised(b, x, DIMS(0)), bench_var(b, "f32[21]", 0, 1));
  bench_keep(b, bench_1(b, OP_TANH, y));
  bench_keep(b, bench_reduce(b, OP_MEAN, x, DIMS(0), false));
  prepare(b, 1, true);

  b = start("standardised over two leading dims");
  bench_keep(b, standardised(b, bench_var(b, "f32[5, 6, 21]", -3, 5), DIMS(0, 1)));
  prepare(b, 1, true);

  b = start("standardised over dims that are apart");
  bench_keep(b, standardised(b, bench_var(b, "f32[5, 6, 4, 21]", -3, 5), DIMS(0, 2)));
  prepare(b, 1, true);

  b = start("the gradient of max, shared between ties");
  x = bench_var(b, "f32[6, 21]", 0, 3);
  for (int64_t i = 0; i < 6 * 21; i++) b->var[0].data[i] = floor(b->var[0].data[i]);
  ValueId m = bench_reduce(b, OP_MAX, x, DIMS(0), true);
  const ValueId of_max[] = {bench_var(b, "f32[1, 21]", -1, 1), x, m};
  bench_keep(
      b, bench_op(b, OP_EXTREMUM_BACKWARD, of_max, 3, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){0}), 1))));
  prepare(b, 1, true);

  b = start("logsumexp");
  x = bench_var(b, "f32[3, 6, 21]", -3, 3);
  bench_keep(b, bench_op(b, OP_LOGSUMEXP, &x, 1,
                         ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1}), 1), ATTR_I(KEEPDIM, false))));
  prepare(b, 1, true);

  b = start("along the rows of a transpose");
  x = bench_var(b, "f32[9, 37]", -3, 3);
  x = bench_op(b, OP_PERMUTE, &x, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2)));
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0))));
  prepare(b, 1, SPILLS); /* else it is read three times, and written once */

  b = start("one dim, then the other");
  x = bench_var(b, "f32[9, 37]", -3, 3);
  x = bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 1)));
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0))));
  prepare(b, 2, true);

  b = start("of what is looked up");
  x = bench_2(b, OP_EMBEDDING, bench_var(b, "i64[6]", 0, 11), bench_var(b, "f32[11, 20]", -3, 3));
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0))));
  prepare(b, 1, true);

  b = start("with dropout before and a mask behind");
  x = bench_var(b, "f32[9, 37]", -3, 3);
  x = bench_op(b, OP_DROPOUT, &x, 1, ATTRS(ATTR_F(P, 0.3), ATTR_I(INSTANCE, 9)));
  x = bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0)));
  bench_keep(b, bench_op(b, OP_TRIL, &x, 1, ATTRS(ATTR_I(DIAGONAL, 1))));
  prepare(b, 1, true);
}

/* Sums over rows that nothing brings back: chunks of rows, in parallel. */
static void add_rows(void) {
  Bench *b = start("a bias gradient");
  ValueId g = bench_var(b, "f32[70, 33]", -3, 3), h = bench_var(b, "f32[70, 33]", -3, 3);
  ValueId d = bench_2(b, OP_MUL, g, bench_1(b, OP_TANH, h));
  bench_keep(b, d);
  bench_keep(b, bench_1(b, OP_TANH, bench_reduce(b, OP_SUM, d, DIMS(0), false)));
  prepare(b, 2, false);

  b = start("a mean added to another tensor");
  ValueId m = bench_reduce(b, OP_MEAN, bench_var(b, "f32[70, 33]", -3, 3), DIMS(0), true);
  bench_keep(b, bench_2(b, OP_ADD, m, bench_var(b, "f32[70, 33]", -3, 3)));
  prepare(b, 2, false);

  b = start("softmax beside the gradient of a bias of another dim");
  ValueId x = bench_var(b, "f32[4, 9, 33]", -3, 3);
  x = bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 1)));
  bench_keep(b, x);
  bench_keep(b, bench_reduce(b, OP_SUM, x, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_SUM, x, DIMS(0, 1, 2), false));
  prepare(b, 0, false);
}

static void add_sharded(void) {
  static const char *const types[] = {"f32[6, 10@y]", "f32[6, 2@(x,y)]", "f32[6, 5@(y,x)]"};
  for (int t = 0; t < 3; t++) {
    Bench *b = bench_new(&arena, types[t], &six);
    ValueId x = bench_var(b, types[t], -3, 3);
    ValueId y = bench_op(b, OP_LOG_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0)));
    bench_keep(b, y);
    bench_keep(
        b, bench_op(b, OP_LOG_SOFTMAX_BACKWARD, (const ValueId[]){x, y}, 2, ATTRS(ATTR_I(DIM, 0))));
    prepare(b, 1, true);
  }
}

/* Strips are tasks, so threads have something to share. */
static void add_large(void) {
  Bench *b = start("large");
  ValueId x = bench_var(b, "f32[40, 3000]", -3, 3);
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0))));
  prepare(b, 1, true);
}

START_TEST(test_values) {
  bench_run(&runs[_i].fused, &jit);
#ifndef DTM_TEST_CUDA
  bench_run(&runs[_i].plain, &jit);
#endif
}
END_TEST

START_TEST(test_structure) {
  const Prepared *p = &runs[_i];
  const FusedProgram *fused = p->fused.p;
  uint32_t n = bench_kernels(&p->fused), lanes = 0;
  StrBuf text;
  strbuf_init(&text, &arena);
  fuse_print(&text, fused);
  for (uint32_t i = 0; i < fused->groups.len; i++) {
    const Group *g = &fused->groups.data[i];
    if (g->kind != GROUP_KERNEL) continue;
    const Kernel *k = fused->kernels->kernels.data[g->kernel];
    kernel_print(&text, k);
    lanes += k->lanes;
  }
  ck_assert_msg(!p->kernels || n == p->kernels, "%s: %u kernels, should be %u\n%s",
                p->fused.b->name, n, p->kernels, text.text);
  if (p->kernels)
    ck_assert_msg((lanes > 0) == p->lanes, "%s: lanes in %u kernels\n%s", p->fused.b->name, lanes,
                  text.text);
}
END_TEST

START_TEST(test_tasks) {
  const FusedProgram *p = runs[nruns - 1].fused.p; /* add_large */
  int64_t *syms = ARENA_ARRAY(&arena, int64_t, p->syms.len);
  const int64_t coords[4][DTM_MAX_AXES] = {{0}};
  fuse_eval_syms(p, coords, syms);
  for (uint32_t i = 0; i < p->groups.len; i++)
    if (p->groups.data[i].kind == GROUP_KERNEL) ck_assert_int_ge(syms[p->groups.data[i].tasks], 5);
}
END_TEST

int main(void) {
  arena_init(&arena);
  mesh_of(&one, 2, (const int64_t[]){1, 1});
  mesh_of(&six, 2, (const int64_t[]){2, 3});
  add_every_dim();
  add_every_width();
  add_empty();
  add_types();
  add_specials();
  add_chains();
  add_rows();
  add_sharded();
  add_large();
  jit = jit_load(&arena, kernels.kernels.data, kernels.kernels.len, "native");
  Suite *suite = suite_create("lanes");
  TCase *t = tcase_create("kernels");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, test_structure, 0, nruns);
  tcase_add_loop_test(t, test_values, 0, nruns);
  tcase_add_test(t, test_tasks);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
