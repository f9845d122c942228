/* The drawings of `explain tensor` against the blocks themselves: what a cell says about a part is
 * what the ranks hold, by type_block alone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "report/cut.h"
#include "support/suite.h"

static Arena arena;

static const Mesh meshes[] = {
    {.name = "one", .naxes = 1, .axis = {"a"}, .size = {3}, .nranks = 3},
    {.name = "two", .naxes = 2, .axis = {"a", "b"}, .size = {2, 3}, .nranks = 6},
    {.name = "three", .naxes = 3, .axis = {"a", "b", "c"}, .size = {2, 2, 3}, .nranks = 12},
};
enum { MESHES = sizeof meshes / sizeof *meshes, TRIES = 400 };

static TensorType random_type(unsigned *seed) {
  TensorType t = {
      .dtype = DT_F32, .rank = (uint32_t)rand_r(seed) % 4, .mesh = &meshes[rand_r(seed) % MESHES]};
  for (uint32_t d = 0; d < t.rank; d++) t.shape[d] = rand_r(seed) % 9;
  uint32_t first = (uint32_t)rand_r(seed); /* axes come in any order */
  for (uint32_t i = 0; i < t.mesh->naxes; i++) {
    uint32_t a = (first + i) % t.mesh->naxes;
    switch (rand_r(seed) % 4) {
    case 0:
      break;
    case 1:
      layout_set(&t.layout, t.mesh, a, PLACE_PARTIAL, 0, REDUCE_SUM);
      break;
    default:
      if (t.rank)
        layout_set(&t.layout, t.mesh, a, PLACE_SHARD, (uint32_t)rand_r(seed) % t.rank, REDUCE_NONE);
    }
  }
  return t;
}

/* Marks the ranks in "0-2,5", "0+1, 4+5". */
static void read_ranks(const char *text, bool *held) {
  while (*text) {
    char *end;
    long first = strtol(text, &end, 10), last = first;
    ck_assert_msg(end > text, "%s", text);
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long r = first; r <= last; r++) {
      ck_assert_msg(!held[r], "rank %ld stands twice in %s", r, text);
      held[r] = true;
    }
    text = end + strspn(end, "+, ");
  }
}

static bool holds(const Block *b, int dim, const CutSlice *s) {
  return dim < 0 || (b->offset[dim] == s->begin && b->extent[dim] == s->length);
}

/* A rank is named by the cells that show its block, and by no other. Empty blocks all lie at the
 * end of a dim, so that several cells may show the same: there each rank stands in exactly one. */
START_TEST(cells_name_their_ranks) {
  unsigned seed = 7 + (unsigned)_i;
  TensorType t = random_type(&seed);
  Cut c = cut_of(&t);
  CutStrip rows = cut_strip(&arena, &c, c.row, 1000), cols = cut_strip(&arena, &c, c.col, 1000);
  const char *type = type_print(&arena, &t);
  int named[12] = {0};
  for (uint32_t r = 0; r < rows.len; r++)
    for (uint32_t k = 0; k < cols.len; k++) {
      bool held[12] = {false};
      read_ranks(cut_holders_print(&arena, &c, &rows, r, &cols, k, 1000), held);
      for (int64_t p = 0; p < t.mesh->nranks; p++) {
        int64_t coord[DTM_MAX_AXES];
        mesh_coords(t.mesh, p, coord);
        Block b = type_block(&t, coord);
        bool shows = holds(&b, c.row, &rows.slice[r]) && holds(&b, c.col, &cols.slice[k]);
        bool empty = false;
        for (uint32_t d = 0; d < t.rank; d++) {
          empty |= b.extent[d] == 0;
          if ((int)d != c.row && (int)d != c.col) shows &= b.offset[d] == 0;
        }
        named[p] += held[p];
        if (empty)
          ck_assert_msg(!held[p] || shows || t.rank > 2, "%s: rank %d", type, (int)p);
        else
          ck_assert_msg(held[p] == shows, "%s: rank %d in cell %u, %u", type, (int)p, r, k);
      }
    }
  for (int64_t p = 0; p < t.mesh->nranks; p++)
    ck_assert_msg(named[p] == 1 || (named[p] == 0 && t.rank > 2), "%s: rank %d", type, (int)p);
}
END_TEST

/* The parts of a dim lie side by side and make up the whole. */
START_TEST(parts_tile_the_dim) {
  unsigned seed = 7 + (unsigned)_i;
  TensorType t = random_type(&seed);
  Cut c = cut_of(&t);
  for (int d = 0; d < (int)t.rank; d++) {
    CutStrip s = cut_strip(&arena, &c, d, 1000);
    int64_t next = 0;
    for (uint32_t i = 0; i < s.len; i++) {
      if (!s.slice[i].length) continue;
      ck_assert_int_eq(s.slice[i].begin, next);
      next += s.slice[i].length;
    }
    ck_assert_int_eq(next, t.shape[d]);
  }
}
END_TEST

/* Owners are copy 0, and every rank's bytes count once. */
START_TEST(table_counts_every_rank) {
  unsigned seed = 7 + (unsigned)_i;
  TensorType t = random_type(&seed);
  Cut c = cut_of(&t);
  CutTable table = cut_table(&arena, &c);
  ck_assert_int_eq(table.rows.len, t.mesh->nranks);
  int64_t total = 0, distinct = 0;
  for (uint32_t i = 0; i < table.rows.len; i++) {
    const CutRank *r = &table.rows.data[i].first;
    CutRank owner = cut_rank(&c, r->owner);
    ck_assert_int_eq(owner.copy, 0);
    ck_assert_int_eq(owner.addend, r->addend);
    ck_assert_int_eq(memcmp(owner.offset, r->offset, sizeof r->offset), 0);
    total += r->bytes;
    if (r->copy == 0 && r->addend == 0) distinct += r->bytes;
  }
  ck_assert_int_eq(total, table.total);
  ck_assert_int_eq(distinct, type_elements(&t) * 4);
}
END_TEST

/* Columns of one line of a drawing. */
static uint32_t columns(const char *s, size_t n) {
  uint32_t c = 0;
  for (size_t i = 0; i < n; i++) c += ((unsigned char)s[i] & 0xc0) != 0x80;
  return c;
}

/* Whatever the width, all lines of the box are equally long and fit. */
START_TEST(drawings_fit) {
  unsigned seed = 7 + (unsigned)_i;
  TensorType t = random_type(&seed);
  TensorReport r = {.name = "x", .what = "value", .type = &t, .mesh = "mesh"};
  static const uint32_t widths[] = {40, 80, 120};
  for (int w = 0; w < 3; w++) {
    StrBuf sb;
    strbuf_init(&sb, &arena);
    report_text(&arena, &sb, &r, widths[w], false);
    uint32_t box = 0;
    for (const char *line = sb.text; *line;) {
      size_t n = strcspn(line, "\n");
      uint32_t width = columns(line, n);
      bool edge =
          n > 3 && (memcmp(line + n - 3, "┐", 3) == 0 || memcmp(line + n - 3, "│", 3) == 0 ||
                    memcmp(line + n - 3, "┘", 3) == 0 || memcmp(line + n - 3, "┤", 3) == 0 ||
                    memcmp(line + n - 3, "╡", 3) == 0);
      if (edge && !box) box = width;
      if (edge)
        ck_assert_msg(width == box && width <= widths[w], "%s\n%s", type_print(&arena, &t),
                      sb.text);
      line += n + (line[n] == '\n');
    }
    ck_assert_uint_gt(box, 0);
  }
}
END_TEST

int main(void) {
  arena_init(&arena);
  Suite *s = suite_create("report");
  TCase *tc = tcase_create("cut");
  tcase_add_loop_test(tc, cells_name_their_ranks, 0, TRIES);
  tcase_add_loop_test(tc, parts_tile_the_dim, 0, TRIES);
  tcase_add_loop_test(tc, table_counts_every_rank, 0, TRIES);
  tcase_add_loop_test(tc, drawings_fit, 0, TRIES);
  suite_add_tcase(s, tc);
  return suite_run_unforked(s);
}
