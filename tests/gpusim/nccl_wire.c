/* See nccl_wire.h. A rank holds a lock on the byte of its number of the file (a lock of the open
 * file, which goes away with the process, be it a zombie): that is how peers see that it lives. */
#include "gpusim/nccl_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOT = 2 * WIRE_CHUNK };

static size_t data_offset(void) {
  return (sizeof(WireShared) + 4095) / 4096 * 4096;
}

static size_t file_size(int nranks) {
  size_t n = (size_t)nranks;
  return data_offset() + (n + n * n) * 2 * SLOT;
}

/* Under the file's lock: the first to come makes it, the last one takes its name away. */
static const char *join(Wire *w, const char *path, int device) {
  static _Thread_local char text[256];
  off_t size = lseek(w->fd, 0, SEEK_END);
  size_t want = file_size(w->nranks);
  if (size == 0 && ftruncate(w->fd, (off_t)want) != 0) return "no room for the shared file";
  if (size && (size_t)size != want) return "ranks do not agree on how many there are";
  void *map = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, w->fd, 0);
  if (map == MAP_FAILED) return "cannot map the shared file";
  w->shared = map;
  w->data = (unsigned char *)map + data_offset();
  WireShared *s = w->shared;
  WireRank *mine = &s->rank[w->rank];
  if (mine->state != WIRE_ABSENT) {
    snprintf(text, sizeof text, "rank %d is there twice", w->rank);
    return text;
  }
  for (int r = 0; r < w->nranks; r++)
    if (s->rank[r].state == WIRE_HERE && s->rank[r].device == device) {
      snprintf(text, sizeof text, "Duplicate GPU detected: rank %d and rank %d both on device %d",
               w->rank, r, device);
      return text;
    }
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = w->rank, .l_len = 1};
  if (fcntl(w->fd, F_OFD_SETLK, &lock) != 0) return "cannot lock the shared file";
  mine->device = device;
  mine->pid = (int32_t)getpid();
  snprintf(mine->doing, sizeof mine->doing, "nothing yet");
  mine->state = WIRE_HERE;
  if (++s->attached == (uint32_t)w->nranks) unlink(path);
  return NULL;
}

const char *wire_open(Wire *wire, const char *path, int nranks, int rank, int device) {
  *wire = (Wire){.fd = -1, .rank = rank, .nranks = nranks};
  if (nranks < 1 || nranks > WIRE_RANKS || rank < 0 || rank >= nranks)
    return "number of ranks, or rank, out of range";
  wire->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (wire->fd < 0) return strerror(errno);
  flock(wire->fd, LOCK_EX);
  const char *error = join(wire, path, device);
  flock(wire->fd, LOCK_UN);
  if (error) {
    close(wire->fd);
    wire->fd = -1;
  } else {
    wire_bump(wire);
  }
  return error;
}

bool wire_complete(const Wire *wire) {
  return wire->shared->attached == (uint32_t)wire->nranks;
}

void wire_close(Wire *wire) {
  if (wire->fd < 0) return;
  wire->shared->rank[wire->rank].state = WIRE_LEFT;
  wire_bump(wire);
  close(wire->fd);
  wire->fd = -1;
}

unsigned char *wire_chunk(const Wire *wire, int rank, unsigned slot) {
  return wire->data + ((size_t)rank * 2 + slot) * SLOT;
}

unsigned char *wire_message(const Wire *wire, int from, int to, unsigned slot) {
  size_t n = (size_t)wire->nranks, pair = (size_t)from * n + (size_t)to;
  return wire->data + ((n + pair) * 2 + slot) * SLOT;
}

unsigned char *wire_holes(unsigned char *chunk) {
  return chunk + WIRE_CHUNK;
}

static void change(uint32_t *word) {
  __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wire_bump(const Wire *wire) {
  change(&wire->shared->activity);
}

void wire_ring(const Wire *wire) {
  change(&wire->shared->bell);
}

bool wire_dead(const Wire *wire, int rank) {
  if (wire->fd < 0 || rank == wire->rank || wire->shared->rank[rank].state != WIRE_HERE)
    return false;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
  return fcntl(wire->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool wire_fail(const Wire *wire, const char *text) {
  uint32_t none = 0;
  if (!atomic_compare_exchange_strong(&wire->shared->failed, &none, 1)) return false;
  snprintf(wire->shared->failure, sizeof wire->shared->failure, "%s", text);
  wire_bump(wire);
  return true;
}

void wire_describe(const Wire *wire, char *text, size_t size) {
  static const char *const states[] = {"not there", "", "left: "};
  size_t n = 0;
  *text = 0;
  for (int r = 0; r < wire->nranks && n < size; r++) {
    const WireRank *k = &wire->shared->rank[r];
    const char *state = wire_dead(wire, r) ? "dead: " : states[k->state];
    n += (size_t)snprintf(text + n, size - n, "\n  rank %d: %s%s", r, state, k->doing);
  }
}
