/* Compiled kernels bit by bit: conversions of the narrow floats, random numbers, results that do
 * not depend on how the tasks are split, every instruction set level. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "jit.h"
#include "kernel/build.h"
#include "runtime/abi/number.h"
#include "runtime/abi/philox.h"
#include "support/suite.h"

static Arena arena;

static KAccess along(uint32_t buf) {
  KAccess a = kb_access(buf);
  a.stride[0] = KINT_ONE;
  return a;
}

static void start_map(KBuilder *b) {
  kb_init(b, &arena);
  kb_dim(b, KDIM_VEC, kb_int(b));
  kb_block(b, true);
}

/* out[i] = in[i] in another type. */
static Kernel *convert_kernel(DType from, DType to) {
  KBuilder b;
  start_map(&b);
  KRef x = kb_load(&b, along(kb_buf(&b, KBUF_TENSOR, from, false)), 0, 0);
  kb_store(&b, along(kb_buf(&b, KBUF_TENSOR, to, true)), kb_cast(&b, x, to), 0);
  Kernel *k = kb_finish(&b);
  k->name = arena_printf(&arena, "%s_to_%s", dtype_name(from), dtype_name(to));
  return k;
}

static const DType narrow[] = {DT_BF16, DT_F16, DT_F8_E4M3, DT_F8_E5M2};
enum { NARROW = 4 };

static uint32_t encode(DType t, float f) {
  if (t == DT_BF16) return abi_to_bf16(f);
  if (t == DT_F16) return abi_to_f16(f);
  return abi_to_small(f, t == DT_F8_E4M3 ? 4 : 5, t == DT_F8_E4M3 ? 3 : 2, t == DT_F8_E4M3);
}

static bool is_nan_bits(DType t, uint32_t bits) {
  uint64_t raw[1] = {bits};
  return isnan(abi_load(raw, (uint32_t)t, 0));
}

/* Every value of the narrow type widens exactly. */
static void check_decode(DType t, const Jit *jit, uint32_t kernel) {
  static unsigned char in[65536 * 2];
  static float out[65536];
  int64_t n = dtype_bytes(t) == 2 ? 65536 : 256;
  for (int64_t i = 0; i < n; i++) {
    if (n == 256)
      in[i] = (unsigned char)i;
    else
      memcpy(in + 2 * i, &(uint16_t){(uint16_t)i}, 2);
  }
  const size_t bytes[] = {(size_t)n * dtype_bytes(t), (size_t)n * sizeof *out};
  jit_call(jit, kernel, (void *[]){in, out}, bytes, &n, 1, 1);
  for (int64_t i = 0; i < n; i++) {
    double want = abi_load(in, (uint32_t)t, i);
    ck_assert_msg((isnan(want) && isnan(out[i])) || (double)out[i] == want,
                  "%s bits %lld: %g, should be %g", dtype_name(t), (long long)i, (double)out[i],
                  want);
  }
}

/* Samples of all f32: every exponent, ties, neighbours of ties, specials. */
static void check_encode(DType t, const Jit *jit, uint32_t kernel) {
  enum { N = 1 << 17 };
  static float in[N];
  static unsigned char out[N * 2];
  uint32_t state = 1;
  for (int64_t i = 0; i < N; i++) {
    state = state * 1664525u + 1013904223u;
    uint32_t u = state;
    if (i % 3 == 0) u &= 0xffff0000u;
    if (i % 3 == 1) u = (u & 0xfff00000u) + (i % 5 ? 0x80000u : 0x7ffffu);
    memcpy(&in[i], &u, 4);
  }
  int64_t n = N;
  const size_t bytes[] = {sizeof in, N * dtype_bytes(t)};
  jit_call(jit, kernel, (void *[]){in, out}, bytes, &n, 1, 1);
  for (int64_t i = 0; i < N; i++) {
    uint32_t want = encode(t, in[i]), got = out[i];
    if (dtype_bytes(t) == 2) got = (uint32_t)(out[2 * i] | out[2 * i + 1] << 8);
    ck_assert_msg(got == want || (is_nan_bits(t, got) && is_nan_bits(t, want)),
                  "%a to %s: %#x, should be %#x", (double)in[i], dtype_name(t), got, want);
  }
}

START_TEST(test_conversions) {
  Kernel *k[2 * NARROW];
  for (int i = 0; i < NARROW; i++) {
    k[2 * i] = convert_kernel(narrow[i], DT_F32);
    k[2 * i + 1] = convert_kernel(DT_F32, narrow[i]);
  }
  Jit jit = jit_load(&arena, k, 2 * NARROW, "native");
  for (int i = 0; i < NARROW; i++) {
    check_decode(narrow[i], &jit, 2 * (uint32_t)i);
    check_encode(narrow[i], &jit, 2 * (uint32_t)i + 1);
  }
}
END_TEST

/* f64 is rounded once: what lies just beside a tie of the narrow type does not become the tie. */
START_TEST(test_f64_rounds_once) {
  Kernel *k = convert_kernel(DT_F64, DT_BF16);
  Jit jit = jit_load(&arena, &k, 1, "native");
  double in[4] = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, 1 + 0x1p-8, 1 + 3 * 0x1p-8};
  uint16_t out[4];
  int64_t n = 4;
  jit_call(&jit, 0, (void *[]){in, out}, (const size_t[]){sizeof in, sizeof out}, &n, 1, 1);
  ck_assert_uint_eq(out[0], 0x3f81);
  ck_assert_uint_eq(out[1], 0x3f80);
  ck_assert_uint_eq(out[2], 0x3f80);
  ck_assert_uint_eq(out[3], 0x3f82);
}
END_TEST

START_TEST(test_random_bits) {
  enum { N = 1000 };
  static const int64_t instance = 0x123456789;
  Kernel *k[2];
  for (int normal = 0; normal < 2; normal++) {
    KBuilder b;
    start_map(&b);
    KAccess at = kb_access(0);
    at.offset = kb_int(&b);
    at.stride[0] = KINT_ONE;
    KInt key = kb_int(&b);
    uint32_t step = kb_buf(&b, KBUF_STEP, DT_I64, false);
    KRef r = kb_random(&b, normal ? KRANDOM_NORMAL : KRANDOM_UNIFORM, key, kb_index(&b, at), step);
    kb_store(&b, along(kb_buf(&b, KBUF_TENSOR, normal ? DT_F64 : DT_F32, true)), r, 0);
    k[normal] = kb_finish(&b);
    k[normal]->name = normal ? "normal" : "uniform";
  }
  Jit jit = jit_load(&arena, k, 2, "native");
  int64_t block[4] = {0x0123456789abcdef, 77, 0, 0}, ints[3] = {N, 0xfffffe00, instance};
  static float uniform[N];
  static double normal[N];
  const size_t bytes[] = {sizeof block, sizeof uniform, sizeof block, sizeof normal};
  jit_call(&jit, 0, (void *[]){block, uniform}, bytes, ints, 1, 1);
  jit_call(&jit, 1, (void *[]){block, normal}, bytes + 2, ints, 1, 1);
  for (int i = 0; i < N; i++) {
    uint64_t seed = (uint64_t)block[0], step = (uint64_t)block[1], at = (uint64_t)(ints[1] + i);
    ck_assert(uniform[i] == philox_uniform(seed, (uint64_t)instance, step, at));
    ck_assert(fabs(normal[i] - philox_normal(seed, (uint64_t)instance, step, at)) < 1e-13);
  }
}
END_TEST

/* Rows reduced in chunks, a value per row, a sum over everything: in one kernel. */
static Kernel *chunked_kernel(void) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_ROW, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  b.chunk_rows = kb_int(&b);
  b.nchunks = kb_int(&b);
  uint32_t x = kb_buf(&b, KBUF_TENSOR, DT_F32, false), y = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  uint32_t col = kb_buf(&b, KBUF_TENSOR, DT_F32, true), all = kb_buf(&b, KBUF_TENSOR, DT_F64, true);
  KAccess at = kb_access(x), to = kb_access(y), columns = kb_access(col), total = kb_access(all);
  at.stride[0] = to.stride[0] = columns.stride[0] = 1;
  at.stride[1] = to.stride[1] = columns.stride[1] = KINT_ONE;
  total.stride[0] = KINT_ONE;
  kb_block(&b, true);
  KRef v = kb_load(&b, at, 0, 0);
  KRef sum = kb_reduce(&b, REDUCE_SUM, kb_point(&b, OP_EXP, v, 0, 0));
  kb_block(&b, false);
  kb_accum(&b, total, REDUCE_SUM, kb_cast(&b, sum, DT_F64));
  kb_block(&b, true);
  v = kb_point(&b, OP_DIV, kb_point(&b, OP_EXP, kb_load(&b, at, 0, 0), 0, 0), sum, 0);
  kb_store(&b, to, v, 0);
  kb_accum(&b, columns, REDUCE_SUM, v);
  Kernel *k = kb_finish(&b);
  k->name = "chunked";
  return k;
}

enum { ROWS = 37, COLS = 45, CHUNK = 5, CHUNKS = (ROWS + CHUNK - 1) / CHUNK };

typedef struct Chunked {
  float y[ROWS * COLS], columns[CHUNKS * COLS];
  double total[CHUNKS];
} Chunked;

static void run_chunked(const Jit *jit, float *x, Chunked *out, int parts) {
  int64_t ints[4] = {ROWS, COLS, CHUNK, CHUNKS};
  const size_t bytes[] = {sizeof(float) * ROWS * COLS, sizeof out->y, sizeof out->columns,
                          sizeof out->total};
  memset(out, 0x5a, sizeof *out);
  jit_call(jit, 0, (void *[]){x, out->y, out->columns, out->total}, bytes, ints, CHUNKS, parts);
}

START_TEST(test_splits_and_levels) {
  static const char *const levels[] = {"native", "x86-64", "x86-64-v2", "x86-64-v3"};
  static float x[ROWS * COLS];
  static Chunked whole, split;
  for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)((i * 7919) % 1000) * 0.004f - 2;
  for (int level = 0; level < 4; level++) {
    Kernel *k = chunked_kernel();
    if (level == 3 && !__builtin_cpu_supports("avx2")) continue;
    Jit jit = jit_load(&arena, &k, 1, levels[level]);
    run_chunked(&jit, x, &whole, 1);
    for (int parts = 2; parts <= CHUNKS; parts += 3) {
      run_chunked(&jit, x, &split, parts);
      ck_assert(memcmp(&whole, &split, sizeof whole) == 0);
    }
    double total = 0, want = 0, first = 0;
    for (int i = 0; i < ROWS * COLS; i++) want += exp((double)x[i]);
    for (int i = 0; i < CHUNKS; i++) total += whole.total[i];
    for (int i = 0; i < COLS; i++) first += (double)whole.y[i];
    ck_assert_msg(fabs(total - want) < 1e-5 * want, "%s: %g, should be %g", levels[level], total,
                  want);
    ck_assert(fabs(first - 1) < 1e-6);
  }
}
END_TEST

/* softmax of [PILES, n, width] along n, and the index of the largest element: a value per lane that
 * is kept for later, loads at an index per lane, bool and i64 lanes. */
enum { PILES = 3, DEEP = 5, WIDE = 80, STRIP = 32 };

static Kernel *lanes_kernel(void) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_INNER, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  KInt pile = kb_int(&b);
  b.lanes = true;
  b.vec_block = STRIP;
  uint32_t x = kb_buf(&b, KBUF_TENSOR, DT_F32, false), y = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  uint32_t at = kb_buf(&b, KBUF_TENSOR, DT_I64, true), top = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  KAccess in = kb_access(x), out = kb_access(y), where = kb_access(at), best = kb_access(top);
  KAccess n = kb_access(0), column = kb_access(x);
  in.stride[0] = out.stride[0] = column.stride[0] = pile;
  in.stride[1] = out.stride[1] = where.stride[0] = best.stride[0] = 2;
  in.stride[2] = out.stride[2] = where.stride[2] = best.stride[2] = column.stride[2] = KINT_ONE;
  n.stride[1] = KINT_ONE;
  kb_block(&b, true);
  KRef most = kb_reduce(&b, REDUCE_MAX, kb_load(&b, in, 0, 0));
  kb_block(&b, false);
  KRef doubt = kb_point(&b, OP_ISNAN, most, 0, 0);
  KRef width = kb_int_value(&b, 2), none = kb_int_value(&b, 1);
  kb_block(&b, true);
  KRef v = kb_load(&b, in, 0, 0);
  KRef hit = kb_point(&b, OP_LOGICAL_OR, kb_point(&b, OP_EQ, v, most, 0), doubt, 0);
  KRef first = kb_reduce(&b, REDUCE_MIN, kb_point(&b, OP_WHERE, hit, kb_index(&b, n), none));
  KRef sum =
      kb_reduce(&b, REDUCE_SUM, kb_point(&b, OP_EXP, kb_point(&b, OP_SUB, v, most, 0), 0, 0));
  kb_block(&b, false);
  kb_store(&b, where, first, 0);
  kb_store(&b, best, kb_load(&b, column, kb_point(&b, OP_MUL, first, width, 0), 0), 0);
  kb_block(&b, true);
  v = kb_point(&b, OP_EXP, kb_point(&b, OP_SUB, kb_load(&b, in, 0, 0), most, 0), 0, 0);
  kb_store(&b, out, kb_point(&b, OP_DIV, v, sum, 0), 0);
  Kernel *k = kb_finish(&b);
  k->name = "lanes";
  return k;
}

typedef struct Lanes {
  float y[PILES * DEEP * WIDE + 2], best[PILES * WIDE];
  int64_t at[PILES * WIDE + 1];
  unsigned char past[8]; /* never written */
} Lanes;

static void run_lanes(const Jit *jit, float *x, int64_t width, Lanes *out, bool split) {
  int64_t ints[4] = {PILES, DEEP, width, DEEP * width};
  int64_t tasks = PILES * ((width + STRIP - 1) / STRIP);
  size_t cells = (size_t)(PILES * width), all = sizeof(float) * DEEP * cells;
  const size_t bytes[] = {all, all, sizeof(int64_t) * cells, sizeof(float) * cells};
  memset(out, 0x5a, sizeof *out);
  jit_call(jit, 0, (void *[]){x, out->y, out->at, out->best}, bytes, ints, tasks,
           split ? (int)tasks : 1);
}

static void check_column(const float *x, const Lanes *got, int64_t width, int64_t pile,
                         int64_t column) {
  const float *in = x + pile * DEEP * width + column, *y = got->y + (in - x);
  int64_t most = 0, at = got->at[pile * width + column];
  double sum = 0;
  for (int64_t i = 0; i < DEEP; i++)
    if (in[i * width] > in[most * width] || isnan(in[i * width])) most = i;
  for (int64_t i = 0; i < DEEP; i++) sum += exp((double)(in[i * width] - in[most * width]));
  for (int64_t i = 0; i < DEEP; i++) {
    double want = exp((double)(in[i * width] - in[most * width])) / sum, is = (double)y[i * width];
    ck_assert_msg((isnan(want) && isnan(is)) || fabs(is - want) < 1e-6,
                  "width %lld, column %lld: %g, should be %g", (long long)width, (long long)column,
                  is, want);
  }
  if (isnan(sum)) most = 0; /* every element counts as the largest */
  ck_assert_int_eq(at, most);
  float best = got->best[pile * width + column];
  ck_assert(best == in[most * width]);
}

START_TEST(test_lanes) {
  static float x[PILES * DEEP * WIDE];
  static Lanes whole, split;
  Kernel *k = lanes_kernel();
  for (int level = 0; level < 2; level++) {
    Jit jit = jit_load(&arena, &k, 1, level ? "x86-64" : "native");
    for (int64_t width = 1; width <= WIDE; width++) {
      for (int i = 0; i < PILES * DEEP * WIDE; i++) x[i] = (float)((i * 7919) % 1000) * 0.004f - 2;
      x[DEEP * width - 1] = NAN; /* the last of a column: its first element stays a number */
      run_lanes(&jit, x, width, &whole, false);
      for (int64_t pile = 0; pile < PILES; pile++)
        for (int64_t c = 0; c < width; c++) check_column(x, &whole, width, pile, c);
      run_lanes(&jit, x, width, &split, true);
      ck_assert(memcmp(&whole, &split, sizeof whole) == 0);
      ck_assert(memcmp(whole.y + PILES * DEEP * width, whole.past, sizeof whole.past) == 0);
      ck_assert(memcmp(whole.at + PILES * width, whole.past, sizeof whole.past) == 0);
    }
  }
}
END_TEST

/* What holds of kernels with lanes only. */
START_TEST(test_lanes_verifier) {
  Kernel *k = lanes_kernel();
  ck_assert(kernel_verify(&arena, k) == NULL);
  k->vec_block = STRIP + 1;
  ck_assert(kernel_verify(&arena, k) != NULL);
  k->vec_block = 0;
  ck_assert(kernel_verify(&arena, k) != NULL);
  k->vec_block = STRIP;
  k->lanes = false; /* then SCALAR code has no vector dim */
  ck_assert(kernel_verify(&arena, k) != NULL);
  k->lanes = true;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    KInstr *in = &k->instrs[i], good = *in;
    if (good.kind != K_STORE) continue;
    in->access.stride[2] = KINT_ZERO; /* one place for all lanes */
    ck_assert(kernel_verify(&arena, k) != NULL);
    *in = good;
  }
  Kernel *other = lanes_kernel();
  ck_assert(kernel_equal(k, other) && kernel_hash(k) == kernel_hash(other));
  other->lanes = false;
  ck_assert(!kernel_equal(k, other) && kernel_hash(k) != kernel_hash(other));
}
END_TEST

/* Rows that are turned round on their way through memory, added to a total that lies where the
 * result goes: what one thread of a group writes is read by others, and what all read is then
 * overwritten. */
static Kernel *turned_kernel(void) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  KInt back = kb_int(&b), last = kb_int(&b);
  uint32_t x = kb_buf(&b, KBUF_TENSOR, DT_F32, false), y = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  uint32_t z = kb_buf(&b, KBUF_TENSOR, DT_F32, true), s = kb_buf(&b, KBUF_TENSOR, DT_F32, false);
  uint32_t sum = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  KAccess in = kb_access(x), turned = kb_access(y), from = kb_access(y), out = kb_access(z);
  KAccess before = kb_access(s), after = kb_access(sum);
  in.stride[0] = turned.stride[0] = from.stride[0] = out.stride[0] = 1;
  in.stride[1] = from.stride[1] = out.stride[1] = KINT_ONE;
  turned.stride[1] = back;
  turned.offset = last;
  before.stride[0] = after.stride[0] = KINT_ONE;
  kb_block(&b, true);
  kb_store(&b, turned, kb_load(&b, in, 0, 0), 0);
  kb_block(&b, true);
  KRef v = kb_load(&b, from, 0, 0);
  KRef total = kb_reduce(&b, REDUCE_SUM, v);
  kb_store(&b, out, kb_point(&b, OP_MUL, v, v, 0), 0);
  kb_block(&b, false);
  kb_store(&b, after, kb_point(&b, OP_ADD, kb_load(&b, before, 0, 0), total, 0), 0);
  Kernel *k = kb_finish(&b);
  k->name = "turned";
  return k;
}

START_TEST(test_threads_meet) {
  enum { DEPTH = 3, MOST = 3000 };
  static const int64_t widths[] = {1, 5, 40, 300, MOST};
  static float x[DEPTH * MOST], y[DEPTH * MOST], z[DEPTH * MOST];
  Kernel *k = turned_kernel();
  Jit jit = jit_load(&arena, &k, 1, "native");
  for (int i = 0; i < DEPTH * MOST; i++) x[i] = (float)(i % 7);
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
    int64_t n = widths[w], ints[4] = {DEPTH, n, -1, n - 1};
    float sum[DEPTH] = {1, 2, 3};
    size_t all = sizeof *x * (size_t)(DEPTH * n);
    const size_t bytes[] = {all, all, all, sizeof sum, sizeof sum};
    jit_call(&jit, 0, (void *[]){x, y, z, sum, sum}, bytes, ints, DEPTH, 1);
    for (int64_t row = 0; row < DEPTH; row++) {
      float want = (float)(row + 1);
      for (int64_t i = 0; i < n; i++) {
        float turned = x[row * n + n - 1 - i];
        ck_assert(z[row * n + i] == turned * turned);
        want += turned;
      }
      ck_assert(sum[row] == want);
    }
  }
}
END_TEST

/* Two dims change places, twice in place: y = 2 x - z, at once x's memory and y's, and w = x + z.
 */
static Kernel *across_kernel(void) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  b.vec_block = KERNEL_TURN_BLOCK;
  uint32_t x = kb_buf(&b, KBUF_TENSOR, DT_F32, false), y = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  uint32_t z = kb_buf(&b, KBUF_TENSOR, DT_F32, false), w = kb_buf(&b, KBUF_TENSOR, DT_F32, true);
  KAccess across = kb_access(x), along = kb_access(z);
  across.stride[0] = along.stride[1] = KINT_ONE;
  across.stride[1] = 0;
  along.stride[0] = 1;
  kb_block(&b, true);
  KRef v = kb_load(&b, across, 0, 0), u = kb_load(&b, along, 0, 0);
  across.buf = y;
  along.buf = w;
  kb_store(&b, across, kb_point(&b, OP_SUB, kb_point(&b, OP_ADD, v, v, 0), u, 0), 0);
  kb_store(&b, along, kb_point(&b, OP_ADD, v, u, 0), 0);
  Kernel *k = kb_finish(&b);
  k->name = "across";
  return k;
}

START_TEST(test_across) {
  enum { MOST = 140 };
  static const int64_t sizes[] = {1, 8, 9, 31, 32, 33, MOST};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  static float x[MOST * MOST], z[MOST * MOST];
  Kernel *k = across_kernel();
  Jit jit = jit_load(&arena, &k, 1, "native");
  for (int s = 0; s < SIZES * SIZES; s++) {
    int64_t ints[2] = {sizes[s / SIZES], sizes[s % SIZES]}, rows = ints[0], n = ints[1];
    int64_t tasks = rows * ((n + KERNEL_TURN_BLOCK - 1) / KERNEL_TURN_BLOCK);
    const size_t all = sizeof *x * (size_t)(rows * n), bytes[] = {all, all, all, all};
    for (int64_t i = 0; i < rows * n; i++) {
      x[i] = (float)i;
      z[i] = (float)(i % 7);
    }
    jit_call(&jit, 0, (void *[]){x, x, z, z}, bytes, ints, tasks, 1 + s % 3);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < n; j++) {
        float was = (float)(j * rows + i), other = (float)((i * n + j) % 7);
        ck_assert(x[j * rows + i] == 2 * was - other);
        ck_assert(z[i * n + j] == was + other);
      }
  }
}
END_TEST

START_TEST(test_bad_level) {
  Kernel *k = chunked_kernel();
  CodegenOptions options = {.march = "pentium"};
  CodegenResult made;
  const char *error = NULL;
  ck_assert(!codegen_emit(&arena, &k, 1, NULL, &options, CODEGEN_OBJECT, &made, &error));
  ck_assert(error && strstr(error, "x86-64-v3"));
}
END_TEST

/* Each fault alone; the kernel is sound before. */
START_TEST(test_verifier) {
  Kernel *k = chunked_kernel();
  ck_assert(kernel_verify(&arena, k) == NULL);
  KInstr *in = k->instrs;
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    KInstr good = in[i];
    if (good.a) {
      in[i].a = k->ninstrs; /* made later */
      ck_assert(kernel_verify(&arena, k) != NULL);
      in[i] = good;
    }
    if (good.kind == K_LOAD || good.kind == K_STORE) {
      in[i].access.buf = 99;
      ck_assert(kernel_verify(&arena, k) != NULL);
      in[i] = good;
      in[i].access.stride[0] = 99;
      ck_assert(kernel_verify(&arena, k) != NULL);
      in[i] = good;
    }
  }
  ck_assert(kernel_verify(&arena, k) == NULL);
  k->bufs[1].written = false;
  ck_assert(kernel_verify(&arena, k) != NULL);
}
END_TEST

START_TEST(test_equal_kernels_are_one) {
  KernelSet set = {0};
  ck_assert_uint_eq(kernel_set_add(&arena, &set, chunked_kernel(), "a"), 0);
  ck_assert_uint_eq(kernel_set_add(&arena, &set, convert_kernel(DT_F32, DT_BF16), "b"), 1);
  ck_assert_uint_eq(kernel_set_add(&arena, &set, chunked_kernel(), "c"), 0);
  ck_assert_uint_eq(set.kernels.len, 2);
}
END_TEST

int main(void) {
  arena_init(&arena);
#ifdef DTM_TEST_CUDA
  jit_open(&arena);
#endif
  Suite *suite = suite_create("kernel");
  TCase *t = tcase_create("kernels");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_conversions);
  tcase_add_test(t, test_f64_rounds_once);
  tcase_add_test(t, test_random_bits);
  tcase_add_test(t, test_threads_meet);
  tcase_add_test(t, test_across);
  tcase_add_test(t, test_splits_and_levels);
  tcase_add_test(t, test_lanes);
  tcase_add_test(t, test_lanes_verifier);
  tcase_add_test(t, test_bad_level);
  tcase_add_test(t, test_verifier);
  tcase_add_test(t, test_equal_kernels_are_one);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
