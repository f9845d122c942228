/* Copies under way: see ptx_async.h. */
#include "ptx_async.h"

#include <stdlib.h>
#include <string.h>

#include "ptx_access.h"

typedef struct Copy {
  uint8_t *to;
  uint32_t lane, bytes;
  uint64_t group; /* of its lane */
  uint8_t data[16];
} Copy;

struct PtxAsync {
  uint64_t group[PTX_LANES]; /* that is being filled */
  uint32_t len, cap;
  Copy *copies;
};

static PtxAsync *async_of(PtxWarp *w) {
  if (!w->async) w->async = calloc(1, sizeof *w->async);
  if (!w->async) abort();
  return w->async;
}

static Copy *add_copy(PtxAsync *a) {
  if (a->len == a->cap) {
    a->cap = a->cap ? 2 * a->cap : 64;
    a->copies = realloc(a->copies, a->cap * sizeof *a->copies);
    if (!a->copies) abort();
  }
  return &a->copies[a->len++];
}

void ptx_run_async_copy(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  PtxAsync *a = async_of(w);
  PtxRegion *shared = &w->block->shared;
  PtxMemoryForm target = {.space = SPACE_SHARED,
                          .address = op->arg[0],
                          .address_wide = op->arg[4] != 0,
                          .offset = (int32_t)op->arg[3]};
  uint64_t from[PTX_LANES], to[PTX_LANES];
  uint32_t bytes = op->arg[2];
  const uint32_t *sizes = op->arg[1] == PTX_NO_ROW ? NULL : PTX_ROW(w, uint32_t, op->arg[1]);
  ptx_addresses(w, f, from);
  ptx_addresses(w, &target, to);
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(left), size = sizes && sizes[i] < bytes ? sizes[i] : bytes;
    uint64_t offset = to[i] - (uint64_t)(uintptr_t)shared->base;
    Copy copy = {.lane = i, .bytes = bytes, .group = a->group[i]};
    if (offset >= shared->bytes || bytes > shared->bytes - offset) {
      ptx_fail(w, op, (int)i, PTX_FAULT_OUTSIDE,
               "copies %u bytes to byte %lld of shared memory, which has %zu", bytes,
               (long long)offset, shared->bytes);
      return;
    }
    if (offset & (bytes - 1) || from[i] & (bytes - 1)) {
      ptx_fail(w, op, (int)i, PTX_FAULT_MISALIGNED,
               "copies %u bytes from %#llx to byte %llu of shared memory", bytes,
               (unsigned long long)from[i], (unsigned long long)offset);
      return;
    }
    for (uint32_t done = 0; done < size;) { /* a size that is no power of two, in pieces */
      uint32_t piece = (uint32_t)1 << (31 - __builtin_clz(size - done));
      const uint8_t *p =
          ptx_reach(w, op, i, SPACE_GLOBAL, from[i] + done, piece, ACCESS_READ, NULL);
      if (!p) return;
      memcpy(copy.data + done, p, piece);
      done += piece;
    }
    PtxCollision collision;
    PtxToucher who = ptx_toucher(w, shared);
    if (!ptx_region_pend(shared, offset, bytes, &who, i, &collision)) {
      ptx_fail_race(w, op, i, shared, &collision, true);
      return;
    }
    copy.to = shared->base + offset;
    *add_copy(a) = copy;
  }
}

void ptx_run_async_commit(PtxWarp *w, const PtxOp *op) {
  (void)op;
  PtxAsync *a = async_of(w);
  for (uint32_t i = 0; i < PTX_LANES; i++) a->group[i] += w->mask >> i & 1;
}

/* Copies of the lanes of a mask arrive, but for those of the last `keep` groups. */
static void land(PtxWarp *w, uint32_t mask, int64_t keep) {
  PtxAsync *a = w->async;
  PtxRegion *shared = &w->block->shared;
  PtxToucher who = ptx_toucher(w, shared);
  uint32_t left = 0;
  for (uint32_t i = 0; i < a->len; i++) {
    Copy *c = &a->copies[i];
    bool arrives =
        mask >> c->lane & 1 && (keep < 0 || (int64_t)c->group < (int64_t)a->group[c->lane] - keep);
    if (!arrives) {
      a->copies[left++] = *c;
      continue;
    }
    memcpy(c->to, c->data, c->bytes);
    ptx_region_land(shared, (size_t)(c->to - shared->base), c->bytes, &who, c->lane);
  }
  a->len = left;
}

void ptx_run_async_wait(PtxWarp *w, const PtxOp *op) {
  if (w->async) land(w, w->mask, op->imm);
}

void ptx_async_end(PtxWarp *w) {
  if (!w->async) return;
  land(w, UINT32_MAX, -1);
  memset(w->async->group, 0, sizeof w->async->group);
}

void ptx_async_free(PtxWarp *w) {
  if (!w->async) return;
  free(w->async->copies);
  free(w->async);
  w->async = NULL;
}
