/* Groups that are alike are lowered once (compiler/fuse/reuse.c): the same program comes out when
 * each is lowered by itself. Where a group's description leaves out something that lowering looks
 * at, two groups that differ in it share their calls, and a program computes something else.
 *
 * Programs: those of programs/, the samples, and random ones, each on several meshes.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "fuse/fuse.h"
#include "place/expand.h"
#include "random_program.h"
#include "reference/compile.h"
#include "spmd/spmd.h"
#include "support/suite.h"

enum { RANDOM_PROGRAMS = 60 };

typedef struct Tally {
  uint32_t graphs, calls;
} Tally;

/* The syms of a call, its buffers and its dims, which the text of a fused program leaves out. */
static void print_calls(StrBuf *out, const FusedProgram *p) {
  for (uint32_t i = 0; i < p->groups.len; i++) {
    const Group *g = &p->groups.data[i];
    if (g->kind != GROUP_KERNEL) continue;
    const Kernel *k = p->kernels->kernels.data[g->kernel];
    strbuf_printf(out, "%u: kernel %u tasks %u work %u ints", i, g->kernel, g->tasks, g->work);
    for (uint32_t j = 0; j < k->nints; j++) strbuf_printf(out, " %u", g->ints[j]);
    strbuf_puts(out, " buffers");
    for (uint32_t j = 0; j < k->nbufs; j++)
      strbuf_printf(out, " %u", p->values.data[g->bufs[j]].value);
    strbuf_putc(out, '\n');
  }
}

/* Temporaries ("t12") are numbered as groups are lowered: here, as they appear. */
static const char *renumbered(Arena *arena, const char *text) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  IdMap seen = {0};
  uint32_t n = 0, number;
  for (const char *p = text; *p;) {
    char *end = NULL;
    bool is_temporary = p[0] == ' ' && p[1] == 't' && p[2] >= '0' && p[2] <= '9';
    uint64_t id = is_temporary ? strtoull(p + 2, &end, 10) : 0;
    if (!is_temporary) {
      strbuf_putc(&sb, *p++);
      continue;
    }
    if (!id_map_get(&seen, id, &number)) id_map_put(arena, &seen, id, number = ++n);
    strbuf_printf(&sb, " t%u", number);
    p = end;
  }
  return sb.text;
}

static const char *fused_text(Arena *arena, const Program *program, bool apart, Tally *t) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  KernelSet kernels = {0};
  FuseOptions options = {.enabled = true, .apart = apart};
  for (int b = 0; b < BLOCK_COUNT; b++) {
    if (!program->block[b].graph) continue;
    const FusedProgram *p = fuse_run(arena, program->block[b].graph, &kernels, &options);
    fuse_print(&sb, p);
    print_calls(&sb, p);
    t->graphs++;
    for (uint32_t i = 0; i < p->groups.len; i++) t->calls += p->groups.data[i].kind == GROUP_KERNEL;
  }
  for (uint32_t k = 0; k < kernels.kernels.len; k++) kernel_print(&sb, kernels.kernels.data[k]);
  return renumbered(arena, sb.text);
}

/* The first line in which two texts differ, of both. */
static const char *difference(Arena *arena, const char *a, const char *b) {
  size_t line = 0;
  for (size_t i = 0; a[i] && a[i] == b[i]; i++)
    if (a[i] == '\n') line = i + 1;
  return arena_printf(arena, "%.*s\n%.*s", (int)strcspn(a + line, "\n"), a + line,
                      (int)strcspn(b + line, "\n"), b + line);
}

/* False where the program is not legal on the mesh. */
static bool check(const char *name, const char *text, const char *mesh, Tally *t) {
  Compiled c;
  compile_text(&c, text, mesh, NULL);
  PlanCache *plans = plan_cache_new(&c.arena);
  bool legal = c.sink.errors == 0 && compute_run(c.program, &c.sink);
  if (legal) expand_run(c.program);
  legal = legal && autodiff_run(c.program, plans, &c.sink);
  if (legal) {
    const char *fault = spmd_run(c.program, plans);
    ck_assert_msg(!fault, "%s on %s: %s", name, mesh, fault);
    Tally apart = {0};
    const char *want = fused_text(&c.arena, c.program, true, &apart);
    const char *got = fused_text(&c.arena, c.program, false, t);
    ck_assert_msg(strcmp(want, got) == 0, "%s on %s: lowered apart, then with what is alike\n%s",
                  name, mesh, difference(&c.arena, want, got));
  }
  compile_free(&c);
  return legal;
}

static const char *read_file(Arena *arena, const char *path) {
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "%s", path);
  StrBuf sb;
  strbuf_init(&sb, arena);
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, f));) strbuf_put_n(&sb, block, n);
  fclose(f);
  return sb.text;
}

START_TEST(programs) {
  static const char *const files[] = {
      "programs/lm.dtm",         "programs/mlp_relu.dtm",
      "programs/mlp_smooth.dtm", "programs/parallel.dtm",
      "programs/stages.dtm",     "programs/meshes.dtm",
      "../bench/stack.dtm",      "../../samples/fashion_mlp/fashion_mlp.dtm"};
  static const char *const meshes[] = {"",          "dp=2",      "tp=3",    "dp=2,tp=2",
                                       "dp=3,tp=2", "pp=2,tp=2", "a=2,b=3", "dp=2,sp=2,tp=2"};
  Tally t = {0};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    Arena arena;
    arena_init(&arena);
    const char *text = read_file(&arena, files[i]);
    int legal = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
      legal += check(files[i], text, meshes[m], &t);
    ck_assert_msg(legal >= 2, "%s is legal on %d meshes", files[i], legal);
    arena_free(&arena);
  }
  ck_assert_uint_gt(t.calls, 20 * t.graphs);
}
END_TEST

START_TEST(random_programs) {
  Tally t = {0};
  for (uint64_t number = 0; number < RANDOM_PROGRAMS; number++) {
    Arena arena;
    arena_init(&arena);
    RandomProgram p = random_program(&arena, 11, number, (RandomOptions){0});
    const char *name = arena_printf(&arena, "random program 11 %d", (int)number);
    const char *mesh = arena_printf(&arena, "%s=2", p.axes[0]);
    if (p.naxes > 1)
      mesh = arena_printf(&arena, "%s,%s=%d", mesh, p.axes[1], 2 + (int)(number % 2));
    check(name, p.text, "", &t);
    check(name, p.text, mesh, &t);
    arena_free(&arena);
  }
  ck_assert_uint_gt(t.graphs, RANDOM_PROGRAMS);
}
END_TEST

int main(void) {
  TCase *c = tcase_create("alike");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, programs);
  tcase_add_test(c, random_programs);
  Suite *s = suite_create("groups that are alike");
  suite_add_tcase(s, c);
  return suite_run(s);
}
