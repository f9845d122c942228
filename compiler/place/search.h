/* Inside the planner: partial plans (paths), their steps, and the candidates. */
#ifndef DTM_PLACE_SEARCH_H
#define DTM_PLACE_SEARCH_H

#include "place/measure.h"

typedef struct Measured {
  const Mesh *mesh;
  Layout from;
  Layout to;
  Traffic traffic;
} Measured;

/* What exchanges cost that were measured for one pair of types: paths share many. */
typedef struct Memo {
  Arena arena;
  IdMap known; /* hash -> index of an entry */
  VEC(Measured) entries;
} Memo;

/* A plan under construction: `at` is the type reached so far. */
typedef struct Path {
  RedistributePlan plan;
  TensorType at;
  const Topology *topology;
  Memo *memo;
} Path;

/* measure_exchange from where the path is. */
Traffic path_measure(const Path *path, const TensorType *to);

/* a is better than b: cheaper; else smaller peak memory; else fewer steps; else fewer exchanges
 * (a named collective says more). */
bool path_better(const Path *a, const Path *b);

/* Each goes to `to` (on the path's mesh) by one step, or none when it is there already. */
void path_exchange(Path *path, const TensorType *to); /* Partial axes agree; named by what it is */
void path_reduce_scatter(Path *path, uint32_t axes, const TensorType *to);
void path_all_reduce(Path *path, uint32_t axes);
void path_fill(Path *path, uint32_t axes, const TensorType *to);
void path_send(Path *path, const TensorType *to); /* to another mesh */

/* The best way between layouts whose Partial axes agree: one exchange, or two. */
void path_move(Path *path, const TensorType *to);

#endif
