/* What waits for what: an order of everything that will run, kept while groups grow.
 *
 * A vertex is a group, or a node that runs alone (a contraction with what it absorbed counts as
 * one). Vertices stand in a list in which each comes after all it waits for. A node that joins a
 * group makes the group wait for the node's operands; that is a circle exactly when one of these
 * waits, perhaps through others, for the group. All that could stands between the two in the list:
 * the search goes back from the operands and leaves out what stands before the group. When it does
 * not meet the group, what it found is what must now come before it, and is moved there. (Dynamic
 * topological order: Pearce and Kelly, 2006; positions are labels with gaps, as in order
 * maintenance.)
 *
 * A search that has seen many nodes gives up and answers yes: no join, never a circle.
 */
#include <stdlib.h>

#include "fuse/internal.h"

enum { SEARCH_LIMIT = 256 };
static const uint64_t label_gap = (uint64_t)1 << 40;

/* 0: nothing to wait for; it is computed wherever it is used. */
static NodeId vertex_of(Fuser *f, NodeId id) {
  uint32_t group = fuse_find(f, f->group[id]);
  if (group) return f->groups.data[group].vertex;
  if (f->kind[id] == NODE_ABSORBED) return f->absorbed[id].by;
  return f->kind[id] == NODE_FREE ? 0 : id;
}

/* The node whose result a node reads as operand i: kernels look through aliases and turns. */
static NodeId awaited(const Fuser *f, NodeId id, uint32_t i) {
  ValueId v = graph_node(f->g, id)->operands[i];
  bool through = f->kind[id] == NODE_KERNEL && !fuse_in_memory(graph_node(f->g, id), i);
  return graph_value(f->g, through ? f->root[v].value : fuse_storage(f, v))->node;
}

/* --- the list ---- */

static void insert_before(Fuser *f, NodeId v, NodeId next) {
  NodeId before = f->vertex[next].before;
  f->vertex[v].before = before;
  f->vertex[v].after = next;
  f->vertex[before].after = f->vertex[next].before = v;
}

static void remove_vertex(Fuser *f, NodeId v) {
  f->vertex[f->vertex[v].before].after = f->vertex[v].after;
  f->vertex[f->vertex[v].after].before = f->vertex[v].before;
}

void fuse_waits_add(Fuser *f, NodeId v) {
  f->vertex[v].label = f->vertex[f->vertex[0].before].label + label_gap;
  insert_before(f, v, 0); /* 0 is both ends of the list */
}

static void label_anew(Fuser *f) {
  uint64_t label = 0;
  for (NodeId v = f->vertex[0].after; v; v = f->vertex[v].after)
    f->vertex[v].label = label += label_gap;
}

static int by_label(const void *a, const void *b) {
  uint64_t x = ((const FoundVertex *)a)->label, y = ((const FoundVertex *)b)->label;
  return (x > y) - (x < y);
}

/* Puts what the last search found before `target`, in the order it has. */
static void move_found(Fuser *f, NodeId target) {
  uint32_t n = f->marked.len;
  if (!n) return;
  f->found.len = 0;
  for (uint32_t i = 0; i < n; i++) {
    NodeId v = f->marked.data[i];
    VEC_PUSH(f->arena, &f->found, (FoundVertex){f->vertex[v].label, v});
  }
  FoundVertex *found = f->found.data;
  qsort(found, n, sizeof *found, by_label);
  uint64_t low = f->vertex[f->vertex[target].before].label, high = f->vertex[target].label;
  uint64_t step = (high - low) / (n + 1);
  for (uint32_t i = 0; i < n; i++) {
    remove_vertex(f, found[i].vertex);
    insert_before(f, found[i].vertex, target);
    f->vertex[found[i].vertex].label = low + step * (i + 1);
  }
  if (!step) label_anew(f);
}

/* --- the search ---- */

typedef struct Search {
  NodeId target, own; /* own: the vertex that is to be one with the target; 0 = not yet one */
  uint32_t budget;    /* nodes it may still look at */
  bool reached;
} Search;

static void look_at(Fuser *f, Search *s, NodeId v) {
  if (v == s->target) s->reached = true;
  if (v == s->own || f->mark[v] || f->vertex[v].label <= f->vertex[s->target].label) return;
  f->mark[v] = 1;
  VEC_PUSH(f->arena, &f->marked, v);
}

/* What a node waits for; `direct`: what waits for the target without anything between. */
static void look_back(Fuser *f, Search *s, NodeId id, bool direct) {
  const Node *n = graph_node(f->g, id);
  if (s->budget) s->budget--;
  for (uint32_t i = 0; i < n->noperands; i++) {
    NodeId v = vertex_of(f, awaited(f, id, i));
    if (!direct || v != s->target) look_at(f, s, v);
  }
  if (f->kind[id] != NODE_CONTRACT || !f->absorbed[id].addend) return;
  look_at(f, s, vertex_of(f, graph_value(f->g, fuse_storage(f, f->absorbed[id].addend))->node));
}

/* Goes on from what was looked at; f->marked is then all of it. */
static bool search(Fuser *f, Search *s) {
  for (uint32_t at = 0; at < f->marked.len && !s->reached && s->budget; at++) {
    NodeId v = f->marked.data[at];
    uint32_t group = fuse_find(f, f->group[v]);
    const KGroup *k = &f->groups.data[group];
    if (!group) look_back(f, s, v, false);
    for (uint32_t i = 0; group && i < k->nodes.len; i++) look_back(f, s, k->nodes.data[i], false);
  }
  return s->reached || !s->budget;
}

static void search_done(Fuser *f) {
  for (uint32_t i = 0; i < f->marked.len; i++) f->mark[f->marked.data[i]] = 0;
  f->marked.len = 0;
}

static bool makes_circle(Fuser *f, NodeId id, NodeId target) {
  Search s = {.target = target, .budget = SEARCH_LIMIT};
  look_back(f, &s, id, true);
  return search(f, &s);
}

bool fuse_waits_allows(Fuser *f, NodeId id, uint32_t group) {
  bool circle = makes_circle(f, id, f->groups.data[group].vertex);
  search_done(f);
  return !circle;
}

void fuse_waits_join(Fuser *f, NodeId id, uint32_t group) {
  NodeId target = f->groups.data[group].vertex;
  makes_circle(f, id, target);
  move_found(f, target);
  search_done(f);
}

void fuse_waits_absorbed(Fuser *f, NodeId id) {
  NodeId target = f->absorbed[id].by;
  Search s = {.target = target, .budget = UINT32_MAX};
  look_back(f, &s, target, false);
  search(f, &s);
  move_found(f, target);
  search_done(f);
}

bool fuse_waits_unite(Fuser *f, uint32_t a, uint32_t b) {
  NodeId low = f->groups.data[a].vertex, high = f->groups.data[b].vertex;
  const KGroup *k = &f->groups.data[b];
  if (f->vertex[low].label > f->vertex[high].label) {
    NodeId swap = low;
    low = high;
    high = swap;
    k = &f->groups.data[a];
  }
  Search s = {.target = low, .own = high, .budget = SEARCH_LIMIT};
  for (uint32_t i = 0; i < k->nodes.len; i++) look_back(f, &s, k->nodes.data[i], true);
  bool circle = search(f, &s);
  if (!circle) {
    move_found(f, low);
    remove_vertex(f, high);
    f->groups.data[a].vertex = f->groups.data[b].vertex = low;
  }
  search_done(f);
  return !circle;
}
