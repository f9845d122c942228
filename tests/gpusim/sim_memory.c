/* Memory of devices and pinned memory of the host, and what copies and fills it: see sim.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpusim/sim_memory.h"

enum { GUARD = 4096, PAGE = 4096, SPAN = 1 << 30 };

/* Addresses that device memory is taken from, one block behind the other: all of it is shown and
 * hidden in one call. */
typedef struct SimSpan SimSpan;
struct SimSpan {
  SimSpan *next;
  char *base;
  size_t used, room;
};

static SimSpan *spans;

/* Pinned memory is mapped between two pages that nobody may touch, and becomes such pages for good
 * when it is freed. Nothing else ever lies at an address that was freed, on a device neither. */
struct SimBlock {
  SimBlock *next;
  SimDevice *device; /* NULL: pinned memory */
  char *address;
  size_t bytes, mapped; /* mapped: without guards */
};

static bool shown;

static void protect(int how) {
  for (const SimSpan *s = spans; s; s = s->next)
    if (mprotect(s->base, s->used, how) != 0) abort();
}

void sim_memory_show(void) {
  if (shown) return;
  protect(PROT_READ | PROT_WRITE);
  shown = true;
}

void sim_memory_hide(void) {
  if (!shown) return;
  protect(PROT_NONE);
  shown = false;
}

static SimBlock *block_at(const SimDevice *device, const void *address, size_t bytes) {
  const char *at = address;
  for (SimBlock *b = sim_process()->blocks; b; b = b->next)
    if (b->device == device && at >= b->address && at < b->address + b->bytes)
      return bytes <= (size_t)(b->address + b->bytes - at) ? b : NULL;
  return NULL;
}

bool sim_memory_pinned(const void *address, size_t bytes) {
  return block_at(NULL, address, bytes) != NULL;
}

bool sim_memory_on(const SimDevice *device, const void *address, size_t bytes) {
  return block_at(device, address, bytes) != NULL;
}

static void *reserve(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* Whole pages, between guards, of the span that is being filled; NULL when there are no more. */
static char *take_from_span(size_t mapped) {
  size_t need = mapped + 2 * GUARD;
  if (!spans || spans->room - spans->used < need) {
    SimSpan *s = calloc(1, sizeof *s);
    if (!s) abort();
    *s = (SimSpan){.next = spans, .room = need > SPAN ? need : SPAN};
    s->base = reserve(s->room);
    if (!s->base) {
      free(s);
      return NULL;
    }
    spans = s;
  }
  char *base = spans->base + spans->used;
  spans->used += need - GUARD;
  if (shown && mprotect(base, need - GUARD, PROT_READ | PROT_WRITE) != 0) abort();
  return base + GUARD;
}

static char *take_pinned(size_t mapped) {
  char *base = reserve(mapped + 2 * GUARD);
  if (base && mprotect(base + GUARD, mapped, PROT_READ | PROT_WRITE) != 0) abort();
  return base ? base + GUARD : NULL;
}

void *sim_memory_alloc(SimDevice *device, size_t bytes) {
  SimProcess *p = sim_process();
  size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
  if (mapped < bytes) return NULL;
  if (device && mapped > p->memory - device->allocated) return NULL;
  char *address = device ? take_from_span(mapped) : take_pinned(mapped);
  if (!address) return NULL;
  SimBlock *b = calloc(1, sizeof *b);
  if (!b) abort();
  *b = (SimBlock){p->blocks, device, address, bytes, mapped};
  p->blocks = b;
  if (device) {
    char name[64];
    snprintf(name, sizeof name, "allocation of %zu bytes", bytes);
    device->allocated += mapped;
    ptx_memory_add(device->memory, b->address, bytes, name);
  }
  return b->address;
}

bool sim_memory_free(SimDevice *device, void *address) {
  SimBlock **at = &sim_process()->blocks;
  while (*at && ((*at)->device != device || (*at)->address != address)) at = &(*at)->next;
  SimBlock *b = *at;
  if (!b) return false;
  if (device) {
    ptx_memory_remove(device->memory, address);
    device->allocated -= b->mapped;
    if (b->mapped && madvise(b->address, b->mapped, MADV_DONTNEED) != 0) abort();
  } else if (mmap(b->address, b->mapped, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    abort();
  }
  *at = b->next;
  free(b);
  return true;
}

void sim_memory_free_all(SimDevice *device) {
  for (SimBlock *b = sim_process()->blocks, *next; b; b = next) {
    next = b->next;
    if (b->device == device) sim_memory_free(device, b->address);
  }
}

/* --- copies ----------------------------------------------------------------------------------- */

typedef struct Copy {
  SimOp op;
  SimCopy kind;
  void *to;
  const void *from;
  size_t bytes;
  void *kept; /* pageable memory as it was at the call */
} Copy;

static SimPoll copy_step(SimOp *op) {
  Copy *c = (Copy *)op;
  PtxMemory *memory = op->stream->device->memory;
  PtxFault fault = {0};
  bool fine = true;
  sim_memory_show();
  switch (c->kind) {
  case SIM_TO_DEVICE:
    fine = ptx_memory_check_write(memory, c->to, c->bytes, &fault);
    if (fine) memcpy(c->to, c->kept ? c->kept : c->from, c->bytes);
    break;
  case SIM_TO_HOST:
    fine = ptx_memory_check_read(memory, c->from, c->bytes, &fault);
    if (fine) memcpy(c->to, c->from, c->bytes);
    break;
  case SIM_ON_DEVICE:
    fine = ptx_memory_copy(memory, c->to, c->from, c->bytes, &fault);
    break;
  }
  return fine ? SIM_DONE : sim_fault(op->stream->device, &fault, op->kind->name);
}

/* Until the bytes arrive nobody may use what lies there; those of pageable memory are taken now. */
static void copy_enter(SimOp *op) {
  Copy *c = (Copy *)op;
  if (c->kind == SIM_TO_HOST) memset(c->to, 0xff, c->bytes);
  if (c->kind == SIM_TO_DEVICE && !sim_memory_pinned(c->from, c->bytes)) {
    c->kept = malloc(c->bytes ? c->bytes : 1);
    if (!c->kept) abort();
    memcpy(c->kept, c->from, c->bytes);
  }
}

static SimOp *copy_clone(const SimOp *op) {
  const Copy *c = (const Copy *)op;
  return sim_copy_new(c->kind, c->to, c->from, c->bytes);
}

static void copy_free(SimOp *op) {
  free(((Copy *)op)->kept);
  free(op);
}

static const SimKind to_device = {"copy to the device", copy_step, copy_enter,
                                  copy_clone,           copy_free, false};
static const SimKind to_host = {"copy to the host", copy_step, copy_enter,
                                copy_clone,         copy_free, false};
static const SimKind on_device = {"copy on the device", copy_step, NULL,
                                  copy_clone,           copy_free, false};

SimOp *sim_copy_new(SimCopy kind, void *to, const void *from, size_t bytes) {
  Copy *c = calloc(1, sizeof *c);
  if (!c) abort();
  const SimKind *kinds[] = {
      [SIM_TO_DEVICE] = &to_device, [SIM_TO_HOST] = &to_host, [SIM_ON_DEVICE] = &on_device};
  *c = (Copy){{.kind = kinds[kind]}, kind, to, from, bytes, NULL};
  return &c->op;
}

typedef struct Fill {
  SimOp op;
  void *to;
  unsigned char value;
  size_t n;
} Fill;

static SimPoll fill_step(SimOp *op) {
  Fill *f = (Fill *)op;
  PtxFault fault = {0};
  sim_memory_show();
  if (!ptx_memory_check_write(op->stream->device->memory, f->to, f->n, &fault))
    return sim_fault(op->stream->device, &fault, op->kind->name);
  memset(f->to, f->value, f->n);
  return SIM_DONE;
}

static SimOp *fill_clone(const SimOp *op) {
  const Fill *f = (const Fill *)op;
  return sim_fill_new(f->to, f->value, f->n);
}

static void fill_free(SimOp *op) {
  free(op);
}

static const SimKind fill = {"memset", fill_step, NULL, fill_clone, fill_free, false};

SimOp *sim_fill_new(void *to, unsigned char value, size_t n) {
  Fill *f = calloc(1, sizeof *f);
  if (!f) abort();
  *f = (Fill){{.kind = &fill}, to, value, n};
  return &f->op;
}
