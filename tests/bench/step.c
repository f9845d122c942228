/* One training step of an MLP against the bare time of its matrix products.
 *
 *   bench_step [hidden] [batch] [threads]
 *
 * The program (mlp.dtm) is compiled and run in this process; the products are plain row-major f32
 * matrix products of oneDNN, of the same sizes, on buffers of the same kind, measured in turn with
 * the steps. Prints a table; figures are the minimum over the repetitions, after three of warming
 * up.
 */
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench.h"
#include "core/exec.h"
#include "jit.h"

enum { REPEATS = 25, WARM = 3, MAX_PRODUCTS = 16 };

/* --- the program
 * ---------------------------------------------------------------------------------- */

static void no_publish(RtComm *c) {
  (void)c;
}
static int print_fail(RtComm *c, int code, const char *message) {
  (void)c;
  fprintf(stderr, "%s\n", message);
  return code;
}

typedef struct Feed {
  const Image *image;
  double loss;
} Feed;

static int input(void *context, uint32_t source, void *dst) {
  const Feed *f = context;
  const AbiType *t = &f->image->type[f->image->source[source].type];
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
  for (int64_t i = 0; i < n; i++) {
    uint32_t h = (uint32_t)i * 2654435761u;
    if (t->dtype == ABI_F32)
      ((float *)dst)[i] = (float)(h >> 16) / 65536.0f - 0.5f;
    else
      ((int64_t *)dst)[i] = (h >> 16) % 10;
  }
  return 0;
}

static int output(void *context, uint32_t number, const AbiStep *step, const void *value) {
  (void)number;
  (void)step;
  ((Feed *)context)->loss = (double)*(const float *)value;
  return 0;
}

/* --- the bare products
 * ------------------------------------------------------------------------------ */

typedef struct Product {
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
} Product;

static void check(dnnl_status_t status) {
  if (status == dnnl_success) return;
  fprintf(stderr, "oneDNN fails: %d\n", (int)status);
  exit(1);
}

static dnnl_memory_t matrix(dnnl_engine_t engine, int64_t rows, int64_t cols,
                            dnnl_memory_desc_t *desc) {
  const dnnl_dims_t dims = {rows, cols};
  dnnl_memory_t m;
  float *data = aligned_alloc(64, ((size_t)(rows * cols) * sizeof *data + 63) / 64 * 64);
  for (int64_t i = 0; i < rows * cols; i++) data[i] = (float)(i % 17) * 0.01f;
  check(dnnl_memory_desc_init_by_tag(desc, 2, dims, dnnl_f32, dnnl_ab));
  check(dnnl_memory_create(&m, desc, engine, data));
  return m;
}

static Product product(dnnl_engine_t engine, int64_t m, int64_t n, int64_t k) {
  Product p;
  dnnl_memory_desc_t a, b, c;
  p.args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, matrix(engine, m, k, &a)};
  p.args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, matrix(engine, k, n, &b)};
  p.args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, matrix(engine, m, n, &c)};
  dnnl_matmul_desc_t op;
  dnnl_primitive_desc_t desc;
  check(dnnl_matmul_desc_init(&op, &a, &b, NULL, &c));
  check(dnnl_primitive_desc_create(&desc, &op, NULL, engine, NULL));
  check(dnnl_primitive_create(&p.primitive, desc));
  check(dnnl_primitive_desc_destroy(desc));
  return p;
}

/* Forward, weight gradients, and the input gradients of all layers but the first. */
static uint32_t all_products(dnnl_engine_t engine, int64_t hidden, int64_t batch, Product *out) {
  const int64_t widths[] = {784, hidden, hidden, 10};
  uint32_t n = 0;
  for (int l = 0; l < 3; l++) {
    int64_t i = widths[l], o = widths[l + 1];
    out[n++] = product(engine, batch, o, i);
    out[n++] = product(engine, o, i, batch);
    if (l > 0) out[n++] = product(engine, batch, i, o);
  }
  return n;
}

/* --- measuring
 * ------------------------------------------------------------------------------------- */

static void bench(bool adam, int64_t hidden, int64_t batch, int threads) {
  Session s;
  Compilation c;
  char text[2][32];
  snprintf(text[0], sizeof text[0], "%lld", (long long)hidden);
  snprintf(text[1], sizeof text[1], "%lld", (long long)batch);
  const ConfigOverride defines[] = {
      {"adam", adam ? "true" : "false"}, {"hidden", text[0]}, {"batch", text[1]}};
  if (!bench_compile(&s, &c, DTM_BENCH "/mlp.dtm", defines, 3, STAGE_PLAN)) exit(1);
  Jit jit = jit_load(&s.arena, c.kernels.kernels.data, c.kernels.kernels.len, NULL);
  Image im;
  const char *wrong = abi_image_open(c.plan->image, c.plan->image_size, &im);
  if (wrong) {
    fprintf(stderr, "%s\n", wrong);
    exit(1);
  }
  const RtCommOps ops = {.name = "none", .publish = no_publish, .fail = print_fail};
  RtComm comm = {.ops = &ops, .world = 1, .threads = threads, .arena_size = c.plan->arena_size};
  comm.arena =
      mmap(NULL, c.plan->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(comm.arena, c.plan->arena_size, MADV_HUGEPAGE);
  Exec *exec;
  const RtCode code = {.open = dtm_cpu_open, .kernels = (AbiKernelFn *const *)jit.kernels};
  if (dtm_rt_exec_open(&im, &code, &comm, NULL, &exec)) exit(1);
  Feed feed = {.image = &im};
  const RtHooks hooks = {.context = &feed, .input = input, .output = output};
  const AbiProgram *init = &im.program[ABI_PROGRAM_INIT], *train = &im.program[ABI_PROGRAM_TRAIN];
  dtm_rt_exec_run(exec, init->actions, init->nactions, &hooks);

  dnnl_engine_t engine;
  dnnl_stream_t stream;
  Product products[MAX_PRODUCTS];
  check(dnnl_engine_create(&engine, dnnl_cpu, 0));
  check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
  uint32_t n = all_products(engine, hidden, batch, products);
  double step = INFINITY, bare = INFINITY, first = 0;
  double *each = ARENA_ARRAY(&s.arena, double, train->nactions);
  for (int r = 0; r < REPEATS + WARM; r++) {
    double t = bench_now(), total = 0;
    dtm_rt_exec_step(exec)->step = r;
    for (uint32_t i = 0; i < train->nactions; i++) {
      t = bench_now();
      dtm_rt_exec_run(exec, train->actions + i, 1, &hooks);
      t = bench_now() - t;
      /* Making the batch is not part of the step, but its memory is reused within one. */
      if (im.action[train->actions + i].kind == ABI_INPUT) continue;
      total += t;
      if (r == WARM || (r > WARM && t < each[i])) each[i] = t;
    }
    if (r == 0) first = feed.loss;
    if (r >= WARM && total < step) step = total;
    t = bench_now();
    for (uint32_t i = 0; i < n; i++)
      check(dnnl_primitive_execute(products[i].primitive, stream, 3, products[i].args));
    t = bench_now() - t;
    if (r >= WARM && t < bare) bare = t;
  }
  double matmul = 0, kernel = 0;
  for (uint32_t i = 0; i < train->nactions; i++)
    *(im.action[train->actions + i].kind == ABI_MATMUL ? &matmul : &kernel) += each[i];
  printf("| %-5s | %7.2f | %7.2f | %5.3f | %12.2f | %7.2f | %.4f -> %.4f |\n",
         adam ? "adamw" : "sgd", 1e3 * step, 1e3 * bare, step / bare, 1e3 * matmul, 1e3 * kernel,
         first, feed.loss);
  dtm_rt_exec_close(exec);
  munmap(comm.arena, c.plan->arena_size);
  arena_free(&s.arena);
}

int main(int argc, char **argv) {
  int64_t hidden = argc > 1 ? atoll(argv[1]) : 2048, batch = argc > 2 ? atoll(argv[2]) : 512;
  int threads = argc > 3 ? atoi(argv[3]) : 1;
  omp_set_num_threads(threads);
  printf("MLP 784-%lld-%lld-10, batch %lld, f32, %d thread%s\n\n", (long long)hidden,
         (long long)hidden, (long long)batch, threads, threads > 1 ? "s" : "");
  table_head("| %-5s | %7s | %7s | %5s | %12s | %7s | %-16s |", "", "step ms", "bare ms", "ratio",
             "its products", "kernels", "loss");
  bench(false, hidden, batch, threads);
  bench(true, hidden, batch, threads);
  return 0;
}
