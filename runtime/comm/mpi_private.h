/* What the files of the MPI transport share. Private to mpi_*.c. */
#ifndef DTM_RT_COMM_MPI_PRIVATE_H
#define DTM_RT_COMM_MPI_PRIVATE_H

#include "comm/comm.h"

#include <mpi.h>

typedef enum MpiTag {
  TAG_BOXES = 1,
  TAG_DATA,
  TAG_BARRIER,
  TAG_ALIVE,
  TAG_CHANNEL /* + its id */
} MpiTag;

typedef struct MpiComm {
  RtComm base;
  MPI_Comm world;
  double told;   /* when this rank last told the others that it lives, seconds */
  double *heard; /* [world]: when this rank last heard that another lives */
  /* Outstanding requests of one operation, each with the rank on the other side. */
  MPI_Request *requests;
  int32_t *request_peer;
  size_t nrequests, request_room;
  unsigned char *scratch; /* packed boxes of one operation */
  size_t scratch_room;
} MpiComm;

static inline MpiComm *mpi_of(RtComm *c) {
  return (MpiComm *)c;
}

double mpi_now(void);

/* mpi_wait.c: start a transfer of any size; both sides must use the same n. 0 or a code. */
int mpi_send(MpiComm *c, int32_t peer, MpiTag tag, const void *data, size_t n);
int mpi_receive(MpiComm *c, int32_t peer, MpiTag tag, void *data, size_t n);
/* Waits for all transfers that were started, within the deadline. 0 or a code. */
int mpi_wait(MpiComm *c);
/* Waits for one request that a peer is to serve, or everybody (peer -1); or for a message from a
 * peer and its size. */
int mpi_wait_one(MpiComm *c, MPI_Request *request, int32_t peer);
int mpi_wait_message(MpiComm *c, int32_t peer, MpiTag tag, size_t *n);
/* Tells the others now and then that this rank lives; called from every wait and every place. */
void mpi_tell_alive(MpiComm *c);
/* At least n bytes at *scratch; 0 or a code. */
int mpi_scratch(MpiComm *c, size_t n);

/* Elements of boxes one after the other at `packed`, and from there into boxes; bytes. */
size_t mpi_pack(void *packed, const void *src, const RtBox *boxes, size_t nboxes, size_t element,
                int threads);
size_t mpi_unpack(void *dst, const void *packed, const RtBox *boxes, size_t nboxes, size_t element,
                  int threads);

/* mpi_channel.c */
int mpi_post(RtComm *c, RtChannel *channel, size_t src, size_t bytes);
int mpi_take(RtComm *c, RtChannel *channel, size_t dst);

/* mpi_ops.c */
int mpi_pull(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
             const int32_t *group, int32_t ngroup);
int mpi_pull_start(RtComm *c, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                   const int32_t *group, int32_t ngroup, RtPull *pull);
int mpi_pull_finish(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
                    const int32_t *group, int32_t ngroup, RtPull *pull);
int mpi_scatter_start(RtComm *c, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                      const int32_t *group, int32_t ngroup, RtPull *pull);
int mpi_scatter_finish(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                       size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull);
int mpi_all_reduce(RtComm *c, size_t src, size_t dst, size_t count, int dtype, int op,
                   const int32_t *group, int32_t ngroup);
int mpi_reduce_scatter(RtComm *c, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                       size_t nboxes, const int32_t *group, int32_t ngroup);
int mpi_barrier(RtComm *c, const int32_t *group, int32_t ngroup);

#endif
