/* Shadow of a region: one bit for each byte that was written, and two records for each word, who
 * wrote it last and who read it. Records are of 4 bytes until a page sees a narrower access. */
#include "ptx_shadow.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PAGE_SHIFT = 12 };

struct PtxPage {
  uint64_t written[PAGE / 64]; /* a bit for each byte */
  uint32_t nwritten;
  uint32_t shift;    /* a record is of 1 << shift bytes */
  uint64_t *records; /* of writes, behind them those of reads; NULL until somebody touches it */
};

/* A record: epoch, phase of the warp, warp, lane, atomic. A greater number is a later access. */
#define EPOCH_SHIFT 28
#define PHASE_SHIFT 14
#define WARP_SHIFT 8
#define LANE_SHIFT 2
#define PHASE_MASK ((uint64_t)0x3fff << PHASE_SHIFT)
#define WARP_MASK ((uint64_t)63 << WARP_SHIFT)
#define LANE_MASK ((uint64_t)63 << LANE_SHIFT)
#define ATOMIC ((uint64_t)1 << 1)
#define MANY_WARPS ((uint64_t)63 << WARP_SHIFT)
#define MANY_BLOCKS ((uint64_t)62 << WARP_SHIFT)
#define MANY_LANES LANE_MASK
#define PENDING UINT64_MAX

/* --- pages --------------------------------------------------------------------------------------
 */

static size_t npages(const PtxRegion *r) {
  return (r->bytes + PAGE - 1) / PAGE;
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
  r->pages = NULL;
}

static void *or_die(void *p) {
  if (!p) abort(); /* tests have nothing better to do */
  return p;
}

static PtxPage *page_at(PtxRegion *r, size_t offset) {
  PtxPage **page = &r->pages[offset >> PAGE_SHIFT];
  if (!*page) {
    *page = or_die(calloc(1, sizeof **page));
    (*page)->shift = 2;
  }
  return *page;
}

/* Records at least as fine as an access of `bytes` at `offset`. */
static uint64_t *records_of(PtxPage *page, size_t offset, size_t bytes) {
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

/* Bits [first, first + n) of a word. */
static uint64_t bits(size_t first, size_t n) {
  return (n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << first;
}

/* Cuts a range into pages: calls stand in the loop with `page offset`, `at` in the page and `n`. */
#define FOR_PAGES(offset, bytes, at, n)                                                            \
  for (size_t end_ = (offset) + (bytes), o_ = (offset), at = o_ & (PAGE - 1),                      \
              n = end_ - o_ < PAGE - at ? end_ - o_ : PAGE - at;                                   \
       o_ < end_; o_ += n, at = 0, n = end_ - o_ < PAGE ? end_ - o_ : PAGE)

void ptx_region_mark(PtxRegion *r, size_t offset, size_t bytes) {
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = page_at(r, o_);
    if (page->nwritten == PAGE) continue;
    for (size_t b = at; b < at + n;) {
      size_t first = b & 63, many = at + n - b < 64 - first ? at + n - b : 64 - first;
      uint64_t mask = bits(first, many), *word = &page->written[b >> 6];
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
      uint64_t mask = bits(first, many), *word = &page->written[b >> 6];
      page->nwritten -= (uint32_t)__builtin_popcountll(mask & *word);
      *word &= ~mask;
      b += many;
    }
  }
}

size_t ptx_region_unwritten(const PtxRegion *r, size_t offset, size_t bytes) {
  FOR_PAGES(offset, bytes, at, n) {
    const PtxPage *page = r->pages[o_ >> PAGE_SHIFT];
    if (!page) return o_;
    if (page->nwritten == PAGE) continue;
    for (size_t b = at; b < at + n;) {
      size_t first = b & 63, many = at + n - b < 64 - first ? at + n - b : 64 - first;
      uint64_t missing = bits(first, many) & ~page->written[b >> 6];
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

static uint64_t record_of(const PtxToucher *who, uint32_t lane) {
  return who->clock->now << EPOCH_SHIFT | (uint64_t)who->phase << PHASE_SHIFT |
         (uint64_t)who->warp << WARP_SHIFT | (uint64_t)lane << LANE_SHIFT;
}

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

/* The readers `old` and `mine` in one record. */
static uint64_t join_readers(uint64_t old, uint64_t mine, const PtxClock *clock) {
  if (old < clock->floor << EPOCH_SHIFT) return mine;
  if ((old & WARP_MASK) == MANY_BLOCKS) return old;
  if (old >> EPOCH_SHIFT < clock->begin) return clock->now << EPOCH_SHIFT | MANY_BLOCKS;
  if (old >> EPOCH_SHIFT < clock->now) return mine;
  if ((old ^ mine) & WARP_MASK) return mine | MANY_WARPS | MANY_LANES;
  return (old ^ mine) & LANE_MASK ? mine | MANY_LANES : mine;
}

bool ptx_region_touch(PtxRegion *r, size_t offset, size_t bytes, PtxAccess access,
                      const PtxToucher *who, uint32_t lane, bool same, PtxCollision *collision) {
  const PtxClock *clock = who->clock;
  uint64_t mine = record_of(who, lane);
  bool atomic = access >= ACCESS_ATOMIC;
  bool writes = access == ACCESS_WRITE || access == ACCESS_ATOMIC || access == ACCESS_ATOMIC_WRITE;
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = page_at(r, o_);
    uint64_t *wrote = records_of(page, at, n);
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
        read[j] = join_readers(read[j], mine, clock);
      }
    }
  }
  return true;
}

/* Not more than 512 records at a time: 32 lanes of 16 bytes. Returns whether no record stands in
 * the way: each is old enough or of the same thread. `of_readers` lets those pass that stay as they
 * are. */
static bool row_is_free(const uint64_t *records, size_t n, uint64_t mine, uint32_t lane_shift,
                        const PtxClock *clock, bool of_readers) {
  uint64_t floor = clock->floor << EPOCH_SHIFT, begin = clock->begin << EPOCH_SHIFT,
           now = clock->now << EPOCH_SHIFT;
  uint64_t bad = 0;
  for (size_t j = 0; j < n; j++) {
    uint64_t old = records[j];
    uint64_t me = mine + ((uint64_t)(j >> lane_shift) << LANE_SHIFT);
    uint64_t many = (old & WARP_MASK) == MANY_BLOCKS;
    uint64_t earlier = (old < floor) | ((old >= begin) & (old < now) & (many ^ 1));
    uint64_t own = ((old ^ me) & ~(PHASE_MASK | ATOMIC)) == 0;
    bad |= !(earlier | own | (many & of_readers & (old >= floor)));
  }
  return !bad;
}

bool ptx_region_touch_row(PtxRegion *r, size_t offset, size_t bytes, PtxAccess access,
                          const PtxToucher *who, uint32_t first, uint32_t lanes) {
  const PtxClock *clock = who->clock;
  bool writes = access == ACCESS_WRITE;
  if (access > ACCESS_WRITE || bytes > 16) return false;
  for (int commit = 0; commit < 2; commit++) {
    uint64_t mine = record_of(who, first);
    FOR_PAGES(offset, lanes * bytes, at, n) {
      PtxPage *page = page_at(r, o_);
      uint64_t *wrote = records_of(page, at, bytes);
      uint32_t shift = page->shift, lane_shift = (uint32_t)__builtin_ctzll(bytes) - shift;
      size_t begin = at >> shift, many = n >> shift;
      uint64_t *read = wrote + (PAGE >> shift) + begin;
      wrote += begin;
      if (!commit) {
        if (!row_is_free(wrote, many, mine, lane_shift, clock, false) ||
            !row_is_free(read, many, mine, lane_shift, clock, !writes))
          return false;
        if (access == ACCESS_READ_CONSTANT)
          for (size_t j = 0; j < many; j++)
            if (wrote[j] >= clock->launch << EPOCH_SHIFT) return false;
      } else if (writes) {
        for (size_t j = 0; j < many; j++)
          wrote[j] = mine + ((uint64_t)(j >> lane_shift) << LANE_SHIFT);
      } else {
        uint64_t floor = clock->floor << EPOCH_SHIFT;
        for (size_t j = 0; j < many; j++) {
          uint64_t old = read[j], me = mine + ((uint64_t)(j >> lane_shift) << LANE_SHIFT);
          read[j] = old >= floor && (old & WARP_MASK) == MANY_BLOCKS ? old : me;
        }
      }
      mine += (uint64_t)(many >> lane_shift) << LANE_SHIFT;
    }
  }
  return true;
}

/* The bounds between which a record tells of an earlier launch, an earlier block, an earlier epoch.
 */
typedef struct Bounds {
  uint64_t floor, begin, now, launch;
} Bounds;

static Bounds bounds_of(const PtxClock *clock) {
  return (Bounds){clock->floor << EPOCH_SHIFT, clock->begin << EPOCH_SHIFT,
                  clock->now << EPOCH_SHIFT, clock->launch << EPOCH_SHIFT};
}

/* Plainly ordered before `mine`, or of the same thread. */
static inline bool plain(uint64_t old, uint64_t mine, const Bounds *b) {
  if (old < b->floor || !((old ^ mine) & ~(PHASE_MASK | ATOMIC))) return true;
  return old >= b->begin && old < b->now && (old & WARP_MASK) != MANY_BLOCKS;
}

/* One access of `n` records; false when it must be looked at closely. */
static inline bool touch_records(uint64_t *wrote, uint64_t *read, size_t n, PtxAccess access,
                                 uint64_t mine, const Bounds *b, const PtxClock *clock) {
  for (size_t j = 0; j < n; j++)
    if (!plain(wrote[j], mine, b)) return false;
  if (access == ACCESS_WRITE) {
    for (size_t j = 0; j < n; j++)
      if (!plain(read[j], mine, b)) return false;
    for (size_t j = 0; j < n; j++) wrote[j] = mine;
    return true;
  }
  if (access == ACCESS_READ_CONSTANT)
    for (size_t j = 0; j < n; j++)
      if (wrote[j] >= b->launch) return false;
  for (size_t j = 0; j < n; j++)
    read[j] = plain(read[j], mine, b) ? mine : join_readers(read[j], mine, clock);
  return true;
}

uint32_t ptx_region_touch_lanes(PtxRegion *r, const uint64_t *offsets, uint32_t mask, size_t bytes,
                                PtxAccess access, const PtxToucher *who, bool recorded) {
  Bounds bounds = bounds_of(who->clock);
  uint64_t lane0 = record_of(who, 0), number = UINT64_MAX, *wrote = NULL, *read = NULL;
  uint32_t unsettled = 0, shift = 0;
  bool writes = access == ACCESS_WRITE, whole = false;
  PtxPage *page = NULL;
  if (access > ACCESS_WRITE) return mask;
  for (uint32_t left = mask; left; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    size_t at = offsets[lane] & (PAGE - 1);
    if (offsets[lane] >> PAGE_SHIFT != number) { /* most lanes are in the page of the one before */
      number = offsets[lane] >> PAGE_SHIFT;
      page = r->pages[number];
      if (page && recorded && (!page->records || bytes & (((size_t)1 << page->shift) - 1)))
        page = NULL; /* its records are to be made first */
      if (page) {
        shift = page->shift;
        wrote = page->records;
        read = recorded ? wrote + (PAGE >> shift) : NULL;
        whole = page->nwritten == PAGE;
      }
    }
    unsettled |= 1u << lane;
    if (!page) continue;
    uint64_t want = bits(at & 63, bytes), *word = &page->written[at >> 6];
    if (!writes && !whole && (*word & want) != want) continue;
    if (recorded) {
      uint64_t mine = lane0 + ((uint64_t)lane << LANE_SHIFT);
      size_t first = at >> shift, n = bytes >> shift;
      if (n == 1
              ? !touch_records(wrote + first, read + first, 1, access, mine, &bounds, who->clock)
              : !touch_records(wrote + first, read + first, n, access, mine, &bounds, who->clock))
        continue;
    }
    unsettled &= ~(1u << lane);
    if (writes && !whole && (*word & want) != want) {
      page->nwritten += (uint32_t)__builtin_popcountll(want & ~*word);
      *word |= want;
    }
  }
  return unsettled;
}

bool ptx_region_pend(PtxRegion *r, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane, PtxCollision *collision) {
  if (!ptx_region_touch(r, offset, bytes, ACCESS_WRITE, who, lane, false, collision)) return false;
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = page_at(r, o_);
    uint64_t *wrote = records_of(page, at, n);
    for (size_t j = at >> page->shift; j < (at + n) >> page->shift; j++) wrote[j] = PENDING;
  }
  return true;
}

void ptx_region_land(PtxRegion *r, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane) {
  FOR_PAGES(offset, bytes, at, n) {
    PtxPage *page = page_at(r, o_);
    uint64_t *wrote = records_of(page, at, n);
    for (size_t j = at >> page->shift; j < (at + n) >> page->shift; j++)
      wrote[j] = record_of(who, lane);
  }
  ptx_region_mark(r, offset, bytes);
}
