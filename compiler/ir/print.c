/* Programs and graphs as text: see text.h. Reads any stage, changes nothing. */
#include "ir/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Printer {
  StrBuf *out;
  const Program *program;
  const Graph *graph;
} Printer;

static void put_quoted(StrBuf *out, const char *s) {
  strbuf_putc(out, '"');
  for (; *s; s++) {
    if (*s == '\n')
      strbuf_puts(out, "\\n");
    else if (*s == '"' || *s == '\\')
      strbuf_printf(out, "\\%c", *s);
    else
      strbuf_putc(out, *s);
  }
  strbuf_putc(out, '"');
}

/* The shortest decimal text that reads back as the same double. */
static void put_float(StrBuf *out, double v) {
  char text[40], best[40] = "";
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) != v && v == v) continue;
    if (!*best || strlen(text) < strlen(best)) strcpy(best, text);
    if (strlen(best) <= (size_t)digits) break;
  }
  strbuf_puts(out, best);
}

static void put_type(const Printer *p, const TensorType *t) {
  type_put(p->out, t);
  if (t->mesh == p->program->world) return;
  strbuf_puts(p->out, " on ");
  if (t->mesh)
    put_quoted(p->out, t->mesh->name);
  else
    strbuf_puts(p->out, "none");
}

static bool put_span(const Printer *p, Span span, const char *before) {
  if (!span.file) return false;
  uint32_t line, column;
  const SourceFile *file = sources_get(p->program->sources, span.file);
  sources_line_col(p->program->sources, span.file, span.start, &line, &column);
  strbuf_printf(p->out, "%s%s:%" PRIu32 ":%" PRIu32, before, file->path, line, column);
  return true;
}

static void put_attr(const Printer *p, const Attr *a) {
  strbuf_printf(p->out, "%s = ", attr_name(a->key));
  switch (attr_kind(a->key)) {
  case ATTR_KIND_NONE:
    break;
  case ATTR_KIND_INT:
    strbuf_printf(p->out, "%" PRId64, a->as.i);
    if (a->key == ATTR_VAR && a->as.i >= 0 && a->as.i < p->program->vars.len) {
      strbuf_putc(p->out, ' ');
      put_quoted(p->out, p->program->vars.data[a->as.i].name);
    }
    break;
  case ATTR_KIND_BOOL:
    strbuf_puts(p->out, a->as.i ? "true" : "false");
    break;
  case ATTR_KIND_DTYPE:
    strbuf_puts(p->out, dtype_name((DType)a->as.i));
    break;
  case ATTR_KIND_FLOAT:
    put_float(p->out, a->as.f);
    break;
  case ATTR_KIND_STRING:
    put_quoted(p->out, a->as.s);
    break;
  case ATTR_KIND_TYPE:
    put_type(p, a->as.type);
    break;
  case ATTR_KIND_INTS:
    strbuf_putc(p->out, '[');
    for (uint32_t i = 0; i < a->as.ints.len; i++)
      strbuf_printf(p->out, "%s%" PRId64, i ? ", " : "", a->as.ints.data[i]);
    strbuf_putc(p->out, ']');
    break;
  }
}

static void put_node(const Printer *p, NodeId id) {
  const Graph *g = p->graph;
  const Node *n = graph_node(g, id);
  size_t start = p->out->len;
  for (uint32_t i = 0; i < n->nresults; i++) {
    const Value *v = graph_value(g, node_result(n, i));
    strbuf_printf(p->out, "%s%%%" PRIu32, i ? ", " : "", node_result(n, i));
    if (v->name) strbuf_printf(p->out, " %s", v->name);
    strbuf_puts(p->out, ": ");
    put_type(p, &v->type);
    if (v->poisoned) strbuf_puts(p->out, " poisoned");
  }
  strbuf_printf(p->out, "%s%s(", n->nresults ? " = " : "", op_name(n->op));
  for (uint32_t i = 0; i < n->noperands; i++)
    strbuf_printf(p->out, "%s%%%" PRIu32, i ? ", " : "", n->operands[i]);
  strbuf_putc(p->out, ')');
  for (uint32_t i = 0; i < n->nattrs; i++) {
    strbuf_puts(p->out, i ? ", " : " {");
    put_attr(p, &n->attrs[i]);
  }
  if (n->nattrs) strbuf_putc(p->out, '}');
  if (!n->span.file && !n->scope) return;
  enum { PLACE_COLUMN = 72 };
  do strbuf_putc(p->out, ' ');
  while (p->out->len - start < PLACE_COLUMN);
  strbuf_puts(p->out, "//");
  put_span(p, n->span, " ");
  if (n->scope) strbuf_printf(p->out, "  #%" PRIu32 " %s", n->scope, g->scopes.data[n->scope].path);
}

void node_print(StrBuf *out, const Program *program, const Graph *graph, NodeId id) {
  put_node(&(Printer){out, program, graph}, id);
}

void graph_print(StrBuf *out, const Program *program, const Graph *g) {
  Printer p = {out, program, g};
  strbuf_printf(out, "graph %s {\n", g->name);
  for (uint32_t s = 1; s < g->scopes.len; s++) {
    const Scope *scope = &g->scopes.data[s];
    strbuf_printf(out, "  scope %" PRIu32 " in %" PRIu32 " ", s, scope->parent);
    put_quoted(out, scope->path);
    strbuf_putc(out, ' ');
    put_quoted(out, scope->what);
    if (scope->recompute) strbuf_puts(out, " recompute");
    put_span(&p, scope->call, "  // ");
    strbuf_putc(out, '\n');
  }
  uint8_t phase = PHASE_FORWARD;
  for (NodeId id = 1; id < g->nodes.len; id++) {
    const Node *n = graph_node(g, id);
    if (n->phase != phase) strbuf_printf(out, "  %s:\n", phase_name(phase = n->phase));
    strbuf_puts(out, "  ");
    put_node(&p, id);
    strbuf_putc(out, '\n');
  }
  strbuf_puts(out, "}\n");
}

static void put_mesh(StrBuf *out, const Mesh *m) {
  strbuf_puts(out, "mesh ");
  put_quoted(out, m->name);
  strbuf_puts(out, " (");
  for (uint32_t a = 0; a < m->naxes; a++)
    strbuf_printf(out, "%s%s = %" PRId64, a ? ", " : "", m->axis[a], m->size[a]);
  strbuf_putc(out, ')');
  for (int64_t r = 0; m->ranks && r < m->nranks; r++)
    strbuf_printf(out, "%s%" PRId64, r ? ", " : " ranks [", m->ranks[r]);
  strbuf_puts(out, m->ranks ? "]\n" : "\n");
}

static void put_var(const Printer *p, uint32_t index) {
  const Var *v = &p->program->vars.data[index];
  strbuf_printf(p->out, "var %" PRIu32 " %s ", index, var_kind_name(v->kind));
  put_quoted(p->out, v->name);
  strbuf_puts(p->out, ": ");
  put_type(p, &v->type);
  if (v->store) {
    TensorType stored = v->type;
    stored.layout = v->stored;
    strbuf_printf(p->out, " store %s ", store_level_name(v->store));
    put_type(p, &stored);
  }
  if (v->kind == VAR_OPTIMIZER || v->kind == VAR_ACCUMULATOR)
    strbuf_printf(p->out, " of %" PRIu32, v->param);
  if (v->foreign_name) {
    strbuf_puts(p->out, " foreign ");
    put_quoted(p->out, v->foreign_name);
  }
  if (v->transposed) strbuf_puts(p->out, " transposed");
  if (v->chunks != 1) strbuf_printf(p->out, " chunks %" PRId64, v->chunks);
  put_span(p, v->span, "  // ");
  strbuf_putc(p->out, '\n');
}

static void put_data(const Printer *p, const DataSource *d) {
  strbuf_puts(p->out, "data ");
  put_quoted(p->out, d->name);
  strbuf_putc(p->out, ' ');
  put_quoted(p->out, d->reader);
  strbuf_putc(p->out, ' ');
  put_quoted(p->out, d->path);
  strbuf_puts(p->out, ": ");
  put_type(p, &d->type);
  if (d->file_dtype) strbuf_printf(p->out, " stored %s", dtype_name(d->file_dtype));
  if (d->below) strbuf_printf(p->out, " below %" PRId64, d->below);
  if (d->scale != 1) {
    strbuf_puts(p->out, " scale ");
    put_float(p->out, d->scale);
  }
  if (d->to != 0) {
    strbuf_puts(p->out, " part ");
    put_float(p->out, d->from);
    strbuf_putc(p->out, ' ');
    put_float(p->out, d->to);
  }
  put_span(p, d->span, "  // ");
  strbuf_putc(p->out, '\n');
}

static void put_settings(StrBuf *out, const RunSettings *s) {
  strbuf_printf(out, "settings steps %" PRId64 " epochs %" PRId64 " shuffle %d drop_last %d",
                s->steps, s->epochs, s->shuffle, s->drop_last);
  strbuf_printf(out, " accumulate %" PRId64 " microbatches %" PRId64, s->accumulate,
                s->microbatches);
  strbuf_printf(out, " compute %s reduce_dtype %s", s->compute ? dtype_name(s->compute) : "none",
                s->reduce_dtype ? dtype_name(s->reduce_dtype) : "none");
  strbuf_printf(out, " seed %" PRIu64 " eval_every %" PRId64 " save_every %" PRId64, s->seed,
                s->eval_every, s->save_every);
  if (s->schedule) {
    strbuf_puts(out, " schedule ");
    put_quoted(out, s->schedule);
  }
  if (s->save) {
    strbuf_puts(out, " save ");
    put_quoted(out, s->save);
  }
  strbuf_putc(out, '\n');
}

static void put_optimizer(const Printer *p, const OptimizerSpec *o) {
  const struct {
    const char *name;
    double value;
  } fields[] = {{"momentum", o->momentum}, {"beta1", o->beta1},        {"beta2", o->beta2},
                {"eps", o->eps},           {"decay", o->weight_decay}, {"clip", o->clip_norm}};
  strbuf_printf(p->out, "optimizer %s lr %%%" PRIu32, o->kind, o->lr);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    strbuf_printf(p->out, " %s ", fields[i].name);
    put_float(p->out, fields[i].value);
  }
  strbuf_printf(p->out, " nesterov %d", o->nesterov);
  put_span(p, o->span, "  // ");
  strbuf_putc(p->out, '\n');
}

static void put_block(const Printer *p, BlockKind kind) {
  const ProgramBlock *b = &p->program->block[kind];
  if (!b->graph) return;
  strbuf_printf(p->out, "\nblock %s\n", block_name(kind));
  if (kind != BLOCK_INIT) put_settings(p->out, &b->settings);
  for (uint32_t i = 0; i < b->data.len; i++) put_data(p, &b->data.data[i]);
  if (b->optimizer.kind) put_optimizer(p, &b->optimizer);
  if (b->loss) strbuf_printf(p->out, "loss %%%" PRIu32 "\n", b->loss);
  graph_print(p->out, p->program, b->graph);
}

void program_print(StrBuf *out, const Program *program) {
  Printer p = {.out = out, .program = program};
  strbuf_puts(out, "program ");
  put_quoted(out, program->path);
  strbuf_printf(out, " seed %" PRIu64 "\n", program->seed);
  strbuf_puts(out, "world ");
  put_mesh(out, program->world);
  for (uint32_t i = 0; i < program->meshes.len; i++)
    if (program->meshes.data[i] != program->world) put_mesh(out, program->meshes.data[i]);
  for (uint32_t i = 0; i < program->vars.len; i++) put_var(&p, i);
  for (BlockKind k = BLOCK_INIT; k < BLOCK_COUNT; k++) put_block(&p, k);
}
