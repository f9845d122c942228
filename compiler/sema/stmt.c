/* Statements of functions, modules and blocks. See elab.h. */
#include "sema/elab.h"

static Env *declaring_env(Env *env, const Body *body) {
  return body->kind == BODY_MODULE ? &body->level->env : env;
}

static void exec_let(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const NameList *names = &stmt->as.let.names;
  const char *path = s->at.path;
  if (body->kind != BODY_FUNCTION && names->len == 1) {
    s->at.naming = true;
    s->at.path =
        path_join(s, body->kind == BODY_MODULE ? body->instance->path : "", names->data[0].text);
  }
  Val v = eval(s, env, stmt->as.let.value);
  s->at.path = path;
  if (body->kind == BODY_BLOCK) s->at.naming = false;
  Span span = stmt->as.let.value ? stmt->as.let.value->span : stmt->span;
  Env *to = declaring_env(env, body);
  BindKind kind = body->kind == BODY_MODULE ? BIND_MEMBER : BIND_LET;
  if (stmt->as.let.type && v.kind != VAL_POISON) {
    const TypeExpr *t = stmt->as.let.type;
    const char *what = names->data[0].text;
    v = type_is_tensor(t) ? match_tensor(s, env, NULL, t, v, span, what)
                          : coerce_named(s, env, t, v, span, what);
  }
  if (names->len == 1) {
    name_value(s, v, names->data[0].text);
    env_declare(s, to, names->data[0].text, kind, v, names->data[0].span);
    return;
  }
  bool list = v.kind == VAL_LIST && v.as.list->len == names->len;
  if (!list && v.kind == VAL_LIST)
    sema_error(s, DIAG_RESULT_COUNT, span, "%u names for %u values", names->len, v.as.list->len);
  else if (!list && v.kind != VAL_POISON)
    sema_error(s, DIAG_RESULT_COUNT, span, "%u names for one value", names->len);
  for (uint32_t i = 0; i < names->len; i++) {
    Val item = list ? v.as.list->data[i] : POISON;
    name_value(s, item, names->data[i].text);
    env_declare(s, to, names->data[i].text, kind, item, names->data[i].span);
  }
}

bool assign_makes_state(const Sema *s, uint32_t var) {
  return s->at.block == BLOCK_INFER && s->var_info.data[var].block == BLOCK_INFER;
}

/* A buffer gets a new value, from the end of the step on. */
static void assign_buffer(Sema *s, const Stmt *stmt, uint32_t index, Val v) {
  Var *var = &s->program->vars.data[index];
  Span span = stmt->as.assign.value->span;
  ValueId id;
  if (var->kind != VAR_BUFFER && var->kind != VAR_STATE) {
    sema_error(s, DIAG_NOT_ASSIGNABLE, stmt->as.assign.name_span,
               "%s is a parameter; only the optimizer changes it", stmt->as.assign.name);
    return;
  }
  if (!as_tensor(s, v, span, "the new value", &id)) return;
  id = emit_on_mesh(s, id, var->type.mesh, span);
  if (!type_equal(value_type(s->at.graph, id), &var->type)) {
    Diag *d = sema_error(s, DIAG_DECLARED_SHAPE, span, "buffer %s is of another type",
                         stmt->as.assign.name);
    diag_label(s->sink, d, "this is %s", type_print(s->arena, value_type(s->at.graph, id)));
    diag_note(s->sink, d, var->span, "declared as %s", type_print(s->arena, &var->type));
    return;
  }
  bool state = assign_makes_state(s, index);
  if (state) var->kind = VAR_STATE;
  if (s->at.training || state)
    graph_add(s->at.graph, OP_ASSIGN, &id, 1, (Attr[]){ATTR_I(VAR, index)}, 1, NULL, 0, stmt->span,
              s->at.scope);
}

static void exec_assign(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const char *name = stmt->as.assign.name;
  const char *path = s->at.path;
  if (body->kind == BODY_MODULE) {
    s->at.path = path_join(s, body->instance->path, name);
    Val v = eval(s, env, stmt->as.assign.value);
    s->at.path = path;
    env_declare(s, &body->level->env, name, BIND_MEMBER, v, stmt->as.assign.name_span);
    return;
  }
  Val v = eval(s, env, stmt->as.assign.value);
  for (Env *e = env; e; e = e->is_body ? NULL : e->parent) {
    Binding *b = name_map_get(e->names, name);
    if (!b) continue;
    if (b->kind == BIND_LET) {
      name_value(s, v, name);
      b->value = v;
      return;
    }
    Diag *d = sema_error(s, DIAG_NOT_ASSIGNABLE, stmt->as.assign.name_span,
                         "%s is not a let and keeps its value", name);
    diag_note(s->sink, d, b->span, "it is declared here");
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "give the new value another name with let");
    return;
  }
  Binding *b = env_find(s, env, name);
  if (b && b->kind == BIND_MEMBER && b->value.kind == VAL_VAR) {
    assign_buffer(s, stmt, b->value.as.var, v);
    return;
  }
  Diag *d = sema_error(s, b ? DIAG_NOT_ASSIGNABLE : DIAG_UNKNOWN_NAME, stmt->as.assign.name_span,
                       b ? "%s is declared outside this body and keeps its value"
                         : "%s is assigned but not declared",
                       name);
  diag_help(s->sink, d, stmt->as.assign.name_span, arena_printf(s->arena, "let %s", name), NULL,
            "declare it: let %s = ...", name);
  if (!b) env_set(s, env, name, BIND_LET, v, stmt->as.assign.name_span);
}

static void exec_return(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const ExprList *values = &stmt->as.ret.values;
  body->returned = true;
  if (body->kind != BODY_FUNCTION) {
    sema_error(s, DIAG_RESULT_COUNT, stmt->span, "return stands in functions only");
    return;
  }
  if (values->len == 1) {
    body->result = eval(s, env, values->data[0]);
    body->result_span = values->data[0]->span;
    return;
  }
  List *list = list_new(s, values->len);
  bool poisoned = false;
  for (uint32_t i = 0; i < list->len; i++) {
    list->data[i] = eval(s, env, values->data[i]);
    poisoned |= list->data[i].kind == VAL_POISON;
  }
  body->result = poisoned ? POISON : list->len ? val_list(list) : NONE;
  body->result_span = stmt->span;
}

static void exec_if(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  bool yes;
  if (!eval_condition(s, env, stmt->as.if_.condition, "the condition of if", &yes)) {
    /* neither branch is known to run; what it would return is unknown too */
    body->result = POISON;
    body->returned = body->kind == BODY_FUNCTION;
    return;
  }
  const StmtList *branch = yes ? &stmt->as.if_.yes : &stmt->as.if_.no;
  Env inner;
  if (body->kind == BODY_FUNCTION) {
    inner = env_child(s, env);
    env = &inner;
  }
  exec_stmts(s, env, branch, body);
}

static void exec_for(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const List *over;
  if (!eval_iterable(s, env, stmt->as.for_.list, &over)) return;
  uint32_t errors = s->sink->errors;
  for (uint32_t i = 0; i < over->len && !body->returned; i++) {
    Env *inner = ARENA_NEW(s->arena, Env);
    *inner = env_child(s, env);
    inner->instance = env->instance;
    Name var = stmt->as.for_.var;
    if (i == 0)
      env_declare(s, inner, var.text, BIND_CONST, over->data[i], var.span);
    else
      env_set(s, inner, var.text, BIND_CONST, over->data[i], var.span);
    exec_stmts(s, inner, &stmt->as.for_.body, body);
    if (s->sink->errors > errors + 20) return; /* every turn fails alike */
  }
}

static void exec_assert(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const Expr *condition = stmt->as.assert_.condition, *message = stmt->as.assert_.message;
  bool holds;
  if (!eval_condition(s, env, condition, "the condition of assert", &holds) || holds) return;
  if (body->kind == BODY_MODULE) body->instance->failed = true;
  const char *text = source_text(s, condition->span);
  Val m = message ? eval(s, env, message) : (Val){0};
  Diag *d = sema_error(s, DIAG_ASSERT, condition->span, "assertion failed: %s",
                       m.kind == VAL_STRING ? m.as.s : text);
  if (condition->kind != EXPR_BINARY) return;
  /* the two sides, where they say more than the text */
  Val a = eval(s, env, condition->as.binary.left), b = eval(s, env, condition->as.binary.right);
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return;
  diag_reason(s->sink, d, "left is %s, right is %s", val_print(s, a), val_print(s, b));
}

static void exec_on(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  const Mesh *mesh, *saved = s->at.mesh;
  Val m = eval(s, env, stmt->as.on.mesh);
  if (m.kind != VAL_POISON && want_mesh(s, m, stmt->as.on.mesh->span, "what follows on", &mesh))
    s->at.mesh = mesh;
  exec_stmts(s, env, &stmt->as.on.body, body); /* what it declares is needed after a fault too */
  s->at.mesh = saved;
}

static void declare_method(Sema *s, const Stmt *stmt, Body *body) {
  Method *m = ARENA_NEW(s->arena, Method);
  *m = (Method){.decl = stmt, .instance = body->instance, .level = body->level};
  const char *module = body->level->def->what;
  bool forward = stmt->as.method.name == s->known.forward;
  m->what = forward ? module : arena_printf(s->arena, "%s.%s", module, stmt->as.method.name);
  env_declare(s, &body->level->env, stmt->as.method.name, BIND_MEMBER,
              (Val){.kind = VAL_METHOD, .as.method = m}, stmt->as.method.name_span);
}

static void exec_stmt(Sema *s, Env *env, const Stmt *stmt, Body *body) {
  switch (stmt->kind) {
  case STMT_ERROR:
    /* what stood here is unknown: so is what the body returns */
    if (body->kind == BODY_FUNCTION) {
      body->result = POISON;
      body->returned = true;
    }
    return;
  case STMT_LET:
    exec_let(s, env, stmt, body);
    return;
  case STMT_ASSIGN:
    exec_assign(s, env, stmt, body);
    return;
  case STMT_RETURN:
    exec_return(s, env, stmt, body);
    return;
  case STMT_EXPR:
    if (body->kind == BODY_BLOCK)
      block_expression(s, env, body->block, stmt);
    else
      eval(s, env, stmt->as.expr);
    return;
  case STMT_IF:
    exec_if(s, env, stmt, body);
    return;
  case STMT_FOR:
    exec_for(s, env, stmt, body);
    return;
  case STMT_ASSERT:
    exec_assert(s, env, stmt, body);
    return;
  case STMT_ON:
    exec_on(s, env, stmt, body);
    return;
  case STMT_STORE:
    exec_store(s, env, stmt, body);
    return;
  case STMT_PARAM:
    declare_param(s, env, body->instance, body->level, stmt);
    return;
  case STMT_METHOD:
    declare_method(s, stmt, body);
    return;
  case STMT_RENAME:
    if (body->kind == BODY_MODULE)
      VEC_PUSH(s->arena, &body->instance->renames, stmt);
    else
      apply_renames(s, stmt, "", 0, s->lost == 0);
    return;
  case STMT_SETTING:
    block_setting(s, env, body->block, stmt);
    return;
  }
}

void exec_stmts(Sema *s, Env *env, const StmtList *stmts, Body *body) {
  for (uint32_t i = 0; i < stmts->len && !body->returned; i++)
    exec_stmt(s, env, stmts->data[i], body);
}
