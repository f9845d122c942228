/* safetensors files: what the reader accepts, and that it refuses every damaged one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/abi/image.h"
#include "state/safetensors.h"
#include "support/suite.h"

typedef struct Bytes {
  unsigned char *data;
  size_t n;
} Bytes;

/* A file with this header text (padded to 8) and `data` bytes 0, 1, 2, ... */
static Bytes make(const char *header, size_t data) {
  size_t n = strlen(header), padded = (n + 7) / 8 * 8;
  Bytes b = {malloc(8 + padded + data), 8 + padded + data};
  for (int i = 0; i < 8; i++) b.data[i] = (unsigned char)(padded >> 8 * i);
  memset(b.data + 8, ' ', padded);
  memcpy(b.data + 8, header, n);
  for (size_t i = 0; i < data; i++) b.data[8 + padded + i] = (unsigned char)i;
  return b;
}

static bool parse(Bytes b, StStore *s, char why[ST_WHY]) {
  memset(s, 0, sizeof *s);
  unsigned char *exact = malloc(b.n + !b.n); /* so that a checker sees reads beyond */
  memcpy(exact, b.data, b.n);
  bool ok = dtm_rt_st_parse(s, exact, b.n, 0, why);
  free(exact);
  if (!ok) ck_assert_uint_gt(strlen(why), 10);
  return ok;
}

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                           "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                           "\"scalar\":{\"dtype\":\"U16\",\"shape\":[],\"data_offsets\":[28,30]}}";

START_TEST(reads) {
  char why[ST_WHY];
  StStore s;
  Bytes b = make(good, 30);
  ck_assert_msg(parse(b, &s, why), "%s", why);
  ck_assert_uint_eq(s.ntensors, 4);
  ck_assert_str_eq(dtm_rt_st_metadata(&s, "format"), "pt");
  ck_assert_ptr_null(dtm_rt_st_metadata(&s, "other"));
  for (size_t i = 0; i < 4; i++)
    if (strcmp(s.tensors[i].name, "scalar") == 0) {
      ck_assert_uint_eq(s.tensors[i].rank, 0);
      ck_assert_uint_eq(s.tensors[i].dtype, 0); /* no type of ours */
    }
  dtm_rt_st_close(&s);
  free(b.data);
  static const char *const fine[] = {"{}", "{\"__metadata__\":null}", "  {\"__metadata__\":{}}"};
  for (int i = 0; i < 3; i++) {
    b = make(fine[i], 0);
    ck_assert_msg(parse(b, &s, why), "%s: %s", fine[i], why);
    dtm_rt_st_close(&s);
    free(b.data);
  }
}
END_TEST

START_TEST(truncated) {
  char why[ST_WHY];
  StStore s;
  Bytes b = make(good, 31);
  for (size_t n = 0; n <= b.n; n++) {
    bool ok = parse((Bytes){b.data, n}, &s, why);
    ck_assert_msg(ok == (n == b.n - 1), "%zu of %zu bytes", n, b.n - 1);
    dtm_rt_st_close(&s);
  }
  free(b.data);
}
END_TEST

START_TEST(damaged) {
#define ENTRY(name, dtype, shape, offsets)                                                         \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
  static const struct {
    const char *header;
    size_t data;
    const char *says;
  } cases[] = {
      {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]", "[4,8]") "}", 8, "dup"},
      {"{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 12,
       "hole"},
      {"{" ENTRY("a", "F32", "[1]", "[4,8]") "}", 8, "hole"},
      {"{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[1]", "[4,8]") "}", 8,
       "overlap"},
      {"{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 8, "follow the last"},
      {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "do not fit"},
      {"{" ENTRY("a", "F32", "[1]", "[4,0]") "}", 4, "do not fit"},
      {"{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, "number of bytes"},
      {"{" ENTRY("a", "F32", "[1]", "[0,4.0]") "}", 4, "number of bytes"},
      {"{" ENTRY("a", "F32", "[1]", "[0]") "}", 4, "two data_offsets"},
      {"{" ENTRY("a", "F32", "[-1]", "[0,4]") "}", 4, "number of elements"},
      {"{" ENTRY("a", "F32", "[1.5]", "[0,4]") "}", 4, "number of elements"},
      {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
      {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "8 dims"},
      {"{" ENTRY("a", "F99", "[1]", "[0,4]") "}", 4, "unknown element type"},
      {"{" ENTRY("a", "F32", "[1]", "[0,99999999999999999999]") "}", 4, "JSON"},
      {"{\"a\":3}", 0, "needs dtype"},
      {"{\"__metadata__\":{\"a\":3}}", 0, "strings"},
      {"{\"__metadata__\":[]}", 0, "not an object"},
      {"[]", 0, "not a JSON object"},
      {"{", 0, "JSON"},
      {"{\"a\xff\":3}", 0, "JSON"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[ST_WHY];
    StStore s;
    Bytes b = make(cases[i].header, cases[i].data);
    ck_assert_msg(!parse(b, &s, why), "%s", cases[i].header);
    ck_assert_msg(strstr(why, cases[i].says), "%s: %s", cases[i].header, why);
    dtm_rt_st_close(&s);
    free(b.data);
  }
  unsigned char huge[16] = {0, 0, 0, 0, 0, 1};
  char why[ST_WHY];
  StStore s;
  ck_assert(!parse((Bytes){huge, sizeof huge}, &s, why));
  ck_assert_ptr_nonnull(strstr(why, "100 MB"));
}
END_TEST

/* Any single byte of the header replaced: an answer, never a crash. */
START_TEST(flipped) {
  Bytes b = make(good, 30);
  for (size_t i = 0; i < b.n - 30; i++)
    for (int v = 0; v < 256; v += 5) {
      char why[ST_WHY];
      StStore s;
      unsigned char was = b.data[i];
      b.data[i] = (unsigned char)v;
      parse(b, &s, why);
      dtm_rt_st_close(&s);
      b.data[i] = was;
    }
  free(b.data);
}
END_TEST

START_TEST(header_round_trip) {
  static const int64_t shapes[][2] = {{3, 5}, {7, 1}, {0, 4}, {2, 2}};
  StEntry entries[] = {{.name = "u", .dtype = ABI_U8, .rank = 2, .shape = shapes[0]},
                       {.name = "d \"quoted\"", .dtype = ABI_F64, .rank = 2, .shape = shapes[1]},
                       {.name = "none", .dtype = ABI_F32, .rank = 2, .shape = shapes[2]},
                       {.name = "h", .dtype = ABI_BF16, .rank = 2, .shape = shapes[3]},
                       {.name = "one", .dtype = ABI_F32, .rank = 0, .shape = shapes[3]}};
  static const char *const metadata[] = {"format", "pt"};
  size_t header_size;
  uint64_t file_size;
  unsigned char *header = dtm_rt_st_header(entries, 5, metadata, 1, &header_size, &file_size);
  ck_assert_ptr_nonnull(header);
  ck_assert_uint_eq(header_size % 8, 0);
  ck_assert_int_eq(header[8], '{');
  ck_assert_uint_eq(file_size, header_size + 56 + 4 + 8 + 15);
  Bytes b = {calloc(1, file_size), file_size};
  memcpy(b.data, header, header_size);
  StStore s;
  char why[ST_WHY];
  ck_assert_msg(parse(b, &s, why), "%s", why);
  for (int i = 0; i < 5; i++) {
    bool found = false;
    for (size_t k = 0; k < s.ntensors; k++)
      if (strcmp(s.tensors[k].name, entries[i].name) == 0) {
        found = true;
        ck_assert_uint_eq(s.tensors[k].begin, entries[i].begin);
        ck_assert_uint_eq(s.tensors[k].dtype, entries[i].dtype);
        ck_assert_uint_eq(entries[i].begin % abi_dtype_bytes(entries[i].dtype), 0);
      }
    ck_assert(found);
  }
  dtm_rt_st_close(&s);
  free(b.data);
  free(header);
}
END_TEST

static void write_file(const char *folder, const char *name, const void *p, size_t n) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(p, 1, n, f), n);
  fclose(f);
}

START_TEST(sharded) {
  char folder[] = "/tmp/dtm_test_st_XXXXXX", path[256], why[ST_WHY];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  Bytes one =
      make("{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("x", "U8", "[1]", "[2,3]") "}", 3);
  Bytes two = make("{" ENTRY("b", "U8", "[4]", "[0,4]") "}", 4);
  write_file(folder, "1.safetensors", one.data, one.n);
  write_file(folder, "2.safetensors", two.data, two.n);
  StStore s;
  static const struct {
    const char *index, *says;
  } cases[] = {
      {"{\"metadata\":{\"total_size\":99},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":"
       "\"2.safetensors\"},\"extra\":1}",
       NULL},
      {"{\"weight_map\":{\"a\":\"2.safetensors\"}}", "does not hold tensor \"a\""},
      {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", "No such file"},
      {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "not a name in its folder"},
      {"{\"weight_map\":{\"a\":\"..\"}}", "not a name in its folder"},
      {"{\"weight_map\":{\"a\":1}}", "not a name in its folder"},
      {"{}", "no weight_map"},
      {"{", "model.safetensors.index.json"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_file(folder, "model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
    bool ok = dtm_rt_st_open(&s, folder, why);
    ck_assert_msg(ok == !cases[i].says, "%s: %s", cases[i].index, ok ? "accepted" : why);
    if (ok) {
      ck_assert_uint_eq(s.ntensors, 2); /* x is not in the index */
      const StTensor *b = dtm_rt_st_find(&s, "b");
      ck_assert_int_eq(((const unsigned char *)dtm_rt_st_data(&s, b))[3], 3);
      dtm_rt_st_close(&s);
    } else {
      ck_assert_msg(strstr(why, cases[i].says), "%s", why);
    }
  }
  snprintf(path, sizeof path, "%s/absent", folder);
  ck_assert(!dtm_rt_st_open(&s, path, why));
  ck_assert_ptr_nonnull(strstr(why, path));
  static const char *const names[] = {"1.safetensors", "2.safetensors",
                                      "model.safetensors.index.json"};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  ck_assert(!dtm_rt_st_open(&s, folder, why));
  rmdir(folder);
  free(one.data);
  free(two.data);
}
END_TEST

int main(void) {
  Suite *s = suite_create("safetensors");
  TCase *c = tcase_create("safetensors");
  tcase_add_test(c, reads);
  tcase_add_test(c, truncated);
  tcase_add_test(c, damaged);
  tcase_add_test(c, flipped);
  tcase_add_test(c, header_round_trip);
  tcase_add_test(c, sharded);
  suite_add_tcase(s, c);
  return suite_run(s);
}
