/* Nodes: from values to the graph at hand, always through inference. See elab.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sema/escape.h"

void begin_graph(Sema *s, Graph *g, GraphCache *cache) {
  s->at.graph = g;
  s->at.types = g;
  s->at.cache = cache;
  s->at.scope = 0;
}

static bool need_graph(Sema *s, Span span) {
  if (s->at.graph) return true;
  Diag *d =
      sema_error(s, DIAG_TENSOR_OUTSIDE, span, "tensors are computed in functions and blocks");
  diag_reason(s->sink, d, "this code runs once, in the compiler; a module computes in its forward");
  return false;
}

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.start == b.start && a.end == b.end;
}

/* Index of the operand that the overlay changes for a node with this span; -1 = none. */
static int overlay_operand(const Sema *s, Span span) {
  const FixCandidate *fix = s->options->overlay;
  return fix && fix->node.file && same_span(fix->node, span) ? (int)fix->operand : -1;
}

static Val results_of(Sema *s, NodeId id) {
  const Node *n = graph_node(s->at.graph, id);
  for (uint32_t i = 0; i < n->nresults; i++)
    if (graph_value(s->at.graph, node_result(n, i))->poisoned) return POISON;
  if (n->nresults == 1) return val_tensor(n->first_result);
  List *list = list_new(s, n->nresults);
  for (uint32_t i = 0; i < list->len; i++) list->data[i] = val_tensor(node_result(n, i));
  return val_list(list);
}

static Val infer_and_add(Sema *s, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                         uint32_t nattrs, Span span, const Span *spans) {
  if (s->at.auto_block && n) {
    ValueId *fitted = ARENA_ARRAY(s->arena, ValueId, n);
    memcpy(fitted, operands, n * sizeof *fitted);
    auto_fit(s, op, fitted, n, attrs, nattrs, span, spans);
    operands = fitted;
  }
  NodeId id =
      infer_add(s->at.graph, s->sink, op, operands, n, attrs, nattrs, span, spans, s->at.scope);
  return results_of(s, id);
}

/* Operators that can give dims to a number without any. */
static bool adds_dims(Op op) {
  return op_info(op)->cls == CLASS_MOVEMENT || op == OP_ONE_HOT;
}

ValueId emit_on_mesh(Sema *s, ValueId x, const Mesh *mesh, Span span) {
  const TensorType *t = value_type(s->at.graph, x);
  if (t->mesh || graph_value(s->at.graph, x)->poisoned) return x;
  TensorType one = {.dtype = t->dtype, .mesh = mesh};
  Attr attrs[] = {ATTR_T(TYPE, &one), ATTR_F(VALUE, 1)};
  ValueId factor = emit_typed(s, OP_FULL, attrs, 2, &one, span);
  Op op = one.dtype == DT_BOOL ? OP_LOGICAL_AND : OP_MUL;
  Val v = infer_and_add(s, op, (ValueId[]){x, factor}, 2, NULL, 0, span, NULL);
  return v.kind == VAL_TENSOR ? v.as.tensor : x;
}

Val emit_redistribute(Sema *s, ValueId x, const TensorType *to, Span span) {
  if (type_equal(value_type(s->at.graph, x), to)) return val_tensor(x);
  return infer_and_add(s, OP_REDISTRIBUTE, &x, 1, (Attr[]){ATTR_T(TYPE, to)}, 1, span, NULL);
}

/* The mesh of this elaboration that a type of an earlier one means. */
static const Mesh *mesh_again(Sema *s, const Mesh *mesh) {
  for (uint32_t i = 0; mesh && i < s->program->meshes.len; i++)
    if (strcmp(s->program->meshes.data[i]->name, mesh->name) == 0)
      return s->program->meshes.data[i];
  return mesh ? mesh_listed(s, mesh) : NULL;
}

/* The overlay's layout for a value, where that is the layout it was proposed for. */
static Val overlaid(Sema *s, ValueId x) {
  const FixCandidate *fix = s->options->overlay;
  TensorType to = *value_type(s->at.graph, x);
  if (to.rank != fix->from.rank || !layout_equal(&to.layout, &fix->from.layout) ||
      to.mesh != mesh_again(s, fix->from.mesh))
    return val_tensor(x);
  to.layout = fix->to.layout;
  to.mesh = mesh_again(s, fix->to.mesh);
  return emit_redistribute(s, x, &to, fix->text);
}

Val overlay_value(Sema *s, Val v, Span span) {
  ValueId x;
  if (overlay_operand(s, span) != FIX_VALUE || !s->at.graph || !val_is_tensor(v)) return v;
  return as_tensor(s, v, span, "the value", &x) ? overlaid(s, x) : POISON;
}

Val emit(Sema *s, Op op, const ValueId *operands, uint32_t noperands, const Attr *attrs,
         uint32_t nattrs, Span span, const Span *spans) {
  if (!need_graph(s, span)) return POISON;
  ValueId settled;
  if (noperands == 1 && adds_dims(op) && !value_type(s->at.graph, *operands)->mesh) {
    settled = emit_on_mesh(s, *operands, s->at.mesh, span);
    operands = &settled;
  }
  int fixed = overlay_operand(s, span);
  if (fixed < 0 || (uint32_t)fixed >= noperands)
    return infer_and_add(s, op, operands, noperands, attrs, nattrs, span, spans);
  ValueId *changed = ARENA_ARRAY(s->arena, ValueId, noperands);
  memcpy(changed, operands, noperands * sizeof *operands);
  Val v = overlaid(s, changed[fixed]);
  if (v.kind == VAL_POISON) return v;
  changed[fixed] = v.as.tensor;
  return infer_and_add(s, op, changed, noperands, attrs, nattrs, span, spans);
}

Val emit1(Sema *s, Op op, ValueId x, const Attr *attrs, uint32_t nattrs, Span span) {
  /* stale where it is not within this node's expression */
  Span of = s->at.operand;
  bool known = of.file && of.file == span.file && of.start >= span.start && of.end <= span.end;
  return emit(s, op, &x, 1, attrs, nattrs, span, known ? &of : NULL);
}

Val emit2(Sema *s, Op op, ValueId a, ValueId b, Span span) {
  return emit(s, op, (ValueId[]){a, b}, 2, NULL, 0, span, NULL);
}

ValueId emit_typed(Sema *s, Op op, const Attr *attrs, uint32_t nattrs, const TensorType *type,
                   Span span) {
  NodeId id = graph_add(s->at.graph, op, NULL, 0, attrs, nattrs, type, 1, span, s->at.scope);
  return graph_node(s->at.graph, id)->first_result;
}

void emit_output(Sema *s, ValueId v, const char *name, const char *role, Span span) {
  Attr attrs[] = {ATTR_S(NAME, intern(s->names, name)), ATTR_S(ROLE, intern(s->names, role))};
  graph_add(s->at.graph, OP_OUTPUT, &v, 1, attrs, 2, NULL, 0, span, s->at.scope);
}

static uint64_t const_key(DType dtype, double value, const Mesh *mesh) {
  struct {
    double value;
    const Mesh *mesh;
    uint64_t dtype;
  } id = {value, mesh, dtype};
  return hash_bytes(&id, sizeof id, 7);
}

ValueId const_made(const GraphCache *cache, DType dtype, double value, const Mesh *mesh) {
  ValueId have;
  return id_map_get(&cache->consts, const_key(dtype, value, mesh), &have) ? have : 0;
}

ValueId read_made(const GraphCache *cache, uint32_t var) {
  ValueId have;
  return id_map_get(&cache->reads, var, &have) ? have : 0;
}

ValueId emit_const(Sema *s, DType dtype, double value, const Mesh *mesh, Span span) {
  uint64_t key = const_key(dtype, value, mesh);
  uint32_t have;
  if (id_map_get(&s->at.cache->consts, key, &have)) return have;
  TensorType t = {.dtype = dtype, .mesh = mesh};
  ValueId v =
      emit_typed(s, OP_CONST, (Attr[]){ATTR_I(DTYPE, dtype), ATTR_F(VALUE, value)}, 2, &t, span);
  id_map_put(s->arena, &s->at.cache->consts, key, v);
  return v;
}

/* Largest finite magnitude of a float type. */
static double float_limit(DType t) {
  switch (t) {
  case DT_F16:
    return 65504;
  case DT_F8_E4M3:
    return 448;
  case DT_F8_E5M2:
    return 57344;
  case DT_F32:
  case DT_BF16:
    return 3.4028234663852886e38;
  case DT_F64:
  case DT_NONE:
  case DT_I64:
  case DT_I32:
  case DT_I16:
  case DT_I8:
  case DT_U8:
  case DT_BOOL:
  case DT_COUNT:
    break;
  }
  return INFINITY;
}

bool literal_const(Sema *s, Val v, DType dtype, const Mesh *mesh, Span span, ValueId *out) {
  if (v.kind == VAL_POISON || !need_graph(s, span)) return false;
  const char *why = NULL;
  if (v.in_parts) v = val_whole(v);
  double value = val_is_number(v) ? val_as_double(v) : 0;
  if (!val_is_number(v)) {
    why = "is not a number";
  } else if (dtype == DT_BOOL || v.kind == VAL_BOOL) {
    if (dtype != DT_BOOL || v.kind != VAL_BOOL) why = "is of another kind";
  } else if (dtype_is_float(dtype)) {
    if (isfinite(value) && fabs(value) > float_limit(dtype)) why = "is too large";
  } else {
    int bits = (int)dtype_bytes(dtype) * 8;
    double top = ldexp(1, dtype == DT_U8 ? 8 : bits - 1);
    double low = dtype == DT_U8 ? 0 : -top;
    if (value != floor(value))
      why = "is not an integer";
    else if (value < low || value >= top)
      why = "is out of range";
    else if (fabs(value) > 9007199254740992.0)
      why = "cannot be represented exactly in a graph";
  }
  if (!why) {
    *out = emit_const(s, dtype, value, mesh, span);
    return true;
  }
  sema_error(s, DIAG_LITERAL, span, "%s beside a tensor of %s: it %s",
             val_is_number(v) ? val_print(s, v) : val_kind_name(v), dtype_name(dtype), why);
  return false;
}

const TensorType *tensor_type(Sema *s, Val v) {
  if (v.kind == VAL_VAR) return &s->program->vars.data[v.as.var].type;
  return value_type(s->at.types, v.as.tensor);
}

bool as_tensor(Sema *s, Val v, Span span, const char *what, ValueId *out) {
  if (v.kind == VAL_POISON) return false;
  if (!val_is_tensor(v)) {
    sema_error(s, DIAG_VALUE_KIND, span, "%s must be a tensor, not %s", what, val_kind_name(v));
    return false;
  }
  if (!need_graph(s, span)) return false;
  if (v.kind == VAL_TENSOR) {
    *out = v.as.tensor;
    return true;
  }
  uint32_t have;
  if (!id_map_get(&s->at.cache->reads, v.as.var, &have)) {
    const Var *var = &s->program->vars.data[v.as.var];
    have = emit_typed(s, OP_READ, (Attr[]){ATTR_I(VAR, v.as.var)}, 1, &var->type, var->span);
    graph_value(s->at.graph, have)->name = var->name;
    id_map_put(s->arena, &s->at.cache->reads, v.as.var, have);
  }
  *out = have;
  return true;
}

Val emit_cast(Sema *s, ValueId x, DType dtype, Span span) {
  if (value_type(s->at.graph, x)->dtype == dtype) return val_tensor(x);
  return emit1(s, OP_CAST, x, (Attr[]){ATTR_I(DTYPE, dtype)}, 1, span);
}

Val emit_reshape(Sema *s, ValueId x, const int64_t *shape, uint32_t rank, Span span) {
  return emit1(s, OP_RESHAPE, x, (Attr[]){ATTR_INTS(SHAPE, shape, rank)}, 1, span);
}

int64_t next_instance(Sema *s) {
  if (!s->at.cache) return 0; /* no graph: emit says so */
  return instance_at(s, s->at.path ? s->at.path : "");
}

int64_t instance_at(Sema *s, const char *path) {
  /* 31 bits of a hash of where it stands, so that code elsewhere does not change it; the next free
   * one where two would agree. */
  uint64_t key = hash_stable(path, strlen(path), 11) & 0x7fffffff;
  uint32_t taken;
  while (id_map_get(&s->at.cache->instances, key, &taken)) key = (key + 1) & 0x7fffffff;
  id_map_put(s->arena, &s->at.cache->instances, key, 1);
  VEC_PUSH(s->arena, &s->at.cache->draws, (Draw){path, (int64_t)key});
  return (int64_t)key;
}

void name_value(Sema *s, Val v, const char *name) {
  if (v.kind != VAL_TENSOR || !s->at.graph) return;
  Value *value = graph_value(s->at.graph, v.as.tensor);
  if (value->name) return;
  value->name = name;
  value->name_scope = s->at.scope;
}
