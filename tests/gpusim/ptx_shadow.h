/* What is known about memory beside its bytes: which were written, and who touched each last.
 *
 * Time: an epoch is what one block does between two barriers. Epochs are numbered over all
 * launches, and blocks run one after the other, so one number tells whether an earlier access
 * belongs to an earlier launch, another block of this one, or this block before a barrier. */
#ifndef DTM_TESTS_GPUSIM_PTX_SHADOW_H
#define DTM_TESTS_GPUSIM_PTX_SHADOW_H

#include "ptx.h"

typedef struct PtxPage PtxPage;
typedef struct PtxReadLog PtxReadLog;
typedef struct PtxNames PtxNames;

/* A range of addresses that kernels may use. */
typedef struct PtxRegion {
  uint8_t *base;
  size_t bytes;
  const char *name;
  PtxPage **pages; /* NULL where nothing happened yet */
  bool read_only;
  bool recorded; /* who touched it */
  /* Of shared memory only. While nobody writes, who reads is kept in a list, which the next barrier
   * empties. What nobody wrote holds PTX_POISON, unless a word was written in part. */
  PtxReadLog *reads;
  uint64_t wrote_at; /* epoch of the last write */
  uint32_t pending;  /* copies under way */
  bool poisoned;
} PtxRegion;

#define PTX_POISON 0xa5c3e10fu

enum { PTX_FREED = 64 };

/* For messages. */
typedef struct PtxFreed {
  void *base;
  size_t bytes;
  char *name;
} PtxFreed;

struct PtxMemory {
  PtxRegion **regions; /* by address */
  size_t len, cap;
  PtxFreed freed[PTX_FREED]; /* the last ones */
  size_t nfreed;
  PtxRegion *last; /* found by the last search */
  uint64_t epoch;  /* of the last block that ran */
  /* Registers of a block. A launch finds in them what the last one left: a value that PTX leaves
   * undefined is any, and to clear megabytes costs more than a small kernel. */
  uint8_t *rows;
  size_t rows_bytes;
  PtxNames *names; /* of modules; NULL until the first is loaded */
};

void ptx_names_free(PtxNames *names);

typedef struct PtxClock {
  uint64_t now;    /* epoch */
  uint64_t begin;  /* first epoch of the block */
  uint64_t floor;  /* what was touched before it is ordered before the block */
  uint64_t launch; /* first epoch of the launch */
} PtxClock;

typedef enum PtxAccess {
  ACCESS_READ,
  ACCESS_READ_CONSTANT, /* ld.nc: nobody may write it during the launch */
  ACCESS_WRITE,
  ACCESS_ATOMIC, /* reads and writes; does not race with its like */
  ACCESS_ATOMIC_READ,
  ACCESS_ATOMIC_WRITE,
} PtxAccess;

bool ptx_region_init(PtxRegion *region, void *base, size_t bytes, const char *name);
void ptx_region_clear(PtxRegion *region);
/* Makes it shared memory of a block. */
void ptx_region_share(PtxRegion *region);
/* A new block: nothing of shared memory is written. */
void ptx_region_begin(PtxRegion *region);
/* A range is unwritten again; who touched it last stays known. */
void ptx_region_forget(PtxRegion *region, size_t offset, size_t bytes);
void ptx_region_mark(PtxRegion *region, size_t offset, size_t bytes);
/* Offset of the first unwritten byte of a range; SIZE_MAX when all are written. */
size_t ptx_region_unwritten(const PtxRegion *region, size_t offset, size_t bytes);

/* What is written of a range becomes written of another one of as many bytes, and nothing else of
 * that. */
void ptx_region_copy(PtxRegion *to, size_t to_offset, const PtxRegion *from, size_t from_offset,
                     size_t bytes);

/* The region around an address; NULL when there is none. */
PtxRegion *ptx_memory_find(PtxMemory *memory, uint64_t address);
/* Fills the text of a fault about an address that is in no region. */
void ptx_memory_describe(const PtxMemory *memory, uint64_t address, char *text, size_t size);

/* Who touches: a thread. */
typedef struct PtxToucher {
  const PtxClock *clock;
  uint32_t warp, phase;
} PtxToucher;

/* Whom an access collides with. */
typedef struct PtxCollision {
  size_t offset; /* in the region */
  bool other_block, wrote, pending, many;
  uint32_t warp, lane; /* in this block */
} PtxCollision;

/* One access of `bytes` by a lane: notes it, and returns false when it races. A store of what is
 * there already (`same`) does not race with other stores. */
bool ptx_region_touch(PtxRegion *region, size_t offset, size_t bytes, PtxAccess access,
                      const PtxToucher *who, uint32_t lane, bool same, PtxCollision *collision);
/* Bytes that a copy under way will write: nobody may touch them, until ptx_region_land. */
bool ptx_region_pend(PtxRegion *region, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane, PtxCollision *collision);
void ptx_region_land(PtxRegion *region, size_t offset, size_t bytes, const PtxToucher *who,
                     uint32_t lane);

#endif
