/* `dtmc check`: shapes and placements of programs on one or several meshes, without any device.
 *
 * A mesh of ones would hide placement errors, so each program is also elaborated with every size-1
 * dim taken as 2; an error that only shows then is a warning (an error with --strict).
 */
#include <string.h>

#include "autodiff/autodiff.h"
#include "driver/commands.h"
#include "driver/fixes.h"
#include "place/expand.h"
#include "place/store.h"
#include "spmd/pipeline.h"

static bool reported(const DiagSink *sink, const Diag *d) {
  for (uint32_t i = 0; i < sink->diags.len; i++) {
    const Diag *e = sink->diags.data[i];
    if (e->code == d->code && memcmp(&e->span, &d->span, sizeof d->span) == 0) return true;
  }
  return false;
}

/* What shows when dims of size 1 are taken as 2: all, or one alone. */
typedef struct Hidden {
  const char *dim; /* "tp"; of all "dp and tp" */
  DiagSink found;
} Hidden;

/* The dims that are each enough for an error to show; where none is, all that were taken as 2. */
static const char *guilty(Session *s, const Diag *d, const Hidden *all, const Hidden *each,
                          uint32_t n) {
  StrBuf sb;
  strbuf_init(&sb, &s->arena);
  for (uint32_t i = 0; i < n; i++)
    if (reported(&each[i].found, d)) strbuf_printf(&sb, "%s%s", sb.len ? " or " : "", each[i].dim);
  return sb.len ? sb.text : all->dim;
}

static void warn_hidden(Session *s, const Hidden *all, const Hidden *each, uint32_t n) {
  const DiagSink *hidden = &all->found;
  for (uint32_t i = 0; i < hidden->diags.len; i++) {
    const Diag *d = hidden->diags.data[i];
    if (d->severity != SEV_ERROR || reported(&s->sink, d)) continue;
    Diag *w = diag_emit(&s->sink, d->code, d->span, "would fail when %s > 1: %s",
                        guilty(s, d, all, each, n), d->message);
    if (w->severity == SEV_ERROR) {
      w->severity = SEV_WARNING;
      s->sink.errors--;
      s->sink.warnings++;
    }
    if (d->label) diag_label(&s->sink, w, "%s", d->label);
    for (uint32_t l = 0; l < d->lines.len; l++) VEC_PUSH(&s->arena, &w->lines, d->lines.data[l]);
  }
}

/* Lists the dims of size 1 and returns them as text: "tp", "dp and tp". NULL when there is none. */
static const char *unit_dims(Session *s, const Mesh *mesh, const char *ones[DTM_MAX_AXES],
                             uint32_t *n) {
  StrBuf sb;
  strbuf_init(&sb, &s->arena);
  *n = 0;
  for (uint32_t a = 0; mesh && a < mesh->naxes; a++) {
    if (mesh->size[a] != 1) continue;
    strbuf_printf(&sb, "%s%s", sb.len ? " and " : "", mesh->axis[a]);
    ones[(*n)++] = arena_strdup(&s->arena, mesh->axis[a]);
  }
  return *n ? sb.text : NULL;
}

/* What compiling would find behind elaboration: values without a gradient, and in a pipeline what
 * goes into no segment or a schedule that cannot run. */
static void check_gradients(Session *s, Program *program, DiagSink *sink) {
  Program train = *program; /* the other blocks have no gradients */
  for (BlockKind b = 0; b < BLOCK_COUNT; b++)
    if (b != BLOCK_TRAIN) train.block[b].graph = NULL;
  if (sink->errors || !compute_run(&train, sink)) return;
  expand_run(&train);
  store_run(&train);
  if (autodiff_check(&train, session_plans(s), sink)) pipeline_check(&train, sink);
}

/* Each elaboration has memory of its own: of the first one nothing but diagnostics is left when the
 * second begins. */
static void find_hidden(Session *s, SemaOptions *sema, const char *only, Hidden *h) {
  Arena arena;
  arena_init(&arena);
  diag_init(&h->found, &s->arena, &s->sources);
  sema->assume_two = true;
  sema->only_two = only;
  sema->config = NULL;
  check_gradients(s, sema_run(sema, &arena, &s->names, &s->sources, &h->found), &h->found);
  arena_free(&arena);
}

/* `ones` are the `n` dims of size 1, `dims` all of them as text. */
static void check_hidden(Session *s, SemaOptions *sema, const char *const *ones, uint32_t n,
                         const char *dims) {
  Hidden all = {.dim = dims}, each[DTM_MAX_AXES];
  find_hidden(s, sema, NULL, &all);
  uint32_t alone = all.found.errors && n > 1 ? n : 0;
  for (uint32_t i = 0; i < alone; i++) {
    each[i].dim = ones[i];
    find_hidden(s, sema, ones[i], &each[i]);
  }
  warn_hidden(s, &all, each, alone);
}

static bool check_one(Session *s, const char *path, const char *mesh) {
  SemaOptions sema;
  ConfigList config = {0};
  if (!session_sema_options(s, path, mesh, &sema)) return false;
  Arena arena;
  arena_init(&arena);
  sema.config = &config;
  Program *program = sema_run(&sema, &arena, &s->names, &s->sources, &s->sink);
  fixes_verify(s, &sema);
  if (option_given(&s->options, OPT_PRINT_CONFIG)) {
    StrBuf sb;
    strbuf_init(&sb, &s->arena);
    sema_print_config(&config, &sb);
    printf("%s%s\n", sb.text, program->world ? mesh_print(&s->arena, program->world) : "");
  }
  uint32_t n;
  const char *ones[DTM_MAX_AXES], *dims = unit_dims(s, program->world, ones, &n);
  check_gradients(s, program, &s->sink);
  arena_free(&arena);
  if (dims && !s->sink.errors) check_hidden(s, &sema, ones, n, dims);
  return true;
}

bool check_file(Session *s, const char *path) {
  const char *meshes = option_value(&s->options, OPT_MESH, "");
  for (const char *p = meshes;;) {
    const char *semicolon = strchr(p, ';');
    size_t n = semicolon ? (size_t)(semicolon - p) : strlen(p);
    if (!n && *meshes) {
      fprintf(stderr, "dtmc: --mesh '%s' has an empty mesh between its semicolons\n", meshes);
      return false;
    }
    if (!check_one(s, path, n ? arena_strndup(&s->arena, p, n) : NULL)) return false;
    if (!semicolon) return true;
    p = semicolon + 1;
  }
}

int command_check(Session *s) {
  const Options *o = &s->options;
  if (!o->operands.len) {
    fprintf(stderr, "dtmc: check needs a program: dtmc check FILE.dtm\n");
    return EXIT_USAGE;
  }
  for (uint32_t i = 0; i < o->operands.len; i++)
    if (!check_file(s, o->operands.data[i])) return EXIT_USAGE;
  if (option_given(o, OPT_DEPS) && !session_write_deps(s, o->operands.data[0])) return EXIT_ERRORS;
  return session_finish(s);
}
