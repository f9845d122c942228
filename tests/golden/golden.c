/* What golden tests share: see golden.h. */
#include "golden.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int compare_paths(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void walk(Arena *arena, const char *folder, const char *suffix, PathList *out) {
  DIR *dir = opendir(folder);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    const char *name = entry->d_name;
    if (name[0] == '.' || strncmp(name, "build", 5) == 0) continue;
    char *path = arena_printf(arena, "%s/%s", folder, name);
    struct stat st;
    size_t n = strlen(name), m = strlen(suffix);
    if (stat(path, &st)) continue;
    if (S_ISDIR(st.st_mode))
      walk(arena, path, suffix, out);
    else if (n >= m && strcmp(name + n - m, suffix) == 0)
      VEC_PUSH(arena, out, path);
  }
  closedir(dir);
}

void find_sources(Arena *arena, const char *folder, const char *suffix, PathList *out) {
  walk(arena, folder, suffix, out);
  if (out->len) qsort(out->data, out->len, sizeof *out->data, compare_paths);
}

char *read_text(Arena *arena, const char *path, size_t *size) {
  FILE *in = fopen(path, "rb");
  if (!in) return NULL;
  StrBuf text;
  strbuf_init(&text, arena);
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;) strbuf_put_n(&text, block, n);
  fclose(in);
  if (size) *size = text.len;
  return text.text;
}

bool updating(void) {
  const char *value = getenv("DTM_UPDATE");
  return value && *value && strcmp(value, "0") != 0;
}

void compare_with_file(Arena *arena, const char *path, const char *actual, bool create) {
  char *stored = read_text(arena, path, NULL);
  if (!stored && !create) return;
  if (stored && strcmp(stored, actual) == 0) return;
  if (updating()) {
    FILE *out = fopen(path, "wb");
    ck_assert_msg(out, "cannot write %s", path);
    fputs(actual, out);
    fclose(out);
    return;
  }
  if (!stored) stored = "";
  unsigned line = 1;
  size_t at = 0;
  for (; stored[at] && stored[at] == actual[at]; at++) line += stored[at] == '\n';
  ck_abort_msg("%s differs from line %u on (DTM_UPDATE=1 rewrites it); now it is:\n%.4000s", path,
               line, actual);
}

char *run_command(Arena *arena, const char *command, int *status) {
  FILE *pipe = popen(arena_printf(arena, "{ %s\n} 2>&1", command), "r");
  ck_assert_msg(pipe, "cannot run %s", command);
  StrBuf text;
  strbuf_init(&text, arena);
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) strbuf_put_n(&text, block, n);
  int result = pclose(pipe);
  *status = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
  return text.text;
}

/* Parses what follows "// " at s; false when it is an ordinary comment. */
static bool parse_expectation(Arena *arena, const char *s, unsigned line, Expectation *out) {
  static const char *const severities[] = {"error", "warning", "note"};
  *out = (Expectation){.line = line};
  for (int i = 0; i < 3 && !out->severity; i++) {
    size_t n = strlen(severities[i]);
    if (strncmp(s, severities[i], n) != 0) continue;
    out->severity = severities[i][0];
    s += n;
  }
  if (!out->severity) return false;
  if (*s == '@') {
    char *end;
    out->line = (unsigned)((int)line + (int)strtol(s + 1, &end, 10));
    s = end;
  }
  if (strncmp(s, "[DTM", 4) != 0 || strlen(s) < 9 || s[8] != ']') return false;
  memcpy(out->code, s + 1, 7);
  s += 9;
  if (*s == ':') s++;
  while (*s == ' ') s++;
  size_t n = strcspn(s, "\r\n");
  const char *next = strstr(s, " // "); /* another expectation of the line */
  if (next && next < s + n) n = (size_t)(next - s);
  while (n && s[n - 1] == ' ') n--;
  out->text = arena_strndup(arena, s, n);
  return true;
}

void find_expectations(Arena *arena, const char *text, ExpectationList *out) {
  unsigned line = 1;
  for (const char *s = text; *s; s++) {
    Expectation e;
    if (*s == '\n') line++;
    if (strncmp(s, "// ", 3) == 0 && parse_expectation(arena, s + 3, line, &e))
      VEC_PUSH(arena, out, e);
  }
}

void match_expectations(const char *path, ExpectationList *expected, ExpectationList *found) {
  for (uint32_t f = 0; f < found->len; f++) {
    for (uint32_t e = 0; e < expected->len && !found->data[f].met; e++) {
      Expectation *want = &expected->data[e], *have = &found->data[f];
      if (want->met || want->line != have->line || want->severity != have->severity ||
          strcmp(want->code, have->code) != 0 || !strstr(have->text, want->text))
        continue;
      want->met = have->met = true;
    }
  }
  char report[8192];
  size_t n = 0;
  report[0] = 0;
  for (uint32_t f = 0; f < found->len && n < sizeof report - 512; f++)
    if (!found->data[f].met)
      n += (size_t)snprintf(report + n, 400, "  not expected: line %u %c[%s]: %.200s\n",
                            found->data[f].line, found->data[f].severity, found->data[f].code,
                            found->data[f].text);
  for (uint32_t e = 0; e < expected->len && n < sizeof report - 512; e++)
    if (!expected->data[e].met)
      n += (size_t)snprintf(report + n, 400, "  missing: line %u %c[%s]: %.200s\n",
                            expected->data[e].line, expected->data[e].severity,
                            expected->data[e].code, expected->data[e].text);
  ck_assert_msg(n == 0, "%s:\n%s", path, report);
}
