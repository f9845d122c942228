/* store: where parameters are kept when ranks that hold all of them would hold the same. See
 * elab.h.
 *
 * A rule names mesh dims and how much is kept in pieces. That of a parameter's own line counts,
 * else that of the innermost module around it that has one, else that of train. What is not worth
 * cutting (scalars, tensors of one entry) stays whole.
 */
#include <string.h>

#include "sema/elab.h"

static bool level_of(Sema *s, const Name *what, StoreLevel *level) {
  *level = STORE_PARAMETERS;
  if (!what->text) return true;
  for (StoreLevel l = STORE_OPTIMIZER; l < STORE_COUNT; l++) {
    *level = l;
    if (strcmp(store_level_name(l), what->text) == 0) return true;
  }
  Diag *d = sema_error(s, DIAG_STORE, what->span, "%s cannot be stored apart", what->text);
  diag_reason(
      s->sink, d,
      "there are: store optimizer @dp (optimizer state), store gradients @dp (gradients and "
      "parameters between steps), store parameters @dp or store @dp (and between uses)");
  return false;
}

/* The name of the mesh dim that an axis names; NULL = none. */
static bool axis_name(Sema *s, Env *env, const Expr *e, const char **name) {
  Val v = eval_axis(s, env, e, s->at.mesh);
  int axis;
  *name = NULL;
  /* a mesh may have the name of its only dim */
  if (v.kind == VAL_MESH && e->kind == EXPR_NAME && mesh_axis(s->at.mesh, e->as.s) >= 0)
    v = (Val){.kind = VAL_AXIS, .as.s = e->as.s};
  if (v.kind == VAL_AXIS && mesh_knows_axis(s, v.as.s)) {
    *name = v.as.s;
    return true;
  }
  if (v.kind == VAL_POISON || !want_axis(s, v, s->at.mesh, e->span, true, &axis)) return false;
  if (axis >= 0) *name = s->at.mesh->axis[axis];
  return true;
}

/* NULL after a report. */
static const StoreRule *eval_store(Sema *s, Env *env, const Storage *storage) {
  StoreRule *rule = ARENA_NEW(s->arena, StoreRule);
  rule->span = storage->span;
  bool ok = level_of(s, &storage->what, &rule->level);
  for (uint32_t i = 0; i < storage->axes.len; i++) {
    const Expr *e = storage->axes.data[i];
    const char *name;
    if (!axis_name(s, env, e, &name)) return NULL;
    if (!name) continue;
    for (uint32_t k = 0; k < rule->naxes; k++) {
      if (strcmp(rule->axis[k], name) != 0) continue;
      sema_error(s, DIAG_BAD_LAYOUT, e->span, "mesh dim %s stands twice", name);
      return NULL;
    }
    if (rule->naxes < DTM_MAX_AXES) rule->axis[rule->naxes++] = name;
  }
  return ok ? rule : NULL;
}

void exec_store(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const StoreRule *rule = eval_store(s, env, &stmt->as.store.storage);
  if (body->kind == BODY_BLOCK) {
    if (body->block->kind != BLOCK_TRAIN) {
      sema_error(s, DIAG_SETTING, stmt->span, "store does not belong into %s", body->block->name);
    } else if (s->store) {
      Diag *d = sema_error(s, DIAG_SETTING, stmt->span, "store stands twice in train");
      diag_note(s->sink, d, s->store->span, "the first one");
    } else {
      s->store = rule;
    }
    return;
  }
  const StoreRule *saved = s->at.store;
  if (rule) s->at.store = rule;
  if (!stmt->as.store.has_body) return; /* up to the end of the module: instantiate restores */
  exec_stmts(s, env, &stmt->as.store.body, body);
  s->at.store = saved;
}

/* The dim that the ranks share out: the first, unless it has fewer entries than there are ranks and
 * another has more, or counts the chunks of a fused matrix, which are few. */
static int dim_to_cut(const Var *var, int64_t ways) {
  int64_t local[DTM_MAX_DIMS], most = 1;
  int best = -1;
  type_local_max(&var->type, local);
  for (uint32_t d = 0; d < var->type.rank; d++) {
    if (d == 0 && var->chunks > 1) continue;
    if (d == 0 && local[d] >= ways) return 0;
    if (local[d] <= most) continue;
    most = local[d];
    best = (int)d;
  }
  return best;
}

/* Cuts the parameter over those mesh dims of the rule on which it is whole. */
static void apply(const StoreRule *rule, Var *var) {
  uint32_t axes[DTM_MAX_AXES], n = 0;
  int64_t ways = 1;
  for (uint32_t i = 0; i < rule->naxes; i++) {
    int a = mesh_axis(var->type.mesh, rule->axis[i]);
    if (a < 0 || var->type.mesh->size[a] == 1 || var->type.layout.at[a].kind != PLACE_REPLICATE)
      continue;
    axes[n++] = (uint32_t)a;
    ways *= var->type.mesh->size[a];
  }
  int dim = dim_to_cut(var, ways);
  if (n == 0 || dim < 0) return;
  var->store = rule->level;
  var->stored = var->type.layout;
  for (uint32_t i = 0; i < n; i++)
    layout_set(&var->stored, var->type.mesh, axes[i], PLACE_SHARD, (uint32_t)dim, REDUCE_NONE);
}

/* A line of its own that cannot be meant is an error; a rule for many parameters passes over it. */
static bool fits(Sema *s, const StoreRule *rule, const Var *var) {
  if (var->kind != VAR_PARAM) {
    sema_error(s, DIAG_STORE, rule->span, "a buffer is not stored apart: only a parameter is");
    return false;
  }
  for (uint32_t i = 0; i < rule->naxes; i++) {
    int a = mesh_axis(var->type.mesh, rule->axis[i]);
    if (a < 0 || var->type.layout.at[a].kind == PLACE_REPLICATE) continue;
    Diag *d = sema_error(s, DIAG_STORE, rule->span, "%s is cut over %s already", var->name,
                         rule->axis[i]);
    diag_label(s->sink, d, "the parameter is %s", type_print(s->arena, &var->type));
    diag_reason(s->sink, d, "store shares out what all ranks of a mesh dim would hold alike");
    return false;
  }
  return true;
}

bool declare_storage(Sema *s, Env *env, const Stmt *stmt, Var *var) {
  const Storage *own = &stmt->as.param.storage;
  const StoreRule *rule = own->axes.len ? eval_store(s, env, own) : s->at.store;
  if (!rule) return own->axes.len != 0;
  if (own->axes.len ? fits(s, rule, var) : var->kind == VAR_PARAM) apply(rule, var);
  return true;
}

void apply_train_store(Sema *s) {
  for (uint32_t i = 0; s->store && i < s->program->vars.len; i++) {
    Var *var = &s->program->vars.data[i];
    if (var->kind == VAR_PARAM && !s->var_info.data[i].own_storage) apply(s->store, var);
  }
}
