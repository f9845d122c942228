/* Scopes, names, and errors with the chain of instantiations. See elab.h.
 *
 * A name is sought from the inside out: blocks of a body, the body, members of the module level by
 * level, the file; then mesh dims, then what is built in. Mesh dims and built-in names come last,
 * so that library code may use any names; in files of the program a mesh dim cannot be redeclared.
 */
#include <stdarg.h>
#include <string.h>

#include "sema/elab.h"

/* The chain of calls as notes under the diagnostics since `first` (a value of sink->diags.len). */
static void note_chain(Sema *s, uint32_t first) {
  for (uint32_t i = first; i < s->sink->diags.len; i++) {
    uint32_t notes = 0;
    for (const Chain *c = s->at.chain; c && notes < SEMA_MAX_NOTES; c = c->parent, notes++) {
      if (!c->call.file) continue;
      const char *path = c->path && *c->path ? arena_printf(s->arena, " (%s)", c->path) : "";
      diag_note(s->sink, s->sink->diags.data[i], c->call, "in %s%s, used here", c->what, path);
    }
  }
}

Diag *sema_error(Sema *s, DiagCode code, Span span, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(s->arena, fmt, ap);
  va_end(ap);
  uint32_t first = s->sink->diags.len;
  Diag *d = diag_emit(s->sink, code, span, "%s", text);
  note_chain(s, first);
  return d;
}

const char *source_text(Sema *s, Span span) {
  const SourceFile *f = span.file ? sources_get(s->sources, span.file) : NULL;
  if (!f || span.end > f->size || span.start > span.end) return "";
  char *text = arena_strndup(s->arena, f->text + span.start, span.end - span.start);
  char *to = text;
  for (char *from = text; *from; from++) {
    bool space = *from == ' ' || *from == '\n' || *from == '\t' || *from == '\r';
    if (space && (to == text || to[-1] == ' ')) continue;
    *to++ = space ? ' ' : *from;
  }
  *to = 0;
  return text;
}

/* --- scopes ------------------------------------------------------------------------------------
 */

Env env_child(Sema *s, Env *parent) {
  return (Env){.parent = parent,
               .names = ARENA_NEW(s->arena, NameMap),
               .file = parent ? parent->file : NULL};
}

Binding *env_find(Sema *s, Env *env, const char *name) {
  (void)s;
  for (; env; env = env->parent) {
    Binding *b = name_map_get(env->names, name);
    if (b) {
      b->used = true;
      return b;
    }
  }
  return NULL;
}

Binding *env_set(Sema *s, Env *env, const char *name, BindKind kind, Val value, Span span) {
  Binding *b = ARENA_NEW(s->arena, Binding);
  *b = (Binding){.kind = kind, .value = value, .span = span};
  name_map_put(s->arena, env->names, name, b);
  return b;
}

Binding *env_declare(Sema *s, Env *env, const char *name, BindKind kind, Val value, Span span) {
  Binding *old = name_map_get(env->names, name);
  if (old) {
    Diag *d = sema_error(s, DIAG_REDECLARED, span, "%s is declared already", name);
    diag_note(s->sink, d, old->span, "the first declaration");
    if (old->kind == BIND_LET && kind == BIND_LET)
      diag_help(s->sink, d, (Span){0}, NULL, NULL, "to give it a new value write: %s = ...", name);
    old->value = POISON;
    old->lazy = LAZY_DONE;
    return old;
  }
  const Mesh *mesh = env->file && !env->file->library ? mesh_declaring(s, name) : NULL;
  if (mesh) {
    Diag *d = sema_error(s, DIAG_AXIS_REDECLARED, span, "%s is a dim of mesh %s", name, mesh->name);
    diag_reason(s->sink, d, "the dims of the mesh are names of the whole program");
  }
  return env_set(s, env, name, kind, value, span);
}

static void consider(const char *name, const char *candidate, unsigned *best, const char **near) {
  if (candidate == name || candidate[0] == '_') return;
  unsigned d = edit_distance(name, candidate, *best ? *best - 1 : 0);
  if (*best && d < *best) {
    *best = d;
    *near = candidate;
  }
}

const char *env_nearest(Sema *s, const Env *env, const char *name) {
  if (s->sink->errors > SEMA_MAX_SUGGESTIONS) return NULL;
  size_t len = strlen(name);
  unsigned best = (unsigned)(len < 3 ? 0 : len < 6 ? 1 : len / 3) + 1;
  const char *near = NULL;
  for (; env; env = env->parent)
    for (uint32_t i = 0; i < env->names->len; i++)
      consider(name, env->names->entries[i].key, &best, &near);
  for (uint32_t m = 0; m < s->ndeclared; m++)
    for (uint32_t a = 0; a < s->program->meshes.data[m]->naxes; a++)
      consider(name, s->program->meshes.data[m]->axis[a], &best, &near);
  for (uint32_t i = 0; i < s->builtins.len; i++)
    consider(name, s->builtins.entries[i].key, &best, &near);
  return near;
}

static bool leads_to_instances(Val v) {
  if (v.kind == VAL_INSTANCE || v.kind == VAL_VAR || v.kind == VAL_METHOD) return true;
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len; i++)
    if (leads_to_instances(v.as.list->data[i])) return true;
  return false;
}

/* The value of a binding; top-level config and let are evaluated when first asked for. */
Val binding_value(Sema *s, SourceUnit *file, Binding *b, const char *name) {
  switch (b->lazy) {
  case LAZY_DONE:
    s->unrepeatable += b->leads;
    return b->value;
  case LAZY_RUNNING:
    sema_error(s, DIAG_CYCLE, b->span, "%s is defined by itself", name);
    b->lazy = LAZY_DONE;
    return b->value = POISON;
  case LAZY_WAITING:
    break;
  }
  b->lazy = LAZY_RUNNING;
  State saved = s->at;
  s->at = (State){.mesh = s->world, .path = name, .depth = saved.depth + 1};
  s->at.naming = !b->config;
  Val v = POISON;
  if (s->at.depth > SEMA_MAX_DEPTH)
    sema_error(s, DIAG_CALL_DEPTH, b->span, "definitions are nested more than %d deep",
               SEMA_MAX_DEPTH);
  else
    v = eval(s, &file->env, b->expr);
  if (b->config && !config_override(s, b->config, v, &v)) v = POISON;
  s->at = saved;
  if (b->lazy == LAZY_RUNNING) b->value = v;
  b->lazy = LAZY_DONE;
  b->leads = leads_to_instances(b->value);
  s->unrepeatable += b->leads;
  return b->value;
}

/* Whether a name is found outside the region at hand. */
static bool beyond_region(const Sema *s, const Env *env, const char *name) {
  if (!s->at.region) return false;
  bool beyond = false;
  for (; env && !name_map_has(env->names, name); env = env->parent)
    beyond |= env->region == s->at.region;
  return beyond;
}

/* Words of PyTorch and of Python that have another name here; NULL for others. */
static const char *foreign_word(const char *name) {
  static const char *const words[][2] = {
      {"None", "write none"},
      {"True", "write true"},
      {"False", "write false"},
      {"float16", "write f16"},
      {"fp16", "write f16"},
      {"half", "write f16"},
      {"bfloat16", "write bf16"},
      {"float32", "write f32"},
      {"fp32", "write f32"},
      {"float64", "write f64"},
      {"int32", "write i32"},
      {"int64", "write i64"},
      {"nn", "the layers need a line of their own: import nn"},
      {"torch", "operators are bare names or methods: relu(x), x.relu()"},
      {"F", "operators are bare names or methods: relu(x), x.relu()"},
      {"self", "members of a module are bare names"},
      {"mse_loss", "write mean(square(a - b))"},
      {"l1_loss", "write mean(abs(a - b))"},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i][0], name) == 0) return words[i][1];
  return NULL;
}

Val env_lookup(Sema *s, Env *env, const char *name, Span span) {
  SourceUnit *file = env->file;
  Binding *b = env_find(s, env, name);
  if (b) return region_admit(s, binding_value(s, file, b, name), beyond_region(s, env, name), span);
  if (mesh_knows_axis(s, name)) return (Val){.kind = VAL_AXIS, .as.s = name};
  const Builtin *builtin = builtin_find(s, name);
  if (builtin && builtin->constant.kind != VAL_UNSET) return builtin->constant;
  if (builtin) return (Val){.kind = VAL_BUILTIN, .as.builtin = builtin};
  Diag *d = sema_error(s, DIAG_UNKNOWN_NAME, span, "unknown name %s", name);
  const char *foreign = foreign_word(name), *near = env_nearest(s, env, name);
  if (foreign)
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "%s", foreign);
  else if (near)
    diag_help(s->sink, d, span, near, NULL, "did you mean %s?", near);
  return POISON;
}
