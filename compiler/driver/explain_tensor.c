/* `dtmc explain tensor NAME FILE`: finds what the name means in the elaborated program, and has it
 * described.
 *
 * Names are those of parameters, buffers, data sources and `let` values, with the path of the
 * instance they belong to; a tail of whole components will do where it is clear, and the one model
 * of a program may lead. What has the same name, kind and type is one thing, however often it is
 * made; things that share a name are told apart by a number: h#2.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "driver/commands.h"
#include "driver/fixes.h"
#include "ir/graph.h"
#include "report/cut.h"

typedef struct Thing {
  const char *name, *what;
  const TensorType *type;
  bool loaded;
  VEC(const char *) places;
  uint32_t next; /* index + 1 of another thing of this name */
} Thing;
typedef struct ThingList {
  Thing *data;
  uint32_t len, cap;
  NameMap by_name; /* index + 1 of the latest of the name */
} ThingList;

enum { MAX_PLACES = 4, NEAREST = 5 };

static void add_place(Session *s, Thing *t, Span span, const char *block) {
  const char *where = span_print(&s->arena, &s->sources, span);
  const char *place = block ? arena_printf(&s->arena, "%s, in %s", where, block) : where;
  for (uint32_t i = 0; i < t->places.len; i++)
    if (strcmp(t->places.data[i], place) == 0) return;
  if (t->places.len < MAX_PLACES)
    VEC_PUSH(&s->arena, &t->places, place);
  else if (t->places.len == MAX_PLACES)
    VEC_PUSH(&s->arena, &t->places, "more places");
}

static void add_thing(Session *s, ThingList *list, Thing thing, Span span, const char *block) {
  thing.name = intern(&s->names, thing.name);
  thing.next = (uint32_t)(uintptr_t)name_map_get(&list->by_name, thing.name);
  for (uint32_t i = thing.next; i; i = list->data[i - 1].next) {
    Thing *t = &list->data[i - 1];
    if (strcmp(t->what, thing.what) != 0 || !type_equal(t->type, thing.type)) continue;
    add_place(s, t, span, block);
    return;
  }
  VEC_PUSH(&s->arena, list, thing);
  name_map_put(&s->arena, &list->by_name, thing.name, (void *)(uintptr_t)list->len);
  add_place(s, &list->data[list->len - 1], span, block);
}

/* Whether `full` is `name`, or ends in it at the border of a component. */
static bool ends_in(const char *full, const char *name) {
  size_t n = strlen(full), m = strlen(name);
  return m <= n && strcmp(full + n - m, name) == 0 && (m == n || full[n - m - 1] == '.');
}

/* What a name that is asked for may be; everything when it is NULL. */
static bool wanted(const char *full, const char *name) {
  return !name || ends_in(full, name);
}

static void collect_vars(Session *s, const Program *p, const char *name, ThingList *out) {
  for (uint32_t v = 0; v < p->vars.len; v++) {
    const Var *var = &p->vars.data[v];
    if (!wanted(var->name, name)) continue;
    Thing t = {.name = var->name,
               .what = var->kind != VAR_PARAM ? "buffer" : "parameter",
               .type = &var->type,
               .loaded = var->kind != VAR_STATE};
    add_thing(s, out, t, var->span, NULL);
  }
}

static void collect_block(Session *s, const ProgramBlock *block, const char *name, ThingList *out) {
  const Graph *g = block->graph;
  if (!g) return;
  for (uint32_t i = 0; i < block->data.len; i++) {
    const DataSource *d = &block->data.data[i];
    if (source_is_made(d) || !wanted(d->name, name)) continue;
    Thing t = {.name = d->name, .what = "data", .type = &d->type};
    add_thing(s, out, t, d->span, g->name);
  }
  for (ValueId id = 1; id < g->values.len; id++) {
    const Value *v = graph_value(g, id);
    const Node *n = graph_node(g, v->node);
    if (!v->name || n->op == OP_INPUT || n->op == OP_READ) continue;
    const char *path = g->scopes.data[v->name_scope].path;
    const char *full = *path ? arena_printf(&s->arena, "%s.%s", path, v->name) : v->name;
    if (!wanted(full, name)) continue;
    Thing t = {.name = full, .what = "value", .type = &v->type};
    add_thing(s, out, t, n->span, g->name);
  }
}

static void collect(Session *s, const Program *p, const char *name, ThingList *out) {
  collect_vars(s, p, name, out);
  for (int b = 0; b < BLOCK_COUNT; b++)
    if (b != BLOCK_INIT) collect_block(s, &p->block[b], name, out);
}

/* Where some things have exactly the name, the others are not meant. */
static void keep_exact(ThingList *list, const char *name) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < list->len; i++)
    if (strcmp(list->data[i].name, name) == 0) kept++;
  if (!kept) return;
  kept = 0;
  for (uint32_t i = 0; i < list->len; i++)
    if (strcmp(list->data[i].name, name) == 0) list->data[kept++] = list->data[i];
  list->len = kept;
}

static void find(Session *s, const Program *p, const char *name, ThingList *out) {
  collect(s, p, name, out);
  if (!out->len && p->model) {
    size_t n = strlen(p->model);
    if (strncmp(name, p->model, n) == 0 && name[n] == '.') {
      name += n + 1;
      collect(s, p, name, out);
    }
  }
  keep_exact(out, name);
}

static void print_thing(Session *s, FILE *to, const Thing *t, const char *number, int width) {
  char name[256];
  snprintf(name, sizeof name, "%s%s", t->name, number);
  fprintf(to, "  %-*s  %-9s  %s", width, name, t->what, type_print(&s->arena, t->type));
  if (t->places.len) fprintf(to, "  %s", t->places.data[0]);
  fputc('\n', to);
}

static int widest(const ThingList *list) {
  size_t width = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    size_t n = strlen(list->data[i].name);
    if (n > width) width = n;
  }
  return width > 60 ? 60 : (int)width;
}

/* Whether `name` is some whole parts of a name, between dots. */
static bool passes_through(const char *full, const char *name) {
  size_t n = strlen(name);
  for (const char *p = full; (p = strstr(p, name)); p++)
    if ((p == full || p[-1] == '.') && (p[n] == '.' || !p[n])) return true;
  return false;
}

static int report_unknown(Session *s, const Program *p, const char *name) {
  ThingList all = {0};
  collect(s, p, NULL, &all);
  const char *nearest[NEAREST] = {NULL};
  unsigned distance[NEAREST];
  for (uint32_t i = 0; i < all.len; i++) {
    const char *full = all.data[i].name, *tail = strrchr(full, '.');
    unsigned limit = (unsigned)strlen(name) / 2 + 1, d = edit_distance(name, full, limit);
    if (passes_through(full, name)) d = 0; /* "fc1" is a module, and "m.fc1.weight" in it */
    if (tail) {                            /* "weigth" is near "m.fc1.weight" */
      unsigned e = edit_distance(name, tail + 1, limit);
      if (e < d) d = e;
    }
    if (d > limit) continue;
    for (int k = 0; k < NEAREST; k++) {
      if (nearest[k] && strcmp(nearest[k], full) == 0) break;
      if (nearest[k] && distance[k] <= d) continue;
      memmove(&nearest[k + 1], &nearest[k], sizeof *nearest * (size_t)(NEAREST - 1 - k));
      memmove(&distance[k + 1], &distance[k], sizeof *distance * (size_t)(NEAREST - 1 - k));
      nearest[k] = full;
      distance[k] = d;
      break;
    }
  }
  fprintf(stderr, "dtmc: %s has no tensor %s", p->path, name);
  for (int k = 0; k < NEAREST && nearest[k]; k++)
    fprintf(stderr, "%s%s", k ? ", " : "; near it: ", nearest[k]);
  fprintf(stderr, "; dtmc explain tensor --list %s lists them\n", p->path);
  return EXIT_USAGE;
}

static int report_ambiguous(Session *s, const ThingList *found, const char *name) {
  bool one_name = true;
  for (uint32_t i = 1; i < found->len; i++)
    one_name &= strcmp(found->data[i].name, found->data[0].name) == 0;
  fprintf(stderr, "dtmc: %s may be any of %u tensors; name one of\n", name, found->len);
  for (uint32_t i = 0; i < found->len; i++)
    print_thing(s, stderr, &found->data[i], one_name ? arena_printf(&s->arena, "#%u", i + 1) : "",
                widest(found) + 3);
  return EXIT_USAGE;
}

static int list_tensors(Session *s, const Program *p) {
  ThingList all = {0};
  collect(s, p, NULL, &all);
  for (uint32_t i = 0; i < all.len; i++) print_thing(s, stdout, &all.data[i], "", widest(&all));
  return EXIT_OK;
}

/* "h#2": the number, 0 when there is none; *name gets what stands before it. */
static unsigned long take_number(Session *s, const char **name) {
  const char *sign = strrchr(*name, '#');
  char *end;
  unsigned long n = sign ? strtoul(sign + 1, &end, 10) : 0;
  if (!sign || *end || n == 0) return 0;
  *name = arena_strndup(&s->arena, *name, (size_t)(sign - *name));
  return n;
}

/* Columns of the terminal, or as COLUMNS says, or 80. */
static uint32_t output_width(bool terminal) {
  enum { USUAL = 80, LEAST = 20, MOST = 400 };
  struct winsize size;
  const char *given = getenv("COLUMNS");
  long n = given ? strtol(given, NULL, 10) : 0;
  if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) n = size.ws_col;
  return n <= 0 ? USUAL : n < LEAST ? LEAST : n > MOST ? MOST : (uint32_t)n;
}

static int describe(Session *s, const Program *p, const Thing *t) {
  TensorType type = *t->type;
  if (!type.mesh) type.mesh = p->world; /* a constant: where it lies in the end */
  const Mesh *mesh = type.mesh;
  const char *sizes = mesh_print(&s->arena, mesh);
  TensorReport r = {
      .name = t->name,
      .what = t->what,
      .type = &type,
      .loaded = t->loaded,
      .mesh = mesh == p->world ? sizes : arena_printf(&s->arena, "%s: %s", mesh->name, sizes)};
  for (uint32_t i = 0; i < t->places.len; i++) VEC_PUSH(&s->arena, &r.places, t->places.data[i]);
  const char *format = option_value(&s->options, OPT_FORMAT, "text");
  const char *to = option_value(&s->options, OPT_OUTPUT, "-");
  bool standard = strcmp(to, "-") == 0;
  StrBuf out;
  strbuf_init(&out, &s->arena);
  if (strcmp(format, "svg") == 0)
    report_svg(&s->arena, &out, &r);
  else if (strcmp(format, "json") == 0)
    report_json(&s->arena, &out, &r);
  else
    report_text(&s->arena, &out, &r, output_width(standard && isatty(STDOUT_FILENO)),
                standard && session_color(s, STDOUT_FILENO));
  if (!session_may_write(s, to) || !session_write_file(s, to, out.text, out.len))
    return EXIT_ERRORS;
  return EXIT_OK;
}

int explain_tensor(Session *s, const char *name, const char *path) {
  SemaOptions sema;
  if (!session_sema_options(s, path, option_value(&s->options, OPT_MESH, NULL), &sema))
    return EXIT_USAGE;
  const Program *p = sema_run(&sema, &s->arena, &s->names, &s->sources, &s->sink);
  fixes_verify(s, &sema);
  if (s->sink.errors) return session_finish(s);
  if (!name) return list_tensors(s, p);
  ThingList found = {0};
  find(s, p, name, &found);
  unsigned long number = found.len ? 0 : take_number(s, &name);
  if (number) find(s, p, name, &found);
  if (!found.len) return report_unknown(s, p, name);
  if (number > found.len) {
    fprintf(stderr, "dtmc: there are %u tensors named %s, no number %lu\n", found.len, name,
            number);
    return EXIT_USAGE;
  }
  if (!number && found.len > 1) return report_ambiguous(s, &found, name);
  return describe(s, p, &found.data[number ? number - 1 : 0]);
}
