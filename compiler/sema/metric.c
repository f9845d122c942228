/* Metrics of eval: exact over any number of samples.
 *
 * The last batch may be short; the run-time pads it. A metric must therefore be a mean, a sum or a
 * cross_entropy over samples. It is taken apart into a sum over the valid samples and a count of
 * them, each an output of its own; the run-time adds both over all batches and divides once. The
 * mask comes from a data source with reader "valid": element i of its N is true when sample i / (N
 * / batch) of this batch is real.
 */
#include <string.h>

#include "sema/elab.h"

static Val cast_to_float(Sema *s, ValueId x, Span span) {
  DType t = value_type(s->at.graph, x)->dtype;
  return t == DT_F64 ? val_tensor(x) : emit_cast(s, x, dtype_map(s, DT_F32), span);
}

/* The mask for a value whose dim 0 is cut like that of `like`: one source per extent and layout. */
static ValueId valid_mask(Sema *s, RunBlock *block, const TensorType *like, Span span) {
  TensorType t = {.dtype = DT_BOOL, .rank = 1, .shape = {like->shape[0]}, .mesh = like->mesh};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&like->layout, 0, axes);
  layout_set_dim(&t.layout, t.mesh, 0, axes, n);
  uint32_t index = 0;
  while (index < block->out->data.len &&
         !(strcmp(block->out->data.data[index].reader, "valid") == 0 &&
           type_equal(&block->out->data.data[index].type, &t)))
    index++;
  if (index == block->out->data.len) {
    DataSource source = {.name = intern(s->names, "__valid"),
                         .reader = intern(s->names, "valid"),
                         .path = "",
                         .type = t,
                         .scale = 1,
                         .span = span};
    VEC_PUSH(s->arena, &block->out->data, source);
  }
  Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_I(SOURCE, index)};
  return emit_typed(s, OP_INPUT, attrs, 2, &t, span);
}

/* The sum of all elements, whole on every rank of the program, handed out. */
static void output_total(Sema *s, Val v, const char *name, const char *role, Span span) {
  if (v.kind == VAL_POISON) return;
  if (value_type(s->at.graph, v.as.tensor)->rank) v = emit1(s, OP_SUM, v.as.tensor, NULL, 0, span);
  if (v.kind == VAL_POISON) return;
  TensorType whole = *value_type(s->at.graph, v.as.tensor);
  whole.layout = (Layout){0};
  whole.mesh = s->world;
  v = emit_redistribute(s, v.as.tensor, &whole, span);
  if (v.kind != VAL_POISON) emit_output(s, v.as.tensor, name, role, span);
}

/* The mask with as many dims as `x`. */
static Val mask_for(Sema *s, RunBlock *block, ValueId x, Span span) {
  TensorType t = *value_type(s->at.graph, x);
  Val mask = val_tensor(valid_mask(s, block, &t, span));
  for (uint32_t d = 1; d < t.rank && mask.kind != VAL_POISON; d++)
    mask = emit1(s, OP_UNSQUEEZE, mask.as.tensor, (Attr[]){ATTR_I(DIM, d)}, 1, span);
  return mask;
}

static Val masked(Sema *s, Val mask, ValueId x, Span span) {
  Val value = cast_to_float(s, x, span);
  if (mask.kind == VAL_POISON || value.kind == VAL_POISON) return POISON;
  const TensorType *t = value_type(s->at.graph, value.as.tensor);
  ValueId zero = emit_const(s, t->dtype, 0, t->mesh, span);
  return emit(s, OP_WHERE, (ValueId[]){mask.as.tensor, value.as.tensor, zero}, 3, NULL, 0, span,
              NULL);
}

static bool has_batch(const Sema *s, const RunBlock *block, ValueId x) {
  const TensorType *t = value_type(s->at.graph, x);
  if (!t->rank || !block->out->data.len) return false;
  int64_t batch = block->out->data.data[0].type.shape[0];
  return t->shape[0] > 0 && t->shape[0] % batch == 0;
}

static void split_reduction(Sema *s, RunBlock *block, const char *name, ValueId x, bool mean,
                            Span span) {
  Val mask = mask_for(s, block, x, span);
  output_total(s, masked(s, mask, x, span), name, "sum", span);
  if (!mean || mask.kind == VAL_POISON) return;
  /* every valid sample counts once per element that it has */
  TensorType t = *value_type(s->at.graph, x);
  double per_row = 1;
  for (uint32_t d = 1; d < t.rank; d++) per_row *= (double)t.shape[d];
  Val ones = emit_cast(s, mask.as.tensor, dtype_map(s, DT_F32), span);
  if (ones.kind == VAL_POISON) return;
  Val count = emit1(s, OP_SUM, ones.as.tensor, NULL, 0, span);
  if (count.kind != VAL_POISON && per_row != 1)
    count = emit2(s, OP_MUL, count.as.tensor,
                  emit_const(s, dtype_map(s, DT_F32), per_row, t.mesh, span), span);
  output_total(s, count, name, "count", span);
}

static void split_cross_entropy(Sema *s, RunBlock *block, const char *name, const Node *node,
                                bool mean, Span span) {
  ValueId logits = node->operands[0], labels = node->operands[1];
  Attr attrs[ATTR_COUNT];
  uint32_t nattrs = 0;
  int64_t ignored = node_int(node, ATTR_IGNORE_INDEX, -100);
  for (uint32_t i = 0; i < node->nattrs; i++)
    if (node->attrs[i].key != ATTR_REDUCTION) attrs[nattrs++] = node->attrs[i];
  attrs[nattrs++] = ATTR_S(REDUCTION, intern(s->names, "none"));
  Val losses = emit(s, OP_CROSS_ENTROPY, (ValueId[]){logits, labels}, 2, attrs, nattrs, span, NULL);
  if (losses.kind == VAL_POISON) return;
  Val mask = mask_for(s, block, labels, span);
  output_total(s, masked(s, mask, losses.as.tensor, span), name, "sum", span);
  if (!mean || mask.kind == VAL_POISON) return;
  /* labels that are ignored count neither above nor below */
  const TensorType *t = value_type(s->at.graph, labels);
  bool can_be_ignored = !(t->dtype == DT_U8 && (ignored < 0 || ignored > 255));
  if (t->dtype == DT_I8) can_be_ignored = ignored >= -128 && ignored < 128;
  if (t->dtype == DT_I16) can_be_ignored = ignored >= -32768 && ignored < 32768;
  Val counted = val_tensor(labels);
  if (can_be_ignored) {
    ValueId ignore = emit_const(s, t->dtype, (double)ignored, t->mesh, span);
    counted = emit2(s, OP_NE, labels, ignore, span);
  } else {
    counted = emit2(s, OP_EQ, labels, labels, span); /* all of them, in the shape of the labels */
  }
  if (counted.kind == VAL_POISON) return;
  output_total(s, masked(s, mask, counted.as.tensor, span), name, "count", span);
}

void block_metric(Sema *s, RunBlock *block, const char *name, ValueId v, Span span) {
  /* through what changes only the place or the element type of the scalar */
  const Node *n = value_node(s->at.graph, v);
  while (n->op == OP_REDISTRIBUTE || n->op == OP_CAST) n = value_node(s->at.graph, n->operands[0]);
  bool reduction = n->op == OP_MEAN || n->op == OP_SUM;
  if (reduction && has_batch(s, block, n->operands[0])) {
    split_reduction(s, block, name, n->operands[0], n->op == OP_MEAN, span);
    return;
  }
  const char *how = n->op == OP_CROSS_ENTROPY ? node_string(n, ATTR_REDUCTION) : NULL;
  if (n->op == OP_CROSS_ENTROPY && n->noperands == 2 && has_batch(s, block, n->operands[1])) {
    Node copy = *n;
    split_cross_entropy(s, block, name, &copy, !how || strcmp(how, "mean") == 0, span);
    return;
  }
  Diag *d = sema_error(s, DIAG_METRIC, span, "a metric of eval must be a mean over samples");
  diag_reason(s->sink, d,
              "batches are combined exactly by adding up sums and counts, and the last one may be "
              "short");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write mean(x), sum(x) or cross_entropy(logits, labels) with the batch as dim 0 of x");
}
