/* Instances made like an earlier one. See replay.h.
 *
 * What the making of an instance leaves behind are three ranges: instances, variables, and the
 * nodes of `init`. A copy gets ranges of its own, in the same order, so whatever the first one
 * leads to is found in the copy by its number. The members of a copy are made when they are asked
 * for.
 */
#include <string.h>

#include "sema/replay.h"

enum { MAX_MAKINGS = 4 /* of one place that are looked through */ };

struct Making {
  uint32_t older; /* index + 1 of another of the same place */
  const ModuleDef *def;
  const CallArg *args;
  uint32_t nargs;
  State at;
  uint32_t expr_depth;
  uint64_t work;
  uint32_t instances, end_instances, vars, end_vars;
  const Var *as_made; /* its variables: later lines may rename or assign them */
  Range init;
  bool kept;
};

/* Where a copy has what its model has. */
struct Shift {
  const Making *from;
  uint32_t instances, vars; /* to be added to the index of one of the range */
};

Instance *copied_instance(const Sema *s, const Instance *inst, Instance *of) {
  const Making *m = inst->shift->from;
  bool inside = of->index >= m->instances && of->index < m->end_instances;
  return inside ? s->instances.data[of->index + inst->shift->instances] : of;
}

uint32_t copied_var(const Instance *inst, uint32_t of) {
  const Making *m = inst->shift->from;
  return of >= m->vars && of < m->end_vars ? of + inst->shift->vars : of;
}

/* --- members ------------------------------------------------------------------------------------
 */

static Val copied_value(Sema *s, const Instance *inst, Val v);

static const Method *copied_method(Sema *s, const Instance *inst, const Method *m) {
  Instance *to = copied_instance(s, inst, m->instance);
  if (to == m->instance) return m;
  instance_open(s, to);
  uint32_t k = 0;
  while (m->instance->levels.data[k] != m->level) k++;
  Method *copy = ARENA_NEW(s->arena, Method);
  *copy = *m;
  copy->instance = to;
  copy->level = to->levels.data[k];
  return copy;
}

static Val copied_list(Sema *s, const Instance *inst, const List *list) {
  uint64_t work = s->work; /* was counted when the instance was copied */
  List *copy = list_new(s, list->len);
  s->work = work;
  for (uint32_t i = 0; i < list->len; i++) copy->data[i] = copied_value(s, inst, list->data[i]);
  return val_list(copy);
}

static Val copied_value(Sema *s, const Instance *inst, Val v) {
  if (v.kind == VAL_INSTANCE)
    v.as.instance = copied_instance(s, inst, v.as.instance);
  else if (v.kind == VAL_VAR)
    v.as.var = copied_var(inst, v.as.var);
  else if (v.kind == VAL_METHOD)
    v.as.method = copied_method(s, inst, v.as.method);
  else if (v.kind == VAL_LIST)
    return copied_list(s, inst, v.as.list);
  return v;
}

void instance_open(Sema *s, Instance *inst) {
  if (!inst->like || inst->levels.len) return;
  instance_open(s, inst->like);
  uint32_t n = inst->like->levels.len;
  for (uint32_t k = 0; k < n; k++) {
    Level *level = ARENA_NEW(s->arena, Level);
    level->def = inst->like->levels.data[k]->def;
    VEC_PUSH(s->arena, &inst->levels, level);
  }
  for (uint32_t k = 0; k < n; k++) {
    const Level *of = inst->like->levels.data[k];
    Level *level = inst->levels.data[k];
    level->env = (Env){.names = &level->names, .file = of->def->file, .instance = inst};
    for (uint32_t i = 0; i < of->names.len; i++) {
      Binding *b = ARENA_NEW(s->arena, Binding);
      *b = *(const Binding *)of->names.entries[i].value;
      b->value = copied_value(s, inst, b->value);
      name_map_put(s->arena, &level->names, of->names.entries[i].key, b);
    }
    link_names(s, inst, k);
  }
}

/* --- copies -------------------------------------------------------------------------------------
 */

static uint64_t place_key(const Sema *s, const ModuleDef *def, const Call *call) {
  struct {
    const ModuleDef *def;
    const Mesh *mesh;
    Span span;
    uint32_t nargs;
  } id = {def, s->at.mesh, call->span, call->nargs};
  return hash_bytes(&id, sizeof id, 5);
}

static bool same_state(const Sema *s, const Making *m, const ModuleDef *def, const Call *call) {
  const State *a = &m->at, *b = &s->at;
  return m->kept && m->def == def && m->nargs == call->nargs && a->mesh == b->mesh &&
         a->training == b->training && a->store == b->store && a->block == b->block &&
         a->depth == b->depth && s->expr_depth <= m->expr_depth &&
         s->work + m->work <= SEMA_MAX_WORK && twins_equal_args(m->args, call->args, call->nargs);
}

/* What lies under the path of the first instance, under that of the copy. */
static const char *moved_path(Sema *s, const Making *m, const char *path) {
  const char *behind = path + strlen(m->at.path);
  return *behind ? intern(s->names, arena_concat(s->arena, s->at.path, behind, NULL)) : s->at.path;
}

static const Var *copy_of_vars(Sema *s, uint32_t first, uint32_t end) {
  Var *copy = ARENA_ARRAY(s->arena, Var, end - first);
  for (uint32_t v = first; v < end; v++) copy[v - first] = s->program->vars.data[v];
  return copy;
}

static bool lies_under(const char *path, const char *name) {
  size_t n = strlen(path);
  return strncmp(path, name, n) == 0 && (name[n] == 0 || name[n] == '.');
}

/* Names of the variables; false where one is taken, which is told, or means that the variable is
 * shared with another block. */
static bool free_names(Sema *s, const Making *m, const char **names) {
  for (uint32_t v = m->vars; v < m->end_vars; v++) {
    names[v - m->vars] = moved_path(s, m, s->program->vars.data[v].name);
    if (name_map_has(&s->var_names, names[v - m->vars])) return false;
  }
  return true;
}

/* In the graph of initial values. */
static State enter_init(Sema *s) {
  State saved = s->at;
  begin_graph(s, s->program->block[BLOCK_INIT].graph, s->init_cache);
  return saved;
}

/* What the ranges have in each other's place; instances are not made yet. */
static void list_twins(Sema *s, const Making *m) {
  Twins *w = s->twins;
  w->instances.len = w->vars.len = w->tensors.len = 0;
  for (uint32_t i = m->instances; i < m->end_instances; i++)
    VEC_PUSH(s->arena, &w->instances, (InstanceTwin){s->instances.data[i], NULL});
  for (uint32_t v = m->vars; v < m->end_vars; v++)
    VEC_PUSH(s->arena, &w->vars, (IdTwin){v, s->program->vars.len + v - m->vars});
}

static Instance *copy_instances(Sema *s, const Making *m) {
  uint32_t n = m->end_instances - m->instances;
  struct Shift *shift = ARENA_NEW(s->arena, struct Shift);
  *shift = (struct Shift){m, s->instances.len - m->instances, s->program->vars.len - m->vars};
  Instance *copies = ARENA_ARRAY(s->arena, Instance, n);
  for (uint32_t i = 0; i < n; i++) {
    Instance *like = s->instances.data[m->instances + i];
    copies[i] = (Instance){.path = moved_path(s, m, like->path),
                           .mesh = like->mesh,
                           .def = like->def,
                           .span = like->span,
                           .index = s->instances.len,
                           .like = like,
                           .shift = shift};
    VEC_PUSH(s->arena, &s->instances, &copies[i]);
    s->twins->instances.data[i].b = &copies[i];
  }
  return copies;
}

static void copy_vars(Sema *s, const Making *m, const char *const *names) {
  for (uint32_t v = m->vars; v < m->end_vars; v++) {
    Var var = m->as_made[v - m->vars];
    VarInfo info = s->var_info.data[v];
    var.name = names[v - m->vars];
    VEC_PUSH(s->arena, &s->program->vars, var);
    VEC_PUSH(s->arena, &s->var_info,
             (VarInfo){.block = info.block, .own_storage = info.own_storage});
    name_map_put(s->arena, &s->var_names, var.name, (void *)(uintptr_t)s->program->vars.len);
  }
}

/* NULL where the variables have no place, or the nodes cannot be copied. */
static Instance *copy_of(Sema *s, Making *m) {
  const char **names = ARENA_ARRAY(s->arena, const char *, m->end_vars - m->vars);
  if (!free_names(s, m, names)) return NULL;
  list_twins(s, m);
  State saved = enter_init(s);
  bool fits = range_fits(s, &m->init);
  s->at = saved;
  if (!fits) return NULL;
  Instance *copy = copy_instances(s, m);
  copy_vars(s, m, names);
  enter_init(s);
  range_copy(s, &m->init);
  s->at = saved;
  s->work += m->work;
  return copy;
}

Instance *remake(Sema *s, const ModuleDef *def, const Call *call, Making **out) {
  *out = NULL;
  if (s->options->each_call || !s->at.naming || s->sink->errors || !s->at.path || !*s->at.path)
    return NULL;
  if (!s->twins) s->twins = ARENA_NEW(s->arena, Twins);
  uint64_t key = place_key(s, def, call);
  uint32_t last = 0;
  if (id_map_get(&s->made, key, &last)) last++;
  uint32_t at = last;
  for (int n = 0; n < MAX_MAKINGS && at; n++, at = s->makings.data[at - 1]->older) {
    Making *m = s->makings.data[at - 1];
    Instance *copy = same_state(s, m, def, call) ? copy_of(s, m) : NULL;
    if (!copy) continue;
    if (s->options->copied) s->options->copied->instances++;
    return copy;
  }
  Making *m = *out = ARENA_NEW(s->arena, Making);
  *m = (Making){.older = last,
                .def = def,
                .args = call->args,
                .nargs = call->nargs,
                .at = s->at,
                .expr_depth = s->expr_depth,
                .work = s->work,
                .instances = s->instances.len,
                .vars = s->program->vars.len};
  State saved = enter_init(s);
  range_begin(s, &m->init, true);
  s->at = saved;
  id_map_put(s->arena, &s->made, key, s->makings.len);
  VEC_PUSH(s->arena, &s->makings, m);
  return NULL;
}

void remake_keep(Sema *s, Making *m) {
  if (!m) return;
  m->work = s->work - m->work;
  m->end_instances = s->instances.len;
  m->end_vars = s->program->vars.len;
  State saved = enter_init(s);
  range_end(s, &m->init, NONE);
  s->at = saved;
  m->kept = !m->init.unfit;
  for (uint32_t i = m->instances; i < m->end_instances && m->kept; i++)
    m->kept = lies_under(m->at.path, s->instances.data[i]->path);
  for (uint32_t v = m->vars; v < m->end_vars && m->kept; v++)
    m->kept = lies_under(m->at.path, s->program->vars.data[v].name);
  if (m->kept) m->as_made = copy_of_vars(s, m->vars, m->end_vars);
}
