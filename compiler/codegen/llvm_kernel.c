/* One kernel as an LLVM function: tasks, the rows of a task and what they add up; the blocks within
 * are llvm_block.c's. The loop nest is the one kernel.h describes.
 */
#include "codegen/llvm_emit.h"

#include <stdlib.h>
#include <string.h>

typedef LLVMValueRef V;

static V smaller(KernelEmitter *ke, V a, V b) {
  return ll_intrinsic(ke->e, "llvm.smin", (V[]){a, b}, 2);
}

/* --- rows and tasks ---- */

static void decompose(KernelEmitter *ke, KDimRole role, V linear) {
  LLVMBuilderRef b = ke->e->builder;
  uint32_t first = KERNEL_MAX_DIMS;
  for (uint32_t d = ke->k->ndims; d-- > 0;)
    if (ke->k->dims[d].role == role) first = d;
  for (uint32_t d = ke->k->ndims; d-- > 0;) {
    if (ke->k->dims[d].role != role) continue;
    if (d == first) {
      ke->index[d] = linear;
      break;
    }
    V n = ll_extent(ke, d);
    ke->index[d] = LLVMBuildURem(b, linear, n, "");
    linear = LLVMBuildUDiv(b, linear, n, "");
  }
}

/* Stores the neutral element wherever the chunk accumulates. */
static void init_accumulators(KernelEmitter *ke, V vec_extent) {
  Emitter *e = ke->e;
  V saved[KERNEL_MAX_DIMS];
  ll_rows_to_chunk(ke, saved);
  for (uint32_t n = 0; n < ke->k->nblocks; n++) {
    const KBlock *block = &ke->k->blocks[n];
    for (uint32_t i = block->first; i < block->first + block->count; i++) {
      const KInstr *in = &ke->k->instrs[i];
      if (in->kind != K_ACCUM) continue;
      V neutral = ll_neutral(e, (ReduceOp)in->reduce, (DType)in->type, 1);
      Loop loops[KERNEL_MAX_DIMS];
      uint32_t nloops = 0;
      for (uint32_t d = 0; block->loop && d < ke->k->ndims; d++) {
        if (ke->k->dims[d].role < KDIM_INNER) continue;
        V hi = d == ke->vec ? vec_extent : ll_extent(ke, d);
        loops[nloops] = ll_loop_begin(ke, ll_i64(e, 0), hi, ll_i64(e, 1), "neutral");
        ke->index[d] = loops[nloops++].index;
      }
      ll_store(ke, &in->access, (DType)in->type, neutral, NULL);
      while (nloops) ll_loop_end(ke, &loops[--nloops]);
      for (uint32_t d = 0; d < ke->k->ndims; d++)
        if (ke->k->dims[d].role >= KDIM_INNER) ke->index[d] = NULL;
    }
  }
  memcpy(ke->index, saved, sizeof ke->index);
}

static void emit_rows(KernelEmitter *ke, V vec_extent) {
  LLVMBuilderRef b = ke->e->builder;
  V rows = ll_i64(ke->e, 1);
  for (uint32_t d = 0; d < ke->k->ndims; d++)
    if (ke->k->dims[d].role == KDIM_ROW) rows = LLVMBuildMul(b, rows, ll_extent(ke, d), "");
  V size = ll_kint(ke, ke->k->chunk_rows), lo = LLVMBuildMul(b, ke->chunk, size, "");
  V hi = smaller(ke, LLVMBuildAdd(b, lo, size, ""), rows);
  init_accumulators(ke, vec_extent);
  Loop l = ll_loop_begin(ke, lo, hi, ll_i64(ke->e, 1), "row");
  decompose(ke, KDIM_ROW, l.index);
  ll_blocks(ke, ll_i64(ke->e, 0), vec_extent);
  ll_loop_end(ke, &l);
}

static void emit_task(KernelEmitter *ke, V task) {
  Emitter *e = ke->e;
  LLVMBuilderRef b = e->builder;
  const Kernel *k = ke->k;
  V vec_extent = ke->vec < k->ndims ? ll_extent(ke, ke->vec) : ll_i64(e, 0);
  if (k->chunk_rows != KINT_ZERO) {
    V n = ll_kint(ke, k->nchunks);
    ke->chunk = LLVMBuildURem(b, task, n, "");
    decompose(ke, KDIM_GRID, LLVMBuildUDiv(b, task, n, ""));
    emit_rows(ke, vec_extent);
  } else if (k->lanes) {
    V size = ll_i64(e, k->vec_block);
    V strips = LLVMBuildAdd(b, vec_extent, ll_i64(e, k->vec_block - 1), "");
    strips = LLVMBuildUDiv(b, strips, size, "");
    decompose(ke, KDIM_GRID, LLVMBuildUDiv(b, task, strips, ""));
    ke->strip = LLVMBuildMul(b, LLVMBuildURem(b, task, strips, ""), size, "");
    ll_blocks(ke, ke->strip, smaller(ke, LLVMBuildAdd(b, ke->strip, size, ""), vec_extent));
  } else if (k->vec_block) {
    V size = ll_i64(e, k->vec_block), grid = ll_i64(e, 1);
    for (uint32_t d = 0; d < k->ndims; d++)
      if (k->dims[d].role == KDIM_GRID) grid = LLVMBuildMul(b, grid, ll_extent(ke, d), "");
    decompose(ke, KDIM_GRID, LLVMBuildURem(b, task, grid, ""));
    ke->block = LLVMBuildUDiv(b, task, grid, "");
    V lo = LLVMBuildMul(b, ke->block, size, "");
    ll_blocks(ke, lo, smaller(ke, LLVMBuildAdd(b, lo, size, ""), vec_extent));
  } else {
    decompose(ke, KDIM_GRID, task);
    ll_blocks(ke, ll_i64(e, 0), vec_extent);
  }
}

static void load_arguments(KernelEmitter *ke) {
  Emitter *e = ke->e;
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0), i64 = ll_int(e, 64, 1);
  V bufs = LLVMGetParam(ke->function, 0), ints = LLVMGetParam(ke->function, 1);
  for (uint32_t i = 0; i < ke->k->nbufs; i++) {
    V at = ll_i64(e, i);
    ke->bufs[i] =
        LLVMBuildLoad2(e->builder, ptr, LLVMBuildGEP2(e->builder, ptr, bufs, &at, 1, ""), "");
  }
  for (uint32_t i = 0; i < ke->k->nints; i++) {
    V at = ll_i64(e, i);
    ke->ints[i] =
        LLVMBuildLoad2(e->builder, i64, LLVMBuildGEP2(e->builder, i64, ints, &at, 1, ""), "");
  }
}

static void set_attribute(Emitter *e, V function, const char *key, const char *value) {
  LLVMAttributeRef a = LLVMCreateStringAttribute(e->context, key, (unsigned)strlen(key), value,
                                                 (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, a);
}

void ll_tune(Emitter *e, LLVMValueRef function) {
  set_attribute(e, function, "prefer-vector-width", "512");
  set_attribute(e, function, "tune-cpu", e->tune);
}

LLVMValueRef ll_declare_kernel(Emitter *e, const Kernel *k) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->context, 0), i64 = ll_int(e, 64, 1);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context),
                                      (LLVMTypeRef[]){ptr, ptr, i64, i64}, 4, 0);
  LLVMValueRef f = LLVMAddFunction(e->module, k->name, type);
  LLVMSetVisibility(f, LLVMHiddenVisibility); /* the table may lie in another object */
  return f;
}

void ll_kernel(Emitter *e, const Kernel *k) {
  KernelEmitter ke = {.e = e, .k = k, .lanes = 1, .vec = KERNEL_MAX_DIMS};
  for (uint32_t d = 0; d < k->ndims; d++)
    if (k->dims[d].role == KDIM_VEC) ke.vec = d;
  size_t n = k->ninstrs;
  V *slots = calloc(6 * n + k->nbufs + k->nints + 1, sizeof *slots);
  bool *uniform = calloc((size_t)k->ninstrs + 1, sizeof *uniform);
  if (!slots || !uniform) abort();
  ke.value = slots; /* with twice as many for scratch: see load_plain */
  ke.total = slots + 3 * n;
  ke.lane_sum = slots + 4 * n;
  ke.place = slots + 5 * n;
  ke.bufs = slots + 6 * n;
  ke.ints = ke.bufs + k->nbufs;
  ke.uniform = uniform;
  ke.function = ll_declare_kernel(e, k);
  ll_tune(e, ke.function);
  ke.entry = ll_new_block(&ke, "entry");
  LLVMPositionBuilderAtEnd(e->builder, ke.entry);
  for (uint32_t i = 0; i < k->ninstrs; i++) {
    const KInstr *in = &k->instrs[i];
    if (in->kind != K_REDUCE || k->lanes) continue;
    ke.total[i] = ll_alloca(&ke, ll_element(e, (DType)in->type));
    ke.lane_sum[i] = ll_alloca(&ke, ll_type(e, (DType)in->type, kernel_lanes(k)));
  }
  load_arguments(&ke);
  Loop l = ll_loop_begin(&ke, LLVMGetParam(ke.function, 2), LLVMGetParam(ke.function, 3),
                         ll_i64(e, 1), "task");
  emit_task(&ke, l.index);
  ll_loop_end(&ke, &l);
  LLVMBuildRetVoid(e->builder);
  free(slots);
  free(uniform);
}
