/* The folder of a test program: see work.h. */
#include "support/work.h"

#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/target.h"

static char folder[] = "/tmp/dtm-test-XXXXXX";
static char root[512];

/* Cuts the path of the folder that the test runs in before "/tests/". */
static bool find_root(void) {
  if (!getcwd(root, sizeof root)) return false;
  char *tests = strstr(root, "/tests/");
  for (char *next = tests; next; next = strstr(tests + 1, "/tests/")) tests = next;
  if (tests) *tests = 0;
  return tests != NULL;
}

const char *work_folder(void) {
  return folder;
}

const char *work_root(void) {
  return root;
}

bool work_begin(void) {
  if (!getenv("DTMC")) {
    fprintf(stderr, "DTMC must name the compiler\n");
    return false;
  }
  if (!find_root()) {
    fprintf(stderr, "a test runs in the folder that holds it\n");
    return false;
  }
  if (mkdtemp(folder)) return target_begin(folder);
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

FILE *work_npy(const char *name, const char *descr, const char *shape) {
  char header[256];
  FILE *f = work_create(name);
  int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                   descr, shape);
  while ((10 + n + 1) % 64) header[n++] = ' ';
  header[n++] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, f);
  unsigned char len[2] = {(unsigned char)(n & 255), (unsigned char)(n >> 8)};
  fwrite(len, 1, 2, f);
  fwrite(header, 1, (size_t)n, f);
  return f;
}

char *work_source(const char *path) {
  char whole[1024], *text = NULL;
  size_t size = 0;
  snprintf(whole, sizeof whole, "%s/%s", root, path);
  FILE *f = fopen(whole, "r");
  ck_assert_msg(f != NULL, "%s", whole);
  ck_assert(getdelim(&text, &size, 0, f) > 0);
  fclose(f);
  return text;
}

int work_run(char *out, size_t size, const char *format, ...) {
  char command[4096];
  va_list ap;
  va_start(ap, format);
  int n = snprintf(command, sizeof command, "cd %s && { ", folder);
  n += vsnprintf(command + n, sizeof command - (size_t)n, format, ap);
  va_end(ap);
  FILE *p = NULL;
  if (n < (int)sizeof command - 16) {
    snprintf(command + n, sizeof command - (size_t)n, "; } 2>&1");
    target_before(command);
    p = popen(command, "r");
  }
  if (!p) {
    fprintf(stderr, "cannot run: %s\n", command);
    exit(2);
  }
  char rest[4096];
  out[fread(out, 1, size - 1, p)] = 0;
  while (fread(rest, 1, sizeof rest, p) > 0) continue;
  int status = pclose(p);
  if (target_complains()) ck_abort_msg("%s\n%s", command, out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int work_count(const char *pattern, const char *name) {
  char text[64];
  work_run(text, sizeof text, "grep -c '%s' %s", pattern, name);
  return atoi(text);
}
