/* The runtime's library operators against plain loops, every element type, zero extents, and with
 * one and several threads. */
#include <check.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/library.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

enum { ROOM = 4096 };

static uint32_t seed = 7;
static int64_t draw(int64_t n) {
  seed = seed * 1664525u + 1013904223u;
  return n ? (int64_t)(seed >> 8) % n : 0;
}

static LibTensor tensor(uint32_t dtype, uint32_t rank, const int64_t *extent) {
  LibTensor t = {.data = calloc(ROOM, 8), .dtype = dtype, .rank = rank};
  for (uint32_t d = 0; d < rank; d++) t.extent[d] = t.shape[d] = extent[d];
  for (int64_t i = 0; i < ROOM; i++)
    abi_store(t.data, dtype, i, dtype == ABI_BOOL ? (double)draw(2) : (double)(draw(9) - 4));
  if (dtype == ABI_U8)
    for (int64_t i = 0; i < ROOM; i++) abi_store(t.data, dtype, i, (double)draw(9));
  return t;
}

static double get(const LibTensor *t, int64_t i) {
  return abi_load(t->data, t->dtype, i);
}

static void run(LibCall *c) {
  LibFault fault;
  c->threads = 3;
  void *scratch = malloc(dtm_rt_library_scratch(c) + 1);
  ck_assert_int_eq(dtm_rt_library_run(c, scratch, &fault), 0);
  free(scratch);
}

static void release(LibCall *c) {
  for (uint32_t i = 0; i < c->ntensors; i++) free(c->t[i].data);
}

static const int64_t shapes[][3] = {{3, 5, 4}, {1, 7, 1}, {2, 1, 3},
                                    {0, 4, 2}, {3, 0, 2}, {2, 4, 0}};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

START_TEST(sorts) {
  for (uint32_t dtype = ABI_F64; dtype < ABI_DTYPE_COUNT; dtype++)
    for (int s = 0; s < NSHAPES; s++)
      for (int down = 0; down < 2; down++) {
        const int64_t *e = shapes[s];
        LibCall c = {.code = ABI_LIB_SORT, .ntensors = 3, .args = {1, down}};
        c.t[0] = tensor(dtype, 3, e);
        c.t[1] = tensor(dtype, 3, e);
        c.t[2] = tensor(ABI_I64, 3, e);
        run(&c);
        for (int64_t o = 0; o < e[0]; o++)
          for (int64_t i = 0; i < e[2]; i++)
            for (int64_t k = 0; k < e[1]; k++) {
              int64_t at = (o * e[1] + k) * e[2] + i, from = (int64_t)get(&c.t[2], at);
              double v = get(&c.t[1], at);
              ck_assert(v == get(&c.t[0], (o * e[1] + from) * e[2] + i));
              if (k == 0) continue;
              double before = get(&c.t[1], at - e[2]);
              ck_assert(down ? before >= v : before <= v);
              if (before == v) ck_assert(get(&c.t[2], at - e[2]) < from); /* stable */
            }
        release(&c);
      }
}
END_TEST

START_TEST(topk_takes_the_first_of_sort) {
  const int64_t e[] = {3, 6, 2}, k[] = {3, 4, 2};
  LibCall sorted = {.code = ABI_LIB_SORT, .ntensors = 3, .args = {1, 1}};
  sorted.t[0] = tensor(ABI_F32, 3, e);
  ((float *)sorted.t[0].data)[4] = NAN; /* NaN counts as the largest */
  sorted.t[1] = tensor(ABI_F32, 3, e);
  sorted.t[2] = tensor(ABI_I64, 3, e);
  run(&sorted);
  LibCall top = {.code = ABI_LIB_TOPK, .ntensors = 3, .args = {1, 4}};
  top.t[0] = sorted.t[0];
  top.t[1] = tensor(ABI_F32, 3, k);
  top.t[2] = tensor(ABI_I64, 3, k);
  run(&top);
  for (int64_t o = 0; o < 3; o++)
    for (int64_t j = 0; j < 4; j++)
      for (int64_t i = 0; i < 2; i++)
        ck_assert_int_eq(((int64_t *)top.t[2].data)[(o * 4 + j) * 2 + i],
                         ((int64_t *)sorted.t[2].data)[(o * 6 + j) * 2 + i]);
  ck_assert_int_eq(((int64_t *)top.t[2].data)[0], 2);
  free(top.t[1].data);
  free(top.t[2].data);
  release(&sorted);
}
END_TEST

START_TEST(running_sums) {
  for (uint32_t dtype = ABI_F64; dtype < ABI_BOOL; dtype++)
    for (int s = 0; s < NSHAPES; s++)
      for (int reverse = 0; reverse < 2; reverse++) {
        const int64_t *e = shapes[s];
        LibCall c = {.code = ABI_LIB_CUMSUM, .ntensors = 2, .args = {1, reverse}};
        c.t[0] = tensor(dtype, 3, e);
        c.t[1] = tensor(dtype, 3, e);
        run(&c);
        for (int64_t o = 0; o < e[0]; o++)
          for (int64_t i = 0; i < e[2]; i++) {
            double sum = 0;
            for (int64_t n = 0; n < e[1]; n++) {
              int64_t at = (o * e[1] + (reverse ? e[1] - 1 - n : n)) * e[2] + i;
              sum += get(&c.t[0], at);
              double want = dtype == ABI_I8 ? (int8_t)sum : dtype == ABI_U8 ? (uint8_t)sum : sum;
              ck_assert_msg(fabs(get(&c.t[1], at) - want) <= 0.13 * fabs(want), "%s %g want %g",
                            abi_dtype_name(dtype), get(&c.t[1], at), want);
            }
          }
        release(&c);
      }
}
END_TEST

START_TEST(scatters) {
  for (uint32_t dtype = ABI_F64; dtype < ABI_DTYPE_COUNT; dtype++)
    for (int dim = 0; dim < 2; dim++)
      for (int empty = 0; empty < 2; empty++) {
        const int64_t ex[] = {5, 6}, ei[] = {dim ? 5 : 4 - 4 * empty, dim ? 3 - 3 * empty : 6};
        LibCall c = {.code = ABI_LIB_SCATTER_ADD, .ntensors = 4, .args = {dim}};
        c.t[0] = tensor(dtype, 2, ex);
        c.t[1] = tensor(ABI_I32, 2, ei);
        c.t[2] = tensor(dtype, 2, ei);
        c.t[3] = tensor(dtype, 2, ex);
        for (int64_t i = 0; i < ei[0] * ei[1]; i++)
          abi_store(c.t[1].data, ABI_I32, i, (double)draw(ex[dim]));
        run(&c);
        double sum[30];
        for (int64_t i = 0; i < 30; i++) sum[i] = get(&c.t[0], i);
        for (int64_t i = 0; i < ei[0]; i++)
          for (int64_t j = 0; j < ei[1]; j++) {
            int64_t k = (int64_t)get(&c.t[1], i * ei[1] + j), to = dim ? i * 6 + k : k * 6 + j;
            sum[to] += get(&c.t[2], i * ei[1] + j);
          }
        for (int64_t i = 0; i < 30; i++) {
          double want = dtype == ABI_BOOL ? sum[i] != 0 : sum[i];
          ck_assert_msg(fabs(get(&c.t[3], i) - want) <=
                            (dtype >= ABI_F8_E4M3 && dtype <= ABI_F8_E5M2 ? 2.0 : 0.0),
                        "%s %g want %g", abi_dtype_name(dtype), get(&c.t[3], i), want);
        }
        release(&c);
      }
}
END_TEST

START_TEST(foreign_indices_are_told) {
  const int64_t ex[] = {5, 2}, ei[] = {4, 2};
  LibCall c = {.code = ABI_LIB_SCATTER_ADD, .ntensors = 4, .threads = 2};
  for (int i = 0; i < 4; i++) c.t[i] = tensor(i == 1 ? ABI_I64 : ABI_BF16, 2, i % 3 ? ei : ex);
  for (int64_t i = 0; i < 8; i++) ((int64_t *)c.t[1].data)[i] = draw(5);
  ((int64_t *)c.t[1].data)[2] = 5;
  LibFault fault;
  ck_assert_int_eq(dtm_rt_library_run(&c, NULL, &fault), -1);
  ck_assert_int_eq(fault.index, 5);
  ck_assert_int_eq(fault.extent, 5);
  release(&c);
}
END_TEST

START_TEST(replicas_are_compared) {
  const int64_t e[] = {3, 5};
  static const uint32_t types[] = {ABI_F32, ABI_BF16, ABI_I64};
  for (int k = 0; k < 3; k++) {
    LibCall c = {.code = ABI_LIB_SAME_AS, .ntensors = 3, .threads = 2};
    for (int i = 0; i < 3; i++) c.t[i] = tensor(types[k], 2, e);
    size_t bytes = 15 * abi_dtype_bytes(types[k]);
    memcpy(c.t[1].data, c.t[0].data, bytes);
    LibFault fault;
    ck_assert_int_eq(dtm_rt_library_run(&c, NULL, &fault), 0);
    ck_assert_int_eq(memcmp(c.t[2].data, c.t[0].data, bytes), 0);
    if (types[k] == ABI_F32) { /* two NaN agree, and both zeros */
      ((float *)c.t[0].data)[3] = ((float *)c.t[1].data)[3] = NAN;
      ((float *)c.t[0].data)[4] = 0.0f;
      ((float *)c.t[1].data)[4] = -0.0f;
      ck_assert_int_eq(dtm_rt_library_run(&c, NULL, &fault), 0);
      ((float *)c.t[1].data)[7] = NAN;
    } else if (types[k] == ABI_I64) { /* beyond what a double tells apart */
      ((int64_t *)c.t[0].data)[7] = ((int64_t)1 << 60) + 1;
      ((int64_t *)c.t[1].data)[7] = (int64_t)1 << 60;
    } else {
      abi_store(c.t[1].data, types[k], 7, get(&c.t[0], 7) + 64);
    }
    ck_assert_int_eq(dtm_rt_library_run(&c, NULL, &fault), -1);
    ck_assert_int_eq(fault.index, 7);
    ck_assert_int_eq(fault.extent, 15);
    release(&c);
  }
}
END_TEST

/* Vocabulary 10 over 4 ranks (3, 3, 3, 1) and 3 over 4 (1, 1, 1, 0): ids of other blocks take no
 * gradient. */
START_TEST(vocabulary_blocks) {
  for (uint32_t dtype = ABI_F64; dtype <= ABI_F16; dtype++)
    for (int64_t vocab = 3; vocab <= 10; vocab += 7) {
      int64_t c4 = (vocab + 3) / 4;
      for (int64_t rank = 0; rank < 4; rank++) {
        int64_t lo = rank * c4 < vocab ? rank * c4 : vocab, hi = lo + c4 < vocab ? lo + c4 : vocab;
        const int64_t en[] = {4, 5}, ew[] = {hi - lo, 6}, eg[] = {4, 5, 6};
        LibCall c = {.code = ABI_LIB_EMBEDDING_BACKWARD, .ntensors = 3};
        c.t[0] = tensor(dtype, 3, eg);
        c.t[1] = tensor(ABI_I64, 2, en);
        for (int64_t i = 0; i < 20; i++) ((int64_t *)c.t[1].data)[i] = i % vocab;
        c.t[2] = tensor(dtype, 2, ew);
        c.t[2].offset[0] = lo;
        c.t[2].shape[0] = vocab;
        run(&c);
        double sum[10][6] = {{0}};
        for (int64_t i = 0; i < 20; i++)
          for (int64_t d = 0; d < 6; d++) {
            int64_t row = i % vocab - lo;
            if (row >= 0 && row < hi - lo) sum[row][d] += get(&c.t[0], i * 6 + d);
          }
        for (int64_t r = 0; r < hi - lo; r++)
          for (int64_t d = 0; d < 6; d++) ck_assert(get(&c.t[2], r * 6 + d) == sum[r][d]);
        release(&c);
      }
    }
}
END_TEST

/* Three entries of a batch, three experts in two blocks of 200 places; more rows of one expert than
 * a tile has, none of another. [rows, in] by its weight, and the weight's gradient. */
static void set_counts(LibTensor *counts) {
  static const int64_t n[] = {90, 0, 7, 81, 0, 200, 3, 0, 0};
  memcpy(counts->data, n, sizeof n);
}

static void near(double got, double want) {
  ck_assert_msg(fabs(got - want) <= fabs(want) / 128, "%g, not %g", got, want);
}

START_TEST(experts_multiply) {
  enum { B = 3, R = 2, P = 200, IN = 2, OUT = 3, EXPERTS = 3 };
  const int64_t ex[] = {B, R, P, IN}, ey[] = {B, R, P, OUT}, ec[] = {B, EXPERTS};
  for (uint32_t dtype = ABI_F64; dtype <= ABI_F16; dtype++)
    for (int reverse = 0; reverse < 2; reverse++) {
      const int64_t ew[] = {EXPERTS, reverse ? IN : OUT, reverse ? OUT : IN};
      const int64_t ed[] = {EXPERTS, OUT, IN};
      LibCall c = {.code = ABI_LIB_GROUPED_LINEAR, .ntensors = 4, .args = {reverse}};
      LibCall d = {.code = ABI_LIB_GROUPED_LINEAR_WEIGHT, .ntensors = 4};
      c.t[0] = d.t[1] = tensor(dtype, 4, ex);
      c.t[1] = tensor(dtype, 3, ew);
      c.t[2] = d.t[2] = tensor(ABI_I64, 2, ec);
      c.t[3] = tensor(dtype, 4, ey);
      d.t[0] = tensor(dtype, 4, ey);
      d.t[3] = tensor(dtype, 3, ed);
      set_counts(&c.t[2]);
      run(&c);
      run(&d);
      double dw[EXPERTS][OUT][IN] = {{{0}}};
      for (int64_t b = 0; b < B; b++)
        for (int64_t r = 0; r < R; r++) {
          int64_t row = (b * R + r) * P, end = row + P;
          for (int64_t e = 2 * r; e < EXPERTS && e < 2 * r + 2; e++)
            for (int64_t n = ((int64_t *)c.t[2].data)[b * EXPERTS + e]; n > 0; n--, row++)
              for (int64_t o = 0; o < OUT; o++) {
                double want = 0;
                for (int64_t i = 0; i < IN; i++) {
                  int64_t at = (e * ew[1] + (reverse ? i : o)) * ew[2] + (reverse ? o : i);
                  want += get(&c.t[0], row * IN + i) * get(&c.t[1], at);
                  dw[e][o][i] += get(&d.t[0], row * OUT + o) * get(&c.t[0], row * IN + i);
                }
                near(get(&c.t[3], row * OUT + o), want);
              }
          for (int64_t i = row * OUT; i < end * OUT; i++) ck_assert(get(&c.t[3], i) == 0);
        }
      for (int64_t i = 0; i < EXPERTS * OUT * IN; i++) near(get(&d.t[3], i), (&dw[0][0][0])[i]);
      free(d.t[0].data);
      free(d.t[3].data);
      release(&c);
    }
}
END_TEST

/* A block with two experts, on the second of two ranks: 6 rows do not fit into 5 places. */
START_TEST(rows_without_a_place_are_told) {
  const int64_t ex[] = {1, 1, 5, 2}, ew[] = {2, 3, 2}, ec[] = {1, 2}, ey[] = {1, 1, 5, 3};
  LibCall c = {.code = ABI_LIB_GROUPED_LINEAR, .ntensors = 4, .threads = 1};
  c.t[0] = tensor(ABI_F32, 4, ex);
  c.t[1] = tensor(ABI_F32, 3, ew);
  c.t[2] = tensor(ABI_I64, 2, ec);
  c.t[3] = tensor(ABI_F32, 4, ey);
  c.t[0].shape[1] = 2;
  c.t[0].offset[1] = 1;
  c.t[2].shape[1] = 4;
  c.t[2].offset[1] = 2;
  ((int64_t *)c.t[2].data)[0] = 2;
  LibFault fault;
  void *scratch = malloc(dtm_rt_library_scratch(&c) + 1);
  ((int64_t *)c.t[2].data)[1] = 3;
  ck_assert_int_eq(dtm_rt_library_run(&c, scratch, &fault), 0);
  ((int64_t *)c.t[2].data)[1] = 4;
  ck_assert_int_eq(dtm_rt_library_run(&c, scratch, &fault), -1);
  ck_assert_int_eq(fault.index, 4);
  ck_assert_int_eq(fault.extent, 4);
  free(scratch);
  release(&c);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("library");
  TCase *tc = tcase_create("library");
  tcase_add_test(tc, sorts);
  tcase_add_test(tc, topk_takes_the_first_of_sort);
  tcase_add_test(tc, running_sums);
  tcase_add_test(tc, scatters);
  tcase_add_test(tc, foreign_indices_are_told);
  tcase_add_test(tc, replicas_are_compared);
  tcase_add_test(tc, vocabulary_blocks);
  tcase_add_test(tc, experts_multiply);
  tcase_add_test(tc, rows_without_a_place_are_told);
  suite_add_tcase(suite, tc);
  return suite_run_unforked(suite);
}
