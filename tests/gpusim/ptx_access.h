/* How operations reach memory, with every check on the way. */
#ifndef DTM_TESTS_GPUSIM_PTX_ACCESS_H
#define DTM_TESTS_GPUSIM_PTX_ACCESS_H

#include "ptx_code.h"

/* Instead of a lane: all lanes of the warp. */
enum { PTX_WHOLE_WARP = 63 };

/* Addresses of the lanes of a memory operation, generic ones also for shared memory. */
void ptx_addresses(const PtxWarp *warp, const PtxMemoryForm *form, uint64_t *out);

/* Where `bytes` at a generic address are, for an access of `lane`: in an allocation, aligned,
 * written when they are read, not raced for; writes are noted. `value` is what a plain write will
 * store there. NULL after a fault. */
uint8_t *ptx_reach(PtxWarp *warp, const PtxOp *op, uint32_t lane, PtxSpace space, uint64_t address,
                   size_t bytes, PtxAccess access, const void *value);

/* The region around an address of a space, NULL when there is none. */
PtxRegion *ptx_region_of(PtxWarp *warp, PtxSpace space, uint64_t address);
/* Reports a collision. */
void ptx_fail_race(PtxWarp *warp, const PtxOp *op, uint32_t lane, const PtxRegion *region,
                   const PtxCollision *collision, bool writes);
PtxToucher ptx_toucher(const PtxWarp *warp, const PtxRegion *region);

/* Who touches a region is recorded, unless nobody wants to know. */
bool ptx_recorded(const PtxWarp *warp, const PtxRegion *region);

#endif
