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

/* A value of what runs once per step that what runs per micro-batch uses, and what it is to have of
 * a gradient: see micro.c. */
typedef struct Use {
  ValueId value;
  ValueId grad;         /* of one micro-batch; then that of the step, in the use's element type */
  uint32_t accumulator; /* variable */
} Use;

/* A number that is handed out once per step instead of once per micro-batch. */
typedef struct Deferred {
  Node output; /* the OUTPUT it was */
  TensorType type;
  uint32_t accumulator;
} Deferred;

typedef struct Step {
  Program *program;
  Grad d; /* builds nodes: graph, diagnostics, place of what is added */
  Trained *params;
  uint32_t nparams;
  /* compute f16 (scale.c): whether this step's gradients can be used, and variables: the factor of
   * the loss, the usable steps since it changed, all usable steps. 0 = none. */
  ValueId finite;
  uint32_t scale, since, usable;
  bool cut;     /* the batch comes in micro-batches: a pipeline */
  bool *varies; /* cut: per value of the forward pass: differs between micro-batches */
  VEC(Use) uses;
  VEC(Deferred) deferred;
  VEC(uint32_t) cleared; /* further variables that start every step at zero */
  Phase phase;           /* of nodes added from here on */
  NodeId done;           /* nodes before this one have their phase */
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
/* A variable of this name that is zero at the start; `param` as in Var. */
uint32_t step_add_var(Step *s, VarKind kind, const char *name, uint32_t param,
                      const TensorType *type, Span span);

/* --- micro.c ---- */
/* Before differentiation: numbers are added up over micro-batches and handed out later; rewrites
 * the graph and renumbers keep. */
void step_cut(Step *s, ValueId *keep, uint32_t nkeep);
/* Gradients of all uses of one micro-batch are in s->uses afterwards; false after an error. */
bool step_use_gradients(Step *s, ValueId loss, int64_t batches);
/* Adds them up over `batches` micro-batches, and takes the sums back to the parameters. */
bool step_gather_uses(Step *s, int64_t batches);
/* Hands out what was deferred: means over `batches` micro-batches. */
void step_hand_out(Step *s, int64_t batches);

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
/* Loss scaling (scale.c): the loss times the factor and `share`; gradients divided by it, when they
 * are reduced; the next factor. */
ValueId step_scale_loss(Step *s, ValueId loss, double share);
void step_unscale(Step *s);
void step_rescale(Step *s);
/* `value`, but `old` in a step whose gradients cannot be used. */
ValueId step_if_finite(Step *s, ValueId value, ValueId old);
/* Scales all gradients so that their global norm is at most `limit` (clip.c). */
void step_clip(Step *s, double limit);
/* New values of parameters and optimizer state (optimizer.c). */
void step_optimize(Step *s, const OptimizerSpec *spec, ValueId lr);

#endif
