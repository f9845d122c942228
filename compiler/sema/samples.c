/* Which values hold one row per sample, and nothing that mixes samples.
 *
 * A short batch is padded, so padding must not leak into what real samples give. The question is
 * the one that placements answer already: on a mesh of as many ranks as the batch has samples,
 * with every source sharded by its batch and all else replicated, does the value come out sharded
 * by its dim 0 without communication? Types alone are looked at; what the program does about its
 * own mesh plays no part here. A batch of one sample cannot be cut: micro-batches of one row are
 * looked at as if they had two.
 */
#include <string.h>

#include "sema/elab.h"

struct Samples {
  Sema *s;
  const Graph *g;
  Mesh mesh;               /* one axis, one rank per sample */
  int64_t times;           /* rows that are looked at for each that there is */
  const TensorType **type; /* per value; values of copied nodes have those of the first */
  SampleKind *kind;        /* per value; 0 = not looked at */
  ValueId nvalues;         /* there is room for */
  NodeId next;             /* the first node that is not looked at */
  IdMap seen;      /* hash of operator, operands and attributes -> a node that was inferred */
  InferResult out; /* of the node at hand */
};

Samples *block_samples(Sema *s, RunBlock *block) {
  if (block->samples) return block->samples;
  Samples *w = block->samples = ARENA_NEW(s->arena, Samples);
  int64_t batch = block->out->data.len ? block->out->data.data[0].type.shape[0] : 1;
  w->times = batch == 1 && block->out->settings.microbatches > 1 ? 2 : 1;
  batch *= w->times;
  w->s = s;
  w->g = s->at.graph;
  w->next = 1;
  w->mesh =
      (Mesh){.name = "samples", .naxes = 1, .axis = {"sample"}, .size = {batch}, .nranks = batch};
  return w;
}

/* By doubling: the graph grows while it is looked at, extent by extent. */
static void grow(Samples *w) {
  ValueId n = w->g->values.len;
  if (n <= w->nvalues) return;
  if (n < 2 * w->nvalues) n = 2 * w->nvalues;
  w->type = arena_grow(w->s->arena, w->type, w->nvalues * sizeof *w->type, n * sizeof *w->type);
  w->kind = arena_grow(w->s->arena, w->kind, w->nvalues * sizeof *w->kind, n * sizeof *w->kind);
  memset(w->kind + w->nvalues, 0, (n - w->nvalues) * sizeof *w->kind);
  w->nvalues = n;
}

static SampleKind kind_of(const TensorType *t) {
  Place p = t->layout.at[0];
  if (p.kind == PLACE_REPLICATE) return SAMPLES_NONE;
  return p.kind == PLACE_SHARD && p.dim == 0 ? SAMPLES_ROWS : SAMPLES_MIXED;
}

/* Attributes that state the rows, of more of them. */
static const Attr *more_rows(const Samples *w, const Node *n) {
  if (w->times == 1 || (n->op != OP_RESHAPE && n->op != OP_EXPAND)) return n->attrs;
  Attr *attrs = ARENA_ARRAY(w->s->arena, Attr, n->nattrs);
  memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
  for (uint32_t i = 0; i < n->nattrs; i++) {
    if (attrs[i].key != ATTR_SHAPE || !attrs[i].as.ints.len) continue;
    int64_t *shape = ARENA_ARRAY(w->s->arena, int64_t, attrs[i].as.ints.len);
    memcpy(shape, attrs[i].as.ints.data, attrs[i].as.ints.len * sizeof *shape);
    if (shape[0] > 0) shape[0] *= w->times;
    attrs[i].as.ints.data = shape;
  }
  return attrs;
}

/* --- nodes like an earlier one: the layers of a model ask the same again ---- */

static uint64_t likeness(const Samples *w, const Node *n) {
  uint64_t h = ((uint64_t)n->op << 8) + n->noperands;
  for (uint32_t i = 0; i < n->noperands; i++) {
    const TensorType *t = w->type[n->operands[i]];
    h = hash_bytes(t->shape, t->rank * sizeof *t->shape, h + (uint64_t)t->dtype);
    h = hash_bytes(&t->layout.at[0], sizeof t->layout.at[0], h + w->kind[n->operands[i]]);
  }
  return attrs_hash(n->attrs, n->nattrs, h);
}

static bool same_operand(const Samples *w, ValueId a, ValueId b) {
  double x = 0, y = 0;
  if (a == b) return true;
  if (w->kind[a] != w->kind[b] || !type_equal(w->type[a], w->type[b])) return false;
  bool constant = value_const(w->g, a, &x);
  return constant == value_const(w->g, b, &y) && memcmp(&x, &y, sizeof x) == 0;
}

static bool is_like(const Samples *w, const Node *n, const Node *other) {
  if (n->op != other->op || n->noperands != other->noperands || n->nattrs != other->nattrs)
    return false;
  for (uint32_t i = 0; i < n->nattrs; i++)
    if (!attr_equal(&n->attrs[i], &other->attrs[i])) return false;
  for (uint32_t i = 0; i < n->noperands; i++)
    if (!same_operand(w, n->operands[i], other->operands[i])) return false;
  return true;
}

/* Gives the node what an earlier one like it has; false where there is none: it is the one that
 * later ones find. */
static bool look_like(Samples *w, const Node *n) {
  uint64_t key = likeness(w, n);
  for (NodeId id; id_map_get(&w->seen, key, &id); key++) {
    const Node *other = graph_node(w->g, id);
    if (!is_like(w, n, other)) continue;
    for (uint32_t k = 0; k < n->nresults; k++) {
      ValueId v = node_result(n, k), u = node_result(other, k);
      w->kind[v] = w->kind[u];
      if (w->kind[u] != SAMPLES_MIXED || w->type[u]->layout.at[0].kind != PLACE_REPLICATE)
        w->type[v] = w->type[u];
    }
    return true;
  }
  id_map_put(w->s->arena, &w->seen, key, w->g->values.data[n->first_result].node);
  return false;
}

/* As stated by the graph, on the mesh of samples, cut by `dim` (-1: whole). */
static const TensorType *plain_type(Samples *w, ValueId v, int64_t dim) {
  TensorType *t = ARENA_NEW(w->s->arena, TensorType);
  *t = *value_type(w->g, v);
  t->mesh = &w->mesh;
  t->layout = (Layout){0};
  if (dim < 0) return t;
  if (t->rank) t->shape[dim] *= w->times;
  layout_set(&t->layout, &w->mesh, 0, PLACE_SHARD, (uint32_t)dim, REDUCE_NONE);
  return t;
}

/* The types of a node's results on the mesh of samples. */
static void look(Samples *w, const Node *n) {
  const Attr *micro = n->noperands ? NULL : node_attr(n, ATTR_MICRO); /* a part of a whole */
  bool sources = n->op == OP_INPUT || micro,
       passes = n->op == OP_REDISTRIBUTE || n->op == OP_DETACH || n->op == OP_REDISTRIBUTE_ROWS;
  for (uint32_t k = 0; k < n->nresults; k++) {
    ValueId v = node_result(n, k);
    int64_t dim = !sources ? -1 : micro ? micro->as.ints.data[0] : 0;
    w->type[v] = passes ? w->type[n->operands[0]] : plain_type(w, v, dim);
    /* What could not be inferred has no layout that says so. */
    w->kind[v] = passes ? w->kind[n->operands[0]] : kind_of(w->type[v]);
    for (uint32_t i = 1; passes && i < n->noperands; i++) /* how many rows of each sample go */
      if (w->kind[n->operands[i]] == SAMPLES_MIXED) w->kind[v] = SAMPLES_MIXED;
  }
  if (sources || passes || n->noperands == 0) return;
  Operand few[8], *operands = few;
  if (n->noperands > 8) operands = ARENA_ARRAY(w->s->arena, Operand, n->noperands);
  bool depends = false, mixed = n->noperands > INFER_MAX_OPERANDS;
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i].type = *w->type[n->operands[i]];
    operands[i].const_value = 0;
    operands[i].is_const = value_const(w->g, n->operands[i], &operands[i].const_value);
    depends |= w->kind[n->operands[i]] != SAMPLES_NONE;
    mixed |= w->kind[n->operands[i]] == SAMPLES_MIXED &&
             operands[i].type.layout.at[0].kind == PLACE_REPLICATE; /* of an error before */
  }
  if (!depends || (n->nresults && look_like(w, n))) return;
  InferResult *out = &w->out;
  mixed = mixed || !infer_allows(w->s->arena, n->op, operands, n->noperands, more_rows(w, n),
                                 n->nattrs, out);
  for (uint32_t k = 0; k < n->nresults; k++) {
    ValueId v = node_result(n, k);
    if (!mixed) {
      TensorType *t = ARENA_NEW(w->s->arena, TensorType);
      *t = out->results[k];
      w->type[v] = t;
    }
    w->kind[v] = mixed ? SAMPLES_MIXED : kind_of(w->type[v]);
  }
}

SampleKind samples_of(Samples *w, ValueId v) {
  grow(w);
  /* Operands stand before their users: all nodes up to this one. */
  for (; !w->kind[v]; w->next++) {
    const Node *n = graph_node(w->g, w->next);
    if (n->nresults) look(w, n);
  }
  return w->kind[v];
}

bool samples_alike(Samples *w, ValueId a, ValueId b) {
  return samples_of(w, a) == samples_of(w, b) && type_equal(w->type[a], w->type[b]);
}

void samples_copy(Samples *w, ValueId from, const ValueId *copies, uint32_t n, ValueId first) {
  if (!n) return;
  samples_of(w, from + n - 1);
  if (first > 1) samples_of(w, first - 1);
  grow(w);
  for (uint32_t i = 0; i < n; i++) {
    if (copies[i] < first) continue;
    w->kind[copies[i]] = w->kind[from + i];
    w->type[copies[i]] = w->type[from + i];
  }
  w->next = w->g->nodes.len;
}

bool samples_along(Samples *w, ValueId v, int *dim) {
  *dim = -1;
  if (samples_of(w, v) == SAMPLES_NONE) return true;
  Place p = w->type[v]->layout.at[0];
  if (p.kind == PLACE_SHARD) *dim = p.dim;
  return p.kind == PLACE_SHARD;
}

bool samples_count(const Sema *s) {
  const RunBlock *b = s->block;
  return b && b->kind == BLOCK_TRAIN && b->out->settings.microbatches > 1 && b->out->data.len &&
         s->at.graph == b->out->graph;
}

/* Metrics of eval ask for all of its values, those of train in micro-batches for extents too. */
bool samples_asked(const Sema *s) {
  const RunBlock *b = s->block;
  return samples_count(s) ||
         (b && b->kind == BLOCK_EVAL && b->out->data.len && s->at.graph == b->out->graph);
}

Val val_extent(Sema *s, Val tensor, uint32_t d) {
  Val extent = val_int(tensor_type(s, tensor)->shape[d]);
  int dim;
  if (tensor.kind != VAL_TENSOR || !samples_count(s) ||
      !samples_along(block_samples(s, s->block), tensor.as.tensor, &dim) || dim != (int)d)
    return extent;
  return val_in_parts(extent, val_int(extent.as.i * s->block->out->settings.microbatches));
}

Span samples_mixed_at(Samples *w, ValueId v) {
  for (ValueId first = v;;) {
    const Node *n = value_node(w->g, v);
    uint32_t i = 0;
    while (i < n->noperands && samples_of(w, n->operands[i]) != SAMPLES_MIXED) i++;
    if (i == n->noperands) return v == first ? (Span){0} : n->span;
    v = n->operands[i];
  }
}
