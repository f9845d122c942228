/* From the code of one rank to that of all: see region.h.
 *
 * Every operator of the inner graph becomes the operator over stacks: dims counted from the front
 * move behind the leading dims; what aligns dims from the end gets its operands padded to one rank;
 * a contraction becomes an einsum over the leading dims that vary. Operators whose per-rank meaning
 * is not plain (random numbers, a table that differs between ranks) are errors.
 */
#include <string.h>

#include "sema/region.h"

State region_outside(Sema *s, const Region *r) {
  State inside = s->at;
  uint32_t depth = s->at.depth;
  s->at = r->outside;
  s->at.depth = depth;
  s->at.auto_block = NULL;
  return inside;
}

void region_inside(Sema *s, const State *inside) {
  s->at = *inside;
}

int region_lead(const Region *r, uint32_t axis) {
  for (uint32_t k = 0; k < r->nlead; k++)
    if (r->axis[k] == axis) return (int)k;
  return -1;
}

/* --- nodes of the outer graph ------------------------------------------------------------------
 */

/* Its first result, behind which any others stand. */
static ValueId made(Val v) {
  if (v.kind == VAL_LIST) v = v.as.list->data[0];
  return v.kind == VAL_TENSOR ? v.as.tensor : 0;
}

static ValueId add(Sema *s, Op op, const ValueId *x, uint32_t n, const Attr *attrs, uint32_t nattrs,
                   Span span) {
  for (uint32_t i = 0; i < n; i++)
    if (!x[i]) return 0;
  return made(emit(s, op, x, n, attrs, nattrs, span, NULL));
}

static TensorType type_of(const Sema *s, ValueId x) {
  return *value_type(s->at.graph, x);
}

ValueId stack_reshape(Sema *s, ValueId x, const int64_t *shape, uint32_t rank, Span span) {
  if (!x) return 0;
  if (rank > DTM_MAX_DIMS) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, span, "a block would need more than %d dims",
                         DTM_MAX_DIMS);
    diag_reason(s->sink, d,
                "the blocks of all ranks are kept as one value, with a dim more for each mesh dim");
    return 0;
  }
  TensorType t = type_of(s, x);
  if (t.rank == rank && memcmp(t.shape, shape, rank * sizeof *shape) == 0) return x;
  return add(s, OP_RESHAPE, &x, 1, (Attr[]){ATTR_INTS(SHAPE, shape, rank)}, 1, span);
}

ValueId stack_permute(Sema *s, ValueId x, const int64_t *dims, uint32_t rank, Span span) {
  bool same = true;
  for (uint32_t d = 0; d < rank; d++) same &= dims[d] == d;
  if (same) return x;
  return add(s, OP_PERMUTE, &x, 1, (Attr[]){ATTR_INTS(DIMS, dims, rank)}, 1, span);
}

ValueId stack_reduce(Sema *s, Op op, ValueId x, const int64_t *dims, uint32_t n, bool keep,
                     Span span) {
  Attr attrs[] = {ATTR_INTS(DIMS, dims, n), ATTR_I(KEEPDIM, keep)};
  return add(s, op, &x, 1, attrs, 2, span);
}

/* x times ones, which have one entry per rank along lead k. */
ValueId stack_spread(Sema *s, const Region *r, ValueId x, uint32_t k, Span span) {
  if (!x) return 0;
  TensorType ones = type_of(s, x);
  if (ones.shape[k] > 1) return x;
  memset(&ones.layout, 0, sizeof ones.layout);
  for (uint32_t d = 0; d < ones.rank; d++) ones.shape[d] = 1;
  ones.shape[k] = r->mesh->size[r->axis[k]];
  layout_set(&ones.layout, ones.mesh, r->axis[k], PLACE_SHARD, k, REDUCE_NONE);
  Attr attrs[] = {ATTR_T(TYPE, &ones), ATTR_F(VALUE, 1)};
  ValueId one = add(s, OP_FULL, NULL, 0, attrs, 2, span);
  return add(s, ones.dtype == DT_BOOL ? OP_LOGICAL_AND : OP_MUL, (ValueId[]){x, one}, 2, NULL, 0,
             span);
}

/* All operands get the leading dims that any of them has. */
static void spread_all(Sema *s, const Region *r, ValueId *x, uint32_t n, Span span) {
  for (uint32_t k = 0; k < r->nlead; k++) {
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any |= x[i] && type_of(s, x[i]).shape[k] > 1;
    for (uint32_t i = 0; i < n && any; i++) x[i] = stack_spread(s, r, x[i], k, span);
  }
}

/* A scalar that stands in the graph as itself becomes a stack; what is made of constants alone is
 * on no mesh yet, so it is multiplied into one. */
static ValueId as_stack(Sema *s, const Region *r, ValueId x, Span span) {
  if (!x || type_of(s, x).rank >= r->nlead) return x;
  TensorType ones = {.dtype = type_of(s, x).dtype, .rank = r->nlead, .mesh = r->mesh};
  for (uint32_t k = 0; k < r->nlead; k++) ones.shape[k] = 1;
  double value;
  if (type_of(s, x).mesh && !value_const(s->at.graph, x, &value))
    return stack_reshape(s, x, ones.shape, ones.rank, span);
  Attr attrs[] = {ATTR_T(TYPE, &ones), ATTR_F(VALUE, 1)};
  ValueId one = add(s, OP_FULL, NULL, 0, attrs, 2, span);
  return add(s, ones.dtype == DT_BOOL ? OP_LOGICAL_AND : OP_MUL, (ValueId[]){x, one}, 2, NULL, 0,
             span);
}

/* Dims of extent 1 behind the leading dims, up to `rank` dims of a block. */
static ValueId align(Sema *s, const Region *r, ValueId x, uint32_t rank, Span span) {
  x = as_stack(s, r, x, span);
  if (!x) return 0;
  TensorType t = type_of(s, x);
  int64_t shape[2 * DTM_MAX_DIMS];
  uint32_t n = 0, have = t.rank - r->nlead;
  for (uint32_t k = 0; k < r->nlead; k++) shape[n++] = t.shape[k];
  for (uint32_t d = have; d < rank; d++) shape[n++] = 1;
  for (uint32_t d = 0; d < have; d++) shape[n++] = t.shape[r->nlead + d];
  return stack_reshape(s, x, shape, n, span);
}

static bool varies(const Sema *s, const Region *r, ValueId x) {
  TensorType t = type_of(s, x);
  for (uint32_t k = 0; k < r->nlead && t.rank >= r->nlead; k++)
    if (t.shape[k] > 1) return true;
  return false;
}

/* A stack that is the same everywhere, as the one block. */
static ValueId unstack(Sema *s, const Region *r, ValueId x, Span span) {
  if (!x || type_of(s, x).rank < r->nlead) return x;
  TensorType t = type_of(s, x);
  return stack_reshape(s, x, t.shape + r->nlead, t.rank - r->nlead, span);
}

/* --- operators ---------------------------------------------------------------------------------
 */

typedef enum How {
  HOW_NONE = 0, /* no per-rank meaning here */
  HOW_SAME,     /* dims are counted from the end or there are none */
  HOW_DIM,      /* the attribute dim moves */
  HOW_DIMS,     /* the attribute dims moves */
  HOW_ALIGNED,  /* dim moves, and all operands have one shape but for dim */
  HOW_SHAPE,    /* the attribute shape gets the leading dims */
  HOW_PERMUTE,
  HOW_REDUCE,
  HOW_CONTRACT,
  HOW_NORM,
  HOW_LOOKUP, /* operand 1 (embedding: the table) or the index is the same on every rank */
  HOW_LOSS,
  HOW_MADE /* no operand */
} How;

static const uint8_t hows[OP_COUNT] = {
    [OP_MATMUL] = HOW_CONTRACT,
    [OP_LINEAR] = HOW_CONTRACT,
    [OP_EINSUM] = HOW_CONTRACT,
    [OP_SUM] = HOW_REDUCE,
    [OP_MEAN] = HOW_REDUCE,
    [OP_PROD] = HOW_REDUCE,
    [OP_MAX] = HOW_REDUCE,
    [OP_MIN] = HOW_REDUCE,
    [OP_ANY] = HOW_REDUCE,
    [OP_ALL] = HOW_REDUCE,
    [OP_NORM_L1] = HOW_REDUCE,
    [OP_NORM_L2] = HOW_REDUCE,
    [OP_NORM_INF] = HOW_REDUCE,
    [OP_LOGSUMEXP] = HOW_REDUCE,
    [OP_VAR] = HOW_REDUCE,
    [OP_STD] = HOW_REDUCE,
    [OP_SOFTMAX] = HOW_DIM,
    [OP_LOG_SOFTMAX] = HOW_DIM,
    [OP_LAYER_NORM] = HOW_NORM,
    [OP_NORMALIZE] = HOW_SAME,
    [OP_RMS_NORM] = HOW_NORM,
    [OP_RMS_NORMALIZE] = HOW_SAME,
    [OP_ARGMAX] = HOW_DIM,
    [OP_ARGMIN] = HOW_DIM,
    [OP_CUMSUM] = HOW_DIM,
    [OP_SORT] = HOW_DIM,
    [OP_TOPK] = HOW_DIM,
    [OP_PERMUTE] = HOW_PERMUTE,
    [OP_RESHAPE] = HOW_SHAPE,
    [OP_UNSQUEEZE] = HOW_DIM,
    [OP_SQUEEZE] = HOW_DIM,
    [OP_EXPAND] = HOW_SHAPE,
    [OP_SLICE] = HOW_DIM,
    [OP_PAD] = HOW_DIM,
    [OP_CONCAT] = HOW_ALIGNED,
    [OP_FLIP] = HOW_DIMS,
    [OP_ROLL] = HOW_DIM,
    [OP_TRIL] = HOW_SAME,
    [OP_TRIU] = HOW_SAME,
    [OP_EMBEDDING] = HOW_LOOKUP,
    [OP_GATHER] = HOW_ALIGNED,
    [OP_SCATTER_ADD] = HOW_ALIGNED,
    [OP_INDEX_SELECT] = HOW_LOOKUP,
    [OP_ONE_HOT] = HOW_SAME,
    [OP_CROSS_ENTROPY] = HOW_LOSS,
    [OP_DETACH] = HOW_SAME,
    [OP_CONST] = HOW_MADE,
    [OP_FULL] = HOW_MADE,
    [OP_ARANGE] = HOW_MADE,
    [OP_LOGSPACE] = HOW_MADE,
    [OP_STEP] = HOW_MADE,
};

static How how_of(Op op) {
  return op_info(op)->cls == CLASS_POINTWISE ? HOW_SAME : (How)hows[op];
}

/* One node on its way out. */
typedef struct Move {
  Sema *s;
  const Region *r;
  Node n;
  ValueId x[INFER_MAX_OPERANDS]; /* stacks of the operands */
  uint32_t nattrs;
  Attr attrs[ATTR_COUNT];
} Move;

static const TensorType *block_of(const Move *m, ValueId inner) {
  return value_type(m->r->inner, inner);
}

static Attr *attr_of(Move *m, AttrKey key) {
  for (uint32_t i = 0; i < m->nattrs; i++)
    if (m->attrs[i].key == key) return &m->attrs[i];
  return NULL;
}

static ValueId same_op(Move *m) {
  return add(m->s, m->n.op, m->x, m->n.noperands, m->attrs, m->nattrs, m->n.span);
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
    if (pointwise && m->x[i] && type_of(m->s, m->x[i]).rank == 0) continue;
    m->x[i] = align(m->s, m->r, m->x[i], rank, m->n.span);
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
  if (m->n.op == OP_EXPAND) m->x[0] = align(m->s, m->r, m->x[0], n, m->n.span);
  if (!m->x[0]) return 0;
  TensorType t = type_of(m->s, m->x[0]);
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
    m->x[0] = align(m->s, m->r, m->x[0], 1, m->n.span);
    *attr_of(m, ATTR_DIMS) = ATTR_INTS(DIMS, &one_dim, 1);
    attr_of(m, ATTR_KEEPDIM)->as.i = 0;
  }
  shift_dims(m, ATTR_DIMS, false);
  return same_op(m);
}

/* An operand for the einsum: leading dims that vary, dims that have a letter. */
static ValueId term(Move *m, const Contraction *c, uint32_t i, StrBuf *spec) {
  if (!m->x[i]) return 0;
  TensorType t = type_of(m->s, m->x[i]);
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
  for (uint32_t i = 1; i < m->n.noperands; i++) m->x[i] = unstack(m->s, m->r, m->x[i], m->n.span);
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
    weights_vary |= i > 0 && varies(m->s, m->r, m->x[i]);
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
    TensorType t = type_of(m->s, m->x[i]);
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
  ValueId y = add(m->s, OP_EINSUM, x, factors, (Attr[]){ATTR_S(SPEC, name)}, 1, m->n.span);
  y = stack_reshape(m->s, y, shape, lead + out.rank, m->n.span);
  if (m->n.noperands < 3) return y;
  ValueId bias = align(m->s, m->r, m->x[2], out.rank, m->n.span);
  return add(m->s, OP_ADD, (ValueId[]){y, bias}, 2, NULL, 0, m->n.span);
}

/* Weight and bias of a norm are factors and addends of what is normalised. */
static ValueId norm(Move *m) {
  Op op = m->n.op == OP_LAYER_NORM ? OP_NORMALIZE : OP_RMS_NORMALIZE;
  uint32_t rank = block_of(m, m->n.operands[0])->rank;
  ValueId y = add(m->s, op, m->x, 1, m->attrs, m->nattrs, m->n.span);
  for (uint32_t i = 1; i < m->n.noperands; i++) {
    ValueId w = align(m->s, m->r, m->x[i], rank, m->n.span);
    y = add(m->s, i == 1 ? OP_MUL : OP_ADD, (ValueId[]){y, w}, 2, NULL, 0, m->n.span);
  }
  return y;
}

static ValueId lookup(Move *m) {
  if (!m->x[0] || !m->x[1]) return 0;
  if (varies(m->s, m->r, m->x[1]))
    return no_meaning(m, m->n.op == OP_EMBEDDING
                             ? "the table differs between ranks; one_hot and matmul can do it"
                             : "the index differs between ranks; gather takes one for each");
  m->x[1] = unstack(m->s, m->r, m->x[1], m->n.span);
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
    if (m->x[2] && varies(s, m->r, m->x[2]))
      return no_meaning(m, "class weights must be the same on every rank");
    if (!none && !sum) return no_meaning(m, "with class weights write reduction = \"sum\"");
    m->x[2] = unstack(s, m->r, m->x[2], m->n.span);
  }
  spread_all(s, m->r, m->x, 2, m->n.span);
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
  DType dtype = type_of(s, y).dtype;
  ValueId ignore = emit_const(s, labels.dtype, ignored, labels.mesh, m->n.span);
  ValueId valid = add(s, OP_NE, (ValueId[]){m->x[1], ignore}, 2, NULL, 0, m->n.span);
  valid = add(s, OP_CAST, &valid, 1, (Attr[]){ATTR_I(DTYPE, dtype)}, 1, m->n.span);
  if (rank) valid = stack_reduce(s, OP_SUM, valid, dims, rank, false, m->n.span);
  return add(s, OP_DIV, (ValueId[]){y, valid}, 2, NULL, 0, m->n.span);
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

static ValueId move(Move *m) {
  Attr *dim = attr_of(m, ATTR_DIM);
  How how = how_of(m->n.op);
  if (how != HOW_MADE && how != HOW_CONTRACT)
    for (uint32_t i = 0; i < m->n.noperands && how != HOW_SAME; i++)
      m->x[i] = as_stack(m->s, m->r, m->x[i], m->n.span);
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
    spread_all(m->s, m->r, m->x, m->n.noperands, m->n.span);
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
    for (uint32_t i = 0; i < m->n.noperands; i++)
      m->x[i] = as_stack(m->s, m->r, m->x[i], m->n.span);
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

/* --- transcription -----------------------------------------------------------------------------
 */

/* Every value of a region is whole on the rank that has it. */
static bool has_placement(const Region *r, const Node *n) {
  for (uint32_t i = 0; i < n->nresults; i++)
    if (!layout_is_replicate(&value_type(r->inner, node_result(n, i))->layout)) return true;
  return n->op == OP_REDISTRIBUTE;
}

static void transcribe(Sema *s, Region *r, NodeId id) {
  Move *m = ARENA_NEW(s->arena, Move);
  *m = (Move){.s = s, .r = r, .n = *graph_node(r->inner, id)};
  bool known = true;
  for (uint32_t i = 0; i < m->n.nresults; i++)
    known &= !graph_value(r->inner, node_result(&m->n, i))->poisoned;
  for (uint32_t i = 0; i < m->n.noperands && i < INFER_MAX_OPERANDS; i++) {
    m->x[i] = r->stack.data[m->n.operands[i]];
    known &= m->x[i] != 0;
  }
  while (r->stack.len < m->n.first_result + m->n.nresults) VEC_PUSH(s->arena, &r->stack, 0);
  if (!known) return;
  if (has_placement(r, &m->n)) {
    Diag *d = sema_error(s, DIAG_LOCAL_REGION, m->n.span, "code for one rank has no placements");
    diag_reason(s->sink, d,
                "its code is that of one rank; ranks talk by all_reduce, all_gather, "
                "reduce_scatter and all_to_all");
    return;
  }
  m->nattrs = m->n.nattrs;
  if (m->nattrs) memcpy(m->attrs, m->n.attrs, m->nattrs * sizeof *m->attrs);
  ValueId y = move(m);
  for (uint32_t i = 0; y && i < m->n.nresults; i++) {
    r->stack.data[m->n.first_result + i] = y + i;
    Value *v = graph_value(s->at.graph, y + i);
    if (!v->name) v->name = graph_value(r->inner, m->n.first_result + i)->name;
  }
}

ValueId region_leaf(Sema *s, Region *r, ValueId stack, Span span) {
  TensorType t = *value_type(r->outside.graph, stack), block = {.dtype = t.dtype, .mesh = r->mesh};
  block.rank = t.rank - r->nlead;
  memcpy(block.shape, t.shape + r->nlead, block.rank * sizeof *block.shape);
  NodeId id =
      graph_add(r->inner, OP_INPUT, NULL, 0, (Attr[]){ATTR_T(TYPE, &block)}, 1, &block, 1, span, 0);
  ValueId leaf = node_result(graph_node(r->inner, id), 0);
  /* nodes before it are transcribed by whoever comes next; the list grows in order */
  id_map_put(s->arena, &r->leaves, leaf, stack);
  return leaf;
}

ValueId region_stack(Sema *s, Region *r, ValueId inner, Span span) {
  State inside = region_outside(s, r);
  for (; r->done < r->inner->nodes.len; r->done++) {
    const Node *n = graph_node(r->inner, r->done);
    uint32_t stack;
    if (n->op == OP_INPUT && id_map_get(&r->leaves, n->first_result, &stack)) {
      while (r->stack.len <= n->first_result) VEC_PUSH(s->arena, &r->stack, 0);
      r->stack.data[n->first_result] = stack;
      continue;
    }
    transcribe(s, r, r->done);
  }
  ValueId x = inner < r->stack.len ? r->stack.data[inner] : 0;
  x = as_stack(s, r, x, span);
  region_inside(s, &inside);
  return x;
}
