/* libFuzzer target: any bytes as the text of a program. What is read prints, and what is printed
 * reads back and prints the same; the verifier of the first stage tells faults and does not crash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"
#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Reading {
  Sources sources;
  Interner names;
  Program *program;
  StrBuf printed;
} Reading;

static void read_program(Reading *r, Arena *arena, const char *text) {
  const char *error = NULL;
  sources_init(&r->sources, arena);
  interner_init(&r->names, arena);
  strbuf_init(&r->printed, arena);
  r->program = program_parse(arena, &r->names, &r->sources, text, &error);
  if (r->program)
    program_print(&r->printed, r->program);
  else if (!error || !error[0])
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena arena;
  arena_init(&arena);
  char *text = arena_strndup(&arena, (const char *)data, size);
  Reading first, second;
  read_program(&first, &arena, text);
  if (first.program) {
    read_program(&second, &arena, first.printed.text);
    if (!second.program || strcmp(first.printed.text, second.printed.text) != 0) {
      fprintf(stderr, "printing is not stable\n%s\n%s\n", first.printed.text,
              second.program ? second.printed.text : "(does not read)");
      abort();
    }
    verify_program(&arena, first.program, GRAPH_ELABORATED, "read", infer_check);
  }
  arena_free(&arena);
  return 0;
}
