/* One group as kernel calls.
 *
 * Time of a value: the number of loops over the row that must be over before it can be computed. A
 * reduction of a value of time t is complete at t + 1. Loop t computes the reductions, stores and
 * accumulations whose operands have time t; values per row are computed between the loops. A value
 * that several loops use is computed in each (or read back, when it was stored exactly).
 *
 * A total of one long dim: its blocks are tasks, each leaves one element per total.
 *
 * A reduction over rows adds up within chunks of rows whose size depends on the extents only; where
 * there can be more than one chunk, their results go to a temporary that a second kernel reduces.
 */
#include <string.h>

#include "fuse/lower.h"

typedef struct Schedule {
  Lower l;
  NodeId *live; /* ascending */
  uint32_t nlive;
  uint8_t *time; /* per live node: when its value (reduction: its operand) can be computed */
  KRef *reduced; /* per live node: a REDUCE that an accumulation takes */
  uint32_t last;
  FValueId *total; /* per live node: where it accumulates */
  IdMap time_of;   /* root value -> time */
} Schedule;

static bool has_row_part(const Schedule *p, NodeId id) {
  return p->l.f->level[id] == LEVEL_TOTAL;
}

static bool iterates_fully(const Schedule *p, NodeId id) {
  const TensorType *t = fuse_iteration(p->l.f, id);
  uint32_t covered = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    if (p->l.f->map[id].at[d] >= 0) covered |= 1u << p->l.f->map[id].at[d];
  return covered == (1u << p->l.k->ndims) - 1;
}

/* Reduces inner dims of a full value within the row. */
static bool has_inner_part(const Schedule *p, NodeId id) {
  return fuse_is_reduction(graph_node(p->l.f->g, id)->op) && iterates_fully(p, id) &&
         (fuse_reduced_domain(p->l.f, id) & p->l.k->inner);
}

/* --- what is alive, and when ---- */

static uint32_t time_of(Schedule *p, ValueId root);

static uint32_t operands_time(Schedule *p, NodeId id) {
  const Node *n = graph_node(p->l.f->g, id);
  uint32_t t = 0;
  for (uint32_t i = 0; i < n->noperands; i++) {
    uint32_t x = time_of(p, p->l.f->root[n->operands[i]].value);
    if (x > t) t = x;
  }
  return t;
}

static uint32_t time_of(Schedule *p, ValueId root) {
  Fuser *f = p->l.f;
  uint32_t t;
  if (!fuse_computed_in(f, root, p->l.group)) return 0;
  if (id_map_get(&p->time_of, root, &t)) return t;
  NodeId id = graph_value(f->g, root)->node;
  t = operands_time(p, id);
  bool home = f->kind[id] == NODE_KERNEL && fuse_find(f, f->group[id]) == p->l.group;
  if (home) f->mark[id] = 1;
  if (home && has_inner_part(p, id)) t++;
  id_map_put(f->arena, &p->time_of, root, t);
  return t;
}

static void find_live(Schedule *p) {
  Fuser *f = p->l.f;
  const KGroup *k = p->l.k;
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    NodeId id = k->nodes.data[i];
    ValueId v = graph_node(f->g, id)->first_result;
    if (!f->stored[v]) continue;
    f->mark[id] = 1;
    operands_time(p, id);
  }
  p->live = ARENA_ARRAY(f->arena, NodeId, k->nodes.len);
  p->time = ARENA_ARRAY(f->arena, uint8_t, k->nodes.len);
  p->reduced = ARENA_ARRAY(f->arena, KRef, k->nodes.len);
  p->total = ARENA_ARRAY(f->arena, FValueId, k->nodes.len);
  for (uint32_t i = 0; i < k->nodes.len; i++) {
    NodeId id = k->nodes.data[i];
    if (!f->mark[id]) continue;
    f->mark[id] = 0;
    uint32_t t = operands_time(p, id);
    p->time[p->nlive] = (uint8_t)t;
    p->live[p->nlive++] = id;
    if (has_inner_part(p, id)) t++;
    if (t > p->last) p->last = t;
  }
}

/* --- reductions over rows ---- */

static ReduceOp reduce_op(Op op) {
  if (op == OP_PROD) return REDUCE_PRODUCT;
  if (op == OP_MAX || op == OP_ANY) return REDUCE_MAX;
  if (op == OP_MIN || op == OP_ALL) return REDUCE_MIN;
  return REDUCE_SUM;
}

/* Bytes one row of the group reads and writes, roughly: those of its largest operand. */
static int64_t row_bytes(const KGroup *k) {
  int64_t n = 4;
  for (uint32_t d = 0; d < k->ndims; d++)
    if (!(k->rows >> d & 1)) n *= k->max_extent[d] ? k->max_extent[d] : 1;
  return n;
}

/* The chunks of one long dim are the blocks of the vector dim. */
static int64_t choose_blocks(Lower *l) {
  Fuser *f = l->f;
  l->chunk_rows = sym_const(f->arena, f->p, f->target->vec_block);
  l->nchunks = sym_binary(f->arena, f->p, RT_SYM_CEIL_DIV, l->k->extent[0], l->chunk_rows);
  return (l->k->max_extent[0] + f->target->vec_block - 1) / f->target->vec_block;
}

/* Sets the chunks; returns how many there are at most. */
static int64_t choose_chunks(Schedule *p) {
  Lower *l = &p->l;
  Fuser *f = l->f;
  int64_t rows = 1;
  SymId count = SYM_ONE;
  for (uint32_t d = 0; d < l->k->ndims; d++) {
    if (!(l->k->rows >> d & 1)) continue;
    rows *= l->k->max_extent[d];
    count = sym_binary(f->arena, f->p, RT_SYM_MUL, count, l->k->extent[d]);
  }
  if (rows == 0) rows = 1;
  int64_t chunks = rows * row_bytes(l->k) / f->target->chunk_bytes;
  if (chunks > f->target->chunks_most) chunks = f->target->chunks_most;
  if (chunks > rows) chunks = rows;
  if (chunks < 1) chunks = 1;
  int64_t size = (rows + chunks - 1) / chunks;
  SymId size_sym = sym_const(f->arena, f->p, size);
  l->chunk_rows = size_sym;
  l->nchunks = sym_binary(f->arena, f->p, RT_SYM_MAX, SYM_ONE,
                          sym_binary(f->arena, f->p, RT_SYM_CEIL_DIV, count, size_sym));
  return (rows + size - 1) / size;
}

/* The type a total accumulates in. Many single numbers are added up in f64: it costs nothing; those
 * per column may. */
static DType total_type(const Schedule *p, NodeId id, int64_t chunks) {
  const Node *n = graph_node(p->l.f->g, id);
  DType type = kernel_compute_type(value_type(p->l.f->g, n->first_result)->dtype);
  bool column = p->l.vec && !p->l.blocks && iterates_fully(p, id) && !has_inner_part(p, id);
  bool wide = !column || (p->l.k->inner && p->l.f->target->wide_columns);
  return type == DT_F32 && wide && chunks > 1 && reduce_op(n->op) == REDUCE_SUM ? DT_F64 : type;
}

static void choose_totals(Schedule *p, int64_t chunks) {
  Fuser *f = p->l.f;
  for (uint32_t i = 0; i < p->nlive; i++) {
    NodeId id = p->live[i];
    if (!has_row_part(p, id)) continue;
    ValueId v = graph_node(f->g, id)->first_result;
    const TensorType *t = value_type(f->g, v);
    DType type = total_type(p, id, chunks);
    if (chunks == 1 && type == t->dtype) {
      p->total[i] = fuse_value(f, v);
      continue;
    }
    SymId elements = sym_binary(f->arena, f->p, RT_SYM_MUL, p->l.nchunks, fuse_count(f, t));
    p->total[i] = fuse_temporary(f, type, elements, chunks * fuse_elements(f, v));
  }
}

/* --- blocks ---- */

static void result_ix(const Schedule *p, NodeId id, Ix *ix) {
  Fuser *f = p->l.f;
  DimMap m = fuse_result_map(f, id);
  const TensorType *t = value_type(f->g, graph_node(f->g, id)->first_result);
  for (uint32_t d = 0; d < t->rank; d++) {
    ix[d] = (Ix){.dim = DIM_UNIT, .scale = SYM_ZERO, .offset = SYM_ZERO};
    if (m.at[d] >= 0) ix[d] = (Ix){.dim = m.at[d], .scale = SYM_ONE, .offset = SYM_ZERO};
  }
}

static void emit_store(Schedule *p, uint32_t i, KRef value) {
  Lower *l = &p->l;
  ValueId v = graph_node(l->f->g, p->live[i])->first_result;
  const TensorType *t = value_type(l->f->g, v);
  Ix ix[DTM_MAX_DIMS];
  KRef dyn;
  result_ix(p, p->live[i], ix);
  FValueId fv = fuse_value(l->f, v);
  KAccess a = fuse_access(l, fuse_buffer(l, fv, t->dtype, true), t, ix, &dyn);
  kb_store(&l->b, a, value, 0);
  VEC_PUSH(l->f->arena, &l->written, fv);
  /* What its memory kept until now is gone. */
  uint32_t n = 0;
  for (uint32_t j = 0; j < l->spills.len; j++)
    if (l->spills.data[j].access.buf != a.buf) l->spills.data[n++] = l->spills.data[j];
  l->spills.len = n;
}

static void emit_total(Schedule *p, uint32_t i, KRef value) {
  Lower *l = &p->l;
  const Node *n = graph_node(l->f->g, p->live[i]);
  TensorType t = *value_type(l->f->g, n->first_result);
  Ix ix[DTM_MAX_DIMS];
  KRef dyn;
  FValueId fv = p->total[i];
  t.dtype = l->f->p->values.data[fv].dtype;
  result_ix(p, p->live[i], ix);
  KAccess a = fuse_access(l, fuse_buffer(l, fv, t.dtype, true), &t, ix, &dyn);
  bool partial = !l->f->p->values.data[fv].value;
  for (uint32_t d = 0; d < l->k->ndims; d++) {
    if (!(l->k->rows >> d & 1)) continue;
    a.stride[d] = partial ? fuse_slot(l, fuse_count(l->f, &t)) : KINT_ZERO;
    break;
  }
  kb_accum(&l->b, a, reduce_op(n->op), kb_cast(&l->b, value, t.dtype));
}

static bool is_stored(const Schedule *p, uint32_t i) {
  const Fuser *f = p->l.f;
  return f->stored[graph_node(f->g, p->live[i])->first_result];
}

/* An elementary function that an output of a later loop needs and this one computes: kept in the
 * output's memory meanwhile (softmax's exponentials). */
static bool find_spill(Schedule *p, ValueId root, uint32_t before, DType type, ValueId *found) {
  Fuser *f = p->l.f;
  NodeId id = graph_value(f->g, root)->node;
  const Node *n = graph_node(f->g, id);
  if (f->kind[id] != NODE_KERNEL || fuse_find(f, f->group[id]) != p->l.group) return false;
  if (fuse_is_reduction(n->op) || !iterates_fully(p, id)) return false;
  if (fuse_is_dear(n->op) && time_of(p, root) < before && value_type(f->g, root)->dtype == type &&
      kernel_compute_type(type) == type) {
    *found = root;
    return true;
  }
  for (uint32_t i = 0; i < n->noperands; i++)
    if (find_spill(p, f->root[n->operands[i]].value, before, type, found)) return true;
  return false;
}

/* Spills at loop t what outputs of later loops keep, when this loop computed it. */
static void emit_spills(Schedule *p, uint32_t t) {
  Lower *l = &p->l;
  Fuser *f = l->f;
  for (uint32_t i = 0; i < p->nlive; i++) {
    const Node *n = graph_node(f->g, p->live[i]);
    ValueId v = n->first_result, kept;
    if (!is_stored(p, i) || p->time[i] <= t || fuse_is_reduction(n->op)) continue;
    if (f->root[v].value != v || !iterates_fully(p, p->live[i])) continue;
    const TensorType *type = value_type(f->g, v);
    if (!find_spill(p, v, p->time[i], type->dtype, &kept) || time_of(p, kept) != t) continue;
    KRef value = fuse_recall(l, kept);
    if (!value || fuse_spilled(l, kept)) continue;
    Ix ix[DTM_MAX_DIMS];
    KRef dyn;
    result_ix(p, p->live[i], ix);
    KAccess a = fuse_access(l, fuse_buffer(l, fuse_value(f, v), type->dtype, true), type, ix, &dyn);
    kb_store(&l->b, a, value, 0);
    VEC_PUSH(f->arena, &l->spills, (Spill){.value = kept, .access = a});
  }
}

/* What each block of one long dim reduces to, beside those of the others. */
static void emit_block_totals(Schedule *p) {
  Lower *l = &p->l;
  kb_block(&l->b, false);
  l->loop = false;
  l->block++;
  for (uint32_t i = 0; i < p->nlive; i++) {
    if (!has_row_part(p, p->live[i])) continue;
    fuse_note(l, p->live[i]);
    DType type = l->f->p->values.data[p->total[i]].dtype;
    KAccess a = kb_access(fuse_buffer(l, p->total[i], type, true));
    a.stride[0] = KINT_ONE;
    kb_store(&l->b, a, kb_cast(&l->b, p->reduced[i], type), 0);
  }
}

/* Values per row of time t: computed, stored, accumulated. */
static void emit_scalar_block(Schedule *p, uint32_t t) {
  Lower *l = &p->l;
  Fuser *f = l->f;
  kb_block(&l->b, false);
  l->loop = false;
  l->block++;
  for (uint32_t i = 0; i < p->nlive; i++) {
    NodeId id = p->live[i];
    const Node *n = graph_node(f->g, id);
    bool inner = has_inner_part(p, id), total = has_row_part(p, id);
    uint32_t ready = p->time[i] + inner;
    bool per_row = inner || !l->vec || !iterates_fully(p, id);
    if (ready != t || !per_row) continue;
    fuse_note(l, id);
    if (total) {
      emit_total(p, i, inner ? p->reduced[i] : fuse_eval_node(l, id));
      continue;
    }
    KRef v = inner ? p->reduced[i] : fuse_eval_node(l, id);
    if (f->root[n->first_result].value == n->first_result) fuse_memo(l, n->first_result, v, true);
    if (is_stored(p, i)) emit_store(p, i, v);
  }
}

static void emit_loop_block(Schedule *p, uint32_t t) {
  Lower *l = &p->l;
  kb_block(&l->b, true);
  l->loop = true;
  l->block++;
  for (uint32_t i = 0; i < p->nlive; i++) {
    NodeId id = p->live[i];
    if (p->time[i] != t || !iterates_fully(p, id)) continue;
    fuse_note(l, id);
    if (has_inner_part(p, id) || (has_row_part(p, id) && l->blocks))
      p->reduced[i] =
          kb_reduce(&l->b, reduce_op(graph_node(l->f->g, id)->op), fuse_eval_node(l, id));
    else if (has_row_part(p, id))
      emit_total(p, i, fuse_eval_node(l, id));
    else if (is_stored(p, i))
      emit_store(p, i, fuse_eval_node(l, id));
  }
  if (t < p->last && l->f->target->spills) emit_spills(p, t);
}

/* --- the call ---- */

/* Output o may take the place of an input whose loads are all of the element that is stored, and
 * all come before the store. */
static bool may_replace(const Kernel *k, uint32_t out, uint32_t in) {
  const KInstr *store = NULL;
  uint32_t store_at = 0; /* the first */
  if (dtype_bytes((DType)k->bufs[out].dtype) != dtype_bytes((DType)k->bufs[in].dtype)) return false;
  for (uint32_t n = 0; n < k->nblocks; n++)
    for (uint32_t i = k->blocks[n].first; i < k->blocks[n].first + k->blocks[n].count; i++) {
      const KInstr *x = &k->instrs[i];
      bool writes = x->kind == K_STORE || x->kind == K_ACCUM;
      if (!writes || x->access.buf != out) continue;
      if (x->kind == K_ACCUM || x->b) return false;
      if (store && memcmp(&x->access, &store->access, sizeof x->access) != 0) return false;
      if (!store) store_at = i;
      store = x;
    }
  for (uint32_t n = 0; store && n < k->nblocks; n++)
    for (uint32_t i = k->blocks[n].first; i < k->blocks[n].first + k->blocks[n].count; i++) {
      const KInstr *x = &k->instrs[i];
      if (x->kind != K_LOAD || x->access.buf != in) continue;
      KAccess a = x->access, b = store->access;
      a.buf = b.buf;
      if (x->a || x->b || i > store_at || memcmp(&a, &b, sizeof a) != 0) return false;
    }
  return store != NULL;
}

static void fill_buffers(Lower *l, Group *g, const Kernel *k) {
  Arena *arena = l->f->arena;
  const FusedProgram *p = l->f->p;
  uint32_t n = l->bufs.len;
  uint32_t *in = ARENA_ARRAY(arena, uint32_t, n), *out = ARENA_ARRAY(arena, uint32_t, n);
  g->bufs = l->bufs.data;
  g->inputs = ARENA_ARRAY(arena, FValueId, n);
  g->outputs = ARENA_ARRAY(arena, FValueId, n);
  for (uint32_t i = 0; i < n; i++) {
    if (!l->bufs.data[i]) continue;
    if (k->bufs[i].written) {
      out[g->noutputs] = i;
      g->outputs[g->noutputs++] = l->bufs.data[i];
    } else {
      in[g->ninputs] = i;
      g->inputs[g->ninputs++] = l->bufs.data[i];
    }
  }
  g->in_place = ARENA_ARRAY(arena, uint64_t, g->noutputs);
  for (uint32_t o = 0; o < g->noutputs; o++)
    for (uint32_t i = 0; i < g->ninputs && i < 64; i++)
      if (p->values.data[g->outputs[o]].elements == p->values.data[g->inputs[i]].elements &&
          may_replace(k, out[o], in[i]))
        g->in_place[o] |= 1ull << i;
}

static void finish_call(Lower *l, const char *hint, NodeId node, const NodeId *nodes, uint32_t n) {
  Fuser *f = l->f;
  Kernel *k = fuse_place_dims(l);
  Group g = {.kind = GROUP_KERNEL, .node = node, .nnodes = n, .tasks = SYM_ONE, .work = SYM_ONE};
  g.nodes = ARENA_ARRAY(f->arena, NodeId, n);
  memcpy(g.nodes, nodes, n * sizeof *nodes);
  for (uint32_t d = 0; d < k->ndims; d++) {
    KInt e = k->dims[d].extent;
    SymId extent = e == KINT_ZERO ? SYM_ZERO : e == KINT_ONE ? SYM_ONE : l->ints.data[e];
    g.work = sym_binary(f->arena, f->p, RT_SYM_MUL, g.work, extent);
    if (k->dims[d].role == KDIM_GRID)
      g.tasks = sym_binary(f->arena, f->p, RT_SYM_MUL, g.tasks, extent);
    if (k->vec_block && k->dims[d].role == KDIM_VEC)
      g.tasks = sym_binary(f->arena, f->p, RT_SYM_MUL, g.tasks,
                           sym_binary(f->arena, f->p, RT_SYM_CEIL_DIV, extent,
                                      sym_const(f->arena, f->p, k->vec_block)));
  }
  if (l->k->rows && !l->blocks)
    g.tasks = sym_binary(f->arena, f->p, RT_SYM_MUL, g.tasks, l->nchunks);
  fill_buffers(l, &g, k);
  g.ints = l->ints.data;
  g.kernel = kernel_set_add(f->arena, f->p->kernels, k, hint);
  VEC_PUSH(f->arena, &f->groups.data[l->group].made, g);
}

/* [chunks, elements] -> [elements]. */
static void second_level(Schedule *p, uint32_t i) {
  Fuser *f = p->l.f;
  NodeId id = p->live[i];
  const Node *n = graph_node(f->g, id);
  const TensorType *t = value_type(f->g, n->first_result);
  DType type = f->p->values.data[p->total[i]].dtype;
  SymId elements = fuse_count(f, t);
  KGroup k = {.ndims = 0};
  bool single = elements == SYM_ONE, row = single || type != t->dtype;
  /* Either accumulate whole rows into the output, or reduce each element's column. */
  uint32_t chunk_dim = row && !single ? 1 : 0, element_dim = 1 - chunk_dim;
  k.ndims = single ? 1 : 2;
  k.extent[chunk_dim] = p->l.nchunks;
  if (!single) k.extent[element_dim] = elements;
  if (row)
    k.inner = 1u << chunk_dim;
  else
    k.rows = 1u << chunk_dim;
  Lower l = {.f = f, .group = p->l.group, .k = &k, .vec = true};
  l.chunk_rows = p->l.nchunks;
  l.nchunks = SYM_ONE;
  kb_init(&l.b, f->arena);
  fuse_note(&l, id);
  kb_block(&l.b, true);
  KAccess from = kb_access(fuse_buffer(&l, p->total[i], type, false));
  from.stride[chunk_dim] = fuse_slot(&l, elements);
  if (!single) from.stride[element_dim] = KINT_ONE;
  KAccess to = kb_access(fuse_buffer(&l, fuse_value(f, n->first_result), t->dtype, true));
  if (!single) to.stride[element_dim] = KINT_ONE;
  KRef v = kb_load(&l.b, from, 0, 0);
  if (row) {
    v = kb_reduce(&l.b, reduce_op(n->op), v);
    kb_block(&l.b, false);
    kb_store(&l.b, to, kb_cast(&l.b, v, kernel_compute_type(t->dtype)), 0);
  } else {
    kb_accum(&l.b, to, reduce_op(n->op), v);
  }
  finish_call(&l, arena_printf(f->arena, "%s_chunks", op_name(n->op)), id, &id, 1);
}

/* The node that names the call: the last one whose value leaves the kernel. */
static NodeId naming_node(const Schedule *p) {
  for (uint32_t i = p->nlive; i-- > 0;)
    if (is_stored(p, i)) return p->live[i];
  return p->live[p->nlive - 1];
}

void fuse_lower_group(Fuser *f, uint32_t group) {
  Schedule p = {.l = {.f = f, .group = group, .k = &f->groups.data[group]}};
  p.l.vec = fuse_vec_dim(p.l.k) >= 0;
  find_live(&p);
  if (p.nlive == 0) return;
  bool totals = false;
  for (uint32_t i = 0; i < p.nlive; i++) totals = totals || has_row_part(&p, p.live[i]);
  if (!totals) p.l.k->rows = 0;
  p.l.blocks = totals && fuse_is_long(p.l.f, p.l.k);
  p.l.vec |= p.l.blocks;
  if (totals) choose_totals(&p, p.l.blocks ? choose_blocks(&p.l) : choose_chunks(&p));
  kb_init(&p.l.b, f->arena);
  for (uint32_t t = 0; t <= p.last; t++) {
    emit_scalar_block(&p, t);
    if (p.l.vec) emit_loop_block(&p, t);
  }
  if (p.l.blocks) emit_block_totals(&p);
  NodeId named = naming_node(&p);
  finish_call(&p.l, op_name(graph_node(f->g, named)->op), named, p.live, p.nlive);
  for (uint32_t i = 0; i < p.nlive; i++)
    if (p.total[i] && !f->p->values.data[p.total[i]].value) second_level(&p, i);
}
