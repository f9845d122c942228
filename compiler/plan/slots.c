/* Memory of a pipeline: see block.h.
 *
 * Segments of one stage run in the order of its schedule, for one micro-batch after the other. What
 * lives within a segment has one block, packed by its life like anything else. What one segment
 * makes for another has as many blocks as the schedule has micro-batches between the two, for as
 * long as micro-batches run; what the prologue makes stays as long. An outbox has the slots of its
 * channel, and keeps its memory for the whole block.
 */
#include <string.h>

#include "plan/block.h"

/* Segments other than its own that use a value. */
typedef VEC(uint32_t) SegmentList;

typedef struct Spans {
  PlanBlock *b;
  uint32_t *made; /* per value root: segment that makes it */
  SegmentList *used;
} Spans;

static uint32_t root_of(const PlanBlock *b, FValueId v) {
  return (uint32_t)(block_storage(b, v) - b->storage);
}

static void use(Spans *s, FValueId v, uint32_t segment) {
  uint32_t root = root_of(s->b, v);
  if (segment == s->made[root]) return;
  for (uint32_t i = 0; i < s->used[root].len; i++)
    if (s->used[root].data[i] == segment) return;
  VEC_PUSH(s->b->arena, &s->used[root], segment);
}

static void find_spans(Spans *s) {
  PlanBlock *b = s->b;
  bool *known = ARENA_ARRAY(b->arena, bool, b->fused->values.len);
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &b->fused->groups.data[b->order[p]];
    uint32_t segment = group_segment(b, b->order[p]);
    for (uint32_t k = 0; k < g->noutputs; k++) {
      uint32_t root = root_of(b, g->outputs[k]);
      if (!known[root]) s->made[root] = segment;
      known[root] = true;
      use(s, g->outputs[k], segment);
      b->storage[root].outbox |= group_op(b, b->order[p]) == OP_POST;
    }
    for (uint32_t k = 0; k < g->ninputs; k++)
      if (g->inputs[k]) use(s, g->inputs[k], segment);
  }
}

static bool is_looped(const Pipeline *p, uint32_t segment) {
  SegmentKind kind = p->segments.data[segment].kind;
  return kind >= SEGMENT_COUNT && kind <= SEGMENT_WEIGHT;
}

void block_find_slots(PlanBlock *b) {
  const Pipeline *p = b->pipeline;
  uint32_t nvalues = b->fused->values.len;
  Spans s = {.b = b};
  s.made = ARENA_ARRAY(b->arena, uint32_t, nvalues);
  s.used = ARENA_ARRAY(b->arena, SegmentList, nvalues);
  find_spans(&s);
  uint32_t first = 0, last = b->looped ? b->looped - 1 : 0;
  while (first < last && p->segments.data[group_segment(b, b->order[first])].kind < SEGMENT_FORWARD)
    first++;
  for (uint32_t v = 1; v < nvalues; v++) {
    Storage *storage = &b->storage[v];
    const Segment *made = &p->segments.data[s.made[v]];
    bool looped = false;
    if (storage->parent != v || storage->first == NOWHERE) continue;
    for (uint32_t i = 0; i < s.used[v].len; i++) looped |= is_looped(p, s.used[v].data[i]);
    if (!looped) continue;
    bool varies = !storage->var && !storage->step; /* of a variable there is one */
    if (varies && made->kind >= SEGMENT_FORWARD && made->kind <= SEGMENT_WEIGHT) {
      storage->slots = storage->outbox ? CHANNEL_SLOTS
                                       : schedule_slots(p, made->stage, s.made[v], s.used[v].data,
                                                        s.used[v].len);
      if (storage->first > first) storage->first = first;
    }
    if (storage->last < last) storage->last = last;
    if (!storage->outbox) continue;
    storage->first = 0; /* a taker may be late: its message stays while this stage goes on */
    storage->last = b->norder - 1;
  }
}
