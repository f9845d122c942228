/* Attention of the runtime against plain loops in f64: every element type and instruction set,
 * extents around the sizes of blocks and none, groups of heads cut anywhere, positions, dropout; a
 * sequence in blocks merged by their sums; any number of threads. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/attention_block.h"
#include "state/safetensors.h"
#include "runtime/abi/number.h"
#include "runtime/abi/philox.h"
#include "support/attention.h"
#include "support/suite.h"

/* The widest vectors, for machines that lack them. */
#define LOOPS_NAME(x) wide_f32_##x
#define LOOPS_MULTIPLY(a, b) (((a)&0xffffffffu) * ((b)&0xffffffffu))
#define LOOPS_TARGET
#define LOOPS_WIDE 0
#define LANES 16
#define ROWS 8
#include "device/cpu/attention_loops.h"
#define LOOPS_NAME(x) wide_f64_##x
#define LOOPS_MULTIPLY(a, b) (((a)&0xffffffffu) * ((b)&0xffffffffu))
#define LOOPS_TARGET
#define LOOPS_WIDE 1
#define LANES 8
#define ROWS 8
#include "device/cpu/attention_loops.h"

static double tolerance_of(uint32_t dtype) {
  return dtype == ABI_F64 ? 1e-13 : dtype == ABI_F32 ? 3e-6 : dtype == ABI_F16 ? 2e-3 : 1e-2;
}

static void check_whole(AttentionWhole *w) {
  const Attention *a = &w->a;
  double tolerance = tolerance_of(a->dtype);
  uint32_t d = a->dtype, s = attention_sums_dtype(d);
  AttentionRun r = attention_allocate(w);
  dtm_rt_attention_forward(a, &r.t, r.scratch);
  attention_compare("out", r.t.out, d, w->out, w->rows * a->features, tolerance);
  attention_compare("lse", r.t.lse, s, w->lse, w->rows, d == ABI_F64 ? 1e-13 : 3e-6);
  dtm_rt_attention_backward(a, &r.t, r.scratch);
  attention_compare("dq", r.t.dq, d, w->dq, w->rows * a->width, tolerance);
  attention_compare("dk", r.t.dk, d, w->dk, w->keys * a->width, tolerance);
  attention_compare("dv", r.t.dv, d, w->dv, w->keys * a->features, tolerance);
  attention_release(&r);
}

/* Every instruction set of this machine, and the widest vectors. */
static const AttentionLoops *set_of(int i, uint32_t dtype) {
  int wide = dtype == ABI_F64;
  if (i == ATTENTION_SETS) return wide ? &wide_f64_loops : &wide_f32_loops;
  return dtm_rt_attention_loops(i, wide);
}

static void check_all_sets(Attention a) {
  AttentionWhole w = attention_begin(a);
  attention_define(&w);
  for (int i = 0; i <= ATTENTION_SETS; i++) {
    w.a.loops = set_of(i, a.dtype);
    if (w.a.loops) check_whole(&w);
  }
  attention_end(&w);
}

static const uint32_t dtypes[] = {ABI_F64, ABI_F32, ABI_BF16, ABI_F16};

static const int64_t shapes[][7] = {
    /* batch, heads, groups, queries, keys, width, features */
    {1, 1, 1, 1, 1, 1, 1},     {2, 2, 2, 3, 5, 4, 6},      {1, 3, 3, 64, 64, 64, 64},
    {1, 2, 1, 65, 63, 17, 33}, {2, 4, 2, 130, 200, 32, 8}, {1, 6, 3, 7, 129, 3, 5},
    {1, 5, 1, 33, 70, 16, 80}, {1, 2, 2, 5, 1, 100, 1},    {0, 2, 1, 5, 5, 4, 4},
    {2, 0, 1, 5, 5, 4, 4},     {2, 2, 2, 0, 5, 4, 4},      {2, 2, 2, 5, 0, 4, 4},
    {2, 2, 1, 5, 5, 0, 4},     {2, 2, 1, 5, 5, 4, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(equals_the_definition) {
  const int64_t *s = shapes[_i];
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
    for (int causal = 0; causal < 2; causal++) {
      Attention a = attention_shape(dtypes[t], s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
      a.causal = causal;
      check_all_sets(a);
    }
}
END_TEST

START_TEST(dropout_by_global_element) {
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
    check_all_sets(attention_dropped(dtypes[t], 70, 90));
  }
}
END_TEST

START_TEST(heads_of_a_rank) {
  check_all_sets(attention_cut_heads(ABI_F32));
}
END_TEST

/* A sequence of which rank 1 of 2 has the middle, keys in another order. */
START_TEST(positions) {
  enum { N = 150 };
  int64_t q[N], k[N];
  for (int64_t i = 0; i < N; i++) {
    q[i] = i < N / 2 ? i + 40 : 3 * i;
    k[i] = i < N / 3 ? 2 * i : N - i;
  }
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
    Attention a = attention_shape(dtypes[t], 1, 2, 2, N, N, 8, 16);
    a.causal = 1;
    a.q_positions = q;
    a.k_positions = k;
    a.all_keys = a.all_queries = 1000;
    check_all_sets(a);
    a.dropout = 0.2;
    check_all_sets(a);
  }
}
END_TEST

/* Blocks of keys one by one, merged by their sums; cotangents added up. */
START_TEST(blocks_of_keys) {
  enum { L = 90, BLOCKS = 4, E = 8 };
  Attention a = attention_shape(ABI_F64, 1, 2, 1, L, L, E, E);
  a.causal = 1;
  AttentionWhole w = attention_begin(a);
  attention_define(&w);
  AttentionRun whole = attention_allocate(&w);
  double out[2 * L * E] = {0}, lse[2 * L], delta[2 * L], dq[2 * L * E] = {0};
  for (int i = 0; i < 2 * L; i++) {
    lse[i] = -INFINITY;
    delta[i] = attention_inner(w.g + i * E, w.out + i * E, E);
  }
  for (int pass = 0; pass < 2; pass++)
    for (int b = 0; b < BLOCKS; b++) {
      Attention part = a;
      part.first_key = L * b / BLOCKS;
      part.keys = L * (b + 1) / BLOCKS - part.first_key;
      AttentionTensors t = whole.t;
      t.k = (const double *)t.k + part.first_key * E;
      t.v = (const double *)t.v + part.first_key * E;
      t.dk = (double *)t.dk + part.first_key * E;
      t.dv = (double *)t.dv + part.first_key * E;
      if (pass == 1) {
        t.lse = lse;
        t.delta = delta;
        t.out = NULL;
        dtm_rt_attention_backward(&part, &t, whole.scratch);
        for (int i = 0; i < 2 * L * E; i++) dq[i] += ((double *)t.dq)[i];
        continue;
      }
      dtm_rt_attention_forward(&part, &t, whole.scratch);
      for (int i = 0; i < 2 * L; i++) {
        double more = ((double *)t.lse)[i];
        if (more == -INFINITY) continue; /* nothing seen of this block */
        double all = fmax(lse[i], more) + log1p(exp(-fabs(lse[i] - more)));
        for (int c = 0; c < E; c++)
          out[i * E + c] =
              out[i * E + c] * exp(lse[i] - all) + ((double *)t.out)[i * E + c] * exp(more - all);
        lse[i] = all;
      }
    }
  attention_compare("out", out, ABI_F64, w.out, 2 * L * E, 1e-13);
  attention_compare("lse", lse, ABI_F64, w.lse, 2 * L, 1e-13);
  attention_compare("dq", dq, ABI_F64, w.dq, 2 * L * E, 1e-13);
  attention_compare("dk", whole.t.dk, ABI_F64, w.dk, L * E, 1e-13);
  attention_compare("dv", whole.t.dv, ABI_F64, w.dv, L * E, 1e-13);
  attention_release(&whole);
  attention_end(&w);
}
END_TEST

START_TEST(any_number_of_threads) {
  static const int64_t heads[][2] = {{12, 12}, {4, 1}};
  for (int i = 0; i < 2; i++) {
    Attention a = attention_shape(ABI_F32, 1, heads[i][0], heads[i][1], 200, 150, 16, 16);
    a.causal = 1;
    AttentionWhole w = attention_begin(a);
    AttentionRun first = attention_allocate(&w);
    for (w.a.threads = 1; w.a.threads < 5; w.a.threads++) {
      AttentionRun r = attention_allocate(&w);
      dtm_rt_attention_forward(&w.a, &r.t, r.scratch);
      dtm_rt_attention_backward(&w.a, &r.t, r.scratch);
      if (w.a.threads == 1) {
        AttentionRun swap = first;
        first = r;
        r = swap;
      } else {
        size_t rows = (size_t)w.rows * 16 * sizeof(float),
               keys = (size_t)w.keys * 16 * sizeof(float);
        ck_assert_mem_eq(r.t.out, first.t.out, rows);
        ck_assert_mem_eq(r.t.dq, first.t.dq, rows);
        ck_assert_mem_eq(r.t.dk, first.t.dk, keys);
        ck_assert_mem_eq(r.t.dv, first.t.dv, keys);
      }
      attention_release(&r);
    }
    attention_release(&first);
    attention_end(&w);
  }
}
END_TEST

/* Scores far apart, and values that are not numbers. */
START_TEST(extreme_scores) {
  Attention a = attention_shape(ABI_F32, 1, 1, 1, 20, 100, 4, 4);
  AttentionWhole w = attention_begin(a);
  for (int64_t i = 0; i < 20 * 4; i++) w.q[i] *= 300;
  for (int64_t i = 0; i < 100 * 4; i++) w.k[i] = (double)(float)(w.k[i] * 10);
  for (int64_t i = 0; i < 20 * 4; i++) w.q[i] = (double)(float)w.q[i];
  attention_define(&w);
  AttentionRun r = attention_allocate(&w);
  dtm_rt_attention_forward(&w.a, &r.t, r.scratch);
  attention_compare("out", r.t.out, ABI_F32, w.out, 20 * 4, 2e-3); /* scores of 1e4 have 1e-3 */
  ((float *)r.t.k)[17 * 4] = NAN;
  dtm_rt_attention_forward(&w.a, &r.t, r.scratch);
  for (int64_t i = 0; i < 20 * 4; i++) ck_assert(isnan(((float *)r.t.out)[i]));
  attention_release(&r);
  attention_end(&w);
}
END_TEST

/* --- what PyTorch computes: tests/fixtures/make.py ----------------------------------------------
 */

static const StTensor *fixture(const StStore *store, int i, const char *name) {
  char key[32];
  snprintf(key, sizeof key, "%d.%s", i, name);
  return dtm_rt_st_find(store, key);
}

static void take(const StStore *store, int i, const char *name, double *to, int64_t n) {
  const StTensor *t = fixture(store, i, name);
  int64_t have = 1;
  ck_assert_ptr_nonnull(t);
  for (uint32_t d = 0; d < t->rank; d++) have *= t->shape[d];
  ck_assert_int_eq(have, n);
  for (int64_t k = 0; k < n; k++) to[k] = abi_load(dtm_rt_st_data(store, t), t->dtype, k);
}

START_TEST(equals_pytorch) {
  StStore store;
  char why[ST_WHY];
  int i = 0;
  ck_assert_msg(dtm_rt_st_open(&store, "../fixtures/attention/cases.safetensors", why), "%s", why);
  for (const StTensor *q; (q = fixture(&store, i, "q")); i++) {
    const StTensor *k = fixture(&store, i, "k"), *v = fixture(&store, i, "v");
    double causal;
    Attention a = attention_shape(ABI_F32, q->shape[0], q->shape[1], k->shape[1], q->shape[2],
                                  k->shape[2], q->shape[3], v->shape[3]);
    take(&store, i, "scale", &a.scale, 1);
    take(&store, i, "causal", &causal, 1);
    a.causal = causal != 0;
    AttentionWhole w = attention_begin(a);
    take(&store, i, "q", w.q, w.rows * a.width);
    take(&store, i, "k", w.k, w.keys * a.width);
    take(&store, i, "v", w.v, w.keys * a.features);
    take(&store, i, "g", w.g, w.rows * a.features);
    attention_define(&w); /* for the sums, which PyTorch does not tell */
    take(&store, i, "out", w.out, w.rows * a.features);
    take(&store, i, "dq", w.dq, w.rows * a.width);
    take(&store, i, "dk", w.dk, w.keys * a.width);
    take(&store, i, "dv", w.dv, w.keys * a.features);
    check_whole(&w);
    attention_end(&w);
  }
  ck_assert_int_gt(i, 3);
  dtm_rt_st_close(&store);
}
END_TEST

int main(void) {
  Suite *s = suite_create("attention");
  TCase *c = tcase_create("attention");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, equals_the_definition, 0, SHAPES);
  tcase_add_test(c, dropout_by_global_element);
  tcase_add_test(c, heads_of_a_rank);
  tcase_add_test(c, positions);
  tcase_add_test(c, blocks_of_keys);
  tcase_add_test(c, any_number_of_threads);
  tcase_add_test(c, extreme_scores);
  tcase_add_test(c, equals_pytorch);
  suite_add_tcase(s, c);
  return suite_run(s);
}
