/* A program from source text: see compile.h. */
#include "reference/compile.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void compile_text(Compiled *c, const char *text, const char *mesh, const SemaOptions *options) {
  memset(c, 0, sizeof *c);
  arena_init(&c->arena);
  interner_init(&c->names, &c->arena);
  sources_init(&c->sources, &c->arena);
  diag_init(&c->sink, &c->arena, &c->sources);
  sources_add(&c->sources, "test.dtm", text, (uint32_t)strlen(text));
  SemaOptions o = {0};
  if (options) o = *options;
  if (mesh) o.mesh = mesh;
  o.main_path = "test.dtm";
  o.stdlib = "../../stdlib";
  o.config = &c->config;
  c->program = sema_run(&o, &c->arena, &c->names, &c->sources, &c->sink);
}

void compile_free(Compiled *c) {
  arena_free(&c->arena);
}

const char *compile_messages(Compiled *c) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  diag_render(&c->sink, out, DIAG_TEXT, false);
  fclose(out);
  const char *copy = arena_strdup(&c->arena, text);
  free(text);
  return copy;
}

void compile_clean(Compiled *c, const char *text, const char *mesh) {
  compile_text(c, text, mesh, NULL);
  ck_assert_msg(c->sink.diags.len == 0, "%s", compile_messages(c));
}

uint32_t count_nodes(const Graph *g, Op op) {
  uint32_t n = 0;
  for (NodeId id = 1; id < g->nodes.len; id++) n += graph_node(g, id)->op == op;
  return n;
}

const char *type_of_name(Compiled *c, const Graph *g, const char *name) {
  for (ValueId v = 1; v < g->values.len; v++) {
    const Value *value = graph_value(g, v);
    if (value->name && strcmp(value->name, name) == 0) return type_print(&c->arena, &value->type);
  }
  ck_abort_msg("no value is named %s", name);
  return NULL;
}

uint32_t find_var(const Compiled *c, const char *name) {
  for (uint32_t i = 0; i < c->program->vars.len; i++)
    if (strcmp(c->program->vars.data[i].name, name) == 0) return i;
  ck_abort_msg("no variable is named %s", name);
  return 0;
}
