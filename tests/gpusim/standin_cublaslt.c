/* Stands in for cuBLASLt: descriptions of products and their search; what is computed is in
 * blas_product.c. An algorithm is the product it was found for, with the alignment that was
 * promised for each matrix: used for another product, or with pointers less aligned, it is refused.
 * Attributes that programs do not set are not known. */
#include <stdlib.h>
#include <string.h>

#include "gpusim/blas_product.h"

#define X(member, entry, result, parameters) result entry parameters;
CUDA_BLASLT(X)
#undef X

enum {
  BLAS_VERSION = 130000,
  DEFAULT_ALIGNMENT = 256,
  WORKSPACE_ALIGNMENT = 256,
  BIAS_ALIGNMENT = 16,
  MOST_ENTRIES = 65535
};
static const uint64_t MAGIC = 0x6770757369610001u;

struct LtContext {
  int unused;
};

struct LtMatmulDesc {
  LtCompute compute;
  LtType scale;
  int32_t transpose[2];
  uint32_t epilogue;
  const void *bias;
};

struct LtMatrixLayout {
  BlasMatrix matrix;
};

struct LtPreference {
  uint64_t workspace;
  uint32_t reductions;
  uint32_t alignment[4]; /* a, b, c, d */
};

static LtStatus leave(LtStatus status) {
  sim_leave();
  return status;
}

static LtStatus refuse(LtStatus status, const char *text) {
  sim_report("cuBLASLt: %s", text);
  return status;
}

size_t cublasLtGetVersion(void) {
  return BLAS_VERSION;
}

const char *cublasLtGetStatusString(LtStatus status) {
  switch ((int)status) {
  case LT_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case LT_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case BLAS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case BLAS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case LT_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "CUBLAS_STATUS_UNKNOWN";
  }
}

static void *make(size_t bytes, SimHandle kind) {
  void *made = calloc(1, bytes);
  if (!made) abort();
  sim_handle_add(made, kind);
  return made;
}

static LtStatus unmake(void *handle, SimHandle kind) {
  if (!sim_handle_is(handle, kind)) return refuse(LT_INVALID_VALUE, "a handle is freed twice");
  sim_handle_remove(handle);
  free(handle);
  return LT_SUCCESS;
}

LtStatus cublasLtCreate(LtContext **c) {
  sim_enter("cublasLtCreate", NULL);
  if (!sim_current()) return leave((LtStatus)BLAS_NOT_INITIALIZED);
  *c = make(sizeof **c, SIM_BLAS);
  return leave(LT_SUCCESS);
}

LtStatus cublasLtDestroy(LtContext *c) {
  sim_enter("cublasLtDestroy", NULL);
  return leave(unmake(c, SIM_BLAS));
}

/* --- descriptions ------------------------------------------------------------------------------
 */

LtStatus cublasLtMatmulDescCreate(LtMatmulDesc **d, LtCompute compute, LtType scale) {
  sim_enter("cublasLtMatmulDescCreate", NULL);
  bool doubles = compute == LT_COMPUTE_64F;
  if ((compute != LT_COMPUTE_32F && !doubles) || scale != (doubles ? LT_R_64F : LT_R_32F))
    return leave(refuse(LT_INVALID_VALUE, "type of computation or of scale not known"));
  *d = make(sizeof **d, SIM_BLAS_OPERATION);
  (*d)->compute = compute;
  (*d)->scale = scale;
  (*d)->epilogue = LT_EPILOGUE_DEFAULT;
  return leave(LT_SUCCESS);
}

LtStatus cublasLtMatmulDescDestroy(LtMatmulDesc *d) {
  sim_enter("cublasLtMatmulDescDestroy", NULL);
  return leave(unmake(d, SIM_BLAS_OPERATION));
}

/* Copies the value of an attribute of exactly `size` bytes. */
static LtStatus set(void *to, size_t size, const void *value, size_t bytes) {
  if (!value || bytes != size) return refuse(LT_INVALID_VALUE, "an attribute of another size");
  memcpy(to, value, size);
  return LT_SUCCESS;
}

LtStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc *d, LtMatmulAttribute a, const void *value,
                                        size_t bytes) {
  sim_enter("cublasLtMatmulDescSetAttribute", "%d", (int)a);
  if (!sim_handle_is(d, SIM_BLAS_OPERATION)) return leave(LT_INVALID_VALUE);
  LtStatus status;
  switch (a) {
  case LT_MATMUL_TRANSA:
  case LT_MATMUL_TRANSB:
    status = set(&d->transpose[a - LT_MATMUL_TRANSA], 4, value, bytes);
    if (!status && d->transpose[a - LT_MATMUL_TRANSA] >> 1)
      status = refuse(LT_INVALID_VALUE, "a transposition that is not known");
    return leave(status);
  case LT_MATMUL_EPILOGUE:
    status = set(&d->epilogue, 4, value, bytes);
    if (!status && !blas_epilogue_known(d->epilogue))
      status = refuse(LT_INVALID_VALUE, "an epilogue that is not known");
    return leave(status);
  case LT_MATMUL_BIAS_POINTER:
    return leave(set(&d->bias, sizeof d->bias, value, bytes));
  }
  return leave(refuse(LT_INVALID_VALUE, "an attribute of products that is not known"));
}

LtStatus cublasLtMatrixLayoutCreate(LtMatrixLayout **l, LtType type, uint64_t rows, uint64_t cols,
                                    int64_t ld) {
  sim_enter("cublasLtMatrixLayoutCreate", NULL);
  if (!blas_type_bytes(type)) return leave(refuse(LT_INVALID_VALUE, "a type that is not known"));
  if (!rows || !cols || ld < 0 || (uint64_t)ld < rows)
    return leave(refuse(LT_INVALID_VALUE, "a matrix without elements, or with columns that are "
                                          "closer than they are long"));
  *l = make(sizeof **l, SIM_BLAS_LAYOUT);
  (*l)->matrix = (BlasMatrix){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
  return leave(LT_SUCCESS);
}

LtStatus cublasLtMatrixLayoutDestroy(LtMatrixLayout *l) {
  sim_enter("cublasLtMatrixLayoutDestroy", NULL);
  return leave(unmake(l, SIM_BLAS_LAYOUT));
}

LtStatus cublasLtMatrixLayoutSetAttribute(LtMatrixLayout *l, LtLayoutAttribute a, const void *value,
                                          size_t bytes) {
  sim_enter("cublasLtMatrixLayoutSetAttribute", "%d", (int)a);
  if (!sim_handle_is(l, SIM_BLAS_LAYOUT)) return leave(LT_INVALID_VALUE);
  LtStatus status;
  switch (a) {
  case LT_LAYOUT_BATCH_COUNT:
    status = set(&l->matrix.batch, 4, value, bytes);
    if (!status && l->matrix.batch < 1) status = refuse(LT_INVALID_VALUE, "a batch of nothing");
    return leave(status);
  case LT_LAYOUT_STRIDED_BATCH_OFFSET:
    return leave(set(&l->matrix.stride, 8, value, bytes));
  }
  return leave(refuse(LT_INVALID_VALUE, "an attribute of matrices that is not known"));
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference **p) {
  sim_enter("cublasLtMatmulPreferenceCreate", NULL);
  *p = make(sizeof **p, SIM_BLAS_PREFERENCE);
  for (int i = 0; i < 4; i++) (*p)->alignment[i] = DEFAULT_ALIGNMENT;
  return leave(LT_SUCCESS);
}

LtStatus cublasLtMatmulPreferenceDestroy(LtPreference *p) {
  sim_enter("cublasLtMatmulPreferenceDestroy", NULL);
  return leave(unmake(p, SIM_BLAS_PREFERENCE));
}

LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference *p, LtPreferenceAttribute a,
                                              const void *value, size_t bytes) {
  sim_enter("cublasLtMatmulPreferenceSetAttribute", "%d", (int)a);
  if (!sim_handle_is(p, SIM_BLAS_PREFERENCE)) return leave(LT_INVALID_VALUE);
  switch (a) {
  case LT_PREF_MAX_WORKSPACE_BYTES:
    return leave(set(&p->workspace, 8, value, bytes));
  case LT_PREF_REDUCTION_SCHEME_MASK:
    return leave(set(&p->reductions, 4, value, bytes));
  case LT_PREF_MIN_ALIGNMENT_A_BYTES:
  case LT_PREF_MIN_ALIGNMENT_B_BYTES:
  case LT_PREF_MIN_ALIGNMENT_C_BYTES:
  case LT_PREF_MIN_ALIGNMENT_D_BYTES:
    return leave(set(&p->alignment[a - LT_PREF_MIN_ALIGNMENT_A_BYTES], 4, value, bytes));
  }
  return leave(refuse(LT_INVALID_VALUE, "an attribute of the search that is not known"));
}

/* --- products ----------------------------------------------------------------------------------
 */

/* Fills `p` but for its pointers; an error that says why there is no such product. */
static LtStatus describe(BlasProduct *p, const LtMatmulDesc *d, const LtMatrixLayout *a,
                         const LtMatrixLayout *b, const LtMatrixLayout *c,
                         const LtMatrixLayout *out) {
  const LtMatrixLayout *all[] = {a, b, c, out};
  memset(p, 0, sizeof *p); /* with the gaps: it is hashed */
  if (!sim_handle_is(d, SIM_BLAS_OPERATION)) return refuse(LT_INVALID_VALUE, "no description");
  for (int i = 0; i < 4; i++)
    if (!sim_handle_is(all[i], SIM_BLAS_LAYOUT)) return refuse(LT_INVALID_VALUE, "no matrix");
  p->transpose[0] = d->transpose[0];
  p->transpose[1] = d->transpose[1];
  p->epilogue = d->epilogue;
  p->a = a->matrix;
  p->b = b->matrix;
  p->c = c->matrix;
  p->d = out->matrix;
  const char *wrong = blas_product_check(p, d->compute == LT_COMPUTE_64F);
  return wrong ? refuse(LT_NOT_SUPPORTED, wrong) : LT_SUCCESS;
}

static uint64_t hash(const BlasProduct *p) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof *p; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
  return h;
}

/* What GPUSIM_BLAS takes away: "plain" everything behind the product, "none" all. */
static bool is_lacking(const BlasProduct *p) {
  const char *lacks = getenv("GPUSIM_BLAS");
  return lacks && (strcmp(lacks, "none") == 0 ||
                   (strcmp(lacks, "plain") == 0 && p->epilogue != LT_EPILOGUE_DEFAULT));
}

/* One algorithm. The workspace that it asks for depends on sizes, to be none or all of what is
 * offered. */
LtStatus cublasLtMatmulAlgoGetHeuristic(LtContext *context, LtMatmulDesc *d, LtMatrixLayout *la,
                                        LtMatrixLayout *lb, LtMatrixLayout *lc, LtMatrixLayout *ld,
                                        LtPreference *preference, int asked, LtHeuristic *found,
                                        int *count) {
  BlasProduct p;
  sim_enter("cublasLtMatmulAlgoGetHeuristic", NULL);
  if (count) *count = 0;
  if (!sim_handle_is(context, SIM_BLAS) || !sim_handle_is(preference, SIM_BLAS_PREFERENCE) ||
      asked < 1 || !found || !count)
    return leave(refuse(LT_INVALID_VALUE, "a search without what it needs"));
  LtStatus status = describe(&p, d, la, lb, lc, ld);
  if (!status && is_lacking(&p)) status = LT_NOT_SUPPORTED;
  if (status) return leave(status);
  const BlasMatrix *matrix[] = {&p.a, &p.b, &p.c, &p.d};
  uint64_t alignment = 0;
  for (int i = 0; i < 4; i++) {
    if (preference->alignment[i] < blas_type_bytes(matrix[i]->type))
      return leave(refuse(LT_NOT_SUPPORTED, "an alignment below that of the elements"));
    alignment |= (uint64_t)(preference->alignment[i] & 0xffff) << (16 * i);
  }
  memset(found, 0, sizeof *found);
  found->workspace = hash(&p) & 1 ? (size_t)preference->workspace : 0;
  found->algo = (LtAlgo){{MAGIC, hash(&p), alignment, found->workspace}};
  found->waves = 1;
  *count = 1;
  return leave(LT_SUCCESS);
}

static LtStatus check_algo(const BlasProduct *p, const LtAlgo *algo, const void *workspace,
                           size_t bytes) {
  const void *at[] = {p->at_a, p->at_b, p->at_c, p->at_d};
  if (!algo) return refuse(LT_INVALID_VALUE, "no algorithm");
  BlasProduct shape = *p;
  blas_product_forget(&shape);
  if (algo->data[0] != MAGIC || algo->data[1] != hash(&shape))
    return refuse(LT_INVALID_VALUE, "an algorithm that was found for another product");
  for (int i = 0; i < 4; i++) {
    uint64_t alignment = algo->data[2] >> (16 * i) & 0xffff;
    if (alignment && (uintptr_t)at[i] % alignment)
      return refuse(LT_INVALID_VALUE, "a matrix less aligned than the search was told");
  }
  if (p->epilogue & LT_EPILOGUE_BIAS && (uintptr_t)p->bias % BIAS_ALIGNMENT)
    return refuse(LT_INVALID_VALUE, "a bias that is not aligned to 16 bytes, which algorithms take "
                                    "for granted");
  if (bytes < algo->data[3]) return refuse(LT_INVALID_VALUE, "too little workspace");
  if (algo->data[3] && ((uintptr_t)workspace % WORKSPACE_ALIGNMENT ||
                        !sim_memory_on(sim_current(), workspace, algo->data[3])))
    return refuse(LT_INVALID_VALUE, "workspace that is not aligned, or no device memory");
  return LT_SUCCESS;
}

LtStatus cublasLtMatmul(LtContext *context, LtMatmulDesc *d, const void *alpha, const void *a,
                        LtMatrixLayout *la, const void *b, LtMatrixLayout *lb, const void *beta,
                        const void *addend, LtMatrixLayout *lc, void *out, LtMatrixLayout *ld,
                        const LtAlgo *algo, void *workspace, size_t bytes,
                        struct CUstream_st *handle) {
  BlasProduct p;
  sim_enter("cublasLtMatmul", NULL);
  if (!sim_handle_is(context, SIM_BLAS) || !alpha || !beta)
    return leave(refuse(LT_INVALID_VALUE, "no context, or no scales"));
  CUresult error = sim_current() ? sim_current()->sticky : CUDA_ERROR_INVALID_CONTEXT;
  SimStream *stream = error ? NULL : sim_stream(handle, &error);
  if (error) return leave((LtStatus)BLAS_EXECUTION_FAILED);
  LtStatus status = describe(&p, d, la, lb, lc, ld);
  if (status) return leave(status);
  p.at_a = a;
  p.at_b = b;
  p.at_c = addend;
  p.at_d = out;
  p.bias = d->bias;
  bool doubles = d->compute == LT_COMPUTE_64F;
  p.alpha = doubles ? *(const double *)alpha : (double)*(const float *)alpha;
  p.beta = doubles ? *(const double *)beta : (double)*(const float *)beta;
  status = check_algo(&p, algo, workspace, bytes);
  if (status) return leave(status);
  if (p.d.batch > MOST_ENTRIES)
    return leave(refuse(LT_NOT_SUPPORTED, "a batch of more than 65535, which not all algorithms "
                                          "take"));
  const char *wrong = blas_product_check_memory(&p, stream->device);
  if (wrong) return leave(refuse(LT_INVALID_VALUE, wrong));
  sim_trace("product m %llu n %llu k %llu batch %d", (unsigned long long)p.d.rows,
            (unsigned long long)p.d.cols,
            (unsigned long long)(p.transpose[0] ? p.a.rows : p.a.cols), p.d.batch);
  sim_enqueue(stream, blas_op_new(&p, algo->data[3] ? workspace : NULL, algo->data[3]));
  return leave(LT_SUCCESS);
}
