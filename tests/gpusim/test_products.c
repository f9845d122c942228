/* Matrix products on the simulated GPU against the CPU's: through the stand-in for cuBLASLt, with
 * all that is done on the way out, and through the kernels for what that does not take. Numbers are
 * small and whole, so that sums are exact in any order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/one_action.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

static uint64_t seed;

static uint32_t draw(uint32_t below) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33) % below;
}

/* A product as the plan has it. Letters: the order in which dims lie, the last closest: "mk", "km",
 * "bmk", "mbk"; b is the batch, c a second one. */
typedef struct Case {
  uint32_t dtype;
  int64_t m, n, k, b, c;
  const char *a_order, *b_order, *out_order;
  uint32_t bias, activation, addend;
  bool in_place;
  uint32_t misalign; /* elements that operands are off an aligned address */
} Case;

static int64_t extent_of(const Case *p, char letter) {
  switch (letter) {
  case 'm':
    return p->m;
  case 'n':
    return p->n;
  case 'k':
    return p->k;
  case 'b':
    return p->b;
  default:
    return p->c;
  }
}

/* Elements from one to the next along a letter; 0 where it is not there. '2' at the end: every
 * second element is used. */
static int64_t stride_of(const Case *p, const char *order, char letter) {
  const char *at = strchr(order, letter);
  int64_t stride = 1;
  if (!at) return 0;
  for (at++; *at; at++) stride *= *at == '2' ? 2 : extent_of(p, *at);
  return stride;
}

static uint32_t add_tensor(OneAction *o, const Case *p, const char *order, bool written) {
  int64_t shape[8];
  uint32_t rank = 0;
  for (; order[rank]; rank++) shape[rank] = order[rank] == '2' ? 2 : extent_of(p, order[rank]);
  one_action_misalign(o, p->misalign);
  return one_action_tensor(o, p->dtype, rank, shape, -1, written);
}

static void fill(OneAction *o, uint32_t tensor, bool any) {
  int64_t n;
  uint32_t dtype = one_action_dtype(o, tensor);
  void *data = one_action_input(o, tensor, &n);
  bool negative = abi_is_float(dtype) || dtype == ABI_I32 || dtype == ABI_I64 || dtype == ABI_I8;
  for (int64_t i = 0; i < n; i++) {
    int64_t v = (int64_t)draw(3) - (negative ? 1 : 0);
    if (!abi_is_float(dtype))
      abi_store_int(data, dtype, i, any ? (int64_t)seed : v);
    else
      abi_store(data, dtype, i, any && draw(50) == 0 ? NAN : (double)v);
  }
}

static AbiMatmul describe(OneAction *o, const Case *p) {
  AbiMatmul m = {.bias = p->bias, .activation = p->activation, .addend = p->addend};
  m.m = one_action_sym(o, p->m);
  m.n = one_action_sym(o, p->n);
  m.k = one_action_sym(o, p->k);
  m.a_m = one_action_sym(o, stride_of(p, p->a_order, 'm'));
  m.a_k = one_action_sym(o, stride_of(p, p->a_order, 'k'));
  m.b_k = one_action_sym(o, stride_of(p, p->b_order, 'k'));
  m.b_n = one_action_sym(o, stride_of(p, p->b_order, 'n'));
  m.out_m = one_action_sym(o, stride_of(p, p->out_order, 'm'));
  m.out_n = one_action_sym(o, stride_of(p, p->out_order, 'n'));
  for (const char *l = "bc"; *l; l++) {
    if (!strchr(p->out_order, *l)) continue;
    m.batch[m.nbatch] = one_action_sym(o, extent_of(p, *l));
    m.a_batch[m.nbatch] = one_action_sym(o, stride_of(p, p->a_order, *l));
    m.b_batch[m.nbatch] = one_action_sym(o, stride_of(p, p->b_order, *l));
    m.out_batch[m.nbatch++] = one_action_sym(o, stride_of(p, p->out_order, *l));
  }
  return m;
}

/* In 16 bits the GPU rounds once more where a pass of ours follows the library's. */
static double allowed(const Case *p) {
  if (p->dtype == ABI_F64) return 1e-14;
  if (p->dtype == ABI_F32) return 4e-6;
  return p->activation ? (p->dtype == ABI_F16 ? 0x1p-9 : 0x1p-6) : 0;
}

static void check_out(const OneAction *o, const Case *p, uint32_t out, int64_t n) {
  const void *cpu = one_action_cpu(o, out), *gpu = one_action_gpu(o, out);
  for (int64_t i = 0; i < n; i++) {
    double x = abi_load(cpu, p->dtype, i), y = abi_load(gpu, p->dtype, i);
    bool same = x == y || (isnan(x) && isnan(y));
    if (!same && p->activation) same = fabs(x - y) <= allowed(p) * fmax(1, fabs(x));
    if (!abi_is_float(p->dtype))
      same = abi_load_int(cpu, p->dtype, i) == abi_load_int(gpu, p->dtype, i);
    ck_assert_msg(same,
                  "%s %s x %s -> %s bias %u activation %u addend %u%s: element %lld of %lld "
                  "is %.9g, on the CPU %.9g",
                  abi_dtype_name(p->dtype), p->a_order, p->b_order, p->out_order, p->bias,
                  p->activation, p->addend, p->in_place ? " in place" : "", (long long)i,
                  (long long)n, y, x);
  }
}

static void run(Case p) {
  OneAction *o = one_action_new(ABI_MATMUL, 0, 0, 1);
  bool any = !abi_is_float(p.dtype);
  uint32_t a = add_tensor(o, &p, p.a_order, false), b = add_tensor(o, &p, p.b_order, false);
  uint32_t bias = p.bias ? add_tensor(o, &p, "n", false) : 0;
  uint32_t addend = p.addend ? add_tensor(o, &p, p.out_order, false) : 0;
  uint32_t out = add_tensor(o, &p, p.out_order, true);
  if (p.in_place) one_action_share(o, addend);
  AbiMatmul m = describe(o, &p);
  one_action_matmul(o, &m);
  fill(o, a, any);
  fill(o, b, any);
  if (p.bias) fill(o, bias, true);
  if (p.addend) fill(o, addend, true);
  int64_t n;
  one_action_input(o, out, &n);
  ck_assert(one_action_run(o));
  check_out(o, &p, out, n);
  one_action_free(o);
}

static Case plain(uint32_t dtype, int64_t m, int64_t n, int64_t k) {
  return (Case){.dtype = dtype,
                .m = m,
                .n = n,
                .k = k,
                .b = 1,
                .c = 1,
                .a_order = "mk",
                .b_order = "kn",
                .out_order = "mn"};
}

/* Every type, every way out, results in rows and in columns. */
START_TEST(way_out) {
  uint32_t dtype = (uint32_t)_i;
  for (uint32_t bits = 0; bits < 8; bits++)
    for (uint32_t activation = 0; activation <= ABI_ACT_TANH; activation++) {
      bool is_float = abi_is_float(dtype);
      if (activation > ABI_ACT_RELU && (!is_float || dtype > ABI_F16)) continue;
      if (activation && (bits & 2) == 0 && (bits & 4)) continue;
      Case p = plain(dtype, 5, 16, 7);
      p.bias = bits & 1;
      p.addend = bits >> 1 & 1;
      p.in_place = bits == 6 || bits == 7;
      if (bits == 4 || bits == 5) p.out_order = "nm";
      p.activation = activation;
      run(p);
    }
}
END_TEST

START_TEST(transposes) {
  static const char *const a[] = {"mk", "km"}, *const b[] = {"kn", "nk"}, *const o[] = {"mn", "nm"};
  static const uint32_t types[] = {ABI_F32, ABI_BF16, ABI_F64, ABI_I32};
  for (uint32_t i = 0; i < 32; i++) {
    Case p = plain(types[i / 8], 6, 9, 11);
    p.a_order = a[i & 1];
    p.b_order = b[i >> 1 & 1];
    p.out_order = o[i >> 2 & 1];
    p.addend = i & 1;
    run(p);
  }
}
END_TEST

START_TEST(batches) {
  static const char *const orders[][3] = {
      {"bmk", "bkn", "bmn"},    {"bmk", "kn", "bmn"},     {"mk", "bkn", "bmn"},
      {"mbk", "bkn", "mbn"},    {"bcmk", "bckn", "bcmn"}, {"bmck", "bkcn", "bmcn"},
      {"cbmk", "bckn", "bcmn"}, {"bcmk", "bkn", "bcmn"},  {"bmk", "bkn", "bnm"}};
  static const uint32_t types[] = {ABI_F32, ABI_F16, ABI_U8};
  for (uint32_t t = 0; t < 3; t++)
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
      Case p = plain(types[t], 4, 6, 5);
      p.b = 3;
      p.c = 2;
      p.a_order = orders[i][0];
      p.b_order = orders[i][1];
      p.out_order = orders[i][2];
      p.bias = i & 1;
      p.activation = i % 3 == 2 ? ABI_ACT_RELU : ABI_ACT_NONE;
      p.addend = i >> 1 & 1;
      run(p);
    }
}
END_TEST

/* More entries than all algorithms take. */
START_TEST(a_long_batch) {
  Case p = plain(ABI_F32, 2, 1, 1);
  p.a_order = "bmk";
  p.b_order = "bkn";
  p.out_order = "bmn";
  p.b = 70000;
  run(p);
}
END_TEST

START_TEST(odd_extents) {
  static const int64_t sizes[][3] = {{1, 1, 1}, {1, 8, 3}, {8, 1, 3},    {3, 8, 1},   {0, 4, 4},
                                     {4, 0, 4}, {4, 4, 0}, {70, 65, 40}, {1, 64, 64}, {64, 1, 64}};
  static const uint32_t types[] = {ABI_F32, ABI_BF16, ABI_I8};
  for (uint32_t t = 0; t < 3; t++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int way = 0; way < 2; way++) {
        Case p = plain(types[t], sizes[i][0], sizes[i][1], sizes[i][2]);
        p.bias = p.addend = (uint32_t)way;
        if (way) p.a_order = "km";
        if (way) p.out_order = "nm";
        run(p);
      }
}
END_TEST

/* No unit stride, and addresses that are only aligned to an element. */
START_TEST(what_the_library_does_not_take) {
  for (uint32_t dtype = ABI_F64; dtype <= ABI_F16; dtype++) {
    Case p = plain(dtype, 7, 5, 9);
    p.a_order = "mk2";
    p.bias = 1;
    p.activation = ABI_ACT_SILU;
    run(p);
    p = plain(dtype, 7, 16, 9);
    p.misalign = 1;
    p.bias = 1;
    p.activation = ABI_ACT_RELU;
    run(p);
    p = plain(dtype, 7, 16, 9);
    p.misalign = 3;
    p.b_order = "nk";
    run(p);
    p = plain(dtype, 7, 5, 9);
    p.a_order = "k"; /* the same row for all */
    run(p);
  }
}
END_TEST

/* Without epilogues, and without any algorithm, our kernels do the rest, or all. */
START_TEST(what_a_library_may_lack) {
  static const char *const lacks[] = {"plain", "none"};
  for (int i = 0; i < 2; i++)
    for (uint32_t dtype = ABI_F64; dtype <= ABI_F16; dtype++) {
      Case p = plain(dtype, 5, 16, 7);
      setenv("GPUSIM_BLAS", lacks[i], 1);
      p.bias = 1;
      run(p);
      p.addend = 1;
      p.in_place = true;
      run(p);
      p.activation = ABI_ACT_GELU_TANH;
      run(p);
      unsetenv("GPUSIM_BLAS");
    }
}
END_TEST

int main(void) {
  const char *reason = NULL;
  if (!one_action_possible(&reason)) return suite_skip(reason);
  Suite *s = suite_create("products");
  TCase *c = tcase_create("products");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, way_out, ABI_F64, ABI_DTYPE_COUNT);
  tcase_add_test(c, transposes);
  tcase_add_test(c, batches);
  tcase_add_test(c, a_long_batch);
  tcase_add_test(c, odd_extents);
  tcase_add_test(c, what_the_library_does_not_take);
  tcase_add_test(c, what_a_library_may_lack);
  suite_add_tcase(s, c);
  return suite_run_unforked(s);
}
