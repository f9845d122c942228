/* What is begun ahead: see block.h.
 *
 * A collective in two halves, ABI_START and its own action, leaves the time between them to other
 * work. These are:
 *   - a step along a ring: begun before the attention that it overlaps with, over where its block
 * is used;
 *   - a gather of stored parameters: over where the first of them is used, begun when the gathers
 * of the block of the model before are over, hence before that block computes. So at most two
 *     blocks are whole at a time. Conversions of what is gathered move up with it;
 *   - a reduce-scatter of their gradients: begun when they are ready, over when those of the next
 *     block are; what is done with the pieces moves down with it. One is under way at a time.
 * Both halves lie in one part of the step. The memory that is written is held from the first half
 * on, as transports with engines of their own need it.
 */
#include <string.h>

#include "place/place.h"
#include "plan/block.h"

static const Node *node_of(const PlanBlock *b, uint32_t g) {
  return graph_node(b->fused->graph, b->fused->groups.data[g].node);
}

static int64_t bucket_of(const PlanBlock *b, uint32_t g) {
  return b->fused->groups.data[g].kind == GROUP_COLLECTIVE ? node_int(node_of(b, g), ATTR_BUCKET, 0)
                                                           : 0;
}

static bool is_scatter(const PlanBlock *b, uint32_t g) {
  return bucket_of(b, g) && group_op(b, g) == OP_REDUCE_SCATTER;
}

/* Of parameters, on their way to where they are used. */
static bool is_gather(const PlanBlock *b, uint32_t g) {
  Op op = group_op(b, g);
  Phase phase = group_phase(b, g);
  return bucket_of(b, g) && op != OP_REDUCE_SCATTER && op != OP_ALL_REDUCE &&
         phase != PHASE_REDUCE && phase != PHASE_OPTIMIZER;
}

static bool computes(const Group *g) {
  return g->kind == GROUP_CONTRACT || g->kind == GROUP_LIBRARY;
}

/* A way through an order. */
typedef struct Walk {
  PlanBlock *b;
  const uint32_t *order;
  uint32_t *made;  /* per value root: 1 + position of the group that makes it */
  int64_t *bucket; /* per value root: the bucket of the gather that makes it */
  uint32_t looped; /* behind the last position that runs per batch; updates may stand among these */
} Walk;

static Walk walk_begin(PlanBlock *b, const uint32_t *order) {
  uint32_t nvalues = b->fused->values.len;
  Walk w = {.b = b,
            .order = order,
            .made = ARENA_ARRAY(b->arena, uint32_t, nvalues),
            .bucket = ARENA_ARRAY(b->arena, int64_t, nvalues)};
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &b->fused->groups.data[order[p]];
    if (block_part(b, order[p]) == 0) w.looped = p + 1;
    for (uint32_t k = 0; k < g->noutputs && g->kind != GROUP_VIEW; k++)
      w.made[block_root(b, g->outputs[k])] = p + 1;
    if (is_gather(b, order[p])) w.bucket[g->outputs[0]] = bucket_of(b, order[p]);
  }
  return w;
}

static const Group *group_at(const Walk *w, uint32_t p) {
  return &w->b->fused->groups.data[w->order[p]];
}

static uint32_t made_of(const Walk *w, FValueId v) {
  return v ? w->made[block_root(w->b, v)] : 0;
}

static bool same_part(const Walk *w, uint32_t p, uint32_t q) {
  return (p < w->looped) == (q < w->looped);
}

/* Behind the last position of the collectives of one bucket that begin at p. */
static uint32_t run_end(const Walk *w, uint32_t p) {
  uint32_t end = p + 1;
  while (end < w->b->norder && bucket_of(w->b, w->order[end]) == bucket_of(w->b, w->order[p]) &&
         group_op(w->b, w->order[end]) == group_op(w->b, w->order[p]))
    end++;
  return end;
}

static bool uses_bucket(const Walk *w, const Group *g, int64_t bucket) {
  for (uint32_t k = 0; k < g->ninputs; k++)
    if (g->inputs[k] && w->bucket[block_root(w->b, g->inputs[k])] == bucket) return true;
  return false;
}

/* The first position before which gathers at p may begin: behind those of the block before that
 * computes something, and behind the use of what the same bucket brought earlier. */
static uint32_t window(const Walk *w, uint32_t p) {
  int64_t bucket = bucket_of(w->b, w->order[p]);
  bool computed = false;
  uint32_t at = p;
  for (; at > 0 && same_part(w, at - 1, p); at--) {
    const Group *g = group_at(w, at - 1);
    if ((computed && is_gather(w->b, w->order[at - 1])) || uses_bucket(w, g, bucket)) break;
    computed |= computes(g);
  }
  return at;
}

/* --- the order -----------------------------------------------------------------------------------
 */

/* The group at p needs nothing made at or behind `at` but variables and conversions of them. */
static bool can_rise(const Walk *w, uint32_t p, uint32_t at) {
  const Group *g = group_at(w, p);
  if (group_op(w->b, w->order[p]) == OP_READ) return true;
  if (g->kind != GROUP_KERNEL && g->kind != GROUP_VIEW) return false;
  for (uint32_t k = 0; k < g->ninputs; k++) {
    uint32_t made = made_of(w, g->inputs[k]);
    if (made > at && group_op(w->b, w->order[made - 1]) != OP_READ) return false;
  }
  return true;
}

static void rise(const Walk *w, uint32_t p, uint32_t at, uint32_t *key) {
  uint32_t behind = at && same_part(w, at - 1, p) ? at - 1 : at;
  const Group *g = group_at(w, p);
  for (uint32_t k = 0; k < g->ninputs; k++) {
    uint32_t made = made_of(w, g->inputs[k]);
    if (made > at) rise(w, made - 1, at, key);
  }
  if (key[p] > behind) key[p] = behind;
}

/* What gathers bring, converted where they begin. */
static void raise_sources(PlanBlock *b, uint32_t *order) {
  Walk w = walk_begin(b, order);
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  for (uint32_t p = 0; p < b->norder; p++) key[p] = p;
  for (uint32_t p = 0, end; p < b->norder; p = end) {
    end = p + 1;
    if (!is_gather(b, order[p])) continue;
    end = run_end(&w, p);
    uint32_t at = window(&w, p);
    for (uint32_t m = p; m < end; m++) {
      uint32_t made = made_of(&w, group_at(&w, m)->inputs[0]);
      if (made > at && can_rise(&w, made - 1, at)) rise(&w, made - 1, at, key);
    }
  }
  block_sort(b, order, key, true);
}

static bool can_sink(const Walk *w, uint32_t p) {
  GroupKind kind = group_at(w, p)->kind;
  return kind == GROUP_KERNEL || kind == GROUP_VIEW || group_op(w->b, w->order[p]) == OP_ASSIGN;
}

static bool uses_late(const Walk *w, const Group *g, const bool *late) {
  for (uint32_t k = 0; k < g->ninputs; k++)
    if (g->inputs[k] && late[block_root(w->b, g->inputs[k])]) return true;
  return false;
}

static void set_late(const Walk *w, const Group *g, bool *late, bool is) {
  for (uint32_t k = 0; k < g->noutputs; k++) late[block_root(w->b, g->outputs[k])] = is;
}

/* Reduce-scatters at [p, end), and what is done with their results, go to where the next ones stand
 * or their part ends. */
static void sink_scatters(const Walk *w, uint32_t p, uint32_t end, bool *late, uint32_t *key) {
  uint32_t to = end;
  for (uint32_t m = p; m < end; m++) set_late(w, group_at(w, m), late, true);
  for (; to < w->b->norder && same_part(w, p, to) && !is_scatter(w->b, w->order[to]); to++) {
    const Group *g = group_at(w, to);
    if (!uses_late(w, g, late)) continue;
    if (!can_sink(w, to)) break;
    set_late(w, g, late, true);
  }
  while (to > end && uses_late(w, group_at(w, to - 1), late)) to--; /* these are there already */
  for (uint32_t m = p; m < to; m++)
    if (m < end || uses_late(w, group_at(w, m), late)) key[m] = to - 1;
  for (uint32_t m = p; m < to; m++) set_late(w, group_at(w, m), late, false);
}

static void delay_scatters(PlanBlock *b, uint32_t *order) {
  Walk w = walk_begin(b, order);
  bool *late = ARENA_ARRAY(b->arena, bool, b->fused->values.len);
  uint32_t *key = ARENA_ARRAY(b->arena, uint32_t, b->norder);
  for (uint32_t p = 0; p < b->norder; p++) key[p] = p;
  for (uint32_t p = 0, end; p < b->norder; p = end) {
    end = p + 1;
    if (!is_scatter(b, order[p])) continue;
    end = run_end(&w, p);
    sink_scatters(&w, p, end, late, key);
  }
  block_sort(b, order, key, true);
}

void block_order_ahead(PlanBlock *b, uint32_t *order) {
  if (!b->ahead || b->pipeline) return; /* segments begin nothing for one another */
  delay_scatters(b, order);
  raise_sources(b, order);
}

/* --- where they begin ----------------------------------------------------------------------------
 */

/* A step along a ring: before the step of attention that it overlaps with, in its own phase. */
static uint32_t begin_of_step(const Walk *w, uint32_t p, uint32_t ready) {
  bool computed = false;
  uint32_t at = p;
  while (at > ready && group_phase(w->b, w->order[at - 1]) == group_phase(w->b, w->order[p])) {
    GroupKind kind = group_at(w, --at)->kind;
    computed |= kind == GROUP_KERNEL || kind == GROUP_CONTRACT || kind == GROUP_LIBRARY;
    if (kind == GROUP_LIBRARY) break;
  }
  return computed ? at : p;
}

static bool is_step(const PlanBlock *b, uint32_t id) {
  const Graph *graph = b->fused->graph;
  const Node *n = node_of(b, id);
  return block_is_ring_step(b, &b->fused->groups.data[id]) &&
         !place_send_is_local(value_type(graph, n->operands[0]),
                              value_type(graph, n->first_result));
}

static bool runs_between(const Walk *w, uint32_t from, uint32_t to) {
  for (uint32_t p = from; p < to; p++) {
    GroupKind kind = group_at(w, p)->kind;
    if (kind == GROUP_KERNEL || kind == GROUP_CONTRACT || kind == GROUP_LIBRARY) return true;
  }
  return false;
}

/* Members of the bucket that `g` ends, backwards: the one before, NOWHERE behind the first. */
static uint32_t member_before(const PlanBlock *b, uint32_t g) {
  return b->bucket_before[g] ? b->bucket_before[g] - 1 : NOWHERE;
}

/* What is written has memory of its own, at no other time before. */
static bool has_memory(const PlanBlock *b, uint32_t g) {
  for (uint32_t m = g; m != NOWHERE; m = member_before(b, m)) {
    const Storage *s = block_storage(b, b->fused->groups.data[m].outputs[0]);
    if (s->var || s->step || s->first != b->position[m]) return false;
  }
  return true;
}

static void hold_memory(PlanBlock *b, uint32_t g, uint32_t from) {
  for (uint32_t m = g; m != NOWHERE; m = member_before(b, m))
    block_storage(b, b->fused->groups.data[m].outputs[0])->first = from;
}

void block_find_begins(PlanBlock *b) {
  b->begins = ARENA_ARRAY(b->arena, uint32_t, b->fused->groups.len);
  if (!b->ahead || b->pipeline) return;
  Walk w = walk_begin(b, b->order);
  uint32_t over = 0; /* behind the last reduce-scatter so far */
  for (uint32_t p = 0; p < b->norder; p++) {
    uint32_t id = b->order[p], first = p, ready = 0;
    const bool step = is_step(b, id);
    if (b->bucket_goes_on[id] || !(step || is_gather(b, id) || is_scatter(b, id))) continue;
    for (uint32_t m = id; m != NOWHERE; m = member_before(b, m)) {
      uint32_t made = made_of(&w, b->fused->groups.data[m].inputs[0]);
      if (made > ready) ready = made;
      first = b->position[m];
    }
    uint32_t at = step ? begin_of_step(&w, p, ready) : is_scatter(b, id) ? over : window(&w, first);
    if (at < ready) at = ready;
    while (at < first && !same_part(&w, at, first)) at++;
    if (is_scatter(b, id)) over = p + 1;
    if (!runs_between(&w, at, first) || !has_memory(b, id)) continue;
    b->begins[id] = at + 1;
    hold_memory(b, id, at);
  }
}
