/* Operators as data: what ops.def says, in tables. Knows nothing above element types. */
#ifndef DTM_OPS_OPS_H
#define DTM_OPS_OPS_H

#include "types/layout.h"

typedef enum Op {
  OP_NONE = 0,
#define POINTWISE(ID, name, arity, trait, types, expr, grads, doc) OP_##ID,
#define OPERATOR(ID, name, cls, lower, min, max, results, attrs, doc) OP_##ID,
#include "ops/ops.def"
  OP_COUNT
} Op;

/* Rule classes of the placement algebra. */
typedef enum OpClass {
  CLASS_NONE = 0,
  CLASS_POINTWISE,
  CLASS_CONTRACTION,
  CLASS_REDUCTION,
  CLASS_WHOLE_DIM,
  CLASS_MOVEMENT,
  CLASS_INDEXING,
  CLASS_FUSED,
  CLASS_RANDOM,
  CLASS_FACTORY,
  CLASS_COMM,
  CLASS_STRUCTURE
} OpClass;

/* What one rank does for an operator. Each entry names the table that binds the function; an
 * operator that lacks its function there does not build. */
typedef enum OpLower {
  LOWER_NONE = 0,
  LOWER_OPENED,     /* nothing: a pass up to spmd turns it into other operators */
  LOWER_COMPOSITE,  /* primitives, made in spmd/composite.c */
  LOWER_ELEMENT,    /* computed for each element of a kernel: fuse/eval.c; so are pointwise ones */
  LOWER_FREE,       /* likewise, and so cheap that it is computed wherever it is used */
  LOWER_REDUCE,     /* a reduction in a kernel: fuse/lower.c */
  LOWER_ALIAS,      /* same bytes under a shape that differs in dims of extent 1 only */
  LOWER_TURN,       /* dims in another order, or repeated: kernels look through it */
  LOWER_VIEW,       /* same bytes, dims merged or split */
  LOWER_CONTRACT,   /* a matrix product: spmd/contract.c */
  LOWER_LIBRARY,    /* a function of the runtime: plan/emit.c, runtime/device/cpu/library.c */
  LOWER_COLLECTIVE, /* an action of the runtime: plan/emit.c */
  LOWER_STRUCTURE   /* where a block meets the rest of the program: plan/emit.c */
} OpLower;

/* How Partial passes through a pointwise operator. */
typedef enum PointwiseTrait {
  PW_NONE = 0,
  PW_NONLINEAR, /* Partial is an error */
  PW_NEG,       /* sum and avg pass, max and min swap */
  PW_ADD,
  PW_SUB,
  PW_MUL,
  PW_DIV, /* linear in the first operand only */
  PW_MAX, /* maximum: Partial(max) beside Partial(max) passes */
  PW_MIN,
  PW_ABS,    /* Partial(product) passes */
  PW_SQUARE, /* Partial(product) passes */
  PW_BIT_AND,
  PW_BIT_OR,
  PW_BIT_XOR,
  PW_WHERE,
  PW_CAST,
  PW_LINEAR_FIRST /* a derivative: linear in operand 0, the others Replicate */
} PointwiseTrait;

/* Element types of a pointwise operator. All tensor operands have one type; there is no promotion.
 */
typedef enum TypeRule {
  TR_NONE = 0,
  TR_NUMBER,  /* floats and integers, same type out */
  TR_FLOAT,   /* floats, same type out */
  TR_INTEGER, /* integers and bool, same type out */
  TR_BOOL,    /* bool in and out */
  TR_COMPARE, /* any type in, bool out */
  TR_TEST,    /* float in, bool out */
  TR_WHERE,   /* bool, then two of any one type */
  TR_CAST     /* any in, attribute dtype out */
} TypeRule;

/* Attribute keys. X(KEY, printed name, kind) */
#define ATTR_KEYS(X)                                                                               \
  X(DIM, "dim", INT)                                                                               \
  X(DIMS, "dims", INTS)                                                                            \
  X(KEEPDIM, "keepdim", BOOL)                                                                      \
  X(SHAPE, "shape", INTS)                                                                          \
  X(SPEC, "spec", STRING)                                                                          \
  X(EPS, "eps", FLOAT)                                                                             \
  X(NDIMS, "ndims", INT)                                                                           \
  X(CORRECTION, "correction", INT)                                                                 \
  X(DTYPE, "dtype", DTYPE)                                                                         \
  X(TYPE, "type", TYPE)                                                                            \
  X(VALUE, "value", FLOAT)                                                                         \
  X(START, "start", INT)                                                                           \
  X(STOP, "stop", INT)                                                                             \
  X(STEP, "step", INT)                                                                             \
  X(BEFORE, "before", INT)                                                                         \
  X(AFTER, "after", INT)                                                                           \
  X(SHIFT, "shift", INT)                                                                           \
  X(DIAGONAL, "diagonal", INT)                                                                     \
  X(EXTENT, "extent", INT)                                                                         \
  X(K, "k", INT)                                                                                   \
  X(DESCENDING, "descending", BOOL)                                                                \
  X(REVERSE, "reverse", BOOL)                                                                      \
  X(P, "p", FLOAT)                                                                                 \
  X(INSTANCE, "instance", INT)                                                                     \
  X(IGNORE_INDEX, "ignore_index", INT)                                                             \
  X(LABEL_SMOOTHING, "label_smoothing", FLOAT)                                                     \
  X(REDUCTION, "reduction", STRING)                                                                \
  X(START_VALUE, "from", FLOAT)                                                                    \
  X(STEP_VALUE, "by", FLOAT)                                                                       \
  X(BASE, "base", FLOAT)                                                                           \
  X(IMPLICIT, "implicit", BOOL)                                                                    \
  X(INSERTED, "inserted", BOOL)                                                                    \
  X(ASYNC, "async", BOOL)                                                                          \
  X(FORWARD_DTYPE, "forward_dtype", DTYPE)                                                         \
  X(BACKWARD_DTYPE, "backward_dtype", DTYPE)                                                       \
  X(BUCKET, "bucket", INT)                                                                         \
  X(AXES, "axes", INTS)                                                                            \
  X(VAR, "var", INT)                                                                               \
  X(SOURCE, "source", INT)                                                                         \
  X(NAME, "name", STRING)                                                                          \
  X(ROLE, "role", STRING)                                                                          \
  X(CAUSAL, "causal", BOOL)                                                                        \
  X(SCALE, "scale", FLOAT)                                                                         \
  X(RING, "ring", STRING)                                                                          \
  X(SINGLE, "single", BOOL)                                                                        \
  X(MICRO, "micro", INTS)                                                                          \
  X(CHANNEL, "channel", INT)

typedef enum AttrKey {
  ATTR_NONE = 0,
#define X(KEY, name, kind) ATTR_##KEY,
  ATTR_KEYS(X)
#undef X
      ATTR_COUNT
} AttrKey;

/* What an absent attribute means where that is not 0, false or nothing. Inference adds it to the
 * nodes that take it (infer/infer_attrs.c); what reads a node that it did not make says the same.
 */
#define DEFAULT_EPS 1e-5
#define DEFAULT_NDIMS 1
#define DEFAULT_CORRECTION 1
#define DEFAULT_P 0.5
#define DEFAULT_IGNORE_INDEX (-100)
#define DEFAULT_STEP 1
#define DEFAULT_STEP_VALUE 1.0
#define DEFAULT_BASE 10.0

#define ATTR_BIT(KEY) (1ull << ATTR_##KEY)

typedef enum AttrKind {
  ATTR_KIND_NONE = 0,
  ATTR_KIND_INT,
  ATTR_KIND_INTS,
  ATTR_KIND_FLOAT,
  ATTR_KIND_BOOL,
  ATTR_KIND_STRING,
  ATTR_KIND_DTYPE,
  ATTR_KIND_TYPE
} AttrKind;

typedef struct OpInfo {
  const char *name;
  const char *doc;
  OpClass cls;
  OpLower lower;
  uint8_t min_operands, max_operands, results;
  uint64_t attrs;       /* ATTR_BIT set of what it needs or takes */
  PointwiseTrait trait; /* pointwise only */
  TypeRule types;       /* pointwise only */
  const char *expr;     /* pointwise only; "" = primitive */
  const char *grads;    /* pointwise only */
} OpInfo;

/* A table over the operators of one lowering alone: with `#define ROW_LIBRARY(ID) 0, entry_##ID`,
 * OPS_PICK(ROW_##lower(ID), otherwise) is the entry in rows of LIBRARY, `otherwise` in the others.
 */
#define OPS_PICK(...) OPS_SECOND(__VA_ARGS__, 0)
#define OPS_SECOND(first, second, ...) second

const OpInfo *op_info(Op op);
const char *op_name(Op op);
uint64_t op_needs(Op op);        /* ATTR_BIT set of attributes that no node lacks */
Op op_by_name(const char *name); /* OP_NONE when unknown */
const char *attr_name(AttrKey key);
AttrKey attr_by_name(const char *name);
AttrKind attr_kind(AttrKey key);

#endif
