/* The redistribute planner: the cheapest way from one layout to another.
 *
 * Works on types alone; spmd/ lowers redistribute nodes with it, the driver prices fixes with it,
 * reports print it. Plans are cached per (from, to) in a PlanCache.
 */
#ifndef DTM_PLACE_PLACE_H
#define DTM_PLACE_PLACE_H

#include "ir/graph.h"

/* One collective or local conversion. `to` is the type after it. */
typedef struct PlanStep {
  Op op;         /* OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_ALL_TO_ALL, OP_EXCHANGE,
                    OP_SHARD_SLICE, OP_PARTIAL_FILL, OP_SEND_MESH */
  uint32_t axes; /* bit set of the mesh axes that take part */
  TensorType to;
  int64_t bytes_received; /* worst device */
  int64_t bytes_sent;     /* worst device */
} PlanStep;

enum { PLACE_MAX_STEPS = 24 };

typedef struct RedistributePlan {
  PlanStep steps[PLACE_MAX_STEPS];
  uint32_t nsteps;
  int64_t bytes_received, bytes_sent; /* sums over steps of the worst device */
  double cost;                        /* seconds under the topology */
  const char *error;                  /* NULL, or why there is no plan (P(a) -> P(b), a != b) */
} RedistributePlan;

/* alpha: seconds per step; beta: seconds per byte; per mesh axis. */
typedef struct Topology {
  double alpha[DTM_MAX_AXES], beta[DTM_MAX_AXES];
} Topology;

Topology topology_default(const Mesh *mesh);

typedef struct PlanCache PlanCache;
PlanCache *plan_cache_new(Arena *arena);

/* Cheapest plan from `from` to `to` (same dtype, shape; same mesh unless a mesh transfer). Partial
 * in the target that the source lacks is honoured (fill). Never NULL. */
const RedistributePlan *place_plan(PlanCache *cache, const TensorType *from, const TensorType *to,
                                   const Topology *topology);

/* The exact bound on bytes that some device must receive: max over devices of
 * |needed(d) \ owned(d)| * element size. Types without Partial. */
int64_t place_bound(const TensorType *from, const TensorType *to);

/* One block of a direct exchange: `receiver` pulls from `sender` (mesh positions). Senders among
 * replicas are chosen so that they are even. The runtime follows the same list. */
typedef struct Transfer {
  int64_t sender, receiver;
  Block block; /* global coordinates */
} Transfer;
typedef VEC(Transfer) TransferList;
void place_transfers(Arena *arena, const TensorType *from, const TensorType *to, TransferList *out);

/* "all-reduce 16.0 MiB" / "none"; bytes received by the worst device. */
const char *place_describe(Arena *arena, const RedistributePlan *plan);

#endif
