/* One training step of an MLP against the bare time of its matrix products, and the memory it
 * takes.
 *
 *   bench_step [hidden] [batch] [threads]
 *
 * The program is compiled and run in this process; the products are plain row-major f32 matrix
 * products of oneDNN, of the same sizes, on buffers of the same kind, measured in turn with the
 * steps. Prints a table; figures are the minimum over the repetitions, after three of warming up.
 */
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "autodiff/autodiff.h"
#include "core/exec.h"
#include "fuse/fuse.h"
#include "jit.h"
#include "place/expand.h"
#include "plan/plan.h"
#include "sema/sema.h"
#include "spmd/spmd.h"

enum { REPEATS = 25, WARM = 3, MAX_PRODUCTS = 16 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *program_text(Arena *arena, int64_t hidden, int64_t batch,
                                const char *optimizer) {
  return arena_printf(arena,
                      "mesh world(dp = 1)\n"
                      "module MLP(h: int) {\n"
                      "  param w1: f32[h, 784] = normal(std = 0.02)\n"
                      "  param b1: f32[h]\n"
                      "  param w2: f32[h, h] = normal(std = 0.02)\n"
                      "  param b2: f32[h]\n"
                      "  param w3: f32[10, h] = normal(std = 0.02)\n"
                      "  param b3: f32[10]\n"
                      "  forward(x: f32[B@dp, 784]) -> f32[B@dp, 10] {\n"
                      "    let a = relu(linear(x, w1, b1))\n"
                      "    let b = relu(linear(a, w2, b2))\n"
                      "    return linear(b, w3, b3)\n"
                      "  }\n"
                      "}\n"
                      "train {\n"
                      "  data x = npy(\"x.npy\", f32[%lld@dp, 784])\n"
                      "  data y = npy(\"y.npy\", i64[%lld@dp])\n"
                      "  model m = MLP(%lld)\n"
                      "  loss cross_entropy(m(x), y)\n"
                      "  optimizer %s\n"
                      "}\n",
                      (long long)batch, (long long)batch, (long long)hidden, optimizer);
}

/* --- the program
 * ---------------------------------------------------------------------------------- */

typedef struct Compiled {
  Plan *plan;
  Jit jit;
} Compiled;

static Compiled compile(Arena *arena, const char *text) {
  Interner names;
  Sources sources;
  DiagSink sink;
  interner_init(&names, arena);
  sources_init(&sources, arena);
  diag_init(&sink, arena, &sources);
  sources_add(&sources, "bench.dtm", text, (uint32_t)strlen(text));
  SemaOptions options = {.main_path = "bench.dtm", .stdlib = DTM_STDLIB};
  Program *program = sema_run(&options, arena, &names, &sources, &sink);
  PlanCache *plans = plan_cache_new(arena);
  if (!sink.errors) {
    expand_run(program);
    autodiff_run(program, plans, &sink);
  }
  if (sink.errors) {
    diag_render(&sink, stderr, DIAG_TEXT, false);
    exit(1);
  }
  const char *fault = spmd_run(program, plans);
  if (fault) {
    fprintf(stderr, "%s\n", fault);
    exit(1);
  }
  KernelSet kernels = {0};
  const FuseOptions fuse = {.enabled = true};
  FusedProgram *fused[BLOCK_COUNT] = {NULL};
  fused[BLOCK_INIT] = fuse_run(arena, program->block[BLOCK_INIT].graph, &kernels, &fuse);
  fused[BLOCK_TRAIN] = fuse_run(arena, program->block[BLOCK_TRAIN].graph, &kernels, &fuse);
  const PlanOptions plan = {.path = "/bench.dtm", .compiler = "bench", .reuse = true};
  Compiled c = {.plan = plan_run(arena, program, fused, kernels.kernels.len, &plan)};
  c.jit = jit_load(arena, kernels.kernels.data, kernels.kernels.len, NULL);
  return c;
}

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

static int output(void *context, uint32_t number, const void *value) {
  (void)number;
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

static void bench(const char *optimizer, int64_t hidden, int64_t batch, int threads) {
  Arena arena;
  arena_init(&arena);
  Compiled c = compile(&arena, program_text(&arena, hidden, batch, optimizer));
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
  if (dtm_rt_exec_open(&im, (AbiKernelFn *const *)c.jit.kernels, &comm, NULL, &exec)) exit(1);
  Feed feed = {.image = &im};
  const ExecHooks hooks = {.context = &feed, .input = input, .output = output};
  const AbiProgram *init = &im.program[ABI_PROGRAM_INIT], *train = &im.program[ABI_PROGRAM_TRAIN];
  dtm_rt_exec_run(exec, init->actions, init->nactions, &hooks);

  dnnl_engine_t engine;
  dnnl_stream_t stream;
  Product products[MAX_PRODUCTS];
  check(dnnl_engine_create(&engine, dnnl_cpu, 0));
  check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
  uint32_t n = all_products(engine, hidden, batch, products);
  double step = INFINITY, bare = INFINITY, first = 0;
  double *each = ARENA_ARRAY(&arena, double, train->nactions);
  for (int r = 0; r < REPEATS + WARM; r++) {
    double t = now(), total = 0;
    dtm_rt_exec_step(exec)->step = r;
    for (uint32_t i = 0; i < train->nactions; i++) {
      t = now();
      dtm_rt_exec_run(exec, train->actions + i, 1, &hooks);
      t = now() - t;
      /* Making the batch is not part of the step, but its memory is reused within one. */
      if (im.action[train->actions + i].kind == ABI_INPUT) continue;
      total += t;
      if (r == WARM || (r > WARM && t < each[i])) each[i] = t;
    }
    if (r == 0) first = feed.loss;
    if (r >= WARM && total < step) step = total;
    t = now();
    for (uint32_t i = 0; i < n; i++)
      check(dnnl_primitive_execute(products[i].primitive, stream, 3, products[i].args));
    t = now() - t;
    if (r >= WARM && t < bare) bare = t;
  }
  double matmul = 0, kernel = 0;
  for (uint32_t i = 0; i < train->nactions; i++)
    *(im.action[train->actions + i].kind == ABI_MATMUL ? &matmul : &kernel) += each[i];
  const Plan *p = c.plan;
  uint64_t params = p->variables[VAR_PARAM], state = p->variables[VAR_OPTIMIZER];
  uint64_t live = p->blocks[1].live_bound;
  printf(
      "%-8s step %7.2f ms  bare products %7.2f ms  ratio %.3f  (its products %.2f, kernels %.2f)\n",
      optimizer[0] == 's' ? "sgd" : "adamw", 1e3 * step, 1e3 * bare, step / bare, 1e3 * matmul,
      1e3 * kernel);
  printf("         arena %.1f MiB; parameters + gradients + state + live %.1f MiB; ratio %.3f; "
         "height / live %.4f; loss %.4f -> %.4f\n",
         (double)p->arena_size / 1048576, (double)(2 * params + state + live) / 1048576,
         (double)p->arena_size / (double)(2 * params + state + live),
         (double)p->blocks[1].height / (double)live, first, feed.loss);
  dtm_rt_exec_close(exec);
  munmap(comm.arena, c.plan->arena_size);
  arena_free(&arena);
}

int main(int argc, char **argv) {
  int64_t hidden = argc > 1 ? atoll(argv[1]) : 2048, batch = argc > 2 ? atoll(argv[2]) : 512;
  int threads = argc > 3 ? atoi(argv[3]) : 1;
  omp_set_num_threads(threads);
  printf("MLP 784-%lld-%lld-10, batch %lld, f32, %d thread%s\n", (long long)hidden,
         (long long)hidden, (long long)batch, threads, threads > 1 ? "s" : "");
  bench("sgd(lr = 0.01)", hidden, batch, threads);
  bench("adamw(lr = 0.001, weight_decay = 0.01)", hidden, batch, threads);
  return 0;
}
