/* grad: from the explicit forward graph of `train` to forward + backward + optimizer. */
#ifndef DTM_AUTODIFF_AUTODIFF_H
#define DTM_AUTODIFF_AUTODIFF_H

#include "infer/infer.h"
#include "place/place.h"

/* Replaces program->train.graph by one that also computes every parameter's gradient, reduces each
 * once, clips, runs the optimizer and assigns. Adds optimizer and accumulator variables. Emits
 * diagnostics for what has no gradient. False when there were errors. */
bool autodiff_run(Program *program, PlanCache *plans, DiagSink *sink);

/* Gradients alone, for tests and for pricing fixes: cotangent of each of `wrt` (0 = none flows).
 * Appends backward nodes to `g`. The result has the parameter placement rule of the algebra:
 * S(d) -> S(d), P(sum) -> R, R -> R or P(sum). */
bool autodiff_gradients(Graph *g, ValueId loss, const ValueId *wrt, uint32_t nwrt, ValueId *grads,
                        PlanCache *plans, DiagSink *sink);

#endif
