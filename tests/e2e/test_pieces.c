/* What keeping parameters in pieces costs, read off the plan: collectives against the schedules of
 * ZeRO 1 to 3 and FSDP, what is begun ahead, and the memory of that.
 *
 * A bucket is one action of the plan, so a layer of four parameters counts once. That the numbers
 * are right is shown by test_store and test_meshes.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "support/work.h"

static const char tower[] =
    "import nn\n"
    "mesh world(dp = 1, tp = 1)\n"
    "config { level = 0 layers = 3 again = false half = false parts = 1 batches = 1 }\n"
    "module Net() {\n  blocks = [nn.MLP(8, 24) for i in range(layers)]\n  forward(x) {\n"
    "    let h = x\n    for i in range(layers) {\n"
    "      if again { h = h + recompute blocks[i](h) } else { h = h + blocks[i](h) }\n    }\n"
    "    return h\n  }\n}\n"
    "train {\n  if level == 1 { store optimizer @dp }\n  if level == 2 { store gradients @dp }\n"
    "  if level == 3 { store @dp }\n  if half { compute bf16 }\n  data x = npy(\"x.npy\", "
    "f32[12@dp, 8])\n  model m = Net()\n"
    "  loss mean(square(m(x)))\n  optimizer adamw(lr = 0.01)\n  microbatches parts\n"
    "  accumulate batches\n  steps 4\n}\n";

static char text[1 << 20];

/* Compiles as far as the plan, into `text`; the part that is about training. */
static char *plan(int level, int nlayers, const char *options) {
  int code = work_run(text, sizeof text, "%s tower.dtm -D level=%d -D layers=%d %s --emit=plan",
                      getenv("DTMC"), level, nlayers, options);
  ck_assert_msg(code == 0, "level %d %s: exit %d\n%s", level, options, code, text);
  char *train = strstr(text, "\nblock train:");
  ck_assert_ptr_nonnull(train);
  return train;
}

/* Bytes above the variables that the block needs. */
static long height_of(const char *block) {
  const char *height = strstr(block, "per batch; ");
  ck_assert_ptr_nonnull(height);
  return atol(height + strlen("per batch; "));
}

/* --- collectives ---------------------------------------------------------------------------------
 */

/* All-gathers over dp in the forward pass, again in the backward pass, of new parameters;
 * reduce-scatters in the backward pass, once per step. Per batch, but the third and the last. */
enum { GATHERS, AGAIN, UPDATES, SCATTERS, ONCE, KINDS };
static const char *const kinds[KINDS] = {"gathers", "gathers again", "gathers of new values",
                                         "reduce-scatters", "reduce-scatters once"};

typedef struct Stored {
  int level;
  const char *options;
  int layer[KINDS], step[KINDS]; /* of one layer; of a step, whatever the number of layers */
} Stored;

/* With micro-batches what depends on no data runs once per batch, so nothing is gathered again, and
 * sums of gradients are reduced behind the last part. */
static const Stored stored[] = {
    {0, "--mesh dp=2", {0}, {0}},
    {1, "--mesh dp=2", {0}, {[UPDATES] = 1, [ONCE] = 1}},
    {2, "--mesh dp=2", {[GATHERS] = 1, [SCATTERS] = 1}, {0}},
    {3, "--mesh dp=2", {[GATHERS] = 1, [AGAIN] = 1, [SCATTERS] = 1}, {0}},
    {1, "--mesh dp=2,tp=2", {0}, {[UPDATES] = 1, [ONCE] = 1}},
    {2, "--mesh dp=2,tp=2", {[GATHERS] = 1, [SCATTERS] = 1}, {0}},
    {3, "--mesh dp=2,tp=2", {[GATHERS] = 1, [AGAIN] = 1, [SCATTERS] = 1}, {0}},
    {2, "--mesh dp=2 -D again=true", {[GATHERS] = 1, [SCATTERS] = 1}, {0}},
    {3, "--mesh dp=2 -D again=true", {[GATHERS] = 1, [AGAIN] = 1, [SCATTERS] = 1}, {0}},
    {1, "--mesh dp=2 -D batches=3", {0}, {[UPDATES] = 1, [ONCE] = 1}},
    {2, "--mesh dp=2 -D batches=3", {[GATHERS] = 1, [SCATTERS] = 1}, {0}},
    {3, "--mesh dp=2 -D batches=3", {[GATHERS] = 1, [AGAIN] = 1, [SCATTERS] = 1}, {0}},
    {1, "--mesh dp=2 -D parts=3", {0}, {[UPDATES] = 1, [ONCE] = 1}},
    {2, "--mesh dp=2 -D parts=3", {[GATHERS] = 1, [ONCE] = 1}, {0}},
    {3, "--mesh dp=2 -D parts=3 -D again=true", {[GATHERS] = 1, [ONCE] = 1}, {0}},
};

static void count(const Stored *s, int nlayers, int *had) {
  memset(had, 0, sizeof(int) * KINDS);
  char *train = plan(s->level, nlayers, s->options);
  for (char *line = strtok(train, "\n"); line; line = strtok(NULL, "\n")) {
    bool pull = strstr(line, " pull ") != NULL, scatter = strstr(line, " scatter ") != NULL;
    if (!strstr(line, " over dp ")) continue;
    had[GATHERS] += pull && strstr(line, " forward ");
    had[AGAIN] += pull && strstr(line, " recompute ");
    had[UPDATES] += pull && strstr(line, " optimizer ");
    had[SCATTERS] += scatter && strstr(line, " backward ");
    had[ONCE] += scatter && strstr(line, " reduce ");
  }
}

START_TEST(collectives) {
  const Stored *s = &stored[_i];
  int few[KINDS], many[KINDS];
  count(s, 3, few);
  count(s, 5, many);
  for (int k = 0; k < KINDS; k++)
    ck_assert_msg(few[k] == s->step[k] + 3 * s->layer[k] && many[k] == s->step[k] + 5 * s->layer[k],
                  "level %d %s: %d %s with three layers, %d with five; by hand %d and %d a layer",
                  s->level, s->options, few[k], kinds[k], many[k], s->step[k], s->layer[k]);
}
END_TEST

/* --- what is begun ahead -------------------------------------------------------------------------
 */

typedef struct Range {
  long from, to;
} Range;

typedef struct Flight {
  char name[64];
  bool scatter;
  int nbuffers;
  Range read[8], written[8]; /* by the second half */
} Flight;

/* The next buffer of a line, ">0x40 f32[8, 24@tp]": where it begins, and where it ends at least. */
static const char *next_buffer(const char *at, Range *r, bool *written) {
  at = strstr(at, "0x");
  const char *dims = at ? strchr(at, '[') : NULL;
  if (!dims) return NULL;
  *written = at[-1] == '>';
  r->from = strtol(at, NULL, 16);
  long count = strncmp(dims - 4, "bf16", 4) == 0 ? 2 : 4;
  bool cut = false;
  for (; *dims && *dims != ']'; dims++) {
    cut |= *dims == '@';
    if (dims[0] == '[' || dims[0] == ' ') count *= strtol(dims + 1, NULL, 10);
  }
  r->to = r->from + (cut ? 1 : count);
  return dims;
}

static bool overlap(const Range *a, const Range *b) {
  return a->from < b->to && b->from < a->to;
}

/* Between the two halves of a collective nobody touches what it writes, or writes what it reads. */
static void check_memory(const Flight *f, const char *line) {
  Range r;
  bool written;
  for (const char *at = line; (at = next_buffer(at, &r, &written)) != NULL;)
    for (int i = 0; i < f->nbuffers; i++)
      ck_assert_msg(!overlap(&r, &f->written[i]) && !(written && overlap(&r, &f->read[i])),
                    "%s is under way from %lx to %lx\n%s", f->name, f->read[i].from,
                    f->written[i].from, line);
}

static void begin(Flight *f, const char *name, const char *line) {
  Range r[16];
  int n = 0;
  bool written;
  memset(f, 0, sizeof *f);
  snprintf(f->name, sizeof f->name, "%s", name);
  f->scatter = strncmp(name, "reduce_scatter", 14) == 0;
  for (const char *at = line; n < 16 && (at = next_buffer(at, &r[n], &written)) != NULL;) n++;
  ck_assert_msg(n >= 2 && n % 2 == 0, "%d buffers: %s", n, line);
  for (; f->nbuffers < n / 2; f->nbuffers++) {
    f->read[f->nbuffers] = r[2 * f->nbuffers];
    f->written[f->nbuffers] = r[2 * f->nbuffers + 1];
  }
}

/* Of all layers but the first, gathers are begun before the products of the block before; all
 * reduce-scatters but the last are over behind those of the next. At most one of each is under way.
 */
static void check_flights(int level, const char *options) {
  Flight under_way[8];
  int n = 0, products[8] = {0}, overlapped = 0, alone = 0;
  char *train = plan(level, 4, options);
  for (char *line = strtok(train, "\n"); line; line = strtok(NULL, "\n")) {
    char kind[16], name[64];
    if (sscanf(line, "%*d %*s %15s %63[^/]", kind, name) != 2) continue;
    for (int i = 0; i < n && strcmp(kind, "matmul") == 0; i++) products[i]++;
    if (strcmp(kind, "start") == 0) {
      bool scatter = strncmp(name, "reduce_scatter", 14) == 0;
      for (int i = 0; i < n; i++)
        ck_assert_msg(under_way[i].scatter != scatter, "level %d %s: two under way\n%s", level,
                      options, line);
      products[n] = 0;
      begin(&under_way[n++], name, line);
      continue;
    }
    for (int i = 0; i < n; i++)
      if (strcmp(under_way[i].name, name) != 0) check_memory(&under_way[i], line);
    if (!strstr(line, " over dp ") || (strcmp(kind, "pull") != 0 && strcmp(kind, "scatter") != 0))
      continue;
    int at = 0;
    while (at < n && strcmp(under_way[at].name, name) != 0) at++;
    overlapped += at < n && products[at] > 0;
    alone += at == n || products[at] == 0;
    if (at == n) continue;
    under_way[at] = under_way[--n];
    products[at] = products[n];
  }
  ck_assert_int_eq(n, 0);
  /* the first gather of a batch, that of the last layer again, the last reduce-scatter */
  ck_assert_msg(alone == level && overlapped == (level == 3 ? 9 : 6),
                "level %d %s: %d overlapped, %d not", level, options, overlapped, alone);
}

START_TEST(blocks_ahead) {
  check_flights(2, "--mesh dp=4");
  check_flights(3, "--mesh dp=4");
  check_flights(3, "--mesh dp=4 -D again=true -D batches=2");
  check_flights(3, "--mesh dp=2,tp=2");
  check_flights(3, "--mesh dp=2 -D half=true");
}
END_TEST

/* More memory than without is one block and its gradients, whatever the number of layers. Of what
 * parameters are at first only the pieces are made. */
START_TEST(two_blocks_are_whole_at_most) {
  const long block = 2 * ((2 * 8 * 24 + 8 + 24) * 4 + 4 * 64);
  long height[2][2];
  for (int many = 0; many < 2; many++)
    for (int ahead = 0; ahead < 2; ahead++) {
      const char *options =
          ahead ? "--mesh dp=4 -D again=true" : "--mesh dp=4 -D again=true --no-prefetch";
      height[many][ahead] = height_of(plan(3, many ? 16 : 4, options));
      ck_assert_int_eq(height_of(text), 0); /* init comes first */
    }
  for (int many = 0; many < 2; many++)
    ck_assert_msg(height[many][1] - height[many][0] <= block, "%ld bytes, not ahead %ld",
                  height[many][1], height[many][0]);
  /* activations between layers and pieces of gradients alone grow */
  const long grows = (12 * 8 / 4 * 4 + 64) + ((2 * 8 * 24 + 8 + 24) * 4 / 4 + 4 * 64);
  ck_assert_msg(height[1][1] - height[0][1] <= 12 * grows, "%ld bytes with 16 layers, %ld with 4",
                height[1][1], height[0][1]);
}
END_TEST

int main(void) {
  if (!work_begin()) return 2;
  work_write("tower.dtm", tower);
  TCase *t = tcase_create("pieces");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, collectives, 0, sizeof stored / sizeof *stored);
  tcase_add_test(t, blocks_ahead);
  tcase_add_test(t, two_blocks_are_whole_at_most);
  Suite *s = suite_create("pieces");
  suite_add_tcase(s, t);
  int failed = suite_run(s);
  return !work_end() || failed;
}
