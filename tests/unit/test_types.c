/* Layouts: local extents and printing, against values written by hand. f16 against the conversion
 * of any small float. */
#include <check.h>

#include "runtime/abi/balance.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/number.h"
#include "types/layout.h"
#include "support/suite.h"

static Mesh mesh2(int64_t a, int64_t b) {
  return (Mesh){.name = "m", .naxes = 2, .axis = {"a", "b"}, .size = {a, b}, .nranks = a * b};
}

/* 8 elements for 2 ranks: the first and the last piece, then the two in the middle. */
START_TEST(head_tail_order) {
  static const int64_t want[] = {0, 1, 6, 7, 2, 3, 4, 5};
  for (int64_t i = 0; i < 8; i++) {
    ck_assert_int_eq(abi_balanced_from(i, 8, 2), want[i]);
    ck_assert_int_eq(abi_balanced_to(want[i], 8, 2), i);
  }
  /* pairs of a query and a key before it: as many on each rank, any number of ranks and pieces */
  for (int64_t ranks = 1; ranks < 6; ranks++)
    for (int64_t n = 2 * ranks; n < 40; n += 2 * ranks) {
      int64_t first = 0;
      for (int64_t r = 0; r < ranks; r++) {
        int64_t begin, length, pairs = 0;
        abi_chunk(n, ranks, r, &begin, &length);
        for (int64_t i = begin; i < begin + length; i++)
          pairs += 1 + abi_balanced_from(i, n, ranks);
        if (r == 0) first = pairs;
        ck_assert_int_eq(pairs, first);
      }
    }
}
END_TEST

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

/* Whatever the extent and however the axes nest, the blocks of the ranks tile the dim: every
 * element has one owner per replica, and an empty block reports the global extent as its offset. */
START_TEST(blocks_tile_the_dim) {
  static const int64_t sizes[][2] = {{4, 2}, {2, 4}, {2, 3}, {3, 2}, {2, 2}, {1, 3}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (int64_t extent = 0; extent <= 17; extent++)
      for (int form = 0; form < 4; form++) {
        Mesh m = mesh2(sizes[k][0], sizes[k][1]);
        TensorType t = {.dtype = DT_F32, .rank = 2, .shape = {3, extent}, .mesh = &m};
        static const uint8_t lists[4][2] = {{0, 1}, {1, 0}, {0}, {1}};
        uint32_t n = form < 2 ? 2 : 1;
        layout_set_dim(&t.layout, &m, 1, lists[form], n);
        int owners[32] = {0}, replicas = (int)(m.nranks / layout_dim_ways(&t.layout, &m, 1));
        for (int64_t pos = 0; pos < m.nranks; pos++) {
          int64_t coord[DTM_MAX_AXES];
          mesh_coords(&m, pos, coord);
          Block b = type_block(&t, coord);
          ck_assert_int_eq(b.extent[0], 3);
          if (b.extent[1] == 0 && layout_dim_ways(&t.layout, &m, 1) > 1)
            ck_assert_int_eq(b.offset[1], extent);
          for (int64_t i = 0; i < b.extent[1]; i++) owners[b.offset[1] + i]++;
        }
        for (int64_t i = 0; i < extent; i++) ck_assert_int_eq(owners[i], replicas);
      }
}
END_TEST

/* 512 rows over 30 ranks: 28 blocks of 18, one of 8, one empty. */
START_TEST(more_ranks_than_blocks) {
  Mesh m = {.name = "m", .naxes = 1, .axis = {"a"}, .size = {30}, .nranks = 30};
  TensorType t = {.dtype = DT_F32, .rank = 1, .shape = {512}, .mesh = &m};
  layout_set(&t.layout, &m, 0, PLACE_SHARD, 0, REDUCE_NONE);
  int full = 0, part = 0, empty = 0;
  for (int64_t r = 0; r < 30; r++) {
    int64_t coord[DTM_MAX_AXES] = {r}, rows = type_block(&t, coord).extent[0];
    full += rows == 18;
    part += rows == 8;
    empty += rows == 0;
  }
  ck_assert(full == 28 && part == 1 && empty == 1);
  ck_assert_int_eq(type_local_bytes(&t), 18 * 4);
}
END_TEST

START_TEST(changing_an_axis_keeps_orders_dense) {
  Mesh m = {.name = "m", .naxes = 3, .axis = {"a", "b", "c"}, .size = {2, 2, 2}, .nranks = 8};
  Layout l = {{{0}}};
  uint8_t axes[DTM_MAX_AXES];
  layout_set_dim(&l, &m, 0, (uint8_t[]){2, 0, 1}, 3);
  layout_set(&l, &m, 0, PLACE_REPLICATE, 0, REDUCE_NONE);
  ck_assert_uint_eq(layout_dim_axes(&l, 0, axes), 2);
  ck_assert(axes[0] == 2 && axes[1] == 1);
  layout_set(&l, &m, 0, PLACE_SHARD, 0, REDUCE_NONE); /* arrives innermost */
  ck_assert_uint_eq(layout_dim_axes(&l, 0, axes), 3);
  ck_assert(axes[0] == 2 && axes[1] == 1 && axes[2] == 0);
  m.size[2] = 1; /* an axis of size 1 is as good as absent */
  layout_set(&l, &m, 2, PLACE_SHARD, 0, REDUCE_NONE);
  ck_assert_uint_eq(layout_dim_axes(&l, 0, axes), 2);
  ck_assert(axes[0] == 1 && axes[1] == 0);
}
END_TEST

START_TEST(partial_ops_do_not_mix) {
  Mesh m = mesh2(2, 2);
  Layout l = {{{0}}};
  layout_set(&l, &m, 0, PLACE_PARTIAL, 0, REDUCE_SUM);
  layout_set(&l, &m, 1, PLACE_PARTIAL, 0, REDUCE_AVG);
  ck_assert(layout_partial_consistent(&l));
  layout_set(&l, &m, 1, PLACE_PARTIAL, 0, REDUCE_MAX);
  ck_assert(!layout_partial_consistent(&l));
}
END_TEST

START_TEST(exact_conversions) {
  static const struct {
    DType from, to;
    bool exact;
  } rows[] = {{DT_F16, DT_F32, true},     {DT_BF16, DT_F16, false}, {DT_F16, DT_BF16, false},
              {DT_I32, DT_F64, true},     {DT_I32, DT_F32, false},  {DT_I64, DT_F64, false},
              {DT_U8, DT_I16, true},      {DT_U8, DT_I8, false},    {DT_I8, DT_U8, false},
              {DT_BOOL, DT_U8, true},     {DT_U8, DT_BOOL, false},  {DT_F32, DT_I64, false},
              {DT_F8_E4M3, DT_F16, true}, {DT_U8, DT_BF16, true},   {DT_I8, DT_F8_E4M3, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    ck_assert_msg(dtype_widens(rows[i].from, rows[i].to) == rows[i].exact, "%s to %s",
                  dtype_name(rows[i].from), dtype_name(rows[i].to));
}
END_TEST

START_TEST(sizes_are_bounded) {
  Mesh m = mesh2(1, 1);
  TensorType t = {.dtype = DT_F32, .rank = 2, .shape = {1 << 20, 1 << 20}, .mesh = &m};
  ck_assert(type_is_addressable(&t));
  t.shape[1] = (int64_t)1 << 40;
  ck_assert(!type_is_addressable(&t));
  t = (TensorType){.dtype = DT_F32, .rank = 3, .mesh = &m};
  t.shape[1] = t.shape[2] = (int64_t)1 << 40; /* beside an empty dim */
  ck_assert(!type_is_addressable(&t));
}
END_TEST

/* Every f16; numbers spread over those of f32, and those around the middle of two neighbours. */
START_TEST(half_precision) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = abi_from_f16((uint16_t)h), want = abi_from_small(h, 5, 10, 0);
    ck_assert_msg(isnan(want) ? isnan(f) : memcmp(&f, &want, sizeof f) == 0, "%04x", h);
    uint32_t middle, low;
    float half = f + (abi_from_small(h + 1, 5, 10, 0) - f) / 2, g = h < 0x7bff ? half : f;
    memcpy(&middle, &g, sizeof middle);
    for (uint32_t i = 0; i < 20; i++) {
      low = i < 3 ? middle + i - 1 : (h << 16 | h) + i * 0x9e3779b9u;
      memcpy(&f, &low, sizeof f);
      ck_assert_uint_eq(abi_to_f16(f), abi_to_small(f, 5, 10, 0));
    }
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("types");
  TCase *c = tcase_create("layout");
  tcase_add_test(c, uneven_extents);
  tcase_add_test(c, half_precision);
  tcase_add_test(c, head_tail_order);
  tcase_add_test(c, nested_extents);
  tcase_add_test(c, empty_shard_offset);
  tcase_add_test(c, order_is_part_of_the_type);
  tcase_add_test(c, blocks_tile_the_dim);
  tcase_add_test(c, more_ranks_than_blocks);
  tcase_add_test(c, changing_an_axis_keeps_orders_dense);
  tcase_add_test(c, partial_ops_do_not_mix);
  tcase_add_test(c, exact_conversions);
  tcase_add_test(c, sizes_are_bounded);
  suite_add_tcase(s, c);
  return suite_run(s);
}
