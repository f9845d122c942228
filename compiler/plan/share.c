/* Which values share memory: see block.h.
 *
 * In: fused groups in their order. Out: for every materialised value its memory, with the span of
 * positions at which it is alive. Values share memory when
 *   - one is a view of the other (the fuser's aliases),
 *   - it is read from or assigned to a variable and nothing reads the variable's old value at or
 *     after the moment it is written (then the update happens in place and costs no copy),
 *   - a group may write its output over an input that dies there,
 *   - the reduction of an accumulator that is cleared afterwards runs in the accumulator.
 * Invariant: two values that share memory are never both needed at one time, except views.
 */
#include <string.h>

#include "plan/block.h"

static uint32_t find_root(const PlanBlock *b, FValueId v) {
  uint32_t i = block_root(b, v);
  while (b->storage[i].parent != i) {
    b->storage[i].parent = b->storage[b->storage[i].parent].parent;
    i = b->storage[i].parent;
  }
  return i;
}

Storage *block_storage(const PlanBlock *b, FValueId v) {
  return &b->storage[find_root(b, v)];
}

static const Mesh *mesh_of(const PlanBlock *b, FValueId v) {
  ValueId value = b->fused->values.data[v].value;
  return value ? value_type(b->fused->graph, value)->mesh : NULL;
}

const Mesh *block_mesh(const PlanBlock *b, const Group *g) {
  const Mesh *mesh = NULL;
  for (uint32_t i = 0; i < g->noutputs && !mesh; i++) mesh = mesh_of(b, g->outputs[i]);
  for (uint32_t i = 0; i < g->ninputs && !mesh; i++)
    if (g->inputs[i]) mesh = mesh_of(b, g->inputs[i]);
  return mesh;
}

/* `child` lives in the memory of `root` from now on. */
static void unite(PlanBlock *b, uint32_t root, uint32_t child) {
  Storage *r = &b->storage[root], *c = &b->storage[child];
  c->parent = root;
  if (c->first < r->first) r->first = c->first;
  if (c->last > r->last) r->last = c->last;
  if (c->bytes > r->bytes) r->bytes = c->bytes;
  r->ranks |= c->ranks;
}

static uint64_t rounded(int64_t bytes) {
  return ((uint64_t)bytes + ABI_ALIGN - 1) / ABI_ALIGN * ABI_ALIGN;
}

static const Node *group_node(const PlanBlock *b, uint32_t g) {
  return graph_node(b->fused->graph, b->fused->groups.data[g].node);
}

/* Lives of single values; memory of reads and of the step number. */
static void find_lives(PlanBlock *b) {
  const FusedProgram *f = b->fused;
  for (uint32_t v = 0; v < f->values.len; v++)
    b->storage[v] =
        (Storage){.parent = v, .bytes = rounded(f->values.data[v].max_bytes), .first = NOWHERE};
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &f->groups.data[b->order[p]];
    for (uint32_t k = 0; k < g->noutputs; k++) {
      Storage *s = block_storage(b, g->outputs[k]);
      const Mesh *mesh = mesh_of(b, g->outputs[k]);
      s->ranks |= rank_set(b->sets, mesh ? mesh : block_mesh(b, g));
      if (s->first == NOWHERE) s->first = p;
      if (s->last < p) s->last = p;
    }
    for (uint32_t k = 0; k < g->ninputs; k++) {
      if (!g->inputs[k]) continue;
      Storage *s = block_storage(b, g->inputs[k]);
      if (s->last < p) s->last = p;
    }
    const Op op = group_node(b, b->order[p])->op;
    if (op == OP_STEP) block_storage(b, g->outputs[0])->step = true;
  }
}

/* Whether this group may write output `out` over the memory of input `in`. */
static bool may_replace(const PlanBlock *b, const Group *g, uint32_t out, uint32_t in) {
  if (g->kind == GROUP_KERNEL || g->kind == GROUP_CONTRACT)
    return g->in_place && in < 64 && (g->in_place[out] >> in & 1);
  return g->kind == GROUP_COLLECTIVE && graph_node(b->fused->graph, g->node)->op == OP_ALL_REDUCE;
}

/* True when, with every read and write of positions [from, ...) considered, `group` at position p
 * may overwrite memory `s` with output `out`: s is not needed after p, and at p only by inputs the
 * output may replace. */
static bool replaceable(const PlanBlock *b, uint32_t group, uint32_t out, const Storage *s,
                        uint32_t p) {
  if (s->first == NOWHERE || s->last < p) return true;
  if (s->last > p) return false;
  const Group *g = &b->fused->groups.data[group];
  for (uint32_t k = 0; k < g->ninputs; k++)
    if (g->inputs[k] && block_storage(b, g->inputs[k]) == s && !may_replace(b, g, out, k))
      return false;
  for (uint32_t k = 0; k < g->noutputs; k++)
    if (k != out && block_storage(b, g->outputs[k]) == s) return false;
  return true;
}

/* The value is the whole of its memory, from its first byte. */
static bool fills_root(const FusedProgram *f, FValueId v) {
  const FValue *fv = &f->values.data[v];
  if (!fv->alias) return true;
  const RtSym *offset = &f->syms.data[fv->alias_offset];
  return offset->op == RT_SYM_CONST && offset->imm == 0 &&
         fv->max_bytes == f->values.data[fv->alias].max_bytes;
}

/* The old values of a variable that a block reads: before any ASSIGN of the part of the block that
 * runs per accumulated batch, and in the part behind it; and the value that an earlier ASSIGN made
 * in place. Roots of storages, 0 = there is none. */
typedef struct Readers {
  uint32_t looped, once, assigned;
} Readers;

static void share_reads(PlanBlock *b, Readers *readers) {
  const FusedProgram *f = b->fused;
  for (uint32_t p = 0; p < b->norder; p++) {
    const Node *n = group_node(b, b->order[p]);
    if (n->op != OP_READ) continue;
    uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0);
    uint32_t root = find_root(b, f->groups.data[b->order[p]].outputs[0]);
    uint32_t *reader = p < b->looped ? &readers[var].looped : &readers[var].once;
    if (*reader)
      unite(b, *reader, root);
    else
      *reader = root;
    b->storage[*reader].var = var + 1;
  }
}

/* Per variable the first position behind the batches at which it is assigned; NOWHERE = none. */
static uint32_t *first_assigns(const PlanBlock *b) {
  uint32_t *at = ARENA_ARRAY(b->arena, uint32_t, b->program->vars.len);
  memset(at, 0xff, sizeof *at * b->program->vars.len);
  for (uint32_t p = b->norder; p-- > b->looped;) {
    const Node *n = group_node(b, b->order[p]);
    if (n->op == OP_ASSIGN) at[node_int(n, ATTR_VAR, 0)] = p;
  }
  return at;
}

/* Gradients that were added up over batches are reduced where they lie: side by side, so that
 * buckets of them are one collective. Nothing needs the accumulator's value between its reduction
 * and the moment at which it is cleared. */
static void share_accumulators(PlanBlock *b) {
  const FusedProgram *f = b->fused;
  const uint32_t *assigned = first_assigns(b);
  for (uint32_t p = b->looped; p < b->norder; p++) {
    const Group *g = &f->groups.data[b->order[p]];
    if (g->kind != GROUP_COLLECTIVE || group_node(b, b->order[p])->op != OP_ALL_REDUCE) continue;
    uint32_t in = find_root(b, g->inputs[0]), out = find_root(b, g->outputs[0]);
    const Storage *s = &b->storage[in], *o = &b->storage[out];
    if (!s->var || b->program->vars.data[s->var - 1].kind != VAR_ACCUMULATOR || o->var) continue;
    if (in == out || s->last != p || o->first != p || s->bytes != o->bytes) continue;
    uint32_t cleared = assigned[s->var - 1];
    if (fills_root(f, g->inputs[0]) && cleared != NOWHERE && o->last < cleared) unite(b, in, out);
  }
}

/* The group and output that make the whole of memory `root`; false when that is not one write. */
static bool sole_writer(const PlanBlock *b, const uint32_t *writer, uint32_t root, uint32_t *group,
                        uint32_t *out) {
  uint32_t w = writer[root];
  if (w == NOWHERE) return false;
  const Group *g = &b->fused->groups.data[w];
  for (uint32_t k = 0; k < g->noutputs; k++) {
    if (find_root(b, g->outputs[k]) != root) continue;
    *group = w;
    *out = k;
    return true;
  }
  return false;
}

/* The value that is assigned can be made in the variable's memory: the group that makes it may
 * write over every old value that is in the way. */
static bool made_in_place(const PlanBlock *b, const Readers *old, bool looped, uint32_t maker,
                          uint32_t out) {
  uint32_t p = b->position[maker];
  if (group_op(b, maker) == OP_INPUT) return false;
  if (old->looped && !replaceable(b, maker, out, &b->storage[old->looped], p)) return false;
  if (old->assigned && !replaceable(b, maker, out, &b->storage[old->assigned], p)) return false;
  return looped || !old->once || replaceable(b, maker, out, &b->storage[old->once], p);
}

/* Assigned values are made in the variable's memory where that is safe; else the ASSIGN copies. */
static void share_assigns(PlanBlock *b, Readers *readers, const uint32_t *writer, bool reuse) {
  const FusedProgram *f = b->fused;
  for (uint32_t p = 0; p < b->norder; p++) {
    uint32_t id = b->order[p], maker, out;
    const Node *n = group_node(b, id);
    if (n->op != OP_ASSIGN) continue;
    FValueId value = f->groups.data[id].inputs[0];
    uint32_t var = (uint32_t)node_int(n, ATTR_VAR, 0), root = find_root(b, value);
    Storage *s = &b->storage[root];
    bool looped = p < b->looped;
    if (s->var == var + 1) continue; /* the variable keeps its value */
    b->copies[id] = !reuse || !fills_root(f, value) || s->var || s->step ||
                    !sole_writer(b, writer, root, &maker, &out) ||
                    !made_in_place(b, &readers[var], looped, maker, out);
    if (b->copies[id]) continue;
    s->var = var + 1;
    readers[var].assigned = root;
  }
}

/* Outputs take the memory of inputs that die. */
static void share_in_place(PlanBlock *b) {
  const FusedProgram *f = b->fused;
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &f->groups.data[b->order[p]];
    for (uint32_t k = 0; k < g->noutputs; k++) {
      if (f->values.data[g->outputs[k]].alias) continue;
      uint32_t out = find_root(b, g->outputs[k]);
      Storage *o = &b->storage[out];
      if (o->var || o->step || o->first != p || o->bytes == 0) continue;
      for (uint32_t i = 0; i < g->ninputs; i++) {
        if (!g->inputs[i] || !fills_root(f, g->inputs[i]) || !may_replace(b, g, k, i)) continue;
        uint32_t in = find_root(b, g->inputs[i]);
        Storage *s = &b->storage[in];
        if (in == out || s->var || s->step || s->bytes != o->bytes) continue;
        if (!replaceable(b, b->order[p], k, s, p)) continue;
        unite(b, in, out);
        break;
      }
    }
  }
}

void block_share(PlanBlock *b, bool reuse) {
  const FusedProgram *f = b->fused;
  b->storage = ARENA_ARRAY(b->arena, Storage, f->values.len);
  b->copies = ARENA_ARRAY(b->arena, bool, f->groups.len);
  find_lives(b);
  Readers *readers = ARENA_ARRAY(b->arena, Readers, b->program->vars.len);
  share_reads(b, readers);
  if (b->pipeline) block_find_slots(b);
  if (reuse) share_accumulators(b);
  uint32_t *writer = ARENA_ARRAY(b->arena, uint32_t, f->values.len);
  memset(writer, 0xff, sizeof *writer * f->values.len);
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &f->groups.data[b->order[p]];
    for (uint32_t k = 0; k < g->noutputs && g->kind != GROUP_VIEW; k++)
      writer[find_root(b, g->outputs[k])] = b->order[p];
  }
  share_assigns(b, readers, writer, reuse);
  if (reuse) share_in_place(b);
}
