/* The blocks of a kernel: scalar code, and loops over the inner dims and the vector dim.
 *
 * Accumulators are stack slots that SROA turns into registers. Values that do not vary along the
 * vector dim are computed once, before the vector loop. With lanes (kernel.h) the inner loops lie
 * around the vectors of a strip, and what one block leaves for others lies on the stack, a vector
 * for each of the strip: rows are read in pieces as wide as the strip.
 */
#include "codegen/llvm_emit.h"

#include <string.h>

typedef LLVMValueRef V;

LLVMBasicBlockRef ll_new_block(KernelEmitter *ke, const char *name) {
  return LLVMAppendBasicBlockInContext(ke->e->context, ke->function, name);
}

/* for index = lo; index < hi; index += step. Emission goes on in the body. */
Loop ll_loop_begin(KernelEmitter *ke, V lo, V hi, V step, const char *name) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), body;
  Loop l = {.header = ll_new_block(ke, name), .step = step};
  body = ll_new_block(ke, "body");
  l.exit = ll_new_block(ke, "done");
  LLVMBuildBr(b, l.header);
  LLVMPositionBuilderAtEnd(b, l.header);
  l.index = LLVMBuildPhi(b, ll_int(ke->e, 64, 1), "");
  LLVMAddIncoming(l.index, &lo, &before, 1);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, l.index, hi, ""), body, l.exit);
  LLVMPositionBuilderAtEnd(b, body);
  return l;
}

void ll_loop_end(KernelEmitter *ke, Loop *l) {
  LLVMBuilderRef b = ke->e->builder;
  V next = LLVMBuildAdd(b, l->index, l->step, "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(b);
  LLVMAddIncoming(l->index, &next, &latch, 1);
  LLVMBuildBr(b, l->header);
  LLVMPositionBuilderAtEnd(b, l->exit);
}

/* if cond { ... }: returns the block after it. */
static LLVMBasicBlockRef if_begin(KernelEmitter *ke, V cond) {
  LLVMBasicBlockRef then = ll_new_block(ke, "then"), after = ll_new_block(ke, "after");
  LLVMBuildCondBr(ke->e->builder, cond, then, after);
  LLVMPositionBuilderAtEnd(ke->e->builder, then);
  return after;
}

static void if_end(KernelEmitter *ke, LLVMBasicBlockRef after) {
  LLVMBuildBr(ke->e->builder, after);
  LLVMPositionBuilderAtEnd(ke->e->builder, after);
}

V ll_extent(KernelEmitter *ke, uint32_t d) {
  return ll_kint(ke, ke->k->dims[d].extent);
}

/* --- instructions ---- */

static bool has_value(const KInstr *in) {
  return in->kind != K_STORE && in->kind != K_ACCUM;
}

static bool ref_uniform(const KernelEmitter *ke, KRef ref, const KBlock *block) {
  if (!ref) return true;
  uint32_t i = ref - 1;
  if (ke->k->lanes) return ke->uniform[i];
  return i < block->first || ke->k->instrs[i].kind == K_REDUCE || ke->uniform[i];
}

static void find_uniform(KernelEmitter *ke, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &ke->k->instrs[i];
    bool u = has_value(in) && in->kind != K_REDUCE && ref_uniform(ke, in->a, block) &&
             ref_uniform(ke, in->b, block) && ref_uniform(ke, in->c, block);
    if (in->kind == K_LOAD || in->kind == K_INDEX) u = u && in->access.stride[ke->vec] == KINT_ZERO;
    ke->uniform[i] = u;
  }
}

/* With lanes: where a value that outlives its block lies for the vector that is being emitted. */
static V kept_place(KernelEmitter *ke, uint32_t i) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMTypeRef type = ll_type(ke->e, (DType)ke->k->instrs[i].type, ke->lanes);
  V at = LLVMBuildSub(b, ke->index[ke->vec], ke->strip, "");
  at = LLVMBuildUDiv(b, at, ll_i64(ke->e, ke->lanes), "");
  return LLVMBuildGEP2(b, type, ke->lane_sum[i], &at, 1, "");
}

static V operand(KernelEmitter *ke, KRef ref) {
  if (!ref) return NULL;
  const KInstr *def = &ke->k->instrs[ref - 1];
  if (ke->k->lanes && !ke->value[ref - 1])
    return LLVMBuildLoad2(ke->e->builder, ll_type(ke->e, (DType)def->type, ke->lanes),
                          kept_place(ke, ref - 1), "");
  if (def->kind != K_REDUCE) return ke->value[ref - 1];
  return LLVMBuildLoad2(ke->e->builder, ll_element(ke->e, (DType)def->type), ke->total[ref - 1],
                        "");
}

static V wide_operand(KernelEmitter *ke, KRef ref) {
  V v = operand(ke, ref);
  return v ? ll_splat(ke->e, v, ke->lanes) : NULL;
}

static DType type_of(const KernelEmitter *ke, KRef ref) {
  return ref ? (DType)ke->k->instrs[ref - 1].type : DT_NONE;
}

static V emit_const(KernelEmitter *ke, const KInstr *in) {
  LLVMTypeRef t = ll_element(ke->e, (DType)in->type);
  return dtype_is_float((DType)in->type) ? ll_const_f(t, in->imm.f) : ll_const_i(t, in->imm.i);
}

static void emit_reduce(KernelEmitter *ke, uint32_t i, const KInstr *in) {
  LLVMBuilderRef b = ke->e->builder;
  ReduceOp op = (ReduceOp)in->reduce;
  DType type = (DType)in->type;
  V v = wide_operand(ke, in->a), place = ke->lane_sum[i];
  if (ke->k->lanes) /* lanes out of range have a sum of their own, which nobody reads */
    place = kept_place(ke, i);
  else
    v = ll_select(ke->e, ke->mask, v, ll_neutral(ke->e, op, type, ke->lanes));
  V old = LLVMBuildLoad2(b, ll_type(ke->e, type, ke->lanes), place, "");
  LLVMBuildStore(b, ll_combine(ke->e, op, type, old, v), place);
}

/* Within an accumulator's address the first ROW dim counts chunks. */
void ll_rows_to_chunk(KernelEmitter *ke, V saved[KERNEL_MAX_DIMS]) {
  bool first = true;
  memcpy(saved, ke->index, sizeof ke->index);
  for (uint32_t d = 0; d < ke->k->ndims; d++) {
    if (ke->k->dims[d].role != KDIM_ROW) continue;
    ke->index[d] = first ? ke->chunk : NULL;
    first = false;
  }
}

static void emit_accum(KernelEmitter *ke, const KInstr *in) {
  V saved[KERNEL_MAX_DIMS];
  ll_rows_to_chunk(ke, saved);
  KInstr memory = {.kind = K_LOAD, .type = in->type, .access = in->access};
  V old = ll_splat(ke->e, ll_load(ke, &memory, NULL, NULL), ke->lanes);
  V now = ll_combine(ke->e, (ReduceOp)in->reduce, (DType)in->type, old, wide_operand(ke, in->a));
  ll_store(ke, &in->access, (DType)in->type, now, NULL);
  memcpy(ke->index, saved, sizeof ke->index);
}

static V emit_random(KernelEmitter *ke, const KInstr *in) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMTypeRef i64 = ll_int(ke->e, 64, 1);
  V one = ll_i64(ke->e, 1), block = ke->bufs[in->access.buf];
  V seed = LLVMBuildLoad2(b, i64, block, "");
  V step = LLVMBuildLoad2(b, i64, LLVMBuildGEP2(b, i64, block, &one, 1, ""), "");
  return ll_random(ke->e, (KRandom)in->random, seed, ll_kint(ke, in->access.offset), step,
                   operand(ke, in->a));
}

/* Lanes of an instruction: 1 where all its operands are single. */
static V emit_point(KernelEmitter *ke, const KInstr *in) {
  V x[3] = {operand(ke, in->a), operand(ke, in->b), operand(ke, in->c)};
  uint32_t lanes = 1;
  for (int i = 0; i < 3; i++)
    if (x[i] && ll_lanes(x[i]) > lanes) lanes = ll_lanes(x[i]);
  for (int i = 0; i < 3; i++)
    if (x[i]) x[i] = ll_splat(ke->e, x[i], lanes);
  return ll_point(ke->e, in, type_of(ke, in->a), x[0], x[1], x[2]);
}

static V emit_cast(KernelEmitter *ke, const KInstr *in) {
  DType to = in->via ? (DType)in->via : (DType)in->type;
  return ll_cast(ke->e, operand(ke, in->a), type_of(ke, in->a), to);
}

static void emit_instr(KernelEmitter *ke, uint32_t i) {
  const KInstr *in = &ke->k->instrs[i];
  switch ((KKind)in->kind) {
  case K_NONE:
    break;
  case K_CONST:
    ke->value[i] = emit_const(ke, in);
    break;
  case K_INDEX:
    ke->value[i] = ll_indices(ke, &in->access);
    break;
  case K_LOAD: {
    V index = operand(ke, in->a);
    ke->value[i] = ll_load(ke, in, index, operand(ke, in->b));
    break;
  }
  case K_POINT:
    ke->value[i] = emit_point(ke, in);
    break;
  case K_CAST:
    ke->value[i] = emit_cast(ke, in);
    break;
  case K_REDUCE:
    emit_reduce(ke, i, in);
    break;
  case K_STORE: {
    V value = operand(ke, in->a);
    ll_store(ke, &in->access, (DType)ke->k->bufs[in->access.buf].dtype, value, operand(ke, in->b));
    break;
  }
  case K_ACCUM:
    emit_accum(ke, in);
    break;
  case K_RANDOM:
    ke->value[i] = emit_random(ke, in);
    break;
  }
}

/* if whole { } else { }: begins the first half; `other` gets the block of the second. */
static LLVMBasicBlockRef split_begin(KernelEmitter *ke, V whole, LLVMBasicBlockRef *other) {
  LLVMBasicBlockRef yes = ll_new_block(ke, "whole"), join = ll_new_block(ke, "joined");
  *other = ll_new_block(ke, "partial");
  LLVMBuildCondBr(ke->e->builder, whole, yes, *other);
  LLVMPositionBuilderAtEnd(ke->e->builder, yes);
  return join;
}

static bool plain(const KernelEmitter *ke, uint32_t i) {
  return !ke->uniform[i] && ll_is_plain(ke, &ke->k->instrs[i]);
}

static DType storage_of(const KernelEmitter *ke, uint32_t i) {
  return (DType)ke->k->bufs[ke->k->instrs[i].access.buf].dtype;
}

static void find_places(KernelEmitter *ke, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &ke->k->instrs[i];
    if (!plain(ke, i)) continue;
    V saved[KERNEL_MAX_DIMS];
    memcpy(saved, ke->index, sizeof ke->index);
    if (in->kind == K_ACCUM) ll_rows_to_chunk(ke, saved);
    ke->place[i] =
        ll_plain_pointer(ke, &in->access, in->kind == K_LOAD ? operand(ke, in->a) : NULL);
    memcpy(ke->index, saved, sizeof ke->index);
  }
}

/* All plain loads, and what accumulators hold, under one branch. */
static void load_plain(KernelEmitter *ke, const KBlock *block, V whole) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMBasicBlockRef from[2], other, join;
  uint32_t end = block->first + block->count, n = 0;
  for (uint32_t i = block->first; i < end; i++)
    n += plain(ke, i) && ke->k->instrs[i].kind != K_STORE;
  if (!n) return;
  V *loaded = ke->value + ke->k->ninstrs; /* scratch: whole, partial per instruction */
  join = split_begin(ke, whole, &other);
  for (int half = 0; half < 2; half++) {
    if (half) LLVMPositionBuilderAtEnd(b, other);
    for (uint32_t i = block->first; i < end; i++)
      if (plain(ke, i) && ke->k->instrs[i].kind != K_STORE)
        loaded[2 * i + half] = ll_plain_load(ke, ke->place[i], storage_of(ke, i), half == 1);
    from[half] = LLVMGetInsertBlock(b);
    LLVMBuildBr(b, join);
  }
  LLVMPositionBuilderAtEnd(b, join);
  for (uint32_t i = block->first; i < end; i++) {
    if (!plain(ke, i) || ke->k->instrs[i].kind == K_STORE) continue;
    ke->value[i] = LLVMBuildPhi(b, LLVMTypeOf(loaded[2 * i]), "");
    LLVMAddIncoming(ke->value[i], loaded + 2 * i, from, 2);
  }
  for (uint32_t i = block->first; i < end; i++)
    if (plain(ke, i) && ke->k->instrs[i].kind != K_STORE)
      ke->value[i] = ll_decode(ke->e, ke->value[i], storage_of(ke, i));
}

/* Everything else in order; what plain stores and accumulators write is left in value[]. */
static void compute_varying(KernelEmitter *ke, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &ke->k->instrs[i];
    if (ke->uniform[i] || (in->kind == K_LOAD && plain(ke, i))) continue;
    if (!plain(ke, i)) {
      emit_instr(ke, i);
      continue;
    }
    V v = wide_operand(ke, in->a);
    if (in->kind == K_ACCUM)
      v = ll_combine(ke->e, (ReduceOp)in->reduce, (DType)in->type, ke->value[i], v);
    ke->value[i] = ll_encode(ke->e, v, storage_of(ke, i));
  }
}

static void store_plain(KernelEmitter *ke, const KBlock *block, V whole) {
  LLVMBuilderRef b = ke->e->builder;
  LLVMBasicBlockRef other, join;
  uint32_t end = block->first + block->count, n = 0;
  for (uint32_t i = block->first; i < end; i++)
    n += plain(ke, i) && ke->k->instrs[i].kind != K_LOAD;
  if (!n) return;
  join = split_begin(ke, whole, &other);
  for (int half = 0; half < 2; half++) {
    if (half) LLVMPositionBuilderAtEnd(b, other);
    for (uint32_t i = block->first; i < end; i++)
      if (plain(ke, i) && ke->k->instrs[i].kind != K_LOAD)
        ll_plain_store(ke, ke->place[i], ke->value[i], storage_of(ke, i), half == 1);
    LLVMBuildBr(b, join);
  }
  LLVMPositionBuilderAtEnd(b, join);
}

/* --- loops ---- */

static void emit_uniform(KernelEmitter *ke, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (ke->uniform[i]) emit_instr(ke, i);
}

/* for the vectors from lo to hi. Emission goes on with one vector; then behind the loop. */
static Loop vectors_begin(KernelEmitter *ke, V lo, V hi) {
  ke->lanes = kernel_lanes(ke->k);
  Loop l = ll_loop_begin(ke, lo, hi, ll_i64(ke->e, ke->lanes), "vector");
  ke->index[ke->vec] = l.index;
  return l;
}

static void vectors_end(KernelEmitter *ke, Loop *l) {
  ke->index[ke->vec] = NULL;
  ke->lanes = 1;
  ll_loop_end(ke, l);
}

static bool used_later(const KernelEmitter *ke, uint32_t i, const KBlock *block) {
  for (uint32_t j = block->first + block->count; j < ke->k->ninstrs; j++) {
    const KInstr *in = &ke->k->instrs[j];
    if (in->a == i + 1 || in->b == i + 1 || in->c == i + 1) return true;
  }
  return false;
}

/* With lanes, at the end of a vector of SCALAR code: what later blocks use of it goes to the stack.
 */
static void keep_lanes(KernelEmitter *ke, const KBlock *block) {
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    if (ke->uniform[i] || !has_value(&ke->k->instrs[i])) continue;
    V v = wide_operand(ke, i + 1);
    ke->value[i] = NULL; /* from here on it is read from there */
    if (used_later(ke, i, block)) LLVMBuildStore(ke->e->builder, v, kept_place(ke, i));
  }
}

/* With lanes a strip is narrower than a row, but what a processor fetches ahead lies further along
 * the row: the next rows are asked for instead. */
static void fetch_next_rows(KernelEmitter *ke, const KBlock *block) {
  Emitter *e = ke->e;
  uint32_t d = ke->vec;
  while (d > 0 && ke->k->dims[d].role != KDIM_INNER) d--;
  if (ke->k->dims[d].role != KDIM_INNER) return;
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    const KInstr *in = &ke->k->instrs[i];
    if (!plain(ke, i) || in->access.stride[d] == KINT_ZERO) continue;
    LLVMTypeRef i32 = ll_int(e, 32, 1), element = ll_storage(e, storage_of(ke, i), 1);
    V row = ll_kint(ke, in->access.stride[d]);
    V next = LLVMBuildGEP2(e->builder, element, ke->place[i], &row, 1, "");
    V write = LLVMConstInt(i32, in->kind == K_STORE, 0), near = LLVMConstInt(i32, 3, 0);
    ll_intrinsic(e, "llvm.prefetch", (V[]){next, write, near, LLVMConstInt(i32, 1, 0)}, 4);
  }
}

/* The vector dim from lo to hi. Arithmetic is emitted once, for whole vectors and the last, partial
 * one alike: only loads and stores differ, and the branch between them is always foreseen. Stores
 * come after all that reads. */
static void emit_vector_loop(KernelEmitter *ke, const KBlock *block, V lo, V hi) {
  LLVMBuilderRef b = ke->e->builder;
  Loop l = vectors_begin(ke, lo, hi);
  ke->rest = LLVMBuildSub(b, hi, l.index, "");
  V whole = LLVMBuildICmp(b, LLVMIntSGE, ke->rest, ll_i64(ke->e, ke->lanes), "");
  find_places(ke, block);
  if (ke->k->lanes && block->loop) fetch_next_rows(ke, block);
  load_plain(ke, block, whole);
  ke->mask = ll_lane_mask(ke);
  compute_varying(ke, block);
  store_plain(ke, block, whole);
  if (!block->loop) keep_lanes(ke, block);
  ke->mask = ke->rest = NULL;
  vectors_end(ke, &l);
}

static void emit_inner(KernelEmitter *ke, const KBlock *block, uint32_t d, V lo, V hi) {
  while (d < ke->vec && ke->k->dims[d].role != KDIM_INNER) d++;
  if (d >= ke->vec) {
    LLVMBasicBlockRef after = if_begin(ke, LLVMBuildICmp(ke->e->builder, LLVMIntSLT, lo, hi, ""));
    emit_uniform(ke, block);
    emit_vector_loop(ke, block, lo, hi);
    if_end(ke, after);
    return;
  }
  Loop l = ll_loop_begin(ke, ll_i64(ke->e, 0), ll_extent(ke, d), ll_i64(ke->e, 1), "inner");
  ke->index[d] = l.index;
  emit_inner(ke, block, d + 1, lo, hi);
  ke->index[d] = NULL;
  ll_loop_end(ke, &l);
}

/* With lanes: a place on the stack for every vector of a strip. */
static V strip_slot(KernelEmitter *ke, DType type) {
  uint32_t lanes = kernel_lanes(ke->k);
  return ll_alloca(ke, LLVMArrayType2(ll_type(ke->e, type, lanes), ke->k->vec_block / lanes));
}

static void begin_reduce(KernelEmitter *ke, uint32_t i, V lo, V hi) {
  const KInstr *in = &ke->k->instrs[i];
  V neutral = ll_neutral(ke->e, (ReduceOp)in->reduce, (DType)in->type, kernel_lanes(ke->k));
  if (!ke->k->lanes) {
    LLVMBuildStore(ke->e->builder, neutral, ke->lane_sum[i]);
    return;
  }
  ke->lane_sum[i] = strip_slot(ke, (DType)in->type);
  Loop l = vectors_begin(ke, lo, hi);
  LLVMBuildStore(ke->e->builder, neutral, kept_place(ke, i));
  vectors_end(ke, &l);
}

static void end_reduce(KernelEmitter *ke, uint32_t i) {
  Emitter *e = ke->e;
  const KInstr *in = &ke->k->instrs[i];
  if (ke->k->lanes) return;
  LLVMTypeRef vector = ll_type(e, (DType)in->type, kernel_lanes(ke->k));
  V v = LLVMBuildLoad2(e->builder, vector, ke->lane_sum[i], "");
  v = ll_fold(e, (ReduceOp)in->reduce, (DType)in->type, v);
  LLVMBuildStore(e->builder, v, ke->total[i]);
}

static void emit_loop_block(KernelEmitter *ke, const KBlock *block, V lo, V hi) {
  uint32_t end = block->first + block->count;
  find_uniform(ke, block);
  for (uint32_t i = block->first; i < end; i++)
    if (ke->k->instrs[i].kind == K_REDUCE) begin_reduce(ke, i, lo, hi);
  emit_inner(ke, block, 0, lo, hi);
  for (uint32_t i = block->first; i < end; i++)
    if (ke->k->instrs[i].kind == K_REDUCE) end_reduce(ke, i);
}

/* SCALAR code of every element of a strip, which is never empty. */
static void emit_lanes_block(KernelEmitter *ke, const KBlock *block, V lo, V hi) {
  find_uniform(ke, block);
  emit_uniform(ke, block);
  for (uint32_t i = block->first; i < block->first + block->count; i++)
    if (!ke->uniform[i] && used_later(ke, i, block))
      ke->lane_sum[i] = strip_slot(ke, (DType)ke->k->instrs[i].type);
  emit_vector_loop(ke, block, lo, hi);
}

static void emit_scalar_block(KernelEmitter *ke, const KBlock *block) {
  if (ke->block) ke->index[ke->vec] = ke->block;
  for (uint32_t i = block->first; i < block->first + block->count; i++) {
    ke->uniform[i] = true;
    emit_instr(ke, i);
  }
  if (ke->block) ke->index[ke->vec] = NULL;
}

void ll_blocks(KernelEmitter *ke, V lo, V hi) {
  for (uint32_t i = 0; i < ke->k->nblocks; i++) {
    const KBlock *block = &ke->k->blocks[i];
    if (block->loop)
      emit_loop_block(ke, block, lo, hi);
    else if (ke->k->lanes)
      emit_lanes_block(ke, block, lo, hi);
    else
      emit_scalar_block(ke, block);
  }
}
