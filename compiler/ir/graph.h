/* The tensor graph: what a program computes, from elaboration to the per-rank program.
 *
 * Nodes and values are dense 32-bit ids in one arena per program; id 0 is none. Nodes stand in
 * topological order (an operand's node comes before its user), which every pass keeps: a pass reads
 * one graph and builds a new one through `graph_add`, mapping old values to new.
 *
 * One representation serves four stages; ir/verify.c checks what each promises.
 *
 * - graph: elaborated. Global shapes and layouts; redistribute nodes as the user wrote them, and
 *   zero-byte slices, marked `implicit`.
 * - explicit: operators that communicate inside (vocab-parallel cross_entropy) are opened up.
 * - grad: backward pass and optimizer are added.
 * - local: what one rank does. Types stay (global shape and layout), but a node computes on the
 *   local block; redistributes are collectives, composites are primitives.
 */
#ifndef DTM_IR_GRAPH_H
#define DTM_IR_GRAPH_H

#include "base/str.h"
#include "base/vec.h"
#include "diag/diag.h"
#include "ops/ops.h"
#include "runtime/abi/lists.h"

typedef uint32_t NodeId;
typedef uint32_t ValueId;

typedef struct Attr {
  AttrKey key;
  union {
    int64_t i; /* INT, BOOL, DTYPE */
    double f;
    const char *s; /* interned */
    struct {
      int64_t *data;
      uint32_t len;
    } ints;
    const TensorType *type;
  } as;
} Attr;

/* Which part of the step a node belongs to (grad stage and later). FORWARD, RECOMPUTE and BACKWARD
 * run once per accumulated batch, the others once per step, after the last one. Within a step a
 * variable keeps its value until the step ends, except an accumulator: BACKWARD assigns it once per
 * batch, and what reads it in a later phase sees the last of these values. */
typedef enum Phase {
#define X(id, name) PHASE_##id,
  ABI_PHASES(X)
#undef X
} Phase;

const char *phase_name(Phase phase);

typedef struct Node {
  Op op;
  uint8_t phase;    /* Phase */
  uint32_t segment; /* of a pipeline (spmd/pipeline.h), once it is cut; 0 = of none */
  uint32_t scope;   /* Graph.scopes index: chain of module instantiations; 0 = top */
  Span span;        /* source of this node; a derived node has that of the node it serves */
  uint32_t noperands, nresults, nattrs;
  ValueId *operands;
  ValueId first_result; /* results are first_result .. first_result + nresults - 1 */
  Attr *attrs;
} Node;

typedef struct Value {
  TensorType type;
  uint64_t key; /* infer_add: hash of the type and of the constant it is; 0 = not made yet */
  NodeId node;
  uint32_t index;      /* which result of the node */
  const char *name;    /* `let` name or NULL; printing and messages */
  uint32_t name_scope; /* of that let: a result gets its name where it is used */
  bool poisoned;       /* an error was reported where it was made: silences what follows */
} Value;

/* One module instantiation or function call, for messages and names: "layers.3.mlp". */
typedef struct Scope {
  uint32_t parent;
  const char *path; /* dotted instance path, "" at the top */
  const char *what; /* "module MLP", "fn swiglu" */
  Span call;        /* where it was instantiated or called */
  bool recompute;   /* what is computed in it is not kept for the backward pass */
} Scope;

typedef struct Graph {
  Arena *arena;
  const char *name;  /* of its block */
  VEC(Node) nodes;   /* [0] unused */
  VEC(Value) values; /* [0] unused */
  VEC(Scope) scopes; /* [0] top */
  IdMap inferred;    /* infer_add: hash of operator, operands and attributes -> a node like it */
} Graph;

/* A variable that outlives a step: parameters, buffers, optimizer state, accumulators. */
typedef enum VarKind {
  VAR_NONE = 0,
#define X(id, name) VAR_##id,
  ABI_VAR_KINDS(X)
#undef X
      VAR_COUNT
} VarKind;

const char *var_kind_name(VarKind kind);

/* What of a parameter is kept cut over ranks that compute with the whole. */
typedef enum StoreLevel {
  STORE_NONE = 0,
  STORE_OPTIMIZER,  /* optimizer state: the gradient is reduced to the shard, the new value gathered
                     */
  STORE_GRADIENTS,  /* and the parameter between steps: gathered once in the forward pass */
  STORE_PARAMETERS, /* and between its uses: gathered in the forward and in the backward pass */
  STORE_COUNT
} StoreLevel;

const char *store_level_name(StoreLevel level); /* "optimizer" */

typedef struct Var {
  VarKind kind;
  const char *name;         /* checkpoint name, "layers.3.mlp.down" */
  const char *foreign_name; /* name in files, or NULL = name */
  bool transposed;          /* files have the last dim first */
  int64_t chunks;           /* > 1: the extent of dim 0, which files merge with dim 1 */
  TensorType type;
  StoreLevel store; /* PARAM */
  Layout stored;    /* its layout where it is kept, if `store` */
  uint32_t param;   /* OPTIMIZER, ACCUMULATOR: index of the parameter it belongs to */
  Span span;        /* declaration */
} Var;

/* A source of batches. */
typedef struct DataSource {
  const char *name;   /* "tokens" */
  const char *reader; /* "npy", "idx", "text", "bin", "raw"; or one without a file (abi.h) */
  const char *path;   /* as written; relative to the .dtm file */
  DType file_dtype;   /* raw: stated; others DT_NONE */
  TensorType type;    /* of one batch; dim 0 is the batch */
  int64_t below;      /* every value must be < below; 0 = unchecked */
  bool ignores;       /* ... or be `ignore` */
  int64_t ignore;
  double scale;    /* read value * scale when the type is a float (1 = none) */
  double from, to; /* shares of the samples between which are those of the source; to 0 = all */
  Span span;
} DataSource;

/* No data of the user's: the run-time makes it. */
bool source_is_made(const DataSource *source);

/* Settings of a train/eval/infer block that are not tensor code. */
typedef struct RunSettings {
  int64_t steps, epochs; /* steps 0 = by epochs */
  bool shuffle, drop_last;
  int64_t accumulate, microbatches;
  const char *schedule; /* "1f1b", ..., or a line for each stage of a table, or NULL */
  Span schedule_span;   /* what it comes from; not printed */
  DType compute, reduce_dtype;
  uint64_t seed;
  int64_t eval_every; /* steps; 0 = at the end */
  const char *save;   /* path or NULL */
  int64_t save_every; /* steps; 0 = at the end */
} RunSettings;

/* Optimizer as declared; autodiff/optimizer.c turns it into nodes. Scalars are values of the train
 * graph (rank-0 f32, Replicate), so schedules are ordinary nodes over OP_STEP. */
typedef struct OptimizerSpec {
  const char *kind; /* "sgd", "adamw", or NULL when the block has none */
  ValueId lr;
  double momentum, beta1, beta2, eps, weight_decay;
  bool nesterov;
  double clip_norm; /* 0 = none */
  Span span;
} OptimizerSpec;

typedef enum BlockKind {
#define X(id, name) BLOCK_##id,
  ABI_BLOCKS(X)
#undef X
      BLOCK_COUNT
} BlockKind;

const char *block_name(BlockKind kind);

/* `init` has a graph alone: one ASSIGN per variable that has an initialiser. */
typedef struct ProgramBlock {
  Graph *graph; /* NULL when the program lacks the block */
  RunSettings settings;
  VEC(DataSource) data;
  ValueId loss; /* train: scalar; 0 in other blocks */
  OptimizerSpec optimizer;
  struct Pipeline *pipeline; /* train, once it is cut; NULL = none (spmd/pipeline.h) */
} ProgramBlock;

typedef VEC(const Mesh *) MeshList;

typedef struct Program {
  Arena *arena;
  Interner *names;
  Sources *sources;
  const char *path;  /* of the main .dtm file */
  const char *model; /* the one model, whose name is no part of those of its variables; or NULL */
  const Mesh *world;
  MeshList meshes;
  VEC(Var) vars;
  ProgramBlock block[BLOCK_COUNT];
  uint64_t seed;
} Program;

Graph *graph_new(Arena *arena, const char *name);
/* The graph of a block, made when it has none yet. */
Graph *program_graph(Program *program, BlockKind kind);
static inline Node *graph_node(const Graph *g, NodeId id) {
  return &g->nodes.data[id];
}
static inline Value *graph_value(const Graph *g, ValueId id) {
  return &g->values.data[id];
}
static inline const TensorType *value_type(const Graph *g, ValueId id) {
  return &g->values.data[id].type;
}
static inline Node *value_node(const Graph *g, ValueId id) {
  return graph_node(g, g->values.data[id].node);
}
static inline ValueId node_result(const Node *n, uint32_t i) {
  return n->first_result + i;
}

/* Appends a node whose result types are known. Operands and attrs are copied; attrs are sorted by
 * key. Pointers from graph_node/graph_value are invalid after this call. */
NodeId graph_add(Graph *g, Op op, const ValueId *operands, uint32_t noperands, const Attr *attrs,
                 uint32_t nattrs, const TensorType *results, uint32_t nresults, Span span,
                 uint32_t scope);
/* Appends a node like one of this graph or of another, on other operands: of the same operator,
 * phase, attributes and result types. Within one arena they share the attributes, which nothing
 * changes in place. */
NodeId graph_add_like(Graph *g, const Graph *from, NodeId like, const ValueId *operands, Span span,
                      uint32_t scope);
uint32_t graph_add_scope(Graph *g, uint32_t parent, const char *path, const char *what, Span call);

/* Per scope the outermost one around it (or itself) that is recomputed; 0 = none. */
uint32_t *graph_recomputed_scopes(Arena *arena, const Graph *g);
/* Per value: it differs between the micro-batches of a step. */
bool *graph_varying(Arena *arena, const Graph *g);

/* Among n attributes; NULL or `otherwise` when absent. */
const Attr *attrs_find(const Attr *attrs, uint32_t n, AttrKey key);
int64_t attrs_int(const Attr *attrs, uint32_t n, AttrKey key, int64_t otherwise);
double attrs_float(const Attr *attrs, uint32_t n, AttrKey key, double otherwise);

const Attr *node_attr(const Node *n, AttrKey key); /* NULL when absent */
int64_t node_int(const Node *n, AttrKey key, int64_t otherwise);
double node_float(const Node *n, AttrKey key, double otherwise);
const char *node_string(const Node *n, AttrKey key); /* NULL when absent */
bool attr_equal(const Attr *a, const Attr *b);
/* Equal for lists whose attributes are equal one by one. */
uint64_t attrs_hash(const Attr *attrs, uint32_t n, uint64_t seed);

/* Attribute literals: ATTR_I(DIM, 1), ATTR_F(EPS, 1e-5), ... */
#define ATTR_I(KEY, v) ((Attr){.key = ATTR_##KEY, .as = {.i = (v)}})
#define ATTR_F(KEY, v) ((Attr){.key = ATTR_##KEY, .as = {.f = (v)}})
#define ATTR_S(KEY, v) ((Attr){.key = ATTR_##KEY, .as = {.s = (v)}})
#define ATTR_T(KEY, v) ((Attr){.key = ATTR_##KEY, .as = {.type = (v)}})
#define ATTR_INTS(KEY, p, n)                                                                       \
  ((Attr){.key = ATTR_##KEY, .as = {.ints = {.data = (int64_t *)(p), .len = (n)}}})

/* The number of users of every value (index = ValueId), in `arena`. */
uint32_t *graph_use_counts(Arena *arena, const Graph *g);
/* An OUTPUT of micro-batches that is handed out when all of its batch are there (sema.h). */
bool output_in_parts(const Node *n);
/* Value is made by OP_CONST: *value gets it. */
bool value_const(const Graph *g, ValueId id, double *value);

#endif
