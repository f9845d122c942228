/* The whole of elaboration, in order: see sema.h. */
#include "sema/sema.h"

#include "sema/escape.h"

/* Every name of the expression is known without arguments. */
static bool closed_expr(Sema *s, Env *env, const Expr *e) {
  if (e->kind == EXPR_INT) return true;
  if (e->kind == EXPR_NAME) return env_find(s, env, e->as.s) != NULL || mesh_knows_axis(s, e->as.s);
  if (e->kind == EXPR_BINARY)
    return closed_expr(s, env, e->as.binary.left) && closed_expr(s, env, e->as.binary.right);
  return false;
}

static bool closed_type(Sema *s, Env *env, const TypeExpr *t) {
  if (!t || !t->dtype || !t->has_dims) return false;
  for (uint32_t d = 0; d < t->dims.len; d++)
    if (!closed_expr(s, env, t->dims.data[d].value)) return false;
  return true;
}

/* A function that nothing calls is checked alone when its parameter types say all; false when they
 * do not. */
static bool check_alone(Sema *s, const Fn *fn) {
  const ParamList *params = &fn->item->as.fn.params;
  if (fn->called || params->len > SEMA_MAX_ARGS) return true;
  Env *env = &fn->file->env;
  uint32_t n = 0;
  for (uint32_t p = 0; p < params->len; p++) {
    if (params->data[p].fallback) continue;
    if (!closed_type(s, env, params->data[p].type)) return false;
  }
  State saved = s->at;
  GraphCache cache = {0};
  s->at = (State){.mesh = s->world, .path = "", .training = true};
  begin_graph(s, graph_new(s->arena, fn->item->name), &cache);
  CallArg *args = ARENA_ARRAY(s->arena, CallArg, params->len);
  bool ok = true;
  for (uint32_t p = 0; p < params->len; p++) {
    TensorType t;
    if (params->data[p].fallback) continue;
    ok &= eval_type(s, env, params->data[p].type, &t);
    if (!ok) break;
    ValueId x = emit_typed(s, OP_INPUT, (Attr[]){ATTR_T(TYPE, &t)}, 1, &t, params->data[p].span);
    args[n++] = (CallArg){
        .name = params->data[p].name, .value = val_tensor(x), .span = params->data[p].span};
  }
  Call call = {.env = env,
               .name = fn->item->name,
               .args = args,
               .nargs = n,
               .span = fn->item->name_span,
               .alone = true};
  if (ok) call_value(s, (Val){.kind = VAL_FN, .as.fn = fn}, &call);
  s->at = saved;
  return true;
}

/* Without a block nothing is used, so what has no types of its own was read and no more. */
static void report_unused(Sema *s, const SourceUnit *file, const bool *checked) {
  const Item *first = NULL;
  uint32_t more = 0;
  for (uint32_t i = 0; i < file->ast->items.len; i++) {
    const Item *item = file->ast->items.data[i];
    if (item->kind == ITEM_BLOCK) return;
    bool open = item->kind == ITEM_MODULE;
    for (uint32_t fn = 0; fn < s->fns.len; fn++)
      if (s->fns.data[fn]->item == item) open = !checked[fn];
    if (!open) continue;
    more += first != NULL;
    if (!first) first = item;
  }
  if (!first) return;
  diag_emit(
      s->sink, DIAG_UNUSED, first->name_span,
      "%s has no train, eval or infer block, so shapes and placements were not checked in %s %s%s",
      file->path, first->kind == ITEM_MODULE ? "module" : "fn", first->name,
      more ? arena_printf(s->arena, " and %u more", more) : "");
}

/* Top-level lets that nothing used. */
static void force_lets(Sema *s) {
  for (uint32_t f = 0; f < s->files.len; f++) {
    SourceUnit *file = s->files.data[f];
    for (uint32_t i = 0; !file->library && i < file->names.len; i++) {
      Binding *b = file->names.entries[i].value;
      if (b->lazy == LAZY_WAITING) binding_value(s, file, b, file->names.entries[i].key);
    }
  }
}

static void init_names(Sema *s) {
  s->known.forward = intern(s->names, "forward");
  s->known.redistribute_input = intern(s->names, "redistribute_input");
  s->known.redistribute_output = intern(s->names, "redistribute_output");
}

Program *sema_run(const SemaOptions *options, Arena *arena, Interner *names, Sources *sources,
                  DiagSink *sink) {
  Sema *s = ARENA_NEW(arena, Sema);
  Program *program = ARENA_NEW(arena, Program);
  *s = (Sema){.options = options,
              .arena = arena,
              .names = names,
              .sources = sources,
              .sink = sink,
              .program = program};
  program->arena = arena;
  program->names = names;
  program->sources = sources;
  program->path = options->main_path;
  program_graph(program, BLOCK_INIT);
  s->init_cache = ARENA_NEW(arena, GraphCache);
  s->signatures = ARENA_ARRAY(arena, struct Signature *, OP_COUNT);
  init_names(s);
  builtins_init(s);
  SourceUnit *main_file = load_main(s);
  mesh_declare(s);
  config_finish(s);
  if (!main_file) return program;
  run_blocks(s, main_file);
  check_file_names(s);
  force_lets(s);
  bool *checked = ARENA_ARRAY(arena, bool, s->fns.len + 1);
  for (uint32_t i = 0; i < s->fns.len; i++) checked[i] = check_alone(s, s->fns.data[i]);
  if (!sink->errors) report_unused(s, main_file, checked);
  escape_report(s);
  return program;
}
