/* Stage explicit -> explicit: gathers of stored parameters. See store.h.
 *
 * A block of the model is what one gather should bring: the parameters below one element of a list
 * of modules (layers.3), else those of one module. With `compute bf16` a parameter that is used in
 * 16 bits only travels in 16 bits; its gradient travels in reduce_dtype. */
#include "place/store.h"

#include <ctype.h>
#include <string.h>

#include "ir/rewrite.h"

/* A READ that is to be gathered. */
typedef struct Gather {
  NodeId read;
  uint32_t var;
  DType wire; /* element type that travels */
  int64_t bucket;
  NodeId first_use;
} Gather;

typedef struct Store {
  Program *program;
  ProgramBlock *block;
  Arena *scratch;
  GraphMap map;
  VEC(Gather) gathers;
  NameMap buckets; /* block of the model -> Bucket */
  int64_t nbuckets;
} Store;

/* Of the gathers of one block of the model in one graph. */
typedef struct Bucket {
  int64_t id;
  NodeId first_use;
} Bucket;

static bool is_stored(const Var *v) {
  return v->store >= STORE_GRADIENTS;
}

static TensorType stored_type(const Var *v) {
  TensorType t = v->type;
  t.layout = v->stored;
  return t;
}

StoreLevel store_gathered(const Program *program, const Graph *g, const Node *n) {
  if (n->op != OP_REDISTRIBUTE || n->phase != PHASE_FORWARD || !node_attr(n, ATTR_BUCKET))
    return STORE_NONE;
  const Node *read = value_node(g, n->operands[0]);
  return read->op == OP_READ ? program->vars.data[node_int(read, ATTR_VAR, 0)].store : STORE_NONE;
}

/* "layers.3" of "layers.3.mlp.up.weight", "head" of "head.weight". */
static const char *block_of(const Store *s, const char *name) {
  const char *end = strrchr(name, '.');
  for (const char *part = name; part; part = strchr(part, '.')) {
    part += part != name;
    size_t len = strcspn(part, ".");
    if (!isdigit((unsigned char)*part) || part[len] != '.') continue;
    end = part + len;
    break;
  }
  size_t len = end ? (size_t)(end - name) : 0;
  return intern_n(s->program->names, name, len);
}

static Bucket *bucket_of(Store *s, const Var *v) {
  const char *name = block_of(s, v->name);
  Bucket *b = name_map_get(&s->buckets, name);
  if (b) return b;
  b = ARENA_NEW(s->scratch, Bucket);
  b->id = ++s->nbuckets;
  name_map_put(s->scratch, &s->buckets, name, b);
  return b;
}

/* The element type that all users of the value narrow it to; its own when there is none. */
static DType wire_of(const Graph *g, ValueId v) {
  DType own = value_type(g, v)->dtype, wire = DT_NONE;
  if (layout_has_partial(&value_type(g, v)->layout)) return own;
  for (NodeId id = graph_value(g, v)->node; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      if (n->operands[i] != v) continue;
      DType to = n->op == OP_CAST ? value_type(g, n->first_result)->dtype : DT_NONE;
      if (!dtype_is_float(to) || !dtype_widens(to, own) || (wire && wire != to)) return own;
      wire = to;
    }
  }
  return wire ? wire : own;
}

static void find_gathers(Store *s) {
  const Graph *g = s->block->graph;
  uint32_t *of = ARENA_ARRAY(s->scratch, uint32_t, g->values.len); /* 1 + index of the gather */
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      Gather *use = of[n->operands[i]] ? &s->gathers.data[of[n->operands[i]] - 1] : NULL;
      if (!use || use->first_use) continue;
      use->first_use = id;
      Bucket *b = bucket_of(s, &s->program->vars.data[use->var]);
      if (!b->first_use) b->first_use = id;
    }
    if (n->op != OP_READ) continue;
    uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0);
    const Var *v = &s->program->vars.data[var];
    if (!is_stored(v)) continue;
    Gather gather = {.read = id, .var = var, .wire = wire_of(g, n->first_result)};
    gather.bucket = bucket_of(s, v)->id;
    VEC_PUSH(s->scratch, &s->gathers, gather);
    of[n->first_result] = s->gathers.len;
  }
}

static void add_read(Store *s, const Gather *gather, ValueId *value) {
  const Node *read = graph_node(s->map.from, gather->read);
  TensorType stored = stored_type(&s->program->vars.data[gather->var]);
  Attr var = ATTR_I(VAR, gather->var);
  NodeId id = graph_add(s->map.to, OP_READ, NULL, 0, &var, 1, &stored, 1, read->span, read->scope);
  *value = node_result(graph_node(s->map.to, id), 0);
}

static void add_gather(Store *s, const Gather *gather, ValueId value) {
  const Node *read = graph_node(s->map.from, gather->read);
  TensorType whole = *value_type(s->map.from, read->first_result);
  DType reduced = s->block->settings.reduce_dtype;
  Attr attrs[5] = {ATTR_T(TYPE, &whole), ATTR_I(ASYNC, 1), ATTR_I(BUCKET, gather->bucket)};
  uint32_t n = 3;
  if (gather->wire != whole.dtype) attrs[n++] = ATTR_I(FORWARD_DTYPE, gather->wire);
  if (reduced && reduced != whole.dtype && whole.dtype != DT_F64)
    attrs[n++] = ATTR_I(BACKWARD_DTYPE, reduced);
  NodeId id = graph_add(s->map.to, OP_REDISTRIBUTE, &value, 1, attrs, n, &whole, 1, read->span,
                        read->scope);
  graph_map_set(&s->map, read->first_result, node_result(graph_node(s->map.to, id), 0));
}

/* All of a bucket, those of one element type side by side. */
static void add_bucket(Store *s, int64_t bucket) {
  ValueId *values = ARENA_ARRAY(s->scratch, ValueId, s->gathers.len);
  uint32_t left = 0;
  for (uint32_t i = 0; i < s->gathers.len; i++) {
    const Gather *gather = &s->gathers.data[i];
    if (gather->bucket != bucket || !gather->first_use) continue;
    add_read(s, gather, &values[i]);
    left++;
  }
  for (DType wire = DT_NONE + 1; left; wire++)
    for (uint32_t i = 0; i < s->gathers.len; i++) {
      if (!values[i] || s->gathers.data[i].wire != wire) continue;
      add_gather(s, &s->gathers.data[i], values[i]);
      left--;
    }
}

/* The value in another layout is made in it: random numbers, constants, and what is computed of
 * such element by element. */
static bool is_made_anywhere(const Graph *g, ValueId v, const TensorType *like) {
  const Node *n = value_node(g, v);
  const TensorType *t = value_type(g, v);
  OpClass cls = op_info(n->op)->cls;
  if (t->rank == 0) return true;
  if (!type_equal(t, like) || n->nresults != 1) return false;
  if (cls != CLASS_POINTWISE) return cls == CLASS_FACTORY;
  for (uint32_t i = 0; i < n->noperands; i++) {
    TensorType same = *t;
    same.dtype = value_type(g, n->operands[i])->dtype;
    if (!is_made_anywhere(g, n->operands[i], &same)) return false;
  }
  return true;
}

/* Makes such a value in the layout of `stored`. */
static ValueId make_piece(Store *s, ValueId v, const TensorType *stored) {
  const Node *n = value_node(s->map.from, v);
  TensorType type = *value_type(s->map.from, v);
  if (type.rank == 0) return graph_map_get(&s->map, v);
  type.layout = stored->layout;
  ValueId *operands = ARENA_ARRAY(s->scratch, ValueId, n->noperands + 1);
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = make_piece(s, n->operands[i], stored);
  Attr *attrs = ARENA_ARRAY(s->scratch, Attr, n->nattrs + 1);
  for (uint32_t i = 0; i < n->nattrs; i++)
    attrs[i] = n->attrs[i].key == ATTR_TYPE ? ATTR_T(TYPE, &type) : n->attrs[i];
  NodeId id = graph_add(s->map.to, n->op, operands, n->noperands, attrs, n->nattrs, &type, 1,
                        n->span, n->scope);
  return node_result(graph_node(s->map.to, id), 0);
}

/* The new value of a stored variable, as its piece. */
static void add_assign(Store *s, const Node *n) {
  TensorType stored = stored_type(&s->program->vars.data[node_int(n, ATTR_VAR, 0)]);
  const TensorType *whole = value_type(s->map.from, n->operands[0]);
  ValueId v = graph_map_get(&s->map, n->operands[0]);
  if (is_made_anywhere(s->map.from, n->operands[0], whole)) {
    v = make_piece(s, n->operands[0], &stored);
  } else if (!type_equal(value_type(s->map.to, v), &stored)) {
    NodeId id = graph_add(s->map.to, OP_REDISTRIBUTE, &v, 1, &ATTR_T(TYPE, &stored), 1, &stored, 1,
                          n->span, n->scope);
    v = node_result(graph_node(s->map.to, id), 0);
  }
  graph_add(s->map.to, OP_ASSIGN, &v, 1, n->attrs, n->nattrs, NULL, 0, n->span, n->scope);
}

static void rewrite_block(Store *s) {
  s->map = graph_map_begin(s->scratch, s->program->arena, s->block->graph);
  find_gathers(s);
  for (NodeId id = 1; id < s->map.from->nodes.len; id++) {
    const Node *n = graph_node(s->map.from, id);
    bool of_stored = (n->op == OP_READ || n->op == OP_ASSIGN) &&
                     is_stored(&s->program->vars.data[node_int(n, ATTR_VAR, 0)]);
    for (uint32_t b = 0; b < s->buckets.len; b++) {
      const Bucket *bucket = s->buckets.entries[b].value;
      if (bucket->first_use == id) add_bucket(s, bucket->id);
    }
    if (of_stored && n->op == OP_ASSIGN)
      add_assign(s, n);
    else if (!of_stored)
      graph_map_copy(&s->map, id);
  }
  s->block->graph = s->map.to;
  s->block->loss = graph_map_get(&s->map, s->block->loss);
  s->block->optimizer.lr = graph_map_get(&s->map, s->block->optimizer.lr);
}

void store_run(Program *program) {
  bool any = false;
  for (uint32_t i = 0; i < program->vars.len; i++) any |= is_stored(&program->vars.data[i]);
  if (!any) return;
  Arena scratch;
  arena_init(&scratch);
  for (BlockKind k = 0; k < BLOCK_COUNT; k++) {
    Store s = {.program = program, .block = &program->block[k], .scratch = &scratch};
    if (s.block->graph) rewrite_block(&s);
  }
  for (uint32_t i = 0; i < program->vars.len; i++) {
    Var *v = &program->vars.data[i];
    if (is_stored(v)) v->type = stored_type(v);
  }
  arena_free(&scratch);
}
