/* Library operators on the simulated GPU against the CPU's functions: every element type, uneven,
 * empty and single extents, lines that fit a block and lines that do not, NaN, infinities, both
 * zeros, the ends of integers, faults. */
#include <math.h>
#include <string.h>

#include "gpusim/one_action.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

static uint64_t seed;

static uint32_t draw(uint32_t below) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33) % below;
}

/* Few different values, so that there are equal ones, some of them extreme. */
static void fill(OneAction *o, uint32_t tensor) {
  static const double extreme[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e30, -1e30, 5e-8};
  int64_t n;
  uint32_t dtype = one_action_dtype(o, tensor);
  void *data = one_action_input(o, tensor, &n);
  for (int64_t i = 0; i < n; i++) {
    bool odd = draw(8) == 0;
    if (!abi_is_float(dtype))
      abi_store_int(data, dtype, i,
                    odd ? (int64_t)(0x8000800080008000ull << draw(2)) : (int64_t)draw(200) - 100);
    else
      abi_store(data, dtype, i, odd ? extreme[draw(8)] : (draw(64) - 32) / 8.0);
  }
}

/* Numbers whose sums are exact in every type. */
static void fill_small(OneAction *o, uint32_t tensor) {
  int64_t n;
  uint32_t dtype = one_action_dtype(o, tensor);
  void *data = one_action_input(o, tensor, &n);
  for (int64_t i = 0; i < n; i++) abi_store(data, dtype, i, (double)draw(3));
}

static void fill_indices(OneAction *o, uint32_t tensor, int64_t below) {
  int64_t n;
  uint32_t dtype = one_action_dtype(o, tensor);
  void *data = one_action_input(o, tensor, &n);
  for (int64_t i = 0; i < n; i++) abi_store_int(data, dtype, i, draw((uint32_t)below));
}

/* Same numbers; of two NaN the bits do not matter. `apart`: in units of the larger's last place. */
static void check_same(const OneAction *o, uint32_t tensor, int64_t n, double apart) {
  uint32_t dtype = one_action_dtype(o, tensor);
  const void *cpu = one_action_cpu(o, tensor), *gpu = one_action_gpu(o, tensor);
  double unit = dtype == ABI_F64    ? 0x1p-52
                : dtype == ABI_F32  ? 0x1p-23
                : dtype == ABI_F16  ? 0x1p-10
                : dtype == ABI_BF16 ? 0x1p-7
                                    : 0x1p-2;
  for (int64_t i = 0; i < n; i++) {
    double a = abi_load(cpu, dtype, i), b = abi_load(gpu, dtype, i);
    bool same = a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
    if (!same && apart > 0) same = fabs(a - b) <= apart * unit * fmax(fabs(a), fabs(b));
    if (!abi_is_float(dtype)) same = abi_load_int(cpu, dtype, i) == abi_load_int(gpu, dtype, i);
    ck_assert_msg(same, "%s, element %lld of %lld: %.17g, on the CPU %.17g", abi_dtype_name(dtype),
                  (long long)i, (long long)n, b, a);
  }
}

static void check_output(OneAction *o, uint32_t tensor, double apart) {
  int64_t n;
  one_action_input(o, tensor, &n);
  check_same(o, tensor, n, apart);
}

static void check_no_fault(const OneAction *o) {
  ck_assert_uint_eq(one_action_fault(o)->action, 0);
  ck_assert(!one_action_cpu_failed(o));
}

/* --- sort and topk ------------------------------------------------------------------------------
 */

static void sort(uint32_t code, uint32_t dtype, int64_t a, int64_t b, int64_t c, int64_t dim,
                 int64_t arg) {
  const int64_t shape[] = {a, b, c};
  int64_t kept[] = {a, b, c};
  if (code == ABI_LIB_TOPK) kept[dim] = arg;
  OneAction *o = one_action_new(ABI_LIBRARY, code, 0, 1);
  uint32_t x = one_action_tensor(o, dtype, 3, shape, -1, false);
  uint32_t values = one_action_tensor(o, dtype, 3, kept, -1, true);
  uint32_t indices = one_action_tensor(o, ABI_I64, 3, kept, -1, true);
  one_action_arg(o, dim);
  one_action_arg(o, arg);
  fill(o, x);
  ck_assert(one_action_run(o));
  check_no_fault(o);
  check_output(o, values, 0);
  check_output(o, indices, 0);
  one_action_free(o);
}

START_TEST(sorts_short_lines) {
  uint32_t dtype = (uint32_t)_i;
  sort(ABI_LIB_SORT, dtype, 3, 50, 2, 1, 0);
  sort(ABI_LIB_SORT, dtype, 2, 3, 65, 2, 1);
  sort(ABI_LIB_TOPK, dtype, 7, 5, 3, 0, 3);
}
END_TEST

START_TEST(sorts_long_lines) {
  uint32_t dtype = (uint32_t)_i;
  sort(ABI_LIB_SORT, dtype, 1, 2051, 2, 1, _i & 1);
}
END_TEST

START_TEST(sorts_what_is_small_or_large) {
  sort(ABI_LIB_SORT, ABI_F32, 3, 1, 2, 1, 0);
  sort(ABI_LIB_SORT, ABI_F32, 3, 0, 2, 1, 0);
  sort(ABI_LIB_SORT, ABI_F32, 0, 4, 2, 1, 0);
  sort(ABI_LIB_TOPK, ABI_F32, 1, 4, 5000, 2, 0);
  sort(ABI_LIB_TOPK, ABI_F32, 1, 2, 4500, 2, 9);
  sort(ABI_LIB_SORT, ABI_F32, 1, 1, 2048, 2, 0);
  sort(ABI_LIB_SORT, ABI_I64, 1, 1, 2049, 2, 1);
}
END_TEST

/* --- running sums -------------------------------------------------------------------------------
 */

static void cumsum(uint32_t dtype, int64_t a, int64_t b, int64_t c, int64_t dim, int64_t reverse) {
  const int64_t shape[] = {a, b, c};
  OneAction *o = one_action_new(ABI_LIBRARY, ABI_LIB_CUMSUM, 0, 1);
  uint32_t x = one_action_tensor(o, dtype, 3, shape, -1, false);
  uint32_t y = one_action_tensor(o, dtype, 3, shape, -1, true);
  one_action_arg(o, dim);
  one_action_arg(o, reverse);
  fill_small(o, x);
  ck_assert(one_action_run(o));
  check_output(o, y, 0);
  one_action_free(o);
}

START_TEST(adds_up_along_a_dim) {
  uint32_t dtype = (uint32_t)_i;
  cumsum(dtype, 2, 9, 3, 1, 0);
  cumsum(dtype, 2, 1100, 2, 1, 1);
  cumsum(dtype, 1, 0, 3, 1, 0);
}
END_TEST

START_TEST(adds_up_in_f64) {
  const int64_t shape[] = {1500};
  for (int64_t reverse = 0; reverse < 2; reverse++) {
    OneAction *o = one_action_new(ABI_LIBRARY, ABI_LIB_CUMSUM, 0, 1);
    uint32_t x = one_action_tensor(o, ABI_F32, 1, shape, -1, false);
    uint32_t y = one_action_tensor(o, ABI_F32, 1, shape, -1, true);
    int64_t n;
    float *data = one_action_input(o, x, &n);
    for (int64_t i = 0; i < n; i++) data[i] = (float)draw(1000) / 7 - 60;
    one_action_arg(o, 0);
    one_action_arg(o, reverse);
    ck_assert(one_action_run(o));
    check_output(o, y, 1);
    one_action_free(o);
  }
}
END_TEST

/* --- replicas -----------------------------------------------------------------------------------
 */

/* One element differs, or none. */
static void same_as(uint32_t dtype, int64_t n, int64_t different) {
  OneAction *o = one_action_new(ABI_LIBRARY, ABI_LIB_SAME_AS, 0, 1);
  uint32_t x = one_action_tensor(o, dtype, 1, &n, -1, false);
  uint32_t first = one_action_tensor(o, dtype, 1, &n, -1, false);
  uint32_t y = one_action_tensor(o, dtype, 1, &n, -1, true);
  int64_t count;
  fill(o, x);
  void *here = one_action_input(o, x, &count), *there = one_action_input(o, first, &count);
  memcpy(there, here, (size_t)n * abi_dtype_bytes(dtype));
  for (int64_t i = different; different >= 0 && i < n; i += 300) {
    abi_store(here, dtype, i, 1);
    abi_store(there, dtype, i, 0);
  }
  ck_assert(one_action_run(o));
  check_output(o, y, 0);
  const CudaFault *f = one_action_fault(o);
  ck_assert_int_eq(f->action, different >= 0);
  ck_assert_int_eq(one_action_cpu_failed(o), different >= 0);
  if (different >= 0) {
    ck_assert_int_eq(f->index, different);
    ck_assert_int_eq(f->extent, n);
    ck_assert(f->mine == 1 && f->first == 0);
  }
  one_action_free(o);
}

START_TEST(compares_replicas) {
  uint32_t dtype = (uint32_t)_i;
  same_as(dtype, 1000, -1);
  same_as(dtype, 1000, 257);
  same_as(dtype, 0, -1);
}
END_TEST

/* --- scatter_add --------------------------------------------------------------------------------
 */

static OneAction *scatter_case(uint32_t dtype, const int64_t *x, const int64_t *index, int64_t dim,
                               bool in_place) {
  OneAction *o = one_action_new(ABI_LIBRARY, ABI_LIB_SCATTER_ADD, 0, 1);
  one_action_tensor(o, dtype, 3, x, -1, false);
  one_action_tensor(o, ABI_I64, 3, index, -1, false);
  one_action_tensor(o, dtype, 3, index, -1, false);
  one_action_tensor(o, dtype, 3, x, -1, true);
  if (in_place) one_action_share(o, 0);
  one_action_arg(o, dim);
  fill(o, 0);
  fill_indices(o, 1, x[dim] ? x[dim] : 1);
  fill(o, 2);
  return o;
}

/* Bits are equal: additions come in the order of the index in both ways. */
static void scatter(uint32_t dtype, int64_t a, int64_t b, int64_t c, int64_t n, int64_t dim,
                    bool in_place) {
  const int64_t x[] = {a, b, c};
  int64_t index[] = {a, b, c};
  index[dim] = n;
  OneAction *o = scatter_case(dtype, x, index, dim, in_place);
  ck_assert(one_action_run(o));
  check_no_fault(o);
  check_output(o, 3, 0);
  one_action_free(o);
}

START_TEST(scatters) {
  uint32_t dtype = (uint32_t)_i;
  scatter(dtype, 3, 7, 5, 20, 1, false);
  scatter(dtype, 2, 30, 3, 100, 1, true);
}
END_TEST

START_TEST(scatters_what_is_small_or_large) {
  scatter(ABI_F32, 1, 300, 1, 5000, 1, false);
  scatter(ABI_F32, 600, 4, 2, 70, 1, false);
  scatter(ABI_F32, 2, 3, 2, 0, 1, false);
  scatter(ABI_F32, 0, 3, 2, 4, 1, false);
  /* index and source smaller than x in other dims too */
  const int64_t x[] = {4, 6, 5}, index[] = {2, 70, 3};
  OneAction *o = scatter_case(ABI_F32, x, index, 1, false);
  ck_assert(one_action_run(o));
  check_output(o, 3, 0);
  one_action_free(o);
}
END_TEST

START_TEST(scatter_tells_a_bad_index) {
  for (int64_t n = 10; n < 100; n += 80) {
    const int64_t x[] = {1, 6, 2}, index[] = {1, n, 2};
    OneAction *o = scatter_case(ABI_F32, x, index, 1, false);
    int64_t count, *ids = one_action_input(o, 1, &count);
    ids[7] = n == 10 ? -3 : 6;
    ck_assert(one_action_run(o));
    ck_assert_int_eq(one_action_fault(o)->action, 1);
    ck_assert_int_eq(one_action_fault(o)->index, ids[7]);
    ck_assert_int_eq(one_action_fault(o)->extent, 6);
    ck_assert(one_action_cpu_failed(o));
    check_output(o, 3, 0);
    one_action_free(o);
  }
}
END_TEST

/* --- embedding ----------------------------------------------------------------------------------
 */

static OneAction *embedding_case(uint32_t dtype, uint32_t of_ids, int64_t n, int64_t vocabulary,
                                 int64_t width, int32_t rank, int32_t ranks) {
  const int64_t g[] = {n, width}, ids[] = {n}, weight[] = {vocabulary, width};
  OneAction *o = one_action_new(ABI_LIBRARY, ABI_LIB_EMBEDDING_BACKWARD, rank, ranks);
  one_action_tensor(o, dtype, 2, g, -1, false);
  one_action_tensor(o, of_ids, 1, ids, -1, false);
  one_action_tensor(o, dtype, 2, weight, 0, true);
  fill(o, 0);
  fill_indices(o, 1, vocabulary);
  return o;
}

/* f32 to the last bit; narrower types are added up in f64 by the CPU, in f32 here. */
static void embedding(uint32_t dtype, int64_t n, int64_t vocabulary, int64_t width, int32_t rank,
                      int32_t ranks) {
  OneAction *o = embedding_case(dtype, ABI_I64, n, vocabulary, width, rank, ranks);
  ck_assert(one_action_run(o));
  check_no_fault(o);
  check_output(o, 2, dtype == ABI_F32 || dtype == ABI_F64 ? 0 : 1);
  one_action_free(o);
}

START_TEST(embeds_backward) {
  uint32_t dtype = (uint32_t)_i;
  embedding(dtype, 70, 19, 33, 0, 1);
}
END_TEST

START_TEST(embeds_backward_in_blocks) {
  for (int32_t rank = 0; rank < 4; rank++) embedding(ABI_F32, 50, 7, 5, rank, 4);
  embedding(ABI_F32, 5000, 300, 3, 0, 1);
  embedding(ABI_F32, 40, 3, 130, 0, 1);
  embedding(ABI_F32, 0, 3, 2, 0, 1);
  embedding(ABI_F32, 20, 3, 0, 0, 1);
  embedding(ABI_F32, 20, 2, 3, 2, 3);
}
END_TEST

START_TEST(embedding_tells_a_bad_id) {
  OneAction *o = embedding_case(ABI_F32, ABI_I32, 30, 9, 4, 1, 2);
  int64_t count;
  int32_t *ids = one_action_input(o, 1, &count);
  ids[11] = 9;
  ck_assert(one_action_run(o));
  ck_assert_int_eq(one_action_fault(o)->action, 1);
  ck_assert_int_eq(one_action_fault(o)->index, 9);
  ck_assert_int_eq(one_action_fault(o)->extent, 9);
  ck_assert(one_action_cpu_failed(o));
  check_output(o, 2, 0);
  one_action_free(o);
}
END_TEST

/* --- products of experts ------------------------------------------------------------------------
 */

typedef struct Experts {
  int64_t batch, blocks, places, experts, in, out;
} Experts;

/* Counts that fit: what is left in a block is shared out among its experts. */
static void fill_counts(OneAction *o, uint32_t tensor, const Experts *e) {
  int64_t n, each = (e->experts + e->blocks - 1) / e->blocks;
  int64_t *counts = one_action_input(o, tensor, &n);
  for (int64_t b = 0; b < e->batch; b++)
    for (int64_t r = 0; r < e->blocks; r++) {
      int64_t left = e->places;
      for (int64_t x = r * each; x < (r + 1) * each && x < e->experts; x++) {
        int64_t take = draw((uint32_t)left + 1);
        counts[b * e->experts + x] = take;
        left -= take;
      }
    }
}

static OneAction *grouped_case(uint32_t code, uint32_t dtype, const Experts *e, bool reverse) {
  bool linear = code == ABI_LIB_GROUPED_LINEAR;
  const int64_t x[] = {e->batch, e->blocks, e->places, e->in};
  const int64_t y[] = {e->batch, e->blocks, e->places, e->out};
  const int64_t weight[] = {e->experts, reverse ? e->in : e->out, reverse ? e->out : e->in};
  const int64_t counts[] = {e->batch, e->experts};
  OneAction *o = one_action_new(ABI_LIBRARY, code, 0, 1);
  one_action_tensor(o, dtype, 4, linear ? x : y, -1, false);
  one_action_tensor(o, dtype, linear ? 3 : 4, linear ? weight : x, -1, false);
  one_action_tensor(o, ABI_I64, 2, counts, -1, false);
  one_action_tensor(o, dtype, linear ? 4 : 3, linear ? y : weight, -1, true);
  if (linear) one_action_arg(o, reverse);
  fill_small(o, 0);
  fill_small(o, 1);
  fill_counts(o, 2, e);
  return o;
}

/* Of small whole numbers sums are exact, in whatever order; 8 bits round once. */
static void grouped(uint32_t dtype, Experts e) {
  for (int way = 0; way < 3; way++) {
    OneAction *o = grouped_case(way < 2 ? ABI_LIB_GROUPED_LINEAR : ABI_LIB_GROUPED_LINEAR_WEIGHT,
                                dtype, &e, way == 1);
    ck_assert(one_action_run(o));
    check_no_fault(o);
    check_output(o, 3, 0);
    one_action_free(o);
  }
}

START_TEST(multiplies_by_experts) {
  grouped((uint32_t)_i, (Experts){2, 2, 9, 5, 7, 6});
}
END_TEST

/* Tensor cores: tiles that are full and not, in k too, moved by 16 bytes and by elements. */
START_TEST(multiplies_on_tensor_cores) {
  grouped(ABI_BF16, (Experts){2, 1, 100, 2, 40, 136});
  grouped(ABI_F16, (Experts){1, 2, 30, 3, 72, 33});
  grouped(ABI_BF16, (Experts){2, 2, 4, 4, 0, 8});
}
END_TEST

START_TEST(multiplies_by_many_experts) {
  grouped(ABI_F32, (Experts){3, 1, 60, 3, 20, 70});
  grouped(ABI_F32, (Experts){1, 4, 5, 7, 3, 2});
  grouped(ABI_F32, (Experts){11, 2, 4, 20, 4, 3});
  grouped(ABI_F32, (Experts){1, 1, 40, 270, 2, 2});
  grouped(ABI_F32, (Experts){2, 2, 4, 4, 0, 3});
  grouped(ABI_F32, (Experts){2, 2, 0, 4, 2, 3});
}
END_TEST

START_TEST(experts_tell_bad_counts) {
  const Experts e = {2, 2, 4, 4, 3, 3};
  for (int way = 0; way < 2; way++) {
    OneAction *o = grouped_case(ABI_LIB_GROUPED_LINEAR, ABI_F32, &e, false);
    int64_t n, *counts = one_action_input(o, 2, &n);
    memset(counts, 0, (size_t)n * sizeof *counts);
    counts[5] = way ? -1 : 5;
    ck_assert(one_action_run(o));
    ck_assert_int_eq(one_action_fault(o)->action, 1);
    ck_assert_int_eq(one_action_fault(o)->index, counts[5]);
    ck_assert_int_eq(one_action_fault(o)->extent, 5);
    ck_assert(one_action_cpu_failed(o));
    check_output(o, 3, 0);
    one_action_free(o);
  }
}
END_TEST

int main(void) {
  const char *reason = NULL;
  if (!one_action_possible(&reason)) return suite_skip(reason);
  Suite *s = suite_create("library");
  TCase *c = tcase_create("library");
  const int first = ABI_F64, last = ABI_DTYPE_COUNT, floats = ABI_F8_E5M2 + 1;
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, sorts_short_lines, first, last);
  tcase_add_loop_test(c, sorts_long_lines, first, last);
  tcase_add_test(c, sorts_what_is_small_or_large);
  tcase_add_loop_test(c, adds_up_along_a_dim, first, last);
  tcase_add_test(c, adds_up_in_f64);
  tcase_add_loop_test(c, compares_replicas, first, last);
  tcase_add_loop_test(c, scatters, first, last);
  tcase_add_test(c, scatters_what_is_small_or_large);
  tcase_add_test(c, scatter_tells_a_bad_index);
  tcase_add_loop_test(c, embeds_backward, first, floats);
  tcase_add_test(c, embeds_backward_in_blocks);
  tcase_add_test(c, embedding_tells_a_bad_id);
  tcase_add_loop_test(c, multiplies_by_experts, first, floats);
  tcase_add_test(c, multiplies_on_tensor_cores);
  tcase_add_test(c, multiplies_by_many_experts);
  tcase_add_test(c, experts_tell_bad_counts);
  suite_add_tcase(s, c);
  return suite_run_unforked(s);
}
