/* Merging groups that meet in a node: their domains are matched through the value that joins them,
 * and what either reads of the other must be what that computes at the same place. */
#include "fuse/internal.h"

/* Domain dims of b -> of a, from the maps of the value that joins them. */
static bool domain_map(const KGroup *a, const KGroup *b, const DimMap *in_a, const DimMap *in_b,
                       uint32_t rank, DimMap *out, bool *per_row) {
  uint32_t used = 0;
  for (uint32_t d = 0; d < b->ndims; d++) out->at[d] = DIM_UNKNOWN;
  for (uint32_t d = 0; d < rank; d++) {
    if (in_b->at[d] < 0) continue;
    if (in_a->at[d] < 0 || !fuse_set_dim(out, (uint32_t)in_b->at[d], in_a->at[d])) return false;
  }
  for (uint32_t d = 0; d < b->ndims; d++) {
    if (out->at[d] < 0) continue;
    if (used >> out->at[d] & 1) return false;
    used |= 1u << out->at[d];
  }
  /* Dims that the value lost in a reduction: unused ones of the same extent, in order. */
  for (uint32_t d = 0; d < b->ndims; d++) {
    for (uint32_t x = 0; x < a->ndims && out->at[d] < 0; x++)
      if (!(used >> x & 1) && a->extent[x] == b->extent[d]) out->at[d] = (int8_t)x;
    if (out->at[d] < 0 || a->extent[out->at[d]] != b->extent[d]) return false;
    used |= 1u << out->at[d];
  }
  uint32_t missing = ((1u << a->ndims) - 1) & ~used;
  *per_row = missing != 0;
  return !missing || (missing == a->inner && !b->inner && !b->rows);
}

static uint32_t map_bits(uint32_t bits, const DimMap *m, uint32_t n) {
  uint32_t out = 0;
  for (uint32_t d = 0; d < n; d++)
    if (bits >> d & 1) out |= 1u << m->at[d];
  return out;
}

static void remap(DimMap *m, uint32_t rank, const DimMap *to) {
  for (uint32_t d = 0; d < rank; d++)
    if (m->at[d] >= 0) m->at[d] = to->at[m->at[d]];
}

static bool same_map(const DimMap *x, const DimMap *y, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++)
    if (x->at[d] != y->at[d]) return false;
  return true;
}

/* What nodes of `reader` read of `maker` must be what `maker` computes at that place of the domain.
 * `read_to`, `made_to`: dims of either group -> of the merged one; NULL = the same. */
static bool reads_agree(Fuser *f, uint32_t reader, uint32_t maker, const DimMap *read_to,
                        const DimMap *made_to) {
  const KGroup *k = &f->groups.data[reader];
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    NodeId id = k->nodes.data[i];
    for (uint32_t j = 0; j < graph_node(f->g, id)->noperands; j++) {
      ValueId r = fuse_source(f, graph_node(f->g, id), j);
      NodeId def = graph_value(f->g, r)->node;
      Root root;
      DimMap read, made;
      if (fuse_find(f, f->group[def]) != maker) continue;
      if (f->level[def] == LEVEL_TOTAL || !fuse_operand_map(f, id, j, &f->map[id], &root, &read))
        return false;
      uint32_t rank = value_type(f->g, r)->rank;
      made = fuse_result_map(f, def);
      if (read_to) remap(&read, rank, read_to);
      if (made_to) remap(&made, rank, made_to);
      if (!same_map(&read, &made, rank)) return false;
    }
  }
  return true;
}

static void merge(Fuser *f, uint32_t into, uint32_t from, const DimMap *to, bool per_row) {
  KGroup *a = &f->groups.data[into], *b = &f->groups.data[from];
  a->inner |= map_bits(b->inner, to, b->ndims);
  a->rows |= map_bits(b->rows, to, b->ndims);
  b->merged = into;
  if (!a->round) a->round = b->round;
  for (uint32_t i = 0; i < b->nodes.len; i++) {
    NodeId id = b->nodes.data[i];
    remap(&f->map[id], fuse_iteration(f, id)->rank, to);
    if (per_row) f->level[id] = LEVEL_ROW;
    f->group[id] = into;
    uint32_t at = a->nodes.len;
    VEC_PUSH(f->arena, &a->nodes, id);
    for (; at > 0 && a->nodes.data[at - 1] > id; at--) a->nodes.data[at] = a->nodes.data[at - 1];
    a->nodes.data[at] = id;
  }
  for (uint32_t i = 0; i < b->reads.len; i++) {
    ReadMap r = b->reads.data[i];
    remap(&r.map, value_type(f->g, r.value)->rank, to);
    if (f->reader[r.value] == from) f->reader[r.value] = into;
    if (!fuse_find_read(a, r.value)) VEC_PUSH(f->arena, &a->reads, r);
  }
}

/* After `id` joined `group`: takes in the groups that made or read its other operands. */
void fuse_pull_in(Fuser *f, NodeId id, uint32_t group) {
  const Node *n = graph_node(f->g, id);
  for (uint32_t i = 0; i < n->noperands; i++) {
    Root root;
    DimMap in_a, to;
    bool per_row;
    NodeId def = graph_value(f->g, f->root[n->operands[i]].value)->node;
    uint32_t other = fuse_find(f, f->group[def]);
    if (!other || other == group || f->level[def] == LEVEL_TOTAL) continue;
    if (!fuse_operand_map(f, id, i, &f->map[id], &root, &in_a)) continue;
    const KGroup *a = &f->groups.data[group], *b = &f->groups.data[other];
    if (a->mesh != b->mesh || a->part != b->part || a->again != b->again ||
        !fuse_round_fits(a->round, b->round) || a->nodes.len + b->nodes.len > GROUP_MAX_NODES ||
        a->reads.len + b->reads.len > GROUP_MAX_READS)
      continue;
    DimMap in_b = fuse_result_map(f, def);
    if (!domain_map(a, b, &in_a, &in_b, value_type(f->g, root.value)->rank, &to, &per_row))
      continue;
    uint32_t inner = map_bits(b->inner, &to, b->ndims), rows = map_bits(b->rows, &to, b->ndims);
    if ((inner && a->inner && inner != a->inner) || (rows && a->rows && rows != a->rows)) continue;
    if ((inner | a->inner) & (rows | a->rows)) continue;
    if (fuse_has_lanes(a, inner | a->inner) && (rows | a->rows)) continue;
    if (!reads_agree(f, group, other, NULL, &to) || !reads_agree(f, other, group, &to, NULL))
      continue;
    if (!fuse_waits_unite(f, group, other)) continue;
    merge(f, group, other, &to, per_row);
  }
}
