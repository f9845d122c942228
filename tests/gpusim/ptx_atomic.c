/* atom and red: one lane after the other. */
#include <string.h>

#include "ptx_access.h"
#include "ptx_number.h"
#include "ptx_run.h"

static u64 bitwise(PtxAtomic how, u64 old, u64 x) {
  return how == ATOMIC_AND ? old & x : how == ATOMIC_OR ? old | x : old ^ x;
}

static u64 integer(PtxAtomic how, PtxType t, u64 old, u64 x) {
  bool is_signed = PTX_TYPE_INFO[t].kind == 's', wide = PTX_TYPE_INFO[t].bytes == 8;
  bool less = is_signed ? (wide ? (s64)x < (s64)old : (s32)x < (s32)old)
                        : (wide ? x < old : (u32)x < (u32)old);
  bool equal = wide ? x == old : (u32)x == (u32)old;
  switch (how) {
  case ATOMIC_ADD:
    return old + x;
  case ATOMIC_MIN:
    return less ? x : old;
  case ATOMIC_MAX:
    return less || equal ? old : x;
  case ATOMIC_INC:
    return (u32)old >= (u32)x ? 0 : old + 1;
  case ATOMIC_DEC:
    return (u32)old == 0 || (u32)old > (u32)x ? x : old - 1;
  case ATOMIC_AND:
  case ATOMIC_OR:
  case ATOMIC_XOR:
    return bitwise(how, old, x);
  case ATOMIC_CAS:
  case ATOMIC_EXCH:
    break;
  }
  return x;
}

static f32 half_op(PtxAtomic how, f32 old, f32 x) {
  return how == ATOMIC_ADD ? old + x : how == ATOMIC_MIN ? min_f32(old, x) : max_f32(old, x);
}

static u32 half(PtxAtomic how, bool bf16, u32 old, u32 x) {
  if (bf16) return bf16_of_f32(half_op(how, f32_of_bf16((u16)old), f32_of_bf16((u16)x)));
  return f16_of_f32(half_op(how, f32_of_f16((u16)old), f32_of_f16((u16)x)));
}

static u64 apply(PtxAtomic how, PtxType t, u64 old, u64 x, u64 y) {
  if (how == ATOMIC_EXCH) return x;
  if (how == ATOMIC_CAS) return old == x ? y : old;
  if (t == TYPE_F32) return bits_of_f32(nan_f32(f32_of_bits((u32)old) + f32_of_bits((u32)x)));
  if (t == TYPE_F64) return bits_of_f64(f64_of_bits(old) + f64_of_bits(x));
  if (t == TYPE_F16 || t == TYPE_BF16) return half(how, t == TYPE_BF16, (u32)old, (u32)x);
  if (t == TYPE_F16X2 || t == TYPE_BF16X2)
    return half(how, t == TYPE_BF16X2, (u32)old >> 16, (u32)x >> 16) << 16 |
           half(how, t == TYPE_BF16X2, (u32)old, (u32)x);
  return integer(how, t, old, x);
}

static u64 lane_of(const PtxWarp *w, u32 row, u32 bytes, u32 lane) {
  u64 value = 0;
  memcpy(&value, w->rows + row + (size_t)lane * bytes, bytes);
  return value;
}

void ptx_run_atomic(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  PtxBlock *b = w->block;
  u64 addresses[PTX_LANES];
  ptx_addresses(w, f, addresses);
  if (f->space != SPACE_SHARED) {
    b->atomic_seen = true;
    if (b->fence_seen) b->clock.floor = b->clock.begin;
  }
  for (u32 left = w->mask; left; left &= left - 1) {
    u32 i = (u32)__builtin_ctz(left);
    u8 *p = ptx_reach(w, op, i, f->space, addresses[i], f->bytes, ACCESS_ATOMIC, NULL);
    if (!p) return;
    u64 old = 0, x = lane_of(w, op->arg[1], f->bytes, i);
    u64 y = op->arg[2] == PTX_NO_ROW ? 0 : lane_of(w, op->arg[2], f->bytes, i);
    memcpy(&old, p, f->bytes);
    u64 value = apply((PtxAtomic)op->mode, (PtxType)op->flags, old, x, y);
    memcpy(p, &value, f->bytes);
    if (op->arg[0] != PTX_NO_ROW)
      memcpy(w->rows + op->arg[0] + (size_t)i * f->bytes, &old, f->bytes);
  }
}
