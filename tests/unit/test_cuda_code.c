/* The blob of GPU code as the runtime opens it, code for a chip, the launch rule. */
#include <check.h>
#include <string.h>

#include "codegen/cuda_program.h"
#include "runtime/abi/cuda.h"
#include "support/suite.h"

enum { ROOM = 1024 };

typedef struct Sample {
  _Alignas(64) unsigned char bytes[ROOM];
  size_t size;
  AbiCudaHeader *header;
  AbiCudaFunction *functions;
  AbiCudaImage *images;
} Sample;

/* One module with PTX for 80, cubins for 80, 86 and 90. */
static void make(Sample *s) {
  static const struct {
    uint32_t arch;
    AbiCudaFormat format;
  } made[] = {{80, ABI_CUDA_PTX}, {80, ABI_CUDA_CUBIN}, {86, ABI_CUDA_CUBIN}, {90, ABI_CUDA_CUBIN}};
  memset(s, 0, sizeof *s);
  s->header = (AbiCudaHeader *)(void *)s->bytes;
  *s->header = (AbiCudaHeader){.magic = ABI_CUDA_MAGIC,
                               .version = ABI_CUDA_VERSION,
                               .nmodules = 1,
                               .nfunctions = 1,
                               .nimages = 4,
                               .functions = sizeof(AbiCudaHeader),
                               .string_bytes = 16,
                               .signature = abi_cuda_signature()};
  s->header->images = (s->header->functions + sizeof(AbiCudaFunction) + 7) / 8 * 8;
  s->header->strings = s->header->images + 4 * sizeof(AbiCudaImage);
  s->functions = (AbiCudaFunction *)(void *)(s->bytes + s->header->functions);
  s->images = (AbiCudaImage *)(void *)(s->bytes + s->header->images);
  *s->functions = (AbiCudaFunction){
      .name = 1, .entry = 1, .kind = ABI_CUDA_GENERATED, .nints = 2, .vec = 1, .width = 4};
  memcpy(s->bytes + s->header->strings, "\0k_sum", 7);
  s->size = s->header->size = s->header->strings + 16 + 64;
  for (int i = 0; i < 4; i++)
    s->images[i] = (AbiCudaImage){.arch = made[i].arch,
                                  .format = made[i].format,
                                  .offset = s->size - 64 + 16 * (uint64_t)i,
                                  .bytes = 16,
                                  .size = 64};
}

START_TEST(test_open) {
  static Sample s;
  AbiCuda c;
  make(&s);
  ck_assert_ptr_null(abi_cuda_open(s.bytes, s.size, &c));
  ck_assert_str_eq(c.strings + c.functions[0].entry, "k_sum");
  ck_assert_ptr_nonnull(abi_cuda_open(s.bytes, 0, &c));
  for (size_t size = 0; size < s.size; size += 8)
    ck_assert_ptr_nonnull(abi_cuda_open(s.bytes, size, &c));
}
END_TEST

/* Each fault alone. */
START_TEST(test_damaged) {
  static Sample s;
  AbiCuda c;
#define REFUSED(change)                                                                            \
  make(&s);                                                                                        \
  change;                                                                                          \
  ck_assert_msg(abi_cuda_open(s.bytes, s.size, &c) != NULL, "%s", #change)
  REFUSED(s.header->magic++);
  REFUSED(s.header->version++);
  REFUSED(s.header->signature++);
  REFUSED(s.header->functions = s.size);
  REFUSED(s.header->images = s.size - 8);
  REFUSED(s.header->images += 4);
  REFUSED(s.header->nimages = UINT32_MAX);
  REFUSED(s.header->strings = s.size + 8);
  REFUSED(memset(s.bytes + s.header->strings, 'x', 16));
  REFUSED(s.functions->name = 16);
  REFUSED(s.functions->entry = 16);
  REFUSED(s.functions->module = 1);
  REFUSED(s.functions->vec = 2);
  REFUSED(s.functions->width = 0);
  REFUSED(s.images[1].module = 1);
  REFUSED(s.images[1].offset = s.size + 1);
  REFUSED(s.images[1].bytes = s.size);
#undef REFUSED
}
END_TEST

START_TEST(test_chips) {
  static const struct {
    uint32_t capability, arch, format;
  } want[] = {{75, 0, 0},
              {80, 80, ABI_CUDA_CUBIN},
              {86, 86, ABI_CUDA_CUBIN},
              {89, 86, ABI_CUDA_CUBIN}, /* of its generation, not newer */
              {90, 90, ABI_CUDA_CUBIN},
              {100, 80, ABI_CUDA_PTX},
              {120, 80, ABI_CUDA_PTX}};
  static Sample s;
  AbiCuda c;
  make(&s);
  ck_assert_ptr_null(abi_cuda_open(s.bytes, s.size, &c));
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const AbiCudaImage *m = abi_cuda_image(&c, 0, want[i].capability);
    ck_assert_msg(want[i].arch ? m && m->arch == want[i].arch && m->format == want[i].format : !m,
                  "capability %u", want[i].capability);
  }
  ck_assert_ptr_null(abi_cuda_image(&c, 1, 90));
}
END_TEST

/* n elements of the vector dim in 1000 tasks: threads per task, blocks. */
START_TEST(test_launch) {
  static const struct {
    uint32_t width, vec_block, flags;
    int64_t n, tasks;
    int32_t group;
    uint32_t grid;
    int64_t launched;
  } want[] = {{4, 0, 0, 1, 1000, 1, 4, 1000},
              {4, 0, 0, 5, 1000, 2, 8, 1000},
              {4, 0, 0, 128, 1000, 32, 125, 1000},
              {4, 0, 0, 1024, 1000, 32, 125, 1000},
              {4, 0, 0, 1025, 1000, 256, 1000, 1000},
              {1, 0, 0, 256, 1000, 32, 125, 1000},
              {4, 4096, 0, 1 << 20, 256, 256, 256, 256},
              {1, 256, ABI_CUDA_LANES, 33, 7, 256, 7, 7},
              {1, 256, ABI_CUDA_LANES, 32, 7, 32, 1, 7},
              {4, 0, ABI_CUDA_COLUMNS, 4096, 2, 32, 8, 64},
              {4, 0, ABI_CUDA_COLUMNS, 6, 3, 2, 1, 3},
              {4, 0, 0, 0, 3, 1, 1, 3},
              {4, 0, 0, 5, 0, 1, 0, 0},
              {4, 0, 0, 2048, 1 << 20, 256, 1 << 15, 1 << 20}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const AbiCudaFunction f = {.nints = 2,
                               .vec = 1,
                               .width = want[i].width,
                               .vec_block = want[i].vec_block,
                               .flags = want[i].flags};
    AbiCudaLaunch l = abi_cuda_launch(&f, (const int64_t[]){0, want[i].n}, want[i].tasks);
    ck_assert_msg(l.group == want[i].group && l.grid == want[i].grid && l.tasks == want[i].launched,
                  "row %zu: group %d, grid %u, tasks %lld", i, l.group, l.grid, (long long)l.tasks);
  }
  const AbiCudaFunction one = {.vec = ABI_CUDA_INT_ONE, .width = 1};
  ck_assert_int_eq(abi_cuda_launch(&one, NULL, 5).group, 1);
}
END_TEST

/* Three matrices of m by n, in pieces of 32 of n. */
START_TEST(test_launch_tiles) {
  static const struct {
    int64_t n, m;
    int32_t group;
    uint32_t grid;
    int64_t tasks;
  } want[] = {{64, 64, 256, 6, 6},   {65, 65, 256, 18, 18},
              {9, 9, 256, 3, 3},     {8, 640, 8, 60, 1920},
              {640, 8, 32, 60, 480}, {1 << 16, 1 << 16, 256, 1 << 15, 3 << 21}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const AbiCudaFunction f = {
        .nints = 2, .vec = 0, .across = 1, .side = 64, .width = 1, .vec_block = 32};
    int64_t tasks = 3 * want[i].m * ((want[i].n + 31) / 32);
    AbiCudaLaunch l = abi_cuda_launch(&f, (const int64_t[]){want[i].n, want[i].m}, tasks);
    ck_assert_msg(l.group == want[i].group && l.grid == want[i].grid && l.tasks == want[i].tasks,
                  "row %zu: group %d, grid %u, tasks %lld", i, l.group, l.grid, (long long)l.tasks);
  }
}
END_TEST

START_TEST(test_target) {
  Arena arena;
  CudaTarget t;
  arena_init(&arena);
  ck_assert_ptr_null(cuda_target_parse(&arena, "", &t));
  ck_assert_uint_eq(t.narchs, 0);
  ck_assert_ptr_null(cuda_target_parse(&arena, ":sm_90,compute_80,sm_120", &t));
  ck_assert(t.narchs == 3 && t.arch[0].number == 90 && t.arch[0].binary);
  ck_assert(t.arch[1].number == 80 && !t.arch[1].binary && t.arch[2].number == 120);
  static const char *const wrong[] = {":",       ":sm_90,",   ":,sm_90",  ":sm_",
                                      ":sm_90a", ":native",   "90",       ":90",
                                      ":sm_90 ", ":sm_12345", ":compute_"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(cuda_target_parse(&arena, wrong[i], &t) != NULL, "%s", wrong[i]);
  arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_code");
  TCase *t = tcase_create("code");
  tcase_add_test(t, test_open);
  tcase_add_test(t, test_damaged);
  tcase_add_test(t, test_chips);
  tcase_add_test(t, test_launch);
  tcase_add_test(t, test_launch_tiles);
  tcase_add_test(t, test_target);
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
