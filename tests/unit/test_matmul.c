/* Matrix products against a naive sum in f64: every transposition, element type, epilogue, batch
 * form and zero extent; and bit-equality over thread counts. */
#include <check.h>
#include <omp.h>
#include <stdlib.h>

#include "device/cpu/matmul.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

enum { ROOM = 1 << 17 };

typedef struct Case {
  MatmulShape s;
  char *a, *b, *bias, *addend, *out;
} Case;

static uint32_t seed = 1;
static double random_value(uint32_t dtype) {
  seed = seed * 1664525u + 1013904223u;
  int v = (int)(seed >> 24) - 128;
  return abi_is_float(dtype) ? v / 64.0 : dtype == ABI_BOOL ? v & 1 : v % 4;
}

static char *fresh(uint32_t dtype) {
  char *p = aligned_alloc(64, ROOM);
  for (int64_t i = 0; i < ROOM / (int64_t)abi_dtype_bytes(dtype); i++)
    abi_store(p, dtype, i, random_value(dtype));
  return p;
}

static double activation(uint32_t act, double x) {
  switch ((AbiActivation)act) {
  case ABI_ACT_NONE:
    return x;
  case ABI_ACT_RELU:
    return x > 0 ? x : 0;
  case ABI_ACT_GELU:
    return 0.5 * x * erfc(-x * M_SQRT1_2);
  case ABI_ACT_GELU_TANH:
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
  case ABI_ACT_SILU:
    return x / (1 + exp(-x));
  case ABI_ACT_TANH:
    return tanh(x);
  }
  return x;
}

/* The naive value of one element, and the sum of magnitudes for the tolerance. */
static double naive(const Case *c, const int64_t *at, int64_t i, int64_t j, double *scale) {
  const MatmulShape *s = &c->s;
  int64_t oa = i * s->a_m, ob = j * s->b_n, oo = i * s->out_m + j * s->out_n;
  for (uint32_t d = 0; d < s->nbatch; d++) {
    oa += at[d] * s->a_batch[d];
    ob += at[d] * s->b_batch[d];
    oo += at[d] * s->out_batch[d];
  }
  double sum = 0;
  *scale = 1;
  for (int64_t k = 0; k < s->k; k++) {
    double v =
        abi_load(c->a, s->dtype, oa + k * s->a_k) * abi_load(c->b, s->dtype, ob + k * s->b_k);
    sum += v;
    *scale += fabs(v);
  }
  if (s->bias) sum += abi_load(c->bias, s->dtype, j);
  sum = activation(s->activation, sum);
  if (s->addend) sum += abi_load(c->addend, s->dtype, oo);
  return sum;
}

static double tolerance(uint32_t dtype) {
  return dtype == ABI_F64      ? 1e-14
         : dtype == ABI_F32    ? 2e-6
         : dtype == ABI_BF16   ? 1e-2
         : dtype == ABI_F16    ? 2e-3
         : abi_is_float(dtype) ? 0.15
                               : 0;
}

static int64_t wrapped(uint32_t dtype, double v) {
  int64_t one = 0;
  char room[8];
  abi_store_int(room, dtype, 0, (int64_t)v);
  one = abi_load_int(room, dtype, 0);
  return one;
}

static void run(Case *c, int threads) {
  const char *error = NULL;
  MatmulContext *ctx = dtm_rt_matmul_open(threads);
  Matmul *m = dtm_rt_matmul_new(ctx, &c->s, c->a, c->b, c->bias, c->s.in_place ? c->out : c->addend,
                                c->out, &error);
  ck_assert_msg(m != NULL, "%s", error);
  ck_assert_int_eq(dtm_rt_matmul_run(m, &error), 0);
  dtm_rt_matmul_free(m);
  dtm_rt_matmul_close(ctx);
}

static void compare(Case *c) {
  MatmulShape *s = &c->s;
  c->addend = memcpy(fresh(s->dtype), c->out, ROOM);
  run(c, 2);
  int64_t at[ABI_MATMUL_BATCH] = {0}, count = 1;
  for (uint32_t d = 0; d < s->nbatch; d++) count *= s->batch[d];
  for (int64_t e = 0; e < count; e++) {
    int64_t rest = e, offset = 0;
    for (uint32_t d = s->nbatch; d-- > 0;) {
      at[d] = rest % s->batch[d];
      rest /= s->batch[d];
      offset += at[d] * s->out_batch[d];
    }
    for (int64_t i = 0; i < s->m; i++)
      for (int64_t j = 0; j < s->n; j++) {
        double scale, want = naive(c, at, i, j, &scale);
        int64_t o = offset + i * s->out_m + j * s->out_n;
        double got = abi_load(c->out, s->dtype, o);
        if (!abi_is_float(s->dtype))
          ck_assert_int_eq(abi_load_int(c->out, s->dtype, o), wrapped(s->dtype, want));
        else
          ck_assert_msg(fabs(got - want) <= tolerance(s->dtype) * scale,
                        "%s m %ld n %ld k %ld at %ld,%ld: %g, want %g", abi_dtype_name(s->dtype),
                        (long)s->m, (long)s->n, (long)s->k, (long)i, (long)j, got, want);
      }
  }
  free(c->addend);
}

static Case begin(uint32_t dtype) {
  Case c = {.a = fresh(dtype), .b = fresh(dtype), .bias = fresh(dtype), .out = fresh(dtype)};
  c.s.dtype = dtype;
  return c;
}

static void end(Case *c) {
  free(c->a);
  free(c->b);
  free(c->bias);
  free(c->out);
}

static void set_plain(MatmulShape *s, int64_t m, int64_t n, int64_t k, int ta, int tb, int to) {
  s->m = m;
  s->n = n;
  s->k = k;
  s->a_m = ta ? 1 : k;
  s->a_k = ta ? m : 1;
  s->b_k = tb ? 1 : n;
  s->b_n = tb ? k : 1;
  s->out_m = to ? 1 : n;
  s->out_n = to ? m : 1;
}

START_TEST(all_transpositions_and_types) {
  static const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7}, {17, 1, 9}, {1, 33, 4}, {20, 48, 1},
                                     {70, 65, 130}, {0, 4, 3}, {4, 0, 3},  {4, 5, 0}};
  for (uint32_t dtype = ABI_F64; dtype < ABI_DTYPE_COUNT; dtype++) {
    if (dtype == ABI_BOOL) continue;
    Case c = begin(dtype);
    for (int t = 0; t < 8; t++)
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        set_plain(&c.s, sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, t & 4);
        compare(&c);
      }
    end(&c);
  }
}
END_TEST

START_TEST(epilogues) {
  static const uint32_t types[] = {ABI_F64, ABI_F32, ABI_BF16, ABI_F16};
  for (size_t i = 0; i < 4; i++)
    for (uint32_t act = ABI_ACT_NONE; act <= ABI_ACT_TANH; act++)
      for (uint32_t parts = 0; parts < 8; parts++) {
        Case c = begin(types[i]);
        set_plain(&c.s, 19, 40, parts & 1 && act ? 0 : 16, 0, parts & 1, parts >> 1 & 1);
        c.s.activation = act;
        c.s.bias = parts >> 1 & 1;
        c.s.addend = parts >> 2;
        c.s.in_place = c.s.addend && (parts & 1);
        compare(&c);
        end(&c);
      }
}
END_TEST

/* A row of NaN stays one behind every activation, alone and with an addend, the result transposed
 * or not. */
START_TEST(not_a_number) {
  static const uint32_t types[] = {ABI_F64, ABI_F32, ABI_BF16, ABI_F16};
  for (size_t i = 0; i < 4; i++)
    for (uint32_t act = ABI_ACT_NONE; act <= ABI_ACT_TANH; act++)
      for (uint32_t form = 0; form < 6; form++) {
        uint32_t parts = form % 3;
        Case c = begin(types[i]);
        set_plain(&c.s, 19, 40, 16, 0, 0, form / 3);
        c.s.activation = act;
        c.s.addend = parts > 0;
        c.s.in_place = parts > 1;
        c.addend = memcpy(fresh(c.s.dtype), c.out, ROOM);
        for (int64_t k = 0; k < c.s.k; k++) abi_store(c.a, c.s.dtype, 3 * c.s.a_m + k, (double)NAN);
        run(&c, 2);
        for (int64_t j = 0; j < c.s.n; j++)
          ck_assert_msg(isnan(abi_load(c.out, c.s.dtype, 3 * c.s.out_m + j * c.s.out_n)),
                        "type %u, activation %u, parts %u: NaN is lost", types[i], act, parts);
        ck_assert(!isnan(abi_load(c.out, c.s.dtype, 0)));
        free(c.addend);
        end(&c);
      }
}
END_TEST

START_TEST(batches) {
  for (uint32_t dtype = ABI_F64; dtype <= ABI_BF16; dtype++)
    for (int form = 0; form < 4; form++) {
      Case c = begin(dtype);
      MatmulShape *s = &c.s;
      set_plain(s, 6, 8, 5, form & 1, form >> 1, 0);
      s->nbatch = 2;
      s->batch[0] = 3;
      s->batch[1] = 2;
      s->a_batch[0] = form == 3 ? 0 : 60; /* the first dim may be broadcast */
      s->a_batch[1] = 30;
      s->b_batch[0] = form == 2 ? 0 : 80;
      s->b_batch[1] = form == 1 ? 0 : 40;
      s->out_batch[0] = 96;
      s->out_batch[1] = 48;
      compare(&c);
      /* Heads inside rows: [S, H, D] x [T, H, D] -> [H, S, T]. */
      *s = (MatmulShape){.dtype = dtype,
                         .nbatch = 1,
                         .batch = {4},
                         .m = 6,
                         .n = 7,
                         .k = 8,
                         .a_batch = {8},
                         .b_batch = {8},
                         .out_batch = {42},
                         .a_m = 32,
                         .a_k = 1,
                         .b_n = 32,
                         .b_k = 1,
                         .out_m = 7,
                         .out_n = 1};
      compare(&c);
      end(&c);
    }
}
END_TEST

START_TEST(threads_do_not_matter) {
  static const int64_t sizes[][3] = {
      {600, 1100, 30}, {16, 16, 8000}, {1, 2000, 50}, {300, 10, 300}};
  for (uint32_t dtype = ABI_F64; dtype <= ABI_BF16; dtype++)
    for (size_t i = 0; i < 4; i++)
      for (int t = 0; t < 4; t++) {
        MatmulShape s = {.dtype = dtype};
        set_plain(&s, sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, 0);
        size_t na = (size_t)(s.m * s.k), nb = (size_t)(s.k * s.n), no = (size_t)(s.m * s.n);
        Case c = {.s = s, .a = malloc(na * 8), .b = malloc(nb * 8), .out = malloc(no * 8)};
        for (size_t k = 0; k < na; k++) abi_store(c.a, dtype, (int64_t)k, random_value(dtype));
        for (size_t k = 0; k < nb; k++) abi_store(c.b, dtype, (int64_t)k, random_value(dtype));
        char *first = NULL;
        for (int threads = 1; threads <= 4; threads++) {
          memset(c.out, 1, no * 8);
          omp_set_num_threads(threads);
          run(&c, threads);
          if (!first)
            first = memcpy(malloc(no * 8), c.out, no * 8);
          else
            ck_assert_mem_eq(first, c.out, no * abi_dtype_bytes(dtype));
        }
        free(first);
        free(c.a);
        free(c.b);
        free(c.out);
      }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("matmul");
  TCase *tc = tcase_create("matmul");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, all_transpositions_and_types);
  tcase_add_test(tc, epilogues);
  tcase_add_test(tc, not_a_number);
  tcase_add_test(tc, batches);
  tcase_add_test(tc, threads_do_not_matter);
  suite_add_tcase(suite, tc);
  return suite_run_unforked(suite);
}
