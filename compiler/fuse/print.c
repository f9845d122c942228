/* Text of --emit=fused, and the checks on a fused program. */
#include "fuse/internal.h"

static const char *const kinds[] = {"",     "kernel",  "contract", "collective",
                                    "view", "library", "structure"};

static void print_value(StrBuf *out, const FusedProgram *p, FValueId v) {
  const FValue *fv = &p->values.data[v];
  if (fv->value)
    strbuf_printf(out, "%%%u", fv->value);
  else
    strbuf_printf(out, "t%u", v);
}

static void print_type(StrBuf *out, const FusedProgram *p, FValueId v) {
  const FValue *fv = &p->values.data[v];
  if (fv->value)
    strbuf_puts(out, type_print(out->arena, value_type(p->graph, fv->value)));
  else
    strbuf_printf(out, "%s, %lld bytes", dtype_name(fv->dtype), (long long)fv->max_bytes);
}

static void print_group(StrBuf *out, const FusedProgram *p, const Group *g) {
  strbuf_printf(out, "  %s", kinds[g->kind]);
  if (g->kind == GROUP_KERNEL)
    strbuf_printf(out, " %s:", p->kernels->kernels.data[g->kernel]->name);
  else
    strbuf_printf(out, " %s:", op_name(graph_node(p->graph, g->node)->op));
  if (g->epilogue.activation) strbuf_printf(out, " then %s", op_name(g->epilogue.activation));
  if (g->epilogue.addend) strbuf_puts(out, " then add");
  for (uint32_t i = 0; i < g->ninputs; i++) {
    strbuf_puts(out, i ? ", " : " ");
    print_value(out, p, g->inputs[i]);
  }
  for (uint32_t i = 0; i < g->noutputs; i++) {
    strbuf_puts(out, i ? ", " : " -> ");
    print_value(out, p, g->outputs[i]);
    strbuf_puts(out, ": ");
    print_type(out, p, g->outputs[i]);
    for (uint32_t j = 0; j < g->ninputs && j < 64; j++)
      if (g->in_place[i] >> j & 1) {
        strbuf_puts(out, " or in place of ");
        print_value(out, p, g->inputs[j]);
      }
  }
  if (g->kind == GROUP_KERNEL) {
    strbuf_puts(out, "  {");
    for (uint32_t i = 0; i < g->nnodes; i++)
      strbuf_printf(out, "%s%s", i ? " " : "", op_name(graph_node(p->graph, g->nodes[i])->op));
    strbuf_putc(out, '}');
  }
  strbuf_putc(out, '\n');
}

void fuse_print(StrBuf *out, const FusedProgram *p) {
  strbuf_printf(out, "fused %s\n", p->graph->name);
  for (uint32_t i = 0; i < p->groups.len; i++) print_group(out, p, &p->groups.data[i]);
}

const char *fuse_verify(Arena *arena, const FusedProgram *p) {
  bool *made = ARENA_ARRAY(arena, bool, p->values.len);
  for (uint32_t v = 1; v < p->values.len; v++) {
    const FValue *fv = &p->values.data[v];
    if (fv->alias && p->values.data[fv->alias].alias)
      return arena_printf(arena, "value %u is an alias of an alias", v);
  }
  for (uint32_t i = 0; i < p->groups.len; i++) {
    const Group *g = &p->groups.data[i];
    const char *name = op_name(graph_node(p->graph, g->node)->op);
    for (uint32_t j = 0; j < g->ninputs; j++)
      if (!made[g->inputs[j]])
        return arena_printf(arena, "group %u (%s) reads value %u before it is made", i, name,
                            g->inputs[j]);
    for (uint32_t j = 0; j < g->noutputs; j++) {
      if (made[g->outputs[j]])
        return arena_printf(arena, "group %u (%s) makes value %u again", i, name, g->outputs[j]);
      made[g->outputs[j]] = true;
    }
    if (g->kind != GROUP_KERNEL) continue;
    const char *fault = kernel_verify(arena, p->kernels->kernels.data[g->kernel]);
    if (fault) return arena_printf(arena, "group %u (%s): %s", i, name, fault);
  }
  return NULL;
}
