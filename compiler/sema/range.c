/* Ranges of a graph and their copies. See replay.h.
 *
 * When a range is to be copied for the first time, it is read into a form: for every operand where
 * its copy comes from, for every node what of it is its own. What has no such source makes the
 * range unfit.
 */
#include <string.h>

#include "sema/replay.h"

static Mark mark_of(const Sema *s) {
  const Graph *g = s->at.graph;
  return (Mark){g->nodes.len, g->values.len, g->scopes.len, s->at.cache->draws.len};
}

/* What a node is in a copy. */
typedef enum NodeForm {
  FORM_COPY = 1,
  FORM_CONST,  /* the graph's one constant of this value: there already */
  FORM_READ,   /* the one read of the variable in its place: there already, or made */
  FORM_ASSIGN, /* to the variable in its place */
  FORM_RANDOM  /* with a number of its own */
} NodeForm;

typedef struct NodeOf {
  NodeForm form;
  uint32_t twin;  /* READ, ASSIGN: index among the variables; RANDOM: among the draws */
  uint32_t first; /* of its operands in Form.operands */
} NodeOf;

/* A value from before the range that is no argument. */
typedef struct Outer {
  ValueId value;
  bool is_read;
  uint32_t twin; /* index among the variables */
} Outer;

/* Values are named by slots: arguments, then outer ones, then those of the range. */
typedef struct Form {
  Instance **instances; /* the a side of the twins it speaks of */
  uint32_t *vars, ninstances, nvars;
  IdMap of_var, of_path; /* variable, path (instances, then variables) -> index among them */
  NodeOf *nodes;
  VEC(uint32_t) operands; /* slots */
  VEC(Outer) outer;
  uint32_t nargs;
  uint32_t *scope_path, *draw_path; /* index among the instances */
  ValueId *made;                    /* per slot: the value of the copy at hand */
} Form;

static const Named *find_named(const Named *list, uint32_t n, ValueId v) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i].value == v) return &list[i];
  return NULL;
}

/* Whether a call names an argument that has no name: the recorded one tells, if its own had none.
 */
static bool names_known(const Sema *s, const Range *r) {
  const Twins *w = s->twins;
  for (uint32_t i = 0; i < w->tensors.len; i++) {
    IdTwin twin = w->tensors.data[i];
    if (!find_named(r->unnamed.data, r->unnamed.len, twin.a) &&
        !graph_value(s->at.graph, twin.b)->name)
      return false;
  }
  return true;
}

/* --- the form of a range ------------------------------------------------------------------------
 */

static bool var_twin(const Form *f, uint32_t var, uint32_t *twin) {
  return id_map_get(&f->of_var, var, twin);
}

/* Of an instance, or behind those of a variable, which is one too where it is initialised. */
static const char *path_of(const Sema *s, uint32_t twin, bool b) {
  const Twins *w = s->twins;
  if (twin < w->instances.len)
    return b ? w->instances.data[twin].b->path : w->instances.data[twin].a->path;
  const IdTwin *var = &w->vars.data[twin - w->instances.len];
  return s->program->vars.data[b ? var->b : var->a].name;
}

enum { SEVERAL = UINT32_MAX - 1 };

/* What has this path, or text of equal address: exactly one. */
static bool path_twin(const Form *f, const char *path, uint32_t *twin) {
  return id_map_get(&f->of_path, (uintptr_t)path, twin) && *twin != SEVERAL;
}

static void list_a_side(Sema *s, Form *f) {
  const Twins *w = s->twins;
  f->nargs = w->tensors.len;
  f->ninstances = w->instances.len;
  f->nvars = w->vars.len;
  f->instances = ARENA_ARRAY(s->arena, Instance *, f->ninstances);
  f->vars = ARENA_ARRAY(s->arena, uint32_t, f->nvars);
  for (uint32_t i = 0; i < f->ninstances; i++) f->instances[i] = w->instances.data[i].a;
  for (uint32_t i = 0; i < f->nvars; i++) {
    f->vars[i] = w->vars.data[i].a;
    id_map_put(s->arena, &f->of_var, f->vars[i], i);
  }
  for (uint32_t i = 0, other; i < f->ninstances + f->nvars; i++) {
    uintptr_t path = (uintptr_t)path_of(s, i, false);
    bool there = id_map_get(&f->of_path, path, &other);
    id_map_put(s->arena, &f->of_path, path, there ? SEVERAL : i);
  }
}

/* A constant of the graph's own table. */
static bool is_shared_const(const Sema *s, ValueId v) {
  const Node *n = value_node(s->at.graph, v);
  const TensorType *t = value_type(s->at.graph, v);
  double value;
  return n->op == OP_CONST && value_const(s->at.graph, v, &value) &&
         const_made(s->at.cache, t->dtype, value, t->mesh) == v;
}

static bool is_shared_read(const Sema *s, const Form *f, ValueId v, uint32_t *twin) {
  const Node *n = value_node(s->at.graph, v);
  if (n->op != OP_READ) return false;
  uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0);
  return read_made(s->at.cache, var) == v && var_twin(f, var, twin);
}

/* The slot of a value; false where a copy would not know what stands in its place. */
static bool slot_of(Sema *s, const Range *r, Form *f, ValueId v, uint32_t *slot) {
  const Twins *w = s->twins;
  for (*slot = 0; *slot < w->tensors.len; ++*slot)
    if (w->tensors.data[*slot].a == v) return true;
  if (v >= r->begin.value) {
    *slot = UINT32_MAX - (v - r->begin.value); /* until the number of outer values is known */
    return v < r->end.value;
  }
  for (uint32_t i = 0; i < f->outer.len; i++, ++*slot)
    if (f->outer.data[i].value == v) return true;
  Outer o = {.value = v};
  if (!is_shared_const(s, v)) {
    o.is_read = true;
    if (!is_shared_read(s, f, v, &o.twin)) return false;
  }
  VEC_PUSH(s->arena, &f->outer, o);
  return true;
}

/* Scopes of the range move with it; the one around it becomes that of the new call. */
static bool scope_moves(const Range *r, uint32_t scope) {
  return scope >= r->begin.scope || scope == r->scope;
}

static bool names_move(const Named *list, uint32_t n, const Range *r) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i].name && !scope_moves(r, list[i].scope)) return false;
  return true;
}

static bool form_node(Sema *s, const Range *r, Form *f, NodeId id) {
  const Graph *g = s->at.graph;
  const Node *n = graph_node(g, id);
  NodeOf *of = &f->nodes[id - r->begin.node];
  *of = (NodeOf){.form = FORM_COPY, .first = f->operands.len};
  const Attr *instance = node_attr(n, ATTR_INSTANCE), *var = node_attr(n, ATTR_VAR);
  if (n->op == OP_OUTPUT || n->op == OP_INPUT || !scope_moves(r, n->scope)) return false;
  for (uint32_t i = 0; i < n->nresults; i++) {
    const Value *v = graph_value(g, node_result(n, i));
    bool inside =
        !find_named(r->results.data, r->results.len, node_result(n, i)) && n->op != OP_READ;
    if (v->poisoned || (v->name && inside && !scope_moves(r, v->name_scope))) return false;
  }
  if (n->op == OP_CONST && is_shared_const(s, n->first_result)) of->form = FORM_CONST;
  if (n->op == OP_READ || n->op == OP_ASSIGN) {
    of->form = n->op == OP_READ ? FORM_READ : FORM_ASSIGN;
    if (n->op == OP_READ ? !is_shared_read(s, f, n->first_result, &of->twin)
                         : !var_twin(f, (uint32_t)var->as.i, &of->twin))
      return false;
  } else if (var) {
    return false;
  }
  if (instance) {
    uint32_t d = r->begin.draw;
    while (d < r->end.draw && s->at.cache->draws.data[d].number != instance->as.i) d++;
    if (d == r->end.draw) return false;
    of->form = FORM_RANDOM;
    of->twin = d - r->begin.draw;
  }
  for (uint32_t i = 0; i < n->noperands; i++) {
    uint32_t slot;
    if (!slot_of(s, r, f, n->operands[i], &slot)) return false;
    VEC_PUSH(s->arena, &f->operands, slot);
  }
  return true;
}

/* The slot that stands for one given by slot_of. */
static uint32_t final_slot(const Form *f, uint32_t slot) {
  uint32_t known = f->nargs + f->outer.len;
  return slot < known ? slot : known + (UINT32_MAX - slot);
}

static bool form_result(Sema *s, const Range *r, Form *f, Val v) {
  uint32_t slot;
  if (v.kind == VAL_TENSOR) return slot_of(s, r, f, v.as.tensor, &slot);
  if (v.kind == VAL_VAR) return var_twin(f, v.as.var, &slot);
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len; i++)
    if (!form_result(s, r, f, v.as.list->data[i])) return false;
  return v.kind == VAL_LIST || v.kind == VAL_NONE || val_is_number(v);
}

/* Of the recording that has just been found alike: s->twins are those of the two. */
static bool make_form(Sema *s, Range *r) {
  const Graph *g = s->at.graph;
  Form *f = r->form = ARENA_NEW(s->arena, Form);
  list_a_side(s, f);
  f->nodes = ARENA_ARRAY(s->arena, NodeOf, r->end.node - r->begin.node);
  f->scope_path = ARENA_ARRAY(s->arena, uint32_t, r->end.scope - r->begin.scope);
  f->draw_path = ARENA_ARRAY(s->arena, uint32_t, r->end.draw - r->begin.draw);
  for (uint32_t i = r->begin.scope; i < r->end.scope; i++) {
    const Scope *scope = &g->scopes.data[i];
    if (!scope_moves(r, scope->parent) ||
        !path_twin(f, scope->path, &f->scope_path[i - r->begin.scope]))
      return false;
  }
  for (uint32_t i = r->begin.draw; i < r->end.draw; i++)
    if (!path_twin(f, s->at.cache->draws.data[i].path, &f->draw_path[i - r->begin.draw]))
      return false;
  for (NodeId id = r->begin.node; id < r->end.node; id++)
    if (!form_node(s, r, f, id)) return false;
  if (!names_move(r->results.data, r->results.len, r) ||
      !names_move(r->unnamed.data, r->unnamed.len, r))
    return false;
  if (!form_result(s, r, f, r->result)) return false;
  for (uint32_t i = 0; i < f->operands.len; i++)
    f->operands.data[i] = final_slot(f, f->operands.data[i]);
  f->made =
      ARENA_ARRAY(s->arena, ValueId, f->nargs + f->outer.len + (r->end.value - r->begin.value));
  return true;
}

/* --- copying ------------------------------------------------------------------------------------
 */

static uint32_t moved_scope(const Sema *s, const Range *r, const Mark *to, uint32_t scope) {
  return scope >= r->begin.scope ? scope - r->begin.scope + to->scope : s->at.scope;
}

static void copy_scopes(Sema *s, const Range *r, const Mark *to) {
  Graph *g = s->at.graph;
  for (uint32_t i = r->begin.scope; i < r->end.scope; i++) {
    Scope scope = g->scopes.data[i];
    scope.parent = moved_scope(s, r, to, scope.parent);
    scope.path = path_of(s, r->form->scope_path[i - r->begin.scope], true);
    VEC_PUSH(g->arena, &g->scopes, scope);
  }
}

static void copy_draws(Sema *s, const Range *r) {
  for (uint32_t i = 0; i < r->end.draw - r->begin.draw; i++)
    instance_at(s, path_of(s, r->form->draw_path[i], true));
}

static ValueId read_of(Sema *s, uint32_t var, Span span) {
  ValueId v = 0;
  as_tensor(s, (Val){.kind = VAL_VAR, .as.var = var}, span, NULL, &v);
  return v;
}

/* One attribute, which must be there, is another. */
static void set_attr(Graph *g, Node *n, AttrKey key, int64_t value) {
  Attr *attrs = ARENA_ARRAY(g->arena, Attr, n->nattrs);
  memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
  for (uint32_t i = 0; i < n->nattrs; i++)
    if (attrs[i].key == key) attrs[i].as.i = value;
  n->attrs = attrs;
}

static void copy_node(Sema *s, const Range *r, const Mark *to, NodeId old, ValueId *made) {
  enum { FEW = 8 };
  Graph *g = s->at.graph;
  const Form *f = r->form;
  const NodeOf *of = &f->nodes[old - r->begin.node];
  const Node n = *graph_node(g, old);
  ValueId few[FEW],
      *operands = n.noperands > FEW ? ARENA_ARRAY(s->arena, ValueId, n.noperands) : few;
  for (uint32_t i = 0; i < n.noperands; i++) operands[i] = f->made[f->operands.data[of->first + i]];
  NodeId id = graph_add_like(g, g, old, operands, n.span, moved_scope(s, r, to, n.scope));
  Node *copy = graph_node(g, id);
  if (of->form == FORM_ASSIGN) {
    IdTwin twin = s->twins->vars.data[of->twin];
    set_attr(g, copy, ATTR_VAR, twin.b);
    if (s->at.cache != s->init_cache && assign_makes_state(s, twin.b))
      s->program->vars.data[twin.b].kind = VAR_STATE;
  }
  if (of->form == FORM_RANDOM)
    set_attr(g, copy, ATTR_INSTANCE, s->at.cache->draws.data[to->draw + of->twin].number);
  for (uint32_t i = 0; i < n.nresults; i++) {
    const Value *was = graph_value(g, n.first_result + i);
    Value *v = graph_value(g, node_result(copy, i));
    v->name = was->name;
    if (v->name) v->name_scope = moved_scope(s, r, to, was->name_scope);
    made[i] = node_result(copy, i);
  }
}

static void copy_nodes(Sema *s, const Range *r, const Mark *to) {
  const Form *f = r->form;
  const Graph *g = s->at.graph;
  ValueId *range = f->made + f->nargs + f->outer.len;
  uint32_t scope = s->at.scope;
  for (NodeId id = r->begin.node; id < r->end.node; id++) {
    const Node *n = graph_node(g, id);
    const NodeOf *of = &f->nodes[id - r->begin.node];
    ValueId *made = range + (n->first_result - r->begin.value);
    switch (of->form) {
    case FORM_CONST:
      *made = n->first_result;
      break;
    case FORM_READ:
      s->at.scope = moved_scope(s, r, to, n->scope);
      *made = read_of(s, s->twins->vars.data[of->twin].b, n->span);
      s->at.scope = scope;
      break;
    case FORM_COPY:
    case FORM_ASSIGN:
    case FORM_RANDOM:
      copy_node(s, r, to, id, made);
      break;
    }
  }
}

static void set_name(Sema *s, const Range *r, const Mark *to, ValueId v, const char *name,
                     uint32_t scope) {
  Value *value = graph_value(s->at.graph, v);
  value->name = name;
  value->name_scope = name ? moved_scope(s, r, to, scope) : 0;
}

/* As they were when the recorded call was done. */
static void name_values(Sema *s, const Range *r, const Mark *to) {
  const Form *f = r->form;
  const ValueId *range = f->made + f->nargs + f->outer.len;
  for (uint32_t i = 0; i < r->results.len; i++) {
    const Named *named = &r->results.data[i];
    ValueId v = range[named->value - r->begin.value];
    if (v >= to->value && value_node(s->at.graph, v)->op != OP_READ)
      set_name(s, r, to, v, named->name, named->scope);
  }
  for (uint32_t i = 0; i < s->twins->tensors.len; i++) {
    IdTwin twin = s->twins->tensors.data[i];
    const Named *named = find_named(r->unnamed.data, r->unnamed.len, twin.a);
    if (named && named->name && !graph_value(s->at.graph, twin.b)->name)
      set_name(s, r, to, twin.b, named->name, named->scope);
  }
}

static Val moved(Sema *s, const Range *r, Val v) {
  const Form *f = r->form;
  uint32_t i;
  if (v.kind == VAL_TENSOR) {
    slot_of(s, r, r->form, v.as.tensor, &i);
    return val_tensor(f->made[final_slot(f, i)]);
  }
  if (v.kind == VAL_VAR) {
    var_twin(f, v.as.var, &i);
    return (Val){.kind = VAL_VAR, .as.var = s->twins->vars.data[i].b};
  }
  if (v.kind != VAL_LIST) return v;
  List *list = list_new(s, v.as.list->len);
  for (i = 0; i < list->len; i++) list->data[i] = moved(s, r, v.as.list->data[i]);
  return val_list(list);
}

/* False where a variable was read before in the recorded call's place, and is not yet in this one:
 * then it is not known when it would be. */
static bool outer_values(Sema *s, const Range *r) {
  const Form *f = r->form;
  for (uint32_t i = 0; i < s->twins->tensors.len; i++) f->made[i] = s->twins->tensors.data[i].b;
  for (uint32_t i = 0; i < f->outer.len; i++) {
    const Outer *o = &f->outer.data[i];
    ValueId v = o->is_read ? read_made(s->at.cache, s->twins->vars.data[o->twin].b) : o->value;
    if (!v) return false;
    f->made[f->nargs + i] = v;
  }
  return true;
}

Val range_copy(Sema *s, const Range *r) {
  Mark to = mark_of(s);
  copy_scopes(s, r, &to);
  copy_draws(s, r);
  copy_nodes(s, r, &to);
  const Form *f = r->form;
  if (samples_asked(s))
    samples_copy(block_samples(s, s->block), r->begin.value, f->made + f->nargs + f->outer.len,
                 r->end.value - r->begin.value, to.value);
  name_values(s, r, &to);
  return moved(s, r, r->result);
}

/* The form speaks of twins by their number: they are the same as when it was made. */
static bool same_twins(const Sema *s, const Form *f) {
  const Twins *w = s->twins;
  if (w->instances.len != f->ninstances || w->vars.len != f->nvars || w->tensors.len != f->nargs)
    return false;
  for (uint32_t i = 0; i < f->ninstances; i++)
    if (w->instances.data[i].a != f->instances[i]) return false;
  for (uint32_t i = 0; i < f->nvars; i++)
    if (w->vars.data[i].a != f->vars[i]) return false;
  return true;
}

bool range_fits(Sema *s, Range *r) {
  if (!r->form && !r->unfit) r->unfit = !make_form(s, r);
  return !r->unfit && same_twins(s, r->form) && names_known(s, r) && outer_values(s, r);
}

/* --- noting a range ------------------------------------------------------------------------------
 */

void range_begin(const Sema *s, Range *r, bool makes_vars) {
  *r = (Range){.begin = mark_of(s), .scope = s->at.scope, .makes_vars = makes_vars};
  r->effects = effects_hash(s, makes_vars);
}

void range_note_unnamed(Sema *s, Range *r, Val v) {
  if (v.kind == VAL_TENSOR && !graph_value(s->at.graph, v.as.tensor)->name)
    VEC_PUSH(s->arena, &r->unnamed, (Named){.value = v.as.tensor});
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len; i++)
    range_note_unnamed(s, r, v.as.list->data[i]);
}

static void note_results(Sema *s, Range *r, Val v) {
  if (v.kind == VAL_TENSOR && v.as.tensor >= r->begin.value) {
    const Value *value = graph_value(s->at.graph, v.as.tensor);
    VEC_PUSH(s->arena, &r->results, (Named){v.as.tensor, value->name, value->name_scope});
  }
  for (uint32_t i = 0; v.kind == VAL_LIST && i < v.as.list->len; i++)
    note_results(s, r, v.as.list->data[i]);
}

void range_end(Sema *s, Range *r, Val result) {
  r->end = mark_of(s);
  r->result = result;
  r->unfit = s->sink->errors || effects_hash(s, r->makes_vars) != r->effects;
  note_results(s, r, result);
  for (uint32_t i = 0; i < r->unnamed.len; i++) {
    const Value *v = graph_value(s->at.graph, r->unnamed.data[i].value);
    r->unnamed.data[i].name = v->name;
    r->unnamed.data[i].scope = v->name_scope;
  }
}
