/* Data readers and batches: every format against bytes written here, damaged files, shuffling,
 * windows, blocks of ranks. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "comm/errors.h"
#include "data/data.h"
#include "data/shuffle.h"
#include "data/table.h"
#include "support/suite.h"

/* --- helpers ------------------------------------------------------------------------------------
 */
typedef struct Bytes {
  unsigned char data[8192];
  size_t n;
} Bytes;

static void put(Bytes *b, const void *p, size_t n) {
  ck_assert_uint_le(b->n + n, sizeof b->data);
  memcpy(b->data + b->n, p, n);
  b->n += n;
}
static void put_big32(Bytes *b, uint32_t v) {
  unsigned char p[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16), (unsigned char)(v >> 8),
                        (unsigned char)v};
  put(b, p, 4);
}

/* u8 [4, 2, 3] of 0..23 */
static Bytes idx_file(void) {
  Bytes b = {.n = 0};
  put(&b, "\0\0\x08\x03", 4);
  put_big32(&b, 4), put_big32(&b, 2), put_big32(&b, 3);
  for (int i = 0; i < 24; i++) put(&b, &(uint8_t){(uint8_t)i}, 1);
  return b;
}

static Bytes npy_file(int version, const char *dict, const void *data, size_t size) {
  Bytes b = {.n = 0};
  put(&b, "\x93NUMPY", 6);
  unsigned char v[2] = {(unsigned char)version, 0};
  put(&b, v, 2);
  size_t n = strlen(dict);
  unsigned char length[4] = {(unsigned char)n, (unsigned char)(n >> 8), 0, 0};
  put(&b, length, version == 1 ? 2 : 4);
  put(&b, dict, n);
  put(&b, data, size);
  return b;
}

static Bytes bin_file(uint32_t magic, uint32_t version, uint32_t count, size_t width) {
  Bytes b = {.n = 0};
  uint32_t header[256] = {magic, version, count};
  put(&b, header, sizeof header);
  for (uint32_t i = 0; i < count; i++) put(&b, &(uint32_t){i * 7}, width);
  return b;
}

static const char *write_file(const char *name, const Bytes *b) {
  static char path[4][64];
  static int next;
  char *p = path[next++ % 4];
  snprintf(p, sizeof path[0], "/tmp/dtm_test_data_%d_%s", (int)getpid(), name);
  FILE *f = fopen(p, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(b->data, 1, b->n, f), b->n);
  fclose(f);
  return p;
}

/* A program of one or two sources, with a communicator that keeps the message. */
static char failure[2048];
static int keep_failure(RtComm *c, int code, const char *message) {
  (void)c;
  snprintf(failure, sizeof failure, "%s", message);
  return code;
}
static const RtCommOps ops = {.name = "test", .fail = keep_failure};

typedef struct Fixture {
  RtComm comm;
  AbiHeader header;
  Image image;
  AbiMesh mesh[2];
  int32_t ranks[8];
  AbiType types[4];
  AbiSource sources[3];
  AbiProgram programs[ABI_PROGRAM_COUNT];
  const char *paths[3];
  RtData *data;
} Fixture;

static const char strings[] = "\0idx\0npy\0bin\0text\0raw\0valid\0x\0t.dtm:1:1";
static uint32_t string(const char *s) {
  for (uint32_t i = 1; i < sizeof strings; i++)
    if (strcmp(strings + i, s) == 0 && strings[i - 1] == 0) return i;
  ck_abort_msg("no string %s", s);
  return 0;
}

/* Mesh (2, 2); `rank` is the one whose block is read. */
static void fixture_init(Fixture *f, int32_t rank) {
  memset(f, 0, sizeof *f);
  f->comm = (RtComm){.ops = &ops, .rank = rank, .world = 4};
  f->mesh[1] = (AbiMesh){.naxes = 2, .size = {2, 2}, .nranks = 4};
  for (int i = 0; i < 8; i++) f->ranks[i] = i;
  f->image = (Image){.header = &f->header,
                     .string = strings,
                     .mesh = f->mesh,
                     .mesh_count = 2,
                     .rank = f->ranks,
                     .rank_count = 8,
                     .type = f->types,
                     .type_count = 4,
                     .source = f->sources,
                     .program = f->programs,
                     .program_count = ABI_PROGRAM_COUNT};
}

static void add_source(Fixture *f, const char *reader, const char *path, uint32_t file_dtype,
                       AbiType type, int64_t below, double scale) {
  uint32_t i = (uint32_t)f->image.source_count++;
  type.mesh = 1;
  f->types[i + 1] = type;
  f->paths[i] = path;
  f->sources[i] = (AbiSource){.program = ABI_PROGRAM_TRAIN,
                              .name = string("x"),
                              .reader = string(reader),
                              .file_dtype = file_dtype,
                              .type = i + 1,
                              .below = below,
                              .scale = scale,
                              .source = string("t.dtm:1:1")};
  f->programs[ABI_PROGRAM_TRAIN].batch = type.shape[0];
  f->programs[ABI_PROGRAM_TRAIN].microbatches = 1;
}

static int fixture_open(Fixture *f, bool shuffle) {
  failure[0] = 0;
  RtDataSetup setup = {.comm = &f->comm,
                       .image = &f->image,
                       .program = ABI_PROGRAM_TRAIN,
                       .paths = f->paths,
                       .shuffle = shuffle,
                       .seed = 5};
  return dtm_rt_data_open(&setup, &f->data);
}

static void expect_failure(const char *text) {
  ck_assert_msg(strstr(failure, text), "\"%s\" is not in: %s", text, failure);
  ck_assert_msg(strstr(failure, "/tmp/dtm_test_data"), "no path in: %s", failure);
}

/* --- formats ------------------------------------------------------------------------------------
 */
START_TEST(formats) {
  char why[TABLE_WHY];
  Table t;
  Bytes b = idx_file();
  ck_assert(dtm_rt_table_parse(&t, "idx", b.data, b.n, 0, why));
  ck_assert_int_eq(t.shape[2], 3);
  ck_assert_int_eq(dtm_rt_table_int(&t, t.stride[0] * 2 + t.stride[1] + 2), 17);

  float c_order[] = {0, 1, 2, 3, 4, 5};
  for (int v = 1; v <= 3; v++) {
    b = npy_file(v, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", c_order,
                 sizeof c_order);
    ck_assert_msg(dtm_rt_table_parse(&t, "npy", b.data, b.n, 0, why), "%s", why);
    ck_assert(dtm_rt_table_float(&t, t.stride[0] + t.stride[1] * 2) == 5);
  }
  b = npy_file(1, "{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\"<f4\"}", c_order,
               sizeof c_order);
  ck_assert_msg(dtm_rt_table_parse(&t, "npy", b.data, b.n, 0, why), "%s", why);
  ck_assert(dtm_rt_table_float(&t, t.stride[0] + t.stride[1] * 2) == 5); /* [1, 2] */
  ck_assert(dtm_rt_table_float(&t, t.stride[0]) == 1);                   /* [1, 0] */
  b = npy_file(1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}", "\xff\xfe\x01\x00", 4);
  ck_assert_msg(dtm_rt_table_parse(&t, "npy", b.data, b.n, 0, why), "%s", why);
  ck_assert_int_eq(dtm_rt_table_int(&t, 0), -2);
  ck_assert_int_eq(dtm_rt_table_int(&t, 1), 256);
  b = npy_file(1, "{'descr': '<f2', 'fortran_order': False, 'shape': ()}", "\x00\x3e", 2);
  ck_assert_msg(dtm_rt_table_parse(&t, "npy", b.data, b.n, 0, why), "%s", why);
  ck_assert(dtm_rt_table_float(&t, 0) == 1.5);

  b = bin_file(20240520, 1, 5, 2);
  ck_assert(dtm_rt_table_parse(&t, "bin", b.data, b.n, 0, why));
  ck_assert_int_eq(dtm_rt_table_int(&t, 4), 28);
  b = bin_file(20240801, 7, 5, 4);
  ck_assert(dtm_rt_table_parse(&t, "bin", b.data, b.n, 0, why));
  ck_assert_int_eq(dtm_rt_table_int(&t, 3), 21);
  ck_assert(
      dtm_rt_table_parse(&t, "raw", (const unsigned char *)"\x80\x3f\x00\xc0", 4, ABI_BF16, why));
  ck_assert(dtm_rt_table_float(&t, 0) == 1 && dtm_rt_table_float(&t, 1) == -2);
  ck_assert(dtm_rt_table_parse(&t, "text", (const unsigned char *)"hi", 2, 0, why));
  ck_assert_int_eq(dtm_rt_table_int(&t, 1), 'i');
}
END_TEST

/* Every prefix of a file, and every file with one byte too many, is refused with a reason. */
START_TEST(truncated) {
  float values[] = {0, 1, 2, 3, 4, 5};
  Bytes files[] = {
      idx_file(),
      npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", values,
               sizeof values),
      npy_file(3, "{'descr': '<f4', 'fortran_order': True, 'shape': (6,)}", values, sizeof values),
      bin_file(20240520, 1, 5, 2)};
  static const char *const readers[] = {"idx", "npy", "npy", "bin"};
  for (int i = 0; i < 4; i++)
    for (size_t n = 0; n <= files[i].n + 1; n++) {
      char why[TABLE_WHY] = "";
      Table t;
      unsigned char *exact = malloc(n + !n); /* so that a checker sees reads beyond */
      memcpy(exact, files[i].data, n);
      bool ok = dtm_rt_table_parse(&t, readers[i], exact, n, 0, why);
      ck_assert_msg(ok == (n == files[i].n), "%s of %zu bytes", readers[i], n);
      ck_assert(ok || strlen(why) > 10);
      free(exact);
    }
}
END_TEST

START_TEST(damaged) {
  static const char *const dicts[] = {
      "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4' 'shape': (1,)}",
      "[]",
      ""};
  char why[TABLE_WHY];
  Table t;
  for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
    Bytes b = npy_file(1, dicts[i], "abcd", 4);
    ck_assert_msg(!dtm_rt_table_parse(&t, "npy", b.data, b.n, 0, why), "%s", dicts[i]);
  }
  Bytes b = idx_file();
  b.data[2] = 0x07;
  ck_assert(!dtm_rt_table_parse(&t, "idx", b.data, b.n, 0, why));
  b.data[2] = 8, b.data[3] = 9;
  ck_assert(!dtm_rt_table_parse(&t, "idx", b.data, b.n, 0, why));
  b = bin_file(20240520, 2, 5, 2);
  ck_assert(!dtm_rt_table_parse(&t, "bin", b.data, b.n, 0, why));
  ck_assert_ptr_nonnull(strstr(why, "20240801"));
}
END_TEST

START_TEST(gzip) {
  Bytes b = idx_file(), cut;
  const char *path = write_file("x.gz", &b);
  gzFile g = gzopen(path, "wb");
  gzwrite(g, b.data, (unsigned)b.n);
  gzclose(g);
  char why[TABLE_WHY];
  Table t;
  ck_assert_msg(dtm_rt_table_open(&t, "idx", path, 0, why), "%s", why);
  ck_assert_int_eq(dtm_rt_table_int(&t, 23), 23);
  dtm_rt_table_close(&t);
  FILE *f = fopen(path, "rb");
  cut.n = fread(cut.data, 1, sizeof cut.data, f);
  fclose(f);
  for (size_t n = cut.n - 1; n > 0; n--) {
    Bytes part = cut;
    part.n = n;
    path = write_file("cut.gz", &part);
    ck_assert_msg(!dtm_rt_table_open(&t, "idx", path, 0, why), "%zu bytes", n);
    ck_assert_msg(!strstr(why, path), "%s", why); /* whoever tells names the path */
    unlink(path);
  }
  cut.data[cut.n / 2] ^= 0x55;
  path = write_file("flip.gz", &cut);
  ck_assert(!dtm_rt_table_open(&t, "idx", path, 0, why));
  unlink(path);
}
END_TEST

/* --- batches ------------------------------------------------------------------------------------
 */
static AbiType batch_type(uint32_t dtype, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  AbiType t = {.dtype = dtype, .rank = rank, .shape = {a, b, c}};
  return t;
}

START_TEST(images) {
  Bytes b = idx_file();
  const char *path = write_file("images", &b);
  /* Batch 3 over both axes in turn: rows 2, 1 on axis 0; columns 2, 1 on axis 1. */
  for (int32_t rank = 0; rank < 4; rank++) {
    Fixture f;
    fixture_init(&f, rank);
    AbiType t = batch_type(ABI_F32, 3, 3, 2, 3);
    t.at[0] = (AbiPlace){.kind = ABI_SHARD, .dim = 0};
    t.at[1] = (AbiPlace){.kind = ABI_SHARD, .dim = 2};
    add_source(&f, "idx", path, 0, t, 0, 0.5);
    ck_assert_int_eq(fixture_open(&f, false), 0);
    ck_assert_int_eq(dtm_rt_data_samples(f.data), 4);
    float out[16];
    for (int64_t batch = 0; batch < 2; batch++) {
      for (int i = 0; i < 16; i++) out[i] = -1;
      ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, batch, out), 0);
      int64_t row0 = rank / 2 ? 2 : 0, rows = rank / 2 ? 1 : 2, col0 = rank % 2 ? 2 : 0;
      int64_t cols = rank % 2 ? 1 : 2, n = 0;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t y = 0; y < 2; y++)
          for (int64_t x = 0; x < cols; x++) {
            int64_t sample = batch * 3 + row0 + r;
            if (sample > 3) sample = 3; /* repeats the last */
            ck_assert(out[n++] == (float)(sample * 6 + y * 3 + col0 + x) * 0.5f);
          }
      ck_assert(out[n] == -1);
    }
    dtm_rt_data_close(f.data);
  }
  unlink(path);
}
END_TEST

START_TEST(windows) {
  Bytes b = {.n = 0};
  put(&b, "abcdefghijk", 11);
  const char *path = write_file("text", &b);
  Fixture f;
  fixture_init(&f, 0);
  add_source(&f, "text", path, 0, batch_type(ABI_I64, 2, 2, 4, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), 0);
  ck_assert_int_eq(dtm_rt_data_samples(f.data), 3); /* abcd defg ghij */
  int64_t out[8];
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 0, out), 0);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(out[i], 'a' + i);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(out[4 + i], 'd' + i);
  dtm_rt_data_close(f.data);
  /* Floats are cut into disjoint rows. */
  float values[12];
  for (int i = 0; i < 12; i++) values[i] = (float)i;
  b.n = 0;
  put(&b, values, sizeof values);
  path = write_file("floats", &b);
  fixture_init(&f, 0);
  add_source(&f, "raw", path, ABI_F32, batch_type(ABI_F64, 2, 2, 4, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), 0);
  ck_assert_int_eq(dtm_rt_data_samples(f.data), 3);
  double wide[8];
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 1, wide), 0);
  ck_assert(wide[0] == 8 && wide[4] == 8); /* sample 2, then repeated */
  dtm_rt_data_close(f.data);
  unlink(path);
}
END_TEST

/* Parts of a file: together all its samples, none twice. */
START_TEST(parts) {
  int64_t seen[10] = {0};
  Bytes b = {.n = 0};
  for (int i = 0; i < 31; i++) put(&b, &(unsigned char){(unsigned char)i}, 1);
  const char *path = write_file("parts", &b); /* ten samples of three and the next */
  const double cuts[] = {0, 0.25, 0.5, 0.99, 1};
  for (int part = 0; part < 4; part++) {
    Fixture f;
    fixture_init(&f, 0);
    add_source(&f, "text", path, 0, batch_type(ABI_I64, 2, 1, 4, 0), 0, 1);
    f.sources[0].from = cuts[part];
    f.sources[0].to = cuts[part + 1];
    ck_assert_msg(fixture_open(&f, true) == 0, "%s", failure);
    for (int64_t k = 0; k < dtm_rt_data_samples(f.data); k++) {
      int64_t sample[4];
      ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, k, sample), 0);
      ck_assert_int_eq(sample[0] % 3, 0);
      ck_assert_int_eq(sample[3], sample[0] + 3);
      ck_assert(sample[0] >= 3 * (int64_t)(10 * cuts[part]) &&
                sample[0] < 3 * (int64_t)(10 * cuts[part + 1]));
      seen[sample[0] / 3]++;
    }
    dtm_rt_data_close(f.data);
  }
  for (int i = 0; i < 10; i++) ck_assert_int_eq(seen[i], 1);
  Fixture f;
  fixture_init(&f, 0);
  add_source(&f, "text", path, 0, batch_type(ABI_I64, 2, 1, 4, 0), 0, 1);
  f.sources[0].from = 0.01;
  f.sources[0].to = 0.05;
  ck_assert_int_ne(fixture_open(&f, true), 0);
  expect_failure("no sample is between 0.01 and 0.05 of its 10");
  unlink(path);
}
END_TEST

START_TEST(mask) {
  Bytes b = idx_file();
  const char *path = write_file("masked", &b);
  Fixture f;
  fixture_init(&f, 3);
  AbiType t = batch_type(ABI_BOOL, 1, 6, 0, 0); /* two per sample */
  t.at[0] = (AbiPlace){.kind = ABI_SHARD, .dim = 0};
  add_source(&f, "valid", "", 0, t, 0, 1);
  add_source(&f, "idx", path, 0, batch_type(ABI_F32, 3, 3, 2, 3), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), 0);
  uint8_t out[3];
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 0, out), 0);
  ck_assert(out[0] && out[1] && out[2]);
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 1, out),
                   0); /* samples 3 | 4, 5: rank holds 3.. */
  ck_assert(!out[0] && !out[1] && !out[2]);
  dtm_rt_data_close(f.data);
  f.comm.rank = 0;
  ck_assert_int_eq(fixture_open(&f, false), 0);
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 1, out), 0);
  ck_assert(out[0] && out[1] && !out[2]);
  dtm_rt_data_close(f.data);
  unlink(path);
}
END_TEST

START_TEST(shuffled) {
  /* A bijection for every size; different between epochs and seeds; every position moves about. */
  for (int64_t n = 1; n < 300; n++) {
    static bool seen[300];
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++) {
      int64_t to = dtm_rt_shuffle(9, 2, n, i);
      ck_assert(to >= 0 && to < n && !seen[to]);
      seen[to] = true;
    }
  }
  int same = 0;
  double spread = 0;
  for (int64_t i = 0; i < 10000; i++) {
    same += dtm_rt_shuffle(9, 0, 10000, i) == dtm_rt_shuffle(9, 1, 10000, i);
    same += dtm_rt_shuffle(9, 0, 10000, i) == dtm_rt_shuffle(10, 0, 10000, i);
    spread += llabs(dtm_rt_shuffle(9, 0, 10000, i) - i);
  }
  ck_assert_int_lt(same, 20);
  ck_assert(spread / 10000 > 3100 && spread / 10000 < 3600); /* a third of the range */
  ck_assert_int_lt(dtm_rt_shuffle(1, 0, (int64_t)1 << 40, 12345), (int64_t)1 << 40);

  Bytes b = idx_file();
  const char *path = write_file("shuffled", &b);
  Fixture f;
  fixture_init(&f, 1);
  add_source(&f, "idx", path, 0, batch_type(ABI_F32, 3, 2, 2, 3), 0, 1);
  ck_assert_int_eq(fixture_open(&f, true), 0);
  bool seen[4] = {false};
  for (int64_t batch = 0; batch < 2; batch++) {
    float out[12];
    ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 3, batch, out), 0);
    seen[(int)out[0] / 6] = seen[(int)out[6] / 6] = true;
  }
  ck_assert(seen[0] && seen[1] && seen[2] && seen[3]);
  dtm_rt_data_close(f.data);
  unlink(path);
}
END_TEST

START_TEST(refused) {
  Bytes b = idx_file();
  const char *path = write_file("refused", &b);
  Fixture f;
  fixture_init(&f, 0);
  add_source(&f, "idx", path, 0, batch_type(ABI_I64, 3, 4, 2, 3), 20, 1);
  ck_assert_int_eq(fixture_open(&f, false), 0);
  int64_t out[24];
  ck_assert_int_eq(dtm_rt_data_read(f.data, 0, 0, 0, out), RT_BAD_DATA);
  expect_failure("value 20 at element 20 (byte 36 of the file) is outside [0, 19]");
  expect_failure("t.dtm:1:1");
  dtm_rt_data_close(f.data);

  fixture_init(&f, 0);
  add_source(&f, "idx", path, 0, batch_type(ABI_F32, 3, 4, 3, 3), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("its shape is [4, 2, 3]; a batch [4, 3, 3]");
  fixture_init(&f, 0);
  add_source(&f, "idx", path, 0, batch_type(ABI_F32, 2, 4, 6, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("needs an array of 2 dims");
  fixture_init(&f, 0);
  add_source(&f, "npy", path, 0, batch_type(ABI_F32, 2, 4, 6, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("NUMPY");
  fixture_init(&f, 0);
  add_source(&f, "npy", "/tmp/dtm_test_data_absent", 0, batch_type(ABI_F32, 2, 4, 6, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("No such file");
  fixture_init(&f, 0);
  add_source(&f, "raw", path, ABI_F32, batch_type(ABI_I32, 1, 4, 0, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("cannot be read as i32");
  Bytes few = {.n = 0};
  put(&few, "abc", 3);
  const char *tiny = write_file("tiny", &few);
  fixture_init(&f, 0);
  add_source(&f, "text", tiny, 0, batch_type(ABI_I32, 2, 4, 5, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("no sample");
  fixture_init(&f, 0);
  add_source(&f, "idx", path, 0, batch_type(ABI_F32, 3, 4, 2, 3), 0, 1);
  add_source(&f, "text", tiny, 0, batch_type(ABI_I32, 1, 4, 0, 0), 0, 1);
  ck_assert_int_eq(fixture_open(&f, false), RT_BAD_DATA);
  expect_failure("4 samples but");
  unlink(tiny);
  unlink(path);
}
END_TEST

int main(void) {
  Suite *s = suite_create("data");
  TCase *c = tcase_create("data");
  tcase_add_test(c, formats);
  tcase_add_test(c, truncated);
  tcase_add_test(c, damaged);
  tcase_add_test(c, gzip);
  tcase_add_test(c, images);
  tcase_add_test(c, windows);
  tcase_add_test(c, parts);
  tcase_add_test(c, mask);
  tcase_add_test(c, shuffled);
  tcase_add_test(c, refused);
  suite_add_tcase(s, c);
  return suite_run(s);
}
