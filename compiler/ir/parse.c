/* Reads the text form of a program back: see text.h.
 *
 * A cursor over the text with one-token helpers. The first fault leaves through `fail` (longjmp),
 * so the callers need no checks in between; all memory is in the arena. */
#include "ir/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parser {
  Arena *arena;
  Interner *names;
  Sources *sources;
  const char *text, *at;
  const char *error;
  jmp_buf fail;
  Program *program;
} Parser;

static _Noreturn void fail(Parser *p, const char *what) {
  uint32_t line = 1;
  for (const char *s = p->text; s < p->at; s++) line += *s == '\n';
  int shown = (int)strcspn(p->at, "\n");
  p->error = arena_printf(p->arena, "line %" PRIu32 ": %s at \"%.*s\"", line, what,
                          shown < 40 ? shown : 40, p->at);
  longjmp(p->fail, 1);
}

static void skip_blank(Parser *p) {
  while (*p->at == ' ') p->at++;
}

static void skip_lines(Parser *p) {
  while (*p->at == ' ' || *p->at == '\n') p->at++;
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* Takes `word` when it stands here. A word that is letters must end here. */
static bool accept(Parser *p, const char *word) {
  skip_blank(p);
  size_t n = strlen(word);
  if (strncmp(p->at, word, n) != 0) return false;
  if (is_word(word[n - 1]) && is_word(p->at[n])) return false;
  p->at += n;
  return true;
}

static void expect(Parser *p, const char *word) {
  if (!accept(p, word)) fail(p, arena_printf(p->arena, "expected '%s'", word));
}

static const char *word(Parser *p) {
  skip_blank(p);
  const char *start = p->at;
  while (is_word(*p->at)) p->at++;
  if (p->at == start) fail(p, "expected a word");
  return intern_n(p->names, start, (size_t)(p->at - start));
}

static int64_t integer(Parser *p) {
  skip_blank(p);
  char *end;
  errno = 0;
  int64_t v = strtoll(p->at, &end, 10);
  if (end == p->at || errno) fail(p, "expected an integer");
  p->at = end;
  return v;
}

static uint64_t natural(Parser *p) {
  skip_blank(p);
  char *end;
  errno = 0;
  uint64_t v = strtoull(p->at, &end, 10);
  if (!isdigit((unsigned char)*p->at) || errno) fail(p, "expected a number");
  p->at = end;
  return v;
}

static uint32_t index32(Parser *p) {
  uint64_t v = natural(p);
  if (v > UINT32_MAX) fail(p, "number too large");
  return (uint32_t)v;
}

static double real(Parser *p) {
  skip_blank(p);
  char *end;
  double v = strtod(p->at, &end);
  if (end == p->at) fail(p, "expected a number");
  p->at = end;
  return v;
}

static const char *quoted(Parser *p) {
  skip_blank(p);
  if (*p->at != '"') fail(p, "expected a string");
  StrBuf sb;
  strbuf_init(&sb, p->arena);
  for (p->at++; *p->at != '"'; p->at++) {
    if (!*p->at || *p->at == '\n') fail(p, "string without an end");
    if (*p->at == '\\') {
      p->at++;
      strbuf_putc(&sb, *p->at == 'n' ? '\n' : *p->at);
    } else
      strbuf_putc(&sb, *p->at);
  }
  p->at++;
  return intern(p->names, sb.text);
}

static void end_line(Parser *p) {
  skip_blank(p);
  if (*p->at != '\n') fail(p, "unexpected text");
  skip_lines(p);
}

/* --- places ------------------------------------------------------------------------------------
 */

static uint32_t file_named(Parser *p, const char *path) {
  for (uint32_t i = 0; i < p->sources->files.len; i++)
    if (strcmp(p->sources->files.data[i]->path, path) == 0) return i + 1;
  return 0;
}

/* "path:line:column" up to the scope or the end of the line; false when there is none. */
static bool read_place(Parser *p, const char **path, uint32_t *line, uint32_t *column) {
  skip_blank(p);
  const char *end = p->at;
  while (*end && *end != '\n' && strncmp(end, "  #", 3) != 0) end++;
  const char *second = end;
  while (second > p->at && second[-1] != ':') second--;
  const char *first = second > p->at ? second - 1 : p->at;
  while (first > p->at && first[-1] != ':') first--;
  if (first <= p->at) return false;
  *path = intern_n(p->names, p->at, (size_t)(first - 1 - p->at));
  *line = (uint32_t)strtoul(first, NULL, 10);
  *column = (uint32_t)strtoul(second, NULL, 10);
  p->at = end;
  return true;
}

static Span place(Parser *p) {
  const char *path;
  uint32_t line, column;
  if (!read_place(p, &path, &line, &column)) return (Span){0};
  uint32_t id = file_named(p, path);
  const SourceFile *file = sources_get(p->sources, id);
  if (line < 1 || line > file->nlines || column < 1) fail(p, "no such line in the source file");
  uint32_t at = file->line_starts[line - 1];
  for (uint32_t c = 1; c < column; c++) {
    if (at >= file->size) fail(p, "no such column in the source file");
    do at++;
    while (at < file->size && ((unsigned char)file->text[at] & 0xc0) == 0x80);
  }
  return (Span){id, at, at};
}

static Span place_after_slashes(Parser *p) {
  return accept(p, "//") ? place(p) : (Span){0};
}

/* Every file that a place names must exist before places become offsets: enters those that
 * `sources` lacks, as blank lines that are long enough. */
static void enter_files(Parser *p) {
  typedef struct Size {
    const char *path;
    uint32_t lines, columns;
  } Size;
  VEC(Size) sizes = {0};
  for (const char *line = p->text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    const char *end = strchr(line, '\n'), *slashes = NULL;
    for (const char *s = line; (s = strstr(s, "// ")) && (!end || s < end); s += 3) slashes = s;
    if (!slashes) continue;
    p->at = slashes + 3;
    Size size;
    if (!read_place(p, &size.path, &size.lines, &size.columns)) continue;
    if (file_named(p, size.path)) continue;
    uint32_t i = 0;
    while (i < sizes.len && sizes.data[i].path != size.path) i++;
    if (i == sizes.len) VEC_PUSH(p->arena, &sizes, size);
    Size *known = &sizes.data[i];
    if (known->lines < size.lines) known->lines = size.lines;
    if (known->columns < size.columns) known->columns = size.columns;
  }
  for (uint32_t i = 0; i < sizes.len; i++) {
    uint32_t width = sizes.data[i].columns + 1, n = sizes.data[i].lines * width;
    char *blank = arena_alloc(p->arena, n + 1);
    memset(blank, ' ', n);
    for (uint32_t l = 1; l <= sizes.data[i].lines; l++) blank[l * width - 1] = '\n';
    sources_add(p->sources, sizes.data[i].path, blank, n);
  }
  p->at = p->text;
}

/* --- types and attributes ----------------------------------------------------------------------
 */

static const Mesh *mesh_named(Parser *p, const char *name) {
  for (uint32_t i = 0; i < p->program->meshes.len; i++)
    if (p->program->meshes.data[i]->name == name) return p->program->meshes.data[i];
  fail(p, arena_printf(p->arena, "unknown mesh '%s'", name));
}

static DType dtype(Parser *p) {
  DType t = dtype_by_name(word(p));
  if (!t) fail(p, "unknown element type");
  return t;
}

/* The mesh stands after the layout, so axis names are collected first. */
static TensorType type(Parser *p) {
  TensorType t = {.dtype = dtype(p)};
  const char *axes[DTM_MAX_DIMS][DTM_MAX_AXES];
  uint32_t naxes[DTM_MAX_DIMS] = {0}, npartial = 0;
  const char *partial[DTM_MAX_AXES];
  ReduceOp ops[DTM_MAX_AXES];
  expect(p, "[");
  while (!accept(p, "]")) {
    if (t.rank) expect(p, ",");
    if (t.rank == DTM_MAX_DIMS) fail(p, "too many dims");
    uint32_t d = t.rank++;
    t.shape[d] = integer(p);
    if (!accept(p, "@")) continue;
    if (!accept(p, "(")) {
      axes[d][naxes[d]++] = word(p);
      continue;
    }
    do {
      if (naxes[d] == DTM_MAX_AXES) fail(p, "too many axes");
      axes[d][naxes[d]++] = word(p);
    } while (accept(p, ","));
    expect(p, ")");
  }
  if (accept(p, "partial(")) {
    do {
      if (npartial == DTM_MAX_AXES) fail(p, "too many axes");
      partial[npartial] = word(p);
      ops[npartial] = accept(p, ":") ? reduce_op_by_name(word(p)) : REDUCE_SUM;
      if (!ops[npartial++]) fail(p, "unknown reduction");
    } while (accept(p, ","));
    expect(p, ")");
  }
  t.mesh = p->program->world;
  if (accept(p, "on")) t.mesh = accept(p, "none") ? NULL : mesh_named(p, quoted(p));
  for (uint32_t d = 0; d < t.rank; d++) {
    for (uint32_t i = 0; i < naxes[d]; i++) {
      int axis = t.mesh ? mesh_axis(t.mesh, axes[d][i]) : -1;
      if (axis < 0) fail(p, "unknown mesh dim");
      layout_set(&t.layout, t.mesh, (uint32_t)axis, PLACE_SHARD, d, REDUCE_NONE);
    }
  }
  for (uint32_t i = 0; i < npartial; i++) {
    int axis = t.mesh ? mesh_axis(t.mesh, partial[i]) : -1;
    if (axis < 0) fail(p, "unknown mesh dim");
    layout_set(&t.layout, t.mesh, (uint32_t)axis, PLACE_PARTIAL, 0, ops[i]);
  }
  return t;
}

static Attr attribute(Parser *p) {
  Attr a = {.key = attr_by_name(word(p))};
  if (!a.key) fail(p, "unknown attribute");
  expect(p, "=");
  switch (attr_kind(a.key)) {
  case ATTR_KIND_NONE:
    break;
  case ATTR_KIND_INT:
    a.as.i = integer(p);
    skip_blank(p);
    if (a.key == ATTR_VAR && *p->at == '"') quoted(p);
    break;
  case ATTR_KIND_BOOL:
    a.as.i = accept(p, "true");
    if (!a.as.i) expect(p, "false");
    break;
  case ATTR_KIND_DTYPE:
    a.as.i = dtype(p);
    break;
  case ATTR_KIND_FLOAT:
    a.as.f = real(p);
    break;
  case ATTR_KIND_STRING:
    a.as.s = quoted(p);
    break;
  case ATTR_KIND_TYPE: {
    TensorType *t = ARENA_NEW(p->arena, TensorType);
    *t = type(p);
    a.as.type = t;
    break;
  }
  case ATTR_KIND_INTS: {
    VEC(int64_t) ints = {0};
    expect(p, "[");
    while (!accept(p, "]")) {
      if (ints.len) expect(p, ",");
      VEC_PUSH(p->arena, &ints, integer(p));
    }
    a.as.ints.data = ints.data;
    a.as.ints.len = ints.len;
    break;
  }
  }
  return a;
}

/* --- graphs ------------------------------------------------------------------------------------
 */

static ValueId value_id(Parser *p, const Graph *g) {
  expect(p, "%");
  ValueId id = index32(p);
  if (id == 0 || id >= g->values.len) fail(p, "value is not defined before this line");
  return id;
}

static void node(Parser *p, Graph *g, uint8_t phase) {
  enum { MAX_RESULTS = 8 };
  TensorType results[MAX_RESULTS];
  const char *names[MAX_RESULTS] = {0};
  bool poisoned[MAX_RESULTS] = {0};
  uint32_t nresults = 0;
  skip_blank(p);
  if (*p->at == '%') {
    do {
      if (nresults == MAX_RESULTS) fail(p, "too many results");
      expect(p, "%");
      if (index32(p) != g->values.len + nresults) fail(p, "value ids must count up");
      if (!accept(p, ":")) {
        names[nresults] = word(p);
        expect(p, ":");
      }
      results[nresults] = type(p);
      poisoned[nresults++] = accept(p, "poisoned");
    } while (accept(p, ","));
    expect(p, "=");
  }
  const char *name = word(p);
  Op op = op_by_name(name);
  if (!op) fail(p, arena_printf(p->arena, "unknown operator '%s'", name));
  VEC(ValueId) operands = {0};
  expect(p, "(");
  while (!accept(p, ")")) {
    if (operands.len) expect(p, ",");
    VEC_PUSH(p->arena, &operands, value_id(p, g));
  }
  VEC(Attr) attrs = {0};
  if (accept(p, "{")) {
    do VEC_PUSH(p->arena, &attrs, attribute(p));
    while (accept(p, ","));
    expect(p, "}");
  }
  Span span = {0};
  uint32_t scope = 0;
  if (accept(p, "//")) {
    skip_blank(p);
    if (*p->at != '#') span = place(p);
    if (accept(p, "#")) {
      scope = index32(p);
      if (scope >= g->scopes.len) fail(p, "unknown scope");
      p->at += strcspn(p->at, "\n");
    }
  }
  end_line(p);
  NodeId id = graph_add(g, op, operands.data, operands.len, attrs.data, attrs.len, results,
                        nresults, span, scope);
  graph_node(g, id)->phase = phase;
  for (uint32_t i = 0; i < nresults; i++) {
    Value *v = graph_value(g, node_result(graph_node(g, id), i));
    v->name = names[i];
    v->poisoned = poisoned[i];
  }
}

static Graph *graph(Parser *p) {
  static const struct {
    const char *label;
    Phase phase;
  } phases[] = {{"forward:", PHASE_FORWARD},
                {"backward:", PHASE_BACKWARD},
                {"reduce:", PHASE_REDUCE},
                {"optimizer:", PHASE_OPTIMIZER}};
  enum { NPHASES = sizeof phases / sizeof *phases };
  expect(p, "graph");
  Graph *g = graph_new(p->arena, word(p));
  expect(p, "{");
  end_line(p);
  while (accept(p, "scope")) {
    if (index32(p) != g->scopes.len) fail(p, "scopes must count up");
    expect(p, "in");
    uint32_t parent = index32(p);
    if (parent >= g->scopes.len) fail(p, "unknown scope");
    const char *path = quoted(p), *what = quoted(p);
    graph_add_scope(g, parent, path, what, place_after_slashes(p));
    end_line(p);
  }
  uint8_t phase = PHASE_FORWARD;
  while (!accept(p, "}")) {
    int i = 0;
    while (i < NPHASES && !accept(p, phases[i].label)) i++;
    if (i == NPHASES) {
      node(p, g, phase);
      continue;
    }
    phase = (uint8_t)phases[i].phase;
    end_line(p);
  }
  end_line(p);
  return g;
}

/* --- programs ----------------------------------------------------------------------------------
 */

static const Mesh *mesh(Parser *p) {
  expect(p, "mesh");
  Mesh *m = ARENA_NEW(p->arena, Mesh);
  m->name = quoted(p);
  m->nranks = 1;
  expect(p, "(");
  while (!accept(p, ")")) {
    if (m->naxes) expect(p, ",");
    if (m->naxes == DTM_MAX_AXES) fail(p, "too many axes");
    m->axis[m->naxes] = word(p);
    expect(p, "=");
    m->size[m->naxes] = integer(p);
    if (m->size[m->naxes] < 1) fail(p, "a mesh dim has at least one rank");
    m->nranks *= m->size[m->naxes++];
  }
  if (accept(p, "ranks [")) {
    VEC(int64_t) ranks = {0};
    do VEC_PUSH(p->arena, &ranks, integer(p));
    while (accept(p, ","));
    expect(p, "]");
    if (ranks.len != m->nranks) fail(p, "the rank list has another length than the mesh");
    m->ranks = ranks.data;
  }
  end_line(p);
  VEC_PUSH(p->arena, &p->program->meshes, m);
  return m;
}

static void var(Parser *p) {
  static const char *const kinds[] = {"?", "param", "buffer", "optimizer", "accumulator"};
  Var v = {.chunks = 1};
  if (index32(p) != p->program->vars.len) fail(p, "variables must count up");
  int kind = VAR_PARAM;
  while (kind <= VAR_ACCUMULATOR && !accept(p, kinds[kind])) kind++;
  if (kind > VAR_ACCUMULATOR) fail(p, "unknown kind of variable");
  v.kind = (VarKind)kind;
  v.name = quoted(p);
  expect(p, ":");
  v.type = type(p);
  if (accept(p, "of")) v.param = index32(p);
  if (accept(p, "foreign")) v.foreign_name = quoted(p);
  v.transposed = accept(p, "transposed");
  if (accept(p, "chunks")) v.chunks = integer(p);
  v.span = place_after_slashes(p);
  end_line(p);
  VEC_PUSH(p->arena, &p->program->vars, v);
}

static void data(Parser *p, ProgramBlock *b) {
  DataSource d = {.scale = 1};
  d.name = quoted(p);
  d.reader = quoted(p);
  d.path = quoted(p);
  expect(p, ":");
  d.type = type(p);
  if (accept(p, "stored")) d.file_dtype = dtype(p);
  if (accept(p, "below")) d.below = integer(p);
  if (accept(p, "scale")) d.scale = real(p);
  d.span = place_after_slashes(p);
  end_line(p);
  VEC_PUSH(p->arena, &b->data, d);
}

static int64_t field(Parser *p, const char *name) {
  expect(p, name);
  return integer(p);
}

static RunSettings settings(Parser *p) {
  RunSettings s = {0};
  expect(p, "settings");
  s.steps = field(p, "steps");
  s.epochs = field(p, "epochs");
  s.shuffle = field(p, "shuffle");
  s.drop_last = field(p, "drop_last");
  s.accumulate = field(p, "accumulate");
  s.microbatches = field(p, "microbatches");
  expect(p, "compute");
  if (!accept(p, "none")) s.compute = dtype(p);
  expect(p, "reduce_dtype");
  if (!accept(p, "none")) s.reduce_dtype = dtype(p);
  expect(p, "seed");
  s.seed = natural(p);
  s.eval_every = field(p, "eval_every");
  s.save_every = field(p, "save_every");
  if (accept(p, "schedule")) s.schedule = quoted(p);
  if (accept(p, "save")) s.save = quoted(p);
  end_line(p);
  return s;
}

/* The graph comes later: `lr` and the loss are checked against it by the caller. */
static OptimizerSpec optimizer(Parser *p) {
  OptimizerSpec o = {.kind = word(p)};
  struct {
    const char *name;
    double *value;
  } fields[] = {{"momentum", &o.momentum}, {"beta1", &o.beta1},        {"beta2", &o.beta2},
                {"eps", &o.eps},           {"decay", &o.weight_decay}, {"clip", &o.clip_norm}};
  expect(p, "lr");
  expect(p, "%");
  o.lr = index32(p);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    expect(p, fields[i].name);
    *fields[i].value = real(p);
  }
  o.nesterov = field(p, "nesterov");
  o.span = place_after_slashes(p);
  end_line(p);
  return o;
}

static void block(Parser *p) {
  Program *program = p->program;
  const struct {
    const char *name;
    ProgramBlock *block;
  } blocks[] = {{"train", &program->train}, {"eval", &program->eval}, {"infer", &program->infer}};
  if (accept(p, "init")) {
    end_line(p);
    program->init = graph(p);
    return;
  }
  ProgramBlock *b = NULL;
  for (int i = 0; i < 3 && !b; i++)
    if (accept(p, blocks[i].name)) b = blocks[i].block;
  if (!b) fail(p, "unknown block");
  end_line(p);
  b->settings = settings(p);
  while (accept(p, "data")) data(p, b);
  if (accept(p, "optimizer")) b->optimizer = optimizer(p);
  if (accept(p, "loss")) {
    expect(p, "%");
    b->loss = index32(p);
    end_line(p);
  }
  b->graph = graph(p);
  if (b->loss >= b->graph->values.len || b->optimizer.lr >= b->graph->values.len)
    fail(p, "the loss or learning rate is no value of the graph");
}

static void program(Parser *p) {
  expect(p, "program");
  p->program->path = quoted(p);
  expect(p, "seed");
  p->program->seed = natural(p);
  end_line(p);
  expect(p, "world");
  p->program->world = mesh(p);
  skip_blank(p);
  while (strncmp(p->at, "mesh", 4) == 0) mesh(p);
  while (accept(p, "var")) var(p);
  while (accept(p, "block")) block(p);
  if (*p->at) fail(p, "unexpected text");
}

Program *program_parse(Arena *arena, Interner *names, Sources *sources, const char *text,
                       const char **error) {
  Parser p = {.arena = arena, .names = names, .sources = sources, .text = text, .at = text};
  p.program = ARENA_NEW(arena, Program);
  *p.program = (Program){.arena = arena, .names = names, .sources = sources};
  if (setjmp(p.fail)) {
    *error = p.error;
    return NULL;
  }
  enter_files(&p);
  program(&p);
  return p.program;
}
