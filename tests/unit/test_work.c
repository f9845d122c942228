/* Bytes and arithmetic of kernels, counted by hand. */
#include <check.h>

#include "kernel/build.h"
#include "report/work.h"
#include "support/suite.h"

static Arena arena;

static void ck_work(Work got, double least, double moved, double flops) {
  ck_assert_double_eq(got.least, least);
  ck_assert_double_eq(got.moved, moved);
  ck_assert_double_eq(got.flops, flops);
}

/* y[i, j] = x[i, j] * w[j] + 1 over [6, 10], x bf16, the rest f32. */
START_TEST(test_map) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  KAccess x = kb_access(kb_buf(&b, KBUF_TENSOR, DT_BF16, false));
  KAccess w = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, false));
  KAccess y = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, true));
  x.stride[0] = y.stride[0] = 1;
  x.stride[1] = y.stride[1] = w.stride[1] = KINT_ONE;
  kb_block(&b, true);
  KRef v = kb_point(&b, OP_MUL, kb_load(&b, x, 0, 0), kb_load(&b, w, 0, 0), 0);
  kb_store(&b, y, kb_point(&b, OP_ADD, v, kb_const(&b, DT_F32, 1), 0), 0);
  const double bytes = 60 * 2 + 10 * 4 + 60 * 4;
  ck_work(work_of_kernel(kb_finish(&b), (const int64_t[]){6, 10}, NULL), bytes, bytes, 2 * 60);
}
END_TEST

/* Softmax of [6, 10] in three loops, the exponentials kept in the output: it is written twice and
 * read once more than the least. */
START_TEST(test_softmax) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  KAccess x = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, false));
  KAccess y = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, true));
  x.stride[0] = y.stride[0] = 1;
  x.stride[1] = y.stride[1] = KINT_ONE;
  kb_block(&b, true);
  KRef most = kb_reduce(&b, REDUCE_MAX, kb_load(&b, x, 0, 0));
  kb_block(&b, true);
  KRef e = kb_point(&b, OP_EXP, kb_point(&b, OP_SUB, kb_load(&b, x, 0, 0), most, 0), 0, 0);
  KRef sum = kb_reduce(&b, REDUCE_SUM, e);
  kb_store(&b, y, e, 0);
  kb_block(&b, false);
  KRef scale = kb_point(&b, OP_DIV, kb_const(&b, DT_F32, 1), sum, 0);
  kb_block(&b, true);
  kb_store(&b, y, kb_point(&b, OP_MUL, kb_load(&b, y, 0, 0), scale, 0), 0);
  const double one = 60 * 4;
  ck_work(work_of_kernel(kb_finish(&b), (const int64_t[]){6, 10}, NULL), 2 * one, 5 * one,
          60 + 3 * 60 + 6 + 60);
}
END_TEST

/* Column sums of [12, 10] in three chunks of rows: with the parts of the sum counted, and as what
 * passes between two kernels of one group. Integers add nothing to the arithmetic. */
START_TEST(test_chunks) {
  for (int integer = 0; integer < 2; integer++) {
    KBuilder b;
    kb_init(&b, &arena);
    kb_dim(&b, KDIM_ROW, kb_int(&b));
    kb_dim(&b, KDIM_VEC, kb_int(&b));
    b.chunk_rows = kb_int(&b);
    b.nchunks = kb_int(&b);
    DType type = integer ? DT_I32 : DT_F32;
    KAccess x = kb_access(kb_buf(&b, KBUF_TENSOR, type, false));
    KAccess parts = kb_access(kb_buf(&b, KBUF_TENSOR, type, true));
    x.stride[0] = parts.stride[0] = 1;
    x.stride[1] = parts.stride[1] = KINT_ONE;
    kb_block(&b, true);
    kb_accum(&b, parts, REDUCE_SUM, kb_load(&b, x, 0, 0));
    const Kernel *k = kb_finish(&b);
    const int64_t ints[] = {12, 10, 4, 3};
    const double in = 120 * 4, out = 30 * 4, flops = integer ? 0 : 120;
    ck_work(work_of_kernel(k, ints, NULL), in + out, in + out, flops);
    ck_work(work_of_kernel(k, ints, (const bool[]){false, true}), in, in + out, flops);
  }
}
END_TEST

/* Rows of a table at an index, [8] rows of [10]: every element that is asked for. */
START_TEST(test_gather) {
  KBuilder b;
  kb_init(&b, &arena);
  kb_dim(&b, KDIM_GRID, kb_int(&b));
  kb_dim(&b, KDIM_VEC, kb_int(&b));
  KAccess ids = kb_access(kb_buf(&b, KBUF_TENSOR, DT_I64, false));
  KAccess table = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, false));
  KAccess y = kb_access(kb_buf(&b, KBUF_TENSOR, DT_F32, true));
  ids.stride[0] = KINT_ONE;
  y.stride[0] = 1;
  table.stride[1] = y.stride[1] = KINT_ONE;
  kb_block(&b, true);
  KRef row = kb_point(&b, OP_MUL, kb_load(&b, ids, 0, 0), kb_int_value(&b, 1), 0);
  kb_store(&b, y, kb_load(&b, table, row, 0), 0);
  const double bytes = 8 * 8 + 80 * 4 + 80 * 4;
  ck_work(work_of_kernel(kb_finish(&b), (const int64_t[]){8, 10}, NULL), bytes, bytes, 0);
}
END_TEST

int main(void) {
  arena_init(&arena);
  Suite *suite = suite_create("work");
  TCase *t = tcase_create("kernels");
  tcase_add_test(t, test_map);
  tcase_add_test(t, test_softmax);
  tcase_add_test(t, test_chunks);
  tcase_add_test(t, test_gather);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  arena_free(&arena);
  return failed;
}
