/* Whether two instances, and what their calls are given, differ in names alone. See replay.h.
 *
 * Both sides are walked at once. What was met before must have been met at the same moment on both
 * sides: then which instances, variables and tensors are one and the same agrees too.
 */
#include <string.h>

#include "sema/replay.h"

enum { MAX_TWINS = 2000 /* instances and variables: a walk must cost less than the call */ };

/* What an instance leads to, itself first. */
typedef struct Reach {
  VEC(Instance *) instances;
  VEC(uint32_t) vars;
  bool unknown; /* too much of it, or values of a graph */
} Reach;

static bool walk(Sema *s, Val a, Val b);

/* -1: met on neither side; 1: met at the same moment; 0: on one, or at different ones. */
static int met(Sema *s, Seen a[3], Seen b[3], uint32_t index) {
  uint32_t stamp = s->twins->stamp;
  if (a[0].stamp == stamp || b[1].stamp == stamp)
    return a[0].stamp == b[1].stamp && a[0].index == b[1].index;
  a[0] = (Seen){stamp, index};
  b[1] = (Seen){stamp, index};
  return -1;
}

static bool walk_var(Sema *s, uint32_t a, uint32_t b) {
  Twins *w = s->twins;
  VarInfo *x = &s->var_info.data[a], *y = &s->var_info.data[b];
  int before = met(s, x->seen, y->seen, w->vars.len);
  if (before >= 0) return before;
  const Var *v = &s->program->vars.data[a], *u = &s->program->vars.data[b];
  if (w->vars.len == MAX_TWINS || x->block != y->block || !type_equal(&v->type, &u->type) ||
      memcmp(&v->span, &u->span, sizeof v->span) != 0)
    return false;
  VEC_PUSH(s->arena, &w->vars, (IdTwin){a, b});
  return true;
}

static bool walk_level(Sema *s, const Level *a, const Level *b) {
  if (a->def != b->def || a->names.len != b->names.len) return false;
  for (uint32_t i = 0; i < a->names.len; i++) {
    const Binding *x = a->names.entries[i].value, *y = b->names.entries[i].value;
    if (a->names.entries[i].key != b->names.entries[i].key || x->kind != y->kind ||
        !walk(s, x->value, y->value))
      return false;
  }
  return true;
}

/* --- copies of one instance lead to the same, each in its own place ---- */

static bool reach_value(Sema *s, Reach *r, Val v);

static bool reach_instance(Sema *s, Reach *r, Instance *inst) {
  if (inst->seen[2].stamp == s->twins->reach_stamp) return true;
  inst->seen[2].stamp = s->twins->reach_stamp;
  if (r->instances.len == MAX_TWINS || s->twins->depth == SEMA_MAX_DEPTH) return false;
  VEC_PUSH(s->arena, &r->instances, inst);
  instance_open(s, inst);
  bool known = true;
  s->twins->depth++;
  for (uint32_t k = 0; k < inst->levels.len; k++) {
    const NameMap *names = &inst->levels.data[k]->names;
    for (uint32_t i = 0; i < names->len && known; i++)
      known = reach_value(s, r, ((const Binding *)names->entries[i].value)->value);
  }
  s->twins->depth--;
  return known;
}

static bool reach_value(Sema *s, Reach *r, Val v) {
  if (v.kind == VAL_TENSOR) return false;
  if (v.kind == VAL_INSTANCE) return reach_instance(s, r, v.as.instance);
  if (v.kind == VAL_METHOD) return reach_instance(s, r, v.as.method->instance);
  if (v.kind == VAL_VAR && s->var_info.data[v.as.var].seen[2].stamp != s->twins->reach_stamp) {
    s->var_info.data[v.as.var].seen[2].stamp = s->twins->reach_stamp;
    VEC_PUSH(s->arena, &r->vars, v.as.var);
    return r->vars.len <= MAX_TWINS;
  }
  bool known = true;
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len && known; i++)
    known = reach_value(s, r, v.as.list->data[i]);
  return known;
}

static const Reach *reach_of(Sema *s, Instance *inst) {
  if (inst->reach) return inst->reach;
  inst->reach = ARENA_NEW(s->arena, Reach);
  s->twins->reach_stamp++;
  inst->reach->unknown = !reach_instance(s, inst->reach, inst);
  return inst->reach;
}

static Instance *original(Instance *inst) {
  while (inst->like) inst = inst->like;
  return inst;
}

/* What stands in `inst` for what its original leads to. */
static Instance *instance_in(const Sema *s, const Instance *inst, Instance *of) {
  return inst->like ? copied_instance(s, inst, instance_in(s, inst->like, of)) : of;
}
static uint32_t var_in(const Instance *inst, uint32_t of) {
  return inst->like ? copied_var(inst, var_in(inst->like, of)) : of;
}

static bool walk_copies(Sema *s, Instance *a, Instance *b) {
  Twins *w = s->twins;
  const Reach *r = reach_of(s, original(a));
  if (r->unknown) return false;
  for (uint32_t i = 0; i < r->instances.len; i++) {
    Instance *x = instance_in(s, a, r->instances.data[i]),
             *y = instance_in(s, b, r->instances.data[i]);
    int before = met(s, x->seen, y->seen, w->instances.len);
    if (before == 0) return false;
    if (before < 0) VEC_PUSH(s->arena, &w->instances, (InstanceTwin){x, y});
  }
  for (uint32_t i = 0; i < r->vars.len; i++) {
    uint32_t x = var_in(a, r->vars.data[i]), y = var_in(b, r->vars.data[i]);
    int before = met(s, s->var_info.data[x].seen, s->var_info.data[y].seen, w->vars.len);
    if (before == 0) return false;
    if (before < 0) VEC_PUSH(s->arena, &w->vars, (IdTwin){x, y});
  }
  return w->instances.len <= MAX_TWINS && w->vars.len <= MAX_TWINS;
}

static bool walk_instance(Sema *s, Instance *a, Instance *b) {
  Twins *w = s->twins;
  if (a != b && original(a) == original(b)) return walk_copies(s, a, b);
  int before = met(s, a->seen, b->seen, w->instances.len);
  if (before >= 0) return before;
  instance_open(s, a);
  instance_open(s, b);
  if (w->instances.len == MAX_TWINS || w->depth == SEMA_MAX_DEPTH || a->mesh != b->mesh ||
      a->levels.len != b->levels.len || a->failed || b->failed)
    return false;
  VEC_PUSH(s->arena, &w->instances, (InstanceTwin){a, b});
  bool same = true, inside = w->inside;
  w->depth++;
  w->inside = true;
  for (uint32_t k = 0; k < a->levels.len && same; k++)
    same = walk_level(s, a->levels.data[k], b->levels.data[k]);
  w->inside = inside;
  w->depth--;
  return same;
}

static uint32_t level_index(const Method *m) {
  uint32_t k = 0;
  while (m->instance->levels.data[k] != m->level) k++;
  return k;
}

/* Extents of a batch in micro-batches depend on which dim holds the samples. */
static bool same_samples(Sema *s, ValueId a, ValueId b) {
  return !samples_asked(s) || samples_alike(block_samples(s, s->block), a, b);
}

/* Constants and variables come from the graph's own tables, where a copy finds its own. */
static bool is_ordinary(const Graph *g, ValueId v) {
  const Node *n = value_node(g, v);
  return n->op != OP_CONST && n->op != OP_READ && !graph_value(g, v)->poisoned;
}

static bool walk_tensor(Sema *s, ValueId a, ValueId b) {
  Twins *w = s->twins;
  const Graph *g = s->at.graph;
  if (w->inside) return false;
  for (uint32_t i = 0; i < w->tensors.len; i++)
    if (w->tensors.data[i].a == a || w->tensors.data[i].b == b)
      return w->tensors.data[i].a == a && w->tensors.data[i].b == b;
  if (!is_ordinary(g, a) || !is_ordinary(g, b) || !type_equal(value_type(g, a), value_type(g, b)) ||
      !same_samples(s, a, b))
    return false;
  VEC_PUSH(s->arena, &w->tensors, (IdTwin){a, b});
  return true;
}

static bool same_number(Val a, Val b) {
  if (a.in_parts && memcmp(&a.whole.number, &b.whole.number, sizeof a.whole.number) != 0)
    return false;
  return a.kind == VAL_FLOAT ? memcmp(&a.as.f, &b.as.f, sizeof a.as.f) == 0 : a.as.i == b.as.i;
}

static bool same_type(Val a, Val b) {
  const TensorType *t = a.as.type;
  if (a.any_mesh != b.any_mesh || !type_equal(t, b.as.type)) return false;
  return !a.in_parts || memcmp(a.whole.shape, b.whole.shape, t->rank * sizeof *t->shape) == 0;
}

/* Of values that lead to no instance, variable or tensor. */
static bool same_leaf(Val a, Val b) {
  switch (a.kind) {
  case VAL_UNSET:
  case VAL_NONE:
    return true;
  case VAL_BOOL:
    return a.as.b == b.as.b;
  case VAL_INT:
  case VAL_FLOAT:
    return same_number(a, b);
  case VAL_STRING: /* interned, as all below that are pointers are one object */
  case VAL_AXIS:
    return a.as.s == b.as.s;
  case VAL_DTYPE:
    return a.as.dtype == b.as.dtype;
  case VAL_MESH:
    return a.as.mesh == b.as.mesh;
  case VAL_LAYOUT:
  case VAL_TYPE:
    return same_type(a, b);
  case VAL_PLACE:
    return a.as.place.kind == b.as.place.kind && a.as.place.op == b.as.place.op &&
           a.as.place.dim == b.as.place.dim;
  case VAL_FN:
    return a.as.fn == b.as.fn;
  case VAL_MODULE:
    return a.as.module == b.as.module;
  case VAL_FILE:
    return a.as.file == b.as.file;
  case VAL_BUILTIN:
    return a.as.builtin == b.as.builtin;
  case VAL_POISON:
  case VAL_LIST:
  case VAL_TENSOR:
  case VAL_VAR:
  case VAL_INSTANCE:
  case VAL_METHOD:
    break;
  }
  return false;
}

static bool walk_list(Sema *s, const List *a, const List *b) {
  bool same = a->len == b->len && s->twins->depth < SEMA_MAX_DEPTH;
  s->twins->depth++;
  for (uint32_t i = 0; i < a->len && same; i++) same = walk(s, a->data[i], b->data[i]);
  s->twins->depth--;
  return same;
}

static bool walk(Sema *s, Val a, Val b) {
  if (a.kind != b.kind || a.in_parts != b.in_parts) return false;
  if (a.kind == VAL_LIST) return walk_list(s, a.as.list, b.as.list);
  if (a.kind == VAL_TENSOR) return walk_tensor(s, a.as.tensor, b.as.tensor);
  if (a.kind == VAL_VAR) return walk_var(s, a.as.var, b.as.var);
  if (a.kind == VAL_INSTANCE) return walk_instance(s, a.as.instance, b.as.instance);
  if (a.kind == VAL_METHOD)
    return a.as.method->decl == b.as.method->decl &&
           walk_instance(s, a.as.method->instance, b.as.method->instance) &&
           level_index(a.as.method) == level_index(b.as.method);
  return same_leaf(a, b);
}

static bool equal(Val a, Val b) {
  if (a.kind != b.kind || a.in_parts != b.in_parts) return false;
  if (a.kind == VAL_VAR) return a.as.var == b.as.var;
  if (a.kind == VAL_INSTANCE) return a.as.instance == b.as.instance;
  if (a.kind == VAL_METHOD) return a.as.method == b.as.method;
  if (a.kind != VAL_LIST) return same_leaf(a, b);
  bool same = a.as.list->len == b.as.list->len;
  for (uint32_t i = 0; i < a.as.list->len && same; i++)
    same = equal(a.as.list->data[i], b.as.list->data[i]);
  return same;
}

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

/* But for its value. */
static bool same_argument(const CallArg *a, const CallArg *b) {
  return a->name == b->name && a->is_key == b->is_key && same_span(a->span, b->span) &&
         same_span(a->name_span, b->name_span);
}

bool twins_match(Sema *s, Instance *a, const CallArg *a_args, Instance *b, const CallArg *b_args,
                 uint32_t nargs) {
  Twins *w = s->twins;
  w->instances.len = w->vars.len = w->tensors.len = 0;
  w->stamp++;
  if (!walk_instance(s, a, b)) return false;
  for (uint32_t i = 0; i < nargs; i++)
    if (!same_argument(&a_args[i], &b_args[i]) || !walk(s, a_args[i].value, b_args[i].value))
      return false;
  return true;
}

bool twins_equal_args(const CallArg *a, const CallArg *b, uint32_t nargs) {
  for (uint32_t i = 0; i < nargs; i++)
    if (!same_argument(&a[i], &b[i]) || !equal(a[i].value, b[i].value)) return false;
  return true;
}
