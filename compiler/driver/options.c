/* Parsing the command line: see options.h. */
#include "driver/options.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

/* What an OPTIONAL one takes comes behind =. */
typedef enum OptionKind { FLAG = 1, OPTIONAL, VALUE, LIST } OptionKind;

typedef struct OptionRow {
  const char *heading; /* a heading row when not NULL */
  OptionId id;
  OptionKind kind;
  const char *name, *brief, *metavar;
  unsigned commands;
  const char *help;
} OptionRow;

static const OptionRow rows[] = {
#define HEADING(text) {.heading = text},
#define OPTION(ID, kind_, name_, brief_, metavar_, commands_, help_)                               \
  {NULL, OPT_##ID, kind_, name_, brief_, metavar_, commands_, help_},
#include "driver/options.def"
};
enum { NROWS = sizeof rows / sizeof *rows };

static const struct {
  const char *name;
  Command command;
  const char *usage, *help;
} commands[] = {
    {"", CMD_COMPILE, "dtmc FILE.dtm -o FILE [options]", "compile a program to an executable"},
    {"check", CMD_CHECK, "dtmc check FILE.dtm... [options]",
     "check shapes and placements, without a device"},
    {"verify", CMD_VERIFY, "dtmc verify FILE.dtm [options]",
     "run a program on its mesh and on one rank, and compare"},
    {"explain", CMD_EXPLAIN, "dtmc explain CODE | op [NAME] | tensor NAME FILE.dtm",
     "explain a diagnostic, an operator, how a tensor is cut"},
    {"fmt", CMD_FMT, "dtmc fmt [-w] FILE.dtm...", "print files in canonical form"},
    {"lsp", CMD_LSP, "dtmc lsp [options]", "serve editors: placements on hover, errors, fixes"},
    {"new", CMD_NEW, "dtmc new NAME.dtm", "write a program to begin with, which runs as it is"},
};
enum { NCOMMANDS = sizeof commands / sizeof *commands };

const char *option_value(const Options *o, OptionId id, const char *otherwise) {
  return o->values[id].len ? o->values[id].data[o->values[id].len - 1] : otherwise;
}

/* `text` in lines of at most 100 columns, the first of which begins at column `left`. */
static void put_wrapped(FILE *out, const char *text, int left) {
  enum { WIDTH = 100 };
  int column = left;
  for (const char *p = text; *p;) {
    int n = (int)strcspn(p, " ");
    if (column > left && column + 1 + n > WIDTH) {
      fprintf(out, "\n%*s", left, "");
      column = left;
    }
    column += fprintf(out, "%s%.*s", column > left ? " " : "", n, p);
    p += n + (p[n] == ' ');
  }
  fputc('\n', out);
}

void options_help(FILE *out, Command command) {
  fprintf(out, "dtmc %s - an ahead-of-time compiler for parallel models\n\nUsage:\n", DTM_VERSION);
  for (int c = 0; c < NCOMMANDS; c++) {
    if (command != CMD_COMPILE && command != commands[c].command) continue;
    fprintf(out, "  %-52s %s\n", commands[c].usage, commands[c].help);
  }
  const char *heading = NULL;
  for (int i = 0; i < NROWS; i++) {
    const OptionRow *r = &rows[i];
    if (r->heading) {
      heading = r->heading;
      continue;
    }
    if (command != CMD_COMPILE && !(r->commands & command)) continue;
    if (heading) fprintf(out, "\n%s:\n", heading);
    heading = NULL;
    char left[64];
    snprintf(left, sizeof left, "%s%s%s%s%s%s", r->brief ? r->brief : "", r->brief ? ", " : "",
             r->name,
             r->kind == OPTIONAL                     ? "[="
             : r->kind == VALUE && r->name[1] == '-' ? "="
             : r->metavar                            ? " "
                                                     : "",
             r->metavar ? r->metavar : "", r->kind == OPTIONAL ? "]" : "");
    fprintf(out, "  %-28s ", left);
    put_wrapped(out, r->help, 31);
  }
  if (command == CMD_COMPILE)
    fprintf(out, "\n@FILE on the command line stands for the words in FILE.\n"
                 "Exit codes: 0 done, 1 errors found, 2 wrong usage, 101 internal error.\n");
}

static void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void report(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "dtmc: ");
  vfprintf(stderr, fmt, ap);
  fprintf(stderr, "; see dtmc --help\n");
  va_end(ap);
}

/* Splits the text of a response file into words; quotes group, a backslash takes the next character
 * as it is. */
static bool add_response_file(Arena *arena, StringList *words, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    report("cannot read the response file %s: %s", path, strerror(errno));
    return false;
  }
  StrBuf word;
  strbuf_init(&word, arena);
  bool open = false;
  int quote = 0;
  for (int c; (c = fgetc(f)) != EOF;) {
    bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (space && !quote) {
      if (open) VEC_PUSH(arena, words, arena_strdup(arena, word.text));
      open = false;
      word.len = 0;
      word.text[0] = 0;
      continue;
    }
    open = true;
    if (quote && c == quote)
      quote = 0;
    else if (!quote && (c == '"' || c == '\''))
      quote = c;
    else if (c == '\\' && quote != '\'') {
      int next = fgetc(f);
      if (next != EOF) strbuf_putc(&word, (char)next);
    } else
      strbuf_putc(&word, (char)c);
  }
  if (open) VEC_PUSH(arena, words, arena_strdup(arena, word.text));
  fclose(f);
  if (quote) report("a quote is left open in the response file %s", path);
  return !quote;
}

static const OptionRow *find_row(const char *word, size_t n) {
  for (int i = 0; i < NROWS; i++) {
    const OptionRow *r = &rows[i];
    if (r->heading) continue;
    if (strlen(r->name) == n && strncmp(r->name, word, n) == 0) return r;
    if (r->brief && strlen(r->brief) == n && strncmp(r->brief, word, n) == 0) return r;
  }
  return NULL;
}

static void report_unknown(const char *word, size_t n) {
  char given[64];
  snprintf(given, sizeof given, "%.*s", (int)n, word);
  const char *nearest = NULL;
  unsigned best = 4;
  for (int i = 0; i < NROWS; i++) {
    if (rows[i].heading) continue;
    unsigned d = edit_distance(given, rows[i].name, 3);
    if (d < best) best = d, nearest = rows[i].name;
  }
  if (nearest)
    report("unknown option %s; did you mean %s?", given, nearest);
  else
    report("unknown option %s", given);
}

/* One option word; *i moves past the argument it takes. */
static bool take_option(Options *o, Arena *arena, const StringList *words, uint32_t *i) {
  const char *word = words->data[*i], *argument = NULL;
  const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
  size_t n = equals ? (size_t)(equals - word) : strlen(word);
  const OptionRow *r = find_row(word, n);
  if (!r && word[1] != '-' && n > 2) { /* -Dname=3, -Idir, -ofile */
    r = find_row(word, 2);
    if (r && r->kind <= OPTIONAL) r = NULL;
    if (r) argument = word + 2;
  }
  if (!r) {
    report_unknown(word, n);
    return false;
  }
  if (equals) argument = equals + 1;
  if (r->kind == FLAG && argument) {
    report("option %s takes no argument", r->name);
    return false;
  }
  if (r->kind > OPTIONAL && !argument) {
    if (*i + 1 >= words->len) {
      report("option %s needs an argument: %s %s", r->name, r->name, r->metavar);
      return false;
    }
    argument = words->data[++*i];
  }
  VEC_PUSH(arena, &o->values[r->id], argument ? argument : "");
  return true;
}

static bool check_commands(const Options *o) {
  for (int i = 0; i < NROWS; i++) {
    const OptionRow *r = &rows[i];
    if (r->heading || !option_given(o, r->id) || (r->commands & o->command)) continue;
    for (int c = 0; c < NCOMMANDS; c++)
      if (commands[c].command == o->command)
        report("option %s does not belong to %s", r->name,
               commands[c].name[0] ? commands[c].name : "compiling");
    return false;
  }
  return true;
}

bool options_parse(Options *options, Arena *arena, int argc, char **argv) {
  *options = (Options){.command = CMD_COMPILE};
  StringList words = {0};
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '@' && argv[i][1]) {
      if (!add_response_file(arena, &words, argv[i] + 1)) return false;
    } else
      VEC_PUSH(arena, &words, argv[i]);
  }
  uint32_t i = 0;
  for (int c = 1; words.len && c < NCOMMANDS; c++) {
    if (strcmp(words.data[0], commands[c].name) != 0) continue;
    options->command = commands[c].command;
    i = 1;
  }
  bool only_operands = false;
  for (; i < words.len; i++) {
    const char *w = words.data[i];
    if (!only_operands && strcmp(w, "--") == 0)
      only_operands = true;
    else if (!only_operands && w[0] == '-' && w[1]) {
      if (!take_option(options, arena, &words, &i)) return false;
    } else
      VEC_PUSH(arena, &options->operands, w);
  }
  return check_commands(options);
}
