/* Parsing the command line of a built binary: see options.h. */
#include "core/options.h"

#include "comm/errors.h"
#include "core/options_table.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const OptionSpec specs[OPT_COUNT] = {
#define OPTION(ID, name, argument, group, help) {name, argument, help, GROUP_##group},
#include "core/options.def"
#undef OPTION
};

const OptionSpec *option_specs(void) {
  return specs;
}

/* --- Suggestions -------------------------------------------------------------------------------
 */

/* Edit distance where swapping neighbours counts once; words longer than 40 are never close. */
static int word_distance(const char *a, const char *b) {
  enum { LONGEST = 40 };
  size_t n = strlen(a), m = strlen(b);
  if (n > LONGEST || m > LONGEST) {
    return LONGEST;
  }
  int d[LONGEST + 1][LONGEST + 1];
  for (size_t i = 0; i <= n; i++) {
    d[i][0] = (int)i;
  }
  for (size_t j = 0; j <= m; j++) {
    d[0][j] = (int)j;
  }
  for (size_t i = 1; i <= n; i++) {
    for (size_t j = 1; j <= m; j++) {
      int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
      best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          d[i - 2][j - 2] + 1 < best) {
        best = d[i - 2][j - 2] + 1;
      }
      d[i][j] = best;
    }
  }
  return d[n][m];
}

typedef struct Nearest {
  const char *name;
  int distance;
} Nearest;

static void nearest_try(Nearest *nearest, const char *word, const char *candidate) {
  int distance = word_distance(word, candidate), limit = (int)strlen(word) / 3 + 1;
  if (distance <= limit && (!nearest->name || distance < nearest->distance)) {
    *nearest = (Nearest){candidate, distance};
  }
}

/* --- Errors ------------------------------------------------------------------------------------
 */

typedef struct Parser {
  RtOptions *o;
  const RtProgramInfo *program;
  const char *binary;
  FILE *err;
  bool given[OPT_COUNT];
} Parser;

__attribute__((format(printf, 2, 3))) static int usage_error(const Parser *p, const char *format,
                                                             ...) {
  va_list args;
  va_start(args, format);
  fputs("error: ", p->err);
  vfprintf(p->err, format, args);
  fprintf(p->err, "\n  %s --help lists the options\n", p->binary);
  va_end(args);
  return RT_USAGE;
}

/* `text` has its dashes. */
static int unknown_option(const Parser *p, const char *text, size_t length) {
  char whole[64];
  snprintf(whole, sizeof whole, "%.*s", (int)length, text);
  const char *word = whole + strspn(whole, "-");
  Nearest nearest = {0};
  for (int i = 0; i < OPT_COUNT; i++) {
    if (strncmp(specs[i].name, word, strlen(word)) == 0 && strlen(word) >= 3) {
      nearest = (Nearest){specs[i].name, 0}; /* a beginning of it */
    }
    nearest_try(&nearest, word, specs[i].name);
  }
  if (nearest.name) {
    return usage_error(p, "unknown option %s; did you mean --%s?", whole, nearest.name);
  }
  return usage_error(p, "unknown option %s", whole);
}

/* --- Values ------------------------------------------------------------------------------------
 */

static int parse_integer(const Parser *p, OptionId id, const char *text, int64_t least,
                         int64_t most, int64_t *value) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || errno || v < least || v > most) {
    if (most == INT64_MAX) {
      return usage_error(p, "--%s takes a whole number of at least %lld, not '%s'", specs[id].name,
                         (long long)least, text);
    }
    return usage_error(p, "--%s takes a whole number from %lld to %lld, not '%s'", specs[id].name,
                       (long long)least, (long long)most, text);
  }
  *value = v;
  return -1;
}

static int parse_seed(const Parser *p, const char *text, uint64_t *value) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno) {
    return usage_error(p, "--seed takes a whole number from 0 to 2^64 - 1, not '%s'", text);
  }
  *value = v;
  return -1;
}

static int parse_seconds(const Parser *p, const char *text, double *value) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !(v > 0) || v > 1e9) {
    return usage_error(p, "--deadline takes a number of seconds above 0, not '%s'", text);
  }
  *value = v;
  return -1;
}

/* One of several words; *value is its place in the list. */
static int parse_word(const Parser *p, OptionId id, const char *text, const char *const *words,
                      int nwords, int *value) {
  Nearest nearest = {0};
  char list[128] = "";
  size_t n = 0;
  for (int i = 0; i < nwords; i++) {
    if (strcmp(text, words[i]) == 0) {
      *value = i;
      return -1;
    }
    nearest_try(&nearest, text, words[i]);
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", words[i]);
  }
  return usage_error(p, "--%s takes one of %s, not '%s'%s%s%s", specs[id].name, list, text,
                     nearest.name ? "; did you mean " : "", nearest.name ? nearest.name : "",
                     nearest.name ? "?" : "");
}

static int parse_data(const Parser *p, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1]) {
    return usage_error(p, "--data takes NAME=PATH, not '%s'", text);
  }
  char name[128], list[512] = "none";
  snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
  Nearest nearest = {0};
  bool found = false;
  for (size_t i = 0, n = 0; i < p->program->ndata; i++) {
    const char *declared = p->program->data[i].name;
    if (p->program->data[i].made) continue;
    if (strcmp(name, declared) == 0) {
      /* One name may be declared in several blocks; `train.tokens=` picks one. */
      p->o->data[i].path = equals + 1;
      found = true;
    }
    char full[256];
    snprintf(full, sizeof full, "%s.%s", p->program->data[i].block, declared);
    if (strcmp(name, full) == 0) {
      p->o->data[i].path = equals + 1;
      found = true;
    }
    nearest_try(&nearest, name, declared);
    if (n < sizeof list) {
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", full);
    }
  }
  if (found) {
    return -1;
  }
  return usage_error(p, "this program has no data '%s'%s%s%s (it has: %s)", name,
                     nearest.name ? "; did you mean " : "", nearest.name ? nearest.name : "",
                     nearest.name ? "?" : "", list);
}

static const char *const log_words[] = {"auto", "plain", "bar", "json"};
static const char *const comm_words[] = {"auto", "local", "mpi"};

/* -1 to go on, else the exit code. `value` is NULL for options without an argument. */
static int apply(Parser *p, OptionId id, const char *value) {
  RtOptions *o = p->o;
  int64_t n = 0;
  int word = 0, result = -1;
  switch (id) {
  case OPT_STEPS:
    return parse_integer(p, id, value, 1, INT64_MAX, &o->steps);
  case OPT_EPOCHS:
    o->steps = 0;
    return parse_integer(p, id, value, 1, INT64_MAX, &o->epochs);
  case OPT_SEED:
    o->seed_given = true;
    return parse_seed(p, value, &o->seed);
  case OPT_DATA:
    return parse_data(p, value);
  case OPT_EVAL_EVERY:
    return parse_integer(p, id, value, 0, INT64_MAX, &o->eval_every);
  case OPT_NO_EVAL:
    o->no_eval = true;
    break;
  case OPT_ALLOW_NAN:
    o->check_finite = false;
    break;
  case OPT_LOAD:
    o->load = value;
    break;
  case OPT_SAVE:
    o->save = value;
    break;
  case OPT_SAVE_EVERY:
    return parse_integer(p, id, value, 0, INT64_MAX, &o->save_every);
  case OPT_RESUME:
    o->resume = value;
    break;
  case OPT_LOG:
    result = parse_word(p, id, value, log_words, 4, &word);
    o->log = (RtLogMode)word;
    break;
  case OPT_LOG_EVERY:
    return parse_integer(p, id, value, 1, INT64_MAX, &o->log_every);
  case OPT_QUIET:
    o->quiet = true;
    break;
  case OPT_NO_CURVE:
    o->no_curve = true;
    break;
  case OPT_TRACE:
    o->trace = value;
    break;
  case OPT_THREADS:
    result = parse_integer(p, id, value, 1, RT_MOST_THREADS, &n);
    o->threads = (int)n;
    break;
  case OPT_DEADLINE:
    return parse_seconds(p, value, &o->deadline);
  case OPT_COMM:
    result = parse_word(p, id, value, comm_words, 3, &word);
    o->transport = (RtTransport)word;
    break;
  case OPT_RANK:
    result = parse_integer(p, id, value, 0, INT32_MAX, &n);
    o->rank = (int32_t)n;
    break;
  case OPT_WORLD:
    result = parse_integer(p, id, value, 1, INT32_MAX, &n);
    o->world = (int32_t)n;
    break;
  case OPT_JOB:
    o->job = value;
    break;
  case OPT_HELP:
  case OPT_VERSION:
  case OPT_COUNT:
    break;
  }
  return result;
}

/* --- Parsing -----------------------------------------------------------------------------------
 */

static int parse_command(Parser *p, const char *word) {
  const struct {
    const char *name;
    RtCommand command;
    bool present;
  } commands[] = {{"train", RT_RUN_TRAIN, p->program->has_train},
                  {"eval", RT_RUN_EVAL, p->program->has_eval},
                  {"infer", RT_RUN_INFER, p->program->has_infer}};
  Nearest nearest = {0};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (strcmp(word, commands[i].name) == 0) {
      if (!commands[i].present) {
        return usage_error(p, "%s has no %s block", p->program->source, word);
      }
      p->o->command = commands[i].command;
      return -1;
    }
    if (commands[i].present) {
      nearest_try(&nearest, word, commands[i].name);
    }
  }
  return usage_error(p, "unknown command '%s'%s%s%s", word, nearest.name ? "; did you mean " : "",
                     nearest.name ? nearest.name : "", nearest.name ? "?" : "");
}

/* An option that would have no effect is refused rather than ignored. */
static int check_effect(const Parser *p) {
  const bool *given = p->given;
  const RtProgramInfo *program = p->program;
  const RtOptions *o = p->o;
  static const OptionId training[] = {OPT_STEPS, OPT_EPOCHS,     OPT_EVAL_EVERY, OPT_NO_EVAL,
                                      OPT_SAVE,  OPT_SAVE_EVERY, OPT_ALLOW_NAN,  OPT_LOG_EVERY};
  const char *other = !program->has_train          ? "a program without a train block"
                      : o->command == RT_RUN_EVAL  ? "eval"
                      : o->command == RT_RUN_INFER ? "infer"
                                                   : NULL;
  for (size_t i = 0; other && i < sizeof training / sizeof *training; i++)
    if (given[training[i]])
      return usage_error(p, "--%s is for training, not for %s", specs[training[i]].name, other);
  if (!program->has_eval && (given[OPT_EVAL_EVERY] || given[OPT_NO_EVAL]))
    return usage_error(p, "--%s has no effect: %s has no eval block",
                       specs[given[OPT_EVAL_EVERY] ? OPT_EVAL_EVERY : OPT_NO_EVAL].name,
                       program->source);
  if (given[OPT_EVAL_EVERY] && o->eval_every > 0 && (o->no_eval || o->command == RT_RUN_TRAIN))
    return usage_error(p, "give --eval-every or %s, not both", o->no_eval ? "--no-eval" : "train");
  if (given[OPT_SAVE_EVERY] && !o->save)
    return usage_error(p, "--save-every needs --save FILE: the program does not say where to save");
  if (given[OPT_LOG_EVERY] && (o->log == RT_LOG_JSON || o->log == RT_LOG_BAR))
    return usage_error(p, "--log-every is for plain lines, not for --log %s", log_words[o->log]);
  if (given[OPT_JOB] && !given[OPT_RANK])
    return usage_error(p, "--job goes with --rank and --world: launchers name their jobs");
  return -1;
}

static int check_together(const Parser *p) {
  const bool *given = p->given;
  if (given[OPT_STEPS] && given[OPT_EPOCHS]) {
    return usage_error(p, "give --steps or --epochs, not both");
  }
  if (given[OPT_LOAD] && given[OPT_RESUME]) {
    return usage_error(p, "give --load (parameters only) or --resume (the whole run), not both");
  }
  if (given[OPT_WORLD] != given[OPT_RANK]) {
    return usage_error(p, "--rank and --world go together");
  }
  if (given[OPT_RANK] && p->o->rank >= p->o->world) {
    return usage_error(p, "--rank %d is not below --world %d", (int)p->o->rank, (int)p->o->world);
  }
  return check_effect(p);
}

static void set_defaults(RtOptions *o, const RtProgramInfo *program) {
  bool infer_alone = program->has_infer && !program->has_train && !program->has_eval;
  *o = (RtOptions){.command = infer_alone ? RT_RUN_INFER : RT_RUN_DEFAULT,
                   .steps = program->steps,
                   .epochs = program->epochs,
                   .seed = program->seed,
                   .save = program->save,
                   .save_every = program->save_every,
                   .eval_every = program->eval_every,
                   .check_finite = true,
                   .deadline = 60,
                   .rank = -1,
                   .world = -1};
  o->data = calloc(program->ndata ? program->ndata : 1, sizeof *o->data);
  o->ndata = program->ndata;
  for (size_t i = 0; i < program->ndata && o->data; i++) {
    o->data[i] = (RtDataPath){program->data[i].name, program->data[i].path};
  }
}

int dtm_rt_options_parse(RtOptions *o, const RtProgramInfo *program, int argc, char **argv,
                         FILE *out, FILE *err) {
  set_defaults(o, program);
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  Parser p = {o, program, slash ? slash + 1 : argc > 0 ? argv[0] : "program", err, {0}};
  if (!o->data) {
    fputs("error: out of memory\n", err);
    return RT_DEVICE;
  }
  bool command_seen = false;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "-h") == 0) {
      word = "--help";
    }
    int result;
    if (word[0] != '-') {
      result = command_seen ? usage_error(&p, "'%s' after a command: options begin with --", word)
                            : parse_command(&p, word);
      command_seen = true;
    } else {
      const char *name = word + strspn(word, "-");
      size_t length = strcspn(name, "=");
      const char *value = name[length] ? name + length + 1 : NULL;
      int id = 0;
      while (id < OPT_COUNT &&
             (strlen(specs[id].name) != length || memcmp(specs[id].name, name, length) != 0)) {
        id++;
      }
      if (id < OPT_COUNT && name - word == 1) {
        return usage_error(&p, "options begin with two dashes: --%s", specs[id].name);
      }
      if (id == OPT_COUNT || name - word != 2) {
        return unknown_option(&p, word, length + (size_t)(name - word));
      }
      if (id == OPT_HELP) {
        options_print_help(out, p.binary, program);
        return RT_OK;
      }
      if (id == OPT_VERSION) {
        fprintf(out, "%s compiled by dtmc %s\n", program->source, DTM_VERSION);
        return RT_OK;
      }
      if (specs[id].argument && !value) {
        if (i + 1 >= argc) {
          return usage_error(&p, "--%s needs %s", specs[id].name, specs[id].argument);
        }
        value = argv[++i];
      } else if (!specs[id].argument && value) {
        return usage_error(&p, "--%s takes no value", specs[id].name);
      }
      if (value && !*value) {
        return usage_error(&p, "--%s needs %s, not an empty word", specs[id].name,
                           specs[id].argument);
      }
      p.given[id] = true;
      result = apply(&p, (OptionId)id, value);
    }
    if (result >= 0) {
      return result;
    }
  }
  return check_together(&p);
}

void dtm_rt_options_free(RtOptions *o) {
  free(o->data);
  o->data = NULL;
}

const char *dtm_rt_options_data(const RtOptions *o, size_t i) {
  return o->data[i].path;
}
