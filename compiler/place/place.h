/* The redistribute planner: the cheapest way from one layout to another.
 *
 * Works on types alone; spmd/ lowers redistribute nodes with it, the driver prices fixes with it,
 * reports print it. Plans are cached per (from, to, topology) in a PlanCache.
 *
 * Invariants: every step's type has the same dtype and shape as `from`; the last step's type is
 * `to`; without Partial the bytes received equal place_bound for even sizes; no plan costs more
 * than going through any third layout (on meshes up to a size, see move.c).
 */
#ifndef DTM_PLACE_PLACE_H
#define DTM_PLACE_PLACE_H

#include "ir/graph.h"
#include "runtime/abi/abi.h"

/* One collective or local conversion. `to` is the type after it; what happens follows from the
 * types before and after it:
 *   OP_SHARD_SLICE     local: the new block is cut out of the old one (Replicate -> Shard)
 *   OP_PARTIAL_FILL    local: Replicate or Shard -> Partial, one reduction; sum and xor keep the
 *                      value on coordinate 0 of each axis (Shard -> Partial(sum): each keeps its
 *                      part) and are 0 elsewhere; product likewise with 1; all others keep it
 *   OP_ALL_GATHER      Shard -> Replicate on axes innermost on their dims
 *   OP_ALL_TO_ALL      Shard(i) -> Shard(j) on one or more axes
 *   OP_EXCHANGE        any change of Shard and Replicate
 *   OP_REDUCE_SCATTER  Partial -> Shard on all `axes`, one reduction
 *   OP_ALL_REDUCE      Partial -> Replicate on all `axes`, one reduction
 *   OP_SEND_MESH       to the block on another mesh; each Partial stays on its axis
 * Gathers, all-to-alls, exchanges and sends follow runtime/abi/transfers.h. */
typedef struct PlanStep {
  Op op;
  uint32_t axes; /* bit set of the mesh axes that take part: a group differs in their coordinates */
  TensorType to;
  int64_t bytes_received; /* worst device */
  int64_t bytes_sent;     /* worst device; gathers and reductions as a ring forwards them */
} PlanStep;

enum { PLACE_MAX_STEPS = 12 };

typedef struct RedistributePlan {
  PlanStep steps[PLACE_MAX_STEPS];
  uint32_t nsteps;
  int64_t bytes_received, bytes_sent; /* sums over steps of the worst device */
  int64_t peak_bytes;                 /* largest sum of a step's old and new block */
  double cost;                        /* seconds under the topology */
  const char *error;                  /* NULL, or why there is no plan (P(a) -> P(b), a != b) */
} RedistributePlan;

/* A step over several axes costs their largest alpha plus their largest beta times the larger of
 * the bytes received and sent by the worst device. Local steps are free. Per mesh axis. */
typedef struct Topology {
  double alpha[DTM_MAX_AXES]; /* seconds per step */
  double beta[DTM_MAX_AXES];  /* seconds per byte */
} Topology;

/* The same link on every axis: 10 us, 50 GB/s. */
Topology topology_default(const Mesh *mesh);
/* Lines "AXIS alpha=TIME bandwidth=RATE" such as "tp alpha=3us bandwidth=400GB/s"; axis `*` sets
 * all. Units s, ms, us, ns; B/s, KB/s, MB/s, GB/s, TB/s. `#` begins a comment. Axes the mesh lacks
 * are skipped: one file serves many programs. False with *error = "line 3: ...". */
bool topology_parse(Arena *arena, const char *text, const Mesh *mesh, Topology *out,
                    const char **error);

typedef struct PlanCache PlanCache;
PlanCache *plan_cache_new(Arena *arena);
/* Plans are costed by this text (see topology_parse) from here on, instead of by the default. False
 * with *error when it is wrong. */
bool plan_cache_set_topology(PlanCache *cache, const char *text, const char **error);
/* What plans from types on this mesh are costed by. */
const Topology *plan_cache_topology(PlanCache *cache, const Mesh *mesh);

/* Of the meshes with the same dims that were asked for, the first: between two of its types the
 * same happens. */
const Mesh *plan_cache_alike(PlanCache *cache, const Mesh *mesh);

/* Cheapest plan from `from` to `to` (same dtype, shape; same mesh unless a mesh transfer). Partial
 * in the target that the source lacks is honoured (fill). Never NULL. NULL topology = that of the
 * cache. */
const RedistributePlan *place_plan(PlanCache *cache, const TensorType *from, const TensorType *to,
                                   const Topology *topology);

/* The exact bound on bytes that some device must receive: max over devices of
 * |needed(d) \ owned(d)| * element size. Types without Partial, on one mesh. */
int64_t place_bound(const TensorType *from, const TensorType *to);

/* A transfer to another mesh moves nothing between ranks: every rank of the target holds its new
 * block already. */
bool place_send_is_local(const TensorType *from, const TensorType *to);

/* One box of an exchange: `receiver` pulls from `sender` (positions in their meshes), which may be
 * itself. */
typedef struct Transfer {
  int64_t sender, receiver;
  Block block; /* global coordinates */
} Transfer;
typedef VEC(Transfer) TransferList;
/* What all devices, or one of them, pull in a step from `from` to `to` that reduces nothing. */
void place_transfers(Arena *arena, const TensorType *from, const TensorType *to, TransferList *out);
void place_transfers_for(Arena *arena, const TensorType *from, const TensorType *to,
                         int64_t receiver, TransferList *out);

/* "all-reduce 16.0 MiB", "reduce-scatter 8.0 MiB + all-gather 8.0 MiB"; bytes received by the worst
 * device. "none" when nothing is communicated; the reason when there is no plan. */
const char *place_describe(Arena *arena, const RedistributePlan *plan);
/* "all-gather"; NULL for a step that is local. */
const char *place_step_name(Op op);

#endif
