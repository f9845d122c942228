/* Fused kernels against the reference interpreter: fusion on and off, meshes, uneven and empty
 * shards, extents of zero; and the structure that fusion promises. */
#include "kernel_bench.h"
#include "support/suite.h"

/* NVRTC takes its time: as CUDA C only what is cut as for a GPU. */
#ifdef DTM_TEST_CUDA
enum { ONLY_FINE = 1 };
#else
enum { ONLY_FINE = 0 };
#endif

static Arena arena;
static Mesh one, two, six;
static KernelSet kernels;
static Jit jit;

typedef struct Case {
  const char *name;
  void (*build)(Bench *b);
  Mesh *mesh;
  uint32_t most; /* kernel calls when fused; 0 = not stated */
} Case;

/* --- programs ---- */

static void build_chain(Bench *b) {
  ValueId x = bench_var(b, "f32[37, 21]", -2, 2), y = bench_var(b, "f32[21]", -2, 2);
  ValueId z = bench_1(b, OP_GELU, bench_2(b, OP_ADD, bench_2(b, OP_MUL, x, y), x));
  bench_keep(b, bench_1(b, OP_TANH, z));
  bench_keep(b, bench_2(b, OP_GT, z, x));
}

static void build_softmax(Bench *b) {
  static const char *const types[] = {"f32[5, 1]",   "f32[5, 16]",   "f32[3, 4, 100]",
                                      "f32[0, 7]",   "f32[1, 33]",   "f64[4, 19]",
                                      "bf16[6, 50]", "f32[2, 3, 17]"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    ValueId x = bench_var(b, types[i], -4, 4);
    bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, -1))));
  }
}

static void build_softmax_inner(Bench *b) { /* not the innermost dim */
  ValueId x = bench_var(b, "f32[5, 9, 20]", -4, 4);
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 1))));
}

static void build_log_softmax(Bench *b) {
  ValueId x = bench_var(b, "f32[11, 40]", -4, 4), g = bench_var(b, "f32[11, 40]", -1, 1);
  ValueId y = bench_op(b, OP_LOG_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 1)));
  bench_keep(b, y);
  bench_keep(
      b, bench_op(b, OP_LOG_SOFTMAX_BACKWARD, (const ValueId[]){g, y}, 2, ATTRS(ATTR_I(DIM, 1))));
}

static void build_layer_norm(Bench *b) {
  ValueId x = bench_var(b, "f32[9, 50]", -3, 3);
  ValueId w = bench_var(b, "f32[50]", -1, 1), c = bench_var(b, "f32[50]", -1, 1);
  bench_keep(b, bench_op(b, OP_LAYER_NORM, (const ValueId[]){x, w, c}, 3,
                         ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5))));
}

static void build_layer_norm_2d(Bench *b) {
  ValueId x = bench_var(b, "f32[6, 7, 5]", -3, 3);
  ValueId w = bench_var(b, "f32[7, 5]", -1, 1), c = bench_var(b, "f32[7, 5]", -1, 1);
  bench_keep(b, bench_op(b, OP_LAYER_NORM, (const ValueId[]){x, w, c}, 3,
                         ATTRS(ATTR_I(NDIMS, 2), ATTR_F(EPS, 1e-5))));
}

static void build_rms_norm_backward(Bench *b) {
  ValueId g = bench_var(b, "f32[33, 50]", -3, 3), x = bench_var(b, "f32[33, 50]", -3, 3);
  ValueId w = bench_var(b, "f32[50]", -1, 1);
  ValueId d = bench_op(b, OP_RMS_NORM_BACKWARD, (const ValueId[]){g, x, w}, 3,
                       ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5)));
  ValueId n = bench_op(b, OP_RMS_NORMALIZE, &x, 1, ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5)));
  bench_keep(b, d);
  bench_keep(b, bench_reduce(b, OP_SUM, bench_2(b, OP_MUL, g, n), DIMS(0), false));
}

/* Reductions of rows and, of what comes of them, over rows: what a norm does on its way back. */
static void build_norm_gradients(Bench *b) {
  static const struct {
    const char *type, *row;
  } of[] = {{"f32[9, 48]", "f32[48]"},     {"f32[3, 1]", "f32[1]"},
            {"f32[0, 16]", "f32[16]"},     {"f32[300, 132]", "f32[132]"},
            {"f64[7, 20]", "f64[20]"},     {"bf16[20, 40]", "bf16[40]"},
            {"f32[3, 2052]", "f32[2052]"}, {"f32[2, 8256]", "f32[8256]"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    ValueId g = bench_var(b, of[i].type, -3, 3), x = bench_var(b, of[i].type, -3, 3);
    ValueId w = bench_var(b, of[i].row, -1, 1);
    bench_keep(b, bench_op(b, OP_RMS_NORM_BACKWARD, (const ValueId[]){g, x, w}, 3,
                           ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5))));
    ValueId n = bench_op(b, OP_RMS_NORMALIZE, &x, 1, ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5)));
    bench_keep(b, bench_reduce(b, OP_SUM, bench_2(b, OP_MUL, g, n), DIMS(0), false));
    bench_keep(b, bench_reduce(b, OP_SUM, g, DIMS(0), false));
    if (i)
      bench_keep(b, bench_reduce(b, OP_SUM, n, DIMS(0, 1), false));
    else
      bench_keep(b, bench_reduce(b, OP_MAX, n, DIMS(0), false));
  }
}

static void build_residual_norm(Bench *b) {
  ValueId x = bench_var(b, "f32[12, 48]", -3, 3), y = bench_var(b, "f32[12, 48]", -3, 3);
  ValueId h = bench_2(b, OP_ADD, x, y);
  bench_keep(b, h);
  bench_keep(b, bench_op(b, OP_RMS_NORM, &h, 1, ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5))));
}

static void build_bias_gradient(Bench *b) {
  ValueId g = bench_var(b, "f32[70, 33]", -3, 3), h = bench_var(b, "f32[70, 33]", -3, 3);
  ValueId zero = bench_const(b, DT_F32, 0);
  ValueId d = bench_3(b, OP_WHERE, bench_2(b, OP_GT, h, zero), g, zero);
  bench_keep(b, d);
  bench_keep(b, bench_reduce(b, OP_SUM, d, DIMS(0), false));
}

static void build_reductions(Bench *b) {
  static const Op ops[] = {OP_SUM, OP_PROD, OP_MAX, OP_MIN, OP_MEAN};
  static const char *const types[] = {"f32[3, 5, 20]", "f64[3, 5, 20]", "f32[1, 5, 1]",
                                      "f32[200, 3, 40]"};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
      ValueId x = bench_var(b, types[t], -1.5, 1.5);
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(0), false));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(1), false));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(2), true));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(0, 2), false));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(0, 1), true));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(1, 2), false));
      bench_keep(b, bench_reduce(b, ops[i], x, DIMS(0, 1, 2), false));
    }
}

static void build_reductions_empty(Bench *b) {
  static const char *const types[] = {"f32[0, 5, 20]", "f32[3, 0, 20]", "f32[3, 5, 0]"};
  for (size_t t = 0; t < 3; t++) {
    ValueId x = bench_var(b, types[t], -1.5, 1.5);
    for (int64_t d = 0; d < 3; d++) bench_keep(b, bench_reduce(b, OP_SUM, x, &d, 1, false));
    bench_keep(b, bench_reduce(b, OP_SUM, x, DIMS(0, 2), false));
    bench_keep(b, bench_reduce(b, OP_PROD, x, DIMS(0, 1, 2), false));
    ValueId y = bench_1(b, OP_EXP, x); /* as it is and turned, in one kernel */
    bench_keep(b, y);
    bench_keep(b,
               bench_op(b, OP_PERMUTE, &y, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){2, 0, 1}), 3))));
  }
}

static void build_large_sums(Bench *b) { /* two levels */
  ValueId x = bench_var(b, "f32[700, 601]", -1, 1), y = bench_var(b, "bf16[3000, 300]", -1, 1);
  b->tolerance = 1e-5;
  bench_keep(b, bench_reduce(b, OP_SUM, bench_2(b, OP_MUL, x, x), DIMS(0, 1), false));
  bench_keep(b, bench_reduce(b, OP_SUM, x, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_MAX, x, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_SUM, y, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_MAX, y, DIMS(0, 1), false));
}

/* One long dim: cut into blocks; on several ranks unevenly. */
static void build_long_sums(Bench *b) {
  static const char *const types[] = {"f32[100003]", "bf16[50001]", "i64[40000]"};
  b->tolerance = 1e-6;
  for (size_t t = 0; t < 3; t++) {
    ValueId x = bench_var(b, types[t], -3, 4), y = bench_2(b, OP_MUL, x, x);
    bench_keep(b, y);
    bench_keep(b, bench_reduce(b, OP_SUM, y, DIMS(0), false));
    bench_keep(b, bench_reduce(b, OP_MAX, x, DIMS(0), true));
    if (t != 2) bench_keep(b, bench_reduce(b, OP_MEAN, x, DIMS(0), false));
  }
}

static void build_long_sums_sharded(Bench *b) {
  ValueId x = bench_var(b, "f32[100003@(x,y)]", -3, 4);
  b->tolerance = 1e-6;
  bench_keep(b, bench_reduce(b, OP_SUM, bench_1(b, OP_ABS, x), DIMS(0), false));
  ValueId few = bench_var(b, "f32[2@(x,y), 40000]", -3, 4); /* none on some ranks */
  bench_keep(b, bench_reduce(b, OP_SUM, few, DIMS(0, 1), false));
}

/* A tensor with many values per row: the rows are what memory is read along. */
static void build_row_values(Bench *b) {
  ValueId y = bench_var(b, "f32[9, 33]", -2, 2);
  for (int i = 0; i < 5; i++) y = bench_2(b, OP_ADD, y, bench_var(b, "f32[9, 1]", -2, 2));
  bench_keep(b, bench_1(b, OP_EXP, y));
}

static void build_integers(Bench *b) {
  static const char *const types[] = {"i64[5, 30]", "i32[5, 30]", "i16[5, 30]", "i8[5, 30]",
                                      "u8[5, 30]"};
  for (size_t t = 0; t < 5; t++) {
    double lo = t == 4 ? 0 : -5;
    ValueId x = bench_var(b, types[t], lo, 6), y = bench_var(b, types[t], 1, 4);
    static const Op ops[] = {OP_ADD,  OP_MUL,     OP_FLOOR_DIV,   OP_TRUNC_DIV,   OP_REMAINDER,
                             OP_FMOD, OP_MAXIMUM, OP_BITWISE_AND, OP_BITWISE_XOR, OP_SHIFT_RIGHT};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) bench_keep(b, bench_2(b, ops[i], x, y));
    bench_keep(b, bench_2(b, OP_LT, x, y));
    bench_keep(b, bench_reduce(b, OP_MAX, x, DIMS(1), false));
    bench_keep(b, bench_reduce(b, OP_SUM, y, DIMS(0), false));
    bench_keep(b, bench_op(b, OP_ARGMAX, &x, 1, ATTRS(ATTR_I(DIM, 1), ATTR_I(KEEPDIM, false))));
  }
}

static void build_bool(Bench *b) {
  ValueId x = bench_var(b, "f32[9, 37]", -1, 1), zero = bench_const(b, DT_F32, 0.9);
  ValueId p = bench_2(b, OP_GT, x, zero);
  bench_keep(b, bench_reduce(b, OP_ANY, p, DIMS(1), false));
  bench_keep(b, bench_reduce(b, OP_ALL, bench_1(b, OP_LOGICAL_NOT, p), DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_ANY, p, DIMS(0, 1), false));
  bench_keep(b, bench_op(b, OP_CAST, &p, 1, ATTRS(ATTR_I(DTYPE, DT_F32))));
}

static void build_casts(Bench *b) {
  for (int from = DT_F64; from < DT_COUNT; from++) {
    char type[32];
    snprintf(type, sizeof type, "%s[3, 21]", dtype_name((DType)from));
    ValueId x =
        bench_var(b, type, from == DT_U8 || from == DT_BOOL ? 0 : -9, from == DT_BOOL ? 2 : 9);
    for (int to = DT_F64; to < DT_COUNT; to++) {
      if (to == DT_U8 && from != DT_BOOL) continue; /* negative numbers */
      bench_keep(b, bench_op(b, OP_CAST, &x, 1, ATTRS(ATTR_I(DTYPE, to))));
    }
  }
}

static void build_movement(Bench *b) {
  ValueId x = bench_var(b, "f32[6, 10, 18]", -3, 3);
  ValueId y = bench_1(b, OP_EXP, x);
  bench_keep(b,
             bench_op(b, OP_SLICE, &y, 1,
                      ATTRS(ATTR_I(DIM, 2), ATTR_I(START, 3), ATTR_I(STOP, 18), ATTR_I(STEP, 4))));
  bench_keep(
      b, bench_op(b, OP_PAD, &x, 1,
                  ATTRS(ATTR_I(DIM, 2), ATTR_I(BEFORE, 3), ATTR_I(AFTER, 2), ATTR_F(VALUE, 7))));
  bench_keep(
      b, bench_op(b, OP_PAD, &y, 1,
                  ATTRS(ATTR_I(DIM, 0), ATTR_I(BEFORE, 1), ATTR_I(AFTER, 0), ATTR_F(VALUE, 0))));
  bench_keep(
      b, bench_op(b, OP_UNSLICE, &x, 1,
                  ATTRS(ATTR_I(DIM, 1), ATTR_I(START, 1), ATTR_I(STEP, 3), ATTR_I(EXTENT, 30))));
  bench_keep(b, bench_op(b, OP_CONCAT, (const ValueId[]){x, y, x}, 3, ATTRS(ATTR_I(DIM, 2))));
  bench_keep(b, bench_op(b, OP_CONCAT, (const ValueId[]){x, y}, 2, ATTRS(ATTR_I(DIM, 0))));
  bench_keep(b, bench_op(b, OP_FLIP, &x, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){0, 2}), 2))));
  bench_keep(b, bench_op(b, OP_ROLL, &x, 1, ATTRS(ATTR_I(DIM, 2), ATTR_I(SHIFT, 5))));
  bench_keep(b, bench_op(b, OP_ROLL, &y, 1, ATTRS(ATTR_I(DIM, 1), ATTR_I(SHIFT, -3))));
  bench_keep(b, bench_op(b, OP_TRIL, &x, 1, ATTRS(ATTR_I(DIAGONAL, 2))));
  bench_keep(b, bench_op(b, OP_TRIU, &y, 1, ATTRS(ATTR_I(DIAGONAL, -1))));
  ValueId t = bench_op(b, OP_PERMUTE, &y, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){2, 0, 1}), 3)));
  bench_keep(b, t);
  bench_keep(b, bench_1(b, OP_SQRT, t));
  ValueId s = bench_var(b, "f32[7, 7]", -1, 1);
  ValueId st = bench_op(b, OP_PERMUTE, &s, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2)));
  bench_keep(b, bench_2(b, OP_ADD, s, st)); /* one value under two maps */
  ValueId e = bench_1(b, OP_EXP, s);
  ValueId et = bench_op(b, OP_PERMUTE, &e, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2)));
  bench_keep(b, bench_2(b, OP_MUL, e, et));
  ValueId r = bench_op(b, OP_RESHAPE, &y, 1, ATTRS(ATTR_INTS(SHAPE, ((int64_t[]){60, 18}), 2)));
  bench_keep(b, bench_1(b, OP_LOG, r));
}

static ValueId turned(Bench *b, ValueId x, const int64_t *dims, uint32_t n) {
  return bench_op(b, OP_PERMUTE, &x, 1, ATTRS(ATTR_INTS(DIMS, dims, n)));
}

/* The innermost dim becomes another: on a GPU by way of tiles, where both are long enough. */
static void build_turned(Bench *b) {
  static const char *const types[] = {"f32[33, 65]", "f32[64, 32]",   "f32[1, 40]",  "f32[9, 8]",
                                      "f32[0, 40]",  "bf16[70, 131]", "u8[40, 140]", "f64[12, 33]"};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    bench_keep(b, turned(b, bench_var(b, types[i], 0, 9), DIMS(1, 0)));
  /* dims around and between; operands that are turned and that are not, of several types */
  ValueId x = bench_var(b, "f32[2, 40, 35]", -2, 2), h = bench_var(b, "bf16[2, 40, 35]", -2, 2);
  ValueId c = bench_var(b, "f32[35, 1]", -2, 2), u = bench_var(b, "f32[35, 40]", -2, 2);
  bench_keep(b, turned(b, x, DIMS(2, 0, 1)));
  bench_keep(b, turned(b, x, DIMS(2, 1, 0)));
  ValueId wide = bench_op(b, OP_CAST, &h, 1, ATTRS(ATTR_I(DTYPE, DT_F32)));
  ValueId y = bench_2(b, OP_MUL, turned(b, x, DIMS(0, 2, 1)), bench_1(b, OP_EXP, c));
  bench_keep(b, bench_2(b, OP_ADD, bench_2(b, OP_SUB, y, turned(b, wide, DIMS(0, 2, 1))), u));
  /* more than shared memory has room for */
  ValueId sum =
      bench_2(b, OP_ADD, bench_var(b, "f64[33, 20]", 0, 1), bench_var(b, "f64[33, 20]", 0, 1));
  for (int i = 0; i < 3; i++)
    sum = bench_2(b, OP_ADD, sum, turned(b, bench_var(b, "f64[20, 33]", 0, 1), DIMS(1, 0)));
  bench_keep(b, sum);
  /* what is written is turned, and read again as it was; and in both orders */
  ValueId p = bench_var(b, "f32[45, 70]", -2, 2), q = bench_var(b, "f32[45, 70]", -2, 2);
  ValueId r = bench_var(b, "f32[45, 70]", -2, 2),
          z = bench_2(b, OP_MUL, bench_2(b, OP_ADD, p, q), r);
  bench_keep(b, turned(b, z, DIMS(1, 0)));
  bench_keep(b, turned(b, bench_1(b, OP_NEG, p), DIMS(1, 0)));
  bench_keep(b, bench_1(b, OP_EXP, p));
}

static void build_indexing(Bench *b) {
  ValueId ids = bench_var(b, "i64[4, 6]", 0, 11), w = bench_var(b, "f32[11, 20]", -3, 3);
  ValueId e = bench_2(b, OP_EMBEDDING, ids, w);
  bench_keep(b, bench_op(b, OP_RMS_NORM, &e, 1, ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5))));
  ValueId at = bench_var(b, "i32[5]", 0, 11);
  bench_keep(b, bench_op(b, OP_INDEX_SELECT, (const ValueId[]){w, at}, 2, ATTRS(ATTR_I(DIM, 0))));
  ValueId col = bench_var(b, "i64[11, 3]", 0, 20);
  bench_keep(b, bench_op(b, OP_GATHER, (const ValueId[]){w, col}, 2, ATTRS(ATTR_I(DIM, 1))));
  bench_keep(b, bench_op(b, OP_ONE_HOT, &ids, 1, ATTRS(ATTR_I(EXTENT, 11), ATTR_I(DTYPE, DT_F32))));
}

static void build_factories(Bench *b) {
  TensorType t = type_from_text(b->mesh, "f32[7, 9]"), v = type_from_text(b->mesh, "f32[31]");
  TensorType i = type_from_text(b->mesh, "i64[7, 9]"), w = type_from_text(b->mesh, "f64[7, 9]");
  bench_keep(b, bench_op(b, OP_RAND, NULL, 0, ATTRS(ATTR_T(TYPE, &t), ATTR_I(INSTANCE, 5))));
  bench_keep(b, bench_op(b, OP_RANDN, NULL, 0, ATTRS(ATTR_T(TYPE, &t), ATTR_I(INSTANCE, 6))));
  bench_keep(b, bench_op(b, OP_RANDN, NULL, 0, ATTRS(ATTR_T(TYPE, &w), ATTR_I(INSTANCE, 7))));
  bench_keep(b, bench_op(b, OP_FULL, NULL, 0, ATTRS(ATTR_T(TYPE, &t), ATTR_F(VALUE, 2.5))));
  bench_keep(b, bench_op(b, OP_ARANGE, NULL, 0,
                         ATTRS(ATTR_T(TYPE, &v), ATTR_F(START_VALUE, 3), ATTR_F(STEP_VALUE, 0.5))));
  bench_keep(b, bench_op(b, OP_IOTA, NULL, 0, ATTRS(ATTR_T(TYPE, &i), ATTR_I(DIM, 0))));
  ValueId x = bench_var(b, "f32[7, 9]", -1, 1);
  ValueId d = bench_op(b, OP_DROPOUT, &x, 1, ATTRS(ATTR_F(P, 0.3), ATTR_I(INSTANCE, 9)));
  bench_keep(b, bench_1(b, OP_EXP, d));
}

static void build_adamw(Bench *b) {
  ValueId p = bench_var(b, "f32[40, 30]", -1, 1), g = bench_var(b, "f32[40, 30]", -1, 1);
  ValueId m = bench_var(b, "f32[40, 30]", -1, 1), v = bench_var(b, "f32[40, 30]", 0, 1);
  ValueId lr = bench_var(b, "f32[]", 0, 1);
  ValueId m1 = bench_2(b, OP_ADD, bench_2(b, OP_MUL, m, bench_const(b, DT_F32, 0.9)),
                       bench_2(b, OP_MUL, g, bench_const(b, DT_F32, 0.1)));
  ValueId v1 = bench_2(b, OP_ADD, bench_2(b, OP_MUL, v, bench_const(b, DT_F32, 0.99)),
                       bench_2(b, OP_MUL, bench_2(b, OP_MUL, g, g), bench_const(b, DT_F32, 0.01)));
  ValueId root = bench_2(b, OP_ADD, bench_1(b, OP_SQRT, v1), bench_const(b, DT_F32, 1e-8));
  ValueId step = bench_2(b, OP_MUL, bench_2(b, OP_DIV, m1, root), lr);
  bench_keep(b, m1);
  bench_keep(b, v1);
  bench_keep(b, bench_2(b, OP_SUB, p, step));
}

/* --- on meshes; x 2, y 3 ---- */

static void build_sharded(Bench *b) {
  ValueId x = bench_var(b, "f32[7@x, 10@y]", -2, 2), c = bench_var(b, "f32[10@y]", -2, 2);
  ValueId h = bench_1(b, OP_SILU, bench_2(b, OP_MUL, x, c));
  bench_keep(b, h);
  bench_keep(b, bench_reduce(b, OP_SUM, h, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_MAX, h, DIMS(1), true));
  bench_keep(b, bench_reduce(b, OP_SUM, h, DIMS(0, 1), false));
  bench_keep(b, bench_op(b, OP_TRIL, &x, 1, ATTRS(ATTR_I(DIAGONAL, 1))));
  TensorType t = type_from_text(b->mesh, "f32[5@(x,y), 9]");
  bench_keep(b, bench_op(b, OP_RANDN, NULL, 0, ATTRS(ATTR_T(TYPE, &t), ATTR_I(INSTANCE, 5))));
  ValueId s = bench_var(b, "f32[2@(x,y), 5]", -1, 1); /* empty shards */
  bench_keep(b, bench_op(b, OP_SOFTMAX, &s, 1, ATTRS(ATTR_I(DIM, 1))));
  bench_keep(b, bench_reduce(b, OP_SUM, s, DIMS(0), false));
  bench_keep(b, bench_reduce(b, OP_MAX, s, DIMS(0, 1), false));
}

static void build_redistributed(Bench *b) {
  static const char *const from[] = {"f32[7, 9]", "f32[7@x, 9]", "f32[7, 9] partial(x)",
                                     "f32[7@(x,y), 9]"};
  static const char *const to[] = {"f32[7@x, 9@y]", "f32[7, 9]", "f32[7@y, 9] partial(x)",
                                   "f32[7@(y,x), 9]"};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      TensorType t = type_from_text(b->mesh, to[j]);
      ValueId x = bench_var(b, from[i], -2, 2);
      ValueId y = bench_op(b, OP_REDISTRIBUTE, &x, 1, ATTRS(ATTR_T(TYPE, &t)));
      bench_keep(b, bench_1(b, OP_NEG, y));
    }
}

static void build_vocab_parallel(Bench *b) {
  ValueId ids = bench_var(b, "i64[4, 6]", 0, 10), w = bench_var(b, "f32[10@y, 20]", -3, 3);
  bench_keep(b, bench_2(b, OP_EMBEDDING, ids, w));
  ValueId few = bench_var(b, "i64[5]", 0, 2), tiny = bench_var(b, "f32[2@y, 4]", -3, 3);
  bench_keep(b, bench_2(b, OP_EMBEDDING, few, tiny));
}

static ValueId reduced_to(Bench *b, ValueId v, const char *type) {
  TensorType t = type_from_text(b->mesh, type);
  if (!layout_has_partial(&value_type(b->g, v)->layout)) return v;
  return bench_op(b, OP_REDISTRIBUTE, &v, 1, ATTRS(ATTR_T(TYPE, &t)));
}

/* Losses per row and their gradient, as the compiler opens them up; the classes may be cut. */
static void add_cross_entropy(Bench *b, int rows, int classes, const char *cut) {
  const char *per_row = arena_printf(&arena, "f32[%d, 1]", rows);
  ValueId x = bench_var(b, arena_printf(&arena, "f32[%d, %d%s]", rows, classes, cut), -9, 9);
  ValueId ids = bench_var(b, arena_printf(&arena, "i64[%d, 1]", rows), 0, classes);
  TensorType t = type_from_text(b->mesh, arena_printf(&arena, "i64[%d%s]", classes, cut));
  ValueId most = reduced_to(b, bench_reduce(b, OP_MAX, x, DIMS(1), true), per_row);
  ValueId less = bench_2(b, OP_SUB, x, most), power = bench_1(b, OP_EXP, less);
  ValueId sum = reduced_to(b, bench_reduce(b, OP_SUM, power, DIMS(1), true), per_row);
  ValueId number = bench_op(b, OP_IOTA, NULL, 0, ATTRS(ATTR_I(DIM, 0), ATTR_T(TYPE, &t)));
  ValueId own = bench_2(b, OP_EQ, number, ids), zero = bench_const(b, DT_F32, 0);
  ValueId of_own = bench_3(b, OP_WHERE, own, less, zero);
  of_own = reduced_to(b, bench_reduce(b, OP_SUM, of_own, DIMS(1), true), per_row);
  bench_keep(b, bench_2(b, OP_SUB, bench_1(b, OP_LOG, sum), of_own));
  ValueId scale = bench_const(b, DT_F32, 0.25);
  ValueId minus = bench_3(b, OP_WHERE, own, bench_const(b, DT_F32, -0.25), zero);
  ValueId of_all = bench_2(b, OP_MUL, bench_2(b, OP_DIV, scale, sum), power);
  bench_keep(b, bench_2(b, OP_ADD, minus, of_all));
}

static void build_cross_entropy(Bench *b) {
  add_cross_entropy(b, 5, 33, "");
  add_cross_entropy(b, 3, 1, "");
  add_cross_entropy(b, 0, 7, "");
  add_cross_entropy(b, 2, 2600, ""); /* a whole block per row */
}

static void build_cross_entropy_cut(Bench *b) {
  add_cross_entropy(b, 5, 64, "@y");
  add_cross_entropy(b, 4, 31, "@y");
  add_cross_entropy(b, 3, 2, "@y"); /* and nothing at all */
}

/* Every pointwise operator, on every kind of type it takes. */
static void build_pointwise(Bench *b) {
  static const char *const types[] = {"f32[77]", "f64[77]", "bf16[77]", "i32[77]", "i16[77]"};
  for (int t = 0; t < 5; t++) {
    bool is_float = t < 3;
    ValueId x = bench_var(b, types[t], is_float ? -2 : 0, is_float ? 2 : 9);
    ValueId y = bench_var(b, types[t], is_float ? -2 : 1, is_float ? 2 : 5);
    ValueId z = bench_var(b, types[t], is_float ? -1 : 0, is_float ? 1 : 7);
    const ValueId of[] = {x, y, z};
    for (Op op = OP_NONE + 1; op < OP_COUNT; op++) {
      const OpInfo *info = op_info(op);
      bool takes = info->types == TR_NUMBER || info->types == TR_COMPARE ||
                   (is_float ? info->types == TR_FLOAT || info->types == TR_TEST
                             : info->types == TR_INTEGER);
      if (info->cls == CLASS_POINTWISE && takes)
        bench_keep(b, bench_op(b, op, of, info->min_operands, NULL, 0));
    }
  }
}

static const Case cases[] = {
    {"chain", build_chain, &one, 1},
    {"softmax", build_softmax, &one, 8},
    {"softmax over an outer dim", build_softmax_inner, &one, 1},
    {"log_softmax", build_log_softmax, &one, 1},
    {"layer_norm", build_layer_norm, &one, 1},
    {"layer_norm over two dims", build_layer_norm_2d, &one, 1},
    {"rms_norm backward", build_rms_norm_backward, &one, 1},
    {"gradients of norms", build_norm_gradients, &one, 0},
    {"residual and norm", build_residual_norm, &one, 1},
    {"bias gradient", build_bias_gradient, &one, 1},
    {"reductions", build_reductions, &one, 0},
    {"reductions of nothing", build_reductions_empty, &one, 0},
    {"large sums", build_large_sums, &one, 0},
    {"long sums", build_long_sums, &one, 0},
    {"long sums in shards", build_long_sums_sharded, &six, 0},
    {"values per row", build_row_values, &one, 1},
    {"integers", build_integers, &one, 0},
    {"pointwise", build_pointwise, &one, 0},
    {"bool", build_bool, &one, 0},
    {"casts", build_casts, &one, 0},
    {"movement", build_movement, &one, 0},
    {"turned", build_turned, &one, 0},
    {"indexing", build_indexing, &one, 0},
    {"factories", build_factories, &one, 0},
    {"adamw", build_adamw, &one, 1},
    {"sharded", build_sharded, &six, 0},
    {"redistributed", build_redistributed, &six, 0},
    {"vocabulary in shards", build_vocab_parallel, &six, 0},
    {"cross entropy", build_cross_entropy, &one, 4},
    {"cross entropy in shards", build_cross_entropy_cut, &six, 0},
};
enum { NCASES = sizeof cases / sizeof *cases };

static BenchRun fused[NCASES], plain[NCASES], fine[NCASES];

START_TEST(test_fused) {
  bench_run(&fused[_i], &jit);
}
END_TEST

START_TEST(test_plain) {
  bench_run(&plain[_i], &jit);
}
END_TEST

/* Cut more finely, as for a device with many processors. */
START_TEST(test_fine) {
  bench_run(&fine[_i], &jit);
}
END_TEST

START_TEST(test_structure) {
  const Case *c = &cases[_i];
  uint32_t n = bench_kernels(&fused[_i]);
  StrBuf text;
  strbuf_init(&text, &arena);
  fuse_print(&text, fused[_i].p);
  ck_assert_msg(!c->most || n <= c->most, "%s: %u kernels, should be %u\n%s", c->name, n, c->most,
                text.text);
  ck_assert(n <= bench_kernels(&plain[_i]));
}
END_TEST

/* Where arithmetic is cheap beside memory: what is as large as the logits is the gradient alone,
 * and it is written once. */
START_TEST(test_written_once) {
  for (int i = 0; i < NCASES; i++) {
    if (cases[i].build != build_cross_entropy && cases[i].build != build_cross_entropy_cut)
      continue;
    const FusedProgram *p = fine[i].p;
    uint32_t gradients = 0;
    for (uint32_t g = 0; g < p->groups.len; g++) {
      const Group *x = &p->groups.data[g];
      if (x->kind != GROUP_KERNEL) continue;
      for (uint32_t o = 0; o < x->noutputs; o++) {
        const TensorType *t = value_type(fine[i].local, p->values.data[x->outputs[o]].value);
        if (t->rank < 2 || t->shape[1] <= 2) continue; /* per row, or not worth it */
        ck_assert(t->dtype == DT_F32);
        gradients++;
      }
      const Kernel *k = kernels.kernels.data[x->kernel];
      for (uint32_t j = 0; j < k->ninstrs; j++)
        ck_assert(k->instrs[j].kind != K_LOAD || !k->bufs[k->instrs[j].access.buf].written);
    }
    ck_assert_uint_eq(gradients, cases[i].build == build_cross_entropy ? 3 : 2);
  }
}
END_TEST

/* Small operands, however many, do not decide what the large ones are read along. */
START_TEST(test_along_rows) {
  for (int i = 0; i < NCASES; i++) {
    if (cases[i].build != build_row_values) continue;
    uint32_t stores = 0;
    for (uint32_t g = 0; g < fine[i].p->groups.len; g++) {
      if (fine[i].p->groups.data[g].kind != GROUP_KERNEL) continue;
      const Kernel *k = kernels.kernels.data[fine[i].p->groups.data[g].kernel];
      for (uint32_t j = 0; j < k->ninstrs; j++) {
        if (k->instrs[j].kind != K_STORE) continue;
        ck_assert_int_eq(k->instrs[j].access.stride[k->ndims - 1], KINT_ONE);
        stores++;
      }
    }
    ck_assert_uint_eq(stores, 1);
  }
}
END_TEST

/* What a long dim reduces to is made by several tasks. */
static int64_t most_tasks(const BenchRun *runs) {
  const FusedProgram *p = NULL;
  int64_t most = 0;
  for (int i = 0; i < NCASES; i++)
    if (cases[i].build == build_long_sums) p = runs[i].p;
  ck_assert(p != NULL);
  int64_t *syms = ARENA_ARRAY(&arena, int64_t, p->syms.len);
  const int64_t coords[4][DTM_MAX_AXES] = {{0}};
  fuse_eval_syms(p, coords, syms);
  for (uint32_t i = 0; i < p->groups.len; i++) {
    const Group *g = &p->groups.data[i];
    bool partial = g->kind == GROUP_KERNEL && g->noutputs &&
                   !p->values.data[g->outputs[g->noutputs - 1]].value;
    if (partial && syms[g->tasks] > most) most = syms[g->tasks];
  }
  return most;
}

START_TEST(test_long_tasks) {
  ck_assert_int_eq(most_tasks(fused), 7); /* 100003 elements in pieces of 16384, */
  ck_assert_int_eq(most_tasks(fine), 25); /* of 4096 */
}
END_TEST

int main(void) {
  arena_init(&arena);
  mesh_of(&one, 2, (const int64_t[]){1, 1});
  mesh_of(&two, 2, (const int64_t[]){2, 1});
  mesh_of(&six, 2, (const int64_t[]){2, 3});
  for (int i = 0; i < NCASES; i++) {
    Bench *b = bench_new(&arena, cases[i].name, cases[i].mesh);
    cases[i].build(b);
    if (!ONLY_FINE) fused[i] = bench_prepare(b, &kernels, true, NULL);
    fine[i] = bench_prepare(b, &kernels, true, &fuse_target_cuda);
    if (!ONLY_FINE) plain[i] = bench_prepare(b, &kernels, false, NULL);
  }
  if (getenv("DTM_TEST_VERBOSE") && !ONLY_FINE) {
    StrBuf text;
    strbuf_init(&text, &arena);
    for (int i = 0; i < NCASES; i++) {
      strbuf_printf(&text, "--- %s\n", cases[i].name);
      fuse_print(&text, fused[i].p);
      for (uint32_t j = 0; j < fused[i].p->groups.len; j++)
        if (fused[i].p->groups.data[j].kind == GROUP_KERNEL)
          kernel_print(&text, kernels.kernels.data[fused[i].p->groups.data[j].kernel]);
    }
    puts(text.text);
  }
  jit = jit_load(&arena, kernels.kernels.data, kernels.kernels.len, "native");
  Suite *suite = suite_create("fuse");
  TCase *t = tcase_create("kernels");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, test_fine, 0, NCASES);
  tcase_add_test(t, test_written_once);
  tcase_add_test(t, test_along_rows);
  if (!ONLY_FINE) {
    tcase_add_loop_test(t, test_fused, 0, NCASES);
    tcase_add_loop_test(t, test_plain, 0, NCASES);
    tcase_add_loop_test(t, test_structure, 0, NCASES);
    tcase_add_test(t, test_long_tasks);
  }
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
