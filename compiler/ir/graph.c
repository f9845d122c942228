/* Building and reading graphs: see graph.h. */
#include "ir/graph.h"

#include <string.h>

#include "runtime/abi/abi.h"

Graph *graph_new(Arena *arena, const char *name) {
  Graph *g = ARENA_NEW(arena, Graph);
  g->arena = arena;
  g->name = name;
  VEC_PUSH(arena, &g->nodes, (Node){0});
  VEC_PUSH(arena, &g->values, (Value){0});
  VEC_PUSH(arena, &g->scopes, (Scope){.path = "", .what = ""});
  return g;
}

const char *phase_name(Phase phase) {
  static const char *const names[] = {
#define X(id, name) [PHASE_##id] = name,
      ABI_PHASES(X)
#undef X
  };
  return names[phase];
}

const char *store_level_name(StoreLevel level) {
  static const char *const names[STORE_COUNT] = {"none", "optimizer", "gradients", "parameters"};
  return names[level];
}

const char *var_kind_name(VarKind kind) {
  static const char *const names[] = {[VAR_NONE] = "?",
#define X(id, name) [VAR_##id] = name,
                                      ABI_VAR_KINDS(X)
#undef X
  };
  return names[kind];
}

const char *block_name(BlockKind kind) {
  static const char *const names[] = {
#define X(id, name) [BLOCK_##id] = name,
      ABI_BLOCKS(X)
#undef X
  };
  return names[kind];
}

bool source_is_made(const DataSource *source) {
  return strcmp(source->reader, ABI_READER_VALID) == 0 ||
         strcmp(source->reader, ABI_READER_SHARE) == 0;
}

Graph *program_graph(Program *program, BlockKind kind) {
  ProgramBlock *b = &program->block[kind];
  if (!b->graph) b->graph = graph_new(program->arena, block_name(kind));
  return b->graph;
}

/* By fours: graphs grow large, and what is reserved and not used takes no memory. */
static void make_room(Graph *g, uint32_t nresults) {
  if (g->nodes.len == g->nodes.cap) VEC_RESERVE(g->arena, &g->nodes, 3 * g->nodes.cap);
  if (g->values.len + nresults > g->values.cap)
    VEC_RESERVE(g->arena, &g->values, 3 * g->values.cap);
}

/* Sorted by key, with what they point to. */
static Attr *copy_attrs(Arena *arena, const Attr *attrs, uint32_t n) {
  Attr *to = ARENA_ARRAY(arena, Attr, n);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = i;
    for (; j > 0 && to[j - 1].key > attrs[i].key; j--) to[j] = to[j - 1];
    to[j] = attrs[i];
    if (attr_kind(attrs[i].key) == ATTR_KIND_INTS) {
      size_t bytes = attrs[i].as.ints.len * sizeof(int64_t);
      to[j].as.ints.data = arena_alloc(arena, bytes);
      if (bytes) memcpy(to[j].as.ints.data, attrs[i].as.ints.data, bytes);
    } else if (attr_kind(attrs[i].key) == ATTR_KIND_TYPE) {
      TensorType *copy = ARENA_NEW(arena, TensorType);
      *copy = *attrs[i].as.type;
      to[j].as.type = copy;
    }
  }
  return to;
}

NodeId graph_add(Graph *g, Op op, const ValueId *operands, uint32_t noperands, const Attr *attrs,
                 uint32_t nattrs, const TensorType *results, uint32_t nresults, Span span,
                 uint32_t scope) {
  Node n = {.op = op,
            .scope = scope,
            .span = span,
            .noperands = noperands,
            .nresults = nresults,
            .nattrs = nattrs,
            .first_result = g->values.len};
  n.operands = ARENA_ARRAY(g->arena, ValueId, noperands);
  if (noperands) memcpy(n.operands, operands, noperands * sizeof *operands);
  n.attrs = copy_attrs(g->arena, attrs, nattrs);
  NodeId id = g->nodes.len;
  make_room(g, nresults);
  VEC_PUSH(g->arena, &g->nodes, n);
  for (uint32_t i = 0; i < nresults; i++)
    VEC_PUSH(g->arena, &g->values, (Value){.type = results[i], .node = id, .index = i});
  return id;
}

NodeId graph_add_like(Graph *g, const Graph *from, NodeId like, const ValueId *operands, Span span,
                      uint32_t scope) {
  Node n = *graph_node(from, like);
  ValueId first = n.first_result;
  n.operands = ARENA_ARRAY(g->arena, ValueId, n.noperands);
  if (n.noperands) memcpy(n.operands, operands, n.noperands * sizeof *operands);
  if (from->arena != g->arena) n.attrs = copy_attrs(g->arena, n.attrs, n.nattrs);
  n.first_result = g->values.len;
  n.segment = 0;
  n.span = span;
  n.scope = scope;
  make_room(g, n.nresults);
  NodeId id = g->nodes.len;
  VEC_PUSH(g->arena, &g->nodes, n);
  for (uint32_t i = 0; i < n.nresults; i++) {
    const Value *v = graph_value(from, first + i);
    g->values.data[g->values.len++] =
        (Value){.type = v->type, .key = v->key, .node = id, .index = i};
  }
  return id;
}

uint32_t graph_add_scope(Graph *g, uint32_t parent, const char *path, const char *what, Span call) {
  VEC_PUSH(g->arena, &g->scopes,
           (Scope){.parent = parent, .path = path, .what = what, .call = call});
  return g->scopes.len - 1;
}

uint32_t *graph_recomputed_scopes(Arena *arena, const Graph *g) {
  uint32_t *of = ARENA_ARRAY(arena, uint32_t, g->scopes.len);
  for (uint32_t s = 1; s < g->scopes.len; s++) {
    const Scope *scope = &g->scopes.data[s];
    of[s] = of[scope->parent] ? of[scope->parent] : scope->recompute ? s : 0;
  }
  return of;
}

/* The node makes a part of what the whole batch has: from data, or along its rows. */
static bool begins_varying(const Node *n) {
  if (n->op == OP_INPUT || n->op == OP_MICRO_SUM) return true;
  return n->noperands == 0 && n->op != OP_FULL && node_attr(n, ATTR_MICRO);
}

bool *graph_varying(Arena *arena, const Graph *g) {
  bool *varies = ARENA_ARRAY(arena, bool, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    bool any = begins_varying(n);
    for (uint32_t i = 0; i < n->noperands; i++) any |= varies[n->operands[i]];
    for (uint32_t i = 0; any && i < n->nresults; i++) varies[node_result(n, i)] = true;
  }
  return varies;
}

const Attr *attrs_find(const Attr *attrs, uint32_t n, AttrKey key) {
  for (uint32_t i = 0; i < n; i++)
    if (attrs[i].key == key) return &attrs[i];
  return NULL;
}

int64_t attrs_int(const Attr *attrs, uint32_t n, AttrKey key, int64_t otherwise) {
  const Attr *a = attrs_find(attrs, n, key);
  return a ? a->as.i : otherwise;
}

double attrs_float(const Attr *attrs, uint32_t n, AttrKey key, double otherwise) {
  const Attr *a = attrs_find(attrs, n, key);
  return a ? a->as.f : otherwise;
}

const Attr *node_attr(const Node *n, AttrKey key) {
  return attrs_find(n->attrs, n->nattrs, key);
}

int64_t node_int(const Node *n, AttrKey key, int64_t otherwise) {
  return attrs_int(n->attrs, n->nattrs, key, otherwise);
}

double node_float(const Node *n, AttrKey key, double otherwise) {
  return attrs_float(n->attrs, n->nattrs, key, otherwise);
}

const char *node_string(const Node *n, AttrKey key) {
  const Attr *a = node_attr(n, key);
  return a ? a->as.s : NULL;
}

bool attr_equal(const Attr *a, const Attr *b) {
  if (a->key != b->key) return false;
  switch (attr_kind(a->key)) {
  case ATTR_KIND_NONE:
    return true;
  case ATTR_KIND_INT:
  case ATTR_KIND_BOOL:
  case ATTR_KIND_DTYPE:
    return a->as.i == b->as.i;
  case ATTR_KIND_FLOAT:
    return memcmp(&a->as.f, &b->as.f, sizeof(double)) == 0;
  case ATTR_KIND_STRING:
    return strcmp(a->as.s, b->as.s) == 0;
  case ATTR_KIND_TYPE:
    return type_equal(a->as.type, b->as.type);
  case ATTR_KIND_INTS:
    return a->as.ints.len == b->as.ints.len &&
           (a->as.ints.len == 0 ||
            memcmp(a->as.ints.data, b->as.ints.data, a->as.ints.len * sizeof(int64_t)) == 0);
  }
  return false;
}

static uint64_t hash_word(uint64_t word, uint64_t h) {
  h = (h ^ word) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

static uint64_t hash_attr(const Attr *a, uint64_t h) {
  h = hash_word((uint64_t)a->key, h);
  switch (attr_kind(a->key)) {
  case ATTR_KIND_NONE:
    return h;
  case ATTR_KIND_INT:
  case ATTR_KIND_BOOL:
  case ATTR_KIND_DTYPE:
    return hash_word((uint64_t)a->as.i, h);
  case ATTR_KIND_FLOAT:
    return hash_bytes(&a->as.f, sizeof a->as.f, h);
  case ATTR_KIND_STRING:
    return hash_bytes(a->as.s, strlen(a->as.s), h);
  case ATTR_KIND_TYPE: /* shapes tell most apart */
    return hash_bytes(a->as.type->shape, a->as.type->rank * sizeof(int64_t), h);
  case ATTR_KIND_INTS:
    return hash_bytes(a->as.ints.data, a->as.ints.len * sizeof(int64_t), h);
  }
  return h;
}

uint64_t attrs_hash(const Attr *attrs, uint32_t n, uint64_t seed) {
  for (uint32_t i = 0; i < n; i++) seed = hash_attr(&attrs[i], seed);
  return seed;
}

uint32_t *graph_use_counts(Arena *arena, const Graph *g) {
  uint32_t *uses = ARENA_ARRAY(arena, uint32_t, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++)
    for (uint32_t i = 0; i < graph_node(g, id)->noperands; i++)
      uses[graph_node(g, id)->operands[i]]++;
  return uses;
}

bool output_in_parts(const Node *n) {
  const char *role = node_string(n, ATTR_ROLE);
  return role && (strcmp(role, "rows") == 0 || strcmp(role, "mean") == 0);
}

bool value_const(const Graph *g, ValueId id, double *value) {
  const Node *n = value_node(g, id);
  if (n->op != OP_CONST) return false;
  *value = node_float(n, ATTR_VALUE, 0);
  return true;
}
