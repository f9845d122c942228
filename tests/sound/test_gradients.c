/* The gradient of every differentiable operator under every placement that it accepts.
 *
 * For each operator and each combination of placements of its operands: the loss is a sum of the
 * result times random weights; its gradients must (a) equal central differences of the whole-tensor
 * loss, (b) come out the same when every node is evaluated rank by rank and the blocks are
 * assembled by the gradient's placement, with bit-equal replicas, (c) have the placement that
 * follows from the value's, (d) consist of nodes that inference agrees with. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/lab.h"
#include "support/suite.h"

typedef struct Case {
  Op op;
  const char *operand[3]; /* "f32[4, 3]"; "ids:N i64[4]" for integers below N */
  double low, high;       /* values of parameters */
  Attr attrs[5];
  uint32_t nattrs;
} Case;

#define DIMS(...)                                                                                  \
  {                                                                                                \
    .key = ATTR_DIMS, .as = {                                                                      \
      .ints = {(int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)}       \
    }                                                                                              \
  }
#define SHAPE(...)                                                                                 \
  {                                                                                                \
    .key = ATTR_SHAPE, .as = {                                                                     \
      .ints = {(int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)}       \
    }                                                                                              \
  }
#define INT(K, v)                                                                                  \
  {                                                                                                \
    .key = ATTR_##K, .as = {.i = (v) }                                                             \
  }
#define FLOAT(K, v)                                                                                \
  {                                                                                                \
    .key = ATTR_##K, .as = {.f = (v) }                                                             \
  }
#define SPEC(v)                                                                                    \
  {                                                                                                \
    .key = ATTR_SPEC, .as = {.s = (v) }                                                            \
  }

static const Case cases[] = {
    {OP_MATMUL, {"f32[3, 4]", "f32[4, 5]"}, -1, 1, {{0}}, 0},
    {OP_MATMUL, {"f32[2, 3, 4]", "f32[1, 4, 2]"}, -1, 1, {{0}}, 0},
    {OP_MATMUL, {"f32[3, 2]", "f32[2, 2, 3]"}, -1, 1, {{0}}, 0},
    {OP_MATMUL, {"f32[3]", "f32[3, 2]"}, -1, 1, {{0}}, 0},
    {OP_LINEAR, {"f32[3, 4]", "f32[5, 4]", "f32[5]"}, -1, 1, {{0}}, 0},
    {OP_LINEAR, {"f32[2, 3, 4]", "f32[5, 4]"}, -1, 1, {{0}}, 0},
    {OP_EINSUM, {"f32[3, 4]", "f32[5, 4]"}, -1, 1, {SPEC("ij,kj->ki")}, 1},
    {OP_EINSUM, {"f32[3, 4]", "f32[4, 2]"}, -1, 1, {SPEC("ij,jk->i")}, 1},
    {OP_EINSUM, {"f32[3, 4]"}, -1, 1, {SPEC("ij->j")}, 1},
    {OP_SUM, {"f32[3, 4]"}, -1, 1, {DIMS(0), INT(KEEPDIM, 0)}, 2},
    {OP_SUM, {"f32[3, 4]"}, -1, 1, {DIMS(0, 1), INT(KEEPDIM, 1)}, 2},
    {OP_MEAN, {"f32[3, 4]"}, -1, 1, {DIMS(0), INT(KEEPDIM, 1)}, 2},
    {OP_MEAN, {"f32[3, 4]"}, -1, 1, {DIMS(0, 1)}, 1},
    {OP_PROD, {"f32[3, 4]"}, 0.5, 2, {DIMS(1)}, 1},
    {OP_MAX, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_MIN, {"f32[3, 4]"}, -1, 1, {DIMS(0), INT(KEEPDIM, 1)}, 2},
    {OP_NORM_L1, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_NORM_L2, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_NORM_INF, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_LOGSUMEXP, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_VAR, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_STD, {"f32[3, 4]"}, -1, 1, {DIMS(0), INT(CORRECTION, 0)}, 2},
    {OP_SOFTMAX, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_LOG_SOFTMAX, {"f32[3, 4]"}, -1, 1, {INT(DIM, 0)}, 1},
    {OP_LAYER_NORM, {"f32[3, 4]", "f32[4]", "f32[4]"}, 0.2, 2, {INT(NDIMS, 1)}, 1},
    {OP_LAYER_NORM, {"f32[3, 2, 2]", "f32[2, 2]"}, 0.2, 2, {INT(NDIMS, 2)}, 1},
    {OP_LAYER_NORM, {"f32[3, 4]"}, 0.2, 2, {INT(NDIMS, 1)}, 1},
    {OP_NORMALIZE, {"f32[3, 4]"}, 0.2, 2, {INT(NDIMS, 1)}, 1},
    {OP_RMS_NORM, {"f32[3, 4]", "f32[4]"}, 0.2, 2, {INT(NDIMS, 1)}, 1},
    {OP_RMS_NORMALIZE, {"f32[3, 4]"}, 0.2, 2, {INT(NDIMS, 1)}, 1},
    {OP_CUMSUM, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_CUMSUM, {"f32[3, 4]"}, -1, 1, {INT(DIM, 0), INT(REVERSE, 1)}, 2},
    {OP_SORT, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_TOPK, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1), INT(K, 2)}, 2},
    {OP_PERMUTE, {"f32[2, 3, 4]"}, -1, 1, {DIMS(2, 0, 1)}, 1},
    {OP_RESHAPE, {"f32[4, 6]"}, -1, 1, {SHAPE(4, 2, 3)}, 1},
    {OP_RESHAPE, {"f32[4, 2, 3]"}, -1, 1, {SHAPE(8, 3)}, 1},
    {OP_UNSQUEEZE, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_SQUEEZE, {"f32[3, 1, 4]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_EXPAND, {"f32[3, 1]"}, -1, 1, {SHAPE(2, 3, 4)}, 1},
    {OP_SLICE, {"f32[3, 5]"}, -1, 1, {INT(DIM, 1), INT(START, 1), INT(STOP, 5), INT(STEP, 2)}, 4},
    {OP_PAD, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1), INT(BEFORE, 1), INT(AFTER, 2)}, 3},
    {OP_UNSLICE,
     {"f32[3, 2]"},
     -1,
     1,
     {INT(DIM, 1), INT(START, 1), INT(STEP, 2), INT(EXTENT, 5)},
     4},
    {OP_CONCAT, {"f32[3, 4]", "f32[3, 2]", "f32[3, 1]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_FLIP, {"f32[3, 4]"}, -1, 1, {DIMS(1)}, 1},
    {OP_ROLL, {"f32[3, 4]"}, -1, 1, {INT(DIM, 1), INT(SHIFT, 1)}, 2},
    {OP_TRIL, {"f32[4, 4]"}, -1, 1, {INT(DIAGONAL, 0)}, 1},
    {OP_TRIU, {"f32[3, 4]"}, -1, 1, {INT(DIAGONAL, 1)}, 1},
    {OP_EMBEDDING, {"ids:5 i64[2, 3]", "f32[5, 4]"}, -1, 1, {{0}}, 0},
    {OP_GATHER, {"f32[3, 4]", "ids:4 i64[3, 2]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_SCATTER_ADD, {"f32[3, 4]", "ids:4 i64[3, 2]", "f32[3, 2]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_INDEX_SELECT, {"f32[3, 4]", "ids:4 i64[2]"}, -1, 1, {INT(DIM, 1)}, 1},
    {OP_DROPOUT, {"f32[3, 4]"}, -1, 1, {FLOAT(P, 0.4), INT(INSTANCE, 3)}, 2},
    {OP_ATTENTION, {"f32[4, 3, 2]", "f32[2, 4, 2]", "f32[2, 4, 3]"}, -1, 1, {INT(CAUSAL, 1)}, 1},
    {OP_ATTENTION, {"f32[2, 2, 3, 2]", "f32[2, 2, 2, 2]", "f32[2, 2, 2, 2]"}, -1, 1, {{0}}, 0},
    {OP_ATTENTION,
     {"f32[4, 2, 2]", "f32[4, 3, 2]", "f32[4, 3, 2]"},
     -1,
     1,
     {FLOAT(SCALE, 0.7), FLOAT(P, 0.4), INT(INSTANCE, 5)},
     3},
    {OP_GROUPED_LINEAR, {"f32[2, 2, 6, 3]", "f32[3, 2, 3]", "ids:3 i64[2, 3]"}, -1, 1, {{0}}, 0},
    {OP_GROUPED_LINEAR,
     {"f32[2, 1, 4, 2]", "f32[2, 2, 3]", "ids:3 i64[2, 2]"},
     -1,
     1,
     {INT(REVERSE, 1)},
     1},
    {OP_WHERE, {"ids:2 bool[3, 4]", "f32[4]", "f32[3, 1]"}, -1, 1, {{0}}, 0},
    {OP_CAST, {"f32[3, 4]"}, -1, 1, {INT(DTYPE, DT_BF16)}, 1},
    {OP_CAST, {"bf16[3, 4]"}, -1, 1, {INT(DTYPE, DT_F32)}, 1},
};

/* Values at which pointwise operators are defined and smooth. */
static void domain(Op op, double *low, double *high) {
  static const struct {
    Op op;
    double low, high;
  } special[] = {
      {OP_POW, 0.4, 2},     {OP_SQRT, 0.3, 2},    {OP_RSQRT, 0.3, 2},    {OP_LOG, 0.3, 2},
      {OP_LOG2, 0.3, 2},    {OP_LOG10, 0.3, 2},   {OP_LOG1P, -0.5, 1},   {OP_ASIN, -0.8, 0.8},
      {OP_ACOS, -0.8, 0.8}, {OP_ATANH, -.8, .8},  {OP_ACOSH, 1.3, 2.5},  {OP_RECIPROCAL, 0.4, 2},
      {OP_DIV, 0.4, 2},     {OP_ADDCDIV, .4, 2},  {OP_REMAINDER, .4, 2}, {OP_FMOD, 0.4, 2},
      {OP_TAN, -1, 1},      {OP_FLOOR_DIV, 1, 2}, {OP_TRUNC_DIV, 1, 2},
  };
  *low = -1.9;
  *high = 2.1;
  for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
    if (special[i].op != op) continue;
    *low = special[i].low;
    *high = special[i].high;
  }
}

/* --- one combination ---------------------------------------------------------------------------
 */

typedef struct Tally {
  int legal, checked;
} Tally;

/* Placement `k` of an operand on one axis: 0 R, 1 .. rank Shard, then Partial(sum), Partial(avg).
 */
static bool place_operand(TensorType *t, uint32_t axis, uint32_t k) {
  if (k == 0) return true;
  if (k <= t->rank) {
    layout_set(&t->layout, t->mesh, axis, PLACE_SHARD, k - 1, REDUCE_NONE);
    return true;
  }
  if (!dtype_is_float(t->dtype)) return false;
  layout_set(&t->layout, t->mesh, axis, PLACE_PARTIAL, 0,
             k == t->rank + 1 ? REDUCE_SUM : REDUCE_AVG);
  return true;
}

static uint32_t placements(const TensorType *t) {
  return t->rank + 3;
}

/* The type of an operand's text, Replicate; *below > 0 for integers. */
static TensorType operand_type(Lab *lab, const char *text, int64_t *below) {
  *below = 0;
  if (strncmp(text, "ids:", 4) == 0) {
    char *end;
    *below = strtoll(text + 4, &end, 10);
    text = end;
  }
  return type_from_text(&lab->mesh, text);
}

static const char *story(Lab *lab, const Case *c, const ValueId *in, uint32_t n) {
  StrBuf sb;
  strbuf_init(&sb, &lab->arena);
  strbuf_puts(&sb, op_name(c->op));
  for (uint32_t i = 0; i < n; i++)
    strbuf_printf(&sb, " %s", type_print(&lab->arena, value_type(lab->g, in[i])));
  strbuf_printf(&sb, "\n%s", lab_text(lab));
  return sb.text;
}

static void check_placement(Lab *lab, ValueId x, ValueId g, const char *what) {
  const TensorType *t = value_type(lab->g, x), *u = value_type(lab->g, g);
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a], q = u->layout.at[a];
    bool fits = q.kind == PLACE_REPLICATE;
    if (p.kind == PLACE_SHARD) fits = memcmp(&p, &q, sizeof p) == 0;
    if (p.kind == PLACE_REPLICATE) fits |= q.kind == PLACE_PARTIAL && q.op == REDUCE_SUM;
    ck_assert_msg(fits, "placement %s for %s in %s", type_print(&lab->arena, u),
                  type_print(&lab->arena, t), what);
  }
  ck_assert_int_eq(t->dtype, u->dtype);
}

static double close_to(double a, double b, double relative) {
  return fabs(a - b) <= relative * (1 + fabs(a) + fabs(b));
}

static void check_values(Lab *lab, ValueId loss, const ValueId *in, const ValueId *grads,
                         uint32_t n, const uint32_t *vars, const char *what) {
  RefTensor *whole = lab_eval(lab);
  bool disagree;
  RefTensor **mesh = lab_eval_mesh(lab, &disagree);
  ck_assert_msg(!disagree, "replicas disagree: %s", what);
  for (uint32_t k = 0; k < n; k++) {
    int64_t count = ref_count(&lab->value[vars[k]]);
    RefTensor got = {0};
    if (grads[k])
      got = ref_assemble(&lab->arena, value_type(lab->g, grads[k]), mesh[grads[k]], NULL);
    for (int64_t i = 0; i < count; i++) {
      const double h = 1e-5;
      double want =
          (lab_probe(lab, loss, vars[k], i, h) - lab_probe(lab, loss, vars[k], i, -h)) / (2 * h);
      double one = grads[k] ? whole[grads[k]].data[i] : 0, many = grads[k] ? got.data[i] : 0;
      ck_assert_msg(close_to(want, one, 1e-6), "operand %u element %lld: whole %g, want %g: %s", k,
                    (long long)i, one, want, what);
      ck_assert_msg(close_to(one, many, 1e-12), "operand %u element %lld: mesh %g, whole %g: %s", k,
                    (long long)i, many, one, what);
    }
    if (grads[k]) check_placement(lab, in[k], grads[k], what);
  }
}

/* False when the operator has no row for these placements. */
static bool try_case(const Case *c, uint32_t naxes, const int64_t *sizes,
                     const uint32_t place[3][DTM_MAX_AXES], Tally *tally) {
  Lab lab;
  ValueId operands[3], in[3], grads[3];
  uint32_t n = 0, nwrt = 0, vars[3];
  bool legal = true;
  lab_init(&lab, naxes, sizes);
  for (; n < 3 && c->operand[n]; n++) {
    int64_t below;
    TensorType t = operand_type(&lab, c->operand[n], &below);
    for (uint32_t a = 0; a < naxes; a++) legal &= place_operand(&t, a, place[n][a]);
    legal &= layout_partial_consistent(&t.layout);
    operands[n] = below ? lab_ids(&lab, &t, below) : lab_param_of(&lab, &t, c->low, c->high);
    if (below) continue;
    vars[nwrt] = n;
    in[nwrt++] = operands[n];
  }
  ValueId y = legal ? lab_try(&lab, c->op, operands, n, c->attrs, c->nattrs) : 0;
  bool linear = y != 0;
  for (uint32_t a = 0; y && a < naxes; a++) {
    Place p = value_type(lab.g, y)->layout.at[a];
    linear &= p.kind != PLACE_PARTIAL || p.op == REDUCE_SUM || p.op == REDUCE_AVG;
  }
  if (linear) {
    ValueId loss = lab_weigh(&lab, y);
    NodeId end = lab.g->nodes.len;
    bool ok = autodiff_gradients(lab.g, loss, in, nwrt, grads, 1, lab.plans, &lab.sink);
    const char *what = story(&lab, c, operands, n);
    ck_assert_msg(ok, "%s\n%s", lab_errors(&lab), what);
    for (NodeId id = end; id < lab.g->nodes.len; id++) {
      const char *fault = infer_check(&lab.arena, lab.g, id);
      ck_assert_msg(fault == NULL, "node %u: %s: %s", id, fault, what);
    }
    check_values(&lab, loss, in, grads, nwrt, vars, what);
    tally->checked++;
  }
  tally->legal += y != 0;
  lab_free(&lab);
  return y != 0;
}

/* All combinations of placements on a mesh, or `limit` random ones where there are more. */
static void sweep(const Case *c, uint32_t naxes, const int64_t *sizes, uint32_t limit, Tally *t) {
  Lab lab;
  lab_init(&lab, naxes, sizes);
  uint32_t choices[3] = {1, 1, 1}, n = 0, total = 1;
  for (; n < 3 && c->operand[n]; n++) {
    int64_t below;
    TensorType type = operand_type(&lab, c->operand[n], &below);
    choices[n] = placements(&type);
    for (uint32_t a = 0; a < naxes; a++) total *= choices[n];
  }
  for (uint32_t k = 0; k < (total < limit ? total : limit); k++) {
    uint32_t code = total < limit ? k : (uint32_t)lab_random(&lab, 0, total);
    uint32_t place[3][DTM_MAX_AXES] = {{0}};
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t a = 0; a < naxes; a++) {
        place[i][a] = code % choices[i];
        code /= choices[i];
      }
    try_case(c, naxes, sizes, (const uint32_t(*)[DTM_MAX_AXES])place, t);
  }
  lab_free(&lab);
}

static void check_case(const Case *c) {
  static const int64_t one[] = {1}, two[] = {2}, three[] = {3}, square[] = {2, 2};
  static const uint32_t whole[3][DTM_MAX_AXES] = {{0}};
  Tally t = {0};
  ck_assert_msg(try_case(c, 1, one, whole, &t), "%s: no row on a mesh of one", op_name(c->op));
  sweep(c, 1, two, 1000, &t);
  sweep(c, 1, three, 1000, &t);
  sweep(c, 2, square, 150, &t);
  ck_assert_msg(t.checked > 1, "%s: nothing was checked", op_name(c->op));
}

START_TEST(pointwise) {
  Op op = (Op)_i;
  const OpInfo *info = op_info(op);
  if (info->cls != CLASS_POINTWISE || !info->grads || !*info->grads) return;
  if (op == OP_WHERE || op == OP_CAST) return; /* in the table */
  static const char *const shapes[][3] = {{"f32[3, 4]", "f32[3, 4]", "f32[3, 4]"},
                                          {"f32[3, 4]", "f32[4]", "f32[3, 1]"}};
  for (int s = 0; s < (info->max_operands > 1 ? 2 : 1); s++) {
    Case c = {.op = op};
    for (uint32_t i = 0; i < info->max_operands; i++) c.operand[i] = shapes[s][i];
    domain(op, &c.low, &c.high);
    check_case(&c);
  }
}
END_TEST

START_TEST(others) {
  check_case(&cases[_i]);
}
END_TEST

/* Where there is no slope, or it is infinite: what PyTorch 2 says. */
static const struct {
  Op op;
  double at[2], slope[2];
} breaks[] = {
    {OP_ABS, {0}, {0}},
    {OP_SIGN, {0}, {0}},
    {OP_SQRT, {0}, {INFINITY}},
    {OP_LOG, {0}, {INFINITY}},
    {OP_RELU, {0}, {0}},
    {OP_RELU6, {6}, {0}},
    {OP_HARDTANH, {1}, {0}},
    {OP_HARDSIGMOID, {-3}, {0}},
    {OP_HARDSWISH, {-3}, {0}},
    {OP_ELU, {0}, {1}},
    {OP_SELU, {0}, {1.05070098735548049342 * 1.67326324235437728482}},
    {OP_LEAKY_RELU, {0, 0.25}, {0.25, 0}},
    {OP_MAXIMUM, {1, 1}, {0.5, 0.5}},
    {OP_MINIMUM, {1, 1}, {0.5, 0.5}},
    {OP_POW, {0, 0}, {0, 0}},
    {OP_POW, {0, 1}, {1, 0}},
    {OP_POW, {0, 2}, {0, 0}},
    {OP_POW, {0, -1}, {-INFINITY, -INFINITY}},
    {OP_POW, {-2, 2}, {-4, NAN}},
    {OP_REMAINDER, {6, 3}, {1, -2}},
    {OP_FMOD, {-6, 3}, {1, 2}},
    {OP_HYPOT, {0, 0}, {NAN, NAN}},
};

START_TEST(at_breaks) {
  Lab lab;
  lab_init(&lab, 1, (int64_t[]){1});
  uint32_t n = op_info(breaks[_i].op)->min_operands;
  ValueId in[2] = {0}, grads[2];
  for (uint32_t i = 0; i < n; i++)
    in[i] = lab_param(&lab, "f64[]", breaks[_i].at[i], breaks[_i].at[i]);
  ValueId y = lab_op(&lab, breaks[_i].op, in, n, NULL, 0);
  ck_assert_msg(autodiff_gradients(lab.g, y, in, n, grads, 1, lab.plans, &lab.sink), "%s",
                lab_errors(&lab));
  RefTensor *value = lab_eval(&lab);
  for (uint32_t i = 0; i < n; i++) {
    double want = breaks[_i].slope[i], got = grads[i] ? value[grads[i]].data[0] : 0;
    ck_assert_msg(got == want || (isnan(got) && isnan(want)),
                  "%s at %g, %g: slope %u is %g, not %g", op_name(breaks[_i].op), breaks[_i].at[0],
                  breaks[_i].at[1], i, got, want);
  }
  lab_free(&lab);
}
END_TEST

int main(void) {
  Suite *s = suite_create("gradients");
  TCase *c = tcase_create("operators");
  tcase_set_timeout(c, 300);
  tcase_add_loop_test(c, pointwise, OP_NONE + 1, OP_COUNT);
  tcase_add_loop_test(c, others, 0, sizeof cases / sizeof *cases);
  tcase_add_loop_test(c, at_breaks, 0, sizeof breaks / sizeof *breaks);
  suite_add_tcase(s, c);
  return suite_run(s);
}
