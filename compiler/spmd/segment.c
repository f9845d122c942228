/* Cutting a local graph into segments: see pipeline.h.
 *
 * In: the local graph of train, of one micro-batch. Out: the same computation, its nodes in the
 * order of their segments (see chunk.c), moves between stages as post and take, what only constants
 * and variables lead to written again where it is used. Invariant: an operand's segment is not
 * behind its user's.
 */
#include <string.h>

#include "spmd/cutter.h"

/* The cutter and the graph that it makes. */
typedef struct Cut {
  Cutter in;
  bool *free_node; /* per node: made of constants and variables without work to speak of */
  GraphMap out;
  IdMap copies;    /* value and segment -> copy there */
  ValueId *posted; /* per SEND_MESH node between stages: its outbox */
} Cut;

static bool check_places(Cut *c) {
  for (NodeId id = 1; id < c->in.g->nodes.len; id++) {
    const Node *n = graph_node(c->in.g, id);
    if (!c->in.live[id] || !cutter_varies(&c->in, id)) continue;
    if (n->phase > PHASE_BACKWARD)
      return cutter_fail(&c->in, n->span,
                         "it is wanted once per step, but there is one of each micro-batch",
                         "hand out losses and metrics that are means over samples");
    ValueId v = n->nresults ? n->first_result : n->operands[0];
    if (c->in.stage[v] == NO_STAGE)
      return cutter_on_several(&c->in, n->span, value_type(c->in.g, v)->mesh);
    if (n->op == OP_ASSIGN &&
        c->in.program->vars.data[node_int(n, ATTR_VAR, 0)].kind != VAR_ACCUMULATOR)
      return cutter_assigned(&c->in, n->span);
  }
  return true;
}

/* --- the new graph -------------------------------------------------------------------------------
 */

/* Cheap to write again where it is used: constants, reads, and what is computed of constants. */
static void find_free(Cut *c) {
  c->free_node = ARENA_ARRAY(c->in.scratch, bool, c->in.g->nodes.len);
  for (NodeId id = 1; id < c->in.g->nodes.len; id++) {
    const Node *n = graph_node(c->in.g, id);
    const OpInfo *info = op_info(n->op);
    if (n->op == OP_READ) {
      c->free_node[id] = true;
      continue;
    }
    bool easy = info->lower == LOWER_ELEMENT || info->lower == LOWER_FREE ||
                info->cls == CLASS_POINTWISE || info->lower == LOWER_ALIAS ||
                info->lower == LOWER_TURN || info->lower == LOWER_VIEW;
    bool is_free = easy && n->nresults == 1 && !cutter_varies(&c->in, id);
    for (uint32_t i = 0; i < n->noperands && is_free; i++) {
      NodeId def = graph_value(c->in.g, n->operands[i])->node;
      is_free = c->free_node[def] && graph_node(c->in.g, def)->op != OP_READ;
    }
    c->free_node[id] = is_free;
  }
}

static uint64_t copy_key(ValueId v, uint32_t segment) {
  return (uint64_t)segment << 32 | v;
}

static ValueId in_segment(Cut *c, ValueId v, uint32_t segment);

static bool counts(const Cut *c, uint32_t segment) {
  return c->in.p->segments.data[segment].kind == SEGMENT_COUNT;
}

/* The node again, in a segment; its results are those of this segment. */
static NodeId copy_node(Cut *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->in.g, old);
  ValueId *operands = ARENA_ARRAY(c->in.scratch, ValueId, n->noperands + 1);
  TensorType results[4];
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = in_segment(c, n->operands[i], segment);
  for (uint32_t i = 0; i < n->nresults && i < 4; i++)
    results[i] = *value_type(c->in.g, node_result(n, i));
  NodeId id = graph_add(c->out.to, n->op, operands, n->noperands, n->attrs, n->nattrs, results,
                        n->nresults, n->span, n->scope);
  Node *copy = graph_node(c->out.to, id);
  copy->phase = n->phase;
  copy->segment = segment;
  for (uint32_t i = 0; i < n->nresults; i++) {
    ValueId made = node_result(copy, i), was = node_result(n, i);
    graph_value(c->out.to, made)->name = graph_value(c->in.g, was)->name;
    id_map_put(c->in.scratch, &c->copies, copy_key(was, segment), made);
    if (!counts(c, segment)) c->out.value[was] = made; /* what counts has copies of its own */
  }
  return id;
}

/* An old value as a node of `segment` uses it. */
static ValueId in_segment(Cut *c, ValueId v, uint32_t segment) {
  uint32_t known;
  if (id_map_get(&c->copies, copy_key(v, segment), &known)) return known;
  NodeId def = graph_value(c->in.g, v)->node;
  if (c->free_node[def] || (counts(c, segment) && c->in.varies[v])) {
    copy_node(c, def, segment);
    id_map_get(&c->copies, copy_key(v, segment), &known);
    return known;
  }
  return graph_map_get(&c->out, v);
}

static void add_carry(Cut *c, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < c->in.p->carries.len; i++)
    if (c->in.p->carries.data[i].from == from && c->in.p->carries.data[i].to == to) return;
  VEC_PUSH(c->in.program->arena, &c->in.p->carries, ((Carry){from, to}));
}

/* Behind what makes a value: one post for each move of it to another stage. */
static void post(Cut *c, NodeId move, uint32_t segment) {
  const Node *n = graph_node(c->in.g, move);
  TensorType t = *value_type(c->in.g, n->operands[0]);
  ValueId x = in_segment(c, n->operands[0], segment);
  Channel channel = {.from = segment, .to = c->in.segment[move], .span = n->span};
  channel.name = graph_value(c->in.g, n->operands[0])->name;
  Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_I(CHANNEL, c->in.p->channels.len)};
  NodeId id = graph_add(c->out.to, OP_POST, &x, 1, attrs, 2, &t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->phase = n->phase;
  graph_node(c->out.to, id)->segment = segment;
  c->posted[move] = node_result(graph_node(c->out.to, id), 0);
  VEC_PUSH(c->in.program->arena, &c->in.p->channels, channel);
}

static void take(Cut *c, NodeId move, uint32_t segment) {
  const Node *n = graph_node(c->in.g, move);
  const TensorType *t = value_type(c->in.g, n->first_result);
  int64_t channel = node_int(value_node(c->out.to, c->posted[move]), ATTR_CHANNEL, 0);
  Attr attrs[] = {ATTR_T(TYPE, t), ATTR_I(CHANNEL, channel)};
  NodeId id =
      graph_add(c->out.to, OP_SEND_MESH, &c->posted[move], 1, attrs, 2, t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->phase = n->phase;
  graph_node(c->out.to, id)->segment = segment;
  graph_map_set(&c->out, n->first_result, node_result(graph_node(c->out.to, id), 0));
}

/* The count of the whole batch: added up in the segment before, read here. */
static void place_count(Cut *c, NodeId old) {
  const Node *n = graph_node(c->in.g, old);
  TensorType t = *value_type(c->in.g, n->first_result);
  Attr var = ATTR_I(VAR, node_int(n, ATTR_VAR, 0));
  NodeId id = graph_add(c->out.to, OP_READ, NULL, 0, &var, 1, &t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->segment = c->in.segment[old];
  graph_map_set(&c->out, n->first_result, node_result(graph_node(c->out.to, id), 0));
}

static void place_counting(Cut *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->in.g, old);
  Graph *g = c->out.to;
  TensorType t = *value_type(c->in.g, n->first_result);
  Attr var = ATTR_I(VAR, node_int(n, ATTR_VAR, 0));
  ValueId x = in_segment(c, n->operands[0], segment);
  NodeId read = graph_add(g, OP_READ, NULL, 0, &var, 1, &t, 1, n->span, n->scope);
  ValueId terms[] = {node_result(graph_node(g, read), 0), x};
  NodeId sum = graph_add(g, OP_ADD, terms, 2, NULL, 0, &t, 1, n->span, n->scope);
  ValueId total = node_result(graph_node(g, sum), 0);
  NodeId end = graph_add(g, OP_ASSIGN, &total, 1, &var, 1, NULL, 0, n->span, n->scope);
  graph_node(g, read)->segment = graph_node(g, sum)->segment = graph_node(g, end)->segment =
      segment;
}

typedef VEC(NodeId) NodeList;

static void emit_node(Cut *c, NodeId id, uint32_t segment, const NodeList *moves) {
  const Node *n = graph_node(c->in.g, id);
  if (cutter_crosses(&c->in, id))
    take(c, id, segment);
  else if (n->op == OP_MICRO_SUM)
    place_count(c, id);
  else
    copy_node(c, id, segment);
  for (uint32_t i = 0; i < moves->len; i++) post(c, moves->data[i], segment);
}

/* Per node, the moves to other stages of its results. */
static NodeList *find_moves(Cut *c) {
  NodeList *moves = ARENA_ARRAY(c->in.scratch, NodeList, c->in.g->nodes.len);
  for (NodeId id = 1; id < c->in.g->nodes.len; id++) {
    if (!cutter_crosses(&c->in, id)) continue;
    NodeId def = graph_value(c->in.g, graph_node(c->in.g, id)->operands[0])->node;
    VEC_PUSH(c->in.scratch, &moves[def], id);
  }
  return moves;
}

/* Every batch counts from zero. */
static void place_zero(Cut *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->in.g, old);
  Graph *g = c->out.to;
  TensorType t = *value_type(c->in.g, n->first_result);
  Attr var = ATTR_I(VAR, node_int(n, ATTR_VAR, 0)), full[] = {ATTR_T(TYPE, &t), ATTR_F(VALUE, 0)};
  NodeId zero = graph_add(g, OP_FULL, NULL, 0, full, 2, &t, 1, n->span, n->scope);
  ValueId value = node_result(graph_node(g, zero), 0);
  NodeId end = graph_add(g, OP_ASSIGN, &value, 1, &var, 1, NULL, 0, n->span, n->scope);
  graph_node(g, zero)->segment = graph_node(g, end)->segment = segment;
}

static void emit_counting(Cut *c, uint32_t segment) {
  SegmentKind kind = c->in.p->segments.data[segment].kind;
  for (NodeId id = 1; id < c->in.g->nodes.len; id++) {
    if (!c->in.live[id] || graph_node(c->in.g, id)->op != OP_MICRO_SUM) continue;
    if (kind == SEGMENT_PROLOGUE) place_zero(c, id, segment);
    if (kind == SEGMENT_COUNT) place_counting(c, id, segment);
  }
}

static void rebuild(Cut *c) {
  const NodeList *moves = find_moves(c);
  uint32_t n = c->in.p->segments.len;
  NodeList *of = ARENA_ARRAY(c->in.scratch, NodeList, n);
  for (NodeId id = 1; id < c->in.g->nodes.len; id++)
    if (c->in.live[id] && !c->free_node[id]) VEC_PUSH(c->in.scratch, &of[c->in.segment[id]], id);
  c->posted = ARENA_ARRAY(c->in.scratch, ValueId, c->in.g->nodes.len);
  c->out = graph_map_begin(c->in.scratch, c->in.program->arena, c->in.g);
  for (uint32_t i = 1; i <= n; i++) { /* ONCE comes last */
    uint32_t s = i % n;
    emit_counting(c, s);
    for (uint32_t k = 0; k < of[s].len; k++) emit_node(c, of[s].data[k], s, &moves[of[s].data[k]]);
  }
}

/* Carries, and whether every operand comes from the same segment or from one before. */
static const char *check_order(Cut *c) {
  const Graph *g = c->out.to;
  uint32_t n = c->in.p->segments.len;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *node = graph_node(g, id);
    for (uint32_t i = 0; i < node->noperands; i++) {
      uint32_t from = value_node(g, node->operands[i])->segment, to = node->segment;
      if ((from ? from : n) > (to ? to : n))
        return arena_printf(c->in.scratch, "%s of segment %u uses %s of segment %u",
                            op_name(node->op), to, op_name(value_node(g, node->operands[i])->op),
                            from);
      SegmentKind kind = c->in.p->segments.data[from].kind;
      if (from != to && kind >= SEGMENT_FORWARD && kind <= SEGMENT_WEIGHT &&
          c->in.p->segments.data[to].stage == c->in.p->segments.data[from].stage)
        add_carry(c, from, to);
    }
  }
  return NULL;
}

static bool cut(Cut *c) {
  if (!cutter_begin(&c->in) || !check_places(c)) return false;
  cutter_assign(&c->in);
  find_free(c);
  if (!cutter_check_counts(&c->in)) return false;
  rebuild(c);
  const char *fault = check_order(c);
  return !fault || cutter_fail(&c->in, c->in.span, fault,
                               "please report this program: it is a fault of dtmc");
}

/* Sources that are read on parts of their mesh only are no longer read where they were declared. */
static void drop_sources(Cut *c) {
  ProgramBlock *b = &c->in.program->block[BLOCK_TRAIN];
  uint32_t *moved = ARENA_ARRAY(c->in.scratch, uint32_t, b->data.len), kept = 0;
  for (NodeId id = 1; id < c->out.to->nodes.len; id++) {
    const Node *n = graph_node(c->out.to, id);
    if (n->op == OP_INPUT) moved[node_int(n, ATTR_SOURCE, 0)] = 1;
  }
  for (uint32_t i = 0; i < b->data.len; i++) {
    if (!moved[i]) continue;
    moved[i] = kept;
    b->data.data[kept++] = b->data.data[i];
  }
  b->data.len = kept;
  for (NodeId id = 1; id < c->out.to->nodes.len; id++) {
    Node *n = graph_node(c->out.to, id);
    if (n->op != OP_INPUT) continue;
    Attr *attrs = ARENA_ARRAY(c->in.program->arena, Attr, n->nattrs);
    memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
    for (uint32_t i = 0; i < n->nattrs; i++)
      if (attrs[i].key == ATTR_SOURCE) attrs[i].as.i = moved[attrs[i].as.i];
    n->attrs = attrs;
  }
}

bool pipeline_cut(Program *program, DiagSink *sink) {
  ProgramBlock *b = &program->block[BLOCK_TRAIN];
  Pipeline asked;
  if (!b->graph || !cutter_asked(program, &asked)) return true;
  Arena scratch;
  arena_init(&scratch);
  Pipeline *p = ARENA_NEW(program->arena, Pipeline);
  *p = asked;
  ValueId keep[] = {b->loss, b->optimizer.lr};
  Cut c = {.in = {.scratch = &scratch, .program = program, .sink = sink, .p = p}};
  c.in.g = pipeline_localise(&scratch, program, b->graph, keep, 2);
  c.in.varies = graph_varying(&scratch, c.in.g);
  c.in.live = pipeline_live(&scratch, c.in.g);
  bool ok = cut(&c);
  if (ok) {
    b->graph = c.out.to;
    drop_sources(&c);
    b->loss = 0; /* it was handed out */
    b->optimizer.lr = in_segment(&c, keep[1], 0);
    b->pipeline = p;
    ok = schedule_build(program->arena, p, c.in.span, sink);
  }
  arena_free(&scratch);
  return ok;
}
