/* Who computes a matrix product, and products through oneDNN: see matmul.h.
 *
 * Packed loops of our own take f16, and on processors with AVX2 but without AVX-512 bf16, for which
 * oneDNN has nothing faster than scalar code there, and f32 of some size: they need not be cut by
 * sizes, which leaves oneDNN a thread too few for 256 x 768, and fetch what they read next. Small
 * products, activations and everything on other processors are oneDNN's.
 *
 * oneDNN (2.6, the v2 C API) picks its blocking, and in some kernels the order of its additions, by
 * the number of threads it sees. So every product is cut into tiles here, by its sizes alone; a
 * primitive is made and run as a single-threaded one, and threads take whole tiles. At most four
 * primitives serve all tiles of a product (the last row and column of tiles may be smaller).
 *
 * Tiles are wide rather than tall: oneDNN repacks the right operand in every call.
 */
#include "device/cpu/matmul.h"

#include <dnnl.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>

#include "device/cpu/matmul_packed.h"

enum {
  /* Of a tile, about. oneDNN leaves its packed kernel for one of half the speed when a product is
   * smaller than 512 x 768 or so and its right operand is not transposed. */
  TILE_ROWS = 512,
  TILE_COLS = 1024,
  TILE_STEP = 64,    /* tiles begin at multiples of this */
  PACKED_LEAST = 48, /* rows and columns of f32 from which packing pays */
  MAX_OPERANDS = 5   /* a, b, bias, addend, out */
};

struct MatmulContext {
  dnnl_engine_t engine;
  int threads;
  dnnl_stream_t *streams; /* per thread */
  char *scratch;          /* shared by all products: own loops, or `scratch_each` per thread */
  size_t scratch_size, scratch_each;
};

typedef struct Primitive {
  int64_t m, n;
  dnnl_primitive_t primitive;
  const dnnl_memory_desc_t *scratch; /* owned by the descriptor below */
  dnnl_primitive_desc_t desc;
  dnnl_memory_desc_t a, b, bias, out;
} Primitive;

typedef struct Tile {
  uint32_t primitive;
  int nargs;
  void *out;
  dnnl_exec_arg_t args[MAX_OPERANDS + 1]; /* the last is the scratchpad */
} Tile;

struct Matmul {
  MatmulContext *context;
  MatmulShape shape;
  int own, empty;
  const PackedLoops *packed; /* who computes it, unless NULL */
  const void *a, *b, *bias, *addend;
  void *out;
  Primitive primitives[4];
  uint32_t nprimitives;
  Tile *tiles;
  int64_t ntiles;
  int threads; /* worth using */
};

MatmulContext *dtm_rt_matmul_open(int threads) {
  MatmulContext *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->threads = threads > 1 ? threads : 1;
  c->streams = calloc((size_t)c->threads, sizeof *c->streams);
  if (!c->streams || dnnl_engine_create(&c->engine, dnnl_cpu, 0) != dnnl_success) {
    dtm_rt_matmul_close(c);
    return NULL;
  }
  for (int i = 0; i < c->threads; i++)
    if (dnnl_stream_create(&c->streams[i], c->engine, dnnl_stream_default_flags) != dnnl_success) {
      dtm_rt_matmul_close(c);
      return NULL;
    }
  return c;
}

void dtm_rt_matmul_close(MatmulContext *c) {
  if (!c) return;
  for (int i = 0; c->streams && i < c->threads; i++)
    if (c->streams[i]) dnnl_stream_destroy(c->streams[i]);
  if (c->engine) dnnl_engine_destroy(c->engine);
  free(c->streams);
  free(c->scratch);
  free(c);
}

/* --- shape ------------------------------------------------------------------------------------ */

/* Extent of a tile: the extent cut into near-equal parts of about `tile`. */
static int64_t tile_extent(int64_t extent, int64_t tile) {
  int64_t parts = (extent + tile / 2) / tile;
  if (parts <= 1) return extent;
  int64_t each = (extent + parts - 1) / parts;
  return (each + TILE_STEP - 1) / TILE_STEP * TILE_STEP;
}

/* --- primitives ---------------------------------------------------------------------------------
 */

static dnnl_data_type_t data_type(uint32_t dtype) {
  return dtype == ABI_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_alg_kind_t algorithm(uint32_t activation) {
  switch ((AbiActivation)activation) {
  case ABI_ACT_NONE:
    break;
  case ABI_ACT_RELU:
    return dnnl_eltwise_elu; /* with alpha 0 */
  case ABI_ACT_GELU:
    return dnnl_eltwise_gelu_erf;
  case ABI_ACT_GELU_TANH:
    return dnnl_eltwise_gelu_tanh;
  case ABI_ACT_SILU:
    return dnnl_eltwise_swish;
  case ABI_ACT_TANH:
    return dnnl_eltwise_tanh;
  }
  return dnnl_alg_kind_undef;
}

/* [m, n] with these strides, under `nbatch` unit dims. oneDNN wants operands of equal rank; the
 * batch is walked by tiles. */
static dnnl_status_t describe(dnnl_memory_desc_t *d, uint32_t dtype, int64_t rows, int64_t cols,
                              int64_t row_stride, int64_t col_stride) {
  const dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
  return dnnl_memory_desc_init_by_strides(d, 2, dims, data_type(dtype), strides);
}

/* oneDNN's relu makes 0 of NaN, and a run that has gone wrong would not show it. Ours comes behind
 * each tile while that is in the cache; where something is added after it, oneDNN's elu with
 * alpha 0 is the same function. */
static bool own_relu(const MatmulShape *s) {
  return s->activation == ABI_ACT_RELU && !s->addend;
}

static inline float relu_f32(float x) {
  return x <= 0 ? 0 : x;
}

static inline uint16_t relu_bf16(uint16_t x) {
  return (uint16_t)(x - 0x8000) <= 0x7f80 ? 0 : x; /* negative, and not beyond infinity */
}

/* Every store happens, so that lines of consecutive elements vectorise. */
#define RELU_LINE(NAME, T)                                                                         \
  static void NAME##_line(T *v, int64_t n, int64_t step) {                                         \
    if (step == 1)                                                                                 \
      for (int64_t j = 0; j < n; j++) v[j] = NAME(v[j]);                                           \
    else                                                                                           \
      for (int64_t j = 0; j < n; j++) v[j * step] = NAME(v[j * step]);                             \
  }
RELU_LINE(relu_f32, float)
RELU_LINE(relu_bf16, uint16_t)
#undef RELU_LINE

static void relu_tile(const MatmulShape *s, const Primitive *p, void *out) {
  bool rows = s->out_n == 1;
  int64_t lines = rows ? p->m : p->n, n = rows ? p->n : p->m;
  int64_t line = rows ? s->out_m : s->out_n, step = rows ? 1 : s->out_m;
  for (int64_t i = 0; i < lines; i++) {
    if (s->dtype == ABI_BF16)
      relu_bf16_line((uint16_t *)out + i * line, n, step);
    else
      relu_f32_line((float *)out + i * line, n, step);
  }
}

static dnnl_status_t make_attributes(const MatmulShape *s, const Primitive *p,
                                     dnnl_primitive_attr_t *attr) {
  dnnl_post_ops_t ops;
  dnnl_status_t st = dnnl_primitive_attr_create(attr);
  if (st == dnnl_success)
    st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
  if (st != dnnl_success || ((!s->activation || own_relu(s)) && !s->addend)) return st;
  st = dnnl_post_ops_create(&ops);
  if (st != dnnl_success) return st;
  if (s->activation)
    st = dnnl_post_ops_append_eltwise(ops, 1.0f, algorithm(s->activation),
                                      s->activation == ABI_ACT_SILU ? 1.0f : 0.0f, 0.0f);
  if (st == dnnl_success && s->addend)
    st = s->in_place ? dnnl_post_ops_append_sum(ops, 1.0f)
                     : dnnl_post_ops_append_binary(ops, dnnl_binary_add, &p->out);
  if (st == dnnl_success) st = dnnl_primitive_attr_set_post_ops(*attr, ops);
  dnnl_post_ops_destroy(ops);
  return st;
}

static dnnl_status_t make_primitive(MatmulContext *c, const MatmulShape *s, int64_t m, int64_t n,
                                    Primitive *p) {
  dnnl_matmul_desc_t op;
  dnnl_primitive_attr_t attr = NULL;
  *p = (Primitive){.m = m, .n = n};
  dnnl_status_t st = describe(&p->a, s->dtype, m, s->k, s->a_m, s->a_k);
  if (st == dnnl_success) st = describe(&p->b, s->dtype, s->k, n, s->b_k, s->b_n);
  if (st == dnnl_success) st = describe(&p->out, s->dtype, m, n, s->out_m, s->out_n);
  if (st == dnnl_success && s->bias) st = describe(&p->bias, s->dtype, 1, n, n, 1);
  if (st == dnnl_success)
    st = dnnl_matmul_desc_init(&op, &p->a, &p->b, s->bias ? &p->bias : NULL, &p->out);
  if (st == dnnl_success) st = make_attributes(s, p, &attr);
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  if (st == dnnl_success) st = dnnl_primitive_desc_create(&p->desc, &op, attr, c->engine, NULL);
  if (st == dnnl_success) st = dnnl_primitive_create(&p->primitive, p->desc);
  omp_set_num_threads(before);
  if (attr) dnnl_primitive_attr_destroy(attr);
  if (st == dnnl_success)
    p->scratch = dnnl_primitive_desc_query_md(p->desc, dnnl_query_scratchpad_md, 0);
  return st;
}

/* The primitive for tiles of this size, made when new. */
static int find_primitive(Matmul *x, int64_t m, int64_t n, uint32_t *index) {
  for (*index = 0; *index < x->nprimitives; ++*index)
    if (x->primitives[*index].m == m && x->primitives[*index].n == n) return 0;
  if (make_primitive(x->context, &x->shape, m, n, &x->primitives[x->nprimitives++]) != dnnl_success)
    return -1;
  return 0;
}

static int add_argument(Tile *t, MatmulContext *c, int kind, const dnnl_memory_desc_t *desc,
                        void *data) {
  dnnl_memory_t memory;
  if (dnnl_memory_create(&memory, desc, c->engine, data) != dnnl_success) return -1;
  t->args[t->nargs++] = (dnnl_exec_arg_t){kind, memory};
  return 0;
}

/* The tile of batch entry `batch` at [row, col]. */
static int make_tile(Matmul *x, Tile *t, int64_t batch, int64_t row, int64_t col, int64_t m,
                     int64_t n) {
  const MatmulShape *s = &x->shape;
  int64_t at_a = row * s->a_m, at_b = col * s->b_n, at_out = row * s->out_m + col * s->out_n;
  for (uint32_t d = s->nbatch; d-- > 0;) {
    int64_t i = batch % s->batch[d];
    batch /= s->batch[d];
    at_a += i * s->a_batch[d];
    at_b += i * s->b_batch[d];
    at_out += i * s->out_batch[d];
  }
  if (find_primitive(x, m, n, &t->primitive)) return -1;
  const Primitive *p = &x->primitives[t->primitive];
  MatmulContext *c = x->context;
  size_t width = abi_dtype_bytes(s->dtype);
  char *out = (char *)x->out + (size_t)at_out * width;
  if (add_argument(t, c, DNNL_ARG_SRC, &p->a, (char *)x->a + (size_t)at_a * width) ||
      add_argument(t, c, DNNL_ARG_WEIGHTS, &p->b, (char *)x->b + (size_t)at_b * width) ||
      add_argument(t, c, DNNL_ARG_DST, &p->out, out))
    return -1;
  if (s->bias && add_argument(t, c, DNNL_ARG_BIAS, &p->bias, (char *)x->bias + (size_t)col * width))
    return -1;
  int binary = DNNL_ARG_ATTR_MULTIPLE_POST_OP(s->activation ? 1 : 0) | DNNL_ARG_SRC_1;
  if (s->addend && !s->in_place &&
      add_argument(t, c, binary, &p->out, (char *)x->addend + (size_t)at_out * width))
    return -1;
  size_t scratch = dnnl_memory_desc_get_size(p->scratch);
  if (scratch > c->scratch_each) c->scratch_each = (scratch + 4095) / 4096 * 4096;
  t->out = out;
  return add_argument(t, c, DNNL_ARG_SCRATCHPAD, p->scratch, NULL);
}

static int make_tiles(Matmul *x) {
  const MatmulShape *s = &x->shape;
  int64_t m = tile_extent(s->m, TILE_ROWS), n = tile_extent(s->n, TILE_COLS), batch = 1;
  for (uint32_t d = 0; d < s->nbatch; d++) batch *= s->batch[d];
  int64_t rows = (s->m + m - 1) / m, cols = (s->n + n - 1) / n;
  x->tiles = calloc((size_t)(batch * rows * cols), sizeof *x->tiles);
  if (!x->tiles) return -1;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t r = 0; r < s->m; r += m)
      for (int64_t c = 0; c < s->n; c += n)
        if (make_tile(x, &x->tiles[x->ntiles++], b, r, c, s->m - r < m ? s->m - r : m,
                      s->n - c < n ? s->n - c : n))
          return -1;
  return 0;
}

/* Grows the scratch memory that all products share. */
static int reserve(MatmulContext *c, size_t size) {
  if (size <= c->scratch_size) return 0;
  free(c->scratch);
  size = (size + 4095) / 4096 * 4096;
  c->scratch = aligned_alloc(4096, size);
  c->scratch_size = c->scratch ? size : 0;
  return c->scratch ? 0 : -1;
}

/* The loops of packed panels that compute this better than oneDNN or the plain loops, or NULL. */
static const PackedLoops *choose_packed(const MatmulShape *s) {
  const PackedLoops *best = NULL;
  int set = PACKED_SETS;
  if (!dtm_rt_packed_fits(s)) return NULL;
  while (set > 0 && !best) best = dtm_rt_packed_loops(--set);
  if (s->dtype == ABI_F16) return best;
  if (set != PACKED_AVX2) return NULL;
  return s->dtype == ABI_BF16 || (s->m >= PACKED_LEAST && s->n >= PACKED_LEAST) ? best : NULL;
}

Matmul *dtm_rt_matmul_new(MatmulContext *c, const MatmulShape *shape, const void *a, const void *b,
                          const void *bias, const void *addend, void *out, const char **error) {
  Matmul *x = calloc(1, sizeof *x);
  *error = "out of memory";
  if (!x) return NULL;
  *x = (Matmul){.context = c, .shape = *shape, .a = a, .b = b, .bias = bias, .addend = addend};
  x->out = out;
  MatmulShape *s = &x->shape;
  x->empty = s->m == 0 || s->n == 0;
  double work = (double)s->m * (double)s->n * (double)(s->k ? s->k : 1);
  for (uint32_t d = 0; d < s->nbatch; d++) {
    x->empty = x->empty || s->batch[d] == 0;
    work *= (double)s->batch[d];
  }
  x->threads = work > 2e5 ? c->threads : 1;
  if (x->empty) return x;
  dtm_device_matmul_simplify(s);
  x->packed = choose_packed(s);
  x->own = !x->packed && ((s->dtype != ABI_F32 && s->dtype != ABI_BF16) || s->k == 0);
  if (!x->packed && !x->own && make_tiles(x)) {
    /* A machine or a layout this oneDNN has no kernel for. */
    x->own = 1;
  }
  size_t need = x->packed ? dtm_rt_packed_scratch(x->packed, s, x->threads) * (size_t)x->threads
                : x->own  ? dtm_rt_matmul_own_scratch(s)
                          : c->scratch_each * (size_t)c->threads;
  if (reserve(c, need)) {
    dtm_rt_matmul_free(x);
    return NULL;
  }
  return x;
}

/* Arguments of a tile stand in the order of make_tile. */
static void shift(dnnl_memory_t memory, const void *from, const void *to) {
  void *data;
  if (from == to || dnnl_memory_get_data_handle(memory, &data) != dnnl_success) return;
  dnnl_memory_set_data_handle(memory, (char *)data + ((const char *)to - (const char *)from));
}

void dtm_rt_matmul_move(Matmul *x, const void *a, const void *b, const void *bias,
                        const void *addend, void *out) {
  bool fused = x->shape.addend && !x->shape.in_place;
  for (int64_t i = 0; i < x->ntiles; i++) {
    Tile *t = &x->tiles[i];
    int n = 0;
    shift(t->args[n++].memory, x->a, a);
    shift(t->args[n++].memory, x->b, b);
    shift(t->args[n++].memory, x->out, out);
    if (x->shape.bias) shift(t->args[n++].memory, x->bias, bias);
    if (fused) shift(t->args[n++].memory, x->addend, addend);
    t->out = (char *)t->out + ((char *)out - (char *)x->out);
  }
  x->a = a;
  x->b = b;
  x->bias = bias;
  x->addend = addend;
  x->out = out;
}

int dtm_rt_matmul_run(const Matmul *x, const char **error) {
  MatmulContext *c = x->context;
  if (x->empty) return 0;
  if (x->packed) {
    dtm_rt_packed_run(x->packed, &x->shape, x->a, x->b, x->bias, x->addend, x->out, c->scratch,
                      x->threads);
    return 0;
  }
  if (x->own) {
    dtm_rt_matmul_own(&x->shape, x->a, x->b, x->bias, x->addend, x->out, c->scratch, x->threads);
    return 0;
  }
  int failed = 0, threads = x->ntiles < x->threads ? (int)x->ntiles : x->threads;
  int before = omp_get_max_threads();
  omp_set_num_threads(1); /* what oneDNN sees inside a tile */
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < x->ntiles; i++) {
    const Tile *t = &x->tiles[i];
    int me = omp_get_thread_num();
    dnnl_memory_set_data_handle(t->args[t->nargs - 1].memory,
                                c->scratch ? c->scratch + c->scratch_each * (size_t)me : NULL);
    if (dnnl_primitive_execute(x->primitives[t->primitive].primitive, c->streams[me], t->nargs,
                               t->args) != dnnl_success) {
#pragma omp atomic write
      failed = 1;
    }
    if (own_relu(&x->shape)) relu_tile(&x->shape, &x->primitives[t->primitive], t->out);
  }
  omp_set_num_threads(before);
  if (failed) *error = "oneDNN failed to run a matrix product";
  return failed ? -1 : 0;
}

void dtm_rt_matmul_free(Matmul *x) {
  if (!x) return;
  for (int64_t i = 0; i < x->ntiles; i++)
    for (int k = 0; k < x->tiles[i].nargs; k++) dnnl_memory_destroy(x->tiles[i].args[k].memory);
  free(x->tiles);
  for (uint32_t i = 0; i < x->nprimitives; i++) {
    if (x->primitives[i].primitive) dnnl_primitive_destroy(x->primitives[i].primitive);
    if (x->primitives[i].desc) dnnl_primitive_desc_destroy(x->primitives[i].desc);
  }
  free(x);
}
