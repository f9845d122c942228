/* `dtmc verify`: a program on the mesh and the target asked for does what it does on one rank.
 *
 * Both are compiled and run, on the program's own data, and what they log and save is compared: of
 * training each step's losses and metrics, and behind the first step what the optimizer made of the
 * gradients; of eval its metrics; of infer what it prints. Random numbers belong to the element of
 * the whole tensor, so dropout and initialisation are the same on both. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/agreement.h"
#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/private_folder.h"

enum { DEFAULT_STEPS = 5 };

/* How far rounding lets a mesh be from one rank, for programs whose narrowest element type this is.
 *
 * A sum of another order is off by some units of the last place, which the steps of an optimizer
 * make more: 1e-10 and 1e-5 leave room for that, and nothing that is wrong is as near. A value that
 * a mesh rounds to 16 bits elsewhere than one rank does is off by half a unit; on its way through a
 * few layers and back a cotangent meets some fifty such places, and the worst of many elements is
 * four times as far as most. Losses stay as near as grammar/README.md says. What cancels, such as
 * the gradient of a bias that a softmax takes no notice of, is rounding and nothing else, by some
 * units of what else there is. */
static const struct {
  DType type;
  Tolerance tolerance;
} tolerances[] = {
    {DT_F64, {1e-10, 1e-10, 0x1p-48}},
    {DT_F32, {1e-5, 1e-5, 0x1p-19}},
    {DT_F16, {1.0 / 1024, 1.0 / 128, 0x1p-11}},
    {DT_BF16, {1.0 / 128, 1.0 / 16, 0x1p-8}},
};
enum { NTOLERANCES = sizeof tolerances / sizeof *tolerances };

/* A program that is compiled. */
typedef struct Build {
  Session session;
  Compilation c;
  const char *who; /* "one rank", "dp=2,tp=2" */
} Build;

typedef struct Verify {
  Arena *arena;
  const char *path, *folder;
  Build one, asked;
  bool widen;
  int64_t steps;
  DType narrowest;
  Agreement agreement;
} Verify;

static int build(Verify *v, Build *b, const Options *options, const char *mesh, const char *name) {
  b->session = (Session){.options = *options};
  b->c = (Compilation){.session = &b->session,
                       .output = arena_printf(v->arena, "%s/%s", v->folder, name)};
  arena_init(&b->session.arena);
  if (!session_init(&b->session) || !compilation_target(&b->c)) return EXIT_USAGE;
  strbuf_init(&b->c.emitted, &b->session.arena);
  b->c.plans = session_plans(&b->session);
  if (!session_sema_options(&b->session, v->path, mesh, &b->c.sema)) return EXIT_USAGE;
  b->c.sema.widen = v->widen;
  return pipeline_run(&b->c, STAGE_EXECUTABLE) ? EXIT_OK : EXIT_ERRORS;
}

/* "dp=2,tp=2", without dims of size 1 unless `ones`, which writes all as 1. */
static const char *mesh_text(Verify *v, const Mesh *mesh, bool ones) {
  StrBuf sb;
  strbuf_init(&sb, v->arena);
  for (uint32_t a = 0; mesh && a < mesh->naxes; a++)
    if (ones || mesh->size[a] > 1)
      strbuf_printf(&sb, "%s%s=%lld", sb.len ? "," : "", mesh->axis[a],
                    ones ? 1LL : (long long)mesh->size[a]);
  return sb.len ? sb.text : NULL;
}

/* Options that may make no difference to the result, which is what is asked: one rank goes without.
 */
static const OptionId choices[] = {OPT_TARGET, OPT_LOAD_CUDA, OPT_NO_FUSE, OPT_NO_REUSE,
                                   OPT_NO_PREFETCH};
enum { NCHOICES = sizeof choices / sizeof *choices };

/* As asked; in f64, or as it is where it does not compile so. */
static int build_asked(Verify *v, const Options *options) {
  Build *b = &v->asked;
  const char *mesh = option_value(options, OPT_MESH, NULL);
  v->widen = !option_given(options, OPT_NO_WIDEN);
  int code = build(v, b, options, mesh, "asked");
  if (code == EXIT_ERRORS && v->widen) {
    v->widen = false;
    code = build(v, b, options, mesh, "asked");
  }
  if (code == EXIT_USAGE) return code;
  int found = session_finish(&b->session);
  if (code != EXIT_OK || found != EXIT_OK) return EXIT_ERRORS;
  bool differs = b->c.for_cuda || (b->c.program->world && b->c.program->world->nranks > 1);
  for (int i = 0; i < NCHOICES; i++) differs = differs || option_given(options, choices[i]);
  const char *text = mesh_text(v, b->c.program->world, false);
  b->who = arena_printf(v->arena, "%s%s",
                        text            ? text
                        : b->c.for_cuda ? "one rank"
                                        : "one rank as asked",
                        b->c.for_cuda ? " on cuda" : "");
  if (differs) return EXIT_OK;
  fprintf(stderr,
          "dtmc: %s is on one rank as it stands: name the mesh to compare with one rank, "
          "--mesh DIM=N\n",
          v->path);
  return EXIT_USAGE;
}

static int build_one(Verify *v, const Options *options) {
  Options plain = *options;
  for (int i = 0; i < NCHOICES; i++) plain.values[choices[i]] = (StringList){0};
  plain.values[OPT_RANKS] = plain.values[OPT_MESH] = (StringList){0};
  v->one.who = "one rank";
  int code = build(v, &v->one, &plain, mesh_text(v, v->asked.c.program->world, true), "one");
  if (code == EXIT_OK) return code;
  session_finish(&v->one.session);
  fprintf(stderr, "dtmc: %s does not compile for one rank: there is nothing to compare with\n",
          v->path);
  return EXIT_ERRORS;
}

static bool has(const Verify *v, BlockKind block) {
  return v->asked.c.program->block[block].graph != NULL;
}

/* Rows of a whole batch. */
static int64_t rows(const ProgramBlock *b, const DataSource *d) {
  return d->type.shape[0] * (b->settings.microbatches > 1 ? b->settings.microbatches : 1);
}

/* The data of which a block takes batches of other shapes on one rank, as one whose rows are so
 * many times the size of a mesh dim does: what it computes is something else there. NULL when all
 * is alike. */
static const DataSource *other_data(const Verify *v, BlockKind block) {
  const ProgramBlock *asked = &v->asked.c.program->block[block];
  const ProgramBlock *one = &v->one.c.program->block[block];
  for (uint32_t i = 0; i < asked->data.len; i++) {
    const DataSource *d = &asked->data.data[i], *e = i < one->data.len ? &one->data.data[i] : NULL;
    bool same =
        e && d->type.rank == e->type.rank && (!d->type.rank || rows(asked, d) == rows(one, e));
    for (uint32_t k = 1; same && k < d->type.rank; k++) same = d->type.shape[k] == e->type.shape[k];
    if (!same) return d;
  }
  return NULL;
}

static bool compares(const Verify *v, BlockKind block) {
  return has(v, block) && !other_data(v, block);
}

static int rounds_as(DType type) {
  for (int i = 0; i < NTOLERANCES; i++)
    if (tolerances[i].type == type) return i;
  return NTOLERANCES;
}

/* Gradients in f16 overflow in steps that depend on the mesh, and such a step changes nothing. */
static bool skips_steps(const Verify *v) {
  return !v->widen && has(v, BLOCK_TRAIN) &&
         v->asked.c.program->block[BLOCK_TRAIN].settings.compute == DT_F16;
}

/* The type that decides what rounding can do; false, after a message, when none of the bounds is of
 * it. */
static bool find_tolerance(Verify *v) {
  int last = 0;
  if (skips_steps(v)) {
    fprintf(stderr,
            "dtmc: %s computes in f16, where the mesh decides which first steps overflow and are "
            "skipped: not compared\n",
            v->path);
    return false;
  }
  for (int b = 0; b < BLOCK_COUNT; b++) {
    const Graph *g = v->asked.c.program->block[b].graph;
    for (uint32_t i = 1; g && i < g->values.len; i++) {
      DType t = g->values.data[i].type.dtype;
      if (v->widen && t == DT_F32) continue; /* the compiler's own: factors that are exact */
      int at = dtype_is_float(t) ? rounds_as(t) : 0;
      if (at > last) last = at;
      if (at < NTOLERANCES) continue;
      fprintf(stderr,
              "dtmc: %s has values of %s, and how far their rounding goes is not known: "
              "not compared\n",
              v->path, dtype_name(t));
      return false;
    }
  }
  v->narrowest = tolerances[last].type;
  v->agreement = (Agreement){.arena = v->arena, .tolerance = tolerances[last].tolerance};
  return true;
}

static void start(const char *const *argv, const char *log, pid_t parent) {
  int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_ERRORS); /* it died before we asked to be told */
  if (in >= 0 && out >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
    execv(argv[0], (char *const *)(uintptr_t)argv);
  fprintf(stderr, "dtmc: cannot run %s: %s\n", argv[0], strerror(errno));
  _exit(EXIT_INTERNAL);
}

/* Runs a program with these words and gives its log; NULL after a message. What the program has to
 * say of a failure it says itself. */
static const char *run(Verify *v, const Build *b, const char *const *words) {
  enum { MOST = 16 };
  const char *argv[MOST] = {b->c.output}, *log = arena_printf(v->arena, "%s.log", b->c.output);
  int n = 1, status = 0;
  for (; words[n - 1]; n++) argv[n] = words[n - 1];
  argv[n++] = "--log=json";
  argv[n] = NULL;
  pid_t self = getpid(), pid = fork();
  if (pid == 0) start(argv, log, self);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pid < 0 || status) {
    const char *how = pid < 0 ? "did not start"
                      : WIFEXITED(status)
                          ? arena_printf(v->arena, "ended with exit code %d", WEXITSTATUS(status))
                          : arena_printf(v->arena, "was ended by signal %d", WTERMSIG(status));
    fprintf(stderr, "dtmc: %s on %s %s: not compared\n", v->path, b->who, how);
    return NULL;
  }
  Sources logs; /* not a source of the program */
  sources_init(&logs, v->arena);
  uint32_t id = sources_read(&logs, log);
  if (!id) fprintf(stderr, "dtmc: cannot read %s: %s\n", log, strerror(errno));
  return id ? sources_get(&logs, id)->text : NULL;
}

/* Where a program's checkpoint is. */
static const char *saved(Verify *v, const Build *b) {
  return arena_printf(v->arena, "%s.safetensors", b->c.output);
}

/* One run of both, whose logs are compared; the word * stands for the checkpoint of each. */
static bool run_both(Verify *v, const char *const *words) {
  enum { MOST = 12 };
  const Build *both[] = {&v->one, &v->asked};
  const char *log[2], *own[MOST];
  for (int i = 0; i < 2; i++) {
    int n = 0;
    for (; words[n]; n++) own[n] = strcmp(words[n], "*") == 0 ? saved(v, both[i]) : words[n];
    own[n] = NULL;
    if (!(log[i] = run(v, both[i], own))) return false;
  }
  const char *wrong = agreement_logs(&v->agreement, log[0], log[1]);
  if (wrong) fprintf(stderr, "dtmc: %s: %s\n", v->path, wrong);
  return !wrong;
}

static bool compare_tensors(Verify *v) {
  SavedTensors one = {0}, asked = {0};
  const char *wrong = tensors_read(v->arena, saved(v, &v->one), &one);
  if (!wrong) wrong = tensors_read(v->arena, saved(v, &v->asked), &asked);
  if (wrong) fprintf(stderr, "dtmc: %s\n", wrong);
  if (!wrong) agreement_tensors(&v->agreement, &one, &asked, 1);
  return !wrong;
}

static bool agrees(const Verify *v) {
  return v->agreement.found.len == 0;
}

/* The first step alone, then on from there. False when something could not be run or read. */
static bool train(Verify *v) {
  const char *steps = arena_printf(v->arena, "%lld", (long long)v->steps);
  const char *const first[] = {"train", "--steps", "1", "--save", "*", "--save-every", "0", NULL};
  const char *const rest[] = {"train", "--resume",     "*", "--steps", steps, "--save",
                              "*",     "--save-every", "0", NULL};
  if (!run_both(v, first) || !compare_tensors(v)) return false;
  return !agrees(v) || v->steps == 1 || run_both(v, rest);
}

/* A block on what was trained, or on what is declared. */
static bool run_block(Verify *v, const char *block) {
  const char *const words[] = {block, compares(v, BLOCK_TRAIN) ? "--resume" : NULL, "*", NULL};
  return !agrees(v) || run_both(v, words);
}

/* "; infer is not compared: ...". */
static void put_left_out(const Verify *v, StrBuf *out) {
  for (BlockKind b = BLOCK_TRAIN; b < BLOCK_COUNT; b++) {
    const DataSource *d = has(v, b) ? other_data(v, b) : NULL;
    if (d)
      strbuf_printf(out,
                    "; %s is not compared: batches of its data %s are of another size on one rank",
                    block_name(b), d->name);
  }
}

static int tell(Verify *v) {
  const Agreement *a = &v->agreement;
  StrBuf sb;
  strbuf_init(&sb, v->arena);
  if (!agrees(v)) {
    strbuf_printf(&sb, "%s: %s does not agree with one rank\n", v->path, v->asked.who);
    agreement_print(a, v->asked.who, &sb);
    fputs(sb.text, stderr);
    return EXIT_ERRORS;
  }
  if (!a->values && !a->tensors) {
    put_left_out(v, &sb);
    fprintf(stderr, "dtmc: %s has nothing to compare%s\n", v->path,
            sb.len ? sb.text : ": it trains nothing and prints nothing");
    return EXIT_ERRORS;
  }
  strbuf_printf(&sb, "%s: %s agrees with one rank:", v->path, v->asked.who);
  if (compares(v, BLOCK_TRAIN))
    strbuf_printf(&sb, " %lld step%s,", (long long)v->steps, v->steps == 1 ? "" : "s");
  if (a->tensors) strbuf_printf(&sb, " %u tensor%s,", a->tensors, a->tensors == 1 ? "" : "s");
  if (compares(v, BLOCK_EVAL)) strbuf_puts(&sb, " eval,");
  if (compares(v, BLOCK_INFER)) strbuf_puts(&sb, " infer,");
  if (a->numbers)
    strbuf_printf(&sb, " largest difference %.2g in %s", a->largest, dtype_name(v->narrowest));
  else
    strbuf_puts(&sb, " to the six digits that are printed");
  put_left_out(v, &sb);
  puts(sb.text);
  return EXIT_OK;
}

static int verify_in(Session *s, const char *folder) {
  Verify *v = ARENA_NEW(&s->arena, Verify);
  v->arena = &s->arena;
  v->path = s->options.operands.data[0];
  v->folder = folder;
  v->steps = strtoll(option_value(&s->options, OPT_STEPS, "0"), NULL, 10);
  if (!v->steps) v->steps = DEFAULT_STEPS;
  int code = build_asked(v, &s->options);
  if (code == EXIT_OK && !find_tolerance(v)) code = EXIT_ERRORS;
  if (code == EXIT_OK) code = build_one(v, &s->options);
  if (code != EXIT_OK) return code;
  if ((compares(v, BLOCK_TRAIN) && !train(v)) ||
      (compares(v, BLOCK_EVAL) && !run_block(v, "eval")) ||
      (compares(v, BLOCK_INFER) && !run_block(v, "infer")))
    return EXIT_ERRORS;
  return tell(v);
}

int command_verify(Session *s) {
  const Options *o = &s->options;
  if (o->operands.len != 1) {
    fprintf(stderr, "dtmc: verify takes one program: dtmc verify FILE.dtm --mesh DIM=N\n");
    return EXIT_USAGE;
  }
  const char *steps = option_value(o, OPT_STEPS, NULL);
  char *end;
  if (steps && (strtoll(steps, &end, 10) < 1 || *end)) {
    fprintf(stderr, "dtmc: --steps does not take '%s'; it takes a number from 1\n", steps);
    return EXIT_USAGE;
  }
  return private_folder_run(s, verify_in);
}
