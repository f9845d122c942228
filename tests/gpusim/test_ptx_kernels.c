/* Kernels as NVRTC makes them (kernels/kernels.cu) against plain C: once from the PTX that is kept
 * beside the source, so also without NVRTC, and, where NVRTC is found, from the source for two
 * architectures.
 *
 *     gpusim_test_ptx_kernels update    writes kernels/kernels.ptx anew
 *
 * At the end the time of an operation of a lane is printed, for people. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/nvrtc.h"
#include "gpusim/ptx_number.h"
#include "gpusim/ptx_rig.h"
#include "support/suite.h"

/* PTX of the kernels: stored, for compute_80, for compute_90; NULL where NVRTC is missing. */
enum { VARIANTS = 3 };
static char *texts[VARIANTS];
static const char *const variants[VARIANTS] = {"stored", "compute_80", "compute_90"};
static const char *missing;

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  size_t n = 0, cap = 1 << 16;
  char *text = malloc(cap);
  for (size_t got; text && (got = fread(text + n, 1, cap - n - 1, f)) > 0;) {
    n += got;
    if (cap - n < 2) text = realloc(text, cap *= 2);
  }
  fclose(f);
  if (text) text[n] = 0;
  return text;
}

static char *compile(Arena *arena, Nvrtc *nvrtc, const char *source, uint32_t arch) {
  const char *error = NULL;
  NvrtcJob job = {
      .file = "kernels.cu", .what = "the kernels of this test", .text = source, .arch = arch};
  if (nvrtc_compile(nvrtc, arena, &job, 1, &error)) return strdup(job.ptx);
  printf("%s\n", error);
  return NULL;
}

static bool prepare(void) {
  Arena arena;
  arena_init(&arena);
  texts[0] = read_file("kernels/kernels.ptx");
  char *source = read_file("kernels/kernels.cu");
  bool ok = texts[0] && source;
  Nvrtc *nvrtc = nvrtc_open(&arena, &missing);
  if (nvrtc && source) {
    texts[1] = compile(&arena, nvrtc, source, 80);
    texts[2] = compile(&arena, nvrtc, source, 90);
    ok = ok && texts[1] && texts[2];
  } else {
    printf("NVRTC is missing, only the stored PTX is run: %s\n", missing);
  }
  free(source);
  arena_free(&arena);
  return ok;
}

static PtxRig rig;
static const char *variant;

static void setup(int which) {
  variant = variants[which];
  ck_assert(ptx_rig_open(&rig, texts[which]));
}

static void launch(const char *entry, uint32_t gx, uint32_t gy, uint32_t bx, uint32_t by,
                   uint32_t shared, const uint64_t *params) {
  ck_assert_msg(ptx_rig_launch_3d(&rig, entry, (uint32_t[]){gx, gy, 1}, (uint32_t[]){bx, by, 1},
                                  shared, params),
                "%s: %s", variant, rig.fault.text);
}

static float noise(uint32_t i) {
  i = (i ^ 61) ^ i >> 16;
  i *= 9;
  i = (i ^ i >> 4) * 0x27d4eb2d;
  return (float)((i ^ i >> 15) & 0xffff) / 32768.0f - 1;
}

static float *floats(uint32_t n, float scale) {
  float *x = malloc(n * sizeof *x);
  for (uint32_t i = 0; i < n; i++) x[i] = scale * noise(i + n);
  return x;
}

static void *device(const char *name, void *host, size_t bytes) {
  void *p = ptx_rig_buffer(&rig, name, bytes, host);
  free(host);
  return p;
}

#define WORD(p) ((uint64_t)(uintptr_t)(p))

static void near(double got, double expected, double relative, const char *what, uint32_t i) {
  ck_assert_msg(fabs(got - expected) <= relative * (fabs(expected) + 1e-3),
                "%s, %s %u: %.9g, not %.9g", variant, what, i, got, expected);
}

START_TEST(softmax) {
  if (!texts[_i]) return;
  setup(_i);
  const uint32_t sizes[] = {1, 31, 100, 300};
  for (uint32_t s = 0; s < 4; s++) {
    uint32_t n = sizes[s], rows = 3;
    float *x = device("x", floats(rows * n, 4), rows * n * 4);
    float *y = device("y", NULL, rows * n * 4);
    launch("softmax", rows, 1, 128, 1, 0, (uint64_t[]){WORD(y), WORD(x), n});
    for (uint32_t r = 0; r < rows; r++) {
      double sum = 0, most = -INFINITY;
      for (uint32_t i = 0; i < n; i++) most = fmax(most, x[r * n + i]);
      for (uint32_t i = 0; i < n; i++) sum += exp(x[r * n + i] - most);
      for (uint32_t i = 0; i < n; i++)
        near(y[r * n + i], exp(x[r * n + i] - most) / sum, 2e-6, "softmax", i);
    }
  }
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(layernorm) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 200, rows = 2;
  float *x = device("x", floats(rows * n, 3), rows * n * 4), *w = device("w", floats(n, 1), n * 4);
  float *y = device("y", NULL, rows * n * 4), epsilon = 1e-5f;
  uint32_t bits = bits_of_f32(epsilon);
  launch("layernorm", rows, 1, 64, 1, 0, (uint64_t[]){WORD(y), WORD(x), WORD(w), n / 4, bits});
  for (uint32_t r = 0; r < rows; r++) {
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < n; i++) mean += x[r * n + i] / (double)n;
    for (uint32_t i = 0; i < n; i++) square += pow(x[r * n + i] - mean, 2) / n;
    for (uint32_t i = 0; i < n; i++)
      near(y[r * n + i], (x[r * n + i] - mean) / sqrt(square + epsilon) * w[i], 4e-5, "layernorm",
           i);
  }
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(transpose) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t rows = 45, columns = 70;
  float *x = device("x", floats(rows * columns, 1), rows * columns * 4);
  float *y = device("y", NULL, rows * columns * 4);
  launch("transpose", (columns + 31) / 32, (rows + 31) / 32, 32, 8, 0,
         (uint64_t[]){WORD(y), WORD(x), rows, columns});
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < columns; c++) ck_assert(y[c * rows + r] == x[r * columns + c]);
  ptx_rig_close(&rig);
}
END_TEST

/* Blocks of 16 products are added in f64 and rounded to f32, as ptx_mma.c says: to the bit. */
START_TEST(matmul) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t m = 64, n = 32, k = 96;
  uint16_t *a = malloc(m * k * 2), *b = malloc(k * n * 2);
  for (uint32_t i = 0; i < m * k; i++) a[i] = bf16_of_f32(noise(i));
  for (uint32_t i = 0; i < k * n; i++) b[i] = bf16_of_f32(noise(7 * i + 3));
  uint16_t *da = device("a", a, m * k * 2), *db = device("b", b, k * n * 2);
  float *host = floats(m * n, 1), *c = ptx_rig_buffer(&rig, "c", m * n * 4, host);
  launch("matmul", n / 32, m / 32, 128, 1, 0, (uint64_t[]){WORD(c), WORD(da), WORD(db), m, n, k});
  for (uint32_t i = 0; i < m; i++)
    for (uint32_t j = 0; j < n; j++) {
      float sum = 0;
      for (uint32_t block = 0; block < k; block += 16) {
        double part = sum;
        for (uint32_t q = block; q < block + 16; q++)
          part += (double)f32_of_bf16(da[i * k + q]) * f32_of_bf16(db[q * n + j]);
        sum = (float)part;
      }
      ck_assert_msg(c[i * n + j] == host[i * n + j] + sum, "%s: [%u, %u] is %.9g, not %.9g",
                    variant, i, j, c[i * n + j], host[i * n + j] + sum);
    }
  free(host);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(reduce) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 5000, zero = 0;
  float *x = device("x", floats(n, 1), n * 4);
  double *out = device("out", NULL, 8), *parts = device("parts", NULL, 8 * 8), sum = 0;
  uint32_t *tickets = ptx_rig_buffer(&rig, "tickets", 4, &zero);
  launch("reduce", 8, 1, 96, 1, 0, (uint64_t[]){WORD(out), WORD(parts), WORD(tickets), WORD(x), n});
  for (uint32_t i = 0; i < n; i++) sum += x[i];
  near(*out, sum, 1e-5, "sum", 0);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(histogram) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 3000, expected[256] = {0}, zeros[256] = {0};
  uint8_t *x = malloc(n);
  for (uint32_t i = 0; i < n; i++) expected[x[i] = (uint8_t)(i * i >> 3)]++;
  uint8_t *dx = device("x", x, n);
  uint32_t *bins = ptx_rig_buffer(&rig, "bins", sizeof zeros, zeros);
  launch("histogram", 4, 1, 160, 1, sizeof zeros, (uint64_t[]){WORD(bins), WORD(dx), n});
  ck_assert(!memcmp(bins, expected, sizeof expected));
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(philox) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 70;
  uint32_t *out = device("out", NULL, 16 * n);
  launch("philox", 3, 1, 32, 1, 0, (uint64_t[]){WORD(out), 0x12345678, 0x9abcdef0, n});
  for (uint32_t i = 0; i < n; i++) {
    uint32_t c[4] = {i, 0, 0, 0}, key[2] = {0x12345678, 0x9abcdef0};
    for (int r = 0; r < 10; r++) {
      uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
      uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ key[0], (uint32_t)q,
                          (uint32_t)(p >> 32) ^ c[3] ^ key[1], (uint32_t)p};
      memcpy(c, next, sizeof c);
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    ck_assert_msg(!memcmp(&out[4 * i], c, sizeof c), "%s: counter %u", variant, i);
  }
  ptx_rig_close(&rig);
}
END_TEST

static double mixture_of(long long v, float x, uint32_t i) {
  double r = 0;
  switch (v % 7) {
  case 0:
    r = sin(x);
    break;
  case 1:
    r = exp(x);
    break;
  case 2:
    r = tanh(x);
    break;
  case 3:
    r = exp(x);
    break;
  case 4:
    r = log1p(fabs(x));
    break;
  case 5:
    r = erf(x);
    break;
  case 6:
    for (int k = (int)(i % 5); k >= 0; k--) r = r * x + k;
    break;
  default:
    r = -(double)(v / 3);
  }
  for (uint32_t k = 0; k < i % 4; k++) r += (double)(v + (long long)((v + k) & 7));
  return r + (double)((unsigned long long)v / 10007);
}

START_TEST(mixture) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 150;
  long long *a = malloc(n * 8);
  for (uint32_t i = 0; i < n; i++) a[i] = i < 40 ? (long long)i - 20 : (long long)i * 0x123456789ll;
  a[0] = INT64_MIN;
  long long *da = device("a", a, n * 8);
  float *f = device("f", floats(n, 3), n * 4);
  double *y = device("y", NULL, n * 8);
  launch("mixture", 2, 1, 96, 1, 0, (uint64_t[]){WORD(y), WORD(da), WORD(f), n});
  for (uint32_t i = 0; i < n; i++) near(y[i], mixture_of(da[i], f[i], i), 1e-6, "mixture", i);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(half_row) {
  if (!texts[_i]) return;
  setup(_i);
  uint32_t n = 77;
  uint16_t *a = malloc(n * 2), *b = malloc(n * 2);
  for (uint32_t i = 0; i < n; i++) {
    a[i] = bf16_of_f32(noise(i));
    b[i] = bf16_of_f32(noise(i + 1000));
  }
  uint16_t *da = device("a", a, n * 2), *db = device("b", b, n * 2), *y = device("y", NULL, n * 2);
  launch("half_row", 3, 1, 32, 1, 0, (uint64_t[]){WORD(y), WORD(da), WORD(db), n});
  for (uint32_t i = 0; i < n; i++)
    ck_assert_uint_eq(y[i], bf16_of_f32(fmaf(f32_of_bf16(da[i]), f32_of_bf16(db[i]), 1)));
  ptx_rig_close(&rig);
}
END_TEST

/* --- speed ------------------------------------------------------------------------------------ */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const char *entry, double begin) {
  printf("%-10s %8.2f ns per instruction of a warp, %5.2f ns per lane (%.1f M lane-instructions)\n",
         entry, (seconds() - begin) * 1e9 / (double)rig.count.steps,
         (seconds() - begin) * 1e9 / (double)rig.count.lane_steps,
         (double)rig.count.lane_steps * 1e-6);
}

START_TEST(speed) {
  setup(0);
  uint32_t n = 1024, rows = 64;
  float *x = device("x", floats(rows * n, 4), rows * n * 4), *y = device("y", NULL, rows * n * 4);
  double begin = seconds();
  launch("softmax", rows, 1, 256, 1, 0, (uint64_t[]){WORD(y), WORD(x), n});
  report("softmax", begin);
  rig.count = (PtxCount){0};
  uint32_t *words = device("words", NULL, 16 * 20000);
  begin = seconds();
  launch("philox", 200, 1, 128, 1, 0, (uint64_t[]){WORD(words), 1, 2, 20000});
  report("philox", begin);
  rig.count = (PtxCount){0};
  uint32_t size = 128;
  uint16_t *a = calloc(size * size, 2);
  uint16_t *da = device("a", a, size * size * 2);
  float *c = device("c", floats(size * size, 1), size * size * 4);
  begin = seconds();
  launch("matmul", size / 32, size / 32, 128, 1, 0,
         (uint64_t[]){WORD(c), WORD(da), WORD(da), size, size, size});
  report("matmul", begin);
  ptx_rig_close(&rig);
}
END_TEST

/* The PTX names its source by a path of this machine; what is kept has the name alone. */
static int update(void) {
  const char *file = texts[1] ? strstr(texts[1], "\t.file\t1 \"") : NULL;
  const char *name = file ? strstr(file, "kernels.cu\"") : NULL;
  FILE *f = name ? fopen("kernels/kernels.ptx", "w") : NULL;
  if (!f) return 1;
  fprintf(f, "%.*s\t.file\t1 \"%s", (int)(file - texts[1]), texts[1], name);
  return fclose(f) != 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "update")) {
    prepare();
    return update();
  }
  if (!prepare()) return 1;
  Suite *suite = suite_create("ptx kernels");
  TCase *tc = tcase_create("kernels");
  tcase_set_timeout(tc, 60);
  tcase_add_loop_test(tc, softmax, 0, VARIANTS);
  tcase_add_loop_test(tc, layernorm, 0, VARIANTS);
  tcase_add_loop_test(tc, transpose, 0, VARIANTS);
  tcase_add_loop_test(tc, matmul, 0, VARIANTS);
  tcase_add_loop_test(tc, reduce, 0, VARIANTS);
  tcase_add_loop_test(tc, histogram, 0, VARIANTS);
  tcase_add_loop_test(tc, philox, 0, VARIANTS);
  tcase_add_loop_test(tc, mixture, 0, VARIANTS);
  tcase_add_loop_test(tc, half_row, 0, VARIANTS);
  tcase_add_test(tc, speed);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
