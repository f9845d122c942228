/* Schedules of pipelines, without a program: every family comes to its end with channels of two
 * slots, has the bubble and the memory that its theory says, and a list in which entries are
 * swapped is refused exactly when stages that go on in any order stand still.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/pipeline.h"
#include "support/suite.h"

static Arena arena;

typedef struct Shape {
  uint32_t stages, chunks, micro;
} Shape;

static void add_segment(Pipeline *p, SegmentKind kind, uint32_t stage, uint32_t chunk) {
  Segment s = {.kind = kind, .stage = stage, .chunk = chunk};
  VEC_PUSH(&arena, &p->segments, s);
}

static void add_channel(Pipeline *p, uint32_t from, uint32_t to) {
  if (p->segments.data[from].stage == p->segments.data[to].stage) return;
  VEC_PUSH(&arena, &p->channels, ((Channel){.from = from, .to = to}));
}

/* A chain that comes by all stages `chunks` times; back the same way. */
static Pipeline *chain(Shape s, const char *schedule) {
  Pipeline *p = ARENA_NEW(&arena, Pipeline);
  p->microbatches = s.micro;
  p->chunks = s.chunks;
  p->schedule = schedule;
  p->apart = schedule_is_apart(schedule);
  add_segment(p, SEGMENT_ONCE, 0, 0);
  for (uint32_t i = 0; i < s.stages * s.chunks; i++)
    add_segment(p, SEGMENT_FORWARD, i % s.stages, i / s.stages);
  for (uint32_t i = s.stages * s.chunks; i-- > 0;) {
    add_segment(p, SEGMENT_BACKWARD, i % s.stages, i / s.stages);
    if (p->apart) add_segment(p, SEGMENT_WEIGHT, i % s.stages, i / s.stages);
  }
  for (uint32_t i = 0; i < s.stages * s.chunks; i++) {
    uint32_t f = pipeline_segment(p, SEGMENT_FORWARD, i % s.stages, i / s.stages);
    uint32_t b = pipeline_segment(p, SEGMENT_BACKWARD, i % s.stages, i / s.stages);
    VEC_PUSH(&arena, &p->carries, ((Carry){f, b}));
    if (i + 1 == s.stages * s.chunks) break;
    uint32_t next = i + 1;
    add_channel(p, f, pipeline_segment(p, SEGMENT_FORWARD, next % s.stages, next / s.stages));
    add_channel(p, pipeline_segment(p, SEGMENT_BACKWARD, next % s.stages, next / s.stages), b);
  }
  Mesh *mesh = ARENA_NEW(&arena, Mesh);
  *mesh = (Mesh){.name = "m", .nranks = 1};
  for (uint32_t i = 0; i < s.stages; i++) VEC_PUSH(&arena, &p->stages, ((PipeStage){.mesh = mesh}));
  return p;
}

static bool build(Pipeline *p, DiagSink *sink) {
  diag_init(sink, &arena, NULL);
  return schedule_build(&arena, p, (Span){0}, sink);
}

static const char *const families[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

/* --- an oracle: stages that go on one at a time in an order of chance --------------------------
 */

typedef struct Walker {
  const Pipeline *p;
  uint32_t *at, *taken_of, *posted_of; /* per stage: entry; channels of it that are done */
  uint32_t *head, *tail;               /* per channel */
  uint32_t *queue;                     /* micro-batches on their way */
} Walker;

/* One step of a stage: takes one message, or posts one, or goes to the next entry. */
static bool step(Walker *w, uint32_t s) {
  const EntryList *list = &w->p->stages.data[s].entries;
  if (w->at[s] == list->len) return false;
  Entry e = list->data[w->at[s]];
  uint32_t n = w->p->channels.len, micro = w->p->microbatches;
  for (; w->taken_of[s] < n; w->taken_of[s]++) {
    uint32_t c = w->taken_of[s];
    if (w->p->channels.data[c].to != e.segment) continue;
    if (w->head[c] == w->tail[c] || w->queue[c * micro + w->head[c]] != e.micro) return false;
    w->head[c]++;
    w->taken_of[s]++;
    return true;
  }
  for (; w->posted_of[s] < n; w->posted_of[s]++) {
    uint32_t c = w->posted_of[s];
    if (w->p->channels.data[c].from != e.segment) continue;
    if (w->tail[c] - w->head[c] == CHANNEL_SLOTS) return false;
    w->queue[c * micro + w->tail[c]++] = e.micro;
    w->posted_of[s]++;
    return true;
  }
  w->at[s]++;
  w->taken_of[s] = w->posted_of[s] = 0;
  return true;
}

static bool walks(const Pipeline *p) {
  uint32_t stages = p->stages.len, n = p->channels.len;
  Walker w = {.p = p};
  w.at = ARENA_ARRAY(&arena, uint32_t, stages);
  w.taken_of = ARENA_ARRAY(&arena, uint32_t, stages);
  w.posted_of = ARENA_ARRAY(&arena, uint32_t, stages);
  w.head = ARENA_ARRAY(&arena, uint32_t, n + 1);
  w.tail = ARENA_ARRAY(&arena, uint32_t, n + 1);
  w.queue = ARENA_ARRAY(&arena, uint32_t, (size_t)n * p->microbatches + 1);
  for (;;) {
    bool moved = false, ended = true;
    uint32_t first = (uint32_t)rand() % stages;
    for (uint32_t k = 0; k < stages && !moved; k++) moved = step(&w, (first + k) % stages);
    for (uint32_t s = 0; s < stages; s++) ended &= w.at[s] == p->stages.data[s].entries.len;
    if (!moved) return ended;
  }
}

/* --- tests ---------------------------------------------------------------------------------------
 */

static const char *shape_text(const Pipeline *p) {
  static char text[128];
  snprintf(text, sizeof text, "%s, %u stages, %u chunks, %u micro-batches", p->schedule,
           p->stages.len, p->chunks, p->microbatches);
  return text;
}

START_TEST(every_family_ends) {
  const char *family = families[_i];
  for (uint32_t stages = 1; stages <= 6; stages++)
    for (uint32_t chunks = 1; chunks <= 3; chunks++)
      for (uint32_t micro = 1; micro <= 3 * stages; micro++) {
        DiagSink sink;
        Pipeline *p = chain((Shape){stages, stages == 1 ? 1 : chunks, micro}, family);
        ck_assert_msg(build(p, &sink), "%s: refused", shape_text(p));
        ck_assert_msg(walks(p), "%s: stands still", shape_text(p));
      }
}
END_TEST

static double bubble(const Pipeline *p) {
  Timeline line;
  const char *why;
  ck_assert(schedule_play(&arena, p, CHANNEL_SLOTS, &line, NULL, &why));
  uint32_t busy = 0;
  for (uint32_t s = 0; s < p->stages.len; s++) busy += line.busy[s];
  return 1 - (double)busy / ((double)line.length * p->stages.len);
}

/* (p - 1) / (m + p - 1); with v chunks (p - 1) / v stands for p - 1; zero bubble loses p - 1 units
 * beside 3 m of work. */
START_TEST(bubbles) {
  for (uint32_t stages = 2; stages <= 6; stages++)
    for (uint32_t micro = stages; micro <= 4 * stages; micro += stages) {
      DiagSink sink;
      double ramp = stages - 1, ideal = ramp / (micro + ramp);
      for (int f = 0; f < 2; f++) {
        Pipeline *p = chain((Shape){stages, 1, micro}, families[f]);
        ck_assert(build(p, &sink));
        ck_assert_double_eq_tol(bubble(p), ideal, 1e-12);
      }
      Pipeline *p = chain((Shape){stages, 2, micro}, "interleaved");
      ck_assert(build(p, &sink));
      ck_assert_double_eq_tol(bubble(p), ramp / 2 / (micro + ramp / 2), 1e-12);
      p = chain((Shape){stages, 1, micro}, "zero_bubble");
      ck_assert(build(p, &sink));
      ck_assert_double_eq_tol(bubble(p), ramp / (3 * micro + ramp), 1e-12);
    }
}
END_TEST

/* Activations: one forward, one backward holds p - s micro-batches on stage s, whatever there are.
 */
START_TEST(memory) {
  for (uint32_t stages = 1; stages <= 5; stages++)
    for (uint32_t micro = 1; micro <= 3 * stages; micro++)
      for (uint32_t s = 0; s < stages; s++) {
        DiagSink sink;
        uint32_t most = stages - s < micro ? stages - s : micro;
        Pipeline *p = chain((Shape){stages, 1, micro}, "1f1b");
        ck_assert(build(p, &sink));
        uint32_t f = pipeline_segment(p, SEGMENT_FORWARD, s, 0);
        uint32_t b = pipeline_segment(p, SEGMENT_BACKWARD, s, 0);
        ck_assert_uint_eq(schedule_slots(p, s, f, &b, 1), most);
        p = chain((Shape){stages, 1, micro}, "gpipe");
        ck_assert(build(p, &sink));
        ck_assert_uint_eq(schedule_slots(p, s, f, &b, 1), micro);
      }
}
END_TEST

/* Two entries of a stage swapped: the proof and the walk agree, and some of them are refused. */
START_TEST(swapped_entries) {
  uint32_t refused = 0, kept = 0;
  for (int trial = 0; trial < 3000; trial++) {
    uint32_t stages = 2 + (uint32_t)rand() % 3, chunks = 1 + (uint32_t)rand() % 2;
    uint32_t micro = 2 + (uint32_t)rand() % (2 * stages);
    DiagSink sink;
    Pipeline *p = chain((Shape){stages, chunks, micro}, families[rand() % 4]);
    ck_assert(build(p, &sink));
    EntryList *list = &p->stages.data[(uint32_t)rand() % stages].entries;
    Entry *a = &list->data[(uint32_t)rand() % list->len],
          *b = &list->data[(uint32_t)rand() % list->len];
    Entry swap = *a;
    *a = *b;
    *b = swap;
    Timeline line;
    const char *why = NULL;
    bool plays = schedule_play(&arena, p, CHANNEL_SLOTS, &line, NULL, &why);
    ck_assert_msg(plays == walks(p), "%s: %s", shape_text(p), plays ? "plays" : why);
    ck_assert(plays || strstr(why, "waits"));
    refused += !plays;
    kept += plays;
    arena_free(&arena);
    arena_init(&arena);
  }
  ck_assert_msg(refused > 300 && kept > 300, "%u refused, %u kept", refused, kept);
}
END_TEST

typedef struct Table {
  const char *rows;
  const char *fault; /* a part of the reason; NULL = none */
} Table;

/* Two stages, two micro-batches. */
static const Table tables[] = {
    {"F0 F1 B0 B1\nF0 B0 F1 B1\n", NULL},
    {"F0 F1 B0 B1\nF0 F1 B0 B1\n", NULL},
    {"F0,F1,B0,W0,B1,W1\nF0 B0 W0 F1 B1 W1\n", NULL},
    {"F0 B0 F1 B1\nF0 F1 B0 B1\n", "stage 1 (rank 0) in entry 1, F1, waits for stage 0"},
    {"F0 F1 B0 B1\nF1 B1 F0 B0\n", "a channel keeps the order of its messages"},
    {"F0 F1 B0 B1\nF0 B0 F1\n", "stage 1 lacks B1"},
    {"F0 F1 B0 B1\nF0 F0 B0 F1 B1\n", "stage 1 does F0 twice"},
    {"F0 F1 B0 B1\nB0 F0 F1 B1\n", "stage 1 does B0 before F0"},
    {"F0 F1 B0 B1\n", "the table has 1 stage, but the program has 2"},
    {"F0 F1 B0 B1\nF0 B0 F2 B2\n", "there are 2 micro-batches"},
    {"F0 F1 B0 B1\nF0 B0 F1.1 B1\n", "1 chunk, counted from 0"},
    {"F0 F1 B0 B1\nF0 B0 F1 X\n", "'X' is none of F, B and W"},
    {"F0 F1 B0 B1\nF0 B0 F1 B1.\n", "'B1.' is none of F, B and W"},
};

START_TEST(user_tables) {
  const Table *t = &tables[_i];
  DiagSink sink;
  Pipeline *p = chain((Shape){2, 1, 2}, t->rows);
  bool ok = build(p, &sink);
  ck_assert_msg(ok == !t->fault, "%s", t->rows);
  if (ok) return;
  ck_assert_uint_eq(sink.diags.len, 1);
  const DiagLine *line = &sink.diags.data[0]->lines.data[0];
  const char *reason = line->text;
  ck_assert_msg(reason && strstr(reason, t->fault), "%s: %s", t->rows, reason);
}
END_TEST

static void begin(void) {
  arena_init(&arena);
  srand(7);
}
static void end(void) {
  arena_free(&arena);
}

int main(void) {
  TCase *t = tcase_create("schedule");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, begin, end);
  tcase_add_loop_test(t, every_family_ends, 0, 4);
  tcase_add_test(t, bubbles);
  tcase_add_test(t, memory);
  tcase_add_test(t, swapped_entries);
  tcase_add_loop_test(t, user_tables, 0, (int)(sizeof tables / sizeof *tables));
  Suite *s = suite_create("schedule");
  suite_add_tcase(s, t);
  return suite_run(s);
}
