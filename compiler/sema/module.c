/* Modules: instantiation with derivation, members, methods. See elab.h.
 *
 * An instance has one level per class of its chain, the named module first. Each level has names of
 * its own, so a derived `in` does not disturb the base's `in`; code of a level sees its own names,
 * then those of its bases, then the file it was written in. Members and methods seen from outside,
 * and methods called from anywhere, are those of the most derived level that has them.
 */
#include <string.h>

#include "sema/replay.h"

static bool build_level(Sema *s, Instance *inst, const ModuleDef *def, const Call *call);

/* The base call with the arguments that the derived module passes on. */
static bool call_base(Sema *s, Instance *inst, Level *level, const Call *call,
                      const ArgRest *rest) {
  const Expr *e = level->def->item->as.module.base;
  bool is_call = e->kind == EXPR_CALL;
  Val base = eval(s, &level->env, is_call ? e->as.call.callee : e);
  if (base.kind == VAL_POISON) return false;
  if (base.kind != VAL_MODULE) {
    sema_error(s, DIAG_NOT_CALLABLE, e->span, "a module derives from a module, not from %s",
               val_kind_name(base));
    return false;
  }
  uint32_t n = is_call ? e->as.call.args.len : 0;
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, n + rest->len);
  if (n) memcpy(args, eval_args(s, &level->env, &e->as.call.args, 0), n * sizeof *args);
  for (uint32_t r = 0; r < rest->len; r++) {
    for (uint32_t i = 0; i < n; i++) {
      if (args[i].name != rest->data[r].name) continue;
      Diag *d = sema_error(s, DIAG_ARGUMENTS, rest->data[r].span, "%s presets %s of its base",
                           call->name, args[i].name);
      diag_note(s->sink, d, args[i].span, "it is set here");
      return false;
    }
    args[n + r] = rest->data[r];
  }
  const char *name = base.as.module->item->name;
  Call inner = {.env = &level->env,
                .name = name,
                .args = args,
                .nargs = n + rest->len,
                .span = is_call ? e->span : call->span};
  return build_level(s, inst, base.as.module, &inner);
}

void link_names(Sema *s, Instance *inst, uint32_t k) {
  Level *level = inst->levels.data[k];
  Env *next = &level->def->file->env;
  for (uint32_t j = inst->levels.len; j-- > k + 1;) {
    Env *view = ARENA_NEW(s->arena, Env);
    *view = (Env){.parent = next,
                  .names = &inst->levels.data[j]->names,
                  .file = level->def->file,
                  .instance = inst};
    next = view;
  }
  level->env.parent = next;
}

static bool bind_module_params(Sema *s, Level *level, const Call *call, ArgRest *rest) {
  const ParamList *params = &level->def->item->as.module.params;
  Val *values;
  Span *spans;
  bool derived = level->def->item->as.module.base != NULL;
  bool ok = bind_declared(s, call, params, derived ? rest : NULL, &values, &spans);
  if (!values) return false;
  for (uint32_t p = 0; p < params->len; p++) {
    const ParamDecl *decl = &params->data[p];
    Span span = spans[p];
    Val v = bound_value(s, &level->env, decl, values[p], &span);
    if (decl->type) {
      const char *what = arena_concat(s->arena, "argument ", decl->name, " of ", call->name, NULL);
      if (type_is_tensor(decl->type) && !(decl->type->name && !decl->type->has_dims)) {
        sema_error(s, DIAG_VALUE_KIND, decl->type->span,
                   "an argument of a module is a compile-time value, not a tensor");
        v = POISON;
      } else {
        v = coerce_named(s, &level->env, decl->type, v, span, what);
      }
    }
    ok &= v.kind != VAL_POISON;
    env_declare(s, &level->env, decl->name, BIND_CONST, v, decl->span);
  }
  return ok;
}

static bool build_level(Sema *s, Instance *inst, const ModuleDef *def, const Call *call) {
  if (inst->levels.len >= SEMA_MAX_DEPTH) {
    sema_error(s, DIAG_CALL_DEPTH, call->span, "%s derives from itself", def->what);
    return false;
  }
  Level *level = ARENA_NEW(s->arena, Level);
  level->def = def;
  level->env =
      (Env){.parent = &def->file->env, .names = &level->names, .file = def->file, .instance = inst};
  uint32_t k = inst->levels.len;
  VEC_PUSH(s->arena, &inst->levels, level);
  ArgRest rest; /* large: what lies beyond its length is never read */
  rest.len = 0;
  if (!bind_module_params(s, level, call, &rest)) return false;
  if (def->item->as.module.base && !call_base(s, inst, level, call, &rest)) return false;
  link_names(s, inst, k);
  Body body = {.kind = BODY_MODULE, .instance = inst, .level = level};
  exec_stmts(s, &level->env, &def->item->as.module.body, &body);
  return true;
}

Val instantiate(Sema *s, const ModuleDef *def, const Call *call) {
  if (call_too_deep(s, call->span, def->what)) return POISON;
  Making *making;
  Instance *copy = remake(s, def, call, &making);
  if (copy) return (Val){.kind = VAL_INSTANCE, .as.instance = copy};
  State saved = s->at;
  Chain chain = {.parent = saved.chain, .what = def->what, .path = saved.path, .call = call->span};
  s->at.depth++;
  s->at.chain = &chain;
  s->at.graph = NULL; /* a module body computes no tensors */
  Instance *inst = ARENA_NEW(s->arena, Instance);
  inst->path = saved.path ? saved.path : "";
  inst->mesh = saved.mesh;
  inst->def = def;
  inst->span = call->span;
  inst->index = s->instances.len;
  VEC_PUSH(s->arena, &s->instances, inst);
  uint32_t first_var = s->program->vars.len, lost = s->lost;
  bool ok = build_level(s, inst, def, call);
  s->lost += !ok;
  bool whole = s->lost == lost;
  for (uint32_t r = 0; ok && r < inst->renames.len; r++)
    apply_renames(s, inst->renames.data[r], inst->path, first_var, whole);
  s->at = saved;
  if (!ok) return POISON;
  remake_keep(s, making);
  return (Val){.kind = VAL_INSTANCE, .as.instance = inst};
}

Val instance_member(Sema *s, Instance *inst, const char *name) {
  instance_open(s, inst);
  for (uint32_t k = 0; k < inst->levels.len; k++) {
    Level *level = inst->levels.data[k];
    Binding *b = name_map_get(&level->names, name);
    if (!b) continue;
    b->used = true;
    return binding_value(s, level->def->file, b, name);
  }
  return (Val){0};
}

const Method *instance_method(Sema *s, Instance *inst, const char *name) {
  instance_open(s, inst);
  for (uint32_t k = 0; k < inst->levels.len; k++) {
    const Binding *b = name_map_get(&inst->levels.data[k]->names, name);
    if (b && b->value.kind == VAL_METHOD) return b->value.as.method;
  }
  return NULL;
}
