/* The transports: every collective, element type and reduction on 1 to 5 forked ranks against
 * a serial computation written without the transport's code; sub-groups, threads, empty and uneven
 * buffers, bit-equal results on all ranks. */
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "types/layout.h"
#include "support/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARENA = 4 << 20, SRC = 0, DST = 2 << 20, MAX_RANKS = 5 };

/* --- Ranks as processes ------------------------------------------------------------------------
 */

typedef void RankBody(RtComm *c, int arg);

#define EXPECT(condition, ...)                                                                     \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: rank %d of %d: ", __FILE__, __LINE__, (int)c->rank, (int)c->world);  \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fputc('\n', stderr);                                                                         \
      _exit(9);                                                                                    \
    }                                                                                              \
  } while (0)

static void run_ranks(int world, int threads, RankBody *body, int arg) {
  LocalSegment segment;
  LocalSetup setup = {world, ARENA, false};
  ck_assert_int_eq(dtm_local_create(&setup, &segment), 0);
  for (int r = 0; r < world; r++) {
    if (fork() == 0) {
      RtComm *c = dtm_local_join(&segment, r, threads, 20);
      dtm_rt_comm_place(c, (RtPlace){0, "a test", __FILE__});
      body(c, arg);
      EXPECT(!c->ops->agree(c, 0, &(uint32_t){0}), "last barrier");
      c->ops->destroy(c, 0);
      _exit(0);
    }
  }
  int bad = 0;
  for (int r = 0; r < world; r++) {
    int status;
    ck_assert(wait(&status) > 0);
    bad += status != 0;
  }
  ck_assert_int_eq(bad, 0);
  close(segment.fd);
}

/* --- Values and their serial reduction ---------------------------------------------------------
 */

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Binary floats by their definition: sign, exponent and fraction bits. */
static double decode_float(uint64_t bits, int exponent_bits, int fraction_bits) {
  uint64_t fraction = bits & ((1ull << fraction_bits) - 1);
  int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  int bias = (1 << (exponent_bits - 1)) - 1;
  double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction ? NAN : sign * INFINITY;
  }
  double m = exponent ? 1 + ldexp((double)fraction, -fraction_bits)
                      : ldexp((double)fraction, -fraction_bits);
  return sign * ldexp(m, (exponent ? exponent : 1) - bias);
}

/* All values of bf16 [0] and f16 [1], filled by main: forked ranks inherit them. */
static double halves[2][1 << 16];

static void fill_halves(void) {
  for (unsigned h = 0; h < 1 << 16; h++) {
    halves[0][h] = decode_float(h, 8, 7);
    halves[1][h] = decode_float(h, 5, 10);
  }
}

/* The nearest value of a 16-bit float, ties to even, by search over its neighbours. */
static uint16_t encode_half(double v, int dtype) {
  const double *value = halves[dtype == ABI_F16];
  uint16_t infinity = dtype == ABI_F16 ? 0x7c00 : 0x7f80, low = 0, high = infinity;
  uint16_t sign = signbit(v) ? 0x8000 : 0;
  double a = fabs(v);
  if (isnan(v)) {
    return infinity | 1u << 6;
  }
  while (high - low > 1) {
    uint16_t middle = (uint16_t)((low + high) / 2);
    if (value[middle] <= a) {
      low = middle;
    } else {
      high = middle;
    }
  }
  /* Above the largest value: as if the next one were finite. */
  double below = value[low];
  double above = high == infinity ? 2 * below - value[low - 1] : value[high];
  if (isinf(a) || a - below > above - a || (a - below == above - a && low % 2)) {
    low = high;
  }
  return sign | low;
}

static double load_float(const void *p, int dtype) {
  double d;
  float f;
  uint16_t h;
  switch (dtype) {
  case ABI_F64:
    return memcpy(&d, p, 8), d;
  case ABI_F32:
    return memcpy(&f, p, 4), f;
  }
  memcpy(&h, p, 2);
  return halves[dtype == ABI_F16][h];
}

static int64_t load_int(const void *p, int dtype) {
  uint64_t v = 0;
  size_t bytes = abi_dtype_bytes((uint32_t)dtype);
  memcpy(&v, p, bytes);
  if (dtype == ABI_U8 || dtype == ABI_BOOL || bytes == 8) {
    return (int64_t)v;
  }
  uint64_t sign = 1ull << (8 * bytes - 1);
  return (int64_t)((v ^ sign) - sign);
}

/* Element i of a rank's source buffer, as bytes. */
static void fill(void *p, int dtype, int rank, int64_t i, int salt) {
  uint64_t h = mix(mix((uint64_t)rank * 1000003u + (uint64_t)i) + (uint64_t)salt);
  double v = ((double)(h >> 11) / (1ull << 53) - 0.5) * 8;
  switch (h % 97) {
  case 0:
    v = NAN;
    break;
  case 1:
    v = INFINITY;
    break;
  case 2:
    v = -0.0;
    break;
  case 3:
    v = ldexp(v, -16); /* subnormal in f16 */
    break;
  case 4:
    v = v * 10000; /* overflows in f16 */
    break;
  }
  float f = (float)v;
  uint16_t half;
  switch (dtype) {
  case ABI_F64:
    memcpy(p, &v, 8);
    return;
  case ABI_F32:
    memcpy(p, &f, 4);
    return;
  case ABI_BF16:
  case ABI_F16:
    half = encode_half(v, dtype);
    memcpy(p, &half, 2);
    return;
  case ABI_BOOL:
    *(uint8_t *)p = h & 1;
    return;
  }
  memcpy(p, &h, abi_dtype_bytes((uint32_t)dtype));
}

static double fold_float(double a, double b, int op, bool single) {
  switch (op) {
  case ABI_SUM:
  case ABI_AVG:
    return single ? (double)((float)a + (float)b) : a + b;
  case ABI_PRODUCT:
    return single ? (double)((float)a * (float)b) : a * b;
  case ABI_MAX:
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
  default:
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
  }
}

static int64_t fold_int(int64_t a, int64_t b, int op, bool boolean) {
  switch (op) {
  case ABI_SUM:
    return boolean ? a | b : (int64_t)((uint64_t)a + (uint64_t)b);
  case ABI_PRODUCT:
    return (int64_t)((uint64_t)a * (uint64_t)b);
  case ABI_MAX:
    return a > b ? a : b;
  case ABI_MIN:
    return a < b ? a : b;
  case ABI_AND:
    return a & b;
  case ABI_OR:
    return a | b;
  default:
    return a ^ b;
  }
}

/* Does `got` hold the reduction of element i over the group? */
static bool reduced_right(const void *got, int dtype, int op, const int32_t *group, int n,
                          int64_t i, int salt) {
  unsigned char value[8];
  bool is_float = dtype <= ABI_F16;
  double f = 0;
  int64_t k = 0;
  for (int g = 0; g < n; g++) {
    fill(value, dtype, group[g], i, salt);
    if (is_float) {
      double v = load_float(value, dtype);
      f = g ? fold_float(f, v, op, dtype != ABI_F64) : v;
    } else {
      int64_t v = load_int(value, dtype);
      k = g ? fold_int(k, v, op, dtype == ABI_BOOL) : v;
    }
  }
  if (!is_float) {
    memcpy(value, &k, abi_dtype_bytes((uint32_t)dtype));
    return memcmp(got, value, abi_dtype_bytes((uint32_t)dtype)) == 0;
  }
  if (op == ABI_AVG) {
    f = dtype == ABI_F64 ? f / n : (double)((float)f / (float)n);
  }
  double seen = load_float(got, dtype);
  if (dtype == ABI_BF16 || dtype == ABI_F16) {
    f = halves[dtype == ABI_F16][encode_half(f, dtype)];
  }
  return isnan(f) ? isnan(seen) : seen == f;
}

static void fill_source(RtComm *c, size_t at, int dtype, int64_t count, int salt) {
  size_t bytes = abi_dtype_bytes((uint32_t)dtype);
  for (int64_t i = 0; i < count; i++) {
    fill(c->arena + at + (size_t)i * bytes, dtype, c->rank, i, salt);
  }
}

/* Groups of a world: all, all reversed, and disjoint groups by residue that work at the same time.
 * Returns the size of the one this rank is in. */
static int group_of(const RtComm *c, int kind, int32_t group[MAX_RANKS]) {
  int n = 0;
  for (int r = 0; r < c->world; r++) {
    int member = kind == 1 ? c->world - 1 - r : r;
    if (kind != 2 || member % 2 == c->rank % 2) {
      group[n++] = member;
    }
  }
  return n;
}

/* --- All-reduce --------------------------------------------------------------------------------
 */

static void all_reduce_case(RtComm *c, int dtype, int op, int64_t count, int kind, bool in_place) {
  int32_t group[MAX_RANKS];
  int n = group_of(c, kind, group), salt = dtype * 100 + op;
  size_t bytes = abi_dtype_bytes((uint32_t)dtype), dst = in_place ? SRC : DST;
  fill_source(c, SRC, dtype, count, salt);
  memset(c->arena + DST, 0xee, (size_t)count * bytes + 64);
  EXPECT(!c->ops->all_reduce(c, SRC, dst, (size_t)count, dtype, op, group, n), "all_reduce");
  for (int64_t i = 0; i < count; i++) {
    EXPECT(reduced_right(c->arena + dst + (size_t)i * bytes, dtype, op, group, n, i, salt),
           "dtype %d op %d count %lld kind %d element %lld", dtype, op, (long long)count, kind,
           (long long)i);
  }
  for (int i = 0; i < 64; i++) {
    EXPECT(c->arena[DST + (size_t)count * bytes * !in_place + (size_t)i] == 0xee, "wrote beyond");
  }
  /* Bit-equal everywhere: compare with what the first member holds. */
  RtBox box = {
      .peer = group[0], .ndims = 1, .extent = {count}, .src_stride = {1}, .dst_stride = {1}};
  size_t copy = DST + (1 << 20);
  EXPECT(!c->ops->pull(c, dst, copy, dtype, &box, 1, group, n), "pull");
  EXPECT(memcmp(c->arena + dst, c->arena + copy, (size_t)count * bytes) == 0, "ranks differ");
}

static void all_reduce_body(RtComm *c, int arg) {
  static const int64_t counts[] = {0, 1, 3, 17, 64, 257, 3001};
  (void)arg;
  for (int dtype = 1; dtype < ABI_DTYPE_COUNT; dtype++) {
    for (int op = 1; op < ABI_REDUCE_COUNT; op++) {
      for (size_t i = 0; dtm_rt_reduces(dtype, op) && i < sizeof counts / sizeof *counts; i++) {
        all_reduce_case(c, dtype, op, counts[i], (int)i % 3, i % 2);
      }
    }
  }
}

START_TEST(all_reduce) {
  run_ranks(_i, 1, all_reduce_body, 0);
}
END_TEST

static void all_reduce_large_body(RtComm *c, int arg) {
  all_reduce_case(c, ABI_F32, ABI_SUM, 200001, arg, false);
  all_reduce_case(c, ABI_F32, ABI_AVG, 200001, arg, true);
  all_reduce_case(c, ABI_BF16, ABI_SUM, 90001, arg, true);
  all_reduce_case(c, ABI_F16, ABI_MAX, 90001, arg, false);
  all_reduce_case(c, ABI_I8, ABI_XOR, 400001, arg, true);
}

START_TEST(all_reduce_large) {
  run_ranks(3, 1, all_reduce_large_body, _i);
  run_ranks(2, 3, all_reduce_large_body, _i); /* several threads: the same bits */
}
END_TEST

/* --- Pull --------------------------------------------------------------------------------------
 */

/* A box of a dense [9, 11, 13] array at random, cut down so that several fit side by side. */
static void random_box(uint64_t key, int ranks, RtBox *b) {
  static const int64_t shape[3] = {9, 11, 13};
  int64_t stride = 1;
  *b = (RtBox){.peer = (int32_t)(mix(key) % (uint64_t)ranks), .ndims = 3};
  for (int d = 2; d >= 0; d--) {
    uint64_t h = mix(key * 31 + (uint64_t)d);
    int64_t start = (int64_t)(h % (uint64_t)shape[d]);
    b->extent[d] = (int64_t)(h >> 20) % (shape[d] - start + 1);
    if (h >> 50 & 1) { /* often the whole dim, so that dims merge */
      start = 0;
      b->extent[d] = shape[d];
    }
    b->src_offset += start * stride;
    b->src_stride[d] = stride;
    stride *= shape[d];
  }
}

static void pull_body(RtComm *c, int arg) {
  enum { BOXES = 6, ROOM = 9 * 11 * 13 };
  size_t bytes = abi_dtype_bytes((uint32_t)arg);
  int32_t group[MAX_RANKS];
  int n = group_of(c, 0, group);
  for (int round = 0; round < 40; round++) {
    RtBox boxes[BOXES];
    size_t nboxes = mix((uint64_t)(round * 7 + c->rank)) % (BOXES + 1);
    for (size_t i = 0; i < nboxes; i++) {
      random_box(((uint64_t)round * 100 + (uint64_t)c->rank) * 100 + i, c->world, &boxes[i]);
      /* Each lands in a slot of its own, with a gap between its rows. */
      int64_t stride = 1;
      for (int d = 2; d >= 0; d--) {
        boxes[i].dst_stride[d] = stride;
        stride *= boxes[i].extent[d] + (d == 2 && round % 2);
      }
      boxes[i].dst_offset = (int64_t)i * 2 * ROOM;
    }
    fill_source(c, SRC, arg, ROOM, round);
    unsigned char *dst = c->arena + DST;
    size_t size = (size_t)BOXES * 2 * ROOM * bytes;
    memset(dst, 0xee, size);
    EXPECT(!c->ops->pull(c, SRC, DST, arg, boxes, nboxes, group, n), "pull");
    unsigned char *want = malloc(size);
    memset(want, 0xee, size);
    for (size_t i = 0; i < nboxes; i++) {
      const RtBox *b = &boxes[i];
      for (int64_t x = 0; x < b->extent[0]; x++) {
        for (int64_t y = 0; y < b->extent[1]; y++) {
          for (int64_t z = 0; z < b->extent[2]; z++) {
            int64_t from = b->src_offset + x * b->src_stride[0] + y * b->src_stride[1] + z;
            int64_t to = b->dst_offset + x * b->dst_stride[0] + y * b->dst_stride[1] + z;
            fill(want + (size_t)to * bytes, arg, b->peer, from, round);
          }
        }
      }
    }
    EXPECT(memcmp(dst, want, size) == 0, "dtype %d round %d", arg, round);
    free(want);
  }
}

START_TEST(pull) {
  static const int dtypes[] = {ABI_F64, ABI_F32, ABI_BF16, ABI_U8};
  for (int world = 1; world <= MAX_RANKS; world++) {
    run_ranks(world, 1, pull_body, dtypes[_i]);
  }
  run_ranks(2, 3, pull_body, dtypes[_i]);
}
END_TEST

/* All-gather of rows cut by the chunk rule (uneven, empty shards), and its large form. */
static void all_gather_body(RtComm *c, int arg) {
  int64_t rows = arg, width = arg > 100 ? 1000 : 3, begin, length;
  int32_t group[MAX_RANKS];
  int n = group_of(c, 0, group);
  chunk(rows, n, c->rank, &begin, &length);
  fill_source(c, SRC, ABI_F32, length * width, 0);
  RtBox boxes[MAX_RANKS];
  for (int r = 0; r < n; r++) {
    int64_t from, count;
    chunk(rows, n, r, &from, &count);
    boxes[r] = (RtBox){.peer = r,
                       .ndims = 2,
                       .extent = {count, width},
                       .src_stride = {width, 1},
                       .dst_offset = from * width,
                       .dst_stride = {width, 1}};
  }
  EXPECT(!c->ops->pull(c, SRC, DST, ABI_F32, boxes, (size_t)n, group, n), "pull");
  for (int r = 0; r < n; r++) {
    int64_t from, count;
    chunk(rows, n, r, &from, &count);
    for (int64_t i = 0; i < count * width; i++) {
      float want;
      fill(&want, ABI_F32, r, i, 0);
      EXPECT(memcmp(c->arena + DST + (size_t)(from * width + i) * 4, &want, 4) == 0,
             "rows %d element %lld of rank %d", arg, (long long)i, r);
    }
  }
}

START_TEST(all_gather) {
  for (int world = 1; world <= MAX_RANKS; world++) {
    for (int rows = 0; rows < 8; rows++) {
      run_ranks(world, 1, all_gather_body, rows);
    }
    run_ranks(world, 1, all_gather_body, 301);
  }
  run_ranks(2, 4, all_gather_body, 301);
}
END_TEST

/* --- Reduce-scatter ----------------------------------------------------------------------------
 */

static void reduce_scatter_case(RtComm *c, int dtype, int op, int64_t rows, int64_t width, int kind,
                                bool in_place) {
  int32_t group[MAX_RANKS];
  int n = group_of(c, kind, group), mine = 0, salt = dtype * 10 + op;
  while (group[mine] != c->rank) {
    mine++;
  }
  int64_t begin, length;
  chunk(width, n, mine, &begin, &length);
  size_t bytes = abi_dtype_bytes((uint32_t)dtype), dst = in_place ? SRC : DST;
  fill_source(c, SRC, dtype, rows * width, salt);
  /* Columns [begin, begin + length) of [rows, width], as [rows, length] or where they were. */
  RtBox box = {.ndims = 2,
               .extent = {rows, length},
               .src_offset = begin,
               .src_stride = {width, 1},
               .dst_offset = in_place ? begin : 0,
               .dst_stride = {in_place ? width : length, 1}};
  if (op % 2) { /* in two halves, with another operation between */
    RtPull half = {0};
    EXPECT(!c->ops->scatter_start(c, SRC, dtype, &box, 1, group, n, &half), "start");
    EXPECT(!c->ops->barrier(c, group, n), "barrier");
    EXPECT(!c->ops->scatter_finish(c, SRC, dst, dtype, op, &box, 1, group, n, &half), "finish");
    dtm_rt_pull_free(&half);
  } else {
    EXPECT(!c->ops->reduce_scatter(c, SRC, dst, dtype, op, &box, 1, group, n), "reduce_scatter");
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < length; j++) {
      int64_t at = box.dst_offset + r * box.dst_stride[0] + j;
      EXPECT(reduced_right(c->arena + dst + (size_t)at * bytes, dtype, op, group, n,
                           r * width + begin + j, salt),
             "dtype %d op %d [%lld, %lld] at %lld, %lld", dtype, op, (long long)rows,
             (long long)width, (long long)r, (long long)j);
    }
  }
}

static void reduce_scatter_body(RtComm *c, int arg) {
  (void)arg;
  for (int dtype = 1; dtype < ABI_DTYPE_COUNT; dtype++) {
    for (int op = 1; op < ABI_REDUCE_COUNT; op++) {
      if (dtm_rt_reduces(dtype, op)) {
        reduce_scatter_case(c, dtype, op, 5, 0, 0, false);
        reduce_scatter_case(c, dtype, op, 7, 2, 1, false); /* empty shards from 3 ranks on */
        reduce_scatter_case(c, dtype, op, 3, 129, 2, false);
        reduce_scatter_case(c, dtype, op, 1, 700, 0, true);
      }
    }
  }
}

static void reduce_scatter_large_body(RtComm *c, int arg) {
  (void)arg;
  reduce_scatter_case(c, ABI_F32, ABI_SUM, 1, 300001, 0, false);
  reduce_scatter_case(c, ABI_F32, ABI_AVG, 301, 1001, 1, false);
}

START_TEST(reduce_scatter) {
  run_ranks(_i, 1, reduce_scatter_body, 0);
}
END_TEST

START_TEST(reduce_scatter_large) {
  run_ranks(3, 1, reduce_scatter_large_body, 0);
  run_ranks(2, 3, reduce_scatter_large_body, 0);
}
END_TEST

/* --- Host exchanges, barriers ------------------------------------------------------------------
 */

static void host_body(RtComm *c, int arg) {
  (void)arg;
  for (int round = 0; round < 200; round++) {
    uint32_t all, want = 0, flag = mix((uint64_t)(round * 8 + c->rank)) % 3 ? 0 : 1u << c->rank;
    for (int r = 0; r < c->world; r++) {
      want |= mix((uint64_t)(round * 8 + r)) % 3 ? 0 : 1u << r;
    }
    EXPECT(!c->ops->agree(c, flag, &all) && all == want, "agree %x, not %x", all, want);
  }
  enum { BYTES = 150000 }; /* more than the bounce buffer */
  unsigned char *data = malloc(BYTES);
  for (int root = 0; root < c->world; root++) {
    for (int i = 0; i < BYTES; i++) {
      data[i] = c->rank == root ? (unsigned char)mix((uint64_t)(i + root)) : 0;
    }
    EXPECT(!c->ops->broadcast_host(c, data, BYTES, root), "broadcast_host");
    for (int i = 0; i < BYTES; i++) {
      EXPECT(data[i] == (unsigned char)mix((uint64_t)(i + root)), "byte %d from %d", i, root);
    }
  }
  free(data);
}

START_TEST(host) {
  run_ranks(_i, 1, host_body, 0);
}
END_TEST

/* Overlapping groups in an order that differs between ranks' views: no rank passes a barrier before
 * all members arrived. Each rank counts its barriers in its arena, which peers then read. */
static void barrier_body(RtComm *c, int arg) {
  (void)arg;
  RtBox box = {.ndims = 0};
  for (int32_t round = 1; round <= 300; round++) {
    for (int a = 0; a < c->world; a++) {
      for (int b = a + 1; b < c->world; b++) {
        if (c->rank != a && c->rank != b) {
          continue;
        }
        int32_t pair[2] = {b, a}, other = c->rank == a ? b : a, seen;
        memcpy(c->arena + (size_t)other * 4, &round, 4);
        box.peer = other;
        box.src_offset = c->rank;
        EXPECT(!c->ops->pull(c, 0, DST, ABI_I32, &box, 1, pair, 2), "pull");
        memcpy(&seen, c->arena + DST, 4);
        EXPECT(seen == round, "round %d: rank %d was at %d", (int)round, (int)other, (int)seen);
      }
    }
    EXPECT(!c->ops->barrier(c, &c->rank, 1), "barrier of one");
  }
}

START_TEST(barriers) {
  run_ranks(_i, 1, barrier_body, 0);
}
END_TEST

/* --- Pulls in two halves --- */

/* Blocks of different lengths go round the ring two at a time: begun, then in every second step
 * other operations with neighbours and with all, then finished. Step s is on its way while step s -
 * 1 is read. */
static void ring_body(RtComm *c, int arg) {
  int n = c->world, left = (c->rank + n - 1) % n, right = (c->rank + 1) % n, ngroup = 0;
  int32_t group[3], everyone[MAX_RANKS];
  for (int32_t r = 0; r < n; r++) {
    everyone[r] = r;
    if (r == c->rank || r == left || r == right) group[ngroup++] = r;
  }
  enum { LANES = 2 };
  static RtPull pulls[LANES];
  static const size_t lane = DST / 4;
  size_t at = 0; /* the half of a lane that holds the block at hand */
  int owner = c->rank;
  for (int l = 0; l < LANES; l++)
    for (int64_t i = 0; i < arg + owner; i++)
      fill(c->arena + SRC + (size_t)l * lane + (size_t)i * 4, ABI_I32, owner, i, l);
  for (int s = 0; s < 2 * n; s++) {
    size_t to = at ? 0 : lane / 2;
    /* every holder adds to a block before it goes on, late on some ranks */
    usleep((unsigned)((c->rank * 7 + s * 3) % 4) * 500);
    for (size_t l = 0; l < LANES; l++)
      for (int64_t i = 0; i < arg + owner; i++) {
        int32_t v;
        memcpy(&v, c->arena + SRC + l * lane + at + (size_t)i * 4, 4);
        v++;
        memcpy(c->arena + SRC + l * lane + at + (size_t)i * 4, &v, 4);
      }
    RtBox box = {.peer = left, .ndims = 1, .src_stride = {1}, .dst_stride = {1}};
    box.extent[0] = arg + (owner + n - 1) % n;
    for (size_t l = 0; l < LANES; l++)
      EXPECT(
          !c->ops->pull_start(c, SRC + l * lane + at, ABI_I32, &box, 1, group, ngroup, &pulls[l]),
          "start");
    if (s % 2) {
      int32_t mine = c->rank, sum = 0;
      memcpy(c->arena + DST, &mine, 4);
      EXPECT(!c->ops->all_reduce(c, DST, DST, 1, ABI_I32, ABI_SUM, everyone, n), "all-reduce");
      memcpy(&sum, c->arena + DST, 4);
      EXPECT(sum == n * (n - 1) / 2, "sum %d", (int)sum);
      EXPECT(!c->ops->barrier(c, group, ngroup), "barrier");
    }
    for (size_t l = 0; l < LANES; l++)
      EXPECT(!c->ops->pull_finish(c, SRC + l * lane + at, SRC + l * lane + to, ABI_I32, &box, 1,
                                  group, ngroup, &pulls[l]),
             "finish");
    owner = (owner + n - 1) % n;
    at = to;
    for (int l = 0; l < LANES; l++)
      for (int64_t i = 0; i < arg + owner; i++) {
        int32_t want;
        fill(&want, ABI_I32, owner, i, l);
        want += s + 1;
        EXPECT(memcmp(c->arena + SRC + (size_t)l * lane + at + (size_t)i * 4, &want, 4) == 0,
               "step %d, element %lld of the block of rank %d", s, (long long)i, owner);
      }
  }
  for (int l = 0; l < LANES; l++) dtm_rt_pull_free(&pulls[l]);
}

START_TEST(ring) {
  for (int world = 2; world <= MAX_RANKS; world++) run_ranks(world, 1, ring_body, _i ? 5000 : 1);
}
END_TEST

/* --- The same over MPI -------------------------------------------------------------------------
 */

/* One rank of `mpirun` (tests/fault/test_mpi.c starts it): all bodies in one process. */
static int mpi_rank(void) {
  MpiSetup setup = {atoi(getenv("OMPI_COMM_WORLD_SIZE")), ARENA, 1, 20};
  RtComm *c;
  int error = dtm_mpi_join(&setup, &c);
  if (error) {
    return error;
  }
  dtm_rt_comm_place(c, (RtPlace){0, "a test", __FILE__});
  host_body(c, 0);
  barrier_body(c, 0);
  all_reduce_body(c, 0);
  all_reduce_large_body(c, 2);
  c->threads = 2;
  all_reduce_large_body(c, 1);
  reduce_scatter_body(c, 0);
  reduce_scatter_large_body(c, 0);
  pull_body(c, ABI_F32);
  pull_body(c, ABI_U8);
  ring_body(c, 1);
  ring_body(c, 5000);
  for (int rows = 0; rows < 8; rows++) {
    all_gather_body(c, rows);
  }
  all_gather_body(c, 301);
  uint32_t all;
  error = c->ops->agree(c, 0, &all);
  c->ops->destroy(c, error);
  return error;
}

int main(void) {
  fill_halves();
  if (getenv("DTM_TEST_MPI")) {
    return mpi_rank();
  }
  Suite *suite = suite_create("comm");
  TCase *tc = tcase_create("local");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, host, 1, MAX_RANKS + 1);
  tcase_add_loop_test(tc, barriers, 1, MAX_RANKS + 1);
  tcase_add_loop_test(tc, all_reduce, 1, MAX_RANKS + 1);
  tcase_add_loop_test(tc, all_reduce_large, 0, 3);
  tcase_add_loop_test(tc, pull, 0, 4);
  tcase_add_test(tc, all_gather);
  tcase_add_loop_test(tc, ring, 0, 2);
  tcase_add_loop_test(tc, reduce_scatter, 1, MAX_RANKS + 1);
  tcase_add_test(tc, reduce_scatter_large);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
