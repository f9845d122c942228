/* The rows of options.def as numbers and records. Private to options*.c. */
#ifndef DTM_RT_OPTIONS_TABLE_H
#define DTM_RT_OPTIONS_TABLE_H

#include "core/options.h"

typedef enum OptionId {
#define OPTION(ID, name, argument, group, help) OPT_##ID,
#include "core/options.def"
#undef OPTION
  OPT_COUNT
} OptionId;

typedef enum OptionGroup {
  GROUP_TRAINING,
  GROUP_CHECKPOINTS,
  GROUP_OUTPUT,
  GROUP_MACHINE,
  GROUP_HELP,
  GROUP_COUNT
} OptionGroup;

typedef struct OptionSpec {
  const char *name, *argument, *help;
  OptionGroup group;
} OptionSpec;

const OptionSpec *option_specs(void); /* [OPT_COUNT] */

/* The text of --help. */
void options_print_help(FILE *out, const char *binary, const RtProgramInfo *program);

#endif
