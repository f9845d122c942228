/* Checks what kernel.h promises; every kernel passes here before code is made of it. */
#include "kernel/kernel.h"

typedef struct Check {
  Arena *arena;
  const Kernel *k;
  const char *fault;
} Check;

static void fail(Check *c, uint32_t instr, const char *what) {
  if (!c->fault) c->fault = arena_printf(c->arena, "instruction %%%u: %s", instr + 1, what);
}

static uint32_t block_of(const Kernel *k, uint32_t instr) {
  uint32_t i = 0;
  while (i + 1 < k->nblocks && instr >= k->blocks[i].first + k->blocks[i].count) i++;
  return i;
}

static void check_int(Check *c, uint32_t i, KInt n) {
  if (n < KINT_ONE || n >= (KInt)c->k->nints) fail(c, i, "no such integer");
}

/* An operand is made earlier and still exists: same block, a SCALAR block, or a finished REDUCE. */
static void check_ref(Check *c, uint32_t i, KRef ref) {
  if (!ref) return;
  if (ref > i) {
    fail(c, i, "uses a value that is made later");
    return;
  }
  const KInstr *def = &c->k->instrs[ref - 1];
  uint32_t at = block_of(c->k, i), from = block_of(c->k, ref - 1);
  if (def->kind == K_STORE || def->kind == K_ACCUM) fail(c, i, "uses what has no value");
  if (def->kind == K_REDUCE ? at == from : c->k->blocks[from].loop && at != from)
    fail(c, i,
         def->kind == K_REDUCE ? "uses a reduction before it is complete"
                               : "uses a loop value of another block");
}

static void check_access(Check *c, uint32_t i, const KInstr *in, bool loop) {
  const Kernel *k = c->k;
  if (in->access.buf >= k->nbufs) {
    fail(c, i, "no such buffer");
    return;
  }
  check_int(c, i, in->access.offset);
  for (uint32_t d = 0; d < k->ndims; d++) {
    check_int(c, i, in->access.stride[d]);
    bool vec = k->dims[d].role == KDIM_VEC, block = k->vec_block && in->kind == K_STORE;
    if (!loop && !(vec && (block || k->lanes)) && k->dims[d].role >= KDIM_INNER &&
        in->access.stride[d] != KINT_ZERO)
      fail(c, i, "scalar code depends on a loop dim");
    if (loop && vec && in->kind == K_STORE && in->access.stride[d] == KINT_ZERO)
      fail(c, i, "all elements are stored in one place");
  }
  if (in->kind == K_INDEX || in->kind == K_RANDOM) return;
  const KBuf *b = &k->bufs[in->access.buf];
  bool writes = in->kind == K_STORE || in->kind == K_ACCUM;
  if (writes && !b->written) fail(c, i, "writes a buffer that is read only");
  if (in->type != kernel_compute_type((DType)b->dtype)) fail(c, i, "type is not the buffer's");
  if (in->kind == K_ACCUM && in->type != b->dtype) fail(c, i, "accumulates in a storage type");
}

static DType type_of(const Check *c, KRef ref) {
  return ref ? (DType)c->k->instrs[ref - 1].type : DT_NONE;
}

static void check_point(Check *c, uint32_t i, const KInstr *in) {
  const OpInfo *info = op_info(in->op);
  DType a = type_of(c, in->a), b = type_of(c, in->b), z = type_of(c, in->c);
  if (info->cls != CLASS_POINTWISE || *info->expr || in->op == OP_CAST) {
    fail(c, i, "not a pointwise primitive");
    return;
  }
  uint32_t n = (in->a != 0) + (in->b != 0) + (in->c != 0);
  if (n != info->min_operands) fail(c, i, "wrong number of operands");
  DType want = a;
  bool ok = true;
  switch (info->types) {
  case TR_COMPARE:
    want = DT_BOOL;
    break;
  case TR_TEST:
    want = DT_BOOL;
    ok = dtype_is_float(a);
    break;
  case TR_BOOL:
    want = DT_BOOL;
    ok = a == DT_BOOL;
    break;
  case TR_FLOAT:
    ok = dtype_is_float(a);
    break;
  case TR_INTEGER:
    ok = !dtype_is_float(a);
    break;
  case TR_WHERE:
    want = b;
    ok = a == DT_BOOL && b == z;
    break;
  case TR_NUMBER:
  case TR_CAST:
  case TR_NONE:
    break;
  }
  if (info->types != TR_WHERE && ((in->b && b != a) || (in->c && z != a))) ok = false;
  if (!ok || in->type != want)
    fail(c, i, arena_printf(c->arena, "types of %s do not fit", info->name));
}

static void check_instr(Check *c, uint32_t i) {
  const KInstr *in = &c->k->instrs[i];
  bool loop = c->k->blocks[block_of(c->k, i)].loop;
  check_ref(c, i, in->a);
  check_ref(c, i, in->b);
  check_ref(c, i, in->c);
  if (in->type == DT_NONE || in->type != kernel_compute_type((DType)in->type))
    fail(c, i, "not a type to compute in");
  if (c->fault) return;
  switch ((KKind)in->kind) {
  case K_NONE:
    fail(c, i, "no instruction");
    break;
  case K_CONST:
    break;
  case K_INDEX:
    check_access(c, i, in, loop);
    break;
  case K_LOAD:
    check_access(c, i, in, loop);
    if (in->a && type_of(c, in->a) != DT_I64) fail(c, i, "index is not i64");
    if (in->b && type_of(c, in->b) != DT_BOOL) fail(c, i, "predicate is not bool");
    break;
  case K_POINT:
    check_point(c, i, in);
    break;
  case K_CAST:
    if (in->via && kernel_compute_type((DType)in->via) != in->type)
      fail(c, i, "rounds to a type held otherwise");
    break;
  case K_REDUCE:
    if (!loop) fail(c, i, "reduction outside of a loop");
    if (in->type != type_of(c, in->a)) fail(c, i, "reduction changes the type");
    break;
  case K_STORE:
    check_access(c, i, in, loop);
    if (in->type != type_of(c, in->a)) fail(c, i, "stores another type");
    if (in->b && type_of(c, in->b) != DT_BOOL) fail(c, i, "predicate is not bool");
    break;
  case K_ACCUM:
    check_access(c, i, in, loop);
    if (in->type != type_of(c, in->a)) fail(c, i, "accumulates another type");
    if (c->k->chunk_rows == KINT_ZERO) fail(c, i, "accumulates without rows");
    break;
  case K_RANDOM:
    check_access(c, i, in, loop);
    if (type_of(c, in->a) != DT_I64) fail(c, i, "counter is not i64");
    if (!c->fault && c->k->bufs[in->access.buf].kind != KBUF_STEP)
      fail(c, i, "key is not in the step block");
    break;
  }
}

/* Where a vector dim is cut in blocks, what one block reduces to is not yet the whole: its place
 * must depend on the block. With lanes every element has a reduction of its own. */
static void check_block_totals(Check *c, uint32_t vec) {
  const Kernel *k = c->k;
  bool reduces = false;
  for (uint32_t i = 0; i < k->ninstrs; i++) reduces = reduces || k->instrs[i].kind == K_REDUCE;
  for (uint32_t i = 0; reduces && i < k->ninstrs; i++)
    if (k->instrs[i].kind == K_STORE && k->instrs[i].access.stride[vec] == KINT_ZERO)
      fail(c, i, "every block stores the same element");
}

const char *kernel_verify(Arena *arena, const Kernel *k) {
  Check c = {.arena = arena, .k = k};
  uint32_t next = 0, vecs = 0, rows = 0, vec = 0;
  for (uint32_t d = 0; d < k->ndims; d++) {
    if (d && k->dims[d].role < k->dims[d - 1].role) return "dims are not ordered by role";
    vecs += k->dims[d].role == KDIM_VEC;
    if (k->dims[d].role == KDIM_VEC) vec = d;
    rows += k->dims[d].role == KDIM_ROW;
  }
  if (vecs > 1) return "more than one vector dim";
  if ((rows > 0) != (k->chunk_rows != KINT_ZERO)) return "rows without chunks, or the reverse";
  if (rows && k->vec_block) return "rows and vector blocks at once";
  if (k->lanes && (!k->vec_block || !vecs)) return "lanes without strips of a vector dim";
  if (k->lanes && k->vec_block % kernel_lanes(k)) return "strips that are no whole vectors";
  for (uint32_t i = 0; i < k->nblocks; i++) {
    if (k->blocks[i].first != next) return "blocks do not follow one another";
    if (k->blocks[i].loop && !vecs) return "a loop without a vector dim";
    next += k->blocks[i].count;
  }
  if (next != k->ninstrs) return "instructions outside of blocks";
  for (uint32_t i = 0; i < k->ninstrs && !c.fault; i++) check_instr(&c, i);
  if (k->vec_block) check_block_totals(&c, vec);
  return c.fault;
}
