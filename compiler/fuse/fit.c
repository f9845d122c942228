/* Does a node fit into a group's domain, and how: its dims, its level, its reductions.
 *
 * Row reductions of a group all reduce the same dims (`inner`), innermost ones or, by lanes.c, any
 * but the innermost, and their results may be used in the group; reductions over rows all reduce
 * the same other dims (`rows`), and their results are complete only after the kernel. */
#include "fuse/internal.h"

/* Iteration dims that must be what an operand under `have` (per root dim) says. */
static bool constrain(const Fuser *f, NodeId id, uint32_t i, const DimMap *have, DimMap *m) {
  const Node *n = graph_node(f->g, id);
  DimMap aligned;
  if (!fuse_aligned(f, id, i, &aligned)) return false;
  const Root *r = &f->root[n->operands[i]];
  for (uint32_t d = 0; d < value_type(f->g, n->operands[i])->rank; d++)
    if (r->dim.at[d] >= 0 && aligned.at[d] >= 0 &&
        !fuse_set_dim(m, (uint32_t)aligned.at[d], have->at[r->dim.at[d]]))
      return false;
  return true;
}

static bool match_operands(Fuser *f, NodeId id, uint32_t group, DimMap *m) {
  const Node *n = graph_node(f->g, id);
  const KGroup *k = &f->groups.data[group];
  for (uint32_t i = 0; i < n->noperands; i++) {
    NodeId def = graph_value(f->g, fuse_source(f, n, i))->node;
    if (fuse_find(f, f->group[def]) == group) {
      if (f->level[def] == LEVEL_TOTAL) return false;
      DimMap have = fuse_result_map(f, def);
      if (!constrain(f, id, i, &have, m)) return false;
    }
  }
  for (uint32_t i = 0; i < n->noperands; i++) {
    const ReadMap *read = fuse_find_read(k, f->root[n->operands[i]].value);
    DimMap wish = *m;
    if (read && constrain(f, id, i, &read->map, &wish)) *m = wish;
  }
  return true;
}

/* Dims no operand tells about go to unused domain dims of the same extent, in order. */
static bool guess_dims(Fuser *f, NodeId id, const KGroup *k, DimMap *m) {
  ValueId it = fuse_iterated(f, id);
  const TensorType *t = value_type(f->g, it);
  uint32_t used = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (m->at[d] >= 0) {
      if (used >> m->at[d] & 1) return false;
      used |= 1u << m->at[d];
    }
  int last = -1;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (m->at[d] == DIM_UNKNOWN) {
      SymId extent = fuse_extent(f, it, d);
      int to = -1;
      for (int pass = 0; pass < 2 && to < 0; pass++)
        for (int x = pass ? 0 : last + 1; x < (int)k->ndims && to < 0; x++)
          if (!(used >> x & 1) && k->extent[x] == extent) to = x;
      if (to < 0) return false;
      m->at[d] = (int8_t)to;
      used |= 1u << to;
    }
    if (m->at[d] >= 0) last = m->at[d];
  }
  return true;
}

bool fuse_is_long(const Fuser *f, const KGroup *k) {
  return k->ndims == 1 && k->max_extent[0] > f->target->vec_block;
}

/* Fits the dims a reduction reduces (as domain bits) into inner and rows. With `lanes` it is a
 * total in no case. */
static bool fit_reduction(const Fuser *f, const KGroup *k, uint32_t reduced, bool lanes, Join *j) {
  uint32_t all = (1u << k->ndims) - 1, last = k->ndims ? 1u << (k->ndims - 1) : 0;
  if (!reduced) return true;
  uint32_t in = 0;
  if (j->inner)
    in = reduced & j->inner;
  else if (reduced & last & ~j->rows) {
    for (uint32_t d = k->ndims; d-- > 0 && (reduced & ~j->rows) >> d & 1;) in |= 1u << d;
    /* A total over everything: the rows run in parallel chunks. */
    if (reduced == all && k->ndims > 1) in = last;
    if (reduced == all && fuse_is_long(f, k)) in = 0; /* pieces of the one dim do */
  } else if (lanes && !j->rows)
    in = reduced;
  uint32_t over = reduced & ~in;
  if (in && j->inner && in != j->inner) return false;
  if (over && j->rows && over != j->rows) return false;
  if (in) j->inner = in;
  if (over) j->rows = over;
  if (over) j->level = LEVEL_TOTAL;
  if (!over) j->level = LEVEL_ROW;
  if (over && (lanes || fuse_has_lanes(k, j->inner))) return false;
  return (j->inner & j->rows) == 0;
}

bool fuse_fit_level(Fuser *f, NodeId id, const KGroup *k, Join *j) {
  const Node *n = graph_node(f->g, id);
  const TensorType *t = fuse_iteration(f, id);
  uint32_t all = (1u << k->ndims) - 1, covered = 0, reduced = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (j->map.at[d] >= 0) covered |= 1u << j->map.at[d];
  if (fuse_is_reduction(n->op)) reduced = fuse_reduced_under(f, id, &j->map);
  uint32_t missing = all & ~covered;
  if (missing && missing != k->inner) return false;
  j->level = missing ? LEVEL_ROW : LEVEL_FULL;
  if (j->level == LEVEL_FULL && reduced)
    return fit_reduction(f, k, reduced, fuse_keeps_lanes(f, id), j);
  if (!reduced) return true;
  /* Rows reduced of a value per row. */
  if ((j->rows && reduced != j->rows) || fuse_has_lanes(k, j->inner)) return false;
  j->rows = reduced;
  j->level = LEVEL_TOTAL;
  return true;
}

uint32_t fuse_again(const Fuser *f, const Node *n) {
  return n->phase == PHASE_RECOMPUTE || n->phase == PHASE_BACKWARD ? f->recomputed[n->scope] : 0;
}

bool fuse_round_fits(uint32_t a, uint32_t b) {
  return a == b || a == 0 || b == 0;
}

bool fuse_fits(Fuser *f, NodeId id, uint32_t group, Join *j) {
  const KGroup *k = &f->groups.data[group];
  const Node *n = graph_node(f->g, id);
  ValueId it = fuse_iterated(f, id);
  const TensorType *t = value_type(f->g, it);
  if (k->nodes.len >= GROUP_MAX_NODES || k->reads.len + n->noperands > GROUP_MAX_READS)
    return false;
  if (k->mesh != t->mesh || k->part != fuse_part(n)) return false;
  if (k->again != fuse_again(f, n) || !fuse_round_fits(k->round, f->round[id])) return false;
  for (uint32_t d = 0; d < t->rank; d++)
    j->map.at[d] = fuse_extent(f, it, d) == SYM_ONE ? DIM_UNIT : DIM_UNKNOWN;
  j->inner = k->inner;
  j->rows = k->rows;
  if (!match_operands(f, id, group, &j->map) || !guess_dims(f, id, k, &j->map)) return false;
  for (uint32_t d = 0; d < t->rank; d++)
    if (j->map.at[d] >= 0 && k->extent[j->map.at[d]] != fuse_extent(f, it, d)) return false;
  return fuse_fit_level(f, id, k, j);
}
