/* The folder of a test program: see work.h. */
#include "support/work.h"

#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/dtm-test-XXXXXX";

bool work_begin(void) {
  if (!getenv("DTMC")) {
    fprintf(stderr, "DTMC must name the compiler\n");
    return false;
  }
  if (mkdtemp(folder)) return true;
  perror(folder);
  return false;
}

bool work_end(void) {
  char clean[sizeof folder + 16];
  snprintf(clean, sizeof clean, "rm -rf %s", folder);
  return system(clean) == 0;
}

FILE *work_create(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  if (f) return f;
  perror(path);
  exit(2);
}

void work_write(const char *name, const char *text) {
  FILE *f = work_create(name);
  fputs(text, f);
  fclose(f);
}

int work_run(char *out, size_t size, const char *format, ...) {
  char command[4096];
  va_list ap;
  va_start(ap, format);
  int n = snprintf(command, sizeof command, "cd %s && { ", folder);
  n += vsnprintf(command + n, sizeof command - (size_t)n, format, ap);
  va_end(ap);
  ck_assert_int_lt(n, (int)sizeof command - 16);
  snprintf(command + n, sizeof command - (size_t)n, "; } 2>&1");
  FILE *p = popen(command, "r");
  ck_assert_ptr_nonnull(p);
  char rest[4096];
  out[fread(out, 1, size - 1, p)] = 0;
  while (fread(rest, 1, sizeof rest, p) > 0) continue;
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
