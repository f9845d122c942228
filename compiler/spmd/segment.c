/* Cutting a local graph into segments: see pipeline.h.
 *
 * In: the local graph of train, of one micro-batch. Out: the same computation, its nodes in the
 * order of their segments, moves between stages as post and take, what only constants and variables
 * lead to written again where it is used.
 *
 * Stages are numbered in the order in which the forward pass first leaves them. A forward node
 * belongs to the chunk its operands reach it in: a move to a later stage keeps the chunk, one to an
 * earlier stage begins the next. Data waits for its first user. A backward node belongs to the
 * earliest chunk that still serves all who use it, and so does what is recomputed; sums of
 * gradients to the chunk whose forward part used the parameter first. Invariant: an operand's
 * segment is not behind its user's.
 */
#include <string.h>

#include "place/place.h"
#include "spmd/stages.h"

enum { UNSET = UINT32_MAX };

typedef struct Cutter {
  Arena *scratch;
  Program *program;
  DiagSink *sink;
  const Graph *g;
  Pipeline *p;
  const bool *varies, *live;
  StageMap map;
  uint32_t *order;   /* per stage of the map: its number */
  uint32_t *chunk;   /* per node; UNSET where it has none yet */
  uint32_t *segment; /* per node */
  bool *free_node;   /* per node: made of constants and variables without work to speak of */
  bool *sent_on;     /* per node, backward: a move to another stage needs it */
  GraphMap out;
  IdMap copies;    /* value and segment -> copy there */
  ValueId *posted; /* per SEND_MESH node between stages: its outbox */
} Cutter;

static bool node_varies(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  if (n->nresults) return c->varies[n->first_result];
  for (uint32_t i = 0; i < n->noperands; i++)
    if (c->varies[n->operands[i]]) return true;
  return false;
}

static bool per_micro(const Cutter *c, NodeId id) {
  return c->live[id] && graph_node(c->g, id)->phase <= PHASE_BACKWARD && node_varies(c, id);
}

static uint32_t stage_of_value(const Cutter *c, ValueId v) {
  uint32_t s = stage_of(&c->map, value_type(c->g, v)->mesh);
  return s == NO_STAGE ? s : c->order[s];
}

/* The stage a node runs on. */
static uint32_t stage_at(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  return stage_of_value(c, n->nresults ? n->first_result : n->operands[0]);
}

/* --- which stages there are ----------------------------------------------------------------------
 */

static bool fail(Cutter *c, Span span, const char *reason, const char *help) {
  Diag *d = diag_emit(c->sink, DIAG_PIPELINE, span, "this does not go into a pipeline");
  diag_reason(c->sink, d, "%s", reason);
  diag_help(c->sink, d, (Span){0}, NULL, NULL, "%s", help);
  return false;
}

static bool on_several(Cutter *c, Span span, const Mesh *mesh) {
  return fail(c, span,
              arena_printf(c->scratch,
                           "its value depends on data and lies on %s, the ranks of several stages",
                           mesh->name),
              "move it to a stage with redistribute(mesh = ...) before it is used, or put the data "
              "there");
}

static bool is_assigned(Cutter *c, Span span) {
  return fail(c, span, "it assigns what depends on a micro-batch to a variable",
              "train without micro-batches");
}

static bool check_places(Cutter *c) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!c->live[id] || !node_varies(c, id)) continue;
    if (n->phase > PHASE_BACKWARD)
      return fail(c, n->span, "it is wanted once per step, but there is one of each micro-batch",
                  "hand out losses and metrics that are means over samples");
    ValueId v = n->nresults ? n->first_result : n->operands[0];
    if (stage_of(&c->map, value_type(c->g, v)->mesh) == NO_STAGE)
      return on_several(c, n->span, value_type(c->g, v)->mesh);
    if (n->op == OP_ASSIGN &&
        c->program->vars.data[node_int(n, ATTR_VAR, 0)].kind != VAR_ACCUMULATOR)
      return is_assigned(c, n->span);
  }
  return true;
}

/* Stages by the number of moves after which the forward pass first leaves them. */
static void order_stages(Cutter *c) {
  uint32_t n = c->map.nstages;
  uint32_t *first = ARENA_ARRAY(c->scratch, uint32_t, n + 1);
  uint32_t *level = ARENA_ARRAY(c->scratch, uint32_t, c->g->values.len);
  c->order = ARENA_ARRAY(c->scratch, uint32_t, n + 1);
  for (uint32_t s = 0; s < n; s++) first[s] = UNSET;
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *node = graph_node(c->g, id);
    if (!per_micro(c, id) || node->phase != PHASE_FORWARD || !node->nresults) continue;
    uint32_t to = stage_of(&c->map, value_type(c->g, node->first_result)->mesh), most = 0;
    for (uint32_t i = 0; i < node->noperands; i++) {
      ValueId x = node->operands[i];
      if (!c->varies[x]) continue;
      uint32_t from = stage_of(&c->map, value_type(c->g, x)->mesh), at = level[x];
      if (from != to && at < first[from]) first[from] = at;
      at += from != to;
      if (at > most) most = at;
    }
    for (uint32_t r = 0; r < node->nresults; r++) level[node_result(node, r)] = most;
  }
  for (uint32_t s = 0; s < n; s++) {
    uint32_t before = 0;
    for (uint32_t t = 0; t < n; t++)
      before += first[t] < first[s] || (first[t] == first[s] && t < s);
    c->order[s] = before;
  }
  VEC_RESERVE(c->program->arena, &c->p->stages, n);
  c->p->stages.len = n;
  for (uint32_t s = 0; s < n; s++)
    c->p->stages.data[c->order[s]] = (PipeStage){.mesh = c->map.ranks[s]};
}

/* --- chunks --------------------------------------------------------------------------------------
 */

/* Forward: from operands to users. */
static void forward_chunks(Cutter *c) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!per_micro(c, id) || n->phase != PHASE_FORWARD) continue;
    uint32_t to = stage_at(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]]) continue;
      uint32_t from = stage_at(c, def), at = c->chunk[def];
      if (from == to && at == UNSET) continue; /* no move has led here */
      if (at == UNSET) at = 0;
      if (to < from) at++;
      if (c->chunk[id] == UNSET || at > c->chunk[id]) c->chunk[id] = at;
    }
  }
}

/* What no move led to waits for its first user: `latest` per node. */
static void float_forward(Cutter *c) {
  uint32_t *latest = ARENA_ARRAY(c->scratch, uint32_t, c->g->nodes.len);
  memset(latest, 0xff, sizeof *latest * c->g->nodes.len);
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    if (!per_micro(c, id) || n->phase != PHASE_FORWARD) continue;
    if (c->chunk[id] == UNSET) c->chunk[id] = latest[id] == UNSET ? 0 : latest[id];
    uint32_t to = stage_at(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]]) continue;
      uint32_t at = c->chunk[id];
      if (stage_at(c, def) > to && at > 0) at--;
      if (at < latest[def]) latest[def] = at;
    }
  }
}

/* The first chunk whose forward part reads each variable. */
static uint32_t *first_readers(const Cutter *c) {
  uint32_t *first = ARENA_ARRAY(c->scratch, uint32_t, c->g->values.len);
  memset(first, 0xff, sizeof *first * c->g->values.len);
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    if (!c->live[id] || n->phase != PHASE_FORWARD) continue;
    bool varies = node_varies(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      ValueId x = n->operands[i];
      if (c->varies[x]) continue;
      uint32_t at = varies ? c->chunk[id] : n->nresults ? first[n->first_result] : UNSET;
      if (at < first[x]) first[x] = at;
    }
  }
  uint32_t *of_var = ARENA_ARRAY(c->scratch, uint32_t, c->program->vars.len);
  memset(of_var, 0xff, sizeof *of_var * c->program->vars.len);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (n->op != OP_READ || n->phase != PHASE_FORWARD) continue;
    int64_t var = node_int(n, ATTR_VAR, 0);
    if (first[n->first_result] < of_var[var]) of_var[var] = first[n->first_result];
  }
  return of_var;
}

/* Backward: from users to operands, as early as all users need it. */
static void backward_chunks(Cutter *c) {
  const uint32_t *first = first_readers(c);
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    if (!per_micro(c, id) || n->phase == PHASE_FORWARD) continue;
    if (c->chunk[id] == UNSET) {
      const Var *v = &c->program->vars.data[n->op == OP_ASSIGN ? node_int(n, ATTR_VAR, 0) : 0];
      uint32_t at = n->op == OP_ASSIGN ? first[v->param] : UNSET;
      c->chunk[id] = at == UNSET ? 0 : at;
    }
    uint32_t to = stage_at(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]] || graph_node(c->g, def)->phase == PHASE_FORWARD) continue;
      uint32_t at = c->chunk[id] + (stage_at(c, def) < to);
      if (c->chunk[def] == UNSET || at > c->chunk[def]) c->chunk[def] = at;
      c->sent_on[def] |= c->sent_on[id] || stage_at(c, def) != to;
    }
  }
}

/* --- segments ------------------------------------------------------------------------------------
 */

uint32_t pipeline_segment(const Pipeline *p, SegmentKind kind, uint32_t stage, uint32_t chunk) {
  for (uint32_t i = 1; i < p->segments.len; i++) {
    const Segment *s = &p->segments.data[i];
    if (s->kind == kind && s->stage == stage && s->chunk == chunk) return i;
  }
  return 0;
}

static void add_segment(Cutter *c, SegmentKind kind, uint32_t stage, uint32_t chunk) {
  Segment s = {.kind = kind, .stage = stage, .chunk = chunk};
  VEC_PUSH(c->program->arena, &c->p->segments, s);
}

static void number_segments(Cutter *c) {
  uint32_t stages = c->map.nstages;
  add_segment(c, SEGMENT_ONCE, 0, 0);
  add_segment(c, SEGMENT_PROLOGUE, 0, 0);
  add_segment(c, SEGMENT_COUNT, 0, 0);
  for (uint32_t k = 0; k < c->p->chunks; k++)
    for (uint32_t s = 0; s < stages; s++) add_segment(c, SEGMENT_FORWARD, s, k);
  for (uint32_t k = c->p->chunks; k-- > 0;)
    for (uint32_t s = stages; s-- > 0;) {
      add_segment(c, SEGMENT_BACKWARD, s, k);
      if (c->p->apart) add_segment(c, SEGMENT_WEIGHT, s, k);
    }
  add_segment(c, SEGMENT_REPORT, 0, 0);
}

/* Cheap to write again where it is used: constants, reads, and what is computed of constants. */
static void find_free(Cutter *c) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    const OpInfo *info = op_info(n->op);
    if (n->op == OP_READ) {
      c->free_node[id] = true;
      continue;
    }
    bool easy = info->lower == LOWER_ELEMENT || info->lower == LOWER_FREE ||
                info->cls == CLASS_POINTWISE || info->lower == LOWER_ALIAS ||
                info->lower == LOWER_TURN || info->lower == LOWER_VIEW;
    bool is_free = easy && n->nresults == 1 && !node_varies(c, id);
    for (uint32_t i = 0; i < n->noperands && is_free; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      is_free = c->free_node[def] && graph_node(c->g, def)->op != OP_READ;
    }
    c->free_node[id] = is_free;
  }
}

static void assign_segments(Cutter *c) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    bool cut_up = c->live[id] && node_varies(c, id) && c->chunk[id] != UNSET;
    if (cut_up && c->chunk[id] + 1 > c->p->chunks) c->p->chunks = c->chunk[id] + 1;
  }
  number_segments(c);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    SegmentKind kind = SEGMENT_ONCE;
    if (per_micro(c, id)) {
      bool apart = c->p->apart && !c->sent_on[id];
      kind = n->phase == PHASE_FORWARD ? SEGMENT_FORWARD
             : apart                   ? SEGMENT_WEIGHT
                                       : SEGMENT_BACKWARD;
      c->segment[id] = pipeline_segment(c->p, kind, stage_at(c, id), c->chunk[id]);
      continue;
    }
    if (n->op == OP_OUTPUT)
      kind = SEGMENT_REPORT;
    else if (n->phase <= PHASE_BACKWARD && n->nresults)
      kind = SEGMENT_PROLOGUE;
    c->segment[id] = kind == SEGMENT_ONCE ? 0 : pipeline_segment(c->p, kind, 0, 0);
  }
  /* What a report needs of what runs once per step. */
  uint32_t report = c->p->segments.len - 1;
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    for (uint32_t i = 0; c->segment[id] == report && i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (c->segment[def] == 0) c->segment[def] = report;
    }
  }
}

/* --- the new graph -------------------------------------------------------------------------------
 */

static uint64_t copy_key(ValueId v, uint32_t segment) {
  return (uint64_t)segment << 32 | v;
}

static ValueId in_segment(Cutter *c, ValueId v, uint32_t segment);

static bool counts(const Cutter *c, uint32_t segment) {
  return c->p->segments.data[segment].kind == SEGMENT_COUNT;
}

/* The node again, in a segment; its results are those of this segment. */
static NodeId copy_node(Cutter *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->g, old);
  ValueId *operands = ARENA_ARRAY(c->scratch, ValueId, n->noperands + 1);
  TensorType results[4];
  for (uint32_t i = 0; i < n->noperands; i++) operands[i] = in_segment(c, n->operands[i], segment);
  for (uint32_t i = 0; i < n->nresults && i < 4; i++)
    results[i] = *value_type(c->g, node_result(n, i));
  NodeId id = graph_add(c->out.to, n->op, operands, n->noperands, n->attrs, n->nattrs, results,
                        n->nresults, n->span, n->scope);
  Node *copy = graph_node(c->out.to, id);
  copy->phase = n->phase;
  copy->segment = segment;
  for (uint32_t i = 0; i < n->nresults; i++) {
    ValueId made = node_result(copy, i), was = node_result(n, i);
    graph_value(c->out.to, made)->name = graph_value(c->g, was)->name;
    id_map_put(c->scratch, &c->copies, copy_key(was, segment), made);
    if (!counts(c, segment)) c->out.value[was] = made; /* what counts has copies of its own */
  }
  return id;
}

/* An old value as a node of `segment` uses it. */
static ValueId in_segment(Cutter *c, ValueId v, uint32_t segment) {
  uint32_t known;
  if (id_map_get(&c->copies, copy_key(v, segment), &known)) return known;
  NodeId def = graph_value(c->g, v)->node;
  if (c->free_node[def] || (counts(c, segment) && c->varies[v])) {
    copy_node(c, def, segment);
    id_map_get(&c->copies, copy_key(v, segment), &known);
    return known;
  }
  return graph_map_get(&c->out, v);
}

static void add_carry(Cutter *c, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < c->p->carries.len; i++)
    if (c->p->carries.data[i].from == from && c->p->carries.data[i].to == to) return;
  VEC_PUSH(c->program->arena, &c->p->carries, ((Carry){from, to}));
}

/* A move between stages of what differs between micro-batches. */
static bool crosses(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  return (n->op == OP_SEND_MESH || n->op == OP_REDISTRIBUTE) && per_micro(c, id) &&
         c->varies[n->operands[0]] &&
         stage_of_value(c, n->operands[0]) != stage_of_value(c, n->first_result);
}

/* Behind what makes a value: one post for each move of it to another stage. */
static void post(Cutter *c, NodeId move, uint32_t segment) {
  const Node *n = graph_node(c->g, move);
  TensorType t = *value_type(c->g, n->operands[0]);
  ValueId x = in_segment(c, n->operands[0], segment);
  Channel channel = {.from = segment, .to = c->segment[move], .span = n->span};
  channel.name = graph_value(c->g, n->operands[0])->name;
  Attr attrs[] = {ATTR_T(TYPE, &t), ATTR_I(CHANNEL, c->p->channels.len)};
  NodeId id = graph_add(c->out.to, OP_POST, &x, 1, attrs, 2, &t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->phase = n->phase;
  graph_node(c->out.to, id)->segment = segment;
  c->posted[move] = node_result(graph_node(c->out.to, id), 0);
  VEC_PUSH(c->program->arena, &c->p->channels, channel);
}

static void take(Cutter *c, NodeId move, uint32_t segment) {
  const Node *n = graph_node(c->g, move);
  const TensorType *t = value_type(c->g, n->first_result);
  int64_t channel = node_int(value_node(c->out.to, c->posted[move]), ATTR_CHANNEL, 0);
  Attr attrs[] = {ATTR_T(TYPE, t), ATTR_I(CHANNEL, channel)};
  NodeId id =
      graph_add(c->out.to, OP_SEND_MESH, &c->posted[move], 1, attrs, 2, t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->phase = n->phase;
  graph_node(c->out.to, id)->segment = segment;
  graph_map_set(&c->out, n->first_result, node_result(graph_node(c->out.to, id), 0));
}

/* The count of the whole batch: added up in the segment before, read here. */
static void place_count(Cutter *c, NodeId old) {
  const Node *n = graph_node(c->g, old);
  TensorType t = *value_type(c->g, n->first_result);
  Attr var = ATTR_I(VAR, node_int(n, ATTR_VAR, 0));
  NodeId id = graph_add(c->out.to, OP_READ, NULL, 0, &var, 1, &t, 1, n->span, n->scope);
  graph_node(c->out.to, id)->segment = c->segment[old];
  graph_map_set(&c->out, n->first_result, node_result(graph_node(c->out.to, id), 0));
}

static void place_counting(Cutter *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->g, old);
  Graph *g = c->out.to;
  TensorType t = *value_type(c->g, n->first_result);
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

static void emit_node(Cutter *c, NodeId id, uint32_t segment, const NodeList *moves) {
  const Node *n = graph_node(c->g, id);
  if (crosses(c, id))
    take(c, id, segment);
  else if (n->op == OP_MICRO_SUM)
    place_count(c, id);
  else
    copy_node(c, id, segment);
  for (uint32_t i = 0; i < moves->len; i++) post(c, moves->data[i], segment);
}

/* Per node, the moves to other stages of its results. */
static NodeList *find_moves(Cutter *c) {
  NodeList *moves = ARENA_ARRAY(c->scratch, NodeList, c->g->nodes.len);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    if (!crosses(c, id)) continue;
    NodeId def = graph_value(c->g, graph_node(c->g, id)->operands[0])->node;
    VEC_PUSH(c->scratch, &moves[def], id);
  }
  return moves;
}

/* Every batch counts from zero. */
static void place_zero(Cutter *c, NodeId old, uint32_t segment) {
  const Node *n = graph_node(c->g, old);
  Graph *g = c->out.to;
  TensorType t = *value_type(c->g, n->first_result);
  Attr var = ATTR_I(VAR, node_int(n, ATTR_VAR, 0)), full[] = {ATTR_T(TYPE, &t), ATTR_F(VALUE, 0)};
  NodeId zero = graph_add(g, OP_FULL, NULL, 0, full, 2, &t, 1, n->span, n->scope);
  ValueId value = node_result(graph_node(g, zero), 0);
  NodeId end = graph_add(g, OP_ASSIGN, &value, 1, &var, 1, NULL, 0, n->span, n->scope);
  graph_node(g, zero)->segment = graph_node(g, end)->segment = segment;
}

static void emit_counting(Cutter *c, uint32_t segment) {
  SegmentKind kind = c->p->segments.data[segment].kind;
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    if (!c->live[id] || graph_node(c->g, id)->op != OP_MICRO_SUM) continue;
    if (kind == SEGMENT_PROLOGUE) place_zero(c, id, segment);
    if (kind == SEGMENT_COUNT) place_counting(c, id, segment);
  }
}

static void rebuild(Cutter *c) {
  const NodeList *moves = find_moves(c);
  uint32_t n = c->p->segments.len;
  NodeList *of = ARENA_ARRAY(c->scratch, NodeList, n);
  for (NodeId id = 1; id < c->g->nodes.len; id++)
    if (c->live[id] && !c->free_node[id]) VEC_PUSH(c->scratch, &of[c->segment[id]], id);
  c->posted = ARENA_ARRAY(c->scratch, ValueId, c->g->nodes.len);
  c->out = graph_map_begin(c->scratch, c->program->arena, c->g);
  for (uint32_t i = 1; i <= n; i++) { /* ONCE comes last */
    uint32_t s = i % n;
    emit_counting(c, s);
    for (uint32_t k = 0; k < of[s].len; k++) emit_node(c, of[s].data[k], s, &moves[of[s].data[k]]);
  }
}

/* Carries, and whether every operand comes from the same segment or from one before. */
static const char *check_order(Cutter *c) {
  const Graph *g = c->out.to;
  uint32_t n = c->p->segments.len;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *node = graph_node(g, id);
    for (uint32_t i = 0; i < node->noperands; i++) {
      uint32_t from = value_node(g, node->operands[i])->segment, to = node->segment;
      if ((from ? from : n) > (to ? to : n))
        return arena_printf(c->scratch, "%s of segment %u uses %s of segment %u", op_name(node->op),
                            to, op_name(value_node(g, node->operands[i])->op), from);
      SegmentKind kind = c->p->segments.data[from].kind;
      if (from != to && kind >= SEGMENT_FORWARD && kind <= SEGMENT_WEIGHT &&
          c->p->segments.data[to].stage == c->p->segments.data[from].stage)
        add_carry(c, from, to);
    }
  }
  return NULL;
}

/* A count that another stage would have to send cannot be there before the first micro-batch. */
static bool check_counts(Cutter *c) {
  bool *counted = ARENA_ARRAY(c->scratch, bool, c->g->values.len);
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    bool wanted = n->op == OP_MICRO_SUM && c->live[id];
    for (uint32_t i = 0; i < n->nresults; i++) wanted |= counted[node_result(n, i)];
    if (wanted && crosses(c, id))
      return fail(
          c, n->span,
          "the labels of the loss come from another stage, but how many of them count must be "
          "known before the first micro-batch",
          "read the labels on the stage of the loss: data on the world, or `on` that stage");
    for (uint32_t i = 0; wanted && i < n->noperands; i++) counted[n->operands[i]] = true;
  }
  return true;
}

static bool cut(Cutter *c) {
  uint32_t nodes = c->g->nodes.len;
  const ProgramBlock *b = &c->program->block[BLOCK_TRAIN];
  const char *fault = NULL;
  Span span = b->settings.schedule_span.file ? b->settings.schedule_span : b->optimizer.span;
  c->varies = graph_varying(c->scratch, c->g);
  c->live = pipeline_live(c->scratch, c->g);
  if (!stages_find(c->scratch, c->program, c->g, c->varies, c->live, &c->map, &fault))
    return fail(c, span, fault, "stages are meshes without a common rank: world.unbind(\"pp\")");
  if (!check_places(c)) return false;
  c->chunk = ARENA_ARRAY(c->scratch, uint32_t, nodes);
  memset(c->chunk, 0xff, sizeof *c->chunk * nodes);
  c->segment = ARENA_ARRAY(c->scratch, uint32_t, nodes);
  c->free_node = ARENA_ARRAY(c->scratch, bool, nodes);
  c->sent_on = ARENA_ARRAY(c->scratch, bool, nodes);
  order_stages(c);
  forward_chunks(c);
  float_forward(c);
  backward_chunks(c);
  find_free(c);
  c->p->chunks = 1;
  assign_segments(c);
  if (!check_counts(c)) return false;
  rebuild(c);
  fault = check_order(c);
  return !fault || fail(c, span, fault, "please report this program: it is a fault of dtmc");
}

/* --- the forward pass alone, for dtmc check
 * -------------------------------------------------------
 */

/* What lies on the ranks of several stages must only be on its way to one: such data is read there
 * (pipeline_localise). Counts as what does not vary from here on: it has no stage. */
static bool check_forward_places(Cutter *c, bool *varies, ValueId loss) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!node_varies(c, id)) continue;
    if (n->op == OP_ASSIGN) return is_assigned(c, n->span);
    if (!n->nresults || stage_of(&c->map, value_type(c->g, n->first_result)->mesh) != NO_STAGE)
      continue;
    if (n->first_result == loss) return on_several(c, n->span, value_type(c->g, loss)->mesh);
  }
  for (ValueId v = 1; v < c->g->values.len; v++)
    if (varies[v] && stage_of(&c->map, value_type(c->g, v)->mesh) == NO_STAGE) varies[v] = false;
  return true;
}

/* Per value: a gradient comes back to it, from the loss to a parameter. */
static bool *find_active(Cutter *c, ValueId loss) {
  const Graph *g = c->g;
  bool *active = ARENA_ARRAY(c->scratch, bool, g->values.len);
  bool *wanted = ARENA_ARRAY(c->scratch, bool, g->values.len);
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    bool any =
        n->op == OP_READ && c->program->vars.data[node_int(n, ATTR_VAR, 0)].kind == VAR_PARAM;
    for (uint32_t i = 0; i < n->noperands; i++) any |= active[n->operands[i]];
    for (uint32_t r = 0; r < n->nresults; r++)
      active[node_result(n, r)] =
          any && n->op != OP_DETACH && dtype_is_float(value_type(g, node_result(n, r))->dtype);
  }
  wanted[loss] = true;
  for (NodeId id = g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(g, id);
    bool any = false;
    for (uint32_t r = 0; r < n->nresults; r++) any |= wanted[node_result(n, r)];
    for (uint32_t i = 0; any && i < n->noperands; i++) wanted[n->operands[i]] = true;
  }
  for (ValueId v = 1; v < g->values.len; v++) active[v] &= wanted[v];
  return active;
}

static void add_channel(Cutter *c, SegmentKind kind, NodeId from, NodeId to, Span span) {
  Channel channel = {.span = span};
  channel.from = pipeline_segment(c->p, kind, stage_at(c, from), c->chunk[from]);
  channel.to = pipeline_segment(c->p, kind, stage_at(c, to), c->chunk[to]);
  VEC_PUSH(c->scratch, &c->p->channels, channel);
}

/* Forward moves, and the way back of their gradients. */
static void list_channels(Cutter *c, ValueId loss) {
  const bool *active = find_active(c, loss);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!crosses(c, id)) continue;
    NodeId def = graph_value(c->g, n->operands[0])->node;
    add_channel(c, SEGMENT_FORWARD, def, id, n->span);
    if (active[n->first_result]) add_channel(c, SEGMENT_BACKWARD, id, def, n->span);
  }
}

static void add_stage_carries(Cutter *c) {
  for (uint32_t i = 1; i < c->p->segments.len; i++)
    for (uint32_t k = i + 1; k < c->p->segments.len; k++) {
      const Segment *a = &c->p->segments.data[i], *b = &c->p->segments.data[k];
      if (a->kind >= SEGMENT_FORWARD && a->kind < b->kind && b->kind <= SEGMENT_WEIGHT &&
          a->stage == b->stage && a->chunk == b->chunk)
        VEC_PUSH(c->scratch, &c->p->carries, ((Carry){i, k}));
    }
}

bool pipeline_check(const Program *program, DiagSink *sink) {
  const ProgramBlock *b = &program->block[BLOCK_TRAIN];
  const RunSettings *set = &b->settings;
  if (!b->graph || !b->loss || (set->microbatches <= 1 && !set->schedule)) return true;
  Arena scratch;
  arena_init(&scratch);
  Program within = *program; /* segments are listed in its arena */
  within.arena = &scratch;
  Pipeline p = {.microbatches = (uint32_t)set->microbatches, .chunks = 1};
  p.schedule = set->schedule ? set->schedule : "1f1b";
  p.apart = schedule_is_apart(p.schedule);
  uint32_t nodes = b->graph->nodes.len;
  Cutter c = {.scratch = &scratch, .program = &within, .sink = sink, .g = b->graph, .p = &p};
  bool *varies = graph_varying(&scratch, c.g), *live = ARENA_ARRAY(&scratch, bool, nodes);
  memset(live, true, nodes);
  c.varies = varies;
  c.live = live;
  c.chunk = ARENA_ARRAY(&scratch, uint32_t, nodes);
  memset(c.chunk, 0xff, sizeof *c.chunk * nodes);
  c.segment = ARENA_ARRAY(&scratch, uint32_t, nodes);
  c.sent_on = ARENA_ARRAY(&scratch, bool, nodes);
  const char *fault = NULL;
  Span span = set->schedule_span.file ? set->schedule_span : b->optimizer.span;
  bool ok = stages_find(&scratch, program, c.g, varies, live, &c.map, &fault) ||
            fail(&c, span, fault, "stages are meshes without a common rank: world.unbind(\"pp\")");
  if (ok && check_forward_places(&c, varies, b->loss)) {
    order_stages(&c);
    forward_chunks(&c);
    float_forward(&c);
    assign_segments(&c);
    add_stage_carries(&c);
    list_channels(&c, b->loss);
    ok = check_counts(&c) && schedule_build(&scratch, &p, span, sink);
  } else
    ok = false;
  arena_free(&scratch);
  return ok;
}

/* Sources that are read on parts of their mesh only are no longer read where they were declared. */
static void drop_sources(Cutter *c) {
  ProgramBlock *b = &c->program->block[BLOCK_TRAIN];
  uint32_t *moved = ARENA_ARRAY(c->scratch, uint32_t, b->data.len), kept = 0;
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
    Attr *attrs = ARENA_ARRAY(c->program->arena, Attr, n->nattrs);
    memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
    for (uint32_t i = 0; i < n->nattrs; i++)
      if (attrs[i].key == ATTR_SOURCE) attrs[i].as.i = moved[attrs[i].as.i];
    n->attrs = attrs;
  }
}

bool pipeline_cut(Program *program, DiagSink *sink) {
  ProgramBlock *b = &program->block[BLOCK_TRAIN];
  const RunSettings *set = &b->settings;
  if (!b->graph || (set->microbatches <= 1 && !set->schedule)) return true;
  Arena scratch;
  arena_init(&scratch);
  Pipeline *p = ARENA_NEW(program->arena, Pipeline);
  p->microbatches = (uint32_t)set->microbatches;
  p->schedule = set->schedule ? set->schedule : "1f1b";
  p->apart = schedule_is_apart(p->schedule);
  ValueId keep[] = {b->loss, b->optimizer.lr};
  Cutter c = {.scratch = &scratch, .program = program, .sink = sink, .p = p};
  c.g = pipeline_localise(&scratch, program, b->graph, keep, 2);
  bool ok = cut(&c);
  if (ok) {
    b->graph = c.out.to;
    drop_sources(&c);
    b->loss = 0; /* it was handed out */
    b->optimizer.lr = in_segment(&c, keep[1], 0);
    b->pipeline = p;
    ok = schedule_build(program->arena, p,
                        set->schedule_span.file ? set->schedule_span : b->optimizer.span, sink);
  }
  arena_free(&scratch);
  return ok;
}
