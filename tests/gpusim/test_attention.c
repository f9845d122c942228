/* Attention's kernels for GPUs, interpreted, against plain loops in f64: every element type and
 * class of head dims, extents around the sizes of blocks and none, groups of heads cut anywhere,
 * positions, dropout, rows that see nothing, blocks that nobody sees.
 *
 * The bound of bf16 and f16 is that of rounding the weights before the second product, see
 * attention_plan.h; lse is as exact as in f32. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/nvrtc.h"
#include "device/cuda/attention_plan.h"
#include "gpusim/ptx.h"
#include "runtime/abi/cuda.h"
#include "runtime/abi/number.h"
#include "support/attention.h"
#include "support/suite.h"

enum { ARCH = 80, HEADERS = 4, MAX_MODULES = 48, MAX_TENSORS = 11, SHARED = 99 << 10 };

/* The simulated GPU, and the modules compiled so far by name. */
static struct {
  Arena arena;
  Nvrtc *nvrtc;
  PtxMemory *memory;
  NvrtcHeader headers[HEADERS];
  uint32_t nmodules;
  char name[MAX_MODULES][64];
  PtxModule *module[MAX_MODULES];
  PtxCount count; /* of all launches */
} gpu;

/* --- modules ------------------------------------------------------------------------------------
 */

static const char *read_kernel_file(const char *name) {
  const char *path = arena_printf(&gpu.arena, "../../runtime/device/cuda/kernels/%s", name);
  FILE *f = fopen(path, "r");
  ck_assert_msg(f != NULL, "%s", path);
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  char *text = arena_alloc(&gpu.arena, n + 1);
  rewind(f);
  ck_assert_uint_eq(fread(text, 1, n, f), n);
  text[n] = 0;
  fclose(f);
  return text;
}

/* "-DHEAD=64 -DX=1" as lines. */
static const char *lines_of(const AbiCudaInstance *i) {
  const char *text = arena_printf(&gpu.arena, "#define DTM_SUFFIX %s\n", i->suffix);
  char defines[sizeof i->defines];
  strcpy(defines, i->defines);
  for (char *rest = defines, *d; (d = strtok_r(rest, " ", &rest));) {
    char *value = strchr(d, '=');
    *value++ = ' ';
    text = arena_printf(&gpu.arena, "%s#define %.*s %s\n", text, (int)(value - 1 - (d + 2)), d + 2,
                        value);
  }
  return text;
}

static PtxModule *module_of(const AbiCudaInstance *i) {
  const char *name = arena_printf(&gpu.arena, "%s%s", i->file, i->suffix);
  for (uint32_t m = 0; m < gpu.nmodules; m++)
    if (strcmp(gpu.name[m], name) == 0) return gpu.module[m];
  static const char *const headers[HEADERS] = {"dtm.cuh", "attention.cuh", "attention_mma.cuh",
                                               "attention_args.h"};
  for (uint32_t h = 0; h < HEADERS; h++)
    if (!gpu.headers[h].text)
      gpu.headers[h] = (NvrtcHeader){headers[h], read_kernel_file(headers[h])};
  const char *source = read_kernel_file(arena_printf(&gpu.arena, "%s.cu", i->file));
  NvrtcJob job = {.file = arena_printf(&gpu.arena, "%s.cu", name),
                  .what = name,
                  .text = arena_printf(&gpu.arena, "%s%s", lines_of(i), source),
                  .headers = gpu.headers,
                  .nheaders = HEADERS,
                  .arch = ARCH};
  const char *error = NULL;
  ck_assert_msg(nvrtc_compile(gpu.nvrtc, &gpu.arena, &job, 1, &error), "%s", error);
  char *why = NULL;
  PtxModule *m = ptx_module_load(gpu.memory, job.ptx, &why);
  ck_assert_msg(m != NULL, "%s: %s", name, why);
  ck_assert_uint_lt(gpu.nmodules, MAX_MODULES);
  snprintf(gpu.name[gpu.nmodules], sizeof gpu.name[0], "%s", name);
  return gpu.module[gpu.nmodules++] = m;
}

/* --- one call -----------------------------------------------------------------------------------
 */

/* Memory of the device; `from` NULL: nobody wrote it yet. */
static void *device_new(const void *from, size_t bytes, const char *name) {
  void *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
  PtxFault fault;
  if (from) memcpy(p, from, bytes);
  ptx_memory_add(gpu.memory, p, bytes, name);
  if (from && bytes) ck_assert(ptx_memory_check_write(gpu.memory, p, bytes, &fault));
  return p;
}

/* Back to the host, where all of it must have been written. */
static void device_take(void *p, void *to, size_t bytes) {
  PtxFault fault;
  if (to && bytes) {
    ck_assert_msg(ptx_memory_check_read(gpu.memory, p, bytes, &fault), "%s", fault.text);
    memcpy(to, p, bytes);
  }
  ptx_memory_remove(gpu.memory, p);
  free(p);
}

/* What rank has [batch, heads, rows, last] means; KEYS: of keys, ROWS: without the last dim. */
typedef enum Kind { QUERIES, KEYS, ROWS, QUERY_POSITIONS, KEY_POSITIONS } Kind;

typedef struct Operand {
  LibTensor t;
  void *host; /* of results to be read */
  size_t bytes;
} Operand;

static Operand operand(const Attention *a, Kind kind, uint32_t dtype, int64_t last,
                       const void *from, void *to, const char *name) {
  bool keys = kind == KEYS, all_keys = kind == KEY_POSITIONS;
  int64_t heads = keys ? a->groups : a->heads, first = keys ? a->first_group : a->first_head,
          per = keys && a->group_size ? a->group_size : 1;
  int64_t rows = keys ? a->keys : a->queries, row = keys ? a->first_key : a->first_query,
          all = keys ? a->all_keys : a->all_queries;
  Operand o = {.host = to};
  if (kind == QUERY_POSITIONS || kind == KEY_POSITIONS) {
    o.t = (LibTensor){.dtype = dtype, .rank = 1, .extent = {all_keys ? a->keys : a->queries}};
    o.t.shape[0] = o.t.extent[0];
  } else {
    o.t = (LibTensor){.dtype = dtype,
                      .rank = kind == ROWS ? 3 : 4,
                      .extent = {a->batch_extent[0], heads, rows, last},
                      .offset = {a->batch_offset[0], first, row, 0},
                      .shape = {a->batch_shape[0], a->all_heads / per, all, last}};
  }
  o.bytes = abi_dtype_bytes(dtype);
  for (uint32_t d = 0; d < o.t.rank; d++) o.bytes *= (size_t)o.t.extent[d];
  o.t.data = device_new(from, o.bytes, name);
  return o;
}

static int64_t bits_of(double v) {
  int64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

static void launch(const AbiCudaInstance *instance, const AttentionLaunch *l,
                   const AttentionArgs *args) {
  const char *name = arena_printf(&gpu.arena, "%s%s", l->kernel, instance->suffix);
  const PtxFunction *f = ptx_module_find(module_of(instance), name);
  ck_assert_msg(f != NULL, "%s", name);
  ck_assert_uint_eq(ptx_function_info(f)->param_bytes, sizeof *args);
  ck_assert_uint_le(l->shared, SHARED);
  ck_assert_uint_eq(ptx_function_info(f)->local_bytes, 0);
  PtxLaunch how = {.grid = {l->grid, 1, 1},
                   .block = {l->block, 1, 1},
                   .shared_bytes = l->shared,
                   .params = args};
  PtxFault fault;
  ck_assert_msg(ptx_launch(gpu.memory, f, &how, &gpu.count, &fault), "%s", fault.text);
}

/* `micros` > 1: the block is micro-batch `micro` of so many along dim `micro_dim`. */
typedef struct Micro {
  int64_t dim, micros, micro;
} Micro;

static void call(const Attention *a, Micro micro, uint32_t code, Operand *o, uint32_t n) {
  AbiCudaAttention which = {.dtype = a->dtype,
                            .head = abi_cuda_attention_class(a->dtype, a->width, a->features),
                            .backward = code == ABI_LIB_ATTENTION_BACKWARD};
  which.few = !which.head && abi_cuda_attention_few(a->all_queries, a->all_keys);
  AbiCudaInstance instance = abi_cuda_attention_instance(&which);
  LibTensor t[MAX_TENSORS];
  void *address[MAX_TENSORS];
  for (uint32_t i = 0; i < n; i++) {
    t[i] = o[i].t;
    address[i] = t[i].data;
  }
  const int64_t args[6] = {bits_of(a->dropout), (int64_t)a->instance, a->causal, bits_of(a->scale),
                           micro.dim,           micro.micros};
  AttentionPlan p = dtm_cuda_attention_plan(&which, t, n, args);
  AbiStep host = {.seed = a->seed, .step = (int64_t)a->step, .micro = micro.micro};
  void *step = device_new(&host, sizeof host, "step"),
       *scratch = device_new(NULL, p.scratch, "scratch");
  AttentionArgs all = dtm_cuda_attention_args(&p, address, scratch, step);
  for (uint32_t i = 0; i < p.nlaunches; i++) launch(&instance, &p.launch[i], &all);
  device_take(step, NULL, 0);
  device_take(scratch, NULL, 0);
  for (uint32_t i = 0; i < n; i++) device_take(o[i].t.data, o[i].host, o[i].bytes);
}

static uint32_t add_positions(const Attention *a, Operand *o, uint32_t n) {
  if (!a->q_positions) return n;
  o[n] = operand(a, QUERY_POSITIONS, ABI_I64, 0, a->q_positions, NULL, "positions of queries");
  o[n + 1] = operand(a, KEY_POSITIONS, ABI_I64, 0, a->k_positions, NULL, "positions of keys");
  return n + 2;
}

static void forward(const Attention *a, Micro micro, const AttentionRun *r) {
  uint32_t d = a->dtype, n = 3;
  Operand o[MAX_TENSORS] = {operand(a, QUERIES, d, a->width, r->t.q, NULL, "q"),
                            operand(a, KEYS, d, a->width, r->t.k, NULL, "k"),
                            operand(a, KEYS, d, a->features, r->t.v, NULL, "v")};
  n = add_positions(a, o, n);
  o[n++] = operand(a, QUERIES, d, a->features, NULL, r->t.out, "out");
  o[n++] = operand(a, ROWS, attention_sums_dtype(d), 0, NULL, r->t.lse, "lse");
  call(a, micro, ABI_LIB_ATTENTION, o, n);
}

static void backward(const Attention *a, Micro micro, const AttentionRun *r) {
  uint32_t d = a->dtype, n = 6;
  Operand o[MAX_TENSORS] = {operand(a, QUERIES, d, a->features, r->t.g, NULL, "g"),
                            operand(a, QUERIES, d, a->width, r->t.q, NULL, "q"),
                            operand(a, KEYS, d, a->width, r->t.k, NULL, "k"),
                            operand(a, KEYS, d, a->features, r->t.v, NULL, "v"),
                            operand(a, QUERIES, d, a->features, r->t.out, NULL, "out"),
                            operand(a, ROWS, attention_sums_dtype(d), 0, r->t.lse, NULL, "lse")};
  n = add_positions(a, o, n);
  o[n++] = operand(a, QUERIES, d, a->width, NULL, r->t.dq, "dq");
  o[n++] = operand(a, KEYS, d, a->width, NULL, r->t.dk, "dk");
  o[n++] = operand(a, KEYS, d, a->features, NULL, r->t.dv, "dv");
  call(a, micro, ABI_LIB_ATTENTION_BACKWARD, o, n);
}

/* --- against the definition ---------------------------------------------------------------------
 */

static const Micro whole = {-1, 1, 0};

static double tolerance_of(uint32_t dtype) {
  return dtype == ABI_F64 ? 1e-13 : dtype == ABI_F32 ? 3e-6 : dtype == ABI_F16 ? 1.5e-3 : 1e-2;
}

static void check_micro(Attention defined, Attention a, Micro micro) {
  AttentionWhole w = attention_begin(defined);
  attention_define(&w);
  AttentionRun r = attention_allocate(&w);
  double tolerance = tolerance_of(a.dtype);
  uint32_t d = a.dtype, s = attention_sums_dtype(d);
  forward(&a, micro, &r);
  attention_compare("out", r.t.out, d, w.out, w.rows * a.features, tolerance);
  attention_compare("lse", r.t.lse, s, w.lse, w.rows, d == ABI_F64 ? 1e-13 : 3e-6);
  backward(&a, micro, &r);
  attention_compare("dq", r.t.dq, d, w.dq, w.rows * a.width, tolerance);
  attention_compare("dk", r.t.dk, d, w.dk, w.keys * a.width, tolerance);
  attention_compare("dv", r.t.dv, d, w.dv, w.keys * a.features, tolerance);
  attention_release(&r);
  attention_end(&w);
}

static void check(Attention a) {
  check_micro(a, a, whole);
}

typedef struct Case {
  int64_t batch, heads, groups, queries, keys, width, features;
} Case;

static Attention attention_of(uint32_t dtype, const Case *c) {
  return attention_shape(dtype, c->batch, c->heads, c->groups, c->queries, c->keys, c->width,
                         c->features);
}

/* On the ordinary cores. */
static const Case plain[] = {
    {1, 1, 1, 1, 1, 1, 1},    {2, 2, 2, 3, 5, 4, 6},     {1, 3, 1, 65, 63, 17, 33},
    {1, 2, 1, 33, 70, 16, 9}, {1, 1, 1, 34, 35, 7, 140}, {1, 1, 1, 35, 34, 140, 7},
    {0, 2, 1, 5, 5, 4, 4},    {2, 0, 1, 5, 5, 4, 4},     {2, 2, 2, 0, 5, 4, 4},
    {2, 2, 2, 5, 0, 4, 4},    {2, 2, 1, 5, 5, 0, 4},     {2, 2, 1, 5, 5, 4, 0},
};
enum { PLAIN = sizeof plain / sizeof *plain };

START_TEST(ordinary_cores) {
  static const uint32_t dtypes[] = {ABI_F32, ABI_F64, ABI_BF16, ABI_F16};
  for (int t = 0; t < (_i == 1 || _i == 2 ? 4 : 1); t++)
    for (int causal = 0; causal < 2; causal++) {
      Attention a = attention_of(dtypes[t], &plain[_i]);
      a.causal = causal;
      check(a);
    }
}
END_TEST

/* On tensor cores: every class, and widths within it. f16 is the same code but for two
 * instructions. */
static const Case mma[] = {
    {1, 1, 1, 1, 1, 8, 8},       {2, 4, 2, 130, 70, 32, 24},  {1, 2, 1, 63, 129, 64, 64},
    {1, 2, 2, 65, 33, 40, 64},   {1, 1, 1, 66, 40, 96, 80},   {1, 2, 1, 70, 65, 128, 128},
    {1, 1, 1, 17, 40, 192, 128}, {1, 1, 1, 65, 33, 256, 256}, {1, 2, 1, 0, 5, 8, 8},
    {1, 2, 1, 5, 0, 8, 8},       {0, 2, 1, 5, 5, 8, 8},       {1, 0, 1, 5, 5, 8, 8},
};
enum { MMA = sizeof mma / sizeof *mma };

START_TEST(tensor_cores) {
  for (int causal = 0; causal < 2; causal++) {
    Attention a = attention_of(causal && mma[_i].width <= 32 ? ABI_F16 : ABI_BF16, &mma[_i]);
    a.causal = causal;
    check(a);
  }
}
END_TEST

static const uint32_t both[] = {ABI_F32, ABI_BF16};

START_TEST(dropout_by_global_element) {
  Attention a = attention_dropped(both[_i], 40, 70);
  check(a);
  /* The same elements, of micro-batch 2 of 4 along the batch, and then along the heads. */
  Attention part = a;
  a.batch_offset[0] += 2 * 9;
  a.batch_shape[0] = 4 * 9;
  check_micro(a, part, (Micro){0, 4, 2});
  a = part;
  a.first_head = 2 * a.all_heads;
  a.first_group = 2;
  a.all_heads *= 4;
  check_micro(a, part, (Micro){1, 4, 2});
}
END_TEST

START_TEST(heads_of_a_rank) {
  check(attention_cut_heads(both[_i]));
}
END_TEST

/* A sequence of which this rank has the middle, keys in another order; some see nothing. */
START_TEST(positions) {
  enum { N = 150, M = 90 };
  int64_t q[N], k[M];
  for (int64_t i = 0; i < N; i++) q[i] = i < N / 2 ? i / 2 : 3 * i;
  for (int64_t i = 0; i < M; i++) k[i] = i < M / 3 ? 2 * i + 5 : 2 * M - i;
  Attention a = attention_shape(both[_i], 1, 1, 1, N, M, 8, 16);
  a.q_positions = q;
  a.k_positions = k;
  a.all_keys = a.all_queries = 1000;
  a.causal = 1;
  check(a);
  a.dropout = 0.2;
  check(a);
  a.causal = 0;
  check(a);
}
END_TEST

/* A block of a ring: of the keys before, of its own, of those behind. */
START_TEST(blocks_of_a_ring) {
  for (int64_t first = 0; first < 3 * 33; first += 33) {
    Attention a = attention_shape(both[_i], 1, 2, 1, 33, 33, 16, 16);
    a.causal = 1;
    a.first_query = 33;
    a.first_key = first;
    a.all_queries = a.all_keys = 99;
    check(a);
  }
}
END_TEST

/* Scores far apart and of either sign of the scale. */
START_TEST(scales) {
  Attention a = attention_shape(both[_i], 1, 1, 1, 20, 70, 8, 8);
  a.scale = -3;
  check(a);
  a.scale = 0;
  check(a);
}
END_TEST

static uint64_t lane_steps_of(const Attention *a) {
  AttentionWhole w = attention_begin(*a);
  AttentionRun r = attention_allocate(&w);
  gpu.count = (PtxCount){0};
  forward(a, whole, &r);
  backward(a, whole, &r);
  attention_release(&r);
  attention_end(&w);
  return gpu.count.lane_steps;
}

/* Five eighths of the blocks hold what a causal query sees, and some are masked; also where
 * positions say so. */
START_TEST(blocks_that_nobody_sees_cost_nothing) {
  enum { N = 512 };
  int64_t at[N];
  for (int64_t i = 0; i < N; i++) at[i] = N / 2 - i;
  Attention a = attention_shape(both[_i], 1, 1, 1, N, N, 8, 8);
  double all = (double)lane_steps_of(&a);
  a.causal = 1;
  ck_assert_double_lt((double)lane_steps_of(&a), 0.95 * all);
  a.q_positions = a.k_positions = at;
  ck_assert_double_lt((double)lane_steps_of(&a), 0.95 * all);
}
END_TEST

/* The instance follows from the types and from where the blocks lie. */
START_TEST(instances) {
  enum { BATCH = 2, HEADS = 4, WIDTH = 64, LENGTH = 100 };
  AbiType type = {.dtype = ABI_BF16, .rank = 4, .shape = {BATCH, HEADS, LENGTH, WIDTH}};
  AbiMesh mesh = {.naxes = 1, .size = {2}, .nranks = 2};
  AbiBuffer buffer[9] = {{.offset = 64}};
  Image image = {.type = &type, .mesh = &mesh, .buffer = buffer};
  AbiAction action = {.kind = ABI_LIBRARY, .code = ABI_LIB_ATTENTION, .nbuffers = 5};
  AbiCudaAttention a = abi_cuda_attention(&image, &action);
  ck_assert_str_eq(abi_cuda_attention_instance(&a).suffix, "_bf16_64");
  buffer[1].offset = 24; /* no multiple of 16: a view into something */
  a = abi_cuda_attention(&image, &action);
  ck_assert_str_eq(abi_cuda_attention_instance(&a).suffix, "_bf16");
  buffer[1].offset = 16;
  type.at[0] = (AbiPlace){.kind = ABI_SHARD, .dim = 3}; /* blocks as wide as may be */
  a = abi_cuda_attention(&image, &action);
  ck_assert_uint_eq(a.head, 0);
  type.at[0].dim = 2;
  action.code = ABI_LIB_ATTENTION_BACKWARD;
  action.nbuffers = 9;
  a = abi_cuda_attention(&image, &action);
  ck_assert_str_eq(abi_cuda_attention_instance(&a).suffix, "_bf16_64_backward");
  type.shape[2] = 20;
  type.dtype = ABI_F32;
  a = abi_cuda_attention(&image, &action);
  ck_assert_str_eq(abi_cuda_attention_instance(&a).suffix, "_f32_few_backward");
}
END_TEST

int main(void) {
  const char *error = NULL;
  gpu.nvrtc = nvrtc_open(&gpu.arena, &error);
  if (!gpu.nvrtc) return suite_skip(error);
  gpu.memory = ptx_memory_new();
  Suite *suite = suite_create("attention on a GPU");
  TCase *t = tcase_create("all");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, ordinary_cores, 0, PLAIN);
  tcase_add_loop_test(t, tensor_cores, 0, MMA);
  tcase_add_loop_test(t, dropout_by_global_element, 0, 2);
  tcase_add_loop_test(t, heads_of_a_rank, 0, 2);
  tcase_add_loop_test(t, positions, 0, 2);
  tcase_add_loop_test(t, blocks_of_a_ring, 0, 2);
  tcase_add_loop_test(t, scales, 0, 2);
  tcase_add_loop_test(t, blocks_that_nobody_sees_cost_nothing, 0, 2);
  tcase_add_test(t, instances);
  suite_add_tcase(suite, t);
  return suite_run_unforked(suite);
}
