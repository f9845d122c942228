/* cross_entropy opened into primitives, against loops over the definition, for every way of cutting
 * batch and vocabulary; and its gradient against central differences. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/verify.h"
#include "place/expand.h"
#include "reference/lab.h"
#include "support/suite.h"

enum { ROWS = 6 };

typedef struct Case {
  int64_t mesh[2], vocab;
  const char *logits, *labels, *weights; /* types with %lld for the vocabulary; weights or NULL */
  double smoothing;
  int64_t ignore;
  const char *reduction;
  double low, high; /* of logits */
} Case;

static const Case cases[] = {
    {{1, 1}, 5, "f32[6, %d]", "i64[6]", NULL, 0, -100, "mean", -1, 1},
    {{2, 1}, 5, "f32[6@x, %d]", "i64[6@x]", NULL, 0, -100, "mean", -1, 1},
    {{2, 2}, 7, "f32[6@x, %d@y]", "i64[6@x]", NULL, 0, 2, "mean", -1, 1},
    {{2, 4}, 7, "f32[6@x, %d@y]", "i32[6@x]", NULL, 0.1, 2, "mean", -1, 1},
    {{4, 1}, 3, "f32[6, %d@x]", "i64[6]", NULL, 0.1, -100, "sum", -1, 1},
    {{2, 2}, 10, "f32[6, %d@(y,x)]", "u8[6]", NULL, 0, 3, "none", 45, 55},
    {{2, 2}, 6, "f32[6@x, %d@y]", "i64[6@x]", "f32[%d@y]", 0, 1, "mean", -1, 1},
    {{2, 2}, 6, "f32[6@x, %d@y]", "i64[6@x]", "f32[%d@y]", 0.2, 1, "mean", -1, 1},
    {{3, 2}, 8, "f32[6@x, %d@y]", "i64[6@x]", "f32[%d@y]", 0.2, -100, "sum", -100, 100},
    {{3, 2}, 8, "f64[6@x, %d@y]", "i64[6@x]", "f32[%d@y]", 0.2, -100, "none", -1, 1},
};

/* The definition, row by row. */
static void want(const Case *c, const RefTensor *x, const RefTensor *y, const RefTensor *w,
                 double *out) {
  double sum = 0, count = 0;
  for (int64_t r = 0; r < ROWS; r++) {
    const double *row = x->data + r * c->vocab;
    double top = row[0], z = 0, all = 0;
    for (int64_t v = 0; v < c->vocab; v++) top = fmax(top, row[v]);
    for (int64_t v = 0; v < c->vocab; v++) z += exp(row[v] - top);
    double lse = top + log(z);
    for (int64_t v = 0; v < c->vocab; v++) all += (w ? w->data[v] : 1) * (lse - row[v]);
    int64_t label = (int64_t)y->data[r];
    double weight = w ? w->data[label] : 1, loss = 0;
    if (label != c->ignore) {
      loss = (1 - c->smoothing) * weight * (lse - row[label]);
      loss += c->smoothing / (double)c->vocab * all;
      count += weight;
    }
    out[r] = loss;
    sum += loss;
  }
  if (strcmp(c->reduction, "none") == 0) return;
  out[0] = strcmp(c->reduction, "mean") == 0 ? sum / count : sum;
}

START_TEST(equals_the_definition) {
  const Case *c = &cases[_i];
  Lab lab;
  lab_init(&lab, 2, c->mesh);
  ValueId operands[3], grads[2];
  operands[0] =
      lab_param(&lab, arena_printf(&lab.arena, c->logits, (int)c->vocab), c->low, c->high);
  TensorType ids = type_from_text(&lab.mesh, c->labels);
  operands[1] = lab_ids(&lab, &ids, c->vocab);
  if (c->weights)
    operands[2] = lab_param(&lab, arena_printf(&lab.arena, c->weights, (int)c->vocab), 0.5, 2);
  Attr attrs[] = {ATTR_I(IGNORE_INDEX, c->ignore), ATTR_F(LABEL_SMOOTHING, c->smoothing),
                  ATTR_S(REDUCTION, c->reduction)};
  ValueId y = lab_op(&lab, OP_CROSS_ENTROPY, operands, c->weights ? 3 : 2, attrs, 3);
  TensorType type = *value_type(lab.g, y);
  lab.train->loss = strcmp(c->reduction, "none") == 0 ? lab_weigh(&lab, y) : y;
  Attr name[] = {ATTR_S(NAME, "y"), ATTR_S(ROLE, "print")};
  graph_add(lab.g, OP_OUTPUT, &y, 1, name, 2, NULL, 0, (Span){0}, 0);

  expand_run(&lab.program);
  lab.g = lab.train->graph;
  const char *fault =
      verify_program(&lab.arena, &lab.program, GRAPH_EXPLICIT, "expand", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  NodeId last = lab.g->nodes.len - 1;
  y = graph_node(lab.g, last)->operands[0];
  ck_assert(type_equal(value_type(lab.g, y), &type));
  ValueId loss = lab.train->loss, wrt[] = {operands[0], c->weights ? operands[2] : 0};
  ck_assert_msg(
      autodiff_gradients(lab.g, loss, wrt, c->weights ? 2 : 1, grads, 1, lab.plans, &lab.sink),
      "%s", lab_errors(&lab));

  double expected[ROWS];
  want(c, &lab.value[0], &lab.value[1], c->weights ? &lab.value[2] : NULL, expected);
  bool disagree;
  RefTensor *whole = lab_eval(&lab), **mesh = lab_eval_mesh(&lab, &disagree);
  RefTensor many = ref_assemble(&lab.arena, &type, mesh[y], NULL);
  ck_assert(!disagree);
  for (int64_t i = 0; i < ref_count(&many); i++) {
    ck_assert_double_eq_tol(whole[y].data[i], expected[i], 1e-10 * (1 + fabs(expected[i])));
    ck_assert_double_eq_tol(many.data[i], expected[i], 1e-10 * (1 + fabs(expected[i])));
  }
  for (uint32_t k = 0; k < (c->weights ? 2u : 1u); k++) {
    uint32_t var = k ? 2 : 0;
    RefTensor g = ref_assemble(&lab.arena, value_type(lab.g, grads[k]), mesh[grads[k]], NULL);
    for (int64_t i = 0; i < ref_count(&g); i++) {
      const double h = 1e-5;
      double slope =
          (lab_probe(&lab, loss, var, i, h) - lab_probe(&lab, loss, var, i, -h)) / (2 * h);
      ck_assert_double_eq_tol(g.data[i], slope, 1e-6 * (1 + fabs(slope)));
    }
  }
  lab_free(&lab);
}
END_TEST

/* Vocabulary over four ranks: the maximum and the sum are reduced per row, the target's logit only
 * as one scalar; nothing at all in the backward pass. */
START_TEST(two_reductions) {
  Lab lab;
  lab_init(&lab, 1, (int64_t[]){4});
  ValueId x = lab_param(&lab, "f32[6, 8@x]", -1, 1), grad;
  TensorType ids = type_from_text(&lab.mesh, "i64[6]");
  ValueId operands[] = {x, lab_ids(&lab, &ids, 8)};
  lab.train->loss = lab_op(&lab, OP_CROSS_ENTROPY, operands, 2, NULL, 0);
  expand_run(&lab.program);
  lab.g = lab.train->graph;
  NodeId end = lab.g->nodes.len;
  LabComm forward = lab_comm(&lab, lab.g, 0, end, PHASE_FORWARD);
  ck_assert_int_eq(forward.all_reduce, 3);
  ck_assert_int_eq(forward.all_gather + forward.reduce_scatter + forward.all_to_all, 0);
  ck_assert(autodiff_gradients(lab.g, lab.train->loss, &x, 1, &grad, 1, lab.plans, &lab.sink));
  LabComm back = lab_comm(&lab, lab.g, end, lab.g->nodes.len, PHASE_BACKWARD);
  ck_assert_msg(back.all_reduce + back.all_gather + back.reduce_scatter + back.all_to_all == 0,
                "%s", lab_text(&lab));
  lab_free(&lab);
}
END_TEST

/* Labels of a source of classes are range-checked, so none is ignored and nothing is counted; those
 * of a file of numbers are checked too, but for the number that is ignored. */
START_TEST(labels_of_a_source) {
  static const struct {
    const char *reader;
    int64_t below;
    int all_reduce;
  } sources[] = {{"idx", 5, 0}, {"npy", 5, 1}};
  for (int i = 0; i < 2; i++) {
    Lab lab;
    lab_init(&lab, 1, (int64_t[]){2});
    TensorType ids = type_from_text(&lab.mesh, "i64[6@x]");
    DataSource source = {.name = "y", .reader = sources[i].reader, .type = ids, .scale = 1};
    VEC_PUSH(&lab.arena, &lab.train->data, source);
    Attr attrs[] = {ATTR_T(TYPE, &ids), ATTR_I(SOURCE, 0)};
    ValueId x = lab_param(&lab, "f32[6@x, 5]", -1, 1);
    ValueId operands[] = {x, lab_op(&lab, OP_INPUT, NULL, 0, attrs, 2)};
    lab.train->loss = lab_op(&lab, OP_CROSS_ENTROPY, operands, 2, NULL, 0);
    expand_run(&lab.program);
    lab.g = lab.train->graph;
    LabComm comm = lab_comm(&lab, lab.g, 0, lab.g->nodes.len, PHASE_FORWARD);
    ck_assert_int_eq(comm.all_reduce, sources[i].all_reduce);
    ck_assert_int_eq(lab.train->data.data[0].below, sources[i].below);
    ck_assert_int_eq(lab.train->data.data[0].ignores, sources[i].all_reduce);
    ck_assert_int_eq(lab.train->data.data[0].ignore, sources[i].all_reduce ? -100 : 0);
    lab_free(&lab);
  }
}
END_TEST

/* A label that is no class gives no number, cut or whole, and not the loss of an empty target. */
START_TEST(labels_that_are_no_class) {
  static const double wrong[] = {4, -1, 1e9};
  for (int i = 0; i < 3; i++) {
    Lab lab;
    lab_init(&lab, 2, (int64_t[]){2, 2});
    TensorType ids = type_from_text(&lab.mesh, "i64[6@x]");
    ValueId x = lab_param(&lab, "f32[6@x, 4@y]", -1, 1);
    ValueId operands[] = {x, lab_ids(&lab, &ids, 4)};
    lab.train->loss = lab_op(&lab, OP_CROSS_ENTROPY, operands, 2, NULL, 0);
    lab.value[1].data[5] = wrong[i];
    expand_run(&lab.program);
    lab.g = lab.train->graph;
    bool disagree;
    RefTensor *whole = lab_eval(&lab), **mesh = lab_eval_mesh(&lab, &disagree);
    ValueId loss = lab.train->loss;
    RefTensor many = ref_assemble(&lab.arena, value_type(lab.g, loss), mesh[loss], NULL);
    ck_assert_double_nan(whole[loss].data[0]);
    ck_assert_double_nan(many.data[0]);
    lab_free(&lab);
  }
}
END_TEST

/* One valid target on one rank and seven on the other, both on a third axis too. */
START_TEST(mean_over_valid_targets) {
  Lab lab;
  lab_init(&lab, 2, (int64_t[]){2, 2});
  ValueId x = lab_param(&lab, "f32[4@x, 4@y, 3]", -1, 1);
  TensorType ids = type_from_text(&lab.mesh, "i64[4@x, 4@y]");
  ValueId operands[] = {x, lab_ids(&lab, &ids, 3)};
  double sum = 0, count = 0;
  for (int64_t r = 0; r < 16; r++) {
    bool valid = r == 0 || r >= 9;
    double *label = &lab.value[1].data[r], z = 0;
    if (!valid) *label = -100;
    for (int v = 0; valid && v < 3; v++) z += exp(lab.value[0].data[r * 3 + v]);
    if (valid) sum += log(z) - lab.value[0].data[r * 3 + (int64_t)*label];
    count += valid;
  }
  ck_assert_double_eq(count, 8);
  lab.train->loss = lab_op(&lab, OP_CROSS_ENTROPY, operands, 2, NULL, 0);
  expand_run(&lab.program);
  lab.g = lab.train->graph;
  bool disagree;
  ValueId loss = lab.train->loss;
  RefTensor got =
      ref_assemble(&lab.arena, value_type(lab.g, loss), lab_eval_mesh(&lab, &disagree)[loss], NULL);
  ck_assert_double_eq_tol(got.data[0], sum / 8, 1e-12);
  lab_free(&lab);
}
END_TEST

int main(void) {
  Suite *s = suite_create("cross_entropy");
  TCase *c = tcase_create("cross_entropy");
  tcase_add_loop_test(c, equals_the_definition, 0, sizeof cases / sizeof *cases);
  tcase_add_test(c, two_reductions);
  tcase_add_test(c, labels_of_a_source);
  tcase_add_test(c, labels_that_are_no_class);
  tcase_add_test(c, mean_over_valid_targets);
  suite_add_tcase(s, c);
  return suite_run(s);
}
