/* Putting a CudaMovePlan together: what move_plan.c, reduce_plan.c and channel_plan.c share. */
#ifndef DTM_RT_DEVICE_CUDA_PLAN_BUILD_H
#define DTM_RT_DEVICE_CUDA_PLAN_BUILD_H

#include <stdbool.h>

#include "device/cuda/move_plan.h"
#include "device/moves.h"

/* Boxes that one rank takes of another, and where the block of their pair begins: bytes in the
 * space that is read or written. */
typedef struct BoxList {
  RtBox *data;
  int64_t *at;
  size_t n, room;
} BoxList;

/* Boxes of one copy, to become a step. */
typedef struct CopyList {
  CudaBox *data;
  uint32_t n, room;
  int64_t tiles;
} CopyList;

typedef struct PlanBuild {
  CudaMovePlan *plan;
  const Image *image;
  const AbiAction *action;
  uint32_t kind; /* of what is planned: of a START, what it begins */
  uint32_t op;   /* AbiReduce */
  int32_t rank;  /* of the world */
  uint32_t dtype;
  int64_t element;              /* bytes */
  uint64_t base[2], step[2];    /* of SRC and DST: arena offset, bytes from slot to slot */
  CopyList pack, local, unpack; /* SRC to SCRATCH, SRC to DST, SCRATCH to DST */
  CudaCall *calls;              /* of the group that is put together */
  uint32_t ncalls;
  size_t calls_room, step_room, call_room, box_room;
  int failed; /* memory is short: nothing more is added */
} PlanBuild;

void plan_begin(PlanBuild *b, const Image *image, const AbiAction *action, int32_t rank,
                CudaMovePlan *plan);
/* 0, or -1 when memory was short. */
int plan_end(PlanBuild *b);

/* Bytes from the first source (destination) of an action to that of a pair. */
int64_t plan_src_at(const PlanBuild *b, uint32_t pair);
int64_t plan_dst_at(const PlanBuild *b, uint32_t pair);
static inline const AbiBuffer *plan_pair(const PlanBuild *b, uint32_t pair) {
  return &b->image->buffer[b->action->buffers + 2 * pair];
}
static inline uint32_t plan_pairs(const PlanBuild *b) {
  return b->kind == ABI_PULL_ROWS ? 1 : b->action->nbuffers / 2;
}

/* Adds a box whose offsets count from bytes src and dst of two spaces. */
void plan_copy(PlanBuild *b, CopyList *list, CudaSpace from, CudaSpace to, const RtBox *box,
               int64_t src, int64_t dst);
/* Likewise from SRC to DST; nothing for one that is already where it belongs. */
void plan_local(PlanBuild *b, const RtBox *box, int64_t src, int64_t dst);
void plan_call(PlanBuild *b, CudaCall call);
/* Steps out of what was put together: copies into scratch memory and within the rank, one group of
 * calls, copies out of scratch memory. The lists are empty then. */
void plan_flush(PlanBuild *b);
void plan_step(PlanBuild *b, CudaStep step);
/* Bytes of scratch memory that `bytes` take. */
static inline int64_t plan_room(int64_t bytes) {
  enum { ALIGN = 256 };
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}
/* Bytes that `bytes` take of a chunk of scratch memory, whose parts lie one behind the other. */
static inline int64_t plan_part(int64_t bytes) {
  enum { ALIGN = 16 };
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}
/* `bytes` of scratch memory, aligned; where they lie. */
int64_t plan_scratch(PlanBuild *b, int64_t bytes);

void plan_add_box(PlanBuild *b, BoxList *list, const RtBox *box, int64_t at);
void plan_list_free(BoxList *list);

int64_t plan_count(const RtBox *box);
/* The elements of a box lie side by side, in row-major order, in the source / the destination. */
bool plan_dense_src(const RtBox *box);
bool plan_dense_dst(const RtBox *box);
/* The same box with its elements side by side from element 0 on, at one end. */
RtBox plan_packed_src(const RtBox *box);
RtBox plan_packed_dst(const RtBox *box);

/* Sends to rank `peer` of the communicator what it takes of this rank, or receives of it what this
 * rank takes: boxes as the taker lists them. The messages are those of the same call at the other
 * end: boxes that are dense at both ends and not small alone, the others as one, packed where they
 * must be. Boxes that travel in place lie in `space`; packed are those of SRC, unpacked into DST.
 */
void plan_exchange(PlanBuild *b, bool sends, int32_t peer, const BoxList *boxes, CudaSpace space);

/* The place of a rank in a list that has it. */
static inline int32_t plan_place(const int32_t *ranks, int32_t rank) {
  int32_t i = 0;
  while (ranks[i] != rank) i++;
  return i;
}

/* More than a quarter of padding in at least 1 MiB: see move_plan.h. */
static inline bool plan_wasteful(int64_t padded, int64_t bytes) {
  enum { MIN_BYTES = 1 << 20 };
  return padded >= MIN_BYTES && padded - bytes > bytes / 4;
}

/* reduce_plan.c: ALL_REDUCE and REDUCE_SCATTER. */
void plan_reduce(PlanBuild *b, const Moves *moves);

#endif
