/* Which stage does what when: the families of schedules, and tables that users write.
 *
 * All families but the first two are made by playing: in each unit of time each stage takes, of
 * what its inputs allow, what its rule prefers. Sources: GPipe (Huang et al., 2019); 1F1B
 * (Narayanan et al., "PipeDream", 2019; with chunks, "Efficient large-scale language model training
 * on GPU clusters using Megatron-LM", 2021); zero bubble, H1 (Qi et al., "Zero bubble pipeline
 * parallelism", 2023).
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "spmd/pipeline.h"

static bool is_table(const char *schedule) {
  return strchr(schedule, '\n') != NULL;
}

bool schedule_is_apart(const char *schedule) {
  if (is_table(schedule)) return strchr(schedule, 'W') != NULL;
  return strcmp(schedule, "zero_bubble") == 0;
}

uint32_t segment_units(const Pipeline *p, uint32_t segment) {
  return p->segments.data[segment].kind == SEGMENT_BACKWARD && !p->apart ? 2 : 1;
}

void entry_print(StrBuf *out, const Pipeline *p, Entry e) {
  const Segment *s = &p->segments.data[e.segment];
  char letter = s->kind == SEGMENT_FORWARD ? 'F' : s->kind == SEGMENT_BACKWARD ? 'B' : 'W';
  strbuf_printf(out, "%c%" PRIu32, letter, e.micro);
  if (p->chunks > 1) strbuf_printf(out, ".%" PRIu32, s->chunk);
}

static void add(Arena *arena, Pipeline *p, SegmentKind kind, uint32_t stage, uint32_t chunk,
                uint32_t micro) {
  Entry e = {pipeline_segment(p, kind, stage, chunk), micro};
  VEC_PUSH(arena, &p->stages.data[stage].entries, e);
}

/* --- lists in closed form ------------------------------------------------------------------------
 */

/* The i-th of all (chunk, micro-batch) in the order of an interleaved schedule: groups of as many
 * micro-batches as there are stages go through the first chunk, then the next. */
static void nth(const Pipeline *p, uint32_t i, uint32_t *chunk, uint32_t *micro) {
  uint32_t stages = p->stages.len, group = i / (stages * p->chunks), first = group * stages;
  uint32_t size = p->microbatches - first < stages ? p->microbatches - first : stages;
  uint32_t within = i - first * p->chunks;
  *chunk = within / size;
  *micro = first + within % size;
}

static void add_nth(Arena *arena, Pipeline *p, SegmentKind kind, uint32_t stage, uint32_t i) {
  uint32_t chunk, micro;
  nth(p, i, &chunk, &micro);
  if (kind != SEGMENT_FORWARD) chunk = p->chunks - 1 - chunk;
  add(arena, p, kind, stage, chunk, micro);
}

/* With weight gradients apart each follows its backward part at once. */
static void add_backward(Arena *arena, Pipeline *p, uint32_t stage, uint32_t i) {
  add_nth(arena, p, SEGMENT_BACKWARD, stage, i);
  if (p->apart) add_nth(arena, p, SEGMENT_WEIGHT, stage, i);
}

/* Some forward parts, then one forward and one backward in turn, then what is left backward. `all`:
 * all forward parts first. */
static void build_1f1b(Arena *arena, Pipeline *p, bool all) {
  uint32_t stages = p->stages.len, total = p->microbatches * p->chunks;
  uint32_t group = p->microbatches < stages ? p->microbatches : stages;
  for (uint32_t s = 0; s < stages; s++) {
    uint32_t ahead = stages - 1 - s, f = 0, b = 0;
    if (p->chunks > 1) ahead = 2 * ahead + (p->chunks - 1) * group;
    if (all || ahead > total) ahead = total;
    p->stages.data[s].entries.len = 0;
    while (f < ahead) add_nth(arena, p, SEGMENT_FORWARD, s, f++);
    while (f < total) {
      add_nth(arena, p, SEGMENT_FORWARD, s, f++);
      add_backward(arena, p, s, b++);
    }
    while (b < total) add_backward(arena, p, s, b++);
  }
}

/* --- zero bubble: by playing
 * ---------------------------------------------------------------------- */

typedef struct Play {
  Arena *arena;
  Pipeline *p;
  uint32_t *done; /* per stage: forward, backward, weight parts begun */
  uint32_t *at;   /* per stage and kind and number: when it is over; UINT32_MAX = not yet */
  uint32_t total; /* of each kind per stage */
} Play;

enum { KINDS = 3 };

static uint32_t *time_of(const Play *g, uint32_t stage, uint32_t kind, uint32_t i) {
  return &g->at[(stage * KINDS + kind) * g->total + i];
}

/* The number of (chunk, micro) in the order of `nth`. */
static uint32_t number_of(const Pipeline *p, uint32_t chunk, uint32_t micro) {
  uint32_t stages = p->stages.len, first = micro / stages * stages;
  uint32_t size = p->microbatches - first < stages ? p->microbatches - first : stages;
  return first * p->chunks + chunk * size + micro - first;
}

/* Whether the next part of a kind has all it needs at this time. */
static bool ready(const Play *g, uint32_t stage, uint32_t kind, uint32_t now) {
  uint32_t i = g->done[stage * KINDS + kind], chunk, micro, last = g->p->stages.len - 1;
  if (i == g->total) return false;
  if (kind == 2) return *time_of(g, stage, 1, i) <= now;
  nth(g->p, i, &chunk, &micro);
  if (kind == 0) {
    if (stage > 0) return *time_of(g, stage - 1, 0, i) <= now;
    return chunk == 0 || *time_of(g, last, 0, number_of(g->p, chunk - 1, micro)) <= now;
  }
  if (stage < last) return *time_of(g, stage + 1, 1, i) <= now;
  if (chunk > 0) return *time_of(g, 0, 1, number_of(g->p, chunk - 1, micro)) <= now;
  return *time_of(g, last, 0, number_of(g->p, g->p->chunks - 1, micro)) <= now;
}

/* The channel to the next stage has room for what this part posts: the taker is at most two
 * messages behind. */
static bool has_room(const Play *g, uint32_t stage, uint32_t kind) {
  uint32_t i = g->done[stage * KINDS + kind], chunk, micro, last = g->p->stages.len - 1;
  nth(g->p, i, &chunk, &micro);
  if (micro < CHANNEL_SLOTS) return true;
  uint32_t end = kind == 0 ? last : 0, next = kind == 0 ? stage + 1 : stage - 1;
  if (stage == end && chunk + 1 == g->p->chunks) return true; /* it posts nothing */
  if (stage == end) {
    next = last - end;
    chunk++;
  }
  return number_of(g->p, chunk, micro - CHANNEL_SLOTS) < g->done[next * KINDS + kind];
}

static void begin(Play *g, uint32_t stage, uint32_t kind, uint32_t now) {
  static const SegmentKind kinds[KINDS] = {SEGMENT_FORWARD, SEGMENT_BACKWARD, SEGMENT_WEIGHT};
  uint32_t i = g->done[stage * KINDS + kind]++, chunk, micro;
  nth(g->p, i, &chunk, &micro);
  if (kind > 0) chunk = g->p->chunks - 1 - chunk;
  *time_of(g, stage, kind, i) = now + 1;
  add(g->arena, g->p, kinds[kind], stage, chunk, micro);
}

/* Backward first, forward while no more are under way than one forward, one backward would have;
 * weight gradients when there is nothing else, or too many wait. False when there was nothing. */
static bool choose(Play *g, uint32_t stage, uint32_t now) {
  const uint32_t *done = &g->done[stage * KINDS];
  uint32_t stages = g->p->stages.len, under_way = done[0] - done[1], held = done[0] - done[2];
  uint32_t most = stages - stage + (g->p->chunks - 1) * stages, keeps = stages * g->p->chunks;
  bool may = under_way < most && held < (keeps > most ? keeps : most);
  if (ready(g, stage, 1, now) && has_room(g, stage, 1))
    begin(g, stage, 1, now);
  else if (may && ready(g, stage, 0, now) && has_room(g, stage, 0))
    begin(g, stage, 0, now);
  else if (ready(g, stage, 2, now))
    begin(g, stage, 2, now);
  else
    return false;
  return true;
}

static void build_zero_bubble(Arena *arena, Pipeline *p) {
  Arena scratch;
  arena_init(&scratch);
  uint32_t stages = p->stages.len, total = p->microbatches * p->chunks;
  Play g = {.arena = arena, .p = p, .total = total};
  g.done = ARENA_ARRAY(&scratch, uint32_t, stages * KINDS);
  g.at = ARENA_ARRAY(&scratch, uint32_t, (size_t)stages * KINDS * total);
  memset(g.at, 0xff, (size_t)stages * KINDS * total * sizeof *g.at);
  bool moved = true; /* every part takes one unit: what stands still once stands still for ever */
  for (uint32_t now = 0; moved; now++) {
    moved = false;
    for (uint32_t s = 0; s < stages; s++) moved |= choose(&g, s, now);
  }
  arena_free(&scratch);
}

/* --- tables
 * --------------------------------------------------------------------------------------- */

static bool fail(DiagSink *sink, Span span, const char *reason) {
  Diag *d = diag_emit(sink, DIAG_SCHEDULE, span, "this schedule cannot run");
  diag_reason(sink, d, "%s", reason);
  return false;
}

/* One word "F3" or "B0.1". */
static const char *read_entry(const char *at, char *letter, uint32_t *micro, uint32_t *chunk) {
  uint32_t *field = micro;
  *micro = *chunk = 0;
  if (*at != 'F' && *at != 'B' && *at != 'W') return NULL;
  *letter = *at++;
  for (int digits = 0;; at++) {
    if (isdigit((unsigned char)*at) && digits < 9) {
      *field = *field * 10 + (uint32_t)(*at - '0');
      digits++;
    } else if (digits && *at == '.' && field == micro) {
      field = chunk;
      digits = 0;
    } else
      return digits ? at : NULL;
  }
}

static bool read_row(Arena *arena, Pipeline *p, uint32_t stage, const char *row, size_t n,
                     Span span, DiagSink *sink) {
  const char *end = row + n;
  for (const char *at = row; at < end;) {
    if (*at == ' ' || *at == ',') {
      at++;
      continue;
    }
    char letter;
    uint32_t micro, chunk;
    const char *next = read_entry(at, &letter, &micro, &chunk);
    size_t width = strcspn(at, " ,\n");
    if (!next || next != at + width)
      return fail(sink, span,
                  arena_printf(arena,
                               "stage %" PRIu32
                               ": '%.*s' is none of F, B and W with the number of a "
                               "micro-batch, such as F0, or B0.1 for the second chunk",
                               stage, (int)width, at));
    SegmentKind kind = letter == 'F'   ? SEGMENT_FORWARD
                       : letter == 'B' ? SEGMENT_BACKWARD
                                       : SEGMENT_WEIGHT;
    if (micro >= p->microbatches || chunk >= p->chunks)
      return fail(sink, span,
                  arena_printf(arena,
                               "stage %" PRIu32 ": %.*s, but there are %" PRIu32
                               " micro-batches and %" PRIu32 " chunk%s, counted from 0",
                               stage, (int)width, at, p->microbatches, p->chunks,
                               p->chunks == 1 ? "" : "s"));
    add(arena, p, kind, stage, chunk, micro);
    at = next;
  }
  return true;
}

/* Every part of every micro-batch stands there once, behind what it needs of its own stage. */
static bool complete(Arena *arena, const Pipeline *p, uint32_t stage, Span span, DiagSink *sink) {
  uint32_t nsegments = p->segments.len, parts = p->microbatches;
  uint32_t *place = ARENA_ARRAY(arena, uint32_t, (size_t)nsegments * parts);
  const EntryList *list = &p->stages.data[stage].entries;
  StrBuf what;
  strbuf_init(&what, arena);
  for (uint32_t i = 0; i < list->len; i++) {
    Entry e = list->data[i];
    uint32_t *at = &place[(size_t)e.segment * parts + e.micro];
    if (*at) {
      entry_print(&what, p, e);
      return fail(sink, span,
                  arena_printf(arena, "stage %" PRIu32 " does %s twice", stage, what.text));
    }
    *at = i + 1;
  }
  for (uint32_t s = 1; s < nsegments; s++) {
    const Segment *seg = &p->segments.data[s];
    bool of_stage =
        seg->kind >= SEGMENT_FORWARD && seg->kind <= SEGMENT_WEIGHT && seg->stage == stage;
    for (uint32_t m = 0; of_stage && m < parts; m++) {
      if (place[(size_t)s * parts + m]) continue;
      entry_print(&what, p, (Entry){s, m});
      return fail(sink, span, arena_printf(arena, "stage %" PRIu32 " lacks %s", stage, what.text));
    }
  }
  for (uint32_t i = 0; i < p->carries.len; i++) {
    Carry c = p->carries.data[i];
    if (p->segments.data[c.from].stage != stage) continue;
    for (uint32_t m = 0; m < parts && p->segments.data[c.to].kind <= SEGMENT_WEIGHT; m++) {
      uint32_t from = place[(size_t)c.from * parts + m], to = place[(size_t)c.to * parts + m];
      if (from <= to || !to) continue;
      entry_print(&what, p, (Entry){c.to, m});
      strbuf_puts(&what, " before ");
      entry_print(&what, p, (Entry){c.from, m});
      return fail(sink, span,
                  arena_printf(arena, "stage %" PRIu32 " does %s, which makes what it needs", stage,
                               what.text));
    }
  }
  return true;
}

static bool build_table(Arena *arena, Pipeline *p, Span span, DiagSink *sink) {
  uint32_t rows = 0;
  for (const char *at = p->schedule; *at; at++) rows += *at == '\n';
  if (rows != p->stages.len)
    return fail(sink, span,
                arena_printf(arena,
                             "the table has %" PRIu32 " stage%s, but the program has %" PRIu32
                             " on this mesh",
                             rows, rows == 1 ? "" : "s", p->stages.len));
  const char *row = p->schedule;
  for (uint32_t s = 0; s < rows; s++) {
    size_t n = strcspn(row, "\n");
    if (!read_row(arena, p, s, row, n, span, sink)) return false;
    row += n + 1;
  }
  p->schedule = "table";
  return true;
}

/* Stage s begins with one forward part more than it would otherwise, and puts off s weight
 * gradients: then all stages turn in the same rhythm. */
static void build_h1(Arena *arena, Pipeline *p, bool weight_first) {
  uint32_t stages = p->stages.len, total = p->microbatches * p->chunks;
  uint32_t group = p->microbatches < stages ? p->microbatches : stages;
  for (uint32_t s = 0; s < stages; s++) {
    uint32_t ahead = stages - s, f = 0, w = 0;
    if (p->chunks > 1) ahead = 2 * ahead - 1 + (p->chunks - 1) * group;
    p->stages.data[s].entries.len = 0;
    while (f < ahead && f < total) add_nth(arena, p, SEGMENT_FORWARD, s, f++);
    for (uint32_t b = 0; b < total; b++) {
      add_nth(arena, p, SEGMENT_BACKWARD, s, b);
      if (weight_first && b >= s) add_nth(arena, p, SEGMENT_WEIGHT, s, w++);
      if (f < total) add_nth(arena, p, SEGMENT_FORWARD, s, f++);
      if (!weight_first && b >= s) add_nth(arena, p, SEGMENT_WEIGHT, s, w++);
    }
    while (w < total) add_nth(arena, p, SEGMENT_WEIGHT, s, w++);
  }
}

/* Units until all stages are at their end; UINT32_MAX when they never are. */
static uint32_t length_of(Arena *arena, const Pipeline *p) {
  Timeline line;
  const char *why;
  for (uint32_t s = 0; s < p->stages.len; s++)
    if (p->stages.data[s].entries.len < p->microbatches * p->chunks * (p->apart ? 3u : 2u))
      return UINT32_MAX;
  return schedule_play(arena, p, CHANNEL_SLOTS, &line, NULL, &why) ? line.length : UINT32_MAX;
}

/* The ways to a family's list, the most regular first; false when there are no more. */
static bool build_way(Arena *arena, Pipeline *p, int way) {
  enum { GPIPE_WAYS = 1, WAYS = 2, ZERO_BUBBLE_WAYS = 5 };
  bool zero_bubble = strcmp(p->schedule, "zero_bubble") == 0;
  bool gpipe = strcmp(p->schedule, "gpipe") == 0;
  for (uint32_t s = 0; s < p->stages.len; s++) p->stages.data[s].entries.len = 0;
  if (way >= (zero_bubble ? ZERO_BUBBLE_WAYS : gpipe ? GPIPE_WAYS : WAYS)) return false;
  if (!zero_bubble)
    build_1f1b(arena, p, gpipe || way == 1);
  else if (way < 2)
    build_h1(arena, p, way == 0);
  else if (way == 2)
    build_zero_bubble(arena, p);
  else
    build_1f1b(arena, p, way == 4);
  return true;
}

/* Where stages and micro-batches are numbers that a list was not made for, stages could wait for
 * one another, or longer than by another list: the shortest is taken. */
static void build_family(Arena *arena, Pipeline *p) {
  int best = 0;
  uint32_t least = UINT32_MAX;
  Arena scratch;
  arena_init(&scratch);
  for (int way = 0; build_way(arena, p, way); way++) {
    uint32_t length = length_of(&scratch, p);
    if (length >= least) continue;
    least = length;
    best = way;
  }
  arena_free(&scratch);
  build_way(arena, p, best);
}

bool schedule_build(Arena *arena, Pipeline *p, Span span, DiagSink *sink) {
  if (!is_table(p->schedule))
    build_family(arena, p);
  else if (!build_table(arena, p, span, sink))
    return false;
  for (uint32_t s = 0; s < p->stages.len; s++)
    if (!complete(arena, p, s, span, sink)) return false;
  const char *why;
  Timeline line;
  if (schedule_play(arena, p, CHANNEL_SLOTS, &line, sink->sources, &why)) return true;
  return fail(sink, span, why);
}
