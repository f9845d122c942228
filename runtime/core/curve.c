/* A line chart in characters: braille dots (2 x 4 to a cell) or ASCII. */
#include "core/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 9, MIN_WIDTH = 24, MIN_HEIGHT = 4 };

typedef struct Chart {
  int columns, rows;   /* cells of the plot */
  int dots_x, dots_y;  /* per cell */
  unsigned char *cell; /* dot bits of every cell */
  double low, high;    /* of the y axis, after `logarithmic` */
  bool logarithmic, unicode;
} Chart;

static double to_axis(const Chart *c, double v) {
  return c->logarithmic ? log10(v) : v;
}

static void put_dot(Chart *c, int x, int y) {
  /* Bit of a braille dot by its row and column in the cell (Unicode block 2800). */
  static const unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  if (x < 0 || y < 0 || x >= c->columns * c->dots_x || y >= c->rows * c->dots_y) {
    return;
  }
  c->cell[y / c->dots_y * c->columns + x / c->dots_x] |=
      c->unicode ? bits[y % c->dots_y][x % c->dots_x] : 1;
}

/* Dot row of a value: the highest value on dot row 0. */
static int dot_row(const Chart *c, double v) {
  double fraction = c->high > c->low ? (c->high - to_axis(c, v)) / (c->high - c->low) : 0.5;
  return (int)(fraction * (c->rows * c->dots_y - 1) + 0.5);
}

/* The mean of the values that fall in each dot column, joined by vertical strokes. */
static void plot(Chart *c, const int64_t *steps, const double *values, size_t n) {
  int width = c->columns * c->dots_x, last = -1;
  double first = (double)steps[0], span = (double)(steps[n - 1] - steps[0]);
  size_t i = 0;
  for (int x = 0; x < width; x++) {
    double sum = 0, until = first + span * (x + 1) / width;
    int count = 0;
    for (; i < n && ((double)steps[i] < until || x == width - 1); i++) {
      if (isfinite(values[i]) && (!c->logarithmic || values[i] > 0)) {
        sum += values[i];
        count++;
      } else {
        last = -1; /* a gap */
      }
    }
    if (!count) {
      continue;
    }
    int y = dot_row(c, sum / count);
    int from = last < 0 ? y : last < y ? last + 1 : last > y ? last - 1 : y;
    for (int at = from; at != y; at += at < y ? 1 : -1) {
      put_dot(c, x, at);
    }
    put_dot(c, x, y);
    last = y;
  }
}

static void range_of(Chart *c, const double *values, size_t n) {
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (isfinite(values[i])) {
      low = fmin(low, values[i]);
      high = fmax(high, values[i]);
    }
  }
  if (low > high) {
    low = 0;
    high = 1;
  }
  c->logarithmic = low > 0 && high / low > 50;
  c->low = to_axis(c, low);
  c->high = to_axis(c, high);
  if (c->high - c->low < 1e-12 * fmax(1, fabs(c->high))) {
    c->low -= 0.5;
    c->high += 0.5;
  }
}

static void label(FILE *out, const Chart *c, int row) {
  double v = c->high - (c->high - c->low) * row / (c->rows - 1);
  v = c->logarithmic ? pow(10, v) : fabs(v) < 1e-9 * (c->high - c->low) ? 0 : v;
  double a = fabs(v);
  fprintf(out, a == 0 || (a >= 1e-2 && a < 1e4) ? "%*.*f " : "%*.*e ", LEFT - 2,
          a >= 1000             ? 0
          : a >= 10             ? 2
          : a >= 1e-2 || a == 0 ? 3
                                : 1,
          v);
}

static void put_cell(FILE *out, const Chart *c, unsigned char bits) {
  if (!bits) {
    fputc(' ', out);
  } else if (c->unicode) {
    /* U+2800 + bits in UTF-8. */
    fprintf(out, "\xe2%c%c", 0xa0 + (bits >> 6), 0x80 + (bits & 0x3f));
  } else {
    fputc('*', out);
  }
}

/* Steps below the axis: the first, the last, and as many between as fit. */
static void draw_x_axis(FILE *out, const Chart *c, int64_t first, int64_t last) {
  char *line = malloc((size_t)c->columns + 2);
  int ticks = c->columns / 16, end = 0;
  if (ticks > last - first) ticks = (int)(last - first); /* a step is labelled once */
  if (ticks < 1) ticks = 1;
  fprintf(out, "%*s%s", LEFT - 1, "", c->unicode ? "└" : "+");
  for (int x = 0; x < c->columns; x++) {
    bool tick = false;
    for (int t = 0; t <= ticks; t++) {
      tick |= x == t * (c->columns - 1) / ticks;
    }
    fputs(tick ? c->unicode ? "┴" : "+" : c->unicode ? "─" : "-", out);
  }
  fputc('\n', out);
  if (!line) {
    return;
  }
  memset(line, ' ', (size_t)c->columns + 2);
  for (int t = 0; t <= ticks; t++) {
    char text[24];
    int64_t step = first + (int64_t)((double)(last - first) * t / ticks + 0.5);
    int n = snprintf(text, sizeof text, "%lld", (long long)step);
    int at = t * (c->columns - 1) / ticks - n / 2;
    at = at < 0 ? 0 : at + n > c->columns ? c->columns - n : at;
    if (at >= end) {
      memcpy(line + at, text, (size_t)n);
      end = at + n + 1;
    }
  }
  line[end - 1] = 0;
  fprintf(out, "%*s%s\n", LEFT, "", line);
  free(line);
}

void dtm_rt_curve_draw(FILE *out, const int64_t *steps, const double *values, size_t n, int width,
                       int height, bool unicode) {
  if (n == 0) {
    return;
  }
  Chart c = {.columns = (width < MIN_WIDTH ? MIN_WIDTH : width) - LEFT,
             .rows = height < MIN_HEIGHT ? MIN_HEIGHT : height,
             .dots_x = unicode ? 2 : 1,
             .dots_y = unicode ? 4 : 1,
             .unicode = unicode};
  c.cell = calloc((size_t)c.columns * (size_t)c.rows, 1);
  if (!c.cell) {
    return;
  }
  range_of(&c, values, n);
  plot(&c, steps, values, n);
  for (int row = 0; row < c.rows; row++) {
    bool labelled = row == c.rows - 1 || (row % 4 == 0 && row + 2 < c.rows);
    if (labelled) {
      label(out, &c, row);
      fputs(unicode ? "┤" : "+", out);
    } else {
      fprintf(out, "%*s%s", LEFT - 1, "", unicode ? "│" : "|");
    }
    int used = c.columns;
    while (used > 0 && !c.cell[row * c.columns + used - 1]) {
      used--;
    }
    for (int x = 0; x < used; x++) {
      put_cell(out, &c, c.cell[row * c.columns + x]);
    }
    fputc('\n', out);
  }
  draw_x_axis(out, &c, steps[0], steps[n - 1]);
  free(c.cell);
}
