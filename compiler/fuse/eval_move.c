/* Movement as a change of index: the value at an index of the result is the operand's at another.
 */
#include "fuse/eval.h"

KRef fuse_eval_pad(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  int64_t before = node_int(e->n, ATTR_BEFORE, 0);
  ix[dim].offset = add(e->l->f, ix[dim].offset, constant(e->l->f, -before));
  SymId extent = sym_extent(e->l->f->arena, e->l->f->p, operand_type(e, 0), dim);
  KRef inside = fuse_in_range(e->l, fuse_index_value(e->l, &ix[dim], SYM_ZERO), extent);
  return fuse_guarded(e, 0, ix, inside, node_float(e->n, ATTR_VALUE, 0));
}

KRef fuse_eval_unslice(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  Lower *l = e->l;
  int64_t step = node_int(e->n, ATTR_STEP, DEFAULT_STEP), start = node_int(e->n, ATTR_START, 0);
  KRef past = fuse_index_value(l, &ix[dim], constant(l->f, -start));
  KRef by = kb_const_int(&l->b, DT_I64, step);
  SymId extent = sym_extent(l->f->arena, l->f->p, operand_type(e, 0), dim);
  if (step == 1) {
    ix[dim].offset = add(l->f, ix[dim].offset, constant(l->f, -start));
    return fuse_guarded(e, 0, ix, fuse_in_range(l, past, extent), 0);
  }
  KRef from = point2(l, OP_FLOOR_DIV, past, by);
  KRef whole = point2(l, OP_EQ, point2(l, OP_MUL, from, by), past);
  ix[dim] = (Ix){.dim = DIM_UNIT, .scale = SYM_ZERO, .offset = SYM_ZERO, .dyn = from};
  return fuse_guarded(e, 0, ix, both(l, whole, fuse_in_range(l, from, extent)), 0);
}

KRef fuse_eval_roll(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  Lower *l = e->l;
  int64_t n = operand_type(e, 0)->shape[dim];
  int64_t shift = n ? ((node_int(e->n, ATTR_SHIFT, 0) % n) + n) % n : 0;
  if (shift == 0) return fuse_operand_at(e, 0, ix, e->pred);
  KRef at = fuse_index_value(l, &ix[dim], SYM_ZERO);
  KRef early = point2(l, OP_LT, at, kb_const_int(&l->b, DT_I64, shift));
  KRef whole = kb_const_int(&l->b, DT_I64, n), none = kb_const_int(&l->b, DT_I64, 0);
  KRef turn = kb_point(&l->b, OP_WHERE, early, whole, none);
  ix[dim].offset = add(l->f, ix[dim].offset, constant(l->f, -shift));
  ix[dim].dyn = sum(l, ix[dim].dyn, turn);
  return fuse_operand_at(e, 0, ix, e->pred);
}

KRef fuse_eval_concat(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  Lower *l = e->l;
  int64_t start = 0;
  SymId own = ix[dim].offset;
  KRef v = 0, at = fuse_index_value(l, &ix[dim], SYM_ZERO);
  for (uint32_t i = 0; i < e->n->noperands; i++) {
    int64_t end = start + operand_type(e, i)->shape[dim];
    KRef inside = point2(l, OP_LT, at, kb_const_int(&l->b, DT_I64, end));
    if (start) inside = both(l, inside, point2(l, OP_GE, at, kb_const_int(&l->b, DT_I64, start)));
    ix[dim].offset = add(l->f, own, constant(l->f, -start));
    KRef x = fuse_operand_at(e, i, ix, both(l, e->pred, inside));
    v = v ? kb_point(&l->b, OP_WHERE, inside, x, v) : x;
    start = end;
  }
  return v;
}

KRef fuse_eval_triangle(const Eval *e) {
  uint32_t r = e->type->rank;
  KRef row = fuse_global_index(e->l, e->type, r - 2, &e->ix[r - 2]);
  KRef col = fuse_global_index(e->l, e->type, r - 1, &e->ix[r - 1]);
  KRef limit = kb_const_int(&e->l->b, DT_I64, node_int(e->n, ATTR_DIAGONAL, 0));
  KRef inside =
      point2(e->l, e->n->op == OP_TRIL ? OP_LE : OP_GE, point2(e->l, OP_SUB, col, row), limit);
  return fuse_guarded(e, 0, e->ix, inside, 0);
}

KRef fuse_eval_flip(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  copy_index(e, ix);
  const Attr *dims = node_attr(e->n, ATTR_DIMS);
  Fuser *f = e->l->f;
  for (uint32_t i = 0; i < dims->as.ints.len; i++) {
    Ix *x = &ix[wrap_dim(dims->as.ints.data[i], e->type->rank)];
    uint32_t d = (uint32_t)(x - ix);
    int64_t last = operand_type(e, 0)->shape[d] - 1;
    SymId from = constant(f, last), back = constant(f, -1);
    x->scale = mul(f, x->scale, back);
    x->offset = add(f, from, mul(f, x->offset, back));
    if (x->dyn) x->dyn = kb_point(&e->l->b, OP_NEG, x->dyn, 0, 0);
  }
  return fuse_operand_at(e, 0, ix, e->pred);
}

KRef fuse_eval_slice(const Eval *e) {
  Ix ix[DTM_MAX_DIMS];
  uint32_t dim = copy_index(e, ix);
  Fuser *f = e->l->f;
  SymId start = constant(f, node_int(e->n, ATTR_START, 0));
  SymId step = constant(f, node_int(e->n, ATTR_STEP, DEFAULT_STEP));
  Ix *x = &ix[dim];
  x->scale = mul(f, x->scale, step);
  x->offset = add(f, start, mul(f, x->offset, step));
  if (x->dyn) x->dyn = fuse_scaled(e->l, x->dyn, step);
  return fuse_operand_at(e, 0, ix, e->pred);
}
