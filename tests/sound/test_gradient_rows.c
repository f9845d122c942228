/* The proof of gradients: for every operator x placement, the gradient through the graph that
 * placement assembles equals the whole-tensor gradient.
 *
 * loss = sum(op(operands) * weights), either on the result as it is placed (so that cotangents may
 * travel Partial) or gathered first. autodiff appends the backward pass; the whole graph runs rank
 * by rank on a simulated mesh, Partial operands being split into unequal addends; each gradient is
 * put together by its own type and compared with central differences on whole tensors. The
 * placement of a gradient must follow from its value's: Shard stays, Partial becomes Replicate,
 * Replicate stays or is Partial(sum).
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "place/expand.h"
#include "reference/proof.h"
#include "reference/type_text.h"

enum { WEIGHTS = 8, COMBINATIONS_PER_EXAMPLE = 150 };
static const double step = 1e-5, tolerance = 2e-6;

typedef struct Inputs {
  Arena *arena;
  uint64_t *rng;
  RefTensor value[WEIGHTS + 1];
} Inputs;

static RefTensor read_input(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Inputs *)user)->value[var];
}
static RefTensor *split_input(void *user, const TensorType *type, const RefTensor *whole) {
  Inputs *in = user;
  return random_split(in->arena, in->rng, type, whole);
}

/* Where the operator is smooth; everything else is drawn from both sides of zero. */
static void domain_of(Op op, double *low, double *high) {
  static const struct {
    Op op;
    double low, high;
  } narrow[] = {{OP_LOG, 0.3, 3},    {OP_LOG2, 0.3, 3},     {OP_LOG10, 0.3, 3},
                {OP_LOG1P, -0.7, 3}, {OP_SQRT, 0.3, 3},     {OP_RSQRT, 0.3, 3},
                {OP_POW, 0.3, 2},    {OP_ASIN, -0.8, 0.8},  {OP_ACOS, -0.8, 0.8},
                {OP_ACOSH, 1.2, 3},  {OP_ATANH, -0.8, 0.8}, {OP_PROD, 0.5, 1.5},
                {OP_TAN, -1, 1}};
  *low = -3;
  *high = 3;
  for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
    if (narrow[i].op == op) {
      *low = narrow[i].low;
      *high = narrow[i].high;
    }
}

static RefTensor draw(Arena *arena, uint64_t *rng, Op op, const TensorType *t, int64_t below) {
  double low, high;
  RefTensor value = random_value(arena, rng, t, below);
  domain_of(op, &low, &high);
  for (int64_t i = 0, n = ref_count(&value); dtype_is_float(t->dtype) && i < n; i++) {
    double v = random_in(rng, low, high);
    /* Away from kinks at zero and from division by almost nothing. */
    value.data[i] = fabs(v) < 0.2 ? v + copysign(0.3, v) : v;
  }
  return value;
}

/* --- the graph
 * ------------------------------------------------------------------------------------ */

typedef struct Build {
  Arena *arena;
  Interner names;
  Sources sources;
  DiagSink sink;
  Program program;
} Build;

static ValueId add(Build *b, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                   uint32_t nattrs) {
  NodeId id = infer_add(b->program.train.graph, &b->sink, op, operands, n, attrs, nattrs, (Span){0},
                        NULL, 0);
  return node_result(graph_node(b->program.train.graph, id), 0);
}

static ValueId read_var(Build *b, uint32_t var, const TensorType *t) {
  return add(b, OP_READ, NULL, 0, (Attr[]){ATTR_I(VAR, var), ATTR_T(TYPE, t)}, 2);
}

/* False where the result is no float, or the loss cannot be formed without gathering. */
static bool build_loss(Build *b, const ExampleNode *node, bool gather) {
  ValueId operands[EXAMPLE_MAX_OPERANDS];
  for (uint32_t i = 0; i < node->noperands; i++) {
    const Operand *o = &node->operands[i];
    Attr constant[] = {ATTR_I(DTYPE, o->type.dtype), ATTR_F(VALUE, o->const_value)};
    operands[i] = o->is_const ? add(b, OP_CONST, NULL, 0, constant, 2) : read_var(b, i, &o->type);
  }
  ValueId y = add(b, node->op, operands, node->noperands, node->attrs, node->nattrs);
  if (b->sink.errors) return false;
  TensorType t = *value_type(b->program.train.graph, y), whole = t;
  if (!dtype_is_float(t.dtype)) return false;
  whole.layout = (Layout){{{0}}};
  bool odd = false;
  for (uint32_t a = 0; a < t.mesh->naxes; a++)
    odd |= t.layout.at[a].kind == PLACE_PARTIAL && t.layout.at[a].op != REDUCE_SUM;
  if (odd && !gather) return false;
  if (gather) y = add(b, OP_REDISTRIBUTE, &y, 1, &ATTR_T(TYPE, &whole), 1);
  ValueId product[] = {y, read_var(b, WEIGHTS, &whole)};
  ValueId loss = add(b, OP_MUL, product, 2, NULL, 0);
  if (t.rank) loss = add(b, OP_SUM, &loss, 1, NULL, 0);
  b->program.train.loss = loss;
  return b->sink.errors == 0;
}

static void build_init(Build *b, Arena *arena, const Mesh *mesh) {
  memset(b, 0, sizeof *b);
  b->arena = arena;
  interner_init(&b->names, arena);
  sources_init(&b->sources, arena);
  diag_init(&b->sink, arena, &b->sources);
  b->program = (Program){.arena = arena,
                         .names = &b->names,
                         .sources = &b->sources,
                         .world = mesh,
                         .train = {.graph = graph_new(arena, "train")}};
}

/* --- whole-tensor gradients by central differences
 * -------------------------------------------------- */

static double loss_of(RefContext *ctx, Build *b, Inputs *in) {
  Arena arena;
  RefIO io = {.user = in, .read = read_input};
  arena_init(&arena);
  double loss =
      ref_eval_graph(ctx, &arena, b->program.train.graph, &io)[b->program.train.loss].data[0];
  arena_free(&arena);
  return loss;
}

static RefTensor differences(RefContext *ctx, Build *b, Inputs *in, uint32_t var) {
  RefTensor grad = ref_new(in->arena, in->value[var].rank, in->value[var].shape);
  for (int64_t i = 0, n = ref_count(&grad); i < n; i++) {
    double *x = &in->value[var].data[i], was = *x;
    *x = was + step;
    double up = loss_of(ctx, b, in);
    *x = was - step;
    double down = loss_of(ctx, b, in);
    *x = was;
    grad.data[i] = (up - down) / (2 * step);
  }
  return grad;
}

/* --- one combination
 * -------------------------------------------------------------------------------- */

typedef struct Run {
  RefContext ctx;
  uint64_t rng;
  uint64_t proved, refused, failures;
  bool has_gradient[OP_COUNT];
  char first[512];
} Run;

static void fail_run(Run *run, const ExampleNode *node, const char *what) {
  Arena arena;
  StrBuf sb;
  arena_init(&arena);
  strbuf_init(&sb, &arena);
  strbuf_printf(&sb, "%s: %s(", what, op_name(node->op));
  for (uint32_t i = 0; i < node->noperands; i++)
    strbuf_printf(&sb, "%s%s", i ? ", " : "",
                  node->operands[i].is_const ? "constant"
                                             : type_print(&arena, &node->operands[i].type));
  strbuf_putc(&sb, ')');
  if (run->failures++ == 0) snprintf(run->first, sizeof run->first, "%s", sb.text);
  arena_free(&arena);
}

/* S(d) -> S(d), Partial -> R, R -> R or P(sum). */
static bool placement_follows(const TensorType *value, const TensorType *grad) {
  for (uint32_t a = 0; a < value->mesh->naxes; a++) {
    Place v = value->layout.at[a], g = grad->layout.at[a];
    bool summed = g.kind == PLACE_PARTIAL && g.op == REDUCE_SUM;
    bool ok = v.kind == PLACE_SHARD     ? memcmp(&v, &g, sizeof v) == 0
              : v.kind == PLACE_PARTIAL ? g.kind == PLACE_REPLICATE
                                        : g.kind == PLACE_REPLICATE || summed;
    if (!ok) return false;
  }
  return true;
}

static bool close_to(const RefTensor *got, const RefTensor *want) {
  for (int64_t i = 0, n = ref_count(want); i < n; i++)
    if (isfinite(want->data[i]) &&
        !(fabs(got->data[i] - want->data[i]) <= tolerance * (1 + fabs(want->data[i]))))
      return false;
  return true;
}

/* Values of the variables a gradient is wanted of, in the graph after opening. */
static uint32_t find_wrt(const Graph *g, ValueId wrt[EXAMPLE_MAX_OPERANDS],
                         uint32_t var[EXAMPLE_MAX_OPERANDS]) {
  uint32_t n = 0;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *node = graph_node(g, id);
    uint32_t v = (uint32_t)node_int(node, ATTR_VAR, 0);
    if (node->op != OP_READ || v == WEIGHTS) continue;
    if (!dtype_is_float(value_type(g, node->first_result)->dtype)) continue;
    wrt[n] = node->first_result;
    var[n++] = v;
  }
  return n;
}

static bool orders(const TensorType *t) {
  for (uint32_t a = 0; a < t->mesh->naxes; a++) {
    ReduceOp op = (ReduceOp)t->layout.at[a].op;
    if (op == REDUCE_MAX || op == REDUCE_MIN || op == REDUCE_PRODUCT) return true;
  }
  return false;
}

/* A derivative has no derivative, a pending maximum or product passes none, and neither does the
 * diagonal of an einsum. */
static bool may_refuse(const Graph *g, DiagCode code) {
  bool second = false, ordered = false;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    const char *grads = op_info(n->op)->grads;
    second |= op_info(n->op)->cls == CLASS_POINTWISE && !*grads;
    second |= strstr(op_name(n->op), "_backward") != NULL;
    second |= n->op == OP_EINSUM && strncmp(node_string(n, ATTR_SPEC), "ii", 2) == 0;
    for (uint32_t k = 0; k < n->nresults; k++) {
      const TensorType *t = value_type(g, node_result(n, k));
      ordered |= t->mesh && orders(t);
    }
  }
  return (code == DIAG_NO_GRADIENT && second) || (code == DIAG_GRADIENT_PARTIAL && ordered);
}

static void check_combination(Run *run, const ExampleNode *node, Inputs *in, const RefTensor *want,
                              bool gather) {
  Arena arena;
  Build b;
  ValueId wrt[EXAMPLE_MAX_OPERANDS], grads[EXAMPLE_MAX_OPERANDS] = {0};
  uint32_t var[EXAMPLE_MAX_OPERANDS];
  const Mesh *mesh =
      node->operands[0].is_const ? node->operands[1].type.mesh : node->operands[0].type.mesh;
  arena_init(&arena);
  build_init(&b, &arena, mesh);
  if (build_loss(&b, node, gather)) {
    expand_run(&b.program);
    Graph *g = b.program.train.graph;
    uint32_t n = find_wrt(g, wrt, var);
    bool ok = autodiff_gradients(g, b.program.train.loss, wrt, n, grads, 1, plan_cache_new(&arena),
                                 &b.sink);
    Inputs local = *in;
    local.arena = &arena;
    RefIO io = {.user = &local, .read = read_input, .split = split_input};
    bool disagree = false;
    RefTensor **ranks = ok ? ref_eval_mesh(&run->ctx, &arena, g, &io, &disagree) : NULL;
    for (uint32_t i = 0; ok && i < n; i++) {
      RefTensor zero = ref_new(&arena, want[var[i]].rank, want[var[i]].shape), got = zero;
      if (grads[i]) {
        run->has_gradient[node->op] = true;
        got = ref_assemble(&arena, value_type(g, grads[i]), ranks[grads[i]], &disagree);
        if (!placement_follows(value_type(g, wrt[i]), value_type(g, grads[i])))
          fail_run(run, node, type_print(&arena, value_type(g, grads[i])));
      }
      if (!close_to(&got, &want[var[i]])) fail_run(run, node, "wrong gradient");
      run->proved++;
    }
    if (disagree) fail_run(run, node, "replicas differ");
    if (!ok && !may_refuse(g, b.sink.diags.data[0]->code))
      fail_run(run, node, b.sink.diags.data[0]->message);
    run->refused += !ok;
  }
  arena_free(&arena);
}

static void check_example(Run *run, Op op, uint32_t variant, const Mesh *mesh, ProofExtents kind,
                          double constant, Proof *p) {
  int64_t extent[EXAMPLE_LETTERS];
  ExampleNode built, node;
  InferResult out;
  Arena arena;
  Build whole;
  RefTensor want[EXAMPLE_MAX_OPERANDS];
  arena_init(&arena);
  proof_extents(kind, 0, mesh->nranks, extent);
  example_build(&arena, op, variant, extent, mesh, &built);
  proof_set_constants(&built, constant, &node);
  Inputs in = {.arena = &arena, .rng = &run->rng};
  build_init(&whole, &arena, mesh);
  bool usable = node.noperands && !node.stated && proof_real_row(NULL, &arena, &node, &out) &&
                build_loss(&whole, &node, false);
  for (uint32_t i = 0; usable && i < node.noperands; i++)
    in.value[i] = draw(&arena, &run->rng, op, &node.operands[i].type, node.below[i]);
  if (usable) in.value[WEIGHTS] = draw(&arena, &run->rng, OP_NONE, &out.results[0], 0);
  for (uint32_t i = 0; usable && i < node.noperands; i++)
    if (dtype_is_float(node.operands[i].type.dtype) && !node.operands[i].is_const)
      want[i] = differences(&run->ctx, &whole, &in, i);
  ProofSlots slots = proof_slots(&arena, &node);
  uint64_t accepted = 0;
  for (uint64_t k = 0; usable && k < slots.total; k++) {
    /* A large product of layouts is sampled, the same way in every run. */
    uint64_t skip = slots.total / 40000;
    if (skip > 1 && random_bits(&run->rng) % skip) continue;
    proof_set(&slots, k);
    if (!proof_real_row(NULL, &p->scratch, &node, &out)) continue;
    if (mesh->naxes > 1 && accepted++ > COMBINATIONS_PER_EXAMPLE) break;
    check_combination(run, &node, &in, want, false);
    check_combination(run, &node, &in, want, true);
  }
  arena_free(&arena);
}

static void check_mesh(uint32_t naxes, const int64_t *sizes) {
  Mesh mesh;
  Proof p;
  Run run = {.rng = 5};
  mesh_of(&mesh, naxes, sizes);
  proof_init(&p, proof_real_row, NULL);
  run.ctx = (RefContext){.arena = &p.keep, .seed = 3};
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    for (uint32_t v = 0; proof_covers((Op)op) && op != OP_DETACH && v < example_count((Op)op); v++)
      for (ProofExtents kind = EXTENTS_EVEN; kind <= EXTENTS_UNEVEN; kind++)
        check_example(&run, (Op)op, v, &mesh, kind, v % 2 ? 2 : -3, &p);
  printf("mesh of %lld: %llu gradients proved, %llu programs refused\n", (long long)mesh.nranks,
         (unsigned long long)run.proved, (unsigned long long)run.refused);
  ck_assert_msg(run.failures == 0, "%llu faults, first: %s", (unsigned long long)run.failures,
                run.first);
  proof_free(&p);
}

START_TEST(one_mesh_dim) {
  check_mesh(1, &(int64_t){_i});
}
END_TEST
START_TEST(two_mesh_dims) {
  check_mesh(2, (int64_t[]){2, 2});
}
END_TEST

int main(void) {
  Suite *s = suite_create("gradient_rows");
  TCase *c = tcase_create("proof");
  tcase_set_timeout(c, 240);
  tcase_add_loop_test(c, one_mesh_dim, 1, 5);
  tcase_add_test(c, two_mesh_dims);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed != 0;
}
