/* cross_entropy over sharded batches and vocabularies: the opened composite, run rank by rank on a
 * simulated mesh, gives what the operator gives on whole tensors.
 *
 * Reductions, label smoothing, class weights, ignored targets (all of them on one rank),
 * vocabularies that are uneven or smaller than the mesh, large logits and large gaps. Padding of a
 * short shard must never enter a maximum or a sum: empty and short shards are among the layouts.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"
#include "place/expand.h"
#include "reference/placements.h"
#include "reference/type_text.h"

enum { IGNORED = 1 };

typedef struct Case {
  const char *logits, *labels, *weights; /* types; weights may be NULL */
  const char *reduction;
  double smoothing, shift, gap; /* logits lie around `shift`; one of them `gap` above */
  int64_t ignore;               /* a label value, or -100 */
  int64_t first_ignored;        /* that many leading labels are ignored */
} Case;

typedef struct Inputs {
  RefTensor value[3];
} Inputs;

static RefTensor read_input(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Inputs *)user)->value[var];
}

static ValueId read_node(Graph *g, DiagSink *sink, const TensorType *t, uint32_t var) {
  Attr attrs[] = {ATTR_I(VAR, var), ATTR_T(TYPE, t)};
  NodeId n = infer_add(g, sink, OP_READ, NULL, 0, attrs, 2, (Span){0}, NULL, 0);
  return node_result(graph_node(g, n), 0);
}

static Inputs draw(Arena *arena, uint64_t *rng, const Case *c, const TensorType types[3]) {
  Inputs in;
  int64_t vocab = types[0].shape[types[0].rank - 1];
  for (int i = 0; i < 3; i++) in.value[i] = random_value(arena, rng, &types[i], i == 1 ? vocab : 0);
  for (int64_t i = 0, n = ref_count(&in.value[0]); i < n; i++) in.value[0].data[i] += c->shift;
  if (c->gap != 0) in.value[0].data[vocab / 2] += c->gap;
  for (int64_t i = 0; i < c->first_ignored; i++) in.value[1].data[i] = (double)c->ignore;
  for (int64_t i = 0, n = ref_count(&in.value[2]); i < n; i++)
    in.value[2].data[i] = 0.5 + fabs(in.value[2].data[i]);
  return in;
}

static void check_case(const Mesh *mesh, const Case *c) {
  Arena arena;
  Sources sources;
  DiagSink sink;
  Interner names;
  uint64_t rng = 3;
  arena_init(&arena);
  interner_init(&names, &arena);
  sources_init(&sources, &arena);
  diag_init(&sink, &arena, &sources);
  TensorType types[3] = {type_from_text(mesh, c->logits), type_from_text(mesh, c->labels)};
  types[2] = type_from_text(mesh, c->weights ? c->weights : "f32[1]");
  Inputs in = draw(&arena, &rng, c, types);
  Graph *g = graph_new(&arena, "train");
  ValueId operands[3];
  uint32_t n = c->weights ? 3 : 2;
  for (uint32_t i = 0; i < n; i++) operands[i] = read_node(g, &sink, &types[i], i);
  Attr attrs[] = {ATTR_S(REDUCTION, c->reduction), ATTR_F(LABEL_SMOOTHING, c->smoothing),
                  ATTR_I(IGNORE_INDEX, c->ignore)};
  NodeId id = infer_add(g, &sink, OP_CROSS_ENTROPY, operands, n, attrs, 3, (Span){0}, NULL, 0);
  ck_assert_msg(sink.errors == 0, "%s, %s has no row", c->logits, c->labels);
  Program program = {.arena = &arena,
                     .names = &names,
                     .sources = &sources,
                     .world = mesh,
                     .train = {.graph = g, .loss = node_result(graph_node(g, id), 0)}};
  RefContext ctx = {.arena = &arena};
  RefIO io = {.user = &in, .read = read_input};
  RefTensor want = ref_eval_graph(&ctx, &arena, g, &io)[program.train.loss];
  expand_run(&program);
  bool disagree = false;
  g = program.train.graph;
  RefTensor **ranks = ref_eval_mesh(&ctx, &arena, g, &io, &disagree);
  const TensorType *type = value_type(g, program.train.loss);
  RefTensor got = ref_assemble(&arena, type, ranks[program.train.loss], &disagree);
  ck_assert_msg(!disagree, "%s: replicas differ", c->logits);
  ck_assert_msg(ref_close(&got, &want, false), "%s, %s, %s: %g is not %g", c->logits, c->labels,
                c->reduction, ref_count(&got) ? got.data[0] : 0,
                ref_count(&want) ? want.data[0] : 0);
  ck_assert(ref_count(&want) == 0 || isfinite(want.data[0]));
  arena_free(&arena);
}

static void check_reductions(const Mesh *mesh, Case c) {
  static const char *const reductions[] = {"mean", "sum", "none"};
  for (int i = 0; i < 3; i++) {
    c.reduction = reductions[i];
    check_case(mesh, &c);
  }
}

START_TEST(large_logits) {
  Mesh mesh;
  mesh_of(&mesh, 1, (int64_t[]){4});
  check_reductions(&mesh, (Case){"f32[6, 10@x]", "i64[6]", NULL, NULL, 0, 50, 0, -100, 0});
  check_reductions(&mesh, (Case){"f32[6, 10@x]", "i64[6]", NULL, NULL, 0, -90, 0, -100, 0});
}
END_TEST

START_TEST(smoothing_and_a_gap) {
  Mesh mesh;
  mesh_of(&mesh, 1, (int64_t[]){2});
  check_reductions(&mesh, (Case){"f32[5, 8@x]", "i64[5]", NULL, NULL, 0.1, 0, 200, -100, 0});
  check_reductions(&mesh, (Case){"f32[5@x, 8]", "i64[5@x]", NULL, NULL, 0.1, 0, 200, -100, 0});
}
END_TEST

/* 7 classes on 2 and 4 ranks, 3 on 4: short and empty shards. */
START_TEST(uneven_vocabulary) {
  for (int64_t ranks = 1; ranks <= 4; ranks++) {
    Mesh mesh;
    mesh_of(&mesh, 1, &ranks);
    check_reductions(&mesh, (Case){"f32[4, 7@x]", "i64[4]", NULL, NULL, 0.2, 0, 0, -100, 0});
    check_reductions(&mesh, (Case){"f32[4, 3@x]", "i64[4]", "f32[3@x]", NULL, 0, 0, 0, -100, 0});
    check_reductions(&mesh, (Case){"f32[4, 1@x]", "i64[4]", NULL, NULL, 0, 0, 0, -100, 0});
    check_reductions(&mesh, (Case){"f32[3@x, 5]", "i64[3@x]", NULL, NULL, 0, 0, 0, -100, 0});
  }
}
END_TEST

/* Batch of 8 on 4 ranks, the two targets of rank 0 ignored: the mean is over the global weight. */
START_TEST(ignored_on_one_rank) {
  Mesh mesh;
  mesh_of(&mesh, 1, (int64_t[]){4});
  check_reductions(&mesh, (Case){"f32[8@x, 5]", "i64[8@x]", "f32[5]", NULL, 0, 0, 0, -100, 2});
  check_reductions(&mesh, (Case){"f32[8@x, 5]", "i64[8@x]", NULL, NULL, 0, 0, 0, -100, 7});
  check_reductions(&mesh, (Case){"f32[8, 5@x]", "i64[8]", NULL, NULL, 0.1, 0, 0, -100, 3});
  check_reductions(&mesh, (Case){"f32[8, 5@x]", "i64[8]", "f32[5@x]", NULL, 0.3, 0, 0, IGNORED, 2});
}
END_TEST

START_TEST(two_mesh_dims) {
  for (int64_t y = 2; y <= 3; y++) {
    Mesh mesh;
    mesh_of(&mesh, 2, (int64_t[]){2, y});
    check_reductions(&mesh, (Case){"f32[5@x, 7@y]", "i64[5@x]", NULL, NULL, 0.1, 9, 0, -100, 1});
    check_reductions(&mesh,
                     (Case){"f32[5@y, 7@x]", "i64[5@y]", "f32[7@x]", NULL, 0, 0, 0, -100, 1});
    check_reductions(&mesh, (Case){"f32[5, 7@(y,x)]", "i64[5]", NULL, NULL, 0.1, 0, 0, -100, 1});
    check_reductions(&mesh,
                     (Case){"f32[5@(x,y), 7]", "i64[5@(x,y)]", "f32[7]", NULL, 0, 0, 0, -100, 1});
    check_reductions(&mesh,
                     (Case){"f32[2, 3@x, 7@y]", "i64[2, 3@x]", NULL, NULL, 0, 0, 0, -100, 0});
    check_reductions(&mesh, (Case){"bf16[5@x, 7@y]", "i64[5@x]", NULL, NULL, 0, 0, 0, -100, 0});
  }
}
END_TEST

int main(void) {
  Suite *s = suite_create("loss");
  TCase *c = tcase_create("cross_entropy");
  tcase_add_test(c, large_logits);
  tcase_add_test(c, smoothing_and_a_gap);
  tcase_add_test(c, uneven_vocabulary);
  tcase_add_test(c, ignored_on_one_rank);
  tcase_add_test(c, two_mesh_dims);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed != 0;
}
