/* Channels over MPI: each peer's part goes packed in a message of its own, with a tag per channel.
 * A slot of the sending side is a packed copy whose messages are on their way; it is used again
 * when they are through. */
#include "comm/mpi_private.h"

#include "comm/box.h"
#include "comm/errors.h"

#include <stdlib.h>

enum { MOST_BYTES = 1 << 30 }; /* MPI counts are ints */

typedef struct Outbox {
  size_t room;           /* bytes of one slot */
  MPI_Request *requests; /* [slots][npeers] */
  unsigned char *packed; /* [slots][room] */
} Outbox;

/* The boxes of one peer, which follow each other. */
static size_t boxes_of(const RtChannel *ch, int32_t peer, size_t *first) {
  size_t n = 0;
  for (*first = 0; *first < ch->nboxes && ch->boxes[*first].peer != ch->peers[peer];) ++*first;
  while (*first + n < ch->nboxes && ch->boxes[*first + n].peer == ch->peers[peer]) n++;
  return n;
}

static int too_large(RtComm *c) {
  return dtm_rt_fail(c, RT_DEVICE,
                     "a message between two stages is larger than 1 GiB for one rank\n"
                     "  use more micro-batches");
}

static Outbox *open_outbox(RtComm *c, RtChannel *ch, size_t room) {
  size_t peers = (size_t)ch->npeers, slots = ch->slots;
  size_t head = (sizeof(Outbox) + peers * slots * sizeof(MPI_Request) + 63) & ~(size_t)63;
  Outbox *o = malloc(head + slots * room);
  if (!o) {
    dtm_rt_fail(c, RT_DEVICE, "out of memory in a transfer between ranks");
    return NULL;
  }
  *o = (Outbox){
      .room = room, .requests = (MPI_Request *)(o + 1), .packed = (unsigned char *)o + head};
  for (size_t i = 0; i < peers * slots; i++) o->requests[i] = MPI_REQUEST_NULL;
  ch->state = o;
  return o;
}

int mpi_post(RtComm *comm, RtChannel *ch, size_t src, size_t bytes) {
  MpiComm *c = mpi_of(comm);
  (void)bytes; /* what peers take of them is sent */
  size_t element = abi_dtype_bytes((uint32_t)ch->dtype);
  size_t room = dtm_boxes_bytes(ch->boxes, ch->nboxes, element);
  Outbox *o = ch->state ? ch->state : open_outbox(comm, ch, room);
  if (!o) return RT_DEVICE;
  size_t slot = ch->count++ % ch->slots, at = slot * o->room;
  for (int32_t i = 0; i < ch->npeers; i++) {
    MPI_Request *request = &o->requests[slot * (size_t)ch->npeers + (size_t)i];
    int error = *request == MPI_REQUEST_NULL ? 0 : mpi_wait_one(c, request, ch->peers[i]);
    if (error) return error;
  }
  for (int32_t i = 0; i < ch->npeers; i++) {
    size_t first, n = boxes_of(ch, i, &first);
    size_t size =
        mpi_pack(o->packed + at, comm->arena + src, ch->boxes + first, n, element, comm->threads);
    if (size > MOST_BYTES) return too_large(comm);
    MPI_Isend(o->packed + at, (int)size, MPI_BYTE, ch->peers[i], TAG_CHANNEL + (int)ch->id,
              c->world, &o->requests[slot * (size_t)ch->npeers + (size_t)i]);
    at += size;
  }
  return 0;
}

int mpi_take(RtComm *comm, RtChannel *ch, size_t dst) {
  MpiComm *c = mpi_of(comm);
  size_t element = abi_dtype_bytes((uint32_t)ch->dtype), at = 0;
  int error = mpi_scratch(c, dtm_boxes_bytes(ch->boxes, ch->nboxes, element));
  for (int32_t i = 0; i < ch->npeers && !error; i++) {
    size_t first, n = boxes_of(ch, i, &first);
    size_t size = dtm_boxes_bytes(ch->boxes + first, n, element);
    if (size > MOST_BYTES) return too_large(comm);
    error =
        mpi_receive(c, ch->peers[i], (MpiTag)(TAG_CHANNEL + (int)ch->id), c->scratch + at, size);
    at += size;
  }
  if (!error) error = mpi_wait(c);
  if (!error)
    mpi_unpack(comm->arena + dst, c->scratch, ch->boxes, ch->nboxes, element, comm->threads);
  ch->count++;
  return error;
}
