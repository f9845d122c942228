/* redistribute: the one verb of communication, in all its forms. */
#include <inttypes.h>
#include <string.h>

#include "sema/builtin.h"

typedef struct Options {
  Attr attrs[4];
  uint32_t n;
} Options;

static void unknown_key(Sema *s, const Call *call, const CallArg *arg, const Mesh *mesh) {
  Diag *d = mesh->sub
                ? sema_error(s, DIAG_UNKNOWN_AXIS, arg->name_span, "%s is no dim of %s", arg->name,
                             mesh->name)
                : sema_error(s, DIAG_UNKNOWN_AXIS, arg->name_span, "%s is no mesh dim", arg->name);
  diag_reason(s->sink, d, "the dims of the mesh are: %s", mesh_dims_print(s->arena, mesh));
  const char *near = env_nearest(s, call->env, arg->name);
  if (near) diag_help(s->sink, d, arg->name_span, near, NULL, "did you mean %s?", near);
}

/* The axis that a key names: a mesh dim, or a variable that holds one (or none). */
static bool key_axis(Sema *s, const Call *call, const CallArg *arg, const Mesh *mesh, int *axis) {
  Binding *b = env_find(s, call->env, arg->name);
  if (b) {
    Val v = binding_value(s, call->env->file, b, arg->name);
    if (v.kind == VAL_MESH && mesh_axis(mesh, arg->name) >= 0)
      v = (Val){.kind = VAL_AXIS, .as.s = arg->name}; /* a mesh named like its dim */
    return v.kind != VAL_POISON && want_axis(s, v, mesh, arg->span, false, axis);
  }
  *axis = mesh_axis(mesh, arg->name);
  if (*axis < 0) unknown_key(s, call, arg, mesh);
  return *axis >= 0;
}

static bool apply_key(Sema *s, const Call *call, const CallArg *arg, TensorType *t) {
  int axis;
  if (arg->value.kind == VAL_POISON || !key_axis(s, call, arg, t->mesh, &axis)) return false;
  if (arg->value.kind != VAL_PLACE) {
    sema_error(s, DIAG_BAD_LAYOUT, arg->span,
               "a placement is Shard(d), Replicate or Partial(op), not %s",
               val_kind_name(arg->value));
    return false;
  }
  if (axis < 0) return true;
  PlaceKind kind = arg->value.as.place.kind;
  int64_t d = kind == PLACE_SHARD ? arg->value.as.place.dim : 0;
  if (kind == PLACE_SHARD && !normal_dim(&d, t->rank)) {
    sema_error(s, DIAG_INDEX, arg->span, "Shard(%d): the tensor has %u dims",
               arg->value.as.place.dim, t->rank);
    return false;
  }
  Place old = t->layout.at[axis];
  bool stays = old.kind == kind && (kind != PLACE_SHARD || old.dim == d) &&
               (kind != PLACE_PARTIAL || old.op == arg->value.as.place.op);
  if (!stays)
    layout_set(&t->layout, t->mesh, (uint32_t)axis, kind, (uint32_t)d, arg->value.as.place.op);
  return true;
}

bool layout_value(Sema *s, Val v, Span span, const Mesh *mesh, TensorType *out) {
  *out = (TensorType){.mesh = mesh};
  if (v.kind == VAL_LAYOUT || v.kind == VAL_TYPE) {
    *out = *v.as.type;
    return true;
  }
  if (v.kind == VAL_LIST && v.as.list->len && v.as.list->data[0].kind == VAL_PLACE) {
    Diag *d = sema_error(s, DIAG_VALUE_KIND, span,
                         "a layout lists extents, as in [B@dp, D], not placements");
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "placements go by mesh dim: redistribute(dp: Shard(0), tp: Replicate)");
    return false;
  }
  if (v.kind == VAL_LIST)
    return want_ints(s, v, span, "a layout", out->shape, DTM_MAX_DIMS, &out->rank);
  if (v.kind != VAL_POISON)
    sema_error(s, DIAG_BAD_LAYOUT, span, "%s is neither `dim: placement` nor a layout",
               val_kind_name(v));
  return false;
}

bool apply_layout(Sema *s, Val v, Span span, TensorType *t) {
  TensorType to;
  if (!layout_value(s, v, span, t->mesh, &to)) return false;
  if (v.kind == VAL_TYPE && to.dtype != t->dtype) {
    sema_error(s, DIAG_OPERAND_DTYPE, span, "redistribute keeps the element type, %s",
               dtype_name(t->dtype));
    return false;
  }
  if (to.rank != t->rank || memcmp(to.shape, t->shape, sizeof(int64_t) * t->rank) != 0) {
    to.dtype = t->dtype;
    Diag *d =
        sema_error(s, DIAG_DECLARED_SHAPE, span, "the layout's extents are not those of the value");
    diag_reason(s->sink, d, "the value is %s, the layout %s", type_print(s->arena, t),
                type_print(s->arena, &to));
    return false;
  }
  /* a layout without `on` is one of the mesh the value is on; others bring their mesh */
  if (v.any_mesh && to.mesh != t->mesh && !move_to_mesh(s, &to, t->mesh, span)) return false;
  t->layout = to.layout;
  t->mesh = to.mesh;
  return true;
}

/* The same placements by name on another mesh. */
static bool apply_mesh(Sema *s, const CallArg *arg, TensorType *t) {
  const Mesh *mesh;
  if (!want_mesh(s, arg->value, arg->span, "mesh", &mesh)) return false;
  return mesh == t->mesh || move_to_mesh(s, t, mesh, arg->span);
}

/* How many rows are used, placed as the first two dims of `to` are. */
static bool used_there(Sema *s, ValueId used, const TensorType *to, Span span, ValueId *out) {
  TensorType t = *value_type(s->at.graph, used);
  t.mesh = to->mesh;
  t.layout = (Layout){0};
  for (uint32_t d = 0; d < 2; d++) {
    uint8_t axes[DTM_MAX_AXES];
    uint32_t n = layout_dim_axes(&to->layout, d, axes);
    layout_set_dim(&t.layout, t.mesh, d, axes, n);
  }
  Val v = emit_redistribute(s, used, &t, span);
  *out = v.as.tensor;
  return val_is_tensor(v);
}

/* used = counts of rows [A, R], placed as the value is; or a list, and the same as the result is.
 */
static Val move_rows(Sema *s, const Call *call, const CallArg *arg, ValueId x,
                     const TensorType *to) {
  ValueId operands[3] = {x};
  Val given[2] = {arg->value, arg->value};
  bool both = arg->value.kind == VAL_LIST && arg->value.as.list->len == 2;
  for (uint32_t i = 0; i < 2 && both; i++) given[i] = arg->value.as.list->data[i];
  for (uint32_t i = 0; i < 2; i++) {
    if (!as_tensor(s, given[i], arg->span, "used", &operands[1 + i])) return POISON;
    if (value_type(s->at.graph, operands[1 + i])->rank == 2 && to->rank >= 3) continue;
    sema_error(
        s, DIAG_DECLARED_SHAPE, arg->span,
        "used counts rows for each entry of the first two dims: it is [A, R] where the value "
        "is [A, R, P, ..]");
    return POISON;
  }
  if (!both && !used_there(s, operands[1], to, arg->span, &operands[2])) return POISON;
  return emit(s, OP_REDISTRIBUTE_ROWS, operands, 3, (Attr[]){ATTR_T(TYPE, to)}, 1, call->span,
              &call->args[0].span);
}

static bool take_option(Sema *s, const CallArg *arg, Options *options) {
  static const struct {
    const char *name;
    AttrKey key;
  } known[] = {{"async", ATTR_ASYNC},
               {"forward_dtype", ATTR_FORWARD_DTYPE},
               {"backward_dtype", ATTR_BACKWARD_DTYPE}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(arg->name, known[i].name) != 0) continue;
    Attr *a = &options->attrs[options->n];
    *a = (Attr){.key = known[i].key};
    if (known[i].key == ATTR_ASYNC) {
      bool on;
      if (!want_bool(s, arg->value, arg->span, arg->name, &on)) return false;
      if (on) options->n++;
      a->as.i = 1;
      return true;
    }
    if (arg->value.kind != VAL_DTYPE) {
      sema_error(s, DIAG_VALUE_KIND, arg->span, "%s must be an element type such as bf16",
                 arg->name);
      return false;
    }
    a->as.i = arg->value.as.dtype;
    options->n++;
    return true;
  }
  Diag *d =
      sema_error(s, DIAG_ARGUMENTS, arg->name_span, "redistribute has no parameter %s", arg->name);
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "placements are written with a colon: redistribute(%s: Replicate)", arg->name);
  return false;
}

Val builtin_redistribute(Sema *s, const Call *call) {
  ValueId x;
  if (!call->nargs || call->args[0].name) {
    sema_error(s, DIAG_ARGUMENTS, call->span, "redistribute needs the value to redistribute");
    return POISON;
  }
  if (!as_tensor(s, call->args[0].value, call->args[0].span, "what is redistributed", &x))
    return POISON;
  TensorType to = *value_type(s->at.graph, x);
  if (!to.mesh) to.mesh = s->at.mesh;
  Options options = {0};
  bool ok = true, said = false;
  const CallArg *used = NULL;
  for (uint32_t i = 1; i < call->nargs; i++) {
    const CallArg *arg = &call->args[i];
    bool one;
    if (arg->is_key)
      one = apply_key(s, call, arg, &to);
    else if (!arg->name)
      one = apply_layout(s, arg->value, arg->span, &to);
    else if (strcmp(arg->name, "mesh") == 0)
      one = apply_mesh(s, arg, &to);
    else if (strcmp(arg->name, "used") == 0) {
      used = arg;
      continue;
    } else {
      ok &= take_option(s, arg, &options);
      continue;
    }
    said = true;
    ok &= one;
  }
  if (!said && ok) {
    Diag *d = sema_error(s, DIAG_ARGUMENTS, call->span, "redistribute needs a target");
    diag_help(s->sink, d, (Span){0}, NULL, NULL,
              "write a placement, as in redistribute(tp: Replicate), or a layout");
    return POISON;
  }
  if (!ok) return POISON;
  if (used) return move_rows(s, call, used, x, &to);
  if (type_equal(value_type(s->at.graph, x), &to)) return val_tensor(x);
  options.attrs[options.n++] = ATTR_T(TYPE, &to);
  return emit(s, OP_REDISTRIBUTE, &x, 1, options.attrs, options.n, call->span, &call->args[0].span);
}

Val redistribute_full(Sema *s, Val v, Span span) {
  ValueId x;
  if (!as_tensor(s, v, span, "what is gathered", &x)) return POISON;
  TensorType to = *value_type(s->at.graph, x);
  to.layout = (Layout){0};
  return emit_redistribute(s, x, &to, span);
}
