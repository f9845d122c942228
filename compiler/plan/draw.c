/* The arena of a block over time, as a drawing: see plan.h (--emit=memory).
 *
 * Across: what is executed, in order. Up: the bytes of the arena. A buffer is a rectangle as wide
 * as it lives and as high as it is large; pointing at it shows its name, source and size.
 * Rectangles have the colour of the phase that makes them. The line is the sum of what is alive:
 * white space below the top of its highest point is what the packing loses.
 */
#include <string.h>

#include "plan/block.h"

enum { LEFT = 84, TOP = 74, TALL = 360, BELOW = 96, LEAST_WIDE = 640, MOST_WIDE = 1600 };
#define CHAR 6.7 /* width of a character, in a monospace font of 11 pixels */

static const char style[] =
    "<style>\n"
    "text{font:11px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\n"
    ".h{font-weight:bold;font-size:14px}.d{fill:#59636e}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".p{fill:#ffffff}.a{stroke:#818b98;fill:none}\n"
    ".l{stroke:#1f2328;fill:none;stroke-width:1.5;stroke-opacity:.6}\n"
    "g rect{stroke:#ffffff;stroke-width:.6}g:hover rect{stroke:#1f2328;stroke-width:1.5}\n"
    ".c0{fill:#9ecbff}.c1{fill:#ffa3a3}.c2{fill:#ffc680}.c3{fill:#d3bcff}.c4{fill:#9be0a8}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.d{fill:#9198a1}.p{fill:#0d1117}.a{stroke:#656c76}.l{stroke:#e6edf3}\n"
    "g rect{stroke:#0d1117}g:hover rect{stroke:#e6edf3}\n"
    ".c0{fill:#174b80}.c1{fill:#7a2020}.c2{fill:#7a4a10}.c3{fill:#4c3787}.c4{fill:#1c5b31}\n"
    "}\n"
    "</style>\n";

/* --- what is drawn
 * --------------------------------------------------------------------------------------- */

static const char *source_of(const PlanBlock *b, Span span) {
  if (!span.file || !b->program->sources) return "";
  return span_print(b->arena, b->program->sources, span);
}

void block_list_buffers(const PlanBlock *b, uint64_t base, PlanReport *report) {
  const FusedProgram *f = b->fused;
  uint32_t *column = ARENA_ARRAY(b->arena, uint32_t, b->norder + 1);
  bool *listed = ARENA_ARRAY(b->arena, bool, f->values.len);
  for (uint32_t p = 0; p < b->norder; p++) {
    uint32_t g = b->order[p];
    column[p] = report->columns;
    if (f->groups.data[g].kind == GROUP_VIEW || group_op(b, g) == OP_READ) continue;
    report->columns++;
    Phase phase = group_phase(b, g); /* what is recomputed stands within the backward pass */
    report->phase_end[phase == PHASE_RECOMPUTE ? PHASE_BACKWARD : phase] = report->columns;
  }
  column[b->norder] = report->columns;
  for (uint32_t p = 0; p < b->norder; p++) {
    const Group *g = &f->groups.data[b->order[p]];
    for (uint32_t k = 0; k < g->noutputs; k++) {
      const Storage *s = block_storage(b, g->outputs[k]);
      uint32_t root = (uint32_t)(s - b->storage);
      if (s->var || s->step || s->bytes == 0 || s->first == NOWHERE || listed[root]) continue;
      listed[root] = true;
      const Node *n = graph_node(f->graph, g->node);
      ValueId value = f->values.data[g->outputs[k]].value;
      const char *name = value ? graph_value(f->graph, value)->name : NULL;
      PlanBuffer buffer = {.offset = s->offset - base,
                           .size = storage_bytes(s),
                           .first = column[s->first],
                           .last = column[s->last],
                           .phase = group_phase(b, b->order[p]),
                           .name = name ? name : op_name(n->op),
                           .source = source_of(b, n->span)};
      VEC_PUSH(b->arena, &report->buffers, buffer);
    }
  }
}

/* --- drawing
 * --------------------------------------------------------------------------------------- */

typedef struct Drawing {
  StrBuf *out;
  const PlanReport *report;
  double top, wide, per_column, per_byte;
} Drawing;

static double x_of(const Drawing *d, uint32_t column) {
  return LEFT + column * d->per_column;
}

static double y_of(const Drawing *d, uint64_t bytes) {
  return d->top + TALL - (double)bytes * d->per_byte;
}

static void put_buffer(const Drawing *d, const PlanBuffer *b) {
  StrBuf *out = d->out;
  double x = x_of(d, b->first), wide = x_of(d, b->last + 1) - x;
  double y = y_of(d, b->offset + b->size), tall = (double)b->size * d->per_byte;
  strbuf_puts(out, "<g><title>");
  strbuf_put_xml(out, arena_printf(out->arena, "%s  %s\n%s at %llu, columns %u to %u, %s", b->name,
                                   b->source, bytes_print(out->arena, (int64_t)b->size),
                                   (unsigned long long)b->offset, b->first, b->last,
                                   phase_name(b->phase)));
  strbuf_printf(out,
                "</title><rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" "
                "class=\"c%d\"/>",
                x, y, wide, tall, (int)b->phase);
  const char *both = arena_printf(out->arena, "%s %s", b->name, b->source);
  const char *label = (double)strlen(both) * CHAR + 4 < wide ? both : b->name;
  if ((double)strlen(label) * CHAR + 4 < wide && tall > 12)
    strbuf_svg_text(out, x + wide / 2, y + tall / 2 + 4, "m", "%s", label);
  strbuf_puts(out, "</g>\n");
}

/* The sum of what is alive, column by column. */
static void put_live(const Drawing *d) {
  const PlanReport *r = d->report;
  uint64_t *live = ARENA_ARRAY(d->out->arena, uint64_t, r->columns + 2);
  for (uint32_t i = 0; i < r->buffers.len; i++) {
    const PlanBuffer *b = &r->buffers.data[i];
    for (uint32_t c = b->first; c <= b->last; c++) live[c] += b->size;
  }
  strbuf_printf(d->out, "<path class=\"l\" d=\"M%.1f %.1f", x_of(d, 0), y_of(d, 0));
  for (uint32_t c = 0; c < r->columns; c++)
    strbuf_printf(d->out, "V%.1fH%.1f", y_of(d, live[c]), x_of(d, c + 1));
  strbuf_printf(d->out, "V%.1f\"/>\n", y_of(d, 0));
}

static void put_axes(const Drawing *d) {
  const PlanReport *r = d->report;
  StrBuf *out = d->out;
  for (int i = 0; i <= 4; i++) {
    uint64_t bytes = r->height / 4 * (uint64_t)i;
    strbuf_svg_text(out, LEFT - 8, y_of(d, bytes) + 4, "e d", "%s",
                    bytes_print(out->arena, (int64_t)bytes));
    strbuf_printf(out, "<path class=\"a\" d=\"M%d %.1fh4\"/>\n", LEFT - 4, y_of(d, bytes));
  }
  double base = y_of(d, 0);
  strbuf_printf(out, "<path class=\"a\" d=\"M%d %.1fV%.1fH%.1f\"/>\n", LEFT, d->top, base,
                LEFT + d->wide);
  double x = LEFT;
  for (Phase p = PHASE_FORWARD; p <= PHASE_OPTIMIZER; p++) {
    if (r->phase_end[p] == 0) continue;
    double end = x_of(d, r->phase_end[p]);
    if (end <= x) continue; /* between groups of the phase before */
    strbuf_printf(out, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"6\"/>\n",
                  (int)p, x, base + 5, end - x);
    x = end;
  }
  x = LEFT;
  for (Phase p = PHASE_FORWARD; p <= PHASE_OPTIMIZER; p++) {
    strbuf_printf(out, "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\"/>\n",
                  (int)p, x, base + 24);
    strbuf_svg_text(out, x + 18, base + 34, "", "%s", phase_name(p));
    x += 110;
  }
  strbuf_svg_text(
      out, LEFT, base + 56, "d",
      "across: the order of execution; up: bytes of the arena; line: the sum of what is alive");
}

static double put_block(StrBuf *out, const PlanReport *r, const char *name, double top,
                        double wide) {
  Drawing d = {.out = out,
               .report = r,
               .top = top + TOP,
               .wide = wide,
               .per_column = wide / r->columns,
               .per_byte = (double)TALL / (double)r->height};
  strbuf_svg_text(out, LEFT, top + 28, "h", "memory of block %s", name);
  strbuf_svg_text(out, LEFT, top + 50, "",
                  "%s above the variables, %s alive at most (%.2f %% less), %u buffers",
                  bytes_print(out->arena, (int64_t)r->height),
                  bytes_print(out->arena, (int64_t)r->live_bound),
                  100 * (1 - (double)r->live_bound / (double)r->height), r->buffers.len);
  for (uint32_t i = 0; i < r->buffers.len; i++) put_buffer(&d, &r->buffers.data[i]);
  put_live(&d);
  put_axes(&d);
  return top + TOP + TALL + BELOW;
}

void plan_draw(StrBuf *out, const Plan *plan) {
  uint32_t columns = 0, drawn = 0;
  for (BlockKind b = BLOCK_INIT; b < BLOCK_COUNT; b++) {
    const PlanReport *r = &plan->blocks[b];
    if (!r->height) continue;
    drawn++;
    if (r->columns > columns) columns = r->columns;
  }
  double wide = columns * 14.0;
  wide = wide < LEAST_WIDE ? LEAST_WIDE : wide > MOST_WIDE ? MOST_WIDE : wide;
  double width = LEFT + wide + 24, height = drawn * (double)(TOP + TALL + BELOW) + 32, top = 0;
  strbuf_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>memory of a program</title>\n%s"
                "<rect class=\"p\" width=\"100%%\" height=\"100%%\"/>\n",
                width, height, width, height, style);
  for (BlockKind b = BLOCK_INIT; b < BLOCK_COUNT; b++)
    if (plan->blocks[b].height) top = put_block(out, &plan->blocks[b], block_name(b), top, wide);
  strbuf_svg_text(out, LEFT, top + 8, "d", "variables, below these buffers in the arena: %s",
                  bytes_print(out->arena, (int64_t)plan->persistent_size));
  strbuf_puts(out, "</svg>\n");
}
