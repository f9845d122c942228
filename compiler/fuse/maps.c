/* Index maps: how the dims of nodes, operands and results lie in the domain of a group. */
#include "fuse/internal.h"

bool fuse_is_reduction(Op op) {
  return op_info(op)->cls == CLASS_REDUCTION;
}

ValueId fuse_iterated(const Fuser *f, NodeId id) {
  const Node *n = graph_node(f->g, id);
  return fuse_is_reduction(n->op) ? n->operands[0] : n->first_result;
}

const TensorType *fuse_iteration(const Fuser *f, NodeId id) {
  return value_type(f->g, fuse_iterated(f, id));
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

uint32_t fuse_reduced_under(const Fuser *f, NodeId id, const DimMap *map) {
  const TensorType *t = fuse_iteration(f, id);
  uint32_t bits = fuse_reduced(graph_node(f->g, id), t), domain = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (bits >> d & 1 && map->at[d] >= 0) domain |= 1u << map->at[d];
  return domain;
}

uint32_t fuse_reduced_domain(const Fuser *f, NodeId id) {
  return fuse_reduced_under(f, id, &f->map[id]);
}

uint32_t fuse_find(Fuser *f, uint32_t group) {
  while (group && f->groups.data[group].merged) group = f->groups.data[group].merged;
  return group;
}

const ReadMap *fuse_find_read(const KGroup *k, ValueId v) {
  for (uint32_t i = 0; i < k->reads.len; i++)
    if (k->reads.data[i].value == v) return &k->reads.data[i];
  return NULL;
}

bool fuse_set_dim(DimMap *m, uint32_t d, int8_t to) {
  if (m->at[d] != DIM_UNKNOWN && m->at[d] != to) return false;
  m->at[d] = to;
  return true;
}

/* Maps a node's operand root under the node's map. False when it is read at other indices. */
bool fuse_operand_map(const Fuser *f, NodeId id, uint32_t i, const DimMap *node, Root *root,
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
