/* The engine of the rule proof: see proof.h. */
#include "reference/proof.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/rules.h"
#include "reference/ref_internal.h"
#include "reference/type_text.h"

bool proof_real_row(const void *state, Arena *arena, const ExampleNode *n, InferResult *out) {
  (void)state;
  return infer_rules(arena, n->op, n->operands, n->noperands, n->attrs, n->nattrs, false, out);
}

/* --- one combination
 * ------------------------------------------------------------------------------ */

typedef struct Trial {
  Arena *arena;
  RefContext *ctx;
  uint64_t *rng;
  const ExampleNode *node;
  TensorType operands[EXAMPLE_MAX_OPERANDS]; /* after slices */
  TensorType results[INFER_MAX_RESULTS];
  uint32_t nresults;
  RefTensor whole[EXAMPLE_MAX_OPERANDS], want[INFER_MAX_RESULTS];
  RefTensor *blocks[EXAMPLE_MAX_OPERANDS];
  double mean_weight;
} Trial;

static TensorType without_layout(const TensorType *t) {
  TensorType w = *t;
  memset(&w.layout, 0, sizeof w.layout);
  return w;
}

/* Denominator of a mean cross_entropy over the whole batch. */
static double global_weight(const ExampleNode *n, const RefTensor *in) {
  double weight = 0;
  int64_t ignore = -100;
  for (uint32_t k = 0; k < n->nattrs; k++)
    if (n->attrs[k].key == ATTR_IGNORE_INDEX) ignore = n->attrs[k].as.i;
  for (int64_t i = 0, count = ref_count(&in[1]); i < count; i++) {
    int64_t label = (int64_t)in[1].data[i];
    if (label != ignore) weight += n->noperands == 3 ? in[2].data[label] : 1;
  }
  return weight;
}

/* Operand 5 of attention_backward holds what operands 1 and 2 say. */
static void relate_sums(const ExampleNode *n, RefTensor *whole) {
  TensorType types[EXAMPLE_MAX_OPERANDS];
  for (uint32_t i = 0; i < n->noperands; i++) types[i] = without_layout(&n->operands[i].type);
  RefNode node = {.op = n->op,
                  .attrs = n->attrs,
                  .nattrs = n->nattrs,
                  .noperands = n->noperands,
                  .operand_types = types};
  RefEval e = {.node = &node, .in = whole};
  ref_attention_sums(&e, &whole[5]);
}

/* Counts of rows that find places in their blocks. */
static void relate_counts(const RefTensor *rows, RefTensor *counts) {
  int64_t experts = counts->shape[1], each = (experts + rows->shape[1] - 1) / rows->shape[1];
  for (int64_t b = 0; b < counts->shape[0]; b++)
    for (int64_t e = 0, room = 0; e < experts; e++) {
      double *n = &counts->data[b * experts + e];
      if (e % each == 0) room = rows->shape[2];
      *n = fmin(fabs(*n), (double)room);
      room -= (int64_t)*n;
    }
}

void proof_relate(const ExampleNode *n, RefTensor *whole) {
  if (n->op == OP_GROUPED_LINEAR || n->op == OP_GROUPED_LINEAR_WEIGHT)
    relate_counts(&whole[0], &whole[2]);
  if (n->op == OP_ATTENTION_BACKWARD) relate_sums(n, whole);
  if (n->op == OP_SHIFT_LEFT || n->op == OP_SHIFT_RIGHT)
    for (int64_t i = 0, count = ref_count(&whole[1]); i < count; i++)
      whole[1].data[i] = fabs(whole[1].data[i]);
  if (n->op != OP_EXTREMUM_BACKWARD) return;
  int64_t columns = whole[1].shape[1];
  for (int64_t i = 0, count = ref_count(&whole[1]); i < count; i++) {
    double *x = &whole[1].data[i], *y = &whole[2].data[i % columns];
    *x = round(*x);
    if (i < columns || *x > *y) *y = *x;
  }
}

/* Draws inputs, the whole result, and splits. False where ids have nothing to point at. */
static bool trial_begin(Trial *t, const InferResult *inferred, bool coarse) {
  const ExampleNode *n = t->node;
  TensorType operands[EXAMPLE_MAX_OPERANDS], results[INFER_MAX_RESULTS];
  for (uint32_t i = 0; i < n->noperands; i++) {
    const TensorType *type = &n->operands[i].type;
    bool has_elements = type_elements(type) > 0;
    bool bounded = n->op == OP_EMBEDDING || n->op == OP_EMBEDDING_BACKWARD ||
                   op_info(n->op)->cls == CLASS_INDEXING || n->op == OP_CROSS_ENTROPY;
    if (bounded && type->dtype == DT_I64 && n->below[i] == 0 && has_elements) return false;
    t->whole[i] = random_value(t->arena, t->rng, type, n->below[i]);
    for (int64_t k = 0, count = coarse ? ref_count(&t->whole[i]) : 0; k < count; k++)
      t->whole[i].data[k] = round(t->whole[i].data[k]);
    if (n->operands[i].is_const) t->whole[i].data[0] = n->operands[i].const_value;
    operands[i] = without_layout(type);
    t->operands[i] = inferred->slice[i] ? inferred->slice_to[i] : *type;
  }
  proof_relate(n, t->whole);
  for (uint32_t i = 0; i < n->noperands; i++)
    t->blocks[i] = random_split(t->arena, t->rng, &n->operands[i].type, &t->whole[i]);
  t->nresults = inferred->nresults;
  for (uint32_t k = 0; k < t->nresults; k++) {
    t->results[k] = inferred->results[k];
    results[k] = without_layout(&inferred->results[k]);
  }
  RefNode whole = {.op = n->op,
                   .attrs = n->attrs,
                   .nattrs = n->nattrs,
                   .noperands = n->noperands,
                   .nresults = t->nresults,
                   .operand_types = operands,
                   .result_types = results};
  if (n->op == OP_CROSS_ENTROPY) t->mean_weight = global_weight(n, t->whole);
  return ref_eval_node(t->ctx, t->arena, &whole, t->whole, t->want);
}

/* The part of a block that a finer type keeps: both are cut from one value. False where the finer
 * block does not lie within the block. */
static bool slice_block(Arena *arena, const TensorType *from, const TensorType *to,
                        const int64_t *coord, const RefTensor *block, RefTensor *out) {
  Block a = type_block(from, coord), b = type_block(to, coord);
  int64_t index[DTM_MAX_DIMS] = {0};
  *out = ref_new(arena, to->rank, b.extent);
  int64_t n = ref_count(out);
  for (uint32_t d = 0; n > 0 && d < to->rank; d++)
    if (b.offset[d] < a.offset[d] || b.offset[d] + b.extent[d] > a.offset[d] + a.extent[d])
      return false;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (uint32_t d = 0; d < to->rank; d++)
      at = at * block->shape[d] + index[d] + b.offset[d] - a.offset[d];
    out->data[i] = block->data[at];
    for (uint32_t d = to->rank; d-- > 0 && ++index[d] == out->shape[d];) index[d] = 0;
  }
  return true;
}

/* Attributes that speak of whole extents, as the per-rank operator has them. */
static uint32_t local_attrs(Arena *arena, const ExampleNode *n, const Block *operand,
                            const Block *result, const TensorType *result_type, Attr *out) {
  uint32_t count = 0;
  int64_t dim = 0;
  for (uint32_t k = 0; k < n->nattrs; k++)
    if (n->attrs[k].key == ATTR_DIM) dim = n->attrs[k].as.i;
  for (uint32_t k = 0; k < n->nattrs; k++) {
    Attr a = n->attrs[k];
    bool whole_slice =
        n->op == OP_SLICE && a.key == ATTR_STOP && a.as.i == n->operands[0].type.shape[dim];
    if (a.key == ATTR_TYPE) continue;
    if (a.key == ATTR_SHAPE) {
      int64_t *shape = ARENA_ARRAY(arena, int64_t, DTM_MAX_DIMS);
      memcpy(shape, result->extent, sizeof(int64_t) * result_type->rank);
      a = ATTR_INTS(SHAPE, shape, result_type->rank);
    } else if (n->op == OP_EMBEDDING_BACKWARD && a.key == ATTR_EXTENT) {
      a.as.i = result->extent[0];
    } else if (whole_slice) {
      a.as.i = operand->extent[dim];
    }
    out[count++] = a;
  }
  return count;
}

/* The operator on the rank's blocks accepts their shapes and gives the block of the result type. */
static bool local_conforms(Trial *t, const int64_t *coord) {
  static const Mesh one = {.name = "one", .naxes = 1, .axis = {"x"}, .size = {1}, .nranks = 1};
  const ExampleNode *n = t->node;
  Operand operands[EXAMPLE_MAX_OPERANDS];
  Block first = {{0}, {0}}, result = type_block(&t->results[0], coord);
  Attr attrs[EXAMPLE_MAX_ATTRS];
  InferResult *out = ARENA_NEW(t->arena, InferResult);
  if (n->noperands == 0) return true;
  /* Not a question of extents alone: a rank with some query heads and all key heads finds by its
   * offset which it sees. The interpreter checks it. */
  if (n->op == OP_ATTENTION || n->op == OP_ATTENTION_BACKWARD) return true;
  for (uint32_t i = 0; i < n->noperands; i++) {
    Block b = type_block(&t->operands[i], coord);
    if (i == 0) first = b;
    operands[i] = n->operands[i];
    operands[i].type = without_layout(&t->operands[i]);
    operands[i].type.mesh = &one;
    memcpy(operands[i].type.shape, b.extent, sizeof b.extent);
  }
  uint32_t nattrs = local_attrs(t->arena, n, &first, &result, &t->results[0], attrs);
  if (!infer_rules(t->arena, n->op, operands, n->noperands, attrs, nattrs, false, out))
    /* An empty shard of a maximum contributes the neutral element. */
    return out->code == DIAG_EMPTY_EXTREMUM && op_info(n->op)->cls == CLASS_REDUCTION;
  for (uint32_t k = 0; k < t->nresults; k++) {
    Block b = type_block(&t->results[k], coord);
    for (uint32_t d = 0; d < t->results[k].rank; d++)
      if (out->results[k].shape[d] != b.extent[d]) return false;
    if (out->results[k].rank != t->results[k].rank) return false;
  }
  return true;
}

/* A cross_entropy whose vocabulary is cut communicates inside: test_loss proves its expansion. */
static bool communicates(const ExampleNode *n) {
  const TensorType *logits = &n->operands[0].type;
  return n->op == OP_CROSS_ENTROPY && layout_dim_ways(&logits->layout, logits->mesh, 1) > 1;
}

/* One rank's results. False when the blocks do not fit the operator or the result types. */
static bool run_rank(Trial *t, int64_t pos, RefTensor out[INFER_MAX_RESULTS]) {
  const ExampleNode *n = t->node;
  int64_t coord[DTM_MAX_AXES];
  RefTensor in[EXAMPLE_MAX_OPERANDS];
  mesh_coords(t->results[0].mesh, pos, coord);
  if (!local_conforms(t, coord)) return false;
  for (uint32_t i = 0; i < n->noperands; i++)
    if (!slice_block(t->arena, &n->operands[i].type, &t->operands[i], coord, &t->blocks[i][pos],
                     &in[i]))
      return false;
  RefNode node = {.op = n->op,
                  .attrs = n->attrs,
                  .nattrs = n->nattrs,
                  .noperands = n->noperands,
                  .nresults = t->nresults,
                  .operand_types = t->operands,
                  .result_types = t->results,
                  .coord = coord,
                  .mean_weight = n->op == OP_CROSS_ENTROPY ? &t->mean_weight : NULL};
  return ref_eval_node(t->ctx, t->arena, &node, in, out);
}

/* Addends of opposite infinities are nobody's promise: with a Partial operand only finite results
 * are compared. */
static bool compare_results(Trial *t, RefTensor *got[INFER_MAX_RESULTS]) {
  bool pending = false;
  for (uint32_t i = 0; i < t->node->noperands; i++)
    pending |= layout_has_partial(&t->node->operands[i].type.layout);
  for (uint32_t k = 0; k < t->nresults; k++) {
    bool disagree = false;
    RefTensor value = ref_assemble(t->arena, &t->results[k], got[k], &disagree);
    if (disagree || !ref_close(&value, &t->want[k], pending)) return false;
  }
  return true;
}

static bool any_finite(const RefTensor *t) {
  for (int64_t i = 0, n = ref_count(t); i < n; i++)
    if (isfinite(t->data[i])) return true;
  return false;
}

ProofVerdict proof_run(Proof *p, const ExampleNode *node, const InferResult *row) {
  Trial t = {.arena = &p->scratch, .ctx = &p->ctx, .rng = &p->rng, .node = node};
  RefTensor *got[INFER_MAX_RESULTS];
  if (row->nresults == 0 || !row->results[0].mesh || communicates(node)) return PROOF_VACUOUS;
  if (!trial_begin(&t, row, p->coarse)) return PROOF_VACUOUS;
  int64_t nranks = t.results[0].mesh->nranks;
  for (uint32_t k = 0; k < t.nresults; k++) got[k] = ARENA_ARRAY(t.arena, RefTensor, nranks);
  for (int64_t pos = 0; pos < nranks; pos++) {
    RefTensor out[INFER_MAX_RESULTS];
    if (!run_rank(&t, pos, out)) return PROOF_FAILS;
    for (uint32_t k = 0; k < t.nresults; k++) got[k][pos] = out[k];
  }
  if (!compare_results(&t, got)) return PROOF_FAILS;
  return any_finite(&t.want[0]) ? PROOF_HOLDS : PROOF_VACUOUS;
}

/* --- enumeration
 * ---------------------------------------------------------------------------------- */

void proof_extents(ProofExtents kind, uint32_t special, int64_t nranks,
                   int64_t extent[EXAMPLE_LETTERS]) {
  for (uint32_t l = 0; l < EXAMPLE_LETTERS; l++) {
    extent[l] = kind == EXTENTS_EVEN ? nranks * (1 + l % 2) : nranks + 1 + (int64_t)(l % 3);
    if (l == special && kind == EXTENTS_ONE) extent[l] = 1;
    if (l == special && kind == EXTENTS_ZERO) extent[l] = 0;
  }
}

static void describe(Proof *p, const ExampleNode *n, const InferResult *out) {
  StrBuf sb;
  strbuf_init(&sb, &p->scratch);
  strbuf_printf(&sb, "%s(", op_name(n->op));
  for (uint32_t i = 0; i < n->noperands; i++)
    strbuf_printf(&sb, "%s%s", i ? ", " : "",
                  n->operands[i].is_const
                      ? arena_printf(&p->scratch, "%g", n->operands[i].const_value)
                      : type_print(&p->scratch, &n->operands[i].type));
  strbuf_printf(&sb, ") -> %s on %s", type_print(&p->scratch, &out->results[0]),
                out->results[0].mesh ? mesh_print(&p->scratch, out->results[0].mesh) : "none");
  snprintf(p->first_failure, sizeof p->first_failure, "%s", sb.text);
}

/* Leaves out Partials other than sum and avg. */
static uint32_t without_other_partials(Layout *layouts, uint32_t n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool other = false;
    for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
      other |= layouts[i].at[a].kind == PLACE_PARTIAL && layouts[i].at[a].op > REDUCE_AVG;
    if (!other) layouts[kept++] = layouts[i];
  }
  return kept;
}

ProofSlots proof_slots(Arena *arena, ExampleNode *node) {
  ProofSlots s = {.total = 1};
  for (uint32_t i = 0; i < node->noperands; i++)
    if (!node->operands[i].is_const) s.type[s.n++] = &node->operands[i].type;
  if (node->stated) s.type[s.n++] = node->stated;
  for (uint32_t i = 0; i < s.n; i++) {
    s.count[i] = layouts_of(arena, s.type[i], &s.layouts[i]);
    if (s.n > PROOF_FEW) s.count[i] = without_other_partials(s.layouts[i], s.count[i]);
    s.total *= s.count[i];
  }
  return s;
}

void proof_set(ProofSlots *s, uint64_t k) {
  for (uint32_t i = 0; i < s->n; i++) {
    s->type[i]->layout = s->layouts[i][k % s->count[i]];
    k /= s->count[i];
  }
}

static void prove_combination(Proof *p, const ExampleNode *node) {
  InferResult *out = ARENA_NEW(&p->scratch, InferResult);
  p->inferred++;
  if (!p->row(p->state, &p->scratch, node, out)) return;
  p->accepted++;
  if (proof_run(p, node, out) == PROOF_FAILS && p->failures++ == 0) describe(p, node, out);
}

static void recycle(Proof *p) {
  if (p->scratch.total < 8u << 20) return;
  arena_free(&p->scratch);
  arena_init(&p->scratch);
}

bool proof_set_constants(const ExampleNode *n, double value, ExampleNode *out) {
  bool any = false;
  *out = *n;
  for (uint32_t i = 0; i < n->noperands; i++)
    if (n->operands[i].is_const) {
      out->operands[i].const_value = value;
      any = true;
    }
  return any;
}

/* The layout with these placements on axes 0 and 1; `second_first`:
 * where both cut one dim, axis 1 is the outer one. */
static Layout joined(const Mesh *mesh, Place first, Place second, bool second_first) {
  Layout l = {{{0}}};
  for (uint32_t k = 0; k < 2; k++) {
    uint32_t axis = second_first ? 1 - k : k;
    Place p = axis ? second : first;
    layout_set(&l, mesh, axis, (PlaceKind)p.kind, p.dim, (ReduceOp)p.op);
  }
  return l;
}

/* Many operands on two mesh dims: every row is a pair of rows of one mesh dim, so these are found
 * first, and all pairs are run, with both orders of nested cuts and one drawn for each operand. */
static void prove_pairs(Proof *p, ExampleNode *node, const Mesh *mesh, Arena *arena) {
  VEC(Place) rows = {0};
  ProofSlots s = proof_slots(arena, node);
  InferResult *out = ARENA_NEW(arena, InferResult);
  uint32_t ones[EXAMPLE_MAX_OPERANDS + 1], nrows = 0;
  uint64_t total = 1;
  for (uint32_t i = 0; i < s.n; i++) { /* layouts that leave axis 1 alone */
    ones[i] = 0;
    for (uint32_t j = 0; j < s.count[i]; j++)
      if (s.layouts[i][j].at[1].kind == PLACE_REPLICATE) s.layouts[i][ones[i]++] = s.layouts[i][j];
    total *= ones[i];
  }
  for (uint64_t c = 0; c < total; c++) {
    uint64_t rest = c;
    for (uint32_t i = 0; i < s.n; rest /= ones[i], i++)
      s.type[i]->layout = s.layouts[i][rest % ones[i]];
    if (!p->row(p->state, &p->scratch, node, out)) continue;
    for (uint32_t i = 0; i < s.n; i++) VEC_PUSH(arena, &rows, s.type[i]->layout.at[0]);
    nrows++;
  }
  for (uint32_t a = 0; a < nrows; a++)
    for (uint32_t b = 0; b < nrows; b++)
      for (int order = 0; order < 3; order++) {
        for (uint32_t i = 0; i < s.n; i++) {
          bool swapped = order == 2 ? random_bits(&p->rng) & 1 : order == 1;
          s.type[i]->layout = joined(mesh, rows.data[a * s.n + i], rows.data[b * s.n + i], swapped);
        }
        prove_combination(p, node);
        recycle(p);
      }
}

/* All combinations of one example at these extents on one mesh. */
static void prove_example(Proof *p, Op op, uint32_t variant, const Mesh *mesh,
                          const int64_t *extent) {
  static const double constants[] = {2, 0, -3};
  Arena arena;
  arena_init(&arena);
  for (int c = 0; c < 3; c++) {
    ExampleNode built, node;
    InferResult *out = ARENA_NEW(&arena, InferResult);
    example_build(&arena, op, variant, extent, mesh, &built);
    if (!proof_set_constants(&built, constants[c], &node) && c > 0) break;
    /* Extents for which even Replicate operands have no row are not an example. */
    if (!p->row(p->state, &arena, &node, out)) continue;
    ProofSlots s = proof_slots(&arena, &node);
    if (s.n > PROOF_FEW && mesh->naxes == 2) {
      prove_pairs(p, &node, mesh, &arena);
      continue;
    }
    for (uint64_t k = 0; k < s.total; k++) {
      proof_set(&s, k);
      prove_combination(p, &node);
      recycle(p);
    }
  }
  arena_free(&arena);
}

static uint32_t letters_of(Op op, uint32_t variant, const Mesh *mesh) {
  Arena arena;
  int64_t extent[EXAMPLE_LETTERS];
  ExampleNode n;
  arena_init(&arena);
  proof_extents(EXTENTS_EVEN, 0, 2, extent);
  example_build(&arena, op, variant, extent, mesh, &n);
  arena_free(&arena);
  return n.letters;
}

static uint32_t slot_count(Op op, uint32_t variant, const Mesh *mesh) {
  Arena arena;
  int64_t extent[EXAMPLE_LETTERS];
  ExampleNode n;
  arena_init(&arena);
  proof_extents(EXTENTS_EVEN, 0, 2, extent);
  example_build(&arena, op, variant, extent, mesh, &n);
  uint32_t slots = n.stated != NULL;
  for (uint32_t i = 0; i < n.noperands; i++) slots += !n.operands[i].is_const;
  arena_free(&arena);
  return slots;
}

void prove_op(Proof *p, Op op, const Mesh *mesh) {
  int64_t extent[EXAMPLE_LETTERS];
  for (uint32_t v = 0, n = example_count(op); v < n; v++) {
    uint32_t letters = letters_of(op, v, mesh);
    bool many = slot_count(op, v, mesh) > 2 && mesh->naxes > 1;
    for (ProofExtents kind = EXTENTS_EVEN; kind <= EXTENTS_ZERO; kind++)
      for (uint32_t special = 0; special < EXAMPLE_LETTERS; special++) {
        bool uses_special = kind == EXTENTS_ONE || kind == EXTENTS_ZERO;
        if (uses_special ? !(letters >> special & 1) : special > 0) continue;
        if (many && kind != EXTENTS_EVEN) continue;
        proof_extents(kind, special, mesh->nranks, extent);
        prove_example(p, op, v, mesh, extent);
      }
  }
}

void proof_init(Proof *p, RowFn *row, const void *state) {
  *p = (Proof){.row = row, .state = state, .rng = 1};
  arena_init(&p->keep);
  arena_init(&p->scratch);
  p->ctx = (RefContext){.arena = &p->keep, .seed = 11, .step = 3, .round_casts = true};
}
void proof_free(Proof *p) {
  arena_free(&p->keep);
  arena_free(&p->scratch);
}

bool proof_covers(Op op) {
  OpClass c = op_info(op)->cls;
  return c != CLASS_COMM && (c != CLASS_STRUCTURE || op == OP_DETACH);
}
