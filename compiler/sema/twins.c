/* Whether two instances, and what their calls are given, differ in names alone. See replay.h.
 *
 * Both sides are walked at once. What was met before must have been met at the same moment on both
 * sides: then which instances, variables and tensors are one and the same agrees too.
 */
#include <string.h>

#include "sema/replay.h"

enum { MAX_TWINS = 2000 /* instances and variables: a walk must cost less than the call */ };

static bool walk(Sema *s, Val a, Val b);

/* -1: met on neither side; 1: met at the same moment; 0: on one, or at different ones. */
static int met(Sema *s, Seen a[2], Seen b[2], uint32_t index) {
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

static bool walk_instance(Sema *s, Instance *a, Instance *b) {
  Twins *w = s->twins;
  int before = met(s, a->seen, b->seen, w->instances.len);
  if (before >= 0) return before;
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
  if (!samples_count(s)) return true;
  int x, y;
  Samples *samples = block_samples(s, s->block);
  bool known = samples_along(samples, a, &x);
  return known == samples_along(samples, b, &y) && x == y;
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

static bool walk(Sema *s, Val a, Val b) {
  if (a.kind != b.kind || a.in_parts != b.in_parts) return false;
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
  case VAL_LIST: {
    bool same = a.as.list->len == b.as.list->len && s->twins->depth < SEMA_MAX_DEPTH;
    s->twins->depth++;
    for (uint32_t i = 0; i < a.as.list->len && same; i++)
      same = walk(s, a.as.list->data[i], b.as.list->data[i]);
    s->twins->depth--;
    return same;
  }
  case VAL_TENSOR:
    return walk_tensor(s, a.as.tensor, b.as.tensor);
  case VAL_VAR:
    return walk_var(s, a.as.var, b.as.var);
  case VAL_INSTANCE:
    return walk_instance(s, a.as.instance, b.as.instance);
  case VAL_METHOD:
    return a.as.method->decl == b.as.method->decl &&
           walk_instance(s, a.as.method->instance, b.as.method->instance) &&
           level_index(a.as.method) == level_index(b.as.method);
  case VAL_FN:
    return a.as.fn == b.as.fn;
  case VAL_MODULE:
    return a.as.module == b.as.module;
  case VAL_FILE:
    return a.as.file == b.as.file;
  case VAL_BUILTIN:
    return a.as.builtin == b.as.builtin;
  case VAL_POISON:
    break;
  }
  return false;
}

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

bool twins_match(Sema *s, Instance *a, const CallArg *a_args, Instance *b, const CallArg *b_args,
                 uint32_t nargs) {
  Twins *w = s->twins;
  w->instances.len = w->vars.len = w->tensors.len = 0;
  w->stamp++;
  if (!walk_instance(s, a, b)) return false;
  for (uint32_t i = 0; i < nargs; i++) {
    const CallArg *x = &a_args[i], *y = &b_args[i];
    if (x->name != y->name || x->is_key != y->is_key || !same_span(x->span, y->span) ||
        !same_span(x->name_span, y->name_span) || !walk(s, x->value, y->value))
      return false;
  }
  return true;
}
