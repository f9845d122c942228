/* Memory as operations reach it: which region an address is in, and every check of one access of
 * one lane, with the fault that it finds. Whole warps in the plain cases: ptx_wide.inc. */
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

bool ptx_recorded(const PtxWarp *w, const PtxRegion *region) {
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
  if (ptx_recorded(w, region) &&
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
