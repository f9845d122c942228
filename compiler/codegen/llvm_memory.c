/* Addresses, loads and stores.
 *
 * Along the vector dim an access has stride 0 (one element for all lanes), 1 (a contiguous vector)
 * or a run-time stride (gather, scatter). The last vector of a row is partial: 4- and 8-byte
 * elements use masked instructions, narrower ones pass through a small buffer on the stack, since
 * x86 without AVX-512 masks only wide elements. Contiguous accesses without a predicate are
 * "plain": the kernel emitter groups them under one branch that tells whole vectors from the
 * partial one.
 */
#include "codegen/llvm_emit.h"

#include <string.h>

typedef LLVMValueRef V;

static V add(Emitter *e, V a, V b) {
  return LLVMBuildAdd(e->builder, a, b, "");
}

V ll_kint(KernelEmitter *ke, KInt i) {
  if (i == KINT_ZERO) return ll_i64(ke->e, 0);
  if (i == KINT_ONE) return ll_i64(ke->e, 1);
  return ke->ints[i];
}

static V term(KernelEmitter *ke, KInt stride, V index) {
  if (stride == KINT_ONE) return index;
  return LLVMBuildMul(ke->e->builder, index, ll_kint(ke, stride), "");
}

/* Element number of lane 0. */
static V address_of(KernelEmitter *ke, const KAccess *a) {
  V at = a->offset == KINT_ZERO ? NULL : ll_kint(ke, a->offset);
  for (uint32_t d = 0; d < ke->k->ndims; d++) {
    if (a->stride[d] == KINT_ZERO || !ke->index[d]) continue;
    V t = term(ke, a->stride[d], ke->index[d]);
    at = at ? add(ke->e, at, t) : t;
  }
  return at ? at : ll_i64(ke->e, 0);
}

static KInt vec_stride(const KernelEmitter *ke, const KAccess *a) {
  return ke->vec < KERNEL_MAX_DIMS ? a->stride[ke->vec] : KINT_ZERO;
}

/* Per-lane element numbers (i64), or one when lanes is 1 or they are all the same. */
V ll_indices(KernelEmitter *ke, const KAccess *a) {
  Emitter *e = ke->e;
  V base = address_of(ke, a);
  KInt stride = vec_stride(ke, a);
  if (ke->lanes == 1 || stride == KINT_ZERO) return base;
  V lane = ll_lane_numbers(e, ll_int(e, 64, 1), ke->lanes);
  if (stride != KINT_ONE)
    lane = LLVMBuildMul(e->builder, lane, ll_splat(e, ll_kint(ke, stride), ke->lanes), "");
  return add(e, ll_splat(e, base, ke->lanes), lane);
}

static V pointer(KernelEmitter *ke, uint32_t buf, DType storage, V index) {
  return LLVMBuildGEP2(ke->e->builder, ll_storage(ke->e, storage, 1), ke->bufs[buf], &index, 1, "");
}

static unsigned bytes_of(DType storage) {
  return (unsigned)dtype_bytes(storage);
}

static V both(Emitter *e, V a, V b) {
  if (!a) return b;
  return b ? LLVMBuildAnd(e->builder, a, b, "") : a;
}

/* llvm.masked.*: overloaded on value and pointer type. */
static V masked(Emitter *e, const char *name, LLVMTypeRef value, LLVMTypeRef ptr, V *args,
                uint32_t n) {
  LLVMTypeRef types[2] = {value, ptr};
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  V f = LLVMGetIntrinsicDeclaration(e->module, id, types, 2);
  return LLVMBuildCall2(e->builder, LLVMIntrinsicGetType(e->context, id, types, 2), f, args, n, "");
}

static V all_lanes(Emitter *e, uint32_t lanes) {
  return ll_const_i(ll_int(e, 1, lanes), -1);
}

/* The lanes in range of the vector that is being emitted. */
V ll_lane_mask(KernelEmitter *ke) {
  Emitter *e = ke->e;
  LLVMTypeRef i32 = ll_int(e, 32, 1);
  V rest = LLVMBuildTrunc(e->builder, ke->rest, i32, "");
  return LLVMBuildICmp(e->builder, LLVMIntSLT, ll_lane_numbers(e, i32, ke->lanes),
                       ll_splat(e, rest, ke->lanes), "");
}

/* A place on the stack for a partial vector of narrow elements, and the bytes that are in range. */
static V staged(KernelEmitter *ke, LLVMTypeRef type, DType storage) {
  V slot = ll_alloca(ke, type);
  LLVMSetAlignment(slot, bytes_of(storage) * ke->lanes);
  return slot;
}

static V rest_bytes(KernelEmitter *ke, DType storage) {
  return LLVMBuildMul(ke->e->builder, ke->rest, ll_i64(ke->e, bytes_of(storage)), "");
}

static V alignment(Emitter *e, DType storage) {
  return LLVMConstInt(ll_int(e, 32, 1), bytes_of(storage), 0);
}

bool ll_is_plain(const KernelEmitter *ke, const KInstr *in) {
  bool memory = in->kind == K_LOAD || in->kind == K_STORE || in->kind == K_ACCUM;
  bool moves = (in->kind == K_LOAD || in->kind == K_STORE) && in->b;
  bool turned = in->kind == K_LOAD && in->a && !ke->uniform[in->a - 1] &&
                (ke->k->lanes || ke->k->instrs[in->a - 1].kind != K_REDUCE);
  return memory && !moves && !turned && vec_stride(ke, &in->access) == KINT_ONE;
}

V ll_plain_pointer(KernelEmitter *ke, const KAccess *a, V index) {
  DType storage = (DType)ke->k->bufs[a->buf].dtype;
  V at = address_of(ke, a);
  return pointer(ke, a->buf, storage, index ? add(ke->e, at, index) : at);
}

V ll_plain_load(KernelEmitter *ke, V p, DType storage, bool partial) {
  Emitter *e = ke->e;
  LLVMTypeRef type = ll_storage(e, storage, ke->lanes);
  if (!partial) {
    V loaded = LLVMBuildLoad2(e->builder, type, p, "");
    LLVMSetAlignment(loaded, bytes_of(storage));
    return loaded;
  }
  if (bytes_of(storage) < 4) {
    V slot = staged(ke, type, storage);
    LLVMBuildStore(e->builder, LLVMConstNull(type), slot);
    LLVMBuildMemCpy(e->builder, slot, 1, p, 1, rest_bytes(ke, storage));
    return LLVMBuildLoad2(e->builder, type, slot, "");
  }
  V args[] = {p, alignment(e, storage), ll_lane_mask(ke), LLVMConstNull(type)};
  return masked(e, "llvm.masked.load", type, LLVMTypeOf(p), args, 4);
}

void ll_plain_store(KernelEmitter *ke, V p, V bits, DType storage, bool partial) {
  Emitter *e = ke->e;
  if (!partial) {
    LLVMSetAlignment(LLVMBuildStore(e->builder, bits, p), bytes_of(storage));
    return;
  }
  if (bytes_of(storage) < 4) {
    V slot = staged(ke, LLVMTypeOf(bits), storage);
    LLVMBuildStore(e->builder, bits, slot);
    LLVMBuildMemCpy(e->builder, p, 1, slot, 1, rest_bytes(ke, storage));
    return;
  }
  V args[] = {bits, p, alignment(e, storage), ll_lane_mask(ke)};
  masked(e, "llvm.masked.store", LLVMTypeOf(bits), LLVMTypeOf(p), args, 4);
}

/* Lanes out of range read what lane 0 reads, which is in range. */
static V clamp_lanes(KernelEmitter *ke, V index) {
  V first = LLVMBuildExtractElement(ke->e->builder, index, ll_i64(ke->e, 0), "");
  return ll_select(ke->e, ke->mask, index, ll_splat(ke->e, first, ke->lanes));
}

static V gather(KernelEmitter *ke, V pointers, LLVMTypeRef type, DType storage, V pred) {
  Emitter *e = ke->e;
  V args[] = {pointers, alignment(e, storage),
              pred ? both(e, ke->mask, pred) : all_lanes(e, ke->lanes), LLVMConstNull(type)};
  return masked(e, "llvm.masked.gather", type, LLVMTypeOf(pointers), args, 4);
}

/* One element; where the predicate is false nothing is read. */
static V load_scalar(KernelEmitter *ke, V p, LLVMTypeRef type, DType storage, V pred) {
  Emitter *e = ke->e;
  LLVMBuilderRef b = e->builder;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b), yes = NULL, join = NULL;
  if (pred) {
    yes = LLVMAppendBasicBlockInContext(e->context, ke->function, "read");
    join = LLVMAppendBasicBlockInContext(e->context, ke->function, "joined");
    LLVMBuildCondBr(b, pred, yes, join);
    LLVMPositionBuilderAtEnd(b, yes);
  }
  V loaded = LLVMBuildLoad2(b, type, p, "");
  LLVMSetAlignment(loaded, bytes_of(storage));
  if (!pred) return loaded;
  LLVMBuildBr(b, join);
  LLVMPositionBuilderAtEnd(b, join);
  V phi = LLVMBuildPhi(b, type, "");
  LLVMAddIncoming(phi, (V[]){LLVMConstNull(type), loaded}, (LLVMBasicBlockRef[]){from, yes}, 2);
  return phi;
}

V ll_load(KernelEmitter *ke, const KInstr *in, V index, V pred) {
  Emitter *e = ke->e;
  const KAccess *a = &in->access;
  DType storage = (DType)ke->k->bufs[a->buf].dtype;
  KInt stride = vec_stride(ke, a);
  bool per_lane = ke->lanes > 1 &&
                  ((stride != KINT_ZERO && stride != KINT_ONE) || (index && ll_lanes(index) > 1));
  LLVMTypeRef type = ll_storage(e, storage, ke->lanes);
  V bits;
  if (per_lane) {
    V at = ll_indices(ke, a);
    at = ll_splat(e, at, ke->lanes);
    if (index) at = add(e, at, ll_splat(e, index, ke->lanes));
    if (!pred) at = clamp_lanes(ke, at);
    V pointers = pointer(ke, a->buf, storage, at);
    bits = gather(ke, pointers, type, storage, pred ? ll_splat(e, pred, ke->lanes) : NULL);
  } else {
    V at = address_of(ke, a);
    if (index) at = add(e, at, index);
    V p = pointer(ke, a->buf, storage, at);
    if (ke->lanes > 1 && stride == KINT_ONE) {
      V args[] = {p, alignment(e, storage), both(e, ke->mask, ll_splat(e, pred, ke->lanes)),
                  LLVMConstNull(type)};
      bits = masked(e, "llvm.masked.load", type, LLVMTypeOf(p), args, 4);
    } else if (pred && ll_lanes(pred) > 1) {
      /* One element under a predicate that varies: read where any lane asks. */
      V any = ll_intrinsic(e, "llvm.vector.reduce.or", &pred, 1);
      V one = load_scalar(ke, p, ll_storage(e, storage, 1), storage, any);
      bits = ll_select(e, pred, ll_splat(e, one, ke->lanes), LLVMConstNull(type));
    } else
      bits = load_scalar(ke, p, ll_storage(e, storage, 1), storage, pred);
  }
  return ll_decode(e, bits, storage);
}

static void store_scalar(KernelEmitter *ke, V p, V bits, DType storage, V pred) {
  Emitter *e = ke->e;
  LLVMBuilderRef b = e->builder;
  LLVMBasicBlockRef join = NULL;
  if (pred) {
    LLVMBasicBlockRef yes = LLVMAppendBasicBlockInContext(e->context, ke->function, "write");
    join = LLVMAppendBasicBlockInContext(e->context, ke->function, "joined");
    LLVMBuildCondBr(b, pred, yes, join);
    LLVMPositionBuilderAtEnd(b, yes);
  }
  LLVMSetAlignment(LLVMBuildStore(b, bits, p), bytes_of(storage));
  if (!pred) return;
  LLVMBuildBr(b, join);
  LLVMPositionBuilderAtEnd(b, join);
}

void ll_store(KernelEmitter *ke, const KAccess *a, DType storage, V value, V pred) {
  Emitter *e = ke->e;
  V bits = ll_encode(e, ll_splat(e, value, ke->lanes), storage);
  if (ke->lanes == 1) {
    store_scalar(ke, pointer(ke, a->buf, storage, address_of(ke, a)), bits, storage, pred);
    return;
  }
  V mask = pred ? both(e, ke->mask, ll_splat(e, pred, ke->lanes)) : ke->mask;
  if (vec_stride(ke, a) == KINT_ONE) {
    V p = pointer(ke, a->buf, storage, address_of(ke, a));
    V args[] = {bits, p, alignment(e, storage), mask};
    masked(e, "llvm.masked.store", LLVMTypeOf(bits), LLVMTypeOf(p), args, 4);
    return;
  }
  V pointers = pointer(ke, a->buf, storage, ll_indices(ke, a));
  V args[] = {bits, pointers, alignment(e, storage), mask};
  masked(e, "llvm.masked.scatter", LLVMTypeOf(bits), LLVMTypeOf(pointers), args, 4);
}
