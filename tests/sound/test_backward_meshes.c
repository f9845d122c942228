/* The backward pass across meshes: a cotangent goes back to the mesh its value is on, and counts
 * once there, whatever is pending on either mesh.
 *
 * Ranks (x 2, y 2, z 2): x tells the stages apart, y the batch, z the columns. */
#include <check.h>

#include "reference/lab.h"
#include "support/suite.h"

enum { MAX_PARAMS = 8 };

typedef struct Stages {
  Lab lab;
  const Mesh *stage[2];
  ValueId value[MAX_PARAMS], grad[MAX_PARAMS];
  uint32_t n;
} Stages;

static void begin(Stages *s) {
  lab_init(&s->lab, 3, (int64_t[]){2, 2, 2});
  s->n = 0;
  for (int i = 0; i < 2; i++) {
    s->stage[i] = mesh_unbind(&s->lab.arena, &s->lab.mesh, 0, i);
    VEC_PUSH(&s->lab.arena, &s->lab.program.meshes, s->stage[i]);
  }
}

static ValueId param(Stages *s, const Mesh *mesh, const char *text) {
  TensorType type = type_from_text(mesh, text);
  return s->value[s->n++] = lab_param_of(&s->lab, &type, -0.5, 0.5);
}

static ValueId to(Stages *s, ValueId v, const Mesh *mesh, const char *text) {
  TensorType type = type_from_text(mesh, text);
  return lab_op(&s->lab, OP_REDISTRIBUTE, &v, 1, &ATTR_T(TYPE, &type), 1);
}

/* Differentiates, checks the values, and returns the transfers that the backward pass adds: what is
 * pending is reduced before it leaves its mesh. */
static int finish(Stages *s, ValueId loss) {
  Lab *lab = &s->lab;
  NodeId end = lab->g->nodes.len;
  ck_assert_msg(
      autodiff_gradients(lab->g, loss, s->value, s->n, s->grad, 1, lab->plans, &lab->sink), "%s",
      lab_errors(lab));
  int transfers = 0;
  for (NodeId id = end; id < lab->g->nodes.len; id++) {
    const Node *n = graph_node(lab->g, id);
    if (n->op != OP_REDISTRIBUTE) continue;
    const TensorType *from = value_type(lab->g, n->operands[0]);
    if (from->mesh == value_type(lab->g, n->first_result)->mesh) continue;
    transfers++;
    for (uint32_t a = 0; a < from->mesh->naxes; a++)
      ck_assert_int_ne(from->layout.at[a].kind, PLACE_PARTIAL);
  }
  for (uint32_t k = 0; k < s->n; k++) {
    ck_assert_uint_ne(s->grad[k], 0);
    ck_assert_ptr_eq(value_type(lab->g, s->grad[k])->mesh, value_type(lab->g, s->value[k])->mesh);
  }
  const char *wrong = lab_wrong_gradient(lab, s->value, s->grad, s->n, loss);
  ck_assert_msg(!wrong, "%s", wrong);
  return transfers;
}

/* Column- and row-parallel layers on either stage; the loss on the last. */
START_TEST(two_stages) {
  Stages s;
  begin(&s);
  const Mesh *a = s.stage[0], *b = s.stage[1];
  ValueId x = param(&s, a, "f32[4@y, 6]"), up = param(&s, a, "f32[5@z, 6]");
  ValueId down = param(&s, b, "f32[3, 5@z]"), gain = param(&s, b, "f32[3]");
  ValueId h = lab_unary(&s.lab, OP_TANH, lab_binary(&s.lab, OP_LINEAR, x, up));
  h = lab_binary(&s.lab, OP_LINEAR, to(&s, h, b, "f32[4@y, 5@z]"), down);
  h = lab_binary(&s.lab, OP_MUL, to(&s, h, b, "f32[4@y, 3]"), gain);
  ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, h)), 1);
  lab_free(&s.lab);
}
END_TEST

/* A weight that both stages use: one part is pending over the batch of the first, the other was
 * reduced on the second. */
START_TEST(tied_weight) {
  Stages s;
  begin(&s);
  const Mesh *a = s.stage[0], *b = s.stage[1];
  ValueId x = param(&s, a, "f32[4@y, 6]"), w = param(&s, a, "f32[6, 6]");
  ValueId h = lab_unary(&s.lab, OP_TANH, lab_binary(&s.lab, OP_LINEAR, x, w));
  h = to(&s, h, b, "f32[4@y, 6]");
  h = lab_binary(&s.lab, OP_LINEAR, h, to(&s, w, b, "f32[6@z, 6]"));
  ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, h)), 2);
  TensorType g = *value_type(s.lab.g, s.grad[1]);
  ck_assert_int_eq(g.layout.at[0].kind, PLACE_PARTIAL); /* y: reduced once, before the optimizer */
  ck_assert_int_eq(g.layout.at[1].kind, PLACE_REPLICATE);
  lab_free(&s.lab);
}
END_TEST

/* A pending sum goes over as it is, or reduced; its addends have one gradient. */
START_TEST(pending_sums) {
  static const char *const wanted[] = {"f32[4@y, 3] partial(z)", "f32[4@y, 3]", "f32[4, 3@z]"};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    Stages s;
    begin(&s);
    const Mesh *a = s.stage[0], *b = s.stage[1];
    ValueId x = param(&s, a, "f32[4@y, 5@z]"), w = param(&s, a, "f32[3, 5@z]");
    ValueId p = to(&s, lab_binary(&s.lab, OP_LINEAR, x, w), b, wanted[i]);
    ValueId h = lab_unary(&s.lab, OP_TANH, to(&s, p, b, "f32[4@y, 3]"));
    ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, h)), 1);
    lab_free(&s.lab);
  }
}
END_TEST

/* From all ranks to some, where the rest does other things, and back: fan-in on the world. */
START_TEST(world_and_stages) {
  Stages s;
  begin(&s);
  const Mesh *all = &s.lab.mesh;
  ValueId x = param(&s, all, "f32[4@y, 6@x]"), v = param(&s, all, "f32[6@(x,z)]");
  ValueId sum = 0;
  for (int i = 0; i < 2; i++) {
    ValueId w = param(&s, s.stage[i], "f32[6@z]");
    ValueId h = lab_binary(&s.lab, OP_MUL, to(&s, x, s.stage[i], "f32[4@y, 6@z]"), w);
    h = to(&s, lab_unary(&s.lab, OP_TANH, h), all, "f32[4@y, 6]");
    sum = sum ? lab_binary(&s.lab, OP_ADD, sum, h) : h;
  }
  sum = lab_binary(&s.lab, OP_ADD, sum, to(&s, x, all, "f32[4@y, 6]"));
  sum = lab_binary(&s.lab, OP_MUL, sum, v);
  ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, sum)), 4);
  lab_free(&s.lab);
}
END_TEST

/* A selection of dims has all ranks, and a value on it one gradient. */
START_TEST(selected_dims) {
  Stages s;
  begin(&s);
  const Mesh *kept = mesh_keep(&s.lab.arena, &s.lab.mesh, 1u << 2);
  const uint8_t xy[] = {0, 1};
  const Mesh *flat = mesh_flatten(&s.lab.arena, &s.lab.mesh, xy, 2, intern(&s.lab.names, "w"));
  VEC_PUSH(&s.lab.arena, &s.lab.program.meshes, kept);
  VEC_PUSH(&s.lab.arena, &s.lab.program.meshes, flat);
  ValueId x = param(&s, &s.lab.mesh, "f32[4@y, 6@x]"), w = param(&s, kept, "f32[5@z, 6]");
  ValueId v = param(&s, flat, "f32[5@w]");
  ValueId h = lab_binary(&s.lab, OP_LINEAR, to(&s, x, kept, "f32[4, 6]"), w);
  h = lab_unary(&s.lab, OP_TANH, to(&s, h, flat, "f32[4@w, 5]"));
  h = lab_binary(&s.lab, OP_MUL, h, to(&s, v, flat, "f32[5]"));
  ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, h)), 2);
  lab_free(&s.lab);
}
END_TEST

/* A gradient that is pending on the last stage is reduced there, where it is smallest: it cannot
 * wait for the parameter on the first, although the dims of both have the same numbers. */
START_TEST(reduced_where_it_is_small) {
  Stages s;
  begin(&s);
  const Mesh *a = s.stage[0], *b = s.stage[1];
  ValueId x = param(&s, a, "f32[64, 6]"), w = param(&s, b, "f32[4@z, 6]");
  ValueId far = to(&s, x, b, "f32[64, 6]");
  const Attr attrs[] = {ATTR_INTS(DIMS, ((int64_t[]){0}), 1), ATTR_I(KEEPDIM, 1)};
  far = lab_unary(&s.lab, OP_TANH, far);
  ValueId row = lab_op(&s.lab, OP_SUM, &far, 1, attrs, 2);
  ValueId h = lab_unary(&s.lab, OP_TANH, lab_binary(&s.lab, OP_LINEAR, row, w));
  NodeId end = s.lab.g->nodes.len;
  ck_assert_int_eq(finish(&s, lab_weigh(&s.lab, h)), 1);
  int reductions = 0;
  for (NodeId id = end; id < s.lab.g->nodes.len; id++) {
    const Node *n = graph_node(s.lab.g, id);
    const TensorType *from = n->noperands ? value_type(s.lab.g, n->operands[0]) : NULL;
    if (n->op != OP_REDISTRIBUTE || from->layout.at[1].kind != PLACE_PARTIAL) continue;
    reductions++;
    ck_assert_ptr_eq(from->mesh, b);
    ck_assert_int_eq(from->shape[0], 1);
  }
  ck_assert_int_eq(reductions, 1);
  lab_free(&s.lab);
}
END_TEST

int main(void) {
  TCase *t = tcase_create("backward across meshes");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, two_stages);
  tcase_add_test(t, tied_weight);
  tcase_add_test(t, pending_sums);
  tcase_add_test(t, world_and_stages);
  tcase_add_test(t, selected_dims);
  tcase_add_test(t, reduced_where_it_is_small);
  Suite *suite = suite_create("backward across meshes");
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
