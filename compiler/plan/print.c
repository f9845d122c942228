/* Text of a planned program (--emit=plan), read back from its image: see plan.h. */
#include <inttypes.h>

#include "plan/plan.h"
#include "runtime/abi/abi.h"

typedef struct Printer {
  StrBuf *out;
  const AbiHeader *h;
#define X(name, T) const T *name;
  ABI_TABLES(X)
#undef X
} Printer;

static const char *text(const Printer *p, uint32_t string) {
  return p->string + string;
}

static const char *kind_name(uint32_t kind) {
  static const char *const names[ABI_ACTION_COUNT] = {
      [ABI_ACTION_NONE] = "none",    [ABI_KERNEL] = "kernel",
      [ABI_MATMUL] = "matmul",       [ABI_PULL] = "pull",
      [ABI_PULL_ROWS] = "pull_rows", [ABI_START] = "start",
      [ABI_ALL_REDUCE] = "reduce",   [ABI_REDUCE_SCATTER] = "scatter",
      [ABI_SLICE] = "slice",         [ABI_FILL] = "fill",
      [ABI_COPY] = "copy",           [ABI_LIBRARY] = "library",
      [ABI_INPUT] = "input",         [ABI_OUTPUT] = "output",
      [ABI_POST] = "post",           [ABI_TAKE] = "take",
  };
  return names[kind];
}

/* "f32[8@dp, 4@tp,cp] partial pp on MESH" */
static void print_type(const Printer *p, uint32_t type) {
  const AbiType *t = &p->type[type];
  const AbiMesh *m = &p->mesh[t->mesh];
  strbuf_printf(p->out, "%s[", dtype_name((DType)t->dtype));
  for (uint32_t d = 0; d < t->rank; d++) {
    uint32_t n = 0;
    strbuf_printf(p->out, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    for (uint32_t order = 0; order < ABI_MAX_AXES; order++)
      for (uint32_t a = 0; a < m->naxes; a++)
        if (t->at[a].kind == ABI_SHARD && t->at[a].dim == d && t->at[a].order == order)
          strbuf_printf(p->out, "%s%s", n++ ? "," : "@", text(p, m->axis[a]));
  }
  strbuf_putc(p->out, ']');
  for (uint32_t a = 0, n = 0; a < m->naxes; a++)
    if (t->at[a].kind == ABI_PARTIAL)
      strbuf_printf(p->out, "%s%s", n++ ? "," : " partial ", text(p, m->axis[a]));
  if (t->mesh != p->h->world) strbuf_printf(p->out, " on %s", text(p, m->name));
}

static void print_buffer(const Printer *p, const AbiBuffer *b) {
  strbuf_printf(p->out, "  %s0x%" PRIx64, b->written ? ">" : "", b->offset);
  if (b->slots > 1) strbuf_printf(p->out, " x%u", b->slots);
  if (!b->type) return;
  strbuf_putc(p->out, ' ');
  print_type(p, b->type);
}

static void print_action(const Printer *p, const AbiAction *a, uint32_t number) {
  strbuf_printf(p->out, "  %4u %-9s %-8s %-28s %-16s", number, phase_name(a->phase),
                kind_name(a->kind), text(p, a->name), text(p, a->source));
  if (a->kind == ABI_KERNEL) strbuf_printf(p->out, " #%u", a->code);
  if (a->axes) {
    strbuf_puts(p->out, " over");
    for (uint32_t x = 0; x < ABI_MAX_AXES; x++)
      if (a->axes >> x & 1) strbuf_printf(p->out, " %s", text(p, p->mesh[a->mesh].axis[x]));
  }
  for (uint32_t i = 0; i < a->nbuffers; i++) print_buffer(p, &p->buffer[a->buffers + i]);
  strbuf_putc(p->out, '\n');
}

void plan_print(StrBuf *out, const Plan *plan) {
  Printer p = {.out = out, .h = (const AbiHeader *)(const void *)plan->image};
#define X(name, T) p.name = (const T *)(const void *)(plan->image + p.h->name.offset);
  ABI_TABLES(X)
#undef X
  strbuf_printf(out, "arena %" PRIu64 " bytes, variables %" PRIu64 "\n", p.h->arena_size,
                p.h->persistent_size);
  for (uint64_t i = 0; i < p.h->var.count; i++) {
    const AbiVar *v = &p.var[i];
    strbuf_printf(out, "  0x%-8" PRIx64 " %-11s %s ", v->offset, var_kind_name(v->kind),
                  text(&p, v->name));
    print_type(&p, v->type);
    strbuf_putc(out, '\n');
  }
  for (BlockKind b = BLOCK_INIT; b < BLOCK_COUNT; b++) {
    const AbiProgram *program = &p.program[b];
    if (!program->present) continue;
    strbuf_printf(out,
                  "block %s: %u actions, %u of them per batch; %" PRIu64
                  " bytes above the variables, live %" PRIu64 "\n",
                  block_name(b), program->nactions, program->looped, program->height,
                  program->live_bound);
    for (uint32_t i = 0; i < program->nactions; i++)
      print_action(&p, &p.action[program->actions + i], i);
  }
}
