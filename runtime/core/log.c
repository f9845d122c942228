/* What a run prints: see log.h. */
#include "core/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* The loss over the run in at most HISTORY points: when they are full, neighbours are averaged. */
enum { HISTORY = 4096, CURVE_HEIGHT = 14, BAR_MS = 80 };

struct RtLog {
  RtLogSetup s;
  bool unicode, bar_drawn;
  double begin;           /* of the first step */
  double bar_at, line_at; /* when last drawn, printed */
  double pace;            /* seconds between plain lines: grows */
  double anchor[2];       /* the rate is that since anchor[0], a few seconds back */
  int64_t anchor_step[2];
  int64_t steps, last_step; /* seen; number of the last */
  double first_loss, loss;
  int64_t history_step[HISTORY];
  double history[HISTORY];
  int filled, bucket, bucket_full; /* points; losses in the one being averaged; of how many */
  double bucket_sum;
};

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool locale_is_utf8(void) {
  const char *names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (int i = 0; i < 3; i++) {
    const char *value = getenv(names[i]);
    if (value && *value) {
      return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") ||
             strstr(value, "utf-8");
    }
  }
  return false;
}

static int terminal_width(FILE *f) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  if (ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return columns && atoi(columns) > 20 ? atoi(columns) : 80;
}

RtLog *dtm_rt_log_open(const RtLogSetup *setup) {
  RtLog *log = calloc(1, sizeof *log);
  if (!log) {
    return NULL;
  }
  log->s = *setup;
  log->unicode = locale_is_utf8();
  log->bucket_full = 1;
  log->pace = 1;
  log->begin = log->anchor[0] = log->anchor[1] = seconds_now();
  log->anchor_step[0] = log->anchor_step[1] = log->last_step = setup->first_step - 1;
  if (log->s.mode == RT_LOG_AUTO) {
    const char *terminal = getenv("TERM");
    bool plain = !isatty(fileno(setup->out)) || (terminal && strcmp(terminal, "dumb") == 0);
    log->s.mode = plain ? RT_LOG_PLAIN : RT_LOG_BAR;
  }
  return log;
}

static void bar_clear(RtLog *log) {
  if (log->bar_drawn) {
    fputs("\r\033[K", log->s.out);
    log->bar_drawn = false;
  }
}

void dtm_rt_log_close(RtLog *log) {
  if (log && log->s.rank == 0) {
    bar_clear(log);
    fflush(log->s.out);
  }
  free(log);
}

/* --- Numbers as text ---------------------------------------------------------------------------
 */

static const char *count_text(double v, char text[24]) {
  static const char *const units[] = {"", " k", " M", " G", " T"};
  int u = 0;
  while (fabs(v) >= 999.5 && u < 4) {
    v /= 1000;
    u++;
  }
  snprintf(text, 24, v < 10 ? "%.2f%s" : v < 100 ? "%.1f%s" : "%.0f%s", v, units[u]);
  return text;
}

static const char *duration_text(double seconds, char text[24]) {
  int64_t s = (int64_t)(seconds + 0.5);
  if (s >= 3600) {
    snprintf(text, 24, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
  } else {
    snprintf(text, 24, "%d:%02d", (int)(s / 60), (int)(s % 60));
  }
  return text;
}

/* Four digits behind the point; large whole numbers, which count something, as they are. */
static const char *value_text(double v, char text[32]) {
  double a = fabs(v);
  if (!isfinite(v)) {
    snprintf(text, 32, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
  } else if (a >= 1e3 && a < 1e12 && a == floor(a)) {
    snprintf(text, 32, "%.0f", v);
  } else {
    snprintf(text, 32, a == 0 || (a >= 1e-3 && a < 1e6) ? "%.4f" : "%.3e", v);
  }
  return text;
}

/* The shortest text that reads back as the same double; JSON has no infinities. */
static void json_number(FILE *out, double v) {
  char text[32];
  if (!isfinite(v)) {
    fprintf(out, "\"%s\"", value_text(v, text));
    return;
  }
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v) {
      break;
    }
  }
  fputs(text, out);
}

/* Bytes of the UTF-8 character that begins here (RFC 3629); 0 when none does. */
static int utf8_length(const char *s) {
  const unsigned char *u = (const unsigned char *)s;
  int n = u[0] < 0x80 ? 1 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : 4;
  if ((u[0] >= 0x80 && u[0] < 0xc2) || u[0] > 0xf4) return 0;
  for (int i = 1; i < n; i++)
    if ((u[i] & 0xc0) != 0x80) return 0;
  bool overlong = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xf0 && u[1] < 0x90);
  bool beyond = (u[0] == 0xed && u[1] > 0x9f) || (u[0] == 0xf4 && u[1] > 0x8f);
  return overlong || beyond ? 0 : n;
}

static void json_string(FILE *out, const char *s) {
  fputc('"', out);
  while (*s) {
    unsigned char c = (unsigned char)*s;
    int n = utf8_length(s);
    if (c == '"' || c == '\\') {
      fprintf(out, "\\%c", c);
    } else if (c < 0x20) {
      fprintf(out, "\\u%04x", c);
    } else if (n == 0) {
      fputs("\\ufffd", out);
    } else {
      fwrite(s, 1, (size_t)n, out);
    }
    s += n ? n : 1;
  }
  fputc('"', out);
}

/* --- Steps -------------------------------------------------------------------------------------
 */

static void remember(RtLog *log, int64_t step, double loss) {
  log->bucket_sum += loss;
  if (++log->bucket < log->bucket_full) {
    return;
  }
  if (log->filled == HISTORY) {
    for (int i = 0; i < HISTORY / 2; i++) {
      log->history[i] = (log->history[2 * i] + log->history[2 * i + 1]) / 2;
      log->history_step[i] = log->history_step[2 * i + 1];
    }
    log->filled = HISTORY / 2;
    log->bucket_full *= 2;
  }
  log->history_step[log->filled] = step;
  log->history[log->filled++] = log->bucket_sum / log->bucket;
  log->bucket_sum = 0;
  log->bucket = 0;
}

/* Steps a second over the last 3 to 6 seconds. */
static double rate_of(RtLog *log, int64_t step, double now) {
  double rate = (double)(step - log->anchor_step[0]) / fmax(now - log->anchor[0], 1e-9);
  if (now - log->anchor[1] > 3) {
    log->anchor[0] = log->anchor[1];
    log->anchor_step[0] = log->anchor_step[1];
    log->anchor[1] = now;
    log->anchor_step[1] = step;
  }
  return rate;
}

/* "loss 0.4123  lr 3.000e-04  12.3 k samples/s  ETA 0:32" */
static int status_text(RtLog *log, char *text, size_t size, int64_t step, double rate,
                       const RtField *fields, size_t nfields) {
  char number[32];
  int n = snprintf(text, size, "loss %s", value_text(log->loss, number));
  for (size_t i = 0; i < nfields && n < (int)size; i++) {
    n += snprintf(text + n, size - (size_t)n, "  %s %s", fields[i].name,
                  value_text(fields[i].value, number));
  }
  if (n < (int)size) {
    bool items = log->s.items_per_step > 0;
    n += snprintf(text + n, size - (size_t)n, "  %s %s/s",
                  count_text(items ? rate * log->s.items_per_step : rate, number),
                  items ? log->s.items : "steps");
  }
  if (log->s.total_steps > step && rate > 0 && n < (int)size) {
    n += snprintf(text + n, size - (size_t)n, "  ETA %s",
                  duration_text((double)(log->s.total_steps - step) / rate, number));
  }
  return n;
}

/* Draws `done` of `total` between a head and a tail, as wide as the terminal allows. */
static void draw_bar(RtLog *log, const char *head, double fraction, const char *tail) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  FILE *out = log->s.out;
  int room = terminal_width(out) - 1 - (int)strlen(head) - (int)strlen(tail) - 4;
  int width = room > 40 ? 40 : room;
  fputs("\r\033[K", out);
  if (width < 8) {
    fprintf(out, "%.*s", terminal_width(out) - 1, tail);
  } else {
    int parts = (int)(fraction * width * 8 + 0.5);
    fprintf(out, "%s %s", head, log->unicode ? "▕" : "[");
    for (int i = 0; i < width; i++) {
      int filled = parts - i * 8;
      if (log->unicode) {
        fputs(filled >= 8 ? "█" : filled > 0 ? eighths[filled] : " ", out);
      } else {
        fputc(filled >= 4 ? '#' : '.', out);
      }
    }
    fprintf(out, "%s %s", log->unicode ? "▏" : "]", tail);
  }
  fflush(out);
  log->bar_drawn = true;
}

static void step_head(const RtLog *log, int64_t step, char *text, size_t size) {
  if (log->s.total_steps > 0) {
    snprintf(text, size, "step %lld/%lld", (long long)step, (long long)log->s.total_steps);
  } else {
    snprintf(text, size, "step %lld", (long long)step);
  }
}

static void step_json(RtLog *log, int64_t step, const RtField *fields, size_t nfields,
                      double elapsed) {
  FILE *out = log->s.out;
  fprintf(out, "{\"step\":%lld,\"loss\":", (long long)step);
  json_number(out, log->loss);
  for (size_t i = 0; i < nfields; i++) {
    fputc(',', out);
    json_string(out, fields[i].name);
    fputc(':', out);
    json_number(out, fields[i].value);
  }
  fprintf(out, ",\"seconds\":%.3f}\n", elapsed);
  fflush(out);
}

void dtm_rt_log_step(RtLog *log, int64_t step, double loss, const RtField *fields, size_t nfields) {
  if (!log || log->s.rank != 0) {
    return;
  }
  double now = seconds_now();
  log->first_loss = log->steps ? log->first_loss : loss;
  log->loss = loss;
  log->last_step = step;
  log->steps++;
  remember(log, step, loss);
  double rate = rate_of(log, step, now);
  bool last = step == log->s.total_steps;
  if (log->s.quiet) {
    return;
  }
  if (log->s.mode == RT_LOG_JSON) {
    step_json(log, step, fields, nfields, now - log->begin);
    return;
  }
  char head[64], tail[512];
  if (log->s.mode == RT_LOG_BAR && (now - log->bar_at) * 1000 >= BAR_MS) {
    log->bar_at = now;
    step_head(log, step, head, sizeof head);
    status_text(log, tail, sizeof tail, step, rate, fields, nfields);
    draw_bar(log, head, log->s.total_steps > 0 ? (double)step / (double)log->s.total_steps : 0,
             tail);
    return;
  }
  bool due = log->s.log_every > 0 ? step % log->s.log_every == 0
                                  : log->steps == 1 || now - log->line_at >= log->pace;
  if (log->s.mode == RT_LOG_PLAIN && (due || last)) {
    log->line_at = now;
    log->pace = fmin(log->pace * 1.2, 30);
    step_head(log, step, head, sizeof head);
    status_text(log, tail, sizeof tail, step, rate, fields, nfields);
    fprintf(log->s.out, "%s  %s\n", head, tail);
    fflush(log->s.out);
  }
}

/* --- Everything else ---------------------------------------------------------------------------
 */

void dtm_rt_log_progress(RtLog *log, const char *what, int64_t done, int64_t total) {
  if (!log || log->s.rank != 0 || log->s.quiet || log->s.mode != RT_LOG_BAR || total <= 0) {
    return;
  }
  double now = seconds_now();
  if (done < total && (now - log->bar_at) * 1000 < BAR_MS) {
    return;
  }
  log->bar_at = now;
  char tail[64];
  snprintf(tail, sizeof tail, "%lld/%lld", (long long)done, (long long)total);
  draw_bar(log, what, (double)done / (double)total, tail);
  if (done >= total) {
    bar_clear(log);
  }
}

void dtm_rt_log_metric(RtLog *log, const char *split, const char *name, double value,
                       int64_t step) {
  if (!log || log->s.rank != 0) {
    return;
  }
  FILE *out = log->s.out;
  if (log->s.mode == RT_LOG_JSON) {
    fputs("{\"metric\":", out);
    json_string(out, name);
    fputs(",\"split\":", out);
    json_string(out, split);
    fputs(",\"value\":", out);
    json_number(out, value);
    if (step > 0) fprintf(out, ",\"step\":%lld", (long long)step);
    fputs("}\n", out);
  } else {
    char text[32];
    bar_clear(log);
    fprintf(out, "%s %s %s", split, name, value_text(value, text));
    if (step > 0 && step < log->s.total_steps) {
      fprintf(out, " at step %lld", (long long)step);
    }
    fputc('\n', out);
  }
  fflush(out);
}

void dtm_rt_log_written(RtLog *log, const char *bytes, size_t n) {
  if (!log || log->s.rank != 0 || log->s.mode == RT_LOG_JSON) return;
  bar_clear(log);
  fwrite(bytes, 1, n, log->s.out);
  fflush(log->s.out);
}

void dtm_rt_log_text(RtLog *log, const char *text, bool written) {
  if (!log || log->s.rank != 0) return;
  if (log->s.mode == RT_LOG_JSON) {
    fputs("{\"text\":", log->s.out);
    json_string(log->s.out, text);
    fputs("}\n", log->s.out);
  } else {
    bar_clear(log);
    fprintf(log->s.out, "%s\n", written ? "" : text);
  }
  fflush(log->s.out);
}

/* A line without its end, however long. */
static void put_line(RtLog *log, const char *text) {
  if (log->s.mode == RT_LOG_JSON) {
    fputs("{\"event\":", log->s.out);
    json_string(log->s.out, text);
    fputs("}\n", log->s.out);
  } else {
    bar_clear(log);
    fprintf(log->s.out, "%s\n", text);
  }
  fflush(log->s.out);
}

void dtm_rt_log_line(RtLog *log, const char *format, ...) {
  if (!log || log->s.rank != 0 || log->s.quiet) {
    return;
  }
  char start[1024];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(start, sizeof start, format, args);
  char *all = length < (int)sizeof start ? NULL : malloc((size_t)length + 1);
  if (all) vsnprintf(all, (size_t)length + 1, format, again);
  put_line(log, all ? all : start);
  free(all);
  va_end(again);
  va_end(args);
}

void dtm_rt_log_summary(RtLog *log) {
  if (!log || log->s.rank != 0 || log->s.mode == RT_LOG_JSON || log->s.quiet || !log->steps) {
    return;
  }
  bar_clear(log);
  FILE *out = log->s.out;
  if (!log->s.no_curve && log->filled >= 2) {
    int width = terminal_width(out);
    fputs("\nloss over steps\n", out);
    dtm_rt_curve_draw(out, log->history_step, log->history, (size_t)log->filled,
                      width > 100 ? 100 : width, CURVE_HEIGHT, log->unicode);
    fputc('\n', out);
  }
  double elapsed = fmax(seconds_now() - log->begin, 1e-9);
  char time[24], rate[24], from[32], to[32];
  bool items = log->s.items_per_step > 0;
  double speed = (double)log->steps / elapsed * (items ? log->s.items_per_step : 1);
  fprintf(out, "%lld step%s in %s, %s %s/s, loss %s -> %s\n", (long long)log->steps,
          log->steps == 1 ? "" : "s",
          elapsed < 60 ? (snprintf(time, sizeof time, "%.1f s", elapsed), time)
                       : duration_text(elapsed, time),
          count_text(speed, rate), items ? log->s.items : "steps",
          value_text(log->first_loss, from), value_text(log->loss, to));
  fflush(out);
}
