/* The verifier: see verify.h. Linear in the number of nodes; changes nothing. */
#include "ir/verify.h"

#include <inttypes.h>

#include "ir/text.h"

typedef struct Verifier {
  Arena *arena;
  const Program *program;
  const Graph *graph;
  GraphStage stage;
  VerifyTypes check;
  const char *wrong; /* the first fault of the node at hand */
} Verifier;

static void wrong(Verifier *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(Verifier *v, const char *fmt, ...) {
  if (v->wrong) return;
  va_list ap;
  va_start(ap, fmt);
  v->wrong = arena_vprintf(v->arena, fmt, ap);
  va_end(ap);
}

static bool mesh_known(const Program *p, const Mesh *m) {
  if (m == p->world) return m != NULL;
  for (uint32_t i = 0; i < p->meshes.len; i++)
    if (p->meshes.data[i] == m) return true;
  return false;
}

static void verify_layout(Verifier *v, const TensorType *t) {
  uint8_t seen[DTM_MAX_DIMS] = {0};
  uint32_t count[DTM_MAX_DIMS] = {0};
  for (uint32_t a = 0; a < DTM_MAX_AXES; a++) {
    Place p = t->layout.at[a];
    if (p.kind == PLACE_REPLICATE) continue;
    if (a >= t->mesh->naxes || t->mesh->size[a] == 1)
      wrong(v, "type mentions a mesh dim of size 1 or none");
    if (p.kind == PLACE_SHARD && p.dim >= t->rank) wrong(v, "type shards a dim it lacks");
    if (p.kind == PLACE_SHARD && p.dim < t->rank && p.order < 8) {
      seen[p.dim] |= (uint8_t)(1u << p.order);
      count[p.dim]++;
    }
    if (p.kind == PLACE_PARTIAL && (p.op <= REDUCE_NONE || p.op >= REDUCE_COUNT))
      wrong(v, "type has a Partial without a reduction");
  }
  for (uint32_t d = 0; d < t->rank; d++)
    if (seen[d] != (1u << count[d]) - 1) wrong(v, "order of shards of dim %u has holes", d);
  if (!layout_partial_consistent(&t->layout))
    wrong(v, "type mixes Partial of different reductions");
}

static void verify_type(Verifier *v, const TensorType *t) {
  if (t->dtype <= DT_NONE || t->dtype >= DT_COUNT) wrong(v, "type without an element type");
  if (t->rank > DTM_MAX_DIMS) wrong(v, "type of rank %" PRIu32, t->rank);
  for (uint32_t d = 0; d < t->rank && d < DTM_MAX_DIMS; d++)
    if (t->shape[d] < 0) wrong(v, "type with a negative extent");
  /* A scalar that is computed from constants alone is on no mesh in particular. */
  if (!t->mesh && t->rank == 0 && layout_is_replicate(&t->layout)) return;
  if (!mesh_known(v->program, t->mesh))
    wrong(v, "type on a mesh that the program does not list");
  else
    verify_layout(v, t);
}

static void verify_attrs(Verifier *v, const Node *n) {
  uint64_t missing = op_needs(n->op);
  for (uint32_t i = 0; i < n->nattrs; i++) {
    const Attr *a = &n->attrs[i];
    if (a->key <= ATTR_NONE || a->key >= ATTR_COUNT) {
      wrong(v, "attribute without a key");
      continue;
    }
    missing &= ~(1ull << a->key);
    if (!(op_info(n->op)->attrs & (1ull << a->key)))
      wrong(v, "%s takes no attribute '%s'", op_name(n->op), attr_name(a->key));
    if (i && n->attrs[i - 1].key >= a->key) wrong(v, "attributes are not sorted or repeat");
    if (attr_kind(a->key) == ATTR_KIND_TYPE) verify_type(v, a->as.type);
  }
  for (int key = ATTR_NONE + 1; key < ATTR_COUNT; key++)
    if (missing >> key & 1) wrong(v, "%s without '%s'", op_name(n->op), attr_name((AttrKey)key));
}

/* Nodes that speak of the program around the graph. */
static void verify_structure(Verifier *v, const Node *n) {
  if (n->op == OP_READ || n->op == OP_ASSIGN) {
    int64_t var = node_int(n, ATTR_VAR, -1);
    if (var < 0 || var >= v->program->vars.len) {
      wrong(v, "no such variable");
      return;
    }
    const TensorType *t = n->op == OP_READ ? value_type(v->graph, n->first_result)
                                           : value_type(v->graph, n->operands[0]);
    if (!type_equal(t, &v->program->vars.data[var].type))
      wrong(v, "type differs from that of variable '%s'", v->program->vars.data[var].name);
  }
  /* embedding_backward states by it only how its rows are cut. */
  const Attr *type = n->op == OP_EMBEDDING_BACKWARD ? NULL : node_attr(n, ATTR_TYPE);
  if (type && n->nresults == 1 && !type_equal(type->as.type, value_type(v->graph, n->first_result)))
    wrong(v, "result type differs from attribute 'type'");
}

static void verify_stage(Verifier *v, const Node *n) {
  const OpInfo *info = op_info(n->op);
  bool collective = info->cls == CLASS_COMM && info->lower != LOWER_OPENED &&
                    n->op != OP_REDISTRIBUTE_ROWS; /* the user's own, at every stage */
  bool unopened = info->lower == LOWER_OPENED || info->lower == LOWER_COMPOSITE;
  if (v->stage < GRAPH_LOCAL && collective) wrong(v, "a collective before stage local");
  if (v->stage == GRAPH_LOCAL && unopened) wrong(v, "%s in stage local", info->name);
  if (v->stage >= GRAPH_EXPLICIT && n->op == OP_CROSS_ENTROPY)
    wrong(v, "a composite that communicates after stage graph");
  if (v->stage < GRAPH_GRAD && n->phase != PHASE_FORWARD)
    wrong(v, "a node of the backward pass before stage grad");
  if (n->phase > PHASE_OPTIMIZER) wrong(v, "unknown phase");
}

static void verify_node(Verifier *v, NodeId id, uint32_t *next_value) {
  const Graph *g = v->graph;
  const Node *n = graph_node(g, id);
  if (n->op <= OP_NONE || n->op >= OP_COUNT) {
    wrong(v, "unknown operator");
    return;
  }
  const OpInfo *info = op_info(n->op);
  if (n->noperands < info->min_operands || n->noperands > info->max_operands)
    wrong(v, "%s with %" PRIu32 " operands", info->name, n->noperands);
  if (n->nresults != info->results)
    wrong(v, "%s with %" PRIu32 " results", info->name, n->nresults);
  if (n->scope >= g->scopes.len) wrong(v, "unknown scope");
  if (n->nresults && n->first_result != *next_value) wrong(v, "results are not the next values");
  bool poisoned = false;
  for (uint32_t i = 0; i < n->noperands; i++) {
    if (n->operands[i] == 0 || n->operands[i] >= *next_value) {
      wrong(v, "operand %" PRIu32 " is not defined before its use", i);
      return;
    }
    poisoned |= graph_value(g, n->operands[i])->poisoned;
  }
  for (uint32_t i = 0; i < n->nresults; i++) {
    const Value *r = graph_value(g, *next_value + i);
    if (r->node != id || r->index != i) wrong(v, "result %" PRIu32 " belongs to another node", i);
    poisoned |= r->poisoned;
  }
  *next_value += n->nresults;
  if (poisoned) {
    if (v->stage >= GRAPH_EXPLICIT) wrong(v, "a poisoned value outlived elaboration");
    return;
  }
  for (uint32_t i = 0; i < n->nresults; i++) verify_type(v, value_type(g, node_result(n, i)));
  verify_attrs(v, n);
  if (v->wrong) return;
  verify_structure(v, n);
  verify_stage(v, n);
  if (v->check && v->stage < GRAPH_LOCAL && !v->wrong) {
    const char *differs = v->check(v->arena, g, id);
    if (differs) wrong(v, "%s", differs);
  }
}

static const char *verify_graph(Verifier *v, const Graph *g, const char *pass) {
  v->graph = g;
  uint32_t next_value = 1;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    verify_node(v, id, &next_value);
    if (!v->wrong) continue;
    StrBuf sb;
    strbuf_init(&sb, v->arena);
    strbuf_printf(&sb, "after pass %s, graph %s, node %" PRIu32 ": %s\n  ", pass, g->name, id,
                  v->wrong);
    Op op = graph_node(g, id)->op;
    if (op > OP_NONE && op < OP_COUNT) node_print(&sb, v->program, g, id);
    return sb.text;
  }
  if (next_value != g->values.len)
    return arena_printf(v->arena, "after pass %s, graph %s: values without a node", pass, g->name);
  return NULL;
}

static const char *verify_block(Verifier *v, const ProgramBlock *b, const char *pass) {
  if (!b->graph) return NULL;
  const char *fault = verify_graph(v, b->graph, pass);
  if (fault) return fault;
  if (b->loss >= b->graph->values.len)
    return arena_printf(v->arena, "after pass %s: the loss is no value of the graph", pass);
  if (b->optimizer.kind && (b->optimizer.lr == 0 || b->optimizer.lr >= b->graph->values.len))
    return arena_printf(v->arena, "after pass %s: the learning rate is no value", pass);
  return NULL;
}

const char *verify_program(Arena *arena, const Program *program, GraphStage stage, const char *pass,
                           VerifyTypes check) {
  Verifier v = {.arena = arena, .program = program, .stage = stage, .check = check};
  const char *fault = NULL;
  for (BlockKind k = BLOCK_INIT; k < BLOCK_COUNT && !fault; k++)
    fault = verify_block(&v, &program->block[k], pass);
  return fault;
}
