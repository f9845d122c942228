/* Layouts: local extents and printing, against values written by hand. */
#include <check.h>

#include "types/layout.h"

static Mesh mesh2(int64_t a, int64_t b) {
  return (Mesh){.name = "m", .naxes = 2, .axis = {"a", "b"}, .size = {a, b}, .nranks = a * b};
}

START_TEST(uneven_extents) {
  Mesh m = {.name = "m", .naxes = 1, .axis = {"a"}, .size = {4}, .nranks = 4};
  static const int64_t cases[][5] = {{6, 2, 2, 2, 0}, {5, 2, 2, 1, 0}, {11, 3, 3, 3, 2}};
  for (int c = 0; c < 3; c++) {
    TensorType t = {.dtype = DT_F32, .rank = 1, .shape = {cases[c][0]}, .mesh = &m};
    layout_set(&t.layout, &m, 0, PLACE_SHARD, 0, REDUCE_NONE);
    for (int64_t r = 0; r < 4; r++) {
      int64_t coord[DTM_MAX_AXES] = {r};
      ck_assert_int_eq(type_block(&t, coord).extent[0], cases[c][r + 1]);
    }
  }
}
END_TEST

START_TEST(nested_extents) {
  Mesh m = mesh2(2, 2);
  TensorType t = {.dtype = DT_F32, .rank = 1, .shape = {5}, .mesh = &m};
  layout_set_dim(&t.layout, &m, 0, (uint8_t[]){0, 1}, 2);
  static const int64_t want[] = {2, 1, 1, 1};
  for (int64_t r = 0; r < 4; r++) {
    int64_t coord[DTM_MAX_AXES];
    mesh_coords(&m, r, coord);
    ck_assert_int_eq(type_block(&t, coord).extent[0], want[r]);
  }
}
END_TEST

START_TEST(empty_shard_offset) {
  Mesh m = mesh2(4, 2);
  TensorType t = {.dtype = DT_F32, .rank = 1, .shape = {2}, .mesh = &m};
  layout_set_dim(&t.layout, &m, 0, (uint8_t[]){0, 1}, 2);
  int64_t coord[DTM_MAX_AXES] = {0, 1};
  Block b = type_block(&t, coord);
  ck_assert_int_eq(b.extent[0], 0);
  ck_assert_int_eq(b.offset[0], 2);
}
END_TEST

START_TEST(order_is_part_of_the_type) {
  Arena arena;
  arena_init(&arena);
  Mesh m = mesh2(2, 2);
  TensorType t = {.dtype = DT_F32, .rank = 2, .shape = {8, 3}, .mesh = &m}, u = t;
  layout_set_dim(&t.layout, &m, 0, (uint8_t[]){0, 1}, 2);
  layout_set_dim(&u.layout, &m, 0, (uint8_t[]){1, 0}, 2);
  ck_assert(!type_equal(&t, &u));
  ck_assert_str_eq(type_print(&arena, &u), "f32[8@(b,a), 3]");
  layout_set(&u.layout, &m, 1, PLACE_PARTIAL, 0, REDUCE_MAX);
  ck_assert_str_eq(type_print(&arena, &u), "f32[8@a, 3] partial(b: max)");
  arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *s = suite_create("types");
  TCase *c = tcase_create("layout");
  tcase_add_test(c, uneven_extents);
  tcase_add_test(c, nested_extents);
  tcase_add_test(c, empty_shard_offset);
  tcase_add_test(c, order_is_part_of_the_type);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed != 0;
}
