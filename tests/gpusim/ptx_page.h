/* The shadow's own data: pages, records of who touched a word, and the readers of shared memory
 * that are not recorded yet. For ptx_shadow.c, which knows every case, and ptx_wide.inc, which is
 * quick in the plain ones.
 *
 * A record is of 4 bytes until a page sees a narrower access. It holds epoch, phase of the warp,
 * warp, lane, atomic: a greater one is a later access. */
#ifndef DTM_TESTS_GPUSIM_PTX_PAGE_H
#define DTM_TESTS_GPUSIM_PTX_PAGE_H

#include "ptx_shadow.h"

enum { PTX_PAGE = 4096, PTX_PAGE_SHIFT = 12 };

struct PtxPage {
  uint64_t written[PTX_PAGE / 64]; /* a bit for each byte */
  uint32_t nwritten;
  uint32_t shift;    /* a record is of 1 << shift bytes */
  uint64_t *records; /* of writes, behind them those of reads; NULL until somebody touches it */
};

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
#define PENDING ((uint64_t)INT64_MAX) /* records are compared as signed numbers */

/* Reads of shared memory since the last barrier, while nobody wrote there: words of 4 bytes. */
typedef struct PtxReads {
  uint32_t mask, warp, phase, words; /* words of a lane */
  uint16_t first[32];                /* word of each lane */
} PtxReads;

enum { PTX_READS = 1024 };

struct PtxReadLog {
  uint64_t epoch; /* in which these are */
  uint32_t len;
  PtxReads reads[PTX_READS];
};

/* Bits [first, first + n) of a word. */
static inline uint64_t ptx_bits(size_t first, size_t n) {
  return (n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << first;
}

static inline uint64_t ptx_record_of(const PtxToucher *who, uint32_t lane) {
  return who->clock->now << EPOCH_SHIFT | (uint64_t)who->phase << PHASE_SHIFT |
         (uint64_t)who->warp << WARP_SHIFT | (uint64_t)lane << LANE_SHIFT;
}

/* The bounds between which a record tells of an earlier launch, an earlier block, an earlier epoch.
 */
typedef struct PtxBounds {
  int64_t floor, begin, now, launch;
} PtxBounds;

static inline PtxBounds ptx_bounds_of(const PtxClock *clock) {
  return (PtxBounds){(int64_t)(clock->floor << EPOCH_SHIFT), (int64_t)(clock->begin << EPOCH_SHIFT),
                     (int64_t)(clock->now << EPOCH_SHIFT), (int64_t)(clock->launch << EPOCH_SHIFT)};
}

/* Plainly ordered before `mine`, or of the same thread. */
static inline bool ptx_plain(uint64_t old, uint64_t mine, const PtxBounds *b) {
  if ((int64_t)old < b->floor || !((old ^ mine) & ~(PHASE_MASK | ATOMIC))) return true;
  return (int64_t)old >= b->begin && (int64_t)old < b->now && (old & WARP_MASK) != MANY_BLOCKS;
}

/* The readers `old` and `mine` in one record. */
static inline uint64_t ptx_join_readers(uint64_t old, uint64_t mine, const PtxBounds *b) {
  if ((int64_t)old < b->floor) return mine;
  if ((old & WARP_MASK) == MANY_BLOCKS) return old;
  if ((int64_t)old < b->begin) return (uint64_t)b->now | MANY_BLOCKS;
  if ((int64_t)old < b->now) return mine;
  if ((old ^ mine) & WARP_MASK) return mine | MANY_WARPS | MANY_LANES;
  return (old ^ mine) & LANE_MASK ? mine | MANY_LANES : mine;
}

/* The page of a byte, made where there was none. */
PtxPage *ptx_page_at(PtxRegion *region, size_t offset);
/* Records of a page at least as fine as an access of `bytes` at `offset`. */
uint64_t *ptx_page_records(PtxPage *page, size_t offset, size_t bytes);

/* Somebody writes: what was read since the last barrier is needed now. */
void ptx_region_flush_reads(PtxRegion *region, const PtxClock *clock);
static inline void ptx_region_writes(PtxRegion *region, const PtxClock *clock) {
  if (!region->reads) return;
  if (region->reads->len && region->reads->epoch == clock->now)
    ptx_region_flush_reads(region, clock);
  region->wrote_at = clock->now;
}

#endif
