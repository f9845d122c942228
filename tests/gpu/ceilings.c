/* What a GPU reaches at most, for figures to be held against: bytes copied within its memory, and
 * products of bf16 matrices by cuBLASLt.
 *
 *   gpu_ceilings [MIB] [N] [REPEATS]
 *
 * Copies MIB (2048) from one place to another; every byte counts twice, read and written.
 * Multiplies two N x N matrices (8192), both with k innermost, added up in f32, by each algorithm
 * that the heuristic of cuBLASLt proposes. Times are events around each run, the least of REPEATS
 * (10) counts. The matrices are random: of zeros a chip multiplies more before it is too hot.
 * Prints lines "WHAT VALUE" for gpu.sh.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/cuda/cublaslt.h"
#include "gpu/gpu.h"

enum { CANDIDATES = 8, WARM = 2 };
static const uint64_t workspace = 64 << 20;

/* The least time of what `enqueue` enqueues, in seconds. */
typedef void Enqueue(Gpu *g, void *context);

static double least_time(Gpu *g, Enqueue *enqueue, void *context, int repeats) {
  CUevent begin, end;
  double least = INFINITY;
  gpu_check(g, g->cu.event_create(&begin, CU_EVENT_DEFAULT), "take times");
  gpu_check(g, g->cu.event_create(&end, CU_EVENT_DEFAULT), "take times");
  for (int i = -WARM; i < repeats; i++) {
    float ms = 0;
    gpu_check(g, g->cu.event_record(begin, g->stream), "take times");
    enqueue(g, context);
    gpu_check(g, g->cu.event_record(end, g->stream), "take times");
    gpu_check(g, g->cu.event_sync(end), "run");
    gpu_check(g, g->cu.event_elapsed(&ms, begin, end), "take times");
    if (i >= 0 && (double)ms * 1e-3 < least) least = (double)ms * 1e-3;
  }
  gpu_check(g, g->cu.event_destroy(begin), "take times");
  gpu_check(g, g->cu.event_destroy(end), "take times");
  return least;
}

/* --- copies --------------------------------------------------------------------------------------
 */

typedef struct Copy {
  CUdeviceptr from, to;
  size_t bytes;
} Copy;

static void enqueue_copy(Gpu *g, void *context) {
  const Copy *c = context;
  gpu_check(g, g->cu.copy_async(c->to, c->from, c->bytes, g->stream), "copy");
}

static void measure_copy(Gpu *g, size_t bytes, int repeats) {
  Copy c = {gpu_alloc(g, bytes), gpu_alloc(g, bytes), bytes};
  gpu_check(g, g->cu.set8_async(c.from, 1, bytes, g->stream), "fill memory");
  double seconds = least_time(g, enqueue_copy, &c, repeats);
  printf("copy_gbs %.4g\n", 2 * (double)bytes / seconds / 1e9);
  gpu_check(g, g->cu.memory_free(c.from), "free memory");
  gpu_check(g, g->cu.memory_free(c.to), "free memory");
}

/* --- products ------------------------------------------------------------------------------------
 */

typedef struct Products {
  CudaBlasLt lt;
  LtContext *handle;
  LtMatmulDesc *desc;
  LtMatrixLayout *layout;
  CUdeviceptr a, b, out, scratch;
  LtHeuristic found[CANDIDATES];
  int count, at;
} Products;

static void check(const Products *p, LtStatus status, const char *what) {
  if (!status) return;
  fprintf(stderr, "error: cuBLASLt cannot %s: %s\n", what, p->lt.status_string(status));
  exit(1);
}

/* Random in [-1, 1), the same in every run. */
static CUdeviceptr random_matrix(const Gpu *g, size_t elements, uint32_t seed) {
  uint16_t *data = malloc(elements * sizeof *data);
  CUdeviceptr address = gpu_alloc(g, elements * sizeof *data);
  if (!data) gpu_lacks("out of memory");
  for (size_t i = 0; i < elements; i++) {
    seed = seed * 1664525u + 1013904223u;
    float value = (float)(int32_t)seed / 2147483648.f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    data[i] = (uint16_t)(bits >> 16);
  }
  gpu_write(g, address, data, elements * sizeof *data);
  free(data);
  return address;
}

static void find_algorithms(Products *p, uint64_t n) {
  const int32_t transposed = LT_OP_T, plain = LT_OP_N;
  const uint32_t epilogue = LT_EPILOGUE_DEFAULT, alignment = 256;
  LtPreference *preference;
  check(p, p->lt.create(&p->handle), "start");
  check(p, p->lt.matmul_create(&p->desc, LT_COMPUTE_32F, LT_R_32F), "describe a product");
  check(p, p->lt.matmul_set(p->desc, LT_MATMUL_TRANSA, &transposed, sizeof transposed), "describe");
  check(p, p->lt.matmul_set(p->desc, LT_MATMUL_TRANSB, &plain, sizeof plain), "describe");
  check(p, p->lt.matmul_set(p->desc, LT_MATMUL_EPILOGUE, &epilogue, sizeof epilogue), "describe");
  check(p, p->lt.layout_create(&p->layout, LT_R_16BF, n, n, (int64_t)n), "describe a matrix");
  check(p, p->lt.preference_create(&preference), "search");
  check(p,
        p->lt.preference_set(preference, LT_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
        "search");
  for (int i = LT_PREF_MIN_ALIGNMENT_A_BYTES; i <= LT_PREF_MIN_ALIGNMENT_D_BYTES; i++)
    check(p,
          p->lt.preference_set(preference, (LtPreferenceAttribute)i, &alignment, sizeof alignment),
          "search");
  check(p,
        p->lt.heuristic(p->handle, p->desc, p->layout, p->layout, p->layout, p->layout, preference,
                        CANDIDATES, p->found, &p->count),
        "find an algorithm");
  check(p, p->lt.preference_destroy(preference), "search");
}

static void enqueue_product(Gpu *g, void *context) {
  static const float one = 1, zero = 0;
  Products *p = context;
  const LtHeuristic *h = &p->found[p->at];
  check(p,
        p->lt.matmul(p->handle, p->desc, &one, (const void *)(uintptr_t)p->a, p->layout,
                     (const void *)(uintptr_t)p->b, p->layout, &zero, (void *)(uintptr_t)p->out,
                     p->layout, (void *)(uintptr_t)p->out, p->layout, &h->algo,
                     (void *)(uintptr_t)p->scratch, h->workspace, g->stream),
        "multiply");
}

static void measure_products(Gpu *g, uint64_t n, int repeats) {
  Products p = {.at = 0};
  char message[1024];
  double least = INFINITY;
  const char *error = dtm_cuda_blaslt_load(&p.lt, message, sizeof message);
  if (error) gpu_lacks(error);
  p.a = random_matrix(g, n * n, 1);
  p.b = random_matrix(g, n * n, 2);
  p.out = gpu_alloc(g, n * n * sizeof(uint16_t));
  p.scratch = gpu_alloc(g, workspace);
  find_algorithms(&p, n);
  for (p.at = 0; p.at < p.count; p.at++) {
    if (p.found[p.at].state || p.found[p.at].workspace > workspace) continue;
    double seconds = least_time(g, enqueue_product, &p, repeats);
    if (seconds < least) least = seconds;
  }
  printf("cublaslt %zu\nbf16_tflops %.4g\n", p.lt.version,
         isinf(least) ? 0 : 2 * pow((double)n, 3) / least / 1e12);
  check(&p, p.lt.layout_destroy(p.layout), "end");
  check(&p, p.lt.matmul_destroy(p.desc), "end");
  check(&p, p.lt.destroy(p.handle), "end");
  const CUdeviceptr all[] = {p.a, p.b, p.out, p.scratch};
  for (int i = 0; i < 4; i++) gpu_check(g, g->cu.memory_free(all[i]), "free memory");
}

static long argument(int argc, char **argv, int i, long otherwise) {
  return argc > i && atol(argv[i]) > 0 ? atol(argv[i]) : otherwise;
}

int main(int argc, char **argv) {
  Gpu g;
  int repeats = (int)argument(argc, argv, 3, 10);
  gpu_open(&g);
  printf("gpu %s\ndriver %d.%d\n", g.name, g.cu.version / 1000, g.cu.version % 1000 / 10);
  measure_copy(&g, (size_t)argument(argc, argv, 1, 2048) << 20, repeats);
  measure_products(&g, (uint64_t)argument(argc, argv, 2, 8192), repeats);
  gpu_close(&g);
  return 0;
}
