/* Collectives between ranks: one vtable per transport (local shared memory; MPI; NCCL later).
 *
 * A communicator knows this process's world rank and the world size. Buffers of a collective lie in
 * the rank's arena, which peers can see (local transport: a memfd each peer maps), so collectives
 * work in place without private copies. Every rank calls the same operations in the same order.
 * All entries return 0 or a DTM_RT error code after recording a message that names rank, step,
 * operation and source line; the caller unwinds, nothing hangs beyond `deadline`.
 */
#ifndef DTM_RT_COMM_H
#define DTM_RT_COMM_H

#include <stddef.h>
#include <stdint.h>

/* Element types and reductions carry the numbers of compiler/types (dtype.h, layout.h). */

/* A copy of a box of elements between two dense row-major arrays of the same rank. Strides are in
 * elements. */
typedef struct RtBox {
  int32_t peer; /* world rank to pull from (may be self) */
  int32_t ndims;
  int64_t extent[8];
  int64_t src_offset, src_stride[8]; /* in the peer's buffer, elements */
  int64_t dst_offset, dst_stride[8]; /* in this rank's buffer, elements */
} RtBox;

typedef struct RtComm RtComm;

typedef struct RtCommOps {
  const char *name; /* "local", "mpi" */
  /* Pulls boxes from peers: all-gather, all-to-all, exchange, permute. `src` and `dst` are offsets
   * in the arena, the same on every rank. `group` are the world ranks that take part (they
   * synchronise before reading and before returning). */
  int (*pull)(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
              const int32_t *group, int32_t ngroup);
  /* dst = reduction over the group of src. Replicated results are bit-equal on all ranks. Elements
   * count; may be 0. `op` is a ReduceOp; avg divides by ngroup. */
  int (*all_reduce)(RtComm *c, size_t src, size_t dst, size_t count, int dtype, int op,
                    const int32_t *group, int32_t ngroup);
  /* Each rank reduces its own boxes over all members: for rank r of the group, dst box elements =
   * reduction over g of the box in g's src. boxes[i].peer is ignored. */
  int (*reduce_scatter)(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                        size_t nboxes, const int32_t *group, int32_t ngroup);
  int (*barrier)(RtComm *c, const int32_t *group, int32_t ngroup);
  /* Host values (not in the arena): rank `root` of the world sends `n` bytes to all. */
  int (*broadcast_host)(RtComm *c, void *data, size_t n, int32_t root);
  void (*destroy)(RtComm *c);
} RtCommOps;

struct RtComm {
  const RtCommOps *ops;
  int32_t rank, world;
  unsigned char *arena; /* this rank's arena */
  size_t arena_size;
  double deadline; /* seconds a peer may be late */
};

/* What a collective belongs to, for messages: set by the executor before each call. */
typedef struct RtPlace {
  int64_t step;
  const char *operation; /* "all-reduce of grad layers.0.w" */
  const char *source;    /* "mlp.dtm:14:13" */
} RtPlace;
void dtm_rt_comm_place(RtComm *c, RtPlace place);

#endif
