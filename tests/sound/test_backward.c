/* The backward pass as a whole: how many collectives it needs, and values where placements meet.
 *
 * The yardstick is the schedule written by hand for tensor-parallel transformers: one all-reduce
 * forward and one backward per block, or with sequence parallelism an all-gather/reduce-scatter
 * pair each way; data parallelism reduces each parameter once. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "reference/lab.h"
#include "support/suite.h"

/* --- counting ----------------------------------------------------------------------------------
 */

enum { BLOCKS = 3, MAX_PARAMS = 1 + 3 * BLOCKS };

typedef struct Params {
  ValueId value[MAX_PARAMS], grad[MAX_PARAMS];
  uint32_t n;
} Params;

static ValueId param(Lab *lab, Params *p, const char *type) {
  return p->value[p->n++] = lab_param(lab, type, -0.5, 0.5);
}

/* h + row(gelu(col(norm(h)))) on mesh (x: data, y: tensor). `sequence` cuts dim 1 of the residual
 * stream over y. */
static ValueId block(Lab *lab, Params *p, ValueId h, bool sequence) {
  const char *stream = sequence ? "f32[4@x, 6@y, 8]" : "f32[4@x, 6, 8]";
  ValueId weight = param(lab, p, "f32[8]");
  ValueId up = param(lab, p, "f32[12@y, 8]"), down = param(lab, p, "f32[8, 12@y]");
  ValueId n = lab_op(lab, OP_RMS_NORM, (ValueId[]){h, weight}, 2, NULL, 0);
  if (sequence) n = lab_to(lab, n, "f32[4@x, 6, 8]");
  ValueId f = lab_unary(lab, OP_GELU, lab_binary(lab, OP_LINEAR, n, up));
  return lab_binary(lab, OP_ADD, h, lab_to(lab, lab_binary(lab, OP_LINEAR, f, down), stream));
}

/* The table is cut over the vocabulary, which costs one reduction more in the forward pass. */
static ValueId network(Lab *lab, Params *p, bool sequence) {
  ValueId table = param(lab, p, "f32[10@y, 8]");
  TensorType ids = type_from_text(&lab->mesh, "i64[4@x, 6]");
  ValueId h = lab_binary(lab, OP_EMBEDDING, lab_ids(lab, &ids, 10), table);
  h = lab_to(lab, h, sequence ? "f32[4@x, 6@y, 8]" : "f32[4@x, 6, 8]");
  for (int i = 0; i < BLOCKS; i++) h = block(lab, p, h, sequence);
  return lab_weigh(lab, h);
}

static NodeId differentiate(Lab *lab, Params *p, ValueId loss) {
  NodeId end = lab->g->nodes.len;
  ck_assert_msg(
      autodiff_gradients(lab->g, loss, p->value, p->n, p->grad, 1, lab->plans, &lab->sink), "%s",
      lab_errors(lab));
  return end;
}

static void expect_comm(Lab *lab, LabComm got, int all_reduce, int reduce_scatter, int all_gather) {
  ck_assert_msg(got.all_reduce == all_reduce && got.reduce_scatter == reduce_scatter &&
                    got.all_gather == all_gather && got.all_to_all == 0,
                "all-reduce %d, reduce-scatter %d, all-gather %d, all-to-all %d\n%s",
                got.all_reduce, got.reduce_scatter, got.all_gather, got.all_to_all, lab_text(lab));
}

static void check_values(Lab *lab, const Params *p, ValueId loss) {
  const char *wrong = lab_wrong_gradient(lab, p->value, p->grad, p->n, loss);
  ck_assert_msg(!wrong, "%s", wrong);
}

static int axes_partial(const Lab *lab, ValueId g, uint32_t axis) {
  return value_type(lab->g, g)->layout.at[axis].kind == PLACE_PARTIAL;
}

START_TEST(tensor_parallel) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 2, (int64_t[]){2, 2});
  ValueId loss = network(&lab, &p, false);
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, 0, end, PHASE_FORWARD), BLOCKS + 1, 0, 0);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), BLOCKS, 0, 0);
  /* Every parameter waits for its one reduction over the batch, none for one over tp. */
  for (uint32_t k = 0; k < p.n; k++) {
    ck_assert_int_eq(axes_partial(&lab, p.grad[k], 0), 1);
    ck_assert_int_eq(axes_partial(&lab, p.grad[k], 1), 0);
  }
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

START_TEST(sequence_parallel) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 2, (int64_t[]){2, 2});
  ValueId loss = network(&lab, &p, true);
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, 0, end, PHASE_FORWARD), 0, BLOCKS + 1, BLOCKS);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), 0, BLOCKS,
              BLOCKS + 1);
  /* Norm weights are used on shards of the sequence, so their gradients are sums over it. */
  for (uint32_t k = 1; k < p.n; k += 3) ck_assert_int_eq(axes_partial(&lab, p.grad[k], 1), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

START_TEST(data_parallel) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 2, (int64_t[]){4, 1});
  ValueId loss = network(&lab, &p, false);
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), 0, 0, 0);
  for (uint32_t k = 0; k < p.n; k++) ck_assert_int_eq(axes_partial(&lab, p.grad[k], 0), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* --- single situations -------------------------------------------------------------------------
 */

/* x is Replicate, but each rank multiplies it by its own columns. */
START_TEST(used_differently_per_rank) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){3});
  ValueId x = param(&lab, &p, "f32[4]"), w = param(&lab, &p, "f32[5@x, 4]");
  ValueId loss = lab_weigh(&lab, lab_binary(&lab, OP_LINEAR, x, w));
  differentiate(&lab, &p, loss);
  ck_assert_int_eq(axes_partial(&lab, p.grad[0], 0), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* P -> S: the gradient is gathered, not divided. */
START_TEST(reduce_scatter_gathers) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  ValueId x = param(&lab, &p, "f32[3, 4@x]"), w = param(&lab, &p, "f32[5, 4@x]");
  ValueId y = lab_to(&lab, lab_binary(&lab, OP_LINEAR, x, w), "f32[3@x, 5]");
  ValueId loss = lab_weigh(&lab, y);
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), 0, 0, 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* R -> R with a Partial cotangent: nothing moves before the parameter. */
START_TEST(replicate_to_replicate) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  ValueId x = param(&lab, &p, "f32[4]"), w = param(&lab, &p, "f32[6@x, 4]");
  ValueId y = lab_binary(&lab, OP_LINEAR, lab_to(&lab, x, "f32[4]"), w);
  ValueId loss = lab_weigh(&lab, y);
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), 0, 0, 0);
  ck_assert_int_eq(axes_partial(&lab, p.grad[0], 0), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* One K head for four query heads that are sharded over four ranks. */
START_TEST(shared_head) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){4});
  ValueId q = param(&lab, &p, "f32[4@x, 3, 2]"), k = param(&lab, &p, "f32[3, 2]");
  Attr spec = ATTR_S(SPEC, "hld,md->hlm");
  ValueId scores = lab_op(&lab, OP_EINSUM, (ValueId[]){q, k}, 2, &spec, 1);
  ValueId loss = lab_weigh(&lab, lab_op(&lab, OP_SOFTMAX, &scores, 1, &ATTR_I(DIM, -1), 1));
  differentiate(&lab, &p, loss);
  ck_assert_int_eq(axes_partial(&lab, p.grad[1], 0), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* A residual whose branches bring an R and a Partial cotangent; the R part counts once. */
START_TEST(residual_counts_once) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){3});
  ValueId x = param(&lab, &p, "f32[2, 4]"), w = param(&lab, &p, "f32[5@x, 4]");
  ValueId v = param(&lab, &p, "f32[4, 5@x]");
  ValueId h = lab_unary(&lab, OP_TANH, x);
  ValueId f =
      lab_to(&lab, lab_binary(&lab, OP_LINEAR, lab_binary(&lab, OP_LINEAR, h, w), v), "f32[2, 4]");
  ValueId loss = lab_weigh(&lab, lab_binary(&lab, OP_ADD, h, f));
  differentiate(&lab, &p, loss);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* P(avg) -> R and -> S. The value is the mean of the addends whatever happens to it. */
START_TEST(average) {
  static const char *const targets[] = {"f32[4, 3]", "f32[4@x, 3]"};
  for (int i = 0; i < 2; i++) {
    Lab lab;
    Params p = {.n = 0};
    lab_init(&lab, 1, (int64_t[]){3});
    ValueId x = param(&lab, &p, "f32[4, 3]"), b = param(&lab, &p, "f32[4, 3]");
    ValueId y = lab_binary(&lab, OP_MUL, lab_to(&lab, x, "f32[4, 3] partial(x: avg)"), b);
    ValueId loss = lab_weigh(&lab, lab_to(&lab, y, targets[i]));
    differentiate(&lab, &p, loss);
    check_values(&lab, &p, loss);
    lab_free(&lab);
  }
}
END_TEST

/* The slice that a pointwise operator makes of a Replicate operand, and one value used twice. */
START_TEST(slices_and_reuse) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 2, (int64_t[]){2, 3});
  ValueId a = param(&lab, &p, "f32[5@x, 4@y]"), b = param(&lab, &p, "f32[4]");
  ValueId y = lab_binary(&lab, OP_MUL, lab_binary(&lab, OP_ADD, a, b), b);
  ValueId loss = lab_weigh(&lab, lab_binary(&lab, OP_MUL, y, y));
  differentiate(&lab, &p, loss);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* A plain sum or mean: its cotangent is one number, broadcast until an operator needs all of it. */
START_TEST(constant_cotangents) {
  static const char *const mesh_types[][3] = {
      {"f32[4]", "f32[3@x, 4]", "f32[5, 4]"},
      {"f32[4@x]", "f32[3, 4@x]", "f32[5, 4@x]"},
      {"f32[1]", "f32[3@(x,y), 4]", "f32[5, 4]"},
      {"f32[3, 1]", "f32[3, 4@y]", "f32[5@x, 4@y]"},
  };
  for (int i = 0; i < 4; i++)
    for (int use = 0; use < 4; use++) {
      Lab lab;
      Params p = {.n = 0};
      lab_init(&lab, 2, (int64_t[]){2, 3});
      ValueId a = param(&lab, &p, mesh_types[i][0]), b = param(&lab, &p, mesh_types[i][1]);
      ValueId y = lab_binary(&lab, OP_ADD, a, b);
      if (use == 1) y = lab_binary(&lab, OP_LINEAR, y, param(&lab, &p, mesh_types[i][2]));
      if (use == 2)
        y = lab_op(&lab, OP_PERMUTE, &y, 1, &ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2), 1);
      ValueId loss = lab_op(&lab, use == 3 ? OP_MEAN : OP_SUM, &y, 1, NULL, 0);
      differentiate(&lab, &p, loss);
      check_values(&lab, &p, loss);
      lab_free(&lab);
    }
}
END_TEST

/* A gradient through max over a sharded dim does not exist; a detached one is not asked for. */
START_TEST(partial_max_is_an_error) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  ValueId x = param(&lab, &p, "f32[4@x]");
  ValueId m = lab_to(&lab, lab_op(&lab, OP_MAX, &x, 1, NULL, 0), "f32[]");
  ck_assert(!autodiff_gradients(lab.g, m, p.value, p.n, p.grad, 1, lab.plans, &lab.sink));
  ck_assert_msg(strstr(lab_errors(&lab), "DTM4102: no gradient through a value that is Partial(max)"
                                         " on mesh dim x"),
                "%s", lab_errors(&lab));
  lab_free(&lab);
}
END_TEST

START_TEST(second_derivatives_are_an_error) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  ValueId x = param(&lab, &p, "f32[4]"), y = param(&lab, &p, "f32[4]");
  ValueId operands[] = {x, y};
  ValueId g = lab_op(&lab, OP_SOFTMAX_BACKWARD, operands, 2, NULL, 0);
  ck_assert(
      !autodiff_gradients(lab.g, lab_sum(&lab, g), p.value, p.n, p.grad, 1, lab.plans, &lab.sink));
  ck_assert_msg(strstr(lab_errors(&lab), "DTM4101: no gradient of softmax_backward"), "%s",
                lab_errors(&lab));
  lab_free(&lab);
}
END_TEST

START_TEST(no_influence_no_gradient) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  ValueId x = param(&lab, &p, "f32[4]"), y = param(&lab, &p, "f32[4]");
  ValueId z = lab_binary(&lab, OP_MUL, x, lab_unary(&lab, OP_DETACH, y));
  differentiate(&lab, &p, lab_sum(&lab, z));
  ck_assert_uint_ne(p.grad[0], 0);
  ck_assert_uint_eq(p.grad[1], 0);
  lab_free(&lab);
}
END_TEST

/* Where a gradient is needed Replicate above a sum of births, one reduction serves all users; a
 * narrow parameter below is cheaper to reduce than a wide activation above. */
START_TEST(cheapest_place) {
  Lab lab;
  Params p = {.n = 0};
  lab_init(&lab, 1, (int64_t[]){2});
  /* b [8] is broadcast to [64, 8] before the column-parallel use: reduce b's gradient, not x's. */
  ValueId b = param(&lab, &p, "f32[8]"), w = param(&lab, &p, "f32[6@x, 8]");
  ValueId x = lab_op(&lab, OP_EXPAND, &b, 1, &ATTR_INTS(SHAPE, ((int64_t[]){64, 8}), 2), 1);
  ValueId loss = lab_weigh(&lab, lab_binary(&lab, OP_LINEAR, x, w));
  NodeId end = differentiate(&lab, &p, loss);
  expect_comm(&lab, lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD), 0, 0, 0);
  ck_assert_int_eq(axes_partial(&lab, p.grad[0], 0), 1);
  check_values(&lab, &p, loss);
  lab_free(&lab);
}
END_TEST

/* The operators with two results have a gradient for the first; the other is refused, alone and
 * beside the first. */
START_TEST(second_result) {
  for (int both = 0; both < 2; both++) {
    Lab lab;
    lab_init(&lab, 1, (int64_t[]){2});
    ValueId q = lab_param(&lab, "f32[2@x, 2, 3, 4]", -1, 1);
    const Attr attrs[] = {ATTR_I(CAUSAL, 0), ATTR_F(SCALE, 0.5), ATTR_F(P, 0)};
    ValueId out = lab_op(&lab, OP_ATTENTION, (ValueId[]){q, q, q}, 3, attrs, 3);
    ValueId loss = lab_weigh(&lab, out + 1), grad = 0;
    if (both) loss = lab_binary(&lab, OP_ADD, lab_weigh(&lab, out), loss);
    ck_assert(!autodiff_gradients(lab.g, loss, &q, 1, &grad, 1, lab.plans, &lab.sink));
    ck_assert_msg(strstr(lab_errors(&lab), "DTM4101: no gradient of scaled_dot_product_attention"),
                  "%s", lab_errors(&lab));
    lab_free(&lab);
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("backward");
  TCase *c = tcase_create("backward");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, tensor_parallel);
  tcase_add_test(c, sequence_parallel);
  tcase_add_test(c, data_parallel);
  tcase_add_test(c, used_differently_per_rank);
  tcase_add_test(c, reduce_scatter_gathers);
  tcase_add_test(c, replicate_to_replicate);
  tcase_add_test(c, shared_head);
  tcase_add_test(c, residual_counts_once);
  tcase_add_test(c, average);
  tcase_add_test(c, slices_and_reuse);
  tcase_add_test(c, constant_cotangents);
  tcase_add_test(c, partial_max_is_an_error);
  tcase_add_test(c, second_derivatives_are_an_error);
  tcase_add_test(c, no_influence_no_gradient);
  tcase_add_test(c, cheapest_place);
  tcase_add_test(c, second_result);
  suite_add_tcase(s, c);
  return suite_run(s);
}
