/* Calls: functions, methods, module instances, operators, method-call sugar. See elab.h. */
#include <string.h>

#include "sema/replay.h"

/* Runs a body with bound parameters; `what` names it. */
static Val call_body(Sema *s, const char *what, const char *path, const ParamList *params,
                     TypeExpr *const *results, uint32_t nresults, const StmtList *body, Env *outer,
                     const Call *call);
static Val call_instance(Sema *s, Instance *inst, const Call *call);
static Val call_method(Sema *s, const Method *m, const Call *call);

CallArg *eval_args(Sema *s, Env *env, const ArgList *args, uint32_t skip) {
  CallArg *out = ARENA_ARRAY(s->arena, CallArg, args->len + skip);
  const char *path = s->at.path;
  for (uint32_t i = 0; i < args->len; i++) {
    const Arg *a = &args->data[i];
    ExprKind kind = a->value ? a->value->kind : EXPR_ERROR;
    /* modules made in arguments: the elements of a list are x.0, x.1, others x.NAME or x.POSITION
     */
    bool list = kind == EXPR_LIST || kind == EXPR_COMPREHENSION;
    if (s->at.naming && a->name && (list || kind == EXPR_CALL))
      s->at.path = path_join(s, path, a->name);
    else if (s->at.naming && kind == EXPR_CALL)
      s->at.path = path_index(s, path, i);
    out[i + skip] = (CallArg){.name = a->name,
                              .is_key = a->is_key,
                              .name_span = a->name_span,
                              .value = eval(s, env, a->value),
                              .span = a->value ? a->value->span : a->span};
    s->at.path = path;
  }
  return out;
}

/* x.sum(dims): the built-in function with x before the other arguments. */
static Val call_method_sugar(Sema *s, Env *env, const Expr *e, Val base) {
  const Expr *callee = e->as.call.callee;
  const Builtin *builtin = builtin_find(s, callee->as.member.name);
  if (!builtin) {
    Diag *d = sema_error(s, DIAG_UNKNOWN_MEMBER, callee->as.member.name_span,
                         "a tensor has no operation %s", callee->as.member.name);
    Env none = {.names = &(NameMap){0}};
    const char *near = env_nearest(s, &none, callee->as.member.name);
    if (near)
      diag_help(s->sink, d, callee->as.member.name_span, near, NULL, "did you mean %s?", near);
    return POISON;
  }
  CallArg *args = eval_args(s, env, &e->as.call.args, 1);
  args[0] = (CallArg){.value = base, .span = callee->as.member.base->span};
  Call call = {.env = env,
               .name = builtin->name,
               .args = args,
               .nargs = e->as.call.args.len + 1,
               .span = e->span};
  return call_value(s, (Val){.kind = VAL_BUILTIN, .as.builtin = builtin}, &call);
}

Val eval_call(Sema *s, Env *env, const Expr *e) {
  const Expr *callee = e->as.call.callee;
  Val v;
  const char *name = "the callee";
  if (callee->kind == EXPR_MEMBER) {
    name = callee->as.member.name;
    const Expr *base_expr = callee->as.member.base;
    bool is_config = base_expr->kind == EXPR_NAME && strcmp(base_expr->as.s, "config") == 0;
    Val base = is_config ? (Val){0} : eval(s, env, base_expr);
    if (base.kind == VAL_POISON) {
      eval_args(s, env, &e->as.call.args, 0); /* its own faults are still reported */
      return POISON;
    }
    if (val_is_tensor(base)) return call_method_sugar(s, env, e, base);
    if (base.kind == VAL_MESH) {
      Call call = {.env = env, .name = name, .nargs = e->as.call.args.len, .span = e->span};
      call.args = eval_args(s, env, &e->as.call.args, 0);
      return mesh_member_call(s, base.as.mesh, name, &call);
    }
    v = eval(s, env, callee);
  } else {
    if (callee->kind == EXPR_NAME) name = callee->as.s;
    v = eval(s, env, callee);
    if (v.kind == VAL_BUILTIN && strcmp(name, "Partial") == 0) {
      Val place;
      return eval_placement(s, env, e, &place) ? place : POISON;
    }
  }
  Call call = {.env = env, .name = name, .nargs = e->as.call.args.len, .span = e->span};
  call.args = eval_args(s, env, &e->as.call.args, 0);
  return v.kind == VAL_POISON ? POISON : call_value(s, v, &call);
}

Val call_value(Sema *s, Val callee, const Call *call) {
  switch (callee.kind) {
  case VAL_POISON:
    return POISON;
  case VAL_FN: {
    Fn *fn = (Fn *)callee.as.fn;
    fn->called = true;
    return call_body(s, fn->what, s->at.path, &fn->item->as.fn.params, fn->item->as.fn.results.data,
                     fn->item->as.fn.results.len, &fn->item->as.fn.body, &fn->file->env, call);
  }
  case VAL_METHOD: {
    /* a derived module may have overridden it, also where base code calls it by its bare name */
    const Method *m = callee.as.method;
    return call_method(s, instance_method(s, m->instance, m->decl->as.method.name), call);
  }
  case VAL_MODULE:
    return instantiate(s, callee.as.module, call);
  case VAL_INSTANCE:
    return call_instance(s, callee.as.instance, call);
  case VAL_BUILTIN:
    for (uint32_t i = 0; i < call->nargs; i++)
      if (call->args[i].value.kind == VAL_POISON) return POISON;
    return callee.as.builtin->call ? callee.as.builtin->call(s, call)
                                   : call_op(s, callee.as.builtin->op, call);
  case VAL_UNSET:
  case VAL_NONE:
  case VAL_BOOL:
  case VAL_INT:
  case VAL_FLOAT:
  case VAL_STRING:
  case VAL_DTYPE:
  case VAL_AXIS:
  case VAL_MESH:
  case VAL_LAYOUT:
  case VAL_TYPE:
  case VAL_PLACE:
  case VAL_LIST:
  case VAL_TENSOR:
  case VAL_VAR:
  case VAL_FILE:
    break;
  }
  Diag *d = sema_error(s, DIAG_NOT_CALLABLE, call->span, "%s is %s and cannot be called",
                       call->name, val_kind_name(callee));
  if (callee.kind == VAL_PLACE)
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "write it without brackets: %s", call->name);
  return POISON;
}

/* --- bodies ------------------------------------------------------------------------------------
 */

/* Evaluates defaults, checks declared types, binds free extents. */
static bool bind_params(Sema *s, Env *frame, const ParamList *params, const Call *call) {
  Val *values;
  Span *spans;
  bool ok = bind_declared(s, call, params, NULL, &values, &spans);
  if (!values) return false;
  for (uint32_t p = 0; p < params->len; p++) {
    const ParamDecl *decl = &params->data[p];
    Span span = spans[p];
    Val v = bound_value(s, frame, decl, values[p], &span);
    if (v.kind != VAL_POISON && decl->type) {
      const char *what = arena_concat(s->arena, "argument ", decl->name, " of ", call->name, NULL);
      v = type_is_tensor(decl->type) ? match_tensor(s, frame, frame, decl->type, v, span, what)
                                     : coerce_named(s, frame, decl->type, v, span, what);
    }
    ok &= v.kind != VAL_POISON;
    env_declare(s, frame, decl->name, BIND_CONST, v, decl->span);
  }
  return ok;
}

/* A Partial leaves a body only where its type says so. */
static Val check_undeclared(Sema *s, Val v, Span span, const char *what) {
  if (!val_is_tensor(v)) return v;
  v = overlay_value(s, v, span);
  if (v.kind == VAL_POISON) return v;
  const TensorType *t = tensor_type(s, v);
  if (!layout_has_partial(&t->layout)) return v;
  Diag *d =
      sema_error(s, DIAG_UNDECLARED_PARTIAL, span, "%s returns a Partial value undeclared", what);
  diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
  diag_reason(s->sink, d, "a pending reduction that leaves a body must be in its result type");
  StrBuf axes;
  strbuf_init(&axes, s->arena);
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    if (p.kind != PLACE_PARTIAL) continue;
    strbuf_printf(&axes, "%s%s", axes.len ? ", " : "", t->mesh->axis[a]);
    if (p.op != REDUCE_SUM) strbuf_printf(&axes, ": %s", reduce_op_name((ReduceOp)p.op));
  }
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "declare it: (...) -> any partial(%s)", axes.text);
  FixCandidate *fix = ARENA_NEW(s->arena, FixCandidate);
  *fix = (FixCandidate){.node = span, .operand = FIX_VALUE, .text = span, .from = *t, .to = *t};
  for (uint32_t a = 0; a < t->mesh->naxes; a++)
    if (t->layout.at[a].kind == PLACE_PARTIAL)
      layout_set(&fix->to.layout, t->mesh, a, PLACE_REPLICATE, 0, REDUCE_NONE);
  VEC_PUSH(s->sink->arena, &d->fixes, fix);
  return POISON;
}

static Val check_result(Sema *s, Env *frame, TypeExpr *const *types, uint32_t ntypes, Val v,
                        Span span, const char *what) {
  if (v.kind == VAL_POISON) return v;
  if (!ntypes) {
    if (v.kind != VAL_LIST) return check_undeclared(s, v, span, what);
    List *list = list_new(s, v.as.list->len);
    for (uint32_t i = 0; i < list->len; i++)
      list->data[i] = check_undeclared(s, v.as.list->data[i], span, what);
    return val_list(list);
  }
  bool single = ntypes == 1;
  uint32_t got = v.kind == VAL_NONE ? 0 : single || v.kind != VAL_LIST ? 1 : v.as.list->len;
  if (got != ntypes) {
    sema_error(s, DIAG_RESULT_COUNT, span, "%s returns %u value%s but declares %u", what, got,
               got == 1 ? "" : "s", ntypes);
    return POISON;
  }
  List *list = list_new(s, ntypes);
  const char *name = arena_concat(s->arena, "the result of ", what, NULL);
  for (uint32_t i = 0; i < ntypes; i++) {
    Val r = single ? v : v.as.list->data[i];
    list->data[i] = type_is_tensor(types[i]) ? match_tensor(s, frame, NULL, types[i], r, span, name)
                                             : coerce_named(s, frame, types[i], r, span, name);
  }
  return single ? list->data[0] : val_list(list);
}

/* A free name of a parameter type that nothing else uses is often a misspelt constant. */
static void lint_unused(Sema *s, Env *frame, Env *outer) {
  for (uint32_t i = 0; i < frame->names->len; i++) {
    const Binding *b = frame->names->entries[i].value;
    if (b->kind != BIND_EXTENT || b->used) continue;
    const char *name = frame->names->entries[i].key;
    const char *near = env_nearest(s, outer, name);
    if (!near || builtin_find(s, near)) continue;
    Diag *d =
        sema_error(s, DIAG_UNUSED_BINDING, b->span, "%s binds here and is used nowhere else", name);
    diag_help(s->sink, d, b->span, near, NULL, "did you mean %s?", near);
  }
}

bool call_too_deep(Sema *s, Span span, const char *what) {
  s->work += SEMA_CALL_WORK;
  if (s->at.depth < SEMA_MAX_DEPTH) return false;
  Diag *d = sema_error(s, DIAG_CALL_DEPTH, span, "%s is called more than %d levels deep", what,
                       SEMA_MAX_DEPTH);
  diag_reason(s->sink, d, "calls are unrolled by the compiler, so recursion must end");
  return true;
}

static Val call_body(Sema *s, const char *what, const char *path, const ParamList *params,
                     TypeExpr *const *results, uint32_t nresults, const StmtList *body, Env *outer,
                     const Call *call) {
  if (call_too_deep(s, call->span, what)) return POISON;
  State saved = s->at;
  Span place = call->alone ? (Span){0} : call->span;
  Chain chain = {.parent = saved.chain, .what = what, .path = path, .call = place};
  s->at.depth++;
  s->at.path = path;
  s->at.naming = saved.naming && !saved.graph; /* in a module body a call may make modules */
  s->at.expected = NULL;
  s->at.allow_partial = false;
  s->at.auto_block = NULL; /* it holds for its own code, not for what it calls */
  s->at.operand = (Span){0};
  if (s->at.graph) s->at.scope = graph_add_scope(s->at.graph, saved.scope, path, what, place);
  Env frame = env_child(s, outer);
  frame.is_body = true;
  Val v = POISON;
  bool ok = bind_params(s, &frame, params, call);
  s->at.chain = &chain;
  Body run = {.kind = BODY_FUNCTION, .result = NONE, .result_span = call->span};
  if (ok) {
    exec_stmts(s, &frame, body, &run);
    bool trusted = saved.allow_partial && !nresults;
    v = run.result;
    if (!trusted) v = check_result(s, &frame, results, nresults, v, run.result_span, what);
    lint_unused(s, &frame, outer);
  }
  s->at = saved;
  return v;
}

static Val call_method(Sema *s, const Method *m, const Call *call) {
  if (m->instance->failed) return POISON;
  State saved = s->at;
  s->at.mesh = m->instance->mesh;
  Val v = call_body(s, m->what, m->instance->path, &m->decl->as.method.params,
                    m->decl->as.method.results.data, m->decl->as.method.results.len,
                    &m->decl->as.method.body, &m->level->env, call);
  s->at = saved;
  return v;
}

/* What a hook returned, as arguments of what runs next. */
static Call call_with(Sema *s, const Call *call, Val v, const char *name) {
  Call next = *call;
  uint32_t n = v.kind == VAL_LIST ? v.as.list->len : 1;
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, n);
  for (uint32_t i = 0; i < n; i++)
    args[i] = (CallArg){.value = v.kind == VAL_LIST ? v.as.list->data[i] : v, .span = call->span};
  next.args = args;
  next.nargs = n;
  next.name = name;
  return next;
}

static Val call_forward(Sema *s, Instance *inst, const Call *call) {
  const Method *before = instance_method(s, inst, s->known.redistribute_input);
  const Method *forward = instance_method(s, inst, s->known.forward);
  const Method *after = instance_method(s, inst, s->known.redistribute_output);
  if (!forward) {
    Diag *d = sema_error(s, DIAG_NO_FORWARD, call->span, "%s has no forward", inst->def->what);
    diag_note(s->sink, d, inst->def->item->span, "it is declared here");
    return POISON;
  }
  Call inner = *call;
  inner.name = inst->def->what;
  if (before) {
    Val v = call_method(s, before, &inner);
    if (v.kind == VAL_POISON) return POISON;
    inner = call_with(s, call, v, inner.name);
  }
  s->at.allow_partial = after != NULL;
  Val y = call_method(s, forward, &inner);
  s->at.allow_partial = false;
  if (!after || y.kind == VAL_POISON) return y;
  /* redistribute_output(y, inputs...): as many of the original inputs as it names. */
  uint32_t wanted = after->decl->as.method.params.len;
  uint32_t n = 1 + call->nargs < wanted ? 1 + call->nargs : wanted ? wanted : 1;
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, n);
  args[0] = (CallArg){.value = y, .span = call->span};
  for (uint32_t i = 1; i < n; i++) {
    args[i] = call->args[i - 1];
    args[i].name = NULL;
  }
  Call last = *call;
  last.args = args;
  last.nargs = n;
  last.name = after->what;
  return call_method(s, after, &last);
}

static Val call_instance(Sema *s, Instance *inst, const Call *call) {
  Val v;
  Recording *record;
  if (replay_call(s, inst, call, &v, &record)) return v;
  v = call_forward(s, inst, call);
  replay_keep(s, record, v);
  return v;
}
