/* The control block at the start of a local segment, and what the files of the local transport
 * share. Private to local_*.c. */
#ifndef DTM_RT_COMM_LOCAL_CONTROL_H
#define DTM_RT_COMM_LOCAL_CONTROL_H

#include "comm/local.h"

#include <stdatomic.h>

enum { LOCAL_VERSION = 2, LOCAL_BOUNCE = 64 << 10, LOCAL_HUGE = 2 << 20 };

typedef enum LocalState { LOCAL_ABSENT = 0, LOCAL_RUNNING, LOCAL_LEFT } LocalState;

/* One rank as its peers see it. */
typedef struct LocalSlot {
  /* Sleep and wake-up: read by every peer at every barrier. */
  _Alignas(64) _Atomic uint32_t wake; /* futex */
  _Atomic uint32_t sleeps_for;        /* 1 + the rank whose arrival ends the sleep; 0 = awake */
  /* Diagnosis: written at every action, read only when something is late. */
  _Alignas(64) _Atomic uint32_t sequence; /* odd while the place is being written */
  _Atomic int32_t state, pid;
  _Atomic uint64_t alive;       /* ns: last time it ran our code at all, also while waiting */
  _Atomic uint64_t moved;       /* ns: last sign of life in the sense of comm.h */
  _Atomic uint32_t waits_for;   /* 1 + the rank it waits for; 0 = does not wait */
  _Atomic uint32_t waits_until; /* the count of that rank it waits for: arrivals, or messages */
  _Atomic uint64_t waits_at;    /* where that count lies, bytes from the start of the segment */
  uint32_t flags[2];            /* of `agree`, by parity of the round */
  int64_t step;
  char operation[128], source[96];
} LocalSlot;

typedef struct LocalControl {
  char magic[8]; /* "dtmlocal" */
  uint32_t version;
  int32_t world;
  size_t arena_size, arena_stride, arena_offset;
  size_t counts_offset, count_stride, bounce_offset;
  bool supervised;
  _Atomic uint32_t claimed; /* somebody reports the failure */
  _Atomic int32_t failed;   /* its code; 0 = none */
  LocalSlot slot[];
} LocalControl;

typedef struct LocalComm {
  RtComm base;
  LocalSegment segment;
  LocalControl *control;
  unsigned char *arenas;
  uint32_t *arrived; /* [world]: barriers entered with each peer so far */
  int32_t *everyone; /* [world]: 0, 1, ... */
  uint32_t agree_round;
  uint64_t resumed; /* ns: last time this process was seen to come out of a suspension */
  bool spin;
} LocalComm;

static inline LocalComm *local_of(RtComm *c) {
  return (LocalComm *)c;
}

/* How many barriers `rank` has entered that `peer` takes part in. Barriers need no registration of
 * groups: any two ranks pass their common barriers in the same order, so a count per pair says who
 * has arrived. The counts of one rank lie side by side, so an arrival touches one cache line for
 * up to 16 peers. */
static inline _Atomic uint32_t *local_count(LocalControl *k, int32_t rank, int32_t peer) {
  return (_Atomic uint32_t *)((unsigned char *)k + k->counts_offset +
                              (size_t)rank * k->count_stride) +
         peer;
}

static inline unsigned char *local_arena(const LocalComm *c, int32_t rank) {
  return c->arenas + (size_t)rank * c->control->arena_stride;
}

uint64_t local_now(void);

/* local_sync.c */
int local_barrier(RtComm *c, const int32_t *group, int32_t ngroup);
/* A barrier in two halves: targets[ngroup] says what the second waits for. Barriers may come
 * between. */
void local_arrive(RtComm *c, const int32_t *group, int32_t ngroup, uint32_t *targets);
int local_wait(RtComm *c, const int32_t *group, int32_t ngroup, const uint32_t *targets);
int local_agree(RtComm *c, uint32_t flags, uint32_t *all);
int local_broadcast_host(RtComm *c, void *data, size_t n, int32_t root);
void local_wake_all(LocalControl *k);
/* Waits until the count, which `peer` raises, reaches the target. */
int local_wait_count(LocalComm *c, int32_t peer, const _Atomic uint32_t *count, uint32_t target);
/* Wakes those of `peers` that sleep for this rank; a count was raised before. */
void local_wake(LocalComm *c, const int32_t *peers, int32_t npeers);

/* local_watch.c: called now and then while waiting for `peer`. 0, or the code of the failure. */
int local_watch(LocalComm *c, int32_t peer, uint64_t since);

/* For a thread beside the one that makes all other calls: see comm.h. */
int local_look(RtComm *c, bool moved, double *silent);
void local_latest(RtComm *c, char *text, size_t size);

/* local_channel.c */
int local_post(RtComm *c, RtChannel *channel, size_t src, size_t bytes);
int local_take(RtComm *c, RtChannel *channel, size_t dst);

/* local_ops.c */
int local_pull(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
               const int32_t *group, int32_t ngroup);
int local_pull_start(RtComm *c, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                     const int32_t *group, int32_t ngroup, RtPull *pull);
int local_pull_finish(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes,
                      size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull);
int local_scatter_finish(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                         size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull);
int local_all_reduce(RtComm *c, size_t src, size_t dst, size_t count, int dtype, int op,
                     const int32_t *group, int32_t ngroup);
int local_reduce_scatter(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                         size_t nboxes, const int32_t *group, int32_t ngroup);

#endif
