/* The whole training step against loops written from the definitions: reduction, clipping by the
 * global norm, SGD and AdamW, accumulation, for parameters of every placement. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "reference/lab.h"
#include "support/suite.h"

enum { PARAMS = 4, ROWS = 3, STEPS = 5, MOST = 20 };

/* Parameter, the batch of targets it is compared with, and its form for comparing. */
static const struct {
  const char *param, *target, *whole;
} rows[PARAMS] = {
    {"f32[5, 3@y]", "f32[3@x, 5, 3@y]", NULL},
    {"f32[4@(x,y)]", "f32[3, 4@(x,y)]", NULL},
    {"f32[6] partial(y)", "f32[3@x, 6]", "f32[6]"},
    {"f32[3]", "f32[3@x, 3]", NULL},
};

typedef struct Model {
  Lab lab;
  ValueId param[PARAMS], mean;
  uint32_t target[PARAMS]; /* variables */
  int64_t count[PARAMS];
  int64_t batches, micro;
  uint32_t assigned[LAB_MAX_VARS]; /* ASSIGNs of this evaluation, by variable */

} Model;

/* loss = sum over parameters and rows of (p - target)^2 */
static void build(Model *m, const int64_t sizes[2], const OptimizerSpec *spec, int64_t batches) {
  *m = (Model){.batches = batches};
  Lab *lab = &m->lab;
  lab_init(lab, 2, sizes);
  ValueId loss = 0;
  for (int k = 0; k < PARAMS; k++) {
    ValueId p = m->param[k] = lab_param(lab, rows[k].param, -1, 1);
    m->count[k] = type_elements(value_type(lab->g, p));
    m->target[k] = lab->program.vars.len;
    ValueId t = lab_param(lab, rows[k].target, -1, 1);
    lab->program.vars.data[m->target[k]].kind = VAR_BUFFER;
    if (rows[k].whole) p = lab_to(lab, p, rows[k].whole);
    ValueId e = lab_unary(lab, OP_SQUARE, lab_binary(lab, OP_SUB, t, p));
    ValueId sum = lab_to(lab, lab_sum(lab, e), "f32[]");
    loss = loss ? lab_binary(lab, OP_ADD, loss, sum) : sum;
  }
  /* lr = 0.1 / (1 + step) */
  TensorType i64 = type_from_text(&lab->mesh, "i64[]");
  ValueId step = lab_op(lab, OP_STEP, NULL, 0, &ATTR_T(TYPE, &i64), 1);
  step = lab_op(lab, OP_CAST, &step, 1, &ATTR_I(DTYPE, DT_F32), 1);
  Attr one[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 1)};
  Attr tenth[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 0.1)};
  ValueId bottom = lab_binary(lab, OP_ADD, step, lab_op(lab, OP_CONST, NULL, 0, one, 2));
  lab->train->optimizer = *spec;
  lab->train->optimizer.lr =
      lab_binary(lab, OP_DIV, lab_op(lab, OP_CONST, NULL, 0, tenth, 2), bottom);
  lab->train->loss = loss;
  lab->train->settings.accumulate = batches;

  const char *fault =
      verify_program(&lab->arena, &lab->program, GRAPH_EXPLICIT, "lab", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  ck_assert_msg(autodiff_run(&lab->program, lab->plans, &lab->sink), "%s", lab_errors(lab));
  fault = verify_program(&lab->arena, &lab->program, GRAPH_GRAD, "autodiff", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  lab->g = lab->train->graph;
  ck_assert_uint_le(lab->program.vars.len, LAB_MAX_VARS);
  for (uint32_t v = 0; v < lab->program.vars.len; v++) {
    const Var *var = &lab->program.vars.data[v];
    if (var->kind == VAR_OPTIMIZER || var->kind == VAR_ACCUMULATOR)
      lab->value[v] = ref_new(&lab->arena, var->type.rank, var->type.shape);
  }
}

static RefTensor read_var(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Model *)user)->lab.value[var];
}

/* As the runtime runs a step: forward and backward per batch, the rest after the last one. An
 * accumulator is assigned first in a backward pass, then cleared at the end of the step. */
static void assign_var(void *user, uint32_t var, const RefTensor *value) {
  Model *m = user;
  bool last = m->micro == m->batches - 1, first_time = m->assigned[var]++ == 0;
  VarKind kind = m->lab.program.vars.data[var].kind;
  if (last || (kind == VAR_ACCUMULATOR && first_time)) m->lab.value[var] = *value;
}

/* Every addend of a Partial variable but the first is exactly zero. */
static void check_addends(Model *m, RefTensor **mesh) {
  const Graph *g = m->lab.g;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_ASSIGN || m->lab.program.vars.data[node_int(n, ATTR_VAR, 0)].kind != VAR_PARAM)
      continue;
    const TensorType *t = value_type(g, n->operands[0]);
    for (int64_t pos = 0; pos < t->mesh->nranks; pos++) {
      int64_t coord[DTM_MAX_AXES];
      bool first = true;
      mesh_coords(t->mesh, pos, coord);
      for (uint32_t a = 0; a < t->mesh->naxes; a++)
        first &= t->layout.at[a].kind != PLACE_PARTIAL || coord[a] == 0;
      const RefTensor *b = &mesh[n->operands[0]][pos];
      for (int64_t i = 0; !first && i < ref_count(b); i++) ck_assert(b->data[i] == 0);
    }
  }
}

static void run_step(Model *m, int64_t step, bool on_mesh) {
  RefIO io = {.user = m, .read = read_var, .assign = assign_var};
  RefContext ctx = {.arena = &m->lab.arena, .step = step};
  for (m->micro = 0; m->micro < m->batches; m->micro++) {
    memset(m->assigned, 0, sizeof m->assigned);
    bool disagree = false;
    if (on_mesh)
      check_addends(m, ref_eval_mesh(&ctx, &m->lab.arena, m->lab.g, &io, &disagree));
    else
      ref_eval_graph(&ctx, &m->lab.arena, m->lab.g, &io);
    ck_assert(!disagree);
    /* The next batch has other targets. */
    for (int k = 0; k < PARAMS; k++) {
      RefTensor *t = &m->lab.value[m->target[k]];
      for (int64_t i = 0; i < ref_count(t); i++) t->data[i] += 0.25;
    }
  }
}

/* --- the definitions ---------------------------------------------------------------------------
 */

typedef struct Expected {
  double p[PARAMS][MOST], t[PARAMS][ROWS][MOST], m[PARAMS][MOST], v[PARAMS][MOST];
} Expected;

static void expected_step(const Model *m, Expected *e, const OptimizerSpec *o, int64_t step) {
  double g[PARAMS][MOST] = {{0}}, norm = 0, lr = 0.1 / (double)(1 + step);
  for (int64_t b = 0; b < m->batches; b++)
    for (int k = 0; k < PARAMS; k++)
      for (int r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < m->count[k]; i++) {
          g[k][i] += 2 * (e->p[k][i] - e->t[k][r][i]) / (double)m->batches;
          e->t[k][r][i] += 0.25;
        }
  for (int k = 0; k < PARAMS; k++)
    for (int64_t i = 0; i < m->count[k]; i++) norm += g[k][i] * g[k][i];
  double scale = o->clip_norm > 0 ? fmin(1, o->clip_norm / (sqrt(norm) + 1e-6)) : 1;
  double t = (double)(step + 1);
  for (int k = 0; k < PARAMS; k++)
    for (int64_t i = 0; i < m->count[k]; i++) {
      double *p = &e->p[k][i], *mo = &e->m[k][i], *v = &e->v[k][i], d = g[k][i] * scale;
      if (strcmp(o->kind, "sgd") == 0) {
        d += o->weight_decay * *p;
        if (o->momentum != 0) {
          *mo = o->momentum * *mo + d;
          d = o->nesterov ? d + o->momentum * *mo : *mo;
        }
        *p -= lr * d;
      } else {
        *mo = o->beta1 * *mo + (1 - o->beta1) * d;
        *v = o->beta2 * *v + (1 - o->beta2) * d * d;
        double mh = *mo / (1 - pow(o->beta1, t)), vh = *v / (1 - pow(o->beta2, t));
        *p -= lr * o->weight_decay * *p;
        *p -= lr * mh / (sqrt(vh) + o->eps);
      }
    }
}

static const struct {
  OptimizerSpec spec;
  int64_t batches;
} optimizers[] = {
    {{.kind = "sgd"}, 1},
    {{.kind = "sgd", .momentum = 0.9, .weight_decay = 0.1}, 1},
    {{.kind = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .clip_norm = 0.5}, 2},
    {{.kind = "adamw", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, 1},
    {{.kind = "adamw",
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .clip_norm = 1},
     3},
};

START_TEST(steps) {
  static const int64_t meshes[][2] = {{1, 1}, {2, 2}, {2, 3}, {1, 4}};
  const OptimizerSpec *spec = &optimizers[_i].spec;
  for (size_t s = 0; s < sizeof meshes / sizeof *meshes; s++)
    for (int on_mesh = 0; on_mesh < 2; on_mesh++) {
      Model m;
      Expected e;
      memset(&e, 0, sizeof e);
      build(&m, meshes[s], spec, optimizers[_i].batches);
      for (int k = 0; k < PARAMS; k++) {
        uint32_t var = m.target[k] - 1;
        for (int64_t i = 0; i < m.count[k]; i++) {
          e.p[k][i] = m.lab.value[var].data[i];
          for (int r = 0; r < ROWS; r++)
            e.t[k][r][i] = m.lab.value[m.target[k]].data[r * m.count[k] + i];
        }
      }
      for (int64_t step = 0; step < STEPS; step++) {
        run_step(&m, step, on_mesh);
        expected_step(&m, &e, spec, step);
      }
      for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < m.count[k]; i++)
          ck_assert_double_eq_tol(m.lab.value[m.target[k] - 1].data[i], e.p[k][i], 1e-9);
      lab_free(&m.lab);
    }
}
END_TEST

/* All gradients 1: the norm is the root of the number of scalars, for every placement. */
START_TEST(norm_counts_scalars) {
  Lab lab;
  lab_init(&lab, 2, (int64_t[]){2, 2});
  static const char *const types[] = {"f32[5, 3@y]", "f32[4@(x,y)]", "f32[6] partial(y)", "f32[3]"};
  ValueId loss = 0;
  double count = 15 + 4 + 6 + 3;
  for (int k = 0; k < 4; k++) {
    ValueId sum = lab_to(&lab, lab_sum(&lab, lab_param(&lab, types[k], -1, 1)), "f32[]");
    loss = loss ? lab_binary(&lab, OP_ADD, loss, sum) : sum;
  }
  Attr one[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 1)};
  lab.train->loss = loss;
  lab.train->optimizer = (OptimizerSpec){.kind = "sgd", .clip_norm = 0.5};
  lab.train->optimizer.lr = lab_op(&lab, OP_CONST, NULL, 0, one, 2);
  double before = lab.value[3].data[0];
  ck_assert_msg(autodiff_run(&lab.program, lab.plans, &lab.sink), "%s", lab_errors(&lab));
  lab.g = lab.train->graph;
  bool disagree;
  RefTensor **mesh = lab_eval_mesh(&lab, &disagree);
  ck_assert(!disagree);
  for (NodeId id = 1; id < lab.g->nodes.len; id++) {
    const Node *n = graph_node(lab.g, id);
    if (n->op != OP_ASSIGN || node_int(n, ATTR_VAR, 0) != 3) continue;
    double after = mesh[n->operands[0]][0].data[0];
    ck_assert_double_eq_tol(before - after, 0.5 / (sqrt(count) + 1e-6), 1e-12);
    before = INFINITY;
  }
  ck_assert(isinf(before));
  lab_free(&lab);
}
END_TEST

/* Each gradient is reduced once per step, outside the accumulated passes, and those of one kind
 * share a bucket. */
START_TEST(reduced_once_in_buckets) {
  Model m;
  OptimizerSpec spec = {.kind = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  build(&m, (int64_t[]){2, 2}, &spec, 4);
  const Graph *g = m.lab.g;
  int reductions = 0;
  int64_t bucket = 0;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op != OP_REDISTRIBUTE || n->phase != PHASE_REDUCE) continue;
    int64_t own = node_int(n, ATTR_BUCKET, 0);
    ck_assert_int_gt(own, 0);
    if (bucket) ck_assert_int_eq(own, bucket);
    bucket = own;
    reductions++;
    ck_assert_int_eq(value_node(g, n->operands[0])->op, OP_READ);
  }
  /* Those whose batch is cut over x; the second parameter is cut over x itself. */
  ck_assert_int_eq(reductions, 3);
  LabComm back = lab_comm(&m.lab, g, 1, g->nodes.len, PHASE_BACKWARD);
  ck_assert_int_eq(back.all_reduce + back.reduce_scatter + back.all_gather + back.all_to_all, 0);
  lab_free(&m.lab);
}
END_TEST

/* The differentiated program reads back from its text. */
START_TEST(text_survives) {
  Model m;
  OptimizerSpec spec = {.kind = "adamw", .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_norm = 1};
  build(&m, (int64_t[]){2, 2}, &spec, 2);
  StrBuf first, second;
  strbuf_init(&first, &m.lab.arena);
  strbuf_init(&second, &m.lab.arena);
  program_print(&first, &m.lab.program);
  const char *error = NULL;
  Program *again = program_parse(&m.lab.arena, &m.lab.names, &m.lab.sources, first.text, &error);
  ck_assert_msg(again != NULL, "%s", error);
  program_print(&second, again);
  ck_assert_str_eq(first.text, second.text);
  const char *fault = verify_program(&m.lab.arena, again, GRAPH_GRAD, "parse", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  lab_free(&m.lab);
}
END_TEST

START_TEST(settings_are_checked) {
  Lab lab;
  lab_init(&lab, 1, (int64_t[]){2});
  Attr one[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 1)};
  lab.train->loss = lab_sum(&lab, lab_param(&lab, "f32[4]", -1, 1));
  lab.train->optimizer = (OptimizerSpec){.kind = "rmsprop"};
  lab.train->optimizer.lr = lab_op(&lab, OP_CONST, NULL, 0, one, 2);
  ck_assert(!autodiff_run(&lab.program, lab.plans, &lab.sink));
  ck_assert_msg(strstr(lab_errors(&lab), "DTM4105: unknown optimizer 'rmsprop'"), "%s",
                lab_errors(&lab));
  lab.train->settings.compute = DT_F8_E4M3;
  ck_assert(!compute_run(&lab.program, &lab.sink));
  lab_free(&lab);
}
END_TEST

/* compute bf16: contractions in bf16, reductions and the loss in f32, gradients and masters f32. */
START_TEST(mixed_precision) {
  Lab lab;
  lab_init(&lab, 1, (int64_t[]){2});
  TensorType pixels = type_from_text(&lab.mesh, "u8[4@x, 3]");
  ValueId x = lab_ids(&lab, &pixels, 200), w = lab_param(&lab, "f32[5, 3]", -1, 1);
  ValueId b = lab_param(&lab, "f32[5]", -1, 1);
  x = lab_op(&lab, OP_CAST, &x, 1, &ATTR_I(DTYPE, DT_F32), 1);
  ValueId h = lab_op(&lab, OP_LINEAR, (ValueId[]){x, w, b}, 3, NULL, 0);
  h = lab_unary(&lab, OP_GELU, h);
  Attr half[] = {ATTR_I(DTYPE, DT_F32), ATTR_F(VALUE, 0.5)};
  h = lab_binary(&lab, OP_MUL, h, lab_op(&lab, OP_CONST, NULL, 0, half, 2));
  h = lab_to(&lab, lab_unary(&lab, OP_DETACH, h), "f32[4, 5]");
  h = lab_binary(&lab, OP_ADD, h, lab_op(&lab, OP_LINEAR, (ValueId[]){x, w, b}, 3, NULL, 0));
  lab.train->loss = lab_to(&lab, lab_op(&lab, OP_MEAN, &h, 1, NULL, 0), "f32[]");
  lab.train->optimizer = (OptimizerSpec){.kind = "sgd"};
  lab.train->optimizer.lr = lab_op(&lab, OP_CONST, NULL, 0, half, 2);
  lab.train->settings.compute = DT_BF16;
  ck_assert_msg(compute_run(&lab.program, &lab.sink), "%s", lab_errors(&lab));
  const char *fault =
      verify_program(&lab.arena, &lab.program, GRAPH_ELABORATED, "compute", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  ck_assert_msg(autodiff_run(&lab.program, lab.plans, &lab.sink), "%s", lab_errors(&lab));
  lab.g = lab.train->graph;
  int seen = 0;
  for (NodeId id = 1; id < lab.g->nodes.len; id++) {
    const Node *n = graph_node(lab.g, id);
    if (n->nresults == 0) continue;
    DType t = value_type(lab.g, n->first_result)->dtype;
    if (op_info(n->op)->cls == CLASS_CONTRACTION || n->op == OP_GELU) {
      ck_assert_int_eq(t, DT_BF16);
      seen++;
    }
    if (n->op == OP_MEAN) ck_assert_int_eq(t, DT_F32);
    if (n->phase >= PHASE_REDUCE) ck_assert_int_eq(t, DT_F32);
  }
  ck_assert_int_eq(seen, 3); /* linear (both are one), gelu, weight gradient */
  lab_free(&lab);
}
END_TEST

/* Rows of a parameter are looked up in f32, those of what was computed in bf16 are bf16. */
START_TEST(looked_up_in_mixed_precision) {
  Lab lab;
  lab_init(&lab, 1, (int64_t[]){2});
  TensorType ids = type_from_text(&lab.mesh, "i64[3]");
  ValueId i = lab_ids(&lab, &ids, 4), table = lab_param(&lab, "f32[4, 4]", -1, 1);
  ValueId made = lab_op(&lab, OP_LINEAR, (ValueId[]){table, table}, 2, NULL, 0);
  ValueId plain = lab_op(&lab, OP_EMBEDDING, (ValueId[]){i, table}, 2, NULL, 0);
  ValueId h = lab_op(&lab, OP_EMBEDDING, (ValueId[]){i, made}, 2, NULL, 0);
  h = lab_binary(&lab, OP_ADD, h, plain);
  lab.train->loss = lab_op(&lab, OP_MEAN, &h, 1, NULL, 0);
  lab.train->settings.compute = DT_BF16;
  ck_assert_msg(compute_run(&lab.program, &lab.sink), "%s", lab_errors(&lab));
  const char *fault =
      verify_program(&lab.arena, &lab.program, GRAPH_ELABORATED, "compute", infer_check);
  ck_assert_msg(fault == NULL, "%s", fault);
  const Graph *g = lab.train->graph;
  int seen[2] = {0};
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->op == OP_EMBEDDING) seen[value_type(g, n->first_result)->dtype == DT_BF16]++;
  }
  ck_assert_int_eq(seen[0], 1);
  ck_assert_int_eq(seen[1], 1);
  lab_free(&lab);
}
END_TEST

int main(void) {
  Suite *s = suite_create("optimizer");
  TCase *c = tcase_create("optimizer");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, steps, 0, sizeof optimizers / sizeof *optimizers);
  tcase_add_test(c, norm_counts_scalars);
  tcase_add_test(c, reduced_once_in_buckets);
  tcase_add_test(c, text_survives);
  tcase_add_test(c, settings_are_checked);
  tcase_add_test(c, mixed_precision);
  tcase_add_test(c, looked_up_in_mixed_precision);
  suite_add_tcase(s, c);
  return suite_run(s);
}
