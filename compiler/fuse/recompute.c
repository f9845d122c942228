/* Values that are cheaper to compute again where they are used than to write and read; and, with
 * that settled, the values that kernels must store.
 *
 * Cost model, in bytes of memory traffic: storing v for k kernels costs (1 + k) bytes(v). Computing
 * it again costs, in each of them, the operands it does not read anyway, and for every element the
 * arithmetic, priced as the traffic a core could do in that time: elementary functions 6 bytes,
 * division and square root 2, anything else a quarter of a byte. For other targets that is scaled.
 */
#include <string.h>

#include "fuse/internal.h"

enum { TREE_LIMIT = 24 };

bool fuse_is_dear(Op op) {
  static const Op dear[] = {OP_EXP, OP_EXP2, OP_EXPM1, OP_LOG,   OP_LOG1P,
                            OP_SIN, OP_COS,  OP_ATAN,  OP_ATAN2, OP_TANH,
                            OP_ERF, OP_ERFC, OP_POW,   OP_FMOD,  OP_REMAINDER};
  for (size_t i = 0; i < sizeof dear / sizeof *dear; i++)
    if (dear[i] == op) return true;
  return false;
}

static double op_price(Op op) {
  const OpInfo *info = op_info(op);
  if (fuse_is_dear(op)) return 6;
  if (op == OP_RAND || op == OP_RANDN || info->cls == CLASS_RANDOM) return 24;
  if (op == OP_DIV || op == OP_SQRT || op == OP_RSQRT || op == OP_RECIPROCAL) return 2;
  if (info->cls == CLASS_POINTWISE && *info->expr) return strchr(info->expr, '(') ? 8 : 1;
  return 0.25;
}

bool fuse_computed_in(Fuser *f, ValueId root, uint32_t group) {
  const Node *n = value_node(f->g, root);
  NodeId id = graph_value(f->g, root)->node;
  if (op_info(n->op)->cls == CLASS_FACTORY && n->op != OP_RAND && n->op != OP_RANDN) return true;
  if (n->op == OP_STEP) return true;
  if (f->kind[id] != NODE_KERNEL) return false;
  return f->recompute[root] || fuse_find(f, f->group[id]) == group;
}

/* --- what to compute again ---- */

typedef struct Tree {
  Fuser *f;
  uint32_t home; /* group that computes the value */
  double price;
  ValueId inside[TREE_LIMIT], leaf[TREE_LIMIT];
  uint32_t ninside, nleaves;
} Tree;

static bool walk(Tree *t, ValueId root) {
  Fuser *f = t->f;
  NodeId id = graph_value(f->g, root)->node;
  const Node *n = graph_node(f->g, id);
  bool leaf = !fuse_computed_in(f, root, t->home) || f->needed[root] ||
              (f->stored[root] && !f->recompute[root]) || fuse_is_reduction(n->op);
  if (leaf) {
    for (uint32_t i = 0; i < t->nleaves; i++)
      if (t->leaf[i] == root) return true;
    if (t->nleaves == TREE_LIMIT) return false;
    t->leaf[t->nleaves++] = root;
    return true;
  }
  if (t->ninside == TREE_LIMIT) return false;
  t->inside[t->ninside++] = root;
  t->price += op_price(n->op);
  for (uint32_t i = 0; i < n->noperands; i++)
    if (!walk(t, f->root[n->operands[i]].value)) return false;
  return true;
}

/* Groups other than its own that use a value. */
static uint32_t user_groups(Fuser *f, ValueId v, uint32_t home, uint32_t *out, uint32_t most) {
  uint32_t count = 0;
  for (uint32_t u = f->first_user[v]; u < f->first_user[v + 1]; u++) {
    uint32_t group = fuse_find(f, f->group[f->users[u]]), i = 0;
    while (i < count && out[i] != group) i++;
    if (group == home || i < count) continue;
    if (count == most) return most + 1;
    out[count++] = group;
  }
  return count;
}

static bool reads(const KGroup *k, ValueId v) {
  for (uint32_t i = 0; i < k->reads.len; i++)
    if (k->reads.data[i].value == v) return true;
  return false;
}

/* Groups that would compute a value again. */
enum { MOST_USERS = 4 };
typedef struct Users {
  uint32_t group[MOST_USERS], count; /* count: MOST_USERS + 1 = more */
} Users;

static bool worth_recomputing(Fuser *f, ValueId v, uint32_t home, const Users *by) {
  Tree t = {.f = f, .home = home};
  const Node *n = value_node(f->g, v);
  t.price = op_price(n->op);
  for (uint32_t i = 0; i < n->noperands; i++)
    if (!walk(&t, f->root[n->operands[i]].value)) return false;
  double saved = (double)fuse_bytes(f, v) * (1 + by->count);
  for (uint32_t i = 0; i < t.nleaves; i++) {
    ValueId leaf = t.leaf[i];
    double bytes = (double)fuse_bytes(f, leaf);
    NodeId def = graph_value(f->g, leaf)->node;
    if (fuse_find(f, f->group[def]) == home && !f->stored[leaf]) saved -= bytes;
    for (uint32_t j = 0; j < by->count; j++)
      if (!reads(&f->groups.data[by->group[j]], leaf)) saved -= bytes;
  }
  double price = t.price * f->target->arithmetic * (double)fuse_elements(f, v) * by->count;
  if (saved <= price) return false;
  /* What it is made of has now these users too: it alone may be worth a store and loads. */
  for (uint32_t i = 0; i < t.ninside; i++) {
    ValueId u = t.inside[i];
    if (!f->recompute[u]) f->recompute[u] = worth_recomputing(f, u, home, by);
  }
  return true;
}

void fuse_recompute(Fuser *f) {
  for (NodeId id = 1; id < f->g->nodes.len; id++) {
    if (!fuse_in_kernel(f, id)) continue;
    const Node *n = graph_node(f->g, id);
    ValueId v = n->first_result;
    uint32_t home = fuse_find(f, f->group[id]);
    Users by;
    by.count = user_groups(f, v, home, by.group, MOST_USERS);
    bool leaves = by.count > 0;
    if (f->root[v].value != v) continue; /* a copy for others than kernels */
    bool can = f->options->enabled && leaves && !f->needed[v] && !fuse_is_reduction(n->op);
    f->recompute[v] = can && by.count <= MOST_USERS && worth_recomputing(f, v, home, &by);
    f->stored[v] = f->needed[v] || (leaves && !f->recompute[v]);
  }
}

/* --- what to store ---- */

typedef VEC(ValueId) ValueList;

/* Marks what computing `root` in `group` reads. */
static void demand(Fuser *f, ValueId root, uint32_t group, ValueList *work) {
  NodeId id = graph_value(f->g, root)->node;
  if (!fuse_computed_in(f, root, group)) {
    if (f->stored[root]) return;
    f->stored[root] = true;
    if (f->kind[id] == NODE_KERNEL) VEC_PUSH(f->arena, work, root);
    return;
  }
  if (f->mark[id]) return;
  f->mark[id] = 1;
  VEC_PUSH(f->arena, &f->marked, id);
  const Node *n = graph_node(f->g, id);
  for (uint32_t i = 0; i < n->noperands; i++) demand(f, f->root[n->operands[i]].value, group, work);
}

void fuse_demand(Fuser *f) {
  ValueList work = {0};
  memset(f->stored, 0, f->g->values.len * sizeof *f->stored);
  for (ValueId v = 1; v < f->g->values.len; v++) {
    NodeId id = graph_value(f->g, v)->node;
    f->stored[v] = f->needed[v] || f->kind[id] >= NODE_CONTRACT || f->kind[id] == NODE_VIEW;
    if (f->kind[id] == NODE_KERNEL && f->needed[v]) VEC_PUSH(f->arena, &work, v);
  }
  while (work.len) {
    ValueId v = work.data[--work.len];
    NodeId id = graph_value(f->g, v)->node;
    const Node *n = graph_node(f->g, id);
    for (uint32_t i = 0; i < n->noperands; i++)
      demand(f, f->root[n->operands[i]].value, fuse_find(f, f->group[id]), &work);
    for (uint32_t i = 0; i < f->marked.len; i++) f->mark[f->marked.data[i]] = 0;
    f->marked.len = 0;
  }
}
