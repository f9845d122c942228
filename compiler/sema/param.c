/* Parameters and buffers: variables, their initial values, their names in foreign checkpoints. */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

/* The initial value, computed in the graph `init`. */
static void initialise(Sema *s, Env *env, const Stmt *stmt, uint32_t index) {
  const Var var = s->program->vars.data[index];
  State saved = s->at;
  begin_graph(s, s->program->block[BLOCK_INIT].graph, s->init_cache);
  s->at.path = var.name;
  s->at.expected = &var.type;
  s->at.naming = s->at.training = false;
  Span span = stmt->as.param.init ? stmt->as.param.init->span : var.span;
  Val v = stmt->as.param.init ? eval(s, env, stmt->as.param.init) : val_float(0);
  if (v.kind == VAL_BUILTIN) {
    Call call = {.env = env, .name = v.as.builtin->name, .span = span};
    v = call_value(s, v, &call);
  }
  if (val_is_number(v) || v.kind == VAL_BOOL) {
    CallArg args[] = {{.value = val_type(s, VAL_TYPE, &var.type), .span = span},
                      {.value = v, .span = span}};
    Call call = {.env = env, .name = "full", .args = args, .nargs = 2, .span = span};
    v = call_value(
        s, (Val){.kind = VAL_BUILTIN, .as.builtin = builtin_find(s, intern(s->names, "full"))},
        &call);
  }
  ValueId id;
  if (as_tensor(s, v, span, "the initial value", &id)) {
    id = emit_on_mesh(s, id, var.type.mesh, span);
    const TensorType *t = value_type(s->at.graph, id);
    if (type_equal(t, &var.type)) {
      graph_add(s->at.graph, OP_ASSIGN, &id, 1, (Attr[]){ATTR_I(VAR, index)}, 1, NULL, 0, span,
                s->at.scope);
    } else {
      Diag *d = sema_error(s, DIAG_DECLARED_SHAPE, span,
                           "the initial value of %s is of another type", stmt->as.param.name);
      diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
      diag_note(s->sink, d, stmt->as.param.type->span, "declared as %s",
                type_print(s->arena, &var.type));
    }
  }
  s->at = saved;
}

/* A variable of this name that another block declared by the same line: the same variable. */
static bool shared(Sema *s, const Var *var, uint32_t *index) {
  void *have = name_map_get(&s->var_names, var->name);
  if (!have) return false;
  *index = (uint32_t)(uintptr_t)have - 1;
  const Var *old = &s->program->vars.data[*index];
  if (s->var_info.data[*index].block != s->at.block && same_span(old->span, var->span) &&
      type_equal(&old->type, &var->type)) {
    s->unrepeatable++;
    return true;
  }
  Span place = s->at.chain ? s->at.chain->call : var->span;
  Diag *d =
      sema_error(s, DIAG_DUPLICATE_PARAM, place, "there are two parameters named %s", var->name);
  diag_note(s->sink, d, old->span, "one is declared here, %s", type_print(s->arena, &old->type));
  diag_note(s->sink, d, var->span, "the other here, %s", type_print(s->arena, &var->type));
  return true;
}

/* Fused matrices: in the program one after the other along a dim of their own, so that a mesh dim
 * that cuts their rows cuts those of each; in files one below the other. */
static void check_chunks(Sema *s, Var *var, Span span) {
  if (var->chunks >= 2 && var->type.rank >= 2 && var->type.shape[0] == var->chunks) return;
  Diag *d =
      sema_error(s, DIAG_VALUE_KIND, span, "chunks(%" PRId64 ") needs a first dim of %" PRId64,
                 var->chunks, var->chunks);
  diag_label(s->sink, d, "this is %s", type_print(s->arena, &var->type));
  diag_reason(s->sink, d,
              "the program holds the chunks along a dim of their own, files one after the other "
              "along the next dim");
  if (var->chunks >= 2)
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "declare it as in f32[%" PRId64 ", out, in]",
              var->chunks);
  var->chunks = 1;
}

static void foreign_form(Sema *s, Env *env, const Stmt *stmt, Var *var) {
  const Expr *foreign = stmt->as.param.foreign_name, *chunks = stmt->as.param.chunks;
  var->transposed = stmt->as.param.transposed;
  var->chunks = 1;
  if (foreign) {
    Val v = eval(s, env, foreign);
    if (v.kind != VAL_POISON) want_string(s, v, foreign->span, "name", &var->foreign_name);
  }
  if (chunks) {
    Val v = eval(s, env, chunks);
    bool ok = v.kind != VAL_POISON && want_int(s, v, chunks->span, "chunks", &var->chunks);
    if (ok) check_chunks(s, var, chunks->span);
  }
  if (var->transposed && (var->type.rank < 2 || (var->chunks > 1 && var->type.rank < 3)))
    sema_error(s, DIAG_VALUE_KIND, stmt->as.param.type->span,
               "what is stored transposed is a matrix, not %s", type_print(s->arena, &var->type));
}

void declare_param(Sema *s, Env *env, Instance *inst, Level *level, const Stmt *stmt) {
  Var var = {.kind = stmt->as.param.is_buffer ? VAR_BUFFER : VAR_PARAM,
             .name = path_join(s, inst->path, stmt->as.param.name),
             .span = stmt->as.param.name_span};
  bool ok = eval_type(s, env, stmt->as.param.type, &var.type);
  if (ok && !s->at.naming) {
    Diag *d = sema_error(s, DIAG_UNNAMED_PARAM, s->at.chain ? s->at.chain->call : stmt->span,
                         "a module with parameters is created where it has no name");
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "declare it in the body of a module, as in `norm = RMSNorm(dim)`");
    ok = false;
  }
  for (uint32_t a = 0; ok && a < var.type.mesh->naxes; a++) {
    Place p = var.type.layout.at[a];
    if (p.kind != PLACE_PARTIAL || p.op == REDUCE_SUM) continue;
    sema_error(s, DIAG_BAD_LAYOUT, stmt->as.param.type->span,
               "a %s can be Partial(sum) only, not Partial(%s)",
               stmt->as.param.is_buffer ? "buffer" : "parameter", reduce_op_name((ReduceOp)p.op));
    ok = false;
  }
  s->lost += !ok;
  const Binding *old = name_map_get(&level->names, stmt->as.param.name);
  bool declared_twice = old && old->kind != BIND_CONST;
  uint32_t index;
  Val v = POISON;
  if (ok && !declared_twice) {
    foreign_form(s, env, stmt, &var);
    bool own_storage = declare_storage(s, env, stmt, &var);
    if (!shared(s, &var, &index)) {
      index = s->program->vars.len;
      VEC_PUSH(s->arena, &s->program->vars, var);
      VEC_PUSH(s->arena, &s->var_info, (VarInfo){.block = s->at.block, .own_storage = own_storage});
      name_map_put(s->arena, &s->var_names, var.name, (void *)(uintptr_t)(index + 1));
      initialise(s, env, stmt, index);
    }
    v = (Val){.kind = VAL_VAR, .as.var = index};
  }
  /* a parameter may take over the name of an argument: `bias: bool` becomes the tensor */
  if (old && !declared_twice)
    env_set(s, &level->env, stmt->as.param.name, BIND_MEMBER, v, stmt->as.param.name_span);
  else
    env_declare(s, &level->env, stmt->as.param.name, BIND_MEMBER, v, stmt->as.param.name_span);
}

/* --- rename ------------------------------------------------------------------------------------
 */

enum { MAX_HOLES = 8 };
typedef struct Holes {
  const char *name[MAX_HOLES], *text[MAX_HOLES];
  size_t name_len[MAX_HOLES], text_len[MAX_HOLES];
  uint32_t n;
} Holes;

/* Matches "layers.{i}.q": a hole takes one path component. */
static bool match_pattern(const char *pattern, const char *name, Holes *holes) {
  holes->n = 0;
  while (*pattern) {
    if (*pattern != '{') {
      if (*pattern++ != *name++) return false;
      continue;
    }
    const char *close = strchr(pattern, '}');
    if (!close || holes->n == MAX_HOLES) return false;
    size_t len = strcspn(name, ".");
    if (!len) return false;
    holes->name[holes->n] = pattern + 1;
    holes->name_len[holes->n] = (size_t)(close - pattern - 1);
    holes->text[holes->n] = name;
    holes->text_len[holes->n++] = len;
    name += len;
    pattern = close + 1;
  }
  return *name == 0;
}

/* The foreign name; NULL when it has a hole that the pattern lacks. */
static const char *fill_pattern(Sema *s, const char *pattern, const Holes *holes) {
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  while (*pattern) {
    const char *close = *pattern == '{' ? strchr(pattern, '}') : NULL;
    if (!close) {
      strbuf_putc(&sb, *pattern++);
      continue;
    }
    size_t len = (size_t)(close - pattern - 1);
    uint32_t h = 0;
    while (h < holes->n &&
           (holes->name_len[h] != len || memcmp(holes->name[h], pattern + 1, len) != 0))
      h++;
    if (h == holes->n) return NULL;
    strbuf_put_n(&sb, holes->text[h], holes->text_len[h]);
    pattern = close + 1;
  }
  return intern(s->names, sb.text);
}

void apply_renames(Sema *s, const Stmt *stmt, const char *path, uint32_t first_var, bool whole) {
  size_t prefix = *path ? strlen(path) + 1 : 0;
  for (uint32_t i = 0; i < stmt->as.rename.len; i++) {
    const RenameItem *item = &stmt->as.rename.data[i];
    bool matched = false, filled = true;
    for (uint32_t v = first_var; v < s->program->vars.len; v++) {
      Var *var = &s->program->vars.data[v];
      Holes holes;
      if (!match_pattern(item->ours, var->name + prefix, &holes)) continue;
      matched = true;
      const char *foreign = fill_pattern(s, item->foreign, &holes);
      filled &= foreign != NULL;
      if (foreign) var->foreign_name = foreign;
    }
    /* an instance that shares the variables of another block adds none of its own */
    if (first_var == s->program->vars.len) continue;
    if (!matched && whole)
      sema_error(s, DIAG_RENAME, item->span, "no parameter is named %s", item->ours);
    else if (!filled)
      sema_error(s, DIAG_RENAME, item->span, "%s has a hole that %s lacks", item->foreign,
                 item->ours);
  }
}

void check_file_names(Sema *s) {
  NameMap names = {0};
  for (uint32_t v = 0; v < s->program->vars.len; v++) {
    const Var *var = &s->program->vars.data[v];
    if (var->kind == VAR_STATE) continue; /* in no file */
    const char *name = var->foreign_name ? var->foreign_name : var->name;
    if (!*name || strcmp(name, "__metadata__") == 0) { /* what safetensors keeps for itself */
      sema_error(s, DIAG_RENAME, var->span, "%s cannot be named \"%s\" in a file", var->name, name);
      continue;
    }
    const Var *old = name_map_get(&names, name);
    if (!old) {
      name_map_put(s->arena, &names, name, (void *)(uintptr_t)var);
      continue;
    }
    Diag *d = sema_error(s, DIAG_RENAME, var->span, "%s and %s would both be %s in a file",
                         old->name, var->name, name);
    diag_note(s->sink, d, old->span, "%s is declared here", old->name);
  }
}
