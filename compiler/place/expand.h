/* explicit: composites that communicate inside are opened into primitives. */
#ifndef DTM_PLACE_EXPAND_H
#define DTM_PLACE_EXPAND_H

#include "ir/graph.h"

/* Replaces cross_entropy in every block of the program by primitives with explicit redistributes,
 * merges equal nodes and drops dead ones. Never fails on a graph that inference accepted. */
void expand_run(Program *program);

#endif
