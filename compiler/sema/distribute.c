/* distribute(x, layout, src_data_rank): a value that every rank has read becomes a sharded one.
 *
 * By its type a Replicate value is equal on all ranks; where it was read, it is what each rank's
 * own file says. src_data_rank = 0 makes the copy of coordinate 0 of every mesh dim the value: the
 * others add zeros, and the reduction to the target sends it round. All are ordinary nodes, so the
 * gradient is theirs. With none every rank slices its own copy.
 */
#include "sema/builtin.h"

static bool from_first_rank(Sema *s, Val v, Span span, bool *first) {
  *first = true;
  if (v.kind == VAL_UNSET) return true;
  if (v.kind == VAL_NONE) {
    *first = false;
    return true;
  }
  if (v.kind == VAL_INT && v.as.i == 0) return true;
  if (v.kind != VAL_POISON)
    sema_error(s, DIAG_VALUE_KIND, span, "src_data_rank is 0 or none, not %s", val_print(s, v));
  return false;
}

/* The copy of the first rank, pending on every mesh dim: sum over i of (i = 0 ? x : 0), where i
 * runs over one dim that all mesh dims cut, so each rank adds one term. A redistribute to Partial
 * would not do: every rank may contribute a part of its copy to it. */
static Val keep_first(Sema *s, ValueId x, Span span) {
  const TensorType t = *value_type(s->at.graph, x);
  TensorType index = {
      .dtype = DT_I32, .rank = t.rank + 1, .shape = {t.mesh->nranks}, .mesh = t.mesh};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = 0;
  for (uint32_t d = 1; d <= t.rank; d++) index.shape[d] = 1;
  for (uint32_t a = 0; a < t.mesh->naxes; a++)
    if (t.mesh->size[a] > 1) axes[n++] = (uint8_t)a;
  layout_set_dim(&index.layout, t.mesh, 0, axes, n);
  Val i = emit(s, OP_IOTA, NULL, 0, (Attr[]){ATTR_T(TYPE, &index), ATTR_I(DIM, 0)}, 2, span, NULL);
  if (i.kind == VAL_POISON) return i;
  Val mine = emit2(s, OP_EQ, i.as.tensor, emit_const(s, DT_I32, 0, t.mesh, span), span);
  if (mine.kind == VAL_POISON) return mine;
  ValueId choose[] = {mine.as.tensor, x, emit_const(s, t.dtype, 0, t.mesh, span)};
  Val kept = emit(s, OP_WHERE, choose, 3, NULL, 0, span, NULL);
  if (kept.kind == VAL_POISON) return kept;
  return emit1(s, OP_SUM, kept.as.tensor, (Attr[]){ATTR_INTS(DIMS, &(int64_t){0}, 1)}, 1, span);
}

Val builtin_distribute(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  ValueId x;
  bool first;
  if (!bind_words(s, call, "x layout src_data_rank?", v, at) ||
      !as_tensor(s, v[0], at[0], "what is distributed", &x) ||
      !from_first_rank(s, v[2], at[2], &first))
    return POISON;
  x = emit_on_mesh(s, x, s->at.mesh, at[0]);
  const TensorType from = *value_type(s->at.graph, x);
  if (!layout_is_replicate(&from.layout)) {
    Diag *d = sema_error(s, DIAG_DECLARED_LAYOUT, at[0],
                         "distribute takes a value that every rank holds whole");
    diag_label(s->sink, d, "this is %s", type_print(s->arena, &from));
    diag_help(s->sink, d, (Span){0}, NULL, NULL, "to change a layout use redistribute");
    return POISON;
  }
  if (from.rank == DTM_MAX_DIMS) {
    sema_error(s, DIAG_INDEX, at[0], "distribute takes a value of at most %d dims",
               DTM_MAX_DIMS - 1);
    return POISON;
  }
  TensorType to = from;
  if (!apply_layout(s, v[1], at[1], &to)) return POISON;
  if (to.mesh != from.mesh) {
    sema_error(s, DIAG_MESH_MISMATCH, at[1], "distribute stays on the mesh of the value, %s",
               mesh_print(s->arena, from.mesh));
    return POISON;
  }
  if (!first || from.mesh->nranks == 1) return emit_redistribute(s, x, &to, call->span);
  /* truth values have no sum */
  bool truth = from.dtype == DT_BOOL;
  Val y = truth ? emit_cast(s, x, DT_U8, call->span) : val_tensor(x);
  if (y.kind != VAL_POISON) y = keep_first(s, y.as.tensor, call->span);
  to.dtype = truth ? DT_U8 : from.dtype;
  if (y.kind != VAL_POISON) y = emit_redistribute(s, y.as.tensor, &to, call->span);
  if (y.kind == VAL_POISON || !truth) return y;
  return emit_cast(s, y.as.tensor, DT_BOOL, call->span);
}
