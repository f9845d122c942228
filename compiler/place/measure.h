/* Exact traffic of one step, for the worst device, in elements. */
#ifndef DTM_PLACE_MEASURE_H
#define DTM_PLACE_MEASURE_H

#include "place/place.h"

typedef struct Traffic {
  int64_t received, sent;
} Traffic;

/* Exchange between layouts on one mesh whose Partial axes agree, by the rule of
 * runtime/abi/transfers.h. */
Traffic measure_exchange(const TensorType *from, const TensorType *to);
/* Reduce-scatter: `to` has Shard where `from` has Partial. As a ring forwards it. */
Traffic measure_reduce_scatter(const TensorType *from, const TensorType *to);
/* All-reduce over these axes. */
Traffic measure_all_reduce(const TensorType *from, uint32_t axes);
/* Transfer to another mesh. */
Traffic measure_send(const TensorType *from, const TensorType *to);

/* Axes whose coordinate may differ between sender and receiver of an exchange. */
uint32_t measure_axes(const TensorType *from, const TensorType *to);
/* Devices that differ in these axes. */
int64_t measure_ways(const Mesh *mesh, uint32_t axes);

#endif
