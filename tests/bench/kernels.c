/* Fused kernels on one thread beside memcpy of the same machine in the same run.
 *
 * Bytes are those of all inputs and outputs, once each; a kernel that reached memcpy's figure would
 * move nothing twice. Tensors are 2048 x 2048. The least time of several passes counts. */

#include "jit.h"
#include "kernel_graph.h"
#include "table.h"

enum { PASSES = 9, MAX_BUFS = 32, MAX_INTS = 64 };
#define SQUARE "f32[2048, 2048]"

static Arena arena;
static Mesh mesh;

static ValueId square(Bench *b) {
  return bench_var(b, SQUARE, -1, 1);
}

static ValueId scaled(Bench *b, ValueId x, double by) {
  return bench_2(b, OP_MUL, x, bench_const(b, DT_F32, by));
}

static void triad(Bench *b) {
  bench_keep(b, bench_2(b, OP_ADD, scaled(b, square(b), 3), square(b)));
}

static void adamw(Bench *b) {
  ValueId p = square(b), g = square(b), m = square(b), v = square(b);
  ValueId m1 = bench_2(b, OP_ADD, scaled(b, m, 0.9), scaled(b, g, 0.1));
  ValueId v1 = bench_2(b, OP_ADD, scaled(b, v, 0.99), scaled(b, bench_2(b, OP_MUL, g, g), 0.01));
  ValueId root = bench_2(b, OP_ADD, bench_1(b, OP_SQRT, v1), bench_const(b, DT_F32, 1e-8));
  bench_keep(b, m1);
  bench_keep(b, v1);
  bench_keep(b, bench_2(b, OP_SUB, p, scaled(b, bench_2(b, OP_DIV, m1, root), 1e-3)));
}

static void softmax(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, -1))));
}

static void softmax_columns(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 0))));
}

static void softmax_columns_backward(Bench *b) {
  const ValueId x[] = {square(b), square(b)};
  bench_keep(b, bench_op(b, OP_SOFTMAX_BACKWARD, x, 2, ATTRS(ATTR_I(DIM, 0))));
}

static void softmax_heads(Bench *b) { /* a short dim in the middle */
  ValueId x = bench_var(b, "f32[64, 16, 4096]", -1, 1);
  bench_keep(b, bench_op(b, OP_SOFTMAX, &x, 1, ATTRS(ATTR_I(DIM, 1))));
}

static void gelu(Bench *b) {
  bench_keep(b, bench_1(b, OP_GELU, square(b)));
}

static void layer_norm(Bench *b) {
  ValueId x = square(b), w = bench_var(b, "f32[2048]", -1, 1), c = bench_var(b, "f32[2048]", -1, 1);
  bench_keep(b, bench_op(b, OP_LAYER_NORM, (const ValueId[]){x, w, c}, 3,
                         ATTRS(ATTR_I(NDIMS, 1), ATTR_F(EPS, 1e-5))));
}

static void relu_backward(Bench *b) { /* with the bias gradient */
  ValueId g = square(b), zero = bench_const(b, DT_F32, 0);
  ValueId d = bench_3(b, OP_WHERE, bench_2(b, OP_GT, square(b), zero), g, zero);
  bench_keep(b, d);
  bench_keep(b, bench_reduce(b, OP_SUM, d, DIMS(0), false));
}

static void column_sum(Bench *b) {
  bench_keep(b, bench_reduce(b, OP_SUM, square(b), DIMS(0), false));
}

static void squared_norm(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_reduce(b, OP_SUM, bench_2(b, OP_MUL, x, x), DIMS(0, 1), false));
}

static void transpose(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_op(b, OP_PERMUTE, &x, 1, ATTRS(ATTR_INTS(DIMS, ((int64_t[]){1, 0}), 2))));
}

static void to_bf16(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_op(b, OP_CAST, &x, 1, ATTRS(ATTR_I(DTYPE, DT_BF16))));
}

static void dropout(Bench *b) {
  ValueId x = square(b);
  bench_keep(b, bench_op(b, OP_DROPOUT, &x, 1, ATTRS(ATTR_F(P, 0.1), ATTR_I(INSTANCE, 1))));
}

static const struct {
  const char *name;
  void (*build)(Bench *b);
} cases[] = {{"a * 3 + b", triad},
             {"adamw", adamw},
             {"softmax", softmax},
             {"softmax, dim 0", softmax_columns},
             {"its backward", softmax_columns_backward},
             {"softmax, dim 1 of 3", softmax_heads},
             {"gelu", gelu},
             {"layer_norm", layer_norm},
             {"relu backward, bias", relu_backward},
             {"sum over rows", column_sum},
             {"sum of squares", squared_norm},
             {"transpose", transpose},
             {"f32 to bf16", to_bf16},
             {"dropout", dropout}};

static void run_once(const FusedProgram *p, const Jit *jit, void **buffers, const int64_t *syms) {
  static int64_t step_block[4];
  for (uint32_t i = 0; i < p->groups.len; i++) {
    const Group *g = &p->groups.data[i];
    if (g->kind != GROUP_KERNEL) continue;
    const Kernel *k = p->kernels->kernels.data[g->kernel];
    void *bufs[MAX_BUFS];
    int64_t ints[MAX_INTS];
    for (uint32_t j = 0; j < k->nbufs; j++) bufs[j] = g->bufs[j] ? buffers[g->bufs[j]] : step_block;
    for (uint32_t j = 0; j < k->nints; j++) ints[j] = syms[g->ints[j]];
    jit->kernels[g->kernel](bufs, ints, 0, syms[g->tasks]);
  }
}

static void measure(const char *name, void (*build)(Bench *b), double copy) {
  Bench *b = bench_new(&arena, name, &mesh);
  KernelSet kernels = {0};
  const char *error;
  build(b);
  Graph *local = spmd_lower(&arena, b->g, plan_cache_new(&arena), &error);
  FusedProgram *p = fuse_run(&arena, local, &kernels, &(FuseOptions){.enabled = true});
  double begin = bench_now();
  Jit jit = jit_load(&arena, kernels.kernels.data, kernels.kernels.len, "native");
  double compile = bench_now() - begin, bytes = 0, least = 0;
  int64_t *syms = calloc(p->syms.len, sizeof *syms);
  void **buffers = calloc(p->values.len, sizeof *buffers);
  if (!syms || !buffers) abort();
  fuse_eval_syms(p, NULL, syms);
  for (uint32_t v = 1; v < p->values.len; v++) {
    size_t size = ((size_t)p->values.data[v].max_bytes + 127) & ~(size_t)63;
    buffers[v] = aligned_alloc(64, size);
    if (!buffers[v]) abort();
    memset(buffers[v], 0, size);
    bytes += (double)p->values.data[v].max_bytes;
  }
  for (int pass = 0; pass < PASSES; pass++) {
    begin = bench_now();
    run_once(p, &jit, buffers, syms);
    double seconds = bench_now() - begin;
    if (pass == 0 || seconds < least) least = seconds;
  }
  printf("| %-19s | %6.2f | %5.1f | %9.2f | %10.0f |\n", name, least * 1e3, bytes / least * 1e-9,
         bytes / least / copy, compile * 1e3);
  for (uint32_t v = 1; v < p->values.len; v++) free(buffers[v]);
  free(buffers);
  free(syms);
}

/* Bytes per second, reads and writes counted, of the best of several copies of 64 MiB. */
static double copy_speed(void) {
  enum { SIZE = 64 << 20 };
  unsigned char *a = malloc(SIZE), *b = malloc(SIZE);
  double least = 0;
  if (!a || !b) abort();
  memset(a, 1, SIZE);
  for (int pass = 0; pass < PASSES; pass++) {
    a[pass] = 2;
    double begin = bench_now();
    memcpy(b, a, SIZE);
    double seconds = bench_now() - begin + (b[pass] == 2 ? 0 : 1);
    if (pass == 0 || seconds < least) least = seconds;
  }
  free(a);
  free(b);
  return 2.0 * SIZE / least;
}

int main(void) {
  arena_init(&arena);
  mesh_of(&mesh, 1, (const int64_t[]){1});
  double copy = copy_speed();
  table_head("| %-19s | %6s | %5s | %9s | %10s |", "kernel", "ms", "GB/s", "of memcpy",
             "compile ms");
  printf("| %-19s | %6s | %5.1f | %9.2f | %10s |\n", "memcpy", "", copy * 1e-9, 1.0, "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    measure(cases[i].name, cases[i].build, copy);
  arena_free(&arena);
  return 0;
}
