/* Rows of the placement table, one mesh situation at a time: what each operator makes of its
 * operands' types, and which fault it names where it has no row.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"
#include "reference/type_text.h"
#include "support/suite.h"

static Arena arena;
static Mesh mesh; /* x 2, y 3 unless a test says otherwise */

static void setup(void) {
  arena_init(&arena);
  mesh_of(&mesh, 2, (int64_t[]){2, 3});
}
static void teardown(void) {
  arena_free(&arena);
}

static InferResult out;

/* Operands in text; "c:VALUE" is an f32 constant. Up to three. */
static void infer_text(Op op, const Attr *attrs, uint32_t nattrs, const char *a, const char *b,
                       const char *c) {
  const char *text[] = {a, b, c};
  Operand operands[3] = {{.is_const = false}};
  uint32_t n = 0;
  for (; n < 3 && text[n]; n++) {
    if (strncmp(text[n], "c:", 2) == 0) {
      operands[n].type = (TensorType){.dtype = DT_F32};
      operands[n].is_const = true;
      operands[n].const_value = atof(text[n] + 2);
    } else {
      operands[n].type = type_from_text(&mesh, text[n]);
    }
  }
  infer_node(&arena, op, operands, n, attrs, nattrs, &out);
}

/* Either the result's type in text, or "CODE" in the form of DIAG ids. */
static void expect(const char *want) {
  const char *got =
      out.status == INFER_OK ? type_print(&arena, &out.results[0]) : diag_info(out.code)->id;
  ck_assert_msg(strcmp(got, want) == 0, "got %s (%s), want %s", got,
                out.status == INFER_OK ? "" : out.reason, want);
}

typedef struct Row {
  Op op;
  const char *a, *b, *c, *want;
} Row;

static void check_rows(const Row *rows, size_t n) {
  for (size_t i = 0; i < n; i++) {
    infer_text(rows[i].op, NULL, 0, rows[i].a, rows[i].b, rows[i].c);
    expect(rows[i].want);
  }
}
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof *(rows))

START_TEST(matmul_rows) {
  static const Row rows[] = {
      {OP_MATMUL, "f32[4@x, 6]", "f32[6, 8]", NULL, "f32[4@x, 8]"},
      {OP_MATMUL, "f32[4, 6]", "f32[6, 8@x]", NULL, "f32[4, 8@x]"},
      {OP_MATMUL, "f32[4, 6@x]", "f32[6@x, 8]", NULL, "f32[4, 8] partial(x)"},
      {OP_MATMUL, "f32[5@x, 4, 6]", "f32[5@x, 6, 8]", NULL, "f32[5@x, 4, 8]"},
      {OP_MATMUL, "f32[4, 6] partial(x)", "f32[6, 8]", NULL, "f32[4, 8] partial(x)"},
      {OP_MATMUL, "f32[4, 6]", "f32[6, 8] partial(x: avg)", NULL, "f32[4, 8] partial(x: avg)"},
      {OP_MATMUL, "f32[4@x, 6@y]", "f32[6@y, 8]", NULL, "f32[4@x, 8] partial(y)"},
      {OP_MATMUL, "f32[4, 6@(x,y)]", "f32[6@(x,y), 8]", NULL, "f32[4, 8] partial(x, y)"},
      /* contracted dim sharded on one side only: the local shapes do not conform */
      {OP_MATMUL, "f32[4, 6@x]", "f32[6, 8]", NULL, "SHARD_MISMATCH"},
      {OP_MATMUL, "f32[4@x, 6]", "f32[6, 8@x]", NULL, "SHARD_MISMATCH"},
      /* every mesh dim alone matches a row, the order does not */
      {OP_MATMUL, "f32[4, 6@(x,y)]", "f32[6@(y,x), 8]", NULL, "SHARD_ORDER"},
      {OP_MATMUL, "f32[4, 6] partial(x)", "f32[6, 8] partial(x)", NULL, "PARTIAL_PAIR"},
      {OP_MATMUL, "f32[4, 6] partial(x: max)", "f32[6, 8]", NULL, "PARTIAL_OPERAND"},
      {OP_MATMUL, "f32[4, 6]", "f32[5, 8]", NULL, "OPERAND_SHAPE"},
      {OP_MATMUL, "f32[4, 6]", "f64[6, 8]", NULL, "OPERAND_DTYPE"},
  };
  CHECK_ROWS(rows);
}
END_TEST

START_TEST(linear_rows) {
  static const Row rows[] = {
      {OP_LINEAR, "f32[2, 8@x, 4]", "f32[5, 4]", NULL, "f32[2, 8@x, 5]"},
      {OP_LINEAR, "f32[2, 7@y, 4]", "f32[5, 4]", NULL, "f32[2, 7@y, 5]"},
      {OP_LINEAR, "f32[2@x, 8@y, 4]", "f32[5, 4]", NULL, "f32[2@x, 8@y, 5]"},
      {OP_LINEAR, "f32[8, 4]", "f32[6@x, 4]", "f32[6@x]", "f32[8, 6@x]"},
      {OP_LINEAR, "f32[8, 4@x]", "f32[6, 4@x]", "f32[6] partial(x)", "f32[8, 6] partial(x)"},
      /* a replicated bias would count once per rank */
      {OP_LINEAR, "f32[8, 4@x]", "f32[6, 4@x]", "f32[6]", "PARTIAL_ADDEND"},
      {OP_LINEAR, "f32[8, 4]", "f32[6, 4]", "f32[6] partial(x)", "PARTIAL_ADDEND"},
      {OP_LINEAR, "f32[8, 4]", "f32[6@x, 4]", "f32[6]", "SHARD_MISMATCH"},
      {OP_LINEAR, "f32[8, 4]", "f32[6@(x,y), 4]", "f32[6@(y,x)]", "SHARD_MISMATCH"},
      {OP_LINEAR, "f32[8]", "f32[3, 9]", NULL, "OPERAND_SHAPE"},
  };
  CHECK_ROWS(rows);
}
END_TEST

START_TEST(pointwise_lists) {
  static const Row rows[] = {
      {OP_ADD, "f32[8@x]", "f32[8]", NULL, "f32[8@x]"},
      {OP_ADD, "f32[8@(x,y)]", "f32[8@x]", NULL, "f32[8@(x,y)]"},
      {OP_ADD, "f32[8@(x,y)]", "f32[8@y]", NULL, "SHARD_MISMATCH"},
      {OP_ADD, "f32[8@x]", "f32[8@y]", NULL, "SHARD_MISMATCH"},
      {OP_ADD, "f32[8@(x,y)]", "f32[8@(y,x)]", NULL, "SHARD_ORDER"},
      {OP_ADD, "f32[8@x, 4]", "f32[8, 4@x]", NULL, "SHARD_MISMATCH"},
      {OP_ADD, "f32[8@x, 4]", "f32[4@y]", NULL, "f32[8@x, 4@y]"},
      {OP_ADD, "f32[8@x, 4]", "f32[4]", NULL, "f32[8@x, 4]"},
      {OP_ADD, "f32[8@x, 4]", "f32[1, 4]", NULL, "f32[8@x, 4]"},
      {OP_ADD, "f32[1@x, 4]", "f32[8, 4]", NULL, "SHARDED_BROADCAST"},
      {OP_ADD, "f32[1@x, 4]", "f32[1@x, 4]", NULL, "f32[1@x, 4]"},
      {OP_ADD, "f32[3]", "f32[4]", NULL, "OPERAND_SHAPE"},
      {OP_ADD, "f32[8@x]", "f32[8] partial(x)", NULL, "PARTIAL_OPERAND"},
  };
  CHECK_ROWS(rows);
  infer_text(OP_ADD, NULL, 0, "f32[8@(x,y), 4]", "f32[8@x, 4]", NULL);
  ck_assert(!out.slice[0] && out.slice[1]);
  ck_assert_str_eq(type_print(&arena, &out.slice_to[1]), "f32[8@(x,y), 4]");
}
END_TEST

START_TEST(pointwise_partial) {
  static const Row rows[] = {
      {OP_ADD, "f32[8] partial(x)", "c:10", NULL, "PARTIAL_ADDEND"},
      {OP_SUB, "c:10", "f32[8] partial(x)", NULL, "PARTIAL_ADDEND"},
      {OP_MUL, "f32[8] partial(x)", "c:10", NULL, "f32[8] partial(x)"},
      {OP_ADD, "f32[8] partial(x: avg)", "c:10", NULL, "f32[8] partial(x: avg)"},
      {OP_SUB, "c:10", "f32[8] partial(x: avg)", NULL, "f32[8] partial(x: avg)"},
      {OP_ADD, "f32[8] partial(x)", "f32[8] partial(x)", NULL, "f32[8] partial(x)"},
      {OP_ADD, "f32[8] partial(x)", "f32[8] partial(x: avg)", NULL, "PARTIAL_PAIR"},
      {OP_MUL, "f32[8] partial(x)", "f32[8] partial(x)", NULL, "PARTIAL_PAIR"},
      {OP_MUL, "f32[8] partial(x)", "f32[8]", NULL, "f32[8] partial(x)"},
      {OP_MUL, "f32[8] partial(x)", "f32[8] partial(y)", NULL, "f32[8] partial(x, y)"},
      {OP_MUL, "f32[8] partial(x: product)", "f32[8] partial(x: product)", NULL,
       "f32[8] partial(x: product)"},
      {OP_MUL, "f32[8] partial(x: product)", "c:2", NULL, "PARTIAL_OPERAND"},
      {OP_DIV, "f32[8] partial(x)", "f32[8]", NULL, "f32[8] partial(x)"},
      {OP_DIV, "f32[8]", "f32[8] partial(x)", NULL, "PARTIAL_OPERAND"},
      {OP_NEG, "f32[8] partial(x: max)", NULL, NULL, "f32[8] partial(x: min)"},
      {OP_MUL, "f32[8] partial(x: max)", "c:-3", NULL, "f32[8] partial(x: min)"},
      {OP_MUL, "f32[8] partial(x: max)", "c:0", NULL, "f32[8] partial(x: max)"},
      {OP_MUL, "f32[8] partial(x: max)", "f32[8]", NULL, "PARTIAL_OPERAND"},
      {OP_SUB, "f32[8]", "f32[8] partial(x: min)", NULL, "f32[8] partial(x: max)"},
      {OP_SUB, "f32[8] partial(x: min)", "f32[8]", NULL, "f32[8] partial(x: min)"},
      {OP_SUB, "u8[8] partial(x: min)", "u8[8]", NULL, "PARTIAL_ADDEND"},
      {OP_MAXIMUM, "f32[8] partial(x: max)", "f32[8] partial(x: max)", NULL,
       "f32[8] partial(x: max)"},
      {OP_MAXIMUM, "f32[8] partial(x: min)", "f32[8] partial(x: min)", NULL, "PARTIAL_PAIR"},
      {OP_WHERE, "bool[8]", "f32[8] partial(x)", "c:1", "PARTIAL_ADDEND"},
      {OP_WHERE, "bool[8]", "f32[8] partial(x)", "c:0", "f32[8] partial(x)"},
      {OP_WHERE, "bool[8]", "f32[8] partial(x)", "f32[8]", "PARTIAL_ADDEND"},
      {OP_WHERE, "bool[8]", "f32[8]", "f32[8] partial(x: avg)", "f32[8] partial(x: avg)"},
      {OP_WHERE, "bool[8] partial(x: max)", "f32[8]", "f32[8]", "PARTIAL_OPERAND"},
      {OP_ABS, "f32[8] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_ABS, "f32[8] partial(x: product)", NULL, NULL, "f32[8] partial(x: product)"},
      {OP_SQUARE, "f32[8] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_RELU, "f32[8] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_EXP, "f32[8] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_SQRT, "f32[8] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_CLAMP, "f32[8] partial(x)", "c:0", "c:1", "PARTIAL_OPERAND"},
      {OP_GT, "f32[8] partial(x)", "c:0", NULL, "PARTIAL_OPERAND"},
      {OP_FLOOR_DIV, "i32[8] partial(x)", "i32[8]", NULL, "PARTIAL_OPERAND"},
      {OP_BITWISE_XOR, "i32[8] partial(x: xor)", "i32[8] partial(x: xor)", NULL,
       "i32[8] partial(x: xor)"},
      {OP_BITWISE_XOR, "i32[8] partial(x: xor)", "i32[8]", NULL, "PARTIAL_OPERAND"},
      {OP_GELU_BACKWARD, "f32[8] partial(x)", "f32[8]", NULL, "f32[8] partial(x)"},
      {OP_GELU_BACKWARD, "f32[8]", "f32[8] partial(x)", NULL, "PARTIAL_OPERAND"},
      /* a pending sum over one mesh dim and a pending maximum over another do not commute */
      {OP_ADD, "f32[8] partial(x: max)", "f32[8] partial(y: avg)", NULL, "PARTIAL_MIXED"},
      {OP_NEG, "f32[8] partial(x, y: max)", NULL, NULL, "PARTIAL_MIXED"},
      {OP_NEG, "i32[8] partial(x: avg)", NULL, NULL, "PARTIAL_DTYPE"},
      {OP_NEG, "f32[8] partial(x: and)", NULL, NULL, "PARTIAL_DTYPE"},
  };
  CHECK_ROWS(rows);
}
END_TEST

START_TEST(cast_rows) {
  static const struct {
    const char *from;
    DType to;
    const char *want;
  } rows[] = {
      {"f32[8] partial(x)", DT_F16, "PARTIAL_CAST"},
      {"f16[8] partial(x)", DT_F32, "f32[8] partial(x)"},
      {"f32[8] partial(x: max)", DT_F16, "f16[8] partial(x: max)"},
      {"f32[8] partial(x: product)", DT_BF16, "PARTIAL_CAST"},
      {"i32[8] partial(x)", DT_F64, "f64[8] partial(x)"},
      {"i32[8] partial(x)", DT_F32, "PARTIAL_CAST"},
      {"f32[8] partial(x: max)", DT_BOOL, "PARTIAL_CAST"},
      {"bool[8] partial(x: max)", DT_F32, "f32[8] partial(x: max)"},
      {"i32[8] partial(x: and)", DT_I64, "PARTIAL_CAST"},
      {"f32[8@x]", DT_F16, "f16[8@x]"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    infer_text(OP_CAST, &ATTR_I(DTYPE, rows[i].to), 1, rows[i].from, NULL, NULL);
    expect(rows[i].want);
  }
}
END_TEST

START_TEST(reductions) {
  static const int64_t d0[] = {0}, d1[] = {1};
  static const struct {
    Op op;
    const int64_t *dims; /* one dim; NULL = all */
    const char *a, *want;
  } rows[] = {
      {OP_SUM, d0, "f32[8@x, 4]", "f32[4] partial(x)"},
      {OP_SUM, d1, "f32[8@x, 4]", "f32[8@x]"},
      {OP_MEAN, NULL, "f32[3@x, 4]", "f32[] partial(x)"},
      {OP_MEAN, d0, "f32[8] partial(x: avg)", "f32[] partial(x: avg)"},
      {OP_MEAN, d0, "bool[8@x]", "f32[] partial(x)"},
      {OP_MEAN, d0, "i32[8]", "OPERAND_DTYPE"},
      {OP_SUM, d0, "bool[8@x]", "i64[] partial(x)"},
      {OP_MAX, d0, "f32[8@x]", "f32[] partial(x: max)"},
      {OP_MIN, d0, "f32[8@x]", "f32[] partial(x: min)"},
      {OP_PROD, d0, "f32[8@x]", "f32[] partial(x: product)"},
      {OP_ANY, d0, "bool[8@x]", "bool[] partial(x: max)"},
      {OP_ALL, d0, "bool[8@x]", "bool[] partial(x: min)"},
      {OP_NORM_L1, d0, "f32[8@x]", "f32[] partial(x)"},
      {OP_NORM_INF, d0, "f32[8@x]", "f32[] partial(x: max)"},
      {OP_NORM_L2, d0, "f32[8@x]", "SHARDED_DIM"},
      {OP_LOGSUMEXP, d0, "f32[8@x]", "SHARDED_DIM"},
      {OP_VAR, d1, "f32[8@x, 4]", "f32[8@x]"},
      {OP_MAX, d0, "f32[8] partial(x)", "PARTIAL_OPERAND"},
      {OP_MAX, d0, "f32[8] partial(x: max)", "f32[] partial(x: max)"},
      {OP_SUM, d0, "f32[8] partial(x: max)", "PARTIAL_OPERAND"},
      {OP_SUM, d0, "f32[8@y] partial(x: avg)", "f32[] partial(x: avg, y)"},
      {OP_MAX, d0, "f32[0, 4]", "EMPTY_EXTREMUM"},
      {OP_SUM, d0, "f32[0, 4]", "f32[4]"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    infer_text(rows[i].op, &ATTR_INTS(DIMS, rows[i].dims, 1), rows[i].dims ? 1 : 0, rows[i].a, NULL,
               NULL);
    expect(rows[i].want);
  }
}
END_TEST

START_TEST(whole_dims) {
  static const Row rows[] = {
      {OP_SOFTMAX, "f32[8@x, 4]", NULL, NULL, "f32[8@x, 4]"},
      {OP_SOFTMAX, "f32[8, 4@x]", NULL, NULL, "SHARDED_DIM"},
      {OP_SOFTMAX, "f32[8, 4] partial(x)", NULL, NULL, "PARTIAL_OPERAND"},
      {OP_SOFTMAX_BACKWARD, "f32[8, 4] partial(x)", "f32[8, 4]", NULL, "f32[8, 4] partial(x)"},
      {OP_LAYER_NORM, "f32[8@x, 4]", "f32[4]", "f32[4]", "f32[8@x, 4]"},
      {OP_LAYER_NORM, "f32[8@x, 4]", "f32[4] partial(x)", NULL, "PARTIAL_OPERAND"},
      {OP_LAYER_NORM, "f32[8@x, 4]", "f32[4@y]", NULL, "SHARD_MISMATCH"},
      {OP_RMS_NORM, "f32[8, 4@x]", "f32[4@x]", NULL, "SHARDED_DIM"},
      {OP_ARGMAX, "f32[8@x, 4]", NULL, NULL, "i64[8@x]"},
      {OP_ARGMAX, "f32[8, 4@x]", NULL, NULL, "SHARDED_DIM"},
      {OP_CUMSUM, "f32[8, 4@x]", NULL, NULL, "SHARDED_DIM"},
      {OP_SORT, "f32[8@x, 4]", NULL, NULL, "f32[8@x, 4]"},
  };
  CHECK_ROWS(rows);
}
END_TEST

START_TEST(reshape_keeps_or_refuses) {
  static const struct {
    const char *from;
    int64_t to[4];
    uint32_t rank;
    const char *want;
  } rows[] = {
      {"f32[12, 8@x]", {16, 6}, 2, "RESHAPE_SHARD"},
      {"f32[5@y, 4]", {-1}, 1, "RESHAPE_SHARD"}, /* uneven */
      {"f32[6@y, 4]", {-1}, 1, "f32[24@y]"},
      {"f32[6, 4@x]", {-1}, 1, "RESHAPE_SHARD"}, /* not leading */
      {"f32[12@(x,y)]", {3, 4}, 2, "RESHAPE_SHARD"},
      {"f32[12@(x,y)]", {6, 2}, 2, "f32[6@(x,y), 2]"},
      {"f32[12@x]", {3, 4}, 2, "RESHAPE_SHARD"},
      {"f32[12@y]", {3, 4}, 2, "f32[3@y, 4]"},
      {"f32[5@x, 8]", {5, 2, 4}, 3, "f32[5@x, 2, 4]"}, /* one to one: uneven is fine */
      {"f32[5@x, 8@y]", {5, 8}, 2, "f32[5@x, 8@y]"},
      {"f32[1, 6@x, 4]", {24}, 1, "f32[24@x]"}, /* extent 1 does not lead */
      {"f32[1@x, 6]", {6}, 1, "SHARDED_BROADCAST"},
      {"f32[6@x]", {1, 6, 1}, 3, "f32[1, 6@x, 1]"},
      {"f32[4, 1@x, 6]", {4, 1, 2, 3}, 4, "f32[4, 1@x, 2, 3]"}, /* in the place where it was */
      {"f32[1@x, 6]", {1, 1, 6}, 3, "f32[1@x, 1, 6]"},
      {"f32[4, 1@x, 6]", {1, 4, 6}, 3, "SHARDED_BROADCAST"},
      {"f32[6@x, 4] partial(y: max)", {3, 8}, 2, "RESHAPE_SHARD"},
      {"f32[4@x, 6] partial(y: max)", {8, 3}, 2, "f32[8@x, 3] partial(y: max)"},
      {"f32[6, 4]", {5, 5}, 2, "OPERATOR_ARGUMENT"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    infer_text(OP_RESHAPE, &ATTR_INTS(SHAPE, rows[i].to, rows[i].rank), 1, rows[i].from, NULL,
               NULL);
    expect(rows[i].want);
  }
}
END_TEST

START_TEST(movement_rows) {
  infer_text(OP_PERMUTE, &ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2), 1, "f32[8@x, 4@y]", NULL, NULL);
  expect("f32[4@y, 8@x]");
  infer_text(OP_UNSQUEEZE, &ATTR_I(DIM, 0), 1, "f32[8@x]", NULL, NULL);
  expect("f32[1, 8@x]");
  infer_text(OP_SQUEEZE, &ATTR_I(DIM, 0), 1, "f32[1@x, 8]", NULL, NULL);
  expect("SHARDED_BROADCAST");
  infer_text(OP_EXPAND, &ATTR_INTS(SHAPE, ((int64_t[]){4, 8}), 2), 1, "f32[1@x, 8]", NULL, NULL);
  expect("SHARDED_BROADCAST");
  Attr slice[] = {ATTR_I(DIM, 0), ATTR_I(START, 2), ATTR_I(STOP, 6)};
  infer_text(OP_SLICE, slice, 3, "f32[8@x, 4]", NULL, NULL);
  expect("SHARD_BOUNDARY");
  infer_text(OP_SLICE, slice, 3, "f32[8, 4@x] partial(y: min)", NULL, NULL);
  expect("f32[4, 4@x] partial(y: min)");
  Attr whole[] = {ATTR_I(DIM, 0), ATTR_I(START, 0), ATTR_I(STOP, 8)};
  infer_text(OP_SLICE, whole, 3, "f32[8@x, 4]", NULL, NULL);
  expect("f32[8@x, 4]");
  Attr pad[] = {ATTR_I(DIM, 0), ATTR_I(AFTER, 1), ATTR_F(VALUE, 1)};
  infer_text(OP_PAD, pad, 3, "f32[8] partial(x)", NULL, NULL);
  expect("PARTIAL_OPERAND");
  infer_text(OP_PAD, pad, 3, "f32[8] partial(x: product)", NULL, NULL);
  expect("f32[9] partial(x: product)");
  infer_text(OP_CONCAT, NULL, 0, "f32[8] partial(x)", "f32[8]", NULL);
  expect("PARTIAL_OPERAND");
  infer_text(OP_CONCAT, NULL, 0, "f32[2, 8@x]", "f32[3, 8@x]", NULL);
  expect("f32[5, 8@x]");
  infer_text(OP_CONCAT, NULL, 0, "f32[2@x, 8]", "f32[2@x, 8]", NULL);
  expect("SHARD_BOUNDARY");
  infer_text(OP_TRIL, NULL, 0, "f32[8@x, 8@y]", NULL, NULL);
  expect("f32[8@x, 8@y]");
}
END_TEST

START_TEST(indexing_rows) {
  static const Row rows[] = {
      {OP_EMBEDDING, "i64[8@x]", "f32[10, 4]", NULL, "f32[8@x, 4]"},
      {OP_EMBEDDING, "i64[8]", "f32[10, 4@x]", NULL, "f32[8, 4@x]"},
      {OP_EMBEDDING, "i64[8]", "f32[10@x, 4]", NULL, "f32[8, 4] partial(x)"},
      {OP_EMBEDDING, "i64[8@y]", "f32[10@x, 4]", NULL, "f32[8@y, 4] partial(x)"},
      {OP_EMBEDDING, "i64[8@x]", "f32[10@x, 4]", NULL, "SHARD_MISMATCH"},
      {OP_EMBEDDING, "f32[8]", "f32[10, 4]", NULL, "OPERAND_DTYPE"},
      {OP_EMBEDDING, "i64[8] partial(x: max)", "f32[10, 4]", NULL, "PARTIAL_OPERAND"},
      {OP_GATHER, "f32[8, 4@x]", "i64[3, 4@x]", NULL, "f32[3, 4@x]"},
      {OP_GATHER, "f32[8@x, 4]", "i64[3, 4]", NULL, "SHARDED_DIM"},
      {OP_GATHER, "f32[8, 4@x]", "i64[3, 4]", NULL, "SHARD_MISMATCH"},
      {OP_GATHER, "f32[8, 4@x]", "i64[3, 2]", NULL, "SHARDED_DIM"},
      {OP_SCATTER_ADD, "f32[8, 4@x]", "i64[3, 4@x]", "f32[3, 4@x]", "f32[8, 4@x]"},
      {OP_SCATTER_ADD, "f32[8, 4]", "i64[3, 4]", "f32[3, 4] partial(x)", "PARTIAL_OPERAND"},
      {OP_CROSS_ENTROPY, "bf16[8@x, 10@y]", "i64[8@x]", NULL, "f32[] partial(x)"},
      {OP_CROSS_ENTROPY, "f32[8, 10@y]", "i64[8]", "f32[10@y]", "f32[]"},
      {OP_CROSS_ENTROPY, "f32[8, 10@y]", "i64[8]", "f32[10]", "SHARD_MISMATCH"},
      {OP_CROSS_ENTROPY, "f32[8, 10] partial(x)", "i64[8]", NULL, "PARTIAL_OPERAND"},
  };
  CHECK_ROWS(rows);
  TensorType cut = type_from_text(&mesh, "f32[10@y, 4]");
  Attr attrs[] = {ATTR_I(EXTENT, 10), ATTR_T(TYPE, &cut)};
  infer_text(OP_EMBEDDING_BACKWARD, attrs, 2, "f32[8@x, 4]", "i64[8@x]", NULL);
  expect("f32[10@y, 4] partial(x)");
  infer_text(OP_EMBEDDING_BACKWARD, attrs, 2, "f32[8@y, 4]", "i64[8@y]", NULL);
  expect("SHARD_MISMATCH");
}
END_TEST

START_TEST(random_rows) {
  Attr attrs[] = {ATTR_F(P, 0.5), ATTR_I(INSTANCE, 1)};
  infer_text(OP_DROPOUT, attrs, 2, "f32[8@x, 6@y]", NULL, NULL);
  expect("f32[8@x, 6@y]");
  infer_text(OP_DROPOUT, attrs, 2, "f32[8] partial(x)", NULL, NULL);
  expect("PARTIAL_OPERAND");
  infer_text(OP_DROPOUT_BACKWARD, attrs, 2, "f32[8] partial(x)", NULL, NULL);
  expect("f32[8] partial(x)");
}
END_TEST

/* Partial(a) -> Partial(b) exists for no a != b; anything else whose Partial the source has does.
 */
START_TEST(redistribute_targets) {
  static const char *const ops[] = {"sum", "avg", "product", "max", "min"};
  for (int a = 0; a < 5; a++)
    for (int b = 0; b < 5; b++) {
      const char *from = arena_printf(&arena, "f32[8] partial(x: %s)", ops[a]);
      TensorType to = type_from_text(&mesh, arena_printf(&arena, "f32[8] partial(x: %s)", ops[b]));
      infer_text(OP_REDISTRIBUTE, &ATTR_T(TYPE, &to), 1, from, NULL, NULL);
      expect(a == b ? type_print(&arena, &to) : "REDISTRIBUTE_TARGET");
    }
  static const char *const good[][2] = {{"f32[8@x, 4]", "f32[8, 4@(y,x)]"},
                                        {"f32[8]", "f32[8] partial(y: max)"},
                                        {"f32[8@x]", "f32[8] partial(x)"},
                                        {"f32[8] partial(x)", "f32[8] partial(y)"},
                                        {"f32[8] partial(x: max)", "f32[8@x]"}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    TensorType to = type_from_text(&mesh, good[i][1]);
    infer_text(OP_REDISTRIBUTE, &ATTR_T(TYPE, &to), 1, good[i][0], NULL, NULL);
    expect(type_print(&arena, &to));
  }
  TensorType to = type_from_text(&mesh, "f32[8] partial(x: max)");
  infer_text(OP_REDISTRIBUTE, &ATTR_T(TYPE, &to), 1, "f32[8@x]", NULL, NULL);
  expect("REDISTRIBUTE_TARGET");
}
END_TEST

START_TEST(one_mesh) {
  Mesh other;
  mesh_of(&other, 2, (int64_t[]){2, 3});
  Operand operands[2] = {{.type = type_from_text(&mesh, "f32[8]")},
                         {.type = type_from_text(&other, "f32[8]")}};
  infer_node(&arena, OP_ADD, operands, 2, NULL, 0, &out);
  expect("MESH_MISMATCH");
}
END_TEST

/* Every candidate leads to a row; the cheapest ways out are among them. */
START_TEST(fixes_have_rows) {
  infer_text(OP_GELU, NULL, 0, "f32[8@x, 6] partial(y)", NULL, NULL);
  ck_assert_uint_eq(out.nfixes, 3);
  ck_assert_str_eq(type_print(&arena, &out.fixes[0].to), "f32[8@x, 6]");
  ck_assert_str_eq(type_print(&arena, &out.fixes[1].to), "f32[8@(x,y), 6]");
  ck_assert_str_eq(type_print(&arena, &out.fixes[2].to), "f32[8@x, 6@y]");
  infer_text(OP_MATMUL, NULL, 0, "f32[4, 6@(x,y)]", "f32[6@(y,x), 8]", NULL);
  bool reordered = false;
  for (uint32_t k = 0; k < out.nfixes; k++)
    reordered |= strcmp(type_print(&arena, &out.fixes[k].to), "f32[6@(x,y), 8]") == 0;
  ck_assert(reordered);
  /* A value beside a pending sum: reduce the sum, or let one rank hold the value. */
  infer_text(OP_ADD, NULL, 0, "f32[6, 4] partial(y)", "f32[4]", NULL);
  bool reduced = false, filled = false;
  for (uint32_t k = 0; k < out.nfixes; k++) {
    const char *to = type_print(&arena, &out.fixes[k].to);
    reduced |= out.fixes[k].operand == 0 && strcmp(to, "f32[6, 4]") == 0;
    filled |= out.fixes[k].operand == 1 && strcmp(to, "f32[4] partial(y)") == 0;
  }
  ck_assert(reduced && filled);
}
END_TEST

START_TEST(reasons_are_sentences) {
  infer_text(OP_GELU, NULL, 0, "f32[8] partial(x)", NULL, NULL);
  ck_assert_str_eq(out.message, "gelu cannot take a Partial operand on mesh dim x");
  ck_assert_str_eq(out.reason, "gelu is not linear: gelu of a sum is not the sum of gelus");
  infer_text(OP_MATMUL, NULL, 0, "f32[4, 6@x]", "f32[6, 8]", NULL);
  ck_assert_str_eq(out.reason,
                   "dim 1 of the left operand is sharded on x, but dim 0 of the right operand is "
                   "not sharded: the local extents 3 and 6 do not conform");
  infer_text(OP_LINEAR, NULL, 0, "f32[8, 4@x]", "f32[6, 4@x]", NULL);
  ck_assert_str_eq(out.why_partial[0],
                   "linear contracts dim 1 of the input, which is sharded on x on both sides");
}
END_TEST

START_TEST(hostile_sizes) {
  static const int64_t huge[] = {(int64_t)1 << 40, (int64_t)1 << 40};
  infer_text(OP_EXPAND, &ATTR_INTS(SHAPE, huge, 2), 1, "f32[1, 1]", NULL, NULL);
  expect("OPERAND_SHAPE");
  infer_text(OP_RESHAPE, &ATTR_INTS(SHAPE, huge, 2), 1, "f32[1, 1]", NULL, NULL);
  expect("OPERATOR_ARGUMENT");
  Attr pad[] = {ATTR_I(DIM, 0), ATTR_I(BEFORE, INT64_MAX), ATTR_I(AFTER, INT64_MAX)};
  infer_text(OP_PAD, pad, 3, "f32[4]", NULL, NULL);
  expect("OPERATOR_ARGUMENT");
  infer_text(OP_RELU, &ATTR_I(DIM, 0), 1, "f32[4]", NULL, NULL);
  expect("OPERATOR_ARGUMENT");
  infer_text(OP_ADD, NULL, 0, "f32[4]", NULL, NULL);
  expect("OPERATOR_ARGUMENT");
}
END_TEST

/* --- infer_add: nodes in a graph ----------------------------------------------------------------
 */

static Sources sources;
static DiagSink sink;
static Graph *graph;

static void setup_graph(void) {
  setup();
  sources_init(&sources, &arena);
  diag_init(&sink, &arena, &sources);
  sources_add(&sources, "mlp.dtm", "let y = linear(x, w)\nlet z = gelu(y)\n", 37);
  graph = graph_new(&arena, "train");
}

static ValueId add_node(Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                        uint32_t nattrs, Span span) {
  NodeId id = infer_add(graph, &sink, op, operands, n, attrs, nattrs, span, NULL, 0);
  return node_result(graph_node(graph, id), 0);
}

static ValueId read_value(const char *type) {
  TensorType t = type_from_text(&mesh, type);
  return add_node(OP_READ, NULL, 0, (Attr[]){ATTR_I(VAR, 0), ATTR_T(TYPE, &t)}, 2, (Span){0});
}

START_TEST(slices_are_nodes) {
  ValueId operands[] = {read_value("f32[8@(x,y), 4]"), read_value("f32[4]"), 0};
  ValueId y = add_node(OP_ADD, operands, 2, NULL, 0, (Span){0});
  ck_assert_uint_eq(graph->nodes.len, 4); /* a broadcast dim is not sliced */
  operands[0] = y;
  operands[1] = read_value("f32[8@x, 4]");
  y = add_node(OP_ADD, operands, 2, NULL, 0, (Span){0});
  const Node *add = value_node(graph, y), *slice = value_node(graph, add->operands[1]);
  ck_assert_int_eq(slice->op, OP_REDISTRIBUTE);
  ck_assert_int_eq(node_int(slice, ATTR_IMPLICIT, 0), 1);
  ck_assert_str_eq(type_print(&arena, value_type(graph, add->operands[1])), "f32[8@(x,y), 4]");
}
END_TEST

START_TEST(attributes_are_canonical) {
  ValueId x = read_value("f32[6@x, 4, 5]");
  ValueId y = add_node(OP_SUM, &x, 1, &ATTR_INTS(DIMS, ((int64_t[]){-1, 1}), 2), 1, (Span){0});
  const Attr *dims = node_attr(value_node(graph, y), ATTR_DIMS);
  ck_assert(dims->as.ints.len == 2 && dims->as.ints.data[0] == 1 && dims->as.ints.data[1] == 2);
  ck_assert_int_eq(node_int(value_node(graph, y), ATTR_KEEPDIM, 7), 0);
  y = add_node(OP_MEAN, &x, 1, NULL, 0, (Span){0});
  ck_assert_uint_eq(node_attr(value_node(graph, y), ATTR_DIMS)->as.ints.len, 3);
  y = add_node(OP_SOFTMAX, &x, 1, NULL, 0, (Span){0});
  ck_assert_int_eq(node_int(value_node(graph, y), ATTR_DIM, 7), 2);
  y = add_node(OP_RESHAPE, &x, 1, &ATTR_INTS(SHAPE, ((int64_t[]){6, -1}), 2), 1, (Span){0});
  ck_assert_int_eq(node_attr(value_node(graph, y), ATTR_SHAPE)->as.ints.data[1], 20);
  y = add_node(OP_UNSQUEEZE, &x, 1, &ATTR_I(DIM, -1), 1, (Span){0});
  ck_assert_str_eq(type_print(&arena, value_type(graph, y)), "f32[6@x, 4, 5, 1]");
  ck_assert_int_eq(node_int(value_node(graph, y), ATTR_DIM, 7), 3);
}
END_TEST

/* One fault: message, operand types, reason, where the placement came from, candidates; what is
 * computed from the poisoned value is silent. */
START_TEST(faults_are_diagnosed) {
  Span linear = {1, 8, 20}, gelu = {1, 29, 36};
  ValueId operands[] = {read_value("f32[8@x, 6@y]"), read_value("f32[4, 6@y]")};
  ValueId y = add_node(OP_LINEAR, operands, 2, NULL, 0, linear);
  ValueId z = add_node(OP_GELU, &y, 1, NULL, 0, gelu);
  ck_assert(graph_value(graph, z)->poisoned);
  ValueId silent = add_node(OP_RELU, &z, 1, NULL, 0, (Span){0});
  ck_assert(graph_value(graph, silent)->poisoned);
  ck_assert_uint_eq(sink.errors, 1);
  const Diag *d = sink.diags.data[0];
  ck_assert_int_eq(d->code, DIAG_PARTIAL_OPERAND);
  ck_assert_str_eq(d->message, "gelu cannot take a Partial operand on mesh dim y");
  ck_assert_str_eq(d->label, "operand is f32[8@x, 4] partial(y)");
  ck_assert_uint_eq(d->lines.len, 2);
  ck_assert_str_eq(d->lines.data[1].text,
                   "partial since mlp.dtm:1:9: linear contracts dim 1 of the input, which is "
                   "sharded on y on both sides");
  ck_assert_uint_eq(d->fixes.len, 3);
  ck_assert_str_eq(type_print(&arena, &d->fixes.data[0]->to), "f32[8@x, 4]");
}
END_TEST

/* The printed rows are those of the table; one line for ops and constants that behave alike. */
START_TEST(rows_print) {
  const char *linear = infer_explain(&arena, OP_LINEAR, NULL);
  ck_assert_ptr_nonnull(strstr(linear, "    [b, i@x], [o, i@x]  ->  [b, o] partial(x: sum)\n"));
  ck_assert_ptr_nonnull(strstr(linear, "    [b, i] partial(x: sum|avg), [o, i]  ->  "
                                       "[b, o] partial(x: sum|avg)\n"));
  ck_assert_ptr_null(strstr(linear, "[b, i@x], [o, i]  ->"));
  const char *mul = infer_explain(&arena, OP_MUL, NULL);
  ck_assert_ptr_nonnull(strstr(mul, "    [a, b] partial(x: max|min), c >= 0  ->  "
                                    "[a, b] partial(x: max|min)\n"));
  ck_assert_ptr_nonnull(strstr(mul, "    [a, b] partial(x: max), c < 0  ->  "
                                    "[a, b] partial(x: min)\n"));
  ck_assert_ptr_nonnull(
      strstr(infer_explain(&arena, OP_RESHAPE, NULL), "[a@x, b]  ->  [(a*b)@x]\n"));
  const char *reference = infer_reference(&arena);
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    ck_assert_msg(strstr(reference, op_name((Op)op)) != NULL, "%s", op_name((Op)op));
}
END_TEST

int main(void) {
  Suite *s = suite_create("infer");
  TCase *c = tcase_create("rows");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, matmul_rows);
  tcase_add_test(c, linear_rows);
  tcase_add_test(c, pointwise_lists);
  tcase_add_test(c, pointwise_partial);
  tcase_add_test(c, cast_rows);
  tcase_add_test(c, reductions);
  tcase_add_test(c, whole_dims);
  tcase_add_test(c, reshape_keeps_or_refuses);
  tcase_add_test(c, movement_rows);
  tcase_add_test(c, indexing_rows);
  tcase_add_test(c, random_rows);
  tcase_add_test(c, redistribute_targets);
  tcase_add_test(c, one_mesh);
  tcase_add_test(c, fixes_have_rows);
  tcase_add_test(c, reasons_are_sentences);
  tcase_add_test(c, rows_print);
  tcase_add_test(c, hostile_sizes);
  suite_add_tcase(s, c);
  c = tcase_create("graph");
  tcase_add_checked_fixture(c, setup_graph, teardown);
  tcase_add_test(c, slices_are_nodes);
  tcase_add_test(c, attributes_are_canonical);
  tcase_add_test(c, faults_are_diagnosed);
  suite_add_tcase(s, c);
  return suite_run(s);
}
