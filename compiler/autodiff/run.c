/* Stage explicit -> grad: see autodiff.h. One readable sequence: gradients, accumulation,
 * reduction, clipping, optimizer, what is computed again, clean-up. */
#include <string.h>

#include "autodiff/again.h"
#include "autodiff/step.h"
#include "ir/rewrite.h"

void step_phase(Step *s, Phase phase) {
  for (; s->done < s->d.g->nodes.len; s->done++)
    graph_node(s->d.g, s->done)->phase = (uint8_t)s->phase;
  s->phase = phase;
}

void step_serve(Step *s, const Trained *p) {
  s->d.node = graph_value(s->d.g, p->value)->node;
  s->d.failed = false;
}

ValueId step_read(Step *s, uint32_t var) {
  const Node *at = graph_node(s->d.g, s->d.node);
  TensorType type = s->program->vars.data[var].type;
  Attr attrs[] = {ATTR_I(VAR, var)};
  NodeId id = graph_add(s->d.g, OP_READ, NULL, 0, attrs, 1, &type, 1, at->span, at->scope);
  return node_result(graph_node(s->d.g, id), 0);
}

void step_assign(Step *s, uint32_t var, ValueId value) {
  const Node *at = graph_node(s->d.g, s->d.node);
  Attr attrs[] = {ATTR_I(VAR, var)};
  graph_add(s->d.g, OP_ASSIGN, &value, 1, attrs, 1, NULL, 0, at->span, at->scope);
}

static uint32_t new_var(Step *s, Var v, double initial) {
  Program *program = s->program;
  uint32_t index = program->vars.len;
  v.chunks = 1;
  VEC_PUSH(program->arena, &program->vars, v);
  Graph *init = program_graph(program, BLOCK_INIT);
  Attr full[] = {ATTR_T(TYPE, &v.type), ATTR_F(VALUE, initial)}, var[] = {ATTR_I(VAR, index)};
  NodeId filled = graph_add(init, OP_FULL, NULL, 0, full, 2, &v.type, 1, v.span, 0);
  ValueId value = node_result(graph_node(init, filled), 0);
  graph_add(init, OP_ASSIGN, &value, 1, var, 1, NULL, 0, v.span, 0);
  return index;
}

uint32_t step_new_var(Step *s, VarKind kind, const Trained *p, const char *suffix,
                      const TensorType *type) {
  const Var *param = &s->program->vars.data[p->var];
  Var v = {.kind = kind, .type = *type, .param = p->var, .span = param->span};
  v.name = intern(s->program->names, arena_printf(s->d.scratch, "%s.%s", param->name, suffix));
  return new_var(s, v, 0);
}

uint32_t step_new_scalar(Step *s, const char *name, DType dtype, double initial) {
  Var v = {.kind = VAR_OPTIMIZER,
           .name = intern(s->program->names, name),
           .type = {.dtype = dtype, .mesh = s->program->world},
           .param = s->params[0].var,
           .span = s->program->block[BLOCK_TRAIN].optimizer.span};
  return new_var(s, v, initial);
}

uint32_t step_add_var(Step *s, VarKind kind, const char *name, uint32_t param,
                      const TensorType *type, Span span) {
  Var v = {.kind = kind, .type = *type, .param = param, .span = span};
  v.name = intern(s->program->names, name);
  return new_var(s, v, 0);
}

void training_warn_unused(const Program *program, uint32_t var, DiagSink *sink) {
  const Var *v = &program->vars.data[var];
  diag_emit(sink, DIAG_UNUSED_PARAMETER, v->span,
            "parameter '%s' has no influence on the loss and is not trained", v->name);
}

/* The parameters that the graph reads, in order of their first use. */
static void find_params(Step *s) {
  const Graph *g = s->d.g;
  uint32_t nvars = s->program->vars.len;
  bool *read = ARENA_ARRAY(s->d.scratch, bool, nvars);
  s->params = ARENA_ARRAY(s->d.scratch, Trained, nvars);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_READ) continue;
    uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0);
    if (s->program->vars.data[var].kind != VAR_PARAM) continue;
    Trained *p = &s->params[s->nparams++];
    *p = (Trained){.var = var, .value = n->first_result, .kept = *value_type(g, n->first_result)};
    const Var *v = &s->program->vars.data[var];
    if (v->store == STORE_OPTIMIZER) p->kept.layout = v->stored;
    read[var] = true;
  }
  for (uint32_t var = 0; var < nvars; var++)
    if (s->program->vars.data[var].kind == VAR_PARAM && !read[var])
      training_warn_unused(s->program, var, s->d.sink);
}

static bool gradients(Step *s, ValueId loss, int64_t accumulate) {
  ValueId *wrt = ARENA_ARRAY(s->d.scratch, ValueId, s->nparams);
  ValueId *grads = ARENA_ARRAY(s->d.scratch, ValueId, s->nparams);
  for (uint32_t i = 0; i < s->nparams; i++) wrt[i] = s->params[i].value;
  if (!autodiff_gradients(s->d.g, loss, wrt, s->nparams, grads, accumulate, s->d.plans, s->d.sink))
    return false;
  for (uint32_t i = 0; i < s->nparams; i++) s->params[i].grad = grads[i];
  return true;
}

static void drop_unused(Step *s) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->nparams; i++) {
    Trained p = s->params[i];
    if (p.grad)
      s->params[kept++] = p;
    else
      training_warn_unused(s->program, p.var, s->d.sink);
  }
  s->nparams = kept;
}

/* The loss is handed out even where nothing in the source asks for it. */
static void output_loss(Step *s, ValueId loss) {
  Graph *g = s->d.g;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const char *role =
        graph_node(g, id)->op == OP_OUTPUT ? node_string(graph_node(g, id), ATTR_ROLE) : NULL;
    if (role && strcmp(role, "loss") == 0) return;
  }
  Node at = *value_node(g, loss);
  const char *name = intern(s->program->names, "loss");
  Attr attrs[] = {ATTR_S(NAME, name), ATTR_S(ROLE, name)};
  graph_add(g, OP_OUTPUT, &loss, 1, attrs, 2, NULL, 0, at.span, at.scope);
}

bool training_supported(const ProgramBlock *b, const Graph *g, DiagSink *sink) {
  uint32_t errors = sink->errors;
  const OptimizerSpec *o = &b->optimizer;
  if (o->kind && strcmp(o->kind, "sgd") != 0 && strcmp(o->kind, "adamw") != 0)
    diag_emit(sink, DIAG_UNSUPPORTED_TRAINING, o->span,
              "unknown optimizer '%s': there are sgd and adamw", o->kind);
  if (value_type(g, b->loss)->rank != 0)
    diag_emit(sink, DIAG_UNSUPPORTED_TRAINING, value_node(g, b->loss)->span,
              "the loss is %s, not one number", type_print(sink->arena, value_type(g, b->loss)));
  return sink->errors == errors;
}

/* `keep`: the loss and the learning rate, renumbered. */
static bool build(Step *s, ProgramBlock *b, ValueId keep[2]) {
  int64_t batches = b->settings.accumulate > 1 ? b->settings.accumulate : 1;
  s->cut = b->settings.microbatches > 1 || b->settings.schedule;
  output_loss(s, keep[0]);
  if (s->cut) {
    batches *= b->settings.microbatches;
    step_cut(s, keep, 2);
  }
  find_params(s);
  bool scaled = b->settings.compute == DT_F16 && s->nparams;
  /* in f16 a micro-batch's share of the gradient is taken at its root: what overflows, and what is
   * too small, is then what would be so in the whole batch */
  int64_t parts = scaled ? b->settings.microbatches : 1;
  ValueId from = scaled ? step_scale_loss(s, keep[0], 1 / (double)parts) : keep[0];
  if (s->cut ? !step_use_gradients(s, from, batches) : !gradients(s, from, batches)) return false;
  s->done = s->d.g->nodes.len;
  if (s->cut && !step_gather_uses(s, batches / parts)) return false;
  drop_unused(s);
  if (s->cut)
    step_hand_out(s, batches);
  else if (batches > 1)
    step_accumulate(s, batches);
  step_reduce(s, b->settings.reduce_dtype);
  if (scaled && s->nparams) step_unscale(s);
  if (b->optimizer.clip_norm > 0) step_clip(s, b->optimizer.clip_norm);
  step_optimize(s, &b->optimizer, keep[1]);
  if (s->finite) step_rescale(s);
  step_clear(s);
  step_phase(s, PHASE_OPTIMIZER);
  return true;
}

bool autodiff_run(Program *program, PlanCache *plans, DiagSink *sink) {
  ProgramBlock *b = &program->block[BLOCK_TRAIN];
  if (!b->graph || !b->loss || !b->optimizer.kind) return true;
  if (!training_supported(b, b->graph, sink)) return false;
  uint32_t errors = sink->errors;
  Arena scratch;
  arena_init(&scratch);
  ValueId keep[] = {b->loss, b->optimizer.lr};
  Step s = {.program = program};
  s.d = (Grad){.scratch = &scratch, .plans = plans, .sink = sink};
  s.d.g = b->graph;
  graph_simplify(&scratch, s.d.g, keep, 2);
  diag_init(&s.d.inner, &scratch, sink->sources);
  if (build(&s, b, keep) && sink->errors == errors) {
    s.d.g = again_run(&scratch, program, s.d.g, s.cut, keep, 2);
    graph_simplify(&scratch, s.d.g, keep, 2);
    b->graph = s.d.g;
    b->loss = keep[0];
    b->optimizer.lr = keep[1];
  }
  arena_free(&scratch);
  return sink->errors == errors;
}
