/* For tests: graphs lowered and fused, their kernels compiled, and every kernel call run on its own
 * with the reference interpreter's values as inputs and compared with the reference's values, for
 * every rank of the mesh. */
#ifndef DTM_TESTS_KERNEL_BENCH_H
#define DTM_TESTS_KERNEL_BENCH_H

#include <check.h>
#include <string.h>

#include "jit.h"
#include "kernel_graph.h"
#include "runtime/abi/number.h"

typedef struct BenchRun {
  Bench *b;
  Graph *local;
  RefTensor **want; /* [value][position] */
  FusedProgram *p;
} BenchRun;

static inline RefTensor bench_read(void *user, uint32_t var, const TensorType *type) {
  (void)type;
  return ((Bench *)user)->var[var];
}

/* Lowers and fuses; kernels go to `set`. */
static inline BenchRun bench_prepare(Bench *b, KernelSet *set, bool enabled,
                                     const FuseTarget *target) {
  BenchRun r = {.b = b};
  const char *error;
  r.local = spmd_lower(b->arena, b->g, plan_cache_new(b->arena), &error);
  if (!r.local) {
    fprintf(stderr, "%s: %s\n", b->name, error);
    abort();
  }
  RefContext *ctx = ARENA_NEW(b->arena, RefContext);
  *ctx = (RefContext){.arena = b->arena, .seed = BENCH_SEED, .step = BENCH_STEP};
  RefIO io = {.user = b, .read = bench_read};
  bool disagree = false;
  r.want = ref_eval_mesh(ctx, b->arena, r.local, &io, &disagree);
  FuseOptions options = {.enabled = enabled, .target = target};
  r.p = fuse_run(b->arena, r.local, set, &options);
  const char *fault = fuse_verify(b->arena, r.p);
  if (fault) {
    StrBuf text;
    strbuf_init(&text, b->arena);
    fuse_print(&text, r.p);
    fprintf(stderr, "%s: %s\n%s", b->name, fault, text.text);
    abort();
  }
  return r;
}

typedef struct BenchBuffer {
  unsigned char *data;
  size_t size;
  bool owned; /* a temporary, or made by a kernel that ran */
} BenchBuffer;

enum { BENCH_GUARD = 64 };

static inline BenchBuffer bench_buffer(const FValue *v, int64_t elements) {
  size_t size = (size_t)elements * dtype_bytes(v->dtype);
  BenchBuffer b = {.data = malloc(size + BENCH_GUARD), .size = size};
  if (!b.data) abort();
  memset(b.data, 0xa5, size + BENCH_GUARD);
  return b;
}

static inline void bench_compare_tensors(const BenchRun *r, const FValue *v, int64_t pos,
                                         const RefTensor *got, const RefTensor *want,
                                         const Kernel *k) {
  double most = 0, tolerance = r->b->tolerance;
  if (v->dtype == DT_BF16) tolerance = 1e-2;
  if (v->dtype == DT_F16) tolerance = 2e-3;
  if (v->dtype == DT_F8_E4M3 || v->dtype == DT_F8_E5M2) tolerance = 0.13;
  int64_t n = ref_count(want);
  for (int64_t i = 0; i < n; i++)
    if (isfinite(want->data[i]) && fabs(want->data[i]) > most) most = fabs(want->data[i]);
  for (int64_t i = 0; i < n; i++) {
    double x = got->data[i], y = want->data[i];
    if ((isnan(x) && isnan(y)) || x == y) continue;
    bool close = dtype_is_float(v->dtype) && isfinite(x) && isfinite(y) &&
                 fabs(x - y) <= tolerance * (most > 1 ? most : 1);
    if (close) continue;
    StrBuf text;
    strbuf_init(&text, r->b->arena);
    kernel_print(&text, k);
    fuse_print(&text, r->p);
    fputs(text.text, stderr);
    ck_abort_msg("%s, position %lld: %%%u[%lld] is %.9g, should be %.9g", r->b->name,
                 (long long)pos, v->value, (long long)i, x, y);
  }
}

/* Compares what one rank made. A Partial is kept in `addends` and compared when all ranks are
 * done: its addends may be dealt out otherwise than the reference does. */
static inline void bench_compare(const BenchRun *r, const FValue *v, int64_t pos,
                                 const BenchBuffer *buf, const Kernel *k, RefTensor **addends) {
  const RefTensor *want = &r->want[v->value][pos];
  RefTensor got = ref_new(r->b->arena, want->rank, want->shape);
  int64_t n = ref_count(want);
  ck_assert_msg((size_t)n * dtype_bytes(v->dtype) == buf->size, "%s: size of %%%u", r->b->name,
                v->value);
  for (int64_t i = 0; i < n; i++) got.data[i] = abi_load(buf->data, v->dtype, i);
  for (int i = 0; i < BENCH_GUARD; i++)
    ck_assert_msg(buf->data[buf->size + (size_t)i] == 0xa5, "%s: %%%u written beyond its end",
                  r->b->name, v->value);
  const TensorType *t = value_type(r->local, v->value);
  if (!layout_has_partial(&t->layout)) {
    bench_compare_tensors(r, v, pos, &got, want, k);
    return;
  }
  if (!addends[v->value]) addends[v->value] = ARENA_ARRAY(r->b->arena, RefTensor, t->mesh->nranks);
  addends[v->value][pos] = got;
  if (pos + 1 != t->mesh->nranks) return;
  RefTensor whole = ref_assemble(r->b->arena, t, addends[v->value], NULL);
  RefTensor ref = ref_assemble(r->b->arena, t, r->want[v->value], NULL);
  bench_compare_tensors(r, v, pos, &whole, &ref, k);
}

/* Runs [0, tasks) in `parts` pieces. */
static inline void bench_call(const BenchRun *r, const Group *g, const int64_t *syms,
                              BenchBuffer *buffers, const Jit *jit, int parts) {
  static int64_t step_block[4] = {BENCH_SEED, BENCH_STEP, 0, 0};
  const Kernel *k = r->p->kernels->kernels.data[g->kernel];
  void *bufs[64];
  size_t bytes[64];
  int64_t ints[128], tasks = syms[g->tasks];
  for (uint32_t i = 0; i < k->nbufs; i++) {
    bufs[i] = g->bufs[i] ? (void *)buffers[g->bufs[i]].data : step_block;
    bytes[i] = g->bufs[i] ? buffers[g->bufs[i]].size : sizeof step_block;
  }
  for (uint32_t i = 0; i < k->nints; i++) ints[i] = syms[g->ints[i]];
  jit_call(jit, g->kernel, bufs, bytes, ints, tasks, parts);
}

static inline void bench_run_position(const BenchRun *r, int64_t pos, const Jit *jit, int parts,
                                      RefTensor **addends) {
  const FusedProgram *p = r->p;
  int64_t(*coords)[DTM_MAX_AXES] = calloc(p->meshes.len + 1, sizeof *coords);
  int64_t *syms = calloc(p->syms.len, sizeof *syms);
  BenchBuffer *buffers = calloc(p->values.len, sizeof *buffers);
  for (uint32_t m = 0; m < p->meshes.len; m++) mesh_coords(p->meshes.data[m], pos, coords[m]);
  fuse_eval_syms(p, (const int64_t(*)[DTM_MAX_AXES])coords, syms);
  for (uint32_t v = 1; v < p->values.len; v++) {
    const FValue *fv = &p->values.data[v];
    ck_assert(syms[fv->elements] * (int64_t)dtype_bytes(fv->dtype) <= fv->max_bytes);
    buffers[v] = bench_buffer(fv, syms[fv->elements]);
  }
  for (uint32_t i = 0; i < p->groups.len; i++) {
    const Group *g = &p->groups.data[i];
    if (g->kind != GROUP_KERNEL) continue;
    for (uint32_t j = 0; j < g->ninputs; j++) {
      const FValue *fv = &p->values.data[g->inputs[j]];
      BenchBuffer *buf = &buffers[g->inputs[j]];
      for (int64_t e = 0; fv->value && e < syms[fv->elements]; e++)
        abi_store(buf->data, fv->dtype, e, r->want[fv->value][pos].data[e]);
    }
    bench_call(r, g, syms, buffers, jit, parts);
    for (uint32_t o = 0; o < g->noutputs; o++)
      if (p->values.data[g->outputs[o]].value)
        bench_compare(r, &p->values.data[g->outputs[o]], pos, &buffers[g->outputs[o]],
                      p->kernels->kernels.data[g->kernel], addends);
  }
  for (uint32_t v = 1; v < p->values.len; v++) free(buffers[v].data);
  free(buffers);
  free(syms);
  free(coords);
}

static inline void bench_run(const BenchRun *r, const Jit *jit) {
  for (int parts = 1; parts <= 3; parts += 2) {
    RefTensor **addends = ARENA_ARRAY(r->b->arena, RefTensor *, r->local->values.len);
    for (int64_t pos = 0; pos < r->b->mesh->nranks; pos++)
      bench_run_position(r, pos, jit, parts, addends);
  }
}

/* Kernel calls of the fused program. */
static inline uint32_t bench_kernels(const BenchRun *r) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->p->groups.len; i++) n += r->p->groups.data[i].kind == GROUP_KERNEL;
  return n;
}

#endif
