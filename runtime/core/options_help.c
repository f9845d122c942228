/* --help of a built binary: the option table, with the defaults of this program. */
#include "core/options_table.h"

#include <string.h>

enum { HELP_COLUMN = 23, HELP_WIDTH = 80 };

static const char *const group_names[GROUP_COUNT] = {"Training and data", "Checkpoints", "Output",
                                                     "Machine", "Help"};

static const char *default_text(OptionId id, const RtProgramInfo *program, char number[32]) {
  if (id == OPT_SEED) {
    snprintf(number, 32, "%llu", (unsigned long long)program->seed);
    return number;
  }
  if (id == OPT_SAVE) {
    return program->save ? program->save : "do not save";
  }
  if (id == OPT_STEPS && program->steps == 0) {
    return "as --epochs says";
  }
  if (id == OPT_EPOCHS && program->steps > 0) {
    return "as --steps says";
  }
  int64_t value = id == OPT_SAVE_EVERY   ? program->save_every
                  : id == OPT_EVAL_EVERY ? program->eval_every
                  : id == OPT_EPOCHS     ? program->epochs
                                         : program->steps;
  snprintf(number, 32, "%lld", (long long)value);
  return number;
}

/* Words from HELP_COLUMN to HELP_WIDTH; the cursor stands at HELP_COLUMN. */
static void print_wrapped(FILE *out, const char *text) {
  int column = HELP_COLUMN;
  while (*text) {
    int word = (int)strcspn(text, " ");
    if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
      fprintf(out, "\n%*s", HELP_COLUMN, "");
      column = HELP_COLUMN;
    } else if (column > HELP_COLUMN) {
      fputc(' ', out);
      column++;
    }
    fprintf(out, "%.*s", word, text);
    column += word;
    text += word;
    text += strspn(text, " ");
  }
  fputc('\n', out);
}

static void print_option(FILE *out, OptionId id, const RtProgramInfo *program) {
  const OptionSpec *spec = &option_specs()[id];
  char left[40], number[32], text[256];
  snprintf(left, sizeof left, "--%s%s%s", spec->name, spec->argument ? " " : "",
           spec->argument ? spec->argument : "");
  fprintf(out, "  %-*s ", HELP_COLUMN - 3, left);
  const char *mark = strstr(spec->help, "%D");
  if (mark) {
    snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - spec->help), spec->help,
             default_text(id, program, number), mark + 2);
  }
  print_wrapped(out, mark ? text : spec->help);
}

static void print_usage(FILE *out, const char *binary, const RtProgramInfo *program) {
  const char *commands[3];
  int n = 0;
  if (program->has_train) {
    commands[n++] = "train";
  }
  if (program->has_eval) {
    commands[n++] = "eval";
  }
  if (program->has_infer) {
    commands[n++] = "infer";
  }
  fprintf(out, "usage: %s", binary);
  for (int i = 0; i < n; i++) {
    fprintf(out, "%s%s", i ? " | " : " [", commands[i]);
  }
  fprintf(out, "%s [options]\n", n ? "]" : "");
  if (n > 1) {
    fprintf(out, "Without a command it %s.\n",
            program->has_train && program->has_eval ? "trains, then evaluates"
            : program->has_train                    ? "trains"
                                                    : "evaluates");
  }
  if (program->world > 1) {
    fprintf(out,
            "It starts its %d ranks itself, or is one of them under torchrun, mpirun or srun.\n",
            (int)program->world);
  }
  if (program->chips) {
    fprintf(out, "Each rank takes an NVIDIA GPU for itself; there is code for %s.\n",
            program->chips);
  }
  fprintf(out, "Ctrl-C %sstops.\n", program->has_train ? "saves and " : "");
}

void options_print_help(FILE *out, const char *binary, const RtProgramInfo *program) {
  fprintf(out, "%s: compiled from %s", binary, program->source);
  if (program->world > 1) {
    fprintf(out, " for mesh %s", program->mesh);
  }
  fputs("\n\n", out);
  print_usage(out, binary, program);
  for (int group = 0; group < GROUP_COUNT; group++) {
    fprintf(out, "\n%s:\n", group_names[group]);
    for (int i = 0; i < OPT_COUNT; i++) {
      if (option_specs()[i].group == (OptionGroup)group) {
        print_option(out, (OptionId)i, program);
      }
    }
  }
  if (program->ndata) {
    fputs("\nData:\n", out);
  }
  for (size_t i = 0; i < program->ndata; i++) {
    const RtDataDecl *d = &program->data[i];
    char left[80];
    if (d->made) continue;
    snprintf(left, sizeof left, "%s.%s", d->block, d->name);
    fprintf(out, "  %-*s %s (%s)\n", HELP_COLUMN - 3, left, d->path, d->reader);
  }
  fputs("\nExit codes: 0 done, 1 bad data, 2 usage, 3 device, 4 rank lost, 101 internal,\n"
        "128 + signal after Ctrl-C or SIGTERM.\n",
        out);
}
