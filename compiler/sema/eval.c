/* Expressions. Compile-time parts give values, tensor parts append nodes. See elab.h. */
#include <string.h>

#include "sema/region.h"

const char *path_join(Sema *s, const char *path, const char *name) {
  if (!path || !*path) return name;
  return intern(s->names, arena_concat(s->arena, path, ".", name, NULL));
}

const char *path_index(Sema *s, const char *path, uint32_t i) {
  return intern(s->names, arena_printf(s->arena, "%s%s%u", path, *path ? "." : "", i));
}

bool eval_condition(Sema *s, Env *env, const Expr *e, const char *what, bool *out) {
  Val v = eval(s, env, e);
  if (v.kind == VAL_POISON) return false;
  if (val_is_tensor(v)) {
    Diag *d = sema_error(s, DIAG_TENSOR_CONDITION, e->span, "%s cannot depend on a tensor", what);
    diag_reason(s->sink, d, "it is decided by the compiler; tensors have values only at run time");
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "to choose per element use where(condition, a, b)");
    return false;
  }
  return want_bool(s, v, e->span, what, out);
}

bool eval_iterable(Sema *s, Env *env, const Expr *e, const List **out) {
  Val v = eval(s, env, e);
  return v.kind != VAL_POISON && want_list(s, v, e->span, "what is iterated over", out);
}

static Val eval_conditional(Sema *s, Env *env, const Expr *e) {
  bool yes;
  if (!eval_condition(s, env, e->as.conditional.condition, "the condition of if", &yes))
    return POISON;
  return eval(s, env, yes ? e->as.conditional.yes : e->as.conditional.no);
}

static Val eval_list(Sema *s, Env *env, const Expr *e) {
  for (uint32_t i = 0; i < e->as.list.len; i++) {
    if (!e->as.list.data[i].axes.len) continue;
    TensorType t;
    if (!eval_layout_literal(s, env, e, s->at.mesh, &t)) return POISON;
    Val layout = val_type(s, VAL_LAYOUT, &t);
    layout.any_mesh = true;
    return layout;
  }
  List *list = list_new(s, e->as.list.len);
  const char *path = s->at.path;
  bool poisoned = false;
  for (uint32_t i = 0; i < list->len; i++) {
    if (s->at.naming) s->at.path = path_index(s, path, i);
    list->data[i] = eval(s, env, e->as.list.data[i].value);
    poisoned |= list->data[i].kind == VAL_POISON;
  }
  s->at.path = path;
  return poisoned ? POISON : val_list(list);
}

static Val eval_comprehension(Sema *s, Env *env, const Expr *e) {
  const List *over;
  if (!eval_iterable(s, env, e->as.comprehension.list, &over)) return POISON;
  Env inner = env_child(s, env);
  Binding *var = env_declare(s, &inner, e->as.comprehension.var.text, BIND_CONST, POISON,
                             e->as.comprehension.var.span);
  List *out = list_new(s, over->len);
  const char *path = s->at.path;
  bool poisoned = false;
  out->len = 0;
  for (uint32_t i = 0; i < over->len; i++) {
    var->value = over->data[i];
    if (e->as.comprehension.condition) {
      bool take;
      if (!eval_condition(s, &inner, e->as.comprehension.condition, "the condition of if", &take))
        return POISON;
      if (!take) continue;
    }
    if (s->at.naming) s->at.path = path_index(s, path, out->len);
    Val v = eval(s, &inner, e->as.comprehension.element);
    poisoned |= v.kind == VAL_POISON;
    out->data[out->len++] = v;
  }
  s->at.path = path;
  return poisoned ? POISON : val_list(out);
}

static Val unknown_member(Sema *s, Val base, const Expr *e) {
  sema_error(s, DIAG_UNKNOWN_MEMBER, e->as.member.name_span, "%s has no member %s",
             val_kind_name(base), e->as.member.name);
  return POISON;
}

static Val file_member(Sema *s, SourceUnit *file, const Expr *e) {
  const char *name = e->as.member.name;
  Binding *b = name_map_get(&file->names, name);
  if (b) return binding_value(s, file, b, name);
  Diag *d =
      sema_error(s, DIAG_UNKNOWN_NAME, e->as.member.name_span, "%s has no %s", file->path, name);
  Env only = {.names = &file->names};
  const char *near = env_nearest(s, &only, name);
  if (near && name_map_has(&file->names, near))
    diag_help(s->sink, d, e->as.member.name_span, near, NULL, "did you mean %s?", near);
  return POISON;
}

static Val shape_list(Sema *s, Val tensor) {
  uint32_t rank = tensor_type(s, tensor)->rank;
  List *list = list_new(s, rank);
  for (uint32_t d = 0; d < rank; d++) list->data[d] = val_extent(s, tensor, d);
  return val_list(list);
}

/* x.shape, x.dtype, x.rank, x.T: what a tensor is, and its transpose. */
static Val tensor_member(Sema *s, Val base, const Expr *e) {
  const char *name = e->as.member.name;
  const TensorType *t = tensor_type(s, base);
  if (strcmp(name, "shape") == 0) return shape_list(s, base);
  if (strcmp(name, "dtype") == 0) return (Val){.kind = VAL_DTYPE, .as.dtype = t->dtype};
  if (strcmp(name, "rank") == 0 || strcmp(name, "ndim") == 0) return val_int(t->rank);
  if (strcmp(name, "mesh") == 0) {
    return (Val){.kind = VAL_MESH, .as.mesh = t->mesh ? t->mesh : s->at.mesh};
  }
  bool all = strcmp(name, "T") == 0;
  if ((!all && strcmp(name, "mT") != 0) || t->rank < 2) return unknown_member(s, base, e);
  int64_t dims[DTM_MAX_DIMS];
  uint32_t rank = t->rank;
  for (uint32_t d = 0; d < rank; d++) dims[d] = all ? rank - 1 - d : d;
  if (!all) {
    dims[rank - 1] = rank - 2;
    dims[rank - 2] = rank - 1;
  }
  ValueId x;
  if (!as_tensor(s, base, e->as.member.base->span, "the operand", &x)) return POISON;
  return emit1(s, OP_PERMUTE, x, (Attr[]){ATTR_INTS(DIMS, dims, rank)}, 1, e->span);
}

static Val eval_member(Sema *s, Env *env, const Expr *e) {
  /* config.layers, also where a member shadows the bare name */
  const Expr *base_expr = e->as.member.base;
  if (base_expr->kind == EXPR_NAME && strcmp(base_expr->as.s, "config") == 0) {
    Binding *b = name_map_get(&env->file->config, e->as.member.name);
    if (b) return binding_value(s, env->file, b, e->as.member.name);
    Diag *d = sema_error(s, DIAG_UNKNOWN_NAME, e->as.member.name_span, "config has no %s",
                         e->as.member.name);
    Env only = {.names = &env->file->config};
    const char *near = env_nearest(s, &only, e->as.member.name);
    if (near) diag_help(s->sink, d, e->as.member.name_span, near, NULL, "did you mean %s?", near);
    return POISON;
  }
  Val base = eval(s, env, base_expr);
  switch (base.kind) {
  case VAL_POISON:
    return POISON;
  case VAL_FILE:
    return file_member(s, base.as.file, e);
  case VAL_INSTANCE: {
    Val v = instance_member(s, base.as.instance, e->as.member.name);
    if (v.kind != VAL_UNSET) return region_admit(s, v, false, e->span);
    Diag *d = sema_error(s, DIAG_UNKNOWN_MEMBER, e->as.member.name_span, "%s has no member %s",
                         base.as.instance->def->what, e->as.member.name);
    Env only = {.names = &base.as.instance->levels.data[0]->names};
    const char *near = env_nearest(s, &only, e->as.member.name);
    if (near && name_map_has(only.names, near))
      diag_help(s->sink, d, e->as.member.name_span, near, NULL, "did you mean %s?", near);
    return POISON;
  }
  case VAL_TENSOR:
  case VAL_VAR:
    return tensor_member(s, base, e);
  case VAL_MESH: {
    Val v = mesh_member(s, base.as.mesh, e->as.member.name);
    return v.kind == VAL_UNSET ? unknown_member(s, base, e) : v;
  }
  case VAL_UNSET:
  case VAL_NONE:
  case VAL_BOOL:
  case VAL_INT:
  case VAL_FLOAT:
  case VAL_STRING:
  case VAL_DTYPE:
  case VAL_AXIS:
  case VAL_LAYOUT:
  case VAL_TYPE:
  case VAL_PLACE:
  case VAL_LIST:
  case VAL_FN:
  case VAL_METHOD:
  case VAL_MODULE:
  case VAL_BUILTIN:
    break;
  }
  return unknown_member(s, base, e);
}

static Val eval_type_expr(Sema *s, Env *env, const Expr *e) {
  const TypeExpr *t = e->as.type;
  if (t->dtype && !t->has_dims && !t->has_places && !t->partials.len && !t->mesh)
    return (Val){.kind = VAL_DTYPE, .as.dtype = dtype_map(s, t->dtype)};
  return eval_type_value(s, env, t);
}

/* What the call computes is in a scope of its own, which says so (autodiff/again.c). */
static Val eval_recompute(Sema *s, Env *env, const Expr *e) {
  if (s->at.region) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, e->span, "recompute stands in a local region");
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "put it before the call that holds the region");
    return POISON;
  }
  uint32_t outer = s->at.scope;
  if (s->at.graph) {
    s->at.scope = graph_add_scope(s->at.graph, outer, s->at.path, "recompute", e->span);
    s->at.graph->scopes.data[s->at.scope].recompute = true;
  }
  Val v = eval(s, env, e->as.recompute);
  s->at.scope = outer;
  return v;
}

static Val eval_on(Sema *s, Env *env, const Expr *e) {
  const Mesh *mesh;
  Val m = eval(s, env, e->as.on.mesh);
  if (m.kind == VAL_POISON || !want_mesh(s, m, e->as.on.mesh->span, "what follows on", &mesh))
    return POISON;
  const Mesh *saved = s->at.mesh;
  s->at.mesh = mesh;
  Val v = eval(s, env, e->as.on.value);
  s->at.mesh = saved;
  bool extents = v.kind == VAL_LIST && (v.as.list->len ? v.as.list->data[0].kind == VAL_INT
                                                       : e->as.on.value->kind == EXPR_LIST);
  if (extents) {
    TensorType t = {.mesh = mesh}; /* [8, 4] on m, [] on m: a layout that cuts nothing */
    if (!want_ints(s, v, e->as.on.value->span, "a layout", t.shape, DTM_MAX_DIMS, &t.rank))
      return POISON;
    return val_type(s, VAL_LAYOUT, &t);
  }
  v.any_mesh = false;
  const Mesh *other = val_is_tensor(v)         ? tensor_type(s, v)->mesh
                      : v.kind == VAL_INSTANCE ? v.as.instance->mesh
                                               : NULL;
  if (!other || other == mesh) return v;
  Diag *d = sema_error(s, DIAG_MESH_MISMATCH, e->span, "on moves nothing: this is on %s already",
                       other->name);
  diag_reason(s->sink, d, "on says where modules, types and layouts are made");
  if (val_is_tensor(v))
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "to move a value write (%s).redistribute(mesh = %s)",
              source_text(s, e->as.on.value->span), mesh->name);
  return POISON;
}

static Val eval_kind(Sema *s, Env *env, const Expr *e) {
  switch (e->kind) {
  case EXPR_ERROR:
    return POISON;
  case EXPR_INT:
    return val_int(e->as.i);
  case EXPR_FLOAT:
    return val_float(e->as.f);
  case EXPR_STRING:
    return val_string(e->as.s);
  case EXPR_BOOL:
    return val_bool(e->as.b);
  case EXPR_NONE:
    return NONE;
  case EXPR_NAME:
    return env_lookup(s, env, e->as.s, e->span);
  case EXPR_UNARY:
    return eval_unary(s, e->as.unary.op, eval(s, env, e->as.unary.operand), e->span,
                      e->as.unary.operand->span);
  case EXPR_BINARY: {
    Val a = eval(s, env, e->as.binary.left);
    /* `and`, `or` on compile-time values stop at the first that decides. */
    if (a.kind == VAL_BOOL &&
        ((e->as.binary.op == BINARY_AND && !a.as.b) || (e->as.binary.op == BINARY_OR && a.as.b)))
      return a;
    Val b = eval(s, env, e->as.binary.right);
    return eval_binary(s, e->as.binary.op, a, b, e->span, e->as.binary.left->span,
                       e->as.binary.right->span);
  }
  case EXPR_CONDITIONAL:
    return eval_conditional(s, env, e);
  case EXPR_CALL:
    return eval_call(s, env, e);
  case EXPR_INDEX:
    return eval_index(s, env, e);
  case EXPR_MEMBER:
    return eval_member(s, env, e);
  case EXPR_LIST:
  case EXPR_TUPLE:
    return eval_list(s, env, e);
  case EXPR_COMPREHENSION:
    return eval_comprehension(s, env, e);
  case EXPR_TYPE:
    return eval_type_expr(s, env, e);
  case EXPR_ON:
    return eval_on(s, env, e);
  case EXPR_RECOMPUTE:
    return eval_recompute(s, env, e);
  case EXPR_LOCAL:
    return eval_local(s, env, e);
  case EXPR_AUTO:
    return e->as.auto_.unchecked ? eval_unchecked(s, env, e) : eval_auto(s, env, e);
  }
  return POISON;
}

/* A program can ask for more than any machine has: recursion that branches, lists of lists. The
 * first expression beyond the bound says so, and what is left has no value. */
static bool worn_out(Sema *s, Span span) {
  if (++s->work <= SEMA_MAX_WORK) return false;
  if (s->work >= UINT64_MAX / 2) return true; /* said before */
  s->work = UINT64_MAX / 2;
  Diag *d = sema_error(s, DIAG_TOO_LARGE, span, "the program takes too long to evaluate");
  diag_reason(s->sink, d,
              "calls, loops and lists are unrolled by the compiler: %d expressions are "
              "as many as it evaluates, an element of a list counts as %d, a call as %d",
              SEMA_MAX_WORK, SEMA_LIST_WORK, SEMA_CALL_WORK);
  return true;
}

Val eval(Sema *s, Env *env, const Expr *e) {
  if (!e || worn_out(s, e->span)) return POISON;
  if (++s->expr_depth > SEMA_MAX_EXPR_DEPTH) {
    s->expr_depth--;
    sema_error(s, DIAG_CALL_DEPTH, e->span, "expressions and calls are nested too deep");
    return POISON;
  }
  Val v = eval_kind(s, env, e);
  s->expr_depth--;
  return v;
}
