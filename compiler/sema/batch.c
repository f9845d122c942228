/* What every operator of one rank is for all: see batch.h. Dims counted from the front move behind
 * the leading dims; what aligns dims from the end gets its operands padded to one rank; a
 * contraction becomes an einsum over the leading dims that vary. Operators whose per-rank meaning
 * is not plain (random numbers, a table that differs between ranks) are errors.
 */
#include <string.h>

#include "sema/batch.h"

static const TensorType *block_of(const Move *m, ValueId inner) {
  return value_type(m->r->inner, inner);
}

static Attr *attr_of(Move *m, AttrKey key) {
  for (uint32_t i = 0; i < m->nattrs; i++)
    if (m->attrs[i].key == key) return &m->attrs[i];
  return NULL;
}

static ValueId same_op(Move *m) {
  return stack_op(m->s, m->n.op, m->x, m->n.noperands, m->attrs, m->nattrs, m->n.span);
}

static ValueId no_meaning(Move *m, const char *why) {
  Diag *d = sema_error(m->s, DIAG_LOCAL_REGION, m->n.span,
                       "%s has no place in a region of code for one rank", op_name(m->n.op));
  diag_reason(m->s->sink, d, "%s", why);
  return 0;
}

/* Scalars that are no stacks broadcast as they are; all others become stacks of one rank. */
static void align_all(Move *m) {
  uint32_t rank = 0;
  for (uint32_t i = 0; i < m->n.noperands; i++)
    if (block_of(m, m->n.operands[i])->rank > rank) rank = block_of(m, m->n.operands[i])->rank;
  bool pointwise = op_info(m->n.op)->cls == CLASS_POINTWISE;
  for (uint32_t i = 0; i < m->n.noperands; i++) {
    if (pointwise && m->x[i] && stack_type(m->s, m->x[i]).rank == 0) continue;
    m->x[i] = stack_align(m->s, m->r, m->x[i], rank, m->n.span);
  }
}

static void shift_dims(Move *m, AttrKey key, bool keep_leads) {
  Attr *a = attr_of(m, key);
  uint32_t lead = keep_leads ? m->r->nlead : 0, n = a ? a->as.ints.len : 0;
  if (!a) return;
  int64_t *dims = ARENA_ARRAY(m->s->arena, int64_t, n + lead);
  for (uint32_t k = 0; k < lead; k++) dims[k] = k;
  for (uint32_t i = 0; i < n; i++) dims[lead + i] = a->as.ints.data[i] + m->r->nlead;
  a->as.ints.data = dims;
  a->as.ints.len = n + lead;
}

static ValueId with_shape(Move *m) {
  Attr *a = attr_of(m, ATTR_SHAPE);
  uint32_t lead = m->r->nlead, n = a->as.ints.len;
  if (m->n.op == OP_EXPAND) m->x[0] = stack_align(m->s, m->r, m->x[0], n, m->n.span);
  if (!m->x[0]) return 0;
  TensorType t = stack_type(m->s, m->x[0]);
  int64_t shape[2 * DTM_MAX_DIMS];
  for (uint32_t k = 0; k < lead; k++) shape[k] = t.shape[k];
  for (uint32_t d = 0; d < n; d++) shape[lead + d] = a->as.ints.data[d];
  if (m->n.op == OP_RESHAPE) return stack_reshape(m->s, m->x[0], shape, lead + n, m->n.span);
  *a = ATTR_INTS(SHAPE, shape, lead + n);
  return same_op(m);
}

/* A block without dims is reduced over one dim of extent 1, which it does not keep. */
static ValueId reduce(Move *m) {
  const int64_t one_dim = 0;
  if (block_of(m, m->n.operands[0])->rank == 0) {
    m->x[0] = stack_align(m->s, m->r, m->x[0], 1, m->n.span);
    *attr_of(m, ATTR_DIMS) = ATTR_INTS(DIMS, &one_dim, 1);
    attr_of(m, ATTR_KEEPDIM)->as.i = 0;
  }
  shift_dims(m, ATTR_DIMS, false);
  return same_op(m);
}

/* An operand for the einsum: leading dims that vary, dims that have a letter. */
static ValueId term(Move *m, const Contraction *c, uint32_t i, StrBuf *spec) {
  if (!m->x[i]) return 0;
  TensorType t = stack_type(m->s, m->x[i]);
  int64_t shape[DTM_MAX_DIMS];
  uint32_t n = 0, lead = m->r->nlead;
  for (uint32_t k = 0; k < lead; k++) {
    if (t.shape[k] == 1) continue;
    shape[n++] = t.shape[k];
    strbuf_putc(spec, (char)('z' - k));
  }
  for (uint32_t d = lead; d < t.rank; d++) {
    if (c->letter[i][d - lead] < 0) continue;
    shape[n++] = t.shape[d];
    strbuf_putc(spec, (char)('a' + c->letter[i][d - lead]));
  }
  return stack_reshape(m->s, m->x[i], shape, n, m->n.span);
}

/* linear by weights that every rank has stays one. */
static ValueId plain_linear(Move *m) {
  for (uint32_t i = 1; i < m->n.noperands; i++)
    m->x[i] = stack_block(m->s, m->r, m->x[i], m->n.span);
  return same_op(m);
}

static ValueId contract(Move *m) {
  const char *spec_in = node_string(&m->n, ATTR_SPEC), *why;
  TensorType blocks[3];
  Contraction c;
  StrBuf spec;
  uint32_t lead = m->r->nlead, factors = m->n.noperands < 2 ? m->n.noperands : 2;
  bool weights_vary = false;
  for (uint32_t i = 0; i < m->n.noperands; i++) {
    if (!m->x[i]) return 0;
    blocks[i] = *block_of(m, m->n.operands[i]);
    weights_vary |= i > 0 && stack_varies(m->s, m->r, m->x[i]);
  }
  if (m->n.op == OP_LINEAR && !weights_vary) return plain_linear(m);
  if (!contraction_of(m->s->arena, m->n.op, blocks, m->n.noperands, spec_in, &c, &why))
    return no_meaning(m, why);
  if (c.nletters + lead > 26) return no_meaning(m, "it has too many dims");
  const TensorType out = *block_of(m, m->n.first_result);
  int64_t shape[2 * DTM_MAX_DIMS] = {0};
  ValueId x[2];
  strbuf_init(&spec, m->s->arena);
  for (uint32_t k = 0; k < lead; k++) shape[k] = 1;
  for (uint32_t i = 0; i < factors; i++) {
    if (i) strbuf_putc(&spec, ',');
    TensorType t = stack_type(m->s, m->x[i]);
    for (uint32_t k = 0; k < lead; k++)
      if (t.shape[k] > 1) shape[k] = t.shape[k];
    x[i] = term(m, &c, i, &spec);
  }
  strbuf_puts(&spec, "->");
  for (uint32_t k = 0; k < lead; k++)
    if (shape[k] > 1) strbuf_putc(&spec, (char)('z' - k));
  for (uint32_t d = 0; d < c.out_rank; d++)
    if (c.out[d] >= 0) strbuf_putc(&spec, (char)('a' + c.out[d]));
  memcpy(shape + lead, out.shape, out.rank * sizeof *shape);
  const char *name = intern(m->s->names, spec.text);
  ValueId y = stack_op(m->s, OP_EINSUM, x, factors, (Attr[]){ATTR_S(SPEC, name)}, 1, m->n.span);
  y = stack_reshape(m->s, y, shape, lead + out.rank, m->n.span);
  if (m->n.noperands < 3) return y;
  ValueId bias = stack_align(m->s, m->r, m->x[2], out.rank, m->n.span);
  return stack_op(m->s, OP_ADD, (ValueId[]){y, bias}, 2, NULL, 0, m->n.span);
}

/* Weight and bias of a norm are factors and addends of what is normalised. */
static ValueId norm(Move *m) {
  Op op = m->n.op == OP_LAYER_NORM ? OP_NORMALIZE : OP_RMS_NORMALIZE;
  uint32_t rank = block_of(m, m->n.operands[0])->rank;
  ValueId y = stack_op(m->s, op, m->x, 1, m->attrs, m->nattrs, m->n.span);
  for (uint32_t i = 1; i < m->n.noperands; i++) {
    ValueId w = stack_align(m->s, m->r, m->x[i], rank, m->n.span);
    y = stack_op(m->s, i == 1 ? OP_MUL : OP_ADD, (ValueId[]){y, w}, 2, NULL, 0, m->n.span);
  }
  return y;
}

static ValueId lookup(Move *m) {
  if (!m->x[0] || !m->x[1]) return 0;
  if (stack_varies(m->s, m->r, m->x[1]))
    return no_meaning(m, m->n.op == OP_EMBEDDING
                             ? "the table differs between ranks; one_hot and matmul can do it"
                             : "the index differs between ranks; gather takes one for each");
  m->x[1] = stack_block(m->s, m->r, m->x[1], m->n.span);
  Attr *dim = attr_of(m, ATTR_DIM);
  if (dim) dim->as.i += m->r->nlead;
  return same_op(m);
}

/* The loss of every target, then its sum over the block; a mean divides by the targets that count.
 */
static ValueId loss(Move *m) {
  Sema *s = m->s;
  const char *how = node_string(&m->n, ATTR_REDUCTION);
  bool none = how && strcmp(how, "none") == 0, sum = how && strcmp(how, "sum") == 0;
  TensorType labels = *block_of(m, m->n.operands[1]);
  uint32_t rank = labels.rank;
  if (m->n.noperands > 2) {
    if (m->x[2] && stack_varies(s, m->r, m->x[2]))
      return no_meaning(m, "class weights must be the same on every rank");
    if (!none && !sum) return no_meaning(m, "with class weights write reduction = \"sum\"");
    m->x[2] = stack_block(s, m->r, m->x[2], m->n.span);
  }
  stack_spread_all(s, m->r, m->x, 2, m->n.span);
  Attr *reduction = attr_of(m, ATTR_REDUCTION);
  *reduction = ATTR_S(REDUCTION, intern(s->names, "none"));
  ValueId y = same_op(m);
  if (none || !y) return y;
  int64_t dims[DTM_MAX_DIMS];
  if (rank) {
    for (uint32_t d = 0; d < rank; d++) dims[d] = m->r->nlead + d;
    y = stack_reduce(s, OP_SUM, y, dims, rank, false, m->n.span);
  }
  if (sum || !y) return y;
  double ignored = (double)node_int(&m->n, ATTR_IGNORE_INDEX, DEFAULT_IGNORE_INDEX);
  DType dtype = stack_type(s, y).dtype;
  ValueId ignore = emit_const(s, labels.dtype, ignored, labels.mesh, m->n.span);
  ValueId valid = stack_op(s, OP_NE, (ValueId[]){m->x[1], ignore}, 2, NULL, 0, m->n.span);
  valid = stack_op(s, OP_CAST, &valid, 1, (Attr[]){ATTR_I(DTYPE, dtype)}, 1, m->n.span);
  if (rank) valid = stack_reduce(s, OP_SUM, valid, dims, rank, false, m->n.span);
  return stack_op(s, OP_DIV, (ValueId[]){y, valid}, 2, NULL, 0, m->n.span);
}

static ValueId constant(Move *m) {
  const TensorType t = *value_type(m->r->inner, m->n.first_result);
  double value = 0;
  if (m->n.op == OP_CONST && value_const(m->r->inner, m->n.first_result, &value))
    return emit_const(m->s, t.dtype, value, m->r->mesh, m->n.span);
  if (m->n.op == OP_STEP) return emit_typed(m->s, OP_STEP, NULL, 0, &t, m->n.span);
  int64_t shape[2 * DTM_MAX_DIMS];
  for (uint32_t k = 0; k < m->r->nlead; k++) shape[k] = 1;
  memcpy(shape + m->r->nlead, t.shape, t.rank * sizeof *shape);
  return stack_reshape(m->s, same_op(m), shape, m->r->nlead + t.rank, m->n.span);
}

ValueId batch_move(Move *m) {
  Attr *dim = attr_of(m, ATTR_DIM);
  How how = batch_how(m->n.op);
  for (uint32_t i = 0; i < m->n.noperands && how != HOW_SAME; i++)
    m->x[i] = stack_of(m->s, m->r, m->x[i], m->n.span);
  switch (how) {
  case HOW_NONE:
    return no_meaning(m, op_info(m->n.op)->cls == CLASS_RANDOM || m->n.op == OP_RAND ||
                                 m->n.op == OP_RANDN
                             ? "random numbers belong to positions of whole tensors: make them "
                               "outside and let them enter"
                             : "what it means for the block of one rank is not defined");
  case HOW_SAME:
    align_all(m);
    return same_op(m);
  case HOW_DIM:
    dim->as.i += m->r->nlead;
    return same_op(m);
  case HOW_DIMS:
    shift_dims(m, ATTR_DIMS, false);
    return same_op(m);
  case HOW_ALIGNED:
    stack_spread_all(m->s, m->r, m->x, m->n.noperands, m->n.span);
    dim->as.i += m->r->nlead;
    return same_op(m);
  case HOW_SHAPE:
    return with_shape(m);
  case HOW_PERMUTE:
    shift_dims(m, ATTR_DIMS, true);
    return same_op(m);
  case HOW_REDUCE:
    return reduce(m);
  case HOW_CONTRACT:
    return contract(m);
  case HOW_NORM:
    return norm(m);
  case HOW_LOOKUP:
    return lookup(m);
  case HOW_LOSS:
    return loss(m);
  case HOW_MADE:
    return constant(m);
  }
  return 0;
}
