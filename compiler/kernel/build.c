/* Building kernels: see build.h.
 *
 * Pure instructions are shared with an equal one that is visible: of the same block, or of an
 * earlier SCALAR block (loop values of an earlier block are gone). Kernels are small, so the search
 * is a scan. */
#include "kernel/build.h"

#include <math.h>
#include <string.h>

#include "ops/scalar.h"

void kb_init(KBuilder *b, Arena *arena) {
  *b = (KBuilder){.arena = arena, .chunk_rows = KINT_ZERO, .nchunks = KINT_ZERO};
}

void kb_dim(KBuilder *b, KDimRole role, KInt extent) {
  b->dims[b->ndims++] = (KDim){.role = (uint8_t)role, .extent = extent};
}

KInt kb_int(KBuilder *b) {
  return (KInt)b->nints++;
}

uint32_t kb_buf(KBuilder *b, KBufKind kind, DType storage, bool written) {
  VEC_PUSH(b->arena, &b->bufs,
           (KBuf){.kind = (uint8_t)kind, .dtype = (uint8_t)storage, .written = written});
  VEC_PUSH(b->arena, &b->buf_names, NULL);
  return b->bufs.len - 1;
}

void kb_block(KBuilder *b, bool loop) {
  if (b->blocks.len && b->blocks.data[b->blocks.len - 1].count == 0) b->blocks.len--;
  VEC_PUSH(b->arena, &b->blocks, (KBlock){.loop = loop, .first = b->instrs.len});
}

KAccess kb_access(uint32_t buf) {
  KAccess a = {.buf = buf, .offset = KINT_ZERO};
  for (int d = 0; d < KERNEL_MAX_DIMS; d++) a.stride[d] = KINT_ZERO;
  return a;
}

DType kb_type(const KBuilder *b, KRef ref) {
  return (DType)b->instrs.data[ref - 1].type;
}

/* A zeroed instruction, so that bytes decide equality. */
static KInstr blank(KKind kind, DType type) {
  KInstr in;
  memset(&in, 0, sizeof in);
  in.kind = (uint8_t)kind;
  in.type = (uint8_t)type;
  in.access = kb_access(0);
  return in;
}

static KRef push(KBuilder *b, KInstr in) {
  VEC_PUSH(b->arena, &b->instrs, in);
  VEC_PUSH(b->arena, &b->notes, b->at);
  b->blocks.data[b->blocks.len - 1].count++;
  return b->instrs.len;
}

static KRef push_pure(KBuilder *b, KInstr in) {
  for (uint32_t k = b->blocks.len; k-- > 0;) {
    const KBlock *block = &b->blocks.data[k];
    if (block->loop && k + 1 != b->blocks.len) continue;
    for (uint32_t i = block->first; i < block->first + block->count; i++)
      if (memcmp(&b->instrs.data[i], &in, sizeof in) == 0) return i + 1;
  }
  return push(b, in);
}

KRef kb_const(KBuilder *b, DType type, double value) {
  KInstr in = blank(K_CONST, type);
  if (dtype_is_float(type))
    in.imm.f = value;
  else
    in.imm.i = type == DT_BOOL ? value != 0 : (int64_t)value;
  return push_pure(b, in);
}

KRef kb_const_int(KBuilder *b, DType type, int64_t value) {
  KInstr in = blank(K_CONST, type);
  in.imm.i = value;
  return push_pure(b, in);
}

KRef kb_index(KBuilder *b, KAccess access) {
  KInstr in = blank(K_INDEX, DT_I64);
  in.access = access;
  in.access.buf = 0;
  return push_pure(b, in);
}

KRef kb_int_value(KBuilder *b, KInt which) {
  if (which == KINT_ZERO) return kb_const_int(b, DT_I64, 0);
  if (which == KINT_ONE) return kb_const_int(b, DT_I64, 1);
  KAccess a = kb_access(0);
  a.offset = which;
  return kb_index(b, a);
}

/* Loads are shared too: a buffer that is written is never read at another element than the one
 * written (in-place), and the load precedes the store. */
KRef kb_load(KBuilder *b, KAccess access, KRef index, KRef predicate) {
  KInstr in = blank(K_LOAD, kernel_compute_type((DType)b->bufs.data[access.buf].dtype));
  in.access = access;
  in.a = index;
  in.b = predicate;
  return push_pure(b, in);
}

void kb_store(KBuilder *b, KAccess access, KRef value, KRef predicate) {
  KInstr in = blank(K_STORE, kb_type(b, value));
  in.access = access;
  in.a = value;
  in.b = predicate;
  push(b, in);
}

void kb_accum(KBuilder *b, KAccess access, ReduceOp op, KRef value) {
  KInstr in = blank(K_ACCUM, kb_type(b, value));
  in.access = access;
  in.reduce = (uint8_t)op;
  in.a = value;
  push(b, in);
}

KRef kb_reduce(KBuilder *b, ReduceOp op, KRef value) {
  KInstr in = blank(K_REDUCE, kb_type(b, value));
  in.reduce = (uint8_t)op;
  in.a = value;
  return push_pure(b, in);
}

KRef kb_random(KBuilder *b, KRandom kind, KInt instance, KRef index, uint32_t step_buf) {
  KInstr in = blank(K_RANDOM, kind == KRANDOM_NORMAL ? DT_F64 : DT_F32);
  in.random = (uint8_t)kind;
  in.a = index;
  in.access = kb_access(step_buf);
  in.access.offset = instance;
  return push_pure(b, in);
}

/* What is left of a pointwise operator whose operands allow less: x * 1, x + -0 and the like are
 * kept (they change bits of NaN or cost nothing); only casts to the same type vanish. */
static DType point_result(Op op, DType x, DType y) {
  switch (op_info(op)->types) {
  case TR_COMPARE:
  case TR_TEST:
  case TR_BOOL:
    return DT_BOOL;
  case TR_WHERE:
    return y;
  case TR_NONE:
  case TR_NUMBER:
  case TR_FLOAT:
  case TR_INTEGER:
  case TR_CAST:
    break;
  }
  return x;
}

static KRef expand(KBuilder *b, const Scalar *e, const KRef args[3], DType type);

/* A literal has the type of what stands beside it: a comparison's or selection's other operands,
 * else the type of the whole expression. */
static KRef expand_call(KBuilder *b, const Scalar *e, const KRef args[3], DType type) {
  KRef x[3] = {0};
  uint32_t first = e->op == OP_WHERE ? 1 : 0;
  if (first) x[0] = expand(b, e->arg[0], args, type);
  for (uint32_t i = first; i < e->nargs; i++) x[i] = expand(b, e->arg[i], args, type);
  return kb_point(b, e->op, x[0], x[1], x[2]);
}

static KRef expand(KBuilder *b, const Scalar *e, const KRef args[3], DType type) {
  switch (e->kind) {
  case SCALAR_CONST:
    return kb_const(b, type, e->value);
  case SCALAR_ARG:
    return args[e->which];
  case SCALAR_CALL:
    return expand_call(b, e, args, type);
  case SCALAR_NONE:
    break;
  }
  return 0;
}

KRef kb_point(KBuilder *b, Op op, KRef x, KRef y, KRef z) {
  if (*op_info(op)->expr) {
    const Scalar *e = scalar_of(b->arena, op);
    return expand(b, e, (KRef[3]){x, y, z}, kb_type(b, x));
  }
  KInstr in = blank(K_POINT, point_result(op, kb_type(b, x), y ? kb_type(b, y) : DT_NONE));
  in.op = op;
  in.a = x;
  in.b = y;
  in.c = z;
  return push_pure(b, in);
}

KRef kb_cast(KBuilder *b, KRef value, DType to) {
  DType type = kernel_compute_type(to), from = kb_type(b, value);
  if (from == type && to == type) return value;
  KInstr in = blank(K_CAST, type);
  in.via = (uint8_t)(to == type ? DT_NONE : to);
  in.a = value;
  return push_pure(b, in);
}

Kernel *kb_finish(KBuilder *b) {
  Kernel *k = ARENA_NEW(b->arena, Kernel);
  if (b->blocks.len && b->blocks.data[b->blocks.len - 1].count == 0) b->blocks.len--;
  *k = (Kernel){.ndims = b->ndims,
                .nbufs = b->bufs.len,
                .nints = b->nints,
                .ninstrs = b->instrs.len,
                .nblocks = b->blocks.len,
                .bufs = b->bufs.data,
                .instrs = b->instrs.data,
                .blocks = b->blocks.data,
                .notes = b->notes.data,
                .buf_names = b->buf_names.data,
                .chunk_rows = b->chunk_rows,
                .nchunks = b->nchunks,
                .vec_block = b->vec_block,
                .lanes = b->lanes};
  memcpy(k->dims, b->dims, sizeof k->dims);
  return k;
}
