/* Values as instructions: what one element of a graph value is, given its index.
 *
 * Movement changes the index and goes on to the operand, so slices, pads, rolls and transposes cost
 * no pass of their own when their operand is computed or loaded here. A predicate travels down to
 * the loads: an element that does not exist is not read.
 */
#include <math.h>
#include <string.h>

#include "fuse/eval.h"

KInt fuse_slot(Lower *l, SymId s) {
  if (s == SYM_ZERO) return KINT_ZERO;
  if (s == SYM_ONE) return KINT_ONE;
  for (uint32_t i = 0; i < l->ints.len; i++)
    if (l->ints.data[i] == s) return (KInt)i;
  VEC_PUSH(l->f->arena, &l->ints, s);
  return kb_int(&l->b);
}

static KRef sym_value(Lower *l, SymId s) {
  const RtSym *e = &l->f->p->syms.data[s];
  if (e->op == RT_SYM_CONST && (e->imm < 0 || e->imm > 1))
    return kb_const_int(&l->b, DT_I64, e->imm);
  return kb_int_value(&l->b, fuse_slot(l, s));
}

KRef fuse_scaled(Lower *l, KRef v, SymId by) {
  if (by == SYM_ONE) return v;
  return point2(l, OP_MUL, v, sym_value(l, by));
}

KNote fuse_note(Lower *l, NodeId id) {
  const KNote before = l->b.at;
  const Node *n = graph_node(l->f->g, id);
  l->b.at = (KNote){.span = n->span, .op = n->op};
  return before;
}

/* What the user calls it, or the operator that makes it. */
static const char *buffer_name(const Fuser *f, FValueId v) {
  if (!v) return "step";
  ValueId value = f->p->values.data[v].value;
  if (!value) return "parts";
  const Value *x = graph_value(f->g, value);
  return x->name ? x->name : op_name(graph_node(f->g, x->node)->op);
}

uint32_t fuse_buffer(Lower *l, FValueId v, DType dtype, bool written) {
  for (uint32_t i = 0; i < l->bufs.len; i++) {
    if (l->bufs.data[i] != v) continue;
    l->b.bufs.data[i].written |= written;
    return i;
  }
  VEC_PUSH(l->f->arena, &l->bufs, v);
  uint32_t b = kb_buf(&l->b, v ? KBUF_TENSOR : KBUF_STEP, dtype, written);
  l->b.buf_names.data[b] = buffer_name(l->f, v);
  return b;
}

KAccess fuse_access(Lower *l, uint32_t buf, const TensorType *t, const Ix *ix, KRef *dyn) {
  Fuser *f = l->f;
  SymId stride = SYM_ONE, offset = SYM_ZERO, at[DTM_MAX_DIMS] = {0};
  KRef extra = 0;
  for (uint32_t d = t->rank; d-- > 0;) {
    offset = add(f, offset, mul(f, stride, ix[d].offset));
    if (ix[d].dim >= 0) at[ix[d].dim] = add(f, at[ix[d].dim], mul(f, stride, ix[d].scale));
    if (ix[d].dyn) extra = sum(l, extra, fuse_scaled(l, ix[d].dyn, stride));
    /* around a dim without elements nothing is accessed: a stride of 0 would only say that all
     * elements of another dim have one place */
    SymId extent = sym_extent(f->arena, f->p, t, d);
    if (extent != SYM_ZERO) stride = mul(f, stride, extent);
  }
  KAccess a = kb_access(buf);
  a.offset = fuse_slot(l, offset);
  for (uint32_t d = 0; d < l->k->ndims; d++) a.stride[d] = fuse_slot(l, at[d]);
  *dyn = extra;
  return a;
}

KRef fuse_index_value(Lower *l, const Ix *ix, SymId shift) {
  SymId offset = add(l->f, ix->offset, shift);
  KRef v = 0;
  if (ix->dim >= 0 || !ix->dyn) {
    KAccess a = kb_access(0);
    a.offset = fuse_slot(l, offset);
    if (ix->dim >= 0) a.stride[ix->dim] = fuse_slot(l, ix->scale);
    v = kb_index(&l->b, a);
  } else if (offset != SYM_ZERO) {
    v = sym_value(l, offset);
  }
  return sum(l, v, ix->dyn);
}

static KRef integer(Lower *l, int64_t v) {
  return kb_const_int(&l->b, DT_I64, v);
}

/* abi_balanced_from */
static KRef natural_place(Lower *l, KRef place, int64_t extent, int64_t ranks) {
  KRef piece = sym_value(l, constant(l->f, extent / (2 * ranks))), two = integer(l, 2);
  KRef at = point2(l, OP_FLOOR_DIV, place, piece), off = point2(l, OP_REMAINDER, place, piece);
  KRef head = point2(l, OP_FLOOR_DIV, at, two);
  KRef tail = point2(l, OP_SUB, sym_value(l, constant(l->f, 2 * ranks - 1)), head);
  KRef odd = point2(l, OP_REMAINDER, at, two), one = integer(l, 1);
  KRef natural = kb_point(&l->b, OP_WHERE, point2(l, OP_EQ, odd, one), tail, head);
  return point2(l, OP_ADD, point2(l, OP_MUL, natural, piece), off);
}

KRef fuse_global_index(Lower *l, const TensorType *t, uint32_t d, const Ix *ix) {
  KRef place = fuse_index_value(l, ix, sym_offset(l->f->arena, l->f->p, t, d));
  return t->balanced[d] ? natural_place(l, place, t->shape[d], t->balanced[d]) : place;
}

KRef fuse_in_range(Lower *l, KRef index, SymId extent) {
  KRef low = point2(l, OP_GE, index, kb_const_int(&l->b, DT_I64, 0));
  return both(l, low, point2(l, OP_LT, index, sym_value(l, extent)));
}

/* --- operators ---- */

KRef fuse_operand_at(const Eval *e, uint32_t i, const Ix *ix, KRef pred) {
  return fuse_eval(e->l, e->n->operands[i], ix, pred);
}

static KRef literal(const Eval *e, DType dtype, double v) {
  return kb_const(&e->l->b, kernel_compute_type(dtype), v);
}

/* Operand i under broadcasting. */
static KRef broadcast(const Eval *e, uint32_t i) {
  const TensorType *t = operand_type(e, i);
  Ix ix[DTM_MAX_DIMS];
  for (uint32_t d = 0; d < t->rank; d++)
    ix[d] = t->shape[d] == 1 ? unit : e->ix[d + e->type->rank - t->rank];
  return fuse_operand_at(e, i, ix, e->pred);
}

static KRef eval_pointwise(const Eval *e) {
  KRef x[3] = {0};
  for (uint32_t i = 0; i < e->n->noperands; i++) x[i] = broadcast(e, i);
  if (e->n->op == OP_CAST) return kb_cast(&e->l->b, x[0], e->type->dtype);
  return kb_point(&e->l->b, e->n->op, x[0], x[1], x[2]);
}

/* Elements of the whole along `dim` before those of the micro-batch at hand; 0 where it has all. */
static KRef before_micro(const Eval *e, uint32_t dim) {
  Lower *l = e->l;
  const Attr *micro = node_attr(e->n, ATTR_MICRO);
  if (!micro || micro->as.ints.data[0] != dim) return 0;
  KAccess at = kb_access(fuse_buffer(l, 0, DT_I64, false));
  at.offset = fuse_slot(l, constant(l->f, 2)); /* AbiStep.micro */
  return fuse_scaled(l, kb_load(&l->b, at, 0, 0), constant(l->f, e->type->shape[dim]));
}

static KRef eval_factory(const Eval *e) {
  Lower *l = e->l;
  const Node *n = e->n;
  DType type = kernel_compute_type(e->type->dtype);
  if (n->op == OP_STEP) {
    KAccess a = kb_access(fuse_buffer(l, 0, DT_I64, false));
    a.offset = KINT_ONE;
    return kb_load(&l->b, a, 0, 0);
  }
  if (n->op == OP_CONST || n->op == OP_FULL)
    return kb_const(&l->b, type, node_float(n, ATTR_VALUE, 0));
  uint32_t dim = n->op == OP_IOTA ? (uint32_t)wrap_dim(node_int(n, ATTR_DIM, 0), e->type->rank) : 0;
  KRef number = fuse_global_index(l, e->type, dim, &e->ix[dim]);
  KRef at = kb_cast(&l->b, sum(l, number, before_micro(e, dim)), type);
  if (n->op == OP_IOTA) return at;
  KRef start = literal(e, type, node_float(n, ATTR_START_VALUE, 0));
  KRef step = literal(e, type, node_float(n, ATTR_STEP_VALUE, DEFAULT_STEP_VALUE));
  KRef v = point2(l, OP_ADD, start, point2(l, OP_MUL, at, step));
  if (n->op == OP_ARANGE) return v;
  return point2(l, OP_POW, literal(e, type, node_float(n, ATTR_BASE, DEFAULT_BASE)), v);
}

/* How many micro-batches make a whole. */
static int64_t micros(const Eval *e) {
  const Attr *micro = node_attr(e->n, ATTR_MICRO);
  return micro ? micro->as.ints.data[1] : 1;
}

/* The row-major number of the element in the whole tensor, its dims in their natural order. */
static KRef global_number(const Eval *e) {
  Lower *l = e->l;
  KAccess a = kb_access(0);
  SymId at[DTM_MAX_DIMS] = {0}, offset = SYM_ZERO, stride = SYM_ONE;
  KRef dyn = 0;
  for (uint32_t d = e->type->rank; d-- > 0;) {
    const Ix *ix = &e->ix[d];
    if (e->type->balanced[d]) {
      dyn = sum(l, dyn, fuse_scaled(l, fuse_global_index(l, e->type, d, ix), stride));
      stride = mul(l->f, stride, constant(l->f, e->type->shape[d]));
      continue;
    }
    SymId here = add(l->f, ix->offset, sym_offset(l->f->arena, l->f->p, e->type, d));
    offset = add(l->f, offset, mul(l->f, stride, here));
    if (ix->dim >= 0) at[ix->dim] = add(l->f, at[ix->dim], mul(l->f, stride, ix->scale));
    if (ix->dyn) dyn = sum(l, dyn, fuse_scaled(l, ix->dyn, stride));
    KRef before = before_micro(e, d);
    if (before) dyn = sum(l, dyn, fuse_scaled(l, before, stride));
    stride = mul(l->f, stride, constant(l->f, e->type->shape[d] * (before ? micros(e) : 1)));
  }
  a.offset = fuse_slot(l, offset);
  for (uint32_t d = 0; d < l->k->ndims; d++) a.stride[d] = fuse_slot(l, at[d]);
  return sum(l, kb_index(&l->b, a), dyn);
}

static KRef eval_random(const Eval *e) {
  Lower *l = e->l;
  const Node *n = e->n;
  bool normal = n->op == OP_RANDN;
  uint32_t step = fuse_buffer(l, 0, DT_I64, false);
  KInt instance = fuse_slot(l, constant(l->f, node_int(n, ATTR_INSTANCE, 0)));
  KRef number = global_number(e);
  KRef u = kb_random(&l->b, normal ? KRANDOM_NORMAL : KRANDOM_UNIFORM, instance, number, step);
  if (n->op == OP_RAND || normal) return kb_cast(&l->b, u, kernel_compute_type(e->type->dtype));
  /* Kept when the 24-bit draw reaches p: exact, so that every type has the same mask. */
  double p = node_float(n, ATTR_P, DEFAULT_P);
  KRef keep = point2(l, OP_GE, u, kb_const(&l->b, DT_F32, ceil(p * 0x1p24) * 0x1p-24));
  KRef x = fuse_operand_at(e, 0, e->ix, e->pred);
  KRef y = point2(l, OP_DIV, x, literal(e, e->type->dtype, 1 - p));
  return kb_point(&l->b, OP_WHERE, keep, y, literal(e, e->type->dtype, 0));
}

KRef fuse_guarded(const Eval *e, uint32_t i, const Ix *ix, KRef inside, double otherwise) {
  KRef x = fuse_operand_at(e, i, ix, both(e->l, e->pred, inside));
  return kb_point(&e->l->b, OP_WHERE, inside, x, literal(e, e->type->dtype, otherwise));
}

/* Loads an operand that lies in memory. */
static KRef load_operand(const Eval *e, uint32_t i, const Ix *ix, KRef pred) {
  Lower *l = e->l;
  ValueId v = fuse_storage(l->f, e->n->operands[i]);
  const TensorType *t = operand_type(e, i);
  KRef dyn;
  KAccess a = fuse_access(l, fuse_buffer(l, fuse_value(l->f, v), t->dtype, false), t, ix, &dyn);
  return kb_load(&l->b, a, dyn, pred);
}

/* Reads `x` along `dim` at a run-time global index; what is not on this rank reads as 0. */
static KRef load_indexed(const Eval *e, uint32_t x, uint32_t dim, Ix *ix, KRef index) {
  Lower *l = e->l;
  const TensorType *t = operand_type(e, x);
  SymId offset = sym_offset(l->f->arena, l->f->p, t, dim);
  index = kb_cast(&l->b, index, DT_I64);
  if (offset != SYM_ZERO) index = point2(l, OP_SUB, index, sym_value(l, offset));
  KRef inside = fuse_in_range(l, index, sym_extent(l->f->arena, l->f->p, t, dim));
  ix[dim] = (Ix){.dim = DIM_UNIT, .scale = SYM_ZERO, .offset = SYM_ZERO, .dyn = index};
  return load_operand(e, x, ix, both(l, e->pred, inside));
}

static KRef eval_embedding(const Eval *e) {
  Ix at[2] = {unit, e->ix[e->type->rank - 1]};
  return load_indexed(e, 1, 0, at, fuse_operand_at(e, 0, e->ix, e->pred));
}

static KRef eval_one_hot(const Eval *e) {
  Lower *l = e->l;
  uint32_t last = e->type->rank - 1;
  KRef id = kb_cast(&l->b, fuse_operand_at(e, 0, e->ix, e->pred), DT_I64);
  KRef hit = point2(l, OP_EQ, fuse_global_index(l, e->type, last, &e->ix[last]), id);
  return kb_cast(&l->b, hit, kernel_compute_type(e->type->dtype));
}

/* gather, index_select */
static KRef eval_gather(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  const Ix *index_ix = e->n->op == OP_GATHER ? e->ix : &e->ix[dim];
  return load_indexed(e, 0, dim, ix, fuse_operand_at(e, 1, index_ix, e->pred));
}

/* shard_slice: the part of a larger block; partial_fill: the value, or the neutral element. */
static KRef eval_local_comm(const Eval *e) {
  Lower *l = e->l;
  Fuser *f = l->f;
  const TensorType *from = operand_type(e, 0);
  Ix ix[DTM_MAX_DIMS];
  KRef inside = 0;
  memcpy(ix, e->ix, sizeof(Ix) * e->type->rank);
  for (uint32_t d = 0; d < from->rank; d++) {
    SymId to = sym_offset(f->arena, f->p, e->type, d), at = sym_offset(f->arena, f->p, from, d);
    if (to == at) continue;
    ix[d].offset = add(f, ix[d].offset, sym_binary(f->arena, f->p, RT_SYM_SUB, to, at));
    if (e->n->op == OP_SHARD_SLICE) continue;
    SymId extent = sym_extent(f->arena, f->p, from, d);
    inside = both(l, inside, fuse_in_range(l, fuse_index_value(l, &ix[d], SYM_ZERO), extent));
  }
  double neutral = 0;
  for (uint32_t a = 0; e->n->op == OP_PARTIAL_FILL && a < from->mesh->naxes; a++) {
    Place p = e->type->layout.at[a];
    bool keeps = p.op != REDUCE_SUM && p.op != REDUCE_PRODUCT && p.op != REDUCE_XOR;
    if (p.kind != PLACE_PARTIAL || from->layout.at[a].kind != PLACE_REPLICATE || keeps) continue;
    if (p.op == REDUCE_PRODUCT) neutral = 1;
    KRef coord = sym_value(l, sym_axis_coord(f->arena, f->p, from->mesh, a));
    inside = both(l, inside, point2(l, OP_EQ, coord, kb_const_int(&l->b, DT_I64, 0)));
  }
  if (!inside) return fuse_operand_at(e, 0, ix, e->pred);
  return fuse_guarded(e, 0, ix, inside, neutral);
}

/* Which element every operator has that a kernel computes one by one. One without a line here does
 * not compile. */
#define ELEMENT_SLICE fuse_eval_slice
#define ELEMENT_PAD fuse_eval_pad
#define ELEMENT_UNSLICE fuse_eval_unslice
#define ELEMENT_CONCAT fuse_eval_concat
#define ELEMENT_FLIP fuse_eval_flip
#define ELEMENT_ROLL fuse_eval_roll
#define ELEMENT_TRIL fuse_eval_triangle
#define ELEMENT_TRIU fuse_eval_triangle
#define ELEMENT_EMBEDDING eval_embedding
#define ELEMENT_GATHER eval_gather
#define ELEMENT_INDEX_SELECT eval_gather
#define ELEMENT_ONE_HOT eval_one_hot
#define ELEMENT_DROPOUT eval_random
#define ELEMENT_DROPOUT_BACKWARD eval_random
#define ELEMENT_RAND eval_random
#define ELEMENT_RANDN eval_random
#define ELEMENT_CONST eval_factory
#define ELEMENT_FULL eval_factory
#define ELEMENT_ARANGE eval_factory
#define ELEMENT_LOGSPACE eval_factory
#define ELEMENT_IOTA eval_factory
#define ELEMENT_STEP eval_factory
#define ELEMENT_SHARD_SLICE eval_local_comm
#define ELEMENT_PARTIAL_FILL eval_local_comm

static KRef compute(Lower *l, NodeId id, const Ix *ix, KRef pred) {
  static KRef (*const element[OP_COUNT])(const Eval *) = {
#define ROW_ELEMENT(ID) 0, ELEMENT_##ID
#define ROW_FREE(ID) 0, ELEMENT_##ID
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc) [OP_##ID] = eval_pointwise,
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc)                              \
  [OP_##ID] = OPS_PICK(ROW_##lower(ID), NULL),
#include "ops/ops.def"
#undef ROW_ELEMENT
#undef ROW_FREE
  };
  const Node *n = graph_node(l->f->g, id);
  Eval e = {.l = l, .n = n, .type = value_type(l->f->g, n->first_result), .ix = ix, .pred = pred};
  const KNote outer = fuse_note(l, id);
  KRef ref = element[n->op](&e);
  l->b.at = outer;
  return ref;
}

/* --- values ---- */

void fuse_memo(Lower *l, ValueId root, KRef ref, bool for_all) {
  id_map_put(l->f->arena, &l->memo, (uint64_t)(for_all ? 0 : l->block) << 32 | root, ref);
}

KRef fuse_recall(const Lower *l, ValueId root) {
  uint32_t ref;
  if (id_map_get(&l->memo, root, &ref)) return ref;
  if (id_map_get(&l->memo, (uint64_t)l->block << 32 | root, &ref)) return ref;
  return 0;
}

void fuse_node_ix(const Lower *l, NodeId id, Ix *ix) {
  const TensorType *t = fuse_iteration(l->f, id);
  for (uint32_t d = 0; d < t->rank; d++) {
    int8_t at = l->f->map[id].at[d];
    ix[d] = at < 0 ? unit : (Ix){.dim = at, .scale = SYM_ONE, .offset = SYM_ZERO};
  }
}

static bool canonical(const Lower *l, NodeId id, const Ix *ix, KRef pred) {
  if (pred || l->f->kind[id] != NODE_KERNEL || fuse_find(l->f, l->f->group[id]) != l->group)
    return false;
  Ix own[DTM_MAX_DIMS];
  fuse_node_ix(l, id, own);
  const TensorType *t = fuse_iteration(l->f, id);
  for (uint32_t d = 0; d < t->rank; d++)
    if (ix[d].dim != own[d].dim || ix[d].scale != own[d].scale || ix[d].offset != SYM_ZERO ||
        ix[d].dyn)
      return false;
  return true;
}

static KRef load_value(Lower *l, ValueId v, const Ix *ix, KRef pred) {
  const TensorType *t = value_type(l->f->g, v);
  KRef dyn;
  KAccess a = fuse_access(l, fuse_buffer(l, fuse_value(l->f, v), t->dtype, false), t, ix, &dyn);
  return kb_load(&l->b, a, dyn, pred);
}

/* Already written by this kernel in the type it is computed in: reading is cheaper. */
static bool in_memory(const Lower *l, ValueId root) {
  const TensorType *t = value_type(l->f->g, root);
  FValueId v = l->f->p->value_of[root];
  if (!v || kernel_compute_type(t->dtype) != t->dtype) return false;
  for (uint32_t i = 0; i < l->written.len; i++)
    if (l->written.data[i] == v) return true;
  return false;
}

const Spill *fuse_spilled(const Lower *l, ValueId root) {
  for (uint32_t i = 0; i < l->spills.len; i++)
    if (l->spills.data[i].value == root) return &l->spills.data[i];
  return NULL;
}

KRef fuse_eval(Lower *l, ValueId v, const Ix *ix, KRef pred) {
  Fuser *f = l->f;
  const Root *r = &f->root[v];
  Ix own[DTM_MAX_DIMS];
  for (uint32_t d = 0; d < value_type(f->g, r->value)->rank; d++) own[d] = unit;
  for (uint32_t d = 0; d < value_type(f->g, v)->rank; d++)
    if (r->dim.at[d] >= 0) own[r->dim.at[d]] = ix[d];
  if (!fuse_computed_in(f, r->value, l->group)) return load_value(l, r->value, own, pred);
  NodeId id = graph_value(f->g, r->value)->node;
  if (fuse_is_reduction(graph_node(f->g, id)->op))
    return fuse_reduced_domain(f, id) ? fuse_recall(l, r->value) : fuse_eval_node(l, id);
  bool home = canonical(l, id, own, pred);
  KRef ref = home ? fuse_recall(l, r->value) : 0;
  const Spill *spill = home && l->loop && !ref ? fuse_spilled(l, r->value) : NULL;
  if (spill) ref = kb_load(&l->b, spill->access, 0, 0);
  if (!ref)
    ref = home && in_memory(l, r->value) ? load_value(l, r->value, own, 0)
                                         : compute(l, id, own, pred);
  if (home) fuse_memo(l, r->value, ref, !l->loop);
  return ref;
}

KRef fuse_eval_node(Lower *l, NodeId id) {
  const Node *n = graph_node(l->f->g, id);
  Ix ix[DTM_MAX_DIMS];
  fuse_node_ix(l, id, ix);
  if (fuse_is_reduction(n->op)) return fuse_eval(l, n->operands[0], ix, 0);
  return fuse_eval(l, n->first_result, ix, 0);
}
