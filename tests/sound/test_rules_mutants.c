/* The proof of the rules can fail: each planted wrong row is caught.
 *
 * A plant says: on one mesh dim, with these placements of the operands, the result has this one. It
 * overrides the real table whether that has a row or not. Faults of the *order* of nested shards
 * need two mesh dims and are planted by code.
 */
#include <check.h>
#include <stdio.h>

#include "reference/proof.h"
#include "reference/type_text.h"
#include "support/suite.h"

#define R                                                                                          \
  { .kind = PLACE_REPLICATE }
#define S0                                                                                         \
  { .kind = PLACE_SHARD, .dim = 0 }
#define S1                                                                                         \
  { .kind = PLACE_SHARD, .dim = 1 }
#define P(OP)                                                                                      \
  { .kind = PLACE_PARTIAL, .op = REDUCE_##OP }

typedef struct Plant {
  Op op;
  Place operands[3], result;
} Plant;

static const Plant plants[] = {
    {OP_ABS, {P(SUM)}, P(SUM)},
    {OP_SQUARE, {P(SUM)}, P(SUM)},
    {OP_RELU, {P(SUM)}, P(SUM)},
    {OP_EXP, {P(AVG)}, P(AVG)},
    {OP_NEG, {P(MAX)}, P(MAX)},
    {OP_NEG, {P(PRODUCT)}, P(PRODUCT)},
    {OP_CAST, {P(SUM)}, P(SUM)},
    {OP_CAST, {P(MAX)}, P(MAX)},
    {OP_ADD, {P(SUM), R}, P(SUM)},
    {OP_ADD, {P(MAX), P(MAX)}, P(MAX)},
    {OP_SUB, {R, P(MAX)}, P(MAX)},
    {OP_MUL, {P(SUM), P(SUM)}, P(SUM)},
    {OP_MUL, {P(MAX), R}, P(MAX)},
    {OP_MUL, {P(PRODUCT), R}, P(PRODUCT)},
    {OP_DIV, {R, P(SUM)}, P(SUM)},
    {OP_WHERE, {R, P(SUM), R}, P(SUM)},
    {OP_MAXIMUM, {P(SUM), P(SUM)}, P(SUM)},
    {OP_BITWISE_XOR, {P(XOR), R}, P(XOR)},
    {OP_GT, {P(SUM), R}, P(MAX)},
    {OP_GELU_BACKWARD, {R, P(SUM)}, P(SUM)},
    {OP_MATMUL, {S1, R}, P(SUM)},
    {OP_MATMUL, {P(SUM), P(SUM)}, P(SUM)},
    {OP_MATMUL, {S0, R}, P(SUM)},
    {OP_LINEAR, {S1, S1, R}, P(SUM)},
    {OP_SUM, {S0}, R},
    {OP_SUM, {P(MAX)}, P(MAX)},
    {OP_MEAN, {S0}, P(AVG)},
    {OP_MAX, {S0}, P(SUM)},
    {OP_MAX, {P(SUM)}, P(SUM)},
    {OP_ANY, {S0}, P(MIN)},
    {OP_NORM_L2, {S0}, P(SUM)},
    {OP_LOGSUMEXP, {S0}, P(SUM)},
    {OP_VAR, {S0}, P(AVG)},
    {OP_SOFTMAX, {S1}, S1},
    {OP_LAYER_NORM, {S1, S0, S0}, S1},
    {OP_CUMSUM, {S1}, S1},
    {OP_ARGMAX, {S1}, P(MAX)},
    {OP_SORT, {S1}, S1},
    {OP_EXTREMUM_BACKWARD, {R, S0, R}, S0},
    {OP_RESHAPE, {S1}, S0},
    {OP_RESHAPE, {S0}, S0},
    {OP_SLICE, {S0}, S0},
    {OP_PAD, {P(SUM)}, P(SUM)},
    {OP_CONCAT, {S0, S0}, S0},
    {OP_CONCAT, {P(SUM), R}, P(SUM)},
    {OP_FLIP, {S0}, S0},
    {OP_ROLL, {S0}, S0},
    {OP_PERMUTE, {S0}, S0},
    {OP_EMBEDDING, {R, S0}, R},
    {OP_GATHER, {S0, R}, P(SUM)},
    {OP_SCATTER_ADD, {R, R, P(SUM)}, P(SUM)},
    {OP_CROSS_ENTROPY, {S0, S0}, P(AVG)},
    {OP_ONE_HOT, {P(MAX)}, P(MAX)},
    {OP_ATTENTION, {S0, R, R}, P(SUM)},
    {OP_ATTENTION, {R, S1, S1}, P(SUM)},
    {OP_ATTENTION, {R, S0, S0}, R},
};
enum { PLANTS = sizeof plants / sizeof *plants };

static bool is_planted(const Plant *plant, const ExampleNode *n) {
  for (uint32_t i = 0; i < n->noperands; i++) {
    Place p = n->operands[i].type.layout.at[0], want = plant->operands[i];
    if (p.kind != want.kind || p.dim != want.dim || p.op != want.op) return false;
  }
  return true;
}

/* The planted row has the shapes of the row for Replicate operands. */
static bool planted_row(const void *state, Arena *arena, const ExampleNode *n, InferResult *out) {
  const Plant *plant = state;
  if (!is_planted(plant, n)) return proof_real_row(NULL, arena, n, out);
  ExampleNode whole = *n;
  for (uint32_t i = 0; i < n->noperands; i++) whole.operands[i].type.layout = (Layout){{{0}}};
  if (!proof_real_row(NULL, arena, &whole, out)) return false;
  const TensorType *t = &out->results[0];
  if (plant->result.kind == PLACE_SHARD && plant->result.dim >= t->rank) return false;
  for (uint32_t k = 0; k < out->nresults; k++)
    layout_set(&out->results[k].layout, t->mesh, 0, (PlaceKind)plant->result.kind,
               plant->result.dim, (ReduceOp)plant->result.op);
  return true;
}

/* Plant: nested shards match whatever their order, the result taking the left operand's. */
static bool row_without_order(const void *state, Arena *arena, const ExampleNode *n,
                              InferResult *out) {
  ExampleNode same = *n;
  if (proof_real_row(state, arena, n, out)) return true;
  for (uint32_t i = 1; i < n->noperands; i++)
    for (uint32_t a = 0; a < 2; a++) {
      Place own = n->operands[i].type.layout.at[a], left = n->operands[0].type.layout.at[a];
      if (own.kind == PLACE_SHARD && left.kind == PLACE_SHARD)
        same.operands[i].type.layout.at[a].order = left.order;
    }
  return proof_real_row(state, arena, &same, out);
}

/* Plant: any shorter list is sliced, prefix or not: a[N@(x,y)] + b[N@y]. */
static bool row_slices_any(const void *state, Arena *arena, const ExampleNode *n,
                           InferResult *out) {
  if (proof_real_row(state, arena, n, out)) return true;
  ExampleNode same = *n;
  if (n->noperands != 2 || n->operands[0].type.rank != n->operands[1].type.rank) return false;
  same.operands[1].type = n->operands[0].type;
  if (!proof_real_row(state, arena, &same, out)) return false;
  out->slice[1] = true;
  out->slice_to[1] = n->operands[0].type;
  return true;
}

/* On some mesh: minus a product is the product of minuses over three ranks, but not over two. */
static void expect_caught(Op op, const Mesh *meshes, uint32_t nmeshes, RowFn *row,
                          const void *state, const char *what) {
  Proof p;
  proof_init(&p, row, state);
  for (uint32_t i = 0; i < nmeshes; i++) prove_op(&p, op, &meshes[i]);
  ck_assert_msg(p.failures > 0, "the wrong row was not caught: %s %s", op_name(op), what);
  proof_free(&p);
}

START_TEST(planted_rows_are_caught) {
  Mesh meshes[2];
  mesh_of(&meshes[0], 1, (int64_t[]){2});
  mesh_of(&meshes[1], 1, (int64_t[]){3});
  for (int i = 0; i < PLANTS; i++) {
    char what[64];
    snprintf(what, sizeof what, "(plant %d)", i);
    expect_caught(plants[i].op, meshes, 2, planted_row, &plants[i], what);
  }
}
END_TEST

START_TEST(planted_orders_are_caught) {
  Mesh mesh;
  mesh_of(&mesh, 2, (int64_t[]){2, 2});
  expect_caught(OP_MATMUL, &mesh, 1, row_without_order, NULL, "without order");
  expect_caught(OP_ADD, &mesh, 1, row_without_order, NULL, "without order");
  expect_caught(OP_CONCAT, &mesh, 1, row_without_order, NULL, "without order");
  expect_caught(OP_ADD, &mesh, 1, row_slices_any, NULL, "slices any list");
}
END_TEST

int main(void) {
  Suite *s = suite_create("rules_mutants");
  TCase *c = tcase_create("plants");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, planted_rows_are_caught);
  tcase_add_test(c, planted_orders_are_caught);
  suite_add_tcase(s, c);
  return suite_run(s);
}
