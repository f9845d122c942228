/* infer_add: one node into a graph, with its implicit slices or its diagnostic.
 *
 * Stage: graph construction (sema) and every pass that adds operators (autodiff). Invariant: the
 * graph stays in topological order; a node with a fault exists, its results poisoned.
 */
#include "infer/rules.h"

#include <string.h>

static Operand operand_of(const Graph *g, ValueId id) {
  Operand o = {.type = *value_type(g, id)};
  o.is_const = value_const(g, id, &o.const_value);
  return o;
}

static Place place_on(const Graph *g, ValueId id, const char *axis, int *index) {
  const TensorType *t = value_type(g, id);
  for (uint32_t a = 0; t->mesh && a < t->mesh->naxes; a++)
    if (t->mesh->axis[a] == axis) {
      *index = (int)a;
      return t->layout.at[a];
    }
  return (Place){0};
}

/* The node where the placement kind of `id` on `axis` arose: the first, going back, none of whose
 * operands has it. */
static NodeId find_origin(const Graph *g, ValueId id, const char *axis, PlaceKind kind) {
  for (;;) {
    const Node *n = value_node(g, id);
    ValueId next = 0;
    int index;
    for (uint32_t i = 0; i < n->noperands && !next; i++)
      if (place_on(g, n->operands[i], axis, &index).kind == kind) next = n->operands[i];
    if (!next || (n->op == OP_REDISTRIBUTE && node_int(n, ATTR_IMPLICIT, 0) == 0 &&
                  place_on(g, next, axis, &index).kind != kind))
      return g->values.data[id].node;
    id = next;
  }
}

/* Why the node's result is Partial on the axis, by inferring it again. */
static const char *explain_origin(Arena *arena, const Graph *g, NodeId id, int axis) {
  const Node *n = graph_node(g, id);
  Operand *operands = ARENA_ARRAY(arena, Operand, n->noperands);
  InferResult *out = ARENA_NEW(arena, InferResult);
  if (n->noperands > INFER_MAX_OPERANDS) return NULL;
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = operand_of(g, n->operands[i]);
  if (!infer_rules(arena, n->op, operands, n->noperands, n->attrs, n->nattrs, true, out))
    return NULL;
  return out->why_partial[axis];
}

static const char *origin_noun(const Node *n) {
  if (n->op == OP_READ || n->op == OP_INPUT) return "it is declared so";
  if (n->op == OP_REDISTRIBUTE)
    return node_int(n, ATTR_INSERTED, 0) ? "auto inserted a redistribute here"
                                         : "the redistribute asks for it";
  return NULL;
}

/* The operand to explain: the bad one, or where it is Replicate another that is not. */
static ValueId operand_to_explain(const Graph *g, const InferResult *out, const ValueId *operands,
                                  uint32_t n) {
  for (uint32_t turn = 0; turn < n; turn++) {
    ValueId id = operands[(out->bad_operand + turn) % n];
    const TensorType *t = value_type(g, id);
    if (t->mesh && t->layout.at[out->bad_axis].kind != PLACE_REPLICATE) return id;
  }
  return 0;
}

static void note_origin(DiagSink *sink, Diag *d, const Graph *g, const InferResult *out,
                        const ValueId *operands, uint32_t noperands) {
  ValueId bad = out->bad_axis < 0 ? 0 : operand_to_explain(g, out, operands, noperands);
  if (!bad) return;
  const TensorType *t = value_type(g, bad);
  PlaceKind kind = (PlaceKind)t->layout.at[out->bad_axis].kind;
  const char *axis = t->mesh->axis[out->bad_axis];
  NodeId origin = find_origin(g, bad, axis, kind);
  const Node *n = graph_node(g, origin);
  if (n->span.file == 0) return;
  int index = out->bad_axis;
  place_on(g, node_result(n, 0), axis, &index);
  const char *why = kind == PLACE_PARTIAL ? explain_origin(sink->arena, g, origin, index) : NULL;
  if (!why) why = origin_noun(n);
  const char *what =
      kind == PLACE_PARTIAL ? "partial" : arena_printf(sink->arena, "sharded on %s", axis);
  const char *at = span_print(sink->arena, sink->sources, n->span);
  diag_note(sink, d, n->span, "%s since %s%s%s", what, at, why ? ": " : "", why ? why : "");
}

static void label_operands(DiagSink *sink, Diag *d, const Graph *g, const ValueId *operands,
                           uint32_t n) {
  StrBuf sb;
  strbuf_init(&sb, sink->arena);
  strbuf_puts(&sb, n == 1 ? "operand is " : "operands are ");
  for (uint32_t i = 0; i < n; i++) {
    double v;
    bool constant = value_const(g, operands[i], &v);
    if (i) strbuf_puts(&sb, i + 1 == n ? " and " : ", ");
    strbuf_puts(&sb, constant ? arena_printf(sink->arena, "the constant %g", v)
                              : type_print(sink->arena, value_type(g, operands[i])));
  }
  if (n) diag_label(sink, d, "%s", sb.text);
}

static void emit(DiagSink *sink, const Graph *g, const InferResult *out, const ValueId *operands,
                 uint32_t noperands, Span span, const Span *spans, uint32_t scope) {
  Diag *d = diag_emit(sink, out->code, span, "%s", out->message);
  label_operands(sink, d, g, operands, noperands);
  if (out->reason) diag_reason(sink, d, "%s", out->reason);
  note_origin(sink, d, g, out, operands, noperands);
  for (uint32_t s = scope; s != 0; s = g->scopes.data[s].parent) {
    const Scope *in = &g->scopes.data[s];
    const char *path = *in->path ? arena_printf(sink->arena, " (%s)", in->path) : "";
    if (in->call.file) diag_note(sink, d, in->call, "in %s%s, used here", in->what, path);
  }
  for (uint32_t k = 0; k < out->nfixes; k++) {
    uint32_t i = out->fixes[k].operand;
    FixCandidate *fix = ARENA_NEW(sink->arena, FixCandidate);
    *fix = (FixCandidate){.node = span,
                          .operand = i,
                          .text = spans ? spans[i] : (Span){0},
                          .from = *value_type(g, operands[i]),
                          .to = out->fixes[k].to};
    VEC_PUSH(sink->arena, &d->fixes, fix);
  }
}

/* A node that stands for one with a fault; its results have the types inference got to, if any. */
static NodeId add_poisoned(Graph *g, Op op, const ValueId *operands, uint32_t noperands,
                           const Attr *attrs, uint32_t nattrs, Span span, uint32_t scope) {
  TensorType none[INFER_MAX_RESULTS] = {{.dtype = DT_NONE}};
  const Mesh *mesh = noperands ? value_type(g, operands[0])->mesh : NULL;
  uint32_t nresults = op_info(op)->results;
  for (uint32_t k = 0; k < nresults; k++) none[k] = (TensorType){.dtype = DT_F32, .mesh = mesh};
  NodeId id = graph_add(g, op, operands, noperands, attrs, nattrs, none, nresults, span, scope);
  for (uint32_t k = 0; k < nresults; k++)
    graph_value(g, node_result(graph_node(g, id), k))->poisoned = true;
  return id;
}

static ValueId add_slice(Graph *g, ValueId of, const TensorType *to, Span span, uint32_t scope) {
  Attr attrs[] = {ATTR_T(TYPE, to), ATTR_I(IMPLICIT, 1)};
  NodeId id = graph_add(g, OP_REDISTRIBUTE, &of, 1, attrs, 2, to, 1, span, scope);
  return node_result(graph_node(g, id), 0);
}

/* --- nodes like an earlier one ---- */

/* The layers of a model ask the same again and again: a node with equal operand types and
 * attributes gets the results of the earlier one. */
static uint64_t value_key(Graph *g, ValueId id) {
  Value *v = graph_value(g, id);
  if (v->key) return v->key;
  const TensorType *t = &v->type;
  double value = 0;
  uint64_t h = hash_bytes(t->shape, t->rank * sizeof *t->shape, (uint64_t)t->dtype);
  h = hash_bytes(&t->mesh, sizeof t->mesh, h);
  h = hash_bytes(&t->layout, sizeof t->layout, h);
  if (value_const(g, id, &value)) h = hash_bytes(&value, sizeof value, h);
  return v->key = h | 1;
}

static uint64_t likeness(Graph *g, Op op, const ValueId *operands, uint32_t noperands,
                         const Attr *attrs, uint32_t nattrs) {
  uint64_t h = ((uint64_t)op << 8) + noperands;
  for (uint32_t i = 0; i < noperands; i++) {
    h = (h ^ value_key(g, operands[i])) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return attrs_hash(attrs, nattrs, h);
}

static bool same_operand(const Graph *g, ValueId a, ValueId b) {
  double x = 0, y = 0;
  if (a == b) return true;
  if (!type_equal(value_type(g, a), value_type(g, b))) return false;
  bool constant = value_const(g, a, &x);
  return constant == value_const(g, b, &y) && memcmp(&x, &y, sizeof x) == 0;
}

static bool is_like(const Graph *g, const Node *n, Op op, const ValueId *operands,
                    uint32_t noperands, const Attr *attrs, uint32_t nattrs) {
  if (n->op != op || n->noperands != noperands || n->nattrs != nattrs) return false;
  for (uint32_t i = 0; i < nattrs; i++)
    if (!attr_equal(&n->attrs[i], &attrs[i])) return false;
  for (uint32_t i = 0; i < noperands; i++)
    if (!same_operand(g, n->operands[i], operands[i])) return false;
  return true;
}

/* 0 = none. */
static NodeId find_like(const Graph *g, uint64_t key, Op op, const ValueId *operands,
                        uint32_t noperands, const Attr *attrs, uint32_t nattrs) {
  for (NodeId id; id_map_get(&g->inferred, key, &id); key++)
    if (id < g->nodes.len && is_like(g, graph_node(g, id), op, operands, noperands, attrs, nattrs))
      return id;
  return 0;
}

/* Only a node that stands as it was asked for: no slices before it, its attributes canonical. */
static void remember_like(Graph *g, uint64_t key, NodeId id, const ValueId *operands,
                          uint32_t noperands, const Attr *attrs, uint32_t nattrs) {
  const Node *n = graph_node(g, id);
  if (!is_like(g, n, n->op, operands, noperands, attrs, nattrs)) return;
  for (NodeId other; id_map_get(&g->inferred, key, &other);) key++;
  id_map_put(g->arena, &g->inferred, key, id);
}

static NodeId add_like(Graph *g, NodeId like, const ValueId *operands, Span span, uint32_t scope) {
  const Node *n = graph_node(g, like);
  for (uint32_t i = 0; i < n->nresults; i++) value_key(g, node_result(n, i));
  return graph_add_like(g, g, like, operands, span, scope);
}

/* The operands as rules want them; of few the room is on the stack. */
static Operand *list_operands(const Graph *g, const ValueId *operands, uint32_t noperands,
                              Operand few[8]) {
  Operand *given = noperands > 8 ? ARENA_ARRAY(g->arena, Operand, noperands) : few;
  for (uint32_t i = 0; i < noperands; i++) given[i] = operand_of(g, operands[i]);
  return given;
}

NodeId infer_add(Graph *g, DiagSink *sink, Op op, const ValueId *operands, uint32_t noperands,
                 const Attr *attrs, uint32_t nattrs, Span span, const Span *spans, uint32_t scope) {
  Operand few[8];
  InferResult out;
  ValueId sliced[INFER_MAX_OPERANDS];
  for (uint32_t i = 0; i < noperands; i++)
    if (graph_value(g, operands[i])->poisoned)
      return add_poisoned(g, op, operands, noperands, attrs, nattrs, span, scope);
  uint64_t key = likeness(g, op, operands, noperands, attrs, nattrs);
  NodeId like = find_like(g, key, op, operands, noperands, attrs, nattrs);
  if (like) return add_like(g, like, operands, span, scope);
  const Operand *given = list_operands(g, operands, noperands, few);
  if (!infer_rules(g->arena, op, given, noperands, attrs, nattrs, false, &out)) {
    infer_node(sink->arena, op, given, noperands, attrs, nattrs, &out);
    emit(sink, g, &out, operands, noperands, span, spans, scope);
    return add_poisoned(g, op, operands, noperands, attrs, nattrs, span, scope);
  }
  for (uint32_t i = 0; i < noperands; i++) {
    sliced[i] = operands[i];
    if (!out.slice[i]) continue;
    Span at = spans && spans[i].file ? spans[i] : span;
    sliced[i] = add_slice(g, operands[i], &out.slice_to[i], at, scope);
  }
  Attr canonical[ATTR_COUNT]; /* each key at most once */
  uint32_t ncanonical = infer_canonical_attrs(g->arena, op, noperands ? &given[0].type : NULL,
                                              &out.results[0], attrs, nattrs, canonical);
  NodeId id = graph_add(g, op, sliced, noperands, canonical, ncanonical, out.results, out.nresults,
                        span, scope);
  remember_like(g, key, id, operands, noperands, attrs, nattrs);
  return id;
}
