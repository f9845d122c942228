/* Mixed precision, and grad: from the explicit forward graph of `train` to forward + backward +
 * optimizer. */
#ifndef DTM_AUTODIFF_AUTODIFF_H
#define DTM_AUTODIFF_AUTODIFF_H

#include "infer/infer.h"
#include "place/place.h"

/* Stage graph -> graph, before composites are opened: with `compute bf16` the train block computes
 * in bf16 from f32 parameters. False when there were errors; nothing is changed then. */
bool compute_run(Program *program, DiagSink *sink);

/* Replaces program->block[BLOCK_TRAIN].graph by one that also computes every parameter's gradient,
 * reduces each once, clips, runs the optimizer and assigns. Adds optimizer and accumulator
 * variables. Emits diagnostics for what has no gradient. False when there were errors. */
bool autodiff_run(Program *program, PlanCache *plans, DiagSink *sink);

/* The errors of autodiff_run on a program of the same stage, at less cost and without changing it.
 */
bool autodiff_check(const Program *program, PlanCache *plans, DiagSink *sink);

/* Gradients alone, for tests and for pricing fixes: cotangent of each of `wrt` (0 = none flows).
 * Appends backward nodes to `g`, which is of stage explicit. A gradient's placement follows from
 * that of its value: S(d) -> S(d), Partial -> R, R -> R or P(sum), whichever gives fewer bytes over
 * the whole backward pass when a parameter's gradient is reduced once in `accumulate` passes. */
bool autodiff_gradients(Graph *g, ValueId loss, const ValueId *wrt, uint32_t nwrt, ValueId *grads,
                        int64_t accumulate, PlanCache *plans, DiagSink *sink);

/* Gradients of several values of which the cotangents `seeds` are given (of the same dtype and
 * shape; placed as a cotangent may be). Outputs may be among `wrt`. */
bool autodiff_pull_back(Graph *g, const ValueId *outputs, const ValueId *seeds, uint32_t noutputs,
                        const ValueId *wrt, uint32_t nwrt, ValueId *grads, PlanCache *plans,
                        DiagSink *sink);

#endif
