/* Compile-time values. One of kind VAL_POISON stands for something that was reported already.
 */
#ifndef DTM_SEMA_VALUE_H
#define DTM_SEMA_VALUE_H

#include "ir/graph.h"

typedef enum ValKind {
  VAL_UNSET = 0, /* an argument that was not given */
  VAL_POISON,
  VAL_NONE,
  VAL_BOOL,
  VAL_INT,
  VAL_FLOAT,
  VAL_STRING,
  VAL_DTYPE,
  VAL_AXIS, /* as.s: name of a mesh dim */
  VAL_MESH,
  VAL_LAYOUT, /* as.type without dtype; extents as written */
  VAL_TYPE,   /* as.type */
  VAL_PLACE,  /* Shard(d), Replicate, Partial(op) */
  VAL_LIST,
  VAL_TENSOR, /* a value of the graph at hand */
  VAL_VAR,    /* a parameter or buffer, read when it is used */
  VAL_FN,
  VAL_METHOD,
  VAL_MODULE,
  VAL_INSTANCE,
  VAL_FILE, /* what an import names */
  VAL_BUILTIN
} ValKind;

typedef struct List List;
typedef struct Fn Fn;
typedef struct Method Method;
typedef struct ModuleDef ModuleDef;
typedef struct Instance Instance;
typedef struct SourceUnit SourceUnit;
typedef struct Builtin Builtin;
typedef struct Sema Sema;

typedef struct Val {
  ValKind kind;
  bool any_mesh; /* LAYOUT: written without `on`, so it is read on the mesh of the value it meets */
  bool in_parts; /* INT, FLOAT, TYPE: made of the rows of a micro-batch; `whole` is of the batch */
  union {
    bool b;
    int64_t i;
    double f;
    const char *s;
    DType dtype;
    const Mesh *mesh;
    const TensorType *type;
    struct {
      PlaceKind kind;
      ReduceOp op;
      int32_t dim;
    } place;
    const List *list;
    ValueId tensor;
    uint32_t var;
    const Fn *fn;
    const Method *method;
    const ModuleDef *module;
    Instance *instance;
    SourceUnit *file;
    const Builtin *builtin;
  } as;
  union {
    double number;
    const int64_t *shape;
  } whole;
} Val;

struct List {
  Val *data;
  uint32_t len;
};

#define POISON ((Val){.kind = VAL_POISON})
#define NONE ((Val){.kind = VAL_NONE})
static inline Val val_int(int64_t i) {
  return (Val){.kind = VAL_INT, .as.i = i};
}
static inline Val val_float(double f) {
  return (Val){.kind = VAL_FLOAT, .as.f = f};
}
static inline Val val_bool(bool b) {
  return (Val){.kind = VAL_BOOL, .as.b = b};
}
static inline Val val_string(const char *s) {
  return (Val){.kind = VAL_STRING, .as.s = s};
}
static inline Val val_tensor(ValueId id) {
  return (Val){.kind = VAL_TENSOR, .as.tensor = id};
}
static inline bool val_is_tensor(Val v) {
  return v.kind == VAL_TENSOR || v.kind == VAL_VAR;
}
static inline bool val_is_number(Val v) {
  return v.kind == VAL_INT || v.kind == VAL_FLOAT || v.kind == VAL_BOOL;
}
static inline double val_as_double(Val v) {
  return v.kind == VAL_FLOAT ? v.as.f : v.kind == VAL_BOOL ? (double)v.as.b : (double)v.as.i;
}

/* --- value.c ---- */

/* What a number is with the rows of a whole batch: itself where it is not made of them. */
Val val_whole(Val v);
/* A number, and what it is with the rows of a whole batch. */
Val val_in_parts(Val v, Val whole);
/* A type whose extents are `whole` with the rows of a whole batch. */
Val val_type_in_parts(Sema *s, Val type, const int64_t *whole);
/* Extent `d` of a value; with micro-batches it may be in parts (samples.c). */
Val val_extent(Sema *s, Val tensor, uint32_t d);
const char *val_kind_name(Val v);      /* "an int", "a tensor" */
const char *val_print(Sema *s, Val v); /* as source text where it has one */
bool val_equal(Val a, Val b);
List *list_new(Sema *s, uint32_t len);
Val val_list(const List *list);
Val val_type(Sema *s, ValKind kind, const TensorType *t); /* VAL_TYPE or VAL_LAYOUT, copied */
/* Conversions; on failure they report at `span` that `what` must be an int, ... and give false. */
bool want_int(Sema *s, Val v, Span span, const char *what, int64_t *out);
/* With the rows of a whole batch: floats are what is computed with, not extents. */
bool want_float(Sema *s, Val v, Span span, const char *what, double *out);
bool want_bool(Sema *s, Val v, Span span, const char *what, bool *out);
bool want_string(Sema *s, Val v, Span span, const char *what, const char **out);
bool want_list(Sema *s, Val v, Span span, const char *what, const List **out);
bool want_mesh(Sema *s, Val v, Span span, const char *what, const Mesh **out);
/* A list of ints, or one int. */
bool want_ints(Sema *s, Val v, Span span, const char *what, int64_t *out, uint32_t max,
               uint32_t *len);
/* Axis index on `mesh`, -1 for none; names and ints and axis constants. `missing_is_none`: a string
 * that the mesh lacks gives none. False after a report. */
bool want_axis(Sema *s, Val v, const Mesh *mesh, Span span, bool missing_is_none, int *axis);

#endif
