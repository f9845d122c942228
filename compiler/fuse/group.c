/* Which kernel a node belongs to.
 *
 * A group has a domain: the dims its kernel iterates over. Every node of it iterates over the whole
 * domain, over all but the inner dims (a value per row), or is a reduction between these. Nodes are
 * taken in order; each joins the group that made or read the largest of its operands, when dims,
 * reductions and dependences allow, and pulls in the groups of its other operands. Greedy: what is
 * saved is the traffic of the shared operand, and a join never adds traffic.
 *
 * Reductions of a group: row reductions all reduce the same dims (`inner`), innermost ones, and
 * their results may be used in the group; reductions over rows all reduce the same other dims
 * (`rows`), and their results are complete only after the kernel.
 *
 * A join must not make a cycle: no path from the group to the node through another group. The
 * search for one goes backwards from the node's operands and gives up (no join) after a fixed
 * number of nodes, which keeps the pass linear.
 */
#include "fuse/internal.h"

enum { GROUP_MAX_NODES = 48, GROUP_MAX_READS = 24, SEARCH_LIMIT = 256, READER_WINDOW = 400 };

bool fuse_is_reduction(Op op) {
  return op_info(op)->cls == CLASS_REDUCTION;
}

const TensorType *fuse_iteration(const Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  return value_type(f->g, fuse_is_reduction(n->op) ? n->operands[0] : n->first_result);
}

bool fuse_aligned(const Fuser *f, NodeId id, uint32_t i, DimMap *out) {
  const Node *n = graph_node(f->g, id);
  const TensorType *it = fuse_iteration(f, id), *t = value_type(f->g, n->operands[i]);
  const OpInfo *info = op_info(n->op);
  for (uint32_t d = 0; d < t->rank; d++) out->at[d] = (int8_t)d;
  if (info->cls == CLASS_REDUCTION || info->cls == CLASS_RANDOM) return true;
  if (info->cls == CLASS_POINTWISE || n->op == OP_EXPAND) {
    for (uint32_t d = 0; d < t->rank; d++)
      out->at[d] = t->shape[d] == 1 ? DIM_UNIT : (int8_t)(d + it->rank - t->rank);
    return true;
  }
  if (n->op == OP_PERMUTE) {
    const int64_t *dims = node_attr(n, ATTR_DIMS)->as.ints.data;
    for (uint32_t d = 0; d < it->rank; d++) out->at[dims[d]] = (int8_t)d;
    return true;
  }
  if (n->op == OP_INDEX_SELECT && i == 1) {
    out->at[0] = (int8_t)node_int(n, ATTR_DIM, 0);
    return true;
  }
  return n->op == OP_TRIL || n->op == OP_TRIU || n->op == OP_ONE_HOT ||
         (n->op == OP_EMBEDDING && i == 0) || (n->op == OP_GATHER && i == 1);
}

uint32_t fuse_reduced(const Node *n, const TensorType *t) {
  const Attr *a = node_attr(n, ATTR_DIMS);
  uint32_t bits = 0;
  if (!a || a->as.ints.len == 0) return (1u << t->rank) - 1;
  for (uint32_t i = 0; i < a->as.ints.len; i++) {
    int64_t d = a->as.ints.data[i];
    bits |= 1u << (d < 0 ? d + t->rank : d);
  }
  return bits;
}

static uint32_t reduced_domain(const Fuser *f, NodeId id, const DimMap *map) {
  const TensorType *t = fuse_iteration(f, id);
  uint32_t bits = fuse_reduced(graph_node(f->g, id), t), domain = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (bits >> d & 1 && map->at[d] >= 0) domain |= 1u << map->at[d];
  return domain;
}

uint32_t fuse_reduced_domain(const Fuser *f, NodeId id) {
  return reduced_domain(f, id, &f->map[id]);
}

uint32_t fuse_find(Fuser *f, uint32_t group) {
  while (group && f->groups.data[group].merged) group = f->groups.data[group].merged;
  return group;
}

/* Maps a node's operand root under the node's map. False when it is read at other indices. */
static bool operand_map(const Fuser *f, NodeId id, uint32_t i, const DimMap *node, Root *root,
                        DimMap *out) {
  const Node *n = graph_node(f->g, id);
  DimMap aligned;
  *root = f->root[n->operands[i]];
  uint32_t rank = value_type(f->g, root->value)->rank;
  for (uint32_t d = 0; d < rank; d++) out->at[d] = DIM_UNIT;
  if (!fuse_aligned(f, id, i, &aligned)) return false;
  for (uint32_t d = 0; d < value_type(f->g, n->operands[i])->rank; d++)
    if (root->dim.at[d] >= 0 && aligned.at[d] >= 0)
      out->at[root->dim.at[d]] = node->at[aligned.at[d]];
  return true;
}

/* Its node's map, without the dims a reduction took. */
DimMap fuse_result_map(const Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  DimMap m = f->map[id], out;
  if (!fuse_is_reduction(n->op)) return m;
  const TensorType *t = fuse_iteration(f, id), *r = value_type(f->g, n->first_result);
  uint32_t bits = fuse_reduced(n, t), at = 0;
  bool keep = r->rank == t->rank;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (!(bits >> d & 1))
      out.at[at++] = m.at[d];
    else if (keep)
      out.at[at++] = DIM_UNIT;
  }
  return out;
}

/* --- cycles ---- */

static void search_done(Fuser *f) {
  for (uint32_t i = 0; i < f->marked.len; i++) f->mark[f->marked.data[i]] = 0;
  f->marked.len = f->stack.len = 0;
}

/* What is older than the target cannot wait for it, unless its group has younger nodes. */
static void search_push(Fuser *f, ValueId v, NodeId floor) {
  NodeId n = graph_value(f->g, v)->node, last = n;
  uint32_t group = fuse_find(f, f->group[n]);
  if (group) last = f->groups.data[group].nodes.data[f->groups.data[group].nodes.len - 1];
  if (last < floor || f->mark[n]) return;
  f->mark[n] = 1;
  VEC_PUSH(f->arena, &f->marked, n);
  VEC_PUSH(f->arena, &f->stack, n);
}

static void push_operands(Fuser *f, NodeId id, NodeId floor) {
  const Node *n = graph_node(f->g, id);
  for (uint32_t i = 0; i < n->noperands; i++) search_push(f, n->operands[i], floor);
}

/* A path from `target` through another node to what is on the stack; or too far to tell. Entering a
 * group means entering all of it. */
static bool search_reaches(Fuser *f, uint32_t target, uint32_t own) {
  NodeId floor = f->groups.data[target].nodes.data[0];
  bool found = false;
  while (f->stack.len && !found) {
    NodeId id = f->stack.data[--f->stack.len];
    uint32_t group = fuse_find(f, f->group[id]);
    if (group == target || f->marked.len > SEARCH_LIMIT) found = true;
    if (!group || group == own) {
      push_operands(f, id, floor);
      continue;
    }
    const KGroup *k = &f->groups.data[group];
    for (uint32_t i = 0; i < k->nodes.len && !found; i++) {
      f->mark[k->nodes.data[i]] = 1;
      VEC_PUSH(f->arena, &f->marked, k->nodes.data[i]);
      push_operands(f, k->nodes.data[i], floor);
    }
  }
  search_done(f);
  return found;
}

/* Would the node, within `target`, wait for something that waits for the group? */
static bool node_makes_cycle(Fuser *f, NodeId id, uint32_t target) {
  const Node *n = graph_node(f->g, id);
  NodeId floor = f->groups.data[target].nodes.data[0];
  for (uint32_t i = 0; i < n->noperands; i++) {
    NodeId def = graph_value(f->g, n->operands[i])->node;
    if (fuse_find(f, f->group[def]) == target) continue;
    /* Looking through an alias or a turn into the group is no path. */
    NodeId through = graph_value(f->g, f->root[n->operands[i]].value)->node;
    if (f->kind[def] != NODE_KERNEL && fuse_find(f, f->group[through]) == target) continue;
    search_push(f, n->operands[i], floor);
  }
  return search_reaches(f, target, 0);
}

/* Does group b wait, through others, for group a? */
static bool group_waits(Fuser *f, uint32_t b, uint32_t a) {
  const KGroup *k = &f->groups.data[b];
  NodeId floor = f->groups.data[a].nodes.data[0];
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    const Node *n = graph_node(f->g, k->nodes.data[i]);
    for (uint32_t j = 0; j < n->noperands; j++) {
      ValueId r = f->root[n->operands[j]].value;
      uint32_t group = fuse_find(f, f->group[graph_value(f->g, r)->node]);
      if (group == a || group == b) continue;
      search_push(f, n->operands[j], floor);
    }
  }
  return search_reaches(f, a, b);
}

/* --- joining ---- */

typedef struct Join {
  DimMap map;
  Level level;
  uint32_t inner, rows; /* of the group afterwards */
} Join;

static bool set_dim(DimMap *m, uint32_t d, int8_t to) {
  if (m->at[d] != DIM_UNKNOWN && m->at[d] != to) return false;
  m->at[d] = to;
  return true;
}

/* Iteration dims that must be what an operand under `have` (per root dim) says. */
static bool constrain(const Fuser *f, NodeId id, uint32_t i, const DimMap *have, DimMap *m) {
  const Node *n = graph_node(f->g, id);
  DimMap aligned;
  if (!fuse_aligned(f, id, i, &aligned)) return false;
  const Root *r = &f->root[n->operands[i]];
  for (uint32_t d = 0; d < value_type(f->g, n->operands[i])->rank; d++)
    if (r->dim.at[d] >= 0 && aligned.at[d] >= 0 &&
        !set_dim(m, (uint32_t)aligned.at[d], have->at[r->dim.at[d]]))
      return false;
  return true;
}

static const ReadMap *find_read(const KGroup *k, ValueId v) {
  for (uint32_t i = 0; i < k->reads.len; i++)
    if (k->reads.data[i].value == v) return &k->reads.data[i];
  return NULL;
}

static bool match_operands(Fuser *f, NodeId id, uint32_t group, DimMap *m) {
  const Node *n = graph_node(f->g, id);
  const KGroup *k = &f->groups.data[group];
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId r = f->root[n->operands[i]].value;
    NodeId def = graph_value(f->g, r)->node;
    if (fuse_find(f, f->group[def]) == group) {
      if (f->level[def] == LEVEL_TOTAL) return false;
      DimMap have = fuse_result_map(f, def);
      if (!constrain(f, id, i, &have, m)) return false;
    }
  }
  for (uint32_t i = 0; i < n->noperands; i++) {
    const ReadMap *read = find_read(k, f->root[n->operands[i]].value);
    DimMap wish = *m;
    if (read && constrain(f, id, i, &read->map, &wish)) *m = wish;
  }
  return true;
}

/* Dims no operand tells about go to unused domain dims of the same extent, in order. */
static bool guess_dims(const Fuser *f, NodeId id, const KGroup *k, DimMap *m) {
  const TensorType *t = fuse_iteration(f, id);
  uint32_t used = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (m->at[d] >= 0) {
      if (used >> m->at[d] & 1) return false;
      used |= 1u << m->at[d];
    }
  int last = -1;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (m->at[d] == DIM_UNKNOWN) {
      SymId extent = sym_extent(f->arena, f->p, t, d);
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

/* Fits the dims a reduction reduces (as domain bits) into inner and rows. */
static bool fit_reduction(const KGroup *k, uint32_t reduced, Join *j) {
  uint32_t all = (1u << k->ndims) - 1, last = k->ndims ? 1u << (k->ndims - 1) : 0;
  if (!reduced) return true;
  uint32_t in = 0;
  if (j->inner)
    in = reduced & j->inner;
  else if (reduced & last & ~j->rows) {
    for (uint32_t d = k->ndims; d-- > 0 && (reduced & ~j->rows) >> d & 1;) in |= 1u << d;
    /* A total over everything: the rows run in parallel chunks. */
    if (reduced == all && k->ndims > 1) in = last;
  }
  uint32_t over = reduced & ~in;
  if (in && j->inner && in != j->inner) return false;
  if (over && j->rows && over != j->rows) return false;
  if (in) j->inner = in;
  if (over) j->rows = over;
  if (over) j->level = LEVEL_TOTAL;
  if (!over) j->level = LEVEL_ROW;
  return (j->inner & j->rows) == 0;
}

static bool check_level(const Fuser *f, NodeId id, const KGroup *k, Join *j) {
  const Node *n = graph_node(f->g, id);
  const TensorType *t = fuse_iteration(f, id);
  uint32_t all = (1u << k->ndims) - 1, covered = 0, reduced = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (j->map.at[d] >= 0) covered |= 1u << j->map.at[d];
  if (fuse_is_reduction(n->op)) reduced = reduced_domain(f, id, &j->map);
  uint32_t missing = all & ~covered;
  if (missing && missing != k->inner) return false;
  j->level = missing ? LEVEL_ROW : LEVEL_FULL;
  if (j->level == LEVEL_FULL && reduced) return fit_reduction(k, reduced, j);
  if (!reduced) return true;
  /* Rows reduced of a value per row. */
  if (j->rows && reduced != j->rows) return false;
  j->rows = reduced;
  j->level = LEVEL_TOTAL;
  return true;
}

static bool try_join(Fuser *f, NodeId id, uint32_t group, Join *j) {
  const KGroup *k = &f->groups.data[group];
  const Node *n = graph_node(f->g, id);
  const TensorType *t = fuse_iteration(f, id);
  if (k->nodes.len >= GROUP_MAX_NODES || k->reads.len + n->noperands > GROUP_MAX_READS)
    return false;
  if (k->looped != (n->phase <= PHASE_BACKWARD)) return false;
  for (uint32_t d = 0; d < t->rank; d++)
    j->map.at[d] = sym_extent(f->arena, f->p, t, d) == SYM_ONE ? DIM_UNIT : DIM_UNKNOWN;
  j->inner = k->inner;
  j->rows = k->rows;
  if (!match_operands(f, id, group, &j->map) || !guess_dims(f, id, k, &j->map)) return false;
  for (uint32_t d = 0; d < t->rank; d++)
    if (j->map.at[d] >= 0 && k->extent[j->map.at[d]] != sym_extent(f->arena, f->p, t, d))
      return false;
  return check_level(f, id, k, j) && !node_makes_cycle(f, id, group);
}

static void add_node(Fuser *f, NodeId id, uint32_t group, const Join *j) {
  KGroup *k = &f->groups.data[group];
  const Node *n = graph_node(f->g, id);
  VEC_PUSH(f->arena, &k->nodes, id);
  k->inner = j->inner;
  k->rows = j->rows;
  f->group[id] = group;
  f->map[id] = j->map;
  f->level[id] = (uint8_t)j->level;
  for (uint32_t i = 0; i < n->noperands; i++) {
    ReadMap read;
    Root root;
    if (!operand_map(f, id, i, &j->map, &root, &read.map)) continue;
    read.value = root.value;
    NodeId def = graph_value(f->g, root.value)->node;
    if (fuse_find(f, f->group[def]) == group || f->kind[def] == NODE_FREE) continue;
    if (find_read(k, root.value)) continue;
    VEC_PUSH(f->arena, &k->reads, read);
    f->reader[root.value] = group;
  }
}

static uint32_t new_group(Fuser *f, NodeId id, Join *j) {
  const TensorType *t = fuse_iteration(f, id);
  KGroup k = {.looped = graph_node(f->g, id)->phase <= PHASE_BACKWARD};
  int64_t most[DTM_MAX_DIMS];
  type_local_max(t, most);
  for (uint32_t d = 0; d < t->rank; d++) {
    SymId extent = sym_extent(f->arena, f->p, t, d);
    j->map.at[d] = DIM_UNIT;
    if (extent == SYM_ONE) continue;
    k.extent[k.ndims] = extent;
    k.max_extent[k.ndims] = most[d];
    j->map.at[d] = (int8_t)k.ndims++;
  }
  j->inner = j->rows = 0;
  check_level(f, id, &k, j);
  VEC_PUSH(f->arena, &f->groups, k);
  return f->groups.len - 1;
}

/* --- merging groups that meet in a node ---- */

/* Domain dims of b -> of a, from the maps of the value that joins them. */
static bool domain_map(const KGroup *a, const KGroup *b, const DimMap *in_a, const DimMap *in_b,
                       uint32_t rank, DimMap *out, bool *per_row) {
  uint32_t used = 0;
  for (uint32_t d = 0; d < b->ndims; d++) out->at[d] = DIM_UNKNOWN;
  for (uint32_t d = 0; d < rank; d++) {
    if (in_b->at[d] < 0) continue;
    if (in_a->at[d] < 0 || !set_dim(out, (uint32_t)in_b->at[d], in_a->at[d])) return false;
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
      ValueId r = f->root[graph_node(f->g, id)->operands[j]].value;
      NodeId def = graph_value(f->g, r)->node;
      Root root;
      DimMap read, made;
      if (fuse_find(f, f->group[def]) != maker) continue;
      if (f->level[def] == LEVEL_TOTAL || !operand_map(f, id, j, &f->map[id], &root, &read))
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
    if (!find_read(a, r.value)) VEC_PUSH(f->arena, &a->reads, r);
  }
}

/* After `id` joined `group`: takes in the groups that made or read its other operands. */
static void pull_in(Fuser *f, NodeId id, uint32_t group) {
  const Node *n = graph_node(f->g, id);
  for (uint32_t i = 0; i < n->noperands; i++) {
    Root root;
    DimMap in_a, to;
    bool per_row;
    if (!operand_map(f, id, i, &f->map[id], &root, &in_a)) continue;
    NodeId def = graph_value(f->g, root.value)->node;
    uint32_t other = fuse_find(f, f->group[def]);
    if (!other || other == group || f->level[def] == LEVEL_TOTAL) continue;
    const KGroup *a = &f->groups.data[group], *b = &f->groups.data[other];
    if (a->looped != b->looped || a->nodes.len + b->nodes.len > GROUP_MAX_NODES ||
        a->reads.len + b->reads.len > GROUP_MAX_READS)
      continue;
    DimMap in_b = fuse_result_map(f, def);
    if (!domain_map(a, b, &in_a, &in_b, value_type(f->g, root.value)->rank, &to, &per_row))
      continue;
    uint32_t inner = map_bits(b->inner, &to, b->ndims), rows = map_bits(b->rows, &to, b->ndims);
    if ((inner && a->inner && inner != a->inner) || (rows && a->rows && rows != a->rows)) continue;
    if ((inner | a->inner) & (rows | a->rows)) continue;
    if (!reads_agree(f, group, other, NULL, &to) || !reads_agree(f, other, group, &to, NULL))
      continue;
    if (group_waits(f, other, group) || group_waits(f, group, other)) continue;
    merge(f, group, other, &to, per_row);
  }
}

/* The best group for a node, by the bytes of the operand it shares; 0 = none. */
static uint32_t choose(Fuser *f, NodeId id, Join *best) {
  const Node *n = graph_node(f->g, id);
  uint32_t chosen = 0;
  int64_t most = -1;
  for (uint32_t i = 0; i < n->noperands; i++) {
    ValueId r = f->root[n->operands[i]].value;
    NodeId def = graph_value(f->g, r)->node;
    if (f->kind[def] == NODE_FREE) continue;
    uint32_t candidates[2] = {fuse_find(f, f->group[def]), fuse_find(f, f->reader[r])};
    for (int c = 0; c < 2; c++) {
      uint32_t group = candidates[c];
      int64_t bytes = 2 * fuse_bytes(f, r) + (c == 0);
      if (!group || group == chosen || bytes <= most) continue;
      const KGroup *k = &f->groups.data[group];
      if (c == 1 && (id - k->nodes.data[k->nodes.len - 1] > READER_WINDOW ||
                     fuse_bytes(f, r) < fuse_bytes(f, n->first_result)))
        continue;
      Join j;
      if (!try_join(f, id, group, &j)) continue;
      chosen = group;
      most = bytes;
      *best = j;
    }
  }
  return chosen;
}

void fuse_group(Fuser *f) {
  VEC_PUSH(f->arena, &f->groups, (KGroup){0});
  for (NodeId id = 1; id < f->g->nodes.len; id++) {
    if (!fuse_in_kernel(f, id)) continue;
    Join j;
    uint32_t group = f->options->enabled ? choose(f, id, &j) : 0;
    if (!group) group = new_group(f, id, &j);
    add_node(f, id, group, &j);
    if (f->options->enabled) pull_in(f, id, group);
  }
}
