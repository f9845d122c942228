/* The text form of programs, the verifier and the rewriting utilities. */
#include <check.h>

#include "ir/rewrite.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/suite.h"

/* Every construct of the text form once. */
static const char sample[] =
    "program \"a.dtm\" seed 18446744073709551615\n"
    "world mesh \"world\" (dp = 2, tp = 2, pp = 1)\n"
    "mesh \"half\\\"\" (tp = 2, * = 1) ranks [3, 1]\n"
    "var 0 param \"l.0.w\": f32[8, 4@(tp,dp)] foreign \"h.w\" transposed chunks 3  // a.dtm:3:7\n"
    "var 1 optimizer \"l.0.w.m\": f32[8, 4@(tp,dp)] of 0\n"
    "var 2 param \"b\": f32[8] partial(tp)  // a.dtm:4:7\n"
    "\n"
    "block init\n"
    "graph init {\n"
    "  %1: f32[8, 4@(tp,dp)] = randn() {type = f32[8, 4@(tp,dp)], instance = 1}\n"
    "  assign(%1) {var = 0 \"l.0.w\"}\n"
    "}\n"
    "\n"
    "block train\n"
    "settings steps 10 epochs 0 shuffle 1 drop_last 1 accumulate 1 microbatches 1 compute f32 "
    "reduce_dtype none seed 0 eval_every 0 save_every 5 schedule \"1f1b\" save \"out \\\\ x\"\n"
    "data \"tokens\" \"npy\" \"t.npy\": i32[8@dp] stored i32 below 10 scale 0.00392156862745098 "
    "part 0.25 0.5  "
    "// a.dtm:7:3\n"
    "optimizer adamw lr %3 momentum 0 beta1 0.9 beta2 0.999 eps 1e-08 decay 0.1 clip 1 nesterov 0  "
    "// a.dtm:9:3\n"
    "loss %7\n"
    "graph train {\n"
    "  scope 1 in 0 \"l\" \"module List\"  // a.dtm:20:3\n"
    "  scope 2 in 1 \"l.0\" \"module MLP\"\n"
    "  %1 w: f32[8, 4@(tp,dp)] = read() {var = 0 \"l.0.w\"}                      "
    "// a.dtm:3:7  #2 l.0\n"
    "  %2: f32[8] partial(tp) = read() {var = 2 \"b\"}                           //  #2 l.0\n"
    "  %3: f32[] = const() {dtype = f32, value = -inf}\n"
    "  %4: f32[4, 2] partial(tp: max) on \"half\\\"\" = full() {type = f32[4, 2] partial(tp: max) "
    "on "
    "\"half\\\"\", value = 0.1}\n"
    "  %5 v: f32[4, 1] on \"half\\\"\", %6 i: i64[4, 1] on \"half\\\"\" poisoned = topk(%4) {dim = "
    "-1, "
    "k = 1}\n"
    "  backward:\n"
    "  %7: f32[] = sum(%1) {dims = [0, 1], keepdim = false}\n"
    "  output(%7) {name = \"loss\", role = \"loss\"}\n"
    "  forward:\n"
    "  %8: f32[4@dp, 8] = permute(%1) {dims = []}\n"
    "}\n";

typedef struct World {
  Arena arena;
  Interner names;
  Sources sources;
  Program *program;
} World;

static void world_init(World *w, const char *text) {
  arena_init(&w->arena);
  interner_init(&w->names, &w->arena);
  sources_init(&w->sources, &w->arena);
  const char *error = NULL;
  w->program = program_parse(&w->arena, &w->names, &w->sources, text, &error);
  ck_assert_msg(w->program != NULL, "%s", error);
}

static const char *printed(World *w) {
  StrBuf sb;
  strbuf_init(&sb, &w->arena);
  program_print(&sb, w->program);
  return sb.text;
}

START_TEST(text_survives) {
  World w;
  world_init(&w, sample);
  ck_assert_str_eq(printed(&w), sample);
  arena_free(&w.arena);
}
END_TEST

START_TEST(faults_name_their_line) {
  static const struct {
    const char *from, *to, *error;
  } faults[] = {
      {"read() {var = 0", "reed() {var = 0", "line 22: unknown operator 'reed'"},
      {"sum(%1)", "sum(%9)", "line 28: value is not defined before this line"},
      {"[4@dp, 8] =", "[4@xx, 8] =", "line 31: unknown mesh dim"},
      {"k = 1}", "k = 1", "line 26: expected '}'"},
      {"%8: f32", "%9: f32", "line 31: value ids must count up"},
      {"ranks [3, 1]", "ranks [3, 3]", "line 3: the rank list must name different ranks"},
      {"ranks [3, 1]", "ranks [3, 4]", "line 3: the rank list must name different ranks"},
      {"(tp = 2, * = 1) ranks [3, 1]", "(tp = 5)", "line 3: a mesh has more ranks"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Arena arena;
    arena_init(&arena);
    Interner names;
    interner_init(&names, &arena);
    Sources sources;
    sources_init(&sources, &arena);
    const char *at = strstr(sample, faults[i].from), *error = NULL;
    const char *text = arena_printf(&arena, "%.*s%s%s", (int)(at - sample), sample, faults[i].to,
                                    at + strlen(faults[i].from));
    ck_assert_ptr_null(program_parse(&arena, &names, &sources, text, &error));
    ck_assert_msg(strncmp(error, faults[i].error, strlen(faults[i].error)) == 0, "%s", error);
    arena_free(&arena);
  }
}
END_TEST

/* Whatever one or two bytes become, the parser answers; what it accepts, the verifier survives. */
START_TEST(damage_is_survived) {
  enum { ROUNDS = 4000 };
  uint64_t random = 1;
  for (int i = 0; i < ROUNDS; i++) {
    Arena arena;
    arena_init(&arena);
    Interner names;
    interner_init(&names, &arena);
    Sources sources;
    sources_init(&sources, &arena);
    char *text = arena_strdup(&arena, sample);
    for (int k = 0; k < 1 + i % 2; k++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      static const char bytes[] = "0129-%@(){}[]=\":, \n\\abx.#/";
      text[(random >> 20) % (sizeof sample - 1)] = bytes[(random >> 50) % (sizeof bytes - 1)];
    }
    const char *error = NULL;
    Program *p = program_parse(&arena, &names, &sources, text, &error);
    ck_assert(p != NULL || error != NULL);
    if (p) verify_program(&arena, p, GRAPH_GRAD, "test", NULL);
    arena_free(&arena);
  }
}
END_TEST

#define HEAD                                                                                       \
  "program \"a.dtm\" seed 0\nworld mesh \"world\" (dp = 2, tp = 2)\n"                              \
  "var 0 param \"w\": f32[4]\n\nblock train\n"                                                     \
  "settings steps 1 epochs 0 shuffle 0 drop_last 0 accumulate 1 microbatches 1 compute f32 "       \
  "reduce_dtype f32 seed 0 eval_every 0 save_every 0\ngraph train {\n"

START_TEST(verifier_catches) {
  static const struct {
    const char *body;
    GraphStage stage;
    const char *fault;
  } cases[] = {
      {"  %1: f32[4] = read() {var = 0}\n", GRAPH_LOCAL, NULL},
      {"  %1: f32[4] = read() {var = 1}\n", GRAPH_LOCAL, "no such variable"},
      {"  %1: f32[5] = read() {var = 0}\n", GRAPH_LOCAL, "differs from that of variable 'w'"},
      {"  %1: f32[4] = read() {var = 0}\n  %2: f32[4] = add(%1)\n", GRAPH_EXPLICIT, "1 operands"},
      {"  %1: f32[4] = read() {var = 0, dim = 2}\n", GRAPH_EXPLICIT, "no attribute 'dim'"},
      {"  %1: f32[4] = full() {value = 0.0}\n", GRAPH_EXPLICIT, "full without 'type'"},
      {"  %1: f32[4] = read() {var = 0}\n  %2: f32[4@dp] = redistribute(%1) {type = f32[4@dp]}\n",
       GRAPH_LOCAL, "redistribute in stage local"},
      {"  %1: f32[4] = read() {var = 0}\n  %2: f32[4@dp] = shard_slice(%1) {type = f32[4@dp]}\n",
       GRAPH_GRAD, "a collective before stage local"},
      {"  %1: f32[4] = read() {var = 0}\n  %2: f32[4@dp] = redistribute(%1) {type = f32[4]}\n",
       GRAPH_GRAD, "differs from attribute 'type'"},
      {"  %1: f32[4] poisoned = read() {var = 0}\n", GRAPH_EXPLICIT, "poisoned"},
      {"  backward:\n  %1: f32[4] = read() {var = 0}\n", GRAPH_EXPLICIT, "before stage grad"},
      {"  %1: f32[4] partial(dp, tp: max) = full() {type = f32[4] partial(dp, tp: max), value = "
       "0}\n",
       GRAPH_GRAD, "different reductions"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena arena;
    arena_init(&arena);
    World w;
    world_init(&w, arena_printf(&arena, "%s%s}\n", HEAD, cases[i].body));
    const char *fault = verify_program(&w.arena, w.program, cases[i].stage, "test", NULL);
    if (!cases[i].fault)
      ck_assert_msg(fault == NULL, "%s", fault);
    else
      ck_assert_msg(fault && strstr(fault, cases[i].fault), "case %zu: %s", i, fault);
    arena_free(&w.arena);
    arena_free(&arena);
  }
}
END_TEST

static const char *simplified(World *w, ValueId *keep) {
  Graph *g = w->program->block[BLOCK_TRAIN].graph;
  graph_simplify(&w->arena, g, keep, 1);
  StrBuf sb;
  strbuf_init(&sb, &w->arena);
  graph_print(&sb, w->program, g);
  return sb.text;
}

START_TEST(dead_nodes_go) {
  World w;
  world_init(&w, HEAD "  %1: f32[4] = read() {var = 0}\n"
                      "  %2: f32[4] = exp(%1)\n"
                      "  %3 y: f32[4] = neg(%1)\n"
                      "  %4: f32[4] = sin(%1)\n"
                      "  assign(%4) {var = 0}\n"
                      "}\n");
  ValueId keep = 3;
  ck_assert_str_eq(simplified(&w, &keep), "graph train {\n"
                                          "  %1: f32[4] = read() {var = 0 \"w\"}\n"
                                          "  %2 y: f32[4] = neg(%1)\n"
                                          "  %3: f32[4] = sin(%1)\n"
                                          "  assign(%3) {var = 0 \"w\"}\n"
                                          "}\n");
  ck_assert_uint_eq(keep, 2);
  arena_free(&w.arena);
}
END_TEST

START_TEST(equal_nodes_merge) {
  World w;
  world_init(&w, HEAD "  %1: f32[4] = read() {var = 0}\n"
                      "  %2: f32[4] = read() {var = 0}\n"
                      "  %3: f32[4] = exp(%1)\n"
                      "  %4: f32[4] = exp(%2)\n"
                      "  %5: f32[4] = dropout(%3) {p = 0.5, instance = 1}\n"
                      "  %6: f32[4] = dropout(%4) {p = 0.5, instance = 1}\n"
                      "  %7: f32[4] = add(%5, %6)\n"
                      "  assign(%7) {var = 0}\n"
                      "  backward:\n"
                      "  %8: f32[4] = read() {var = 0}\n"
                      "  %9: f32[4] = exp(%8)\n"
                      "  assign(%9) {var = 0}\n"
                      "}\n");
  ValueId keep = 4;
  ck_assert_str_eq(simplified(&w, &keep), "graph train {\n"
                                          "  %1: f32[4] = read() {var = 0 \"w\"}\n"
                                          "  %2: f32[4] = exp(%1)\n"
                                          "  %3: f32[4] = dropout(%2) {p = 0.5, instance = 1}\n"
                                          "  %4: f32[4] = dropout(%2) {p = 0.5, instance = 1}\n"
                                          "  %5: f32[4] = add(%3, %4)\n"
                                          "  assign(%5) {var = 0 \"w\"}\n"
                                          "  backward:\n"
                                          "  %6: f32[4] = read() {var = 0 \"w\"}\n"
                                          "  %7: f32[4] = exp(%6)\n"
                                          "  assign(%7) {var = 0 \"w\"}\n"
                                          "}\n");
  ck_assert_uint_eq(keep, 2);
  arena_free(&w.arena);
}
END_TEST

int main(void) {
  Suite *s = suite_create("ir");
  TCase *c = tcase_create("ir");
  tcase_add_test(c, text_survives);
  tcase_add_test(c, faults_name_their_line);
  tcase_add_test(c, damage_is_survived);
  tcase_add_test(c, verifier_catches);
  tcase_add_test(c, dead_nodes_go);
  tcase_add_test(c, equal_nodes_merge);
  suite_add_tcase(s, c);
  return suite_run(s);
}
