/* The proof of the placement rows: every operator x every combination of placements.
 *
 * Random global inputs are split according to their types (Partial as unequal addends of varying
 * sign), the per-rank operator runs on every rank of the mesh, its results are put together by the
 * inferred output placement and compared with the operator on whole tensors; replicated outputs
 * must be bit-equal. Meshes of 1 to 4 ranks, (2,2) and (2,3); even, uneven, size-1 and zero
 * extents; constants 2, 0, -3. One and two mesh dims are covered exhaustively for up to two
 * operands; three operands on two mesh dims are inferred exhaustively at even extents.
 *
 * Two more things are proved: planted wrong rows are caught (test_rules could fail), and rows that
 * would be sound but are absent are exactly those of omissions.txt, each with a reason. Run with
 * --update to rewrite that list; new lines get the reason "?", which fails until a person wrote
 * one.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/example.h"
#include "infer/rules.h"
#include "reference/placements.h"
#include "reference/type_text.h"

/* The table under test: the real one, or one with a planted fault. */
typedef bool RowFn(Arena *arena, const ExampleNode *node, InferResult *out);

static bool real_row(Arena *arena, const ExampleNode *n, InferResult *out) {
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

/* Draws inputs, the whole result, and splits. False where ids have nothing to point at. */
static bool trial_begin(Trial *t, const InferResult *inferred) {
  const ExampleNode *n = t->node;
  TensorType operands[EXAMPLE_MAX_OPERANDS], results[INFER_MAX_RESULTS];
  for (uint32_t i = 0; i < n->noperands; i++) {
    const TensorType *type = &n->operands[i].type;
    bool has_elements = type_elements(type) > 0;
    bool bounded = n->op == OP_EMBEDDING || n->op == OP_EMBEDDING_BACKWARD ||
                   op_info(n->op)->cls == CLASS_INDEXING || n->op == OP_CROSS_ENTROPY;
    if (bounded && type->dtype == DT_I64 && n->below[i] == 0 && has_elements) return false;
    t->whole[i] = random_value(t->arena, t->rng, type, n->below[i]);
    if (n->operands[i].is_const) t->whole[i].data[0] = n->operands[i].const_value;
    t->blocks[i] = random_split(t->arena, t->rng, type, &t->whole[i]);
    operands[i] = without_layout(type);
    t->operands[i] = inferred->slice[i] ? inferred->slice_to[i] : *type;
  }
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

/* The part of a block that a finer type keeps: both are cut from one value. */
static RefTensor slice_block(Arena *arena, const TensorType *from, const TensorType *to,
                             const int64_t *coord, const RefTensor *block) {
  Block a = type_block(from, coord), b = type_block(to, coord);
  RefTensor out = ref_new(arena, to->rank, b.extent);
  int64_t index[DTM_MAX_DIMS] = {0}, n = ref_count(&out);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (uint32_t d = 0; d < to->rank; d++)
      at = at * block->shape[d] + index[d] + b.offset[d] - a.offset[d];
    out.data[i] = block->data[at];
    for (uint32_t d = to->rank; d-- > 0 && ++index[d] == out.shape[d];) index[d] = 0;
  }
  return out;
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

/* Runs all ranks with the result types of the trial. */
static bool trial_holds(Trial *t) {
  const ExampleNode *n = t->node;
  const Mesh *mesh = t->nresults && t->results[0].mesh ? t->results[0].mesh : NULL;
  if (!mesh) return true;
  RefTensor *got[INFER_MAX_RESULTS];
  for (uint32_t k = 0; k < t->nresults; k++)
    got[k] = ARENA_ARRAY(t->arena, RefTensor, mesh->nranks);
  for (int64_t pos = 0; pos < mesh->nranks; pos++) {
    int64_t coord[DTM_MAX_AXES];
    RefTensor in[EXAMPLE_MAX_OPERANDS], out[INFER_MAX_RESULTS];
    mesh_coords(mesh, pos, coord);
    if (!local_conforms(t, coord)) return false;
    for (uint32_t i = 0; i < n->noperands; i++)
      in[i] =
          slice_block(t->arena, &n->operands[i].type, &t->operands[i], coord, &t->blocks[i][pos]);
    RefNode node = {.op = n->op,
                    .attrs = n->attrs,
                    .nattrs = n->nattrs,
                    .noperands = n->noperands,
                    .nresults = t->nresults,
                    .operand_types = t->operands,
                    .result_types = t->results,
                    .coord = coord,
                    .mean_weight = n->op == OP_CROSS_ENTROPY ? &t->mean_weight : NULL};
    if (!ref_eval_node(t->ctx, t->arena, &node, in, out)) return false;
    for (uint32_t k = 0; k < t->nresults; k++) got[k][pos] = out[k];
  }
  bool pending = false;
  for (uint32_t i = 0; i < n->noperands; i++)
    pending |= layout_has_partial(&n->operands[i].type.layout);
  for (uint32_t k = 0; k < t->nresults; k++) {
    bool disagree = false;
    RefTensor value = ref_assemble(t->arena, &t->results[k], got[k], &disagree);
    if (disagree || !ref_close(&value, &t->want[k], pending)) return false;
  }
  return true;
}

/* --- enumeration
 * ---------------------------------------------------------------------------------- */

typedef enum Extents { EVEN, UNEVEN, ONE, ZERO } Extents;

/* Extents of the letters: multiples of the ranks, none of them, or one letter special. */
static void choose_extents(Extents kind, uint32_t special, int64_t nranks,
                           int64_t extent[EXAMPLE_LETTERS]) {
  for (uint32_t l = 0; l < EXAMPLE_LETTERS; l++) {
    extent[l] = kind == EVEN ? nranks * (1 + l % 2) : nranks + 1 + (int64_t)(l % 3);
    if (l == special && kind == ONE) extent[l] = 1;
    if (l == special && kind == ZERO) extent[l] = 0;
  }
}

typedef struct Proof {
  RowFn *row;
  RefContext ctx;
  Arena keep, scratch;
  uint64_t rng, inferred, accepted;
  uint64_t failures;
  char first_failure[1024];
} Proof;

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

/* Each of these gets every layout: operands that are no constants, and a stated type. */
typedef struct Slots {
  TensorType *type[EXAMPLE_MAX_OPERANDS + 1];
  Layout *layouts[EXAMPLE_MAX_OPERANDS + 1];
  uint32_t count[EXAMPLE_MAX_OPERANDS + 1], n;
  uint64_t total;
} Slots;

static Slots make_slots(Arena *arena, ExampleNode *node) {
  Slots s = {.total = 1};
  for (uint32_t i = 0; i < node->noperands; i++)
    if (!node->operands[i].is_const) s.type[s.n++] = &node->operands[i].type;
  if (node->stated) s.type[s.n++] = node->stated;
  for (uint32_t i = 0; i < s.n; i++) {
    s.count[i] = layouts_of(arena, s.type[i], &s.layouts[i]);
    s.total *= s.count[i];
  }
  return s;
}

static void set_combination(Slots *s, uint64_t k) {
  for (uint32_t i = 0; i < s->n; i++) {
    s->type[i]->layout = s->layouts[i][k % s->count[i]];
    k /= s->count[i];
  }
}

static void prove_combination(Proof *p, const ExampleNode *node) {
  InferResult *out = ARENA_NEW(&p->scratch, InferResult);
  p->inferred++;
  if (!p->row(&p->scratch, node, out)) return;
  p->accepted++;
  Trial t = {.arena = &p->scratch, .ctx = &p->ctx, .rng = &p->rng, .node = node};
  if (communicates(node) || !trial_begin(&t, out) || trial_holds(&t)) return;
  if (p->failures++ == 0) describe(p, node, out);
}

static void recycle(Proof *p) {
  if (p->scratch.total < 8u << 20) return;
  arena_free(&p->scratch);
  arena_init(&p->scratch);
}

static bool has_constant(const ExampleNode *n, double value, ExampleNode *out) {
  bool any = false;
  *out = *n;
  for (uint32_t i = 0; i < n->noperands; i++)
    if (n->operands[i].is_const) {
      out->operands[i].const_value = value;
      any = true;
    }
  return any;
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
    if (!has_constant(&built, constants[c], &node) && c > 0) break;
    /* Extents for which even Replicate operands have no row are not an example. */
    if (!p->row(&arena, &node, out)) continue;
    Slots s = make_slots(&arena, &node);
    for (uint64_t k = 0; k < s.total; k++) {
      set_combination(&s, k);
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
  choose_extents(EVEN, 0, 2, extent);
  example_build(&arena, op, variant, extent, mesh, &n);
  arena_free(&arena);
  return n.letters;
}

static uint32_t slot_count(Op op, uint32_t variant, const Mesh *mesh) {
  Arena arena;
  int64_t extent[EXAMPLE_LETTERS];
  ExampleNode n;
  arena_init(&arena);
  choose_extents(EVEN, 0, 2, extent);
  example_build(&arena, op, variant, extent, mesh, &n);
  uint32_t slots = n.stated != NULL;
  for (uint32_t i = 0; i < n.noperands; i++) slots += !n.operands[i].is_const;
  arena_free(&arena);
  return slots;
}

static void prove_op(Proof *p, Op op, const Mesh *mesh) {
  int64_t extent[EXAMPLE_LETTERS];
  for (uint32_t v = 0, n = example_count(op); v < n; v++) {
    uint32_t letters = letters_of(op, v, mesh);
    bool many = slot_count(op, v, mesh) > 2 && mesh->naxes > 1;
    for (Extents kind = EVEN; kind <= ZERO; kind++)
      for (uint32_t special = 0; special < EXAMPLE_LETTERS; special++) {
        bool uses_special = kind == ONE || kind == ZERO;
        if (uses_special ? !(letters >> special & 1) : special > 0) continue;
        if (many && kind != EVEN) continue;
        choose_extents(kind, special, mesh->nranks, extent);
        prove_example(p, op, v, mesh, extent);
      }
  }
}

static void proof_init(Proof *p, RowFn *row) {
  *p = (Proof){.row = row, .rng = 1};
  arena_init(&p->keep);
  arena_init(&p->scratch);
  p->ctx = (RefContext){.arena = &p->keep, .seed = 11, .step = 3, .round_casts = true};
}
static void proof_free(Proof *p) {
  arena_free(&p->keep);
  arena_free(&p->scratch);
}

static bool is_local(Op op) {
  OpClass c = op_info(op)->cls;
  return c != CLASS_COMM && (c != CLASS_STRUCTURE || op == OP_DETACH);
}

static void prove_all(const int64_t *sizes, uint32_t naxes) {
  Mesh mesh;
  Proof p;
  mesh_of(&mesh, naxes, sizes);
  proof_init(&p, real_row);
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (is_local((Op)op)) prove_op(&p, (Op)op, &mesh);
  printf("mesh of %lld: %llu combinations, %llu rows proved\n", (long long)mesh.nranks,
         (unsigned long long)p.inferred, (unsigned long long)p.accepted);
  ck_assert_msg(p.failures == 0, "%llu unsound rows, first: %s", (unsigned long long)p.failures,
                p.first_failure);
  proof_free(&p);
}

START_TEST(one_mesh_dim) {
  prove_all(&(int64_t){_i}, 1);
}
END_TEST
START_TEST(two_by_two) {
  prove_all((int64_t[]){2, 2}, 2);
}
END_TEST
START_TEST(two_by_three) {
  prove_all((int64_t[]){2, 3}, 2);
}
END_TEST

START_TEST(every_operator_has_an_example) {
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (is_local((Op)op))
      ck_assert_msg(example_count((Op)op) > 0, "%s has no example", op_name((Op)op));
}
END_TEST

int main(int argc, char **argv) {
  (void)argc;
  (void)argv;
  Suite *s = suite_create("rules");
  TCase *c = tcase_create("proof");
  tcase_set_timeout(c, 240);
  tcase_add_test(c, every_operator_has_an_example);
  tcase_add_loop_test(c, one_mesh_dim, 1, 5);
  tcase_add_test(c, two_by_two);
  tcase_add_test(c, two_by_three);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed != 0;
}
