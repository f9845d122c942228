/* `dtmc explain tensor --format=svg`: the drawing as one document.
 *
 * Widths are in proportion to the parts, where that leaves room for what is written into the cells.
 * The order of mesh dims that cut one tensor dim shows in brackets, one row of them per mesh dim,
 * and in the room between the parts of the outer one. Colours come from a style sheet inside, which
 * has a second set for dark pages. Text is assumed to be CHAR wide per character (a monospace
 * font).
 */
#include <string.h>

#include "report/cut.h"

enum {
  MAX_PARTS = 16,
  COLOURS = 12,
  MARGIN = 24,
  LINE = 18,        /* height of a line of text */
  INNER = 3,        /* room between parts */
  OUTER = 12,       /* ... of the outer mesh dim */
  GAP_SIZE = 28,    /* of a gap and of an empty part */
  USUAL = 420,      /* width of a drawing */
  LEAST_HEIGHT = 30 /* of a cell */
};
#define CHAR 7.3

static const char style[] =
    "<style>\n"
    "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1f2328}\n"
    ".h{font-weight:bold;font-size:14px}.d{fill:#59636e}.m{text-anchor:middle}\n"
    ".p{fill:#ffffff}.b{stroke:#818b98;fill:none}\n"
    ".e{fill:none;stroke:#818b98;stroke-dasharray:4 3}\n"
    ".c0{fill:#b6d7ff}.c1{fill:#ffd8a8}.c2{fill:#b7ebc0}.c3{fill:#ffc4d6}.c4{fill:#d9c8ff}\n"
    ".c5{fill:#fff0a3}.c6{fill:#a8e6e6}.c7{fill:#e3cdb8}.c8{fill:#cfe8a9}.c9{fill:#f3c6f0}\n"
    ".c10{fill:#c5cff7}.c11{fill:#d5d9de}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.d{fill:#9198a1}.p{fill:#0d1117}.b{stroke:#656c76}\n"
    ".e{stroke:#656c76}\n"
    ".c0{fill:#174b80}.c1{fill:#7a4a10}.c2{fill:#1c5b31}.c3{fill:#7d2848}.c4{fill:#4c3787}\n"
    ".c5{fill:#635400}.c6{fill:#115b5e}.c7{fill:#5c4330}.c8{fill:#42591a}.c9{fill:#6a2f68}\n"
    ".c10{fill:#34408a}.c11{fill:#454c54}\n"
    "}\n"
    "</style>\n";

typedef struct Svg {
  Arena *arena;
  StrBuf *out;
  const Cut *cut;
  CutStrip rows, cols;
  double left, top; /* of the cells */
} Svg;

static double text_width(const char *s) {
  double n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
  return n * CHAR;
}

static bool is_empty(const CutStrip *strip, uint32_t i) {
  return strip->dim >= 0 && strip->slice[i].length == 0;
}

/* Room before slice i. */
static double room_before(const Svg *s, const CutStrip *strip, uint32_t i) {
  if (i == 0) return 0;
  bool outer = strip->dim >= 0 && s->cut->naxes[strip->dim] > 1 && strip->slice[i].level == 0;
  return outer ? OUTER : INNER;
}

static double strip_size(const Svg *s, const CutStrip *strip) {
  double size = 0;
  for (uint32_t i = 0; i < strip->len; i++) size += room_before(s, strip, i) + strip->slice[i].size;
  return size;
}

/* Sizes in proportion to the lengths, none below what it needs. */
static void make_sizes(const CutStrip *strip, const double *least, double usual) {
  double whole = 0;
  for (uint32_t i = 0; i < strip->len; i++)
    if (!strip->slice[i].gap) whole += (double)strip->slice[i].length;
  for (uint32_t i = 0; i < strip->len; i++) {
    CutSlice *p = &strip->slice[i];
    double size = whole > 0 && !p->gap ? usual * (double)p->length / whole : 0;
    p->size = size > least[i] ? size : least[i];
  }
}

static const char *cell_text(const Svg *s, uint32_t r, uint32_t c) {
  if (s->rows.slice[r].gap || s->cols.slice[c].gap) return "\u2026";
  return cut_holders_print(s->arena, s->cut, &s->rows, r, &s->cols, c, 12);
}

static void make_columns(Svg *s) {
  double least[MAX_PARTS];
  for (uint32_t c = 0; c < s->cols.len; c++) {
    least[c] = GAP_SIZE;
    if (s->cols.slice[c].gap) continue;
    double w = text_width(cut_range_print(s->arena, &s->cols.slice[c]));
    if (s->cols.dim >= 0 && w > least[c]) least[c] = w;
    uint32_t n = s->cols.dim >= 0 ? s->cut->naxes[s->cols.dim] : 0;
    w = n ? text_width(cut_coord_print(s->arena, s->cut, &s->cols, c, n - 1)) : 0;
    if (w > least[c]) least[c] = w;
    for (uint32_t r = 0; r < s->rows.len; r++) {
      w = text_width(cell_text(s, r, c)) + 10;
      if (w > least[c]) least[c] = w;
    }
  }
  make_sizes(&s->cols, least, USUAL);
}

static void make_rows(Svg *s) {
  double least[MAX_PARTS], usual = 60;
  for (uint32_t r = 0; r < s->rows.len; r++) least[r] = is_empty(&s->rows, r) ? LINE : LEAST_HEIGHT;
  if (s->rows.dim >= 0 && s->cut->type.shape[s->cols.dim] > 0) {
    double ratio =
        (double)s->cut->type.shape[s->rows.dim] / (double)s->cut->type.shape[s->cols.dim];
    usual = USUAL * (ratio < 0.35 ? 0.35 : ratio > 1.2 ? 1.2 : ratio);
  }
  make_sizes(&s->rows, least, usual);
}

static int colour(const Cut *c, int64_t row, int64_t col) {
  return (int)((row * cut_parts(c, c->col) + col) % COLOURS);
}

static void put_rect(StrBuf *out, double x, double y, double w, double h, const char *class) {
  strbuf_printf(
      out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" class=\"%s\"/>\n",
      x, y, w, h, class);
}

static void put_cells(const Svg *s) {
  double y = s->top;
  for (uint32_t r = 0; r < s->rows.len; r++) {
    const CutSlice *row = &s->rows.slice[r];
    y += room_before(s, &s->rows, r);
    double x = s->left;
    for (uint32_t c = 0; c < s->cols.len; c++) {
      const CutSlice *col = &s->cols.slice[c];
      x += room_before(s, &s->cols, c);
      bool gap = row->gap || col->gap, empty = is_empty(&s->rows, r) || is_empty(&s->cols, c);
      if (!gap)
        put_rect(s->out, x, y, col->size, row->size,
                 empty ? "e"
                       : arena_printf(s->arena, "c%d", colour(s->cut, row->index, col->index)));
      strbuf_svg_text(s->out, x + col->size / 2, y + row->size / 2 + 4, gap || empty ? "m d" : "m",
                      "%s", cell_text(s, r, c));
      x += col->size;
    }
    y += row->size;
  }
}

/* Brackets over (or beside) the parts: one row per mesh dim, outer one farthest, then the ranges.
 */
static void put_heads(const Svg *s, const CutStrip *strip, bool across) {
  if (strip->dim < 0) return;
  uint32_t n = s->cut->naxes[strip->dim];
  double origin = across ? s->left : s->top;
  for (uint32_t k = 0; k <= n; k++) {
    double at = origin;
    for (uint32_t i = 0; i < strip->len;) {
      at += room_before(s, strip, i);
      double begin = at;
      uint32_t end = i;
      do {
        at += (end > i ? room_before(s, strip, end) : 0) + strip->slice[end].size;
        end++;
      } while (k < n && !strip->slice[i].gap && end < strip->len && !strip->slice[end].gap &&
               strip->slice[end].level > k);
      const CutSlice *p = &strip->slice[i];
      const char *text = k == n   ? cut_range_print(s->arena, p)
                         : p->gap ? ""
                                  : cut_coord_print(s->arena, s->cut, strip, i, k);
      double middle = (begin + at) / 2, line = (double)(n - k) * (LINE + 4);
      if (across) {
        strbuf_svg_text(s->out, middle, s->top - 8 - line, k == n ? "m d" : "m", "%s", text);
        if (k < n && !p->gap)
          strbuf_printf(s->out, "<path class=\"b\" d=\"M%.1f %.1fv-4H%.1fv4\"/>\n", begin,
                        s->top - line, at);
      } else {
        double x = MARGIN;
        for (uint32_t a = 0; a < k; a++)
          x += text_width(cut_coord_print(s->arena, s->cut, strip, 0, a)) + 22;
        strbuf_svg_text(s->out, x, middle + 4, k == n ? "d" : "", "%s", text);
        if (k < n && !p->gap)
          strbuf_printf(s->out, "<path class=\"b\" d=\"M%.1f %.1fh-4V%.1fh4\"/>\n",
                        x + text_width(text) + 12, begin, at);
      }
      i = end;
    }
  }
}

static double left_margin(const Svg *s) {
  double x = MARGIN, widest = 0;
  if (s->rows.dim < 0) return x;
  for (uint32_t a = 0; a < s->cut->naxes[s->rows.dim]; a++)
    x += text_width(cut_coord_print(s->arena, s->cut, &s->rows, 0, a)) + 22;
  for (uint32_t r = 0; r < s->rows.len; r++) {
    double w = text_width(cut_range_print(s->arena, &s->rows.slice[r]));
    if (w > widest) widest = w;
  }
  return x + widest + 10;
}

/* One line per row of the table; gives the lower end, widens *right. */
static double put_legend(const Svg *s, const CutTable *table, double x, double y, double *right) {
  const Cut *c = s->cut;
  for (uint32_t i = 0; i < table->rows.len; i++, y += LINE) {
    const CutRow *row = &table->rows.data[i];
    const CutRank *r = &row->first;
    bool drawn = table->fold != FOLD_SHAPE, empty = r->bytes == 0;
    for (uint32_t d = 0; d < c->type.rank; d++)
      if ((int)d != c->row && (int)d != c->col) drawn &= cut_part_index(c, (int)d, r->coord) == 0;
    if (drawn)
      put_rect(s->out, x, y - 10, 12, 12,
               empty ? "e"
                     : arena_printf(s->arena, "c%d",
                                    colour(c, cut_part_index(c, c->row, r->coord),
                                           cut_part_index(c, c->col, r->coord))));
    StrBuf sb;
    strbuf_init(&sb, s->arena);
    strbuf_printf(&sb, "rank%s %s", row->ranks.len > 1 ? "s" : "", cut_row_print(s->arena, row));
    for (uint32_t a = 0; table->fold == FOLD_NONE && a < c->type.mesh->naxes; a++)
      strbuf_printf(&sb, "%s%s=%lld", a ? " " : "  ", c->type.mesh->axis[a],
                    (long long)r->coord[a]);
    strbuf_printf(&sb, "  %s", cut_list_print(s->arena, r->shape, c->type.rank));
    if (table->fold != FOLD_SHAPE)
      strbuf_printf(&sb, " at %s", cut_list_print(s->arena, r->offset, c->type.rank));
    strbuf_printf(&sb, "  %s", bytes_print(s->arena, r->bytes));
    const char *role = table->fold == FOLD_NONE ? cut_role_print(s->arena, r) : "";
    if (*role) strbuf_printf(&sb, "  %s", role);
    strbuf_svg_text(s->out, x + 20, y, "", "%s", sb.text);
    double end = x + 20 + text_width(sb.text);
    if (end > *right) *right = end;
  }
  return y;
}

/* A note under the drawing in lines of at most `width`; gives the y of the next line. */
static double put_note(const Svg *s, double y, double width, const char *note) {
  StrBuf line;
  strbuf_init(&line, s->arena);
  while (*note) {
    size_t n = strcspn(note, " ");
    if (line.len && text_width(line.text) + (double)(n + 1) * CHAR > width) {
      strbuf_svg_text(s->out, MARGIN, y, "d", "%s", line.text);
      y += LINE;
      line.len = 0;
    }
    if (line.len) strbuf_putc(&line, ' ');
    strbuf_put_n(&line, note, n);
    note += n + (note[n] == ' ');
  }
  if (line.len) strbuf_svg_text(s->out, MARGIN, y, "d", "%s", line.text);
  return y + LINE;
}

static const char *axes_note(const Svg *s) {
  const Cut *c = s->cut;
  StrBuf sb;
  strbuf_init(&sb, s->arena);
  if (c->row >= 0)
    strbuf_printf(&sb, "down: dim %d, %s. ", c->row, cut_dim_print(s->arena, c, c->row));
  if (c->col >= 0)
    strbuf_printf(&sb, "across: dim %d, %s. ", c->col, cut_dim_print(s->arena, c, c->col));
  strbuf_puts(&sb, "In a cell: the ranks that hold it");
  strbuf_puts(&sb, layout_has_partial(&c->type.layout) ? ", as addends." : ".");
  return sb.text;
}

void report_svg(Arena *arena, StrBuf *out, const TensorReport *r) {
  Cut c = cut_of(r->type);
  CutTable table = cut_table(arena, &c);
  StrBuf body;
  strbuf_init(&body, arena);
  Svg s = {.arena = arena, .out = &body, .cut = &c};
  s.rows = cut_strip(arena, &c, c.row, MAX_PARTS);
  s.cols = cut_strip(arena, &c, c.col, MAX_PARTS);
  make_columns(&s);
  make_rows(&s);
  s.left = left_margin(&s);
  s.top = MARGIN + 3 * LINE + (c.col >= 0 ? (double)(c.naxes[c.col] + 1) * (LINE + 4) : 0);

  const char *title = arena_printf(arena, "%s %s", r->what, r->name);
  const char *type = arena_printf(arena, "%s on %s", type_print(arena, r->type), r->mesh);
  strbuf_svg_text(&body, MARGIN, MARGIN + 8, "h", "%s", title);
  strbuf_svg_text(&body, MARGIN, MARGIN + 8 + LINE + 4, "", "%s", type);
  put_heads(&s, &s.cols, true);
  put_heads(&s, &s.rows, false);
  put_cells(&s);
  double right = s.left + strip_size(&s, &s.cols), bottom = s.top + strip_size(&s, &s.rows);
  double legend = right + 36;
  double legend_end = put_legend(&s, &table, legend, s.top + 10, &right);
  if (MARGIN + text_width(type) > right) right = MARGIN + text_width(type);
  if (MARGIN + text_width(title) * 1.2 > right) right = MARGIN + text_width(title) * 1.2;
  if (legend_end > bottom) bottom = legend_end;
  bottom += LINE + 8;
  const char *notes[] = {axes_note(&s), report_hidden_dims(arena, &c), report_partial(arena, r)};
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
    if (notes[i]) bottom = put_note(&s, bottom, right - MARGIN, notes[i]);

  double width = right + MARGIN, height = bottom + MARGIN - LINE;
  strbuf_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                "viewBox=\"0 0 %.0f %.0f\" role=\"img\" xml:space=\"preserve\">\n<title>",
                width, height, width, height);
  strbuf_put_xml(out, title);
  strbuf_printf(out, "</title>\n%s", style);
  strbuf_puts(out, "<rect class=\"p\" width=\"100%\" height=\"100%\"/>\n");
  strbuf_put_n(out, body.text, body.len);
  strbuf_puts(out, "</svg>\n");
}
