/* Damaged programs: whatever the text, elaboration ends with diagnostics and never crashes or
 * hangs. The programs are the golden ones and the standard library, with words removed, doubled,
 * swapped and replaced by others of the same file. What is copied of an earlier call or instance
 * (compiler/sema/replay.h) changes neither what is said nor what comes out. */
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "reference/compile.h"
#include "support/suite.h"

enum { MUTANTS = 60, MAX_FILES = 64, MAX_WORDS = 4096 };

static char *files[MAX_FILES];
static int nfiles;

static void find_files(const char *folder) {
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    const char *dot = strrchr(e->d_name, '.');
    if (!dot || strcmp(dot, ".dtm") != 0 || nfiles == MAX_FILES) continue;
    size_t size = strlen(folder) + strlen(e->d_name) + 2;
    files[nfiles] = malloc(size);
    snprintf(files[nfiles++], size, "%s/%s", folder, e->d_name);
  }
  if (dir) closedir(dir);
}

static uint64_t next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

typedef struct Word {
  const char *text;
  size_t len;
} Word;

/* Names, numbers, strings and single signs; white space stays with the word before it. */
static int split_words(const char *text, Word *words) {
  int n = 0;
  while (*text && n < MAX_WORDS) {
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t len = strspn(text, name);
    if (!len) len = 1;
    len += strspn(text + len, " \n");
    words[n++] = (Word){text, len};
    text += len;
  }
  return n;
}

/* What is said of the program, and the program where nothing is wrong. */
static const char *outcome(Compiled *c) {
  StrBuf sb;
  strbuf_init(&sb, &c->arena);
  strbuf_puts(&sb, compile_messages(c));
  if (!c->sink.errors) program_print(&sb, c->program);
  return sb.text;
}

START_TEST(damaged_programs) {
  FILE *in = fopen(files[_i], "rb");
  static char text[1 << 16], damaged[1 << 17];
  static Word words[MAX_WORDS];
  text[fread(text, 1, sizeof text - 1, in)] = 0;
  fclose(in);
  uint64_t state = 88172645463325252u + (uint64_t)_i;
  uint64_t errors = 0;
  for (int m = 0; m < MUTANTS; m++) {
    int n = split_words(text, words);
    for (uint64_t k = next(&state) % 3 + 1; k > 0; k--) {
      uint64_t how = next(&state) % 4, a = next(&state) % (uint64_t)n,
               b = next(&state) % (uint64_t)n;
      Word w = words[a];
      if (how == 0) words[a].len = 0;
      if (how == 1) words[a] = words[b];
      if (how >= 2) words[a] = words[b], words[b] = w;
    }
    size_t len = 0;
    for (int w = 0; w < n; w++) {
      memcpy(damaged + len, words[w].text, words[w].len);
      len += words[w].len;
    }
    damaged[len] = 0;
    Compiled c, each;
    SemaOptions o = {.assume_two = m % 5 == 0, .widen = m % 7 == 0};
    compile_text(&c, damaged, NULL, &o);
    errors += c.sink.errors;
    o.each_call = true;
    compile_text(&each, damaged, NULL, &o);
    ck_assert_str_eq(outcome(&c), outcome(&each));
    compile_free(&c);
    compile_free(&each);
  }
  ck_assert_uint_gt(errors, MUTANTS / 4); /* the damage is real */
}
END_TEST

int main(void) {
  find_files("../golden/check");
  find_files("../golden/syntax");
  find_files("../../stdlib");
  find_files("../e2e/programs");
  find_files("../../samples/gpt2");
  find_files("../../samples/llama");
  find_files("../../samples/mixtral");
  TCase *t = tcase_create("mutants");
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, damaged_programs, 0, nfiles);
  Suite *suite = suite_create("sema mutants");
  suite_add_tcase(suite, t);
  return suite_run(suite);
}
