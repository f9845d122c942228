/* The proof that a schedule comes to its end, and how many slots it needs: see pipeline.h.
 *
 * Every stage does its entries in order. An entry first takes from its channels, then works, then
 * posts. A take waits until the message is there; a post waits until fewer than `slots` messages of
 * its channel are on their way. Both only ever wait for what the other side has yet to do, and
 * doing more never takes a possibility away: so either every play of the schedule comes to its end,
 * or none does, and they all stop at the same place. One play decides. (All ranks of a stage do the
 * same list; collectives among them come in one order.) Linear in entries times channels per
 * segment.
 */
#include <inttypes.h>
#include <string.h>

#include "spmd/pipeline.h"

typedef struct Post {
  uint32_t micro, when; /* over at this time */
} Post;

typedef struct Prover {
  Arena *arena;
  const Pipeline *p;
  uint32_t slots;
  const Sources *sources;
  Timeline *line;
  uint32_t *at, *now;       /* per stage: next entry, time */
  uint32_t *posted, *taken; /* per channel */
  Post *posts;              /* per channel and number */
  uint32_t *takes;          /* per channel and number: when it was taken */
  /* What a stage stopped at: a channel and whether it is a post; UINT32_MAX = nothing */
  uint32_t *channel;
  bool *posting;
  bool *worked; /* per stage: the entry has worked, and posts */
} Prover;

static Post *post_of(const Prover *q, uint32_t channel, uint32_t i) {
  return &q->posts[(size_t)channel * q->p->microbatches + i];
}

static uint32_t *take_of(const Prover *q, uint32_t channel, uint32_t i) {
  return &q->takes[(size_t)channel * q->p->microbatches + i];
}

typedef enum Outcome { WENT_ON, WAITS, WRONG_ORDER } Outcome;

static Outcome take_all(Prover *q, uint32_t s, Entry e) {
  for (uint32_t c = 0; c < q->p->channels.len; c++) {
    if (q->p->channels.data[c].to != e.segment) continue;
    uint32_t i = q->taken[c];
    q->channel[s] = c;
    q->posting[s] = false;
    if (i >= q->posted[c]) return WAITS;
    if (post_of(q, c, i)->micro != e.micro) return WRONG_ORDER;
    if (post_of(q, c, i)->when > q->now[s]) q->now[s] = post_of(q, c, i)->when;
  }
  for (uint32_t c = 0; c < q->p->channels.len; c++)
    if (q->p->channels.data[c].to == e.segment) *take_of(q, c, q->taken[c]++) = q->now[s];
  return WENT_ON;
}

static Outcome post_all(Prover *q, uint32_t s, Entry e) {
  for (uint32_t c = 0; c < q->p->channels.len; c++) {
    if (q->p->channels.data[c].from != e.segment) continue;
    uint32_t i = q->posted[c];
    if (i && post_of(q, c, i - 1)->micro == e.micro) continue; /* of this entry, before it waited */
    q->channel[s] = c;
    q->posting[s] = true;
    if (i - q->taken[c] >= q->slots) return WAITS;
    uint32_t room = i >= q->slots ? *take_of(q, c, i - q->slots) : 0;
    if (room > q->now[s]) q->now[s] = room;
    *post_of(q, c, i) = (Post){e.micro, q->now[s]};
    q->posted[c]++;
  }
  return WENT_ON;
}

/* One entry of a stage, as far as it goes. */
static Outcome advance(Prover *q, uint32_t s) {
  Entry e = q->p->stages.data[s].entries.data[q->at[s]];
  if (!q->worked[s]) {
    Outcome o = take_all(q, s, e);
    if (o != WENT_ON) return o;
    uint32_t units = segment_units(q->p, e.segment);
    q->line->begin[s][q->at[s]] = q->now[s];
    q->now[s] += units;
    q->line->busy[s] += units;
    q->worked[s] = true;
  }
  if (post_all(q, s, e) != WENT_ON) return WAITS;
  q->worked[s] = false;
  q->at[s]++;
  return WENT_ON;
}

static void describe(const Prover *q, StrBuf *out, uint32_t s) {
  const EntryList *list = &q->p->stages.data[s].entries;
  const Channel *c = &q->p->channels.data[q->channel[s]];
  uint32_t other = q->p->segments.data[q->posting[s] ? c->to : c->from].stage;
  Entry e = list->data[q->at[s]];
  strbuf_printf(out, "stage %" PRIu32 " (rank %" PRId64 ") in entry %" PRIu32 ", ", s,
                mesh_rank(q->p->stages.data[s].mesh, 0), q->at[s]);
  entry_print(out, q->p, e);
  strbuf_printf(out, ", waits %s stage %" PRIu32, q->posting[s] ? "to post to" : "for", other);
  if (c->name) strbuf_printf(out, ", for %s", c->name);
  if (c->span.file && q->sources)
    strbuf_printf(out, " of %s", span_print(q->arena, q->sources, c->span));
}

/* The circle of stages that wait for one another, or the stage that waits for one at its end. */
static const char *witness(const Prover *q) {
  StrBuf out;
  strbuf_init(&out, q->arena);
  uint32_t n = q->p->stages.len, s = 0;
  while (q->at[s] == q->p->stages.data[s].entries.len) s++;
  bool *seen = ARENA_ARRAY(q->arena, bool, n);
  for (int turn = 0; turn < 2; turn++) { /* to the circle, then around it */
    memset(seen, 0, n * sizeof *seen);
    while (!seen[s] && q->at[s] < q->p->stages.data[s].entries.len) {
      const Channel *c = &q->p->channels.data[q->channel[s]];
      seen[s] = true;
      if (turn) {
        strbuf_puts(&out, out.len ? "; " : "");
        describe(q, &out, s);
      }
      uint32_t next = q->p->segments.data[q->posting[s] ? c->to : c->from].stage;
      if (q->at[next] == q->p->stages.data[next].entries.len) {
        if (!turn) break;
        strbuf_printf(&out, "; stage %" PRIu32 " is at its end", next);
        return out.text;
      }
      s = next;
    }
  }
  return arena_printf(q->arena, "stages wait for one another: %s", out.text);
}

static const char *disorder(const Prover *q, uint32_t s) {
  StrBuf out;
  strbuf_init(&out, q->arena);
  uint32_t c = q->channel[s], from = q->p->channels.data[c].from;
  describe(q, &out, s);
  strbuf_puts(&out, ", but what comes next from there is of ");
  entry_print(&out, q->p, (Entry){from, post_of(q, c, q->taken[c])->micro});
  strbuf_puts(&out, ": a channel keeps the order of its messages");
  return out.text;
}

bool schedule_play(Arena *arena, const Pipeline *p, uint32_t slots, Timeline *line,
                   const Sources *sources, const char **why) {
  uint32_t n = p->stages.len, channels = p->channels.len;
  Prover q = {.arena = arena, .p = p, .slots = slots, .sources = sources, .line = line};
  line->begin = ARENA_ARRAY(arena, uint32_t *, n + 1);
  line->busy = ARENA_ARRAY(arena, uint32_t, n + 1);
  line->length = 0;
  for (uint32_t s = 0; s < n; s++)
    line->begin[s] = ARENA_ARRAY(arena, uint32_t, p->stages.data[s].entries.len + 1);
  q.at = ARENA_ARRAY(arena, uint32_t, n + 1);
  q.now = ARENA_ARRAY(arena, uint32_t, n + 1);
  q.channel = ARENA_ARRAY(arena, uint32_t, n + 1);
  q.posting = ARENA_ARRAY(arena, bool, n + 1);
  q.worked = ARENA_ARRAY(arena, bool, n + 1);
  q.posted = ARENA_ARRAY(arena, uint32_t, channels + 1);
  q.taken = ARENA_ARRAY(arena, uint32_t, channels + 1);
  q.posts = ARENA_ARRAY(arena, Post, (size_t)channels * p->microbatches + 1);
  q.takes = ARENA_ARRAY(arena, uint32_t, (size_t)channels * p->microbatches + 1);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < n; s++)
      while (q.at[s] < p->stages.data[s].entries.len) {
        Outcome o = advance(&q, s);
        if (o == WRONG_ORDER) {
          *why = disorder(&q, s);
          return false;
        }
        if (o == WAITS) break;
        moved = true;
      }
  }
  for (uint32_t s = 0; s < n; s++) {
    if (q.at[s] < p->stages.data[s].entries.len) {
      *why = witness(&q);
      return false;
    }
    if (q.now[s] > line->length) line->length = q.now[s];
  }
  return true;
}

/* --- slots
 * ---------------------------------------------------------------------------------------- */

static bool one_of(uint32_t segment, const uint32_t *list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == segment) return true;
  return false;
}

uint32_t schedule_slots(const Pipeline *p, uint32_t stage, uint32_t from, const uint32_t *to,
                        uint32_t n) {
  const EntryList *list = &p->stages.data[stage].entries;
  uint32_t parts = p->microbatches;
  Arena scratch;
  arena_init(&scratch);
  uint32_t *left = ARENA_ARRAY(&scratch, uint32_t, parts); /* uses to come */
  uint32_t *holder = ARENA_ARRAY(&scratch, uint32_t, parts), slots = 1;
  for (; slots < parts; slots++) { /* micro-batch + 1 that holds each slot */
    bool clash = false;
    memset(holder, 0, parts * sizeof *holder);
    for (uint32_t i = 0; i < list->len && !clash; i++) {
      Entry e = list->data[i];
      uint32_t *slot = &holder[e.micro % slots];
      if (e.segment == from) {
        clash = *slot != 0;
        *slot = e.micro + 1;
        left[e.micro] = n;
      }
      if (one_of(e.segment, to, n) && --left[e.micro] == 0) *slot = 0;
    }
    if (!clash) break;
  }
  arena_free(&scratch);
  return slots;
}
