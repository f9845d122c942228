/* Stage graph -> explicit: cross_entropy as primitives, attention over a cut sequence opened
 * (context.c); then equal nodes are merged and dead ones
 * dropped, so that later stages see every variable read once.
 *
 * For logits x [*, V], labels y [*], class weights w [V] (1 when absent) and smoothing e, the loss
 * of one target is
 *
 *     A (log z) - sum_v c_v x'_v    with  m = max x, x' = x - m, z = sum exp(x'),
 *     c_v = (1 - e) w_y [v = y] + (e / V) w_v    and    A = sum_v c_v,
 *
 * so that everything is shifted by the maximum and V is the global vocabulary size. Where V is
 * sharded, the maximum and z are reduced over it (two all-reduces of [*]); the last sum stays
 * Partial, and beside it A log z is filled to Partial (rank 0 keeps, zero bytes), so the reduction
 * is one scalar at the end. The maximum is a constant of the derivative: its parts cancel.
 * A mean divides by the global weight of the valid targets. Halves are computed in f32.
 */
#include "place/expand.h"

#include <math.h>
#include <string.h>

#include "infer/infer.h"
#include "ir/rewrite.h"
#include "place/context.h"

typedef struct Loss {
  ProgramBlock *block;
  const Graph *from;
  Graph *g;
  const char *name; /* of what is added, for messages of the run-time */
  DiagSink sink;    /* stays empty: every node is legal by construction */
  Node at;          /* the cross_entropy */
  DType dtype;
  TensorType rows; /* labels' shape and shards, element type of the loss */
  uint32_t cut;    /* axes that shard the vocabulary */
  int64_t vocab;
} Loss;

static ValueId add(Loss *l, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                   uint32_t nattrs) {
  NodeId id =
      infer_add(l->g, &l->sink, op, operands, n, attrs, nattrs, l->at.span, NULL, l->at.scope);
  ValueId v = node_result(graph_node(l->g, id), 0);
  if (op != OP_CONST) graph_value(l->g, v)->name = l->name;
  return v;
}

static ValueId unary(Loss *l, Op op, ValueId a) {
  return add(l, op, &a, 1, NULL, 0);
}

/* Where two operands are built, one is named first: C leaves the order of arguments open, and the
 * numbers of nodes are to be the same whoever compiled the compiler. */
static ValueId binary(Loss *l, Op op, ValueId a, ValueId b) {
  return add(l, op, (ValueId[]){a, b}, 2, NULL, 0);
}

static ValueId select(Loss *l, ValueId condition, ValueId a, ValueId b) {
  return add(l, OP_WHERE, (ValueId[]){condition, a, b}, 3, NULL, 0);
}

static ValueId constant(Loss *l, DType dtype, double v) {
  Attr attrs[] = {ATTR_I(DTYPE, dtype), ATTR_F(VALUE, v)};
  return add(l, OP_CONST, NULL, 0, attrs, 2);
}

static ValueId number(Loss *l, double v) {
  return constant(l, l->dtype, v);
}

static ValueId cast(Loss *l, ValueId a, DType to) {
  if (value_type(l->g, a)->dtype == to) return a;
  return add(l, OP_CAST, &a, 1, &ATTR_I(DTYPE, to), 1);
}

static ValueId reduce(Loss *l, Op op, ValueId a, int64_t dim, bool keepdim) {
  Attr attrs[] = {ATTR_INTS(DIMS, &dim, 1), ATTR_I(KEEPDIM, keepdim)};
  return add(l, op, &a, 1, attrs, 2);
}

static ValueId redistribute(Loss *l, ValueId a, const Layout *to) {
  TensorType t = *value_type(l->g, a);
  if (layout_equal(&t.layout, to)) return a;
  t.layout = *to;
  return add(l, OP_REDISTRIBUTE, &a, 1, &ATTR_T(TYPE, &t), 1);
}

/* Partial of whatever reduction over the vocabulary axes -> R there. */
static ValueId finish(Loss *l, ValueId a) {
  Layout to = value_type(l->g, a)->layout;
  for (uint32_t i = 0; i < DTM_MAX_AXES; i++)
    if (l->cut >> i & 1) to.at[i] = (Place){0};
  return redistribute(l, a, &to);
}

/* R over the vocabulary axes -> Partial(sum), counted once. */
static ValueId fill(Loss *l, ValueId a) {
  Layout to = value_type(l->g, a)->layout;
  for (uint32_t i = 0; i < DTM_MAX_AXES; i++)
    if (l->cut >> i & 1) to.at[i] = (Place){.kind = PLACE_PARTIAL, .op = REDUCE_SUM};
  return redistribute(l, a, &to);
}

/* Whether label `y` equals class v: bool [*, V], cut like the logits. */
static ValueId is_label(Loss *l, ValueId x, ValueId labels) {
  const TensorType *t = value_type(l->g, x), *y = value_type(l->g, labels);
  TensorType classes = {
      .dtype = y->dtype, .rank = 1, .shape = {l->vocab}, .mesh = t->mesh, .layout = {{{0}}}};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&t->layout, t->rank - 1, axes);
  layout_set_dim(&classes.layout, t->mesh, 0, axes, n);
  Attr attrs[] = {ATTR_T(TYPE, &classes), ATTR_I(DIM, 0)};
  ValueId iota = add(l, OP_IOTA, NULL, 0, attrs, 2);
  ValueId column = add(l, OP_UNSQUEEZE, &labels, 1, &ATTR_I(DIM, y->rank), 1);
  return binary(l, OP_EQ, iota, column);
}

/* The source that a value is read from without a change of its elements, or NULL; *whole: all of
 * its elements. */
static DataSource *source_of(ProgramBlock *block, const Graph *g, ValueId v, bool *whole) {
  *whole = true;
  for (;;) {
    const Node *n = value_node(g, v);
    if (n->op == OP_INPUT) return &block->data.data[node_int(n, ATTR_SOURCE, 0)];
    bool moves = n->op == OP_RESHAPE || n->op == OP_SLICE || n->op == OP_REDISTRIBUTE ||
                 n->op == OP_PERMUTE || n->op == OP_SQUEEZE || n->op == OP_UNSQUEEZE ||
                 n->op == OP_CAST;
    if (!moves) return NULL;
    *whole &= n->op != OP_SLICE;
    v = n->operands[0];
  }
}

/* Formats of unsigned numbers (images, texts, token files): what is used as a class there is one.
 */
static bool holds_classes(const DataSource *d) {
  return strcmp(d->reader, "npy") != 0 && strcmp(d->reader, "raw") != 0;
}

static void check_below(DataSource *d, int64_t vocab) {
  if (d->below == 0 || d->below > vocab) d->below = vocab;
}

/* Labels of a loss are checked while they are read, if all of the source is labels or if what it
 * holds are classes anyway. */
static void check_labels(ProgramBlock *block, const Graph *g, const Node *loss) {
  bool whole;
  DataSource *d = source_of(block, g, loss->operands[1], &whole);
  if (!d) return;
  const TensorType *x = value_type(g, loss->operands[0]);
  int64_t vocab = x->shape[x->rank - 1],
          ignore = node_int(loss, ATTR_IGNORE_INDEX, DEFAULT_IGNORE_INDEX);
  bool classes = ignore < 0 && holds_classes(d);
  if (classes || (whole && !dtype_is_float(d->type.dtype))) check_below(d, vocab);
  if (!classes && whole && (ignore < 0 || ignore >= vocab)) {
    d->ignores = true; /* may stand there all the same */
    d->ignore = ignore;
  }
}

/* What an embedding looks up are rows of its table: else a row that is not there reads as zeros. A
 * prompt has negative numbers behind its end. */
static void check_ids(ProgramBlock *block, const Graph *g, const Node *lookup) {
  bool whole;
  DataSource *d = source_of(block, g, lookup->operands[0], &whole);
  if (!d || dtype_is_float(d->type.dtype) || strcmp(d->reader, "prompt") == 0) return;
  if (whole || holds_classes(d)) check_below(d, value_type(g, lookup->operands[1])->shape[0]);
}

/* Whether no label can be `ignore`: labels that come from a source whose values are checked to lie
 * in [0, below). Asked when all losses of the block have said what they check. */
static bool never_ignored(Loss *l, ValueId labels, int64_t ignore) {
  bool whole;
  const DataSource *d = source_of(l->block, l->from, labels, &whole);
  return d && d->below > 0 && d->below <= l->vocab && !d->ignores &&
         (ignore < 0 || ignore >= d->below);
}

/* Labels that are compared with an argmax are classes of it. */
static void check_compared(ProgramBlock *block, const Graph *g) {
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_EQ && n->op != OP_NE) continue;
    for (uint32_t i = 0; i < 2; i++) {
      bool whole;
      const Node *guess = value_node(g, n->operands[i]);
      DataSource *d = source_of(block, g, n->operands[1 - i], &whole);
      while (guess->op == OP_CAST || guess->op == OP_REDISTRIBUTE)
        guess = value_node(g, guess->operands[0]);
      if (guess->op != OP_ARGMAX || !d || !holds_classes(d) || dtype_is_float(d->type.dtype))
        continue;
      const TensorType *t = value_type(g, guess->operands[0]);
      int64_t dim = node_int(guess, ATTR_DIM, -1);
      check_below(d, t->shape[dim < 0 ? dim + t->rank : dim]);
    }
  }
}

/* sum_v c_v x'_v over the local classes: Partial where V is cut. *scale is A, or 0 for 1. */
static ValueId weighted_logits(Loss *l, ValueId shifted, ValueId labels, ValueId weights,
                               ValueId *target_weight, ValueId *scale) {
  double e = node_float(&l->at, ATTR_LABEL_SMOOTHING, 0), share = e / (double)l->vocab;
  int64_t last = l->rows.rank;
  ValueId hit = is_label(l, shifted, labels), zero = number(l, 0);
  *scale = *target_weight = 0;
  if (!weights) {
    if (e == 0) return reduce(l, OP_SUM, select(l, hit, shifted, zero), last, false);
    ValueId miss = number(l, share), full = number(l, 1 - e + share);
    ValueId c = select(l, hit, full, miss);
    return reduce(l, OP_SUM, binary(l, OP_MUL, shifted, c), last, false);
  }
  ValueId picked = select(l, hit, weights, zero);
  *target_weight = finish(l, reduce(l, OP_SUM, picked, last, false));
  *scale = *target_weight;
  ValueId c = picked;
  if (e != 0) {
    ValueId all = binary(l, OP_MUL, weights, number(l, share));
    c = binary(l, OP_ADD, binary(l, OP_MUL, picked, number(l, 1 - e)), all);
    *scale = finish(l, reduce(l, OP_SUM, c, last, false));
  }
  return reduce(l, OP_SUM, binary(l, OP_MUL, shifted, c), last, false);
}

/* x, and not a number where the label is no class: such a loss stops the run, with this place. */
static ValueId of_classes(Loss *l, ValueId x, ValueId labels) {
  DType t = value_type(l->g, labels)->dtype;
  ValueId low = binary(l, OP_GE, labels, constant(l, t, 0));
  ValueId high = binary(l, OP_LT, labels, constant(l, t, (double)l->vocab));
  ValueId otherwise = number(l, NAN), is_class = binary(l, OP_LOGICAL_AND, low, high);
  return select(l, is_class, x, otherwise);
}

/* Sum over all rows, divided by the weight of the valid ones for a mean. */
static ValueId over_rows(Loss *l, ValueId loss, ValueId valid, ValueId target_weight, bool mean) {
  Attr all[] = {ATTR_INTS(DIMS, NULL, 0), ATTR_I(KEEPDIM, 0)};
  ValueId sum = l->rows.rank ? add(l, OP_SUM, &loss, 1, all, 2) : loss;
  if (!mean) return sum;
  if (!valid && !target_weight)
    return binary(l, OP_DIV, sum, number(l, (double)type_elements(&l->rows)));
  ValueId weight = target_weight;
  if (valid) {
    ValueId none = number(l, 0);
    weight = select(l, valid, weight ? weight : number(l, 1), none);
  }
  if (l->rows.rank) weight = add(l, OP_SUM, &weight, 1, all, 2);
  Layout whole = {{{0}}};
  return binary(l, OP_DIV, sum, redistribute(l, weight, &whole));
}

static ValueId expand(Loss *l, ValueId logits, ValueId labels, ValueId weights, bool ignores) {
  const char *reduction = node_string(&l->at, ATTR_REDUCTION);
  int64_t last = l->rows.rank, ignore = node_int(&l->at, ATTR_IGNORE_INDEX, DEFAULT_IGNORE_INDEX);
  ValueId x = cast(l, logits, l->dtype);
  if (weights) weights = cast(l, weights, l->dtype);
  /* Class numbers and ignore_index need not fit a narrow label type. */
  if (dtype_bytes(value_type(l->g, labels)->dtype) < 4) labels = cast(l, labels, DT_I32);
  ValueId top = finish(l, reduce(l, OP_MAX, unary(l, OP_DETACH, x), last, true));
  ValueId shifted = binary(l, OP_SUB, x, top);
  ValueId z = finish(l, reduce(l, OP_SUM, unary(l, OP_EXP, shifted), last, false));
  ValueId target_weight, scale, log_z = unary(l, OP_LOG, z);
  if (ignores) log_z = of_classes(l, log_z, labels); /* else the source is checked */
  ValueId dot = weighted_logits(l, shifted, labels, weights, &target_weight, &scale);
  ValueId loss = binary(l, OP_SUB, fill(l, scale ? binary(l, OP_MUL, log_z, scale) : log_z), dot);
  ValueId valid = 0;
  if (ignores) {
    DType t = value_type(l->g, labels)->dtype;
    valid = binary(l, OP_NE, labels, constant(l, t, (double)ignore));
    loss = select(l, valid, loss, number(l, 0));
  }
  if (!reduction || strcmp(reduction, "none") != 0)
    loss = over_rows(l, loss, valid, target_weight, !reduction || strcmp(reduction, "mean") == 0);
  return redistribute(l, loss, &value_type(l->from, l->at.first_result)->layout);
}

static void expand_node(Arena *scratch, const Program *program, GraphMap *map, NodeId id,
                        ProgramBlock *block) {
  Loss l = {.block = block, .from = map->from, .g = map->to, .at = *graph_node(map->from, id)};
  l.name = intern(program->names, "cross_entropy");
  ValueId logits = graph_map_get(map, l.at.operands[0]);
  ValueId labels = graph_map_get(map, l.at.operands[1]);
  ValueId weights = l.at.noperands > 2 ? graph_map_get(map, l.at.operands[2]) : 0;
  TensorType x = *value_type(l.g, logits);
  diag_init(&l.sink, scratch, program->sources);
  l.dtype = value_type(l.from, l.at.first_result)->dtype;
  l.rows = *value_type(l.g, labels);
  l.rows.dtype = l.dtype;
  l.vocab = x.shape[x.rank - 1];
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (x.layout.at[a].kind == PLACE_SHARD && x.layout.at[a].dim == x.rank - 1) l.cut |= 1u << a;
  bool ignores = !never_ignored(&l, l.at.operands[1],
                                node_int(&l.at, ATTR_IGNORE_INDEX, DEFAULT_IGNORE_INDEX));
  graph_map_set(map, l.at.first_result, expand(&l, logits, labels, weights, ignores));
}

static void expand_block(Arena *scratch, const Program *program, ProgramBlock *b) {
  GraphMap map = graph_map_begin(scratch, program->arena, b->graph);
  for (NodeId id = 1; id < b->graph->nodes.len; id++) {
    const Node *n = graph_node(b->graph, id);
    if (n->op == OP_CROSS_ENTROPY) check_labels(b, b->graph, n);
    if (n->op == OP_EMBEDDING) check_ids(b, b->graph, n);
  }
  check_compared(b, b->graph);
  for (NodeId id = 1; id < b->graph->nodes.len; id++) {
    if (graph_node(b->graph, id)->op == OP_CROSS_ENTROPY)
      expand_node(scratch, program, &map, id, b);
    else if (context_opens(b->graph, id))
      context_open(scratch, program, &map, id);
    else
      graph_map_copy(&map, id);
  }
  ValueId keep[] = {graph_map_get(&map, b->loss), graph_map_get(&map, b->optimizer.lr)};
  b->graph = map.to;
  graph_simplify(scratch, b->graph, keep, 2);
  b->loss = keep[0];
  b->optimizer.lr = keep[1];
}

void expand_run(Program *program) {
  Arena scratch;
  arena_init(&scratch);
  for (BlockKind k = 0; k < BLOCK_COUNT; k++)
    if (program->block[k].graph) expand_block(&scratch, program, &program->block[k]);
  arena_free(&scratch);
}
