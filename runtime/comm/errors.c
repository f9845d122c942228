/* Reporting failures at run time: see errors.h. */
#include "comm/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* On a terminal a progress bar may stand in the line: wipe it. */
static const char *line_start(void) {
  return isatty(STDERR_FILENO) ? "\r\033[K" : "";
}

void dtm_rt_print_error(const char *message) {
  char text[4096];
  int n = snprintf(text, sizeof text, "%serror: %s\n", line_start(), message);
  size_t length = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
  /* One write, so that lines of several processes do not mix. */
  for (size_t at = 0; at < length;) {
    ssize_t written = write(STDERR_FILENO, text + at, length - at);
    if (written <= 0) {
      break;
    }
    at += (size_t)written;
  }
}

int dtm_rt_fail(RtComm *c, RtStatus code, const char *format, ...) {
  char what[2048], message[3072];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (!c) {
    dtm_rt_print_error(what);
    return (int)code;
  }
  size_t n = 0;
  if (c->world > 1) {
    n += (size_t)snprintf(message, sizeof message, "rank %d: ", (int)c->rank);
  }
  n += (size_t)snprintf(message + n, sizeof message - n, "%s", what);
  if (c->place.operation && n < sizeof message) {
    snprintf(message + n, sizeof message - n, "\n  at step %lld, %s (%s)", (long long)c->place.step,
             c->place.operation, c->place.source ? c->place.source : "-");
  }
  return c->ops->fail(c, (int)code, message);
}

void dtm_rt_warn(const RtComm *c, const char *format, ...) {
  if (c && c->rank != 0) {
    return;
  }
  char what[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  fprintf(stderr, "%swarning: %s\n", line_start(), what);
}
