/* Shadow of a region: one bit for each byte that was written, and two records for each word, who
 * wrote it last and who read it: ptx_page.h. */
#include "ptx_page.h"

#include <stdlib.h>

enum { PAGE = PTX_PAGE, PAGE_SHIFT = PTX_PAGE_SHIFT };

/* --- pages --------------------------------------------------------------------------------------
 */

static size_t npages(const PtxRegion *r) {
  return (r->bytes + PAGE - 1) / PAGE;
}

static void *or_die(void *p) {
  if (!p) abort(); /* tests have nothing better to do */
  return p;
}

bool ptx_region_init(PtxRegion *r, void *base, size_t bytes, const char *name) {
  *r = (PtxRegion){.base = base, .bytes = bytes, .name = name, .recorded = true};
  r->pages = calloc(npages(r) + 1, sizeof *r->pages);
  return r->pages != NULL;
}

void ptx_region_clear(PtxRegion *r) {
  for (size_t i = 0; r->pages && i < npages(r); i++)
    if (r->pages[i]) {
      free(r->pages[i]->records);
      free(r->pages[i]);
    }
  free(r->pages);
  free(r->reads);
  r->pages = NULL;
  r->reads = NULL;
}

PtxPage *ptx_page_at(PtxRegion *r, size_t offset) {
  PtxPage **page = &r->pages[offset >> PAGE_SHIFT];
  if (!*page) {
    *page = or_die(calloc(1, sizeof **page));
    (*page)->shift = 2;
  }
  return *page;
}

uint64_t *ptx_page_records(PtxPage *page, size_t offset, size_t bytes) {
  uint32_t shift = page->shift;
  while (((offset | bytes) & (((size_t)1 << shift) - 1)) != 0) shift--;
  if (page->records && shift == page->shift) return page->records;
  size_t n = PAGE >> shift, old = PAGE >> page->shift;
  uint64_t *records = or_die(calloc(2 * n, sizeof *records));
  if (page->records)
    for (size_t i = 0; i < n; i++) {
      size_t from = i >> (page->shift - shift);
      records[i] = page->records[from];
      records[n + i] = page->records[old + from];
    }
  free(page->records);
  page->records = records;
  page->shift = shift;
  return records;
}

/* A range of a region, page by page: `n` bytes at `at` of the page, which are at o_ of the region.
 */
#define FOR_PAGES(offset, bytes, at, n)                                                            \
  for (size_t end_ = (offset) + (bytes), o_ = (offset), at = o_ & (PAGE - 1),                      \
              n = end_ - o_ < PAGE - at ? end_ - o_ : PAGE - at;                                   \
       o_ < end_; o_ += n, at = 0, n = end_ - o_ < PAGE ? end_ - o_ : PAGE)

void ptx_region_mark(PtxRegion *r, size_t offset, size_t bytes) {
  if ((offset | bytes) & 3) r->poisoned = false;
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = ptx_page_at(r, o_);
    if (page->nwritten == PAGE) continue;
    for (size_t b = at; b < at + n;) {
      size_t first = b & 63, many = at + n - b < 64 - first ? at + n - b : 64 - first;
      uint64_t mask = ptx_bits(first, many), *word = &page->written[b >> 6];
      page->nwritten += (uint32_t)__builtin_popcountll(mask & ~*word);
      *word |= mask;
      b += many;
    }
  }
}

void ptx_region_forget(PtxRegion *r, size_t offset, size_t bytes) {
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = r->pages[o_ >> PAGE_SHIFT];
    if (!page) continue;
    for (size_t b = at; b < at + n;) {
      size_t first = b & 63, many = at + n - b < 64 - first ? at + n - b : 64 - first;
      uint64_t mask = ptx_bits(first, many), *word = &page->written[b >> 6];
      page->nwritten -= (uint32_t)__builtin_popcountll(mask & *word);
      *word &= ~mask;
      b += many;
    }
  }
}

void ptx_region_share(PtxRegion *r) {
  r->reads = or_die(malloc(sizeof *r->reads));
  r->reads->len = 0;
}

void ptx_region_begin(PtxRegion *r) {
  uint32_t *word = (uint32_t *)(void *)r->base;
  ptx_region_forget(r, 0, r->bytes);
  for (size_t i = 0; i < r->bytes / 4; i++) word[i] = PTX_POISON;
  r->poisoned = true;
  r->reads->len = 0;
}

size_t ptx_region_unwritten(const PtxRegion *r, size_t offset, size_t bytes) {
  FOR_PAGES(offset, bytes, at, n) {
    const PtxPage *page = r->pages[o_ >> PAGE_SHIFT];
    if (!page) return o_;
    if (page->nwritten == PAGE) continue;
    for (size_t b = at; b < at + n;) {
      size_t first = b & 63, many = at + n - b < 64 - first ? at + n - b : 64 - first;
      uint64_t missing = ptx_bits(first, many) & ~page->written[b >> 6];
      if (missing) return o_ - at + (b & ~(size_t)63) + (size_t)__builtin_ctzll(missing);
      b += many;
    }
  }
  return SIZE_MAX;
}

void ptx_region_copy(PtxRegion *to, size_t to_offset, const PtxRegion *from, size_t from_offset,
                     size_t bytes) {
  ptx_region_forget(to, to_offset, bytes);
  FOR_PAGES(from_offset, bytes, at, n) {
    const PtxPage *page = from->pages[o_ >> PAGE_SHIFT];
    size_t target = to_offset + (o_ - from_offset);
    if (!page || !page->nwritten) continue;
    if (page->nwritten == PAGE) {
      ptx_region_mark(to, target, n);
      continue;
    }
    for (size_t b = 0, run = 0; b <= n; b++) { /* runs of written bytes */
      bool written = b < n && page->written[(at + b) >> 6] >> ((at + b) & 63) & 1;
      if (written) {
        run++;
      } else if (run) {
        ptx_region_mark(to, target + b - run, run);
        run = 0;
      }
    }
  }
}

/* --- who touched --------------------------------------------------------------------------------
 */

/* Does nothing order the earlier access `old` before `mine`? */
static bool unordered(uint64_t old, uint64_t mine, const PtxClock *clock) {
  if (old < clock->floor << EPOCH_SHIFT) return false;
  if (old == PENDING || (old & WARP_MASK) == MANY_BLOCKS) return true;
  uint64_t epoch = old >> EPOCH_SHIFT;
  if (epoch < clock->begin) return true;
  if (epoch < clock->now) return false;
  if ((old ^ mine) & WARP_MASK) return true;
  return !((old ^ mine) & PHASE_MASK) && ((old ^ mine) & LANE_MASK);
}

static bool collide(PtxCollision *c, uint64_t old, const PtxClock *clock, size_t offset,
                    bool wrote) {
  *c = (PtxCollision){.offset = offset,
                      .wrote = wrote,
                      .pending = old == PENDING,
                      .other_block =
                          old >> EPOCH_SHIFT < clock->begin || (old & WARP_MASK) == MANY_BLOCKS,
                      .many = (old & WARP_MASK) == MANY_WARPS || (old & LANE_MASK) == MANY_LANES,
                      .warp = (uint32_t)(old >> WARP_SHIFT) & 63,
                      .lane = (uint32_t)(old >> LANE_SHIFT) & 63};
  return false;
}

bool ptx_region_touch(PtxRegion *r, size_t offset, size_t bytes, PtxAccess access,
                      const PtxToucher *who, uint32_t lane, bool same, PtxCollision *collision) {
  const PtxClock *clock = who->clock;
  uint64_t mine = ptx_record_of(who, lane);
  bool atomic = access >= ACCESS_ATOMIC;
  bool writes = access == ACCESS_WRITE || access == ACCESS_ATOMIC || access == ACCESS_ATOMIC_WRITE;
  PtxBounds bounds = ptx_bounds_of(clock);
  if (writes) ptx_region_writes(r, clock);
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = ptx_page_at(r, o_);
    uint64_t *wrote = ptx_page_records(page, at, n);
    uint32_t shift = page->shift;
    uint64_t *read = wrote + (PAGE >> shift);
    for (size_t j = at >> shift; j < (at + n) >> shift; j++) {
      size_t where = o_ - at + (j << shift);
      if (access == ACCESS_READ_CONSTANT && wrote[j] >= clock->launch << EPOCH_SHIFT)
        return collide(collision, wrote[j], clock, where, true);
      if (unordered(wrote[j], mine, clock) &&
          !(atomic && wrote[j] & ATOMIC && wrote[j] != PENDING) && !(same && wrote[j] != PENDING))
        return collide(collision, wrote[j], clock, where, true);
      if (writes) {
        if (unordered(read[j], mine, clock))
          return collide(collision, read[j], clock, where, false);
        wrote[j] = atomic ? mine | ATOMIC : mine;
      } else if (!atomic) {
        read[j] = ptx_join_readers(read[j], mine, &bounds);
      }
    }
  }
  return true;
}

void ptx_region_flush_reads(PtxRegion *r, const PtxClock *clock) {
  PtxBounds bounds = ptx_bounds_of(clock);
  PtxReadLog *log = r->reads;
  for (uint32_t i = 0; i < log->len; i++) {
    const PtxReads *reads = &log->reads[i];
    PtxToucher who = {clock, reads->warp, reads->phase};
    for (uint32_t left = reads->mask; left; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      uint64_t mine = ptx_record_of(&who, lane);
      size_t offset = (size_t)reads->first[lane] << 2;
      PtxPage *page = ptx_page_at(r, offset);
      uint64_t *read = ptx_page_records(page, 0, 4) + (PAGE >> page->shift);
      size_t first = (offset & (PAGE - 1)) >> page->shift;
      for (size_t j = first; j < first + (reads->words << 2 >> page->shift); j++)
        read[j] = ptx_join_readers(read[j], mine, &bounds);
    }
  }
  log->len = 0;
}

bool ptx_region_pend(PtxRegion *r, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane, PtxCollision *collision) {
  if (!ptx_region_touch(r, offset, bytes, ACCESS_WRITE, who, lane, false, collision)) return false;
  r->pending++;
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = ptx_page_at(r, o_);
    uint64_t *wrote = ptx_page_records(page, at, n);
    for (size_t j = at >> page->shift; j < (at + n) >> page->shift; j++) wrote[j] = PENDING;
  }
  return true;
}

void ptx_region_land(PtxRegion *r, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane) {
  ptx_region_writes(r, who->clock);
  r->pending--;
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = ptx_page_at(r, o_);
    uint64_t *wrote = ptx_page_records(page, at, n);
    for (size_t j = at >> page->shift; j < (at + n) >> page->shift; j++)
      wrote[j] = ptx_record_of(who, lane);
  }
  ptx_region_mark(r, offset, bytes);
}
