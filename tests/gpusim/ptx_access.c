/* Loads and stores. The lanes of most accesses lie one behind the other or all at one address;
 * these are looked up, checked and moved as a whole, the rest lane by lane. */
#include "ptx_access.h"

#include <stdio.h>
#include <string.h>

static const char *verb_of(PtxAccess access) {
  switch (access) {
  case ACCESS_READ:
  case ACCESS_READ_CONSTANT:
  case ACCESS_ATOMIC_READ:
    return "reads";
  case ACCESS_WRITE:
  case ACCESS_ATOMIC_WRITE:
    return "writes";
  case ACCESS_ATOMIC:
    return "changes";
  }
  return "";
}

static bool reads(PtxAccess access) {
  return access != ACCESS_WRITE && access != ACCESS_ATOMIC_WRITE;
}

static bool writes(PtxAccess access) {
  return access == ACCESS_WRITE || access == ACCESS_ATOMIC_WRITE || access == ACCESS_ATOMIC;
}

static bool holds(const PtxRegion *region, uint64_t address) {
  return address - (uint64_t)(uintptr_t)region->base < region->bytes;
}

PtxRegion *ptx_region_of(PtxWarp *w, PtxSpace space, uint64_t address) {
  PtxBlock *b = w->block;
  switch (space) {
  case SPACE_SHARED:
    return holds(&b->shared, address) ? &b->shared : NULL;
  case SPACE_LOCAL:
    return holds(&b->local, address) ? &b->local : NULL;
  case SPACE_PARAM:
    return holds(&b->params, address) ? &b->params : NULL;
  case SPACE_GENERIC:
    if (holds(&b->shared, address)) return &b->shared;
    if (holds(&b->local, address)) return &b->local;
    if (holds(&b->params, address)) return &b->params;
    return ptx_memory_find(b->memory, address);
  case SPACE_GLOBAL:
  case SPACE_CONST:
  case SPACE_REGISTER:
    return ptx_memory_find(b->memory, address);
  }
  return NULL;
}

PtxToucher ptx_toucher(const PtxWarp *w, const PtxRegion *region) {
  const PtxBlock *b = w->block;
  return (PtxToucher){region == &b->shared ? &b->shared_clock : &b->clock, w->index, w->phase};
}

/* Who touches a region is recorded, unless nobody wants to know. */
static bool recorded(const PtxWarp *w, const PtxRegion *region) {
  return region->recorded && !w->block->launch->races_unchecked;
}

static void fail_outside(PtxWarp *w, const PtxOp *op, uint32_t lane, PtxSpace space,
                         uint64_t address, size_t bytes, PtxAccess access) {
  PtxBlock *b = w->block;
  char where[300];
  if (space == SPACE_SHARED) {
    uint64_t offset = address - (uint64_t)(uintptr_t)b->shared.base;
    snprintf(where, sizeof where, "byte %lld of shared memory, which has %zu", (long long)offset,
             b->shared.bytes);
  } else if (space == SPACE_LOCAL) {
    snprintf(where, sizeof where, "outside of the thread's local memory of %u bytes",
             b->function->info.local_bytes);
  } else {
    PtxRegion *region = ptx_region_of(w, space, address);
    if (region && region != &b->shared && region != &b->local && region != &b->params)
      address = (uint64_t)(uintptr_t)region->base + region->bytes; /* begins inside, ends behind */
    ptx_memory_describe(b->memory, address, where, sizeof where);
  }
  ptx_fail(w, op, (int)lane, PTX_FAULT_OUTSIDE, "%s %zu bytes at %s", verb_of(access), bytes,
           where);
}

void ptx_fail_race(PtxWarp *w, const PtxOp *op, uint32_t lane, const PtxRegion *region,
                   const PtxCollision *c, bool write) {
  char who[100];
  const uint32_t *size = w->block->launch->block;
  uint32_t thread = 32 * c->warp + c->lane;
  if (c->pending)
    snprintf(who, sizeof who, "a copy that nobody waited for (cp.async) writes");
  else if (c->other_block)
    snprintf(who, sizeof who, "another block %s", c->wrote ? "wrote" : "reads");
  else if (c->many)
    snprintf(who, sizeof who, "other threads %s", c->wrote ? "wrote" : "read");
  else
    snprintf(who, sizeof who, "thread (%u, %u, %u) %s", thread % size[0],
             thread / size[0] % size[1], thread / size[0] / size[1], c->wrote ? "wrote" : "read");
  ptx_fail(w, op, (int)lane, PTX_FAULT_RACE,
           "%s byte %zu of '%s', which %s with nothing that orders the two",
           write ? "writes" : "reads", c->offset, region->name, who);
}

uint8_t *ptx_reach(PtxWarp *w, const PtxOp *op, uint32_t lane, PtxSpace space, uint64_t address,
                   size_t bytes, PtxAccess access, const void *value) {
  PtxBlock *b = w->block;
  int who = lane == PTX_WHOLE_WARP ? -1 : (int)lane;
  PtxRegion *region = ptx_region_of(w, space, address);
  size_t offset = region ? (size_t)(address - (uint64_t)(uintptr_t)region->base) : 0;
  bool inside = region && bytes <= region->bytes - offset;
  if (inside && region == &b->local && lane != PTX_WHOLE_WARP) { /* its own */
    size_t stride = (b->function->info.local_bytes + 15) & ~(size_t)15;
    size_t first = (32 * w->index + lane) * stride;
    inside = offset >= first && offset + bytes <= first + b->function->info.local_bytes;
  }
  if (!inside) {
    fail_outside(w, op, (uint32_t)who, space, address, bytes, access);
    return NULL;
  }
  if (address & (bytes - 1)) {
    ptx_fail(w, op, who, PTX_FAULT_MISALIGNED, "%s %zu bytes at byte %zu of '%s' (%#llx)",
             verb_of(access), bytes, offset, region->name, (unsigned long long)address);
    return NULL;
  }
  if (writes(access) && region->read_only) {
    ptx_fail(w, op, who, PTX_FAULT_READ_ONLY, "writes byte %zu of '%s', which is constant", offset,
             region->name);
    return NULL;
  }
  PtxCollision collision;
  PtxToucher toucher = ptx_toucher(w, region);
  bool same = value && !memcmp(region->base + offset, value, bytes);
  if (recorded(w, region) &&
      !ptx_region_touch(region, offset, bytes, access, &toucher, lane, same, &collision)) {
    ptx_fail_race(w, op, (uint32_t)who, region, &collision, writes(access));
    return NULL;
  }
  if (reads(access)) {
    size_t missing = ptx_region_unwritten(region, offset, bytes);
    if (missing != SIZE_MAX) {
      ptx_fail(w, op, who, PTX_FAULT_UNWRITTEN, "%s byte %zu of '%s', which nobody wrote",
               verb_of(access), missing, region->name);
      return NULL;
    }
  } else {
    ptx_region_mark(region, offset, bytes);
  }
  return region->base + offset;
}

void ptx_addresses(const PtxWarp *w, const PtxMemoryForm *f, uint64_t *out) {
  uint64_t add = (uint64_t)f->offset;
  if (f->space == SPACE_SHARED)
    add += (uint64_t)(uintptr_t)w->block->shared.base - PTX_SHARED_BEGIN;
  if (f->address_wide) {
    const uint64_t *row = PTX_ROW(w, uint64_t, f->address);
    for (uint32_t i = 0; i < PTX_LANES; i++) out[i] = row[i] + add;
  } else {
    const uint32_t *row = PTX_ROW(w, uint32_t, f->address);
    for (uint32_t i = 0; i < PTX_LANES; i++) out[i] = row[i] + add;
  }
}

/* How the lanes of a mask lie. */
typedef enum Shape { SHAPE_ANY, SHAPE_ROW, SHAPE_ONE } Shape;

static Shape shape_of(const uint64_t *addresses, uint32_t mask, size_t bytes) {
  uint32_t first = (uint32_t)__builtin_ctz(mask);
  uint64_t base = addresses[first], apart = 0, off = 0;
  if (mask == UINT32_MAX) {
    for (uint32_t i = 0; i < PTX_LANES; i++) {
      apart |= addresses[i] ^ (base + i * bytes);
      off |= addresses[i] ^ base;
    }
  } else {
    for (uint32_t i = 0; i < PTX_LANES; i++) {
      uint64_t on = 0 - (uint64_t)(mask >> i & 1);
      apart |= (addresses[i] ^ (base + (uint64_t)(i - first) * bytes)) & on;
      off |= (addresses[i] ^ base) & on;
    }
    uint32_t run = mask >> first;
    if (run & (run + 1)) apart = 1; /* lanes are missing between */
  }
  return !off ? SHAPE_ONE : !apart ? SHAPE_ROW : SHAPE_ANY;
}

/* Checks a row of lanes at once; NULL when it must be done lane by lane. */
static uint8_t *reach_row(PtxWarp *w, const PtxMemoryForm *f, uint64_t address, size_t bytes,
                          PtxAccess access) {
  uint32_t first = (uint32_t)__builtin_ctz(w->mask);
  uint32_t lanes = (uint32_t)__builtin_popcount(w->mask);
  PtxRegion *region = ptx_region_of(w, f->space, address);
  if (!region || region == &w->block->local || address & (bytes - 1)) return NULL;
  size_t offset = (size_t)(address - (uint64_t)(uintptr_t)region->base);
  if (lanes * bytes > region->bytes - offset || (region->read_only && writes(access))) return NULL;
  if (reads(access) && ptx_region_unwritten(region, offset, lanes * bytes) != SIZE_MAX) return NULL;
  PtxToucher toucher = ptx_toucher(w, region);
  if (recorded(w, region) &&
      !ptx_region_touch_row(region, offset, bytes, access, &toucher, first, lanes))
    return NULL;
  if (!reads(access)) ptx_region_mark(region, offset, lanes * bytes);
  return region->base + offset;
}

/* Settles what it can of lanes that lie anyhow: those that it returns must be looked at one by one.
 */
static uint32_t reach_lanes(PtxWarp *w, const PtxMemoryForm *f, const uint64_t *addresses,
                            size_t bytes, PtxAccess access) {
  uint32_t mask = w->mask;
  PtxRegion *region = ptx_region_of(w, f->space, addresses[__builtin_ctz(mask)]);
  if (!region || region == &w->block->local || (region->read_only && writes(access))) return mask;
  uint64_t base = (uint64_t)(uintptr_t)region->base, offsets[PTX_LANES], out_of = 0;
  if (region->bytes < bytes) return mask;
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    uint64_t bad = (addresses[i] & (bytes - 1)) | (addresses[i] - base > region->bytes - bytes);
    offsets[i] = addresses[i] - base;
    out_of |= mask >> i & 1 ? bad : 0;
  }
  if (out_of) return mask;
  PtxToucher toucher = ptx_toucher(w, region);
  return ptx_region_touch_lanes(region, offsets, mask, bytes, access, &toucher,
                                recorded(w, region));
}

/* --- between memory and rows ------------------------------------------------------------------ */

/* The lanes' values, `stride` bytes apart, lane 0 at `from`, into the rows of a load. */
#define UNPACK(M, R)                                                                               \
  do {                                                                                             \
    R *row = PTX_ROW(w, R, f->data[k]);                                                            \
    const uint8_t *p = from + k * sizeof(M);                                                       \
    for (uint32_t i = 0; i < PTX_LANES; i++) {                                                     \
      if (!(mask >> i & 1)) continue;                                                              \
      M v;                                                                                         \
      memcpy(&v, p + i * stride, sizeof v);                                                        \
      row[i] = (R)v;                                                                               \
    }                                                                                              \
  } while (0)

#define FORM(bytes, row, is_signed) ((bytes) << 8 | (row) << 4 | (is_signed))

static void unpack(PtxWarp *w, const PtxMemoryForm *f, const uint8_t *from, size_t stride,
                   uint32_t mask) {
  for (uint32_t k = 0; k < f->count; k++) {
    if (f->data[k] == PTX_NO_ROW) continue;
    bool plain = mask == UINT32_MAX && f->bytes == f->row_bytes;
    if (plain && f->count == 1 && stride == f->bytes) {
      memcpy(w->rows + f->data[k], from, PTX_LANES * stride);
      continue;
    }
    if (plain && f->bytes == 4) { /* the common vectors and gathers */
      uint32_t *row = PTX_ROW(w, uint32_t, f->data[k]);
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(&row[i], from + 4 * k + i * stride, 4);
      continue;
    }
    switch (FORM(f->bytes, f->row_bytes, f->is_signed)) {
    case FORM(1, 2, 0):
      UNPACK(uint8_t, uint16_t);
      break;
    case FORM(1, 2, 1):
      UNPACK(int8_t, int16_t);
      break;
    case FORM(1, 4, 0):
      UNPACK(uint8_t, uint32_t);
      break;
    case FORM(1, 4, 1):
      UNPACK(int8_t, int32_t);
      break;
    case FORM(1, 8, 0):
      UNPACK(uint8_t, uint64_t);
      break;
    case FORM(1, 8, 1):
      UNPACK(int8_t, int64_t);
      break;
    case FORM(2, 2, 0):
    case FORM(2, 2, 1):
      UNPACK(uint16_t, uint16_t);
      break;
    case FORM(2, 4, 0):
      UNPACK(uint16_t, uint32_t);
      break;
    case FORM(2, 4, 1):
      UNPACK(int16_t, int32_t);
      break;
    case FORM(2, 8, 0):
      UNPACK(uint16_t, uint64_t);
      break;
    case FORM(2, 8, 1):
      UNPACK(int16_t, int64_t);
      break;
    case FORM(4, 4, 0):
    case FORM(4, 4, 1):
      UNPACK(uint32_t, uint32_t);
      break;
    case FORM(4, 8, 0):
      UNPACK(uint32_t, uint64_t);
      break;
    case FORM(4, 8, 1):
      UNPACK(int32_t, int64_t);
      break;
    case FORM(8, 8, 0):
    case FORM(8, 8, 1):
      UNPACK(uint64_t, uint64_t);
      break;
    }
  }
}

/* The low bytes of the rows of a store, one lane behind the other. */
static void pack(const PtxWarp *w, const PtxMemoryForm *f, uint8_t *to) {
  size_t stride = (size_t)f->bytes * f->count;
  for (uint32_t k = 0; k < f->count; k++) {
    const uint8_t *row = w->rows + f->data[k];
    uint8_t *p = to + k * f->bytes;
    if (f->count == 1 && f->bytes == f->row_bytes)
      memcpy(p, row, PTX_LANES * stride);
    else if (f->bytes == 4 && f->row_bytes == 4)
      for (uint32_t i = 0; i < PTX_LANES; i++) memcpy(p + i * stride, row + 4 * i, 4);
    else
      for (uint32_t i = 0; i < PTX_LANES; i++)
        memcpy(p + i * stride, row + (size_t)i * f->row_bytes, f->bytes);
  }
}

/* memcpy of a size of an access. */
static inline void copy(uint8_t *to, const uint8_t *from, size_t bytes) {
  if (bytes == 4)
    memcpy(to, from, 4);
  else if (bytes == 2)
    memcpy(to, from, 2);
  else if (bytes == 8)
    memcpy(to, from, 8);
  else if (bytes == 16)
    memcpy(to, from, 16);
  else
    memcpy(to, from, bytes);
}

void ptx_run_load(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  size_t bytes = (size_t)f->bytes * f->count;
  uint64_t addresses[PTX_LANES];
  PtxAccess access = (PtxAccess)f->way;
  uint32_t mask = w->mask, first = (uint32_t)__builtin_ctz(mask);
  ptx_addresses(w, f, addresses);
  Shape shape = shape_of(addresses, mask, bytes);
  if (shape == SHAPE_ONE && f->space != SPACE_LOCAL) {
    uint32_t lane = mask & (mask - 1) ? PTX_WHOLE_WARP : first;
    const uint8_t *p = ptx_reach(w, op, lane, f->space, addresses[first], bytes, access, NULL);
    if (p) unpack(w, f, p, 0, mask);
    return;
  }
  if (shape == SHAPE_ROW) {
    const uint8_t *p = reach_row(w, f, addresses[first], bytes, access);
    if (p) {
      unpack(w, f, p - first * bytes, bytes, mask);
      return;
    }
  }
  uint8_t values[PTX_LANES * 32];
  uint32_t slow = reach_lanes(w, f, addresses, bytes, access);
  for (uint32_t left = mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    const uint8_t *p = (const uint8_t *)(uintptr_t)addresses[i];
    if (slow >> i & 1) p = ptx_reach(w, op, i, f->space, addresses[i], bytes, access, NULL);
    if (!p) return;
    copy(values + i * bytes, p, bytes);
  }
  unpack(w, f, values, bytes, mask);
}

void ptx_run_store(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  size_t bytes = (size_t)f->bytes * f->count;
  uint64_t addresses[PTX_LANES];
  uint8_t values[PTX_LANES * 32];
  PtxAccess access = (PtxAccess)f->way;
  uint32_t mask = w->mask, first = (uint32_t)__builtin_ctz(mask);
  ptx_addresses(w, f, addresses);
  pack(w, f, values);
  if (shape_of(addresses, mask, bytes) == SHAPE_ROW) {
    uint8_t *p = reach_row(w, f, addresses[first], bytes, access);
    if (p) {
      memcpy(p, values + first * bytes, (size_t)__builtin_popcount(mask) * bytes);
      return;
    }
  }
  uint32_t slow = reach_lanes(w, f, addresses, bytes, access);
  for (uint32_t left = mask & ~slow; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    copy((uint8_t *)(uintptr_t)addresses[i], values + i * bytes, bytes);
  }
  for (uint32_t left = slow; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left);
    uint8_t *p = ptx_reach(w, op, i, f->space, addresses[i], bytes, access, values + i * bytes);
    if (!p) return;
    memcpy(p, values + i * bytes, bytes);
  }
}

/* A parameter of the kernel at a place known when it was decoded. */
void ptx_run_load_param(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  unpack(w, f, w->block->params.base + f->offset, 0, w->mask);
}
