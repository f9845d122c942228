/* Collectives of local ranks, in place on the mapped arenas. Each is: wait until every member is
 * ready, move or fold, wait until every member is done. */
#include "comm/local_control.h"

#include "comm/box.h"
#include "comm/reduce.h"
#include "comm/errors.h"

#include <stdlib.h>

static void copy_boxes(RtComm *comm, size_t src, size_t dst, int dtype, const RtBox *boxes,
                       size_t nboxes) {
  LocalComm *c = local_of(comm);
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  bool stream = dtm_boxes_bytes(boxes, nboxes, element) >= RT_STREAM_BYTES;
  for (size_t i = 0; i < nboxes; i++) {
    dtm_box_copy(comm->arena + dst, local_arena(c, boxes[i].peer) + src, &boxes[i], element, stream,
                 comm->threads);
  }
}

int local_pull(RtComm *comm, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
               const int32_t *group, int32_t ngroup) {
  int error = local_barrier(comm, group, ngroup);
  if (error) {
    return error;
  }
  copy_boxes(comm, src, dst, dtype, boxes, nboxes);
  return local_barrier(comm, group, ngroup);
}

/* Of a pull and of a reduce-scatter. State: the arrivals that the second half waits for. */
int local_pull_start(RtComm *comm, size_t src, int dtype, const RtBox *boxes, size_t nboxes,
                     const int32_t *group, int32_t ngroup, RtPull *pull) {
  (void)src;
  (void)dtype;
  (void)boxes;
  (void)nboxes;
  if (!pull->state) {
    pull->state = malloc((size_t)ngroup * sizeof(uint32_t));
  }
  if (!pull->state) {
    return dtm_rt_fail(comm, RT_DEVICE, "out of memory in a transfer between ranks");
  }
  local_arrive(comm, group, ngroup, pull->state);
  return 0;
}

int local_pull_finish(RtComm *comm, size_t src, size_t dst, int dtype, const RtBox *boxes,
                      size_t nboxes, const int32_t *group, int32_t ngroup, RtPull *pull) {
  int error = local_wait(comm, group, ngroup, pull->state);
  if (error) {
    return error;
  }
  copy_boxes(comm, src, dst, dtype, boxes, nboxes);
  return local_barrier(comm, group, ngroup);
}

static int check_reduction(RtComm *comm, int dtype, int op, size_t src, size_t dst, size_t bytes) {
  if (!dtm_rt_reduces(dtype, op)) {
    return dtm_rt_fail(comm, RT_INTERNAL, "no reduction %d of element type %d", op, dtype);
  }
  if (src > comm->arena_size || dst > comm->arena_size || bytes > comm->arena_size - src ||
      bytes > comm->arena_size - dst) {
    return dtm_rt_fail(comm, RT_INTERNAL, "a reduction reaches beyond the arena");
  }
  return 0;
}

/* Every rank folds its own chunk of all members and writes the result to all of them. Only this
 * rank reads its chunk of anyone's source, so src == dst is safe, and one pass does both halves:
 * each element crosses memory once per member for reading and once for writing. */
int local_all_reduce(RtComm *comm, size_t src, size_t dst, size_t count, int dtype, int op,
                     const int32_t *group, int32_t ngroup) {
  LocalComm *c = local_of(comm);
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  int error = check_reduction(comm, dtype, op, src, dst, count * element);
  if (!error) {
    error = local_barrier(comm, group, ngroup);
  }
  if (error) {
    return error;
  }
  int32_t mine = 0;
  while (group[mine] != comm->rank) {
    mine++;
  }
  int64_t grain = (int64_t)(64 / element), first, last;
  dtm_split((int64_t)count, ngroup, mine, grain, &first, &last);
  size_t bytes = (size_t)(last - first) * element;
  bool stream = src != dst && bytes * (size_t)ngroup >= RT_STREAM_BYTES;
  int threads = dtm_threads_for(bytes * (size_t)ngroup, comm->threads);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; t++) {
    int64_t begin, end;
    dtm_split(last - first, threads, t, grain, &begin, &end);
    const void *from[LOCAL_MAX_WORLD];
    void *to[LOCAL_MAX_WORLD];
    for (int32_t g = 0; g < ngroup; g++) {
      unsigned char *arena = local_arena(c, group[g]);
      from[g] = arena + src + (size_t)(first + begin) * element;
      to[g] = arena + dst + (size_t)(first + begin) * element;
    }
    dtm_reduce(to, ngroup, from, ngroup, (size_t)(end - begin), dtype, op, stream);
  }
  return local_barrier(comm, group, ngroup);
}

typedef struct ScatterRun {
  const LocalComm *c;
  const int32_t *group;
  int32_t ngroup;
  size_t src, dst, element;
  int dtype, op;
  bool stream;
} ScatterRun;

static void scatter_run(void *ctx, const BoxRun *r) {
  const ScatterRun *s = ctx;
  int64_t element = (int64_t)s->element;
  const void *from[LOCAL_MAX_WORLD];
  for (int64_t i = 0; i < r->count; i++) {
    for (int32_t g = 0; g < s->ngroup; g++) {
      from[g] = local_arena(s->c, s->group[g]) + s->src + (r->src + i * r->src_stride) * element;
    }
    void *to = s->c->base.arena + s->dst + (r->dst + i * r->dst_stride) * element;
    dtm_reduce(&to, 1, from, s->ngroup, (size_t)r->row, s->dtype, s->op, s->stream);
  }
}

/* Folds this rank's boxes of what all members have ready. */
static void scatter(RtComm *comm, size_t src, size_t dst, int dtype, int op, const RtBox *boxes,
                    size_t nboxes, const int32_t *group, int32_t ngroup) {
  size_t element = abi_dtype_bytes((uint32_t)dtype);
  ScatterRun s = {local_of(comm), group, ngroup, src, dst, element, dtype, op, false};
  s.stream = src != dst && dtm_boxes_bytes(boxes, nboxes, element) >= RT_STREAM_BYTES;
  for (size_t i = 0; i < nboxes; i++) {
    BoxRows rows;
    dtm_box_rows(&boxes[i], &rows);
    int threads = dtm_threads_for((size_t)rows.total * element * (size_t)ngroup, comm->threads);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
      int64_t first, last;
      dtm_split(rows.total, threads, t, (int64_t)(64 / element), &first, &last);
      dtm_box_walk(&rows, first, last, scatter_run, &s);
    }
  }
}

int local_reduce_scatter(RtComm *comm, size_t src, size_t dst, int dtype, int op,
                         const RtBox *boxes, size_t nboxes, const int32_t *group, int32_t ngroup) {
  int error = check_reduction(comm, dtype, op, src, dst, 0);
  if (!error) {
    error = local_barrier(comm, group, ngroup);
  }
  if (error) {
    return error;
  }
  scatter(comm, src, dst, dtype, op, boxes, nboxes, group, ngroup);
  return local_barrier(comm, group, ngroup);
}

int local_scatter_finish(RtComm *comm, size_t src, size_t dst, int dtype, int op,
                         const RtBox *boxes, size_t nboxes, const int32_t *group, int32_t ngroup,
                         RtPull *pull) {
  int error = check_reduction(comm, dtype, op, src, dst, 0);
  if (!error) {
    error = local_wait(comm, group, ngroup, pull->state);
  }
  if (error) {
    return error;
  }
  scatter(comm, src, dst, dtype, op, boxes, nboxes, group, ngroup);
  return local_barrier(comm, group, ngroup);
}
