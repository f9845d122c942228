/* Channels between local ranks: the sender copies into a slot of its outbox and raises its count of
 * messages; takers copy from there and raise theirs. Both counts lie in the arenas, where the other
 * side reads them: each is written by one rank alone. Counts wrap around. */
#include "comm/local_control.h"

#include <string.h>

#include "comm/box.h"
#include "comm/reduce.h"

enum { POSTED, TAKEN };

static _Atomic uint32_t *count_of(LocalComm *c, int32_t rank, const RtChannel *ch, int which) {
  return (_Atomic uint32_t *)(void *)(local_arena(c, rank) + ch->counts) + which;
}

/* Waits until every peer has posted or taken that many messages. */
static int wait_peers(LocalComm *c, const RtChannel *ch, int which, uint32_t target) {
  for (int32_t i = 0; i < ch->npeers; i++) {
    int32_t peer = ch->peers[i];
    int error = local_wait_count(c, peer, count_of(c, peer, ch, which), target);
    if (error) return error;
  }
  return 0;
}

int local_post(RtComm *comm, RtChannel *ch, size_t src, size_t bytes) {
  LocalComm *c = local_of(comm);
  int error = wait_peers(c, ch, TAKEN, ch->count + 1 - ch->slots);
  if (error) return error;
  size_t slot = ch->outbox + ch->count % ch->slots * ch->stride;
  if (ch->npeers) memcpy(comm->arena + slot, comm->arena + src, bytes);
  atomic_store_explicit(count_of(c, comm->rank, ch, POSTED), ++ch->count, memory_order_release);
  local_wake(c, ch->peers, ch->npeers);
  return 0;
}

int local_take(RtComm *comm, RtChannel *ch, size_t dst) {
  LocalComm *c = local_of(comm);
  int error = wait_peers(c, ch, POSTED, ch->count + 1);
  if (error) return error;
  size_t element = abi_dtype_bytes((uint32_t)ch->dtype);
  size_t slot = ch->outbox + ch->count % ch->slots * ch->stride;
  bool stream = dtm_boxes_bytes(ch->boxes, ch->nboxes, element) >= RT_STREAM_BYTES;
  for (size_t i = 0; i < ch->nboxes; i++)
    dtm_box_copy(comm->arena + dst, local_arena(c, ch->boxes[i].peer) + slot, &ch->boxes[i],
                 element, stream, comm->threads);
  atomic_store_explicit(count_of(c, comm->rank, ch, TAKEN), ++ch->count, memory_order_release);
  local_wake(c, ch->peers, ch->npeers);
  return 0;
}
