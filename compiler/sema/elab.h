/* Inside sema: scopes, the state that every part of elaboration shares, and what the parts offer
 * each other.
 *
 * Two phases are interleaved: compile-time evaluation gives a `Val` (value.h); whatever is a tensor
 * appends nodes to the graph of the block at hand. A poisoned Val is taken by every function here
 * and given on without a word.
 */
#ifndef DTM_SEMA_ELAB_H
#define DTM_SEMA_ELAB_H

#include "infer/infer.h"
#include "sema/sema.h"
#include "sema/value.h"
#include "syntax/ast.h"

enum {
  SEMA_MAX_DEPTH = 200,       /* nested calls and instantiations */
  SEMA_MAX_LIST = 1 << 20,    /* elements of a list, turns of a loop */
  SEMA_MAX_WORK = 1 << 24,    /* of one elaboration: expressions evaluated, and room for lists */
  SEMA_CALL_WORK = 16,        /* of a call, which has names and notes of its own */
  SEMA_LIST_WORK = 4,         /* of an element of a list: lists live as long as the compiler */
  SEMA_MAX_SUGGESTIONS = 100, /* errors that look for a similar name: that takes all names */
  SEMA_MAX_ARGS = 64,         /* parameters of anything that is called */
  SEMA_MAX_NOTES = 6,         /* of the chain of instantiations under one error */
  SEMA_MAX_EXPR_DEPTH = 2000  /* nesting of one expression, which is recursion here */
};

/* --- scopes ------------------------------------------------------------------------------------
 */

typedef enum BindKind {
  BIND_CONST = 1, /* parameters, members, loop variables: never rebound */
  BIND_LET,       /* rebound by `x = ...` in the same body */
  BIND_EXTENT,    /* a free name of a parameter type, bound to an extent */
  BIND_MEMBER     /* sub-module or parameter of a module */
} BindKind;

typedef enum LazyState { LAZY_DONE = 0, LAZY_WAITING, LAZY_RUNNING } LazyState;

typedef struct Binding {
  BindKind kind;
  Val value;
  Span span;
  bool used;
  bool leads;     /* a name of a file: to instances or variables */
  LazyState lazy; /* top-level config and let: evaluated on first use */
  const Expr *expr;
  const ConfigItem *config; /* entry this comes from */
} Binding;

typedef struct Env {
  struct Env *parent;
  NameMap *names; /* name -> Binding */
  SourceUnit *file;
  Instance *instance;    /* whose members `names` are, else NULL */
  bool is_body;          /* outermost scope of a body: `x = e` does not look beyond */
  struct Region *region; /* whose outermost scope this is (region.h), or NULL */
} Env;

struct SourceUnit {
  uint32_t source;
  const char *path;
  File *ast;
  bool library; /* found through search paths: mesh dims do not reserve names there */
  Env env;
  NameMap names;
  NameMap config; /* name -> Binding */
};

struct Fn {
  const Item *item;
  SourceUnit *file;
  const char *what; /* "fn swiglu" */
  bool called;
};

struct ModuleDef {
  const Item *item;
  SourceUnit *file;
  const char *what; /* "module MLP" */
};

/* One class level of an instance: 0 = the module that was named, the last = the root base. */
typedef struct Level {
  const ModuleDef *def;
  NameMap names;
  Env env;
} Level;

/* When a walk over what two calls see came by (twins.c). */
typedef struct Seen {
  uint32_t stamp, index;
} Seen;

struct Instance {
  const char *path; /* "layers.3.mlp"; "" = the model itself */
  const Mesh *mesh;
  const ModuleDef *def;
  VEC(Level *) levels;       /* of a copy none, until instance_open */
  VEC(const Stmt *) renames; /* applied when all its parameters are declared */
  Span span;
  bool failed; /* an assertion of its body: its methods give nothing, as they would fail after it */
  uint32_t index;            /* in Sema.instances */
  struct Instance *like;     /* a copy of this one (remake.c), or NULL */
  const struct Shift *shift; /* where it has what that one leads to */
  struct Reach *reach;       /* all that it leads to, once asked for (twins.c) */
  Seen seen[3];
};

struct Method {
  const Stmt *decl;
  Instance *instance;
  Level *level;
  const char *what; /* "MLP.forward" */
};

/* --- state -------------------------------------------------------------------------------------
 */

/* The chain of calls and instantiations that led here; lives on the C stack. */
typedef struct Chain {
  const struct Chain *parent;
  const char *what, *path;
  Span call;
} Chain;

/* A random instance number that was given out. */
typedef struct Draw {
  const char *path;
  int64_t number;
} Draw;

/* What a graph holds once: variable -> its READ; (dtype, value, mesh) -> its CONST; random instance
 * numbers that are taken. */
typedef struct GraphCache {
  IdMap reads, consts, instances;
  VEC(Draw) draws;
  IdMap recorded; /* place of a call and what is called -> index of the last recording (replay.h) */
  VEC(struct Recording *) recordings;
} GraphCache;

/* `store` as evaluated: names of mesh dims, outer first. */
typedef struct StoreRule {
  StoreLevel level;
  const char *axis[DTM_MAX_AXES];
  uint32_t naxes;
  Span span;
} StoreRule;

/* What changes as elaboration descends; saved and restored by value. */
typedef struct State {
  Graph *graph;       /* NULL: compile time only */
  const Graph *types; /* whose values tensors are: also where nothing is added to it */
  GraphCache *cache;  /* of `graph` */
  uint32_t scope;
  const Mesh *mesh;
  const char *path;           /* of the instance whose code runs, or of what is being built */
  const TensorType *expected; /* type that an initialiser without a type argument takes */
  const Chain *chain;
  Span operand; /* expression of the operand that nodes with one operand are made of (emit1) */
  uint32_t depth;
  bool naming;            /* modules may be created: `path` is the name they get */
  bool training;          /* dropout acts */
  bool allow_partial;     /* the next body may return a Partial undeclared: a hook follows */
  const StoreRule *store; /* of parameters declared here that do not say, or NULL */
  uint32_t block; /* 1 train, 2 eval, 3 infer: parameters of equal names are shared across these */
  struct Region *region;        /* whose per-rank code this is (region.h), or NULL */
  struct AutoBlock *auto_block; /* the auto whose own code this is (escape.h), or NULL */
} State;

/* Interned names that sema itself looks for. */
typedef struct KnownNames {
  const char *forward, *redistribute_input, *redistribute_output;
} KnownNames;

typedef struct VarInfo {
  uint32_t block;   /* State.block that declared it */
  bool own_storage; /* its line, or one of a module around it, says how it is kept */
  Seen seen[3];
} VarInfo;

struct Sema {
  const SemaOptions *options;
  Arena *arena;
  Interner *names;
  Sources *sources;
  DiagSink *sink;
  Program *program;
  const Mesh *world;
  NameMap axes;    /* of the meshes looked at so far: their dims */
  uint32_t nknown; /* how many of program->meshes that are */
  NameMap meshes;  /* of the first nlisted of them: where they begin and end -> MeshesThere */
  uint32_t nlisted;
  uint32_t ndeclared; /* the first of program->meshes: those that the source declares */
  VEC(SourceUnit *) files;
  NameMap files_by_path;
  NameMap builtins; /* name -> const Builtin */
  KnownNames known;
  State at;
  uint32_t expr_depth;
  uint64_t work; /* against SEMA_MAX_WORK */
  GraphCache *init_cache;
  struct Signature **signatures; /* by Op, built when first called */
  NameMap word_specs;            /* bind_words: a list of words -> its parameters */
  NameMap var_names;             /* name -> index + 1 */
  VEC(VarInfo) var_info;
  VEC(const Fn *) fns;
  struct RunBlock *block;  /* being elaborated, or NULL */
  const StoreRule *store;  /* of train, for all parameters that no rule keeps; or NULL */
  NameMap models;          /* of train, for eval and infer: name -> Binding */
  struct PlanCache *plans; /* prices of auto */
  VEC(struct EscapeUse) escapes;
  uint32_t lost;         /* parameters and modules that a fault kept from being declared */
  uint32_t unrepeatable; /* times that code did what a copy of its nodes would leave out and nothing
                          * else here shows (effects.c): another escape of a place, a name of a file
                          * that leads to instances, a shared variable */
  struct Twins *twins;
  VEC(Instance *) instances; /* in the order in which they were made */
  IdMap made;                /* place and module -> index of the last making (remake.c) */
  VEC(struct Making *) makings;
  const char *asked; /* what `explain` has a function called for: its parameters, no value */
};

/* --- diagnostics (env.c) -----------------------------------------------------------------------
 */

/* diag_emit with the chain of instantiations as notes; add further lines before returning. */
Diag *sema_error(Sema *s, DiagCode code, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "did you mean ..." from all names visible in env; NULL when nothing is near. */
const char *env_nearest(Sema *s, const Env *env, const char *name);
const char *source_text(Sema *s, Span span); /* the text of a span, on one line */

/* --- names (env.c) -----------------------------------------------------------------------------
 */

Env env_child(Sema *s, Env *parent);                    /* with a map of its own */
Binding *env_find(Sema *s, Env *env, const char *name); /* user names only; NULL when absent */
/* Declares; reports a redeclaration in the same scope or of a mesh dim. */
Binding *env_declare(Sema *s, Env *env, const char *name, BindKind kind, Val value, Span span);
/* Sets without a check: loop variables, presets. */
Binding *env_set(Sema *s, Env *env, const char *name, BindKind kind, Val value, Span span);
Val env_lookup(Sema *s, Env *env, const char *name, Span span); /* reports unknown names */
Val binding_value(Sema *s, SourceUnit *file, Binding *b, const char *name);

/* --- expressions (eval.c, arith.c, index.c) ----------------------------------------------------
 */

Val eval(Sema *s, Env *env, const Expr *e);
/* As eval, for what names a dim of `mesh`: where the name is unknown it lists those that there are.
 */
Val eval_axis(Sema *s, Env *env, const Expr *e, const Mesh *mesh);
Val eval_binary(Sema *s, BinaryOp op, Val a, Val b, Span span, Span a_span, Span b_span);
Val eval_unary(Sema *s, UnaryOp op, Val a, Span span, Span operand);
Val eval_index(Sema *s, Env *env, const Expr *e);
/* Compile-time value of a pointwise operator by its name on numbers; VAL_UNSET: not known. */
Val fold_scalar(Sema *s, const char *name, const Val *args, uint32_t n, Span span);
bool eval_condition(Sema *s, Env *env, const Expr *e, const char *what, bool *out);
/* Elements of a compile-time list to loop over. */
bool eval_iterable(Sema *s, Env *env, const Expr *e, const List **out);
const char *path_join(Sema *s, const char *path, const char *name);
const char *path_index(Sema *s, const char *path, uint32_t i);

/* --- calls (call.c) ----------------------------------------------------------------------------
 */

typedef struct CallArg {
  const char *name; /* NULL = positional */
  bool is_key;      /* `tp: Shard(0)` */
  Span name_span;
  Val value;
  Span span; /* of the value */
} CallArg;

typedef struct Call {
  Env *env;
  const char *name; /* of what is called, for messages */
  const CallArg *args;
  uint32_t nargs;
  Span span;  /* whole call */
  bool alone; /* no call in the program: its place is no part of the chain in messages */
} Call;

typedef struct ParamSpec {
  const char *name; /* interned */
  const char *also; /* a second accepted name, interned, or NULL */
  bool required;
} ParamSpec;

/* Binds arguments to parameters by position, then name. out[i].kind == VAL_UNSET where not given;
 * spans[i] is the argument's (the call's where not given). With `rest`, named arguments that fit
 * no parameter go there instead of being an error; `extra` likewise takes surplus positional ones.
 * False after a report, or when an argument is poisoned. */
typedef struct ArgRest {
  CallArg data[SEMA_MAX_ARGS];
  uint32_t len;
} ArgRest;
bool bind_args(Sema *s, const Call *call, const ParamSpec *params, uint32_t nparams, Val *out,
               Span *spans, ArgRest *rest, ArgRest *extra);
/* bind_args to declared parameters; *values is NULL when there are too many. */
bool bind_declared(Sema *s, const Call *call, const ParamList *params, ArgRest *rest, Val **values,
                   Span **spans);
/* What was bound to a parameter, or its default, which may name parameters that `env` has so far;
 * *span is then the default's. */
Val bound_value(Sema *s, Env *env, const ParamDecl *decl, Val given, Span *span);
/* bind_args by a word list: "x dim? keepdim?". */
bool bind_words(Sema *s, const Call *call, const char *words, Val *out, Span *spans);
/* The row of an operator in signatures.def; NULL without one. */
const char *op_words(Op op);
Val eval_call(Sema *s, Env *env, const Expr *e);
/* Evaluated arguments behind `skip` free places. */
CallArg *eval_args(Sema *s, Env *env, const ArgList *args, uint32_t skip);
bool call_too_deep(Sema *s, Span span, const char *what);
Val call_value(Sema *s, Val callee, const Call *call);

/* --- modules (module.c, param.c) ---------------------------------------------------------------
 */

Val instantiate(Sema *s, const ModuleDef *def, const Call *call);
/* Makes the levels of a copy. Whoever looks at the levels of an instance calls it first. */
void instance_open(Sema *s, Instance *inst);
/* Code of level k sees levels k, k+1, ... and then its own file. */
void link_names(Sema *s, Instance *inst, uint32_t k);
Val instance_member(Sema *s, Instance *inst, const char *name); /* VAL_UNSET when it has none */
const Method *instance_method(Sema *s, Instance *inst, const char *name);
void declare_param(Sema *s, Env *env, Instance *inst, Level *level, const Stmt *stmt);
/* Foreign names for the variables since `first_var`, all of which lie under `path`. A name that
 * none has is a fault where they are `whole`: no other fault kept one from being declared. */
void apply_renames(Sema *s, const Stmt *stmt, const char *path, uint32_t first_var, bool whole);
/* Reports parameters that would have one name in a file. */
void check_file_names(Sema *s);

/* --- storage (storage.c) ------------------------------------------------------------------------
 */

/* How a new parameter is kept: as its line says, else the rule at hand; true if either says. */
bool declare_storage(Sema *s, Env *env, const Stmt *stmt, Var *var);
/* The rule of train for all other parameters. */
void apply_train_store(Sema *s);

/* --- statements (stmt.c) -----------------------------------------------------------------------
 */

typedef enum BodyKind { BODY_FUNCTION = 1, BODY_MODULE, BODY_BLOCK } BodyKind;

typedef struct Body {
  BodyKind kind;
  Instance *instance;     /* MODULE */
  Level *level;           /* MODULE: where members are declared */
  struct RunBlock *block; /* BLOCK */
  bool returned;
  Val result;
  Span result_span;
} Body;

/* A buffer that infer declares is what its steps leave for each other: no part of the model. */
bool assign_makes_state(const Sema *s, uint32_t var);
void exec_stmts(Sema *s, Env *env, const StmtList *stmts, Body *body);
/* A member or line `store` (storage.c). */
void exec_store(Sema *s, Env *env, const Stmt *stmt, Body *body);

/* --- types (type.c) ----------------------------------------------------------------------------
 */

/* Converts a compile-time argument to a named type: int, axis?, ... Gives poison after a report. */
Val coerce_named(Sema *s, Env *env, const TypeExpr *t, Val v, Span span, const char *what);
bool type_is_tensor(const TypeExpr *t); /* dtype with or without dims, any: not int, axis, ... */
/* A type all of whose names are known. */
bool eval_type(Sema *s, Env *env, const TypeExpr *t, TensorType *out);
Val eval_type_value(Sema *s, Env *env, const TypeExpr *t); /* VAL_TYPE; POISON after a report */
/* [B@dp, S]: layout of a literal, on the mesh at hand. */
bool eval_layout_literal(Sema *s, Env *env, const Expr *e, const Mesh *mesh, TensorType *out);
/* Checks a tensor against a declared type, binding free names in `bind` (NULL: none bind). Gives
 * the value, wrapped by a fix where one is laid over, or poison. */
Val match_tensor(Sema *s, Env *env, Env *bind, const TypeExpr *t, Val v, Span span,
                 const char *what);
DType dtype_map(const Sema *s, DType t); /* --widen */
bool eval_placement(Sema *s, Env *env, const Expr *e, Val *out);

/* --- tensors (emit.c) --------------------------------------------------------------------------
 */

/* The graph value of a tensor or variable; false after a report (no graph here, not a tensor). */
bool as_tensor(Sema *s, Val v, Span span, const char *what, ValueId *out);
const TensorType *tensor_type(Sema *s, Val v); /* of TENSOR or VAR */
/* Builds a node by inference; results as VAL_TENSOR or a VAL_LIST of them; poison after an error.
 */
Val emit(Sema *s, Op op, const ValueId *operands, uint32_t noperands, const Attr *attrs,
         uint32_t nattrs, Span span, const Span *spans);
Val emit1(Sema *s, Op op, ValueId x, const Attr *attrs, uint32_t nattrs, Span span);
Val emit2(Sema *s, Op op, ValueId a, ValueId b, Span span);
/* A node whose result types are known: structure and constants. */
ValueId emit_typed(Sema *s, Op op, const Attr *attrs, uint32_t nattrs, const TensorType *type,
                   Span span);
void emit_output(Sema *s, ValueId v, const char *name, const char *role, Span span);
ValueId emit_const(Sema *s, DType dtype, double value, const Mesh *mesh, Span span);
/* What is there already; 0 = not yet. */
ValueId const_made(const GraphCache *cache, DType dtype, double value, const Mesh *mesh);
ValueId read_made(const GraphCache *cache, uint32_t var);
/* A number that is on no mesh yet, as one that all ranks of `mesh` have; others as they are. */
ValueId emit_on_mesh(Sema *s, ValueId x, const Mesh *mesh, Span span);
/* A literal as a constant of this element type; false after a report when it has no such value. */
bool literal_const(Sema *s, Val v, DType dtype, const Mesh *mesh, Span span, ValueId *out);
Val emit_cast(Sema *s, ValueId x, DType dtype, Span span);
Val emit_redistribute(Sema *s, ValueId x, const TensorType *to, Span span);
/* A layout given so, as a type whose element type is still to be set. */
bool layout_value(Sema *s, Val v, Span span, const Mesh *mesh, TensorType *out);
/* A layout given as [B@dp, S], layout(x) or a type: sets that of `t`, whose extents it must have.
 */
bool apply_layout(Sema *s, Val v, Span span, TensorType *t);
Val emit_reshape(Sema *s, ValueId x, const int64_t *shape, uint32_t rank, Span span);
/* A number that is the same on every mesh: from the path and a count within it. */
int64_t next_instance(Sema *s);
int64_t instance_at(Sema *s, const char *path);
void begin_graph(Sema *s, Graph *g, GraphCache *cache);
/* In a region: a value that is a tensor of outside (a variable, or found beyond the region's scope)
 * enters, or is refused; others are given back. */
Val region_admit(Sema *s, Val v, bool from_outside, Span span);
void name_value(Sema *s, Val v, const char *name);
/* Applies the overlay to the value of an expression. */
Val overlay_value(Sema *s, Val v, Span span);

/* --- operators and built-in functions (opcall.c, builtin_*.c) ----------------------------------
 */

struct Builtin {
  const char *name;
  Op op; /* OP_NONE: `call` does it, or it is a constant */
  Val (*call)(Sema *s, const Call *call);
  Val constant; /* Replicate, pi, ...; else VAL_UNSET */
};

void builtins_init(Sema *s);
/* Only the compiler makes this operator. */
bool builtin_is_internal(Op op);
const Builtin *builtin_find(const Sema *s, const char *name);
Val call_op(Sema *s, Op op, const Call *call);
/* All operands to one element type (literals) and the check that they agree. */
bool unify_operands(Sema *s, Op op, const Val *values, const Span *spans, uint32_t n, ValueId *out,
                    Span span);
bool normal_dim(int64_t *dim, uint32_t rank);

/* --- files, configuration, meshes (load.c, config.c, meshes.c) ---------------------------------
 */

SourceUnit *load_main(Sema *s);
SourceUnit *load_library(Sema *s, const char *name, Span span);
void config_declare(Sema *s, SourceUnit *file, const Item *item);
void config_finish(Sema *s); /* evaluates all, reports -D names that nothing has */
bool config_override(Sema *s, const ConfigItem *item, Val value, Val *out);
void mesh_declare(Sema *s);

/* --- meshes as values (mesh_values.c) ------------------------------------------------------------
 */

/* The mesh of the program that is the same, or this one, which is one from now on. */
const Mesh *mesh_listed(Sema *s, const Mesh *mesh);
/* Some mesh that the program has made so far has a dim of this name. */
bool mesh_knows_axis(Sema *s, const char *name);
/* A declared mesh with this dim, or NULL: names of such dims are not declared again. */
const Mesh *mesh_declaring(const Sema *s, const char *axis);
Val mesh_member(Sema *s, const Mesh *mesh, const char *name); /* VAL_UNSET when it has none */
Val mesh_member_call(Sema *s, const Mesh *mesh, const char *name, const Call *call);
/* mesh["dp", "tp"]; NULL after a report. */
const Mesh *mesh_select(Sema *s, const Mesh *mesh, const Val *axes, uint32_t n, Span span);
Val mesh_concatenated(Sema *s, const Mesh *a, const Mesh *b, Span span);
/* type_to_mesh with a report. */
bool move_to_mesh(Sema *s, TensorType *t, const Mesh *mesh, Span span);

/* --- samples.c ---------------------------------------------------------------------------------
 */

typedef enum SampleKind {
  SAMPLES_NONE = 1, /* does not depend on the batch */
  SAMPLES_ROWS,     /* dim 0 holds the samples in order, each row made of its own sample alone */
  SAMPLES_MIXED     /* anything else */
} SampleKind;
typedef struct Samples Samples;
SampleKind samples_of(Samples *w, ValueId v);
/* The dim that holds the samples in order, -1 where none does; false where samples are mixed. */
bool samples_along(Samples *w, ValueId v, int *dim);
/* Of both the same is true. */
bool samples_alike(Samples *w, ValueId a, ValueId b);
/* copies[i] is of a node like that of from + i, on operands that are alike; where it is not below
 * `first`: all that the graph has from there on are such copies. */
void samples_copy(Samples *w, ValueId from, const ValueId *copies, uint32_t n, ValueId first);
/* Extents of values of the graph at hand may be in parts. */
bool samples_count(const Sema *s);
/* It will be asked of the values of the graph at hand how they hold samples. */
bool samples_asked(const Sema *s);
/* Where the first value behind `v` that mixes samples is made; no file where `v` alone does. */
Span samples_mixed_at(Samples *w, ValueId v);

/* --- blocks (block.c, setting.c, data.c, metric.c, optim.c, sweep.c) -----------------------------
 */

/* What train hands out. */
typedef struct Reported {
  const char *name, *role; /* "loss", "metric", "print" */
  ValueId value;
  Span span;
} Reported;

typedef struct RunBlock {
  BlockKind kind;
  const char *name;
  ProgramBlock *out;
  Env *env;
  uint32_t nmodels;       /* model statements */
  NameMap seen;           /* settings that stand once -> Stmt */
  NameMap metrics;        /* names that are taken */
  VEC(Reported) reported; /* train: handed out when all settings are known */
  Samples *samples;       /* what is known of the block's values; NULL = nothing yet */
  bool unpadded;          /* what is taken apart now counts all samples: no batch is short */
  const Stmt *optimizer;  /* evaluated last: schedules may ask for the number of steps */
  bool prints_text;
  Span span;
} RunBlock;

/* What a mean is made of. */
typedef struct Parts {
  Val sum, count; /* scalars, pending sums perhaps; no count (VAL_UNSET): it is a sum */
} Parts;

/* Of the values of the block's graph, also of those that come later (samples.c). */
Samples *block_samples(Sema *s, RunBlock *block);
void run_blocks(Sema *s, SourceUnit *main_file);
void block_setting(Sema *s, Env *env, RunBlock *block, const Stmt *stmt);
/* Settings that sources of data depend on, wherever they stand in the block. */
void block_settings_first(Sema *s, Env *env, RunBlock *block, const StmtList *stmts);
/* The value whole on every rank, for the run-time to hand out; false after an error. */
bool block_whole(Sema *s, Val v, Span span, const char *what, ValueId *out);
void block_expression(Sema *s, Env *env, RunBlock *block, const Stmt *stmt);
void block_data(Sema *s, Env *env, RunBlock *block, const Stmt *stmt);
void block_optimizer(Sema *s, Env *env, RunBlock *block);
void block_metric(Sema *s, RunBlock *block, const char *name, ValueId v, Span span);
/* `loss` times what its batch counts among the accumulated ones: 1 but where one is short. */
ValueId block_weighted_loss(Sema *s, RunBlock *block, ValueId loss, Span span);
/* A loss or metric such that its mean over the micro-batches is that of the true samples of the
 * whole batch; 0 after an error. `what` as in "the loss". */
ValueId block_terms(Sema *s, RunBlock *block, ValueId v, const char *what, Span span);
/* Takes a mean, a sum or a cross_entropy over samples apart; false when the value is none. A mean
 * of a block whose batches are never short has its count only where values count unequally: in a
 * cross_entropy. */
bool block_split(Sema *s, RunBlock *block, ValueId v, Span span, Parts *parts);
/* The same value, whole on every rank of a mesh. */
Val block_everywhere(Sema *s, Val v, const Mesh *mesh, Span span);
/* Notes where the rows that should each be of one sample stop being so. */
void block_note_mixed(Sema *s, RunBlock *block, Diag *d, ValueId v);
/* micro.c: the rows of one micro-batch, of a batch of `rows`, which is reported when it has no
 * equal parts. */
int64_t block_micro_rows(Sema *s, const RunBlock *block, int64_t rows, Span span);
/* Prints a value of train; what differs between micro-batches once for the whole batch. */
void block_print(Sema *s, RunBlock *block, ValueId v, const char *name, Span span);
/* Random masks that go on from one micro-batch to the next; reports what cannot be cut. */
void block_spread_random(Sema *s, RunBlock *block);
Val builtin_total_steps(Sema *s, const Call *call);
/* Drops nodes that nothing needs, keeping the order. `roots` are values kept besides outputs and
 * assigns; they are renumbered in place. */
void sweep_graph(Sema *s, Graph *g, ValueId *const *roots, uint32_t nroots);

#endif
