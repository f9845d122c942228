/* infer_node: checks that hold for every operator, dispatch, and fix candidates.
 *
 * Stage: called while a graph is built (in: types of operands; out: types of results). Metadata
 * only.
 */
#include "infer/rules.h"

#include <string.h>

/* What a Partial may reduce: averages are not integers, and truth values have no sum. */
static const char *partial_fault(Arena *arena, const TensorType *t, ReduceOp op, const char *axis) {
  bool ok = true;
  switch (op) {
  case REDUCE_AVG:
    ok = dtype_is_float(t->dtype);
    break;
  case REDUCE_SUM:
  case REDUCE_PRODUCT:
    ok = t->dtype != DT_BOOL;
    break;
  case REDUCE_AND:
  case REDUCE_OR:
  case REDUCE_XOR:
    ok = dtype_is_integer(t->dtype);
    break;
  case REDUCE_MAX:
  case REDUCE_MIN:
    break;
  case REDUCE_NONE:
  case REDUCE_COUNT:
    ok = false;
    break;
  }
  return ok ? NULL
            : arena_printf(arena, "Partial(%s) on %s does not exist for %s", reduce_op_name(op),
                           axis, dtype_name(t->dtype));
}

const char *type_fault(Arena *arena, const TensorType *t, DiagCode *code, int *axis) {
  *code = DIAG_REDISTRIBUTE_TARGET;
  *axis = -1;
  if (!t->mesh) return "the type names no mesh";
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->shape[d] < 0) return "an extent is negative";
  *code = DIAG_OPERAND_SHAPE;
  if (!type_is_addressable(t)) return "it has more than 2^60 bytes";
  *code = DIAG_REDISTRIBUTE_TARGET;
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    Place p = t->layout.at[a];
    *axis = (int)a;
    if (p.kind == PLACE_SHARD && p.dim >= t->rank)
      return arena_printf(arena, "Shard(%u) on %s is outside the %u dims of the value", p.dim,
                          t->mesh->axis[a], t->rank);
    if (p.kind != PLACE_PARTIAL) continue;
    const char *fault = partial_fault(arena, t, (ReduceOp)p.op, t->mesh->axis[a]);
    *code = DIAG_PARTIAL_DTYPE;
    if (fault) return fault;
    *code = DIAG_REDISTRIBUTE_TARGET;
  }
  *axis = -1;
  *code = DIAG_PARTIAL_MIXED;
  if (!layout_partial_consistent(&t->layout))
    return "it would be Partial with different reductions on different mesh dims, and their order "
           "would change the value";
  return NULL;
}

/* A scalar that every rank of any mesh has. */
static bool is_everywhere(const Operand *o) {
  return o->type.rank == 0 && (o->is_const || !o->type.mesh);
}

/* Known attributes, integers far from overflow: rules add and subtract them freely. */
static bool check_attrs(Rule *r) {
  const int64_t limit = (int64_t)1 << 60;
  for (uint32_t k = 0; k < r->nattrs; k++) {
    const Attr *a = &r->attrs[k];
    if (!(r->info->attrs >> a->key & 1))
      return rule_fail_argument(r, rule_text(r, "it has no attribute %s", attr_name(a->key)));
    bool is_count = attr_kind(a->key) == ATTR_KIND_INT && a->key != ATTR_INSTANCE;
    if (is_count && (a->as.i > limit || a->as.i < -limit))
      return rule_fail_argument(
          r, rule_text(r, "%s = %lld is too large", attr_name(a->key), (long long)a->as.i));
  }
  return true;
}

static bool check_operands(Rule *r) {
  if (r->n < r->info->min_operands || r->n > r->info->max_operands)
    return rule_fail_argument(
        r, r->info->min_operands == r->info->max_operands
               ? rule_text(r, "it takes %u operands, not %u", r->info->min_operands, r->n)
               : rule_text(r, "it takes %u to %u operands, not %u", r->info->min_operands,
                           r->info->max_operands, r->n));
  if (!check_attrs(r)) return false;
  uint32_t giver = 0;
  for (uint32_t i = 0; i < r->n; i++) {
    const TensorType *t = rule_type(r, i);
    if (is_everywhere(&r->operand[i])) continue;
    DiagCode code;
    int axis;
    const char *fault = type_fault(r->arena, t, &code, &axis);
    if (fault)
      return rule_fail(
          r, code, i, -1,
          rule_text(r, "%s: %s has no valid type", r->info->name, rule_operand_name(r, i)), fault);
    if (!r->mesh) {
      r->mesh = t->mesh;
      giver = i;
    }
    if (t->mesh != r->mesh)
      return rule_fail(
          r, DIAG_MESH_MISMATCH, i, -1,
          rule_text(r, "%s: operands are on different meshes", r->info->name),
          rule_text(r, "mesh of %s: %s; of %s: %s; move one with redistribute(mesh = ...)",
                    rule_operand_name(r, giver), r->mesh->name, rule_operand_name(r, i),
                    t->mesh->name));
  }
  return true;
}

static bool check_results(Rule *r) {
  for (uint32_t k = 0; k < r->out->nresults; k++) {
    const TensorType *t = &r->out->results[k];
    DiagCode code;
    int axis;
    if (!t->mesh) continue;
    const char *fault = type_fault(r->arena, t, &code, &axis);
    if (fault)
      return rule_fail(
          r, code, 0, axis,
          rule_text(r, "%s: the result would be %s", r->info->name, type_print(r->arena, t)),
          fault);
  }
  return true;
}

bool infer_rules(Arena *arena, Op op, const Operand *operands, uint32_t noperands,
                 const Attr *attrs, uint32_t nattrs, bool explain, InferResult *out) {
  Rule r = {.arena = arena,
            .op = op,
            .info = op_info(op),
            .operand = operands,
            .n = noperands,
            .attrs = attrs,
            .nattrs = nattrs,
            .explain = explain,
            .out = out};
  out->status = INFER_OK;
  out->nresults = 0;
  out->nfixes = 0;
  memset(out->slice, 0, sizeof out->slice);
  memset(out->why_partial, 0, sizeof out->why_partial);
  return check_operands(&r) && rule_of(op)(&r) && check_results(&r);
}

/* --- fix candidates ------------------------------------------------------------------------------
 */

typedef struct FixSearch {
  Arena *arena;
  Op op;
  const Attr *attrs;
  uint32_t noperands, nattrs;
  Operand operands[INFER_MAX_OPERANDS];
  InferResult *out;
} FixSearch;

/* Keeps type `to` for operand i when the node then has a row. */
static void try_type(FixSearch *s, uint32_t i, TensorType to) {
  InferResult *out = s->out;
  if (out->nfixes == INFER_MAX_FIXES) return;
  TensorType was = s->operands[i].type;
  if (type_equal(&to, &was)) return;
  for (uint32_t k = 0; k < out->nfixes; k++)
    if (out->fixes[k].operand == i && type_equal(&out->fixes[k].to, &to)) return;
  /* The way there must exist, and the node must then have a row. */
  InferResult *trial = ARENA_NEW(s->arena, InferResult);
  Operand from = {.type = was};
  bool ok = infer_rules(s->arena, OP_REDISTRIBUTE, &from, 1,
                        &(Attr){.key = ATTR_TYPE, .as = {.type = &to}}, 1, false, trial);
  s->operands[i].type = to;
  ok = ok &&
       infer_rules(s->arena, s->op, s->operands, s->noperands, s->attrs, s->nattrs, false, trial);
  s->operands[i].type = was;
  if (!ok) return;
  out->fixes[out->nfixes].operand = i;
  out->fixes[out->nfixes++].to = to;
}

static void try_layout(FixSearch *s, uint32_t i, const Layout *layout) {
  TensorType to = s->operands[i].type;
  to.layout = *layout;
  try_type(s, i, to);
}

/* One mesh dim to Replicate, or cutting each dim in turn. */
static void try_one_axis(FixSearch *s, uint32_t i, uint32_t axis) {
  const TensorType *t = &s->operands[i].type;
  Layout l = t->layout;
  layout_set(&l, t->mesh, axis, PLACE_REPLICATE, 0, REDUCE_NONE);
  try_layout(s, i, &l);
  for (uint32_t d = 0; d < t->rank; d++) {
    l = t->layout;
    layout_set(&l, t->mesh, axis, PLACE_SHARD, d, REDUCE_NONE);
    try_layout(s, i, &l);
  }
}

/* A dim of operand i takes the whole list of axes that some dim of operand j has. */
static void try_other_lists(FixSearch *s, uint32_t i, uint32_t j) {
  const TensorType *t = &s->operands[i].type, *u = &s->operands[j].type;
  for (uint32_t e = 0; e < u->rank; e++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(&u->layout, e, axes);
    for (uint32_t d = 0; n > 0 && d < t->rank; d++) {
      Layout l = t->layout;
      for (uint32_t k = 0; k < n; k++)
        layout_set(&l, t->mesh, axes[k], PLACE_REPLICATE, 0, REDUCE_NONE);
      layout_set_dim(&l, t->mesh, d, axes, n);
      try_layout(s, i, &l);
    }
  }
  if (t->rank == u->rank) try_layout(s, i, &u->layout);
}

/* Operand i becomes Partial where operand j is: filling costs no bytes. */
static void try_other_partial(FixSearch *s, uint32_t i, uint32_t j, uint32_t axis) {
  const TensorType *t = &s->operands[i].type;
  Place p = s->operands[j].type.layout.at[axis];
  if (p.kind != PLACE_PARTIAL || t->layout.at[axis].kind != PLACE_REPLICATE) return;
  Layout l = t->layout;
  l.at[axis] = p;
  try_layout(s, i, &l);
}

static bool is_placement_fault(DiagCode code) {
  return code != DIAG_OPERAND_SHAPE && code != DIAG_OPERAND_DTYPE &&
         code != DIAG_OPERATOR_ARGUMENT && code != DIAG_MESH_MISMATCH &&
         code != DIAG_EMPTY_EXTREMUM;
}

/* An operand goes to the mesh of another. */
static void try_meshes(FixSearch *s) {
  for (uint32_t i = 0; i < s->noperands; i++)
    for (uint32_t j = 0; j < s->noperands; j++) {
      TensorType to = s->operands[i].type;
      const Mesh *mesh = s->operands[j].type.mesh;
      if (is_everywhere(&s->operands[i]) || is_everywhere(&s->operands[j])) continue;
      if (to.mesh != mesh && type_to_mesh(&to, mesh) < 0) try_type(s, i, to);
    }
}

static void find_fixes(FixSearch *s) {
  if (s->noperands && s->out->code == DIAG_MESH_MISMATCH) try_meshes(s);
  if (s->noperands == 0 || !is_placement_fault(s->out->code)) return;
  for (uint32_t turn = 0; turn < s->noperands; turn++) {
    uint32_t i = (s->out->bad_operand + turn) % s->noperands;
    const TensorType *t = &s->operands[i].type;
    if (!t->mesh || s->operands[i].is_const) continue;
    int bad = s->out->bad_axis;
    if (bad >= 0) try_one_axis(s, i, (uint32_t)bad);
    for (uint32_t a = 0; a < t->mesh->naxes; a++)
      if ((int)a != bad && t->layout.at[a].kind != PLACE_REPLICATE) try_one_axis(s, i, a);
    for (uint32_t j = 0; j < s->noperands; j++)
      if (j != i) {
        try_other_lists(s, i, j);
        if (bad >= 0) try_other_partial(s, i, j, (uint32_t)bad);
      }
    Layout whole = t->layout;
    for (uint32_t a = 0; a < t->mesh->naxes; a++)
      if (whole.at[a].kind == PLACE_PARTIAL) whole.at[a] = (Place){0};
    try_layout(s, i, &whole);
    if (s->out->nfixes == 0) try_layout(s, i, &(Layout){0});
  }
}

void infer_node(Arena *arena, Op op, const Operand *operands, uint32_t noperands, const Attr *attrs,
                uint32_t nattrs, InferResult *out) {
  if (infer_rules(arena, op, operands, noperands, attrs, nattrs, true, out)) return;
  if (noperands > INFER_MAX_OPERANDS) return;
  FixSearch *s = ARENA_NEW(arena, FixSearch);
  *s = (FixSearch){.arena = arena,
                   .op = op,
                   .attrs = attrs,
                   .noperands = noperands,
                   .nattrs = nattrs,
                   .out = out};
  if (noperands) memcpy(s->operands, operands, noperands * sizeof *operands);
  find_fixes(s);
}

bool infer_allows(Arena *arena, Op op, const Operand *operands, uint32_t noperands,
                  const Attr *attrs, uint32_t nattrs, InferResult *out) {
  return infer_rules(arena, op, operands, noperands, attrs, nattrs, false, out);
}
