/* Matrix products on a GPU: cuBLASLt, and kernels of our own for what it does not take
 * (kernels/matmul.cu).
 *
 * The algorithm of a product is chosen once, when it is prepared: the first that the library's
 * heuristic proposes for these sizes, nothing is timed. Parts of a dot product are added up in a
 * fixed order or not split at all, so a run can be repeated to the last bit. f32 is multiplied as
 * f32, never as TF32; bf16 and f16 are added up in f32.
 *
 * What is added behind the product and what is applied to it happens inside the library where it
 * means the same there: a bias, an addend without an activation, and gelu by tanh in 16 bits (in
 * f32 the library's is only approximately that). relu is not its own, as it may make 0 of NaN.
 * Everything else is a pass of our own over the result.
 *
 * cuBLASLt is column-major: a row-major out [m, n] is its D [n, m], and b its first operand.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/errors.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/library_args.h"

enum {
  WORKSPACE = 32 << 20, /* bytes an algorithm may ask for */
  CANDIDATES = 8,
  ALIGNMENT = 256, /* bytes, most that the library asks about */
  MAX_GRID = 0x7fffffff,
  /* Entries of a batch that all algorithms take: some have them along a dim of the grid that ends
   * there, and that is found out when they run. */
  MAX_BATCH = 65535,
  MAX_CALLS = 4096 /* for one product; beyond, our kernel is the faster one */
};

_Static_assert((int)MATMUL_DIMS == ABI_MATMUL_BATCH, "dims of a batch");
#define SAME(name) _Static_assert((int)ACTIVATION_##name == (int)ABI_ACT_##name, #name)
SAME(RELU);
SAME(GELU);
SAME(GELU_TANH);
SAME(SILU);
SAME(TANH);
#undef SAME

struct CudaProducts {
  CudaBlasLt lt;
  LtContext *handle;
  LtPreference *preference;
};

/* One operand of cuBLASLt: rows x columns, column-major. */
typedef struct Matrix {
  int64_t rows, columns, ld;
  bool transposed; /* it is the transpose that is multiplied */
} Matrix;

typedef struct Product {
  MatmulShape shape; /* columns of out lie together where anything does */
  bool swapped;      /* it is out^T = b^T a^T */
  bool empty;
  bool library;                /* cuBLASLt multiplies, else our kernel */
  bool finish;                 /* a pass over the result */
  bool aside;                  /* the product is made in scratch memory */
  bool bias_in, activation_in; /* done by cuBLASLt */
  bool addend_in;
  int batch_dim;   /* the dim of the batch that cuBLASLt walks, the others are ours; -1: none */
  int64_t calls;   /* of cuBLASLt */
  size_t aside_at; /* offset in scratch memory, behind the workspace */
  LtMatmulDesc *desc;
  LtMatrixLayout *first, *second, *out;
  LtAlgo algo;
  size_t workspace;
  CUdeviceptr bias_set; /* the address that the descriptor has */
  CUfunction multiply_kernel, finish_kernel;
  struct MatmulDims dims;
} Product;

/* --- the library --------------------------------------------------------------------------------
 */

static int failed(CudaDevice *d, LtStatus status, const char *what) {
  const CudaBlasLt *lt = &d->products->lt;
  return dtm_rt_fail(d->base.comm, RT_DEVICE,
                     "cuBLASLt %zu.%zu.%zu cannot %s on GPU %d: %s\n  CUBLASLT_LOG_LEVEL=2 in the "
                     "environment says more; DTM_CUBLASLT names the file of another version",
                     lt->version / 10000, lt->version / 100 % 100, lt->version % 100, what,
                     (int)d->device, lt->status_string(status));
}

/* Loads cuBLASLt for the first product that needs it. */
static int open_library(CudaDevice *d) {
  static const uint64_t workspace = WORKSPACE;
  static const uint32_t reductions = LT_REDUCTION_COMPUTE_TYPE;
  char message[1024];
  if (d->products) return 0;
  struct CudaProducts *p = d->products = calloc(1, sizeof *p);
  if (!p) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  const char *error = dtm_cuda_blaslt_load(&p->lt, message, sizeof message);
  if (error) return dtm_rt_fail(d->base.comm, RT_DEVICE, "%s", error);
  LtStatus s = p->lt.create(&p->handle);
  if (!s) s = p->lt.preference_create(&p->preference);
  if (!s)
    s = p->lt.preference_set(p->preference, LT_PREF_MAX_WORKSPACE_BYTES, &workspace,
                             sizeof workspace);
  if (!s)
    s = p->lt.preference_set(p->preference, LT_PREF_REDUCTION_SCHEME_MASK, &reductions,
                             sizeof reductions);
  return s ? failed(d, s, "start") : 0;
}

void dtm_cuda_matmul_close(CudaDevice *d) {
  struct CudaProducts *p = d->products;
  if (!p) return;
  if (p->preference) p->lt.preference_destroy(p->preference);
  if (p->handle) p->lt.destroy(p->handle);
  free(p);
  d->products = NULL;
}

/* --- shape --------------------------------------------------------------------------------------
 */

static bool in_library(uint32_t dtype) {
  return dtype == ABI_F32 || dtype == ABI_BF16 || dtype == ABI_F16 || dtype == ABI_F64;
}

static LtType library_type(uint32_t dtype) {
  return dtype == ABI_F64    ? LT_R_64F
         : dtype == ABI_BF16 ? LT_R_16BF
         : dtype == ABI_F16  ? LT_R_16F
                             : LT_R_32F;
}

static void swap(int64_t *a, int64_t *b) {
  int64_t old = *a;
  *a = *b;
  *b = old;
}

/* out^T = b^T a^T */
static void transpose(MatmulShape *s) {
  swap(&s->m, &s->n);
  swap(&s->a_m, &s->b_n);
  swap(&s->a_k, &s->b_k);
  swap(&s->out_m, &s->out_n);
  for (uint32_t i = 0; i < s->nbatch; i++) swap(&s->a_batch[i], &s->b_batch[i]);
}

/* The matrix whose element [i, j] lies at i * row + j * column; false when the library cannot have
 * it: one stride must be 1, and lines must not overlap. */
static bool find_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, Matrix *m) {
  *m = (Matrix){rows, columns, column, false};
  if (row != 1 || column < rows) *m = (Matrix){columns, rows, row, true};
  return (m->transposed ? column : row) == 1 && m->ld >= m->rows;
}

/* A dim of the batch that is too long for the library becomes two, where a divisor allows it. */
static void split_batch(MatmulShape *s) {
  for (uint32_t d = 0; d < s->nbatch; d++) {
    int64_t n = s->batch[d], inner = MAX_BATCH;
    if (n <= MAX_BATCH || s->nbatch == ABI_MATMUL_BATCH) continue;
    while (n % inner) inner--;
    if (n / inner > MAX_CALLS) continue;
    for (uint32_t i = s->nbatch++; i > d; i--) {
      s->batch[i] = s->batch[i - 1];
      s->a_batch[i] = s->a_batch[i - 1];
      s->b_batch[i] = s->b_batch[i - 1];
      s->out_batch[i] = s->out_batch[i - 1];
    }
    s->batch[d] = n / inner;
    s->a_batch[d] *= inner;
    s->b_batch[d] *= inner;
    s->out_batch[d] *= inner;
    s->batch[++d] = inner;
  }
}

static int64_t entries(const MatmulShape *s) {
  int64_t count = 1;
  for (uint32_t i = 0; i < s->nbatch; i++) count *= s->batch[i];
  return count;
}

/* Elements from the first of out to behind the last. */
static int64_t out_span(const MatmulShape *s) {
  int64_t last = (s->m - 1) * s->out_m + (s->n - 1) * s->out_n;
  for (uint32_t i = 0; i < s->nbatch; i++) last += (s->batch[i] - 1) * s->out_batch[i];
  return last + 1;
}

/* Element offsets of entry `entry` of the batch, whose dim `without` stays at 0. */
typedef struct Offsets {
  int64_t a, b, out;
} Offsets;

static Offsets entry_offsets(const MatmulShape *s, int without, int64_t entry) {
  Offsets at = {0, 0, 0};
  for (uint32_t i = s->nbatch; i-- > 0;) {
    if ((int)i == without) continue;
    int64_t c = entry % s->batch[i];
    entry /= s->batch[i];
    at.a += c * s->a_batch[i];
    at.b += c * s->b_batch[i];
    at.out += c * s->out_batch[i];
  }
  return at;
}

/* --- operands -----------------------------------------------------------------------------------
 */

typedef struct Operands {
  CUdeviceptr a, b, bias, addend, out; /* 0: there is none */
} Operands;

static const AbiBuffer *buffer_of(const CudaDevice *d, uint32_t action, uint32_t i) {
  return &d->base.image->buffer[dtm_cuda_action(d, action)->buffers + i];
}

static Operands find_operands(const CudaDevice *d, uint32_t action, const Product *p) {
  const AbiAction *a = dtm_cuda_action(d, action);
  uint32_t bias = p->shape.bias, addend = p->shape.addend;
  Operands o = {.a = dtm_cuda_address(d, buffer_of(d, action, p->swapped ? 1 : 0)),
                .b = dtm_cuda_address(d, buffer_of(d, action, p->swapped ? 0 : 1)),
                .out = dtm_cuda_address(d, buffer_of(d, action, a->nbuffers - 1))};
  if (bias) o.bias = dtm_cuda_address(d, buffer_of(d, action, 2));
  if (addend) o.addend = dtm_cuda_address(d, buffer_of(d, action, 2 + bias));
  return o;
}

/* Its lowest bit divides all addresses of a buffer. */
static uint64_t base_bits(const CudaDevice *d, const AbiBuffer *b) {
  return (d->arena + b->offset) | (b->slots > 1 ? b->stride : 0);
}

/* The power of two that divides all of a product's addresses of this buffer, ALIGNMENT at most. */
static uint32_t alignment_of(const CudaDevice *d, const AbiBuffer *b, const Product *p,
                             const int64_t *batch_strides) {
  uint64_t bits = ALIGNMENT | base_bits(d, b);
  for (uint32_t i = 0; i < p->shape.nbatch; i++)
    bits |= (uint64_t)batch_strides[i] * abi_dtype_bytes(p->shape.dtype);
  return (uint32_t)(bits & -bits);
}

/* --- preparing: cuBLASLt ------------------------------------------------------------------------
 */

static LtStatus make_layout(const CudaDevice *d, const Product *p, const Matrix *m,
                            const int64_t *batch_strides, LtMatrixLayout **layout) {
  const CudaBlasLt *lt = &d->products->lt;
  LtStatus s = lt->layout_create(layout, library_type(p->shape.dtype), (uint64_t)m->rows,
                                 (uint64_t)m->columns, m->ld);
  if (s || p->batch_dim < 0) return s;
  int32_t count = (int32_t)p->shape.batch[p->batch_dim];
  s = lt->layout_set(*layout, LT_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (s) return s;
  return lt->layout_set(*layout, LT_LAYOUT_STRIDED_BATCH_OFFSET, &batch_strides[p->batch_dim],
                        sizeof *batch_strides);
}

static LtStatus set_operation(const CudaDevice *d, Product *p, bool first, bool second) {
  const CudaBlasLt *lt = &d->products->lt;
  int32_t ta = first ? LT_OP_T : LT_OP_N, tb = second ? LT_OP_T : LT_OP_N;
  bool wide = p->shape.dtype == ABI_F64;
  LtStatus s = lt->matmul_create(&p->desc, wide ? LT_COMPUTE_64F : LT_COMPUTE_32F,
                                 wide ? LT_R_64F : LT_R_32F);
  if (!s) s = lt->matmul_set(p->desc, LT_MATMUL_TRANSA, &ta, sizeof ta);
  if (!s) s = lt->matmul_set(p->desc, LT_MATMUL_TRANSB, &tb, sizeof tb);
  return s;
}

static LtStatus set_epilogue(const CudaDevice *d, Product *p, CUdeviceptr bias) {
  const CudaBlasLt *lt = &d->products->lt;
  uint32_t epilogue = 0;
  if (p->bias_in) epilogue |= LT_EPILOGUE_BIAS;
  if (p->activation_in) epilogue |= LT_EPILOGUE_GELU;
  if (!epilogue) epilogue = LT_EPILOGUE_DEFAULT;
  LtStatus s = lt->matmul_set(p->desc, LT_MATMUL_EPILOGUE, &epilogue, sizeof epilogue);
  p->bias_set = bias;
  if (!s && p->bias_in) s = lt->matmul_set(p->desc, LT_MATMUL_BIAS_POINTER, &bias, sizeof bias);
  return s;
}

static LtStatus set_alignments(const CudaDevice *d, uint32_t action, const Product *p) {
  const CudaBlasLt *lt = &d->products->lt;
  const MatmulShape *s = &p->shape;
  const AbiBuffer *a = buffer_of(d, action, p->swapped ? 1 : 0);
  const AbiBuffer *b = buffer_of(d, action, p->swapped ? 0 : 1);
  const AbiBuffer *addend = buffer_of(d, action, 2 + s->bias);
  const AbiBuffer *out = buffer_of(d, action, dtm_cuda_action(d, action)->nbuffers - 1);
  uint32_t of_out = alignment_of(d, out, p, s->out_batch);
  uint32_t of_addend = p->addend_in ? alignment_of(d, addend, p, s->out_batch) : of_out;
  const uint32_t value[] = {alignment_of(d, b, p, s->b_batch), alignment_of(d, a, p, s->a_batch),
                            of_addend, of_out};
  LtStatus status = LT_SUCCESS;
  for (int i = 0; i < 4 && !status; i++)
    status = lt->preference_set(d->products->preference,
                                (LtPreferenceAttribute)(LT_PREF_MIN_ALIGNMENT_A_BYTES + i),
                                &value[i], sizeof value[i]);
  return status;
}

/* The first algorithm that is proposed; false when there is none. */
static bool find_algorithm(CudaDevice *d, uint32_t action, Product *p, CUdeviceptr bias) {
  struct CudaProducts *shared = d->products;
  LtHeuristic found[CANDIDATES];
  int count = 0;
  if (set_epilogue(d, p, bias) || set_alignments(d, action, p)) return false;
  if (shared->lt.heuristic(shared->handle, p->desc, p->first, p->second, p->out, p->out,
                           shared->preference, CANDIDATES, found, &count))
    return false;
  for (int i = 0; i < count; i++) {
    if (found[i].state || found[i].workspace > WORKSPACE) continue;
    p->algo = found[i].algo;
    p->workspace = found[i].workspace;
    return true;
  }
  return false;
}

/* What the library may do on the way out. A bias goes along its rows, our columns; the search is
 * told nothing of its address, and proposes algorithms that take 16 bytes of it at a time. */
static void choose_epilogue(const CudaDevice *d, uint32_t action, Product *p) {
  enum { BIAS_ALIGNMENT = 16 };
  const MatmulShape *s = &p->shape;
  bool narrow = s->dtype == ABI_BF16 || s->dtype == ABI_F16;
  p->bias_in =
      s->bias && !p->swapped && base_bits(d, buffer_of(d, action, 2)) % BIAS_ALIGNMENT == 0;
  p->activation_in = s->activation == ABI_ACT_GELU_TANH && narrow && (p->bias_in || !s->bias);
  p->addend_in = s->addend && !s->activation;
}

/* With as much of the way out as the library does: all, none of the functions, nothing. 0 with
 * p->library set or not, or the code to exit with. */
static int prepare_library(CudaDevice *d, uint32_t action, Product *p, CUdeviceptr bias) {
  const MatmulShape *s = &p->shape;
  Matrix first, second, out;
  if (!in_library(s->dtype) || s->k == 0 || !find_matrix(s->n, s->k, s->b_n, s->b_k, &first) ||
      !find_matrix(s->k, s->m, s->a_k, s->a_m, &second) ||
      !find_matrix(s->n, s->m, s->out_n, s->out_m, &out) || out.transposed)
    return 0;
  int status = open_library(d);
  if (status) return status;
  p->batch_dim = -1;
  for (uint32_t i = 0; i < s->nbatch; i++)
    if (s->batch[i] <= MAX_BATCH && (p->batch_dim < 0 || s->batch[i] > s->batch[p->batch_dim]))
      p->batch_dim = (int)i;
  p->calls = entries(s) / (p->batch_dim < 0 ? 1 : s->batch[p->batch_dim]);
  if (p->calls > MAX_CALLS) return 0;
  LtStatus e = set_operation(d, p, first.transposed, second.transposed);
  if (!e) e = make_layout(d, p, &first, s->b_batch, &p->first);
  if (!e) e = make_layout(d, p, &second, s->a_batch, &p->second);
  if (!e) e = make_layout(d, p, &out, s->out_batch, &p->out);
  if (e) return failed(d, e, "describe a product");
  choose_epilogue(d, action, p);
  p->library = find_algorithm(d, action, p, bias);
  if (!p->library && (p->bias_in || p->activation_in)) {
    p->bias_in = p->activation_in = false;
    p->library = find_algorithm(d, action, p, bias);
  }
  if (!p->library) p->bias_in = p->activation_in = p->addend_in = false;
  return 0;
}

/* --- preparing: our kernels ---------------------------------------------------------------------
 */

/* Whether 16 bytes of columns are always at such an address. */
static bool wide_columns(const CudaDevice *d, uint32_t action, const Product *p) {
  const MatmulShape *s = &p->shape;
  const AbiAction *a = dtm_cuda_action(d, action);
  int64_t each = 16 / (int64_t)abi_dtype_bytes(s->dtype);
  bool wide = s->out_n == 1 && s->n % each == 0 && (s->m == 1 || s->out_m % each == 0);
  for (uint32_t i = 2; i < a->nbuffers; i++)
    wide = wide && alignment_of(d, buffer_of(d, action, i), p, s->out_batch) >= 16;
  return wide;
}

static int prepare_kernels(CudaDevice *d, uint32_t action, Product *p) {
  const MatmulShape *s = &p->shape;
  AbiCudaInstance instances[ABI_CUDA_MAX_INSTANCES];
  char name[96];
  uint32_t n = abi_cuda_instances(d->base.image, dtm_cuda_action(d, action), instances);
  if (!n) return dtm_rt_fail(d->base.comm, RT_INTERNAL, "products have no code");
  CUfunction *f = p->library ? &p->finish_kernel : &p->multiply_kernel;
  snprintf(name, sizeof name, "%s%s", p->library ? "matmul_finish" : "matmul", instances[0].suffix);
  int status = dtm_cuda_function(d, name, f);
  if (status) return status;
  p->dims = (struct MatmulDims){.m = s->m,
                                .n = s->n,
                                .k = s->k,
                                .a_m = s->a_m,
                                .a_k = s->a_k,
                                .b_k = s->b_k,
                                .b_n = s->b_n,
                                .out_m = s->out_m,
                                .out_n = s->out_n,
                                .count = entries(s),
                                .nbatch = (int32_t)s->nbatch,
                                .activation = p->activation_in ? 0 : (int32_t)s->activation,
                                .bias_rows = p->swapped,
                                .wide = wide_columns(d, action, p)};
  memcpy(p->dims.batch, s->batch, sizeof s->batch);
  memcpy(p->dims.a_batch, s->a_batch, sizeof s->a_batch);
  memcpy(p->dims.b_batch, s->b_batch, sizeof s->b_batch);
  memcpy(p->dims.out_batch, s->out_batch, sizeof s->out_batch);
  return 0;
}

static void reserve(CudaDevice *d, Product *p) {
  const MatmulShape *s = &p->shape;
  size_t need = p->library ? (p->workspace + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
  p->aside_at = need;
  if (p->aside) need += (size_t)out_span(s) * abi_dtype_bytes(s->dtype);
  if (need > d->scratch_bytes) d->scratch_bytes = need;
}

int dtm_cuda_matmul_prepare(CudaDevice *d, uint32_t action, void **state) {
  Product *p = calloc(1, sizeof *p);
  *state = p;
  if (!p) return dtm_rt_fail(d->base.comm, RT_DEVICE, "out of memory");
  MatmulShape *s = &p->shape;
  *s = dtm_device_matmul_shape(&d->base, dtm_cuda_action(d, action));
  p->empty = s->m == 0 || s->n == 0 || entries(s) == 0;
  if (p->empty) return 0;
  dtm_device_matmul_simplify(s);
  split_batch(s);
  p->swapped = s->out_n != 1 && s->out_m == 1;
  if (p->swapped) transpose(s);
  int status = prepare_library(d, action, p, find_operands(d, action, p).bias);
  if (status) return status;
  p->finish = p->library && ((s->bias && !p->bias_in) || (s->activation && !p->activation_in) ||
                             (s->addend && !p->addend_in));
  p->aside = p->finish && s->addend && !p->addend_in && s->in_place;
  if (p->finish || !p->library) status = prepare_kernels(d, action, p);
  reserve(d, p);
  return status;
}

/* --- running ------------------------------------------------------------------------------------
 */

static int multiply_library(CudaDevice *d, Product *p, const Operands *o, CUdeviceptr out) {
  static const float one = 1, zero = 0;
  static const double one64 = 1, zero64 = 0;
  const MatmulShape *s = &p->shape;
  const CudaBlasLt *lt = &d->products->lt;
  bool wide = s->dtype == ABI_F64;
  const void *alpha = wide ? (const void *)&one64 : &one,
             *nothing = wide ? (const void *)&zero64 : &zero;
  const void *beta = p->addend_in ? alpha : nothing;
  size_t width = abi_dtype_bytes(s->dtype);
  LtStatus e = LT_SUCCESS;
  if (p->bias_in && p->bias_set != o->bias) e = set_epilogue(d, p, o->bias);
  for (int64_t i = 0; i < p->calls && !e; i++) {
    Offsets at = entry_offsets(s, p->batch_dim, i);
    CUdeviceptr to = out + (uint64_t)at.out * width;
    CUdeviceptr addend = p->addend_in ? o->addend + (uint64_t)at.out * width : to;
    e = lt->matmul(d->products->handle, p->desc, alpha,
                   (const void *)(uintptr_t)(o->b + (uint64_t)at.b * width), p->first,
                   (const void *)(uintptr_t)(o->a + (uint64_t)at.a * width), p->second, beta,
                   (const void *)(uintptr_t)addend, p->out, (void *)(uintptr_t)to, p->out, &p->algo,
                   (void *)(uintptr_t)d->scratch, p->workspace, d->compute);
  }
  return e ? failed(d, e, "multiply") : 0;
}

static unsigned grid_of(int64_t blocks) {
  return (unsigned)(blocks < MAX_GRID ? blocks : MAX_GRID);
}

/* out = act(product + bias) + addend */
static int finish(CudaDevice *d, uint32_t action, Product *p, const Operands *o,
                  CUdeviceptr product) {
  const MatmulShape *s = &p->shape;
  CUdeviceptr bias = p->bias_in ? 0 : o->bias, addend = p->addend_in ? 0 : o->addend, out = o->out;
  int64_t each = p->dims.wide ? 16 / (int64_t)abi_dtype_bytes(s->dtype) : 1;
  int64_t blocks = dtm_cuda_ceil_div(s->m * s->n / each * p->dims.count, LIBRARY_THREADS);
  void *params[] = {&product, &bias, &addend, &out, &p->dims};
  return dtm_cuda_launch(d, d->compute, p->finish_kernel, grid_of(blocks), LIBRARY_THREADS, 0,
                         params, action);
}

static int multiply_own(CudaDevice *d, uint32_t action, Product *p, const Operands *operands) {
  const MatmulShape *s = &p->shape;
  Operands o = *operands;
  int64_t tiles =
      dtm_cuda_ceil_div(s->m, PRODUCT_TILE) * dtm_cuda_ceil_div(s->n, PRODUCT_TILE) * p->dims.count;
  void *params[] = {&o.a, &o.b, &o.bias, &o.addend, &o.out, &p->dims};
  return dtm_cuda_launch(d, d->compute, p->multiply_kernel, grid_of(tiles), LIBRARY_THREADS, 0,
                         params, action);
}

int dtm_cuda_matmul_run(CudaDevice *d, uint32_t action, void *state) {
  Product *p = state;
  if (p->empty) return 0;
  Operands o = find_operands(d, action, p);
  if (!p->library) return multiply_own(d, action, p, &o);
  CUdeviceptr product = p->aside ? d->scratch + p->aside_at : o.out;
  int status = multiply_library(d, p, &o, product);
  return status || !p->finish ? status : finish(d, action, p, &o, product);
}

void dtm_cuda_matmul_free(CudaDevice *d, void *state) {
  Product *p = state;
  if (p->desc) d->products->lt.matmul_destroy(p->desc);
  if (p->first) d->products->lt.layout_destroy(p->first);
  if (p->second) d->products->lt.layout_destroy(p->second);
  if (p->out) d->products->lt.layout_destroy(p->out);
  free(p);
}
