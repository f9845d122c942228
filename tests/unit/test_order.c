/* The order of a step: with one batch and nothing to wait for, parameters are updated among the
 * backward pass; never before the loss is handed out, and never while an old value is needed. For a
 * GPU they are at the end, those of one code side by side. */
#include <check.h>

#include "autodiff/autodiff.h"
#include "fuse/fuse.h"
#include "place/expand.h"
#include "plan/plan.h"
#include "reference/compile.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/image.h"
#include "spmd/spmd.h"
#include "support/suite.h"

#define NET(settings)                                                                              \
  "mesh world(dp = 1)\n"                                                                           \
  "module Net() {\n"                                                                               \
  "  param w: f32[16, 16] = normal(std = 0.1)\n"                                                   \
  "  param v: f32[16, 16] = normal(std = 0.1)\n"                                                   \
  "  param u: f32[16, 16] = normal(std = 0.1)\n"                                                   \
  "  forward(x) { return linear(gelu(linear(gelu(linear(gelu(linear(x, w)), v)), u)), w) }\n"      \
  "}\n"                                                                                            \
  "train {\n"                                                                                      \
  "  data x = npy(\"x.npy\", f32[8@dp, 16])\n"                                                     \
  "  model m = Net()\n"                                                                            \
  "  loss mean(square(m(x))).redistribute(dp: Replicate)\n"                                        \
  "  steps 5\n" settings "}\n"

/* Matrices whose squares are added up in two kernels each, and one whose type is another. */
#define WIDE(settings)                                                                             \
  "mesh world(dp = 1)\n"                                                                           \
  "module Net() {\n"                                                                               \
  "  param w: f32[512, 512] = normal(std = 0.1)\n"                                                 \
  "  param v: f32[512, 512] = normal(std = 0.1)\n"                                                 \
  "  param u: f32[768, 512] = normal(std = 0.1)\n"                                                 \
  "  param t: bf16[768] = normal(std = 0.1)\n"                                                     \
  "  param s: bf16[768] = normal(std = 0.1)\n"                                                     \
  "  forward(x) {\n"                                                                               \
  "    let h = linear(gelu(linear(gelu(linear(x, w)), v)), u)\n"                                   \
  "    return h * t.to(f32) + s.to(f32)\n"                                                         \
  "  }\n"                                                                                          \
  "}\n"                                                                                            \
  "train {\n"                                                                                      \
  "  data x = npy(\"x.npy\", f32[8@dp, 512])\n"                                                    \
  "  model m = Net()\n"                                                                            \
  "  loss mean(square(m(x))).redistribute(dp: Replicate)\n"                                        \
  "  steps 5\n" settings "}\n"

/* The train block's image, opened. */
static Image image_of(Compiled *c, const char *text, const char *mesh, bool together) {
  compile_clean(c, text, mesh);
  PlanCache *plans = plan_cache_new(&c->arena);
  expand_run(c->program);
  ck_assert_msg(autodiff_run(c->program, plans, &c->sink), "%s", compile_messages(c));
  const char *fault = spmd_run(c->program, plans);
  ck_assert_msg(!fault, "%s", fault);
  KernelSet kernels = {0};
  const FuseOptions fuse = {.enabled = true};
  FusedProgram *fused[BLOCK_COUNT] = {NULL};
  fused[BLOCK_TRAIN] = fuse_run(&c->arena, c->program->block[BLOCK_TRAIN].graph, &kernels, &fuse);
  const PlanOptions options = {
      .path = "/t.dtm", .compiler = "test", .reuse = true, .together = together};
  const Plan *plan = plan_run(&c->arena, c->program, fused, kernels.kernels.len, &options);
  Image im;
  const char *wrong = abi_image_open(plan->image, plan->image_size, &im);
  ck_assert_msg(!wrong, "%s", wrong);
  return im;
}

static bool touches(const Image *im, const AbiAction *a, uint64_t offset, bool write) {
  for (uint32_t i = 0; i < a->nbuffers; i++) {
    const AbiBuffer *b = &im->buffer[a->buffers + i];
    if (b->type && b->offset == offset && (b->written != 0) == write) return true;
  }
  return false;
}

/* Checks every parameter; returns how many are updated before the backward pass ends. */
static uint32_t updated_early(const Image *im) {
  const AbiProgram *p = &im->program[ABI_PROGRAM_TRAIN];
  uint32_t backward = 0, output = 0, early = 0;
  for (uint32_t i = 0; i < p->nactions; i++) {
    const AbiAction *a = &im->action[p->actions + i];
    if (a->phase == PHASE_BACKWARD) backward = i;
    if (a->kind == ABI_OUTPUT) output = i + 1;
  }
  ck_assert_uint_lt(backward, p->looped);
  for (uint64_t v = 0; v < im->var_count; v++) {
    if (im->var[v].kind != VAR_PARAM) continue;
    uint32_t updates = 0, update = 0;
    for (uint32_t i = 0; i < p->nactions; i++)
      if (touches(im, &im->action[p->actions + i], im->var[v].offset, true)) {
        update = i;
        updates++;
      }
    ck_assert_uint_eq(updates, 1);
    ck_assert_uint_eq(im->action[p->actions + update].phase, PHASE_OPTIMIZER);
    ck_assert_uint_ge(update, output);
    for (uint32_t i = update + 1; i < p->nactions; i++)
      ck_assert_msg(!touches(im, &im->action[p->actions + i], im->var[v].offset, false),
                    "%s is read after its update", abi_text(im, im->var[v].name));
    early += update < backward;
  }
  return early;
}

START_TEST(updates_among_the_backward_pass) {
  static const struct {
    const char *text, *mesh;
    bool early;
  } cases[] = {
      {NET("  optimizer adamw(lr = 1e-3)\n"), NULL, true},
      {NET("  optimizer sgd(lr = 1e-3)\n"), NULL, true},
      {NET("  optimizer adamw(lr = 1e-3)\n  compute bf16\n"), NULL, true},
      {NET("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n"), NULL, false},
      {NET("  optimizer adamw(lr = 1e-3)\n  accumulate 2\n"), NULL, false},
      {NET("  optimizer adamw(lr = 1e-3)\n"), "dp=2", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Compiled c;
    Image im = image_of(&c, cases[i].text, cases[i].mesh, false);
    uint32_t early = updated_early(&im);
    /* w is read until the end; of v and u at least one is not. */
    ck_assert_msg(cases[i].early ? early > 0 : early == 0, "case %zu: %u early", i, early);
    compile_free(&c);
    im = image_of(&c, cases[i].text, cases[i].mesh, true);
    early = updated_early(&im);
    ck_assert_msg(early == 0, "case %zu, together: %u early", i, early);
    compile_free(&c);
  }
}
END_TEST

/* Bytes of a buffer on rank 0. */
static uint64_t buffer_bytes(const Image *im, const AbiBuffer *b) {
  if (!b->type) return (uint64_t)b->scratch * ABI_ALIGN;
  const AbiType *t = &im->type[b->type];
  const int64_t coord[ABI_MAX_AXES] = {0};
  int64_t offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS];
  abi_block(t, abi_type_mesh(im, t), coord, offset, extent);
  uint64_t bytes = abi_dtype_bytes(t->dtype);
  for (uint32_t d = 0; d < t->rank; d++) bytes *= (uint64_t)extent[d];
  return bytes;
}

/* One writes what the other touches. */
static bool depend(const Image *im, const AbiAction *a, const AbiAction *b) {
  for (uint32_t i = 0; i < a->nbuffers; i++)
    for (uint32_t k = 0; k < b->nbuffers; k++) {
      const AbiBuffer *x = &im->buffer[a->buffers + i], *y = &im->buffer[b->buffers + k];
      if ((x->written || y->written) && x->offset < y->offset + buffer_bytes(im, y) &&
          y->offset < x->offset + buffer_bytes(im, x))
        return true;
    }
  return false;
}

static bool is_update(const AbiAction *a) {
  return a->kind == ABI_KERNEL && a->phase == ABI_OPTIMIZER;
}

/* How many runs of kernels of one code the optimizer has; none of a run depend on each other.
 * *kernels: how many these are, *codes: of how many codes. */
static uint32_t count_runs(const Image *im, uint32_t *kernels, uint32_t *codes) {
  const AbiProgram *p = &im->program[ABI_PROGRAM_TRAIN];
  const AbiAction *action = &im->action[p->actions];
  uint32_t runs = 0;
  *kernels = *codes = 0;
  for (uint32_t i = 0, end; i < p->nactions; i = end) {
    end = i + 1;
    if (!is_update(&action[i])) continue;
    while (end < p->nactions && is_update(&action[end]) && action[end].code == action[i].code)
      end++;
    bool seen = false;
    for (uint32_t k = 0; k < i; k++)
      seen = seen || (is_update(&action[k]) && action[k].code == action[i].code);
    for (uint32_t k = i; k < end; k++)
      for (uint32_t m = i; m < k; m++)
        ck_assert_msg(!depend(im, &action[m], &action[k]), "actions %u and %u", m, k);
    *kernels += end - i;
    *codes += !seen;
    runs++;
  }
  return runs;
}

/* For a GPU: whatever is reduced, clipped, added up or kept in pieces, kernels of one code are one
 * run. Sums over a matrix are two kernels each, the second behind the first. */
START_TEST(kernels_of_one_code_side_by_side) {
  static const struct {
    const char *text, *mesh;
    uint32_t kernels; /* at least */
  } cases[] = {
      {NET("  optimizer adamw(lr = 1e-3)\n"), NULL, 4},
      {NET("  optimizer sgd(lr = 1e-3, momentum = 0.9)\n"), NULL, 3},
      {NET("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n"), NULL, 8},
      {NET("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n  compute f16\n"), NULL, 8},
      {NET("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n  accumulate 2\n"), NULL, 8},
      {NET("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n"), "dp=2", 8},
      {NET("  optimizer adamw(lr = 1e-3)\n  store @dp\n"), "dp=2", 4},
      {NET("  optimizer adamw(lr = 1e-3)\n  store optimizer @dp  clip_grad_norm 1.0\n"), "dp=2", 8},
      {WIDE("  optimizer adamw(lr = 1e-3)\n  clip_grad_norm 1.0\n"), NULL, 11},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Compiled c;
    Image im = image_of(&c, cases[i].text, cases[i].mesh, true);
    uint32_t kernels, codes, runs = count_runs(&im, &kernels, &codes);
    ck_assert_msg(kernels >= cases[i].kernels, "case %zu: %u kernels", i, kernels);
    ck_assert_msg(runs == codes, "case %zu: %u runs of %u codes", i, runs, codes);
    compile_free(&c);
  }
}
END_TEST

static ValueId node(Graph *g, Op op, Phase phase, ValueId a, ValueId b, const Attr *attr,
                    const TensorType *type) {
  const ValueId operands[] = {a, b};
  NodeId n = graph_add(g, op, operands,
                       !a  ? 0
                       : b ? 2
                           : 1,
                       attr, attr ? 1 : 0, type, type ? 1 : 0, (Span){0}, 0);
  graph_node(g, n)->phase = (uint8_t)phase;
  return type ? node_result(graph_node(g, n), 0) : 0;
}

/* The gradient is there before the last reader of the old value: b = w * (w * w), w = w - w * w. */
START_TEST(the_last_reader_comes_first) {
  static const Mesh mesh = {.name = "m", .naxes = 1, .axis = {"x"}, .size = {1}, .nranks = 1};
  Arena arena;
  arena_init(&arena);
  Program *program = ARENA_NEW(&arena, Program);
  *program = (Program){.arena = &arena, .path = "t.dtm", .world = &mesh};
  const TensorType type = {.dtype = DT_F32, .rank = 1, .shape = {64}, .mesh = &mesh};
  VEC_PUSH(&arena, &program->vars,
           (Var){.kind = VAR_PARAM, .name = "w", .chunks = 1, .type = type});
  VEC_PUSH(&arena, &program->vars,
           (Var){.kind = VAR_BUFFER, .name = "b", .chunks = 1, .type = type});
  Graph *g = program->block[BLOCK_TRAIN].graph = graph_new(&arena, "train");
  const Attr w = ATTR_I(VAR, 0), b = ATTR_I(VAR, 1);
  ValueId old = node(g, OP_READ, PHASE_FORWARD, 0, 0, &w, &type);
  ValueId grad = node(g, OP_MUL, PHASE_BACKWARD, old, old, NULL, &type);
  ValueId later = node(g, OP_MUL, PHASE_BACKWARD, old, grad, NULL, &type);
  node(g, OP_ASSIGN, PHASE_BACKWARD, later, 0, &b, NULL);
  node(g, OP_ASSIGN, PHASE_OPTIMIZER, node(g, OP_SUB, PHASE_OPTIMIZER, old, grad, NULL, &type), 0,
       &w, NULL);
  KernelSet kernels = {0};
  const FuseOptions fuse = {.enabled = false};
  FusedProgram *fused[BLOCK_COUNT] = {NULL};
  fused[BLOCK_TRAIN] = fuse_run(&arena, g, &kernels, &fuse);
  const PlanOptions options = {.path = "/t.dtm", .compiler = "test", .reuse = true};
  const Plan *plan = plan_run(&arena, program, fused, kernels.kernels.len, &options);
  Image im;
  ck_assert_ptr_null(abi_image_open(plan->image, plan->image_size, &im));
  updated_early(&im);
  arena_free(&arena);
}
END_TEST

int main(void) {
  TCase *t = tcase_create("order");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, updates_among_the_backward_pass);
  tcase_add_test(t, kernels_of_one_code_side_by_side);
  tcase_add_test(t, the_last_reader_comes_first);
  Suite *s = suite_create("order");
  suite_add_tcase(s, t);
  return suite_run(s);
}
