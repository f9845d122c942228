/* Batches that are cut into micro-batches: what makes the parts give what the whole would.
 *
 * With `microbatches M` the train block is elaborated for 1 / M of the rows of a batch; the rest of
 * the program runs it M times and takes the mean. A mean over rows is then the mean of means, a sum
 * counts M times, and a cross_entropy, whose rows may count unequally (class weights, labels that
 * are ignored), is divided by the count of the whole batch, which is added up beforehand
 * (OP_MICRO_SUM). A value in which rows mix has no parts: an error.
 */
#include <inttypes.h>
#include <string.h>

#include "sema/elab.h"

int64_t block_micro_rows(Sema *s, const RunBlock *block, int64_t rows, Span span) {
  int64_t parts = block->out->settings.microbatches;
  if (rows % parts == 0) return rows / parts;
  Diag *d = sema_error(s, DIAG_DATA, span,
                       "a batch of %" PRId64 " does not divide into %" PRId64 " micro-batches",
                       rows, parts);
  diag_reason(s->sink, d, "all micro-batches run one program, so they have the same size");
  int64_t fewer = parts;
  while (rows % fewer) fewer--;
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write microbatches %" PRId64 ", or a batch of %" PRId64, fewer,
            (rows + parts - 1) / parts * parts);
  return (rows + parts - 1) / parts; /* to go on with */
}

typedef struct Spread {
  RunBlock *block;
  Samples *samples;
  Span span;
} Spread;

static Val spread(Sema *s, const Spread *m, ValueId v);

static Val times(Sema *s, const Spread *m, ValueId v, double factor) {
  const TensorType *t = value_type(s->at.graph, v);
  return emit2(s, OP_MUL, v, emit_const(s, t->dtype, factor, t->mesh, m->span), m->span);
}

/* Sum of the part over the count of the whole, such that the mean over parts is right. */
static Val spread_cross_entropy(Sema *s, const Spread *m, ValueId v) {
  Parts parts;
  if (!block_split(s, m->block, v, m->span, &parts)) return POISON;
  if (parts.sum.kind != VAL_TENSOR || parts.count.kind != VAL_TENSOR) return POISON;
  TensorType t = *value_type(s->at.graph, parts.count.as.tensor);
  t.layout = (Layout){0};
  t.mesh = value_type(s->at.graph, parts.sum.as.tensor)->mesh;
  Val count = emit_redistribute(s, parts.count.as.tensor, &t, m->span);
  if (count.kind == VAL_POISON) return POISON;
  count = emit1(s, OP_MICRO_SUM, count.as.tensor, NULL, 0, m->span);
  if (count.kind == VAL_POISON) return POISON;
  count =
      emit_cast(s, count.as.tensor, value_type(s->at.graph, parts.sum.as.tensor)->dtype, m->span);
  if (count.kind == VAL_POISON) return POISON;
  Val mean = emit2(s, OP_DIV, parts.sum.as.tensor, count.as.tensor, m->span);
  if (mean.kind == VAL_POISON) return POISON;
  mean = times(s, m, mean.as.tensor, (double)m->block->out->settings.microbatches);
  if (mean.kind == VAL_POISON) return POISON;
  return emit_cast(s, mean.as.tensor, value_type(s->at.graph, v)->dtype, m->span);
}

/* Sums and multiples: term by term. */
static Val spread_terms(Sema *s, const Spread *m, const Node *n) {
  ValueId operands[2];
  bool product = n->op == OP_MUL || n->op == OP_DIV;
  uint32_t dependent = 0;
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i] = n->operands[i];
    if (samples_of(m->samples, operands[i]) == SAMPLES_NONE) continue;
    if (product && (dependent++ || (n->op == OP_DIV && i == 1))) return POISON;
    Val v = spread(s, m, operands[i]);
    if (v.kind == VAL_POISON) return POISON;
    operands[i] = v.as.tensor;
  }
  return emit(s, n->op, operands, n->noperands, n->attrs, n->nattrs, m->span, NULL);
}

static bool over_rows(const Spread *m, const Node *n) {
  return samples_of(m->samples, n->operands[0]) == SAMPLES_ROWS;
}

static Val spread(Sema *s, const Spread *m, ValueId v) {
  if (samples_of(m->samples, v) == SAMPLES_NONE) return val_tensor(v);
  Node n = *value_node(s->at.graph, v);
  TensorType t = *value_type(s->at.graph, v);
  double parts = (double)m->block->out->settings.microbatches;
  if (n.op == OP_CAST || n.op == OP_REDISTRIBUTE) {
    Val inner = spread(s, m, n.operands[0]);
    if (inner.kind == VAL_POISON) return inner;
    return n.op == OP_CAST ? emit_cast(s, inner.as.tensor, t.dtype, m->span)
                           : emit_redistribute(s, inner.as.tensor, &t, m->span);
  }
  if (t.rank) return POISON;
  if (n.op == OP_ADD || n.op == OP_SUB || n.op == OP_NEG || n.op == OP_MUL || n.op == OP_DIV)
    return spread_terms(s, m, &n);
  if (n.op == OP_MEAN) return over_rows(m, &n) ? val_tensor(v) : POISON;
  if (n.op == OP_SUM) return over_rows(m, &n) ? times(s, m, v, parts) : POISON;
  if (n.op != OP_CROSS_ENTROPY) return POISON;
  const char *how = node_string(&n, ATTR_REDUCTION);
  if (how && strcmp(how, "sum") == 0) return over_rows(m, &n) ? times(s, m, v, parts) : POISON;
  return spread_cross_entropy(s, m, v);
}

ValueId block_spread(Sema *s, RunBlock *block, ValueId v, const char *what, Span span) {
  Spread m = {.block = block, .samples = block_samples(s, block), .span = span};
  uint32_t errors = s->sink->errors;
  Val r = v ? spread(s, &m, v) : POISON;
  if (r.kind == VAL_TENSOR) return r.as.tensor;
  if (!v || s->sink->errors > errors) return 0;
  Diag *d =
      sema_error(s, DIAG_METRIC, span, "with micro-batches %s must be a mean over samples", what);
  diag_reason(s->sink, d,
              "the parts of a batch are computed one after the other, and what comes of them is "
              "combined by means and sums");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write mean(x), sum(x) or cross_entropy(logits, labels) with the batch as dim 0 of x, "
            "each row made from its own sample; sums and multiples of these are fine");
  return 0;
}

static void goes_on(Sema *s, Node *n) {
  Attr *attrs = ARENA_ARRAY(s->arena, Attr, n->nattrs + 1);
  memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
  attrs[n->nattrs++] = ATTR_I(MICRO, 1); /* the last of the keys that the operator takes */
  n->attrs = attrs;
}

void block_spread_random(Sema *s, RunBlock *block) {
  Samples *samples = block_samples(s, block);
  Graph *g = s->at.graph;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    Node *n = graph_node(g, id);
    if (n->op == OP_ATTENTION && node_float(n, ATTR_P, 0) > 0)
      sema_error(s, DIAG_UNSUPPORTED, n->span,
                 "dropout of attention is not supported yet beside micro-batches");
    if (n->op == OP_RAND || n->op == OP_RANDN)
      sema_error(s, DIAG_UNSUPPORTED, n->span,
                 "random numbers other than dropout are not supported yet beside micro-batches");
    if (n->op != OP_DROPOUT) continue;
    SampleKind kind = samples_of(samples, n->operands[0]);
    if (kind == SAMPLES_ROWS) goes_on(s, n);
    if (kind == SAMPLES_MIXED)
      sema_error(s, DIAG_UNSUPPORTED, n->span,
                 "dropout beside micro-batches needs the batch as dim 0 of what it masks");
  }
}
