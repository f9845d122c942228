/* Stages of a pipeline, and data on them: see stages.h. */
#include "spmd/stages.h"

#include <string.h>

#include "place/place.h"

bool *pipeline_live(Arena *arena, const Graph *g) {
  bool *live = ARENA_ARRAY(arena, bool, g->nodes.len);
  for (NodeId id = g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(g, id);
    live[id] |= n->nresults == 0;
    for (uint32_t i = 0; live[id] && i < n->noperands; i++)
      live[graph_value(g, n->operands[i])->node] = true;
  }
  return live;
}

/* --- sets of ranks ------------------------------------------------------------------------------
 */

/* A bit per rank. */
static uint64_t *ranks_of(Arena *arena, const Mesh *m, int64_t world) {
  uint64_t *in = ARENA_ARRAY(arena, uint64_t, world / 64 + 1);
  for (int64_t p = 0; p < m->nranks; p++) {
    int64_t r = mesh_rank(m, p);
    in[r / 64] |= UINT64_C(1) << r % 64;
  }
  return in;
}

static int64_t common(const uint64_t *a, const uint64_t *b, int64_t world) {
  int64_t n = 0;
  for (int64_t w = 0; w <= world / 64; w++) {
    uint64_t both = a[w] & b[w];
    if (both) n += __builtin_popcountll(both);
  }
  return n;
}

static bool has_all(const uint64_t *set, const Mesh *m) {
  int64_t n = 0;
  for (int64_t p = 0; p < m->nranks; p++)
    n += set[mesh_rank(m, p) / 64] >> mesh_rank(m, p) % 64 & 1;
  return n == m->nranks;
}

uint32_t stage_of(const StageMap *map, const Mesh *mesh) {
  for (uint32_t i = 0; i < map->n; i++)
    if (map->mesh[i] == mesh) return map->stage[i];
  return NO_STAGE;
}

static void list_meshes(Arena *arena, const Program *program, const Graph *g, const bool *varies,
                        const bool *live, StageMap *out) {
  out->mesh = ARENA_ARRAY(arena, const Mesh *, program->meshes.len + 1);
  out->stage = ARENA_ARRAY(arena, uint32_t, program->meshes.len + 1);
  out->ranks = ARENA_ARRAY(arena, const Mesh *, program->meshes.len + 1);
  const Mesh *last = NULL;
  for (ValueId v = 1; v < g->values.len; v++) {
    const Value *value = graph_value(g, v);
    if (value->type.mesh == last || !varies[v] || !live[value->node]) continue;
    last = value->type.mesh;
    uint32_t i = 0;
    while (i < out->n && out->mesh[i] != value->type.mesh) i++;
    if (i == out->n) out->mesh[out->n++] = value->type.mesh;
  }
}

bool stages_find(Arena *arena, const Program *program, const Graph *g, const bool *varies,
                 const bool *live, StageMap *out, const char **fault) {
  *out = (StageMap){0};
  list_meshes(arena, program, g, varies, live, out);
  int64_t world = program->world->nranks;
  uint64_t **ranks = ARENA_ARRAY(arena, uint64_t *, out->n + 1);
  for (uint32_t i = 0; i < out->n; i++) {
    out->stage[i] = NO_STAGE;
    ranks[i] = ranks_of(arena, out->mesh[i], world);
  }
  for (uint32_t i = 0; i < out->n; i++) {
    const Mesh *m = out->mesh[i];
    bool contains = false;
    uint32_t same = NO_STAGE;
    for (uint32_t k = 0; k < out->n; k++) {
      const Mesh *o = out->mesh[k];
      int64_t shared = common(ranks[k], ranks[i], world);
      if (!shared || k == i) continue;
      contains |= shared == o->nranks && o->nranks < m->nranks;
      if (shared == o->nranks && o->nranks == m->nranks && k < i) same = out->stage[k];
      if (shared == o->nranks || shared == m->nranks) continue;
      *fault =
          arena_printf(arena, "%s and %s have some ranks in common, but not all", m->name, o->name);
      return false;
    }
    if (contains) continue;
    if (same == NO_STAGE) {
      same = out->nstages++;
      out->ranks[same] = m;
    }
    out->stage[i] = same;
  }
  return true;
}

/* --- data on parts of a mesh ---------------------------------------------------------------------
 */

typedef struct Localise {
  Arena *scratch;
  Program *program;
  const Graph *g;
  const bool *varies;
  GraphMap map;
  IdMap done; /* value and mesh -> value there */
} Localise;

/* The type on a part of its mesh; false where a dim that the part lacks cuts it. */
static bool moved(const TensorType *t, const Mesh *to, TensorType *out) {
  *out = *t;
  return t->mesh == to || type_to_mesh(out, to) < 0;
}

/* Attributes speak of axes by number and carry types. */
static bool move_attrs(Localise *l, const Node *n, const Mesh *from, const Mesh *to, Attr *out) {
  for (uint32_t i = 0; i < n->nattrs; i++) {
    out[i] = n->attrs[i];
    if (attr_kind(out[i].key) == ATTR_KIND_TYPE) {
      TensorType *t = ARENA_NEW(l->program->arena, TensorType);
      if (out[i].as.type->mesh != from) continue;
      if (!moved(out[i].as.type, to, t)) return false;
      out[i].as.type = t;
    }
    if (out[i].key != ATTR_AXES) continue;
    uint32_t len = 0;
    int64_t *axes = ARENA_ARRAY(l->program->arena, int64_t, out[i].as.ints.len + 1);
    for (uint32_t a = 0; a < out[i].as.ints.len; a++) {
      int at = mesh_axis(to, from->axis[out[i].as.ints.data[a]]);
      if (at < 0) return false;
      axes[len++] = at;
    }
    out[i].as.ints.data = axes;
    out[i].as.ints.len = len;
  }
  return true;
}

static void source_on(Localise *l, Attr *source, const TensorType *type) {
  ProgramBlock *b = &l->program->block[BLOCK_TRAIN];
  const DataSource *old = &b->data.data[source->as.i];
  for (uint32_t i = 0; i < b->data.len; i++)
    if (b->data.data[i].name == old->name && type_equal(&b->data.data[i].type, type)) {
      source->as.i = i;
      return;
    }
  DataSource d = *old;
  d.type = *type;
  source->as.i = b->data.len;
  VEC_PUSH(l->program->arena, &b->data, d);
}

/* The value on the part `to` of its mesh, in the new graph; 0 where that is not local. */
static ValueId value_on(Localise *l, ValueId v, const Mesh *to) {
  uint64_t key = hash_bytes(&to, sizeof to, v);
  uint32_t known;
  const Node *n = value_node(l->g, v);
  TensorType type = *value_type(l->g, v), results[4];
  const Mesh *from = type.mesh;
  if (from == to) return graph_map_get(&l->map, v);
  if (id_map_get(&l->done, key, &known)) return known;
  if (!moved(&type, to, &type) || n->nresults > 4) return 0;
  if (!l->varies[v] && n->noperands + (n->op == OP_READ)) { /* the same for all micro-batches */
    if (!place_send_is_local(value_type(l->g, v), &type)) return 0;
    ValueId x = graph_map_get(&l->map, v);
    Attr attr = ATTR_T(TYPE, &type);
    NodeId id = graph_add(l->map.to, OP_SEND_MESH, &x, 1, &attr, 1, &type, 1, n->span, n->scope);
    graph_node(l->map.to, id)->phase = n->phase;
    known = node_result(graph_node(l->map.to, id), 0);
    id_map_put(l->scratch, &l->done, key, known);
    return known;
  }
  if (n->op == OP_SEND_MESH) return 0;
  Attr attrs[ATTR_COUNT];
  ValueId *operands = ARENA_ARRAY(l->scratch, ValueId, n->noperands + 1);
  if (!move_attrs(l, n, from, to, attrs)) return 0;
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i] = value_on(l, n->operands[i], to);
    if (!operands[i]) return 0;
  }
  for (uint32_t r = 0; r < n->nresults; r++)
    if (!moved(value_type(l->g, node_result(n, r)), to, &results[r])) return 0;
  for (uint32_t i = 0; i < n->nattrs; i++)
    if (attrs[i].key == ATTR_SOURCE) source_on(l, &attrs[i], &results[0]);
  NodeId id = graph_add(l->map.to, n->op, operands, n->noperands, attrs, n->nattrs, results,
                        n->nresults, n->span, n->scope);
  graph_node(l->map.to, id)->phase = n->phase;
  for (uint32_t r = 0; r < n->nresults; r++) {
    ValueId old = node_result(n, r), made = node_result(graph_node(l->map.to, id), r);
    graph_value(l->map.to, made)->name = graph_value(l->g, old)->name;
    id_map_put(l->scratch, &l->done, hash_bytes(&to, sizeof to, old), made);
  }
  id_map_get(&l->done, key, &known);
  return known;
}

/* A move of data to a part of its mesh; false where it must stay what it is. */
static bool localise_send(Localise *l, const Node *n) {
  ValueId v = n->operands[0];
  const TensorType *from = value_type(l->g, v), *to = value_type(l->g, n->first_result);
  if (!l->varies[v] || from->mesh == to->mesh || from->mesh->nranks <= to->mesh->nranks)
    return false;
  if (!place_send_is_local(from, to)) return false;
  ValueId there = value_on(l, v, to->mesh);
  if (!there) return false;
  if (!type_equal(value_type(l->map.to, there), to)) {
    Attr attr = ATTR_T(TYPE, to);
    NodeId id = graph_add(l->map.to, OP_SHARD_SLICE, &there, 1, &attr, 1, to, 1, n->span, n->scope);
    graph_node(l->map.to, id)->phase = n->phase;
    there = node_result(graph_node(l->map.to, id), 0);
  }
  graph_map_set(&l->map, n->first_result, there);
  return true;
}

/* Data that is printed is read on one of the parts that its mesh has; false where it stays. */
static bool localise_output(Localise *l, const Node *n) {
  ValueId x = n->operands[0], there = 0;
  const Mesh *mesh = value_type(l->g, x)->mesh;
  if (!l->varies[x]) return false;
  const uint64_t *in = ranks_of(l->scratch, mesh, l->program->world->nranks);
  for (ValueId v = 1; v < l->g->values.len && !there; v++) {
    const Mesh *part = value_type(l->g, v)->mesh;
    if (l->varies[v] && part->nranks < mesh->nranks && has_all(in, part))
      there = value_on(l, x, part);
  }
  if (!there) return false;
  NodeId id =
      graph_add(l->map.to, n->op, &there, 1, n->attrs, n->nattrs, NULL, 0, n->span, n->scope);
  graph_node(l->map.to, id)->phase = n->phase;
  return true;
}

Graph *pipeline_localise(Arena *scratch, Program *program, const Graph *g, ValueId *keep,
                         uint32_t nkeep) {
  Localise l = {.scratch = scratch, .program = program, .g = g};
  l.varies = graph_varying(scratch, g);
  l.map = graph_map_begin(scratch, program->arena, g);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op == OP_SEND_MESH && localise_send(&l, n)) continue;
    if (n->op == OP_OUTPUT && localise_output(&l, n)) continue;
    graph_map_copy(&l.map, id);
  }
  for (uint32_t i = 0; i < nkeep; i++) keep[i] = keep[i] ? graph_map_get(&l.map, keep[i]) : 0;
  return l.map.to;
}
