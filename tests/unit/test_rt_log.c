/* What a run prints: JSON lines, plain lines, the bar on a terminal, metrics, curve and trace. */
#include "comm/local.h"
#include "core/log.h"
#include "core/print.h"
#include "core/trace.h"
#include "support/suite.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct Screen {
  char text[65536];
  FILE *file;
} Screen;

static void screen_open(Screen *s) {
  memset(s->text, 0, sizeof s->text);
  s->file = fmemopen(s->text, sizeof s->text, "w");
}

static RtLogSetup setup_for(FILE *out, RtLogMode mode) {
  return (RtLogSetup){.mode = mode,
                      .log_every = 1,
                      .total_steps = 4,
                      .first_step = 1,
                      .items_per_step = 8,
                      .items = "samples",
                      .out = out,
                      .err = out};
}

static const double losses[] = {2.5, 1.0f / 3, 1e-7, NAN};

static void run(RtLog *log) {
  for (int i = 0; i < 4; i++) {
    RtField lr = {"lr", 3e-4 * (i + 1)};
    dtm_rt_log_step(log, i + 1, losses[i], &lr, 1);
  }
  dtm_rt_log_summary(log);
  dtm_rt_log_line(log, "saved \"model\"");
  dtm_rt_log_metric(log, "test", "accuracy", 0.8712, 4);
  dtm_rt_log_close(log);
}

START_TEST(json) {
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_JSON);
  run(dtm_rt_log_open(&setup));
  fclose(s.file);
  int i = 0;
  for (char *line = strtok(s.text, "\n"); line; line = strtok(NULL, "\n"), i++) {
    json_t *object = json_loads(line, 0, NULL);
    ck_assert_msg(object != NULL, "%s", line);
    if (i < 3) {
      ck_assert_int_eq(json_integer_value(json_object_get(object, "step")), i + 1);
      ck_assert(json_number_value(json_object_get(object, "loss")) == losses[i]); /* every bit */
      ck_assert(json_number_value(json_object_get(object, "lr")) == 3e-4 * (i + 1));
    } else if (i == 3) {
      ck_assert_str_eq(json_string_value(json_object_get(object, "loss")), "nan");
    } else if (i == 4) {
      ck_assert_str_eq(json_string_value(json_object_get(object, "event")), "saved \"model\"");
    } else {
      ck_assert_str_eq(json_string_value(json_object_get(object, "metric")), "accuracy");
      ck_assert(json_number_value(json_object_get(object, "value")) == 0.8712);
    }
    json_decref(object);
  }
  ck_assert_int_eq(i, 6);
}
END_TEST

START_TEST(plain) {
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_PLAIN);
  RtLog *log = dtm_rt_log_open(&setup);
  dtm_rt_log_metric(log, "test", "top5", 12, 2); /* while training */
  dtm_rt_log_metric(log, "test", "seen", 65536, 2);
  run(log);
  fclose(s.file);
  ck_assert(strstr(s.text, "test top5 12.0000 at step 2\ntest seen 65536 at step 2\nstep 1/4  loss "
                           "2.5000  lr 3.000e-04  ") == s.text);
  ck_assert(strstr(s.text, "step 3/4  loss 1.000e-07") != NULL);
  ck_assert(strstr(s.text, "step 4/4  loss nan") != NULL);
  ck_assert(strstr(s.text, "samples/s") && strstr(s.text, "ETA"));
  ck_assert(strstr(s.text, "\nloss over steps\n") != NULL);
  ck_assert(strstr(s.text, "loss 2.5000 -> nan\nsaved \"model\"\ntest accuracy 0.8712\n") != NULL);
  ck_assert(strchr(s.text, '\033') == NULL && strchr(s.text, '\r') == NULL);
}
END_TEST

/* Values are printed whole up to a thousand elements; then every dim shows fewer of its own. */
START_TEST(tensors) {
  static const struct {
    AbiType type;
    int numbers, gaps;
  } rows[] = {
      {{.dtype = ABI_F32, .rank = 0}, 1, 0},
      {{.dtype = ABI_F32, .rank = 2, .shape = {3, 0}}, 0, 0},
      {{.dtype = ABI_F32, .rank = 4, .shape = {3, 12, 7, 4}}, 1008, 0},
      {{.dtype = ABI_F32, .rank = 2, .shape = {12, 13}}, 12 * 8, 12},
      {{.dtype = ABI_F32, .rank = 4, .shape = {12, 12, 12, 12}}, 256, 1 + 4 + 16 + 64},
      {{.dtype = ABI_F32, .rank = 8, .shape = {4, 4, 4, 4, 4, 4, 4, 4}}, 256, 255},
  };
  static float data[65536];
  for (int i = 0; i < 65536; i++) data[i] = -1.234567e-20f;
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_JSON);
  RtLog *log = dtm_rt_log_open(&setup);
  dtm_rt_print_tensor(log, "x", &rows[_i].type, data);
  fclose(s.file);
  json_t *line = json_loads(s.text, 0, NULL);
  const char *text = json_string_value(json_object_get(line, "event"));
  ck_assert_msg(text && strstr(text, "] = "), "%s", s.text);
  int numbers = 0, gaps = 0;
  for (const char *p = strstr(text, "] = "); (p = strpbrk(p, "-.")); p += 3) {
    bool gap = strncmp(p, "...", 3) == 0, number = strncmp(p, "-1.23457e-20", 12) == 0;
    ck_assert_msg(gap || number, "%s", p);
    numbers += number;
    gaps += gap;
    if (number) p += 9;
  }
  ck_assert_int_eq(numbers, rows[_i].numbers);
  ck_assert_int_eq(gaps, rows[_i].gaps);
  ck_assert_int_eq(text[strlen(text) - 1], rows[_i].type.rank ? ']' : '0');
  json_decref(line);
  dtm_rt_log_close(log);
}
END_TEST

START_TEST(special_numbers) {
  static Screen s;
  static const float values[] = {-0.0f, NAN, -NAN, -INFINITY};
  const AbiType type = {.dtype = ABI_F32, .rank = 2, .shape = {2, 2}};
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_PLAIN);
  RtLog *log = dtm_rt_log_open(&setup);
  dtm_rt_print_tensor(log, "x", &type, values);
  dtm_rt_log_close(log);
  fclose(s.file);
  ck_assert_str_eq(s.text, "x f32[2, 2] = [[-0, nan], [nan, -inf]]\n");
}
END_TEST

START_TEST(silent) {
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_PLAIN);
  setup.quiet = true;
  run(dtm_rt_log_open(&setup));
  setup.mode = RT_LOG_JSON;
  run(dtm_rt_log_open(&setup));
  setup.quiet = false;
  setup.rank = 1; /* only rank 0 talks */
  run(dtm_rt_log_open(&setup));
  fclose(s.file);
  ck_assert_msg(strstr(s.text, "test accuracy 0.8712\n{") == s.text && !strstr(s.text, "loss"),
                "%s", s.text);
}
END_TEST

/* On a terminal: a bar as wide as it allows, wiped before anything else is printed. */
START_TEST(terminal) {
  int master, slave;
  struct winsize size = {.ws_row = 24, .ws_col = 72};
  ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
  setenv("LC_ALL", _i ? "C.UTF-8" : "C", 1);
  setenv("TERM", "xterm", 1);
  FILE *out = fdopen(slave, "w");
  RtLogSetup setup = setup_for(out, RT_LOG_AUTO);
  setup.total_steps = 3;
  RtLog *log = dtm_rt_log_open(&setup);
  for (int i = 1; i <= 2; i++) {
    dtm_rt_log_step(log, i, 1.5, NULL, 0);
    usleep(100000);
  }
  dtm_rt_log_metric(log, "test", "accuracy", 0.5, 2);
  dtm_rt_log_close(log);
  fflush(out);
  char text[8192] = "";
  size_t n = 0;
  for (struct pollfd p = {master, POLLIN, 0}; poll(&p, 1, 200) == 1;) {
    ssize_t got = read(master, text + n, sizeof text - 1 - n);
    ck_assert_int_gt(got, 0);
    n += (size_t)got;
  }
  ck_assert(strstr(text, "\r\033[Kstep 1/3 ") == text);
  ck_assert(strstr(text, _i ? "▕█" : "[#") != NULL);
  ck_assert(strstr(text, "step 2/3 ") != NULL);
  char *metric = strstr(text, "test accuracy 0.5000");
  ck_assert(metric && memcmp(metric - 4, "\r\033[K", 4) == 0);
  for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
    int columns = 0;
    for (char *c = line; *c; c++) {
      columns += (*c & 0xc0) != 0x80;
    }
    ck_assert_int_le(columns, 72 + 3); /* 3: the escape */
  }
  fclose(out);
  close(master);
}
END_TEST

/* Many steps: memory stays bounded and the curve still shows the whole run. */
START_TEST(long_run) {
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_PLAIN);
  setup.total_steps = 0;
  setup.log_every = 1000000;
  RtLog *log = dtm_rt_log_open(&setup);
  for (int64_t i = 1; i <= 50000; i++) {
    dtm_rt_log_step(log, i, 1 + exp(-(double)i / 9000), NULL, 0);
  }
  dtm_rt_log_summary(log);
  dtm_rt_log_close(log);
  fclose(s.file);
  ck_assert(strstr(s.text, "50000 steps in") != NULL);
  ck_assert(strstr(s.text, " 49") != NULL); /* the right end of the axis */
}
END_TEST

/* One step is one step. */
START_TEST(short_run) {
  static Screen s;
  screen_open(&s);
  RtLogSetup setup = setup_for(s.file, RT_LOG_PLAIN);
  RtLog *log = dtm_rt_log_open(&setup);
  dtm_rt_log_step(log, 1, 1, NULL, 0);
  dtm_rt_log_summary(log);
  dtm_rt_log_close(log);
  fclose(s.file);
  ck_assert(strstr(s.text, "\n1 step in ") != NULL);
}
END_TEST

/* --- Curve -------------------------------------------------------------------------------------
 */

static void draw(Screen *s, const double *values, size_t n, bool unicode) {
  int64_t steps[64];
  for (size_t i = 0; i < n; i++) {
    steps[i] = (int64_t)i + 1;
  }
  screen_open(s);
  dtm_rt_curve_draw(s->file, steps, values, n, 33, 5, unicode);
  fclose(s->file);
}

START_TEST(curve_ascii) {
  static Screen s;
  double falling[24];
  for (int i = 0; i < 24; i++) {
    falling[i] = 2.3 - 0.1 * i;
  }
  draw(&s, falling, 24, false);
  ck_assert_str_eq(s.text, "  2.300 +***\n"
                           "        |   ******\n"
                           "        |         ******\n"
                           "        |               ******\n"
                           "  0.000 +                     ***\n"
                           "        ++----------------------+\n"
                           "         1                     24\n");
}
END_TEST

/* Wide enough for six labels, but there are only three steps to name. */
START_TEST(curve_of_few_steps) {
  static Screen s;
  const double values[] = {3, 2, 1};
  const int64_t steps[] = {1, 2, 3};
  screen_open(&s);
  dtm_rt_curve_draw(s.file, steps, values, 3, 100, 4, false);
  fclose(s.file);
  int numbers = 0;
  for (char *word = strtok(strrchr(s.text, '+'), "+ \n"); word; word = strtok(NULL, " \n"))
    ck_assert_int_eq(atoi(word), ++numbers);
  ck_assert_int_eq(numbers, 3);
}
END_TEST

START_TEST(curve_braille) {
  static Screen s;
  double values[] = {1, 2, 3, 4, 3, 2, 1, NAN, 1, 2};
  draw(&s, values, 10, true);
  ck_assert(strstr(s.text, "  4.000 ┤") == s.text);
  ck_assert(strstr(s.text, "  1.000 ┤") != NULL);
  ck_assert(strstr(s.text, "└┴") != NULL);
  int dots = 0;
  for (const char *c = s.text; (c = strstr(c, "\xe2\xa0")) != NULL; c++) {
    dots++;
  }
  ck_assert_int_gt(dots, 5);
}
END_TEST

/* Odd input: equal values, one point, nothing finite, powers of ten. */
START_TEST(curve_edges) {
  static Screen s;
  draw(&s, (double[]){2, 2, 2}, 3, false);
  ck_assert(strchr(s.text, '*') != NULL);
  draw(&s, (double[]){5}, 1, false);
  ck_assert(strchr(s.text, '*') != NULL);
  draw(&s, (double[]){NAN, INFINITY}, 2, false);
  ck_assert(strchr(s.text, '*') == NULL);
  draw(&s, (double[]){1000, 100, 10, 1, 0.1}, 5, false); /* a logarithmic axis */
  ck_assert(strstr(s.text, "   1000 +*") == s.text);
  ck_assert(strstr(s.text, "  0.100 +") != NULL);
  draw(&s, NULL, 0, true);
  ck_assert_str_eq(s.text, "");
}
END_TEST

/* --- Trace -------------------------------------------------------------------------------------
 */

START_TEST(trace) {
  LocalSegment segment;
  LocalSetup local = {1, 4096, false};
  ck_assert_int_eq(dtm_local_create(&local, &segment), 0);
  RtComm *c = dtm_local_join(&segment, 0, 1, 5);
  char path[] = "/tmp/trace-XXXXXX";
  int fd = mkstemp(path);
  close(fd);
  RtTrace *t;
  ck_assert(dtm_rt_trace_open(NULL, c, &t) == 0 && !t);
  ck_assert_int_eq(dtm_rt_trace_open(path, c, &t), 0);
  uint64_t now = dtm_rt_trace_now();
  dtm_rt_trace_event(t, "all-reduce of \"w\"", "collective", "a.dtm:1:2", 7, 3, now, now + 1500);
  ck_assert_int_eq(dtm_rt_trace_close(t, c), 0);
  json_t *root = json_load_file(path, 0, NULL);
  ck_assert(root != NULL);
  json_t *event = json_array_get(json_object_get(root, "traceEvents"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(event, "name")), "all-reduce of \"w\"");
  ck_assert(json_number_value(json_object_get(event, "dur")) == 1.5);
  json_decref(root);
  /* A full disk: the trace that was there stays, and nothing lies beside it. */
  char partial[64];
  snprintf(partial, sizeof partial, "%s.partial", path);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit, before;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = 4096;
  ck_assert_int_eq(dtm_rt_trace_open(path, c, &t), 0);
  for (int i = 0; i < 100; i++)
    dtm_rt_trace_event(t, "another run", "kernel", "a.dtm:1:2", 7, i, now, now + 1500);
  setrlimit(RLIMIT_FSIZE, &limit);
  ck_assert_int_eq(dtm_rt_trace_close(t, c), 1);
  setrlimit(RLIMIT_FSIZE, &before);
  root = json_load_file(path, 0, NULL);
  ck_assert_int_eq(json_array_size(json_object_get(root, "traceEvents")), 2);
  json_decref(root);
  ck_assert_int_ne(access(partial, F_OK), 0);
  /* Neither is another's file of that name overwritten. */
  FILE *other = fopen(partial, "w");
  fputs("not a trace", other);
  fclose(other);
  ck_assert(dtm_rt_trace_open(path, c, &t) == 1 && !t);
  unlink(partial);
  unlink(path);
  ck_assert(dtm_rt_trace_open("/nonexistent/trace.json", c, &t) == 1 && !t);
  c->ops->destroy(c, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rt_log");
  TCase *tc = tcase_create("log");
  tcase_add_test(tc, json);
  tcase_add_test(tc, plain);
  tcase_add_loop_test(tc, tensors, 0, 6);
  tcase_add_test(tc, special_numbers);
  tcase_add_test(tc, silent);
  tcase_add_loop_test(tc, terminal, 0, 2);
  tcase_add_test(tc, long_run);
  tcase_add_test(tc, short_run);
  tcase_add_test(tc, curve_ascii);
  tcase_add_test(tc, curve_of_few_steps);
  tcase_add_test(tc, curve_braille);
  tcase_add_test(tc, curve_edges);
  tcase_add_test(tc, trace);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
