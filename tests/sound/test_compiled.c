/* Every operator on the compiled path: lowered, fused, planned, compiled and run by the executor as
 * each rank of a mesh in turn, on blocks of random global inputs; the results put together by their
 * placements and compared with the reference interpreter on whole tensors.
 *
 * The same examples as the proof of the placement rows: even, uneven, size-1 and zero extents, and
 * with them empty shards. Many trials share one program, so that compiling does not dominate.
 */
#include <check.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "core/exec.h"
#include "fuse/fuse.h"
#include "jit.h"
#include "place/expand.h"
#include "plan/plan.h"
#include "reference/proof.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "spmd/spmd.h"
#include "support/suite.h"

enum { BATCH = 150, SEED = 11, STEP = 3 };

typedef struct Trial {
  ExampleNode node;
  uint32_t nresults, in_var[EXAMPLE_MAX_OPERANDS], out_var[INFER_MAX_RESULTS];
  TensorType results[INFER_MAX_RESULTS];
  RefTensor want[INFER_MAX_RESULTS], *blocks[EXAMPLE_MAX_OPERANDS];
  bool pending; /* an operand is Partial */
} Trial;

/* One program of many trials. */
typedef struct Batch {
  Arena arena;
  Program program;
  const Mesh *mesh;
  VEC(Trial) trials;
  RefContext ctx;
  uint64_t rng;
  bool fuse, reuse;
  uint64_t compared, failed;
} Batch;

static void batch_begin(Batch *b, const Mesh *mesh, uint64_t rng) {
  arena_init(&b->arena);
  b->program = (Program){.arena = &b->arena, .path = "t.dtm", .world = mesh};
  Interner *names = ARENA_NEW(&b->arena, Interner);
  interner_init(names, &b->arena);
  b->program.names = names;
  b->program.block[BLOCK_EVAL].graph = graph_new(&b->arena, "eval");
  b->mesh = mesh;
  memset(&b->trials, 0, sizeof b->trials);
  b->ctx = (RefContext){.arena = &b->arena, .seed = SEED, .step = STEP, .round_casts = true};
  b->rng = rng;
}

static TensorType whole_type(const TensorType *t) {
  TensorType w = *t;
  w.layout = (Layout){0};
  return w;
}

static uint32_t add_var(Batch *b, const TensorType *type) {
  Var v = {.kind = VAR_BUFFER, .chunks = 1, .type = *type};
  v.name = arena_printf(&b->arena, "v%u", b->program.vars.len);
  VEC_PUSH(&b->arena, &b->program.vars, v);
  return b->program.vars.len - 1;
}

static ValueId add_operand(Batch *b, Trial *t, const InferResult *row, uint32_t i) {
  Graph *g = b->program.block[BLOCK_EVAL].graph;
  const Operand *o = &t->node.operands[i];
  NodeId id;
  if (o->is_const) {
    const Attr attrs[] = {ATTR_I(DTYPE, o->type.dtype), ATTR_F(VALUE, o->const_value)};
    id = graph_add(g, OP_CONST, NULL, 0, attrs, 2, &o->type, 1, (Span){0}, 0);
  } else {
    t->in_var[i] = add_var(b, &o->type);
    const Attr attr = ATTR_I(VAR, t->in_var[i]);
    id = graph_add(g, OP_READ, NULL, 0, &attr, 1, &o->type, 1, (Span){0}, 0);
  }
  ValueId v = node_result(graph_node(g, id), 0);
  if (!row->slice[i]) return v;
  const Attr to = ATTR_T(TYPE, &row->slice_to[i]);
  id = graph_add(g, OP_REDISTRIBUTE, &v, 1, &to, 1, &row->slice_to[i], 1, (Span){0}, 0);
  return node_result(graph_node(g, id), 0);
}

/* Whole inputs, their blocks, and the whole result. False when there is nothing to compare. */
static bool draw(Batch *b, Trial *t, const InferResult *row) {
  const ExampleNode *n = &t->node;
  RefTensor whole[EXAMPLE_MAX_OPERANDS];
  TensorType operands[EXAMPLE_MAX_OPERANDS], results[INFER_MAX_RESULTS];
  for (uint32_t i = 0; i < n->noperands; i++) {
    const TensorType *type = &n->operands[i].type;
    bool bounded = op_info(n->op)->cls == CLASS_INDEXING || n->op == OP_CROSS_ENTROPY;
    if (bounded && type->dtype == DT_I64 && n->below[i] == 0 && type_elements(type) > 0)
      return false;
    whole[i] = random_value(&b->arena, &b->rng, type, n->below[i]);
    for (int64_t k = 0; k < ref_count(&whole[i]); k++)
      whole[i].data[k] = ref_round(type->dtype, whole[i].data[k]);
    if (n->operands[i].is_const) whole[i].data[0] = n->operands[i].const_value;
    operands[i] = whole_type(type);
    t->pending |= layout_has_partial(&type->layout);
  }
  proof_relate(n, whole);
  for (uint32_t i = 0; i < n->noperands; i++)
    t->blocks[i] = random_split(&b->arena, &b->rng, &n->operands[i].type, &whole[i]);
  for (uint32_t k = 0; k < row->nresults; k++) results[k] = whole_type(&row->results[k]);
  RefNode node = {.op = n->op,
                  .attrs = n->attrs,
                  .nattrs = n->nattrs,
                  .noperands = n->noperands,
                  .nresults = row->nresults,
                  .operand_types = operands,
                  .result_types = results};
  return ref_eval_node(&b->ctx, &b->arena, &node, whole, t->want);
}

static void add_trial(Batch *b, const ExampleNode *node, const InferResult *row) {
  Graph *g = b->program.block[BLOCK_EVAL].graph;
  Trial t = {.node = *node, .nresults = row->nresults};
  if (row->nresults == 0 || !row->results[0].mesh || !draw(b, &t, row)) return;
  ValueId operands[EXAMPLE_MAX_OPERANDS];
  for (uint32_t i = 0; i < node->noperands; i++) operands[i] = add_operand(b, &t, row, i);
  NodeId id = graph_add(g, node->op, operands, node->noperands, node->attrs, node->nattrs,
                        row->results, row->nresults, (Span){0}, 0);
  ValueId first = graph_node(g, id)->first_result;
  for (uint32_t k = 0; k < row->nresults; k++) {
    t.results[k] = row->results[k];
    t.out_var[k] = add_var(b, &row->results[k]);
    const Attr attr = ATTR_I(VAR, t.out_var[k]);
    ValueId v = first + k;
    graph_add(g, OP_ASSIGN, &v, 1, &attr, 1, NULL, 0, (Span){0}, 0);
  }
  VEC_PUSH(&b->arena, &b->trials, t);
}

/* --- a communicator of one rank of a mesh that talks to nobody ----------------------------------
 */

static void no_publish(RtComm *c) {
  (void)c;
}
static int print_fail(RtComm *c, int code, const char *message) {
  (void)c;
  fprintf(stderr, "%s\n", message);
  return code;
}
static int no_pull(RtComm *c, size_t src, size_t dst, int dtype, const RtBox *boxes, size_t nboxes,
                   const int32_t *group, int32_t ngroup) {
  (void)c, (void)src, (void)dst, (void)dtype, (void)boxes, (void)nboxes, (void)group, (void)ngroup;
  return 1;
}

static void load_vars(const Batch *b, const Image *im, unsigned char *arena, int64_t pos) {
  for (uint32_t i = 0; i < b->trials.len; i++) {
    const Trial *t = &b->trials.data[i];
    for (uint32_t k = 0; k < t->node.noperands; k++) {
      if (t->node.operands[k].is_const) continue;
      const AbiVar *v = &im->var[t->in_var[k]];
      const RefTensor *block = &t->blocks[k][pos];
      for (int64_t e = 0; e < ref_count(block); e++)
        abi_store(arena + v->offset, im->type[v->type].dtype, e, block->data[e]);
    }
  }
}

static RefTensor take_block(Batch *b, const Image *im, const unsigned char *arena, uint32_t var,
                            const TensorType *type, const int64_t *coord) {
  Block block = type_block(type, coord);
  RefTensor r = ref_new(&b->arena, type->rank, block.extent);
  for (int64_t e = 0; e < ref_count(&r); e++)
    r.data[e] = abi_load(arena + im->var[var].offset, type->dtype, e);
  return r;
}

static DType narrowest(const Trial *t, uint32_t result) {
  DType d = t->results[result].dtype;
  for (uint32_t i = 0; i < t->node.noperands; i++) {
    DType o = t->node.operands[i].type.dtype;
    if (dtype_is_float(d) && dtype_is_float(o) && dtype_bytes(o) < dtype_bytes(d)) d = o;
  }
  return d;
}

static const char *describe(Batch *b, const Trial *t) {
  StrBuf sb;
  strbuf_init(&sb, &b->arena);
  strbuf_printf(&sb, "%s(", op_name(t->node.op));
  for (uint32_t i = 0; i < t->node.noperands; i++)
    strbuf_printf(&sb, "%s%s", i ? ", " : "", type_print(&b->arena, &t->node.operands[i].type));
  strbuf_printf(&sb, ") -> %s on %s", type_print(&b->arena, &t->results[0]),
                mesh_print(&b->arena, b->mesh));
  return sb.text;
}

/* f32 against f64: test_math bounds the functions' errors, this only sees faults. `dtype` is the
 * narrowest type of operands and result. */
static bool near(const RefTensor *got, const RefTensor *want, DType dtype, bool finite_only) {
  double scale = 1;
  for (int64_t i = 0; i < ref_count(want); i++)
    if (isfinite(want->data[i]) && fabs(want->data[i]) > scale) scale = fabs(want->data[i]);
  double tolerance = !dtype_is_float(dtype) ? 0
                     : dtype == DT_F64      ? 1e-12
                     : dtype == DT_F32      ? 3e-5
                                            : 4e-2;
  for (int64_t i = 0; i < ref_count(want); i++) {
    double g = got->data[i], w = want->data[i];
    /* Division of an integer by zero has no value. */
    if (!isfinite(w) && (finite_only || !dtype_is_float(dtype))) continue;
    if (isnan(w) != isnan(g)) return false;
    if (isinf(w) ? g != w : fabs(g - w) > tolerance * scale) return false;
  }
  return true;
}

static void run_ranks(Batch *b, const Plan *plan, AbiKernelFn *const *kernels) {
  Image im;
  const char *wrong = abi_image_open(plan->image, plan->image_size, &im);
  ck_assert_msg(wrong == NULL, "%s", wrong);
  const RtCommOps ops = {
      .name = "none", .pull = no_pull, .publish = no_publish, .fail = print_fail};
  int64_t n = b->mesh->nranks;
  unsigned char **arenas = ARENA_ARRAY(&b->arena, unsigned char *, n);
  for (int64_t pos = 0; pos < n; pos++) {
    size_t size = (plan->arena_size + 4095) / 4096 * 4096;
    arenas[pos] = aligned_alloc(4096, size);
    memset(arenas[pos], 0xff, size); /* what nobody wrote reads as NaN */
    RtComm comm = {.ops = &ops,
                   .rank = (int32_t)pos,
                   .world = (int32_t)n,
                   .threads = 2,
                   .arena = arenas[pos],
                   .arena_size = size};
    const RtCode code = {.open = dtm_cpu_open, .kernels = kernels};
    Exec *exec;
    ck_assert_int_eq(dtm_rt_exec_open(&im, &code, &comm, NULL, &exec), 0);
    *dtm_rt_exec_step(exec) = (AbiStep){.seed = SEED, .step = STEP};
    load_vars(b, &im, arenas[pos], pos);
    const AbiProgram *p = &im.program[ABI_PROGRAM_EVAL];
    ck_assert_int_eq(dtm_rt_exec_run(exec, p->actions, p->nactions, NULL), 0);
    dtm_rt_exec_close(exec);
  }
  for (uint32_t i = 0; i < b->trials.len; i++) {
    const Trial *t = &b->trials.data[i];
    for (uint32_t k = 0; k < t->nresults; k++) {
      RefTensor *blocks = ARENA_ARRAY(&b->arena, RefTensor, n);
      bool disagree = false;
      for (int64_t pos = 0; pos < n; pos++) {
        int64_t coord[DTM_MAX_AXES];
        mesh_coords(b->mesh, pos, coord);
        blocks[pos] = take_block(b, &im, arenas[pos], t->out_var[k], &t->results[k], coord);
      }
      RefTensor got = ref_assemble(&b->arena, &t->results[k], blocks, &disagree);
      ck_assert_msg(!disagree, "replicas differ: %s", describe(b, t));
      b->compared++;
      if (near(&got, &t->want[k], narrowest(t, k), t->pending)) continue;
      if (b->failed++ > 20) continue;
      printf("differs: %s\n", describe(b, t));
      for (int64_t e = 0; e < ref_count(&got) && e < 24; e++)
        printf("  [%d] %.9g want %.9g\n", (int)e, got.data[e], t->want[k].data[e]);
    }
  }
  for (int64_t pos = 0; pos < n; pos++) free(arenas[pos]);
}

static void batch_end(Batch *b) {
  if (b->trials.len) {
    expand_run(&b->program);
    const char *fault = spmd_run(&b->program, plan_cache_new(&b->arena));
    ck_assert_msg(fault == NULL, "%s", fault);
    KernelSet kernels = {0};
    FuseOptions options = {.enabled = b->fuse};
    FusedProgram *fused[BLOCK_COUNT] = {NULL};
    fused[BLOCK_EVAL] = fuse_run(&b->arena, b->program.block[BLOCK_EVAL].graph, &kernels, &options);
    PlanOptions plan_options = {.path = "t.dtm", .compiler = "test", .reuse = b->reuse};
    Plan *plan = plan_run(&b->arena, &b->program, fused, kernels.kernels.len, &plan_options);
    Jit jit = jit_load(&b->arena, kernels.kernels.data, kernels.kernels.len, NULL);
    run_ranks(b, plan, (AbiKernelFn *const *)jit.kernels);
    dlclose(jit.handle);
  }
  arena_free(&b->arena);
}

/* --- enumeration --------------------------------------------------------------------------------
 */

typedef struct Sweep {
  Batch batch;
  Arena scratch;
  const Mesh *mesh;
  uint32_t most; /* combinations of one example at one kind of extents */
} Sweep;

static void sweep_example(Sweep *s, Op op, uint32_t variant, const int64_t *extent) {
  ExampleNode node;
  Arena *arena = &s->batch.arena; /* trials keep their nodes */
  InferResult *row = ARENA_NEW(arena, InferResult);
  example_build(arena, op, variant, extent, s->mesh, &node);
  if (!proof_real_row(NULL, arena, &node, row)) return;
  ProofSlots slots = proof_slots(arena, &node);
  /* Replicate first, then combinations spread over all of them until enough have a row. */
  uint32_t taken = 0;
  for (uint64_t i = 0; i < slots.total && taken < s->most; i++) {
    uint64_t k = i == 0 ? 0 : random_bits(&s->batch.rng) % slots.total;
    if (slots.total <= s->most) k = i;
    if (i > 40 * s->most) break;
    proof_set(&slots, k);
    if (!proof_real_row(NULL, arena, &node, row)) continue;
    ExampleNode copy = node;
    if (node.stated) {
      copy.stated = ARENA_NEW(arena, TensorType);
      *copy.stated = *node.stated;
      for (uint32_t a = 0; a < copy.nattrs; a++)
        if (copy.attrs[a].key == ATTR_TYPE) copy.attrs[a].as.type = copy.stated;
    }
    add_trial(&s->batch, &copy, row);
    taken++;
  }
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

static void sweep_op(Sweep *s, Op op) {
  int64_t extent[EXAMPLE_LETTERS];
  for (uint32_t v = 0; v < example_count(op); v++) {
    uint32_t letters = letters_of(op, v, s->mesh);
    for (ProofExtents kind = EXTENTS_EVEN; kind <= EXTENTS_ZERO; kind++)
      for (uint32_t special = 0; special < EXAMPLE_LETTERS; special++) {
        bool uses_special = kind == EXTENTS_ONE || kind == EXTENTS_ZERO;
        if (uses_special ? !(letters >> special & 1) : special > 0) continue;
        proof_extents(kind, special, s->mesh->nranks, extent);
        sweep_example(s, op, v, extent);
      }
    if (s->batch.trials.len < BATCH) continue;
    uint64_t rng = s->batch.rng;
    batch_end(&s->batch);
    batch_begin(&s->batch, s->mesh, rng);
  }
}

static void sweep(const int64_t *sizes, uint32_t naxes, uint32_t most, bool fuse, bool reuse) {
  static const char *const names[] = {"x", "y"};
  Mesh mesh = {.name = "m", .naxes = naxes, .nranks = 1};
  for (uint32_t a = 0; a < naxes; a++) {
    mesh.axis[a] = names[a];
    mesh.size[a] = sizes[a];
    mesh.nranks *= sizes[a];
  }
  Sweep s = {.mesh = &mesh, .most = most, .batch = {.fuse = fuse, .reuse = reuse}};
  batch_begin(&s.batch, &mesh, 1);
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    if (proof_covers((Op)op) && (op != OP_CROSS_ENTROPY || mesh.nranks == 1))
      sweep_op(&s, (Op)op); /* cross_entropy communicates inside */
  batch_end(&s.batch);
  printf("mesh of %d: %d results compared\n", (int)mesh.nranks, (int)s.batch.compared);
  ck_assert_uint_eq(s.batch.failed, 0);
}

START_TEST(one_rank) {
  sweep((int64_t[]){1}, 1, 1, true, true);
}
END_TEST
START_TEST(one_rank_plain) { /* neither fused nor sharing memory */
  sweep((int64_t[]){1}, 1, 1, false, false);
}
END_TEST
START_TEST(three_ranks) {
  sweep((int64_t[]){3}, 1, 6, true, true);
}
END_TEST
START_TEST(two_by_two) {
  sweep((int64_t[]){2, 2}, 2, 6, true, true);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("compiled");
  TCase *tc = tcase_create("compiled");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, one_rank);
  tcase_add_test(tc, one_rank_plain);
  tcase_add_test(tc, three_ranks);
  tcase_add_test(tc, two_by_two);
  suite_add_tcase(suite, tc);
  return suite_run_unforked(suite);
}
