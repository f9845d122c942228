/* Who keeps a waiting rank waiting: finds the rank at the root of a stall and reports it.
 *
 * A rank that waits says for whom and for which arrival, and keeps its `alive` stamp fresh, so a
 * waiter can follow the chain of waits to the rank that does not wait. That one is late when it
 * gave no sign of life for the deadline, or dead when its lock on the segment is gone.
 */
#include "comm/local_control.h"

#include "comm/errors.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* The lock of a rank is held by its process; nobody holds it any more once the process ended. */
static bool process_lives(const LocalComm *c, int32_t rank) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
  return fcntl(c->segment.fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* 'T' when stopped by a signal, 't' by a debugger, else another letter of proc(5); 0 unknown. */
static char process_state(int32_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *f = fopen(path, "r");
  if (!f) {
    return 0;
  }
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  const char *name_end = strrchr(text, ')');
  return name_end && name_end[1] == ' ' ? name_end[2] : 0;
}

static int report(LocalComm *c, int32_t rank, const char *what) {
  LocalView culprit, mine;
  dtm_local_view(&c->segment, rank, &culprit);
  dtm_local_view(&c->segment, c->base.rank, &mine);
  char message[1024];
  snprintf(message, sizeof message,
           "rank %d %s\n  rank %d was at step %lld in %s (%s)\n  rank %d waited at step %lld in %s "
           "(%s)",
           (int)rank, what, (int)rank, (long long)culprit.step, culprit.operation, culprit.source,
           (int)c->base.rank, (long long)mine.step, mine.operation, mine.source);
  return dtm_local_fail(&c->segment, RT_LOST, message);
}

static int report_late(LocalComm *c, int32_t rank) {
  int32_t pid = atomic_load(&c->control->slot[rank].pid);
  char state = process_state(pid), what[160];
  if (state == 'T' || state == 't') {
    snprintf(what, sizeof what, "gave no sign of life for %g s: its process %d is stopped%s",
             c->base.deadline, (int)pid, state == 't' ? " by a debugger" : "");
  } else {
    snprintf(what, sizeof what, "gave no sign of life for %g s (process %d; see --deadline)",
             c->base.deadline, (int)pid);
  }
  return report(c, rank, what);
}

int local_watch(LocalComm *c, int32_t peer, uint64_t since) {
  LocalControl *k = c->control;
  int failed = atomic_load(&k->failed);
  if (failed) {
    return failed;
  }
  uint64_t now = local_now(), patience = (uint64_t)(c->base.deadline * 1e9);
  /* Called every WATCH_MS: a long gap means this process, and so most likely all of them, stood
   * still. */
  enum { GAP_NS = 2000000000 };
  uint64_t before = atomic_load_explicit(&k->slot[c->base.rank].alive, memory_order_relaxed);
  if (now - before > GAP_NS) {
    c->resumed = now;
  }
  atomic_store_explicit(&k->slot[c->base.rank].alive, now, memory_order_relaxed);

  int32_t at = peer;
  for (int32_t hops = 0; hops < k->world; hops++) {
    LocalSlot *slot = &k->slot[at];
    int32_t state = atomic_load(&slot->state);
    /* Its own lock would not show: in a circle of waits the chain comes back to this rank. */
    if (!k->supervised && at != c->base.rank && state == LOCAL_RUNNING && !process_lives(c, at)) {
      return report(c, at, "died: its process ended without notice");
    }
    if (state == LOCAL_LEFT) {
      return report(c, at, "has ended while others still work");
    }
    uint32_t next = atomic_load(&slot->waits_for);
    const _Atomic uint32_t *count =
        (const _Atomic uint32_t *)((unsigned char *)k + atomic_load(&slot->waits_at));
    bool waits = next != 0 && (int32_t)(atomic_load(count) - atomic_load(&slot->waits_until)) < 0;
    uint64_t sign = next != 0 ? atomic_load(&slot->alive) : atomic_load(&slot->moved);
    /* A full deadline of waiting, in which neither side was suspended (Ctrl-Z). */
    sign = sign > since ? sign : since;
    sign = sign > c->resumed ? sign : c->resumed;
    if (now > sign && now - sign > patience) {
      return report_late(c, at);
    }
    if (!waits) {
      return 0;
    }
    at = (int32_t)next - 1;
  }
  /* A circle of waits: ranks that do not run the same operations. */
  since = since > c->resumed ? since : c->resumed;
  if (now - since > patience) {
    return report(c, peer, "and others wait for one another: they run different operations");
  }
  return 0;
}

/* The rank, of those that work, whose last sign of life is the oldest; -1: there is none. */
static int32_t oldest(const LocalComm *c, uint64_t *sign, uint64_t *newest) {
  int32_t rank = -1;
  *newest = 0;
  for (int32_t r = 0; r < c->base.world; r++) {
    LocalSlot *slot = &c->control->slot[r];
    if (r == c->base.rank || atomic_load(&slot->state) != LOCAL_RUNNING) {
      continue;
    }
    uint64_t moved = atomic_load_explicit(&slot->moved, memory_order_relaxed);
    if (rank < 0 || moved < *sign) {
      rank = r;
      *sign = moved;
    }
    *newest = moved > *newest ? moved : *newest;
  }
  return rank;
}

int local_look(RtComm *comm, bool moved, double *silent) {
  LocalComm *c = local_of(comm);
  LocalControl *k = c->control;
  uint64_t now = local_now(), sign = 0, newest;
  if (moved) {
    atomic_store_explicit(&k->slot[comm->rank].moved, now, memory_order_relaxed);
  }
  for (int32_t r = 0; r < comm->world && !k->supervised; r++) {
    if (atomic_load(&k->slot[r].state) == LOCAL_RUNNING && r != comm->rank &&
        !process_lives(c, r)) {
      return report(c, r, "died: its process ended without notice");
    }
  }
  oldest(c, &sign, &newest);
  *silent = newest < now ? (double)(now - newest) * 1e-9 : 0;
  return atomic_load(&k->failed);
}

void local_latest(RtComm *comm, char *text, size_t size) {
  LocalComm *c = local_of(comm);
  uint64_t sign = 0, newest;
  int32_t rank = oldest(c, &sign, &newest);
  LocalView view;
  text[0] = 0;
  /* One that stands still is more to blame than one that waits for longer. */
  for (int32_t r = 0; r < comm->world; r++) {
    char state = process_state(atomic_load(&c->control->slot[r].pid));
    if (r != comm->rank && (state == 'T' || state == 't')) {
      dtm_local_view(&c->segment, r, &view);
      snprintf(text, size, "rank %d: its process %d is stopped%s, at step %lld in %s (%s)", (int)r,
               (int)view.pid, state == 't' ? " by a debugger" : "", (long long)view.step,
               view.operation, view.source);
      return;
    }
  }
  if (rank < 0) {
    return;
  }
  dtm_local_view(&c->segment, rank, &view);
  snprintf(text, size, "rank %d has been silent longest, at step %lld in %s (%s)", (int)rank,
           (long long)view.step, view.operation, view.source);
}
