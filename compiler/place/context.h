/* explicit: attention whose sequence is cut by ulysses_cp is opened into redistributes around one
 * whose heads are; what is fetched comes back in its natural order. */
#ifndef DTM_PLACE_CONTEXT_H
#define DTM_PLACE_CONTEXT_H

#include "ir/rewrite.h"

/* Whether node `id` is opened here. */
bool context_opens(const Graph *g, NodeId id);
/* Appends it, opened, to map->to and maps its results. Never fails on what inference accepted. */
void context_open(Arena *scratch, const Program *program, GraphMap *map, NodeId id);

#endif
