/* Inside autodiff/: what happens once per step, after the backward passes. */
#ifndef DTM_AUTODIFF_STEP_H
#define DTM_AUTODIFF_STEP_H

#include "autodiff/grad.h"

/* One parameter that is trained. */
typedef struct Trained {
  uint32_t var;
  ValueId value;        /* its READ */
  ValueId grad;         /* its gradient; raw, then reduced, then clipped */
  TensorType kept;      /* type of its optimizer state but for Partial: its own, or its piece */
  int64_t bucket;       /* of its reduction; 0 = none */
  uint32_t accumulator; /* variable that adds up raw gradients; 0 = none (it is never the first) */
} Trained;

typedef struct Step {
  Program *program;
  Grad d; /* builds nodes: graph, diagnostics, place of what is added */
  Trained *params;
  uint32_t nparams;
  /* compute f16 (scale.c): whether this step's gradients can be used, and variables: the factor of
   * the loss, the usable steps since it changed, all usable steps. 0 = none. */
  ValueId finite;
  uint32_t scale, since, usable;
  Phase phase; /* of nodes added from here on */
  NodeId done; /* nodes before this one have their phase */
} Step;

/* From here on added nodes belong to `phase`. */
void step_phase(Step *s, Phase phase);
/* Nodes added next serve this parameter: its place and scope. */
void step_serve(Step *s, const Trained *p);
ValueId step_read(Step *s, uint32_t var);
void step_assign(Step *s, uint32_t var, ValueId value);
/* A variable that belongs to a parameter, zero at the start: `name.suffix`. */
uint32_t step_new_var(Step *s, VarKind kind, const Trained *p, const char *suffix,
                      const TensorType *type);

/* A scalar of the optimizer's own, on all ranks. */
uint32_t step_new_scalar(Step *s, const char *name, DType dtype, double initial);
/* A scalar that all ranks have, on another mesh (clip.c). */
ValueId step_on_mesh(Step *s, ValueId scalar, const Mesh *mesh);
/* The sum of squares of all gradients, every scalar counted once (clip.c). */
ValueId step_sum_of_squares(Step *s);

/* Whether the optimizer is known and the loss one number; reports what is not. */
bool training_supported(const ProgramBlock *b, const Graph *g, DiagSink *sink);

/* The variable is a parameter that no gradient reaches. */
void training_warn_unused(const Program *program, uint32_t var, DiagSink *sink);

/* Adds up the raw gradients of the accumulated batches in variables (reduce.c); afterwards, once
 * per step, they start at zero again. */
void step_accumulate(Step *s, int64_t batches);
void step_clear(Step *s);
/* Brings every gradient to its parameter's placement, once, in buckets (reduce.c). */
void step_reduce(Step *s, DType wire);
/* Loss scaling (scale.c): the loss times the factor; gradients divided by it, when they are
 * reduced; the next factor. */
ValueId step_scale_loss(Step *s, ValueId loss);
void step_unscale(Step *s);
void step_rescale(Step *s);
/* `value`, but `old` in a step whose gradients cannot be used. */
ValueId step_if_finite(Step *s, ValueId value, ValueId old);
/* Scales all gradients so that their global norm is at most `limit` (clip.c). */
void step_clip(Step *s, double limit);
/* New values of parameters and optimizer state (optimizer.c). */
void step_optimize(Step *s, const OptimizerSpec *spec, ValueId lr);

#endif
