/* Collectives over MPI messages: see mpi_wait.c. Sums keep the fold order of the group, so results
 * are the bits of the local transport. */
#include "comm/mpi_private.h"

#include "comm/box.h"
#include "comm/errors.h"
#include "comm/reduce.h"

#include <stdlib.h>

int mpi_barrier(RtComm *comm, const int32_t *group, int32_t ngroup) {
  MpiComm *c = mpi_of(comm);
  int32_t mine = 0;
  while (group[mine] != comm->rank) {
    mine++;
  }
  /* Dissemination: after round k everyone has heard of 2^(k+1) members. */
  for (int32_t step = 1; step < ngroup; step *= 2) {
    int error = mpi_send(c, group[(mine + step) % ngroup], TAG_BARRIER, NULL, 0);
    if (!error) {
      error = mpi_receive(c, group[(mine + ngroup - step) % ngroup], TAG_BARRIER, NULL, 0);
    }
    if (!error) {
      error = mpi_wait(c);
    }
    if (error) {
      return error;
    }
  }
  return 0;
}

/* Box i as packed elements at `offset` of a buffer: the other side of a copy. */
static RtBox packed_box(const RtBox *box, int64_t offset, bool packed_is_dst) {
  RtBox b = *box;
  int64_t stride = 1;
  for (int32_t d = box->ndims - 1; d >= 0; d--) {
    (packed_is_dst ? b.dst_stride : b.src_stride)[d] = stride;
    stride *= box->extent[d];
  }
  *(packed_is_dst ? &b.dst_offset : &b.src_offset) = offset;
  return b;
}

size_t mpi_pack(void *packed, const void *src, const RtBox *boxes, size_t nboxes, size_t element,
                int threads) {
  size_t at = 0;
  for (size_t i = 0; i < nboxes; i++) {
    RtBox b = packed_box(&boxes[i], (int64_t)at, true);
    dtm_box_copy(packed, src, &b, element, false, threads);
    at += dtm_boxes_bytes(&boxes[i], 1, element) / element;
  }
  return at * element;
}

size_t mpi_unpack(void *dst, const void *packed, const RtBox *boxes, size_t nboxes, size_t element,
                  int threads) {
  size_t at = 0;
  for (size_t i = 0; i < nboxes; i++) {
    RtBox b = packed_box(&boxes[i], (int64_t)at, false);
    dtm_box_copy(dst, packed, &b, element, false, threads);
    at += dtm_boxes_bytes(&boxes[i], 1, element) / element;
  }
  return at * element;
}

/* What one member wants of this rank, and the packed answer. */
typedef struct Request {
  RtBox *boxes;
  size_t nboxes;
  unsigned char *packed;
} Request;

/* Receives the list of boxes that `peer` wants of `src`, packs them and starts sending. */
static int serve(MpiComm *c, int32_t peer, size_t src, size_t element, Request *request) {
  size_t bytes;
  int error = mpi_wait_message(c, peer, TAG_BOXES, &bytes);
  if (error) {
    return error;
  }
  request->nboxes = bytes / sizeof(RtBox);
  request->boxes = malloc(bytes ? bytes : 1);
  if (!request->boxes) {
    return dtm_rt_fail(&c->base, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  MPI_Recv(request->boxes, (int)bytes, MPI_BYTE, peer, TAG_BOXES, c->world, MPI_STATUS_IGNORE);
  size_t total = dtm_boxes_bytes(request->boxes, request->nboxes, element);
  if (total == 0) {
    return 0;
  }
  request->packed = malloc(total);
  if (!request->packed) {
    return dtm_rt_fail(&c->base, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  mpi_pack(request->packed, c->base.arena + src, request->boxes, request->nboxes, element,
           c->base.threads);
  return mpi_send(c, peer, TAG_DATA, request->packed, total);
}

/* Asks for the boxes wanted of each member (lists[g], counts[g]), which arrive packed, member after
 * member, at `packed` when mpi_wait returns; those of this rank itself are packed by this call.
 * Returns when it has heard what every member wants of this rank, and sends it. */
static int fetch_start(MpiComm *c, size_t src, size_t element, const RtBox *const *lists,
                       const size_t *counts, unsigned char *packed, const int32_t *group,
                       int32_t ngroup, Request *requests) {
  int error = 0;
  for (int32_t g = 0; g < ngroup && !error; g++) {
    if (group[g] != c->base.rank) {
      error = mpi_send(c, group[g], TAG_BOXES, lists[g], counts[g] * sizeof(RtBox));
    }
  }
  size_t at = 0;
  for (int32_t g = 0; g < ngroup && !error; g++) {
    size_t bytes = dtm_boxes_bytes(lists[g], counts[g], element);
    if (group[g] == c->base.rank) {
      mpi_pack(packed + at, c->base.arena + src, lists[g], counts[g], element, c->base.threads);
    } else if (bytes) {
      error = mpi_receive(c, group[g], TAG_DATA, packed + at, bytes);
    }
    at += bytes;
  }
  for (int32_t g = 0; g < ngroup && !error; g++) {
    if (group[g] != c->base.rank) {
      error = serve(c, group[g], src, element, &requests[g]);
    }
  }
  return error;
}

static void free_requests(Request *requests, int32_t ngroup) {
  for (int32_t g = 0; g < ngroup && requests; g++) {
    free(requests[g].boxes);
    free(requests[g].packed);
  }
  free(requests);
}

/* A pull under way. */
typedef struct MpiPull {
  RtBox *sorted; /* the boxes by member */
  const RtBox **lists;
  size_t *counts, filled;
  unsigned char *packed;
  Request *requests;
} MpiPull;

static void free_pull(MpiPull *p, int32_t ngroup) {
  free_requests(p->requests, ngroup);
  free(p->sorted);
  free(p->lists);
  free(p->counts);
  free(p->packed);
}

static int sort_boxes(MpiPull *p, const RtBox *boxes, size_t nboxes, const int32_t *group,
                      size_t n) {
  p->sorted = malloc((nboxes ? nboxes : 1) * sizeof *p->sorted);
  p->lists = malloc(n * sizeof *p->lists);
  p->counts = calloc(n, sizeof *p->counts);
  p->requests = calloc(n, sizeof *p->requests);
  if (!p->sorted || !p->lists || !p->counts || !p->requests) {
    return -1;
  }
  for (size_t g = 0; g < n; g++) {
    p->lists[g] = p->sorted + p->filled;
    for (size_t i = 0; i < nboxes; i++) {
      if (boxes[i].peer == group[g]) {
        p->sorted[p->filled++] = boxes[i];
        p->counts[g]++;
      }
    }
  }
  return 0;
}

int mpi_pull_start(RtComm *comm, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                   const int32_t *group, int32_t ngroup, RtPull *pull) {
  MpiComm *c = mpi_of(comm);
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  MpiPull *p = calloc(1, sizeof *p);
  pull->state = p;
  if (p) {
    p->packed = malloc(dtm_boxes_bytes(boxes, nboxes, element) + 1);
  }
  if (!p || !p->packed || sort_boxes(p, boxes, nboxes, group, (size_t)ngroup)) {
    return dtm_rt_fail(comm, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  return fetch_start(c, src, element, p->lists, p->counts, p->packed, group, ngroup, p->requests);
}

/* Whatever else is under way is waited for too. */
int mpi_pull_finish(RtComm *comm, size_t src, size_t dst, int dtype, const RtBox *boxes,
                    size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull) {
  MpiPull *p = pull->state;
  (void)src;
  (void)boxes;
  (void)nboxes;
  (void)group;
  int error = mpi_wait(mpi_of(comm));
  if (error) {
    return error;
  }
  mpi_unpack(comm->arena + dst, p->packed, p->sorted, p->filled, abi_dtype_bytes((uint32_t)dtype),
             comm->threads);
  free_pull(p, ngroup);
  dtm_rt_pull_free(pull);
  return 0;
}

int mpi_pull(RtComm *comm, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
             const int32_t *group, int32_t ngroup) {
  RtPull pull = {0};
  int error = mpi_pull_start(comm, src, dtype, boxes, nboxes, group, ngroup, &pull);
  return error ? error
               : mpi_pull_finish(comm, src, dst, dtype, boxes, nboxes, group, ngroup, &pull);
}

static int check_reduction(RtComm *comm, int dtype, int op) {
  return dtm_rt_reduces(dtype, op)
             ? 0
             : dtm_rt_fail(comm, RT_INTERNAL, "no reduction %d of element type %d", op, dtype);
}

/* Chunk g of every member travels to member g, which folds them and sends the result to all. */
int mpi_all_reduce(RtComm *comm, size_t src, size_t dst, size_t count, int dtype, int op,
                   const int32_t *group, int32_t ngroup) {
  MpiComm *c = mpi_of(comm);
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  int64_t grain = (int64_t)(64 / element), first, last;
  int32_t mine = 0;
  while (group[mine] != comm->rank) {
    mine++;
  }
  dtm_split((int64_t)count, ngroup, mine, grain, &first, &last);
  size_t bytes = (size_t)(last - first) * element;
  const void **from = malloc((size_t)ngroup * sizeof *from);
  int error = check_reduction(comm, dtype, op);
  if (!error) {
    error = from ? mpi_scratch(c, bytes * (size_t)ngroup)
                 : dtm_rt_fail(comm, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  for (int32_t g = 0; g < ngroup && !error; g++) {
    int64_t begin, end;
    dtm_split((int64_t)count, ngroup, g, grain, &begin, &end);
    if (g == mine) {
      from[g] = comm->arena + src + (size_t)first * element;
      continue;
    }
    from[g] = c->scratch + (size_t)g * bytes;
    error = mpi_send(c, group[g], TAG_DATA, comm->arena + src + (size_t)begin * element,
                     (size_t)(end - begin) * element);
    if (!error) {
      error = mpi_receive(c, group[g], TAG_DATA, c->scratch + (size_t)g * bytes, bytes);
    }
  }
  if (!error) {
    error = mpi_wait(c);
  }
  if (!error && bytes) {
    void *to = comm->arena + dst + (size_t)first * element;
    dtm_reduce(&to, 1, from, ngroup, (size_t)(last - first), dtype, op, false);
  }
  free(from);
  for (int32_t g = 0; g < ngroup && !error; g++) {
    int64_t begin, end;
    dtm_split((int64_t)count, ngroup, g, grain, &begin, &end);
    if (g != mine) {
      error = mpi_send(c, group[g], TAG_DATA, comm->arena + dst + (size_t)first * element, bytes);
      if (!error) {
        error = mpi_receive(c, group[g], TAG_DATA, comm->arena + dst + (size_t)begin * element,
                            (size_t)(end - begin) * element);
      }
    }
  }
  return error ? error : mpi_wait(c);
}

/* Every member asks all members for the same boxes. The pull's packed bytes are the answers, member
 * after member. */
int mpi_scatter_start(RtComm *comm, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                      const int32_t *group, int32_t ngroup, RtPull *pull) {
  size_t element = abi_dtype_bytes((uint32_t)dtype), n = (size_t)ngroup;
  MpiPull *p = calloc(1, sizeof *p);
  pull->state = p;
  if (p) {
    p->packed = malloc(dtm_boxes_bytes(boxes, nboxes, element) * n + 1);
    p->lists = malloc(n * sizeof *p->lists);
    p->counts = malloc(n * sizeof *p->counts);
    p->requests = calloc(n, sizeof *p->requests);
  }
  if (!p || !p->packed || !p->lists || !p->counts || !p->requests) {
    return dtm_rt_fail(comm, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  for (size_t g = 0; g < n; g++) {
    p->lists[g] = boxes;
    p->counts[g] = nboxes;
  }
  return fetch_start(mpi_of(comm), src, element, p->lists, p->counts, p->packed, group, ngroup,
                     p->requests);
}

int mpi_scatter_finish(RtComm *comm, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                       size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull) {
  MpiComm *c = mpi_of(comm);
  MpiPull *p = pull->state;
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  size_t bytes = dtm_boxes_bytes(boxes, nboxes, element);
  const void **from = malloc((size_t)ngroup * sizeof *from);
  (void)src;
  (void)group;
  int error = check_reduction(comm, dtype, op);
  if (!error) {
    error = from ? mpi_scratch(c, bytes)
                 : dtm_rt_fail(comm, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  if (!error) {
    error = mpi_wait(c);
  }
  if (!error) {
    void *result = c->scratch;
    for (int32_t g = 0; g < ngroup; g++) {
      from[g] = p->packed + (size_t)g * bytes;
    }
    dtm_reduce(&result, 1, from, ngroup, bytes / element, dtype, op, false);
    mpi_unpack(comm->arena + dst, result, boxes, nboxes, element, comm->threads);
    free_pull(p, ngroup);
    dtm_rt_pull_free(pull);
  }
  free(from);
  return error;
}

int mpi_reduce_scatter(RtComm *comm, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                       size_t nboxes, const int32_t *group, int32_t ngroup) {
  RtPull pull = {0};
  int error = mpi_scatter_start(comm, src, dtype, boxes, nboxes, group, ngroup, &pull);
  return error ? error
               : mpi_scatter_finish(comm, src, dst, dtype, op, boxes, nboxes, group, ngroup, &pull);
}
