/* Groups that are alike are lowered once: the layers of a model differ in which values they read
 * and write, and in nothing else.
 *
 * A group's description is all that lowering looks at, as a list of words: its domain, and its
 * nodes in order with operator, attributes, types, index maps and where each operand comes from.
 * Values appear by number, counted as the description comes across them. Where two groups have the
 * same description, the calls of the first serve the second with its own values put in.
 */
#include <string.h>

#include "fuse/internal.h"

/* What a description says about a value that appears for the first time. */
enum { SEEN = 1 << 16, COMPUTED = 1 << 17, HOME = 1 << 18, STORED = 1 << 19, COPY = 1 << 20 };

struct Pattern {
  const uint32_t *words;
  uint32_t nwords, first; /* the group that was lowered */
  const uint32_t *codes;  /* of its calls' inputs, outputs and buffers, one after the other */
};

/* A piece of storage in a call that is to be copied. */
enum { CODE_STEP_BLOCK = 0, CODE_TEMPORARY = 1u << 31 }; /* else 1 + number of the value */

static void put(Fuser *f, uint32_t word) {
  VEC_PUSH(f->arena, &f->words, word);
}

static void put_dims(Fuser *f, const DimMap *m, uint32_t rank) {
  uint32_t word[2] = {0, 0};
  memcpy(word, m->at, rank);
  put(f, word[0]);
  if (rank > 4) put(f, word[1]);
}

static bool same_attrs(const Node *a, const Node *b) {
  if (a->nattrs != b->nattrs) return false;
  for (uint32_t i = 0; i < a->nattrs; i++)
    if (!attr_equal(&a->attrs[i], &b->attrs[i])) return false;
  return true;
}

static uint32_t attrs_number(Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  if (!n->nattrs) return 0;
  uint64_t key = attrs_hash(n->attrs, n->nattrs, 0);
  for (uint32_t other; id_map_get(&f->attr_ids, key, &other); key++)
    if (same_attrs(graph_node(f->g, other), n)) return other;
  id_map_put(f->arena, &f->attr_ids, key, id);
  return id;
}

static void describe_value(Fuser *f, ValueId v, uint32_t group);

static void describe_node(Fuser *f, NodeId id, uint32_t group, bool home) {
  const Node *n = graph_node(f->g, id);
  put(f, (uint32_t)n->op | n->noperands << 16);
  put(f, attrs_number(f, id));
  if (home) {
    put(f, f->level[id]);
    put_dims(f, &f->map[id], fuse_iteration(f, id)->rank);
  }
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId v = n->operands[i];
    put(f, f->type_of[v]);
    put_dims(f, &f->root[v].dim, value_type(f->g, v)->rank);
    if (fuse_in_memory(n, i)) describe_value(f, fuse_storage(f, v), group);
    describe_value(f, f->root[v].value, group);
  }
}

static void describe_value(Fuser *f, ValueId v, uint32_t group) {
  uint32_t number = f->number[v]; /* from this description or an earlier one */
  if (number && number <= f->seen.len && f->seen.data[number - 1] == v) {
    put(f, SEEN | number);
    return;
  }
  VEC_PUSH(f->arena, &f->seen, v);
  f->number[v] = f->seen.len;
  NodeId id = graph_value(f->g, v)->node;
  bool home = fuse_in_kernel(f, id) && fuse_find(f, f->group[id]) == group;
  bool computed = home || fuse_computed_in(f, v, group);
  put(f, f->kind[id] | (computed ? COMPUTED : 0) | (home ? HOME : 0) | (f->stored[v] ? STORED : 0) |
             (f->root[v].value != v ? COPY : 0));
  put(f, f->type_of[v]);
  if (computed) describe_node(f, id, group, home);
}

static void describe(Fuser *f, uint32_t group) {
  const KGroup *k = &f->groups.data[group];
  f->words.len = f->seen.len = 0;
  put(f, k->ndims | k->inner << 8 | k->rows << 16);
  for (uint32_t d = 0; d < k->ndims; d++) {
    put(f, k->extent[d]);
    put(f, (uint32_t)k->max_extent[d]);
    put(f, (uint32_t)(k->max_extent[d] >> 32));
  }
  for (uint32_t i = 0; i < k->nodes.len; i++)
    describe_value(f, graph_node(f->g, k->nodes.data[i])->first_result, group);
}

/* --- copying calls ---- */

static uint32_t code_of(Fuser *f, FValueId v) {
  if (!v) return CODE_STEP_BLOCK;
  ValueId value = f->p->values.data[v].value;
  return value ? f->number[value] : CODE_TEMPORARY | v;
}

static void remember(Fuser *f, uint32_t group, uint64_t key) {
  const KGroup *k = &f->groups.data[group];
  Pattern *p = ARENA_NEW(f->arena, Pattern);
  uint32_t *words = ARENA_ARRAY(f->arena, uint32_t, f->words.len), n = 0, at = 0;
  memcpy(words, f->words.data, f->words.len * sizeof *words);
  for (uint32_t i = 0; i < k->made.len; i++) {
    const Group *g = &k->made.data[i];
    n += g->ninputs + g->noutputs + f->p->kernels->kernels.data[g->kernel]->nbufs;
  }
  uint32_t *codes = ARENA_ARRAY(f->arena, uint32_t, n);
  for (uint32_t i = 0; i < k->made.len; i++) {
    const Group *g = &k->made.data[i];
    for (uint32_t j = 0; j < f->p->kernels->kernels.data[g->kernel]->nbufs; j++)
      codes[at++] = code_of(f, g->bufs[j]);
    for (uint32_t j = 0; j < g->ninputs; j++) codes[at++] = code_of(f, g->inputs[j]);
    for (uint32_t j = 0; j < g->noutputs; j++) codes[at++] = code_of(f, g->outputs[j]);
  }
  *p = (Pattern){.words = words, .nwords = f->words.len, .first = group, .codes = codes};
  id_map_put(f->arena, &f->pattern_ids, key, f->patterns.len);
  VEC_PUSH(f->arena, &f->patterns, p);
}

/* Temporaries of the new group: which one stands for which of the first. */
typedef struct Stands {
  FValueId old, new_one;
} Stands;

typedef struct Copier {
  Fuser *f;
  const uint32_t *codes;
  VEC(Stands) temporaries;
} Copier;

static FValueId next_value(Copier *c) {
  Fuser *f = c->f;
  uint32_t code = *c->codes++;
  if (code == CODE_STEP_BLOCK) return 0;
  if (!(code & CODE_TEMPORARY)) return fuse_value(f, f->seen.data[code - 1]);
  FValueId old = code & ~CODE_TEMPORARY;
  for (uint32_t i = 0; i < c->temporaries.len; i++)
    if (c->temporaries.data[i].old == old) return c->temporaries.data[i].new_one;
  VEC_PUSH(f->arena, &f->p->values, f->p->values.data[old]);
  VEC_PUSH(f->arena, &c->temporaries, (Stands){old, f->p->values.len - 1});
  return f->p->values.len - 1;
}

static FValueId *next_values(Copier *c, uint32_t n) {
  FValueId *out = ARENA_ARRAY(c->f->arena, FValueId, n);
  for (uint32_t i = 0; i < n; i++) out[i] = next_value(c);
  return out;
}

/* The node at the place that `old` has in `from`; *at goes on from the last one. */
static NodeId counterpart(const KGroup *from, const KGroup *to, NodeId old, uint32_t *at) {
  while (from->nodes.data[*at] != old) *at = (*at + 1) % from->nodes.len;
  return to->nodes.data[*at];
}

static void copy_calls(Fuser *f, uint32_t group, const Pattern *p) {
  KGroup *to = &f->groups.data[group];
  const KGroup *from = &f->groups.data[p->first];
  Copier c = {.f = f, .codes = p->codes};
  for (uint32_t i = 0; i < from->made.len; i++) {
    Group g = from->made.data[i];
    uint32_t at = 0;
    NodeId *nodes = ARENA_ARRAY(f->arena, NodeId, g.nnodes);
    for (uint32_t j = 0; j < g.nnodes; j++) nodes[j] = counterpart(from, to, g.nodes[j], &at);
    g.nodes = nodes;
    g.node = counterpart(from, to, g.node, &at);
    g.bufs = next_values(&c, f->p->kernels->kernels.data[g.kernel]->nbufs);
    g.inputs = next_values(&c, g.ninputs);
    g.outputs = next_values(&c, g.noutputs);
    VEC_PUSH(f->arena, &to->made, g);
  }
}

static void lower(Fuser *f, uint32_t group) {
  if (f->options->apart) {
    fuse_lower_group(f, group);
    return;
  }
  describe(f, group);
  size_t bytes = f->words.len * sizeof *f->words.data;
  uint64_t key = hash_bytes(f->words.data, bytes, 0);
  for (uint32_t i; id_map_get(&f->pattern_ids, key, &i); key++) {
    const Pattern *p = f->patterns.data[i];
    if (p->nwords != f->words.len || memcmp(p->words, f->words.data, bytes) != 0) continue;
    copy_calls(f, group, p);
    return;
  }
  fuse_lower_group(f, group);
  remember(f, group, key);
}

void fuse_lower(Fuser *f) {
  f->number = ARENA_ARRAY(f->arena, uint32_t, f->g->values.len);
  for (uint32_t i = 1; i < f->groups.len; i++)
    if (!f->groups.data[i].merged) lower(f, i);
}
