/* Declared types: evaluation, layouts of literals, checking a tensor against a declaration. */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

DType dtype_map(const Sema *s, DType t) {
  return s->options->widen && t == DT_F32 ? DT_F64 : t;
}

bool type_is_tensor(const TypeExpr *t) {
  if (t->has_dims || t->has_places || t->partials.len) return true;
  /* a bare `bool` is the compile-time type too: coerce_named takes both */
  if (t->dtype) return t->dtype != DT_BOOL;
  return t->name && strcmp(t->name, "any") == 0;
}

/* --- compile-time types ------------------------------------------------------------------------
 */

static Val wrong(Sema *s, Val v, Span span, const char *what, const char *wanted) {
  if (v.kind != VAL_POISON)
    sema_error(s, DIAG_VALUE_KIND, span, "%s must be %s, not %s", what, wanted, val_kind_name(v));
  return POISON;
}

static Val coerce_axis(Sema *s, const TypeExpr *t, Val v, Span span, const char *what) {
  int axis;
  if (v.kind == VAL_NONE && !t->optional) return wrong(s, v, span, what, "a mesh dim");
  if (!want_axis(s, v, s->at.mesh, span, t->optional, &axis)) return POISON;
  return axis < 0 ? NONE : (Val){.kind = VAL_AXIS, .as.s = s->at.mesh->axis[axis]};
}

static Val coerce_layout(Sema *s, Val v, Span span, const char *what) {
  if (v.kind == VAL_LAYOUT || v.kind == VAL_TYPE) return v;
  TensorType t = {.mesh = s->at.mesh};
  if (v.kind != VAL_LIST) return wrong(s, v, span, what, "a layout such as [B@dp, S]");
  if (!want_ints(s, v, span, what, t.shape, DTM_MAX_DIMS, &t.rank)) return POISON;
  Val layout = val_type(s, VAL_LAYOUT, &t);
  layout.any_mesh = true;
  return layout;
}

Val coerce_named(Sema *s, Env *env, const TypeExpr *t, Val v, Span span, const char *what) {
  (void)env;
  if (v.kind == VAL_POISON) return v;
  if (t->optional && v.kind == VAL_NONE) return v;
  if (t->dtype == DT_BOOL) {
    if (v.kind == VAL_BOOL) return v;
    if (val_is_tensor(v) && tensor_type(s, v)->dtype == DT_BOOL) return v;
    return wrong(s, v, span, what, "true or false");
  }
  const char *name = t->name ? t->name : "";
  int64_t i;
  double f;
  if (strcmp(name, "any") == 0) return v;
  if (strcmp(name, "int") == 0)
    return want_int(s, v, span, what, &i) ? val_in_parts(val_int(i), val_whole(v)) : POISON;
  if (strcmp(name, "float") == 0)
    return want_float(s, v, span, what, &f)
               ? val_in_parts(val_float(val_as_double(v)), val_float(f))
               : POISON;
  if (strcmp(name, "bool") == 0)
    return v.kind == VAL_BOOL ? v : wrong(s, v, span, what, "true or false");
  if (strcmp(name, "string") == 0)
    return v.kind == VAL_STRING ? v : wrong(s, v, span, what, "a string");
  if (strcmp(name, "axis") == 0) return coerce_axis(s, t, v, span, what);
  if (strcmp(name, "mesh") == 0) return v.kind == VAL_MESH ? v : wrong(s, v, span, what, "a mesh");
  if (strcmp(name, "layout") == 0) return coerce_layout(s, v, span, what);
  if (strcmp(name, "list") == 0) return v.kind == VAL_LIST ? v : wrong(s, v, span, what, "a list");
  if (strcmp(name, "dtype") == 0)
    return v.kind == VAL_DTYPE ? v : wrong(s, v, span, what, "an element type");
  if (strcmp(name, "module") == 0) {
    bool ok = v.kind == VAL_MODULE || v.kind == VAL_INSTANCE || v.kind == VAL_FN ||
              v.kind == VAL_BUILTIN || v.kind == VAL_METHOD;
    return ok ? v : wrong(s, v, span, what, "a module");
  }
  Diag *d = sema_error(s, DIAG_UNKNOWN_TYPE, t->span, "unknown type %s", name);
  diag_reason(
      s->sink, d,
      "compile-time types are int float bool string axis mesh layout list dtype module any; "
      "tensor types look like f32[B@dp, D]");
  return POISON;
}

/* --- layouts -----------------------------------------------------------------------------------
 */

Val eval_axis(Sema *s, Env *env, const Expr *e, const Mesh *mesh) {
  uint32_t known = s->sink->diags.len;
  Val v = eval(s, env, e);
  if (v.kind != VAL_POISON || e->kind != EXPR_NAME || s->sink->diags.len == known) return v;
  Diag *d = s->sink->diags.data[known];
  if (d->code == DIAG_UNKNOWN_NAME && !d->lines.len)
    diag_reason(s->sink, d, "the dims of the mesh are: %s", mesh_dims_print(s->arena, mesh));
  return v;
}

/* Axes after '@' of one dim. `used` collects axes to find one that stands twice. */
static bool eval_axes(Sema *s, Env *env, const ListItem *item, const Mesh *mesh, uint32_t *used,
                      uint8_t axes[DTM_MAX_AXES], uint32_t *n) {
  *n = 0;
  bool ok = true;
  for (uint32_t i = 0; i < item->axes.len; i++) {
    const Expr *e = item->axes.data[i];
    int axis;
    Val v = eval_axis(s, env, e, mesh);
    /* `let rows = world.flatten(... as "rows")`: after @ the dim is meant, not the mesh */
    if (v.kind == VAL_MESH && e->kind == EXPR_NAME && mesh_axis(mesh, e->as.s) >= 0)
      v = (Val){.kind = VAL_AXIS, .as.s = e->as.s};
    if (v.kind == VAL_POISON || !want_axis(s, v, mesh, e->span, false, &axis)) {
      ok = false;
      continue;
    }
    if (axis < 0) continue;
    if (*used >> axis & 1) {
      sema_error(s, DIAG_BAD_LAYOUT, e->span, "mesh dim %s stands twice in one layout",
                 mesh->axis[axis]);
      ok = false;
      continue;
    }
    *used |= 1u << axis;
    axes[(*n)++] = (uint8_t)axis;
  }
  return ok;
}

/* `whole`: NULL, or the extent with the rows of a whole batch. */
static bool extent_of(Sema *s, Env *env, const Expr *e, int64_t *out, int64_t *whole) {
  Val v = eval(s, env, e);
  if (v.kind == VAL_POISON) return false;
  if (whole && val_is_number(v)) *whole = (int64_t)val_as_double(val_whole(v));
  if (v.kind == VAL_FLOAT && v.as.f != (double)(int64_t)v.as.f) {
    sema_error(s, DIAG_BAD_EXTENT, e->span, "an extent must be an int, but this is %s",
               val_print(s, v));
    return false;
  }
  if (!want_int(s, v, e->span, "an extent", out)) return false;
  if (*out >= 0 && *out <= INT64_C(1) << 48) return true;
  sema_error(s, DIAG_BAD_EXTENT, e->span, "an extent cannot be %" PRId64, *out);
  return false;
}

static bool eval_extent(Sema *s, Env *env, const Expr *e, int64_t *out) {
  return extent_of(s, env, e, out, NULL);
}

static bool too_many_dims(Sema *s, uint32_t n, Span span) {
  if (n <= DTM_MAX_DIMS) return false;
  sema_error(s, DIAG_BAD_EXTENT, span, "a tensor has at most %d dims, not %u", DTM_MAX_DIMS, n);
  return true;
}

bool eval_layout_literal(Sema *s, Env *env, const Expr *e, const Mesh *mesh, TensorType *out) {
  *out = (TensorType){.mesh = mesh, .rank = e->as.list.len};
  if (too_many_dims(s, out->rank, e->span)) return false;
  bool ok = true;
  uint32_t used = 0;
  for (uint32_t d = 0; d < out->rank; d++) {
    const ListItem *item = &e->as.list.data[d];
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n;
    ok &= eval_extent(s, env, item->value, &out->shape[d]);
    if (eval_axes(s, env, item, mesh, &used, axes, &n))
      layout_set_dim(&out->layout, mesh, d, axes, n);
    else
      ok = false;
  }
  return ok;
}

static bool reduce_fits(Sema *s, ReduceOp op, DType dtype, Span span) {
  bool bits = op == REDUCE_AND || op == REDUCE_OR || op == REDUCE_XOR;
  const char *wanted = NULL;
  if (dtype && op == REDUCE_AVG && !dtype_is_float(dtype)) wanted = "a float";
  if (dtype && bits && dtype_is_float(dtype)) wanted = "an integer";
  if (!wanted) return true;
  sema_error(s, DIAG_BAD_LAYOUT, span, "Partial(%s) needs %s element type, not %s",
             reduce_op_name(op), wanted, dtype_name(dtype));
  return false;
}

static bool reduce_by_name(Sema *s, const char *name, Span span, ReduceOp *op) {
  *op = name ? reduce_op_by_name(name) : REDUCE_SUM;
  if (*op) return true;
  sema_error(s, DIAG_BAD_LAYOUT, span, "%s is no reduction", name);
  return false;
}

bool eval_placement(Sema *s, Env *env, const Expr *e, Val *out) {
  *out = (Val){.kind = VAL_PLACE};
  const Expr *callee = e->kind == EXPR_CALL ? e->as.call.callee : e;
  if (callee->kind == EXPR_NAME && strcmp(callee->as.s, "Partial") == 0) {
    const char *name = NULL;
    if (e->kind == EXPR_CALL && e->as.call.args.len) {
      const Expr *op = e->as.call.args.data[0].value;
      if (op && (op->kind == EXPR_NAME || op->kind == EXPR_STRING)) name = op->as.s;
      if (!name || e->as.call.args.len != 1) {
        sema_error(s, DIAG_BAD_LAYOUT, e->span, "Partial takes the name of one reduction");
        return false;
      }
    }
    out->as.place.kind = PLACE_PARTIAL;
    return reduce_by_name(s, name, e->span, &out->as.place.op);
  }
  *out = eval(s, env, e);
  if (out->kind == VAL_PLACE || out->kind == VAL_POISON) return out->kind == VAL_PLACE;
  sema_error(s, DIAG_BAD_LAYOUT, e->span,
             "a placement is Shard(d), Replicate or Partial(op), not %s", val_kind_name(*out));
  return false;
}

static bool eval_partials(Sema *s, Env *env, const TypeExpr *t, uint32_t *used, TensorType *out) {
  bool ok = true;
  for (uint32_t i = 0; i < t->partials.len; i++) {
    const PartialItem *item = &t->partials.data[i];
    ReduceOp op;
    int axis;
    Val v = eval(s, env, item->axis);
    if (v.kind == VAL_POISON || !want_axis(s, v, out->mesh, item->span, false, &axis) ||
        !reduce_by_name(s, item->op, item->span, &op) ||
        !reduce_fits(s, op, out->dtype, item->span)) {
      ok = false;
      continue;
    }
    if (axis < 0) continue;
    if (*used >> axis & 1) {
      sema_error(s, DIAG_BAD_LAYOUT, item->span, "mesh dim %s stands twice in one layout",
                 out->mesh->axis[axis]);
      ok = false;
      continue;
    }
    *used |= 1u << axis;
    layout_set(&out->layout, out->mesh, (uint32_t)axis, PLACE_PARTIAL, 0, op);
  }
  return ok;
}

static bool eval_places(Sema *s, Env *env, const TypeExpr *t, uint32_t *used, TensorType *out) {
  bool ok = true;
  for (uint32_t i = 0; i < t->places.len; i++) {
    const PlaceItem *item = &t->places.data[i];
    int axis;
    Val place, v = eval(s, env, item->axis);
    if (v.kind == VAL_POISON || !want_axis(s, v, out->mesh, item->span, false, &axis) ||
        !eval_placement(s, env, item->placement, &place)) {
      ok = false;
      continue;
    }
    if (axis < 0) continue;
    int64_t d = place.as.place.dim + (place.as.place.dim < 0 ? (int64_t)out->rank : 0);
    bool shard = place.as.place.kind == PLACE_SHARD;
    const char *fault = NULL;
    if (*used >> axis & 1)
      fault = "a mesh dim stands twice in one layout";
    else if (shard && (d < 0 || d >= out->rank))
      fault = "the tensor has no such dim";
    else if (shard && layout_dim_ways(&out->layout, out->mesh, (uint32_t)d) > 1)
      fault = "two mesh dims cut this dim: write their order, as in [N@(outer,inner)]";
    if (fault) {
      sema_error(s, DIAG_BAD_LAYOUT, item->span, "%s", fault);
      ok = false;
      continue;
    }
    *used |= 1u << axis;
    if (!reduce_fits(s, place.as.place.op, out->dtype, item->span)) ok = false;
    layout_set(&out->layout, out->mesh, (uint32_t)axis, place.as.place.kind,
               shard ? (uint32_t)d : 0, place.as.place.op);
  }
  return ok;
}

/* Mesh, layout and element type of a declaration; extents are the caller's. */
static bool eval_layout(Sema *s, Env *env, const TypeExpr *t, TensorType *out) {
  bool ok = true;
  out->mesh = s->at.mesh;
  if (t->mesh) {
    Val m = eval(s, env, t->mesh);
    if (m.kind == VAL_POISON || !want_mesh(s, m, t->mesh->span, "what follows on", &out->mesh))
      return false;
  }
  out->dtype = dtype_map(s, t->dtype);
  if (!t->dtype && t->name && strcmp(t->name, "any") != 0) {
    Val v = env_lookup(s, env, intern(s->names, t->name), t->span);
    if (v.kind != VAL_DTYPE) {
      if (v.kind != VAL_POISON)
        sema_error(s, DIAG_UNKNOWN_TYPE, t->span, "%s is %s, not an element type", t->name,
                   val_kind_name(v));
      return false;
    }
    out->dtype = v.as.dtype;
  }
  uint32_t used = 0;
  for (uint32_t d = 0; d < t->dims.len; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n;
    if (eval_axes(s, env, &t->dims.data[d], out->mesh, &used, axes, &n))
      layout_set_dim(&out->layout, out->mesh, d, axes, n);
    else
      ok = false;
  }
  ok &= eval_places(s, env, t, &used, out);
  ok &= eval_partials(s, env, t, &used, out);
  if (ok && !layout_partial_consistent(&out->layout)) {
    sema_error(s, DIAG_BAD_LAYOUT, t->span, "a type cannot be Partial with two reductions");
    diag_reason(s->sink, s->sink->diags.data[s->sink->diags.len - 1],
                "a sum of maxima is not a maximum of sums: the order would matter");
    ok = false;
  }
  return ok;
}

static bool type_of(Sema *s, Env *env, const TypeExpr *t, TensorType *out,
                    int64_t whole[DTM_MAX_DIMS]) {
  *out = (TensorType){.rank = t->dims.len};
  if (!t->has_dims) {
    sema_error(s, DIAG_UNKNOWN_TYPE, t->span, "a tensor type with its shape is needed here");
    diag_help(s->sink, s->sink->diags.data[s->sink->diags.len - 1], (Span){0}, NULL, NULL,
              "write the dims, as in f32[8, 16], or f32[] for a scalar");
    return false;
  }
  if (too_many_dims(s, out->rank, t->span)) return false;
  bool ok = true;
  for (uint32_t d = 0; d < out->rank; d++)
    ok &= extent_of(s, env, t->dims.data[d].value, &out->shape[d], &whole[d]);
  return eval_layout(s, env, t, out) && ok;
}

bool eval_type(Sema *s, Env *env, const TypeExpr *t, TensorType *out) {
  int64_t whole[DTM_MAX_DIMS];
  return type_of(s, env, t, out, whole);
}

Val eval_type_value(Sema *s, Env *env, const TypeExpr *t) {
  TensorType type;
  int64_t whole[DTM_MAX_DIMS];
  if (!type_of(s, env, t, &type, whole)) return POISON;
  return val_type_in_parts(s, val_type(s, VAL_TYPE, &type), whole);
}

/* --- checking ----------------------------------------------------------------------------------
 */

/* Extent of dim d as declared: a known value, or a free name that takes `actual`. */
static bool match_extent(Sema *s, Env *env, Env *bind, const Expr *e, Val actual, int64_t *out,
                         const Binding **binding) {
  *binding = NULL;
  if (e->kind == EXPR_NAME && bind) {
    Binding *b = env_find(s, env, e->as.s);
    if (!b && (env->file->library || !mesh_knows_axis(s, e->as.s))) {
      env_set(s, bind, e->as.s, BIND_EXTENT, actual, e->span);
      *out = actual.as.i;
      return true;
    }
    if (b && b->kind == BIND_EXTENT) *binding = b;
  }
  return eval_extent(s, env, e, out);
}

static Val layout_mismatch(Sema *s, const TensorType *given, const TensorType *declared,
                           const TypeExpr *t, Span span, const char *what) {
  Diag *d = sema_error(s, DIAG_DECLARED_LAYOUT, span, "%s is not placed as declared", what);
  diag_label(s->sink, d, "this is %s", type_print(s->arena, given));
  diag_note(s->sink, d, t->span, "declared as %s", type_print(s->arena, declared));
  for (uint32_t a = 0; a < given->mesh->naxes; a++) {
    Place g = given->layout.at[a], w = declared->layout.at[a];
    if (memcmp(&g, &w, sizeof g) == 0) continue;
    diag_reason(s->sink, d, "on mesh dim %s it is %s, declared %s", given->mesh->axis[a],
                place_print(s->arena, g), place_print(s->arena, w));
  }
  for (uint32_t a = 0; a < given->mesh->naxes; a++) {
    Place g = given->layout.at[a], w = declared->layout.at[a];
    if (w.kind == PLACE_PARTIAL && memcmp(&g, &w, sizeof g) != 0) return POISON;
  }
  FixCandidate *fix = ARENA_NEW(s->arena, FixCandidate);
  *fix = (FixCandidate){
      .node = span, .operand = FIX_VALUE, .text = span, .from = *given, .to = *given};
  fix->to.layout = declared->layout;
  VEC_PUSH(s->sink->arena, &d->fixes, fix);
  return POISON;
}

/* The type with its mesh, also where that is the world. */
static const char *on_mesh(Sema *s, const TensorType *t) {
  const char *text = type_print(s->arena, t);
  return t->mesh->sub ? text : arena_printf(s->arena, "%s on %s", text, t->mesh->name);
}

static Val mesh_mismatch(Sema *s, const TensorType *given, const TensorType *declared,
                         const TypeExpr *t, Span span, const char *what) {
  Diag *d = sema_error(s, DIAG_MESH_MISMATCH, span, "%s is on another mesh than declared", what);
  diag_label(s->sink, d, "this is %s", on_mesh(s, given));
  diag_note(s->sink, d, t->span, "declared as %s", on_mesh(s, declared));
  FixCandidate *fix = ARENA_NEW(s->arena, FixCandidate);
  *fix = (FixCandidate){
      .node = span, .operand = FIX_VALUE, .text = span, .from = *given, .to = *declared};
  fix->to.dtype = given->dtype;
  VEC_PUSH(s->sink->arena, &d->fixes, fix);
  return POISON;
}

static Val dtype_mismatch(Sema *s, DType given, DType declared, const TypeExpr *t, Span span,
                          const char *what) {
  Diag *d = sema_error(s, DIAG_OPERAND_DTYPE, span, "%s has element type %s, declared %s", what,
                       dtype_name(given), dtype_name(declared));
  diag_note(s->sink, d, t->span, "declared here");
  const char *text = source_text(s, span);
  if (*text)
    diag_help(s->sink, d, span, arena_printf(s->arena, "(%s).to(%s)", text, dtype_name(declared)),
              NULL, "convert it: (%s).to(%s)", text, dtype_name(declared));
  return POISON;
}

Val match_tensor(Sema *s, Env *env, Env *bind, const TypeExpr *t, Val v, Span span,
                 const char *what) {
  if (v.kind == VAL_POISON) return v;
  bool any = !t->dtype && t->name && strcmp(t->name, "any") == 0;
  if (any && !val_is_tensor(v) && !t->partials.len && !t->has_dims) return v;
  if (t->has_dims && t->dims.len == 0 && val_is_number(v)) {
    ValueId id;
    DType dtype = any ? dtype_map(s, DT_F32) : dtype_map(s, t->dtype);
    if (!literal_const(s, v, dtype, s->at.mesh, span, &id)) return POISON;
    v = val_tensor(id);
  }
  if (!val_is_tensor(v)) return wrong(s, v, span, what, "a tensor");
  v = overlay_value(s, v, span);
  if (v.kind == VAL_POISON) return v;
  TensorType given = *tensor_type(s, v);
  if (t->has_dims && t->dims.len != given.rank) {
    Diag *d = sema_error(s, DIAG_DECLARED_SHAPE, span, "%s has %u dim%s, declared %u", what,
                         given.rank, given.rank == 1 ? "" : "s", t->dims.len);
    diag_label(s->sink, d, "this is %s", type_print(s->arena, &given));
    diag_note(s->sink, d, t->span, "declared here");
    return POISON;
  }
  TensorType declared = {.rank = given.rank};
  memcpy(declared.shape, given.shape, sizeof given.shape);
  bool ok = true;
  for (uint32_t d = 0; d < t->dims.len; d++) {
    const Binding *from;
    const Expr *e = t->dims.data[d].value;
    int64_t extent;
    if (!match_extent(s, env, bind, e, val_extent(s, v, d), &extent, &from)) {
      ok = false;
      continue;
    }
    if (extent == given.shape[d]) continue;
    Diag *diag = sema_error(s, DIAG_DECLARED_SHAPE, span,
                            "dim %u of %s is %" PRId64 ", declared %s = %" PRId64, d, what,
                            given.shape[d], source_text(s, e->span), extent);
    diag_label(s->sink, diag, "this is %s", type_print(s->arena, &given));
    if (from)
      diag_note(s->sink, diag, from->span, "%s was bound to %" PRId64 " here",
                source_text(s, e->span), extent);
    else
      diag_note(s->sink, diag, t->span, "declared here");
    ok = false;
  }
  ok = eval_layout(s, env, t, &declared) && ok;
  if (!ok) return POISON;
  if (!any && given.dtype != declared.dtype)
    return dtype_mismatch(s, given.dtype, declared.dtype, t, span, what);
  bool layout_said = t->has_dims || t->has_places || any;
  if (!layout_said) return v;
  if (any) declared.dtype = given.dtype;
  if (!given.mesh) given.mesh = declared.mesh; /* a scalar that every rank has */
  if (any && !t->has_dims && !t->mesh && !move_to_mesh(s, &declared, given.mesh, t->span))
    return POISON;
  if (given.mesh != declared.mesh) return mesh_mismatch(s, &given, &declared, t, span, what);
  if (any && !t->has_dims) {
    /* only the Partial part is declared */
    for (uint32_t a = 0; a < given.mesh->naxes; a++) {
      if (given.layout.at[a].kind != PLACE_PARTIAL && declared.layout.at[a].kind != PLACE_PARTIAL)
        declared.layout.at[a] = given.layout.at[a];
    }
  }
  if (!layout_equal(&given.layout, &declared.layout))
    return layout_mismatch(s, &given, &declared, t, span, what);
  return v;
}
