/* What golden tests share: files, finding sources, comparing with what is stored. */
#ifndef DTM_TESTS_GOLDEN_H
#define DTM_TESTS_GOLDEN_H

#include "base/str.h"
#include "base/vec.h"

typedef VEC(char *) PathList;

/* Every file below `folder` whose name ends in `suffix`, sorted; folders named build* and those
 * that start with '.' are left out. */
void find_sources(Arena *arena, const char *folder, const char *suffix, PathList *out);
/* Whole file, NUL-terminated; NULL when it does not exist. */
char *read_text(Arena *arena, const char *path, size_t *size);
/* Compares with the stored text and fails the test where they differ. With DTM_UPDATE=1 in the
 * environment the file is rewritten instead; a file that does not exist is then only made when
 * `create` is set. */
void compare_with_file(Arena *arena, const char *path, const char *actual, bool create);
bool updating(void);

/* Runs a command with sh in the current folder; its output (stdout and stderr) and exit status. */
char *run_command(Arena *arena, const char *command, int *status);

/* One diagnostic, expected by a comment or found. */
typedef struct Expectation {
  char code[8];
  char severity; /* 'e'rror, 'w'arning, 'n'ote */
  unsigned line;
  const char *text; /* part of the message; "" = any */
  bool met;
} Expectation;
typedef VEC(Expectation) ExpectationList;

/* `... // error[DTM2004]: text` on the line itself, `// error@+1[DTM2004]: text` for another line
 * (relative), warning likewise; several on one line. */
void find_expectations(Arena *arena, const char *text, ExpectationList *out);
/* Fails the test unless both lists agree. */
void match_expectations(const char *path, ExpectationList *expected, ExpectationList *found);

#endif
