/* What a collective or local conversion moves on this rank: boxes and the group, found once at
 * start from the types by the shared rules of runtime/abi.
 */
#ifndef DTM_RT_MOVES_H
#define DTM_RT_MOVES_H

#include "comm/comm.h"
#include "runtime/abi/image.h"

/* `count` elements at byte offsets of the arena. */
typedef struct RtRange {
  size_t src, dst, count;
} RtRange;

typedef struct Moves {
  RtBox *boxes;
  size_t nboxes;
  int32_t *group; /* world ranks, ascending by mesh position; NULL for local moves */
  int32_t ngroup;
  RtRange *ranges; /* ALL_REDUCE: what lies side by side is one */
  size_t nranges;
  int32_t keeps;               /* FILL: this rank keeps its value */
  int32_t identity;            /* FILL: every rank keeps it */
  size_t dst_bytes;            /* FILL: of the local block of dst */
  int64_t neutral;             /* FILL: 0 or 1 */
  RtBox *trimmed;              /* PULL_ROWS: room for the used rows of all boxes */
  int64_t groups, rows, width; /* PULL_ROWS: of the local block of dst [groups, rows, width] */
  uint32_t dtype;
} Moves;

/* For an action of kind START, PULL, PULL_ROWS, ALL_REDUCE, REDUCE_SCATTER, SLICE, FILL or COPY
 * whose mesh this rank (world rank) is in. 0, or -1 when memory is short. */
int dtm_rt_moves_find(const Image *image, const AbiAction *action, int32_t rank, Moves *out);
void dtm_rt_moves_free(Moves *moves);

/* The same pair by pair, for transports whose two sides both act. `pair` points at the source of a
 * pair of buffers; its destination follows.
 * Of a PULL: adds to *boxes, one malloc, what the world rank `receiver` pulls, of `sender` alone if
 * that is not -1; offsets count from the blocks of the pair. 0, or -1 when memory is short. */
int dtm_rt_moves_pulled(const Image *image, const AbiBuffer *pair, int32_t receiver, int32_t sender,
                        RtBox **boxes, size_t *nboxes);
/* Of a REDUCE_SCATTER: what the rank keeps of its source. 0 where that is nothing. */
int dtm_rt_moves_kept(const Image *image, const AbiBuffer *pair, int32_t rank, RtBox *box);
/* Elements of the block that a rank has of a buffer; 0 where it is not in its mesh. */
int64_t dtm_rt_moves_elements(const Image *image, const AbiBuffer *buffer, int32_t rank);

/* This rank's end of the channel of a POST or TAKE action, whose mesh it is in. 0, or -1 when
 * memory is short. */
int dtm_rt_channel_find(const Image *image, const AbiAction *action, int32_t rank, RtChannel *out);
void dtm_rt_channel_free(RtChannel *channel);

#endif
