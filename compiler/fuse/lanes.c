/* Which reductions over another dim than the innermost stay in the kernel that goes on with them.
 *
 * A sum over the leading rows of a tensor is best done in chunks of rows, in parallel, and is
 * complete only after the kernel. Where its result comes back to the elements it was made of
 * (softmax along any dim, x - mean, the norms and gradients of these), that costs a pass over the
 * memory for every reduction; then each column is reduced on its own (`lanes` in kernel.h), and one
 * kernel does it all. */
#include "fuse/internal.h"

enum { WALK_LIMIT = 24 };

typedef struct Walk {
  Fuser *f;
  NodeId from; /* the reduction */
  SymId full;  /* elements it reduces */
  ValueId seen[WALK_LIMIT];
  uint32_t n;
} Walk;

static bool contains(const Walk *w, ValueId v) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->seen[i] == v) return true;
  return false;
}

static void visit(Walk *w, ValueId v) {
  if (w->n < WALK_LIMIT && !contains(w, v)) w->seen[w->n++] = v;
}

static bool is_computed(const Walk *w, NodeId id) {
  const Fuser *f = w->f;
  return f->kind[id] == NODE_KERNEL && !fuse_is_reduction(graph_node(f->g, id)->op) &&
         graph_node(f->g, id)->phase == graph_node(f->g, w->from)->phase;
}

/* The values of full size that the reduction is made of, as far as kernels compute them, and what
 * these read. */
static void find_sources(Walk *w) {
  Fuser *f = w->f;
  visit(w, f->root[graph_node(f->g, w->from)->operands[0]].value);
  for (uint32_t at = 0; at < w->n; at++) {
    NodeId id = graph_value(f->g, w->seen[at])->node;
    if (!is_computed(w, id)) continue;
    for (uint32_t i = 0; i < graph_node(f->g, id)->noperands; i++) {
      ValueId v = f->root[graph_node(f->g, id)->operands[i]].value;
      if (fuse_local_count(f, v) == w->full) visit(w, v);
    }
  }
}

/* Is the result, or what is computed of it, combined with one of the sources? */
static bool comes_back(Walk *w, const Walk *sources) {
  Fuser *f = w->f;
  ValueId result = graph_node(f->g, w->from)->first_result;
  SymId few = fuse_local_count(f, result);
  visit(w, result);
  for (uint32_t at = 0; at < w->n; at++) {
    ValueId v = w->seen[at];
    for (uint32_t u = f->first_user[v]; u < f->first_user[v + 1]; u++) {
      NodeId id = f->users[u];
      const Node *n = graph_node(f->g, id);
      if (!is_computed(w, id)) continue;
      SymId count = fuse_local_count(f, n->first_result);
      if (count != few && count != w->full) continue;
      for (uint32_t i = 0; count == w->full && i < n->noperands; i++)
        if (contains(sources, f->root[n->operands[i]].value)) return true;
      visit(w, n->first_result);
    }
  }
  return false;
}

static bool find_lanes(Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  ValueId x = n->operands[0];
  const TensorType *t = value_type(f->g, x);
  uint32_t reduced = fuse_reduced(n, t), many = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (fuse_extent(f, x, d) != SYM_ONE) many |= 1u << d;
  reduced &= many;
  if (!reduced || reduced > (many & ~reduced)) return false; /* the innermost dim is reduced */
  Walk sources = {.f = f, .from = id, .full = fuse_local_count(f, x)}, w = sources;
  find_sources(&sources);
  return comes_back(&w, &sources);
}

bool fuse_keeps_lanes(Fuser *f, NodeId id) {
  enum { NOT_ASKED = 0, NO, YES };
  if (f->lanes[id] == NOT_ASKED) f->lanes[id] = find_lanes(f, id) ? YES : NO;
  return f->lanes[id] == YES;
}

bool fuse_has_lanes(const KGroup *k, uint32_t inner) {
  return inner && !(inner >> (k->ndims - 1) & 1);
}
