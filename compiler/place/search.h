/* Inside the planner: partial plans (paths), their steps, and the candidates. */
#ifndef DTM_PLACE_SEARCH_H
#define DTM_PLACE_SEARCH_H

#include "place/measure.h"

/* A plan under construction: `at` is the type reached so far. */
typedef struct Path {
  RedistributePlan plan;
  TensorType at;
  const Topology *topology;
} Path;

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
