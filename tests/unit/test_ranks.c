/* Memory of disjoint ranks: which sets of ranks meet, against brute force, and what a plan makes of
 * it. */
#include <check.h>

#include "autodiff/autodiff.h"
#include "fuse/fuse.h"
#include "place/expand.h"
#include "plan/plan.h"
#include "plan/ranks.h"
#include "reference/compile.h"
#include "runtime/abi/image.h"
#include "spmd/spmd.h"
#include "support/suite.h"

static uint64_t state = 0x9E3779B97F4A7C15ull;
static uint32_t below(uint32_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

static void add_var(Program *p, const Mesh *mesh) {
  VEC_PUSH(p->arena, &p->vars, (Var){.kind = VAR_PARAM, .type = {.mesh = mesh}});
}

/* A mesh of `n` ranks from `first` on, of one dim. */
static Mesh *ranks_from(Arena *arena, int64_t first, int64_t n) {
  Mesh *m = ARENA_NEW(arena, Mesh);
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, n);
  for (int64_t i = 0; i < n; i++) ranks[i] = first + i;
  *m = (Mesh){.name = "m", .naxes = 1, .axis = {"x"}, .size = {n}, .nranks = n, .ranks = ranks};
  return m;
}

static bool share_a_rank(const Mesh *a, const Mesh *b) {
  for (int64_t i = 0; i < a->nranks; i++)
    for (int64_t k = 0; k < b->nranks; k++)
      if (mesh_rank(a, i) == mesh_rank(b, k)) return true;
  return false;
}

START_TEST(sets_meet_where_ranks_do) {
  for (int round = 0; round < 200; round++) {
    Arena arena;
    arena_init(&arena);
    const Mesh *world = ranks_from(&arena, 0, 24);
    Program p = {.arena = &arena, .world = world};
    FusedProgram *none[BLOCK_COUNT] = {NULL};
    uint32_t n = 1 + below(7);
    for (uint32_t i = 0; i < n; i++) {
      int64_t first = below(24);
      add_var(&p, ranks_from(&arena, first, 1 + below((uint32_t)(24 - first))));
    }
    RankSets sets;
    rank_sets_find(&arena, &p, none, &sets);
    ck_assert_uint_le(sets.nclasses, 64);
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t k = 0; k < n; k++) {
        const Mesh *a = p.vars.data[i].type.mesh, *b = p.vars.data[k].type.mesh;
        ck_assert_int_eq((rank_set(&sets, a) & rank_set(&sets, b)) != 0, share_a_rank(a, b));
      }
    arena_free(&arena);
  }
}
END_TEST

/* More kinds of ranks than bits: what is alike is then not told apart, never the other way. */
START_TEST(many_kinds_of_ranks) {
  Arena arena;
  arena_init(&arena);
  Program p = {.arena = &arena, .world = ranks_from(&arena, 0, 200)};
  FusedProgram *none[BLOCK_COUNT] = {NULL};
  for (int64_t r = 0; r < 199; r++) add_var(&p, ranks_from(&arena, r, 2));
  RankSets sets;
  rank_sets_find(&arena, &p, none, &sets);
  ck_assert_uint_eq(sets.nclasses, 64);
  uint32_t apart = 0;
  for (uint32_t i = 0; i < p.vars.len; i++)
    for (uint32_t k = 0; k < p.vars.len; k++) {
      const Mesh *a = p.vars.data[i].type.mesh, *b = p.vars.data[k].type.mesh;
      bool meet = rank_set(&sets, a) & rank_set(&sets, b);
      ck_assert(meet || !share_a_rank(a, b));
      apart += !meet;
    }
  ck_assert_uint_gt(apart, 3000);
  arena_free(&arena);
}
END_TEST

static const char stages[] =
    "mesh world(pp = 1, dp = 1)\n"
    "module Layer(n: int) {\n  param w: f32[n, n] = normal(std = 0.1)\n"
    "  forward(x) { return gelu(linear(x, w)) }\n}\n"
    "module Net(n: int) {\n  let stages = world.unbind(\"pp\")\n"
    "  let at = assign_layers_to_stages(8, len(stages))\n"
    "  layers = [Layer(n) on stages[at[i]] for i in range(8)]\n"
    "  param all: f32[n] = ones()\n"
    "  forward(x) {\n    let h = (x * all).redistribute(mesh = stages[0])\n"
    "    for i in range(8) { h = layers[i](h.redistribute(mesh = stages[at[i]])) }\n"
    "    return mean(square(h)).redistribute(dp: Replicate)\n  }\n}\n"
    "train {\n  model m = Net(64)\n  loss m(rand(f32[32@dp, 64]))\n"
    "  optimizer adamw(lr = 1e-3)\n  steps 5\n}\n";

static Plan *plan_of(Compiled *c, const char *mesh) {
  compile_clean(c, stages, mesh);
  PlanCache *plans = plan_cache_new(&c->arena);
  expand_run(c->program);
  ck_assert_msg(autodiff_run(c->program, plans, &c->sink), "%s", compile_messages(c));
  const char *fault = spmd_run(c->program, plans);
  ck_assert_msg(!fault, "%s", fault);
  KernelSet kernels = {0};
  const FuseOptions fuse = {.enabled = true};
  FusedProgram *fused[BLOCK_COUNT] = {NULL};
  for (BlockKind b = BLOCK_INIT; b < BLOCK_COUNT; b++)
    if (c->program->block[b].graph)
      fused[b] = fuse_run(&c->arena, c->program->block[b].graph, &kernels, &fuse);
  const PlanOptions options = {.path = "/t.dtm", .compiler = "test", .reuse = true};
  return plan_run(&c->arena, c->program, fused, kernels.kernels.len, &options);
}

/* The memory of a rank is that of its stage; variables that overlap are on disjoint ranks. */
START_TEST(a_rank_holds_its_stage) {
  static const struct {
    const char *mesh;
    uint64_t parts;
  } meshes[] = {{"pp=2", 2}, {"pp=4", 4}, {"pp=8", 8}, {"pp=4,dp=2", 4}};
  Compiled one;
  const Plan *whole = plan_of(&one, NULL);
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    Compiled c;
    const Plan *plan = plan_of(&c, meshes[i].mesh);
    uint64_t common = 8192; /* the step block, what is on all ranks, alignment */
    ck_assert_uint_le(plan->persistent_size, whole->persistent_size / meshes[i].parts + common);
    ck_assert_uint_lt(plan->blocks[BLOCK_TRAIN].height, whole->blocks[BLOCK_TRAIN].height);
    Image im;
    const char *wrong = abi_image_open(plan->image, plan->image_size, &im);
    ck_assert_msg(!wrong, "%s", wrong);
    uint32_t shared = 0;
    for (uint64_t a = 0; a < im.var_count; a++)
      for (uint64_t b = 0; b < a; b++) {
        const Var *u = &c.program->vars.data[a], *v = &c.program->vars.data[b];
        uint64_t x = im.var[a].offset, y = im.var[b].offset;
        bool overlap = x < y + (uint64_t)type_local_bytes(&v->type) &&
                       y < x + (uint64_t)type_local_bytes(&u->type);
        ck_assert(!overlap || !share_a_rank(u->type.mesh, v->type.mesh));
        shared += overlap;
      }
    ck_assert_uint_gt(shared, 0);
    compile_free(&c);
  }
  compile_free(&one);
}
END_TEST

int main(void) {
  TCase *t = tcase_create("ranks");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, sets_meet_where_ranks_do);
  tcase_add_test(t, many_kinds_of_ranks);
  tcase_add_test(t, a_rank_holds_its_stage);
  Suite *s = suite_create("ranks");
  suite_add_tcase(s, t);
  return suite_run(s);
}
