/* Transfers and waiting with a deadline over MPI, which has none of its own.
 *
 * Only point-to-point messages between members are used: messages of a pair arrive in the order
 * they were sent, and members call the same operations in the same order, so no communicator per
 * group is needed. A rank that computes, saves or waits sends an empty "alive" message now and
 * then; a wait ends in failure when the awaited rank was silent for the deadline. */
#include "comm/mpi_private.h"

#include "comm/errors.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { PIECE = 1 << 30 }; /* MPI counts are ints */

double mpi_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int out_of_memory(MpiComm *c) {
  return dtm_rt_fail(&c->base, RT_DEVICE, "out of memory in a transfer between ranks");
}

static MPI_Request *new_request(MpiComm *c, int32_t peer) {
  if (c->nrequests == c->request_room) {
    size_t room = c->request_room * 2 + 16;
    MPI_Request *requests = realloc(c->requests, room * sizeof *requests);
    c->requests = requests ? requests : c->requests;
    int32_t *peers = realloc(c->request_peer, room * sizeof *peers);
    c->request_peer = peers ? peers : c->request_peer;
    if (!requests || !peers) {
      return NULL;
    }
    c->request_room = room;
  }
  c->request_peer[c->nrequests] = peer;
  return &c->requests[c->nrequests++];
}

int mpi_send(MpiComm *c, int32_t peer, MpiTag tag, const void *data, size_t n) {
  size_t at = 0;
  do {
    size_t bytes = n - at < PIECE ? n - at : PIECE;
    MPI_Request *request = new_request(c, peer);
    if (!request) {
      return out_of_memory(c);
    }
    MPI_Isend((const char *)data + at, (int)bytes, MPI_BYTE, peer, tag, c->world, request);
    at += bytes;
  } while (at < n);
  return 0;
}

int mpi_receive(MpiComm *c, int32_t peer, MpiTag tag, void *data, size_t n) {
  size_t at = 0;
  do {
    size_t bytes = n - at < PIECE ? n - at : PIECE;
    MPI_Request *request = new_request(c, peer);
    if (!request) {
      return out_of_memory(c);
    }
    MPI_Irecv((char *)data + at, (int)bytes, MPI_BYTE, peer, tag, c->world, request);
    at += bytes;
  } while (at < n);
  return 0;
}

void mpi_tell_alive(MpiComm *c) {
  double now = mpi_now();
  if (now - c->told < c->base.deadline / 4) {
    return;
  }
  c->told = now;
  for (int32_t r = 0; r < c->base.world; r++) {
    if (r != c->base.rank) {
      MPI_Request request;
      MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_ALIVE, c->world, &request);
      MPI_Request_free(&request);
    }
  }
}

static void listen_for_life(MpiComm *c) {
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_ALIVE, c->world, &arrived, &status);
    if (!arrived) {
      return;
    }
    MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TAG_ALIVE, c->world, MPI_STATUS_IGNORE);
    c->heard[status.MPI_SOURCE] = mpi_now();
  }
}

/* A long wait, from `since`, for `peer` (-1: for somebody). */
typedef struct Patience {
  double since;
  unsigned polls;
} Patience;

static int be_patient(MpiComm *c, Patience *p, int32_t peer) {
  if (++p->polls % 64 != 0) {
    return 0;
  }
  sched_yield(); /* ranks may outnumber processors */
  double now = mpi_now();
  if (p->since == 0) {
    p->since = now;
  }
  mpi_tell_alive(c);
  listen_for_life(c);
  double silent = now - p->since;
  if (peer >= 0 && now - c->heard[peer] < silent) {
    silent = now - c->heard[peer];
  }
  /* Somebody: as long as all of them talk, nobody is lost. */
  for (int32_t r = 0; peer < 0 && r < c->base.world && silent > c->base.deadline; r++) {
    if (r != c->base.rank && now - c->heard[r] > c->base.deadline) {
      peer = r;
    }
  }
  if (silent <= c->base.deadline || peer < 0) {
    return 0;
  }
  return dtm_rt_fail(&c->base, RT_LOST, "rank %d gave no sign of life for %g s (--deadline)",
                     (int)peer, c->base.deadline);
}

int mpi_wait(MpiComm *c) {
  Patience patience = {0};
  int error = 0;
  for (size_t i = 0; i < c->nrequests && !error;) {
    int done = 0;
    MPI_Test(&c->requests[i], &done, MPI_STATUS_IGNORE);
    if (done) {
      i++;
      patience = (Patience){0};
    } else {
      error = be_patient(c, &patience, c->request_peer[i]);
    }
  }
  c->nrequests = 0;
  return error;
}

int mpi_wait_one(MpiComm *c, MPI_Request *request, int32_t peer) {
  Patience patience = {0};
  for (int done = 0, error = 0;;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done) {
      return 0;
    }
    error = be_patient(c, &patience, peer);
    if (error) {
      return error;
    }
  }
}

int mpi_wait_message(MpiComm *c, int32_t peer, MpiTag tag, size_t *n) {
  Patience patience = {0};
  for (;;) {
    int arrived = 0, bytes = 0;
    MPI_Status status;
    MPI_Iprobe(peer, tag, c->world, &arrived, &status);
    if (arrived) {
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      *n = (size_t)bytes;
      return 0;
    }
    int error = be_patient(c, &patience, peer);
    if (error) {
      return error;
    }
  }
}

int mpi_scratch(MpiComm *c, size_t n) {
  if (n > c->scratch_room) {
    free(c->scratch);
    c->scratch = aligned_alloc(64, (n + 63) & ~(size_t)63);
    c->scratch_room = c->scratch ? n : 0;
  }
  return n && !c->scratch ? out_of_memory(c) : 0;
}
