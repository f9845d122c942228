/* The schedule as text and as a drawing: see pipeline.h.
 *
 * Time is that of the proof's play: a forward part takes one unit, a backward part two (one, and
 * one for the weights, where they are apart), messages take none. The bubble is the share of stages
 * and time in which a stage has nothing to do.
 */
#include <inttypes.h>

#include "spmd/pipeline.h"

typedef struct Facts {
  Timeline line;
  double bubble; /* of 1 */
} Facts;

static const char no_pipeline[] =
    "no pipeline: train has neither microbatches nor a schedule of several stages";

static Facts find_facts(Arena *scratch, const Pipeline *p) {
  Facts f = {0};
  const char *why;
  uint64_t busy = 0;
  schedule_play(scratch, p, CHANNEL_SLOTS, &f.line, NULL, &why);
  for (uint32_t s = 0; s < p->stages.len; s++) busy += f.line.busy[s];
  double all = (double)f.line.length * p->stages.len;
  f.bubble = all > 0 ? 1 - (double)busy / all : 0;
  return f;
}

/* The most forward parts of which the backward part is not done, at any time. */
static uint32_t under_way(const Pipeline *p, uint32_t stage) {
  const EntryList *list = &p->stages.data[stage].entries;
  uint32_t now = 0, most = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    SegmentKind kind = p->segments.data[list->data[i].segment].kind;
    if (kind == SEGMENT_FORWARD && ++now > most) most = now;
    if (kind == SEGMENT_BACKWARD) now--;
  }
  return most;
}

static const char *plural(uint32_t n, const char *many) {
  return n == 1 ? "" : many;
}

static const char *title(Arena *scratch, const Pipeline *p) {
  return arena_printf(
      scratch, "schedule %s: %" PRIu32 " stage%s, %" PRIu32 " micro-batch%s, %" PRIu32 " chunk%s",
      p->schedule, p->stages.len, plural(p->stages.len, "s"), p->microbatches,
      plural(p->microbatches, "es"), p->chunks, plural(p->chunks, "s"));
}

static const char *bubble_text(Arena *scratch, const Pipeline *p, const Facts *f) {
  return arena_printf(scratch, "bubble %.1f %% of %" PRIu32 " units (forward 1, backward %s)",
                      100 * f->bubble, f->line.length, p->apart ? "1, weights 1" : "2");
}

static void print_channels(StrBuf *out, const Program *program, const Pipeline *p, Arena *scratch) {
  for (uint32_t i = 0; i < p->channels.len; i++) {
    const Channel *c = &p->channels.data[i];
    const Segment *a = &p->segments.data[c->from], *b = &p->segments.data[c->to];
    strbuf_printf(out, "channel %" PRIu32 ": stage %" PRIu32 " to %" PRIu32 ", %d slots", i,
                  a->stage, b->stage, CHANNEL_SLOTS);
    if (c->name) strbuf_printf(out, ", %s", c->name);
    if (c->span.file && program->sources)
      strbuf_printf(out, "  // %s", span_print(scratch, program->sources, c->span));
    strbuf_putc(out, '\n');
  }
}

void pipeline_print(StrBuf *out, const Program *program, const StageMemory *memory) {
  const Pipeline *p = program->block[BLOCK_TRAIN].pipeline;
  if (!p) {
    strbuf_printf(out, "%s\n", no_pipeline);
    return;
  }
  Arena scratch;
  arena_init(&scratch);
  Facts facts = find_facts(&scratch, p);
  strbuf_printf(out, "%s\n%s\n", title(&scratch, p), bubble_text(&scratch, p, &facts));
  print_channels(out, program, p, &scratch);
  for (uint32_t s = 0; s < p->stages.len; s++) {
    const PipeStage *stage = &p->stages.data[s];
    strbuf_printf(out,
                  "stage %" PRIu32 " on %s, at most %" PRIu32 " under way; bytes per rank: %" PRIu64
                  " kept between parts, %" PRIu64 " arena:",
                  s, stage->mesh->name, under_way(p, s), memory[s].kept, memory[s].arena);
    for (uint32_t i = 0; i < stage->entries.len; i++) {
      strbuf_putc(out, ' ');
      entry_print(out, p, stage->entries.data[i]);
    }
    strbuf_putc(out, '\n');
  }
  arena_free(&scratch);
}

/* --- drawing ------------------------------------------------------------------------------------
 */

enum {
  LEFT = 84,
  TOP = 64,
  ROW = 34,
  TALL = 28,
  BELOW = 46,
  RIGHT = 180,
  LEAST_UNIT = 8,
  MOST_WIDE = 1500
};

static const char style[] =
    "<style>\n"
    "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\n"
    ".h{font-weight:bold;font-size:14px}.d{fill:#59636e}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".p{fill:#ffffff}.i{fill:#eff1f3}.a{stroke:#818b98;fill:none}\n"
    "g rect{stroke:#ffffff;stroke-width:1}g:hover rect{stroke:#1f2328;stroke-width:1.5}\n"
    ".f0{fill:#9ecbff}.f1{fill:#6cb0f7}.b0{fill:#ffc680}.b1{fill:#f0a848}.w0{fill:#9be0a8}\n"
    ".w1{fill:#6fcb81}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.d{fill:#9198a1}.p{fill:#0d1117}.i{fill:#161b22}.a{stroke:#656c76}\n"
    "g rect{stroke:#0d1117}g:hover rect{stroke:#e6edf3}\n"
    ".f0{fill:#174b80}.f1{fill:#2362a3}.b0{fill:#7a4a10}.b1{fill:#945c17}.w0{fill:#1c5b31}\n"
    ".w1{fill:#26743f}\n"
    "}\n"
    "</style>\n";

static void put_entry(StrBuf *out, const Pipeline *p, Entry e, uint32_t begin, double y,
                      double unit) {
  const Segment *s = &p->segments.data[e.segment];
  char class = s->kind == SEGMENT_FORWARD ? 'f' : s->kind == SEGMENT_BACKWARD ? 'b' : 'w';
  double x = LEFT + begin * unit, wide = segment_units(p, e.segment) * unit;
  StrBuf name;
  strbuf_init(&name, out->arena);
  entry_print(&name, p, e);
  strbuf_printf(out,
                "<g><title>stage %" PRIu32 ", %s, micro-batch %" PRIu32 ", chunk %" PRIu32
                ", from unit %" PRIu32 "</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                "height=\"%d\" class=\"%c%" PRIu32 "\"/>",
                s->stage, name.text, e.micro, s->chunk, begin, x, y, wide, TALL, class,
                s->chunk % 2);
  if ((double)name.len * 6.7 + 2 < wide)
    strbuf_svg_text(out, x + wide / 2, y + TALL / 2 + 4, "m", "%s", name.text);
  strbuf_puts(out, "</g>\n");
}

static void put_legend(StrBuf *out, const Pipeline *p, double y) {
  static const char *const what[] = {"forward", "backward", "weight gradients", "nothing to do"};
  static const char *const class[] = {"f0", "b0", "w0", "i"};
  double x = LEFT;
  for (int i = 0; i < 4; i++) {
    if (i == 2 && !p->apart) continue;
    strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" class=\"%s\"/>\n", x,
                  y - 10, class[i]);
    strbuf_svg_text(out, x + 18, y, "d", "%s", what[i]);
    x += 150;
  }
  if (p->chunks > 1)
    strbuf_svg_text(out, x, y, "d", "darker: chunk %s", p->chunks > 2 ? "1, 3, ..." : "1");
}

static void begin_drawing(StrBuf *out, double wide, double tall) {
  strbuf_printf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\">\n%s<rect class=\"p\" width=\"100%%\" height=\"100%%\"/>\n",
      wide, tall, wide, tall, style);
}

void pipeline_draw(StrBuf *out, const Program *program, const StageMemory *memory) {
  const Pipeline *p = program->block[BLOCK_TRAIN].pipeline;
  if (!p) {
    begin_drawing(out, 640, 52);
    strbuf_svg_text(out, 20, 30, "d", "%s", no_pipeline);
    strbuf_puts(out, "</svg>\n");
    return;
  }
  Arena scratch;
  arena_init(&scratch);
  Facts facts = find_facts(&scratch, p);
  uint32_t length = facts.line.length ? facts.line.length : 1;
  double unit = (double)MOST_WIDE / length;
  unit = unit > 36 ? 36 : unit < LEAST_UNIT ? LEAST_UNIT : unit;
  double wide = LEFT + length * unit + RIGHT, tall = TOP + p->stages.len * ROW + BELOW;
  if (wide < 640) wide = 640;
  begin_drawing(out, wide, tall);
  strbuf_svg_text(out, LEFT, 26, "h", "%s", title(&scratch, p));
  strbuf_svg_text(out, LEFT, 46, "d", "%s; right: kept between parts, arena, per rank",
                  bubble_text(&scratch, p, &facts));
  for (uint32_t s = 0; s < p->stages.len; s++) {
    const EntryList *list = &p->stages.data[s].entries;
    double y = TOP + s * ROW;
    strbuf_svg_text(out, LEFT - 8, y + TALL / 2 + 4, "e", "stage %" PRIu32, s);
    strbuf_printf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" class=\"i\"/>\n",
                  LEFT, y, length * unit, TALL);
    for (uint32_t i = 0; i < list->len; i++)
      put_entry(out, p, list->data[i], facts.line.begin[s][i], y, unit);
    strbuf_svg_text(out, LEFT + length * unit + 8, y + TALL / 2 + 4, "d", "%s, %s",
                    bytes_print(&scratch, (int64_t)memory[s].kept),
                    bytes_print(&scratch, (int64_t)memory[s].arena));
  }
  put_legend(out, p, TOP + p->stages.len * ROW + 22);
  strbuf_puts(out, "</svg>\n");
  arena_free(&scratch);
}
