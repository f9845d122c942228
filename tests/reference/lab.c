/* See lab.h. */
#include "reference/lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "reference/placements.h"

void lab_init(Lab *lab, uint32_t naxes, const int64_t *sizes) {
  *lab = (Lab){.random = 12345};
  arena_init(&lab->arena);
  interner_init(&lab->names, &lab->arena);
  sources_init(&lab->sources, &lab->arena);
  diag_init(&lab->sink, &lab->arena, &lab->sources);
  mesh_of(&lab->mesh, naxes, sizes);
  lab->mesh.name = "world";
  for (uint32_t a = 0; a < naxes; a++) lab->mesh.axis[a] = intern(&lab->names, lab->mesh.axis[a]);
  lab->program = (Program){.arena = &lab->arena,
                           .names = &lab->names,
                           .sources = &lab->sources,
                           .path = "lab.dtm",
                           .world = &lab->mesh};
  VEC_PUSH(&lab->arena, &lab->program.meshes, &lab->mesh);
  lab->train = &lab->program.block[BLOCK_TRAIN];
  lab->g = lab->train->graph = graph_new(&lab->arena, "train");
  lab->train->settings = (RunSettings){.steps = 1, .accumulate = 1, .microbatches = 1};
  lab->plans = plan_cache_new(&lab->arena);
}

void lab_free(Lab *lab) {
  arena_free(&lab->arena);
}

double lab_random(Lab *lab, double low, double high) {
  lab->random = lab->random * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * (double)(lab->random >> 40) / (double)(1 << 24);
}

static ValueId new_var(Lab *lab, VarKind kind, const TensorType *type, double low, double high,
                       bool whole_numbers) {
  uint32_t var = lab->program.vars.len;
  Var v = {.kind = kind, .type = *type, .chunks = 1};
  v.name = intern(&lab->names, arena_printf(&lab->arena, "v%u", var));
  VEC_PUSH(&lab->arena, &lab->program.vars, v);
  RefTensor *t = &lab->value[var];
  *t = ref_new(&lab->arena, type->rank, type->shape);
  for (int64_t i = 0; i < ref_count(t); i++) {
    double x = lab_random(lab, low, high);
    t->data[i] = whole_numbers ? floor(x) : x;
  }
  Attr attrs[] = {ATTR_I(VAR, var)};
  NodeId id = graph_add(lab->g, OP_READ, NULL, 0, attrs, 1, type, 1, (Span){0}, 0);
  return node_result(graph_node(lab->g, id), 0);
}

ValueId lab_param_of(Lab *lab, const TensorType *type, double low, double high) {
  return new_var(lab, VAR_PARAM, type, low, high, false);
}

ValueId lab_param(Lab *lab, const char *type, double low, double high) {
  TensorType t = type_from_text(&lab->mesh, type);
  return lab_param_of(lab, &t, low, high);
}

ValueId lab_ids(Lab *lab, const TensorType *type, int64_t below) {
  return new_var(lab, VAR_BUFFER, type, 0, (double)below, true);
}

ValueId lab_try(Lab *lab, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                uint32_t nattrs) {
  NodeId id = infer_add(lab->g, &lab->sink, op, operands, n, attrs, nattrs, (Span){0}, NULL, 0);
  ValueId v = node_result(graph_node(lab->g, id), 0);
  return graph_value(lab->g, v)->poisoned ? 0 : v;
}

ValueId lab_op(Lab *lab, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
               uint32_t nattrs) {
  ValueId v = lab_try(lab, op, operands, n, attrs, nattrs);
  if (v) return v;
  fprintf(stderr, "%s: %s\n%s", op_name(op), lab_errors(lab), lab_text(lab));
  exit(1);
}

ValueId lab_unary(Lab *lab, Op op, ValueId a) {
  return lab_op(lab, op, &a, 1, NULL, 0);
}

ValueId lab_binary(Lab *lab, Op op, ValueId a, ValueId b) {
  return lab_op(lab, op, (ValueId[]){a, b}, 2, NULL, 0);
}

ValueId lab_to(Lab *lab, ValueId a, const char *type) {
  TensorType t = type_from_text(&lab->mesh, type);
  return lab_op(lab, OP_REDISTRIBUTE, &a, 1, &ATTR_T(TYPE, &t), 1);
}

ValueId lab_sum(Lab *lab, ValueId a) {
  if (value_type(lab->g, a)->rank == 0) return a;
  return lab_op(lab, OP_SUM, &a, 1, NULL, 0);
}

ValueId lab_weigh(Lab *lab, ValueId y) {
  TensorType t = *value_type(lab->g, y);
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++)
    if (t.layout.at[a].kind == PLACE_PARTIAL) t.layout.at[a] = (Place){0};
  ValueId w = new_var(lab, VAR_BUFFER, &t, 0.5, 2, false);
  return lab_sum(lab, lab_binary(lab, OP_MUL, y, w));
}

static RefTensor read_var(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Lab *)user)->value[var];
}

/* Partial variables as unequal addends, where a redistribute would leave all on one rank. */
static RefTensor *split_var(void *user, const TensorType *type, const RefTensor *whole) {
  uint64_t state = 9;
  return random_split(&((Lab *)user)->arena, &state, type, whole);
}

RefTensor *lab_eval(Lab *lab) {
  RefContext ctx = {.arena = &lab->arena};
  RefIO io = {.user = lab, .read = read_var};
  return ref_eval_graph(&ctx, &lab->arena, lab->g, &io);
}

RefTensor **lab_eval_mesh(Lab *lab, bool *disagree) {
  RefContext ctx = {.arena = &lab->arena};
  RefIO io = {.user = lab, .read = read_var, .split = split_var};
  *disagree = false;
  return ref_eval_mesh(&ctx, &lab->arena, lab->g, &io, disagree);
}

double lab_probe(Lab *lab, ValueId v, uint32_t var, int64_t i, double h) {
  double *x = &lab->value[var].data[i], was = *x;
  *x = was + h;
  double y = lab_eval(lab)[v].data[0];
  *x = was;
  return y;
}

const char *lab_wrong_gradient(Lab *lab, const ValueId *param, const ValueId *grad, uint32_t n,
                               ValueId loss) {
  bool disagree;
  RefTensor *whole = lab_eval(lab), **mesh = lab_eval_mesh(lab, &disagree);
  if (disagree) return arena_printf(&lab->arena, "replicas disagree\n%s", lab_text(lab));
  for (uint32_t k = 0; k < n; k++) {
    ValueId g = grad[k];
    uint32_t var = (uint32_t)node_int(value_node(lab->g, param[k]), ATTR_VAR, 0);
    if (!g) return arena_printf(&lab->arena, "parameter %u has no gradient", k);
    RefTensor got = ref_assemble(&lab->arena, value_type(lab->g, g), mesh[g], NULL);
    for (int64_t i = 0; i < ref_count(&got); i++) {
      double one = whole[g].data[i], many = got.data[i], h = 1e-5;
      bool same = fabs(one - many) <= 1e-12 * (1 + fabs(one));
      if (!same)
        return arena_printf(&lab->arena, "parameter %u element %lld: %g, on the ranks %g", k,
                            (long long)i, one, many);
      if (i >= 2) continue;
      double want = (lab_probe(lab, loss, var, i, h) - lab_probe(lab, loss, var, i, -h)) / (2 * h);
      if (!(fabs(one - want) <= 1e-6 * (1 + fabs(want))))
        return arena_printf(&lab->arena, "parameter %u element %lld: %g, by differences %g", k,
                            (long long)i, one, want);
    }
  }
  return NULL;
}

const char *lab_errors(Lab *lab) {
  StrBuf sb;
  strbuf_init(&sb, &lab->arena);
  for (uint32_t i = 0; i < lab->sink.diags.len; i++) {
    const Diag *d = lab->sink.diags.data[i];
    strbuf_printf(&sb, "%s: %s", diag_info(d->code)->code, d->message);
    for (uint32_t k = 0; k < d->lines.len; k++) strbuf_printf(&sb, "; %s", d->lines.data[k].text);
    strbuf_putc(&sb, '\n');
  }
  return sb.text;
}

const char *lab_text(Lab *lab) {
  StrBuf sb;
  strbuf_init(&sb, &lab->arena);
  graph_print(&sb, &lab->program, lab->g);
  return sb.text;
}

LabComm lab_comm(const Lab *lab, const Graph *g, NodeId from, NodeId to, Phase phase) {
  LabComm n = {0};
  Topology topology = topology_default(&lab->mesh);
  for (NodeId id = from; id < to; id++) {
    const Node *node = graph_node(g, id);
    if (node->op != OP_REDISTRIBUTE || node->phase != phase) continue;
    const RedistributePlan *plan = place_plan(lab->plans, value_type(g, node->operands[0]),
                                              value_type(g, node->first_result), &topology);
    for (uint32_t i = 0; i < plan->nsteps; i++) {
      Op op = plan->steps[i].op;
      n.all_reduce += op == OP_ALL_REDUCE;
      n.reduce_scatter += op == OP_REDUCE_SCATTER;
      n.all_gather += op == OP_ALL_GATHER;
      n.all_to_all += op == OP_ALL_TO_ALL || op == OP_EXCHANGE;
    }
  }
  return n;
}
