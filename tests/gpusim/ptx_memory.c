/* The allocations that kernels may use, by address, and what the host does to them: see ptx.h. */
#include "ptx_shadow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PtxMemory *ptx_memory_new(void) {
  PtxMemory *memory = calloc(1, sizeof *memory);
  if (memory) memory->epoch = 1;
  return memory;
}

static void region_free(PtxRegion *region) {
  ptx_region_clear(region);
  free((char *)(uintptr_t)region->name);
  free(region);
}

void ptx_memory_free(PtxMemory *memory) {
  if (!memory) return;
  for (size_t i = 0; i < memory->len; i++) region_free(memory->regions[i]);
  for (size_t i = 0; i < PTX_FREED; i++) free(memory->freed[i].name);
  free(memory->regions);
  free(memory->rows);
  ptx_names_free(memory->names);
  free(memory);
}

/* Number of regions that begin at or before an address. */
static size_t rank_of(const PtxMemory *memory, uint64_t address) {
  size_t lo = 0, hi = memory->len;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if ((uint64_t)(uintptr_t)memory->regions[mid]->base <= address)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

static bool holds(const PtxRegion *region, uint64_t address) {
  return address - (uint64_t)(uintptr_t)region->base < region->bytes;
}

PtxRegion *ptx_memory_find(PtxMemory *memory, uint64_t address) {
  if (memory->last && holds(memory->last, address)) return memory->last;
  size_t rank = rank_of(memory, address);
  if (!rank || !holds(memory->regions[rank - 1], address)) return NULL;
  return memory->last = memory->regions[rank - 1];
}

void ptx_memory_add(PtxMemory *memory, void *base, size_t bytes, const char *name) {
  PtxRegion *region = malloc(sizeof *region);
  if (memory->len == memory->cap) {
    memory->cap = memory->cap ? 2 * memory->cap : 16;
    memory->regions = realloc(memory->regions, memory->cap * sizeof *memory->regions);
  }
  if (!region || !memory->regions || !ptx_region_init(region, base, bytes, strdup(name))) abort();
  size_t rank = rank_of(memory, (uint64_t)(uintptr_t)base);
  memmove(memory->regions + rank + 1, memory->regions + rank,
          (memory->len - rank) * sizeof *memory->regions);
  memory->regions[rank] = region;
  memory->len++;
}

bool ptx_memory_remove(PtxMemory *memory, const void *base) {
  size_t rank = rank_of(memory, (uint64_t)(uintptr_t)base);
  if (!rank || memory->regions[rank - 1]->base != base) return false;
  PtxRegion *region = memory->regions[rank - 1];
  memmove(memory->regions + rank - 1, memory->regions + rank,
          (memory->len - rank) * sizeof *memory->regions);
  memory->len--;
  memory->last = NULL;
  PtxFreed *freed = &memory->freed[memory->nfreed++ % PTX_FREED];
  free(freed->name);
  *freed = (PtxFreed){region->base, region->bytes, strdup(region->name)};
  region_free(region);
  return true;
}

void ptx_memory_describe(const PtxMemory *memory, uint64_t address, char *text, size_t size) {
  for (size_t i = 0; i < PTX_FREED; i++) {
    const PtxFreed *f = &memory->freed[i];
    if (f->name && address - (uint64_t)(uintptr_t)f->base < f->bytes) {
      snprintf(text, size, "%#llx, byte %llu of '%s', which was freed", (unsigned long long)address,
               (unsigned long long)(address - (uint64_t)(uintptr_t)f->base), f->name);
      return;
    }
  }
  size_t rank = rank_of(memory, address);
  if (!rank) {
    snprintf(text, size, "%#llx, which is in no allocation", (unsigned long long)address);
    return;
  }
  const PtxRegion *r = memory->regions[rank - 1];
  uint64_t offset = address - (uint64_t)(uintptr_t)r->base;
  snprintf(text, size, "%#llx, byte %llu of '%s', which has %zu", (unsigned long long)address,
           (unsigned long long)offset, r->name, r->bytes);
}

static bool host_fault(PtxFault *fault, PtxFaultKind kind, const char *what, const char *where) {
  *fault = (PtxFault){.kind = kind};
  snprintf(fault->text, sizeof fault->text, "the host %s %s", what, where);
  return false;
}

/* The region around a range. */
static PtxRegion *around(PtxMemory *memory, const void *address, size_t bytes, const char *what,
                         PtxFault *fault) {
  uint64_t at = (uint64_t)(uintptr_t)address;
  PtxRegion *region = ptx_memory_find(memory, at);
  char where[400];
  if (region && bytes <= region->bytes - (at - (uint64_t)(uintptr_t)region->base)) return region;
  ptx_memory_describe(memory, region ? (uint64_t)(uintptr_t)region->base + region->bytes : at,
                      where, sizeof where);
  host_fault(fault, PTX_FAULT_OUTSIDE, what, where);
  return NULL;
}

static size_t offset_in(const PtxRegion *region, const void *address) {
  return (size_t)((const uint8_t *)address - region->base);
}

bool ptx_memory_check_read(PtxMemory *memory, const void *address, size_t bytes, PtxFault *fault) {
  if (!bytes) return true;
  PtxRegion *region = around(memory, address, bytes, "reads", fault);
  if (!region) return false;
  size_t missing = ptx_region_unwritten(region, offset_in(region, address), bytes);
  if (missing == SIZE_MAX) return true;
  char where[300];
  snprintf(where, sizeof where, "byte %zu of '%s', which nobody wrote", missing, region->name);
  return host_fault(fault, PTX_FAULT_UNWRITTEN, "reads", where);
}

bool ptx_memory_check_write(PtxMemory *memory, void *address, size_t bytes, PtxFault *fault) {
  if (!bytes) return true;
  PtxRegion *region = around(memory, address, bytes, "writes", fault);
  if (!region) return false;
  ptx_region_mark(region, offset_in(region, address), bytes);
  return true;
}

bool ptx_memory_copy(PtxMemory *memory, void *to, const void *from, size_t bytes, PtxFault *fault) {
  if (!bytes) return true;
  PtxRegion *source = around(memory, from, bytes, "copies from", fault);
  PtxRegion *target = source ? around(memory, to, bytes, "copies to", fault) : NULL;
  if (!target) return false;
  memcpy(to, from, bytes);
  ptx_region_copy(target, offset_in(target, to), source, offset_in(source, from), bytes);
  return true;
}

void ptx_memory_forget(PtxMemory *memory, void *address, size_t bytes) {
  PtxFault fault;
  PtxRegion *region = bytes ? around(memory, address, bytes, "forgets", &fault) : NULL;
  if (region) ptx_region_forget(region, offset_in(region, address), bytes);
}
