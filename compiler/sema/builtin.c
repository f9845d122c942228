/* The table of built-in names, and the functions of compile-time values. See elab.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sema/builtin.h"

/* --- compile-time functions --------------------------------------------------------------------
 */

static Val builtin_len(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  if (!bind_words(s, call, "list", v, at)) return POISON;
  if (v[0].kind == VAL_STRING) return val_int((int64_t)strlen(v[0].as.s));
  if (val_is_tensor(v[0]) && tensor_type(s, v[0])->rank > 0) return val_extent(s, v[0], 0);
  const List *list;
  return want_list(s, v[0], at[0], "the argument of len", &list) ? val_int(list->len) : POISON;
}

static Val builtin_range(Sema *s, const Call *call) {
  Val v[3];
  Span at[3];
  int64_t n[3] = {0, 0, 1};
  if (!bind_words(s, call, "start stop? step?", v, at)) return POISON;
  for (uint32_t i = 0; i < 3; i++)
    if (v[i].kind != VAL_UNSET && !want_int(s, v[i], at[i], "a bound of range", &n[i]))
      return POISON;
  if (v[1].kind == VAL_UNSET) {
    n[1] = n[0];
    n[0] = 0;
  }
  if (n[2] == 0) {
    sema_error(s, DIAG_ARITHMETIC, at[2], "the step of range cannot be 0");
    return POISON;
  }
  double count = ceil(((double)n[1] - (double)n[0]) / (double)n[2]);
  if (count > SEMA_MAX_LIST) {
    sema_error(s, DIAG_TOO_LARGE, call->span, "range has %.0f elements; at most %d are allowed",
               count, SEMA_MAX_LIST);
    return POISON;
  }
  List *list = list_new(s, count > 0 ? (uint32_t)count : 0);
  for (uint32_t i = 0; i < list->len; i++) list->data[i] = val_int(n[0] + (int64_t)i * n[2]);
  return val_list(list);
}

/* size(tp): ranks along a mesh dim (1 for none); size(mesh); size(x, d): an extent. */
static Val builtin_size(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  if (!bind_words(s, call, "of dim?", v, at)) return POISON;
  if (v[0].kind == VAL_MESH) return val_int(mesh_named_size(v[0].as.mesh));
  if (val_is_tensor(v[0])) {
    const TensorType *t = tensor_type(s, v[0]);
    int64_t d;
    if (v[1].kind == VAL_UNSET) {
      List *list = list_new(s, t->rank);
      for (uint32_t i = 0; i < t->rank; i++) list->data[i] = val_extent(s, v[0], i);
      return val_list(list);
    }
    if (!want_int(s, v[1], at[1], "dim", &d)) return POISON;
    if (d < 0) d += t->rank;
    if (d >= 0 && d < t->rank) return val_extent(s, v[0], (uint32_t)d);
    sema_error(s, DIAG_INDEX, at[1], "the tensor has %u dims", t->rank);
    return POISON;
  }
  /* on a sub-mesh the dims of the world that it lacks have their size there */
  int axis;
  bool name = v[0].kind == VAL_AXIS || v[0].kind == VAL_STRING;
  const Mesh *mesh = name && mesh_axis(s->at.mesh, v[0].as.s) < 0 ? s->world : s->at.mesh;
  if (!want_axis(s, v[0], mesh, at[0], true, &axis)) return POISON;
  return val_int(axis < 0 ? 1 : mesh->size[axis]);
}

/* Stage of each layer: earlier stages take the remainder. */
static Val builtin_assign_layers(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  int64_t layers, stages;
  if (!bind_words(s, call, "num_layers num_stages", v, at) ||
      !want_int(s, v[0], at[0], "num_layers", &layers) ||
      !want_int(s, v[1], at[1], "num_stages", &stages))
    return POISON;
  if (layers < 0 || layers > SEMA_MAX_LIST || stages < 1) {
    sema_error(s, DIAG_TOO_LARGE, call->span,
               "cannot assign %" PRId64 " layers to %" PRId64 " stages", layers, stages);
    return POISON;
  }
  List *list = list_new(s, (uint32_t)layers);
  uint32_t at_layer = 0;
  for (int64_t stage = 0; stage < stages && at_layer < layers; stage++) {
    int64_t count = layers / stages + (stage < layers % stages);
    for (int64_t i = 0; i < count; i++) list->data[at_layer++] = val_int(stage);
  }
  return val_list(list);
}

static Val builtin_concatenate(Sema *s, const Call *call) {
  Val v[2];
  Span at[2];
  const Mesh *a, *b;
  if (!bind_words(s, call, "first second", v, at) || !want_mesh(s, v[0], at[0], "first", &a) ||
      !want_mesh(s, v[1], at[1], "second", &b))
    return POISON;
  return mesh_concatenated(s, a, b, call->span);
}

static Val builtin_shard(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  int64_t d;
  if (!bind_words(s, call, "dim", v, at) || !want_int(s, v[0], at[0], "the dim of Shard", &d))
    return POISON;
  if (d < -DTM_MAX_DIMS || d >= DTM_MAX_DIMS) {
    sema_error(s, DIAG_INDEX, at[0], "a tensor has at most %d dims", DTM_MAX_DIMS);
    return POISON;
  }
  return (Val){.kind = VAL_PLACE, .as.place = {.kind = PLACE_SHARD, .dim = (int32_t)d}};
}

static Val builtin_partial(Sema *s, const Call *call) {
  /* `Partial(sum)` is read before its argument is evaluated (eval_call); this is the bare name */
  sema_error(s, DIAG_BAD_LAYOUT, call->span, "Partial takes the name of a reduction");
  return POISON;
}

static Val builtin_layout(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  if (!bind_words(s, call, "x", v, at)) return POISON;
  if (v[0].kind == VAL_LAYOUT || v[0].kind == VAL_TYPE) return v[0];
  if (!val_is_tensor(v[0])) {
    sema_error(s, DIAG_VALUE_KIND, at[0], "layout takes a tensor, not %s", val_kind_name(v[0]));
    return POISON;
  }
  return val_type(s, VAL_LAYOUT, tensor_type(s, v[0]));
}

static Val builtin_int(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  double whole;
  if (!bind_words(s, call, "value", v, at) || !want_float(s, v[0], at[0], "the value", &whole))
    return POISON;
  if (v[0].kind == VAL_INT) return v[0];
  double f = val_as_double(v[0]);
  if (fabs(f) < 9e18 && fabs(whole) < 9e18)
    return val_in_parts(val_int((int64_t)f), val_int((int64_t)whole));
  sema_error(s, DIAG_ARITHMETIC, at[0], "the result does not fit a 64-bit int");
  return POISON;
}

static Val builtin_float(Sema *s, const Call *call) {
  Val v[1];
  Span at[1];
  double whole;
  if (!bind_words(s, call, "value", v, at) || !want_float(s, v[0], at[0], "the value", &whole))
    return POISON;
  return val_in_parts(val_float(val_as_double(v[0])), val_float(whole));
}

static Val not_yet(Sema *s, const Call *call) {
  sema_error(s, DIAG_UNSUPPORTED, call->span, "%s is not supported yet", call->name);
  return POISON;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static const struct {
  const char *name;
  Val (*call)(Sema *s, const Call *call);
} table[] = {{"len", builtin_len},
             {"range", builtin_range},
             {"size", builtin_size},
             {"assign_layers_to_stages", builtin_assign_layers},
             {"concatenate", builtin_concatenate},
             {"Shard", builtin_shard},
             {"Partial", builtin_partial},
             {"layout", builtin_layout},
             {"int", builtin_int},
             {"float", builtin_float},
             {"total_steps", builtin_total_steps},
             {"scan", not_yet},
#define X(name) {#name, builtin_##name},
             TENSOR_BUILTINS(X)
#undef X
};

/* Other names of operators. */
static const struct {
  const char *name;
  Op op;
} aliases[] = {
    {"mm", OP_MATMUL},
    {"bmm", OP_MATMUL},
    {"cat", OP_CONCAT},
    {"view", OP_RESHAPE},
    {"amax", OP_MAX},
    {"amin", OP_MIN},
    {"multiply", OP_MUL},
    {"subtract", OP_SUB},
    {"divide", OP_DIV},
    {"true_divide", OP_DIV},
    {"negative", OP_NEG},
    {"absolute", OP_ABS},
    {"logsigmoid", OP_LOG_SIGMOID},
    {"not_equal", OP_NE},
    {"greater", OP_GT},
    {"less", OP_LT},
};

bool builtin_is_internal(Op op) {
  const OpInfo *info = op_info(op);
  if (info->cls == CLASS_COMM) return true;
  if (info->cls == CLASS_STRUCTURE) return op != OP_DETACH;
  return op == OP_CONST || op == OP_UNSLICE || op == OP_BALANCE || op == OP_EXTREMUM_BACKWARD ||
         op == OP_DROPOUT_BACKWARD || op == OP_ATTENTION_BACKWARD || op == OP_SELECT_HALF ||
         op == OP_GROUPED_LINEAR_WEIGHT || op == OP_GELU_TANH_SLOPE || op == OP_SILU_SLOPE;
}

/* Calls that are no list of words. */
static const struct {
  const char *name, *parameters;
} unlike_words[] = {
    {"Partial", "sum | avg | product | max | min | and | or | xor"},
    {"redistribute", "x, dim: placement ..., layout?, mesh = m, used?, async?, "
                     "forward_dtype?, backward_dtype?"},
    {"normal", "type, mean?, std?) or (mean?, std?"},
    {"uniform", "type, low?, high?) or (low?, high?"},
    {"norm", "x, p?, dims?, keepdim?"},
    {"zeros_like", "x"},
    {"ones_like", "x"},
    {"empty_like", "x"},
    {"full_like", "x, value"},
    {"rand_like", "x"},
    {"randn_like", "x"},
};

const char *builtin_parameters(Sema *s, const char *name) {
  for (size_t i = 0; i < sizeof unlike_words / sizeof *unlike_words; i++)
    if (strcmp(unlike_words[i].name, name) == 0) return unlike_words[i].parameters;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, name) != 0 || table[i].call == not_yet) continue;
    s->asked = "";
    table[i].call(s, &(Call){.name = name});
    StrBuf text;
    strbuf_init(&text, s->arena);
    for (const char *w = s->asked; *w;) {
      size_t len = strcspn(w, " "), word = strcspn(w, "| ");
      strbuf_printf(&text, "%s%.*s", text.len ? ", " : "", (int)word, w);
      if (word < len && w[len - 1] == '?') strbuf_putc(&text, '?');
      w += len + (w[len] == ' ');
    }
    s->asked = NULL;
    return text.len ? text.text : "";
  }
  return NULL;
}

Op sema_function(const char *name, bool *function) {
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (strcmp(aliases[i].name, name) == 0) return aliases[i].op;
  *function = false;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    *function |= strcmp(table[i].name, name) == 0 && table[i].call != not_yet;
  return OP_NONE;
}

static Builtin *add(Sema *s, const char *name) {
  Builtin *b = ARENA_NEW(s->arena, Builtin);
  b->name = intern(s->names, name);
  name_map_put(s->arena, &s->builtins, b->name, b);
  return b;
}

void builtins_init(Sema *s) {
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (!builtin_is_internal((Op)op)) add(s, op_name((Op)op))->op = (Op)op;
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    add(s, aliases[i].name)->op = aliases[i].op;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    add(s, table[i].name)->call = table[i].call;
  add(s, "Replicate")->constant = (Val){.kind = VAL_PLACE, .as.place.kind = PLACE_REPLICATE};
  add(s, "pi")->constant = val_float(3.14159265358979323846);
  add(s, "inf")->constant = val_float(INFINITY);
}

const Builtin *builtin_find(const Sema *s, const char *name) {
  return name_map_get(&s->builtins, name);
}
