/* Reads the text form of a program back: see text.h. Graphs and what stands around them; the words
 * they are made of are read.c. */
#include "ir/read.h"

#include <string.h>

/* --- graphs ------------------------------------------------------------------------------------
 */

static ValueId value_id(Reader *p, const Graph *g) {
  read_expect(p, "%");
  ValueId id = read_index(p);
  if (id == 0 || id >= g->values.len) read_fail(p, "value is not defined before this line");
  return id;
}

static void node(Reader *p, Graph *g, uint8_t phase) {
  enum { MAX_RESULTS = 8 };
  TensorType results[MAX_RESULTS];
  const char *names[MAX_RESULTS] = {0};
  bool poisoned[MAX_RESULTS] = {0};
  uint32_t nresults = 0;
  read_blank(p);
  if (*p->at == '%') {
    do {
      if (nresults == MAX_RESULTS) read_fail(p, "too many results");
      read_expect(p, "%");
      if (read_index(p) != g->values.len + nresults) read_fail(p, "value ids must count up");
      if (!read_accept(p, ":")) {
        names[nresults] = read_word(p);
        read_expect(p, ":");
      }
      results[nresults] = read_type(p);
      poisoned[nresults++] = read_accept(p, "poisoned");
    } while (read_accept(p, ","));
    read_expect(p, "=");
  }
  const char *name = read_word(p);
  Op op = op_by_name(name);
  if (!op) read_fail(p, arena_printf(p->arena, "unknown operator '%s'", name));
  VEC(ValueId) operands = {0};
  read_expect(p, "(");
  while (!read_accept(p, ")")) {
    if (operands.len) read_expect(p, ",");
    VEC_PUSH(p->arena, &operands, value_id(p, g));
  }
  VEC(Attr) attrs = {0};
  if (read_accept(p, "{")) {
    do VEC_PUSH(p->arena, &attrs, read_attribute(p));
    while (read_accept(p, ","));
    read_expect(p, "}");
  }
  Span span = {0};
  uint32_t scope = 0;
  if (read_accept(p, "//")) {
    read_blank(p);
    if (*p->at != '#') span = read_place(p);
    if (read_accept(p, "#")) {
      scope = read_index(p);
      if (scope >= g->scopes.len) read_fail(p, "unknown scope");
      p->at += strcspn(p->at, "\n");
    }
  }
  read_end_line(p);
  NodeId id = graph_add(g, op, operands.data, operands.len, attrs.data, attrs.len, results,
                        nresults, span, scope);
  graph_node(g, id)->phase = phase;
  for (uint32_t i = 0; i < nresults; i++) {
    Value *v = graph_value(g, node_result(graph_node(g, id), i));
    v->name = names[i];
    v->poisoned = poisoned[i];
  }
}

static Graph *graph(Reader *p) {
  static const struct {
    const char *label;
    Phase phase;
  } phases[] = {
#define X(id, name) {name ":", PHASE_##id},
      ABI_PHASES(X)
#undef X
  };
  enum { NPHASES = sizeof phases / sizeof *phases };
  read_expect(p, "graph");
  Graph *g = graph_new(p->arena, read_word(p));
  read_expect(p, "{");
  read_end_line(p);
  while (read_accept(p, "scope")) {
    if (read_index(p) != g->scopes.len) read_fail(p, "scopes must count up");
    read_expect(p, "in");
    uint32_t parent = read_index(p);
    if (parent >= g->scopes.len) read_fail(p, "unknown scope");
    const char *path = read_quoted(p), *what = read_quoted(p);
    bool recompute = read_accept(p, "recompute");
    uint32_t scope = graph_add_scope(g, parent, path, what, read_place_after_slashes(p));
    g->scopes.data[scope].recompute = recompute;
    read_end_line(p);
  }
  uint8_t phase = PHASE_FORWARD;
  while (!read_accept(p, "}")) {
    int i = 0;
    while (i < NPHASES && !read_accept(p, phases[i].label)) i++;
    if (i == NPHASES) {
      node(p, g, phase);
      continue;
    }
    phase = (uint8_t)phases[i].phase;
    read_end_line(p);
  }
  read_end_line(p);
  return g;
}

/* --- programs ----------------------------------------------------------------------------------
 */

/* Further meshes lie in the first; a list names a rank once. */
static void check_ranks(Reader *p, const Mesh *m) {
  int64_t world = m->sub ? p->program->meshes.data[0]->nranks : m->nranks;
  if (m->nranks > world) read_fail(p, "a mesh has more ranks than the world");
  bool *seen = m->ranks ? ARENA_ARRAY(p->arena, bool, world) : NULL;
  for (int64_t i = 0; m->ranks && i < m->nranks; i++) {
    int64_t rank = m->ranks[i];
    if (rank < 0 || rank >= world || seen[rank])
      read_fail(p, "the rank list must name different ranks of the world");
    seen[rank] = true;
  }
}

static const Mesh *mesh(Reader *p) {
  read_expect(p, "mesh");
  Mesh *m = ARENA_NEW(p->arena, Mesh);
  m->name = read_quoted(p);
  m->nranks = 1;
  read_expect(p, "(");
  while (!read_accept(p, ")")) {
    if (m->naxes) read_expect(p, ",");
    if (m->naxes == DTM_MAX_AXES) read_fail(p, "too many axes");
    m->axis[m->naxes] = read_accept(p, mesh_unnamed) ? mesh_unnamed : read_word(p);
    read_expect(p, "=");
    m->size[m->naxes] = read_integer(p);
    if (m->size[m->naxes] < 1) read_fail(p, "a mesh dim has at least one rank");
    if (m->size[m->naxes] > DTM_MAX_RANKS / m->nranks) read_fail(p, "too many ranks");
    m->nranks *= m->size[m->naxes++];
  }
  if (read_accept(p, "ranks [")) {
    VEC(int64_t) ranks = {0};
    do VEC_PUSH(p->arena, &ranks, read_integer(p));
    while (read_accept(p, ","));
    read_expect(p, "]");
    if (ranks.len != m->nranks) read_fail(p, "the rank list has another length than the mesh");
    m->ranks = ranks.data;
  }
  m->sub = p->program->meshes.len > 0;
  check_ranks(p, m);
  read_end_line(p);
  VEC_PUSH(p->arena, &p->program->meshes, m);
  return m;
}

static void var(Reader *p) {
  Var v = {.chunks = 1};
  if (read_index(p) != p->program->vars.len) read_fail(p, "variables must count up");
  v.kind = VAR_PARAM;
  while (v.kind < VAR_COUNT && !read_accept(p, var_kind_name(v.kind))) v.kind++;
  if (v.kind == VAR_COUNT) read_fail(p, "unknown kind of variable");
  v.name = read_quoted(p);
  read_expect(p, ":");
  v.type = read_type(p);
  if (read_accept(p, "store")) {
    v.store = STORE_OPTIMIZER;
    while (v.store < STORE_COUNT && !read_accept(p, store_level_name(v.store))) v.store++;
    if (v.store == STORE_COUNT) read_fail(p, "unknown kind of storage");
    TensorType stored = read_type(p), whole = v.type;
    v.stored = whole.layout = stored.layout;
    if (!type_equal(&stored, &whole)) read_fail(p, "stored as another type");
  }
  if (read_accept(p, "of")) v.param = read_index(p);
  if (read_accept(p, "foreign")) v.foreign_name = read_quoted(p);
  v.transposed = read_accept(p, "transposed");
  if (read_accept(p, "chunks")) v.chunks = read_integer(p);
  v.span = read_place_after_slashes(p);
  read_end_line(p);
  VEC_PUSH(p->arena, &p->program->vars, v);
}

static void data(Reader *p, ProgramBlock *b) {
  DataSource d = {.scale = 1};
  d.name = read_quoted(p);
  d.reader = read_quoted(p);
  d.path = read_quoted(p);
  read_expect(p, ":");
  d.type = read_type(p);
  if (read_accept(p, "stored")) d.file_dtype = read_dtype(p);
  if (read_accept(p, "below")) d.below = read_integer(p);
  if (read_accept(p, "scale")) d.scale = read_real(p);
  if (read_accept(p, "part")) {
    d.from = read_real(p);
    d.to = read_real(p);
  }
  d.span = read_place_after_slashes(p);
  read_end_line(p);
  VEC_PUSH(p->arena, &b->data, d);
}

static int64_t field(Reader *p, const char *name) {
  read_expect(p, name);
  return read_integer(p);
}

static RunSettings settings(Reader *p) {
  RunSettings s = {0};
  read_expect(p, "settings");
  s.steps = field(p, "steps");
  s.epochs = field(p, "epochs");
  s.shuffle = field(p, "shuffle");
  s.drop_last = field(p, "drop_last");
  s.accumulate = field(p, "accumulate");
  s.microbatches = field(p, "microbatches");
  read_expect(p, "compute");
  if (!read_accept(p, "none")) s.compute = read_dtype(p);
  read_expect(p, "reduce_dtype");
  if (!read_accept(p, "none")) s.reduce_dtype = read_dtype(p);
  read_expect(p, "seed");
  s.seed = read_natural(p);
  s.eval_every = field(p, "eval_every");
  s.save_every = field(p, "save_every");
  if (read_accept(p, "schedule")) s.schedule = read_quoted(p);
  if (read_accept(p, "save")) s.save = read_quoted(p);
  read_end_line(p);
  return s;
}

/* The graph comes later: `lr` and the loss are checked against it by the caller. */
static OptimizerSpec optimizer(Reader *p) {
  OptimizerSpec o = {.kind = read_word(p)};
  struct {
    const char *name;
    double *value;
  } fields[] = {{"momentum", &o.momentum}, {"beta1", &o.beta1},        {"beta2", &o.beta2},
                {"eps", &o.eps},           {"decay", &o.weight_decay}, {"clip", &o.clip_norm}};
  read_expect(p, "lr");
  read_expect(p, "%");
  o.lr = read_index(p);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    read_expect(p, fields[i].name);
    *fields[i].value = read_real(p);
  }
  o.nesterov = field(p, "nesterov");
  o.span = read_place_after_slashes(p);
  read_end_line(p);
  return o;
}

static void block(Reader *p) {
  Program *program = p->program;
  BlockKind kind = BLOCK_INIT;
  while (kind < BLOCK_COUNT && !read_accept(p, block_name(kind))) kind++;
  if (kind == BLOCK_COUNT) read_fail(p, "unknown block");
  ProgramBlock *b = &program->block[kind];
  read_end_line(p);
  if (kind != BLOCK_INIT) b->settings = settings(p);
  while (read_accept(p, "data")) data(p, b);
  if (read_accept(p, "optimizer")) b->optimizer = optimizer(p);
  if (read_accept(p, "loss")) {
    read_expect(p, "%");
    b->loss = read_index(p);
    read_end_line(p);
  }
  b->graph = graph(p);
  if (b->loss >= b->graph->values.len || b->optimizer.lr >= b->graph->values.len)
    read_fail(p, "the loss or learning rate is no value of the graph");
}

static void program(Reader *p) {
  read_expect(p, "program");
  p->program->path = read_quoted(p);
  read_expect(p, "seed");
  p->program->seed = read_natural(p);
  read_end_line(p);
  read_expect(p, "world");
  p->program->world = mesh(p);
  read_blank(p);
  while (strncmp(p->at, "mesh", 4) == 0) mesh(p);
  while (read_accept(p, "var")) var(p);
  while (read_accept(p, "block")) block(p);
  if (*p->at) read_fail(p, "unexpected text");
}

Program *program_parse(Arena *arena, Interner *names, Sources *sources, const char *text,
                       const char **error) {
  Reader p = {.arena = arena, .names = names, .sources = sources, .text = text, .at = text};
  p.program = ARENA_NEW(arena, Program);
  *p.program = (Program){.arena = arena, .names = names, .sources = sources};
  if (setjmp(p.fail)) {
    *error = p.error;
    return NULL;
  }
  read_enter_files(&p);
  program(&p);
  return p.program;
}
