/* Barriers between local ranks, and the small exchanges made of them. */
#include "comm/local_control.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t local_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex_sleep(_Atomic uint32_t *word, uint32_t value, int milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void slot_wake(LocalSlot *slot) {
  atomic_fetch_add_explicit(&slot->wake, 1, memory_order_release);
  syscall(SYS_futex, &slot->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void local_wake_all(LocalControl *k) {
  for (int32_t r = 0; r < k->world; r++) {
    slot_wake(&k->slot[r]);
  }
}

static void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool reached(const _Atomic uint32_t *count, uint32_t target) {
  return (int32_t)(atomic_load_explicit(count, memory_order_acquire) - target) >= 0;
}

enum {
  SPINS = 4000,  /* about 100 us with a processor to spare: longer than a balanced barrier */
  YIELDS = 20,   /* then let the peer run, should it wait for this processor; then sleep */
  WATCH_MS = 100 /* how often a sleeper looks whether the peer still lives */
};

/* Sleeps until the peer's count reaches the target; it was not there after some spinning. */
static int wait_asleep(LocalComm *c, int32_t peer, const _Atomic uint32_t *count, uint32_t target) {
  LocalSlot *me = &c->control->slot[c->base.rank];
  uint64_t since = local_now();
  int error = 0;
  atomic_store_explicit(&me->waits_until, target, memory_order_relaxed);
  atomic_store_explicit(&me->waits_at,
                        (uint64_t)((const unsigned char *)count - (unsigned char *)c->control),
                        memory_order_relaxed);
  atomic_store_explicit(&me->alive, since, memory_order_relaxed);
  atomic_store_explicit(&me->waits_for, (uint32_t)peer + 1, memory_order_release);
  while (!error && !reached(count, target)) {
    uint32_t ticket = atomic_load_explicit(&me->wake, memory_order_acquire);
    atomic_store(&me->sleeps_for, (uint32_t)peer + 1);
    /* Ordered against the arrival: either the peer sees that we sleep, or we see its count. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!reached(count, target) && !atomic_load(&c->control->failed)) {
      futex_sleep(&me->wake, ticket, WATCH_MS);
    }
    atomic_store_explicit(&me->sleeps_for, 0, memory_order_relaxed);
    if (!reached(count, target)) {
      error = local_watch(c, peer, since);
    }
  }
  atomic_store_explicit(&me->waits_for, 0, memory_order_release);
  return error;
}

int local_wait_count(LocalComm *c, int32_t peer, const _Atomic uint32_t *count, uint32_t target) {
  for (int i = 0; c->spin && i < SPINS; i++) {
    if (reached(count, target)) {
      return 0;
    }
    cpu_relax();
  }
  for (int i = 0; i < YIELDS; i++) {
    if (reached(count, target)) {
      return 0;
    }
    sched_yield();
  }
  return wait_asleep(c, peer, count, target);
}

/* Until the peer has entered as many barriers with this rank as `target`. */
static int wait_for(LocalComm *c, int32_t peer, uint32_t target) {
  return local_wait_count(c, peer, local_count(c->control, peer, c->base.rank), target);
}

void local_wake(LocalComm *c, const int32_t *peers, int32_t npeers) {
  atomic_thread_fence(memory_order_seq_cst);
  for (int32_t i = 0; i < npeers; i++) {
    LocalSlot *peer = &c->control->slot[peers[i]];
    uint32_t me = (uint32_t)c->base.rank + 1;
    if (atomic_load_explicit(&peer->sleeps_for, memory_order_relaxed) == me) {
      slot_wake(peer);
    }
  }
}

static void arrive(RtComm *comm, const int32_t *group, int32_t ngroup) {
  LocalComm *c = local_of(comm);
  LocalControl *k = c->control;
  int32_t me = comm->rank;
  for (int32_t i = 0; i < ngroup; i++) {
    if (group[i] != me) {
      atomic_store_explicit(local_count(k, me, group[i]), ++c->arrived[group[i]],
                            memory_order_release);
    }
  }
  local_wake(c, group, ngroup);
}

void local_arrive(RtComm *comm, const int32_t *group, int32_t ngroup, uint32_t *targets) {
  arrive(comm, group, ngroup);
  for (int32_t i = 0; i < ngroup; i++) {
    targets[i] = local_of(comm)->arrived[group[i]];
  }
}

int local_wait(RtComm *comm, const int32_t *group, int32_t ngroup, const uint32_t *targets) {
  for (int32_t i = 0; i < ngroup; i++) {
    int error = group[i] == comm->rank ? 0 : wait_for(local_of(comm), group[i], targets[i]);
    if (error) {
      return error;
    }
  }
  return 0;
}

int local_barrier(RtComm *comm, const int32_t *group, int32_t ngroup) {
  LocalComm *c = local_of(comm);
  arrive(comm, group, ngroup);
  for (int32_t i = 0; i < ngroup; i++) {
    int error = group[i] == comm->rank ? 0 : wait_for(c, group[i], c->arrived[group[i]]);
    if (error) {
      return error;
    }
  }
  return 0;
}

static int barrier_world(LocalComm *c) {
  return local_barrier(&c->base, c->everyone, c->base.world);
}

/* Flags are written before a barrier and read after it. Two sets in turn: a rank that has passed
 * this barrier may already write those of the next round, while others still read. */
int local_agree(RtComm *comm, uint32_t flags, uint32_t *all) {
  LocalComm *c = local_of(comm);
  uint32_t turn = c->agree_round++ & 1;
  c->control->slot[comm->rank].flags[turn] = flags;
  int error = barrier_world(c);
  *all = 0;
  for (int32_t r = 0; r < comm->world && !error; r++) {
    *all |= c->control->slot[r].flags[turn];
  }
  return error;
}

int local_broadcast_host(RtComm *comm, void *data, size_t n, int32_t root) {
  LocalComm *c = local_of(comm);
  unsigned char *bounce = (unsigned char *)c->control + c->control->bounce_offset;
  for (size_t at = 0; at < n; at += LOCAL_BOUNCE) {
    size_t bytes = n - at < LOCAL_BOUNCE ? n - at : LOCAL_BOUNCE;
    if (comm->rank == root) {
      memcpy(bounce, (unsigned char *)data + at, bytes);
    }
    int error = barrier_world(c);
    if (error) {
      return error;
    }
    if (comm->rank != root) {
      memcpy((unsigned char *)data + at, bounce, bytes);
    }
    error = barrier_world(c);
    if (error) {
      return error;
    }
  }
  return 0;
}
