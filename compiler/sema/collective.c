/* Collectives by name in local regions, and the ways in and out without one: to_local, from_local.
 * See region.h.
 */
#include <string.h>

#include "sema/builtin.h"
#include "sema/region.h"

/* --- in regions --------------------------------------------------------------------------------
 */

typedef struct Collective {
  Region *r;
  ValueId stack;
  TensorType block; /* of the operand */
  int lead;         /* -1: the mesh dim has size 1 */
  int64_t ways;
  int64_t dim[2];
} Collective;

static bool in_region(Sema *s, const Call *call) {
  if (s->at.region) return true;
  Diag *d =
      sema_error(s, DIAG_LOCAL_REGION, call->span, "%s belongs into a local region", call->name);
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "outside regions the one verb of communication is redistribute");
  return false;
}

static bool find_axis(Sema *s, Val v, Span span, Collective *c) {
  int axis;
  c->r = s->at.region;
  if (!want_axis(s, v, c->r->mesh, span, false, &axis)) return false;
  c->lead = axis < 0 ? -1 : region_lead(c->r, (uint32_t)axis);
  c->ways = axis < 0 ? 1 : c->r->mesh->size[axis];
  return true;
}

/* NAME(x, axis, dims...): with the stack of x varying along the axis. */
static bool begin(Sema *s, const Call *call, const char *words, uint32_t ndims, Collective *c,
                  Val *v, Span *at) {
  ValueId x;
  if (!bind_words(s, call, words, v, at) || !in_region(s, call) ||
      !as_tensor(s, v[0], at[0], "the operand", &x) || !find_axis(s, v[1], at[1], c))
    return false;
  c->block = *value_type(s->at.graph, x);
  for (uint32_t i = 0; i < ndims; i++) {
    c->dim[i] = 0;
    if (v[2 + i].kind != VAL_UNSET && !want_int(s, v[2 + i], at[2 + i], "dim", &c->dim[i]))
      return false;
    if (!normal_dim(&c->dim[i], c->block.rank)) {
      sema_error(s, DIAG_INDEX, at[2 + i], "the block has %u dims", c->block.rank);
      return false;
    }
  }
  c->stack = region_stack(s, c->r, x, call->span);
  return c->stack != 0;
}

static Val finish(Sema *s, const Collective *c, ValueId y, Span span) {
  return y ? val_tensor(region_leaf(s, c->r, y, span)) : POISON;
}

/* The layout of `x` with lead `lead` (or none, -1) cut by the axis. */
static ValueId move_axis(Sema *s, const Collective *c, ValueId x, int dim, Span span) {
  if (!x) return 0;
  uint32_t axis = c->r->axis[c->lead];
  TensorType to = *value_type(s->at.graph, x);
  layout_set(&to.layout, to.mesh, axis, dim < 0 ? PLACE_REPLICATE : PLACE_SHARD,
             dim < 0 ? 0 : (uint32_t)dim, REDUCE_NONE);
  Val v = emit_redistribute(s, x, &to, span);
  return v.kind == VAL_POISON ? 0 : v.as.tensor;
}

/* Dim `from` moves before dim `dim` and joins it. */
static ValueId join(Sema *s, ValueId x, uint32_t from, uint32_t dim, Span span) {
  if (!x) return 0;
  const TensorType t = *value_type(s->at.graph, x);
  int64_t order[DTM_MAX_DIMS] = {0}, shape[DTM_MAX_DIMS + 1];
  uint32_t n = 0, m = 0;
  for (uint32_t d = 0; d < t.rank; d++) {
    if (d == dim) order[n++] = from;
    if (d != from) order[n++] = d;
  }
  ValueId y = stack_permute(s, x, order, n, span);
  for (uint32_t d = 0; d < t.rank; d++)
    if (d != from) shape[m++] = d == dim ? t.shape[d] * t.shape[from] : t.shape[d];
  return stack_reshape(s, y, shape, m, span);
}

/* Dim `dim` of the stack into [ways, rest]. */
static ValueId divide(Sema *s, const Collective *c, ValueId x, uint32_t dim, Span span) {
  if (!x) return 0;
  const TensorType t = *value_type(s->at.graph, x);
  int64_t shape[DTM_MAX_DIMS + 1];
  uint32_t n = 0;
  for (uint32_t d = 0; d < t.rank; d++) {
    if (d == dim) shape[n++] = c->ways;
    shape[n++] = d == dim ? t.shape[d] / c->ways : t.shape[d];
  }
  return stack_reshape(s, x, shape, n, span);
}

static bool divisible(Sema *s, const Collective *c, int64_t dim, Span span) {
  if (c->block.shape[dim] % c->ways == 0) return true;
  sema_error(s, DIAG_LOCAL_BLOCK, span, "dim %lld of the block has %lld elements for %lld ranks",
             (long long)dim, (long long)c->block.shape[dim], (long long)c->ways);
  return false;
}

static bool reduction(Sema *s, Val v, Span span, Op *op) {
  static const struct {
    const char *name;
    Op op;
  } known[] = {{"sum", OP_SUM}, {"product", OP_PROD}, {"max", OP_MAX}, {"min", OP_MIN}};
  const char *name = "sum";
  if (v.kind != VAL_UNSET && !want_string(s, v, span, "op", &name)) return false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) {
      *op = known[i].op;
      return true;
    }
  sema_error(s, DIAG_VALUE_KIND, span, "op is \"sum\", \"product\", \"max\" or \"min\"");
  return false;
}

Val builtin_all_reduce(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  Collective c;
  Op op;
  if (!begin(s, call, "x axis op?", 0, &c, v, at) || !reduction(s, v[2], at[2], &op)) return POISON;
  if (c.lead < 0) return v[0];
  State inside = region_outside(s, c.r);
  ValueId y = stack_spread(s, c.r, c.stack, (uint32_t)c.lead, call->span);
  if (y) y = stack_reduce(s, op, y, &(int64_t){c.lead}, 1, true, call->span);
  y = move_axis(s, &c, y, -1, call->span);
  region_inside(s, &inside);
  return finish(s, &c, y, call->span);
}

Val builtin_all_gather(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  Collective c;
  if (!begin(s, call, "x axis dim?", 1, &c, v, at)) return POISON;
  if (c.lead < 0) return v[0];
  State inside = region_outside(s, c.r);
  uint32_t lead = (uint32_t)c.lead, nlead = c.r->nlead;
  ValueId y = stack_spread(s, c.r, c.stack, lead, call->span);
  y = join(s, move_axis(s, &c, y, -1, call->span), lead, nlead + (uint32_t)c.dim[0], call->span);
  /* one lead is gone: put it back with extent 1 */
  if (y) {
    const TensorType t = *value_type(s->at.graph, y);
    int64_t shape[DTM_MAX_DIMS + 1];
    for (uint32_t d = 0; d <= t.rank; d++)
      shape[d] = d < lead ? t.shape[d] : d == lead ? 1 : t.shape[d - 1];
    y = stack_reshape(s, y, shape, t.rank + 1, call->span);
  }
  region_inside(s, &inside);
  return finish(s, &c, y, call->span);
}

Val builtin_reduce_scatter(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  Collective c;
  if (!begin(s, call, "x axis dim?", 1, &c, v, at) || !divisible(s, &c, c.dim[0], call->span))
    return POISON;
  if (c.lead < 0) return v[0];
  State inside = region_outside(s, c.r);
  uint32_t lead = (uint32_t)c.lead, nlead = c.r->nlead;
  ValueId y = stack_spread(s, c.r, c.stack, lead, call->span);
  if (y) y = stack_reduce(s, OP_SUM, y, &(int64_t){lead}, 1, false, call->span);
  /* the parts of the block take the place of the lead */
  uint32_t part = nlead - 1 + (uint32_t)c.dim[0];
  y = divide(s, &c, y, part, call->span);
  if (y) {
    uint32_t rank = value_type(s->at.graph, y)->rank, n = 0;
    int64_t order[DTM_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < rank; d++) {
      if (n == lead) order[n++] = part;
      if (d != part) order[n++] = d;
    }
    if (n == lead) order[n++] = part;
    y = move_axis(s, &c, stack_permute(s, y, order, n, call->span), (int)lead, call->span);
  }
  region_inside(s, &inside);
  return finish(s, &c, y, call->span);
}

Val builtin_all_to_all(Sema *s, const Call *call) {
  Val v[4];
  Span at[4];
  Collective c;
  if (!begin(s, call, "x axis split concat", 2, &c, v, at) ||
      !divisible(s, &c, c.dim[0], call->span))
    return POISON;
  if (c.lead < 0) return v[0];
  State inside = region_outside(s, c.r);
  uint32_t lead = (uint32_t)c.lead, nlead = c.r->nlead, part = nlead + (uint32_t)c.dim[0];
  ValueId y = stack_spread(s, c.r, c.stack, lead, call->span);
  y = move_axis(s, &c, divide(s, &c, y, part, call->span), (int)part, call->span);
  if (y) {
    /* the parts and the senders change places; senders then join the dim that grows */
    uint32_t rank = value_type(s->at.graph, y)->rank;
    int64_t order[DTM_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < rank; d++) order[d] = d == lead ? part : d == part ? lead : d;
    y = stack_permute(s, y, order, rank, call->span);
    uint32_t to = nlead + (uint32_t)c.dim[1] + (c.dim[1] >= c.dim[0]);
    y = join(s, y, part, to, call->span);
  }
  region_inside(s, &inside);
  return finish(s, &c, y, call->span);
}

Val builtin_coordinate(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  Collective c;
  if (!bind_words(s, call, "axis", v, at) || !in_region(s, call) || !find_axis(s, v[0], at[0], &c))
    return POISON;
  if (c.lead < 0) return val_tensor(emit_const(s, DT_I64, 0, c.r->mesh, call->span));
  TensorType t = {.dtype = DT_I64, .rank = c.r->nlead, .mesh = c.r->mesh};
  for (uint32_t k = 0; k < t.rank; k++) t.shape[k] = 1;
  t.shape[c.lead] = c.ways;
  layout_set(&t.layout, t.mesh, c.r->axis[c.lead], PLACE_SHARD, (uint32_t)c.lead, REDUCE_NONE);
  State inside = region_outside(s, c.r);
  Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_I(DIM, c.lead)};
  Val y = emit(s, OP_IOTA, NULL, 0, attrs, 2, call->span, NULL);
  region_inside(s, &inside);
  return y.kind == VAL_POISON ? y : finish(s, &c, y.as.tensor, call->span);
}

/* --- without a region --------------------------------------------------------------------------
 */

/* grad = layout: what the gradient of x is; it follows from x, so it is checked. */
static bool check_grad(Sema *s, Val v, Span span, const TensorType *x) {
  TensorType g = *x;
  if (v.kind == VAL_UNSET) return true;
  if (!apply_layout(s, v, span, &g)) return false;
  for (uint32_t a = 0; a < x->mesh->naxes; a++) {
    Place have = x->layout.at[a], said = g.layout.at[a];
    bool sum = said.kind == PLACE_PARTIAL && said.op == REDUCE_SUM;
    if (have.kind == PLACE_SHARD ? memcmp(&have, &said, sizeof have) == 0
                                 : said.kind == PLACE_REPLICATE || sum)
      continue;
    Diag *d = sema_error(s, DIAG_BAD_LAYOUT, span, "the gradient is not placed so on mesh dim %s",
                         x->mesh->axis[a]);
    diag_reason(s->sink, d, "the value is %s there; a gradient is %s", place_print(s->arena, have),
                have.kind == PLACE_SHARD ? "sharded like its value"
                                         : "Replicate or Partial(sum) where its value is whole");
    return false;
  }
  return true;
}

Val builtin_to_local(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  ValueId x;
  TensorType block;
  if (s->at.region) {
    sema_error(s, DIAG_LOCAL_REGION, call->span, "tensors in code for one rank are blocks already");
    return POISON;
  }
  if (!bind_words(s, call, "x grad?", v, at) || !as_tensor(s, v[0], at[0], "the operand", &x))
    return POISON;
  x = emit_on_mesh(s, x, s->at.mesh, at[0]);
  const TensorType t = *value_type(s->at.graph, x);
  if (!check_grad(s, v[1], at[1], &t)) return POISON;
  Region r = region_of_mesh(t.mesh, "to_local");
  ValueId y = stack_enter(s, &r, x, at[0], &block);
  return y ? val_tensor(y) : POISON;
}

/* A leading dim for each mesh dim: extent 1, or one entry per rank and sharded on it. */
static bool is_stack(const Region *r, const TensorType *t) {
  if (t->mesh != r->mesh || t->rank < r->nlead) return false;
  for (uint32_t a = 0; a < r->nlead; a++) {
    Place p = t->layout.at[a];
    bool one = t->shape[a] == 1 && p.kind == PLACE_REPLICATE;
    bool each = t->shape[a] == r->mesh->size[a] && p.kind == PLACE_SHARD && p.dim == a;
    if (!one && !each) return false;
  }
  return true;
}

Val builtin_from_local(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  TensorType to;
  bool check = false, claimed;
  if (s->at.region) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, call->span,
                         "code for one rank does not say what its blocks make up");
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "the type after -> (local) or after out = (unchecked) says it");
    return POISON;
  }
  if (!bind_words(s, call, "x layout run_check?", v, at) ||
      !as_tensor(s, v[0], at[0], "the blocks", &x) ||
      (v[2].kind != VAL_UNSET && !want_bool(s, v[2], at[2], "run_check", &check)))
    return POISON;
  x = emit_on_mesh(s, x, s->at.mesh, at[0]);
  const TensorType t = *value_type(s->at.graph, x);
  if (!layout_value(s, v[1], at[1], t.mesh, &to)) return POISON;
  to.dtype = t.dtype;
  Region r = region_of_mesh(t.mesh, "from_local");
  if (to.mesh != t.mesh || !is_stack(&r, &t)) {
    Diag *d = sema_error(s, DIAG_LOCAL_BLOCK, at[0], "from_local takes a stack of blocks");
    diag_label(s->sink, d, "this is %s", type_print(s->arena, &t));
    diag_reason(s->sink, d,
                "that is what to_local gives: first a dim for each of the %u mesh dims, of extent "
                "1 or with one entry per rank and sharded on it, then the dims of a block",
                t.mesh->naxes);
    return POISON;
  }
  Claim claim = check ? CLAIM_CHECKED : CLAIM_TRUSTED;
  ValueId y = stack_leave(s, &r, x, &to, claim, call->span, &claimed);
  if (!y) return POISON;
  if (claimed && !check)
    escape_count(s, DIAG_UNCHECKED, "from_local", call->span,
                 arena_printf(s->arena, "%s is claimed, not proven", type_print(s->arena, &to)));
  return val_tensor(y);
}
