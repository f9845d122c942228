/* Blocks of a value as a stack, and back: see region.h. */
#include <string.h>

#include "sema/region.h"

Region region_of_mesh(const Mesh *mesh, const char *what) {
  Region r = {.what = what, .mesh = mesh, .nlead = mesh->naxes};
  for (uint32_t a = 0; a < mesh->naxes; a++) r.axis[a] = (uint8_t)a;
  return r;
}

static bool enterable(Sema *s, const Region *r, const TensorType *t, Span span) {
  if (t->mesh != r->mesh) {
    Diag *d = sema_error(s, DIAG_MESH_MISMATCH, span, "what enters %s is on one mesh", r->what);
    diag_label(s->sink, d, "this is on %s", t->mesh->name);
    diag_reason(s->sink, d, "the code of one rank runs on the ranks of %s", r->mesh->name);
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "move the value before, with .redistribute(mesh = %s), or say `on %s` behind the "
              "layout that is stated",
              r->mesh->name, t->mesh->name);
    return false;
  }
  if (layout_has_partial(&t->layout)) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, span, "a Partial value has no block of its own");
    diag_label(s->sink, d, "this is %s", type_print(s->arena, t));
    diag_reason(s->sink, d,
                "only the reduction of its addends is a value; how it is shared out between the "
                "ranks may change");
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "reduce it first, with redistribute");
    return false;
  }
  for (uint32_t d = 0; d < t->rank; d++) {
    if (t->balanced[d]) {
      Diag *diag = sema_error(s, DIAG_SEQUENCE_ORDER, span, "dim %u is in balanced order here", d);
      diag_label(s->sink, diag, "this is %s", type_print(s->arena, t));
      diag_reason(s->sink, diag, "code for one rank knows nothing of an order over all ranks");
      diag_help(s->sink, diag, (Span){0}, NULL, NULL, "unbalance(x, %u) restores the order", d);
      return false;
    }
    int64_t ways = layout_dim_ways(&t->layout, t->mesh, d);
    if (t->shape[d] % ways == 0) continue;
    Diag *diag = sema_error(s, DIAG_LOCAL_BLOCK, span, "the blocks of dim %u are uneven", d);
    diag_label(s->sink, diag, "this is %s", type_print(s->arena, t));
    diag_reason(s->sink, diag,
                "%lld elements over %lld ranks; code for one rank has one shape, so every rank "
                "must hold as many",
                (long long)t->shape[d], (long long)ways);
    diag_help(s->sink, diag, (Span){0}, NULL, NULL,
              "pad the dim to a multiple of %lld, or redistribute it to Replicate before",
              (long long)ways);
    return false;
  }
  return true;
}

ValueId stack_enter(Sema *s, const Region *r, ValueId x, Span span, TensorType *block) {
  const TensorType t = *value_type(s->at.graph, x);
  if (!enterable(s, r, &t, span)) return 0;
  *block = (TensorType){.dtype = t.dtype, .rank = t.rank, .mesh = t.mesh};
  /* every dim into one dim for each mesh dim that cuts it, outermost first, and its block */
  int64_t split[2 * DTM_MAX_DIMS], order[2 * DTM_MAX_DIMS], shape[2 * DTM_MAX_DIMS];
  int64_t lead_at[DTM_MAX_AXES], block_at[DTM_MAX_DIMS];
  uint32_t n = 0, m = 0;
  memset(lead_at, -1, sizeof lead_at);
  for (uint32_t d = 0; d < t.rank; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t naxes = layout_dim_axes(&t.layout, d, axes);
    for (uint32_t i = 0; i < naxes; i++) {
      lead_at[axes[i]] = n;
      split[n++] = t.mesh->size[axes[i]];
    }
    block->shape[d] = t.shape[d] / layout_dim_ways(&t.layout, t.mesh, d);
    block_at[d] = n;
    split[n++] = block->shape[d];
  }
  for (uint32_t k = 0; k < r->nlead; k++)
    if (lead_at[r->axis[k]] >= 0) order[m++] = lead_at[r->axis[k]];
  for (uint32_t d = 0; d < t.rank; d++) order[m++] = block_at[d];
  for (uint32_t k = 0; k < r->nlead; k++)
    shape[k] = lead_at[r->axis[k]] >= 0 ? r->mesh->size[r->axis[k]] : 1;
  for (uint32_t d = 0; d < t.rank; d++) shape[r->nlead + d] = block->shape[d];
  ValueId y = stack_reshape(s, x, split, n, span);
  if (y) y = stack_permute(s, y, order, n, span);
  return stack_reshape(s, y, shape, r->nlead + t.rank, span);
}

/* --- back --------------------------------------------------------------------------------------
 */

typedef struct Leave {
  Sema *s;
  const Region *r;
  const TensorType *to;
  Claim claim;
  Span span;
  ValueId x;
} Leave;

static Op reduction_of(ReduceOp op) {
  switch (op) {
  case REDUCE_SUM:
    return OP_SUM;
  case REDUCE_PRODUCT:
    return OP_PROD;
  case REDUCE_MAX:
    return OP_MAX;
  case REDUCE_MIN:
    return OP_MIN;
  case REDUCE_NONE:
  case REDUCE_AVG:
  case REDUCE_AND:
  case REDUCE_OR:
  case REDUCE_XOR:
  case REDUCE_COUNT:
    break;
  }
  return OP_NONE;
}

/* The block of coordinate 0 of the mesh dim of lead k, sent to all. */
static ValueId first_block(Leave *l, uint32_t k) {
  Sema *s = l->s;
  TensorType t = *value_type(s->at.graph, l->x), index = t;
  index.dtype = DT_I32;
  index.layout = (Layout){0};
  for (uint32_t d = 0; d < t.rank; d++) index.shape[d] = d == k ? t.shape[k] : 1;
  layout_set(&index.layout, t.mesh, l->r->axis[k], PLACE_SHARD, k, REDUCE_NONE);
  Attr attrs[] = {ATTR_T(TYPE, &index), ATTR_I(DIM, k)};
  Val i = emit(s, OP_IOTA, NULL, 0, attrs, 2, l->span, NULL);
  if (i.kind == VAL_POISON) return 0;
  Val is_first = emit2(s, OP_EQ, i.as.tensor, emit_const(s, DT_I32, 0, t.mesh, l->span), l->span);
  if (is_first.kind == VAL_POISON) return 0;
  ValueId choose[] = {is_first.as.tensor, l->x, emit_const(s, t.dtype, 0, t.mesh, l->span)};
  Val kept = emit(s, OP_WHERE, choose, 3, NULL, 0, l->span, NULL);
  if (kept.kind == VAL_POISON) return 0;
  ValueId sum = stack_reduce(s, t.dtype == DT_BOOL ? OP_ANY : OP_SUM, kept.as.tensor, &(int64_t){k},
                             1, true, l->span);
  if (!sum) return 0;
  TensorType whole = *value_type(s->at.graph, sum);
  whole.layout.at[l->r->axis[k]] = (Place){0};
  Val v = emit_redistribute(s, sum, &whole, l->span);
  return v.kind == VAL_POISON ? 0 : v.as.tensor;
}

/* Lead k varies and the type says that it does not. */
static bool claim_lead(Leave *l, uint32_t k) {
  Sema *s = l->s;
  const char *axis = l->r->mesh->axis[l->r->axis[k]];
  if (l->claim == CLAIM_REFUSED) {
    Diag *d = sema_error(s, DIAG_LOCAL_VARIES, l->span,
                         "the result may differ between the ranks of mesh dim %s", axis);
    diag_reason(s->sink, d, "its type %s says that they all hold the same",
                type_print(s->arena, l->to));
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "reduce it in the region with all_reduce(x, %s), or state run_check = true and the "
              "run compares the ranks",
              axis);
    return false;
  }
  ValueId first = l->claim == CLAIM_CHECKED ? first_block(l, k) : 0;
  if (l->claim == CLAIM_CHECKED && !first) return false;
  Val v = emit(s, OP_REPLICA, &l->x, 1, (Attr[]){ATTR_I(DIM, k)}, 1, l->span, NULL);
  if (first && v.kind != VAL_POISON)
    v = emit(s, OP_SAME_AS, (ValueId[]){v.as.tensor, first}, 2, NULL, 0, l->span, NULL);
  l->x = v.kind == VAL_POISON ? 0 : v.as.tensor;
  return l->x != 0;
}

/* Lead k becomes an addend per rank, pending. */
static bool reduce_lead(Leave *l, uint32_t k, ReduceOp op) {
  Sema *s = l->s;
  Op how = reduction_of(op);
  if (how == OP_NONE) {
    Diag *d = sema_error(s, DIAG_LOCAL_BLOCK, l->span, "a region does not leave Partial(%s)",
                         reduce_op_name(op));
    diag_reason(s->sink, d, "sum, product, max and min are what a block can be an addend of");
    return false;
  }
  l->x = stack_spread(s, l->r, l->x, k, l->span);
  if (l->x) l->x = stack_reduce(s, how, l->x, &(int64_t){k}, 1, true, l->span);
  return l->x != 0;
}

/* The blocks are those of the stated type on every rank. */
static bool check_block(Leave *l) {
  const TensorType *t = value_type(l->s->at.graph, l->x), *to = l->to;
  uint32_t lead = l->r->nlead;
  bool fits = t->rank - lead == to->rank, even = true;
  TensorType block = {.dtype = t->dtype, .rank = t->rank - lead, .mesh = t->mesh};
  TensorType want = {.dtype = to->dtype, .rank = to->rank, .mesh = to->mesh};
  memcpy(block.shape, t->shape + lead, block.rank * sizeof *block.shape);
  for (uint32_t d = 0; d < to->rank; d++) {
    int64_t ways = layout_dim_ways(&to->layout, to->mesh, d);
    even &= to->shape[d] % ways == 0;
    want.shape[d] = to->shape[d] / ways;
    fits &= d < block.rank && block.shape[d] == want.shape[d];
  }
  if (fits && even && block.dtype == want.dtype) return true;
  Diag *d = sema_error(l->s, DIAG_LOCAL_BLOCK, l->span, "the block is not one of the stated type");
  diag_label(l->s->sink, d, "each rank has %s", type_print(l->s->arena, &block));
  if (even)
    diag_reason(l->s->sink, d, "a block of %s is %s", type_print(l->s->arena, to),
                type_print(l->s->arena, &want));
  else
    diag_reason(l->s->sink, d, "the blocks of %s are uneven; every rank has as many elements",
                type_print(l->s->arena, to));
  return false;
}

ValueId stack_leave(Sema *s, const Region *r, ValueId x, const TensorType *to, Claim claim,
                    Span span, bool *claimed) {
  Leave l = {.s = s, .r = r, .to = to, .claim = claim, .span = span, .x = x};
  *claimed = false;
  if (!x || !check_block(&l)) return 0;
  int64_t shape[2 * DTM_MAX_DIMS], order[2 * DTM_MAX_DIMS], at[DTM_MAX_AXES];
  uint32_t n = 0, m = 0;
  for (uint32_t k = 0; k < r->nlead; k++) {
    Place p = to->layout.at[r->axis[k]];
    bool varies = value_type(s->at.graph, l.x)->shape[k] > 1, ok = true;
    if (p.kind == PLACE_SHARD) {
      l.x = stack_spread(s, r, l.x, k, span);
      ok = l.x != 0;
      at[r->axis[k]] = n;
      shape[n++] = r->mesh->size[r->axis[k]];
    } else if (p.kind == PLACE_PARTIAL) {
      ok = reduce_lead(&l, k, (ReduceOp)p.op);
    } else if (varies) {
      *claimed = true;
      ok = claim_lead(&l, k);
    }
    if (!ok) return 0;
  }
  uint32_t shards = n;
  for (uint32_t d = 0; d < to->rank; d++)
    shape[n++] = to->shape[d] / layout_dim_ways(&to->layout, to->mesh, d);
  for (uint32_t d = 0; d < to->rank; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t naxes = layout_dim_axes(&to->layout, d, axes);
    for (uint32_t i = 0; i < naxes; i++) order[m++] = at[axes[i]];
    order[m++] = shards + d;
  }
  ValueId y = stack_reshape(s, l.x, shape, n, span);
  if (y) y = stack_permute(s, y, order, n, span);
  return stack_reshape(s, y, to->shape, to->rank, span);
}
