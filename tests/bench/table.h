/* For the programs of this folder: tables in Markdown that are aligned as plain text too, and the
 * clock. */
#ifndef DTM_BENCH_TABLE_H
#define DTM_BENCH_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Prints a head line, format such as "| %-20s | %9s |", and the rule below it: cells that the
 * format pads on the left ("%9s") are columns aligned to the right. */
__attribute__((format(printf, 1, 2))) static inline void table_head(const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  puts(line);
  bool right = false;
  for (char *p = line; *p; p++) {
    if (*p != '|') {
      *p = right && p[1] == '|' ? ':' : '-';
      continue;
    }
    format = strchr(format, '%');
    if (!format) continue;
    right = format[1] != '-';
    format++;
  }
  puts(line);
}

static inline double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
