/* Losses and metrics over batches of which the last may be short.
 *
 * The run-time pads a short batch. Metrics of eval must be exact over any number of samples, so a
 * metric is a mean, a sum or a cross_entropy over samples. It is taken apart into a sum over the
 * valid samples and a count of them, each an output of its own; the run-time adds both over all
 * batches and divides once. Training on short batches (`drop_last false`) does the same to its
 * metrics, and its loss becomes sum / count of each batch.
 *
 * The mask comes from a data source with reader "valid": element i of its N is true when sample i /
 * (N / batch) of this batch is real. Another, "share", is one number: the valid samples of a batch
 * over the mean of those of the batches that are accumulated with it.
 */
#include <string.h>

#include "sema/elab.h"

static Val cast_to_float(Sema *s, ValueId x, Span span) {
  DType t = value_type(s->at.graph, x)->dtype;
  return t == DT_F64 ? val_tensor(x) : emit_cast(s, x, dtype_map(s, DT_F32), span);
}

/* A value of a source that the run-time makes: one source per reader and type. */
static ValueId made_source(Sema *s, RunBlock *block, const char *reader, const TensorType *t,
                           Span span) {
  uint32_t index = 0;
  while (index < block->out->data.len &&
         !(strcmp(block->out->data.data[index].reader, reader) == 0 &&
           type_equal(&block->out->data.data[index].type, t)))
    index++;
  if (index == block->out->data.len) {
    DataSource source = {.name = intern(s->names, reader[0] == 'v' ? "__valid" : "__share"),
                         .reader = intern(s->names, reader),
                         .path = "",
                         .type = *t,
                         .scale = 1,
                         .span = span};
    VEC_PUSH(s->arena, &block->out->data, source);
  }
  Attr attrs[] = {ATTR_T(TYPE, t), ATTR_I(SOURCE, index)};
  return emit_typed(s, OP_INPUT, attrs, 2, t, span);
}

/* The mask for a value whose dim 0 is cut like that of `like`. */
static ValueId valid_mask(Sema *s, RunBlock *block, const TensorType *like, Span span) {
  TensorType t = {.dtype = DT_BOOL, .rank = 1, .shape = {like->shape[0]}, .mesh = like->mesh};
  uint8_t axes[DTM_MAX_AXES];
  uint32_t n = layout_dim_axes(&like->layout, 0, axes);
  layout_set_dim(&t.layout, t.mesh, 0, axes, n);
  return made_source(s, block, "valid", &t, span);
}

static Val total(Sema *s, Val v, Span span) {
  if (v.kind == VAL_POISON || !value_type(s->at.graph, v.as.tensor)->rank) return v;
  return emit1(s, OP_SUM, v.as.tensor, NULL, 0, span);
}

Val block_everywhere(Sema *s, Val v, const Mesh *mesh, Span span) {
  if (v.kind == VAL_POISON) return v;
  TensorType t = *value_type(s->at.graph, v.as.tensor);
  t.layout = (Layout){0};
  t.mesh = mesh;
  return emit_redistribute(s, v.as.tensor, &t, span);
}

/* The mask with as many dims as `x`; VAL_UNSET where no batch is short. */
static Val mask_for(Sema *s, RunBlock *block, ValueId x, Span span) {
  if (block->unpadded) return (Val){.kind = VAL_UNSET};
  TensorType t = *value_type(s->at.graph, x);
  Val mask = val_tensor(valid_mask(s, block, &t, span));
  for (uint32_t d = 1; d < t.rank && mask.kind != VAL_POISON; d++)
    mask = emit1(s, OP_UNSQUEEZE, mask.as.tensor, (Attr[]){ATTR_I(DIM, d)}, 1, span);
  return mask;
}

/* `x` where the mask is true, else 0. */
static Val masked(Sema *s, Val mask, Val x, Span span) {
  if (mask.kind == VAL_POISON || x.kind == VAL_POISON) return POISON;
  Val value = cast_to_float(s, x.as.tensor, span);
  if (value.kind == VAL_POISON || mask.kind == VAL_UNSET) return value;
  const TensorType *t = value_type(s->at.graph, value.as.tensor);
  ValueId zero = emit_const(s, t->dtype, 0, t->mesh, span);
  return emit(s, OP_WHERE, (ValueId[]){mask.as.tensor, value.as.tensor, zero}, 3, NULL, 0, span,
              NULL);
}

/* Whether dim 0 of `x` holds the samples of the batch. A batch of one that is not a part of one is
 * never short. */
static bool has_samples(const Sema *s, const RunBlock *block, Samples *samples, ValueId x) {
  const TensorType *t = value_type(s->at.graph, x);
  if (!t->rank || !block->out->data.len) return false;
  int64_t batch = block->out->data.data[0].type.shape[0];
  if (t->shape[0] <= 0 || t->shape[0] % batch != 0) return false;
  bool alone = batch == 1 && block->out->settings.microbatches <= 1;
  return alone || samples_of(samples, x) == SAMPLES_ROWS;
}

static Parts split_reduction(Sema *s, RunBlock *block, ValueId x, bool mean, Span span) {
  Val mask = mask_for(s, block, x, span);
  Parts parts = {.sum = total(s, masked(s, mask, val_tensor(x), span), span)};
  if (!mean || mask.kind != VAL_TENSOR) return parts;
  /* every valid sample counts once per element that it has */
  TensorType t = *value_type(s->at.graph, x);
  double per_row = 1;
  for (uint32_t d = 1; d < t.rank; d++) per_row *= (double)t.shape[d];
  Val ones = emit_cast(s, mask.as.tensor, dtype_map(s, DT_F32), span);
  parts.count = total(s, ones, span);
  if (parts.count.kind != VAL_POISON && per_row != 1)
    parts.count = emit2(s, OP_MUL, parts.count.as.tensor,
                        emit_const(s, dtype_map(s, DT_F32), per_row, t.mesh, span), span);
  return parts;
}

/* Whether labels of this type can hold the number of those that are ignored. */
static bool can_hold(DType t, int64_t ignored) {
  if (t == DT_U8) return ignored >= 0 && ignored <= 255;
  if (t == DT_I8) return ignored >= -128 && ignored < 128;
  if (t == DT_I16) return ignored >= -32768 && ignored < 32768;
  return true;
}

/* The weight of the class of every label: a number per label. Labels that are ignored read class
 * 0. */
static Val label_weights(Sema *s, ValueId labels, Val counted, bool ignores, ValueId weights,
                         Span span) {
  const TensorType *t = value_type(s->at.graph, labels);
  Val ids = val_tensor(labels);
  if (ignores) {
    ValueId zero = emit_const(s, t->dtype, 0, t->mesh, span);
    ids = emit(s, OP_WHERE, (ValueId[]){counted.as.tensor, labels, zero}, 3, NULL, 0, span, NULL);
  }
  if (ids.kind != VAL_POISON && dtype_bytes(t->dtype) < 4)
    ids = emit_cast(s, ids.as.tensor, DT_I32, span);
  Val table = emit1(s, OP_UNSQUEEZE, weights, (Attr[]){ATTR_I(DIM, 1)}, 1, span);
  if (ids.kind == VAL_POISON || table.kind == VAL_POISON) return POISON;
  Val rows = emit2(s, OP_EMBEDDING, ids.as.tensor, table.as.tensor, span);
  if (rows.kind == VAL_POISON) return rows;
  int64_t last = value_type(s->at.graph, rows.as.tensor)->rank - 1;
  return emit1(s, OP_SQUEEZE, rows.as.tensor, (Attr[]){ATTR_I(DIM, last)}, 1, span);
}

static Parts split_cross_entropy(Sema *s, RunBlock *block, const Node *node, bool mean, Span span) {
  ValueId labels = node->operands[1], weights = node->noperands > 2 ? node->operands[2] : 0;
  Attr attrs[ATTR_COUNT];
  uint32_t nattrs = 0;
  int64_t ignored = node_int(node, ATTR_IGNORE_INDEX, DEFAULT_IGNORE_INDEX);
  for (uint32_t i = 0; i < node->nattrs; i++)
    if (node->attrs[i].key != ATTR_REDUCTION) attrs[nattrs++] = node->attrs[i];
  attrs[nattrs++] = ATTR_S(REDUCTION, intern(s->names, "none"));
  Val losses =
      emit(s, OP_CROSS_ENTROPY, node->operands, node->noperands, attrs, nattrs, span, NULL);
  Val mask = mask_for(s, block, labels, span);
  Parts parts = {.sum = total(s, masked(s, mask, losses, span), span)};
  if (!mean || mask.kind == VAL_POISON) return parts;
  /* labels that are ignored count neither above nor below */
  const TensorType *t = value_type(s->at.graph, labels);
  bool ignores = can_hold(t->dtype, ignored);
  Val counted;
  if (ignores)
    counted =
        emit2(s, OP_NE, labels, emit_const(s, t->dtype, (double)ignored, t->mesh, span), span);
  else
    counted = emit2(s, OP_EQ, labels, labels, span); /* all of them, in the shape of the labels */
  Val each = counted;
  if (weights && counted.kind != VAL_POISON) {
    each = label_weights(s, labels, counted, ignores, weights, span);
    each = masked(s, counted, each, span);
  }
  parts.count = total(s, masked(s, mask, each, span), span);
  return parts;
}

bool block_split(Sema *s, RunBlock *block, ValueId v, Span span, Parts *parts) {
  Samples *samples = block_samples(s, block);
  Node n = *value_node(s->at.graph, v);
  if (n.op == OP_MEAN || n.op == OP_SUM) {
    if (value_type(s->at.graph, v)->rank || !has_samples(s, block, samples, n.operands[0]))
      return false;
    *parts = split_reduction(s, block, n.operands[0], n.op == OP_MEAN, span);
    return true;
  }
  if (n.op != OP_CROSS_ENTROPY) return false;
  const char *how = node_string(&n, ATTR_REDUCTION);
  if (how && strcmp(how, "none") == 0) return false;
  if (!has_samples(s, block, samples, n.operands[0]) ||
      !has_samples(s, block, samples, n.operands[1]))
    return false;
  *parts = split_cross_entropy(s, block, &n, !how || strcmp(how, "mean") == 0, span);
  return true;
}

static void output_part(Sema *s, Val v, const char *name, const char *role, Span span) {
  if (v.kind == VAL_UNSET) return;
  v = block_everywhere(s, v, s->world, span);
  if (v.kind != VAL_POISON) emit_output(s, v.as.tensor, name, role, span);
}

void block_note_mixed(Sema *s, RunBlock *block, Diag *d, ValueId v) {
  Span span = samples_mixed_at(block_samples(s, block), v);
  if (span.file)
    diag_note(s->sink, d, span,
              "from here on a row is not of one sample: rows are combined, or it is per-rank code");
}

void block_metric(Sema *s, RunBlock *block, const char *name, ValueId v, Span span) {
  /* through what changes only the place or the element type of the scalar */
  const Node *n = value_node(s->at.graph, v);
  while (n->op == OP_REDISTRIBUTE || n->op == OP_CAST) {
    v = n->operands[0];
    n = value_node(s->at.graph, v);
  }
  Parts parts;
  if (block_split(s, block, v, span, &parts)) {
    output_part(s, parts.sum, name, "sum", span);
    output_part(s, parts.count, name, "count", span);
    return;
  }
  Diag *d =
      sema_error(s, DIAG_METRIC, span, "a metric of %s must be a mean over samples%s", block->name,
                 strcmp(block->name, "train") == 0 ? " with drop_last false" : "");
  diag_reason(s->sink, d,
              "batches are combined exactly by adding up sums and counts, and the last one may be "
              "short");
  diag_help(s->sink, d, (Span){0}, NULL, NULL,
            "write mean(x), sum(x) or cross_entropy(logits, labels) with the batch as dim 0 of x, "
            "each row made from its own sample");
  block_note_mixed(s, block, d, v);
}

ValueId block_weighted_loss(Sema *s, RunBlock *block, ValueId loss, Span span) {
  if (block->out->settings.accumulate <= 1) return loss;
  const TensorType *of = value_type(s->at.graph, loss);
  TensorType t = {.dtype = DT_F64, .mesh = s->world};
  if (of->mesh) t.mesh = of->mesh;
  DType dtype = of->dtype;
  Val share = emit_cast(s, made_source(s, block, "share", &t, span), dtype, span);
  if (share.kind == VAL_POISON) return 0;
  Val v = emit2(s, OP_MUL, loss, share.as.tensor, span);
  return v.kind == VAL_POISON ? 0 : v.as.tensor;
}
