/* `optimizer adamw(lr = cosine(3e-4, warmup = 200), ...)`. See elab.h.
 *
 * Schedules are functions of stdlib/optim.dtm over step() and total_steps(): their results are
 * ordinary scalar values of the train graph. They are visible where nothing else has their names.
 */
#include <string.h>

#include "sema/elab.h"

/* The schedules as built-in names, which are sought last; `linear` and `constant` hide what else
 * they are. Gives the built-ins as they were. */
static NameMap with_schedules(Sema *s, Span span) {
  NameMap before = s->builtins;
  s->builtins = (NameMap){0};
  for (uint32_t i = 0; i < before.len; i++)
    name_map_put(s->arena, &s->builtins, before.entries[i].key, before.entries[i].value);
  SourceUnit *optim = load_library(s, "optim", span);
  for (uint32_t i = 0; optim && i < optim->names.len; i++) {
    const char *name = optim->names.entries[i].key;
    const Binding *b = optim->names.entries[i].value;
    if (b->value.kind != VAL_FN) continue;
    Builtin *builtin = ARENA_NEW(s->arena, Builtin);
    *builtin = (Builtin){.name = name, .constant = b->value};
    name_map_put(s->arena, &s->builtins, name, builtin);
  }
  return before;
}

Val builtin_total_steps(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  if (!bind_words(s, call, "", v, at)) return POISON;
  if (s->block && s->block->kind == BLOCK_TRAIN && s->block->out->settings.steps)
    return val_int(s->block->out->settings.steps);
  Diag *d = sema_error(s, DIAG_OPTIMIZER, call->span, "the number of steps is not known");
  diag_reason(s->sink, d, "train says its length in epochs, so it depends on the data");
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "give the schedule `total = N`, or train `steps N`");
  return POISON;
}

/* A number or a scalar of the graph, as a Replicate float. */
static bool rate(Sema *s, Val v, Span span, ValueId *out) {
  DType dtype = dtype_map(s, DT_F32);
  if (val_is_number(v)) return literal_const(s, v, dtype, s->world, span, out);
  if (!as_tensor(s, v, span, "the learning rate", out)) return false;
  const TensorType *t = value_type(s->at.graph, *out);
  if (t->rank == 0 && t->dtype == dtype && layout_is_replicate(&t->layout)) return true;
  Diag *d = sema_error(s, DIAG_OPTIMIZER, span, "the learning rate must be a scalar %s[]",
                       dtype_name(dtype));
  diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
  return false;
}

static bool number_between(Sema *s, Val v, Span span, const char *what, double low, double high,
                           double *out) {
  if (v.kind == VAL_UNSET) return true;
  if (!want_float(s, v, span, what, out)) return false;
  if (*out >= low && *out <= high) return true;
  sema_error(s, DIAG_OPTIMIZER, span, "%s must be between %g and %g, not %s", what, low, high,
             val_print(s, v));
  return false;
}

static bool betas(Sema *s, Val v, Span span, OptimizerSpec *spec) {
  if (v.kind == VAL_UNSET) return true;
  if (v.kind != VAL_LIST || v.as.list->len != 2) {
    sema_error(s, DIAG_OPTIMIZER, span, "betas are two numbers: (0.9, 0.999)");
    return false;
  }
  return number_between(s, v.as.list->data[0], span, "beta1", 0, 1, &spec->beta1) &&
         number_between(s, v.as.list->data[1], span, "beta2", 0, 1, &spec->beta2);
}

static bool sgd(Sema *s, const Call *call, OptimizerSpec *spec) {
  Val v[4];
  Span at[4];
  return bind_words(s, call, "lr momentum? weight_decay? nesterov?", v, at) &&
         rate(s, v[0], at[0], &spec->lr) &&
         number_between(s, v[1], at[1], "momentum", 0, 1, &spec->momentum) &&
         number_between(s, v[2], at[2], "weight_decay", 0, 1e3, &spec->weight_decay) &&
         (v[3].kind == VAL_UNSET || want_bool(s, v[3], at[3], "nesterov", &spec->nesterov));
}

static bool adamw(Sema *s, const Call *call, OptimizerSpec *spec) {
  Val v[4];
  Span at[4];
  spec->beta1 = 0.9;
  spec->beta2 = 0.999;
  spec->eps = 1e-8;
  spec->weight_decay = 0.01;
  return bind_words(s, call, "lr betas? eps? weight_decay?", v, at) &&
         rate(s, v[0], at[0], &spec->lr) && betas(s, v[1], at[1], spec) &&
         number_between(s, v[2], at[2], "eps", 0, 1, &spec->eps) &&
         number_between(s, v[3], at[3], "weight_decay", 0, 1e3, &spec->weight_decay);
}

static const struct {
  const char *name;
  bool (*read)(Sema *s, const Call *call, OptimizerSpec *spec);
} optimizers[] = {{"sgd", sgd}, {"adamw", adamw}};

void block_optimizer(Sema *s, Env *env, RunBlock *block) {
  const Stmt *stmt = block->optimizer;
  const Expr *e = stmt->as.setting.parts.data[0].value;
  OptimizerSpec *spec = &block->out->optimizer;
  spec->span = e ? e->span : stmt->span;
  bool is_call = e && e->kind == EXPR_CALL && e->as.call.callee->kind == EXPR_NAME;
  const char *name = is_call ? e->as.call.callee->as.s : "";
  for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
    if (strcmp(optimizers[i].name, name) != 0) continue;
    Call call = {.env = env, .name = name, .nargs = e->as.call.args.len, .span = e->span};
    NameMap before = with_schedules(s, spec->span);
    call.args = eval_args(s, env, &e->as.call.args, 0);
    s->builtins = before;
    if (optimizers[i].read(s, &call, spec)) spec->kind = intern(s->names, name);
    return;
  }
  Diag *d = sema_error(s, DIAG_OPTIMIZER, spec->span, "an optimizer is sgd(...) or adamw(...)");
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "write it as in: optimizer adamw(lr = 3e-4)");
}
