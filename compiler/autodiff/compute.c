/* Mixed precision, stage graph -> graph: the train block computes in bf16 with f32 parameters. With
 * `compute f16` read f16 for bf16; scale.c then keeps its gradients in range.
 *
 * Parameters, inputs and factories stay f32 and are cast where an operator computes in bf16, so the
 * optimizer works on f32 masters and gradients come back in f32. Contractions always compute in
 * bf16. Reductions and losses take f32 (a bf16 operand is cast up). Everything else follows its
 * operands: f32 when one of them was made f32 on purpose (by `.to(f32)` or a reduction), else bf16.
 * An embedding looks up rows as they are, and those of an f32 table are cast where they are used.
 * Integer and f64 code is left alone.
 *
 * A pending sum is not narrowed, with two exceptions in which of each element one rank's addend is
 * the sum and the others are 0, so that converting addends is exact: a Partial parameter (see
 * optimizer.c), and what is looked up in a table cut by rows. Their casts say `single`. */
#include "autodiff/autodiff.h"
#include "ir/rewrite.h"

typedef struct Compute {
  const Program *program;
  DType half; /* bf16 or f16 */
  GraphMap map;
  Arena *scratch;
  DiagSink *sink;
  DiagSink inner;
  uint8_t *about; /* per new value: set of the following */
  uint32_t nabout;
  Node at; /* old node */
} Compute;

enum {
  ABOUT_SOURCE = 1, /* f32 that may be cast down where it is used */
  ABOUT_SINGLE = 2  /* if it is Partial, all addends of an element but one are 0 */
};

static DType dtype_of(const Compute *c, ValueId v) {
  return value_type(c->map.to, v)->dtype;
}

static uint8_t about(const Compute *c, ValueId v) {
  return v < c->nabout ? c->about[v] : 0;
}

static bool is_source(const Compute *c, ValueId v) {
  return about(c, v) & ABOUT_SOURCE;
}

static void note_about(Compute *c, ValueId v, uint8_t what) {
  if (v >= c->nabout) {
    uint32_t n = v * 2 + 64;
    c->about = arena_grow(c->scratch, c->about, c->nabout, n);
    c->nabout = n;
  }
  c->about[v] |= what;
}

static ValueId cast(Compute *c, ValueId v, DType to) {
  if (dtype_of(c, v) == to) return v;
  Attr attrs[] = {ATTR_I(DTYPE, to), ATTR_I(SINGLE, 1)};
  bool single = about(c, v) & ABOUT_SINGLE && layout_has_partial(&value_type(c->map.to, v)->layout);
  NodeId id = infer_add(c->map.to, &c->inner, OP_CAST, &v, 1, attrs, single ? 2 : 1, c->at.span,
                        NULL, c->at.scope);
  return node_result(graph_node(c->map.to, id), 0);
}

/* An operand in the element type of the operator. */
static ValueId convert(Compute *c, ValueId v, DType to) {
  DType have = dtype_of(c, v);
  if (have == to || (have != DT_F32 && have != c->half)) return v;
  const Node *n = value_node(c->map.to, v);
  if (n->op != OP_CONST) return cast(c, v, to);
  Attr attrs[] = {ATTR_I(DTYPE, to), ATTR_F(VALUE, node_float(n, ATTR_VALUE, 0))};
  NodeId id =
      infer_add(c->map.to, &c->inner, OP_CONST, NULL, 0, attrs, 2, c->at.span, NULL, c->at.scope);
  return node_result(graph_node(c->map.to, id), 0);
}

/* The element type in which the old node computes now; DT_NONE = as it stands. */
static DType element_type(const Compute *c, const ValueId *operands) {
  bool half = false, source = false, wide = false;
  for (uint32_t i = 0; i < c->at.noperands; i++) {
    DType t = dtype_of(c, operands[i]);
    bool number = value_node(c->map.to, operands[i])->op == OP_CONST;
    half |= t == c->half;
    source |= is_source(c, operands[i]);
    wide |= t == DT_F32 && !number && !is_source(c, operands[i]);
  }
  OpClass cls = op_info(c->at.op)->cls;
  if (cls == CLASS_CONTRACTION || c->at.op == OP_GROUPED_LINEAR)
    return half || source || wide ? c->half : DT_NONE;
  if (cls == CLASS_REDUCTION || c->at.op == OP_CUMSUM) return half ? DT_F32 : DT_NONE;
  if (c->at.op == OP_EMBEDDING || c->at.op == OP_CROSS_ENTROPY || c->at.op == OP_CAST ||
      c->at.op == OP_DETACH || c->at.nresults == 0)
    return DT_NONE;
  if (!half && !source) return DT_NONE;
  return wide ? DT_F32 : c->half;
}

/* See ABOUT_SINGLE. */
static bool makes_single(const Compute *c, const ValueId *operands) {
  if (c->at.op == OP_READ)
    return c->program->vars.data[node_int(&c->at, ATTR_VAR, 0)].kind == VAR_PARAM;
  if (c->at.op == OP_EMBEDDING)
    return !layout_has_partial(&value_type(c->map.to, operands[1])->layout);
  return c->at.op == OP_DETACH && about(c, operands[0]) & ABOUT_SINGLE;
}

static bool makes_source(const Compute *c, const ValueId *operands) {
  switch ((int)c->at.op) {
  case OP_READ:
  case OP_INPUT:
  case OP_FULL:
  case OP_RAND:
  case OP_RANDN:
  case OP_ARANGE:
  case OP_LOGSPACE:
  case OP_IOTA:
  case OP_EMBEDDING:
    return true;
  case OP_DETACH:
    return is_source(c, operands[0]);
  case OP_CAST: /* integers become numbers of the default type */
    return !dtype_is_float(dtype_of(c, operands[0]));
  }
  return false;
}

/* The node again, on operands of element type `t` (as they are when DT_NONE). */
static void rebuild(Compute *c, DType t, ValueId *operands) {
  Attr attrs[ATTR_COUNT];
  TensorType type;
  for (uint32_t i = 0; t && i < c->at.noperands; i++) operands[i] = convert(c, operands[i], t);
  for (uint32_t i = 0; i < c->at.nattrs; i++) {
    attrs[i] = c->at.attrs[i];
    if (!t || attr_kind(attrs[i].key) != ATTR_KIND_TYPE || attrs[i].as.type->dtype != DT_F32)
      continue;
    type = *attrs[i].as.type;
    type.dtype = t;
    attrs[i].as.type = &type;
  }
  NodeId id = infer_add(c->map.to, &c->inner, c->at.op, operands, c->at.noperands, attrs,
                        c->at.nattrs, c->at.span, NULL, c->at.scope);
  for (uint32_t i = 0; i < c->at.nresults; i++)
    graph_map_set(&c->map, node_result(&c->at, i), node_result(graph_node(c->map.to, id), i));
}

/* Some operand has another element type than before: so may the results. */
static bool is_changed(const Compute *c, const ValueId *operands) {
  for (uint32_t i = 0; i < c->at.noperands; i++)
    if (dtype_of(c, operands[i]) != value_type(c->map.from, c->at.operands[i])->dtype) return true;
  return false;
}

static void lower_node(Compute *c, NodeId id) {
  c->at = *graph_node(c->map.from, id);
  ValueId *operands = ARENA_ARRAY(c->scratch, ValueId, c->at.noperands);
  for (uint32_t i = 0; i < c->at.noperands; i++)
    operands[i] = graph_map_get(&c->map, c->at.operands[i]);
  DType t = element_type(c, operands);
  bool source = makes_source(c, operands);
  if (c->at.op == OP_ASSIGN)
    operands[0] = cast(c, operands[0], value_type(c->map.from, c->at.operands[0])->dtype);
  if (t || is_changed(c, operands))
    rebuild(c, t, operands);
  else
    graph_map_copy(&c->map, id);
  for (uint32_t i = 0; source && i < c->at.nresults; i++) {
    ValueId v = graph_map_get(&c->map, node_result(&c->at, i));
    if (dtype_of(c, v) == DT_F32) note_about(c, v, ABOUT_SOURCE);
    if (makes_single(c, operands)) note_about(c, v, ABOUT_SINGLE);
  }
}

static bool report(Compute *c, const ProgramBlock *b) {
  for (uint32_t i = 0; i < c->inner.diags.len; i++) {
    const Diag *fault = c->inner.diags.data[i];
    Diag *d = diag_emit(c->sink, DIAG_UNSUPPORTED_TRAINING, fault->span, "compute %s: %s",
                        dtype_name(c->half), fault->message);
    for (uint32_t k = 0; k < fault->lines.len; k++)
      if (fault->lines.data[k].kind == DIAG_REASON)
        diag_reason(c->sink, d, "%s", fault->lines.data[k].text);
    if (!fault->span.file) d->span = b->optimizer.span;
  }
  return c->inner.diags.len == 0;
}

bool compute_run(Program *program, DiagSink *sink) {
  ProgramBlock *b = &program->block[BLOCK_TRAIN];
  DType t = b->settings.compute;
  if (!b->graph || !b->loss || t == DT_NONE || t == DT_F32 ||
      value_type(b->graph, b->loss)->dtype != DT_F32)
    return true;
  if (t != DT_BF16 && t != DT_F16) {
    Diag *d = diag_emit(sink, DIAG_UNSUPPORTED_TRAINING, b->optimizer.span,
                        "compute %s is not supported", dtype_name(t));
    diag_reason(sink, d, "there are f32, bf16 and f16");
    return false;
  }
  Arena scratch;
  arena_init(&scratch);
  Compute c = {.program = program,
               .half = t,
               .map = graph_map_begin(&scratch, program->arena, b->graph),
               .scratch = &scratch,
               .sink = sink};
  diag_init(&c.inner, &scratch, program->sources);
  for (NodeId id = 1; id < b->graph->nodes.len; id++) lower_node(&c, id);
  ValueId loss = graph_map_get(&c.map, b->loss), lr = graph_map_get(&c.map, b->optimizer.lr);
  c.at = *value_node(b->graph, b->loss);
  loss = cast(&c, loss, DT_F32);
  bool ok = report(&c, b);
  if (ok) {
    b->graph = c.map.to;
    b->loss = loss;
    b->optimizer.lr = lr;
  }
  arena_free(&scratch);
  return ok;
}
