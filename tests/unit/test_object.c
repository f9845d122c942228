/* An object that is made without LLVM, linked as dtmc links it: what C sees is what went in. */
#include "codegen/object.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

static const char source[] =
    "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
    "extern const unsigned char dtm_image[], dtm_cuda[];\n"
    "extern const uint64_t dtm_image_size, dtm_cuda_size, dtm_kernels_count;\n"
    "extern void *const dtm_kernels[];\n"
    "extern const char dtm_cpu_features[];\n"
    "int dtm_cuda_open(void) { return 42; }\n"
    "extern int (*const dtm_open_device)(void);\n"
    "static unsigned sum(const unsigned char *at, uint64_t n) {\n"
    "  unsigned s = 0;\n  for (uint64_t i = 0; i < n; i++) s = 31 * s + at[i];\n  return s;\n}\n"
    "int main(void) {\n"
    "  printf(\"%d %d %d %u %u %u %u %d %d\\n\", dtm_open_device(), (int)dtm_kernels_count,\n"
    "         dtm_kernels[0] != NULL, (unsigned)dtm_image_size, sum(dtm_image, dtm_image_size),\n"
    "         (unsigned)dtm_cuda_size, sum(dtm_cuda, dtm_cuda_size),\n"
    "         (int)strlen(dtm_cpu_features), (int)((uintptr_t)dtm_image % 64));\n"
    "  return 0;\n}\n";

static unsigned sum(const unsigned char *at, size_t n) {
  unsigned s = 0;
  for (size_t i = 0; i < n; i++) s = 31 * s + at[i];
  return s;
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t n) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
  fclose(f);
}

START_TEST(holds_what_went_in) {
  static unsigned char image[1000], cuda[70001];
  char folder[] = "/tmp/dtm-object-XXXXXX", command[256], want[256], got[256] = "";
  for (size_t i = 0; i < sizeof image; i++) image[i] = (unsigned char)(7 * i + i / 256);
  for (size_t i = 0; i < sizeof cuda; i++) cuda[i] = (unsigned char)(11 * i + i / 256);
  const CodegenImage in = {image, sizeof image, cuda, sizeof cuda};
  Arena arena;
  CodegenPiece object = {0};
  arena_init(&arena);
  if (!object_of_image(&arena, &in, &object)) return; /* such objects are not known here */
  ck_assert_ptr_nonnull(mkdtemp(folder));
  write_file(folder, "a.o", object.bytes, object.size);
  write_file(folder, "b.c", source, sizeof source - 1);
  snprintf(command, sizeof command, "cd %s && %s b.c a.o -o c 2>&1 && ./c", folder,
           getenv("CC") ? getenv("CC") : "cc");
  FILE *p = popen(command, "r");
  ck_assert_ptr_nonnull(p);
  got[fread(got, 1, sizeof got - 1, p)] = 0;
  ck_assert_msg(pclose(p) == 0, "%s", got);
  snprintf(want, sizeof want, "42 0 0 %zu %u %zu %u 0 0\n", sizeof image, sum(image, sizeof image),
           sizeof cuda, sum(cuda, sizeof cuda));
  ck_assert_str_eq(got, want);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
  arena_free(&arena);
}
END_TEST

int main(void) {
  TCase *t = tcase_create("object");
  tcase_add_test(t, holds_what_went_in);
  Suite *s = suite_create("object");
  suite_add_tcase(s, t);
  return suite_run(s);
}
