/* Losses and metrics of batches that come in parts or may be short: term by term.
 *
 * A short batch is padded. In a mean the padding is masked and the count is that of the true
 * samples (metric.c).
 *
 * Of a batch in micro-batches the run-time takes the mean over the parts. A mean over rows is then
 * the mean of means and a sum counts M times. Where rows may count unequally (class weights, labels
 * that are ignored, padding) the sum of a part is divided by the count of the whole batch, which is
 * added up beforehand (OP_MICRO_SUM).
 *
 * Sums and multiples of such are taken apart into their terms; all else is an error.
 */
#include <string.h>

#include "sema/elab.h"

typedef struct Terms {
  RunBlock *block;
  Samples *samples;
  bool padded;   /* the last batch may be short */
  int64_t parts; /* micro-batches */
  Span span;
} Terms;

static Val term(Sema *s, const Terms *m, ValueId v);

static Val times(Sema *s, const Terms *m, Val v) {
  if (v.kind == VAL_POISON || m->parts == 1) return v;
  const TensorType *t = value_type(s->at.graph, v.as.tensor);
  ValueId factor = emit_const(s, t->dtype, (double)m->parts, t->mesh, m->span);
  return emit2(s, OP_MUL, v.as.tensor, factor, m->span);
}

/* The sum of the part over the count of the whole batch, of the type of `like`. */
static Val mean_of(Sema *s, const Terms *m, const Parts *parts, ValueId like) {
  if (parts->sum.kind == VAL_POISON || parts->count.kind == VAL_POISON) return POISON;
  const TensorType *sum = value_type(s->at.graph, parts->sum.as.tensor);
  DType dtype = sum->dtype;
  Val count = block_everywhere(s, parts->count, sum->mesh, m->span);
  if (count.kind != VAL_POISON && m->parts > 1)
    count = emit1(s, OP_MICRO_SUM, count.as.tensor, NULL, 0, m->span);
  if (count.kind != VAL_POISON) count = emit_cast(s, count.as.tensor, dtype, m->span);
  if (count.kind == VAL_POISON) return POISON;
  Val mean = emit2(s, OP_DIV, parts->sum.as.tensor, count.as.tensor, m->span);
  mean = times(s, m, mean);
  return mean.kind == VAL_POISON
             ? mean
             : emit_cast(s, mean.as.tensor, value_type(s->at.graph, like)->dtype, m->span);
}

/* A mean, a sum or a cross_entropy over samples. */
static Val leaf(Sema *s, const Terms *m, ValueId v) {
  const Node *n = value_node(s->at.graph, v);
  bool rows = n->noperands && samples_of(m->samples, n->operands[0]) == SAMPLES_ROWS;
  const char *how = node_string(n, ATTR_REDUCTION);
  bool sum = n->op == OP_SUM || (n->op == OP_CROSS_ENTROPY && how && strcmp(how, "sum") == 0);
  if (value_type(s->at.graph, v)->rank) return POISON;
  if (!m->padded && rows && n->op == OP_MEAN) return val_tensor(v);
  if (!m->padded && rows && sum) return times(s, m, val_tensor(v));
  if (sum) return POISON; /* of a short batch it would be of fewer samples than it should */
  Parts parts;
  m->block->unpadded = !m->padded;
  bool ok = block_split(s, m->block, v, m->span, &parts);
  m->block->unpadded = false;
  return ok ? mean_of(s, m, &parts, v) : POISON;
}

/* Sums and multiples: term by term. */
static Val combined(Sema *s, const Terms *m, const Node *n) {
  ValueId operands[2];
  bool product = n->op == OP_MUL || n->op == OP_DIV;
  uint32_t dependent = 0;
  for (uint32_t i = 0; i < n->noperands; i++) {
    operands[i] = n->operands[i];
    if (samples_of(m->samples, operands[i]) == SAMPLES_NONE) continue;
    if (product && (dependent++ || (n->op == OP_DIV && i == 1))) return POISON;
    Val v = term(s, m, operands[i]);
    if (v.kind == VAL_POISON) return POISON;
    operands[i] = v.as.tensor;
  }
  return emit(s, n->op, operands, n->noperands, n->attrs, n->nattrs, m->span, NULL);
}

static Val term(Sema *s, const Terms *m, ValueId v) {
  if (samples_of(m->samples, v) == SAMPLES_NONE) return val_tensor(v);
  Node n = *value_node(s->at.graph, v);
  TensorType t = *value_type(s->at.graph, v);
  if (n.op == OP_CAST || n.op == OP_REDISTRIBUTE) {
    Val inner = term(s, m, n.operands[0]);
    if (inner.kind == VAL_POISON) return inner;
    return n.op == OP_CAST ? emit_cast(s, inner.as.tensor, t.dtype, m->span)
                           : emit_redistribute(s, inner.as.tensor, &t, m->span);
  }
  bool terms =
      n.op == OP_ADD || n.op == OP_SUB || n.op == OP_NEG || n.op == OP_MUL || n.op == OP_DIV;
  return terms && t.rank == 0 ? combined(s, m, &n) : leaf(s, m, v);
}

ValueId block_terms(Sema *s, RunBlock *block, ValueId v, const char *what, Span span) {
  const RunSettings *set = &block->out->settings;
  Terms m = {.block = block,
             .samples = block_samples(s, block),
             .padded = !set->drop_last && block->out->data.len,
             .parts = set->microbatches,
             .span = span};
  uint32_t errors = s->sink->errors;
  Val r = term(s, &m, v);
  if (r.kind == VAL_TENSOR) return r.as.tensor;
  if (s->sink->errors > errors) return 0;
  Diag *d = sema_error(s, DIAG_METRIC, span, "with %s %s must be a mean over samples",
                       m.padded ? "drop_last false" : "micro-batches", what);
  diag_reason(s->sink, d,
              m.padded ? "the last batch may be short: what pads it is masked and the loss divides "
                         "by the true count of samples"
                       : "the parts of a batch are computed one after the other, and what comes of "
                         "them is combined by means and sums");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write mean(x)%s or cross_entropy(logits, labels) with the batch as dim 0 of x, each "
            "row made from its own sample; sums and multiples of these are fine%s",
            m.padded ? "" : ", sum(x)", m.padded ? "; or drop_last true" : "");
  block_note_mixed(s, block, d, v);
  return 0;
}
