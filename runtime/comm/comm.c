/* What every transport shares: which reductions exist, places, the mirror of a device. */
#include "comm/comm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

bool dtm_rt_reduces(int dtype, int op) {
  if (dtype <= ABI_NONE || dtype >= ABI_DTYPE_COUNT || dtype == ABI_F8_E4M3 ||
      dtype == ABI_F8_E5M2 || op <= ABI_REDUCE_NONE || op >= ABI_REDUCE_COUNT) {
    return false;
  }
  bool is_float = dtype <= ABI_F16;
  if (op == ABI_AVG) {
    return is_float;
  }
  if (op == ABI_AND || op == ABI_OR || op == ABI_XOR) {
    return !is_float;
  }
  return true;
}

void dtm_rt_comm_place(RtComm *c, RtPlace place) {
  c->place = place;
  if (c->world > 1) {
    c->ops->publish(c);
  }
}

void dtm_rt_comm_tick(RtComm *c) {
  c->ops->publish(c);
}

void dtm_rt_pull_free(RtPull *pull) {
  free(pull->state);
  pull->state = NULL;
}

int dtm_rt_comm_fetch(RtComm *c, size_t offset, size_t bytes) {
  return c->mirror ? c->mirror->fetch(c->mirror->context, offset, bytes, c->arena + offset) : 0;
}

int dtm_rt_comm_flush(RtComm *c, size_t offset, size_t bytes) {
  return c->mirror ? c->mirror->flush(c->mirror->context, offset, bytes, c->arena + offset) : 0;
}

/* Whole pages only; what is at the edges stays. MADV_REMOVE is for memory that ranks share. */
void dtm_rt_comm_release(RtComm *c, size_t offset, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (offset + bytes) / page * page;
  size_t begin = (offset + page - 1) / page * page;
  if (!c->mirror || begin >= end) return;
  if (madvise(c->arena + begin, end - begin, MADV_REMOVE) != 0)
    madvise(c->arena + begin, end - begin, MADV_DONTNEED);
}
