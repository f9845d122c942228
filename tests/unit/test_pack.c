/* The arena packer against a brute-force check, and how near it comes to the live-set bound on
 * generated training programs. */
#include <check.h>
#include <string.h>

#include "plan/pack.h"
#include "support/suite.h"

static uint64_t state = 88172645463325252ull;
static uint32_t below(uint32_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

/* The largest sum of sizes alive at one step on one of 64 groups of ranks, by brute force. */
static uint64_t largest_live(const PackItem *items, uint32_t n) {
  uint64_t most = 0;
  for (uint32_t at = 0; at < n; at++) /* the sum grows only where an item begins */
    for (int group = 0; group < 64; group++) {
      uint64_t live = 0;
      for (uint32_t i = 0; i < n; i++)
        if (items[i].first <= items[at].first && items[at].first <= items[i].last &&
            (!items[i].where || items[i].where >> group & 1))
          live += items[i].size;
      if (live > most) most = live;
    }
  return most;
}

static void check_packing(const PackItem *items, uint32_t n, uint64_t height, uint64_t bound) {
  uint64_t top = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (items[i].size == 0) continue;
    if (items[i].offset + items[i].size > top) top = items[i].offset + items[i].size;
    for (uint32_t j = 0; j < i; j++) {
      const PackItem *a = &items[i], *b = &items[j];
      bool together = a->first <= b->last && b->first <= a->last &&
                      (!a->where || !b->where || (a->where & b->where));
      bool overlap = a->offset < b->offset + b->size && b->offset < a->offset + a->size;
      if (b->size && together && overlap) ck_abort_msg("items %u and %u overlap", i, j);
    }
  }
  ck_assert_uint_eq(top, height);
  ck_assert_uint_ge(height, bound);
}

START_TEST(nothing_overlaps) {
  for (int round = 0; round < 120; round++) {
    Arena arena;
    arena_init(&arena);
    PackItem items[120];
    uint32_t n = below(120), groups = below(5);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t first = below(60);
      items[i] = (PackItem){.size = 64 * below(20), .first = first, .last = first + below(30)};
      if (groups && below(3)) items[i].where = (uint64_t)(1 + below((1u << groups) - 1)) << 13;
    }
    uint64_t bound, height = pack_items(&arena, items, n, &bound);
    check_packing(items, n, height, bound);
    ck_assert_uint_eq(bound, largest_live(items, n));
    arena_free(&arena);
  }
}
END_TEST

/* Buffers of ranks that have nothing else in common lie over each other. */
START_TEST(groups_share) {
  Arena arena;
  arena_init(&arena);
  PackItem items[] = {{.size = 640, .first = 0, .last = 9, .where = 1},
                      {.size = 128, .first = 0, .last = 9, .where = 2},
                      {.size = 512, .first = 3, .last = 9, .where = 2},
                      {.size = 64, .first = 0, .last = 9},
                      {.size = 64, .first = 2, .last = 2, .where = 3}};
  uint64_t bound, height = pack_items(&arena, items, 5, &bound);
  check_packing(items, 5, height, bound);
  ck_assert_uint_eq(bound, 768);
  ck_assert_uint_eq(height, 768);
  arena_free(&arena);
}
END_TEST

/* Forward keeps activations, backward consumes them in reverse and makes gradients; `late`: the
 * optimizer runs after all gradients are there. */
static uint32_t training(PackItem *items, uint32_t layers, bool late) {
  uint32_t n = 0;
  for (uint32_t l = 0; l < layers; l++) {
    uint32_t f = 4 * l, b = 4 * (2 * layers - 1 - l);
    uint64_t act = 64 * (1 + below(60)), weight = 64 * 8 * (1 + below(40));
    for (uint32_t k = 0; k <= below(3); k++)
      items[n++] = (PackItem){.size = act * (1 + below(3)), .first = f + k, .last = b + 1};
    items[n++] = (PackItem){.size = 64 * (1 + below(100)), .first = f + 1, .last = f + 3};
    items[n++] = (PackItem){.size = act, .first = b, .last = b + 5};
    items[n++] = (PackItem){.size = 64 * (1 + below(100)), .first = b + 1, .last = b + 2};
    uint32_t end = late ? 8 * layers + 5 + l : b + 7;
    items[n++] = (PackItem){.size = weight, .first = b + 2, .last = end};
    items[n++] = (PackItem){.size = 64, .first = b + 2, .last = end};
  }
  return n;
}

/* The goal is 2 %; on the mean a packing is far nearer. */
START_TEST(near_the_bound) {
  double sum = 0;
  int count = 0;
  for (uint32_t layers = 2; layers <= 200; layers = layers * 2 + 1)
    for (int late = 0; late < 2; late++)
      for (int round = 0; round < 12; round++) {
        static PackItem items[4096];
        Arena arena;
        arena_init(&arena);
        uint32_t n = training(items, layers, late);
        uint64_t bound, height = pack_items(&arena, items, n, &bound);
        check_packing(items, n, height, bound);
        double ratio = (double)height / (double)bound;
        ck_assert_msg(ratio <= 1.02, "%u layers: %.4f", layers, ratio);
        sum += ratio;
        count++;
        arena_free(&arena);
      }
  ck_assert_double_le(sum / count, 1.002);
}
END_TEST

START_TEST(equal_input_equal_output) {
  PackItem a[200], b[200];
  Arena arena;
  arena_init(&arena);
  uint32_t n = training(a, 20, true);
  memcpy(b, a, sizeof a);
  uint64_t bound;
  pack_items(&arena, a, n, &bound);
  pack_items(&arena, b, n, &bound);
  for (uint32_t i = 0; i < n; i++) ck_assert_uint_eq(a[i].offset, b[i].offset);
  arena_free(&arena);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("pack");
  TCase *tc = tcase_create("pack");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, nothing_overlaps);
  tcase_add_test(tc, groups_share);
  tcase_add_test(tc, near_the_bound);
  tcase_add_test(tc, equal_input_equal_output);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
