/* The memory that the ranks of one simulated communicator share: a file, mapped by all, unlinked as
 * soon as the last of them has it. See nccl_wire.c.
 *
 * Collectives go in rounds. In a round every rank leaves a chunk of what it contributes in its slot
 * and counts it in `posted`; once all have, each takes what it needs and counts that in `taken`.
 * There are two slots, so that the next chunk can be left while a slow rank still reads. Messages
 * from one rank to another have two slots for each pair, likewise. */
#ifndef DTM_TESTS_GPUSIM_NCCL_WIRE_H
#define DTM_TESTS_GPUSIM_NCCL_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_RANKS = 32, WIRE_CHUNK = 1 << 17, WIRE_DOING = 160 };

typedef enum WireKind {
  WIRE_NOTHING,
  WIRE_ALL_REDUCE,
  WIRE_REDUCE,
  WIRE_REDUCE_SCATTER,
  WIRE_ALL_GATHER,
  WIRE_BROADCAST,
  WIRE_SEND,
  WIRE_RECV
} WireKind;

/* What is called, to be compared: equal on all ranks of a collective. */
typedef struct WireCall {
  uint32_t kind; /* WireKind */
  int32_t type, op, root;
  uint64_t count;
  /* 0: not in a graph; else the how many-th captured one of the communicator, or message between
   * two ranks in one direction: captured on all ranks, and in graphs that belong together. */
  uint32_t captured, zero;
} WireCall;

typedef struct WireSlot {
  WireCall call;
  uint64_t whole; /* bytes of all chunks */
  uint32_t bytes; /* of this one */
  uint32_t holes; /* the bytes behind the chunk say which of it nobody wrote */
} WireSlot;

typedef enum WireState { WIRE_ABSENT, WIRE_HERE, WIRE_LEFT } WireState;

typedef struct WireRank {
  _Atomic uint32_t state; /* WireState */
  int32_t device, pid;
  _Atomic uint64_t posted, taken;
  WireSlot slot[2];
  /* Splits of the communicator: how many this rank has asked for, the last of them. */
  _Atomic uint64_t splits;
  int32_t color, key;
  _Atomic uint64_t splits_seen; /* of all ranks */
  char doing[WIRE_DOING];       /* for messages */
} WireRank;

typedef struct WirePair {
  _Atomic uint64_t sent, taken;
  WireSlot slot[2];
} WirePair;

typedef struct WireShared {
  _Atomic uint32_t attached;
  uint32_t activity; /* a futex: changes when anything does */
  /* counts how often a rank has waited long: peers are to run their queues */
  _Atomic uint32_t wants;
  uint32_t bell; /* a futex: changes when one of this or of a part of it does */
  _Atomic uint32_t failed;
  char failure[512];
  WireRank rank[WIRE_RANKS];
  WirePair pair[WIRE_RANKS][WIRE_RANKS]; /* [from][to] */
} WireShared;

/* One rank's view. */
typedef struct Wire {
  WireShared *shared;
  unsigned char *data;
  int fd, rank, nranks;
  uint32_t wanted; /* value of `wants` that was served */
} Wire;

/* Joins; NULL, or a message in static or thread-local memory that says what is wrong. Not all ranks
 * need be there yet. */
const char *wire_open(Wire *wire, const char *path, int nranks, int rank, int device);
bool wire_complete(const Wire *wire);
/* Leaves: what is mapped stays mapped. */
void wire_close(Wire *wire);

/* The chunk and, behind it, its holes, of a rank and of a pair of ranks; slot 0 or 1. */
unsigned char *wire_chunk(const Wire *wire, int rank, unsigned slot);
unsigned char *wire_message(const Wire *wire, int from, int to, unsigned slot);
unsigned char *wire_holes(unsigned char *chunk);

/* Something changed: whoever waits looks again. */
void wire_bump(const Wire *wire);
/* Peers are to look at `wants`. */
void wire_ring(const Wire *wire);
/* The rank's process is gone without having left. */
bool wire_dead(const Wire *wire, int rank);
/* The first failure of the communicator; false when there was one already. */
bool wire_fail(const Wire *wire, const char *text);
/* One line per rank: what it is doing. */
void wire_describe(const Wire *wire, char *text, size_t size);

#endif
