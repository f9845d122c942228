/* The table of --report: see work.h. */
#include "report/work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/traffic.h"
#include "runtime/abi/abi.h"
#include "runtime/abi/blocks.h"

static const char *const block_names[ABI_PROGRAM_COUNT] = {
#define X(id, name) [ABI_PROGRAM_##id] = name,
    ABI_BLOCKS(X)
#undef X
};

/* Calls that cost the same. */
typedef struct Line {
  const char *name;   /* of the kernel, of the operation */
  const char *source; /* of the first call */
  uint32_t calls;
  Work each;
  bool counted; /* what it moves is known */
  uint32_t first;
} Line;

typedef struct Report {
  StrBuf *out;
  const AbiHeader *h;
  const KernelSet *kernels;
  const int64_t *syms; /* on the first rank of every mesh */
#define X(name, T) const T *name;
  ABI_TABLES(X)
#undef X
  VEC(Line) lines;
  IdMap line_of; /* what is called with what -> line */
} Report;

static const char *text(const Report *r, uint32_t string) {
  return r->string + string;
}

/* Extents of the block of a buffer; elements in all. */
static double block_of(const Report *r, const AbiBuffer *b, int64_t extent[ABI_MAX_DIMS]) {
  const AbiType *t = &r->type[b->type];
  const int64_t first[ABI_MAX_AXES] = {0};
  int64_t offset[ABI_MAX_DIMS];
  double n = 1;
  abi_block(t, &r->mesh[t->mesh], first, offset, extent);
  for (uint32_t d = 0; d < t->rank; d++) n *= (double)extent[d];
  return n;
}

static double bytes_of(const Report *r, const AbiBuffer *b) {
  int64_t extent[ABI_MAX_DIMS];
  if (!b->type) return 0;
  return block_of(r, b, extent) * (double)dtype_bytes((DType)r->type[b->type].dtype);
}

static double bytes_of_all(const Report *r, const AbiAction *a) {
  double n = 0;
  for (uint32_t i = 0; i < a->nbuffers; i++) n += bytes_of(r, &r->buffer[a->buffers + i]);
  return n;
}

static Work work_of_call(const Report *r, const AbiAction *a, const Kernel *k) {
  const AbiBuffer *b = &r->buffer[a->buffers];
  int64_t *ints = ARENA_ARRAY(r->out->arena, int64_t, k->nints + 1);
  bool *passing = ARENA_ARRAY(r->out->arena, bool, k->nbufs + 1);
  for (uint32_t i = 0; i < k->nints; i++) ints[i] = r->syms[r->arg[a->args + 2 + i]];
  for (uint32_t i = 0; i < k->nbufs; i++) passing[i] = !b[i].type;
  return work_of_kernel(k, ints, passing);
}

/* Epilogues and the addend are part of a product: what they read and write is not counted twice. */
static Work work_of_product(const Report *r, const AbiAction *a) {
  const AbiMatmul *m = &r->matmul[a->code];
  double batch = 1, bytes = bytes_of_all(r, a);
  for (uint32_t i = 0; i < m->nbatch; i++) batch *= (double)r->syms[m->batch[i]];
  double mnk = (double)r->syms[m->m] * (double)r->syms[m->n] * (double)r->syms[m->k];
  return (Work){.least = bytes, .moved = bytes, .flops = 2 * batch * mnk};
}

/* Products of queries, keys and values; half of them where later keys are not seen. Five of that
 * size in the backward pass, which makes the weights anew, two in the forward pass. */
static double attention_flops(const Report *r, const AbiAction *a) {
  bool backward = a->code == ABI_LIB_ATTENTION_BACKWARD;
  const AbiBuffer *q = &r->buffer[a->buffers + (backward ? 1 : 0)], *k = q + 1;
  int64_t queries[ABI_MAX_DIMS], keys[ABI_MAX_DIMS];
  double n = 2 * block_of(r, q, queries);
  block_of(r, k, keys);
  n *= (double)keys[r->type[k->type].rank - 2];
  if (r->syms[r->arg[a->args + 2]]) n /= 2; /* causal */
  return n * (backward ? 5 : 2);
}

/* Rows times the weight of their expert, or by what comes back of them: as if all places held one.
 */
static double experts_flops(const Report *r, const AbiAction *a) {
  bool weight = a->code == ABI_LIB_GROUPED_LINEAR_WEIGHT;
  const AbiBuffer *rows = &r->buffer[a->buffers], *other = rows + (weight ? 1 : 3);
  int64_t extent[ABI_MAX_DIMS];
  double n = 2 * block_of(r, rows, extent);
  block_of(r, other, extent);
  return n * (double)extent[3];
}

static Work work_of_library(const Report *r, const AbiAction *a) {
  Work w = {.least = bytes_of_all(r, a)};
  if (a->code == ABI_LIB_ATTENTION || a->code == ABI_LIB_ATTENTION_BACKWARD)
    w.flops = attention_flops(r, a);
  if (a->code == ABI_LIB_GROUPED_LINEAR || a->code == ABI_LIB_GROUPED_LINEAR_WEIGHT)
    w.flops = experts_flops(r, a);
  return w;
}

/* Equal for calls of one line: what runs, and what it costs. */
static uint64_t key_of(const AbiAction *a, const char *name, const Work *w) {
  return hash_bytes(w, sizeof *w, hash_bytes(name, strlen(name), a->kind));
}

/* False for actions that compute nothing. *name: of what runs. */
static bool work_of(const Report *r, const AbiAction *a, Work *w, const char **name) {
  *name = text(r, a->name);
  if (a->kind == ABI_KERNEL) {
    const Kernel *k = r->kernels->kernels.data[a->code];
    *w = work_of_call(r, a, k);
    *name = k->name;
  } else if (a->kind == ABI_MATMUL) {
    *w = work_of_product(r, a);
  } else if (a->kind == ABI_LIBRARY) {
    *w = work_of_library(r, a);
  } else {
    return false;
  }
  return true;
}

static void add_call(Report *r, uint32_t number, const AbiAction *a) {
  const char *name;
  Work w;
  if (!work_of(r, a, &w, &name)) return;
  uint64_t key = key_of(a, name, &w);
  uint32_t line;
  if (!id_map_get(&r->line_of, key, &line)) {
    line = r->lines.len;
    id_map_put(r->out->arena, &r->line_of, key, line);
    VEC_PUSH(r->out->arena, &r->lines,
             ((Line){.name = name,
                     .source = text(r, a->source),
                     .each = w,
                     .counted = a->kind != ABI_LIBRARY,
                     .first = number}));
  }
  r->lines.data[line].calls++;
}

static double weight(const Line *l) {
  double n = l->each.moved > l->each.least ? l->each.moved : l->each.least;
  return n * l->calls;
}

static int heavier(const void *x, const void *y) {
  const Line *a = x, *b = y;
  double wa = weight(a), wb = weight(b);
  if (wa != wb) return wa > wb ? -1 : 1;
  return a->first < b->first ? -1 : a->first > b->first;
}

static void print_line(StrBuf *out, uint32_t calls, const char *name, const Work *w, bool counted,
                       const char *source) {
  strbuf_printf(out, "  %6u  %-28s %10s", calls, name, bytes_print(out->arena, (int64_t)w->least));
  if (counted)
    strbuf_printf(out, " %10s %6.2f", bytes_print(out->arena, (int64_t)w->moved),
                  w->least > 0 ? w->moved / w->least : 1.0);
  else
    strbuf_printf(out, " %10s %6s", "-", "-");
  strbuf_printf(out, " %10.4g%s%s\n", w->flops / 1e9, *source ? "  " : "", source);
}

static void print_block(Report *r, uint32_t block) {
  const AbiProgram *p = &r->program[block];
  r->lines.len = 0;
  r->line_of = (IdMap){0};
  for (uint32_t i = 0; i < p->nactions; i++) add_call(r, i, &r->action[p->actions + i]);
  qsort(r->lines.data, r->lines.len, sizeof *r->lines.data, heavier);
  strbuf_printf(r->out, "%s\n  %6s  %-28s %10s %10s %6s %10s  %s\n", block_names[block], "calls",
                "what", "least", "moved", "ratio", "GFLOP", "first called for");
  Work all = {0};
  uint32_t calls = 0;
  for (uint32_t i = 0; i < r->lines.len; i++) {
    const Line *l = &r->lines.data[i];
    print_line(r->out, l->calls, l->name, &l->each, l->counted, l->source);
    calls += l->calls;
    all.least += l->calls * l->each.least;
    all.moved += l->calls * (l->counted ? l->each.moved : l->each.least);
    all.flops += l->calls * l->each.flops;
  }
  print_line(r->out, calls, "in all", &all, true, "");
}

static Report open_report(StrBuf *out, const void *image, const KernelSet *kernels) {
  Report r = {.out = out, .h = image, .kernels = kernels};
#define X(name, T) r.name = (const T *)(const void *)((const char *)image + r.h->name.offset);
  ABI_TABLES(X)
#undef X
  const int64_t first[ABI_MAX_AXES] = {0};
  int64_t *syms = ARENA_ARRAY(out->arena, int64_t, r.h->sym.count + 1);
  for (uint64_t i = 0; i < r.h->sym.count; i++) syms[i] = rt_sym_eval(&r.sym[i], syms, first);
  r.syms = syms;
  return r;
}

static bool shows(const Report *r, uint32_t block) {
  return r->program[block].present && block != ABI_PROGRAM_INIT;
}

void work_print(StrBuf *out, const void *image, const KernelSet *kernels) {
  Report r = open_report(out, image, kernels);
  for (uint32_t b = 0; b < ABI_PROGRAM_COUNT; b++) {
    if (!shows(&r, b)) continue;
    print_block(&r, b);
    traffic_print(out, image, b);
  }
  strbuf_printf(out, "memory of a rank: %s, of which %s parameters and other state\n",
                bytes_print(out->arena, (int64_t)r.h->arena_size),
                bytes_print(out->arena, (int64_t)r.h->persistent_size));
}

static void print_action(const Report *r, uint32_t block, uint32_t number) {
  const AbiAction *a = &r->action[number];
  const char *name, *kind = a->kind == ABI_MATMUL    ? "product"
                            : a->kind == ABI_LIBRARY ? "library"
                                                     : "kernel";
  Work w;
  if (!work_of(r, a, &w, &name)) return;
  strbuf_printf(r->out, "%u\t%s\t%s\t%s\t%s\t%.0f\t", number, block_names[block],
                a->phase == ABI_OPTIMIZER ? "optimizer" : "model", kind, name, w.least);
  if (a->kind == ABI_LIBRARY)
    strbuf_puts(r->out, "-");
  else
    strbuf_printf(r->out, "%.0f", w.moved);
  strbuf_printf(r->out, "\t%.0f\t%s\n", w.flops, text(r, a->source));
}

void work_print_actions(StrBuf *out, const void *image, const KernelSet *kernels) {
  Report r = open_report(out, image, kernels);
  strbuf_puts(out, "action\tblock\tphase\tkind\twhat\tleast\tmoved\tflops\tsource\n");
  for (uint32_t b = 0; b < ABI_PROGRAM_COUNT; b++)
    for (uint32_t i = 0; shows(&r, b) && i < r.program[b].nactions; i++)
      print_action(&r, b, r.program[b].actions + i);
}

void work_print_moves(StrBuf *out, const void *image, const KernelSet *kernels) {
  Report r = open_report(out, image, kernels);
  strbuf_puts(out, "block\tphase\tcalls\treceived\twhat\tsource\n");
  for (uint32_t b = 0; b < ABI_PROGRAM_COUNT; b++)
    if (shows(&r, b)) traffic_print_tabs(out, image, b, block_names[b]);
}
