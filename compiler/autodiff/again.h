/* Inside autodiff/: values that the backward pass computes again instead of keeping them. */
#ifndef DTM_AUTODIFF_AGAIN_H
#define DTM_AUTODIFF_AGAIN_H

#include "ir/graph.h"

/* A graph in which backward nodes use clones (PHASE_RECOMPUTE, before their first use) of values
 * that are recomputed: those in recomputed scopes, and gathers of parameters with `store
 * parameters`. Forward nodes that nothing uses any more stay, for graph_simplify. `micro`: the
 * graph is that of one micro-batch; what is the same for all of them is kept. `keep` is renumbered.
 */
Graph *again_run(Arena *scratch, const Program *program, const Graph *g, bool micro, ValueId *keep,
                 uint32_t nkeep);

#endif
