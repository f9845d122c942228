/* For tests and benches: graphs built node by node through inference, operands being variables with
 * random values. */
#ifndef DTM_TESTS_KERNEL_GRAPH_H
#define DTM_TESTS_KERNEL_GRAPH_H

#include <math.h>
#include <stdlib.h>

#include "fuse/fuse.h"
#include "infer/infer.h"
#include "reference/reference.h"
#include "reference/type_text.h"
#include "spmd/spmd.h"

enum { BENCH_VARS = 512, BENCH_SEED = 7, BENCH_STEP = 3 };

typedef struct Bench {
  Arena *arena;
  const char *name;
  Mesh *mesh;
  Graph *g;
  Sources sources;
  DiagSink sink;
  RefTensor var[BENCH_VARS];
  uint32_t nvars, noutputs;
  uint64_t random;
  double tolerance; /* relative to the largest value of a tensor */
} Bench;

static inline double bench_random(Bench *b) {
  b->random = b->random * 6364136223846793005u + 1442695040888963407u;
  return (double)(b->random >> 11) * 0x1p-53;
}

static inline Bench *bench_new(Arena *arena, const char *name, Mesh *mesh) {
  Bench *b = ARENA_NEW(arena, Bench);
  b->arena = arena;
  b->name = name;
  b->mesh = mesh;
  b->g = graph_new(arena, "train");
  b->random = 12345;
  b->tolerance = 2e-5;
  sources_init(&b->sources, arena);
  diag_init(&b->sink, arena, &b->sources);
  return b;
}

/* A variable with values in [lo, hi): whole numbers for integer types. */
static inline ValueId bench_var(Bench *b, const char *type, double lo, double hi) {
  TensorType t = type_from_text(b->mesh, type);
  RefTensor v = ref_new(b->arena, t.rank, t.shape);
  for (int64_t i = 0, n = ref_count(&v); i < n; i++) {
    double x = lo + (hi - lo) * bench_random(b);
    v.data[i] = dtype_is_float(t.dtype) ? ref_round(t.dtype, x) : floor(x);
  }
  b->var[b->nvars] = v;
  const Attr attr = ATTR_I(VAR, b->nvars++);
  NodeId id = graph_add(b->g, OP_READ, NULL, 0, &attr, 1, &t, 1, (Span){0}, 0);
  return node_result(graph_node(b->g, id), 0);
}

static inline ValueId bench_op(Bench *b, Op op, const ValueId *x, uint32_t n, const Attr *attrs,
                               uint32_t nattrs) {
  NodeId id = infer_add(b->g, &b->sink, op, x, n, attrs, nattrs, (Span){0}, NULL, 0);
  if (b->sink.errors) {
    fprintf(stderr, "%s: %s\n", b->name, b->sink.diags.data[0]->message);
    abort();
  }
  return node_result(graph_node(b->g, id), 0);
}

#define ATTRS(...) (const Attr[]){__VA_ARGS__}, sizeof((const Attr[]){__VA_ARGS__}) / sizeof(Attr)

static inline ValueId bench_1(Bench *b, Op op, ValueId x) {
  return bench_op(b, op, &x, 1, NULL, 0);
}
static inline ValueId bench_2(Bench *b, Op op, ValueId x, ValueId y) {
  return bench_op(b, op, (const ValueId[]){x, y}, 2, NULL, 0);
}
static inline ValueId bench_3(Bench *b, Op op, ValueId x, ValueId y, ValueId z) {
  return bench_op(b, op, (const ValueId[]){x, y, z}, 3, NULL, 0);
}
static inline ValueId bench_const(Bench *b, DType dtype, double v) {
  TensorType t = {.dtype = dtype, .mesh = b->mesh};
  const Attr attrs[] = {ATTR_I(DTYPE, dtype), ATTR_F(VALUE, v)};
  NodeId id = graph_add(b->g, OP_CONST, NULL, 0, attrs, 2, &t, 1, (Span){0}, 0);
  return node_result(graph_node(b->g, id), 0);
}
static inline ValueId bench_reduce(Bench *b, Op op, ValueId x, const int64_t *dims, uint32_t n,
                                   bool keep) {
  return bench_op(b, op, &x, 1, ATTRS(ATTR_INTS(DIMS, dims, n), ATTR_I(KEEPDIM, keep)));
}
#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / 8

/* Keeps a value alive: assigned to a variable of its own. */
static inline void bench_keep(Bench *b, ValueId v) {
  const Attr attr = ATTR_I(VAR, b->nvars++);
  graph_add(b->g, OP_ASSIGN, &v, 1, &attr, 1, NULL, 0, (Span){0}, 0);
  b->noutputs++;
}

#endif
