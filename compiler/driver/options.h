/* The command line, parsed: see options.def for what there is. */
#ifndef DTM_DRIVER_OPTIONS_H
#define DTM_DRIVER_OPTIONS_H

#include <stdio.h>

#include "base/vec.h"

typedef enum Command {
  CMD_COMPILE = 1,
  CMD_CHECK = 2,
  CMD_EXPLAIN = 4,
  CMD_FMT = 8,
  CMD_NEW = 16,
  CMD_LSP = 32,
  CMD_VERIFY = 64
} Command;
enum { CMD_ALL = 127 };

typedef enum OptionId {
#define HEADING(text)
#define OPTION(ID, kind, name, brief, metavar, commands, help) OPT_##ID,
#include "driver/options.def"
  OPT_COUNT
} OptionId;

typedef VEC(const char *) StringList;

typedef struct Options {
  Command command;
  StringList values[OPT_COUNT]; /* FLAG: one "" when given; VALUE, LIST: the arguments */
  StringList operands;          /* files; for explain the words after it */
} Options;

/* Exit codes of dtmc. */
enum { EXIT_OK = 0, EXIT_ERRORS = 1, EXIT_USAGE = 2, EXIT_INTERNAL = 101 };

/* Parses argv (response files `@file` expanded). On a usage error prints one message with the
 * nearest right spelling and returns false. */
bool options_parse(Options *options, Arena *arena, int argc, char **argv);

static inline bool option_given(const Options *o, OptionId id) {
  return o->values[id].len > 0;
}
/* The last value given, or `otherwise`. */
const char *option_value(const Options *o, OptionId id, const char *otherwise);

void options_help(FILE *out, Command command);

#endif
