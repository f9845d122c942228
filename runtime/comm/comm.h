/* Collectives between ranks: one vtable per transport (local shared memory; MPI).
 *
 * A communicator knows this process's world rank and the world size. Buffers of a collective lie in
 * the rank's arena, which peers can see (local transport: one memfd that every rank maps), so
 * collectives work in place without private copies. Every member of a group calls the same
 * operations in the same order; groups may overlap and need no set-up.
 *
 * All entries return 0 or a code of comm/errors.h after the job's one failure message was printed
 * (it names rank, step, operation and source line); the caller unwinds and returns that code.
 * Nothing waits longer than `deadline` for a peer that shows no sign of life: every call of
 * dtm_rt_comm_place or dtm_rt_comm_tick is such a sign.
 */
#ifndef DTM_RT_COMM_H
#define DTM_RT_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/abi.h"

/* The transports can reduce this AbiDType with this AbiReduce. f8 types are moved, never reduced;
 * avg (the sum divided by the size of the group) needs a float; and, or, xor an integer or bool.
 * max and min give NaN as soon as one operand is NaN. On bool, sum is or, product is and. */
bool dtm_rt_reduces(int dtype, int op);

/* A copy of a box of elements between two arrays of the same rank. Offsets and strides are in
 * elements. ndims 0 is one element. A box with a zero extent is empty. */
typedef struct RtBox {
  int32_t peer; /* world rank to pull from (may be self) */
  int32_t ndims;
  int64_t extent[ABI_MAX_DIMS];
  int64_t src_offset, src_stride[ABI_MAX_DIMS]; /* in the peer's buffer */
  int64_t dst_offset, dst_stride[ABI_MAX_DIMS]; /* in this rank's buffer */
} RtBox;

/* What a collective or kernel belongs to, for messages. The texts are copied. */
typedef struct RtPlace {
  int64_t step;
  const char *operation; /* "all-reduce of grad layers.0.w" */
  const char *source;    /* "mlp.dtm:14:13" */
} RtPlace;

typedef struct RtComm RtComm;

/* A pull or reduce-scatter under way. Zero at first; dtm_rt_pull_free when its last one is over. */
typedef struct RtPull {
  void *state; /* the transport's */
} RtPull;

void dtm_rt_pull_free(RtPull *pull);
/* One end of a channel between two stages of a pipeline: messages from the ranks of one to those of
 * the other, each rank its part, taken in the order in which they were posted. The sending side
 * may be `slots` messages ahead of the slowest taker, no more. */
typedef struct RtChannel {
  uint32_t id; /* the same on both sides, below the number of channels */
  uint32_t slots;
  size_t counts;         /* arena offset of the channel's two counts, the same on every rank */
  size_t outbox, stride; /* arena offset of the first slot on the sending side; bytes to the next */
  int dtype;
  RtBox *boxes; /* what every peer takes of this rank, or this rank of every peer, peer by peer */
  size_t nboxes;
  int32_t *peers; /* those that boxes name, each once */
  int32_t npeers;
  uint32_t count; /* messages of this side so far */
  void *state;    /* of the transport, one malloc; NULL at first */
} RtChannel;

/* `group` holds the distinct world ranks that take part, this rank among them, in the same order on
 * every member; reductions fold in that order. `src` and `dst` are byte offsets in the arena,
 * aligned to the element and the same on every rank. */
typedef struct RtCommOps {
  const char *name; /* "alone", "local", "mpi" */
  /* Pulls boxes from peers: all-gather, all-to-all, exchange, permute. Every peer's `src` is
   * complete when the first byte is read, and nobody reads any more when the call returns. No byte
   * of `dst` that is written may be one that a peer reads. */
  int (*pull)(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
              const int32_t *group, int32_t ngroup);
  /* The two halves of a pull. Between them the rank goes on with other work and other operations;
   * `src` stays as it is, `dst` is not touched before the second. Every member calls both, with the
   * same arguments. The first waits for nobody on one machine, and over MPI for the members to be
   * there, not for the data. */
  int (*pull_start)(RtComm *c, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                    const int32_t *group, int32_t ngroup, RtPull *pull);
  int (*pull_finish)(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes,
                     size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull);
  /* dst = reduction over the group of `count` elements at src; src == dst is fine, other overlap is
   * not. Results are bit-equal on all ranks and depend on neither chunking nor threads. bf16 and
   * f16 accumulate in f32 and round once. count may be 0. */
  int (*all_reduce)(RtComm *c, size_t src, size_t dst, size_t count, int dtype, int op,
                    const int32_t *group, int32_t ngroup);
  /* Each rank reduces boxes of its own choice: dst box = reduction over g of the box in g's src.
   * boxes[i].peer is ignored. No byte of `dst` may be one that a peer reads, with one exception:
   * src == dst where the boxes of the members are disjoint and source equals destination. */
  int (*reduce_scatter)(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                        size_t nboxes, const int32_t *group, int32_t ngroup);
  /* The two halves of a reduce-scatter, as those of a pull. */
  int (*scatter_start)(RtComm *c, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                       const int32_t *group, int32_t ngroup, RtPull *pull);
  int (*scatter_finish)(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                        size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull);
  /* Leaves `bytes` at src (arena offset) for the takers: waits while all slots are full. */
  int (*post)(RtComm *c, RtChannel *channel, size_t src, size_t bytes);
  /* The next message into dst: waits until it is there. */
  int (*take)(RtComm *c, RtChannel *channel, size_t dst);
  int (*barrier)(RtComm *c, const int32_t *group, int32_t ngroup);
  /* Host values (not in the arena): rank `root` of the world sends `n` bytes to all. */
  int (*broadcast_host)(RtComm *c, void *data, size_t n, int32_t root);
  /* *all = bitwise or of `flags` over the world, the same on every rank. Cheap enough for once a
   * step: this is how ranks agree to stop. */
  int (*agree)(RtComm *c, uint32_t flags, uint32_t *all);
  /* Publishes c->place for peers and counts as a sign of life. */
  void (*publish)(RtComm *c);
  /* Records the failure of the job and prints it unless another rank was first. Returns `code`. */
  int (*fail)(RtComm *c, int code, const char *message);
  /* For a thread beside the one that makes all other calls. The code of the failure of the job, 0
   * while there is none; ranks that died count as one. `moved`: this rank goes on, though its other
   * thread waits. *silent: seconds since any of the others gave a sign of life; infinite where
   * nobody knows. */
  int (*look)(RtComm *c, bool moved, double *silent);
  /* Likewise: who of the others has been silent longest, and where it was, as a line of a message;
   * empty where nobody knows. */
  void (*latest)(RtComm *c, char *text, size_t size);
  /* status: what this rank is going to exit with. Frees c. Waits for nobody. */
  void (*destroy)(RtComm *c, int status);
} RtCommOps;

/* The memory of a device that holds what the arena holds otherwise. The arena is then a mirror of
 * the variables: those that a file is written from or read into are brought here and back.
 * `address`: of the mirror. 0 or the code to exit with. */
typedef struct RtMirror {
  void *context;
  int (*fetch)(void *context, size_t offset, size_t bytes, void *address);
  int (*flush)(void *context, size_t offset, size_t bytes, const void *address);
} RtMirror;

struct RtComm {
  const RtCommOps *ops;
  int32_t rank, world;
  int32_t local_rank, local_world; /* among the ranks on this machine */
  int32_t threads;                 /* OpenMP threads this rank may use, >= 1 */
  unsigned char *arena;            /* this rank's arena, 2 MiB aligned, zero at first */
  size_t arena_size;
  double deadline; /* seconds a peer may go without a sign of life */
  RtPlace place;
  const RtMirror *mirror; /* NULL: the arena is the memory that actions work on */
};

/* Says what this rank does from now on; call it before every action. About 50 ns. */
void dtm_rt_comm_place(RtComm *c, RtPlace place);
/* Brings `bytes` at `offset` of the arena here before the host reads them (fetch), back after it
 * has written them (flush), and gives back the memory of the mirror (release). Nothing to do
 * without one. 0 or the code to exit with. */
int dtm_rt_comm_fetch(RtComm *c, size_t offset, size_t bytes);
int dtm_rt_comm_flush(RtComm *c, size_t offset, size_t bytes);
void dtm_rt_comm_release(RtComm *c, size_t offset, size_t bytes);
/* A sign of life inside one long action (saving, reading). */
void dtm_rt_comm_tick(RtComm *c);

#endif
