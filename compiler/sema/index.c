/* x[...]: elements and slices of tensors and lists, sub-meshes by name. */
#include <inttypes.h>

#include "sema/elab.h"

/* A bound of a slice: counted from the end when negative, `otherwise` when absent. Out of range is
 * an error: a static shape that is silently cut short is a mistake. */
static bool slice_bound(Sema *s, Env *env, const Expr *e, int64_t extent, int64_t otherwise,
                        int64_t *out) {
  *out = otherwise;
  if (!e) return true;
  Val v = eval(s, env, e);
  if (v.kind == VAL_POISON || !want_int(s, v, e->span, "a bound of a slice", out)) return false;
  int64_t given = *out;
  if (*out < 0) *out += extent;
  if (*out >= 0 && *out <= extent) return true;
  sema_error(s, DIAG_INDEX, e->span, "%" PRId64 " is outside the extent %" PRId64, given, extent);
  return false;
}

static bool slice_bounds(Sema *s, Env *env, const IndexItem *item, int64_t extent, int64_t *start,
                         int64_t *stop, int64_t *step) {
  *step = 1;
  bool ok = slice_bound(s, env, item->start, extent, 0, start);
  ok &= slice_bound(s, env, item->stop, extent, extent, stop);
  if (item->step) {
    Val v = eval(s, env, item->step);
    if (v.kind == VAL_POISON || !want_int(s, v, item->step->span, "the step of a slice", step))
      return false;
    if (*step < 1) {
      sema_error(s, DIAG_INDEX, item->step->span, "the step of a slice must be positive");
      return false;
    }
  }
  if (ok && *stop < *start) *stop = *start;
  return ok;
}

static bool element_index(Sema *s, Val v, Span span, int64_t extent, int64_t *out) {
  if (!want_int(s, v, span, "an index", out)) return false;
  int64_t given = *out;
  if (*out < 0) *out += extent;
  if (*out >= 0 && *out < extent) return true;
  sema_error(s, DIAG_INDEX, span, "index %" PRId64 " is outside the extent %" PRId64, given,
             extent);
  return false;
}

static Val index_list(Sema *s, Env *env, const List *list, const Expr *e) {
  if (e->as.index.items.len != 1) {
    sema_error(s, DIAG_INDEX, e->span, "a list has one index");
    return POISON;
  }
  const IndexItem *item = &e->as.index.items.data[0];
  int64_t start, stop, step;
  if (!item->is_slice) {
    Val v = eval(s, env, item->start);
    if (v.kind == VAL_POISON || !element_index(s, v, item->span, list->len, &start)) return POISON;
    return list->data[start];
  }
  if (!slice_bounds(s, env, item, list->len, &start, &stop, &step)) return POISON;
  List *out = list_new(s, (uint32_t)((stop - start + step - 1) / step));
  for (uint32_t i = 0; i < out->len; i++) out->data[i] = list->data[start + i * step];
  return val_list(out);
}

/* One item of x[...] applied to dim `*dim` of x, which moves to the next dim. */
static Val index_dim(Sema *s, Env *env, Val x, const IndexItem *item, int64_t *dim, Span span) {
  const TensorType *t = value_type(s->at.graph, x.as.tensor);
  if (item->is_slice) {
    int64_t extent = t->shape[*dim], start, stop, step;
    if (!slice_bounds(s, env, item, extent, &start, &stop, &step)) return POISON;
    Attr attrs[] = {ATTR_I(DIM, *dim), ATTR_I(START, start), ATTR_I(STOP, stop),
                    ATTR_I(STEP, step)};
    ++*dim;
    if (start == 0 && stop == extent && step == 1) return x;
    return emit1(s, OP_SLICE, x.as.tensor, attrs, 4, span);
  }
  Val v = eval(s, env, item->start);
  if (v.kind == VAL_POISON) return v;
  if (v.kind == VAL_NONE)
    return emit1(s, OP_UNSQUEEZE, x.as.tensor, (Attr[]){ATTR_I(DIM, (*dim)++)}, 1, span);
  if (val_is_tensor(v)) {
    ValueId ids[] = {x.as.tensor, 0};
    if (!as_tensor(s, v, item->span, "an index", &ids[1])) return POISON;
    Attr attr = ATTR_I(DIM, (*dim)++);
    return emit(s, OP_INDEX_SELECT, ids, 2, &attr, 1, span, NULL);
  }
  int64_t i;
  if (!element_index(s, v, item->span, t->shape[*dim], &i)) return POISON;
  if (t->shape[*dim] != 1) {
    Attr attrs[] = {ATTR_I(DIM, *dim), ATTR_I(START, i), ATTR_I(STOP, i + 1)};
    x = emit1(s, OP_SLICE, x.as.tensor, attrs, 3, span);
  }
  if (x.kind == VAL_POISON) return x;
  return emit1(s, OP_SQUEEZE, x.as.tensor, (Attr[]){ATTR_I(DIM, *dim)}, 1, span);
}

static Val index_tensor(Sema *s, Env *env, Val base, const Expr *e) {
  ValueId id;
  if (!as_tensor(s, base, e->as.index.base->span, "what is indexed", &id)) return POISON;
  Val x = val_tensor(id);
  int64_t dim = 0;
  s->at.operand = e->as.index.base->span;
  for (uint32_t i = 0; i < e->as.index.items.len && x.kind != VAL_POISON; i++) {
    const IndexItem *item = &e->as.index.items.data[i];
    uint32_t rank = value_type(s->at.graph, x.as.tensor)->rank;
    bool inserts = !item->is_slice && item->start && item->start->kind == EXPR_NONE;
    if (!inserts && dim >= rank) {
      sema_error(s, DIAG_INDEX, item->span, "the tensor has only %u dims",
                 value_type(s->at.graph, id)->rank);
      return POISON;
    }
    x = index_dim(s, env, x, item, &dim, e->span);
    s->at.operand = (Span){0}; /* later items work on what the first made */
  }
  return x;
}

Val eval_index(Sema *s, Env *env, const Expr *e) {
  Val base = eval(s, env, e->as.index.base);
  if (base.kind == VAL_POISON) return base;
  if (base.kind == VAL_LIST) return index_list(s, env, base.as.list, e);
  if (val_is_tensor(base)) return index_tensor(s, env, base, e);
  if (base.kind == VAL_MESH) {
    Val axes[DTM_MAX_AXES];
    uint32_t n = e->as.index.items.len;
    if (n > DTM_MAX_AXES) n = DTM_MAX_AXES;
    for (uint32_t i = 0; i < n; i++) {
      axes[i] = eval(s, env, e->as.index.items.data[i].start);
      if (axes[i].kind == VAL_POISON) return POISON;
    }
    const Mesh *m = mesh_select(s, base.as.mesh, axes, n, e->span);
    return m ? (Val){.kind = VAL_MESH, .as.mesh = m} : POISON;
  }
  sema_error(s, DIAG_VALUE_KIND, e->span, "%s cannot be indexed", val_kind_name(base));
  return POISON;
}
