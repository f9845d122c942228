/* What of a move a processor does within its rank's memory. */
#ifndef DTM_RT_MOVES_LOCAL_H
#define DTM_RT_MOVES_LOCAL_H

#include "device/moves.h"

/* PULL_ROWS: the boxes of the rows that are used, in moves->trimmed; zeros for the other rows of
 * dst. `used` is this rank's block, of integers of type `dtype`. The number of boxes, or -1 when a
 * number of rows is not in [0, moves->rows]: *bad. */
int64_t dtm_rt_moves_rows(const Moves *moves, void *dst, const void *used, uint32_t dtype,
                          int64_t *bad);

/* SLICE, FILL, COPY: dst and src are addresses in the arena. */
void dtm_rt_moves_local(const Moves *moves, const AbiAction *action, void *dst, const void *src,
                        int threads);

#endif
