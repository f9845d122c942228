/* The reference interpreter against values computed by hand or with Python's math module. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "infer/infer.h"
#include "reference/reference.h"
#include "reference/type_text.h"
#include "support/suite.h"

static Arena arena;
static Mesh mesh;
static RefContext ctx;

static void setup(void) {
  arena_init(&arena);
  mesh_of(&mesh, 2, (int64_t[]){2, 3});
  ctx = (RefContext){.arena = &arena, .seed = 5};
}
static void teardown(void) {
  arena_free(&arena);
}

typedef struct Given {
  const char *type;
  const double *data;
} Given;

/* Infers and evaluates on whole tensors; answers result `which`. */
static RefTensor eval(Op op, const Attr *attrs, uint32_t nattrs, const Given *given, uint32_t n,
                      uint32_t which) {
  Operand operands[3] = {{.is_const = false}};
  TensorType types[3];
  RefTensor in[3], out[2];
  InferResult inferred;
  for (uint32_t i = 0; i < n; i++) {
    operands[i].type = types[i] = type_from_text(&mesh, given[i].type);
    in[i] = ref_new(&arena, types[i].rank, types[i].shape);
    if (ref_count(&in[i]))
      memcpy(in[i].data, given[i].data, sizeof(double) * (size_t)ref_count(&in[i]));
  }
  infer_node(&arena, op, operands, n, attrs, nattrs, &inferred);
  ck_assert_msg(inferred.status == INFER_OK, "%s", inferred.reason);
  RefNode node = {.op = op,
                  .attrs = attrs,
                  .nattrs = nattrs,
                  .noperands = n,
                  .nresults = inferred.nresults,
                  .operand_types = types,
                  .result_types = inferred.results};
  ck_assert(ref_eval_node(&ctx, &arena, &node, in, out));
  return out[which];
}

static void expect(const RefTensor *got, const double *want, int64_t n) {
  ck_assert_int_eq(ref_count(got), n);
  for (int64_t i = 0; i < n; i++) ck_assert_double_eq_tol(got->data[i], want[i], 1e-14);
}

static const double row[] = {1, 2, 3, -1};
static const double six[] = {1, 2, 3, 4, 5, 6};

START_TEST(contractions) {
  static const double b[] = {1, 0, -1, 2, 1, 1};
  RefTensor y = eval(OP_MATMUL, NULL, 0, (Given[]){{"f32[2, 3]", six}, {"f32[3, 2]", b}}, 2, 0);
  expect(&y, (double[]){2, 7, 5, 16}, 4);
  static const double bias[] = {10, 20};
  y = eval(OP_LINEAR, NULL, 0, (Given[]){{"f32[2, 3]", six}, {"f32[2, 3]", b}, {"f32[2]", bias}}, 3,
           0);
  expect(&y, (double[]){8, 27, 8, 39}, 4);
  y = eval(OP_EINSUM, &ATTR_S(SPEC, "ij,ij->j"), 1,
           (Given[]){{"f32[2, 3]", six}, {"f32[2, 3]", six}}, 2, 0);
  expect(&y, (double[]){17, 29, 45}, 3);
  y = eval(OP_EINSUM, &ATTR_S(SPEC, "ii->"), 1, (Given[]){{"f32[2, 2]", six}}, 1, 0);
  expect(&y, (double[]){5}, 1);
  y = eval(OP_MATMUL, NULL, 0, (Given[]){{"f32[2, 0]", NULL}, {"f32[0, 2]", NULL}}, 2, 0);
  expect(&y, (double[]){0, 0, 0, 0}, 4);
}
END_TEST

START_TEST(pointwise_expressions) {
  static const struct {
    Op op;
    double at, want;
  } rows[] = {
      {OP_GELU, 0.7, 0.5306254434438489},
      {OP_GELU, -1.3, -0.12584062996129347},
      {OP_GELU_TANH, 0.7, 0.5305701347051167},
      {OP_GELU_TANH, -1.3, -0.1260709876826906},
      {OP_SILU, 0.7, 0.46773144051771626},
      {OP_SILU, -1.3, -0.2784145220446738},
      {OP_ASINH, 0.7, 0.6526665660823557},
      {OP_ASINH, -1.3, -1.078451058954897},
      {OP_SOFTPLUS, 0.7, 1.103186048885458},
      {OP_SOFTPLUS, -1.3, 0.2410084538329922},
      {OP_MISH, 0.7, 0.5611483776438518},
      {OP_MISH, -1.3, -0.3073824647494959},
      {OP_RELU6, 7, 6},
      {OP_ROUND, 2.5, 2},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    RefTensor y = eval(rows[i].op, NULL, 0, (Given[]){{"f32[1]", &rows[i].at}}, 1, 0);
    expect(&y, &rows[i].want, 1);
  }
  static const double down[] = {-7, 7}, by[] = {2, -2};
  RefTensor y = eval(OP_FLOOR_DIV, NULL, 0, (Given[]){{"i32[2]", down}, {"i32[2]", by}}, 2, 0);
  expect(&y, (double[]){-4, -4}, 2);
  y = eval(OP_REMAINDER, NULL, 0, (Given[]){{"i32[2]", down}, {"i32[2]", by}}, 2, 0);
  expect(&y, (double[]){1, -1}, 2);
  y = eval(OP_ADD, NULL, 0, (Given[]){{"f32[2, 3]", six}, {"f32[2, 1]", by}}, 2, 0);
  expect(&y, (double[]){3, 4, 5, 2, 3, 4}, 6);
}
END_TEST

START_TEST(rounding) {
  ck_assert_double_eq(ref_round(DT_BF16, 1.00390625), 1.0); /* tie to even */
  ck_assert_double_eq(ref_round(DT_BF16, 1.01171875), 1.015625);
  ck_assert_double_eq(ref_round(DT_F16, 70000), INFINITY);
  ck_assert_double_eq(ref_round(DT_F16, 65504), 65504);
  ck_assert_double_eq(ref_round(DT_F32, 16777217), 16777216);
  ck_assert_double_eq(ref_round(DT_F16, 0x1p-24), 0x1p-24); /* subnormal */
  ck_assert_double_eq(ref_round(DT_F16, 0x1p-26), 0);
  ck_assert_double_eq(ref_round(DT_I32, -2.7), -2);
  ck_assert_double_eq(ref_round(DT_U8, -1), 255);
}
END_TEST

START_TEST(reductions) {
  static const int64_t d0[] = {0}, d1[] = {1};
  RefTensor y = eval(OP_SUM, &ATTR_INTS(DIMS, d0, 1), 1, (Given[]){{"f32[2, 3]", six}}, 1, 0);
  expect(&y, (double[]){5, 7, 9}, 3);
  y = eval(OP_MEAN, &ATTR_INTS(DIMS, d1, 1), 1, (Given[]){{"f32[2, 3]", six}}, 1, 0);
  expect(&y, (double[]){2, 5}, 2);
  y = eval(OP_MAX, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){3}, 1);
  y = eval(OP_VAR, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){8.75 / 3}, 1);
  y = eval(OP_LOGSUMEXP, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){3.41971664631533967}, 1);
  y = eval(OP_SUM, NULL, 0, (Given[]){{"f32[0, 3]", NULL}}, 1, 0);
  expect(&y, (double[]){0}, 1);
  y = eval(OP_NORM_L1, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){7}, 1);
}
END_TEST

START_TEST(whole_dims) {
  RefTensor y = eval(OP_SOFTMAX, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y,
         (double[]){0.08894681729740428, 0.24178251715880072, 0.6572330228318554,
                    0.012037642711939444},
         4);
  y = eval(OP_LAYER_NORM, NULL, 0, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(
      &y,
      (double[]){-0.1690304645907972, 0.5070913937723917, 1.1832132521355805, -1.521274181317175},
      4);
  static const double ties[] = {2, 5, 5, 1};
  y = eval(OP_ARGMAX, NULL, 0, (Given[]){{"f32[4]", ties}}, 1, 0);
  expect(&y, (double[]){1}, 1);
  y = eval(OP_SORT, &ATTR_I(DESCENDING, 1), 1, (Given[]){{"f32[4]", ties}}, 1, 1);
  expect(&y, (double[]){1, 2, 0, 3}, 4);
  y = eval(OP_TOPK, &ATTR_I(K, 2), 1, (Given[]){{"f32[4]", ties}}, 1, 0);
  expect(&y, (double[]){5, 5}, 2);
  y = eval(OP_CUMSUM, &ATTR_I(REVERSE, 1), 1, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){5, 4, 2, -1}, 4);
  static const double g[] = {6}, top[] = {5};
  y = eval(OP_EXTREMUM_BACKWARD, NULL, 0,
           (Given[]){{"f32[1]", g}, {"f32[4]", ties}, {"f32[1]", top}}, 3, 0);
  expect(&y, (double[]){0, 3, 3, 0}, 4);
}
END_TEST

START_TEST(movement) {
  Attr slice[] = {ATTR_I(DIM, 1), ATTR_I(START, 0), ATTR_I(STOP, 3), ATTR_I(STEP, 2)};
  RefTensor y = eval(OP_SLICE, slice, 4, (Given[]){{"f32[2, 3]", six}}, 1, 0);
  expect(&y, (double[]){1, 3, 4, 6}, 4);
  Attr unslice[] = {ATTR_I(DIM, 0), ATTR_I(START, 1), ATTR_I(STEP, 2), ATTR_I(EXTENT, 5)};
  y = eval(OP_UNSLICE, unslice, 4, (Given[]){{"f32[2]", six}}, 1, 0);
  expect(&y, (double[]){0, 1, 0, 2, 0}, 5);
  y = eval(OP_PERMUTE, &ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2), 1, (Given[]){{"f32[2, 3]", six}},
           1, 0);
  expect(&y, (double[]){1, 4, 2, 5, 3, 6}, 6);
  Attr roll[] = {ATTR_I(DIM, 0), ATTR_I(SHIFT, 1)};
  y = eval(OP_ROLL, roll, 2, (Given[]){{"f32[4]", row}}, 1, 0);
  expect(&y, (double[]){-1, 1, 2, 3}, 4);
  y = eval(OP_TRIL, NULL, 0, (Given[]){{"f32[2, 3]", six}}, 1, 0);
  expect(&y, (double[]){1, 0, 0, 4, 5, 0}, 6);
  y = eval(OP_CONCAT, &ATTR_I(DIM, 1), 1, (Given[]){{"f32[2, 1]", row}, {"f32[2, 2]", six}}, 2, 0);
  expect(&y, (double[]){1, 1, 2, 2, 3, 4}, 6);
}
END_TEST

START_TEST(indexing_and_loss) {
  static const double ids[] = {2, 0}, classes[] = {1, 0};
  RefTensor y = eval(OP_EMBEDDING, NULL, 0, (Given[]){{"i64[2]", ids}, {"f32[3, 2]", six}}, 2, 0);
  expect(&y, (double[]){5, 6, 1, 2}, 4);
  y = eval(OP_GATHER, &ATTR_I(DIM, 1), 1, (Given[]){{"f32[2, 3]", six}, {"i64[2, 1]", classes}}, 2,
           0);
  expect(&y, (double[]){2, 4}, 2);
  static const double label[] = {2}, ignored[] = {-100};
  Attr smooth = ATTR_F(LABEL_SMOOTHING, 0.1);
  Given one[] = {{"f32[1, 4]", row}, {"i64[1]", label}};
  y = eval(OP_CROSS_ENTROPY, NULL, 0, one, 2, 0);
  expect(&y, (double[]){0.41971664631533967}, 1);
  y = eval(OP_CROSS_ENTROPY, &smooth, 1, one, 2, 0);
  expect(&y, (double[]){0.5947166463153397}, 1);
  y = eval(OP_CROSS_ENTROPY, &ATTR_S(REDUCTION, "none"), 1,
           (Given[]){{"f32[1, 4]", row}, {"i64[1]", ignored}}, 2, 0);
  expect(&y, (double[]){0}, 1);
}
END_TEST

/* A sharded MLP on a simulated mesh gives what the whole-tensor evaluation gives. */
static RefTensor give(void *user, uint32_t var, const TensorType *type) {
  (void)user;
  RefTensor t = ref_new(&arena, type->rank, type->shape);
  for (int64_t i = 0; i < ref_count(&t); i++) t.data[i] = sin(1.0 + (double)i + 10.0 * var);
  return t;
}

START_TEST(mesh_equals_whole) {
  Sources sources;
  DiagSink sink;
  sources_init(&sources, &arena);
  diag_init(&sink, &arena, &sources);
  Graph *g = graph_new(&arena, "test");
  static const char *const types[] = {"f32[7@x, 4]", "f32[5@y, 4]", "f32[3, 5@y]"};
  ValueId v[3];
  for (uint32_t i = 0; i < 3; i++) {
    TensorType t = type_from_text(&mesh, types[i]);
    Attr attrs[] = {ATTR_I(VAR, i), ATTR_T(TYPE, &t)};
    NodeId n = infer_add(g, &sink, OP_READ, NULL, 0, attrs, 2, (Span){0}, NULL, 0);
    v[i] = node_result(graph_node(g, n), 0);
  }
  ValueId operands[2] = {v[0], v[1]};
  NodeId n = infer_add(g, &sink, OP_LINEAR, operands, 2, NULL, 0, (Span){0}, NULL, 0);
  operands[0] = node_result(graph_node(g, n), 0);
  n = infer_add(g, &sink, OP_GELU, operands, 1, NULL, 0, (Span){0}, NULL, 0);
  operands[0] = node_result(graph_node(g, n), 0);
  operands[1] = v[2];
  n = infer_add(g, &sink, OP_LINEAR, operands, 2, NULL, 0, (Span){0}, NULL, 0);
  ValueId y = node_result(graph_node(g, n), 0);
  ck_assert_uint_eq(sink.errors, 0);
  ck_assert_str_eq(type_print(&arena, value_type(g, y)), "f32[7@x, 3] partial(y)");
  RefIO io = {.read = give};
  bool disagree = false;
  RefTensor *whole = ref_eval_graph(&ctx, &arena, g, &io);
  RefTensor **ranks = ref_eval_mesh(&ctx, &arena, g, &io, &disagree);
  RefTensor got = ref_assemble(&arena, value_type(g, y), ranks[y], &disagree);
  ck_assert(!disagree);
  expect(&got, whole[y].data, 21);
}
END_TEST

int main(void) {
  Suite *s = suite_create("interpreter");
  TCase *c = tcase_create("values");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, contractions);
  tcase_add_test(c, pointwise_expressions);
  tcase_add_test(c, rounding);
  tcase_add_test(c, reductions);
  tcase_add_test(c, whole_dims);
  tcase_add_test(c, movement);
  tcase_add_test(c, indexing_and_loss);
  tcase_add_test(c, mesh_equals_whole);
  suite_add_tcase(s, c);
  return suite_run(s);
}
