/* Folds and copies over plain buffers: every element type and operation, in the caches and past
 * them, at lengths and alignments around the sizes of lines and blocks, against integer arithmetic
 * element by element. Values are small whole numbers, so every sum and product is exact. */
#include "comm/reduce.h"
#include "runtime/abi/number.h"
#include "support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5, ROOM = 40000, GUARD = 64 };

typedef struct Buffer {
  unsigned char *all, *data; /* GUARD bytes of 0xa5 before and behind */
  size_t bytes;
} Buffer;

static Buffer buffer_new(size_t bytes, size_t shift) {
  Buffer b = {.all = aligned_alloc(64, (bytes + shift + 2 * GUARD + 63) / 64 * 64), .bytes = bytes};
  ck_assert_ptr_nonnull(b.all);
  b.data = b.all + GUARD + shift;
  memset(b.all, 0xa5, bytes + shift + 2 * GUARD);
  return b;
}

static void buffer_check_guards(const Buffer *b) {
  for (const unsigned char *p = b->all; p < b->data; p++) ck_assert_uint_eq(*p, 0xa5);
  for (size_t i = 0; i < GUARD; i++) ck_assert_uint_eq(b->data[b->bytes + i], 0xa5);
}

static int64_t value(int dtype, int source, size_t i) {
  size_t h = (i * 7 + (size_t)source * 13) * 2654435761u >> 7;
  static const int64_t numbers[] = {-2, -1, 1, 2}; /* no 0: a product of floats would be -0 */
  return dtype == ABI_BOOL ? (int64_t)(h % 2) : dtype == ABI_U8 ? (int64_t)(h % 4) : numbers[h % 4];
}

static int64_t fold(int dtype, int op, int64_t a, int64_t b) {
  switch ((AbiReduce)op) {
  case ABI_SUM:
  case ABI_AVG:
    return dtype == ABI_BOOL ? a | b : a + b;
  case ABI_PRODUCT:
    return a * b;
  case ABI_MAX:
    return a > b ? a : b;
  case ABI_MIN:
    return a < b ? a : b;
  case ABI_AND:
    return a & b;
  case ABI_OR:
    return a | b;
  case ABI_XOR:
    return a ^ b;
  case ABI_REDUCE_NONE:
  case ABI_REDUCE_COUNT:
    break;
  }
  ck_abort_msg("no such operation");
  return 0;
}

static void store(void *to, int dtype, size_t i, int64_t v) {
  if (dtype <= ABI_F16)
    abi_store(to, (uint32_t)dtype, (int64_t)i, (double)v);
  else
    abi_store_int(to, (uint32_t)dtype, (int64_t)i, v);
}

static void store_result(void *to, int dtype, int op, size_t i, int64_t v, int nsrc) {
  if (op != ABI_AVG)
    store(to, dtype, i, v);
  else if (dtype == ABI_F64)
    abi_store(to, ABI_F64, (int64_t)i, (double)v / nsrc);
  else
    abi_store(to, (uint32_t)dtype, (int64_t)i, (double)((float)v / (float)nsrc));
}

/* `in_place`: the destinations are the sources (or the single one is the last source). */
static void check_reduce(int dtype, int op, int nsrc, int ndst, size_t n, size_t shift, bool stream,
                         bool in_place) {
  size_t element = abi_dtype_bytes((uint32_t)dtype), bytes = n * element;
  Buffer src[MOST], dst[MOST];
  const void *from[MOST];
  void *to[MOST];
  unsigned char *want = malloc(bytes + 1);
  ck_assert_ptr_nonnull(want);
  for (int s = 0; s < nsrc; s++) {
    src[s] = buffer_new(bytes, (size_t)s * element);
    for (size_t i = 0; i < n; i++) store(src[s].data, dtype, i, value(dtype, s, i));
    from[s] = src[s].data;
  }
  for (int d = 0; d < ndst; d++) {
    dst[d] = buffer_new(bytes, shift * element + (size_t)(d / 2) * element);
    to[d] = !in_place ? dst[d].data : ndst == 1 ? src[nsrc - 1].data : src[d].data;
  }
  for (size_t i = 0; i < n; i++) {
    int64_t v = value(dtype, 0, i);
    for (int s = 1; s < nsrc; s++) v = fold(dtype, op, v, value(dtype, s, i));
    store_result(want, dtype, op, i, v, nsrc);
  }
  dtm_reduce(to, ndst, from, nsrc, n, dtype, op, stream);
  for (int d = 0; d < ndst; d++) {
    ck_assert_msg(
        memcmp(to[d], want, bytes) == 0,
        "type %d, operation %d, %d sources, destination %d of %d, %zu elements from %zu%s%s", dtype,
        op, nsrc, d, ndst, n, shift, stream ? ", streamed" : "", in_place ? ", in place" : "");
    buffer_check_guards(&dst[d]);
    free(dst[d].all);
  }
  for (int s = 0; s < nsrc; s++) {
    buffer_check_guards(&src[s]);
    free(src[s].all);
  }
  free(want);
}

/* Every type and operation; the loop variable is the number of sources. */
START_TEST(folds) {
  for (int dtype = ABI_F64; dtype < ABI_DTYPE_COUNT; dtype++)
    for (int op = ABI_SUM; op < ABI_REDUCE_COUNT; op++)
      for (int way = 0; dtm_rt_reduces(dtype, op) && way < 4; way++) {
        check_reduce(dtype, op, _i, way % 2 ? _i : 1, 4500, 3, way / 2, false);
        check_reduce(dtype, op, _i, way % 2 ? _i : 1, 1000, 0, way / 2, true);
      }
}
END_TEST

/* Lengths and alignments around lines, blocks and what is fetched ahead. */
START_TEST(lengths_and_alignments) {
  static const size_t lengths[] = {0, 1, 15, 16, 79, 80, 255, 256, 257, 511, 768, 769, 2048, 5000};
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (size_t shift = 0; shift < 16; shift += 5)
      for (int n = 1; n <= 3; n++) {
        check_reduce(ABI_F32, ABI_SUM, 3, n, lengths[l], shift, true, false);
        check_reduce(ABI_BF16, ABI_AVG, 2, n, lengths[l], shift, true, false);
        check_reduce(ABI_F32, ABI_SUM, 3, n, lengths[l], shift, false, false);
      }
}
END_TEST

START_TEST(copies) {
  static const size_t lengths[] = {0, 1, 63, 255, 256, 320, 4095, 4096, 4097, 4160, 8192, ROOM};
  unsigned char *src = malloc(ROOM + 64);
  for (size_t i = 0; i < ROOM + 64; i++) src[i] = (unsigned char)(i * 2654435761u >> 13);
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (size_t shift = 0; shift < 64; shift += 7)
      for (int stream = 0; stream < 2; stream++) {
        Buffer dst = buffer_new(lengths[l], shift);
        dtm_copy(dst.data, src + shift / 2, lengths[l], stream);
        dtm_stream_fence();
        ck_assert_mem_eq(dst.data, src + shift / 2, lengths[l]);
        buffer_check_guards(&dst);
        free(dst.all);
      }
  free(src);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("reduce");
  TCase *tc = tcase_create("reduce");
  tcase_add_loop_test(tc, folds, 1, MOST + 1);
  tcase_add_test(tc, lengths_and_alignments);
  tcase_add_test(tc, copies);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
