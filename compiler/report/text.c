/* `dtmc explain tensor` on a terminal: the table of ranks and a drawing in box characters.
 *
 * A drawing has one row of cells per part of the dim c.row and one column per part of c.col. The
 * widths are in proportion to the parts where that leaves room for what is written into the cells;
 * parts that do not fit are folded into a gap. Single lines separate inner parts, double lines
 * those of the outer mesh dim where two cut one tensor dim.
 */
#include <string.h>

#include "report/cut.h"
#include "runtime/abi/balance.h"

enum { MAX_ROWS = 12, MAX_COLUMNS = 32, GAP = 3, LEAST = 5, USUAL_WIDTH = 64, USUAL_HEIGHT = 9 };

/* Columns that text takes on a terminal. */
static uint32_t columns(const char *s) {
  uint32_t n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
  return n;
}

static void put_spaces(StrBuf *sb, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) strbuf_putc(sb, ' ');
}

/* Cuts at `width` columns, fills up to it. */
static void put_padded(StrBuf *sb, const char *s, uint32_t width) {
  uint32_t n = 0;
  while (*s && n < width) {
    strbuf_putc(sb, *s++);
    while (((unsigned char)*s & 0xc0) == 0x80) strbuf_putc(sb, *s++);
    n++;
  }
  put_spaces(sb, width - n);
}

static void put_right(StrBuf *sb, const char *s, uint32_t width) {
  uint32_t n = columns(s);
  put_spaces(sb, n < width ? width - n : 0);
  strbuf_puts(sb, s);
}

static void trim(StrBuf *sb) {
  while (sb->len && sb->text[sb->len - 1] == ' ') sb->text[--sb->len] = 0;
}

static void end_line(StrBuf *sb) {
  trim(sb);
  strbuf_putc(sb, '\n');
}

/* Words of a paragraph in lines of at most `width` columns, each `indent` in. */
static void put_wrapped(StrBuf *sb, const char *text, uint32_t indent, uint32_t width) {
  uint32_t at = 0;
  while (*text) {
    size_t n = strcspn(text, " ");
    uint32_t w = 0;
    for (size_t i = 0; i < n; i++) w += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (at && at + 1 + w > width) {
      strbuf_putc(sb, '\n');
      at = 0;
    }
    put_spaces(sb, at ? 1 : indent);
    strbuf_put_n(sb, text, n);
    at += (at ? 1 : indent) + w;
    text += n + (text[n] == ' ');
  }
  strbuf_putc(sb, '\n');
}

/* --- the table ---------------------------------------------------------------------------------
 */

enum { TABLE_COLUMNS = DTM_MAX_AXES + 7 };
typedef struct Table {
  Arena *arena;
  uint32_t ncolumns, width[TABLE_COLUMNS];
  bool right[TABLE_COLUMNS];
  VEC(const char **) lines;
} Table;

static void table_column(Table *t, const char **head, const char *name, bool right) {
  t->right[t->ncolumns] = right;
  head[t->ncolumns++] = name;
}

static const char **table_line(Table *t) {
  const char **line = ARENA_ARRAY(t->arena, const char *, TABLE_COLUMNS);
  VEC_PUSH(t->arena, &t->lines, line);
  return line;
}

static void table_put(Table *t, StrBuf *out) {
  for (uint32_t l = 0; l < t->lines.len; l++)
    for (uint32_t c = 0; c < t->ncolumns; c++) {
      uint32_t n = columns(t->lines.data[l][c]);
      if (n > t->width[c]) t->width[c] = n;
    }
  for (uint32_t l = 0; l < t->lines.len; l++) {
    for (uint32_t c = 0; c < t->ncolumns; c++) {
      strbuf_puts(out, "  ");
      if (t->right[c])
        put_right(out, t->lines.data[l][c], t->width[c]);
      else
        put_padded(out, t->lines.data[l][c], t->width[c]);
    }
    end_line(out);
  }
}

/* "0:2, 6:8": where in the sequence the elements of a block of a balanced dim stand. */
static const char *positions_print(Arena *arena, const TensorType *t, uint32_t dim,
                                   const CutRank *r) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  int64_t piece = t->shape[dim] / (2 * t->balanced[dim]), end = r->offset[dim] + r->shape[dim];
  for (int64_t i = r->offset[dim], next; i < end; i = next) {
    next = (i / piece + 1) * piece;
    if (next > end) next = end;
    int64_t first = abi_balanced_from(i, t->shape[dim], t->balanced[dim]);
    strbuf_printf(&sb, "%s%lld:%lld", sb.len ? ", " : "", (long long)first,
                  (long long)(first + next - i));
  }
  return sb.len ? sb.text : "";
}

static void put_table(Arena *arena, StrBuf *out, const Cut *c, const CutTable *table) {
  const Mesh *mesh = c->type.mesh;
  Table t = {.arena = arena};
  int balanced = -1; /* the first such dim, where every rank has a line of its own */
  for (uint32_t d = c->type.rank; table->fold == FOLD_NONE && d-- > 0;)
    if (c->type.balanced[d]) balanced = (int)d;
  const char **head = table_line(&t);
  bool folded = table->fold != FOLD_NONE, roles = false;
  for (uint32_t r = 0; !folded && r < table->rows.len; r++)
    roles |= cut_role_print(arena, &table->rows.data[r].first)[0] != 0;
  table_column(&t, head, folded ? "ranks" : "rank", !folded);
  for (uint32_t a = 0; !folded && a < mesh->naxes; a++) table_column(&t, head, mesh->axis[a], true);
  table_column(&t, head, "shape", false);
  table_column(&t, head, table->fold == FOLD_SHAPE ? "first offset" : "offset", false);
  if (balanced >= 0)
    table_column(&t, head, arena_printf(arena, "positions in dim %d", balanced), false);
  table_column(&t, head, "bytes", true);
  if (roles) table_column(&t, head, "role", false);
  for (uint32_t r = 0; r < table->rows.len; r++) {
    const CutRow *row = &table->rows.data[r];
    const char **line = table_line(&t);
    uint32_t n = 0;
    line[n++] = folded ? cut_row_print(arena, row)
                       : arena_printf(arena, "%lld", (long long)row->first.rank);
    for (uint32_t a = 0; !folded && a < mesh->naxes; a++)
      line[n++] = arena_printf(arena, "%lld", (long long)row->first.coord[a]);
    line[n++] = cut_list_print(arena, row->first.shape, c->type.rank);
    line[n++] = cut_list_print(arena, row->first.offset, c->type.rank);
    if (balanced >= 0)
      line[n++] = positions_print(arena, &c->type, (uint32_t)balanced, &row->first);
    line[n++] = arena_printf(arena, "%lld", (long long)row->first.bytes);
    if (roles) line[n++] = cut_role_print(arena, &row->first);
  }
  table_put(&t, out);
}

/* --- the drawing -------------------------------------------------------------------------------
 */

typedef struct Drawing {
  Arena *arena;
  StrBuf *out;
  const Cut *cut;
  CutStrip rows, cols;
  uint32_t *width, *height;
  const char **holders; /* per cell; NULL in a gap */
  const char **margin;  /* left of each row of cells */
  uint32_t margin_width;
  bool color;
} Drawing;

static bool is_gap(const Drawing *d, uint32_t r, uint32_t c) {
  return d->rows.slice[r].gap || d->cols.slice[c].gap;
}

/* The boundary before slice i > 0 is that of the outer of several mesh dims. */
static bool is_double(const Drawing *d, const CutStrip *strip, uint32_t i) {
  const CutSlice *s = strip->slice;
  return strip->dim >= 0 && d->cut->naxes[strip->dim] > 1 && s[i].level == 0 && !s[i].gap &&
         !s[i - 1].gap;
}

static void make_margin(Drawing *d) {
  uint32_t n = d->rows.dim >= 0 ? d->cut->naxes[d->rows.dim] : 0;
  for (uint32_t r = 0; r < d->rows.len; r++) {
    const CutSlice *s = &d->rows.slice[r];
    StrBuf sb;
    strbuf_init(&sb, d->arena);
    for (uint32_t k = 0; k < n && !s->gap; k++) {
      const char *coord = cut_coord_print(d->arena, d->cut, &d->rows, r, k);
      if (r == 0 || k >= s->level || d->rows.slice[r - 1].gap)
        strbuf_puts(&sb, coord);
      else
        put_spaces(&sb, columns(coord));
      strbuf_putc(&sb, ' ');
    }
    if (d->rows.dim >= 0) strbuf_puts(&sb, cut_range_print(d->arena, s));
    d->margin[r] = sb.text;
    uint32_t w = columns(sb.text);
    if (w > d->margin_width) d->margin_width = w;
  }
  if (d->margin_width) d->margin_width++;
}

static void make_holders(Drawing *d, uint32_t budget) {
  for (uint32_t r = 0; r < d->rows.len; r++)
    for (uint32_t c = 0; c < d->cols.len; c++) {
      const char *text = NULL;
      if (!is_gap(d, r, c)) {
        text = cut_holders_print(d->arena, d->cut, &d->rows, r, &d->cols, c, budget);
        bool empty = (d->rows.dim >= 0 && !d->rows.slice[r].length) ||
                     (d->cols.dim >= 0 && !d->cols.slice[c].length);
        if (empty) text = arena_printf(d->arena, CUT_EMPTY " %s", text);
      }
      d->holders[r * d->cols.len + c] = text;
    }
}

/* Columns that a slice needs: for its range, its innermost coordinate and what its cells say. */
static uint32_t least_width(const Drawing *d, uint32_t c) {
  if (d->cols.slice[c].gap) return GAP;
  uint32_t least = LEAST, w;
  if (d->cols.dim >= 0) {
    w = columns(cut_range_print(d->arena, &d->cols.slice[c]));
    if (w > least) least = w;
    uint32_t n = d->cut->naxes[d->cols.dim];
    w = n ? columns(cut_coord_print(d->arena, d->cut, &d->cols, c, n - 1)) : 0;
    if (w > least) least = w;
  }
  for (uint32_t r = 0; r < d->rows.len; r++) {
    const char *text = d->holders[r * d->cols.len + c];
    w = text ? columns(text) + 2 : 0;
    if (w > least) least = w;
  }
  return least;
}

static int64_t whole_length(const CutStrip *s) {
  int64_t n = 0;
  for (uint32_t i = 0; i < s->len; i++) n += s->slice[i].gap ? 0 : s->slice[i].length;
  return n;
}

/* Chooses widths within `room`; false when the columns do not fit. */
static bool make_widths(Drawing *d, uint32_t room) {
  uint32_t n = d->cols.len, need = n + 1, spare;
  for (uint32_t c = 0; c < n; c++) {
    d->width[c] = least_width(d, c);
    need += d->width[c];
  }
  if (need > room) return false;
  spare = (room < USUAL_WIDTH ? room : USUAL_WIDTH > need ? USUAL_WIDTH : need) - n - 1;
  int64_t whole = whole_length(&d->cols);
  for (uint32_t c = 0; c < n && whole; c++) {
    const CutSlice *s = &d->cols.slice[c];
    uint32_t wanted = (uint32_t)((double)spare * (double)s->length / (double)whole);
    if (s->gap || wanted <= d->width[c] || need >= room) continue;
    uint32_t more = wanted - d->width[c];
    if (need + more > room) more = room - need;
    d->width[c] += more;
    need += more;
  }
  return true;
}

static void make_heights(Drawing *d) {
  int64_t whole = whole_length(&d->rows);
  for (uint32_t r = 0; r < d->rows.len; r++) {
    const CutSlice *s = &d->rows.slice[r];
    double h = whole ? (double)USUAL_HEIGHT * (double)s->length / (double)whole : 1;
    if (d->rows.dim < 0) h = 3;
    d->height[r] = s->gap || h < 1 ? 1 : h > 3 ? 3 : (uint32_t)(h + 0.5);
  }
}

/* Parts as many as fit, labels as long as fit. */
static void lay_out(Drawing *d, uint32_t width) {
  d->rows = cut_strip(d->arena, d->cut, d->cut->row, MAX_ROWS);
  d->margin = ARENA_ARRAY(d->arena, const char *, MAX_ROWS);
  d->height = ARENA_ARRAY(d->arena, uint32_t, MAX_ROWS);
  d->width = ARENA_ARRAY(d->arena, uint32_t, MAX_COLUMNS);
  d->holders = ARENA_ARRAY(d->arena, const char *, MAX_ROWS *MAX_COLUMNS);
  make_margin(d);
  make_heights(d);
  uint32_t room = width > d->margin_width + 2 ? width - d->margin_width - 2 : 0;
  bool fits = false;
  for (uint32_t most = MAX_COLUMNS; most > 0 && !fits; most--) {
    if (most < MAX_COLUMNS && cut_parts(d->cut, d->cut->col) < (int64_t)most) continue;
    d->cols = cut_strip(d->arena, d->cut, d->cut->col, most);
    for (uint32_t budget = 24; budget >= 6 && !fits; budget /= 2) {
      make_holders(d, budget);
      fits = make_widths(d, room);
    }
  }
}

static const char *junction(bool horizontal, bool vertical) {
  static const char *const mid[2][2] = {{"┼", "╫"}, {"╪", "╬"}};
  return mid[horizontal][vertical];
}

typedef enum Border { BORDER_TOP, BORDER_MID, BORDER_BOTTOM } Border;

static void put_border(const Drawing *d, Border border, bool twice) {
  static const char *const left[] = {"┌", "├", "└"}, *const right[] = {"┐", "┤", "┘"};
  StrBuf *out = d->out;
  put_spaces(out, d->margin_width + 2);
  strbuf_puts(out, twice ? "╞" : left[border]);
  for (uint32_t c = 0; c < d->cols.len; c++) {
    bool vertical = c > 0 && is_double(d, &d->cols, c);
    if (c > 0)
      strbuf_puts(out, border == BORDER_TOP      ? vertical ? "╥" : "┬"
                       : border == BORDER_BOTTOM ? vertical ? "╨" : "┴"
                                                 : junction(twice, vertical));
    for (uint32_t i = 0; i < d->width[c]; i++) strbuf_puts(out, twice ? "═" : "─");
  }
  strbuf_puts(out, twice ? "╡" : right[border]);
  strbuf_putc(out, '\n');
}

/* Light backgrounds with dark text, which both dark and light terminals show well. */
static const int backgrounds[] = {153, 223, 157, 217, 189, 229, 159, 181};
enum { NBACKGROUNDS = sizeof backgrounds / sizeof *backgrounds };

static void put_cell_line(const Drawing *d, uint32_t r, uint32_t c, uint32_t line) {
  const char *text = d->holders[r * d->cols.len + c];
  uint32_t width = d->width[c], middle = (d->height[r] - 1) / 2;
  bool gap = !text, empty = text && strncmp(text, CUT_EMPTY, sizeof CUT_EMPTY - 1) == 0;
  if (gap) text = "\u2026";
  bool paint = d->color && !gap && !empty;
  if (paint)
    strbuf_printf(d->out, "\033[38;5;16;48;5;%dm",
                  backgrounds[(d->rows.slice[r].index * cut_parts(d->cut, d->cut->col) +
                               d->cols.slice[c].index) %
                              NBACKGROUNDS]);
  if (line == middle) {
    uint32_t n = columns(text);
    if (n > width) n = width;
    put_spaces(d->out, (width - n) / 2);
    put_padded(d->out, text, width - (width - n) / 2);
  } else {
    put_spaces(d->out, width);
  }
  if (paint) strbuf_puts(d->out, "\033[0m");
}

static void put_cells(const Drawing *d, uint32_t r) {
  for (uint32_t line = 0; line < d->height[r]; line++) {
    put_spaces(d->out, 2);
    put_padded(d->out, line == (d->height[r] - 1) / 2 ? d->margin[r] : "", d->margin_width);
    strbuf_puts(d->out, "│");
    for (uint32_t c = 0; c < d->cols.len; c++) {
      if (c > 0) strbuf_puts(d->out, is_double(d, &d->cols, c) ? "║" : "│");
      put_cell_line(d, r, c, line);
    }
    strbuf_puts(d->out, "│\n");
  }
}

/* One line of coordinates per mesh dim that cuts the columns, outer first, and one of ranges. */
static void put_column_heads(const Drawing *d) {
  if (d->cols.dim < 0) return;
  uint32_t n = d->cut->naxes[d->cols.dim];
  for (uint32_t k = 0; k <= n; k++) {
    put_spaces(d->out, d->margin_width + 3);
    for (uint32_t c = 0; c < d->cols.len;) {
      uint32_t end = c + 1, width = d->width[c];
      if (k < n && !d->cols.slice[c].gap)
        for (; end < d->cols.len && !d->cols.slice[end].gap && d->cols.slice[end].level > k; end++)
          width += d->width[end] + 1;
      const CutSlice *s = &d->cols.slice[c];
      put_padded(d->out,
                 k == n   ? cut_range_print(d->arena, s)
                 : s->gap ? ""
                          : cut_coord_print(d->arena, d->cut, &d->cols, c, k),
                 width);
      strbuf_putc(d->out, ' ');
      c = end;
    }
    end_line(d->out);
  }
}

static void put_drawing(Arena *arena, StrBuf *out, const Cut *c, uint32_t width, bool color) {
  Drawing d = {.arena = arena, .out = out, .cut = c, .color = color};
  lay_out(&d, width);
  put_column_heads(&d);
  for (uint32_t r = 0; r < d.rows.len; r++) {
    put_border(&d, r ? BORDER_MID : BORDER_TOP, r > 0 && is_double(&d, &d.rows, r));
    put_cells(&d, r);
  }
  put_border(&d, BORDER_BOTTOM, false);
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static bool nested(const Cut *c, int dim) {
  return dim >= 0 && c->naxes[dim] > 1;
}

static void put_caption(Arena *arena, StrBuf *out, const Cut *c, uint32_t width) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  if (c->row >= 0) strbuf_printf(&sb, "down: dim %d; ", c->row);
  if (c->col >= 0) strbuf_printf(&sb, "across: dim %d; ", c->col);
  strbuf_puts(&sb, "in a cell: the ranks that hold it");
  if (layout_has_partial(&c->type.layout)) strbuf_puts(&sb, ", as addends");
  if (nested(c, c->row) || nested(c, c->col))
    strbuf_puts(&sb, "; double lines: the outer mesh dim");
  put_wrapped(out, sb.text, 2, width);
  const char *hidden = report_hidden_dims(arena, c);
  if (hidden) put_wrapped(out, arena_printf(arena, "not drawn: %s", hidden), 2, width);
}

void report_text(Arena *arena, StrBuf *out, const TensorReport *r, uint32_t width, bool color) {
  Cut c = cut_of(r->type);
  CutTable table = cut_table(arena, &c);
  const Mesh *mesh = c.type.mesh;
  strbuf_printf(out, "%s %s: %s\n", r->what, r->name, type_print(arena, r->type));
  for (uint32_t i = 0; i < r->places.len; i++) strbuf_printf(out, "  at %s\n", r->places.data[i]);
  strbuf_printf(out, "  on %s, %lld rank%s\n", r->mesh, (long long)mesh->nranks,
                mesh->nranks == 1 ? "" : "s");
  for (int d = 0; d < (int)c.type.rank; d++)
    put_wrapped(out, arena_printf(arena, "dim %d: %s", d, cut_dim_print(arena, &c, d)), 2, width);
  int64_t whole = type_elements(r->type) * (int64_t)dtype_bytes(r->type->dtype);
  put_wrapped(out,
              arena_printf(arena,
                           "%s in full; %s on the fullest rank, %s on the emptiest, %s on all",
                           bytes_print(arena, whole), bytes_print(arena, table.most),
                           bytes_print(arena, table.least), bytes_print(arena, table.total)),
              2, width);
  const char *pending = report_partial(arena, r);
  if (pending) put_wrapped(out, pending, 2, width);
  strbuf_putc(out, '\n');
  put_table(arena, out, &c, &table);
  strbuf_putc(out, '\n');
  put_drawing(arena, out, &c, width, color);
  put_caption(arena, out, &c, width);
}
