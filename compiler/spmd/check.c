/* What of a pipeline can be told from the forward pass alone: see pipeline.h. */
#include "spmd/cutter.h"

#include <string.h>

/* What lies on the ranks of several stages must only be on its way to one: such data is read there
 * (pipeline_localise). Counts as what does not vary from here on: it has no stage. */
static bool check_forward_places(Cutter *c, bool *varies, ValueId loss) {
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!cutter_varies(c, id)) continue;
    if (n->op == OP_ASSIGN) return cutter_assigned(c, n->span);
    if (!n->nresults || c->stage[n->first_result] != NO_STAGE) continue;
    if (n->first_result == loss) return cutter_on_several(c, n->span, value_type(c->g, loss)->mesh);
  }
  for (ValueId v = 1; v < c->g->values.len; v++)
    if (varies[v] && c->stage[v] == NO_STAGE) varies[v] = false;
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
  channel.from = pipeline_segment(c->p, kind, cutter_stage(c, from), c->chunk[from]);
  channel.to = pipeline_segment(c->p, kind, cutter_stage(c, to), c->chunk[to]);
  VEC_PUSH(c->scratch, &c->p->channels, channel);
}

/* Forward moves, and the way back of their gradients. */
static void list_channels(Cutter *c, ValueId loss) {
  const bool *active = find_active(c, loss);
  for (NodeId id = 1; id < c->g->nodes.len; id++) {
    const Node *n = graph_node(c->g, id);
    if (!cutter_crosses(c, id)) continue;
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
  Pipeline p;
  if (!b->graph || !b->loss || !cutter_asked(program, &p)) return true;
  Arena scratch;
  arena_init(&scratch);
  Program within = *program; /* segments are listed in its arena */
  within.arena = &scratch;
  uint32_t nodes = b->graph->nodes.len;
  Cutter c = {.scratch = &scratch, .program = &within, .sink = sink, .g = b->graph, .p = &p};
  bool *varies = graph_varying(&scratch, c.g), *live = ARENA_ARRAY(&scratch, bool, nodes);
  memset(live, true, nodes);
  c.varies = varies;
  c.live = live;
  bool ok = cutter_begin(&c) && check_forward_places(&c, varies, b->loss);
  if (ok) {
    cutter_assign(&c);
    add_stage_carries(&c);
    list_channels(&c, b->loss);
    ok = cutter_check_counts(&c) && schedule_build(&scratch, &p, c.span, sink);
  }
  arena_free(&scratch);
  return ok;
}
