/* local(...) -> types { ... } and unchecked(out = ...) { ... }: see region.h. */
#include "sema/region.h"

#include <string.h>

static void open_region(Sema *s, Region *r, const char *what, const Mesh *mesh) {
  *r = (Region){.what = what, .mesh = mesh, .outside = s->at, .done = 1};
  for (uint32_t a = 0; a < mesh->naxes; a++)
    if (mesh->size[a] > 1) r->axis[r->nlead++] = (uint8_t)a;
  r->inner = graph_new(s->arena, what);
  /* the same numbers for the same scopes: messages name the chain of modules */
  for (uint32_t i = 1; i < s->at.graph->scopes.len; i++)
    VEC_PUSH(s->arena, &r->inner->scopes, s->at.graph->scopes.data[i]);
  VEC_PUSH(s->arena, &r->stack, 0);
  s->at.graph = r->inner;
  s->at.types = r->inner;
  s->at.cache = &r->cache;
  s->at.region = r;
  s->at.mesh = mesh;
  s->at.auto_block = NULL;
}

static bool may_open(Sema *s, const char *what, Span span) {
  if (!s->at.graph) {
    sema_error(s, DIAG_TENSOR_OUTSIDE, span, "tensors are computed in functions and blocks");
    return false;
  }
  if (!s->at.region) return true;
  sema_error(s, DIAG_LOCAL_REGION, span, "%s stands in code for one rank already", what);
  return false;
}

/* The inner value of an outer tensor, entered once. */
static Val enter(Sema *s, Region *r, ValueId x, Span span) {
  uint32_t have;
  if (id_map_get(&r->entered, x, &have)) return have ? val_tensor(have) : POISON;
  State inside = region_outside(s, r);
  TensorType block;
  const char *name = graph_value(s->at.graph, x)->name;
  ValueId stack = stack_enter(s, r, emit_on_mesh(s, x, r->mesh, span), span, &block);
  region_inside(s, &inside);
  ValueId leaf = stack ? region_leaf(s, r, stack, span) : 0;
  if (leaf) graph_value(r->inner, leaf)->name = name;
  id_map_put(s->arena, &r->entered, x, leaf);
  return leaf ? val_tensor(leaf) : POISON;
}

static bool holds_tensor(Val v, bool from_outside) {
  if (v.kind == VAL_VAR) return true;
  if (v.kind == VAL_TENSOR) return from_outside;
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len; i++)
    if (holds_tensor(v.as.list->data[i], from_outside)) return true;
  return false;
}

static Val capture(Sema *s, Region *r, Val v, Span span) {
  if (v.kind == VAL_LIST) {
    List *list = list_new(s, v.as.list->len);
    for (uint32_t i = 0; i < list->len; i++)
      list->data[i] = capture(s, r, v.as.list->data[i], span);
    return val_list(list);
  }
  if (!val_is_tensor(v)) return v;
  ValueId x = 0;
  State inside = region_outside(s, r);
  bool ok = as_tensor(s, v, span, "what enters", &x);
  region_inside(s, &inside);
  return ok ? enter(s, r, x, span) : POISON;
}

Val region_admit(Sema *s, Val v, bool from_outside, Span span) {
  Region *r = s->at.region;
  if (!r || !holds_tensor(v, from_outside)) return v;
  if (r->captures) return capture(s, r, v, span);
  Diag *d = sema_error(s, DIAG_LOCAL_REGION, span, "%s comes from outside the local region",
                       source_text(s, span));
  diag_reason(s->sink, d,
              "what enters is listed, so that it is seen which blocks the code works on");
  diag_help(s->sink, d, (Span){0}, NULL, NULL, "write local(..., %s), or local(..., name = value)",
            source_text(s, span));
  return POISON;
}

static Body run_body(Sema *s, Env *frame, const StmtList *body, Span span) {
  Body run = {.kind = BODY_FUNCTION, .result = NONE, .result_span = span};
  exec_stmts(s, frame, body, &run);
  return run;
}

/* One result, brought outside. */
static Val leave(Sema *s, Region *r, Val v, Span span, const TensorType *to, Claim claim,
                 bool *claimed) {
  ValueId x;
  if (val_is_number(v) && to->rank == 0 && !literal_const(s, v, to->dtype, r->mesh, span, &x))
    return POISON;
  if (!val_is_number(v) || to->rank) {
    if (!as_tensor(s, v, span, arena_printf(s->arena, "the result of %s", r->what), &x))
      return POISON;
  }
  if (to->mesh != r->mesh) {
    Diag *d =
        sema_error(s, DIAG_MESH_MISMATCH, span, "the result of %s stays on its mesh", r->what);
    diag_reason(s->sink, d, "the code runs on the ranks of %s; its result is declared on %s",
                r->mesh->name, to->mesh->name);
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "say `on %s` behind the type after ->, and redistribute what comes out",
              r->mesh->name);
    return POISON;
  }
  ValueId stack = region_stack(s, r, x, span);
  State inside = region_outside(s, r);
  ValueId y = stack_leave(s, r, stack, to, claim, span, claimed);
  region_inside(s, &inside);
  return y ? val_tensor(y) : POISON;
}

/* --- local -------------------------------------------------------------------------------------
 */

typedef struct Inputs {
  const Mesh *mesh;
  bool check;
  uint32_t n;
  const char *name[SEMA_MAX_ARGS];
  ValueId x[SEMA_MAX_ARGS];
  Span span[SEMA_MAX_ARGS];
} Inputs;

/* q, k = q * 2, run_check = true */
static bool read_inputs(Sema *s, Env *env, const ArgList *args, Inputs *in) {
  bool ok = true;
  const char *check = intern(s->names, "run_check");
  for (uint32_t i = 0; i < args->len; i++) {
    const Arg *a = &args->data[i];
    Val v = eval(s, env, a->value);
    if (a->name == check) {
      ok &= want_bool(s, v, a->span, "run_check", &in->check);
      continue;
    }
    bool named = a->name && !a->is_key, plain = a->value && a->value->kind == EXPR_NAME && !a->name;
    if (!named && !plain) {
      Diag *d = sema_error(s, DIAG_LOCAL_REGION, a->span, "what enters a local region has a name");
      diag_help(s->sink, d, (Span){0}, NULL, NULL, "write: local(x = ...)");
      ok = false;
      continue;
    }
    ValueId x;
    if (in->n == SEMA_MAX_ARGS || !as_tensor(s, v, a->span, "what enters a local region", &x)) {
      ok = false;
      continue;
    }
    if (!in->mesh) in->mesh = value_type(s->at.graph, x)->mesh;
    in->name[in->n] = named ? a->name : a->value->as.s;
    in->span[in->n] = a->span;
    in->x[in->n++] = x;
  }
  return ok;
}

Val eval_local(Sema *s, Env *env, const Expr *e) {
  if (!may_open(s, "local", e->span)) return POISON;
  Inputs *in = ARENA_NEW(s->arena, Inputs);
  const TypeList *types = &e->as.local.results;
  TensorType *to = ARENA_ARRAY(s->arena, TensorType, types->len);
  bool ok = read_inputs(s, env, &e->as.local.args, in);
  for (uint32_t i = 0; i < types->len; i++) ok &= eval_type(s, env, types->data[i], &to[i]);
  if (!ok) return POISON;
  State saved = s->at;
  Region *r = ARENA_NEW(s->arena, Region);
  Env frame = env_child(s, env);
  frame.is_body = true;
  frame.region = r;
  open_region(s, r, "local", in->mesh ? in->mesh : s->at.mesh);
  for (uint32_t i = 0; i < in->n; i++)
    env_declare(s, &frame, in->name[i], BIND_CONST, enter(s, r, in->x[i], in->span[i]),
                in->span[i]);
  Body run = run_body(s, &frame, &e->as.local.body, e->span);
  Val v = run.result;
  uint32_t got = v.kind == VAL_NONE ? 0 : v.kind == VAL_LIST ? v.as.list->len : 1;
  if (v.kind != VAL_POISON && got != types->len) {
    sema_error(s, DIAG_RESULT_COUNT, run.result_span,
               "the region returns %u value%s but declares %u", got, got == 1 ? "" : "s",
               types->len);
    v = POISON;
  }
  List *list = list_new(s, types->len);
  for (uint32_t i = 0; i < types->len && v.kind != VAL_POISON; i++) {
    bool claimed;
    Val one = v.kind == VAL_LIST ? v.as.list->data[i] : v;
    list->data[i] = leave(s, r, one, run.result_span, &to[i],
                          in->check ? CLAIM_CHECKED : CLAIM_REFUSED, &claimed);
  }
  s->at = saved;
  if (v.kind == VAL_POISON) return POISON;
  return types->len == 1 ? list->data[0] : val_list(list);
}

/* --- unchecked ---------------------------------------------------------------------------------
 */

Val eval_unchecked(Sema *s, Env *env, const Expr *e) {
  if (!may_open(s, "unchecked", e->span)) return POISON;
  Val wanted = eval(s, env, e->as.auto_.layout);
  State saved = s->at;
  Region *r = ARENA_NEW(s->arena, Region);
  Env frame = env_child(s, env);
  frame.is_body = true;
  frame.region = r;
  /* `on` in the layout says where the code runs, as behind the types of a local region */
  bool says = (wanted.kind == VAL_LAYOUT || wanted.kind == VAL_TYPE) && !wanted.any_mesh;
  open_region(s, r, "unchecked", says ? wanted.as.type->mesh : s->at.mesh);
  r->captures = true;
  Body run = run_body(s, &frame, &e->as.auto_.body, e->span);
  Val v = wanted.kind == VAL_POISON ? POISON : run.result;
  TensorType to;
  ValueId x = 0;
  bool ok = as_tensor(s, v, run.result_span, "the result of unchecked", &x) &&
            layout_value(s, wanted, e->as.auto_.layout->span, r->mesh, &to);
  bool claimed;
  if (ok) {
    to.dtype = value_type(r->inner, x)->dtype;
    v = leave(s, r, v, run.result_span, &to, CLAIM_TRUSTED, &claimed);
  }
  s->at = saved;
  if (!ok || v.kind == VAL_POISON) return POISON;
  escape_count(s, DIAG_UNCHECKED, "unchecked", e->span,
               arena_printf(s->arena, "%s is claimed%s", type_print(s->arena, &to),
                            claimed ? ", not proven" : " and holds"));
  return v;
}
