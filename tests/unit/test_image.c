/* The image: what plan writes, the runtime's reader accepts; damage is refused, never followed. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/fuse.h"
#include "plan/plan.h"
#include "runtime/abi/image.h"
#include "support/suite.h"

static Plan *small_plan(Arena *arena) {
  static const Mesh mesh = {.name = "m", .naxes = 1, .axis = {"x"}, .size = {2}, .nranks = 2};
  Program *program = ARENA_NEW(arena, Program);
  *program = (Program){.arena = arena, .path = "t.dtm", .world = &mesh};
  TensorType type = {.dtype = DT_F32, .rank = 1, .shape = {5}, .mesh = &mesh};
  type.layout.at[0].kind = PLACE_SHARD;
  VEC_PUSH(arena, &program->vars,
           (Var){.kind = VAR_PARAM, .name = "layers.0.w", .chunks = 1, .type = type});
  Graph *g = program->block[BLOCK_INIT].graph = graph_new(arena, "init");
  const Attr full[] = {ATTR_T(TYPE, &type), ATTR_F(VALUE, 3)}, var = ATTR_I(VAR, 0);
  ValueId v = node_result(
      graph_node(g, graph_add(g, OP_FULL, NULL, 0, full, 2, &type, 1, (Span){0}, 0)), 0);
  graph_add(g, OP_ASSIGN, &v, 1, &var, 1, NULL, 0, (Span){0}, 0);
  KernelSet kernels = {0};
  const FuseOptions fuse = {.enabled = true};
  FusedProgram *fused[BLOCK_COUNT] = {fuse_run(arena, g, &kernels, &fuse)};
  const PlanOptions options = {.path = "/t.dtm", .compiler = "test", .reuse = true};
  return plan_run(arena, program, fused, kernels.kernels.len, &options);
}

START_TEST(reads_what_was_written) {
  Arena arena;
  arena_init(&arena);
  const Plan *plan = small_plan(&arena);
  Image im;
  const char *wrong = abi_image_open(plan->image, plan->image_size, &im);
  ck_assert_msg(wrong == NULL, "%s", wrong);
  ck_assert_uint_eq(im.var_count, 1);
  ck_assert_str_eq(abi_text(&im, im.var[0].name), "layers.0.w");
  const AbiType *t = &im.type[im.var[0].type];
  ck_assert_uint_eq(t->dtype, ABI_F32);
  ck_assert_int_eq(t->shape[0], 5);
  ck_assert_uint_eq(t->at[0].kind, ABI_SHARD);
  ck_assert_int_eq(abi_mesh_position(&im, abi_type_mesh(&im, t), 1), 1);
  ck_assert_uint_eq(im.program[ABI_PROGRAM_INIT].nactions, 1); /* made in place: no copy */
  ck_assert_uint_eq(im.header->arena_size, ABI_STEP_BYTES + 64);
  arena_free(&arena);
}
END_TEST

START_TEST(damage_is_refused_or_harmless) {
  Arena arena;
  arena_init(&arena);
  const Plan *plan = small_plan(&arena);
  unsigned char *copy = aligned_alloc(64, (plan->image_size + 63) / 64 * 64);
  Image im;
  memcpy(copy, plan->image, plan->image_size);
  ck_assert_ptr_nonnull(abi_image_open(copy, plan->image_size - 8, &im));
  ck_assert_ptr_nonnull(abi_image_open(copy, 16, &im));
  for (size_t i = 0; i < plan->image_size; i++)
    for (int bit = 0; bit < 8; bit += 7) {
      copy[i] ^= (unsigned char)(1u << bit);
      const char *wrong = abi_image_open(copy, plan->image_size, &im);
      if (i < 12) ck_assert_ptr_nonnull(wrong); /* magic and version */
      copy[i] ^= (unsigned char)(1u << bit);
    }
  free(copy);
  arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("image");
  TCase *tc = tcase_create("image");
  tcase_add_test(tc, reads_what_was_written);
  tcase_add_test(tc, damage_is_refused_or_harmless);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
