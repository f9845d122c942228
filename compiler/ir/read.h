/* Inside ir/: the cursor over program text that parse.c reads with. */
#ifndef DTM_IR_READ_H
#define DTM_IR_READ_H

#include <setjmp.h>

#include "ir/text.h"

/* The first fault leaves through read_fail (longjmp to `fail`), so callers need no checks in
 * between; all memory is in the arena. */
typedef struct Reader {
  Arena *arena;
  Interner *names;
  Sources *sources;
  const char *text, *at;
  const char *error;
  jmp_buf fail;
  Program *program;
} Reader;

_Noreturn void read_fail(Reader *p, const char *what);
void read_blank(Reader *p); /* skips blanks within the line */
/* Takes `word` when it stands here. A word that is letters must end here. */
bool read_accept(Reader *p, const char *word);
void read_expect(Reader *p, const char *word);
const char *read_word(Reader *p);
int64_t read_integer(Reader *p);
uint64_t read_natural(Reader *p);
uint32_t read_index(Reader *p);
double read_real(Reader *p);
const char *read_quoted(Reader *p);
void read_end_line(Reader *p);
/* "path:line:column"; an empty span when there is none. */
Span read_place(Reader *p);
Span read_place_after_slashes(Reader *p);
/* Every file that a place names must exist before places become offsets: enters those that
 * `sources` lacks, as blank lines that are long enough. */
void read_enter_files(Reader *p);
DType read_dtype(Reader *p);
TensorType read_type(Reader *p);
Attr read_attribute(Reader *p);

#endif
