/* Which segment each node of train belongs to: see cutter.h.
 *
 * Stages are numbered in the order in which the forward pass first leaves them. A forward node
 * belongs to the chunk its operands reach it in: a move to a later stage keeps the chunk, one to an
 * earlier stage begins the next. Data waits for its first user. A backward node belongs to the
 * earliest chunk that still serves all who use it, and so does what is recomputed; sums of
 * gradients to the chunk whose forward part used the parameter first.
 */
#include "spmd/cutter.h"

#include <string.h>

bool cutter_varies(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  if (n->nresults) return c->varies[n->first_result];
  for (uint32_t i = 0; i < n->noperands; i++)
    if (c->varies[n->operands[i]]) return true;
  return false;
}

bool cutter_per_micro(const Cutter *c, NodeId id) {
  return c->live[id] && graph_node(c->g, id)->phase <= PHASE_BACKWARD && cutter_varies(c, id);
}

static uint32_t stage_of_value(const Cutter *c, ValueId v) {
  uint32_t s = c->stage[v];
  return s == NO_STAGE ? s : c->order[s];
}

/* The stage a node runs on. */
uint32_t cutter_stage(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  return stage_of_value(c, n->nresults ? n->first_result : n->operands[0]);
}

bool cutter_fail(Cutter *c, Span span, const char *reason, const char *help) {
  Diag *d = diag_emit(c->sink, DIAG_PIPELINE, span, "this does not go into a pipeline");
  diag_reason(c->sink, d, "%s", reason);
  diag_help(c->sink, d, (Span){0}, NULL, NULL, "%s", help);
  return false;
}

bool cutter_on_several(Cutter *c, Span span, const Mesh *mesh) {
  return cutter_fail(
      c, span,
      arena_printf(c->scratch,
                   "its value depends on data and lies on %s, the ranks of several stages",
                   mesh->name),
      "move it to a stage with redistribute(mesh = ...) before it is used, or put the data "
      "there");
}

bool cutter_assigned(Cutter *c, Span span) {
  return cutter_fail(c, span, "it assigns what depends on a micro-batch to a variable",
                     "train without micro-batches");
}

bool cutter_asked(const Program *program, Pipeline *p) {
  const RunSettings *set = &program->block[BLOCK_TRAIN].settings;
  if (set->microbatches <= 1 && !set->schedule) return false;
  *p = (Pipeline){.microbatches = (uint32_t)set->microbatches, .chunks = 1};
  p->schedule = set->schedule ? set->schedule : "1f1b";
  p->apart = schedule_is_apart(p->schedule);
  return true;
}

/* Values in a row mostly are on one mesh. */
static void find_stages(Cutter *c) {
  c->stage = ARENA_ARRAY(c->scratch, uint32_t, c->g->values.len);
  const Mesh *mesh = NULL;
  uint32_t stage = NO_STAGE;
  for (ValueId v = 1; v < c->g->values.len; v++) {
    if (value_type(c->g, v)->mesh != mesh) {
      mesh = value_type(c->g, v)->mesh;
      stage = stage_of(&c->map, mesh);
    }
    c->stage[v] = stage;
  }
}

bool cutter_begin(Cutter *c) {
  const ProgramBlock *b = &c->program->block[BLOCK_TRAIN];
  uint32_t nodes = c->g->nodes.len;
  const char *fault = NULL;
  c->span = b->settings.schedule_span.file ? b->settings.schedule_span : b->optimizer.span;
  if (!stages_find(c->scratch, c->program, c->g, c->varies, c->live, &c->map, &fault))
    return cutter_fail(c, c->span, fault,
                       "stages are meshes without a common rank: world.unbind(\"pp\")");
  find_stages(c);
  c->chunk = ARENA_ARRAY(c->scratch, uint32_t, nodes);
  memset(c->chunk, 0xff, sizeof *c->chunk * nodes);
  c->segment = ARENA_ARRAY(c->scratch, uint32_t, nodes);
  c->sent_on = ARENA_ARRAY(c->scratch, bool, nodes);
  return true;
}

/* --- stages --------------------------------------------------------------------------------------
 */

/* Stages by the number of moves after which the forward pass first leaves them. */
static void order_stages(Cutter *c) {
  uint32_t n = c->map.nstages;
  uint32_t *first = ARENA_ARRAY(c->scratch, uint32_t, n + 1);
  uint32_t *level = ARENA_ARRAY(c->scratch, uint32_t, c->g->values.len);
  c->order = ARENA_ARRAY(c->scratch, uint32_t, n + 1);
  for (uint32_t s = 0; s < n; s++) first[s] = UNSET;
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *node = graph_node(c->g, id);
    if (!cutter_per_micro(c, id) || node->phase != PHASE_FORWARD || !node->nresults) continue;
    uint32_t to = c->stage[node->first_result], most = 0;
    for (uint32_t i = 0; i < node->noperands; i++) {
      ValueId x = node->operands[i];
      if (!c->varies[x]) continue;
      uint32_t from = c->stage[x], at = level[x];
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
    if (!cutter_per_micro(c, id) || n->phase != PHASE_FORWARD) continue;
    uint32_t to = cutter_stage(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]]) continue;
      uint32_t from = cutter_stage(c, def), at = c->chunk[def];
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
    if (!cutter_per_micro(c, id) || n->phase != PHASE_FORWARD) continue;
    if (c->chunk[id] == UNSET) c->chunk[id] = latest[id] == UNSET ? 0 : latest[id];
    uint32_t to = cutter_stage(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]]) continue;
      uint32_t at = c->chunk[id];
      if (cutter_stage(c, def) > to && at > 0) at--;
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
    bool varies = cutter_varies(c, id);
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
    if (!cutter_per_micro(c, id) || n->phase == PHASE_FORWARD) continue;
    if (c->chunk[id] == UNSET) {
      const Var *v = &c->program->vars.data[n->op == OP_ASSIGN ? node_int(n, ATTR_VAR, 0) : 0];
      uint32_t at = n->op == OP_ASSIGN ? first[v->param] : UNSET;
      c->chunk[id] = at == UNSET ? 0 : at;
    }
    uint32_t to = cutter_stage(c, id);
    for (uint32_t i = 0; i < n->noperands; i++) {
      NodeId def = graph_value(c->g, n->operands[i])->node;
      if (!c->varies[n->operands[i]] || graph_node(c->g, def)->phase == PHASE_FORWARD) continue;
      uint32_t at = c->chunk[id] + (cutter_stage(c, def) < to);
      if (c->chunk[def] == UNSET || at > c->chunk[def]) c->chunk[def] = at;
      c->sent_on[def] |= c->sent_on[id] || cutter_stage(c, def) != to;
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

void cutter_assign(Cutter *c) {
  order_stages(c);
  forward_chunks(c);
  float_forward(c);
  backward_chunks(c);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    bool cut_up = c->live[id] && cutter_varies(c, id) && c->chunk[id] != UNSET;
    if (cut_up && c->chunk[id] + 1 > c->p->chunks) c->p->chunks = c->chunk[id] + 1;
  }
  number_segments(c);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    SegmentKind kind = SEGMENT_ONCE;
    if (cutter_per_micro(c, id)) {
      bool apart = c->p->apart && !c->sent_on[id];
      kind = n->phase == PHASE_FORWARD ? SEGMENT_FORWARD
             : apart                   ? SEGMENT_WEIGHT
                                       : SEGMENT_BACKWARD;
      c->segment[id] = pipeline_segment(c->p, kind, cutter_stage(c, id), c->chunk[id]);
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

bool cutter_crosses(const Cutter *c, NodeId id) {
  const Node *n = graph_node(c->g, id);
  return (n->op == OP_SEND_MESH || n->op == OP_REDISTRIBUTE) && cutter_per_micro(c, id) &&
         c->varies[n->operands[0]] &&
         stage_of_value(c, n->operands[0]) != stage_of_value(c, n->first_result);
}

bool cutter_check_counts(Cutter *c) {
  bool *counted = ARENA_ARRAY(c->scratch, bool, c->g->values.len);
  for (NodeId id = c->g->nodes.len; id-- > 1;) {
    const Node *n = graph_node(c->g, id);
    bool wanted = n->op == OP_MICRO_SUM && c->live[id];
    for (uint32_t i = 0; i < n->nresults; i++) wanted |= counted[node_result(n, i)];
    if (wanted && cutter_crosses(c, id))
      return cutter_fail(
          c, n->span,
          "the labels of the loss come from another stage, but how many of them count must be "
          "known before the first micro-batch",
          "read the labels on the stage of the loss: data on the world, or `on` that stage");
    for (uint32_t i = 0; wanted && i < n->noperands; i++) counted[n->operands[i]] = true;
  }
  return true;
}
