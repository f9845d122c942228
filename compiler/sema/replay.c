/* Calls like an earlier one. See replay.h. */
#include "sema/replay.h"

#include <string.h>

enum { MAX_RECORDINGS = 4 /* of one place that are looked through */ };

struct Recording {
  uint32_t older; /* index + 1 of another of the same place */
  Instance *instance;
  const CallArg *args;
  uint32_t nargs;
  bool alone;
  Span span;
  State at;
  uint32_t expr_depth;
  uint64_t work;
  bool kept;
  Range range;
};

static uint64_t place_key(const Instance *inst, const Call *call) {
  struct {
    const ModuleDef *def;
    const Mesh *mesh;
    Span span;
    uint32_t nargs;
  } id = {inst->def, inst->mesh, call->span, call->nargs};
  return hash_bytes(&id, sizeof id, 3);
}

static bool same_state(const Sema *s, const Recording *r, const Call *call) {
  const State *a = &r->at, *b = &s->at;
  return r->nargs == call->nargs && r->alone == call->alone &&
         memcmp(&r->span, &call->span, sizeof r->span) == 0 && a->depth == b->depth &&
         s->expr_depth <= r->expr_depth && a->naming == b->naming && a->training == b->training &&
         a->block == b->block && s->work + r->work <= SEMA_MAX_WORK;
}

static bool fits(Sema *s, Recording *r, Instance *inst, const Call *call) {
  return r->kept && !r->range.unfit && same_state(s, r, call) &&
         twins_match(s, r->instance, r->args, inst, call->args, call->nargs) &&
         range_fits(s, &r->range);
}

bool replay_call(Sema *s, Instance *inst, const Call *call, Val *result, Recording **out) {
  *out = NULL;
  if (s->options->each_call || !s->at.graph || s->at.region || s->at.auto_block ||
      s->sink->errors || inst->failed)
    return false;
  if (!s->twins) s->twins = ARENA_NEW(s->arena, Twins);
  GraphCache *cache = s->at.cache;
  uint64_t key = place_key(inst, call);
  uint32_t last = 0;
  if (id_map_get(&cache->recorded, key, &last)) last++;
  uint32_t at = last;
  for (int n = 0; n < MAX_RECORDINGS && at; n++, at = cache->recordings.data[at - 1]->older) {
    Recording *r = cache->recordings.data[at - 1];
    if (!fits(s, r, inst, call)) continue;
    uint64_t work = s->work + r->work;
    *result = range_copy(s, &r->range);
    s->work = work;
    if (s->options->copied) s->options->copied->calls++;
    return true;
  }
  Recording *r = *out = ARENA_NEW(s->arena, Recording);
  *r = (Recording){.older = last,
                   .instance = inst,
                   .args = call->args,
                   .nargs = call->nargs,
                   .alone = call->alone,
                   .span = call->span,
                   .at = s->at,
                   .expr_depth = s->expr_depth,
                   .work = s->work};
  range_begin(s, &r->range, false);
  for (uint32_t i = 0; i < call->nargs; i++) range_note_unnamed(s, &r->range, call->args[i].value);
  id_map_put(s->arena, &cache->recorded, key, cache->recordings.len);
  VEC_PUSH(s->arena, &cache->recordings, r);
  return false;
}

void replay_keep(Sema *s, Recording *r, Val result) {
  if (!r) return;
  r->work = s->work - r->work;
  range_end(s, &r->range, result);
  r->kept = !r->range.unfit && result.kind != VAL_POISON;
}
