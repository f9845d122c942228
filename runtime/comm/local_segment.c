/* The shared segment of local ranks: creation, joining, leaving, failure. */
#include "comm/local_control.h"

#include "comm/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

/* Large pages halve the cost of first touch and of address translation where the kernel grants
 * them; where not, nothing is lost. */
static void *map_huge(int fd, size_t size) {
  size_t room = size + LOCAL_HUGE;
  unsigned char *reserve =
      mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserve == MAP_FAILED) {
    return NULL;
  }
  unsigned char *base = (unsigned char *)round_up((uintptr_t)reserve, LOCAL_HUGE);
  if (base > reserve) {
    munmap(reserve, (size_t)(base - reserve));
  }
  if (reserve + room > base + size) {
    munmap(base + size, (size_t)(reserve + room - base - size));
  }
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  if (mmap(base, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    int saved = errno;
    munmap(base, size);
    errno = saved;
    return NULL;
  }
  madvise(base, size, MADV_HUGEPAGE);
  return base;
}

int dtm_local_create(const LocalSetup *setup, LocalSegment *segment) {
  if (setup->world < 1 || setup->world > LOCAL_MAX_WORLD) {
    return EINVAL;
  }
  size_t world = (size_t)setup->world;
  LocalControl k = {.magic = "dtmlocal",
                    .version = LOCAL_VERSION,
                    .world = setup->world,
                    .arena_size = setup->arena_size,
                    .supervised = setup->supervised};
  k.counts_offset = round_up(sizeof(LocalControl) + world * sizeof(LocalSlot), 64);
  k.count_stride = round_up(world * sizeof(uint32_t), 64);
  k.bounce_offset = k.counts_offset + world * k.count_stride;
  k.arena_offset = round_up(k.bounce_offset + LOCAL_BOUNCE, LOCAL_HUGE);
  k.arena_stride = round_up(setup->arena_size ? setup->arena_size : 1, LOCAL_HUGE);
  if (k.arena_stride < setup->arena_size || k.arena_stride > (SIZE_MAX >> 1) / world) {
    return ENOMEM;
  }
  size_t size = k.arena_offset + world * k.arena_stride;
  int fd = -1;
  if (world > 1) {
    fd = memfd_create("dtm", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
      int saved = errno;
      if (fd >= 0) {
        close(fd);
      }
      return saved;
    }
  }
  void *base = map_huge(fd, size);
  if (!base) {
    int saved = errno;
    if (fd >= 0) {
      close(fd);
    }
    return saved;
  }
  memcpy(base, &k, sizeof k);
  *segment = (LocalSegment){fd, base, size};
  return 0;
}

int dtm_local_map(int fd, LocalSegment *segment) {
  struct stat st;
  LocalControl k;
  if (fstat(fd, &st) != 0) {
    return errno;
  }
  if (pread(fd, &k, sizeof k, 0) != (ssize_t)sizeof k || memcmp(k.magic, "dtmlocal", 8) != 0 ||
      k.version != LOCAL_VERSION) {
    return EPROTO;
  }
  void *base = map_huge(fd, (size_t)st.st_size);
  if (!base) {
    return errno;
  }
  *segment = (LocalSegment){fd, base, (size_t)st.st_size};
  return 0;
}

static LocalControl *control_of(const LocalSegment *segment) {
  return (LocalControl *)segment->base;
}

static void local_publish(RtComm *c) {
  LocalSlot *slot = &local_of(c)->control->slot[c->rank];
  uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
  atomic_store_explicit(&slot->sequence, sequence + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  slot->step = c->place.step;
  if (!memccpy(slot->operation, c->place.operation ? c->place.operation : "start-up", 0,
               sizeof slot->operation)) {
    slot->operation[sizeof slot->operation - 1] = 0;
  }
  if (!memccpy(slot->source, c->place.source ? c->place.source : "-", 0, sizeof slot->source)) {
    slot->source[sizeof slot->source - 1] = 0;
  }
  uint64_t now = local_now();
  atomic_store_explicit(&slot->alive, now, memory_order_relaxed);
  atomic_store_explicit(&slot->moved, now, memory_order_relaxed);
  atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
}

void dtm_local_view(const LocalSegment *segment, int32_t rank, LocalView *view) {
  LocalSlot *slot = &control_of(segment)->slot[rank];
  *view =
      (LocalView){.pid = atomic_load(&slot->pid), .left = atomic_load(&slot->state) == LOCAL_LEFT};
  /* A rank that died while writing leaves the sequence odd: what it wrote so far must do. */
  for (int tries = 0; tries < 100; tries++) {
    uint32_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    view->step = slot->step;
    memcpy(view->operation, slot->operation, sizeof view->operation);
    memcpy(view->source, slot->source, sizeof view->source);
    atomic_thread_fence(memory_order_acquire);
    if (before % 2 == 0 && before == atomic_load(&slot->sequence)) {
      break;
    }
  }
  view->operation[sizeof view->operation - 1] = 0;
  view->source[sizeof view->source - 1] = 0;
}

int dtm_local_failed(const LocalSegment *segment) {
  return atomic_load(&control_of(segment)->failed);
}

int dtm_local_fail(const LocalSegment *segment, int code, const char *message) {
  LocalControl *k = control_of(segment);
  if (atomic_exchange(&k->claimed, 1)) {
    /* Another rank is at it; its code follows at once. */
    int failed = atomic_load(&k->failed);
    return failed ? failed : code;
  }
  if (message) {
    dtm_rt_print_error(message);
  }
  atomic_store(&k->failed, code);
  local_wake_all(k);
  return code;
}

static int local_fail(RtComm *c, int code, const char *message) {
  return dtm_local_fail(&local_of(c)->segment, code, message);
}

static void local_destroy(RtComm *comm, int status) {
  LocalComm *c = local_of(comm);
  if (status == 0) {
    atomic_store(&c->control->slot[comm->rank].state, LOCAL_LEFT);
  }
  munmap(c->segment.base, c->segment.size);
  if (c->segment.fd >= 0) {
    close(c->segment.fd);
  }
  free(c->arrived);
  free(c->everyone);
  free(c);
}

static const RtCommOps local_ops = {
    .name = "local",
    .pull = local_pull,
    .pull_start = local_pull_start,
    .pull_finish = local_pull_finish,
    .scatter_start = local_pull_start,
    .scatter_finish = local_scatter_finish,
    .all_reduce = local_all_reduce,
    .reduce_scatter = local_reduce_scatter,
    .post = local_post,
    .take = local_take,
    .barrier = local_barrier,
    .broadcast_host = local_broadcast_host,
    .agree = local_agree,
    .publish = local_publish,
    .look = local_look,
    .latest = local_latest,
    .fail = local_fail,
    .destroy = local_destroy,
};

RtComm *dtm_local_join(const LocalSegment *segment, int32_t rank, int32_t threads,
                       double deadline) {
  LocalControl *k = control_of(segment);
  LocalComm *c = calloc(1, sizeof *c);
  uint32_t *arrived = calloc((size_t)k->world, sizeof *arrived);
  int32_t *everyone = calloc((size_t)k->world, sizeof *everyone);
  if (!c || !arrived || !everyone) {
    free(c);
    free(arrived);
    free(everyone);
    return NULL;
  }
  for (int32_t r = 0; r < k->world; r++) {
    everyone[r] = r;
  }
  c->segment = *segment;
  c->control = k;
  c->arenas = segment->base + k->arena_offset;
  c->arrived = arrived;
  c->everyone = everyone;
  c->spin = (int64_t)k->world * threads <= dtm_rt_cores();
  c->base = (RtComm){.ops = &local_ops,
                     .rank = rank,
                     .world = k->world,
                     .local_rank = rank,
                     .local_world = k->world,
                     .threads = threads,
                     .arena = local_arena(c, rank),
                     .arena_size = k->arena_size,
                     .deadline = deadline};
  LocalSlot *slot = &k->slot[rank];
  if (segment->fd >= 0) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    fcntl(segment->fd, F_SETLK, &lock);
  }
  atomic_store(&slot->pid, getpid());
  local_publish(&c->base);
  atomic_store(&slot->state, LOCAL_RUNNING);
  return &c->base;
}
