/* Products in packed panels against plain sums in f64: every instruction set and element type,
 * extents around those of tiles, blocks and blocks of k, every transposition, epilogue and batch;
 * conversions bit by bit; any number of threads. */
#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cpu/matmul_packed.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

/* The widest vectors, for machines that lack them. */
#define LOOPS_NAME(x) wide_packed_##x
#define LOOPS_TARGET
#define LANES 16
#define ROWS 12
#include "device/cpu/matmul_packed_loops.h"

static const PackedLoops *loops_of(int set) {
  const PackedLoops *l = dtm_rt_packed_loops(set);
  return set == PACKED_AVX512 && !l ? &wide_packed_loops : l;
}

static const uint32_t types[] = {ABI_F32, ABI_BF16, ABI_F16};

static uint32_t state = 1;
static double draw(void) {
  state = state * 1664525u + 1013904223u;
  return ((int)(state >> 24) - 128) / 64.0;
}

/* Bytes that end where a page begins that may be neither read nor written. */
static void *before_wall(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
  char *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(p != MAP_FAILED && mprotect(p + room, page, PROT_NONE) == 0);
  return p + room - bytes;
}

static void free_before_wall(void *p, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
  munmap((char *)p + bytes - room, room + page);
}

/* `n` random numbers as elements, before a wall. */
static void *elements(uint32_t dtype, int64_t n, double *as) {
  char *p = before_wall((size_t)n * abi_dtype_bytes(dtype));
  for (int64_t i = 0; i < n; i++) {
    abi_store(p, dtype, i, draw());
    if (as) as[i] = abi_load(p, dtype, i);
  }
  return p;
}

static void run(const PackedLoops *l, const MatmulShape *s, const void *a, const void *b,
                const void *bias, const void *addend, void *out, int threads) {
  size_t each = dtm_rt_packed_scratch(l, s, threads);
  void *scratch = malloc(each * (size_t)threads);
  memset(scratch, 0xff, each * (size_t)threads); /* what is not packed is NaN */
  dtm_rt_packed_run(l, s, a, b, bias, addend, out, scratch, threads);
  free(scratch);
}

/* How the operands lie: bits of `form` for a, b and out turned over. */
static void lay_out(MatmulShape *s, int form) {
  s->a_m = form & 1 ? 1 : s->k, s->a_k = form & 1 ? s->m : 1;
  s->b_k = form & 2 ? 1 : s->n, s->b_n = form & 2 ? s->k : 1;
  s->out_m = form & 4 ? 1 : s->n, s->out_n = form & 4 ? s->m : 1;
}

/* s has extents, batch of two at most, dtype and epilogue. */
static void check(const PackedLoops *l, MatmulShape s, int form) {
  int64_t batch = s.nbatch ? s.batch[0] : 1, m = s.m, n = s.n, k = s.k;
  lay_out(&s, form);
  s.a_batch[0] = m * k, s.b_batch[0] = k * n, s.out_batch[0] = m * n;
  double *da = malloc((size_t)(batch * m * k) * 8), *db = malloc((size_t)(batch * k * n) * 8),
         *dbias = malloc((size_t)n * 8), *dadd = malloc((size_t)(batch * m * n) * 8);
  char *a = elements(s.dtype, batch * m * k, da), *b = elements(s.dtype, batch * k * n, db),
       *bias = elements(s.dtype, n, dbias), *addend = elements(s.dtype, batch * m * n, dadd);
  size_t bytes = (size_t)(batch * m * n) * abi_dtype_bytes(s.dtype);
  char *out = elements(s.dtype, batch * m * n, NULL), *other = malloc(bytes);
  ck_assert(dtm_rt_packed_fits(&s));
  if (s.in_place) memcpy(out, addend, bytes);
  run(l, &s, a, b, bias, s.in_place ? out : addend, out, 1);
  double unit = s.dtype == ABI_F32 ? 2e-6 : s.dtype == ABI_BF16 ? 0x1p-8 : 0x1p-11;
  for (int64_t e = 0; e < batch; e++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, scale = 0;
        for (int64_t p = 0; p < k; p++) {
          double v = da[e * m * k + i * s.a_m + p * s.a_k] * db[e * k * n + p * s.b_k + j * s.b_n];
          sum += v;
          scale += fabs(v);
        }
        int64_t at = e * m * n + i * s.out_m + j * s.out_n;
        if (s.bias) sum += dbias[j];
        if (s.activation && sum < 0) sum = 0;
        if (s.addend) sum += dadd[at];
        double got = abi_load(out, s.dtype, at);
        ck_assert_msg(fabs(got - sum) <= unit * fabs(sum) + 1e-6 * (scale + 4),
                      "%s m %ld n %ld k %ld form %d at %ld,%ld: %g, want %g",
                      abi_dtype_name(s.dtype), (long)m, (long)n, (long)k, form, (long)i, (long)j,
                      got, sum);
      }
  for (int threads = 2; threads <= 5; threads += 3) {
    memcpy(other, out, bytes);
    if (s.in_place) memcpy(out, addend, bytes);
    run(l, &s, a, b, bias, s.in_place ? out : addend, out, threads);
    ck_assert_mem_eq(out, other, bytes);
  }
  size_t size = abi_dtype_bytes(s.dtype);
  free_before_wall(a, (size_t)(batch * m * k) * size);
  free_before_wall(b, (size_t)(batch * k * n) * size);
  free_before_wall(bias, (size_t)n * size);
  free_before_wall(addend, bytes);
  free_before_wall(out, bytes);
  void *all[] = {da, db, dbias, dadd, other};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

START_TEST(extents) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {6, 16, 8},   {7, 17, 9},    {5, 31, 385},
                                     {12, 32, 64}, {13, 7, 769}, {265, 33, 11}, {19, 530, 5}};
  const PackedLoops *l = loops_of(_i);
  for (size_t t = 0; t < 3 && l; t++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int form = 0; form < 8; form++)
        check(
            l,
            (MatmulShape){.dtype = types[t], .m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]},
            form);
}
END_TEST

/* Sums of one block of k and of several, where they wait in f32; whole tiles and the edge. */
START_TEST(epilogues) {
  const PackedLoops *l = loops_of(_i);
  for (size_t t = 0; t < 3 && l; t++)
    for (int64_t k = 10; k < 1000; k += 500)
      for (uint32_t parts = 0; parts < 16; parts++)
        for (int form = 0; form < 8; form += 4)
          check(l,
                (MatmulShape){.dtype = types[t],
                              .m = 25,
                              .n = 33,
                              .k = k,
                              .bias = parts & 1,
                              .activation = parts & 2 ? ABI_ACT_RELU : ABI_ACT_NONE,
                              .addend = parts >> 2 > 0,
                              .in_place = parts >> 2 == 2},
                form);
}
END_TEST

START_TEST(batches) {
  const PackedLoops *l = loops_of(_i);
  for (size_t t = 0; t < 3 && l; t++)
    for (int form = 0; form < 8; form++)
      check(
          l,
          (MatmulShape){
              .dtype = types[t], .nbatch = 1, .batch = {3}, .m = 9, .n = 20, .k = 30, .addend = 1},
          form);
}
END_TEST

/* A head of GPT-2: what waits for the next block of k does not grow with the columns. */
START_TEST(scratch_is_bounded) {
  const PackedLoops *l = loops_of(_i);
  const MatmulShape s = {.dtype = ABI_BF16,
                         .m = 4096,
                         .n = 50257,
                         .k = 768,
                         .a_m = 768,
                         .a_k = 1,
                         .b_k = 50257,
                         .b_n = 1,
                         .out_m = 50257,
                         .out_n = 1};
  if (l) ck_assert_uint_le(dtm_rt_packed_scratch(l, &s, 1), 3 << 20);
}
END_TEST

/* What is not finite stays in its row and its column: not in what panels are filled up with. */
START_TEST(strange_numbers_stay_in_place) {
  enum { M = 25, N = 33, K = 20 };
  const PackedLoops *l = loops_of(_i);
  for (size_t t = 0; t < 3 && l; t++)
    for (int form = 0; form < 8; form++) {
      MatmulShape s = {.dtype = types[t], .m = M, .n = N, .k = K};
      lay_out(&s, form);
      size_t size = abi_dtype_bytes(s.dtype);
      void *a = elements(s.dtype, M * K, NULL), *b = elements(s.dtype, K * N, NULL);
      void *out = elements(s.dtype, M * N, NULL);
      abi_store(a, s.dtype, (M - 1) * s.a_m + 3 * s.a_k, NAN);
      abi_store(b, s.dtype, (K - 1) * s.b_k + (N - 1) * s.b_n, INFINITY);
      run(l, &s, a, b, NULL, NULL, out, 1);
      for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
          ck_assert_int_eq(isfinite(abi_load(out, s.dtype, i * s.out_m + j * s.out_n)),
                           i < M - 1 && j < N - 1);
      free_before_wall(a, M * K * size);
      free_before_wall(b, K * N * size);
      free_before_wall(out, M * N * size);
    }
}
END_TEST

static float widen(uint32_t dtype, uint16_t x) {
  return dtype == ABI_BF16 ? abi_from_bf16(x) : abi_from_f16(x);
}
static uint16_t narrow(uint32_t dtype, float x) {
  return dtype == ABI_BF16 ? abi_to_bf16(x) : abi_to_f16(x);
}

/* 1 x is x for every x of 16 bits, and x + y is rounded as a single element is. */
START_TEST(conversions) {
  enum { N = 1 << 16 };
  const PackedLoops *l = loops_of(_i);
  uint16_t *x = malloc(2 * N * sizeof *x), *out = malloc(N * sizeof *out);
  for (size_t t = 1; t < 3 && l; t++)
    for (int pairs = 0; pairs < 2; pairs++) {
      MatmulShape s = {.dtype = types[t], .m = 1, .n = N, .k = pairs + 1};
      s.a_m = s.k, s.a_k = 1, s.b_k = N, s.b_n = 1, s.out_m = N, s.out_n = 1;
      const uint16_t one[2] = {narrow(s.dtype, 1), narrow(s.dtype, 1)};
      for (int i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)i;
        x[N + i] = (uint16_t)(state >> 16);
      }
      run(l, &s, one, x, NULL, NULL, out, 1);
      for (int i = 0; i < N; i++) {
        float v = widen(s.dtype, x[i]);
        if (pairs) v += widen(s.dtype, x[N + i]);
        uint16_t want = narrow(s.dtype, v + 0.0f);
        if (isnan(v))
          ck_assert(isnan(widen(s.dtype, out[i])));
        else
          ck_assert_msg(want == out[i], "%s %04x: %04x, want %04x", abi_dtype_name(s.dtype), x[i],
                        out[i], want);
      }
    }
  free(x);
  free(out);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("matmul_packed");
  TCase *tc = tcase_create("matmul_packed");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, extents, 0, PACKED_SETS);
  tcase_add_loop_test(tc, epilogues, 0, PACKED_SETS);
  tcase_add_loop_test(tc, batches, 0, PACKED_SETS);
  tcase_add_loop_test(tc, scratch_is_bounded, 0, PACKED_SETS);
  tcase_add_loop_test(tc, strange_numbers_stay_in_place, 0, PACKED_SETS);
  tcase_add_loop_test(tc, conversions, 0, PACKED_SETS);
  suite_add_tcase(suite, tc);
  return suite_run_unforked(suite);
}
