/* Bytes and arithmetic of one generated kernel, counted in its loop IR: see work.h. */
#include "report/work.h"

#include "types/dtype.h"

/* Elements of one buffer that the kernel reads before it writes any, and writes. */
typedef struct Touched {
  double read, written;
  bool stored; /* by an earlier instruction */
} Touched;

static int64_t value_of(const int64_t *ints, KInt i) {
  return i == KINT_ZERO ? 0 : i == KINT_ONE ? 1 : ints[i];
}

static bool is_around(const Kernel *k, const KBlock *b, uint32_t d) {
  if (b->loop) return true;
  if (k->dims[d].role == KDIM_INNER) return false;
  return k->dims[d].role != KDIM_VEC || k->lanes;
}

/* Pieces of the vector dim that SCALAR code runs once for each. */
static double pieces(const Kernel *k, const int64_t *ints) {
  if (k->lanes || !k->vec_block || !k->ndims || k->dims[k->ndims - 1].role != KDIM_VEC) return 1;
  int64_t n = value_of(ints, k->dims[k->ndims - 1].extent);
  return (double)((n + k->vec_block - 1) / k->vec_block);
}

/* How often an instruction of the block runs. */
static double trips(const Kernel *k, const int64_t *ints, const KBlock *b) {
  double n = b->loop ? 1 : pieces(k, ints);
  for (uint32_t d = 0; d < k->ndims; d++)
    if (is_around(k, b, d)) n *= (double)value_of(ints, k->dims[d].extent);
  return n;
}

/* Distinct elements that an access walks over, in one run through the block's loops. */
static double elements(const Kernel *k, const int64_t *ints, const KBlock *b, const KInstr *in) {
  double n = 1;
  for (uint32_t d = 0; d < k->ndims; d++) {
    bool piece = !b->loop && k->dims[d].role == KDIM_VEC && !k->lanes;
    if (in->access.stride[d] == KINT_ZERO) continue;
    if (in->kind == K_ACCUM && k->dims[d].role == KDIM_ROW) continue; /* counted by chunks */
    if (piece)
      n *= pieces(k, ints);
    else if (is_around(k, b, d))
      n *= (double)value_of(ints, k->dims[d].extent);
  }
  if (in->kind == K_ACCUM && k->nchunks != KINT_ZERO) n *= (double)value_of(ints, k->nchunks);
  return n;
}

static bool is_operation(const Kernel *k, const KInstr *in) {
  if (in->kind == K_REDUCE || in->kind == K_ACCUM) return dtype_is_float((DType)in->type);
  if (in->kind != K_POINT || in->op == OP_WHERE) return false;
  KRef operand = in->a; /* of a comparison the result is bool */
  return dtype_is_float((DType)in->type) ||
         (operand && dtype_is_float((DType)k->instrs[operand - 1].type));
}

static void touch(const Kernel *k, const int64_t *ints, const KBlock *b, const KInstr *in,
                  Touched *buffers, Work *w) {
  bool gathers = in->kind == K_LOAD && in->a;
  double n = gathers ? trips(k, ints, b) : elements(k, ints, b, in);
  double width = (double)dtype_bytes((DType)k->bufs[in->access.buf].dtype);
  Touched *t = &buffers[in->access.buf];
  w->moved += n * width;
  if (in->kind == K_LOAD && !t->stored && n > t->read) t->read = n;
  if (in->kind == K_LOAD) return;
  t->stored = true;
  if (n > t->written) t->written = n;
}

Work work_of_kernel(const Kernel *k, const int64_t *ints, const bool *passing) {
  enum { MOST = 512 };
  Touched buffers[MOST] = {{0}};
  Work w = {0};
  if (k->nbufs > MOST) return w;
  for (uint32_t i = 0; i < k->nblocks; i++) {
    const KBlock *b = &k->blocks[i];
    for (uint32_t j = b->first; j < b->first + b->count; j++) {
      const KInstr *in = &k->instrs[j];
      bool memory = in->kind == K_LOAD || in->kind == K_STORE || in->kind == K_ACCUM;
      if (memory && k->bufs[in->access.buf].kind == KBUF_TENSOR) touch(k, ints, b, in, buffers, &w);
      if (is_operation(k, in)) w.flops += trips(k, ints, b);
    }
  }
  for (uint32_t i = 0; i < k->nbufs; i++)
    if (!passing || !passing[i])
      w.least +=
          (buffers[i].read + buffers[i].written) * (double)dtype_bytes((DType)k->bufs[i].dtype);
  return w;
}
