/* What the table of layouts.h holds: every mesh of the six dims with sizes 1 to 3 and at most 8
 * ranks, and every two things that a user may ask for in one row. And what is refused, with the
 * reason that dtmc gives: samples on meshes that they do not fit, and what belongs to no pipeline.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e/layouts.h"
#include "support/suite.h"
#include "support/work.h"

static const char *const dims[] = {"dp", "pp", "ulysses_cp", "ring_cp", "tp", "ep"};
enum { NDIMS = sizeof dims / sizeof *dims, MOST_RANKS = 8 };

static const LayoutsModel *const parts[] = {layouts_llama, layouts_gpt2, layouts_mixed,
                                            layouts_experts};
enum { NPARTS = sizeof parts / sizeof *parts };

/* The size of a dim of a mesh as --mesh has it, 1 when it is not there. */
static int size_of(const char *mesh, const char *dim) {
  size_t n = strlen(dim);
  for (const char *at = mesh; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, dim, n) == 0 && at[n] == '=') return atoi(at + n + 1);
  return 1;
}

typedef bool Wanted(const LayoutsModel *m, const LayoutsRow *row, const void *what);

/* The number of rows of which this is true. */
static int rows_with(Wanted *wanted, const void *what) {
  int n = 0;
  for (int p = 0; p < NPARTS; p++)
    for (const LayoutsModel *m = parts[p]; m->name; m++)
      for (const LayoutsRow *row = m->rows; row < m->rows + LAYOUTS_ROWS && row->mesh; row++)
        n += wanted(m, row, what);
  return n;
}

static bool on_mesh(const LayoutsModel *m, const LayoutsRow *row, const void *what) {
  (void)m;
  const int *size = what;
  for (int d = 0; d < NDIMS; d++)
    if (size_of(row->mesh, dims[d]) != size[d]) return false;
  return true;
}

START_TEST(every_mesh) {
  int size[NDIMS], meshes = 0;
  for (int code = 1; code < 3 * 3 * 3 * 3 * 3 * 3; code++) {
    int ranks = 1;
    for (int d = 0, rest = code; d < NDIMS; d++, rest /= 3) ranks *= size[d] = rest % 3 + 1;
    if (ranks > MOST_RANKS) continue;
    meshes++;
    ck_assert_msg(rows_with(on_mesh, size) > 0,
                  "no row has dp=%d,pp=%d,ulysses_cp=%d,ring_cp=%d,"
                  "tp=%d,ep=%d",
                  size[0], size[1], size[2], size[3], size[4], size[5]);
  }
  ck_assert_int_eq(meshes, 77);
}
END_TEST

static bool says(const char *text, const char *word) {
  return text && strstr(text, word);
}

static const char *const features[] = {
    "dp",           "pp",      "ulysses_cp",      "ring_cp",           "tp",
    "ep",           "store @", "store gradients", "store optimizer",   "recompute",
    "microbatches", "bf16",    "tied head",       "sequence parallel", "zero_bubble",
};
enum { NFEATURES = sizeof features / sizeof *features };

static bool has(const LayoutsModel *m, const LayoutsRow *row, int feature) {
  const char *f = features[feature];
  if (feature < NDIMS) return size_of(row->mesh, f) > 1;
  if (strcmp(f, "recompute") == 0) return row->again;
  if (strcmp(f, "bf16") == 0) return row->half;
  if (strcmp(f, "tied head") == 0)
    return says(m->flags, "tied=true") || strstr(m->source, "gpt2") != NULL;
  if (strcmp(f, "sequence parallel") == 0)
    return says(m->edits[0].to, "ulysses_cp, tp)") && size_of(row->mesh, "tp") > 1;
  if (strcmp(f, "microbatches") == 0 && says(row->flags, "microbatches=1 ")) return false;
  return says(row->train, f) || says(row->flags, f);
}

static bool both(const LayoutsModel *m, const LayoutsRow *row, const void *what) {
  const int *pair = what;
  return has(m, row, pair[0]) && has(m, row, pair[1]);
}

/* Of what is kept in pieces a row says one thing; Mixtral's head is not tied, its activations are
 * not cut over tp, and it is not compared in bf16. */
static bool excepted(int a, int b) {
  bool store = strncmp(features[a], "store", 5) == 0 && strncmp(features[b], "store", 5) == 0;
  bool experts = strcmp(features[a], "ep") == 0 &&
                 (strcmp(features[b], "bf16") == 0 || strcmp(features[b], "tied head") == 0 ||
                  strcmp(features[b], "sequence parallel") == 0);
  return store || experts;
}

START_TEST(every_pair) {
  static char missing[4096];
  size_t n = 0;
  for (int a = 0; a < NFEATURES; a++)
    for (int b = a + 1; b < NFEATURES; b++)
      if (!excepted(a, b) && rows_with(both, (int[]){a, b}) == 0)
        n += (size_t)snprintf(missing + n, sizeof missing - n, "no row has %s and %s\n",
                              features[a], features[b]);
  ck_assert_msg(n == 0, "%s", missing);
}
END_TEST

START_TEST(refused) {
  layouts_refuse(&layouts_refused[_i]);
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  int nrefused = 0;
  while (layouts_refused[nrefused].source) nrefused++;
  Suite *suite = suite_create("layouts_table");
  TCase *t = tcase_create("layouts_table");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, every_mesh);
  tcase_add_test(t, every_pair);
  tcase_add_loop_test(t, refused, 0, nrefused);
  suite_add_tcase(suite, t);
  int failed = suite_run(suite);
  return work_end() ? failed : 2;
}
